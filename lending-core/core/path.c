// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Several links to one node; see path.h. */

#include "pcilend/path.h"

enum pcilend_path_verdict pcilend_path_judge(const struct pcilend_path_claim *claim)
{
	if (claim->pinned == claim->node)
		return PCILEND_PATH_PINNED;
	if (claim->pinned)
		return PCILEND_PATH_OTHER_NODE;
	if (claim->pinned_elsewhere)
		return PCILEND_PATH_OTHER_ADAPTER;
	if (claim->trusted_up)
		return PCILEND_PATH_ASK;
	return claim->trusted ? PCILEND_PATH_WAIT : PCILEND_PATH_FIRST;
}

bool pcilend_path_is_own(const struct pcilend_path_end *end, u32 node, u64 asker, u64 asked)
{
	return end->node == node && end->boot == asked && end->peer_boot == asker && asker && asked;
}

static bool path_better(const struct pcilend_path_choice *a, const struct pcilend_path_choice *b)
{
	if (a->leases != b->leases)
		return a->leases < b->leases;
	if (a->free != b->free)
		return a->free > b->free;
	return a->address < b->address;
}

int pcilend_path_choose(const struct pcilend_path_choice *path, unsigned int count)
{
	int best = -ENETDOWN;
	unsigned int i;

	for (i = 0; i < count; i++) {
		if (path[i].usable && (best < 0 || path_better(&path[i], &path[best])))
			best = i;
	}
	return best;
}
