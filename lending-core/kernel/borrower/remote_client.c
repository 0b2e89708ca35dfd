// SPDX-License-Identifier: GPL-2.0-only
/*
 * A process of this host is a client of a function that another host shares (share.h). It has no
 * virtual function: some pages of BARs are in the window, and its slice is a slot of the adapter's
 * aperture, of which the lender has heard at the JOIN. What is mapped in it is mapped in the
 * adapter's domain, without a message.
 *
 * It is over when the lender says so, or its boot is over: then nothing of the function reaches the
 * slot, and what is mapped there is unmapped. Until then it stays, whatever becomes of the process
 * and of the link: the function may use it as long as its manager has not confirmed that it does
 * not.
 */

#include <linux/file.h>
#include <linux/iommu.h>
#include <linux/slab.h>

#include "borrower/remote_client.h"

#define CLIENT_RETRY_MS 1000

static LIST_HEAD(clients);
static DEFINE_MUTEX(clients_lock);

static void client_free(struct kref *ref)
{
	struct remote_client *client = container_of(ref, struct remote_client, ref);

	if (client->use)
		pcilend_use_end(client->use);
	pcilend_use_put(client->use);
	pcilend_link_put(client->link);
	kfree(client->vector);
	kfree(client);
}

void remote_client_put(struct remote_client *client)
{
	kref_put(&client->ref, client_free);
}

static int client_check(struct remote_client *client, struct netlink_ext_ack *extack)
{
	lockdep_assert_held(&client->lock);
	if (!client->ending)
		return 0;
	return pcilend_refuse(extack, -ESTALE, "the lease is over: close it, and join again");
}

int remote_client_check(struct remote_client *client, struct netlink_ext_ack *extack)
{
	guard(mutex)(&client->lock);
	return client_check(client, extack);
}

static int client_bar(void *holder, u32 bar, u64 offset, u64 size,
		      struct pcilend_use_place *place, struct netlink_ext_ack *extack)
{
	struct remote_client *client = holder;
	u32 i;
	int err;

	guard(mutex)(&client->lock);
	err = client_check(client, extack);
	for (i = 0; !err && i < client->ranges; i++) {
		const struct pcilend_share_range *range = &client->range[i].pages;
		u64 start = range->page * PCILEND_PAGE, bytes = range->pages * PCILEND_PAGE;

		if (range->bar != bar || offset < start || size > bytes ||
		    offset - start > bytes - size)
			continue;
		place->phys = client->range[i].phys + offset - start;
		return 0;
	}
	return err ?:
	       pcilend_refuse(extack, -EACCES, "its manager gives clients other pages of BARs: ask for those that join has answered");
}

static int client_map(void *holder, const struct pcilend_memory *memory, bool read_only,
		      u64 address, struct netlink_ext_ack *extack)
{
	struct remote_client *client = holder;
	int err;

	guard(mutex)(&client->lock);
	err = client_check(client, extack);
	if (!err && memory->source)
		err = pcilend_refuse(extack, -EOPNOTSUPP, "a client of another host's function maps memory of its own host only: let the manager map the rest");
	if (err)
		return err;
	err = pcilend_memory_map(memory, client->link->aperture.domain,
				 client->iova + (address - client->slice),
				 IOMMU_READ | (read_only ? 0 : IOMMU_WRITE));
	return err ? pcilend_refuse_fmt(extack, err, "the IOMMU does not map it (error %d)", err) :
		     0;
}

static void client_unmap(void *holder, u64 address, u64 size)
{
	struct remote_client *client = holder;

	guard(mutex)(&client->lock);
	if (!client->over)
		WARN_ON(iommu_unmap(client->link->aperture.domain,
				    client->iova + (address - client->slice), size) != size);
}

/* It is returned in a work item, unless that is done; the list's reference is kept until then. */
static void client_queue_end(struct remote_client *client)
{
	guard(mutex)(&clients_lock);
	if (!list_empty(&client->node))
		mod_delayed_work(pcilend_wq, &client->end, 0);
}

