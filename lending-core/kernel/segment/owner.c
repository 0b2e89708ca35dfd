// SPDX-License-Identifier: GPL-2.0-only
/*
 * The owner's end of segments. The memory is pinned once (base/memory.h), and each offer maps its
 * pages in a slot of one link's aperture, in one piece.
 *
 * What a peer had connected keeps its place in the aperture after the pages are unmapped, until the
 * peer has said that no process of it has that in its page tables, or is dead. A segment whose
 * owner has closed it stays in the table for as long, so that its id means nothing else.
 *
 * Memory beside a function that is lent (near.c) is a segment without a process: it is closed with
 * the lease, or when its peer has no connection to it any more. Where no IOMMU keeps the peer from
 * its pages, these stay for as long as its place does.
 */

#include <linux/anon_inodes.h>
#include <linux/eventfd.h>
#include <linux/file.h>
#include <linux/iommu.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/slab.h>

#include "base/memory.h"
#include "base/source.h"
#include "link/notify.h"
#include "pcilend/identity.h"
#include "segment/segment.h"

#define SEGMENTS 1024			/* of this host */
#define OFFERS 256			/* over one link: slots are for guests, too */
#define RETRY_MS 1000

struct segment {
	struct list_head node;		/* segments_lock, as all that is not constant */
	u32 id;
	char name[PCILEND_LABEL_BYTES];
	u64 size;
	u32 function;			/* whose near memory it is; 0: a process's */
	struct list_head offers;
	bool closed;
	bool ended;			/* an offer, with the boot of its peer */
	wait_queue_head_t wait;

	/* Constant until it is closed; size 0: its pages are let go. */
	struct pcilend_memory memory;
	struct eventfd_ctx *event;	/* or NULL */
};

struct offer {
	struct list_head of_segment;	/* segments_lock, as all that is not constant */
	struct list_head of_link;
	struct segment *segment;
	struct pcilend_link *link;	/* with a reference */
	u32 node;
	u32 number;
	bool read_only;
	u64 iova;
	u32 of_plan;
	u32 window;			/* where the peer finds it, as offset */
	u64 offset;
	struct pcilend_notify notify;	/* while it is offered */
	struct pcilend_source *source;	/* for functions that are lent to @node; with a reference */
	struct pcilend_offer core;
};

static LIST_HEAD(segments);
static DEFINE_MUTEX(segments_lock);
static u16 owner_last_index;		/* segments_lock, as the next */
static u32 owner_last_offer;

static void owner_report_offer(const struct offer *offer, struct pcilend_segment_offer *to)
{
	lockdep_assert_held(&segments_lock);
	to->node = offer->node;
	strscpy(to->adapter, pci_name(offer->link->pdev), sizeof(to->adapter));
	to->read_only = offer->read_only;
	to->withdrawn = offer->core.state != PCILEND_OFFER_OFFERED;
	to->connections = offer->core.count;
}

/* Something about it has changed; or about that offer of it. */
static void owner_tell(const struct segment *segment, const struct offer *offer)
{
	struct pcilend_segment_offer report;
	struct pcilend_segment_news news = {
		.id = segment->id,
		.size = segment->size,
		.state = PCILEND_SEGMENT_CREATED,
	};

	lockdep_assert_held(&segments_lock);
	if (offer) {
		owner_report_offer(offer, &report);
		news.offer = &report;
		news.state = report.withdrawn ? PCILEND_SEGMENT_WITHDRAWN :
			     report.connections ? PCILEND_SEGMENT_CONNECTED :
						  PCILEND_SEGMENT_OFFERED;
	}
	pcilend_event_segment(&news, false);
}

static struct segment *owner_find(u32 id)
{
	struct segment *segment;

	lockdep_assert_held(&segments_lock);
	list_for_each_entry(segment, &segments, node) {
		if (segment->id == id)
			return segment;
	}
	return NULL;
}

/* Ids are used again as late as can be. 0: there is none left. */
static u32 owner_new_id(void)
{
	unsigned int i;

	lockdep_assert_held(&segments_lock);
	if (!pcilend_node || list_count_nodes(&segments) >= SEGMENTS)
		return 0;
	for (i = 0; i <= U16_MAX; i++) {
		u32 id = pcilend_id(pcilend_node, ++owner_last_index);

		if (owner_last_index && !owner_find(id))
			return id;
	}
	return 0;
}

