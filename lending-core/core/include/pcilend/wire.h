/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The wire protocol between the pcilend.ko of two hosts, version 18.
 *
 * Both hosts offer the other one a control area in their own memory: a page of header and
 * heartbeat, then a ring of message slots. The area's owner reads it; the peer only writes to it,
 * through its memory window, so that nobody ever waits for a read across the link. Scratchpads
 * say where the area is; doorbell bit 0 says "look". Beside the ring there is room for one request
 * that may come from any context, as who sends it polls for the answer.
 *
 * All fields are little-endian. Everything in here comes from a peer and is hostile until one of
 * the pcilend_wire_* checks passed it.
 */
#ifndef PCILEND_WIRE_H
#define PCILEND_WIRE_H

#include "pcilend/platform.h"
#include "pcilend/wire_share.h"

__BEGIN_DECLS

#define PCILEND_WIRE_VERSION 18
#define PCILEND_WIRE_MAGIC 0x444e4c50u /* "PLND" */

/*
 * Scratchpads each host writes for its peer, in this order; SPAD_MAGIC last, and zeroed first
 * when the values change. Upstream hardware drivers give each side at least 8 (ntb_hw_amd).
 */
enum pcilend_spad {
	PCILEND_SPAD_MAGIC = 0,		/* PCILEND_WIRE_MAGIC + PCILEND_WIRE_VERSION */
	PCILEND_SPAD_BOOT_LOW = 1,	/* boot id: random, new whenever an adapter is */
					/* taken into use, as all state begins anew then */
	PCILEND_SPAD_BOOT_HIGH = 2,
	PCILEND_SPAD_NODE = 3,		/* node id, 1 to 65535 */
	PCILEND_SPAD_AREA_PAGE = 4,	/* where the control area is: bits 31 to 28 the window, */
					/* the rest the offset in it, in 4 KiB pages */
	PCILEND_SPAD_SEEN_LOW = 5,	/* low half of the boot id of the peer that is mapped: */
					/* both sides are up when each has seen the other */
	PCILEND_SPADS = 6,
};

#define PCILEND_DOORBELL_KICK 0

#define PCILEND_SLOT_BYTES 256
#define PCILEND_RING_SLOTS 64 /* a power of two, so that head and tail may wrap */
#define PCILEND_TRAIL_SLOTS 64
#define PCILEND_AREA_BYTES (PCILEND_RING_SLOTS * PCILEND_SLOT_BYTES + 1024) /* 17 KiB */

/*
 * The control area. The peer writes everything in it but `owner`. A ring is full when head -
 * tail == PCILEND_RING_SLOTS; a writer that finds it full waits, bounded, or gives up with -EBUSY.
 */
struct pcilend_wire_area {
	/* Written by the area's owner before it shows MAGIC; constant afterwards. */
	__le32 magic;
	__le32 version;
	__le64 boot;
	__le32 node;
	__le32 reserved0[11];
	/* Written by the peer. */
	__le64 heartbeat;	/* +1 every PCILEND_HEARTBEAT_MS while the peer lives */
	__le32 head;		/* messages ever put into this ring */
	__le32 tail;		/* messages the peer has taken from the ring in its own area */
	__le64 writer_boot;	/* boot id of who wrote head: stale writers are ignored. 0: a */
				/* session begins, and nothing of it is there yet */
	/*
	 * Before each heartbeat: its number's low half where it belongs, so that one that got lost
	 * leaves a gap; and how many losses of the link the peer has found by itself.
	 */
	__le32 trail[PCILEND_TRAIL_SLOTS];	/* beat n: [n % PCILEND_TRAIL_SLOTS] */
	__le32 losses;
	__le32 reserved1;
	/*
	 * Boot id that the peer has found here, written before writer_boot. A peer that was not
	 * told that the area's owner has rebooted goes on in the new area: this shows it.
	 */
	__le64 reader_boot;
	/*
	 * The peer's polled request: its number, which is its sequence, too. 0 while it is being
	 * written, and when a session begins. It comes after the messages before that head of the
	 * ring. A sender that has given up the one before may write the next.
	 */
	__le32 polled;
	__le32 polled_head;
	__le64 polled_answer;	/* to the owner's own: pcilend_polled_answer() */
	__u8 polled_slot[PCILEND_SLOT_BYTES];
	__u8 reserved2[1024 - 64 - 24 - 4 * PCILEND_TRAIL_SLOTS - 32 - PCILEND_SLOT_BYTES];
	__u8 slots[PCILEND_RING_SLOTS][PCILEND_SLOT_BYTES];
} __packed;

