// SPDX-License-Identifier: GPL-2.0-only
/*
 * The functions that lenders offer to this host: what peers say about them, and how they come and
 * go. Borrowing is in borrow.c.
 */

#include <linux/slab.h>

#include "borrower/borrower.h"
#include "borrower/iommu.h"

#define SYNC_RETRY_MS 1000
#define SYNC_GAP_MS 200		/* between two, however often the peer gives reason for one */
#define APPEAR_MS 5000		/* in which no more functions of a link appear than APPEAR_MAX */
#define APPEAR_MAX 64
#define IMPOSTOR_MS 60000	/* until a refused function is looked at again */
#define REMOTES_MAX 1024	/* of one node: more is not a lender, but a flood */

static bool (*is_local_uuid)(const u8 uuid[16]);	/* set once */

static LIST_HEAD(remotes);
static DEFINE_MUTEX(remotes_lock);
static DEFINE_MUTEX(appear_lock);	/* a function may appear over several links at once */

static void remote_put(struct remote *r)
{
	if (r)
		put_device(&r->pub.dev);
}

static void remote_release(struct device *dev)
{
	struct remote *r = to_remote(to_pcilend_remote(dev));

	remote_drop_slots(r, true);
	remote_put_paths(r);
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
	struct pci_dev *pdev = NULL;

	memset(report, 0, sizeof(*report));
	report->recall_ms = U64_MAX;
	mutex_lock(&r->lock);
	report->info = remote->info;
	/* What is held is held, whatever the lender says: so it can be given back. */
	if (r->state == REMOTE_HELD) {
		report->info.state = PCILEND_FUNCTION_BORROWED;
		report->info.borrower = cpu_to_le32(pcilend_node);
		report->relayed = !r->interrupts;
	}
	report->lease = r->lease;
	if (r->state == REMOTE_HELD && r->recalled == r->lease)
		report->recall_ms = r->recall_at - min(r->recall_at, pcilend_now());
	report->guest_bytes = READ_ONCE(r->guest_bytes);
	if (r->frontend)
		strscpy(report->frontend, r->frontend->name, sizeof(report->frontend));
	strscpy(report->owner, r->owner, sizeof(report->owner));
	if (r->virtual) {
		pdev = pcilend_virtual_pci(r->virtual);
		pcilend_virtual_driver(r->virtual, report->driver, sizeof(report->driver));
	}
	if (pdev)
		strscpy(report->virtual, pci_name(pdev), sizeof(report->virtual));
	pci_dev_put(pdev);
	remote_report_paths(r, report);
	remote_reach_report(r, report);
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

static void borrower_queue_offer(struct remote *r)
{
	if (!pcilend_is_available(&r->pub))
		return;
	get_device(&r->pub.dev);
	if (!queue_work(pcilend_frontend_wq, &r->offer_work))
		put_device(&r->pub.dev);
}

void remote_event(struct remote *r, enum pcilend_event event)
{
	struct pcilend_report *report __free(kfree) = kmalloc(sizeof(*report), GFP_KERNEL);

	pcilend_changed();
	borrower_queue_offer(r);
	if (!report)
		return;
	pcilend_remote_report(&r->pub, report);
	pcilend_event_function(event, report);
}

/* What listings show of its virtual function is not what it was. */
void remote_virtual_changed(struct pcilend_remote *remote)
{
	remote_event(to_remote(remote), PCILEND_EVENT_FUNCTION);
}

static void borrower_resync(struct pcilend_link *link)
{
	struct borrower_link *ours = borrower_link(link);
	u64 next = READ_ONCE(ours->synced_at) + SYNC_GAP_MS, now = pcilend_now();

	mod_delayed_work(pcilend_wq, &ours->sync, msecs_to_jiffies(next > now ? next - now : 0));
}

static void borrower_resync_node(u32 node)
{
	struct pcilend_link *link;

	for (link = pcilend_link_next(NULL); link; link = pcilend_link_next(link)) {
		if (pcilend_link_reaches(link, node))
			borrower_resync(link);
	}
}

/*
 * In a work item of its own, because frontends may take long to let go (a VM that has the function
 * open), and because they may borrow as soon as they see it.
 */
static void remote_work(struct work_struct *work)
{
	struct remote *r = container_of(work, struct remote, work);
	u32 r_id = r->pub.id;
	bool reborn;

	if (!READ_ONCE(r->dying)) {
		remote_attach_frontends(r);
		remote_put(r);
		return;
	}
	/* Queued twice: to attach, and because it is dying, which both runs have seen. */
	if (r->gone) {
		remote_put(r);
		return;
	}
	r->gone = true;
	remote_detach_frontends(r);
	flush_work(&r->offer_work);
	flush_work(&r->lost_work);
	flush_work(&r->reset_work);
	flush_work(&r->carrier_work);
	flush_work(&r->recall_work);
	flush_work(&r->return_work);
	flush_delayed_work(&r->reach_work);
	device_del(&r->pub.dev);
	remote_event(r, PCILEND_EVENT_FUNCTION_GONE);

	/* Whoever still finds it in the table has marked it by now. */
	mutex_lock(&appear_lock);
	mutex_lock(&remotes_lock);
	list_del(&r->node);
	mutex_unlock(&remotes_lock);
	mutex_lock(&r->lock);
	reborn = r->reborn;
	mutex_unlock(&r->lock);
	mutex_unlock(&appear_lock);
	put_device(&r->pub.dev);	/* the table's */
	remote_put(r);
	pcilend_changed();
	if (reborn)
		borrower_resync_node(pcilend_id_node(r_id));
}

static void borrower_queue_remote_work(struct remote *r)
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
		borrower_queue_remote_work(r);
}