static void client_end(void *holder)
{
	struct remote_client *client = holder;

	client_queue_end(client);
	remote_client_put(client);
}

static const struct pcilend_use_ops client_ops = {
	.bar = client_bar,
	.map = client_map,
	.unmap = client_unmap,
	.interrupt = remote_vectors_set,
	.mail_send = remote_mail_send,
	.mail_next = remote_mail_next,
	.end = client_end,
};

/* The function reaches nothing of it any more. */
static void client_empty(struct remote_client *client)
{
	scoped_guard(mutex, &client->lock)
		client->ending = true;
	remote_vectors_end(client);
	pcilend_use_unmap_all(client->use);
	scoped_guard(mutex, &client->lock)
		client->over = true;
}

/*
 * Asking again, as no answer has come, is harmless: the lender knows the client by its slice. What
 * it refuses is -ECONNREFUSED here where a process is told -EAGAIN, as its channel says that, too.
 */
static int client_ask(struct remote_client *client, struct pcilend_answer *answer)
{
	struct pcilend_msg_join msg = {
		.id = cpu_to_le32(client->id),
		.lease_ms = cpu_to_le32(client->lease_ms),
		.slice_bytes = cpu_to_le64(client->bytes),
	};
	u32 window;
	u64 offset;
	int err;

	scoped_guard(mutex, &client->vectors_lock)
		msg.vectors = cpu_to_le32(client->vectors);
	err = pcilend_aperture_locate(client->link, client->iova, client->bytes, &window, &offset);
	if (err)
		return err;
	msg.slice_offset = cpu_to_le64(offset);
	msg.slice_window = cpu_to_le32(window);
	return pcilend_channel_request(client->link, PCILEND_MSG_JOIN, &msg, answer);
}

/*
 * Has a JOIN been granted whose answer did not come? Only what its lender says of the function
 * tells that it has no client with this slice. -EAGAIN and -EBUSY come from its channel, too, which
 * has not asked it then: while the link is not trusted yet, or when too much is asked for at once.
 * Return: 0: no, or client->lease is set; else it is not known.
 */
static int client_ask_again(struct remote_client *client)
{
	struct pcilend_answer *answer __free(kfree) = kzalloc(sizeof(*answer), GFP_KERNEL);
	int err;

	if (!answer)
		return -ENOMEM;
	err = client_ask(client, answer);
	switch (err) {
	case 0:
		break;
	case -ECONNREFUSED:
	case -ENODEV:
	case -ERANGE:
	case -EOPNOTSUPP:
	case -ENOSPC:
	case -EXFULL:
	case -EIO:
		return 0;
	default:
		return READ_ONCE(client->link->going) ? 0 : err;
	}
	guard(mutex)(&clients_lock);
	client->lease = le32_to_cpu(((const struct pcilend_msg_joined *)answer->payload)->lease);
	return 0;
}

static int client_return(struct remote_client *client)
{
	struct pcilend_msg_lease msg = { .id = cpu_to_le32(client->id) };
	int err;

	if (READ_ONCE(client->gone))
		return 0;
	err = client->lease || READ_ONCE(client->refused) ? 0 : client_ask_again(client);
	if (err || !client->lease)
		return err;
	msg.lease = cpu_to_le32(client->lease);
	/* The manager is waited for, and if it is silent the function is reset. */
	err = pcilend_channel_request_for(client->link, PCILEND_MSG_RETURN, &msg, NULL,
					  PCILEND_RESET_MS);
	/* The lender knows of no such lease: it is over. */
	if (err == -ESTALE || READ_ONCE(client->link->going))
		return 0;
	return err;
}

