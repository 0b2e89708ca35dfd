/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Peer-to-peer as the borrower keeps it: which BARs of borrowed functions other borrowed functions
 * reach by DMA, and at which device-side addresses (PCILEND_MSG_REACH). The source is the function
 * that does the DMA, the target the one whose BARs it reaches.
 *
 * An address is given to one BAR only as long as the source's lease lasts: whoever drives the
 * source may still use it after the target's lease has ended. In a guest it is the guest that gives
 * BARs their addresses, which are those that its functions use, and the same goes for every user of
 * the source's IOMMU.
 *
 * Callers serialise access.
 */
#ifndef PCILEND_REACH_H
#define PCILEND_REACH_H

#include "pcilend/platform.h"
#include "pcilend/range.h"

__BEGIN_DECLS

/*
 * Above all that else is mapped for a function on bare metal, and as low as that allows: each bit
 * more is one that some device or IOMMU does not have.
 */
#define PCILEND_REACH_START BIT_ULL(36)
#define PCILEND_REACH_END BIT_ULL(46)

#define PCILEND_REACHES 32		/* BARs that one function may reach */
#define PCILEND_REACHES_MAX 512		/* all functions that a host borrows */

struct pcilend_reach {
	u32 from;			/* id of the source */
	u32 to;				/* id of the target */
	u32 lease;			/* mapped: on the target; else 0 */
	u32 bar;
	bool live;			/* it may be looked up; mapped: used */
	bool mapped;			/* by the user of the source's IOMMU */
	u64 phys;			/* the BAR on this host; 0: closed, or the lease is over */
	u64 size;			/* of the BAR, bytes */
	u64 address;			/* device side, of its first page */
};

struct pcilend_reach_table {
	struct pcilend_range range;	/* device-side addresses of all of them */
	struct pcilend_range_entry used[PCILEND_REACHES_MAX];
	struct pcilend_reach entry[PCILEND_REACHES_MAX];
	u32 count;
};

void pcilend_reach_init(struct pcilend_reach_table *table);

/**
 * pcilend_reach_add - a place for a BAR, aligned to its size, which can't be looked up yet
 * @phys: of the BAR on this host; where it starts in its page is where it does on its lender
 * @size: of the BAR, a power of two
 * @address: set to the device-side address of its first page
 *
 * The one it had before, if it had one. Return: 0; -EALREADY if it is live; -ENOSPC.
 */
int pcilend_reach_add(struct pcilend_reach_table *table, u32 from, u32 to, u32 bar, u64 phys,
		      u64 size, u64 *address);

/*
 * The user of @from's IOMMU has mapped a BAR of @to, as @lease gives it to him, at @address, page
 * aligned. What he has mapped by an earlier lease on @to is another entry. Return: 0, also if it is
 * so; -ENOSPC.
 */
int pcilend_reach_add_mapped(struct pcilend_reach_table *table, u32 from, u32 to, u32 lease,
			     u32 bar, u64 phys, u64 size, u64 address);
/* It is reached there. Return: false if one of the leases has ended meanwhile. */
bool pcilend_reach_open_mapped(struct pcilend_reach_table *table, u32 from, u32 to, u32 lease,
			       u32 bar, u64 address);
/* No BAR of @to that was mapped for @from is reached, or may be, until it is opened again. */
void pcilend_reach_doubt_mapped(struct pcilend_reach_table *table, u32 from, u32 to);
/* It is unmapped. Return: was it mapped? */
bool pcilend_reach_drop_mapped(struct pcilend_reach_table *table, u32 from, u32 to, u32 lease,
			       u32 bar, u64 address);

/*
 * What was added from @from to @to, and not closed since, may be looked up now; what is mapped
 * stays as it is, as with the next. Return: is there anything?
 */
bool pcilend_reach_open(struct pcilend_reach_table *table, u32 from, u32 to);
/* No longer; its addresses are kept. */
void pcilend_reach_close(struct pcilend_reach_table *table, u32 from, u32 to);

/* Is there anything that was added from a function of @node to @to, and not closed? */
bool pcilend_reach_used(const struct pcilend_reach_table *table, u32 node, u32 to);

/* The next entry from @from to @to (0: to any), live or not; @previous NULL: the first. Or NULL. */
const struct pcilend_reach *pcilend_reach_next(const struct pcilend_reach_table *table, u32 from,
					       u32 to, const struct pcilend_reach *previous);

/**
 * pcilend_reach_find - the device-side address of [phys, +size) for DMA of @from
 *
 * On bare metal. Return: 0, or -ENOENT if that is not inside of one BAR that it reaches.
 */
int pcilend_reach_find(const struct pcilend_reach_table *table, u32 from, u64 phys, u64 size,
		       u64 *address);

/* The source's driver is through with the target: its addresses may be given to others. */
void pcilend_reach_drop(struct pcilend_reach_table *table, u32 from, u32 to);

/* The lease on @id is over: it reaches nothing, and nothing reaches it. */
void pcilend_reach_end(struct pcilend_reach_table *table, u32 id);

__END_DECLS

#endif /* PCILEND_REACH_H */
