// SPDX-License-Identifier: GPL-2.0-only
/*
 * Frontend "lease": a process of this host has a function of another one. What it maps goes the way
 * of VFIO's (iommu.c): its slice is in granules, which are mirrored by the lender when the lease
 * begins, so that no map or unmap is a message, but of what is in other hosts (remote_target.h).
 * Its interrupts are those of the virtual function, and its BARs are the window.
 *
 * All that the process reaches hangs on the virtual function, whose driver this is: it ends when
 * the driver is unbound, which whoever returns the function waits for, and before its lender hears
 * that nobody here uses the BARs. That is so whether the process closes its lease, it is lost, or
 * an administrator returns the function.
 */

#include <linux/device.h>
#include <linux/file.h>
#include <linux/iommu.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "borrower/borrower.h"
#include "borrower/remote_target.h"
#include "lease/lease.h"
#include "pcilend/granules.h"
#include "pcilend/slice.h"

struct remote_lease {
	struct kref ref;		/* of its process's file, and of the bound driver */
	struct pcilend_remote *remote;	/* with a reference */
	struct pcilend_use *use;	/* with a reference */
	u32 lease;			/* 0: it was over at once */
	u32 borrow;			/* remote.borrows of it */

	struct mutex lock;		/* in device_lock() and pcilend_use.lock; the rest */
	struct pci_dev *pdev;		/* NULL: not bound, nothing is reached */
	struct iommu_group *group;	/* with a reference, as the next while @pdev is there */
	struct iommu_domain *domain;
	struct list_head targets;	/* what is mapped and no memory of this host */
	struct pcilend_vectors vectors;
};

static void remote_lease_free(struct kref *ref)
{
	struct remote_lease *rl = container_of(ref, struct remote_lease, ref);

	pcilend_remote_put(rl->remote);
	pcilend_use_put(rl->use);
	kfree(rl);
}

static int remote_lease_check(struct remote_lease *rl, struct netlink_ext_ack *extack)
{
	lockdep_assert_held(&rl->lock);
	if (rl->pdev && remote_held_lease(to_remote(rl->remote)) == rl->lease)
		return 0;
	return pcilend_refuse(extack, -ESTALE, "the lease is over: close it, and borrow the function again");
}

static int remote_lease_bar(void *holder, u32 bar, u64 offset, u64 size,
			    struct pcilend_use_place *place, struct netlink_ext_ack *extack)
{
	struct remote_lease *rl = holder;
	struct remote_bar found;
	int err;

	guard(mutex)(&rl->lock);
	err = remote_lease_check(rl, extack) ?:
	      pcilend_use_place_bar(rl->pdev, bar, offset, size, &place->phys, extack);
	if (err || remote_find_bar(place->phys, size, &found))
		return err;
	place->far = (struct pcilend_far_bar) {
		.function = found.to->pub.id,
		.lease = found.lease,
		.offset = place->phys - found.phys,
		.size = found.size,
	};
	pcilend_remote_put(&found.to->pub);
	return 0;
}

/* Config writes to a virtual function are done when this returns. */
static int remote_lease_let_master(struct remote_lease *rl, struct netlink_ext_ack *extack)
{
	int err;

	lockdep_assert_held(&rl->lock);
	pci_set_master(rl->pdev);
	err = pcilend_virtual_settle(rl->pdev);
	return err ? pcilend_refuse_fmt(extack, err, "its lender does not let it do DMA (error %d): see 'pcilend link'",
					err) : 0;
}

static int remote_lease_map_any(struct remote_lease *rl, const struct pcilend_memory *memory,
				bool read_only, u64 address, struct netlink_ext_ack *extack)
{
	const struct remote_holder holder = {
		.remote = rl->remote,
		.lease = rl->lease,
		.domain = rl->domain,
	};
	int err;

	lockdep_assert_held(&rl->lock);
	if (memory->source)
		return remote_target_map(&rl->targets, &holder, memory, read_only, address,
					 extack);
	err = pcilend_memory_map(memory, rl->domain, address,
				 IOMMU_READ | (read_only ? 0 : IOMMU_WRITE));
	return err ? pcilend_refuse_fmt(extack, err, "it can't be mapped for the function (error %d): see the kernel log",
					err) : 0;
}

