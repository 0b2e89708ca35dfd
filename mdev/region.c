// SPDX-License-Identifier: GPL-2.0-only
/*
 * VFIO's regions: config space, and BARs through the NTB's memory window. So is the expansion ROM,
 * a copy in the lender's memory, which can be read and nothing else.
 *
 * When the lease is lost, mappings are taken away and pages of all-ones appear in their place. So a
 * guest reads what it reads from a device that was pulled out, and lives on. What it writes then
 * stays in that page, which nobody else sees; a doorbell that it writes must not be read as the
 * status of another page.
 */

#include <linux/io.h>
#include <linux/mm.h>
#include <linux/uaccess.h>

#include "pcilend_mdev.h"

static unsigned int region_index(loff_t offset)
{
	return offset >> MDEV_REGION_SHIFT;
}

/* Where the MSI-X table is. The snapshot's check made sure that it lies in its BAR. */
static void find_table(struct mdev_device_state *state)
{
	const struct pcilend_vconfig *space = &state->config.space;
	struct mdev_bars *bars = &state->bars;
	u32 entries, table;

	bars->table_end = 0;
	if (!space->msix)
		return;
	entries = (pcilend_vconfig_read(space, space->msix + PCI_MSIX_FLAGS, 2) &
		   PCI_MSIX_FLAGS_QSIZE) + 1;
	table = pcilend_vconfig_read(space, space->msix + PCI_MSIX_TABLE, 4);
	bars->table_bar = table & PCI_MSIX_TABLE_BIR;
	bars->table_start = table & PCI_MSIX_TABLE_OFFSET;
	bars->table_end = bars->table_start + entries * PCI_MSIX_ENTRY_SIZE;
}

void mdev_regions_init(struct mdev_device_state *state)
{
	init_rwsem(&state->bars.lock);
	xa_init(&state->bars.ones);
}

static struct page *alloc_ones(void)
{
	struct page *page = alloc_page(GFP_KERNEL_ACCOUNT);

	if (page)
		memset(page_address(page), 0xff, PAGE_SIZE);
	return page;
}

/* What is found at @at once the lease is lost. */
static struct page *ones_at(struct mdev_bars *bars, u64 at)
{
	unsigned long index = at >> PAGE_SHIFT;
	struct page *page;

	guard(rwsem_write)(&bars->lock);
	page = xa_load(&bars->ones, index);
	if (page)
		return page;
	if (bars->ones_count == MDEV_ONES_PAGES)
		return bars->spare;
	page = alloc_ones();
	if (!page)
		return bars->spare;
	if (xa_err(xa_store(&bars->ones, index, page, GFP_KERNEL_ACCOUNT))) {
		__free_page(page);
		return bars->spare;
	}
	bars->ones_count++;
	return page;
}

static void free_ones(struct mdev_bars *bars)
{
	unsigned long index;
	struct page *page;

	xa_for_each(&bars->ones, index, page)
		__free_page(page);
	xa_destroy(&bars->ones);
	bars->ones_count = 0;
	__free_page(bars->spare);
}

int mdev_regions_open(struct mdev_device_state *state)
{
	struct mdev_bars *bars = &state->bars;
	unsigned int i;
	int err;

	bars->spare = alloc_ones();
	if (!bars->spare)
		return -ENOMEM;

	memset(bars->bar, 0, sizeof(bars->bar));
	for (i = 0; i < MDEV_BARS; i++) {
		struct mdev_bar *bar = &bars->bar[i];

		err = pcilend_bar(state->remote, i, &bar->address, &bar->size);
		if (err == -ENOENT) {
			bar->size = 0;
			continue;
		}
		if (err)
			goto err_close;
		if (bar->size > MDEV_REGION_OFFSET(1)) {
			err = -E2BIG;
			goto err_close;
		}
		bar->mappable = i != VFIO_PCI_ROM_REGION_INDEX &&
				PAGE_ALIGNED(bar->address) && PAGE_ALIGNED(bar->size);
		bar->io = ioremap(bar->address, bar->size);
		if (!bar->io) {
			err = -ENOMEM;
			goto err_close;
		}
	}
	find_table(state);
	down_write(&bars->lock);
	bars->lost = false;
	up_write(&bars->lock);
	return 0;

err_close:
	mdev_regions_close(state);
	return err;
}

