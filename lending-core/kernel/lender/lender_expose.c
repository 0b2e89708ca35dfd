// SPDX-License-Identifier: GPL-2.0-only
/*
 * Peer-to-peer between lenders, on the target's side: BARs of a lent function are exported once
 * more, to another lender, when the borrower asks for it. That one is told where they are, and maps
 * them for functions that it lends to the same borrower (lender_reach.c).
 *
 * The end of the lease closes the BARs at once. But the other lender may still have them mapped, so
 * their places in the aperture are given to nobody else before it has said that it has not, or its
 * session is over.
 */

#include <linux/slab.h>

#include "lender/lender.h"

#define TELL_AGAIN_MS 1000

struct exposure {
	struct list_head node;		/* exposures_lock */
	struct pcilend_link *link;	/* to the other lender; its session ends after this */
	u32 id;
	u32 lease;
	u32 borrower;
	struct pcilend_export bar[6];
	bool closed;			/* exposures_lock: only the places are kept */
	bool hidden;			/* exposures_lock: nothing is reached there for now */
};

/* An exposure comes and goes under its link's `telling` only. */
static LIST_HEAD(exposures);
static DEFINE_MUTEX(exposures_lock);

/* Through which functions of @node reach this host, with a reference; or NULL. */
static struct pcilend_link *lender_expose_link_towards(u32 node)
{
	struct pcilend_link *link;

	for (link = pcilend_link_next(NULL); link; link = pcilend_link_next(link)) {
		if (pcilend_link_reaches(link, node) && pcilend_link_is_trusted(link))
			break;
	}
	return link;
}

static struct exposure *lender_expose_find(u32 id, const struct pcilend_link *link)
{
	struct exposure *exposure;

	lockdep_assert_held(&exposures_lock);
	list_for_each_entry(exposure, &exposures, node) {
		if (exposure->id == id && exposure->link == link)
			return exposure;
	}
	return NULL;
}

static void lender_expose_hide_bars(struct exposure *exposure, int count)
{
	int i;

	lockdep_assert_held(&exposures_lock);
	for (i = 0; i < count; i++) {
		if (exposure->bar[i].size)
			pcilend_aperture_hide(exposure->link, exposure->bar[i].iova,
					      exposure->bar[i].size);
	}
}

static void lender_expose_close_bars(struct exposure *exposure)
{
	lockdep_assert_held(&exposures_lock);
	if (exposure->closed)
		return;
	exposure->closed = true;
	if (!exposure->hidden)
		lender_expose_hide_bars(exposure, ARRAY_SIZE(exposure->bar));
	queue_delayed_work(pcilend_wq, &lender_link(exposure->link)->unexpose, 0);
}

/* The other lender has nothing of it mapped. */
static void lender_expose_put_places(struct exposure *exposure)
{
	int i;

	lockdep_assert_held(&exposures_lock);
	for (i = 0; i < ARRAY_SIZE(exposure->bar); i++) {
		if (exposure->bar[i].size)
			pcilend_aperture_export_put(exposure->link, exposure->bar[i].iova,
						    exposure->bar[i].size);
	}
	list_del(&exposure->node);
	kfree(exposure);
}

static int lender_expose_export_bars(struct exposure *exposure, const struct pcilend_function *fn)
{
	int i, err;

	for (i = 0; i < ARRAY_SIZE(exposure->bar); i++) {
		u64 size = fn->export[i].size;

		if (!size)
			continue;
		err = pcilend_aperture_export(exposure->link, pci_resource_start(fn->pdev, i),
					      size, PCILEND_PROT_BAR, &exposure->bar[i].iova);
		if (err)
			return err;
		exposure->bar[i].size = size;
	}
	return 0;
}

/* Makes the exposure if there is none. @holder has the lease, and the function is locked. */
static int lender_expose_open_bars(struct pcilend_function *fn, struct pcilend_link *link,
				   const struct pcilend_lease_event *holder)
{
	struct exposure *exposure = lender_expose_find(fn->id, link);
	int i, err;

	lockdep_assert_held(&lender_link(link)->telling);
	lockdep_assert_held(&fn->lock);
	lockdep_assert_held(&exposures_lock);
	/* The other lender has not acknowledged yet that the one before is over. */
	if (exposure)
		return exposure->closed ? -EHOSTUNREACH : 0;
	/* Somebody else resets it: asked again it will do. */
	if (fn->hidden)
		return -EAGAIN;
	exposure = kzalloc(sizeof(*exposure), GFP_KERNEL);
	if (!exposure)
		return -ENOMEM;
	exposure->link = link;
	exposure->id = fn->id;
	exposure->lease = holder->lease;
	exposure->borrower = holder->node;
	err = lender_expose_export_bars(exposure, fn);
	if (!err) {
		list_add_tail(&exposure->node, &exposures);
		return 0;
	}
	for (i = 0; i < ARRAY_SIZE(exposure->bar); i++) {
		if (exposure->bar[i].size)
			pcilend_aperture_unexport(link, exposure->bar[i].iova,
						  exposure->bar[i].size);
	}
	kfree(exposure);
	return err;
}

