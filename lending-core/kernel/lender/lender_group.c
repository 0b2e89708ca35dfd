// SPDX-License-Identifier: GPL-2.0-only
/*
 * IOMMU groups of added functions. What is in one group reaches the same memory, so a group has one
 * owner of its DMA, and while functions of it are lent, one domain. Most have one function; those
 * with more are lent as a set (set.h, docs/decisions/0008).
 *
 * Our driver owns the group's DMA once it holds all functions of it, and as long as one of them is
 * lent. While owned and not lent, the group is in the blocking domain. Bridges don't count: they
 * have no DMA of their own, and no driver that keeps the group from us. What has the header of an
 * endpoint is none, whatever its class says: another NTB does DMA for the host behind it. But host
 * bridges on a root bus have such a header, too, and are parts of the root complex: AMD's share
 * groups with what is behind the root ports beside them.
 *
 * The group of a direct function stays in the identity domain; the function is alone in it.
 */

#include <linux/iommu.h>
#include <linux/sched.h>
#include <linux/sizes.h>
#include <linux/slab.h>

#include "lender/lender.h"
#include "pcilend/slice.h"

static const char group_too_many[] =
	"its IOMMU group has too many functions to be lent as a set: use a slot with ACS";

#define MAP_CHUNK SZ_1G			/* the CPU may be rescheduled in between */

struct pcilend_group {
	struct list_head node;		/* groups_lock */
	u32 users;			/* groups_lock: functions that point to it */
	struct iommu_group *iommu;	/* with a reference */

	struct mutex lock;		/* all below; taken with a function's lock held */
	u32 members;
	struct pcilend_function *function[PCILEND_SET_MAX];	/* the added ones */
	struct pcilend_set_member member[PCILEND_SET_MAX];	/* of each, as last noted */
	u32 held;			/* bound to our driver */
	bool owned;			/* DMA is ours */
	u32 lent;			/* and not fenced yet */
	struct iommu_domain *domain;	/* NULL: none is lent */
	struct pcilend_mappings mappings;	/* of the domain */
	struct list_head reserved;	/* struct iommu_resv_region: not translated there */
	struct pcilend_slices slices;	/* of the domain: for processes of this host */
	atomic64_t faults;		/* since the domain was made */
};

static LIST_HEAD(groups);
static DEFINE_MUTEX(groups_lock);

/* The other functions of a group; each in pdev with a reference. */
struct siblings {
	struct pci_dev *self;
	u32 count;			/* may be more than there is room for */
	struct pci_dev *pdev[PCILEND_SET_MAX - 1];
};

static bool lender_group_is_function(struct device *dev)
{
	struct pci_dev *pdev;

	if (!dev_is_pci(dev))
		return false;
	pdev = to_pci_dev(dev);
	if (pdev->class >> 8 == PCI_CLASS_BRIDGE_HOST && pci_is_root_bus(pdev->bus))
		return false;
	return pdev->hdr_type == PCI_HEADER_TYPE_NORMAL;
}

static int lender_group_note_sibling(struct device *dev, void *data)
{
	struct siblings *found = data;

	if (!lender_group_is_function(dev) || to_pci_dev(dev) == found->self)
		return 0;
	if (found->count < ARRAY_SIZE(found->pdev))
		found->pdev[found->count] = pci_dev_get(to_pci_dev(dev));
	found->count++;
	return 0;
}

static void lender_group_get_siblings(struct iommu_group *iommu, struct pci_dev *self,
				      struct siblings *found)
{
	memset(found, 0, sizeof(*found));
	found->self = self;
	iommu_group_for_each_dev(iommu, found, lender_group_note_sibling);
}

static void lender_group_put_siblings(struct siblings *found)
{
	u32 i;

	for (i = 0; i < min_t(u32, found->count, ARRAY_SIZE(found->pdev)); i++)
		pci_dev_put(found->pdev[i]);
}

static bool lender_group_is_identity(struct pci_dev *pdev)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(&pdev->dev);

	return domain && domain->type == IOMMU_DOMAIN_IDENTITY;
}

