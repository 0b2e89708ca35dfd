// SPDX-License-Identifier: GPL-2.0-only
/*
 * The lender's table of functions, and the leases on them. The state machine is in the portable
 * core (lease.h); here its todo list is carried out.
 */

#include <linux/module.h>
#include <linux/slab.h>

#include "lender/lender.h"
#include "base/trace.h"

static LIST_HEAD(functions);
static DEFINE_MUTEX(functions_lock);
static DEFINE_MUTEX(numbers_lock);
static struct pcilend_lease_numbers numbers;	/* numbers_lock */

static void lender_function_release(struct kref *ref)
{
	struct pcilend_function *fn = container_of(ref, struct pcilend_function, ref);

	pcilend_group_put(fn->group);
	pci_dev_put(fn->pdev);
	kfree(fn->former_override);
	kfree(fn);
}

void pcilend_function_put(struct pcilend_function *fn)
{
	if (fn)
		kref_put(&fn->ref, lender_function_release);
}

/* The function with that id, with a reference, or NULL. */
struct pcilend_function *pcilend_function_find(u32 id)
{
	struct pcilend_function *fn, *found = NULL;

	mutex_lock(&functions_lock);
	list_for_each_entry(fn, &functions, node) {
		if (fn->id == id) {
			kref_get(&fn->ref);
			found = fn;
			break;
		}
	}
	mutex_unlock(&functions_lock);
	return found;
}

/* Is it the UUID of a function of this host? */
bool pcilend_lender_has_uuid(const u8 uuid[16])
{
	struct pcilend_function *fn;
	bool found = false;

	mutex_lock(&functions_lock);
	list_for_each_entry(fn, &functions, node)
		found |= !memcmp(fn->info.uuid, uuid, sizeof(fn->info.uuid));
	mutex_unlock(&functions_lock);
	return found;
}

struct pcilend_function *pcilend_function_of(struct pci_dev *pdev)
{
	struct pcilend_function *fn, *found = NULL;

	mutex_lock(&functions_lock);
	list_for_each_entry(fn, &functions, node) {
		if (fn->pdev == pdev) {
			kref_get(&fn->ref);
			found = fn;
			break;
		}
	}
	mutex_unlock(&functions_lock);
	return found;
}

/* The function with the lowest id above @previous's; drops the reference on that one. */
struct pcilend_function *pcilend_function_next(struct pcilend_function *previous)
{
	struct pcilend_function *fn, *found = NULL;

	mutex_lock(&functions_lock);
	list_for_each_entry(fn, &functions, node) {
		if (!previous || fn->id > previous->id) {
			kref_get(&fn->ref);
			found = fn;
			break;
		}
	}
	mutex_unlock(&functions_lock);
	pcilend_function_put(previous);
	return found;
}

/* What everybody who sees the function is told. */
static void lender_fill_info(struct pcilend_function *fn, struct pcilend_msg_function *info)
{
	lockdep_assert_held(&fn->lock);
	*info = fn->info;
	info->state = fn->lease.state;
	info->borrower = cpu_to_le32(fn->lease.node);
	info->set = cpu_to_le32(pcilend_group_set(fn));
	if (pcilend_share_is_on(fn))
		info->flags |= PCILEND_FUNCTION_SHARED;
	if (pcilend_reservation_left(&fn->reservation, pcilend_now()))
		info->reserved_node = cpu_to_le32(fn->reservation.node);
}

/* Until silence ends the lease; a process of this host is not silent. */
static u64 lender_lease_left(struct pcilend_function *fn)
{
	struct pcilend_heartbeat beat;

	lockdep_assert_held(&fn->lock);
	if (!fn->link)
		return U64_MAX;
	pcilend_link_beat(fn->link, &beat);
	return pcilend_lease_expires_in(&fn->lease, &beat, pcilend_now());
}

