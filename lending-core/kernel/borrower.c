// SPDX-License-Identifier: GPL-2.0-only
/*
 * The functions that lenders offer to this host: what peers say about them, and how they come and
 * go. Borrowing is in borrow.c.
 */

#include <linux/slab.h>

#include "borrower.h"

#define SYNC_RETRY_MS 1000
#define SYNC_GAP_MS 200		/* between two, however often the peer gives reason for one */
#define APPEAR_MS 60000		/* in which no more functions of a link appear than REMOTES_MAX */
#define REMOTES_MAX 1024	/* of one link: more is not a lender, but a flood */

static LIST_HEAD(remotes);
static DEFINE_MUTEX(remotes_lock);

static void remote_put(struct remote *r)
{
	if (r)
		put_device(&r->pub.dev);
}

static void remote_release(struct device *dev)
{
	struct remote *r = to_remote(to_pcilend_remote(dev));

	remote_drop_slots(r, true);
	pcilend_link_put(r->link);
	kfree(r);
}

/* The function with the lowest id above @previous's; drops the reference on that one. */
struct remote *remote_next(struct remote *previous)
{
	struct remote *r, *found = NULL;

	mutex_lock(&remotes_lock);
	list_for_each_entry(r, &remotes, node) {
		if (!previous || r->pub.id > previous->pub.id) {
			get_device(&r->pub.dev);
			found = r;
			break;
		}
	}
	mutex_unlock(&remotes_lock);
	remote_put(previous);
	return found;
}

static struct remote *remote_find(u32 id)
{
	struct remote *r, *found = NULL;

	mutex_lock(&remotes_lock);
	list_for_each_entry(r, &remotes, node) {
		if (r->pub.id == id) {
			get_device(&r->pub.dev);
			found = r;
			break;
		}
	}
	mutex_unlock(&remotes_lock);
	return found;
}

/* The remote function with that id, with a reference; NULL if there is none. */
struct pcilend_remote *pcilend_remote_get(u32 id)
{
	struct remote *r = remote_find(id);

	return r ? &r->pub : NULL;
}

void pcilend_remote_put(struct pcilend_remote *remote)
{
	put_device(&remote->dev);
}

void pcilend_remote_report(struct pcilend_remote *remote, struct pcilend_report *report)
{
	struct remote *r = to_remote(remote);

	memset(report, 0, sizeof(*report));
	report->recall_ms = U64_MAX;
	mutex_lock(&r->lock);
	report->info = remote->info;
	/* What is held is held, whatever the lender says: so it can be given back. */
	if (r->state == REMOTE_HELD) {
		report->info.state = PCILEND_FUNCTION_BORROWED;
		report->info.borrower = cpu_to_le32(pcilend_node);
	}
	report->lease = r->lease;
	if (r->state == REMOTE_HELD && r->recalled == r->lease)
		report->recall_ms = r->recall_at - min(r->recall_at, pcilend_now());
	report->guest_bytes = r->guest_bytes;
	report->guest_map_us = r->guest_map_us;
	if (r->frontend)
		strscpy(report->frontend, r->frontend->name, sizeof(report->frontend));
	strscpy(report->owner, r->owner, sizeof(report->owner));
	if (r->virtual)
		strscpy(report->virtual, pci_name(pcilend_virtual_pci(r->virtual)),
			sizeof(report->virtual));
	mutex_unlock(&r->lock);
}

bool pcilend_remote_next(u32 after, struct pcilend_report *report)
{
	struct remote *r = remote_next(NULL);

	while (r && (r->pub.id <= after || READ_ONCE(r->dying)))
		r = remote_next(r);
	if (!r)
		return false;
	pcilend_remote_report(&r->pub, report);
	remote_put(r);
	return true;
}

void remote_event(struct remote *r, enum pcilend_event event)
{
	struct pcilend_report *report __free(kfree) = kmalloc(sizeof(*report), GFP_KERNEL);

	pcilend_changed();
	if (!report)
		return;
	pcilend_remote_report(&r->pub, report);
	pcilend_event_function(event, report);
}

/*
 * In a work item of its own, because frontends may take long to let go (a VM that has the function
 * open), and because they may borrow as soon as they see it.
 */
