// SPDX-License-Identifier: GPL-2.0-only
/*
 * A function and the memory of its guest: the lender is told of each segment that was found
 * (guest.c). Bus mastering is on at the lender only while the guest wants it and has been mapped as
 * a whole.
 */

#include "pcilend_mdev.h"
#include "mdev_trace.h"

/* A register access waits this long at most for a guest whose memory keeps changing. */
#define SETTLE_MS 30000

/* Nothing tells of memory that is plugged in: it is looked for this often. */
#define WATCH_MS 1000

static struct mdev_device_state *state_of(struct mdev_memory *memory)
{
	return container_of(memory, struct mdev_device_state, memory);
}

/* Has the lender map the segments that it does not know yet. */
static int mirror_segments(struct mdev_memory *memory)
{
	struct mdev_guest *guest = memory->guest;
	struct pcilend_guest_segment segment;
	u32 i = 0;
	int err;

	lockdep_assert_held(&guest->pass_lock);
	for (;;) {
		/* Only passes add segments, and none goes while the function is a member. */
		scoped_guard(mutex, &guest->lock) {
			while (i < guest->state->segments && memory->mirrored & BIT_ULL(i))
				i++;
			if (memory->stopping)
				return -ESTALE;
			if (i == guest->state->segments)
				return 0;
			segment = guest->state->segment[i];
		}
		err = pcilend_map(state_of(memory)->remote, segment.start, segment.iova,
				  segment.end - segment.start);
		if (err)
			return err;
		memory->mirrored |= BIT_ULL(i);
	}
}

