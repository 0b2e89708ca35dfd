// SPDX-License-Identifier: GPL-2.0-only
/*
 * Peer-to-peer between functions that this host borrows: the lender of one is asked, in advance, to
 * let it reach the BARs of another by DMA (PCILEND_MSG_REACH); if that is in another host, its
 * lender first, to expose them (PCILEND_MSG_EXPOSE). What was set up is looked up when the driver
 * of the first maps such a BAR, which may be in any context.
 *
 * Whoever has the first one by VFIO asks for nothing: it is reached where he maps it
 * (iommu_bars.c).
 */

#include <linux/slab.h>

#include "borrower/borrower.h"

#define REACH_AGAIN_MS 5000	/* between two attempts over links that were lost */

static DEFINE_SPINLOCK(reach_lock);	/* also taken in interrupts */
static struct pcilend_reach_table table;	/* reach_lock */
static LIST_HEAD(links);		/* reach_lock: all adapters of this host, borrower_link */

void pcilend_reach_start(void)
{
	pcilend_reach_init(&table);
}

/* The adapter's windows are known. */
void pcilend_reach_link_added(struct pcilend_link *link)
{
	guard(spinlock_irqsave)(&reach_lock);
	list_add(&borrower_link(link)->reach_node, &links);
}

void pcilend_reach_link_removed(struct pcilend_link *link)
{
	guard(spinlock_irqsave)(&reach_lock);
	list_del(&borrower_link(link)->reach_node);
}

static bool reach_in_window(u64 phys, u64 size)
{
	struct borrower_link *ours;
	unsigned int i;

	lockdep_assert_held(&reach_lock);
	list_for_each_entry(ours, &links, reach_node) {
		for (i = 0; i < ours->link->aperture.windows; i++) {
			const struct pcilend_window *window = &ours->link->aperture.window[i];

			if (phys < window->phys + window->size && window->phys < phys + size)
				return true;
		}
	}
	return false;
}

bool pcilend_reach_is_window(u64 phys, u64 size)
{
	guard(spinlock_irqsave)(&reach_lock);
	return reach_in_window(phys, size);
}

int pcilend_reach_lookup(struct pcilend_remote *remote, phys_addr_t phys, size_t size,
			 dma_addr_t *address)
{
	u64 found;

	guard(spinlock_irqsave)(&reach_lock);
	if (!pcilend_reach_find(&table, remote->id, phys, size, &found)) {
		*address = found;
		return 0;
	}
	return reach_in_window(phys, size) ? -EACCES : -ENOENT;
}
EXPORT_SYMBOL_GPL(pcilend_reach_lookup);

static bool reach_is_open(u32 from, u32 to)
{
	const struct pcilend_reach *reach;

	guard(spinlock_irqsave)(&reach_lock);
	reach = pcilend_reach_next(&table, from, to, NULL);
	return reach && reach->live;
}

static bool reach_is_known(u32 from, u32 to)
{
	guard(spinlock_irqsave)(&reach_lock);
	return pcilend_reach_next(&table, from, to, NULL);
}

static bool reach_is_elsewhere(u32 from, u32 to)
{
	return pcilend_id_node(from) != pcilend_id_node(to);
}

/* Whose BARs the function reaches. */
void remote_reach_report(struct remote *r, struct pcilend_report *report)
{
	const struct pcilend_reach *reach = NULL;
	u32 i;

	guard(spinlock_irqsave)(&reach_lock);
	while ((reach = pcilend_reach_next(&table, r->pub.id, 0, reach))) {
		for (i = 0; i < report->reaches && report->reach[i] < reach->to; i++)
			;
		if (!reach->live || (i < report->reaches && report->reach[i] == reach->to))
			continue;
		memmove(&report->reach[i + 1], &report->reach[i],
			(report->reaches++ - i) * sizeof(report->reach[0]));
		report->reach[i] = reach->to;
	}
}

