// SPDX-License-Identifier: GPL-2.0-only
/*
 * The device API (lease/lease.h) by netlink: a lease fd for administrators, and what whoever has
 * one may ask with it. Descriptors are those of the process that sends the request.
 */

#include <linux/file.h>
#include <net/genetlink.h>

#include "lease/lease.h"
#include "netlink/netlink.h"

static const char lease_frontend[] = "lease";

static u32 netlink_lease_u32(struct genl_info *info, int attribute, u32 otherwise)
{
	const struct nlattr *attr = info->attrs[attribute];

	return attr ? nla_get_u32(attr) : otherwise;
}

static u64 netlink_lease_u64(struct genl_info *info, int attribute, u64 otherwise)
{
	const struct nlattr *attr = info->attrs[attribute];

	return attr ? nla_get_u64(attr) : otherwise;
}

/* Return: 0, or -EINVAL that says that @what is missing. */
int pcilend_netlink_needs(struct genl_info *info, int attribute, const char *what)
{
	if (info->attrs[attribute])
		return 0;
	return pcilend_refuse_fmt(info->extack, -EINVAL, "the request names no %s: give it", what);
}

/* The process sees the file only once its answer is there: nothing is left to fail then. */
int pcilend_answer_file(struct pcilend_reply *reply, struct genl_info *info, int fd,
			struct file *file)
{
	struct sk_buff *skb = reply->skb;
	int err = nla_put_u32(skb, PCILEND_A_FD, fd);

	if (!err) {
		reply->skb = NULL;
		genlmsg_end(skb, reply->header);
		err = genlmsg_reply(skb, info);
	}
	if (!err) {
		fd_install(fd, file);
		return 0;
	}
	fput(file);
	put_unused_fd(fd);
	return err;
}

static int netlink_lease_borrow_remote(struct genl_info *info, u64 bytes, struct file **file,
				       struct pcilend_report *report)
{
	const struct nlattr *adapter = info->attrs[PCILEND_A_ADAPTER];
	struct pcilend_remote *remote;
	int err;

	err = pcilend_get_remote(info, &remote);
	if (err)
		return err;
	err = pcilend_remote_lease(remote, nla_data(info->attrs[PCILEND_A_OWNER]),
				   adapter ? nla_data(adapter) : NULL, bytes, file,
				   info->extack);
	if (!err)
		pcilend_remote_report(remote, report);
	pcilend_remote_put(remote);
	return err;
}

static int netlink_lease_borrow(struct genl_info *info, struct pcilend_reply *reply, u32 id,
				struct pcilend_report *report)
{
	u64 bytes = netlink_lease_u64(info, PCILEND_A_SIZE, PCILEND_SLICE_BYTES);
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
		      pcilend_lender_lease(id, nla_data(info->attrs[PCILEND_A_OWNER]), bytes,
					   &file, report, info->extack) :
		      netlink_lease_borrow_remote(info, bytes, &file, report);
	if (err) {
		put_unused_fd(fd);
		return err;
	}
	if (pcilend_put_function(reply->skb, report, reply->trusted)) {
		fput(file);
		put_unused_fd(fd);
		return -EMSGSIZE;
	}
	return pcilend_answer_file(reply, info, fd, file);
}

static bool netlink_lease_is_wanted(struct genl_info *info)
{
	const struct nlattr *frontend = info->attrs[PCILEND_A_FRONTEND];

	return frontend && !strcmp(nla_data(frontend), lease_frontend);
}

/* All other frontends keep what they borrow until it is returned. */
int pcilend_borrow_doit(struct sk_buff *skb, struct genl_info *info)
{
	struct pcilend_report *report __free(kfree) = NULL;
	u32 id = netlink_lease_u32(info, PCILEND_A_ID, 0);
	struct pcilend_reply reply;
	int err;

	if (!netlink_lease_is_wanted(info))
		return pcilend_admin(skb, info);
	report = kmalloc(sizeof(*report), GFP_KERNEL);
	err = report ? pcilend_reply_prepare(&reply, skb, info) : -ENOMEM;
	if (err)
		return err;
	err = pcilend_is_admin(skb, info->extack) ?
		      netlink_lease_borrow(info, &reply, id, report) : -EPERM;
	pcilend_audit_asked(skb, "borrow", id, 0, err);
	nlmsg_free(reply.skb);
	return err;
}

