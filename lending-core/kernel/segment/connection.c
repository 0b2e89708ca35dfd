// SPDX-License-Identifier: GPL-2.0-only
/*
 * The other end of segments: a process has one of another host. What it gets is a dma-buf whose
 * mmap is the window of the adapter, and a control file.
 *
 * When the link is lost, or the segment withdrawn, the window is taken out of all page tables, and
 * pages of all-ones come in its place, which the process may write to as it likes: no fault, and
 * nobody else's memory. It is never put back, as what was stored meanwhile is lost: who wants to
 * go on connects again. That something was lost is counted in the page that the control file
 * shows, in the interrupt that tells of it.
 *
 * A connection stays in its link's list until nobody has it and its owner knows.
 */

#include <linux/anon_inodes.h>
#include <linux/dma-buf.h>
#include <linux/file.h>
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "base/pages.h"
#include "pcilend/identity.h"
#include "segment/segment.h"

#define CONNECTIONS 1024		/* over one link */
#define RETRY_MS 1000

struct connection {
	struct list_head node;		/* segment_link.lock, as all that is not constant */
	struct list_head status_node;	/* segment_link.status_lock */
	struct kref ref;		/* of the list, its two files, and who is working on it */
	struct pcilend_link *link;	/* with a reference */
	u32 id;
	u32 number;
	bool of_function;		/* and no process has it in its page tables */
	u64 losses;			/* of the link, when it was asked for */
	struct pcilend_connection core;

	struct pcilend_pages pages;	/* as the next two, constant once open; away: it is lost */
	u32 __iomem *notify;		/* NULL: its owner takes no notifications */
	u32 notify_data;
	bool reserved;			/* its memory type, write-combining */
	u32 round;			/* of the work that tells owners: seen in it */

	struct page *status;
	wait_queue_head_t wait;		/* for its loss */
};

static atomic_t connection_last = ATOMIC_INIT(0);

static struct segment_link *connection_link(struct connection *c)
{
	return segment_link(c->link);
}

static void connection_free(struct kref *ref)
{
	struct connection *c = container_of(ref, struct connection, ref);

	if (c->notify)
		iounmap(c->notify);
	pcilend_pages_destroy(&c->pages);
	if (c->status)
		put_page(c->status);
	pcilend_link_put(c->link);
	kfree(c);
}

static void connection_put(struct connection *c)
{
	kref_put(&c->ref, connection_free);
}

/* Stores that were made since the program has last looked may be lost. Any context. */
static void connection_count(struct connection *c)
{
	struct pcilend_segment_status *status = page_address(c->status);

	lockdep_assert_held(&connection_link(c)->status_lock);
	WRITE_ONCE(status->epoch, status->epoch + 1);
}

/* It was made or lost; or with @gone, it has ended. */
static void connection_tell(struct connection *c, enum pcilend_segment_state state, bool gone)
{
	const struct pcilend_segment_news news = {
		.id = c->id,
		.size = c->pages.size,
		.state = state,
		.adapter = pci_name(c->link->pdev),
	};

	pcilend_event_segment(&news, gone);
}

/* On return no process has the window in its page tables, nor will. */
static void connection_take_pages(struct connection *c)
{
	struct segment_link *sl = connection_link(c);
	unsigned long flags;

	lockdep_assert_held(&sl->lock);
	pcilend_pages_take(&c->pages);
	if (c->reserved)
		arch_io_free_memtype_wc(c->pages.phys, c->pages.size);
	c->reserved = false;
	spin_lock_irqsave(&sl->status_lock, flags);
	connection_count(c);
	spin_unlock_irqrestore(&sl->status_lock, flags);
	wake_up_interruptible_poll(&c->wait, EPOLLHUP | EPOLLPRI);
	connection_tell(c, PCILEND_SEGMENT_LOST, false);
}

/* Leaves the list if it is over. May free it, unless the caller has a reference. */
static void connection_leave_if_over(struct connection *c)
{
	struct segment_link *sl = connection_link(c);
	unsigned long flags;

	lockdep_assert_held(&sl->lock);
	if (!pcilend_connection_is_over(&c->core) || list_empty(&c->node))
		return;
	spin_lock_irqsave(&sl->status_lock, flags);
	list_del_init(&c->status_node);
	spin_unlock_irqrestore(&sl->status_lock, flags);
	list_del_init(&c->node);
	connection_put(c);
}

