// SPDX-License-Identifier: GPL-2.0-only
/*
 * Receiving: each message is copied once, checked, and sorted. Answers wake their waiter at once;
 * notices go to a queue that is worked off in order. So do the requests about one function; those
 * about different functions are handled side by side, as a reset may take long.
 */

#include <linux/slab.h>

#include "link/channel.h"
#include "base/trace.h"

#define INCOMING_MAX 64		/* requests or notices waiting to be handled */

static void receive_take_answer(struct pcilend_link *link, const u8 *slot)
{
	const struct pcilend_msg_header *header = (const struct pcilend_msg_header *)slot;
	struct pcilend_channel *ch = &link->channel;
	u16 status = le16_to_cpu(header->status);
	struct pcilend_waiter *waiter;
	bool found = false;

	spin_lock(&ch->lock);
	list_for_each_entry(waiter, &ch->waiters, node) {
		if (waiter->request != le32_to_cpu(header->request))
			continue;
		if (waiter->type != le16_to_cpu(header->type))
			break;
		found = true;
		list_del_init(&waiter->node);
		waiter->error = pcilend_status_to_errno(status);
		if (waiter->answer) {
			waiter->answer->sequence = le32_to_cpu(header->sequence);
			memcpy(waiter->answer->payload, header + 1, PCILEND_PAYLOAD_BYTES);
		}
		complete(&waiter->done);
		break;
	}
	spin_unlock(&ch->lock);

	if (!found && status == PCILEND_STATUS_OK &&
	    le16_to_cpu(header->type) == PCILEND_MSG_HELLO)
		pcilend_hello_taken(link);
	else if (!found && status == PCILEND_STATUS_OK)
		pcilend_link_borrower->late_answer(link, le16_to_cpu(header->type), header + 1);
}

/* Return: false if the queue is full. */
static bool receive_enqueue(struct pcilend_link *link, struct pcilend_queue *queue, const u8 *slot)
{
	struct pcilend_channel *ch = &link->channel;
	struct pcilend_message *msg = kmalloc(sizeof(*msg), PCILEND_MESSAGE_GFP);

	if (!msg)
		return false;
	memcpy(msg->slot, slot, PCILEND_SLOT_BYTES);
	msg->peer = link->peer_node;
	msg->boot = link->peer_boot;

	spin_lock(&ch->lock);
	msg->session = ch->session;
	if (queue->length < INCOMING_MAX) {
		list_add_tail(&msg->node, &queue->list);
		queue->length++;
		msg = NULL;
	}
	spin_unlock(&ch->lock);

	queue_work(pcilend_wq, &queue->work);
	kfree(msg);
	return !msg;
}

/*
 * The oldest notice; ones of earlier sessions are dropped. NULL: there is none, or they must wait
 * until the link is trusted, and up: what they are a reason for is asked for over it.
 */
static struct pcilend_message *receive_next_notice(struct pcilend_link *link)
{
	struct pcilend_channel *ch = &link->channel;
	struct pcilend_queue *queue = &ch->notices;
	struct pcilend_message *msg;

	for (;;) {
		bool ready = pcilend_link_is_trusted(link) && pcilend_link_is_up(link, NULL);
		bool stale = false;

		spin_lock(&ch->lock);
		msg = list_first_entry_or_null(&queue->list, struct pcilend_message, node);
		if (msg)
			stale = msg->session != ch->session;
		if (msg && (stale || ready)) {
			list_del(&msg->node);
			queue->length--;
		}
		spin_unlock(&ch->lock);
		if (!stale)
			return ready ? msg : NULL;
		kfree(msg);
	}
}

static struct pcilend_message *receive_next_about(struct pcilend_channel *ch,
						  const struct pcilend_message *done)
{
	struct pcilend_message *msg;

	lockdep_assert_held(&ch->lock);
	list_for_each_entry(msg, &ch->requests, node) {
		if (msg != done && msg->subject == done->subject)
			return msg;
	}
	return NULL;
}

/* What the two need to know of one another is handled here; all else is for others. */
static void receive_route_request(struct pcilend_link *link,
				  const struct pcilend_message *msg)
{
	u16 type = le16_to_cpu(pcilend_message_header(msg)->type);

	if (type == PCILEND_MSG_HELLO) {
		pcilend_hello_heard(link, msg);
		pcilend_channel_reply(link, msg, 0, NULL);
	} else if (!pcilend_hello_is_heard(link)) {
		pcilend_channel_reply(link, msg, -EAGAIN, NULL);
	} else if (type == PCILEND_MSG_VOUCH) {
		pcilend_channel_reply(link, msg,
				      pcilend_link_vouch(msg->peer, pcilend_message_payload(msg)),
				      NULL);
	} else if (!pcilend_link_is_trusted(link)) {
		/* Whoever it is: until that is known it gets nothing. */
		pcilend_channel_reply(link, msg, -EAGAIN, NULL);
	} else if (type == PCILEND_MSG_MSI_RAISED) {
		pcilend_link_borrower->request(link, msg);
	} else if (type >= PCILEND_MSG_SEGMENT_CONNECT && type <= PCILEND_MSG_SEGMENT_NEXT) {
		pcilend_link_segments->request(link, msg);
	} else {
		pcilend_link_lender->request(link, msg);
	}
}

