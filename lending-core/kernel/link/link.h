/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Links: one for each NTB adapter, with the peer behind it. link/ brings them up and watches them,
 * carries messages, and opens pieces of this host's aperture to the peer. It knows sessions and
 * messages, but no function: what happens to a link it tells the two roles, the lender's and the
 * borrower's, and who keeps segments, by the operations that pcilend_links_register() is given.
 *
 * Who has a reference on a link may call all of this, whatever becomes of the link meanwhile:
 * requests fail then. Process context, but for pcilend_channel_poll(), which any context may call;
 * pcilend_channel_request() waits for the peer, the others for short locks.
 *
 * Locks: links_lock, pins_lock, trust_lock; of a link aperture.lock, channel.rx_lock,
 * channel.tx_lock, and the spinlocks state_lock, channel.lock, kick_lock, loss_lock and
 * channel.poll_lock, of which the last three are taken in interrupts. Callers may hold their own
 * (base.h has the order), and take state_lock and aperture.lock, to read what these guard. No
 * operation is called with any of them but .lost.
 */
#ifndef PCILEND_LINK_H
#define PCILEND_LINK_H

#include <linux/completion.h>
#include <linux/iommu.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/ntb.h>
#include <linux/pci.h>
#include <linux/ratelimit.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include "base/base.h"
#include "base/events.h"
#include "pcilend/layout.h"
#include "pcilend/lease.h"
#include "pcilend/mastering.h"
#include "pcilend/range.h"
#include "pcilend/wire.h"

struct pcilend_link;

/* aperture.c: this host's inbound aperture of one link, and the peer's windows seen from here */

struct pcilend_window {
	phys_addr_t phys;
	resource_size_t size;		/* bytes */
};

/* Functions are few per link; a lent one takes up to 7 exports, a guest some slots. */
#define PCILEND_EXPORTS 512
#define PCILEND_SLOTS 1024

#define PCILEND_PROT_BAR (IOMMU_READ | IOMMU_WRITE | IOMMU_MMIO)

struct pcilend_aperture {
	struct mutex lock;		/* ranges */
	struct iommu_domain *domain;	/* of the NTB; translated, owned by the DMA API */
	bool direct;			/* there is none: addresses are those of this host */
	unsigned int windows;
	struct pcilend_window window[PCILEND_LAYOUT_WINDOWS];
	struct pcilend_layout_window rule[PCILEND_LAYOUT_WINDOWS]; /* inbound; once `open` */
	struct pcilend_layout layout;	/* constant once `open` */
	bool open;			/* translations are set */
	u32 plans;			/* made so far; lock, as the next */
	struct pcilend_range exports;
	struct pcilend_range slots;
	struct pcilend_range_entry *entries;	/* storage of both */
};

int pcilend_aperture_export(struct pcilend_link *link, phys_addr_t phys, u64 size, int prot,
			    u64 *iova);
void pcilend_aperture_unexport(struct pcilend_link *link, u64 iova, u64 size);
void pcilend_aperture_hide(struct pcilend_link *link, u64 iova, u64 size);
int pcilend_aperture_show(struct pcilend_link *link, u64 iova, phys_addr_t phys, u64 size,
			  int prot);
void pcilend_aperture_export_put(struct pcilend_link *link, u64 iova, u64 size);
void pcilend_aperture_unmapped(struct pcilend_link *link);
int pcilend_aperture_slot_get(struct pcilend_link *link, u64 size, u64 *iova, u32 *of_plan);
void pcilend_aperture_slot_put(struct pcilend_link *link, u64 iova, u64 size, u32 of_plan);
int pcilend_aperture_locate(struct pcilend_link *link, u64 iova, u64 size, u32 *window,
			    u64 *offset);
int pcilend_aperture_peer(struct pcilend_link *link, u32 window, u64 offset, u64 size,
			  phys_addr_t *phys);