/* Asks the target's lender to expose its BARs to a node; or no longer, for which nobody waits. */
static int reach_expose(struct remote *to, u32 node, __le32 lease, bool on)
{
	const struct pcilend_msg_expose msg = {
		.id = cpu_to_le32(to->pub.id),
		.lease = lease,
		.node = cpu_to_le32(node),
		.on = cpu_to_le32(on),
	};
	struct pcilend_link *link = remote_link(to);
	int err;

	if (on)
		err = pcilend_channel_request(link, PCILEND_MSG_EXPOSE, &msg, NULL);
	else
		err = pcilend_channel_request_async(link, PCILEND_MSG_EXPOSE, &msg);
	pcilend_link_put(link);
	return err;
}

/* Unless another function of @node uses it. The end of the target's lease ends it, too. */
static void reach_unexpose(struct remote *to, u32 node)
{
	__le32 lease = cpu_to_le32(remote_held_lease(to));
	bool used;

	scoped_guard(spinlock_irqsave, &reach_lock)
		used = pcilend_reach_used(&table, node, to->pub.id);
	if (lease && !used)
		reach_expose(to, node, lease, false);
}

/* Takes it out of the table. Return: how many targets in other hosts it had, in @target. */
static u32 reach_take_out(struct remote *r, u32 target[PCILEND_REACHES])
{
	const struct pcilend_reach *reach = NULL;
	u32 i, targets = 0;

	guard(spinlock_irqsave)(&reach_lock);
	while ((reach = pcilend_reach_next(&table, r->pub.id, 0, reach))) {
		for (i = 0; i < targets && target[i] != reach->to; i++)
			;
		if (i == targets && reach_is_elsewhere(r->pub.id, reach->to))
			target[targets++] = reach->to;
	}
	pcilend_reach_end(&table, r->pub.id);
	return targets;
}

/*
 * The lease is over, or about to be returned, and none can be set up meanwhile: from now on no
 * look-up finds anything of the function. Process context, without locks that events take.
 */
void remote_reach_end(struct remote *r)
{
	u32 target[PCILEND_REACHES], targets = reach_take_out(r, target);
	struct pcilend_remote *to;
	struct remote *other;

	while (targets--) {
		to = pcilend_remote_get(target[targets]);
		if (!to)
			continue;
		reach_unexpose(to_remote(to), pcilend_id_node(r->pub.id));
		pcilend_remote_put(to);
	}
	for (other = remote_next(NULL); other; other = remote_next(other)) {
		if (reach_is_known(other->pub.id, r->pub.id))
			remote_event(other, PCILEND_EVENT_FUNCTION);
	}
}

/*
 * @target 0: all in other hosts. Return: is that news? *by_hand: somebody has to ask for it again,
 * as not for what a user of VFIO has mapped.
 */
static bool reach_close_reaches(u32 from, u32 target, bool *by_hand)
{
	const struct pcilend_reach *reach = NULL;
	bool news = false;

	*by_hand = false;
	guard(spinlock_irqsave)(&reach_lock);
	while ((reach = pcilend_reach_next(&table, from, target, reach))) {
		if (!reach->phys || (!target && !reach_is_elsewhere(from, reach->to)))
			continue;
		if (reach->mapped) {
			news |= reach->live;
			pcilend_reach_doubt_mapped(&table, from, reach->to);
		} else {
			news = true;
			*by_hand = true;
			pcilend_reach_close(&table, from, reach->to);
		}
	}
	return news;
}

/* What is mapped for the function and not reached. Return: how many. @found: NULL, or these. */
static u32 reach_find_doubtful(u32 from, struct pcilend_reach *found)
{
	const struct pcilend_reach *reach = NULL;
	u32 count = 0;

	guard(spinlock_irqsave)(&reach_lock);
	while ((reach = pcilend_reach_next(&table, from, 0, reach))) {
		if (!reach->mapped || !reach->phys || reach->live)
			continue;
		if (found)
			found[count] = *reach;
		count++;
	}
	return count;
}

