// SPDX-License-Identifier: GPL-2.0-only
/*
 * Clients of a shared function on other hosts. Each has places of its own in the aperture for its
 * pages of BARs, so that they are closed for one process and stay open for another of its host.
 * The function's bus mastering stays on when the link of a client is lost, as it is the others',
 * too (docs/decisions/0027).
 */

#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/wait.h>

#include "lender/lender_share.h"

static DECLARE_WAIT_QUEUE_HEAD(share_peer_idle);	/* a client of a peer is over */

static u64 share_peer_range_bytes(const struct pcilend_share_range *range)
{
	return range->pages * PCILEND_PAGE;
}

static phys_addr_t share_peer_range_phys(struct pcilend_function *fn,
					 const struct pcilend_share_range *range)
{
	return pci_resource_start(fn->pdev, range->bar) + range->page * PCILEND_PAGE;
}

static int share_peer_export(struct lender_client *client,
			     const struct pcilend_share_client *core)
{
	struct pcilend_function *fn = client->fn;
	const struct pcilend_share *share = &fn->shared->share;
	u32 i;
	int err;

	for (i = 0; i < share->policy.ranges; i++) {
		struct pcilend_share_range range = pcilend_share_own(share, core, i);

		err = pcilend_aperture_export(client->link, share_peer_range_phys(fn, &range),
					      share_peer_range_bytes(&range), PCILEND_PROT_BAR,
					      &client->export[i].iova);
		if (err)
			return err;
		client->export[i].size = share_peer_range_bytes(&range);
	}
	return 0;
}

static int share_peer_map_slice(struct lender_client *client,
				const struct pcilend_share_client *core)
{
	u64 size = core->wish.slice_bytes;
	phys_addr_t phys;

	/* In large pages where it can be: there are page tables for so many small ones only. */
	if (!IS_ALIGNED(client->slice_offset, min_t(u64, size, SZ_2M)))
		return -ERANGE;
	return pcilend_aperture_peer(client->link, client->slice_window, client->slice_offset,
				     size, &phys) ?:
	       pcilend_device_map(client->fn, core->slice, phys, size);
}

/* The first @count. */
static void share_peer_hide_exports(struct lender_client *client, u32 count)
{
	u32 i;

	for (i = 0; i < count; i++)
		if (client->export[i].size)
			pcilend_aperture_hide(client->link, client->export[i].iova,
					      client->export[i].size);
}

/* Of what is mapped of a client that can't be. */
static void share_peer_undo(struct lender_client *client, const struct pcilend_share_client *core)
{
	u32 i;

	share_peer_hide_exports(client, PCILEND_SHARE_RANGES);
	for (i = 0; i < PCILEND_SHARE_RANGES; i++)
		if (client->export[i].size)
			pcilend_aperture_export_put(client->link, client->export[i].iova,
						    client->export[i].size);
	memset(client->export, 0, sizeof(client->export));
	client->closed = true;
	client->returned = true;
	pcilend_device_unmap(client->fn, core->slice, core->wish.slice_bytes);
}

/* Its slice and its pages of BARs; on failure none of it. */
int pcilend_share_peer_map(struct lender_client *client)
{
	struct pcilend_function *fn = client->fn;
	const struct pcilend_share_client *core =
		pcilend_share_find(&fn->shared->share, client->lease);

	lockdep_assert_held(&fn->lock);
	if (!client->link)
		return 0;
	client->error = pcilend_requesters_add(client->link, fn->pdev);
	if (client->error) {
		/* It has been given nothing that it could return. */
		client->returned = true;
		return client->error;
	}
	client->requester = true;
	client->error = share_peer_map_slice(client, core) ?: share_peer_export(client, core);
	if (client->error)
		share_peer_undo(client, core);
	else
		pcilend_device_bus_master(fn, true);
	return client->error;
}

/* Nobody reaches its pages for now: the function is being reset. */
void pcilend_share_peer_hide(struct lender_client *client)
{
	if (!client->link || client->hidden || client->closed)
		return;
	client->hidden = true;
	share_peer_hide_exports(client, PCILEND_SHARE_RANGES);
}

