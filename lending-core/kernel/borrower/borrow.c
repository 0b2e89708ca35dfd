// SPDX-License-Identifier: GPL-2.0-only
/*
 * Borrowing a remote function and giving it back, and what its holder may ask of the lender.
 *
 *	idle -> borrowing -> held -> idle			borrowed and returned
 *	held -> lost -> idle					the lender ended the lease
 *	held | lost -> returning -> idle			returned, not acknowledged yet
 */

#include <linux/module.h>
#include <linux/slab.h>

#include "borrower/borrower.h"
#include "borrower/iommu.h"
#include "base/trace.h"

#define RETURN_TRIES 4		/* of PCILEND_REQUEST_MS each */
#define BUSY_MS 20000		/* that requests wait until another is done with the function */
#define LET_GO_MS 2000		/* the same, for a user of VFIO who is about to let go of it */
#define GIVE_BACK_MS 120000	/* for a return, in which a driver may have much to write */

DEFINE_MUTEX(remote_choice_lock);	/* each choice of a link sees those before */

/* A lease that is over, whose lender has not heard that nobody here uses it. */
struct unconfirmed {
	struct list_head node;
	u32 id;
	u32 lease;
};

static LIST_HEAD(unconfirmed_list);
static DEFINE_MUTEX(unconfirmed_lock);

static DECLARE_WAIT_QUEUE_HEAD(borrow_given_back);	/* woken when give_back_work is done */

static const char *borrow_why_refused(int error)
{
	switch (error) {
	case -ENODEV:
		return "its lender no longer offers it to this node: run 'pcilend connect' there";
	case -EAGAIN:
		return "it is not available: run 'pcilend available' on its lender";
	case -EBUSY:
		return "it is borrowed or being reset: see 'pcilend list' for who has it";
	case -EACCES:
		return "it is reserved for another node or domain: see its lender's 'pcilend show'";
	case -EUCLEAN:
		return "it or one of its group is quarantined: 'pcilend show' on its lender";
	case -EXDEV:
		return "others of its group are not available: 'pcilend available' them there";
	case -EUSERS:
		return "another function of its group is lent to others: see 'pcilend list'";
	case -EMLINK:
		return "others of its group are borrowed over another adapter: use that one";
	case -ENOSPC:
		return "no room in the memory windows for its BARs: return other functions first";
	case -EXFULL:
		return "its lender's adapter does not let it through: see the kernel log there";
	case -ENETDOWN:
		return "the link to its lender is down: see 'pcilend link'";
	case -ETIMEDOUT:
		return "its lender does not answer: see whether that host is alive";
	case -EIO:
		return "its lender could not lend it: see the kernel log there";
	case -ESTALE:
		return "the lease was lost again at once: try once more";
	case -EPROTO:
	case -ERANGE:
		return "its lender makes no sense: use the same release of pcilend on both hosts";
	case -ENOMEM:
		return "this host is out of memory";
	default:
		return "its virtual function can't be made: see the kernel log";
	}
}

static int borrow_refuse(const char **why, int error, const char *sentence)
{
	if (why)
		*why = sentence;
	return error;
}

/* It is being given back, and its user has it still: VFIO waits for as long as he likes. */
static bool borrow_awaits_user(struct remote *r)
{
	return READ_ONCE(r->ending) && pcilend_remote_in_use(&r->pub);
}

/*
 * As mutex_lock() of the operation, with a limit: who holds it may wait for a user of VFIO, who
 * never lets go, and a request of netlink that does not end holds up those of all families.
 * Return: 0; -EBUSY; -EINTR if the caller is killed. *why (NULL allowed) as for pcilend_borrow().
 */
int remote_lock_operation(struct remote *r, const char **why)
{
	unsigned long start = jiffies;

	while (!mutex_trylock(&r->operation)) {
		if (fatal_signal_pending(current))
			return borrow_refuse(why, -EINTR, "the request was interrupted");
		if (borrow_awaits_user(r) &&
		    time_after(jiffies, start + msecs_to_jiffies(LET_GO_MS)))
			return borrow_refuse(why, -EBUSY, "it is being returned, and its user has not let go of it yet: end that guest, or detach the device there");
		if (time_after(jiffies, start + msecs_to_jiffies(BUSY_MS)))
			return borrow_refuse(why, -EBUSY, "it is being borrowed or returned, which takes long: see the kernel log, and whether its user or driver lets go of it");
		schedule_timeout_killable(msecs_to_jiffies(20));
	}
	return 0;
}

/*
 * Returns a lease. The answer comes when the function has been reset, which may take longer than
 * other requests; asking again, up to @tries times, is harmless, over any link to the lender.
 * Return: 0 once the lender has stopped the function.
 */
