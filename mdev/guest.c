// SPDX-License-Identifier: GPL-2.0-only
/*
 * The memory of one guest, as borrowed functions reach it: core/guestmem.c finds it; here it is
 * pinned through VFIO and mapped into the NTB's IOMMU domain.
 *
 * Functions that a VM reaches over one adapter share what is mapped of it in the adapter's windows,
 * so they share a struct mdev_guest; so do those that are lent as a set, whoever uses them. Pages
 * are pinned for each of them, as each may be closed first. All others have one of their own.
 *
 * VFIO's dma_unmap callback must not wait for a pass, which can take seconds. So a pass holds the
 * lock for a step at a time.
 */

#include <linux/delay.h>
#include <linux/iommu.h>
#include <linux/moduleparam.h>
#include <linux/sched/mm.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include "pcilend/identity.h"
#include "pcilend_mdev.h"
#include "mdev_trace.h"

/*
 * While memory is being unmapped it can still be pinned, and type1 asks again and again to unpin
 * it, and BUGs at the eleventh time (vfio_dma_do_unmap()). So nothing is pinned for a while after
 * it asked, and longer if it asks for the same again.
 */
#define HOLD_MS 20
#define HOLD_MAX_MS 2000

/* How often who watches is told how far a pass has got. */
#define TELL_MS 250

static LIST_HEAD(guests);	/* that functions may share */
static DEFINE_MUTEX(guests_lock);

static bool share = true;
module_param(share, bool, 0644);
MODULE_PARM_DESC(share, "Functions of one VM share the memory windows that reach it (default: yes)");

static struct mdev_device_state *state_of(struct mdev_memory *memory)
{
	return container_of(memory, struct mdev_device_state, memory);
}

static struct mdev_memory *first_member(struct mdev_guest *guest)
{
	lockdep_assert_held(&guest->lock);
	return list_first_entry(&guest->members, struct mdev_memory, member);
}

/* All or none, into guest->page. */
static int pin_for(struct mdev_memory *memory, u64 gpa, u32 pages)
{
	struct vfio_device *vdev = &state_of(memory)->vdev;
	int ret;

	ret = vfio_pin_pages(vdev, gpa, pages, IOMMU_READ | IOMMU_WRITE, memory->guest->page);
	if (ret == -ENOENT) /* what iommufd says where type1 says -EINVAL */
		return -EINVAL;
	if (ret < 0)
		return ret;
	if (ret != pages) {
		if (ret)
			vfio_unpin_pages(vdev, gpa, ret);
		return -EIO;
	}
	return 0;
}

static void unpin_for(struct mdev_memory *memory, u64 gpa, u64 end)
{
	while (gpa < end) {
		int some = min_t(u64, (end - gpa) / PCILEND_GUEST_PAGE, PCILEND_GUEST_BLOCK_PAGES);

		vfio_unpin_pages(&state_of(memory)->vdev, gpa, some);
		gpa += some * PCILEND_GUEST_PAGE;
	}
}

static int op_pin(void *context, u64 gpa, u32 pages, u64 *pfn)
{
	struct mdev_guest *guest = context;
	u64 end = gpa + pages * PCILEND_GUEST_PAGE;
	struct mdev_memory *memory;
	int ret = -ESTALE;
	u32 i;

	list_for_each_entry(memory, &guest->members, member) {
		ret = pin_for(memory, gpa, pages);
		if (ret)
			goto unpin;
		for (i = 0; i < pages; i++) {
			if (memory == first_member(guest))
				pfn[i] = page_to_pfn(guest->page[i]);
			else if (pfn[i] != page_to_pfn(guest->page[i]))
				ret = -EXDEV;
		}
		if (ret) {
			unpin_for(memory, gpa, end);
			goto unpin;
		}
	}
	return ret;

unpin:
	list_for_each_entry_continue_reverse(memory, &guest->members, member)
		unpin_for(memory, gpa, end);
	return ret;
}

static void op_unpin(void *context, u64 gpa, u64 pages)
{
	struct mdev_guest *guest = context;
	struct mdev_memory *memory;

	list_for_each_entry(memory, &guest->members, member)
		unpin_for(memory, gpa, min(gpa + pages * PCILEND_GUEST_PAGE, memory->joined));
}

static int op_map(void *context, u64 iova, const struct pcilend_guest_run *run, u32 count)
{
	struct mdev_guest *guest = context;
	size_t size = 0;
	ssize_t mapped;
	u32 i;

	sg_init_table(guest->sg, count);
	for (i = 0; i < count; i++) {
		sg_set_page(&guest->sg[i], pfn_to_page(run[i].pfn),
			    run[i].pages * PCILEND_GUEST_PAGE, 0);
		size += run[i].pages * PCILEND_GUEST_PAGE;
	}
	mapped = iommu_map_sg(guest->domain, iova, guest->sg, count,
			      IOMMU_READ | IOMMU_WRITE | IOMMU_CACHE, GFP_KERNEL);
	if (mapped == size)
		return 0;
	if (mapped > 0)
		iommu_unmap(guest->domain, iova, mapped);
	return mapped < 0 ? mapped : -ENOMEM;
}

