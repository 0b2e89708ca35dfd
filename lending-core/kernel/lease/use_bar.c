// SPDX-License-Identifier: GPL-2.0-only
/* Parts of a leased function's BARs, for its process; taken from it when the lease is over. */

#include <linux/dma-buf.h>
#include <linux/pci.h>
#include <linux/slab.h>

#include "base/base.h"
#include "base/pages.h"
#include "lease/lease.h"

struct use_bar {
	struct list_head node;		/* pcilend_use.bars_lock */
	struct pcilend_use *use;	/* with a reference */
	struct pcilend_pages pages;
};

u32 pcilend_use_table_pages(struct pci_dev *pdev, u32 *page, u32 *pages)
{
	u32 table, start;
	u64 end;

	pci_read_config_dword(pdev, pdev->msix_cap + PCI_MSIX_TABLE, &table);
	start = table & PCI_MSIX_TABLE_OFFSET;
	end = PAGE_ALIGN(start + (u64)pci_msix_vec_count(pdev) * PCI_MSIX_ENTRY_SIZE);
	*page = start / PAGE_SIZE;
	*pages = end / PAGE_SIZE - *page;
	return table & PCI_MSIX_TABLE_BIR;
}

/* Is any of it in the pages with the table of MSI-X, which begin at @start of their BAR? */
static bool use_bar_has_table(struct pci_dev *pdev, u32 bar, u64 offset, u64 size, u64 *start)
{
	u32 page, pages;

	if (!pdev->msix_cap || pcilend_use_table_pages(pdev, &page, &pages) != bar)
		return false;
	*start = (u64)page * PAGE_SIZE;
	return offset < *start + (u64)pages * PAGE_SIZE && *start < offset + size;
}

int pcilend_use_place_bar(struct pci_dev *pdev, u32 bar, u64 offset, u64 size, phys_addr_t *phys,
			  struct netlink_ext_ack *extack)
{
	u64 bytes, table;

	if (bar >= PCI_STD_NUM_BARS || !(pci_resource_flags(pdev, bar) & IORESOURCE_MEM) ||
	    !pci_resource_len(pdev, bar))
		return pcilend_refuse_fmt(extack, -EINVAL, "the function has no memory BAR %u: see 'pcilend show'",
					  bar);
	bytes = PAGE_ALIGN(pci_resource_len(pdev, bar));
	if (size > bytes || offset > bytes - size)
		return pcilend_refuse_fmt(extack, -ERANGE, "BAR %u has %llu bytes: give a part of that",
					  bar, bytes);
	if (use_bar_has_table(pdev, bar, offset, size, &table))
		return pcilend_refuse_fmt(extack, -EACCES, "its interrupt table is at %#llx of BAR %u: leave those pages out",
					  table, bar);
	*phys = pci_resource_start(pdev, bar) + offset;
	return 0;
}

static void use_bar_free(struct use_bar *bar)
{
	pcilend_pages_destroy(&bar->pages);
	pcilend_use_put(bar->use);
	kfree(bar);
}

static void use_bar_release(struct pcilend_pages *pages)
{
	struct use_bar *bar = container_of(pages, struct use_bar, pages);

	scoped_guard(mutex, &bar->use->bars_lock)
		list_del(&bar->node);
	use_bar_free(bar);
}

/* @file: set; the caller's to install or to put. */
int pcilend_use_export_bar(struct pcilend_use *use, const struct pcilend_use_place *place, u64 size,
			   struct file **file)
{
	struct use_bar *bar = kzalloc(sizeof(*bar), GFP_KERNEL_ACCOUNT);
	struct dma_buf *buffer;

	if (!bar)
		return -ENOMEM;
	bar->use = pcilend_use_get(use);
	bar->pages.phys = place->phys;
	bar->pages.behind = pci_dev_get(place->behind);
	bar->pages.far = place->far;
	bar->pages.size = size;
	bar->pages.release = use_bar_release;
	buffer = pcilend_pages_init(&bar->pages) ? ERR_PTR(-ENOMEM) :
						   pcilend_pages_export(&bar->pages);
	if (IS_ERR(buffer)) {
		use_bar_free(bar);
		return PTR_ERR(buffer);
	}
	/* Nobody has it mapped yet. */
	scoped_guard(mutex, &use->bars_lock) {
		list_add_tail(&bar->node, &use->bars);
		if (use->over || use->hidden)
			pcilend_pages_take(&bar->pages);
	}
	*file = buffer->file;
	return 0;
}

/* As @use says now. */
void pcilend_use_move_bars(struct pcilend_use *use)
{
	struct use_bar *bar;

	lockdep_assert_held(&use->bars_lock);
	list_for_each_entry(bar, &use->bars, node) {
		if (use->over || use->hidden)
			pcilend_pages_take(&bar->pages);
		else
			pcilend_pages_give(&bar->pages);
	}
}
