// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sleep, reboot and power-off of this host.
 *
 * Leases do not outlive a sleep: the heartbeat stops, so peers take back what they lent to this
 * host; and what this host has lent is without power, its state gone, while its borrower's driver
 * waits for it. So there is no sleep while anything is borrowed or lent; and no new lease between
 * that decision and the waking up. Nor is there while a segment is offered or connected: what its
 * other host stores would be lost.
 *
 * A reboot or power-off switches the IOMMU off before the platform resets (iommu_shutdown(),
 * arch/x86/kernel/reboot.c), and a halt leaves it so. What functions and peers address would be
 * found in this host's memory then. So when drivers shut down the windows are closed, as for a link
 * that is lost (link_shutdown()), and bus mastering of lent functions is switched off
 * (lender_device_driver_shutdown()); from here on nothing is lent and none is switched on.
 */

#include <linux/notifier.h>
#include <linux/reboot.h>
#include <linux/suspend.h>

#include "base/base.h"
#include "lender/admin.h"
#include "link/link.h"
#include "power.h"
#include "segment/segment.h"

static u32 power_leases(void)
{
	struct pcilend_link *link;
	u32 leases = 0;

	for (link = pcilend_link_next(NULL); link; link = pcilend_link_next(link))
		leases += atomic_read(&link->leases);
	return leases;
}

/* What keeps this host awake; NULL: nothing. */
static const char *power_obstacle(void)
{
	if (power_leases() || pcilend_lender_lends(0))
		return "functions are borrowed or lent: see 'pcilend list', return them first";
	if (pcilend_segments_in_use())
		return "segments are offered or connected: see 'pcilend segment list'";
	return NULL;
}

static int power_sleep_event(struct notifier_block *block, unsigned long event, void *data)
{
	const char *obstacle;

	switch (event) {
	case PM_SUSPEND_PREPARE:
	case PM_HIBERNATION_PREPARE:
		pcilend_sleep_comes(true);
		obstacle = power_obstacle();
		if (!obstacle)
			return NOTIFY_DONE;
		pcilend_sleep_comes(false);
		pr_err("pcilend: no sleep while %s\n", obstacle);
		return notifier_from_errno(-EBUSY);
	case PM_POST_SUSPEND:
	case PM_POST_HIBERNATION:
		pcilend_sleep_comes(false);
		break;
	}
	return NOTIFY_DONE;
}

static int power_down_event(struct notifier_block *block, unsigned long event, void *data)
{
	pcilend_go_down();
	return NOTIFY_DONE;
}

static struct notifier_block sleep_notifier = { .notifier_call = power_sleep_event };
static struct notifier_block down_notifier = { .notifier_call = power_down_event };

int pcilend_power_init(void)
{
	int err;

	err = register_pm_notifier(&sleep_notifier);
	if (err)
		return err;
	err = register_reboot_notifier(&down_notifier);
	if (err)
		unregister_pm_notifier(&sleep_notifier);
	return err;
}

void pcilend_power_exit(void)
{
	unregister_reboot_notifier(&down_notifier);
	unregister_pm_notifier(&sleep_notifier);
}