static void op_unmap(void *context, u64 iova, u64 pages)
{
	struct mdev_guest *guest = context;
	size_t size = pages * PCILEND_GUEST_PAGE;

	WARN_ON_ONCE(iommu_unmap(guest->domain, iova, size) != size);
}

/* Keeps the slot until this function, too, has been stopped. */
static int share_slot(struct mdev_memory *memory, struct mdev_memory *from, u64 iova, u64 size)
{
	int err = pcilend_slot_share(state_of(memory)->remote, state_of(from)->remote, iova, size);

	if (err)
		return err;
	memory->slot[memory->slots].start = iova;
	memory->slot[memory->slots++].end = iova + size;
	return 0;
}

static void put_last_slot(struct mdev_memory *memory)
{
	struct pcilend_guest_range *slot = &memory->slot[--memory->slots];

	pcilend_slot_put(state_of(memory)->remote, slot->start, slot->end - slot->start);
}

static int op_slot_get(void *context, u64 size, u64 *iova)
{
	struct mdev_guest *guest = context;
	struct mdev_memory *first = first_member(guest), *memory = first;
	int err;

	err = pcilend_slot_get(state_of(first)->remote, size, iova);
	if (err)
		return err;
	first->slot[first->slots].start = *iova;
	first->slot[first->slots++].end = *iova + size;
	if (*iova & (PCILEND_GUEST_BLOCK - 1)) {
		put_last_slot(first);
		return -ENOSPC;
	}
	list_for_each_entry_continue(memory, &guest->members, member) {
		err = share_slot(memory, first, *iova, size);
		if (!err)
			continue;
		list_for_each_entry_continue_reverse(memory, &guest->members, member)
			put_last_slot(memory);
		return err;
	}
	return 0;
}

int mdev_guest_slot_get(struct mdev_guest *guest, u64 size, u64 *iova)
{
	lockdep_assert_held(&guest->pass_lock);
	guard(mutex)(&guest->lock);
	return op_slot_get(guest, size, iova);
}

static const struct pcilend_guestmem_ops guest_ops = {
	.pin = op_pin,
	.unpin = op_unpin,
	.map = op_map,
	.unmap = op_unmap,
	.slot_get = op_slot_get,
};

static void guest_free(struct mdev_guest *guest)
{
	mmdrop(guest->mm);
	kfree(guest->sg);
	kfree(guest->page);
	kvfree(guest->state);
	kfree(guest);
}

static struct mdev_guest *guest_alloc(struct mdev_device_state *state)
{
	struct mdev_guest *guest = kzalloc(sizeof(*guest), GFP_KERNEL_ACCOUNT);

	if (!guest)
		return NULL;
	guest->mm = current->mm;
	mmgrab(guest->mm);
	guest->vm = state->vdev.kvm;
	guest->users = 1;
	guest->domain = pcilend_aperture(state->remote);
	guest->lender = pcilend_id_node(state->remote->id);
	guest->set = pcilend_set(state->remote);
	INIT_LIST_HEAD(&guest->node);
	INIT_LIST_HEAD(&guest->members);
	mutex_init(&guest->pass_lock);
	mutex_init(&guest->lock);
	guest->held_until = jiffies;
	INIT_DELAYED_WORK(&guest->work, mdev_memory_work);
	guest->state = kvzalloc(sizeof(*guest->state), GFP_KERNEL_ACCOUNT);
	guest->page = kcalloc(PCILEND_GUEST_BLOCK_PAGES, sizeof(*guest->page), GFP_KERNEL_ACCOUNT);
	guest->sg = kcalloc(PCILEND_GUEST_BLOCK_PAGES, sizeof(*guest->sg), GFP_KERNEL_ACCOUNT);
	if (!guest->state || !guest->page || !guest->sg) {
		guest_free(guest);
		return NULL;
	}
	pcilend_guestmem_init(guest->state, &guest_ops, guest);
	return guest;
}

static bool is_same_user(const struct mdev_guest *a, const struct mdev_guest *b)
{
	return a->mm == b->mm && a->domain == b->domain;
}

/*
 * The guest that has other functions of the same set, or of the same VM; or NULL. A process may
 * have several address spaces; a VM has one, but for a virtual IOMMU, which keeps memory from being
 * found at all.
 */
static struct mdev_guest *guest_to_share(const struct mdev_guest *wanted)
{
	struct mdev_guest *guest;