/* requesters.c */
int pcilend_requesters_init(struct pcilend_link *link);
void pcilend_requesters_exit(struct pcilend_link *link);
void pcilend_requesters_free(struct pcilend_link *link);
int pcilend_requesters_add(struct pcilend_link *link, struct pci_dev *function);
void pcilend_requesters_remove(struct pcilend_link *link, struct pci_dev *function);
void pcilend_requesters_count(struct pcilend_link *link, u32 *entries, u32 *used, u32 *lent);

/* channel.c, channel_receive.c, channel_poll.c */

/* A message that was taken from the ring, or waits for room in it. */
struct pcilend_message {
	struct list_head node;
	u32 session;			/* channel session it belongs to */
	u32 peer;			/* node id and boot id of that session's peer */
	u64 boot;
	u32 subject;			/* requests: the function it names, 0: none */
	struct pcilend_link *link;	/* requests: with a reference */
	struct work_struct work;	/* requests */
	u32 polled;			/* number of a polled request; 0: it was in the ring */
	u8 slot[PCILEND_SLOT_BYTES];
};

static inline const struct pcilend_msg_header *
pcilend_message_header(const struct pcilend_message *msg)
{
	return (const struct pcilend_msg_header *)msg->slot;
}

static inline const void *pcilend_message_payload(const struct pcilend_message *msg)
{
	return msg->slot + sizeof(struct pcilend_msg_header);
}

struct pcilend_answer {
	u32 sequence;			/* of the answer in the ring */
	u8 payload[PCILEND_PAYLOAD_BYTES];
};

struct pcilend_queue {
	struct list_head list;		/* of struct pcilend_message; pcilend_channel.lock */
	unsigned int length;
	struct work_struct work;
};

/* A flood gets no more of this host than that. */
#define PCILEND_RX_PER_BEAT 2048
/* Doorbells without a message; further ones raise no interrupt until our next beat. */
#define PCILEND_KICKS_PER_BEAT 64

struct pcilend_channel {
	struct mutex rx_lock;		/* our ring */
	bool rx_open;			/* rx_lock */
	u32 rx_tail;			/* rx_lock: messages taken from our ring */
	u32 rx_budget;			/* rx_lock: messages to be taken before our next beat */
	u32 rx_doubt;			/* rx_lock: those before may have been lost with the link */
	u32 polled;			/* rx_lock: the last polled request that was taken */
	struct work_struct rx_work;

	struct mutex tx_lock;		/* the peer's ring */
	struct pcilend_wire_area __iomem *peer;	/* tx_lock: the peer's area, or NULL */
	bool tx_open;			/* tx_lock */
	u32 tx_head;			/* tx_lock: messages put into the peer's ring */
	u64 tx_beat;			/* tx_lock */
	struct list_head tx_queue;	/* tx_lock: waiting for room in the ring */
	unsigned int tx_queued;		/* tx_lock */
	u64 tx_stuck;			/* tx_lock: ms, since when the ring has been full; 0: not */
	struct delayed_work tx_work;
	wait_queue_head_t tx_room;

	raw_spinlock_t poll_lock;	/* our polled request (channel_poll.c); any context */
	struct pcilend_wire_area __iomem *poll_peer;	/* poll_lock: NULL: the link is not up */
	u32 poll_number;		/* poll_lock: of the last one */
	unsigned int poll_late;		/* poll_lock: beats for which its answer is late still */
	u64 poll_left;			/* poll_lock: ns that may be waited */

	spinlock_t lock;		/* waiters and queues */
	u32 session;			/* lock: changes when a channel is closed */
	struct list_head waiters;	/* lock */
	u32 next_request;		/* lock */
	bool notices_lost;		/* lock: a notice found its queue full */
	struct list_head requests;	/* lock: of struct pcilend_message, until handled */
	unsigned int request_count;	/* lock */
	wait_queue_head_t requests_done;
	struct pcilend_queue notices;

	atomic64_t tx_messages;
	atomic64_t rx_messages;
	atomic64_t bad_messages;
	atomic64_t timeouts;
};

