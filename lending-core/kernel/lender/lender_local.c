// SPDX-License-Identifier: GPL-2.0-only
/*
 * A process of this host leases one of its functions: no link, and no messages. The function is in
 * a private domain as if it were lent, with memory of the process in the place of a window: in a
 * slice of device addresses (slice.h), each segment mapped by itself. All else is as for peers: the
 * lease's state machine, its limits, recall, fence and reset, audit and events.
 *
 * It does DMA, its interrupts included, from the first segment or interrupt on. After a reset that
 * the process did not ask for it does none before the next: what it was programmed with is gone.
 *
 * The process closes its lease fd in any state of the lease. What is kept for it here ends with
 * that; fn->local points to it from the grant to the fence.
 */

#include <linux/cred.h>
#include <linux/iommu.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "base/trace.h"
#include "lease/lease.h"
#include "lender/lender.h"
#include "pcilend/slice.h"

struct lender_local {
	struct pcilend_function *fn;	/* with a reference */
	struct pcilend_use *use;	/* with a reference */
	u32 lease;
	struct pcilend_vectors vectors;	/* fn->lock */
};

/* Does it hold the function still? */
static int lender_local_check(struct lender_local *local, struct netlink_ext_ack *extack)
{
	lockdep_assert_held(&local->fn->lock);
	if (local->fn->local == local)
		return 0;
	return pcilend_refuse(extack, -ESTALE, "the lease is over: close it, and borrow the function again");
}

static int lender_local_bar(void *holder, u32 bar, u64 offset, u64 size,
			    struct pcilend_use_place *place, struct netlink_ext_ack *extack)
{
	struct lender_local *local = holder;

	guard(mutex)(&local->fn->lock);
	place->behind = local->fn->pdev;
	return lender_local_check(local, extack) ?:
	       pcilend_use_place_bar(place->behind, bar, offset, size, &place->phys, extack);
}

/* For any process of this host that may use the function, which does DMA from now on. */
int pcilend_local_map(struct pcilend_function *fn, const struct pcilend_memory *memory,
		      bool read_only, u64 address, struct netlink_ext_ack *extack)
{
	struct pcilend_map_entry *entry;
	int err;

	lockdep_assert_held(&fn->lock);
	err = pcilend_device_map_memory(fn, address, memory,
					IOMMU_READ | (read_only ? 0 : IOMMU_WRITE), &entry);
	switch (err) {
	case 0:
		pcilend_device_bus_master(fn, true);
		return 0;
	case -ENOSPC:
		return pcilend_refuse(extack, err, "page tables for what this host's processes have mapped are used up: unmap something, or use huge pages");
	case -ENOTCONN:
		return pcilend_refuse(extack, err, "it was taken away: get it anew");
	case -EHOSTUNREACH:
		return pcilend_refuse(extack, err, "the link to its owner is lost: see 'pcilend link'");
	case -EINVAL:
		return pcilend_refuse(extack, err, "a function does not reach its own BARs by DMA: map another one's");
	case -EXFULL:
		return pcilend_refuse(extack, err, "the adapter to its owner lets nothing of this function through: see the kernel log");
	case -EOPNOTSUPP:
		return pcilend_refuse_fmt(extack, err, "the function may do no DMA to %s: see the kernel log, and p2p=1",
					  memory->behind ? pci_name(memory->behind) : "memory");
	default:
		return pcilend_refuse_fmt(extack, err, "the IOMMU does not map it (error %d)", err);
	}
}

static int lender_local_map(void *holder, const struct pcilend_memory *memory, bool read_only,
			    u64 address, struct netlink_ext_ack *extack)
{
	struct lender_local *local = holder;
	int err;

	guard(mutex)(&local->fn->lock);
	err = lender_local_check(local, extack);
	if (!err && pcilend_share_manager_may_map(local->fn))
		err = pcilend_refuse_fmt(extack, -ENOSPC, "a manager has at most %d pieces mapped: map fewer, larger ones",
					 PCILEND_MAPS - PCILEND_CLIENT_MAPS);
	return err ?: pcilend_local_map(local->fn, memory, read_only, address, extack);
}

