// SPDX-License-Identifier: GPL-2.0-only
/*
 * Borrowed functions for any user of VFIO, by their PCI addresses: vfio-pci of the kernel has them,
 * and nobody else.
 *
 *	# pcilend borrow --frontend vfio 40001
 *	# qemu-system-x86_64 ... -device vfio-pci,host=8004:01:00.0
 *
 * What its user maps is mapped by the IOMMU that pcilend.ko gives each virtual function. VFIO waits
 * for the user before it lets go of a function, so a return, and the end of a lost lease, do too.
 */

#include "compat.h"
#include "pcilend_mdev.h"

/* VFIO asks the user to let go, until he has; what he still reads is all-ones. */
static void pci_lost(struct pcilend_remote *remote, enum pcilend_lost_reason reason)
{
	struct pci_dev *pdev = pcilend_remote_virtual(remote);

	if (pdev) {
		pci_warn(pdev, "the lease is over (%s): its user is asked to let go\n",
			 pcilend_lost_text(reason));
		WRITE_ONCE(pdev->error_state, pci_channel_io_perm_failure);
		pci_dev_put(pdev);
	}
	pcilend_return(remote, NULL);
}

/*
 * What the kernel keeps for the user is written again. VFIO's own error handler would have a VMM
 * stop its guest.
 */
static void pci_was_reset(struct pcilend_remote *remote)
{
	struct pci_dev *pdev = pcilend_remote_virtual(remote);
	int err;

	if (!pdev)
		return;
	scoped_guard(device, &pdev->dev) {
		pci_restore_msi_state(pdev);
		err = pcilend_virtual_restart(pdev);
	}
	pci_warn(pdev, "was reset by its lender, because the link was lost during DMA: the guest's driver has to start it anew\n");
	if (err)
		pci_err(pdev, "its bus mastering can't be restored (error %d): reset it in the guest\n",
			err);
	pci_dev_put(pdev);
}

/* Its lender wants it back: returned when the user, who is asked, has let go. */
static void pci_recalled(struct pcilend_remote *remote)
{
	dev_notice(&remote->dev, "its lender wants it back: its user is asked to let go\n");
	pcilend_return(remote, NULL);
}

struct pcilend_frontend mdev_pci_frontend = {
	.name = "vfio",
	.driver_override = "vfio-pci",
	.owner = THIS_MODULE,
	.guests = true,
	.lost = pci_lost,
	.was_reset = pci_was_reset,
	.recalled = pci_recalled,
};
