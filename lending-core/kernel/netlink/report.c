// SPDX-License-Identifier: GPL-2.0-only
/* Links and functions as netlink attributes. */

#include <net/netlink.h>

#include "netlink/netlink.h"

static int report_put_link_counters(struct sk_buff *skb, struct pcilend_link *link)
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

static int report_put_window(struct sk_buff *skb, const struct pcilend_aperture *ap, unsigned int i)
{
	struct nlattr *nest = nla_nest_start(skb, PCILEND_LINK_A_WINDOW);

	if (!nest || nla_put_u32(skb, PCILEND_WINDOW_A_INDEX, i) ||
	    nla_put_u64_64bit(skb, PCILEND_WINDOW_A_SIZE, ap->window[i].size,
			      PCILEND_WINDOW_A_PAD) ||
	    nla_put_u64_64bit(skb, PCILEND_WINDOW_A_SIZE_MAX, ap->rule[i].size_max,
			      PCILEND_WINDOW_A_PAD) ||
	    nla_put_u64_64bit(skb, PCILEND_WINDOW_A_ADDRESS_ALIGN, ap->rule[i].addr_align,
			      PCILEND_WINDOW_A_PAD) ||
	    nla_put_u64_64bit(skb, PCILEND_WINDOW_A_SIZE_ALIGN, ap->rule[i].size_align,
			      PCILEND_WINDOW_A_PAD))
		return -EMSGSIZE;
	nla_nest_end(skb, nest);
	return 0;
}

/* @used: NULL where it is not counted. */
static int report_put_region(struct sk_buff *skb, u32 kind,
			     const struct pcilend_layout_region *region, const u64 *used)
{
	struct nlattr *nest;

	if (!region->size)
		return 0;
	nest = nla_nest_start(skb, PCILEND_LINK_A_REGION);
	if (!nest || nla_put_u32(skb, PCILEND_REGION_A_KIND, kind) ||
	    nla_put_u64_64bit(skb, PCILEND_REGION_A_IOVA, region->iova, PCILEND_REGION_A_PAD) ||
	    nla_put_u64_64bit(skb, PCILEND_REGION_A_SIZE, region->size, PCILEND_REGION_A_PAD) ||
	    nla_put_u32(skb, PCILEND_REGION_A_WINDOW, region->window) ||
	    (used && nla_put_u64_64bit(skb, PCILEND_REGION_A_USED, *used, PCILEND_REGION_A_PAD)))
		return -EMSGSIZE;
	nla_nest_end(skb, nest);
	return 0;
}

static int report_put_plan(struct sk_buff *skb, struct pcilend_link *link)
{
	struct pcilend_aperture *ap = &link->aperture;
	const struct pcilend_layout *layout = &ap->layout;
	struct pcilend_layout_region dma = {
		.size = layout->dma_limit,
		.window = layout->dma_window,
	};
	unsigned int i;
	u64 exports, slots;

	for (i = 0; i < ap->windows; i++) {
		if (report_put_window(skb, ap, i))
			return -EMSGSIZE;
	}
	if (!READ_ONCE(ap->open))
		return 0;
	mutex_lock(&ap->lock);
	exports = ap->exports.allocated;
	slots = ap->slots.allocated;
	mutex_unlock(&ap->lock);
	for (i = 0; i < PCILEND_DEGRADED_BITS; i++) {
		if (layout->degraded & BIT(i) &&
		    nla_put_string(skb, PCILEND_LINK_A_DEGRADED,
				   pcilend_layout_degraded_text(BIT(i))))
			return -EMSGSIZE;
	}
	return report_put_region(skb, PCILEND_REGION_DMA, &dma, NULL) ?:
	       report_put_region(skb, PCILEND_REGION_INTERRUPTS, &layout->interrupts, NULL) ?:
	       report_put_region(skb, PCILEND_REGION_EXPORTS, &layout->exports, &exports) ?:
	       report_put_region(skb, PCILEND_REGION_SLOTS, &layout->slots, &slots);
}

/*
 * Adds the nest PCILEND_A_LINK. Return: 0 or -EMSGSIZE.
 * @trusted: the reader is an administrator. Boot ids vouch for links (docs/decisions/0009): nobody
 * else is told them.
 */