void pcilend_channel_flush_notices(struct pcilend_link *link);
void pcilend_channel_bad(struct pcilend_link *link, u32 sequence, const char *why);
int pcilend_channel_notify(struct pcilend_link *link, u16 type, const void *payload);
int pcilend_channel_answer(struct pcilend_link *link, u32 session, u16 type, u32 request,
			   u16 status, const void *payload);
void pcilend_channel_reply(struct pcilend_link *link, const struct pcilend_message *msg, int error,
			   const void *payload);
int pcilend_channel_request(struct pcilend_link *link, u16 type, const void *payload,
			    struct pcilend_answer *answer);
int pcilend_channel_request_for(struct pcilend_link *link, u16 type, const void *payload,
				struct pcilend_answer *answer, unsigned int ms);
int pcilend_channel_request_async(struct pcilend_link *link, u16 type, const void *payload);
int pcilend_channel_poll(struct pcilend_link *link, u16 type, const void *payload);
void pcilend_channel_wait_room(struct pcilend_link *link);

/* link.c */

/* What the peers told each other (hello.c). */
struct pcilend_hello {
	u64 said;			/* handshake: ms, ours was sent last */
	bool taken;			/* ours was acknowledged */
	bool heard;			/* state_lock: the rest is of this session's peer; */
					/* it changes only when this is set */
	struct pcilend_layout_host peer;
	u32 needs;			/* features we must know */
	u64 dma_limit;			/* its DMA area ends here */
	u32 interrupt_window;		/* where we find its interrupt controller */
	u64 interrupt_offset;
};

/**
 * struct pcilend_link - one NTB adapter, and the peer behind it
 *
 * Lives from the NTB client's probe until the last reference goes; @ntb may be used until
 * pcilend_link_remove() has returned, which first ends everything that uses it.
 */
struct pcilend_link {
	struct list_head node;		/* links_lock */
	struct kref ref;
	u32 index;
	struct ntb_dev *ntb;
	struct pci_dev *pdev;		/* the NTB's, with a reference */
	char driver[32];		/* its hardware driver */
	bool usable;			/* constant: probe found all that is needed */
	u64 boot;			/* ours on this link: a new one whenever the adapter is */
					/* taken into use, as counters and leases begin anew */
	u64 former_dma_limit;
	unsigned int former_segment_bytes;

	struct pcilend_requesters *requesters;	/* NULL: everybody may send through it */
	struct pcilend_aperture aperture;
	struct pcilend_wire_area *area;	/* ours, the peer writes to it */
	dma_addr_t area_dma;
	struct pcilend_wire_area *former_area;	/* handshake: until the link is up, or NULL */
	dma_addr_t former_area_dma;
	struct pcilend_channel channel;

	struct ratelimit_state log_limit;	/* of lines that the peer can provoke */
	struct pcilend_audit_limit audit;	/* the same of the audit */
	struct pcilend_hello hello;
	u64 denied_by;			/* handshake: peer_boot of the link over which this */
					/* node said that this session is not with it */
	u64 hole;			/* start of this host's lowest PCI hole; constant */

	struct delayed_work work;	/* handshake: the only one to change state and peer */
	struct delayed_work tick;	/* heartbeat */
	spinlock_t kick_lock;		/* taken in interrupts */
	int kicks_left;			/* kick_lock: until our next beat; masked when negative */
	bool published;			/* handshake: the peer can have seen our scratchpads */
	u64 poll_since;			/* handshake: ms, start of quick polling */
	u64 published_at;		/* handshake: ms */
	u64 enabled_at;			/* handshake: ms, its driver was asked for a link */

	spinlock_t state_lock;		/* what is known of the peer */
	enum pcilend_link_state state;	/* state_lock, as all below */
	char reason[PCILEND_REASON_BYTES];
	u16 peer_node;			/* 0: not known yet */
	u64 peer_boot;
	bool trusted;			/* to lead to that node (trust.c) */
	bool peer_connected;
	struct pcilend_heartbeat beat;
	struct pcilend_trail trail;	/* of the peer's beats, while the link carries */
	bool alive;			/* a beat was seen since the handshake began */
	bool silent;			/* none for lease_ms: everything from this peer is over */
	bool restart;			/* the channel is stuck: handshake again */

