/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A local function that this host offers to others: shared by the files of the lender. admin.h is
 * what others see of it.
 *
 * Locks (base.h has the order): pcilend_lender_admin, lender_link.telling, device_lock() and
 * pcilend_function.lock, which are held while a device or a peer is waited for; reaches_lock,
 * exposures_lock, pcilend_group.lock, functions_lock, withdrawn_lock; in interrupts dma_lock,
 * inside of a link's loss_lock, and pcilend_intx.lock.
 */
#ifndef PCILEND_LENDER_H
#define PCILEND_LENDER_H

#include "base/compat.h"
#include "base/memory.h"
#include "lender/admin.h"
#include "pcilend/access.h"
#include "pcilend/identity.h"
#include "pcilend/lease.h"
#include "pcilend/mappings.h"
#include "pcilend/mastering.h"
#include "pcilend/reservation.h"
#include "pcilend/set.h"
#include "pcilend/share.h"
#include "pcilend/vconfig.h"

struct pcilend_client_notice;

#define PCILEND_MAPS 256		/* ranges mapped for one lease */
#define PCILEND_CLIENT_MAPS 128		/* of these, for all clients of a shared function */
#define PCILEND_SMALL_PAGES BIT(18)	/* mapped for one lease outside of 2 MiB pages */
#define PCILEND_NODE_TABLES BIT(14)	/* pages of page tables for all leases of a node */
#define PCILEND_RETURNS 8		/* repeated RETURN requests that wait for the same reset */

struct pcilend_export {
	u64 iova;			/* in the aperture towards the borrower */
	u64 size;			/* bytes, whole pages; 0: not exported */
};

struct lender_target;

struct pcilend_map_entry {
	u64 start;			/* device-side address */
	u64 size;			/* 0: entry is free */
	u64 small;			/* 4 KiB pages of it that are in no large one */
	u32 tables;			/* pages that its page tables may take */
	struct lender_target *target;	/* NULL: what is mapped is not taken away */
};

/* What the lender keeps with a link, as long as there are references on that. */
struct lender_link {
	struct pcilend_link *link;
	struct list_head lent;		/* dma_lock: of struct pcilend_function */
	struct list_head reached;	/* dma_lock: of struct pcilend_over, in the peer */
	struct ratelimit_state relay_limit; /* of interrupts that are relayed */
	struct mutex telling;		/* the peer of what is exposed to it (lender_expose.c) */
	struct delayed_work unexpose;	/* tells it what no longer is */
	struct work_struct share_lost;	/* of clients of shared functions; holds a reference on */
					/* @link */
};

static inline struct lender_link *lender_link(struct pcilend_link *link)
{
	return link->lender;
}

/* A function does DMA over a link that its lease does not use. */
struct pcilend_over {
	struct list_head node;		/* dma_lock: in lender_link.reached */
	struct pcilend_function *fn;
	bool lost;			/* dma_lock: that link was lost since */
};

/* The legacy interrupt of a lent function. */
struct pcilend_intx {
	int irq;			/* 0: not relayed */
	enum pcilend_intx_state wanted;	/* by the borrower */
	bool refused;			/* it can't be relayed */
	struct pcilend_link *link;	/* of the lease; constant while relayed, as msg */
	struct pcilend_msg_lease msg;

	spinlock_t lock;		/* taken in interrupts, inside of dma_lock: the */
					/* command register, and what follows */
	bool open;			/* not masked */
	bool raised;			/* since it was opened last; the borrower is told */
	struct delayed_work tell;	/* only while relayed */
};

/* One vector of a function; the first of several that were allocated at once tells of them. */
struct pcilend_relay_vector {
	struct pcilend_relay *relay;	/* constant */
	unsigned int irq;
	u32 count;			/* 0: none begins here */
};

/* MSI and MSI-X of a lent function, taken for its borrower. */
struct pcilend_relay {
	struct irq_domain *domain;	/* NULL: nothing is relayed */
	struct pcilend_relay_vector vector[PCILEND_RELAY_VECTORS];
	struct pcilend_link *link;	/* of the lease; constant while relayed, as the next two */
	__le32 id;
	__le32 lease;
	atomic64_t raised;		/* vectors that the borrower is to hear of */
	struct delayed_work tell;	/* only while relayed */
};

struct pcilend_return {
	struct pcilend_link *link;	/* with a reference; NULL: entry is free */
	u32 session;
	u32 request;
};

