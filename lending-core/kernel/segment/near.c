// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory of this host beside a function that it lends, for who has borrowed that: the lender asks
 * for it (admin.h of the lender), with the function's lock, and ends it behind the fence.
 */

#include "segment/segment.h"

int pcilend_near_make(u32 function, struct pcilend_link *link, u32 node,
		      const struct pcilend_memory *memory, u32 *id)
{
	struct pcilend_memory kept = *memory;
	int err;

	err = segment_owner_make_near(function, &kept, id);
	if (err) {
		pcilend_memory_put(&kept);
		return err;
	}
	err = segment_owner_offer_near(*id, function, link, node);
	if (err)
		segment_owner_end_near(function, *id);
	return err;
}

void pcilend_near_end(u32 function)
{
	segment_owner_end_near(function, 0);
	pcilend_changed();
}

u64 pcilend_near_bytes(u32 function, u32 *count)
{
	return segment_owner_near(function, count);
}
