// SPDX-License-Identifier: GPL-2.0-only
/*
 * Peer-to-peer: a lent function reaches BARs of another one by DMA, when both are lent to the same
 * node and that asks for it. Such a BAR is mapped in the domain of the first one's IOMMU group, the
 * source's, until either lease ends. It is one of this host, or, in a memory window, one of another
 * lender, which has told where and for whom; all DMA goes by the root complex.
 *
 * The end of the target's lease takes mappings from the source's group, without the source's lock:
 * so they are in a list with a lock of its own.
 */

#include <linux/slab.h>

#include "base/route.h"
#include "lender/lender.h"

#define EXPOSED_MAX 64		/* functions of one other lender */

static LIST_HEAD(reaches);		/* of struct pcilend_reached */
static LIST_HEAD(exposed_to_us);	/* of struct pcilend_exposed */
static DEFINE_MUTEX(reaches_lock);

/* May DMA of @from go to @to, a function or an adapter? Return: 0 or -EOPNOTSUPP. */
static int lender_reach_check_route(struct pcilend_function *from, struct pci_dev *to)
{
	if (pcilend_function_is_direct(from)) {
		dev_warn_ratelimited(&from->pdev->dev, "is not to reach %s by DMA: it is lent with --direct, and nothing can be mapped for it\n",
				     pci_name(to));
		return -EOPNOTSUPP;
	}
	if (!pcilend_route_is_known(from->pdev, to)) {
		dev_warn_ratelimited(&from->pdev->dev, "is not to reach %s by DMA: it is not known whether this host's root complex routes between them; if it does, load pcilend with p2p=1\n",
				     pci_name(to));
		return -EOPNOTSUPP;
	}
	return 0;
}

static struct pcilend_reached *lender_reach_find(const struct pcilend_reached *wanted)
{
	struct pcilend_reached *reached;

	lockdep_assert_held(&reaches_lock);
	list_for_each_entry(reached, &reaches, node) {
		if (reached->from == wanted->from && reached->to == wanted->to &&
		    reached->bar == wanted->bar && reached->address == wanted->address)
			return reached;
	}
	return NULL;
}

static u32 lender_reach_count(struct pcilend_function *from)
{
	struct pcilend_reached *reached;
	u32 number = 0;

	lockdep_assert_held(&reaches_lock);
	list_for_each_entry(reached, &reaches, node)
		number += reached->from == from;
	return number;
}

static void lender_reach_drop(struct pcilend_reached *reached)
{
	lockdep_assert_held(&reaches_lock);
	pcilend_group_unmap(reached->from->group, reached->address, reached->size);
	if (reached->exposed) {
		pcilend_dma_unreach(&reached->over);
		pcilend_requesters_remove(reached->exposed->link, reached->from->pdev);
	}
	list_del(&reached->node);
	kfree(reached);
}

/* Not what the borrower has asked for: it is told. */
static void lender_reach_withdraw(struct pcilend_reached *reached)
{
	const struct pcilend_msg_unreached msg = {
		.id = cpu_to_le32(reached->from->id),
		.lease = cpu_to_le32(reached->lease),
		.target = cpu_to_le32(reached->to),
	};

	/* The source's fence, which ends the use of its link, drops its reaches first. */
	pcilend_channel_notify(reached->from->link, PCILEND_MSG_UNREACHED, &msg);
	lender_reach_drop(reached);
}

/*
 * Maps what @wanted says, unless that is so. Return: 0; -ERANGE if the BAR is not lent, or not that
 * range free; -ENOSPC; -EUSERS if something else is mapped there; -EHOSTUNREACH if the link to the
 * target's lender is lost.
 */
static int lender_reach_add(const struct pcilend_reached *wanted)
{
	struct pcilend_function *from = wanted->from;
	struct pcilend_reached *reached;
	int err;

	lockdep_assert_held(&reaches_lock);
	if (lender_reach_find(wanted))
		return 0;
	/* Page tables are this host's memory: aligned so, large BARs are in large pages. */
	if (!wanted->size || !IS_ALIGNED(wanted->address, roundup_pow_of_two(wanted->size)) ||
	    !pcilend_device_may_map(from, wanted->address, wanted->size))
		return -ERANGE;
	if (lender_reach_count(from) >= PCILEND_REACHES)
		return -ENOSPC;
	reached = kmemdup(wanted, sizeof(*wanted), GFP_KERNEL);
	if (!reached)
		return -ENOMEM;
	INIT_LIST_HEAD(&reached->over.node);
	err = reached->exposed ?
		      pcilend_requesters_add(reached->exposed->link, from->pdev) : 0;
	if (err)
		goto err_free;
	err = pcilend_group_map(from, reached->address, reached->phys, reached->size);
	if (err)
		goto err_requester;
	err = reached->exposed ? pcilend_dma_reach(&reached->over, from, reached->exposed->link) :
				 0;
	if (err)
		goto err_unmap;
	list_add_tail(&reached->node, &reaches);
	return 0;

err_unmap:
	pcilend_group_unmap(from->group, reached->address, reached->size);
err_requester:
	if (reached->exposed)
		pcilend_requesters_remove(reached->exposed->link, from->pdev);
err_free:
	kfree(reached);
	return err;
}

