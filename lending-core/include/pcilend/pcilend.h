/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What pcilend.ko gives its frontends (pcilend_mdev.ko, pcilend_shadow.ko): remote functions,
 * leases, virtual functions, guest slots. Frontends use nothing else of it.
 */
#ifndef PCILEND_PCILEND_H
#define PCILEND_PCILEND_H

#include <linux/device.h>
#include <linux/iommu.h>
#include <linux/list.h>
#include <linux/pci.h>
#include <linux/uuid.h>

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
 * @name: as given to BORROW: "mdev", "shadow"
 * @driver_override: name of the pci_driver that alone may bind the virtual function, or NULL to
 *	let its ordinary driver bind
 * @guests: uses guest slots and pcilend_aperture(), which there are with an IOMMU only
 * @adapter_added: an NTB can carry leases from now on, whether it has a peer or not. May sleep. May
 *	be NULL. An error is logged, nothing more.
 * @adapter_removed: it goes, and no lease is over it any more; after the return it may not be used.
 *	Also called if @adapter_added failed. May sleep; meanwhile no other adapter comes or
 *	goes. May be NULL.
 * @added: a remote function appeared (also called for those present at registration). May sleep.
 *	Called without locks that the functions below take. An error is logged, nothing more.
 * @removed: it is going; after the return no reference to it may be used. May sleep.
 * @prepare: a lease was granted, the virtual function is not made yet: map what its driver needs
 *	from the start. May sleep. May be NULL. An error ends the lease, and the borrow.
 * @found: the PCI core has made a struct pci_dev for the virtual function, at borrow or when
 *	somebody has removed it and scanned its bus again; no driver is bound. May sleep; called
 *	with pci_lock_rescan_remove(). May be NULL.
 * @lost: the lease of a function this frontend uses is over and was not returned: stop using
 *	BARs (they read all-ones), release what is held, call pcilend_return(). May sleep; called
 *	from a work item without locks.
 * @was_reset: the lender has reset the function, as pcilend_reset() does, because the link was lost
 *	while it did DMA; what came through meanwhile may be wrong, and its driver does not know.
 *	Write again what the reset wiped out (MSI, MSI-X), then call pcilend_bus_master(). May be
 *	called though nothing was wiped out. May sleep; called from a work item without locks.
 * @recalled: its lender wants the function back: ask who uses it to let go, and call
 *	pcilend_return() when they have. May be called again for the same lease. May sleep; called
 *	from a work item without locks. May be NULL: the lender takes it when the time is over.
 */
