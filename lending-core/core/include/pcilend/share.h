/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A function that several hosts use at once: one manager, which resets and configures it and makes
 * its queues, and up to PCILEND_SHARE_CLIENTS clients, each with some BAR pages, a slice (slice.h)
 * and vectors. The manager holds the function's lease (lease.h); a lease of which this machine is
 * never told more is one whose manager admits nobody.
 *
 *	     manage            policy             policy for no clients
 *	OFF --------> EXCLUSIVE ------> SHARED ----------------------> UNSHARING
 *	 ^             |    ^             |                                |
 *	 | return      |    +-------------|---- the last client is over ---+
 *	 +-------------+                  | return
 *	 |                                v
 *	 +-- the last client is over - RETURNING
 *	 |
 *	 +-- fenced - FENCING <- from each but OFF: the manager is dead, does not confirm in
 *	                         time, or its link is lost for as long; revoked, unplugged, a reset
 *	                         that fails
 *
 * A client (enum pcilend_client_state of linux/pcilend.h):
 *
 *	          no reset          mapped         link lost
 *	REQUESTED --------> ADMITTED ------> ACTIVE ----------> QUARANTINING
 *	    |                  |             |   ^                   | cleared, or a reset
 *	    |                  |             |   +--- link there --- QUARANTINED
 *	    |                  v             v                       |
 *	    |                ENDING <--------+---- any end ----------+
 *	    |                  | closed: nobody rings for it any more
 *	    |                  v
 *	    |               CLEARING    the manager deletes its queues
 *	    |                  | cleared: the function touches nothing of it any more
 *	    v                  v
 *	  (over) <--------- CLEARED     the lender unmaps
 *	          unmapped
 *
 * So nothing that the function may use is unmapped before the manager has confirmed that it does
 * not, or before the function was fenced. A manager that does not confirm within `clear_ms` costs
 * everybody the function: it is fenced and reset, and every client has lost it.
 *
 * A client whose link is lost is quarantined: its queues are deleted, all else stays. Bus mastering
 * stays on, as the function is the others' too. It is readmitted when the link carries again, or
 * ends when that takes longer than its lease time.
 *
 * While the manager resets the function no client is admitted and the manager is asked nothing;
 * what has to wait goes on when the reset is over.
 *
 * The machine decides; the caller acts. pcilend_share_apply() fills a list of actions, which the
 * caller carries out in that order, one after the other, also after those of former events: a FENCE
 * undoes what a MAP before it has done. Callers serialise access to one struct pcilend_share. Time
 * is monotonic milliseconds, given by the caller.
 */
#ifndef PCILEND_SHARE_H
#define PCILEND_SHARE_H

#include <linux/pcilend.h>

#include "pcilend/access.h"
#include "pcilend/lease.h"
#include "pcilend/mail.h"
#include "pcilend/platform.h"
#include "pcilend/slice.h"

__BEGIN_DECLS

#define PCILEND_SHARE_CLIENTS PCILEND_SLICES
#define PCILEND_SHARE_VECTORS 32		/* of a client */
#define PCILEND_SHARE_RANGES 8			/* of BAR pages in a policy */
#define PCILEND_SHARE_CLEAR_MS 5000		/* a manager confirms within */

enum pcilend_share_state {
	PCILEND_SHARE_OFF,
	PCILEND_SHARE_EXCLUSIVE,	/* the manager uses it alone */
	PCILEND_SHARE_SHARED,
	PCILEND_SHARE_UNSHARING,	/* clients end; then EXCLUSIVE */
	PCILEND_SHARE_RETURNING,	/* clients end; then the manager's lease does */
	PCILEND_SHARE_FENCING,		/* over for all */
};

/* What the lender knows of the function. */
struct pcilend_share_function {
	u64 bar_bytes[6];	/* 0: not there, or not memory */
	u32 msix_bar;		/* where its MSI-X table is, if that has pages */
	u32 msix_page;
	u32 msix_pages;		/* 0: there is none */
	u64 last_address;	/* where slices can be; 0: it is lent without one */
	bool alone;		/* in its IOMMU group */
};

/* Whom the lender lets share it, besides what access.h says. */
struct pcilend_share_rules {
	u32 clients;		/* at most; 0: it is not shared */
	struct pcilend_access nodes;
};

enum pcilend_share_pages {
	PCILEND_SHARE_COMMON = 0,	/* the same for all clients */
	PCILEND_SHARE_POOL = 1,		/* client n gets the nth `pages` pages: its own */
};

struct pcilend_share_range {
	u32 bar;
	u32 page;		/* the first one */
	u32 pages;		/* of each client */
	enum pcilend_share_pages kind;
};

/* What the manager allows each client, given before there is one. */
struct pcilend_share_policy {
	u32 clients;		/* at most; 0: it uses the function alone */
	u32 vectors;
	u64 slice_bytes;	/* at most */
	u64 near_bytes;		/* of the lender's memory, at most */
	u32 ranges;
	struct pcilend_share_range range[PCILEND_SHARE_RANGES];
};

