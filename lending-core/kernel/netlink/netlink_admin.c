// SPDX-License-Identifier: GPL-2.0-only
/* Netlink operations that change something: for administrators only. */

#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/ratelimit.h>
#include <net/genetlink.h>

#include "netlink/netlink.h"

/* What the policies of netlink.c let pass; absent attributes are NULL. */
struct request {
	struct genl_info *info;
	struct netlink_ext_ack *extack;
	struct pcilend_report *report;	/* for those that answer with a function */
	const char *bdf;
	u32 function;			/* its id, or a segment's; 0: not named, or not added */
	u32 node;			/* that it is about; 0: none */
	u32 target;			/* id of the function it shall reach; 0: none */
};

static const char *netlink_admin_adapter_of(const struct request *rq)
{
	const struct nlattr *attr = rq->info->attrs[PCILEND_A_ADAPTER];

	return attr ? nla_data(attr) : NULL;
}

static int netlink_admin_connect_node(struct request *rq)
{
	return pcilend_lender_connect(rq->node, netlink_admin_adapter_of(rq), rq->extack);
}

static int netlink_admin_disconnect_node(struct request *rq)
{
	return pcilend_lender_disconnect(rq->node, rq->extack);
}

static int netlink_admin_add(struct request *rq)
{
	struct nlattr **attrs = rq->info->attrs;
	const struct pcilend_add with = {
		.id = attrs[PCILEND_A_ID] ? nla_get_u32(attrs[PCILEND_A_ID]) : 0,
		.label = attrs[PCILEND_A_LABEL] ? nla_data(attrs[PCILEND_A_LABEL]) : NULL,
		.nodes = attrs[PCILEND_A_NODES],
	};

	return pcilend_lender_add(rq->bdf, &with, rq->extack, rq->report);
}

static int netlink_admin_remove_function(struct request *rq)
{
	return pcilend_lender_remove(rq->bdf, rq->extack);
}

static int netlink_admin_available(struct request *rq)
{
	const struct nlattr *near = rq->info->attrs[PCILEND_A_NEAR];
	const struct pcilend_lend lend = {
		.near = near ? nla_get_u64(near) : PCILEND_NEAR_BYTES,
		.direct = rq->info->attrs[PCILEND_A_DIRECT],
		.sanitize = rq->info->attrs[PCILEND_A_SANITIZE],
		.sanitized = rq->info->attrs[PCILEND_A_SANITIZED],
	};

	if (lend.near > PCILEND_NEAR_BYTES_MAX || !PAGE_ALIGNED(lend.near))
		return pcilend_refuse(rq->extack, -EINVAL, "memory beside a function is whole pages of 4 KiB, and at most 1 GiB: give another size");
	return pcilend_lender_available(rq->bdf, &lend, rq->extack, rq->report);
}

static int netlink_admin_unavailable(struct request *rq)
{
	return pcilend_lender_unavailable(rq->bdf, rq->info->attrs[PCILEND_A_FORCE], rq->extack);
}

static int netlink_admin_recall(struct request *rq)
{
	const struct nlattr *grace = rq->info->attrs[PCILEND_A_GRACE_MS];

	if (!grace) {
		NL_SET_ERR_MSG(rq->extack, "give the time that the borrower has to return it");
		return -EINVAL;
	}
	return pcilend_lender_recall(rq->bdf, nla_get_u32(grace), rq->extack);
}

static int netlink_admin_allow(struct request *rq)
{
	return pcilend_lender_allow(rq->bdf, rq->info->attrs[PCILEND_A_NODES], rq->extack);
}

static int netlink_admin_label(struct request *rq)
{
	const struct nlattr *text = rq->info->attrs[PCILEND_A_LABEL];

	return pcilend_lender_label(rq->bdf, text ? nla_data(text) : "", rq->extack);
}

static int netlink_admin_reserve(struct request *rq)
{
	struct nlattr **attrs = rq->info->attrs;
	struct pcilend_msg_reserve msg = {
		.id = cpu_to_le32(rq->function),
		.node = cpu_to_le32(rq->node),
	};
	u32 ttl_ms = 0;

	if (attrs[PCILEND_A_RESERVED_UUID])
		memcpy(msg.uuid, nla_data(attrs[PCILEND_A_RESERVED_UUID]), sizeof(msg.uuid));
	if (attrs[PCILEND_A_TTL_MS])
		ttl_ms = nla_get_u32(attrs[PCILEND_A_TTL_MS]);
	msg.ttl_ms = cpu_to_le32(ttl_ms);
	if (!rq->function) {
		NL_SET_ERR_MSG(rq->extack, "no function named: give its id, see 'pcilend list'");
		return -EINVAL;
	}
	if (rq->node > PCILEND_NODE_MAX ||
	    (attrs[PCILEND_A_RESERVED_NODE] && (!rq->node || attrs[PCILEND_A_RESERVED_UUID]))) {
		NL_SET_ERR_MSG(rq->extack, "reserve it for one node, 1 to 65535, or for one domain");
		return -EINVAL;
	}
	if (attrs[PCILEND_A_RESERVED_NODE] || attrs[PCILEND_A_RESERVED_UUID]) {
		if (ttl_ms < PCILEND_RESERVE_MS_MIN || ttl_ms > PCILEND_RESERVE_MS_MAX) {
			NL_SET_ERR_MSG(rq->extack, "a reservation holds from 1 second to 24 hours: give such a time");
			return -ERANGE;
		}
	} else if (ttl_ms) {
		NL_SET_ERR_MSG(rq->extack, "reserved for whom? name a node or a domain, or no time to end it");
		return -EINVAL;
	}
	return pcilend_id_node(rq->function) == pcilend_node ?
	       pcilend_lender_reserve(&msg, rq->extack) :
	       pcilend_borrower_reserve(&msg, rq->extack);
}