static int lender_group_count_function(struct device *dev, void *data)
{
	*(u32 *)data += lender_group_is_function(dev);
	return 0;
}

static u32 lender_group_functions_in(struct pcilend_group *group)
{
	u32 count = 0;

	iommu_group_for_each_dev(group->iommu, &count, lender_group_count_function);
	return count;
}

/*
 * pcilend_group_get - the group that the function is in
 *
 * Return: with a reference; NULL if it is not behind an IOMMU; ERR_PTR(-ENOMEM).
 */
struct pcilend_group *pcilend_group_get(struct pci_dev *pdev)
{
	struct iommu_group *iommu = iommu_group_get(&pdev->dev);
	struct pcilend_group *group;

	if (!iommu)
		return NULL;
	mutex_lock(&groups_lock);
	list_for_each_entry(group, &groups, node) {
		if (group->iommu != iommu)
			continue;
		group->users++;
		mutex_unlock(&groups_lock);
		iommu_group_put(iommu);
		return group;
	}
	group = kzalloc(sizeof(*group), GFP_KERNEL);
	if (!group) {
		mutex_unlock(&groups_lock);
		iommu_group_put(iommu);
		return ERR_PTR(-ENOMEM);
	}
	mutex_init(&group->lock);
	INIT_LIST_HEAD(&group->reserved);
	group->iommu = iommu;
	group->users = 1;
	list_add_tail(&group->node, &groups);
	mutex_unlock(&groups_lock);
	return group;
}

void pcilend_group_put(struct pcilend_group *group)
{
	bool last;

	if (!group)
		return;
	mutex_lock(&groups_lock);
	last = !--group->users;
	if (last)
		list_del(&group->node);
	mutex_unlock(&groups_lock);
	if (!last)
		return;
	WARN_ON(group->owned || group->domain);
	iommu_group_put(group->iommu);
	kfree(group);
}

/* Index of the function among the members; it is one of them. */
static u32 lender_group_index_of(struct pcilend_function *fn)
{
	struct pcilend_group *group = fn->group;
	u32 i = 0;

	lockdep_assert_held(&group->lock);
	while (i < group->members && group->function[i] != fn)
		i++;
	return i;
}

/* The function is being added. Return: 0 or -ENOSPC. */
int pcilend_group_join(struct pcilend_function *fn, struct netlink_ext_ack *extack)
{
	struct pcilend_group *group = fn->group;
	int err = 0;

	if (!group)
		return 0;
	mutex_lock(&group->lock);
	if (group->members < PCILEND_SET_MAX) {
		group->member[group->members] = (struct pcilend_set_member){ };
		group->function[group->members++] = fn;
	} else {
		err = pcilend_refuse(extack, -ENOSPC, group_too_many);
	}
	mutex_unlock(&group->lock);
	return err;
}

/* It is added no more; not held, and not lent. */
void pcilend_group_leave(struct pcilend_function *fn)
{
	struct pcilend_group *group = fn->group;
	u32 i;

	if (!group)
		return;
	mutex_lock(&group->lock);
	i = lender_group_index_of(fn);
	if (i < group->members) {
		group->members--;
		group->function[i] = group->function[group->members];
		group->member[i] = group->member[group->members];
	}
	mutex_unlock(&group->lock);
}

static int lender_group_take_owner(struct pcilend_group *group)
{
	int err;

	lockdep_assert_held(&group->lock);
	if (group->owned)
		return 0;
	err = iommu_group_claim_dma_owner(group->iommu, group);
	group->owned = !err;
	return err;
}

static void lender_group_drop_owner(struct pcilend_group *group)
{
	lockdep_assert_held(&group->lock);
	if (!group->owned || group->lent ||
	    (group->held && group->held >= lender_group_functions_in(group)))
		return;
	iommu_group_release_dma_owner(group->iommu);
	group->owned = false;
}

/*
 * pcilend_group_hold - our driver binds to the function
 *
 * Return: 0, or -EPERM if it was the last one missing and the group is somebody else's.
 */