static void receive_request_work(struct work_struct *work)
{
	struct pcilend_message *msg = container_of(work, struct pcilend_message, work);
	struct pcilend_link *link = msg->link;
	struct pcilend_channel *ch = &link->channel;
	struct pcilend_message *next;
	bool current_session;

	spin_lock(&ch->lock);
	current_session = msg->session == ch->session;
	spin_unlock(&ch->lock);
	if (current_session)
		receive_route_request(link, msg);

	spin_lock(&ch->lock);
	next = receive_next_about(ch, msg);
	list_del(&msg->node);
	ch->request_count--;
	if (next)
		queue_work(pcilend_wq, &next->work);
	if (!ch->request_count)
		wake_up_all(&ch->requests_done);
	spin_unlock(&ch->lock);
	kfree(msg);
	pcilend_link_put(link);
}

/* @polled: its number, or 0. Return: false if there are too many. */
static bool receive_take_request(struct pcilend_link *link, const u8 *slot, u32 polled)
{
	const struct pcilend_msg_header *header = (const struct pcilend_msg_header *)slot;
	const struct pcilend_msg_id *about = (const struct pcilend_msg_id *)(header + 1);
	u16 type = le16_to_cpu(header->type);
	struct pcilend_channel *ch = &link->channel;
	struct pcilend_message *msg = kmalloc(sizeof(*msg), PCILEND_MESSAGE_GFP);
	bool room;

	if (!msg)
		return false;
	memcpy(msg->slot, slot, PCILEND_SLOT_BYTES);
	msg->peer = link->peer_node;
	msg->boot = link->peer_boot;
	if (type == PCILEND_MSG_SYNC || type == PCILEND_MSG_HELLO || type == PCILEND_MSG_VOUCH)
		msg->subject = 0;
	else
		msg->subject = le32_to_cpu(about->id);
	msg->polled = polled;
	msg->link = pcilend_link_get(link);
	INIT_WORK(&msg->work, receive_request_work);

	spin_lock(&ch->lock);
	msg->session = ch->session;
	room = ch->request_count < INCOMING_MAX;
	if (room) {
		bool first = !receive_next_about(ch, msg);

		list_add_tail(&msg->node, &ch->requests);
		ch->request_count++;
		if (first)
			queue_work(pcilend_wq, &msg->work);
	}
	spin_unlock(&ch->lock);
	if (!room) {
		kfree(msg);
		pcilend_link_put(link);
	}
	return room;
}

/* On return none is being handled; those of a session that is over are dropped unhandled. */
void pcilend_channel_drain_requests(struct pcilend_link *link)
{
	struct pcilend_channel *ch = &link->channel;

	wait_event(ch->requests_done, !READ_ONCE(ch->request_count));
	/* Whoever woke us has let go of the channel then. */
	spin_lock(&ch->lock);
	spin_unlock(&ch->lock);
}

static void receive_notice_work(struct work_struct *work)
{
	struct pcilend_link *link = container_of(work, struct pcilend_link, channel.notices.work);
	struct pcilend_channel *ch = &link->channel;
	unsigned int left = INCOMING_MAX;
	struct pcilend_message *msg;
	bool lost;

	while (left && (msg = receive_next_notice(link))) {
		pcilend_link_borrower->notice(link, msg);
		kfree(msg);
		left--;
	}
	/* Who flushes this item must not wait for a peer that never ends. */
	if (!left)
		queue_work(pcilend_wq, &ch->notices.work);

	spin_lock(&ch->lock);
	lost = ch->notices_lost;
	ch->notices_lost = false;
	spin_unlock(&ch->lock);
	if (lost)
		pcilend_link_borrower->notices_lost(link);
}

/* The link is trusted now: notices need not wait any more. */
void pcilend_channel_go_on(struct pcilend_link *link)
{
	queue_work(pcilend_wq, &link->channel.notices.work);
}

/* Waits for all notices that have come: those of the run that is under way, and of the next. */
void pcilend_channel_flush_notices(struct pcilend_link *link)
{
	flush_work(&link->channel.notices.work);
	flush_work(&link->channel.notices.work);
}

