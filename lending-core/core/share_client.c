// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The states of one client of a function that several hosts use; see share.h. */

#include "share_steps.h"

static bool share_same_host(const struct pcilend_share_client *a,
			    const struct pcilend_share_client *b)
{
	return a->node == b->node && a->boot == b->boot;
}

/* It can be reached by its host: slice mapped, BAR pages open. */
static bool share_has_pages(const struct pcilend_share_client *client)
{
	return client->state >= PCILEND_CLIENT_ADMITTED &&
	       client->state <= PCILEND_CLIENT_QUARANTINED;
}

static bool share_has_alias(const struct pcilend_share_client *client)
{
	return client->state >= PCILEND_CLIENT_ADMITTED &&
	       client->state <= PCILEND_CLIENT_CLEARING;
}

/* Is there no other client of that host for which @has is true? */
static bool share_is_last(const struct pcilend_share *share,
			  const struct pcilend_share_client *client,
			  bool (*has)(const struct pcilend_share_client *client))
{
	u32 i;

	for (i = 0; i < PCILEND_SHARE_CLIENTS; i++) {
		const struct pcilend_share_client *other = &share->client[i];

		if (other != client && share_same_host(other, client) && has(other))
			return false;
	}
	return true;
}

void pcilend_sharing_release(struct pcilend_share *share, struct pcilend_share_client *client,
			     struct pcilend_share_result *result)
{
	share_do(result, PCILEND_SHARE_DO_RELEASE, client);
	pcilend_slice_release(&share->slices, client->slice, client->wish.slice_bytes);
	pcilend_alias_put(&share->slices, client->node, client->boot);
	*client = (struct pcilend_share_client){ };
}

void pcilend_sharing_close(struct pcilend_share *share, struct pcilend_share_client *client,
			   struct pcilend_share_result *result)
{
	client->state = PCILEND_CLIENT_ENDING;
	pcilend_mail_drop(&client->mail);
	share_do(result, PCILEND_SHARE_DO_CLOSE, client)->last =
		share_is_last(share, client, share_has_pages);
}

/* @reason: 0: it returned. What ends already goes on ending. */
void pcilend_sharing_end(struct pcilend_share *share, struct pcilend_share_client *client,
			 struct pcilend_share_result *result, enum pcilend_lost_reason reason)
{
	switch (client->state) {
	case PCILEND_CLIENT_REQUESTED:
		client->reason = reason;
		pcilend_sharing_release(share, client, result);
		return;
	case PCILEND_CLIENT_ADMITTED:
		if (client->over)
			return;
		client->over = true;
		client->reason = reason;
		return;
	case PCILEND_CLIENT_ACTIVE:
	case PCILEND_CLIENT_QUARANTINING:
	case PCILEND_CLIENT_QUARANTINED:
		client->reason = reason;
		pcilend_sharing_close(share, client, result);
		return;
	default:
		return;
	}
}

/* Asks the manager; not while it resets the function: then it is asked afterwards. */
void pcilend_sharing_ask(struct pcilend_share *share, struct pcilend_share_client *client,
			 struct pcilend_share_result *result, u64 now)
{
	bool gone = client->state == PCILEND_CLIENT_CLEARING;

	client->round = 0;
	if (share->resetting)
		return;
	if (!++share->rounds)
		share->rounds = 1;
	client->round = share->rounds;
	client->due = now + share->clear_ms;
	share_do(result, gone ? PCILEND_SHARE_DO_GONE : PCILEND_SHARE_DO_QUARANTINE, client);
}

void pcilend_sharing_unmap(struct pcilend_share *share, struct pcilend_share_client *client,
			   struct pcilend_share_result *result)
{
	client->state = PCILEND_CLIENT_CLEARED;
	share_do(result, PCILEND_SHARE_DO_UNMAP, client)->last =
		share_is_last(share, client, share_has_alias);
}

void pcilend_sharing_map(struct pcilend_share_client *client, struct pcilend_share_result *result)
{
	client->state = PCILEND_CLIENT_ADMITTED;
	share_do(result, PCILEND_SHARE_DO_MAP, client);
}

/* Its queues of before the loss are gone. */
void pcilend_sharing_has_no_queues(struct pcilend_share_client *client,
				   struct pcilend_share_result *result)
{
	client->state = PCILEND_CLIENT_QUARANTINED;
	if (!client->carries)
		return;
	client->state = PCILEND_CLIENT_ACTIVE;
	share_do(result, PCILEND_SHARE_DO_READMIT, client);
}

void pcilend_sharing_was_reset(struct pcilend_share *share,
			       struct pcilend_share_client *client,
			       struct pcilend_share_result *result, u64 now)
{
	switch (client->state) {
	case PCILEND_CLIENT_REQUESTED:
		pcilend_sharing_map(client, result);
		return;
	case PCILEND_CLIENT_ACTIVE:
		share_do(result, PCILEND_SHARE_DO_WAS_RESET, client);
		return;
	case PCILEND_CLIENT_QUARANTINING:
		pcilend_sharing_has_no_queues(client, result);
		return;
	case PCILEND_CLIENT_CLEARING:
		/* Its queues are gone; that the manager makes none again it has to say. */
		pcilend_sharing_ask(share, client, result, now);
		return;
	default:
		return;
	}
}

void pcilend_sharing_link_lost(struct pcilend_share *share,
			       struct pcilend_share_client *client,
			       struct pcilend_share_result *result, u64 now)
{
	if (client->carries)
		client->lost_until = now + client->wish.lease_ms;
	client->carries = false;
	switch (client->state) {
	case PCILEND_CLIENT_REQUESTED:
	case PCILEND_CLIENT_ADMITTED:
		/* Nobody would hear the answer. */
		pcilend_sharing_end(share, client, result, PCILEND_LOST_EXPIRED);
		return;
	case PCILEND_CLIENT_ACTIVE:
		client->state = PCILEND_CLIENT_QUARANTINING;
		pcilend_mail_drop(&client->mail);
		pcilend_sharing_ask(share, client, result, now);
		return;
	default:
		return;
	}
}

/* What it may not have heard. */
void pcilend_sharing_tell_again(const struct pcilend_share_client *client,
				struct pcilend_share_result *result)
{
	if (client->known && client->state <= PCILEND_CLIENT_QUARANTINED)
		share_do(result, PCILEND_SHARE_DO_TELL, client);
	if (client->state == PCILEND_CLIENT_CLEARING && client->round)
		share_do(result, PCILEND_SHARE_DO_GONE, client);
	if (client->state == PCILEND_CLIENT_QUARANTINING && client->round)
		share_do(result, PCILEND_SHARE_DO_QUARANTINE, client);
}