int pcilend_put_link(struct sk_buff *skb, struct pcilend_link *link, bool trusted)
{
	char reason[PCILEND_REASON_BYTES];
	enum pcilend_link_state state;
	u64 peer_boot, peer_hole, losses;
	u32 pinned = pcilend_pinned(link);
	u32 entries, used, lent;
	bool peer_connected;
	struct nlattr *nest;
	u16 peer_node;

	pcilend_requesters_count(link, &entries, &used, &lent);
	spin_lock(&link->state_lock);
	state = link->state;
	strscpy(reason, link->reason, sizeof(reason));
	peer_node = link->peer_node;
	peer_boot = link->peer_boot;
	peer_connected = link->peer_connected;
	peer_hole = link->hello.heard ? link->hello.peer.hole : 0;
	spin_unlock(&link->state_lock);
	losses = pcilend_link_losses(link);

	nest = nla_nest_start(skb, PCILEND_A_LINK);
	if (!nest)
		return -EMSGSIZE;
	if (nla_put_u32(skb, PCILEND_LINK_A_INDEX, link->index) ||
	    nla_put_string(skb, PCILEND_LINK_A_ADAPTER, pci_name(link->pdev)) ||
	    nla_put_string(skb, PCILEND_LINK_A_DRIVER, link->driver) ||
	    nla_put_u32(skb, PCILEND_LINK_A_STATE, state) ||
	    (*reason && nla_put_string(skb, PCILEND_LINK_A_REASON, reason)) ||
	    (peer_node && nla_put_u32(skb, PCILEND_LINK_A_PEER_NODE, peer_node)) ||
	    (peer_node && trusted &&
	     nla_put_u64_64bit(skb, PCILEND_LINK_A_PEER_BOOT_ID, peer_boot,
			       PCILEND_LINK_A_PAD)) ||
	    nla_put_u64_64bit(skb, PCILEND_LINK_A_HOLE, link->hole, PCILEND_LINK_A_PAD) ||
	    (peer_hole && nla_put_u64_64bit(skb, PCILEND_LINK_A_PEER_HOLE, peer_hole,
					    PCILEND_LINK_A_PAD)) ||
	    (peer_node && pcilend_lender_connected(peer_node) &&
	     nla_put_flag(skb, PCILEND_LINK_A_CONNECTED)) ||
	    (peer_connected && nla_put_flag(skb, PCILEND_LINK_A_PEER_CONNECTED)) ||
	    nla_put_u32(skb, PCILEND_LINK_A_LEASE_MS, pcilend_lease_ms) ||
	    nla_put_u64_64bit(skb, PCILEND_LINK_A_DOWNS, losses, PCILEND_LINK_A_PAD) ||
	    (pinned && nla_put_u32(skb, PCILEND_LINK_A_PINNED, pinned)) ||
	    nla_put_u32(skb, PCILEND_LINK_A_LEASES, atomic_read(&link->leases)) ||
	    (link->aperture.direct && link->usable &&
	     nla_put_flag(skb, PCILEND_LINK_A_DIRECT)) ||
	    (entries && (nla_put_u32(skb, PCILEND_LINK_A_REQUESTERS, entries) ||
			 nla_put_u32(skb, PCILEND_LINK_A_REQUESTERS_USED, used) ||
			 nla_put_u32(skb, PCILEND_LINK_A_REQUESTERS_LENT, lent))) ||
	    report_put_link_counters(skb, link) || report_put_plan(skb, link)) {
		nla_nest_cancel(skb, nest);
		return -EMSGSIZE;
	}
	nla_nest_end(skb, nest);
	return 0;
}

static int report_put_bars(struct sk_buff *skb, const struct pcilend_msg_function *info)
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

static int report_put_bdf(struct sk_buff *skb, int attribute, u16 segment, u8 bus, u8 devfn)
{
	char bdf[16];

	snprintf(bdf, sizeof(bdf), "%04x:%02x:%02x.%x", segment, bus, PCI_SLOT(devfn),
		 PCI_FUNC(devfn));
	return nla_put_string(skb, attribute, bdf);
}