void pcilend_function_report(struct pcilend_function *fn, struct pcilend_report *report)
{
	struct device *dev = &fn->pdev->dev;

	lockdep_assert_held(&fn->lock);
	memset(report, 0, sizeof(*report));
	lender_fill_info(fn, &report->info);
	report->access = fn->access;
	report->reserved_ms = pcilend_reservation_left(&fn->reservation, pcilend_now());
	memcpy(report->reserved_uuid, fn->reservation.uuid, sizeof(report->reserved_uuid));
	pcilend_group_report(fn, report);
	report->lease_ms = fn->lease.lease_ms;
	report->lease_left_ms = lender_lease_left(fn);
	report->recall_ms = pcilend_lease_recall_in(&fn->lease, pcilend_now());
	report->lease = fn->lease.number;
	report->local = true;
	report->reason = fn->lease.quarantine;
	report->sanitize = fn->lease.sanitize;
	report->dirty = fn->lease.dirty;
	report->resets = fn->lease.resets + fn->resets;
	if (READ_ONCE(dev->driver))
		strscpy(report->driver, dev_driver_string(dev), sizeof(report->driver));
	if (fn->link) {
		strscpy(report->adapter, pci_name(fn->link->pdev), sizeof(report->adapter));
		report->relayed = !fn->alias && !fn->interrupt_address;
	}
	pcilend_local_report(fn, report);
	pcilend_share_report(fn, report);
	pcilend_near_report(fn, report);
}

/*
 * Pages that page tables for all leases of the node may take; give or take what is being mapped or
 * unmapped for other functions than the caller's.
 */
u64 pcilend_function_tables(u32 node)
{
	struct pcilend_function *fn;
	u64 tables = 0;

	mutex_lock(&functions_lock);
	list_for_each_entry(fn, &functions, node) {
		if (READ_ONCE(fn->lease.node) == node)
			tables += READ_ONCE(fn->tables);
	}
	mutex_unlock(&functions_lock);
	return tables;
}

/* Does the function exist for that node? */
bool pcilend_function_visible(struct pcilend_function *fn, u32 node)
{
	lockdep_assert_held(&fn->lock);
	return pcilend_lender_connected(node) && pcilend_access_allows(&fn->access, node);
}

/* What the peer of @link is told about the function, which it sees. */
int pcilend_function_notify(struct pcilend_function *fn, struct pcilend_link *link)
{
	struct pcilend_msg_function msg;

	lender_fill_info(fn, &msg);
	if (fn->lease.number && pcilend_link_is_peer(link, fn->lease.node, fn->lease.boot))
		msg.lease = cpu_to_le32(fn->lease.number);
	return pcilend_channel_notify(link, PCILEND_MSG_FUNCTION, &msg);
}

int pcilend_function_withdraw(struct pcilend_function *fn, struct pcilend_link *link)
{
	const struct pcilend_msg_id msg = { .id = cpu_to_le32(fn->id) };

	return pcilend_channel_notify(link, PCILEND_MSG_WITHDRAW, &msg);
}

/* Tells listeners on this host, and all nodes that see the function, by @tell. */
static void lender_spread(struct pcilend_function *fn,
			  int (*tell)(struct pcilend_function *fn, struct pcilend_link *link))
{
	struct pcilend_report *report __free(kfree) = kmalloc(sizeof(*report), GFP_KERNEL);
	struct pcilend_link *link;
	u16 node;

	lockdep_assert_held(&fn->lock);
	if (report) {
		pcilend_function_report(fn, report);
		pcilend_event_function(PCILEND_EVENT_FUNCTION, report);
	}
	for (link = pcilend_link_next(NULL); link; link = pcilend_link_next(link)) {
		if (pcilend_link_is_up(link, &node) && pcilend_function_visible(fn, node))
			tell(fn, link);
	}
}

/* Tells what has become of the function. */
void pcilend_function_announce(struct pcilend_function *fn)
{
	lockdep_assert_held(&fn->lock);
	fn->todo &= ~PCILEND_DO_ANNOUNCE;
	lender_spread(fn, pcilend_function_notify);
}

/* The lease that begins or ends when @event leads out of @from. */
static void lender_count_lease(enum pcilend_function_state from,
			       enum pcilend_lease_event_type event)
{
	if (event == PCILEND_LEASE_BORROW)
		pcilend_count(PCILEND_COUNTER_A_GRANTED);
	if (from != PCILEND_FUNCTION_BORROWED)
		return;
	if (event == PCILEND_LEASE_RETURN)
		pcilend_count(PCILEND_COUNTER_A_RETURNED);
	else if (event == PCILEND_LEASE_EXPIRE || event == PCILEND_LEASE_PEER_DEAD)
		pcilend_count(PCILEND_COUNTER_A_EXPIRED);
	else
		pcilend_count(PCILEND_COUNTER_A_REVOKED);
}

