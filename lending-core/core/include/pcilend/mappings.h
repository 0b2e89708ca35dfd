/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What is mapped in an address space that several users share. Users that map the same range to
 * the same target share one mapping, which goes with the last of them. Ranges that overlap in any
 * other way are refused: users of one address space see one memory.
 */
#ifndef PCILEND_MAPPINGS_H
#define PCILEND_MAPPINGS_H

#include "pcilend/platform.h"

__BEGIN_DECLS

struct pcilend_shared_mapping {
	u64 start;
	u64 size;
	u64 target;
	u32 users;
};

/* The caller gives the storage, of @capacity entries, and sets all else to 0. */
struct pcilend_mappings {
	struct pcilend_shared_mapping *entry;
	u32 capacity;
	u32 count;
};

/*
 * One user more of [start, +size) -> target. @size is not 0, and start + size does not wrap.
 * Return: 1 if the caller has to map it (or to drop it, if that fails), 0 if it is mapped; with
 * nothing changed -EEXIST if it overlaps another mapping, -ENOSPC.
 */
int pcilend_mappings_add(struct pcilend_mappings *mappings, u64 start, u64 size, u64 target);

/*
 * One user less of [start, +size), as it was added. Return: 1 if the caller has to unmap it, 0 if
 * others use it, -ENOENT.
 */
int pcilend_mappings_drop(struct pcilend_mappings *mappings, u64 start, u64 size);

__END_DECLS

#endif /* PCILEND_MAPPINGS_H */