static void remote_work(struct work_struct *work)
{
	struct remote *r = container_of(work, struct remote, work);
	struct pcilend_link *link = r->link;
	bool reborn;

	if (!READ_ONCE(r->dying)) {
		remote_attach_frontends(r);
		remote_put(r);
		return;
	}
	remote_detach_frontends(r);
	flush_work(&r->lost_work);
	flush_work(&r->reset_work);
	flush_work(&r->recall_work);
	device_del(&r->pub.dev);
	remote_event(r, PCILEND_EVENT_FUNCTION_GONE);

	mutex_lock(&r->lock);
	reborn = r->reborn;
	mutex_unlock(&r->lock);
	pcilend_link_get(link);
	mutex_lock(&remotes_lock);
	list_del(&r->node);
	mutex_unlock(&remotes_lock);
	put_device(&r->pub.dev);	/* the table's */
	remote_put(r);
	pcilend_changed();
	wake_up_all(&link->idle);
	if (reborn)
		pcilend_borrower_resync(link);
	pcilend_link_put(link);
}

static void queue_remote_work(struct remote *r)
{
	get_device(&r->pub.dev);
	if (!queue_work(pcilend_frontend_wq, &r->work))
		put_device(&r->pub.dev);
}

/* A function that is no longer offered goes as soon as nobody uses it. */
void remote_retire_if_idle(struct remote *r)
{
	bool retire = false;

	mutex_lock(&r->lock);
	if (r->absent && !r->dying && r->state == REMOTE_IDLE) {
		WRITE_ONCE(r->dying, true);
		retire = true;
	}
	mutex_unlock(&r->lock);
	if (retire)
		queue_remote_work(r);
}

static void withdraw(struct remote *r)
{
	mutex_lock(&r->lock);
	r->absent = true;
	mutex_unlock(&r->lock);
	remote_retire_if_idle(r);
}

static struct remote *remote_alloc(struct pcilend_link *link,
				   const struct pcilend_msg_function *info)
{
	struct remote *r = kzalloc(sizeof(*r), GFP_KERNEL);

	if (!r)
		return NULL;
	device_initialize(&r->pub.dev);
	r->pub.dev.bus = &pcilend_bus;
	r->pub.dev.parent = &link->pdev->dev;
	r->pub.dev.release = remote_release;
	r->pub.id = le32_to_cpu(info->id);
	import_uuid(&r->pub.uuid, info->uuid);
	r->pub.info = *info;
	r->link = pcilend_link_get(link);
	r->generation = READ_ONCE(link->sync_generation);
	mutex_init(&r->frontends);
	mutex_init(&r->operation);
	mutex_init(&r->lock);
	INIT_LIST_HEAD(&r->slots);
	INIT_WORK(&r->work, remote_work);
	INIT_WORK(&r->lost_work, remote_lost_work);
	INIT_WORK(&r->reset_work, remote_reset_work);
	INIT_WORK(&r->recall_work, remote_recall_work);
	if (dev_set_name(&r->pub.dev, "%x", r->pub.id)) {
		put_device(&r->pub.dev);
		return NULL;
	}
	return r;
}

static unsigned int count_remotes(struct pcilend_link *link)
{
	unsigned int count = 0;
	struct remote *r;

	mutex_lock(&remotes_lock);
	list_for_each_entry(r, &remotes, node)
		count += r->link == link;
	mutex_unlock(&remotes_lock);
	return count;
}

static void appear(struct pcilend_link *link, const struct pcilend_msg_function *info)
{
	struct remote *r, *other;
	int err;

	if (count_remotes(link) >= REMOTES_MAX) {
		pci_warn_once(link->pdev, "more than %u functions are offered over this link: the rest is ignored\n",
			      REMOTES_MAX);
		return;
	}
	/* Each costs a device, frontends, and udev: one that shows ever new ones has to wait. */
	if (!__ratelimit(&link->appear_limit)) {
		queue_delayed_work(pcilend_wq, &link->sync, msecs_to_jiffies(APPEAR_MS));
		return;
	}
	r = remote_alloc(link, info);
	if (!r)
		return;
	err = device_add(&r->pub.dev);
	if (err) {
		pci_warn(link->pdev, "function %x of node %u can't be shown (error %d)\n",
			 r->pub.id, pcilend_id_node(r->pub.id), err);
		put_device(&r->pub.dev);
		return;
	}
	mutex_lock(&remotes_lock);
	list_for_each_entry(other, &remotes, node) {
		if (other->pub.id > r->pub.id)
			break;
	}
	list_add_tail(&r->node, &other->node);
	mutex_unlock(&remotes_lock);
	queue_remote_work(r);
	remote_event(r, PCILEND_EVENT_FUNCTION);
}

/* Has the lender stopped the function after lease @lease of ours, as this notice tells? */
static bool tells_stopped(const struct pcilend_msg_function *info, u32 lease)
{
	return le32_to_cpu(info->borrower) != pcilend_node || le32_to_cpu(info->lease) != lease;
}

