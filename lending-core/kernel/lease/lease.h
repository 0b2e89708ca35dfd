/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a process of this host holds of a function that was leased to it: the device API. Its lender
 * may be this host or another one; what differs is behind struct pcilend_use_ops.
 *
 *	use.c		the lease fd: its close returns the function, poll tells of the end and
 *			of a recall, mmap shows pcilend_lease_status; what is mapped for DMA
 *	use_bar.c	a part of a BAR as a dma-buf
 *	use_vectors.c	interrupts as eventfds
 *	use_share.c	what the manager of a shared function is told of its clients
 *	use_mail.c	mail between a client and its manager
 *
 * It knows neither links nor functions.
 */
#ifndef PCILEND_LEASE_KERNEL_H
#define PCILEND_LEASE_KERNEL_H

#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pcilend.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/wait.h>

#include "base/memory.h"
#include "pcilend/range.h"
#include "pcilend/share.h"

struct eventfd_ctx;
struct file;
struct msi_msg;
struct netlink_ext_ack;
struct pci_dev;

#define PCILEND_USE_MAPS 256		/* segments of one lease */
#define PCILEND_USE_FAR 64		/* of these, what its lender maps */
#define PCILEND_USE_VECTORS 64
#define PCILEND_SLICE_BYTES (64 << 20)	/* unless another size is asked for */

struct pcilend_use;

/* Where a part of a BAR is. */
struct pcilend_use_place {
	phys_addr_t phys;		/* for CPUs of this host */
	struct pci_dev *behind;		/* whose it is; NULL: a function of another host */
	struct pcilend_far_bar far;	/* of one that is leased for one process */
};

/* Memory beside a function: a segment that this host is offered. */
struct pcilend_use_near {
	u64 size;
	u32 segment;
	char adapter[32];		/* that leads there */
};

/*
 * struct pcilend_use_ops - the side that has the function
 * @bar: where a part of a BAR is
 * @map: let the function reach memory at a device address of its slice, from when it returns 0;
 *	or, of a segment of another host, or a BAR there, of what pcilend_use_set_far() said. The
 *	memory is kept until @unmap; it may be taken away before
 * @unmap: undoes that; on return the function reaches it no more. The lease may be over, or the
 *	memory taken away
 * @near: memory of the function's lender for this process, beside the function
 * @interrupt: the function raises @event, which it takes over; NULL: nothing
 * @share: who else may share the function from now on
 * @cleared: the function uses nothing of that client any more, which was asked for with @round
 * @mail_send: of a client (@client is 0) to its manager, or of the manager to that client
 * @mail_next: the next one for this process; of the manager's, @client is set to whose it is.
 *	text->bytes is 0: there is none
 * @end: the process has closed it. When the function reaches nothing of it any more the holder
 *	calls pcilend_use_end(), before the return or later. Of a lease for one: on return the
 *	function can be leased anew, unless it has failed
 *
 * All may sleep and are called with pcilend_use.lock, but @end, which is the last. What is refused
 * is said in @extack. Those that return an int refuse with -ESTALE when the lease is over. @near
 * is there where the function is another host's, and the process's alone; @share and @cleared where
 * a process can be a manager, those of mail where it can be that or a client.
 */
struct pcilend_use_ops {
	int (*bar)(void *holder, u32 bar, u64 offset, u64 size, struct pcilend_use_place *place,
		   struct netlink_ext_ack *extack);
	int (*map)(void *holder, const struct pcilend_memory *memory, bool read_only, u64 address,
		   struct netlink_ext_ack *extack);
	void (*unmap)(void *holder, u64 address, u64 size);
	int (*near)(void *holder, struct pcilend_use_near *near, struct netlink_ext_ack *extack);
	int (*interrupt)(void *holder, u32 vector, struct eventfd_ctx *event,
			 struct netlink_ext_ack *extack);
	int (*share)(void *holder, const struct pcilend_share_policy *policy,
		     const struct pcilend_access *nodes, struct netlink_ext_ack *extack);
	int (*cleared)(void *holder, u32 client, u32 round, struct netlink_ext_ack *extack);
	int (*mail_send)(void *holder, u32 client, const struct pcilend_mail_text *text,
			 struct netlink_ext_ack *extack);
	int (*mail_next)(void *holder, u32 *client, struct pcilend_mail_text *text,
			 struct netlink_ext_ack *extack);
	void (*end)(void *holder);
};

