/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * The generic-netlink contract of pcilend.ko. lending-core/netlink/pcilend.yaml documents it;
 * a unit test holds the two files together.
 */
#ifndef _UAPI_LINUX_PCILEND_H
#define _UAPI_LINUX_PCILEND_H

#include <linux/types.h>

#define PCILEND_FAMILY_NAME "pcilend"
#define PCILEND_FAMILY_VERSION 1
#define PCILEND_MCGRP_EVENTS "events"

/* State of a function, as its lender sees it (and as announced to borrowers). */
enum pcilend_function_state {
	PCILEND_FUNCTION_LOCAL = 0,	/* not offered */
	PCILEND_FUNCTION_ADDED = 1,	/* peers see it; the lender's own driver uses it */
	PCILEND_FUNCTION_AVAILABLE = 2,	/* may be borrowed */
	PCILEND_FUNCTION_BORROWED = 3,	/* leased to one borrower */
	PCILEND_FUNCTION_FENCING = 4,	/* lease ended: DMA being stopped and unmapped */
	PCILEND_FUNCTION_RESETTING = 5,	/* being reset and checked */
	PCILEND_FUNCTION_QUARANTINED = 6, /* its reset failed, or it is not erased: REASON */
};

enum pcilend_link_state {
	PCILEND_LINK_DOWN = 0,		/* the NTB reports no link */
	PCILEND_LINK_HANDSHAKE = 1,	/* link up, peer's pcilend not seen yet */
	PCILEND_LINK_UP = 2,		/* control channel works */
	PCILEND_LINK_REFUSED = 3,	/* can't be used; link-reason says why and what to do */
};

enum pcilend_event {
	PCILEND_EVENT_LINK = 1,		/* a link's state changed: LINK */
	PCILEND_EVENT_FUNCTION = 2,	/* a function's state changed, or it appeared: FUNCTION */
	PCILEND_EVENT_FUNCTION_GONE = 3, /* a remote function is no longer offered: FUNCTION (id) */
	PCILEND_EVENT_LEASE_LOST = 4,	/* a lease ended that we had not returned: FUNCTION */
	PCILEND_EVENT_RECALL = 5,	/* its lender wants a function back: FUNCTION */
	PCILEND_EVENT_AUDIT = 6,	/* somebody changed something, or was refused: AUDIT */
	PCILEND_EVENT_WAS_RESET = 7,	/* reset without being asked: FUNCTION */
	PCILEND_EVENT_SEGMENT = 8,	/* it, an offer or a connection changed: SEGMENT */
	PCILEND_EVENT_SEGMENT_GONE = 9,	/* it, or a connection, has ended: SEGMENT (id, adapter) */
};

/* What a range of this host's aperture is for. */
enum pcilend_region_kind {
	PCILEND_REGION_DMA = 0,		/* DMA API of the adapter: control area, DMA buffers */
	PCILEND_REGION_INTERRUPTS = 1,	/* the interrupt controller */
	PCILEND_REGION_EXPORTS = 2,	/* BARs lent to the peer */
	PCILEND_REGION_SLOTS = 3,	/* memory of VMs; segments that are offered to the peer */
};

enum pcilend_segment_state {
	PCILEND_SEGMENT_CREATED = 0,	/* nobody may connect it */
	PCILEND_SEGMENT_OFFERED = 1,	/* nodes may; of a peer's: this host may */
	PCILEND_SEGMENT_CONNECTED = 2,	/* some have; of a peer's: this host has */
	PCILEND_SEGMENT_WITHDRAWN = 3,	/* its owner has ended it; not all nodes have confirmed */
	PCILEND_SEGMENT_LOST = 4,	/* of a peer's: its link was lost, or it was withdrawn */
};

enum pcilend_lease_state {
	PCILEND_LEASE_ACTIVE = 0,
	PCILEND_LEASE_RECALLED = 1,	/* its lender takes the function soon */
	PCILEND_LEASE_OVER = 2,		/* nothing of the function is reached any more */
};

/* What the manager of a shared function is told of a client. */
enum pcilend_client_news {
	PCILEND_NEWS_JOINED = 0,	/* it may have queues */
	PCILEND_NEWS_GONE = 1,		/* it has ended: to be confirmed by CLEARED, in time */
	PCILEND_NEWS_QUARANTINED = 2,	/* its link was lost: to be confirmed in the same way */
};

