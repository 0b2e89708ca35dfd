// SPDX-License-Identifier: GPL-2.0-only
/*
 * The generic-netlink family: lending-core/netlink/pcilend.yaml documents it. Operations run in
 * parallel: what they call has its own locks, and a borrow may wait for a peer.
 */

#include <net/genetlink.h>

#include "netlink/netlink.h"

static struct genl_family family;

static const struct nla_policy node_policy[PCILEND_A_MAX + 1] = {
	[PCILEND_A_NODE_ID] = { .type = NLA_U32 },
};

static const struct nla_policy connect_policy[PCILEND_A_MAX + 1] = {
	[PCILEND_A_NODE_ID] = { .type = NLA_U32 },
	[PCILEND_A_ADAPTER] = { .type = NLA_NUL_STRING, .len = 31 },
};

static const struct nla_policy bdf_policy[PCILEND_A_MAX + 1] = {
	[PCILEND_A_BDF] = { .type = NLA_NUL_STRING, .len = 31 },
};

static const struct nla_policy add_policy[PCILEND_A_MAX + 1] = {
	[PCILEND_A_BDF] = { .type = NLA_NUL_STRING, .len = 31 },
	[PCILEND_A_ID] = { .type = NLA_U32 },
	[PCILEND_A_LABEL] = { .type = NLA_NUL_STRING, .len = PCILEND_LABEL_BYTES - 1 },
	[PCILEND_A_NODES] = { .type = NLA_BINARY },
};

static const struct nla_policy config_policy[PCILEND_A_MAX + 1] = {
	[PCILEND_A_ID] = { .type = NLA_U32 },
	[PCILEND_A_EMULATED] = { .type = NLA_FLAG },
};

static const struct nla_policy available_policy[PCILEND_A_MAX + 1] = {
	[PCILEND_A_BDF] = { .type = NLA_NUL_STRING, .len = 31 },
	[PCILEND_A_DIRECT] = { .type = NLA_FLAG },
	[PCILEND_A_SANITIZE] = { .type = NLA_FLAG },
	[PCILEND_A_SANITIZED] = { .type = NLA_FLAG },
	[PCILEND_A_NEAR] = { .type = NLA_U64 },
};

static const struct nla_policy unavailable_policy[PCILEND_A_MAX + 1] = {
	[PCILEND_A_BDF] = { .type = NLA_NUL_STRING, .len = 31 },
	[PCILEND_A_FORCE] = { .type = NLA_FLAG },
};

static const struct nla_policy reserve_policy[PCILEND_A_MAX + 1] = {
	[PCILEND_A_ID] = { .type = NLA_U32 },
	[PCILEND_A_RESERVED_NODE] = { .type = NLA_U32 },
	[PCILEND_A_RESERVED_UUID] = NLA_POLICY_EXACT_LEN(16),
	[PCILEND_A_TTL_MS] = { .type = NLA_U32 },
};

static const struct nla_policy recall_policy[PCILEND_A_MAX + 1] = {
	[PCILEND_A_BDF] = { .type = NLA_NUL_STRING, .len = 31 },
	[PCILEND_A_GRACE_MS] = { .type = NLA_U32 },
};

static const struct nla_policy allow_policy[PCILEND_A_MAX + 1] = {
	[PCILEND_A_BDF] = { .type = NLA_NUL_STRING, .len = 31 },
	[PCILEND_A_NODES] = { .type = NLA_BINARY },
};

static const struct nla_policy label_policy[PCILEND_A_MAX + 1] = {
	[PCILEND_A_BDF] = { .type = NLA_NUL_STRING, .len = 31 },
	[PCILEND_A_LABEL] = { .type = NLA_NUL_STRING, .len = PCILEND_LABEL_BYTES - 1 },
};

static const struct nla_policy get_policy[PCILEND_A_MAX + 1] = {
	[PCILEND_A_ID] = { .type = NLA_U32 },
	[PCILEND_A_BDF] = { .type = NLA_NUL_STRING, .len = 31 },
};