/* A client of a shared function, as its manager is told of it. */
struct pcilend_client_notice {
	u32 lease;			/* 0: nobody */
	u32 node;
	enum pcilend_client_news news;
	u32 round;			/* of the question; of JOINED: 0 */
	u64 slice;			/* device address */
	u64 slice_bytes;
	u32 vector;			/* the function's number of its interrupt 0 */
	u32 vectors;
	u32 piece;			/* of each pool */
	bool told;
};

/* What a client is told itself. */
struct pcilend_joined {
	struct pcilend_client_notice client;
	u32 ranges;
	struct pcilend_share_range range[PCILEND_SHARE_RANGES];	/* its own pages */
	char adapter[32];		/* that it goes over; empty: it is this host's */
};

/* One whose end is being confirmed can be beside as many as there may be. */
#define PCILEND_USE_CLIENTS (PCILEND_SHARE_CLIENTS + 1)

/* Interrupts of a function. Zeroed memory: none. Callers serialise access. */
struct pcilend_vectors {
	struct pci_dev *pdev;		/* NULL: none was asked for */
	int count;			/* that it has been given */
	struct eventfd_ctx *event[PCILEND_USE_VECTORS];
};

struct pcilend_use {
	struct kref ref;		/* of its file, of buffers of its BARs, of @holder's side */
	const struct pcilend_use_ops *ops;
	void *holder;			/* NULL: nothing was leased */
	char owner[64];			/* for people */

	struct mutex lock;		/* one request of its process at a time; the next five */
	struct list_head maps;
	struct pcilend_range slice;	/* device addresses */
	struct pcilend_range_entry used[PCILEND_USE_MAPS];
	struct pcilend_range far;	/* what this host does not map; empty: in the slice */
	struct pcilend_range_entry far_used[PCILEND_USE_FAR];

	struct mutex bars_lock;		/* inside of locks of @holder's side: the next three */
	struct list_head bars;
	bool hidden;			/* the function decodes nothing now */
	bool over;

	struct mutex clients_lock;	/* inside of locks of @holder's side: the next two */
	struct pcilend_client_notice *clients;	/* PCILEND_USE_CLIENTS; NULL: it is no manager */
	u32 untold;			/* of @clients; read without the lock, too */
	bool mail;			/* there is some; @holder's side writes it */

	spinlock_t status_lock;		/* what is written to the page; taken in interrupts */
	struct page *status;
	wait_queue_head_t wait;
};

/* use.c: a lease fd that has no function yet; ERR_PTR(). With the file's reference only. */
struct pcilend_use *pcilend_use_create(const char *owner, struct file **file);
struct pcilend_use *pcilend_use_get(struct pcilend_use *use);
void pcilend_use_put(struct pcilend_use *use);
/* Once, before the file is installed: from now on its close ends what @holder has. */
void pcilend_use_begin(struct pcilend_use *use, const struct pcilend_use_ops *ops, void *holder);
/* Then, as long as nobody has the file: where the function can have memory. */
void pcilend_use_set_slice(struct pcilend_use *use, u64 address, u64 bytes);
/* The same of what is not in the slice, as this host does not map it. */
void pcilend_use_set_far(struct pcilend_use *use, u64 address, u64 bytes);

/* What happened to the function; may sleep, but the last. */
void pcilend_use_hide(struct pcilend_use *use);
void pcilend_use_show(struct pcilend_use *use);
void pcilend_use_recalled(struct pcilend_use *use);
/* It is over: pages of BARs are gone when this returns. Repeated it does nothing. */
void pcilend_use_over(struct pcilend_use *use);
/* It was reset, or DMA of it was lost: whatever it was doing is in doubt. Any context. */
void pcilend_use_disturbed(struct pcilend_use *use);
/*
 * Calls unmap for all that is mapped, which is called again when the process unmaps it. May sleep,
 * not for long.
 */
void pcilend_use_unmap_all(struct pcilend_use *use);
/* The last: it is over, and the function reaches none of the memory, which is let go. May sleep. */
void pcilend_use_end(struct pcilend_use *use);