/* What a client wants. */
struct pcilend_share_wish {
	u64 slice_bytes;
	u64 near_bytes;
	u32 vectors;
	u32 lease_ms;
};

struct pcilend_share_client {
	enum pcilend_client_state state;
	u32 node;
	u64 boot;
	u32 path;			/* which of the links to that node, as the lender counts */
	u32 lease;
	struct pcilend_share_wish wish;
	u64 slice;			/* device-side address */
	u64 alias;			/* device-side address */
	enum pcilend_lost_reason reason;	/* why it ends; 0: it returned */
	u32 round;			/* of the question to the manager; 0: not asked yet */
	u64 due;			/* ms: when that must be answered */
	u64 lost_until;			/* ms: ends when its link is lost for so long */
	bool carries;			/* its link */
	bool known;			/* to the manager */
	bool over;			/* it is to end as soon as it is mapped */
	struct pcilend_mail mail;	/* to the manager and back; only while it is ACTIVE */
};

struct pcilend_share {
	enum pcilend_share_state state;
	struct pcilend_share_function function;
	struct pcilend_share_rules rules;
	struct pcilend_share_policy policy;
	struct pcilend_slices slices;
	u32 clear_ms;
	u32 node;			/* the manager */
	u64 boot;
	u32 lease;
	u64 slice_bytes;		/* the manager's own slice, PCILEND_SLICE_START; 0: none */
	u32 rounds;
	u64 asked;			/* questions of all clients, for their order */
	u64 manager_due;		/* ms: when its link must carry again */
	u64 recall_at;			/* ms: then it is taken */
	bool manager_carries;
	bool recalled;
	bool resetting;
	enum pcilend_lost_reason lost;	/* why it is fenced */
	struct pcilend_share_client client[PCILEND_SHARE_CLIENTS];
};

enum pcilend_share_event_type {
	/* Who asks is the peer of the link it came by: node, boot. */
	PCILEND_SHARE_MANAGE = 1,	/* it was granted the function's lease; uses lease, and */
					/* slice_bytes: what it has from PCILEND_SLICE_START on */
	PCILEND_SHARE_POLICY,		/* uses lease, policy */
	PCILEND_SHARE_JOIN,		/* uses wish: a client */
	PCILEND_SHARE_RETURN,		/* uses lease: a client's, or the manager's */
	PCILEND_SHARE_CLEARED,		/* uses lease (the manager's), client, round */
	PCILEND_SHARE_RESETTING,	/* uses lease: the manager's reset begins */
	/* What the caller has done, or is told of the function. */
	PCILEND_SHARE_RESET_OK,
	PCILEND_SHARE_RESET_FAILED,
	PCILEND_SHARE_MAPPED,		/* uses client: MAP is done */
	PCILEND_SHARE_MAP_FAILED,	/* ... and undone */
	PCILEND_SHARE_CLOSED,		/* uses client: CLOSE is done */
	PCILEND_SHARE_UNMAPPED,		/* uses client: UNMAP is done */
	PCILEND_SHARE_FENCED,		/* FENCE is done */
	/* What happens. */
	PCILEND_SHARE_EXPIRE,		/* uses client: no heartbeat */
	PCILEND_SHARE_REVOKE_CLIENT,	/* uses client */
	PCILEND_SHARE_ALLOW,		/* uses rules: the lender's administrator; any state */
	PCILEND_SHARE_PEER_DEAD,	/* uses node, boot */
	PCILEND_SHARE_LINK_LOST,	/* uses node, boot */
	PCILEND_SHARE_LINK_UP,		/* uses node, boot: the same boot is there again */
	PCILEND_SHARE_RECALL,		/* uses grace_ms */
	PCILEND_SHARE_REVOKE,		/* from all */
	PCILEND_SHARE_UNPLUGGED,
	PCILEND_SHARE_TICK,		/* pcilend_share_due_in() is over */
};

struct pcilend_share_event {
	enum pcilend_share_event_type type;
	u32 node;
	u64 boot;
	u32 path;		/* JOIN: of that node's links, each of which has boots of its own */
	u32 lease;
	u32 client;		/* lease number of a client */
	u32 round;
	u32 grace_ms;
	u64 slice_bytes;
	u64 now;		/* ms */
	const struct pcilend_share_policy *policy;
	const struct pcilend_share_rules *rules;
	struct pcilend_share_wish wish;
};

