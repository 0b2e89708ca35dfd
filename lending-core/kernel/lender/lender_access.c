// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a borrower reaches of a function, and the function of the borrower: an IOMMU domain that
 * maps what the borrower asked for and nothing of this host (lender_group.c), BARs exported into
 * the aperture, registers of the configuration space; and how all of that ends.
 */

#include <linux/sizes.h>
#include <linux/slab.h>

#include "lender/lender_target.h"
#include "base/trace.h"

/* The table is the borrower's; after a reset it has each vector masked (PCIe 5.0 §7.7.2.8). */
void pcilend_device_enable_msix(struct pci_dev *pdev, bool on)
{
	u16 control;

	if (!pdev->msix_cap)
		return;
	pci_read_config_word(pdev, pdev->msix_cap + PCI_MSIX_FLAGS, &control);
	control &= ~(PCI_MSIX_FLAGS_MASKALL | PCI_MSIX_FLAGS_ENABLE);
	if (on)
		control |= PCI_MSIX_FLAGS_ENABLE;
	pci_write_config_word(pdev, pdev->msix_cap + PCI_MSIX_FLAGS, control);
}

/* What a reset leaves, for a borrower: reachable, silent, its MSI-X table its own to write. */
void pcilend_device_open(struct pcilend_function *fn)
{
	lockdep_assert_held(&fn->lock);
	pcilend_set_command(fn, PCI_COMMAND_MASTER,
			    PCI_COMMAND_MEMORY | PCI_COMMAND_INTX_DISABLE);
	/* For a process of this host the kernel does that. */
	if (!fn->local)
		pcilend_device_enable_msix(fn->pdev, !fn->intx.irq);
	pcilend_intx_resume(fn);
}

static int lender_access_find_interrupts(struct pcilend_function *fn, phys_addr_t *phys)
{
	const struct pcilend_hello *hello = &fn->link->hello;

	return pcilend_aperture_peer(fn->link, hello->interrupt_window, hello->interrupt_offset,
				     PCILEND_MSI_BYTES, phys);
}

static int lender_access_map_interrupts(struct pcilend_function *fn, u64 alias)
{
	phys_addr_t interrupts;
	int err;

	if (!alias)
		return 0;
	if (pcilend_group_reserves(fn, alias, PCILEND_MSI_BYTES))
		return -ERANGE;
	err = lender_access_find_interrupts(fn, &interrupts) ?:
	      pcilend_group_map(fn, alias, interrupts, PCILEND_MSI_BYTES);
	if (!err)
		fn->alias = alias;
	return err;
}

static u64 lender_access_bus_address(struct pcilend_function *fn, phys_addr_t phys)
{
	struct resource res = { .start = phys, .end = phys, .flags = IORESOURCE_MEM };
	struct pci_bus_region region;

	pcibios_resource_to_bus(fn->pdev->bus, &region, &res);
	return region.start;
}

/* Where a direct function reaches the borrower: in the windows themselves. */
static int lender_access_place_borrower(struct pcilend_function *fn,
					const struct pcilend_msg_borrow *in)
{
	phys_addr_t dma, interrupts;
	int err;

	err = pcilend_aperture_peer(fn->link, le32_to_cpu(in->dma_window),
				    le64_to_cpu(in->dma_offset), fn->link->hello.dma_limit,
				    &dma);
	if (err)
		return err;
	fn->dma_address = lender_access_bus_address(fn, dma);
	if (!in->interrupt_alias)
		return 0;
	err = lender_access_find_interrupts(fn, &interrupts);
	if (!err)
		fn->interrupt_address = lender_access_bus_address(fn, interrupts);
	return err;
}

static int lender_access_export_bars(struct pcilend_function *fn)
{
	struct pci_dev *pdev = fn->pdev;
	int i, err;

	for (i = 0; i < PCI_STD_NUM_BARS; i++) {
		u64 size = PAGE_ALIGN(pci_resource_len(pdev, i));

		if (!size || !(pci_resource_flags(pdev, i) & IORESOURCE_MEM))
			continue;
		err = pcilend_aperture_export(fn->link, pci_resource_start(pdev, i), size,
					      PCILEND_PROT_BAR, &fn->export[i].iova);
		if (err)
			return err;
		fn->export[i].size = size;
	}
	return pcilend_rom_export(fn);
}

