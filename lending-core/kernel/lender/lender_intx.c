// SPDX-License-Identifier: GPL-2.0-only
/*
 * Legacy interrupts (INTx) of lent functions. They are messages between bridges and end where the
 * NTB begins, so this host takes them for the borrower: the handler masks the function, by its
 * command register, and a work item tells the borrower, who opens it again when its driver has
 * served it. So of each function at most one is on its way, and its line is asserted for as long
 * as this handler takes; whatever function and borrower do. (docs/decisions/0013)
 */

#include <linux/interrupt.h>
#include <linux/ratelimit.h>

#include "lender/lender.h"

/*
 * Each costs the borrower two messages, of the PCILEND_RX_PER_BEAT that it takes; or one with all
 * vectors of a function (lender_relay.c).
 */
#define RAISES 20
#define RAISES_MS 20

/*
 * pcilend_intx_possible - can its legacy interrupt be relayed, if it has one?
 *
 * Interrupt lines are shared, and a borrower may take its time: so a function that can't be masked
 * by itself stays as it is.
 */
bool pcilend_intx_possible(struct pci_dev *pdev)
{
	return pci_intx_mask_supported(pdev);
}

/* Whoever changes the command register of a lent function does so here, or in an interrupt. */
void pcilend_set_command(struct pcilend_function *fn, u16 clear, u16 set)
{
	struct pci_dev *pdev = fn->pdev;
	unsigned long flags;
	u16 command;

	spin_lock_irqsave(&fn->intx.lock, flags);
	pci_read_config_word(pdev, PCI_COMMAND, &command);
	/* Of what does not answer nothing is known that could be kept. */
	if (!PCI_POSSIBLE_ERROR(command))
		pci_write_config_word(pdev, PCI_COMMAND, (command & ~clear) | set);
	spin_unlock_irqrestore(&fn->intx.lock, flags);
}

/* It is masked, and the borrower is to hear of it. */
static void lender_intx_raise_locked(struct pcilend_intx *intx)
{
	lockdep_assert_held(&intx->lock);
	intx->open = false;
	intx->raised = true;
	queue_delayed_work(pcilend_wq, &intx->tell, 0);
}

/* Others may share the line. A function that is masked is not looked at: it may be in reset. */
static irqreturn_t lender_intx_handler(int irq, void *data)
{
	struct pcilend_function *fn = data;
	struct pcilend_intx *intx = &fn->intx;

	guard(spinlock_irqsave)(&intx->lock);
	if (!intx->open || !pci_check_and_mask_intx(fn->pdev))
		return IRQ_NONE;
	lender_intx_raise_locked(intx);
	return IRQ_HANDLED;
}

/* Runs while the interrupt is requested only, so the link is the lease's. */
static void lender_intx_tell_work(struct work_struct *work)
{
	struct pcilend_intx *intx = container_of(work, struct pcilend_intx, tell.work);
	int err;

	if (!__ratelimit(&lender_link(intx->link)->relay_limit)) {
		queue_delayed_work(pcilend_wq, &intx->tell, 1);
		return;
	}
	err = pcilend_channel_notify(intx->link, PCILEND_MSG_INTX_RAISED, &intx->msg);
	/* Over a link that is down: pcilend_intx_tell_again() makes up for it. */
	if (err == -ENOMEM)
		queue_delayed_work(pcilend_wq, &intx->tell, HZ / 10);
	else if (!err)
		pcilend_count(PCILEND_COUNTER_A_RELAYED);
}

static int lender_intx_request(struct pcilend_function *fn)
{
	struct pcilend_intx *intx = &fn->intx;
	struct pci_dev *pdev = fn->pdev;
	const char *why = NULL;
	int err;

	lockdep_assert_held(&fn->lock);
	if (intx->irq)
		return 0;
	/* Said once for a lease, also by genirq. */
	if (intx->refused)
		return -EIO;
	if (!pdev->pin || !pcilend_intx_possible(pdev))
		why = "it has none that can be masked";
	else if (pdev->irq <= 0 || pdev->irq == IRQ_NOTCONNECTED)
		why = "the firmware of this host routes it nowhere: put it into another slot";
	if (!why) {
		intx->link = fn->link;
		intx->msg.id = cpu_to_le32(fn->id);
		intx->msg.lease = cpu_to_le32(fn->lease.number);
		intx->raised = false;
		err = request_irq(pdev->irq, lender_intx_handler, IRQF_SHARED, "pcilend", fn);
		if (err)
			why = "who has its line does not share it: see /proc/interrupts";
	}
	if (why) {
		intx->refused = true;
		pci_warn(pdev, "its legacy interrupt can't be relayed to node %u: %s\n",
			 fn->lease.node, why);
		return -EIO;
	}
	intx->irq = pdev->irq;
	/* With MSI-X enabled a function raises no legacy interrupt. */
	pcilend_device_enable_msix(pdev, false);
	return 0;
}