static void reach_again(struct remote *r, unsigned int ms)
{
	if (!reach_find_doubtful(r->pub.id, NULL))
		return;
	get_device(&r->pub.dev);
	if (!queue_delayed_work(pcilend_wq, &r->reach_work, msecs_to_jiffies(ms)))
		put_device(&r->pub.dev);
}

/*
 * The lender has ended it: the link to the target's lender was lost, or that one has withdrawn its
 * BARs. Process context.
 */
void remote_unreached(struct remote *r, u32 lease, u32 target)
{
	bool by_hand;

	if (remote_held_lease(r) != lease || !reach_close_reaches(r->pub.id, target, &by_hand))
		return;
	pr_notice_ratelimited("%x no longer reaches the BARs of %x: the link between their lenders was lost, or the target taken back: see 'pcilend list'%s\n",
			      r->pub.id, target, by_hand ? ", and repeat 'pcilend p2p'" : "");
	reach_again(r, REACH_AGAIN_MS);
	remote_event(r, PCILEND_EVENT_FUNCTION);
}

/* Its lender may have told that, and was not heard. Process context. */
void remote_reach_doubt(struct remote *r)
{
	bool by_hand;

	if (!reach_close_reaches(r->pub.id, 0, &by_hand))
		return;
	if (by_hand)
		pr_notice_ratelimited("%x may no longer reach what it did in other hosts, as its lender was not heard: repeat 'pcilend p2p'\n",
				      r->pub.id);
	reach_again(r, 0);
	remote_event(r, PCILEND_EVENT_FUNCTION);
}

/* Both at once: that with the lower id first. Return: as remote_lock_operation(). */
static int reach_lock_both(struct remote *a, struct remote *b, struct netlink_ext_ack *extack)
{
	const char *why = NULL;
	int err;

	if (a->pub.id > b->pub.id)
		swap(a, b);
	err = remote_lock_operation(a, &why);
	if (err)
		return pcilend_refuse(extack, err, why);
	err = remote_lock_operation(b, &why);
	if (err)
		mutex_unlock(&a->operation);
	return pcilend_refuse(extack, err, why);
}

/* What users of VFIO map is reached: see remote_reach_bar(). */
static int reach_need_no_vfio(struct remote *r, struct netlink_ext_ack *extack)
{
	bool vfio;

	mutex_lock(&r->lock);
	vfio = r->frontend && r->frontend->guests;
	mutex_unlock(&r->lock);
	if (!vfio)
		return 0;
	return pcilend_refuse(extack, -EOPNOTSUPP, "one of them is borrowed for VFIO: functions of one guest reach one another without being told to; for this host's drivers return it, and borrow it with --frontend shadow");
}

static int reach_need_lease(struct remote *r, __le32 *lease, struct netlink_ext_ack *extack)
{
	u32 id = r->pub.id;

	*lease = cpu_to_le32(remote_held_lease(r));
	if (!*lease)
		return pcilend_refuse_fmt(extack, -ENOTCONN, "%x is not borrowed by this host: run 'pcilend borrow %x'",
					  id, id);
	return 0;
}

static int reach_refuse(struct netlink_ext_ack *extack, int error)
{
	switch (error) {
	case -EOPNOTSUPP:
		return pcilend_refuse(extack, error, "the lender does not know whether its root complex routes there: if it does, load pcilend there with p2p=1");
	case -EHOSTUNREACH:
	case -EAGAIN:
		return pcilend_refuse(extack, -EHOSTUNREACH, "their lenders have lost one another meanwhile: see 'pcilend link' there, then repeat this");
	case -ENOSPC:
		return pcilend_refuse(extack, error, "it reaches as many BARs as it may: take some back with 'pcilend p2p --end'");
	case -ERANGE:
	case -EUSERS:
		return pcilend_refuse(extack, -ENOSPC, "the lender can't map a BAR at the address that is free here: return both, borrow them again, then repeat this");
	case -ENETDOWN:
		return pcilend_refuse(extack, error, "the link to a lender is down: see 'pcilend link'");
	case -ETIMEDOUT:
		return pcilend_refuse(extack, error, "a lender does not answer: see whether that host is alive, then repeat this");
	case -ENODEV:
	case -ESTALE:
		return pcilend_refuse(extack, -ESTALE, "the lease on one of them is over: see 'pcilend list', and borrow it again");
	case -ENOMEM:
		return pcilend_refuse(extack, error, "this host is out of memory");
	default:
		return pcilend_refuse(extack, error, "the lender could not map it: see the kernel log there");
	}
}