/* State of a client of a shared function. */
enum pcilend_client_state {
	PCILEND_CLIENT_NONE = 0,
	PCILEND_CLIENT_REQUESTED = 1, /* waits for the end of a reset */
	PCILEND_CLIENT_ADMITTED = 2, /* is being mapped */
	PCILEND_CLIENT_ACTIVE = 3,
	PCILEND_CLIENT_QUARANTINING = 4, /* its link was lost; the manager is asked */
	PCILEND_CLIENT_QUARANTINED = 5, /* the manager has confirmed; waits for the link */
	PCILEND_CLIENT_ENDING = 6, /* its BAR pages are being closed */
	PCILEND_CLIENT_CLEARING = 7, /* the manager is asked to confirm */
	PCILEND_CLIENT_CLEARED = 8, /* the manager has; it is being unmapped */
};

/* Of pages of a BAR that clients may map. */
enum pcilend_range_kind {
	PCILEND_RANGE_COMMON = 0,	/* the same for all */
	PCILEND_RANGE_POOL = 1,		/* as many pages for each, one client's behind another's */
};

enum pcilend_cmd {
	PCILEND_CMD_UNSPEC = 0,
	PCILEND_CMD_NODE_GET = 1,	/* do: -> NODE_ID, BOOT_ID, ABI */
	PCILEND_CMD_LINK_GET = 2,	/* dump: -> LINK */
	PCILEND_CMD_CONNECT = 3,	/* admin: NODE_ID, ADAPTER (optional): offer functions */
	PCILEND_CMD_DISCONNECT = 4,	/* admin: NODE_ID; -EBUSY while it borrows */
	PCILEND_CMD_FUNCTION_GET = 5,	/* dump, or do with ID or BDF: -> FUNCTION */
	PCILEND_CMD_ADD = 6,		/* admin: BDF; may have ID, LABEL, NODES -> FUNCTION */
	PCILEND_CMD_REMOVE = 7,		/* admin: BDF */
	PCILEND_CMD_AVAILABLE = 8,	/* admin: BDF -> FUNCTION */
	PCILEND_CMD_UNAVAILABLE = 9,	/* admin: BDF, FORCE; else -EBUSY while borrowed */
	PCILEND_CMD_BORROW = 10, /* admin: ID, FRONTEND, OWNER, ADAPTER (optional) -> FUNCTION */
					/* FRONTEND "lease": SIZE of its slice -> FD, too */
	PCILEND_CMD_RETURN = 11,	/* admin: ID, OWNER (may be left out); 0 if not borrowed */
	PCILEND_CMD_EVENT = 12,		/* multicast: EVENT and what it says */
	PCILEND_CMD_ALLOW = 13,		/* admin: BDF, NODES (left out: all connected nodes) */
	PCILEND_CMD_LABEL = 14,		/* admin: BDF, LABEL (empty: none) */
	PCILEND_CMD_RESERVE = 15,	/* admin: ID, RESERVED_NODE or RESERVED_UUID, TTL_MS */
	PCILEND_CMD_RECALL = 16,	/* admin: BDF, GRACE_MS: unavailable, after asking */
	PCILEND_CMD_RELEASE_QUARANTINE = 17, /* admin: BDF -> FUNCTION */
	PCILEND_CMD_CONFIG_GET = 18,	/* admin: ID, EMULATED -> CONFIG */
	PCILEND_CMD_CHECK = 19,		/* BDF: 0 if it can be lent, or why not */
	PCILEND_CMD_COUNTERS_GET = 20,	/* do: -> COUNTERS */
	PCILEND_CMD_P2P = 21,		/* admin: ID, TARGET, END: DMA to its BARs -> FUNCTION */
	PCILEND_CMD_SEGMENT_CREATE = 22, /* admin: FD, LABEL, EVENT_FD (optional) -> ID, FD */
	PCILEND_CMD_SEGMENT_OFFER = 23,	/* admin: ID, NODE_ID, ADAPTER (optional), READ_ONLY */
	PCILEND_CMD_SEGMENT_WITHDRAW = 24, /* admin: ID, NODE_ID (left out: all) */
	PCILEND_CMD_SEGMENT_CONNECT = 25, /* admin: ID and how -> SEGMENT, FD, CONTROL_FD */
	PCILEND_CMD_SEGMENT_GET = 26,	/* dump: -> SEGMENT */
	PCILEND_CMD_SEGMENT_OFFERED_GET = 27, /* admin, dump: peers are asked -> SEGMENT */
	PCILEND_CMD_BAR_GET = 28,	/* LEASE_FD, BAR, OFFSET, SIZE -> FD */
	PCILEND_CMD_SEGMENT_MAP = 29,	/* LEASE_FD, FD, READ_ONLY -> ADDRESS */
	PCILEND_CMD_SEGMENT_UNMAP = 30,	/* LEASE_FD, ADDRESS */
	PCILEND_CMD_INTERRUPT_SET = 31,	/* LEASE_FD, VECTOR, EVENT_FD (left out: no longer) */
	PCILEND_CMD_SHARE = 32,		/* LEASE_FD, CLIENTS and what each may have: a policy */
	PCILEND_CMD_JOIN = 33,	/* admin: ID, OWNER, SIZE, VECTORS -> FUNCTION, CLIENT, FD */
	PCILEND_CMD_CLIENT_NEXT = 34,	/* LEASE_FD, the manager's -> CLIENT (absent: no news) */
	PCILEND_CMD_CLEARED = 35,	/* LEASE_FD, the manager's, CLIENT_LEASE, ROUND */
	PCILEND_CMD_MAIL_SEND = 36,	/* LEASE_FD, MAIL; the manager's: CLIENT_LEASE */
	PCILEND_CMD_MAIL_NEXT = 37,	/* LEASE_FD -> MAIL, CLIENT_LEASE (absent: no mail) */
	PCILEND_CMD_NEAR_GET = 38,	/* LEASE_FD, SIZE, how -> SEGMENT, FD, CONTROL_FD */
	__PCILEND_CMD_MAX,
};

