// SPDX-License-Identifier: GPL-2.0-only
/*
 * The IOMMU of borrowed functions. VFIO tells a domain of it what to map, and any user of VFIO
 * works unchanged. What translates is in the hosts already: the lender's IOMMU lets the function
 * reach windows of the NTB, the one of this host lets the NTB reach memory:
 *
 *	IOVA -- lender's IOMMU --> window --> aperture -- this host's IOMMU --> memory
 *	 + granule: one message                + slot: each map and unmap, no message
 *
 * IOVA space is cut into granules (granules.h). The first map in one takes a slot of the aperture
 * and has the lender mirror it. Slots belong to the domain, and to each function that may still
 * write to them: VFIO unmaps after it has detached the function, and a lender may not answer.
 *
 * Who has no VFIO is in the identity domain, where the function sees the DMA area of the aperture
 * (pcilend_shadow.ko), or in the blocked one.
 *
 * BARs of borrowed functions, which VFIO maps too, are not in the aperture: see iommu_bars.h.
 *
 * A user of iommufd may keep a domain, and what is mapped in it, when the last function has left.
 * iommufd asks the domain which memory to unpin: so nothing but an unmap may take mappings away.
 * The adapter waits for that (pcilend_iommu_leave()), and each domain holds the module.
 *
 * Locks: the IOMMU core's group mutex, which keeps attachments of a function one by one; in it, and
 * in domains_lock, struct pcilend_domain.lock, held while a lender is waited for; in it
 * remote.reaching, the same, and remote.lock.
 */

#include <linux/iommu.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/wait.h>

#include "borrower/borrower.h"
#include "borrower/iommu.h"
#include "borrower/iommu_bars.h"
#include "pcilend/granules.h"
#include "base/trace.h"

/* A lender keeps PCILEND_MAPS for a lease. */
#define GRANULES 192

/* HT_RANGE_START to HT_RANGE_END of drivers/iommu/amd/amd_iommu_types.h: not translated there. */
#define HT_START 0xfd00000000ULL
#define HT_BYTES 0x300000000ULL

static const struct pcilend_hole holes[] = {
	{ PCILEND_INTERRUPT_ALIAS, PCILEND_INTERRUPT_BYTES },
	{ PCILEND_MSI_IOVA, PCILEND_MSI_BYTES },
	{ HT_START, HT_BYTES },
};

struct pcilend_domain {
	struct iommu_domain domain;
	struct list_head node;		/* domains_lock: from the beginning to the end */

	struct mutex lock;		/* all below */
	struct pcilend_link *link;	/* with a reference; NULL until something is attached */
	struct list_head attached;	/* of struct remote, by their domain_node */
	struct pcilend_granules granules;
	struct remote_range *range[GRANULES];	/* of that granule, with a reference */
	struct pcilend_granule entry[GRANULES];
	struct pcilend_hole hole[ARRAY_SIZE(holes) + IOMMU_BARS];
	struct iommu_bars bars;
	bool late;			/* its user had BARs mapped before it was made */
	u64 mapped;			/* bytes of memory */
};

static LIST_HEAD(domains);
static DEFINE_MUTEX(domains_lock);	/* outside of theirs */

static struct pcilend_domain *remote_iommu_to_domain(struct iommu_domain *domain)
{
	return container_of(domain, struct pcilend_domain, domain);
}

static struct remote *remote_of(struct device *dev)
{
	return to_remote(pcilend_virtual_remote(to_pci_dev(dev)));
}

/* For listings. */
static void iommu_tell(struct pcilend_domain *domain)
{
	struct remote *r;

	lockdep_assert_held(&domain->lock);
	list_for_each_entry(r, &domain->attached, domain_node)
		WRITE_ONCE(r->guest_bytes, domain->mapped);
}

/* The function has a part in the range, until it is known not to write there. */
static int remote_iommu_slot_take(struct remote *r, struct remote_range *range)
{
	kref_get(&range->ref);
	return remote_add_slot(r, range);
}

/* @stopped: the lender has confirmed that the function does not reach it any more. */
static void remote_iommu_slot_give_up(struct remote *r, struct remote_range *range, bool stopped)
{
	mutex_lock(&r->lock);
	remote_free_slot(r, range, stopped);
	mutex_unlock(&r->lock);
}

