// SPDX-License-Identifier: GPL-2.0-only
/* DMA from one device of this host to another one (route.h). */

#include <linux/pci-p2pdma.h>
#include <linux/pci.h>

#include "base/base.h"
#include "base/route.h"

/*
 * A kernel without PCI_P2PDMA, such as Debian's 6.12, has no list of host bridges to ask; of CPUs
 * that list has AMD's from Zen on.
 */
bool pcilend_route_is_known(struct pci_dev *from, struct pci_dev *to)
{
	if (pcilend_p2p)
		return true;
#if defined(CONFIG_PCI_P2PDMA)
	struct device *client = &from->dev;

	return pci_p2pdma_distance_many(to, &client, 1, false) >= 0;
#elif defined(CONFIG_X86)
	return boot_cpu_data.x86_vendor == X86_VENDOR_AMD && boot_cpu_data.x86 >= 0x17;
#else
	return false;
#endif
}