int pcilend_bar_get_doit(struct sk_buff *skb, struct genl_info *info)
{
	struct pcilend_reply reply;
	struct file *file;
	int fd, err;

	err = pcilend_netlink_needs(info, PCILEND_A_LEASE_FD, "lease") ?:
	      pcilend_netlink_needs(info, PCILEND_A_BAR, "BAR") ?:
	      pcilend_netlink_needs(info, PCILEND_A_SIZE, "size");
	err = err ?: pcilend_reply_prepare(&reply, skb, info);
	if (err)
		return err;
	fd = get_unused_fd_flags(O_CLOEXEC);
	err = fd < 0 ? fd : 0;
	if (err)
		goto out;
	err = pcilend_use_bar(netlink_lease_u32(info, PCILEND_A_LEASE_FD, 0),
			      netlink_lease_u32(info, PCILEND_A_BAR, 0),
			      netlink_lease_u64(info, PCILEND_A_OFFSET, 0),
			      netlink_lease_u64(info, PCILEND_A_SIZE, 0), &file, info->extack);
	if (err)
		put_unused_fd(fd);
	else
		err = pcilend_answer_file(&reply, info, fd, file);
out:
	nlmsg_free(reply.skb);
	return err;
}

int pcilend_segment_map_doit(struct sk_buff *skb, struct genl_info *info)
{
	int lease = netlink_lease_u32(info, PCILEND_A_LEASE_FD, 0);
	struct pcilend_reply reply;
	u64 address;
	int err;

	err = pcilend_netlink_needs(info, PCILEND_A_LEASE_FD, "lease") ?:
	      pcilend_netlink_needs(info, PCILEND_A_FD, "memory");
	err = err ?: pcilend_reply_prepare(&reply, skb, info);
	if (err)
		return err;
	err = pcilend_use_map(lease, netlink_lease_u32(info, PCILEND_A_FD, 0),
			      info->attrs[PCILEND_A_READ_ONLY], &address, info->extack);
	if (!err && nla_put_u64_64bit(reply.skb, PCILEND_A_ADDRESS, address, PCILEND_A_PAD)) {
		pcilend_use_unmap(lease, address, NULL);
		err = -EMSGSIZE;
	}
	if (err) {
		nlmsg_free(reply.skb);
		return err;
	}
	genlmsg_end(reply.skb, reply.header);
	err = genlmsg_reply(reply.skb, info);
	/* The process does not know where it would be. */
	if (err)
		pcilend_use_unmap(lease, address, NULL);
	return err;
}

int pcilend_segment_unmap_doit(struct sk_buff *skb, struct genl_info *info)
{
	return pcilend_netlink_needs(info, PCILEND_A_LEASE_FD, "lease") ?:
	       pcilend_netlink_needs(info, PCILEND_A_ADDRESS, "address") ?:
	       pcilend_use_unmap(netlink_lease_u32(info, PCILEND_A_LEASE_FD, 0),
				 netlink_lease_u64(info, PCILEND_A_ADDRESS, 0), info->extack);
}

int pcilend_interrupt_set_doit(struct sk_buff *skb, struct genl_info *info)
{
	return pcilend_netlink_needs(info, PCILEND_A_LEASE_FD, "lease") ?:
	       pcilend_netlink_needs(info, PCILEND_A_VECTOR, "vector") ?:
	       pcilend_use_interrupt(netlink_lease_u32(info, PCILEND_A_LEASE_FD, 0),
				     netlink_lease_u32(info, PCILEND_A_VECTOR, 0),
				     netlink_lease_u32(info, PCILEND_A_EVENT_FD, -1),
				     info->extack);
}