/*
 * Has the lender let the function reach the granule. One whose lease is over reaches nothing, and
 * does not keep the other functions of the domain from it.
 */
static int iommu_mirror(struct remote *r, const struct pcilend_granule *granule,
			struct remote_range *range)
{
	int err = remote_iommu_slot_take(r, range);

	if (err)
		return err;
	err = pcilend_map(&r->pub, granule->start, granule->slot, granule->size);
	/* Whether it was mapped is not known if no answer was heard. */
	if (err)
		remote_iommu_slot_give_up(r, range, err != -ETIMEDOUT && err != -ENETDOWN);
	return err == -ESTALE ? 0 : err;
}

static void iommu_unmirror(struct remote *r, const struct pcilend_granule *granule,
			   struct remote_range *range)
{
	int err = pcilend_unmap(&r->pub, granule->start, granule->size);

	remote_iommu_slot_give_up(r, range, !err);
}

static void iommu_unmirror_all(struct pcilend_domain *domain, struct remote *r, u32 count)
{
	lockdep_assert_held(&domain->lock);
	while (count--)
		iommu_unmirror(r, &domain->entry[count], domain->range[count]);
}

static int iommu_mirror_all(struct pcilend_domain *domain, struct remote *r)
{
	u32 i;
	int err;

	lockdep_assert_held(&domain->lock);
	for (i = 0; i < domain->granules.count; i++) {
		err = iommu_mirror(r, &domain->entry[i], domain->range[i]);
		if (err) {
			iommu_unmirror_all(domain, r, i);
			return err;
		}
	}
	return 0;
}

static struct iommu_domain *remote_iommu_adapter_domain(const struct pcilend_domain *domain)
{
	return domain->link->aperture.domain;
}

/*
 * Takes a granule out of the table; its slot goes with the last function that may write there. Who
 * has unmapped the last page of it may not have come to iommu_sync() yet.
 */
static void remote_iommu_drop_granule(struct pcilend_domain *domain, u32 index)
{
	struct remote_range *range = domain->range[index];

	lockdep_assert_held(&domain->lock);
	WARN_ON(pcilend_granules_remove(&domain->granules, domain->entry[index].start));
	memmove(&domain->range[index], &domain->range[index + 1],
		(domain->granules.count - index) * sizeof(domain->range[0]));
	iommu_flush_iotlb_all(remote_iommu_adapter_domain(domain));
	remote_range_put(range);
}

/* Gives back a granule in which nothing is mapped. Return: false if there is none. */
static bool iommu_reclaim(struct pcilend_domain *domain)
{
	struct pcilend_granule *granule = pcilend_granules_empty(&domain->granules);
	struct remote *r;
	u32 index;

	lockdep_assert_held(&domain->lock);
	if (!granule)
		return false;
	index = granule - domain->entry;
	list_for_each_entry(r, &domain->attached, domain_node)
		iommu_unmirror(r, granule, domain->range[index]);
	remote_iommu_drop_granule(domain, index);
	return true;
}

/* Where a granule for @iova can be, and its slot, as large as there is room for. */
static int remote_iommu_take_slot(struct pcilend_domain *domain, u64 iova,
				  struct pcilend_granule *granule, struct remote_range **range)
{
	u64 limit = U64_MAX;
	int err;

	lockdep_assert_held(&domain->lock);
	for (;;) {
		err = pcilend_granules_plan(&domain->granules, iova, limit, &granule->start,
					    &granule->size);
		if (!err) {
			*range = remote_range_get(domain->link, granule->size);
			err = PTR_ERR_OR_ZERO(*range);
		}
		if (!err)
			granule->slot = (*range)->iova;
		if (err != -ENOSPC)
			return err;
		if (iommu_reclaim(domain)) {
			limit = U64_MAX;
			continue;
		}
		if (domain->granules.count == GRANULES || granule->size == PCILEND_PAGE)
			return err;
		limit = granule->size / 2;
	}
}

