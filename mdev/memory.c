// SPDX-License-Identifier: GPL-2.0-only
/*
 * The guest's memory as the function reaches it, and bus mastering, which stands on it.
 *
 * core/guestmem.c finds the memory; here it is pinned through VFIO, mapped into the NTB's IOMMU
 * domain, and the lender is told of each segment. Bus mastering is on at the lender only while
 * the guest wants it and has been mapped as a whole.
 *
 * VFIO's dma_unmap callback must not wait for a pass, which can take seconds. So a pass holds the
 * lock for a step at a time.
 */

#include <linux/delay.h>
#include <linux/iommu.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include "pcilend_mdev.h"
#include "mdev_trace.h"

/* A register access waits this long at most for a guest whose memory keeps changing. */
#define SETTLE_MS 30000

/* Nothing tells of memory that is plugged in: it is looked for this often. */
#define WATCH_MS 1000

/*
 * While memory is being unmapped it can still be pinned, and type1 asks again and again to unpin
 * it, and BUGs at the eleventh time (vfio_dma_do_unmap()). So nothing is pinned for a while after
 * it asked, and longer if it asks for the same again.
 */
#define HOLD_MS 20
#define HOLD_MAX_MS 2000

static int op_pin(void *context, u64 gpa, u32 pages, u64 *pfn)
{
	struct mdev_device_state *state = context;
	struct page **page = state->memory.page;
	u32 i;
	int ret;

	ret = vfio_pin_pages(&state->vdev, gpa, pages, IOMMU_READ | IOMMU_WRITE, page);
	if (ret == -ENOENT) /* what iommufd says where type1 says -EINVAL */
		return -EINVAL;
	if (ret < 0)
		return ret;
	if (ret != pages) {
		if (ret)
			vfio_unpin_pages(&state->vdev, gpa, ret);
		return -EIO;
	}
	for (i = 0; i < pages; i++)
		pfn[i] = page_to_pfn(page[i]);
	return 0;
}

static void op_unpin(void *context, u64 gpa, u64 pages)
{
	struct mdev_device_state *state = context;

	while (pages) {
		int some = min_t(u64, pages, PCILEND_GUEST_BLOCK_PAGES);

		vfio_unpin_pages(&state->vdev, gpa, some);
		gpa += some * PCILEND_GUEST_PAGE;
		pages -= some;
	}
}

static int op_map(void *context, u64 iova, const struct pcilend_guest_run *run, u32 count)
{
	struct mdev_device_state *state = context;
	struct mdev_memory *memory = &state->memory;
	size_t size = 0;
	ssize_t mapped;
	u32 i;

	sg_init_table(memory->sg, count);
	for (i = 0; i < count; i++) {
		sg_set_page(&memory->sg[i], pfn_to_page(run[i].pfn),
			    run[i].pages * PCILEND_GUEST_PAGE, 0);
		size += run[i].pages * PCILEND_GUEST_PAGE;
	}
	mapped = iommu_map_sg(memory->domain, iova, memory->sg, count,
			      IOMMU_READ | IOMMU_WRITE | IOMMU_CACHE, GFP_KERNEL);
	if (mapped == size)
		return 0;
	if (mapped > 0)
		iommu_unmap(memory->domain, iova, mapped);
	return mapped < 0 ? mapped : -ENOMEM;
}

static void op_unmap(void *context, u64 iova, u64 pages)
{
	struct mdev_device_state *state = context;
	size_t size = pages * PCILEND_GUEST_PAGE;

	WARN_ON_ONCE(iommu_unmap(state->memory.domain, iova, size) != size);
}

static int op_slot_get(void *context, u64 size, u64 *iova)
{
	struct mdev_device_state *state = context;
	int err;

	err = pcilend_slot_get(state->remote, size, iova);
	if (!err && *iova & (PCILEND_GUEST_BLOCK - 1)) {
		pcilend_slot_put(state->remote, *iova, size);
		err = -ENOSPC;
	}
	return err;
}

static const struct pcilend_guestmem_ops memory_ops = {
	.pin = op_pin,
	.unpin = op_unpin,
	.map = op_map,
	.unmap = op_unmap,
	.slot_get = op_slot_get,
};

/* Somebody unmaps memory: no pinning until it is gone. */
static void hold(struct mdev_memory *memory, u64 gpa, u64 size)
{
	bool again = memory->held_gpa == gpa && memory->held_size == size &&
		     time_before(jiffies, memory->held_until + msecs_to_jiffies(HOLD_MAX_MS));

	lockdep_assert_held(&memory->lock);
	memory->hold_ms = again ? min(2 * memory->hold_ms, (unsigned int)HOLD_MAX_MS) : HOLD_MS;
	memory->held_gpa = gpa;
	memory->held_size = size;
	memory->held_until = jiffies + msecs_to_jiffies(memory->hold_ms);
}