static void lender_local_unmap(void *holder, u64 address, u64 size)
{
	struct lender_local *local = holder;

	guard(mutex)(&local->fn->lock);
	if (local->fn->local == local)
		pcilend_device_unmap(local->fn, address, size);
}

/* The same of an interrupt, by the function's number of it; @event is taken over on success. */
int pcilend_local_interrupt(struct pcilend_function *fn, u32 vector, struct eventfd_ctx *event,
			    struct netlink_ext_ack *extack)
{
	int err;

	lockdep_assert_held(&fn->lock);
	if (!fn->local)
		return pcilend_refuse(extack, -EOPNOTSUPP, "its interrupts are those of the host that has borrowed it: poll instead");
	/* Their registers don't decode then. */
	if (event && fn->hidden)
		return pcilend_refuse(extack, -EAGAIN, "it is being reset: try again");
	err = pcilend_vectors_set(&fn->local->vectors, fn->pdev, vector, event, extack);
	if (!err && event)
		pcilend_device_bus_master(fn, true);
	return err;
}

static int lender_local_interrupt(void *holder, u32 vector, struct eventfd_ctx *event,
				  struct netlink_ext_ack *extack)
{
	struct lender_local *local = holder;
	int err;

	guard(mutex)(&local->fn->lock);
	err = lender_local_check(local, extack);
	if (!err && pcilend_share_has_vector(local->fn, vector))
		err = pcilend_refuse(extack, -EBUSY, "that interrupt is a client's: the manager has number 0, and those behind the clients'");
	return err ?: pcilend_local_interrupt(local->fn, vector, event, extack);
}

static int lender_local_share(void *holder, const struct pcilend_share_policy *policy,
			      const struct pcilend_access *nodes, struct netlink_ext_ack *extack)
{
	struct lender_local *local = holder;
	const char *why = NULL;
	int err;

	guard(mutex)(&local->fn->lock);
	err = lender_local_check(local, extack);
	if (err)
		return err;
	err = pcilend_share_set(local->fn, policy, nodes, &why);
	pcilend_audit_admin(from_kuid(&init_user_ns, current_uid()), "share", local->fn->id, 0,
			    err);
	return pcilend_refuse(extack, err, why);
}

static int lender_local_cleared(void *holder, u32 client, u32 round,
				struct netlink_ext_ack *extack)
{
	struct lender_local *local = holder;
	const char *why = NULL;
	int err;

	guard(mutex)(&local->fn->lock);
	err = lender_local_check(local, extack);
	if (err)
		return err;
	err = pcilend_share_cleared(local->fn, client, round, &why);
	if (err)
		pcilend_audit_admin(from_kuid(&init_user_ns, current_uid()), "cleared",
				    local->fn->id, 0, err);
	return pcilend_refuse(extack, err, why);
}

static int lender_local_send_mail(void *holder, u32 client, const struct pcilend_mail_text *text,
				  struct netlink_ext_ack *extack)
{
	struct lender_local *local = holder;
	const char *why = NULL;
	int err;

	guard(mutex)(&local->fn->lock);
	err = lender_local_check(local, extack);
	if (err)
		return err;
	err = pcilend_share_answer(local->fn, client, text, &why);
	return pcilend_refuse(extack, err, why);
}

static int lender_local_next_mail(void *holder, u32 *client, struct pcilend_mail_text *text,
				  struct netlink_ext_ack *extack)
{
	struct lender_local *local = holder;
	int err;

	guard(mutex)(&local->fn->lock);
	err = lender_local_check(local, extack);
	if (!err)
		*client = pcilend_share_next_mail(local->fn, text);
	return err;
}