static int borrow_return_lease(struct remote *r, u32 lease, int tries)
{
	const struct pcilend_msg_lease msg = {
		.id = cpu_to_le32(r->pub.id),
		.lease = cpu_to_le32(lease),
	};
	int err, try = 0;
	bool going;

	do {
		struct pcilend_link *link = remote_any_link(r);

		if (!link)
			return -ENETDOWN;
		err = pcilend_channel_request(link, PCILEND_MSG_RETURN, &msg, NULL);
		/* Whoever removes the adapter waits; its driver may have shut the link by now. */
		going = READ_ONCE(link->going);
		pcilend_link_put(link);
	} while ((err == -ETIMEDOUT || err == -ENETDOWN) && !going && ++try < tries);

	/*
	 * It knows of no such lease: so the function was stopped before. No other answer says that;
	 * -ENODEV is one about what is offered, not about a lease.
	 */
	return err == -ESTALE ? 0 : err;
}

/*
 * Until its lender hears that nobody here uses BARs of the lease, it puts nothing else at their
 * place in the memory window. It is told when it is in reach again.
 */
static void borrow_confirm_later(struct remote *r, u32 lease)
{
	struct unconfirmed *unconfirmed = kmalloc(sizeof(*unconfirmed), GFP_KERNEL);

	if (unconfirmed) {
		unconfirmed->id = r->pub.id;
		unconfirmed->lease = lease;
		guard(mutex)(&unconfirmed_lock);
		list_add_tail(&unconfirmed->node, &unconfirmed_list);
	} else {
		dev_warn(&r->pub.dev, "the place of its BARs stays taken on its lender until this host reboots: no memory to note it\n");
	}
}

static struct unconfirmed *borrow_take_unconfirmed(u32 node)
{
	struct unconfirmed *unconfirmed;

	guard(mutex)(&unconfirmed_lock);
	list_for_each_entry(unconfirmed, &unconfirmed_list, node) {
		if (pcilend_id_node(unconfirmed->id) != node)
			continue;
		list_del(&unconfirmed->node);
		return unconfirmed;
	}
	return NULL;
}

/* The peer of @link answers again. One that is another boot than then knows of no such lease. */
void pcilend_borrower_confirm_ends(struct pcilend_link *link)
{
	u32 node = READ_ONCE(link->peer_node);
	struct unconfirmed *unconfirmed;
	int err = 0;

	while (!err && (unconfirmed = borrow_take_unconfirmed(node))) {
		const struct pcilend_msg_lease msg = {
			.id = cpu_to_le32(unconfirmed->id),
			.lease = cpu_to_le32(unconfirmed->lease),
		};

		err = pcilend_channel_request(link, PCILEND_MSG_RETURN, &msg, NULL);
		if (err != -ETIMEDOUT && err != -ENETDOWN) {
			kfree(unconfirmed);
			err = 0;
			continue;
		}
		guard(mutex)(&unconfirmed_lock);
		list_add(&unconfirmed->node, &unconfirmed_list);
	}
}

/* No adapter is left. */
void remote_forget_unconfirmed(void)
{
	struct unconfirmed *unconfirmed, *next;

	list_for_each_entry_safe(unconfirmed, next, &unconfirmed_list, node)
		kfree(unconfirmed);
}

/* Gives back a lease that we do not want, or not know of; nobody waits. */
void remote_return_async(struct remote *r, struct pcilend_link *link, u32 lease)
{
	const struct pcilend_msg_lease msg = {
		.id = cpu_to_le32(r->pub.id),
		.lease = cpu_to_le32(lease),
	};

	pcilend_channel_request_async(link, PCILEND_MSG_RETURN, &msg);
}

/* A borrow was granted after we stopped waiting for it. In the receive path: must not wait. */
void pcilend_borrower_late_answer(struct pcilend_link *link, u16 type, const void *payload)
{
	const struct pcilend_msg_borrowed *granted = payload;
	const struct pcilend_msg_lease msg = {
		.id = granted->id,
		.lease = granted->lease,
	};

	/* What a JOIN is answered with begins in the same way. */
	if (type == PCILEND_MSG_BORROW || type == PCILEND_MSG_JOIN)
		pcilend_channel_request_async(link, PCILEND_MSG_RETURN, &msg);
}

/* No range of the aperture any more. No-op if that was done. */
static void borrow_leave_aperture(struct remote_range *range)
{
	if (!atomic_xchg(&range->left, 1))
		pcilend_aperture_slot_put(range->link, range->iova, range->size,
					  range->of_plan);
}

static void borrow_range_release(struct kref *ref)
{
	struct remote_range *range = container_of(ref, struct remote_range, ref);

	borrow_leave_aperture(range);
	pcilend_link_put(range->link);
	kfree(range);
}

void remote_range_put(struct remote_range *range)
{
	kref_put(&range->ref, borrow_range_release);
}