static int find_memory(struct mdev_memory *memory)
{
	bool held;
	int ret = 1;

	scoped_guard(mutex, &memory->lock) {
		if (!memory->stopping)
			pcilend_guestmem_begin(memory->state);
	}
	while (ret > 0) {
		scoped_guard(mutex, &memory->lock) {
			held = time_before(jiffies, memory->held_until);
			if (memory->stopping)
				ret = -ESTALE;
			else if (!held)
				ret = pcilend_guestmem_step(memory->state);
		}
		if (held)
			msleep(HOLD_MS);
		else
			cond_resched();
	}
	return ret;
}

/* Has the lender map the segments that it does not know yet. */
static int mirror_segments(struct mdev_device_state *state)
{
	struct mdev_memory *memory = &state->memory;
	struct pcilend_guest_segment segment;
	u32 i = 0;
	int err;

	lockdep_assert_held(&memory->pass_lock);
	for (;;) {
		/* Only passes add segments, and none goes while the device is open. */
		scoped_guard(mutex, &memory->lock) {
			while (i < memory->state->segments && memory->state->segment[i].mirrored)
				i++;
			if (memory->stopping)
				return -ESTALE;
			if (i == memory->state->segments)
				return 0;
			segment = memory->state->segment[i];
		}
		err = pcilend_map(state->remote, segment.start, segment.iova,
				  segment.end - segment.start);
		if (err)
			return err;
		guard(mutex)(&memory->lock);
		memory->state->segment[i].mirrored = true;
	}
}

static const char *explain(int error)
{
	switch (error) {
	case -ENOMEM:
		return "no memory, or the VMM's limit of locked memory (RLIMIT_MEMLOCK) is too low";
	case -ENOSPC:
		return "no room in the aperture, or the guest's memory lies in too many pieces";
	case -EACCES:
		return "the VMM must use a type1v2 container or iommufd";
	case -ETIMEDOUT:
		return "the lender does not answer";
	case -ENETDOWN:
		return "the link to the lender is down";
	default:
		return "see the error number";
	}
}

static int pass(struct mdev_device_state *state)
{
	struct mdev_memory *memory = &state->memory;
	u64 start = ktime_get_ns();
	bool clean = false, stable = false, changed = false;
	u64 bytes = 0;
	u32 segments = 0;
	int err;

	lockdep_assert_held(&memory->pass_lock);
	err = find_memory(memory);
	if (!err)
		err = mirror_segments(state);

	scoped_guard(mutex, &memory->lock) {
		if (memory->open) {
			clean = pcilend_guestmem_clean(memory->state);
			stable = pcilend_guestmem_stable(memory->state);
			changed = memory->state->changed;
			bytes = memory->state->pinned;
			segments = memory->state->segments;
		}
	}
	start = ktime_get_ns() - start;
	trace_pcilend_mdev_pass(state->remote->id, bytes, segments, start / NSEC_PER_USEC, err,
				clean, stable);
	if (changed) {
		memory->spent_ns += start;
		pcilend_report_guest_memory(state->remote, bytes,
					    memory->spent_ns / NSEC_PER_USEC);
	}
	if (err && err != -ESTALE)
		dev_err_ratelimited(&state->remote->dev,
				    "the guest's memory can't be mapped: %s (error %d)\n",
				    explain(err), err);
	return err;
}

/* When to look next. */
static void plan(struct mdev_device_state *state)
{
	struct mdev_memory *memory = &state->memory;
	unsigned int ms = WATCH_MS;

	lockdep_assert_held(&memory->lock);
	if (memory->stopping || !memory->watching)
		return;
	if (!pcilend_guestmem_stable(memory->state))
		ms = pcilend_guestmem_delay(memory->state);
	mod_delayed_work(mdev_wq, &memory->work, msecs_to_jiffies(ms));
}

/* Passes until one was not disturbed. */
static int settle(struct mdev_device_state *state)
{
	struct mdev_memory *memory = &state->memory;
	unsigned long end = jiffies + msecs_to_jiffies(SETTLE_MS);
	bool clean = false;
	int err = 0;

	lockdep_assert_held(&memory->pass_lock);
	while (!err && !clean) {
		err = pass(state);
		scoped_guard(mutex, &memory->lock)
			clean = memory->open && pcilend_guestmem_clean(memory->state);
		if (!err && !clean && time_after(jiffies, end))
			err = -EBUSY;
	}
	guard(mutex)(&memory->lock);
	plan(state);
	return err;
}

static int grant(struct mdev_device_state *state, bool on)
{
	struct mdev_memory *memory = &state->memory;
	int err;

	lockdep_assert_held(&memory->pass_lock);
	if (memory->granted == on)
		return 0;
	/* The function may be in other hands already. */
	scoped_guard(mutex, &memory->lock) {
		if (!memory->open)
			return -ESTALE;
	}
	err = pcilend_bus_master(state->remote, on);
	trace_pcilend_mdev_state(state->remote->id, on ? "bus master on" : "bus master off", err);
	if (!err)
		memory->granted = on;
	return err;
}

