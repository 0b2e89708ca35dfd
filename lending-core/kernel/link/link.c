// SPDX-License-Identifier: GPL-2.0-only
/*
 * The NTB client: one link per NTB adapter. Probing finds out whether the adapter can be used at
 * all; a link that can't is kept, refused, with a reason that people can act on.
 */

#include <linux/dma-mapping.h>
#include <linux/iommu.h>
#include <linux/slab.h>

#include "link/session.h"
#include "base/trace.h"

static LIST_HEAD(links);
static DEFINE_MUTEX(links_lock);

const struct pcilend_lender_ops *pcilend_link_lender;
const struct pcilend_borrower_ops *pcilend_link_borrower;
const struct pcilend_segment_ops *pcilend_link_segments;

struct pcilend_link *pcilend_link_get(struct pcilend_link *link)
{
	kref_get(&link->ref);
	return link;
}

static void link_release(struct kref *ref)
{
	struct pcilend_link *link = container_of(ref, struct pcilend_link, ref);

	pci_dev_put(link->pdev);
	pcilend_requesters_free(link);
	kvfree(link->aperture.entries);
	kfree(link->lender);
	kfree(link->borrower);
	kfree(link->segments);
	kfree(link);
}

void pcilend_link_put(struct pcilend_link *link)
{
	if (link)
		kref_put(&link->ref, link_release);
}

struct pcilend_link *pcilend_link_next(struct pcilend_link *previous)
{
	struct pcilend_link *link, *found = NULL;

	mutex_lock(&links_lock);
	list_for_each_entry(link, &links, node) {
		if (!previous || link->index > previous->index) {
			found = pcilend_link_get(link);
			break;
		}
	}
	mutex_unlock(&links_lock);
	pcilend_link_put(previous);
	return found;
}

/* Is the link up, with that node behind it? */
bool pcilend_link_reaches(struct pcilend_link *link, u32 node)
{
	u16 peer;

	return pcilend_link_is_up(link, &peer) && peer == node;
}

/*
 * A link to that node, with a reference: the one of the session with its boot id @boot if that is
 * up, else any that is; or NULL.
 */
struct pcilend_link *pcilend_link_to(u32 node, u64 boot)
{
	struct pcilend_link *link, *found = NULL;

	for (link = pcilend_link_next(NULL); link; link = pcilend_link_next(link)) {
		bool session = pcilend_link_is_peer(link, node, boot);

		if (!pcilend_link_reaches(link, node) || (found && !session))
			continue;
		pcilend_link_put(found);
		found = pcilend_link_get(link);
	}
	return found;
}

/* The link of the NTB adapter at that PCI address, with a reference; or NULL. */
struct pcilend_link *pcilend_link_by_adapter(const char *adapter)
{
	struct pcilend_link *link;

	for (link = pcilend_link_next(NULL); link; link = pcilend_link_next(link)) {
		if (!strcmp(pci_name(link->pdev), adapter))
			break;
	}
	return link;
}

/* Is it an NTB adapter that carries one of our links? */
bool pcilend_link_is_adapter(struct pci_dev *pdev)
{
	struct pcilend_link *link;

	for (link = pcilend_link_next(NULL); link; link = pcilend_link_next(link)) {
		if (link->pdev == pdev) {
			pcilend_link_put(link);
			return true;
		}
	}
	return false;
}

/* Does the control channel work? *node (optional) is the peer's id then. */
bool pcilend_link_is_up(struct pcilend_link *link, u16 *node)
{
	bool up;

	spin_lock(&link->state_lock);
	up = link->state == PCILEND_LINK_UP;
	if (node)
		*node = link->peer_node;
	spin_unlock(&link->state_lock);
	return up;
}

bool pcilend_link_is_peer(struct pcilend_link *link, u32 node, u64 boot)
{
	bool same;

	spin_lock(&link->state_lock);
	same = link->peer_node == node && link->peer_boot == boot;
	spin_unlock(&link->state_lock);
	return same;
}

/* Is it borrowed? Its bus is below an adapter's then. */
bool pcilend_link_is_over(struct pci_dev *pdev)
{
	struct device *parent = pci_find_host_bridge(pdev->bus)->dev.parent;

	return parent && dev_is_pci(parent) && pcilend_link_is_adapter(to_pci_dev(parent));
}

