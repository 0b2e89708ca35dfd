/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A peer, or a function there, raises an eventfd of this host (notify.c). Callers serialise access.
 */
#ifndef PCILEND_NOTIFY_H
#define PCILEND_NOTIFY_H

#include <linux/types.h>

struct eventfd_ctx;
struct irq_domain;
struct pci_dev;

/* Zeroed memory: none. Stays where it is while it is open. */
struct pcilend_notify {
	struct irq_domain *domain;	/* NULL: it is not open */
	int irq;
	u32 offset;			/* in the interrupt range, where the peer writes */
	u32 data;			/* what it writes */
	struct eventfd_ctx *event;	/* the caller's; NULL: what is raised is ignored */
	char name[32];
};

/*
 * What is behind that adapter may raise it, which raises no event yet.
 * @name: no other has it
 * Return: 0; -ENOSPC, -ENOMEM; -EOPNOTSUPP if the adapter's interrupts are not made by messages.
 */
int pcilend_notify_open(struct pcilend_notify *notify, struct pci_dev *adapter, const char *name);
/* It raises @event from now on; NULL: nothing. Return: what it has raised, and does no more. */
struct eventfd_ctx *pcilend_notify_raise(struct pcilend_notify *notify, struct eventfd_ctx *event);
/*
 * It is raised no more when this returns. No-op if it can't be. Return: as pcilend_notify_raise().
 * Not before the function behind the adapter has stopped: a message without a vector is a fault.
 */
struct eventfd_ctx *pcilend_notify_close(struct pcilend_notify *notify);

#endif /* PCILEND_NOTIFY_H */
