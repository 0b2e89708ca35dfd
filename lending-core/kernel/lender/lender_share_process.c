// SPDX-License-Identifier: GPL-2.0-only
/* Processes of this host that are clients of a shared function: what their lease fds can do. */

#include <linux/cred.h>
#include <linux/eventfd.h>
#include <linux/slab.h>

#include "lender/lender_share.h"

static const char share_over[] = "the lease is over: close it, and join again";

/* NULL: its lease is over, which @extack says. */
static const struct pcilend_share_client *
share_process_check(struct lender_client *client, struct netlink_ext_ack *extack)
{
	struct pcilend_shared *shared = client->fn->shared;

	lockdep_assert_held(&client->fn->lock);
	if (shared && !pcilend_share_check(&shared->share, pcilend_node, pcilend_boot,
					   client->lease, NULL))
		return pcilend_share_find(&shared->share, client->lease);
	pcilend_refuse(extack, -ESTALE, share_over);
	return NULL;
}

static bool share_process_may_have(const struct pcilend_share *share,
				   const struct pcilend_share_client *client, u32 bar, u64 offset,
				   u64 size)
{
	u32 i;

	for (i = 0; i < share->policy.ranges; i++) {
		struct pcilend_share_range range = pcilend_share_own(share, client, i);
		u64 start = range.page * PCILEND_PAGE;
		u64 bytes = range.pages * PCILEND_PAGE;

		if (range.bar == bar && offset >= start && size <= bytes &&
		    offset - start <= bytes - size)
			return true;
	}
	return false;
}

static int share_process_bar(void *holder, u32 bar, u64 offset, u64 size,
			     struct pcilend_use_place *place, struct netlink_ext_ack *extack)
{
	struct lender_client *ours = holder;
	const struct pcilend_share_client *client;

	guard(mutex)(&ours->fn->lock);
	client = share_process_check(ours, extack);
	if (!client)
		return -ESTALE;
	if (!share_process_may_have(&ours->fn->shared->share, client, bar, offset, size))
		return pcilend_refuse(extack, -EACCES, "its manager gives clients other pages of BARs: ask for those that join has answered");
	place->behind = ours->fn->pdev;
	return pcilend_use_place_bar(place->behind, bar, offset, size, &place->phys, extack);
}

/* Ranges that are mapped of clients; and, of them all, that are kept for others than @except. */
static u32 share_process_maps(struct pcilend_function *fn, const struct lender_client *except,
			      u32 *kept)
{
	u32 most = fn->shared->share.policy.clients, each = PCILEND_CLIENT_MAPS / most;
	struct lender_client *client;
	u32 used = 0, there = 0;

	lockdep_assert_held(&fn->lock);
	*kept = 0;
	list_for_each_entry(client, &fn->shared->clients, node) {
		/* Of a peer's the slice is one. */
		used += client->link ? 1 : client->maps;
		there++;
		if (client != except && !client->link && client->maps < each)
			*kept += each - client->maps;
	}
	*kept += (most - min(there, most)) * each;
	return used;
}

/* Each has as many as all can have, and more while others need none. */
static int share_process_may_map(struct lender_client *ours, struct netlink_ext_ack *extack)
{
	u32 most = ours->fn->shared->share.policy.clients, kept;

	if (share_process_maps(ours->fn, ours, &kept) + kept < PCILEND_CLIENT_MAPS)
		return 0;
	return pcilend_refuse_fmt(extack, -ENOSPC, "%u pieces are mapped, %d are kept for each client: map fewer, larger ones",
				  ours->maps, PCILEND_CLIENT_MAPS / most);
}

/* Has the manager as many as leave those of clients alone? */
int pcilend_share_manager_may_map(struct pcilend_function *fn)
{
	u32 mapped = 0, kept;
	int i;

	if (!pcilend_share_is_on(fn))
		return 0;
	for (i = 0; i < PCILEND_MAPS; i++)
		mapped += !!fn->map[i].size;
	return mapped - share_process_maps(fn, NULL, &kept) < PCILEND_MAPS - PCILEND_CLIENT_MAPS ?
	       0 : -ENOSPC;
}

static int share_process_map(void *holder, const struct pcilend_memory *memory, bool read_only,
			     u64 address, struct netlink_ext_ack *extack)
{
	struct lender_client *ours = holder;
	int err;

	guard(mutex)(&ours->fn->lock);
	if (!share_process_check(ours, extack))
		return -ESTALE;
	err = share_process_may_map(ours, extack) ?:
	      pcilend_local_map(ours->fn, memory, read_only, address, extack);
	if (!err)
		ours->maps++;
	return err;
}

/*
 * Whatever becomes of its lease: until its manager has confirmed the end, or the function is
 * fenced, the function reaches what is mapped of it.
 */
static void share_process_unmap_one(void *holder, u64 address, u64 size)
{
	struct lender_client *ours = holder;
	const struct pcilend_shared *shared;

	guard(mutex)(&ours->fn->lock);
	shared = ours->fn->shared;
	if (shared && pcilend_share_find(&shared->share, ours->lease) &&
	    !pcilend_device_unmap(ours->fn, address, size))
		ours->maps--;
}

static int share_process_interrupt(void *holder, u32 vector, struct eventfd_ctx *event,
				   struct netlink_ext_ack *extack)
{
	struct lender_client *ours = holder;
	const struct pcilend_share_client *client;