int pcilend_group_hold(struct pcilend_function *fn)
{
	struct pcilend_group *group = fn->group;
	int err = 0;

	if (pcilend_function_is_direct(fn))
		return 0;
	if (!group)
		return -ENODEV;
	mutex_lock(&group->lock);
	group->held++;
	if (group->held >= lender_group_functions_in(group))
		err = lender_group_take_owner(group);
	if (err)
		group->held--;
	mutex_unlock(&group->lock);
	return err;
}

/* It lets go of it. Others of the set that are lent go on: the group is ours until they end. */
void pcilend_group_unhold(struct pcilend_function *fn)
{
	struct pcilend_group *group = fn->group;

	if (pcilend_function_is_direct(fn))
		return;
	mutex_lock(&group->lock);
	group->held--;
	lender_group_drop_owner(group);
	mutex_unlock(&group->lock);
}

/* What has become of the function's lease, for the others of its set. */
void pcilend_group_note(struct pcilend_function *fn)
{
	struct pcilend_group *group = fn->group;
	struct pcilend_set_member *member;
	u32 i, self;

	lockdep_assert_held(&fn->lock);
	if (!group)
		return;
	mutex_lock(&group->lock);
	self = lender_group_index_of(fn);
	if (self == group->members)
		goto out;
	member = &group->member[self];
	/* What is plugged in next to a direct function makes no set with it. */
	member->state = pcilend_function_is_direct(fn) ? PCILEND_FUNCTION_ADDED : fn->lease.state;
	if (fn->lease.number || !member->holder.node)
		goto out;
	member->holder = (struct pcilend_set_holder){ };
	/* Those that wait for it can go back to their own drivers now. */
	for (i = 0; i < group->members; i++) {
		if (i != self && READ_ONCE(group->function[i]->todo) & PCILEND_DO_RELEASE)
			pcilend_function_queue_settle(group->function[i]);
	}
out:
	mutex_unlock(&group->lock);
}

/*
 * pcilend_group_admit - may @wish borrow the function, as far as its set is concerned?
 *
 * On success it counts as lent to @wish until pcilend_group_note() says otherwise.
 * Return: 0 or a refusal as pcilend_set_admits().
 */
int pcilend_group_admit(struct pcilend_function *fn, const struct pcilend_set_holder *wish)
{
	struct pcilend_group *group = fn->group;
	u32 self, other;
	int err = -EXDEV;

	lockdep_assert_held(&fn->lock);
	if (pcilend_function_is_direct(fn))
		return 0;
	mutex_lock(&group->lock);
	self = lender_group_index_of(fn);
	if (self < group->members && lender_group_functions_in(group) <= group->members)
		err = pcilend_set_admits(group->member, group->members, self, wish, &other);
	if (!err) {
		group->member[self].state = PCILEND_FUNCTION_BORROWED;
		group->member[self].holder = *wish;
	}
	mutex_unlock(&group->lock);
	return err;
}

/* @pdev's driver comes or goes just now: false. Whoever unbinds VFIO's may wait for its user. */
static bool lender_group_has_native_driver(struct pci_dev *pdev)
{
	struct device_driver *driver;
	bool native;

	if (!device_trylock(&pdev->dev))
		return false;
	driver = pdev->dev.driver;
	native = driver && !to_pci_driver(driver)->driver_managed_dma;
	device_unlock(&pdev->dev);
	return native;
}

/* As long as a driver has one of @fn's group whose DMA the kernel manages, VFIO gives out none. */
static bool lender_group_is_native(struct pcilend_function *fn)
{
	struct siblings found;
	bool native = false;
	u32 i;

	lender_group_get_siblings(fn->group->iommu, fn->pdev, &found);
	for (i = 0; i < min_t(u32, found.count, ARRAY_SIZE(found.pdev)); i++)
		native |= lender_group_has_native_driver(found.pdev[i]);
	lender_group_put_siblings(&found);
	return native;
}

/*
 * Keeps a driver that manages the DMA of its group by itself, as that of VFIO, from giving the
 * function a user from now on. Such a user would have it until he lets go of it.
 *
 * Return: 1: until pcilend_group_unclaim(); 0: there is nothing to claim, as the group is ours, or
 * there is none, or others of it have drivers that use the kernel's DMA API; or an error: the
 * driver has given some function of the group a user. group->lock is not held.
 */
