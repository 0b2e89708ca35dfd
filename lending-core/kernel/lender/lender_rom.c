// SPDX-License-Identifier: GPL-2.0-only
/*
 * Expansion ROMs of lent functions. A function may decode its ROM by what decodes its BARs (PCI
 * Local Bus 3.0 §6.2.5.2), so nobody may read it while somebody uses the function. It is read
 * once, when our driver takes the function, and borrowers reach the copy. (docs/decisions/0018)
 */

#include <linux/io.h>
#include <linux/log2.h>

#include "lender/lender.h"

#define ROM_SIGNATURE 0xaa55	/* PCI Firmware 3.0 §5.1 */
#define ROM_MIN SZ_2K		/* PCI Local Bus 3.0 §6.2.5.2, as the next */
#define ROM_MAX SZ_16M

/*
 * pcilend_rom_size - bytes of its expansion ROM's BAR; 0: it has none
 *
 * The shadow of a boot display's ROM is no BAR, but memory of this host.
 */
u64 pcilend_rom_size(struct pci_dev *pdev)
{
	u64 size = pci_resource_len(pdev, PCI_ROM_RESOURCE);

	if (pci_resource_flags(pdev, PCI_ROM_RESOURCE) & IORESOURCE_ROM_SHADOW)
		return 0;
	return is_power_of_2(size) && size >= ROM_MIN && size <= ROM_MAX ? size : 0;
}

/* Reads it into @copy, with the ROM enabled for so long. Return: NULL, or what is in the way. */
static const char *lender_rom_read_rom(struct pci_dev *pdev, u8 *copy, u64 size)
{
	struct resource *res = &pdev->resource[PCI_ROM_RESOURCE];
	void __iomem *io;
	u64 at, step;

	if (!res->parent && pci_assign_resource(pdev, PCI_ROM_RESOURCE))
		return "its bridge has no address space left for it: boot with pci=realloc";
	io = ioremap(res->start, size);
	if (!io)
		return "this host is out of memory";
	if (pci_enable_rom(pdev)) {
		iounmap(io);
		return "it can't be enabled";
	}
	for (at = 0; at < size; at += step) {
		step = min_t(u64, size - at, PAGE_SIZE);
		memcpy_fromio(copy + at, io + at, step);
		cond_resched();
	}
	pci_disable_rom(pdev);
	iounmap(io);
	return get_unaligned_le16(copy) == ROM_SIGNATURE ? NULL : "there is no image in it";
}

/*
 * pcilend_rom_take - keep a copy of the function's expansion ROM
 *
 * Our driver has just taken the function, which is enabled, and nobody else uses it. Without a copy
 * borrowers see no ROM; the log says why. Sleeps; 1 MiB takes about 0.3 s.
 */
void pcilend_rom_take(struct pcilend_function *fn)
{
	u64 size = le64_to_cpu(fn->info.bar[PCI_ROM_RESOURCE].size);
	const char *why = "this host has no free memory of that size in one piece";

	lockdep_assert_held(&fn->lock);
	if (!size)
		return;
	/* Whole pages, which are nobody else's: all of them are exported. */
	fn->rom = alloc_pages_exact(size, GFP_KERNEL | __GFP_ZERO | __GFP_NOWARN);
	if (fn->rom)
		why = lender_rom_read_rom(fn->pdev, fn->rom, size);
	if (!why)
		return;
	pci_info(fn->pdev, "borrowers see no expansion ROM (%llu KiB): %s\n", size / SZ_1K, why);
	pcilend_rom_drop(fn);
}

/* It is not lent. No-op if there is no copy. */
void pcilend_rom_drop(struct pcilend_function *fn)
{
	lockdep_assert_held(&fn->lock);
	if (fn->rom)
		free_pages_exact(fn->rom, le64_to_cpu(fn->info.bar[PCI_ROM_RESOURCE].size));
	fn->rom = NULL;
}

/*
 * pcilend_rom_export - let the peer read the copy, if there is one
 *
 * Return: 0, or as pcilend_aperture_export().
 */
int pcilend_rom_export(struct pcilend_function *fn)
{
	struct pcilend_export *export = &fn->export[PCI_ROM_RESOURCE];
	u64 size = PAGE_ALIGN(le64_to_cpu(fn->info.bar[PCI_ROM_RESOURCE].size));
	int err;

	lockdep_assert_held(&fn->lock);
	if (!fn->rom)
		return 0;
	err = pcilend_aperture_export(fn->link, virt_to_phys(fn->rom), size,
				      IOMMU_READ | IOMMU_CACHE, &export->iova);
	if (!err)
		export->size = size;
	return err;
}