#define PCILEND_HEARTBEAT_MS 500
#define PCILEND_LEASE_MS_DEFAULT 10000	/* no heartbeat for this long ends every lease */
#define PCILEND_LEASE_MS_MIN 5000	/* beats come late while somebody polls: PCILEND_POLL_MS */
#define PCILEND_LEASE_MS_MAX 3600000
#define PCILEND_GRACE_MS_MAX 86400000u	/* 24 hours for a borrower to return a function */
#define PCILEND_RESERVE_MS_MIN 1000u
#define PCILEND_RESERVE_MS_MAX 86400000u
#define PCILEND_REQUEST_MS 5000		/* a request without an answer fails with -ETIMEDOUT */
#define PCILEND_POLL_MS 2000		/* a polled request without an answer, as in Linux' */
					/* drivers/pci/xen-pcifront.c */
#define PCILEND_RESET_MS 75000		/* but for a reset: PCIe gives a function 60 s for one, */
					/* and it has some more to show that it works */

enum pcilend_msg_type {
	/* Notices from a lender, without answer. */
	PCILEND_MSG_FUNCTION = 1,	/* struct pcilend_msg_function: appeared or changed */
	PCILEND_MSG_WITHDRAW = 2,	/* struct pcilend_msg_id: no longer offered */
	PCILEND_MSG_LOST = 3,		/* struct pcilend_msg_lease: the lease is over */
	PCILEND_MSG_CONNECTED = 4,	/* struct pcilend_msg_connected */
	PCILEND_MSG_RECALL = 5,		/* struct pcilend_msg_recall: please return it */
	PCILEND_MSG_WAS_RESET = 6,	/* struct pcilend_msg_lease: reset without being asked, */
					/* after a loss of the link; bus mastering is off */
	PCILEND_MSG_INTX_RAISED = 7,	/* struct pcilend_msg_lease: its legacy interrupt came, */
					/* and is masked until the borrower opens it again */
	PCILEND_MSG_UNREACHED = 8,	/* struct pcilend_msg_unreached */
	/* Of shared functions: wire_share.h. */
	PCILEND_MSG_MAILED = 11,	/* struct pcilend_msg_mail: the answer to a MAIL */
	PCILEND_MSG_CLIENT = 12,	/* struct pcilend_msg_client */
	PCILEND_MSG_CLIENT_GONE = 13,	/* struct pcilend_msg_clear */
	PCILEND_MSG_QUARANTINE = 14,	/* struct pcilend_msg_clear */
	PCILEND_MSG_READMITTED = 15,	/* struct pcilend_msg_lease */
	/*
	 * Requests of a borrower; each is answered with the same type, FLAG_ANSWER and a status.
	 * An answer has no payload unless one is named here; then it has it (zeroes) also when
	 * the status is a refusal.
	 */
	PCILEND_MSG_BORROW = 16,	/* struct pcilend_msg_borrow -> ..._borrowed */
	PCILEND_MSG_RETURN = 17,	/* struct pcilend_msg_lease: answered when it is reset */
	PCILEND_MSG_MAP = 18,		/* struct pcilend_msg_map */
	PCILEND_MSG_UNMAP = 19,		/* struct pcilend_msg_map */
	PCILEND_MSG_BUS_MASTER = 20,	/* struct pcilend_msg_bus_master */
	PCILEND_MSG_RESET = 21,		/* struct pcilend_msg_lease: FLR or alike, state restored */
	PCILEND_MSG_CONFIG_READ = 22,	/* struct pcilend_msg_config -> the same with data */
	PCILEND_MSG_CONFIG_WRITE = 23,	/* struct pcilend_msg_config with data */
	PCILEND_MSG_SYNC = 24,		/* no payload: asks for all PCILEND_MSG_FUNCTION notices */
	PCILEND_MSG_RESERVE = 25,	/* struct pcilend_msg_reserve */
	PCILEND_MSG_HELLO = 26,		/* struct pcilend_msg_hello: before all others, both ways */
	PCILEND_MSG_VOUCH = 27,		/* struct pcilend_msg_vouch: is that link yours too? */
	PCILEND_MSG_INTX = 28,		/* struct pcilend_msg_intx */
	PCILEND_MSG_REACH = 29,		/* struct pcilend_msg_reach */
	PCILEND_MSG_EXPOSE = 30,	/* struct pcilend_msg_expose */
	PCILEND_MSG_EXPOSED = 31,	/* struct pcilend_msg_exposed: between two lenders */
	PCILEND_MSG_MSI = 32,		/* struct pcilend_msg_msi -> ..._msi_message */
	PCILEND_MSG_MSI_RAISED = 33,	/* struct pcilend_msg_msi_raised: a lender's, answered */
					/* when they are raised on the borrower */
	PCILEND_MSG_TARGET = 34,	/* struct pcilend_msg_target */
	PCILEND_MSG_NEAR = 35,		/* struct pcilend_msg_near -> ..._id, of a segment */
	/* Requests about segments (segment.h): of who connects one, and the last of its owner. */
	PCILEND_MSG_SEGMENT_CONNECT = 40, /* struct pcilend_msg_connection -> ..._segment */
	PCILEND_MSG_SEGMENT_RELEASE = 41, /* struct pcilend_msg_connection: may be repeated */
	PCILEND_MSG_SEGMENT_WITHDRAW = 42, /* struct pcilend_msg_withdraw: answered when the */
					/* receiver reaches nothing of that offer any more */
	PCILEND_MSG_SEGMENT_NEXT = 43,	/* struct pcilend_msg_after -> ..._offered: what the */
					/* receiver offers to the sender over this link */
	/* Of shared functions: wire_share.h. */
	PCILEND_MSG_POLICY = 48,	/* struct pcilend_msg_policy */
	PCILEND_MSG_JOIN = 49,		/* struct pcilend_msg_join -> ..._joined */
	PCILEND_MSG_CLEARED = 50,	/* struct pcilend_msg_clear */
	PCILEND_MSG_MAIL = 51,		/* struct pcilend_msg_mail: may be repeated */
	PCILEND_MSG_VECTOR = 52,	/* struct pcilend_msg_vector */
};