/* The target's lender does not expose it to @node. */
static int reach_refuse_exposure(struct netlink_ext_ack *extack, int error, struct remote *to,
				 u32 node)
{
	u32 lender = pcilend_id_node(to->pub.id);

	switch (error) {
	case -ECONNREFUSED:
		return pcilend_refuse_fmt(extack, error, "node %u does not offer %x to node %u: connect or allow that one there",
					  lender, to->pub.id, node);
	case -EHOSTUNREACH:
		return pcilend_refuse_fmt(extack, error, "nodes %u and %u don't reach each other: see 'pcilend link' there",
					  lender, node);
	case -ENOSPC:
		return pcilend_refuse_fmt(extack, error, "no room for its BARs between nodes %u and %u: return others first",
					  lender, node);
	case -EIO:
		return pcilend_refuse_fmt(extack, error, "node %u could not expose it: see the kernel log there",
					  lender);
	default:
		return reach_refuse(extack, error);
	}
}

static int reach_ask(struct remote *from, const struct pcilend_msg_reach *msg)
{
	struct pcilend_link *link = remote_link(from);
	int err = pcilend_channel_request(link, PCILEND_MSG_REACH, msg, NULL);

	pcilend_link_put(link);
	return err;
}

/* Places for all BARs of @to that can be reached. Return: 0; -ENOSPC; -ENXIO: it has none. */
static int reach_place_bars(struct remote *from, struct remote *to, u64 address[6])
{
	int i, err = -ENXIO;

	guard(spinlock_irqsave)(&reach_lock);
	for (i = 0; i < ARRAY_SIZE(to->bar); i++) {
		if (!to->bar[i].size)
			continue;
		err = pcilend_reach_add(&table, from->pub.id, to->pub.id, i, to->bar[i].address,
					to->bar[i].size, &address[i]);
		if (err)
			break;
	}
	return err;
}

/* What is not there is no error. */
static int reach_remove_bar(struct remote *from, struct pcilend_msg_reach *msg, int bar,
			    u64 address)
{
	int err;

	msg->on = 0;
	msg->bar = cpu_to_le32(bar);
	msg->device_address = cpu_to_le64(address);
	err = reach_ask(from, msg);
	return err == -ERANGE || err == -ESTALE || err == -ENODEV ? 0 : err;
}

static int reach_map_bar(struct remote *from, struct pcilend_msg_reach *msg, int bar, u64 address)
{
	msg->on = cpu_to_le32(1);
	msg->bar = cpu_to_le32(bar);
	msg->device_address = cpu_to_le64(address);
	return reach_ask(from, msg);
}

/* Asks the lender to take back what it has of the two. What it does not have is no error. */
static int reach_remove_bars(struct remote *from, struct remote *to, struct pcilend_msg_reach *msg)
{
	const struct pcilend_reach *reach = NULL;
	u64 address[ARRAY_SIZE(to->bar)] = { };
	int i, last, err = 0;

	scoped_guard(spinlock_irqsave, &reach_lock) {
		while ((reach = pcilend_reach_next(&table, from->pub.id, to->pub.id, reach)))
			address[reach->bar] = reach->address;
	}
	for (i = 0; i < ARRAY_SIZE(address); i++) {
		if (!address[i])
			continue;
		last = reach_remove_bar(from, msg, i, address[i]);
		err = err ?: last;
	}
	return err;
}

