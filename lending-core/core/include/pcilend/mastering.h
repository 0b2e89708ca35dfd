/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Bus mastering of a lent function, and what a lost link means for it.
 *
 * What a function writes while the link of its lease is down is gone, and what it reads is made up.
 * A device that stalls instead of failing would complete such a command later, and nobody would
 * notice the wrong data. So a loss switches bus mastering off at once, and a function that had it
 * on is reset before it may have it again (docs/decisions/0006). The same goes for a function that
 * reaches a BAR of another lender over a link that is lost; that BAR is unmapped first.
 *
 * The link, as far as DMA over it is concerned:
 *
 *	         take_lost                 met
 *	LOST ---------------> MEETING -----------> CARRIES
 *	  ^                      |                    |
 *	  +--------- lost -------+------- lost -------+
 *
 * The function, from the moment it is lent until it is fenced:
 *
 *	            want, may not                     may
 *	     +------------------------> WAITING --------------+
 *	     |                             ^                  v
 *	    OFF ---------- want, may ------+----------------> ON
 *	     ^                             |                  |
 *	     | ended                want,  |                  | lost, cut, foreign
 *	     | (from each)          may not|                  v
 *	   (each)                        RESET <- recovered - STALE
 *
 * "May" is: the link carries, and nothing is cut. In WAITING and ON the borrower can say that it
 * wants bus mastering no more (OFF). In RESET the borrower has not been heard since the reset; that
 * it wants bus mastering leads on as from OFF. A reset by somebody else (FOREIGN) leads to STALE
 * from each of them.
 *
 * All functions here are called under one lock of the caller, in any context.
 */
#ifndef PCILEND_MASTERING_H
#define PCILEND_MASTERING_H

#include "pcilend/platform.h"

__BEGIN_DECLS

enum pcilend_carrier {
	PCILEND_CARRIER_LOST,		/* since the handshake last asked */
	PCILEND_CARRIER_MEETING,	/* the handshake knows of all losses */
	PCILEND_CARRIER_CARRIES,
};

/* Return: was it carrying, so that what was under way is lost? */
bool pcilend_carrier_lose(enum pcilend_carrier *carrier);

/* The handshake asks. Return: was it lost since it last did? */
bool pcilend_carrier_take_lost(enum pcilend_carrier *carrier);

/* The handshake is over. Return: does it carry? It does not if it was lost again meanwhile. */
bool pcilend_carrier_met(enum pcilend_carrier *carrier);

enum pcilend_mastering_state {
	PCILEND_MASTERING_OFF,
	PCILEND_MASTERING_WAITING,	/* wanted; off until it may */
	PCILEND_MASTERING_ON,
	PCILEND_MASTERING_STALE,	/* off, by a loss: to be reset first */
	PCILEND_MASTERING_RESET,	/* off; was reset for that, borrower not heard since */
};

struct pcilend_mastering {
	enum pcilend_mastering_state state;
	bool cut;	/* it reached another lender over a lost link: not unmapped yet */
};

enum pcilend_mastering_event {
	PCILEND_MASTERING_WANT,		/* the borrower wants it on */
	PCILEND_MASTERING_DONT_WANT,	/* ... off */
	PCILEND_MASTERING_LOST,		/* the link of the lease is lost */
	PCILEND_MASTERING_CUT,		/* a link over which it reaches another lender is */
	PCILEND_MASTERING_UNMAP,	/* what was reached over such links is unmapped next */
	PCILEND_MASTERING_RETRY,	/* it is unmapped, or the link carries again */
	PCILEND_MASTERING_RESUME,	/* as RETRY, and the borrower hears again what it may */
					/* have missed */
	PCILEND_MASTERING_FOREIGN,	/* somebody else resets it, or has */
	PCILEND_MASTERING_RECOVERED,	/* was reset, because RETRY said so */
	PCILEND_MASTERING_ENDED,	/* was reset for another reason, or fenced */
};

/* What the caller does then, in this order. */
enum pcilend_mastering_todo {
	PCILEND_MASTERING_SWITCH_OFF = 1 << 0,	/* under the same lock */
	PCILEND_MASTERING_SWITCH_ON = 1 << 1,	/* under the same lock */
	PCILEND_MASTERING_RECOVER = 1 << 2,	/* UNMAP; then RETRY, and if that says so: reset */
	PCILEND_MASTERING_TELL = 1 << 3,	/* the borrower: it was reset */
};

/**
 * pcilend_mastering_step - something happened to a lent function
 * @m: its state; zeroes when it is lent
 * @event: what
 * @carries: does the link of the lease carry now
 *
 * Return: bits of enum pcilend_mastering_todo
 */
u32 pcilend_mastering_step(struct pcilend_mastering *m, enum pcilend_mastering_event event,
			   bool carries);

__END_DECLS

#endif /* PCILEND_MASTERING_H */
