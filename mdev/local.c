// SPDX-License-Identifier: GPL-2.0-only
/*
 * BARs of this host's own functions that vfio-pci gives to the same guest: borrowed functions reach
 * them by DMA at their guest-physical addresses, as VFIO has functions of this host reach them.
 *
 * VFIO tells nobody of them, and pins memory only. KVM knows where a guest has them: what it maps
 * straight, and is no memory. So they are looked for among its memory slots whenever the guest's
 * memory is, and mapped into a slot of the aperture as that is. When vfio-pci takes such a mapping
 * from the VMM (memory decoding is off, a reset, the end), an MMU notifier takes ours, too.
 */

#include <linux/iommu.h>
#include <linux/kvm_host.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "pcilend_mdev.h"
#include "mdev_trace.h"

/* Each page is looked up; more would take seconds. */
#define LOCAL_MAX SZ_1G
/* Among them are the BARs of borrowed functions, in pieces. */
#define CANDIDATES 64

static bool local = true;
module_param(local, bool, 0644);
MODULE_PARM_DESC(local, "Borrowed functions reach BARs of vfio-pci's in the same VM (default: yes)");

struct candidate {
	u64 gpa;
	unsigned long hva;
	u64 size;
};

static struct mdev_device_state *state_of(struct mdev_memory *memory)
{
	return container_of(memory, struct mdev_device_state, memory);
}

/* Nobody sleeps in here; the range is gone when it returns. */
static bool local_invalidate(struct mmu_interval_notifier *notifier,
			     const struct mmu_notifier_range *range, unsigned long seq)
{
	struct mdev_local *bar = container_of(notifier, struct mdev_local, notifier);

	guard(spinlock)(&bar->lock);
	mmu_interval_set_seq(notifier, seq);
	if (bar->mapped)
		iommu_unmap(bar->domain, bar->iova, bar->size);
	bar->mapped = false;
	return true;
}

static const struct mmu_interval_notifier_ops local_ops = {
	.invalidate = local_invalidate,
};

/* The mmap lock is held. -EAGAIN: it was dropped. */
static int pfn_at(struct mm_struct *mm, unsigned long address, unsigned long *pfn)
{
	struct follow_pfnmap_args args = {
		.vma = vma_lookup(mm, address),
		.address = address,
	};
	bool unlocked = false;
	int err;

	mmap_assert_locked(mm);
	if (!args.vma || !(args.vma->vm_flags & VM_PFNMAP) || !(args.vma->vm_flags & VM_WRITE))
		return -EFAULT;
	err = follow_pfnmap_start(&args);
	if (err) {
		err = fixup_user_fault(mm, address, FAULT_FLAG_REMOTE | FAULT_FLAG_WRITE,
				       &unlocked);
		if (unlocked)
			return -EAGAIN;
		err = err ?: follow_pfnmap_start(&args);
	}
	if (err)
		return err;
	*pfn = args.pfn;
	err = args.writable ? 0 : -EFAULT;
	follow_pfnmap_end(&args);
	return err;
}

/* Where it is, if it is one piece and no memory. */
static int resolve(struct mm_struct *mm, unsigned long address, u64 size, phys_addr_t *phys)
{
	unsigned long pfn = 0, first = 0;
	u64 at = 0;
	int err = 0;

	mmap_read_lock(mm);
	while (at < size && !err) {
		err = pfn_at(mm, address + at, &pfn);
		if (err == -EAGAIN) {
			err = fatal_signal_pending(current) ? -EINTR : 0;
			continue;
		}
		if (!at)
			first = pfn;
		if (!err && (pfn != first + PHYS_PFN(at) || pfn_valid(pfn)))
			err = -EFAULT;
		at += PAGE_SIZE;
		cond_resched();
	}
	mmap_read_unlock(mm);
	*phys = PFN_PHYS(first);
	return err;
}

/* Is it one that can be mapped, now, and of this host? */
static bool is_local(struct mdev_guest *guest, struct pcilend_remote *remote, unsigned long hva,
		     u64 size, phys_addr_t *phys)
{
	dma_addr_t peer;

	/* Behind an NTB it is a borrowed function's: pcilend_guest_bars(). */
	return !resolve(guest->mm, hva, size, phys) &&
	       pcilend_reach_lookup(remote, *phys, size, &peer) == -ENOENT;
}

