// SPDX-License-Identifier: GPL-2.0-only
/*
 * Mediated devices. One is a second name of a borrowed function: VFIO has the function itself
 * (vfio.c), and gives it to who asks by the device's UUID. QEMU and libvirt find the function's
 * group by the link `iommu_group` in the device's directory.
 *
 * A device has its function from when it is made until it is removed: it borrows it, unless that
 * was done before for VFIO, and returns what it has borrowed. Which function that is:
 *
 * - below a function (function.c): that one;
 * - below a kind (kinds.c), with the UUID of a function: that one. It may be made before any lender
 *   offers it, and waits for it then;
 * - below a kind, with any other UUID: one of the kind that is free, and none else while the device
 *   lives. If none is free, it is not made.
 *
 * One whose function is lost has no link, and waits for the same function:
 *
 *	         not there yet, lost, or wanted back
 *	    +-----------------------------------------+
 *	    v                                         |
 *	WAITING ------------ offered -----------> BORROWED
 *	    +-- its lender's answer makes no sense --> PASSIVE <-- made while VFIO has the function
 */

#include <linux/kernfs.h>
#include <linux/slab.h>

#include "pcilend_mdev.h"

enum handle_state {
	HANDLE_WAITING,		/* has no function, and borrows it as soon as that is possible */
	HANDLE_BORROWED,	/* has borrowed it */
	HANDLE_PASSIVE,		/* has what somebody else borrows for VFIO, or nothing */
};

struct mdev_handle {
	struct list_head node;		/* handles_lock, as all up to @lock */
	struct mdev_device *mdev;
	u32 id;				/* of the function; 0: not known yet */
	enum handle_state state;
	bool linked;
	bool removed;

	struct mutex lock;		/* one borrow or return at a time */
	struct kref ref;
};

static LIST_HEAD(handles);
static DEFINE_MUTEX(handles_lock);

static void handle_release(struct kref *ref)
{
	kfree(container_of(ref, struct mdev_handle, ref));
}

static void handle_put(struct mdev_handle *handle)
{
	kref_put(&handle->ref, handle_release);
}

static struct mdev_handle *handle_of(u32 id)
{
	struct mdev_handle *handle;

	lockdep_assert_held(&handles_lock);
	list_for_each_entry(handle, &handles, node) {
		if (handle->id == id)
			return handle;
	}
	return NULL;
}

/* The UUID of a mediated device as functions have theirs. */
static void handle_uuid(const struct mdev_device *mdev, uuid_t *uuid)
{
	char text[UUID_STRING_LEN + 1];

	snprintf(text, sizeof(text), "%pUl", &mdev->uuid);
	WARN_ON_ONCE(uuid_parse(text, uuid));
}

/*
 * What /sys/bus/pci/devices/.../iommu_group leads to, with a reference, as no function gives it. A
 * link to that link would not do: users read where the device's own leads, and take its last part.
 */
static struct kobject *handle_group(struct pci_dev *pdev)
{
	struct kernfs_node *link = kernfs_find_and_get(pdev->dev.kobj.sd, "iommu_group");
	struct kobject *group;

	if (!link)
		return NULL;
	group = kobject_get(link->symlink.target_kn->priv);
	kernfs_put(link);
	return group;
}

static void handle_link(struct mdev_handle *handle, struct pci_dev *pdev)
{
	struct kobject *group;

	lockdep_assert_held(&handles_lock);
	if (handle->linked)
		return;
	group = handle_group(pdev);
	handle->linked = group && !sysfs_create_link(&handle->mdev->dev.kobj, group, "iommu_group");
	kobject_put(group);
	if (!handle->linked)
		dev_err(&handle->mdev->dev, "VMMs can't find the IOMMU group of %s\n",
			pci_name(pdev));
}

static void handle_unlink(struct mdev_handle *handle)
{
	lockdep_assert_held(&handles_lock);
	if (handle->linked)
		sysfs_remove_link(&handle->mdev->dev.kobj, "iommu_group");
	handle->linked = false;
}

void mdev_handle_bound(struct pci_dev *pdev)
{
	struct mdev_handle *handle;

	guard(mutex)(&handles_lock);
	handle = handle_of(pcilend_virtual_remote(pdev)->id);
	if (handle)
		handle_link(handle, pdev);
}

void mdev_handle_unbound(struct pci_dev *pdev)
{
	struct mdev_handle *handle;

	guard(mutex)(&handles_lock);
	handle = handle_of(pcilend_virtual_remote(pdev)->id);
	if (handle)
		handle_unlink(handle);
}

