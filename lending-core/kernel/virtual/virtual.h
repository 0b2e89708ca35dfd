/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Virtual functions: a struct pci_dev on this host for a function that is in another one. It knows
 * no link and no lease: what the hardware has to do it asks of who made it, by operations.
 *
 * Locks: pcilend_virtual_relay.asking while a lender is asked about MSI; windows_lock; in any
 * context each part's raw spinlocks, inside of those of genirq.
 */
#ifndef PCILEND_VIRTUAL_H
#define PCILEND_VIRTUAL_H

#include <linux/irqdomain.h>
#include <linux/pci.h>

#include "pcilend/vconfig.h"

struct pcilend_frontend;
struct pcilend_link;
struct pcilend_remote;
struct pcilend_virtual;

/* Where a BAR is in this host's address space; size 0: not there or not reachable. */
struct pcilend_virtual_bar {
	phys_addr_t address;	/* inside a BAR of the NTB; aligned to the BAR's own size */
	resource_size_t size;	/* bytes, a power of two; less than a page is fine */
	u64 bus;		/* what the function itself takes for its address; 0: not known */
};

struct pcilend_virtual_intx;
struct pcilend_virtual_relay;

/**
 * struct pcilend_virtual_ops - what a virtual function asks of who made it, for the hardware's sake
 * @claim: it is announced on the PCI bus, and the IOMMU core has not heard of it yet. Error: it is
 *	in no IOMMU group
 * @changed: what listings show of it is not what it was
 * @reset: reset the function, which leaves its bus mastering off
 * @bus_master: let it do DMA, or stop it: then its transactions have drained on return
 * @config_read: bytes of its configuration space
 * @config_write: 1, 2 or 4 bytes of it, aligned
 * @poll_bus_master, @poll_config_write: as those two, in any context: the answer is polled for,
 *	for up to PCILEND_POLL_MS. An error but -ESTALE does not say that it is not done
 * @intx_ask: what the lender shall do with the legacy interrupt
 * @intx_listen: what it tells of that goes to @intx; with NULL: nowhere, on return
 * @msi_ask: the message of a vector, for MSI that is relayed: *address and *data are set if @on
 * @msi_listen: as @intx_listen
 *
 * All are there, and but for those that poll they may sleep. But for @changed and the two that
 * listen they return 0 or a negative errno (-ESTALE: there is no lease any more; -ETIMEDOUT: no
 * answer).
 */
struct pcilend_virtual_ops {
	int (*claim)(struct pcilend_remote *remote, struct pci_dev *pdev);
	void (*changed)(struct pcilend_remote *remote);
	int (*reset)(struct pcilend_remote *remote);
	int (*bus_master)(struct pcilend_remote *remote, bool on);
	int (*config_read)(struct pcilend_remote *remote, u32 offset, void *data, size_t length);
	int (*config_write)(struct pcilend_remote *remote, u32 offset, u32 value, size_t length);
	int (*poll_bus_master)(struct pcilend_remote *remote, bool on);
	int (*poll_config_write)(struct pcilend_remote *remote, u32 offset, u32 value,
				 size_t length);
	int (*intx_ask)(struct pcilend_remote *remote, enum pcilend_intx_state state);
	void (*intx_listen)(struct pcilend_remote *remote, struct pcilend_virtual_intx *intx);
	int (*msi_ask)(struct pcilend_remote *remote, u32 vector, u32 count, bool on, u64 *address,
		       u32 *data);
	void (*msi_listen)(struct pcilend_remote *remote, struct pcilend_virtual_relay *relay);
};

/**
 * pcilend_virtual_create - make the virtual function of a lease, and bind its driver
 * @link: of the adapter whose BARs reach the function, and whose interrupt domain takes its
 *	interrupts
 * @remote: the function; must outlive the virtual one
 * @ops: called with @remote, from a work item and from the bus' notifiers, until
 *	pcilend_virtual_destroy() has returned
 * @bar: the last one is the expansion ROM's
 * @interrupts: device-side address of this host's interrupt controller; 0: the lender relays
 * @config: copied
 * @frontend: whose driver_override and found() are heeded whenever the PCI core finds the function
 *
 * A root bus of its own is made below the adapter, with the function as 00.0. Driver probes run
 * before the return. Process context, may sleep, without pci_lock_rescan_remove(), which a work
 * item takes.
 * Return: the virtual function, or ERR_PTR(): -ENXIO a BAR is not in a BAR of the NTB, -EBUSY one
 * is taken, -ENODEV the adapter goes, -EOPNOTSUPP no interrupt domain to stack on, -ENOSPC no PCI
 * domain number, -EEXIST its bus is in use here, -ENOMEM.
 */
struct pcilend_virtual *pcilend_virtual_create(struct pcilend_link *link,
					       struct pcilend_remote *remote,
					       const struct pcilend_virtual_ops *ops,
					       const struct pcilend_virtual_bar bar[PCILEND_BARS],
					       u64 interrupts,
					       const struct pcilend_vconfig *config,
					       const struct pcilend_frontend *frontend);

