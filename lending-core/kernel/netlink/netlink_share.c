// SPDX-License-Identifier: GPL-2.0-only
/* Shared functions by netlink: what a manager asks with its lease fd, and how a client gets one. */

#include <linux/file.h>
#include <net/genetlink.h>

#include "lease/lease.h"
#include "netlink/netlink.h"

static_assert((int)PCILEND_RANGE_POOL == (int)PCILEND_SHARE_POOL, "kinds of pages");

static const struct nla_policy range_policy[PCILEND_RANGE_A_MAX + 1] = {
	[PCILEND_RANGE_A_BAR] = { .type = NLA_U32 },
	[PCILEND_RANGE_A_PAGE] = { .type = NLA_U32 },
	[PCILEND_RANGE_A_PAGES] = { .type = NLA_U32 },
	[PCILEND_RANGE_A_KIND] = { .type = NLA_U32 },
};

static u32 netlink_share_u32(const struct nlattr *attr)
{
	return attr ? nla_get_u32(attr) : 0;
}

static int netlink_share_get_range(const struct nlattr *nest, struct pcilend_share_range *range,
				   struct netlink_ext_ack *extack)
{
	struct nlattr *attrs[PCILEND_RANGE_A_MAX + 1];
	int err = nla_parse_nested(attrs, PCILEND_RANGE_A_MAX, nest, range_policy, extack);

	if (err)
		return err;
	*range = (struct pcilend_share_range){
		.bar = netlink_share_u32(attrs[PCILEND_RANGE_A_BAR]),
		.page = netlink_share_u32(attrs[PCILEND_RANGE_A_PAGE]),
		.pages = netlink_share_u32(attrs[PCILEND_RANGE_A_PAGES]),
		.kind = netlink_share_u32(attrs[PCILEND_RANGE_A_KIND]),
	};
	return 0;
}

static int netlink_share_get_ranges(struct genl_info *info, struct pcilend_share_policy *policy)
{
	const struct nlattr *attr;
	int rest, err;

	nlmsg_for_each_attr(attr, info->nlhdr, GENL_HDRLEN, rest) {
		if (nla_type(attr) != PCILEND_A_RANGE)
			continue;
		if (policy->ranges == PCILEND_SHARE_RANGES) {
			NL_SET_ERR_MSG(info->extack, "at most 8 ranges of BAR pages");
			return -ERANGE;
		}
		err = netlink_share_get_range(attr, &policy->range[policy->ranges], info->extack);
		if (err)
			return err;
		policy->ranges++;
	}
	return 0;
}

static int netlink_share_get_nodes(struct genl_info *info, struct pcilend_access *nodes)
{
	const struct nlattr *attr = info->attrs[PCILEND_A_NODES];
	u32 list[PCILEND_ACCESS_NODES];
	const char *why = NULL;
	int err;

	pcilend_access_all(nodes);
	if (!attr)
		return 0;
	if (nla_len(attr) % sizeof(*list) || nla_len(attr) > sizeof(list)) {
		NL_SET_ERR_MSG(info->extack, "nodes are a list of node ids, 4 bytes each: give such a list");
		return -EINVAL;
	}
	memcpy(list, nla_data(attr), nla_len(attr));
	err = pcilend_access_set(nodes, list, nla_len(attr) / sizeof(*list), &why);
	return pcilend_refuse(info->extack, err, why);
}

static u64 netlink_share_size(struct genl_info *info)
{
	const struct nlattr *attr = info->attrs[PCILEND_A_SIZE];

	return attr ? nla_get_u64(attr) : PCILEND_SLICE_BYTES;
}

int pcilend_share_doit(struct sk_buff *skb, struct genl_info *info)
{
	struct pcilend_share_policy policy = {
		.clients = netlink_share_u32(info->attrs[PCILEND_A_CLIENTS]),
		.vectors = netlink_share_u32(info->attrs[PCILEND_A_VECTORS]),
		.slice_bytes = netlink_share_size(info),
	};
	struct pcilend_access nodes;

	return pcilend_netlink_needs(info, PCILEND_A_LEASE_FD, "lease") ?:
	       pcilend_netlink_needs(info, PCILEND_A_CLIENTS, "number of clients") ?:
	       netlink_share_get_ranges(info, &policy) ?: netlink_share_get_nodes(info, &nodes) ?:
	       pcilend_use_share(netlink_share_u32(info->attrs[PCILEND_A_LEASE_FD]), &policy,
				 &nodes, info->extack);
}

static int netlink_share_put_range(struct sk_buff *skb, const struct pcilend_share_range *range)
{
	struct nlattr *nest = nla_nest_start(skb, PCILEND_CLIENT_A_RANGE);

	if (!nest || nla_put_u32(skb, PCILEND_RANGE_A_BAR, range->bar) ||
	    nla_put_u32(skb, PCILEND_RANGE_A_PAGE, range->page) ||
	    nla_put_u32(skb, PCILEND_RANGE_A_PAGES, range->pages) ||
	    nla_put_u32(skb, PCILEND_RANGE_A_KIND, range->kind))
		return -EMSGSIZE;
	nla_nest_end(skb, nest);
	return 0;
}

