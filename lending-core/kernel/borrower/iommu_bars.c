// SPDX-License-Identifier: GPL-2.0-only
/*
 * BARs of borrowed functions in the domain of a user of VFIO; see iommu_bars.h.
 *
 *	IOVA ── lender's IOMMU ──> BAR
 *	                       └─> window ── IOMMU of another lender ──> BAR
 *
 * Nothing of that is in this host, whose own window only the CPU uses. So a BAR takes no slot of
 * the aperture, and no granule may be where it is. The function itself does not reach its own BARs:
 * nobody does that by DMA, and VFIO maps them for it all the same.
 */

#include <linux/bitmap.h>
#include <linux/slab.h>

#include "borrower/borrower.h"
#include "borrower/iommu_bars.h"

struct iommu_bar {
	struct list_head node;
	struct remote_bar bar;		/* with its reference */
	u64 iova;
	bool reserved;			/* no granule comes there: it can be reached */
	u64 mapped;			/* bytes */
	unsigned long *pages;		/* that are mapped */
};

void iommu_bars_init(struct iommu_bars *bars, struct mutex *lock, struct list_head *attached,
		     struct pcilend_granules *granules)
{
	INIT_LIST_HEAD(&bars->list);
	bars->count = 0;
	bars->lock = lock;
	bars->attached = attached;
	bars->granules = granules;
}

static unsigned long iommu_bars_page_of(const struct iommu_bar *bar, u64 iova)
{
	return (iova - bar->iova) >> PAGE_SHIFT;
}

static unsigned long iommu_bars_pages_of(const struct iommu_bar *bar)
{
	return bar->bar.size >> PAGE_SHIFT;
}

/* The BAR of which the page at @iova is mapped, or NULL. */
static struct iommu_bar *iommu_bars_find_mapped(struct iommu_bars *bars, u64 iova)
{
	struct iommu_bar *bar;

	lockdep_assert_held(bars->lock);
	list_for_each_entry(bar, &bars->list, node) {
		if (iova >= bar->iova && iova - bar->iova < bar->bar.size &&
		    test_bit(iommu_bars_page_of(bar, iova), bar->pages))
			return bar;
	}
	return NULL;
}

/* The BAR that begins there, whatever is mapped of it; or NULL. */
static struct iommu_bar *iommu_bars_find(struct iommu_bars *bars, const struct remote_bar *wanted,
					 u64 iova)
{
	struct iommu_bar *bar;

	lockdep_assert_held(bars->lock);
	list_for_each_entry(bar, &bars->list, node) {
		if (bar->iova == iova && bar->bar.to == wanted->to &&
		    bar->bar.lease == wanted->lease && bar->bar.bar == wanted->bar)
			return bar;
	}
	return NULL;
}

static const char *iommu_bars_why(int error)
{
	switch (error) {
	case -EEXIST:
		return "memory is mapped close by: have the guest put it elsewhere";
	case -ERANGE:
		return "interrupts or another BAR are there: have the guest put it elsewhere";
	default:
		return "its user has mapped too many BARs";
	}
}

static int iommu_bars_refuse(const struct remote_bar *bar, u64 iova, int error)
{
	pr_warn_ratelimited("pcilend: BAR %u of %x can't be reached by DMA at %#llx, where its user has it (error %d): %s\n",
			    bar->bar, bar->to->pub.id, iova, error, iommu_bars_why(error));
	return error;
}

/* Has all of it for itself, so that it can be reached. Return: 0, also if it has; or an error. */
static int iommu_bars_reserve(struct iommu_bars *bars, struct iommu_bar *bar)
{
	int err;

	lockdep_assert_held(bars->lock);
	if (bar->reserved)
		return 0;
	err = pcilend_granules_reserve(bars->granules, bar->iova, bar->bar.size);
	if (err)
		return iommu_bars_refuse(&bar->bar, bar->iova, err);
	bar->reserved = true;
	return 0;
}

/* Return: 0, also of the function's own; or why it does not reach it, which is in the log. */
static int iommu_bars_reach(struct iommu_bars *bars, struct iommu_bar *bar, struct remote *r)
{
	lockdep_assert_held(bars->lock);
	if (r == bar->bar.to)
		return 0;
	return iommu_bars_reserve(bars, bar) ?: remote_reach_bar(r, &bar->bar, bar->iova);
}

static void iommu_bars_unreach(struct iommu_bars *bars, struct iommu_bar *bar)
{
	struct remote *r;

	lockdep_assert_held(bars->lock);
	list_for_each_entry(r, bars->attached, domain_node)
		remote_unreach_bar(r, &bar->bar, bar->iova);
}

static int iommu_bars_reach_all(struct iommu_bars *bars, struct iommu_bar *bar, bool late)
{
	struct remote *r;
	int err;

	lockdep_assert_held(bars->lock);
	list_for_each_entry(r, bars->attached, domain_node) {
		err = iommu_bars_reach(bars, bar, r);
		if (err && !late) {
			iommu_bars_unreach(bars, bar);
			return err;
		}
	}
	return 0;
}