/*
 * pcilend_channel_bad - count and log a message that is ignored
 * @why: a constant sentence
 *
 * Process context.
 */
void pcilend_channel_bad(struct pcilend_link *link, u32 sequence, const char *why)
{
	atomic64_inc(&link->channel.bad_messages);
	trace_pcilend_message_refused(link->peer_node, sequence, why);
	if (pcilend_link_may_log(link))
		pci_warn(link->pdev, "node %u sent a bad control message: %s\n", link->peer_node,
			 why);
}

static void receive_refuse(struct pcilend_link *link, const u8 *slot, u32 sequence, const char *why)
{
	const struct pcilend_msg_header *header = (const struct pcilend_msg_header *)slot;
	u16 type = le16_to_cpu(header->type);

	lockdep_assert_held(&link->channel.rx_lock);
	pcilend_channel_bad(link, sequence, why);
	/* Answer only what really is a request of this peer's, not what a lost write left. */
	if (le64_to_cpu(header->boot) == link->peer_boot && header->request &&
	    le32_to_cpu(header->sequence) == sequence &&
	    !(le16_to_cpu(header->flags) & PCILEND_MSG_FLAG_ANSWER) &&
	    pcilend_wire_length(type, true) >= 0)
		pcilend_channel_send(link, type, true, PCILEND_STATUS_MALFORMED,
				     le32_to_cpu(header->request), NULL);
}

/*
 * The handshake is through. The peer has repeated its head since the link came back: what it wrote
 * before may never have come.
 */
void pcilend_channel_settle(struct pcilend_link *link)
{
	struct pcilend_channel *ch = &link->channel;
	u32 head;

	mutex_lock(&ch->rx_lock);
	head = pcilend_area_read(&link->area->head);
	ch->rx_doubt = head - ch->rx_tail <= PCILEND_RING_SLOTS ? head : ch->rx_tail;
	mutex_unlock(&ch->rx_lock);
}

/* Is the slot empty because the link was down when it was written? Who waits for it was told. */
static bool receive_was_lost(struct pcilend_link *link, const u8 *slot, u32 sequence)
{
	const struct pcilend_msg_header *header = (const struct pcilend_msg_header *)slot;

	lockdep_assert_held(&link->channel.rx_lock);
	if (le64_to_cpu(header->boot) == link->peer_boot &&
	    le32_to_cpu(header->sequence) == sequence)
		return false;
	return !pcilend_link_carries(link) || (s32)(link->channel.rx_doubt - sequence) > 0;
}

static void receive_take_message(struct pcilend_link *link, const u8 *slot, u32 sequence)
{
	const struct pcilend_msg_header *header = (const struct pcilend_msg_header *)slot;
	struct pcilend_channel *ch = &link->channel;
	const char *why = NULL;

	if (pcilend_wire_check(slot, link->peer_boot, sequence, &why)) {
		if (receive_was_lost(link, slot, sequence))
			trace_pcilend_message_refused(link->peer_node, sequence,
						      "lost with the link");
		else
			receive_refuse(link, slot, sequence, why);
		return;
	}
	atomic64_inc(&ch->rx_messages);
	trace_pcilend_message_rx(link->peer_node, le16_to_cpu(header->type),
				 le16_to_cpu(header->flags), le16_to_cpu(header->status),
				 le32_to_cpu(header->request), sequence);

	if (le16_to_cpu(header->flags) & PCILEND_MSG_FLAG_ANSWER) {
		receive_take_answer(link, slot);
	} else if (header->request) {
		if (!receive_take_request(link, slot, 0))
			pcilend_channel_send(link, le16_to_cpu(header->type), true,
					     PCILEND_STATUS_OVERLOAD, le32_to_cpu(header->request),
					     NULL);
	} else if (!receive_enqueue(link, &ch->notices, slot)) {
		spin_lock(&ch->lock);
		ch->notices_lost = true;
		spin_unlock(&ch->lock);
		queue_work(pcilend_wq, &ch->notices.work);
	}
}

static void receive_take_polled(struct pcilend_link *link, const u8 *slot, u32 number)
{
	const struct pcilend_msg_header *header = (const struct pcilend_msg_header *)slot;
	u16 type = le16_to_cpu(header->type);
	const char *why = NULL;

	lockdep_assert_held(&link->channel.rx_lock);
	WRITE_ONCE(link->channel.polled, number);
	if (pcilend_wire_check_polled(slot, link->peer_boot, number, &why)) {
		pcilend_channel_bad(link, number, why);
		pcilend_channel_answer_polled(link, type, number, PCILEND_STATUS_MALFORMED);
		return;
	}
	atomic64_inc(&link->channel.rx_messages);
	trace_pcilend_message_rx(link->peer_node, type, 0, PCILEND_STATUS_OK, number, number);
	if (!receive_take_request(link, slot, number))
		pcilend_channel_answer_polled(link, type, number, PCILEND_STATUS_OVERLOAD);
}