#define PCILEND_CMD_MAX (__PCILEND_CMD_MAX - 1)

/* Top-level attributes of requests, replies and events. */
enum pcilend_attr {
	PCILEND_A_UNSPEC = 0,
	PCILEND_A_NODE_ID = 1,		/* u32 */
	PCILEND_A_BOOT_ID = 2,		/* u64 */
	PCILEND_A_ABI = 3,		/* u32: wire protocol version */
	PCILEND_A_LINK = 4,		/* nest of pcilend_link_attr */
	PCILEND_A_FUNCTION = 5,		/* nest of pcilend_function_attr */
	PCILEND_A_ID = 6,		/* u32: function id, node << 16 | index */
	PCILEND_A_BDF = 7,		/* string: dddd:bb:dd.f */
	PCILEND_A_FRONTEND = 8,		/* string: "vfio", "shadow", "lease" */
	PCILEND_A_OWNER = 9,		/* string, at most 63 bytes: who borrows, e.g. a domain */
	PCILEND_A_EVENT = 10,		/* u32: enum pcilend_event */
	PCILEND_A_PAD = 11,
	PCILEND_A_NODES = 12,		/* binary: u32 each; empty: nobody */
	PCILEND_A_LABEL = 13,		/* string, at most 63 bytes: whose function it is */
	PCILEND_A_RESERVED_NODE = 14,	/* u32: node id */
	PCILEND_A_RESERVED_UUID = 15,	/* binary, 16 bytes: of a domain */
	PCILEND_A_TTL_MS = 16,		/* u32: how long a reservation holds */
	PCILEND_A_GRACE_MS = 17,	/* u32: how long a borrower may take to return */
	PCILEND_A_FORCE = 18,		/* flag: though it is borrowed */
	PCILEND_A_EMULATED = 19,	/* flag: as the borrower sees it */
	PCILEND_A_CONFIG = 20,		/* binary: 256 or 4096 bytes of configuration space */
	PCILEND_A_COUNTERS = 21,	/* nest of pcilend_counter_attr */
	PCILEND_A_AUDIT = 22,		/* nest of pcilend_audit_attr */
	PCILEND_A_ADAPTER = 23,		/* string: PCI address of an NTB of this host */
	PCILEND_A_TARGET = 24,		/* u32: id of the function whose BARs are reached */
	PCILEND_A_END = 25,		/* flag: that is taken back */
	PCILEND_A_DIRECT = 26,		/* flag: no IOMMU shall translate for the function */
	PCILEND_A_FD = 27,		/* u32: of the calling process: a dma-buf, a segment's, */
					/* a lease's */
	PCILEND_A_CONTROL_FD = 28,	/* u32: poll: it is lost; mmap: pcilend_segment_status */
	PCILEND_A_SEGMENT = 29,		/* nest of pcilend_segment_attr */
	PCILEND_A_READ_ONLY = 30,	/* flag: the peer, or the function, can't write to it */
	PCILEND_A_WRITE_COMBINING = 31,	/* flag: stores are gathered (else uncached) */
	PCILEND_A_EVENT_FD = 32,	/* u32: of the calling process: an eventfd */
	PCILEND_A_SANITIZE = 33,	/* flag: it is to be erased after each lease */
	PCILEND_A_SANITIZED = 34,	/* flag: that was done */
	PCILEND_A_LEASE_FD = 35,	/* u32: of the calling process: poll: its end, a recall; */
					/* mmap: pcilend_lease_status */
	PCILEND_A_BAR = 36,		/* u32: 0 to 5 */
	PCILEND_A_OFFSET = 37,		/* u64: bytes */
	PCILEND_A_SIZE = 38,		/* u64: bytes */
	PCILEND_A_ADDRESS = 39,		/* u64: by which a function reaches a segment */
	PCILEND_A_VECTOR = 40,		/* u32: interrupt of a function, from 0 on */
	PCILEND_A_CLIENTS = 41,		/* u32: how many may share it; 0: it is not shared */
	PCILEND_A_VECTORS = 42,		/* u32: how many interrupts */
	PCILEND_A_RANGE = 43,		/* multi: nest of pcilend_range_attr */
	PCILEND_A_CLIENT = 44,		/* nest of pcilend_client_attr */
	PCILEND_A_CLIENT_LEASE = 45,	/* u32: lease number of a client */
	PCILEND_A_ROUND = 46,		/* u32: of a question, not 0 */
	PCILEND_A_MAIL = 47,		/* binary, 1 to 200 bytes: between a client and its */
					/* manager */
	PCILEND_A_NEAR = 48,		/* u64: bytes that the lender has for its borrower */
	__PCILEND_A_MAX,
};

