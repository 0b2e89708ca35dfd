// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A function that several hosts use at once; see share.h. */

#include "share_steps.h"

static const char not_manager[] = "only the manager of the function may do this";
static const char taken_back[] = "it is being taken back: try again when that is over";
static const char no_such_lease[] = "this lease is over, or was never granted";

static void share_off(struct pcilend_share *share)
{
	share->state = PCILEND_SHARE_OFF;
	share->node = 0;
	share->boot = 0;
	share->lease = 0;
	share->slice_bytes = 0;
	share->recalled = false;
	share->resetting = false;
	share->lost = 0;
	share->policy = (struct pcilend_share_policy){ };
}

/* The last client may be over: what waited for that goes on. */
static void share_settle(struct pcilend_share *share, struct pcilend_share_result *result)
{
	if (share_count(share))
		return;
	if (share->state == PCILEND_SHARE_UNSHARING) {
		share->policy = (struct pcilend_share_policy){ };
		share->state = PCILEND_SHARE_EXCLUSIVE;
	}
	if (share->state == PCILEND_SHARE_RETURNING) {
		share_do_manager(share, result, PCILEND_SHARE_DO_MANAGER_OVER);
		share_off(share);
	}
}

static void share_fence(struct pcilend_share *share, struct pcilend_share_result *result,
			enum pcilend_lost_reason reason)
{
	share->state = PCILEND_SHARE_FENCING;
	share->lost = reason;
	share_do_manager(share, result, PCILEND_SHARE_DO_FENCE)->reason = reason;
}

void pcilend_sharing_end_all(struct pcilend_share *share, struct pcilend_share_result *result)
{
	u32 i;

	for (i = 0; i < PCILEND_SHARE_CLIENTS; i++)
		pcilend_sharing_end(share, &share->client[i], result, PCILEND_LOST_REVOKED);
	share_settle(share, result);
}

static int share_return(struct pcilend_share *share, const struct pcilend_share_event *event,
			struct pcilend_share_result *result)
{
	struct pcilend_share_client *client = share_client(share, event->lease);

	if (share_is_managers_lease(share, event)) {
		if (share->state >= PCILEND_SHARE_RETURNING)
			return 0;
		share->state = PCILEND_SHARE_RETURNING;
		pcilend_sharing_end_all(share, result);
		return 0;
	}
	if (!client || client->node != event->node || client->boot != event->boot)
		return share_refuse(result, -ESTALE, no_such_lease);
	if (share->state == PCILEND_SHARE_FENCING)
		return 0;
	pcilend_sharing_end(share, client, result, 0);
	share_settle(share, result);
	return 0;
}

static int share_cleared(struct pcilend_share *share, const struct pcilend_share_event *event,
			 struct pcilend_share_result *result)
{
	struct pcilend_share_client *client = share_client(share, event->client);
	u32 ahead = event->round - share->rounds;

	if (share->state == PCILEND_SHARE_OFF)
		return share_refuse(result, -ESTALE, no_such_lease);
	if (!share_is_manager(share, event)) {
		share_add(result, PCILEND_SHARE_DO_AUDIT)->node = event->node;
		return share_refuse(result, -EPERM, not_manager);
	}
	if (event->lease != share->lease)
		return share_refuse(result, -ESTALE, no_such_lease);
	if (!event->round || (ahead && ahead < 0x80000000u)) {
		share_add(result, PCILEND_SHARE_DO_AUDIT)->node = event->node;
		return share_refuse(result, -EINVAL, "it was not asked to clear anything yet");
	}
	if (share->state == PCILEND_SHARE_FENCING || !client || client->round != event->round)
		return 0;
	if (client->state == PCILEND_CLIENT_CLEARING)
		pcilend_sharing_unmap(share, client, result);
	else if (client->state == PCILEND_CLIENT_QUARANTINING)
		pcilend_sharing_has_no_queues(client, result);
	return 0;
}

