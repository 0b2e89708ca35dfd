// SPDX-License-Identifier: GPL-2.0-only
/*
 * Changes of the PCI bus below an adapter that may be removed at any time.
 *
 * They need pci_lock_rescan_remove(). But whoever removes an adapter may hold that lock, and waits
 * for those who still use the adapter. So nobody who uses one waits for the lock itself: a work
 * item does, and is given up when the adapter goes.
 */

#include <linux/slab.h>

#include "link/session.h"

struct pcilend_hotplug {
	struct work_struct work;
	struct kref ref;		/* of who asks, and of the work item */
	struct pcilend_link *link;	/* with a reference */
	atomic_t taken;			/* by the work item, or given up */
	struct completion done;
	void (*change)(void *argument);
	void *argument;
};

static struct workqueue_struct *hotplug_wq;

static void hotplug_release(struct kref *ref)
{
	struct pcilend_hotplug *hotplug = container_of(ref, struct pcilend_hotplug, ref);

	pcilend_link_put(hotplug->link);
	kfree(hotplug);
}

static void hotplug_work(struct work_struct *work)
{
	struct pcilend_hotplug *hotplug = container_of(work, struct pcilend_hotplug, work);

	pci_lock_rescan_remove();
	if (!atomic_xchg(&hotplug->taken, 1))
		hotplug->change(hotplug->argument);
	pci_unlock_rescan_remove();
	complete(&hotplug->done);
	wake_up_all(&hotplug->link->idle);
	kref_put(&hotplug->ref, hotplug_release);
}

/* For one change, which needs no memory then. Return: NULL without memory. */
struct pcilend_hotplug *pcilend_hotplug_alloc(struct pcilend_link *link)
{
	struct pcilend_hotplug *hotplug = kzalloc(sizeof(*hotplug), GFP_KERNEL);

	if (!hotplug)
		return NULL;
	kref_init(&hotplug->ref);
	init_completion(&hotplug->done);
	INIT_WORK(&hotplug->work, hotplug_work);
	hotplug->link = pcilend_link_get(link);
	return hotplug;
}

/* One that was not used; NULL is allowed. */
void pcilend_hotplug_free(struct pcilend_hotplug *hotplug)
{
	if (hotplug)
		kref_put(&hotplug->ref, hotplug_release);
}

/*
 * pcilend_hotplug_run - change something with pci_lock_rescan_remove() held
 *
 * Process context, without that lock. Takes over @hotplug. Return: true when @change has run; false
 * if it was given up, as the adapter goes: whoever removes it waits for the caller.
 */
bool pcilend_hotplug_run(struct pcilend_hotplug *hotplug, void (*change)(void *argument),
			 void *argument)
{
	struct pcilend_link *link = hotplug->link;
	bool ran = true;

	hotplug->change = change;
	hotplug->argument = argument;
	kref_get(&hotplug->ref);
	queue_work(hotplug_wq, &hotplug->work);
	wait_event(link->idle, completion_done(&hotplug->done) || READ_ONCE(link->going));
	if (!completion_done(&hotplug->done))
		ran = atomic_xchg(&hotplug->taken, 1);
	/* It has the lock, so whoever removes the adapter does not. */
	if (ran)
		wait_for_completion(&hotplug->done);
	kref_put(&hotplug->ref, hotplug_release);
	return ran;
}

int pcilend_hotplug_init(void)
{
	hotplug_wq = alloc_workqueue("pcilend_hotplug", WQ_UNBOUND, 0);
	return hotplug_wq ? 0 : -ENOMEM;
}

void pcilend_hotplug_exit(void)
{
	destroy_workqueue(hotplug_wq);
}
