// SPDX-License-Identifier: GPL-2.0-only
/*
 * The lender and the nodes it lends to: who may see its functions, and what happens to leases as
 * a peer comes, goes, and comes back as another boot.
 */

#include <linux/bitmap.h>
#include <linux/slab.h>

#include "lender/lender.h"

static DECLARE_BITMAP(connected, PCILEND_NODE_MAX + 1);
/* Nodes that are being disconnected, or are found to borrow something: they are granted nothing. */
static DECLARE_BITMAP(peer_closing, PCILEND_NODE_MAX + 1);
static atomic_t peer_changes = ATOMIC_INIT(0);	/* of `connected` */

bool pcilend_lender_connected(u32 node)
{
	return node <= PCILEND_NODE_MAX && test_bit(node, connected);
}

/*
 * May the node be granted a lease on the function, whose lock is held? What holds a lease already
 * is asked of pcilend_lease_check() only, whatever becomes of the connection.
 */
bool pcilend_lender_grants(struct pcilend_function *fn, u32 node)
{
	lockdep_assert_held(&fn->lock);
	return pcilend_function_visible(fn, node) && !test_bit(node, peer_closing);
}

static void lender_peer_tell_connected(u32 node, bool on)
{
	const struct pcilend_msg_connected msg = { .connected = cpu_to_le32(on) };
	struct pcilend_link *link;

	pcilend_changed();
	for (link = pcilend_link_next(NULL); link; link = pcilend_link_next(link)) {
		if (pcilend_link_reaches(link, node))
			pcilend_channel_notify(link, PCILEND_MSG_CONNECTED, &msg);
		if (READ_ONCE(link->peer_node) == node)
			pcilend_event_link(link);
	}
}

/*
 * Offers this host's functions to a node, which need not be there yet.
 * @adapter: of this host, which the node is pinned to; or NULL
 */
int pcilend_lender_connect(u32 node, const char *adapter, struct netlink_ext_ack *extack)
{
	int err = 0;

	if (!node || node > PCILEND_NODE_MAX) {
		NL_SET_ERR_MSG(extack, "node ids are 1 to 65535: see 'pcilend link' for those of the peers");
		return -EINVAL;
	}
	if (node == pcilend_node) {
		NL_SET_ERR_MSG(extack, "that is this host's own node id: name a peer, see 'pcilend link'");
		return -EINVAL;
	}
	if (adapter)
		err = pcilend_pin(node, adapter, extack);
	if (err)
		return err;
	if (!test_and_set_bit(node, connected)) {
		atomic_inc(&peer_changes);
		lender_peer_tell_connected(node, true);
	} else if (!adapter) {
		NL_SET_ERR_MSG(extack, "it is connected already: see 'pcilend link'");
		return -EALREADY;
	}
	return 0;
}

/*
 * Has the node (0: any) a lease on a function of this host, as a client of a shared one, too, or
 * one whose end is not settled yet?
 */
bool pcilend_lender_lends(u32 node)
{
	struct pcilend_function *fn;

	for (fn = pcilend_function_next(NULL); fn; fn = pcilend_function_next(fn)) {
		bool does;

		mutex_lock(&fn->lock);
		does = fn->lease.number && (!node || fn->lease.node == node ||
					    pcilend_share_has_client(fn, node));
		mutex_unlock(&fn->lock);
		if (does) {
			pcilend_function_put(fn);
			return true;
		}
	}
	return false;
}

/*
 * Until it is clear that the node borrows nothing, it is connected. Whoever grants a lease holds
 * the function's lock, so that one is found here, or finds the node closing.
 */
int pcilend_lender_disconnect(u32 node, struct netlink_ext_ack *extack)
{
	bool busy;

	if (!node || !pcilend_lender_connected(node)) {
		NL_SET_ERR_MSG(extack, "it is not connected: see 'pcilend link'");
		return -ENOTCONN;
	}
	if (test_and_set_bit(node, peer_closing)) {
		NL_SET_ERR_MSG(extack, "it is being disconnected already: see 'pcilend link'");
		return -EALREADY;
	}
	busy = pcilend_lender_lends(node);
	if (!busy) {
		clear_bit(node, connected);
		atomic_inc(&peer_changes);
	}
	clear_bit(node, peer_closing);
	if (busy) {
		NL_SET_ERR_MSG(extack, "it borrows functions of this host: see 'pcilend list', return them there first");
		return -EBUSY;
	}
	lender_peer_tell_connected(node, false);
	pcilend_unpin(node);
	return 0;
}

