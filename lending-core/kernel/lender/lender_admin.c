// SPDX-License-Identifier: GPL-2.0-only
/*
 * What an administrator does with local functions: add, remove, make available and unavailable;
 * each by PCI address, with an answer for people if it is refused.
 */

#include <linux/slab.h>
#include <net/netlink.h>

#include "lender/lender.h"

static DEFINE_MUTEX(admin_add_lock);	/* one function is added at a time */

/* The PCI function with that address, with a reference; or ERR_PTR(). */
static struct pci_dev *lender_admin_parse_bdf(const char *bdf, struct netlink_ext_ack *extack)
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
static struct pcilend_function *lender_admin_find_bdf(const char *bdf,
						      struct netlink_ext_ack *extack)
{
	struct pci_dev *pdev = lender_admin_parse_bdf(bdf, extack);
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

/* It may have been removed since it was found. */
static int lender_admin_still_added(struct pcilend_function *fn, struct netlink_ext_ack *extack)
{
	lockdep_assert_held(&fn->lock);
	if (fn->lease.state != PCILEND_FUNCTION_LOCAL)
		return 0;
	return pcilend_refuse(extack, -ENODEV, "it is no longer added: run 'pcilend add' with its address first");
}

/* What can never be lent, whatever is done to it. */
static int lender_admin_check_kind(struct pci_dev *pdev, struct netlink_ext_ack *extack)
{
	if (!pcilend_node) {
		NL_SET_ERR_MSG(extack, "this host has no node id: load pcilend with node=1..65535");
		return -ENODEV;
	}
	if (pcilend_link_is_adapter(pdev)) {
		NL_SET_ERR_MSG(extack, "it is the NTB adapter over which functions are lent: it can't be lent itself");
		return -EOPNOTSUPP;
	}
	if (pdev->hdr_type != PCI_HEADER_TYPE_NORMAL) {
		NL_SET_ERR_MSG(extack, "it is a bridge, only endpoints can be lent: name a device behind it");
		return -EOPNOTSUPP;
	}
	/* VMD's domains begin above 16 bits (drivers/pci/controller/vmd.c). */
	if (pci_domain_nr(pdev->bus) > 0xffff || pcilend_link_is_over(pdev)) {
		NL_SET_ERR_MSG(extack, "it is not in this host itself (borrowed, or behind VMD): lend it from where it is");
		return -EOPNOTSUPP;
	}
	return 0;
}

/*
 * pcilend_lender_check - can this function, added or not, be lent? Changes nothing.
 *
 * One that is lent without an IOMMU by choice is not held against that.
 */
int pcilend_lender_check(const char *bdf, struct netlink_ext_ack *extack)
{
	struct pci_dev *pdev = lender_admin_parse_bdf(bdf, extack);
	struct pcilend_function *fn;
	bool direct = false;
	int err;

	if (IS_ERR(pdev))
		return PTR_ERR(pdev);
	fn = pcilend_function_of(pdev);
	if (fn) {
		mutex_lock(&fn->lock);
		direct = pcilend_function_is_direct(fn);
		mutex_unlock(&fn->lock);
		pcilend_function_put(fn);
	}
	err = lender_admin_check_kind(pdev, extack) ?: pcilend_device_check(pdev, direct, extack);
	pci_dev_put(pdev);
	return err;
}

static int lender_admin_set_label(struct pcilend_function *fn, const char *label,
				  struct netlink_ext_ack *extack)
{
	u8 text[PCILEND_LABEL_BYTES] = { };

	lockdep_assert_held(&fn->lock);
	if (strlen(label) >= sizeof(text) ||
	    !pcilend_label_valid(memcpy(text, label, strlen(label))))
		return pcilend_refuse(extack, -EINVAL, "a label is at most 63 characters of printable ASCII: choose another one");
	memcpy(fn->info.label, text, sizeof(text));
	return 0;
}

/* Does not tell anybody. @nodes: NULL: all connected ones. */
static int lender_admin_set_access(struct pcilend_function *fn, const struct nlattr *nodes,
				   struct netlink_ext_ack *extack)
{
	const char *why = NULL;
	int err;