static int share_resetting(struct pcilend_share *share, const struct pcilend_share_event *event,
			   struct pcilend_share_result *result)
{
	if (!share_is_managers_lease(share, event))
		return share_refuse(result, -EPERM, not_manager);
	if (share->state == PCILEND_SHARE_FENCING)
		return share_refuse(result, -EBUSY, taken_back);
	if (share->resetting)
		return share_refuse(result, -EBUSY, "it is being reset already");
	share->resetting = true;
	return 0;
}

static int share_reset_done(struct pcilend_share *share, const struct pcilend_share_event *event,
			    struct pcilend_share_result *result)
{
	u32 i;

	if (share->state == PCILEND_SHARE_OFF || share->state == PCILEND_SHARE_FENCING)
		return 0;
	if (!share->resetting)
		return share_refuse(result, -EINVAL, "it is not being reset");
	share->resetting = false;
	if (event->type == PCILEND_SHARE_RESET_FAILED) {
		share_fence(share, result, PCILEND_LOST_GONE);
		return 0;
	}
	for (i = 0; i < PCILEND_SHARE_CLIENTS; i++)
		pcilend_sharing_was_reset(share, &share->client[i], result, event->now);
	return 0;
}

static int share_mapped(struct pcilend_share *share, const struct pcilend_share_event *event,
			struct pcilend_share_result *result)
{
	struct pcilend_share_client *client = share_client(share, event->client);

	if (!client || share->state == PCILEND_SHARE_FENCING)
		return 0;
	if (client->state != PCILEND_CLIENT_ADMITTED)
		return share_refuse(result, -EINVAL, "it is not being mapped");
	if (event->type == PCILEND_SHARE_MAP_FAILED) {
		pcilend_sharing_release(share, client, result);
		share_settle(share, result);
	} else if (client->over) {
		pcilend_sharing_close(share, client, result);
	} else {
		client->state = PCILEND_CLIENT_ACTIVE;
		client->known = true;
		share_do(result, PCILEND_SHARE_DO_TELL, client);
		share_do(result, PCILEND_SHARE_DO_ANSWER, client);
	}
	return 0;
}

static int share_closed(struct pcilend_share *share, const struct pcilend_share_event *event,
			struct pcilend_share_result *result)
{
	struct pcilend_share_client *client = share_client(share, event->client);

	if (!client || share->state == PCILEND_SHARE_FENCING)
		return 0;
	if (client->state != PCILEND_CLIENT_ENDING)
		return share_refuse(result, -EINVAL, "it is not being closed");
	if (!client->known) {
		pcilend_sharing_unmap(share, client, result);
		return 0;
	}
	client->state = PCILEND_CLIENT_CLEARING;
	pcilend_sharing_ask(share, client, result, event->now);
	return 0;
}

static int share_unmapped(struct pcilend_share *share, const struct pcilend_share_event *event,
			  struct pcilend_share_result *result)
{
	struct pcilend_share_client *client = share_client(share, event->client);

	if (!client || share->state == PCILEND_SHARE_FENCING)
		return 0;
	if (client->state != PCILEND_CLIENT_CLEARED)
		return share_refuse(result, -EINVAL, "it is not being unmapped");
	pcilend_sharing_release(share, client, result);
	share_settle(share, result);
	return 0;
}

static int share_fenced(struct pcilend_share *share, struct pcilend_share_result *result)
{
	u32 i;

	if (share->state != PCILEND_SHARE_FENCING)
		return share_refuse(result, -EINVAL, "it is not being fenced");
	for (i = 0; i < PCILEND_SHARE_CLIENTS; i++) {
		struct pcilend_share_client *client = &share->client[i];

		if (client->state == PCILEND_CLIENT_NONE)
			continue;
		if (client->state < PCILEND_CLIENT_ENDING && !client->over)
			client->reason = share->lost;
		pcilend_sharing_release(share, client, result);
	}
	share_off(share);
	return 0;
}