/*
 * pcilend_function_apply - one step of the function's state machine
 * @why: set on refusal; may be NULL
 *
 * What it asks for is left in @fn->todo for pcilend_function_settle().
 */
int pcilend_function_apply(struct pcilend_function *fn, struct pcilend_lease_event *event,
			   const char **why)
{
	enum pcilend_function_state from = fn->lease.state;
	struct pcilend_lease_result result;
	int err;

	lockdep_assert_held(&fn->lock);
	mutex_lock(&numbers_lock);
	err = pcilend_lease_apply(&fn->lease, event, &numbers, &result);
	mutex_unlock(&numbers_lock);
	if (err) {
		if (why)
			*why = result.why;
		return err;
	}
	if (result.todo) {
		fn->todo |= result.todo;
		fn->result = result;
	}
	pcilend_group_note(fn);
	if (from != fn->lease.state) {
		lender_count_lease(from, event->type);
		trace_pcilend_function_state(fn->id, pcilend_lease_event_name(event->type), from,
					     fn->lease.state);
		pcilend_changed();
	}
	return 0;
}

/* One step of a shared function's machine: its clients' numbers are of the same source. */
int pcilend_function_share_step(struct pcilend_share *share,
				const struct pcilend_share_event *event,
				struct pcilend_share_result *result)
{
	guard(mutex)(&numbers_lock);
	return pcilend_share_apply(share, event, &numbers, result);
}

/*
 * pcilend_function_grant - a lease for whoever may have one, unless something is in the way
 * @event: BORROW
 * @why: set on refusal, if there is more to say than the error; may be NULL
 */
int pcilend_function_grant(struct pcilend_function *fn, struct pcilend_lease_event *event,
			   const struct pcilend_set_holder *holder, const char **why)
{
	static const char set_is_lent[] =
		"others of its IOMMU group are not available, or lent: see 'pcilend show'";
	const char *text = NULL;
	int err;

	lockdep_assert_held(&fn->lock);
	err = pcilend_lease_allows(&fn->lease, event, &text);
	if (!err && !pcilend_reservation_admits(&fn->reservation, event->node, holder->owner,
						event->now)) {
		text = "it is reserved for somebody else: see 'pcilend show'";
		err = -EACCES;
	}
	if (!err && pcilend_sleeps()) {
		text = "this host is about to sleep or to go down: try again afterwards";
		err = -EAGAIN;
	}
	if (!err) {
		err = pcilend_group_admit(fn, holder);
		if (err)
			text = set_is_lent;
	}
	if (!err) {
		err = pcilend_function_apply(fn, event, &text);
		if (err)
			pcilend_group_note(fn);
	}
	if (!err)
		pcilend_reservation_used(&fn->reservation);
	else if (why)
		*why = text;
	return err;
}

static void lender_answer_returns(struct pcilend_function *fn)
{
	int i;

	lockdep_assert_held(&fn->lock);
	for (i = 0; i < PCILEND_RETURNS; i++) {
		struct pcilend_return *waiting = &fn->returns[i];

		if (!waiting->link)
			continue;
		pcilend_channel_answer(waiting->link, waiting->session, PCILEND_MSG_RETURN,
				       waiting->request, PCILEND_STATUS_OK, NULL);
		pcilend_link_put(waiting->link);
		waiting->link = NULL;
	}
}

static void lender_tell_lost(struct pcilend_function *fn, const struct pcilend_lease_result *result)
{
	const struct pcilend_msg_lease msg = {
		.id = cpu_to_le32(fn->id),
		.lease = cpu_to_le32(result->lease),
		.reason = cpu_to_le32(result->lost),
	};
	struct pcilend_link *link = pcilend_link_to(result->node, result->boot);

	if (link)
		pcilend_channel_notify(link, PCILEND_MSG_LOST, &msg);
	pcilend_link_put(link);
}

