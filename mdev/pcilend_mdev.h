/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the files of pcilend_mdev.ko share.
 *
 * Lock order, outermost first; a lock may be taken while those above it are held:
 *
 *	kinds_lock			which kinds there are (kinds.c)
 *	struct mdev_handle.lock		which function a mediated device is; pcilend_borrow() and
 *					pcilend_return() are called with it held
 *	handles_lock			which mediated devices, and which functions bound to our
 *					driver, there are (handle.c)
 *	struct mdev_vfio.bound		kept from going while it is set up anew
 *	struct mdev_vfio.carrier	held while the link of the lease is looked at
 *	struct mdev_vfio.lock		whether its user reaches the function; taken in page faults
 *	struct pcilend_ones.lock	pages of all-ones
 */
#ifndef PCILEND_MDEV_H
#define PCILEND_MDEV_H

#include <linux/list.h>
#include <linux/mdev.h>
#include <linux/pci.h>
#include <linux/uuid.h>

#include "pcilend/ones.h"
#include "pcilend/pcilend.h"

#define MDEV_VFIO_DRIVER "pcilend_vfio"

/* main.c */
extern struct pcilend_frontend mdev_frontend;

/* kinds.c: kinds of functions as parents of mediated devices */
int mdev_kinds_init(void);
void mdev_kinds_exit(void);
/* Functions can be behind that NTB: kinds are near it. Return: 0. */
int mdev_kinds_adapter(struct pci_dev *adapter);
/* The kind that is the device's parent; NULL: a function is. Lives as long as the device. */
const struct pcilend_kind *mdev_kind_of(const struct mdev_device *mdev);
/* What types of that PCI base class are called. */
const char *mdev_class_name(u8 base_class);

/* function.c: functions as parents of mediated devices */
extern struct mdev_driver mdev_function_driver;
int mdev_function_added(struct pcilend_remote *remote);
void mdev_function_removed(struct pcilend_remote *remote);
/* The function that is the device's parent, if no kind is. */
struct pcilend_remote *mdev_function_of(const struct mdev_device *mdev);
/* The one with that id, or UUID, with a reference (put_device()); NULL: no lender offers it. */
struct pcilend_remote *mdev_function_get(u32 id);
struct pcilend_remote *mdev_function_find(const uuid_t *uuid);

/* handle.c: mediated devices, which are names of borrowed functions */
int mdev_handle_probe(struct mdev_device *mdev);
void mdev_handle_remove(struct mdev_device *mdev);
/* The function can be borrowed: the device that waits for it does so. May sleep. */
void mdev_handle_offered(struct pcilend_remote *remote);
/* The function goes without having been returned: a device that has borrowed it waits for it. */
void mdev_handle_wait(u32 id);
/* Is the function a mediated device, or was it until it went? */
bool mdev_handle_exists(u32 id);
/* Is there any mediated device below that kind? */
bool mdev_handle_of_kind(const struct pcilend_kind *kind);
/* Is it the one of that name? */
bool mdev_handle_names(struct pci_dev *pdev, const char *name);
/* VFIO has the virtual function; or is about to let go of it. */
void mdev_handle_bound(struct pci_dev *pdev);
void mdev_handle_unbound(struct pci_dev *pdev);

/* vfio.c: the driver of virtual functions for VFIO */
extern struct pci_driver mdev_vfio_driver;
/* Does our driver have the function, or did it not let go yet? */
bool mdev_vfio_is_bound(u32 id);
/*
 * The lease is over: from the return on the user's mappings have nothing of the function in them,
 * and what he reads is all-ones.
 */
void mdev_vfio_lost(struct pcilend_remote *remote);
/* The link of its lease does not carry, or does again: while it does not, it is the same. */
void mdev_vfio_carrier(struct pcilend_remote *remote);
/*
 * The lender has reset the function: what the kernel keeps for the user is written again. May
 * sleep.
 * Return: as pcilend_virtual_restart().
 */
int mdev_vfio_was_reset(u32 id);

#endif /* PCILEND_MDEV_H */
