/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the files of pcilend.ko share.
 *
 * Lock order, outermost first; a lock may be taken while those above it are held:
 *
 *	pcilend_function.admin	one change of what is lent of a local function at a time
 *	pcilend_link.telling	one other lender is told of exposed BARs at a time
 *	pci_dev_lock()		of the bridge above a local function, as pci_reset_function() does
 *	pci_dev_lock()		of a local function: the device lock, and access to its config space
 *	pcilend_function.lock	a local function: lease and hardware; of two the lower id's first
 *	reaches_lock		what local functions reach by peer-to-peer
 *	exposures_lock		what functions of other lenders reach of local ones
 *	pcilend_group.lock	the functions of an IOMMU group
 *
 *	adapters_lock		frontends are told of one adapter at a time
 *	remote.frontends	a remote function's frontends come and go
 *	remote.operation	a remote function: one borrow or return at a time; of two the
 *				lower id's first
 *	device_lock()		of a virtual function
 *	iommu_group.mutex	the IOMMU core's, of a virtual function: attachments, one by one
 *	pcilend_domain.lock	what a user of VFIO has mapped for functions
 *	remote.reaching		what a user of VFIO has mapped for a function is asked for
 *	pcilend_virtual_relay.asking	a lender about its relay: one thing at a time
 *
 *	trust_lock		one link becomes trusted at a time
 *	choice_lock		links of leases are chosen one by one
 *	appear_lock		remote functions appear one by one
 *	remotes_lock, functions_lock, links_lock, frontends_lock, pins_lock	tables
 *	withdrawn_lock		BARs of leases that were not returned; in functions' locks
 *	unconfirmed_lock	leases whose end a lender has not heard of
 *	remote.lock		a remote function: lease, placement
 *	pcilend_aperture.lock	ranges of one link
 *	pcilend_channel.rx_lock
 *	pcilend_channel.tx_lock
 *	spinlocks		pcilend_link.state_lock, pcilend_channel.lock,
 *				dma_lock, pcilend_intx.lock, reach_lock,
 *				pcilend_virtual_relay.lock
 *
 * Lender (first group) and borrower (second) never call one another. Of all these, only
 * adapters_lock, remote.frontends, remote.operation, iommu_group.mutex, pcilend_domain.lock,
 * remote.reaching, pcilend_virtual_relay.asking and the lender's first five may be held while
 * waiting for a peer or a device; and only pcilend_function.admin while another driver takes a
 * function or lets go of it, for which no link's handshake waits.
 *
 * Work items of a link never wait for one another, but for the handshake, which waits for those
 * that handle messages. It, and a request to expose a function, may also wait for the peer of
 * another, trusted link, which waits for nothing to answer that.
 */
#ifndef PCILEND_INTERNAL_H
#define PCILEND_INTERNAL_H

#include <linux/completion.h>
#include <linux/kref.h>
#include <linux/ktime.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/netlink.h>
#include <linux/ntb.h>
#include <linux/pci.h>
#include <linux/pcilend.h>
#include <linux/ratelimit.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include "base/compat.h"
#include "pcilend/access.h"
#include "pcilend/identity.h"
#include "pcilend/layout.h"
#include "pcilend/lease.h"
#include "pcilend/pcilend.h"
#include "pcilend/range.h"
#include "pcilend/reach.h"
#include "pcilend/set.h"
#include "pcilend/wire.h"

#define PCILEND_REASON_BYTES PCILEND_LAYOUT_TEXT_BYTES
#define PCILEND_PATHS 8			/* links to one node that are used */

/* main.c */
extern u16 pcilend_node;		/* 0: not set, links are refused */
extern u64 pcilend_boot;		/* random at load */
extern unsigned int pcilend_lease_ms;
extern unsigned int pcilend_max_lease_ms;	/* of leases that peers get here */
extern bool pcilend_unsafe_interrupts;
extern bool pcilend_direct;		/* adapters without an IOMMU are used */
extern bool pcilend_relay_msi;		/* no peer's function reaches our interrupts */
extern bool pcilend_p2p;		/* peer-to-peer wherever it is asked for */
extern struct workqueue_struct *pcilend_wq;	/* unbound, for everything that may sleep */
/* For what frontends do: a lender can cause as much of it as it has functions. */
extern struct workqueue_struct *pcilend_frontend_wq;

/* A boot id; neither half is 0. */
u64 pcilend_new_boot(void);

/* Counts since the module was loaded, as COUNTERS_GET tells them. */
extern atomic64_t pcilend_counters[PCILEND_COUNTER_A_MAX + 1];

