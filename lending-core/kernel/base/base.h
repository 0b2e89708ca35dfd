/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What all folders of pcilend.ko stand on: the module's parameters, its work queues, its counters,
 * and refusals of netlink requests. It knows nothing of links and functions, and has no lock that
 * a caller could notice; all but pcilend_refuse_fmt() may be called in any context.
 *
 * Folders use one another one way, which tools/test/kernel-folders checks: base < link and lease <
 * virtual < lender, borrower and segment < netlink < main.c. Those side by side don't know each
 * other.
 *
 * Lock order of the whole module, outermost first; a lock may be taken while those above it are
 * held:
 *
 *	pcilend_use.lock	a process asks for one thing at a time of what it has leased
 *	pcilend_function.admin	one change of what is lent of a local function at a time
 *	lender_link.telling	one other lender is told of exposed BARs at a time
 *	pci_dev_lock()		of the bridge above a local function, as pci_reset_function() does
 *	pci_dev_lock()		of a local function: the device lock, and access to its config space
 *	pcilend_function.lock	a local function: lease and hardware; of two the lower id's first
 *	reaches_lock		what local functions reach by peer-to-peer
 *	exposures_lock		what functions of other lenders reach of local ones
 *	pcilend_source.lock	what can be taken away from functions; also inside of
 *				pcilend_use.bars_lock and of those of segments, and outside of
 *				pcilend_domain.lock
 *	pcilend_group.lock	the functions of an IOMMU group
 *	pcilend_use.bars_lock	parts of BARs that a process has; then pcilend_source.lock, and
 *				pcilend_pages.lock
 *	pcilend_use.clients_lock	what the manager of a shared function is told
 *
 *	segments_lock		segments of this host, and what is offered of them
 *	segment_link.lock	segments that are connected over one link; then pcilend_source.lock
 *	pcilend_pages.lock	what processes see in their place; taken in page faults
 *	pcilend_ones.lock	pages of all-ones
 *
 *	adapters_lock		frontends are told of one adapter at a time
 *	remote.frontends	a remote function's frontends come and go
 *	remote.operation	a remote function: one borrow or return at a time; of two the
 *				lower id's first
 *	pci_lock_rescan_remove()	taken by work items of hotplug.c, for which who has the
 *				above waits
 *	remote_client.vectors_lock	interrupts of a client of another host
 *	remote_client.lock	what it has mapped
 *	remote_mail.lock	what it asks the function's manager
 *	device_lock()		of a virtual function
 *	domains_lock		domains of the IOMMU that virtual functions are behind
 *	iommu_group.mutex	the IOMMU core's, of a virtual function: attachments, one by one
 *	pcilend_domain.lock	what a user of VFIO has mapped for functions
 *	remote.reaching		what a user of VFIO has mapped for a function is asked for
 *	pcilend_virtual_relay.asking	a lender about its relay: one thing at a time
 *
 *	windows_lock		pieces of adapters' BARs that virtual functions take up
 *	trust_lock		one link becomes trusted at a time
 *	remote_choice_lock	links of leases are chosen one by one; then clients_lock
 *	appear_lock		remote functions appear one by one
 *	remotes_lock, functions_lock, links_lock, frontends_lock, pins_lock	tables
 *	withdrawn_lock		BARs of leases that were not returned; in functions' locks
 *	unconfirmed_lock	leases whose end a lender has not heard of
 *	remote.lock		a remote function: lease, placement
 *	pcilend_aperture.lock	ranges of one link
 *	pcilend_channel.rx_lock
 *	pcilend_channel.tx_lock
 *	spinlocks		pcilend_link.state_lock, kick_lock, pcilend_channel.lock,
 *				pcilend_link.loss_lock, segment_link.status_lock,
 *				pcilend_use.status_lock, dma_lock,
 *				pcilend_intx.lock, reach_lock, pcilend_virtual_relay.lock,
 *				pcilend_audit_limit.lock
 *	raw spinlocks		pcilend_virtual.telling, then pcilend_channel.poll_lock or
 *				pcilend_virtual.lock: in any context
 *
 * Lender (first group), segments (second) and borrower (third) never call one another, but for
 * the lender by struct pcilend_lender_segments, and for what pcilend_source_take() takes. Of all
 * these, only adapters_lock, remote.frontends, remote.operation, domains_lock, iommu_group.mutex,
 * pcilend_domain.lock, remote.reaching, pcilend_virtual_relay.asking, remote_client.vectors_lock
 * and the lender's first five may be held while waiting for a peer or a device; and only
 * pcilend_function.admin while another driver takes a function or lets go of it, for which no
 * link's handshake waits.
 *
 * Work items of a link never wait for one another, but for the handshake, which waits for those
 * that handle messages. It, and a request to expose a function, may also wait for the peer of
 * another, trusted link, which waits for nothing to answer that.
 */
