/* SPDX-License-Identifier: GPL-2.0-only */
/* DMA from one device of this host to another one (docs/decisions/0014). */
#ifndef PCILEND_ROUTE_H
#define PCILEND_ROUTE_H

#include <linux/types.h>

struct pci_dev;

/* Is it known, or said by p2p=1, that the root complex carries DMA of @from to BARs of @to? */
bool pcilend_route_is_known(struct pci_dev *from, struct pci_dev *to);

#endif /* PCILEND_ROUTE_H */