/* The handshake, when the peer is known to be the node that it says it is. */
void pcilend_link_set_trusted(struct pcilend_link *link)
{
	spin_lock(&link->state_lock);
	link->trusted = true;
	spin_unlock(&link->state_lock);
}

void pcilend_link_beat(struct pcilend_link *link, struct pcilend_heartbeat *beat)
{
	spin_lock(&link->state_lock);
	*beat = link->beat;
	spin_unlock(&link->state_lock);
}

void pcilend_link_set_peer_connected(struct pcilend_link *link, bool connected)
{
	bool changed;

	spin_lock(&link->state_lock);
	changed = link->peer_connected != connected;
	link->peer_connected = connected;
	spin_unlock(&link->state_lock);
	if (changed)
		pcilend_event_link(link);
}

/* Before each line of the log that the peer can provoke, however often. */
bool pcilend_link_may_log(struct pcilend_link *link)
{
	return __ratelimit(&link->log_limit);
}

/* Called by probe and the handshake. @reason: for people; "" if there is nothing to say. */
void pcilend_link_set_state(struct pcilend_link *link, enum pcilend_link_state state,
			    const char *reason)
{
	enum pcilend_link_state former;
	bool changed;
	u16 node;

	spin_lock(&link->state_lock);
	former = link->state;
	changed = former != state || strcmp(link->reason, reason);
	link->state = state;
	strscpy(link->reason, reason, sizeof(link->reason));
	node = link->peer_node;
	spin_unlock(&link->state_lock);
	pcilend_channel_set_polling(link, state == PCILEND_LINK_UP);
	if (!changed)
		return;

	trace_pcilend_link_state(pci_name(link->pdev), node, former, state, reason);
	pcilend_event_link(link);
	if (state != PCILEND_LINK_REFUSED && state != PCILEND_LINK_UP &&
	    former != PCILEND_LINK_UP)
		return;
	if (!pcilend_link_may_log(link))
		return;
	if (state == PCILEND_LINK_REFUSED)
		pci_warn(link->pdev, "pcilend: link can't be used: %s\n", reason);
	else if (state == PCILEND_LINK_UP)
		pci_info(link->pdev, "pcilend: link to node %u is up\n", node);
	else
		pci_info(link->pdev, "pcilend: link to node %u is down%s%s\n", node,
			 *reason ? ": " : "", reason);
}

/*
 * Does the adapter have a link? Some drivers pass on what they read of a register: all-ones, when
 * the adapter is gone. Any context.
 */
bool pcilend_link_adapter_is_up(struct pcilend_link *link)
{
	u64 up = ntb_link_is_up(link->ntb, NULL, NULL);

	return up && lower_32_bits(up) != U32_MAX;
}

void pcilend_link_kick_peer(struct pcilend_link *link)
{
	ntb_peer_db_set(link->ntb, BIT_ULL(PCILEND_DOORBELL_KICK));
}

static void link_set_kicks(struct pcilend_link *link, int kicks)
{
	lockdep_assert_held(&link->kick_lock);
	if (kicks < 0 && link->kicks_left >= 0)
		ntb_db_set_mask(link->ntb, BIT_ULL(PCILEND_DOORBELL_KICK));
	else if (kicks >= 0 && link->kicks_left < 0)
		ntb_db_clear_mask(link->ntb, BIT_ULL(PCILEND_DOORBELL_KICK));
	link->kicks_left = kicks;
}

/*
 * pcilend_link_listen - another beat, and the peer may ring again
 *
 * Any context. Whoever calls it looks into the ring afterwards.
 */
void pcilend_link_listen(struct pcilend_link *link)
{
	unsigned long flags;

	spin_lock_irqsave(&link->kick_lock, flags);
	link_set_kicks(link, PCILEND_KICKS_PER_BEAT);
	spin_unlock_irqrestore(&link->kick_lock, flags);
}

/* pcilend_link_heard - @messages have come, each of which was a reason to ring. Any context. */
void pcilend_link_heard(struct pcilend_link *link, u32 messages)
{
	unsigned long flags;

	spin_lock_irqsave(&link->kick_lock, flags);
	link_set_kicks(link, link->kicks_left + messages);
	spin_unlock_irqrestore(&link->kick_lock, flags);
}

