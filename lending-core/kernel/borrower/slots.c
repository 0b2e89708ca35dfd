// SPDX-License-Identifier: GPL-2.0-only
/* Ranges of the aperture, and the parts (slots) that leases have in them. */

#include <linux/slab.h>

#include "borrower/borrower.h"

/* A new range, with a reference. Return: ERR_PTR(-ENOSPC), ERR_PTR(-ENOMEM). */
struct remote_range *remote_range_get(struct pcilend_link *link, u64 size)
{
	struct remote_range *range = kzalloc(sizeof(*range), GFP_KERNEL_ACCOUNT);
	int err;

	if (!range)
		return ERR_PTR(-ENOMEM);
	err = pcilend_aperture_slot_get(link, size, &range->iova, &range->of_plan);
	if (err) {
		kfree(range);
		return ERR_PTR(err);
	}
	range->link = pcilend_link_get(link);
	kref_init(&range->ref);
	range->size = size;
	return range;
}

/* No range of the aperture any more. No-op if that was done. */
static void slots_leave_aperture(struct remote_range *range)
{
	if (!atomic_xchg(&range->left, 1))
		pcilend_aperture_slot_put(range->link, range->iova, range->size,
					  range->of_plan);
}

static void slots_range_release(struct kref *ref)
{
	struct remote_range *range = container_of(ref, struct remote_range, ref);

	slots_leave_aperture(range);
	pcilend_link_put(range->link);
	kfree(range);
}

void remote_range_put(struct remote_range *range)
{
	kref_put(&range->ref, slots_range_release);
}

/* @range: a reference is taken over, also on failure. */
int remote_add_slot(struct remote *r, struct remote_range *range)
{
	struct remote_slot *slot = kzalloc(sizeof(*slot), GFP_KERNEL_ACCOUNT);
	int err = slot ? 0 : -ENOMEM;

	mutex_lock(&r->lock);
	if (slot && range->link != r->link)
		err = -EXDEV;
	if (!err) {
		slot->range = range;
		list_add_tail(&slot->node, &r->slots);
	}
	mutex_unlock(&r->lock);
	if (err) {
		remote_range_put(range);
		kfree(slot);
	}
	return err;
}

/*
 * The function has no use for its part of the range any more. It keeps it until the lease is over
 * unless it is @stopped: the lender has confirmed that it can't write there. No-op without a part.
 */
void remote_free_slot(struct remote *r, struct remote_range *range, bool stopped)
{
	struct remote_slot *slot;

	lockdep_assert_held(&r->lock);
	list_for_each_entry(slot, &r->slots, node) {
		if (slot->range != range || slot->free)
			continue;
		if (stopped || r->state == REMOTE_IDLE ||
		    (r->state == REMOTE_LOST && r->fenced)) {
			list_del(&slot->node);
			remote_range_put(range);
			kfree(slot);
		} else {
			slot->free = true;
		}
		return;
	}
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
			slots_leave_aperture(slot->range);
	}
	mutex_unlock(&r->lock);
}