static int share_end_one(struct pcilend_share *share, const struct pcilend_share_event *event,
			 struct pcilend_share_result *result)
{
	struct pcilend_share_client *client = share_client(share, event->client);

	if (!client || share->state == PCILEND_SHARE_FENCING)
		return 0;
	pcilend_sharing_end(share, client, result, event->type == PCILEND_SHARE_EXPIRE ?
			    PCILEND_LOST_EXPIRED : PCILEND_LOST_REVOKED);
	share_settle(share, result);
	return 0;
}

static int share_allow(struct pcilend_share *share, const struct pcilend_share_event *event,
		       struct pcilend_share_result *result)
{
	u32 i;

	if (event->rules->clients > PCILEND_SHARE_CLIENTS)
		return share_refuse(result, -ERANGE, "at most 64 clients can share a function");
	share->rules = *event->rules;
	if (share->state == PCILEND_SHARE_FENCING)
		return 0;
	for (i = 0; i < PCILEND_SHARE_CLIENTS; i++) {
		struct pcilend_share_client *client = &share->client[i];

		if (client->state != PCILEND_CLIENT_NONE &&
		    (!share->rules.clients ||
		     !pcilend_access_allows(&share->rules.nodes, client->node)))
			pcilend_sharing_end(share, client, result, PCILEND_LOST_REVOKED);
	}
	share_settle(share, result);
	return 0;
}

static int share_peer_dead(struct pcilend_share *share, const struct pcilend_share_event *event,
			   struct pcilend_share_result *result)
{
	u32 i;

	if (share->state == PCILEND_SHARE_OFF || share->state == PCILEND_SHARE_FENCING)
		return 0;
	if (share_is_manager(share, event)) {
		share_fence(share, result, PCILEND_LOST_GONE);
		return 0;
	}
	for (i = 0; i < PCILEND_SHARE_CLIENTS; i++) {
		struct pcilend_share_client *client = &share->client[i];

		if (client->node == event->node && client->boot == event->boot)
			pcilend_sharing_end(share, client, result, PCILEND_LOST_GONE);
	}
	share_settle(share, result);
	return 0;
}

static int share_link_lost(struct pcilend_share *share, const struct pcilend_share_event *event,
			   struct pcilend_share_result *result)
{
	u32 i;

	if (share->state == PCILEND_SHARE_OFF || share->state == PCILEND_SHARE_FENCING)
		return 0;
	if (share_is_manager(share, event) && share->manager_carries) {
		share->manager_carries = false;
		share->manager_due = event->now + share->clear_ms;
	}
	for (i = 0; i < PCILEND_SHARE_CLIENTS; i++) {
		struct pcilend_share_client *client = &share->client[i];

		if (client->node == event->node && client->boot == event->boot)
			pcilend_sharing_link_lost(share, client, result, event->now);
	}
	share_settle(share, result);
	return 0;
}

static int share_link_up(struct pcilend_share *share, const struct pcilend_share_event *event,
			 struct pcilend_share_result *result)
{
	bool manager = share_is_manager(share, event) && !share->manager_carries;
	u32 i;

	if (share->state == PCILEND_SHARE_OFF || share->state == PCILEND_SHARE_FENCING)
		return 0;
	if (manager)
		share->manager_carries = true;
	for (i = 0; i < PCILEND_SHARE_CLIENTS; i++) {
		struct pcilend_share_client *client = &share->client[i];

		if (manager)
			pcilend_sharing_tell_again(client, result);
		if (client->node != event->node || client->boot != event->boot)
			continue;
		client->carries = true;
		if (client->state == PCILEND_CLIENT_QUARANTINED)
			pcilend_sharing_has_no_queues(client, result);
	}
	return 0;
}

static int share_recall(struct pcilend_share *share, const struct pcilend_share_event *event,
			struct pcilend_share_result *result)
{
	u32 i;

