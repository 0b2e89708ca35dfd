// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a leased function reaches that is no memory of this host (remote_target.h).
 *
 * The lender finds out by itself when a segment is not there any more. When only this host loses it
 * - it was withdrawn here, or the link to its owner is lost - the function loses it, too: a work
 * item asks the lender, as whoever tells of that waits for nobody.
 */

#include <linux/iommu.h>
#include <linux/slab.h>

#include "base/memory.h"
#include "base/route.h"
#include "base/source.h"
#include "borrower/remote_target.h"

struct remote_target {
	struct list_head node;
	struct kref ref;		/* of the list, and of its work item */
	struct pcilend_hook hook;
	struct pcilend_source *source;	/* with a reference */
	struct pcilend_remote *remote;	/* with a reference */
	u32 lease;
	struct iommu_domain *domain;	/* NULL: the lender maps it */
	struct remote_bar bar;		/* with its reference; bar.to NULL: it is none of another */
					/* host's function */
	u32 segment;
	u64 offset;			/* in that BAR */
	u64 address;
	u64 size;
	bool taken;			/* source's lock: not mapped in @domain any more */
	struct work_struct work;
};

static void target_free(struct kref *ref)
{
	struct remote_target *target = container_of(ref, struct remote_target, ref);

	if (target->bar.to)
		pcilend_remote_put(&target->bar.to->pub);
	pcilend_source_put(target->source);
	pcilend_remote_put(target->remote);
	kfree(target);
}

static void target_put(struct remote_target *target)
{
	kref_put(&target->ref, target_free);
}

/* It may wait for the segment's owner meanwhile. */
static int target_ask(struct remote_target *target, u32 flags)
{
	struct remote *r = to_remote(target->remote);
	const struct pcilend_msg_target msg = {
		.id = cpu_to_le32(target->remote->id),
		.lease = cpu_to_le32(target->lease),
		.segment = cpu_to_le32(target->segment),
		.flags = cpu_to_le32(flags),
		.device_address = cpu_to_le64(target->address),
		.size = cpu_to_le64(target->size),
	};
	struct pcilend_link *link;
	int err;

	if (remote_held_lease(r) != target->lease)
		return -ESTALE;
	link = remote_link(r);
	err = pcilend_channel_request_for(link, PCILEND_MSG_TARGET, &msg, NULL,
					  2 * PCILEND_REQUEST_MS);
	pcilend_link_put(link);
	return err;
}

/* What the lender does not answer it may have done: it ends with the lease then. */
static void target_end_work(struct work_struct *work)
{
	struct remote_target *target = container_of(work, struct remote_target, work);

	target_ask(target, 0);
	target_put(target);
}

static void target_queue_end(struct remote_target *target)
{
	kref_get(&target->ref);
	if (!queue_work(pcilend_frontend_wq, &target->work))
		target_put(target);
}

static void target_take(struct pcilend_hook *hook)
{
	struct remote_target *target = container_of(hook, struct remote_target, hook);

	target->taken = true;
	if (target->domain)
		WARN_ON(iommu_unmap(target->domain, target->address, target->size) !=
			target->size);
	else
		target_queue_end(target);
}

static struct remote_target *target_alloc(const struct remote_holder *holder,
					  const struct pcilend_memory *memory, u64 address)
{
	struct remote_target *target = kzalloc(sizeof(*target), GFP_KERNEL_ACCOUNT);

	if (!target)
		return NULL;
	kref_init(&target->ref);
	INIT_LIST_HEAD(&target->hook.node);
	INIT_WORK(&target->work, target_end_work);
	target->hook.take = target_take;
	target->source = pcilend_source_get(memory->source);
	get_device(&holder->remote->dev);
	target->remote = holder->remote;
	target->lease = holder->lease;
	target->domain = memory->segment || memory->far.function ? NULL : holder->domain;
	target->segment = memory->segment;
	target->offset = memory->far.offset;
	target->address = address;
	target->size = memory->size;
	return target;
}

/* A text that is made here is short (pcilend_refuse_fmt()). */
static int target_refuse(struct remote_target *target, int error, struct netlink_ext_ack *extack)
{
	u32 owner = pcilend_id_node(target->segment);
	u32 lender = pcilend_id_node(target->remote->id);

	switch (error) {
	case -ENODEV:
		if (owner == lender)
			return pcilend_refuse(extack, error, "its owner does not offer it to this host any more: connect it anew");
		return pcilend_refuse_fmt(extack, error, "node %u does not offer it to the function's lender, node %u: do that",
					  owner, lender);
	case -EACCES:
		return pcilend_refuse_fmt(extack, error, "node %u, the function's lender, is offered it read-only: map it read-only",
					  lender);
	case -EHOSTUNREACH:
		return pcilend_refuse_fmt(extack, error, "the lender, node %u, has no link to node %u: see 'pcilend link' there",
					  lender, owner);
	case -EOPNOTSUPP:
		return pcilend_refuse_fmt(extack, error, "node %u may not carry DMA to its owner: see its kernel log, and p2p=1",
					  lender);
	case -EXFULL:
		return pcilend_refuse_fmt(extack, error, "an adapter of node %u lets the function not through: see its kernel log",
					  lender);
	case -ENOTCONN:
		return pcilend_refuse(extack, error, "it was taken away: get it anew");
	case -ESTALE:
		return pcilend_refuse(extack, error, "the lease is over: close it, and borrow the function again");
	case -ETIMEDOUT:
	case -ENETDOWN:
		return pcilend_refuse_fmt(extack, error, "the function's lender, node %u, does not answer: see 'pcilend link'",
					  lender);
	case -ENOSPC:
		return pcilend_refuse_fmt(extack, error, "node %u has no room for another mapping, or connection: unmap some",
					  lender);
	default:
		return pcilend_refuse_fmt(extack, error, "the lender, node %u, can't map it (error %d): see its kernel log",
					  lender, error);
	}
}