/* Unless one of the leases was lost meanwhile: whoever notes that comes to remote_reach_end(). */
static int reach_open_bars(struct remote *from, struct remote *to)
{
	guard(spinlock_irqsave)(&reach_lock);
	if (READ_ONCE(from->state) != REMOTE_HELD || READ_ONCE(to->state) != REMOTE_HELD)
		return -ESTALE;
	return pcilend_reach_open(&table, from->pub.id, to->pub.id) ? 0 : -EAGAIN;
}

static int reach_map_bars(struct remote *from, const u64 address[6], struct pcilend_msg_reach *msg)
{
	int i, err = 0;

	for (i = 0; i < 6 && !err; i++) {
		if (address[i])
			err = reach_map_bar(from, msg, i, address[i]);
	}
	return err;
}

/* All BARs of @to that can be reached, or none. */
static int reach_add_bars(struct remote *from, struct remote *to, struct pcilend_msg_reach *msg,
			  struct netlink_ext_ack *extack)
{
	u32 node = pcilend_id_node(from->pub.id);
	bool elsewhere = reach_is_elsewhere(from->pub.id, to->pub.id);
	u64 address[ARRAY_SIZE(to->bar)] = { };
	int err;

	err = reach_place_bars(from, to, address);
	if (err == -ENXIO)
		return pcilend_refuse_fmt(extack, err, "%x has no BAR that this host reaches: name another one as the target",
					  to->pub.id);
	if (err) {
		reach_refuse(extack, err);
		goto err_close;
	}
	/* The places are taken by now, so that nobody else ends this again: see reach_unexpose().
	 */
	err = elsewhere ? reach_expose(to, node, msg->target_lease, true) : 0;
	if (err) {
		err = reach_refuse_exposure(extack, err, to, node);
		goto err_close;
	}
	err = reach_map_bars(from, address, msg) ?: reach_open_bars(from, to);
	if (!err)
		return 0;
	err = reach_refuse(extack, err);
	reach_remove_bars(from, to, msg);
err_close:
	scoped_guard(spinlock_irqsave, &reach_lock)
		pcilend_reach_close(&table, from->pub.id, to->pub.id);
	if (elsewhere)
		reach_unexpose(to, node);
	return err;
}

static int reach_set_up(struct remote *from, struct remote *to, struct netlink_ext_ack *extack)
{
	struct pcilend_msg_reach msg = {
		.id = cpu_to_le32(from->pub.id),
		.target = cpu_to_le32(to->pub.id),
	};
	int err;

	err = reach_need_lease(from, &msg.lease, extack)
		      ?: reach_need_lease(to, &msg.target_lease, extack);
	if (!err && pcilend_dma_base(&from->pub))
		err = pcilend_refuse(extack, -EOPNOTSUPP, "the one that is to reach the other is lent without an IOMMU (direct), so nothing can be mapped for it: make it available without --direct on its lender");
	if (err)
		return err;
	if (reach_is_open(from->pub.id, to->pub.id))
		return -EALREADY;
	return reach_add_bars(from, to, &msg, extack);
}

static int reach_take_back(struct remote *from, struct remote *to, struct netlink_ext_ack *extack)
{
	struct pcilend_msg_reach msg = {
		.id = cpu_to_le32(from->pub.id),
		.target = cpu_to_le32(to->pub.id),
	};
	int err = 0;

	if (!reach_is_known(from->pub.id, to->pub.id))
		return -EALREADY;
	scoped_guard(spinlock_irqsave, &reach_lock)
		pcilend_reach_close(&table, from->pub.id, to->pub.id);
	/* The end of either lease was the end of it on the lender, too. */
	msg.lease = cpu_to_le32(remote_held_lease(from));
	msg.target_lease = cpu_to_le32(remote_held_lease(to));
	if (msg.lease && msg.target_lease)
		err = reach_remove_bars(from, to, &msg);
	if (err)
		return reach_refuse(extack, err);
	scoped_guard(spinlock_irqsave, &reach_lock)
		pcilend_reach_drop(&table, from->pub.id, to->pub.id);
	if (reach_is_elsewhere(from->pub.id, to->pub.id))
		reach_unexpose(to, pcilend_id_node(from->pub.id));
	return 0;
}

