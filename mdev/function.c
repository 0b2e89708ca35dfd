// SPDX-License-Identifier: GPL-2.0-only
/*
 * Functions as parents of mediated devices: each has one type, and one device of it at most, which
 * is that function. On a host to which 40001 is offered (`pcilend list`):
 *
 *	# cd /sys/bus/pcilend/devices/40001/mdev_supported_types/pcilend-function
 *	# uuidgen >create
 */

#include <linux/module.h>
#include <linux/slab.h>
#include <linux/vfio.h>

#include "pcilend_mdev.h"

struct mdev_function {
	struct list_head node;		/* functions_lock */
	struct pcilend_remote *remote;
	struct mdev_parent parent;
	struct mdev_type type;
	struct mdev_type *only;		/* that type, as the core wants it */
};

static LIST_HEAD(functions);
static DEFINE_MUTEX(functions_lock);

static struct mdev_function *function_of_type(struct mdev_type *type)
{
	return container_of(type, struct mdev_function, type);
}

struct pcilend_remote *mdev_function_of(const struct mdev_device *mdev)
{
	return function_of_type(mdev->type)->remote;
}

struct pcilend_remote *mdev_function_get(u32 id)
{
	struct mdev_function *function;

	guard(mutex)(&functions_lock);
	list_for_each_entry(function, &functions, node) {
		if (function->remote->id != id)
			continue;
		get_device(&function->remote->dev);
		return function->remote;
	}
	return NULL;
}

struct pcilend_remote *mdev_function_find(const uuid_t *uuid)
{
	struct mdev_function *function;

	guard(mutex)(&functions_lock);
	list_for_each_entry(function, &functions, node) {
		if (!uuid_equal(&function->remote->uuid, uuid))
			continue;
		get_device(&function->remote->dev);
		return function->remote;
	}
	return NULL;
}

/* One that is borrowed for VFIO already can be made, too. */
static unsigned int function_available(struct mdev_type *type)
{
	struct pcilend_remote *remote = function_of_type(type)->remote;

	return !mdev_handle_exists(remote->id) &&
	       (pcilend_is_available(remote) || mdev_vfio_is_bound(remote->id));
}

static ssize_t function_description(struct mdev_type *type, char *buffer)
{
	struct pcilend_remote *remote = function_of_type(type)->remote;
	const struct pcilend_msg_function *info = &remote->info;

	return sysfs_emit(buffer, "PCI function %x, %04x:%04x at %04x:%02x:%02x.%x of its host\n",
			  remote->id, le16_to_cpu(info->vendor), le16_to_cpu(info->device),
			  le16_to_cpu(info->segment), info->bus, PCI_SLOT(info->devfn),
			  PCI_FUNC(info->devfn));
}

struct mdev_driver mdev_function_driver = {
	.device_api = VFIO_DEVICE_API_PCI_STRING,
	.probe = mdev_handle_probe,
	.remove = mdev_handle_remove,
	.get_available = function_available,
	.show_description = function_description,
	.driver = {
		/* The name of the driver begins that of the type. */
		.name = "pcilend_mdev",
		.owner = THIS_MODULE,
		.mod_name = KBUILD_MODNAME,
	},
};

int mdev_function_added(struct pcilend_remote *remote)
{
	struct mdev_function *function = kzalloc(sizeof(*function), GFP_KERNEL);
	int err;

	if (!function)
		return -ENOMEM;
	function->remote = remote;
	function->type.sysfs_name = "function";
	function->type.pretty_name =
		mdev_class_name(le32_to_cpu(remote->info.class_revision) >> 24);
	function->only = &function->type;
	err = pcilend_remote_set_data(remote, &mdev_frontend, function);
	if (err)
		goto err_free;
	err = mdev_register_parent(&function->parent, &remote->dev, &mdev_function_driver,
				   &function->only, 1);
	if (err)
		goto err_data;
	guard(mutex)(&functions_lock);
	list_add(&function->node, &functions);
	return 0;

err_data:
	pcilend_remote_set_data(remote, &mdev_frontend, NULL);
err_free:
	kfree(function);
	return err;
}

/* Removes its mediated device; what that has borrowed is returned. */
void mdev_function_removed(struct pcilend_remote *remote)
{
	struct mdev_function *function = pcilend_remote_data(remote, &mdev_frontend);

	if (!function)
		return;
	mdev_unregister_parent(&function->parent);
	scoped_guard(mutex, &functions_lock)
		list_del(&function->node);
	pcilend_remote_set_data(remote, &mdev_frontend, NULL);
	kfree(function);
}
