// SPDX-License-Identifier: GPL-2.0-only
/* What the holder of a lease may ask: of the lender, and about the lease. */

#include <linux/module.h>
#include <linux/slab.h>

#include "borrower/borrower.h"

/*
 * The lease, for who holds no lock; 0: there is none any more. As long as there is a virtual
 * function, neither it nor its link changes.
 */
static u32 holder_lease(struct remote *r)
{
	return READ_ONCE(r->state) == REMOTE_HELD ? READ_ONCE(r->lease) : 0;
}

/* Asks the lender, over the link of the lease. */
static int holder_ask(struct remote *r, u16 type, const void *msg, struct pcilend_answer *answer)
{
	struct pcilend_link *link = remote_link(r);
	int err = pcilend_channel_request(link, type, msg, answer);

	pcilend_link_put(link);
	return err;
}

int pcilend_reset(struct pcilend_remote *remote)
{
	struct remote *r = to_remote(remote);
	const struct pcilend_msg_lease msg = {
		.id = cpu_to_le32(remote->id),
		.lease = cpu_to_le32(remote_held_lease(r)),
	};

	struct pcilend_link *link;
	int err;

	if (!msg.lease)
		return -ESTALE;
	link = remote_link(r);
	err = pcilend_channel_request_for(link, PCILEND_MSG_RESET, &msg, NULL, PCILEND_RESET_MS);
	pcilend_link_put(link);
	return err;
}

static struct pcilend_msg_bus_master holder_bus_master(struct remote *r, u32 lease, bool on)
{
	return (struct pcilend_msg_bus_master){
		.id = cpu_to_le32(r->pub.id),
		.lease = cpu_to_le32(lease),
		.on = cpu_to_le32(on),
	};
}

int pcilend_bus_master(struct pcilend_remote *remote, bool on)
{
	struct remote *r = to_remote(remote);
	const struct pcilend_msg_bus_master msg = holder_bus_master(r, remote_held_lease(r), on);

	return msg.lease ? holder_ask(r, PCILEND_MSG_BUS_MASTER, &msg, NULL) :
			   -ESTALE;
}

int remote_poll_bus_master(struct pcilend_remote *remote, bool on)
{
	struct remote *r = to_remote(remote);
	const struct pcilend_msg_bus_master msg = holder_bus_master(r, holder_lease(r), on);

	return msg.lease ? pcilend_channel_poll(r->link, PCILEND_MSG_BUS_MASTER, &msg) : -ESTALE;
}

int remote_intx_ask(struct pcilend_remote *remote, enum pcilend_intx_state state)
{
	struct remote *r = to_remote(remote);
	const struct pcilend_msg_intx msg = {
		.id = cpu_to_le32(remote->id),
		.lease = cpu_to_le32(remote_held_lease(r)),
		.state = cpu_to_le32(state),
	};

	return msg.lease ? holder_ask(r, PCILEND_MSG_INTX, &msg, NULL) :
			   -ESTALE;
}

void remote_intx_listen(struct pcilend_remote *remote, struct pcilend_virtual_intx *intx)
{
	struct remote *r = to_remote(remote);

	mutex_lock(&r->lock);
	r->intx = intx;
	mutex_unlock(&r->lock);
}

int remote_msi_ask(struct pcilend_remote *remote, u32 vector, u32 count, bool on, u64 *address,
		   u32 *data)
{
	struct remote *r = to_remote(remote);
	const struct pcilend_msg_msi msg = {
		.id = cpu_to_le32(remote->id),
		.lease = cpu_to_le32(remote_held_lease(r)),
		.vector = cpu_to_le32(vector),
		.count = cpu_to_le32(count),
		.on = cpu_to_le32(on),
	};
	struct pcilend_answer *answer __free(kfree) = kzalloc(sizeof(*answer), GFP_KERNEL);
	const struct pcilend_msg_msi_message *message;
	int err;

	if (!answer)
		return -ENOMEM;
	err = msg.lease ? holder_ask(r, PCILEND_MSG_MSI, &msg, answer) : -ESTALE;
	if (err || !on)
		return err;
	message = (const struct pcilend_msg_msi_message *)answer->payload;
	*address = le64_to_cpu(message->address);
	*data = le32_to_cpu(message->data);
	return 0;
}

