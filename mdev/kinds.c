// SPDX-License-Identifier: GPL-2.0-only
/*
 * Kinds of functions as parents of mediated devices. Management stacks look for types below PCI
 * devices, and want one type for each, the same on all hosts; a function of another host is no PCI
 * device here before it is borrowed. So each kind is a PCI device without any hardware, on a bus of
 * its own: there is one for each PCI base class, and administrators make more of them:
 *
 *	# echo 'fast device=144d::0108 label=fast' >/sys/bus/pci/drivers/pcilend_mdev/new_kind
 *	# uuidgen >/sys/bus/pci/devices/8000:00:1a.0/mdev_supported_types/pcilend_mdev-fast/create
 *	# echo fast >/sys/bus/pci/drivers/pcilend_mdev/remove_kind
 *
 * A device with the UUID of a function is that one; with any other UUID, one of its kind
 * (handle.c). A kind is at the same address on all hosts: its name decides, unless another kind has
 * that.
 */

#include <linux/jhash.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/vfio.h>

#include "pcilend_mdev.h"

/* The first of the domains of functions; nodes, which have the others, begin with 1. */
#define KINDS_DOMAIN PCILEND_PCI_DOMAIN_FIRST
#define KINDS_MAX 256
/* "VMware (temporary ID)" in pci.ids: no driver takes it for hardware. */
#define KINDS_VENDOR 0xfffe
#define KINDS_DEVICE 0x0001
#define KINDS_NAME_BYTES 64

struct mdev_kind {
	struct list_head node;		/* kinds_lock */
	struct pcilend_kind kind;
	unsigned int devfn;
	bool fixed;			/* of a class */
	char pretty_name[KINDS_NAME_BYTES];
	struct mdev_parent parent;
	struct mdev_type type;
	struct mdev_type *only;		/* that type, as the core wants it */
};

static LIST_HEAD(kinds);
static DEFINE_MUTEX(kinds_lock);

static struct pci_bus *kinds_bus;
static struct pci_sysdata kinds_sysdata = { .domain = KINDS_DOMAIN, .node = NUMA_NO_NODE };
static bool kinds_placed;		/* kinds_lock: the NUMA node is known */
/* The class of what is at each place, and KINDS_PRESENT. Read by the PCI core in any context. */
static u32 kinds_at[KINDS_MAX];
#define KINDS_PRESENT 0x80000000

static struct mdev_kind *to_kind(struct mdev_type *type)
{
	return container_of(type, struct mdev_kind, type);
}

const char *mdev_class_name(u8 base_class)
{
	int i;

	for (i = 0; i < PCILEND_KIND_CLASSES; i++) {
		if (pcilend_kind_classes[i].base_class == base_class)
			return pcilend_kind_classes[i].pretty_name;
	}
	return "Borrowed device";
}

static unsigned int kinds_available(struct mdev_type *type)
{
	struct pcilend_remote *remote;
	unsigned int count = 0;
	u32 id = 0;

	while ((remote = pcilend_next_available(&to_kind(type)->kind, id))) {
		id = remote->id;
		put_device(&remote->dev);
		count += !mdev_handle_exists(id);
	}
	return count;
}

static ssize_t kinds_description(struct mdev_type *type, char *buffer)
{
	char text[PCILEND_KIND_TEXT_BYTES];

	pcilend_kind_format(&to_kind(type)->kind, text);
	return sysfs_emit(buffer, "the one with its UUID, or any of kind: %s\n", text);
}

struct mdev_driver mdev_kinds_driver = {
	.device_api = VFIO_DEVICE_API_PCI_STRING,
	.probe = mdev_handle_probe,
	.remove = mdev_handle_remove,
	.get_available = kinds_available,
	.show_description = kinds_description,
	.driver = {
		.name = "pcilend_mdev_kind",
		.owner = THIS_MODULE,
		.mod_name = KBUILD_MODNAME,
	},
};

const struct pcilend_kind *mdev_kind_of(const struct mdev_device *mdev)
{
	if (mdev->type->parent->mdev_driver != &mdev_kinds_driver)
		return NULL;
	return &to_kind(mdev->type)->kind;
}

