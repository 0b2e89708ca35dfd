/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What pcilend.ko gives its frontends (pcilend_mdev.ko, pcilend_shadow.ko): remote functions,
 * leases, virtual functions. Frontends use nothing else of it.
 */
#ifndef PCILEND_PCILEND_H
#define PCILEND_PCILEND_H

#include <linux/device.h>
#include <linux/iommu.h>
#include <linux/list.h>
#include <linux/pci.h>
#include <linux/uuid.h>

#include "pcilend/identity.h"
#include "pcilend/kind.h"
#include "pcilend/reach.h"
#include "pcilend/vconfig.h"
#include "pcilend/wire.h"

#define PCILEND_OWNER_BYTES 64

/**
 * struct pcilend_remote - a function that a connected lender offers to this host
 *
 * A device on the pcilend bus, named by its id in hex ("40001"). Lives from the lender's first
 * notice until it is withdrawn or the peer goes; hold a reference on @dev to keep the memory.
 * Only @dev, @id, @uuid and @info's identity fields are constant and may be read without a lock.
 *
 * A frontend keeps what it needs with pcilend_remote_set_data(); core never looks at it.
 */
struct pcilend_remote {
	struct device dev;
	u32 id;
	uuid_t uuid;
	struct pcilend_msg_function info;
};

#define to_pcilend_remote(d) container_of(d, struct pcilend_remote, dev)

/**
 * struct pcilend_frontend - one way to use a borrowed function
 * @name: as given to BORROW: "vfio", "shadow"
 * @driver_override: name of the pci_driver that alone may bind the virtual function, or NULL to
 *	let its ordinary driver bind
 * @guests: its users map what they like, for which there must be an IOMMU on both hosts
 * @adapter_added: an NTB can carry leases from now on, whether it has a peer or not. May sleep. May
 *	be NULL. An error is logged, nothing more.
 * @added: a remote function appeared (also called for those present at registration). May sleep.
 *	Called without locks that the functions below take. An error is logged, nothing more.
 * @removed: it is going; after the return no reference to it may be used. May sleep.
 * @offered: as far as its lender has said, the function can be borrowed; may be called again
 *	without a change. May sleep; called from a work item without locks. May be NULL.
 * @prepare: a lease was granted, the virtual function is not made yet: map what its driver needs
 *	from the start. May sleep. May be NULL. An error ends the lease, and the borrow.
 * @found: the PCI core has made a struct pci_dev for the virtual function, at borrow or when
 *	somebody has removed it and scanned its bus again; no driver is bound. May sleep; called
 *	with pci_lock_rescan_remove(). May be NULL.
 * @lost: the lease of a function this frontend uses is over and was not returned: stop using
 *	BARs (they read all-ones), release what is held. It is returned afterwards, if nobody else
 *	has done so: what is found of the function may be of its next lease, see pcilend_is_held().
 *	May sleep; called from a work item without locks. May be NULL.
 * @was_reset: the lender has reset the function, as pcilend_reset() does, because the link was lost
 *	while it did DMA; what came through meanwhile may be wrong, and its driver does not know.
 *	Write again what the reset wiped out (MSI, MSI-X), then call pcilend_bus_master(). May be
 *	called though nothing was wiped out. May sleep; called from a work item without locks.
 * @carrier: the link of the lease may not carry any more, or carry again: ask pcilend_is_reached().
 *	May sleep; called from a work item without locks. May be NULL.
 * @recalled: its lender wants the function back: ask who uses it to let go. Return: shall it be
 *	returned now, for which its driver is unbound? May be called again for the same lease. May
 *	sleep; called from a work item without locks. May be NULL: the lender takes it when the
 *	time is over.
 */
struct pcilend_frontend {
	const char *name;
	const char *driver_override;
	struct module *owner;
	bool guests;
	int (*adapter_added)(struct pci_dev *adapter);
	int (*added)(struct pcilend_remote *remote);
	void (*removed)(struct pcilend_remote *remote);
	void (*offered)(struct pcilend_remote *remote);
	int (*prepare)(struct pcilend_remote *remote);
	void (*found)(struct pcilend_remote *remote, struct pci_dev *virtual);
	void (*lost)(struct pcilend_remote *remote, enum pcilend_lost_reason reason);
	void (*was_reset)(struct pcilend_remote *remote);
	void (*carrier)(struct pcilend_remote *remote);
	bool (*recalled)(struct pcilend_remote *remote);
	/* private: */
	struct list_head node;
};

/* Why a lease is over, for a line of the log. */
static inline const char *pcilend_lost_text(enum pcilend_lost_reason reason)
{
	return reason == PCILEND_LOST_REVOKED ? "revoked" :
	       reason == PCILEND_LOST_EXPIRED ? "no sign of life from the lender" :
	       "the function is gone";
}

int pcilend_frontend_register(struct pcilend_frontend *frontend);
void pcilend_frontend_unregister(struct pcilend_frontend *frontend);

void *pcilend_remote_data(struct pcilend_remote *remote, struct pcilend_frontend *frontend);
int pcilend_remote_set_data(struct pcilend_remote *remote, struct pcilend_frontend *frontend,
			    void *data);

/* Whether the UUID is one that pcilend gives to functions, offered to this host or not. */
bool pcilend_names_function(const uuid_t *uuid);

/* Can the function be borrowed now, as far as its lender has said? May sleep. */
bool pcilend_is_available(struct pcilend_remote *remote);
/*
 * Is there a lease in force? If not, that of the virtual function which the caller has found
 * before is over, whichever it was. May sleep.
 */