#ifndef PCILEND_BASE_H
#define PCILEND_BASE_H

#include <linux/atomic.h>
#include <linux/ktime.h>
#include <linux/netlink.h>
#include <linux/pcilend.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "pcilend/layout.h"
#include "pcilend/wire.h"

#define PCILEND_REASON_BYTES PCILEND_LAYOUT_TEXT_BYTES

/* Parameters of the module; they don't change. */
extern u16 pcilend_node;		/* 0: not set, links are refused */
extern u64 pcilend_boot;		/* random at load */
extern unsigned int pcilend_lease_ms;
extern unsigned int pcilend_max_lease_ms;	/* of leases that peers get here */
extern bool pcilend_unsafe_interrupts;
extern bool pcilend_unsafe_groups;	/* adapters may share theirs */
extern bool pcilend_direct;		/* adapters without an IOMMU are used */
extern bool pcilend_relay_msi;		/* no peer's function reaches our interrupts */
extern unsigned int pcilend_segment_mib;	/* MiB of segments that each peer may be offered */
extern bool pcilend_p2p;		/* peer-to-peer wherever it is asked for */

extern struct workqueue_struct *pcilend_wq;	/* unbound, for everything that may sleep */
/*
 * For messages and the heartbeat. A disk's reset, on the way to free memory, waits for them:
 * nothing in here waits for memory, or takes a lock that somebody holds who does.
 */
extern struct workqueue_struct *pcilend_channel_wq;
/* For what frontends do: a lender can cause as much of it as it has functions. */
extern struct workqueue_struct *pcilend_frontend_wq;

/* A boot id; neither half is 0. */
u64 pcilend_new_boot(void);

/* First of all. Return: 0; -EINVAL if parameters make no sense, which the log says; -ENOMEM. */
int pcilend_base_init(void);
void pcilend_base_exit(void);

/* ones.c: the rest of it is in pcilend/ones.h */
void pcilend_ones_exit(void);

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

/*
 * wait_event() for a condition that takes mutexes. Who makes it true wakes @head afterwards.
 */
#define pcilend_wait_until(head, condition)						\
do {											\
	DEFINE_WAIT_FUNC(pcilend_wait, woken_wake_function);				\
	wait_queue_head_t *pcilend_head = &(head);					\
											\
	add_wait_queue(pcilend_head, &pcilend_wait);					\
	while (!(condition))								\
		wait_woken(&pcilend_wait, TASK_UNINTERRUPTIBLE, MAX_SCHEDULE_TIMEOUT);	\
	remove_wait_queue(pcilend_head, &pcilend_wait);					\
} while (0)

/* A change that listings show; makes dumps that it interrupts say so. */
void pcilend_changed(void);
unsigned int pcilend_generation(void);

/* Has a reboot or power-off begun? From then on no lent function does DMA, and nothing is lent. */
bool pcilend_goes_down(void);
void pcilend_go_down(void);

/*
 * Is this host about to sleep, or to go down? A lender asks with the function's lock held, and a
 * borrower after it has counted the lease (pcilend_link.leases). pcilend_sleep_comes() is called
 * before leases are looked for: so a new lease either finds it so, or is found.
 */
bool pcilend_sleeps(void);
void pcilend_sleep_comes(bool coming);

/* Refuses a netlink request with a constant sentence that is only known at run time. */
static inline int pcilend_refuse(struct netlink_ext_ack *extack, int error, const char *why)
{
	if (extack && why)
		extack->_msg = why;
	return error;
}

/* What was refused is asked for again. */
static inline void pcilend_refuse_nothing(struct netlink_ext_ack *extack)
{
	if (extack)
		extack->_msg = NULL;
}

/* The same with a text that is made here: NETLINK_MAX_FMTMSG_LEN, less the zero at its end. */
__printf(3, 4)
int pcilend_refuse_fmt(struct netlink_ext_ack *extack, int error, const char *format, ...);

#endif /* PCILEND_BASE_H */