/* Waits for the reset, so that whoever closes the lease can have it again. */
static void lender_local_end(void *holder)
{
	struct lender_local *local = holder;
	struct pcilend_function *fn = local->fn;
	struct pcilend_lease_event event = {
		.type = PCILEND_LEASE_RETURN,
		.node = pcilend_node,
		.boot = pcilend_boot,
		.lease = local->lease,
	};
	int err;

	mutex_lock(&fn->lock);
	err = pcilend_function_apply(fn, &event, NULL);
	if (fn->todo)
		pcilend_function_queue_settle(fn);
	mutex_unlock(&fn->lock);
	if (!err)
		pcilend_audit_admin(from_kuid(&init_user_ns, current_uid()), "return", fn->id, 0,
				    err);
	flush_work(&fn->settle);
	pcilend_use_end(local->use);
	pcilend_use_put(local->use);
	pcilend_function_put(fn);
	kfree(local);
}

static const struct pcilend_use_ops lender_local_ops = {
	.bar = lender_local_bar,
	.map = lender_local_map,
	.unmap = lender_local_unmap,
	.interrupt = lender_local_interrupt,
	.share = lender_local_share,
	.cleared = lender_local_cleared,
	.mail_send = lender_local_send_mail,
	.mail_next = lender_local_next_mail,
	.end = lender_local_end,
};

/* The lease is granted; anything that fails from here on ends it again. */
static int lender_local_lend(struct lender_local *local, u64 bytes, struct netlink_ext_ack *extack)
{
	struct pcilend_function *fn = local->fn;
	int err;

	lockdep_assert_held(&fn->lock);
	trace_pcilend_lease_begin(fn->id, fn->lease.number, pcilend_node, pcilend_node, "lent");
	err = pcilend_device_lend_here(fn, local, bytes);
	if (err == -ENOSPC)
		return pcilend_refuse_fmt(extack, err, "the IOMMU has no room for a slice of %llu KiB: lease a smaller one",
					  bytes >> 10);
	if (err)
		return pcilend_refuse_fmt(extack, err, "it can't be leased (error %d): see the kernel log",
					  err);
	pcilend_use_set_slice(local->use, fn->slice, bytes);
	pcilend_device_open(fn);
	return 0;
}

static int lender_local_grant(struct lender_local *local, struct netlink_ext_ack *extack)
{
	const struct pcilend_set_holder holder = {
		.node = pcilend_node,
		.boot = pcilend_boot,
		.link = U32_MAX,	/* none */
	};
	struct pcilend_lease_event event = {
		.type = PCILEND_LEASE_BORROW,
		.node = pcilend_node,
		.boot = pcilend_boot,
		.lease_ms = pcilend_lease_ms,
		.now = pcilend_now(),
	};
	struct pcilend_function *fn = local->fn;
	const char *why = NULL;
	int err;

	lockdep_assert_held(&fn->lock);
	if (pcilend_function_is_direct(fn))
		return pcilend_refuse(extack, -EOPNOTSUPP, "it is lent without an IOMMU, which would give the process all memory: make it available without --direct");
	err = pcilend_function_grant(fn, &event, &holder, &why);
	if (!err)
		local->lease = fn->lease.number;
	return pcilend_refuse(extack, err, why);
}

static int lender_local_lease(struct lender_local *local, u64 bytes,
			      struct pcilend_report *report, struct netlink_ext_ack *extack)
{
	struct pcilend_function *fn = local->fn;
	int err;

	/* Given back when the lease is settled: see pcilend_function_settle(). */
	if (!try_module_get(THIS_MODULE))
		return -EAGAIN;
	guard(mutex)(&fn->lock);
	err = lender_local_grant(local, extack);
	if (err) {
		module_put(THIS_MODULE);
		return err;
	}
	pcilend_use_begin(local->use, &lender_local_ops, local);
	err = lender_local_lend(local, bytes, extack);
	if (!err) {
		pcilend_function_announce(fn);
		pcilend_function_report(fn, report);
	}
	return err;
}

