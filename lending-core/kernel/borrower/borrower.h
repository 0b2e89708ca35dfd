/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The borrower's side of a remote function: shared by the files of the borrower. remote.h is what
 * others see of it.
 *
 * Locks (base.h has the order): adapters_lock, remote.frontends, remote.operation, domains_lock,
 * pcilend_domain.lock and remote.reaching, which are held while a lender is waited for, or a
 * frontend is called; remote_choice_lock, appear_lock, remotes_lock, frontends_lock,
 * unconfirmed_lock, remote.lock; in any context reach_lock.
 */
#ifndef PCILEND_BORROWER_H
#define PCILEND_BORROWER_H

#include "base/compat.h"
#include "borrower/remote.h"
#include "pcilend/identity.h"
#include "pcilend/reach.h"
#include "pcilend/tenant.h"
#include "pcilend/vconfig.h"
#include "virtual/virtual.h"

#define PCILEND_FRONTENDS 4

#define APPEAR_MS 5000		/* in which no more functions of a link appear than APPEAR_MAX */
#define APPEAR_MAX 64
#define REMOTE_LET_GO_MS 2000	/* for a user of VFIO who is about to let go of a function */
#define REMOTE_NO_LINK "no link to its lender is up: see 'pcilend link'"

/*
 *	idle -> borrowing -> held -> idle			borrowed and returned
 *	held -> lost -> idle					the lender ended the lease
 *	held | lost -> returning -> idle			returned, not acknowledged yet
 */
enum remote_state {
	REMOTE_IDLE,
	REMOTE_BORROWING,	/* no lease yet */
	REMOTE_HELD,
	REMOTE_LOST,		/* the lease is over, the frontend has not let go yet */
	REMOTE_RETURNING,	/* let go, but the lender has not acknowledged that it is stopped */
};

/* A range of the aperture that leases use for guest memory: one, or those of a set. */
struct remote_range {
	struct kref ref;
	struct pcilend_link *link;	/* of all these leases; with a reference */
	u64 iova;
	u64 size;
	u32 of_plan;		/* of the aperture */
	atomic_t left;		/* not 0: its adapter is gone, it is no range any more */
};

/* The part that one lease has in it. */
struct remote_slot {
	struct list_head node;
	struct remote_range *range;	/* with a reference */
	bool free;		/* given up, but the function may still write to it */
};

/*
 * What the function reaches by its IOMMU, as its lender was told. Changed by pcilend_map_dma_area()
 * before there is a virtual function, then by the IOMMU core alone:
 *
 *	    ┌──── identity ────> AREA ───────────┐
 *	BLOCKED <────────── blocked ─────────────┤
 *	    └─ paging domain ──> DOMAIN ─────────┘
 */
enum remote_dma {
	REMOTE_DMA_BLOCKED,	/* nothing, or what a frontend has mapped */
	REMOTE_DMA_AREA,	/* the DMA area of the aperture */
	REMOTE_DMA_DOMAIN,	/* the granules of a domain */
};

struct pcilend_domain;

/* A link over which the lender offers the function. */
struct remote_path {
	struct pcilend_link *link;	/* with a reference; NULL: entry was never used */
	u32 generation;			/* SYNC in which it was last seen there */
	bool offered;
};

/* The pages of a BAR of a function that this host holds, in a memory window. */
struct remote_bar {
	struct remote *to;		/* with a reference */
	u32 lease;
	u32 bar;
	u64 phys;
	u64 size;			/* bytes, page aligned */
};

struct remote_binding {
	struct pcilend_frontend *frontend;	/* NULL: entry is free */
	void *data;
};

struct remote {
	struct pcilend_remote pub;
	struct list_head node;		/* remotes_lock; by ascending id */
	struct work_struct work;	/* frontends come and go; the end of it all */
	bool gone;			/* work: the end has begun */

	struct mutex frontends;		/* held while they come and go */
	struct mutex operation;		/* one borrow or return at a time */
	struct mutex reaching;		/* what a user of VFIO has mapped for it is asked for */

