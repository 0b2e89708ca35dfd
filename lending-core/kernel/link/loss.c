// SPDX-License-Identifier: GPL-2.0-only
/*
 * Lost links. What is under way while a link is down is gone, however short that was. So a loss
 * that is signalled counts at once, whatever the handshake still believes: nothing is carried
 * until that is through again.
 */

#include "link/session.h"

static void lose(struct pcilend_link *link)
{
	lockdep_assert_held(&link->loss_lock);
	link->losses += link->carries;
	WRITE_ONCE(link->carries, false);
	link->lost = true;
	pcilend_link_lender->lost(link);
}

/* The link is lost, or was for a moment: no DMA over it. Any context. */
void pcilend_link_lost(struct pcilend_link *link)
{
	unsigned long flags;

	spin_lock_irqsave(&link->loss_lock, flags);
	lose(link);
	spin_unlock_irqrestore(&link->loss_lock, flags);
}

/*
 * The driver says that the state of the link has changed. The link may be up again by then: an
 * interrupt that finds it up, although it was up at the event before, tells of a loss too. (From
 * process context drivers tell what they found when they polled, changed or not.)
 */
void pcilend_link_event(struct pcilend_link *link)
{
	bool up = ntb_link_is_up(link->ntb, NULL, NULL);
	unsigned long flags;

	spin_lock_irqsave(&link->loss_lock, flags);
	if (!up || (link->was_up && in_hardirq()))
		lose(link);
	link->was_up = up;
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
	unsigned long flags;
	bool lost;

	spin_lock_irqsave(&link->loss_lock, flags);
	lost = link->lost;
	link->lost = false;
	spin_unlock_irqrestore(&link->loss_lock, flags);
	return lost;
}

/* The handshake is over: DMA may go on, unless the link was lost again meanwhile. */
void pcilend_link_carries(struct pcilend_link *link)
{
	unsigned long flags;

	spin_lock_irqsave(&link->loss_lock, flags);
	link->was_up = true;
	WRITE_ONCE(link->carries, !link->lost);
	spin_unlock_irqrestore(&link->loss_lock, flags);
}
