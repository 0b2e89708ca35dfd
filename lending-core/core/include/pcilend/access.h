/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which nodes see a function and may borrow it, of those that are connected: all, or a set. For
 * others it does not exist.
 */
#ifndef PCILEND_ACCESS_H
#define PCILEND_ACCESS_H

#include "pcilend/platform.h"

__BEGIN_DECLS

#define PCILEND_ACCESS_NODES 256

/* Zeroed memory lets all nodes in. Read it freely, change it by the functions below only. */
struct pcilend_access {
	bool restricted;		/* to the nodes below */
	u32 count;
	u16 node[PCILEND_ACCESS_NODES];	/* ascending, each once */
};

/* Lets all nodes in. */
void pcilend_access_all(struct pcilend_access *access);

/**
 * pcilend_access_set - let these nodes in and no others
 * @nodes: node ids in any order, repeated or not
 * @count: up to PCILEND_ACCESS_NODES; 0: nobody
 * @why: set on refusal, a constant sentence with the cure
 *
 * Return: 0, or with nothing changed -EINVAL (not a node id) or -E2BIG.
 */
int pcilend_access_set(struct pcilend_access *access, const u32 *nodes, u32 count,
		       const char **why);

bool pcilend_access_allows(const struct pcilend_access *access, u32 node);

__END_DECLS

#endif /* PCILEND_ACCESS_H */
