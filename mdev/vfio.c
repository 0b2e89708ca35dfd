// SPDX-License-Identifier: GPL-2.0-only
/*
 * The driver of borrowed functions for VFIO, on vfio_pci_core: regions, interrupts, reset and power
 * are the core's. Ours is what a function in another host needs:
 *
 * - Config space and interrupts are set up in the hardware by requests to the lender; the user's
 *   writes return when these are done. Registers whose truth is in the hardware are read there.
 * - When the lease is lost the user's mappings are taken away, and pages of all-ones appear in
 *   their place. So a guest reads what it reads from a device that was pulled out, and lives on.
 *   VFIO asks the user to let go, and waits for him; until then the lender puts nothing else at the
 *   function's place in the memory window.
 * - The same for as long as the link is down, and while what its lender's reset has wiped out is
 *   written again: nothing of the user goes to a device that is not there, or not ready.
 * - There is no error handler: VFIO's own has a VMM stop its guest.
 *
 * The function is reached by its PCI address, or by the UUID of a mediated device (handle.c).
 */

#include <linux/module.h>
#include <linux/vfio_pci_core.h>

#include "base/compat.h"
#include "pcilend_mdev.h"
#include "mdev_trace.h"

#define VFIO_ASK_SECONDS 10

struct mdev_vfio {
	struct vfio_pci_core_device core;
	struct list_head node;		/* vfio_bound_lock */
	u32 id;				/* of the function */
	struct rw_semaphore lock;	/* to write the next three */
	bool lost;			/* for good */
	bool away;			/* the link is down */
	bool restoring;			/* after a reset by its lender */
	struct pcilend_ones ones;	/* of the opened device; comes and goes with the lock */
	struct mutex carrier;		/* held while the link is looked at */
	struct mutex bound;		/* keeps it from going, and for the next one */
	bool gone;			/* the driver lets go of the function */
};

/* From probe until the user of a function that goes has let go. */
static LIST_HEAD(vfio_bound_list);
static DEFINE_MUTEX(vfio_bound_lock);

/* What vfio_pci_core_mmap() sets, the same for all. */
static const struct vm_operations_struct *vfio_core_vm_ops;

static struct mdev_vfio *to_vfio(struct vfio_device *vdev)
{
	return container_of(vdev, struct mdev_vfio, core.vdev);
}

static bool vfio_is_lost(struct mdev_vfio *vfio)
{
	return READ_ONCE(vfio->lost);
}

/* The user reaches pages of all-ones, not the function. */
static bool vfio_is_dark(struct mdev_vfio *vfio)
{
	return READ_ONCE(vfio->lost) || READ_ONCE(vfio->away) || READ_ONCE(vfio->restoring);
}

static int vfio_init(struct vfio_device *vdev)
{
	struct mdev_vfio *vfio = to_vfio(vdev);

	init_rwsem(&vfio->lock);
	mutex_init(&vfio->bound);
	mutex_init(&vfio->carrier);
	return vfio_pci_core_init_dev(vdev);
}

static void vfio_drop_ones(struct mdev_vfio *vfio)
{
	guard(rwsem_write)(&vfio->lock);
	pcilend_ones_destroy(&vfio->ones);
}

static int vfio_open(struct vfio_device *vdev)
{
	struct mdev_vfio *vfio = to_vfio(vdev);
	int err;

	if (vfio_is_lost(vfio))
		return -ENODEV;
	scoped_guard(rwsem_write, &vfio->lock)
		err = pcilend_ones_init(&vfio->ones);
	if (err)
		return err;
	err = vfio_pci_core_enable(&vfio->core);
	trace_pcilend_mdev_state(vfio->id, "open", err);
	if (err) {
		vfio_drop_ones(vfio);
		return err;
	}
	vfio_pci_core_finish_enable(&vfio->core);
	return 0;
}

static void vfio_close(struct vfio_device *vdev)
{
	struct mdev_vfio *vfio = to_vfio(vdev);

	vfio_pci_core_close_device(vdev);
	/* On return its lender has switched bus mastering off, or can't be told. */
	pcilend_virtual_settle(vfio->core.pdev);
	vfio_drop_ones(vfio);
	trace_pcilend_mdev_state(vfio->id, "close", 0);
}

static u64 vfio_region_size(struct mdev_vfio *vfio, unsigned int index)
{
	struct pci_dev *pdev = vfio->core.pdev;

	if (index == VFIO_PCI_CONFIG_REGION_INDEX)
		return pdev->cfg_size;
	return index <= VFIO_PCI_ROM_REGION_INDEX ? pci_resource_len(pdev, index) : 0;
}

static bool vfio_is_memory(loff_t position)
{
	return VFIO_PCI_OFFSET_TO_INDEX(position) <= VFIO_PCI_ROM_REGION_INDEX;
}

