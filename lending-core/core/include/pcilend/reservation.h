/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reservations: for a time only one node, or one domain on any node, may borrow a function. The
 * lender's administrator reserves as he likes. A peer that sees the function is granted
 *
 *	- a first reservation, if it holds the lease or the function is available;
 *	- a change of a reservation, if it is for that node, was made by it, or is for the domain
 *	  that the request names: knowing a domain's UUID is what speaks for it.
 *
 * Peers keep a function from others for an hour at most: a reservation that a peer makes ends
 * within an hour of the first one since the function was last borrowed, and what an administrator
 * has reserved is not prolonged by peers. After an hour's pause, or a lease, they may again. Who
 * holds the lease keeps the function anyway: for it the hour always begins now.
 */
#ifndef PCILEND_RESERVATION_H
#define PCILEND_RESERVATION_H

#include "pcilend/platform.h"

__BEGIN_DECLS

#define PCILEND_RESERVE_PEER_MS 3600000u	/* longest hold by peers, and the pause after it */

/* Zeroed memory: not reserved. Times are monotonic milliseconds, given by the caller. */
struct pcilend_reservation {
	u32 node;	/* for this node; 0: for a domain */
	u8 uuid[16];	/* for this domain; zeroes: for a node */
	u32 maker;	/* node that asked for it; 0: this host's administrator */
	u64 until;	/* not reserved from then on; 0: not reserved */
	u64 limit;	/* peers' reservations end by then; 0: they have made none */
};

struct pcilend_reserve {
	u32 node;		/* whom for; 0: not a node */
	u8 uuid[16];		/* whom for; zeroes: not a domain. Neither: end the reservation */
	u32 ttl_ms;		/* PCILEND_RESERVE_MS_MIN to _MAX, unless it ends */
	u32 asker;		/* node; 0: this host's administrator */
	bool holds_lease;	/* the asker */
	bool available;		/* the function */
	u64 now;
};

/**
 * pcilend_reservation_set - reserve, change or end a reservation
 * @why: set on refusal, a constant sentence with the cure
 *
 * The time that peers ask for is cut to what they are granted.
 *
 * Return: 0, or with nothing changed -EINVAL (for nobody, or for two), -ERANGE (time, or peers have
 * had their hour), -EACCES (reserved for somebody else), -EAGAIN (not available).
 */
int pcilend_reservation_set(struct pcilend_reservation *r, const struct pcilend_reserve *wish,
			    const char **why);

/* Milliseconds that it still holds; 0: not reserved. */
u64 pcilend_reservation_left(const struct pcilend_reservation *r, u64 now);

/* May @node borrow, for the domain @uuid (zeroes: none)? */
bool pcilend_reservation_admits(const struct pcilend_reservation *r, u32 node, const u8 uuid[16],
				u64 now);

/* A lease was granted: peers may reserve anew after it. The reservation stays. */
void pcilend_reservation_used(struct pcilend_reservation *r);

__END_DECLS

#endif /* PCILEND_RESERVATION_H */