static void unmap_all(struct mdev_bars *bars)
{
	unsigned int i;

	for (i = 0; i < MDEV_BARS; i++) {
		if (bars->bar[i].io)
			iounmap(bars->bar[i].io);
		bars->bar[i].io = NULL;
	}
}

void mdev_regions_revoke(struct mdev_device_state *state)
{
	struct mdev_bars *bars = &state->bars;

	down_write(&bars->lock);
	bars->lost = true;
	unmap_all(bars);
	up_write(&bars->lock);
	/* Faults from now on find pages of all-ones. */
	unmap_mapping_range(state->vdev.inode->i_mapping, 0, MDEV_REGION_OFFSET(MDEV_BARS), true);
}

/* The last mapping and the last access are gone. */
void mdev_regions_close(struct mdev_device_state *state)
{
	unmap_all(&state->bars);
	free_ones(&state->bars);
}

/* VMMs put an emulated table over the real one: that its page may be mapped must be said. */
static int add_mappable_cap(struct vfio_info_cap *caps)
{
	struct vfio_info_cap_header header = {
		.id = VFIO_REGION_INFO_CAP_MSIX_MAPPABLE,
		.version = 1,
	};

	return vfio_info_add_capability(caps, &header, sizeof(header));
}

int mdev_region_info(struct vfio_device *vdev, struct vfio_region_info *info,
		     struct vfio_info_cap *caps)
{
	struct mdev_device_state *state = to_state(vdev);
	struct mdev_bars *bars = &state->bars;
	const struct mdev_bar *bar;

	if (info->index >= VFIO_PCI_NUM_REGIONS || info->index == VFIO_PCI_VGA_REGION_INDEX)
		return -EINVAL;

	info->offset = MDEV_REGION_OFFSET(info->index);
	info->size = 0;
	info->flags = 0;
	if (info->index == VFIO_PCI_CONFIG_REGION_INDEX) {
		info->size = mdev_config_size(state);
		info->flags = VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE;
		return 0;
	}
	if (info->index >= MDEV_BARS)
		return 0;

	bar = &bars->bar[info->index];
	if (!bar->size)
		return 0;
	info->size = bar->size;
	info->flags = VFIO_REGION_INFO_FLAG_READ;
	if (info->index != VFIO_PCI_ROM_REGION_INDEX)
		info->flags |= VFIO_REGION_INFO_FLAG_WRITE;
	if (!bar->mappable)
		return 0;
	info->flags |= VFIO_REGION_INFO_FLAG_MMAP;
	if (bars->table_end && info->index == bars->table_bar)
		return add_mappable_cap(caps);
	return 0;
}

/* Does an access touch the MSI-X table? Only the kernel writes that, for SET_IRQS. */
static bool in_table(const struct mdev_bars *bars, unsigned int index, u64 offset, u32 length)
{
	return index == bars->table_bar && offset < bars->table_end &&
	       offset + length > bars->table_start;
}

static u32 bar_read(struct mdev_device_state *state, unsigned int index, u64 offset, u32 length)
{
	struct mdev_bars *bars = &state->bars;
	void __iomem *io;

	guard(rwsem_read)(&bars->lock);
	io = bars->bar[index].io;
	if (!io || in_table(bars, index, offset, length))
		return ~0U;
	switch (length) {
	case 1:
		return ioread8(io + offset);
	case 2:
		return ioread16(io + offset);
	default:
		return ioread32(io + offset);
	}
}

static void bar_write(struct mdev_device_state *state, unsigned int index, u64 offset, u32 length,
		      u32 value)
{
	struct mdev_bars *bars = &state->bars;
	void __iomem *io;

	guard(rwsem_read)(&bars->lock);
	io = bars->bar[index].io;
	if (!io || in_table(bars, index, offset, length))
		return;
	switch (length) {
	case 1:
		iowrite8(value, io + offset);
		break;
	case 2:
		iowrite16(value, io + offset);
		break;
	default:
		iowrite32(value, io + offset);
		break;
	}
}

/* Bytes of the region at @offset, 0 at its end, -EINVAL if it can't be accessed. */
static ssize_t region_room(struct mdev_device_state *state, unsigned int index, u64 offset,
			   size_t count)
{
	u64 size;

	if (index == VFIO_PCI_CONFIG_REGION_INDEX)
		size = mdev_config_size(state);
	else if (index < MDEV_BARS)
		size = state->bars.bar[index].size;
	else
		return -EINVAL;
	if (!size || offset > size)
		return -EINVAL;
	return min_t(u64, min_t(u64, size - offset, count), MAX_RW_COUNT);
}