/* All that the peer has sent, in its order, as far as the budget goes. */
static void receive_take_all(struct pcilend_link *link, u32 head, u32 polled, u32 polled_head,
			     const u8 *polled_slot)
{
	struct pcilend_channel *ch = &link->channel;
	u8 slot[PCILEND_SLOT_BYTES] __aligned(8);

	lockdep_assert_held(&ch->rx_lock);
	/* It was written before what has been taken already, and is overdue. */
	if ((s32)(polled_head - ch->rx_tail) < 0)
		polled_head = ch->rx_tail;
	/* Behind a head that is just being written; or of a peer that is not honest. */
	else if (polled_head - ch->rx_tail > head - ch->rx_tail)
		polled_head = head;
	for (; ch->rx_budget; ch->rx_budget--) {
		if (polled && ch->rx_tail == polled_head) {
			receive_take_polled(link, polled_slot, polled);
			polled = 0;
		} else if (ch->rx_tail != head) {
			u32 sequence = ch->rx_tail++;

			memcpy(slot, link->area->slots[sequence % PCILEND_RING_SLOTS],
			       sizeof(slot));
			receive_take_message(link, slot, sequence);
		} else {
			return;
		}
	}
}

static void receive_rx_work(struct work_struct *work)
{
	struct pcilend_link *link = container_of(work, struct pcilend_link, channel.rx_work);
	struct pcilend_channel *ch = &link->channel;
	u8 slot[PCILEND_SLOT_BYTES] __aligned(8);
	u32 head, first, polled, polled_head = 0;

	pcilend_link_follow_trail(link);
	mutex_lock(&ch->rx_lock);
	if (!ch->rx_open || !ch->rx_budget)
		goto out;
	/*
	 * The head counts if the peer vouches for it before and after it is read: else it may be
	 * an earlier session's, or that of one that begins.
	 */
	if (!pcilend_area_is_current(link))
		goto out;
	head = pcilend_area_read(&link->area->head);
	/* A polled request that is not there yet comes after all that this head announces. */
	dma_rmb();
	polled = pcilend_channel_look_polled(link, slot, &polled_head);
	/* One that is there comes before the rest of what the head announces by now. */
	if (polled)
		head = pcilend_area_read(&link->area->head);
	dma_rmb();
	if (!pcilend_area_is_current(link) || (head == ch->rx_tail && !polled))
		goto out;
	if (head - ch->rx_tail > PCILEND_RING_SLOTS) {
		static const u8 nothing[PCILEND_SLOT_BYTES] __aligned(8);

		receive_refuse(link, nothing, head,
			       "the ring's head is more than a ring ahead of its tail");
		ch->rx_tail = head;
		ch->rx_budget--;
	}
	/* The head before the messages that it announces. */
	dma_rmb();
	first = ch->rx_tail;
	receive_take_all(link, head, polled, polled_head, slot);
	pcilend_link_heard(link, ch->rx_tail - first + (polled && ch->polled == polled));

	mutex_lock(&ch->tx_lock);
	if (ch->tx_open)
		iowrite32(ch->rx_tail, &ch->peer->tail);
	mutex_unlock(&ch->tx_lock);

	/* What came meanwhile has kicked us too, unless that doorbell was lost. */
	if (ch->rx_budget && pcilend_area_read(&link->area->head) != ch->rx_tail)
		queue_work(pcilend_channel_wq, &ch->rx_work);
	else if (!ch->rx_budget && pcilend_link_may_log(link))
		pci_warn(link->pdev, "node %u sends more than %u messages in %u ms: the rest waits\n",
			 link->peer_node, PCILEND_RX_PER_BEAT, PCILEND_HEARTBEAT_MS);
out:
	mutex_unlock(&ch->rx_lock);
}

/* Any context. */
void pcilend_channel_look(struct pcilend_link *link)
{
	queue_work(pcilend_channel_wq, &link->channel.rx_work);
}

static void receive_queue_init(struct pcilend_queue *queue, work_func_t function)
{
	INIT_LIST_HEAD(&queue->list);
	INIT_WORK(&queue->work, function);
}

void pcilend_channel_receive_init(struct pcilend_link *link)
{
	INIT_WORK(&link->channel.rx_work, receive_rx_work);
	INIT_LIST_HEAD(&link->channel.requests);
	init_waitqueue_head(&link->channel.requests_done);
	receive_queue_init(&link->channel.notices, receive_notice_work);
}