static inline void pcilend_count(enum pcilend_counter_attr counter)
{
	atomic64_inc(&pcilend_counters[counter]);
}

static inline u64 pcilend_now(void)
{
	return ktime_to_ms(ktime_get());
}

/* A change that listings show; makes dumps that it interrupts say so. */
void pcilend_changed(void);
unsigned int pcilend_generation(void);

/* sleep.c: of this host */
bool pcilend_sleeps(void);
int pcilend_sleep_init(void);
void pcilend_sleep_exit(void);

/* Refuses a netlink request with a constant sentence that is only known at run time. */
static inline int pcilend_refuse(struct netlink_ext_ack *extack, int error, const char *why)
{
	if (extack && why)
		extack->_msg = why;
	return error;
}

/* The same with a text that is made here: NETLINK_MAX_FMTMSG_LEN, less the zero at its end. */
__printf(3, 4)
int pcilend_refuse_fmt(struct netlink_ext_ack *extack, int error, const char *format, ...);

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
	struct pcilend_range exports;
	struct pcilend_range slots;
	struct pcilend_range_entry *entries;	/* storage of both */
};

struct pcilend_link;

int pcilend_aperture_init(struct pcilend_link *link);
int pcilend_aperture_open(struct pcilend_link *link, char *why, size_t bytes);
void pcilend_aperture_exit(struct pcilend_link *link);
int pcilend_aperture_export(struct pcilend_link *link, phys_addr_t phys, u64 size, int prot,
			    u64 *iova);
void pcilend_aperture_unexport(struct pcilend_link *link, u64 iova, u64 size);
void pcilend_aperture_hide(struct pcilend_link *link, u64 iova, u64 size);
int pcilend_aperture_show(struct pcilend_link *link, u64 iova, phys_addr_t phys, u64 size,
			  int prot);
void pcilend_aperture_export_put(struct pcilend_link *link, u64 iova, u64 size);
int pcilend_aperture_slot_get(struct pcilend_link *link, u64 size, u64 *iova);
void pcilend_aperture_slot_put(struct pcilend_link *link, u64 iova, u64 size);
int pcilend_aperture_locate(struct pcilend_link *link, u64 iova, u64 size, u32 *window,
			    u64 *offset);
int pcilend_aperture_peer(struct pcilend_link *link, u32 window, u64 offset, u64 size,
			  phys_addr_t *phys);

/* channel.c */

/* A message that was taken from the ring, or waits for room in it. */
struct pcilend_message {
	struct list_head node;
	u32 session;			/* channel session it belongs to */
	u32 peer;			/* node id and boot id of that session's peer */
	u64 boot;
	u32 subject;			/* requests: the function it names, 0: none */
	struct pcilend_link *link;	/* requests: with a reference */
	struct work_struct work;	/* requests */
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

void pcilend_channel_init(struct pcilend_link *link);
int pcilend_channel_open(struct pcilend_link *link, u32 window, u64 offset, const char **why);
void pcilend_channel_suspend(struct pcilend_link *link);
void pcilend_channel_resume(struct pcilend_link *link);
void pcilend_channel_settle(struct pcilend_link *link);
void pcilend_channel_close(struct pcilend_link *link);
void pcilend_channel_beat(struct pcilend_link *link);
void pcilend_channel_look(struct pcilend_link *link);
void pcilend_channel_go_on(struct pcilend_link *link);
void pcilend_channel_flush_notices(struct pcilend_link *link);
void pcilend_channel_bad(struct pcilend_link *link, u32 sequence, const char *why);
int pcilend_channel_notify(struct pcilend_link *link, u16 type, const void *payload);
int pcilend_channel_answer(struct pcilend_link *link, u32 session, u16 type, u32 request,
			   u16 status, const void *payload);
int pcilend_channel_request(struct pcilend_link *link, u16 type, const void *payload,
			    struct pcilend_answer *answer);
int pcilend_channel_request_async(struct pcilend_link *link, u16 type, const void *payload);
void pcilend_channel_wait_room(struct pcilend_link *link);

/* link.c, handshake.c */

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

	struct pcilend_aperture aperture;
	struct pcilend_wire_area *area;	/* ours, the peer writes to it */
	dma_addr_t area_dma;
	struct pcilend_wire_area *former_area;	/* handshake: until the link is up, or NULL */
	dma_addr_t former_area_dma;
	struct pcilend_channel channel;

	struct ratelimit_state log_limit;	/* of lines that the peer can provoke */
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

