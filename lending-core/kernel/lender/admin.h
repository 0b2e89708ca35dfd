/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The lender: functions of this host that it offers to peers. What administrators ask of it, for
 * netlink/, and what link/ does. lender.h is for the files of the lender.
 *
 * A function is named by its PCI address (dddd:bb:dd.f), or by its id. Process context, may sleep:
 * who changes what is lent waits for the change before it, for drivers, and for resets. The caller
 * holds no lock. Return of what can fail: 0, or a negative errno with @extack set.
 */
#ifndef PCILEND_LENDER_ADMIN_H
#define PCILEND_LENDER_ADMIN_H

#include "link/link.h"

struct file;
struct pcilend_joined;
struct pcilend_memory;
struct pcilend_share_wish;

/* What ADD may say of a function from the start. */
struct pcilend_add {
	u32 id;				/* 0: the lowest free one */
	const char *label;		/* NULL: none */
	const struct nlattr *nodes;	/* NULL: all connected ones */
};

/* How AVAILABLE lends it. */
struct pcilend_lend {
	bool direct;			/* without an IOMMU between it and this host's memory */
	bool sanitize;			/* quarantined after each lease, until it was erased */
	bool sanitized;			/* that was done */
	u64 near;			/* bytes of this host's memory that its borrower may have */
};

/*
 * A segment for functions that are lent to @node, which it must be offered to: of this host, or of
 * another one, which offers it to this one, too, and is waited for. Filled in for
 * pcilend_memory_put(). Return: 0; -ENODEV: it is not offered so; -EACCES: read-only, and
 * @read_only is not set; -EHOSTUNREACH: no link to its owner is up; or why it can't be connected.
 */
typedef int (*pcilend_open_segment)(u32 id, u32 node, bool read_only,
				    struct pcilend_memory *memory);

/**
 * struct pcilend_lender_segments - what the lender asks of who keeps segments
 * @open: see pcilend_open_segment; without locks
 * @make_near: memory, which is taken over in any case, becomes a segment for who has borrowed
 *	@function, which is offered to @node over @link. Return: 0, and @id is set; or why not
 * @end_near: of that function nobody has any, on return
 * @near_bytes: how much there is, in how many segments
 *
 * The last three are called with the function's lock and wait for nobody.
 */
struct pcilend_lender_segments {
	pcilend_open_segment open;
	int (*make_near)(u32 function, struct pcilend_link *link, u32 node,
			 const struct pcilend_memory *memory, u32 *id);
	void (*end_near)(u32 function);
	u64 (*near_bytes)(u32 function, u32 *count);
};

/* lender.c, lender_admin.c, lender_peer.c */
int pcilend_lender_init(const struct pcilend_lender_segments *segments);
void pcilend_lender_exit(void);
int pcilend_lender_connect(u32 node, const char *adapter, struct netlink_ext_ack *extack);
int pcilend_lender_disconnect(u32 node, struct netlink_ext_ack *extack);
bool pcilend_lender_connected(u32 node);
bool pcilend_lender_lends(u32 node);
u32 pcilend_lender_id(const char *bdf);
int pcilend_lender_check(const char *bdf, struct netlink_ext_ack *extack);
int pcilend_lender_add(const char *bdf, const struct pcilend_add *with,
		       struct netlink_ext_ack *extack, struct pcilend_report *report);
int pcilend_lender_remove(const char *bdf, struct netlink_ext_ack *extack);
int pcilend_lender_available(const char *bdf, const struct pcilend_lend *lend,
			     struct netlink_ext_ack *extack, struct pcilend_report *report);
int pcilend_lender_unavailable(const char *bdf, bool force, struct netlink_ext_ack *extack);
int pcilend_lender_recall(const char *bdf, u32 grace_ms, struct netlink_ext_ack *extack);
int pcilend_lender_release_quarantine(const char *bdf, struct netlink_ext_ack *extack,
				      struct pcilend_report *report);
int pcilend_lender_label(const char *bdf, const char *label, struct netlink_ext_ack *extack);
int pcilend_lender_allow(const char *bdf, const struct nlattr *nodes,
			 struct netlink_ext_ack *extack);
int pcilend_lender_report(const char *bdf, u32 id, struct pcilend_report *report,
			  struct netlink_ext_ack *extack);
/* The local function with the lowest id above @after; false if there is none. */
bool pcilend_lender_next(u32 after, struct pcilend_report *report);
bool pcilend_lender_has_uuid(const u8 uuid[16]);

/* lender_local.c */
int pcilend_lender_lease(u32 id, const char *owner, u64 bytes, struct file **file,
			 struct pcilend_report *report, struct netlink_ext_ack *extack);

/* lender_share_process.c */
int pcilend_lender_join(u32 id, const char *owner, const struct pcilend_share_wish *wish,
			struct file **file, struct pcilend_joined *joined,
			struct pcilend_report *report, struct netlink_ext_ack *extack);

/* For pcilend_links_register(). */
extern const struct pcilend_lender_ops pcilend_lender_link_ops;

/* lender_reserve.c */
int pcilend_lender_reserve(const struct pcilend_msg_reserve *msg, struct netlink_ext_ack *extack);

#endif /* PCILEND_LENDER_ADMIN_H */
