/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Segments: memory of processes, shared between hosts through windows of the NTB (core/segment.h
 * has the life cycles). Both ends are here:
 *
 *	owner.c		a process gives a dma-buf and gets a segment fd, whose close ends it.
 *			Offers map its pages in slots of apertures, side by side
 *	owner_peer.c	peers connect what they are offered, are told when that ends, or die
 *	connection.c	a process of a peer gets a dma-buf whose mmap is the window, and a control
 *			fd: poll says when it is lost, mmap shows the epoch
 *	offered.c	asks peers for what they offer to this host
 *	reached.c	segments for functions that this host lends
 *	near.c		memory of this host for who has borrowed a function of it, as a segment
 *	segment_link.c	what happens to a link, for both
 *
 * It knows links, but neither lender nor borrower. What is named here may be called in process
 * context without locks but segments_lock and those above it (base.h has the order).
 */
#ifndef PCILEND_SEGMENT_KERNEL_H
#define PCILEND_SEGMENT_KERNEL_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/workqueue.h>

#include "base/events.h"
#include "base/memory.h"
#include "link/link.h"
#include "pcilend/segment.h"

struct file;

#define PCILEND_SEGMENT_OFFERS 16	/* of one segment, those that are withdrawn included */

/* What listings say. */
struct pcilend_segment_report {
	u32 id;
	char name[PCILEND_LABEL_BYTES];
	u64 size;
	bool closed;			/* its owner has; peers may still have it in their tables */
	u32 offers;
	struct pcilend_segment_offer offer[PCILEND_SEGMENT_OFFERS];
};

struct pcilend_connection_report {
	u32 id;				/* of the segment */
	u32 connection;
	u64 size;
	char adapter[16];
	bool read_only;
	bool write_combining;
	bool lost;
};

/* What a peer offers to this host. */
struct pcilend_offered_report {
	u32 link;			/* its index */
	u32 id;
	u64 size;
	char name[PCILEND_LABEL_BYTES];
	char adapter[16];
	bool read_only;
};

/* What to connect, and how. */
struct pcilend_segment_wish {
	u32 id;
	const char *adapter;		/* of this host, or NULL: any */
	bool read_only;
	bool write_combining;
	u32 node;			/* for functions that this host lends to that one; 0: not */
};

/* owner.c */
int pcilend_segment_create(int dma_buf_fd, const char *name, int event_fd, struct file **file,
			   u32 *id, struct netlink_ext_ack *extack);
int pcilend_segment_offer(u32 id, u32 node, const char *adapter, bool read_only,
			  struct netlink_ext_ack *extack);
int pcilend_segment_withdraw(u32 id, u32 node, struct netlink_ext_ack *extack);
bool pcilend_segment_next(u32 id, struct pcilend_segment_report *report);

/* connection.c */
int pcilend_segment_connect(const struct pcilend_segment_wish *wish, struct file **buffer,
			    struct file **control, struct pcilend_connection_report *report,
			    struct netlink_ext_ack *extack);
bool pcilend_connection_next(u32 connection, struct pcilend_connection_report *report);

/* reached.c: for pcilend_lender_init() */
int pcilend_segment_open(u32 id, u32 node, bool read_only, struct pcilend_memory *memory);

/*
 * near.c: for pcilend_lender_init(). @memory, which is taken over in any case, becomes a
 * segment that is offered to @node over @link. Return: 0, and @id is set; or why not.
 */
int pcilend_near_make(u32 function, struct pcilend_link *link, u32 node,
		      const struct pcilend_memory *memory, u32 *id);
/* On return no function reaches any of that function's. */
void pcilend_near_end(u32 function);
/* Bytes that it has; @count is set to how many of them there are. */
u64 pcilend_near_bytes(u32 function, u32 *count);

/* offered.c */
bool pcilend_segment_offered_next(struct pcilend_offered_report *report);

/* segment_link.c */
extern const struct pcilend_segment_ops pcilend_segment_link_ops;
/* Is one offered, or connected? No new one is while pcilend_sleeps(). */
bool pcilend_segments_in_use(void);
/* Returns when the peer behind that adapter was told of what is closed here, or does not answer. */
void pcilend_segments_settle(const char *adapter);
void pcilend_segments_exit(void);

/* The rest is shared by the files of segment/. */

/* What is kept with a link. */
struct segment_link {
	struct pcilend_link *link;

	/* owner.c, owner_peer.c: segments_lock */
	u32 node;			/* whom may be offered something over it; 0: nobody */
	struct list_head offers;
	struct delayed_work tell;	/* peers of what is withdrawn */

	/* connection.c */
	struct mutex lock;		/* the next two, and what the connections say */
	u32 owner;			/* whose segments may be connected over it; 0: nobody's */
	struct list_head connections;
	struct work_struct lose;
	struct delayed_work release;	/* tells owners */
	spinlock_t status_lock;		/* the next; taken in interrupts */
	struct list_head statuses;
};

static inline struct segment_link *segment_link(struct pcilend_link *link)
{
	return link->segments;
}

/* As pcilend_segment_open(): of this host's own. */
int segment_owner_open(u32 id, u32 node, bool read_only, struct pcilend_memory *memory);
void segment_owner_exit(void);
void segment_owner_link_init(struct segment_link *sl);
void segment_owner_up(struct segment_link *sl);
void segment_owner_expelled(struct segment_link *sl);
void segment_owner_peer_dead(struct segment_link *sl);
void segment_owner_connect(struct pcilend_link *link, const struct pcilend_message *msg);
void segment_owner_release(struct pcilend_link *link, const struct pcilend_message *msg);
void segment_owner_next(struct pcilend_link *link, const struct pcilend_message *msg);
bool segment_owner_offers(struct segment_link *sl);

/* The same of another host's. */
int segment_connection_open(u32 id, u32 node, bool read_only, struct pcilend_memory *memory);
void segment_connection_link_init(struct segment_link *sl);
void segment_connection_up(struct segment_link *sl);
void segment_connection_lost(struct segment_link *sl);
void segment_connection_silent(struct segment_link *sl);
void segment_connection_expelled(struct segment_link *sl);
void segment_connection_peer_dead(struct segment_link *sl);
void segment_connection_withdraw(struct pcilend_link *link, const struct pcilend_message *msg);
bool segment_connection_in_use(struct segment_link *sl);

#endif /* PCILEND_SEGMENT_KERNEL_H */
