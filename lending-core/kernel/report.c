// SPDX-License-Identifier: GPL-2.0-only
/* Links and functions as netlink attributes. */

#include <net/netlink.h>

#include "internal.h"

static int put_link_counters(struct sk_buff *skb, struct pcilend_link *link)
{
	struct pcilend_channel *ch = &link->channel;
	struct pcilend_aperture *ap = &link->aperture;
	u64 exports, slots;

	mutex_lock(&ap->lock);
	exports = ap->exports.allocated;
	slots = ap->slots.allocated;
	mutex_unlock(&ap->lock);

	return nla_put_u64_64bit(skb, PCILEND_LINK_A_TX_MESSAGES, atomic64_read(&ch->tx_messages),
				 PCILEND_LINK_A_PAD) ?:
	       nla_put_u64_64bit(skb, PCILEND_LINK_A_RX_MESSAGES, atomic64_read(&ch->rx_messages),
				 PCILEND_LINK_A_PAD) ?:
	       nla_put_u64_64bit(skb, PCILEND_LINK_A_BAD_MESSAGES, atomic64_read(&ch->bad_messages),
				 PCILEND_LINK_A_PAD) ?:
	       nla_put_u64_64bit(skb, PCILEND_LINK_A_TIMEOUTS, atomic64_read(&ch->timeouts),
				 PCILEND_LINK_A_PAD) ?:
	       nla_put_u64_64bit(skb, PCILEND_LINK_A_EXPORT_BYTES, exports, PCILEND_LINK_A_PAD) ?:
	       nla_put_u64_64bit(skb, PCILEND_LINK_A_SLOT_BYTES, slots, PCILEND_LINK_A_PAD);
}

/* Adds the nest PCILEND_A_LINK. Return: 0 or -EMSGSIZE. */
int pcilend_put_link(struct sk_buff *skb, struct pcilend_link *link)
{
	char reason[PCILEND_REASON_BYTES];
	enum pcilend_link_state state;
	bool peer_connected;
	struct nlattr *nest;
	u64 peer_boot;
	u16 peer_node;

	spin_lock(&link->state_lock);
	state = link->state;
	strscpy(reason, link->reason, sizeof(reason));
	peer_node = link->peer_node;
	peer_boot = link->peer_boot;
	peer_connected = link->peer_connected;
	spin_unlock(&link->state_lock);

	nest = nla_nest_start(skb, PCILEND_A_LINK);
	if (!nest)
		return -EMSGSIZE;
	if (nla_put_u32(skb, PCILEND_LINK_A_INDEX, link->index) ||
	    nla_put_string(skb, PCILEND_LINK_A_ADAPTER, pci_name(link->pdev)) ||
	    nla_put_string(skb, PCILEND_LINK_A_DRIVER, link->driver) ||
	    nla_put_u32(skb, PCILEND_LINK_A_STATE, state) ||
	    (*reason && nla_put_string(skb, PCILEND_LINK_A_REASON, reason)) ||
	    (peer_node && nla_put_u32(skb, PCILEND_LINK_A_PEER_NODE, peer_node)) ||
	    (peer_node && nla_put_u64_64bit(skb, PCILEND_LINK_A_PEER_BOOT_ID, peer_boot,
					    PCILEND_LINK_A_PAD)) ||
	    (peer_node && pcilend_lender_connected(peer_node) &&
	     nla_put_flag(skb, PCILEND_LINK_A_CONNECTED)) ||
	    (peer_connected && nla_put_flag(skb, PCILEND_LINK_A_PEER_CONNECTED)) ||
	    put_link_counters(skb, link)) {
		nla_nest_cancel(skb, nest);
		return -EMSGSIZE;
	}
	nla_nest_end(skb, nest);
	return 0;
}

static int put_bars(struct sk_buff *skb, const struct pcilend_msg_function *info)
{
	struct nlattr *nest;
	int i;

	for (i = 0; i < PCILEND_BARS; i++) {
		u64 size = le64_to_cpu(info->bar[i].size);

		if (!size)
			continue;
		nest = nla_nest_start(skb, PCILEND_FUNCTION_A_BAR);
		if (!nest ||
		    nla_put_u32(skb, PCILEND_BAR_A_INDEX, i) ||
		    nla_put_u64_64bit(skb, PCILEND_BAR_A_SIZE, size, PCILEND_BAR_A_PAD) ||
		    nla_put_u32(skb, PCILEND_BAR_A_FLAGS, le32_to_cpu(info->bar[i].flags)))
			return -EMSGSIZE;
		nla_nest_end(skb, nest);
	}
	return 0;
}

