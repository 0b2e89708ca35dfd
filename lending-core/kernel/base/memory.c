// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory of processes (memory.h). A dma-buf is mapped, and so pinned, once, for a device of our own
 * that no IOMMU translates for: its DMA addresses are those of the memory, whoever exports it, and
 * no function or peer reaches anything yet. (For an adapter the DMA API would map it in the DMA
 * area, too, scattered, where the peer would reach it whatever is said about it.)
 *
 * An exporter of a BAR gives it to those only that let go of it when told so. Who exports memory is
 * not asked for that, as it then may move the memory. VFIO's gives a BAR to PCI devices only; to
 * the very function by its bus address, so that also there nothing is mapped for anybody.
 */

#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/iommu.h>
#include <linux/mm.h>
#include <linux/pci.h>
#include <linux/platform_device.h>
#include <linux/sched/mm.h>
#include <linux/sizes.h>
#include <linux/swiotlb.h>

#include "base/base.h"
#include "base/compat.h"
#include "base/memory.h"
#include "base/pages.h"
#include "base/source.h"
#include "pcilend/segment.h"

#define MEMORY_VFIO "vfio_pci_core"	/* as whom VFIO exports */

static struct platform_device *memory_device;

/* A kernel with PCI_P2PDMA has struct pages of BARs, too. */
static bool memory_is_ram(phys_addr_t phys)
{
	return pfn_valid(PHYS_PFN(phys)) && !is_zone_device_page(pfn_to_page(PHYS_PFN(phys)));
}

/* In whose BAR that is, with a reference; or NULL. An adapter comes before what is behind it. */
static struct pci_dev *memory_find_bar(phys_addr_t phys, u64 size)
{
	struct pci_dev *pdev = NULL;
	int i;

	for_each_pci_dev(pdev) {
		for (i = 0; i < PCI_STD_NUM_BARS; i++) {
			u64 start = pci_resource_start(pdev, i), length = pci_resource_len(pdev, i);

			if (pci_resource_flags(pdev, i) & IORESOURCE_MEM && phys >= start &&
			    size <= length && phys - start <= length - size)
				return pdev;
		}
	}
	return NULL;
}

/*
 * Is it all memory, or all in one BAR, in whole pages, as much as it says? Of a BAR: @behind is set
 * to whose it is, with a reference.
 */
static bool memory_is_one(struct sg_table *table, u64 size, struct pci_dev **behind)
{
	bool ram = memory_is_ram(sg_dma_address(table->sgl));
	struct scatterlist *sg;
	u64 bytes = 0;
	int i;

	for_each_sgtable_dma_sg(table, sg, i) {
		struct pci_dev *pdev = NULL;

		if (!PAGE_ALIGNED(sg_dma_address(sg)) || !PAGE_ALIGNED(sg_dma_len(sg)) ||
		    memory_is_ram(sg_dma_address(sg)) != ram)
			return false;
		if (!ram) {
			pdev = memory_find_bar(sg_dma_address(sg), sg_dma_len(sg));
			if (!pdev || (*behind && pdev != *behind)) {
				pci_dev_put(pdev);
				return false;
			}
			pci_dev_put(*behind);
			*behind = pdev;
		}
		bytes += sg_dma_len(sg);
	}
	return bytes == size;
}

/* The piece that begins with entry @sg, number @i: what lies side by side. Both go behind it. */
static void memory_piece(struct sg_table *table, struct scatterlist **sg, unsigned int *i,
			 phys_addr_t *start, u64 *size)
{
	*start = sg_dma_address(*sg);
	*size = 0;
	for (; *i < table->nents && sg_dma_address(*sg) == *start + *size; ++*i, *sg = sg_next(*sg))
		*size += sg_dma_len(*sg);
}

static bool memory_is_contiguous(struct sg_table *table, u64 size)
{
	struct scatterlist *sg = table->sgl;
	phys_addr_t start;
	unsigned int i = 0;
	u64 piece;

	memory_piece(table, &sg, &i, &start, &piece);
	return piece == size;
}

/* The exporter takes it away, or moves it: whoever wants to go on maps it anew. */
static void memory_moves(struct dma_buf_attachment *attachment)
{
	struct pcilend_memory *memory = attachment->importer_priv;

	dma_resv_assert_held(attachment->dmabuf->resv);
	pcilend_source_take(memory->source);
	if (!IS_ERR_OR_NULL(memory->table))
		dma_buf_unmap_attachment(attachment, memory->table, DMA_BIDIRECTIONAL);
	memory->table = NULL;
}

static const struct dma_buf_attach_ops memory_attach_ops = {
	.allow_peer2peer = true,
	PCILEND_DMA_BUF_MOVES(memory_moves),
};