/* Bytes of [position, +count) in its region; 0 at the end, -EINVAL outside. */
static ssize_t vfio_region_room(struct mdev_vfio *vfio, loff_t position, size_t count)
{
	u64 size = vfio_region_size(vfio, VFIO_PCI_OFFSET_TO_INDEX(position));
	u64 offset = position & VFIO_PCI_OFFSET_MASK;

	if (!size || offset > size)
		return -EINVAL;
	return min_t(u64, min_t(u64, size - offset, count), MAX_RW_COUNT);
}

static ssize_t vfio_read_ones(struct mdev_vfio *vfio, char __user *buffer, size_t count,
			      loff_t *position)
{
	ssize_t room = vfio_region_room(vfio, *position, count), done;
	u8 ones[64];

	memset(ones, 0xff, sizeof(ones));
	for (done = 0; done < room; done += min_t(size_t, room - done, sizeof(ones))) {
		if (copy_to_user(buffer + done, ones, min_t(size_t, room - done, sizeof(ones))))
			return done ?: -EFAULT;
		cond_resched();
	}
	if (room > 0)
		*position += room;
	return room;
}

/* @buffer has what the copy in this host says: bytes that live in the hardware are read there. */
static int vfio_read_hardware(struct mdev_vfio *vfio, char __user *buffer, size_t count, u32 offset)
{
	size_t i;
	u8 value;
	int ret;

	for (i = 0; i < count; i++) {
		ret = pcilend_virtual_hardware(vfio->core.pdev, offset + i, &value);
		if (ret > 0 && put_user(value, (u8 __user *)buffer + i))
			return -EFAULT;
	}
	return 0;
}

static ssize_t vfio_read(struct vfio_device *vdev, char __user *buffer, size_t count,
			 loff_t *position)
{
	struct mdev_vfio *vfio = to_vfio(vdev);
	loff_t start = *position;
	ssize_t done;

	/* Its configuration space is a copy that is in this host. */
	if (vfio_is_lost(vfio) || (vfio_is_dark(vfio) && vfio_is_memory(*position)))
		return vfio_read_ones(vfio, buffer, count, position);
	done = vfio_pci_core_read(vdev, buffer, count, position);
	if (done > 0 && VFIO_PCI_OFFSET_TO_INDEX(start) == VFIO_PCI_CONFIG_REGION_INDEX &&
	    vfio_read_hardware(vfio, buffer, done, start & VFIO_PCI_OFFSET_MASK))
		return -EFAULT;
	return done;
}

/* A refused effect is in the log: a VMM would show the guest a value that was not written. */
static ssize_t vfio_write(struct vfio_device *vdev, const char __user *buffer, size_t count,
			  loff_t *position)
{
	struct mdev_vfio *vfio = to_vfio(vdev);
	unsigned int index = VFIO_PCI_OFFSET_TO_INDEX(*position);
	ssize_t done;

	if (vfio_is_lost(vfio) || (vfio_is_dark(vfio) && vfio_is_memory(*position))) {
		done = vfio_region_room(vfio, *position, count);
		if (done > 0)
			*position += done;
		return done;
	}
	done = vfio_pci_core_write(vdev, buffer, count, position);
	if (index == VFIO_PCI_CONFIG_REGION_INDEX)
		pcilend_virtual_settle(vfio->core.pdev);
	return done;
}

/* A user who lets go of what is lost may still switch interrupts off, and be asked to. */
static long vfio_lost_ioctl(struct vfio_device *vdev, unsigned int cmd, unsigned long arg)
{
	struct vfio_irq_set set;

	switch (cmd) {
	case VFIO_DEVICE_RESET:
		return -ENODEV;
	case VFIO_DEVICE_SET_IRQS:
		if (copy_from_user(&set, (void __user *)arg,
				   offsetofend(struct vfio_irq_set, count)))
			return -EFAULT;
		if (set.count && set.index != VFIO_PCI_REQ_IRQ_INDEX)
			return -ENODEV;
		break;
	}
	return vfio_pci_core_ioctl(vdev, cmd, arg);
}

static long vfio_ioctl(struct vfio_device *vdev, unsigned int cmd, unsigned long arg)
{
	struct mdev_vfio *vfio = to_vfio(vdev);
	long ret;

	/* Writes to a BAR by themselves, lost or not. */
	if (cmd == VFIO_DEVICE_IOEVENTFD)
		return -ENOTTY;
	if (vfio_is_lost(vfio))
		return vfio_lost_ioctl(vdev, cmd, arg);
	ret = vfio_pci_core_ioctl(vdev, cmd, arg);
	/* The device must have its messages' addresses before the user starts I/O. */
	if (!ret && (cmd == VFIO_DEVICE_RESET || cmd == VFIO_DEVICE_SET_IRQS))
		ret = pcilend_virtual_settle(vfio->core.pdev);
	return ret;
}

