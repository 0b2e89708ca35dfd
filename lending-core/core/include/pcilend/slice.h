/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Places in the device-side address space of one shared function. Each client gets
 *
 *	its slice	a range from 2^36 upward, aligned to its size, behind which lies memory of
 *			the client's own choice; mapped once, by the lender
 *	an alias	1 MiB downward from 0xfe000000, behind which lies the interrupt controller
 *			of its host; one for all clients of one boot of that host
 *
 * What is placed stays taken until it is given back, so nobody gets a place that the function may
 * still write to as long as that is done after the unmapping only (share.h).
 *
 * Callers serialise access.
 */
#ifndef PCILEND_SLICE_H
#define PCILEND_SLICE_H

#include "pcilend/platform.h"
#include "pcilend/range.h"

__BEGIN_DECLS

#define PCILEND_SLICES 64		/* of one function */
#define PCILEND_SLICE_START BIT_ULL(36)
#define PCILEND_SLICE_MAX BIT_ULL(36)	/* bytes of one slice, a power of two from a page on */

#define PCILEND_ALIAS_FIRST 0xfe000000ULL	/* further ones lie below; never 0xfee00000 */
#define PCILEND_ALIAS_BYTES 0x100000ULL

struct pcilend_slice_alias {
	u32 node;
	u32 users;		/* 0: free */
	u64 boot;
};

struct pcilend_slices {
	struct pcilend_range range;
	struct pcilend_range_entry used[PCILEND_SLICES + 1];	/* and the manager's */
	struct pcilend_slice_alias alias[PCILEND_SLICES];
};

/**
 * pcilend_slices_init - nothing is placed
 * @last: the last device-side address that the lender's IOMMU translates, 2^n - 1
 *
 * Return: 0; -ERANGE if @last leaves no place for slices: then nothing can be placed.
 */
int pcilend_slices_init(struct pcilend_slices *slices, u64 last);

/* May a slice have that size? */
bool pcilend_slice_size_valid(u64 bytes);

/* Return: 0; -EINVAL: not a size; -ENOSPC. @address is untouched on failure. */
int pcilend_slice_place(struct pcilend_slices *slices, u64 bytes, u64 *address);

/* @address, @bytes: as placed. Return: 0, -ENOENT or -EINVAL (range.h). */
int pcilend_slice_release(struct pcilend_slices *slices, u64 address, u64 bytes);

/**
 * pcilend_alias_get - the alias of that boot of that host, for one user more
 * @node: not 0
 *
 * Return: 0, or -ENOSPC with @address untouched.
 */
int pcilend_alias_get(struct pcilend_slices *slices, u32 node, u64 boot, u64 *address);

/* One user less. Return: was it the last one, so that it is free? False also if there is none. */
bool pcilend_alias_put(struct pcilend_slices *slices, u32 node, u64 boot);

__END_DECLS

#endif /* PCILEND_SLICE_H */