#define PCILEND_MSG_FLAG_ANSWER 0x0001

/* Why a request was refused; each has one errno on the requester's side (wire.c). */
enum pcilend_status {
	PCILEND_STATUS_OK = 0,
	PCILEND_STATUS_MALFORMED = 1,	/* -EPROTO */
	PCILEND_STATUS_NO_FUNCTION = 2,	/* -ENODEV: unknown, or not offered to this node; also */
					/* of segments */
	PCILEND_STATUS_UNAVAILABLE = 3,	/* -EAGAIN: added, but not made available */
	PCILEND_STATUS_BUSY = 4,	/* -EBUSY: borrowed by somebody else */
	PCILEND_STATUS_NO_LEASE = 5,	/* -ESTALE: the lease named is not the one in force */
	PCILEND_STATUS_RANGE = 6,	/* -ERANGE: an address or size outside what may be used */
	PCILEND_STATUS_NO_SPACE = 7,	/* -ENOSPC: no aperture or table space left */
	PCILEND_STATUS_FAILED = 8,	/* -EIO: the device or IOMMU refused */
	PCILEND_STATUS_QUARANTINED = 9,	/* -EUCLEAN */
	PCILEND_STATUS_OVERLOAD = 10,	/* -EBUSY: too many requests at once */
	PCILEND_STATUS_RESERVED = 11,	/* -EACCES: reserved for somebody else */
	PCILEND_STATUS_SET_INCOMPLETE = 12, /* -EXDEV: others of its set are not available */
	PCILEND_STATUS_SET_TAKEN = 13,	/* -EUSERS: others of its set are lent to somebody else, */
					/* or map something else there */
	PCILEND_STATUS_STRANGER = 14,	/* -ENOTUNIQ: that is not this node */
	PCILEND_STATUS_SET_ELSEWHERE = 15, /* -EMLINK: others of its set go over another link */
	PCILEND_STATUS_NO_ROUTE = 16,	/* -EOPNOTSUPP: that host may not carry DMA from one */
					/* function to the other; or it is direct, where all */
					/* it reaches is given */
	PCILEND_STATUS_NO_LINK = 17,	/* -EHOSTUNREACH: no link to that node is up */
	PCILEND_STATUS_NOT_OFFERED = 18, /* -ECONNREFUSED: that node may not borrow it */
	PCILEND_STATUS_NO_REQUESTER = 19, /* -EXFULL: not let through by the lender's adapter */
};

