// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The aperture planner; see layout.h. Every assignment of DMA area, exports and slots to windows
 * is tried (at most 16 cubed), and the one that degrades least is taken.
 */

#include "pcilend/layout.h"

#define LOW_END 0x100000000ULL	/* 4 GiB: end of the PCI holes */
#define HIGH_BASE 0x140000000ULL /* windows from here on have room to use behind the holes */
#define LARGE_BASE 0x400000000ULL /* from here on, slots start at PCILEND_SLOT_IOVA */
#define WIDEST_WINDOW BIT_ULL(52)
#define HUGE_PAGE 0x200000ULL

struct plan_window {
	u64 size;	/* to be programmed, 0: unusable */
	u64 align;	/* of the translation */
	u64 size_align;
	u64 end;	/* first address that it can't reach */
};

struct plan_input {
	u32 windows;
	struct plan_window window[PCILEND_LAYOUT_WINDOWS];
	u64 hole;
	u64 bars;		/* 0: exports may be anywhere */
	bool relay;
};

static u64 layout_smaller(u64 a, u64 b)
{
	return a < b ? a : b;
}

static u64 layout_larger(u64 a, u64 b)
{
	return a > b ? a : b;
}

static u64 layout_page_down(u64 value)
{
	return value & ~(PCILEND_PAGE - 1);
}

/* A part of a window, in huge pages where it has some. */
static u64 layout_part_of(u64 size)
{
	return size >= HUGE_PAGE ? size & ~(HUGE_PAGE - 1) : layout_page_down(size);
}

/* @align: a power of two; callers stay far below 64 bits. */
static u64 layout_align_up(u64 value, u64 align)
{
	return (value + align - 1) & ~(align - 1);
}

static u64 layout_power_of_two_up(u64 value)
{
	u64 power = PCILEND_PAGE;

	while (power < value)
		power <<= 1;
	return power;
}

static int layout_refuse(char *why, size_t why_bytes, int error, const char *format, u64 a, u64 b)
{
	snprintf(why, why_bytes, format, (unsigned long long)a, (unsigned long long)b);
	return error;
}

static bool layout_not_power_of_two(u64 value)
{
	return value & (value - 1);
}

static int layout_read_window(const struct pcilend_layout_window *rules, u64 seen, u32 index,
			      u64 iova_end, struct plan_window *window, char *why, size_t why_bytes)
{
	u64 size_align = layout_larger(rules->size_align, PCILEND_PAGE);
	u64 size = seen;

	window->end = layout_smaller(rules->end ? rules->end : ~0ULL, iova_end);

	if (layout_not_power_of_two(rules->addr_align) ||
	    layout_not_power_of_two(rules->size_align))
		return layout_refuse(why, why_bytes, -EINVAL,
				     "memory window %llu: its driver names an alignment that is not a power of two",
				     index, 0);
	if (!size || (rules->size_max && rules->size_max < size))
		size = rules->size_max;
	if (size > WIDEST_WINDOW || rules->addr_align > WIDEST_WINDOW)
		return layout_refuse(why, why_bytes, -EINVAL,
				     "memory window %llu: its driver names an impossible size or alignment of 0x%llx bytes; choose a smaller BAR",
				     index, layout_larger(size, rules->addr_align));
	window->size = layout_smaller(size, window->end) & ~(size_align - 1);
	window->size_align = size_align;
	window->align = layout_larger(layout_power_of_two_up(window->size), rules->addr_align);
	return 0;
}