#define PCILEND_A_MAX (__PCILEND_A_MAX - 1)

enum pcilend_link_attr {
	PCILEND_LINK_A_UNSPEC = 0,
	PCILEND_LINK_A_INDEX = 1,	/* u32: number of this link on this host */
	PCILEND_LINK_A_ADAPTER = 2,	/* string: the NTB's PCI address */
	PCILEND_LINK_A_DRIVER = 3,	/* string: the NTB's hardware driver */
	PCILEND_LINK_A_STATE = 4,	/* u32: enum pcilend_link_state */
	PCILEND_LINK_A_REASON = 5,	/* string: why it is refused, and the cure */
	PCILEND_LINK_A_PEER_NODE = 6,	/* u32; absent until the handshake */
	PCILEND_LINK_A_PEER_BOOT_ID = 7, /* u64 */
	PCILEND_LINK_A_CONNECTED = 8,	/* flag: this host offers its functions to the peer */
	PCILEND_LINK_A_PEER_CONNECTED = 9, /* flag: the peer offers its functions to this host */
	PCILEND_LINK_A_TX_MESSAGES = 10, /* u64: control messages sent */
	PCILEND_LINK_A_RX_MESSAGES = 11, /* u64: control messages received */
	PCILEND_LINK_A_BAD_MESSAGES = 12, /* u64: received and refused as malformed */
	PCILEND_LINK_A_TIMEOUTS = 13,	/* u64: requests without an answer */
	PCILEND_LINK_A_EXPORT_BYTES = 14, /* u64: bytes of local BARs the peer can reach */
	PCILEND_LINK_A_SLOT_BYTES = 15,	/* u64: bytes of guest memory the peer can reach */
	PCILEND_LINK_A_PAD = 16,
	PCILEND_LINK_A_LEASE_MS = 17,	/* u32: silence that ends the leases of this host */
	PCILEND_LINK_A_WINDOW = 18,	/* multi: nest of pcilend_window_attr */
	PCILEND_LINK_A_REGION = 19,	/* multi: nest of pcilend_region_attr; once planned */
	PCILEND_LINK_A_DEGRADED = 20,	/* string, multi: what the windows are too small for */
	PCILEND_LINK_A_HOLE = 21,	/* u64: start of this host's lowest PCI hole */
	PCILEND_LINK_A_PEER_HOLE = 22,	/* u64: the peer's; absent until it told */
	PCILEND_LINK_A_DOWNS = 23,	/* u64: times the link was lost */
	PCILEND_LINK_A_PINNED = 24,	/* u32: the only node that is let in; absent: any */
	PCILEND_LINK_A_LEASES = 25,	/* u32: functions borrowed and lent over it */
	PCILEND_LINK_A_DIRECT = 26,	/* flag: no IOMMU; the peer reaches all memory here */
	PCILEND_LINK_A_REQUESTERS = 27,	/* u32: of who may send through it; absent: all may */
	PCILEND_LINK_A_REQUESTERS_USED = 28, /* u32: entries in use, by anybody */
	PCILEND_LINK_A_REQUESTERS_LENT = 29, /* u32: of functions that are lent over it */
	__PCILEND_LINK_A_MAX,
};