	spinlock_t state_lock;		/* what is known of the peer */
	enum pcilend_link_state state;	/* state_lock, as all below */
	char reason[PCILEND_REASON_BYTES];
	u16 peer_node;			/* 0: not known yet */
	u64 peer_boot;
	bool trusted;			/* to lead to that node (trust.c) */
	bool peer_connected;
	struct pcilend_heartbeat beat;
	bool alive;			/* a beat was seen since the handshake began */
	bool silent;			/* none for lease_ms: everything from this peer is over */
	bool restart;			/* the channel is stuck: handshake again */
	u64 audit_since;		/* ms: start of the time that audit_lines counts */
	u32 audit_lines;

	/* dma_lock (lender_dma.c): DMA over this link */
	struct list_head lent;		/* dma_lock: of struct pcilend_function */
	struct list_head reached;	/* dma_lock: of struct pcilend_reached, in the peer */
	bool carries;			/* dma_lock: up, and not lost since */
	bool lost;			/* dma_lock: lost, and the handshake has not seen it yet */
	bool was_up;			/* dma_lock: at the last event */
	u64 losses;			/* dma_lock: since it was taken into use */
	struct ratelimit_state relay_limit; /* of interrupts that are relayed */

	struct mutex telling;		/* the peer of what is exposed to it (lender_expose.c) */
	struct delayed_work unexpose;	/* tells it what no longer is */

	/* borrower's side */
	struct delayed_work sync;
	u32 sync_generation;		/* of the last SYNC that was asked for */
	u64 synced_at;			/* ms, when that was */
	struct ratelimit_state appear_limit;
	wait_queue_head_t idle;		/* woken when a lease over this link is over */
	struct list_head reach_node;	/* reach_lock (reach.c) */
	bool shown;			/* adapters_lock (frontend.c): frontends know the adapter */
	bool going;			/* the adapter is: nothing new is borrowed over it */

	atomic_t leases;		/* functions borrowed and lent over this link */
};

int pcilend_links_register(void);
void pcilend_links_unregister(void);
struct pcilend_link *pcilend_link_get(struct pcilend_link *link);
void pcilend_link_put(struct pcilend_link *link);
/* The link after @previous (NULL: the first), with a reference; drops the one on @previous. */
struct pcilend_link *pcilend_link_next(struct pcilend_link *previous);
bool pcilend_link_is_adapter(struct pci_dev *pdev);
bool pcilend_link_is_over(struct pci_dev *pdev);
bool pcilend_link_is_up(struct pcilend_link *link, u16 *node);
void pcilend_link_beat(struct pcilend_link *link, struct pcilend_heartbeat *beat);
void pcilend_link_kick_peer(struct pcilend_link *link);
void pcilend_link_listen(struct pcilend_link *link);
void pcilend_link_heard(struct pcilend_link *link, u32 messages);
bool pcilend_link_may_log(struct pcilend_link *link);
void pcilend_link_restart(struct pcilend_link *link);
void pcilend_link_set_peer_connected(struct pcilend_link *link, bool connected);
void pcilend_link_set_state(struct pcilend_link *link, enum pcilend_link_state state,
			    const char *reason);
/* Is this session's peer (node and boot id) still the one of the link? */
bool pcilend_link_is_peer(struct pcilend_link *link, u32 node, u64 boot);
bool pcilend_link_reaches(struct pcilend_link *link, u32 node);
struct pcilend_link *pcilend_link_to(u32 node, u64 boot);
struct pcilend_link *pcilend_link_by_adapter(const char *adapter);
void pcilend_link_set_trusted(struct pcilend_link *link);

/* trust.c */
struct pcilend_msg_vouch;

int pcilend_pin(u32 id, const char *adapter, struct netlink_ext_ack *extack);
void pcilend_unpin(u32 id);
void pcilend_pins_exit(void);
u32 pcilend_pinned(struct pcilend_link *link);
bool pcilend_link_is_trusted(struct pcilend_link *link);
bool pcilend_link_is_misplaced(struct pcilend_link *link, u32 id, char *why, size_t bytes);
int pcilend_link_earn_trust(struct pcilend_link *link, char *why, size_t bytes);
int pcilend_link_vouch(u32 node, const struct pcilend_msg_vouch *msg);

void pcilend_handshake_init(struct pcilend_link *link);
void pcilend_handshake_start(struct pcilend_link *link);
void pcilend_handshake_stop(struct pcilend_link *link);
void pcilend_handshake_event(struct pcilend_link *link);
int pcilend_link_place_area(struct pcilend_link *link, u64 limit);
void pcilend_link_drop_former_area(struct pcilend_link *link);