/* If the IOMMU does not map all of it again it stays hidden, as long as the client lives. */
void pcilend_share_peer_show(struct lender_client *client)
{
	struct pcilend_function *fn = client->fn;
	const struct pcilend_share *share = &fn->shared->share;
	const struct pcilend_share_client *core = pcilend_share_find(share, client->lease);
	u32 i;

	if (!client->link || !client->hidden || client->closed || !core)
		return;
	for (i = 0; i < share->policy.ranges; i++) {
		struct pcilend_share_range range = pcilend_share_own(share, core, i);

		if (!pcilend_aperture_show(client->link, client->export[i].iova,
					   share_peer_range_phys(fn, &range),
					   client->export[i].size, PCILEND_PROT_BAR))
			continue;
		pci_warn(fn->pdev, "node %u does not get its pages back after a reset\n",
			 client->peer);
		share_peer_hide_exports(client, i);
		return;
	}
	client->hidden = false;
}

/* It can ring nothing from now on. */
void pcilend_share_peer_close(struct lender_client *client)
{
	if (!client->link || client->closed)
		return;
	if (!client->hidden)
		share_peer_hide_exports(client, PCILEND_SHARE_RANGES);
	client->closed = true;
}

static void share_peer_leave_aperture(struct lender_client *client,
				      enum pcilend_lost_reason reason)
{
	u32 i;

	if (!client->returned) {
		pcilend_withdrawn_keep(client->withdrawn, client->link, client->fn->id,
				       client->peer, client->lease, reason, client->export,
				       PCILEND_SHARE_RANGES);
		client->withdrawn = NULL;
		return;
	}
	for (i = 0; i < PCILEND_SHARE_RANGES; i++)
		if (client->export[i].size)
			pcilend_aperture_export_put(client->link, client->export[i].iova,
						    client->export[i].size);
}

/* Nothing is mapped for it any more: its host is told, if that is there. */
void pcilend_share_peer_over(struct lender_client *client, enum pcilend_lost_reason reason)
{
	const struct pcilend_msg_lease msg = {
		.id = cpu_to_le32(client->fn->id),
		.lease = cpu_to_le32(client->lease),
		.reason = cpu_to_le32(reason),
	};

	if (!client->link)
		return;
	pcilend_share_peer_close(client);
	if (client->requester)
		pcilend_requesters_remove(client->link, client->fn->pdev);
	client->requester = false;
	if (reason && pcilend_link_is_peer(client->link, client->peer, client->boot))
		pcilend_channel_notify(client->link, PCILEND_MSG_LOST, &msg);
	if (client->waiting.link) {
		pcilend_channel_answer(client->waiting.link, client->waiting.session,
				       PCILEND_MSG_RETURN, client->waiting.request,
				       PCILEND_STATUS_OK, NULL);
		pcilend_link_put(client->waiting.link);
		client->waiting.link = NULL;
	}
	share_peer_leave_aperture(client, reason);
	memset(client->export, 0, sizeof(client->export));
	atomic_dec(&client->link->leases);
	wake_up_all(&share_peer_idle);
}

void pcilend_share_peer_free(struct lender_client *client)
{
	kfree(client->withdrawn);
	pcilend_link_put(client->link);
}

/* WAS_RESET, READMITTED */
void pcilend_share_peer_tell(struct lender_client *client, u16 type)
{
	const struct pcilend_msg_lease msg = {
		.id = cpu_to_le32(client->fn->id),
		.lease = cpu_to_le32(client->lease),
	};

	if (client->link)
		pcilend_channel_notify(client->link, type, &msg);
}

/* What it has asked its manager, with the number of the question. */
void pcilend_share_peer_answer(struct lender_client *client, const struct pcilend_mail_text *text)
{
	struct pcilend_msg_mail msg = {
		.id = cpu_to_le32(client->fn->id),
		.lease = cpu_to_le32(client->lease),
		.number = cpu_to_le32(client->mail),
		.bytes = cpu_to_le32(text->bytes),
	};

	memcpy(msg.text, text->text, text->bytes);
	if (client->link)
		pcilend_channel_notify(client->link, PCILEND_MSG_MAILED, &msg);
}