static const struct nla_policy borrow_policy[PCILEND_A_MAX + 1] = {
	[PCILEND_A_ID] = { .type = NLA_U32 },
	[PCILEND_A_FRONTEND] = { .type = NLA_NUL_STRING, .len = 15 },
	[PCILEND_A_OWNER] = { .type = NLA_NUL_STRING, .len = PCILEND_OWNER_BYTES - 1 },
	[PCILEND_A_ADAPTER] = { .type = NLA_NUL_STRING, .len = 31 },
	[PCILEND_A_SIZE] = { .type = NLA_U64 },
};

static const struct nla_policy return_policy[PCILEND_A_MAX + 1] = {
	[PCILEND_A_ID] = { .type = NLA_U32 },
	[PCILEND_A_OWNER] = { .type = NLA_NUL_STRING, .len = PCILEND_OWNER_BYTES - 1 },
};

static const struct nla_policy p2p_policy[PCILEND_A_MAX + 1] = {
	[PCILEND_A_ID] = { .type = NLA_U32 },
	[PCILEND_A_TARGET] = { .type = NLA_U32 },
	[PCILEND_A_END] = { .type = NLA_FLAG },
};

static const struct nla_policy segment_create_policy[PCILEND_A_MAX + 1] = {
	[PCILEND_A_FD] = { .type = NLA_U32 },
	[PCILEND_A_EVENT_FD] = { .type = NLA_U32 },
	[PCILEND_A_LABEL] = { .type = NLA_NUL_STRING, .len = PCILEND_LABEL_BYTES - 1 },
};

static const struct nla_policy segment_offer_policy[PCILEND_A_MAX + 1] = {
	[PCILEND_A_ID] = { .type = NLA_U32 },
	[PCILEND_A_NODE_ID] = { .type = NLA_U32 },
	[PCILEND_A_ADAPTER] = { .type = NLA_NUL_STRING, .len = 31 },
	[PCILEND_A_READ_ONLY] = { .type = NLA_FLAG },
};

static const struct nla_policy segment_withdraw_policy[PCILEND_A_MAX + 1] = {
	[PCILEND_A_ID] = { .type = NLA_U32 },
	[PCILEND_A_NODE_ID] = { .type = NLA_U32 },
};

static const struct nla_policy segment_connect_policy[PCILEND_A_MAX + 1] = {
	[PCILEND_A_ID] = { .type = NLA_U32 },
	[PCILEND_A_ADAPTER] = { .type = NLA_NUL_STRING, .len = 31 },
	[PCILEND_A_READ_ONLY] = { .type = NLA_FLAG },
	[PCILEND_A_WRITE_COMBINING] = { .type = NLA_FLAG },
};

static const struct nla_policy bar_get_policy[PCILEND_A_MAX + 1] = {
	[PCILEND_A_LEASE_FD] = { .type = NLA_U32 },
	[PCILEND_A_BAR] = { .type = NLA_U32 },
	[PCILEND_A_OFFSET] = { .type = NLA_U64 },
	[PCILEND_A_SIZE] = { .type = NLA_U64 },
};

static const struct nla_policy near_get_policy[PCILEND_A_MAX + 1] = {
	[PCILEND_A_LEASE_FD] = { .type = NLA_U32 },
	[PCILEND_A_SIZE] = { .type = NLA_U64 },
	[PCILEND_A_WRITE_COMBINING] = { .type = NLA_FLAG },
};

static const struct nla_policy segment_map_policy[PCILEND_A_MAX + 1] = {
	[PCILEND_A_LEASE_FD] = { .type = NLA_U32 },
	[PCILEND_A_FD] = { .type = NLA_U32 },
	[PCILEND_A_READ_ONLY] = { .type = NLA_FLAG },
};

static const struct nla_policy segment_unmap_policy[PCILEND_A_MAX + 1] = {
	[PCILEND_A_LEASE_FD] = { .type = NLA_U32 },
	[PCILEND_A_ADDRESS] = { .type = NLA_U64 },
};