static const char *explain(int error)
{
	switch (error) {
	case -ENOMEM:
		return "no memory, or the VMM's limit of locked memory (RLIMIT_MEMLOCK) is too low";
	case -ENOSPC:
		return "no room in the aperture, or the guest's memory lies in too many pieces";
	case -EXDEV:
		return "the VMM shows functions different memory: load pcilend_mdev with share=0";
	case -EUSERS:
		return "another guest has a function of its IOMMU group: give all of them to one";
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

static void complain(struct mdev_memory *memory, int err)
{
	if (err && err != -ESTALE)
		dev_err_ratelimited(&state_of(memory)->remote->dev,
				    "the guest's memory can't be mapped: %s (error %d)\n",
				    explain(err), err);
}

/* Looks for memory, and has it mirrored for all members. What fails for one is kept there. */
static int pass(struct mdev_guest *guest)
{
	u64 start = ktime_get_ns(), bytes, spent;
	struct mdev_memory *memory;
	bool clean, stable, changed;
	u32 segments;
	int err;

	lockdep_assert_held(&guest->pass_lock);
	err = mdev_guest_find(guest);
	/* The list changes only when pass_lock is held. */
	list_for_each_entry(memory, &guest->members, member)
		memory->error = err ?: mirror_segments(memory);
	if (!err)
		mdev_locals_find(guest);

	scoped_guard(mutex, &guest->lock) {
		clean = pcilend_guestmem_clean(guest->state);
		stable = pcilend_guestmem_stable(guest->state);
		changed = guest->state->changed;
		bytes = guest->state->pinned;
		segments = guest->state->segments;
	}
	spent = ktime_get_ns() - start;
	if (changed)
		guest->spent_ns += spent;
	mdev_guest_tell(guest, bytes, 0);
	list_for_each_entry(memory, &guest->members, member) {
		struct pcilend_remote *remote = state_of(memory)->remote;

		trace_pcilend_mdev_pass(remote->id, bytes, segments, spent / NSEC_PER_USEC,
					memory->error, clean, stable);
		complain(memory, memory->error);
	}
	return err;
}

/* When to look next. */
void mdev_memory_plan(struct mdev_guest *guest)
{
	struct mdev_memory *memory;
	unsigned int ms = WATCH_MS;
	bool watching = false;

	lockdep_assert_held(&guest->lock);
	list_for_each_entry(memory, &guest->members, member)
		watching |= memory->watching && !memory->stopping;
	if (!watching)
		return;
	if (!pcilend_guestmem_stable(guest->state))
		ms = pcilend_guestmem_delay(guest->state);
	mod_delayed_work(mdev_wq, &guest->work, msecs_to_jiffies(ms));
}

static bool is_clean(struct mdev_guest *guest)
{
	guard(mutex)(&guest->lock);
	return pcilend_guestmem_clean(guest->state);
}

/* Passes until one was not disturbed. */
static int settle(struct mdev_memory *memory)
{
	struct mdev_guest *guest = memory->guest;
	unsigned long end = jiffies + msecs_to_jiffies(SETTLE_MS);
	bool clean = false;
	int err;

	lockdep_assert_held(&guest->pass_lock);
	err = mdev_guest_join(memory);
	complain(memory, err);
	while (!err && !clean) {
		pass(guest);
		err = memory->error;
		clean = is_clean(guest);
		if (!err && !clean && time_after(jiffies, end))
			err = -EBUSY;
	}
	guard(mutex)(&guest->lock);
	mdev_memory_plan(guest);
	return err;
}

static int grant(struct mdev_memory *memory, bool on)
{
	struct pcilend_remote *remote = state_of(memory)->remote;
	int err;

	lockdep_assert_held(&memory->guest->pass_lock);
	if (memory->granted == on)
		return 0;
	/* The function may be in other hands already. */
	if (!memory->open)
		return -ESTALE;
	err = pcilend_bus_master(remote, on);
	trace_pcilend_mdev_state(remote->id, on ? "bus master on" : "bus master off", err);
	if (!err)
		memory->granted = on;
	return err;
}

int mdev_memory_bus_master(struct mdev_device_state *state, bool on)
{
	struct mdev_memory *memory = &state->memory;
	int err;

	guard(mutex)(&memory->guest->pass_lock);
	memory->wanted = on;
	scoped_guard(mutex, &memory->guest->lock)
		memory->watching = on;
	if (!on)
		return grant(memory, false);
	err = settle(memory);
	/* If it did not work out now, the work item goes on trying. */
	return err ?: grant(memory, true);
}

int mdev_memory_regrant(struct mdev_device_state *state)
{
	struct mdev_memory *memory = &state->memory;

	guard(mutex)(&memory->guest->pass_lock);
	if (!memory->granted)
		return 0;
	memory->granted = false;
	return grant(memory, true);
}

void mdev_memory_settle(struct mdev_device_state *state)
{
	struct mdev_memory *memory = &state->memory;
	bool stable;

	guard(mutex)(&memory->guest->pass_lock);
	scoped_guard(mutex, &memory->guest->lock)
		stable = memory->stopping || pcilend_guestmem_stable(memory->guest->state);
	if (memory->wanted && !stable && !settle(memory))
		grant(memory, true);
}

void mdev_memory_work(struct work_struct *work)
{
	struct mdev_guest *guest = container_of(to_delayed_work(work), struct mdev_guest, work);
	struct mdev_memory *memory;
	bool wanted = false, clean;

	guard(mutex)(&guest->pass_lock);
	list_for_each_entry(memory, &guest->members, member)
		wanted |= memory->wanted;
	if (!wanted)
		return;
	pass(guest);
	clean = is_clean(guest);
	list_for_each_entry(memory, &guest->members, member) {
		if (memory->wanted && !memory->error && clean)
			grant(memory, true);
	}
	guard(mutex)(&guest->lock);
	mdev_memory_plan(guest);
}

void mdev_memory_init(struct mdev_device_state *state)
{
	struct mdev_memory *memory = &state->memory;

	INIT_LIST_HEAD(&memory->member);
	memory->stopping = true;
}

int mdev_memory_open(struct mdev_device_state *state)
{
	struct mdev_memory *memory = &state->memory;
	int err = mdev_guest_open(state);

	if (err)
		return err;
	guard(mutex)(&memory->guest->pass_lock);
	guard(mutex)(&memory->guest->lock);
	memory->wanted = false;
	memory->granted = false;
	memory->watching = false;
	memory->stopping = false;
	memory->open = true;
	return 0;
}

/*
 * The function is stopped if that is still possible, then everything is unmapped and unpinned, and
 * stays so, and the lender is asked for nothing any more. The slots are kept: if it could not be
 * stopped, the function may still write to them.
 */
void mdev_memory_revoke(struct mdev_device_state *state)
{
	struct mdev_memory *memory = &state->memory;

	/* A pass under way ends at its next step, unless it is for others, too. */
	scoped_guard(mutex, &memory->guest->lock)
		memory->stopping = true;
	guard(mutex)(&memory->guest->pass_lock);
	memory->wanted = false;
	grant(memory, false);
	mdev_guest_leave(memory);
	memory->open = false;
	memory->granted = false;
}