/* What a notice means for our lease. Sequence numbers tell notices from before the grant. */
static void compare_lease(struct remote *r, const struct pcilend_msg_function *info, u32 sequence)
{
	u32 told = le32_to_cpu(info->borrower) == pcilend_node ? le32_to_cpu(info->lease) : 0;
	bool settled = false;
	u32 orphan = 0;
	bool lost = false;

	mutex_lock(&r->lock);
	switch (r->state) {
	case REMOTE_IDLE:
		orphan = told;
		break;
	case REMOTE_BORROWING:
		break;
	case REMOTE_HELD:
		lost = tells_stopped(info, r->lease) && (s32)(sequence - r->granted) > 0;
		break;
	case REMOTE_LOST:
		r->fenced |= tells_stopped(info, r->lease);
		break;
	case REMOTE_RETURNING:
		settled = tells_stopped(info, r->lease);
		if (!settled && info->state == PCILEND_FUNCTION_BORROWED)
			orphan = r->lease;
		break;
	}
	mutex_unlock(&r->lock);

	if (lost)
		remote_lost(r, PCILEND_LOST_REVOKED, true);
	if (settled)
		remote_settled(r);
	if (orphan)
		remote_return_async(r, orphan);
}

static void handle_function(struct pcilend_link *link, const struct pcilend_message *msg)
{
	const struct pcilend_msg_function *info = pcilend_message_payload(msg);
	u32 sequence = le32_to_cpu(pcilend_message_header(msg)->sequence);
	struct remote *r = remote_find(le32_to_cpu(info->id));
	bool news;

	if (!r) {
		appear(link, info);
		return;
	}
	mutex_lock(&r->lock);
	if (r->dying || r->link != link || memcmp(r->pub.info.uuid, info->uuid, 16)) {
		/* Another one under the same id: shown when the former one has gone. */
		r->reborn = true;
		mutex_unlock(&r->lock);
		withdraw(r);
		goto out;
	}
	news = r->absent || memcmp(&r->pub.info, info, sizeof(*info));
	r->pub.info = *info;
	r->generation = READ_ONCE(link->sync_generation);
	r->absent = false;
	mutex_unlock(&r->lock);

	compare_lease(r, info, sequence);
	if (news)
		remote_event(r, PCILEND_EVENT_FUNCTION);
out:
	remote_put(r);
}

static void handle_withdraw(const struct pcilend_msg_id *msg)
{
	struct remote *r = remote_find(le32_to_cpu(msg->id));

	if (!r)
		return;
	remote_lost(r, PCILEND_LOST_GONE, true);
	withdraw(r);
	remote_put(r);
}

static void handle_lost(const struct pcilend_msg_lease *msg)
{
	struct remote *r = remote_find(le32_to_cpu(msg->id));
	bool ours;

	if (!r)
		return;
	mutex_lock(&r->lock);
	ours = r->lease == le32_to_cpu(msg->lease);
	if (r->state == REMOTE_BORROWING)
		r->lost_early = le32_to_cpu(msg->lease);
	mutex_unlock(&r->lock);
	if (ours)
		remote_lost(r, le32_to_cpu(msg->reason), true);
	remote_put(r);
}

static void handle_was_reset(const struct pcilend_msg_lease *msg)
{
	struct remote *r = remote_find(le32_to_cpu(msg->id));

	if (!r)
		return;
	remote_was_reset(r, le32_to_cpu(msg->lease));
	remote_put(r);
}

static void handle_recall(const struct pcilend_msg_recall *msg)
{
	struct remote *r = remote_find(le32_to_cpu(msg->id));

	if (!r)
		return;
	remote_recalled(r, le32_to_cpu(msg->lease), le32_to_cpu(msg->grace_ms));
	remote_put(r);
}

static void withdraw_all(struct pcilend_link *link)
{
	struct remote *r;

	for (r = remote_next(NULL); r; r = remote_next(r)) {
		if (r->link == link)
			withdraw(r);
	}
}

static void handle_connected(struct pcilend_link *link, const struct pcilend_msg_connected *msg)
{
	pcilend_link_set_peer_connected(link, le32_to_cpu(msg->connected));
	pcilend_borrower_resync(link);
}