/**
 * pcilend_virtual_destroy - take it away again
 *
 * Unbinds the driver and removes the bus. Those who hold a reference on the pci_dev may keep it,
 * but see all-ones in its config space. Process context, may sleep. The caller holds no lock that
 * drivers or the operations take, nor pci_lock_rescan_remove().
 */
void pcilend_virtual_destroy(struct pcilend_virtual *virtual);

/* With a reference; NULL while it is removed by hand. Not after pcilend_virtual_destroy(). */
struct pci_dev *pcilend_virtual_pci(struct pcilend_virtual *virtual);

/* Name of the driver that is bound to it; empty: none. Not after pcilend_virtual_destroy(). */
void pcilend_virtual_driver(struct pcilend_virtual *virtual, char *name, size_t bytes);

/*
 * A request whose answer is missing may have been lost with a link that is up again: the lender is
 * told anew. Any context. Not after pcilend_virtual_destroy().
 */
void pcilend_virtual_doubt(struct pcilend_virtual *virtual);

/* Once for all: watches the PCI bus for virtual functions. */
int pcilend_virtual_init(void);
void pcilend_virtual_exit(void);

/*
 * virtual_windows.c: puts @window below the BAR of @ntb that it lies in, not busy, so that others
 * request within it. What no window is in stays as the NTB's driver has requested it. Process
 * context, may sleep. Return: 0; -ENXIO it is in no BAR; -EBUSY it overlaps what is in use, or no
 * memory; -ENOMEM.
 */
int pcilend_window_claim(struct pci_dev *ntb, struct resource *window);
/* The reverse of all of an array at once, also of those that were not claimed. */
void pcilend_windows_release(struct resource *window, unsigned int count);

/*
 * virtual_msi.c: the interrupt domain of a virtual function, stacked on the one of @ntb. Messages
 * get @address, at which the function reaches this host's interrupt controller; with a @relay they
 * are what that says. NULL: not possible.
 */
struct irq_domain *pcilend_virtual_msi_create(struct pci_dev *ntb, u64 address,
					      struct pcilend_virtual_relay *relay,
					      const char *name);
void pcilend_virtual_msi_destroy(struct irq_domain *domain);

/* A disk's driver waits for what is done here on the way to free memory. */
extern struct workqueue_struct *pcilend_virtual_wq;

/*
 * virtual_intx.c: the legacy interrupt of a virtual function. From create to destroy it takes what
 * @ops->intx_listen() lets the lender tell. Nobody has requested it by the time it is
 * destroyed. NULL: no memory.
 */
struct pcilend_virtual_intx *pcilend_virtual_intx_create(struct pcilend_remote *remote,
							 const struct pcilend_virtual_ops *ops,
							 const char *name);
void pcilend_virtual_intx_destroy(struct pcilend_virtual_intx *intx);
/* Its number on this host. */
unsigned int pcilend_virtual_intx_irq(const struct pcilend_virtual_intx *intx);
/* What config space lets the function do. Any context. */
void pcilend_virtual_intx_allow(struct pcilend_virtual_intx *intx,
				enum pcilend_intx_state allowed);
/* Returns when the lender has been told what it is to do. May sleep. */
void pcilend_virtual_intx_settle(struct pcilend_virtual_intx *intx);
/* The lender says that it was raised. Any context. */
void pcilend_virtual_intx_raised(struct pcilend_virtual_intx *intx);
/* Messages in either direction may be lost: the lender is told again. Any context. */
void pcilend_virtual_intx_doubt(struct pcilend_virtual_intx *intx);

/*
 * virtual_relay.c: MSI and MSI-X by relay. From create to destroy it takes what
 * @ops->msi_listen() lets the lender tell. @flush: a register of the function that may be
 * read at any time, 0: none is known. NULL: no memory.
 */
struct pcilend_virtual_relay *pcilend_virtual_relay_create(struct pcilend_remote *remote,
							   const struct pcilend_virtual_ops *ops,
							   phys_addr_t flush);
void pcilend_virtual_relay_destroy(struct pcilend_virtual_relay *relay);
/*
 * Asks the lender for the messages of [first, +count), before these vectors are allocated. May
 * sleep. Return: 0; -ENOSPC if they can't be relayed, by number or for want of the lender's
 * interrupts; or what @ops->msi_ask() returns.
 */
int pcilend_virtual_relay_prepare(struct pcilend_virtual_relay *relay, u32 first, u32 count);
/* The message of a prepared vector; NULL of others. Any context. */
const struct msi_msg *pcilend_virtual_relay_message(struct pcilend_virtual_relay *relay,
						    u32 vector);
/* That vector is raised there; NULL: nowhere. Any context. */
void pcilend_virtual_relay_listen(struct pcilend_virtual_relay *relay, u32 vector,
				  struct irq_data *target);
/* These vectors are being freed. Any context. */
void pcilend_virtual_relay_forget(struct pcilend_virtual_relay *relay, u32 first, u32 count);
/* The lender took interrupts of these; bit n: vector n. */
void pcilend_virtual_relay_raised(struct pcilend_virtual_relay *relay, u64 vectors);
/* Messages may be lost: what the lender has not heard it is told again. Any context. */
void pcilend_virtual_relay_doubt(struct pcilend_virtual_relay *relay);

#endif /* PCILEND_VIRTUAL_H */
