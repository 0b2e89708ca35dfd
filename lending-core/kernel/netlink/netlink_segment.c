// SPDX-License-Identifier: GPL-2.0-only
/*
 * Netlink operations that give or take file descriptors, and the list of segments. A request is
 * handled in the process that sends it, so its descriptors are that one's.
 */

#include <linux/file.h>
#include <net/genetlink.h>

#include "lease/lease.h"
#include "netlink/netlink.h"

/* The process sees files only once its answer is there: nothing is left to fail then. */
static int netlink_segment_answer(struct pcilend_reply *reply, struct genl_info *info)
{
	struct sk_buff *skb = reply->skb;

	reply->skb = NULL;
	genlmsg_end(skb, reply->header);
	return genlmsg_reply(skb, info);
}

static int netlink_segment_create(struct genl_info *info, struct pcilend_reply *reply, u32 *id)
{
	const struct nlattr *name = info->attrs[PCILEND_A_LABEL];
	const struct nlattr *event = info->attrs[PCILEND_A_EVENT_FD];
	struct file *file;
	int fd, err;

	if (!info->attrs[PCILEND_A_FD]) {
		NL_SET_ERR_MSG(info->extack, "no memory named: give a dma-buf, as fd");
		return -EINVAL;
	}
	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0)
		return fd;
	err = pcilend_segment_create(nla_get_u32(info->attrs[PCILEND_A_FD]),
				     name ? nla_data(name) : "", event ? nla_get_u32(event) : -1,
				     &file, id, info->extack);
	if (err)
		goto err_fd;
	if (nla_put_u32(reply->skb, PCILEND_A_ID, *id) || nla_put_u32(reply->skb, PCILEND_A_FD, fd))
		err = -EMSGSIZE;
	err = err ?: netlink_segment_answer(reply, info);
	if (err)
		goto err_file;
	fd_install(fd, file);
	return 0;

err_file:
	fput(file);
err_fd:
	put_unused_fd(fd);
	return err;
}

int pcilend_segment_create_doit(struct sk_buff *skb, struct genl_info *info)
{
	struct pcilend_reply reply;
	u32 id = 0;
	int err;

	err = pcilend_reply_prepare(&reply, skb, info);
	if (err)
		return err;
	err = pcilend_is_admin(skb, info->extack) ? netlink_segment_create(info, &reply, &id) :
						    -EPERM;
	pcilend_audit_asked(skb, "segment-create", id, 0, err);
	nlmsg_free(reply.skb);
	return err;
}

static int netlink_segment_put_connection(struct sk_buff *skb,
					  const struct pcilend_connection_report *report)
{
	struct nlattr *nest = nla_nest_start(skb, PCILEND_A_SEGMENT);

	if (!nest || nla_put_u32(skb, PCILEND_SEGMENT_A_ID, report->id) ||
	    nla_put_u64_64bit(skb, PCILEND_SEGMENT_A_SIZE, report->size, PCILEND_SEGMENT_A_PAD) ||
	    nla_put_u32(skb, PCILEND_SEGMENT_A_STATE,
			report->lost ? PCILEND_SEGMENT_LOST : PCILEND_SEGMENT_CONNECTED) ||
	    nla_put_string(skb, PCILEND_SEGMENT_A_ADAPTER, report->adapter) ||
	    (report->read_only && nla_put_flag(skb, PCILEND_SEGMENT_A_READ_ONLY)) ||
	    (report->write_combining && nla_put_flag(skb, PCILEND_SEGMENT_A_WRITE_COMBINING)))
		return -EMSGSIZE;
	nla_nest_end(skb, nest);
	return 0;
}

static int netlink_segment_open(struct genl_info *info, struct pcilend_reply *reply,
				const struct pcilend_segment_wish *wish)
{
	struct pcilend_connection_report report;
	struct file *buffer, *control;
	int fd, control_fd, err;

	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0)
		return fd;
	control_fd = get_unused_fd_flags(O_CLOEXEC);
	err = control_fd < 0 ? control_fd : 0;
	if (err)
		goto err_fd;
	err = pcilend_segment_connect(wish, &buffer, &control, &report, info->extack);
	if (err)
		goto err_control_fd;
	if (netlink_segment_put_connection(reply->skb, &report) ||
	    nla_put_u32(reply->skb, PCILEND_A_FD, fd) ||
	    nla_put_u32(reply->skb, PCILEND_A_CONTROL_FD, control_fd))
		err = -EMSGSIZE;
	err = err ?: netlink_segment_answer(reply, info);
	if (err)
		goto err_files;
	fd_install(fd, buffer);
	fd_install(control_fd, control);
	return 0;

err_files:
	fput(control);
	fput(buffer);
err_control_fd:
	put_unused_fd(control_fd);
err_fd:
	put_unused_fd(fd);
	return err;
}