static int layout_read_input(const struct pcilend_layout_host *self,
			     const struct pcilend_layout_host *peer, struct plan_input *input,
			     char *why, size_t why_bytes)
{
	u64 self_hole = self->hole ? self->hole : PCILEND_HOLE_DEFAULT;
	u64 peer_hole = peer->hole ? peer->hole : PCILEND_HOLE_DEFAULT;
	u32 i;

	input->bars = self->bars;
	input->relay = self->relay;
	input->windows = (u32)layout_smaller(self->windows, PCILEND_LAYOUT_WINDOWS);
	if (peer->windows && peer->windows < input->windows)
		input->windows = peer->windows;
	input->hole = layout_smaller(layout_smaller(self_hole, peer_hole), PCILEND_MSI_IOVA);
	input->hole = layout_page_down(input->hole);
	if (input->hole < PCILEND_DMA_LEAST + PCILEND_EXPORT_LEAST)
		return layout_refuse(why, why_bytes, -EINVAL,
				     "the lowest PCI hole starts at 0x%llx, too low for a DMA area: check the firmware's memory map",
				     input->hole, 0);
	if (self->iova_end && self->iova_end < LOW_END)
		return layout_refuse(why, why_bytes, -EINVAL,
				     "the NTB's IOMMU ends at 0x%llx, below 4 GiB: choose translated mode (no iommu=pt) or another IOMMU",
				     self->iova_end, 0);
	for (i = 0; i < input->windows; i++) {
		u64 seen = peer->windows ? peer->window[i].size : self->window[i].size;
		int error = layout_read_window(&self->window[i], seen, i,
					       self->iova_end ? self->iova_end : ~0ULL,
					       &input->window[i], why, why_bytes);

		if (error)
			return error;
	}
	return 0;
}

/* The lowest place for a window's translation from @from on, or 0. */
static u64 layout_place(const struct plan_input *input, u32 index, u64 from)
{
	const struct plan_window *window = &input->window[index];
	u64 at = layout_align_up(from, window->align);

	return at <= window->end && window->end - at >= window->size ? at : 0;
}

/* As layout_place(), at @wanted if that is possible, else from @otherwise on. */
static u64 layout_place_at(const struct plan_input *input, u32 index, u64 wanted, u64 otherwise)
{
	u64 at = layout_place(input, index, layout_larger(wanted, otherwise));

	return at ? at : layout_place(input, index, otherwise);
}

static void layout_open_window(struct pcilend_layout *layout, u32 index, u64 translation, u64 size)
{
	layout->window[index].translation = translation;
	layout->window[index].size = size;
}

static void layout_set_region(struct pcilend_layout_region *region, u32 window, u64 iova, u64 size)
{
	region->window = window;
	region->iova = iova;
	region->size = layout_page_down(size);
}

/* Divides [start, end) of a window among the regions that are to lie in it. */
static void layout_divide(struct pcilend_layout *layout, u32 window, u64 start, u64 end,
			  bool exports, bool slots)
{
	u64 part = exports && slots ? layout_part_of((end - start) >> 2)
		   : exports	    ? end - start
				    : 0;

	if (exports)
		layout_set_region(&layout->exports, window, start, part);
	if (slots)
		layout_set_region(&layout->slots, window, start + part, end - start - part);
}

/* The window at translation 0: the DMA area, and what else shares it. */
static void layout_plan_base(struct pcilend_layout *layout, const struct plan_input *input,
			     u32 base, bool exports, bool slots)
{
	u64 size = input->window[base].size;
	u64 low = layout_smaller(size, input->hole);

	layout_open_window(layout, base, 0, size);
	layout->dma_window = base;
	layout->dma_limit = low;
	if (!exports && !slots)
		return;
	if (size >= HIGH_BASE) {
		layout_divide(layout, base, size >= LARGE_BASE ? PCILEND_SLOT_IOVA : LOW_END, size,
			      exports, slots);
		return;
	}
	/* Addresses from the hole to 4 GiB can't be used: share what is below. */
	layout->dma_limit = layout_part_of(slots ? low >> 2 : low >> 1);
	layout_divide(layout, base, layout->dma_limit, low, exports, slots);
}

/* Windows apart from the base, for exports and slots. */
static bool layout_plan_others(struct pcilend_layout *layout, const struct plan_input *input,
			       u32 base, u32 exports, u32 slots)
{
	u64 from = layout_larger(input->window[base].size, LOW_END);
	u64 at;

	if (exports != base) {
		u64 wanted = input->bars ? input->bars & ~(input->window[exports].align - 1) :
					   PCILEND_EXPORT_IOVA;

		at = layout_place_at(input, exports, wanted, from);
		if (!at)
			return false;
		from = at + input->window[exports].size;
		layout_open_window(layout, exports, at, from - at);
		layout_divide(layout, exports, at, from, true, slots == exports);
	}
	if (slots < input->windows && slots != base && slots != exports) {
		at = layout_place(input, slots, from);
		if (!at)
			return false;
		from = at + input->window[slots].size;
		layout_open_window(layout, slots, at, from - at);
		layout_divide(layout, slots, at, from, false, true);
	}
	return true;
}