	struct mutex lock;		/* all below, and pub.info */
	struct remote_binding binding[PCILEND_FRONTENDS];
	struct remote_path path[PCILEND_PATHS];
	struct pcilend_link *link;	/* with a reference, never NULL: of the lease, or of the */
					/* last one; changes only while the state is IDLE */
	bool absent;			/* no longer offered: goes when idle */
	bool dying;
	bool reborn;			/* offered again while dying */
	enum remote_state state;
	u32 borrows;			/* tells leases apart also where the lender's numbers, */
					/* which begin anew when that is restarted, don't */
	u32 lease;			/* 0: none */
	u32 granted;			/* place of the grant among the lender's messages */
	u32 lost_early;			/* a lease that was lost before we learnt of its grant */
	enum pcilend_lost_reason lost_reason;
	u32 recalled;			/* a lease that its lender wants to end; 0: none */
	u64 recall_at;			/* ms: when it will */
	bool fenced;			/* LOST: the lender has stopped it, or died */
	bool ending;			/* it is being given back, or about to be; written and */
					/* read at once, as the next */
	u32 unwanted;			/* remote.borrows of what give_back_work returns; or 0 */
	int given_back;			/* what became of the last one */
	struct pcilend_frontend *frontend;	/* with a reference on its module */
	char owner[PCILEND_OWNER_BYTES];
	struct pcilend_vconfig *config;
	struct pcilend_virtual *virtual;
	struct pcilend_virtual_intx *intx;	/* of the virtual function; NULL: none */
	struct pcilend_virtual_relay *relay;	/* the same */
	struct pcilend_virtual_bar bar[6];
	struct pcilend_virtual_bar rom;	/* the lender's copy of it */
	u64 dma_base;		/* of the function's addresses; not 0: it is lent direct */
	struct pcilend_tenant tenant;	/* who borrows it, as the next valid unless IDLE */
	bool reaches;		/* it may reach this host's interrupt controller */
	u64 interrupts;		/* device-side address of this host's interrupt controller; */
				/* 0: it does not reach that, the lender relays */
	u64 last_address;	/* that its lender maps; 0: it is lent direct */
	enum remote_dma dma;	/* the group mutex of the IOMMU core, as the next */
	struct pcilend_domain *domain;
	struct list_head domain_node;	/* its lock: in its list of those attached */
	bool late;		/* group mutex: it was refused by a domain that has BARs */
	struct list_head slots;
	u64 guest_bytes;	/* written and read at once: what its user of VFIO has mapped */
	struct work_struct offer_work;	/* frontends are told that it can be borrowed */
	struct work_struct lost_work;
	struct work_struct reset_work;	/* as lost_work with a reference */
	struct work_struct carrier_work;
	struct work_struct recall_work;
	struct work_struct return_work;
	struct work_struct give_back_work;
	struct delayed_work reach_work;
};

#define to_remote(p) container_of(p, struct remote, pub)

/* What the borrower keeps with a link, as long as there are references on that. */
struct borrower_link {
	struct pcilend_link *link;
	struct delayed_work sync;
	u32 sync_generation;		/* of the last SYNC that was asked for */
	u64 synced_at;			/* ms, when that was */
	struct ratelimit_state appear_limit;
	struct list_head reach_node;	/* reach_lock (reach.c) */
	bool shown;			/* adapters_lock (frontend.c): frontends know the adapter */
};

static inline struct borrower_link *borrower_link(struct pcilend_link *link)
{
	return link->borrower;
}

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
void pcilend_borrower_resync(struct pcilend_link *link);
void pcilend_borrower_resync_node(u32 node);
void pcilend_borrower_doubt(struct pcilend_link *link);

/* notice.c */
void pcilend_borrower_notice(struct pcilend_link *link, const struct pcilend_message *msg);
void pcilend_borrower_request(struct pcilend_link *link, const struct pcilend_message *msg);
void remote_compare_lease(struct remote *r, struct pcilend_link *link,
			  const struct pcilend_msg_function *info, u32 sequence);

/* remote.c */
void remote_table_init(bool (*is_local)(const u8 uuid[16]));
void remote_put(struct remote *r);
struct remote *remote_find(u32 id);
struct remote *remote_next(struct remote *previous);
bool remote_uses(struct remote *r, struct pcilend_link *link);
void remote_withdraw(struct remote *r);
bool remote_leave_path(struct remote *r, struct pcilend_link *link, bool *left);
void remote_lose_path(struct remote *r, struct pcilend_link *link,
		      enum pcilend_lost_reason reason, bool fenced);
void remote_told(struct pcilend_link *link, const struct pcilend_message *msg);
void remote_retire_if_idle(struct remote *r);
void remote_event(struct remote *r, enum pcilend_event event);
void remote_virtual_changed(struct pcilend_remote *remote);

/* borrow.c */
extern struct mutex remote_choice_lock;	/* of a link, and of where interrupts go */
int remote_lock_operation(struct remote *r, const char **why);

/* return.c */
int remote_return(struct remote *r, u32 borrow);
void remote_settled(struct remote *r);
void remote_return_async(struct remote *r, struct pcilend_link *link, u32 lease);
void remote_return_work(struct work_struct *work);
void remote_queue_give_back(struct remote *r);
void remote_give_back_work(struct work_struct *work);
int remote_await_given_back(struct remote *r, u32 borrow);
bool remote_awaits_user(struct remote *r);
void remote_take_in_notices(struct remote *r);
void pcilend_borrower_confirm_ends(struct pcilend_link *link);
void remote_forget_unconfirmed(void);
void pcilend_borrower_late_answer(struct pcilend_link *link, u16 type, const void *payload);

/* holder_told.c */
void remote_lost(struct remote *r, enum pcilend_lost_reason reason, bool fenced);
void remote_lost_work(struct work_struct *work);
void remote_recalled(struct remote *r, u32 lease, u32 grace_ms);
void remote_ask_to_let_go(struct remote *r);
void remote_recall_work(struct work_struct *work);
void remote_was_reset(struct remote *r, u32 lease);
void remote_reset_work(struct work_struct *work);
void remote_carrier_work(struct work_struct *work);