	spinlock_t loss_lock;		/* taken in interrupts (loss.c) */
	enum pcilend_carrier carrier;	/* loss_lock; read without it, too */
	u64 losses;			/* loss_lock: since it was taken into use */
	u32 found;			/* loss_lock: those that are told to the peer */
	u64 event_at;			/* ms: last event of the driver, or when it came up */

	void *lender;			/* what the two roles keep with it; from their init(), */
	void *borrower;			/* freed with the link; constant */
	void *segments;			/* the same of who keeps segments */

	atomic_t leases;		/* functions borrowed and lent over this link */
	wait_queue_head_t idle;		/* woken when one is over that was borrowed, the PCI bus */
					/* below the adapter has changed, or that goes */
	bool going;			/* the adapter is: nothing new is borrowed over it */
};

/**
 * struct pcilend_lender_ops - what link/ asks of the lender's role
 * @init: a link is made: sets its @lender to what the role keeps with it, from kmalloc(). 0 or
 *	-ENOMEM
 * @up: the session with the peer goes on, or has begun
 * @lost: the link does not carry any more, as from now until @up. Any context, also interrupts; the
 *	link's loss_lock is held
 * @request: of a trusted peer; those of one session about one function come one by one, in their
 *	order. To be answered by pcilend_channel_reply(); or later by pcilend_channel_answer(),
 *	which does not answer polled ones
 * @peer_dead: that boot of the peer is over, or is not trusted any more: on return nothing is lent
 *	to it
 * @gone: the adapter is going: no session, none will be, and all is returned
 *
 * All are there. But for @lost they are called in process context without locks and may sleep; all
 * but @request by the handshake or by who adds and removes the adapter, so one at a time for a
 * link.
 */
struct pcilend_lender_ops {
	int (*init)(struct pcilend_link *link);
	void (*up)(struct pcilend_link *link);
	void (*lost)(struct pcilend_link *link);
	void (*request)(struct pcilend_link *link, const struct pcilend_message *msg);
	void (*peer_dead)(struct pcilend_link *link, u32 node, u64 boot);
	void (*gone)(struct pcilend_link *link);
};

/**
 * struct pcilend_borrower_ops - what link/ asks of the borrower's role
 * @init: as that of the lender, for the link's @borrower
 * @added: the link is in the table, its windows are known, whether it can be used or not
 * @usable: it can carry leases as soon as it has a peer
 * @up: the session with the peer goes on, or has begun
 * @down: nothing comes over it for now
 * @request: one that the lender's role of the peer sends (MSI_RAISED); as that of the lender
 * @notice: of a trusted peer, in the order in which they were sent. Not to wait for the peer
 * @notices_lost: some did not come; the next one may be later than those
 * @late_answer: of a request that nobody waits for any more. Not to wait for anything
 * @silent: the peer was silent for as long as leases last, or is not trusted any more
 * @peer_dead: that boot of the peer is over, and nothing of it does DMA any more
 * @leaving: the adapter is going, the channel is still there: returns when nothing is borrowed
 *	over it
 * @gone: there is no session, and none will be
 * @removed: it leaves the table; @added is undone
 *
 * All are there. They are called in process context without locks and may sleep; all but @request,
 * the notices and @late_answer one at a time for a link.
 */
struct pcilend_borrower_ops {
	int (*init)(struct pcilend_link *link);
	void (*added)(struct pcilend_link *link);
	void (*usable)(struct pcilend_link *link);
	void (*up)(struct pcilend_link *link);
	void (*down)(struct pcilend_link *link);
	void (*request)(struct pcilend_link *link, const struct pcilend_message *msg);
	void (*notice)(struct pcilend_link *link, const struct pcilend_message *msg);
	void (*notices_lost)(struct pcilend_link *link);
	void (*late_answer)(struct pcilend_link *link, u16 type, const void *payload);
	void (*silent)(struct pcilend_link *link);
	void (*peer_dead)(struct pcilend_link *link);
	void (*leaving)(struct pcilend_link *link);
	void (*gone)(struct pcilend_link *link);
	void (*removed)(struct pcilend_link *link);
};