static vm_fault_t vfio_insert_ones(struct mdev_vfio *vfio, struct vm_fault *vmf)
{
	struct vm_area_struct *vma = vmf->vma;
	unsigned long address = vmf->address & PAGE_MASK;
	unsigned long index = vma->vm_pgoff + ((address - vma->vm_start) >> PAGE_SHIFT);

	return vmf_insert_pfn(vma, address, page_to_pfn(pcilend_ones_at(&vfio->ones, index)));
}

static struct mdev_vfio *vfio_of_vma(struct vm_area_struct *vma)
{
	return container_of(vma->vm_private_data, struct mdev_vfio, core);
}

static vm_fault_t vfio_fault(struct vm_fault *vmf)
{
	struct mdev_vfio *vfio = vfio_of_vma(vmf->vma);

	guard(rwsem_read)(&vfio->lock);
	return vfio_is_dark(vfio) ? vfio_insert_ones(vfio, vmf) : vfio_core_vm_ops->fault(vmf);
}

static vm_fault_t vfio_huge_fault(struct vm_fault *vmf, unsigned int order)
{
	struct mdev_vfio *vfio = vfio_of_vma(vmf->vma);

	guard(rwsem_read)(&vfio->lock);
	if (vfio_is_dark(vfio) || !vfio_core_vm_ops->huge_fault)
		return VM_FAULT_FALLBACK;
	return vfio_core_vm_ops->huge_fault(vmf, order);
}

static const struct vm_operations_struct vfio_vm_ops = {
	.fault = vfio_fault,
	.huge_fault = vfio_huge_fault,
};

static int vfio_mmap(struct vfio_device *vdev, struct vm_area_struct *vma)
{
	int err = vfio_pci_core_mmap(vdev, vma);

	if (err)
		return err;
	WRITE_ONCE(vfio_core_vm_ops, vma->vm_ops);
	vma->vm_ops = &vfio_vm_ops;
	return 0;
}

static int vfio_match(struct vfio_device *vdev, char *name)
{
	if (mdev_handle_names(to_vfio(vdev)->core.pdev, name))
		return 1;
	return vfio_pci_core_match(vdev, name);
}

static const struct vfio_device_ops vfio_ops = {
	.name = MDEV_VFIO_DRIVER,
	.init = vfio_init,
	.release = vfio_pci_core_release_dev,
	.open_device = vfio_open,
	.close_device = vfio_close,
	.ioctl = vfio_ioctl,
	.device_feature = vfio_pci_core_ioctl_feature,
	.read = vfio_read,
	.write = vfio_write,
	.mmap = vfio_mmap,
	.request = vfio_pci_core_request,
	.match = vfio_match,
	PCILEND_VFIO_PCI_CORE_OPS
	.bind_iommufd = vfio_iommufd_physical_bind,
	.unbind_iommufd = vfio_iommufd_physical_unbind,
	.attach_ioas = vfio_iommufd_physical_attach_ioas,
	.detach_ioas = vfio_iommufd_physical_detach_ioas,
};

/* That of the function, with a reference; NULL: our driver does not have it. */
static struct mdev_vfio *vfio_get(u32 id)
{
	struct mdev_vfio *vfio;

	guard(mutex)(&vfio_bound_lock);
	list_for_each_entry(vfio, &vfio_bound_list, node) {
		if (vfio->id != id)
			continue;
		get_device(&vfio->core.vdev.device);
		return vfio;
	}
	return NULL;
}

/* What the user maps from here on is what the flag, one of vfio->lock, now says. */
static void vfio_set_dark(struct mdev_vfio *vfio, bool *flag, bool on)
{
	scoped_guard(rwsem_write, &vfio->lock) {
		if (on && !vfio_is_dark(vfio))
			pcilend_ones_wipe(&vfio->ones);
		WRITE_ONCE(*flag, on);
	}
	unmap_mapping_range(vfio->core.vdev.inode->i_mapping, 0,
			    VFIO_PCI_INDEX_TO_OFFSET(VFIO_PCI_ROM_REGION_INDEX), true);
}

void mdev_vfio_lost(struct pcilend_remote *remote)
{
	struct mdev_vfio *vfio = vfio_get(remote->id);

	if (!vfio)
		return;
	/* It is of the next lease. */
	if (pcilend_is_held(remote)) {
		vfio_put_device(&vfio->core.vdev);
		return;
	}
	/* As of what is pulled out: the PCI core does not wait for answers of it. */
	WRITE_ONCE(vfio->core.pdev->error_state, pci_channel_io_perm_failure);
	vfio_set_dark(vfio, &vfio->lost, true);
	trace_pcilend_mdev_state(remote->id, "lost", 0);
	vfio_put_device(&vfio->core.vdev);
}

