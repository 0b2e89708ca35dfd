/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The IOMMU that virtual functions are behind. Without an IOMMU in the lender or in this host there
 * is none.
 */
#ifndef PCILEND_IOMMU_H
#define PCILEND_IOMMU_H

struct pci_dev;
struct pcilend_link;
struct pcilend_remote;

int pcilend_iommu_init(void);
void pcilend_iommu_exit(void);

/*
 * pcilend_iommu_claim - has the IOMMU core find the IOMMU of a virtual function
 *
 * Called when the function is announced on the PCI bus, before the IOMMU core hears of it. Return:
 * 0, also if it is behind none; -ENOMEM: it gets no IOMMU group.
 */
int pcilend_iommu_claim(struct pcilend_remote *remote, struct pci_dev *pdev);

/*
 * pcilend_iommu_leave - domains in which nothing is mapped let go of the link
 *
 * Called as its adapter goes, when nothing is borrowed over it any more. Waits for users who map or
 * unmap memory just then. Return: false if a user of iommufd still has memory mapped.
 */
bool pcilend_iommu_leave(struct pcilend_link *link);

#endif /* PCILEND_IOMMU_H */
