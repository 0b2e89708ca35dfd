// SPDX-License-Identifier: GPL-2.0-only
/*
 * Bus mastering of lent functions, and what the loss of a link means for it. What a function
 * writes while the link is down is gone, and what it reads is made up; one that stalls instead of
 * failing would complete such a command later, and nobody would notice the wrong data. So from the
 * moment a loss is signalled no function does DMA over that link, and one that did is reset before
 * it may again (docs/decisions/0006). The same goes for one that reaches another host over that
 * link, and for one that somebody else has reset: its driver must hear of it in the same way.
 * Losses are signalled in interrupts, hence the spinlock; one for all links, as a function
 * may do DMA over several. It is inside of the links' loss_lock: a link carries no more before it
 * is taken to stop functions, so who finds with it that the link carries starts none that is not
 * stopped.
 */

#include <linux/slab.h>

#include "lender/lender.h"
#include "base/trace.h"

/* The PCI core waits for a reset for 60 s (drivers/pci/pci.h, PCIE_RESET_READY_POLL_MS). */
#define FOREIGN_RESET_MS 70000

static DEFINE_SPINLOCK(dma_lock);	/* taken in interrupts */

/* Once this host goes down it stays off: there may be no IOMMU behind it any more. */
static void lender_dma_switch(struct pcilend_function *fn, bool on)
{
	if (on && pcilend_goes_down())
		return;
	pcilend_set_command(fn, on ? 0 : PCI_COMMAND_MASTER, on ? PCI_COMMAND_MASTER : 0);
}

/*
 * Something happened to a lent function (pcilend/mastering.h). Any context. Return: what is left to
 * do, of enum pcilend_mastering_todo: RECOVER, TELL.
 */
static u32 lender_dma_step(struct pcilend_function *fn, enum pcilend_mastering_event event)
{
	u32 todo;

	lockdep_assert_held(&dma_lock);
	todo = pcilend_mastering_step(&fn->mastering, event,
				      !fn->link || pcilend_link_carries(fn->link));
	if (todo & PCILEND_MASTERING_SWITCH_OFF)
		lender_dma_switch(fn, false);
	if (todo & PCILEND_MASTERING_SWITCH_ON)
		lender_dma_switch(fn, true);
	return todo;
}

static u32 lender_dma_happened(struct pcilend_function *fn, enum pcilend_mastering_event event)
{
	unsigned long flags;
	u32 todo;

	lockdep_assert_held(&fn->lock);
	spin_lock_irqsave(&dma_lock, flags);
	todo = lender_dma_step(fn, event);
	spin_unlock_irqrestore(&dma_lock, flags);
	return todo;
}

/*
 * pcilend_device_bus_master - let a lent function do DMA, or stop it
 *
 * Switching on is put off while a link is lost: pcilend_dma_resume() and the function's `recover`
 * make up for it. Switching off returns when the function's own pending transactions have drained.
 */
void pcilend_device_bus_master(struct pcilend_function *fn, bool on)
{
	lender_dma_happened(fn, on ? PCILEND_MASTERING_WANT : PCILEND_MASTERING_DONT_WANT);
	if (!on && !pci_wait_for_pending_transaction(fn->pdev))
		pci_warn(fn->pdev, "transactions are still pending after bus mastering was switched off\n");
}

/* The function is being lent, over fn->link if there is one; its bus mastering is off. */
void pcilend_dma_attach(struct pcilend_function *fn)
{
	struct pcilend_link *link = fn->link;
	unsigned long flags;

	lockdep_assert_held(&fn->lock);
	spin_lock_irqsave(&dma_lock, flags);
	fn->mastering = (struct pcilend_mastering){ };
	if (link) {
		list_add(&fn->lent, &lender_link(link)->lent);
		atomic_inc(&link->leases);
	}
	spin_unlock_irqrestore(&dma_lock, flags);
}

void pcilend_dma_detach(struct pcilend_function *fn)
{
	struct pcilend_link *link = fn->link;
	unsigned long flags;

	lockdep_assert_held(&fn->lock);
	spin_lock_irqsave(&dma_lock, flags);
	list_del_init(&fn->lent);
	if (link)
		atomic_dec(&link->leases);
	spin_unlock_irqrestore(&dma_lock, flags);
}

/* Bus mastering is off, and nothing of former commands is left in the function. */
void pcilend_dma_was_reset(struct pcilend_function *fn)
{
	lender_dma_happened(fn, PCILEND_MASTERING_ENDED);
}

/*
 * From now on the function reaches another host over @link, which is not its lease's.
 * Return: 0, or -EHOSTUNREACH if that is lost.
 */
int pcilend_dma_reach(struct pcilend_over *over, struct pcilend_function *fn,
		      struct pcilend_link *link)
{
	unsigned long flags;
	int err = 0;

	over->fn = fn;
	spin_lock_irqsave(&dma_lock, flags);
	if (pcilend_link_carries(link))
		list_add(&over->node, &lender_link(link)->reached);
	else
		err = -EHOSTUNREACH;
	spin_unlock_irqrestore(&dma_lock, flags);
	return err;
}

void pcilend_dma_unreach(struct pcilend_over *over)
{
	unsigned long flags;

	spin_lock_irqsave(&dma_lock, flags);
	list_del_init(&over->node);
	spin_unlock_irqrestore(&dma_lock, flags);
}

/*
 * It was reset by somebody else, or is about to be: no DMA before pcilend_dma_recover_work() has
 * reset it. Lent functions only.
 */
void pcilend_dma_stop(struct pcilend_function *fn)
{
	lender_dma_happened(fn, PCILEND_MASTERING_FOREIGN);
}

