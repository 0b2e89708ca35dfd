// SPDX-License-Identifier: GPL-2.0-only
/*
 * The legacy interrupt (INTx) of a virtual function, relayed by its lender (lender_intx.c).
 *
 * It is a level-triggered interrupt of this host, in a domain of its own. The lender tells that it
 * was raised, once, and masks it; it is delivered, and when its handlers are through and the core
 * unmasks it, the lender is asked to open it again, which tells again if the line is still
 * asserted. What the lender shall do follows from three things: whether anybody has requested the
 * interrupt, whether it is masked here, and what config space lets the function do. A work item
 * makes the lender's state that one. Whatever gets lost on the way, it is asked for anew.
 */

#include <linux/irq.h>
#include <linux/irq_work.h>
#include <linux/irqdomain.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "pcilend/pcilend.h"
#include "virtual/virtual.h"

#define RETRY_MS 100
#define NOT_KNOWN -1

struct pcilend_virtual_intx {
	struct pcilend_remote *remote;
	const struct pcilend_virtual_ops *ops;
	struct irq_domain *domain;
	unsigned int irq;

	raw_spinlock_t lock;			/* inside of the locks of genirq; what follows */
	bool started;				/* it has a handler */
	bool masked;
	enum pcilend_intx_state allowed;	/* by config space */
	int told;				/* what the lender was told, or NOT_KNOWN */

	struct irq_work deliver;
	struct delayed_work work;
};

static enum pcilend_intx_state virtual_intx_wanted(const struct pcilend_virtual_intx *intx)
{
	lockdep_assert_held(&intx->lock);
	if (!intx->started || intx->allowed == PCILEND_INTX_OFF)
		return PCILEND_INTX_OFF;
	return intx->masked ? PCILEND_INTX_MASKED : intx->allowed;
}

static void virtual_intx_queue_if_needed(struct pcilend_virtual_intx *intx)
{
	lockdep_assert_held(&intx->lock);
	if ((int)virtual_intx_wanted(intx) != intx->told)
		queue_delayed_work(pcilend_virtual_wq, &intx->work, 0);
}

/* What the core calls holds the lock of the interrupt's descriptor: it only notes. */

static unsigned int virtual_intx_startup(struct irq_data *data)
{
	struct pcilend_virtual_intx *intx = irq_data_get_irq_chip_data(data);

	guard(raw_spinlock_irqsave)(&intx->lock);
	intx->started = true;
	intx->masked = false;
	virtual_intx_queue_if_needed(intx);
	return 0;
}

static void virtual_intx_shutdown(struct irq_data *data)
{
	struct pcilend_virtual_intx *intx = irq_data_get_irq_chip_data(data);

	guard(raw_spinlock_irqsave)(&intx->lock);
	intx->started = false;
	virtual_intx_queue_if_needed(intx);
}

/*
 * Nobody is told: at most one comes, and is kept until then. A driver that masks and unmasks it
 * all the time costs no messages.
 */
static void virtual_intx_mask(struct irq_data *data)
{
	struct pcilend_virtual_intx *intx = irq_data_get_irq_chip_data(data);

	guard(raw_spinlock_irqsave)(&intx->lock);
	intx->masked = true;
}

static void virtual_intx_unmask(struct irq_data *data)
{
	struct pcilend_virtual_intx *intx = irq_data_get_irq_chip_data(data);

	guard(raw_spinlock_irqsave)(&intx->lock);
	intx->masked = false;
	virtual_intx_queue_if_needed(intx);
}

static struct irq_chip intx_chip = {
	.name = "pcilend-intx",
	.irq_startup = virtual_intx_startup,
	.irq_shutdown = virtual_intx_shutdown,
	.irq_mask = virtual_intx_mask,
	.irq_unmask = virtual_intx_unmask,
};

static int virtual_intx_map(struct irq_domain *domain, unsigned int irq, irq_hw_number_t hwirq)
{
	irq_set_chip_and_handler(irq, &intx_chip, handle_level_irq);
	irq_set_chip_data(irq, domain->host_data);
	irq_set_status_flags(irq, IRQ_LEVEL | IRQ_NOPROBE);
	return 0;
}

static const struct irq_domain_ops intx_domain_ops = {
	.map = virtual_intx_map,
};

/* In an interrupt, as handlers expect it. */
static void virtual_intx_deliver(struct irq_work *work)
{
	struct pcilend_virtual_intx *intx = container_of(work, struct pcilend_virtual_intx,
							 deliver);

	generic_handle_irq(intx->irq);
}