int pcilend_group_claim(struct pcilend_function *fn)
{
	struct pcilend_group *group = fn->group;
	int err = 0;
	bool ours;

	if (!group)
		return 0;
	mutex_lock(&group->lock);
	ours = group->owned;
	if (!ours)
		err = iommu_device_claim_dma_owner(&fn->pdev->dev, group);
	mutex_unlock(&group->lock);
	if (ours || (err && lender_group_is_native(fn)))
		return 0;
	return err ?: 1;
}

void pcilend_group_unclaim(struct pcilend_function *fn)
{
	iommu_device_release_dma_owner(&fn->pdev->dev);
}

/* Does its set keep the function from its own driver? While others are lent, the group is ours. */
bool pcilend_group_keeps(struct pcilend_function *fn)
{
	struct pcilend_group *group = fn->group;
	bool lent;

	if (!group)
		return false;
	mutex_lock(&group->lock);
	lent = pcilend_set_lent(group->member, group->members, lender_group_index_of(fn));
	mutex_unlock(&group->lock);
	return lent;
}

static int lender_group_count_fault(struct iommu_domain *domain, struct device *dev,
				    unsigned long iova, int flags, void *token)
{
	struct pcilend_group *group = token;

	atomic64_inc(&group->faults);
	pcilend_count(PCILEND_COUNTER_A_FAULTS);
	return -EFAULT;	/* not handled: the IOMMU driver logs it */
}

static void lender_group_free_domain(struct pcilend_group *group)
{
	struct iommu_resv_region *region, *next;

	lockdep_assert_held(&group->lock);
	list_for_each_entry_safe(region, next, &group->reserved, list) {
		list_del(&region->list);
		kfree(region);
	}
	iommu_domain_free(group->domain);
	group->domain = NULL;
	kvfree(group->mappings.entry);
	group->mappings = (struct pcilend_mappings){ };
}

/* Slices end where the platform keeps addresses for itself, as AMD does from 1012 GiB on. */
static u64 lender_group_last_place(struct pcilend_group *group)
{
	u64 last = group->domain->geometry.aperture_end;
	struct iommu_resv_region *region;

	lockdep_assert_held(&group->lock);
	list_for_each_entry(region, &group->reserved, list) {
		if (region->type != IOMMU_RESV_DIRECT_RELAXABLE &&
		    region->start + region->length > PCILEND_SLICE_START)
			last = min(last, max(region->start, PCILEND_SLICE_START) - 1);
	}
	return last;
}

static int lender_group_make_domain(struct pcilend_group *group, struct pci_dev *pdev)
{
	/* Each maps its interrupts, too, or the aliases of those that share it. */
	u32 capacity = (PCILEND_MAPS + PCILEND_SLICES + PCILEND_REACHES) * group->members;
	struct iommu_domain *domain;
	int err;

	lockdep_assert_held(&group->lock);
	domain = iommu_paging_domain_alloc(&pdev->dev);
	if (IS_ERR(domain))
		return PTR_ERR(domain);
	group->domain = domain;
	group->mappings.entry = kvcalloc(capacity, sizeof(*group->mappings.entry), GFP_KERNEL);
	group->mappings.capacity = capacity;
	atomic64_set(&group->faults, 0);
	iommu_set_fault_handler(domain, lender_group_count_fault, group);
	err = group->mappings.entry ? 0 : -ENOMEM;
	/* Those of all its functions, merged. */
	err = err ?: iommu_get_group_resv_regions(group->iommu, &group->reserved) ?:
	      iommu_attach_group(domain, group->iommu);
	if (err) {
		lender_group_free_domain(group);
		return err;
	}
	/* Where none can be placed, none is. */
	pcilend_slices_init(&group->slices, lender_group_last_place(group));
	return 0;
}