static int memory_map_attachment(struct pcilend_memory *memory, struct netlink_ext_ack *extack)
{
	const char *name = memory->buffer->exp_name;
	int err;

	dma_resv_assert_held(memory->buffer->resv);
	memory->table = dma_buf_map_attachment(memory->attachment, DMA_BIDIRECTIONAL);
	err = PTR_ERR_OR_ZERO(memory->table);
	if (err)
		return pcilend_refuse_fmt(extack, err, "its exporter, %s, can't map it (error %d)",
					  name, err);
	if (!memory_is_one(memory->table, memory->size, &memory->behind))
		err = pcilend_refuse_fmt(extack, -EOPNOTSUPP, "its exporter, %s, gives neither memory nor a BAR of this host",
					 name);
	else if (memory->behind && !memory->source)
		err = pcilend_refuse_fmt(extack, -EOPNOTSUPP, "it is in a BAR, of the exporter %s: only functions can have it",
					 name);
	if (err) {
		dma_buf_unmap_attachment(memory->attachment, memory->table, DMA_BIDIRECTIONAL);
		memory->table = NULL;
		return err;
	}
	memory->phys = sg_dma_address(memory->table->sgl);
	memory->contiguous = memory_is_contiguous(memory->table, memory->size);
	return 0;
}

static int memory_attach_as(struct pcilend_memory *memory, struct device *dev,
			    const struct dma_buf_attach_ops *ops, struct netlink_ext_ack *extack)
{
	struct dma_buf *buffer = memory->buffer;
	int err;

	memory->attachment = dma_buf_dynamic_attach(buffer, dev, ops, memory);
	if (IS_ERR(memory->attachment))
		return pcilend_refuse_fmt(extack, PTR_ERR(memory->attachment), "its exporter, %s, gives it to no other device: use /dev/udmabuf",
					  buffer->exp_name);
	dma_resv_lock(buffer->resv, NULL);
	err = memory_map_attachment(memory, extack);
	dma_resv_unlock(buffer->resv);
	if (!err)
		return 0;
	dma_buf_detach(buffer, memory->attachment);
	pci_dev_put(memory->behind);
	memory->behind = NULL;
	return err;
}

static void memory_detach(struct pcilend_memory *memory)
{
	/* It may be gone. */
	dma_resv_lock(memory->buffer->resv, NULL);
	if (memory->table)
		dma_buf_unmap_attachment(memory->attachment, memory->table, DMA_BIDIRECTIONAL);
	memory->table = NULL;
	dma_resv_unlock(memory->buffer->resv);
	dma_buf_detach(memory->buffer, memory->attachment);
}

/* Does a user of VFIO have it? It is not in the domain then in which the DMA API maps for it. */
static bool memory_is_claimed(struct pci_dev *pdev)
{
	struct iommu_group *group = iommu_group_get(&pdev->dev);
	bool claimed = group && iommu_group_dma_owner_claimed(group);

	iommu_group_put(group);
	return claimed;
}

/*
 * As the function whose BAR it is: vfio_pci_dma_buf_map() asks pci_p2pdma_map_type() for the way
 * to the importer, which is none if that is no PCI device. Which function that is only a mapping
 * tells.
 */
static int memory_attach_as_owner(struct pcilend_memory *memory)
{
	struct netlink_ext_ack ignored = { };
	struct pci_dev *pdev = NULL;

	for_each_pci_dev(pdev) {
		if (!memory_is_claimed(pdev) ||
		    memory_attach_as(memory, &pdev->dev, &memory_attach_ops, &ignored))
			continue;
		if (memory->behind == pdev) {
			pci_dev_put(pdev);
			return 0;
		}
		memory_detach(memory);
		pci_dev_put(memory->behind);
		memory->behind = NULL;
	}
	return -EOPNOTSUPP;
}

/* As memory, which stays where it is; or else as what may be taken away. */
static int memory_attach(struct pcilend_memory *memory, bool anything,
			 struct netlink_ext_ack *extack)
{
	int err = memory_attach_as(memory, &memory_device->dev, NULL, extack);

	if (!err || !anything)
		return err;
	memory->source = pcilend_source_make();
	if (!memory->source)
		return -ENOMEM;
	err = memory_attach_as(memory, &memory_device->dev, &memory_attach_ops, extack);
	if (err && !strcmp(memory->buffer->exp_name, MEMORY_VFIO))
		err = memory_attach_as_owner(memory);
	if (!err)
		return 0;
	pcilend_source_put(memory->source);
	memory->source = NULL;
	return err;
}

static int memory_account(struct pcilend_memory *memory, struct netlink_ext_ack *extack)
{
	int err;

	if (!current->mm)
		return -EINVAL;
	memory->pages = memory->size >> PAGE_SHIFT;
	err = account_locked_vm(current->mm, memory->pages, true);
	if (err)
		return pcilend_refuse_fmt(extack, err, "it locks too much memory: raise the process's RLIMIT_MEMLOCK by %llu KiB",
					  memory->size >> 10);
	memory->mm = current->mm;
	mmgrab(memory->mm);
	return 0;
}

