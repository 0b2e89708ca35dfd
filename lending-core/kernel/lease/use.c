// SPDX-License-Identifier: GPL-2.0-only
/*
 * The lease fd, and what its process has mapped for the function. Memory stays pinned until the
 * process unmaps it or closes the lease fd, also when the lease has ended before: then nothing
 * reaches it any more.
 */

#include <linux/anon_inodes.h>
#include <linux/eventfd.h>
#include <linux/file.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/sizes.h>
#include <linux/slab.h>

#include "base/base.h"
#include "lease/lease.h"
#include "pcilend/segment.h"

struct use_map {
	struct list_head node;		/* pcilend_use.lock */
	u64 address;			/* the function's */
	struct pcilend_memory memory;
	bool gone;			/* the function reaches it no more */
};

static struct pcilend_lease_status *use_status(struct pcilend_use *use)
{
	return page_address(use->status);
}

static void use_free(struct kref *ref)
{
	struct pcilend_use *use = container_of(ref, struct pcilend_use, ref);

	put_page(use->status);
	kfree(use->clients);
	kfree(use);
}

void pcilend_use_put(struct pcilend_use *use)
{
	if (use)
		kref_put(&use->ref, use_free);
}

struct pcilend_use *pcilend_use_get(struct pcilend_use *use)
{
	kref_get(&use->ref);
	return use;
}

/* States only go up. */
static void use_tell(struct pcilend_use *use, enum pcilend_lease_state state, bool disturbed)
{
	struct pcilend_lease_status *status = use_status(use);
	unsigned long flags;

	spin_lock_irqsave(&use->status_lock, flags);
	if (disturbed)
		WRITE_ONCE(status->epoch, status->epoch + 1);
	if (state > status->state)
		WRITE_ONCE(status->state, state);
	spin_unlock_irqrestore(&use->status_lock, flags);
	wake_up_poll(&use->wait, EPOLLHUP | EPOLLPRI);
}

void pcilend_use_begin(struct pcilend_use *use, const struct pcilend_use_ops *ops, void *holder)
{
	use->ops = ops;
	use->holder = holder;
}

void pcilend_use_set_slice(struct pcilend_use *use, u64 address, u64 bytes)
{
	WARN_ON(pcilend_range_init(&use->slice, address, bytes, use->used,
				   ARRAY_SIZE(use->used)));
}

void pcilend_use_set_far(struct pcilend_use *use, u64 address, u64 bytes)
{
	WARN_ON(pcilend_range_init(&use->far, address, bytes, use->far_used,
				   ARRAY_SIZE(use->far_used)));
}

static void use_set_hidden(struct pcilend_use *use, bool hidden)
{
	guard(mutex)(&use->bars_lock);
	use->hidden = hidden;
	pcilend_use_move_bars(use);
}

void pcilend_use_hide(struct pcilend_use *use)
{
	use_set_hidden(use, true);
}

void pcilend_use_show(struct pcilend_use *use)
{
	use_set_hidden(use, false);
}

void pcilend_use_recalled(struct pcilend_use *use)
{
	use_tell(use, PCILEND_LEASE_RECALLED, false);
}

void pcilend_use_disturbed(struct pcilend_use *use)
{
	use_tell(use, PCILEND_LEASE_ACTIVE, true);
}

void pcilend_use_over(struct pcilend_use *use)
{
	scoped_guard(mutex, &use->bars_lock) {
		if (use->over)
			return;
		use->over = true;
		pcilend_use_move_bars(use);
	}
	use_tell(use, PCILEND_LEASE_OVER, true);
}

static void use_drop_maps(struct pcilend_use *use)
{
	struct use_map *map, *next;

	list_for_each_entry_safe(map, next, &use->maps, node) {
		pcilend_memory_put(&map->memory);
		kfree(map);
	}
	INIT_LIST_HEAD(&use->maps);
}

static void use_take_reach(struct pcilend_use *use, struct use_map *map)
{
	lockdep_assert_held(&use->lock);
	if (!map->gone)
		use->ops->unmap(use->holder, map->address, map->memory.size);
	map->gone = true;
}