/* No process has it any more, nor has any its pages mapped. Takes the caller's reference over. */
static void connection_close(struct connection *c)
{
	struct segment_link *sl = connection_link(c);

	mutex_lock(&sl->lock);
	if (c->reserved)
		arch_io_free_memtype_wc(c->pages.phys, c->pages.size);
	c->reserved = false;
	pcilend_connection_close(&c->core);
	if (pcilend_connection_to_release(&c->core))
		mod_delayed_work(pcilend_wq, &sl->release, 0);
	connection_tell(c, PCILEND_SEGMENT_LOST, true);
	connection_leave_if_over(c);
	mutex_unlock(&sl->lock);
	connection_put(c);
}

static void connection_release_pages(struct pcilend_pages *pages)
{
	connection_close(container_of(pages, struct connection, pages));
}

static int connection_release_control(struct inode *inode, struct file *file)
{
	connection_put(file->private_data);
	return 0;
}

/*
 * Notifies the owner, as eight bytes to an eventfd would. What was stored to the segment before is
 * there by then.
 */
static ssize_t connection_notify(struct file *file, const char __user *buffer, size_t count,
				 loff_t *position)
{
	struct connection *c = file->private_data;
	u64 value;

	if (count != sizeof(value))
		return -EINVAL;
	if (copy_from_user(&value, buffer, sizeof(value)))
		return -EFAULT;
	guard(rwsem_read)(&c->pages.lock);
	if (c->pages.away)
		return -ENOTCONN;
	if (!c->notify)
		return -EOPNOTSUPP;
	/* Gathered stores leave first. */
	wmb();
	iowrite32(c->notify_data, c->notify);
	return count;
}

/* EPOLLHUP: it is lost. */
static __poll_t connection_poll(struct file *file, poll_table *wait)
{
	struct connection *c = file->private_data;

	poll_wait(file, &c->wait, wait);
	return READ_ONCE(c->pages.away) ? EPOLLHUP | EPOLLPRI : 0;
}

static int connection_mmap_status(struct file *file, struct vm_area_struct *vma)
{
	struct connection *c = file->private_data;

	if (vma->vm_pgoff || vma->vm_end - vma->vm_start != PAGE_SIZE)
		return -EINVAL;
	if (vma->vm_flags & VM_WRITE)
		return -EACCES;
	vm_flags_mod(vma, VM_DONTEXPAND | VM_DONTDUMP, VM_MAYWRITE);
	return vm_insert_page(vma, vma->vm_start, c->status);
}

static const struct file_operations connection_control_fops = {
	.owner = THIS_MODULE,
	.release = connection_release_control,
	.poll = connection_poll,
	.write = connection_notify,
	.mmap = connection_mmap_status,
};

static struct connection *connection_alloc(struct pcilend_link *link,
					   const struct pcilend_segment_wish *wish)
{
	struct connection *c = kzalloc(sizeof(*c), GFP_KERNEL_ACCOUNT);

	if (!c)
		return NULL;
	kref_init(&c->ref);
	INIT_LIST_HEAD(&c->node);
	INIT_LIST_HEAD(&c->status_node);
	init_waitqueue_head(&c->wait);
	c->link = pcilend_link_get(link);
	c->id = wish->id;
	c->pages.release = connection_release_pages;
	c->pages.read_only = wish->read_only;
	c->pages.write_combining = wish->write_combining;
	c->pages.behind = pci_dev_get(link->pdev);
	c->pages.link = c->link;
	c->pages.segment = wish->id;
	c->of_function = wish->node;
	do {
		c->number = atomic_inc_return(&connection_last);
	} while (!c->number);
	c->status = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	if (!c->status || pcilend_pages_init(&c->pages)) {
		connection_put(c);
		return NULL;
	}
	return c;
}

/* It is in the list before its owner is asked, for what happens meanwhile. */
static int connection_begin(struct connection *c, u32 owner)
{
	struct segment_link *sl = connection_link(c);

	guard(mutex)(&sl->lock);
	if (sl->owner != owner)
		return -EHOSTUNREACH;
	if (pcilend_sleeps())
		return -EBUSY;
	if (list_count_nodes(&sl->connections) >= CONNECTIONS)
		return -ENOSPC;
	c->losses = pcilend_link_losses(c->link);
	pcilend_connection_ask(&c->core);
	kref_get(&c->ref);
	list_add_tail(&c->node, &sl->connections);
	spin_lock_irq(&sl->status_lock);
	list_add_tail(&c->status_node, &sl->statuses);
	spin_unlock_irq(&sl->status_lock);
	return 0;
}