/* hello.c */
void pcilend_hello_say(struct pcilend_link *link);
void pcilend_hello_taken(struct pcilend_link *link);
void pcilend_hello_heard(struct pcilend_link *link, const struct pcilend_message *message);
bool pcilend_hello_is_heard(struct pcilend_link *link);
void pcilend_hello_reset(struct pcilend_link *link);
int pcilend_hello_judge(struct pcilend_link *link, char *why, size_t bytes);

/* Another function of a function's IOMMU group. */
struct pcilend_report_member {
	u32 id;				/* 0: not added */
	enum pcilend_function_state state;
	u16 segment;
	u8 bus;
	u8 devfn;
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
	int group;			/* IOMMU group, negative: none */
	u32 members;			/* others in it */
	struct pcilend_report_member member[PCILEND_SET_MAX - 1];
	struct pcilend_access access;
	u8 reserved_uuid[16];		/* zeroes: not for a domain */
	u64 reserved_ms;		/* left */
};

/* What ADD may say of a function from the start. */
struct pcilend_add {
	u32 id;				/* 0: the lowest free one */
	const char *label;		/* NULL: none */
	const struct nlattr *nodes;	/* NULL: all connected ones */
};

/* lender.c, lender_admin.c, lender_peer.c */
int pcilend_lender_init(void);
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
int pcilend_lender_available(const char *bdf, bool direct, struct netlink_ext_ack *extack,
			     struct pcilend_report *report);
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
int pcilend_lender_sync(struct pcilend_link *link);
void pcilend_lender_link_up(struct pcilend_link *link);
void pcilend_lender_peer_dead(struct pcilend_link *link, u32 node, u64 boot);

/* lender_dma.c */
void pcilend_link_event(struct pcilend_link *link);
void pcilend_link_lost(struct pcilend_link *link);
u64 pcilend_link_losses(struct pcilend_link *link);
bool pcilend_link_take_lost(struct pcilend_link *link);
void pcilend_link_carries(struct pcilend_link *link);
void pcilend_dma_init(struct pcilend_link *link);

/* lender_intx.c */
void pcilend_intx_link_init(struct pcilend_link *link);

/* lender_withdrawn.c */
void pcilend_withdrawn_link_over(struct pcilend_link *link);

/* lender_expose.c */
void pcilend_expose_link_init(struct pcilend_link *link);
void pcilend_expose_link_gone(struct pcilend_link *link);

/* reserve.c */
int pcilend_reserve(const struct pcilend_msg_reserve *msg, struct netlink_ext_ack *extack);

/* config_get.c */
int pcilend_config_get(u32 id, bool emulated, u8 *space, u32 *length,
		       struct netlink_ext_ack *extack);

/* audit.c */
struct pcilend_audit {
	u32 uid;
	u32 node;			/* 0: asked by that user of this host */
	const char *action;		/* constant */
	u32 function;			/* id, 0: about none */
	u32 target;			/* node it is about, or id of a second function, which is */
					/* above all nodes; 0: none */
	int result;			/* 0 or a negative errno */
};

void pcilend_audit_admin(u32 uid, const char *action, u32 function, u32 target, int result);
void pcilend_audit_peer(struct pcilend_link *link, u32 node, const char *action, u32 function,
			u32 target, int result);

/* lender_request.c */
void pcilend_lender_request(struct pcilend_link *link, const struct pcilend_message *msg);

/* borrower.c */
void pcilend_borrower_link_init(struct pcilend_link *link);
void pcilend_borrower_notice(struct pcilend_link *link, const struct pcilend_message *msg);
void pcilend_borrower_msi_raised(struct pcilend_link *link,
				 const struct pcilend_msg_msi_raised *msg);
void pcilend_borrower_link_up(struct pcilend_link *link);
void pcilend_borrower_link_down(struct pcilend_link *link);
void pcilend_borrower_resync(struct pcilend_link *link);
void pcilend_borrower_notices_lost(struct pcilend_link *link);
void pcilend_borrower_silent(struct pcilend_link *link);
void pcilend_borrower_peer_dead(struct pcilend_link *link);
void pcilend_borrower_link_gone(struct pcilend_link *link);
struct pcilend_remote *pcilend_remote_get(u32 id);
void pcilend_remote_put(struct pcilend_remote *remote);
bool pcilend_remote_next(u32 after, struct pcilend_report *report);
void pcilend_remote_report(struct pcilend_remote *remote, struct pcilend_report *report);
void pcilend_remote_changed(struct pcilend_remote *remote);