/**
 * struct pcilend_function - a local function from ADD to REMOVE
 *
 * Kept alive by references; in the table while it is added. What the lease's state machine asks
 * for is done by pcilend_function_settle(), by whoever gets to it first.
 */
struct pcilend_function {
	struct list_head node;		/* functions_lock; by ascending id */
	struct kref ref;
	struct pci_dev *pdev;		/* with a reference */
	u32 id;				/* constant, as the identity in info */
	struct pcilend_msg_function info;
	struct pcilend_group *group;	/* constant; with a reference; NULL: not behind an IOMMU */

	/*
	 * One change of what is lent of it at a time. Other drivers let go of it meanwhile, or take
	 * it, which may last for ever: so it is the function's own, and the handshake of no link
	 * waits for who holds it.
	 */
	struct mutex admin;
	bool binding;			/* admin: our driver may take it now */
	char *former_override;		/* admin */

	struct mutex lock;		/* lease and hardware, as all below; info.label */
	struct pcilend_access access;
	struct pcilend_reservation reservation;
	struct pcilend_lease lease;
	u32 todo;			/* PCILEND_DO_* of the last transition */
	struct pcilend_lease_result result;
	bool held;			/* bound to our driver */
	const char *bind_error;		/* why our driver did not take it */
	u64 near;			/* bytes of memory that who borrows it may have here */
	bool own_reset;			/* device lock: the PCI core resets it for us */
	struct pci_saved_state *state;	/* as it is for each borrower */
	u16 settings;			/* PCI_EXP_DEVCTL as we found it */
	struct pcilend_vconfig *config;	/* tells which registers a borrower may write */
	struct resource *guard[6];	/* rest of the page of BARs below 4 KiB */
	void *rom;			/* copy of its expansion ROM; NULL: borrowers see none */
	void __iomem *registers;	/* that its class tells of its health; NULL: it does not */
	struct pcilend_return returns[PCILEND_RETURNS];

	/* while borrowed, until fenced */
	struct pcilend_link *link;	/* with a reference, and one on the module */
	struct lender_local *local;	/* instead: a process of this host has it */
	u64 slice;			/* of that one; device-side address */
	u64 slice_bytes;		/* 0: none */
	struct pcilend_shared *shared;	/* its borrower has admitted clients; else NULL */
	bool attached;			/* to its group's domain */
	bool hidden;			/* its BARs, see pcilend_device_hide() */
	bool requester;			/* entered at fn->link's adapter */
	bool foreign_reset;		/* not by us, and its borrower has not been told yet */
	struct list_head lent;		/* dma_lock: in lender_link.lent */
	struct pcilend_mastering mastering;	/* dma_lock */
	u64 alias;			/* device-side address of its interrupts, 0: not mapped */
	u64 dma_address;		/* direct: where it reaches the borrower's DMA area, */
	u64 interrupt_address;		/* and its interrupts; 0: it does not */
	u64 mapped;			/* bytes */
	u64 small;			/* 4 KiB pages of these that are in no large one */
	u32 tables;			/* pages that their page tables may take */
	struct pcilend_map_entry map[PCILEND_MAPS];
	struct pcilend_export export[PCILEND_BARS];	/* the last one is the ROM's copy */
	struct pcilend_withdrawn *withdrawn;	/* where those go if it is not returned */
	bool returned;			/* the borrower is through with it, however it ended */
	u32 resets;			/* asked for by borrowers, since added */
	struct pcilend_intx intx;
	struct pcilend_relay relay;

	struct delayed_work recover;	/* holds a reference, as all of these */
	struct work_struct settle;
	struct work_struct hand_back;	/* to its own driver; only the module's end waits for it */
	struct work_struct gone;
	struct delayed_work expiry;
	struct delayed_work share_due;
	struct delayed_work unreserve;
};

/*
 * Without an IOMMU that translates for it: it reaches all memory of this host. fn->lock; changes
 * with fn->admin only, and while our driver does not have it.
 */
static inline bool pcilend_function_is_direct(const struct pcilend_function *fn)
{
	return fn->info.flags & PCILEND_FUNCTION_DIRECT;
}

/* Is it lent, to a peer or to a process of this host, and not fenced yet? fn->lock */
static inline bool pcilend_function_is_lent(const struct pcilend_function *fn)
{
	return fn->link || fn->local;
}