	lockdep_assert_held(&guests_lock);
	list_for_each_entry(guest, &guests, node) {
		if (guest->lender != wanted->lender || guest->set != wanted->set)
			continue;
		if (wanted->set || (READ_ONCE(share) && wanted->vm && guest->vm == wanted->vm &&
				    is_same_user(guest, wanted)))
			return guest;
	}
	return NULL;
}

int mdev_guest_open(struct mdev_device_state *state)
{
	struct mdev_guest *fresh = guest_alloc(state), *guest;
	int err = 0;

	if (!fresh)
		return -ENOMEM;
	if (!fresh->domain) {
		guest_free(fresh);
		return -ESTALE;
	}
	mutex_lock(&guests_lock);
	guest = guest_to_share(fresh);
	if (!guest) {
		guest = fresh;
		fresh = NULL;
		list_add(&guest->node, &guests);
	} else if (!is_same_user(guest, fresh)) {
		err = -EBUSY;
	} else {
		guest->users++;
	}
	if (!err)
		state->memory.guest = guest;
	mutex_unlock(&guests_lock);
	if (fresh)
		guest_free(fresh);
	if (err)
		dev_err(&state->remote->dev, "another function of its IOMMU group is in use by another VMM, or over another adapter: give all of them to one guest\n");
	return err;
}

/* With a reference, or NULL if the device is not open. */
static struct mdev_guest *guest_get(struct mdev_memory *memory)
{
	struct mdev_guest *guest;

	guard(mutex)(&guests_lock);
	guest = memory->guest;
	if (guest)
		guest->users++;
	return guest;
}

static void guest_put(struct mdev_guest *guest)
{
	bool last;

	scoped_guard(mutex, &guests_lock) {
		last = !--guest->users;
		if (last)
			list_del(&guest->node);
	}
	if (!last)
		return;
	cancel_delayed_work_sync(&guest->work);
	guest_free(guest);
}

void mdev_guest_close(struct mdev_device_state *state)
{
	struct mdev_memory *memory = &state->memory;
	struct mdev_guest *guest;

	while (memory->slots)
		put_last_slot(memory);
	scoped_guard(mutex, &guests_lock) {
		guest = memory->guest;
		memory->guest = NULL;
	}
	guest_put(guest);
}

static bool is_held(struct mdev_guest *guest)
{
	lockdep_assert_held(&guest->lock);
	return time_before(jiffies, guest->held_until);
}

/*
 * Pins the next block of what is pinned for others already. 1: there may be more. What it gets
 * must be what is mapped.
 */
static int catch_up(struct mdev_memory *memory)
{
	struct mdev_guest *guest = memory->guest;
	const struct pcilend_guestmem *state = guest->state;
	u64 start, end, iova;
	u32 i = 0, page;
	int ret;

	lockdep_assert_held(&guest->lock);
	while (i < state->ranges && state->range[i].end <= memory->joined)
		i++;
	if (i == state->ranges) {
		memory->joined = U64_MAX;
		return 0;
	}
	start = max(state->range[i].start, memory->joined);
	end = min(state->range[i].end,
		  round_down(start, PCILEND_GUEST_BLOCK) + PCILEND_GUEST_BLOCK);
	ret = pin_for(memory, start, (end - start) / PCILEND_GUEST_PAGE);
	if (ret)
		return ret;
	for (page = 0; !ret && start + page * PCILEND_GUEST_PAGE < end; page++) {
		iova = pcilend_guestmem_iova(state, start + page * PCILEND_GUEST_PAGE);
		if (iommu_iova_to_phys(guest->domain, iova) != page_to_phys(guest->page[page]))
			ret = -EXDEV;
	}
	if (ret) {
		unpin_for(memory, start, end);
		return ret;
	}
	memory->joined = end;
	return 1;
}

static int share_slots(struct mdev_memory *memory)
{
	struct mdev_guest *guest = memory->guest;
	u32 i;
	int err = 0;

	lockdep_assert_held(&guest->lock);
	for (i = 0; !err && i < guest->state->segments; i++)
		err = share_slot(memory, first_member(guest), guest->state->segment[i].slot,
				 guest->state->segment[i].slot_size);
	for (i = 0; !err && i < MDEV_LOCALS; i++) {
		if (guest->local[i].size)
			err = share_slot(memory, first_member(guest), guest->local[i].iova,
					 guest->local[i].size);
	}
	return err;
}

