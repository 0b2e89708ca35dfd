// SPDX-License-Identifier: GPL-2.0-only
/*
 * The inbound aperture of a link: translations of its memory windows, set once, and ranges of the
 * NTB's IOMMU domain above what the DMA API uses: BARs of lent functions, and guest slots. What a
 * peer reaches is what is mapped there.
 */

#include <linux/delay.h>
#include <linux/iommu.h>
#include <linux/ioport.h>
#include <linux/random.h>
#include <linux/slab.h>

#include "link/session.h"

#define TRANSLATION_ATTEMPTS 5

/* Prior to link up: what needs no peer. Sets the limit for the DMA API; nothing to undo. */
int pcilend_aperture_init(struct pcilend_link *link)
{
	struct pcilend_aperture *ap = &link->aperture;
	int count = ntb_peer_mw_count(link->ntb);
	int i, err;

	mutex_init(&ap->lock);
	ap->domain = iommu_get_domain_for_dev(&link->pdev->dev);
	ap->direct = !ap->domain || !(ap->domain->type & __IOMMU_DOMAIN_PAGING);
	ap->windows = clamp(count, 0, PCILEND_LAYOUT_WINDOWS);
	for (i = 0; i < ap->windows; i++) {
		err = ntb_peer_mw_get_addr(link->ntb, i, &ap->window[i].phys, &ap->window[i].size);
		if (err) {
			pci_warn(link->pdev, "pcilend: its driver can't say where memory window %d is (error %d): that and further ones are not used\n",
				 i, err);
			ap->windows = i;
			break;
		}
	}
	return 0;
}

static int aperture_note_end(struct resource *memory, void *data)
{
	u64 *end = data;

	*end = max(*end, memory->end + 1);
	return 0;
}

static u64 aperture_memory_end(void)
{
	u64 end = 0;

	walk_iomem_res_desc(IORES_DESC_NONE, IORESOURCE_SYSTEM_RAM | IORESOURCE_BUSY, 0, U64_MAX,
			    &end, aperture_note_end);
	return end;
}

/* The lowest BAR above 4 GiB that could be lent; 0: there is none. */
static u64 aperture_lowest_bar(void)
{
	struct pci_dev *pdev = NULL;
	u64 lowest = 0;
	int i;

	for_each_pci_dev(pdev) {
		/* Bridges are not lent, and NTBs are such; nor is what is borrowed. */
		if (pdev->class >> 16 == PCI_BASE_CLASS_BRIDGE ||
		    pci_domain_nr(pdev->bus) > 0xffff || pcilend_link_is_over(pdev))
			continue;
		for (i = 0; i < PCI_STD_NUM_BARS; i++) {
			u64 start = pci_resource_start(pdev, i);

			if (pci_resource_flags(pdev, i) & IORESOURCE_MEM && start >= SZ_4G &&
			    (!lowest || start < lowest))
				lowest = start;
		}
	}
	return lowest;
}

static int aperture_plan(struct pcilend_link *link, char *why, size_t bytes)
{
	struct pcilend_aperture *ap = &link->aperture;
	struct pcilend_layout_host *self __free(kfree) = kzalloc(sizeof(*self), GFP_KERNEL);
	const struct pcilend_layout_host *peer = &link->hello.peer;
	int i, err, count = ntb_mw_count(link->ntb, NTB_DEF_PEER_IDX);

	if (!self)
		return -ENOMEM;

	self->windows = clamp(count, 0, PCILEND_LAYOUT_WINDOWS);
	for (i = 0; i < self->windows; i++) {
		resource_size_t addr_align, size_align, size_max;

		err = ntb_mw_get_align(link->ntb, NTB_DEF_PEER_IDX, i, &addr_align, &size_align,
				       &size_max);
		if (err)
			return err;
		self->window[i].size = size_max;
		self->window[i].size_max = size_max;
		self->window[i].addr_align = addr_align;
		self->window[i].size_align = size_align;
		ap->rule[i] = self->window[i];
	}
	self->hole = link->hole;
	self->relay = pcilend_relay_msi;
	/* Reserved ranges end the usable space as the page tables' own limit does. */
	if (ap->direct) {
		self->memory_end = aperture_memory_end();
		self->bars = aperture_lowest_bar();
	} else if (ap->domain->geometry.aperture_end != U64_MAX) {
		self->iova_end = ap->domain->geometry.aperture_end + 1;
	}

	return pcilend_layout_plan(self, peer, &ap->layout, why, bytes);
}

/*
 * With some drivers both hosts write to one set of registers, and what one does at the same time as
 * the other fails. Process context; @size 0 closes the window.
 */
static int aperture_set_translation(struct pcilend_link *link, int window, u64 iova, u64 size)
{
	unsigned int attempt;
	int err;

	for (attempt = 0; attempt < TRANSLATION_ATTEMPTS; attempt++) {
		if (attempt)
			msleep(get_random_u32_inclusive(10, 200));
		err = size ? ntb_mw_set_trans(link->ntb, NTB_DEF_PEER_IDX, window, iova, size) :
			     ntb_mw_clear_trans(link->ntb, NTB_DEF_PEER_IDX, window);
		if (err != -EIO && err != -EINTR && err != -EBUSY)
			break;
	}
	return err;
}