static void remote_lease_unmap_any(struct remote_lease *rl, u64 address, u64 size)
{
	lockdep_assert_held(&rl->lock);
	if (!remote_target_unmap(&rl->targets, address))
		WARN_ON(iommu_unmap(rl->domain, address, size) != size);
}

static int remote_lease_map(void *holder, const struct pcilend_memory *memory, bool read_only,
			    u64 address, struct netlink_ext_ack *extack)
{
	struct remote_lease *rl = holder;
	int err;

	guard(mutex)(&rl->lock);
	err = remote_lease_check(rl, extack) ?:
	      remote_lease_map_any(rl, memory, read_only, address, extack);
	if (err)
		return err;
	err = remote_lease_let_master(rl, extack);
	if (err)
		remote_lease_unmap_any(rl, address, memory->size);
	return err;
}

static void remote_lease_unmap(void *holder, u64 address, u64 size)
{
	struct remote_lease *rl = holder;

	guard(mutex)(&rl->lock);
	if (rl->pdev)
		remote_lease_unmap_any(rl, address, size);
}

static int remote_lease_near(void *holder, struct pcilend_use_near *near,
			     struct netlink_ext_ack *extack)
{
	struct remote_lease *rl = holder;

	guard(mutex)(&rl->lock);
	return remote_lease_check(rl, extack) ?:
	       remote_near_get(rl->remote, rl->lease, near, extack);
}

static int remote_lease_interrupt(void *holder, u32 vector, struct eventfd_ctx *event,
				  struct netlink_ext_ack *extack)
{
	struct remote_lease *rl = holder;
	int err;

	guard(mutex)(&rl->lock);
	err = remote_lease_check(rl, extack);
	/* A function whose bus mastering is off raises none; so it may before it has one. */
	if (!err && event)
		err = remote_lease_let_master(rl, extack);
	if (!err)
		err = pcilend_vectors_set(&rl->vectors, rl->pdev, vector, event, extack);
	/*
	 * The function has its messages' addresses before its process starts I/O. If its lender has
	 * not taken them the log says so, and the process is told of the lost link.
	 */
	if (!err)
		pcilend_virtual_settle(rl->pdev);
	return err;
}

static void remote_lease_end(void *holder)
{
	struct remote_lease *rl = holder;

	if (rl->lease && remote_return(to_remote(rl->remote), rl->borrow))
		dev_warn(&rl->remote->dev, "its lender has not confirmed that it stopped: it is returned when the lender answers\n");
	pcilend_use_end(rl->use);
	kref_put(&rl->ref, remote_lease_free);
}

static const struct pcilend_use_ops remote_lease_ops = {
	.bar = remote_lease_bar,
	.map = remote_lease_map,
	.unmap = remote_lease_unmap,
	.near = remote_lease_near,
	.interrupt = remote_lease_interrupt,
	.end = remote_lease_end,
};

/* The lender mirrors all of the slice from now on. */
static int remote_lease_touch(struct remote_lease *rl, u64 bytes)
{
	phys_addr_t page = page_to_phys(rl->use->status);
	u64 at, done;
	int err = 0;

	for (done = 0; done < bytes && !err; done += PCILEND_GRANULE_FIRST) {
		at = PCILEND_SLICE_START + done;
		err = iommu_map(rl->domain, at, page, PAGE_SIZE, IOMMU_READ, GFP_KERNEL_ACCOUNT);
		if (!err)
			iommu_unmap(rl->domain, at, PAGE_SIZE);
	}
	return err;
}

