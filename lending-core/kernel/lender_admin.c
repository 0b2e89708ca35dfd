// SPDX-License-Identifier: GPL-2.0-only
/*
 * What an administrator does with local functions: add, remove, make available and unavailable;
 * each by PCI address, with an answer for people if it is refused.
 */

#include "lender.h"

/* The PCI function with that address, with a reference; or ERR_PTR(). */
static struct pci_dev *parse_bdf(const char *bdf, struct netlink_ext_ack *extack)
{
	unsigned int domain, bus, slot, function;
	struct pci_dev *pdev;
	int end = 0;

	if (sscanf(bdf, "%x:%x:%x.%x%n", &domain, &bus, &slot, &function, &end) != 4 ||
	    bdf[end] || bus > 0xff || slot > 0x1f || function > 7) {
		NL_SET_ERR_MSG(extack, "not an address of the form dddd:bb:dd.f: see 'lspci -D'");
		return ERR_PTR(-EINVAL);
	}
	pdev = pci_get_domain_bus_and_slot(domain, bus, PCI_DEVFN(slot, function));
	if (!pdev) {
		NL_SET_ERR_MSG(extack, "there is no such PCI function on this host: see 'lspci -D'");
		return ERR_PTR(-ENODEV);
	}
	return pdev;
}

/* The added function with that address, with a reference; or ERR_PTR(). */
static struct pcilend_function *find_bdf(const char *bdf, struct netlink_ext_ack *extack)
{
	struct pci_dev *pdev = parse_bdf(bdf, extack);
	struct pcilend_function *fn;

	if (IS_ERR(pdev))
		return ERR_CAST(pdev);
	fn = pcilend_function_of(pdev);
	pci_dev_put(pdev);
	if (!fn) {
		NL_SET_ERR_MSG(extack, "it is not added: run 'pcilend add' with its address first");
		return ERR_PTR(-ENOENT);
	}
	return fn;
}

/* What can never be lent, whatever is done to it. */
static int check_kind(struct pci_dev *pdev, struct netlink_ext_ack *extack)
{
	struct pcilend_function *fn;

	if (!pcilend_node) {
		NL_SET_ERR_MSG(extack, "this host has no node id: load pcilend with node=1..65535");
		return -ENODEV;
	}
	if (pcilend_link_is_adapter(pdev)) {
		NL_SET_ERR_MSG(extack, "it is the NTB adapter over which functions are lent: it can't be lent itself");
		return -EOPNOTSUPP;
	}
	if (pdev->hdr_type != PCI_HEADER_TYPE_NORMAL ||
	    pdev->class >> 16 == PCI_BASE_CLASS_BRIDGE) {
		NL_SET_ERR_MSG(extack, "it is a bridge, only endpoints can be lent: name a device behind it");
		return -EOPNOTSUPP;
	}
	if (pci_domain_nr(pdev->bus) > 0xffff) {
		NL_SET_ERR_MSG(extack, "it is not in this host itself (borrowed, or behind VMD): lend it from where it is");
		return -EOPNOTSUPP;
	}
	fn = pcilend_function_of(pdev);
	if (fn) {
		pcilend_function_put(fn);
		NL_SET_ERR_MSG(extack, "it is added already: see 'pcilend list'");
		return -EALREADY;
	}
	return 0;
}

/*
 * pcilend_lender_add - offer a function: connected nodes see it from now on
 * @report: set to what it has become
 */
int pcilend_lender_add(const char *bdf, struct netlink_ext_ack *extack,
		       struct pcilend_report *report)
{
	struct pcilend_lease_event event = { .type = PCILEND_LEASE_ADD };
	struct pci_dev *pdev = parse_bdf(bdf, extack);
	struct pcilend_function *fn;
	int err;

	if (IS_ERR(pdev))
		return PTR_ERR(pdev);
	mutex_lock(&pcilend_lender_admin);
	err = check_kind(pdev, extack);
	if (err)
		goto out;
	fn = pcilend_function_alloc(pdev);
	if (!fn) {
		err = -ENOMEM;
		goto out;
	}
	err = pcilend_function_table_add(fn);
	if (err) {
		NL_SET_ERR_MSG(extack, "this host has no function ids left: remove functions that are not lent");
		pcilend_function_put(fn);
		goto out;
	}
	mutex_lock(&fn->lock);
	pcilend_function_apply(fn, &event, NULL);
	pcilend_function_announce(fn);
	pcilend_function_report(fn, report);
	mutex_unlock(&fn->lock);
out:
	mutex_unlock(&pcilend_lender_admin);
	pci_dev_put(pdev);
	return err;
}

static int remove_function(struct pcilend_function *fn, const char **why)
{
	struct pcilend_lease_event event = { .type = PCILEND_LEASE_REMOVE };
	int err;

	lockdep_assert_held(&pcilend_lender_admin);
	mutex_lock(&fn->lock);
	err = pcilend_function_apply(fn, &event, why);
	mutex_unlock(&fn->lock);
	if (err)
		return err;
	pcilend_function_settle_now(fn);
	pcilend_device_forget(fn);
	pcilend_function_table_remove(fn);
	return 0;
}

int pcilend_lender_remove(const char *bdf, struct netlink_ext_ack *extack)
{
	struct pcilend_function *fn = find_bdf(bdf, extack);
	const char *why = NULL;
	int err;

	if (IS_ERR(fn))
		return PTR_ERR(fn);
	mutex_lock(&pcilend_lender_admin);
	err = list_empty(&fn->node) ? -ENODEV : remove_function(fn, &why);
	mutex_unlock(&pcilend_lender_admin);
	pcilend_function_put(fn);
	return pcilend_refuse(extack, err, why);
}