/**
 * pcilend_lender_lease - an available function of this host for the calling process
 * @owner: for people
 * @bytes: of its slice, what the process can have mapped for it at once
 * @file: set to the lease fd; the caller's to install or to put, which ends the lease
 */
int pcilend_lender_lease(u32 id, const char *owner, u64 bytes, struct file **file,
			 struct pcilend_report *report, struct netlink_ext_ack *extack)
{
	struct pcilend_function *fn = pcilend_function_find(id);
	struct lender_local *local;
	struct pcilend_use *use;
	int err;

	if (!fn)
		return pcilend_refuse(extack, -ENODEV, "this host has no function with that id: see 'pcilend list'");
	err = -EINVAL;
	if (!pcilend_slice_size_valid(bytes)) {
		NL_SET_ERR_MSG(extack, "a slice is a power of two from 4 KiB to 64 GiB: give such a size");
		goto err_fn;
	}
	local = kzalloc(sizeof(*local), GFP_KERNEL_ACCOUNT);
	err = -ENOMEM;
	if (!local)
		goto err_fn;
	use = pcilend_use_create(owner, file);
	err = PTR_ERR_OR_ZERO(use);
	if (err)
		goto err_local;
	local->fn = fn;
	local->use = pcilend_use_get(use);
	err = lender_local_lease(local, bytes, report, extack);
	if (!err)
		return 0;
	/* Once it is granted the file's end ends it, and what was made for it. */
	if (use->holder) {
		fput(*file);
		return err;
	}
	pcilend_use_put(use);
	fput(*file);
err_local:
	kfree(local);
err_fn:
	pcilend_function_put(fn);
	return err;
}

/* What follows happens to a function that is leased so; of others these are no-ops. */

/* No interrupt from now on. */
void pcilend_local_quiet(struct pcilend_function *fn)
{
	lockdep_assert_held(&fn->lock);
	if (fn->local)
		pcilend_vectors_end(&fn->local->vectors);
}

/* No way in: its process finds all-ones. */
void pcilend_local_over(struct pcilend_function *fn)
{
	lockdep_assert_held(&fn->lock);
	if (fn->local)
		pcilend_use_over(fn->local->use);
}

void pcilend_local_hide(struct pcilend_function *fn)
{
	lockdep_assert_held(&fn->lock);
	if (fn->local)
		pcilend_use_hide(fn->local->use);
}

void pcilend_local_show(struct pcilend_function *fn)
{
	lockdep_assert_held(&fn->lock);
	if (fn->local)
		pcilend_use_show(fn->local->use);
}

void pcilend_local_tell_recall(struct pcilend_function *fn)
{
	lockdep_assert_held(&fn->lock);
	if (fn->local)
		pcilend_use_recalled(fn->local->use);
}

void pcilend_local_tell_reset(struct pcilend_function *fn)
{
	lockdep_assert_held(&fn->lock);
	if (fn->local)
		pcilend_use_disturbed(fn->local->use);
}

/* Its process is the manager of a shared function. */
void pcilend_local_tell_client(struct pcilend_function *fn,
			       const struct pcilend_client_notice *notice)
{
	lockdep_assert_held(&fn->lock);
	if (fn->local)
		pcilend_use_tell_client(fn->local->use, notice);
}

void pcilend_local_tell_mail(struct pcilend_function *fn, bool there)
{
	lockdep_assert_held(&fn->lock);
	if (fn->local)
		pcilend_use_set_mail(fn->local->use, there);
}

/* NULL: its interrupts are its borrower's. */
struct pcilend_vectors *pcilend_local_vectors(struct pcilend_function *fn)
{
	lockdep_assert_held(&fn->lock);
	return fn->local ? &fn->local->vectors : NULL;
}

void pcilend_local_report(struct pcilend_function *fn, struct pcilend_report *report)
{
	lockdep_assert_held(&fn->lock);
	if (!fn->local)
		return;
	strscpy(report->frontend, "lease", sizeof(report->frontend));
	strscpy(report->owner, fn->local->use->owner, sizeof(report->owner));
}