static int netlink_admin_release_quarantine(struct request *rq)
{
	return pcilend_lender_release_quarantine(rq->bdf, rq->extack, rq->report);
}

static int netlink_admin_borrow(struct request *rq)
{
	struct nlattr **attrs = rq->info->attrs;
	struct pcilend_frontend *frontend;
	struct pcilend_remote *remote;
	const char *why = NULL;
	int err;

	if (!attrs[PCILEND_A_FRONTEND] || !attrs[PCILEND_A_OWNER]) {
		NL_SET_ERR_MSG(rq->extack, "give the frontend (shadow or vfio) and an owner to borrow for");
		return -EINVAL;
	}
	err = pcilend_get_remote(rq->info, &remote);
	if (err)
		return err;
	frontend = pcilend_frontend_get(nla_data(attrs[PCILEND_A_FRONTEND]));
	if (!frontend) {
		NL_SET_ERR_MSG(rq->extack, "no such frontend is loaded: run 'modprobe pcilend_shadow' for shadow, 'modprobe pcilend_mdev' for vfio");
		err = -EOPNOTSUPP;
		goto out;
	}
	err = pcilend_borrow(remote, frontend, nla_data(attrs[PCILEND_A_OWNER]),
			     netlink_admin_adapter_of(rq), &why);
	pcilend_frontend_put(frontend);
	pcilend_refuse(rq->extack, err, why);
	if (!err)
		pcilend_remote_report(remote, rq->report);
out:
	pcilend_remote_put(remote);
	return err;
}

static int netlink_admin_give_back(struct request *rq)
{
	const struct nlattr *owner = rq->info->attrs[PCILEND_A_OWNER];
	struct pcilend_remote *remote;
	int err;

	err = pcilend_get_remote(rq->info, &remote);
	if (err)
		return err;
	err = pcilend_remote_return(remote, owner ? nla_data(owner) : NULL, rq->extack);
	pcilend_remote_put(remote);
	return err;
}

static int netlink_admin_p2p(struct request *rq)
{
	struct pcilend_remote *remote;
	int err;

	if (!rq->target) {
		NL_SET_ERR_MSG(rq->extack, "give the function to be reached, too: see 'pcilend list'");
		return -EINVAL;
	}
	err = pcilend_get_remote(rq->info, &remote);
	if (err)
		return err;
	err = pcilend_reach(remote, rq->target, !rq->info->attrs[PCILEND_A_END], rq->extack);
	if (!err)
		pcilend_remote_report(remote, rq->report);
	pcilend_remote_put(remote);
	return err;
}

static int netlink_admin_offer_segment(struct request *rq)
{
	return pcilend_segment_offer(rq->function, rq->node, netlink_admin_adapter_of(rq),
				     rq->info->attrs[PCILEND_A_READ_ONLY], rq->extack);
}

static int netlink_admin_withdraw_segment(struct request *rq)
{
	return pcilend_segment_withdraw(rq->function, rq->node, rq->extack);
}

#define NEEDS_NODE 0x1
#define NEEDS_BDF 0x2
#define ANSWERS 0x4		/* with the function */

