// SPDX-License-Identifier: GPL-2.0-only
/*
 * Whether a function may send its messages into this host's interrupt controller. All that do so
 * over one adapter can raise one another's, so they are those of one tenant; what others borrow is
 * relayed (virtual_relay.c), where nothing that a function writes raises an interrupt here.
 */

#include "borrower/borrower.h"
#include "pcilend/tenant.h"

int remote_parse_owner(const char *owner, uuid_t *uuid)
{
	return uuid_parse(owner + str_has_prefix(owner, "mdev:"), uuid);
}

static struct pcilend_tenant tenant_of(struct remote *r)
{
	struct pcilend_tenant tenant = {
		.guest = r->frontend->guests,
		.id = r->pub.id,
		.set = le32_to_cpu(r->pub.info.set),
	};
	uuid_t uuid;

	lockdep_assert_held(&r->lock);
	if (!remote_parse_owner(r->owner, &uuid))
		export_uuid(tenant.owner, &uuid);
	return tenant;
}

/* Does another tenant have a function of this link that may, or may until it has been stopped? */
static bool tenant_is_another(struct remote *r, const struct pcilend_tenant *tenant)
{
	bool another = false;
	struct remote *other;

	for (other = remote_next(NULL); other; other = remote_next(other)) {
		if (other == r)
			continue;
		guard(mutex)(&other->lock);
		if (other->state != REMOTE_IDLE && other->link == r->link && other->reaches &&
		    !pcilend_tenant_is_same(&other->tenant, tenant))
			another = true;
	}
	return another;
}

/* What is asked for by remote_choose_interrupts() is in the table of either by then. */
bool remote_client_may_interrupt(struct pcilend_link *link)
{
	struct remote *other;
	bool may = true;

	lockdep_assert_held(&remote_choice_lock);
	if (!link->aperture.layout.interrupts.size)
		return false;
	for (other = remote_next(NULL); other; other = remote_next(other)) {
		guard(mutex)(&other->lock);
		if (other->state != REMOTE_IDLE && other->link == link && other->reaches &&
		    other->tenant.guest && !pcilend_unsafe_interrupts)
			may = false;
	}
	return may;
}

/* BORROWING: nothing that is read here changes. */
void remote_choose_interrupts(struct remote *r)
{
	bool direct = r->link->aperture.direct, reaches;
	struct pcilend_tenant tenant;

	scoped_guard(mutex, &r->lock) {
		tenant = tenant_of(r);
		direct |= r->pub.info.flags & PCILEND_FUNCTION_DIRECT;
	}
	reaches = r->link->aperture.layout.interrupts.size &&
		  (direct || pcilend_unsafe_interrupts ||
		   (!tenant_is_another(r, &tenant) &&
		    !(tenant.guest && pcilend_client_interrupts(r->link))));
	if (!reaches && r->link->aperture.layout.interrupts.size)
		dev_info(&r->pub.dev,
			 "its lender relays its interrupts, as another tenant has functions over %s: give each an adapter, or load pcilend with unsafe_interrupts=1 if they may raise each other's\n",
			 pci_name(r->link->pdev));
	guard(mutex)(&r->lock);
	r->tenant = tenant;
	r->reaches = reaches;
}
