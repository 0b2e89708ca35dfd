// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Sets of nodes that may see a function; see access.h. */

#include "pcilend/access.h"
#include "pcilend/identity.h"

/* Place of @node in the set, or where it belongs. */
static u32 access_place(const struct pcilend_access *access, u32 node)
{
	u32 low = 0, high = access->count;

	while (low < high) {
		u32 middle = (low + high) / 2;

		if (access->node[middle] < node)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool access_contains(const struct pcilend_access *access, u32 node)
{
	u32 at = access_place(access, node);

	return at < access->count && access->node[at] == node;
}

static int access_check(const u32 *nodes, u32 count, const char **why)
{
	u32 i;

	if (count > PCILEND_ACCESS_NODES) {
		*why = "at most 256 nodes can be named: name none to let all connected ones in";
		return -E2BIG;
	}
	for (i = 0; i < count; i++) {
		if (!nodes[i] || nodes[i] > PCILEND_NODE_MAX) {
			*why = "node ids are 1 to 65535: see 'pcilend link' for those of the peers";
			return -EINVAL;
		}
	}
	return 0;
}

void pcilend_access_all(struct pcilend_access *access)
{
	access->restricted = false;
	access->count = 0;
}

int pcilend_access_set(struct pcilend_access *access, const u32 *nodes, u32 count,
		       const char **why)
{
	u32 i, at;
	int error = access_check(nodes, count, why);

	if (error)
		return error;
	access->restricted = true;
	access->count = 0;
	for (i = 0; i < count; i++) {
		if (access_contains(access, nodes[i]))
			continue;
		at = access_place(access, nodes[i]);
		memmove(access->node + at + 1, access->node + at,
			(access->count - at) * sizeof(*access->node));
		access->node[at] = (u16)nodes[i];
		access->count++;
	}
	return 0;
}

bool pcilend_access_allows(const struct pcilend_access *access, u32 node)
{
	return !access->restricted || access_contains(access, node);
}