#define PCILEND_WIRE_WINDOWS 16	/* memory window indices are below it */
#define PCILEND_WIRE_NO_WINDOW 0xffffffffu	/* in HELLO: interrupts are relayed */
#define PCILEND_AREA_WINDOW_SHIFT 28	/* in PCILEND_SPAD_AREA_PAGE */

struct pcilend_msg_header {
	__le16 type;
	__le16 flags;
	__le16 status;		/* enum pcilend_status, in answers */
	__le16 length;		/* bytes of payload after this header */
	__le32 request;		/* chosen by the requester, not 0; 0 in notices */
	__le32 sequence;	/* the ring's head before this message */
	__le64 boot;		/* sender's boot id */
} __packed;

#define PCILEND_PAYLOAD_BYTES (PCILEND_SLOT_BYTES - 24)

#define PCILEND_LABEL_BYTES 64		/* with the NUL */

#define PCILEND_BARS 7			/* 0 to 5, 6 = expansion ROM */
#define PCILEND_BAR_MEM64 0x01
#define PCILEND_BAR_PREFETCH 0x02
#define PCILEND_BAR_IO 0x04		/* can't be reached by a borrower */

struct pcilend_msg_bar {
	__le64 size;		/* bytes; 0: not there */
	__le32 flags;
} __packed;

#define PCILEND_FUNCTION_DIRECT 0x01	/* its lender's IOMMU does not translate for it */
#define PCILEND_FUNCTION_SHARED 0x02	/* its borrower admits clients (share.h) */

struct pcilend_msg_function {
	__le32 id;
	__u8 uuid[16];
	__le16 vendor;
	__le16 device;
	__le16 subsystem_vendor;
	__le16 subsystem_device;
	__le32 class_revision;
	__u8 state;		/* enum pcilend_function_state */
	__u8 flags;		/* PCILEND_FUNCTION_* */
	__u8 reserved[2];
	__le32 borrower;	/* node id, 0: none */
	__le32 lease;		/* the lease in force, told to its holder only; else 0 */
	__le16 segment;		/* address on the lender, for people */
	__u8 bus;
	__u8 devfn;
	__le64 serial;		/* PCIe device serial number, 0: none */
	struct pcilend_msg_bar bar[PCILEND_BARS];
	__u8 label[PCILEND_LABEL_BYTES]; /* for people: pcilend_label_valid() */
	/*
	 * Only this node may borrow it now; 0: not reserved for a node. That it is reserved for a
	 * domain is not told: its UUID is what the domain is known by.
	 */
	__le32 reserved_node;
	/*
	 * Functions of this lender with the same number are lent as a set (set.h), and share what
	 * they map; 0: none but this one.
	 */
	__le32 set;
} __packed;

struct pcilend_msg_id {
	__le32 id;
} __packed;

struct pcilend_msg_lease {
	__le32 id;
	__le32 lease;
	/* LOST: enum pcilend_lost_reason; READMITTED: 0 or PCILEND_READMITTED_AGAIN; else 0 */
	__le32 reason;
} __packed;

/* The client goes on as before, as far as its lender knows: it may not have heard that (SYNC). */
#define PCILEND_READMITTED_AGAIN 1

enum pcilend_lost_reason {
	PCILEND_LOST_REVOKED = 1,	/* the lender took the function back */
	PCILEND_LOST_EXPIRED = 2,	/* no heartbeat */
	PCILEND_LOST_GONE = 3,		/* the function was unplugged or failed */
};

