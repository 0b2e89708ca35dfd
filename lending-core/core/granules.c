// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Pieces of IOVA space that the aperture mirrors; see granules.h. */

#include "pcilend/granules.h"

static bool granule_page_aligned(u64 value)
{
	return !(value & (PCILEND_PAGE - 1));
}

/* Last address of [start, +size), which is not empty; that of all 64 bits if it wraps. */
static u64 granule_last_of(u64 start, u64 size)
{
	return size - 1 > U64_MAX - start ? U64_MAX : start + (size - 1);
}

/* Index of the first granule that starts behind @iova. */
static u32 granule_first_behind(const struct pcilend_granules *granules, u64 iova)
{
	u32 low = 0;
	u32 high = granules->count;

	while (low < high) {
		u32 middle = low + (high - low) / 2;

		if (granules->entry[middle].start > iova)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

void pcilend_granules_init(struct pcilend_granules *granules, struct pcilend_granule *entry,
			   u32 capacity, struct pcilend_hole *hole, u32 holes, u32 hole_capacity,
			   u64 end)
{
	*granules = (struct pcilend_granules){
		.entry = entry,
		.capacity = capacity,
		.hole = hole,
		.holes = holes,
		.hole_capacity = hole_capacity,
		.end = end,
	};
}

struct pcilend_granule *pcilend_granules_find(const struct pcilend_granules *granules, u64 iova)
{
	u32 behind = granule_first_behind(granules, iova);
	struct pcilend_granule *entry;

	if (!behind)
		return NULL;
	entry = &granules->entry[behind - 1];
	return iova - entry->start < entry->size ? entry : NULL;
}

static bool granule_is_among_bars(u64 iova)
{
	return iova >= PCILEND_BARS_START && iova < PCILEND_BARS_END;
}

/* All around @iova that is among the BARs of a PC as it is, or is not. */
static void granule_keep_to_side(u64 iova, u64 *low, u64 *last)
{
	if (iova >= PCILEND_BARS_END) {
		*low = PCILEND_BARS_END;
		return;
	}
	if (iova >= PCILEND_BARS_START)
		*low = PCILEND_BARS_START;
	*last = (granule_is_among_bars(iova) ? PCILEND_BARS_END : PCILEND_BARS_START) - 1;
}

/*
 * All around @iova, from *low to *last, that is neither hole nor granule nor past the end, and on
 * the same side of the BARs' edges.
 */
static int granule_free_around(const struct pcilend_granules *granules, u64 iova, u64 *low,
			       u64 *last)
{
	u32 behind = granule_first_behind(granules, iova);
	u32 i;

	*low = 0;
	*last = U64_MAX;
	if (iova > granules->end)
		return -ERANGE;
	granule_keep_to_side(iova, low, last);
	if (*last > granules->end)
		*last = granules->end;
	if (behind) {
		const struct pcilend_granule *before = &granules->entry[behind - 1];

		if (iova - before->start < before->size)
			return -EEXIST;
		if (before->start + before->size > *low)
			*low = before->start + before->size;
	}
	if (behind < granules->count && granules->entry[behind].start - 1 < *last)
		*last = granules->entry[behind].start - 1;
	for (i = 0; i < granules->holes; i++) {
		const struct pcilend_hole *hole = &granules->hole[i];
		u64 hole_last;

		if (!hole->size)
			continue;
		hole_last = granule_last_of(hole->start, hole->size);
		if (hole->start > iova) {
			if (hole->start - 1 < *last)
				*last = hole->start - 1;
		} else if (hole_last < iova) {
			if (hole_last >= *low)
				*low = hole_last + 1;
		} else {
			return -ERANGE;
		}
	}
	return 0;
}

/* Bytes that are mapped among the BARs of a PC. */
static u64 granule_mapped_among_bars(const struct pcilend_granules *granules)
{
	u64 mapped = 0;
	u32 i;

	for (i = 0; i < granules->count; i++) {
		if (granule_is_among_bars(granules->entry[i].start))
			mapped += granules->entry[i].mapped;
	}
	return mapped;
}

/* The largest power of two that is tried for a granule at @iova. */
static u64 granule_largest(const struct pcilend_granules *granules, u64 iova, u64 limit)
{
	u64 size = PCILEND_GRANULE_FIRST, mapped = granules->mapped;

	if (granule_is_among_bars(iova)) {
		size = PCILEND_GRANULE_FIRST_BAR;
		mapped = granule_mapped_among_bars(granules);
	}
	if (size < mapped)
		size = mapped;
	if (size > limit)
		size = limit;
	while (size & (size - 1))
		size &= size - 1;
	return size;
}

int pcilend_granules_plan(const struct pcilend_granules *granules, u64 iova, u64 limit, u64 *start,
			  u64 *size)
{
	u64 low, last, bytes;
	int error;

	if (limit < PCILEND_PAGE)
		return -EINVAL;
	error = granule_free_around(granules, iova, &low, &last);
	if (error)
		return error;
	for (bytes = granule_largest(granules, iova, limit); bytes >= PCILEND_PAGE; bytes >>= 1) {
		u64 at = iova & ~(bytes - 1);

		if (at < low || last - at < bytes - 1)
			continue;
		if (granules->count == granules->capacity)
			return -ENOSPC;
		*start = at;
		*size = bytes;
		return 0;
	}
	return -ERANGE;
}

/* True if [start, last] has nothing of a hole and does not pass the end. */
static bool granule_allowed(const struct pcilend_granules *granules, u64 start, u64 last)
{
	u32 i;

	for (i = 0; i < granules->holes; i++) {
		const struct pcilend_hole *hole = &granules->hole[i];

		if (hole->size && hole->start <= last &&
		    granule_last_of(hole->start, hole->size) >= start)
			return false;
	}
	return last <= granules->end;
}

/* Return: 0 if [start, +size) is free; otherwise as pcilend_granules_reserve(). */
static int granule_check_free(const struct pcilend_granules *granules, u64 start, u64 size)
{
	u32 at = granule_first_behind(granules, start);
	u64 last;

	if (!size || !granule_page_aligned(start | size) || size - 1 > U64_MAX - start)
		return -ERANGE;
	last = granule_last_of(start, size);
	if (!granule_allowed(granules, start, last))
		return -ERANGE;
	if (at && start - granules->entry[at - 1].start < granules->entry[at - 1].size)
		return -EEXIST;
	if (at < granules->count && granules->entry[at].start <= last)
		return -EEXIST;
	return 0;
}

int pcilend_granules_reserve(struct pcilend_granules *granules, u64 start, u64 size)
{
	int error = granule_check_free(granules, start, size);

	if (error)
		return error;
	if (granules->holes == granules->hole_capacity)
		return -ENOSPC;
	granules->hole[granules->holes++] = (struct pcilend_hole){ .start = start, .size = size };
	return 0;
}

int pcilend_granules_unreserve(struct pcilend_granules *granules, u64 start, u64 size)
{
	u32 i;

	for (i = 0; i < granules->holes; i++) {
		if (granules->hole[i].start != start || granules->hole[i].size != size)
			continue;
		granules->hole[i] = granules->hole[--granules->holes];
		return 0;
	}
	return -ENOENT;
}

int pcilend_granules_add(struct pcilend_granules *granules, u64 start, u64 size, u64 slot)
{
	u32 at = granule_first_behind(granules, start);
	struct pcilend_granule *entry;
	int error;

	if (!granule_page_aligned(slot) || (size && size - 1 > U64_MAX - slot))
		return -ERANGE;
	error = granule_check_free(granules, start, size);
	if (error)
		return error;
	if (granules->count == granules->capacity)
		return -ENOSPC;
	entry = &granules->entry[at];
	memmove(entry + 1, entry, (granules->count - at) * sizeof(*entry));
	*entry = (struct pcilend_granule){ .start = start, .size = size, .slot = slot };
	granules->count++;
	return 0;
}

/* The granule in which all of [iova, +size) lies, if that is not empty and page aligned. */
static struct pcilend_granule *granule_around(const struct pcilend_granules *granules, u64 iova,
					      u64 size)
{
	struct pcilend_granule *entry = pcilend_granules_find(granules, iova);

	if (!entry || !size || !granule_page_aligned(iova | size))
		return NULL;
	return size <= entry->size - (iova - entry->start) ? entry : NULL;
}

int pcilend_granules_mapped(struct pcilend_granules *granules, u64 iova, u64 size)
{
	struct pcilend_granule *entry = granule_around(granules, iova, size);

	if (!entry || size > entry->size - entry->mapped)
		return -ERANGE;
	entry->mapped += size;
	granules->mapped += size;
	return 0;
}

int pcilend_granules_unmapped(struct pcilend_granules *granules, u64 iova, u64 size)
{
	struct pcilend_granule *entry = granule_around(granules, iova, size);

	if (!entry || size > entry->mapped)
		return -ERANGE;
	entry->mapped -= size;
	granules->mapped -= size;
	return 0;
}

struct pcilend_granule *pcilend_granules_empty(const struct pcilend_granules *granules)
{
	u32 i;

	for (i = 0; i < granules->count; i++) {
		if (!granules->entry[i].mapped)
			return &granules->entry[i];
	}
	return NULL;
}

int pcilend_granules_remove(struct pcilend_granules *granules, u64 start)
{
	struct pcilend_granule *entry = pcilend_granules_find(granules, start);
	u32 behind;

	if (!entry || entry->start != start)
		return -ENOENT;
	if (entry->mapped)
		return -EBUSY;
	behind = granules->count - (u32)(entry - granules->entry) - 1;
	memmove(entry, entry + 1, behind * sizeof(*entry));
	granules->count--;
	return 0;
}