/* lender.c */
struct pcilend_function *pcilend_function_alloc(struct pci_dev *pdev);
void pcilend_function_put(struct pcilend_function *fn);
struct pcilend_function *pcilend_function_find(u32 id);
struct pcilend_function *pcilend_function_of(struct pci_dev *pdev);
struct pcilend_function *pcilend_function_next(struct pcilend_function *previous);
int pcilend_function_table_add(struct pcilend_function *fn, u32 id,
			       struct netlink_ext_ack *extack);
void pcilend_function_table_remove(struct pcilend_function *fn);
int pcilend_function_apply(struct pcilend_function *fn, struct pcilend_lease_event *event,
			   const char **why);
int pcilend_function_share_step(struct pcilend_share *share,
				const struct pcilend_share_event *event,
				struct pcilend_share_result *result);
int pcilend_function_grant(struct pcilend_function *fn, struct pcilend_lease_event *event,
			   const struct pcilend_set_holder *holder, const char **why);
void pcilend_function_settle(struct pcilend_function *fn);
void pcilend_function_settle_now(struct pcilend_function *fn);
void pcilend_function_queue_settle(struct pcilend_function *fn);
void pcilend_function_queue_hand_back(struct pcilend_function *fn);
void pcilend_function_queue_gone(struct pcilend_function *fn);
void pcilend_function_queue_expiry(struct pcilend_function *fn, u64 ms);
bool pcilend_function_take_release(struct pcilend_function *fn);
void pcilend_function_tell_recall(struct pcilend_function *fn, struct pcilend_link *link);
void pcilend_function_announce(struct pcilend_function *fn);
int pcilend_function_notify(struct pcilend_function *fn, struct pcilend_link *link);
int pcilend_function_withdraw(struct pcilend_function *fn, struct pcilend_link *link);
u64 pcilend_function_tables(u32 node);
bool pcilend_function_visible(struct pcilend_function *fn, u32 node);
void pcilend_function_report(struct pcilend_function *fn, struct pcilend_report *report);

/* lender_peer.c: nodes that functions are lent to */
bool pcilend_lender_grants(struct pcilend_function *fn, u32 node);

/* lender_reserve.c */
void pcilend_reserve_init(struct pcilend_function *fn);
void pcilend_reserve_exit(struct pcilend_function *fn);
int pcilend_function_reserve(struct pcilend_function *fn, struct pcilend_reserve *wish,
			     const char **why);

/* lender_peer.c */
int pcilend_lender_sync(struct pcilend_link *link);

/* lender_request.c */
void pcilend_lender_request(struct pcilend_link *link, const struct pcilend_message *msg);

/* lender_admin.c */
void pcilend_lender_take_back(void);
void pcilend_lender_hand_back_work(struct work_struct *work);

/* lender_device.c: being held */
int pcilend_device_register(void);
void pcilend_device_unregister(void);
int pcilend_device_check(struct pci_dev *pdev, bool direct, struct netlink_ext_ack *extack);
void pcilend_device_bars(struct pcilend_function *fn, bool has_rom,
			 struct pcilend_vconfig_bar bar[PCILEND_BARS]);
int pcilend_device_take(struct pcilend_function *fn, struct netlink_ext_ack *extack);
void pcilend_device_release(struct pcilend_function *fn);
void pcilend_device_forget(struct pcilend_function *fn);
void pcilend_device_describe(struct pci_dev *pdev, struct pcilend_msg_function *info);
const char *pcilend_device_reset(struct pcilend_function *fn);
void pcilend_device_lock(struct pcilend_function *fn);
void pcilend_device_unlock(struct pcilend_function *fn);

/* lender_withdrawn.c: BARs of leases that were not returned */
struct pcilend_withdrawn *pcilend_withdrawn_alloc(void);
void pcilend_withdrawn_keep(struct pcilend_withdrawn *withdrawn, struct pcilend_link *link, u32 id,
			    u32 borrower, u32 lease, enum pcilend_lost_reason reason,
			    const struct pcilend_export *export, u32 count);
int pcilend_withdrawn_sync(struct pcilend_link *link);
void pcilend_withdrawn_returned(u32 borrower, u32 id, u32 lease);
void pcilend_withdrawn_link_over(struct pcilend_link *link);