void remote_msi_listen(struct pcilend_remote *remote, struct pcilend_virtual_relay *relay)
{
	struct remote *r = to_remote(remote);

	mutex_lock(&r->lock);
	r->relay = relay;
	mutex_unlock(&r->lock);
}

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
		err = holder_ask(r, PCILEND_MSG_CONFIG_READ, msg, answer);
		if (err)
			return err;
		memcpy(data + done, ((struct pcilend_msg_config *)answer->payload)->data, chunk);
	}
	return 0;
}

/* Return: 0; -EINVAL of what is no access to a register; -ESTALE without a lease. */
static int holder_config_write(struct remote *r, u32 lease, u32 offset, u32 value, size_t length,
			       struct pcilend_msg_config *msg)
{
	if ((length != 1 && length != 2 && length != 4) || offset % length ||
	    offset >= PCI_CFG_SPACE_EXP_SIZE)
		return -EINVAL;
	*msg = (struct pcilend_msg_config){
		.id = cpu_to_le32(r->pub.id),
		.lease = cpu_to_le32(lease),
		.offset = cpu_to_le16(offset),
		.length = cpu_to_le16(length),
	};
	put_unaligned_le32(value, msg->data);
	return lease ? 0 : -ESTALE;
}

int pcilend_config_write(struct pcilend_remote *remote, u32 offset, u32 value, size_t length)
{
	struct remote *r = to_remote(remote);
	struct pcilend_msg_config msg;

	return holder_config_write(r, remote_held_lease(r), offset, value, length, &msg) ?:
	       holder_ask(r, PCILEND_MSG_CONFIG_WRITE, &msg, NULL);
}

int remote_poll_config_write(struct pcilend_remote *remote, u32 offset, u32 value, size_t length)
{
	struct remote *r = to_remote(remote);
	struct pcilend_msg_config msg;

	return holder_config_write(r, holder_lease(r), offset, value, length, &msg) ?:
	       pcilend_channel_poll(r->link, PCILEND_MSG_CONFIG_WRITE, &msg);
}

int pcilend_map(struct pcilend_remote *remote, u64 device_address, u64 iova, u64 size)
{
	struct remote *r = to_remote(remote);
	struct pcilend_msg_map msg = {
		.id = cpu_to_le32(remote->id),
		.lease = cpu_to_le32(remote_held_lease(r)),
		.device_address = cpu_to_le64(device_address),
		.size = cpu_to_le64(size),
	};
	struct pcilend_link *link;
	u32 window;
	u64 offset;
	int err;

	if (!msg.lease)
		return -ESTALE;
	link = remote_link(r);
	err = pcilend_aperture_locate(link, iova, size, &window, &offset);
	pcilend_link_put(link);
	if (err)
		return err;
	msg.window = cpu_to_le32(window);
	msg.offset = cpu_to_le64(offset);
	return holder_ask(r, PCILEND_MSG_MAP, &msg, NULL);
}

int pcilend_unmap(struct pcilend_remote *remote, u64 device_address, u64 size)
{
	struct remote *r = to_remote(remote);
	const struct pcilend_msg_map msg = {
		.id = cpu_to_le32(remote->id),
		.lease = cpu_to_le32(remote_held_lease(r)),
		.device_address = cpu_to_le64(device_address),
		.size = cpu_to_le64(size),
	};

	return msg.lease ? holder_ask(r, PCILEND_MSG_UNMAP, &msg, NULL) :
			   -ESTALE;
}

struct pci_dev *pcilend_remote_virtual(struct pcilend_remote *remote)
{
	struct remote *r = to_remote(remote);
	struct pci_dev *pdev = NULL;

	mutex_lock(&r->lock);
	if (r->virtual)
		pdev = pcilend_virtual_pci(r->virtual);
	mutex_unlock(&r->lock);
	return pdev;
}
EXPORT_SYMBOL_GPL(pcilend_remote_virtual);

void pcilend_dma_area(struct pcilend_remote *remote, u64 *iova, u64 *size)
{
	*iova = 0;
	*size = to_remote(remote)->link->aperture.layout.dma_limit;
}
EXPORT_SYMBOL_GPL(pcilend_dma_area);

void pcilend_dma_unmapped(struct pcilend_remote *remote)
{
	pcilend_aperture_unmapped(to_remote(remote)->link);
}
EXPORT_SYMBOL_GPL(pcilend_dma_unmapped);

u64 pcilend_dma_base(struct pcilend_remote *remote)
{
	return READ_ONCE(to_remote(remote)->dma_base);
}
EXPORT_SYMBOL_GPL(pcilend_dma_base);