static int put_identity(struct sk_buff *skb, const struct pcilend_msg_function *info)
{
	u32 id = le32_to_cpu(info->id);
	char bdf[16];

	snprintf(bdf, sizeof(bdf), "%04x:%02x:%02x.%x", le16_to_cpu(info->segment), info->bus,
		 PCI_SLOT(info->devfn), PCI_FUNC(info->devfn));
	return nla_put_u32(skb, PCILEND_FUNCTION_A_ID, id) ?:
	       nla_put(skb, PCILEND_FUNCTION_A_UUID, sizeof(info->uuid), info->uuid) ?:
	       nla_put_u32(skb, PCILEND_FUNCTION_A_LENDER, pcilend_id_node(id)) ?:
	       nla_put_string(skb, PCILEND_FUNCTION_A_BDF, bdf) ?:
	       nla_put_u32(skb, PCILEND_FUNCTION_A_STATE, info->state) ?:
	       nla_put_u16(skb, PCILEND_FUNCTION_A_VENDOR, le16_to_cpu(info->vendor)) ?:
	       nla_put_u16(skb, PCILEND_FUNCTION_A_DEVICE, le16_to_cpu(info->device)) ?:
	       nla_put_u16(skb, PCILEND_FUNCTION_A_SUBSYSTEM_VENDOR,
			   le16_to_cpu(info->subsystem_vendor)) ?:
	       nla_put_u16(skb, PCILEND_FUNCTION_A_SUBSYSTEM_DEVICE,
			   le16_to_cpu(info->subsystem_device)) ?:
	       nla_put_u32(skb, PCILEND_FUNCTION_A_CLASS, le32_to_cpu(info->class_revision));
}

/* What only the lender knows. */
static int put_local(struct sk_buff *skb, const struct pcilend_report *report)
{
	if (report->reason && nla_put_string(skb, PCILEND_FUNCTION_A_REASON, report->reason))
		return -EMSGSIZE;
	if (*report->driver && nla_put_string(skb, PCILEND_FUNCTION_A_DRIVER, report->driver))
		return -EMSGSIZE;
	return nla_put_u32(skb, PCILEND_FUNCTION_A_RESETS, report->resets) ?:
	       nla_put_u64_64bit(skb, PCILEND_FUNCTION_A_FAULTS, report->faults,
				 PCILEND_FUNCTION_A_PAD);
}

/* What only its borrower knows. */
static int put_borrowed(struct sk_buff *skb, const struct pcilend_report *report)
{
	if (!*report->frontend)
		return 0;
	if (*report->virtual && nla_put_string(skb, PCILEND_FUNCTION_A_VIRTUAL, report->virtual))
		return -EMSGSIZE;
	return nla_put_string(skb, PCILEND_FUNCTION_A_FRONTEND, report->frontend) ?:
	       nla_put_string(skb, PCILEND_FUNCTION_A_OWNER, report->owner) ?:
	       nla_put_u64_64bit(skb, PCILEND_FUNCTION_A_GUEST_BYTES, report->guest_bytes,
				 PCILEND_FUNCTION_A_PAD) ?:
	       nla_put_u64_64bit(skb, PCILEND_FUNCTION_A_GUEST_MAP_US, report->guest_map_us,
				 PCILEND_FUNCTION_A_PAD);
}

/* Adds the nest PCILEND_A_FUNCTION. Return: 0 or -EMSGSIZE. */
int pcilend_put_function(struct sk_buff *skb, const struct pcilend_report *report)
{
	u32 borrower = le32_to_cpu(report->info.borrower);
	struct nlattr *nest;

	nest = nla_nest_start(skb, PCILEND_A_FUNCTION);
	if (!nest)
		return -EMSGSIZE;
	if (put_identity(skb, &report->info) ||
	    (borrower && nla_put_u32(skb, PCILEND_FUNCTION_A_BORROWER, borrower)) ||
	    (report->lease && nla_put_u32(skb, PCILEND_FUNCTION_A_LEASE, report->lease)) ||
	    put_bars(skb, &report->info) ||
	    (report->local ? put_local(skb, report) : put_borrowed(skb, report))) {
		nla_nest_cancel(skb, nest);
		return -EMSGSIZE;
	}
	nla_nest_end(skb, nest);
	return 0;
}