/*
 * pcilend_reach - let a borrowed function reach the BARs of another by DMA, or end that
 * @from: the function that does the DMA
 * @to_id: the one whose BARs it reaches
 *
 * May sleep for PCILEND_REQUEST_MS for each BAR, and once more. Return: 0; -EALREADY if it is so
 * already; -EBUSY if one of them is being borrowed or returned; another refusal, with nothing set
 * up, or what was to end no longer looked up here.
 */
int pcilend_reach(struct pcilend_remote *from, u32 to_id, bool on, struct netlink_ext_ack *extack)
{
	struct pcilend_remote *to;
	int err;

	if (to_id == from->id)
		return pcilend_refuse(extack, -EINVAL, "a function's own BARs are its own: name another one as the target");
	if (pcilend_id_node(to_id) == pcilend_node)
		return pcilend_refuse(extack, -EINVAL, "the target is in this host: whatever this host borrows reaches it without being told to");
	to = pcilend_remote_get(to_id);
	if (!to)
		return pcilend_refuse(extack, -ENODEV, "no lender offers the target to this host: see 'pcilend list'");

	err = reach_lock_both(to_remote(from), to_remote(to), extack);
	if (err)
		goto out;
	err = reach_need_no_vfio(to_remote(from), extack)
		      ?: reach_need_no_vfio(to_remote(to), extack);
	if (!err)
		err = on ? reach_set_up(to_remote(from), to_remote(to), extack) :
			   reach_take_back(to_remote(from), to_remote(to), extack);
	mutex_unlock(&to_remote(from)->operation);
	mutex_unlock(&to_remote(to)->operation);
	if (err != -EALREADY)
		remote_event(to_remote(from), PCILEND_EVENT_FUNCTION);
out:
	pcilend_remote_put(to);
	return err;
}

static bool reach_is_in_bar(struct remote *r, u64 phys, u64 size, struct remote_bar *found)
{
	u32 i;

	guard(mutex)(&r->lock);
	if (r->state != REMOTE_HELD)
		return false;
	for (i = 0; i < ARRAY_SIZE(r->bar); i++) {
		u64 start = r->bar[i].address & PAGE_MASK;
		u64 bytes = PAGE_ALIGN(r->bar[i].address + r->bar[i].size) - start;

		if (!r->bar[i].size || phys < start || size > bytes || phys - start > bytes - size)
			continue;
		*found = (struct remote_bar) {
			.to = r,
			.lease = r->lease,
			.bar = i,
			.phys = start,
			.size = bytes,
		};
		return true;
	}
	return false;
}

/* In which BAR [phys, +size) lies. Return: 0, with a reference on found->to; -ENOENT: in none. */
int remote_find_bar(u64 phys, u64 size, struct remote_bar *found)
{
	struct remote *r = remote_next(NULL);

	while (r && !reach_is_in_bar(r, phys, size, found))
		r = remote_next(r);
	return r ? 0 : -ENOENT;
}

/* Why a user of VFIO does not get what he has mapped: as for 'pcilend p2p' but for what he does. */
static int reach_refuse_mapping(struct netlink_ext_ack *extack, int error)
{
	switch (error) {
	case -ENOSPC:
		return pcilend_refuse(extack, error, "it reaches as many BARs as it may: have fewer mapped for it");
	case -ERANGE:
	case -EUSERS:
		return pcilend_refuse(extack, -ERANGE, "its lender can't map it at that address: have the BAR elsewhere (a guest's), aligned to its size");
	default:
		return reach_refuse(extack, error);
	}
}

/* Unless one of the leases was lost meanwhile: whoever notes that comes to remote_reach_end(). */
static int reach_open_mapped(struct remote *from, const struct remote_bar *bar, u64 address)
{
	guard(spinlock_irqsave)(&reach_lock);
	if (READ_ONCE(from->state) != REMOTE_HELD || READ_ONCE(bar->to->state) != REMOTE_HELD)
		return -ESTALE;
	return pcilend_reach_open_mapped(&table, from->pub.id, bar->to->pub.id, bar->lease,
					 bar->bar, address) ? 0 : -ESTALE;
}

