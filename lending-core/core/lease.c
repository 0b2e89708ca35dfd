// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The lender's state machine and its leases; see lease.h. */

#include "pcilend/identity.h"
#include "pcilend/lease.h"

static const char not_added[] = "it is not added: run 'pcilend add' on its lender";
static const char being_reset[] =
	"it is being stopped and reset after its last use: try again in a few seconds";
static const char quarantined[] =
	"its reset failed: see 'pcilend show', and run 'pcilend release-quarantine' on its lender";
static const char still_borrowed[] =
	"it is borrowed: stop what uses it on its borrower, or run 'pcilend return' there";
static const char being_recalled[] =
	"it is being taken back from its borrower: try again when that is over";
static const char not_erased[] =
	"what its last borrower left on it is not erased: run 'pcilend sanitize' on its lender";

static int lease_refuse(struct pcilend_lease_result *result, int error, const char *why)
{
	result->why = why;
	return error;
}

static int lease_move(struct pcilend_lease *lease, enum pcilend_function_state state,
		      struct pcilend_lease_result *result, u32 todo)
{
	lease->state = state;
	result->todo = todo;
	return 0;
}

/* Refusals that are the same for all that an administrator asks for. */
static int lease_refuse_admin(const struct pcilend_lease *lease,
			      struct pcilend_lease_result *result)
{
	switch (lease->state) {
	case PCILEND_FUNCTION_LOCAL:
		return lease_refuse(result, -ENODEV, not_added);
	case PCILEND_FUNCTION_BORROWED:
		return lease_refuse(result, -EBUSY, still_borrowed);
	case PCILEND_FUNCTION_FENCING:
	case PCILEND_FUNCTION_RESETTING:
		return lease_refuse(result, -EBUSY, being_reset);
	case PCILEND_FUNCTION_QUARANTINED:
		return lease_refuse(result, -EUCLEAN, lease->dirty ? not_erased : quarantined);
	default:
		return lease_refuse(result, -EINVAL,
				    "not possible in this state: see 'pcilend show'");
	}
}

static int lease_add(struct pcilend_lease *lease, struct pcilend_lease_result *result)
{
	if (lease->state != PCILEND_FUNCTION_LOCAL)
		return lease_refuse(result, -EALREADY, "it is added already: see 'pcilend list'");
	lease->resets = 0;
	lease->sanitize = false;
	lease->dirty = false;
	return lease_move(lease, PCILEND_FUNCTION_ADDED, result, PCILEND_DO_ANNOUNCE);
}

static int lease_remove_function(struct pcilend_lease *lease, struct pcilend_lease_result *result)
{
	if (lease->state == PCILEND_FUNCTION_AVAILABLE)
		return lease_refuse(result, -EBUSY,
				    "it can be borrowed: run 'pcilend unavailable' first");
	if (lease->state == PCILEND_FUNCTION_QUARANTINED)
		return lease_refuse(result, -EBUSY,
				    "it is quarantined: run 'pcilend unavailable' first");
	if (lease->state != PCILEND_FUNCTION_ADDED)
		return lease_refuse_admin(lease, result);
	return lease_move(lease, PCILEND_FUNCTION_LOCAL, result, PCILEND_DO_WITHDRAW);
}

static int lease_make_available(struct pcilend_lease *lease,
				const struct pcilend_lease_event *event,
				struct pcilend_lease_result *result)
{
	if (lease->state == PCILEND_FUNCTION_BORROWED && lease->take_back)
		return lease_refuse(result, -EBUSY, being_recalled);
	if (lease->state == PCILEND_FUNCTION_AVAILABLE ||
	    lease->state == PCILEND_FUNCTION_BORROWED)
		return lease_refuse(result, -EALREADY,
				    "it is available already: see 'pcilend list'");
	if (lease->state != PCILEND_FUNCTION_ADDED)
		return lease_refuse_admin(lease, result);
	lease->sanitize = event->sanitize;
	if (event->sanitized)
		lease->dirty = false;
	return lease_move(lease, PCILEND_FUNCTION_RESETTING, result,
			  PCILEND_DO_RESET | PCILEND_DO_ANNOUNCE);
}