/* The function is being lent: into the domain of its group, which is empty for the first one. */
int pcilend_group_attach(struct pcilend_function *fn)
{
	struct pcilend_group *group = fn->group;
	int err;

	lockdep_assert_held(&fn->lock);
	if (pcilend_function_is_direct(fn)) {
		if (!group || lender_group_is_identity(fn->pdev))
			return 0;
		pci_warn(fn->pdev, "was made available without an IOMMU, and its IOMMU group's type is not identity any more: make it unavailable and available again\n");
		return -EIO;
	}
	mutex_lock(&group->lock);
	err = lender_group_take_owner(group);
	if (!err && !group->domain)
		err = lender_group_make_domain(group, fn->pdev);
	if (!err) {
		group->lent++;
		fn->attached = true;
	} else {
		lender_group_drop_owner(group);
	}
	mutex_unlock(&group->lock);
	return err;
}

static void lender_group_unmap_range(struct pcilend_group *group, u64 address, u64 size)
{
	u64 done, gone;

	lockdep_assert_held(&group->lock);
	/* Of a page that is larger than a chunk AMD's tables take all, and say so. */
	for (done = 0; done < size; done += gone) {
		gone = iommu_unmap(group->domain, address + done,
				   min_t(u64, size - done, MAP_CHUNK));
		if (WARN_ON_ONCE(!gone))
			gone = PAGE_SIZE;
		cond_resched();
	}
}

static int lender_group_map_range(struct pcilend_group *group, u64 address, phys_addr_t phys,
				  u64 size)
{
	u64 done, chunk;
	int err;

	lockdep_assert_held(&group->lock);
	for (done = 0; done < size; done += chunk) {
		chunk = min_t(u64, size - done, MAP_CHUNK);
		err = iommu_map(group->domain, address + done, phys + done, chunk,
				IOMMU_READ | IOMMU_WRITE | IOMMU_MMIO, GFP_KERNEL);
		if (err) {
			lender_group_unmap_range(group, address, done);
			return err;
		}
		cond_resched();
	}
	return 0;
}

/* Ranges are mapped as a whole, or hidden as a whole by pcilend_group_hide(). */
static bool lender_group_shows(struct pcilend_group *group, u64 address)
{
	lockdep_assert_held(&group->lock);
	return iommu_iova_to_phys(group->domain, address);
}

static void lender_group_drop_mapping(struct pcilend_group *group, u64 address, u64 size)
{
	int ret;

	lockdep_assert_held(&group->lock);
	ret = pcilend_mappings_drop(&group->mappings, address, size);
	WARN_ON(ret < 0);
	if (ret > 0 && lender_group_shows(group, address))
		lender_group_unmap_range(group, address, size);
}

/*
 * The function was stopped: what only it had mapped is mapped no more. After the last of its set
 * the group is in the blocking domain again.
 */
void pcilend_group_detach(struct pcilend_function *fn)
{
	struct pcilend_group *group = fn->group;
	int i;

	lockdep_assert_held(&fn->lock);
	if (!fn->attached)
		return;
	mutex_lock(&group->lock);
	if (--group->lent) {
		for (i = 0; i < PCILEND_MAPS; i++) {
			if (fn->map[i].size)
				lender_group_drop_mapping(group, fn->map[i].start, fn->map[i].size);
		}
		if (fn->alias)
			lender_group_drop_mapping(group, fn->alias, PCILEND_MSI_BYTES);
		if (fn->slice_bytes)
			pcilend_slice_release(&group->slices, fn->slice, fn->slice_bytes);
	} else {
		iommu_detach_group(group->domain, group->iommu);
		lender_group_free_domain(group);
		lender_group_drop_owner(group);
	}
	fn->attached = false;
	mutex_unlock(&group->lock);
}

/* The last address that can be mapped. */
u64 pcilend_group_aperture_end(struct pcilend_function *fn)
{
	lockdep_assert_held(&fn->lock);
	/* The domain stays while this function is attached. */
	return fn->group->domain->geometry.aperture_end;
}

/*
 * Is there an address in [address, +size) that no IOMMU translates for the set: interrupts, or what
 * the platform keeps for itself, as AMD's HyperTransport below 1 TiB? (What firmware wants mapped
 * one to one as long as it has the device does not count: see has_direct_region() for the rest.)
 */
