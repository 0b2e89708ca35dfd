// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory of this host beside a function that it lends, for who has borrowed that: the lender asks
 * for it (admin.h of the lender), with the function's lock, and ends it behind the fence.
 *
 * It is a segment without a process: it is closed with the lease, or when its peer has no
 * connection to it any more. Where no IOMMU keeps the peer from its pages, these stay for as long
 * as its place in the aperture does.
 */

#include "segment/owner.h"
#include "segment/segment.h"

/* Can a peer reach its pages, though they are not mapped for it? */
static bool near_is_exposed(const struct segment *segment)
{
	const struct offer *offer;

	lockdep_assert_held(&segments_lock);
	list_for_each_entry(offer, &segment->offers, of_segment) {
		if (offer->link->aperture.direct)
			return true;
	}
	return false;
}

void segment_near_close(struct segment *segment)
{
	struct offer *offer, *next;

	lockdep_assert_held(&segments_lock);
	if (segment->closed)
		return;
	list_for_each_entry_safe(offer, next, &segment->offers, of_segment)
		segment_offer_withdraw(offer);
	segment->closed = true;
	if (!near_is_exposed(segment)) {
		pcilend_memory_put(&segment->memory);
		segment->memory.size = 0;
	}
	if (list_empty(&segment->offers))
		segment_owner_end(segment);
}

bool segment_near_is_left(const struct offer *offer)
{
	lockdep_assert_held(&segments_lock);
	return offer->segment->function && !offer->core.count &&
	       offer->core.state == PCILEND_OFFER_OFFERED;
}

/* It takes @memory over, if it returns 0. */
static int near_create(u32 function, const struct pcilend_memory *memory, u32 *id)
{
	char name[PCILEND_LABEL_BYTES];
	struct segment *segment;

	snprintf(name, sizeof(name), "near-%x", function);
	segment = segment_owner_alloc(name);
	if (!segment)
		return -ENOMEM;
	guard(mutex)(&segments_lock);
	segment->id = segment_owner_new_id();
	if (!segment->id) {
		kfree(segment);
		return -ENOSPC;
	}
	segment->function = function;
	segment->memory = *memory;
	segment->size = memory->size;
	list_add_tail(&segment->node, &segments_list);
	segment_owner_tell(segment, NULL);
	*id = segment->id;
	return 0;
}

/* @id 0: all of that function's */
static void near_close(u32 function, u32 id)
{
	struct segment *segment, *next;

	guard(mutex)(&segments_lock);
	list_for_each_entry_safe(segment, next, &segments_list, node) {
		if (segment->function == function && (!id || segment->id == id))
			segment_near_close(segment);
	}
}

int pcilend_near_make(u32 function, struct pcilend_link *link, u32 node,
		      const struct pcilend_memory *memory, u32 *id)
{
	struct pcilend_memory kept = *memory;
	int err;

	err = near_create(function, &kept, id);
	if (err) {
		pcilend_memory_put(&kept);
		return err;
	}
	err = segment_owner_offer(*id, function, node, link, false, NULL);
	if (err)
		near_close(function, *id);
	return err;
}

void pcilend_near_end(u32 function)
{
	near_close(function, 0);
	pcilend_changed();
}

u64 pcilend_near_bytes(u32 function, u32 *count)
{
	struct segment *segment;
	u64 bytes = 0;

	*count = 0;
	guard(mutex)(&segments_lock);
	list_for_each_entry(segment, &segments_list, node) {
		if (segment->function != function || !segment->memory.size)
			continue;
		bytes += segment->size;
		++*count;
	}
	return bytes;
}