/* Nothing of it is mapped. No-op if that was done. */
static void client_leave(struct remote_client *client)
{
	/* The module may go as soon as the client has left. */
	remote_mail_end(client);
	scoped_guard(mutex, &clients_lock) {
		if (list_empty(&client->node))
			return;
		list_del_init(&client->node);
		cancel_delayed_work(&client->end);
		/* The adapter goes when it has none in the list. */
		pcilend_aperture_slot_put(client->link, client->iova, client->bytes,
					  client->of_plan);
	}
	atomic_dec(&client->link->leases);
	wake_up_all(&client->link->idle);
	remote_client_put(client);
}

/* It goes on trying until the lender has answered, or its boot is over. */
static void client_end_work(struct work_struct *work)
{
	struct remote_client *client = container_of(work, struct remote_client, end.work);

	scoped_guard(mutex, &client->lock)
		client->ending = true;
	pcilend_use_over(client->use);
	if (READ_ONCE(client->lost))
		client_empty(client);
	if (client_return(client) && !READ_ONCE(client->gone)) {
		queue_delayed_work(pcilend_wq, &client->end, msecs_to_jiffies(CLIENT_RETRY_MS));
		return;
	}
	client_empty(client);
	client_leave(client);
}

/* The one with that lease, with a reference; or NULL. */
static struct remote_client *client_find(struct pcilend_link *link, u16 type,
					 const struct pcilend_msg_lease *msg)
{
	struct remote_client *client;

	guard(mutex)(&clients_lock);
	list_for_each_entry(client, &clients, node) {
		if (client->link != link || client->id != le32_to_cpu(msg->id))
			continue;
		if (client->lease == le32_to_cpu(msg->lease)) {
			kref_get(&client->ref);
			return client;
		}
		if (!client->lease && type == PCILEND_MSG_LOST)
			client->lost_early = le32_to_cpu(msg->lease);
	}
	return NULL;
}

/**
 * pcilend_client_notice - a lender speaks of a lease that a client here has
 *
 * All of these begin with function and lease. Return: false: no client has it.
 */
bool pcilend_client_notice(struct pcilend_link *link, u16 type,
			   const struct pcilend_msg_lease *msg)
{
	struct remote_client *client = client_find(link, type, msg);

	if (!client)
		return false;
	switch (type) {
	case PCILEND_MSG_LOST:
		/* Emptied where its process, which may wait for the peer, can be waited for. */
		WRITE_ONCE(client->lost, true);
		pcilend_use_over(client->use);
		client_queue_end(client);
		break;
	case PCILEND_MSG_WAS_RESET:
		pcilend_use_disturbed(client->use);
		break;
	case PCILEND_MSG_READMITTED:
		/* Said again (SYNC), it is no news for those who have heard it. */
		if (le32_to_cpu(msg->reason) && !READ_ONCE(client->hidden))
			break;
		WRITE_ONCE(client->hidden, false);
		pcilend_use_show(client->use);
		pcilend_use_disturbed(client->use);
		remote_mail_again(client);
		break;
	case PCILEND_MSG_MAILED:
		remote_mail_answered(client, (const struct pcilend_msg_mail *)msg);
		break;
	case PCILEND_MSG_RECALL:
		pcilend_use_recalled(client->use);
		break;
	}
	remote_client_put(client);
	return true;
}

/* The client after @previous of that link, with a reference; drops the one on @previous. */
static struct remote_client *client_next(struct pcilend_link *link,
					 struct remote_client *previous)
{
	struct remote_client *client, *found = NULL;
	bool behind;

	scoped_guard(mutex, &clients_lock) {
		/* From the start, if that one has left. */
		behind = !previous || list_empty(&previous->node);
		list_for_each_entry(client, &clients, node) {
			if (behind && client->link == link) {
				kref_get(&client->ref);
				found = client;
				break;
			}
			behind |= client == previous;
		}
	}
	if (previous)
		remote_client_put(previous);
	return found;
}

