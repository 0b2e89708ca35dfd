// SPDX-License-Identifier: GPL-2.0-only
/*
 * The owner's end of segments. The memory is pinned once (base/memory.h), and each offer maps its
 * pages in a slot of one link's aperture, in one piece.
 *
 * What a peer had connected keeps its place in the aperture after the pages are unmapped, until the
 * peer has said that no process of it has that in its page tables, or is dead. A segment whose
 * owner has closed it stays in the table for as long, so that its id means nothing else.
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
#include "pcilend/identity.h"
#include "segment/owner.h"
#include "segment/segment.h"

#define SEGMENTS 1024			/* of this host */
#define OFFERS 256			/* over one link: slots are for guests, too */

LIST_HEAD(segments_list);
DEFINE_MUTEX(segments_lock);		/* the list, and what struct segment and offer say */
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

void segment_owner_tell(const struct segment *segment, const struct offer *offer)
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
	list_for_each_entry(segment, &segments_list, node) {
		if (segment->id == id)
			return segment;
	}
	return NULL;
}

u32 segment_owner_new_id(void)
{
	unsigned int i;

	lockdep_assert_held(&segments_lock);
	if (!pcilend_node || list_count_nodes(&segments_list) >= SEGMENTS)
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

void segment_owner_end(struct segment *segment)
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

void segment_offer_drop(struct offer *offer)
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
		segment_owner_end(segment);
}

void segment_offer_withdraw(struct offer *offer)
{
	lockdep_assert_held(&segments_lock);
	if (offer->core.state != PCILEND_OFFER_OFFERED)
		return;
	pcilend_notify_close(&offer->notify);
	pcilend_source_take(offer->source);
	owner_unmap_offer(offer);
	pcilend_offer_withdraw(&offer->core);
	segment_owner_tell(offer->segment, offer);
	if (offer->core.state == PCILEND_OFFER_OVER)
		segment_offer_drop(offer);
	else
		mod_delayed_work(pcilend_wq, &segment_link(offer->link)->tell, 0);
}

/* Nobody reaches it any more. */
static int owner_release_file(struct inode *inode, struct file *file)
{
	struct segment *segment = file->private_data, with = *segment;
	struct offer *offer, *next;

	mutex_lock(&segments_lock);
	list_for_each_entry_safe(offer, next, &segment->offers, of_segment)
		segment_offer_withdraw(offer);
	segment->closed = true;
	if (list_empty(&segment->offers))
		segment_owner_end(segment);
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

struct segment *segment_owner_alloc(const char *name)
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
	segment = segment_owner_alloc(name);
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
	*id = segment_owner_new_id();
	segment->id = *id;
	if (*id) {
		list_add_tail(&segment->node, &segments_list);
		segment_owner_tell(segment, NULL);
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
		NL_SET_ERR_MSG(extack, "this host is about to sleep or to go down: try again when it is awake");
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

int segment_owner_offer(u32 id, u32 function, u32 node, struct pcilend_link *link, bool read_only,
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
	segment_owner_tell(segment, offer);
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
	err = segment_owner_offer(id, 0, node, link, read_only, extack);
	pcilend_link_put(link);
	return err;
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
			segment_near_close(segment);
			break;
		}
		segment_offer_withdraw(offer);
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
	list_for_each_entry(segment, &segments_list, node) {
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

struct offer *segment_offer_to(u32 id, u32 node)
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
	offer = segment_offer_to(id, node);
	if (!offer)
		return -ENODEV;
	if (offer->read_only && !read_only)
		return -EACCES;
	pcilend_memory_borrow(memory, &offer->segment->memory, offer->source);
	memory->writable &= !offer->read_only;
	return 0;
}

/* No file of a segment is open, and no link is left. */
void segment_owner_exit(void)
{
	WARN_ON(!list_empty(&segments_list));
}
