// SPDX-License-Identifier: GPL-2.0-only
/*
 * The functions that lenders offer to this host, each for as long as one of its links offers it:
 * the table, and how they come and go. What their lenders say of them is in notice.c, borrowing in
 * borrow.c, returning in return.c.
 */

#include <linux/slab.h>

#include "borrower/borrower.h"

#define IMPOSTOR_MS 60000	/* until a refused function is looked at again */
#define REMOTES_MAX 1024	/* of one node: more is not a lender, but a flood */

static bool (*is_local_uuid)(const u8 uuid[16]);	/* set once */

static LIST_HEAD(remotes);
static DEFINE_MUTEX(remotes_lock);
static DEFINE_MUTEX(appear_lock);	/* a function may appear over several links at once */

void remote_put(struct remote *r)
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

struct remote *remote_find(u32 id)
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

static void remote_queue_offer(struct remote *r)
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
	remote_queue_offer(r);
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
		/* They may have come after the offer that was queued with this work item. */
		remote_queue_offer(r);
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
	flush_work(&r->give_back_work);
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
		pcilend_borrower_resync_node(pcilend_id_node(r_id));
}

static void remote_queue_work(struct remote *r)
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
		remote_queue_work(r);
}

void remote_withdraw(struct remote *r)
{
	mutex_lock(&r->lock);
	r->absent = true;
	mutex_unlock(&r->lock);
	remote_retire_if_idle(r);
}

/* Is the function offered over that link, or borrowed? */
bool remote_uses(struct remote *r, struct pcilend_link *link)
{
	bool offered, ours;

	mutex_lock(&r->lock);
	remote_path_generation(r, link, &offered);
	ours = r->link == link;
	mutex_unlock(&r->lock);
	return offered || ours;
}

/* It is no longer offered over @link. Return: was the lease, if there is one, going over that? */
bool remote_leave_path(struct remote *r, struct pcilend_link *link, bool *left)
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
void remote_lose_path(struct remote *r, struct pcilend_link *link,
		      enum pcilend_lost_reason reason, bool fenced)
{
	bool left;

	if (remote_leave_path(r, link, &left))
		remote_lost(r, reason, fenced);
	if (!left)
		remote_withdraw(r);
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
	INIT_WORK(&r->give_back_work, remote_give_back_work);
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

static unsigned int remote_count(struct pcilend_link *link)
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

/* Domains name functions by their UUIDs: no node may show that of another node's function. */
static bool remote_uuid_is_taken(const struct pcilend_msg_function *info)
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

static void remote_appear(struct pcilend_link *link, const struct pcilend_msg_function *info,
			  u32 sequence)
{
	struct remote *r, *other;
	int err;

	lockdep_assert_held(&appear_lock);
	if (remote_uuid_is_taken(info)) {
		pcilend_channel_bad(link, sequence,
				    "it shows a function with the UUID of another node's");
		/* The impostor may be the other one, and go. */
		queue_delayed_work(pcilend_wq, &borrower_link(link)->sync,
				   msecs_to_jiffies(IMPOSTOR_MS));
		return;
	}
	if (remote_count(link) >= REMOTES_MAX) {
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
	remote_compare_lease(r, link, info, sequence);
	remote_queue_work(r);
	remote_event(r, PCILEND_EVENT_FUNCTION);
	remote_put(r);
}

/*
 * Takes what a notice says of @r. How it is lent counts from the next borrow on: the lender tells
 * it again when this one is over.
 * Return: false if it is another one under the same id, which is shown when @r has gone.
 */
static bool remote_update(struct remote *r, struct pcilend_link *link,
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

void remote_told(struct pcilend_link *link, const struct pcilend_message *msg)
{
	const struct pcilend_msg_function *info = pcilend_message_payload(msg);
	u32 sequence = le32_to_cpu(pcilend_message_header(msg)->sequence);
	bool same = false, news = false;
	struct remote *r;

	mutex_lock(&appear_lock);
	r = remote_find(le32_to_cpu(info->id));
	if (r)
		same = remote_update(r, link, info, &news);
	else
		remote_appear(link, info, sequence);
	mutex_unlock(&appear_lock);
	if (!r)
		return;
	if (same)
		remote_compare_lease(r, link, info, sequence);
	else
		remote_withdraw(r);
	if (news)
		remote_event(r, PCILEND_EVENT_FUNCTION);
	remote_put(r);
}

/* @is_local: see pcilend_borrower_init() */
void remote_table_init(bool (*is_local)(const u8 uuid[16]))
{
	is_local_uuid = is_local;
}
