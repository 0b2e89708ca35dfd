// SPDX-License-Identifier: GPL-2.0-only
/*
 * pcilend_freeze.ko: for tests. All CPUs of the host stand still, with interrupts off, while it is
 * being loaded; the host's devices go on.
 *
 *	# modprobe pcilend_freeze ms=10000
 *	# rmmod pcilend_freeze
 */

#include <linux/delay.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/nmi.h>
#include <linux/stop_machine.h>

#define MS_MAX 15000	/* softlockup complains after 20 s, RCU after 21 s */

static unsigned int ms = 1000;
module_param(ms, uint, 0444);
MODULE_PARM_DESC(ms, "for how long, 1 to 15000 ms");

/* On each CPU, with interrupts off. */
static int stand_still(void *data)
{
	u64 end = ktime_get_mono_fast_ns() + (u64)ms * NSEC_PER_MSEC;

	while (ktime_get_mono_fast_ns() < end) {
		mdelay(1);
		touch_nmi_watchdog();
	}
	return 0;
}

static int __init pcilend_freeze_init(void)
{
	int err;

	if (!ms || ms > MS_MAX)
		return -EINVAL;
	pr_warn("pcilend_freeze: all CPUs stop for %u ms\n", ms);
	/* Consoles that print from a thread of their own say so before, not after. */
	msleep(100);
	err = stop_machine(stand_still, NULL, cpu_online_mask);
	pr_warn("pcilend_freeze: they go on\n");
	return err;
}

static void __exit pcilend_freeze_exit(void)
{
}

module_init(pcilend_freeze_init);
module_exit(pcilend_freeze_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Stops all CPUs of a host for a while");
