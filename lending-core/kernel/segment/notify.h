/* SPDX-License-Identifier: GPL-2.0-only */
/* A peer raises an eventfd of this host (notify.c). Callers serialise access. */
#ifndef PCILEND_SEGMENT_NOTIFY_H
#define PCILEND_SEGMENT_NOTIFY_H

#include "segment/segment.h"

struct eventfd_ctx;
struct irq_domain;

/* Zeroed memory: none. */
struct segment_notify {
	struct irq_domain *domain;
	int irq;
	u32 offset;			/* in the interrupt range, where the peer writes */
	u32 data;			/* what it writes */
};

/*
 * The peer behind that adapter may raise @event, which is the caller's to keep.
 * @number: no other has it
 * Return: 0; -ENOSPC, -ENOMEM; -EOPNOTSUPP if the adapter's interrupts are not made by messages.
 */
int segment_notify_open(struct segment_notify *notify, struct pci_dev *adapter, u32 number,
			struct eventfd_ctx *event);
/* It is raised no more when this returns. No-op if it can't be. */
void segment_notify_close(struct segment_notify *notify, struct eventfd_ctx *event);

#endif /* PCILEND_SEGMENT_NOTIFY_H */