static void memory_unaccount(struct pcilend_memory *memory)
{
	account_locked_vm(memory->mm, memory->pages, false);
	mmdrop(memory->mm);
	memory->mm = NULL;
}

void pcilend_memory_of_pages(struct pcilend_memory *memory, struct pcilend_pages *pages,
			     struct dma_buf *buffer)
{
	*memory = (struct pcilend_memory) {
		.size = pages->size,
		.writable = !pages->read_only,
		.contiguous = true,
		.phys = pages->phys,
		.behind = pci_dev_get(pages->behind),
		.link = pages->link,
		.segment = pages->segment,
		.far = pages->far,
		.source = pcilend_source_get(pages->source),
		.buffer = buffer,
	};
}

void pcilend_memory_borrow(struct pcilend_memory *memory, const struct pcilend_memory *of,
			   struct pcilend_source *source)
{
	*memory = (struct pcilend_memory) {
		.size = of->size,
		.writable = of->writable,
		.contiguous = of->contiguous,
		.phys = of->phys,
		.table = of->table,
		.source = pcilend_source_get(source),
	};
}

/* Takes the reference on the dma-buf over if it returns 0. */
static int memory_get_pages(struct pcilend_memory *memory, struct pcilend_pages *pages,
			    struct dma_buf *buffer, bool anything, struct netlink_ext_ack *extack)
{
	if (!anything)
		return pcilend_refuse(extack, -EOPNOTSUPP, "it is no memory of this host: use memory, such as a memfd by /dev/udmabuf");
	if (!pages->behind && !pages->far.function)
		return pcilend_refuse(extack, -EOPNOTSUPP, "it is a part of a shared function of another host: lease one for this process alone");
	pcilend_memory_of_pages(memory, pages, buffer);
	return 0;
}

int pcilend_memory_get(struct pcilend_memory *memory, int fd, bool anything,
		       struct netlink_ext_ack *extack)
{
	struct dma_buf *buffer = dma_buf_get(fd);
	struct pcilend_pages *pages;
	int err = -EINVAL;

	if (IS_ERR(buffer)) {
		NL_SET_ERR_MSG(extack, "that file descriptor is no dma-buf: make one, such as of a memfd by /dev/udmabuf");
		return PTR_ERR(buffer);
	}
	pages = pcilend_pages_of(buffer);
	if (pages) {
		err = memory_get_pages(memory, pages, buffer, anything, extack);
		if (err)
			dma_buf_put(buffer);
		return err;
	}
	if (!buffer->size || !PAGE_ALIGNED(buffer->size) ||
	    buffer->size > PCILEND_SEGMENT_BYTES_MAX) {
		NL_SET_ERR_MSG(extack, "a segment is whole pages of 4 KiB, and at most 1 TiB: give another size");
		goto err_put;
	}
	if (is_swiotlb_force_bounce(&memory_device->dev)) {
		NL_SET_ERR_MSG(extack, "this host was booted with swiotlb=force, which copies all DMA: boot it without");
		err = -EOPNOTSUPP;
		goto err_put;
	}
	*memory = (struct pcilend_memory) {
		.size = buffer->size,
		.writable = buffer->file->f_mode & FMODE_WRITE,
		.buffer = buffer,
	};
	err = memory_account(memory, extack);
	if (err)
		goto err_put;
	err = memory_attach(memory, anything, extack);
	/* A BAR is nobody's to lock. */
	if (err || memory->behind)
		memory_unaccount(memory);
	if (!err)
		return 0;
err_put:
	dma_buf_put(buffer);
	return err;
}

/* The largest piece of at most @size that is there. */
static struct page *memory_make_piece(u64 size)
{
	const gfp_t gfp = GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_NOWARN | __GFP_NORETRY |
			  __GFP_COMP;
	int order = min_t(int, ilog2(size >> PAGE_SHIFT), MAX_PAGE_ORDER);
	struct page *page = NULL;

	for (; order && !page; order--)
		page = alloc_pages(gfp & ~__GFP_DIRECT_RECLAIM, order);
	return page ?: alloc_page(gfp);
}

static void memory_free_pieces(struct list_head *pieces)
{
	struct page *page, *next;

	list_for_each_entry_safe(page, next, pieces, lru) {
		list_del(&page->lru);
		__free_pages(page, compound_order(page));
	}
}

