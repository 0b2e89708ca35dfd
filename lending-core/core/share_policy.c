// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What a manager may promise of a function that several hosts use, and what a client may ask. */

#include "pcilend/share.h"

static bool share_policy_overlap(u64 a, u64 a_pages, u64 b, u64 b_pages)
{
	return a < b + b_pages && b < a + a_pages;
}

/* Pages of all clients together. */
static u64 share_policy_pages(const struct pcilend_share_policy *policy,
			      const struct pcilend_share_range *range)
{
	return (u64)range->pages * (range->kind == PCILEND_SHARE_POOL ? policy->clients : 1);
}

static const char *share_policy_range_fault(const struct pcilend_share_function *function,
					    const struct pcilend_share_policy *policy, u32 index)
{
	const struct pcilend_share_range *range = &policy->range[index];
	u64 pages = share_policy_pages(policy, range);
	u32 i;

	if (range->bar > 5 || range->kind > PCILEND_SHARE_POOL || !range->pages)
		return "pages of no BAR";
	if (range->page + pages > function->bar_bytes[range->bar] / PCILEND_PAGE)
		return "pages past the end of the BAR";
	if (function->msix_pages && function->msix_bar == range->bar &&
	    share_policy_overlap(range->page, pages, function->msix_page, function->msix_pages))
		return "pages with the function's MSI-X table, which is the lender's";
	for (i = 0; i < index; i++) {
		const struct pcilend_share_range *other = &policy->range[i];

		if (other->bar == range->bar &&
		    share_policy_overlap(range->page, pages, other->page,
					 share_policy_pages(policy, other)))
			return "pages that are named twice";
	}
	return NULL;
}

const char *pcilend_share_policy_fault(const struct pcilend_share_function *function,
				       const struct pcilend_share_policy *policy)
{
	const char *fault;
	u32 i;

	if (policy->clients > PCILEND_SHARE_CLIENTS)
		return "at most 64 clients can share a function";
	if (policy->vectors > PCILEND_SHARE_VECTORS)
		return "at most 32 vectors for each client";
	if (!pcilend_slice_size_valid(policy->slice_bytes))
		return "a slice is a power of two of bytes, from 4 KiB to 64 GiB";
	if (policy->near_bytes & (PCILEND_PAGE - 1))
		return "memory near the function is whole pages";
	if (policy->ranges > PCILEND_SHARE_RANGES)
		return "at most 8 ranges of BAR pages";
	for (i = 0; i < policy->ranges; i++) {
		fault = share_policy_range_fault(function, policy, i);
		if (fault)
			return fault;
	}
	return NULL;
}

const char *pcilend_share_wish_fault(const struct pcilend_share_policy *policy,
				     const struct pcilend_share_wish *wish)
{
	if (wish->lease_ms < PCILEND_LEASE_MS_MIN || wish->lease_ms > PCILEND_LEASE_MS_MAX)
		return "lease time must be from 2 seconds to 1 hour";
	if (!pcilend_slice_size_valid(wish->slice_bytes) ||
	    wish->slice_bytes > policy->slice_bytes)
		return "the manager allows no slice of this size";
	if (wish->near_bytes & (PCILEND_PAGE - 1) || wish->near_bytes > policy->near_bytes)
		return "the manager allows less memory near the function";
	if (wish->vectors > policy->vectors)
		return "the manager allows fewer vectors";
	return NULL;
}