/* The function's BARs in the aperture, not the copy of its ROM, which is memory. */
static void lender_access_hide_exports(struct pcilend_function *fn, int count)
{
	int i;

	for (i = 0; i < count; i++) {
		if (fn->export[i].size)
			pcilend_aperture_hide(fn->link, fn->export[i].iova, fn->export[i].size);
	}
}

/*
 * pcilend_device_hide - nobody reaches the BARs, of those who may during the lease
 *
 * Neither its borrower, nor a function of this or another lender. Their places stay. No-op if the
 * function is not lent, or that is so. (A direct adapter reaches all there is.)
 */
void pcilend_device_hide(struct pcilend_function *fn)
{
	lockdep_assert_held(&fn->lock);
	if (!pcilend_function_is_lent(fn) || fn->hidden)
		return;
	fn->hidden = true;
	pcilend_local_hide(fn);
	pcilend_share_hide(fn);
	pcilend_reach_hide(fn);
	pcilend_expose_hide(fn);
	lender_access_hide_exports(fn, PCI_STD_NUM_BARS);
	trace_pcilend_bars(fn->id, false);
}

/*
 * pcilend_device_show - undoes pcilend_device_hide(); the function decodes its memory
 *
 * Return: 0, or what the IOMMU says: then nothing is reached. What other functions can't reach any
 * more is taken from them, and their borrower is told.
 */
int pcilend_device_show(struct pcilend_function *fn)
{
	int i, err;

	lockdep_assert_held(&fn->lock);
	if (!pcilend_function_is_lent(fn) || !fn->hidden)
		return 0;
	for (i = 0; i < PCI_STD_NUM_BARS; i++) {
		err = fn->export[i].size ?
		      pcilend_aperture_show(fn->link, fn->export[i].iova,
					    pci_resource_start(fn->pdev, i), fn->export[i].size,
					    PCILEND_PROT_BAR) : 0;
		if (err) {
			lender_access_hide_exports(fn, i);
			return err;
		}
	}
	fn->hidden = false;
	pcilend_local_show(fn);
	pcilend_share_show(fn);
	pcilend_expose_show(fn);
	pcilend_reach_show(fn);
	trace_pcilend_bars(fn->id, true);
	return 0;
}

/* What is to be known of a lease, for one over fn->link, or none, that begins. */
static void lender_access_begin(struct pcilend_function *fn)
{
	lockdep_assert_held(&fn->lock);
	fn->alias = 0;
	fn->dma_address = 0;
	fn->interrupt_address = 0;
	fn->slice_bytes = 0;
	fn->mapped = 0;
	fn->small = 0;
	WRITE_ONCE(fn->tables, 0);
	memset(fn->map, 0, sizeof(fn->map));
	memset(fn->export, 0, sizeof(fn->export));
	fn->returned = false;
	fn->withdrawn = NULL;
	pcilend_intx_begin(fn);
	pcilend_relay_begin(fn);
	pcilend_dma_attach(fn);
	fn->hidden = false;
	fn->foreign_reset = false;
	fn->requester = false;
}

/*
 * pcilend_device_lend - put a freshly reset function at the disposal of the peer of @link
 * @in: what it asks for
 *
 * On failure, pcilend_device_fence() undoes what was done.
 */
int pcilend_device_lend(struct pcilend_function *fn, struct pcilend_link *link,
			const struct pcilend_msg_borrow *in)
{
	int err;

	lockdep_assert_held(&fn->lock);
	fn->link = pcilend_link_get(link);
	lender_access_begin(fn);
	fn->withdrawn = pcilend_withdrawn_alloc();
	if (!fn->withdrawn)
		return -ENOMEM;

	err = pcilend_requesters_add(link, fn->pdev);
	if (err)
		return err;
	fn->requester = true;
	err = pcilend_group_attach(fn);
	if (err)
		return err;
	err = pcilend_function_is_direct(fn)
		      ? lender_access_place_borrower(fn, in)
		      : lender_access_map_interrupts(fn, le64_to_cpu(in->interrupt_alias));
	return err ?: lender_access_export_bars(fn);
}

/*
 * pcilend_device_lend_here - the same for a process of this host
 * @bytes: of device addresses, in fn->slice
 *
 * On failure, pcilend_device_fence() undoes what was done.
 */