static int remote_iommu_add_granule(struct pcilend_domain *domain, u64 iova)
{
	struct pcilend_granule granule = { };
	struct remote_range *range;
	struct remote *r, *done;
	u32 index;
	int err;

	lockdep_assert_held(&domain->lock);
	err = remote_iommu_take_slot(domain, iova, &granule, &range);
	if (err)
		return err;
	list_for_each_entry(r, &domain->attached, domain_node) {
		err = iommu_mirror(r, &granule, range);
		if (err)
			goto err_unmirror;
	}
	err = pcilend_granules_add(&domain->granules, granule.start, granule.size, granule.slot);
	if (err)
		goto err_unmirror;
	index = pcilend_granules_find(&domain->granules, iova) - domain->entry;
	memmove(&domain->range[index + 1], &domain->range[index],
		(domain->granules.count - 1 - index) * sizeof(domain->range[0]));
	domain->range[index] = range;
	trace_pcilend_granule(granule.start, granule.size, granule.slot);
	return 0;

err_unmirror:
	list_for_each_entry(done, &domain->attached, domain_node) {
		if (done == r)
			break;
		iommu_unmirror(done, &granule, range);
	}
	remote_range_put(range);
	return err;
}

/* The granule of @iova; made if there is none. */
static struct pcilend_granule *remote_iommu_find_granule(struct pcilend_domain *domain, u64 iova)
{
	struct pcilend_granule *granule = pcilend_granules_find(&domain->granules, iova);
	int err;

	lockdep_assert_held(&domain->lock);
	if (granule)
		return granule;
	if (list_empty(&domain->attached))
		return ERR_PTR(-ENODEV);
	err = remote_iommu_add_granule(domain, iova);
	return err ? ERR_PTR(err) : pcilend_granules_find(&domain->granules, iova);
}

/* How much of [iova, +size) is in the granule. */
static u64 iommu_within(const struct pcilend_granule *granule, u64 iova, u64 size)
{
	return min(size, granule->start + granule->size - iova);
}

static int remote_iommu_map_part(struct pcilend_domain *domain, u64 iova, phys_addr_t phys,
				 u64 size, int prot, gfp_t gfp, u64 *mapped)
{
	struct pcilend_granule *granule = remote_iommu_find_granule(domain, iova);
	int err;

	if (IS_ERR(granule))
		return PTR_ERR(granule);
	size = iommu_within(granule, iova, size);
	err = iommu_map(remote_iommu_adapter_domain(domain),
			granule->slot + (iova - granule->start), phys, size, prot, gfp);
	if (err)
		return err;
	WARN_ON(pcilend_granules_mapped(&domain->granules, iova, size));
	domain->mapped += size;
	*mapped = size;
	return 0;
}

static const char *remote_iommu_remedy(int error)
{
	switch (error) {
	case -ENOSPC:
		return ": the memory window is too small for this guest";
	case -EUSERS:
		return ": give all functions of its IOMMU group to one guest";
	default:
		return "";
	}
}

static int iommu_map_pages(struct iommu_domain *iommu_domain, unsigned long iova,
			   phys_addr_t phys, size_t page, size_t count, int prot, gfp_t gfp,
			   size_t *mapped)
{
	struct pcilend_domain *domain = remote_iommu_to_domain(iommu_domain);
	u64 size = (u64)page * count, part;
	int err = 0;

	if (!gfpflags_allow_blocking(gfp))
		return -EOPNOTSUPP;
	guard(mutex)(&domain->lock);
	/* A window of the NTB is no way from the NTB to itself. */
	if (pcilend_reach_is_window(phys, size)) {
		err = iommu_bars_map(&domain->bars, iova, phys, size, prot, domain->late);
		*mapped = err ? 0 : size;
		return err;
	}
	for (*mapped = 0; *mapped < size && !err; *mapped += part) {
		part = 0;
		err = remote_iommu_map_part(domain, iova + *mapped, phys + *mapped, size - *mapped,
					    prot, gfp, &part);
	}
	iommu_tell(domain);
	if (err && err != -ENOMEM)
		pr_warn_ratelimited("pcilend: %#lx bytes at IOVA %#lx can't be mapped for a borrowed function (error %d)%s\n",
				    (unsigned long)size, iova, err,
				    remote_iommu_remedy(err));
	return err;
}