void pcilend_use_unmap_all(struct pcilend_use *use)
{
	struct use_map *map;

	guard(mutex)(&use->lock);
	list_for_each_entry(map, &use->maps, node)
		use_take_reach(use, map);
}

void pcilend_use_end(struct pcilend_use *use)
{
	pcilend_use_over(use);
	use_drop_maps(use);
}

static int use_release(struct inode *inode, struct file *file)
{
	struct pcilend_use *use = file->private_data;

	if (use->holder)
		use->ops->end(use->holder);
	pcilend_use_put(use);
	return 0;
}

static __poll_t use_poll(struct file *file, poll_table *wait)
{
	struct pcilend_use *use = file->private_data;
	__poll_t news;

	poll_wait(file, &use->wait, wait);
	news = READ_ONCE(use->untold) || READ_ONCE(use->mail) ? EPOLLIN : 0;
	switch (READ_ONCE(use_status(use)->state)) {
	case PCILEND_LEASE_OVER:
		return EPOLLHUP;
	case PCILEND_LEASE_RECALLED:
		return news | EPOLLPRI;
	default:
		return news;
	}
}

static int use_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct pcilend_use *use = file->private_data;

	if (vma->vm_pgoff || vma->vm_end - vma->vm_start != PAGE_SIZE)
		return -EINVAL;
	if (vma->vm_flags & VM_WRITE)
		return -EACCES;
	vm_flags_mod(vma, VM_DONTEXPAND | VM_DONTDUMP, VM_MAYWRITE);
	return vm_insert_page(vma, vma->vm_start, use->status);
}

static const struct file_operations use_fops = {
	.owner = THIS_MODULE,
	.release = use_release,
	.poll = use_poll,
	.mmap = use_mmap,
};

struct pcilend_use *pcilend_use_create(const char *owner, struct file **file)
{
	struct pcilend_use *use = kzalloc(sizeof(*use), GFP_KERNEL_ACCOUNT);
	int err;

	if (!use)
		return ERR_PTR(-ENOMEM);
	use->status = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	if (!use->status) {
		kfree(use);
		return ERR_PTR(-ENOMEM);
	}
	kref_init(&use->ref);
	mutex_init(&use->lock);
	mutex_init(&use->bars_lock);
	mutex_init(&use->clients_lock);
	spin_lock_init(&use->status_lock);
	INIT_LIST_HEAD(&use->maps);
	INIT_LIST_HEAD(&use->bars);
	init_waitqueue_head(&use->wait);
	strscpy(use->owner, owner, sizeof(use->owner));
	use_status(use)->state = PCILEND_LEASE_ACTIVE;
	*file = anon_inode_getfile("[pcilend-lease]", &use_fops, use, O_RDWR);
	if (!IS_ERR(*file))
		return use;
	err = PTR_ERR(*file);
	pcilend_use_put(use);
	return ERR_PTR(err);
}

/* The lease fd of the calling process, for fput(). */
struct file *pcilend_use_file(int fd, struct netlink_ext_ack *extack)
{
	struct file *file = fget(fd);

	if (file && file->f_op == &use_fops)
		return file;
	if (file)
		fput(file);
	NL_SET_ERR_MSG(extack, "that file descriptor is no lease: borrow a function with the frontend lease first");
	return ERR_PTR(-EBADF);
}

static int use_bar(struct pcilend_use *use, u32 bar, u64 offset, u64 size, struct file **file,
		   struct netlink_ext_ack *extack)
{
	struct pcilend_use_place place = { };
	int err;

	if (!size || !PAGE_ALIGNED(size) || !PAGE_ALIGNED(offset)) {
		NL_SET_ERR_MSG(extack, "a part of a BAR is whole pages of 4 KiB: give another offset and size");
		return -EINVAL;
	}
	guard(mutex)(&use->lock);
	err = use->ops->bar(use->holder, bar, offset, size, &place, extack);
	return err ?: pcilend_use_export_bar(use, &place, size, file);
}

