// SPDX-License-Identifier: GPL-2.0-only
/* Reservations that lenders are asked for. */

#include "borrower/borrower.h"

static const char *reserve_why_refused(int error)
{
	switch (error) {
	case 0:
		return NULL;
	case -EACCES:
		return "it is reserved for somebody else: see 'pcilend show' on its lender";
	case -EAGAIN:
		return "it is not available, and not borrowed by this node: reserve it when it is";
	case -ERANGE:
		return "reserved for an hour without use: borrow it, or reserve it on its lender";
	case -ENODEV:
		return "it is not offered to this node: 'pcilend connect' or 'pcilend allow' there";
	case -ENETDOWN:
		return "the link to its lender is down: see 'pcilend link'";
	case -ETIMEDOUT:
		return "its lender does not answer: see whether that host is alive";
	default:
		return "its lender can't reserve it: use the same release of pcilend on both hosts";
	}
}

/*
 * pcilend_borrower_reserve - ask a function's lender to reserve it
 * @msg: checked as if a peer had sent it
 *
 * May sleep for PCILEND_REQUEST_MS.
 */
int pcilend_borrower_reserve(const struct pcilend_msg_reserve *msg,
			     struct netlink_ext_ack *extack)
{
	struct pcilend_remote *remote;
	struct pcilend_link *link;
	int err = -ENETDOWN;

	remote = pcilend_remote_get(le32_to_cpu(msg->id));
	if (!remote)
		return pcilend_refuse(extack, -ENODEV, "no lender offers a function with that id to this host: see 'pcilend list'");
	link = remote_any_link(to_remote(remote));
	if (link)
		err = pcilend_channel_request(link, PCILEND_MSG_RESERVE, msg, NULL);
	pcilend_link_put(link);
	pcilend_remote_put(remote);
	return pcilend_refuse(extack, err, reserve_why_refused(err));
}
