// SPDX-License-Identifier: GPL-2.0-only
/*
 * Interrupts of a virtual function, straight from the device through the NTB.
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
 */

#include <linux/irq.h>
#include <linux/msi.h>
#include <linux/slab.h>

#include "pcilend/pcilend.h"
#include "virtual.h"

/* Intel SDM vol. 3, 11.11.1: message address register format. */
#define X86_MSI_BASE 0xfee00000U
#define X86_MSI_MASK 0xfff00000U

struct virtual_msi {
	struct pci_dev *ntb;
	u64 address;		/* device side; 1 MiB aligned */
	struct msi_parent_ops ops;
	/* The PCI core's own, the same for all vectors of a domain. */
	void (*write_msg)(struct irq_data *data, struct msi_msg *msg);
};

static void virtual_msi_write_msg(struct irq_data *data, struct msi_msg *msg)
{
	struct virtual_msi *msi = data->domain->parent->host_data;
	struct msi_msg translated = *msg;

	/* An all-zero message shuts a vector down and stays as it is. */
	if (!msg->address_hi && (msg->address_lo & X86_MSI_MASK) == X86_MSI_BASE) {
		translated.address_hi = upper_32_bits(msi->address);
		translated.address_lo = lower_32_bits(msi->address) |
					(msg->address_lo & ~X86_MSI_MASK);
	} else if (msg->address_lo || msg->address_hi) {
		dev_warn_once(&msi->ntb->dev, "interrupt message for %#x%08x can't cross the NTB\n",
			      msg->address_hi, msg->address_lo);
	}
	msi->write_msg(data, &translated);
}

static bool virtual_msi_init_dev(struct device *dev, struct irq_domain *domain,
				 struct irq_domain *parent, struct msi_domain_info *info)
{
	struct virtual_msi *msi = domain->host_data;
	struct irq_domain *below = domain->parent;

	if (!below->msi_parent_ops->init_dev_msi_info(dev, below, below, info))
		return false;
	msi->write_msg = info->chip->irq_write_msi_msg;
	info->chip->irq_write_msi_msg = virtual_msi_write_msg;
	return true;
}

static struct irq_chip virtual_msi_chip = {
	.name = "pcilend",
	.irq_ack = irq_chip_ack_parent,
	.irq_set_affinity = irq_chip_set_affinity_parent,
	.irq_retrigger = irq_chip_retrigger_hierarchy,
	.irq_set_vcpu_affinity = irq_chip_set_vcpu_affinity_parent,
};

static int virtual_msi_alloc(struct irq_domain *domain, unsigned int virq, unsigned int count,
			     void *arg)
{
	struct virtual_msi *msi = domain->host_data;
	msi_alloc_info_t *info = arg;
	struct msi_desc *desc = info->desc;
	struct msi_desc stand_in = *desc;
	unsigned int i;
	int err;

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

	for (i = 0; i < count; i++)
		irq_domain_set_hwirq_and_chip(domain, virq + i, desc->msi_index + i,
					      &virtual_msi_chip, NULL);
	return 0;
}

static const struct irq_domain_ops virtual_msi_ops = {
	.alloc = virtual_msi_alloc,
	.free = irq_domain_free_irqs_common,
};

struct irq_domain *pcilend_virtual_msi_create(struct pci_dev *ntb, u64 address, const char *name)
{
	struct irq_domain *parent = dev_get_msi_domain(&ntb->dev);
	struct fwnode_handle *fwnode;
	struct irq_domain *domain;
	struct virtual_msi *msi;

	if (!parent || !irq_domain_is_msi_parent(parent))
		return NULL;

	msi = kzalloc(sizeof(*msi), GFP_KERNEL);
	if (!msi)
		return NULL;
	msi->ntb = ntb;
	msi->address = address;
	msi->ops = *parent->msi_parent_ops;
	msi->ops.prefix = "pcilend-";
	msi->ops.init_dev_msi_info = virtual_msi_init_dev;

	fwnode = irq_domain_alloc_named_fwnode(name);
	if (!fwnode)
		goto err_free;
	domain = irq_domain_create_hierarchy(parent, IRQ_DOMAIN_FLAG_MSI_PARENT, 0, fwnode,
					     &virtual_msi_ops, msi);
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