static void virtual_intx_work(struct work_struct *work)
{
	struct pcilend_virtual_intx *intx = container_of(work, struct pcilend_virtual_intx,
							 work.work);
	unsigned int flags = memalloc_noio_save();
	enum pcilend_intx_state state;
	int err = 0;

	while (!err) {
		scoped_guard(raw_spinlock_irqsave, &intx->lock) {
			state = virtual_intx_wanted(intx);
			if (intx->told == (int)state)
				goto out;
			/* Before it is asked for: it may be raised before the answer comes. */
			intx->told = state;
		}
		err = intx->ops->intx_ask(intx->remote, state);
	}
	scoped_guard(raw_spinlock_irqsave, &intx->lock)
		intx->told = NOT_KNOWN;
	/* A link that comes up again brings pcilend_virtual_intx_doubt(). */
	if (err == -ETIMEDOUT || err == -EBUSY || err == -ENOMEM)
		queue_delayed_work(pcilend_virtual_wq, &intx->work, msecs_to_jiffies(RETRY_MS));
	else if (err != -ENETDOWN && err != -ESTALE)
		dev_warn_ratelimited(&intx->remote->dev,
				     "its legacy interrupt is not relayed (error %d): see the lender's kernel log\n",
				     err);
out:
	memalloc_noio_restore(flags);
}

void pcilend_virtual_intx_allow(struct pcilend_virtual_intx *intx,
				enum pcilend_intx_state allowed)
{
	guard(raw_spinlock_irqsave)(&intx->lock);
	intx->allowed = allowed;
	virtual_intx_queue_if_needed(intx);
}

void pcilend_virtual_intx_raised(struct pcilend_virtual_intx *intx)
{
	guard(raw_spinlock_irqsave)(&intx->lock);
	/* A lender that raises what is not open gets nothing by it. */
	if (intx->told != PCILEND_INTX_OPEN && intx->told != NOT_KNOWN)
		return;
	intx->told = PCILEND_INTX_MASKED;
	if (virtual_intx_wanted(intx) == PCILEND_INTX_OPEN)
		irq_work_queue(&intx->deliver);
	else
		virtual_intx_queue_if_needed(intx);
}

void pcilend_virtual_intx_doubt(struct pcilend_virtual_intx *intx)
{
	guard(raw_spinlock_irqsave)(&intx->lock);
	if (intx->told == PCILEND_INTX_OFF && virtual_intx_wanted(intx) == PCILEND_INTX_OFF)
		return;
	intx->told = NOT_KNOWN;
	queue_delayed_work(pcilend_virtual_wq, &intx->work, 0);
}

void pcilend_virtual_intx_settle(struct pcilend_virtual_intx *intx)
{
	flush_delayed_work(&intx->work);
}

unsigned int pcilend_virtual_intx_irq(const struct pcilend_virtual_intx *intx)
{
	return intx->irq;
}

struct pcilend_virtual_intx *pcilend_virtual_intx_create(struct pcilend_remote *remote,
							 const struct pcilend_virtual_ops *ops,
							 const char *name)
{
	struct pcilend_virtual_intx *intx;
	struct fwnode_handle *fwnode;

	intx = kzalloc(sizeof(*intx), GFP_KERNEL);
	if (!intx)
		return NULL;
	intx->remote = remote;
	intx->ops = ops;
	intx->told = PCILEND_INTX_OFF;
	raw_spin_lock_init(&intx->lock);
	intx->deliver = IRQ_WORK_INIT_HARD(virtual_intx_deliver);
	INIT_DELAYED_WORK(&intx->work, virtual_intx_work);

	fwnode = irq_domain_alloc_named_fwnode(name);
	if (!fwnode)
		goto err_free;
	intx->domain = irq_domain_create_linear(fwnode, 1, &intx_domain_ops, intx);
	if (IS_ERR_OR_NULL(intx->domain))
		goto err_fwnode;
	intx->irq = irq_create_mapping(intx->domain, 0);
	if (!intx->irq)
		goto err_domain;
	ops->intx_listen(remote, intx);
	return intx;

err_domain:
	irq_domain_remove(intx->domain);
err_fwnode:
	irq_domain_free_fwnode(fwnode);
err_free:
	kfree(intx);
	return NULL;
}

void pcilend_virtual_intx_destroy(struct pcilend_virtual_intx *intx)
{
	struct fwnode_handle *fwnode = intx->domain->fwnode;

	/* From here on nothing is raised. */
	intx->ops->intx_listen(intx->remote, NULL);
	irq_work_sync(&intx->deliver);
	irq_dispose_mapping(intx->irq);
	disable_delayed_work_sync(&intx->work);
	irq_domain_remove(intx->domain);
	irq_domain_free_fwnode(fwnode);
	kfree(intx);
}