/* A window that reaches the interrupt range: one that is open, else one that is left. */
static void layout_plan_interrupts(struct pcilend_layout *layout, const struct plan_input *input)
{
	u32 base = layout->dma_window;
	u32 i;

	if (input->relay)
		return;
	if (layout->window[base].size >= PCILEND_MSI_IOVA + PCILEND_MSI_BYTES) {
		layout_set_region(&layout->interrupts, base, PCILEND_MSI_IOVA, PCILEND_MSI_BYTES);
		return;
	}
	for (i = 0; i < input->windows; i++) {
		const struct plan_window *window = &input->window[i];
		u64 at = PCILEND_MSI_IOVA & ~(window->align - 1);
		u64 size = layout_align_up(PCILEND_MSI_IOVA + PCILEND_MSI_BYTES - at,
					   window->size_align);
		u64 whole;

		if (layout->window[i].size || size > window->size || at + size > window->end)
			continue;
		/* Some chips take the logarithm of a size, rounded down, for all there is. */
		whole = layout_power_of_two_up(size);
		if (whole <= window->size && at + whole <= window->end)
			size = whole;
		layout_open_window(layout, i, at, size);
		layout_set_region(&layout->interrupts, i, PCILEND_MSI_IOVA, PCILEND_MSI_BYTES);
		return;
	}
}

static void layout_note_degraded(struct pcilend_layout *layout, const struct plan_input *input)
{
	layout->degraded = 0;
	if (!layout->interrupts.size && !input->relay)
		layout->degraded |= PCILEND_DEGRADED_INTERRUPTS;
	if (layout->dma_limit < input->hole)
		layout->degraded |= PCILEND_DEGRADED_DMA;
	if (!layout->slots.size)
		layout->degraded |= PCILEND_DEGRADED_NO_GUESTS;
	else if (layout->slots.size < PCILEND_SLOTS_FULL)
		layout->degraded |= PCILEND_DEGRADED_GUESTS;
	if (layout->exports.size < PCILEND_EXPORT_FULL)
		layout->degraded |= PCILEND_DEGRADED_EXPORT;
}

/* @slots == input->windows: none. */
static bool layout_plan_candidate(struct pcilend_layout *layout, const struct plan_input *input,
				  u32 base, u32 exports, u32 slots)
{
	memset(layout, 0, sizeof(*layout));
	layout->windows = input->windows;
	layout_plan_base(layout, input, base, exports == base, slots == base);
	if (!layout_plan_others(layout, input, base, exports, slots))
		return false;
	if (layout->dma_limit < PCILEND_DMA_LEAST || layout->exports.size < PCILEND_EXPORT_LEAST)
		return false;
	if (slots < input->windows && layout->slots.size < PCILEND_SLOTS_LEAST)
		return false;
	layout_plan_interrupts(layout, input);
	layout_note_degraded(layout, input);
	return true;
}

/* Sizes that differ by little are worth the same: powers of two, with an eighth to spare. */
static int layout_worth(u64 size, u64 full)
{
	int power = 0;

	size = layout_smaller(size, full);
	for (size += size >> 3; size; size >>= 1)
		power++;
	return power;
}

static bool layout_exports_alone(const struct pcilend_layout *layout)
{
	return layout->slots.window == layout->dma_window &&
	       layout->exports.window != layout->dma_window;
}

/*
 * What degrades last counts first. Of equals, the one with the DMA area in the first window, then
 * the one with a window for exports alone, then the one with more space.
 */
static bool layout_better(const struct pcilend_layout *a, const struct pcilend_layout *b)
{
	const int difference[] = {
		!!a->slots.size - !!b->slots.size,
		layout_worth(a->exports.size, PCILEND_EXPORT_FULL) -
			layout_worth(b->exports.size, PCILEND_EXPORT_FULL),
		layout_worth(a->slots.size, PCILEND_SLOTS_FULL) -
			layout_worth(b->slots.size, PCILEND_SLOTS_FULL),
		layout_worth(a->dma_limit, LOW_END) - layout_worth(b->dma_limit, LOW_END),
		!!a->interrupts.size - !!b->interrupts.size,
		(int)b->dma_window - (int)a->dma_window,
		layout_exports_alone(a) - layout_exports_alone(b),
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(difference); i++) {
		if (difference[i])
			return difference[i] > 0;
	}
	if (a->slots.size != b->slots.size)
		return a->slots.size > b->slots.size;
	return a->exports.size > b->exports.size;
}