static int netlink_segment_connect(struct genl_info *info, struct pcilend_reply *reply, u32 id)
{
	struct nlattr **attrs = info->attrs;
	const struct pcilend_segment_wish wish = {
		.id = id,
		.adapter = attrs[PCILEND_A_ADAPTER] ? nla_data(attrs[PCILEND_A_ADAPTER]) : NULL,
		.read_only = attrs[PCILEND_A_READ_ONLY],
		.write_combining = attrs[PCILEND_A_WRITE_COMBINING],
	};

	return netlink_segment_open(info, reply, &wish);
}

/* What the lender has made ends with the connection, or with the lease. */
static int netlink_segment_near(struct genl_info *info, struct pcilend_reply *reply)
{
	int lease = nla_get_u32(info->attrs[PCILEND_A_LEASE_FD]);
	struct pcilend_use_near near = { .size = nla_get_u64(info->attrs[PCILEND_A_SIZE]) };
	struct pcilend_segment_wish wish = {
		.adapter = near.adapter,
		.write_combining = info->attrs[PCILEND_A_WRITE_COMBINING],
	};
	int err;

	err = pcilend_use_get_near(lease, &near, info->extack);
	if (err == -ENOSPC) {
		/* What the process has just let go its lender may not have heard of. */
		pcilend_segments_settle(near.adapter);
		pcilend_refuse_nothing(info->extack);
		err = pcilend_use_get_near(lease, &near, info->extack);
	}
	if (err)
		return err;
	wish.id = near.segment;
	return netlink_segment_open(info, reply, &wish);
}

int pcilend_segment_connect_doit(struct sk_buff *skb, struct genl_info *info)
{
	const struct nlattr *attr = info->attrs[PCILEND_A_ID];
	u32 id = attr ? nla_get_u32(attr) : 0;
	struct pcilend_reply reply;
	int err;

	err = pcilend_reply_prepare(&reply, skb, info);
	if (err)
		return err;
	err = pcilend_is_admin(skb, info->extack) ? netlink_segment_connect(info, &reply, id) :
						    -EPERM;
	pcilend_audit_asked(skb, "segment-connect", id, 0, err);
	nlmsg_free(reply.skb);
	return err;
}

/* Whoever has the lease may: it is no segment of anybody else's. */
int pcilend_near_get_doit(struct sk_buff *skb, struct genl_info *info)
{
	struct pcilend_reply reply;
	int err;

	err = pcilend_netlink_needs(info, PCILEND_A_LEASE_FD, "lease") ?:
	      pcilend_netlink_needs(info, PCILEND_A_SIZE, "size");
	err = err ?: pcilend_reply_prepare(&reply, skb, info);
	if (err)
		return err;
	err = netlink_segment_near(info, &reply);
	nlmsg_free(reply.skb);
	return err;
}

static enum pcilend_segment_state
netlink_segment_state(const struct pcilend_segment_report *report)
{
	enum pcilend_segment_state state = PCILEND_SEGMENT_CREATED;
	u32 i;

	if (report->closed)
		return PCILEND_SEGMENT_WITHDRAWN;
	for (i = 0; i < report->offers; i++) {
		if (report->offer[i].withdrawn)
			continue;
		if (report->offer[i].connections)
			return PCILEND_SEGMENT_CONNECTED;
		state = PCILEND_SEGMENT_OFFERED;
	}
	return state;
}

static int netlink_segment_put_offer(struct sk_buff *skb,
				     const struct pcilend_segment_offer *offer)
{
	struct nlattr *nest = nla_nest_start(skb, PCILEND_SEGMENT_A_OFFER);

	if (!nest || nla_put_u32(skb, PCILEND_OFFER_A_NODE, offer->node) ||
	    nla_put_string(skb, PCILEND_OFFER_A_ADAPTER, offer->adapter) ||
	    (offer->read_only && nla_put_flag(skb, PCILEND_OFFER_A_READ_ONLY)) ||
	    (offer->withdrawn && nla_put_flag(skb, PCILEND_OFFER_A_WITHDRAWN)) ||
	    nla_put_u32(skb, PCILEND_OFFER_A_CONNECTIONS, offer->connections))
		return -EMSGSIZE;
	nla_nest_end(skb, nest);
	return 0;
}

static int netlink_segment_put(struct sk_buff *skb, const struct pcilend_segment_report *report)
{
	struct nlattr *nest = nla_nest_start(skb, PCILEND_A_SEGMENT);
	u32 i;

	if (!nest || nla_put_u32(skb, PCILEND_SEGMENT_A_ID, report->id) ||
	    nla_put_string(skb, PCILEND_SEGMENT_A_NAME, report->name) ||
	    nla_put_u64_64bit(skb, PCILEND_SEGMENT_A_SIZE, report->size, PCILEND_SEGMENT_A_PAD) ||
	    nla_put_u32(skb, PCILEND_SEGMENT_A_STATE, netlink_segment_state(report)))
		return -EMSGSIZE;
	for (i = 0; i < report->offers; i++) {
		if (netlink_segment_put_offer(skb, &report->offer[i]))
			return -EMSGSIZE;
	}
	nla_nest_end(skb, nest);
	return 0;
}