static void borrower_withdraw(struct remote *r)
{
	mutex_lock(&r->lock);
	r->absent = true;
	mutex_unlock(&r->lock);
	remote_retire_if_idle(r);
}

/* Is the function offered over that link, or borrowed? */
static bool borrower_uses(struct remote *r, struct pcilend_link *link)
{
	bool offered, ours;

	mutex_lock(&r->lock);
	remote_path_generation(r, link, &offered);
	ours = r->link == link;
	mutex_unlock(&r->lock);
	return offered || ours;
}

/* It is no longer offered over @link. Return: was the lease, if there is one, going over that? */
static bool borrower_leave_path(struct remote *r, struct pcilend_link *link, bool *left)
{
	bool offered, ours;

	mutex_lock(&r->lock);
	remote_path_generation(r, link, &offered);
	ours = r->link == link;
	*left = remote_path_gone(r, link);
	mutex_unlock(&r->lock);
	if (offered && *left)
		pcilend_changed();
	return ours;
}

/* The same, and nothing goes over that link any more: a lease that did is lost. */
static void borrower_lose_path(struct remote *r, struct pcilend_link *link,
			       enum pcilend_lost_reason reason, bool fenced)
{
	bool left;

	if (borrower_leave_path(r, link, &left))
		remote_lost(r, reason, fenced);
	if (!left)
		borrower_withdraw(r);
}

static struct remote *remote_alloc(struct pcilend_link *link,
				   const struct pcilend_msg_function *info)
{
	struct remote *r = kzalloc(sizeof(*r), GFP_KERNEL);

	if (!r)
		return NULL;
	device_initialize(&r->pub.dev);
	r->pub.dev.bus = &pcilend_bus;
	r->pub.dev.parent = pcilend_bus_root;
	r->pub.dev.release = remote_release;
	r->pub.id = le32_to_cpu(info->id);
	import_uuid(&r->pub.uuid, info->uuid);
	r->pub.info = *info;
	r->link = pcilend_link_get(link);
	set_dev_node(&r->pub.dev, dev_to_node(&link->pdev->dev));
	mutex_init(&r->frontends);
	mutex_init(&r->operation);
	mutex_init(&r->lock);
	mutex_init(&r->reaching);
	INIT_LIST_HEAD(&r->slots);
	INIT_WORK(&r->work, remote_work);
	INIT_WORK(&r->offer_work, remote_offer_work);
	INIT_WORK(&r->lost_work, remote_lost_work);
	INIT_WORK(&r->carrier_work, remote_carrier_work);
	INIT_WORK(&r->reset_work, remote_reset_work);
	INIT_WORK(&r->recall_work, remote_recall_work);
	INIT_WORK(&r->return_work, remote_return_work);
	INIT_DELAYED_WORK(&r->reach_work, remote_reach_work);
	mutex_lock(&r->lock);
	remote_path_seen(r, link);
	mutex_unlock(&r->lock);
	if (dev_set_name(&r->pub.dev, "%x", r->pub.id)) {
		put_device(&r->pub.dev);
		return NULL;
	}
	return r;
}