	lockdep_assert_held(&fn->lock);
	if (!nodes) {
		pcilend_access_all(&fn->access);
		return 0;
	}
	if (nla_len(nodes) % sizeof(u32))
		return pcilend_refuse(extack, -EINVAL, "nodes are numbers of 4 bytes each");
	err = pcilend_access_set(&fn->access, nla_data(nodes), nla_len(nodes) / sizeof(u32), &why);
	return pcilend_refuse(extack, err, why);
}

/* Into the table, as @with says, unless that is refused. The function is not seen before. */
static int lender_admin_add(struct pcilend_function *fn, const struct pcilend_add *with,
			    struct netlink_ext_ack *extack)
{
	struct pcilend_lease_event event = { .type = PCILEND_LEASE_ADD };
	int err;

	lockdep_assert_held(&admin_add_lock);
	if (with->id && (pcilend_id_node(with->id) != pcilend_node || !pcilend_id_valid(with->id)))
		return pcilend_refuse_fmt(extack, -EINVAL, "function ids of this host are %x to %x: choose one of them, or none",
					  pcilend_id(pcilend_node, 1),
					  pcilend_id(pcilend_node, U16_MAX));
	mutex_lock(&fn->lock);
	err = lender_admin_set_label(fn, with->label ?: "", extack) ?:
	      lender_admin_set_access(fn, with->nodes, extack) ?:
	      pcilend_group_join(fn, extack);
	if (!err) {
		err = pcilend_function_table_add(fn, with->id, extack);
		if (err)
			pcilend_group_leave(fn);
	}
	if (!err) {
		pcilend_function_apply(fn, &event, NULL);
		pcilend_function_announce(fn);
	}
	mutex_unlock(&fn->lock);
	return err;
}

/* If it was unplugged before it was in the table, nobody was told. */
static void lender_admin_check_there(struct pcilend_function *fn)
{
	struct pci_dev *pdev = fn->pdev;
	struct pci_dev *there = pci_get_domain_bus_and_slot(pci_domain_nr(pdev->bus),
							    pdev->bus->number, pdev->devfn);

	if (there != pdev)
		pcilend_function_queue_gone(fn);
	pci_dev_put(there);
}

/*
 * pcilend_lender_add - offer a function: connected nodes see it from now on
 * @report: set to what it has become
 */
int pcilend_lender_add(const char *bdf, const struct pcilend_add *with,
		       struct netlink_ext_ack *extack, struct pcilend_report *report)
{
	struct pci_dev *pdev = lender_admin_parse_bdf(bdf, extack);
	struct pcilend_function *fn;
	int err;

