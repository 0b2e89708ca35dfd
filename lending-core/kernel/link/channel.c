// SPDX-License-Identifier: GPL-2.0-only
/*
 * The control channel of a link: a ring in each host's control area, which the peer fills through
 * its memory window (wire.h). Sending, waiting for answers, and sessions; channel_receive.c has
 * the other half. But for the handshake's check, nothing reads across the link.
 */

#include <linux/io.h>
#include <linux/slab.h>

#include "link/channel.h"
#include "base/trace.h"

#define QUEUE_MAX 256		/* messages waiting for room in the peer's ring */
#define QUEUE_ROOM 128		/* bulk senders wait until there are fewer */
#define RETRY_MS 2

/* Messages we put into the peer's ring that it has not taken yet. */
static u32 channel_ring_used(struct pcilend_link *link)
{
	struct pcilend_channel *ch = &link->channel;

	lockdep_assert_held(&ch->tx_lock);
	if (!pcilend_area_is_current(link))
		return PCILEND_RING_SLOTS;
	return min_t(u32, ch->tx_head - pcilend_area_read(&link->area->tail), PCILEND_RING_SLOTS);
}

static void channel_put_into_ring(struct pcilend_link *link, u8 *slot)
{
	struct pcilend_channel *ch = &link->channel;
	struct pcilend_wire_area __iomem *peer = ch->peer;
	struct pcilend_msg_header *header = (struct pcilend_msg_header *)slot;

	lockdep_assert_held(&ch->tx_lock);
	header->sequence = cpu_to_le32(ch->tx_head);
	memcpy_toio(peer->slots[ch->tx_head % PCILEND_RING_SLOTS], slot, PCILEND_SLOT_BYTES);
	/* The message before the head that announces it. */
	wmb();
	iowrite32(++ch->tx_head, &peer->head);
	atomic64_inc(&ch->tx_messages);
	trace_pcilend_message_tx(link->peer_node, le16_to_cpu(header->type),
				 le16_to_cpu(header->flags), le16_to_cpu(header->status),
				 le32_to_cpu(header->request), ch->tx_head - 1);
}

static void channel_drop_tx_queue(struct pcilend_channel *ch)
{
	struct pcilend_message *msg, *next;

	lockdep_assert_held(&ch->tx_lock);
	list_for_each_entry_safe(msg, next, &ch->tx_queue, node) {
		list_del(&msg->node);
		kfree(msg);
	}
	ch->tx_queued = 0;
	ch->tx_stuck = 0;
	wake_up_all(&ch->tx_room);
}

static void channel_tx_work(struct work_struct *work)
{
	struct pcilend_link *link = container_of(work, struct pcilend_link, channel.tx_work.work);
	struct pcilend_channel *ch = &link->channel;
	bool sent = false, stuck = false;

	mutex_lock(&ch->tx_lock);
	while (ch->tx_open && ch->tx_queued && channel_ring_used(link) < PCILEND_RING_SLOTS) {
		struct pcilend_message *msg = list_first_entry(&ch->tx_queue,
							       struct pcilend_message, node);

		list_del(&msg->node);
		ch->tx_queued--;
		channel_put_into_ring(link, msg->slot);
		kfree(msg);
		sent = true;
	}
	if (sent || !ch->tx_queued)
		ch->tx_stuck = 0;
	if (sent)
		wake_up_all(&ch->tx_room);
	if (ch->tx_open && ch->tx_queued) {
		if (!ch->tx_stuck)
			ch->tx_stuck = pcilend_now();
		if (pcilend_now() - ch->tx_stuck > PCILEND_REQUEST_MS) {
			channel_drop_tx_queue(ch);
			stuck = true;
		} else {
			queue_delayed_work(pcilend_channel_wq, &ch->tx_work,
					   msecs_to_jiffies(RETRY_MS));
		}
	}
	mutex_unlock(&ch->tx_lock);

	if (sent)
		pcilend_link_kick_peer(link);
	if (stuck)
		pcilend_link_restart(link);
}

/*
 * Sends @slot, or queues it behind others that wait for room. Return: 0; -ENETDOWN if there is no
 * channel; -ENOBUFS if the peer takes nothing any more: the link starts over then.
 */