/* Frees slots that were given up; or @all. */
void remote_drop_slots(struct remote *r, bool all)
{
	struct remote_slot *slot, *next;

	list_for_each_entry_safe(slot, next, &r->slots, node) {
		if (!slot->free && !all)
			continue;
		list_del(&slot->node);
		remote_range_put(slot->range);
		kfree(slot);
	}
}

/* The adapter goes, with no lease over it: what the frontend has not given up is taken from it. */
void remote_leave_aperture(struct remote *r, struct pcilend_link *link)
{
	struct remote_slot *slot;

	mutex_lock(&r->lock);
	list_for_each_entry(slot, &r->slots, node) {
		if (slot->range->link == link)
			borrow_leave_aperture(slot->range);
	}
	mutex_unlock(&r->lock);
}

/* The lease is over: fields that describe it. No-op if a notice has told that before. */
static void borrow_forget_lease(struct remote *r)
{
	lockdep_assert_held(&r->lock);
	if (r->state == REMOTE_IDLE)
		return;
	WRITE_ONCE(r->state, REMOTE_IDLE);
	r->lease = 0;
	remote_drop_slots(r, false);
	atomic_dec(&r->link->leases);
	wake_up_all(&r->link->idle);
}

/* The lender has stopped the function after a lease that we gave up. */
void remote_settled(struct remote *r)
{
	mutex_lock(&r->lock);
	if (r->state == REMOTE_RETURNING)
		borrow_forget_lease(r);
	else if (r->state == REMOTE_LOST)
		r->fenced = true;
	mutex_unlock(&r->lock);
	remote_retire_if_idle(r);
}

/* A return that was not acknowledged is asked for again. */
void remote_return_work(struct work_struct *work)
{
	struct remote *r = container_of(work, struct remote, return_work);
	bool returning;
	u32 lease;

	mutex_lock(&r->operation);
	mutex_lock(&r->lock);
	returning = r->state == REMOTE_RETURNING;
	lease = r->lease;
	mutex_unlock(&r->lock);
	if (returning && !borrow_return_lease(r, lease, RETURN_TRIES))
		remote_settled(r);
	mutex_unlock(&r->operation);
	put_device(&r->pub.dev);
}

/* Whoever has returned the lost lease by now has left nothing to do, least of all to the next. */
void remote_lost_work(struct work_struct *work)
{
	struct remote *r = container_of(work, struct remote, lost_work);
	struct pcilend_frontend *frontend = NULL;
	enum pcilend_lost_reason reason;
	u32 borrow;
	bool lost;

	mutex_lock(&r->lock);
	lost = r->state == REMOTE_LOST;
	borrow = r->borrows;
	reason = r->lost_reason;
	if (lost && r->frontend && try_module_get(r->frontend->owner))
		frontend = r->frontend;
	mutex_unlock(&r->lock);

	if (frontend && frontend->lost)
		frontend->lost(&r->pub, reason);
	if (lost)
		remote_return(r, borrow);
	if (frontend)
		module_put(frontend->owner);
	put_device(&r->pub.dev);
}

void remote_reset_work(struct work_struct *work)
{
	struct remote *r = container_of(work, struct remote, reset_work);
	struct pcilend_frontend *frontend = NULL;

	mutex_lock(&r->lock);
	if (r->state == REMOTE_HELD && try_module_get(r->frontend->owner))
		frontend = r->frontend;
	mutex_unlock(&r->lock);

	if (frontend) {
		if (frontend->was_reset)
			frontend->was_reset(&r->pub);
		module_put(frontend->owner);
		remote_event(r, PCILEND_EVENT_WAS_RESET);
	}
	put_device(&r->pub.dev);
}

/* The link of its lease does not carry any more, or carries again. */
void remote_carrier_work(struct work_struct *work)
{
	struct remote *r = container_of(work, struct remote, carrier_work);
	struct pcilend_frontend *frontend = NULL;

	mutex_lock(&r->lock);
	if (r->state != REMOTE_IDLE && r->frontend && try_module_get(r->frontend->owner))
		frontend = r->frontend;
	mutex_unlock(&r->lock);

	if (frontend && frontend->carrier)
		frontend->carrier(&r->pub);
	if (frontend)
		module_put(frontend->owner);
	put_device(&r->pub.dev);
}

/* The lender has reset it without being asked to; @lease 0: or may have. */
void remote_was_reset(struct remote *r, u32 lease)
{
	bool ours;

	mutex_lock(&r->lock);
	ours = r->state == REMOTE_HELD && (!lease || r->lease == lease);
	mutex_unlock(&r->lock);
	if (!ours)
		return;
	get_device(&r->pub.dev);
	if (!queue_work(pcilend_wq, &r->reset_work))
		put_device(&r->pub.dev);
}