/* Adds the nest PCILEND_A_SEGMENT. Return: 0 or -EMSGSIZE. */
int pcilend_put_segment_news(struct sk_buff *skb, const struct pcilend_segment_news *news)
{
	struct nlattr *nest = nla_nest_start(skb, PCILEND_A_SEGMENT);

	if (!nest || nla_put_u32(skb, PCILEND_SEGMENT_A_ID, news->id) ||
	    (news->size && nla_put_u64_64bit(skb, PCILEND_SEGMENT_A_SIZE, news->size,
					     PCILEND_SEGMENT_A_PAD)) ||
	    nla_put_u32(skb, PCILEND_SEGMENT_A_STATE, news->state) ||
	    (news->adapter && nla_put_string(skb, PCILEND_SEGMENT_A_ADAPTER, news->adapter)) ||
	    (news->offer && netlink_segment_put_offer(skb, news->offer)))
		return -EMSGSIZE;
	nla_nest_end(skb, nest);
	return 0;
}

static int netlink_segment_put_offered(struct sk_buff *skb,
				       const struct pcilend_offered_report *report)
{
	struct nlattr *nest = nla_nest_start(skb, PCILEND_A_SEGMENT);

	if (!nest || nla_put_u32(skb, PCILEND_SEGMENT_A_ID, report->id) ||
	    nla_put_string(skb, PCILEND_SEGMENT_A_NAME, report->name) ||
	    nla_put_u64_64bit(skb, PCILEND_SEGMENT_A_SIZE, report->size, PCILEND_SEGMENT_A_PAD) ||
	    nla_put_u32(skb, PCILEND_SEGMENT_A_STATE, PCILEND_SEGMENT_OFFERED) ||
	    nla_put_string(skb, PCILEND_SEGMENT_A_ADAPTER, report->adapter) ||
	    (report->read_only && nla_put_flag(skb, PCILEND_SEGMENT_A_READ_ONLY)))
		return -EMSGSIZE;
	nla_nest_end(skb, nest);
	return 0;
}

/* args[0]: the link that was asked last; args[1]: id of the last one that was put, 0: none yet. */
int pcilend_segment_offered_dumpit(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct pcilend_offered_report report = { .link = cb->args[0], .id = cb->args[1] };
	void *header;

	if (!netlink_capable(cb->skb, CAP_SYS_ADMIN)) {
		NL_SET_ERR_MSG(cb->extack, "what peers offer is shown to administrators: run this as root, or with sudo");
		return -EPERM;
	}
	while (pcilend_segment_offered_next(&report)) {
		header = genlmsg_iput(skb, genl_info_dump(cb));
		if (!header)
			break;
		if (netlink_segment_put_offered(skb, &report)) {
			genlmsg_cancel(skb, header);
			break;
		}
		genlmsg_end(skb, header);
		cb->args[0] = report.link;
		cb->args[1] = report.id;
	}
	return skb->len;
}

/* One message of the dump; of one of the two. Return: 0 or -EMSGSIZE. */
static int netlink_segment_dump_one(struct sk_buff *skb, struct netlink_callback *cb,
				    const struct pcilend_segment_report *segment,
				    const struct pcilend_connection_report *connection)
{
	void *header = genlmsg_iput(skb, genl_info_dump(cb));

	if (!header)
		return -EMSGSIZE;
	genl_dump_check_consistent(cb, header);
	if (segment ? netlink_segment_put(skb, segment) :
		      netlink_segment_put_connection(skb, connection)) {
		genlmsg_cancel(skb, header);
		return -EMSGSIZE;
	}
	genlmsg_end(skb, header);
	return 0;
}

/* args[0]: 0 this host's segments, 1 connections, 2 done; args[1]: id or number of the last one. */
int pcilend_segment_dumpit(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct pcilend_segment_report *segment __free(kfree) = kmalloc(sizeof(*segment),
								       GFP_KERNEL);
	struct pcilend_connection_report connection;

	if (!segment)
		return -ENOMEM;
	cb->seq = pcilend_generation();
	if (cb->args[0] == 0) {
		while (pcilend_segment_next(cb->args[1], segment)) {
			if (netlink_segment_dump_one(skb, cb, segment, NULL))
				return skb->len;
			cb->args[1] = segment->id;
		}
		cb->args[0] = 1;
		cb->args[1] = 0;
	}
	while (cb->args[0] == 1 && pcilend_connection_next(cb->args[1], &connection)) {
		if (netlink_segment_dump_one(skb, cb, NULL, &connection))
			return skb->len;
		cb->args[1] = connection.connection;
	}
	cb->args[0] = 2;
	return skb->len;
}