struct pcilend_msg_recall {
	__le32 id;
	__le32 lease;
	__le32 grace_ms;	/* then the lender takes it; up to PCILEND_GRACE_MS_MAX */
} __packed;

/*
 * For `ttl_ms` only that node, or that domain on any node, may borrow the function; neither of
 * them and no time: the reservation ends. reservation.h says whom the lender grants this.
 */
struct pcilend_msg_reserve {
	__le32 id;
	__le32 node;		/* 0: none */
	__u8 uuid[16];		/* zeroes: none */
	__le32 ttl_ms;		/* PCILEND_RESERVE_MS_MIN to PCILEND_RESERVE_MS_MAX */
} __packed;

struct pcilend_msg_connected {
	__le32 connected;	/* 1: the sender offers its functions to the receiver */
} __packed;

/*
 * What the sender knows of itself and of the link. Neither side uses the link before it has the
 * other's, and finds that all of its own aperture that it planned can be reached.
 */
struct pcilend_msg_hello {
	__le32 version;		/* PCILEND_WIRE_VERSION */
	__le32 needs;		/* features the receiver must know: none yet */
	__le32 lease_ms;	/* the sender's: PCILEND_LEASE_MS_MIN to _MAX */
	__le32 interrupt_window; /* the receiver's window behind which the sender's interrupt */
	__le64 interrupt_offset; /* controller is, and where in it; 1 MiB aligned. Or */
				/* PCILEND_WIRE_NO_WINDOW, and 0 */
	__le64 hole;		/* start of the sender's lowest PCI hole; 0: not known */
	__le64 dma_limit;	/* the sender's DMA area ends here, page aligned */
	__le32 windows;		/* how many the sender has onto the receiver */
	__le32 reserved;
	__le64 window[PCILEND_WIRE_WINDOWS];	/* bytes that it sees through each */
} __packed;

/*
 * A peer shows the receiver's node id on another link of the sender's. Is it the receiver? Then the
 * two see the same boot ids there. Either side may ask before it trusts that link, and answers
 * before it does.
 */
struct pcilend_msg_vouch {
	__le64 asker;		/* boot id that the sender shows there, not 0 */
	__le64 asked;		/* and that it sees there, not 0 */
} __packed;

struct pcilend_msg_borrow {
	__le32 id;
	__le32 lease_ms;	/* PCILEND_LEASE_MS_MIN to _MAX */
	__u8 owner[16];		/* UUID of the domain, or 0 */
	/*
	 * Device-side address (1 MiB aligned, below 4 GiB) at which the lender shall let the
	 * function reach the borrower's interrupt controller, which is where HELLO said.
	 * 0: it does not reach it (PCILEND_MSG_MSI); never 0xfee00000, the lender's own. A direct
	 * function has no alias: the answer says where it reaches it.
	 */
	__le64 interrupt_alias;
	/* Where the borrower's DMA area begins, in the windows that the lender has onto it. */
	__le64 dma_offset;
	__le32 dma_window;
	__le32 reserved;
} __packed;

/* Where a lent BAR lies in the memory windows that the borrower has onto the lender. */
struct pcilend_msg_placement {
	__le64 offset;		/* bytes from the window's start, page aligned */
	__le64 size;		/* bytes of the BAR, whole pages above 4 KiB; 0: not reachable */
	__le32 window;
	__le32 shift;		/* where the BAR starts in its first page, for BARs below 4 KiB */
} __packed;

struct pcilend_msg_borrowed {
	__le32 id;
	__le32 lease;		/* named in every later request; never 0, never used twice */
	/* The last one is a copy of the expansion ROM, in the lender's memory; read-only. */
	struct pcilend_msg_placement bar[PCILEND_BARS];
	/*
	 * Of a direct function only, else 0: device-side addresses of the borrower's DMA area,
	 * below 2^62, and of its interrupt controller (1 MiB aligned; 0: none were wanted).
	 */
	__le64 dma_address;
	__le64 interrupt_address;
	/* The last device-side address that MAP takes, below 2^62; 0 of a direct function. */
	__le64 last_address;
} __packed;