/* The lease ended without our doing; its user is told from a work item. No-op if none is held. */
void remote_lost(struct remote *r, enum pcilend_lost_reason reason, bool fenced)
{
	struct pcilend_link *link;
	bool lost = false;

	mutex_lock(&r->lock);
	if (r->state == REMOTE_HELD) {
		WRITE_ONCE(r->state, REMOTE_LOST);
		r->lost_reason = reason;
		r->fenced = fenced;
		lost = true;
	}
	mutex_unlock(&r->lock);
	if (!lost)
		return;

	remote_reach_end(r);
	pcilend_count(PCILEND_COUNTER_A_LOST);
	link = remote_link(r);
	pci_warn(link->pdev, "lease on function %x was lost (%s)\n", r->pub.id,
		 reason == PCILEND_LOST_REVOKED ? "revoked" :
		 reason == PCILEND_LOST_EXPIRED ? "no heartbeat" : "function or lender gone");
	pcilend_link_put(link);
	trace_pcilend_lease_end(r->pub.id, r->lease, pcilend_id_node(r->pub.id), pcilend_node,
				"lost");
	remote_event(r, PCILEND_EVENT_LEASE_LOST);
	get_device(&r->pub.dev);
	if (!queue_work(pcilend_frontend_wq, &r->lost_work))
		put_device(&r->pub.dev);
}

static bool borrow_is_recalled(struct remote *r)
{
	bool recalled;

	mutex_lock(&r->lock);
	recalled = r->state == REMOTE_HELD && r->recalled == r->lease;
	mutex_unlock(&r->lock);
	return recalled;
}

void remote_recall_work(struct work_struct *work)
{
	struct remote *r = container_of(work, struct remote, recall_work);
	struct pcilend_frontend *frontend = NULL;
	u32 borrow;

	mutex_lock(&r->lock);
	borrow = r->borrows;
	if (r->state == REMOTE_HELD && r->recalled == r->lease && r->frontend &&
	    try_module_get(r->frontend->owner))
		frontend = r->frontend;
	mutex_unlock(&r->lock);

	if (frontend && frontend->recalled && frontend->recalled(&r->pub))
		remote_return(r, borrow);
	if (frontend)
		module_put(frontend->owner);
	put_device(&r->pub.dev);
}

static void borrow_ask_to_let_go(struct remote *r)
{
	remote_event(r, PCILEND_EVENT_RECALL);
	get_device(&r->pub.dev);
	if (!queue_work(pcilend_wq, &r->recall_work))
		put_device(&r->pub.dev);
}

/* The lender wants the function back in @grace_ms: who uses it is asked from a work item. */
void remote_recalled(struct remote *r, u32 lease, u32 grace_ms)
{
	mutex_lock(&r->lock);
	r->recalled = lease;
	r->recall_at = pcilend_now() + grace_ms;
	mutex_unlock(&r->lock);
	/* If the lease is not known here yet, pcilend_borrow() asks. */
	if (borrow_is_recalled(r))
		borrow_ask_to_let_go(r);
}

/* Counts a lease over the link, unless this host is about to sleep. */
static bool borrow_count_lease(struct pcilend_link *link)
{
	atomic_inc(&link->leases);
	if (!pcilend_sleeps())
		return true;
	atomic_dec(&link->leases);
	return false;
}

static int borrow_begin(struct remote *r, struct pcilend_frontend *frontend, const char *owner,
			const char *adapter, const char **why)
{
	struct pcilend_link *any = pcilend_link_to(pcilend_id_node(r->pub.id), 0);
	struct pcilend_link *link, *of_set;
	int err = 0;

	mutex_lock(&remote_choice_lock);
	of_set = adapter ? NULL : remote_link_of_set(r);
	mutex_lock(&r->lock);
	link = remote_path_choose(r, of_set ? pci_name(of_set->pdev) : adapter);
	if (!any) {
		err = borrow_refuse(why, -ENETDOWN, borrow_why_refused(-ENETDOWN));
	} else if (r->dying || r->absent) {
		err = borrow_refuse(why, -ENODEV, borrow_why_refused(-ENODEV));
	} else if (r->ending) {
		err = borrow_refuse(why, -EBUSY, "it is being returned: try again in a few seconds");
	} else if (r->state == REMOTE_HELD && r->frontend == frontend &&
		   !strcmp(r->owner, owner)) {
		err = borrow_refuse(why, -EALREADY, "this owner has borrowed it already");
	} else if (r->state == REMOTE_HELD || r->state == REMOTE_BORROWING) {
		err = borrow_refuse(why, -EBUSY, "this host has borrowed it already: see 'pcilend list' for its owner");
	} else if (r->state != REMOTE_IDLE) {
		err = borrow_refuse(why, -EBUSY, "it is still being returned after its last use: try again in a few seconds, and see 'pcilend link'");
	} else if (!link && adapter) {
		err = borrow_refuse(why, -ENOTCONN, "its lender does not offer it over that adapter: 'pcilend show' lists its paths");
	} else if (!link && of_set) {
		err = borrow_refuse(why, -ENETDOWN, "the link over which others of its group are borrowed is down: return them first, or see 'pcilend link'");
	} else if (!link) {
		err = borrow_refuse(why, -ENETDOWN, borrow_why_refused(-ENETDOWN));
	} else if (frontend->guests && r->pub.info.flags & PCILEND_FUNCTION_DIRECT) {
		err = borrow_refuse(why, -EOPNOTSUPP, "it is lent without an IOMMU (direct), so VMs can't borrow it: make it available without --direct on its lender");
	} else if (frontend->guests && link->aperture.direct) {
		err = borrow_refuse(why, -EOPNOTSUPP, "VMs can't borrow over an adapter without an IOMMU: boot with intel_iommu=on or amd_iommu=on, without iommu=pt");
	} else if (!borrow_count_lease(link)) {
		err = borrow_refuse(why, -EAGAIN, "this host is about to sleep or to go down: try again when it is awake");
	} else {
		remote_set_link(r, link);
		r->state = REMOTE_BORROWING;
		r->borrows++;
		r->lost_early = 0;
		r->recalled = 0;
		WRITE_ONCE(r->guest_bytes, 0);
		r->frontend = frontend;
		strscpy(r->owner, owner, sizeof(r->owner));
	}
	mutex_unlock(&r->lock);
	if (!err)
		remote_choose_interrupts(r);
	mutex_unlock(&remote_choice_lock);
	pcilend_link_put(of_set);
	pcilend_link_put(any);
	return err;
}