/* holder.c */

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

/* holder.c: for a virtual function (struct pcilend_virtual_ops) */
/* These two in any context, but only while there is a virtual function. */
int remote_poll_bus_master(struct pcilend_remote *remote, bool on);
int remote_poll_config_write(struct pcilend_remote *remote, u32 offset, u32 value, size_t length);

int remote_intx_ask(struct pcilend_remote *remote, enum pcilend_intx_state state);
void remote_intx_listen(struct pcilend_remote *remote, struct pcilend_virtual_intx *intx);
int remote_msi_ask(struct pcilend_remote *remote, u32 vector, u32 count, bool on, u64 *address,
		   u32 *data);
void remote_msi_listen(struct pcilend_remote *remote, struct pcilend_virtual_relay *relay);

/* slots.c */
struct remote_range *remote_range_get(struct pcilend_link *link, u64 size);
void remote_range_put(struct remote_range *range);
int remote_add_slot(struct remote *r, struct remote_range *range);
void remote_free_slot(struct remote *r, struct remote_range *range, bool stopped);
void remote_drop_slots(struct remote *r, bool all);
void remote_leave_aperture(struct remote *r, struct pcilend_link *link);

/* iommu.c */
void remote_dma_begin(struct remote *r);

/* remote_path.c */
bool remote_path_seen(struct remote *r, struct pcilend_link *link);
u32 remote_path_generation(struct remote *r, struct pcilend_link *link, bool *offered);
bool remote_path_gone(struct remote *r, struct pcilend_link *link);
bool remote_listens_to(struct remote *r, struct pcilend_link *link);
void remote_set_link(struct remote *r, struct pcilend_link *link);
struct pcilend_link *remote_link(struct remote *r);
struct pcilend_link *remote_any_link(struct remote *r);
struct pcilend_link *remote_link_of_set(struct remote *r);
struct pcilend_link *remote_path_choose(struct remote *r, const char *adapter);
void remote_report_paths(struct remote *r, struct pcilend_report *report);
void remote_put_paths(struct remote *r);

/* tenant.c */
/*
 * The state is BORROWING. May @r reach this host's interrupt controller? With choice_lock, so that
 * each choice sees those before.
 */
void remote_choose_interrupts(struct remote *r);
/* The same of clients of shared functions (remote_client.c) over @link, which are no guests'. */
bool remote_client_may_interrupt(struct pcilend_link *link);
/* The UUID of the domain or mediated device that an owner's name is. Return: 0 or -EINVAL. */
int remote_parse_owner(const char *owner, uuid_t *uuid);

/* bus.c */
extern const struct bus_type pcilend_bus;
extern struct device *pcilend_bus_root;
int pcilend_bus_register(void);
void pcilend_bus_unregister(void);

/* reach.c */
void pcilend_reach_start(void);
/* Is any of it in a memory window of an adapter of this host? Any context. */
bool pcilend_reach_is_window(u64 phys, u64 size);
void pcilend_reach_link_added(struct pcilend_link *link);
void pcilend_reach_link_removed(struct pcilend_link *link);
void remote_reach_report(struct remote *r, struct pcilend_report *report);
void remote_reach_end(struct remote *r);
void remote_unreached(struct remote *r, u32 lease, u32 target);
void remote_reach_doubt(struct remote *r);
int remote_find_bar(u64 phys, u64 size, struct remote_bar *found);
int remote_reach_bar(struct remote *from, const struct remote_bar *bar, u64 address);
int remote_reach_bar_of_lease(struct remote *from, const struct remote_bar *bar, u64 address,
			      struct netlink_ext_ack *extack);
void remote_reach_work(struct work_struct *work);
void remote_unreach_bar(struct remote *from, const struct remote_bar *bar, u64 address);

/* remote_client.c: processes of this host that share functions of others */
bool pcilend_client_notice(struct pcilend_link *link, u16 type,
			   const struct pcilend_msg_lease *msg);
void pcilend_client_link_down(struct pcilend_link *link);
void pcilend_client_doubt(struct pcilend_link *link);
void pcilend_client_link_silent(struct pcilend_link *link);
void pcilend_client_peer_dead(struct pcilend_link *link);
void pcilend_client_link_leaving(struct pcilend_link *link);
bool pcilend_client_interrupts(struct pcilend_link *link);

/* remote_lease.c */
int pcilend_remote_lease_init(void);
void pcilend_remote_lease_exit(void);

/* frontend.c */
void pcilend_frontend_adapter_added(struct pcilend_link *link);
void pcilend_frontend_adapter_gone(struct pcilend_link *link);
void remote_attach_frontends(struct remote *r);
void remote_offer_work(struct work_struct *work);
void remote_detach_frontends(struct remote *r);

#endif /* PCILEND_BORROWER_H */
