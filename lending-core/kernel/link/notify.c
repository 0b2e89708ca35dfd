// SPDX-License-Identifier: GPL-2.0-only
/*
 * Notifications: what is behind an adapter raises an eventfd of this host, by one posted write into
 * the interrupt range of the adapter: a process there that has a segment connected, or a function
 * there of which this host has a client. Each has a vector, in a domain of its own below the
 * adapter's MSI parent, so the interrupt looks as if the adapter had raised it, which is whose
 * requester ID the write arrives with. The peer is told where to write what.
 */

#include <linux/eventfd.h>
#include <linux/interrupt.h>
#include <linux/irq.h>
#include <linux/irqdomain.h>
#include <linux/msi.h>

#include "link/link.h"
#include "link/notify.h"

static irqreturn_t notify_handler(int irq, void *data)
{
	struct pcilend_notify *notify = data;
	struct eventfd_ctx *event = READ_ONCE(notify->event);

	if (event)
		eventfd_signal(event);
	return IRQ_HANDLED;
}

/* Without interrupt remapping to move an interrupt changes its message, which the peer has. */
static int notify_set_affinity(struct irq_data *data, const struct cpumask *mask, bool force)
{
	if (!(data->domain->parent->flags & IRQ_DOMAIN_FLAG_ISOLATED_MSI))
		return -EINVAL;
	return irq_chip_set_affinity_parent(data, mask, force);
}

static struct irq_chip notify_chip = {
	.name = "pcilend-notify",
	.irq_ack = irq_chip_ack_parent,
	.irq_set_affinity = notify_set_affinity,
	.irq_retrigger = irq_chip_retrigger_hierarchy,
	.flags = IRQCHIP_SKIP_SET_WAKE | IRQCHIP_AFFINITY_PRE_STARTUP,
};

static int notify_alloc(struct irq_domain *domain, unsigned int virq, unsigned int count, void *arg)
{
	int err = irq_domain_alloc_irqs_parent(domain, virq, count, arg);

	if (!err)
		irq_domain_set_info(domain, virq, 0, &notify_chip, NULL, handle_edge_irq, NULL,
				    "edge");
	return err;
}

static const struct irq_domain_ops notify_domain_ops = {
	.alloc = notify_alloc,
	.free = irq_domain_free_irqs_common,
};

static int notify_open_domain(struct pcilend_notify *notify, struct pci_dev *adapter)
{
	struct irq_domain *parent = dev_get_msi_domain(&adapter->dev);
	struct fwnode_handle *fwnode;

	if (!parent || !irq_domain_is_msi_parent(parent))
		return -EOPNOTSUPP;
	fwnode = irq_domain_alloc_named_fwnode(notify->name);
	if (!fwnode)
		return -ENOMEM;
	notify->domain = irq_domain_create_hierarchy(parent, 0, 0, fwnode, &notify_domain_ops,
						     NULL);
	if (!IS_ERR_OR_NULL(notify->domain))
		return 0;
	notify->domain = NULL;
	irq_domain_free_fwnode(fwnode);
	return -ENOMEM;
}

static void notify_close_domain(struct pcilend_notify *notify)
{
	struct fwnode_handle *fwnode = notify->domain->fwnode;

	irq_domain_remove(notify->domain);
	irq_domain_free_fwnode(fwnode);
	notify->domain = NULL;
}

/* What the peer has to write, and where. */
static int notify_compose(struct pcilend_notify *notify)
{
	struct irq_data *parent = irq_get_irq_data(notify->irq)->parent_data;
	struct msi_msg msg = { };

	if (!parent->chip->irq_compose_msi_msg)
		return -EOPNOTSUPP;
	parent->chip->irq_compose_msi_msg(parent, &msg);
	if (msg.address_hi || msg.address_lo < PCILEND_MSI_IOVA ||
	    msg.address_lo - PCILEND_MSI_IOVA >= PCILEND_MSI_BYTES)
		return -EOPNOTSUPP;
	notify->offset = msg.address_lo - PCILEND_MSI_IOVA;
	notify->data = msg.data;
	return 0;
}

int pcilend_notify_open(struct pcilend_notify *notify, struct pci_dev *adapter, const char *name)
{
	struct msi_desc desc = {
		.dev = &adapter->dev,
		.nvec_used = 1,
	};
	msi_alloc_info_t info = { .desc = &desc };
	int err;

	strscpy(notify->name, name, sizeof(notify->name));
	notify->event = NULL;
	err = notify_open_domain(notify, adapter);
	if (err)
		return err;
#ifdef CONFIG_X86
	info.type = X86_IRQ_ALLOC_TYPE_PCI_MSIX;
#endif
	notify->irq = irq_domain_alloc_irqs(notify->domain, 1, dev_to_node(&adapter->dev), &info);
	err = notify->irq < 0 ? -ENOSPC : 0;
	if (err)
		goto err_domain;
	err = request_irq(notify->irq, notify_handler, 0, notify->name, notify);
	if (err)
		goto err_irq;
	err = notify_compose(notify);
	if (!err)
		return 0;

	free_irq(notify->irq, notify);
err_irq:
	irq_dispose_mapping(notify->irq);
err_domain:
	notify_close_domain(notify);
	return err;
}

struct eventfd_ctx *pcilend_notify_raise(struct pcilend_notify *notify, struct eventfd_ctx *event)
{
	struct eventfd_ctx *former = notify->event;

	WRITE_ONCE(notify->event, event);
	if (former)
		synchronize_irq(notify->irq);
	return former;
}

struct eventfd_ctx *pcilend_notify_close(struct pcilend_notify *notify)
{
	if (!notify->domain)
		return NULL;
	free_irq(notify->irq, notify);
	irq_dispose_mapping(notify->irq);
	notify_close_domain(notify);
	return notify->event;
}
