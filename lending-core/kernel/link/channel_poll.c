// SPDX-License-Identifier: GPL-2.0-only
/*
 * Polled requests: for who has to have the peer's answer and may not sleep, as a config write of a
 * driver does. There is room for one beside the ring (wire.h), and the answer is written to where
 * the sender polls for it: no work item of this host has to run for it. xen-pcifront does the same
 * with the other domain.
 *
 * A peer can make senders wait, with interrupts off. So the time for it is limited, for each and on
 * the whole; what is not answered in time may be asked for by the ring.
 */

#include <linux/delay.h>
#include <linux/io.h>
#include <linux/random.h>

#include "link/channel.h"
#include "base/trace.h"

/* What a peer that answers late may cost: all of one request, and a fifth of a processor's time. */
#define POLL_NS (PCILEND_POLL_MS * NSEC_PER_MSEC)
#define POLL_NS_PER_BEAT (PCILEND_HEARTBEAT_MS * NSEC_PER_MSEC / 5)
/* An answer that has not come by then does not: it may be lost with the link. */
#define LATE_BEATS (PCILEND_REQUEST_MS / PCILEND_HEARTBEAT_MS)

static u64 poll_answer(struct pcilend_link *link)
{
	return le64_to_cpu(READ_ONCE(link->area->polled_answer));
}

static u32 poll_send(struct pcilend_link *link, u16 type, const void *payload)
{
	struct pcilend_channel *ch = &link->channel;
	struct pcilend_wire_area __iomem *peer = ch->poll_peer;
	u8 slot[PCILEND_SLOT_BYTES] __aligned(8);
	u32 number;
	void *body;

	lockdep_assert_held(&ch->poll_lock);
	number = ++ch->poll_number ?: ++ch->poll_number;
	body = pcilend_wire_begin(slot, type, false, PCILEND_STATUS_OK, number, number,
				  link->boot);
	memcpy(body, payload, pcilend_wire_length(type, false));

	iowrite32(0, &peer->polled);
	/* No number while the slot changes. */
	wmb();
	iowrite32(READ_ONCE(ch->tx_head), &peer->polled_head);
	memcpy_toio(peer->polled_slot, slot, PCILEND_SLOT_BYTES);
	/* The request before its number. */
	wmb();
	iowrite32(number, &peer->polled);
	atomic64_inc(&ch->tx_messages);
	trace_pcilend_message_tx(link->peer_node, type, 0, PCILEND_STATUS_OK, number, number);
	pcilend_link_kick_peer(link);
	return number;
}

static int poll_wait(struct pcilend_link *link, u32 number)
{
	struct pcilend_channel *ch = &link->channel;
	u64 begin = ktime_get_ns(), spent, answer;
	int err = -EINPROGRESS;

	lockdep_assert_held(&ch->poll_lock);
	do {
		answer = poll_answer(link);
		spent = ktime_get_ns() - begin;
		if (pcilend_polled_number(answer) == number)
			err = pcilend_status_to_errno(pcilend_polled_status(answer));
		else if (!pcilend_link_carries(link))
			err = -ENETDOWN;
		else if (spent >= ch->poll_left)
			err = -ETIMEDOUT;
		else
			udelay(1);
	} while (err == -EINPROGRESS);
	ch->poll_left -= min(spent, ch->poll_left);
	return err;
}

/*
 * pcilend_channel_poll - ask the peer for something, and poll for its answer
 * @type: one that pcilend_wire_check_polled() lets through
 * @payload: what belongs to it (wire.h)
 *
 * Any context. Waits for up to PCILEND_POLL_MS with interrupts off; and for others who do so over
 * this link, which all of them share the time with.
 *
 * Return: 0; the peer's refusal as pcilend_status_to_errno() tells it; -ENETDOWN at once if the
 * link is not up; or, if it may be done all the same, -ENETDOWN when the link is lost meanwhile,
 * -ETIMEDOUT, and -EBUSY at once while one that was not answered in time still is not, or if too
 * much time has been spent.
 */
int pcilend_channel_poll(struct pcilend_link *link, u16 type, const void *payload)
{
	struct pcilend_channel *ch = &link->channel;
	int err;

	guard(raw_spinlock_irqsave)(&ch->poll_lock);
	if (!ch->poll_peer)
		return -ENETDOWN;
	if (ch->poll_late && pcilend_polled_number(poll_answer(link)) != ch->poll_number)
		return -EBUSY;
	if (!ch->poll_left)
		return -EBUSY;
	err = poll_wait(link, poll_send(link, type, payload));
	ch->poll_late = err == -ETIMEDOUT ? LATE_BEATS : 0;
	return err;
}

/* Whether the link is up. Called by who changes that; on return nobody polls if it is not. */
void pcilend_channel_set_polling(struct pcilend_link *link, bool up)
{
	struct pcilend_channel *ch = &link->channel;

	guard(raw_spinlock_irqsave)(&ch->poll_lock);
	ch->poll_peer = up ? ch->peer : NULL;
	ch->poll_late = 0;
}

/* Another beat: there is time again. The beat does not wait for who polls. */
void pcilend_channel_poll_beat(struct pcilend_link *link)
{
	struct pcilend_channel *ch = &link->channel;
	unsigned long flags;

	if (!raw_spin_trylock_irqsave(&ch->poll_lock, flags))
		return;
	ch->poll_left = min(ch->poll_left + POLL_NS_PER_BEAT, POLL_NS);
	if (ch->poll_late)
		ch->poll_late--;
	raw_spin_unlock_irqrestore(&ch->poll_lock, flags);
}

/*
 * Copies the peer's polled request. @head: of the ring, before it. Return: its number; 0: there is
 * none that was not taken, or not yet all of it.
 */
u32 pcilend_channel_look_polled(struct pcilend_link *link, u8 slot[PCILEND_SLOT_BYTES], u32 *head)
{
	struct pcilend_channel *ch = &link->channel;
	u32 number = pcilend_area_read(&link->area->polled);

	lockdep_assert_held(&ch->rx_lock);
	if (!number || number == ch->polled)
		return 0;
	dma_rmb();
	*head = pcilend_area_read(&link->area->polled_head);
	memcpy(slot, link->area->polled_slot, PCILEND_SLOT_BYTES);
	dma_rmb();
	return pcilend_area_read(&link->area->polled) == number ? number : 0;
}

/* Process context. The answer to a request that another one has followed nobody waits for. */
int pcilend_channel_answer_polled(struct pcilend_link *link, u16 type, u32 number, u16 status)
{
	struct pcilend_channel *ch = &link->channel;

	guard(mutex)(&ch->tx_lock);
	if (!ch->tx_open)
		return -ENETDOWN;
	if (number != READ_ONCE(ch->polled))
		return -ESTALE;
	writeq(pcilend_polled_answer(number, status), &ch->peer->polled_answer);
	atomic64_inc(&ch->tx_messages);
	trace_pcilend_message_tx(link->peer_node, type, PCILEND_MSG_FLAG_ANSWER, status, number,
				 number);
	return 0;
}

void pcilend_channel_poll_init(struct pcilend_link *link)
{
	raw_spin_lock_init(&link->channel.poll_lock);
	link->channel.poll_left = POLL_NS;
	/* An answer to a request of a former boot is none to one of this. */
	link->channel.poll_number = get_random_u32();
}
