/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Several links to one node: whether a peer that shows a node id is let in, and over which of the
 * links a function is borrowed.
 *
 * Node ids are not authenticated. What makes two links lead to the same node is that the node says
 * so: asked over a link that is trusted, it confirms that the other end of the new one is its own.
 */
#ifndef PCILEND_PATH_H
#define PCILEND_PATH_H

#include "pcilend/platform.h"

__BEGIN_DECLS

enum pcilend_path_verdict {
	PCILEND_PATH_FIRST,		/* nothing is known of the node: whoever comes is it */
	PCILEND_PATH_PINNED,		/* the administrator has said that it is behind this link */
	PCILEND_PATH_ASK,		/* ask the node, over a link that is trusted */
	PCILEND_PATH_WAIT,		/* as ASK, but none of those links works right now */
	PCILEND_PATH_OTHER_NODE,	/* refused: another node is pinned to this adapter */
	PCILEND_PATH_OTHER_ADAPTER,	/* refused: the node is pinned to other adapters */
};

struct pcilend_path_claim {
	u32 node;		/* that the peer says it is; not 0 */
	u32 pinned;		/* node that is pinned to this adapter; 0: none */
	bool pinned_elsewhere;	/* the node claimed is pinned to some other adapter */
	u32 trusted_up;		/* other links that are trusted to lead to that node, and work */
	u32 trusted;		/* those, and those that do not work but whose leases may hold */
};

enum pcilend_path_verdict pcilend_path_judge(const struct pcilend_path_claim *claim);

/* One end of a link, as the host there sees it. */
struct pcilend_path_end {
	u32 node;		/* of the peer */
	u64 boot;		/* the host's own boot id on this link */
	u64 peer_boot;
};

/*
 * pcilend_path_is_own - does @end belong to the link that @node asks about?
 * @asker: boot id that the asking node shows on that link
 * @asked: and the one that it sees there
 */
bool pcilend_path_is_own(const struct pcilend_path_end *end, u32 node, u64 asker, u64 asked);

struct pcilend_path_choice {
	bool usable;
	u32 leases;		/* functions that go over it already */
	u64 free;		/* bytes of its aperture */
	u32 address;		/* PCI address of its adapter, for want of anything better */
};

/*
 * pcilend_path_choose - the path for one more lease: fewest leases, then most free aperture, then
 * the lowest address
 *
 * Return: index, or -ENETDOWN if none is usable.
 */
int pcilend_path_choose(const struct pcilend_path_choice *path, unsigned int count);

__END_DECLS

#endif /* PCILEND_PATH_H */