/* Where the lender put the BARs; a placement that can't be is the lender's fault. */
static int borrow_place_bars(struct remote *r, const struct pcilend_msg_borrowed *granted)
{
	int i;

	memset(r->bar, 0, sizeof(r->bar));
	memset(&r->rom, 0, sizeof(r->rom));
	for (i = 0; i < PCILEND_BARS; i++) {
		struct pcilend_virtual_bar *bar = i < ARRAY_SIZE(r->bar) ? &r->bar[i] : &r->rom;
		u64 size = le64_to_cpu(granted->bar[i].size);
		phys_addr_t phys;

		if (!size)
			continue;
		if (size != le64_to_cpu(r->pub.info.bar[i].size) ||
		    le32_to_cpu(r->pub.info.bar[i].flags) & PCILEND_BAR_IO)
			return -ERANGE;
		if (pcilend_aperture_peer(r->link, le32_to_cpu(granted->bar[i].window),
					  le64_to_cpu(granted->bar[i].offset),
					  size + le32_to_cpu(granted->bar[i].shift), &phys))
			return -ERANGE;
		bar->address = phys + le32_to_cpu(granted->bar[i].shift);
		bar->size = size;
	}
	return 0;
}

/* Where the function has this host: at addresses of its own, or at those of a window. */
static void borrow_place_host(struct remote *r, const struct pcilend_msg_borrowed *granted)
{
	remote_dma_begin(r);
	r->last_address = le64_to_cpu(granted->last_address);
	r->dma_base = le64_to_cpu(granted->dma_address);	/* the area begins at 0 */
	r->interrupts = r->dma_base ? le64_to_cpu(granted->interrupt_address) :
				      r->reaches ? PCILEND_INTERRUPT_ALIAS : 0;
}

static int borrow_ask_for_lease(struct remote *r, const char *owner)
{
	struct pcilend_msg_borrow msg = {
		.id = cpu_to_le32(r->pub.id),
		.lease_ms = cpu_to_le32(pcilend_lease_ms),
	};
	struct pcilend_answer *answer __free(kfree) = kzalloc(sizeof(*answer), GFP_KERNEL);
	const struct pcilend_msg_borrowed *granted;
	u64 iova, size, offset;
	uuid_t uuid;
	u32 window;
	int err;

	if (!answer)
		return -ENOMEM;
	pcilend_dma_area(&r->pub, &iova, &size);
	err = pcilend_aperture_locate(r->link, iova, size, &window, &offset);
	if (err)
		return err;
	msg.dma_window = cpu_to_le32(window);
	msg.dma_offset = cpu_to_le64(offset);
	if (r->reaches)
		msg.interrupt_alias = cpu_to_le64(PCILEND_INTERRUPT_ALIAS);
	/* A domain, or a mediated device: a reservation may be for it. */
	if (!remote_parse_owner(owner, &uuid))
		export_uuid(msg.owner, &uuid);
	err = pcilend_channel_request(r->link, PCILEND_MSG_BORROW, &msg, answer);
	if (err)
		return err;

	granted = (const struct pcilend_msg_borrowed *)answer->payload;
	mutex_lock(&r->lock);
	r->lease = le32_to_cpu(granted->lease);
	r->granted = answer->sequence;
	err = le32_to_cpu(granted->id) == r->pub.id ? borrow_place_bars(r, granted) : -EPROTO;
	borrow_place_host(r, granted);
	/* It may have become direct since. */
	if (!err && r->dma_base && r->frontend->guests)
		err = -EAGAIN;
	/* From here on requests of drivers are let through. */
	r->state = REMOTE_HELD;
	mutex_unlock(&r->lock);
	return err;
}

