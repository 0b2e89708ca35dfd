/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Segments: memory of one host that processes of others map. Its owner offers a segment to nodes;
 * an offer is a range of the aperture of one link, where the segment's pages are mapped, and
 * nothing else than that reaches them. A connection is one use of an offer by the peer.
 *
 * What must hold, whatever gets lost between the two: a range of the aperture is given to nothing
 * else while a process of the peer may have it in its page tables.
 *
 *	offer (on the owner's host)
 *
 *	OFFERED <-> itself	connect, release
 *	OFFERED -> WITHDRAWN	withdraw, while there are connections
 *	OFFERED -> OVER		withdraw, when there are none
 *	WITHDRAWN -> OVER	the last one is released; or settle: the peer has said that it
 *				reaches nothing, or is dead
 *
 * The pages are mapped while it is OFFERED; the range is taken until it is OVER.
 *
 *	connection (on the peer's host)
 *
 *	ASKING -> OPEN		granted
 *	ASKING -> CLOSED	refused, no answer, or something was lost meanwhile
 *	OPEN -> LOST		the link is lost, or the offer withdrawn
 *	OPEN, LOST -> CLOSED	nobody has it any more
 *
 * The window's pages are mapped while it is OPEN. It is owed from the question until the owner has
 * refused it, or was told that it is released: what had no answer may have been granted.
 * Connections have numbers that the peer chooses and never uses twice, so that a release may be
 * repeated.
 *
 * Callers serialise access.
 */
#ifndef PCILEND_SEGMENT_H
#define PCILEND_SEGMENT_H

#include "pcilend/platform.h"

__BEGIN_DECLS

/* Bytes of a segment; the upper bound keeps sums from wrapping. */
#define PCILEND_SEGMENT_BYTES_MAX BIT_ULL(40)
/* What a lender has for who has borrowed a function: unless it says so, and at most. */
#define PCILEND_NEAR_BYTES BIT_ULL(22)
#define PCILEND_NEAR_BYTES_MAX BIT_ULL(30)
/* Of one offer. */
#define PCILEND_OFFER_CONNECTIONS 64

enum pcilend_offer_state {
	PCILEND_OFFER_OFFERED = 0,
	PCILEND_OFFER_WITHDRAWN = 1,
	PCILEND_OFFER_OVER = 2,
};

/* Zeroed memory: offered, with no connections. */
struct pcilend_offer {
	enum pcilend_offer_state state;
	u32 count;
	u32 connection[PCILEND_OFFER_CONNECTIONS];	/* their numbers, by the peer */
};

/*
 * The peer uses it, too. Return: 0; -ENODEV if it is not offered any more; -EEXIST if that number
 * is there; -ENOSPC if there are too many.
 */
int pcilend_offer_connect(struct pcilend_offer *offer, u32 connection);

/* The peer no longer does. Return: 0; -ESTALE if there is no such connection. */
int pcilend_offer_release(struct pcilend_offer *offer, u32 connection);

/* The pages are unmapped, or are about to be before anything else happens to it. */
void pcilend_offer_withdraw(struct pcilend_offer *offer);

/* After pcilend_offer_withdraw(): nothing of the peer reaches the range any more. */
void pcilend_offer_settle(struct pcilend_offer *offer);

enum pcilend_connection_state {
	PCILEND_CONNECTION_ASKING = 0,
	PCILEND_CONNECTION_OPEN = 1,
	PCILEND_CONNECTION_LOST = 2,
	PCILEND_CONNECTION_CLOSED = 3,
};

/* Zeroed memory, and pcilend_connection_ask(). */
struct pcilend_connection {
	enum pcilend_connection_state state;
	bool owed;		/* the owner may count on it */
	bool doubt;		/* while ASKING: something was lost, or withdrawn */
	u32 offer;		/* number of the offer, once OPEN */
};

/* What became of the question. */
enum pcilend_connection_answer {
	PCILEND_CONNECTION_GRANTED,
	PCILEND_CONNECTION_REFUSED,	/* by the owner */
	PCILEND_CONNECTION_UNANSWERED,	/* or with something that can't be used */
};

/* The owner is about to be asked. */
void pcilend_connection_ask(struct pcilend_connection *c);

/* Return: is it OPEN? Else it is CLOSED. */
bool pcilend_connection_answered(struct pcilend_connection *c,
				 enum pcilend_connection_answer answer, u32 offer);

/*
 * The owner has withdrawn that offer of the segment which the connection is of. Return: was it
 * OPEN? Its pages must be unmapped then before the owner is answered.
 */
bool pcilend_connection_withdrawn(struct pcilend_connection *c, u32 offer);

/* The link was lost. Return: was it OPEN? Its pages must be unmapped then. */
bool pcilend_connection_lost(struct pcilend_connection *c);

/* That boot of the owner's host is over. Return: as pcilend_connection_lost(). */
bool pcilend_connection_owner_dead(struct pcilend_connection *c);

/* Nobody has it any more, nor its pages. */
void pcilend_connection_close(struct pcilend_connection *c);

/* Is the owner to be told that it is released? */
bool pcilend_connection_to_release(const struct pcilend_connection *c);

/* It was told. */
void pcilend_connection_released(struct pcilend_connection *c);

/* Nothing more happens to it. */
static inline bool pcilend_connection_is_over(const struct pcilend_connection *c)
{
	return c->state == PCILEND_CONNECTION_CLOSED && !c->owed;
}

__END_DECLS

#endif /* PCILEND_SEGMENT_H */