	if (IS_ERR(pdev))
		return PTR_ERR(pdev);
	mutex_lock(&admin_add_lock);
	err = lender_admin_check_kind(pdev, extack);
	if (err)
		goto out;
	fn = pcilend_function_of(pdev);
	if (fn) {
		pcilend_function_put(fn);
		err = pcilend_refuse(extack, -EALREADY, "it is added already: see 'pcilend list'");
		goto out;
	}
	fn = pcilend_function_alloc(pdev);
	if (!fn) {
		err = -ENOMEM;
		goto out;
	}
	err = lender_admin_add(fn, with, extack);
	if (err) {
		pcilend_function_put(fn);
		goto out;
	}
	lender_admin_check_there(fn);
	mutex_lock(&fn->lock);
	pcilend_function_report(fn, report);
	mutex_unlock(&fn->lock);
out:
	mutex_unlock(&admin_add_lock);
	pci_dev_put(pdev);
	return err;
}

/* Whose function it is, for people. */
int pcilend_lender_label(const char *bdf, const char *label, struct netlink_ext_ack *extack)
{
	struct pcilend_function *fn = lender_admin_find_bdf(bdf, extack);
	int err;

	if (IS_ERR(fn))
		return PTR_ERR(fn);
	mutex_lock(&fn->lock);
	err = lender_admin_still_added(fn, extack) ?: lender_admin_set_label(fn, label, extack);
	if (!err) {
		pcilend_changed();
		pcilend_function_announce(fn);
	}
	mutex_unlock(&fn->lock);
	pcilend_function_put(fn);
	return err;
}

/* Those who see the function no more are told that it is gone; the others, what it is. */
static void lender_admin_tell_access(struct pcilend_function *fn,
				     const struct pcilend_access *former)
{
	struct pcilend_link *link;
	u16 node;

	lockdep_assert_held(&fn->lock);
	for (link = pcilend_link_next(NULL); link; link = pcilend_link_next(link)) {
		if (pcilend_link_is_up(link, &node) && pcilend_lender_connected(node) &&
		    pcilend_access_allows(former, node) && !pcilend_function_visible(fn, node))
			pcilend_function_withdraw(fn, link);
	}
	pcilend_changed();
	pcilend_function_announce(fn);
}

/* A node with clients of a shared function that may not see it; 0: none. */
static u32 lender_admin_left_out(struct pcilend_function *fn)
{
	struct pcilend_link *link;
	u16 node;
	u32 out = 0;

	lockdep_assert_held(&fn->lock);
	for (link = pcilend_link_next(NULL); link; link = pcilend_link_next(link)) {
		node = READ_ONCE(link->peer_node);
		if (!out && !pcilend_access_allows(&fn->access, node) &&
		    pcilend_share_has_client(fn, node))
			out = node;
	}
	return out;
}

static int lender_admin_allow(struct pcilend_function *fn, const struct nlattr *nodes,
			      struct pcilend_access *former, struct netlink_ext_ack *extack)
{
	u32 node;
	int err;

	lockdep_assert_held(&fn->lock);
	*former = fn->access;
	err = lender_admin_set_access(fn, nodes, extack);
	if (err)
		return err;
	if (fn->lease.node && fn->lease.node != pcilend_node &&
	    !pcilend_access_allows(&fn->access, fn->lease.node)) {
		fn->access = *former;
		return pcilend_refuse_fmt(extack, -EBUSY, "node %u borrows it: name it too, or take the function back first",
					  fn->lease.node);
	}
	node = lender_admin_left_out(fn);
	if (node) {
		fn->access = *former;
		return pcilend_refuse_fmt(extack, -EBUSY, "processes of node %u share it: name it too, or let its manager end that",
					  node);
	}
	lender_admin_tell_access(fn, former);
	return 0;
}

/*
 * pcilend_lender_allow - which of the connected nodes see the function and may borrow it
 * @nodes: u32 each; NULL: all
 *
 * Return: 0; -EBUSY if its borrower, or who shares it, would be left out.
 */
int pcilend_lender_allow(const char *bdf, const struct nlattr *nodes,
			 struct netlink_ext_ack *extack)
{
	struct pcilend_access *former __free(kfree) = kmalloc(sizeof(*former), GFP_KERNEL);
	struct pcilend_function *fn;
	int err;

