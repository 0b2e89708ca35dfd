// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Reservations of functions; see reservation.h. */

#include "pcilend/identity.h"
#include "pcilend/reservation.h"
#include "pcilend/wire.h"

static const u8 no_uuid[16];

static bool reservation_is_zero(const u8 uuid[16])
{
	return !memcmp(uuid, no_uuid, sizeof(no_uuid));
}

static int reservation_refuse(const char **why, int error, const char *sentence)
{
	*why = sentence;
	return error;
}

static bool reservation_ends(const struct pcilend_reserve *wish)
{
	return !wish->node && reservation_is_zero(wish->uuid);
}

static int reservation_check(const struct pcilend_reserve *wish, const char **why)
{
	if (wish->node > PCILEND_NODE_MAX || (wish->node && !reservation_is_zero(wish->uuid)))
		return reservation_refuse(why, -EINVAL, "reserve it for one node, 1 to 65535, or for one domain");
	if (!reservation_ends(wish) && (wish->ttl_ms < PCILEND_RESERVE_MS_MIN ||
					wish->ttl_ms > PCILEND_RESERVE_MS_MAX))
		return reservation_refuse(why, -ERANGE,
					  "a reservation holds from 1 second to 24 hours");
	return 0;
}

/* Does a peer speak for whom it is reserved for? */
static bool reservation_is_its_own(const struct pcilend_reservation *r,
				   const struct pcilend_reserve *wish)
{
	return r->node == wish->asker || r->maker == wish->asker ||
	       (!reservation_is_zero(r->uuid) && !memcmp(r->uuid, wish->uuid, sizeof(r->uuid)));
}

static int reservation_check_peer(const struct pcilend_reservation *r,
				  const struct pcilend_reserve *wish, const char **why)
{
	if (pcilend_reservation_left(r, wish->now)) {
		if (!reservation_is_its_own(r, wish))
			return reservation_refuse(why, -EACCES, "it is reserved for somebody else");
	} else if (!wish->holds_lease && !wish->available) {
		return reservation_refuse(why, -EAGAIN,
					  "it is not available: reserve it when it is");
	}
	return 0;
}

/* When a peer's reservation must be over. */
static u64 reservation_peers_limit(const struct pcilend_reservation *r,
				   const struct pcilend_reserve *wish)
{
	if (pcilend_reservation_left(r, wish->now) && !r->maker)
		return r->until;
	if (wish->holds_lease || !r->limit || wish->now >= r->limit + PCILEND_RESERVE_PEER_MS)
		return wish->now + PCILEND_RESERVE_PEER_MS;
	return r->limit;
}

int pcilend_reservation_set(struct pcilend_reservation *r, const struct pcilend_reserve *wish,
			    const char **why)
{
	u64 until = wish->now + wish->ttl_ms;
	u64 limit = until;
	int error = reservation_check(wish, why);

	if (!error && wish->asker)
		error = reservation_check_peer(r, wish, why);
	if (error)
		return error;
	if (reservation_ends(wish)) {
		r->until = 0;
		return 0;
	}
	if (wish->asker) {
		limit = reservation_peers_limit(r, wish);
		if (until > limit)
			until = limit;
		if (until <= wish->now)
			return reservation_refuse(why, -ERANGE, "peers have reserved it for an hour: borrow it, or reserve it on its lender");
	}
	r->node = wish->node;
	memcpy(r->uuid, wish->uuid, sizeof(r->uuid));
	r->maker = wish->asker;
	r->until = until;
	r->limit = limit;
	return 0;
}

u64 pcilend_reservation_left(const struct pcilend_reservation *r, u64 now)
{
	return r->until > now ? r->until - now : 0;
}

bool pcilend_reservation_admits(const struct pcilend_reservation *r, u32 node, const u8 uuid[16],
				u64 now)
{
	if (!pcilend_reservation_left(r, now))
		return true;
	return r->node ? r->node == node : !memcmp(r->uuid, uuid, sizeof(r->uuid));
}

void pcilend_reservation_used(struct pcilend_reservation *r)
{
	r->limit = 0;
}
