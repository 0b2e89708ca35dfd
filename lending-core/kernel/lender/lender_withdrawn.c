// SPDX-License-Identifier: GPL-2.0-only
/*
 * Places of BARs in the aperture after a lease that its borrower has not returned. Nothing is
 * reached there any more, but a VMM of the borrower, one that is stopped, say, may still have that
 * part of the memory window mapped; so nothing else may be put there before the borrower has
 * returned the lease, which it does once nobody has the function open, or its boot is over.
 */

#include <linux/slab.h>

#include "lender/lender.h"

struct pcilend_withdrawn {
	struct list_head node;
	struct pcilend_link *link;	/* with a reference */
	u32 id;
	u32 lease;
	u32 borrower;
	u32 reason;			/* enum pcilend_lost_reason, of a client's; else 0 */
	struct pcilend_export export[PCILEND_SHARE_RANGES];
};

static_assert(PCILEND_SHARE_RANGES >= PCILEND_BARS, "for all BARs, and for all pages of a client");

static LIST_HEAD(withdrawn_list);
static DEFINE_MUTEX(withdrawn_lock);

/* Before the lease is granted, so that its end needs no memory. */
struct pcilend_withdrawn *pcilend_withdrawn_alloc(void)
{
	return kzalloc(sizeof(struct pcilend_withdrawn), GFP_KERNEL);
}

static void lender_withdrawn_release(struct pcilend_withdrawn *withdrawn)
{
	int i;

	for (i = 0; i < PCILEND_SHARE_RANGES; i++) {
		if (withdrawn->export[i].size)
			pcilend_aperture_export_put(withdrawn->link, withdrawn->export[i].iova,
						    withdrawn->export[i].size);
	}
	pcilend_link_put(withdrawn->link);
	kfree(withdrawn);
}

/*
 * All @count of @export are hidden by now. Takes over @withdrawn and the ranges.
 * @reason: why the lease, a client's, is lost; 0: a borrower's, who finds out by its notices
 */
void pcilend_withdrawn_keep(struct pcilend_withdrawn *withdrawn, struct pcilend_link *link, u32 id,
			    u32 borrower, u32 lease, enum pcilend_lost_reason reason,
			    const struct pcilend_export *export, u32 count)
{
	withdrawn->link = pcilend_link_get(link);
	withdrawn->id = id;
	withdrawn->lease = lease;
	withdrawn->borrower = borrower;
	withdrawn->reason = reason;
	memcpy(withdrawn->export, export, count * sizeof(*export));
	guard(mutex)(&withdrawn_lock);
	list_add_tail(&withdrawn->node, &withdrawn_list);
}

/* @borrower has returned that lease: nobody there uses the BARs any more. */
void pcilend_withdrawn_returned(u32 borrower, u32 id, u32 lease)
{
	struct pcilend_withdrawn *withdrawn, *next;

	guard(mutex)(&withdrawn_lock);
	list_for_each_entry_safe(withdrawn, next, &withdrawn_list, node) {
		if (withdrawn->borrower != borrower || withdrawn->id != id ||
		    withdrawn->lease != lease)
			continue;
		list_del(&withdrawn->node);
		lender_withdrawn_release(withdrawn);
	}
}

/* Of that link the client's with the lowest lease above that of @msg, described; false: none. */
static bool lender_withdrawn_next(struct pcilend_link *link, struct pcilend_msg_lease *msg)
{
	u32 after = le32_to_cpu(msg->lease);
	struct pcilend_withdrawn *withdrawn;
	bool found = false;

	guard(mutex)(&withdrawn_lock);
	list_for_each_entry(withdrawn, &withdrawn_list, node) {
		if (withdrawn->link != link || !withdrawn->reason || withdrawn->lease <= after ||
		    (found && withdrawn->lease > le32_to_cpu(msg->lease)))
			continue;
		found = true;
		*msg = (struct pcilend_msg_lease){
			.id = cpu_to_le32(withdrawn->id),
			.lease = cpu_to_le32(withdrawn->lease),
			.reason = cpu_to_le32(withdrawn->reason),
		};
	}
	return found;
}

/* LOST once more, of clients that have not returned, as they may not have heard it. */
int pcilend_withdrawn_sync(struct pcilend_link *link)
{
	struct pcilend_msg_lease msg = { };
	int err = 0;

	while (!err && lender_withdrawn_next(link, &msg)) {
		pcilend_channel_wait_room(link);
		err = pcilend_channel_notify(link, PCILEND_MSG_LOST, &msg);
	}
	return err;
}

/* That boot of the peer is over, or the adapter goes. */
void pcilend_withdrawn_link_over(struct pcilend_link *link)
{
	struct pcilend_withdrawn *withdrawn, *next;

	guard(mutex)(&withdrawn_lock);
	list_for_each_entry_safe(withdrawn, next, &withdrawn_list, node) {
		if (withdrawn->link != link)
			continue;
		list_del(&withdrawn->node);
		lender_withdrawn_release(withdrawn);
	}
}