static void link_count_kick(struct pcilend_link *link)
{
	unsigned long flags;

	spin_lock_irqsave(&link->kick_lock, flags);
	link_set_kicks(link, link->kicks_left - 1);
	spin_unlock_irqrestore(&link->kick_lock, flags);
}

/* In an interrupt, with most drivers. */
static void link_event(void *context)
{
	pcilend_link_event(context);
	pcilend_handshake_event(context);
}

static void link_db_event(void *context, int vector)
{
	struct pcilend_link *link = context;

	if (!(ntb_db_vector_mask(link->ntb, vector) & BIT_ULL(PCILEND_DOORBELL_KICK)))
		return;
	ntb_db_clear(link->ntb, BIT_ULL(PCILEND_DOORBELL_KICK));
	link_count_kick(link);
	pcilend_channel_look(link);
	if (READ_ONCE(link->state) != PCILEND_LINK_UP)
		pcilend_handshake_event(link);
}

static const struct ntb_ctx_ops link_ops = {
	.link_event = link_event,
	.db_event = link_db_event,
};

/* The peer reaches the interrupt range; remapping limits it to interrupts of the NTB itself. */
static bool link_interrupts_are_safe(struct pcilend_link *link)
{
	struct iommu_group *group = iommu_group_get(&link->pdev->dev);
	bool safe = group && iommu_group_has_isolated_msi(group);

	iommu_group_put(group);
	if (!safe && pcilend_unsafe_interrupts)
		pci_warn(link->pdev, "pcilend: interrupt remapping is off: the peer can raise any interrupt on this host\n");
	return safe || pcilend_unsafe_interrupts;
}

/* Bridges have no DMA of their own, whatever their class; endpoints have. */
static int link_find_sibling(struct device *dev, void *data)
{
	struct pcilend_link *link = data;

	if (dev == &link->pdev->dev)
		return 0;
	return !dev_is_pci(dev) || to_pci_dev(dev)->hdr_type != PCI_HEADER_TYPE_BRIDGE;
}

/*
 * Devices of one group share the adapter's domain: the peer reaches what they do, by DMA or, where
 * nothing isolates them, past every IOMMU.
 */
bool pcilend_link_is_isolated(struct pcilend_link *link)
{
	struct iommu_group *group = iommu_group_get(&link->pdev->dev);
	bool alone = group && !iommu_group_for_each_dev(group, link, link_find_sibling);

	iommu_group_put(group);
	if (!alone && pcilend_unsafe_groups)
		pci_warn_once(link->pdev, "pcilend: other devices share its IOMMU group: the peer reaches their DMA\n");
	return alone || pcilend_unsafe_groups;
}

/* Memory that its firmware always reaches is in its domain, and the peer would reach it, too. */
static bool link_has_direct_regions(struct pcilend_link *link)
{
	struct iommu_resv_region *region;
	LIST_HEAD(regions);
	bool direct = false;

	iommu_get_resv_regions(&link->pdev->dev, &regions);
	list_for_each_entry(region, &regions, list)
		direct |= region->type == IOMMU_RESV_DIRECT;
	iommu_put_resv_regions(&link->pdev->dev, &regions);
	return direct;
}

/* What is missing for good, with its cure; NULL if nothing is. */
static const char *link_missing(struct pcilend_link *link)
{
	const struct pcilend_aperture *ap = &link->aperture;

	if (ntb_get_dma_dev(link->ntb) != &link->pdev->dev)
		return "the DMA of this NTB is that of another device, which pcilend can't use";
	if (!pcilend_node)
		return "this host has no node id: load pcilend with node=1..65535";
	if (!ap->domain && !pcilend_direct)
		return "no IOMMU before the NTB: boot with intel_iommu=on, or load with direct=1";
	if (ap->direct && !pcilend_direct)
		return "its IOMMU passes addresses through: drop iommu=pt, or load with direct=1";
	if (!ap->direct && !link_interrupts_are_safe(link))
		return "interrupt remapping is off: enable it, or load with unsafe_interrupts=1";
	if (!ap->direct && !pcilend_link_is_isolated(link))
		return PCILEND_NOT_ISOLATED;
	if (!ap->direct && link_has_direct_regions(link))
		return "firmware reserves memory for the NTB (RMRR): use another slot";
	if (link->ntb->ops->peer_mw_set_trans && !link->ntb->ops->mw_set_trans)
		return "this NTB translates on the sending side only, which pcilend can't use";
	if (!strcmp(link->driver, "ntb_hw_epf"))
		return "its driver can't set windows reliably, nor mask doorbells: use another one";
	if (ntb_peer_port_count(link->ntb) > 1)
		return "the NTB leads to several hosts at once: partition it in pairs";
	if (!ap->windows)
		return "the NTB has no memory window: enable them in its configuration";
	if (ntb_spad_count(link->ntb) < PCILEND_SPADS || !link->ntb->ops->peer_spad_write)
		return "the NTB has fewer than 6 scratchpads, which pcilend needs";
	if (!(ntb_db_valid_mask(link->ntb) & BIT_ULL(PCILEND_DOORBELL_KICK)))
		return "the NTB has no doorbell 0, which pcilend needs";
	if (ntb_db_is_unsafe(link->ntb) || ntb_spad_is_unsafe(link->ntb))
		return "its doorbells or scratchpads can hang the host: use another adapter";
	return NULL;
}