/* Also without a lease, as VFIO unmaps after its end. */
static size_t iommu_unmap_pages(struct iommu_domain *iommu_domain, unsigned long iova, size_t page,
				size_t count, struct iommu_iotlb_gather *gather)
{
	struct pcilend_domain *domain = remote_iommu_to_domain(iommu_domain);
	size_t size = page * count, done = 0;

	guard(mutex)(&domain->lock);
	while (done < size) {
		struct pcilend_granule *granule;
		u64 at = iova + done;
		size_t part;

		part = iommu_bars_unmap(&domain->bars, at, size - done);
		if (part) {
			done += part;
			continue;
		}
		granule = pcilend_granules_find(&domain->granules, at);
		if (!granule)
			break;
		part = iommu_unmap_fast(remote_iommu_adapter_domain(domain),
					granule->slot + (at - granule->start),
					iommu_within(granule, at, size - done), gather);
		if (!part)
			break;
		WARN_ON(pcilend_granules_unmapped(&domain->granules, at, part));
		domain->mapped -= part;
		done += part;
	}
	iommu_tell(domain);
	return done;
}

static void iommu_sync(struct iommu_domain *iommu_domain, struct iommu_iotlb_gather *gather)
{
	struct pcilend_domain *domain = remote_iommu_to_domain(iommu_domain);

	guard(mutex)(&domain->lock);
	/*
	 * Nothing is gathered of BARs. If the adapter has gone since the unmap it was flushed then,
	 * and the pages of a page table that was emptied are lost.
	 */
	if (domain->link && gather->end)
		iommu_iotlb_sync(remote_iommu_adapter_domain(domain), gather);
}

static phys_addr_t iommu_iova_to_phys_of(struct iommu_domain *iommu_domain, dma_addr_t iova)
{
	struct pcilend_domain *domain = remote_iommu_to_domain(iommu_domain);
	struct pcilend_granule *granule;
	phys_addr_t phys;

	guard(mutex)(&domain->lock);
	phys = iommu_bars_phys(&domain->bars, iova);
	if (phys)
		return phys;
	granule = pcilend_granules_find(&domain->granules, iova);
	if (!granule)
		return 0;
	return iommu_iova_to_phys(remote_iommu_adapter_domain(domain),
				  granule->slot + (iova - granule->start));
}

/* Users may free a domain in which something is mapped. */
static void iommu_wipe(struct pcilend_domain *domain, const struct pcilend_granule *granule)
{
	u64 at = 0;

	lockdep_assert_held(&domain->lock);
	while (granule->mapped && at < granule->size) {
		at += iommu_unmap(remote_iommu_adapter_domain(domain), granule->slot + at,
				  granule->size - at)
			      ?: PAGE_SIZE;
		cond_resched();
	}
}

static void iommu_free(struct iommu_domain *iommu_domain)
{
	struct pcilend_domain *domain = remote_iommu_to_domain(iommu_domain);
	u32 i;

	scoped_guard(mutex, &domain->lock) {
		for (i = 0; i < domain->granules.count; i++) {
			iommu_wipe(domain, &domain->entry[i]);
			remote_range_put(domain->range[i]);
		}
		pcilend_link_put(domain->link);
		domain->link = NULL;
	}
	/* Not before: the adapter goes when it finds none. */
	scoped_guard(mutex, &domains_lock)
		list_del(&domain->node);
	iommu_bars_free(&domain->bars);
	kvfree(domain);
	module_put(THIS_MODULE);
}

bool pcilend_iommu_leave(struct pcilend_link *link)
{
	struct pcilend_domain *domain;
	bool left = true;

	guard(mutex)(&domains_lock);
	list_for_each_entry(domain, &domains, node) {
		guard(mutex)(&domain->lock);
		if (domain->link != link)
			continue;
		if (domain->mapped || !list_empty(&domain->attached)) {
			left = false;
			continue;
		}
		while (domain->granules.count)
			remote_iommu_drop_granule(domain, domain->granules.count - 1);
		pcilend_link_put(domain->link);
		domain->link = NULL;
	}
	return left;
}