#define PCILEND_LINK_A_MAX (__PCILEND_LINK_A_MAX - 1)

/* A memory window of the adapter. */
enum pcilend_window_attr {
	PCILEND_WINDOW_A_UNSPEC = 0,
	PCILEND_WINDOW_A_INDEX = 1,	/* u32 */
	PCILEND_WINDOW_A_SIZE = 2,	/* u64: bytes that this host sees of the peer */
	PCILEND_WINDOW_A_SIZE_MAX = 3,	/* u64: largest inbound translation, bytes */
	PCILEND_WINDOW_A_ADDRESS_ALIGN = 4, /* u64: of an inbound translation, bytes */
	PCILEND_WINDOW_A_SIZE_ALIGN = 5, /* u64: of its size, bytes */
	PCILEND_WINDOW_A_PAD = 6,
	__PCILEND_WINDOW_A_MAX,
};

#define PCILEND_WINDOW_A_MAX (__PCILEND_WINDOW_A_MAX - 1)

/* A range of this host's aperture. */
enum pcilend_region_attr {
	PCILEND_REGION_A_UNSPEC = 0,
	PCILEND_REGION_A_KIND = 1,	/* u32: enum pcilend_region_kind */
	PCILEND_REGION_A_IOVA = 2,	/* u64 */
	PCILEND_REGION_A_SIZE = 3,	/* u64: bytes */
	PCILEND_REGION_A_WINDOW = 4,	/* u32: of the peer's windows, the one that reaches it */
	PCILEND_REGION_A_USED = 5,	/* u64: bytes in use; exports and slots only */
	PCILEND_REGION_A_PAD = 6,
	__PCILEND_REGION_A_MAX,
};

#define PCILEND_REGION_A_MAX (__PCILEND_REGION_A_MAX - 1)