/*
 * The PCI hole: the lowest memory below 4 GiB that a PCI root bus routes to its devices. By way of
 * the devices, as root buses are walked only with a lock that who adds the adapter may hold.
 */
static u64 link_lowest_hole(void)
{
	struct pci_dev *pdev = NULL;
	u64 hole = PCILEND_MSI_IOVA;
	struct resource *window;

	for_each_pci_dev(pdev) {
		if (!pci_is_root_bus(pdev->bus))
			continue;
		pci_bus_for_each_resource(pdev->bus, window) {
			if (window && resource_type(window) == IORESOURCE_MEM &&
			    window->start >= SZ_1M && window->start < hole)
				hole = PAGE_ALIGN_DOWN(window->start);
		}
	}
	return hole;
}

/* Without an IOMMU only the DMA API finds pages below the limit. */
static void *link_area_get(struct pcilend_link *link, dma_addr_t *dma)
{
	struct device *dev = &link->pdev->dev;
	size_t bytes = PAGE_ALIGN(PCILEND_AREA_BYTES);
	void *area;

	if (link->aperture.direct)
		return dma_alloc_coherent(dev, bytes, dma, GFP_KERNEL);
	area = alloc_pages_exact(bytes, GFP_KERNEL | __GFP_ZERO);
	if (!area)
		return NULL;
	*dma = dma_map_single(dev, area, bytes, DMA_BIDIRECTIONAL);
	if (!dma_mapping_error(dev, *dma))
		return area;
	free_pages_exact(area, bytes);
	return NULL;
}

/* The peer may write to it still: its pages are nobody's before the IOMMU lets nothing through. */
static void link_area_put(struct pcilend_link *link, void *area, dma_addr_t dma)
{
	struct device *dev = &link->pdev->dev;
	size_t bytes = PAGE_ALIGN(PCILEND_AREA_BYTES);

	if (link->aperture.direct) {
		dma_free_coherent(dev, bytes, area, dma);
		return;
	}
	dma_unmap_single(dev, dma, bytes, DMA_BIDIRECTIONAL);
	pcilend_aperture_unmapped(link);
	free_pages_exact(area, bytes);
}

static int link_area_alloc(struct pcilend_link *link, u64 limit)
{
	struct device *dev = &link->pdev->dev;

	/* All DMA of the NTB's pci_dev stays in the part of a window that is planned for it. */
	link->former_dma_limit = dev->bus_dma_limit;
	if (!dev->bus_dma_limit || dev->bus_dma_limit > limit - 1)
		dev->bus_dma_limit = limit - 1;

	link->area = link_area_get(link, &link->area_dma);
	if (!link->area) {
		dev->bus_dma_limit = link->former_dma_limit;
		return -ENOMEM;
	}
	link->area->magic = cpu_to_le32(PCILEND_WIRE_MAGIC);
	link->area->version = cpu_to_le32(PCILEND_WIRE_VERSION);
	link->area->boot = cpu_to_le64(link->boot);
	link->area->node = cpu_to_le32(pcilend_node);
	return 0;
}

/* Frees the area that was in use before, if there is one. */
void pcilend_link_drop_former_area(struct pcilend_link *link)
{
	if (link->former_area)
		link_area_put(link, link->former_area, link->former_area_dma);
	link->former_area = NULL;
}

