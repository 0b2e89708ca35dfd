// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Who manages a function that several hosts use, by which policy, and who joins; see share.h. */

#include "pcilend/identity.h"

#include "share_steps.h"

static const char not_shared[] =
	"it is not shared: who has borrowed it admits clients by a policy first";
static const char no_right[] = "it is not shared with this node";
static const char not_manager[] = "only the manager of the function may do this";
static const char taken_back[] = "it is being taken back: try again when that is over";

int pcilend_sharing_manage(struct pcilend_share *share, const struct pcilend_share_event *event,
			   struct pcilend_share_result *result)
{
	if (share->state != PCILEND_SHARE_OFF)
		return share_refuse(result, -EBUSY, "it has a manager already");
	if (!event->node || event->node > PCILEND_NODE_MAX || !event->lease)
		return share_refuse(result, -EINVAL, "a manager without a node id or a lease");
	if (event->slice_bytes && !pcilend_slice_size_valid(event->slice_bytes))
		return share_refuse(result, -EINVAL, "a manager with a slice of an impossible size");
	share->state = PCILEND_SHARE_EXCLUSIVE;
	share->node = event->node;
	share->boot = event->boot;
	share->lease = event->lease;
	share->slice_bytes = event->slice_bytes;
	share->manager_carries = true;
	return 0;
}

static int share_begin(struct pcilend_share *share, const struct pcilend_share_policy *policy,
		       struct pcilend_share_result *result)
{
	const struct pcilend_share_function *function = &share->function;
	const char *fault;
	u64 own;

	if (!share->rules.clients)
		return share_refuse(result, -EOPNOTSUPP, not_shared);
	if (!function->last_address)
		return share_refuse(result, -EOPNOTSUPP,
				    "it is lent without an IOMMU, which could not fence one client");
	if (!function->alone)
		return share_refuse(result, -EOPNOTSUPP,
				    "it shares its IOMMU group with other functions");
	fault = pcilend_share_policy_fault(function, policy);
	if (fault)
		return share_refuse(result, -ERANGE, fault);
	/* The manager's own is the first, from PCILEND_SLICE_START on. */
	if (pcilend_slices_init(&share->slices, function->last_address) ||
	    (share->slice_bytes &&
	     pcilend_slice_place(&share->slices, share->slice_bytes, &own)))
		return share_refuse(result, -EOPNOTSUPP,
				    "its lender's IOMMU translates too few addresses for slices");
	share->policy = *policy;
	share->state = PCILEND_SHARE_SHARED;
	return 0;
}

int pcilend_sharing_policy(struct pcilend_share *share, const struct pcilend_share_event *event,
			   struct pcilend_share_result *result)
{
	if (!share_is_managers_lease(share, event))
		return share_refuse(result, -EPERM, not_manager);
	if (share->recalled || share->state >= PCILEND_SHARE_RETURNING)
		return share_refuse(result, -EBUSY, taken_back);
	if (share->state == PCILEND_SHARE_UNSHARING)
		return share_refuse(result, -EAGAIN, "its clients are ending: try again");
	if (event->policy->clients) {
		if (share_count(share))
			return share_refuse(result, -EBUSY,
					    "it has clients, to whom another policy was promised");
		return share_begin(share, event->policy, result);
	}
	if (share->state == PCILEND_SHARE_SHARED) {
		share->state = PCILEND_SHARE_UNSHARING;
		pcilend_sharing_end_all(share, result);
	}
	return 0;
}

static int share_admits(const struct pcilend_share *share, const struct pcilend_share_event *event,
			struct pcilend_share_result *result)
{
	const struct pcilend_share_policy *policy = &share->policy;
	const char *fault;
	u32 i;

	if (!event->node || event->node > PCILEND_NODE_MAX || !share->rules.clients ||
	    !pcilend_access_allows(&share->rules.nodes, event->node))
		return share_refuse(result, -ENODEV, no_right);
	if (share->recalled || share->state >= PCILEND_SHARE_UNSHARING)
		return share_refuse(result, -EBUSY, taken_back);
	if (share->state != PCILEND_SHARE_SHARED)
		return share_refuse(result, -EAGAIN, not_shared);
	for (i = 0; i < PCILEND_SHARE_CLIENTS; i++) {
		const struct pcilend_share_client *other = &share->client[i];

		if (other->state != PCILEND_CLIENT_NONE && other->node == event->node &&
		    other->path == event->path && other->boot != event->boot)
			return share_refuse(result, -EAGAIN,
					    "a former boot of this node is not cleared: try again");
	}
	fault = pcilend_share_wish_fault(policy, &event->wish);
	if (fault)
		return share_refuse(result, -ERANGE, fault);
	if (share_count(share) >= policy->clients || share_count(share) >= share->rules.clients)
		return share_refuse(result, -ENOSPC, "it has as many clients as it may have");
	return 0;
}

int pcilend_sharing_join(struct pcilend_share *share, const struct pcilend_share_event *event,
			 struct pcilend_lease_numbers *numbers, struct pcilend_share_result *result)
{
	struct pcilend_share_client *client = share->client;
	u64 slice, alias;
	int error = share_admits(share, event, result);

	if (error)
		return error;
	if (numbers->last == U32_MAX)
		return share_refuse(result, -EOVERFLOW,
				    "lease numbers are used up: reload pcilend.ko on its lender");
	if (pcilend_slice_place(&share->slices, event->wish.slice_bytes, &slice))
		return share_refuse(result, -ENOSPC, "no place is left for a slice of this size");
	if (pcilend_alias_get(&share->slices, event->node, event->boot, &alias)) {
		pcilend_slice_release(&share->slices, slice, event->wish.slice_bytes);
		return share_refuse(result, -ENOSPC, "no place is left for another host");
	}
	/* There are fewer than the policy allows, so its pools have a piece for this one. */
	while (client->state != PCILEND_CLIENT_NONE)
		client++;
	*client = (struct pcilend_share_client){
		.state = PCILEND_CLIENT_REQUESTED,
		.node = event->node,
		.boot = event->boot,
		.path = event->path,
		.lease = ++numbers->last,
		.wish = event->wish,
		.slice = slice,
		.alias = alias,
		.carries = true,
	};
	result->lease = client->lease;
	if (!share->resetting)
		pcilend_sharing_map(client, result);
	return 0;
}