void pcilend_share_peer_recall(struct lender_client *client, u64 left)
{
	const struct pcilend_msg_recall msg = {
		.id = cpu_to_le32(client->fn->id),
		.lease = cpu_to_le32(client->lease),
		.grace_ms = cpu_to_le32(min_t(u64, left, PCILEND_GRACE_MS_MAX)),
	};

	if (client->link)
		pcilend_channel_notify(client->link, PCILEND_MSG_RECALL, &msg);
}

/* Until silence of its host ends its lease; U64_MAX: a process of this host is not silent. */
u64 pcilend_share_peer_left(struct lender_client *client)
{
	const struct pcilend_share_client *core =
		pcilend_share_find(&client->fn->shared->share, client->lease);
	struct pcilend_heartbeat beat;
	u64 silence;

	lockdep_assert_held(&client->fn->lock);
	if (!client->link || !core || core->state > PCILEND_CLIENT_QUARANTINED)
		return U64_MAX;
	pcilend_link_beat(client->link, &beat);
	silence = pcilend_heartbeat_silence(&beat, pcilend_now());
	if (beat.boot != client->boot || silence >= core->wish.lease_ms)
		return 0;
	return core->wish.lease_ms - silence;
}

static void share_peer_place_ranges(struct lender_client *client,
				    const struct pcilend_share_client *core,
				    struct pcilend_msg_joined *out)
{
	const struct pcilend_share *share = &client->fn->shared->share;
	u32 i;

	for (i = 0; i < share->policy.ranges; i++) {
		struct pcilend_share_range range = pcilend_share_own(share, core, i);
		u32 window;
		u64 offset;

		if (pcilend_aperture_locate(client->link, client->export[i].iova,
					    client->export[i].size, &window, &offset))
			continue;
		out->range[i].offset = cpu_to_le64(offset);
		out->range[i].pages = cpu_to_le32(range.pages);
		out->range[i].window = cpu_to_le32(window);
		out->range[i].page = cpu_to_le32(range.page);
		out->range[i].bar = range.bar;
	}
}

/* What the peer is told of its client. */
static int share_peer_describe(struct lender_client *client, struct pcilend_msg_joined *out)
{
	const struct pcilend_share *share = &client->fn->shared->share;
	const struct pcilend_share_client *core = pcilend_share_find(share, client->lease);

	lockdep_assert_held(&client->fn->lock);
	if (!core)
		return client->error ?: -EIO;
	out->id = cpu_to_le32(client->fn->id);
	out->lease = cpu_to_le32(core->lease);
	out->slice = cpu_to_le64(core->slice);
	out->alias = cpu_to_le64(core->alias);
	out->piece = cpu_to_le32(pcilend_share_piece(share, core));
	out->vector = cpu_to_le32(pcilend_share_vector_of(share, core));
	share_peer_place_ranges(client, core, out);
	return 0;
}

/* The client that this JOIN has made before: its host has not got the answer. */
static struct lender_client *share_peer_repeated(struct pcilend_function *fn,
						 struct pcilend_link *link,
						 const struct pcilend_message *msg)
{
	const struct pcilend_msg_join *in = pcilend_message_payload(msg);
	struct lender_client *client;

	lockdep_assert_held(&fn->lock);
	if (!fn->shared)
		return NULL;
	list_for_each_entry(client, &fn->shared->clients, node) {
		if (client->link == link && client->peer == msg->peer &&
		    client->boot == msg->boot &&
		    client->slice_window == le32_to_cpu(in->slice_window) &&
		    client->slice_offset == le64_to_cpu(in->slice_offset))
			return client;
	}
	return NULL;
}

static int share_peer_join(struct lender_client *client, const struct pcilend_msg_join *in,
			   struct pcilend_msg_joined *out)
{
	struct pcilend_function *fn = client->fn;
	struct pcilend_share_event event = {
		.type = PCILEND_SHARE_JOIN,
		.node = client->peer,
		.boot = client->boot,
		.path = pci_domain_nr(client->link->pdev->bus) << 16 |
			pci_dev_id(client->link->pdev),
		.wish = {
			.slice_bytes = le64_to_cpu(in->slice_bytes),
			.near_bytes = le64_to_cpu(in->near_bytes),
			.vectors = le32_to_cpu(in->vectors),
			.lease_ms = min(le32_to_cpu(in->lease_ms), pcilend_max_lease_ms),
		},
	};
	int err;