static void link_area_free(struct pcilend_link *link)
{
	struct device *dev = &link->pdev->dev;

	pcilend_link_drop_former_area(link);
	link_area_put(link, link->area, link->area_dma);
	link->area = NULL;
	dev->bus_dma_limit = link->former_dma_limit;
	dma_set_max_seg_size(dev, link->former_segment_bytes);
}

/*
 * pcilend_link_place_area - the DMA area ends at @limit: move the control area if it doesn't
 *
 * Called by the handshake while there is no session. The peer may write to the former area until
 * it has seen the new one, so that stays until the link is up. Return: 0 or -ENOMEM; the area is
 * where it was then.
 */
int pcilend_link_place_area(struct pcilend_link *link, u64 limit)
{
	struct device *dev = &link->pdev->dev;
	struct pcilend_wire_area *former = link->area;
	dma_addr_t former_dma = link->area_dma;
	u64 former_limit = link->former_dma_limit;
	int err;

	if (link->area_dma + PCILEND_AREA_BYTES <= limit) {
		dev->bus_dma_limit = min(dev->bus_dma_limit, limit - 1);
		return 0;
	}
	pcilend_link_drop_former_area(link);
	cancel_delayed_work_sync(&link->tick);
	err = link_area_alloc(link, limit);
	link->former_dma_limit = former_limit;
	if (err) {
		link->area = former;
		link->area_dma = former_dma;
	} else {
		link->former_area = former;
		link->former_area_dma = former_dma;
	}
	queue_delayed_work(pcilend_channel_wq, &link->tick, msecs_to_jiffies(PCILEND_HEARTBEAT_MS));
	return err;
}

/*
 * pcilend_link_enable - let the adapter have a link
 *
 * Process context. Called when it is taken into use, and again while it has none: drivers of
 * switches take it for up once both sides' messages have said so. ntb_hw_switchtec loses one that
 * comes before its work for a "force down" has run (check_link_status_work(), 6.12 and 7.3), and
 * the other side sends none again, as it has seen the link come up. Return: 0, or the driver's
 * error.
 */
int pcilend_link_enable(struct pcilend_link *link)
{
	link->enabled_at = pcilend_now();
	return ntb_link_enable(link->ntb, NTB_SPEED_AUTO, NTB_WIDTH_AUTO);
}

static int link_start(struct pcilend_link *link)
{
	int err;

	link->aperture.entries = kvcalloc(PCILEND_EXPORTS + PCILEND_SLOTS,
					  sizeof(*link->aperture.entries), GFP_KERNEL);
	if (!link->aperture.entries)
		return -ENOMEM;
	err = pcilend_requesters_init(link);
	if (err)
		return err;
	err = link_area_alloc(link, min(PCILEND_HOLE_DEFAULT, link->hole));
	if (err)
		goto err_requesters;
	/* It passes on what functions send: how long a segment may be is theirs to say. */
	link->former_segment_bytes = dma_get_max_seg_size(&link->pdev->dev);
	dma_set_max_seg_size(&link->pdev->dev, UINT_MAX);
	err = ntb_set_ctx(link->ntb, link, &link_ops);
	if (err)
		goto err_area;

	link->usable = true;
	/* ntb_hw_amd leaves them all open. */
	ntb_db_set_mask(link->ntb, ntb_db_valid_mask(link->ntb));
	ntb_db_clear(link->ntb, BIT_ULL(PCILEND_DOORBELL_KICK));
	err = pcilend_link_enable(link);
	/* -EINVAL is what the secondary side of ntb_hw_amd answers, by design. */
	if (err && err != -EINVAL)
		pci_warn(link->pdev, "pcilend: its driver can't enable the link (error %d)\n", err);
	link->kicks_left = -1;
	pcilend_link_listen(link);
	pcilend_handshake_start(link);
	return 0;

err_area:
	link_area_free(link);
err_requesters:
	pcilend_requesters_exit(link);
	return err;
}

