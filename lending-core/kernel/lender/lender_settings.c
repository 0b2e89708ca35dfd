// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a function's own PCI Express settings have to be while it can be lent, whatever firmware or
 * its driver chose: those of its DMA, which goes through an NTB into another host's memory.
 */

#include "lender/lender.h"

/*
 * No Snoop: its borrower's memory is mapped as coherent, and nothing on the way makes it so.
 * Phantom functions send with IDs that no IOMMU and no adapter knows.
 */
#define SETTINGS_OFF (PCI_EXP_DEVCTL_NOSNOOP_EN | PCI_EXP_DEVCTL_PHANTOM)
#define SETTINGS_KEPT (SETTINGS_OFF | PCI_EXP_DEVCTL_PAYLOAD)

/* NTBs do not cut what is longer than the other host takes: no longer than the adapters' here. */
static int settings_payload(struct pci_dev *pdev)
{
	struct pcilend_link *link;
	int payload = pcie_get_mps(pdev);

	for (link = pcilend_link_next(NULL); link; link = pcilend_link_next(link)) {
		if (pci_is_pcie(link->pdev))
			payload = min(payload, pcie_get_mps(link->pdev));
	}
	return payload;
}

/* Before the state is saved that resets restore. */
void pcilend_settings_begin(struct pcilend_function *fn)
{
	struct pci_dev *pdev = fn->pdev;
	int payload;

	lockdep_assert_held(&fn->lock);
	fn->settings = 0;
	if (!pci_is_pcie(pdev))
		return;
	pcie_capability_read_word(pdev, PCI_EXP_DEVCTL, &fn->settings);
	pcie_capability_clear_word(pdev, PCI_EXP_DEVCTL, SETTINGS_OFF);
	payload = settings_payload(pdev);
	if (payload < pcie_get_mps(pdev))
		pcie_set_mps(pdev, payload);
}

/* As they were. */
void pcilend_settings_end(struct pcilend_function *fn)
{
	lockdep_assert_held(&fn->lock);
	if (pci_is_pcie(fn->pdev))
		pcie_capability_clear_and_set_word(fn->pdev, PCI_EXP_DEVCTL, SETTINGS_KEPT,
						   fn->settings & SETTINGS_KEPT);
}