bool pcilend_is_held(struct pcilend_remote *remote);
/* Does the link carry over which it is, or was, borrowed? May sleep. */
bool pcilend_is_reached(struct pcilend_remote *remote);
/* Is it of that kind? May sleep. */
bool pcilend_is_of_kind(struct pcilend_remote *remote, const struct pcilend_kind *kind);
/*
 * The one with the lowest id above @id that can be borrowed, and is of that kind; with a reference
 * (put_device()), or NULL. May sleep.
 */
struct pcilend_remote *pcilend_next_available(const struct pcilend_kind *kind, u32 id);

/**
 * pcilend_borrow - get a lease on a remote function and make its virtual function
 * @owner: who asks, for people and for pcilend_return(); at most PCILEND_OWNER_BYTES - 1 bytes
 * @adapter: PCI address of the NTB of this host that the lease shall go over; NULL: the one with
 *	the fewest leases
 *
 * On success the lender has the function in a private IOMMU domain with bus mastering off, its
 * BARs are reachable through the memory window, and a virtual function (struct pci_dev on a
 * virtual root bus) exists and is bound as @frontend->driver_override says.
 *
 * Process context, may sleep for up to PCILEND_REQUEST_MS a step. Takes the remote's lock, for
 * which it waits with a limit.
 * Return: 0; -EALREADY if this owner and frontend hold it already; -ENOTCONN if it is not offered
 * over @adapter; -EBUSY also while it is being returned, and its user does not let go; -EINTR if
 * the caller is killed; -EAGAIN, -ENODEV,
 * -ETIMEDOUT, -EUCLEAN, -ENOSPC … as pcilend_status_to_errno(). @why (NULL allowed) is set to a
 * constant sentence for people on failure.
 */
int pcilend_borrow(struct pcilend_remote *remote, struct pcilend_frontend *frontend,
		   const char *owner, const char *adapter, const char **why);

/**
 * pcilend_return - give a function back
 * @owner: NULL, or the owner that must match, else -EPERM
 *
 * Removes the virtual function (its driver is unbound), tells the lender, and waits until it has
 * stopped and reset the device, or the lease is known to be over. Slots of this lease are free
 * afterwards. Process context, may sleep, for a user of VFIO without limit: not for requests of
 * netlink. Return: 0 also if nothing was borrowed.
 */
int pcilend_return(struct pcilend_remote *remote, const char *owner);

/**
 * The virtual function of the current lease, with a reference (pci_dev_put()), or NULL if there is
 * none, or somebody has removed it by hand.
 * Its drvdata belongs to the bound driver.
 */
struct pci_dev *pcilend_remote_virtual(struct pcilend_remote *remote);
/* The remote function behind a virtual function; valid while a driver is bound to it. */
struct pcilend_remote *pcilend_virtual_remote(struct pci_dev *virtual);
/*
 * The lender has reset the function, and its configuration registers here don't tell: MSI and bus
 * mastering are set anew as these have them. Return: as pcilend_virtual_settle(). May sleep; valid
 * while a driver is bound.
 */
int pcilend_virtual_restart(struct pci_dev *virtual);
/*
 * Waits until what config writes to a virtual function ask of the hardware (bus mastering, MSI,
 * reset) is done. Return: 0, or what went wrong since it was last called. May sleep; valid while
 * a driver is bound.
 */
int pcilend_virtual_settle(struct pci_dev *virtual);
/*
 * The byte of configuration space at @offset, if its truth is in the hardware. Return: 1; 0 if it
 * is not, so that the virtual function's own is right; negative if the lender does not say.
 * May sleep.
 */
int pcilend_virtual_hardware(struct pci_dev *virtual, u32 offset, u8 *value);

/**
 * pcilend_reach_lookup - the address by which the function's DMA reaches another device
 * @phys: of the BAR, or a part of it, on this host
 * @address: set to the device-side address, from PCILEND_REACH_START on
 *
 * Any context. Valid until the lease on either function ends: afterwards DMA to it is stopped by
 * the lender's IOMMU. Return: 0; -ENOENT if it is in no memory window of this host's NTBs, so that
 * it is reached as this host's memory is, through the DMA API of the NTB; -EACCES if it is in one,
 * and was not set up: no DMA goes there.
 */
int pcilend_reach_lookup(struct pcilend_remote *remote, phys_addr_t phys, size_t size,
			 dma_addr_t *address);

/*
 * Where the DMA API of the NTB maps: [@iova, +@size) of this host's aperture. The whole of it is
 * the same for all functions behind one adapter.
 */
void pcilend_dma_area(struct pcilend_remote *remote, u64 *iova, u64 *size);

/*
 * What the DMA API of the NTB has just unmapped there is out of the lender's reach when this
 * returns. Any context; while the function has a virtual one.
 */
void pcilend_dma_unmapped(struct pcilend_remote *remote);

/**
 * pcilend_await_unused - waits until no user of VFIO has the function in its container
 * @timeout: for so long, in jiffies
 *
 * May sleep; while the function has a virtual one. Return: whether it is so, lease or no lease.
 */
bool pcilend_await_unused(struct pcilend_remote *remote, unsigned long timeout);

/*
 * Has the lender map that area for the function, at the same addresses. For @prepare: afterwards
 * the IOMMU core decides. May sleep. Return: as pcilend_map(); 0 if it is mapped.
 */
int pcilend_map_dma_area(struct pcilend_remote *remote);

/*
 * What is added to an address of the DMA area to make one of the function's: not 0 if it is lent
 * direct, which leaves no choice of addresses (pcilend_map() is refused). Constant while it is
 * borrowed.
 */
u64 pcilend_dma_base(struct pcilend_remote *remote);

/* The reset state of the interrupt alias: device-side address of the borrower's 0xfee00000. */
#define PCILEND_INTERRUPT_ALIAS 0xfe000000ULL
#define PCILEND_INTERRUPT_BYTES 0x100000ULL

#endif /* PCILEND_PCILEND_H */
