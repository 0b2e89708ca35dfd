/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The lender's state machine of one function, and the lease on it.
 *
 *	ADD			local -> added
 *	MAKE_AVAILABLE		added -> resetting
 *	BORROW			available -> borrowed
 *	RECALL			borrowed, and to be given back: ends in `added`
 *	any end of a lease	borrowed -> fencing
 *	FENCED			fencing -> resetting
 *	RESET_OK, RESET_FAILED	resetting -> available, quarantined
 *	RELEASE_QUARANTINE	quarantined -> resetting
 *	MAKE_UNAVAILABLE	available, quarantined -> added
 *	REMOVE			added -> local
 *
 * The only way into `available` leads through a reset, so nothing is lent (again) that was not
 * fenced and reset. The machine decides; the caller acts: pcilend_lease_apply() returns a set of
 * PCILEND_DO_* that the caller carries out, and reports with the next event.
 *
 * Callers serialise access to one struct pcilend_lease. Time is monotonic milliseconds, given by
 * the caller.
 */
#ifndef PCILEND_LEASE_H
#define PCILEND_LEASE_H

#include <linux/pcilend.h>

#include "pcilend/platform.h"
#include "pcilend/wire.h"

__BEGIN_DECLS

enum pcilend_lease_event_type {
	PCILEND_LEASE_ADD = 1,
	PCILEND_LEASE_REMOVE,
	/* The caller holds the function (driver bound, DMA owned) before it applies this one. */
	PCILEND_LEASE_MAKE_AVAILABLE,
	PCILEND_LEASE_MAKE_UNAVAILABLE,
	PCILEND_LEASE_BORROW,		/* uses node, boot, lease_ms, now */
	PCILEND_LEASE_RETURN,		/* uses node, boot, lease */
	PCILEND_LEASE_EXPIRE,		/* no heartbeat for lease_ms; uses lease, 0: any */
	PCILEND_LEASE_REVOKE,		/* the lender wants it back: ends in `added` */
	/*
	 * The lender wants it back, and lets the borrower have grace_ms to return it; then REVOKE
	 * is due. Repeated, the last one counts. What is not borrowed is made unavailable.
	 */
	PCILEND_LEASE_RECALL,		/* uses grace_ms, now */
	PCILEND_LEASE_PEER_DEAD,	/* uses node, boot: that boot of that node is over */
	PCILEND_LEASE_UNPLUGGED,	/* the function is going: ends in `local` */
	PCILEND_LEASE_FENCED,		/* PCILEND_DO_FENCE is done */
	PCILEND_LEASE_RESET_OK,		/* PCILEND_DO_RESET is done and the function answers */
	PCILEND_LEASE_RESET_FAILED,	/* uses reason */
	PCILEND_LEASE_RELEASE_QUARANTINE,
};

struct pcilend_lease_event {
	enum pcilend_lease_event_type type;
	u32 node;		/* who asks, or who died: the peer of the link it came by */
	u64 boot;		/* boot id of that peer */
	u32 lease;		/* lease number named by the peer */
	u32 lease_ms;		/* PCILEND_LEASE_MS_MIN to PCILEND_LEASE_MS_MAX */
	u32 grace_ms;		/* up to PCILEND_GRACE_MS_MAX */
	u64 now;		/* ms */
	const char *reason;	/* constant sentence: why the reset failed */
	bool sanitize;		/* MAKE_AVAILABLE: what a borrower leaves on it is to be erased */
	bool sanitized;		/* MAKE_AVAILABLE: that was done */
};

/* What the caller must do after a transition, in this order. */
#define PCILEND_DO_FENCE	0x01	/* bus master off, domain and exports unmapped, */
					/* transactions drained; then FENCED */
#define PCILEND_DO_RESET	0x02	/* reset, check that it answers; then RESET_OK or _FAILED */
#define PCILEND_DO_RELEASE	0x04	/* let go of the function: its own driver may bind again */
#define PCILEND_DO_LOST		0x08	/* send MSG_LOST, with lease and lost, to the borrower */
#define PCILEND_DO_ANSWER	0x10	/* the lease is settled: answer its RETURN requests */
					/* with PCILEND_STATUS_OK */
#define PCILEND_DO_ANNOUNCE	0x20	/* tell nodes and listeners the new state */
#define PCILEND_DO_WITHDRAW	0x40	/* tell nodes that it is no longer offered */
#define PCILEND_DO_RECALL	0x80	/* while it is borrowed: send MSG_RECALL to the borrower */

struct pcilend_lease_result {
	u32 todo;			/* PCILEND_DO_* */
	u32 node;			/* for DO_LOST, DO_ANSWER, DO_RECALL: whose lease it is */
	u64 boot;
	u32 lease;			/* the lease that ended, or was granted by BORROW */
	enum pcilend_lost_reason lost;	/* for DO_LOST */
	const char *why;		/* on refusal: a constant sentence with the cure */
};

/**
 * struct pcilend_lease - state of one function at its lender
 *
 * Zeroed memory is a function in state `local`. Read it freely, change it by
 * pcilend_lease_apply() only.
 */