int pcilend_device_lend_here(struct pcilend_function *fn, struct lender_local *local, u64 bytes)
{
	lockdep_assert_held(&fn->lock);
	fn->local = local;
	lender_access_begin(fn);
	return pcilend_group_attach(fn) ?: pcilend_group_place_slice(fn, bytes);
}

static void lender_access_withdraw_bars(struct pcilend_function *fn,
					const struct pcilend_lease_result *end)
{
	bool any = false;
	int i;

	for (i = 0; i < ARRAY_SIZE(fn->export); i++) {
		if (!fn->export[i].size)
			continue;
		if (i == PCI_ROM_RESOURCE || !fn->hidden)
			pcilend_aperture_hide(fn->link, fn->export[i].iova, fn->export[i].size);
		any = true;
	}
	fn->hidden = false;
	if (any && end->lost && !fn->returned && fn->withdrawn) {
		pcilend_withdrawn_keep(fn->withdrawn, fn->link, fn->id, end->node, end->lease, 0,
				       fn->export, ARRAY_SIZE(fn->export));
		fn->withdrawn = NULL;
	} else {
		for (i = 0; i < ARRAY_SIZE(fn->export); i++) {
			if (fn->export[i].size)
				pcilend_aperture_export_put(fn->link, fn->export[i].iova,
							    fn->export[i].size);
		}
	}
	memset(fn->export, 0, sizeof(fn->export));
	kfree(fn->withdrawn);
	fn->withdrawn = NULL;
}

/*
 * pcilend_device_fence - no DMA, no interrupts, no way in
 * @end: of the lease; unless it was returned, the BARs keep their places in the aperture
 *
 * Afterwards the function is in the blocking domain, unless others of its set are still lent, and
 * neither the peer nor another function reaches anything of it. Works on functions that are half
 * lent, dead, or gone.
 */
void pcilend_device_fence(struct pcilend_function *fn, const struct pcilend_lease_result *end)
{
	lockdep_assert_held(&fn->lock);
	if (!pcilend_function_is_lent(fn))
		return;
	pcilend_intx_off(fn);
	if (pci_device_is_present(fn->pdev))
		pcilend_device_bus_master(fn, false);
	/* Its messages are DMA. */
	pcilend_relay_end(fn);
	pcilend_local_quiet(fn);
	if (fn->requester)
		pcilend_requesters_remove(fn->link, fn->pdev);
	fn->requester = false;

	pcilend_local_over(fn);
	pcilend_share_close(fn);
	pcilend_reach_fence(fn);
	pcilend_target_fence(fn);
	pcilend_expose_fence(fn);
	pcilend_group_detach(fn);
	lender_access_withdraw_bars(fn, end);
	pcilend_near_fence(fn);
	pcilend_share_over(fn, end->lost);
	pcilend_dma_detach(fn);
	pcilend_link_put(fn->link);
	fn->link = NULL;
	fn->local = NULL;
}

static bool lender_access_overlaps(u64 a, u64 a_size, u64 b, u64 b_size)
{
	return a < b + b_size && b < a + a_size;
}

/* No address that can be mapped is above this. No sum of two addresses below 2^63 wraps. */
u64 pcilend_device_last_address(struct pcilend_function *fn)
{
	lockdep_assert_held(&fn->lock);
	return min(pcilend_group_aperture_end(fn), BIT_ULL(62) - 1);
}

/* May the holder of the lease have [address, +size) of the function mapped? */
bool pcilend_device_may_map(struct pcilend_function *fn, u64 address, u64 size)
{
	u64 last = pcilend_device_last_address(fn);
	int i;

	lockdep_assert_held(&fn->lock);
	if (address > last || size > last || address + size - 1 > last)
		return false;
	/* Here the function would reach the lender's interrupt controller. */
	if (lender_access_overlaps(address, size, PCILEND_MSI_IOVA, PCILEND_MSI_BYTES) ||
	    pcilend_group_reserves(fn, address, size))
		return false;
	if (fn->alias && lender_access_overlaps(address, size, fn->alias, PCILEND_MSI_BYTES))
		return false;
	for (i = 0; i < PCILEND_MAPS; i++) {
		if (fn->map[i].size &&
		    lender_access_overlaps(address, size, fn->map[i].start, fn->map[i].size))
			return false;
	}
	return true;
}

