// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sleep of this host. Leases do not outlive it: the heartbeat stops, so peers take back what they
 * lent to this host; and what this host has lent is without power, its state gone, while its
 * borrower's driver waits for it. So there is no sleep while anything is borrowed or lent; and no
 * new lease between that decision and the waking up. Nor is there while a segment is offered or
 * connected: what its other host stores would be lost.
 */

#include <linux/notifier.h>
#include <linux/suspend.h>

#include "base/base.h"
#include "lender/admin.h"
#include "link/link.h"
#include "segment/segment.h"
#include "sleep.h"

static u32 sleep_leases(void)
{
	struct pcilend_link *link;
	u32 leases = 0;

	for (link = pcilend_link_next(NULL); link; link = pcilend_link_next(link))
		leases += atomic_read(&link->leases);
	return leases;
}

/* What keeps this host awake; NULL: nothing. */
static const char *sleep_obstacle(void)
{
	if (sleep_leases() || pcilend_lender_lends(0))
		return "functions are borrowed or lent: see 'pcilend list', return them first";
	if (pcilend_segments_in_use())
		return "segments are offered or connected: see 'pcilend segment list'";
	return NULL;
}

static int sleep_event(struct notifier_block *block, unsigned long event, void *data)
{
	const char *obstacle;

	switch (event) {
	case PM_SUSPEND_PREPARE:
	case PM_HIBERNATION_PREPARE:
		pcilend_sleep_comes(true);
		obstacle = sleep_obstacle();
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

static struct notifier_block sleep_notifier = { .notifier_call = sleep_event };

int pcilend_sleep_init(void)
{
	return register_pm_notifier(&sleep_notifier);
}

void pcilend_sleep_exit(void)
{
	unregister_pm_notifier(&sleep_notifier);
}
