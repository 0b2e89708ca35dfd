// SPDX-License-Identifier: GPL-2.0-only
/*
 * Interrupts of a virtual function, straight from the device through the NTB; or by relay.
 *
 * A domain per virtual function lies between the per-device MSI domain, which the PCI core makes,
 * and the MSI parent domain of the NTB (interrupt remapping, or the vectors themselves):
 *
 *	PCI-MSI(X) of the virtual function -> this one -> parent of the NTB -> vectors
 *
 * It does two things. The parent sees the NTB as the source, because the function's writes arrive
 * with the NTB's requester ID. And the address in messages becomes the device-side alias of this
 * host's interrupt controller. That is done where a message is written, not where it is composed:
 * x86's affinity changes without interrupt remapping compose on their own (msi_set_affinity() in
 * arch/x86/kernel/apic/msi.c).
 *
 * By relay (virtual_relay.c) the message becomes one of the lender's. That has to be asked for, for
 * which there is time only before the vectors are allocated: no lock is held then that other
 * functions need. Such vectors are raised by this host alone. So they have no entry of interrupt
 * remapping, through which what else is behind the NTB could raise them: the parent is the one that
 * remapping itself has, the vectors.
 */

#include <linux/irq.h>
#include <linux/msi.h>
#include <linux/slab.h>

#include "base/compat.h"
#include "pcilend/pcilend.h"
#include "virtual/virtual.h"

/* Intel SDM vol. 3, 11.11.1: message address register format. */
#define X86_MSI_BASE 0xfee00000U
#define X86_MSI_MASK 0xfff00000U

struct virtual_msi {
	struct pci_dev *ntb;
	struct irq_domain *source;	/* MSI parent domain of the NTB */
	u64 address;		/* device side; 1 MiB aligned */
	struct pcilend_virtual_relay *relay;	/* or NULL */
	struct msi_parent_ops ops;
	/* The PCI core's own, the same for all vectors of a domain. */
	void (*write_msg)(struct irq_data *data, struct msi_msg *msg);
	void (*set_desc)(msi_alloc_info_t *info, struct msi_desc *desc);
};

static const struct msi_msg *virtual_msi_relayed(struct virtual_msi *msi, struct irq_data *data)
{
	const struct msi_desc *desc = irq_data_get_msi_desc(data);

	return pcilend_virtual_relay_message(msi->relay, desc->msi_index + data->irq - desc->irq);
}

static void virtual_msi_write_msg(struct irq_data *data, struct msi_msg *msg)
{
	struct virtual_msi *msi = data->domain->parent->host_data;
	struct msi_msg translated = *msg;

	/* An all-zero message shuts a vector down and stays as it is. */
	if (msi->relay && (msg->address_lo || msg->address_hi)) {
		/* Prepared before the vector was allocated. */
		translated = *virtual_msi_relayed(msi, data);
	} else if (!msg->address_hi && (msg->address_lo & X86_MSI_MASK) == X86_MSI_BASE) {
		translated.address_hi = upper_32_bits(msi->address);
		translated.address_lo = lower_32_bits(msi->address) |
					(msg->address_lo & ~X86_MSI_MASK);
	} else if (msg->address_lo || msg->address_hi) {
		dev_warn_once(&msi->ntb->dev, "interrupt message for %#x%08x can't cross the NTB\n",
			      msg->address_hi, msg->address_lo);
	}
	msi->write_msg(data, &translated);
}

/* May sleep. A vector that the lender does not relay can't be allocated: virtual_msi_alloc(). */
static void virtual_msi_set_desc(msi_alloc_info_t *info, struct msi_desc *desc)
{
	struct virtual_msi *msi = dev_get_msi_domain(desc->dev)->host_data;
	int err;

	msi->set_desc(info, desc);
	/* Of MSI a function uses a power of two (PCI 3.0 §6.8.1.3). */
	err = pcilend_virtual_relay_prepare(msi->relay, desc->msi_index,
					    roundup_pow_of_two(desc->nvec_used));
	if (err)
		pci_info(to_pci_dev(desc->dev), "vector %u is not relayed by its lender (error %d)\n",
			 desc->msi_index, err);
}

static bool virtual_msi_init_dev(struct device *dev, struct irq_domain *domain,
				 struct irq_domain *parent, struct msi_domain_info *info)
{
	struct virtual_msi *msi = domain->host_data;
	struct irq_domain *source = msi->source;

	if (!source->msi_parent_ops->init_dev_msi_info(dev, source, source, info))
		return false;
	msi->write_msg = info->chip->irq_write_msi_msg;
	info->chip->irq_write_msi_msg = virtual_msi_write_msg;
	if (msi->relay) {
		msi->set_desc = info->ops->set_desc;
		info->ops->set_desc = virtual_msi_set_desc;
	}
	return true;
}

static struct irq_chip virtual_msi_chip = {
	.name = "pcilend",
	.irq_ack = irq_chip_ack_parent,
	.irq_set_affinity = irq_chip_set_affinity_parent,
	.irq_retrigger = irq_chip_retrigger_hierarchy,
	.irq_set_vcpu_affinity = irq_chip_set_vcpu_affinity_parent,
};

/* Also where no message of this host could lead: that of a processor with a high number. */
static void virtual_msi_compose_relayed(struct irq_data *data, struct msi_msg *msg)
{
	struct virtual_msi *msi = data->domain->host_data;

	*msg = *pcilend_virtual_relay_message(msi->relay, data->hwirq);
}

