/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What is told of changes: of links, of functions, and of who asked for them (the audit). Whoever
 * changes something says so here, in process context; that it reaches listeners is for the one that
 * pcilend_events_listen() was called for. No lock is taken that a caller could notice.
 */
#ifndef PCILEND_EVENTS_H
#define PCILEND_EVENTS_H

#include <linux/pcilend.h>
#include <linux/spinlock.h>

#include "pcilend/access.h"
#include "pcilend/pcilend.h"
#include "pcilend/reach.h"
#include "pcilend/set.h"
#include "pcilend/wire.h"

#define PCILEND_PATHS 8			/* links to one node that are used */

struct pcilend_link;

/* Another function of a function's IOMMU group. */
struct pcilend_report_member {
	u32 id;				/* 0: not added */
	enum pcilend_function_state state;
	u16 segment;
	u8 bus;
	u8 devfn;
};

/* Who shares a function with its borrower. */
struct pcilend_report_client {
	u32 lease;
	u16 node;
	u8 state;			/* enum pcilend_client_state */
};

/* Everything that listings and events say about a function, made under its lock. */
struct pcilend_report {
	struct pcilend_msg_function info;
	u32 lease;
	bool local;			/* this host is the lender */
	const char *reason;		/* constant sentence, or NULL */
	char frontend[16];
	char adapter[16];		/* that the lease goes over */
	char path[PCILEND_PATHS][16];	/* adapters over which it can be reached; "": no more */
	char owner[PCILEND_OWNER_BYTES];
	char virtual[24];
	char driver[32];
	u64 guest_bytes;
	u32 resets;
	u64 faults;
	bool relayed;			/* MSI, by the lender */
	u64 recall_ms;			/* left; U64_MAX: not recalled */
	u32 reaches;			/* functions whose BARs it reaches, by ascending id */
	u32 reach[PCILEND_REACHES];
	/* of the lender only */
	u32 lease_ms;
	u64 lease_left_ms;		/* U64_MAX: not borrowed */
	int group;			/* IOMMU group, negative: none */
	u32 members;			/* others in it */
	struct pcilend_report_member member[PCILEND_SET_MAX - 1];
	struct pcilend_access access;
	u8 reserved_uuid[16];		/* zeroes: not for a domain */
	u64 reserved_ms;		/* left */
	bool sanitize;			/* quarantined after each lease, until it was erased */
	bool dirty;			/* it was not, since the last one */
	u64 near;			/* bytes that its borrower may have of this host's memory */
	u64 near_used;			/* that it has */
	u32 clients;
	struct pcilend_report_client client[PCILEND_WIRE_SHARE_CLIENTS];
};

/* A node that a segment of this host is offered to. */
struct pcilend_segment_offer {
	u32 node;
	char adapter[16];
	bool read_only;
	bool withdrawn;
	u32 connections;
};

/* What events say about a segment. */
struct pcilend_segment_news {
	u32 id;
	u64 size;			/* 0: not told */
	enum pcilend_segment_state state;
	const struct pcilend_segment_offer *offer;	/* that has changed; NULL: none */
	const char *adapter;		/* of the connection that it is about; NULL: of none */
};

struct pcilend_audit {
	u32 uid;
	u32 node;			/* 0: asked by that user of this host */
	const char *action;		/* constant */
	u32 function;			/* id, 0: about none */
	u32 target;			/* node it is about, or id of a second function, which is */
					/* above all nodes; 0: none */
	int result;			/* 0 or a negative errno */
};

/* Per link: how much a peer may put into the audit. */
struct pcilend_audit_limit {
	spinlock_t lock;		/* the rest */
	u64 since;			/* ms: start of the time that @lines counts */
	u32 lines;
};

/**
 * struct pcilend_event_ops - where events go
 * @link: something of it has changed
 * @function: one has changed, as @report says
 * @audit: somebody has changed something, or was refused
 * @segment: one has changed, or an offer or a connection of it; or with @gone, has ended
 *
 * All are there. Process context; locks of whoever tells may be held, so none of these is taken.
 */
struct pcilend_event_ops {
	void (*link)(struct pcilend_link *link);
	void (*function)(enum pcilend_event event, const struct pcilend_report *report);
	void (*audit)(const struct pcilend_audit *audit);
	void (*segment)(const struct pcilend_segment_news *news, bool gone);
};

/* There they go from now on; with NULL: nowhere. Calls that are under way are not waited for. */
void pcilend_events_listen(const struct pcilend_event_ops *ops);

/* events.c */
void pcilend_event_link(struct pcilend_link *link);
void pcilend_event_function(enum pcilend_event event, const struct pcilend_report *report);
void pcilend_event_audit(const struct pcilend_audit *audit);
void pcilend_event_segment(const struct pcilend_segment_news *news, bool gone);

/* audit.c */
void pcilend_audit_limit_init(struct pcilend_audit_limit *limit);
void pcilend_audit_admin(u32 uid, const char *action, u32 function, u32 target, int result);
void pcilend_audit_peer(struct pcilend_audit_limit *limit, u32 node, const char *action,
			u32 function, u32 target, int result);

#endif /* PCILEND_EVENTS_H */
