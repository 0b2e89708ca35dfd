/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a process has by a dma-buf, to be mapped in IOMMU domains in one piece:
 *
 *	memory of this host	pinned, and counted for its RLIMIT_MEMLOCK
 *	a BAR of this host	by whoever exports it, who may take it away (source.h)
 *	a segment of another	host, which this one has connected: a piece of a memory window
 *	a BAR of another	host's function, which this one has leased: the same
 *
 * and what this host makes for others, which is the module's own.
 *
 * No lock that a caller could notice, but the process's mmap_lock, and those of exporters.
 */
#ifndef PCILEND_MEMORY_H
#define PCILEND_MEMORY_H

#include <linux/types.h>

#include "base/pages.h"

struct dma_buf;
struct dma_buf_attachment;
struct iommu_domain;
struct mm_struct;
struct netlink_ext_ack;
struct pci_dev;
struct pcilend_link;
struct pcilend_source;
struct sg_table;

/* Constant between the two. */
struct pcilend_memory {
	u64 size;			/* bytes, whole pages */
	bool writable;			/* by whoever has the descriptor */
	bool contiguous;		/* in physical memory */
	phys_addr_t phys;		/* of its first page */
	struct pci_dev *behind;		/* in whose BAR, with a reference; NULL: it is memory */
	struct pcilend_link *link;	/* that leads there, as long as @source is; NULL: none */
	u32 segment;			/* of another host: its id; else 0 */
	struct pcilend_far_bar far;
	struct pcilend_source *source;	/* with a reference; NULL: nobody takes it away */
	struct sg_table *table;		/* NULL: it is contiguous. With @source: only between */
					/* pcilend_source_begin() and _end() */
	bool made;			/* the pages in @table are our own */
	/* What keeps it; NULL where others do. */
	struct dma_buf *buffer;
	struct dma_buf_attachment *attachment;
	struct mm_struct *mm;
	unsigned long pages;
};

/*
 * pcilend_memory_get - what is behind a descriptor of the calling process
 * @anything: also what is no memory of this host
 *
 * Return: 0; or why not, which @extack says: it is no dma-buf, of no whole pages, nothing that can
 * be mapped, or more than the process may lock.
 */
int pcilend_memory_get(struct pcilend_memory *memory, int fd, bool anything,
		       struct netlink_ext_ack *extack);
/* The same of pages of this module; takes the caller's reference on their dma-buf over. */
void pcilend_memory_of_pages(struct pcilend_memory *memory, struct pcilend_pages *pages,
			     struct dma_buf *buffer);
/*
 * A part of what somebody else keeps, for as long as @source is not taken: with a reference on
 * that.
 */
void pcilend_memory_borrow(struct pcilend_memory *memory, const struct pcilend_memory *of,
			   struct pcilend_source *source);
/*
 * Makes @size bytes of memory, whole pages, zeroed; in pieces as large as can be had at once, and
 * nobody is killed for it. Return: 0 or -ENOMEM.
 */
int pcilend_memory_make(struct pcilend_memory *memory, u64 size);
/* Nothing of it is mapped. */
void pcilend_memory_put(struct pcilend_memory *memory);

/* How many pages of 4 KiB of it are in no piece of 2 MiB, at most. */
u64 pcilend_memory_small_pages(const struct pcilend_memory *memory);

/*
 * Maps all of it at @iova, from which on there is room. @prot: IOMMU_READ, IOMMU_WRITE, or both.
 * What can be taken away: between pcilend_source_begin() and _end(). Return: 0, or what the IOMMU
 * says.
 */
int pcilend_memory_map(const struct pcilend_memory *memory, struct iommu_domain *domain, u64 iova,
		       int prot);

int pcilend_memory_init(void);
void pcilend_memory_exit(void);

#endif /* PCILEND_MEMORY_H */
