// SPDX-License-Identifier: GPL-2.0-only
/*
 * What happens to a link, as far as functions are offered or borrowed over it.
 */

#include <linux/delay.h>
#include <linux/slab.h>

#include "borrower/borrower.h"
#include "borrower/iommu.h"

#define SYNC_RETRY_MS 1000
#define SYNC_GAP_MS 200		/* between two, however often the peer gives reason for one */

void pcilend_borrower_resync(struct pcilend_link *link)
{
	struct borrower_link *ours = borrower_link(link);
	u64 next = READ_ONCE(ours->synced_at) + SYNC_GAP_MS, now = pcilend_now();

	mod_delayed_work(pcilend_wq, &ours->sync, msecs_to_jiffies(next > now ? next - now : 0));
}

void pcilend_borrower_resync_node(u32 node)
{
	struct pcilend_link *link;

	for (link = pcilend_link_next(NULL); link; link = pcilend_link_next(link)) {
		if (pcilend_link_reaches(link, node))
			pcilend_borrower_resync(link);
	}
}

/* What was told over @link of functions, their interrupts, and what they reach, may be lost. */
void pcilend_borrower_doubt(struct pcilend_link *link)
{
	struct remote *r;

	for (r = remote_next(NULL); r; r = remote_next(r)) {
		bool over;

		mutex_lock(&r->lock);
		over = r->link == link;
		if (over && r->virtual)
			pcilend_virtual_doubt(r->virtual);
		if (over && r->intx)
			pcilend_virtual_intx_doubt(r->intx);
		if (over && r->relay)
			pcilend_virtual_relay_doubt(r->relay);
		mutex_unlock(&r->lock);
		if (over)
			remote_reach_doubt(r);
	}
}

static void borrower_withdraw_all(struct pcilend_link *link)
{
	struct remote *r;
	bool left;

	for (r = remote_next(NULL); r; r = remote_next(r)) {
		if (!remote_uses(r, link))
			continue;
		remote_leave_path(r, link, &left);
		if (!left)
			remote_withdraw(r);
	}
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
		remote_lose_path(r, link, PCILEND_LOST_GONE, true);
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
	pcilend_client_doubt(link);
	pcilend_borrower_doubt(link);
	pcilend_borrower_resync(link);
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
	pcilend_borrower_doubt(link);
	pcilend_borrower_resync(link);
}

/* What was under way on it has to be told over the others. */
static void borrower_link_down(struct pcilend_link *link)
{
	u32 node = READ_ONCE(link->peer_node);

	borrower_tell_carrier(link);
	pcilend_client_link_down(link);
	if (node)
		pcilend_borrower_resync_node(node);
}

/* No heartbeat for as long as a lease lasts: the lender has taken everything back, or is dead. */
static void borrower_silent(struct pcilend_link *link)
{
	struct remote *r;

	for (r = remote_next(NULL); r; r = remote_next(r)) {
		if (remote_uses(r, link))
			remote_lose_path(r, link, PCILEND_LOST_EXPIRED, false);
	}
	pcilend_client_link_silent(link);
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
	pcilend_client_peer_dead(link);
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

/* Until users of iommufd have unmapped what functions reached over the link. */
static void borrower_await_unmapped(struct pcilend_link *link)
{
	unsigned int seconds = 0;

	while (!pcilend_iommu_leave(link)) {
		if (seconds++ % 10 == 5)
			pci_notice(link->pdev, "pcilend: waiting for memory to be unmapped that functions reached over it: end who has /dev/iommu open ('fuser -v /dev/iommu')\n");
		ssleep(1);
	}
}

/*
 * The adapter is going: returns when nothing is borrowed over it any more, and no memory mapped for
 * that. Who has a function open then finds it dead, and may keep it open for as long as it likes.
 */
static void borrower_link_leaving(struct pcilend_link *link)
{
	unsigned int seconds = 0;
	struct remote *r;

	disable_delayed_work_sync(&borrower_link(link)->sync);
	for (r = remote_next(NULL); r; r = remote_next(r)) {
		if (remote_uses(r, link))
			remote_lose_path(r, link, PCILEND_LOST_GONE, false);
	}
	while ((r = borrower_borrowed_over(link))) {
		if (seconds++ % 10 == 5)
			pci_notice(link->pdev, "pcilend: waiting for function %x to be returned: 'pcilend list' says who uses it\n",
				   r->pub.id);
		borrower_forget_unacknowledged(r);
		wait_event_timeout(link->idle, READ_ONCE(r->state) == REMOTE_IDLE, HZ);
		remote_put(r);
	}
	borrower_await_unmapped(link);
	for (r = remote_next(NULL); r; r = remote_next(r))
		remote_leave_aperture(r, link);
	pcilend_client_link_leaving(link);
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
	.request = pcilend_borrower_request,
	.notice = pcilend_borrower_notice,
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

	remote_table_init(is_local);
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