/*
 * [device_address, +size) on the function's side reaches [offset, +size) of the window the lender
 * has onto the borrower; of no direct function. All page aligned. UNMAP names the device-side range
 * only; its offset and window are not looked at.
 */
struct pcilend_msg_map {
	__le32 id;
	__le32 lease;
	__le64 device_address;
	__le64 offset;
	__le64 size;
	__le32 window;
	__le32 reserved;
} __packed;

struct pcilend_msg_bus_master {
	__le32 id;
	__le32 lease;
	__le32 on;		/* 0: off, answered when pending transactions are drained; 1: on */
} __packed;

/* What becomes of a function's legacy interrupt (INTx). */
enum pcilend_intx_state {
	PCILEND_INTX_OFF = 0,		/* not relayed */
	PCILEND_INTX_MASKED = 1,	/* what comes meanwhile is told when it is opened */
	PCILEND_INTX_OPEN = 2,		/* the next one is told, once */
};

/*
 * The state is set as named, whatever it was; so a request may be repeated. To open it also
 * acknowledges PCILEND_MSG_INTX_RAISED: if the function still asserts its line, it is told
 * again.
 */
struct pcilend_msg_intx {
	__le32 id;
	__le32 lease;
	__le32 state;		/* enum pcilend_intx_state */
} __packed;

/*
 * MSI-X, or MSI of a function without, by relay: the lender takes interrupts of vectors [vector,
 * +count) of the function, and answers with the message that raises them, for the borrower to give
 * to the function where its own would be. May be asked for again; what is asked for replaces what
 * was of these vectors. With the lease all ends.
 */
#define PCILEND_RELAY_VECTORS 64	/* higher ones are not relayed */
#define PCILEND_RELAY_MSI_MAX 32	/* of MSI, PCI 3.0 §6.8.1.3 */

struct pcilend_msg_msi {
	__le32 id;
	__le32 lease;
	__le32 vector;
	__le32 count;		/* a power of two; more than 1 of MSI only, from vector 0 */
	__le32 on;		/* 1: relay them; 0: no longer */
} __packed;

struct pcilend_msg_msi_message {
	__le32 id;
	__le32 lease;
	__le64 address;
	__le32 data;		/* of the first; further ones count up from there */
	__le32 reserved;
} __packed;

/*
 * These vectors have raised interrupts since the last one of these. There is one under way per
 * function; what is not answered is told again.
 */
struct pcilend_msg_msi_raised {
	__le32 id;
	__le32 lease;
	__le64 vectors;		/* bit n: vector n; not 0 */
} __packed;

/*
 * Peer-to-peer: by DMA to [device_address, + the BAR's size in whole pages) the function reaches a
 * BAR of @target, another function that the sender holds, over whatever link; until one of the two
 * leases ends. Aligned to that size; in nothing else that is mapped for the function. What is so
 * already may be asked for again; what is taken back is named exactly. A target of another lender
 * must be exposed to the receiver first (PCILEND_MSG_EXPOSE).
 */
struct pcilend_msg_reach {
	__le32 id;
	__le32 lease;
	__le32 target;
	__le32 target_lease;
	__le64 device_address;
	__le32 bar;		/* 0 to 5 */
	__le32 on;		/* 1: set up; 0: take back */
	__le64 reserved;
} __packed;

/*
 * The lender shall let functions of @node, another lender, reach the BARs of this one by DMA, for
 * the holder of the lease, until that ends; and tell @node where they are before it answers. May be
 * asked for again. @node must be one that may borrow the function.
 */
struct pcilend_msg_expose {
	__le32 id;
	__le32 lease;
	__le32 node;
	__le32 on;		/* 1: expose; 0: no longer */
} __packed;

/*
 * Where BARs of the sender's function are in the windows that the receiver has onto the sender.
 * The receiver may map them for functions that it lends to @borrower, who holds the lease. When
 * it has answered that they are exposed no longer it has none of them mapped. Their sizes are whole
 * pages and powers of two, their offsets multiples of these, or of 2 MiB; their shifts 0.
 */
