// SPDX-License-Identifier: GPL-2.0-only
/*
 * Peer-to-peer between functions that this host borrows from one lender: that lender is asked, in
 * advance, to let one function reach the BARs of another by DMA (PCILEND_MSG_REACH). What was set
 * up is looked up when the driver of the first maps such a BAR, which may be in any context.
 */

#include "borrower.h"

static DEFINE_SPINLOCK(reach_lock);	/* also taken in interrupts */
static struct pcilend_reach_table table;	/* reach_lock */
static LIST_HEAD(links);		/* reach_lock: all adapters of this host */

void pcilend_reach_start(void)
{
	pcilend_reach_init(&table);
}

/* The adapter's windows are known. */
void pcilend_reach_link_added(struct pcilend_link *link)
{
	guard(spinlock_irqsave)(&reach_lock);
	list_add(&link->reach_node, &links);
}

void pcilend_reach_link_gone(struct pcilend_link *link)
{
	guard(spinlock_irqsave)(&reach_lock);
	list_del(&link->reach_node);
}

static bool in_window(u64 phys, u64 size)
{
	struct pcilend_link *link;
	unsigned int i;

	lockdep_assert_held(&reach_lock);
	list_for_each_entry(link, &links, reach_node) {
		for (i = 0; i < link->aperture.windows; i++) {
			const struct pcilend_window *window = &link->aperture.window[i];

			if (phys < window->phys + window->size && window->phys < phys + size)
				return true;
		}
	}
	return false;
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
	return in_window(phys, size) ? -EACCES : -ENOENT;
}
EXPORT_SYMBOL_GPL(pcilend_reach_lookup);

static bool is_open(u32 from, u32 to)
{
	const struct pcilend_reach *reach;

	guard(spinlock_irqsave)(&reach_lock);
	reach = pcilend_reach_next(&table, from, to, NULL);
	return reach && reach->live;
}