static int remote_iommu_dma_area(struct remote *r, bool on)
{
	u64 iova, size;

	pcilend_dma_area(&r->pub, &iova, &size);
	return on ? pcilend_map(&r->pub, iova, iova, size) : pcilend_unmap(&r->pub, iova, size);
}

/* One of the functions has left its domain. */
static DECLARE_WAIT_QUEUE_HEAD(iommu_left);

/* Whatever the function reached, it does no more. After the end of its lease nothing is asked. */
static void iommu_leave(struct remote *r)
{
	struct pcilend_domain *domain = r->domain;
	int err;

	if (r->dma == REMOTE_DMA_AREA) {
		err = remote_iommu_dma_area(r, false);
		if (err && err != -ESTALE)
			dev_warn(&r->pub.dev, "its lender did not unmap the DMA area (error %d)\n",
				 err);
	} else if (r->dma == REMOTE_DMA_DOMAIN) {
		guard(mutex)(&domain->lock);
		list_del(&r->domain_node);
		iommu_bars_detach(&domain->bars, r);
		iommu_unmirror_all(domain, r, domain->granules.count);
	}
	WRITE_ONCE(r->guest_bytes, 0);
	r->domain = NULL;
	WRITE_ONCE(r->dma, REMOTE_DMA_BLOCKED);
	wake_up_all(&iommu_left);
}

/* The DMA area of this host, at the same addresses. No-op if it is so. */
static int remote_dma_identity(struct remote *r)
{
	int err;

	if (r->dma == REMOTE_DMA_AREA)
		return 0;
	iommu_leave(r);
	err = remote_iommu_dma_area(r, true);
	if (!err)
		r->dma = REMOTE_DMA_AREA;
	return err;
}

int pcilend_map_dma_area(struct pcilend_remote *remote)
{
	return remote_dma_identity(to_remote(remote));
}
EXPORT_SYMBOL_GPL(pcilend_map_dma_area);

bool pcilend_remote_in_use(struct pcilend_remote *remote)
{
	return READ_ONCE(to_remote(remote)->dma) == REMOTE_DMA_DOMAIN;
}

bool pcilend_await_unused(struct pcilend_remote *remote, unsigned long timeout)
{
	return wait_event_timeout(iommu_left, !pcilend_remote_in_use(remote), timeout);
}
EXPORT_SYMBOL_GPL(pcilend_await_unused);

/* A new lease, of which nothing is mapped. */
void remote_dma_begin(struct remote *r)
{
	r->domain = NULL;
	r->dma = REMOTE_DMA_BLOCKED;
	r->late = false;
}

static int remote_iommu_attach_domain(struct iommu_domain *iommu_domain, struct device *dev)
{
	struct pcilend_domain *domain = remote_iommu_to_domain(iommu_domain);
	struct remote *r = remote_of(dev);
	int err;

	if (r->dma == REMOTE_DMA_DOMAIN && r->domain == domain)
		return 0;
	if (!remote_held_lease(r))
		return -ENODEV;
	scoped_guard(mutex, &domain->lock) {
		/* VFIO makes one of its own then, and maps there what is mapped here. */
		if ((domain->link && domain->link != r->link) ||
		    r->last_address < domain->granules.end) {
			r->late |= domain->bars.count > 0;
			return -EINVAL;
		}
	}
	iommu_leave(r);
	guard(mutex)(&domain->lock);
	/* One over another link may have come first: iommufd attaches groups side by side. */
	if (domain->link && domain->link != r->link)
		return -EINVAL;
	domain->late |= r->late;
	r->late = false;
	if (!domain->link)
		domain->link = pcilend_link_get(r->link);
	err = iommu_mirror_all(domain, r);
	if (err) {
		dev_warn(&r->pub.dev, "its lender does not map what its user has mapped (error %d)\n",
			 err);
		return err == -ENOSPC ? err : -ENODEV;
	}
	iommu_bars_attach(&domain->bars, r);
	list_add_tail(&r->domain_node, &domain->attached);
	r->domain = domain;
	r->dma = REMOTE_DMA_DOMAIN;
	iommu_tell(domain);
	return 0;
}