static int report_put_identity(struct sk_buff *skb, const struct pcilend_msg_function *info)
{
	u32 id = le32_to_cpu(info->id);

	return nla_put_u32(skb, PCILEND_FUNCTION_A_ID, id) ?:
	       nla_put(skb, PCILEND_FUNCTION_A_UUID, sizeof(info->uuid), info->uuid) ?:
	       nla_put_u32(skb, PCILEND_FUNCTION_A_LENDER, pcilend_id_node(id)) ?:
	       report_put_bdf(skb, PCILEND_FUNCTION_A_BDF, le16_to_cpu(info->segment), info->bus,
			      info->devfn) ?:
	       nla_put_u32(skb, PCILEND_FUNCTION_A_STATE, info->state) ?:
	       nla_put_u16(skb, PCILEND_FUNCTION_A_VENDOR, le16_to_cpu(info->vendor)) ?:
	       nla_put_u16(skb, PCILEND_FUNCTION_A_DEVICE, le16_to_cpu(info->device)) ?:
	       nla_put_u16(skb, PCILEND_FUNCTION_A_SUBSYSTEM_VENDOR,
			   le16_to_cpu(info->subsystem_vendor)) ?:
	       nla_put_u16(skb, PCILEND_FUNCTION_A_SUBSYSTEM_DEVICE,
			   le16_to_cpu(info->subsystem_device)) ?:
	       nla_put_u32(skb, PCILEND_FUNCTION_A_CLASS, le32_to_cpu(info->class_revision));
}

/* Who knows a domain's UUID borrows what is reserved for it (docs/decisions/0007). */
static int report_put_reserved(struct sk_buff *skb, const struct pcilend_report *report,
			       bool trusted)
{
	if (!report->reserved_ms)
		return 0;
	if (!report->info.reserved_node && trusted &&
	    nla_put(skb, PCILEND_FUNCTION_A_RESERVED_UUID, sizeof(report->reserved_uuid),
		    report->reserved_uuid))
		return -EMSGSIZE;
	return nla_put_u32(skb, PCILEND_FUNCTION_A_RESERVED_MS, report->reserved_ms);
}

static int report_put_allowed(struct sk_buff *skb, const struct pcilend_access *access)
{
	struct nlattr *attr;
	u32 i, node;

	if (!access->restricted)
		return 0;
	attr = nla_reserve(skb, PCILEND_FUNCTION_A_ALLOWED, access->count * sizeof(node));
	if (!attr)
		return -EMSGSIZE;
	for (i = 0; i < access->count; i++) {
		node = access->node[i];
		memcpy(nla_data(attr) + i * sizeof(node), &node, sizeof(node));
	}
	return 0;
}

static int report_put_members(struct sk_buff *skb, const struct pcilend_report *report)
{
	u32 i;

	for (i = 0; i < report->members; i++) {
		const struct pcilend_report_member *member = &report->member[i];
		struct nlattr *nest = nla_nest_start(skb, PCILEND_FUNCTION_A_MEMBER);

		if (!nest ||
		    report_put_bdf(skb, PCILEND_MEMBER_A_BDF, member->segment, member->bus,
				   member->devfn) ||
		    (member->id && nla_put_u32(skb, PCILEND_MEMBER_A_ID, member->id)) ||
		    nla_put_u32(skb, PCILEND_MEMBER_A_STATE, member->state))
			return -EMSGSIZE;
		nla_nest_end(skb, nest);
	}
	return 0;
}

static int report_put_clients(struct sk_buff *skb, const struct pcilend_report *report)
{
	u32 i;

	for (i = 0; i < report->clients; i++) {
		struct nlattr *nest = nla_nest_start(skb, PCILEND_FUNCTION_A_CLIENT);

		if (!nest ||
		    nla_put_u32(skb, PCILEND_CLIENT_A_LEASE, report->client[i].lease) ||
		    nla_put_u32(skb, PCILEND_CLIENT_A_NODE, report->client[i].node) ||
		    nla_put_u32(skb, PCILEND_CLIENT_A_STATE, report->client[i].state))
			return -EMSGSIZE;
		nla_nest_end(skb, nest);
	}
	return 0;
}