static int remote_lease_attach(struct remote_lease *rl, struct pci_dev *pdev, u64 bytes)
{
	int err;

	device_lock_assert(&pdev->dev);
	lockdep_assert_held(&rl->lock);
	rl->group = iommu_group_get(&pdev->dev);
	if (!rl->group)
		return -ENODEV;
	err = pci_enable_device(pdev);
	if (err)
		goto err_group;
	err = iommu_device_claim_dma_owner(&pdev->dev, rl);
	if (err)
		goto err_disable;
	rl->domain = iommu_paging_domain_alloc(&pdev->dev);
	err = PTR_ERR_OR_ZERO(rl->domain);
	if (err)
		goto err_owner;
	err = iommu_attach_group(rl->domain, rl->group);
	if (err)
		goto err_domain;
	err = remote_lease_touch(rl, bytes);
	if (err)
		goto err_detach;
	kref_get(&rl->ref);
	pci_set_drvdata(pdev, rl);
	rl->pdev = pdev;
	pcilend_use_set_slice(rl->use, PCILEND_SLICE_START, bytes);
	pcilend_use_set_far(rl->use, REMOTE_FAR_START, REMOTE_FAR_BYTES);
	return 0;

err_detach:
	iommu_detach_group(rl->domain, rl->group);
err_domain:
	iommu_domain_free(rl->domain);
err_owner:
	iommu_device_release_dma_owner(&pdev->dev);
err_disable:
	pci_disable_device(pdev);
err_group:
	iommu_group_put(rl->group);
	return err;
}

/* Nobody binds it by hand: there is no lease then. */
static int remote_lease_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	return pcilend_virtual_remote(pdev) ? 0 : -ENODEV;
}

static void remote_lease_remove(struct pci_dev *pdev)
{
	struct remote_lease *rl = pci_get_drvdata(pdev);

	if (!rl)
		return;
	mutex_lock(&rl->lock);
	/* Its messages are DMA: none comes when its vectors go. */
	pci_clear_master(pdev);
	pcilend_virtual_settle(pdev);
	pcilend_vectors_end(&rl->vectors);
	pcilend_use_over(rl->use);
	remote_target_end(&rl->targets);
	iommu_detach_group(rl->domain, rl->group);
	iommu_domain_free(rl->domain);
	iommu_device_release_dma_owner(&pdev->dev);
	pci_disable_device(pdev);
	iommu_group_put(rl->group);
	rl->pdev = NULL;
	mutex_unlock(&rl->lock);
	pci_set_drvdata(pdev, NULL);
	kref_put(&rl->ref, remote_lease_free);
}

static struct pci_driver remote_lease_driver = {
	.name = "pcilend-lease",
	.probe = remote_lease_probe,
	.remove = remote_lease_remove,
	.driver_managed_dma = true,
};

/* Runs @what for the lease whose virtual function it is; no-op without. May sleep. */
static void remote_lease_with(struct pcilend_remote *remote,
			      void (*what)(struct remote_lease *rl))
{
	struct pci_dev *pdev = pcilend_remote_virtual(remote);
	struct remote_lease *rl = NULL;

	if (!pdev)
		return;
	device_lock(&pdev->dev);
	if (pdev->dev.driver == &remote_lease_driver.driver)
		rl = pci_get_drvdata(pdev);
	if (rl) {
		mutex_lock(&rl->lock);
		what(rl);
		mutex_unlock(&rl->lock);
	}
	device_unlock(&pdev->dev);
	pci_dev_put(pdev);
}

/* It does no DMA until its process asks for something: what it had it do is forgotten. */
static void remote_lease_restart(struct remote_lease *rl)
{
	pci_clear_master(rl->pdev);
	pci_restore_msi_state(rl->pdev);
	pcilend_virtual_restart(rl->pdev);
	pcilend_use_disturbed(rl->use);
}

static void remote_lease_was_reset(struct pcilend_remote *remote)
{
	remote_lease_with(remote, remote_lease_restart);
}

/* What the process stores while nothing carries it is lost: let it find out. */
static void remote_lease_follow_carrier(struct remote_lease *rl)
{
	if (pcilend_is_reached(rl->remote)) {
		pcilend_use_show(rl->use);
	} else {
		pcilend_use_hide(rl->use);
		pcilend_use_disturbed(rl->use);
	}
}

static void remote_lease_carrier(struct pcilend_remote *remote)
{
	remote_lease_with(remote, remote_lease_follow_carrier);
}