bool pcilend_group_reserves(struct pcilend_function *fn, u64 address, u64 size)
{
	struct pcilend_group *group = fn->group;
	struct iommu_resv_region *region;
	bool any = false;

	lockdep_assert_held(&fn->lock);
	mutex_lock(&group->lock);
	list_for_each_entry(region, &group->reserved, list)
		any |= region->type != IOMMU_RESV_DIRECT_RELAXABLE &&
		       address < region->start + region->length &&
		       region->start < address + size;
	mutex_unlock(&group->lock);
	return any;
}

/*
 * pcilend_group_map - let [address, +size) of all functions of the set reach [phys, +size)
 *
 * Return: 0; -EUSERS if another function of the set has mapped something else there; or what the
 * IOMMU says.
 */
int pcilend_group_map(struct pcilend_function *fn, u64 address, phys_addr_t phys, u64 size)
{
	struct pcilend_group *group = fn->group;
	int ret;

	lockdep_assert_held(&fn->lock);
	mutex_lock(&group->lock);
	ret = pcilend_mappings_add(&group->mappings, address, size, phys);
	if (ret > 0) {
		ret = lender_group_map_range(group, address, phys, size);
		if (ret)
			pcilend_mappings_drop(&group->mappings, address, size);
	}
	mutex_unlock(&group->lock);
	return ret == -EEXIST ? -EUSERS : ret;
}

/*
 * pcilend_group_map_memory - the same for memory of a process, of which nobody else maps any
 *
 * It is known there by what it is kept in, which is no address of anything else.
 */
int pcilend_group_map_memory(struct pcilend_function *fn, u64 address,
			     const struct pcilend_memory *memory, int prot)
{
	struct pcilend_group *group = fn->group;
	int err;

	lockdep_assert_held(&fn->lock);
	guard(mutex)(&group->lock);
	err = pcilend_mappings_add(&group->mappings, address, memory->size, (uintptr_t)memory);
	if (err <= 0)
		return err ?: -EEXIST;
	err = pcilend_memory_map(memory, group->domain, address, prot);
	if (err)
		pcilend_mappings_drop(&group->mappings, address, memory->size);
	return err;
}

/* The last address where slices of clients are placed. */
u64 pcilend_group_last_place(struct pcilend_function *fn)
{
	lockdep_assert_held(&fn->lock);
	guard(mutex)(&fn->group->lock);
	return lender_group_last_place(fn->group);
}

/* Device addresses that no other function of the set uses, until this one is detached. */
int pcilend_group_place_slice(struct pcilend_function *fn, u64 bytes)
{
	int err;

	lockdep_assert_held(&fn->lock);
	guard(mutex)(&fn->group->lock);
	err = pcilend_slice_place(&fn->group->slices, bytes, &fn->slice);
	if (!err)
		fn->slice_bytes = bytes;
	return err;
}

/* Undoes one pcilend_group_map() of a function that is still attached. */
void pcilend_group_unmap(struct pcilend_group *group, u64 address, u64 size)
{
	mutex_lock(&group->lock);
	lender_group_drop_mapping(group, address, size);
	mutex_unlock(&group->lock);
}

/* Nothing is reached there for now; it counts as mapped all the same. No-op if that is so. */
void pcilend_group_hide(struct pcilend_group *group, u64 address, u64 size)
{
	mutex_lock(&group->lock);
	if (lender_group_shows(group, address))
		lender_group_unmap_range(group, address, size);
	mutex_unlock(&group->lock);
}

/* Undoes that, once for all of the set that have mapped it. Return: 0 or what the IOMMU says. */
int pcilend_group_show(struct pcilend_group *group, u64 address, phys_addr_t phys, u64 size)
{
	int err = 0;

	mutex_lock(&group->lock);
	if (!lender_group_shows(group, address))
		err = lender_group_map_range(group, address, phys, size);
	mutex_unlock(&group->lock);
	return err;
}

/* As far as there is room: the others are named when these are added. */
static void lender_group_append_name(char *names, size_t bytes, struct pci_dev *pdev)
{
	bool bound = READ_ONCE(pdev->dev.driver);
	size_t length = strlen(names);

	if (snprintf(names + length, bytes - length, "%s%s%s%s%s", length ? ", " : "",
		     pci_name(pdev), bound ? " (" : "",
		     bound ? dev_driver_string(&pdev->dev) : "", bound ? ")" : "") >=
	    bytes - length && length)
		names[length] = '\0';
}