static unsigned int borrower_count_remotes(struct pcilend_link *link)
{
	unsigned int count = 0;
	u32 node = READ_ONCE(link->peer_node);
	struct remote *r;

	mutex_lock(&remotes_lock);
	list_for_each_entry(r, &remotes, node)
		count += pcilend_id_node(r->pub.id) == node;
	mutex_unlock(&remotes_lock);
	return count;
}

/* Has the lender stopped the function after lease @lease of ours, as this notice tells? */
static bool borrower_tells_stopped(const struct pcilend_msg_function *info, u32 lease)
{
	return le32_to_cpu(info->borrower) != pcilend_node || le32_to_cpu(info->lease) != lease;
}

/* The lease's link is lost, but the lender is there: it is asked over another one. */
static void borrower_return_again(struct remote *r)
{
	get_device(&r->pub.dev);
	if (!queue_work(pcilend_wq, &r->return_work))
		put_device(&r->pub.dev);
}

/* What a notice means for our lease. Sequence numbers tell notices from before the grant. */
static void borrower_compare_lease(struct remote *r, struct pcilend_link *link,
				   const struct pcilend_msg_function *info, u32 sequence)
{
	u32 told = le32_to_cpu(info->borrower) == pcilend_node ? le32_to_cpu(info->lease) : 0;
	bool settled = false;
	bool lost = false, again = false;
	u32 orphan = 0;

	mutex_lock(&r->lock);
	if (r->link != link) {
		/* Only a lease's own link tells of it, in order. */
		again = r->state == REMOTE_RETURNING;
		orphan = told != r->lease ? told : 0;
		mutex_unlock(&r->lock);
		goto out;
	}
	switch (r->state) {
	case REMOTE_IDLE:
		orphan = told;
		break;
	case REMOTE_BORROWING:
		break;
	case REMOTE_HELD:
		lost = borrower_tells_stopped(info, r->lease) && (s32)(sequence - r->granted) > 0;
		break;
	case REMOTE_LOST:
		r->fenced |= borrower_tells_stopped(info, r->lease);
		break;
	case REMOTE_RETURNING:
		settled = borrower_tells_stopped(info, r->lease);
		if (!settled && info->state == PCILEND_FUNCTION_BORROWED)
			orphan = r->lease;
		break;
	}
	mutex_unlock(&r->lock);

out:
	if (again)
		borrower_return_again(r);
	if (lost)
		remote_lost(r, PCILEND_LOST_REVOKED, true);
	if (settled)
		remote_settled(r);
	if (orphan)
		remote_return_async(r, link, orphan);
}

/* Domains name functions by their UUIDs: no node may show that of another node's function. */
static bool borrower_uuid_is_taken(const struct pcilend_msg_function *info)
{
	bool taken = is_local_uuid(info->uuid);
	struct remote *r;

	mutex_lock(&remotes_lock);
	list_for_each_entry(r, &remotes, node)
		taken |= pcilend_id_node(r->pub.id) != pcilend_id_node(le32_to_cpu(info->id)) &&
			 !memcmp(&r->pub.uuid, info->uuid, sizeof(info->uuid));
	mutex_unlock(&remotes_lock);
	return taken;
}