static const struct nla_policy interrupt_set_policy[PCILEND_A_MAX + 1] = {
	[PCILEND_A_LEASE_FD] = { .type = NLA_U32 },
	[PCILEND_A_VECTOR] = { .type = NLA_U32 },
	[PCILEND_A_EVENT_FD] = { .type = NLA_U32 },
};

static const struct nla_policy share_policy[PCILEND_A_MAX + 1] = {
	[PCILEND_A_LEASE_FD] = { .type = NLA_U32 },
	[PCILEND_A_CLIENTS] = { .type = NLA_U32 },
	[PCILEND_A_VECTORS] = { .type = NLA_U32 },
	[PCILEND_A_SIZE] = { .type = NLA_U64 },
	[PCILEND_A_RANGE] = { .type = NLA_NESTED },
	[PCILEND_A_NODES] = { .type = NLA_BINARY },
};

static const struct nla_policy join_policy[PCILEND_A_MAX + 1] = {
	[PCILEND_A_ID] = { .type = NLA_U32 },
	[PCILEND_A_OWNER] = { .type = NLA_NUL_STRING, .len = PCILEND_OWNER_BYTES - 1 },
	[PCILEND_A_SIZE] = { .type = NLA_U64 },
	[PCILEND_A_VECTORS] = { .type = NLA_U32 },
	[PCILEND_A_ADAPTER] = { .type = NLA_NUL_STRING, .len = 31 },
};

static const struct nla_policy client_next_policy[PCILEND_A_MAX + 1] = {
	[PCILEND_A_LEASE_FD] = { .type = NLA_U32 },
};

static const struct nla_policy cleared_policy[PCILEND_A_MAX + 1] = {
	[PCILEND_A_LEASE_FD] = { .type = NLA_U32 },
	[PCILEND_A_CLIENT_LEASE] = { .type = NLA_U32 },
	[PCILEND_A_ROUND] = { .type = NLA_U32 },
};

static const struct nla_policy mail_send_policy[PCILEND_A_MAX + 1] = {
	[PCILEND_A_LEASE_FD] = { .type = NLA_U32 },
	[PCILEND_A_CLIENT_LEASE] = { .type = NLA_U32 },
	/* Its size is looked at where it can be said in words. */
	[PCILEND_A_MAIL] = { .type = NLA_BINARY },
};

static const struct nla_policy mail_next_policy[PCILEND_A_MAX + 1] = {
	[PCILEND_A_LEASE_FD] = { .type = NLA_U32 },
};

static struct sk_buff *netlink_reply_begin(struct genl_info *info, u8 cmd, void **header)
{
	struct sk_buff *skb = genlmsg_new(NLMSG_GOODSIZE, GFP_KERNEL);

	if (!skb)
		return NULL;
	*header = genlmsg_put_reply(skb, info, &family, 0, cmd);
	if (!*header) {
		nlmsg_free(skb);
		return NULL;
	}
	return skb;
}

/* Capability to read what lets others in, as it is asked of who changes things. */
static bool netlink_trusts(struct sk_buff *request)
{
	return netlink_capable(request, CAP_SYS_ADMIN);
}

int pcilend_reply_prepare(struct pcilend_reply *reply, struct sk_buff *request,
			  struct genl_info *info)
{
	reply->trusted = netlink_trusts(request);
	reply->skb = netlink_reply_begin(info, info->genlhdr->cmd, &reply->header);
	return reply->skb ? 0 : -ENOMEM;
}

int pcilend_reply_function(struct pcilend_reply *reply, struct genl_info *info,
			   const struct pcilend_report *report)
{
	struct sk_buff *skb = reply->skb;

	if (pcilend_put_function(skb, report, reply->trusted)) {
		nlmsg_free(skb);
		return -EMSGSIZE;
	}
	genlmsg_end(skb, reply->header);
	return genlmsg_reply(skb, info);
}

