// SPDX-License-Identifier: GPL-2.0-only
/*
 * pcilend_mdev.ko: passes borrowed PCI functions to virtual machines, as VFIO mediated devices.
 *
 * Try it on a host to which function 40001 is offered (`pcilend list`):
 *
 *	# modprobe pcilend_mdev
 *	# cd /sys/bus/pcilend/devices/40001/mdev_supported_types/pcilend-function
 *	# uuidgen > create
 *
 * and give the UUID to `qemu-system-x86_64 -device vfio-pci,sysfsdev=/sys/bus/mdev/devices/<UUID>`
 * or a <hostdev mode='subsystem' type='mdev' model='vfio-pci'>. The function is borrowed when the
 * device is opened, unless that was done before in the name of this frontend, and returned when it
 * is closed. The NTB is a parent, too: adapter.c.
 */

#include <linux/module.h>

#include "pcilend/version.h"
#include "pcilend_mdev.h"

#define DRIVER_NAME "pcilend_mdev"

struct workqueue_struct *mdev_wq;

static LIST_HEAD(functions);
static DEFINE_MUTEX(functions_lock);

void mdev_function_uuid(const struct mdev_device *mdev, uuid_t *uuid)
{
	char text[UUID_STRING_LEN + 1];

	snprintf(text, sizeof(text), "%pUl", &mdev->uuid);
	WARN_ON_ONCE(uuid_parse(text, uuid));
}

static struct mdev_function *find_function(const struct mdev_device *mdev)
{
	struct mdev_function *function;
	uuid_t uuid;

	lockdep_assert_held(&functions_lock);
	if (!mdev_adapter_of(mdev))
		return container_of(mdev->type, struct mdev_function, type);
	mdev_function_uuid(mdev, &uuid);
	list_for_each_entry(function, &functions, node) {
		if (uuid_equal(&function->remote->uuid, &uuid))
			return function;
	}
	return NULL;
}

int mdev_function_get(struct mdev_device_state *state)
{
	struct mdev_device *mdev = state->mdev;
	struct mdev_function *function;

	guard(mutex)(&functions_lock);
	function = find_function(mdev);
	if (!function) {
		dev_err(&mdev->dev, "no host offers this function: 'pcilend link' shows the hosts in reach\n");
		return -ENODEV;
	}
	if (mdev_adapter_of(mdev) && mdev_adapter_class(mdev) !=
	    le32_to_cpu(function->remote->info.class_revision) >> 24) {
		dev_err(&mdev->dev, "function %x is of another class than the device's type\n",
			function->remote->id);
		return -EINVAL;
	}
	if (function->user) {
		dev_err(&mdev->dev, "function %x is open as mediated device %s\n",
			function->remote->id, dev_name(function->user->vdev.dev));
		return -EBUSY;
	}
	WRITE_ONCE(function->user, state);
	state->function = function;
	state->remote = function->remote;
	return 0;
}

void mdev_function_put(struct mdev_device_state *state)
{
	guard(mutex)(&functions_lock);
	WRITE_ONCE(state->function->user, NULL);
	wake_up_all(&state->function->idle);
	state->function = NULL;
	state->remote = NULL;
}

/* Returns when nobody has the function open; who has it is asked to let go, again and again. */
static void await_user(struct mdev_function *function)
{
	while (!wait_event_timeout(function->idle, !READ_ONCE(function->user), 10 * HZ)) {
		guard(mutex)(&functions_lock);
		if (function->user)
			mdev_irqs_request(function->user);
	}
	/* mdev_function_put() is through with it, too. */
	guard(mutex)(&functions_lock);
}

/* The lease was lost without having been returned. */
static void function_lost(struct pcilend_remote *remote, enum pcilend_lost_reason reason)
{
	struct mdev_function *function = pcilend_remote_data(remote, &mdev_frontend);

	if (!function)
		return;
	dev_warn(&remote->dev, "the lease is over (%s), the guest is asked to let go\n",
		 pcilend_lost_text(reason));
	scoped_guard(mutex, &function->lock) {
		if (function->device)
			mdev_device_revoke(function->device);
	}
	pcilend_return(remote, NULL);
}

/* The lender has reset it, because the link was lost. */
static void function_was_reset(struct pcilend_remote *remote)
{
	struct mdev_function *function = pcilend_remote_data(remote, &mdev_frontend);
	int err = 0;

	if (!function)
		return;
	scoped_guard(mutex, &function->lock) {
		if (function->device)
			err = mdev_was_reset(function->device);
	}
	dev_warn(&remote->dev, "was reset by its lender, because the link was lost during DMA: the guest's driver has to start it anew\n");
	if (err)
		dev_warn(&remote->dev, "its interrupts and bus mastering could not be restored (error %d): reset it in the guest\n",
			 err);
}

/* Its lender wants it back. Closing the device returns it; what nobody has open goes at once. */
static void function_recalled(struct pcilend_remote *remote)
{
	struct mdev_function *function = pcilend_remote_data(remote, &mdev_frontend);
	bool open;

	if (!function)
		return;
	scoped_guard(mutex, &function->lock) {
		open = function->device;
		if (open)
			mdev_irqs_request(function->device);
	}
	if (open)
		dev_notice(&remote->dev, "its lender wants it back, the guest is asked to let go\n");
	else
		pcilend_return(remote, NULL);
}

static ssize_t type_description(struct mdev_type *type, char *buffer)
{
	struct mdev_function *function = container_of(type, struct mdev_function, type);
	const struct pcilend_msg_function *info = &function->remote->info;

	return sysfs_emit(buffer, "PCI function %x, %04x:%04x at %04x:%02x:%02x.%x of its host\n",
			  function->remote->id, le16_to_cpu(info->vendor),
			  le16_to_cpu(info->device), le16_to_cpu(info->segment), info->bus,
			  PCI_SLOT(info->devfn), PCI_FUNC(info->devfn));
}