static void owner_unmap_offer(struct offer *offer)
{
	struct pcilend_aperture *ap = &offer->link->aperture;
	u64 size = offer->segment->size;

	lockdep_assert_held(&segments_lock);
	if (!ap->direct)
		WARN_ON(iommu_unmap(ap->domain, offer->iova, size) != size);
}

/* In a slot that was taken for it. */
static int owner_map_offer(struct offer *offer)
{
	lockdep_assert_held(&segments_lock);
	return pcilend_memory_map(&offer->segment->memory, offer->link->aperture.domain,
				  offer->iova, IOMMU_READ | (offer->read_only ? 0 : IOMMU_WRITE));
}

/* Nothing is left of it, and its id is free. */
static void owner_end(struct segment *segment)
{
	const struct pcilend_segment_news news = {
		.id = segment->id,
		.state = PCILEND_SEGMENT_WITHDRAWN,
	};

	lockdep_assert_held(&segments_lock);
	if (!list_empty(&segment->node))
		pcilend_event_segment(&news, true);
	list_del(&segment->node);
	if (segment->function && segment->memory.size)
		pcilend_memory_put(&segment->memory);
	kfree(segment);
}

/* Its pages are not mapped, and its range is nobody's. */
static void owner_drop_offer(struct offer *offer)
{
	struct segment *segment = offer->segment;

	lockdep_assert_held(&segments_lock);
	if (!offer->link->aperture.direct)
		pcilend_aperture_slot_put(offer->link, offer->iova, segment->size, offer->of_plan);
	list_del(&offer->of_segment);
	list_del(&offer->of_link);
	pcilend_link_put(offer->link);
	pcilend_source_put(offer->source);
	kfree(offer);
	if (segment->closed && list_empty(&segment->offers))
		owner_end(segment);
}

/* No-op if it is withdrawn already. May free the offer, and a segment that is closed. */
static void owner_withdraw_offer(struct offer *offer)
{
	lockdep_assert_held(&segments_lock);
	if (offer->core.state != PCILEND_OFFER_OFFERED)
		return;
	pcilend_notify_close(&offer->notify);
	pcilend_source_take(offer->source);
	owner_unmap_offer(offer);
	pcilend_offer_withdraw(&offer->core);
	owner_tell(offer->segment, offer);
	if (offer->core.state == PCILEND_OFFER_OVER)
		owner_drop_offer(offer);
	else
		mod_delayed_work(pcilend_wq, &segment_link(offer->link)->tell, 0);
}

/* Can a peer reach its pages, though they are not mapped for it? */
static bool owner_is_exposed(const struct segment *segment)
{
	const struct offer *offer;

	lockdep_assert_held(&segments_lock);
	list_for_each_entry(offer, &segment->offers, of_segment) {
		if (offer->link->aperture.direct)
			return true;
	}
	return false;
}

/* No-op if it is closed already. May free it. */
static void owner_close_near(struct segment *segment)
{
	struct offer *offer, *next;

	lockdep_assert_held(&segments_lock);
	if (segment->closed)
		return;
	list_for_each_entry_safe(offer, next, &segment->offers, of_segment)
		owner_withdraw_offer(offer);
	segment->closed = true;
	if (!owner_is_exposed(segment)) {
		pcilend_memory_put(&segment->memory);
		segment->memory.size = 0;
	}
	if (list_empty(&segment->offers))
		owner_end(segment);
}

/* Nobody reaches it any more. */
static int owner_release_file(struct inode *inode, struct file *file)
{
	struct segment *segment = file->private_data, with = *segment;
	struct offer *offer, *next;

	mutex_lock(&segments_lock);
	list_for_each_entry_safe(offer, next, &segment->offers, of_segment)
		owner_withdraw_offer(offer);
	segment->closed = true;
	if (list_empty(&segment->offers))
		owner_end(segment);
	mutex_unlock(&segments_lock);
	pcilend_changed();

	pcilend_memory_put(&with.memory);
	if (with.event)
		eventfd_ctx_put(with.event);
	return 0;
}