struct pcilend_lease {
	enum pcilend_function_state state;
	u32 node;		/* the borrower; kept until the lease is settled, else 0 */
	u64 boot;
	u32 number;		/* lease number; kept until the lease is settled, else 0 */
	u32 lease_ms;
	u64 granted;		/* ms */
	u64 recall_at;		/* ms: REVOKE is due; 0: not recalled */
	const char *quarantine;	/* why quarantined, else NULL */
	u32 resets;		/* that succeeded or failed since ADD */
	bool take_back;		/* after this reset: `added`, not `available` */
	bool gone;		/* after this fence or reset: `local` */
	bool sanitize;		/* after each lease it is quarantined, until it was erased */
	bool dirty;		/* it was not, since the last such lease */
};

/* Source of lease numbers, one per host; zeroed memory is a fresh one. */
struct pcilend_lease_numbers {
	u32 last;
};

/**
 * pcilend_lease_apply - one step
 * @numbers: needed for BORROW only
 * @result: filled in always
 *
 * Events that come late by nature do nothing and return 0 with no todo: EXPIRE and PEER_DEAD of a
 * lease that is over or somebody else's, RETURN repeated by its owner while the function is fenced
 * and reset, UNPLUGGED in state `local`.
 *
 * A borrow that can't be completed (no aperture space, IOMMU refuses) is ended by RETURN, a
 * MAKE_AVAILABLE whose reset fails by MAKE_UNAVAILABLE.
 *
 * Return: 0, or a refusal with nothing changed and @result->why set: -EINVAL (event makes no sense
 * in this state), -EALREADY, -EBUSY (borrowed or being reset), -EAGAIN (not available), -ENODEV
 * (not added), -EUCLEAN (quarantined), -ESTALE (no such lease), -ERANGE (lease or grace time),
 * -EOVERFLOW (no lease numbers left).
 */
int pcilend_lease_apply(struct pcilend_lease *lease, const struct pcilend_lease_event *event,
			struct pcilend_lease_numbers *numbers, struct pcilend_lease_result *result);

/*
 * Milliseconds until REVOKE is due after a RECALL; 0: now; U64_MAX if nothing is borrowed, or it
 * is not recalled.
 */
u64 pcilend_lease_recall_in(const struct pcilend_lease *lease, u64 now);

/* What pcilend_lease_apply() would return; changes nothing. *why (optional) is set on refusal. */
int pcilend_lease_allows(const struct pcilend_lease *lease,
			 const struct pcilend_lease_event *event, const char **why);

/**
 * pcilend_lease_check - may this peer name this lease now?
 * @node, @boot: the peer's, as the handshake found them, not as the message claims
 * @number: as in the message
 *
 * Return: 0; -ESTALE with *why (optional) if the function is not borrowed, or not by this boot of
 * this node, or under another number.
 */
int pcilend_lease_check(const struct pcilend_lease *lease, u32 node, u64 boot, u32 number,
			const char **why);

const char *pcilend_function_state_name(enum pcilend_function_state state); /* "available" */
const char *pcilend_lease_event_name(enum pcilend_lease_event_type type);   /* "borrow" */

/* A peer's sign of life: the counter it keeps raising in our control area. One per link. */
struct pcilend_heartbeat {
	u64 boot;
	u64 value;
	u64 seen;		/* ms, when value last changed */
};

enum pcilend_heartbeat_news {
	PCILEND_HEARTBEAT_SILENT = 0,	/* same value as before */
	PCILEND_HEARTBEAT_ALIVE = 1,
	PCILEND_HEARTBEAT_STRANGER = 2,	/* written under another boot id: not counted */
};

/* Starts the clock: @boot as the handshake found it, @value as it stands in the area. */
void pcilend_heartbeat_start(struct pcilend_heartbeat *beat, u64 boot, u64 value, u64 now);

/* Notes what stands in the area now. */
enum pcilend_heartbeat_news pcilend_heartbeat_note(struct pcilend_heartbeat *beat,
						   u64 writer_boot, u64 value, u64 now);

/*
 * Evidence of losses of the link that this host's driver does not tell of: what the peer's beats
 * leave behind in our control area (wire.h). One per link.
 */
struct pcilend_trail {
	u32 beat;		/* the last one that was followed */
	u32 losses;		/* that the peer had found by itself then */
};

enum pcilend_trail_news {
	PCILEND_TRAIL_WHOLE = 0,
	PCILEND_TRAIL_GAP = 1,		/* a beat is missing, or may be: its writes were lost */
	PCILEND_TRAIL_TOLD = 2,		/* the peer has found one more */
};

/* What was lost before counts no more. */
void pcilend_trail_start(struct pcilend_trail *trail, u32 beat, u32 losses);

/*
 * pcilend_trail_follow - was anything lost since the last call?
 * @slots: a copy of what stands in the area, made after @beat was read
 * @beat: low half of the heartbeat
 *
 * Either news starts the trail anew at @beat.
 */
enum pcilend_trail_news pcilend_trail_follow(struct pcilend_trail *trail,
					     const __le32 slots[PCILEND_TRAIL_SLOTS], u32 beat,
					     u32 losses);

/* Milliseconds without a sign of life; 0 if @now lies before the last one. */
u64 pcilend_heartbeat_silence(const struct pcilend_heartbeat *beat, u64 now);

/**
 * pcilend_lease_expires_in - how long the lease still holds if the peer stays silent
 *
 * Return: ms; 0: expired, or the borrower's boot is not the one that beats: apply EXPIRE;
 * U64_MAX if nothing is borrowed.
 */
u64 pcilend_lease_expires_in(const struct pcilend_lease *lease,
			     const struct pcilend_heartbeat *beat, u64 now);

__END_DECLS

#endif /* PCILEND_LEASE_H */
