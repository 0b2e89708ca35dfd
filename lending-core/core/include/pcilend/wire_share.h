/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Messages about functions that several hosts use at once (share.h): between the lender, the one
 * manager and the clients. wire.h includes it, and says what holds for all messages.
 *
 *	manager                        lender                        client
 *	   | POLICY (lease) ------------> |                             |
 *	   |                              | <------------------ JOIN    |
 *	   | <------------------ CLIENT   | ---------- answer, placed ->|
 *	   |                              |                             |
 *	   |                              | <---------- RETURN (lease)  |
 *	   | <------------- CLIENT_GONE   |  closes its BAR pages       |
 *	   |  deletes its queues          |                             |
 *	   | CLEARED -------------------> |  unmaps                     |
 *	   |                              | ------- answer to RETURN -> |
 *
 *	   |  a process of the lender     | <------------------ MAIL    |
 *	   |  answers it                  | ---------------- MAILED  -> |
 *	   |                              |                             |
 *
 * When the client's link is lost QUARANTINE takes the place of CLIENT_GONE, nothing is closed or
 * unmapped, and READMITTED tells the client that it may have queues again. By SYNC a host is told
 * again which of its clients go on, and which are LOST. A manager is who has borrowed the function
 * (BORROW); clients return, lose, and hear of resets by the messages that borrowers have, with
 * their own leases.
 */
#ifndef PCILEND_WIRE_SHARE_H
#define PCILEND_WIRE_SHARE_H

#include "pcilend/platform.h"

__BEGIN_DECLS

#define PCILEND_WIRE_SHARE_RANGES 8
#define PCILEND_WIRE_SHARE_CLIENTS 64
#define PCILEND_WIRE_SHARE_VECTORS 32

struct pcilend_msg_share_range {
	__u8 bar;		/* 0 to 5 */
	__u8 kind;		/* enum pcilend_share_pages */
	__le16 reserved;
	__le32 page;
	__le32 pages;		/* of each client; 0: none */
} __packed;

/*
 * What the manager allows each client from now on. 0 clients: it uses the function alone, and the
 * clients that there are end.
 */
struct pcilend_msg_policy {
	__le32 id;
	__le32 lease;
	__le32 clients;		/* up to PCILEND_WIRE_SHARE_CLIENTS */
	__le32 vectors;		/* up to PCILEND_WIRE_SHARE_VECTORS */
	__le64 slice_bytes;	/* at most, of each; a power of two from a page on */
	__le64 near_bytes;	/* of the lender's memory, at most, of each; whole pages */
	struct pcilend_msg_share_range range[PCILEND_WIRE_SHARE_RANGES];
} __packed;

/*
 * The sender wants to be a client. Sent again, with the same slice, as no answer has come, it is
 * answered with the client that there is: one slice is one client's.
 */
struct pcilend_msg_join {
	__le32 id;
	__le32 lease_ms;
	/* Its slice: where that is in the window that the lender has onto the sender. */
	__le64 slice_bytes;	/* a power of two from a page on */
	__le64 slice_offset;	/* page aligned */
	__le32 slice_window;
	__le32 vectors;
	__le64 near_bytes;	/* whole pages */
} __packed;

/* Pages of one range of the policy, in a window that the client has onto the lender. */
struct pcilend_msg_share_place {
	__le64 offset;		/* page aligned */
	__le32 pages;		/* 0: there are none */
	__le32 window;
	__le32 page;		/* the first one, in its BAR */
	__u8 bar;		/* 0 to 5 */
	__u8 reserved[3];
} __packed;

struct pcilend_msg_joined {
	__le32 id;
	__le32 lease;		/* the client's own */
	__le64 slice;		/* device-side address, aligned to its size */
	__le64 alias;		/* device-side address of the client's interrupts, 1 MiB aligned */
	struct pcilend_msg_share_place range[PCILEND_WIRE_SHARE_RANGES];
	__le32 piece;		/* of each pool */
	__le32 vector;		/* the function's number of its interrupt 0 */
} __packed;

/* To the manager: a client is there. */
struct pcilend_msg_client {
	__le32 id;
	__le32 lease;		/* the manager's */
	__le32 client;		/* the client's */
	__le32 node;
	__le64 slice;		/* queues and data of the client are in here, or near memory */
	__le64 slice_bytes;
	__le64 alias;
	__le32 vectors;
	__le32 piece;		/* of each pool */
} __packed;

/*
 * CLIENT_GONE, QUARANTINE: the manager shall delete all queues of that client. CLEARED: it has, and
 * the function uses nothing of the client any more; @round as it was told.
 */
struct pcilend_msg_clear {
	__le32 id;
	__le32 lease;		/* the manager's */
	__le32 client;
	__le32 round;		/* not 0 */
} __packed;

#define PCILEND_WIRE_MAIL_BYTES 200

/*
 * MAIL: a client's question to the manager (mail.h); its answer says only that the lender has it.
 * MAILED: the manager's answer, with the same number.
 */
struct pcilend_msg_mail {
	__le32 id;
	__le32 lease;		/* the client's */
	__le32 number;		/* not 0; the same when it is asked again */
	__le32 bytes;		/* 1 to PCILEND_WIRE_MAIL_BYTES; the rest of text is zero */
	__u8 text[PCILEND_WIRE_MAIL_BYTES];
} __packed;

/*
 * A client's interrupt goes to its own host: by a write of @data at @offset of that host's
 * interrupt range, which the function reaches at the client's alias. Off: it is masked when this is
 * answered.
 */
struct pcilend_msg_vector {
	__le32 id;
	__le32 lease;		/* the client's */
	__le32 vector;		/* of the client, from 0 on */
	__le32 on;		/* 0 or 1 */
	__le32 offset;		/* a multiple of 4 */
	__le32 data;
} __packed;

static_assert(sizeof(struct pcilend_msg_share_range) == 12, "a range of BAR pages");
static_assert(sizeof(struct pcilend_msg_policy) == 128, "policy");
static_assert(sizeof(struct pcilend_msg_join) == 40, "join");
static_assert(sizeof(struct pcilend_msg_share_place) == 24, "place of BAR pages");
static_assert(sizeof(struct pcilend_msg_joined) == 224, "join answer");
static_assert(sizeof(struct pcilend_msg_client) == 48, "client notice");
static_assert(sizeof(struct pcilend_msg_clear) == 16, "a client's queues");
static_assert(sizeof(struct pcilend_msg_mail) == 216, "mail");
static_assert(sizeof(struct pcilend_msg_vector) == 24, "a client's interrupt");

/*
 * The part of pcilend_wire_check() about these: NULL, or what is wrong with the payload of a type
 * of this header.
 */
const char *pcilend_wire_share_fault(__u16 type, bool answer, const void *payload);

__END_DECLS

#endif /* PCILEND_WIRE_SHARE_H */