/* EPOLLPRI: an offer has ended with its peer's boot, since the last one was made. */
static __poll_t owner_poll(struct file *file, poll_table *wait)
{
	struct segment *segment = file->private_data;

	poll_wait(file, &segment->wait, wait);
	return READ_ONCE(segment->ended) ? EPOLLPRI : 0;
}

static const struct file_operations segment_fops = {
	.owner = THIS_MODULE,
	.release = owner_release_file,
	.poll = owner_poll,
};

static struct segment *owner_alloc(const char *name)
{
	struct segment *segment = kzalloc(sizeof(*segment), GFP_KERNEL_ACCOUNT);

	if (!segment)
		return NULL;
	INIT_LIST_HEAD(&segment->node);
	INIT_LIST_HEAD(&segment->offers);
	init_waitqueue_head(&segment->wait);
	strscpy_pad(segment->name, name, sizeof(segment->name));
	return segment;
}

/* Peers are told it. */
static bool owner_name_is_valid(const char *name)
{
	u8 label[PCILEND_LABEL_BYTES] = { };

	if (strlen(name) >= sizeof(label))
		return false;
	memcpy(label, name, strlen(name));
	return pcilend_label_valid(label);
}

/**
 * pcilend_segment_create - memory of the calling process becomes a segment, which nobody sees yet
 * @dma_buf_fd: of that process
 * @name: for people, less than PCILEND_LABEL_BYTES
 * @event_fd: an eventfd of that process, which peers may raise; -1: none
 * @file: set to what ends the segment when it is closed; the caller's to install or to put
 * @id: set
 */
int pcilend_segment_create(int dma_buf_fd, const char *name, int event_fd, struct file **file,
			   u32 *id, struct netlink_ext_ack *extack)
{
	struct segment *segment;
	int err;

	if (!owner_name_is_valid(name)) {
		NL_SET_ERR_MSG(extack, "a name is at most 63 characters of printable ASCII: choose another one");
		return -EINVAL;
	}
	segment = owner_alloc(name);
	if (!segment)
		return -ENOMEM;
	segment->event = event_fd < 0 ? NULL : eventfd_ctx_fdget(event_fd);
	if (IS_ERR(segment->event)) {
		NL_SET_ERR_MSG(extack, "what is to be raised by peers is no eventfd: give one, or none");
		err = PTR_ERR(segment->event);
		goto err_free;
	}
	err = pcilend_memory_get(&segment->memory, dma_buf_fd, false, extack);
	if (err)
		goto err_event;
	segment->size = segment->memory.size;
	*file = anon_inode_getfile("[pcilend-segment]", &segment_fops, segment, O_RDWR);
	err = PTR_ERR_OR_ZERO(*file);
	if (err)
		goto err_memory;

	/* From here on closing the file undoes all of it, also if it has no id. */
	mutex_lock(&segments_lock);
	*id = owner_new_id();
	segment->id = *id;
	if (*id) {
		list_add_tail(&segment->node, &segments);
		owner_tell(segment, NULL);
	}
	mutex_unlock(&segments_lock);
	if (*id)
		return 0;
	fput(*file);
	if (!pcilend_node)
		NL_SET_ERR_MSG(extack, "this host has no node id: load pcilend with node=1..65535");
	else
		NL_SET_ERR_MSG(extack, "this host has as many segments as there can be: end some, see 'pcilend segment list'");
	return -ENOSPC;

err_memory:
	pcilend_memory_put(&segment->memory);
err_event:
	if (segment->event)
		eventfd_ctx_put(segment->event);
err_free:
	kfree(segment);
	return err;
}

int segment_owner_make_near(u32 function, const struct pcilend_memory *memory, u32 *id)
{
	char name[PCILEND_LABEL_BYTES];
	struct segment *segment;

	snprintf(name, sizeof(name), "near-%x", function);
	segment = owner_alloc(name);
	if (!segment)
		return -ENOMEM;
	guard(mutex)(&segments_lock);
	segment->id = owner_new_id();
	if (!segment->id) {
		kfree(segment);
		return -ENOSPC;
	}
	segment->function = function;
	segment->memory = *memory;
	segment->size = memory->size;
	list_add_tail(&segment->node, &segments);
	owner_tell(segment, NULL);
	*id = segment->id;
	return 0;
}

