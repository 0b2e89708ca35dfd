// SPDX-License-Identifier: GPL-2.0-only
/*
 * MSI and MSI-X of a virtual function, relayed by its lender (lender_relay.c), where the function
 * does not reach this host's interrupt controller.
 *
 * Its vectors are allocated as if it did (virtual_msi.c), on a processor and with an affinity. But
 * the message that the function gets is one of its lender's, asked for before the vector is made.
 * When the lender tells that it came, the vector is raised as an interrupt that got lost would be
 * raised again, by the interrupt controller itself: handlers, masks and moves notice no difference.
 */

#include <linux/io.h>
#include <linux/irq.h>
#include <linux/msi.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "pcilend/pcilend.h"
#include "virtual/virtual.h"

struct relay_vector {
	struct irq_data *target;	/* lock: NULL: nobody listens */
	struct msi_msg message;		/* of its lender; written while nobody uses it */
	bool ready;			/* that is there */
};

struct pcilend_virtual_relay {
	struct pcilend_remote *remote;
	const struct pcilend_virtual_ops *ops;
	void __iomem *flush;		/* a register that may be read, or NULL */
	struct mutex asking;		/* the lender: one thing after the other */
	struct relay_vector vector[PCILEND_RELAY_VECTORS];
	raw_spinlock_t lock;		/* inside of the locks of genirq */
	u64 ended;			/* lock: the lender is to hear that these are over */
	struct work_struct work;
};

int pcilend_virtual_relay_prepare(struct pcilend_virtual_relay *relay, u32 first, u32 count)
{
	u64 address = 0;
	u32 data = 0, i;
	int err;

	if (first + count > PCILEND_RELAY_VECTORS)
		return -ENOSPC;
	guard(mutex)(&relay->asking);
	scoped_guard(raw_spinlock_irqsave, &relay->lock)
		relay->ended &= ~GENMASK_ULL(first + count - 1, first);
	err = relay->ops->msi_ask(relay->remote, first, count, true, &address, &data);
	for (i = 0; i < count; i++) {
		relay->vector[first + i].ready = !err;
		relay->vector[first + i].message = (struct msi_msg){
			.address_lo = lower_32_bits(address),
			.address_hi = upper_32_bits(address),
			.data = data + i,
		};
	}
	return err;
}

const struct msi_msg *pcilend_virtual_relay_message(struct pcilend_virtual_relay *relay, u32 vector)
{
	if (vector >= PCILEND_RELAY_VECTORS || !relay->vector[vector].ready)
		return NULL;
	return &relay->vector[vector].message;
}

void pcilend_virtual_relay_listen(struct pcilend_virtual_relay *relay, u32 vector,
				  struct irq_data *target)
{
	guard(raw_spinlock_irqsave)(&relay->lock);
	relay->vector[vector].target = target;
}

void pcilend_virtual_relay_forget(struct pcilend_virtual_relay *relay, u32 first, u32 count)
{
	guard(raw_spinlock_irqsave)(&relay->lock);
	relay->ended |= GENMASK_ULL(first + count - 1, first);
	queue_work(pcilend_virtual_wq, &relay->work);
}

/* A lender that does not hear of it keeps an interrupt for nothing, for as long as the lease. */
static void virtual_relay_work(struct work_struct *work)
{
	struct pcilend_virtual_relay *relay = container_of(work, struct pcilend_virtual_relay,
							   work);
	unsigned int flags = memalloc_noio_save();
	int err = 0;
	u64 ended;
	u32 vector;

	mutex_lock(&relay->asking);
	scoped_guard(raw_spinlock_irqsave, &relay->lock)
		ended = relay->ended;
	for (; ended && !err; ended &= ended - 1) {
		vector = __ffs64(ended);
		err = relay->ops->msi_ask(relay->remote, vector, 1, false, NULL, NULL);
		guard(raw_spinlock_irqsave)(&relay->lock);
		if (!err)
			relay->ended &= ~BIT_ULL(vector);
	}
	mutex_unlock(&relay->asking);
	memalloc_noio_restore(flags);
}

void pcilend_virtual_relay_raised(struct pcilend_virtual_relay *relay, u64 vectors)
{
	u32 vector;

	/*
	 * What the function wrote to memory before it raised them comes through the NTB too, but
	 * not on the way that their news took. An answer of the function itself overtakes none of
	 * that (PCIe 5.0 §2.4.1).
	 */
	if (relay->flush)
		ioread32(relay->flush);
	guard(raw_spinlock_irqsave)(&relay->lock);
	for (; vectors; vectors &= vectors - 1) {
		vector = __ffs64(vectors);
		if (relay->vector[vector].target)
			irq_chip_retrigger_hierarchy(relay->vector[vector].target);
	}
}

void pcilend_virtual_relay_doubt(struct pcilend_virtual_relay *relay)
{
	queue_work(pcilend_virtual_wq, &relay->work);
}

struct pcilend_virtual_relay *pcilend_virtual_relay_create(struct pcilend_remote *remote,
							   const struct pcilend_virtual_ops *ops,
							   phys_addr_t flush)
{
	struct pcilend_virtual_relay *relay = kzalloc(sizeof(*relay), GFP_KERNEL);

	if (!relay)
		return NULL;
	if (flush) {
		relay->flush = ioremap(flush, sizeof(u32));
		if (!relay->flush) {
			kfree(relay);
			return NULL;
		}
	}
	relay->remote = remote;
	relay->ops = ops;
	mutex_init(&relay->asking);
	raw_spin_lock_init(&relay->lock);
	INIT_WORK(&relay->work, virtual_relay_work);
	ops->msi_listen(remote, relay);
	return relay;
}

void pcilend_virtual_relay_destroy(struct pcilend_virtual_relay *relay)
{
	/* From here on nothing is raised. */
	relay->ops->msi_listen(relay->remote, NULL);
	/* With the lease, which ends next, all is over. */
	disable_work_sync(&relay->work);
	if (relay->flush)
		iounmap(relay->flush);
	kfree(relay);
}
