// SPDX-License-Identifier: GPL-2.0-only
/*
 * DMA operations of a virtual function: those of the NTB, through which all its DMA comes. What is
 * mapped for the NTB has an address in the DMA area of the aperture, and the lender has that area
 * at the same addresses in the function's own IOMMU domain. So an address of the NTB is one of the
 * function, the IOMMU makes scattered pages contiguous, and nobody is told of a mapping. For a
 * function that is lent direct, without such a domain, the area is elsewhere: at shadow_base().
 */

#include <linux/dma-map-ops.h>
#include <linux/dma-mapping.h>
#include <linux/scatterlist.h>

#include "base/compat.h"
#include "pcilend/pcilend.h"
#include "shadow.h"

#ifndef CONFIG_ARCH_HAS_DMA_OPS
#error "without CONFIG_ARCH_HAS_DMA_OPS drivers' DMA can't be sent through the NTB"
#endif

/* The parent of a virtual root bus is the NTB: see pcilend_virtual_create(). */
static struct device *shadow_ntb(struct device *dev)
{
	return pci_find_host_bridge(to_pci_dev(dev)->bus)->dev.parent;
}

/* What is added to an address of the NTB to make one of the function's. */
static u64 shadow_base(struct device *dev)
{
	return pcilend_dma_base(pcilend_virtual_remote(to_pci_dev(dev)));
}

/* After each unmap: a buffer that its driver may use for something else is out of reach. */
static void shadow_unmapped(struct device *dev)
{
	pcilend_dma_unmapped(pcilend_virtual_remote(to_pci_dev(dev)));
}

static void *shadow_alloc(struct device *dev, size_t size, dma_addr_t *handle, gfp_t gfp,
			  unsigned long attrs)
{
	void *address = dma_alloc_attrs(shadow_ntb(dev), size, handle, gfp, attrs);

	if (address)
		*handle += shadow_base(dev);
	return address;
}

static void shadow_free(struct device *dev, size_t size, void *address, dma_addr_t handle,
			unsigned long attrs)
{
	dma_free_attrs(shadow_ntb(dev), size, address, handle - shadow_base(dev), attrs);
	shadow_unmapped(dev);
}

static struct page *shadow_alloc_pages(struct device *dev, size_t size, dma_addr_t *handle,
				       enum dma_data_direction dir, gfp_t gfp)
{
	struct page *page = dma_alloc_pages(shadow_ntb(dev), size, handle, dir, gfp);

	if (page)
		*handle += shadow_base(dev);
	return page;
}

static void shadow_free_pages(struct device *dev, size_t size, struct page *page,
			      dma_addr_t handle, enum dma_data_direction dir)
{
	dma_free_pages(shadow_ntb(dev), size, page, handle - shadow_base(dev), dir);
	shadow_unmapped(dev);
}

static int shadow_mmap(struct device *dev, struct vm_area_struct *vma, void *address,
		       dma_addr_t handle, size_t size, unsigned long attrs)
{
	return dma_mmap_attrs(shadow_ntb(dev), vma, address, handle - shadow_base(dev), size,
			      attrs);
}

static int shadow_get_sgtable(struct device *dev, struct sg_table *table, void *address,
			      dma_addr_t handle, size_t size, unsigned long attrs)
{
	return dma_get_sgtable_attrs(shadow_ntb(dev), table, address, handle - shadow_base(dev),
				     size, attrs);
}

/*
 * A BAR of another borrowed function is reached on the lender, if it was set up (reach.h), and not
 * at all otherwise: a window of the NTB is no way from the NTB to itself. Return: false if it is
 * something of this host.
 */
static bool shadow_map_peer(struct device *dev, phys_addr_t phys, size_t size, dma_addr_t *handle)
{
	struct pcilend_remote *remote = pcilend_virtual_remote(to_pci_dev(dev));
	int err = pcilend_reach_lookup(remote, phys, size, handle);

	if (err == -ENOENT)
		return false;
	if (err || *handle + size - 1 > dma_get_mask(dev))
		*handle = DMA_MAPPING_ERROR;
	return true;
}

/* The DMA area of the NTB ends below 4 GiB; direct functions have no peers. */
static bool shadow_is_peer(struct device *dev, dma_addr_t handle)
{
	return handle >= PCILEND_REACH_START && !shadow_base(dev);
}

PCILEND_DEFINE_DMA_FORWARD(shadow)

/*
 * The NTB's IOMMU merges what is adjacent, up to the NTB's own segment limits. For a function with
 * narrower ones each entry is mapped by itself; aligned by its size, it crosses no boundary. So it
 * is for a direct function, whose addresses differ from the NTB's, which the list can't tell.
 */
static bool is_mapped_by_entry(struct device *dev)
{
	struct device *ntb = shadow_ntb(dev);

	return shadow_base(dev) || dma_get_max_seg_size(dev) < dma_get_max_seg_size(ntb) ||
	       dma_get_seg_boundary(dev) < dma_get_seg_boundary(ntb);
}

static void unmap_each(struct device *dev, struct scatterlist *list, int count,
		       enum dma_data_direction dir, unsigned long attrs)
{
	struct scatterlist *entry;
	int i;

	for_each_sg(list, entry, count, i)
		dma_unmap_page_attrs(shadow_ntb(dev), sg_dma_address(entry) - shadow_base(dev),
				     sg_dma_len(entry), dir, attrs);
}

