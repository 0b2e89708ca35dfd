// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Guest memory found by probing: see guestmem.h for the rules.
 */
#include "pcilend/guestmem.h"

#define NOWHERE (~0ULL)

/* A step ends at 32 MiB pinned; a probe that finds nothing counts as 16 pages. */
#define STEP_WORK (16 * PCILEND_GUEST_BLOCK_PAGES)
#define PROBE_WORK 16

static u64 round_down_to(u64 address, u64 unit)
{
	return address & ~(unit - 1);
}

static u64 round_up_to(u64 address, u64 unit)
{
	return address > NOWHERE - unit ? round_down_to(NOWHERE, unit) :
					  round_down_to(address + unit - 1, unit);
}

static u64 lesser(u64 a, u64 b)
{
	return a < b ? a : b;
}

static u64 greater(u64 a, u64 b)
{
	return a > b ? a : b;
}

static bool is_hole(int error)
{
	return error == -EINVAL || error == -EFAULT || error == -EPERM;
}

/* Index of the first range that ends behind @gpa; memory->ranges if there is none. */
static u32 range_from(const struct pcilend_guestmem *memory, u64 gpa)
{
	u32 low = 0, high = memory->ranges;

	while (low < high) {
		u32 middle = low + (high - low) / 2;

		if (memory->range[middle].end > gpa)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static void range_insert(struct pcilend_guestmem *memory, u32 at, u64 start, u64 end)
{
	memmove(&memory->range[at + 1], &memory->range[at],
		(memory->ranges - at) * sizeof(memory->range[0]));
	memory->range[at].start = start;
	memory->range[at].end = end;
	memory->ranges++;
}

static void range_erase(struct pcilend_guestmem *memory, u32 at)
{
	memory->ranges--;
	memmove(&memory->range[at], &memory->range[at + 1],
		(memory->ranges - at) * sizeof(memory->range[0]));
}

/* [start, end) is not in any range yet. False if there is no room for one more range. */
static bool range_add(struct pcilend_guestmem *memory, u64 start, u64 end)
{
	u32 next = range_from(memory, start);
	bool left = next > 0 && memory->range[next - 1].end == start;
	bool right = next < memory->ranges && memory->range[next].start == end;

	if (left && right) {
		memory->range[next - 1].end = memory->range[next].end;
		range_erase(memory, next);
	} else if (left) {
		memory->range[next - 1].end = end;
	} else if (right) {
		memory->range[next].start = start;
	} else if (memory->ranges < PCILEND_GUEST_RANGES) {
		range_insert(memory, next, start, end);
	} else {
		return false;
	}
	memory->pinned += end - start;
	return true;
}

static const struct pcilend_guest_segment *segment_at(const struct pcilend_guestmem *memory,
						      u64 gpa)
{
	u32 i;

	for (i = 0; i < memory->segments; i++)
		if (gpa >= memory->segment[i].start && gpa < memory->segment[i].end)
			return &memory->segment[i];
	return NULL;
}

/* Start of the next segment behind @gpa. */
static u64 segment_after(const struct pcilend_guestmem *memory, u64 gpa)
{
	u64 start = NOWHERE;
	u32 i;

	for (i = 0; i < memory->segments; i++)
		if (memory->segment[i].start > gpa)
			start = lesser(start, memory->segment[i].start);
	return start;
}

/* Where memory that includes @gpa can begin and end at most. */
static u64 area_start(u64 gpa)
{
	if (gpa < PCILEND_GUEST_LOW_END)
		return 0;
	return gpa < PCILEND_GUEST_MOVED_START ? PCILEND_GUEST_HIGH_START :
						 PCILEND_GUEST_MOVED_START;
}

static u64 area_end(u64 gpa)
{
	return gpa < PCILEND_GUEST_LOW_END ? PCILEND_GUEST_LOW_END : PCILEND_GUEST_ADDRESS_END;
}

static int probe(struct pcilend_guestmem *memory, u64 gpa)
{
	int ret;

	memory->work += PROBE_WORK;
	ret = memory->ops->pin(memory->context, gpa, 1, memory->pfn);
	if (!ret)
		memory->ops->unpin(memory->context, gpa, 1);
	return ret;
}

/*
 * A page between @miss, a hole, and @hit, memory (in either order), at which the one turns into
 * the other: the last page of the kind of @hit, seen from @hit. Or an error.
 */
static int find_edge(struct pcilend_guestmem *memory, u64 *hit, u64 miss)
{
	u64 low = lesser(*hit, miss), high = greater(*hit, miss);
	bool hit_low = *hit < miss;

	while (high - low > PCILEND_GUEST_PAGE) {
		u64 middle = round_down_to(low + (high - low) / 2, PCILEND_GUEST_PAGE);
		int ret = probe(memory, middle);

		if (ret && !is_hole(ret))
			return ret;
		if (!ret == hit_low)
			low = middle;
		else
			high = middle;
	}
	*hit = hit_low ? low : high;
	return 0;
}

/* Sets @end behind the last page of the memory that @gpa begins, taking it for contiguous. */
static int measure(struct pcilend_guestmem *memory, u64 gpa, u64 limit, u64 *end)
{
	u64 step = PCILEND_GUEST_BLOCK, hit = gpa, miss = limit;
	int ret;

	while (step < limit - gpa) {
		u64 page = gpa + step - PCILEND_GUEST_PAGE;

		ret = probe(memory, page);
		if (is_hole(ret)) {
			miss = page;
			break;
		}
		if (ret)
			return ret;
		hit = page;
		step *= 2;
	}
	ret = find_edge(memory, &hit, miss);
	*end = hit + PCILEND_GUEST_PAGE;
	return ret;
}

/* There is memory at @gpa, in no segment: makes one for it. */
static int segment_add(struct pcilend_guestmem *memory, u64 gpa)
{
	u64 start = round_down_to(gpa, PCILEND_GUEST_BLOCK);
	u64 limit = lesser(area_end(gpa), segment_after(memory, gpa));
	struct pcilend_guest_segment *segment;
	u64 end, lead, size, iova;
	u32 i;
	int ret;

	if (memory->segments == PCILEND_GUEST_SEGMENTS)
		return -ENOSPC;

	/* The legacy area and what follows are one piece of memory, but for the holes in it. */
	if (gpa < PCILEND_GUEST_LEGACY_END && limit > PCILEND_GUEST_LEGACY_END) {
		end = PCILEND_GUEST_LEGACY_END;
		ret = probe(memory, end);
		if (!ret)
			ret = measure(memory, end, limit, &end);
		else if (is_hole(ret))
			ret = 0;
	} else {
		ret = measure(memory, gpa, limit, &end);
	}
	if (ret)
		return ret;
	end = lesser(round_up_to(end, PCILEND_GUEST_BLOCK), limit);
	start = greater(start, area_start(gpa));
	for (i = 0; i < memory->segments; i++)
		if (memory->segment[i].end <= gpa)
			start = greater(start, memory->segment[i].end);

	lead = start & (PCILEND_GUEST_BLOCK - 1);
	size = round_up_to(lead + end - start, PCILEND_GUEST_BLOCK);
	ret = memory->ops->slot_get(memory->context, size, &iova);
	if (ret)
		return is_hole(ret) ? -EIO : ret;

	segment = &memory->segment[memory->segments++];
	segment->start = start;
	segment->end = end;
	segment->iova = iova + lead;
	segment->slot = iova;
	segment->slot_size = size;
	return 0;
}

static u32 merge(struct pcilend_guest_run *run, const u64 *pfn, u32 pages)
{
	u32 count = 0, i;

	for (i = 0; i < pages; i++) {
		if (count && run[count - 1].pfn + run[count - 1].pages == pfn[i]) {
			run[count - 1].pages++;
		} else {
			run[count].pfn = pfn[i];
			run[count].pages = 1;
			count++;
		}
	}
	return count;
}

/* Pins and maps [gpa, + pages), which is in @segment and in no range, in one block. */
static int take(struct pcilend_guestmem *memory, const struct pcilend_guest_segment *segment,
		u64 gpa, u32 pages)
{
	u64 iova = segment->iova + (gpa - segment->start);
	int ret;

	ret = memory->ops->pin(memory->context, gpa, pages, memory->pfn);
	if (ret) {
		memory->work += PROBE_WORK;
		return ret;
	}
	memory->work += pages;
	ret = memory->ops->map(memory->context, iova, memory->run,
			       merge(memory->run, memory->pfn, pages));
	if (ret) {
		ret = is_hole(ret) ? -EIO : ret;
		goto unpin;
	}
	if (!range_add(memory, gpa, gpa + pages * PCILEND_GUEST_PAGE)) {
		ret = -ENOSPC;
		goto unmap;
	}
	memory->changed = true;
	return 0;

unmap:
	memory->ops->unmap(memory->context, iova, pages);
unpin:
	memory->ops->unpin(memory->context, gpa, pages);
	return ret;
}

/* The page at memory->at is a hole: where to look next. */
static void skip(struct pcilend_guestmem *memory)
{
	u64 at = memory->at, base = area_start(at);
	u64 next = round_up_to(at + 1, PCILEND_GUEST_STRIDE);
	const struct pcilend_guest_segment *segment = segment_at(memory, at);
	u32 range = range_from(memory, at);

	if (at < PCILEND_GUEST_LEGACY_END)
		next = at + PCILEND_GUEST_PAGE;
	else if (segment)
		next = lesser(round_up_to(at + 1, PCILEND_GUEST_GRAIN), segment->end);
	else if (at < PCILEND_GUEST_LOW_END)
		next = PCILEND_GUEST_HIGH_START;
	else if (base == PCILEND_GUEST_MOVED_START && memory->found <= base)
		next = PCILEND_GUEST_ADDRESS_END;
	else if (next > greater(memory->found, base) + PCILEND_GUEST_REACH)
		next = at < PCILEND_GUEST_MOVED_START ? PCILEND_GUEST_MOVED_START :
							PCILEND_GUEST_ADDRESS_END;

	/* Nothing known is jumped over. */
	if (range < memory->ranges)
		next = lesser(next, memory->range[range].start);
	memory->missed = at;
	memory->at = lesser(next, segment_after(memory, at));
}

/* How much may be pinned at memory->at, which is in @segment and in no range. */
static u32 room(const struct pcilend_guestmem *memory,
		const struct pcilend_guest_segment *segment)
{
	u64 at = memory->at;
	u64 end = lesser(segment->end, round_down_to(at, PCILEND_GUEST_BLOCK) +
				       PCILEND_GUEST_BLOCK);
	u32 range = range_from(memory, at);

	if (range < memory->ranges)
		end = lesser(end, memory->range[range].start);
	if (at < PCILEND_GUEST_VGA_START)
		end = lesser(end, PCILEND_GUEST_VGA_START);
	return (end - at) / PCILEND_GUEST_PAGE;
}

/* One move of the pass. 1: it goes on, 0: it is over, or an error. */
static int advance(struct pcilend_guestmem *memory)
{
	const struct pcilend_guest_segment *segment;
	u32 range, pages;
	int ret;

	if (memory->at >= PCILEND_GUEST_VGA_START && memory->at < PCILEND_GUEST_VGA_END) {
		memory->at = PCILEND_GUEST_VGA_END;
		memory->missed = PCILEND_GUEST_VGA_END - PCILEND_GUEST_PAGE;
	}
	if (memory->at >= PCILEND_GUEST_LOW_END && memory->at < PCILEND_GUEST_HIGH_START)
		memory->at = PCILEND_GUEST_HIGH_START;
	if (memory->at >= PCILEND_GUEST_ADDRESS_END)
		return 0;

	range = range_from(memory, memory->at);
	if (range < memory->ranges && memory->range[range].start <= memory->at) {
		memory->at = memory->range[range].end;
		memory->found = memory->at;
		memory->missed = NOWHERE;
		return 1;
	}

	segment = segment_at(memory, memory->at);
	if (!segment || memory->missed != NOWHERE) {
		ret = probe(memory, memory->at);
		if (is_hole(ret)) {
			skip(memory);
			return 1;
		}
		/* Memory may begin anywhere between the hole and here. */
		if (!ret && memory->missed != NOWHERE &&
		    area_start(memory->missed) == area_start(memory->at))
			ret = find_edge(memory, &memory->at, memory->missed);
		if (ret)
			return ret;
		memory->missed = NOWHERE;
		segment = segment_at(memory, memory->at);
		if (!segment) {
			ret = segment_add(memory, memory->at);
			if (ret)
				return ret;
			segment = segment_at(memory, memory->at);
		}
	}

	for (pages = room(memory, segment); ; pages /= 2) {
		ret = take(memory, segment, memory->at, pages);
		if (!is_hole(ret) || pages <= 1)
			break;
	}
	if (is_hole(ret)) {
		skip(memory);
		return 1;
	}
	if (ret)
		return ret;
	memory->at += pages * PCILEND_GUEST_PAGE;
	memory->found = memory->at;
	return 1;
}

/* A whole pass was made. */
static void conclude(struct pcilend_guestmem *memory)
{
	if (memory->disturbed)
		return;
	memory->clean = true;
	if (memory->changed) {
		memory->stable = false;
		memory->quiet = 0;
		return;
	}
	memory->quiet++;
	if (memory->pinned >= memory->expected || memory->quiet >= PCILEND_GUEST_PATIENCE) {
		memory->stable = true;
		memory->expected = memory->pinned;
		memory->unstable = 0;
	}
}

/* Gives up [start, end), all of it in ranges that the caller corrects. */
static void give_up(struct pcilend_guestmem *memory, u64 start, u64 end)
{
	memory->pinned -= end - start;
	while (start < end) {
		const struct pcilend_guest_segment *segment = segment_at(memory, start);
		u64 stop = lesser(end, segment->end);
		u64 pages = (stop - start) / PCILEND_GUEST_PAGE;

		memory->ops->unmap(memory->context, segment->iova + (start - segment->start),
				   pages);
		memory->ops->unpin(memory->context, start, pages);
		start = stop;
	}
}

void pcilend_guestmem_init(struct pcilend_guestmem *memory, const struct pcilend_guestmem_ops *ops,
			   void *context)
{
	memset(memory, 0, sizeof(*memory));
	memory->ops = ops;
	memory->context = context;
	memory->missed = NOWHERE;
}

void pcilend_guestmem_begin(struct pcilend_guestmem *memory)
{
	memory->at = 0;
	memory->found = 0;
	memory->missed = NOWHERE;
	memory->changed = false;
	memory->disturbed = false;
	memory->passing = true;
}

int pcilend_guestmem_step(struct pcilend_guestmem *memory)
{
	int ret = 1;

	if (!memory->passing)
		return 0;
	memory->work = 0;
	while (ret > 0 && memory->work < STEP_WORK)
		ret = advance(memory);
	if (ret > 0)
		return 1;

	memory->passing = false;
	if (memory->unstable < PCILEND_GUEST_DELAY_MAX_MS)
		memory->unstable++;
	if (!ret)
		conclude(memory);
	return ret;
}

u64 pcilend_guestmem_forget(struct pcilend_guestmem *memory, u64 gpa, u64 size)
{
	u64 limit = size > NOWHERE - gpa ? NOWHERE : gpa + size;
	u64 before = memory->pinned;
	u32 i = range_from(memory, gpa);

	while (i < memory->ranges && memory->range[i].start < limit) {
		struct pcilend_guest_range *range = &memory->range[i];
		u64 start = greater(range->start, round_down_to(gpa, PCILEND_GUEST_BLOCK));
		u64 end = lesser(range->end, round_up_to(limit, PCILEND_GUEST_BLOCK));
		u64 tail = range->end;

		if (start > range->start && end < tail && memory->ranges == PCILEND_GUEST_RANGES)
			end = tail;
		give_up(memory, start, end);
		if (start > range->start) {
			range->end = start;
			i++;
			if (end < tail)
				range_insert(memory, i, end, tail);
		} else if (end < tail) {
			range->start = end;
		} else {
			range_erase(memory, i);
			continue;
		}
		if (end < tail)
			break;
	}
	memory->disturbed = true;
	memory->clean = false;
	memory->stable = false;
	memory->quiet = 0;
	return before - memory->pinned;
}

void pcilend_guestmem_release(struct pcilend_guestmem *memory)
{
	pcilend_guestmem_forget(memory, 0, NOWHERE);
	memory->passing = false;
	memory->expected = 0;
	memory->unstable = 0;
}

void pcilend_guestmem_drop_segments(struct pcilend_guestmem *memory)
{
	memory->segments = 0;
}

bool pcilend_guestmem_clean(const struct pcilend_guestmem *memory)
{
	return memory->clean;
}

u64 pcilend_guestmem_iova(const struct pcilend_guestmem *memory, u64 gpa)
{
	const struct pcilend_guest_segment *segment = segment_at(memory, gpa);

	return segment->iova + (gpa - segment->start);
}

bool pcilend_guestmem_stable(const struct pcilend_guestmem *memory)
{
	return memory->stable;
}

u32 pcilend_guestmem_delay(const struct pcilend_guestmem *memory)
{
	u32 delay = PCILEND_GUEST_DELAY_MS, i;

	for (i = 0; i < memory->unstable && delay < PCILEND_GUEST_DELAY_MAX_MS; i++)
		delay *= 2;
	return delay;
}
