// SPDX-License-Identifier: GPL-2.0-only
/*
 * What peers do to the offers that they have: they connect them, let go of them, ask for the next
 * one, are told what is withdrawn, and die.
 */

#include <linux/poll.h>

#include "segment/owner.h"
#include "segment/segment.h"

#define RETRY_MS 1000

static struct offer *owner_peer_find_offer(struct segment_link *sl, u32 id)
{
	struct offer *offer;

	lockdep_assert_held(&segments_lock);
	list_for_each_entry(offer, &sl->offers, of_link) {
		if (offer->segment->id == id && offer->core.state == PCILEND_OFFER_OFFERED)
			return offer;
	}
	return NULL;
}

static int owner_peer_connect(struct segment_link *sl, const struct pcilend_message *msg,
			      struct pcilend_msg_segment *place)
{
	const struct pcilend_msg_connection *in = pcilend_message_payload(msg);
	struct offer *offer, *other = NULL;
	int err;

	guard(mutex)(&segments_lock);
	offer = owner_peer_find_offer(sl, le32_to_cpu(in->id));
	if (!offer || !pcilend_link_is_peer(sl->link, offer->node, msg->boot))
		return -ENODEV;
	if (in->node) {
		other = segment_offer_to(le32_to_cpu(in->id), le32_to_cpu(in->node));
		if (!other)
			return -ENODEV;
	}
	err = pcilend_offer_connect(&offer->core, le32_to_cpu(in->connection));
	if (err)
		return err == -EEXIST ? -EPROTO : err;
	segment_owner_tell(offer->segment, offer);
	place->offer = cpu_to_le32(offer->number);
	place->offset = cpu_to_le64(offer->offset);
	place->size = cpu_to_le64(offer->segment->size);
	place->window = cpu_to_le32(offer->window);
	if (offer->read_only || (other && other->read_only))
		place->flags |= cpu_to_le32(PCILEND_SEGMENT_READ_ONLY);
	if (offer->notify.domain) {
		place->flags |= cpu_to_le32(PCILEND_SEGMENT_NOTIFIES);
		place->notify_offset = cpu_to_le32(offer->notify.offset);
		place->notify_data = cpu_to_le32(offer->notify.data);
	}
	return 0;
}

void segment_owner_connect(struct pcilend_link *link, const struct pcilend_message *msg)
{
	const struct pcilend_msg_connection *in = pcilend_message_payload(msg);
	struct pcilend_msg_segment place = { .id = in->id };
	int err = owner_peer_connect(segment_link(link), msg, &place);

	pcilend_channel_reply(link, msg, err, &place);
}

void segment_owner_release(struct pcilend_link *link, const struct pcilend_message *msg)
{
	const struct pcilend_msg_connection *in = pcilend_message_payload(msg);
	struct segment_link *sl = segment_link(link);
	struct offer *offer, *next;
	int err = -ESTALE;

	mutex_lock(&segments_lock);
	list_for_each_entry_safe(offer, next, &sl->offers, of_link) {
		if (offer->segment->id != le32_to_cpu(in->id) ||
		    pcilend_offer_release(&offer->core, le32_to_cpu(in->connection)))
			continue;
		err = 0;
		segment_owner_tell(offer->segment, offer);
		if (offer->core.state == PCILEND_OFFER_OVER)
			segment_offer_drop(offer);
		else if (segment_near_is_left(offer))
			segment_near_close(offer->segment);
		break;
	}
	mutex_unlock(&segments_lock);
	pcilend_changed();
	pcilend_channel_reply(link, msg, err, NULL);
}

/* What the peer may connect next, behind that id. */
static int owner_peer_next(struct segment_link *sl, const struct pcilend_message *msg,
			   struct pcilend_msg_offered *next)
{
	const struct pcilend_msg_after *in = pcilend_message_payload(msg);
	struct offer *offer, *found = NULL;

	guard(mutex)(&segments_lock);
	list_for_each_entry(offer, &sl->offers, of_link) {
		if (offer->core.state != PCILEND_OFFER_OFFERED ||
		    offer->segment->id <= le32_to_cpu(in->id) ||
		    (found && offer->segment->id > found->segment->id))
			continue;
		found = offer;
	}
	if (!found || !pcilend_link_is_peer(sl->link, found->node, msg->boot))
		return -ENODEV;
	next->id = cpu_to_le32(found->segment->id);
	next->size = cpu_to_le64(found->segment->size);
	if (found->read_only)
		next->flags |= cpu_to_le32(PCILEND_SEGMENT_READ_ONLY);
	if (found->notify.domain)
		next->flags |= cpu_to_le32(PCILEND_SEGMENT_NOTIFIES);
	strscpy_pad((char *)next->name, found->segment->name, sizeof(next->name));
	return 0;
}