static int netlink_node_get(struct sk_buff *request, struct genl_info *info)
{
	struct sk_buff *skb;
	void *header;

	skb = netlink_reply_begin(info, PCILEND_CMD_NODE_GET, &header);
	if (!skb)
		return -ENOMEM;
	if (nla_put_u32(skb, PCILEND_A_NODE_ID, pcilend_node) ||
	    nla_put_u64_64bit(skb, PCILEND_A_BOOT_ID, pcilend_boot, PCILEND_A_PAD) ||
	    nla_put_u32(skb, PCILEND_A_ABI, PCILEND_WIRE_VERSION)) {
		nlmsg_free(skb);
		return -EMSGSIZE;
	}
	genlmsg_end(skb, header);
	return genlmsg_reply(skb, info);
}

/* One message of a dump. Return: 0 or -EMSGSIZE. */
static int netlink_dump_one(struct sk_buff *skb, struct netlink_callback *cb, u8 cmd,
			    struct pcilend_link *link, const struct pcilend_report *report)
{
	void *header = genlmsg_put(skb, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq, &family,
				   NLM_F_MULTI, cmd);
	bool trusted;

	if (!header)
		return -EMSGSIZE;
	genl_dump_check_consistent(cb, header);
	trusted = netlink_trusts(cb->skb);
	if (link ? pcilend_put_link(skb, link, trusted) :
		   pcilend_put_function(skb, report, trusted)) {
		genlmsg_cancel(skb, header);
		return -EMSGSIZE;
	}
	genlmsg_end(skb, header);
	return 0;
}

/* args[0]: index of the next link. */
static int netlink_link_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct pcilend_link *link;

	cb->seq = pcilend_generation();
	for (link = pcilend_link_next(NULL); link; link = pcilend_link_next(link)) {
		if (link->index < cb->args[0])
			continue;
		if (netlink_dump_one(skb, cb, PCILEND_CMD_LINK_GET, link, NULL)) {
			pcilend_link_put(link);
			break;
		}
		cb->args[0] = link->index + 1;
	}
	return skb->len;
}

/* args[0]: 0 local functions, 1 remote ones, 2 done; args[1]: id of the last one. */
static int netlink_function_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct pcilend_report *report __free(kfree) = kmalloc(sizeof(*report), GFP_KERNEL);

	if (!report)
		return -ENOMEM;
	cb->seq = pcilend_generation();
	while (cb->args[0] < 2) {
		bool found = cb->args[0] ? pcilend_remote_next(cb->args[1], report) :
					   pcilend_lender_next(cb->args[1], report);

		if (!found) {
			cb->args[0]++;
			cb->args[1] = 0;
			continue;
		}
		if (netlink_dump_one(skb, cb, PCILEND_CMD_FUNCTION_GET, NULL, report))
			break;
		cb->args[1] = le32_to_cpu(report->info.id);
	}
	return skb->len;
}

/* The remote function that ID names, with a reference. */
int pcilend_get_remote(struct genl_info *info, struct pcilend_remote **remote)
{
	u32 id;

	if (!info->attrs[PCILEND_A_ID]) {
		NL_SET_ERR_MSG(info->extack, "no function named: give its id, see 'pcilend list'");
		return -EINVAL;
	}
	id = nla_get_u32(info->attrs[PCILEND_A_ID]);
	*remote = pcilend_remote_get(id);
	if (*remote)
		return 0;
	if (pcilend_id_node(id) == pcilend_node)
		NL_SET_ERR_MSG(info->extack, "it is in this host: use it here, or make it available and borrow it on another node");
	else
		NL_SET_ERR_MSG(info->extack, "no lender offers a function with that id to this host: see 'pcilend list'");
	return -ENODEV;
}

