// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pieces of the NTB's memory windows, below which the drivers of virtual functions request BARs.
 *
 * The NTB's driver has requested the whole BAR. What it has requested is busy, and nobody could
 * request anything inside. So its region is released as long as there are pieces in it, and what
 * lies between the pieces is requested instead, by its name: that stays busy, for other drivers and
 * for /dev/mem. After the last piece the region is requested again, as it was, so that the driver
 * finds what it releases. The NTB core could hand out such pieces (docs/upstream/ntb-windows.md).
 *
 *	none in use	BAR > region of the NTB's driver (busy)
 *	some in use	BAR > gap (busy), piece > BAR of a virtual function (busy), gap (busy)
 *
 * Where no driver has requested the BAR, pieces lie in the BAR, and there are no gaps.
 */

#include <linux/ioport.h>
#include <linux/pci.h>
#include <linux/slab.h>

#include "virtual/virtual.h"

struct window_piece {
	struct list_head node;		/* sorted by address */
	const struct resource *window;	/* may have been merged with another one since */
	resource_size_t start;
	resource_size_t end;		/* as all of them, the last byte */
	struct resource *gap;		/* busy, up to the next piece; NULL: none */
};

struct window_region {
	struct list_head node;
	struct resource *bar;
	struct window_piece first;	/* ends before the region; its gap may be all of it */
	resource_size_t end;
	const char *name;		/* that of its driver */
	unsigned long exclusive;	/* IORESOURCE_EXCLUSIVE or 0 */
	struct list_head pieces;	/* first.node, and those in use */
};

static DEFINE_MUTEX(windows_lock);
static LIST_HEAD(window_regions);	/* windows_lock, as what is in them */

/* The end of what is free behind @piece. */
static resource_size_t window_gap_end(const struct window_region *region,
				      const struct window_piece *piece)
{
	return list_is_last(&piece->node, &region->pieces) ?
		       region->end : list_next_entry(piece, node)->start - 1;
}

static void window_open_gaps(struct window_region *region)
{
	struct window_piece *piece;

	lockdep_assert_held(&windows_lock);
	list_for_each_entry(piece, &region->pieces, node) {
		if (piece->gap)
			release_mem_region(piece->gap->start, resource_size(piece->gap));
		piece->gap = NULL;
	}
}

/* Return: 0; -EBUSY if one can't be requested, also for want of memory; the others are. */
static int window_shut_gaps(struct window_region *region)
{
	struct window_piece *piece;
	int err = 0;

	lockdep_assert_held(&windows_lock);
	list_for_each_entry(piece, &region->pieces, node) {
		resource_size_t start = piece->end + 1;
		resource_size_t bytes = window_gap_end(region, piece) + 1 - start;

		if (!bytes)
			continue;
		piece->gap = __request_region(&iomem_resource, start, bytes, region->name,
					      region->exclusive);
		if (!piece->gap)
			err = -EBUSY;
	}
	return err;
}

/* The same when nothing can be done about it. */
static void window_shut_gaps_again(struct window_region *region)
{
	if (window_shut_gaps(region))
		pr_err("pcilend: no memory: adapter's BAR %pR is no longer requested for %s where nothing is borrowed\n",
		       region->bar, region->name);
}

static struct resource *window_find_bar(struct pci_dev *ntb, const struct resource *window)
{
	struct resource *bar;

	pci_dev_for_each_resource(ntb, bar) {
		if (resource_type(bar) == IORESOURCE_MEM && resource_contains(bar, window))
			return bar;
	}
	return NULL;
}

static struct window_region *window_find_region(const struct resource *bar)
{
	struct window_region *region;

	lockdep_assert_held(&windows_lock);
	list_for_each_entry(region, &window_regions, node) {
		if (region->bar == bar)
			return region;
	}
	return NULL;
}

/* The region that the NTB's driver has requested in @bar; NULL: it has not, or no memory. */
static struct window_region *window_take_region(struct resource *bar, const struct resource *window)
{
	struct resource *requested = bar->child;
	struct window_region *region;

	lockdep_assert_held(&windows_lock);
	if (!requested || !(requested->flags & IORESOURCE_BUSY) ||
	    !resource_contains(requested, window))
		return NULL;
	region = kzalloc(sizeof(*region), GFP_KERNEL);
	if (!region)
		return NULL;
	region->bar = bar;
	region->end = requested->end;
	region->name = requested->name;
	region->exclusive = requested->flags & IORESOURCE_EXCLUSIVE;
	region->first.end = requested->start - 1;
	region->first.gap = requested;
	INIT_LIST_HEAD(&region->pieces);
	list_add(&region->first.node, &region->pieces);
	list_add(&region->node, &window_regions);
	return region;
}

/* After the last piece: the region is the driver's again. */
static void window_return_region(struct window_region *region)
{
	lockdep_assert_held(&windows_lock);
	if (!list_is_singular(&region->pieces))
		return;
	list_del(&region->node);
	kfree(region);
}

static void window_add_piece(struct window_region *region, struct window_piece *piece)
{
	struct window_piece *before = &region->first, *next;

	lockdep_assert_held(&windows_lock);
	list_for_each_entry(next, &region->pieces, node) {
		if (next->start > piece->start)
			break;
		before = next;
	}
	list_add(&piece->node, &before->node);
}

static int window_claim_in(struct window_region *region, struct resource *window)
{
	struct window_piece *piece = kzalloc(sizeof(*piece), GFP_KERNEL);
	int err;

	lockdep_assert_held(&windows_lock);
	if (!piece)
		return -ENOMEM;
	piece->window = window;
	piece->start = window->start;
	piece->end = window->end;
	window_open_gaps(region);
	err = request_resource(region->bar, window);
	if (!err) {
		window_add_piece(region, piece);
		err = window_shut_gaps(region);
		if (!err)
			return 0;
		window_open_gaps(region);
		list_del(&piece->node);
		release_resource(window);
	}
	kfree(piece);
	window_shut_gaps_again(region);
	return err;
}

static void window_remove_pieces(struct window_region *region, const struct resource *window,
				 unsigned int count)
{
	struct window_piece *piece, *next;
	bool open = false;

	lockdep_assert_held(&windows_lock);
	list_for_each_entry_safe(piece, next, &region->pieces, node) {
		if (piece->window < window || piece->window >= window + count)
			continue;
		if (!open)
			window_open_gaps(region);
		open = true;
		list_del(&piece->node);
		kfree(piece);
	}
	if (!open)
		return;
	window_shut_gaps_again(region);
	window_return_region(region);
}

int pcilend_window_claim(struct pci_dev *ntb, struct resource *window)
{
	struct resource *bar = window_find_bar(ntb, window);
	struct window_region *region;
	int err;

	if (!bar)
		return -ENXIO;
	guard(mutex)(&windows_lock);
	region = window_find_region(bar) ?: window_take_region(bar, window);
	if (!region)
		return request_resource(bar, window);
	err = window_claim_in(region, window);
	window_return_region(region);
	return err;
}

void pcilend_windows_release(struct resource *window, unsigned int count)
{
	struct window_region *region, *next;
	unsigned int i;

	guard(mutex)(&windows_lock);
	/* The PCI core has merged adjacent ones, and released all but one of them. */
	for (i = 0; i < count; i++) {
		if (window[i].parent)
			release_resource(&window[i]);
	}
	list_for_each_entry_safe(region, next, &window_regions, node)
		window_remove_pieces(region, window, count);
}