/* How many 4 KiB pages of the range fit in no 2 MiB page. */
static u64 lender_access_small_pages(u64 address, phys_addr_t phys, u64 size)
{
	u64 first = round_up(address, SZ_2M), end = round_down(address + size, SZ_2M);

	if ((address ^ phys) & (SZ_2M - 1) || first >= end)
		return size / PCILEND_PAGE;
	return (size - (end - first)) / PCILEND_PAGE;
}

/* Pages of page tables: for its small pages, and at both of its ends three levels above these. */
static u32 lender_access_table_pages(u64 small)
{
	return small / (PCILEND_PAGE / sizeof(u64)) + 2 * 3;
}

/* What the function may have mapped at once: nothing is gained by reaching windows twice. */
static u64 lender_access_limit(struct pcilend_function *fn)
{
	u64 limit = fn->slice_bytes + pcilend_share_bytes(fn);
	int i;

	lockdep_assert_held(&fn->lock);
	for (i = 0; fn->link && i < fn->link->aperture.windows; i++)
		limit += fn->link->aperture.window[i].size;
	return limit;
}

/*
 * A place for one mapping more, of which @small 4 KiB pages are in no large one: page tables are
 * this host's memory. Return: 0; -ERANGE if that range can't be used; -ENOSPC; -EOPNOTSUPP.
 */
static int lender_access_find_entry(struct pcilend_function *fn, u64 address, u64 size, u64 small,
				    struct pcilend_map_entry **entry)
{
	u32 tables = lender_access_table_pages(small);
	int i;

	lockdep_assert_held(&fn->lock);
	if (pcilend_function_is_direct(fn))
		return -EOPNOTSUPP;
	if (!pcilend_device_may_map(fn, address, size))
		return -ERANGE;
	if (fn->mapped + size > lender_access_limit(fn) ||
	    fn->small + small > PCILEND_SMALL_PAGES ||
	    pcilend_function_tables(fn->lease.node) + tables > PCILEND_NODE_TABLES)
		return -ENOSPC;
	for (i = 0; i < PCILEND_MAPS; i++) {
		*entry = &fn->map[i];
		if (!fn->map[i].size)
			return 0;
	}
	return -ENOSPC;
}

static void lender_access_enter(struct pcilend_function *fn, struct pcilend_map_entry *entry,
				u64 address, u64 size, u64 small)
{
	lockdep_assert_held(&fn->lock);
	entry->target = NULL;
	entry->start = address;
	entry->size = size;
	entry->small = small;
	entry->tables = lender_access_table_pages(small);
	WRITE_ONCE(fn->tables, fn->tables + entry->tables);
	fn->mapped += size;
	fn->small += small;
}

/*
 * pcilend_device_map - let [address, +size) of the function reach [phys, +size)
 * @phys: inside a window onto the borrower, checked by the caller
 *
 * Return: 0; -ERANGE if that range can't be used; -ENOSPC if too much is mapped already; -EUSERS if
 * another function of its set reaches something else there; -EOPNOTSUPP if it is direct; or what
 * the IOMMU says.
 */
int pcilend_device_map(struct pcilend_function *fn, u64 address, phys_addr_t phys, u64 size)
{
	u64 small = lender_access_small_pages(address, phys, size);
	struct pcilend_map_entry *entry;
	int err;

	err = lender_access_find_entry(fn, address, size, small, &entry) ?:
	      pcilend_group_map(fn, address, phys, size);
	if (!err)
		lender_access_enter(fn, entry, address, size, small);
	return err;
}

/*
 * pcilend_device_map_memory - the same with what is behind a dma-buf, or a segment
 * @prot: as for pcilend_memory_map()
 * @entry: set on success
 *
 * Return: also as lender_target_begin().
 */
int pcilend_device_map_memory(struct pcilend_function *fn, u64 address,
			      const struct pcilend_memory *memory, int prot,
			      struct pcilend_map_entry **entry)
{
	struct lender_target *target = lender_target_begin(fn, address, memory);
	u64 small;
	int err;