/* Those without a size too: another plan, or who had the adapter before, may have opened them. */
static int aperture_set_translations(struct pcilend_link *link)
{
	const struct pcilend_layout *layout = &link->aperture.layout;
	int i, err, count = ntb_mw_count(link->ntb, NTB_DEF_PEER_IDX);

	for (i = 0; i < count; i++) {
		const bool planned = i < layout->windows;

		err = aperture_set_translation(link, i,
					       planned ? layout->window[i].translation : 0,
					       planned ? layout->window[i].size : 0);
		if (err)
			return err;
	}
	return 0;
}

/*
 * pcilend_aperture_open - let the peer's windows reach this host's aperture
 * @why: set on refusal
 *
 * Called by the handshake whenever the NTB's link has come up: plans, unless there is a plan, and
 * sets the same translations again, for adapters that lose them with the link. The first plan is
 * made without knowing the peer; if it does not fit, what the peer said in HELLO decides the next.
 *
 * Return: 0, -ENOTCONN if the link went down meanwhile, or a refusal.
 */
int pcilend_aperture_open(struct pcilend_link *link, char *why, size_t bytes)
{
	struct pcilend_aperture *ap = &link->aperture;
	const struct pcilend_layout *layout = &ap->layout;
	int err;

	if (!ap->open) {
		err = aperture_plan(link, why, bytes);
		if (err)
			return err;
		if (!layout->interrupts.size)
			pci_info(link->pdev, "MSI of functions borrowed over it is relayed: %s\n",
				 pcilend_relay_msi ? "relay_msi=1" :
				 "no memory window reaches the interrupt range");
		err = pcilend_link_place_area(link, layout->dma_limit);
		if (err) {
			snprintf(why, bytes,
				 "no memory for the control area below %#llx (error %d): free some, then reload pcilend",
				 layout->dma_limit, err);
			return err;
		}
		mutex_lock(&ap->lock);
		err = pcilend_range_init(&ap->exports, layout->exports.iova, layout->exports.size,
					 ap->entries, PCILEND_EXPORTS) ?:
		      pcilend_range_init(&ap->slots, layout->slots.iova, layout->slots.size,
					 ap->entries + PCILEND_EXPORTS, PCILEND_SLOTS);
		ap->plans++;
		mutex_unlock(&ap->lock);
		if (err) {
			snprintf(why, bytes, "the aperture's plan is not page aligned");
			return err;
		}
	}

	err = aperture_set_translations(link);
	if (err) {
		snprintf(why, bytes,
			 "the NTB driver %s refuses the memory window translations (error %d): see the kernel log",
			 link->driver, err);
		return err;
	}
	ap->open = true;
	return 0;
}

/*
 * pcilend_aperture_replan - there is no plan any more: pcilend_aperture_open() makes the next
 *
 * Called by the handshake while there is no session. Until then no range is given out.
 * Return: false if ranges of the plan are in use, which stays then: guests keep their slots beyond
 * the end of a lease.
 */
bool pcilend_aperture_replan(struct pcilend_link *link)
{
	struct pcilend_aperture *ap = &link->aperture;

	guard(mutex)(&ap->lock);
	if (ap->exports.count || ap->slots.count)
		return false;
	ap->exports = (struct pcilend_range){ };
	ap->slots = (struct pcilend_range){ };
	ap->open = false;
	return true;
}

/*
 * pcilend_aperture_close - let the peer's windows reach nothing here
 *
 * Nobody opens them meanwhile: the handshake's work item is disabled. Process context.
 */
void pcilend_aperture_close(struct pcilend_link *link)
{
	unsigned int i;

	for (i = 0; link->aperture.open && i < link->aperture.layout.windows; i++)
		ntb_mw_clear_trans(link->ntb, NTB_DEF_PEER_IDX, i);
}

void pcilend_aperture_exit(struct pcilend_link *link)
{
	struct pcilend_aperture *ap = &link->aperture;

	if (ap->open)
		WARN_ON(ap->exports.count || ap->slots.count);
	pcilend_aperture_close(link);
	ap->open = false;
}

/*
 * pcilend_aperture_export - let the peer reach a BAR, or a copy of one in memory
 * @phys: its start, page aligned
 * @size: bytes, whole pages
 * @prot: PCILEND_PROT_BAR, or other IOMMU_* flags
 * @iova: set to where it is in the aperture
 *
 * Without an IOMMU a window reaches it already, whatever @prot is, or can't.
 * Return: 0, -ENOSPC if the export region is full, or what the IOMMU says.
 */