/* Two mappings of one page must be of one kind (Intel SDM 3A, 12.12.4). */
static bool connection_of_another_kind(struct connection *c, u32 offer)
{
	struct segment_link *sl = connection_link(c);
	struct connection *other;

	lockdep_assert_held(&sl->lock);
	if (c->of_function)
		return false;
	list_for_each_entry(other, &sl->connections, node) {
		if (other != c && !other->of_function &&
		    other->core.state == PCILEND_CONNECTION_OPEN &&
		    other->core.offer == offer &&
		    other->pages.write_combining != c->pages.write_combining)
			return true;
	}
	return false;
}

/* Only where this host reaches the interrupts of its owner's. */
static void connection_take_notify(struct connection *c, const struct pcilend_msg_segment *place)
{
	const struct pcilend_hello *hello = &c->link->hello;
	u64 offset = hello->interrupt_offset + le32_to_cpu(place->notify_offset);
	phys_addr_t phys;

	if (!(le32_to_cpu(place->flags) & PCILEND_SEGMENT_NOTIFIES) ||
	    pcilend_aperture_peer(c->link, hello->interrupt_window, offset, sizeof(u32), &phys))
		return;
	c->notify = ioremap(phys, sizeof(u32));
	c->notify_data = le32_to_cpu(place->notify_data);
}

static int connection_refuse(const char **why, int error, const char *text)
{
	*why = text;
	return error;
}

/* What keeps this host from using what it was granted; 0: nothing. */
static int connection_take_place(struct connection *c, const struct pcilend_msg_segment *place,
				 const char **why)
{
	u32 offer = le32_to_cpu(place->offer);
	int err;

	lockdep_assert_held(&connection_link(c)->lock);
	if (le32_to_cpu(place->id) != c->id)
		return -EPROTO;
	c->pages.size = le64_to_cpu(place->size);
	err = pcilend_aperture_peer(c->link, le32_to_cpu(place->window),
				    le64_to_cpu(place->offset), c->pages.size, &c->pages.phys);
	if (err)
		return err;
	if (le32_to_cpu(place->flags) & PCILEND_SEGMENT_READ_ONLY && !c->pages.read_only)
		return connection_refuse(why, -EACCES,
					 "it is offered to this host read-only: connect it with --read-only");
	if (connection_of_another_kind(c, offer))
		return connection_refuse(why, -EBUSY,
					 "it is connected here with another memory type: connect it write-combining everywhere on this host, or nowhere");
	connection_take_notify(c, place);
	if (!c->pages.write_combining)
		return 0;
	err = arch_io_reserve_memtype_wc(c->pages.phys, c->pages.size);
	if (err)
		return connection_refuse(why, err,
					 "its window can't be mapped write-combining on this host: connect it without");
	c->reserved = true;
	return 0;
}

/* Return: 0, and it is open; or why not, and it is closed. */
static int connection_finish(struct connection *c, int error,
			     const struct pcilend_msg_segment *place, const char **why)
{
	enum pcilend_connection_answer answer = PCILEND_CONNECTION_GRANTED;
	struct segment_link *sl = connection_link(c);

	guard(mutex)(&sl->lock);
	if (error == -ENETDOWN || error == -ETIMEDOUT) {
		answer = PCILEND_CONNECTION_UNANSWERED;
	} else if (error) {
		answer = PCILEND_CONNECTION_REFUSED;
	} else {
		error = connection_take_place(c, place, why);
		if (error)
			answer = PCILEND_CONNECTION_UNANSWERED;
	}
	if (c->losses != pcilend_link_losses(c->link))
		pcilend_connection_lost(&c->core);
	if (pcilend_connection_answered(&c->core, answer, le32_to_cpu(place->offer))) {
		connection_tell(c, PCILEND_SEGMENT_CONNECTED, false);
		return 0;
	}
	if (c->reserved)
		arch_io_free_memtype_wc(c->pages.phys, c->pages.size);
	c->reserved = false;
	/* Of an adapter that goes the session is over already, and with it what was granted. */
	if (READ_ONCE(c->link->going))
		pcilend_connection_released(&c->core);
	if (pcilend_connection_to_release(&c->core))
		mod_delayed_work(pcilend_wq, &sl->release, 0);
	connection_leave_if_over(c);
	if (error)
		return error;
	return connection_refuse(why, -EAGAIN,
				 "the link was lost, or the segment withdrawn, meanwhile: try again");
}