/* Those of the lender's bus, as far as its registers tell: those of an SR-IOV function don't. */
static void borrow_note_bus_addresses(struct remote *r, const u8 *raw)
{
	int i;

	for (i = 0; i < PCI_STD_NUM_BARS; i++) {
		const u8 *at = raw + PCI_BASE_ADDRESS_0 + 4 * i;
		u64 bus = get_unaligned_le32(at) & PCI_BASE_ADDRESS_MEM_MASK;

		if (le32_to_cpu(r->pub.info.bar[i].flags) & PCILEND_BAR_MEM64 &&
		    i + 1 < PCI_STD_NUM_BARS)
			bus = (u32)bus | (u64)get_unaligned_le32(at + 4) << 32;
		if (r->bar[i].size && IS_ALIGNED(bus, r->bar[i].size) &&
		    bus <= U64_MAX - r->bar[i].size)
			r->bar[i].bus = bus;
	}
}

/* The function's configuration space as the lender has it, made into a virtual one. */
static int borrow_fetch_config(struct remote *r)
{
	u8 *raw __free(kfree) = kzalloc(PCI_CFG_SPACE_EXP_SIZE, GFP_KERNEL);
	struct pcilend_vconfig_bar bar[7] = { };
	struct pcilend_vconfig *config;
	u32 length = PCI_CFG_SPACE_EXP_SIZE;
	int i, err;

	if (!raw)
		return -ENOMEM;
	err = pcilend_config_read(&r->pub, 0, raw, PCI_CFG_SPACE_SIZE);
	if (err)
		return err;
	err = pcilend_config_read(&r->pub, PCI_CFG_SPACE_SIZE, raw + PCI_CFG_SPACE_SIZE,
				  PCI_CFG_SPACE_EXP_SIZE - PCI_CFG_SPACE_SIZE);
	if (err == -ERANGE)
		length = PCI_CFG_SPACE_SIZE;
	else if (err)
		return err;

	/* What was granted, and I/O ports, which are not. */
	for (i = 0; i < PCI_STD_NUM_BARS; i++) {
		bar[i].flags = le32_to_cpu(r->pub.info.bar[i].flags);
		bar[i].size = bar[i].flags & PCILEND_BAR_IO ?
			      le64_to_cpu(r->pub.info.bar[i].size) : r->bar[i].size;
	}
	bar[PCI_ROM_RESOURCE].size = r->rom.size;
	borrow_note_bus_addresses(r, raw);
	config = kvmalloc(sizeof(*config), GFP_KERNEL);
	if (!config)
		return -ENOMEM;
	err = pcilend_vconfig_init(config, raw, length, bar);
	if (err) {
		kvfree(config);
		return -EPROTO;
	}
	mutex_lock(&r->lock);
	r->config = config;
	mutex_unlock(&r->lock);
	return 0;
}

static const struct pcilend_virtual_ops virtual_ops = {
	.claim = pcilend_iommu_claim,
	.changed = remote_virtual_changed,
	.reset = pcilend_reset,
	.bus_master = pcilend_bus_master,
	.config_read = pcilend_config_read,
	.config_write = pcilend_config_write,
	.poll_bus_master = remote_poll_bus_master,
	.poll_config_write = remote_poll_config_write,
	.intx_ask = remote_intx_ask,
	.intx_listen = remote_intx_listen,
	.msi_ask = remote_msi_ask,
	.msi_listen = remote_msi_listen,
};

static int borrow_make_virtual(struct remote *r, struct pcilend_frontend *frontend)
{
	struct pcilend_virtual_bar bar[PCILEND_BARS];
	struct pcilend_virtual *virtual;

	memcpy(bar, r->bar, sizeof(r->bar));
	bar[PCI_ROM_RESOURCE] = r->rom;
	virtual = pcilend_virtual_create(r->link, &r->pub, &virtual_ops, bar, r->interrupts,
					 r->config, frontend);
	/* Not to be taken for an answer of the lender. */
	if (IS_ERR(virtual))
		return PTR_ERR(virtual) == -ENOMEM ? -ENOMEM : -ECANCELED;
	mutex_lock(&r->lock);
	r->virtual = virtual;
	mutex_unlock(&r->lock);
	return 0;
}

/*
 * Lets go of the lease, held or lost. Drivers of the virtual function may still ask the lender for
 * things while they are unbound, so it goes before the lease does.
 * Return: 0 once the lender has stopped the function.
 */
