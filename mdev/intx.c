// SPDX-License-Identifier: GPL-2.0-only
/*
 * VFIO's INTx, from the legacy interrupt of the virtual function, which its lender relays. It is
 * level-triggered, and no one else has it: so it is disabled as soon as it comes, and enabled again
 * when the user says so, which makes the lender tell if it is still asserted. As vfio-pci does it
 * for functions that can't be masked themselves.
 */

#include <linux/interrupt.h>

#include "pcilend_mdev.h"

#if !IS_ENABLED(CONFIG_VFIO_VIRQFD)
#error "without CONFIG_VFIO_VIRQFD a VMM can't unmask interrupts by eventfd"
#endif

static void signal(struct mdev_intx *intx)
{
	struct eventfd_ctx *trigger = READ_ONCE(intx->trigger);

	if (trigger && !READ_ONCE(intx->blocked))
		eventfd_signal(trigger);
}

static irqreturn_t intx_handler(int irq, void *data)
{
	struct mdev_intx *intx = data;

	scoped_guard(spinlock_irqsave, &intx->lock) {
		disable_irq_nosync(irq);
		intx->masked = true;
	}
	signal(intx);
	return IRQ_HANDLED;
}

static void mask(struct mdev_intx *intx)
{
	guard(spinlock_irqsave)(&intx->lock);
	if (intx->masked)
		return;
	disable_irq_nosync(intx->irq);
	intx->masked = true;
}

static void unmask(struct mdev_intx *intx)
{
	guard(spinlock_irqsave)(&intx->lock);
	if (!intx->masked || intx->blocked)
		return;
	intx->masked = false;
	enable_irq(intx->irq);
}

/* Somebody has written to the eventfd, and holds its lock. */
static int unmask_event(void *intx, void *unused)
{
	unmask(intx);
	return 0;
}

static int enable(struct mdev_irqs *irqs, struct eventfd_ctx *trigger)
{
	struct mdev_intx *intx = &irqs->intx;
	int err;

	lockdep_assert_held(&irqs->lock);
	snprintf(intx->name, sizeof(intx->name), "pcilend-intx(%s)", pci_name(irqs->pdev));
	intx->irq = irqs->pdev->irq;
	intx->trigger = trigger;
	intx->masked = intx->blocked;
	err = request_irq(intx->irq, intx_handler, intx->masked ? IRQF_NO_AUTOEN : 0, intx->name,
			  intx);
	if (err) {
		intx->trigger = NULL;
		return err;
	}
	irqs->index = VFIO_PCI_INTX_IRQ_INDEX;
	return 0;
}

void mdev_intx_disable(struct mdev_irqs *irqs)
{
	struct mdev_intx *intx = &irqs->intx;

	lockdep_assert_held(&irqs->lock);
	vfio_virqfd_disable(&intx->unmask);
	free_irq(intx->irq, intx);
	if (intx->trigger)
		eventfd_ctx_put(intx->trigger);
	intx->trigger = NULL;
	irqs->index = VFIO_PCI_NUM_IRQS;
}

/* Another eventfd, or none; it stays masked, or not, as it is. */
static int set_trigger(struct mdev_irqs *irqs, s32 fd)
{
	struct mdev_intx *intx = &irqs->intx;
	struct eventfd_ctx *trigger = NULL, *old;
	int err;

	lockdep_assert_held(&irqs->lock);
	if (fd >= 0) {
		trigger = eventfd_ctx_fdget(fd);
		if (IS_ERR(trigger))
			return PTR_ERR(trigger);
	}
	if (irqs->index != VFIO_PCI_INTX_IRQ_INDEX) {
		err = enable(irqs, trigger);
		if (err) {
			if (trigger)
				eventfd_ctx_put(trigger);
			return err;
		}
		/* Until the lender listens, MSI-X is on, and swallows what the device raises. */
		err = pcilend_virtual_settle(irqs->pdev);
		if (err)
			mdev_intx_disable(irqs);
		return err;
	}
	old = intx->trigger;
	WRITE_ONCE(intx->trigger, trigger);
	if (!old)
		return 0;
	synchronize_irq(intx->irq);
	eventfd_ctx_put(old);
	return 0;
}

static int set_unmask(struct mdev_irqs *irqs, u32 flags, void *data)
{
	struct mdev_intx *intx = &irqs->intx;

	lockdep_assert_held(&irqs->lock);
	if (!(flags & VFIO_IRQ_SET_DATA_EVENTFD)) {
		if (flags & VFIO_IRQ_SET_DATA_NONE || *(u8 *)data)
			unmask(intx);
		return 0;
	}
	if (*(s32 *)data >= 0)
		return vfio_virqfd_enable(intx, unmask_event, NULL, NULL, &intx->unmask,
					  *(s32 *)data);
	vfio_virqfd_disable(&intx->unmask);
	return 0;
}

int mdev_intx_set(struct mdev_irqs *irqs, const struct vfio_irq_set *set, void *data)
{
	u32 action = set->flags & VFIO_IRQ_SET_ACTION_TYPE_MASK;
	bool enabled = irqs->index == VFIO_PCI_INTX_IRQ_INDEX;
	bool yes;

	lockdep_assert_held(&irqs->lock);
	if (!irqs->pdev)
		return -ENODEV;
	if (action == VFIO_IRQ_SET_ACTION_TRIGGER && !set->count) {
		if (!(set->flags & VFIO_IRQ_SET_DATA_NONE) || !enabled)
			return -EINVAL;
		mdev_intx_disable(irqs);
		return pcilend_virtual_settle(irqs->pdev);
	}
	if (set->start || set->count != 1)
		return -EINVAL;
	if (action == VFIO_IRQ_SET_ACTION_TRIGGER && set->flags & VFIO_IRQ_SET_DATA_EVENTFD) {
		if (!enabled && irqs->index != VFIO_PCI_NUM_IRQS)
			return -EINVAL;
		return set_trigger(irqs, *(s32 *)data);
	}
	if (!enabled)
		return -EINVAL;
	if (action == VFIO_IRQ_SET_ACTION_UNMASK)
		return set_unmask(irqs, set->flags, data);
	/* As vfio-pci: nothing masks by eventfd. */
	if (set->flags & VFIO_IRQ_SET_DATA_EVENTFD)
		return -ENOTTY;
	yes = set->flags & VFIO_IRQ_SET_DATA_NONE || *(u8 *)data;
	if (yes && action == VFIO_IRQ_SET_ACTION_MASK)
		mask(&irqs->intx);
	else if (yes)
		signal(&irqs->intx);
	return 0;
}

void mdev_intx_allow(struct mdev_device_state *state, enum pcilend_intx_state allowed)
{
	struct mdev_irqs *irqs = &state->irqs;
	struct mdev_intx *intx = &irqs->intx;
	bool blocked = allowed != PCILEND_INTX_OPEN;

	guard(mutex)(&irqs->lock);
	if (intx->blocked == blocked)
		return;
	scoped_guard(spinlock_irqsave, &intx->lock)
		WRITE_ONCE(intx->blocked, blocked);
	if (irqs->index != VFIO_PCI_INTX_IRQ_INDEX)
		return;
	if (blocked)
		mask(intx);
	else
		unmask(intx);
}