/* Asks the borrower to return it, if the peer of @link is the borrower and it is recalled. */
void pcilend_function_tell_recall(struct pcilend_function *fn, struct pcilend_link *link)
{
	u64 left = pcilend_lease_recall_in(&fn->lease, pcilend_now());
	const struct pcilend_msg_recall msg = {
		.id = cpu_to_le32(fn->id),
		.lease = cpu_to_le32(fn->lease.number),
		.grace_ms = cpu_to_le32(min_t(u64, left, PCILEND_GRACE_MS_MAX)),
	};

	lockdep_assert_held(&fn->lock);
	if (left != U64_MAX && pcilend_link_is_peer(link, fn->lease.node, fn->lease.boot))
		pcilend_channel_notify(link, PCILEND_MSG_RECALL, &msg);
}

/* For udev, which has it erased (tools/udev). */
static void lender_ask_to_sanitize(struct pcilend_function *fn)
{
	char *event[2] = { };

	event[0] = "PCILEND_SANITIZE=1";
	if (fn->lease.state == PCILEND_FUNCTION_QUARANTINED && fn->lease.dirty)
		kobject_uevent_env(&fn->pdev->dev.kobj, KOBJ_CHANGE, event);
}

/*
 * pcilend_function_settle - carry out what the state machine asks for
 *
 * The locks of pcilend_device_lock() are held. PCILEND_DO_RELEASE is left in @fn->todo: it
 * needs neither of them, and has to wait while others of its set are lent.
 */
void pcilend_function_settle(struct pcilend_function *fn)
{
	device_lock_assert(&fn->pdev->dev);
	lockdep_assert_held(&fn->lock);

	while (fn->todo & ~PCILEND_DO_RELEASE) {
		struct pcilend_lease_event event = { };
		struct pcilend_lease_result result = fn->result;
		/* Of the lease that this reset is for. */
		bool ended = fn->lease.number;
		u32 todo = fn->todo;

		fn->todo &= PCILEND_DO_RELEASE;
		if (todo & PCILEND_DO_RECALL && fn->link)
			pcilend_function_tell_recall(fn, fn->link);
		if (todo & PCILEND_DO_RECALL) {
			pcilend_local_tell_recall(fn);
			pcilend_share_recall(fn, pcilend_lease_recall_in(&fn->lease,
									 pcilend_now()));
		}
		if (todo & PCILEND_DO_ANNOUNCE)
			pcilend_function_announce(fn);
		if (todo & PCILEND_DO_FENCE) {
			if (cancel_delayed_work(&fn->expiry))
				pcilend_function_put(fn);
			pcilend_dma_cancel_recover(fn);
			pcilend_device_fence(fn, &result);
			trace_pcilend_lease_end(fn->id, result.lease, pcilend_node, result.node,
						result.lost ? "lost" : "returned");
			event.type = PCILEND_LEASE_FENCED;
		}
		if (todo & PCILEND_DO_RESET) {
			event.reason = pcilend_device_reset(fn);
			event.type = event.reason ? PCILEND_LEASE_RESET_FAILED :
						    PCILEND_LEASE_RESET_OK;
			if (event.reason) {
				pci_err(fn->pdev, "quarantined: %s\n", event.reason);
				pcilend_count(PCILEND_COUNTER_A_RESET_FAILURES);
			}
		}
		if (todo & PCILEND_DO_LOST)
			lender_tell_lost(fn, &result);
		if (todo & PCILEND_DO_ANSWER) {
			lender_answer_returns(fn);
			module_put(THIS_MODULE);
		}
		if (todo & PCILEND_DO_WITHDRAW)
			lender_spread(fn, pcilend_function_withdraw);
		if (event.type)
			WARN_ON(pcilend_function_apply(fn, &event, NULL));
		if (ended && event.type == PCILEND_LEASE_RESET_OK)
			lender_ask_to_sanitize(fn);
	}
}

void pcilend_function_settle_now(struct pcilend_function *fn)
{
	pcilend_device_lock(fn);
	pcilend_function_settle(fn);
	pcilend_device_unlock(fn);
}

bool pcilend_function_take_release(struct pcilend_function *fn)
{
	bool release;

	mutex_lock(&fn->lock);
	release = fn->todo & PCILEND_DO_RELEASE && !pcilend_group_keeps(fn);
	if (release)
		fn->todo &= ~PCILEND_DO_RELEASE;
	mutex_unlock(&fn->lock);
	return release;
}

