/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Granules: the pieces in which the IOVA space of a borrowed function's user is mirrored by the
 * aperture. [start, +size) of IOVA space lies at [slot, +size) there, so that what is mapped in a
 * granule goes to slot + (iova - start), with no message to anybody.
 *
 * Sizes that are planned are powers of two, and granules are aligned by them. They grow with what
 * is mapped: who maps few pages here and there takes little of the aperture, and a guest of many
 * GiB needs few granules. Memory that is mapped in order, up or down, takes two or so for each time
 * that it doubles: 22 for a guest of 1 TiB, and half as much again of the aperture. Memory that is
 * mapped all over takes many more: up to one for each PCILEND_GRANULE_FIRST of it.
 *
 * PCs have the BARs of their devices between 3 and 4 GiB. Some of these are mapped like memory, and
 * others, of borrowed functions, can be reached only where no granule is. So the granules there
 * begin small, and grow with what is mapped there; none reaches into that part from elsewhere.
 *
 * Addresses and sizes are bytes. Callers serialise access. Nothing changes on failure.
 */
#ifndef PCILEND_GRANULES_H
#define PCILEND_GRANULES_H

#include "pcilend/platform.h"

__BEGIN_DECLS

#define PCILEND_GRANULE_FIRST (256ULL << 20)	/* bytes: size of the first ones */
#define PCILEND_GRANULE_FIRST_BAR (2ULL << 20)	/* where PCs have BARs: */
#define PCILEND_BARS_START (3ULL << 30)
#define PCILEND_BARS_END (4ULL << 30)

struct pcilend_granule {
	u64 start;	/* IOVA */
	u64 size;	/* bytes */
	u64 slot;	/* where it begins in the aperture */
	u64 mapped;	/* bytes of it that are mapped */
};

/*
 * What no granule may overlap: a reserved range, or one in which the user has something else. One
 * that wraps ends with the 64 bits.
 */
struct pcilend_hole {
	u64 start;
	u64 size;
};

struct pcilend_granules {
	struct pcilend_granule *entry;	/* by ascending start; owned by the caller */
	u32 capacity;
	u32 count;
	struct pcilend_hole *hole;	/* owned by the caller; any order */
	u32 hole_capacity;
	u32 holes;
	u64 end;	/* last address that can be mapped */
	u64 mapped;	/* bytes, of all */
};

/*
 * No granules yet, and the first @holes of @hole. @entry and @hole must stay valid as long as
 * @granules is used.
 */
void pcilend_granules_init(struct pcilend_granules *granules, struct pcilend_granule *entry,
			   u32 capacity, struct pcilend_hole *hole, u32 holes, u32 hole_capacity,
			   u64 end);

/**
 * pcilend_granules_reserve - keep granules out of a range
 * @start, @size: page aligned
 *
 * Return: 0; -ERANGE if it is empty, not page aligned, overlaps a hole or passes the end; -EEXIST
 * if it overlaps a granule; -ENOSPC if there are as many holes as there may be.
 */
int pcilend_granules_reserve(struct pcilend_granules *granules, u64 start, u64 size);

/* Undoes that. Return: 0; -ENOENT if there is no such hole. */
int pcilend_granules_unreserve(struct pcilend_granules *granules, u64 start, u64 size);

/* The granule that holds @iova, or NULL. */
struct pcilend_granule *pcilend_granules_find(const struct pcilend_granules *granules, u64 iova);

/**
 * pcilend_granules_plan - what to add so that an address lies in a granule
 * @iova: the address, aligned or not
 * @limit: bytes that it may have at most; for another try where the aperture has no such room
 * @start: set to where it begins; untouched on failure, as is @size
 * @size: set to its size: the largest power of two up to @limit, PCILEND_GRANULE_FIRST and what is
 *	mapped, whichever of these two is more, with which it overlaps no hole and no granule and
 *	doesn't pass the end; a page at least. From PCILEND_BARS_START to PCILEND_BARS_END, which it
 *	does not cross: PCILEND_GRANULE_FIRST_BAR, and what is mapped there
 *
 * Return: 0; -EEXIST if a granule holds @iova; -ERANGE if its page overlaps a hole or passes the
 * end; -ENOSPC if all entries are in use; -EINVAL if @limit is less than a page.
 */
int pcilend_granules_plan(const struct pcilend_granules *granules, u64 iova, u64 limit, u64 *start,
			  u64 *size);

/**
 * pcilend_granules_add - add a granule in which nothing is mapped
 * @start, @size: as planned, or any others that are page aligned
 * @slot: where it begins in the aperture, page aligned
 *
 * Pointers to granules are good until one is added or removed.
 *
 * Return: 0; -ERANGE if it is empty, not page aligned, overlaps a hole, passes the end, or if its
 * slot wraps; -EEXIST if it overlaps a granule; -ENOSPC if all entries are in use.
 */
int pcilend_granules_add(struct pcilend_granules *granules, u64 start, u64 size, u64 slot);

/*
 * [iova, +size), page aligned, was mapped. Return: 0; -ERANGE if it is empty, not page aligned, not
 * inside one granule, or more than its granule has left.
 */
int pcilend_granules_mapped(struct pcilend_granules *granules, u64 iova, u64 size);

/* It was unmapped. Return: as above; -ERANGE also if it is more than was mapped. */
int pcilend_granules_unmapped(struct pcilend_granules *granules, u64 iova, u64 size);

/* The first granule in which nothing is mapped, or NULL. */
struct pcilend_granule *pcilend_granules_empty(const struct pcilend_granules *granules);

/* Removes the granule that begins at @start. Return: 0; -ENOENT; -EBUSY if something is mapped. */
int pcilend_granules_remove(struct pcilend_granules *granules, u64 start);

__END_DECLS

#endif /* PCILEND_GRANULES_H */
