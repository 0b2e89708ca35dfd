/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A process of this host that is a client of a function that another host shares, for the files
 * about that: remote_client.c, remote_mail.c (what it asks its manager) and remote_vectors.c (its
 * interrupts).
 */
#ifndef PCILEND_REMOTE_CLIENT_H
#define PCILEND_REMOTE_CLIENT_H

#include "borrower/borrower.h"
#include "lease/lease.h"
#include "link/notify.h"

struct client_range {
	struct pcilend_share_range pages;
	phys_addr_t phys;
};

/* What it asks; mail.h has the lender's side of it. */
struct remote_mail {
	struct delayed_work ask;	/* until it is answered; holds a reference on the client */
	struct mutex lock;		/* the rest */
	bool over;			/* nothing is asked any more */
	enum pcilend_mail_state state;	/* TAKEN is not told apart from ASKED */
	u32 number;
	struct pcilend_mail_text text;
};

struct remote_vector {
	struct pcilend_notify notify;
	bool aimed;			/* the lender sends it, or may */
};

struct remote_client {
	struct kref ref;		/* of its process's file, of the list, of work items */
	struct list_head node;		/* clients_lock */
	struct pcilend_link *link;	/* with a reference; counted in its leases */
	u32 id;
	u32 lease;			/* clients_lock: 0: not granted, or nobody knows */
	u32 lost_early;			/* clients_lock: that was over before we knew it */
	bool refused;			/* its lender has said no to the first JOIN */
	bool hidden;			/* its pages, since a link loss */
	struct pcilend_use *use;	/* with a reference */
	u64 iova;			/* of its slot */
	u32 of_plan;
	u64 slice;			/* device address of that */
	u64 bytes;
	u32 lease_ms;			/* that it has asked for */
	u32 ranges;
	struct client_range range[PCILEND_SHARE_RANGES];
	struct delayed_work end;
	struct remote_mail mail;

	struct mutex vectors_lock;	/* inside of pcilend_use.lock; the next two */
	u32 vectors;			/* that it has joined with; 0 also: it is over */
	struct remote_vector *vector;

	struct mutex lock;		/* inside of pcilend_use.lock; the rest */
	bool ending;			/* nothing new is mapped */
	bool over;			/* nothing is mapped */
	bool lost;			/* its lender has told that it is over */
	bool gone;			/* that boot of its lender is over */
};

/* remote_client.c */
void remote_client_put(struct remote_client *client);
/* Return: 0, or -ESTALE */
int remote_client_check(struct remote_client *client, struct netlink_ext_ack *extack);

/* remote_mail.c */
void remote_mail_init(struct remote_client *client);
int remote_mail_send(void *holder, u32 to, const struct pcilend_mail_text *text,
		     struct netlink_ext_ack *extack);
int remote_mail_next(void *holder, u32 *from, struct pcilend_mail_text *text,
		     struct netlink_ext_ack *extack);
/* The lender brings an answer; what is asked may be asked again, or got lost. */
void remote_mail_answered(struct remote_client *client, const struct pcilend_msg_mail *msg);
void remote_mail_again(struct remote_client *client);
/*
 * Nothing is asked any more, and no work item or timer of it is left. Waits for the lender for up
 * to PCILEND_REQUEST_MS, with no lock held; the caller has a reference.
 */
void remote_mail_end(struct remote_client *client);

/* remote_vectors.c */
int remote_vectors_init(struct remote_client *client, u32 vectors);
int remote_vectors_set(void *holder, u32 vector, struct eventfd_ctx *event,
		       struct netlink_ext_ack *extack);
/* The function sends none any more. */
void remote_vectors_end(struct remote_client *client);

#endif /* PCILEND_REMOTE_CLIENT_H */
