// SPDX-License-Identifier: GPL-2.0-only
/*
 * VFIO's interrupts. MSI and MSI-X take their vectors from the virtual function, so the device
 * writes its messages straight into this host's interrupt controller; the handler signals the
 * eventfd that KVM's irqfd waits on, unless the platform can post them to the guest without it (irq
 * bypass). INTx, which the lender relays, is in intx.c.
 *
 * VFIO_PCI_REQ_IRQ_INDEX asks the user to let go of the device when the lease is lost.
 * VFIO_PCI_ERR_IRQ_INDEX is not offered: a VMM stops its guest then, which shall live on.
 */

#include <linux/interrupt.h>
#include <linux/msi.h>
#include <linux/slab.h>

#include "compat.h"
#include "pcilend_mdev.h"

struct mdev_vector {
	struct irq_bypass_producer bypass;
	int irq;
	struct eventfd_ctx *trigger;
	char name[40];
};

static irqreturn_t vector_handler(int irq, void *trigger)
{
	eventfd_signal(trigger);
	return IRQ_HANDLED;
}

static void vector_clear(struct mdev_irqs *irqs, unsigned int number)
{
	struct mdev_vector *vector = xa_erase(&irqs->vectors, number);

	lockdep_assert_held(&irqs->lock);
	if (!vector)
		return;
	irq_bypass_unregister_producer(&vector->bypass);
	free_irq(vector->irq, vector->trigger);
	eventfd_ctx_put(vector->trigger);
	kfree(vector);
}

/* The Linux interrupt of a vector; MSI-X vectors are allocated as they are asked for. */
static int linux_irq(struct mdev_irqs *irqs, unsigned int number)
{
	struct msi_map map;
	int irq = pci_irq_vector(irqs->pdev, number);

	if (irq >= 0 || irqs->index != VFIO_PCI_MSIX_IRQ_INDEX || !irqs->grows)
		return irq;
	map = pci_msix_alloc_irq_at(irqs->pdev, number, NULL);
	return map.index < 0 ? map.index : map.virq;
}

static int vector_set(struct mdev_irqs *irqs, unsigned int number, int fd)
{
	struct mdev_vector *vector;
	int err;

	lockdep_assert_held(&irqs->lock);
	vector_clear(irqs, number);
	if (fd < 0)
		return 0;

	vector = kzalloc(sizeof(*vector), GFP_KERNEL_ACCOUNT);
	if (!vector)
		return -ENOMEM;
	vector->trigger = eventfd_ctx_fdget(fd);
	if (IS_ERR(vector->trigger)) {
		err = PTR_ERR(vector->trigger);
		goto err_free;
	}
	vector->irq = linux_irq(irqs, number);
	if (vector->irq < 0) {
		err = vector->irq;
		goto err_trigger;
	}
	snprintf(vector->name, sizeof(vector->name), "pcilend-msi%s[%u](%s)",
		 irqs->index == VFIO_PCI_MSIX_IRQ_INDEX ? "x" : "", number, pci_name(irqs->pdev));
	err = xa_err(xa_store(&irqs->vectors, number, vector, GFP_KERNEL_ACCOUNT));
	if (err)
		goto err_trigger;
	err = request_irq(vector->irq, vector_handler, 0, vector->name, vector->trigger);
	if (err)
		goto err_erase;
	/* What can't be bypassed goes by the eventfd. */
	err = pcilend_bypass_register(&vector->bypass, vector->trigger, vector->irq);
	if (err)
		dev_dbg(&irqs->pdev->dev, "no irq bypass for %s (error %d)\n", vector->name, err);
	return 0;

err_erase:
	xa_erase(&irqs->vectors, number);
err_trigger:
	eventfd_ctx_put(vector->trigger);
err_free:
	kfree(vector);
	return err;
}

/* All of [start, start + count), or none of them. */
static int vectors_set(struct mdev_irqs *irqs, unsigned int start, unsigned int count,
		       const s32 *fds)
{
	unsigned int i;
	int err;

	for (i = 0; i < count; i++) {
		err = vector_set(irqs, start + i, fds[i]);
		if (err)
			goto err_clear;
	}
	return 0;

err_clear:
	while (i--)
		vector_clear(irqs, start + i);
	return err;
}