/* Return: an open connection with a reference of the caller's, or ERR_PTR(). */
static struct connection *connection_open(struct pcilend_link *link,
					  const struct pcilend_segment_wish *wish, const char **why)
{
	struct connection *c = connection_alloc(link, wish);
	struct pcilend_answer answer = { };
	struct pcilend_msg_connection msg;
	int err;

	if (!c)
		return ERR_PTR(-ENOMEM);
	err = connection_begin(c, pcilend_id_node(wish->id));
	if (!err) {
		msg.id = cpu_to_le32(c->id);
		msg.connection = cpu_to_le32(c->number);
		msg.node = cpu_to_le32(wish->node);
		err = pcilend_channel_request(link, PCILEND_MSG_SEGMENT_CONNECT, &msg, &answer);
		err = connection_finish(c, err, (const void *)answer.payload, why);
	}
	if (!err)
		return c;
	connection_put(c);
	return ERR_PTR(err);
}

/* Over the first of the links to its owner over which it is offered. */
static struct connection *connection_open_any(const struct pcilend_segment_wish *wish,
					      const char **why)
{
	struct connection *c = ERR_PTR(-EHOSTUNREACH);
	struct pcilend_link *link;

	for (link = pcilend_link_next(NULL); link; link = pcilend_link_next(link)) {
		if (!pcilend_link_reaches(link, pcilend_id_node(wish->id)) ||
		    (wish->adapter && strcmp(wish->adapter, pci_name(link->pdev))))
			continue;
		c = connection_open(link, wish, why);
		if (IS_ERR(c) && PTR_ERR(c) == -ENODEV)
			continue;
		pcilend_link_put(link);
		break;
	}
	return c;
}

static int connection_why_not(int error, const char *why, const struct pcilend_segment_wish *wish,
			      struct netlink_ext_ack *extack)
{
	u32 node = pcilend_id_node(wish->id);

	if (why)
		return pcilend_refuse(extack, error, why);
	switch (error) {
	case -EHOSTUNREACH:
	case -ENETDOWN:
		return pcilend_refuse_fmt(extack, error, "no link to its owner, node %u, is up%s: see 'pcilend link'",
					  node, wish->adapter ? " over that adapter" : "");
	case -EBUSY:
		return pcilend_refuse(extack, error,
				      "this host is about to sleep or to go down: try again when it is awake");
	case -ETIMEDOUT:
		return pcilend_refuse_fmt(extack, error, "its owner, node %u, does not answer: see whether that host is alive",
					  node);
	case -ENODEV:
		return pcilend_refuse_fmt(extack, error, "node %u offers this host no segment with that id: offer it there",
					  node);
	case -ENOSPC:
		return pcilend_refuse(extack, error,
				      "it, or the link, has as many connections as there can be: close some, see 'pcilend segment list'");
	default:
		return pcilend_refuse_fmt(extack, error, "node %u or this host can't do it (error %d): see both kernel logs",
					  node, error);
	}
}

static void connection_report(const struct connection *c, struct pcilend_connection_report *report)
{
	lockdep_assert_held(&segment_link(c->link)->lock);
	memset(report, 0, sizeof(*report));
	report->id = c->id;
	report->connection = c->number;
	report->size = c->pages.size;
	strscpy(report->adapter, pci_name(c->link->pdev), sizeof(report->adapter));
	report->read_only = c->pages.read_only;
	report->write_combining = c->pages.write_combining;
	report->lost = c->core.state != PCILEND_CONNECTION_OPEN;
}

/* Takes the caller's reference over, in any case: whose close closes the connection. */
static struct dma_buf *connection_export(struct connection *c)
{
	struct dma_buf *buffer = pcilend_pages_export(&c->pages);

	if (IS_ERR(buffer))
		connection_close(c);
	return buffer;
}