	lockdep_assert_held(&fn->lock);
	if (!fn->shared)
		return -ECONNREFUSED;
	err = event.wish.vectors ? pcilend_share_vectors_check(fn, client->link) : 0;
	if (err)
		return err;
	atomic_inc(&client->link->leases);
	err = pcilend_share_step(fn, &event, client, NULL);
	if (!err)
		return share_peer_describe(client, out);
	atomic_dec(&client->link->leases);
	/* Which the channel says, too, when it has not asked the function (client_ask_again()). */
	return err == -EAGAIN || err == -EBUSY ? -ECONNREFUSED : err;
}

/*
 * pcilend_share_join - the peer of @link asks to be a client
 *
 * It may ask again, with the same slice: one JOIN makes one client.
 *
 * Return: 0, and @out is what it is told; -EAGAIN: not now; -ECONNREFUSED: it is not shared, is
 * being taken back, or a former boot of the peer has not ended; -ENODEV, -ENOMEM, -EOPNOTSUPP, or
 * as JOIN (share.h).
 */
int pcilend_share_join(struct pcilend_function *fn, struct pcilend_link *link,
		       const struct pcilend_message *msg, struct pcilend_msg_joined *out)
{
	const struct pcilend_msg_join *in = pcilend_message_payload(msg);
	struct lender_client *client;
	int err;

	lockdep_assert_held(&fn->lock);
	client = share_peer_repeated(fn, link, msg);
	if (client)
		return share_peer_describe(client, out);
	/*
	 * Whoever takes the trust away ends the leases afterwards; and while somebody else resets
	 * the function nobody is given its pages.
	 */
	if (!pcilend_link_is_trusted(link) || fn->hidden)
		return -EAGAIN;
	if (!pcilend_lender_grants(fn, msg->peer))
		return -ENODEV;
	client = kzalloc(sizeof(*client), GFP_KERNEL);
	if (!client)
		return -ENOMEM;
	pcilend_share_init_client(client, fn);
	client->link = pcilend_link_get(link);
	client->peer = msg->peer;
	client->boot = msg->boot;
	client->slice_window = le32_to_cpu(in->slice_window);
	client->slice_offset = le64_to_cpu(in->slice_offset);
	client->withdrawn = pcilend_withdrawn_alloc();
	err = client->withdrawn ? share_peer_join(client, in, out) : -ENOMEM;
	/* The machine has a reference of its own. */
	pcilend_share_put_client(client);
	return err;
}

/*
 * pcilend_share_return - the peer of @link returns a client's lease
 *
 * Answered when it is over. Return: false: no client has it, or none any more.
 */
bool pcilend_share_return(struct pcilend_function *fn, struct pcilend_link *link,
			  const struct pcilend_message *msg, u32 lease)
{
	struct lender_client *client = fn->shared ? pcilend_share_client(fn, lease) : NULL;
	struct pcilend_share_event event = { .type = PCILEND_SHARE_RETURN, .lease = lease };

	lockdep_assert_held(&fn->lock);
	if (!client || !client->link || client->peer != msg->peer)
		return false;
	event.node = client->peer;
	event.boot = client->boot;
	client->returned = true;
	/* Of a request that is repeated the former one is not waited for any more. */
	pcilend_link_put(client->waiting.link);
	client->waiting.link = pcilend_link_get(link);
	client->waiting.session = msg->session;
	client->waiting.request = le32_to_cpu(pcilend_message_header(msg)->request);
	pcilend_share_step(fn, &event, NULL, NULL);
	return true;
}

static bool share_peer_is_over(struct lender_client *client, struct pcilend_link *link, u64 boot)
{
	return client && client->link == link && (!boot || client->boot == boot);
}

/* Tells all functions' machines of what happened to the link. @boot: of these only; 0: of all */
static void share_peer_happened(struct pcilend_link *link, enum pcilend_share_event_type type,
				u64 boot)
{
	struct pcilend_function *fn;
	u32 i;

	for (fn = pcilend_function_next(NULL); fn; fn = pcilend_function_next(fn)) {
		guard(mutex)(&fn->lock);
		for (i = 0; fn->shared && i < PCILEND_SHARE_CLIENTS; i++) {
			const struct pcilend_share_client *core = &fn->shared->share.client[i];
			struct pcilend_share_event event = {
				.type = type,
				.node = core->node,
				.boot = core->boot,
			};

			if (core->state != PCILEND_CLIENT_NONE &&
			    share_peer_is_over(pcilend_share_client(fn, core->lease), link, boot))
				pcilend_share_step(fn, &event, NULL, NULL);
		}
	}
}

