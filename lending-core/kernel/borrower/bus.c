// SPDX-License-Identifier: GPL-2.0-only
/*
 * The pcilend bus: remote functions as devices, so that /sys/bus/pcilend/devices shows what can be
 * borrowed. No driver binds to them: frontends are told of them by pcilend_frontend.
 */

#include "borrower/borrower.h"

/*
 * Parent of all remote functions: they may outlast the adapter that they are reached through, while
 * somebody still has one open.
 */
struct device *pcilend_bus_root;

/* A copy of the notice, so that the formats below need no lock. */
static void bus_snapshot(struct device *dev, struct pcilend_report *report)
{
	pcilend_remote_report(to_pcilend_remote(dev), report);
}

#define REMOTE_ATTR(_mode, _name, _format, ...)					\
static ssize_t _name##_show(struct device *dev, struct device_attribute *attr, char *buf) \
{											\
	struct pcilend_report report;							\
	const struct pcilend_msg_function *info __maybe_unused = &report.info;		\
											\
	bus_snapshot(dev, &report);								\
	return sysfs_emit(buf, _format "\n", __VA_ARGS__);				\
}											\
static DEVICE_ATTR_##_mode(_name)

REMOTE_ATTR(RO, id, "%x", le32_to_cpu(info->id));
REMOTE_ATTR(RO, uuid, "%pUb", info->uuid);
REMOTE_ATTR(RO, vendor, "0x%04x", le16_to_cpu(info->vendor));
REMOTE_ATTR(RO, device, "0x%04x", le16_to_cpu(info->device));
REMOTE_ATTR(RO, subsystem_vendor, "0x%04x", le16_to_cpu(info->subsystem_vendor));
REMOTE_ATTR(RO, subsystem_device, "0x%04x", le16_to_cpu(info->subsystem_device));
REMOTE_ATTR(RO, class, "0x%06x", le32_to_cpu(info->class_revision) >> 8);
REMOTE_ATTR(RO, revision, "0x%02x", le32_to_cpu(info->class_revision) & 0xff);
REMOTE_ATTR(RO, state, "%s", pcilend_function_state_name(info->state));
REMOTE_ATTR(RO, lender, "%u", pcilend_id_node(le32_to_cpu(info->id)));
REMOTE_ATTR(RO, bdf, "%04x:%02x:%02x.%x", le16_to_cpu(info->segment), info->bus,
	    PCI_SLOT(info->devfn), PCI_FUNC(info->devfn));
/* Node id of who borrows it, 0 if nobody does. */
REMOTE_ATTR(RO, borrowed_by, "%u", le32_to_cpu(info->borrower));
/* Empty unless this host borrows it. Whoever knows the owner can act in its name. */
REMOTE_ATTR(ADMIN_RO, owner, "%s", report.owner);
REMOTE_ATTR(RO, frontend, "%s", report.frontend);
REMOTE_ATTR(RO, virtual, "%s", report.virtual);

/* Of the adapter over which it was offered first. */
static ssize_t numa_node_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%d\n", dev_to_node(dev));
}
static DEVICE_ATTR_RO(numa_node);

static struct attribute *remote_attrs[] = {
	&dev_attr_id.attr,
	&dev_attr_uuid.attr,
	&dev_attr_vendor.attr,
	&dev_attr_device.attr,
	&dev_attr_subsystem_vendor.attr,
	&dev_attr_subsystem_device.attr,
	&dev_attr_class.attr,
	&dev_attr_revision.attr,
	&dev_attr_state.attr,
	&dev_attr_lender.attr,
	&dev_attr_bdf.attr,
	&dev_attr_borrowed_by.attr,
	&dev_attr_owner.attr,
	&dev_attr_frontend.attr,
	&dev_attr_virtual.attr,
	&dev_attr_numa_node.attr,
	NULL,
};
ATTRIBUTE_GROUPS(remote);

const struct bus_type pcilend_bus = {
	.name = "pcilend",
	.dev_groups = remote_groups,
};

bool pcilend_names_function(const uuid_t *uuid)
{
	return pcilend_uuid_is_ours(uuid->b);
}
EXPORT_SYMBOL_GPL(pcilend_names_function);

int pcilend_bus_register(void)
{
	int err = bus_register(&pcilend_bus);

	if (err)
		return err;
	pcilend_bus_root = root_device_register("pcilend");
	if (IS_ERR(pcilend_bus_root)) {
		bus_unregister(&pcilend_bus);
		return PTR_ERR(pcilend_bus_root);
	}
	return 0;
}

void pcilend_bus_unregister(void)
{
	root_device_unregister(pcilend_bus_root);
	bus_unregister(&pcilend_bus);
}