/**
 * pcilend_segment_connect - a segment of another host for the calling process
 * @buffer: set to the file of a dma-buf whose mmap is the segment
 * @control: set to a file that tells of its end
 * @report: filled in
 *
 * The files are the caller's to install or to put. Waits for the owner's host.
 */
int pcilend_segment_connect(const struct pcilend_segment_wish *wish, struct file **buffer,
			    struct file **control, struct pcilend_connection_report *report,
			    struct netlink_ext_ack *extack)
{
	const char *why = NULL;
	struct dma_buf *exported;
	struct connection *c;

	if (!pcilend_id_valid(wish->id) || pcilend_id_node(wish->id) == pcilend_node) {
		NL_SET_ERR_MSG(extack, "a segment of another node is connected: give its id, as its owner's 'pcilend segment list' shows it");
		return -EINVAL;
	}
	c = connection_open_any(wish, &why);
	if (IS_ERR(c))
		return connection_why_not(PTR_ERR(c), why, wish, extack);
	scoped_guard(mutex, &connection_link(c)->lock)
		connection_report(c, report);
	kref_get(&c->ref);
	exported = connection_export(c);
	if (IS_ERR(exported)) {
		connection_put(c);
		return PTR_ERR(exported);
	}
	*control = anon_inode_getfile("[pcilend-connection]", &connection_control_fops, c, O_RDWR);
	if (IS_ERR(*control)) {
		connection_put(c);
		dma_buf_put(exported);
		return PTR_ERR(*control);
	}
	*buffer = exported->file;
	return 0;
}

int segment_connection_open(u32 id, u32 node, bool read_only, struct pcilend_memory *memory)
{
	const struct pcilend_segment_wish wish = { .id = id, .read_only = read_only, .node = node };
	const char *why = NULL;
	struct dma_buf *buffer;
	struct connection *c;

	/* Whose window leads to this host is no third one. */
	if (pcilend_id_node(id) == node)
		return -ENODEV;
	c = connection_open_any(&wish, &why);
	if (IS_ERR(c))
		return PTR_ERR(c);
	buffer = connection_export(c);
	if (IS_ERR(buffer))
		return PTR_ERR(buffer);
	pcilend_memory_of_pages(memory, &c->pages, buffer);
	return 0;
}

bool segment_connection_in_use(struct segment_link *sl)
{
	struct connection *c;

	guard(mutex)(&sl->lock);
	list_for_each_entry(c, &sl->connections, node) {
		if (c->core.state == PCILEND_CONNECTION_ASKING ||
		    c->core.state == PCILEND_CONNECTION_OPEN)
			return true;
	}
	return false;
}

static void connection_find_next(struct segment_link *sl, u32 number, bool *found,
				 struct pcilend_connection_report *report)
{
	struct connection *c;

	guard(mutex)(&sl->lock);
	list_for_each_entry(c, &sl->connections, node) {
		if (c->core.state == PCILEND_CONNECTION_ASKING ||
		    c->core.state == PCILEND_CONNECTION_CLOSED || c->number <= number ||
		    (*found && c->number > report->connection))
			continue;
		connection_report(c, report);
		*found = true;
	}
}

/* The one with the next number after @connection. */
bool pcilend_connection_next(u32 connection, struct pcilend_connection_report *report)
{
	struct pcilend_link *link;
	bool found = false;

	for (link = pcilend_link_next(NULL); link; link = pcilend_link_next(link))
		connection_find_next(segment_link(link), connection, &found, report);
	return found;
}

/* When the answer goes, no process here reaches anything of that offer. */
void segment_connection_withdraw(struct pcilend_link *link, const struct pcilend_message *msg)
{
	const struct pcilend_msg_withdraw *in = pcilend_message_payload(msg);
	struct segment_link *sl = segment_link(link);
	struct connection *c, *next;

	mutex_lock(&sl->lock);
	list_for_each_entry_safe(c, next, &sl->connections, node) {
		if (c->id != le32_to_cpu(in->id))
			continue;
		if (pcilend_connection_withdrawn(&c->core, le32_to_cpu(in->offer)))
			connection_take_pages(c);
		connection_leave_if_over(c);
	}
	mutex_unlock(&sl->lock);
	pcilend_changed();
	pcilend_channel_reply(link, msg, 0, NULL);
}