static int borrow_give_back(struct remote *r)
{
	struct pcilend_frontend *frontend;
	struct pcilend_virtual *virtual;
	struct pcilend_vconfig *config;
	bool lost, fenced;
	u32 lease;
	int err = 0;

	lockdep_assert_held(&r->operation);
	remote_reach_end(r);
	mutex_lock(&r->lock);
	WRITE_ONCE(r->ending, true);
	virtual = r->virtual;
	r->virtual = NULL;
	mutex_unlock(&r->lock);
	if (virtual)
		pcilend_virtual_destroy(virtual);

	mutex_lock(&r->lock);
	lost = r->state == REMOTE_LOST;
	fenced = lost && r->fenced;
	r->state = REMOTE_RETURNING;
	lease = r->lease;
	mutex_unlock(&r->lock);
	err = borrow_return_lease(r, lease, fenced ? 1 : RETURN_TRIES);
	if (err)
		borrow_confirm_later(r, lease);
	if (fenced)
		err = 0;
	if (!lost)
		trace_pcilend_lease_end(r->pub.id, lease, pcilend_id_node(r->pub.id),
					pcilend_node, "returned");

	mutex_lock(&r->lock);
	if (!err)
		borrow_forget_lease(r);
	if (r->state == REMOTE_IDLE)
		err = 0;
	config = r->config;
	r->config = NULL;
	frontend = r->frontend;
	r->frontend = NULL;
	r->owner[0] = '\0';
	WRITE_ONCE(r->ending, false);
	mutex_unlock(&r->lock);
	kvfree(config);
	module_put(frontend->owner);
	module_put(THIS_MODULE);
	return err;
}

/* So that who lists functions after a change sees what the lender said about it before. */
static void borrow_take_in_notices(struct remote *r)
{
	struct pcilend_link *link;

	for (link = pcilend_link_next(NULL); link; link = pcilend_link_next(link)) {
		if (pcilend_link_reaches(link, pcilend_id_node(r->pub.id)))
			pcilend_channel_flush_notices(link);
	}
	remote_event(r, PCILEND_EVENT_FUNCTION);
}

void remote_give_back_work(struct work_struct *work)
{
	struct remote *r = container_of(work, struct remote, give_back_work);
	u32 borrow = READ_ONCE(r->unwanted);
	int err;

	if (borrow) {
		err = remote_return(r, borrow);
		mutex_lock(&r->lock);
		if (r->unwanted == borrow) {
			r->given_back = err;
			WRITE_ONCE(r->unwanted, 0);
		}
		mutex_unlock(&r->lock);
		wake_up_all(&borrow_given_back);
	}
	put_device(&r->pub.dev);
}

/* Has the lease returned by a work item. */
static void borrow_queue_give_back(struct remote *r)
{
	lockdep_assert_held(&r->lock);
	WRITE_ONCE(r->unwanted, r->borrows);
	get_device(&r->pub.dev);
	if (!queue_work(pcilend_frontend_wq, &r->give_back_work))
		put_device(&r->pub.dev);
}

/*
 * Waits for that, with limits. Return: as pcilend_return(); -EBUSY, -EINTR: it is returned when its
 * user, or driver, lets go.
 */
static int borrow_await_given_back(struct remote *r, u32 borrow)
{
	unsigned long end = jiffies + msecs_to_jiffies(GIVE_BACK_MS);
	long left;

	do {
		left = wait_event_killable_timeout(borrow_given_back,
						   READ_ONCE(r->unwanted) != borrow,
						   msecs_to_jiffies(LET_GO_MS));
	} while (!left && !borrow_awaits_user(r) && time_before(jiffies, end));
	if (left <= 0)
		return left ? -EINTR : -EBUSY;
	guard(mutex)(&r->lock);
	return r->given_back;
}

