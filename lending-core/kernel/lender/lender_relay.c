// SPDX-License-Identifier: GPL-2.0-only
/*
 * MSI and MSI-X of lent functions whose borrower can't be reached by their messages: no memory
 * window covers its interrupt controller. Such a function raises interrupts of this host, in a
 * domain of their own below the function's MSI parent, and the borrower is told. The messages are
 * made here, but given to the function by the borrower, in whose hands its registers stay: masks,
 * resets and restores are as they always are. With interrupt remapping a message works for this
 * function only. (docs/decisions/0017)
 *
 * What was raised is a set of vectors: raised again before it was told it is told once, as a
 * message in hardware would be. Since the work item waits for the answer, one message per function
 * is under way, whatever function and borrower do.
 */

#include <linux/interrupt.h>
#include <linux/irq.h>
#include <linux/irqdomain.h>
#include <linux/msi.h>
#include <linux/ratelimit.h>

#include "lender/lender.h"

#define RETRY_MS 100

static irqreturn_t lender_relay_handler(int irq, void *data)
{
	struct pcilend_relay_vector *vector = data;
	struct pcilend_relay *relay = vector->relay;

	atomic64_or(BIT_ULL(vector - relay->vector), &relay->raised);
	queue_delayed_work(pcilend_wq, &relay->tell, 0);
	return IRQ_HANDLED;
}

/* Runs during the lease only, so the link is the lease's. */
static void lender_relay_tell_work(struct work_struct *work)
{
	struct pcilend_relay *relay = container_of(work, struct pcilend_relay, tell.work);
	struct pcilend_msg_msi_raised msg = {
		.id = relay->id,
		.lease = relay->lease,
	};
	u64 vectors;
	int err;

	if (!atomic64_read(&relay->raised))
		return;
	if (!__ratelimit(&lender_link(relay->link)->relay_limit)) {
		queue_delayed_work(pcilend_wq, &relay->tell, 1);
		return;
	}
	vectors = atomic64_xchg(&relay->raised, 0);
	msg.vectors = cpu_to_le64(vectors);
	err = pcilend_channel_request(relay->link, PCILEND_MSG_MSI_RAISED, &msg, NULL);
	if (!err) {
		atomic64_add(hweight64(vectors), &pcilend_counters[PCILEND_COUNTER_A_RELAYED]);
		return;
	}
	atomic64_or(vectors, &relay->raised);
	/* Over a link that is down: pcilend_relay_tell_again() makes up for it. */
	if (err != -ENETDOWN)
		queue_delayed_work(pcilend_wq, &relay->tell, msecs_to_jiffies(RETRY_MS));
}

/* Without interrupt remapping to move an interrupt changes its message, which the borrower has. */
static int lender_relay_set_affinity(struct irq_data *data, const struct cpumask *mask, bool force)
{
	if (!(data->domain->parent->flags & IRQ_DOMAIN_FLAG_ISOLATED_MSI))
		return -EINVAL;
	return irq_chip_set_affinity_parent(data, mask, force);
}

/* It masks nothing: that is up to the borrower. */
static struct irq_chip relay_chip = {
	.name = "pcilend-relay",
	.irq_ack = irq_chip_ack_parent,
	.irq_set_affinity = lender_relay_set_affinity,
	.irq_retrigger = irq_chip_retrigger_hierarchy,
	.flags = IRQCHIP_SKIP_SET_WAKE | IRQCHIP_AFFINITY_PRE_STARTUP,
};

static int lender_relay_alloc(struct irq_domain *domain, unsigned int virq, unsigned int count,
			      void *arg)
{
	msi_alloc_info_t *info = arg;
	unsigned int i;
	int err;

	err = irq_domain_alloc_irqs_parent(domain, virq, count, arg);
	if (err)
		return err;
	for (i = 0; i < count; i++)
		irq_domain_set_info(domain, virq + i, info->desc->msi_index + i, &relay_chip, NULL,
				    handle_edge_irq, NULL, "edge");
	return 0;
}

static const struct irq_domain_ops relay_domain_ops = {
	.alloc = lender_relay_alloc,
	.free = irq_domain_free_irqs_common,
};

static int lender_relay_open_domain(struct pcilend_function *fn)
{
	struct irq_domain *parent = dev_get_msi_domain(&fn->pdev->dev);
	struct pcilend_relay *relay = &fn->relay;
	struct fwnode_handle *fwnode;
	char name[32];

	if (relay->domain)
		return 0;
	if (!parent || !irq_domain_is_msi_parent(parent))
		return -EIO;
	snprintf(name, sizeof(name), "pcilend-relay-%x", fn->id);
	fwnode = irq_domain_alloc_named_fwnode(name);
	if (!fwnode)
		return -ENOMEM;
	relay->domain = irq_domain_create_hierarchy(parent, 0, 0, fwnode, &relay_domain_ops, NULL);
	if (!IS_ERR_OR_NULL(relay->domain))
		return 0;
	relay->domain = NULL;
	irq_domain_free_fwnode(fwnode);
	return -ENOMEM;
}

/*
 * Frees interrupts that were allocated at once, and that nobody has requested any more. The first
 * goes last: with it Intel's interrupt remapping gives all entries of the block to others
 * (intel_irq_remapping_free()), which deactivating one of the rest would write to.
 */
static void lender_relay_dispose(unsigned int irq, u32 count)
{
	while (count--)
		irq_dispose_mapping(irq + count);
}

