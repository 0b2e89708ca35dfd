// SPDX-License-Identifier: GPL-2.0-only
/* What the holder of a lease may ask: of the lender, and about the lease. */

#include <linux/module.h>
#include <linux/slab.h>

#include "borrower.h"

int pcilend_reset(struct pcilend_remote *remote)
{
	struct remote *r = to_remote(remote);
	const struct pcilend_msg_lease msg = {
		.id = cpu_to_le32(remote->id),
		.lease = cpu_to_le32(remote_held_lease(r)),
	};

	return msg.lease ? pcilend_channel_request(r->link, PCILEND_MSG_RESET, &msg, NULL) :
			   -ESTALE;
}
EXPORT_SYMBOL_GPL(pcilend_reset);

int pcilend_bus_master(struct pcilend_remote *remote, bool on)
{
	struct remote *r = to_remote(remote);
	const struct pcilend_msg_bus_master msg = {
		.id = cpu_to_le32(remote->id),
		.lease = cpu_to_le32(remote_held_lease(r)),
		.on = cpu_to_le32(on),
	};

	return msg.lease ? pcilend_channel_request(r->link, PCILEND_MSG_BUS_MASTER, &msg, NULL) :
			   -ESTALE;
}
EXPORT_SYMBOL_GPL(pcilend_bus_master);

int pcilend_config_read(struct pcilend_remote *remote, u32 offset, void *data, size_t length)
{
	struct remote *r = to_remote(remote);
	struct pcilend_answer *answer __free(kfree) = kmalloc(sizeof(*answer), GFP_KERNEL);
	struct pcilend_msg_config *msg __free(kfree) = kzalloc(sizeof(*msg), GFP_KERNEL);
	size_t done, chunk;
	int err;

	if (!answer || !msg)
		return -ENOMEM;
	if (offset > PCI_CFG_SPACE_EXP_SIZE || length > PCI_CFG_SPACE_EXP_SIZE - offset)
		return -ERANGE;
	for (done = 0; done < length; done += chunk) {
		chunk = min_t(size_t, length - done, PCILEND_CONFIG_CHUNK);
		msg->id = cpu_to_le32(remote->id);
		msg->lease = cpu_to_le32(remote_held_lease(r));
		msg->offset = cpu_to_le16(offset + done);
		msg->length = cpu_to_le16(chunk);
		if (!msg->lease)
			return -ESTALE;
		err = pcilend_channel_request(r->link, PCILEND_MSG_CONFIG_READ, msg, answer);
		if (err)
			return err;
		memcpy(data + done, ((struct pcilend_msg_config *)answer->payload)->data, chunk);
	}
	return 0;
}
EXPORT_SYMBOL_GPL(pcilend_config_read);

int pcilend_config_write(struct pcilend_remote *remote, u32 offset, u32 value, size_t length)
{
	struct remote *r = to_remote(remote);
	struct pcilend_msg_config msg = {
		.id = cpu_to_le32(remote->id),
		.lease = cpu_to_le32(remote_held_lease(r)),
		.offset = cpu_to_le16(offset),
		.length = cpu_to_le16(length),
	};

	if ((length != 1 && length != 2 && length != 4) || offset % length ||
	    offset >= PCI_CFG_SPACE_EXP_SIZE)
		return -EINVAL;
	put_unaligned_le32(value, msg.data);
	return msg.lease ? pcilend_channel_request(r->link, PCILEND_MSG_CONFIG_WRITE, &msg, NULL) :
			   -ESTALE;
}
EXPORT_SYMBOL_GPL(pcilend_config_write);

int pcilend_map(struct pcilend_remote *remote, u64 device_address, u64 iova, u64 size)
{
	struct remote *r = to_remote(remote);
	struct pcilend_msg_map msg = {
		.id = cpu_to_le32(remote->id),
		.lease = cpu_to_le32(remote_held_lease(r)),
		.device_address = cpu_to_le64(device_address),
		.size = cpu_to_le64(size),
	};
	u32 window;
	u64 offset;
	int err;

	if (!msg.lease)
		return -ESTALE;
	err = pcilend_aperture_locate(r->link, iova, size, &window, &offset);
	if (err)
		return err;
	msg.window = cpu_to_le32(window);
	msg.offset = cpu_to_le64(offset);
	return pcilend_channel_request(r->link, PCILEND_MSG_MAP, &msg, NULL);
}
EXPORT_SYMBOL_GPL(pcilend_map);