/* What its processes store while nothing carries it is lost: let them find out. */
void pcilend_client_link_down(struct pcilend_link *link)
{
	struct remote_client *client;

	for (client = client_next(link, NULL); client; client = client_next(link, client)) {
		WRITE_ONCE(client->hidden, true);
		pcilend_use_hide(client->use);
		pcilend_use_disturbed(client->use);
	}
}

/* One of the notices may have told of a reset, or was mail. */
void pcilend_client_doubt(struct pcilend_link *link)
{
	struct remote_client *client;

	for (client = client_next(link, NULL); client; client = client_next(link, client)) {
		pcilend_use_disturbed(client->use);
		remote_mail_again(client);
	}
}

/* The lender was silent for as long as a lease lasts: it has taken everything back, or is dead. */
void pcilend_client_link_silent(struct pcilend_link *link)
{
	struct remote_client *client;

	for (client = client_next(link, NULL); client; client = client_next(link, client)) {
		pcilend_use_over(client->use);
		client_queue_end(client);
	}
}

/* That boot of the lender is over: nothing of it does DMA any more. */
void pcilend_client_peer_dead(struct pcilend_link *link)
{
	struct remote_client *client;

	for (client = client_next(link, NULL); client; client = client_next(link, client)) {
		WRITE_ONCE(client->gone, true);
		pcilend_use_over(client->use);
		client_empty(client);
		client_queue_end(client);
	}
}

/* Does one have interrupts, which come straight into this host's interrupt controller? */
bool pcilend_client_interrupts(struct pcilend_link *link)
{
	struct remote_client *client;

	guard(mutex)(&clients_lock);
	list_for_each_entry(client, &clients, node)
		if (client->link == link && client->vector)
			return true;
	return false;
}

static bool client_has_none(struct pcilend_link *link)
{
	struct remote_client *client;

	guard(mutex)(&clients_lock);
	list_for_each_entry(client, &clients, node)
		if (client->link == link)
			return false;
	return true;
}

/* The adapter is going: returns when no client uses it. */
void pcilend_client_link_leaving(struct pcilend_link *link)
{
	pcilend_client_link_silent(link);
	pcilend_wait_until(link->idle, client_has_none(link));
}

static int client_place_ranges(struct remote_client *client, const struct pcilend_msg_joined *in)
{
	int i, err;

	for (i = 0; i < PCILEND_SHARE_RANGES; i++) {
		const struct pcilend_msg_share_place *place = &in->range[i];
		struct client_range *range = &client->range[client->ranges];

		if (!place->pages)
			continue;
		range->pages = (struct pcilend_share_range){
			.bar = place->bar,
			.page = le32_to_cpu(place->page),
			.pages = le32_to_cpu(place->pages),
		};
		err = pcilend_aperture_peer(client->link, le32_to_cpu(place->window),
					    le64_to_cpu(place->offset),
					    range->pages.pages * PCILEND_PAGE, &range->phys);
		if (err)
			return err;
		client->ranges++;
	}
	return 0;
}

static void client_describe(struct remote_client *client, const struct pcilend_msg_joined *in,
			    struct pcilend_joined *joined)
{
	u32 i;

	*joined = (struct pcilend_joined){
		.client = {
			.lease = client->lease,
			.node = pcilend_node,
			.slice = client->slice,
			.slice_bytes = client->bytes,
			.vector = le32_to_cpu(in->vector),
			.vectors = client->vectors,
			.piece = le32_to_cpu(in->piece),
		},
		.ranges = client->ranges,
	};
	for (i = 0; i < client->ranges; i++)
		joined->range[i] = client->range[i].pages;
	strscpy(joined->adapter, pci_name(client->link->pdev), sizeof(joined->adapter));
}