static int netlink_function_get(struct sk_buff *skb, struct genl_info *info)
{
	struct pcilend_report *report __free(kfree) = kmalloc(sizeof(*report), GFP_KERNEL);
	struct pcilend_remote *remote;
	struct pcilend_reply reply;
	const char *bdf = NULL;
	int err;

	if (!report)
		return -ENOMEM;
	if (info->attrs[PCILEND_A_BDF])
		bdf = nla_data(info->attrs[PCILEND_A_BDF]);
	if (bdf || (info->attrs[PCILEND_A_ID] &&
		    pcilend_id_node(nla_get_u32(info->attrs[PCILEND_A_ID])) == pcilend_node)) {
		u32 id = bdf ? 0 : nla_get_u32(info->attrs[PCILEND_A_ID]);

		err = pcilend_lender_report(bdf, id, report, info->extack);
		if (err && !bdf)
			NL_SET_ERR_MSG(info->extack, "this host has no function with that id: see 'pcilend list'");
	} else {
		err = pcilend_get_remote(info, &remote);
		if (!err) {
			pcilend_remote_report(remote, report);
			pcilend_remote_put(remote);
		}
	}
	if (!err)
		err = pcilend_reply_prepare(&reply, skb, info);
	return err ?: pcilend_reply_function(&reply, info, report);
}

static int netlink_function_check(struct sk_buff *skb, struct genl_info *info)
{
	if (!info->attrs[PCILEND_A_BDF]) {
		NL_SET_ERR_MSG(info->extack, "no function named: give its PCI address, dddd:bb:dd.f");
		return -EINVAL;
	}
	return pcilend_lender_check(nla_data(info->attrs[PCILEND_A_BDF]), info->extack);
}

static int netlink_counters_get(struct sk_buff *request, struct genl_info *info)
{
	struct sk_buff *skb;
	void *header;

	skb = netlink_reply_begin(info, PCILEND_CMD_COUNTERS_GET, &header);
	if (!skb)
		return -ENOMEM;
	if (pcilend_put_counters(skb)) {
		nlmsg_free(skb);
		return -EMSGSIZE;
	}
	genlmsg_end(skb, header);
	return genlmsg_reply(skb, info);
}

/* Reads, but registers may hold secrets, and reading some has effects. */
static int netlink_config_get(struct sk_buff *request, struct genl_info *info)
{
	u8 *space __free(kfree) = kmalloc(PCI_CFG_SPACE_EXP_SIZE, GFP_KERNEL);
	struct sk_buff *skb;
	void *header;
	u32 length;
	int err;

	if (!space)
		return -ENOMEM;
	if (!pcilend_is_admin(request, info->extack))
		return -EPERM;
	if (!info->attrs[PCILEND_A_ID]) {
		NL_SET_ERR_MSG(info->extack, "no function named: give its id, see 'pcilend list'");
		return -EINVAL;
	}
	err = pcilend_config_get(nla_get_u32(info->attrs[PCILEND_A_ID]),
				 info->attrs[PCILEND_A_EMULATED], space, &length, info->extack);
	if (err)
		return err;
	skb = genlmsg_new(nla_total_size(length), GFP_KERNEL);
	if (!skb)
		return -ENOMEM;
	header = genlmsg_put_reply(skb, info, &family, 0, PCILEND_CMD_CONFIG_GET);
	if (!header || nla_put(skb, PCILEND_A_CONFIG, length, space)) {
		nlmsg_free(skb);
		return -EMSGSIZE;
	}
	genlmsg_end(skb, header);
	return genlmsg_reply(skb, info);
}

#define ADMIN(command, attributes) {			\
		.cmd = PCILEND_CMD_##command,		\
		.doit = pcilend_admin,			\
		.policy = attributes,			\
		.maxattr = PCILEND_A_MAX,		\
		.flags = GENL_CMD_CAP_DO,		\
	}

/* For whoever has a lease fd. */
#define WITH_LEASE(command, function, attributes) {	\
		.cmd = PCILEND_CMD_##command,		\
		.doit = function,			\
		.policy = attributes,			\
		.maxattr = PCILEND_A_MAX,		\
		.flags = GENL_CMD_CAP_DO,		\
	}

