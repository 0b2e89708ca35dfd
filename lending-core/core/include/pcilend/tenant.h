/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Tenants of an adapter: who uses functions that are borrowed over it. Their messages all come
 * with the adapter's requester ID, so interrupt remapping does not keep one from raising
 * another's.
 */
#ifndef PCILEND_TENANT_H
#define PCILEND_TENANT_H

#include "pcilend/platform.h"

__BEGIN_DECLS

struct pcilend_tenant {
	bool guest;		/* a user of VFIO; else drivers of this host, all one tenant */
	u8 owner[16];		/* UUID of the domain or mediated device; zeroes: not known */
	u32 id;			/* of the function */
	u32 set;		/* of its lender that it belongs to; 0: none */
};

/**
 * pcilend_tenant_is_same - are these two functions used by the same one?
 *
 * Those of a set are, as they reach the same memory. What is not known is taken for two.
 */
bool pcilend_tenant_is_same(const struct pcilend_tenant *a, const struct pcilend_tenant *b);

__END_DECLS

#endif /* PCILEND_TENANT_H */