struct pcilend_frontend {
	const char *name;
	const char *driver_override;
	struct module *owner;
	bool guests;
	int (*adapter_added)(struct pci_dev *adapter);
	void (*adapter_removed)(struct pci_dev *adapter);
	int (*added)(struct pcilend_remote *remote);
	void (*removed)(struct pcilend_remote *remote);
	int (*prepare)(struct pcilend_remote *remote);
	void (*found)(struct pcilend_remote *remote, struct pci_dev *virtual);
	void (*lost)(struct pcilend_remote *remote, enum pcilend_lost_reason reason);
	void (*was_reset)(struct pcilend_remote *remote);
	void (*recalled)(struct pcilend_remote *remote);
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

/* How many functions of that base class could be borrowed over the NTB @adapter now. May sleep. */
unsigned int pcilend_count_available(struct pci_dev *adapter, u8 base_class);

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
 * Process context, may sleep for up to PCILEND_REQUEST_MS a step. Takes the remote's lock.
 * Return: 0; -EALREADY if this owner and frontend hold it already; -ENOTCONN if it is not offered
 * over @adapter; -EBUSY, -EAGAIN, -ENODEV,
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
 * afterwards. Process context, may sleep. Return: 0 also if nothing was borrowed.
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

/**
 * pcilend_remote_lease - the lease in force
 * @owner: buffer of PCILEND_OWNER_BYTES for the owner, or NULL
 * Return: lease number, 0 if not borrowed by this host.
 */
u32 pcilend_remote_lease(struct pcilend_remote *remote, char *owner);

/**
 * pcilend_bar - where a borrowed BAR is on this host
 * @bar: 0 to 5; or 6: the expansion ROM, of which there is a copy that can only be read
 * @address: set to the CPU-physical address inside the memory window
 * @size: set to the BAR's size in bytes
 * Return: 0, -ENOENT if the BAR is not there or not reachable, -ESTALE without a lease.
 */
int pcilend_bar(struct pcilend_remote *remote, unsigned int bar, phys_addr_t *address,
		resource_size_t *size);

/*
 * What the lender does for the holder of the lease. All may sleep, all return 0 or a negative
 * errno (-ESTALE: no lease any more, -ETIMEDOUT: no answer; the lease may be over).
 */
int pcilend_reset(struct pcilend_remote *remote);
int pcilend_bus_master(struct pcilend_remote *remote, bool on);
int pcilend_config_read(struct pcilend_remote *remote, u32 offset, void *data, size_t length);
int pcilend_config_write(struct pcilend_remote *remote, u32 offset, u32 value, size_t length);
/* A fresh copy of the snapshot that was taken at borrow, to make a virtual config space of. */
int pcilend_config_init(struct pcilend_remote *remote, struct pcilend_vconfig *config);

/* [device_address, +size) of the function reaches [iova, +size) of this host's aperture. */
int pcilend_map(struct pcilend_remote *remote, u64 device_address, u64 iova, u64 size);
int pcilend_unmap(struct pcilend_remote *remote, u64 device_address, u64 size);

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

/**
 * pcilend_guest_bars - where a guest has the function's BARs
 * @guest: to compare only; of one guest, functions may reach the BARs of others by DMA
 * @address: guest-physical; 0: nowhere for now, and what it was stays in force
 *
 * Functions that reach them by DMA are told to follow. May sleep for PCILEND_REQUEST_MS for each of
 * their BARs; the caller holds no lock that its frontend's callbacks take, and the lease.
 */
void pcilend_guest_bars(struct pcilend_remote *remote, const void *guest, const u64 address[6]);

/**
 * pcilend_slot_get - IOVA range of this host's aperture for guest memory
 * @size: bytes, page aligned
 * @iova: set to its start
 *
 * The pages are mapped into pcilend_aperture() by the caller, and unmapped by it before
 * pcilend_slot_put(), which must come after pcilend_bus_master(false) or pcilend_return()
 * was acknowledged. Return: 0 or -ENOSPC.
 */
int pcilend_slot_get(struct pcilend_remote *remote, u64 size, u64 *iova);
void pcilend_slot_put(struct pcilend_remote *remote, u64 iova, u64 size);
/*
 * For functions that are mapped alike, over one link: @remote uses a slot that @from has, too.
 * Each of them puts it; the last one frees it. Return: 0, -ENOENT, -ENOMEM, or -EXDEV: not over
 * one link.
 */
int pcilend_slot_share(struct pcilend_remote *remote, struct pcilend_remote *from, u64 iova,
		       u64 size);

/*
 * Number of the set that the function is lent in: functions of that lender with the same number
 * must be mapped alike (pcilend_map() is refused with -EUSERS otherwise). 0: it is lent by itself.
 */
u32 pcilend_set(struct pcilend_remote *remote);

/*
 * Where the DMA API of the NTB maps: [@iova, +@size) of this host's aperture. The whole of it is
 * the same for all functions behind one adapter.
 */
void pcilend_dma_area(struct pcilend_remote *remote, u64 *iova, u64 *size);

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

/* IOMMU domain of the NTB towards this function's lender; valid while the lease is held. */
struct iommu_domain *pcilend_aperture(struct pcilend_remote *remote);

/* Counters shown by FUNCTION_GET. */
void pcilend_report_guest_memory(struct pcilend_remote *remote, u64 bytes, u64 microseconds);

/* The reset state of the interrupt alias: device-side address of the borrower's 0xfee00000. */
#define PCILEND_INTERRUPT_ALIAS 0xfe000000ULL
#define PCILEND_INTERRUPT_BYTES 0x100000ULL

#endif /* PCILEND_PCILEND_H */