int pcilend_unmap(struct pcilend_remote *remote, u64 device_address, u64 size)
{
	struct remote *r = to_remote(remote);
	const struct pcilend_msg_map msg = {
		.id = cpu_to_le32(remote->id),
		.lease = cpu_to_le32(remote_held_lease(r)),
		.device_address = cpu_to_le64(device_address),
		.size = cpu_to_le64(size),
	};

	return msg.lease ? pcilend_channel_request(r->link, PCILEND_MSG_UNMAP, &msg, NULL) :
			   -ESTALE;
}
EXPORT_SYMBOL_GPL(pcilend_unmap);

int pcilend_config_init(struct pcilend_remote *remote, struct pcilend_vconfig *config)
{
	struct remote *r = to_remote(remote);
	int err = -ESTALE;

	mutex_lock(&r->lock);
	if (r->config) {
		*config = *r->config;
		err = 0;
	}
	mutex_unlock(&r->lock);
	return err;
}
EXPORT_SYMBOL_GPL(pcilend_config_init);

struct pci_dev *pcilend_remote_virtual(struct pcilend_remote *remote)
{
	struct remote *r = to_remote(remote);
	struct pci_dev *pdev = NULL;

	mutex_lock(&r->lock);
	if (r->virtual)
		pdev = pci_dev_get(pcilend_virtual_pci(r->virtual));
	mutex_unlock(&r->lock);
	return pdev;
}
EXPORT_SYMBOL_GPL(pcilend_remote_virtual);

u32 pcilend_remote_lease(struct pcilend_remote *remote, char *owner)
{
	struct remote *r = to_remote(remote);
	u32 lease;

	mutex_lock(&r->lock);
	lease = r->state == REMOTE_HELD ? r->lease : 0;
	if (owner)
		strscpy(owner, r->owner, PCILEND_OWNER_BYTES);
	mutex_unlock(&r->lock);
	return lease;
}
EXPORT_SYMBOL_GPL(pcilend_remote_lease);

int pcilend_bar(struct pcilend_remote *remote, unsigned int bar, phys_addr_t *address,
		resource_size_t *size)
{
	struct remote *r = to_remote(remote);
	int err = 0;

	if (bar >= ARRAY_SIZE(r->bar))
		return -ENOENT;
	mutex_lock(&r->lock);
	if (r->state != REMOTE_HELD) {
		err = -ESTALE;
	} else if (!r->bar[bar].size) {
		err = -ENOENT;
	} else {
		*address = r->bar[bar].address;
		*size = r->bar[bar].size;
	}
	mutex_unlock(&r->lock);
	return err;
}
EXPORT_SYMBOL_GPL(pcilend_bar);

int pcilend_slot_get(struct pcilend_remote *remote, u64 size, u64 *iova)
{
	struct remote *r = to_remote(remote);
	struct remote_slot *slot = kzalloc(sizeof(*slot), GFP_KERNEL);
	int err;

	if (!slot)
		return -ENOMEM;
	err = pcilend_aperture_slot_get(r->link, size, &slot->iova);
	if (err) {
		kfree(slot);
		return err;
	}
	slot->size = size;
	*iova = slot->iova;
	mutex_lock(&r->lock);
	list_add_tail(&slot->node, &r->slots);
	mutex_unlock(&r->lock);
	return 0;
}
EXPORT_SYMBOL_GPL(pcilend_slot_get);

/* A range that the function may still write to is kept until the lender has stopped it. */
void pcilend_slot_put(struct pcilend_remote *remote, u64 iova, u64 size)
{
	struct remote *r = to_remote(remote);
	struct remote_slot *slot;
	bool found = false;

	mutex_lock(&r->lock);
	list_for_each_entry(slot, &r->slots, node) {
		if (slot->iova == iova && slot->size == size && !slot->free) {
			slot->free = true;
			found = true;
			break;
		}
	}
	if (r->state != REMOTE_RETURNING && !(r->state == REMOTE_LOST && !r->fenced))
		remote_drop_slots(r, false);
	mutex_unlock(&r->lock);
	WARN_ON(!found);
}
EXPORT_SYMBOL_GPL(pcilend_slot_put);

struct iommu_domain *pcilend_aperture(struct pcilend_remote *remote)
{
	return to_remote(remote)->link->aperture.domain;
}
EXPORT_SYMBOL_GPL(pcilend_aperture);

void pcilend_report_guest_memory(struct pcilend_remote *remote, u64 bytes, u64 microseconds)
{
	struct remote *r = to_remote(remote);

	mutex_lock(&r->lock);
	r->guest_bytes = bytes;
	r->guest_map_us = microseconds;
	mutex_unlock(&r->lock);
	pcilend_changed();
}
EXPORT_SYMBOL_GPL(pcilend_report_guest_memory);