struct mdev_driver mdev_pcilend_driver = {
	.device_api = VFIO_DEVICE_API_PCI_STRING,
	.max_instances = 1,
	.probe = mdev_device_probe,
	.remove = mdev_device_remove,
	.show_description = type_description,
	.driver = {
		.name = DRIVER_NAME,
		.owner = THIS_MODULE,
		.mod_name = KBUILD_MODNAME,
	},
};

static int function_added(struct pcilend_remote *remote)
{
	struct mdev_function *function;
	int err;

	function = kzalloc(sizeof(*function), GFP_KERNEL);
	if (!function)
		return -ENOMEM;
	function->remote = remote;
	init_waitqueue_head(&function->idle);
	mutex_init(&function->lock);
	snprintf(function->name, sizeof(function->name), "Borrowed PCI function %x", remote->id);
	function->type.sysfs_name = "function";
	function->type.pretty_name = function->name;
	function->types[0] = &function->type;

	err = pcilend_remote_set_data(remote, &mdev_frontend, function);
	if (err)
		goto err_free;
	err = mdev_register_parent(&function->parent, &remote->dev, &mdev_pcilend_driver,
				   function->types, ARRAY_SIZE(function->types));
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

/* Waits until nobody has the mediated device open; the holder is asked to let go. */
static void function_removed(struct pcilend_remote *remote)
{
	struct mdev_function *function = pcilend_remote_data(remote, &mdev_frontend);
	bool bound;

	if (!function)
		return;
	scoped_guard(mutex, &functions_lock)
		list_del(&function->node);
	mdev_unregister_parent(&function->parent);
	await_user(function);
	scoped_guard(mutex, &function->lock)
		bound = function->pdev;
	if (bound)
		pcilend_return(remote, NULL);
	pcilend_remote_set_data(remote, &mdev_frontend, NULL);
	kfree(function);
}

struct pcilend_frontend mdev_frontend = {
	.name = "mdev",
	.driver_override = DRIVER_NAME,
	.owner = THIS_MODULE,
	.guests = true,
	.adapter_added = mdev_adapter_added,
	.adapter_removed = mdev_adapter_removed,
	.added = function_added,
	.removed = function_removed,
	.lost = function_lost,
	.was_reset = function_was_reset,
	.recalled = function_recalled,
};

/* Bound by driver_override alone: the ID table is empty. */
static int virtual_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct pcilend_remote *remote = pcilend_virtual_remote(pdev);
	struct mdev_function *function;
	int err;

	function = remote ? pcilend_remote_data(remote, &mdev_frontend) : NULL;
	if (!function)
		return -ENODEV;
	err = pci_enable_device_mem(pdev);
	if (err)
		return err;
	err = pci_request_regions(pdev, DRIVER_NAME);
	if (err)
		goto err_disable;

	pci_set_drvdata(pdev, function);
	scoped_guard(mutex, &function->lock)
		function->pdev = pdev;
	return 0;

err_disable:
	pci_disable_device(pdev);
	return err;
}

static void virtual_remove(struct pci_dev *pdev)
{
	struct mdev_function *function = pci_get_drvdata(pdev);

	scoped_guard(mutex, &function->lock) {
		if (function->device)
			mdev_device_revoke(function->device);
		function->pdev = NULL;
	}
	pci_release_regions(pdev);
	pci_disable_device(pdev);
}

static struct pci_driver virtual_driver = {
	.name = DRIVER_NAME,
	.probe = virtual_probe,
	.remove = virtual_remove,
	.driver = {
		/* Borrowed and returned as a whole, not unbound from below a guest. */
		.suppress_bind_attrs = true,
		.probe_type = PROBE_FORCE_SYNCHRONOUS,
	},
};

static int __init pcilend_mdev_init(void)
{
	int err;

	mdev_wq = alloc_workqueue("pcilend_mdev", WQ_UNBOUND, 0);
	if (!mdev_wq)
		return -ENOMEM;
	err = mdev_register_driver(&mdev_pcilend_driver);
	if (err)
		goto err_workqueue;
	err = mdev_register_driver(&mdev_adapter_driver);
	if (err)
		goto err_mdev;
	err = pci_register_driver(&virtual_driver);
	if (err)
		goto err_adapter;
	err = pcilend_frontend_register(&mdev_frontend);
	if (err)
		goto err_pci;
	err = pcilend_frontend_register(&mdev_pci_frontend);
	if (err)
		goto err_frontend;
	return 0;

err_frontend:
	pcilend_frontend_unregister(&mdev_frontend);
err_pci:
	pci_unregister_driver(&virtual_driver);
err_adapter:
	mdev_unregister_driver(&mdev_adapter_driver);
err_mdev:
	mdev_unregister_driver(&mdev_pcilend_driver);
err_workqueue:
	destroy_workqueue(mdev_wq);
	return err;
}

static void __exit pcilend_mdev_exit(void)
{
	pcilend_frontend_unregister(&mdev_pci_frontend);
	pcilend_frontend_unregister(&mdev_frontend);
	pci_unregister_driver(&virtual_driver);
	mdev_unregister_driver(&mdev_adapter_driver);
	mdev_unregister_driver(&mdev_pcilend_driver);
	destroy_workqueue(mdev_wq);
}

module_init(pcilend_mdev_init);
module_exit(pcilend_mdev_exit);

MODULE_LICENSE("GPL");
MODULE_SOFTDEP("pre: vfio-pci");
MODULE_VERSION(PCILEND_VERSION);
MODULE_DESCRIPTION("VFIO mediated devices of borrowed PCI functions");