/* No more interrupts, and no look at the function, until it is opened. */
static void lender_intx_mask_locked(struct pcilend_function *fn)
{
	u16 command;

	lockdep_assert_held(&fn->intx.lock);
	fn->intx.open = false;
	pci_read_config_word(fn->pdev, PCI_COMMAND, &command);
	pci_write_config_word(fn->pdev, PCI_COMMAND, command | PCI_COMMAND_INTX_DISABLE);
}

/* What is asserted is told at once, without an interrupt. */
static void lender_intx_open_locked(struct pcilend_function *fn)
{
	struct pcilend_intx *intx = &fn->intx;

	lockdep_assert_held(&intx->lock);
	intx->raised = false;
	intx->open = pci_check_and_unmask_intx(fn->pdev);
	if (!intx->open)
		lender_intx_raise_locked(intx);
}

/* Ends when the lease does. On return nothing of it is under way. */
void pcilend_intx_off(struct pcilend_function *fn)
{
	struct pcilend_intx *intx = &fn->intx;
	bool present;

	lockdep_assert_held(&fn->lock);
	intx->wanted = PCILEND_INTX_OFF;
	if (!intx->irq)
		return;
	present = pci_device_is_present(fn->pdev);
	scoped_guard(spinlock_irqsave, &intx->lock) {
		intx->open = false;
		if (present)
			lender_intx_mask_locked(fn);
	}
	free_irq(intx->irq, fn);
	cancel_delayed_work_sync(&intx->tell);
	intx->irq = 0;
	intx->link = NULL;
	if (present)
		pcilend_device_enable_msix(fn->pdev, true);
}

/*
 * pcilend_intx_set - what the borrower wants of a function's legacy interrupt
 *
 * The function is lent. Return: 0; -EIO if it can't be relayed, the log says why.
 */
int pcilend_intx_set(struct pcilend_function *fn, enum pcilend_intx_state state)
{
	int err;

	lockdep_assert_held(&fn->lock);
	if (state == PCILEND_INTX_OFF) {
		pcilend_intx_off(fn);
		return 0;
	}
	err = lender_intx_request(fn);
	if (err)
		return err;
	fn->intx.wanted = state;
	guard(spinlock_irqsave)(&fn->intx.lock);
	if (state == PCILEND_INTX_OPEN)
		lender_intx_open_locked(fn);
	else
		lender_intx_mask_locked(fn);
	return 0;
}

/*
 * The function is about to be reset: from now on nobody looks at it. Nor does it assert its line,
 * which others may share: its borrower does not reach what would make it stop.
 */
void pcilend_intx_pause(struct pcilend_function *fn)
{
	struct pcilend_intx *intx = &fn->intx;

	lockdep_assert_held(&fn->lock);
	guard(spinlock_irqsave)(&intx->lock);
	intx->open = false;
	if (intx->irq && pci_device_is_present(fn->pdev))
		lender_intx_mask_locked(fn);
}

/* It was reset within its lease, and is masked: what the borrower wanted before, it still does. */
void pcilend_intx_resume(struct pcilend_function *fn)
{
	struct pcilend_intx *intx = &fn->intx;

	lockdep_assert_held(&fn->lock);
	guard(spinlock_irqsave)(&intx->lock);
	/* If one was raised, the borrower will open it. */
	if (intx->wanted == PCILEND_INTX_OPEN && !intx->raised)
		lender_intx_open_locked(fn);
}

/* The link is up again: what was raised may not have been told. */
void pcilend_intx_tell_again(struct pcilend_function *fn)
{
	struct pcilend_intx *intx = &fn->intx;

	lockdep_assert_held(&fn->lock);
	if (!intx->irq)
		return;
	guard(spinlock_irqsave)(&intx->lock);
	if (intx->raised)
		queue_delayed_work(pcilend_wq, &intx->tell, 0);
}

/* A new lease. */
void pcilend_intx_begin(struct pcilend_function *fn)
{
	lockdep_assert_held(&fn->lock);
	WARN_ON(fn->intx.irq);
	fn->intx.refused = false;
	fn->intx.wanted = PCILEND_INTX_OFF;
}

void pcilend_intx_init(struct pcilend_function *fn)
{
	spin_lock_init(&fn->intx.lock);
	INIT_DELAYED_WORK(&fn->intx.tell, lender_intx_tell_work);
}

void pcilend_intx_link_init(struct lender_link *link)
{
	ratelimit_state_init(&link->relay_limit, msecs_to_jiffies(RAISES_MS), RAISES);
	ratelimit_set_flags(&link->relay_limit, RATELIMIT_MSG_ON_RELEASE);
}
