/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Clients of a shared function, for the files lender_share*.c: processes of this host, and peers.
 * What a peer's process maps it maps itself, behind its slice, of which this host knows where it is
 * in the window.
 */
#ifndef PCILEND_LENDER_SHARE_H
#define PCILEND_LENDER_SHARE_H

#include "lease/lease.h"
#include "lender/lender.h"

struct lender_client {
	struct kref ref;		/* of the machine until it is over, and of its process */
	struct list_head node;		/* fn->lock; in pcilend_shared.clients */
	struct pcilend_function *fn;	/* with a reference */
	u32 lease;
	struct pcilend_use *use;	/* with a reference; NULL: a peer's, as the rest */
	u32 maps;			/* pieces of memory that are mapped of it */
	u32 mail;			/* number of its question: the next one, or under way */
	struct work_struct free;

	struct pcilend_link *link;	/* with a reference */
	u32 peer;
	u64 boot;
	u32 slice_window;
	u64 slice_offset;
	int error;			/* why it could not be mapped */
	bool requester;			/* entered at the link's adapter */
	bool hidden;			/* its pages of BARs */
	bool closed;			/* for ever */
	bool returned;			/* its host uses no pages of BARs any more */
	u32 aimed;			/* bit n: its interrupt n goes to its host */
	struct pcilend_export export[PCILEND_SHARE_RANGES];
	struct pcilend_withdrawn *withdrawn;	/* where those go if it is not returned */
	struct pcilend_return waiting;
};

/* From the first policy to the end of the manager's lease; fn->lock. */
struct pcilend_shared {
	struct pcilend_share share;
	struct pcilend_share_result result;
	struct list_head clients;	/* with a reference each */
	u64 aliases;			/* bit n: that one (slice.h) is mapped */
	u32 follow;			/* what actions lead to, to be applied after them */
	struct pcilend_share_event after[PCILEND_SHARE_ACTIONS];
};

/* lender_share.c */
int pcilend_share_step(struct pcilend_function *fn, struct pcilend_share_event *event,
		       struct lender_client *joining, const char **why);
struct lender_client *pcilend_share_client(struct pcilend_function *fn, u32 lease);
struct pcilend_share_range pcilend_share_own(const struct pcilend_share *share,
					     const struct pcilend_share_client *client, u32 index);
void pcilend_share_describe(const struct pcilend_share *share,
			    const struct pcilend_share_client *client,
			    struct pcilend_client_notice *notice);
void pcilend_share_init_client(struct lender_client *client, struct pcilend_function *fn);
void pcilend_share_put_client(struct lender_client *client);

/* Of the function's, the first interrupt that is the client's. */
u32 pcilend_share_vector_of(const struct pcilend_share *share,
			    const struct pcilend_share_client *client);

/* lender_share_mail.c; of processes of this host */
int pcilend_share_ask(struct lender_client *client, const struct pcilend_mail_text *text,
		      const char **why);
void pcilend_share_take_answer(struct lender_client *client, struct pcilend_mail_text *text);
/* Some may have gone. */
void pcilend_share_mail_settle(struct pcilend_function *fn);

/* lender_share_vectors.c; of processes of this host these are no-ops */
int pcilend_share_vectors_check(struct pcilend_function *fn, struct pcilend_link *link);
void pcilend_share_vectors_mask(struct lender_client *client, bool masked);
void pcilend_share_vectors_close(struct lender_client *client);
void pcilend_share_vectors_unmap(struct pcilend_function *fn,
				 const struct pcilend_share_client *client);

/* lender_share_peer.c; of processes of this host all of these are no-ops */
int pcilend_share_peer_map(struct lender_client *client);
void pcilend_share_peer_hide(struct lender_client *client);
void pcilend_share_peer_show(struct lender_client *client);
void pcilend_share_peer_close(struct lender_client *client);
void pcilend_share_peer_over(struct lender_client *client, enum pcilend_lost_reason reason);
void pcilend_share_peer_free(struct lender_client *client);
void pcilend_share_peer_tell(struct lender_client *client, u16 type);
void pcilend_share_peer_answer(struct lender_client *client, const struct pcilend_mail_text *text);
void pcilend_share_peer_recall(struct lender_client *client, u64 left);
u64 pcilend_share_peer_left(struct lender_client *client);

#endif /* PCILEND_LENDER_SHARE_H */
