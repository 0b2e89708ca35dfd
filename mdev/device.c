// SPDX-License-Identifier: GPL-2.0-only
/*
 * The mediated device as VFIO sees it: a vfio-pci device whose function is in another host.
 *
 * Opening it borrows the function, unless that was done already in the name of this frontend.
 * Closing it returns the function, whoever borrowed it.
 */

#include <linux/slab.h>
#include <linux/uaccess.h>

#include "compat.h"
#include "pcilend_mdev.h"
#include "mdev_trace.h"

/* Someone who never closes is told this often that the device must go. */
static void device_request(struct vfio_device *vdev, unsigned int count)
{
	struct mdev_device_state *state = to_state(vdev);

	if (!(count % 10))
		dev_notice_ratelimited(vdev->dev, "asking the user to let go of the device\n");
	mdev_irqs_request(state);
}

void mdev_device_revoke(struct mdev_device_state *state)
{
	lockdep_assert_held(&state->function->lock);
	mdev_regions_revoke(state);
	mdev_memory_revoke(state);
	mdev_config_revoke(state);
	mdev_irqs_revoke(state);
	mdev_irqs_request(state);
	state->function->device = NULL;
	trace_pcilend_mdev_state(state->remote->id, "revoked", 0);
}

/* With the function's lock held, and a virtual function bound to our driver. */
static int open_parts(struct mdev_device_state *state)
{
	int err;

	lockdep_assert_held(&state->function->lock);
	state->lease = pcilend_remote_lease(state->remote, state->owner);
	if (!state->lease)
		return -ESTALE;
	err = mdev_config_open(state);
	if (err)
		return err;
	err = mdev_regions_open(state);
	if (err)
		return err;
	err = mdev_memory_open(state);
	if (err)
		goto err_regions;
	mdev_irqs_open(state, state->function->pdev);
	state->function->device = state;
	return 0;

err_regions:
	mdev_regions_close(state);
	return err;
}

/* A lease for us, if there is none. @borrowed: there was none. */
static int borrow(struct mdev_device_state *state, bool *borrowed)
{
	struct mdev_function *function = state->function;
	char owner[PCILEND_OWNER_BYTES];
	const char *why = NULL;
	struct pci_dev *adapter;
	int err;

	*borrowed = false;
	scoped_guard(mutex, &function->lock) {
		if (function->pdev)
			return 0;
	}
	snprintf(owner, sizeof(owner), "mdev:%pUl", &state->mdev->uuid);
	adapter = mdev_adapter_of(state->mdev);
	err = pcilend_borrow(state->remote, &mdev_frontend, owner,
			     adapter ? pci_name(adapter) : NULL, &why);
	if (err == -EALREADY)
		return 0;
	if (err) {
		dev_err(&state->remote->dev, "can't be borrowed: %s (error %d)\n",
			why ?: "no reason given", err);
		return err;
	}
	*borrowed = true;
	return 0;
}

static int device_open(struct vfio_device *vdev)
{
	struct mdev_device_state *state = to_state(vdev);
	bool borrowed;
	int err;

	err = mdev_function_get(state);
	if (err)
		return err;
	err = borrow(state, &borrowed);
	if (err)
		goto err_function;
	scoped_guard(mutex, &state->function->lock)
		err = state->function->pdev ? open_parts(state) : -ENODEV;
	trace_pcilend_mdev_state(state->remote->id, "open", err);
	if (err)
		goto err_return;
	mdev_config_place_bars(state);
	return 0;

err_return:
	if (borrowed)
		pcilend_return(state->remote, NULL);
err_function:
	mdev_function_put(state);
	return err;
}

static void device_close(struct vfio_device *vdev)
{
	struct mdev_device_state *state = to_state(vdev);
	int err = 0;

	scoped_guard(mutex, &state->function->lock) {
		state->function->device = NULL;
		mdev_memory_revoke(state);
		mdev_irqs_close(state);
		mdev_regions_close(state);
	}
	/* After a loss the function may already be somebody else's again. */
	if (pcilend_remote_lease(state->remote, NULL) == state->lease)
		err = pcilend_return(state->remote, state->owner);
	if (err)
		dev_notice(&state->remote->dev, "returned as soon as the lender answers (error %d)\n",
			   err);
	mdev_guest_close(state);
	trace_pcilend_mdev_state(state->remote->id, "close", err);
	mdev_function_put(state);
}

