// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory of processes (memory.h). A dma-buf is mapped, and so pinned, once, for a device of our own
 * that no IOMMU translates for: its DMA addresses are those of the memory, whoever exports it, and
 * no function or peer reaches anything yet. (For an adapter the DMA API would map it in the DMA
 * area, too, scattered, where the peer would reach it whatever is said about it.)
 */

#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/iommu.h>
#include <linux/mm.h>
#include <linux/platform_device.h>
#include <linux/sched/mm.h>
#include <linux/sizes.h>
#include <linux/swiotlb.h>

#include "base/base.h"
#include "base/memory.h"
#include "pcilend/segment.h"

static struct platform_device *memory_device;

/* Is it memory, in whole pages, as much as it says? */
static bool memory_is_memory(struct sg_table *table, u64 size)
{
	struct scatterlist *sg;
	u64 bytes = 0;
	int i;

	for_each_sgtable_dma_sg(table, sg, i) {
		if (!PAGE_ALIGNED(sg_dma_address(sg)) || !PAGE_ALIGNED(sg_dma_len(sg)) ||
		    !pfn_valid(PHYS_PFN(sg_dma_address(sg))))
			return false;
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

static int memory_attach(struct pcilend_memory *memory, struct netlink_ext_ack *extack)
{
	struct dma_buf *buffer = memory->buffer;
	int err;

	memory->attachment = dma_buf_attach(buffer, &memory_device->dev);
	if (IS_ERR(memory->attachment)) {
		err = PTR_ERR(memory->attachment);
		return pcilend_refuse(extack, err,
				      "its exporter gives it to no other device: use memory, such as a memfd by /dev/udmabuf");
	}
	memory->table = dma_buf_map_attachment_unlocked(memory->attachment, DMA_BIDIRECTIONAL);
	if (IS_ERR(memory->table)) {
		err = PTR_ERR(memory->table);
		pcilend_refuse_fmt(extack, err, "its exporter, %s, can't map it (error %d)",
				   buffer->exp_name, err);
		goto err_detach;
	}
	if (!memory_is_memory(memory->table, memory->size)) {
		err = pcilend_refuse(extack, -EOPNOTSUPP,
				     "it is no memory of this host: use memory, such as a memfd by /dev/udmabuf");
		goto err_unmap;
	}
	memory->phys = sg_dma_address(memory->table->sgl);
	memory->contiguous = memory_is_contiguous(memory->table, memory->size);
	return 0;

err_unmap:
	dma_buf_unmap_attachment_unlocked(memory->attachment, memory->table, DMA_BIDIRECTIONAL);
err_detach:
	dma_buf_detach(buffer, memory->attachment);
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
}

int pcilend_memory_get(struct pcilend_memory *memory, int fd, struct netlink_ext_ack *extack)
{
	struct dma_buf *buffer = dma_buf_get(fd);
	int err = -EINVAL;

	if (IS_ERR(buffer)) {
		NL_SET_ERR_MSG(extack, "that file descriptor is no dma-buf: make one, such as of a memfd by /dev/udmabuf");
		return PTR_ERR(buffer);
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
	err = memory_attach(memory, extack);
	if (!err)
		return 0;
	memory_unaccount(memory);
err_put:
	dma_buf_put(buffer);
	return err;
}

void pcilend_memory_put(struct pcilend_memory *memory)
{
	dma_buf_unmap_attachment_unlocked(memory->attachment, memory->table, DMA_BIDIRECTIONAL);
	dma_buf_detach(memory->buffer, memory->attachment);
	dma_buf_put(memory->buffer);
	memory_unaccount(memory);
}

u64 pcilend_memory_small_pages(const struct pcilend_memory *memory)
{
	struct scatterlist *sg = memory->table->sgl;
	unsigned int i = 0;
	u64 at = 0, small = 0;

	while (i < memory->table->nents) {
		phys_addr_t start;
		u64 size, first, end;

		memory_piece(memory->table, &sg, &i, &start, &size);
		first = round_up(at, SZ_2M);
		end = round_down(at + size, SZ_2M);
		if ((at ^ start) & (SZ_2M - 1) || first >= end)
			end = first;
		small += (size - (end - first)) >> PAGE_SHIFT;
		at += size;
	}
	return small;
}

/* What lies side by side at once, for the IOMMU's larger pages. */
int pcilend_memory_map(const struct pcilend_memory *memory, struct iommu_domain *domain, u64 iova,
		       int prot)
{
	struct scatterlist *sg = memory->table->sgl;
	unsigned int i = 0;
	u64 at = 0;
	int err;

	while (i < memory->table->nents) {
		phys_addr_t start;
		u64 size;

		memory_piece(memory->table, &sg, &i, &start, &size);
		err = iommu_map(domain, iova + at, start, size, prot | IOMMU_CACHE,
				GFP_KERNEL_ACCOUNT);
		if (err) {
			WARN_ON(at && iommu_unmap(domain, iova, at) != at);
			return err;
		}
		at += size;
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
