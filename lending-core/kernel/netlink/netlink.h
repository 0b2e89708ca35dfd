/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The generic-netlink family: what is asked of lender and borrower, and what is told of both.
 * Nothing in the module calls it but main.c; events come through base/events.h. It has no locks of
 * its own.
 */
#ifndef PCILEND_NETLINK_H
#define PCILEND_NETLINK_H

#include "borrower/remote.h"
#include "lender/admin.h"
#include "link/link.h"
#include "segment/segment.h"

int pcilend_netlink_init(void);
void pcilend_netlink_exit(void);

/* The rest is shared by the files of netlink/. */

/* config_get.c */
int pcilend_config_get(u32 id, bool emulated, u8 *space, u32 *length,
		       struct netlink_ext_ack *extack);

/* netlink.c, netlink_admin.c */
struct genl_info;

/* A message to be filled; made before a change, so that the change can't end without an answer. */
struct pcilend_reply {
	struct sk_buff *skb;
	void *header;
	bool trusted;			/* to be told what lets others in */
};

int pcilend_reply_prepare(struct pcilend_reply *reply, struct sk_buff *request,
			  struct genl_info *info);
int pcilend_reply_function(struct pcilend_reply *reply, struct genl_info *info,
			   const struct pcilend_report *report);
int pcilend_get_remote(struct genl_info *info, struct pcilend_remote **remote);
bool pcilend_is_admin(struct sk_buff *skb, struct netlink_ext_ack *extack);
int pcilend_admin(struct sk_buff *skb, struct genl_info *info);

/* The last of each operation: who asked for what, and what came of it. */
void pcilend_audit_asked(struct sk_buff *request, const char *operation, u32 id, u32 target,
			 int result);

/* netlink_segment.c */
int pcilend_segment_create_doit(struct sk_buff *skb, struct genl_info *info);
int pcilend_segment_connect_doit(struct sk_buff *skb, struct genl_info *info);
int pcilend_near_get_doit(struct sk_buff *skb, struct genl_info *info);
int pcilend_segment_dumpit(struct sk_buff *skb, struct netlink_callback *cb);
int pcilend_segment_offered_dumpit(struct sk_buff *skb, struct netlink_callback *cb);
int pcilend_put_segment_news(struct sk_buff *skb, const struct pcilend_segment_news *news);

/* netlink_lease.c */
int pcilend_borrow_doit(struct sk_buff *skb, struct genl_info *info);
int pcilend_bar_get_doit(struct sk_buff *skb, struct genl_info *info);
int pcilend_segment_map_doit(struct sk_buff *skb, struct genl_info *info);
int pcilend_segment_unmap_doit(struct sk_buff *skb, struct genl_info *info);
int pcilend_interrupt_set_doit(struct sk_buff *skb, struct genl_info *info);
int pcilend_netlink_needs(struct genl_info *info, int attribute, const char *what);
int pcilend_answer_file(struct pcilend_reply *reply, struct genl_info *info, int fd,
			struct file *file);

/* netlink_share.c */
int pcilend_share_doit(struct sk_buff *skb, struct genl_info *info);
int pcilend_join_doit(struct sk_buff *skb, struct genl_info *info);
int pcilend_client_next_doit(struct sk_buff *skb, struct genl_info *info);
int pcilend_cleared_doit(struct sk_buff *skb, struct genl_info *info);

/* netlink_mail.c */
int pcilend_mail_send_doit(struct sk_buff *skb, struct genl_info *info);
int pcilend_mail_next_doit(struct sk_buff *skb, struct genl_info *info);

/* report.c */
int pcilend_put_link(struct sk_buff *skb, struct pcilend_link *link, bool trusted);
int pcilend_put_function(struct sk_buff *skb, const struct pcilend_report *report, bool trusted);
int pcilend_put_counters(struct sk_buff *skb);
int pcilend_put_audit(struct sk_buff *skb, const struct pcilend_audit *audit);

#endif /* PCILEND_NETLINK_H */