static int channel_transmit(struct pcilend_link *link, u8 *slot)
{
	struct pcilend_channel *ch = &link->channel;
	struct pcilend_message *msg;
	int err = 0;

	mutex_lock(&ch->tx_lock);
	if (!ch->tx_open) {
		err = -ENETDOWN;
	} else if (!ch->tx_queued && channel_ring_used(link) < PCILEND_RING_SLOTS) {
		channel_put_into_ring(link, slot);
		pcilend_link_kick_peer(link);
	} else if (ch->tx_queued >= QUEUE_MAX) {
		err = -ENOBUFS;
	} else {
		msg = kmalloc(sizeof(*msg), PCILEND_MESSAGE_GFP);
		if (msg) {
			memcpy(msg->slot, slot, PCILEND_SLOT_BYTES);
			list_add_tail(&msg->node, &ch->tx_queue);
			ch->tx_queued++;
			queue_delayed_work(pcilend_channel_wq, &ch->tx_work, 0);
		} else {
			err = -ENOMEM;
		}
	}
	mutex_unlock(&ch->tx_lock);

	if (err == -ENOBUFS)
		pcilend_link_restart(link);
	return err;
}

int pcilend_channel_send(struct pcilend_link *link, u16 type, bool answer, u16 status,
			 u32 request, const void *payload)
{
	u8 slot[PCILEND_SLOT_BYTES] __aligned(8);
	int length = pcilend_wire_length(type, answer);
	void *body;

	if (WARN_ON(length < 0))
		return length;
	body = pcilend_wire_begin(slot, type, answer, status, request, 0, link->boot);
	if (payload)
		memcpy(body, payload, length);
	return channel_transmit(link, slot);
}

/*
 * pcilend_channel_notify - tell the peer something that needs no answer
 * @payload: what belongs to @type (wire.h)
 *
 * Process context; waits for nothing but the short lock of the ring.
 * Return: 0, -ENETDOWN, -ENOMEM or -ENOBUFS.
 */
int pcilend_channel_notify(struct pcilend_link *link, u16 type, const void *payload)
{
	return pcilend_channel_send(link, type, false, PCILEND_STATUS_OK, 0, payload);
}

static bool channel_is_current(struct pcilend_channel *ch, u32 session)
{
	guard(spinlock)(&ch->lock);
	return ch->session == session;
}

/* Answers a request of session @session; an answer to an earlier one goes nowhere. */
int pcilend_channel_answer(struct pcilend_link *link, u32 session, u16 type, u32 request,
			   u16 status, const void *payload)
{
	if (!channel_is_current(&link->channel, session))
		return -ENETDOWN;
	return pcilend_channel_send(link, type, true, status, request, payload);
}

/* Answers @msg, which is a request: with @payload, or with why it is refused. */
void pcilend_channel_reply(struct pcilend_link *link, const struct pcilend_message *msg, int error,
			   const void *payload)
{
	const struct pcilend_msg_header *header = pcilend_message_header(msg);

	if (error)
		pcilend_count(PCILEND_COUNTER_A_REFUSED);
	if (msg->polled) {
		if (channel_is_current(&link->channel, msg->session))
			pcilend_channel_answer_polled(link, le16_to_cpu(header->type), msg->polled,
						      pcilend_status_from_errno(error));
		return;
	}
	pcilend_channel_answer(link, msg->session, le16_to_cpu(header->type),
			       le32_to_cpu(header->request), pcilend_status_from_errno(error),
			       payload);
}

static u32 channel_request_number(struct pcilend_channel *ch)
{
	lockdep_assert_held(&ch->lock);
	if (!++ch->next_request)
		++ch->next_request;
	return ch->next_request;
}

/*
 * pcilend_channel_request_for - ask the peer for something that takes long, and wait for its answer
 * @payload: what belongs to @type (wire.h)
 * @answer: filled in on success; NULL if it has no payload
 * @ms: at most; a multiple of PCILEND_REQUEST_MS
 *
 * Process context, sleeps. Must not be called from the work items of this link that handle
 * messages.
 *
 * Return: 0; -ENETDOWN at once if the link is down or goes down; -ETIMEDOUT, also when the peer has
 * fallen silent meanwhile; or the peer's refusal as pcilend_status_to_errno() tells it.
 */
