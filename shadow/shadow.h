/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SHADOW_H
#define SHADOW_H

#include <linux/pci.h>

/* Sends the DMA of a virtual function through the NTB; before a driver is bound to it. */
void shadow_dma_setup(struct pci_dev *pdev);

#endif /* SHADOW_H */