static void lender_expose_place_bars(const struct exposure *exposure,
				     struct pcilend_msg_exposed *msg)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(exposure->bar); i++) {
		u64 size = exposure->bar[i].size, offset;
		u32 window;

		if (!size || pcilend_aperture_locate(exposure->link, exposure->bar[i].iova, size,
						     &window, &offset))
			continue;
		msg->bar[i].offset = cpu_to_le64(offset);
		msg->bar[i].size = cpu_to_le64(size);
		msg->bar[i].window = cpu_to_le32(window);
	}
}

static void lender_expose_describe(const struct exposure *exposure, struct pcilend_msg_exposed *msg)
{
	lockdep_assert_held(&exposures_lock);
	*msg = (struct pcilend_msg_exposed) {
		.id = cpu_to_le32(exposure->id),
		.lease = cpu_to_le32(exposure->lease),
		.borrower = cpu_to_le32(exposure->borrower),
		.on = cpu_to_le32(!exposure->closed),
	};
	if (!exposure->closed)
		lender_expose_place_bars(exposure, msg);
}

/* Return: 0 if the other lender has answered that it is so; -ENOSPC; or -EHOSTUNREACH. */
static int lender_expose_tell(struct pcilend_link *link, const struct pcilend_msg_exposed *msg)
{
	int err;

	lockdep_assert_held(&lender_link(link)->telling);
	err = pcilend_channel_request(link, PCILEND_MSG_EXPOSED, msg, NULL);
	return err && err != -ENOSPC ? -EHOSTUNREACH : err;
}

/* The closed exposure to the peer of @link with the lowest id above @after; false: none. */
static bool lender_expose_next_closed(struct pcilend_link *link, u32 after,
				      struct pcilend_msg_exposed *msg)
{
	struct exposure *exposure, *found = NULL;

	mutex_lock(&exposures_lock);
	list_for_each_entry(exposure, &exposures, node) {
		if (exposure->link == link && exposure->closed && exposure->id > after &&
		    (!found || exposure->id < found->id))
			found = exposure;
	}
	if (found)
		lender_expose_describe(found, msg);
	mutex_unlock(&exposures_lock);
	return found;
}

/* Tells the peer what is closed. Return: false if it has not heard all of it. */
static bool lender_expose_tell_closed(struct pcilend_link *link)
{
	struct pcilend_msg_exposed msg;
	u32 id = 0;

	lockdep_assert_held(&lender_link(link)->telling);
	while (lender_expose_next_closed(link, id, &msg)) {
		id = le32_to_cpu(msg.id);
		if (lender_expose_tell(link, &msg))
			return false;
		mutex_lock(&exposures_lock);
		lender_expose_put_places(lender_expose_find(id, link));
		mutex_unlock(&exposures_lock);
	}
	return true;
}

static void lender_expose_unexpose_work(struct work_struct *work)
{
	struct lender_link *ours = container_of(work, struct lender_link, unexpose.work);
	struct pcilend_link *link = ours->link;
	bool heard;

	mutex_lock(&ours->telling);
	heard = lender_expose_tell_closed(link);
	mutex_unlock(&ours->telling);
	/* One that is down is told when it comes up. */
	if (!heard && pcilend_link_is_up(link, NULL))
		queue_delayed_work(pcilend_wq, &ours->unexpose, msecs_to_jiffies(TELL_AGAIN_MS));
}

static int lender_expose_open_and_describe(struct pcilend_function *fn, struct pcilend_link *link,
					   const struct pcilend_lease_event *holder, u32 node,
					   struct pcilend_msg_exposed *msg)
{
	int err;

	mutex_lock(&fn->lock);
	err = pcilend_lease_check(&fn->lease, holder->node, holder->boot, holder->lease, NULL);
	if (!err && !pcilend_function_visible(fn, node))
		err = -ECONNREFUSED;
	if (!err) {
		mutex_lock(&exposures_lock);
		err = lender_expose_open_bars(fn, link, holder);
		if (!err)
			lender_expose_describe(lender_expose_find(fn->id, link), msg);
		mutex_unlock(&exposures_lock);
	}
	mutex_unlock(&fn->lock);
	return err;
}

/* Return: 0, or -ESTALE if it was closed meanwhile. On @err it is closed. */
static int lender_expose_settle(struct pcilend_function *fn, struct pcilend_link *link, int err)
{
	struct exposure *exposure;

	mutex_lock(&exposures_lock);
	exposure = lender_expose_find(fn->id, link);
	if (err)
		lender_expose_close_bars(exposure);
	else if (exposure->closed)
		err = -ESTALE;
	mutex_unlock(&exposures_lock);
	return err;
}

