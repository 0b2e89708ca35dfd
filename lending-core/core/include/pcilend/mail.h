/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Mail between the clients of a shared function (share.h) and its manager, which the lender
 * carries: of each client one question, and one answer, of which neither side of it is more than
 * PCILEND_MAIL_BYTES. Nothing else is queued.
 *
 *	      ask             next               answer              take
 *	NONE -----> ASKED -----------> TAKEN ------------> ANSWERED -------> NONE
 *	              |  the manager's   |  the manager's     |
 *	              +------------------+--------------------+------------> NONE
 *	                  the client ends, or its link is lost
 *
 * Questions have numbers, which who asks chooses. With the same number it is the same question,
 * asked again by who has heard no answer: it is not told twice. When its link was lost it is, as
 * the manager has deleted by then what it had done for the client: so an answer is always about
 * what the client has now. Who asks with another number has the former answer.
 *
 * Callers serialise access to one struct pcilend_share.
 */
#ifndef PCILEND_MAIL_H
#define PCILEND_MAIL_H

#include "pcilend/platform.h"

__BEGIN_DECLS

#define PCILEND_MAIL_BYTES 200

struct pcilend_share;

enum pcilend_mail_state {
	PCILEND_MAIL_NONE,
	PCILEND_MAIL_ASKED,
	PCILEND_MAIL_TAKEN,
	PCILEND_MAIL_ANSWERED,
};

struct pcilend_mail_text {
	u32 bytes;			/* 1 to PCILEND_MAIL_BYTES */
	u8 text[PCILEND_MAIL_BYTES];
};

/* Of one client. Zeroed memory: none. */
struct pcilend_mail {
	enum pcilend_mail_state state;
	u32 number;
	u64 order;			/* of all questions: the lower was asked first */
	struct pcilend_mail_text text;	/* the question; ANSWERED: the answer */
};

/**
 * pcilend_mail_ask - a client asks
 * @node, @boot: who, as the handshake found it
 * @lease: the client's
 * @number: not 0
 * @why: set on refusal; may be NULL
 *
 * Return: 0: the manager has something new; -EALREADY: that question was asked, and there may be an
 * answer. Or a refusal: -EBUSY (another one is under way), -ERANGE (its size), -ESTALE and -EAGAIN
 * as pcilend_share_check().
 */
int pcilend_mail_ask(struct pcilend_share *share, u32 node, u64 boot, u32 lease, u32 number,
		     const struct pcilend_mail_text *question, const char **why);

/* Is there a question that the manager has not taken? */
bool pcilend_mail_waits(const struct pcilend_share *share);

/* The manager takes that which was asked first. Return: the lease of who has asked; 0: nobody. */
u32 pcilend_mail_next(struct pcilend_share *share, struct pcilend_mail_text *question);

/**
 * pcilend_mail_answer - the manager answers the question of that client that it has taken
 *
 * Return: 0; -ENOENT (no such client), -EAGAIN (it waits for no answer, or has not been heard
 * yet), -ERANGE (its size).
 */
int pcilend_mail_answer(struct pcilend_share *share, u32 client,
			const struct pcilend_mail_text *answer, const char **why);

/* The answer to that question of that client; NULL: there is none, or not yet. */
const struct pcilend_mail_text *pcilend_mail_answered(const struct pcilend_share *share,
						      u32 client, u32 number);

/* The client has it, or nobody wants it any more. */
void pcilend_mail_drop(struct pcilend_mail *mail);

__END_DECLS

#endif /* PCILEND_MAIL_H */