static int lease_make_unavailable(struct pcilend_lease *lease, struct pcilend_lease_result *result)
{
	if (lease->state == PCILEND_FUNCTION_ADDED)
		return lease_refuse(result, -EALREADY, "it is not available: see 'pcilend list'");
	if (lease->state != PCILEND_FUNCTION_AVAILABLE &&
	    lease->state != PCILEND_FUNCTION_QUARANTINED)
		return lease_refuse_admin(lease, result);
	lease->quarantine = NULL;
	return lease_move(lease, PCILEND_FUNCTION_ADDED, result,
			  PCILEND_DO_RELEASE | PCILEND_DO_ANNOUNCE);
}

static void lease_name_lease(const struct pcilend_lease *lease, struct pcilend_lease_result *result)
{
	result->node = lease->node;
	result->boot = lease->boot;
	result->lease = lease->number;
}

static int lease_borrow(struct pcilend_lease *lease, const struct pcilend_lease_event *event,
			struct pcilend_lease_numbers *numbers, struct pcilend_lease_result *result)
{
	if (lease->state == PCILEND_FUNCTION_ADDED)
		return lease_refuse(result, -EAGAIN,
				    "it is not available: run 'pcilend available' on its lender");
	if (lease->state == PCILEND_FUNCTION_BORROWED && lease->node == event->node)
		return lease_refuse(result, -EBUSY,
				    "this node has borrowed it already: return it first");
	if (lease->state != PCILEND_FUNCTION_AVAILABLE)
		return lease_refuse_admin(lease, result);
	if (!event->node || event->node > PCILEND_NODE_MAX)
		return lease_refuse(result, -EINVAL, "the borrower has no node id from 1 to 65535");
	if (event->lease_ms < PCILEND_LEASE_MS_MIN || event->lease_ms > PCILEND_LEASE_MS_MAX)
		return lease_refuse(result, -ERANGE, "lease time must be from 2 seconds to 1 hour");
	if (numbers->last == U32_MAX)
		return lease_refuse(result, -EOVERFLOW,
				    "lease numbers are used up: reload pcilend.ko on its lender");
	lease->node = event->node;
	lease->boot = event->boot;
	lease->number = ++numbers->last;
	lease->lease_ms = event->lease_ms;
	lease->granted = event->now;
	lease->dirty |= lease->sanitize;
	lease_name_lease(lease, result);
	return lease_move(lease, PCILEND_FUNCTION_BORROWED, result, PCILEND_DO_ANNOUNCE);
}

/* The lease in force ends; it stays on record until the function is reset. */
static int lease_end_lease(struct pcilend_lease *lease, struct pcilend_lease_result *result,
			   enum pcilend_lost_reason lost)
{
	lease_name_lease(lease, result);
	result->lost = lost;
	return lease_move(lease, PCILEND_FUNCTION_FENCING, result,
			  PCILEND_DO_FENCE | PCILEND_DO_ANNOUNCE | (lost ? PCILEND_DO_LOST : 0));
}

static bool lease_on_record(const struct pcilend_lease *lease,
			    const struct pcilend_lease_event *event)
{
	return lease->number && lease->number == event->lease && lease->node == event->node &&
	       lease->boot == event->boot;
}

static int lease_give_back(struct pcilend_lease *lease, const struct pcilend_lease_event *event,
			   struct pcilend_lease_result *result)
{
	if (!lease_on_record(lease, event))
		return lease_refuse(result, -ESTALE,
				    "this lease is over: nothing is left to return");
	if (lease->state != PCILEND_FUNCTION_BORROWED)
		return 0;
	return lease_end_lease(lease, result, 0);
}

static int lease_expire(struct pcilend_lease *lease, const struct pcilend_lease_event *event,
			struct pcilend_lease_result *result)
{
	if (lease->state != PCILEND_FUNCTION_BORROWED ||
	    (event->lease && event->lease != lease->number))
		return 0;
	return lease_end_lease(lease, result, PCILEND_LOST_EXPIRED);
}

static int lease_take_back(struct pcilend_lease *lease, struct pcilend_lease_result *result)
{
	switch (lease->state) {
	case PCILEND_FUNCTION_BORROWED:
		lease->take_back = true;
		return lease_end_lease(lease, result, PCILEND_LOST_REVOKED);
	case PCILEND_FUNCTION_FENCING:
	case PCILEND_FUNCTION_RESETTING:
		lease->take_back = true;
		return 0;
	case PCILEND_FUNCTION_ADDED:
	case PCILEND_FUNCTION_AVAILABLE:
		return lease_refuse(result, -EINVAL, "it is not borrowed: nothing to revoke");
	default:
		return lease_refuse_admin(lease, result);
	}
}