enum pcilend_function_attr {
	PCILEND_FUNCTION_A_UNSPEC = 0,
	PCILEND_FUNCTION_A_ID = 1,	/* u32 */
	PCILEND_FUNCTION_A_UUID = 2,	/* binary, 16 bytes */
	PCILEND_FUNCTION_A_LENDER = 3,	/* u32: node id */
	PCILEND_FUNCTION_A_BDF = 4,	/* string: address on the lender */
	PCILEND_FUNCTION_A_STATE = 5,	/* u32: enum pcilend_function_state */
	PCILEND_FUNCTION_A_VENDOR = 6,	/* u16 */
	PCILEND_FUNCTION_A_DEVICE = 7,	/* u16 */
	PCILEND_FUNCTION_A_SUBSYSTEM_VENDOR = 8, /* u16 */
	PCILEND_FUNCTION_A_SUBSYSTEM_DEVICE = 9, /* u16 */
	PCILEND_FUNCTION_A_CLASS = 10,	/* u32: class << 8 | revision, as in config space 0x08 */
	PCILEND_FUNCTION_A_BORROWER = 11, /* u32: node id; absent unless borrowed */
	PCILEND_FUNCTION_A_LEASE = 12,	/* u32: lease number; absent unless borrowed */
	PCILEND_FUNCTION_A_FRONTEND = 13, /* string; on the borrower, while borrowed here */
	PCILEND_FUNCTION_A_OWNER = 14,	/* string; on the borrower, while borrowed here */
	PCILEND_FUNCTION_A_VIRTUAL = 15, /* string: PCI address of the virtual function here */
	PCILEND_FUNCTION_A_REASON = 16,	/* string: why it can't be used */
	PCILEND_FUNCTION_A_BAR = 17,	/* multi: nest of pcilend_bar_attr */
	PCILEND_FUNCTION_A_DRIVER = 18,	/* string: driver bound on this host */
	PCILEND_FUNCTION_A_GUEST_BYTES = 19, /* u64: what its user of VFIO has mapped (borrower) */
	/* 20 is not used */
	PCILEND_FUNCTION_A_RESETS = 21,	/* u32: resets since added (lender) */
	PCILEND_FUNCTION_A_FAULTS = 22,	/* u64: DMA faults since borrowed (lender) */
	PCILEND_FUNCTION_A_PAD = 23,
	PCILEND_FUNCTION_A_LABEL = 24,	/* string: whose function it is */
	PCILEND_FUNCTION_A_ALLOWED = 25, /* binary: u32 each, nodes that see it; absent: all */
	PCILEND_FUNCTION_A_RESERVED_NODE = 26, /* u32; absent unless reserved for a node */
	PCILEND_FUNCTION_A_RESERVED_UUID = 27, /* binary; absent unless reserved for a domain */
	PCILEND_FUNCTION_A_RESERVED_MS = 28, /* u32: how long it is still reserved (lender) */
	PCILEND_FUNCTION_A_LEASE_MS = 29, /* u32: silence that ends the lease (lender) */
	PCILEND_FUNCTION_A_RECALL_MS = 30, /* u32: time left until it is taken back */
	PCILEND_FUNCTION_A_GROUP = 31,	/* u32: IOMMU group; on others than the lender: of a set */
	PCILEND_FUNCTION_A_MEMBER = 32,	/* multi: nest of pcilend_member_attr (lender) */
	PCILEND_FUNCTION_A_ADAPTER = 33, /* string: NTB that the lease goes over; absent without */
	PCILEND_FUNCTION_A_PATH = 34,	/* string, multi: NTBs it can be borrowed over (borrower) */
	PCILEND_FUNCTION_A_REACHES = 35, /* binary: u32 each, functions it reaches (borrower) */
	PCILEND_FUNCTION_A_DIRECT = 36,	/* flag: no IOMMU; it reaches all of its lender's memory */
	PCILEND_FUNCTION_A_RELAYED = 37, /* flag: borrowed, and its lender relays its MSI */
	PCILEND_FUNCTION_A_LEASE_LEFT_MS = 38, /* u32: until silence ends the lease (lender) */
	PCILEND_FUNCTION_A_SANITIZE = 39, /* flag: it is erased after each lease (lender) */
	PCILEND_FUNCTION_A_DIRTY = 40,	/* flag: it was not yet, after the last one (lender) */
	PCILEND_FUNCTION_A_SHARED = 41,	/* flag: its borrower admits clients */
	PCILEND_FUNCTION_A_CLIENT = 42,	/* multi: nest of pcilend_client_attr (lender) */
	PCILEND_FUNCTION_A_NEAR = 43,	/* u64: bytes that its borrower may have there (lender) */
	PCILEND_FUNCTION_A_NEAR_USED = 44, /* u64: of these, what it has (lender) */
	__PCILEND_FUNCTION_A_MAX,
};

#define PCILEND_FUNCTION_A_MAX (__PCILEND_FUNCTION_A_MAX - 1)

enum pcilend_bar_attr {
	PCILEND_BAR_A_UNSPEC = 0,
	PCILEND_BAR_A_INDEX = 1,	/* u32: 0 to 5, 6 = expansion ROM */
	PCILEND_BAR_A_SIZE = 2,		/* u64: bytes */
	PCILEND_BAR_A_FLAGS = 3,	/* u32: PCILEND_BAR_* of the wire protocol */
	PCILEND_BAR_A_PAD = 4,
	__PCILEND_BAR_A_MAX,
};