/* What only the lender knows. */
static int report_put_local(struct sk_buff *skb, const struct pcilend_report *report, bool trusted)
{
	if (report->group >= 0 && nla_put_u32(skb, PCILEND_FUNCTION_A_GROUP, report->group))
		return -EMSGSIZE;
	if (report->lease_ms && nla_put_u32(skb, PCILEND_FUNCTION_A_LEASE_MS, report->lease_ms))
		return -EMSGSIZE;
	if (report->lease_left_ms != U64_MAX &&
	    nla_put_u32(skb, PCILEND_FUNCTION_A_LEASE_LEFT_MS, report->lease_left_ms))
		return -EMSGSIZE;
	if (report_put_members(skb, report) || report_put_allowed(skb, &report->access) ||
	    report_put_reserved(skb, report, trusted) || report_put_clients(skb, report))
		return -EMSGSIZE;
	if (*report->driver && nla_put_string(skb, PCILEND_FUNCTION_A_DRIVER, report->driver))
		return -EMSGSIZE;
	/* A process of this host has it: its owner is told to whom report_put_borrowed() does. */
	if (*report->frontend &&
	    (nla_put_string(skb, PCILEND_FUNCTION_A_FRONTEND, report->frontend) ||
	     (trusted && nla_put_string(skb, PCILEND_FUNCTION_A_OWNER, report->owner))))
		return -EMSGSIZE;
	if ((report->sanitize && nla_put_flag(skb, PCILEND_FUNCTION_A_SANITIZE)) ||
	    (report->dirty && nla_put_flag(skb, PCILEND_FUNCTION_A_DIRTY)))
		return -EMSGSIZE;
	if (nla_put_u64_64bit(skb, PCILEND_FUNCTION_A_NEAR, report->near, PCILEND_FUNCTION_A_PAD) ||
	    (report->near_used &&
	     nla_put_u64_64bit(skb, PCILEND_FUNCTION_A_NEAR_USED, report->near_used,
			       PCILEND_FUNCTION_A_PAD)))
		return -EMSGSIZE;
	return nla_put_u32(skb, PCILEND_FUNCTION_A_RESETS, report->resets) ?:
	       nla_put_u64_64bit(skb, PCILEND_FUNCTION_A_FAULTS, report->faults,
				 PCILEND_FUNCTION_A_PAD);
}

/*
 * What nodes that may borrow it know, and its borrower only. The owner may be the UUID of a domain,
 * which lets in whoever knows it.
 */
static int report_put_borrowed(struct sk_buff *skb, const struct pcilend_report *report,
			       bool trusted)
{
	u32 set = le32_to_cpu(report->info.set);
	int i;

	if (set && nla_put_u32(skb, PCILEND_FUNCTION_A_GROUP, set - 1))
		return -EMSGSIZE;
	for (i = 0; i < PCILEND_PATHS && *report->path[i]; i++) {
		if (nla_put_string(skb, PCILEND_FUNCTION_A_PATH, report->path[i]))
			return -EMSGSIZE;
	}
	if (!*report->frontend)
		return 0;
	if (report->reaches && nla_put(skb, PCILEND_FUNCTION_A_REACHES,
				       report->reaches * sizeof(report->reach[0]), report->reach))
		return -EMSGSIZE;
	if (*report->virtual && nla_put_string(skb, PCILEND_FUNCTION_A_VIRTUAL, report->virtual))
		return -EMSGSIZE;
	if (*report->driver && nla_put_string(skb, PCILEND_FUNCTION_A_DRIVER, report->driver))
		return -EMSGSIZE;
	if (trusted && nla_put_string(skb, PCILEND_FUNCTION_A_OWNER, report->owner))
		return -EMSGSIZE;
	return nla_put_string(skb, PCILEND_FUNCTION_A_FRONTEND, report->frontend) ?:
	       nla_put_u64_64bit(skb, PCILEND_FUNCTION_A_GUEST_BYTES, report->guest_bytes,
				 PCILEND_FUNCTION_A_PAD);
}

/*
 * Adds the nest PCILEND_A_FUNCTION. Return: 0 or -EMSGSIZE.
 * @trusted: the reader is an administrator
 */