int mdev_guest_join(struct mdev_memory *memory)
{
	struct mdev_guest *guest = memory->guest;
	bool held = false;
	int ret;

	lockdep_assert_held(&guest->pass_lock);
	scoped_guard(mutex, &guest->lock) {
		if (!list_empty(&memory->member))
			return 0;
		while (memory->slots)	/* of an attempt that failed */
			put_last_slot(memory);
		memory->joined = 0;
		memory->mirrored = 0;
		memory->local = 0;
		ret = list_empty(&guest->members) ? 0 : share_slots(memory);
		if (ret)
			return ret;
		list_add_tail(&memory->member, &guest->members);
		ret = 1;
	}
	/* Only passes pin more, and none is under way. */
	while (ret > 0) {
		scoped_guard(mutex, &guest->lock) {
			held = is_held(guest);
			if (memory->stopping)
				ret = -ESTALE;
			else if (!held)
				ret = catch_up(memory);
		}
		if (held)
			msleep(HOLD_MS);
		cond_resched();
	}
	if (ret)
		mdev_guest_leave(memory);
	return ret;
}

void mdev_guest_leave(struct mdev_memory *memory)
{
	struct mdev_guest *guest = memory->guest;
	u32 i;

	lockdep_assert_held(&guest->pass_lock);
	/* The list changes only when pass_lock is held. */
	if (list_empty(&memory->member))
		return;
	if (list_is_singular(&guest->members))
		mdev_locals_drop(guest);
	guard(mutex)(&guest->lock);
	if (list_is_singular(&guest->members)) {
		pcilend_guestmem_release(guest->state);
		pcilend_guestmem_drop_segments(guest->state);
	} else {
		for (i = 0; i < guest->state->ranges; i++)
			unpin_for(memory, guest->state->range[i].start,
				  min(guest->state->range[i].end, memory->joined));
	}
	list_del_init(&memory->member);
}

void mdev_guest_tell(struct mdev_guest *guest, u64 bytes, u64 pass_ns)
{
	struct mdev_memory *memory;

	lockdep_assert_held(&guest->pass_lock);
	/* The list changes only when pass_lock is held. */
	list_for_each_entry(memory, &guest->members, member)
		pcilend_report_guest_memory(state_of(memory)->remote, bytes,
					    (guest->spent_ns + pass_ns) / NSEC_PER_USEC);
}

/* Is there one for whom it is worth going on? */
static bool is_wanted(struct mdev_guest *guest)
{
	struct mdev_memory *memory;

	lockdep_assert_held(&guest->lock);
	list_for_each_entry(memory, &guest->members, member) {
		if (!memory->stopping)
			return true;
	}
	return false;
}

int mdev_guest_find(struct mdev_guest *guest)
{
	u64 start = ktime_get_ns(), told = start, bytes, now;
	bool held = false, changed;
	int ret = 1;

	lockdep_assert_held(&guest->pass_lock);
	scoped_guard(mutex, &guest->lock) {
		if (is_wanted(guest))
			pcilend_guestmem_begin(guest->state);
	}
	while (ret > 0) {
		scoped_guard(mutex, &guest->lock) {
			held = is_held(guest);
			if (!is_wanted(guest))
				ret = -ESTALE;
			else if (!held)
				ret = pcilend_guestmem_step(guest->state);
			bytes = guest->state->pinned;
			changed = guest->state->changed;
		}
		now = ktime_get_ns();
		if (ret > 0 && changed && now - told > TELL_MS * NSEC_PER_MSEC) {
			mdev_guest_tell(guest, bytes, now - start);
			told = now;
		}
		if (held)
			msleep(HOLD_MS);
		else
			cond_resched();
	}
	return ret;
}

/* Somebody unmaps memory: no pinning until it is gone. */
static void hold(struct mdev_guest *guest, u64 gpa, u64 size)
{
	bool again = guest->held_gpa == gpa && guest->held_size == size &&
		     time_before(jiffies, guest->held_until + msecs_to_jiffies(HOLD_MAX_MS));

	lockdep_assert_held(&guest->lock);
	guest->hold_ms = again ? min(2 * guest->hold_ms, (unsigned int)HOLD_MAX_MS) : HOLD_MS;
	guest->held_gpa = gpa;
	guest->held_size = size;
	guest->held_until = jiffies + msecs_to_jiffies(guest->hold_ms);
}

/* VFIO's callback: on return nothing in the range is pinned. */
void mdev_memory_unmap(struct vfio_device *vdev, u64 iova, u64 length)
{
	struct mdev_device_state *state = to_state(vdev);
	struct mdev_guest *guest = guest_get(&state->memory);
	u64 unpinned;

	if (!guest)
		return;
	scoped_guard(mutex, &guest->lock) {
		if (!list_empty(&state->memory.member)) {
			hold(guest, iova, length);
			unpinned = pcilend_guestmem_forget(guest->state, iova, length);
			trace_pcilend_mdev_forget(state->remote->id, iova, length, unpinned);
			mdev_memory_plan(guest);
		}
	}
	guest_put(guest);
}