static int map_each(struct device *dev, struct scatterlist *list, int count,
		    enum dma_data_direction dir, unsigned long attrs)
{
	struct device *ntb = shadow_ntb(dev);
	struct scatterlist *entry;
	int i;

	for_each_sg(list, entry, count, i) {
		dma_addr_t handle = dma_map_page_attrs(ntb, sg_page(entry), entry->offset,
						       entry->length, dir, attrs);

		if (dma_mapping_error(ntb, handle)) {
			unmap_each(dev, list, i, dir, attrs | DMA_ATTR_SKIP_CPU_SYNC);
			shadow_unmapped(dev);
			return -EIO;
		}
		sg_dma_address(entry) = shadow_base(dev) + handle;
		sg_dma_len(entry) = entry->length;
	}
	return count;
}

static int shadow_map_sg(struct device *dev, struct scatterlist *list, int count,
			 enum dma_data_direction dir, unsigned long attrs)
{
	if (is_mapped_by_entry(dev))
		return map_each(dev, list, count, dir, attrs);
	return dma_map_sg_attrs(shadow_ntb(dev), list, count, dir, attrs) ?: -EIO;
}

static void shadow_unmap_sg(struct device *dev, struct scatterlist *list, int count,
			    enum dma_data_direction dir, unsigned long attrs)
{
	if (is_mapped_by_entry(dev))
		unmap_each(dev, list, count, dir, attrs);
	else
		dma_unmap_sg_attrs(shadow_ntb(dev), list, count, dir, attrs);
	shadow_unmapped(dev);
}

static void shadow_sync_for_cpu(struct device *dev, dma_addr_t handle, size_t size,
				enum dma_data_direction dir)
{
	dma_sync_single_for_cpu(shadow_ntb(dev), handle - shadow_base(dev), size, dir);
}

static void shadow_sync_for_device(struct device *dev, dma_addr_t handle, size_t size,
				   enum dma_data_direction dir)
{
	dma_sync_single_for_device(shadow_ntb(dev), handle - shadow_base(dev), size, dir);
}

static void shadow_sync_sg_for_cpu(struct device *dev, struct scatterlist *list, int count,
				   enum dma_data_direction dir)
{
	struct scatterlist *entry;
	int i;

	if (!is_mapped_by_entry(dev)) {
		dma_sync_sg_for_cpu(shadow_ntb(dev), list, count, dir);
		return;
	}
	for_each_sg(list, entry, count, i)
		shadow_sync_for_cpu(dev, sg_dma_address(entry), entry->length, dir);
}

static void shadow_sync_sg_for_device(struct device *dev, struct scatterlist *list, int count,
				      enum dma_data_direction dir)
{
	struct scatterlist *entry;
	int i;

	if (!is_mapped_by_entry(dev)) {
		dma_sync_sg_for_device(shadow_ntb(dev), list, count, dir);
		return;
	}
	for_each_sg(list, entry, count, i)
		shadow_sync_for_device(dev, sg_dma_address(entry), entry->length, dir);
}

/* The last address of the DMA area. */
static u64 shadow_required_mask(struct device *dev)
{
	return shadow_base(dev) + shadow_ntb(dev)->bus_dma_limit;
}

/* Addresses may be anywhere in the DMA area: a function that reaches less of it can't be used. */
static int shadow_dma_supported(struct device *dev, u64 mask)
{
	return mask >= shadow_required_mask(dev);
}

/* What the NTB's IOMMU maps fast; the same for all that are behind one. */
static size_t opt_mapping_size = SIZE_MAX;

static size_t shadow_opt_mapping_size(void)
{
	return READ_ONCE(opt_mapping_size);
}

static size_t shadow_max_mapping_size(struct device *dev)
{
	return dma_max_mapping_size(shadow_ntb(dev));
}

static unsigned long shadow_merge_boundary(struct device *dev)
{
	return is_mapped_by_entry(dev) ? 0 : dma_get_merge_boundary(shadow_ntb(dev));
}

static const struct dma_map_ops shadow_dma_ops = {
	.alloc = shadow_alloc,
	.free = shadow_free,
	.alloc_pages_op = shadow_alloc_pages,
	.free_pages = shadow_free_pages,
	.mmap = shadow_mmap,
	.get_sgtable = shadow_get_sgtable,
	PCILEND_DMA_FORWARD_OPS(shadow)
	.map_sg = shadow_map_sg,
	.unmap_sg = shadow_unmap_sg,
	.sync_single_for_cpu = shadow_sync_for_cpu,
	.sync_single_for_device = shadow_sync_for_device,
	.sync_sg_for_cpu = shadow_sync_sg_for_cpu,
	.sync_sg_for_device = shadow_sync_sg_for_device,
	.dma_supported = shadow_dma_supported,
	.get_required_mask = shadow_required_mask,
	.opt_mapping_size = shadow_opt_mapping_size,
	.max_mapping_size = shadow_max_mapping_size,
	.get_merge_boundary = shadow_merge_boundary,
};

void shadow_dma_setup(struct pci_dev *pdev)
{
	size_t size = dma_opt_mapping_size(shadow_ntb(&pdev->dev));

	if (size < READ_ONCE(opt_mapping_size))
		WRITE_ONCE(opt_mapping_size, size);
	set_dma_ops(&pdev->dev, &shadow_dma_ops);
}