int pcilend_channel_request_for(struct pcilend_link *link, u16 type, const void *payload,
				struct pcilend_answer *answer, unsigned int ms)
{
	struct pcilend_channel *ch = &link->channel;
	struct pcilend_waiter waiter = { .type = type, .answer = answer };
	unsigned long left = 0;
	int err;

	if (!pcilend_link_is_up(link, NULL))
		return -ENETDOWN;

	init_completion(&waiter.done);
	spin_lock(&ch->lock);
	waiter.request = channel_request_number(ch);
	list_add_tail(&waiter.node, &ch->waiters);
	spin_unlock(&ch->lock);

	err = pcilend_channel_send(link, type, false, PCILEND_STATUS_OK, waiter.request, payload);
	do {
		if (err)
			break;
		left = wait_for_completion_timeout(&waiter.done,
						   msecs_to_jiffies(PCILEND_REQUEST_MS));
		ms -= PCILEND_REQUEST_MS;
	} while (!left && ms && pcilend_link_is_up(link, NULL));

	/* Whoever completes a waiter takes it off the list, under this lock. */
	spin_lock(&ch->lock);
	if (list_empty(&waiter.node))
		left = 1;
	list_del_init(&waiter.node);
	spin_unlock(&ch->lock);

	if (err)
		return err;
	if (!left) {
		atomic64_inc(&ch->timeouts);
		return -ETIMEDOUT;
	}
	return waiter.error;
}

/* The same of what takes no longer than PCILEND_REQUEST_MS. */
int pcilend_channel_request(struct pcilend_link *link, u16 type, const void *payload,
			    struct pcilend_answer *answer)
{
	return pcilend_channel_request_for(link, type, payload, answer, PCILEND_REQUEST_MS);
}

/* Sends a request whose answer nobody waits for. */
int pcilend_channel_request_async(struct pcilend_link *link, u16 type, const void *payload)
{
	struct pcilend_channel *ch = &link->channel;
	u32 request;

	spin_lock(&ch->lock);
	request = channel_request_number(ch);
	spin_unlock(&ch->lock);
	return pcilend_channel_send(link, type, false, PCILEND_STATUS_OK, request, payload);
}

/* For bulk senders: waits, bounded, until few messages wait for room. */
void pcilend_channel_wait_room(struct pcilend_link *link)
{
	struct pcilend_channel *ch = &link->channel;

	wait_event_timeout(ch->tx_room, READ_ONCE(ch->tx_queued) < QUEUE_ROOM,
			   msecs_to_jiffies(PCILEND_REQUEST_MS));
}

static void channel_fail_waiters(struct pcilend_channel *ch, int error)
{
	struct pcilend_waiter *waiter, *next;

	lockdep_assert_held(&ch->lock);
	list_for_each_entry_safe(waiter, next, &ch->waiters, node) {
		list_del_init(&waiter->node);
		waiter->error = error;
		complete(&waiter->done);
	}
}

/*
 * Shows the peer that we live, and repeats head and tail, in case a write got lost while the link
 * was down. writer_boot last: it vouches for the rest.
 */
void pcilend_channel_beat(struct pcilend_link *link)
{
	struct pcilend_channel *ch = &link->channel;

	pcilend_channel_poll_beat(link);
	mutex_lock(&ch->rx_lock);
	ch->rx_budget = PCILEND_RX_PER_BEAT;
	mutex_lock(&ch->tx_lock);
	if (ch->tx_open) {
		struct pcilend_wire_area __iomem *peer = ch->peer;

		iowrite32(ch->tx_head, &peer->head);
		iowrite32(ch->rx_tail, &peer->tail);
		iowrite32(READ_ONCE(link->found), &peer->losses);
		ch->tx_beat++;
		iowrite32(ch->tx_beat, &peer->trail[ch->tx_beat % PCILEND_TRAIL_SLOTS]);
		/* What is looked for when it is seen. */
		wmb();
		writeq(ch->tx_beat, &peer->heartbeat);
		writeq(link->peer_boot, &peer->reader_boot);
		/* All that it vouches for. */
		wmb();
		writeq(link->boot, &peer->writer_boot);
	}
	mutex_unlock(&ch->tx_lock);
	mutex_unlock(&ch->rx_lock);
}