/* Any context: the epochs first, then, in a work item, the pages. */
void segment_connection_lost(struct segment_link *sl)
{
	struct connection *c;
	unsigned long flags;

	spin_lock_irqsave(&sl->status_lock, flags);
	list_for_each_entry(c, &sl->statuses, status_node)
		connection_count(c);
	spin_unlock_irqrestore(&sl->status_lock, flags);
	queue_work(pcilend_wq, &sl->lose);
}

static void connection_lose_work(struct work_struct *work)
{
	struct segment_link *sl = container_of(work, struct segment_link, lose);
	u64 losses = pcilend_link_losses(sl->link);
	struct connection *c;

	mutex_lock(&sl->lock);
	list_for_each_entry(c, &sl->connections, node) {
		if (c->losses != losses && pcilend_connection_lost(&c->core))
			connection_take_pages(c);
	}
	mutex_unlock(&sl->lock);
	mod_delayed_work(pcilend_wq, &sl->release, 0);
	pcilend_changed();
}

static void connection_lose_all(struct segment_link *sl)
{
	struct connection *c;

	lockdep_assert_held(&sl->lock);
	list_for_each_entry(c, &sl->connections, node) {
		if (pcilend_connection_lost(&c->core))
			connection_take_pages(c);
	}
}

/* Its owner's host may be dead, or hang. */
void segment_connection_silent(struct segment_link *sl)
{
	guard(mutex)(&sl->lock);
	connection_lose_all(sl);
}

void segment_connection_expelled(struct segment_link *sl)
{
	guard(mutex)(&sl->lock);
	sl->owner = 0;
	connection_lose_all(sl);
}

void segment_connection_peer_dead(struct segment_link *sl)
{
	struct connection *c, *next;

	guard(mutex)(&sl->lock);
	sl->owner = 0;
	list_for_each_entry_safe(c, next, &sl->connections, node) {
		if (pcilend_connection_owner_dead(&c->core))
			connection_take_pages(c);
		connection_leave_if_over(c);
	}
}

void segment_connection_up(struct segment_link *sl)
{
	u16 node;

	mutex_lock(&sl->lock);
	if (pcilend_link_is_up(sl->link, &node))
		sl->owner = node;
	mutex_unlock(&sl->lock);
	mod_delayed_work(pcilend_wq, &sl->release, 0);
}

/* One that the owner has to be told of, and was not in this round; with a reference. */
static struct connection *connection_next_to_release(struct segment_link *sl, u32 round)
{
	struct connection *c;

	guard(mutex)(&sl->lock);
	list_for_each_entry(c, &sl->connections, node) {
		if (c->round == round || !pcilend_connection_to_release(&c->core))
			continue;
		c->round = round;
		kref_get(&c->ref);
		return c;
	}
	return NULL;
}

static void connection_release_work(struct work_struct *work)
{
	struct segment_link *sl = container_of(work, struct segment_link, release.work);
	static atomic_t rounds = ATOMIC_INIT(0);
	u32 round = atomic_inc_return(&rounds);
	struct connection *c;
	bool again = false;
	int err = 0;

	/* One who does not answer is not asked for all others, too: people may wait for this. */
	while (err != -ENETDOWN && err != -ETIMEDOUT &&
	       (c = connection_next_to_release(sl, round))) {
		const struct pcilend_msg_connection msg = {
			.id = cpu_to_le32(c->id),
			.connection = cpu_to_le32(c->number),
		};

		err = pcilend_channel_request(sl->link, PCILEND_MSG_SEGMENT_RELEASE, &msg, NULL);
		if (!err || err == -ESTALE) {
			mutex_lock(&sl->lock);
			pcilend_connection_released(&c->core);
			connection_leave_if_over(c);
			mutex_unlock(&sl->lock);
		} else {
			/* Over a link that is down: segment_connection_up() makes up for it. */
			again |= err != -ENETDOWN;
		}
		connection_put(c);
	}
	pcilend_changed();
	if (again)
		queue_delayed_work(pcilend_wq, &sl->release, msecs_to_jiffies(RETRY_MS));
}

void segment_connection_link_init(struct segment_link *sl)
{
	mutex_init(&sl->lock);
	spin_lock_init(&sl->status_lock);
	INIT_LIST_HEAD(&sl->connections);
	INIT_LIST_HEAD(&sl->statuses);
	INIT_WORK(&sl->lose, connection_lose_work);
	INIT_DELAYED_WORK(&sl->release, connection_release_work);
}