/* Return: 0, or -ERANGE if there is none. */
static int lender_reach_take_back(const struct pcilend_reached *wanted)
{
	struct pcilend_reached *reached = lender_reach_find(wanted);

	if (!reached)
		return -ERANGE;
	lender_reach_drop(reached);
	return 0;
}

static struct pcilend_reached lender_reach_describe(struct pcilend_function *from,
						    const struct pcilend_msg_reach *msg)
{
	return (struct pcilend_reached) {
		.from = from,
		.lease = from->lease.number,
		.to = le32_to_cpu(msg->target),
		.bar = le32_to_cpu(msg->bar),
		.address = le64_to_cpu(msg->device_address),
	};
}

/*
 * pcilend_reach_set - let DMA of @from reach a BAR of @to, or no longer
 *
 * Both are lent to the node that asks, and locked. Return: 0, also if it is so; as
 * lender_reach_add(); -ERANGE if there is nothing to end; -EOPNOTSUPP if this host may not carry
 * it; -EAGAIN while @to is being reset.
 */
int pcilend_reach_set(struct pcilend_function *from, struct pcilend_function *to,
		      const struct pcilend_msg_reach *msg)
{
	struct pcilend_reached wanted = lender_reach_describe(from, msg);
	int err;

	lockdep_assert_held(&from->lock);
	lockdep_assert_held(&to->lock);
	/* Somebody else resets it: asked again it will do. */
	if (msg->on && to->hidden)
		return -EAGAIN;
	wanted.phys = pci_resource_start(to->pdev, wanted.bar);
	wanted.size = to->export[wanted.bar].size;
	err = msg->on ? lender_reach_check_route(from, to->pdev) : 0;
	if (err)
		return err;
	mutex_lock(&reaches_lock);
	err = msg->on ? lender_reach_add(&wanted) : lender_reach_take_back(&wanted);
	mutex_unlock(&reaches_lock);
	return err;
}

static struct pcilend_exposed *lender_reach_find_exposed(u32 id)
{
	struct pcilend_exposed *exposed;

	lockdep_assert_held(&reaches_lock);
	list_for_each_entry(exposed, &exposed_to_us, node) {
		if (exposed->id == id)
			return exposed;
	}
	return NULL;
}

static int lender_reach_add_exposed(struct pcilend_reached *wanted, u32 borrower, u32 target_lease)
{
	struct pcilend_exposed *exposed = lender_reach_find_exposed(wanted->to);
	const struct pcilend_msg_placement *bar;
	int err;

	if (!exposed || exposed->borrower != borrower || exposed->lease != target_lease)
		return -ENODEV;
	bar = &exposed->bar[wanted->bar];
	wanted->exposed = exposed;
	wanted->size = le64_to_cpu(bar->size);
	err = wanted->size ? lender_reach_check_route(wanted->from, exposed->link->pdev) : -ERANGE;
	return err ?: pcilend_aperture_peer(exposed->link, le32_to_cpu(bar->window),
					    le64_to_cpu(bar->offset), wanted->size,
					    &wanted->phys) ?:
	       lender_reach_add(wanted);
}

/*
 * pcilend_reach_set_exposed - the same with a BAR of another lender
 * @borrower: the node that asks
 *
 * @from is lent to it, and locked. Return: as pcilend_reach_set(), or -ENODEV if that lender has
 * not exposed it for this borrower.
 */
int pcilend_reach_set_exposed(struct pcilend_function *from, u32 borrower,
			      const struct pcilend_msg_reach *msg)
{
	struct pcilend_reached wanted = lender_reach_describe(from, msg);
	int err;

	lockdep_assert_held(&from->lock);
	mutex_lock(&reaches_lock);
	err = msg->on ? lender_reach_add_exposed(&wanted, borrower, le32_to_cpu(msg->target_lease))
		      : lender_reach_take_back(&wanted);
	mutex_unlock(&reaches_lock);
	return err;
}

static void lender_reach_forget(struct pcilend_exposed *exposed)
{
	struct pcilend_reached *reached, *next;

	lockdep_assert_held(&reaches_lock);
	list_for_each_entry_safe(reached, next, &reaches, node) {
		if (reached->exposed == exposed)
			lender_reach_withdraw(reached);
	}
	list_del(&exposed->node);
	kfree(exposed);
}