static int layout_refuse_plan(const struct plan_input *input, char *why, size_t why_bytes)
{
	const u64 least = PCILEND_DMA_LEAST + PCILEND_EXPORT_LEAST;
	u64 largest = 0;
	u32 i;

	for (i = 0; i < input->windows; i++)
		largest = layout_larger(largest, input->window[i].size);
	if (!largest)
		return layout_refuse(why, why_bytes, -ENOSPC,
				     "the NTB adapter has no memory window: one of at least %llu KiB is needed; enable its BARs in the firmware",
				     least >> 10, 0);
	return layout_refuse(why, why_bytes, -ENOSPC,
			     "memory windows too small: the largest has %llu KiB, %llu KiB more are needed; enlarge the NTB's BARs in the firmware",
			     largest >> 10, (least - largest + 1023) >> 10);
}

/* What is outside of the DMA area would be bounced, all the time. */
static int layout_refuse_memory(u64 dma_limit, u64 memory_end, char *why, size_t why_bytes)
{
	return layout_refuse(why, why_bytes, -ENOSPC,
			     "without an IOMMU the peer reaches the first %llu MiB of memory, and this host has memory up to %llu MiB: enable the IOMMU, or take some out",
			     dma_limit >> 20, memory_end >> 20);
}

int pcilend_layout_plan(const struct pcilend_layout_host *self,
			const struct pcilend_layout_host *peer, struct pcilend_layout *layout,
			char *why, size_t why_bytes)
{
	struct plan_input input = { 0 };
	struct pcilend_layout trial;
	bool found = false;
	u32 base, exports, slots;
	int error = layout_read_input(self, peer, &input, why, why_bytes);

	if (error)
		return error;
	for (base = 0; base < input.windows; base++) {
		for (exports = 0; exports < input.windows; exports++) {
			for (slots = self->memory_end ? input.windows : 0; slots <= input.windows;
			     slots++) {
				if (!layout_plan_candidate(&trial, &input, base, exports, slots) ||
				    (found && !layout_better(&trial, layout)))
					continue;
				*layout = trial;
				found = true;
			}
		}
	}
	if (!found)
		return layout_refuse_plan(&input, why, why_bytes);
	if (self->memory_end > layout->dma_limit)
		return layout_refuse_memory(layout->dma_limit, self->memory_end, why, why_bytes);
	return 0;
}

int pcilend_layout_reached(const struct pcilend_layout *layout,
			   const struct pcilend_layout_host *peer, char *why, size_t why_bytes)
{
	u32 i;

	for (i = 0; i < layout->windows; i++) {
		u64 seen = i < peer->windows ? peer->window[i].size : 0;

		if (layout->window[i].size > seen)
			return layout_refuse(why, why_bytes, -ERANGE,
					     "the peer does not see the last %llu KiB of memory window %llu: give both NTB adapters windows of the same size",
					     (layout->window[i].size - seen) >> 10, i);
	}
	if (peer->hole && layout->dma_limit > peer->hole)
		return layout_refuse(why, why_bytes, -ERANGE,
				     "the last %llu KiB of the DMA area are in the peer's PCI hole at 0x%llx: the area has to end there",
				     (layout->dma_limit - peer->hole) >> 10, peer->hole);
	return 0;
}

const char *pcilend_layout_degraded_text(u32 bit)
{
	switch (bit) {
	case PCILEND_DEGRADED_INTERRUPTS:
		return "lenders relay MSI: a window of 4 GiB avoids that";
	case PCILEND_DEGRADED_DMA:
		return "shadow devices have a small DMA area: a memory window of 4 GiB is enough";
	case PCILEND_DEGRADED_GUESTS:
		return "only VMs that fit the slots can borrow: larger memory windows make room";
	case PCILEND_DEGRADED_NO_GUESTS:
		return "VMs can't borrow: it takes an IOMMU, and memory windows of 256 MiB in all";
	case PCILEND_DEGRADED_EXPORT:
		return "large BARs can't be lent: larger memory windows make room";
	default:
		return "unknown";
	}
}