static void disable(struct mdev_irqs *irqs)
{
	struct mdev_vector *vector;
	unsigned long number;

	lockdep_assert_held(&irqs->lock);
	if (irqs->index == VFIO_PCI_NUM_IRQS)
		return;
	if (irqs->index == VFIO_PCI_INTX_IRQ_INDEX) {
		mdev_intx_disable(irqs);
		return;
	}
	xa_for_each(&irqs->vectors, number, vector)
		vector_clear(irqs, number);
	pci_free_irq_vectors(irqs->pdev);
	irqs->index = VFIO_PCI_NUM_IRQS;
}

static int enable(struct mdev_irqs *irqs, unsigned int index, unsigned int count)
{
	unsigned int type = index == VFIO_PCI_MSIX_IRQ_INDEX ? PCI_IRQ_MSIX : PCI_IRQ_MSI;
	int ret;

	lockdep_assert_held(&irqs->lock);
	ret = pci_alloc_irq_vectors(irqs->pdev, 1, count, type);
	if (ret < 0)
		return ret;
	/* As vfio-pci: if there are fewer, their number, and nothing is enabled. */
	if (ret < count) {
		pci_free_irq_vectors(irqs->pdev);
		return ret;
	}
	irqs->index = index;
	return 0;
}

static int set_msi(struct mdev_irqs *irqs, const struct vfio_irq_set *set, void *data)
{
	unsigned int i;
	int ret;

	lockdep_assert_held(&irqs->lock);
	if (!irqs->pdev)
		return -ENODEV;
	if (irqs->index != VFIO_PCI_NUM_IRQS && irqs->index != set->index)
		return -EINVAL;

	if (!set->count) {
		if (!(set->flags & VFIO_IRQ_SET_DATA_NONE) || irqs->index != set->index)
			return -EINVAL;
		disable(irqs);
		return pcilend_virtual_settle(irqs->pdev);
	}

	if (set->flags & VFIO_IRQ_SET_DATA_EVENTFD) {
		bool fresh = irqs->index == VFIO_PCI_NUM_IRQS;

		if (fresh) {
			ret = enable(irqs, set->index, set->start + set->count);
			if (ret)
				return ret;
		}
		ret = vectors_set(irqs, set->start, set->count, data);
		/* MSI registers are in config space: the device must have them before I/O. */
		ret = ret ?: pcilend_virtual_settle(irqs->pdev);
		if (ret && fresh)
			disable(irqs);
		return ret;
	}

	if (irqs->index != set->index)
		return -EINVAL;
	for (i = 0; i < set->count; i++) {
		struct mdev_vector *vector = xa_load(&irqs->vectors, set->start + i);

		if (vector && (set->flags & VFIO_IRQ_SET_DATA_NONE || ((u8 *)data)[i]))
			eventfd_signal(vector->trigger);
	}
	return 0;
}

static int set_request(struct mdev_irqs *irqs, const struct vfio_irq_set *set, void *data)
{
	struct eventfd_ctx *trigger = NULL;

	lockdep_assert_held(&irqs->lock);
	if (!set->count && !(set->flags & VFIO_IRQ_SET_DATA_NONE))
		return -EINVAL;
	if (set->flags & VFIO_IRQ_SET_DATA_EVENTFD) {
		if (*(s32 *)data >= 0) {
			trigger = eventfd_ctx_fdget(*(s32 *)data);
			if (IS_ERR(trigger))
				return PTR_ERR(trigger);
		}
	} else if (set->count) {
		/* Loopback, for tests of the user. */
		if (irqs->request && (set->flags & VFIO_IRQ_SET_DATA_NONE || *(u8 *)data))
			eventfd_signal(irqs->request);
		return 0;
	}
	if (irqs->request)
		eventfd_ctx_put(irqs->request);
	irqs->request = trigger;
	return 0;
}