/* Registers of a device that nothing can be done with (PCI Express Base 6.0, 7.5.1). */
static u32 kinds_register(unsigned int where, u32 class_code)
{
	switch (where & ~3) {
	case PCI_VENDOR_ID:
		return KINDS_DEVICE << 16 | KINDS_VENDOR;
	case PCI_CLASS_REVISION:
		return class_code << 8;
	default:
		return 0;
	}
}

static int kinds_read(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 *value)
{
	u32 at = READ_ONCE(kinds_at[devfn]);

	PCI_SET_ERROR_RESPONSE(value);
	if (!at)
		return PCIBIOS_DEVICE_NOT_FOUND;
	*value = kinds_register(where, at & ~KINDS_PRESENT) >> 8 * (where & 3);
	if (size < 4)
		*value &= BIT(8 * size) - 1;
	return PCIBIOS_SUCCESSFUL;
}

static int kinds_write(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 value)
{
	return READ_ONCE(kinds_at[devfn]) ? PCIBIOS_SUCCESSFUL : PCIBIOS_DEVICE_NOT_FOUND;
}

static struct pci_ops kinds_ops = { .read = kinds_read, .write = kinds_write };

static struct mdev_kind *kinds_find(unsigned int devfn)
{
	struct mdev_kind *kind;

	guard(mutex)(&kinds_lock);
	list_for_each_entry(kind, &kinds, node) {
		if (kind->devfn == devfn)
			return kind;
	}
	return NULL;
}

static int kinds_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct mdev_kind *kind = pdev->bus == kinds_bus ? kinds_find(pdev->devfn) : NULL;
	int err;

	if (!kind)
		return -ENODEV;
	err = mdev_register_parent(&kind->parent, &pdev->dev, &mdev_kinds_driver, &kind->only, 1);
	if (!err)
		pci_set_drvdata(pdev, kind);
	return err;
}

/* Removes its mediated devices, and waits for their users. */
static void kinds_remove(struct pci_dev *pdev)
{
	struct mdev_kind *kind = pci_get_drvdata(pdev);

	mdev_unregister_parent(&kind->parent);
}

static ssize_t kind_show(struct device *dev, struct device_attribute *attr, char *buffer)
{
	struct mdev_kind *kind = dev_get_drvdata(dev);
	char text[PCILEND_KIND_TEXT_BYTES];

	pcilend_kind_format(&kind->kind, text);
	return sysfs_emit(buffer, "%s\n", text);
}
static DEVICE_ATTR_RO(kind);

static struct attribute *kinds_dev_attrs[] = { &dev_attr_kind.attr, NULL };
ATTRIBUTE_GROUPS(kinds_dev);

/* Where the name wants to be, or the next place that is free; 0: all are taken. */
static unsigned int kinds_place(const struct pcilend_kind *kind)
{
	unsigned int from = jhash(kind->name, strlen(kind->name), 0) % KINDS_MAX, i;

	lockdep_assert_held(&kinds_lock);
	for (i = 0; i < KINDS_MAX; i++) {
		unsigned int at = (from + i) % KINDS_MAX;

		if (PCI_SLOT(at) > PCILEND_KIND_CLASSES && !kinds_at[at])
			return at;
	}
	return 0;
}

static bool kinds_has(const char *name)
{
	struct mdev_kind *kind;

	lockdep_assert_held(&kinds_lock);
	list_for_each_entry(kind, &kinds, node) {
		if (!strcmp(kind->kind.name, name))
			return true;
	}
	return false;
}

/* @devfn: 0: as its name decides. It is in the list from then on. */
static int kinds_insert(struct mdev_kind *kind, unsigned int devfn)
{
	guard(mutex)(&kinds_lock);
	if (kinds_has(kind->kind.name))
		return -EEXIST;
	kind->devfn = devfn ?: kinds_place(&kind->kind);
	if (!kind->devfn)
		return -ENOSPC;
	list_add_tail(&kind->node, &kinds);
	WRITE_ONCE(kinds_at[kind->devfn], kind->kind.class_code | KINDS_PRESENT);
	return 0;
}

static void kinds_take_out(struct mdev_kind *kind)
{
	guard(mutex)(&kinds_lock);
	list_del(&kind->node);
	WRITE_ONCE(kinds_at[kind->devfn], 0);
}