static int lease_peer_dead(struct pcilend_lease *lease, const struct pcilend_lease_event *event,
			   struct pcilend_lease_result *result)
{
	if (lease->state != PCILEND_FUNCTION_BORROWED || lease->node != event->node ||
	    lease->boot != event->boot)
		return 0;
	return lease_end_lease(lease, result, 0);
}

static int lease_recall(struct pcilend_lease *lease, const struct pcilend_lease_event *event,
			struct pcilend_lease_result *result)
{
	if (event->grace_ms > PCILEND_GRACE_MS_MAX)
		return lease_refuse(result, -ERANGE, "the grace time must be at most 24 hours");
	switch (lease->state) {
	case PCILEND_FUNCTION_BORROWED:
		lease->take_back = true;
		lease->recall_at = event->now + event->grace_ms;
		lease_name_lease(lease, result);
		return lease_move(lease, PCILEND_FUNCTION_BORROWED, result,
				  PCILEND_DO_RECALL | PCILEND_DO_ANNOUNCE);
	case PCILEND_FUNCTION_FENCING:
	case PCILEND_FUNCTION_RESETTING:
		lease->take_back = true;
		return 0;
	default:
		return lease_make_unavailable(lease, result);
	}
}

/* Forgets the lease on record, with what its end still asks for. */
static u32 lease_settle(struct pcilend_lease *lease, struct pcilend_lease_result *result)
{
	u32 todo = lease->number ? PCILEND_DO_ANSWER : 0;

	lease_name_lease(lease, result);
	lease->node = 0;
	lease->boot = 0;
	lease->number = 0;
	lease->lease_ms = 0;
	lease->granted = 0;
	lease->recall_at = 0;
	return todo;
}

static int lease_forget(struct pcilend_lease *lease, struct pcilend_lease_result *result)
{
	u32 todo = lease_settle(lease, result);

	if (lease->state != PCILEND_FUNCTION_ADDED)
		todo |= PCILEND_DO_RELEASE;
	lease->take_back = false;
	lease->gone = false;
	lease->quarantine = NULL;
	return lease_move(lease, PCILEND_FUNCTION_LOCAL, result, todo | PCILEND_DO_WITHDRAW);
}

static int lease_unplugged(struct pcilend_lease *lease, struct pcilend_lease_result *result)
{
	switch (lease->state) {
	case PCILEND_FUNCTION_LOCAL:
		return 0;
	case PCILEND_FUNCTION_BORROWED:
		lease->gone = true;
		return lease_end_lease(lease, result, PCILEND_LOST_GONE);
	case PCILEND_FUNCTION_FENCING:
	case PCILEND_FUNCTION_RESETTING:
		lease->gone = true;
		return 0;
	default:
		return lease_forget(lease, result);
	}
}

static int lease_fence_done(struct pcilend_lease *lease, struct pcilend_lease_result *result)
{
	if (lease->state != PCILEND_FUNCTION_FENCING)
		return lease_refuse(result, -EINVAL, "it is not being fenced");
	if (lease->gone)
		return lease_forget(lease, result);
	return lease_move(lease, PCILEND_FUNCTION_RESETTING, result,
			  PCILEND_DO_RESET | PCILEND_DO_ANNOUNCE);
}

static int lease_reset_done(struct pcilend_lease *lease, const struct pcilend_lease_event *event,
			    struct pcilend_lease_result *result)
{
	u32 todo;

	if (lease->state != PCILEND_FUNCTION_RESETTING)
		return lease_refuse(result, -EINVAL, "it is not being reset");
	lease->resets++;
	if (lease->gone)
		return lease_forget(lease, result);
	todo = lease_settle(lease, result) | PCILEND_DO_ANNOUNCE;
	if (event->type == PCILEND_LEASE_RESET_FAILED) {
		lease->take_back = false;
		lease->quarantine = event->reason ?: "it does not answer after its reset";
		return lease_move(lease, PCILEND_FUNCTION_QUARANTINED, result, todo);
	}
	if (lease->take_back) {
		lease->take_back = false;
		return lease_move(lease, PCILEND_FUNCTION_ADDED, result, todo | PCILEND_DO_RELEASE);
	}
	if (lease->dirty) {
		lease->quarantine = not_erased;
		return lease_move(lease, PCILEND_FUNCTION_QUARANTINED, result, todo);
	}
	return lease_move(lease, PCILEND_FUNCTION_AVAILABLE, result, todo);
}