/* Called in order of arrival, one at a time per link, in process context. */
void pcilend_borrower_notice(struct pcilend_link *link, const struct pcilend_message *msg)
{
	u16 type = le16_to_cpu(pcilend_message_header(msg)->type);
	const void *payload = pcilend_message_payload(msg);

	if (type == PCILEND_MSG_CONNECTED) {
		handle_connected(link, payload);
		return;
	}
	/* All others begin with the id of a function, which must be one of the sender's. */
	if (pcilend_id_node(le32_to_cpu(((const struct pcilend_msg_id *)payload)->id)) !=
	    msg->peer) {
		pcilend_channel_bad(link, le32_to_cpu(pcilend_message_header(msg)->sequence),
				    "it names a function of another node");
		return;
	}
	switch (type) {
	case PCILEND_MSG_FUNCTION:
		handle_function(link, msg);
		break;
	case PCILEND_MSG_WITHDRAW:
		handle_withdraw(payload);
		break;
	case PCILEND_MSG_LOST:
		handle_lost(payload);
		break;
	case PCILEND_MSG_WAS_RESET:
		handle_was_reset(payload);
		break;
	case PCILEND_MSG_RECALL:
		handle_recall(payload);
		break;
	}
}

/* Asks for all notices; what the peer does not name is not there any more. */
static void sync_work(struct work_struct *work)
{
	struct pcilend_link *link = container_of(work, struct pcilend_link, sync.work);
	u32 generation = link->sync_generation + 1;
	struct remote *r;

	WRITE_ONCE(link->synced_at, pcilend_now());
	if (!READ_ONCE(link->peer_connected)) {
		withdraw_all(link);
		return;
	}
	WRITE_ONCE(link->sync_generation, generation);
	if (pcilend_channel_request(link, PCILEND_MSG_SYNC, NULL, NULL)) {
		if (pcilend_link_is_up(link, NULL))
			queue_delayed_work(pcilend_wq, &link->sync,
					   msecs_to_jiffies(SYNC_RETRY_MS));
		return;
	}
	/* The notices came before the answer, but may not have been handled yet. */
	pcilend_channel_flush_notices(link);
	for (r = remote_next(NULL); r; r = remote_next(r)) {
		bool missing;

		mutex_lock(&r->lock);
		missing = r->link == link && r->generation != generation;
		mutex_unlock(&r->lock);
		if (!missing)
			continue;
		remote_lost(r, PCILEND_LOST_GONE, true);
		remote_settled(r);
		withdraw(r);
	}
}

void pcilend_borrower_resync(struct pcilend_link *link)
{
	u64 next = READ_ONCE(link->synced_at) + SYNC_GAP_MS, now = pcilend_now();

	mod_delayed_work(pcilend_wq, &link->sync, msecs_to_jiffies(next > now ? next - now : 0));
}

/* One of them may have told of a reset. */
void pcilend_borrower_notices_lost(struct pcilend_link *link)
{
	struct remote *r;

	for (r = remote_next(NULL); r; r = remote_next(r)) {
		if (r->link == link)
			remote_was_reset(r, 0);
	}
	pcilend_borrower_resync(link);
}

void pcilend_borrower_link_up(struct pcilend_link *link)
{
	pcilend_borrower_resync(link);
}

/* No heartbeat for as long as a lease lasts: the lender has taken everything back, or is dead. */
void pcilend_borrower_silent(struct pcilend_link *link)
{
	struct remote *r;

	for (r = remote_next(NULL); r; r = remote_next(r)) {
		if (r->link != link)
			continue;
		remote_lost(r, PCILEND_LOST_EXPIRED, false);
		withdraw(r);
	}
}

/* That boot of the lender is over, and nothing of it does DMA any more. */
void pcilend_borrower_peer_dead(struct pcilend_link *link)
{
	struct remote *r;

	for (r = remote_next(NULL); r; r = remote_next(r)) {
		if (r->link != link)
			continue;
		remote_lost(r, PCILEND_LOST_GONE, true);
		remote_settled(r);
	}
}

/* The adapter is going: waits until the frontends have let go of everything behind it. */
void pcilend_borrower_link_gone(struct pcilend_link *link)
{
	struct remote *r;

	disable_delayed_work_sync(&link->sync);
	for (r = remote_next(NULL); r; r = remote_next(r)) {
		if (r->link != link)
			continue;
		remote_lost(r, PCILEND_LOST_GONE, false);
		withdraw(r);
	}
	while (!wait_event_timeout(link->idle, !count_remotes(link), HZ)) {
		/* A return that nobody acknowledged: there will be no news of it any more. */
		for (r = remote_next(NULL); r; r = remote_next(r)) {
			if (r->link == link)
				remote_settled(r);
		}
	}
}

void pcilend_borrower_link_init(struct pcilend_link *link)
{
	INIT_DELAYED_WORK(&link->sync, sync_work);
	ratelimit_state_init(&link->appear_limit, msecs_to_jiffies(APPEAR_MS), REMOTES_MAX);
	init_waitqueue_head(&link->idle);
}