/* Makes the PCI device, which is bound on return. */
static int kinds_show(struct mdev_kind *kind)
{
	struct pci_dev *pdev;
	int err = -ENOMEM;

	pci_lock_rescan_remove();
	pdev = pci_scan_single_device(kinds_bus, kind->devfn);
	if (pdev) {
		pci_bus_add_device(pdev);
		err = pci_get_drvdata(pdev) ? 0 : -ENODEV;
	}
	pci_unlock_rescan_remove();
	return err;
}

static void kinds_hide(struct mdev_kind *kind)
{
	struct pci_dev *pdev = pci_get_slot(kinds_bus, kind->devfn);

	if (!pdev)
		return;
	/* First, since it may wait for users, and others wait for the lock of the bus. */
	device_release_driver(&pdev->dev);
	pci_stop_and_remove_bus_device_locked(pdev);
	pci_dev_put(pdev);
}

static int kinds_make(const struct pcilend_kind *of, const struct pcilend_kind_class *class,
		      unsigned int devfn)
{
	struct mdev_kind *kind = kzalloc(sizeof(*kind), GFP_KERNEL);
	int err;

	if (!kind)
		return -ENOMEM;
	kind->kind = *of;
	kind->fixed = class;
	snprintf(kind->pretty_name, sizeof(kind->pretty_name), "%s%s",
		 class ? "" : "Borrowed ", class ? class->pretty_name : of->name);
	kind->type.sysfs_name = kind->kind.name;
	kind->type.pretty_name = kind->pretty_name;
	kind->only = &kind->type;
	err = kinds_insert(kind, devfn);
	if (err)
		goto err_free;
	err = kinds_show(kind);
	if (err)
		goto err_hide;
	return 0;

err_hide:
	kinds_take_out(kind);
	kinds_hide(kind);
err_free:
	kfree(kind);
	return err;
}

static int kinds_make_class(unsigned int i)
{
	const struct pcilend_kind_class *class = &pcilend_kind_classes[i];
	struct pcilend_kind kind = {
		.class_code = class->base_class << 16,
		.class_mask = 0xff0000,
	};

	strscpy(kind.name, class->name, sizeof(kind.name));
	return kinds_make(&kind, class, PCI_DEVFN(1 + i, 0));
}

static void kinds_end(struct mdev_kind *kind)
{
	kinds_take_out(kind);
	kinds_hide(kind);
	kfree(kind);
}

/* Text without the newline that echo(1) adds, for kfree(); NULL: out of memory. */
static char *kinds_text(const char *buffer, size_t count)
{
	char *text = kmemdup_nul(buffer, count, GFP_KERNEL);

	if (text && count && text[count - 1] == '\n')
		text[count - 1] = '\0';
	return text;
}

static ssize_t new_kind_store(struct device_driver *driver, const char *buffer, size_t count)
{
	char *text __free(kfree) = kinds_text(buffer, count);
	struct pcilend_kind kind;
	const char *why = NULL;
	int err;

	if (!text)
		return -ENOMEM;
	err = pcilend_kind_parse(text, &kind, &why);
	if (!err) {
		err = pcilend_kind_is_reserved(kind.name) ? -EEXIST : kinds_make(&kind, NULL, 0);
		why = err == -EEXIST ? "there is a type of that name" :
		      err == -ENOSPC ? "there is no place left for another kind" :
		      "its device can't be made";
	}
	if (err)
		pr_notice("pcilend: new_kind: %s (error %d)\n", why, err);
	return err ?: count;
}
static DRIVER_ATTR_WO(new_kind);

/* The one of that name that an administrator has made, out of the list, if it has no devices. */
static struct mdev_kind *kinds_take_named(const char *name)
{
	struct mdev_kind *kind;

	guard(mutex)(&kinds_lock);
	list_for_each_entry(kind, &kinds, node) {
		if (strcmp(kind->kind.name, name) || kind->fixed)
			continue;
		if (mdev_handle_of_kind(&kind->kind))
			return ERR_PTR(-EBUSY);
		list_del(&kind->node);
		WRITE_ONCE(kinds_at[kind->devfn], 0);
		return kind;
	}
	return ERR_PTR(-ENOENT);
}

