// SPDX-License-Identifier: GPL-2.0-only
/*
 * pcilend_hold.ko: for tests. While it is loaded the device lock of a PCI function is held, as by a
 * driver that takes its time to bind; or, with reset=1, as by a reset that takes its time: the
 * function does not decode its memory, and its driver is told before and after that.
 *
 *	# modprobe pcilend_hold device=0000:00:10.0 [reset=1]
 *	# rmmod pcilend_hold
 */

#include <linux/completion.h>
#include <linux/device.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/pci.h>

static char *device;
module_param(device, charp, 0444);
MODULE_PARM_DESC(device, "PCI address of the function, dddd:bb:dd.f");

static bool reset;
module_param(reset, bool, 0444);
MODULE_PARM_DESC(reset, "it is being reset meanwhile");

static struct device *held;
static struct task_struct *holder;
static DECLARE_COMPLETION(locked);

static const struct pci_error_handlers *hold_handlers(struct pci_dev *pdev)
{
	static const struct pci_error_handlers none;

	return pdev->driver && pdev->driver->err_handler ? pdev->driver->err_handler : &none;
}

static void hold_begin_reset(struct pci_dev *pdev)
{
	if (hold_handlers(pdev)->reset_prepare)
		hold_handlers(pdev)->reset_prepare(pdev);
	pci_save_state(pdev);
	pci_write_config_word(pdev, PCI_COMMAND, PCI_COMMAND_INTX_DISABLE);
}

static void hold_end_reset(struct pci_dev *pdev)
{
	int err = __pci_reset_function_locked(pdev);

	if (err)
		pci_err(pdev, "pcilend_hold: it is not reset (error %d)\n", err);
	pci_restore_state(pdev);
	if (hold_handlers(pdev)->reset_done)
		hold_handlers(pdev)->reset_done(pdev);
}

/* Who takes a lock gives it back. */
static int hold(void *data)
{
	struct pci_dev *pdev = to_pci_dev(held);

	device_lock(held);
	if (reset)
		hold_begin_reset(pdev);
	complete(&locked);
	while (!kthread_should_stop())
		schedule_timeout_interruptible(HZ / 10);
	if (reset)
		hold_end_reset(pdev);
	device_unlock(held);
	return 0;
}

static int __init pcilend_hold_init(void)
{
	held = device ? bus_find_device_by_name(&pci_bus_type, NULL, device) : NULL;
	if (!held)
		return -ENODEV;
	holder = kthread_run(hold, NULL, "pcilend_hold");
	if (IS_ERR(holder)) {
		put_device(held);
		return PTR_ERR(holder);
	}
	wait_for_completion(&locked);
	return 0;
}

static void __exit pcilend_hold_exit(void)
{
	kthread_stop(holder);
	put_device(held);
}

module_init(pcilend_hold_init);
module_exit(pcilend_hold_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Holds the device lock of a PCI function, or takes its time to reset it");