/* In the order of their commands. */
static const struct genl_split_ops ops[] = {
	{
		.cmd = PCILEND_CMD_NODE_GET,
		.doit = netlink_node_get,
		.flags = GENL_CMD_CAP_DO,
	}, {
		.cmd = PCILEND_CMD_LINK_GET,
		.dumpit = netlink_link_dump,
		.flags = GENL_CMD_CAP_DUMP,
	},
	ADMIN(CONNECT, connect_policy),
	ADMIN(DISCONNECT, node_policy),
	{
		.cmd = PCILEND_CMD_FUNCTION_GET,
		.doit = netlink_function_get,
		.policy = get_policy,
		.maxattr = PCILEND_A_MAX,
		.flags = GENL_CMD_CAP_DO,
	}, {
		.cmd = PCILEND_CMD_FUNCTION_GET,
		.dumpit = netlink_function_dump,
		.flags = GENL_CMD_CAP_DUMP,
	},
	ADMIN(ADD, add_policy),
	ADMIN(REMOVE, bdf_policy),
	ADMIN(AVAILABLE, available_policy),
	ADMIN(UNAVAILABLE, unavailable_policy),
	{
		.cmd = PCILEND_CMD_BORROW,
		.doit = pcilend_borrow_doit,
		.policy = borrow_policy,
		.maxattr = PCILEND_A_MAX,
		.flags = GENL_CMD_CAP_DO,
	},
	ADMIN(RETURN, return_policy),
	ADMIN(ALLOW, allow_policy),
	ADMIN(LABEL, label_policy),
	ADMIN(RESERVE, reserve_policy),
	ADMIN(RECALL, recall_policy),
	ADMIN(RELEASE_QUARANTINE, bdf_policy),
	{
		.cmd = PCILEND_CMD_CONFIG_GET,
		.doit = netlink_config_get,
		.policy = config_policy,
		.maxattr = PCILEND_A_MAX,
		.flags = GENL_CMD_CAP_DO,
	}, {
		.cmd = PCILEND_CMD_CHECK,
		.doit = netlink_function_check,
		.policy = bdf_policy,
		.maxattr = PCILEND_A_MAX,
		.flags = GENL_CMD_CAP_DO,
	}, {
		.cmd = PCILEND_CMD_COUNTERS_GET,
		.doit = netlink_counters_get,
		.flags = GENL_CMD_CAP_DO,
	},
	ADMIN(P2P, p2p_policy),
	{
		.cmd = PCILEND_CMD_SEGMENT_CREATE,
		.doit = pcilend_segment_create_doit,
		.policy = segment_create_policy,
		.maxattr = PCILEND_A_MAX,
		.flags = GENL_CMD_CAP_DO,
	},
	ADMIN(SEGMENT_OFFER, segment_offer_policy),
	ADMIN(SEGMENT_WITHDRAW, segment_withdraw_policy),
	{
		.cmd = PCILEND_CMD_SEGMENT_CONNECT,
		.doit = pcilend_segment_connect_doit,
		.policy = segment_connect_policy,
		.maxattr = PCILEND_A_MAX,
		.flags = GENL_CMD_CAP_DO,
	}, {
		.cmd = PCILEND_CMD_SEGMENT_GET,
		.dumpit = pcilend_segment_dumpit,
		.flags = GENL_CMD_CAP_DUMP,
	}, {
		.cmd = PCILEND_CMD_SEGMENT_OFFERED_GET,
		.dumpit = pcilend_segment_offered_dumpit,
		.flags = GENL_CMD_CAP_DUMP,
	},
	WITH_LEASE(BAR_GET, pcilend_bar_get_doit, bar_get_policy),
	WITH_LEASE(SEGMENT_MAP, pcilend_segment_map_doit, segment_map_policy),
	WITH_LEASE(SEGMENT_UNMAP, pcilend_segment_unmap_doit, segment_unmap_policy),
	WITH_LEASE(INTERRUPT_SET, pcilend_interrupt_set_doit, interrupt_set_policy),
	WITH_LEASE(SHARE, pcilend_share_doit, share_policy),
	{
		.cmd = PCILEND_CMD_JOIN,
		.doit = pcilend_join_doit,
		.policy = join_policy,
		.maxattr = PCILEND_A_MAX,
		.flags = GENL_CMD_CAP_DO,
	},
	WITH_LEASE(CLIENT_NEXT, pcilend_client_next_doit, client_next_policy),
	WITH_LEASE(CLEARED, pcilend_cleared_doit, cleared_policy),
	WITH_LEASE(MAIL_SEND, pcilend_mail_send_doit, mail_send_policy),
	WITH_LEASE(MAIL_NEXT, pcilend_mail_next_doit, mail_next_policy),
	WITH_LEASE(NEAR_GET, pcilend_near_get_doit, near_get_policy),
};

