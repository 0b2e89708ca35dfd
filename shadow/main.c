// SPDX-License-Identifier: GPL-2.0-only
/*
 * pcilend_shadow.ko: a borrowed PCI function as a function of this host, for its ordinary driver.
 *
 *	# pcilend borrow 40001
 *	# lspci
 *	# pcilend return 40001
 *
 * pcilend.ko makes the virtual function; this module sends its DMA through the NTB, and tells its
 * driver when the function was reset or is lost.
 */

#include <linux/module.h>
#include <linux/pci.h>

#include "pcilend/pcilend.h"
#include "pcilend/version.h"
#include "shadow.h"

/* The function's DMA addresses are those of this host's DMA area, unless it is lent direct. */
static int shadow_prepare(struct pcilend_remote *remote)
{
	return pcilend_dma_base(remote) ? 0 : pcilend_map_dma_area(remote);
}

static void shadow_found(struct pcilend_remote *remote, struct pci_dev *pdev)
{
	shadow_dma_setup(pdev);
}

/* As in a surprise removal: config space reads all-ones, and drivers don't wait for answers. */
static void shadow_lost(struct pcilend_remote *remote, enum pcilend_lost_reason reason)
{
	struct pci_dev *pdev = pcilend_remote_virtual(remote);

	/* If a lease is held, it is that one's. */
	if (pdev && !pcilend_is_held(remote)) {
		pci_err(pdev, "the lease is over (%s): removed\n",
			pcilend_lost_text(reason));
		WRITE_ONCE(pdev->error_state, pci_channel_io_perm_failure);
	}
	pci_dev_put(pdev);
}

/* Return: what its driver says of itself; NONE: it has no handler for that. */
static pci_ers_result_t shadow_stop(struct pci_dev *pdev, const struct pci_error_handlers *handler)
{
	pci_ers_result_t result;

	device_lock_assert(&pdev->dev);
	if (!handler || !handler->error_detected)
		return PCI_ERS_RESULT_NONE;
	/* What is lost stays so. */
	cmpxchg(&pdev->error_state, pci_channel_io_normal, pci_channel_io_frozen);
	result = handler->error_detected(pdev, pci_channel_io_frozen);
	cmpxchg(&pdev->error_state, pci_channel_io_frozen, pci_channel_io_normal);
	return result;
}

/*
 * What the reset has wiped out is written again. Not MSI, unless its driver has stopped: it may be
 * freeing the vectors, in a work item of its own and without the device lock.
 */
static void shadow_restore(struct pci_dev *pdev, bool stopped)
{
	int err;

	device_lock_assert(&pdev->dev);
	if (stopped)
		pci_restore_msi_state(pdev);
	err = pcilend_virtual_restart(pdev);
	if (err)
		pci_err(pdev, "its bus mastering can't be restored (error %d): reset it\n", err);
}

/* The steps of Documentation/PCI/pci-error-recovery.rst around a reset of the slot. */
static bool shadow_recover(struct pci_dev *pdev, const struct pci_error_handlers *handler)
{
	pci_ers_result_t result = shadow_stop(pdev, handler);
	bool again = result == PCI_ERS_RESULT_NEED_RESET || result == PCI_ERS_RESULT_CAN_RECOVER;

	device_lock_assert(&pdev->dev);
	shadow_restore(pdev, again || result == PCI_ERS_RESULT_RECOVERED);
	if (again)
		result = handler->slot_reset ? handler->slot_reset(pdev) : PCI_ERS_RESULT_RECOVERED;
	if (result != PCI_ERS_RESULT_RECOVERED)
		return false;
	if (handler->resume)
		handler->resume(pdev);
	return true;
}

static void shadow_tell_driver(struct pci_dev *pdev)
{
	device_lock_assert(&pdev->dev);
	/* Who binds next starts it anew. */
	if (!pdev->dev.driver)
		return;
	if (shadow_recover(pdev, to_pci_driver(pdev->dev.driver)->err_handler))
		pci_warn(pdev, "was reset by its lender, which says why: its driver has started it anew\n");
	else
		pci_err(pdev, "was reset by its lender, which says why: unbind its driver and bind it again\n");
}

static void shadow_was_reset(struct pcilend_remote *remote)
{
	struct pci_dev *pdev = pcilend_remote_virtual(remote);

	if (!pdev)
		return;
	device_lock(&pdev->dev);
	shadow_tell_driver(pdev);
	device_unlock(&pdev->dev);
	pci_dev_put(pdev);
}

/* Nothing here knows whether it is in use; who asked, or an administrator, returns it. */
static bool shadow_recalled(struct pcilend_remote *remote)
{
	dev_notice(&remote->dev, "its lender wants it back: run 'pcilend return %x'\n", remote->id);
	return false;
}

static struct pcilend_frontend shadow_frontend = {
	.name = "shadow",
	.owner = THIS_MODULE,
	.prepare = shadow_prepare,
	.found = shadow_found,
	.lost = shadow_lost,
	.was_reset = shadow_was_reset,
	.recalled = shadow_recalled,
};

static int __init pcilend_shadow_init(void)
{
	return pcilend_frontend_register(&shadow_frontend);
}

static void __exit pcilend_shadow_exit(void)
{
	pcilend_frontend_unregister(&shadow_frontend);
}

module_init(pcilend_shadow_init);
module_exit(pcilend_shadow_exit);

MODULE_LICENSE("GPL");
MODULE_VERSION(PCILEND_VERSION);
MODULE_DESCRIPTION("Borrowed PCI functions for the host's own drivers");