static bool lender_reach_is_same(const struct pcilend_exposed *exposed,
				 const struct pcilend_link *link,
				 const struct pcilend_msg_exposed *msg)
{
	return exposed->link == link && exposed->lease == le32_to_cpu(msg->lease) &&
	       exposed->borrower == le32_to_cpu(msg->borrower) &&
	       !memcmp(exposed->bar, msg->bar, sizeof(msg->bar));
}

static int lender_reach_learn(struct pcilend_link *link, const struct pcilend_msg_exposed *msg)
{
	struct pcilend_exposed *exposed;
	u32 number = 0;

	lockdep_assert_held(&reaches_lock);
	list_for_each_entry(exposed, &exposed_to_us, node)
		number += exposed->link == link;
	if (number >= EXPOSED_MAX)
		return -ENOSPC;
	exposed = kmalloc(sizeof(*exposed), GFP_KERNEL);
	if (!exposed)
		return -ENOMEM;
	*exposed = (struct pcilend_exposed) {
		.link = link,
		.id = le32_to_cpu(msg->id),
		.lease = le32_to_cpu(msg->lease),
		.borrower = le32_to_cpu(msg->borrower),
	};
	memcpy(exposed->bar, msg->bar, sizeof(exposed->bar));
	list_add_tail(&exposed->node, &exposed_to_us);
	return 0;
}

/*
 * pcilend_reach_exposed - another lender tells where BARs of one of its functions are, or that they
 * are not any more
 *
 * When it returns nothing else that was told of it over this link is mapped any more. Return: 0;
 * -ENOSPC if it tells too much; -ENOMEM.
 */
int pcilend_reach_exposed(struct pcilend_link *link, const struct pcilend_msg_exposed *msg)
{
	struct pcilend_exposed *exposed;
	int err = 0;

	mutex_lock(&reaches_lock);
	exposed = lender_reach_find_exposed(le32_to_cpu(msg->id));
	/* What ends over one link may have been told anew over another. */
	if (exposed &&
	    (msg->on ? !lender_reach_is_same(exposed, link, msg) : exposed->link == link)) {
		lender_reach_forget(exposed);
		exposed = NULL;
	}
	if (msg->on && !exposed)
		err = lender_reach_learn(link, msg);
	mutex_unlock(&reaches_lock);
	return err;
}

/* The session with that lender is over, and nothing of it is handled any more. */
void pcilend_reach_peer_dead(struct pcilend_link *link)
{
	struct pcilend_exposed *exposed, *next;

	mutex_lock(&reaches_lock);
	list_for_each_entry_safe(exposed, next, &exposed_to_us, node) {
		if (exposed->link == link)
			lender_reach_forget(exposed);
	}
	mutex_unlock(&reaches_lock);
}

/* Links over which the function reached other lenders were lost: it does no more. */
void pcilend_reach_drop_lost(struct pcilend_function *fn)
{
	struct pcilend_reached *reached, *next;

	lockdep_assert_held(&fn->lock);
	mutex_lock(&reaches_lock);
	list_for_each_entry_safe(reached, next, &reaches, node) {
		if (reached->from == fn && READ_ONCE(reached->over.lost))
			lender_reach_withdraw(reached);
	}
	mutex_unlock(&reaches_lock);
}

/* Nobody reaches the function's BARs for now. Not one of another lender: that has its exposures. */
void pcilend_reach_hide(struct pcilend_function *fn)
{
	struct pcilend_reached *reached;

	lockdep_assert_held(&fn->lock);
	mutex_lock(&reaches_lock);
	list_for_each_entry(reached, &reaches, node) {
		if (reached->to == fn->id)
			pcilend_group_hide(reached->from->group, reached->address, reached->size);
	}
	mutex_unlock(&reaches_lock);
}

void pcilend_reach_show(struct pcilend_function *fn)
{
	struct pcilend_reached *reached, *next;

	lockdep_assert_held(&fn->lock);
	mutex_lock(&reaches_lock);
	list_for_each_entry_safe(reached, next, &reaches, node) {
		if (reached->to == fn->id &&
		    pcilend_group_show(reached->from->group, reached->address, reached->phys,
				       reached->size))
			lender_reach_withdraw(reached);
	}
	mutex_unlock(&reaches_lock);
}

/* The function's lease is over, and its group's domain still there. */
void pcilend_reach_fence(struct pcilend_function *fn)
{
	struct pcilend_reached *reached, *next;

	lockdep_assert_held(&fn->lock);
	mutex_lock(&reaches_lock);
	list_for_each_entry_safe(reached, next, &reaches, node) {
		if (reached->from == fn || reached->to == fn->id)
			lender_reach_drop(reached);
	}
	mutex_unlock(&reaches_lock);
}