	if (event->grace_ms > PCILEND_GRACE_MS_MAX)
		return share_refuse(result, -ERANGE, "the grace time must be at most 24 hours");
	if (share->state == PCILEND_SHARE_OFF)
		return share_refuse(result, -EINVAL, "nobody has it: nothing to recall");
	if (share->state == PCILEND_SHARE_FENCING)
		return 0;
	share->recalled = true;
	share->recall_at = event->now + event->grace_ms;
	for (i = 0; i < PCILEND_SHARE_CLIENTS; i++) {
		const struct pcilend_share_client *client = &share->client[i];

		if (client->known && client->state < PCILEND_CLIENT_ENDING)
			share_do(result, PCILEND_SHARE_DO_RECALL, client);
	}
	share_do_manager(share, result, PCILEND_SHARE_DO_RECALL);
	return 0;
}

static int share_take(struct pcilend_share *share, struct pcilend_share_result *result,
		      enum pcilend_lost_reason reason)
{
	if (share->state == PCILEND_SHARE_OFF)
		return share_refuse(result, -EINVAL, "nobody has it: nothing to revoke");
	if (share->state != PCILEND_SHARE_FENCING)
		share_fence(share, result, reason);
	return 0;
}

static bool share_asked(const struct pcilend_share *share,
			const struct pcilend_share_client *client)
{
	return !share->resetting && client->round &&
	       (client->state == PCILEND_CLIENT_CLEARING ||
		client->state == PCILEND_CLIENT_QUARANTINING);
}

static bool share_waits_for_link(const struct pcilend_share_client *client)
{
	return !client->carries && (client->state == PCILEND_CLIENT_QUARANTINING ||
				    client->state == PCILEND_CLIENT_QUARANTINED);
}

static bool share_overdue(const struct pcilend_share *share, u64 now)
{
	u32 i;

	if (!share->manager_carries && now >= share->manager_due)
		return true;
	for (i = 0; i < PCILEND_SHARE_CLIENTS; i++)
		if (share_asked(share, &share->client[i]) && now >= share->client[i].due)
			return true;
	return false;
}

static int share_tick(struct pcilend_share *share, u64 now, struct pcilend_share_result *result)
{
	u32 i;

	if (share->state == PCILEND_SHARE_OFF || share->state == PCILEND_SHARE_FENCING)
		return 0;
	if (share->recalled && now >= share->recall_at) {
		share_fence(share, result, PCILEND_LOST_REVOKED);
		return 0;
	}
	if (share_overdue(share, now)) {
		share_fence(share, result, PCILEND_LOST_GONE);
		return 0;
	}
	for (i = 0; i < PCILEND_SHARE_CLIENTS; i++) {
		struct pcilend_share_client *client = &share->client[i];

		if (share_waits_for_link(client) && now >= client->lost_until)
			pcilend_sharing_end(share, client, result, PCILEND_LOST_EXPIRED);
	}
	return 0;
}

void pcilend_share_init(struct pcilend_share *share, const struct pcilend_share_function *function,
			u32 clear_ms)
{
	memset(share, 0, sizeof(*share));
	share->function = *function;
	share->clear_ms = clear_ms;
}

