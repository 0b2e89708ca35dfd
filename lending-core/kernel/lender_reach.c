// SPDX-License-Identifier: GPL-2.0-only
/*
 * Peer-to-peer: a lent function reaches BARs of another one by DMA, when both are lent to the same
 * node and that asks for it. Such a BAR is mapped in the domain of the first one's IOMMU group, the
 * source's, until either lease ends; all DMA between the two goes by the root complex.
 *
 * The end of the target's lease takes mappings from the source's group, without the source's lock:
 * so they are in a list with a lock of its own.
 */

#include <linux/pci-p2pdma.h>
#include <linux/slab.h>

#include "lender.h"

struct reach {
	struct list_head node;
	struct pcilend_function *from;	/* both are lent, so their groups' domains are there */
	struct pcilend_function *to;
	u32 bar;
	u64 address;			/* device side */
	u64 size;			/* bytes, whole pages */
};

static LIST_HEAD(reaches);
static DEFINE_MUTEX(reaches_lock);

/*
 * Is it known that the root complex carries DMA from one to the other? A kernel without
 * PCI_P2PDMA, such as Debian's 6.12, has no list of host bridges to ask; of CPUs that list has
 * AMD's from Zen on.
 */
static bool routes_between(struct pci_dev *from, struct pci_dev *to)
{
#if defined(CONFIG_PCI_P2PDMA)
	struct device *client = &from->dev;

	return pci_p2pdma_distance_many(to, &client, 1, false) >= 0;
#elif defined(CONFIG_X86)
	return boot_cpu_data.x86_vendor == X86_VENDOR_AMD && boot_cpu_data.x86 >= 0x17;
#else
	return false;
#endif
}

static struct reach *find(struct pcilend_function *from, struct pcilend_function *to, u32 bar,
			  u64 address)
{
	struct reach *reach;

	lockdep_assert_held(&reaches_lock);
	list_for_each_entry(reach, &reaches, node) {
		if (reach->from == from && reach->to == to && reach->bar == bar &&
		    reach->address == address)
			return reach;
	}
	return NULL;
}

static u32 count(struct pcilend_function *from)
{
	struct reach *reach;
	u32 number = 0;

	lockdep_assert_held(&reaches_lock);
	list_for_each_entry(reach, &reaches, node)
		number += reach->from == from;
	return number;
}

static void drop(struct reach *reach)
{
	lockdep_assert_held(&reaches_lock);
	pcilend_group_unmap(reach->from->group, reach->address, reach->size);
	list_del(&reach->node);
	kfree(reach);
}

static int add(struct pcilend_function *from, struct pcilend_function *to, u32 bar, u64 address)
{
	u64 size = to->export[bar].size;
	struct reach *reach;
	int err;

	lockdep_assert_held(&reaches_lock);
	/* Page tables are this host's memory: aligned so, large BARs are in large pages. */
	if (!size || !IS_ALIGNED(address, roundup_pow_of_two(size)) ||
	    !pcilend_device_may_map(from, address, size))
		return -ERANGE;
	if (count(from) >= PCILEND_REACHES)
		return -ENOSPC;
	reach = kmalloc(sizeof(*reach), GFP_KERNEL);
	if (!reach)
		return -ENOMEM;
	*reach = (struct reach) {
		.from = from,
		.to = to,
		.bar = bar,
		.address = address,
		.size = size,
	};
	err = pcilend_group_map(from, address, pci_resource_start(to->pdev, bar), size);
	if (err) {
		kfree(reach);
		return err;
	}
	list_add_tail(&reach->node, &reaches);
	return 0;
}

/*
 * pcilend_reach_set_up - let DMA of @from to @address reach a BAR of @to
 *
 * Both are lent to the node that asks, and locked. Return: 0, also if it is so; -ERANGE if that BAR
 * is not lent, or not that range free; -ENOSPC; -EUSERS if something else is mapped there;
 * -EOPNOTSUPP if this host may not carry it.
 */
int pcilend_reach_set_up(struct pcilend_function *from, struct pcilend_function *to, u32 bar,
			 u64 address)
{
	int err = 0;

	lockdep_assert_held(&from->lock);
	lockdep_assert_held(&to->lock);
	if (pcilend_function_is_direct(from)) {
		dev_warn_ratelimited(&from->pdev->dev, "is not to reach %s by DMA: it is lent with --direct, and nothing can be mapped for it\n",
				     pci_name(to->pdev));
		return -EOPNOTSUPP;
	}
	if (!pcilend_p2p && !routes_between(from->pdev, to->pdev)) {
		dev_warn_ratelimited(&from->pdev->dev, "is not to reach %s by DMA: it is not known whether this host's root complex routes between them; if it does, load pcilend with p2p=1\n",
				     pci_name(to->pdev));
		return -EOPNOTSUPP;
	}
	mutex_lock(&reaches_lock);
	if (!find(from, to, bar, address))
		err = add(from, to, bar, address);
	mutex_unlock(&reaches_lock);
	return err;
}

/* Undoes one pcilend_reach_set_up(). Return: 0, or -ERANGE if there is none. */
int pcilend_reach_take_back(struct pcilend_function *from, struct pcilend_function *to, u32 bar,
			    u64 address)
{
	struct reach *reach;

	lockdep_assert_held(&from->lock);
	lockdep_assert_held(&to->lock);
	mutex_lock(&reaches_lock);
	reach = find(from, to, bar, address);
	if (reach)
		drop(reach);
	mutex_unlock(&reaches_lock);
	return reach ? 0 : -ERANGE;
}

/* The function's lease is over, and its group's domain still there. */
void pcilend_reach_fence(struct pcilend_function *fn)
{
	struct reach *reach, *next;

	lockdep_assert_held(&fn->lock);
	mutex_lock(&reaches_lock);
	list_for_each_entry_safe(reach, next, &reaches, node) {
		if (reach->from == fn || reach->to == fn)
			drop(reach);
	}
	mutex_unlock(&reaches_lock);
}