int mdev_irq_set(struct mdev_device_state *state, const struct vfio_irq_set *set, void *data)
{
	struct mdev_irqs *irqs = &state->irqs;
	u32 action = set->flags & VFIO_IRQ_SET_ACTION_TYPE_MASK;
	bool trigger = action == VFIO_IRQ_SET_ACTION_TRIGGER;

	if (!is_power_of_2(action) || (!trigger && set->index != VFIO_PCI_INTX_IRQ_INDEX))
		return -ENOTTY;
	/* A driver that sets up interrupts is about to use DMA. */
	if (trigger && set->index != VFIO_PCI_REQ_IRQ_INDEX)
		mdev_memory_settle(state);
	guard(mutex)(&irqs->lock);
	switch (set->index) {
	case VFIO_PCI_INTX_IRQ_INDEX:
		return mdev_intx_set(irqs, set, data);
	case VFIO_PCI_MSI_IRQ_INDEX:
	case VFIO_PCI_MSIX_IRQ_INDEX:
		return set_msi(irqs, set, data);
	case VFIO_PCI_REQ_IRQ_INDEX:
		return set_request(irqs, set, data);
	default:
		return -ENOTTY;
	}
}

int mdev_irq_info(struct mdev_device_state *state, struct vfio_irq_info *info)
{
	const struct mdev_irqs *irqs = &state->irqs;

	if (info->index >= VFIO_PCI_NUM_IRQS || info->index == VFIO_PCI_ERR_IRQ_INDEX)
		return -EINVAL;
	info->count = irqs->count[info->index];
	info->flags = VFIO_IRQ_INFO_EVENTFD;
	if (info->index == VFIO_PCI_INTX_IRQ_INDEX)
		info->flags |= VFIO_IRQ_INFO_MASKABLE | VFIO_IRQ_INFO_AUTOMASKED;
	else if (info->index != VFIO_PCI_MSIX_IRQ_INDEX || !irqs->grows)
		info->flags |= VFIO_IRQ_INFO_NORESIZE;
	return 0;
}

void mdev_irqs_init(struct mdev_device_state *state)
{
	struct mdev_irqs *irqs = &state->irqs;

	mutex_init(&irqs->lock);
	spin_lock_init(&irqs->intx.lock);
	xa_init(&irqs->vectors);
	irqs->index = VFIO_PCI_NUM_IRQS;
}

void mdev_irqs_open(struct mdev_device_state *state, struct pci_dev *pdev)
{
	struct mdev_irqs *irqs = &state->irqs;

	guard(mutex)(&irqs->lock);
	irqs->pdev = pdev;
	irqs->index = VFIO_PCI_NUM_IRQS;
	irqs->grows = pci_msix_can_alloc_dyn(pdev);
	memset(irqs->count, 0, sizeof(irqs->count));
	irqs->count[VFIO_PCI_INTX_IRQ_INDEX] = !!pdev->irq;
	irqs->count[VFIO_PCI_MSI_IRQ_INDEX] = max(pci_msi_vec_count(pdev), 0);
	irqs->count[VFIO_PCI_MSIX_IRQ_INDEX] = max(pci_msix_vec_count(pdev), 0);
	irqs->count[VFIO_PCI_REQ_IRQ_INDEX] = 1;
}

void mdev_irqs_revoke(struct mdev_device_state *state)
{
	struct mdev_irqs *irqs = &state->irqs;

	guard(mutex)(&irqs->lock);
	disable(irqs);
	irqs->pdev = NULL;
}

void mdev_irqs_close(struct mdev_device_state *state)
{
	struct mdev_irqs *irqs = &state->irqs;

	mdev_irqs_revoke(state);
	if (irqs->request)
		eventfd_ctx_put(irqs->request);
	irqs->request = NULL;
}

void mdev_irqs_request(struct mdev_device_state *state)
{
	struct mdev_irqs *irqs = &state->irqs;

	guard(mutex)(&irqs->lock);
	if (irqs->request)
		eventfd_signal(irqs->request);
}

int mdev_irqs_restore(struct mdev_device_state *state)
{
	struct mdev_irqs *irqs = &state->irqs;

	guard(mutex)(&irqs->lock);
	if (!irqs->pdev || irqs->index == VFIO_PCI_NUM_IRQS)
		return 0;
	pci_restore_msi_state(irqs->pdev);
	return pcilend_virtual_settle(irqs->pdev);
}