/* Settles in a work item, which holds a reference. */
void pcilend_function_queue_settle(struct pcilend_function *fn)
{
	kref_get(&fn->ref);
	if (!queue_work(pcilend_wq, &fn->settle))
		pcilend_function_put(fn);
}

/* Gives it to its own driver in a work item, which holds a reference. */
void pcilend_function_queue_hand_back(struct pcilend_function *fn)
{
	kref_get(&fn->ref);
	if (!queue_work(pcilend_wq, &fn->hand_back))
		pcilend_function_put(fn);
}

static void lender_settle_work(struct work_struct *work)
{
	struct pcilend_function *fn = container_of(work, struct pcilend_function, settle);
	bool release;

	pcilend_function_settle_now(fn);
	mutex_lock(&fn->lock);
	release = fn->todo & PCILEND_DO_RELEASE;
	mutex_unlock(&fn->lock);
	if (release)
		pcilend_function_queue_hand_back(fn);
	pcilend_function_put(fn);
}

/* Looks in @ms, and no later, whether the lease is over; the work item holds a reference. */
void pcilend_function_queue_expiry(struct pcilend_function *fn, u64 ms)
{
	kref_get(&fn->ref);
	if (mod_delayed_work(pcilend_wq, &fn->expiry, msecs_to_jiffies(ms) + 1))
		pcilend_function_put(fn);
}

/*
 * The lease is kept alive by the peer's heartbeat, until its time to return the function is over;
 * looks again when either could be.
 */
static void lender_expiry_work(struct work_struct *work)
{
	struct pcilend_function *fn = container_of(work, struct pcilend_function, expiry.work);
	struct pcilend_lease_event event = { .type = PCILEND_LEASE_EXPIRE };
	u64 left, recall;

	mutex_lock(&fn->lock);
	if (!pcilend_function_is_lent(fn))
		goto out;
	left = lender_lease_left(fn);
	recall = pcilend_lease_recall_in(&fn->lease, pcilend_now());
	if (!left) {
		pci_warn(fn->pdev, "node %u is silent: its lease %u is over\n", fn->lease.node,
			 fn->lease.number);
	} else if (!recall) {
		pci_info(fn->pdev, "node %u has not returned it in time: its lease %u is revoked\n",
			 fn->lease.node, fn->lease.number);
		event.type = PCILEND_LEASE_REVOKE;
	}
	if (!left || !recall) {
		pcilend_function_apply(fn, &event, NULL);
		pcilend_function_queue_settle(fn);
	} else if (min(left, recall) != U64_MAX) {
		pcilend_function_queue_expiry(fn, min(left, recall));
	}
out:
	mutex_unlock(&fn->lock);
	pcilend_function_put(fn);
}

void pcilend_function_table_remove(struct pcilend_function *fn)
{
	pcilend_reserve_exit(fn);
	pcilend_group_leave(fn);
	mutex_lock(&functions_lock);
	list_del_init(&fn->node);
	mutex_unlock(&functions_lock);
	pcilend_changed();
	pcilend_function_put(fn);
}

/* The function was unplugged; if our driver had it, driver_remove() has ended its lease. */
static void lender_gone_work(struct work_struct *work)
{
	struct pcilend_function *fn = container_of(work, struct pcilend_function, gone);
	struct pcilend_lease_event event = { .type = PCILEND_LEASE_UNPLUGGED };

	mutex_lock(&fn->admin);
	pcilend_device_lock(fn);
	pcilend_function_apply(fn, &event, NULL);
	pcilend_function_settle(fn);
	fn->todo = 0;
	pcilend_device_unlock(fn);
	pcilend_device_forget(fn);
	if (!list_empty(&fn->node))
		pcilend_function_table_remove(fn);
	mutex_unlock(&fn->admin);
	pcilend_function_put(fn);
}

/* The work item holds a reference. */
void pcilend_function_queue_gone(struct pcilend_function *fn)
{
	kref_get(&fn->ref);
	if (!queue_work(pcilend_wq, &fn->gone))
		pcilend_function_put(fn);
}