/*
 * pcilend_channel_open - start a session with the peer whose area is @offset into @window
 *
 * Called by the handshake, once per pair of boot ids; link->peer_node and peer_boot are set.
 * Return: 0; -ERANGE if the area is out of reach; -EAGAIN if the window does not show it (yet).
 */
int pcilend_channel_open(struct pcilend_link *link, u32 window, u64 offset, const char **why)
{
	struct pcilend_channel *ch = &link->channel;
	struct pcilend_wire_area __iomem *peer;
	phys_addr_t phys;
	u32 magic;
	u64 boot;

	if (pcilend_aperture_peer(link, window, offset, PCILEND_AREA_BYTES, &phys)) {
		*why = "the peer's control area is out of reach: give both adapters equal windows";
		return -ERANGE;
	}
	peer = ioremap(phys, PCILEND_AREA_BYTES);
	if (!peer) {
		*why = "no memory to map the peer's control area";
		return -ENOMEM;
	}
	magic = ioread32(&peer->magic);
	boot = readq(&peer->boot);
	if (magic != PCILEND_WIRE_MAGIC || boot != link->peer_boot) {
		iounmap(peer);
		*why = "the memory window does not show the peer's control area: see its IOMMU log";
		return -EAGAIN;
	}

	/* Until the first beat nobody vouches for what is there, as the head begins anew. */
	writeq(0, &peer->writer_boot);
	/* That before the head. */
	wmb();
	iowrite32(0, &peer->polled);

	mutex_lock(&ch->rx_lock);
	ch->rx_tail = 0;
	ch->rx_doubt = 0;
	ch->polled = 0;
	ch->rx_open = true;
	ch->rx_budget = PCILEND_RX_PER_BEAT;
	mutex_lock(&ch->tx_lock);
	ch->peer = peer;
	ch->tx_head = 0;
	ch->tx_open = true;
	mutex_unlock(&ch->tx_lock);
	mutex_unlock(&ch->rx_lock);
	return 0;
}

/* The link went down: nothing gets through for now, but the session goes on. */
void pcilend_channel_suspend(struct pcilend_link *link)
{
	struct pcilend_channel *ch = &link->channel;

	mutex_lock(&ch->tx_lock);
	ch->tx_open = false;
	channel_drop_tx_queue(ch);
	mutex_unlock(&ch->tx_lock);
	spin_lock(&ch->lock);
	channel_fail_waiters(ch, -ENETDOWN);
	spin_unlock(&ch->lock);
}

/* The link came back. */
void pcilend_channel_resume(struct pcilend_link *link)
{
	struct pcilend_channel *ch = &link->channel;

	mutex_lock(&ch->tx_lock);
	ch->tx_open = ch->peer;
	mutex_unlock(&ch->tx_lock);
}

/*
 * pcilend_channel_close - end the session
 *
 * On return no message of it is being handled any more, or will be. Called by the handshake.
 */
void pcilend_channel_close(struct pcilend_link *link)
{
	struct pcilend_channel *ch = &link->channel;
	void __iomem *peer;

	pcilend_channel_suspend(link);
	mutex_lock(&ch->rx_lock);
	ch->rx_open = false;
	mutex_unlock(&ch->rx_lock);
	spin_lock(&ch->lock);
	ch->session++;
	spin_unlock(&ch->lock);

	cancel_delayed_work_sync(&ch->tx_work);
	pcilend_channel_drain_requests(link);
	pcilend_channel_go_on(link);
	flush_work(&ch->notices.work);

	mutex_lock(&ch->tx_lock);
	peer = ch->peer;
	ch->peer = NULL;
	mutex_unlock(&ch->tx_lock);
	if (peer)
		iounmap(peer);
}

void pcilend_channel_init(struct pcilend_link *link)
{
	struct pcilend_channel *ch = &link->channel;

	mutex_init(&ch->rx_lock);
	mutex_init(&ch->tx_lock);
	spin_lock_init(&ch->lock);
	INIT_DELAYED_WORK(&ch->tx_work, channel_tx_work);
	INIT_LIST_HEAD(&ch->tx_queue);
	INIT_LIST_HEAD(&ch->waiters);
	init_waitqueue_head(&ch->tx_room);
	pcilend_channel_receive_init(link);
	pcilend_channel_poll_init(link);
}
