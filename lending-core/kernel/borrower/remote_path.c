// SPDX-License-Identifier: GPL-2.0-only
/*
 * The paths to a remote function: links over which its lender offers it. A lease goes over one of
 * them from its begin to its end. What the lender says about the function is taken from the link of
 * the lease, or of the last one, as long as that works: others may tell the same later.
 */

#include <linux/sort.h>

#include "borrower/borrower.h"
#include "pcilend/path.h"

static struct remote_path *remote_path_find(struct remote *r, struct pcilend_link *link)
{
	int i;

	lockdep_assert_held(&r->lock);
	for (i = 0; i < PCILEND_PATHS; i++) {
		if (r->path[i].link == link)
			return &r->path[i];
	}
	return NULL;
}

/* An entry that no lease and no offer needs. */
static struct remote_path *remote_path_unused(struct remote *r)
{
	int i;

	for (i = 0; i < PCILEND_PATHS; i++) {
		if (!r->path[i].offered)
			return &r->path[i];
	}
	return NULL;
}

static bool remote_path_works(struct remote *r, struct pcilend_link *link)
{
	struct remote_path *path = remote_path_find(r, link);

	return path && path->offered && !READ_ONCE(link->going) && pcilend_link_is_up(link, NULL);
}

/* The function is offered over @link. Return: is that new? */
bool remote_path_seen(struct remote *r, struct pcilend_link *link)
{
	struct remote_path *path = remote_path_find(r, link);
	bool fresh;

	if (!path) {
		path = remote_path_unused(r);
		if (!path)
			return false;
		pcilend_link_put(path->link);
		path->link = pcilend_link_get(link);
		path->offered = false;
	}
	fresh = !path->offered;
	path->offered = true;
	path->generation = READ_ONCE(borrower_link(link)->sync_generation);
	return fresh;
}

/* The SYNC over @link in which it was last seen; *offered: is it offered over that at all? */
u32 remote_path_generation(struct remote *r, struct pcilend_link *link, bool *offered)
{
	struct remote_path *path = remote_path_find(r, link);

	*offered = path && path->offered;
	return path ? path->generation : 0;
}

/* The function is no longer offered over @link. Return: is it over any other? */
bool remote_path_gone(struct remote *r, struct pcilend_link *link)
{
	struct remote_path *path = remote_path_find(r, link);
	int i;

	if (path)
		path->offered = false;
	for (i = 0; i < PCILEND_PATHS; i++) {
		if (r->path[i].offered)
			return true;
	}
	return false;
}

/* Does what comes over @link tell the function's state? */
bool remote_listens_to(struct remote *r, struct pcilend_link *link)
{
	lockdep_assert_held(&r->lock);
	if (r->link == link)
		return true;
	if (remote_path_works(r, r->link))
		return false;
	if (r->state == REMOTE_IDLE)
		remote_set_link(r, link);
	return true;
}

/* While there is no lease. */
void remote_set_link(struct remote *r, struct pcilend_link *link)
{
	struct pcilend_link *former = r->link;

	r->link = pcilend_link_get(link);
	pcilend_link_put(former);
}

/* The link of the lease in force, or of the last one; with a reference. */
struct pcilend_link *remote_link(struct remote *r)
{
	struct pcilend_link *link;

	mutex_lock(&r->lock);
	link = pcilend_link_get(r->link);
	mutex_unlock(&r->lock);
	return link;
}

/* A link to the lender that is up, with a reference: the lease's if that is; or NULL. */
struct pcilend_link *remote_any_link(struct remote *r)
{
	u32 lender = pcilend_id_node(r->pub.id);
	struct pcilend_link *link = remote_link(r);

	if (pcilend_link_reaches(link, lender))
		return link;
	pcilend_link_put(link);
	return pcilend_link_to(lender, 0);
}

/* 0: it is lent by itself. */
static u32 remote_set(struct remote *r)
{
	guard(mutex)(&r->lock);
	return le32_to_cpu(r->pub.info.set);
}

/*
 * The link that others of its set are borrowed over, which is the only one it may go over, with a
 * reference; or NULL.
 */
struct pcilend_link *remote_link_of_set(struct remote *r)
{
	u32 lender = pcilend_id_node(r->pub.id), set = remote_set(r);
	struct pcilend_link *link = NULL;
	struct remote *other;

	if (!set)
		return NULL;
	for (other = remote_next(NULL); other; other = remote_next(other)) {
		if (other == r || pcilend_id_node(other->pub.id) != lender)
			continue;
		mutex_lock(&other->lock);
		if (!link && other->state != REMOTE_IDLE &&
		    le32_to_cpu(other->pub.info.set) == set)
			link = pcilend_link_get(other->link);
		mutex_unlock(&other->lock);
	}
	return link;
}