static void borrower_appear(struct pcilend_link *link, const struct pcilend_msg_function *info,
			    u32 sequence)
{
	struct remote *r, *other;
	int err;

	lockdep_assert_held(&appear_lock);
	if (borrower_uuid_is_taken(info)) {
		pcilend_channel_bad(link, sequence,
				    "it shows a function with the UUID of another node's");
		/* The impostor may be the other one, and go. */
		queue_delayed_work(pcilend_wq, &borrower_link(link)->sync,
				   msecs_to_jiffies(IMPOSTOR_MS));
		return;
	}
	if (borrower_count_remotes(link) >= REMOTES_MAX) {
		pci_warn_once(link->pdev, "more than %u functions are offered by this node: the rest is ignored\n",
			      REMOTES_MAX);
		return;
	}
	/* Each costs a device, frontends, and udev: one that shows ever new ones has to wait. */
	if (!__ratelimit(&borrower_link(link)->appear_limit)) {
		queue_delayed_work(pcilend_wq, &borrower_link(link)->sync,
				   msecs_to_jiffies(APPEAR_MS));
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
	get_device(&r->pub.dev);	/* it may be withdrawn as soon as it is in the table */
	mutex_lock(&remotes_lock);
	list_for_each_entry(other, &remotes, node) {
		if (other->pub.id > r->pub.id)
			break;
	}
	list_add_tail(&r->node, &other->node);
	mutex_unlock(&remotes_lock);
	/* Our lease on one that went is of no use to anybody. */
	borrower_compare_lease(r, link, info, sequence);
	borrower_queue_remote_work(r);
	remote_event(r, PCILEND_EVENT_FUNCTION);
	remote_put(r);
}

/*
 * Takes what a notice says of @r. How it is lent counts from the next borrow on: the lender tells
 * it again when this one is over.
 * Return: false if it is another one under the same id, which is shown when @r has gone.
 */
static bool borrower_update(struct remote *r, struct pcilend_link *link,
			    const struct pcilend_msg_function *info, bool *news)
{
	lockdep_assert_held(&appear_lock);
	guard(mutex)(&r->lock);
	if (r->dying || !pcilend_function_same(&r->pub.info, info)) {
		r->reborn = true;
		return false;
	}
	*news = remote_path_seen(r, link) || r->absent;
	r->absent = false;
	if (remote_listens_to(r, link)) {
		struct pcilend_msg_function told = *info;

		if (r->state != REMOTE_IDLE) {
			told.flags = r->pub.info.flags;
			told.set = r->pub.info.set;
		}
		*news |= !!memcmp(&r->pub.info, &told, sizeof(told));
		r->pub.info = told;
	}
	return true;
}

static void borrower_handle_function(struct pcilend_link *link, const struct pcilend_message *msg)
{
	const struct pcilend_msg_function *info = pcilend_message_payload(msg);
	u32 sequence = le32_to_cpu(pcilend_message_header(msg)->sequence);
	bool same = false, news = false;
	struct remote *r;

	mutex_lock(&appear_lock);
	r = remote_find(le32_to_cpu(info->id));
	if (r)
		same = borrower_update(r, link, info, &news);
	else
		borrower_appear(link, info, sequence);
	mutex_unlock(&appear_lock);
	if (!r)
		return;
	if (same)
		borrower_compare_lease(r, link, info, sequence);
	else
		borrower_withdraw(r);
	if (news)
		remote_event(r, PCILEND_EVENT_FUNCTION);
	remote_put(r);
}

static void borrower_handle_withdraw(struct pcilend_link *link, const struct pcilend_msg_id *msg)
{
	struct remote *r = remote_find(le32_to_cpu(msg->id));

	if (!r)
		return;
	borrower_lose_path(r, link, PCILEND_LOST_GONE, true);
	remote_put(r);
}

static void borrower_handle_lost(const struct pcilend_msg_lease *msg)
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

static void borrower_handle_was_reset(const struct pcilend_msg_lease *msg)
{
	struct remote *r = remote_find(le32_to_cpu(msg->id));

	if (!r)
		return;
	remote_was_reset(r, le32_to_cpu(msg->lease));
	remote_put(r);
}

/* One that nobody waits for, as when the function is being returned, is no news. */
static void borrower_handle_intx_raised(struct pcilend_link *link,
					const struct pcilend_msg_lease *msg)
{
	struct remote *r = remote_find(le32_to_cpu(msg->id));

	if (!r)
		return;
	mutex_lock(&r->lock);
	if (r->state == REMOTE_HELD && r->lease == le32_to_cpu(msg->lease) && r->link == link &&
	    r->intx)
		pcilend_virtual_intx_raised(r->intx);
	mutex_unlock(&r->lock);
	remote_put(r);
}

/* The same of vectors. */
static void borrower_handle_msi_raised(struct pcilend_link *link,
				       const struct pcilend_msg_msi_raised *msg)
{
	struct remote *r = remote_find(le32_to_cpu(msg->id));

	if (!r)
		return;
	mutex_lock(&r->lock);
	if (r->state == REMOTE_HELD && r->lease == le32_to_cpu(msg->lease) && r->link == link &&
	    r->relay)
		pcilend_virtual_relay_raised(r->relay, le64_to_cpu(msg->vectors));
	mutex_unlock(&r->lock);
	remote_put(r);
}

/* What was told over @link of interrupts, and of what a function reaches, may be lost. */
static void borrower_doubt(struct pcilend_link *link)
{
	struct remote *r;

	for (r = remote_next(NULL); r; r = remote_next(r)) {
		bool over;

		mutex_lock(&r->lock);
		over = r->link == link;
		if (over && r->intx)
			pcilend_virtual_intx_doubt(r->intx);
		if (over && r->relay)
			pcilend_virtual_relay_doubt(r->relay);
		mutex_unlock(&r->lock);
		if (over)
			remote_reach_doubt(r);
	}
}

static void borrower_handle_recall(const struct pcilend_msg_recall *msg)
{
	struct remote *r = remote_find(le32_to_cpu(msg->id));

	if (!r)
		return;
	remote_recalled(r, le32_to_cpu(msg->lease), le32_to_cpu(msg->grace_ms));
	remote_put(r);
}

static void borrower_handle_unreached(const struct pcilend_msg_unreached *msg)
{
	struct remote *r = remote_find(le32_to_cpu(msg->id));

	if (!r)
		return;
	remote_unreached(r, le32_to_cpu(msg->lease), le32_to_cpu(msg->target));
	remote_put(r);
}

static void borrower_withdraw_all(struct pcilend_link *link)
{
	struct remote *r;
	bool left;

	for (r = remote_next(NULL); r; r = remote_next(r)) {
		if (!borrower_uses(r, link))
			continue;
		borrower_leave_path(r, link, &left);
		if (!left)
			borrower_withdraw(r);
	}
}

static void borrower_handle_connected(struct pcilend_link *link,
				      const struct pcilend_msg_connected *msg)
{
	pcilend_link_set_peer_connected(link, le32_to_cpu(msg->connected));
	borrower_resync(link);
}

/* Called in order of arrival, one at a time per link, in process context. */
static void borrower_notice(struct pcilend_link *link, const struct pcilend_message *msg)
{
	u16 type = le16_to_cpu(pcilend_message_header(msg)->type);
	const void *payload = pcilend_message_payload(msg);

	if (type == PCILEND_MSG_CONNECTED) {
		borrower_handle_connected(link, payload);
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
		borrower_handle_function(link, msg);
		break;
	case PCILEND_MSG_WITHDRAW:
		borrower_handle_withdraw(link, payload);
		break;
	case PCILEND_MSG_LOST:
		borrower_handle_lost(payload);
		break;
	case PCILEND_MSG_WAS_RESET:
		borrower_handle_was_reset(payload);
		break;
	case PCILEND_MSG_INTX_RAISED:
		borrower_handle_intx_raised(link, payload);
		break;
	case PCILEND_MSG_RECALL:
		borrower_handle_recall(payload);
		break;
	case PCILEND_MSG_UNREACHED:
		borrower_handle_unreached(payload);
		break;
	}
}

/* A lender speaks of a function of its own that is borrowed here. */
static void borrower_request(struct pcilend_link *link, const struct pcilend_message *msg)
{
	const struct pcilend_msg_msi_raised *in = pcilend_message_payload(msg);
	bool own = pcilend_id_node(le32_to_cpu(in->id)) == msg->peer;

	if (own)
		borrower_handle_msi_raised(link, in);
	pcilend_channel_reply(link, msg, own ? 0 : -EINVAL, NULL);
}

/* Asks for all notices; what the peer does not name is not there any more. */
static void borrower_sync_work(struct work_struct *work)
{
	struct borrower_link *ours = container_of(work, struct borrower_link, sync.work);
	struct pcilend_link *link = ours->link;
	u32 generation = ours->sync_generation + 1;
	u64 losses = pcilend_link_losses(link);
	struct remote *r;

	WRITE_ONCE(ours->synced_at, pcilend_now());
	if (!READ_ONCE(link->peer_connected)) {
		borrower_withdraw_all(link);
		return;
	}
	WRITE_ONCE(ours->sync_generation, generation);
	/* An answer whose notices may have been lost with the link says nothing. */
	if (pcilend_channel_request(link, PCILEND_MSG_SYNC, NULL, NULL) ||
	    pcilend_link_losses(link) != losses) {
		if (pcilend_link_is_up(link, NULL))
			queue_delayed_work(pcilend_wq, &ours->sync,
					   msecs_to_jiffies(SYNC_RETRY_MS));
		return;
	}
	pcilend_borrower_confirm_ends(link);
	/* The notices came before the answer, but are handled only while the link is up. */
	pcilend_channel_flush_notices(link);
	if (pcilend_link_losses(link) != losses || !pcilend_link_is_up(link, NULL))
		return;
	for (r = remote_next(NULL); r; r = remote_next(r)) {
		bool offered, ours;
		u32 seen;

		mutex_lock(&r->lock);
		seen = remote_path_generation(r, link, &offered);
		ours = r->link == link;
		mutex_unlock(&r->lock);
		if (!(offered || ours) || seen == generation)
			continue;
		borrower_lose_path(r, link, PCILEND_LOST_GONE, true);
		if (ours)
			remote_settled(r);
	}
}

/* One of them may have told of a reset. */
static void borrower_notices_lost(struct pcilend_link *link)
{
	struct remote *r;

	for (r = remote_next(NULL); r; r = remote_next(r)) {
		if (READ_ONCE(r->link) == link)
			remote_was_reset(r, 0);
	}
	borrower_doubt(link);
	borrower_resync(link);
}

/* From work items: frontends may wait for what waits for the link. */
static void borrower_tell_carrier(struct pcilend_link *link)
{
	struct remote *r;

	for (r = remote_next(NULL); r; r = remote_next(r)) {
		if (READ_ONCE(r->link) != link)
			continue;
		get_device(&r->pub.dev);
		if (!queue_work(pcilend_frontend_wq, &r->carrier_work))
			put_device(&r->pub.dev);
	}
}

static void borrower_link_up(struct pcilend_link *link)
{
	borrower_tell_carrier(link);
	borrower_doubt(link);
	borrower_resync(link);
}

/* What was under way on it has to be told over the others. */
static void borrower_link_down(struct pcilend_link *link)
{
	u32 node = READ_ONCE(link->peer_node);

	borrower_tell_carrier(link);
	if (node)
		borrower_resync_node(node);
}

/* No heartbeat for as long as a lease lasts: the lender has taken everything back, or is dead. */
static void borrower_silent(struct pcilend_link *link)
{
	struct remote *r;

	for (r = remote_next(NULL); r; r = remote_next(r)) {
		if (borrower_uses(r, link))
			borrower_lose_path(r, link, PCILEND_LOST_EXPIRED, false);
	}
}

/* That boot of the lender is over, and nothing of it does DMA any more. */
static void borrower_peer_dead(struct pcilend_link *link)
{
	struct remote *r;

	for (r = remote_next(NULL); r; r = remote_next(r)) {
		if (READ_ONCE(r->link) != link)
			continue;
		remote_lost(r, PCILEND_LOST_GONE, true);
		remote_settled(r);
	}
}

/* A function that is borrowed over this link, with a reference; or NULL. */
static struct remote *borrower_borrowed_over(struct pcilend_link *link)
{
	struct remote *r;

	for (r = remote_next(NULL); r; r = remote_next(r)) {
		bool busy;

		mutex_lock(&r->lock);
		busy = r->link == link && r->state != REMOTE_IDLE;
		mutex_unlock(&r->lock);
		if (busy)
			break;
	}
	return r;
}

/* A return that was tried, and that nobody acknowledged: there will be no news of it any more. */
static void borrower_forget_unacknowledged(struct remote *r)
{
	bool tried;

	if (!mutex_trylock(&r->operation))
		return;
	mutex_lock(&r->lock);
	tried = r->state == REMOTE_RETURNING;
	mutex_unlock(&r->lock);
	if (tried)
		remote_settled(r);
	mutex_unlock(&r->operation);
}

/*
 * The adapter is going: returns when nothing is borrowed over it any more. Who has a function open
 * then finds it dead, and may keep it open for as long as it likes.
 */
static void borrower_link_leaving(struct pcilend_link *link)
{
	unsigned int seconds = 0;
	struct remote *r;

	disable_delayed_work_sync(&borrower_link(link)->sync);
	for (r = remote_next(NULL); r; r = remote_next(r)) {
		if (borrower_uses(r, link))
			borrower_lose_path(r, link, PCILEND_LOST_GONE, false);
	}
	while ((r = borrower_borrowed_over(link))) {
		if (seconds++ % 10 == 5)
			pci_notice(link->pdev, "pcilend: waiting for function %x to be returned: 'pcilend list' says who uses it\n",
				   r->pub.id);
		borrower_forget_unacknowledged(r);
		wait_event_timeout(link->idle, READ_ONCE(r->state) == REMOTE_IDLE, HZ);
		remote_put(r);
	}
	for (r = remote_next(NULL); r; r = remote_next(r))
		remote_leave_aperture(r, link);
}

static int borrower_link_init(struct pcilend_link *link)
{
	struct borrower_link *ours = kzalloc(sizeof(*ours), GFP_KERNEL);

	if (!ours)
		return -ENOMEM;
	ours->link = link;
	INIT_DELAYED_WORK(&ours->sync, borrower_sync_work);
	ratelimit_state_init(&ours->appear_limit, msecs_to_jiffies(APPEAR_MS), APPEAR_MAX);
	link->borrower = ours;
	return 0;
}

const struct pcilend_borrower_ops pcilend_borrower_link_ops = {
	.init = borrower_link_init,
	.added = pcilend_reach_link_added,
	.usable = pcilend_frontend_adapter_added,
	.up = borrower_link_up,
	.down = borrower_link_down,
	.request = borrower_request,
	.notice = borrower_notice,
	.notices_lost = borrower_notices_lost,
	.late_answer = pcilend_borrower_late_answer,
	.silent = borrower_silent,
	.peer_dead = borrower_peer_dead,
	.leaving = borrower_link_leaving,
	.gone = pcilend_frontend_adapter_gone,
	.removed = pcilend_reach_link_removed,
};

int pcilend_borrower_init(bool (*is_local)(const u8 uuid[16]))
{
	int err;

	is_local_uuid = is_local;
	pcilend_reach_start();
	err = pcilend_bus_register();
	if (err)
		return err;
	err = pcilend_iommu_init();
	if (err)
		goto err_bus;
	err = pcilend_remote_lease_init();
	if (err)
		goto err_iommu;
	return 0;

err_iommu:
	pcilend_iommu_exit();
err_bus:
	pcilend_bus_unregister();
	return err;
}

/* No link is left, and no remote function. */
void pcilend_borrower_exit(void)
{
	remote_forget_unconfirmed();
	pcilend_remote_lease_exit();
	pcilend_iommu_exit();
	pcilend_bus_unregister();
}