void segment_owner_end_near(u32 function, u32 id)
{
	struct segment *segment, *next;

	guard(mutex)(&segments_lock);
	list_for_each_entry_safe(segment, next, &segments, node) {
		if (segment->function == function && (!id || segment->id == id))
			owner_close_near(segment);
	}
}

u64 segment_owner_near(u32 function, u32 *count)
{
	struct segment *segment;
	u64 bytes = 0;

	*count = 0;
	guard(mutex)(&segments_lock);
	list_for_each_entry(segment, &segments, node) {
		if (segment->function != function || !segment->memory.size)
			continue;
		bytes += segment->size;
		++*count;
	}
	return bytes;
}

static u64 owner_offered_bytes(struct segment_link *sl)
{
	struct offer *offer;
	u64 bytes = 0;

	lockdep_assert_held(&segments_lock);
	list_for_each_entry(offer, &sl->offers, of_link)
		bytes += offer->segment->size;
	return bytes;
}

/* Why it can't be offered over that link; 0: it can. */
static int owner_may_offer(struct segment *segment, struct segment_link *sl, u32 node,
			   bool read_only, struct netlink_ext_ack *extack)
{
	u64 quota = (u64)pcilend_segment_mib << 20;
	struct offer *offer;

	lockdep_assert_held(&segments_lock);
	if (pcilend_sleeps()) {
		NL_SET_ERR_MSG(extack, "this host is about to sleep: try again when it is awake");
		return -EAGAIN;
	}
	if (sl->node != node)
		return pcilend_refuse_fmt(extack, -EHOSTUNREACH, "no link to node %u is up: see 'pcilend link'",
					  node);
	if (!segment->memory.writable && !read_only) {
		NL_SET_ERR_MSG(extack, "its dma-buf is read-only: offer it with --read-only");
		return -EACCES;
	}
	list_for_each_entry(offer, &segment->offers, of_segment) {
		if (offer->link != sl->link || offer->core.state != PCILEND_OFFER_OFFERED)
			continue;
		if (offer->read_only != read_only) {
			NL_SET_ERR_MSG(extack, "it is offered to that node with another right: withdraw it there first");
			return -EBUSY;
		}
		NL_SET_ERR_MSG(extack, "it is offered to that node already");
		return -EALREADY;
	}
	if (list_count_nodes(&segment->offers) >= PCILEND_SEGMENT_OFFERS ||
	    list_count_nodes(&sl->offers) >= OFFERS) {
		NL_SET_ERR_MSG(extack, "it, or that node, has as many offers as there can be: withdraw some, see 'pcilend segment list'");
		return -ENOSPC;
	}
	if (segment->size > quota || owner_offered_bytes(sl) > quota - segment->size)
		return pcilend_refuse_fmt(extack, -ENOSPC, "node %u would be offered more than %u MiB: raise segment_mib=",
					  node, pcilend_segment_mib);
	if (sl->link->aperture.direct && !segment->memory.contiguous) {
		NL_SET_ERR_MSG(extack, "no IOMMU is before the adapter to that node, and the memory is not in one piece: use huge pages, or an IOMMU");
		return -EOPNOTSUPP;
	}
	return 0;
}

/* A place in the aperture, with its pages. */
static int owner_place_offer(struct offer *offer, struct netlink_ext_ack *extack)
{
	struct segment *segment = offer->segment;
	struct pcilend_link *link = offer->link;
	int err;

	lockdep_assert_held(&segments_lock);
	if (link->aperture.direct) {
		offer->iova = segment->memory.phys;
		err = pcilend_aperture_locate(link, offer->iova, segment->size, &offer->window,
					      &offer->offset);
		if (err)
			NL_SET_ERR_MSG(extack, "no memory window of the adapter to that node reaches this memory: use memory below 4 GiB, or an IOMMU");
		return err;
	}
	err = pcilend_aperture_slot_get(link, segment->size, &offer->iova, &offer->of_plan);
	if (err) {
		NL_SET_ERR_MSG(extack, "the memory window to that node has no room for it: see 'pcilend link -v'");
		return err;
	}
	err = pcilend_aperture_locate(link, offer->iova, segment->size, &offer->window,
				      &offer->offset) ?: owner_map_offer(offer);
	if (err) {
		pcilend_aperture_slot_put(link, offer->iova, segment->size, offer->of_plan);
		pcilend_refuse_fmt(extack, err, "the IOMMU does not map it (error %d)", err);
	}
	return err;
}