/* The IOMMU core counts on it that a function can be put into these. */
static int remote_iommu_attach_identity(struct iommu_domain *iommu_domain, struct device *dev)
{
	struct remote *r = remote_of(dev);
	int err;

	if (!remote_held_lease(r)) {
		iommu_leave(r);
		return 0;
	}
	err = remote_dma_identity(r);
	if (err && err != -ESTALE)
		dev_err(&r->pub.dev, "its lender does not map the DMA area (error %d): return it, and borrow it again\n",
			err);
	return 0;
}

static int remote_iommu_attach_blocked(struct iommu_domain *iommu_domain, struct device *dev)
{
	iommu_leave(remote_of(dev));
	return 0;
}

PCILEND_ATTACH(remote_iommu_attach_domain);
PCILEND_ATTACH(remote_iommu_attach_identity);
PCILEND_ATTACH(remote_iommu_attach_blocked);

static const struct iommu_domain_ops domain_ops = {
	.attach_dev = PCILEND_ATTACH_OP(remote_iommu_attach_domain),
	.map_pages = iommu_map_pages,
	.unmap_pages = iommu_unmap_pages,
	.iotlb_sync = iommu_sync,
	.iova_to_phys = iommu_iova_to_phys_of,
	.free = iommu_free,
};

static struct iommu_domain identity_domain = {
	.type = IOMMU_DOMAIN_IDENTITY,
	.ops = &(const struct iommu_domain_ops) {
		.attach_dev = PCILEND_ATTACH_OP(remote_iommu_attach_identity),
	},
};

static struct iommu_domain blocked_domain = {
	.type = IOMMU_DOMAIN_BLOCKED,
	.ops = &(const struct iommu_domain_ops) {
		.attach_dev = PCILEND_ATTACH_OP(remote_iommu_attach_blocked),
	},
};

static struct iommu_domain *remote_iommu_alloc_domain(struct device *dev)
{
	struct remote *r = remote_of(dev);
	struct pcilend_domain *domain = kvzalloc(sizeof(*domain), GFP_KERNEL_ACCOUNT);

	if (!domain)
		return NULL;
	/* The IOMMU core holds it for as long as there is the function. */
	__module_get(THIS_MODULE);
	mutex_init(&domain->lock);
	INIT_LIST_HEAD(&domain->attached);
	memcpy(domain->hole, holes, sizeof(holes));
	pcilend_granules_init(&domain->granules, domain->entry, GRANULES, domain->hole,
			      ARRAY_SIZE(holes), ARRAY_SIZE(domain->hole), r->last_address);
	iommu_bars_init(&domain->bars, &domain->lock, &domain->attached, &domain->granules);
	domain->domain.ops = &domain_ops;
	domain->domain.pgsize_bitmap = r->link->aperture.domain->pgsize_bitmap;
	domain->domain.geometry.aperture_end = r->last_address;
	domain->domain.geometry.force_aperture = true;
	guard(mutex)(&domains_lock);
	list_add(&domain->node, &domains);
	return &domain->domain;
}

/*
 * Whether the function's writes snoop this host's caches is for both IOMMUs to say; both do on
 * x86. That no-snoop transactions are made to is not promised: see enforce_cache_coherency().
 */
static bool remote_iommu_is_capable(struct device *dev, enum iommu_cap cap)
{
	return cap == IOMMU_CAP_CACHE_COHERENCY &&
	       device_iommu_capable(&remote_of(dev)->link->pdev->dev, cap);
}

static void remote_iommu_get_reserved(struct device *dev, struct list_head *list)
{
	struct iommu_resv_region *region;
	int i;

	for (i = 0; i < ARRAY_SIZE(holes); i++) {
		bool msi = holes[i].start == PCILEND_MSI_IOVA;

		region = iommu_alloc_resv_region(holes[i].start, holes[i].size, 0,
						 msi ? IOMMU_RESV_MSI : IOMMU_RESV_RESERVED,
						 GFP_KERNEL);
		if (region)
			list_add_tail(&region->list, list);
	}
}

