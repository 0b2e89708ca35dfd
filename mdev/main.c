// SPDX-License-Identifier: GPL-2.0-only
/*
 * pcilend_mdev.ko: borrowed PCI functions for virtual machines and all other users of VFIO.
 *
 *	# pcilend borrow --frontend vfio 40001
 *	# qemu-system-x86_64 ... -device vfio-pci,host=8004:01:00.0
 *
 * or by the UUID of a mediated device (handle.c):
 *
 *	# qemu-system-x86_64 ... -device vfio-pci,sysfsdev=/sys/bus/mdev/devices/<UUID>
 *
 * What users map is mapped by the IOMMU that pcilend.ko gives each virtual function. VFIO waits for
 * the user before it lets go of a function, so a return, and the end of a lost lease, do too.
 */

#include <linux/module.h>

#include "pcilend/version.h"
#include "pcilend_mdev.h"

/* The lease was lost without having been returned. */
static void frontend_lost(struct pcilend_remote *remote, enum pcilend_lost_reason reason)
{
	dev_warn(&remote->dev, "the lease is over (%s), its user is asked to let go\n",
		 pcilend_lost_text(reason));
	mdev_vfio_lost(remote);
	mdev_handle_wait(remote->id);
}

/* The lender has reset it, because the link was lost. */
static void frontend_was_reset(struct pcilend_remote *remote)
{
	int err = mdev_vfio_was_reset(remote->id);

	dev_warn(&remote->dev, "was reset by its lender, because the link was lost during DMA: the guest's driver has to start it anew\n");
	if (err)
		dev_warn(&remote->dev, "its interrupts and bus mastering could not be restored (error %d): reset it in the guest\n",
			 err);
}

/* Its lender wants it back: returned when the user, who is asked, has let go. */
static bool frontend_recalled(struct pcilend_remote *remote)
{
	dev_notice(&remote->dev, "its lender wants it back, its user is asked to let go\n");
	mdev_handle_wait(remote->id);
	return true;
}

struct pcilend_frontend mdev_frontend = {
	.name = "vfio",
	.driver_override = MDEV_VFIO_DRIVER,
	.owner = THIS_MODULE,
	.guests = true,
	.adapter_added = mdev_kinds_adapter,
	.added = mdev_function_added,
	.removed = mdev_function_removed,
	.offered = mdev_handle_offered,
	.lost = frontend_lost,
	.was_reset = frontend_was_reset,
	.carrier = mdev_vfio_carrier,
	.recalled = frontend_recalled,
};

static int __init pcilend_mdev_init(void)
{
	int err;

	err = mdev_register_driver(&mdev_function_driver);
	if (err)
		return err;
	err = pci_register_driver(&mdev_vfio_driver);
	if (err)
		goto err_function;
	err = mdev_kinds_init();
	if (err)
		goto err_pci;
	err = pcilend_frontend_register(&mdev_frontend);
	if (err)
		goto err_kinds;
	return 0;

err_kinds:
	mdev_kinds_exit();
err_pci:
	pci_unregister_driver(&mdev_vfio_driver);
err_function:
	mdev_unregister_driver(&mdev_function_driver);
	return err;
}

static void __exit pcilend_mdev_exit(void)
{
	pcilend_frontend_unregister(&mdev_frontend);
	mdev_kinds_exit();
	pci_unregister_driver(&mdev_vfio_driver);
	mdev_unregister_driver(&mdev_function_driver);
}

module_init(pcilend_mdev_init);
module_exit(pcilend_mdev_exit);

MODULE_LICENSE("GPL");
MODULE_VERSION(PCILEND_VERSION);
MODULE_DESCRIPTION("Borrowed PCI functions for VFIO, and mediated devices of them");
