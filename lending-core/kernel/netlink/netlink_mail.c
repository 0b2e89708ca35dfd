// SPDX-License-Identifier: GPL-2.0-only
/* Mail between a client of a shared function and its manager, by netlink. */

#include <net/genetlink.h>

#include "lease/lease.h"
#include "netlink/netlink.h"

int pcilend_mail_send_doit(struct sk_buff *skb, struct genl_info *info)
{
	const struct nlattr *mail = info->attrs[PCILEND_A_MAIL];
	const struct nlattr *client = info->attrs[PCILEND_A_CLIENT_LEASE];
	struct pcilend_mail_text text = { };
	int err;

	err = pcilend_netlink_needs(info, PCILEND_A_LEASE_FD, "lease") ?:
	      pcilend_netlink_needs(info, PCILEND_A_MAIL, "mail");
	if (err)
		return err;
	if (!nla_len(mail) || nla_len(mail) > sizeof(text.text))
		return pcilend_refuse_fmt(info->extack, -ERANGE, "mail of %d bytes: give 1 to %zu of them",
					  nla_len(mail), sizeof(text.text));
	text.bytes = nla_len(mail);
	memcpy(text.text, nla_data(mail), text.bytes);
	return pcilend_use_send_mail(nla_get_u32(info->attrs[PCILEND_A_LEASE_FD]),
				     client ? nla_get_u32(client) : 0, &text, info->extack);
}

static int netlink_mail_put(struct sk_buff *skb, u32 client, const struct pcilend_mail_text *text)
{
	if (!text->bytes)
		return 0;
	if (nla_put(skb, PCILEND_A_MAIL, text->bytes, text->text) ||
	    (client && nla_put_u32(skb, PCILEND_A_CLIENT_LEASE, client)))
		return -EMSGSIZE;
	return 0;
}

int pcilend_mail_next_doit(struct sk_buff *skb, struct genl_info *info)
{
	struct pcilend_mail_text text;
	struct pcilend_reply reply;
	u32 client;
	int err;

	err = pcilend_netlink_needs(info, PCILEND_A_LEASE_FD, "lease") ?:
	      pcilend_reply_prepare(&reply, skb, info);
	if (err)
		return err;
	err = pcilend_use_next_mail(nla_get_u32(info->attrs[PCILEND_A_LEASE_FD]), &client, &text,
				    info->extack) ?:
	      netlink_mail_put(reply.skb, client, &text);
	if (err) {
		nlmsg_free(reply.skb);
		return err;
	}
	genlmsg_end(reply.skb, reply.header);
	return genlmsg_reply(reply.skb, info);
}