struct pcilend_msg_exposed {
	__le32 id;
	__le32 lease;
	__le32 borrower;	/* node id */
	__le32 on;		/* 0: no longer; the BARs are not looked at */
	struct pcilend_msg_placement bar[6];
} __packed;

/*
 * The function no longer reaches BARs of @target, a function of another lender: the link to that
 * was lost, or that has withdrawn them.
 */
struct pcilend_msg_unreached {
	__le32 id;
	__le32 lease;
	__le32 target;
} __packed;

#define PCILEND_TARGET_ON 0x01		/* set up; else take back, and size and segment name it */
#define PCILEND_TARGET_READ_ONLY 0x02	/* for the function */

/*
 * At [device_address, +size) the function reaches all of a segment, of the lender or of another
 * host; in nothing else that is mapped for the function. The sender must be offered it, and a
 * lender whose own it is not, too: as what the function is to do there. Until the lease ends, or
 * either offer. What is taken back is named exactly.
 */
struct pcilend_msg_target {
	__le32 id;
	__le32 lease;
	__le32 segment;		/* its id */
	__le32 flags;		/* PCILEND_TARGET_* */
	__le64 device_address;	/* page aligned, as size */
	__le64 size;		/* of the segment */
} __packed;

/*
 * Memory of the lender for who has the function: a segment of its own, zeroed, that it offers to
 * the sender over the link of the lease. It ends with the lease, or when it is not connected any
 * more.
 */
struct pcilend_msg_near {
	__le32 id;
	__le32 lease;
	__le64 size;		/* whole pages, at most PCILEND_NEAR_BYTES_MAX */
} __packed;

struct pcilend_msg_connection {
	__le32 id;		/* of the segment: made as those of functions are */
	__le32 connection;	/* chosen by who connects; never 0, never used twice */
	__le32 node;		/* CONNECT: also for a function that the sender lends to that */
				/* one, which it must be offered to as well; else 0 */
} __packed;

#define PCILEND_SEGMENT_READ_ONLY 0x01
#define PCILEND_SEGMENT_NOTIFIES 0x02	/* its owner takes notifications */

/* Asks for the first segment behind that one; refused as NO_FUNCTION if there is none. */
struct pcilend_msg_after {
	__le32 id;		/* of a segment of the receiver's; 0: the first of all */
} __packed;

struct pcilend_msg_offered {
	__le32 id;
	__le32 flags;		/* PCILEND_SEGMENT_* */
	__le64 size;		/* as in struct pcilend_msg_segment */
	__u8 name[PCILEND_LABEL_BYTES];	/* for people: pcilend_label_valid() */
} __packed;

/* Where the segment is, in the windows that the receiver has onto the sender. */
struct pcilend_msg_segment {
	__le32 id;
	__le32 offer;		/* that the connection is of; never 0, never used twice */
	__le64 offset;		/* page aligned, as size */
	__le64 size;		/* up to PCILEND_SEGMENT_BYTES_MAX */
	__le32 window;
	__le32 flags;		/* PCILEND_SEGMENT_* */
	/* To notify its owner, this is written there, in the sender's interrupt range of 1 MiB. */
	__le32 notify_offset;
	__le32 notify_data;
} __packed;

struct pcilend_msg_withdraw {
	__le32 id;
	__le32 offer;
} __packed;

#define PCILEND_CONFIG_CHUNK 192

struct pcilend_msg_config {
	__le32 id;
	__le32 lease;
	__le16 offset;
	__le16 length;		/* read: 1 to PCILEND_CONFIG_CHUNK; write: 1, 2 or 4, aligned */
	__u8 data[PCILEND_CONFIG_CHUNK];
} __packed;