/* What a process asks for, by a lease fd of its own. */
int pcilend_use_bar(int fd, u32 bar, u64 offset, u64 size, struct file **file,
		    struct netlink_ext_ack *extack);
int pcilend_use_map(int fd, int dma_buf_fd, bool read_only, u64 *address,
		    struct netlink_ext_ack *extack);
int pcilend_use_unmap(int fd, u64 address, struct netlink_ext_ack *extack);
int pcilend_use_get_near(int fd, struct pcilend_use_near *near, struct netlink_ext_ack *extack);
int pcilend_use_interrupt(int fd, u32 vector, int event_fd, struct netlink_ext_ack *extack);

/* use_share.c: the same of the manager of a shared function. */
int pcilend_use_share(int fd, const struct pcilend_share_policy *policy,
		      const struct pcilend_access *nodes, struct netlink_ext_ack *extack);
int pcilend_use_next_client(int fd, struct pcilend_client_notice *notice,
			    struct netlink_ext_ack *extack);
int pcilend_use_cleared(int fd, u32 client, u32 round, struct netlink_ext_ack *extack);
/* Its holder's side: something for pcilend_use_next_client(). May sleep. */
void pcilend_use_tell_client(struct pcilend_use *use, const struct pcilend_client_notice *notice);

/* use_mail.c: the same of mail, of a client and of its manager; see pcilend_use_ops. */
int pcilend_use_send_mail(int fd, u32 client, const struct pcilend_mail_text *text,
			  struct netlink_ext_ack *extack);
int pcilend_use_next_mail(int fd, u32 *client, struct pcilend_mail_text *text,
			  struct netlink_ext_ack *extack);
/* Why a client's that names one is refused. */
extern const char pcilend_use_mail_of_client[];
/* Its holder's side: is there something for pcilend_use_next_mail()? One at a time. */
void pcilend_use_set_mail(struct pcilend_use *use, bool there);

/* use.c: the lease fd of the calling process, for fput(); ERR_PTR() */
struct file *pcilend_use_file(int fd, struct netlink_ext_ack *extack);

/*
 * use_bar.c: where a part of a BAR is for CPUs of this host, for pcilend_use_ops.bar. Refuses what
 * is not in a memory BAR of @pdev, and the table of its MSI-X: the kernel writes there.
 */
int pcilend_use_place_bar(struct pci_dev *pdev, u32 bar, u64 offset, u64 size, phys_addr_t *phys,
			  struct netlink_ext_ack *extack);
/* The pages with the table of its MSI-X, which @pdev has. Return: its BAR. */
u32 pcilend_use_table_pages(struct pci_dev *pdev, u32 *page, u32 *pages);
int pcilend_use_export_bar(struct pcilend_use *use, const struct pcilend_use_place *place, u64 size,
			   struct file **file);
void pcilend_use_move_bars(struct pcilend_use *use);

/*
 * use_vectors.c: vector @vector of @pdev raises @event, which is taken over on success; NULL: not
 * any more. The first one takes as many vectors for the function as there are. Return: 0; -ERANGE
 * if it has no such vector, -EOPNOTSUPP if it has none at all; or what the kernel says.
 */
int pcilend_vectors_set(struct pcilend_vectors *vectors, struct pci_dev *pdev, u32 vector,
			struct eventfd_ctx *event, struct netlink_ext_ack *extack);
/*
 * The same of a vector that raises nothing here: its message is @message from now on, and it is
 * masked unless that is there. Also of one whose message is another host's already.
 * Return: as pcilend_vectors_set(); -EOPNOTSUPP also of MSI, whose vectors have one address.
 */
int pcilend_vectors_aim(struct pcilend_vectors *vectors, struct pci_dev *pdev, u32 vector,
			struct msi_msg *message);
/* Of such a vector: it is not sent for now, or again. No-op if the function has no vectors. */
void pcilend_vectors_mask(struct pcilend_vectors *vectors, u32 vector, bool masked);
/* On return none is raised, and the function has none. */
void pcilend_vectors_end(struct pcilend_vectors *vectors);

#endif /* PCILEND_LEASE_KERNEL_H */
