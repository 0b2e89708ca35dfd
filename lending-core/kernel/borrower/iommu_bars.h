/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * BARs of borrowed functions that a user of VFIO has mapped in a domain (iommu.c), so that other
 * functions of his reach them by DMA. A BAR may be mapped in pieces: with the first one the lenders
 * of the functions that are attached let these reach all of it, and with the last one no longer.
 *
 * All calls but iommu_bars_init() and iommu_bars_free() are made with the domain's lock held, and
 * may sleep for PCILEND_REQUEST_MS for each lender that is asked. Addresses and sizes are bytes,
 * page aligned.
 */
#ifndef PCILEND_IOMMU_BARS_H
#define PCILEND_IOMMU_BARS_H

#include <linux/list.h>
#include <linux/mutex.h>

#include "pcilend/granules.h"

#define IOMMU_BARS 64		/* in one domain */

struct remote;

struct iommu_bars {
	struct list_head list;		/* of struct iommu_bar */
	u32 count;
	struct mutex *lock;		/* of the domain, as the next */
	struct list_head *attached;	/* of struct remote, by their domain_node */
	struct pcilend_granules *granules;
};

void iommu_bars_init(struct iommu_bars *bars, struct mutex *lock, struct list_head *attached,
		     struct pcilend_granules *granules);

/*
 * iommu_bars_map - map what lies in a memory window
 * @late: a function that does not reach it is no error
 *
 * Return: 0; or an error, with nothing mapped, and a line in the log that says why: -EINVAL if it
 * is no part of a BAR that this host holds, or not for reading and writing; -EEXIST and -ERANGE if
 * no function can reach it at that address; -ENOSPC; -ENOMEM, which is in no log; or what
 * remote_reach_bar() says.
 */
int iommu_bars_map(struct iommu_bars *bars, u64 iova, u64 phys, u64 size, int prot, bool late);

/*
 * iommu_bars_unmap - unmap what is mapped of a BAR
 *
 * Return: how much of [iova, +size) that was, from @iova on; 0 if there no BAR is mapped.
 */
u64 iommu_bars_unmap(struct iommu_bars *bars, u64 iova, u64 size);

/* The address in the memory window; 0 if there no BAR is mapped. */
u64 iommu_bars_phys(struct iommu_bars *bars, u64 iova);

/*
 * The function, which is not in the list yet, reaches what is mapped. What it does not reach is
 * said in the log: its user has it mapped already, and can't be refused it.
 */
void iommu_bars_attach(struct iommu_bars *bars, struct remote *r);
/* It no longer does. */
void iommu_bars_detach(struct iommu_bars *bars, struct remote *r);

/* Nothing is attached any more. Users may leave something mapped. */
void iommu_bars_free(struct iommu_bars *bars);

#endif /* PCILEND_IOMMU_BARS_H */