/**
 * pcilend_use_bar - a part of a BAR, as a dma-buf whose mmap is uncached
 * @fd: a lease fd of the calling process
 * @file: set; the caller's to install or to put
 */
int pcilend_use_bar(int fd, u32 bar, u64 offset, u64 size, struct file **file,
		    struct netlink_ext_ack *extack)
{
	struct file *lease = pcilend_use_file(fd, extack);
	int err;

	if (IS_ERR(lease))
		return PTR_ERR(lease);
	err = use_bar(lease->private_data, bar, offset, size, file, extack);
	fput(lease);
	return err;
}

/* Where it gets its device address from. */
static struct pcilend_range *use_range(struct pcilend_use *use, const struct use_map *map)
{
	bool far = map->memory.segment || map->memory.far.function;

	return far && use->far.size ? &use->far : &use->slice;
}

/* All of a BAR is there, also where a part of it is mapped. */
static int use_place(struct pcilend_range *range, struct use_map *map)
{
	const struct pcilend_far_bar *bar = &map->memory.far;
	u64 size = map->memory.size;
	int err;

	/* For the IOMMU's larger pages. */
	if (!bar->function)
		return pcilend_range_alloc(range, size, size >= SZ_2M ? SZ_2M : PAGE_SIZE,
					   &map->address);
	err = pcilend_range_alloc(range, bar->size, roundup_pow_of_two(bar->size), &map->address);
	map->address += err ? 0 : bar->offset;
	return err;
}

static void use_give_place(struct pcilend_range *range, const struct use_map *map)
{
	const struct pcilend_far_bar *bar = &map->memory.far;

	pcilend_range_free(range, map->address - bar->offset,
			   bar->function ? bar->size : map->memory.size);
}

static int use_check_far(struct pcilend_use *use, const struct use_map *map, bool read_only,
			 struct netlink_ext_ack *extack)
{
	if (!map->memory.far.function)
		return 0;
	if (!use->far.size)
		return pcilend_refuse(extack, -EOPNOTSUPP, "it is a BAR of another host's function: only functions of other hosts, each leased for one process, reach one another");
	if (read_only)
		return pcilend_refuse(extack, -EOPNOTSUPP, "a BAR of another host's function is reached for reading and writing: map it so");
	return 0;
}

static int use_add_map(struct pcilend_use *use, struct use_map *map, bool read_only,
		       struct netlink_ext_ack *extack)
{
	struct pcilend_range *range;
	u64 size = map->memory.size;
	int err;

	if (!read_only && !map->memory.writable) {
		NL_SET_ERR_MSG(extack, "it is read-only here: map it read-only");
		return -EACCES;
	}
	guard(mutex)(&use->lock);
	err = use_check_far(use, map, read_only, extack);
	if (err)
		return err;
	range = use_range(use, map);
	err = use_place(range, map);
	if (err && range == &use->far)
		return pcilend_refuse_fmt(extack, err, "no room for this of another host, or %d such are mapped: unmap some",
					  PCILEND_USE_FAR);
	if (err)
		return pcilend_refuse_fmt(extack, err, "slice of %llu KiB has no room for %llu KiB: unmap, or lease a larger one",
					  range->size >> 10, size >> 10);
	err = use->ops->map(use->holder, &map->memory, read_only, map->address, extack);
	if (err)
		use_give_place(range, map);
	else
		list_add_tail(&map->node, &use->maps);
	return err;
}

static int use_map(struct pcilend_use *use, int dma_buf_fd, bool read_only, u64 *address,
		   struct netlink_ext_ack *extack)
{
	struct use_map *map = kzalloc(sizeof(*map), GFP_KERNEL_ACCOUNT);
	int err;

	if (!map)
		return -ENOMEM;
	/* What an exporter waits for is nothing of ours. */
	err = pcilend_memory_get(&map->memory, dma_buf_fd, true, extack);
	if (err)
		goto err_free;
	err = use_add_map(use, map, read_only, extack);
	if (err)
		goto err_memory;
	*address = map->address;
	return 0;

err_memory:
	pcilend_memory_put(&map->memory);
err_free:
	kfree(map);
	return err;
}