static const struct operation {
	const char *name;		/* in the audit */
	int (*run)(struct request *rq);
	unsigned int flags;
} operations[PCILEND_CMD_MAX + 1] = {
	[PCILEND_CMD_CONNECT] = { "connect", netlink_admin_connect_node, NEEDS_NODE },
	[PCILEND_CMD_DISCONNECT] = { "disconnect", netlink_admin_disconnect_node, NEEDS_NODE },
	[PCILEND_CMD_ADD] = { "add", netlink_admin_add, NEEDS_BDF | ANSWERS },
	[PCILEND_CMD_REMOVE] = { "remove", netlink_admin_remove_function, NEEDS_BDF },
	[PCILEND_CMD_AVAILABLE] = { "available", netlink_admin_available, NEEDS_BDF | ANSWERS },
	[PCILEND_CMD_UNAVAILABLE] = { "unavailable", netlink_admin_unavailable, NEEDS_BDF },
	[PCILEND_CMD_BORROW] = { "borrow", netlink_admin_borrow, ANSWERS },
	[PCILEND_CMD_RETURN] = { "return", netlink_admin_give_back, 0 },
	[PCILEND_CMD_ALLOW] = { "allow", netlink_admin_allow, NEEDS_BDF },
	[PCILEND_CMD_LABEL] = { "label", netlink_admin_label, NEEDS_BDF },
	[PCILEND_CMD_RESERVE] = { "reserve", netlink_admin_reserve, 0 },
	[PCILEND_CMD_RECALL] = { "recall", netlink_admin_recall, NEEDS_BDF },
	[PCILEND_CMD_RELEASE_QUARANTINE] = {
		"release-quarantine", netlink_admin_release_quarantine, NEEDS_BDF | ANSWERS
	},
	[PCILEND_CMD_P2P] = { "p2p", netlink_admin_p2p, ANSWERS },
	[PCILEND_CMD_SEGMENT_OFFER] = {
		"segment-offer", netlink_admin_offer_segment, NEEDS_NODE
	},
	[PCILEND_CMD_SEGMENT_WITHDRAW] = {
		"segment-withdraw", netlink_admin_withdraw_segment, 0
	},
};

/* What the request names, as far as it does. */
static void netlink_admin_read_subject(struct request *rq)
{
	struct nlattr **attrs = rq->info->attrs;

	if (attrs[PCILEND_A_BDF])
		rq->bdf = nla_data(attrs[PCILEND_A_BDF]);
	if (rq->bdf)
		rq->function = pcilend_lender_id(rq->bdf);
	else if (attrs[PCILEND_A_ID])
		rq->function = nla_get_u32(attrs[PCILEND_A_ID]);
	if (attrs[PCILEND_A_NODE_ID])
		rq->node = nla_get_u32(attrs[PCILEND_A_NODE_ID]);
	else if (attrs[PCILEND_A_RESERVED_NODE])
		rq->node = nla_get_u32(attrs[PCILEND_A_RESERVED_NODE]);
	if (attrs[PCILEND_A_TARGET])
		rq->target = nla_get_u32(attrs[PCILEND_A_TARGET]);
}

bool pcilend_is_admin(struct sk_buff *skb, struct netlink_ext_ack *extack)
{
	if (netlink_capable(skb, CAP_SYS_ADMIN))
		return true;
	NL_SET_ERR_MSG(extack, "changes need CAP_SYS_ADMIN: run this as root, or with sudo");
	return false;
}

/* Anybody can be refused, as often as he likes. */
void pcilend_audit_asked(struct sk_buff *request, const char *operation, u32 id, u32 target,
			 int result)
{
	static DEFINE_RATELIMIT_STATE(refusals, 5 * HZ, 10);

	if (netlink_capable(request, CAP_SYS_ADMIN) || __ratelimit(&refusals))
		pcilend_audit_admin(from_kuid(&init_user_ns, NETLINK_CREDS(request)->uid),
				    operation, id, target, result);
}

static int netlink_admin_run(const struct operation *op, struct request *rq)
{
	if (op->flags & NEEDS_NODE && !rq->info->attrs[PCILEND_A_NODE_ID]) {
		NL_SET_ERR_MSG(rq->extack, "no node named: give its node id");
		return -EINVAL;
	}
	if (op->flags & NEEDS_BDF && !rq->bdf) {
		NL_SET_ERR_MSG(rq->extack, "no function named: give its PCI address, dddd:bb:dd.f");
		return -EINVAL;
	}
	return op->run(rq);
}

/*
 * pcilend_admin - doit of all operations that change something
 *
 * The capability is asked for here and not by GENL_ADMIN_PERM, which would be CAP_NET_ADMIN and
 * refuses without a word.
 */
int pcilend_admin(struct sk_buff *skb, struct genl_info *info)
{
	struct pcilend_report *report __free(kfree) = kmalloc(sizeof(*report), GFP_KERNEL);
	const struct operation *op = &operations[info->genlhdr->cmd];
	struct request rq = { .info = info, .extack = info->extack, .report = report };
	struct pcilend_reply reply = {};
	int err;

	if (!report)
		return -ENOMEM;
	if (op->flags & ANSWERS) {
		err = pcilend_reply_prepare(&reply, skb, info);
		if (err)
			return err;
	}
	netlink_admin_read_subject(&rq);
	err = pcilend_is_admin(skb, info->extack) ? netlink_admin_run(op, &rq) : -EPERM;
	if (!rq.function && rq.bdf)
		rq.function = pcilend_lender_id(rq.bdf);
	pcilend_audit_asked(skb, op->name, rq.function, rq.target ?: rq.node, err);
	if (!err && reply.skb)
		return pcilend_reply_function(&reply, info, report);
	nlmsg_free(reply.skb);
	return err;
}
