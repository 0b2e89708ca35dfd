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

#include "pcilend_mdev.h"
#include "mdev_trace.h"

/* Each page is looked up; more would take seconds. */
#define LOCAL_MAX SZ_1G

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
	unsigned long pfn, first = 0;
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
static u32 scan(struct mdev_guest *guest, struct candidate found[MDEV_LOCALS])
{
	struct kvm_memory_slot *slot;
	struct vm_area_struct *vma;
	u32 count = 0;
	int bkt, idx;

	idx = srcu_read_lock(&guest->vm->srcu);
	mmap_read_lock(guest->mm);
	kvm_for_each_memslot(slot, bkt, kvm_memslots(guest->vm)) {
		vma = vma_lookup(guest->mm, slot->userspace_addr);
		if (count == MDEV_LOCALS || slot->flags & KVM_MEM_READONLY ||
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

/* The guest has it there no longer. */
static void unmirror(struct mdev_guest *guest, u32 number)
{
	struct mdev_local *bar = &guest->local[number];
	struct mdev_memory *memory;

	list_for_each_entry(memory, &guest->members, member) {
		if (memory->local & BIT(number))
			pcilend_unmap(state_of(memory)->remote, bar->gpa, bar->size);
		memory->local &= ~BIT(number);
	}
	bar->gpa = 0;
}

static void mirror(struct mdev_guest *guest, u32 number)
{
	struct mdev_local *bar = &guest->local[number];
	struct mdev_memory *memory;
	int err;

	list_for_each_entry(memory, &guest->members, member) {
		if (memory->local & BIT(number))
			continue;
		err = pcilend_map(state_of(memory)->remote, bar->gpa, bar->iova, bar->size);
		if (!err)
			memory->local |= BIT(number);
		else if (err != -ESTALE)
			dev_notice_ratelimited(&state_of(memory)->remote->dev,
					       "does not reach what vfio-pci gives its guest at %#llx (error %d)\n",
					       bar->gpa, err);
	}
}

/* A place for it. Return: its number, or MDEV_LOCALS. */
static u32 add(struct mdev_guest *guest, const struct candidate *found)
{
	struct mdev_local *bar;
	u32 i = 0;

	while (i < MDEV_LOCALS && guest->local[i].size)
		i++;
	if (i == MDEV_LOCALS)
		return i;
	bar = &guest->local[i];
	spin_lock_init(&bar->lock);
	bar->domain = guest->domain;
	bar->hva = found->hva;
	bar->size = found->size;
	if (mmu_interval_notifier_insert(&bar->notifier, guest->mm, bar->hva, bar->size,
					 &local_ops))
		goto err_clear;
	if (mdev_guest_slot_get(guest, bar->size, &bar->iova))
		goto err_remove;
	return i;

err_remove:
	mmu_interval_notifier_remove(&bar->notifier);
err_clear:
	memset(bar, 0, sizeof(*bar));
	return MDEV_LOCALS;
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

static void look(struct mdev_guest *guest, struct pcilend_remote *remote)
{
	struct candidate found[MDEV_LOCALS];
	u32 count = scan(guest, found), i, number;
	phys_addr_t phys;

	for (i = 0; i < MDEV_LOCALS; i++) {
		if (guest->local[i].gpa && !is_among(&guest->local[i], found, count))
			unmirror(guest, i);
	}
	for (i = 0; i < count; i++) {
		number = find(guest, &found[i]);
		if (number == MDEV_LOCALS &&
		    is_local(guest, remote, found[i].hva, PAGE_SIZE, &phys))
			number = add(guest, &found[i]);
		if (number == MDEV_LOCALS)
			continue;
		guest->local[number].gpa = found[i].gpa;
		map_here(guest, &guest->local[number], remote);
		mirror(guest, number);
	}
}

void mdev_locals_find(struct mdev_guest *guest)
{
	struct mdev_memory *first;

	lockdep_assert_held(&guest->pass_lock);
	first = list_first_entry_or_null(&guest->members, struct mdev_memory, member);
	if (!first || !guest->vm || guest->vm->mm != guest->mm || !READ_ONCE(local) ||
	    !mmget_not_zero(guest->mm))
		return;
	look(guest, state_of(first)->remote);
	mmput(guest->mm);
}

void mdev_locals_drop(struct mdev_guest *guest)
{
	u32 i;

	lockdep_assert_held(&guest->pass_lock);
	for (i = 0; i < MDEV_LOCALS; i++) {
		struct mdev_local *bar = &guest->local[i];

		if (!bar->size)
			continue;
		mmu_interval_notifier_remove(&bar->notifier);
		if (bar->mapped)
			iommu_unmap(bar->domain, bar->iova, bar->size);
		memset(bar, 0, sizeof(*bar));
	}
}