bool mdev_handle_names(struct pci_dev *pdev, const char *name)
{
	struct mdev_handle *handle;

	guard(mutex)(&handles_lock);
	handle = handle_of(pcilend_virtual_remote(pdev)->id);
	return handle && !strcmp(dev_name(&handle->mdev->dev), name);
}

bool mdev_handle_exists(u32 id)
{
	guard(mutex)(&handles_lock);
	return handle_of(id);
}

bool mdev_handle_of_kind(const struct pcilend_kind *kind)
{
	struct mdev_handle *handle;

	guard(mutex)(&handles_lock);
	list_for_each_entry(handle, &handles, node) {
		if (mdev_kind_of(handle->mdev) == kind)
			return true;
	}
	return false;
}

/* Gives the handle that function, if no other has it. */
static int handle_claim(struct mdev_handle *handle, u32 id)
{
	struct mdev_handle *other;

	guard(mutex)(&handles_lock);
	other = handle_of(id);
	if (other && other != handle) {
		dev_err(&handle->mdev->dev, "function %x is mediated device %s already\n", id,
			dev_name(&other->mdev->dev));
		return -EBUSY;
	}
	handle->id = id;
	return 0;
}

static void handle_set(struct mdev_handle *handle, enum handle_state state)
{
	guard(mutex)(&handles_lock);
	handle->state = state;
}

static void handle_owner(const struct mdev_handle *handle, char owner[PCILEND_OWNER_BYTES])
{
	snprintf(owner, PCILEND_OWNER_BYTES, "mdev:%pUl", &handle->mdev->uuid);
}

/* The function is borrowed for VFIO by now, by whoever: the device gets its link. */
static int handle_attach(struct mdev_handle *handle, struct pcilend_remote *remote)
{
	struct pci_dev *pdev = pcilend_remote_virtual(remote);
	int err = -ENODEV;

	if (!pdev)
		return err;
	scoped_guard(mutex, &handles_lock) {
		handle_link(handle, pdev);
		if (handle->linked)
			err = 0;
	}
	pci_dev_put(pdev);
	return err;
}

/* Return: as pcilend_borrow(), which says why in the log. */
static int handle_lease(struct mdev_handle *handle, struct pcilend_remote *remote)
{
	char owner[PCILEND_OWNER_BYTES];
	const char *why = NULL;
	int err;

	lockdep_assert_held(&handle->lock);
	err = handle_claim(handle, remote->id);
	if (err)
		return err;
	if (mdev_vfio_is_bound(remote->id)) {
		err = handle_attach(handle, remote);
		if (!err)
			handle_set(handle, HANDLE_PASSIVE);
		return err;
	}
	handle_owner(handle, owner);
	err = pcilend_borrow(remote, &mdev_frontend, owner, NULL, &why);
	if (err && err != -EALREADY) {
		dev_notice(&handle->mdev->dev, "function %x can't be borrowed: %s (error %d)\n",
			   remote->id, why ?: "no reason given", err);
		return err;
	}
	err = handle_attach(handle, remote);
	if (err) {
		pcilend_return(remote, owner);
		return err;
	}
	handle_set(handle, HANDLE_BORROWED);
	return 0;
}

/* Can that be otherwise soon, without anybody having taken the function? */
static bool handle_may_wait(int err)
{
	return err == -ENODEV || err == -EAGAIN || err == -ENETDOWN || err == -ENOTCONN ||
	       err == -ETIMEDOUT;
}

/* Was the lease given back at once, and would be again? */
static bool handle_is_hopeless(int err)
{
	return err == -ECANCELED || err == -EPROTO || err == -ERANGE || err == -ENOMEM;
}

/* One of the kind that is free: the first that its lender gives. */
static int handle_choose(struct mdev_handle *handle, const struct pcilend_kind *kind)
{
	struct pcilend_remote *remote;
	int err = -ENODEV;
	u32 id = 0;

	lockdep_assert_held(&handle->lock);
	while (err && (remote = pcilend_next_available(kind, id))) {
		id = remote->id;
		err = mdev_handle_exists(id) ? -EBUSY : handle_lease(handle, remote);
		put_device(&remote->dev);
	}
	if (err)
		dev_err(&handle->mdev->dev, "no function of kind %s is free: 'pcilend list' shows all\n",
			kind->name);
	return err;
}