int pcilend_aperture_export(struct pcilend_link *link, phys_addr_t phys, u64 size, int prot,
			    u64 *iova)
{
	struct pcilend_aperture *ap = &link->aperture;
	int err;

	if (ap->direct) {
		u32 window;
		u64 offset;

		*iova = phys;
		return pcilend_aperture_locate(link, phys, size, &window, &offset) ? -ENOSPC : 0;
	}
	/* Aligned by its size as every BAR, which also lets the IOMMU use its largest pages. */
	mutex_lock(&ap->lock);
	err = pcilend_range_alloc(&ap->exports, size, roundup_pow_of_two(size), iova);
	mutex_unlock(&ap->lock);
	if (err)
		return err;

	err = iommu_map(ap->domain, *iova, phys, size, prot, GFP_KERNEL);
	if (err) {
		mutex_lock(&ap->lock);
		pcilend_range_free(&ap->exports, *iova, size);
		mutex_unlock(&ap->lock);
	}
	return err;
}

/* The peer no longer reaches it; the range stays taken until pcilend_aperture_export_put(). */
void pcilend_aperture_hide(struct pcilend_link *link, u64 iova, u64 size)
{
	struct pcilend_aperture *ap = &link->aperture;

	if (!ap->direct)
		WARN_ON(iommu_unmap(ap->domain, iova, size) != size);
}

/* Undoes pcilend_aperture_hide(). Return: 0 or what the IOMMU says. */
int pcilend_aperture_show(struct pcilend_link *link, u64 iova, phys_addr_t phys, u64 size,
			  int prot)
{
	struct pcilend_aperture *ap = &link->aperture;

	return ap->direct ? 0 : iommu_map(ap->domain, iova, phys, size, prot, GFP_KERNEL);
}

void pcilend_aperture_export_put(struct pcilend_link *link, u64 iova, u64 size)
{
	struct pcilend_aperture *ap = &link->aperture;

	if (ap->direct)
		return;
	mutex_lock(&ap->lock);
	WARN_ON(pcilend_range_free(&ap->exports, iova, size));
	mutex_unlock(&ap->lock);
}

void pcilend_aperture_unexport(struct pcilend_link *link, u64 iova, u64 size)
{
	pcilend_aperture_hide(link, iova, size);
	pcilend_aperture_export_put(link, iova, size);
}

/*
 * pcilend_aperture_unmapped - the DMA API has unmapped something of the adapter: the peer no longer
 * reaches it when this returns
 *
 * By default the DMA API of x86 leaves that to a timer (IOMMU_DOMAIN_DMA_FQ), or it does so from
 * now on, as somebody has changed the group's type. Any context.
 */
void pcilend_aperture_unmapped(struct pcilend_link *link)
{
	struct iommu_domain *domain = link->aperture.domain;

	if (domain && READ_ONCE(domain->type) == IOMMU_DOMAIN_DMA_FQ)
		iommu_flush_iotlb_all(domain);
}

/*
 * Slots are aligned to 2 MiB, as the lender maps little that is not, or better if there is room.
 * @of_plan: for pcilend_aperture_slot_put()
 */
int pcilend_aperture_slot_get(struct pcilend_link *link, u64 size, u64 *iova, u32 *of_plan)
{
	struct pcilend_aperture *ap = &link->aperture;
	u64 align = size >= SZ_1G ? SZ_1G : SZ_2M;
	int err;

	mutex_lock(&ap->lock);
	err = pcilend_range_alloc(&ap->slots, size, align, iova);
	if (err == -ENOSPC && align > SZ_2M)
		err = pcilend_range_alloc(&ap->slots, size, SZ_2M, iova);
	*of_plan = ap->plans;
	mutex_unlock(&ap->lock);
	return err;
}

void pcilend_aperture_slot_put(struct pcilend_link *link, u64 iova, u64 size, u32 of_plan)
{
	struct pcilend_aperture *ap = &link->aperture;

	mutex_lock(&ap->lock);
	WARN_ON(of_plan != ap->plans || pcilend_range_free(&ap->slots, iova, size));
	mutex_unlock(&ap->lock);
}

/* Where the peer finds [iova, +size) of this host's aperture. Return: 0 or -ERANGE. */
int pcilend_aperture_locate(struct pcilend_link *link, u64 iova, u64 size, u32 *window,
			    u64 *offset)
{
	const struct pcilend_layout *layout = &link->aperture.layout;
	u32 i;

	for (i = 0; i < layout->windows; i++) {
		u64 start = layout->window[i].translation;
		u64 reach = layout->window[i].size;

		if (iova >= start && size <= reach && iova - start <= reach - size) {
			*window = i;
			*offset = iova - start;
			return 0;
		}
	}
	return -ERANGE;
}

/* Address on this host of [offset, +size) of a window onto the peer. Return: 0 or -ERANGE. */
int pcilend_aperture_peer(struct pcilend_link *link, u32 window, u64 offset, u64 size,
			  phys_addr_t *phys)
{
	const struct pcilend_aperture *ap = &link->aperture;

	if (window >= ap->windows || size > ap->window[window].size ||
	    offset > ap->window[window].size - size)
		return -ERANGE;
	*phys = ap->window[window].phys + offset;
	return 0;
}
