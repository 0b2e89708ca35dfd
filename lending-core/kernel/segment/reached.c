// SPDX-License-Identifier: GPL-2.0-only
/*
 * Segments that functions of this host are to reach, for who has borrowed one (admin.h of the
 * lender). The function is this host's, so it is this host that must be offered the segment; and
 * who has the function, so that nobody gets at what only its lender is offered.
 */

#include "pcilend/identity.h"
#include "segment/segment.h"

int pcilend_segment_open(u32 id, u32 node, bool read_only, struct pcilend_memory *memory)
{
	return pcilend_id_node(id) == pcilend_node ?
		       segment_owner_open(id, node, read_only, memory) :
		       segment_connection_open(id, node, read_only, memory);
}