/* Any context. */
void pcilend_dma_queue_recover(struct pcilend_function *fn)
{
	kref_get(&fn->ref);
	/* The table, or its being lent, holds another reference. */
	if (mod_delayed_work(pcilend_wq, &fn->recover, 0))
		pcilend_function_put(fn);
}

/* The same when whoever resets it had time for that, and has not said that it is over. */
void pcilend_dma_queue_late_recover(struct pcilend_function *fn)
{
	kref_get(&fn->ref);
	if (!queue_delayed_work(pcilend_wq, &fn->recover, msecs_to_jiffies(FOREIGN_RESET_MS)))
		pcilend_function_put(fn);
}

/* It is not lent any more. */
void pcilend_dma_cancel_recover(struct pcilend_function *fn)
{
	lockdep_assert_held(&fn->lock);
	if (cancel_delayed_work(&fn->recover))
		pcilend_function_put(fn);
}

/*
 * No DMA over that link, which does not carry any more. Any context; its loss_lock is held, so that
 * it does not carry again before the return.
 */
void pcilend_dma_lost(struct pcilend_link *link)
{
	struct pcilend_over *over;
	struct pcilend_function *fn;
	unsigned long flags;

	lockdep_assert_held(&link->loss_lock);
	spin_lock_irqsave(&dma_lock, flags);
	list_for_each_entry(fn, &lender_link(link)->lent, lent)
		lender_dma_step(fn, PCILEND_MASTERING_LOST);
	list_for_each_entry(over, &lender_link(link)->reached, node) {
		WRITE_ONCE(over->lost, true);
		fn = over->fn;
		if (lender_dma_step(fn, PCILEND_MASTERING_CUT) & PCILEND_MASTERING_RECOVER)
			pcilend_dma_queue_recover(fn);
	}
	spin_unlock_irqrestore(&dma_lock, flags);
}

static void lender_dma_tell_reset(struct pcilend_function *fn)
{
	const struct pcilend_msg_lease msg = {
		.id = cpu_to_le32(fn->id),
		.lease = cpu_to_le32(fn->lease.number),
	};

	if (fn->link)
		pcilend_channel_notify(fn->link, PCILEND_MSG_WAS_RESET, &msg);
	pcilend_local_tell_reset(fn);
	pcilend_share_was_reset(fn);
}

/* The same boot of the peer is there again. */
void pcilend_dma_resume(struct pcilend_link *link)
{
	struct pcilend_function *fn;
	u32 todo;

	for (fn = pcilend_function_next(NULL); fn; fn = pcilend_function_next(fn)) {
		mutex_lock(&fn->lock);
		if (fn->link != link || fn->lease.state != PCILEND_FUNCTION_BORROWED) {
			mutex_unlock(&fn->lock);
			continue;
		}
		pcilend_intx_tell_again(fn);
		pcilend_relay_tell_again(fn);
		todo = lender_dma_happened(fn, PCILEND_MASTERING_RESUME);
		if (todo & PCILEND_MASTERING_RECOVER)
			pcilend_dma_queue_recover(fn);
		if (todo & PCILEND_MASTERING_TELL)
			lender_dma_tell_reset(fn);
		mutex_unlock(&fn->lock);
	}
}

/* Without memory for it nobody is told, and nothing else is missing. */
static void lender_dma_announce_reset(struct pcilend_function *fn)
{
	struct pcilend_report *report __free(kfree) = kmalloc(sizeof(*report), GFP_KERNEL);

	lockdep_assert_held(&fn->lock);
	if (!report)
		return;
	pcilend_function_report(fn, report);
	pcilend_event_function(PCILEND_EVENT_WAS_RESET, report);
}

static void lender_dma_recover(struct pcilend_function *fn)
{
	struct pcilend_lease_event event = { .type = PCILEND_LEASE_EXPIRE };
	const char *why;
	u32 todo;

	lockdep_assert_held(&fn->lock);
	why = pcilend_device_reset(fn);
	fn->resets++;
	if (why) {
		pci_warn(fn->pdev, "reset that nobody asked for: %s\n", why);
		pcilend_function_apply(fn, &event, NULL);
		pcilend_function_queue_settle(fn);
		return;
	}
	pcilend_device_open(fn);
	todo = lender_dma_happened(fn, PCILEND_MASTERING_RECOVERED);
	pci_notice(fn->pdev, "was reset, because %s\n", fn->foreign_reset ?
		   "somebody else has reset it, or after an error of PCI Express" :
		   "a link was lost during DMA over it");
	fn->foreign_reset = false;
	if (todo & PCILEND_MASTERING_TELL)
		lender_dma_tell_reset(fn);
	lender_dma_announce_reset(fn);
}

void pcilend_dma_recover_work(struct work_struct *work)
{
	struct pcilend_function *fn = container_of(work, struct pcilend_function,
						   recover.work);

	pcilend_device_lock(fn);
	if (!pcilend_function_is_lent(fn) || fn->lease.state != PCILEND_FUNCTION_BORROWED)
		goto out;
	/* First that, so that what is lost from now on counts anew. */
	lender_dma_happened(fn, PCILEND_MASTERING_UNMAP);
	pcilend_reach_drop_lost(fn);
	pcilend_target_drop_lost(fn);
	/* A link that is lost again is waited for again. */
	if (lender_dma_happened(fn, PCILEND_MASTERING_RETRY) & PCILEND_MASTERING_RECOVER)
		lender_dma_recover(fn);
out:
	pcilend_device_unlock(fn);
	pcilend_function_put(fn);
}