static const struct genl_multicast_group groups[] = {
	{ .name = PCILEND_MCGRP_EVENTS },
};

static struct genl_family family = {
	.name = PCILEND_FAMILY_NAME,
	.version = PCILEND_FAMILY_VERSION,
	.module = THIS_MODULE,
	.parallel_ops = true,
	.split_ops = ops,
	.n_split_ops = ARRAY_SIZE(ops),
	.resv_start_op = __PCILEND_CMD_MAX,
	.mcgrps = groups,
	.n_mcgrps = ARRAY_SIZE(groups),
};

/* What an event is about: one of these. */
struct netlink_subject {
	struct pcilend_link *link;
	const struct pcilend_report *report;
	const struct pcilend_audit *audit;
	const struct pcilend_segment_news *segment;
};

static int netlink_put_subject(struct sk_buff *skb, const struct netlink_subject *subject)
{
	/* Anybody may listen. */
	if (subject->link)
		return pcilend_put_link(skb, subject->link, false);
	if (subject->segment)
		return pcilend_put_segment_news(skb, subject->segment);
	return subject->report ? pcilend_put_function(skb, subject->report, false) :
				 pcilend_put_audit(skb, subject->audit);
}

static void netlink_send_event(enum pcilend_event event, const struct netlink_subject *subject)
{
	struct sk_buff *skb;
	void *header;

	if (!genl_has_listeners(&family, &init_net, 0))
		return;
	skb = genlmsg_new(NLMSG_GOODSIZE, GFP_KERNEL);
	if (!skb)
		return;
	header = genlmsg_put(skb, 0, 0, &family, 0, PCILEND_CMD_EVENT);
	if (!header || nla_put_u32(skb, PCILEND_A_EVENT, event) ||
	    netlink_put_subject(skb, subject)) {
		nlmsg_free(skb);
		return;
	}
	genlmsg_end(skb, header);
	genlmsg_multicast(&family, skb, 0, 0, GFP_KERNEL);
}

static void netlink_event_link(struct pcilend_link *link)
{
	netlink_send_event(PCILEND_EVENT_LINK, &(struct netlink_subject){ .link = link });
}

static void netlink_event_function(enum pcilend_event event, const struct pcilend_report *report)
{
	netlink_send_event(event, &(struct netlink_subject){ .report = report });
}

static void netlink_event_audit(const struct pcilend_audit *audit)
{
	netlink_send_event(PCILEND_EVENT_AUDIT, &(struct netlink_subject){ .audit = audit });
}

static void netlink_event_segment(const struct pcilend_segment_news *news, bool gone)
{
	netlink_send_event(gone ? PCILEND_EVENT_SEGMENT_GONE : PCILEND_EVENT_SEGMENT,
			   &(struct netlink_subject){ .segment = news });
}

static const struct pcilend_event_ops netlink_event_ops = {
	.link = netlink_event_link,
	.function = netlink_event_function,
	.audit = netlink_event_audit,
	.segment = netlink_event_segment,
};

int pcilend_netlink_init(void)
{
	int err = genl_register_family(&family);

	if (!err)
		pcilend_events_listen(&netlink_event_ops);
	return err;
}

/* The last events were sent when the links went. */
void pcilend_netlink_exit(void)
{
	pcilend_events_listen(NULL);
	genl_unregister_family(&family);
}
