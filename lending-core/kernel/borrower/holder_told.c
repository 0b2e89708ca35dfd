// SPDX-License-Identifier: GPL-2.0-only
/* What the holder of a lease is told without having asked: the end of the lease among it. */

#include <linux/module.h>

#include "borrower/borrower.h"
#include "base/trace.h"

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

/* Its user is asked to let go of it, from a work item. No-op unless the lease is recalled. */
void remote_ask_to_let_go(struct remote *r)
{
	bool recalled;

	mutex_lock(&r->lock);
	recalled = r->state == REMOTE_HELD && r->recalled == r->lease;
	mutex_unlock(&r->lock);
	if (!recalled)
		return;
	remote_event(r, PCILEND_EVENT_RECALL);
	get_device(&r->pub.dev);
	if (!queue_work(pcilend_wq, &r->recall_work))
		put_device(&r->pub.dev);
}

/* The lender wants the function back in @grace_ms. */
void remote_recalled(struct remote *r, u32 lease, u32 grace_ms)
{
	mutex_lock(&r->lock);
	r->recalled = lease;
	r->recall_at = pcilend_now() + grace_ms;
	mutex_unlock(&r->lock);
	/* If the lease is not known here yet, pcilend_borrow() asks. */
	remote_ask_to_let_go(r);
}
