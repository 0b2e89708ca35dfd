// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Places for the clients of a shared function; see slice.h. */

#include "pcilend/slice.h"

static_assert(PCILEND_ALIAS_FIRST + PCILEND_ALIAS_BYTES <= 0xfee00000ULL,
	      "no alias is the lender's own interrupt range");
static_assert(PCILEND_ALIAS_FIRST - (PCILEND_SLICES - 1) * PCILEND_ALIAS_BYTES >= 0x80000000ULL,
	      "aliases stay above the DMA area");

int pcilend_slices_init(struct pcilend_slices *slices, u64 last)
{
	u64 size;

	/* The end of all addresses is no number. */
	if (last == U64_MAX)
		last -= PCILEND_PAGE;
	size = last > PCILEND_SLICE_START ? last - PCILEND_SLICE_START + 1 : 0;
	*slices = (struct pcilend_slices){ };
	pcilend_range_init(&slices->range, PCILEND_SLICE_START, size & ~(PCILEND_PAGE - 1),
			   slices->used, ARRAY_SIZE(slices->used));
	return slices->range.size ? 0 : -ERANGE;
}

bool pcilend_slice_size_valid(u64 bytes)
{
	return bytes >= PCILEND_PAGE && bytes <= PCILEND_SLICE_MAX && !(bytes & (bytes - 1));
}

int pcilend_slice_place(struct pcilend_slices *slices, u64 bytes, u64 *address)
{
	if (!pcilend_slice_size_valid(bytes))
		return -EINVAL;
	return pcilend_range_alloc(&slices->range, bytes, bytes, address);
}

int pcilend_slice_release(struct pcilend_slices *slices, u64 address, u64 bytes)
{
	return pcilend_range_free(&slices->range, address, bytes);
}

static struct pcilend_slice_alias *slice_find_alias(struct pcilend_slices *slices, u32 node,
						    u64 boot)
{
	u32 i;

	for (i = 0; i < PCILEND_SLICES; i++) {
		struct pcilend_slice_alias *alias = &slices->alias[i];

		if (alias->users && alias->node == node && alias->boot == boot)
			return alias;
	}
	return NULL;
}

static struct pcilend_slice_alias *slice_free_alias(struct pcilend_slices *slices)
{
	u32 i;

	for (i = 0; i < PCILEND_SLICES; i++)
		if (!slices->alias[i].users)
			return &slices->alias[i];
	return NULL;
}

int pcilend_alias_get(struct pcilend_slices *slices, u32 node, u64 boot, u64 *address)
{
	struct pcilend_slice_alias *alias = slice_find_alias(slices, node, boot);

	if (!alias)
		alias = slice_free_alias(slices);
	if (!alias)
		return -ENOSPC;
	alias->node = node;
	alias->boot = boot;
	alias->users++;
	*address = PCILEND_ALIAS_FIRST - (u64)(alias - slices->alias) * PCILEND_ALIAS_BYTES;
	return 0;
}

bool pcilend_alias_put(struct pcilend_slices *slices, u32 node, u64 boot)
{
	struct pcilend_slice_alias *alias = slice_find_alias(slices, node, boot);

	if (!alias)
		return false;
	alias->users--;
	return !alias->users;
}
