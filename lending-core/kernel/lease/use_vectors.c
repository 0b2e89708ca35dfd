// SPDX-License-Identifier: GPL-2.0-only
/* Interrupts of a leased function raise eventfds of its process; or go to another host. */

#include <linux/eventfd.h>
#include <linux/interrupt.h>
#include <linux/irq.h>
#include <linux/msi.h>
#include <linux/pci.h>

#include "base/base.h"
#include "lease/lease.h"

static irqreturn_t use_vectors_handler(int irq, void *data)
{
	struct eventfd_ctx **event = data;

	eventfd_signal(READ_ONCE(*event));
	return IRQ_HANDLED;
}

static int use_vectors_take(struct pcilend_vectors *vectors, struct pci_dev *pdev,
			    struct netlink_ext_ack *extack)
{
	int count;

	if (!pdev->msi_cap && !pdev->msix_cap)
		return pcilend_refuse(extack, -EOPNOTSUPP,
				      "the function has neither MSI nor MSI-X: ask its registers instead");
	count = pci_alloc_irq_vectors(pdev, 1, PCILEND_USE_VECTORS, PCI_IRQ_MSI | PCI_IRQ_MSIX);
	if (count < 0)
		return pcilend_refuse_fmt(extack, count, "this host has no interrupts left for the function (error %d)",
					  count);
	vectors->pdev = pdev;
	vectors->count = count;
	return 0;
}

static void use_vectors_clear(struct pcilend_vectors *vectors, u32 vector)
{
	struct eventfd_ctx *event = vectors->event[vector];

	if (!event)
		return;
	free_irq(pci_irq_vector(vectors->pdev, vector), &vectors->event[vector]);
	eventfd_ctx_put(event);
	vectors->event[vector] = NULL;
}

int pcilend_vectors_set(struct pcilend_vectors *vectors, struct pci_dev *pdev, u32 vector,
			struct eventfd_ctx *event, struct netlink_ext_ack *extack)
{
	struct eventfd_ctx *former;
	int err;

	if (!vectors->pdev) {
		err = event ? use_vectors_take(vectors, pdev, extack) : 0;
		if (err || !event)
			return err;
	}
	if (vector >= vectors->count)
		return pcilend_refuse_fmt(extack, -ERANGE, "it has interrupts 0 to %d: name one",
					  vectors->count - 1);
	if (!event) {
		use_vectors_clear(vectors, vector);
		return 0;
	}
	former = vectors->event[vector];
	WRITE_ONCE(vectors->event[vector], event);
	if (former) {
		synchronize_irq(pci_irq_vector(pdev, vector));
		eventfd_ctx_put(former);
		return 0;
	}
	err = request_irq(pci_irq_vector(pdev, vector), use_vectors_handler, 0,
			  "pcilend-lease", &vectors->event[vector]);
	if (err) {
		vectors->event[vector] = NULL;
		return pcilend_refuse_fmt(extack, err, "the interrupt can't be had (error %d)",
					  err);
	}
	return 0;
}

void pcilend_vectors_mask(struct pcilend_vectors *vectors, u32 vector, bool masked)
{
	struct irq_data *data;

	if (!vectors->pdev || vector >= vectors->count)
		return;
	data = irq_get_irq_data(pci_irq_vector(vectors->pdev, vector));
	if (masked)
		pci_msi_mask_irq(data);
	else
		pci_msi_unmask_irq(data);
}

/* Nobody here requests it, so the kernel leaves its message alone; after a reset it restores it. */
int pcilend_vectors_aim(struct pcilend_vectors *vectors, struct pci_dev *pdev, u32 vector,
			struct msi_msg *message)
{
	struct msi_msg none = { };
	int err;

	if (!vectors->pdev) {
		err = message ? use_vectors_take(vectors, pdev, NULL) : 0;
		if (err || !message)
			return err;
	}
	if (!pdev->msix_enabled)
		return -EOPNOTSUPP;
	if (vector >= vectors->count)
		return -ERANGE;
	if (vectors->event[vector])
		return -EBUSY;
	pcilend_vectors_mask(vectors, vector, true);
	pci_write_msi_msg(pci_irq_vector(pdev, vector), message ?: &none);
	if (message)
		pcilend_vectors_mask(vectors, vector, false);
	return 0;
}

void pcilend_vectors_end(struct pcilend_vectors *vectors)
{
	int i;

	if (!vectors->pdev)
		return;
	for (i = 0; i < vectors->count; i++)
		use_vectors_clear(vectors, i);
	pci_free_irq_vectors(vectors->pdev);
	vectors->pdev = NULL;
	vectors->count = 0;
}