void mdev_vfio_carrier(struct pcilend_remote *remote)
{
	struct mdev_vfio *vfio = vfio_get(remote->id);
	bool away;

	if (!vfio)
		return;
	/* Whoever comes last has looked last. */
	scoped_guard(mutex, &vfio->carrier) {
		away = !pcilend_is_reached(remote);
		if (away != vfio->away) {
			vfio_set_dark(vfio, &vfio->away, away);
			trace_pcilend_mdev_state(remote->id, away ? "away" : "back", 0);
		}
	}
	vfio_put_device(&vfio->core.vdev);
}

int mdev_vfio_was_reset(u32 id)
{
	struct mdev_vfio *vfio = vfio_get(id);
	int err = 0;

	if (!vfio)
		return 0;
	scoped_guard(mutex, &vfio->bound) {
		if (vfio->gone)
			break;
		vfio_set_dark(vfio, &vfio->restoring, true);
		/* On close the core frees vectors without igate. */
		scoped_guard(mutex, &vfio->core.igate)
			scoped_guard(rwsem_write, &vfio->core.memory_lock)
				pci_restore_msi_state(vfio->core.pdev);
		err = pcilend_virtual_restart(vfio->core.pdev);
		vfio_set_dark(vfio, &vfio->restoring, false);
	}
	trace_pcilend_mdev_state(id, "was reset", err);
	vfio_put_device(&vfio->core.vdev);
	return err;
}

bool mdev_vfio_is_bound(u32 id)
{
	struct mdev_vfio *vfio = vfio_get(id);

	if (vfio)
		vfio_put_device(&vfio->core.vdev);
	return vfio;
}

static int vfio_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct pcilend_remote *remote = pcilend_virtual_remote(pdev);
	struct mdev_vfio *vfio;
	int err;

	if (!remote)
		return -ENODEV;
	vfio = vfio_alloc_device(mdev_vfio, core.vdev, &pdev->dev, &vfio_ops);
	if (IS_ERR(vfio))
		return PTR_ERR(vfio);
	vfio->id = remote->id;
	pci_set_drvdata(pdev, vfio);
	err = vfio_pci_core_register_device(&vfio->core);
	if (err) {
		vfio_put_device(&vfio->core.vdev);
		return err;
	}
	scoped_guard(mutex, &vfio_bound_lock)
		list_add(&vfio->node, &vfio_bound_list);
	/* The link may have gone down before anybody could say so. */
	mdev_vfio_carrier(remote);
	mdev_handle_bound(pdev);
	return 0;
}

/*
 * vfio_await_user - the user has let go of the device, and has taken it out of its container
 *
 * When the last device of a group is unregistered VFIO itself takes the group out of its
 * container, and frees what type1 has for that (vfio_device_remove_group()). The user may be in an
 * ioctl of the container then, which holds nothing (vfio_fops_unl_ioctl()): a VMM that has just
 * closed the device unmaps memory. So it goes first; until then it is asked as often as by
 * vfio_unregister_group_dev().
 */
static void vfio_await_user(struct mdev_vfio *vfio)
{
	struct pcilend_remote *remote = pcilend_virtual_remote(vfio->core.pdev);
	unsigned int asked = 0;

	if (pcilend_await_unused(remote, 0))
		return;
	do {
		vfio_pci_core_request(&vfio->core.vdev, asked++);
	} while (!pcilend_await_unused(remote, VFIO_ASK_SECONDS * HZ));
}

/* VFIO asks the user to let go, and waits for him. */
static void vfio_remove(struct pci_dev *pdev)
{
	struct mdev_vfio *vfio = pci_get_drvdata(pdev);

	mdev_handle_unbound(pdev);
	vfio_await_user(vfio);
	vfio_pci_core_unregister_device(&vfio->core);
	scoped_guard(mutex, &vfio_bound_lock)
		list_del(&vfio->node);
	scoped_guard(mutex, &vfio->bound)
		vfio->gone = true;
	vfio_put_device(&vfio->core.vdev);
}

/* By driver_override alone. */
static const struct pci_device_id vfio_ids[] = {
	{ PCI_DRIVER_OVERRIDE_DEVICE_VFIO(PCI_ANY_ID, PCI_ANY_ID) },
	{ }
};

struct pci_driver mdev_vfio_driver = {
	.name = MDEV_VFIO_DRIVER,
	.id_table = vfio_ids,
	.probe = vfio_probe,
	.remove = vfio_remove,
	.driver_managed_dma = true,
	.driver.probe_type = PROBE_FORCE_SYNCHRONOUS,
};