/* Where no window reaches this host's interrupts the peer can't notify. */
static int owner_open_notify(struct offer *offer, struct netlink_ext_ack *extack)
{
	struct pcilend_link *link = offer->link;
	struct eventfd_ctx *event = offer->segment->event;
	char name[32];
	int err;

	lockdep_assert_held(&segments_lock);
	if (!event || !link->aperture.layout.interrupts.size)
		return 0;
	snprintf(name, sizeof(name), "pcilend-notify-%x", offer->number);
	err = pcilend_notify_open(&offer->notify, link->pdev, name);
	if (!err)
		pcilend_notify_raise(&offer->notify, event);
	if (!err || err == -EOPNOTSUPP)
		return 0;
	return pcilend_refuse_fmt(extack, err, "this host has no interrupt left for its notifications (error %d)",
				  err);
}

/* @function: of a process's segment: 0 */
static int owner_offer(u32 id, u32 function, u32 node, struct pcilend_link *link, bool read_only,
		       struct netlink_ext_ack *extack)
{
	struct segment_link *sl = segment_link(link);
	struct segment *segment;
	struct offer *offer;
	int err;

	guard(mutex)(&segments_lock);
	segment = owner_find(id);
	if (!segment || segment->closed) {
		NL_SET_ERR_MSG(extack, "this host has no segment with that id: see 'pcilend segment list'");
		return -ENODEV;
	}
	if (segment->function != function)
		return pcilend_refuse(extack, -EPERM, "it is memory beside a function, for who has borrowed that: only its host is offered it");
	err = owner_may_offer(segment, sl, node, read_only, extack);
	if (err)
		return err;
	offer = kzalloc(sizeof(*offer), GFP_KERNEL_ACCOUNT);
	if (!offer)
		return -ENOMEM;
	offer->source = pcilend_source_make();
	err = -ENOMEM;
	if (!offer->source)
		goto err_free;
	offer->segment = segment;
	offer->link = link;
	offer->node = node;
	offer->read_only = read_only;
	if (!++owner_last_offer)
		++owner_last_offer;
	offer->number = owner_last_offer;
	err = owner_open_notify(offer, extack);
	if (err)
		goto err_free;
	err = owner_place_offer(offer, extack);
	if (err)
		goto err_notify;
	pcilend_link_get(link);
	list_add_tail(&offer->of_segment, &segment->offers);
	list_add_tail(&offer->of_link, &sl->offers);
	segment->ended = false;
	owner_tell(segment, offer);
	return 0;

err_notify:
	pcilend_notify_close(&offer->notify);
err_free:
	pcilend_source_put(offer->source);
	kfree(offer);
	return err;
}

static struct pcilend_link *owner_choose_link(u32 node, const char *adapter,
					      struct netlink_ext_ack *extack)
{
	struct pcilend_link *link = adapter ? pcilend_link_by_adapter(adapter) :
					      pcilend_link_to(node, 0);

	if (!link && adapter)
		pcilend_refuse_fmt(extack, 0, "%s is no NTB adapter of this host: see 'pcilend link'",
				   adapter);
	else if (!link)
		pcilend_refuse_fmt(extack, 0, "no link to node %u is up: see 'pcilend link'", node);
	return link;
}

/**
 * pcilend_segment_offer - a peer may connect it, until it is withdrawn or that boot of it is over
 * @adapter: of this host, that leads there; NULL: any
 *
 * From now on the peer's host, and functions that it has borrowed from this one or lent, reach it.
 */