static_assert(sizeof(struct pcilend_msg_header) == 24, "message header");
static_assert(sizeof(struct pcilend_wire_area) == PCILEND_AREA_BYTES, "control area");
static_assert(offsetof(struct pcilend_wire_area, polled_answer) % 8 == 0, "answer in one write");
static_assert(sizeof(struct pcilend_msg_function) == 212, "function notice");
static_assert(sizeof(struct pcilend_msg_reserve) == 28, "reservation");
static_assert(sizeof(struct pcilend_msg_borrow) == 48, "borrow");
static_assert(sizeof(struct pcilend_msg_borrowed) == 200, "borrow answer");
static_assert(sizeof(struct pcilend_msg_intx) == 12, "legacy interrupt");
static_assert(sizeof(struct pcilend_msg_msi) == 20, "interrupts by relay");
static_assert(sizeof(struct pcilend_msg_msi_message) == 24, "message of a relayed interrupt");
static_assert(sizeof(struct pcilend_msg_msi_raised) == 16, "relayed interrupts");
static_assert(sizeof(struct pcilend_msg_reach) == 40, "peer-to-peer");
static_assert(sizeof(struct pcilend_msg_expose) == 16, "peer-to-peer between lenders");
static_assert(sizeof(struct pcilend_msg_exposed) == 160, "places of exposed BARs");
static_assert(sizeof(struct pcilend_msg_unreached) == 12, "end of peer-to-peer");
static_assert(sizeof(struct pcilend_msg_target) == 32, "a segment for a function");
static_assert(sizeof(struct pcilend_msg_near) == 16, "memory beside a function");
static_assert(sizeof(struct pcilend_msg_connection) == 12, "connection");
static_assert(sizeof(struct pcilend_msg_segment) == 40, "place of a segment");
static_assert(sizeof(struct pcilend_msg_withdraw) == 8, "withdrawn offer");
static_assert(sizeof(struct pcilend_msg_offered) == 80, "offered segment");
static_assert(sizeof(struct pcilend_msg_config) == 204, "config access");
static_assert(sizeof(struct pcilend_msg_hello) == 176, "hello");
static_assert(sizeof(struct pcilend_msg_vouch) == 16, "question about a link");

/*
 * pcilend_wire_check - is this message one that the protocol allows?
 * @slot: PCILEND_SLOT_BYTES, copied out of the ring once; never look at the ring again.
 * @boot: boot id of the peer, as found at the handshake.
 * @sequence: the message's place in the ring.
 *
 * Checks type, flags, length (exactly the payload of that type), boot id, sequence, reserved
 * bits, alignment and ranges that need no state: not whether the node in an id is the sender's,
 * nor whether ranges and windows exist. Returns 0 or -EPROTO; *why (optional) is a constant
 * string for the log.
 */
int pcilend_wire_check(const void *slot, __u64 boot, __u32 sequence, const char **why);

/*
 * Fills a header in @slot and zeroes the rest; the caller has put, or puts, the payload behind it.
 * @length is the payload of @type; pcilend_wire_length() gives it (or -EPROTO).
 */
int pcilend_wire_length(__u16 type, int answer);
void *pcilend_wire_begin(void *slot, __u16 type, int answer, __u16 status, __u32 request,
			 __u32 sequence, __u64 boot);

/* The same of a polled request: of a type whose answer has no payload, and that ends soon. */
int pcilend_wire_check_polled(const void *slot, __u64 boot, __u32 number, const char **why);

/* A status as an answer to that number, in one write. */
static inline __u64 pcilend_polled_answer(__u32 number, __u16 status)
{
	return (__u64)status << 32 | number;
}

static inline __u32 pcilend_polled_number(__u64 answer)
{
	return (__u32)answer;
}

static inline __u16 pcilend_polled_status(__u64 answer)
{
	return (__u16)(answer >> 32);
}

/* Printable ASCII and a NUL, zeroes behind: nothing that a peer's label could do to a terminal. */
bool pcilend_label_valid(const __u8 label[PCILEND_LABEL_BYTES]);

/*
 * May both be told of one function? What a function is, and which BARs it has, never changes: who
 * has made something of it does not look again.
 */
bool pcilend_function_same(const struct pcilend_msg_function *known,
			   const struct pcilend_msg_function *told);

/* The negative errno a refusal becomes on the requester's side; -EPROTO for unknown ones. */
int pcilend_status_to_errno(__u16 status);
__u16 pcilend_status_from_errno(int error);

const char *pcilend_status_name(__u16 status);
const char *pcilend_msg_name(__u16 type);

__END_DECLS

#endif /* PCILEND_WIRE_H */