#define PCILEND_BAR_A_MAX (__PCILEND_BAR_A_MAX - 1)

/* Another function of a function's IOMMU group. */
enum pcilend_member_attr {
	PCILEND_MEMBER_A_UNSPEC = 0,
	PCILEND_MEMBER_A_BDF = 1,	/* string */
	PCILEND_MEMBER_A_ID = 2,	/* u32; absent unless added */
	PCILEND_MEMBER_A_STATE = 3,	/* u32: enum pcilend_function_state */
	__PCILEND_MEMBER_A_MAX,
};

#define PCILEND_MEMBER_A_MAX (__PCILEND_MEMBER_A_MAX - 1)

/* Pages of a BAR that clients of a shared function may map. */
enum pcilend_range_attr {
	PCILEND_RANGE_A_UNSPEC = 0,
	PCILEND_RANGE_A_BAR = 1,	/* u32: 0 to 5 */
	PCILEND_RANGE_A_PAGE = 2,	/* u32: the first one, of 4 KiB */
	PCILEND_RANGE_A_PAGES = 3,	/* u32: of each client */
	PCILEND_RANGE_A_KIND = 4,	/* u32: enum pcilend_range_kind */
	__PCILEND_RANGE_A_MAX,
};

#define PCILEND_RANGE_A_MAX (__PCILEND_RANGE_A_MAX - 1)

/* A client of a shared function: as listed, as its manager is told, as it is told itself. */
enum pcilend_client_attr {
	PCILEND_CLIENT_A_UNSPEC = 0,
	PCILEND_CLIENT_A_LEASE = 1,	/* u32: lease number */
	PCILEND_CLIENT_A_NODE = 2,	/* u32: node id of its host */
	PCILEND_CLIENT_A_STATE = 3,	/* u32: enum pcilend_client_state; as listed */
	PCILEND_CLIENT_A_NEWS = 4,	/* u32: enum pcilend_client_news; to the manager */
	PCILEND_CLIENT_A_ROUND = 5,	/* u32: of the question; absent of JOINED */
	PCILEND_CLIENT_A_SLICE = 6,	/* u64: device address */
	PCILEND_CLIENT_A_SLICE_BYTES = 7, /* u64 */
	PCILEND_CLIENT_A_VECTOR = 8,	/* u32: the function's number of its interrupt 0 */
	PCILEND_CLIENT_A_VECTORS = 9,	/* u32: how many it has */
	PCILEND_CLIENT_A_PIECE = 10,	/* u32: which part of each pool is its own */
	PCILEND_CLIENT_A_RANGE = 11,	/* multi: nest of pcilend_range_attr; to itself */
	PCILEND_CLIENT_A_PAD = 12,
	__PCILEND_CLIENT_A_MAX,
};

#define PCILEND_CLIENT_A_MAX (__PCILEND_CLIENT_A_MAX - 1)

/* A segment of this host, or one of a peer that is connected here, or offered to this host. */
enum pcilend_segment_attr {
	PCILEND_SEGMENT_A_UNSPEC = 0,
	PCILEND_SEGMENT_A_ID = 1,	/* u32: its owner's node << 16 | index */
	PCILEND_SEGMENT_A_NAME = 2,	/* string; not of those that are connected */
	PCILEND_SEGMENT_A_SIZE = 3,	/* u64: bytes */
	PCILEND_SEGMENT_A_STATE = 4,	/* u32: enum pcilend_segment_state */
	PCILEND_SEGMENT_A_OFFER = 5,	/* multi: nest of pcilend_offer_attr; of this host's only */
	PCILEND_SEGMENT_A_ADAPTER = 6,	/* string: NTB to its owner; absent if it is ours */
	PCILEND_SEGMENT_A_READ_ONLY = 7, /* flag: it is connected so, or offered so */
	PCILEND_SEGMENT_A_WRITE_COMBINING = 8, /* flag: it is connected so */
	PCILEND_SEGMENT_A_PAD = 9,
	__PCILEND_SEGMENT_A_MAX,
};

#define PCILEND_SEGMENT_A_MAX (__PCILEND_SEGMENT_A_MAX - 1)