/*
 * Tells the peer about all functions it may see, and of its clients what they may not have heard.
 * In its request's work item.
 * Return: 0, or -EAGAIN: not all notices went out, or nodes were connected or disconnected
 * meanwhile; what the notices leave out may be there all the same.
 */
int pcilend_lender_sync(struct pcilend_link *link)
{
	int changes = atomic_read(&peer_changes);
	u64 losses = pcilend_link_losses(link);
	struct pcilend_function *fn;
	int err = 0;
	u16 node;

	for (fn = pcilend_function_next(NULL); fn; fn = pcilend_function_next(fn)) {
		/* The peer may be up before we are. */
		if (!pcilend_link_is_up(link, &node))
			err = -EAGAIN;
		if (err) {
			pcilend_function_put(fn);
			break;
		}
		pcilend_channel_wait_room(link);
		mutex_lock(&fn->lock);
		if (fn->lease.state != PCILEND_FUNCTION_LOCAL &&
		    pcilend_function_visible(fn, node)) {
			if (pcilend_function_notify(fn, link))
				err = -EAGAIN;
			pcilend_function_tell_recall(fn, link);
		}
		mutex_unlock(&fn->lock);
	}
	if (pcilend_share_sync(link) || pcilend_withdrawn_sync(link) ||
	    pcilend_link_losses(link) != losses || atomic_read(&peer_changes) != changes)
		err = -EAGAIN;
	return err;
}

/* The same boot of the peer is there (again): its leases go on. */
static void lender_peer_lender_link_up(struct pcilend_link *link)
{
	struct pcilend_msg_connected msg;
	u16 node;

	pcilend_dma_resume(link);
	pcilend_share_link_up(link);
	pcilend_expose_link_up(link);
	if (!pcilend_link_is_up(link, &node))
		return;
	msg.connected = cpu_to_le32(pcilend_lender_connected(node));
	pcilend_channel_notify(link, PCILEND_MSG_CONNECTED, &msg);
}

/*
 * That boot of the peer is over: on return, all it had borrowed is fenced and reset, nothing is
 * exposed to it, no function reaches it, and it holds no place in the aperture.
 */
static void lender_peer_dead(struct pcilend_link *link, u32 node, u64 boot)
{
	struct pcilend_lease_event event = {
		.type = PCILEND_LEASE_PEER_DEAD,
		.node = node,
		.boot = boot,
	};
	struct pcilend_function *fn;

	for (fn = pcilend_function_next(NULL); fn; fn = pcilend_function_next(fn)) {
		mutex_lock(&fn->lock);
		pcilend_function_apply(fn, &event, NULL);
		if (fn->todo)
			pcilend_function_queue_settle(fn);
		mutex_unlock(&fn->lock);
	}
	for (fn = pcilend_function_next(NULL); fn; fn = pcilend_function_next(fn))
		flush_work(&fn->settle);
	pcilend_share_peer_dead(link, boot);
	pcilend_reach_peer_dead(link);
	pcilend_expose_peer_dead(link);
	pcilend_withdrawn_link_over(link);
}

/* Any context. */
static void lender_peer_lender_link_lost(struct pcilend_link *link)
{
	pcilend_dma_lost(link);
	pcilend_share_link_lost(link);
}

static int lender_peer_lender_link_init(struct pcilend_link *link)
{
	struct lender_link *ours = kzalloc(sizeof(*ours), GFP_KERNEL);

	if (!ours)
		return -ENOMEM;
	ours->link = link;
	INIT_LIST_HEAD(&ours->lent);
	INIT_LIST_HEAD(&ours->reached);
	pcilend_intx_link_init(ours);
	pcilend_expose_link_init(ours);
	INIT_WORK(&ours->share_lost, pcilend_share_lost_work);
	link->lender = ours;
	return 0;
}

static void lender_peer_lender_link_gone(struct pcilend_link *link)
{
	pcilend_expose_link_gone(lender_link(link));
	pcilend_withdrawn_link_over(link);
}

const struct pcilend_lender_ops pcilend_lender_link_ops = {
	.init = lender_peer_lender_link_init,
	.up = lender_peer_lender_link_up,
	.lost = lender_peer_lender_link_lost,
	.request = pcilend_lender_request,
	.peer_dead = lender_peer_dead,
	.gone = lender_peer_lender_link_gone,
};