/* holder.c */
struct pcilend_virtual_intx;
struct pcilend_virtual_relay;

/*
 * What the lender does for the holder of the lease. All may sleep, all return 0 or a negative
 * errno (-ESTALE: no lease any more, -ETIMEDOUT: no answer; the lease may be over).
 */
int pcilend_reset(struct pcilend_remote *remote);
int pcilend_bus_master(struct pcilend_remote *remote, bool on);
int pcilend_config_read(struct pcilend_remote *remote, u32 offset, void *data, size_t length);
int pcilend_config_write(struct pcilend_remote *remote, u32 offset, u32 value, size_t length);
/* [device_address, +size) of the function reaches [iova, +size) of this host's aperture. */
int pcilend_map(struct pcilend_remote *remote, u64 device_address, u64 iova, u64 size);
int pcilend_unmap(struct pcilend_remote *remote, u64 device_address, u64 size);
/* What it shall do with the legacy interrupt. */
int pcilend_intx_ask(struct pcilend_remote *remote, enum pcilend_intx_state state);
/* What the lender tells of the legacy interrupt goes there; with NULL: nowhere, on return. */
void pcilend_remote_set_intx(struct pcilend_remote *remote, struct pcilend_virtual_intx *intx);
/* The same of MSI and MSI-X; @address and @data are set if they are to be relayed. */
int pcilend_msi_ask(struct pcilend_remote *remote, u32 vector, u32 count, bool on, u64 *address,
		    u32 *data);
void pcilend_remote_set_relay(struct pcilend_remote *remote, struct pcilend_virtual_relay *relay);

/* borrow.c */
void pcilend_borrower_late_answer(struct pcilend_link *link, u16 type, const void *payload);
void pcilend_borrower_exit(void);

/* iommu.c: has a VMM, or another user of VFIO, the function? Also after the end of the lease. */
bool pcilend_remote_in_use(struct pcilend_remote *remote);

/* reach.c: peer-to-peer */
void pcilend_reach_start(void);
void pcilend_reach_link_added(struct pcilend_link *link);
void pcilend_reach_link_gone(struct pcilend_link *link);
/* Is any of it in a memory window of an adapter of this host? Any context. */
bool pcilend_reach_is_window(u64 phys, u64 size);
int pcilend_reach(struct pcilend_remote *from, u32 to_id, bool on, struct netlink_ext_ack *extack);

/* frontend.c */
struct pcilend_frontend *pcilend_frontend_get(const char *name);
void pcilend_frontend_put(struct pcilend_frontend *frontend);
void pcilend_frontend_adapter_added(struct pcilend_link *link);
void pcilend_frontend_adapter_gone(struct pcilend_link *link);

/* bus.c */
extern const struct bus_type pcilend_bus;
extern struct device *pcilend_bus_root;
int pcilend_bus_register(void);
void pcilend_bus_unregister(void);

/* netlink.c, netlink_admin.c */
struct genl_info;

/* A message to be filled; made before a change, so that the change can't end without an answer. */
struct pcilend_reply {
	struct sk_buff *skb;
	void *header;
	bool trusted;			/* to be told what lets others in */
};

int pcilend_netlink_init(void);
void pcilend_netlink_exit(void);
void pcilend_event_link(struct pcilend_link *link);
void pcilend_event_function(enum pcilend_event event, const struct pcilend_report *report);
void pcilend_event_audit(const struct pcilend_audit *audit);
int pcilend_reply_prepare(struct pcilend_reply *reply, struct sk_buff *request,
			  struct genl_info *info);
int pcilend_reply_function(struct pcilend_reply *reply, struct genl_info *info,
			   const struct pcilend_report *report);
int pcilend_get_remote(struct genl_info *info, struct pcilend_remote **remote);
bool pcilend_is_admin(struct sk_buff *skb, struct netlink_ext_ack *extack);
int pcilend_admin(struct sk_buff *skb, struct genl_info *info);

/* report.c */
int pcilend_put_link(struct sk_buff *skb, struct pcilend_link *link, bool trusted);
int pcilend_put_function(struct sk_buff *skb, const struct pcilend_report *report, bool trusted);
int pcilend_put_counters(struct sk_buff *skb);
int pcilend_put_audit(struct sk_buff *skb, const struct pcilend_audit *audit);

#endif /* PCILEND_INTERNAL_H */