/**
 * struct pcilend_segment_ops - what link/ asks of who keeps segments
 * @init: as that of the lender, for the link's @segments
 * @up: the session with the peer goes on, or has begun
 * @lost: the link, which has carried until now, is lost, or was for a moment. Any context, also
 *	interrupts; the link's loss_lock is held
 * @request: SEGMENT_*; as that of the lender
 * @silent: the peer was silent for as long as leases last
 * @expelled: the peer is not trusted any more: on return neither reaches a segment of the other
 * @peer_dead: that boot of the peer is over: the same, and it holds no place in the aperture
 * @gone: the adapter is going: no session, none will be
 *
 * All are there, and called as those of the lender.
 */
struct pcilend_segment_ops {
	int (*init)(struct pcilend_link *link);
	void (*up)(struct pcilend_link *link);
	void (*lost)(struct pcilend_link *link);
	void (*request)(struct pcilend_link *link, const struct pcilend_message *msg);
	void (*silent)(struct pcilend_link *link);
	void (*expelled)(struct pcilend_link *link);
	void (*peer_dead)(struct pcilend_link *link);
	void (*gone)(struct pcilend_link *link);
};

/* Links come from now on. */
int pcilend_links_register(const struct pcilend_lender_ops *lender,
			   const struct pcilend_borrower_ops *borrower,
			   const struct pcilend_segment_ops *segments);
void pcilend_links_unregister(void);
struct pcilend_link *pcilend_link_get(struct pcilend_link *link);
void pcilend_link_put(struct pcilend_link *link);
/* The link after @previous (NULL: the first), with a reference; drops the one on @previous. */
struct pcilend_link *pcilend_link_next(struct pcilend_link *previous);
bool pcilend_link_is_adapter(struct pci_dev *pdev);
bool pcilend_link_is_over(struct pci_dev *pdev);
bool pcilend_link_is_up(struct pcilend_link *link, u16 *node);
void pcilend_link_beat(struct pcilend_link *link, struct pcilend_heartbeat *beat);
bool pcilend_link_may_log(struct pcilend_link *link);
void pcilend_link_set_peer_connected(struct pcilend_link *link, bool connected);
/* Is this session's peer (node and boot id) still the one of the link? */
bool pcilend_link_is_peer(struct pcilend_link *link, u32 node, u64 boot);
bool pcilend_link_reaches(struct pcilend_link *link, u32 node);
struct pcilend_link *pcilend_link_to(u32 node, u64 boot);
struct pcilend_link *pcilend_link_by_adapter(const char *adapter);

/* hotplug.c */
struct pcilend_hotplug;

int pcilend_hotplug_init(void);
void pcilend_hotplug_exit(void);
struct pcilend_hotplug *pcilend_hotplug_alloc(struct pcilend_link *link);
void pcilend_hotplug_free(struct pcilend_hotplug *hotplug);
bool pcilend_hotplug_run(struct pcilend_hotplug *hotplug, void (*change)(void *argument),
			 void *argument);

/* loss.c */

/* Is it up, and was it not lost since? */
static inline bool pcilend_link_carries(const struct pcilend_link *link)
{
	return READ_ONCE(link->carrier) == PCILEND_CARRIER_CARRIES;
}

u64 pcilend_link_losses(struct pcilend_link *link);

/* trust.c */
int pcilend_pin(u32 id, const char *adapter, struct netlink_ext_ack *extack);
void pcilend_unpin(u32 id);
void pcilend_pins_exit(void);
u32 pcilend_pinned(struct pcilend_link *link);
bool pcilend_link_is_trusted(struct pcilend_link *link);

#endif /* PCILEND_LINK_H */
