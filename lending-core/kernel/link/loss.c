// SPDX-License-Identifier: GPL-2.0-only
/*
 * Lost links. What is under way while a link is down is gone, however short that was. So a loss
 * that is signalled counts at once, whatever the handshake still believes: nothing is carried
 * until that is through again.
 */

#include "link/session.h"

/* One step of the carrier's, which others read without the lock. */
static bool loss_step(struct pcilend_link *link, bool (*step)(enum pcilend_carrier *carrier))
{
	enum pcilend_carrier carrier;
	bool answer;

	lockdep_assert_held(&link->loss_lock);
	carrier = link->carrier;
	answer = step(&carrier);
	WRITE_ONCE(link->carrier, carrier);
	return answer;
}

/* The same for who does not have the lock. */
static bool loss_step_alone(struct pcilend_link *link,
			    bool (*step)(enum pcilend_carrier *carrier))
{
	unsigned long flags;
	bool answer;

	spin_lock_irqsave(&link->loss_lock, flags);
	answer = loss_step(link, step);
	spin_unlock_irqrestore(&link->loss_lock, flags);
	return answer;
}

/* @found: by this host, which the peer has to hear of. */
static void loss_happened(struct pcilend_link *link, bool found)
{
	bool carried;

	lockdep_assert_held(&link->loss_lock);
	carried = loss_step(link, pcilend_carrier_lose);
	link->losses += carried;
	if (found && carried)
		WRITE_ONCE(link->found, link->found + 1);
	pcilend_link_lender->lost(link);
	if (carried)
		pcilend_link_segments->lost(link);
}

static void loss_count(struct pcilend_link *link, bool found)
{
	unsigned long flags;

	spin_lock_irqsave(&link->loss_lock, flags);
	loss_happened(link, found);
	spin_unlock_irqrestore(&link->loss_lock, flags);
}

/* The link is lost, or was for a moment: no DMA over it. Any context. */
void pcilend_link_lost(struct pcilend_link *link)
{
	loss_count(link, true);
}

/* The same, and the peer knows it already. */
void pcilend_link_lost_by_peer(struct pcilend_link *link)
{
	loss_count(link, false);
}

/*
 * The driver says that the state of the link has changed; from which context, and how often, is its
 * own business. The link may be up again by then, so every event of a link that carries counts as
 * a loss. One while it does not carry is part of how it comes up.
 */
void pcilend_link_event(struct pcilend_link *link)
{
	bool up = pcilend_link_adapter_is_up(link);
	unsigned long flags;

	spin_lock_irqsave(&link->loss_lock, flags);
	WRITE_ONCE(link->event_at, pcilend_now());
	if (!up || pcilend_link_carries(link))
		loss_happened(link, true);
	spin_unlock_irqrestore(&link->loss_lock, flags);
}

/* How many times it has been lost: what was under way then is gone. */
u64 pcilend_link_losses(struct pcilend_link *link)
{
	unsigned long flags;
	u64 losses;

	spin_lock_irqsave(&link->loss_lock, flags);
	losses = link->losses;
	spin_unlock_irqrestore(&link->loss_lock, flags);
	return losses;
}

/* Has it been lost since the handshake last asked? */
bool pcilend_link_take_lost(struct pcilend_link *link)
{
	return loss_step_alone(link, pcilend_carrier_take_lost);
}

/* The handshake is over: DMA may go on, unless the link was lost again meanwhile. */
void pcilend_link_met(struct pcilend_link *link)
{
	loss_step_alone(link, pcilend_carrier_met);
}