/* The largest aligned access at @offset. */
static u32 access_length(u64 offset, size_t count)
{
	if (!(offset & 3) && count >= 4)
		return 4;
	return !(offset & 1) && count >= 2 ? 2 : 1;
}

/*
 * User memory is touched with no lock held: it may be a mapping of a BAR of this very device.
 * Like pread() elsewhere, what was done before an error counts.
 */
ssize_t mdev_region_read(struct vfio_device *vdev, char __user *buffer, size_t count,
			 loff_t *position)
{
	struct mdev_device_state *state = to_state(vdev);
	unsigned int index = region_index(*position);
	u64 offset = *position & MDEV_REGION_MASK;
	ssize_t room = region_room(state, index, offset, count);
	ssize_t done = 0;

	if (room < 0)
		return room;
	while (done < room) {
		u32 length = access_length(offset + done, room - done);
		__le32 value;

		value = cpu_to_le32(index == VFIO_PCI_CONFIG_REGION_INDEX ?
				    mdev_config_read(state, offset + done, length) :
				    bar_read(state, index, offset + done, length));
		if (copy_to_user(buffer + done, &value, length))
			return done ?: -EFAULT;
		done += length;
		cond_resched();
	}
	*position += done;
	return done;
}

ssize_t mdev_region_write(struct vfio_device *vdev, const char __user *buffer, size_t count,
			  loff_t *position)
{
	struct mdev_device_state *state = to_state(vdev);
	unsigned int index = region_index(*position);
	u64 offset = *position & MDEV_REGION_MASK;
	ssize_t room = region_room(state, index, offset, count);
	ssize_t done = 0;

	if (room < 0)
		return room;
	if (index == VFIO_PCI_ROM_REGION_INDEX)
		return -EINVAL;
	while (done < room) {
		u32 length = access_length(offset + done, room - done);
		__le32 value = 0;

		if (copy_from_user(&value, buffer + done, length))
			return done ?: -EFAULT;
		/*
		 * A refused effect is in the log. The write itself can't fail: the VMM would show
		 * the guest a value that was not written.
		 */
		if (index == VFIO_PCI_CONFIG_REGION_INDEX) {
			mdev_config_write(state, offset + done, length, le32_to_cpu(value));
			mdev_config_place_bars(state);
		} else {
			bar_write(state, index, offset + done, length, le32_to_cpu(value));
		}
		done += length;
		cond_resched();
	}
	*position += done;
	return done;
}

static vm_fault_t region_fault(struct vm_fault *vmf)
{
	struct vm_area_struct *vma = vmf->vma;
	struct mdev_device_state *state = vma->vm_private_data;
	struct mdev_bars *bars = &state->bars;
	u64 at = ((u64)vma->vm_pgoff << PAGE_SHIFT) + (vmf->address - vma->vm_start);
	unsigned long address = vmf->address & PAGE_MASK;
	phys_addr_t bar = bars->bar[region_index(at)].address;

	scoped_guard(rwsem_read, &bars->lock) {
		if (!bars->lost)
			return vmf_insert_pfn(vma, address,
					      PHYS_PFN(bar + (at & MDEV_REGION_MASK)));
	}
	return vmf_insert_pfn(vma, address, page_to_pfn(ones_at(bars, at)));
}

static const struct vm_operations_struct region_vm_ops = {
	.fault = region_fault,
};

int mdev_region_mmap(struct vfio_device *vdev, struct vm_area_struct *vma)
{
	struct mdev_device_state *state = to_state(vdev);
	u64 start = (u64)vma->vm_pgoff << PAGE_SHIFT;
	u64 length = vma->vm_end - vma->vm_start;
	unsigned int index = region_index(start);
	const struct mdev_bar *bar;

	if (index >= MDEV_BARS || !(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	bar = &state->bars.bar[index];
	start &= MDEV_REGION_MASK;
	if (!bar->mappable || start >= bar->size || length > bar->size - start)
		return -EINVAL;

	vma->vm_private_data = state;
	vma->vm_page_prot = pgprot_decrypted(pgprot_noncached(vma->vm_page_prot));
	vm_flags_set(vma, VM_IO | VM_PFNMAP | VM_DONTEXPAND | VM_DONTDUMP);
	vma->vm_ops = &region_vm_ops;
	return 0;
}