static const char *client_why(int error)
{
	switch (error) {
	case -ECONNREFUSED:
		return "not shared, or this host's former boot has not ended: 'pcilend list' there";
	case -EAGAIN:
	case -EBUSY:
		return "it is being reset, or its lender has too much to do: try again";
	case -ENODEV:
		return "it is not shared with this node";
	case -ERANGE:
		return "its manager allows smaller slices, or fewer interrupts: join with less";
	case -EOPNOTSUPP:
		return "its interrupts can't go to this host: join without, and poll";
	case -ENOSPC:
		return "it has as many clients as it may have, or its lender has no room for more";
	case -EXFULL:
		return "its lender's adapter does not let it through: see the kernel log there";
	case -EIO:
		return "its lender could not map it for this host: see the kernel log there";
	case -ETIMEDOUT:
		return "its lender does not answer: see whether that host is alive";
	case -ENETDOWN:
		return "the link to its lender is down: see 'pcilend link'";
	default:
		return NULL;
	}
}

/* Return: 0, or why not; @granted: the end of its file returns it then. */
static int client_join(struct remote_client *client, struct pcilend_joined *joined, bool *granted,
		       struct netlink_ext_ack *extack)
{
	struct pcilend_answer *answer __free(kfree) = kzalloc(sizeof(*answer), GFP_KERNEL);
	const struct pcilend_msg_joined *in;
	bool lost;
	int err;

	if (!answer)
		return -ENOMEM;
	in = (const struct pcilend_msg_joined *)answer->payload;
	err = client_ask(client, answer);
	*granted = !err;
	if (err)
		return pcilend_refuse(extack, err == -ECONNREFUSED ? -EAGAIN : err,
				      client_why(err));
	scoped_guard(mutex, &clients_lock) {
		client->lease = le32_to_cpu(in->lease);
		lost = client->lost_early == client->lease;
	}
	client->slice = le64_to_cpu(in->slice);
	pcilend_use_begin(client->use, &client_ops, client);
	pcilend_use_set_slice(client->use, client->slice, client->bytes);
	if (le32_to_cpu(in->id) != client->id || client_place_ranges(client, in))
		return pcilend_refuse(extack, -EPROTO, "its lender makes no sense: use the same release of pcilend on both hosts");
	if (lost)
		return pcilend_refuse(extack, -ESTALE, "the lease was lost again at once: try once more");
	client_describe(client, in, joined);
	return 0;
}

/* The link for a new client, counted in its leases, with a reference. */
static struct pcilend_link *client_choose_link(struct pcilend_remote *remote, const char *adapter)
{
	struct remote *r = to_remote(remote);
	struct pcilend_link *link;

	guard(mutex)(&r->lock);
	link = remote_path_choose(r, adapter);
	if (!link)
		return NULL;
	atomic_inc(&link->leases);
	return pcilend_link_get(link);
}

static int client_make(struct pcilend_remote *remote, const char *adapter,
		       const struct pcilend_share_wish *wish, struct remote_client **made,
		       struct netlink_ext_ack *extack)
{
	struct remote_client *client = kzalloc(sizeof(*client), GFP_KERNEL_ACCOUNT);
	int err = 0;

	if (!client)
		return -ENOMEM;
	if (remote_vectors_init(client, wish->vectors)) {
		kfree(client);
		return -ENOMEM;
	}
	client->link = client_choose_link(remote, adapter);
	if (!client->link) {
		kfree(client->vector);
		kfree(client);
		if (adapter)
			return pcilend_refuse(extack, -EHOSTUNREACH, "its lender is not reached over that adapter: 'pcilend show' lists its paths");
		return pcilend_refuse(extack, -EHOSTUNREACH, REMOTE_NO_LINK);
	}
	if (client->link->aperture.direct)
		err = pcilend_refuse(extack, -EOPNOTSUPP, "its adapter has no IOMMU, which would give the function all memory of this host");
	else if (pcilend_sleeps())
		err = pcilend_refuse(extack, -EAGAIN, "this host is about to sleep or to go down: try again afterwards");
	if (err) {
		atomic_dec(&client->link->leases);
		pcilend_link_put(client->link);
		kfree(client->vector);
		kfree(client);
		return err;
	}
	client->bytes = wish->slice_bytes;
	client->lease_ms = wish->lease_ms;
	client->id = remote->id;
	kref_init(&client->ref);
	mutex_init(&client->lock);
	remote_mail_init(client);
	INIT_DELAYED_WORK(&client->end, client_end_work);
	*made = client;
	return 0;
}