static int make_available(struct pcilend_function *fn, struct netlink_ext_ack *extack,
			  struct pcilend_report *report)
{
	struct pcilend_lease_event event = { .type = PCILEND_LEASE_MAKE_AVAILABLE };
	const char *why = NULL;
	int err;

	lockdep_assert_held(&pcilend_lender_admin);
	mutex_lock(&fn->lock);
	err = pcilend_lease_allows(&fn->lease, &event, &why);
	mutex_unlock(&fn->lock);
	if (err)
		return pcilend_refuse(extack, err, why);
	err = pcilend_device_check(fn->pdev, extack) ?: pcilend_device_take(fn, extack);
	if (err)
		return err;

	device_lock(&fn->pdev->dev);
	mutex_lock(&fn->lock);
	/* Unless it was unbound again by hand. */
	err = fn->held ? pcilend_function_apply(fn, &event, &why) : -EBUSY;
	pcilend_function_settle(fn);
	if (!err && fn->lease.state == PCILEND_FUNCTION_QUARANTINED) {
		err = -EUCLEAN;
		why = fn->lease.quarantine;
	}
	pcilend_function_report(fn, report);
	mutex_unlock(&fn->lock);
	device_unlock(&fn->pdev->dev);
	return pcilend_refuse(extack, err, why);
}

/*
 * pcilend_lender_available - take the function from its driver, reset it, let it be borrowed
 *
 * On failure its driver has it again, unless it did not survive the reset: then it is quarantined.
 */
int pcilend_lender_available(const char *bdf, struct netlink_ext_ack *extack,
			     struct pcilend_report *report)
{
	struct pcilend_function *fn = find_bdf(bdf, extack);
	int err;

	if (IS_ERR(fn))
		return PTR_ERR(fn);
	mutex_lock(&pcilend_lender_admin);
	err = list_empty(&fn->node) ? -ENODEV : make_available(fn, extack, report);
	mutex_unlock(&pcilend_lender_admin);
	pcilend_function_put(fn);
	return err;
}

static int make_unavailable(struct pcilend_function *fn, const char **why)
{
	struct pcilend_lease_event event = { .type = PCILEND_LEASE_MAKE_UNAVAILABLE };
	int err;

	lockdep_assert_held(&pcilend_lender_admin);
	mutex_lock(&fn->lock);
	err = pcilend_function_apply(fn, &event, why);
	mutex_unlock(&fn->lock);
	if (err)
		return err;
	pcilend_function_settle_now(fn);
	if (pcilend_function_take_release(fn))
		pcilend_device_release(fn);
	/* Its own driver has it now: say so. */
	mutex_lock(&fn->lock);
	pcilend_function_announce(fn);
	mutex_unlock(&fn->lock);
	return 0;
}

/* Back to the function's own driver; -EBUSY while it is borrowed. */
int pcilend_lender_unavailable(const char *bdf, struct netlink_ext_ack *extack)
{
	struct pcilend_function *fn = find_bdf(bdf, extack);
	const char *why = NULL;
	u32 borrower;
	int err;

	if (IS_ERR(fn))
		return PTR_ERR(fn);
	mutex_lock(&pcilend_lender_admin);
	err = list_empty(&fn->node) ? -ENODEV : make_unavailable(fn, &why);
	mutex_unlock(&pcilend_lender_admin);
	mutex_lock(&fn->lock);
	borrower = fn->lease.node;
	mutex_unlock(&fn->lock);
	pcilend_function_put(fn);
	if (err == -EBUSY && borrower) {
		NL_SET_ERR_MSG_FMT(extack, "node %u borrows it: shut down what uses it there, or return it there",
				   borrower);
		return err;
	}
	return pcilend_refuse(extack, err, why);
}

/* Takes all functions back, for the module's end. No lease is held. */
void pcilend_lender_take_back(void)
{
	struct pcilend_function *fn;

	mutex_lock(&pcilend_lender_admin);
	for (fn = pcilend_function_next(NULL); fn; fn = pcilend_function_next(fn)) {
		make_unavailable(fn, NULL);
		remove_function(fn, NULL);
	}
	mutex_unlock(&pcilend_lender_admin);
}

/*
 * pcilend_lender_report - what is to be said about one function
 * @bdf: its address, or NULL: by @id
 *
 * Return: 0 or -ENOENT if it is not added here.
 */
int pcilend_lender_report(const char *bdf, u32 id, struct pcilend_report *report,
			  struct netlink_ext_ack *extack)
{
	struct pcilend_function *fn = bdf ? find_bdf(bdf, extack) : pcilend_function_find(id);

	if (IS_ERR_OR_NULL(fn))
		return fn ? PTR_ERR(fn) : -ENOENT;
	mutex_lock(&fn->lock);
	pcilend_function_report(fn, report);
	mutex_unlock(&fn->lock);
	pcilend_function_put(fn);
	return 0;
}

bool pcilend_lender_next(u32 after, struct pcilend_report *report)
{
	struct pcilend_function *fn = pcilend_function_next(NULL);

	while (fn && fn->id <= after)
		fn = pcilend_function_next(fn);
	if (!fn)
		return false;
	mutex_lock(&fn->lock);
	pcilend_function_report(fn, report);
	mutex_unlock(&fn->lock);
	pcilend_function_put(fn);
	return true;
}
