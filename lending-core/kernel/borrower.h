/* SPDX-License-Identifier: GPL-2.0-only */
/* The borrower's side of a remote function: shared by the files of the borrower. */
#ifndef PCILEND_BORROWER_H
#define PCILEND_BORROWER_H

#include "internal.h"
#include "pcilend/vconfig.h"
#include "virtual.h"

#define PCILEND_FRONTENDS 4

enum remote_state {
	REMOTE_IDLE,
	REMOTE_BORROWING,	/* no lease yet */
	REMOTE_HELD,
	REMOTE_LOST,		/* the lease is over, the frontend has not let go yet */
	REMOTE_RETURNING,	/* let go, but the lender has not acknowledged that it is stopped */
};

/* A range of the aperture that a lease uses for guest memory. */
struct remote_slot {
	struct list_head node;
	u64 iova;
	u64 size;
	bool free;		/* given up, but the function may still write to it */
};

struct remote_binding {
	struct pcilend_frontend *frontend;	/* NULL: entry is free */
	void *data;
};

struct remote {
	struct pcilend_remote pub;
	struct list_head node;		/* remotes_lock; by ascending id */
	struct pcilend_link *link;	/* with a reference */
	struct work_struct work;	/* frontends come and go; the end of it all */

	struct mutex frontends;		/* held while they come and go */
	struct mutex operation;		/* one borrow or return at a time */

	struct mutex lock;		/* all below, and pub.info */
	struct remote_binding binding[PCILEND_FRONTENDS];
	u32 generation;			/* SYNC in which it was last seen */
	bool absent;			/* no longer offered: goes when idle */
	bool dying;
	bool reborn;			/* offered again while dying */
	enum remote_state state;
	u32 lease;			/* 0: none */
	u32 granted;			/* place of the grant among the lender's messages */
	u32 lost_early;			/* a lease that was lost before we learnt of its grant */
	enum pcilend_lost_reason lost_reason;
	u32 recalled;			/* a lease that its lender wants to end; 0: none */
	u64 recall_at;			/* ms: when it will */
	bool fenced;			/* LOST: the lender has stopped it, or died */
	struct pcilend_frontend *frontend;	/* with a reference on its module */
	char owner[PCILEND_OWNER_BYTES];
	struct pcilend_vconfig *config;
	struct pcilend_virtual *virtual;
	struct pcilend_virtual_bar bar[6];
	struct list_head slots;
	u64 guest_bytes;
	u64 guest_map_us;
	struct work_struct lost_work;
	struct work_struct reset_work;	/* as lost_work with a reference */
	struct work_struct recall_work;
};

#define to_remote(p) container_of(p, struct remote, pub)

/* The lease in force, 0 if there is none. */
static inline u32 remote_held_lease(struct remote *r)
{
	u32 lease;

	mutex_lock(&r->lock);
	lease = r->state == REMOTE_HELD ? r->lease : 0;
	mutex_unlock(&r->lock);
	return lease;
}

/* borrower.c */
struct remote *remote_next(struct remote *previous);
void remote_retire_if_idle(struct remote *r);
void remote_event(struct remote *r, enum pcilend_event event);

/* borrow.c */
void remote_lost(struct remote *r, enum pcilend_lost_reason reason, bool fenced);
void remote_settled(struct remote *r);
void remote_recalled(struct remote *r, u32 lease, u32 grace_ms);
void remote_recall_work(struct work_struct *work);
void remote_return_async(struct remote *r, u32 lease);
void remote_lost_work(struct work_struct *work);
void remote_was_reset(struct remote *r, u32 lease);
void remote_reset_work(struct work_struct *work);
void remote_drop_slots(struct remote *r, bool all);

/* frontend.c */
void remote_attach_frontends(struct remote *r);
void remote_detach_frontends(struct remote *r);

#endif /* PCILEND_BORROWER_H */
