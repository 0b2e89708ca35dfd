/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Functions that share an IOMMU group reach the same memory: nothing keeps them apart. So they are
 * lent as a set. One is borrowed only while all others are available or lent, and all of them only
 * by one boot of one node, over one link, and for one domain, until the last of them was reset.
 */
#ifndef PCILEND_SET_H
#define PCILEND_SET_H

#include <linux/pcilend.h>

#include "pcilend/platform.h"

__BEGIN_DECLS

#define PCILEND_SET_MAX 16	/* functions */

/* Who holds a lease. */
struct pcilend_set_holder {
	u32 node;		/* 0: nobody */
	u32 link;		/* index of the lender's link */
	u64 boot;
	u8 owner[16];		/* UUID of the domain; zeroes: not told */
};

struct pcilend_set_member {
	enum pcilend_function_state state;	/* `local`: not added */
	struct pcilend_set_holder holder;	/* until the function was reset after its lease */
};

/**
 * pcilend_set_admits - may @wish borrow member @self, as far as the others are concerned?
 * @other: set on refusal: index of the member that is in the way
 *
 * Whether @self is available is not looked at.
 *
 * Return: 0, -EXDEV (the other one is not available), -EUCLEAN (it is quarantined), -EMLINK (it is
 * lent over another link) or -EUSERS (it is lent to somebody else); lent is what has not been reset
 * since.
 */
int pcilend_set_admits(const struct pcilend_set_member *member, u32 count, u32 self,
		       const struct pcilend_set_holder *wish, u32 *other);

/* Are members other than @self lent, or not reset since? */
bool pcilend_set_lent(const struct pcilend_set_member *member, u32 count, u32 self);

__END_DECLS

#endif /* PCILEND_SET_H */
