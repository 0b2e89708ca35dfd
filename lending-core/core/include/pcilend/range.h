/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A first-fit allocator of address ranges: parts of an aperture's export region or guest slots.
 * It keeps the ranges in use, sorted, in an array that the caller provides, so it never allocates
 * and its worst case is known: every call takes time in proportion to the ranges in use.
 *
 * Addresses and sizes are bytes, multiples of PCILEND_PAGE. Callers serialise access.
 */
#ifndef PCILEND_RANGE_H
#define PCILEND_RANGE_H

#include "pcilend/platform.h"

__BEGIN_DECLS

struct pcilend_range_entry {
	u64 start;
	u64 size;
};

struct pcilend_range {
	u64 start;	/* the space: [start, start + size) */
	u64 size;
	u64 allocated;	/* bytes in use */
	struct pcilend_range_entry *entry; /* in use, by ascending start; owned by the caller */
	u32 capacity;
	u32 count;
};

/**
 * pcilend_range_init - an empty space
 * @range: filled in; zeroes before, or one that is to be another space from now on
 * @start: first address, page aligned
 * @size: bytes, page aligned; 0 makes a space in which nothing fits
 * @entry: storage for @capacity ranges, must stay valid as long as @range is used
 * @capacity: how many ranges can be in use at once
 *
 * Return: 0; -EINVAL if the space is not page aligned or goes past the end of 64 bits; -EBUSY if
 * ranges of it are in use. Nothing changes on failure.
 */
int pcilend_range_init(struct pcilend_range *range, u64 start, u64 size,
		       struct pcilend_range_entry *entry, u32 capacity);

/**
 * pcilend_range_alloc - take the lowest free range
 * @size: bytes, page aligned, not 0
 * @align: alignment of the address: a power of two from PCILEND_PAGE on
 * @start: set to the address; untouched on failure
 *
 * Return: 0; -EINVAL for a size or alignment that isn't allowed; -ENOSPC if no gap is large
 * enough or all entries are in use.
 */
int pcilend_range_alloc(struct pcilend_range *range, u64 size, u64 align, u64 *start);

/* Where pcilend_range_alloc() would put it, without taking it; returns the same. */
int pcilend_range_find(const struct pcilend_range *range, u64 size, u64 align, u64 *start);

/**
 * pcilend_range_free - give a range back
 * @start, @size: exactly as allocated
 *
 * Return: 0; -ENOENT if no range in use starts there (freed already, or never allocated);
 * -EINVAL if one does, of another size. Nothing changes on failure.
 */
int pcilend_range_free(struct pcilend_range *range, u64 start, u64 size);

/* Bytes of the largest allocation that would succeed now at alignment PCILEND_PAGE. */
u64 pcilend_range_largest(const struct pcilend_range *range);

__END_DECLS

#endif /* PCILEND_RANGE_H */