/* @joined: to the client itself; NULL: to its manager */
static int netlink_share_put_client(struct sk_buff *skb,
				    const struct pcilend_client_notice *client,
				    const struct pcilend_joined *joined)
{
	struct nlattr *nest = nla_nest_start(skb, PCILEND_A_CLIENT);
	u32 i;

	if (!nest || nla_put_u32(skb, PCILEND_CLIENT_A_LEASE, client->lease) ||
	    nla_put_u32(skb, PCILEND_CLIENT_A_NODE, client->node) ||
	    (!joined && nla_put_u32(skb, PCILEND_CLIENT_A_NEWS, client->news)) ||
	    (client->round && nla_put_u32(skb, PCILEND_CLIENT_A_ROUND, client->round)) ||
	    nla_put_u64_64bit(skb, PCILEND_CLIENT_A_SLICE, client->slice, PCILEND_CLIENT_A_PAD) ||
	    nla_put_u64_64bit(skb, PCILEND_CLIENT_A_SLICE_BYTES, client->slice_bytes,
			      PCILEND_CLIENT_A_PAD) ||
	    nla_put_u32(skb, PCILEND_CLIENT_A_VECTOR, client->vector) ||
	    nla_put_u32(skb, PCILEND_CLIENT_A_VECTORS, client->vectors) ||
	    nla_put_u32(skb, PCILEND_CLIENT_A_PIECE, client->piece))
		return -EMSGSIZE;
	for (i = 0; joined && i < joined->ranges; i++)
		if (netlink_share_put_range(skb, &joined->range[i]))
			return -EMSGSIZE;
	nla_nest_end(skb, nest);
	return 0;
}

/* What is being answered, and to whom. */
struct netlink_join {
	struct pcilend_report report;
	struct pcilend_joined joined;
};

static int netlink_share_join_remote(struct genl_info *info,
				     const struct pcilend_share_wish *wish, struct file **file,
				     struct netlink_join *join)
{
	const struct nlattr *adapter = info->attrs[PCILEND_A_ADAPTER];
	struct pcilend_remote *remote;
	int err = pcilend_get_remote(info, &remote);

	if (err)
		return err;
	err = pcilend_remote_join(remote, nla_data(info->attrs[PCILEND_A_OWNER]),
				  adapter ? nla_data(adapter) : NULL, wish, file, &join->joined,
				  info->extack);
	if (!err) {
		pcilend_remote_report(remote, &join->report);
		/* That of this client, of all that this host may be. */
		strscpy(join->report.adapter, join->joined.adapter, sizeof(join->report.adapter));
	}
	pcilend_remote_put(remote);
	return err;
}

static int netlink_share_join(struct genl_info *info, struct pcilend_reply *reply, u32 id,
			      struct netlink_join *join)
{
	const struct pcilend_share_wish wish = {
		.slice_bytes = netlink_share_size(info),
		.vectors = netlink_share_u32(info->attrs[PCILEND_A_VECTORS]),
		.lease_ms = pcilend_lease_ms,
	};
	struct file *file;
	int fd, err;

	err = pcilend_netlink_needs(info, PCILEND_A_ID, "function") ?:
	      pcilend_netlink_needs(info, PCILEND_A_OWNER, "owner");
	if (err)
		return err;
	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0)
		return fd;
	err = pcilend_id_node(id) == pcilend_node ?
		      pcilend_lender_join(id, nla_data(info->attrs[PCILEND_A_OWNER]), &wish,
					  &file, &join->joined, &join->report, info->extack) :
		      netlink_share_join_remote(info, &wish, &file, join);
	if (err) {
		put_unused_fd(fd);
		return err;
	}
	if (pcilend_put_function(reply->skb, &join->report, reply->trusted) ||
	    netlink_share_put_client(reply->skb, &join->joined.client, &join->joined)) {
		fput(file);
		put_unused_fd(fd);
		return -EMSGSIZE;
	}
	return pcilend_answer_file(reply, info, fd, file);
}

int pcilend_join_doit(struct sk_buff *skb, struct genl_info *info)
{
	struct netlink_join *join __free(kfree) = kzalloc(sizeof(*join), GFP_KERNEL);
	u32 id = netlink_share_u32(info->attrs[PCILEND_A_ID]);
	struct pcilend_reply reply;
	int err;

	err = join ? pcilend_reply_prepare(&reply, skb, info) : -ENOMEM;
	if (err)
		return err;
	err = pcilend_is_admin(skb, info->extack) ? netlink_share_join(info, &reply, id, join) :
						    -EPERM;
	pcilend_audit_asked(skb, "join", id, 0, err);
	nlmsg_free(reply.skb);
	return err;
}

int pcilend_client_next_doit(struct sk_buff *skb, struct genl_info *info)
{
	struct pcilend_client_notice notice;
	struct pcilend_reply reply;
	int err;

	err = pcilend_netlink_needs(info, PCILEND_A_LEASE_FD, "lease") ?:
	      pcilend_reply_prepare(&reply, skb, info);
	if (err)
		return err;
	err = pcilend_use_next_client(nla_get_u32(info->attrs[PCILEND_A_LEASE_FD]), &notice,
				      info->extack);
	if (!err && notice.lease)
		err = netlink_share_put_client(reply.skb, &notice, NULL);
	if (err) {
		nlmsg_free(reply.skb);
		return err;
	}
	genlmsg_end(reply.skb, reply.header);
	return genlmsg_reply(reply.skb, info);
}

int pcilend_cleared_doit(struct sk_buff *skb, struct genl_info *info)
{
	return pcilend_netlink_needs(info, PCILEND_A_LEASE_FD, "lease") ?:
	       pcilend_netlink_needs(info, PCILEND_A_CLIENT_LEASE, "client") ?:
	       pcilend_netlink_needs(info, PCILEND_A_ROUND, "round") ?:
	       pcilend_use_cleared(nla_get_u32(info->attrs[PCILEND_A_LEASE_FD]),
				   nla_get_u32(info->attrs[PCILEND_A_CLIENT_LEASE]),
				   nla_get_u32(info->attrs[PCILEND_A_ROUND]), info->extack);
}
