// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* First-fit range allocator; see range.h. */

#include "pcilend/range.h"

static bool range_page_aligned(u64 value)
{
	return !(value & (PCILEND_PAGE - 1));
}

int pcilend_range_init(struct pcilend_range *range, u64 start, u64 size,
		       struct pcilend_range_entry *entry, u32 capacity)
{
	if (!range_page_aligned(start) || !range_page_aligned(size) || start + size < start)
		return -EINVAL;
	if (range->count)
		return -EBUSY;
	*range = (struct pcilend_range){
		.start = start,
		.size = size,
		.entry = entry,
		.capacity = capacity,
	};
	return 0;
}

/* The gap before entry[i]: from the end of the one before it to its start. */
static u64 range_gap_start(const struct pcilend_range *range, u32 i)
{
	return i ? range->entry[i - 1].start + range->entry[i - 1].size : range->start;
}

static u64 range_gap_end(const struct pcilend_range *range, u32 i)
{
	return i < range->count ? range->entry[i].start : range->start + range->size;
}

/* The lowest gap that takes the range: its index, and where in it; or a refusal. */
static int range_find_gap(const struct pcilend_range *range, u64 size, u64 align, u64 *start,
			  u32 *index)
{
	u32 i;

	if (!size || !range_page_aligned(size) || align < PCILEND_PAGE || align & (align - 1))
		return -EINVAL;
	if (range->count == range->capacity)
		return -ENOSPC;
	for (i = 0; i <= range->count; i++) {
		u64 end = range_gap_end(range, i);
		u64 from = range_gap_start(range, i);
		u64 at = (from + align - 1) & ~(align - 1);

		if (at < from || at > end || end - at < size)
			continue;
		*start = at;
		*index = i;
		return 0;
	}
	return -ENOSPC;
}

int pcilend_range_find(const struct pcilend_range *range, u64 size, u64 align, u64 *start)
{
	u32 index;

	return range_find_gap(range, size, align, start, &index);
}

int pcilend_range_alloc(struct pcilend_range *range, u64 size, u64 align, u64 *start)
{
	u32 i;
	int error = range_find_gap(range, size, align, start, &i);

	if (error)
		return error;
	memmove(&range->entry[i + 1], &range->entry[i],
		(range->count - i) * sizeof(range->entry[0]));
	range->entry[i].start = *start;
	range->entry[i].size = size;
	range->count++;
	range->allocated += size;
	return 0;
}

/* Index of the first entry that starts behind @address. */
static u32 range_first_behind(const struct pcilend_range *range, u64 address)
{
	u32 low = 0;
	u32 high = range->count;

	while (low < high) {
		u32 middle = low + (high - low) / 2;

		if (range->entry[middle].start > address)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

int pcilend_range_free(struct pcilend_range *range, u64 start, u64 size)
{
	u32 behind = range_first_behind(range, start);
	struct pcilend_range_entry *entry;

	if (!behind)
		return -ENOENT;
	entry = &range->entry[behind - 1];
	if (entry->start != start)
		return -ENOENT;
	if (entry->size != size)
		return -EINVAL;
	memmove(entry, entry + 1, (range->count - behind) * sizeof(*entry));
	range->count--;
	range->allocated -= size;
	return 0;
}

u64 pcilend_range_largest(const struct pcilend_range *range)
{
	u64 largest = 0;
	u32 i;

	if (range->count == range->capacity)
		return 0;
	for (i = 0; i <= range->count; i++) {
		u64 gap = range_gap_end(range, i) - range_gap_start(range, i);

		if (gap > largest)
			largest = gap;
	}
	return largest;
}