/* What can't be mapped now is tried again in the next pass. */
static void map_here(struct mdev_guest *guest, struct mdev_local *bar,
		     struct pcilend_remote *remote)
{
	unsigned long seq;
	phys_addr_t phys;

	if (READ_ONCE(bar->mapped))
		return;
	seq = mmu_interval_read_begin(&bar->notifier);
	if (!is_local(guest, remote, bar->hva, bar->size, &phys))
		return;
	guard(spinlock)(&bar->lock);
	if (mmu_interval_read_retry(&bar->notifier, seq))
		return;
	bar->mapped = !iommu_map(bar->domain, bar->iova, phys, bar->size,
				 IOMMU_READ | IOMMU_WRITE | IOMMU_MMIO, GFP_ATOMIC);
}

/* What the guest's VM maps straight that is no memory. */
static u32 scan(struct mdev_guest *guest, struct candidate found[CANDIDATES])
{
	struct kvm_memory_slot *slot;
	struct vm_area_struct *vma;
	u32 count = 0;
	int bkt, idx;

	idx = srcu_read_lock(&guest->vm->srcu);
	mmap_read_lock(guest->mm);
	kvm_for_each_memslot(slot, bkt, kvm_memslots(guest->vm)) {
		vma = vma_lookup(guest->mm, slot->userspace_addr);
		if (count == CANDIDATES || slot->flags & KVM_MEM_READONLY ||
		    !vma || !(vma->vm_flags & VM_PFNMAP))
			continue;
		found[count].gpa = slot->base_gfn << PAGE_SHIFT;
		found[count].hva = slot->userspace_addr;
		found[count].size = slot->npages << PAGE_SHIFT;
		if (found[count].gpa && found[count].size <= LOCAL_MAX)
			count++;
	}
	mmap_read_unlock(guest->mm);
	srcu_read_unlock(&guest->vm->srcu, idx);
	return count;
}

/* The lender has decided nothing, as far as we know: the next pass asks again. */
static bool is_passing(int err)
{
	return err == -ENETDOWN || err == -ETIMEDOUT || err == -ESTALE || err == -EBUSY ||
	       err == -ENOMEM || err == -ENOBUFS;
}

/* Return: has the lender of that function nothing there, any more or at all? */
static bool unmap_there(struct mdev_memory *memory, const struct mdev_local *bar)
{
	int err = pcilend_unmap(state_of(memory)->remote, bar->gpa, bar->size);

	return !err || err == -ERANGE || err == -ENODEV || err == -ESTALE;
}

/*
 * The guest has it there no longer. It keeps its place until nobody reaches that; who was asked to
 * map it may do so though the answer never came.
 */
static void unmirror(struct mdev_guest *guest, u32 number)
{
	struct mdev_local *bar = &guest->local[number];
	struct mdev_memory *memory;
	bool gone = true;

	list_for_each_entry(memory, &guest->members, member) {
		if (unmap_there(memory, bar))
			memory->local &= ~BIT(number);
		else
			gone = false;
	}
	if (gone)
		bar->gpa = 0;
}

/* What the lender refuses is not asked for again while it stays where it is. */
static void mirror(struct mdev_guest *guest, u32 number)
{
	struct mdev_local *bar = &guest->local[number];
	struct mdev_memory *memory;
	int err;

	list_for_each_entry(memory, &guest->members, member) {
		/* What an earlier pass has mapped without an answer would be in the way. */
		if (memory->local & BIT(number) || !unmap_there(memory, bar))
			continue;
		err = pcilend_map(state_of(memory)->remote, bar->gpa, bar->iova, bar->size);
		if (is_passing(err))
			continue;
		memory->local |= BIT(number);
		if (err)
			dev_notice_ratelimited(&state_of(memory)->remote->dev,
					       "does not reach what vfio-pci gives its guest at %#llx (error %d)\n",
					       bar->gpa, err);
	}
}

static void unwatch(struct mdev_local *bar)
{
	if (!bar->hva)
		return;
	mmu_interval_notifier_remove(&bar->notifier);
	if (bar->mapped)
		iommu_unmap(bar->domain, bar->iova, bar->size);
	bar->mapped = false;
	bar->hva = 0;
}

