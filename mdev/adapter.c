// SPDX-License-Identifier: GPL-2.0-only
/*
 * The adapter as a parent of mediated devices. libvirt looks for types below PCI devices only, and
 * a function of another host is none here before it is borrowed; the NTB that leads to it is one.
 *
 * Its types tell how many functions of each class can be borrowed over it. A device with the UUID
 * of a function is that one; with any other UUID, one of its type (handle.c). Try it with a drive:
 *
 *	# cd /sys/bus/pci/devices/0000:00:04.0/mdev_supported_types/ntb_hw_amd-pcilend-storage
 *	# uuidgen >create
 */

#include <linux/module.h>
#include <linux/slab.h>
#include <linux/vfio.h>

#include "pcilend_mdev.h"

struct adapter_class {
	u8 base_class;
	const char *type;
	const char *name;
};

/*
 * PCI Code and ID Assignment Specification 1.11, section 1: all but bridges, and what there is no
 * hardware of any more.
 */
static const struct adapter_class classes[] = {
	{ 0x00, "pcilend-unclassified", "Borrowed device from before there were classes" },
	{ 0x01, "pcilend-storage", "Borrowed storage controller" },
	{ 0x02, "pcilend-network", "Borrowed network controller" },
	{ 0x03, "pcilend-display", "Borrowed display controller" },
	{ 0x04, "pcilend-multimedia", "Borrowed multimedia device" },
	{ 0x05, "pcilend-memory", "Borrowed memory controller" },
	{ 0x07, "pcilend-communication", "Borrowed communication controller" },
	{ 0x08, "pcilend-system", "Borrowed system peripheral" },
	{ 0x09, "pcilend-input", "Borrowed input device" },
	{ 0x0b, "pcilend-processor", "Borrowed processor" },
	{ 0x0c, "pcilend-serial", "Borrowed serial bus controller" },
	{ 0x0d, "pcilend-wireless", "Borrowed wireless controller" },
	{ 0x10, "pcilend-encryption", "Borrowed encryption controller" },
	{ 0x11, "pcilend-signal", "Borrowed signal processing controller" },
	{ 0x12, "pcilend-accelerator", "Borrowed processing accelerator" },
	{ 0xff, "pcilend-unassigned", "Borrowed device of no class" },
};

struct adapter_type {
	struct mdev_type type;
	const struct adapter_class *class;
	struct pci_dev *adapter;
};

struct adapter {
	struct list_head node;		/* adapters */
	struct pci_dev *pdev;		/* with a reference */
	struct mdev_parent parent;
	struct adapter_type type[ARRAY_SIZE(classes)];
	struct mdev_type *types[ARRAY_SIZE(classes)];
};

/* Changed in callbacks of pcilend.ko only, which come one at a time. */
static LIST_HEAD(adapters);

static struct adapter_type *to_adapter_type(struct mdev_type *type)
{
	return container_of(type, struct adapter_type, type);
}

const char *mdev_class_name(u8 base_class)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(classes); i++) {
		if (classes[i].base_class == base_class)
			return classes[i].name;
	}
	return "Borrowed device";
}

static unsigned int type_available(struct mdev_type *type)
{
	struct adapter_type *of = to_adapter_type(type);
	struct pcilend_remote *remote;
	unsigned int count = 0;
	u32 id = 0;

	while ((remote = pcilend_next_available(of->adapter, of->class->base_class, id))) {
		id = remote->id;
		put_device(&remote->dev);
		count += !mdev_handle_exists(id);
	}
	return count;
}

static ssize_t type_description(struct mdev_type *type, char *buffer)
{
	return sysfs_emit(buffer, "a function of class %02x.. over this adapter: the one with the device's UUID, or any\n",
			  to_adapter_type(type)->class->base_class);
}

struct mdev_driver mdev_adapter_driver = {
	.device_api = VFIO_DEVICE_API_PCI_STRING,
	.probe = mdev_handle_probe,
	.remove = mdev_handle_remove,
	.get_available = type_available,
	.show_description = type_description,
	.driver = {
		.name = "pcilend_mdev_adapter",
		.owner = THIS_MODULE,
		.mod_name = KBUILD_MODNAME,
	},
};

u8 mdev_adapter_class(const struct mdev_device *mdev)
{
	return to_adapter_type(mdev->type)->class->base_class;
}

struct pci_dev *mdev_adapter_of(const struct mdev_device *mdev)
{
	if (mdev->type->parent->mdev_driver != &mdev_adapter_driver)
		return NULL;
	return to_adapter_type(mdev->type)->adapter;
}

int mdev_adapter_added(struct pci_dev *pdev)
{
	struct adapter *adapter = kzalloc(sizeof(*adapter), GFP_KERNEL);
	int i, err;

	if (!adapter)
		return -ENOMEM;
	adapter->pdev = pci_dev_get(pdev);
	for (i = 0; i < ARRAY_SIZE(classes); i++) {
		adapter->type[i].class = &classes[i];
		adapter->type[i].adapter = pdev;
		adapter->type[i].type.sysfs_name = classes[i].type;
		adapter->type[i].type.pretty_name = classes[i].name;
		adapter->types[i] = &adapter->type[i].type;
	}
	err = mdev_register_parent(&adapter->parent, &pdev->dev, &mdev_adapter_driver,
				   adapter->types, ARRAY_SIZE(adapter->types));
	if (err) {
		pci_dev_put(pdev);
		kfree(adapter);
		return err;
	}
	list_add(&adapter->node, &adapters);
	return 0;
}

/* Removes its mediated devices. */
void mdev_adapter_removed(struct pci_dev *pdev)
{
	struct adapter *adapter;

	list_for_each_entry(adapter, &adapters, node) {
		if (adapter->pdev != pdev)
			continue;
		list_del(&adapter->node);
		mdev_unregister_parent(&adapter->parent);
		pci_dev_put(pdev);
		kfree(adapter);
		return;
	}
}