static ssize_t remove_kind_store(struct device_driver *driver, const char *buffer, size_t count)
{
	char *text __free(kfree) = kinds_text(buffer, count);
	struct mdev_kind *kind;

	if (!text)
		return -ENOMEM;
	kind = kinds_take_named(text);
	if (IS_ERR(kind)) {
		pr_notice("pcilend: remove_kind: %s\n", kind == ERR_PTR(-EBUSY) ?
			  "mediated devices of it exist: remove them first" :
			  "no kind of that name has been made with new_kind");
		return PTR_ERR(kind);
	}
	kinds_hide(kind);
	kfree(kind);
	return count;
}
static DRIVER_ATTR_WO(remove_kind);

static struct attribute *kinds_driver_attrs[] = {
	&driver_attr_new_kind.attr,
	&driver_attr_remove_kind.attr,
	NULL,
};
ATTRIBUTE_GROUPS(kinds_driver);

static const struct pci_device_id kinds_ids[] = {
	{ PCI_DEVICE(KINDS_VENDOR, KINDS_DEVICE) },
	{ }
};

/* Its name begins those of the types. */
static struct pci_driver kinds_pci_driver = {
	.name = "pcilend_mdev",
	.id_table = kinds_ids,
	.probe = kinds_probe,
	.remove = kinds_remove,
	.driver_managed_dma = true,
	.groups = kinds_driver_groups,
	.dev_groups = kinds_dev_groups,
};

static int kinds_set_node(struct pci_dev *pdev, void *node)
{
	set_dev_node(&pdev->dev, *(int *)node);
	return 0;
}

int mdev_kinds_adapter(struct pci_dev *adapter)
{
	int node = dev_to_node(&adapter->dev);

	guard(mutex)(&kinds_lock);
	/* Functions behind adapters of several nodes are near none. */
	if (kinds_placed && node != kinds_sysdata.node)
		node = NUMA_NO_NODE;
	kinds_placed = true;
	kinds_sysdata.node = node;
	pci_walk_bus(kinds_bus, kinds_set_node, &node);
	return 0;
}

static void kinds_end_all(void)
{
	struct mdev_kind *kind, *next;

	/* Nobody makes or removes any, since the attributes are gone. */
	list_for_each_entry_safe(kind, next, &kinds, node)
		kinds_end(kind);
}

static void kinds_destroy_bus(void)
{
	struct pci_host_bridge *bridge = to_pci_host_bridge(kinds_bus->bridge);

	pci_lock_rescan_remove();
	pci_stop_root_bus(kinds_bus);
	pci_remove_root_bus(kinds_bus);
	pci_unlock_rescan_remove();
	pci_free_host_bridge(bridge);
}

int mdev_kinds_init(void)
{
	LIST_HEAD(resources);
	unsigned int i;
	int err;

	err = mdev_register_driver(&mdev_kinds_driver);
	if (err)
		return err;
	if (pci_find_bus(KINDS_DOMAIN, 0)) {
		pr_err("pcilend: PCI bus %04x:00 is in use in this host\n", KINDS_DOMAIN);
		err = -EEXIST;
		goto err_mdev;
	}
	pci_lock_rescan_remove();
	kinds_bus = pci_create_root_bus(NULL, 0, &kinds_ops, &kinds_sysdata, &resources);
	pci_unlock_rescan_remove();
	if (!kinds_bus) {
		err = -ENOMEM;
		goto err_mdev;
	}
	err = pci_register_driver(&kinds_pci_driver);
	if (err)
		goto err_bus;
	for (i = 0; i < PCILEND_KIND_CLASSES && !err; i++)
		err = kinds_make_class(i);
	if (err)
		goto err_kinds;
	return 0;

err_kinds:
	pci_unregister_driver(&kinds_pci_driver);
	kinds_end_all();
err_bus:
	kinds_destroy_bus();
err_mdev:
	mdev_unregister_driver(&mdev_kinds_driver);
	return err;
}

void mdev_kinds_exit(void)
{
	pci_unregister_driver(&kinds_pci_driver);
	kinds_end_all();
	kinds_destroy_bus();
	mdev_unregister_driver(&mdev_kinds_driver);
}