/*
 * pcilend_group_check - are all others of its set added?
 * @iommu: the function's group
 *
 * Return: 0, or -EXDEV with @extack naming what is missing.
 */
int pcilend_group_check(struct pci_dev *pdev, struct iommu_group *iommu,
			struct netlink_ext_ack *extack)
{
	struct siblings found;
	char names[NETLINK_MAX_FMTMSG_LEN - 33] = "";
	int err = 0;
	u32 i;

	lender_group_get_siblings(iommu, pdev, &found);
	for (i = 0; i < min_t(u32, found.count, ARRAY_SIZE(found.pdev)); i++) {
		struct pcilend_function *other = pcilend_function_of(found.pdev[i]);

		if (!other)
			lender_group_append_name(names, sizeof(names), found.pdev[i]);
		pcilend_function_put(other);
	}
	if (found.count > ARRAY_SIZE(found.pdev))
		err = pcilend_refuse(extack, -EXDEV, group_too_many);
	else if (*names)
		err = pcilend_refuse_fmt(extack, -EXDEV, "IOMMU group %d is a set: add %s",
					 iommu_group_id(iommu), names);
	lender_group_put_siblings(&found);
	return err;
}

/*
 * pcilend_group_check_direct - is no IOMMU between the function and this host's memory?
 *
 * Return: 0, or -EPERM or -EXDEV with @extack saying what there is.
 */
int pcilend_group_check_direct(struct pci_dev *pdev, struct netlink_ext_ack *extack)
{
	struct iommu_group *iommu = iommu_group_get(&pdev->dev);
	struct siblings found;
	int err = 0;

	if (!iommu)
		return 0;
	lender_group_get_siblings(iommu, pdev, &found);
	if (!lender_group_is_identity(pdev))
		err = pcilend_refuse(extack, -EPERM, "its IOMMU translates for it: lend it without --direct; or unbind its driver and write 'identity' to iommu_group/type of its directory in sysfs first");
	else if (found.count)
		err = pcilend_refuse(extack, -EXDEV, "its IOMMU group has other functions, which are lent as a set: lend them without --direct, or put the device into a slot with ACS");
	lender_group_put_siblings(&found);
	iommu_group_put(iommu);
	return err;
}

static void lender_group_report_sibling(struct pcilend_group *group, struct pci_dev *pdev,
					struct pcilend_report_member *out)
{
	u32 i;

	lockdep_assert_held(&group->lock);
	out->segment = pci_domain_nr(pdev->bus);
	out->bus = pdev->bus->number;
	out->devfn = pdev->devfn;
	for (i = 0; i < group->members; i++) {
		if (group->function[i]->pdev == pdev) {
			out->id = group->function[i]->id;
			out->state = group->member[i].state;
		}
	}
}

/* What borrowers know the set by; 0: it is alone in its group. */
u32 pcilend_group_set(struct pcilend_function *fn)
{
	struct pcilend_group *group = fn->group;

	return group && lender_group_functions_in(group) > 1 ? iommu_group_id(group->iommu) + 1 : 0;
}

/* Fills in group, members and faults. */
void pcilend_group_report(struct pcilend_function *fn, struct pcilend_report *report)
{
	struct pcilend_group *group = fn->group;
	struct siblings found;
	u32 i;

	lockdep_assert_held(&fn->lock);
	report->group = -1;
	if (!group)
		return;
	report->group = iommu_group_id(group->iommu);
	report->faults = atomic64_read(&group->faults);
	lender_group_get_siblings(group->iommu, fn->pdev, &found);
	report->members = min_t(u32, found.count, ARRAY_SIZE(report->member));
	mutex_lock(&group->lock);
	for (i = 0; i < report->members; i++)
		lender_group_report_sibling(group, found.pdev[i], &report->member[i]);
	mutex_unlock(&group->lock);
	lender_group_put_siblings(&found);
}
