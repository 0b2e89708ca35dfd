// SPDX-License-Identifier: GPL-2.0-only
/*
 * pcilend_hold.ko: for tests. While it is loaded the device lock of a PCI function is held, as by a
 * driver that takes its time to bind.
 *
 *	# modprobe pcilend_hold device=0000:00:10.0
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

static struct device *held;
static struct task_struct *holder;
static DECLARE_COMPLETION(locked);

/* Who takes a lock gives it back. */
static int hold(void *data)
{
	device_lock(held);
	complete(&locked);
	while (!kthread_should_stop())
		schedule_timeout_interruptible(HZ / 10);
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
MODULE_DESCRIPTION("Holds the device lock of a PCI function");
