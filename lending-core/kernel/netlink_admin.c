// SPDX-License-Identifier: GPL-2.0-only
/* Netlink operations that change something: for administrators only. */

#include <linux/capability.h>
#include <net/genetlink.h>

#include "internal.h"

/* What the policies of netlink.c let pass; absent attributes are NULL. */
struct request {
	struct genl_info *info;
	struct netlink_ext_ack *extack;
	struct pcilend_report *report;	/* for those that answer with a function */
	const char *bdf;
	u32 node;
};

static int connect_node(struct request *rq)
{
	return pcilend_lender_connect(rq->node, rq->extack);
}

static int disconnect_node(struct request *rq)
{
	return pcilend_lender_disconnect(rq->node, rq->extack);
}

static int add(struct request *rq)
{
	struct nlattr **attrs = rq->info->attrs;
	const struct pcilend_add with = {
		.id = attrs[PCILEND_A_ID] ? nla_get_u32(attrs[PCILEND_A_ID]) : 0,
		.label = attrs[PCILEND_A_LABEL] ? nla_data(attrs[PCILEND_A_LABEL]) : NULL,
		.nodes = attrs[PCILEND_A_NODES],
	};

	return pcilend_lender_add(rq->bdf, &with, rq->extack, rq->report);
}

static int remove_function(struct request *rq)
{
	return pcilend_lender_remove(rq->bdf, rq->extack);
}

static int available(struct request *rq)
{
	return pcilend_lender_available(rq->bdf, rq->extack, rq->report);
}

static int unavailable(struct request *rq)
{
	return pcilend_lender_unavailable(rq->bdf, rq->info->attrs[PCILEND_A_FORCE], rq->extack);
}

static int recall(struct request *rq)
{
	const struct nlattr *grace = rq->info->attrs[PCILEND_A_GRACE_MS];

	if (!grace) {
		NL_SET_ERR_MSG(rq->extack, "give the time that the borrower has to return it");
		return -EINVAL;
	}
	return pcilend_lender_recall(rq->bdf, nla_get_u32(grace), rq->extack);
}

static int allow(struct request *rq)
{
	return pcilend_lender_allow(rq->bdf, rq->info->attrs[PCILEND_A_NODES], rq->extack);
}

static int label(struct request *rq)
{
	const struct nlattr *text = rq->info->attrs[PCILEND_A_LABEL];

	return pcilend_lender_label(rq->bdf, text ? nla_data(text) : "", rq->extack);
}

static int release_quarantine(struct request *rq)
{
	return pcilend_lender_release_quarantine(rq->bdf, rq->extack, rq->report);
}

static int borrow(struct request *rq)
{
	struct nlattr **attrs = rq->info->attrs;
	struct pcilend_frontend *frontend;
	struct pcilend_remote *remote;
	const char *why = NULL;
	int err;

	if (!attrs[PCILEND_A_FRONTEND] || !attrs[PCILEND_A_OWNER]) {
		NL_SET_ERR_MSG(rq->extack, "give the frontend (such as mdev) and an owner to borrow for");
		return -EINVAL;
	}
	err = pcilend_get_remote(rq->info, &remote);
	if (err)
		return err;
	frontend = pcilend_frontend_get(nla_data(attrs[PCILEND_A_FRONTEND]));
	if (!frontend) {
		NL_SET_ERR_MSG(rq->extack, "no such frontend is loaded: run 'modprobe pcilend_mdev' for mdev");
		err = -EOPNOTSUPP;
		goto out;
	}
	err = pcilend_borrow(remote, frontend, nla_data(attrs[PCILEND_A_OWNER]), &why);
	pcilend_frontend_put(frontend);
	pcilend_refuse(rq->extack, err, why);
	if (!err)
		pcilend_remote_report(remote, rq->report);
out:
	pcilend_remote_put(remote);
	return err;
}

static int give_back(struct request *rq)
{
	const struct nlattr *owner = rq->info->attrs[PCILEND_A_OWNER];
	struct pcilend_remote *remote;
	int err;

	err = pcilend_get_remote(rq->info, &remote);
	if (err)
		return err;
	err = pcilend_return(remote, owner ? nla_data(owner) : NULL);
	pcilend_remote_put(remote);
	if (err == -EPERM)
		NL_SET_ERR_MSG(rq->extack, "another owner has borrowed it: see 'pcilend list', or return it without naming an owner");
	else if (err)
		NL_SET_ERR_MSG(rq->extack, "it is given up here, but its lender has not confirmed that it stopped: see 'pcilend link'; it is returned when the lender answers");
	return err;
}

#define NEEDS_NODE 0x1
#define NEEDS_BDF 0x2
#define ANSWERS 0x4		/* with the function */

static const struct operation {
	int (*run)(struct request *rq);
	unsigned int flags;
} operations[PCILEND_CMD_MAX + 1] = {
	[PCILEND_CMD_CONNECT] = { connect_node, NEEDS_NODE },
	[PCILEND_CMD_DISCONNECT] = { disconnect_node, NEEDS_NODE },
	[PCILEND_CMD_ADD] = { add, NEEDS_BDF | ANSWERS },
	[PCILEND_CMD_REMOVE] = { remove_function, NEEDS_BDF },
	[PCILEND_CMD_AVAILABLE] = { available, NEEDS_BDF | ANSWERS },
	[PCILEND_CMD_UNAVAILABLE] = { unavailable, NEEDS_BDF },
	[PCILEND_CMD_BORROW] = { borrow, ANSWERS },
	[PCILEND_CMD_RETURN] = { give_back, 0 },
	[PCILEND_CMD_ALLOW] = { allow, NEEDS_BDF },
	[PCILEND_CMD_LABEL] = { label, NEEDS_BDF },
	[PCILEND_CMD_RECALL] = { recall, NEEDS_BDF },
	[PCILEND_CMD_RELEASE_QUARANTINE] = { release_quarantine, NEEDS_BDF | ANSWERS },
};

static int run(const struct operation *op, struct request *rq)
{
	struct nlattr **attrs = rq->info->attrs;

	if (op->flags & NEEDS_NODE) {
		if (!attrs[PCILEND_A_NODE_ID]) {
			NL_SET_ERR_MSG(rq->extack, "no node named: give its node id");
			return -EINVAL;
		}
		rq->node = nla_get_u32(attrs[PCILEND_A_NODE_ID]);
	}
	if (op->flags & NEEDS_BDF) {
		if (!attrs[PCILEND_A_BDF]) {
			NL_SET_ERR_MSG(rq->extack, "no function named: give its PCI address, dddd:bb:dd.f");
			return -EINVAL;
		}
		rq->bdf = nla_data(attrs[PCILEND_A_BDF]);
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
	int err;

	if (!report)
		return -ENOMEM;
	if (!netlink_capable(skb, CAP_SYS_ADMIN)) {
		NL_SET_ERR_MSG(info->extack, "changes need CAP_SYS_ADMIN: run this as root, or with sudo");
		return -EPERM;
	}
	err = run(op, &rq);
	if (!err && op->flags & ANSWERS)
		err = pcilend_reply_function(info, report);
	return err;
}
