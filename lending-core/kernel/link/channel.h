/* SPDX-License-Identifier: GPL-2.0-only */
/* Shared by the files of the control channel. */
#ifndef PCILEND_CHANNEL_H
#define PCILEND_CHANNEL_H

#include "link/session.h"

/* Of messages that wait, few and small: in work items that others wait for to free memory. */
#define PCILEND_MESSAGE_GFP (GFP_ATOMIC | __GFP_NOWARN)

/* Someone who waits for an answer; whoever answers takes it off the list. */
struct pcilend_waiter {
	struct list_head node;		/* pcilend_channel.lock */
	struct completion done;
	u32 request;
	u16 type;
	int error;
	struct pcilend_answer *answer;
};

static inline u32 pcilend_area_read(const __le32 *field)
{
	return le32_to_cpu(READ_ONCE(*field));
}

/* Does the peer vouch in this session for what stands in our area? Else it is of an earlier one. */
static inline bool pcilend_area_is_current(struct pcilend_link *link)
{
	return pcilend_area_writer(link) == link->peer_boot;
}

int pcilend_channel_send(struct pcilend_link *link, u16 type, bool answer, u16 status,
			 u32 request, const void *payload);
void pcilend_channel_drain_requests(struct pcilend_link *link);
u32 pcilend_channel_look_polled(struct pcilend_link *link, u8 slot[PCILEND_SLOT_BYTES], u32 *head);
int pcilend_channel_answer_polled(struct pcilend_link *link, u16 type, u32 number, u16 status);
void pcilend_channel_poll_beat(struct pcilend_link *link);
void pcilend_channel_poll_init(struct pcilend_link *link);
void pcilend_channel_receive_init(struct pcilend_link *link);

#endif /* PCILEND_CHANNEL_H */