int pcilend_share_apply(struct pcilend_share *share, const struct pcilend_share_event *event,
			struct pcilend_lease_numbers *numbers, struct pcilend_share_result *result)
{
	result->lease = 0;
	result->why = NULL;
	result->count = 0;
	switch (event->type) {
	case PCILEND_SHARE_MANAGE:
		return pcilend_sharing_manage(share, event, result);
	case PCILEND_SHARE_POLICY:
		return pcilend_sharing_policy(share, event, result);
	case PCILEND_SHARE_JOIN:
		return pcilend_sharing_join(share, event, numbers, result);
	case PCILEND_SHARE_RETURN:
		return share_return(share, event, result);
	case PCILEND_SHARE_CLEARED:
		return share_cleared(share, event, result);
	case PCILEND_SHARE_RESETTING:
		return share_resetting(share, event, result);
	case PCILEND_SHARE_RESET_OK:
	case PCILEND_SHARE_RESET_FAILED:
		return share_reset_done(share, event, result);
	case PCILEND_SHARE_MAPPED:
	case PCILEND_SHARE_MAP_FAILED:
		return share_mapped(share, event, result);
	case PCILEND_SHARE_CLOSED:
		return share_closed(share, event, result);
	case PCILEND_SHARE_UNMAPPED:
		return share_unmapped(share, event, result);
	case PCILEND_SHARE_FENCED:
		return share_fenced(share, result);
	case PCILEND_SHARE_EXPIRE:
	case PCILEND_SHARE_REVOKE_CLIENT:
		return share_end_one(share, event, result);
	case PCILEND_SHARE_ALLOW:
		return share_allow(share, event, result);
	case PCILEND_SHARE_PEER_DEAD:
		return share_peer_dead(share, event, result);
	case PCILEND_SHARE_LINK_LOST:
		return share_link_lost(share, event, result);
	case PCILEND_SHARE_LINK_UP:
		return share_link_up(share, event, result);
	case PCILEND_SHARE_RECALL:
		return share_recall(share, event, result);
	case PCILEND_SHARE_REVOKE:
		return share_take(share, result, PCILEND_LOST_REVOKED);
	case PCILEND_SHARE_UNPLUGGED:
		return share->state == PCILEND_SHARE_OFF ? 0 :
			share_take(share, result, PCILEND_LOST_GONE);
	case PCILEND_SHARE_TICK:
		return share_tick(share, event->now, result);
	}
	return share_refuse(result, -EINVAL, "unknown event");
}

static u64 share_sooner(u64 left, u64 at, u64 now)
{
	u64 until = at > now ? at - now : 0;

	return until < left ? until : left;
}

u64 pcilend_share_due_in(const struct pcilend_share *share, u64 now)
{
	u64 left = U64_MAX;
	u32 i;

	if (share->state == PCILEND_SHARE_OFF || share->state == PCILEND_SHARE_FENCING)
		return left;
	if (share->recalled)
		left = share_sooner(left, share->recall_at, now);
	if (!share->manager_carries)
		left = share_sooner(left, share->manager_due, now);
	for (i = 0; i < PCILEND_SHARE_CLIENTS; i++) {
		const struct pcilend_share_client *client = &share->client[i];

		if (share_asked(share, client))
			left = share_sooner(left, client->due, now);
		if (share_waits_for_link(client))
			left = share_sooner(left, client->lost_until, now);
	}
	return left;
}

const struct pcilend_share_client *pcilend_share_find(const struct pcilend_share *share, u32 lease)
{
	u32 i;

	for (i = 0; i < PCILEND_SHARE_CLIENTS; i++)
		if (share->client[i].state != PCILEND_CLIENT_NONE &&
		    share->client[i].lease == lease)
			return &share->client[i];
	return NULL;
}

u32 pcilend_share_piece(const struct pcilend_share *share,
			const struct pcilend_share_client *client)
{
	return (u32)(client - share->client);
}

int pcilend_share_check(const struct pcilend_share *share, u32 node, u64 boot, u32 lease,
			const char **why)
{
	const struct pcilend_share_client *client = pcilend_share_find(share, lease);
	const char *fault = no_such_lease;
	int error = -ESTALE;

	if (client && client->node == node && client->boot == boot &&
	    share->state != PCILEND_SHARE_FENCING) {
		if (client->state == PCILEND_CLIENT_ACTIVE)
			return 0;
		if (client->state == PCILEND_CLIENT_QUARANTINING ||
		    client->state == PCILEND_CLIENT_QUARANTINED) {
			fault = "its link was lost: its queues of before are deleted first";
			error = -EAGAIN;
		}
	}
	if (why)
		*why = fault;
	return error;
}
