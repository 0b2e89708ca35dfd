// SPDX-License-Identifier: GPL-2.0-only
/*
 * Giving a function back, by its holder, an administrator or after the lease was lost; and what its
 * lender has not confirmed.
 */

#include <linux/module.h>
#include <linux/slab.h>

#include "borrower/borrower.h"
#include "base/trace.h"

#define RETURN_TRIES 4		/* of PCILEND_REQUEST_MS each */
#define GIVE_BACK_MS 120000	/* for a return, in which a driver may have much to write */

/* A lease that is over, whose lender has not heard that nobody here uses it. */
struct unconfirmed {
	struct list_head node;
	u32 id;
	u32 lease;
};

static LIST_HEAD(unconfirmed_list);
static DEFINE_MUTEX(unconfirmed_lock);

static DECLARE_WAIT_QUEUE_HEAD(return_given_back);	/* woken when give_back_work is done */

/* It is being given back, and its user has it still: VFIO waits for as long as he likes. */
bool remote_awaits_user(struct remote *r)
{
	return READ_ONCE(r->ending) && pcilend_remote_in_use(&r->pub);
}

/*
 * Returns a lease. The answer comes when the function has been reset, which may take longer than
 * other requests; asking again, up to @tries times, is harmless, over any link to the lender.
 * Return: 0 once the lender has stopped the function.
 */
static int return_ask_lender(struct remote *r, u32 lease, int tries)
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
static void return_confirm_later(struct remote *r, u32 lease)
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

static struct unconfirmed *return_take_unconfirmed(u32 node)
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

	while (!err && (unconfirmed = return_take_unconfirmed(node))) {
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

/* The lease is over: fields that describe it. No-op if a notice has told that before. */
static void return_forget_lease(struct remote *r)
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
		return_forget_lease(r);
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
	if (returning && !return_ask_lender(r, lease, RETURN_TRIES))
		remote_settled(r);
	mutex_unlock(&r->operation);
	put_device(&r->pub.dev);
}

/*
 * Lets go of the lease, held or lost. Drivers of the virtual function may still ask the lender for
 * things while they are unbound, so it goes before the lease does.
 * Return: 0 once the lender has stopped the function.
 */
static int return_give_back(struct remote *r)
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
	err = return_ask_lender(r, lease, fenced ? 1 : RETURN_TRIES);
	if (err)
		return_confirm_later(r, lease);
	if (fenced)
		err = 0;
	if (!lost)
		trace_pcilend_lease_end(r->pub.id, lease, pcilend_id_node(r->pub.id),
					pcilend_node, "returned");

	mutex_lock(&r->lock);
	if (!err)
		return_forget_lease(r);
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
void remote_take_in_notices(struct remote *r)
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
		wake_up_all(&return_given_back);
	}
	put_device(&r->pub.dev);
}

/* Has the lease returned by a work item. */
void remote_queue_give_back(struct remote *r)
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
int remote_await_given_back(struct remote *r, u32 borrow)
{
	unsigned long end = jiffies + msecs_to_jiffies(GIVE_BACK_MS);
	long left;

	do {
		left = wait_event_killable_timeout(return_given_back,
						   READ_ONCE(r->unwanted) != borrow,
						   msecs_to_jiffies(REMOTE_LET_GO_MS));
	} while (!left && !remote_awaits_user(r) && time_before(jiffies, end));
	if (left <= 0)
		return left ? -EINTR : -EBUSY;
	guard(mutex)(&r->lock);
	return r->given_back;
}

/* @owner: NULL: whoever has it; @borrow: of that lease; 0: whichever it is. */
static int return_lease_of(struct remote *r, const char *owner, u32 borrow)
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
		err = return_ask_lender(r, r->lease, RETURN_TRIES);
		if (!err)
			remote_settled(r);
	} else {
		err = return_give_back(r);
	}
	mutex_unlock(&r->operation);
	remote_take_in_notices(r);
	remote_retire_if_idle(r);
	return err;
}

int pcilend_return(struct pcilend_remote *remote, const char *owner)
{
	return return_lease_of(to_remote(remote), owner, 0);
}
EXPORT_SYMBOL_GPL(pcilend_return);

static int return_refuse(struct netlink_ext_ack *extack, int error)
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
			return return_refuse(extack, -EPERM);
		if (r->state == REMOTE_IDLE)
			return 0;
		borrow = r->borrows;
		remote_queue_give_back(r);
	}
	return return_refuse(extack, remote_await_given_back(r, borrow));
}

/* As pcilend_return() of the lease of that borrow (remote.borrows): 0 if there is another now. */
int remote_return(struct remote *r, u32 borrow)
{
	int err = return_lease_of(r, NULL, borrow);

	return err == -EPERM ? 0 : err;
}