/**
 * pcilend_use_map - the function reaches memory of the calling process
 * @address: set to where
 */
int pcilend_use_map(int fd, int dma_buf_fd, bool read_only, u64 *address,
		    struct netlink_ext_ack *extack)
{
	struct file *lease = pcilend_use_file(fd, extack);
	int err;

	if (IS_ERR(lease))
		return PTR_ERR(lease);
	err = use_map(lease->private_data, dma_buf_fd, read_only, address, extack);
	fput(lease);
	return err;
}

/* The one at that address, out of the list, and out of the function's reach; or NULL. */
static struct use_map *use_take_map(struct pcilend_use *use, u64 address)
{
	struct use_map *map;

	guard(mutex)(&use->lock);
	list_for_each_entry(map, &use->maps, node) {
		if (map->address != address)
			continue;
		list_del(&map->node);
		use_take_reach(use, map);
		use_give_place(use_range(use, map), map);
		return map;
	}
	return NULL;
}

/**
 * pcilend_use_unmap - undoes pcilend_use_map(), also when the lease is over
 */
int pcilend_use_unmap(int fd, u64 address, struct netlink_ext_ack *extack)
{
	struct file *lease = pcilend_use_file(fd, extack);
	struct use_map *map;

	if (IS_ERR(lease))
		return PTR_ERR(lease);
	map = use_take_map(lease->private_data, address);
	fput(lease);
	if (!map) {
		NL_SET_ERR_MSG(extack, "no segment is mapped at that address: give one that segment-map has answered");
		return -ENOENT;
	}
	pcilend_memory_put(&map->memory);
	kfree(map);
	return 0;
}

static int use_get_near(struct pcilend_use *use, struct pcilend_use_near *near,
			struct netlink_ext_ack *extack)
{
	if (!near->size || !PAGE_ALIGNED(near->size) || near->size > PCILEND_NEAR_BYTES_MAX)
		return pcilend_refuse(extack, -EINVAL, "memory beside a function is whole pages of 4 KiB, and at most 1 GiB: give another size");
	guard(mutex)(&use->lock);
	return use->ops->near ? use->ops->near(use->holder, near, extack) :
	       pcilend_refuse(extack, -EOPNOTSUPP, "only who has leased a function of another host is given memory beside it: of this host's it is any, and a client's is its manager's to give");
}

/**
 * pcilend_use_get_near - memory of the function's lender, for the calling process
 * @near: its size; the rest is set: it is to be connected, or it stays until the lease ends
 */
int pcilend_use_get_near(int fd, struct pcilend_use_near *near, struct netlink_ext_ack *extack)
{
	struct file *lease = pcilend_use_file(fd, extack);
	int err;

	if (IS_ERR(lease))
		return PTR_ERR(lease);
	err = use_get_near(lease->private_data, near, extack);
	fput(lease);
	return err;
}

static int use_interrupt(struct pcilend_use *use, u32 vector, struct eventfd_ctx *event,
			 struct netlink_ext_ack *extack)
{
	guard(mutex)(&use->lock);
	return use->ops->interrupt(use->holder, vector, event, extack);
}

/**
 * pcilend_use_interrupt - an interrupt of the function raises an eventfd of the calling process
 * @event_fd: -1: no longer
 */
int pcilend_use_interrupt(int fd, u32 vector, int event_fd, struct netlink_ext_ack *extack)
{
	struct file *lease = pcilend_use_file(fd, extack);
	struct eventfd_ctx *event = NULL;
	int err;

	if (IS_ERR(lease))
		return PTR_ERR(lease);
	if (event_fd >= 0)
		event = eventfd_ctx_fdget(event_fd);
	if (IS_ERR(event)) {
		NL_SET_ERR_MSG(extack, "what an interrupt is to raise is no eventfd: give one, or none to end it");
		err = PTR_ERR(event);
		goto out;
	}
	err = use_interrupt(lease->private_data, vector, event, extack);
	if (err && event)
		eventfd_ctx_put(event);
out:
	fput(lease);
	return err;
}
