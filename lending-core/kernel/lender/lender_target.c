// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory that can be taken away, mapped for a function (lender_target.h); and segments that a
 * borrower asks for, which this host connects itself, or has.
 *
 * What is taken goes out of the group's domain without the function's lock, which is held while a
 * device or a peer is waited for. The fence lets go of all before the domain goes.
 */

#include <linux/slab.h>

#include "base/route.h"
#include "base/source.h"
#include "lender/lender_target.h"

struct lender_target {
	struct pcilend_hook hook;
	struct pcilend_over over;	/* the link, if it is over one */
	struct pcilend_link *link;	/* source's lock: until it is taken; or NULL */
	struct pcilend_function *fn;	/* constant, as all of the rest */
	struct pcilend_group *group;	/* the domain stays while this is there */
	u64 address;
	u64 size;
	struct pcilend_source *source;	/* with a reference */
	struct pcilend_memory *own;	/* or NULL */
};

/* See pcilend_lender_init(). */
static pcilend_open_segment lender_target_open_segment;

void pcilend_target_init(pcilend_open_segment open)
{
	lender_target_open_segment = open;
}

/* No DMA goes over that link any more; it may go away. */
static void lender_target_end_over(struct lender_target *target)
{
	if (!target->link)
		return;
	pcilend_dma_unreach(&target->over);
	pcilend_requesters_remove(target->link, target->fn->pdev);
	pcilend_link_put(target->link);
	target->link = NULL;
}

static void lender_target_take(struct pcilend_hook *hook)
{
	struct lender_target *target = container_of(hook, struct lender_target, hook);

	pcilend_group_hide(target->group, target->address, target->size);
	lender_target_end_over(target);
}

/* May the function reach it? A window of an adapter only as what is connected there. */
static int lender_target_check(struct pcilend_function *fn, const struct pcilend_memory *memory)
{
	struct pci_dev *behind = memory->behind;

	if (!behind)
		return 0;
	if (behind == fn->pdev)
		return -EINVAL;
	if (!memory->link && pcilend_link_is_adapter(behind))
		return -EOPNOTSUPP;
	if (pcilend_route_is_known(fn->pdev, behind))
		return 0;
	dev_warn_ratelimited(&fn->pdev->dev, "is not to reach %s by DMA: it is not known whether this host's root complex routes between them; if it does, load pcilend with p2p=1\n",
			     pci_name(behind));
	return -EOPNOTSUPP;
}

static int lender_target_begin_over(struct lender_target *target, struct pcilend_link *link)
{
	int err;

	if (!link)
		return 0;
	err = pcilend_requesters_add(link, target->fn->pdev);
	if (err)
		return err;
	err = pcilend_dma_reach(&target->over, target->fn, link);
	if (err)
		pcilend_requesters_remove(link, target->fn->pdev);
	else
		target->link = pcilend_link_get(link);
	return err;
}

static void lender_target_free(struct lender_target *target)
{
	lender_target_end_over(target);
	pcilend_source_put(target->source);
	if (target->own)
		pcilend_memory_put(target->own);
	kfree(target->own);
	kfree(target);
}

struct lender_target *lender_target_begin(struct pcilend_function *fn, u64 address,
					  const struct pcilend_memory *memory)
{
	struct lender_target *target;
	int err;

	lockdep_assert_held(&fn->lock);
	if (!memory->source)
		return NULL;
	err = lender_target_check(fn, memory);
	if (err)
		return ERR_PTR(err);
	target = kzalloc(sizeof(*target), GFP_KERNEL_ACCOUNT);
	if (!target)
		return ERR_PTR(-ENOMEM);
	target->hook.take = lender_target_take;
	INIT_LIST_HEAD(&target->hook.node);
	INIT_LIST_HEAD(&target->over.node);
	target->fn = fn;
	target->group = fn->group;
	target->address = address;
	target->size = memory->size;
	err = pcilend_source_begin(memory->source);
	if (err)
		goto err_free;
	/* It is taken before the link goes. */
	err = lender_target_begin_over(target, memory->link);
	if (err)
		goto err_end;
	target->source = pcilend_source_get(memory->source);
	return target;

err_end:
	pcilend_source_end(memory->source);
err_free:
	kfree(target);
	return ERR_PTR(err);
}