int pcilend_memory_make(struct pcilend_memory *memory, u64 size)
{
	struct page *page, *next;
	struct scatterlist *sg;
	unsigned int count = 0;
	LIST_HEAD(pieces);
	u64 done;

	for (done = 0; done < size; done += page_size(page)) {
		page = memory_make_piece(size - done);
		if (!page)
			goto err_pieces;
		list_add_tail(&page->lru, &pieces);
		count++;
		cond_resched();
	}
	*memory = (struct pcilend_memory) {
		.size = size,
		.writable = true,
		.made = true,
		.table = kzalloc(sizeof(*memory->table), GFP_KERNEL_ACCOUNT),
	};
	if (!memory->table)
		goto err_pieces;
	if (sg_alloc_table(memory->table, count, GFP_KERNEL_ACCOUNT))
		goto err_table;
	sg = memory->table->sgl;
	list_for_each_entry_safe(page, next, &pieces, lru) {
		list_del(&page->lru);
		sg_set_page(sg, page, page_size(page), 0);
		sg_dma_address(sg) = page_to_phys(page);
		sg_dma_len(sg) = page_size(page);
		sg = sg_next(sg);
	}
	memory->phys = sg_dma_address(memory->table->sgl);
	memory->contiguous = memory_is_contiguous(memory->table, size);
	return 0;

err_table:
	kfree(memory->table);
err_pieces:
	memory_free_pieces(&pieces);
	return -ENOMEM;
}

static void memory_free_made(struct pcilend_memory *memory)
{
	struct scatterlist *sg;
	int i;

	for_each_sgtable_sg(memory->table, sg, i)
		__free_pages(sg_page(sg), get_order(sg->length));
	sg_free_table(memory->table);
	kfree(memory->table);
}

void pcilend_memory_put(struct pcilend_memory *memory)
{
	if (memory->made)
		memory_free_made(memory);
	if (memory->attachment)
		memory_detach(memory);
	if (memory->buffer)
		dma_buf_put(memory->buffer);
	if (memory->mm)
		memory_unaccount(memory);
	pcilend_source_put(memory->source);
	pci_dev_put(memory->behind);
}

/* A walk over its pieces, from the first one on. */
struct memory_walk {
	const struct pcilend_memory *memory;
	struct scatterlist *sg;
	unsigned int i;
	u64 at;				/* of it, where the next one begins */
};

static struct memory_walk memory_walk(const struct pcilend_memory *memory)
{
	return (struct memory_walk){
		.memory = memory,
		.sg = memory->table ? memory->table->sgl : NULL,
	};
}

static bool memory_next(struct memory_walk *walk, phys_addr_t *start, u64 *size)
{
	const struct pcilend_memory *memory = walk->memory;

	if (walk->at >= memory->size)
		return false;
	if (memory->table) {
		memory_piece(memory->table, &walk->sg, &walk->i, start, size);
	} else {
		*start = memory->phys;
		*size = memory->size;
	}
	walk->at += *size;
	return true;
}

u64 pcilend_memory_small_pages(const struct pcilend_memory *memory)
{
	struct memory_walk walk = memory_walk(memory);
	u64 at = 0, small = 0, size;
	phys_addr_t start;

	for (; memory_next(&walk, &start, &size); at = walk.at) {
		u64 first, end;

		first = round_up(at, SZ_2M);
		end = round_down(at + size, SZ_2M);
		if ((at ^ start) & (SZ_2M - 1) || first >= end)
			end = first;
		small += (size - (end - first)) >> PAGE_SHIFT;
	}
	return small;
}

/* What lies side by side at once, for the IOMMU's larger pages. */
int pcilend_memory_map(const struct pcilend_memory *memory, struct iommu_domain *domain, u64 iova,
		       int prot)
{
	struct memory_walk walk = memory_walk(memory);
	phys_addr_t start;
	u64 at = 0, size;
	int err;

	prot |= memory->behind ? IOMMU_MMIO : IOMMU_CACHE;
	for (; memory_next(&walk, &start, &size); at = walk.at) {
		err = iommu_map(domain, iova + at, start, size, prot, GFP_KERNEL_ACCOUNT);
		if (err) {
			WARN_ON(at && iommu_unmap(domain, iova, at) != at);
			return err;
		}
		cond_resched();
	}
	return 0;
}

int pcilend_memory_init(void)
{
	struct platform_device *device = platform_device_register_simple("pcilend-memory",
									 PLATFORM_DEVID_NONE,
									 NULL, 0);
	int err;

	if (IS_ERR(device))
		return PTR_ERR(device);
	err = dma_coerce_mask_and_coherent(&device->dev, DMA_BIT_MASK(64));
	if (!err && device_iommu_mapped(&device->dev))
		err = -EBUSY;
	if (err) {
		platform_device_unregister(device);
		return err;
	}
	dma_set_max_seg_size(&device->dev, UINT_MAX);
	memory_device = device;
	return 0;
}

/* No memory is left. */
void pcilend_memory_exit(void)
{
	platform_device_unregister(memory_device);
}