/* One for each default domain: that is told by the operations of the IOMMU. */
enum iommu_kind {
	KIND_IDENTITY,
	KIND_BLOCKED,
	KINDS,
};

static struct kind {
	struct iommu_device device;
	struct fwnode_handle fwnode;
} kinds[KINDS];

static struct iommu_device *remote_iommu_probe_device(struct device *dev)
{
	if (!dev_is_pci(dev) || !pcilend_virtual_remote(to_pci_dev(dev)))
		return ERR_PTR(-ENODEV);
	return &container_of(dev->iommu->fwspec->iommu_fwnode, struct kind, fwnode)->device;
}

#define PCILEND_IOMMU_OPS(default)						\
	{									\
		.capable = remote_iommu_is_capable,						\
		.domain_alloc_paging = remote_iommu_alloc_domain,				\
		.probe_device = remote_iommu_probe_device,					\
		.device_group = generic_device_group,				\
		.get_resv_regions = remote_iommu_get_reserved,				\
		.default_domain_ops = &domain_ops,				\
		.identity_domain = &identity_domain,				\
		.blocked_domain = &blocked_domain,				\
		.default_domain = &(default),					\
		.release_domain = &blocked_domain,				\
		.owner = THIS_MODULE,						\
	}

static const struct iommu_ops kind_ops[KINDS] = {
	[KIND_IDENTITY] = PCILEND_IOMMU_OPS(identity_domain),
	[KIND_BLOCKED] = PCILEND_IOMMU_OPS(blocked_domain),
};

static const char *const kind_names[KINDS] = {
	[KIND_IDENTITY] = "pcilend-identity",
	[KIND_BLOCKED] = "pcilend-blocked",
};

/*
 * iommu_fwspec_init() is for buses that find IOMMUs by their firmware, under a lock of the IOMMU
 * core that is not exported; so what it makes is made here, for a device that nobody has seen yet.
 * The IOMMU core frees both.
 */
int pcilend_iommu_claim(struct pcilend_remote *remote, struct pci_dev *pdev)
{
	struct remote *r = to_remote(remote);
	struct iommu_fwspec *fwspec;
	struct dev_iommu *iommu;

	if (r->dma_base || r->link->aperture.direct || pdev->dev.iommu)
		return 0;
	fwspec = kzalloc(struct_size(fwspec, ids, 1), GFP_KERNEL);
	iommu = kzalloc(sizeof(*iommu), GFP_KERNEL);
	if (!fwspec || !iommu) {
		kfree(fwspec);
		kfree(iommu);
		return -ENOMEM;
	}
	fwspec->iommu_fwnode = &kinds[r->frontend->guests ? KIND_BLOCKED : KIND_IDENTITY].fwnode;
	mutex_init(&iommu->lock);
	iommu->fwspec = fwspec;
	pdev->dev.iommu = iommu;
	return 0;
}

static int remote_iommu_kind_register(enum iommu_kind kind)
{
	struct iommu_device *device = &kinds[kind].device;
	int err;

	fwnode_init(&kinds[kind].fwnode, NULL);
	device->fwnode = &kinds[kind].fwnode;
	err = iommu_device_sysfs_add(device, NULL, NULL, "%s", kind_names[kind]);
	if (err)
		return err;
	err = iommu_device_register(device, &kind_ops[kind], NULL);
	if (err)
		iommu_device_sysfs_remove(device);
	return err;
}

static void remote_iommu_kind_unregister(enum iommu_kind kind)
{
	iommu_device_unregister(&kinds[kind].device);
	iommu_device_sysfs_remove(&kinds[kind].device);
}

int pcilend_iommu_init(void)
{
	int err = remote_iommu_kind_register(KIND_IDENTITY);

	if (err)
		return err;
	err = remote_iommu_kind_register(KIND_BLOCKED);
	if (err)
		remote_iommu_kind_unregister(KIND_IDENTITY);
	return err;
}

/* No virtual function and no domain is there any more: each has held this module. */
void pcilend_iommu_exit(void)
{
	remote_iommu_kind_unregister(KIND_BLOCKED);
	remote_iommu_kind_unregister(KIND_IDENTITY);
}
