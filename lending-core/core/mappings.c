// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Mappings that users share; see mappings.h. */

#include "pcilend/mappings.h"

static struct pcilend_shared_mapping *mappings_find(struct pcilend_mappings *mappings, u64 start,
						    u64 size)
{
	u32 i;

	for (i = 0; i < mappings->count; i++) {
		struct pcilend_shared_mapping *entry = &mappings->entry[i];

		if (start < entry->start + entry->size && entry->start < start + size)
			return entry;
	}
	return NULL;
}

int pcilend_mappings_add(struct pcilend_mappings *mappings, u64 start, u64 size, u64 target)
{
	struct pcilend_shared_mapping *entry = mappings_find(mappings, start, size);

	if (entry) {
		if (entry->start != start || entry->size != size || entry->target != target)
			return -EEXIST;
		entry->users++;
		return 0;
	}
	if (mappings->count == mappings->capacity)
		return -ENOSPC;
	entry = &mappings->entry[mappings->count++];
	entry->start = start;
	entry->size = size;
	entry->target = target;
	entry->users = 1;
	return 1;
}

int pcilend_mappings_drop(struct pcilend_mappings *mappings, u64 start, u64 size)
{
	struct pcilend_shared_mapping *entry = mappings_find(mappings, start, size);

	if (!entry || entry->start != start || entry->size != size)
		return -ENOENT;
	if (--entry->users)
		return 0;
	*entry = mappings->entry[--mappings->count];
	return 1;
}