int pcilend_put_function(struct sk_buff *skb, const struct pcilend_report *report, bool trusted)
{
	u32 borrower = le32_to_cpu(report->info.borrower);
	u32 reserved = le32_to_cpu(report->info.reserved_node);
	const char *label = (const char *)report->info.label;
	struct nlattr *nest;

	nest = nla_nest_start(skb, PCILEND_A_FUNCTION);
	if (!nest)
		return -EMSGSIZE;
	if (report_put_identity(skb, &report->info) ||
	    (borrower && nla_put_u32(skb, PCILEND_FUNCTION_A_BORROWER, borrower)) ||
	    (report->lease && nla_put_u32(skb, PCILEND_FUNCTION_A_LEASE, report->lease)) ||
	    (report->reason && nla_put_string(skb, PCILEND_FUNCTION_A_REASON, report->reason)) ||
	    (*label && nla_put_string(skb, PCILEND_FUNCTION_A_LABEL, label)) ||
	    (*report->adapter &&
	     nla_put_string(skb, PCILEND_FUNCTION_A_ADAPTER, report->adapter)) ||
	    (reserved && nla_put_u32(skb, PCILEND_FUNCTION_A_RESERVED_NODE, reserved)) ||
	    (report->recall_ms != U64_MAX &&
	     nla_put_u32(skb, PCILEND_FUNCTION_A_RECALL_MS, report->recall_ms)) ||
	    (report->info.flags & PCILEND_FUNCTION_DIRECT &&
	     nla_put_flag(skb, PCILEND_FUNCTION_A_DIRECT)) ||
	    (report->relayed && nla_put_flag(skb, PCILEND_FUNCTION_A_RELAYED)) ||
	    (report->info.flags & PCILEND_FUNCTION_SHARED &&
	     nla_put_flag(skb, PCILEND_FUNCTION_A_SHARED)) ||
	    report_put_bars(skb, &report->info) ||
	    (report->local ? report_put_local(skb, report, trusted)
			   : report_put_borrowed(skb, report, trusted))) {
		nla_nest_cancel(skb, nest);
		return -EMSGSIZE;
	}
	nla_nest_end(skb, nest);
	return 0;
}

/* Adds the nest PCILEND_A_COUNTERS. Return: 0 or -EMSGSIZE. */
int pcilend_put_counters(struct sk_buff *skb)
{
	struct nlattr *nest = nla_nest_start(skb, PCILEND_A_COUNTERS);
	int i;

	if (!nest)
		return -EMSGSIZE;
	for (i = 1; i <= PCILEND_COUNTER_A_MAX; i++) {
		if (i != PCILEND_COUNTER_A_PAD &&
		    nla_put_u64_64bit(skb, i, atomic64_read(&pcilend_counters[i]),
				      PCILEND_COUNTER_A_PAD))
			return -EMSGSIZE;
	}
	nla_nest_end(skb, nest);
	return 0;
}

/* Adds the nest PCILEND_A_AUDIT. Return: 0 or -EMSGSIZE. */
int pcilend_put_audit(struct sk_buff *skb, const struct pcilend_audit *audit)
{
	struct nlattr *nest = nla_nest_start(skb, PCILEND_A_AUDIT);

	if (!nest ||
	    nla_put_u64_64bit(skb, PCILEND_AUDIT_A_TIME, ktime_get_real_ns(),
			      PCILEND_AUDIT_A_PAD) ||
	    nla_put_u32(skb, audit->node ? PCILEND_AUDIT_A_NODE : PCILEND_AUDIT_A_UID,
			audit->node ?: audit->uid) ||
	    nla_put_string(skb, PCILEND_AUDIT_A_ACTION, audit->action) ||
	    (audit->function && nla_put_u32(skb, PCILEND_AUDIT_A_FUNCTION, audit->function)) ||
	    (audit->target &&
	     nla_put_u32(skb, audit->target > PCILEND_NODE_MAX ? PCILEND_AUDIT_A_TARGET :
			 PCILEND_AUDIT_A_TARGET_NODE, audit->target)) ||
	    nla_put_s32(skb, PCILEND_AUDIT_A_RESULT, audit->result))
		return -EMSGSIZE;
	nla_nest_end(skb, nest);
	return 0;
}