	if (IS_ERR(target))
		return PTR_ERR(target);
	small = pcilend_memory_small_pages(memory);
	err = lender_access_find_entry(fn, address, memory->size, small, entry) ?:
	      pcilend_group_map_memory(fn, address, memory, prot);
	if (!err) {
		lender_access_enter(fn, *entry, address, memory->size, small);
		(*entry)->target = target;
	}
	lender_target_end(target, err);
	return err;
}

/* Undoes one of these, named exactly; -ERANGE if there is none. */
int pcilend_device_unmap(struct pcilend_function *fn, u64 address, u64 size)
{
	int i;

	lockdep_assert_held(&fn->lock);
	for (i = 0; i < PCILEND_MAPS; i++) {
		if (size && fn->map[i].start == address && fn->map[i].size == size) {
			lender_target_drop(fn->map[i].target);
			fn->map[i].target = NULL;
			pcilend_group_unmap(fn->group, address, size);
			fn->map[i].size = 0;
			fn->mapped -= size;
			fn->small -= fn->map[i].small;
			WRITE_ONCE(fn->tables, fn->tables - fn->map[i].tables);
			return 0;
		}
	}
	return -ERANGE;
}

/*
 * pcilend_device_config_read - read the configuration space of the hardware
 *
 * Return: 0; -ERANGE past its end; -EIO if it does not answer.
 */
int pcilend_device_config_read(struct pcilend_function *fn, u32 offset, u8 *data, u32 length)
{
	struct pci_dev *pdev = fn->pdev;
	u32 i, value = 0;

	lockdep_assert_held(&fn->lock);
	if (offset + length > pdev->cfg_size)
		return -ERANGE;
	for (i = 0; i < length; i++) {
		u32 at = offset + i;

		if (!i || !(at & 3)) {
			if (pci_read_config_dword(pdev, at & ~3, &value))
				return -EIO;
			/* Virtual functions read as all ones here (SR-IOV 1.1 §3.4.1). */
			if (pdev->is_virtfn && at < 4)
				value = pdev->device << 16 | pdev->vendor;
		}
		data[i] = value >> (at & 3) * 8;
		if (at == PCI_INTERRUPT_PIN && !pcilend_intx_possible(pdev))
			data[i] = 0;
	}
	return 0;
}

static int lender_access_read(struct pci_dev *pdev, u32 offset, u32 length, u32 *value)
{
	u16 word = 0;
	u8 byte = 0;
	int err;

	switch (length) {
	case 1:
		err = pci_read_config_byte(pdev, offset, &byte);
		*value = byte;
		break;
	case 2:
		err = pci_read_config_word(pdev, offset, &word);
		*value = word;
		break;
	default:
		err = pci_read_config_dword(pdev, offset, value);
	}
	return pcibios_err_to_errno(err);
}

static int lender_access_write(struct pci_dev *pdev, u32 offset, u32 length, u32 value)
{
	switch (length) {
	case 1:
		return pcibios_err_to_errno(pci_write_config_byte(pdev, offset, value));
	case 2:
		return pcibios_err_to_errno(pci_write_config_word(pdev, offset, value));
	default:
		return pcibios_err_to_errno(pci_write_config_dword(pdev, offset, value));
	}
}

/*
 * @length is 1, 2 or 4, @offset aligned to it. Bits that are not the borrower's stay as they are.
 * Return: 0; -ERANGE if none is.
 */
int pcilend_device_config_write(struct pcilend_function *fn, u32 offset, const u8 *data,
				u32 length)
{
	struct pci_dev *pdev = fn->pdev;
	u32 all = GENMASK(8 * length - 1, 0), bits, i, value = 0, old = 0;
	int err;

	lockdep_assert_held(&fn->lock);
	if (offset + length > pdev->cfg_size)
		return -ERANGE;
	bits = pcilend_vconfig_hardware_bits(fn->config, offset, length);
	if (!bits)
		return -ERANGE;
	for (i = 0; i < length; i++)
		value |= (u32)data[i] << (8 * i);
	/* To read some vendors' registers has an effect. */
	if (bits != all) {
		err = lender_access_read(pdev, offset, length, &old);
		if (err)
			return err;
		value = pcilend_vconfig_hardware_value(fn->config, offset, length, old, value);
	}
	return lender_access_write(pdev, offset, length, value);
}