static struct pcilend_msg_reach reach_describe_mapped(struct remote *from, u32 lease,
						      const struct remote_bar *bar)
{
	return (struct pcilend_msg_reach) {
		.id = cpu_to_le32(from->pub.id),
		.lease = cpu_to_le32(lease),
		.target = cpu_to_le32(bar->to->pub.id),
		.target_lease = cpu_to_le32(bar->lease),
	};
}

/*
 * The place is in the table already, so that nobody else ends the exposure: see reach_unexpose().
 * @lease, of @from, and @bar's are those with which it came there. By now others may have the
 * functions, which must not reach one another: so nothing is asked for with their leases.
 */
static int reach_mapped(struct remote *from, u32 lease, const struct remote_bar *bar, u64 address,
			struct netlink_ext_ack *extack)
{
	struct pcilend_msg_reach msg = reach_describe_mapped(from, lease, bar);
	u32 node = pcilend_id_node(from->pub.id);
	int err = 0;

	lockdep_assert_held(&from->reaching);
	if (reach_is_elsewhere(from->pub.id, bar->to->pub.id))
		err = reach_expose(bar->to, node, msg.target_lease, true);
	if (err)
		return reach_refuse_exposure(extack, err, bar->to, node);
	err = reach_map_bar(from, &msg, bar->bar, address);
	if (!err) {
		err = reach_open_mapped(from, bar, address);
		if (err)
			reach_remove_bar(from, &msg, bar->bar, address);
	}
	return err ? reach_refuse_mapping(extack, err) : 0;
}

static bool reach_drop_mapped(struct remote *from, const struct remote_bar *bar, u64 address)
{
	guard(spinlock_irqsave)(&reach_lock);
	return pcilend_reach_drop_mapped(&table, from->pub.id, bar->to->pub.id, bar->lease,
					 bar->bar, address);
}

/* Return: was it in the table? */
static bool reach_unreach_mapped(struct remote *from, const struct remote_bar *bar, u64 address)
{
	struct pcilend_msg_reach msg = reach_describe_mapped(from, remote_held_lease(from), bar);
	int err = 0;

	lockdep_assert_held(&from->reaching);
	if (!reach_drop_mapped(from, bar, address))
		return false;
	if (msg.lease && remote_held_lease(bar->to) == bar->lease)
		err = reach_remove_bar(from, &msg, bar->bar, address);
	if (err)
		pr_warn_ratelimited("pcilend: %x may still reach BAR %u of %x at %#llx, as its lender did not say that it doesn't (error %d): return one of them\n",
				    from->pub.id, bar->bar, bar->to->pub.id, address, err);
	if (reach_is_elsewhere(from->pub.id, bar->to->pub.id))
		reach_unexpose(bar->to, pcilend_id_node(from->pub.id));
	return true;
}

static void reach_say_unreached(struct remote *from, const struct remote_bar *bar, u64 address,
				int err, const struct netlink_ext_ack *why)
{
	pr_warn_ratelimited("pcilend: %x does not reach BAR %u of %x by DMA, at %#llx, where its user has it (error %d): %s\n",
			    from->pub.id, bar->bar, bar->to->pub.id, address, err, why->_msg);
}

/* @lease: of @from */
static int reach_add_mapped(struct remote *from, u32 lease, const struct remote_bar *bar,
			    u64 address, struct netlink_ext_ack *why)
{
	int err;

	lockdep_assert_held(&from->reaching);
	scoped_guard(spinlock_irqsave, &reach_lock)
		err = pcilend_reach_add_mapped(&table, from->pub.id, bar->to->pub.id, bar->lease,
					       bar->bar, bar->phys, bar->size, address);
	err = err ? reach_refuse_mapping(why, err) : reach_mapped(from, lease, bar, address, why);
	if (err)
		reach_unreach_mapped(from, bar, address);
	else
		remote_event(from, PCILEND_EVENT_FUNCTION);
	return err;
}

