// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Tenants of an adapter; see tenant.h. */

#include "pcilend/identity.h"
#include "pcilend/tenant.h"

static bool tenant_is_known(const struct pcilend_tenant *tenant)
{
	static const u8 unknown[sizeof(tenant->owner)];

	return memcmp(tenant->owner, unknown, sizeof(unknown));
}

bool pcilend_tenant_is_same(const struct pcilend_tenant *a, const struct pcilend_tenant *b)
{
	if (a->guest != b->guest)
		return false;
	if (!a->guest || a->id == b->id)
		return true;
	if (a->set && a->set == b->set && pcilend_id_node(a->id) == pcilend_id_node(b->id))
		return true;
	return tenant_is_known(a) && !memcmp(a->owner, b->owner, sizeof(a->owner));
}