void lender_target_end(struct lender_target *target, int error)
{
	struct pcilend_source *source;

	if (!target)
		return;
	source = target->source;
	if (!error)
		pcilend_source_hook(source, &target->hook);
	pcilend_source_end(source);
	if (error)
		lender_target_free(target);
}

void lender_target_drop(struct lender_target *target)
{
	if (!target)
		return;
	pcilend_source_unhook(target->source, &target->hook);
	/* Before whoever keeps it hears that it is free. */
	pcilend_group_hide(target->group, target->address, target->size);
	lender_target_free(target);
}

void lender_target_keep(struct lender_target *target, struct pcilend_memory *memory)
{
	target->own = memory;
}

/* The function reaches nothing that can be taken away; its group's domain is still there. */
void pcilend_target_fence(struct pcilend_function *fn)
{
	int i;

	lockdep_assert_held(&fn->lock);
	for (i = 0; i < PCILEND_MAPS; i++) {
		lender_target_drop(fn->map[i].target);
		fn->map[i].target = NULL;
	}
}

/* Links over which it reached some were lost: it does no more. */
void pcilend_target_drop_lost(struct pcilend_function *fn)
{
	int i;

	lockdep_assert_held(&fn->lock);
	for (i = 0; i < PCILEND_MAPS; i++) {
		struct lender_target *target = fn->map[i].target;

		if (!target || !READ_ONCE(target->over.lost))
			continue;
		pcilend_group_hide(target->group, target->address, target->size);
		/* Another loss of that link is nothing to it. */
		pcilend_dma_unreach(&target->over);
	}
}

static int lender_target_map(struct pcilend_function *fn, const struct pcilend_msg_target *in,
			     struct pcilend_memory *memory)
{
	bool read_only = le32_to_cpu(in->flags) & PCILEND_TARGET_READ_ONLY;
	u64 address = le64_to_cpu(in->device_address);
	struct pcilend_map_entry *entry;
	int err;

	lockdep_assert_held(&fn->lock);
	if (memory->size != le64_to_cpu(in->size))
		return -ERANGE;
	if (!read_only && !memory->writable)
		return -EACCES;
	err = pcilend_device_map_memory(fn, address, memory,
					IOMMU_READ | (read_only ? 0 : IOMMU_WRITE), &entry);
	if (!err)
		lender_target_keep(entry->target, memory);
	return err;
}

/**
 * pcilend_target_set - what PCILEND_MSG_TARGET asks for, for the holder of the lease
 * @check: says whether @node holds it still; with the function's lock
 *
 * Waits for the segment's owner. Return: as pcilend_device_map_memory(), lender_target_begin(), or
 * what connecting it says; -ERANGE also if the segment has another size.
 */
int pcilend_target_set(struct pcilend_function *fn, u32 node, const struct pcilend_msg_target *in,
		       int (*check)(struct pcilend_function *fn, const void *holder),
		       const void *holder)
{
	bool read_only = le32_to_cpu(in->flags) & PCILEND_TARGET_READ_ONLY;
	struct pcilend_memory *memory;
	int err;

	if (!(le32_to_cpu(in->flags) & PCILEND_TARGET_ON)) {
		guard(mutex)(&fn->lock);
		return check(fn, holder) ?:
		       pcilend_device_unmap(fn, le64_to_cpu(in->device_address),
					    le64_to_cpu(in->size));
	}
	mutex_lock(&fn->lock);
	err = check(fn, holder);
	mutex_unlock(&fn->lock);
	if (err)
		return err;
	memory = kzalloc(sizeof(*memory), GFP_KERNEL_ACCOUNT);
	if (!memory)
		return -ENOMEM;
	err = lender_target_open_segment(le32_to_cpu(in->segment), node, read_only, memory);
	if (err)
		goto err_free;
	mutex_lock(&fn->lock);
	err = check(fn, holder) ?: lender_target_map(fn, in, memory);
	mutex_unlock(&fn->lock);
	if (!err)
		return 0;
	pcilend_memory_put(memory);
err_free:
	kfree(memory);
	return err;
}
