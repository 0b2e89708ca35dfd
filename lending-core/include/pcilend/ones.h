/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Pages of all-ones, in the place of what a process has mapped of another host and has lost. Each
 * page keeps what is written to it: a doorbell must not be read as the status of another page. At
 * most PCILEND_ONES_MAX of them; those beyond share one.
 */
#ifndef PCILEND_ONES_H
#define PCILEND_ONES_H

#include <linux/mm_types.h>
#include <linux/mutex.h>
#include <linux/xarray.h>

#define PCILEND_ONES_MAX 64

/* Zeroed memory before pcilend_ones_init(). */
struct pcilend_ones {
	struct mutex lock;		/* all of it */
	struct xarray pages;
	unsigned int count;
	struct page *spare;
};

/* Return: 0 or -ENOMEM. */
int pcilend_ones_init(struct pcilend_ones *ones);
/* Nobody maps any of them. No-op if it was not initialised. */
void pcilend_ones_destroy(struct pcilend_ones *ones);
/* The page at that index. May sleep. */
struct page *pcilend_ones_at(struct pcilend_ones *ones, unsigned long index);
/* Fills them with ones again. No-op if it was not initialised. */
void pcilend_ones_wipe(struct pcilend_ones *ones);

#endif /* PCILEND_ONES_H */