static void iommu_bars_drop(struct iommu_bars *bars, struct iommu_bar *bar)
{
	if (bar->reserved)
		WARN_ON(pcilend_granules_unreserve(bars->granules, bar->iova, bar->bar.size));
	list_del(&bar->node);
	bars->count--;
	pcilend_remote_put(&bar->bar.to->pub);
	kvfree(bar->pages);
	kfree(bar);
}

/* A BAR of which nothing is mapped yet. The reference of @wanted is taken over if it succeeds. */
static struct iommu_bar *iommu_bars_add(struct iommu_bars *bars, const struct remote_bar *wanted,
					u64 iova, bool late)
{
	struct iommu_bar *bar;
	int err = -ENOMEM;

	lockdep_assert_held(bars->lock);
	if (bars->count == IOMMU_BARS)
		return ERR_PTR(iommu_bars_refuse(wanted, iova, -ENOSPC));
	bar = kzalloc(sizeof(*bar), GFP_KERNEL_ACCOUNT);
	if (!bar)
		return ERR_PTR(err);
	bar->bar = *wanted;
	bar->iova = iova;
	/* Also of one that nobody else reaches yet. If it fails, whoever shall reach it is told. */
	bar->reserved = !pcilend_granules_reserve(bars->granules, iova, wanted->size);
	bar->pages = kvcalloc(BITS_TO_LONGS(iommu_bars_pages_of(bar)), sizeof(long),
			      GFP_KERNEL_ACCOUNT);
	if (bar->pages)
		err = iommu_bars_reach_all(bars, bar, late);
	if (err) {
		if (bar->reserved)
			pcilend_granules_unreserve(bars->granules, iova, wanted->size);
		kvfree(bar->pages);
		kfree(bar);
		return ERR_PTR(err);
	}
	list_add(&bar->node, &bars->list);
	bars->count++;
	return bar;
}

int iommu_bars_map(struct iommu_bars *bars, u64 iova, u64 phys, u64 size, int prot, bool late)
{
	const int both = IOMMU_READ | IOMMU_WRITE;
	struct remote_bar found;
	struct iommu_bar *bar;
	u64 start;

	lockdep_assert_held(bars->lock);
	if (remote_find_bar(phys, size, &found)) {
		pr_warn_ratelimited("pcilend: %#llx bytes at IOVA %#llx can't be mapped: they are in a memory window, and no BAR of a function that this host has borrowed\n",
				    size, iova);
		return -EINVAL;
	}
	start = iova - (phys - found.phys);
	if ((prot & both) != both || phys - found.phys > iova) {
		pr_warn_ratelimited("pcilend: a part of BAR %u of %x can't be mapped at IOVA %#llx: BARs are mapped for reading and writing, with room for all of it there\n",
				    found.bar, found.to->pub.id, iova);
		pcilend_remote_put(&found.to->pub);
		return -EINVAL;
	}
	bar = iommu_bars_find(bars, &found, start);
	if (bar) {
		pcilend_remote_put(&found.to->pub);
	} else {
		bar = iommu_bars_add(bars, &found, start, late);
		if (IS_ERR(bar)) {
			pcilend_remote_put(&found.to->pub);
			return PTR_ERR(bar);
		}
	}
	bitmap_set(bar->pages, iommu_bars_page_of(bar, iova), size >> PAGE_SHIFT);
	bar->mapped += size;
	return 0;
}

u64 iommu_bars_unmap(struct iommu_bars *bars, u64 iova, u64 size)
{
	struct iommu_bar *bar = iommu_bars_find_mapped(bars, iova);
	unsigned long first, end;

	if (!bar)
		return 0;
	first = iommu_bars_page_of(bar, iova);
	end = find_next_zero_bit(bar->pages, iommu_bars_pages_of(bar), first);
	size = min_t(u64, size, (u64)(end - first) << PAGE_SHIFT);
	bitmap_clear(bar->pages, first, size >> PAGE_SHIFT);
	bar->mapped -= size;
	if (!bar->mapped) {
		iommu_bars_unreach(bars, bar);
		iommu_bars_drop(bars, bar);
	}
	return size;
}

u64 iommu_bars_phys(struct iommu_bars *bars, u64 iova)
{
	struct iommu_bar *bar = iommu_bars_find_mapped(bars, iova);

	return bar ? bar->bar.phys + (iova - bar->iova) : 0;
}

void iommu_bars_attach(struct iommu_bars *bars, struct remote *r)
{
	struct iommu_bar *bar;

	lockdep_assert_held(bars->lock);
	list_for_each_entry(bar, &bars->list, node)
		iommu_bars_reach(bars, bar, r);
}

void iommu_bars_detach(struct iommu_bars *bars, struct remote *r)
{
	struct iommu_bar *bar;

	lockdep_assert_held(bars->lock);
	list_for_each_entry(bar, &bars->list, node)
		remote_unreach_bar(r, &bar->bar, bar->iova);
}

void iommu_bars_free(struct iommu_bars *bars)
{
	struct iommu_bar *bar, *next;

	list_for_each_entry_safe(bar, next, &bars->list, node)
		iommu_bars_drop(bars, bar);
}