/*
 * pcilend_expose - let functions of another lender reach the BARs of a lent function
 * @holder: node, boot and lease number of who asks for it
 * @node: the other lender, which must be one that may borrow the function
 *
 * Sleeps for up to PCILEND_REQUEST_MS for each exposure that is over and that one more.
 * Return: 0, also if it is so; -ESTALE if @holder does not hold the lease; -ECONNREFUSED if @node
 * may not borrow the function; -EHOSTUNREACH if there is no link to it, or it does not answer;
 * -ENOSPC, or what the IOMMU says, if the BARs can't be exported to it; -EAGAIN while the function
 * is being reset.
 */
int pcilend_expose(struct pcilend_function *fn, const struct pcilend_lease_event *holder,
		   u32 node)
{
	struct pcilend_link *link = lender_expose_link_towards(node);
	struct pcilend_msg_exposed msg;
	int err = -EHOSTUNREACH;

	if (!link)
		return err;
	mutex_lock(&lender_link(link)->telling);
	/* Whoever ends the session takes the lock afterwards. */
	if (pcilend_link_reaches(link, node) && lender_expose_tell_closed(link))
		err = lender_expose_open_and_describe(fn, link, holder, node, &msg);
	if (!err)
		err = lender_expose_settle(fn, link, lender_expose_tell(link, &msg));
	mutex_unlock(&lender_link(link)->telling);
	pcilend_link_put(link);
	return err;
}

static void lender_expose_close_all(struct pcilend_function *fn, u32 node)
{
	struct exposure *exposure;

	mutex_lock(&exposures_lock);
	list_for_each_entry(exposure, &exposures, node) {
		if (exposure->id == fn->id && (!node || exposure->link->peer_node == node))
			lender_expose_close_bars(exposure);
	}
	mutex_unlock(&exposures_lock);
}

/* Functions of @node no longer reach it, on return. That node is told later. */
void pcilend_unexpose(struct pcilend_function *fn, u32 node)
{
	lockdep_assert_held(&fn->lock);
	lender_expose_close_all(fn, node);
}

/* The function's lease is over. */
void pcilend_expose_fence(struct pcilend_function *fn)
{
	lockdep_assert_held(&fn->lock);
	lender_expose_close_all(fn, 0);
}

/* Nobody reaches the function's BARs for now. */
void pcilend_expose_hide(struct pcilend_function *fn)
{
	struct exposure *exposure;

	lockdep_assert_held(&fn->lock);
	mutex_lock(&exposures_lock);
	list_for_each_entry(exposure, &exposures, node) {
		if (exposure->id != fn->id || exposure->closed || exposure->hidden)
			continue;
		lender_expose_hide_bars(exposure, ARRAY_SIZE(exposure->bar));
		exposure->hidden = true;
	}
	mutex_unlock(&exposures_lock);
}

static int lender_expose_show_bars(struct exposure *exposure, const struct pcilend_function *fn)
{
	int i, err;

	lockdep_assert_held(&exposures_lock);
	for (i = 0; i < ARRAY_SIZE(exposure->bar); i++) {
		if (!exposure->bar[i].size)
			continue;
		err = pcilend_aperture_show(exposure->link, exposure->bar[i].iova,
					    pci_resource_start(fn->pdev, i),
					    exposure->bar[i].size, PCILEND_PROT_BAR);
		if (err) {
			lender_expose_hide_bars(exposure, i);
			return err;
		}
	}
	exposure->hidden = false;
	return 0;
}

/* What can't be reached again is closed. */
void pcilend_expose_show(struct pcilend_function *fn)
{
	struct exposure *exposure;

	lockdep_assert_held(&fn->lock);
	mutex_lock(&exposures_lock);
	list_for_each_entry(exposure, &exposures, node) {
		if (exposure->id == fn->id && !exposure->closed && exposure->hidden &&
		    lender_expose_show_bars(exposure, fn))
			lender_expose_close_bars(exposure);
	}
	mutex_unlock(&exposures_lock);
}

/* The same boot of the peer is there again. */
void pcilend_expose_link_up(struct pcilend_link *link)
{
	mod_delayed_work(pcilend_wq, &lender_link(link)->unexpose, 0);
}

/* That boot of the peer is over, and with it all that it had mapped. */
void pcilend_expose_peer_dead(struct pcilend_link *link)
{
	struct exposure *exposure, *next;

	mutex_lock(&lender_link(link)->telling);
	mutex_lock(&exposures_lock);
	list_for_each_entry_safe(exposure, next, &exposures, node) {
		if (exposure->link != link)
			continue;
		lender_expose_close_bars(exposure);
		lender_expose_put_places(exposure);
	}
	mutex_unlock(&exposures_lock);
	mutex_unlock(&lender_link(link)->telling);
}

void pcilend_expose_link_init(struct lender_link *link)
{
	mutex_init(&link->telling);
	INIT_DELAYED_WORK(&link->unexpose, lender_expose_unexpose_work);
}

/* The adapter is going, and nothing is exposed over it any more. */
void pcilend_expose_link_gone(struct lender_link *link)
{
	disable_delayed_work_sync(&link->unexpose);
}