static bool is_known(u32 from, u32 to)
{
	guard(spinlock_irqsave)(&reach_lock);
	return pcilend_reach_next(&table, from, to, NULL);
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

/*
 * The lease is over, or about to be returned, and none can be set up meanwhile: from now on no
 * look-up finds anything of the function. Process context, without locks that events take.
 */
void remote_reach_end(struct remote *r)
{
	struct remote *other;

	scoped_guard(spinlock_irqsave, &reach_lock)
		pcilend_reach_end(&table, r->pub.id);
	for (other = remote_next(NULL); other; other = remote_next(other)) {
		if (is_known(other->pub.id, r->pub.id))
			remote_event(other, PCILEND_EVENT_FUNCTION);
	}
}

/* Both at once: that with the lower id first. */
static void lock_both(struct remote *a, struct remote *b)
{
	if (a->pub.id > b->pub.id)
		swap(a, b);
	mutex_lock(&a->operation);
	mutex_lock_nested(&b->operation, SINGLE_DEPTH_NESTING);
}

/* The lease in force; 0: none. *bare: it is borrowed on bare metal. */
static u32 lease_of(struct remote *r, bool *bare)
{
	u32 lease;

	mutex_lock(&r->lock);
	lease = r->state == REMOTE_HELD ? r->lease : 0;
	*bare = r->frontend && !r->frontend->guests;
	mutex_unlock(&r->lock);
	return lease;
}

static int need_lease(struct remote *r, __le32 *lease, struct netlink_ext_ack *extack)
{
	u32 id = r->pub.id;
	bool bare;

	*lease = cpu_to_le32(lease_of(r, &bare));
	if (!*lease)
		return pcilend_refuse_fmt(extack, -ENOTCONN, "%x is not borrowed by this host: run 'pcilend borrow %x'",
					  id, id);
	if (!bare)
		return pcilend_refuse_fmt(extack, -EOPNOTSUPP, "%x is borrowed for a VM, and peer-to-peer is on bare metal only: return it, and borrow it with --frontend shadow",
					  id);
	return 0;
}

static int refuse(struct netlink_ext_ack *extack, int error)
{
	switch (error) {
	case -EOPNOTSUPP:
		return pcilend_refuse(extack, error, "their lender does not know whether its root complex routes between them: if it does, load pcilend there with p2p=1");
	case -ENOSPC:
		return pcilend_refuse(extack, error, "it reaches as many BARs as it may: take some back with 'pcilend p2p --end'");
	case -ERANGE:
	case -EUSERS:
		return pcilend_refuse(extack, -ENOSPC, "their lender can't map a BAR at the address that is free here: return both, borrow them again, then repeat this");
	case -ENETDOWN:
		return pcilend_refuse(extack, error, "the link to their lender is down: see 'pcilend link'");
	case -ETIMEDOUT:
		return pcilend_refuse(extack, error, "their lender does not answer: see whether that host is alive, then repeat this");
	case -ENODEV:
	case -ESTALE:
		return pcilend_refuse(extack, -ESTALE, "the lease on one of them is over: see 'pcilend list', and borrow it again");
	case -ENOMEM:
		return pcilend_refuse(extack, error, "this host is out of memory");
	default:
		return pcilend_refuse(extack, error, "their lender could not map it: see the kernel log there");
	}
}

static int ask(struct remote *from, const struct pcilend_msg_reach *msg)
{
	struct pcilend_link *link = remote_link(from);
	int err = pcilend_channel_request(link, PCILEND_MSG_REACH, msg, NULL);

	pcilend_link_put(link);
	return err;
}

static int add_bar(struct remote *from, struct remote *to, u32 bar, struct pcilend_msg_reach *msg)
{
	u64 address;
	int err;

	scoped_guard(spinlock_irqsave, &reach_lock)
		err = pcilend_reach_add(&table, from->pub.id, to->pub.id, bar,
					to->bar[bar].address, to->bar[bar].size, &address);
	if (err)
		return err;
	msg->bar = cpu_to_le32(bar);
	msg->device_address = cpu_to_le64(address);
	return ask(from, msg);
}

/* Asks the lender to take back what it has of the two. What it does not have is no error. */
static int remove_bars(struct remote *from, struct remote *to, struct pcilend_msg_reach *msg)
{
	const struct pcilend_reach *reach = NULL;
	u64 address[ARRAY_SIZE(to->bar)] = { };
	int i, last, err = 0;

	scoped_guard(spinlock_irqsave, &reach_lock) {
		while ((reach = pcilend_reach_next(&table, from->pub.id, to->pub.id, reach)))
			address[reach->bar] = reach->address;
	}
	msg->on = 0;
	for (i = 0; i < ARRAY_SIZE(address); i++) {
		if (!address[i])
			continue;
		msg->bar = cpu_to_le32(i);
		msg->device_address = cpu_to_le64(address[i]);
		last = ask(from, msg);
		if (last != -ERANGE && last != -ESTALE && last != -ENODEV)
			err = err ?: last;
	}
	return err;
}

/* Unless one of the leases was lost meanwhile: whoever notes that comes to remote_reach_end(). */
static int open_bars(struct remote *from, struct remote *to)
{
	guard(spinlock_irqsave)(&reach_lock);
	if (READ_ONCE(from->state) != REMOTE_HELD || READ_ONCE(to->state) != REMOTE_HELD)
		return -ESTALE;
	pcilend_reach_open(&table, from->pub.id, to->pub.id);
	return 0;
}

/* All BARs of @to that can be reached, or none. Return: as ask(); -ENXIO: it has none. */
static int add_bars(struct remote *from, struct remote *to, struct pcilend_msg_reach *msg)
{
	int i, err = -ENXIO;

	msg->on = cpu_to_le32(1);
	for (i = 0; i < ARRAY_SIZE(to->bar); i++) {
		if (!to->bar[i].size)
			continue;
		err = add_bar(from, to, i, msg);
		if (err)
			break;
	}
	if (!err)
		err = open_bars(from, to);
	if (err)
		remove_bars(from, to, msg);
	return err;
}

static int set_up(struct remote *from, struct remote *to, struct netlink_ext_ack *extack)
{
	struct pcilend_msg_reach msg = {
		.id = cpu_to_le32(from->pub.id),
		.target = cpu_to_le32(to->pub.id),
	};
	int err;

	if (pcilend_id_node(from->pub.id) != pcilend_id_node(to->pub.id))
		return pcilend_refuse_fmt(extack, -EOPNOTSUPP, "%x and %x are in different hosts, and peer-to-peer between these is not built: borrow two functions of one host",
					  from->pub.id, to->pub.id);
	err = need_lease(from, &msg.lease, extack) ?:
	      need_lease(to, &msg.target_lease, extack);
	if (!err && pcilend_dma_base(&from->pub))
		err = pcilend_refuse_fmt(extack, -EOPNOTSUPP, "%x is lent without an IOMMU (direct), so nothing can be mapped for it: make it available without --direct on its lender",
					 from->pub.id);
	if (err)
		return err;
	if (is_open(from->pub.id, to->pub.id))
		return -EALREADY;
	err = add_bars(from, to, &msg);
	if (err == -ENXIO)
		return pcilend_refuse_fmt(extack, err, "%x has no BAR that this host reaches: name another one as the target",
					  to->pub.id);
	return err ? refuse(extack, err) : 0;
}

static int take_back(struct remote *from, struct remote *to, struct netlink_ext_ack *extack)
{
	struct pcilend_msg_reach msg = {
		.id = cpu_to_le32(from->pub.id),
		.target = cpu_to_le32(to->pub.id),
	};
	int err = 0;
	bool bare;

	if (!is_known(from->pub.id, to->pub.id))
		return -EALREADY;
	scoped_guard(spinlock_irqsave, &reach_lock)
		pcilend_reach_close(&table, from->pub.id, to->pub.id);
	/* The end of either lease was the end of it on the lender, too. */
	msg.lease = cpu_to_le32(lease_of(from, &bare));
	msg.target_lease = cpu_to_le32(lease_of(to, &bare));
	if (msg.lease && msg.target_lease)
		err = remove_bars(from, to, &msg);
	if (err)
		return refuse(extack, err);
	guard(spinlock_irqsave)(&reach_lock);
	pcilend_reach_drop(&table, from->pub.id, to->pub.id);
	return 0;
}

/*
 * pcilend_reach - let a borrowed function reach the BARs of another by DMA, or end that
 * @from: the function that does the DMA
 * @to_id: the one whose BARs it reaches
 *
 * May sleep for PCILEND_REQUEST_MS for each BAR. Return: 0; -EALREADY if it is so already; a
 * refusal, with nothing set up, or what was to end no longer looked up here.
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

	lock_both(to_remote(from), to_remote(to));
	err = on ? set_up(to_remote(from), to_remote(to), extack) :
		   take_back(to_remote(from), to_remote(to), extack);
	mutex_unlock(&to_remote(from)->operation);
	mutex_unlock(&to_remote(to)->operation);
	if (err != -EALREADY)
		remote_event(to_remote(from), PCILEND_EVENT_FUNCTION);
	pcilend_remote_put(to);
	return err;
}
