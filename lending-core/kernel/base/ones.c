// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pages of all-ones (ones.h). VFIO's type 1 may map what it finds in a user's mapping for devices
 * of his, holds no reference, and unmaps it later than he has closed what they are of. So these
 * pages are kept for others of their kind, and never given back to the kernel before the module
 * goes, when no user is left.
 */

#include <linux/mm.h>

#include "base/base.h"
#include "pcilend/ones.h"

static LIST_HEAD(ones_pool);		/* ones_pool_lock: by their lru */
static DEFINE_SPINLOCK(ones_pool_lock);

static struct page *ones_alloc(void)
{
	struct page *page;

	scoped_guard(spinlock, &ones_pool_lock) {
		page = list_first_entry_or_null(&ones_pool, struct page, lru);
		if (page)
			list_del(&page->lru);
	}
	page = page ?: alloc_page(GFP_KERNEL);
	if (page)
		memset(page_address(page), 0xff, PAGE_SIZE);
	return page;
}

static void ones_free(struct page *page)
{
	guard(spinlock)(&ones_pool_lock);
	list_add(&page->lru, &ones_pool);
}

int pcilend_ones_init(struct pcilend_ones *ones)
{
	mutex_init(&ones->lock);
	xa_init(&ones->pages);
	ones->count = 0;
	ones->spare = ones_alloc();
	return ones->spare ? 0 : -ENOMEM;
}
EXPORT_SYMBOL_GPL(pcilend_ones_init);

void pcilend_ones_destroy(struct pcilend_ones *ones)
{
	unsigned long index;
	struct page *page;

	if (!ones->spare)
		return;
	xa_for_each(&ones->pages, index, page)
		ones_free(page);
	xa_destroy(&ones->pages);
	ones_free(ones->spare);
	ones->spare = NULL;
}
EXPORT_SYMBOL_GPL(pcilend_ones_destroy);

struct page *pcilend_ones_at(struct pcilend_ones *ones, unsigned long index)
{
	struct page *page;

	guard(mutex)(&ones->lock);
	page = xa_load(&ones->pages, index);
	if (page)
		return page;
	if (ones->count == PCILEND_ONES_MAX)
		return ones->spare;
	page = ones_alloc();
	if (!page)
		return ones->spare;
	if (xa_err(xa_store(&ones->pages, index, page, GFP_KERNEL))) {
		ones_free(page);
		return ones->spare;
	}
	ones->count++;
	return page;
}
EXPORT_SYMBOL_GPL(pcilend_ones_at);

void pcilend_ones_wipe(struct pcilend_ones *ones)
{
	unsigned long index;
	struct page *page;

	if (!ones->spare)
		return;
	guard(mutex)(&ones->lock);
	xa_for_each(&ones->pages, index, page)
		memset(page_address(page), 0xff, PAGE_SIZE);
	memset(page_address(ones->spare), 0xff, PAGE_SIZE);
}
EXPORT_SYMBOL_GPL(pcilend_ones_wipe);

/* When no user is left. */
void pcilend_ones_exit(void)
{
	struct page *page, *next;

	list_for_each_entry_safe(page, next, &ones_pool, lru)
		__free_page(page);
}