	if (!former)
		return -ENOMEM;
	fn = lender_admin_find_bdf(bdf, extack);
	if (IS_ERR(fn))
		return PTR_ERR(fn);
	mutex_lock(&fn->lock);
	err = lender_admin_still_added(fn, extack) ?: lender_admin_allow(fn, nodes, former, extack);
	mutex_unlock(&fn->lock);
	pcilend_function_put(fn);
	return err;
}

/* Id of the added function with that address, 0 if there is none. */
u32 pcilend_lender_id(const char *bdf)
{
	struct pcilend_function *fn = lender_admin_find_bdf(bdf, NULL);
	u32 id;

	if (IS_ERR(fn))
		return 0;
	id = fn->id;
	pcilend_function_put(fn);
	return id;
}

static int lender_admin_remove_function(struct pcilend_function *fn, const char **why)
{
	struct pcilend_lease_event event = { .type = PCILEND_LEASE_REMOVE };
	int err;

	lockdep_assert_held(&fn->admin);
	mutex_lock(&fn->lock);
	if (fn->todo & PCILEND_DO_RELEASE) {
		err = -EBUSY;
		if (why)
			*why = "another function of its IOMMU group is lent: wait for its return";
	} else {
		err = pcilend_function_apply(fn, &event, why);
	}
	mutex_unlock(&fn->lock);
	if (err)
		return err;
	pcilend_function_settle_now(fn);
	pcilend_device_forget(fn);
	pcilend_function_table_remove(fn);
	return 0;
}

/*
 * Takes fn->admin, unless the function is not in the table any more (-ENODEV), or the caller is
 * killed (-EINTR): who has it may wait for another driver, which may last for ever.
 */
static int lender_admin_begin(struct pcilend_function *fn)
{
	int err = mutex_lock_killable(&fn->admin);

	if (!err && list_empty(&fn->node)) {
		mutex_unlock(&fn->admin);
		err = -ENODEV;
	}
	return err;
}

int pcilend_lender_remove(const char *bdf, struct netlink_ext_ack *extack)
{
	struct pcilend_function *fn = lender_admin_find_bdf(bdf, extack);
	const char *why = NULL;
	int err;

	if (IS_ERR(fn))
		return PTR_ERR(fn);
	err = lender_admin_begin(fn);
	if (!err) {
		err = lender_admin_remove_function(fn, &why);
		mutex_unlock(&fn->admin);
	}
	pcilend_function_put(fn);
	return pcilend_refuse(extack, err, why);
}

/* Our driver shall have the function, with or without an IOMMU. */
static int lender_admin_take(struct pcilend_function *fn, bool direct,
			     struct netlink_ext_ack *extack)
{
	bool was_direct;
	int err;

	lockdep_assert_held(&fn->admin);
	/* It may still be ours: a direct one until the hand-back that waits for fn->admin, */
	mutex_lock(&fn->lock);
	was_direct = pcilend_function_is_direct(fn);
	mutex_unlock(&fn->lock);
	if (READ_ONCE(fn->held) && was_direct)
		return pcilend_refuse(extack, -EBUSY, "it is going back to its own driver: try again");
	/* another one because others of its set are lent; then it is not alone. */
	if (READ_ONCE(fn->held) && direct)
		return pcilend_refuse(extack, -EBUSY, "others of its IOMMU group are lent: wait for their return");
	if (READ_ONCE(fn->held))
		return 0;
	mutex_lock(&fn->lock);
	fn->info.flags = direct ? PCILEND_FUNCTION_DIRECT : 0;
	mutex_unlock(&fn->lock);
	err = pcilend_device_take(fn, extack);
	if (err) {
		mutex_lock(&fn->lock);
		fn->info.flags = 0;
		mutex_unlock(&fn->lock);
	}
	return err;
}

static int lender_admin_make_available(struct pcilend_function *fn,
				       const struct pcilend_lend *lend,
				       struct netlink_ext_ack *extack,
				       struct pcilend_report *report)
{
	struct pcilend_lease_event event = {
		.type = PCILEND_LEASE_MAKE_AVAILABLE,
		.sanitize = lend->sanitize,
		.sanitized = lend->sanitized,
	};
	const char *why = NULL;
	int err;

	lockdep_assert_held(&fn->admin);
	mutex_lock(&fn->lock);
	err = pcilend_lease_allows(&fn->lease, &event, &why);
	mutex_unlock(&fn->lock);
	if (err)
		return pcilend_refuse(extack, err, why);
	err = pcilend_device_check(fn->pdev, lend->direct, extack) ?:
	      lender_admin_take(fn, lend->direct, extack);
	if (err)
		return err;