/*
 * From now on others see it, with its slot. Its interrupts are a choice as that of functions that
 * are borrowed. An adapter that goes either finds it in the list, or has said so before.
 */
static int client_enter(struct remote_client *client, struct netlink_ext_ack *extack)
{
	int err;

	guard(mutex)(&remote_choice_lock);
	if (client->vectors && !remote_client_may_interrupt(client->link))
		return pcilend_refuse(extack, -EOPNOTSUPP, "its interrupts can't come straight to this host, over an adapter that guests have functions of, or whose windows don't show them: join without, and poll");
	guard(mutex)(&clients_lock);
	if (READ_ONCE(client->link->going))
		return pcilend_refuse(extack, -EHOSTUNREACH, REMOTE_NO_LINK);
	err = pcilend_aperture_slot_get(client->link, client->bytes, &client->iova,
					&client->of_plan);
	if (err)
		return err == -ENOSPC ? pcilend_refuse_fmt(extack, err, "the memory window has no room for a slice of %llu KiB: join with a smaller one",
							   client->bytes >> 10) : err;
	/* One reference is the list's, and one of whoever asks, then its file's. */
	kref_get(&client->ref);
	list_add_tail(&client->node, &clients);
	return 0;
}

/* Nobody else knows of it, and it has no slot. */
static void client_discard(struct remote_client *client)
{
	atomic_dec(&client->link->leases);
	wake_up_all(&client->link->idle);
	remote_client_put(client);
}

/**
 * pcilend_remote_join - the calling process becomes a client of a function of another host
 * @adapter: over this one; NULL: over the best
 * @owner, @wish, @file, @joined: as for pcilend_lender_join()
 *
 * When the lender does not answer it may have granted the lease, or grant it yet: it is asked again
 * until it answers, or that boot of it is over, and what it has granted is returned. The slot stays
 * taken for as long.
 */
int pcilend_remote_join(struct pcilend_remote *remote, const char *owner, const char *adapter,
			const struct pcilend_share_wish *wish, struct file **file,
			struct pcilend_joined *joined, struct netlink_ext_ack *extack)
{
	struct remote_client *client;
	bool granted = false;
	int err;

	if (!pcilend_slice_size_valid(wish->slice_bytes))
		return pcilend_refuse(extack, -EINVAL, "a slice is a power of two from 4 KiB to 64 GiB: give such a size");
	if (wish->vectors > PCILEND_SHARE_VECTORS)
		return pcilend_refuse(extack, -ERANGE, "a client has at most 32 interrupts: ask for fewer");
	err = client_make(remote, adapter, wish, &client, extack);
	if (err)
		return err;
	client->use = pcilend_use_create(owner, file);
	if (IS_ERR(client->use)) {
		err = PTR_ERR(client->use);
		client->use = NULL;
		client_discard(client);
		return err;
	}
	pcilend_use_get(client->use);
	err = client_enter(client, extack);
	if (err) {
		fput(*file);
		client_discard(client);
		return err;
	}
	err = client_join(client, joined, &granted, extack);
	if (!err)
		return 0;
	fput(*file);
	if (granted)
		return err;
	if (err != -ETIMEDOUT && err != -ENETDOWN)
		WRITE_ONCE(client->refused, true);
	/* The work item may be asking already, as the adapter goes. */
	client_queue_end(client);
	if (client->refused)
		flush_delayed_work(&client->end);
	remote_client_put(client);
	return err;
}