static int watch(struct mdev_local *bar, struct mm_struct *mm, unsigned long hva)
{
	int err = mmu_interval_notifier_insert(&bar->notifier, mm, hva, bar->size, &local_ops);

	if (!err)
		bar->hva = hva;
	return err;
}

/* One that the guest no longer has is first: slots are not given back before the end. */
static u32 place_for(struct mdev_guest *guest, u64 size)
{
	struct mdev_local *bar;
	u32 i;

	for (i = 0; i < MDEV_LOCALS; i++) {
		if (guest->local[i].size == size && !guest->local[i].gpa)
			return i;
	}
	for (i = 0; i < MDEV_LOCALS && guest->local[i].size; i++)
		;
	if (i == MDEV_LOCALS)
		return i;
	bar = &guest->local[i];
	if (mdev_guest_slot_get(guest, size, &bar->iova))
		return MDEV_LOCALS;
	spin_lock_init(&bar->lock);
	bar->domain = guest->domain;
	bar->size = size;
	return i;
}

/* Return: its number, or MDEV_LOCALS. */
static u32 add(struct mdev_guest *guest, struct pcilend_remote *remote,
	       const struct candidate *found)
{
	u32 number = place_for(guest, found->size);

	if (number == MDEV_LOCALS) {
		if (!guest->locals_full)
			dev_notice(&remote->dev,
				   "no room in the memory windows for what vfio-pci gives its guest at %#llx\n",
				   found->gpa);
		guest->locals_full = true;
		return number;
	}
	unwatch(&guest->local[number]);
	return watch(&guest->local[number], guest->mm, found->hva) ? MDEV_LOCALS : number;
}

static u32 find(const struct mdev_guest *guest, const struct candidate *found)
{
	u32 i = 0;

	while (i < MDEV_LOCALS && (guest->local[i].hva != found->hva ||
				   guest->local[i].size != found->size))
		i++;
	return i;
}

static bool is_among(const struct mdev_local *bar, const struct candidate *found, u32 count)
{
	u32 i;

	for (i = 0; i < count; i++) {
		if (found[i].hva == bar->hva && found[i].size == bar->size &&
		    found[i].gpa == bar->gpa)
			return true;
	}
	return false;
}

static void look(struct mdev_guest *guest, struct pcilend_remote *remote,
		 struct candidate found[CANDIDATES])
{
	u32 count = scan(guest, found), i, number;
	struct mdev_local *bar;
	phys_addr_t phys;

	for (i = 0; i < MDEV_LOCALS; i++) {
		if (guest->local[i].gpa && !is_among(&guest->local[i], found, count))
			unmirror(guest, i);
	}
	for (i = 0; i < count; i++) {
		number = find(guest, &found[i]);
		if (number == MDEV_LOCALS &&
		    is_local(guest, remote, found[i].hva, PAGE_SIZE, &phys))
			number = add(guest, remote, &found[i]);
		if (number == MDEV_LOCALS)
			continue;
		bar = &guest->local[number];
		/* A lender may have it where it was. */
		if (bar->gpa && bar->gpa != found[i].gpa)
			continue;
		bar->gpa = found[i].gpa;
		map_here(guest, bar, remote);
		mirror(guest, number);
	}
}

void mdev_locals_find(struct mdev_guest *guest)
{
	struct candidate *found __free(kfree) = NULL;
	struct mdev_memory *first;

	lockdep_assert_held(&guest->pass_lock);
	first = list_first_entry_or_null(&guest->members, struct mdev_memory, member);
	if (!first || !guest->vm || guest->vm->mm != guest->mm || !READ_ONCE(local))
		return;
	found = kmalloc_array(CANDIDATES, sizeof(*found), GFP_KERNEL);
	if (!found || !mmget_not_zero(guest->mm))
		return;
	look(guest, state_of(first)->remote, found);
	mmput(guest->mm);
}

void mdev_locals_drop(struct mdev_guest *guest)
{
	u32 i;

	lockdep_assert_held(&guest->pass_lock);
	for (i = 0; i < MDEV_LOCALS; i++)
		unwatch(&guest->local[i]);
	memset(guest->local, 0, sizeof(guest->local));
	guest->locals_full = false;
}