static u32 remote_path_address(struct pcilend_link *link)
{
	return pci_domain_nr(link->pdev->bus) << 16 | pci_dev_id(link->pdev);
}

static u64 remote_path_free_aperture(struct pcilend_link *link)
{
	struct pcilend_aperture *ap = &link->aperture;
	u64 free;

	mutex_lock(&ap->lock);
	free = ap->layout.slots.size - ap->slots.allocated;
	mutex_unlock(&ap->lock);
	return free;
}

/*
 * remote_path_choose - the link for a new lease
 * @adapter: the one to take, or NULL: the best
 *
 * The remote's lock is held, and holds the link. Return: it, or NULL if none can be used.
 */
struct pcilend_link *remote_path_choose(struct remote *r, const char *adapter)
{
	struct pcilend_path_choice path[PCILEND_PATHS] = { };
	int i, best;

	lockdep_assert_held(&r->lock);
	for (i = 0; i < PCILEND_PATHS; i++) {
		struct pcilend_link *link = r->path[i].link;

		if (!link || !remote_path_works(r, link) ||
		    (adapter && strcmp(adapter, pci_name(link->pdev))))
			continue;
		path[i].usable = true;
		path[i].leases = atomic_read(&link->leases);
		path[i].free = remote_path_free_aperture(link);
		path[i].address = remote_path_address(link);
	}
	best = pcilend_path_choose(path, PCILEND_PATHS);
	return best < 0 ? NULL : r->path[best].link;
}

static bool remote_path_is_available(struct remote *r)
{
	int i;

	lockdep_assert_held(&r->lock);
	if (r->dying || r->state != REMOTE_IDLE ||
	    r->pub.info.state != PCILEND_FUNCTION_AVAILABLE)
		return false;
	for (i = 0; i < PCILEND_PATHS; i++) {
		struct pcilend_link *link = r->path[i].link;

		if (link && remote_path_works(r, link))
			return true;
	}
	return false;
}

bool pcilend_is_available(struct pcilend_remote *remote)
{
	struct remote *r = to_remote(remote);

	guard(mutex)(&r->lock);
	return remote_path_is_available(r);
}
EXPORT_SYMBOL_GPL(pcilend_is_available);

bool pcilend_is_held(struct pcilend_remote *remote)
{
	return remote_held_lease(to_remote(remote));
}
EXPORT_SYMBOL_GPL(pcilend_is_held);

bool pcilend_is_reached(struct pcilend_remote *remote)
{
	struct remote *r = to_remote(remote);

	guard(mutex)(&r->lock);
	return pcilend_link_carries(r->link);
}
EXPORT_SYMBOL_GPL(pcilend_is_reached);

bool pcilend_is_of_kind(struct pcilend_remote *remote, const struct pcilend_kind *kind)
{
	struct remote *r = to_remote(remote);

	guard(mutex)(&r->lock);
	return pcilend_kind_has(kind, &r->pub.info);
}
EXPORT_SYMBOL_GPL(pcilend_is_of_kind);

struct pcilend_remote *pcilend_next_available(const struct pcilend_kind *kind, u32 id)
{
	struct remote *r;

	for (r = remote_next(NULL); r; r = remote_next(r)) {
		guard(mutex)(&r->lock);
		if (r->pub.id > id && remote_path_is_available(r) &&
		    pcilend_kind_has(kind, &r->pub.info))
			return &r->pub;
	}
	return NULL;
}
EXPORT_SYMBOL_GPL(pcilend_next_available);

static int remote_path_by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* Adapters over which the function can be reached now, and over which it is borrowed. */
void remote_report_paths(struct remote *r, struct pcilend_report *report)
{
	int i, count = 0;

	lockdep_assert_held(&r->lock);
	for (i = 0; i < PCILEND_PATHS; i++) {
		struct pcilend_link *link = r->path[i].link;

		if (link && remote_path_works(r, link))
			strscpy(report->path[count++], pci_name(link->pdev),
				sizeof(report->path[0]));
	}
	sort(report->path, count, sizeof(report->path[0]), remote_path_by_name, NULL);
	report->reason = count ? NULL : REMOTE_NO_LINK;
	if (r->state != REMOTE_IDLE)
		strscpy(report->adapter, pci_name(r->link->pdev), sizeof(report->adapter));
}

void remote_put_paths(struct remote *r)
{
	int i;

	for (i = 0; i < PCILEND_PATHS; i++)
		pcilend_link_put(r->path[i].link);
	pcilend_link_put(r->link);
}