static int link_probe(struct ntb_client *client, struct ntb_dev *ntb)
{
	struct pcilend_link *link, *other;
	const char *reason;
	u32 index = 0;
	int err;

	link = kzalloc(sizeof(*link), GFP_KERNEL);
	if (!link)
		return -ENOMEM;
	kref_init(&link->ref);
	spin_lock_init(&link->state_lock);
	spin_lock_init(&link->kick_lock);
	pcilend_audit_limit_init(&link->audit);
	ratelimit_state_init(&link->log_limit, DEFAULT_RATELIMIT_INTERVAL,
			     DEFAULT_RATELIMIT_BURST);
	link->ntb = ntb;
	link->pdev = pci_dev_get(ntb->pdev);
	link->boot = pcilend_new_boot();
	link->hole = link_lowest_hole();
	strscpy(link->driver, dev_driver_string(&ntb->pdev->dev), sizeof(link->driver));
	pcilend_channel_init(link);
	spin_lock_init(&link->loss_lock);
	init_waitqueue_head(&link->idle);
	pcilend_handshake_init(link);

	err = pcilend_link_lender->init(link) ?: pcilend_link_borrower->init(link) ?:
	      pcilend_link_segments->init(link) ?: pcilend_aperture_init(link);
	if (err)
		goto err_put;

	mutex_lock(&links_lock);
	/* The lowest free number, so that an adapter that comes back gets its own again. */
	list_for_each_entry(other, &links, node) {
		if (other->index != index)
			break;
		index++;
	}
	link->index = index;
	list_add_tail(&link->node, &other->node);
	mutex_unlock(&links_lock);
	pcilend_link_borrower->added(link);
	dev_set_drvdata(&ntb->dev, link);

	reason = link_missing(link);
	if (!reason) {
		if (link->aperture.direct)
			pci_warn(link->pdev, "pcilend: no IOMMU: the peer, and functions borrowed from it, reach all memory and all interrupts of this host\n");
		err = link_start(link);
		if (err)
			goto err_list;
		pcilend_link_borrower->usable(link);
	} else {
		pcilend_link_set_state(link, PCILEND_LINK_REFUSED, reason);
	}
	return 0;

err_list:
	pcilend_link_borrower->removed(link);
	mutex_lock(&links_lock);
	list_del(&link->node);
	mutex_unlock(&links_lock);
err_put:
	pci_err(ntb->pdev, "pcilend: can't use this NTB (error %d)\n", err);
	pcilend_link_put(link);
	return err;
}

/* Waits until nothing is borrowed or lent over this link any more, and no frontend shows it. */
static void link_remove(struct ntb_client *client, struct ntb_dev *ntb)
{
	struct pcilend_link *link = dev_get_drvdata(&ntb->dev);

	if (link->usable) {
		pcilend_handshake_stop(link);
		pcilend_link_borrower->gone(link);
		pcilend_link_lender->gone(link);
		pcilend_link_segments->gone(link);
		ntb_db_set_mask(ntb, BIT_ULL(PCILEND_DOORBELL_KICK));
		ntb_clear_ctx(ntb);
		cancel_work_sync(&link->channel.rx_work);
		pcilend_aperture_exit(link);
		ntb_link_disable(ntb);
		link_area_free(link);
		pcilend_requesters_exit(link);
	}
	pcilend_link_borrower->removed(link);
	mutex_lock(&links_lock);
	list_del(&link->node);
	mutex_unlock(&links_lock);
	pcilend_changed();
	pcilend_link_put(link);
}

/*
 * This host goes down (power.c): nothing comes over the link any more. For the peer, and for who
 * has anything over it here, it is a loss that lasts. The device lock keeps link_remove() away.
 */
static void link_shutdown(struct device *dev)
{
	struct pcilend_link *link = dev_get_drvdata(dev);

	if (!link->usable)
		return;
	disable_delayed_work_sync(&link->work);
	pcilend_aperture_close(link);
	ntb_link_disable(link->ntb);
}

static struct ntb_client client = {
	.ops = {
		.probe = link_probe,
		.remove = link_remove,
	},
};

int pcilend_links_register(const struct pcilend_lender_ops *lender,
			   const struct pcilend_borrower_ops *borrower,
			   const struct pcilend_segment_ops *segments)
{
	int err;

	pcilend_link_lender = lender;
	pcilend_link_borrower = borrower;
	pcilend_link_segments = segments;
	err = ntb_register_client(&client);
	/* It empties the driver before, and the bus has no such callback. */
	if (!err)
		client.drv.shutdown = link_shutdown;
	return err;
}

void pcilend_links_unregister(void)
{
	ntb_unregister_client(&client);
}