int mdev_memory_bus_master(struct mdev_device_state *state, bool on)
{
	struct mdev_memory *memory = &state->memory;
	int err;

	guard(mutex)(&memory->pass_lock);
	memory->wanted = on;
	scoped_guard(mutex, &memory->lock)
		memory->watching = on;
	if (!on)
		return grant(state, false);
	err = settle(state);
	/* If it did not work out now, the work item goes on trying. */
	return err ?: grant(state, true);
}

int mdev_memory_regrant(struct mdev_device_state *state)
{
	struct mdev_memory *memory = &state->memory;

	guard(mutex)(&memory->pass_lock);
	if (!memory->granted)
		return 0;
	memory->granted = false;
	return grant(state, true);
}

void mdev_memory_settle(struct mdev_device_state *state)
{
	struct mdev_memory *memory = &state->memory;
	bool clean;

	guard(mutex)(&memory->pass_lock);
	scoped_guard(mutex, &memory->lock)
		clean = !memory->open || pcilend_guestmem_stable(memory->state);
	if (memory->wanted && !clean && !settle(state))
		grant(state, true);
}

static void memory_work(struct work_struct *work)
{
	struct mdev_memory *memory = container_of(to_delayed_work(work), struct mdev_memory, work);
	struct mdev_device_state *state = container_of(memory, struct mdev_device_state, memory);
	bool clean;
	int err;

	guard(mutex)(&memory->pass_lock);
	if (!memory->wanted)
		return;
	err = pass(state);
	scoped_guard(mutex, &memory->lock) {
		clean = memory->open && pcilend_guestmem_clean(memory->state);
		plan(state);
	}
	if (!err && clean)
		grant(state, true);
}

/* VFIO's callback: on return nothing in the range is pinned. */
void mdev_memory_unmap(struct vfio_device *vdev, u64 iova, u64 length)
{
	struct mdev_device_state *state = to_state(vdev);
	struct mdev_memory *memory = &state->memory;
	u64 unpinned;

	guard(mutex)(&memory->lock);
	if (!memory->open)
		return;
	hold(memory, iova, length);
	unpinned = pcilend_guestmem_forget(memory->state, iova, length);
	trace_pcilend_mdev_forget(state->remote->id, iova, length, unpinned);
	plan(state);
}

void mdev_memory_init(struct mdev_device_state *state)
{
	struct mdev_memory *memory = &state->memory;

	mutex_init(&memory->pass_lock);
	mutex_init(&memory->lock);
	memory->stopping = true;
	INIT_DELAYED_WORK(&memory->work, memory_work);
}

int mdev_memory_open(struct mdev_device_state *state)
{
	struct mdev_memory *memory = &state->memory;
	struct iommu_domain *domain = pcilend_aperture(state->remote);
	int err = -ENOMEM;

	if (!domain)
		return -ESTALE;

	guard(mutex)(&memory->pass_lock);
	guard(mutex)(&memory->lock);
	memory->state = kvzalloc(sizeof(*memory->state), GFP_KERNEL_ACCOUNT);
	memory->page = kcalloc(PCILEND_GUEST_BLOCK_PAGES, sizeof(*memory->page),
			       GFP_KERNEL_ACCOUNT);
	memory->sg = kcalloc(PCILEND_GUEST_BLOCK_PAGES, sizeof(*memory->sg), GFP_KERNEL_ACCOUNT);
	if (!memory->state || !memory->page || !memory->sg)
		goto err_free;

	pcilend_guestmem_init(memory->state, &memory_ops, state);
	memory->domain = domain;
	memory->wanted = false;
	memory->granted = false;
	memory->watching = false;
	memory->spent_ns = 0;
	memory->held_until = jiffies;
	memory->stopping = false;
	memory->open = true;
	return 0;

err_free:
	kfree(memory->sg);
	kfree(memory->page);
	kvfree(memory->state);
	return err;
}

/*
 * The function is stopped if that is still possible, then everything is unmapped and unpinned, and
 * stays so, and the lender is asked for nothing any more. The slots are kept: if it could not be
 * stopped, the function may still write to them.
 */
void mdev_memory_revoke(struct mdev_device_state *state)
{
	struct mdev_memory *memory = &state->memory;

	/* A pass under way ends at its next step. */
	scoped_guard(mutex, &memory->lock)
		memory->stopping = true;
	guard(mutex)(&memory->pass_lock);
	memory->wanted = false;
	grant(state, false);
	guard(mutex)(&memory->lock);
	if (memory->open)
		pcilend_guestmem_release(memory->state);
	memory->open = false;
	memory->granted = false;
}

void mdev_memory_close(struct mdev_device_state *state)
{
	struct mdev_memory *memory = &state->memory;

	mdev_memory_revoke(state);
	cancel_delayed_work_sync(&memory->work);
}

/* After the lease was returned, or lost. */
void mdev_memory_free(struct mdev_device_state *state)
{
	struct mdev_memory *memory = &state->memory;
	u32 i;

	for (i = 0; i < memory->state->segments; i++)
		pcilend_slot_put(state->remote, memory->state->segment[i].slot,
				 memory->state->segment[i].slot_size);
	kfree(memory->sg);
	kfree(memory->page);
	kvfree(memory->state);
}