int pcilend_borrow(struct pcilend_remote *remote, struct pcilend_frontend *frontend,
		   const char *owner, const char *adapter, const char **why)
{
	struct remote *r = to_remote(remote);
	u32 borrow;
	int err;

	if (strlen(owner) >= PCILEND_OWNER_BYTES)
		return borrow_refuse(why, -EINVAL, "the owner's name is longer than 63 bytes");
	err = remote_lock_operation(r, why);
	if (err)
		return err;
	if (!try_module_get(THIS_MODULE)) {
		err = borrow_refuse(why, -ENODEV, "pcilend is being unloaded");
		goto err_unlock;
	}
	if (!try_module_get(frontend->owner)) {
		err = borrow_refuse(why, -ENODEV, "the frontend is being unloaded");
		goto err_module;
	}
	err = borrow_begin(r, frontend, owner, adapter, why);
	if (err)
		goto err_frontend;

	err = borrow_ask_for_lease(r, owner);
	mutex_lock(&r->lock);
	if (r->state == REMOTE_BORROWING) {	/* there is no lease */
		r->state = REMOTE_IDLE;
		atomic_dec(&r->link->leases);
		r->frontend = NULL;
		r->owner[0] = '\0';
		mutex_unlock(&r->lock);
		borrow_refuse(why, err, borrow_why_refused(err));
		remote_retire_if_idle(r);
		goto err_frontend;
	}
	mutex_unlock(&r->lock);

	pcilend_count(PCILEND_COUNTER_A_BORROWED);
	trace_pcilend_lease_begin(remote->id, r->lease, pcilend_id_node(remote->id),
				  pcilend_node, "borrowed");
	/* Whoever removes the adapter has found no lease to end. */
	if (!err && READ_ONCE(r->link->going))
		err = -ENODEV;
	if (!err)
		err = borrow_fetch_config(r);
	if (!err && frontend->prepare)
		err = frontend->prepare(remote);
	if (!err)
		err = borrow_make_virtual(r, frontend);
	if (!err && (!remote_held_lease(r) || r->lost_early == r->lease))
		err = -ESTALE;
	if (err) {
		borrow_refuse(why, err, borrow_why_refused(err));
		/* A user of VFIO may have the virtual function already. */
		mutex_lock(&r->lock);
		WRITE_ONCE(r->ending, true);
		borrow = r->borrows;
		borrow_queue_give_back(r);
		mutex_unlock(&r->lock);
		mutex_unlock(&r->operation);
		borrow_await_given_back(r, borrow);
		return err;
	}
	mutex_unlock(&r->operation);
	borrow_take_in_notices(r);
	if (borrow_is_recalled(r))
		borrow_ask_to_let_go(r);
	return 0;

err_frontend:
	module_put(frontend->owner);
err_module:
	module_put(THIS_MODULE);
err_unlock:
	mutex_unlock(&r->operation);
	return err;
}
EXPORT_SYMBOL_GPL(pcilend_borrow);

/* @owner: NULL: whoever has it; @borrow: of that lease; 0: whichever it is. */
static int borrow_return(struct remote *r, const char *owner, u32 borrow)
{
	enum remote_state state;
	bool foreign;
	int err = 0;

	mutex_lock(&r->operation);
	mutex_lock(&r->lock);
	state = r->state;
	foreign = (owner && r->frontend && strcmp(owner, r->owner)) ||
		  (borrow && r->borrows != borrow);
	mutex_unlock(&r->lock);

	if (state == REMOTE_IDLE || foreign) {
		mutex_unlock(&r->operation);
		return foreign ? -EPERM : 0;
	}
	if (state == REMOTE_RETURNING) {
		err = borrow_return_lease(r, r->lease, RETURN_TRIES);
		if (!err)
			remote_settled(r);
	} else {
		err = borrow_give_back(r);
	}
	mutex_unlock(&r->operation);
	borrow_take_in_notices(r);
	remote_retire_if_idle(r);
	return err;
}

int pcilend_return(struct pcilend_remote *remote, const char *owner)
{
	return borrow_return(to_remote(remote), owner, 0);
}
EXPORT_SYMBOL_GPL(pcilend_return);

static int borrow_refuse_return(struct netlink_ext_ack *extack, int error)
{
	switch (error) {
	case 0:
		return 0;
	case -EPERM:
		return pcilend_refuse(extack, error, "another owner has borrowed it: see 'pcilend list', or return it without naming an owner");
	case -EBUSY:
	case -EINTR:
		return pcilend_refuse(extack, error, "its user or driver has not let go of it yet, and it is returned when that does: end the guest, or unbind the driver");
	default:
		return pcilend_refuse(extack, error, "it is given up here, but its lender has not confirmed that it stopped: see 'pcilend link'; it is returned when the lender answers");
	}
}

int pcilend_remote_return(struct pcilend_remote *remote, const char *owner,
			  struct netlink_ext_ack *extack)
{
	struct remote *r = to_remote(remote);
	u32 borrow;

	if (pcilend_remote_in_use(remote))
		return pcilend_refuse(extack, -EBUSY, "a VMM, or another user of VFIO, has it: end that, or detach the device there, first");
	/* If one comes right now, a work item waits for him. */
	scoped_guard(mutex, &r->lock) {
		if (owner && r->frontend && strcmp(owner, r->owner))
			return borrow_refuse_return(extack, -EPERM);
		if (r->state == REMOTE_IDLE)
			return 0;
		borrow = r->borrows;
		borrow_queue_give_back(r);
	}
	return borrow_refuse_return(extack, borrow_await_given_back(r, borrow));
}

/* As pcilend_return() of the lease of that borrow (remote.borrows): 0 if there is another now. */
int remote_return(struct remote *r, u32 borrow)
{
	int err = borrow_return(r, NULL, borrow);

	return err == -EPERM ? 0 : err;
}