static int lease_release_quarantine(struct pcilend_lease *lease,
				    struct pcilend_lease_result *result)
{
	if (lease->state != PCILEND_FUNCTION_QUARANTINED)
		return lease_refuse(result, -EINVAL, "it is not quarantined: see 'pcilend show'");
	/* Who releases it answers for what is on it. */
	lease->dirty = false;
	lease->quarantine = NULL;
	return lease_move(lease, PCILEND_FUNCTION_RESETTING, result,
			  PCILEND_DO_RESET | PCILEND_DO_ANNOUNCE);
}

int pcilend_lease_apply(struct pcilend_lease *lease, const struct pcilend_lease_event *event,
			struct pcilend_lease_numbers *numbers, struct pcilend_lease_result *result)
{
	*result = (struct pcilend_lease_result){ 0 };
	switch (event->type) {
	case PCILEND_LEASE_ADD:
		return lease_add(lease, result);
	case PCILEND_LEASE_REMOVE:
		return lease_remove_function(lease, result);
	case PCILEND_LEASE_MAKE_AVAILABLE:
		return lease_make_available(lease, event, result);
	case PCILEND_LEASE_MAKE_UNAVAILABLE:
		return lease_make_unavailable(lease, result);
	case PCILEND_LEASE_BORROW:
		return lease_borrow(lease, event, numbers, result);
	case PCILEND_LEASE_RETURN:
		return lease_give_back(lease, event, result);
	case PCILEND_LEASE_EXPIRE:
		return lease_expire(lease, event, result);
	case PCILEND_LEASE_REVOKE:
		return lease_take_back(lease, result);
	case PCILEND_LEASE_RECALL:
		return lease_recall(lease, event, result);
	case PCILEND_LEASE_PEER_DEAD:
		return lease_peer_dead(lease, event, result);
	case PCILEND_LEASE_UNPLUGGED:
		return lease_unplugged(lease, result);
	case PCILEND_LEASE_FENCED:
		return lease_fence_done(lease, result);
	case PCILEND_LEASE_RESET_OK:
	case PCILEND_LEASE_RESET_FAILED:
		return lease_reset_done(lease, event, result);
	case PCILEND_LEASE_RELEASE_QUARANTINE:
		return lease_release_quarantine(lease, result);
	}
	return lease_refuse(result, -EINVAL, "unknown event");
}

u64 pcilend_lease_recall_in(const struct pcilend_lease *lease, u64 now)
{
	if (lease->state != PCILEND_FUNCTION_BORROWED || !lease->take_back)
		return U64_MAX;
	return lease->recall_at > now ? lease->recall_at - now : 0;
}

int pcilend_lease_allows(const struct pcilend_lease *lease,
			 const struct pcilend_lease_event *event, const char **why)
{
	struct pcilend_lease trial = *lease;
	struct pcilend_lease_numbers numbers = { 0 };
	struct pcilend_lease_result result;
	int error = pcilend_lease_apply(&trial, event, &numbers, &result);

	if (error && why)
		*why = result.why;
	return error;
}

int pcilend_lease_check(const struct pcilend_lease *lease, u32 node, u64 boot, u32 number,
			const char **why)
{
	const char *fault;

	if (lease->state != PCILEND_FUNCTION_BORROWED)
		fault = "the function is not borrowed";
	else if (lease->node != node)
		fault = "another node holds the lease";
	else if (lease->boot != boot)
		fault = "the lease belongs to an earlier boot of this node";
	else if (lease->number != number)
		fault = "the lease in force has another number";
	else
		return 0;
	if (why)
		*why = fault;
	return -ESTALE;
}

const char *pcilend_function_state_name(enum pcilend_function_state state)
{
	switch (state) {
	case PCILEND_FUNCTION_LOCAL:
		return "local";
	case PCILEND_FUNCTION_ADDED:
		return "added";
	case PCILEND_FUNCTION_AVAILABLE:
		return "available";
	case PCILEND_FUNCTION_BORROWED:
		return "borrowed";
	case PCILEND_FUNCTION_FENCING:
		return "fencing";
	case PCILEND_FUNCTION_RESETTING:
		return "resetting";
	case PCILEND_FUNCTION_QUARANTINED:
		return "quarantined";
	}
	return "unknown";
}