static bool share_peer_has_none(struct pcilend_link *link, u64 boot)
{
	struct lender_client *client;
	struct pcilend_function *fn;
	bool none = true;

	for (fn = pcilend_function_next(NULL); fn; fn = pcilend_function_next(fn)) {
		guard(mutex)(&fn->lock);
		if (!fn->shared)
			continue;
		list_for_each_entry(client, &fn->shared->clients, node)
			none &= !share_peer_is_over(client, link, boot);
	}
	return none;
}

void pcilend_share_lost_work(struct work_struct *work)
{
	struct lender_link *ours = container_of(work, struct lender_link, share_lost);

	share_peer_happened(ours->link, PCILEND_SHARE_LINK_LOST, 0);
	pcilend_link_put(ours->link);
}

/* Any context. */
void pcilend_share_link_lost(struct pcilend_link *link)
{
	pcilend_link_get(link);
	if (!queue_work(pcilend_wq, &lender_link(link)->share_lost))
		pcilend_link_put(link);
}

/* The same boot of the peer is there again. */
void pcilend_share_link_up(struct pcilend_link *link)
{
	u64 boot;

	flush_work(&lender_link(link)->share_lost);
	spin_lock(&link->state_lock);
	boot = link->peer_boot;
	spin_unlock(&link->state_lock);
	if (boot)
		share_peer_happened(link, PCILEND_SHARE_LINK_UP, boot);
}

/* Return: 1 if there is one, and it was told; 0 if there is none; or why it was not. */
static int share_peer_sync_one(struct pcilend_function *fn, u32 number, struct pcilend_link *link)
{
	const struct pcilend_share_client *core;
	struct lender_client *client;
	struct pcilend_msg_lease msg = {
		.id = cpu_to_le32(fn->id),
		.reason = cpu_to_le32(PCILEND_READMITTED_AGAIN),
	};

	guard(mutex)(&fn->lock);
	core = fn->shared ? &fn->shared->share.client[number] : NULL;
	if (!core || core->state != PCILEND_CLIENT_ACTIVE)
		return 0;
	client = pcilend_share_client(fn, core->lease);
	if (!client || client->link != link)
		return 0;
	msg.lease = cpu_to_le32(core->lease);
	return pcilend_channel_notify(link, PCILEND_MSG_READMITTED, &msg) ?: 1;
}

/*
 * pcilend_share_sync - which of the peer's clients go on, as it may not have heard that
 *
 * Return: 0, or not all notices went out.
 */
int pcilend_share_sync(struct pcilend_link *link)
{
	struct pcilend_function *fn;
	int told = 0;
	u32 i;

	for (fn = pcilend_function_next(NULL); fn; fn = pcilend_function_next(fn)) {
		for (i = 0; told >= 0 && READ_ONCE(fn->shared) && i < PCILEND_SHARE_CLIENTS;
		     i++) {
			told = share_peer_sync_one(fn, i, link);
			if (told > 0)
				pcilend_channel_wait_room(link);
		}
	}
	return min(told, 0);
}

/* Does a process of that node share it? */
bool pcilend_share_has_client(struct pcilend_function *fn, u32 node)
{
	struct lender_client *client;

	lockdep_assert_held(&fn->lock);
	if (!fn->shared)
		return false;
	list_for_each_entry(client, &fn->shared->clients, node)
		if (client->link && client->peer == node)
			return true;
	return false;
}

/*
 * That boot of the peer is over: on return no function reaches what was its clients' memory. Their
 * managers have to confirm that, or the functions are fenced.
 */
void pcilend_share_peer_dead(struct pcilend_link *link, u64 boot)
{
	share_peer_happened(link, PCILEND_SHARE_PEER_DEAD, boot);
	pcilend_wait_until(share_peer_idle, share_peer_has_none(link, boot));
}