	guard(mutex)(&ours->fn->lock);
	client = share_process_check(ours, extack);
	if (!client)
		return -ESTALE;
	if (vector >= client->wish.vectors)
		return pcilend_refuse_fmt(extack, -ERANGE, "it has joined with %u interrupts: name one from 0 on",
					  client->wish.vectors);
	vector += pcilend_share_vector_of(&ours->fn->shared->share, client);
	return pcilend_local_interrupt(ours->fn, vector, event, extack);
}

static int share_process_send_mail(void *holder, u32 client, const struct pcilend_mail_text *text,
				   struct netlink_ext_ack *extack)
{
	struct lender_client *ours = holder;
	const char *why = NULL;
	int err;

	guard(mutex)(&ours->fn->lock);
	if (!share_process_check(ours, extack))
		return -ESTALE;
	if (client)
		return pcilend_refuse(extack, -EINVAL, pcilend_use_mail_of_client);
	err = pcilend_share_ask(ours, text, &why);
	return pcilend_refuse(extack, err, why);
}

static int share_process_next_mail(void *holder, u32 *client, struct pcilend_mail_text *text,
				   struct netlink_ext_ack *extack)
{
	struct lender_client *ours = holder;

	guard(mutex)(&ours->fn->lock);
	if (!share_process_check(ours, extack))
		return -ESTALE;
	pcilend_share_take_answer(ours, text);
	return 0;
}

/* Its process has closed it; what it had mapped stays until the manager has confirmed. */
static void share_process_end(void *holder)
{
	struct lender_client *ours = holder;
	struct pcilend_function *fn = ours->fn;
	struct pcilend_share_event event = {
		.type = PCILEND_SHARE_RETURN,
		.node = pcilend_node,
		.boot = pcilend_boot,
		.lease = ours->lease,
	};
	int err = -ESTALE;

	scoped_guard(mutex, &fn->lock) {
		if (fn->shared)
			err = pcilend_share_step(fn, &event, NULL, NULL);
	}
	if (!err)
		pcilend_audit_admin(from_kuid(&init_user_ns, current_uid()), "leave", fn->id, 0,
				    err);
	pcilend_share_put_client(ours);
}

static const struct pcilend_use_ops share_process_ops = {
	.bar = share_process_bar,
	.map = share_process_map,
	.unmap = share_process_unmap_one,
	.interrupt = share_process_interrupt,
	.mail_send = share_process_send_mail,
	.mail_next = share_process_next_mail,
	.end = share_process_end,
};

/* On success it has the client's file; else nothing has come of it. */
static int share_process_join(struct lender_client *ours, const struct pcilend_share_wish *wish,
			      struct pcilend_joined *joined, struct netlink_ext_ack *extack)
{
	struct pcilend_function *fn = ours->fn;
	struct pcilend_share_event event = {
		.type = PCILEND_SHARE_JOIN,
		.node = pcilend_node,
		.boot = pcilend_boot,
		.wish = *wish,
	};
	const struct pcilend_share_client *client;
	const char *why = NULL;
	int err;
	u32 i;

	lockdep_assert_held(&fn->lock);
	if (!fn->shared)
		return pcilend_refuse(extack, -EAGAIN, "it is not shared: who has borrowed it admits clients by a policy first");
	if (fn->hidden)
		return pcilend_refuse(extack, -EAGAIN, "it is being reset: try again");
	err = pcilend_share_step(fn, &event, ours, &why);
	if (err)
		return pcilend_refuse(extack, err, why);
	/* Nothing of it is waited for. */
	client = pcilend_share_find(&fn->shared->share, ours->lease);
	pcilend_share_describe(&fn->shared->share, client, &joined->client);
	joined->ranges = fn->shared->share.policy.ranges;
	for (i = 0; i < joined->ranges; i++)
		joined->range[i] = pcilend_share_own(&fn->shared->share, client, i);
	pcilend_use_begin(ours->use, &share_process_ops, ours);
	pcilend_use_set_slice(ours->use, client->slice, wish->slice_bytes);
	return 0;
}

/**
 * pcilend_lender_join - the calling process becomes a client of a shared function of this host
 * @owner, @file: as for pcilend_lender_lease()
 * @joined: set: what it has
 */
int pcilend_lender_join(u32 id, const char *owner, const struct pcilend_share_wish *wish,
			struct file **file, struct pcilend_joined *joined,
			struct pcilend_report *report, struct netlink_ext_ack *extack)
{
	struct pcilend_function *fn = pcilend_function_find(id);
	struct lender_client *ours;
	int err;

	if (!fn)
		return pcilend_refuse(extack, -ENODEV, "this host has no function with that id: see 'pcilend list'");
	ours = kzalloc(sizeof(*ours), GFP_KERNEL_ACCOUNT);
	err = -ENOMEM;
	if (!ours)
		goto err_fn;
	ours->use = pcilend_use_create(owner, file);
	err = PTR_ERR_OR_ZERO(ours->use);
	if (err)
		goto err_client;
	pcilend_use_get(ours->use);
	pcilend_share_init_client(ours, fn);
	scoped_guard(mutex, &fn->lock) {
		err = share_process_join(ours, wish, joined, extack);
		if (!err)
			pcilend_function_report(fn, report);
	}
	if (err) {
		fput(*file);
		pcilend_share_put_client(ours);
	}
	goto err_fn;

err_client:
	kfree(ours);
err_fn:
	pcilend_function_put(fn);
	return err;
}