int pcilend_segment_offer(u32 id, u32 node, const char *adapter, bool read_only,
			  struct netlink_ext_ack *extack)
{
	struct pcilend_link *link;
	int err;

	if (!node || node > PCILEND_NODE_MAX || node == pcilend_node) {
		NL_SET_ERR_MSG(extack, "a segment is offered to another node, 1 to 65535: see 'pcilend link'");
		return -EINVAL;
	}
	link = owner_choose_link(node, adapter, extack);
	if (!link)
		return adapter ? -ENODEV : -EHOSTUNREACH;
	err = owner_offer(id, 0, node, link, read_only, extack);
	pcilend_link_put(link);
	return err;
}

int segment_owner_offer_near(u32 id, u32 function, struct pcilend_link *link, u32 node)
{
	return owner_offer(id, function, node, link, false, NULL);
}

/**
 * pcilend_segment_withdraw - peers reach it no longer when this returns
 * @node: that one; 0: all
 */
int pcilend_segment_withdraw(u32 id, u32 node, struct netlink_ext_ack *extack)
{
	struct offer *offer, *next;
	struct segment *segment;
	bool found = false;

	mutex_lock(&segments_lock);
	segment = owner_find(id);
	if (!segment || segment->closed) {
		mutex_unlock(&segments_lock);
		NL_SET_ERR_MSG(extack, "this host has no segment with that id: see 'pcilend segment list'");
		return -ENODEV;
	}
	list_for_each_entry_safe(offer, next, &segment->offers, of_segment) {
		if (node && offer->node != node)
			continue;
		found |= offer->core.state == PCILEND_OFFER_OFFERED;
		/* Of near memory there is no other. */
		if (segment->function && found) {
			owner_close_near(segment);
			break;
		}
		owner_withdraw_offer(offer);
	}
	mutex_unlock(&segments_lock);
	pcilend_changed();
	if (found || !node)
		return 0;
	return pcilend_refuse_fmt(extack, -ENOTCONN, "it is not offered to node %u: see 'pcilend segment list'",
				  node);
}

/* The one with the next id after @id. */
bool pcilend_segment_next(u32 id, struct pcilend_segment_report *report)
{
	struct segment *segment, *found = NULL;
	struct offer *offer;

	guard(mutex)(&segments_lock);
	list_for_each_entry(segment, &segments, node) {
		if (segment->id > id && (!found || segment->id < found->id))
			found = segment;
	}
	if (!found)
		return false;
	memset(report, 0, sizeof(*report));
	report->id = found->id;
	report->size = found->size;
	report->closed = found->closed;
	strscpy(report->name, found->name, sizeof(report->name));
	list_for_each_entry(offer, &found->offers, of_segment)
		owner_report_offer(offer, &report->offer[report->offers++]);
	return true;
}

static struct offer *owner_find_offer(struct segment_link *sl, u32 id)
{
	struct offer *offer;

	lockdep_assert_held(&segments_lock);
	list_for_each_entry(offer, &sl->offers, of_link) {
		if (offer->segment->id == id && offer->core.state == PCILEND_OFFER_OFFERED)
			return offer;
	}
	return NULL;
}

/* One that a node has of it, over any link. */
static struct offer *owner_find_offer_to(u32 id, u32 node)
{
	struct segment *segment = owner_find(id);
	struct offer *offer;

	lockdep_assert_held(&segments_lock);
	if (!segment)
		return NULL;
	list_for_each_entry(offer, &segment->offers, of_segment) {
		if (offer->node == node && offer->core.state == PCILEND_OFFER_OFFERED)
			return offer;
	}
	return NULL;
}

int segment_owner_open(u32 id, u32 node, bool read_only, struct pcilend_memory *memory)
{
	struct offer *offer;

	guard(mutex)(&segments_lock);
	offer = owner_find_offer_to(id, node);
	if (!offer)
		return -ENODEV;
	if (offer->read_only && !read_only)
		return -EACCES;
	pcilend_memory_borrow(memory, &offer->segment->memory, offer->source);
	memory->writable &= !offer->read_only;
	return 0;
}

static int owner_connect(struct segment_link *sl, const struct pcilend_message *msg,
			 struct pcilend_msg_segment *place)
{
	const struct pcilend_msg_connection *in = pcilend_message_payload(msg);
	struct offer *offer, *other = NULL;
	int err;