/* No lock of the source is held while the lender is waited for; what was taken meanwhile ends. */
static int target_map_segment(struct remote_target *target, bool read_only,
			      struct netlink_ext_ack *extack)
{
	int err = target_ask(target, PCILEND_TARGET_ON |
				     (read_only ? PCILEND_TARGET_READ_ONLY : 0));

	if (err == -ETIMEDOUT || err == -ENETDOWN)
		target_queue_end(target);
	if (err)
		return target_refuse(target, err, extack);
	err = pcilend_source_begin(target->source);
	if (err) {
		target_ask(target, 0);
		return target_refuse(target, err, extack);
	}
	pcilend_source_hook(target->source, &target->hook);
	pcilend_source_end(target->source);
	return 0;
}

/*
 * No hook: with the lease of the other function its lender takes it from this one. By its lease it
 * is that BAR still, and not one that somebody else has in its place of the window.
 */
static int target_map_bar(struct remote_target *target, const struct pcilend_memory *memory,
			  struct netlink_ext_ack *extack)
{
	const struct pcilend_far_bar *far = &memory->far;

	if (far->function == target->remote->id)
		return pcilend_refuse(extack, -EINVAL, "a function does not reach its own BARs by DMA: map another one's");
	if (remote_find_bar(memory->phys, memory->size, &target->bar) ||
	    target->bar.to->pub.id != far->function || target->bar.lease != far->lease)
		return pcilend_refuse_fmt(extack, -ENOTCONN, "the lease of %x, whose BAR it is, is over: borrow it again",
					  far->function);
	return remote_reach_bar_of_lease(to_remote(target->remote), &target->bar,
					 target->address - far->offset, extack);
}

/* Does this host let DMA of the adapter's peer through to that BAR? NULL: it is memory. */
static int target_check_route(struct remote_target *target, struct pci_dev *behind,
			      struct netlink_ext_ack *extack)
{
	struct pcilend_link *link;
	bool known;

	if (!behind)
		return 0;
	link = remote_link(to_remote(target->remote));
	known = !pcilend_link_is_adapter(behind) && pcilend_route_is_known(link->pdev, behind);
	pcilend_link_put(link);
	if (known)
		return 0;
	return pcilend_refuse_fmt(extack, -EOPNOTSUPP, "is DMA of the adapter routed to %s? If it is, load pcilend with p2p=1",
				  pci_name(behind));
}

static int target_map_here(struct remote_target *target, const struct pcilend_memory *memory,
			   bool read_only, struct netlink_ext_ack *extack)
{
	int err = target_check_route(target, memory->behind, extack);

	if (err)
		return err;
	err = pcilend_source_begin(target->source);
	if (err)
		return target_refuse(target, err, extack);
	err = pcilend_memory_map(memory, target->domain, target->address,
				 IOMMU_READ | (read_only ? 0 : IOMMU_WRITE));
	if (!err)
		pcilend_source_hook(target->source, &target->hook);
	pcilend_source_end(target->source);
	return err ? pcilend_refuse_fmt(extack, err, "it can't be mapped for the function (error %d): see the kernel log",
					err) : 0;
}

int remote_target_map(struct list_head *targets, const struct remote_holder *holder,
		      const struct pcilend_memory *memory, bool read_only, u64 address,
		      struct netlink_ext_ack *extack)
{
	struct remote_target *target = target_alloc(holder, memory, address);
	int err;

	if (!target)
		return -ENOMEM;
	if (memory->far.function)
		err = target_map_bar(target, memory, extack);
	else
		err = target->domain ? target_map_here(target, memory, read_only, extack) :
				       target_map_segment(target, read_only, extack);
	if (err)
		target_put(target);
	else
		list_add_tail(&target->node, targets);
	return err;
}

/*
 * On return it is not mapped here, and nobody takes it away any more: its work item would unmap
 * what the process maps at that address next. It takes no lock of a caller's.
 */
static void target_close(struct remote_target *target)
{
	pcilend_source_unhook(target->source, &target->hook);
	if (cancel_work_sync(&target->work))
		target_put(target);
	list_del(&target->node);
	if (target->domain && !target->taken)
		WARN_ON(iommu_unmap(target->domain, target->address, target->size) !=
			target->size);
}

bool remote_target_unmap(struct list_head *targets, u64 address)
{
	struct remote_target *target;

	list_for_each_entry(target, targets, node) {
		if (target->address != address)
			continue;
		target_close(target);
		if (target->bar.to)
			remote_unreach_bar(to_remote(target->remote), &target->bar,
					   address - target->offset);
		else if (!target->domain)
			target_ask(target, 0);
		target_put(target);
		return true;
	}
	return false;
}

void remote_target_end(struct list_head *targets)
{
	struct remote_target *target, *next;

	list_for_each_entry_safe(target, next, targets, node) {
		target_close(target);
		target_put(target);
	}
}