/* lender_group.c: IOMMU groups */
struct pcilend_group *pcilend_group_get(struct pci_dev *pdev);
void pcilend_group_put(struct pcilend_group *group);
int pcilend_group_join(struct pcilend_function *fn, struct netlink_ext_ack *extack);
void pcilend_group_leave(struct pcilend_function *fn);
int pcilend_group_hold(struct pcilend_function *fn);
void pcilend_group_unhold(struct pcilend_function *fn);
void pcilend_group_note(struct pcilend_function *fn);
int pcilend_group_admit(struct pcilend_function *fn, const struct pcilend_set_holder *wish);
int pcilend_group_claim(struct pcilend_function *fn);
void pcilend_group_unclaim(struct pcilend_function *fn);
bool pcilend_group_keeps(struct pcilend_function *fn);
int pcilend_group_attach(struct pcilend_function *fn);
void pcilend_group_detach(struct pcilend_function *fn);
u64 pcilend_group_aperture_end(struct pcilend_function *fn);
bool pcilend_group_reserves(struct pcilend_function *fn, u64 address, u64 size);
u64 pcilend_group_last_place(struct pcilend_function *fn);
int pcilend_group_place_slice(struct pcilend_function *fn, u64 bytes);
int pcilend_group_map(struct pcilend_function *fn, u64 address, phys_addr_t phys, u64 size);
int pcilend_group_map_memory(struct pcilend_function *fn, u64 address,
			     const struct pcilend_memory *memory, int prot);
void pcilend_group_unmap(struct pcilend_group *group, u64 address, u64 size);
void pcilend_group_hide(struct pcilend_group *group, u64 address, u64 size);
int pcilend_group_show(struct pcilend_group *group, u64 address, phys_addr_t phys, u64 size);
u32 pcilend_group_set(struct pcilend_function *fn);
int pcilend_group_check(struct pci_dev *pdev, struct iommu_group *iommu,
			struct netlink_ext_ack *extack);
int pcilend_group_check_direct(struct pci_dev *pdev, struct netlink_ext_ack *extack);
void pcilend_group_report(struct pcilend_function *fn, struct pcilend_report *report);

/* lender_access.c: what a borrower reaches */
int pcilend_device_lend(struct pcilend_function *fn, struct pcilend_link *link,
			const struct pcilend_msg_borrow *in);
int pcilend_device_lend_here(struct pcilend_function *fn, struct lender_local *local, u64 bytes);
void pcilend_device_fence(struct pcilend_function *fn, const struct pcilend_lease_result *end);
void pcilend_device_open(struct pcilend_function *fn);
void pcilend_device_hide(struct pcilend_function *fn);
int pcilend_device_show(struct pcilend_function *fn);
u64 pcilend_device_last_address(struct pcilend_function *fn);
bool pcilend_device_may_map(struct pcilend_function *fn, u64 address, u64 size);
int pcilend_device_map(struct pcilend_function *fn, u64 address, phys_addr_t phys, u64 size);
int pcilend_device_map_memory(struct pcilend_function *fn, u64 address,
			      const struct pcilend_memory *memory, int prot,
			      struct pcilend_map_entry **entry);
int pcilend_device_unmap(struct pcilend_function *fn, u64 address, u64 size);
int pcilend_device_config_read(struct pcilend_function *fn, u32 offset, u8 *data, u32 length);
int pcilend_device_config_write(struct pcilend_function *fn, u32 offset, const u8 *data,
				u32 length);

void pcilend_device_enable_msix(struct pci_dev *pdev, bool on);

/* lender_local.c: processes of this host */
void pcilend_local_quiet(struct pcilend_function *fn);
void pcilend_local_over(struct pcilend_function *fn);
void pcilend_local_hide(struct pcilend_function *fn);
void pcilend_local_show(struct pcilend_function *fn);
void pcilend_local_tell_recall(struct pcilend_function *fn);
void pcilend_local_tell_reset(struct pcilend_function *fn);
void pcilend_local_report(struct pcilend_function *fn, struct pcilend_report *report);
void pcilend_local_tell_client(struct pcilend_function *fn,
			       const struct pcilend_client_notice *notice);
void pcilend_local_tell_mail(struct pcilend_function *fn, bool there);
struct pcilend_vectors *pcilend_local_vectors(struct pcilend_function *fn);
int pcilend_local_map(struct pcilend_function *fn, const struct pcilend_memory *memory,
		      bool read_only, u64 address, struct netlink_ext_ack *extack);
