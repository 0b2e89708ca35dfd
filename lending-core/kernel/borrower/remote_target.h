/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a leased function of another host reaches that is no memory of this one:
 *
 *	a segment	of its lender, or of a third host: the lender maps it, by a message
 *	a BAR		of this host: in the aperture, as memory is
 *	a BAR		of another function that this host has leased: as for users of VFIO, its
 *			lender lets the function reach it (reach.c), and takes it with that lease
 *
 * And memory beside it, which its lender makes a segment for whoever has leased it.
 *
 * Callers serialise access to one list of them.
 */
#ifndef PCILEND_REMOTE_TARGET_H
#define PCILEND_REMOTE_TARGET_H

#include "borrower/borrower.h"

struct iommu_domain;
struct pcilend_memory;
struct pcilend_use_near;

/* What is in other hosts has device addresses from here on: behind each slice. */
#define REMOTE_FAR_START BIT_ULL(37)
#define REMOTE_FAR_BYTES BIT_ULL(36)

/* Whose function it is. */
struct remote_holder {
	struct pcilend_remote *remote;
	u32 lease;
	struct iommu_domain *domain;	/* of its IOMMU here */
};

/* For memory with a source. Waits for the lender. Return: 0, or why not, which @extack says. */
int remote_target_map(struct list_head *targets, const struct remote_holder *holder,
		      const struct pcilend_memory *memory, bool read_only, u64 address,
		      struct netlink_ext_ack *extack);
/* Undoes that; the same. Return: false if there is none at that address. */
bool remote_target_unmap(struct list_head *targets, u64 address);
/* The lease ends: the domain is here still, and the lender takes what is its own. */
void remote_target_end(struct list_head *targets);

/* Memory of its lender's. Waits for that. Return: as remote_target_map(); @near is set. */
int remote_near_get(struct pcilend_remote *remote, u32 lease, struct pcilend_use_near *near,
		    struct netlink_ext_ack *extack);

#endif /* PCILEND_REMOTE_TARGET_H */