	guard(mutex)(&segments_lock);
	offer = owner_find_offer(sl, le32_to_cpu(in->id));
	if (!offer || !pcilend_link_is_peer(sl->link, offer->node, msg->boot))
		return -ENODEV;
	if (in->node) {
		other = owner_find_offer_to(le32_to_cpu(in->id), le32_to_cpu(in->node));
		if (!other)
			return -ENODEV;
	}
	err = pcilend_offer_connect(&offer->core, le32_to_cpu(in->connection));
	if (err)
		return err == -EEXIST ? -EPROTO : err;
	owner_tell(offer->segment, offer);
	place->offer = cpu_to_le32(offer->number);
	place->offset = cpu_to_le64(offer->offset);
	place->size = cpu_to_le64(offer->segment->size);
	place->window = cpu_to_le32(offer->window);
	if (offer->read_only || (other && other->read_only))
		place->flags |= cpu_to_le32(PCILEND_SEGMENT_READ_ONLY);
	if (offer->notify.domain) {
		place->flags |= cpu_to_le32(PCILEND_SEGMENT_NOTIFIES);
		place->notify_offset = cpu_to_le32(offer->notify.offset);
		place->notify_data = cpu_to_le32(offer->notify.data);
	}
	return 0;
}

void segment_owner_connect(struct pcilend_link *link, const struct pcilend_message *msg)
{
	const struct pcilend_msg_connection *in = pcilend_message_payload(msg);
	struct pcilend_msg_segment place = { .id = in->id };
	int err = owner_connect(segment_link(link), msg, &place);

	pcilend_channel_reply(link, msg, err, &place);
}

/* Nobody has near memory that nobody has connected. */
static bool owner_is_left(const struct offer *offer)
{
	lockdep_assert_held(&segments_lock);
	return offer->segment->function && !offer->core.count &&
	       offer->core.state == PCILEND_OFFER_OFFERED;
}

void segment_owner_release(struct pcilend_link *link, const struct pcilend_message *msg)
{
	const struct pcilend_msg_connection *in = pcilend_message_payload(msg);
	struct segment_link *sl = segment_link(link);
	struct offer *offer, *next;
	int err = -ESTALE;

	mutex_lock(&segments_lock);
	list_for_each_entry_safe(offer, next, &sl->offers, of_link) {
		if (offer->segment->id != le32_to_cpu(in->id) ||
		    pcilend_offer_release(&offer->core, le32_to_cpu(in->connection)))
			continue;
		err = 0;
		owner_tell(offer->segment, offer);
		if (offer->core.state == PCILEND_OFFER_OVER)
			owner_drop_offer(offer);
		else if (owner_is_left(offer))
			owner_close_near(offer->segment);
		break;
	}
	mutex_unlock(&segments_lock);
	pcilend_changed();
	pcilend_channel_reply(link, msg, err, NULL);
}

/* What the peer may connect next, behind that id. */
static int owner_next(struct segment_link *sl, const struct pcilend_message *msg,
		      struct pcilend_msg_offered *next)
{
	const struct pcilend_msg_after *in = pcilend_message_payload(msg);
	struct offer *offer, *found = NULL;

	guard(mutex)(&segments_lock);
	list_for_each_entry(offer, &sl->offers, of_link) {
		if (offer->core.state != PCILEND_OFFER_OFFERED ||
		    offer->segment->id <= le32_to_cpu(in->id) ||
		    (found && offer->segment->id > found->segment->id))
			continue;
		found = offer;
	}
	if (!found || !pcilend_link_is_peer(sl->link, found->node, msg->boot))
		return -ENODEV;
	next->id = cpu_to_le32(found->segment->id);
	next->size = cpu_to_le64(found->segment->size);
	if (found->read_only)
		next->flags |= cpu_to_le32(PCILEND_SEGMENT_READ_ONLY);
	if (found->notify.domain)
		next->flags |= cpu_to_le32(PCILEND_SEGMENT_NOTIFIES);
	strscpy_pad((char *)next->name, found->segment->name, sizeof(next->name));
	return 0;
}

