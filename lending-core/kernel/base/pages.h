/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Pages of another host, or of a function, that processes have mapped by a dma-buf, and that can be
 * taken from them: in their place come pages of all-ones (ones.h), which a process may write to as
 * it likes. No fault, no signal, and nobody else's memory.
 *
 * Part of what keeps them, which is kept until @release.
 */
#ifndef PCILEND_PAGES_H
#define PCILEND_PAGES_H

#include <linux/rwsem.h>
#include <linux/types.h>

#include "pcilend/ones.h"

struct dma_buf;
struct inode;
struct pci_dev;
struct pcilend_link;
struct pcilend_source;

/* In a BAR of another host's function: another function reaches all of that, or nothing. */
struct pcilend_far_bar {
	u32 function;			/* id; 0: it is in none */
	u32 lease;			/* by which this host has it */
	u64 offset;			/* in the BAR */
	u64 size;			/* of the BAR; bytes, whole pages */
};

struct pcilend_pages {
	u64 size;			/* bytes, whole pages; constant once exported, as all to */
	phys_addr_t phys;		/* @release */
	bool read_only;
	bool write_combining;		/* else uncached */
	void (*release)(struct pcilend_pages *pages); /* no process has or can map them */
	/* For functions that are to reach them; until pcilend_pages_destroy(). */
	struct pci_dev *behind;		/* whose BAR they are in, with a reference; NULL: one of */
					/* another host's */
	struct pcilend_link *link;	/* that leads to them; NULL: they are of this host */
	u32 segment;			/* id of another host's; 0: none */
	struct pcilend_far_bar far;
	struct pcilend_source *source;	/* taken and given with them */

	struct rw_semaphore lock;	/* the next two; taken in page faults */
	bool away;			/* all-ones are in their place */
	struct inode *inode;		/* with a reference; NULL: not exported */
	struct pcilend_ones ones;
};

/* Zeroed memory before. Return: 0 or -ENOMEM. */
int pcilend_pages_init(struct pcilend_pages *pages);
/* Nobody maps any of them. No-op if it was not initialised. */
void pcilend_pages_destroy(struct pcilend_pages *pages);

/*
 * A dma-buf whose mmap shows them; devices can't have it, but for what pcilend_memory_get() makes
 * of it. Its end calls @release, which is not called on failure.
 */
struct dma_buf *pcilend_pages_export(struct pcilend_pages *pages);
/* What such a dma-buf shows, for as long as that is there; NULL: it is another one. */
struct pcilend_pages *pcilend_pages_of(struct dma_buf *buffer);

/* On return no process has them in its page tables, and no function reaches them. May sleep. */
void pcilend_pages_take(struct pcilend_pages *pages);
/* Undoes that: the pages themselves are seen again, and nothing of what was written meanwhile. */
void pcilend_pages_give(struct pcilend_pages *pages);

#endif /* PCILEND_PAGES_H */