void segment_owner_next(struct pcilend_link *link, const struct pcilend_message *msg)
{
	struct pcilend_msg_offered next = { };
	int err = owner_peer_next(segment_link(link), msg, &next);

	pcilend_channel_reply(link, msg, err, &next);
}

bool segment_owner_offers(struct segment_link *sl)
{
	struct offer *offer;

	guard(mutex)(&segments_lock);
	list_for_each_entry(offer, &sl->offers, of_link) {
		if (offer->core.state == PCILEND_OFFER_OFFERED)
			return true;
	}
	return false;
}

/* The offer after that number that the peer has to be told of. */
static bool owner_peer_next_withdrawn(struct segment_link *sl, u32 number,
				      struct pcilend_msg_withdraw *msg)
{
	struct offer *offer;
	u32 next = 0;

	guard(mutex)(&segments_lock);
	list_for_each_entry(offer, &sl->offers, of_link) {
		if (offer->core.state != PCILEND_OFFER_WITHDRAWN || offer->number <= number ||
		    (next && offer->number > next))
			continue;
		next = offer->number;
		msg->id = cpu_to_le32(offer->segment->id);
		msg->offer = cpu_to_le32(offer->number);
	}
	return next;
}

static void owner_peer_settle(struct segment_link *sl, u32 number)
{
	struct offer *offer, *next;

	guard(mutex)(&segments_lock);
	list_for_each_entry_safe(offer, next, &sl->offers, of_link) {
		if (offer->number != number)
			continue;
		pcilend_offer_settle(&offer->core);
		segment_offer_drop(offer);
	}
}

static void owner_peer_tell_work(struct work_struct *work)
{
	struct segment_link *sl = container_of(work, struct segment_link, tell.work);
	struct pcilend_msg_withdraw msg;
	bool again = false;
	u32 number = 0;
	int err;

	while (owner_peer_next_withdrawn(sl, number, &msg)) {
		number = le32_to_cpu(msg.offer);
		err = pcilend_channel_request(sl->link, PCILEND_MSG_SEGMENT_WITHDRAW, &msg, NULL);
		if (!err)
			owner_peer_settle(sl, number);
		/* Over a link that is down: segment_owner_up() makes up for it. */
		else if (err != -ENETDOWN)
			again = true;
		else
			break;
	}
	pcilend_changed();
	if (again)
		queue_delayed_work(pcilend_wq, &sl->tell, msecs_to_jiffies(RETRY_MS));
}

void segment_owner_link_init(struct segment_link *sl)
{
	INIT_LIST_HEAD(&sl->offers);
	INIT_DELAYED_WORK(&sl->tell, owner_peer_tell_work);
}

void segment_owner_up(struct segment_link *sl)
{
	u16 node;

	mutex_lock(&segments_lock);
	if (pcilend_link_is_up(sl->link, &node))
		sl->node = node;
	mutex_unlock(&segments_lock);
	mod_delayed_work(pcilend_wq, &sl->tell, 0);
}

static void owner_peer_end_offers(struct segment_link *sl)
{
	struct offer *offer, *next;

	lockdep_assert_held(&segments_lock);
	sl->node = 0;
	list_for_each_entry_safe(offer, next, &sl->offers, of_link) {
		struct segment *segment = offer->segment;

		if (offer->core.state == PCILEND_OFFER_OFFERED && !segment->closed) {
			WRITE_ONCE(segment->ended, true);
			wake_up_interruptible_poll(&segment->wait, EPOLLPRI);
		}
		segment_offer_withdraw(offer);
	}
}

void segment_owner_expelled(struct segment_link *sl)
{
	guard(mutex)(&segments_lock);
	owner_peer_end_offers(sl);
}

void segment_owner_peer_dead(struct segment_link *sl)
{
	struct offer *offer, *next;

	guard(mutex)(&segments_lock);
	owner_peer_end_offers(sl);
	list_for_each_entry_safe(offer, next, &sl->offers, of_link) {
		pcilend_offer_settle(&offer->core);
		segment_offer_drop(offer);
	}
}