void segment_owner_next(struct pcilend_link *link, const struct pcilend_message *msg)
{
	struct pcilend_msg_offered next = { };
	int err = owner_next(segment_link(link), msg, &next);

	pcilend_channel_reply(link, msg, err, &next);
}

bool segment_owner_offers(struct segment_link *sl)
{
	struct offer *offer;

	guard(mutex)(&segments_lock);
	list_for_each_entry(offer, &sl->offers, of_link) {
		if (offer->core.state == PCILEND_OFFER_OFFERED)
			return true;
	}
	return false;
}

/* The offer after that number that the peer has to be told of. */
static bool owner_next_withdrawn(struct segment_link *sl, u32 number,
				 struct pcilend_msg_withdraw *msg)
{
	struct offer *offer;
	u32 next = 0;

	guard(mutex)(&segments_lock);
	list_for_each_entry(offer, &sl->offers, of_link) {
		if (offer->core.state != PCILEND_OFFER_WITHDRAWN || offer->number <= number ||
		    (next && offer->number > next))
			continue;
		next = offer->number;
		msg->id = cpu_to_le32(offer->segment->id);
		msg->offer = cpu_to_le32(offer->number);
	}
	return next;
}

static void owner_settle(struct segment_link *sl, u32 number)
{
	struct offer *offer, *next;

	guard(mutex)(&segments_lock);
	list_for_each_entry_safe(offer, next, &sl->offers, of_link) {
		if (offer->number != number)
			continue;
		pcilend_offer_settle(&offer->core);
		owner_drop_offer(offer);
	}
}

static void owner_tell_work(struct work_struct *work)
{
	struct segment_link *sl = container_of(work, struct segment_link, tell.work);
	struct pcilend_msg_withdraw msg;
	bool again = false;
	u32 number = 0;
	int err;

	while (owner_next_withdrawn(sl, number, &msg)) {
		number = le32_to_cpu(msg.offer);
		err = pcilend_channel_request(sl->link, PCILEND_MSG_SEGMENT_WITHDRAW, &msg, NULL);
		if (!err)
			owner_settle(sl, number);
		/* Over a link that is down: segment_owner_up() makes up for it. */
		else if (err != -ENETDOWN)
			again = true;
		else
			break;
	}
	pcilend_changed();
	if (again)
		queue_delayed_work(pcilend_wq, &sl->tell, msecs_to_jiffies(RETRY_MS));
}

void segment_owner_link_init(struct segment_link *sl)
{
	INIT_LIST_HEAD(&sl->offers);
	INIT_DELAYED_WORK(&sl->tell, owner_tell_work);
}

void segment_owner_up(struct segment_link *sl)
{
	u16 node;

	mutex_lock(&segments_lock);
	if (pcilend_link_is_up(sl->link, &node))
		sl->node = node;
	mutex_unlock(&segments_lock);
	mod_delayed_work(pcilend_wq, &sl->tell, 0);
}

static void owner_end_offers(struct segment_link *sl)
{
	struct offer *offer, *next;

	lockdep_assert_held(&segments_lock);
	sl->node = 0;
	list_for_each_entry_safe(offer, next, &sl->offers, of_link) {
		struct segment *segment = offer->segment;

		if (offer->core.state == PCILEND_OFFER_OFFERED && !segment->closed) {
			WRITE_ONCE(segment->ended, true);
			wake_up_interruptible_poll(&segment->wait, EPOLLPRI);
		}
		owner_withdraw_offer(offer);
	}
}

void segment_owner_expelled(struct segment_link *sl)
{
	guard(mutex)(&segments_lock);
	owner_end_offers(sl);
}

void segment_owner_peer_dead(struct segment_link *sl)
{
	struct offer *offer, *next;

	guard(mutex)(&segments_lock);
	owner_end_offers(sl);
	list_for_each_entry_safe(offer, next, &sl->offers, of_link) {
		pcilend_offer_settle(&offer->core);
		owner_drop_offer(offer);
	}
}

/* No file of a segment is open, and no link is left. */
void segment_owner_exit(void)
{
	WARN_ON(!list_empty(&segments));
}
