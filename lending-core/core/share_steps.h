/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Steps of the machine (share.h) that its files have in common. */
#ifndef PCILEND_SHARE_STEPS_H
#define PCILEND_SHARE_STEPS_H

#include "pcilend/share.h"

static inline int share_refuse(struct pcilend_share_result *result, int error, const char *why)
{
	result->why = why;
	return error;
}

static inline struct pcilend_share_action *share_add(struct pcilend_share_result *result,
						     enum pcilend_share_action_type type)
{
	struct pcilend_share_action *action = &result->action[result->count++];

	*action = (struct pcilend_share_action){ .type = type };
	return action;
}

static inline struct pcilend_share_action *share_do(struct pcilend_share_result *result,
						    enum pcilend_share_action_type type,
						    const struct pcilend_share_client *client)
{
	struct pcilend_share_action *action = share_add(result, type);

	action->lease = client->lease;
	action->node = client->node;
	action->boot = client->boot;
	action->round = client->round;
	action->reason = client->reason;
	return action;
}

static inline struct pcilend_share_action *share_do_manager(const struct pcilend_share *share,
							    struct pcilend_share_result *result,
							    enum pcilend_share_action_type type)
{
	struct pcilend_share_action *action = share_add(result, type);

	action->lease = share->lease;
	action->node = share->node;
	action->boot = share->boot;
	return action;
}

static inline bool share_is_manager(const struct pcilend_share *share,
				    const struct pcilend_share_event *event)
{
	return share->state != PCILEND_SHARE_OFF && share->node == event->node &&
	       share->boot == event->boot;
}

static inline bool share_is_managers_lease(const struct pcilend_share *share,
					   const struct pcilend_share_event *event)
{
	return share_is_manager(share, event) && share->lease == event->lease;
}

static inline u32 share_count(const struct pcilend_share *share)
{
	u32 count = 0;
	u32 i;

	for (i = 0; i < PCILEND_SHARE_CLIENTS; i++)
		count += share->client[i].state != PCILEND_CLIENT_NONE;
	return count;
}

static inline struct pcilend_share_client *share_client(struct pcilend_share *share, u32 lease)
{
	return (struct pcilend_share_client *)pcilend_share_find(share, lease);
}

/* share.c; all clients */
void pcilend_sharing_end_all(struct pcilend_share *share, struct pcilend_share_result *result);

/* share_admit.c; as the events of these names */
int pcilend_sharing_manage(struct pcilend_share *share, const struct pcilend_share_event *event,
			   struct pcilend_share_result *result);
int pcilend_sharing_policy(struct pcilend_share *share, const struct pcilend_share_event *event,
			   struct pcilend_share_result *result);
int pcilend_sharing_join(struct pcilend_share *share, const struct pcilend_share_event *event,
			 struct pcilend_lease_numbers *numbers,
			 struct pcilend_share_result *result);

/* share_client.c; one client: what it is told, or what becomes of it */
void pcilend_sharing_release(struct pcilend_share *share, struct pcilend_share_client *client,
			     struct pcilend_share_result *result);
void pcilend_sharing_close(struct pcilend_share *share, struct pcilend_share_client *client,
			   struct pcilend_share_result *result);
void pcilend_sharing_end(struct pcilend_share *share, struct pcilend_share_client *client,
			 struct pcilend_share_result *result, enum pcilend_lost_reason reason);
void pcilend_sharing_ask(struct pcilend_share *share, struct pcilend_share_client *client,
			 struct pcilend_share_result *result, u64 now);
void pcilend_sharing_unmap(struct pcilend_share *share, struct pcilend_share_client *client,
			   struct pcilend_share_result *result);
void pcilend_sharing_map(struct pcilend_share_client *client,
			 struct pcilend_share_result *result);
void pcilend_sharing_has_no_queues(struct pcilend_share_client *client,
				   struct pcilend_share_result *result);
void pcilend_sharing_was_reset(struct pcilend_share *share,
			       struct pcilend_share_client *client,
			       struct pcilend_share_result *result, u64 now);
void pcilend_sharing_link_lost(struct pcilend_share *share,
			       struct pcilend_share_client *client,
			       struct pcilend_share_result *result, u64 now);
void pcilend_sharing_tell_again(const struct pcilend_share_client *client,
				struct pcilend_share_result *result);

#endif /* PCILEND_SHARE_STEPS_H */