/*
 * remote_reach_bar - a user of VFIO has mapped a BAR for another function
 * @address: IOVA of the BAR's first page
 *
 * Until remote_unreach_bar(), or the end of either lease, DMA of @from to @address reaches it,
 * again after links on the way were lost. Sleeps for up to PCILEND_REQUEST_MS for each lender.
 * Return: 0, also if the lease of @from is over, which reaches nothing; or an error, with nothing
 * set up, and a line in the log that says why.
 */
int remote_reach_bar(struct remote *from, const struct remote_bar *bar, u64 address)
{
	struct netlink_ext_ack why = { };
	u32 lease;
	int err;

	guard(mutex)(&from->reaching);
	lease = remote_held_lease(from);
	if (!lease)
		return 0;
	err = reach_add_mapped(from, lease, bar, address, &why);
	if (!err || !remote_held_lease(from))
		return 0;
	reach_say_unreached(from, bar, address, err, &why);
	return err;
}

/* The same for a process that has leased both. Return: 0, or why not, which @extack says. */
int remote_reach_bar_of_lease(struct remote *from, const struct remote_bar *bar, u64 address,
			      struct netlink_ext_ack *extack)
{
	u32 lease;

	guard(mutex)(&from->reaching);
	lease = remote_held_lease(from);
	if (!lease)
		return reach_refuse(extack, -ESTALE);
	return reach_add_mapped(from, lease, bar, address, extack);
}

/* Undoes that. Without it, or after the end of either lease, there is nothing to do. */
void remote_unreach_bar(struct remote *from, const struct remote_bar *bar, u64 address)
{
	guard(mutex)(&from->reaching);
	if (reach_unreach_mapped(from, bar, address))
		remote_event(from, PCILEND_EVENT_FUNCTION);
}

/* Return: false if it is to be tried again. */
static bool reach_doubtful(struct remote *from, u32 lease, struct remote *to,
			   const struct pcilend_reach *reach)
{
	const struct remote_bar bar = {
		.to = to,
		.lease = reach->lease,
		.bar = reach->bar,
	};
	struct netlink_ext_ack why = { };
	int err;

	/* Whoever notes the end of the lease comes to remote_reach_end(). */
	if (!lease || remote_held_lease(from) != lease || remote_held_lease(to) != bar.lease)
		return true;
	err = reach_mapped(from, lease, &bar, reach->address, &why);
	if (err == -EHOSTUNREACH || err == -ETIMEDOUT || err == -ENETDOWN)
		return false;
	if (err && err != -ESTALE)
		reach_say_unreached(from, &bar, reach->address, err, &why);
	return true;
}

static bool reach_all_doubtful(struct remote *r, u32 lease, const struct pcilend_reach *reach,
			       u32 count)
{
	bool done = true;
	u32 i;

	for (i = 0; i < count; i++) {
		struct pcilend_remote *to = pcilend_remote_get(reach[i].to);

		if (!to)
			continue;
		done &= reach_doubtful(r, lease, to_remote(to), &reach[i]);
		pcilend_remote_put(to);
	}
	return done;
}

/* What is mapped is reached again, after a link on the way was lost. */
void remote_reach_work(struct work_struct *work)
{
	struct remote *r = container_of(work, struct remote, reach_work.work);
	struct pcilend_reach *reach = kcalloc(PCILEND_REACHES, sizeof(*reach), GFP_KERNEL);
	bool done = false;
	u32 lease;

	/* The user unmaps nothing meanwhile. */
	mutex_lock(&r->reaching);
	/* Before the table is looked into: what goes in with a lease is out when that ends. */
	lease = remote_held_lease(r);
	if (reach)
		done = reach_all_doubtful(r, lease, reach, reach_find_doubtful(r->pub.id, reach));
	mutex_unlock(&r->reaching);
	kfree(reach);
	remote_event(r, PCILEND_EVENT_FUNCTION);
	if (!done)
		reach_again(r, REACH_AGAIN_MS);
	put_device(&r->pub.dev);
}