/* Ends each allocation that has one of these vectors. */
static void lender_relay_drop(struct pcilend_relay *relay, u32 first, u32 count)
{
	u32 at, i;

	for (at = 0; at < first + count; at++) {
		struct pcilend_relay_vector *vector = &relay->vector[at];

		if (at + vector->count <= first)
			continue;
		for (i = 0; i < vector->count; i++)
			free_irq(vector->irq + i, vector + i);
		lender_relay_dispose(vector->irq, vector->count);
		vector->count = 0;
	}
}

static int lender_relay_take(struct pcilend_function *fn, u32 first, u32 count)
{
	struct pcilend_relay_vector *vector = &fn->relay.vector[first];
	struct msi_desc desc = {
		.dev = &fn->pdev->dev,
		.msi_index = first,
		.nvec_used = count,
	};
	msi_alloc_info_t info = { .desc = &desc };
	int irq, i;

#ifdef CONFIG_X86
	/* They differ in how many there may be. */
	info.type = count > 1 ? X86_IRQ_ALLOC_TYPE_PCI_MSI : X86_IRQ_ALLOC_TYPE_PCI_MSIX;
#endif
	irq = irq_domain_alloc_irqs(fn->relay.domain, count, dev_to_node(&fn->pdev->dev), &info);
	if (irq < 0)
		return -ENOSPC;
	for (i = 0; i < count; i++) {
		if (request_irq(irq + i, lender_relay_handler, IRQF_NO_THREAD, "pcilend-relay",
				vector + i))
			goto err_irqs;
	}
	vector->irq = irq;
	vector->count = count;
	return 0;

err_irqs:
	while (i--)
		free_irq(irq + i, vector + i);
	lender_relay_dispose(irq, count);
	return -ENOSPC;
}

/* Several at once are those of MSI. */
static bool lender_relay_has_vectors(struct pci_dev *pdev, u32 first, u32 count)
{
	int end = first + count;

	return end <= pci_msi_vec_count(pdev) || (count == 1 && end <= pci_msix_vec_count(pdev));
}

/*
 * pcilend_relay_set - relay interrupts of a lent function, or no longer
 * @in: what the borrower asks for
 * @out: gets the message, if that is to relay them
 *
 * Return: 0; -ERANGE if the function has no such vectors; -ENOSPC if this host has no more
 * interrupts; -EIO if it can't make such messages.
 */
int pcilend_relay_set(struct pcilend_function *fn, const struct pcilend_msg_msi *in,
		      struct pcilend_msg_msi_message *out)
{
	u32 first = le32_to_cpu(in->vector), count = le32_to_cpu(in->count);
	struct pcilend_relay *relay = &fn->relay;
	struct irq_data *parent;
	struct msi_msg msg = { };
	int err;

	lockdep_assert_held(&fn->lock);
	if (!lender_relay_has_vectors(fn->pdev, first, count))
		return -ERANGE;
	out->id = in->id;
	out->lease = in->lease;
	if (!in->on || relay->vector[first].count != count)
		lender_relay_drop(relay, first, count);
	if (!in->on)
		return 0;
	if (!relay->vector[first].count) {
		err = lender_relay_open_domain(fn) ?: lender_relay_take(fn, first, count);
		if (err)
			return err;
	}
	parent = irq_get_irq_data(relay->vector[first].irq)->parent_data;
	if (!parent->chip->irq_compose_msi_msg) {
		lender_relay_drop(relay, first, count);
		return -EIO;
	}
	parent->chip->irq_compose_msi_msg(parent, &msg);
	out->address = cpu_to_le64((u64)msg.address_hi << 32 | msg.address_lo);
	out->data = cpu_to_le32(msg.data);
	return 0;
}

/* The link is up again. */
void pcilend_relay_tell_again(struct pcilend_function *fn)
{
	lockdep_assert_held(&fn->lock);
	if (fn->relay.domain)
		queue_delayed_work(pcilend_wq, &fn->relay.tell, 0);
}

/* A new lease. */
void pcilend_relay_begin(struct pcilend_function *fn)
{
	struct pcilend_relay *relay = &fn->relay;

	lockdep_assert_held(&fn->lock);
	WARN_ON(relay->domain);
	relay->link = fn->link;
	relay->id = cpu_to_le32(fn->id);
	relay->lease = cpu_to_le32(fn->lease.number);
}

/* Ends when the lease does. On return nothing of it is under way. */
void pcilend_relay_end(struct pcilend_function *fn)
{
	struct pcilend_relay *relay = &fn->relay;
	struct fwnode_handle *fwnode;

	lockdep_assert_held(&fn->lock);
	if (!relay->domain)
		return;
	lender_relay_drop(relay, 0, PCILEND_RELAY_VECTORS);
	cancel_delayed_work_sync(&relay->tell);
	atomic64_set(&relay->raised, 0);
	fwnode = relay->domain->fwnode;
	irq_domain_remove(relay->domain);
	irq_domain_free_fwnode(fwnode);
	relay->domain = NULL;
	relay->link = NULL;
}

void pcilend_relay_init(struct pcilend_function *fn)
{
	struct pcilend_relay *relay = &fn->relay;
	unsigned int i;

	for (i = 0; i < PCILEND_RELAY_VECTORS; i++)
		relay->vector[i].relay = relay;
	INIT_DELAYED_WORK(&relay->tell, lender_relay_tell_work);
}