int pcilend_local_interrupt(struct pcilend_function *fn, u32 vector, struct eventfd_ctx *event,
			    struct netlink_ext_ack *extack);

/* lender_share.c: functions that several share */
void pcilend_share_due_work(struct work_struct *work);
int pcilend_share_set(struct pcilend_function *fn, const struct pcilend_share_policy *policy,
		      const struct pcilend_access *nodes, const char **why);
int pcilend_share_cleared(struct pcilend_function *fn, u32 client, u32 round, const char **why);
bool pcilend_share_is_on(struct pcilend_function *fn);
bool pcilend_share_has_vector(struct pcilend_function *fn, u32 vector);
u64 pcilend_share_bytes(struct pcilend_function *fn);
void pcilend_share_hide(struct pcilend_function *fn);
void pcilend_share_show(struct pcilend_function *fn);
void pcilend_share_close(struct pcilend_function *fn);
void pcilend_share_over(struct pcilend_function *fn, enum pcilend_lost_reason lost);
void pcilend_share_was_reset(struct pcilend_function *fn);
void pcilend_share_recall(struct pcilend_function *fn, u64 left);
void pcilend_share_report(struct pcilend_function *fn, struct pcilend_report *report);
/* lender_share_process.c: what those of this host have mapped */
int pcilend_share_manager_may_map(struct pcilend_function *fn);
/* lender_share_mail.c: mail of their managers */
int pcilend_share_answer(struct pcilend_function *fn, u32 client,
			 const struct pcilend_mail_text *text, const char **why);
u32 pcilend_share_next_mail(struct pcilend_function *fn, struct pcilend_mail_text *text);
int pcilend_share_mail(struct pcilend_function *fn, const struct pcilend_message *msg);
/* lender_share_vectors.c: interrupts of their clients on other hosts */
int pcilend_share_vector(struct pcilend_function *fn, const struct pcilend_message *msg);

/* lender_share_peer.c: their clients on other hosts */
int pcilend_share_join(struct pcilend_function *fn, struct pcilend_link *link,
		       const struct pcilend_message *msg, struct pcilend_msg_joined *out);
bool pcilend_share_return(struct pcilend_function *fn, struct pcilend_link *link,
			  const struct pcilend_message *msg, u32 lease);
void pcilend_share_lost_work(struct work_struct *work);
void pcilend_share_link_lost(struct pcilend_link *link);
void pcilend_share_link_up(struct pcilend_link *link);
int pcilend_share_sync(struct pcilend_link *link);
bool pcilend_share_has_client(struct pcilend_function *fn, u32 node);
void pcilend_share_peer_dead(struct pcilend_link *link, u64 boot);

/* lender_rom.c: expansion ROMs */
u64 pcilend_rom_size(struct pci_dev *pdev);
void pcilend_rom_take(struct pcilend_function *fn);
void pcilend_rom_drop(struct pcilend_function *fn);
int pcilend_rom_export(struct pcilend_function *fn);

/* lender_settings.c: settings of PCI Express that hold while it can be lent */
void pcilend_settings_begin(struct pcilend_function *fn);
void pcilend_settings_end(struct pcilend_function *fn);

/* lender_reach.c: peer-to-peer */

/* BARs of a function of another lender, where that has said they are, for one borrower. */
struct pcilend_exposed {
	struct list_head node;		/* reaches_lock */
	struct pcilend_link *link;	/* to that lender; its session ends after this */
	u32 id;
	u32 lease;
	u32 borrower;
	struct pcilend_msg_placement bar[6];
};

/* A BAR that a lent function reaches by DMA. */
struct pcilend_reached {
	struct list_head node;		/* reaches_lock */
	struct pcilend_function *from;	/* lent, so its group's domain is there */
	u32 lease;			/* of @from */
	u32 to;				/* id of the target */
	struct pcilend_exposed *exposed; /* NULL: the target is one of this host */
	u32 bar;
	u64 address;			/* device side */
	phys_addr_t phys;		/* on this host */
	u64 size;			/* bytes, whole pages */
	struct pcilend_over over;	/* the link of @exposed */
};

int pcilend_reach_set(struct pcilend_function *from, struct pcilend_function *to,
		      const struct pcilend_msg_reach *msg);
int pcilend_reach_set_exposed(struct pcilend_function *from, u32 borrower,
			      const struct pcilend_msg_reach *msg);
