/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Segments of this host and their offers, as owner.c, owner_peer.c and near.c have them. All
 * functions but segment_owner_alloc() and segment_owner_offer() want segments_lock.
 */
#ifndef PCILEND_SEGMENT_OWNER_H
#define PCILEND_SEGMENT_OWNER_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/wait.h>

#include "base/memory.h"
#include "link/notify.h"
#include "pcilend/segment.h"
#include "pcilend/wire.h"

struct segment {
	struct list_head node;		/* segments_lock, as all that is not constant */
	u32 id;
	char name[PCILEND_LABEL_BYTES];
	u64 size;
	u32 function;			/* whose near memory it is; 0: a process's */
	struct list_head offers;
	bool closed;
	bool ended;			/* an offer, with the boot of its peer */
	wait_queue_head_t wait;

	/* Constant until it is closed; size 0: its pages are let go. */
	struct pcilend_memory memory;
	struct eventfd_ctx *event;	/* or NULL */
};

struct offer {
	struct list_head of_segment;	/* segments_lock, as all that is not constant */
	struct list_head of_link;
	struct segment *segment;
	struct pcilend_link *link;	/* with a reference */
	u32 node;
	u32 number;
	bool read_only;
	u64 iova;
	u32 of_plan;
	u32 window;			/* where the peer finds it, as offset */
	u64 offset;
	struct pcilend_notify notify;	/* while it is offered */
	struct pcilend_source *source;	/* for functions that are lent to @node; with a reference */
	struct pcilend_offer core;
};

extern struct mutex segments_lock;
extern struct list_head segments_list;

/* owner.c */
struct segment *segment_owner_alloc(const char *name);
/* Ids are used again as late as can be. 0: there is none left. */
u32 segment_owner_new_id(void);
/* Something about it has changed; or about that offer of it. */
void segment_owner_tell(const struct segment *segment, const struct offer *offer);
/* Nothing is left of it, and its id is free. */
void segment_owner_end(struct segment *segment);
/* @function: whose near memory it is; 0: a process's */
int segment_owner_offer(u32 id, u32 function, u32 node, struct pcilend_link *link, bool read_only,
			struct netlink_ext_ack *extack);
/* No-op if it is withdrawn already. May free the offer, and a segment that is closed. */
void segment_offer_withdraw(struct offer *offer);
/* Its pages are not mapped, and its range is nobody's. */
void segment_offer_drop(struct offer *offer);
/* One that a node has of it, over any link. */
struct offer *segment_offer_to(u32 id, u32 node);

/* near.c */
/* No-op if it is closed already. May free it. */
void segment_near_close(struct segment *segment);
/* Nobody has near memory that nobody has connected. */
bool segment_near_is_left(const struct offer *offer);

#endif /* PCILEND_SEGMENT_OWNER_H */