static int lender_pci_notify(struct notifier_block *block, unsigned long action, void *data)
{
	struct pcilend_function *fn;

	if (action != BUS_NOTIFY_REMOVED_DEVICE)
		return NOTIFY_DONE;
	fn = pcilend_function_of(to_pci_dev(data));
	if (!fn)
		return NOTIFY_DONE;
	pcilend_function_queue_gone(fn);
	pcilend_function_put(fn);
	return NOTIFY_DONE;
}

static struct notifier_block pci_notifier = { .notifier_call = lender_pci_notify };

/* A function for the table; in state `local`. */
struct pcilend_function *pcilend_function_alloc(struct pci_dev *pdev)
{
	struct pcilend_function *fn = kzalloc(sizeof(*fn), GFP_KERNEL);

	if (!fn)
		return NULL;
	fn->group = pcilend_group_get(pdev);
	if (IS_ERR(fn->group)) {
		kfree(fn);
		return NULL;
	}
	kref_init(&fn->ref);
	mutex_init(&fn->admin);
	mutex_init(&fn->lock);
	INIT_LIST_HEAD(&fn->node);
	INIT_LIST_HEAD(&fn->lent);
	INIT_DELAYED_WORK(&fn->recover, pcilend_dma_recover_work);
	INIT_WORK(&fn->settle, lender_settle_work);
	INIT_WORK(&fn->hand_back, pcilend_lender_hand_back_work);
	INIT_WORK(&fn->gone, lender_gone_work);
	INIT_DELAYED_WORK(&fn->expiry, lender_expiry_work);
	INIT_DELAYED_WORK(&fn->share_due, pcilend_share_due_work);
	pcilend_reserve_init(fn);
	pcilend_intx_init(fn);
	pcilend_relay_init(fn);
	fn->pdev = pci_dev_get(pdev);
	pcilend_device_describe(pdev, &fn->info);
	return fn;
}

/* Where the id belongs in the table; NULL if another function has it. @id 0: lowest free one. */
static struct list_head *lender_find_place(u32 *id)
{
	u32 wanted = *id ?: pcilend_id(pcilend_node, 1);
	struct pcilend_function *other;

	lockdep_assert_held(&functions_lock);
	list_for_each_entry(other, &functions, node) {
		if (other->id > wanted)
			break;
		if (other->id == wanted && *id)
			return NULL;
		if (other->id == wanted)
			wanted++;
	}
	if (pcilend_id_node(wanted) != pcilend_node)
		return NULL;
	*id = wanted;
	return &other->node;
}

/*
 * pcilend_function_table_add - put the function into the table
 * @id: of this node and valid, or 0: the lowest free one
 *
 * Return: 0; -EEXIST if another function has that id, -ENOSPC if none is free.
 */
int pcilend_function_table_add(struct pcilend_function *fn, u32 id,
			       struct netlink_ext_ack *extack)
{
	bool any = !id;
	struct list_head *place;

	mutex_lock(&functions_lock);
	place = lender_find_place(&id);
	if (!place) {
		mutex_unlock(&functions_lock);
		if (any)
			return pcilend_refuse(extack, -ENOSPC, "this host has no function ids left: remove functions that are not lent");
		return pcilend_refuse(extack, -EEXIST, "another function has that id: see 'pcilend list'");
	}
	fn->id = id;
	fn->info.id = cpu_to_le32(fn->id);
	list_add_tail(&fn->node, place);
	mutex_unlock(&functions_lock);
	return 0;
}

/* @open: for pcilend_target_set() */
int pcilend_lender_init(const struct pcilend_lender_segments *segments)
{
	int err;

	pcilend_target_init(segments->open);
	pcilend_near_init(segments);
	err = pcilend_device_register();
	if (err)
		return err;
	err = bus_register_notifier(&pci_bus_type, &pci_notifier);
	if (err)
		pcilend_device_unregister();
	return err;
}

/* The links are gone and no lease is held: every function goes back to its own driver. */
void pcilend_lender_exit(void)
{
	bus_unregister_notifier(&pci_bus_type, &pci_notifier);
	pcilend_lender_take_back();
	pcilend_device_unregister();
	/* Unplugged ones are let go by their work items. */
	flush_workqueue(pcilend_wq);
}