/* A node that may connect a segment, or has it still. */
enum pcilend_offer_attr {
	PCILEND_OFFER_A_UNSPEC = 0,
	PCILEND_OFFER_A_NODE = 1,	/* u32: node id */
	PCILEND_OFFER_A_ADAPTER = 2,	/* string: NTB of this host that leads there */
	PCILEND_OFFER_A_READ_ONLY = 3,	/* flag */
	PCILEND_OFFER_A_WITHDRAWN = 4,	/* flag: it reaches nothing, and has not confirmed that */
	PCILEND_OFFER_A_CONNECTIONS = 5, /* u32 */
	__PCILEND_OFFER_A_MAX,
};

#define PCILEND_OFFER_A_MAX (__PCILEND_OFFER_A_MAX - 1)

/* Counts since pcilend was loaded. */
enum pcilend_counter_attr {
	PCILEND_COUNTER_A_UNSPEC = 0,
	PCILEND_COUNTER_A_GRANTED = 1,	/* u64: leases granted to borrowers */
	PCILEND_COUNTER_A_RETURNED = 2,	/* u64: leases that borrowers ended */
	PCILEND_COUNTER_A_EXPIRED = 3,	/* u64: leases that ended for want of a heartbeat */
	PCILEND_COUNTER_A_REVOKED = 4,	/* u64: leases that this host took back */
	PCILEND_COUNTER_A_REFUSED = 5,	/* u64: requests of borrowers that were refused */
	PCILEND_COUNTER_A_RESETS = 6,	/* u64: resets of local functions */
	PCILEND_COUNTER_A_RESET_FAILURES = 7, /* u64: resets that ended in quarantine */
	PCILEND_COUNTER_A_FAULTS = 8,	/* u64: DMA faults of lent functions */
	PCILEND_COUNTER_A_BORROWED = 9,	/* u64: functions of peers that this host borrowed */
	PCILEND_COUNTER_A_LOST = 10,	/* u64: leases of this host that ended without its doing */
	PCILEND_COUNTER_A_RELAYED = 11,	/* u64: interrupts that this host relayed to borrowers */
	PCILEND_COUNTER_A_PAD = 12,
	PCILEND_COUNTER_A_STRANGERS = 13, /* u64: peers refused, as their node is known elsewhere */
	__PCILEND_COUNTER_A_MAX,
};

#define PCILEND_COUNTER_A_MAX (__PCILEND_COUNTER_A_MAX - 1)

/* Who changed what. */
enum pcilend_audit_attr {
	PCILEND_AUDIT_A_UNSPEC = 0,
	PCILEND_AUDIT_A_TIME = 1,	/* u64: ns since 1970 */
	PCILEND_AUDIT_A_UID = 2,	/* u32: user of this host who asked; or else */
	PCILEND_AUDIT_A_NODE = 3,	/* u32: node that asked */
	PCILEND_AUDIT_A_ACTION = 4,	/* string: name of the operation, such as "borrow" */
	PCILEND_AUDIT_A_FUNCTION = 5,	/* u32: function id; absent if it is about none */
	PCILEND_AUDIT_A_TARGET_NODE = 6, /* u32: node it is about; absent if it is about none */
	PCILEND_AUDIT_A_RESULT = 7,	/* s32: 0 or a negative errno */
	PCILEND_AUDIT_A_PAD = 8,
	PCILEND_AUDIT_A_TARGET = 9,	/* u32: id of the function it reaches; absent without */
	__PCILEND_AUDIT_A_MAX,
};

#define PCILEND_AUDIT_A_MAX (__PCILEND_AUDIT_A_MAX - 1)

/*
 * The page that mmap() of CONTROL_FD shows. Who finds the epoch as it was before his stores knows
 * that none of them has been lost with the link, as far as they have reached the adapter by then: a
 * load from the segment in between makes sure of that.
 */
struct pcilend_segment_status {
	__u64 epoch;	/* changes whenever the link was lost, and when the segment is */
};

/*
 * The page that mmap() of LEASE_FD shows. Who finds the epoch as it was before knows that nobody
 * has reset the function since, and that no DMA of it was lost.
 */
struct pcilend_lease_status {
	__u64 epoch;
	__u32 state;	/* enum pcilend_lease_state */
};

#endif /* _UAPI_LINUX_PCILEND_H */