/* No posted interrupts: nothing of the function arrives at interrupt remapping. */
static struct irq_chip virtual_msi_relay_chip = {
	.name = "pcilend-relayed",
	.irq_ack = irq_chip_ack_parent,
	.irq_set_affinity = irq_chip_set_affinity_parent,
	.irq_retrigger = irq_chip_retrigger_hierarchy,
	.irq_compose_msi_msg = virtual_msi_compose_relayed,
};

static int virtual_msi_alloc(struct irq_domain *domain, unsigned int virq, unsigned int count,
			     void *arg)
{
	struct virtual_msi *msi = domain->host_data;
	msi_alloc_info_t *info = arg;
	struct msi_desc *desc = info->desc;
	struct msi_desc stand_in = *desc;
	const struct msi_msg *message;
	unsigned int i;
	int err;

	if (msi->relay) {
		message = pcilend_virtual_relay_message(msi->relay, desc->msi_index);
		if (!message || (message->address_hi && !desc->pci.msi_attrib.is_64))
			return -ENOSPC;
	}
	if (msi->address >> 32 && !desc->pci.msi_attrib.is_64) {
		pci_err(to_pci_dev(desc->dev), "its messages have 32 bits, and it is lent direct, where they go to %#llx: lend it behind an IOMMU\n",
			msi->address);
		return -EOPNOTSUPP;
	}
	/* Interrupt remapping looks up the source by desc->dev, and keeps nothing of it. */
	stand_in.dev = &msi->ntb->dev;
	info->desc = &stand_in;
	err = irq_domain_alloc_irqs_parent(domain, virq, count, arg);
	info->desc = desc;
	if (err)
		return err;

	for (i = 0; i < count; i++) {
		irq_domain_set_hwirq_and_chip(domain, virq + i, desc->msi_index + i,
					      msi->relay ? &virtual_msi_relay_chip :
							   &virtual_msi_chip, NULL);
		/* No message is on its way when such a vector moves. */
		if (msi->relay)
			pcilend_irq_may_move(virq + i);
	}
	return 0;
}

static void virtual_msi_free(struct irq_domain *domain, unsigned int virq, unsigned int count)
{
	struct virtual_msi *msi = domain->host_data;

	if (msi->relay)
		pcilend_virtual_relay_forget(msi->relay,
					     irq_domain_get_irq_data(domain, virq)->hwirq, count);
	irq_domain_free_irqs_common(domain, virq, count);
}

/* @reserve: before there is a handler. The parents have done their part. */
static int virtual_msi_activate(struct irq_domain *domain, struct irq_data *data, bool reserve)
{
	struct virtual_msi *msi = domain->host_data;

	if (msi->relay && !reserve)
		pcilend_virtual_relay_listen(msi->relay, data->hwirq, data);
	return 0;
}

static void virtual_msi_deactivate(struct irq_domain *domain, struct irq_data *data)
{
	struct virtual_msi *msi = domain->host_data;

	if (msi->relay)
		pcilend_virtual_relay_listen(msi->relay, data->hwirq, NULL);
}

static const struct irq_domain_ops virtual_msi_ops = {
	.alloc = virtual_msi_alloc,
	.free = virtual_msi_free,
	.activate = virtual_msi_activate,
	.deactivate = virtual_msi_deactivate,
};

/* Interrupts of the processors, which no device's message leads to by itself. */
static struct irq_domain *virtual_msi_vectors(struct irq_domain *domain)
{
	while (domain->parent)
		domain = domain->parent;
	return domain;
}

struct irq_domain *pcilend_virtual_msi_create(struct pci_dev *ntb, u64 address,
					      struct pcilend_virtual_relay *relay, const char *name)
{
	struct irq_domain *source = dev_get_msi_domain(&ntb->dev), *parent, *domain;
	u32 flags = IRQ_DOMAIN_FLAG_MSI_PARENT;
	struct fwnode_handle *fwnode;
	struct virtual_msi *msi;

	if (!source || !irq_domain_is_msi_parent(source))
		return NULL;
	parent = relay ? virtual_msi_vectors(source) : source;
	/* For VFIO: they are as isolated as those that the NTB itself raises. */
	if (msi_device_has_isolated_msi(&ntb->dev))
		flags |= IRQ_DOMAIN_FLAG_ISOLATED_MSI;

	msi = kzalloc(sizeof(*msi), GFP_KERNEL);
	if (!msi)
		return NULL;
	msi->ntb = ntb;
	msi->source = source;
	msi->address = address;
	msi->relay = relay;
	msi->ops = *source->msi_parent_ops;
	msi->ops.prefix = "pcilend-";
	msi->ops.init_dev_msi_info = virtual_msi_init_dev;

	fwnode = irq_domain_alloc_named_fwnode(name);
	if (!fwnode)
		goto err_free;
	domain = irq_domain_create_hierarchy(parent, flags, 0, fwnode, &virtual_msi_ops, msi);
	if (IS_ERR_OR_NULL(domain))
		goto err_fwnode;
	domain->msi_parent_ops = &msi->ops;
	return domain;

err_fwnode:
	irq_domain_free_fwnode(fwnode);
err_free:
	kfree(msi);
	return NULL;
}

void pcilend_virtual_msi_destroy(struct irq_domain *domain)
{
	struct fwnode_handle *fwnode = domain->fwnode;
	struct virtual_msi *msi = domain->host_data;

	irq_domain_remove(domain);
	irq_domain_free_fwnode(fwnode);
	kfree(msi);
}