	pcilend_device_lock(fn);
	/* Unless it was unbound again by hand. */
	err = fn->held ? pcilend_function_apply(fn, &event, &why) : -EBUSY;
	if (!err) {
		fn->todo &= ~PCILEND_DO_RELEASE;
		fn->near = lend->near;
	}
	pcilend_function_settle(fn);
	if (!err && fn->lease.state == PCILEND_FUNCTION_QUARANTINED) {
		err = -EUCLEAN;
		why = fn->lease.quarantine;
	}
	pcilend_function_report(fn, report);
	pcilend_device_unlock(fn);
	return pcilend_refuse(extack, err, why);
}

/*
 * pcilend_lender_available - take the function from its driver, reset it, let it be borrowed
 *
 * On failure its driver has it again, unless it did not survive the reset, or what its last
 * borrower left was to be erased and was not: then it is quarantined.
 */
int pcilend_lender_available(const char *bdf, const struct pcilend_lend *lend,
			     struct netlink_ext_ack *extack, struct pcilend_report *report)
{
	struct pcilend_function *fn = lender_admin_find_bdf(bdf, extack);
	int err;

	if (IS_ERR(fn))
		return PTR_ERR(fn);
	err = lender_admin_begin(fn);
	if (!err) {
		err = lender_admin_make_available(fn, lend, extack, report);
		mutex_unlock(&fn->admin);
	}
	pcilend_function_put(fn);
	return err;
}

/*
 * Gives the function back to its own driver, if the state machine has asked for that, and unless
 * others of its set are lent: then the last of them does.
 */
static void lender_admin_hand_back(struct pcilend_function *fn)
{
	lockdep_assert_held(&fn->admin);
	if (!pcilend_function_take_release(fn))
		return;
	pcilend_device_release(fn);
	/* Its own driver has it now: say so. */
	mutex_lock(&fn->lock);
	if (fn->lease.state != PCILEND_FUNCTION_LOCAL)
		pcilend_function_announce(fn);
	mutex_unlock(&fn->lock);
}

void pcilend_lender_hand_back_work(struct work_struct *work)
{
	struct pcilend_function *fn = container_of(work, struct pcilend_function, hand_back);

	mutex_lock(&fn->admin);
	lender_admin_hand_back(fn);
	mutex_unlock(&fn->admin);
	pcilend_function_put(fn);
}

/*
 * One step of the function's state machine, and all that follows from it. -EUCLEAN if it ends in
 * quarantine.
 */
static int lender_admin_apply_now(struct pcilend_function *fn, struct pcilend_lease_event *event,
				  const char **why)
{
	int err;

	lockdep_assert_held(&fn->admin);
	pcilend_device_lock(fn);
	err = pcilend_function_apply(fn, event, why);
	pcilend_function_settle(fn);
	if (!err && fn->lease.state == PCILEND_FUNCTION_QUARANTINED) {
		err = -EUCLEAN;
		if (why)
			*why = fn->lease.quarantine;
	}
	/* The time to return it may be shorter than what is waited for now. */
	if (!err && pcilend_function_is_lent(fn))
		pcilend_function_queue_expiry(fn, 0);
	pcilend_device_unlock(fn);
	lender_admin_hand_back(fn);
	return err;
}

static int lender_admin_make_unavailable(struct pcilend_function *fn, bool force, const char **why)
{
	struct pcilend_lease_event event = { .type = PCILEND_LEASE_MAKE_UNAVAILABLE };

	lockdep_assert_held(&fn->admin);
	mutex_lock(&fn->lock);
	if (force && (fn->lease.state == PCILEND_FUNCTION_BORROWED ||
		      fn->lease.state == PCILEND_FUNCTION_FENCING ||
		      fn->lease.state == PCILEND_FUNCTION_RESETTING))
		event.type = PCILEND_LEASE_REVOKE;
	mutex_unlock(&fn->lock);
	return lender_admin_apply_now(fn, &event, why);
}

/*
 * pcilend_lender_unavailable - back to the function's own driver
 * @force: end a lease on it at once
 *
 * Return: 0 when its driver has it; -EBUSY while it is borrowed, unless forced; -EUCLEAN if it did
 * not survive the reset after a lease that was ended: it is quarantined.
 */
int pcilend_lender_unavailable(const char *bdf, bool force, struct netlink_ext_ack *extack)
{
	struct pcilend_function *fn = lender_admin_find_bdf(bdf, extack);
	const char *why = NULL;
	u32 borrower;
	int err;

	if (IS_ERR(fn))
		return PTR_ERR(fn);
	err = lender_admin_begin(fn);
	if (!err) {
		err = lender_admin_make_unavailable(fn, force, &why);
		mutex_unlock(&fn->admin);
	}
	mutex_lock(&fn->lock);
	borrower = fn->lease.node;
	mutex_unlock(&fn->lock);
	pcilend_function_put(fn);
	if (err == -EBUSY && borrower == pcilend_node)
		return pcilend_refuse(extack, err, "a process of this host has leased it: end that, ask by --grace, or take it by --force");
	if (err == -EBUSY && borrower)
		return pcilend_refuse_fmt(extack, err, "node %u borrows it: end its use there, ask by --grace, or take it by --force",
					  borrower);
	return pcilend_refuse(extack, err, why);
}

/*
 * pcilend_lender_recall - ask the borrower to return the function, and take it after a time
 *
 * Returns at once. The function ends in the hands of its own driver; if nobody borrows it, now.
 */
int pcilend_lender_recall(const char *bdf, u32 grace_ms, struct netlink_ext_ack *extack)
{
	struct pcilend_lease_event event = {
		.type = PCILEND_LEASE_RECALL,
		.grace_ms = grace_ms,
		.now = pcilend_now(),
	};
	struct pcilend_function *fn = lender_admin_find_bdf(bdf, extack);
	const char *why = NULL;
	int err;

	if (IS_ERR(fn))
		return PTR_ERR(fn);
	err = lender_admin_begin(fn);
	if (!err) {
		err = lender_admin_apply_now(fn, &event, &why);
		mutex_unlock(&fn->admin);
	}
	pcilend_function_put(fn);
	return pcilend_refuse(extack, err, why);
}

/*
 * pcilend_lender_release_quarantine - one more reset for a function that did not survive one
 *
 * Return: 0 if it is available again; -EUCLEAN if it is quarantined still, -EINVAL if it was not.
 */
int pcilend_lender_release_quarantine(const char *bdf, struct netlink_ext_ack *extack,
				      struct pcilend_report *report)
{
	struct pcilend_lease_event event = { .type = PCILEND_LEASE_RELEASE_QUARANTINE };
	struct pcilend_function *fn = lender_admin_find_bdf(bdf, extack);
	const char *why = NULL;
	int err;

	if (IS_ERR(fn))
		return PTR_ERR(fn);
	err = lender_admin_begin(fn);
	if (!err) {
		err = lender_admin_apply_now(fn, &event, &why);
		mutex_lock(&fn->lock);
		pcilend_function_report(fn, report);
		mutex_unlock(&fn->lock);
		mutex_unlock(&fn->admin);
	}
	pcilend_function_put(fn);
	return pcilend_refuse(extack, err, why);
}

/* Takes all functions back, for the module's end. No lease is held. */
void pcilend_lender_take_back(void)
{
	struct pcilend_function *fn;

	for (fn = pcilend_function_next(NULL); fn; fn = pcilend_function_next(fn)) {
		flush_work(&fn->hand_back);
		mutex_lock(&fn->admin);
		lender_admin_make_unavailable(fn, false, NULL);
		lender_admin_remove_function(fn, NULL);
		mutex_unlock(&fn->admin);
	}
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
	struct pcilend_function *fn = bdf ? lender_admin_find_bdf(bdf, extack)
					  : pcilend_function_find(id);

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