enum pcilend_share_action_type {
	PCILEND_SHARE_DO_MAP = 1,	/* slice and alias mapped, BAR pages opened; then MAPPED, */
					/* or all of it undone and MAP_FAILED */
	PCILEND_SHARE_DO_TELL,		/* the manager of the client: MSG_CLIENT */
	PCILEND_SHARE_DO_ANSWER,	/* the client's JOIN: it is active */
	PCILEND_SHARE_DO_CLOSE,		/* its BAR pages; the common ones too, if `last`; */
					/* flushed; then CLOSED */
	PCILEND_SHARE_DO_GONE,		/* MSG_CLIENT_GONE to the manager */
	PCILEND_SHARE_DO_QUARANTINE,	/* MSG_QUARANTINE to the manager */
	PCILEND_SHARE_DO_READMIT,	/* MSG_READMITTED to the client */
	PCILEND_SHARE_DO_UNMAP,		/* its slice and near memory; its alias too, if `last`; */
					/* flushed; then UNMAPPED */
	PCILEND_SHARE_DO_RELEASE,	/* it is over: answer its RETURNs, or its JOIN by a */
					/* refusal; MSG_LOST if there is a reason */
	PCILEND_SHARE_DO_WAS_RESET,	/* MSG_WAS_RESET to the client */
	PCILEND_SHARE_DO_RECALL,	/* MSG_RECALL to the client, or (lease) to the manager */
	PCILEND_SHARE_DO_FENCE,		/* end the manager's lease (lease.h) for that reason, */
					/* which fences the function, all clients with it; */
					/* then FENCED */
	PCILEND_SHARE_DO_MANAGER_OVER,	/* apply the manager's RETURN to its lease (lease.h) */
	PCILEND_SHARE_DO_AUDIT,		/* the peer has tried what only a manager may */
};

struct pcilend_share_action {
	enum pcilend_share_action_type type;
	u32 lease;			/* of the client, or of the manager */
	u32 node;			/* whose it is; of an AUDIT: who tried */
	u32 round;			/* of GONE and QUARANTINE */
	u64 boot;
	enum pcilend_lost_reason reason;
	bool last;
};

#define PCILEND_SHARE_ACTIONS (2 * PCILEND_SHARE_CLIENTS + 2)

struct pcilend_share_result {
	u32 lease;		/* that JOIN has made */
	const char *why;	/* on refusal: a constant sentence */
	u32 count;
	struct pcilend_share_action action[PCILEND_SHARE_ACTIONS];
};

/* Nobody has it, and it is not shared. @clear_ms: PCILEND_SHARE_CLEAR_MS, or another bound. */
void pcilend_share_init(struct pcilend_share *share, const struct pcilend_share_function *function,
			u32 clear_ms);

/**
 * pcilend_share_apply - one step
 * @numbers: the host's lease numbers, for JOIN
 * @result: filled in always; large: not for a stack
 *
 * Events that come late by nature do nothing and return 0: PEER_DEAD, LINK_LOST, LINK_UP of who has
 * nothing here, an end of a client that is ending, MAPPED, MAP_FAILED, CLOSED and UNMAPPED after
 * the function was fenced, CLEARED with the number of a former round or in state FENCING.
 *
 * Return: 0, or a refusal with nothing changed, @result->why set and no action but AUDIT: -EBUSY
 * (there is a manager; it is being taken back), -EAGAIN (not shared, or not yet;
 * a former boot is not cleared), -ENODEV (no right), -EOPNOTSUPP (it can't be shared), -ESTALE (no
 * such lease), -EPERM (not the manager), -EINVAL (makes no sense in this state), -ERANGE (more than
 * the policy allows, or a policy that can't be), -ENOSPC (as many clients as there may be; no place
 * for a slice), -EOVERFLOW (no lease numbers left).
 */
int pcilend_share_apply(struct pcilend_share *share, const struct pcilend_share_event *event,
			struct pcilend_lease_numbers *numbers, struct pcilend_share_result *result);

/*
 * What is wrong with a policy, or with a wish under that policy: a constant sentence, or NULL.
 * Everything else that may be in the way of them is in the machine's state.
 */
const char *pcilend_share_policy_fault(const struct pcilend_share_function *function,
				       const struct pcilend_share_policy *policy);
const char *pcilend_share_wish_fault(const struct pcilend_share_policy *policy,
				     const struct pcilend_share_wish *wish);

/* Milliseconds until TICK is due; 0: now; U64_MAX: nothing is waited for. */
u64 pcilend_share_due_in(const struct pcilend_share *share, u64 now);

/* The client with that lease, or NULL. */
const struct pcilend_share_client *pcilend_share_find(const struct pcilend_share *share, u32 lease);

/* Which piece of each pool is the client's. */
u32 pcilend_share_piece(const struct pcilend_share *share,
			const struct pcilend_share_client *client);

/**
 * pcilend_share_check - may this peer use the function as that client now?
 * @node, @boot: the peer's, as the handshake found them
 *
 * Return: 0; -EAGAIN: not while it is in quarantine; -ESTALE.
 */
int pcilend_share_check(const struct pcilend_share *share, u32 node, u64 boot, u32 lease,
			const char **why);

__END_DECLS

#endif /* PCILEND_SHARE_H */