static long get_info(void __user *arg)
{
	size_t size = offsetofend(struct vfio_device_info, num_irqs);
	struct vfio_device_info info;

	if (copy_from_user(&info, arg, size))
		return -EFAULT;
	if (info.argsz < size)
		return -EINVAL;
	info.flags = VFIO_DEVICE_FLAGS_PCI | VFIO_DEVICE_FLAGS_RESET;
	info.num_regions = VFIO_PCI_NUM_REGIONS;
	info.num_irqs = VFIO_PCI_NUM_IRQS;
	return copy_to_user(arg, &info, size) ? -EFAULT : 0;
}

static long get_irq_info(struct mdev_device_state *state, void __user *arg)
{
	size_t size = offsetofend(struct vfio_irq_info, count);
	struct vfio_irq_info info;
	int err;

	if (copy_from_user(&info, arg, size))
		return -EFAULT;
	if (info.argsz < size)
		return -EINVAL;
	err = mdev_irq_info(state, &info);
	if (err)
		return err;
	return copy_to_user(arg, &info, size) ? -EFAULT : 0;
}

static long set_irqs(struct mdev_device_state *state, void __user *arg)
{
	size_t size = offsetofend(struct vfio_irq_set, count);
	struct vfio_irq_set set;
	size_t data_size = 0;
	void *data = NULL;
	int err;

	if (copy_from_user(&set, arg, size))
		return -EFAULT;
	if (set.index >= VFIO_PCI_NUM_IRQS)
		return -EINVAL;
	err = vfio_set_irqs_validate_and_prepare(&set, state->irqs.count[set.index],
						 VFIO_PCI_NUM_IRQS, &data_size);
	if (err)
		return err;
	if (data_size) {
		data = memdup_user(arg + size, data_size);
		if (IS_ERR(data))
			return PTR_ERR(data);
	}
	err = mdev_irq_set(state, &set, data);
	kfree(data);
	return err;
}

static long device_ioctl(struct vfio_device *vdev, unsigned int cmd, unsigned long arg)
{
	struct mdev_device_state *state = to_state(vdev);
	void __user *user = (void __user *)arg;

	switch (cmd) {
	case VFIO_DEVICE_GET_INFO:
		return get_info(user);
	case VFIO_DEVICE_GET_REGION_INFO:
		return pcilend_vfio_region_info(vdev, user, mdev_region_info);
	case VFIO_DEVICE_GET_IRQ_INFO:
		return get_irq_info(state, user);
	case VFIO_DEVICE_SET_IRQS:
		return set_irqs(state, user);
	case VFIO_DEVICE_RESET:
		return mdev_reset(state);
	default:
		return -ENOTTY;
	}
}

static int device_init(struct vfio_device *vdev)
{
	struct mdev_device_state *state = to_state(vdev);

	state->mdev = to_mdev_device(vdev->dev);
	mdev_config_init(state);
	mdev_regions_init(state);
	mdev_irqs_init(state);
	mdev_memory_init(state);
	return 0;
}

static void device_release(struct vfio_device *vdev)
{
	xa_destroy(&to_state(vdev)->irqs.vectors);
}

static const struct vfio_device_ops device_ops = {
	.name = "pcilend_mdev",
	.init = device_init,
	.release = device_release,
	.open_device = device_open,
	.close_device = device_close,
	.read = mdev_region_read,
	.write = mdev_region_write,
	.mmap = mdev_region_mmap,
	.ioctl = device_ioctl,
	PCILEND_VFIO_REGION_INFO(mdev_region_info)
	.request = device_request,
	.dma_unmap = mdev_memory_unmap,
	.bind_iommufd = vfio_iommufd_emulated_bind,
	.unbind_iommufd = vfio_iommufd_emulated_unbind,
	.attach_ioas = vfio_iommufd_emulated_attach_ioas,
	.detach_ioas = vfio_iommufd_emulated_detach_ioas,
};

int mdev_device_probe(struct mdev_device *mdev)
{
	struct mdev_device_state *state;
	int err;

	state = vfio_alloc_device(mdev_device_state, vdev, &mdev->dev, &device_ops);
	if (IS_ERR(state))
		return PTR_ERR(state);
	dev_set_drvdata(&mdev->dev, state);
	err = vfio_register_emulated_iommu_dev(&state->vdev);
	if (err)
		vfio_put_device(&state->vdev);
	return err;
}

void mdev_device_remove(struct mdev_device *mdev)
{
	struct mdev_device_state *state = dev_get_drvdata(&mdev->dev);

	vfio_unregister_group_dev(&state->vdev);
	vfio_put_device(&state->vdev);
}