static void remote_lease_tell_recall(struct remote_lease *rl)
{
	pcilend_use_recalled(rl->use);
}

/* Its process returns it. */
static bool remote_lease_recalled(struct pcilend_remote *remote)
{
	remote_lease_with(remote, remote_lease_tell_recall);
	return false;
}

static struct pcilend_frontend remote_lease_frontend = {
	.name = "lease",
	.driver_override = "pcilend-lease",
	.owner = THIS_MODULE,
	.guests = true,
	.was_reset = remote_lease_was_reset,
	.carrier = remote_lease_carrier,
	.recalled = remote_lease_recalled,
};

static void remote_lease_note(struct remote_lease *rl)
{
	struct remote *r = to_remote(rl->remote);

	guard(mutex)(&r->lock);
	rl->lease = r->state == REMOTE_HELD ? r->lease : 0;
	rl->borrow = r->borrows;
}

static int remote_lease_set_up(struct remote_lease *rl, u64 bytes, struct netlink_ext_ack *extack)
{
	struct pci_dev *pdev = pcilend_remote_virtual(rl->remote);
	int err = -ENODEV;

	if (pdev) {
		device_lock(&pdev->dev);
		mutex_lock(&rl->lock);
		if (pdev->dev.driver == &remote_lease_driver.driver)
			err = remote_lease_attach(rl, pdev, bytes);
		mutex_unlock(&rl->lock);
		device_unlock(&pdev->dev);
		pci_dev_put(pdev);
	}
	if (err == -ENOSPC)
		return pcilend_refuse_fmt(extack, err, "the memory window has no room for a slice of %llu KiB: lease a smaller one",
					  bytes >> 10);
	if (err)
		return pcilend_refuse_fmt(extack, err, "it can't be leased (error %d): see the kernel log",
					  err);
	return 0;
}

/**
 * pcilend_remote_lease - a function of another host for the calling process
 * @owner, @bytes, @file: as for pcilend_lender_lease()
 * @adapter: as for pcilend_borrow()
 */
int pcilend_remote_lease(struct pcilend_remote *remote, const char *owner, const char *adapter,
			 u64 bytes, struct file **file, struct netlink_ext_ack *extack)
{
	const char *why = NULL;
	struct remote_lease *rl;
	int err;

	if (!pcilend_slice_size_valid(bytes)) {
		NL_SET_ERR_MSG(extack, "a slice is a power of two from 4 KiB to 64 GiB: give such a size");
		return -EINVAL;
	}
	rl = kzalloc(sizeof(*rl), GFP_KERNEL_ACCOUNT);
	if (!rl)
		return -ENOMEM;
	rl->use = pcilend_use_create(owner, file);
	if (IS_ERR(rl->use)) {
		err = PTR_ERR(rl->use);
		kfree(rl);
		return err;
	}
	kref_init(&rl->ref);
	mutex_init(&rl->lock);
	INIT_LIST_HEAD(&rl->targets);
	pcilend_use_get(rl->use);
	get_device(&remote->dev);
	rl->remote = remote;
	err = pcilend_borrow(remote, &remote_lease_frontend, owner, adapter, &why);
	if (err) {
		kref_put(&rl->ref, remote_lease_free);
		fput(*file);
		return pcilend_refuse(extack, err == -EALREADY ? -EBUSY : err, why);
	}
	remote_lease_note(rl);
	pcilend_use_begin(rl->use, &remote_lease_ops, rl);
	err = remote_lease_set_up(rl, bytes, extack);
	/* Which returns it. */
	if (err)
		fput(*file);
	return err;
}

int pcilend_remote_lease_init(void)
{
	int err = pci_register_driver(&remote_lease_driver);

	if (err)
		return err;
	err = pcilend_frontend_register(&remote_lease_frontend);
	if (err)
		pci_unregister_driver(&remote_lease_driver);
	return err;
}

/* No lease is held. */
void pcilend_remote_lease_exit(void)
{
	pcilend_frontend_unregister(&remote_lease_frontend);
	pci_unregister_driver(&remote_lease_driver);
}