const char *pcilend_lease_event_name(enum pcilend_lease_event_type type)
{
	switch (type) {
	case PCILEND_LEASE_ADD:
		return "add";
	case PCILEND_LEASE_REMOVE:
		return "remove";
	case PCILEND_LEASE_MAKE_AVAILABLE:
		return "make-available";
	case PCILEND_LEASE_MAKE_UNAVAILABLE:
		return "make-unavailable";
	case PCILEND_LEASE_BORROW:
		return "borrow";
	case PCILEND_LEASE_RETURN:
		return "return";
	case PCILEND_LEASE_EXPIRE:
		return "expire";
	case PCILEND_LEASE_REVOKE:
		return "revoke";
	case PCILEND_LEASE_RECALL:
		return "recall";
	case PCILEND_LEASE_PEER_DEAD:
		return "peer-dead";
	case PCILEND_LEASE_UNPLUGGED:
		return "unplugged";
	case PCILEND_LEASE_FENCED:
		return "fenced";
	case PCILEND_LEASE_RESET_OK:
		return "reset-ok";
	case PCILEND_LEASE_RESET_FAILED:
		return "reset-failed";
	case PCILEND_LEASE_RELEASE_QUARANTINE:
		return "release-quarantine";
	}
	return "unknown";
}

void pcilend_heartbeat_start(struct pcilend_heartbeat *beat, u64 boot, u64 value, u64 now)
{
	beat->boot = boot;
	beat->value = value;
	beat->seen = now;
}

enum pcilend_heartbeat_news pcilend_heartbeat_note(struct pcilend_heartbeat *beat,
						   u64 writer_boot, u64 value, u64 now)
{
	if (writer_boot != beat->boot)
		return PCILEND_HEARTBEAT_STRANGER;
	if (value == beat->value)
		return PCILEND_HEARTBEAT_SILENT;
	beat->value = value;
	beat->seen = now;
	return PCILEND_HEARTBEAT_ALIVE;
}

void pcilend_trail_start(struct pcilend_trail *trail, u32 beat, u32 losses)
{
	trail->beat = beat;
	trail->losses = losses;
}

/* Did this beat come? Where it left its number there may be that of a later one by now. */
static bool lease_trail_has(const __le32 slots[PCILEND_TRAIL_SLOTS], u32 beat)
{
	u32 later = le32_to_cpu(slots[beat % PCILEND_TRAIL_SLOTS]) - beat;

	return later <= U32_MAX / 2 && later % PCILEND_TRAIL_SLOTS == 0;
}

enum pcilend_trail_news pcilend_trail_follow(struct pcilend_trail *trail,
					     const __le32 slots[PCILEND_TRAIL_SLOTS], u32 beat,
					     u32 losses)
{
	enum pcilend_trail_news news = PCILEND_TRAIL_WHOLE;
	u32 at = trail->beat;

	/* Of more than there are slots nobody knows. */
	if (beat - at > PCILEND_TRAIL_SLOTS)
		news = PCILEND_TRAIL_GAP;
	while (news == PCILEND_TRAIL_WHOLE && at != beat) {
		if (!lease_trail_has(slots, ++at))
			news = PCILEND_TRAIL_GAP;
	}
	if (news == PCILEND_TRAIL_WHOLE && losses != trail->losses)
		news = PCILEND_TRAIL_TOLD;
	pcilend_trail_start(trail, beat, losses);
	return news;
}

u64 pcilend_heartbeat_silence(const struct pcilend_heartbeat *beat, u64 now)
{
	return now > beat->seen ? now - beat->seen : 0;
}

u64 pcilend_lease_expires_in(const struct pcilend_lease *lease,
			     const struct pcilend_heartbeat *beat, u64 now)
{
	u64 since = lease->granted > beat->seen ? lease->granted : beat->seen;
	u64 silent = now > since ? now - since : 0;

	if (lease->state != PCILEND_FUNCTION_BORROWED)
		return U64_MAX;
	if (lease->boot != beat->boot || silent >= lease->lease_ms)
		return 0;
	return lease->lease_ms - silent;
}
