// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Offers of segments, and connections to them; see segment.h. */

#include "pcilend/segment.h"

/* Its place, or count if there is none of that number. */
static u32 segment_find_connection(const struct pcilend_offer *offer, u32 connection)
{
	u32 i = 0;

	while (i < offer->count && offer->connection[i] != connection)
		i++;
	return i;
}

int pcilend_offer_connect(struct pcilend_offer *offer, u32 connection)
{
	if (offer->state != PCILEND_OFFER_OFFERED)
		return -ENODEV;
	if (segment_find_connection(offer, connection) < offer->count)
		return -EEXIST;
	if (offer->count == PCILEND_OFFER_CONNECTIONS)
		return -ENOSPC;
	offer->connection[offer->count++] = connection;
	return 0;
}

int pcilend_offer_release(struct pcilend_offer *offer, u32 connection)
{
	u32 i = segment_find_connection(offer, connection);

	if (offer->state == PCILEND_OFFER_OVER || i == offer->count)
		return -ESTALE;
	offer->connection[i] = offer->connection[--offer->count];
	if (offer->state == PCILEND_OFFER_WITHDRAWN && !offer->count)
		offer->state = PCILEND_OFFER_OVER;
	return 0;
}

void pcilend_offer_withdraw(struct pcilend_offer *offer)
{
	if (offer->state == PCILEND_OFFER_OFFERED)
		offer->state = offer->count ? PCILEND_OFFER_WITHDRAWN : PCILEND_OFFER_OVER;
}

void pcilend_offer_settle(struct pcilend_offer *offer)
{
	if (offer->state != PCILEND_OFFER_WITHDRAWN)
		return;
	offer->count = 0;
	offer->state = PCILEND_OFFER_OVER;
}

void pcilend_connection_ask(struct pcilend_connection *c)
{
	*c = (struct pcilend_connection){ .owed = true };
}

bool pcilend_connection_answered(struct pcilend_connection *c,
				 enum pcilend_connection_answer answer, u32 offer)
{
	if (answer == PCILEND_CONNECTION_REFUSED)
		c->owed = false;
	if (answer != PCILEND_CONNECTION_GRANTED || c->doubt) {
		c->state = PCILEND_CONNECTION_CLOSED;
		return false;
	}
	c->state = PCILEND_CONNECTION_OPEN;
	c->offer = offer;
	return true;
}

bool pcilend_connection_withdrawn(struct pcilend_connection *c, u32 offer)
{
	if (c->state == PCILEND_CONNECTION_ASKING)
		c->doubt = true;
	if (c->state == PCILEND_CONNECTION_ASKING || c->offer != offer)
		return false;
	/* The answer to this is what tells the owner. */
	c->owed = false;
	if (c->state != PCILEND_CONNECTION_OPEN)
		return false;
	c->state = PCILEND_CONNECTION_LOST;
	return true;
}

bool pcilend_connection_lost(struct pcilend_connection *c)
{
	if (c->state == PCILEND_CONNECTION_ASKING)
		c->doubt = true;
	if (c->state != PCILEND_CONNECTION_OPEN)
		return false;
	c->state = PCILEND_CONNECTION_LOST;
	return true;
}

bool pcilend_connection_owner_dead(struct pcilend_connection *c)
{
	bool open = pcilend_connection_lost(c);

	/* One that is still asked for is released by its answer. */
	if (c->state != PCILEND_CONNECTION_ASKING)
		c->owed = false;
	return open;
}

void pcilend_connection_close(struct pcilend_connection *c)
{
	c->state = PCILEND_CONNECTION_CLOSED;
}

bool pcilend_connection_to_release(const struct pcilend_connection *c)
{
	return c->owed && (c->state == PCILEND_CONNECTION_LOST ||
			   c->state == PCILEND_CONNECTION_CLOSED);
}

void pcilend_connection_released(struct pcilend_connection *c)
{
	c->owed = false;
}