void pcilend_reach_fence(struct pcilend_function *fn);
void pcilend_reach_hide(struct pcilend_function *fn);
void pcilend_reach_show(struct pcilend_function *fn);
void pcilend_reach_drop_lost(struct pcilend_function *fn);
void pcilend_reach_peer_dead(struct pcilend_link *link);
int pcilend_reach_exposed(struct pcilend_link *link, const struct pcilend_msg_exposed *msg);

/* lender_target.c: memory that can be taken away; segments that borrowers ask for */
void pcilend_target_init(pcilend_open_segment open);
void pcilend_target_fence(struct pcilend_function *fn);
void pcilend_target_drop_lost(struct pcilend_function *fn);
int pcilend_target_set(struct pcilend_function *fn, u32 node, const struct pcilend_msg_target *in,
		       int (*check)(struct pcilend_function *fn, const void *holder),
		       const void *holder);

/* lender_near.c: memory of this host for who has borrowed a function */
void pcilend_near_init(const struct pcilend_lender_segments *segments);
int pcilend_near_get(struct pcilend_function *fn, u32 node, u64 size,
		     int (*check)(struct pcilend_function *fn, const void *holder),
		     const void *holder, u32 *id);
void pcilend_near_fence(struct pcilend_function *fn);
void pcilend_near_report(struct pcilend_function *fn, struct pcilend_report *report);

/* lender_expose.c: BARs for functions of other lenders */
int pcilend_expose(struct pcilend_function *fn, const struct pcilend_lease_event *holder,
		   u32 node);
void pcilend_unexpose(struct pcilend_function *fn, u32 node);
void pcilend_expose_fence(struct pcilend_function *fn);
void pcilend_expose_link_init(struct lender_link *link);
void pcilend_expose_link_gone(struct lender_link *link);
void pcilend_expose_hide(struct pcilend_function *fn);
void pcilend_expose_show(struct pcilend_function *fn);
void pcilend_expose_link_up(struct pcilend_link *link);
void pcilend_expose_peer_dead(struct pcilend_link *link);

/* lender_intx.c: legacy interrupts */
void pcilend_intx_link_init(struct lender_link *link);
void pcilend_intx_init(struct pcilend_function *fn);
bool pcilend_intx_possible(struct pci_dev *pdev);
void pcilend_set_command(struct pcilend_function *fn, u16 clear, u16 set);
void pcilend_intx_begin(struct pcilend_function *fn);
int pcilend_intx_set(struct pcilend_function *fn, enum pcilend_intx_state state);
void pcilend_intx_pause(struct pcilend_function *fn);
void pcilend_intx_resume(struct pcilend_function *fn);
void pcilend_intx_tell_again(struct pcilend_function *fn);
void pcilend_intx_off(struct pcilend_function *fn);

/* lender_relay.c: MSI and MSI-X that can't reach the borrower by themselves */
void pcilend_relay_init(struct pcilend_function *fn);
void pcilend_relay_begin(struct pcilend_function *fn);
int pcilend_relay_set(struct pcilend_function *fn, const struct pcilend_msg_msi *in,
		      struct pcilend_msg_msi_message *out);
void pcilend_relay_tell_again(struct pcilend_function *fn);
void pcilend_relay_end(struct pcilend_function *fn);

/* lender_dma.c: bus mastering, and lost links */
void pcilend_device_bus_master(struct pcilend_function *fn, bool on);
void pcilend_dma_attach(struct pcilend_function *fn);
void pcilend_dma_detach(struct pcilend_function *fn);
void pcilend_dma_was_reset(struct pcilend_function *fn);
void pcilend_dma_lost(struct pcilend_link *link);
void pcilend_dma_stop(struct pcilend_function *fn);
void pcilend_dma_queue_recover(struct pcilend_function *fn);
void pcilend_dma_queue_late_recover(struct pcilend_function *fn);
void pcilend_dma_cancel_recover(struct pcilend_function *fn);
void pcilend_dma_resume(struct pcilend_link *link);
int pcilend_dma_reach(struct pcilend_over *over, struct pcilend_function *fn,
		      struct pcilend_link *link);
void pcilend_dma_unreach(struct pcilend_over *over);
void pcilend_dma_recover_work(struct work_struct *work);

#endif /* PCILEND_LENDER_H */