/* The function with the device's UUID. */
static int handle_find(struct mdev_handle *handle, const struct pcilend_kind *kind,
		       const uuid_t *uuid)
{
	struct pcilend_remote *remote = mdev_function_find(uuid);
	int err;

	lockdep_assert_held(&handle->lock);
	if (!remote) {
		dev_notice(&handle->mdev->dev, "waits for its function, which no host offers yet\n");
		return 0;
	}
	err = -EINVAL;
	if (!pcilend_is_of_kind(remote, kind))
		dev_err(&handle->mdev->dev, "function %x is not of kind %s\n", remote->id,
			kind->name);
	else
		err = handle_lease(handle, remote);
	put_device(&remote->dev);
	return handle_may_wait(err) ? 0 : err;
}

static int handle_take(struct mdev_handle *handle)
{
	const struct pcilend_kind *kind = mdev_kind_of(handle->mdev);
	int err;
	uuid_t uuid;

	lockdep_assert_held(&handle->lock);
	if (!kind) {
		err = handle_lease(handle, mdev_function_of(handle->mdev));
		return handle_may_wait(err) ? 0 : err;
	}
	handle_uuid(handle->mdev, &uuid);
	if (pcilend_names_function(&uuid))
		return handle_find(handle, kind, &uuid);
	return handle_choose(handle, kind);
}

/* It is no name of anything any more. */
static void handle_forget(struct mdev_handle *handle)
{
	guard(mutex)(&handles_lock);
	handle_unlink(handle);
	handle->removed = true;
	list_del(&handle->node);
}

int mdev_handle_probe(struct mdev_device *mdev)
{
	struct mdev_handle *handle = kzalloc(sizeof(*handle), GFP_KERNEL);
	int err;

	if (!handle)
		return -ENOMEM;
	handle->mdev = mdev;
	mutex_init(&handle->lock);
	kref_init(&handle->ref);
	dev_set_drvdata(&mdev->dev, handle);
	scoped_guard(mutex, &handles_lock)
		list_add_tail(&handle->node, &handles);
	scoped_guard(mutex, &handle->lock)
		err = handle_take(handle);
	if (!err)
		return 0;
	handle_forget(handle);
	handle_put(handle);
	return err;
}

/* Waits for the user of a function that the device has borrowed, who is asked to let go. */
void mdev_handle_remove(struct mdev_device *mdev)
{
	struct mdev_handle *handle = dev_get_drvdata(&mdev->dev);
	struct pcilend_remote *remote;
	char owner[PCILEND_OWNER_BYTES];

	handle_forget(handle);
	mutex_lock(&handle->lock);
	remote = handle->id ? mdev_function_get(handle->id) : NULL;
	if (remote) {
		handle_owner(handle, owner);
		pcilend_return(remote, owner);
		put_device(&remote->dev);
	}
	mutex_unlock(&handle->lock);
	handle_put(handle);
}

void mdev_handle_wait(u32 id)
{
	struct mdev_handle *handle;

	guard(mutex)(&handles_lock);
	handle = handle_of(id);
	if (handle && handle->state == HANDLE_BORROWED)
		handle->state = HANDLE_WAITING;
}

/* The one that waits for the function, with a reference; or NULL. */
static struct mdev_handle *handle_waiting(struct pcilend_remote *remote)
{
	struct mdev_handle *handle;
	uuid_t uuid;

	guard(mutex)(&handles_lock);
	list_for_each_entry(handle, &handles, node) {
		if (handle->state != HANDLE_WAITING || (handle->id && handle->id != remote->id))
			continue;
		handle_uuid(handle->mdev, &uuid);
		if (!handle->id && !uuid_equal(&uuid, &remote->uuid))
			continue;
		kref_get(&handle->ref);
		return handle;
	}
	return NULL;
}

void mdev_handle_offered(struct pcilend_remote *remote)
{
	struct mdev_handle *handle = handle_waiting(remote);
	int err;

	if (!handle)
		return;
	mutex_lock(&handle->lock);
	if (!handle->removed && handle->state == HANDLE_WAITING) {
		err = handle_lease(handle, remote);
		/* libvirt looks for the link again when the device has changed. */
		if (!err)
			kobject_uevent(&handle->mdev->dev.kobj, KOBJ_CHANGE);
		else if (handle_is_hopeless(err))
			handle_set(handle, HANDLE_PASSIVE);
	}
	mutex_unlock(&handle->lock);
	handle_put(handle);
}
