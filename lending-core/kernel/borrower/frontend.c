// SPDX-License-Identifier: GPL-2.0-only
/*
 * Frontends, and what they keep with remote functions. A frontend is told of every function once,
 * and once of its end; both under the function's `frontends` lock, whichever of the two is new. The
 * same holds for adapters, under adapters_lock.
 */

#include <linux/module.h>

#include "borrower/borrower.h"

static LIST_HEAD(frontends);
static DEFINE_MUTEX(frontends_lock);	/* to change the list: adapters_lock, too */
static DEFINE_MUTEX(adapters_lock);

static bool frontend_registered(const struct pcilend_frontend *frontend)
{
	struct pcilend_frontend *other;
	bool found = false;

	mutex_lock(&frontends_lock);
	list_for_each_entry(other, &frontends, node)
		found |= other == frontend;
	mutex_unlock(&frontends_lock);
	return found;
}

/* The frontend of that name, with a reference on its module; or NULL. */
struct pcilend_frontend *pcilend_frontend_get(const char *name)
{
	struct pcilend_frontend *frontend, *found = NULL;

	mutex_lock(&frontends_lock);
	list_for_each_entry(frontend, &frontends, node) {
		if (!strcmp(frontend->name, name) && try_module_get(frontend->owner)) {
			found = frontend;
			break;
		}
	}
	mutex_unlock(&frontends_lock);
	return found;
}

void pcilend_frontend_put(struct pcilend_frontend *frontend)
{
	module_put(frontend->owner);
}

/* The @nth frontend that is not about to go, with a reference on its module; or NULL. */
static struct pcilend_frontend *frontend_nth_frontend(unsigned int nth)
{
	struct pcilend_frontend *frontend, *found = NULL;

	mutex_lock(&frontends_lock);
	list_for_each_entry(frontend, &frontends, node) {
		if (!nth-- && try_module_get(frontend->owner)) {
			found = frontend;
			break;
		}
	}
	mutex_unlock(&frontends_lock);
	return found;
}

static struct remote_binding *frontend_binding_of(struct remote *r,
						  const struct pcilend_frontend *frontend)
{
	int i;

	lockdep_assert_held(&r->lock);
	for (i = 0; i < PCILEND_FRONTENDS; i++) {
		if (r->binding[i].frontend == frontend)
			return &r->binding[i];
	}
	return NULL;
}

static void frontend_attach(struct remote *r, struct pcilend_frontend *frontend)
{
	struct remote_binding *binding;
	bool fresh = false;
	int err;

	mutex_lock(&r->frontends);
	if (READ_ONCE(r->dying) || !frontend_registered(frontend))
		goto out;
	mutex_lock(&r->lock);
	if (!frontend_binding_of(r, frontend)) {
		binding = frontend_binding_of(r, NULL);
		if (binding) {
			binding->frontend = frontend;
			fresh = true;
		}
	}
	mutex_unlock(&r->lock);
	if (!fresh)
		goto out;

	err = frontend->added ? frontend->added(&r->pub) : 0;
	if (!err)
		goto out;
	dev_warn(&r->pub.dev, "can't be used through %s (error %d)\n", frontend->name, err);
	mutex_lock(&r->lock);
	binding->frontend = NULL;
	binding->data = NULL;
	mutex_unlock(&r->lock);
out:
	mutex_unlock(&r->frontends);
}

static void frontend_detach(struct remote *r, struct pcilend_frontend *frontend)
{
	struct remote_binding *binding;

	mutex_lock(&r->frontends);
	mutex_lock(&r->lock);
	binding = frontend_binding_of(r, frontend);
	mutex_unlock(&r->lock);
	if (!binding)
		goto out;

	if (frontend->removed)
		frontend->removed(&r->pub);
	mutex_lock(&r->lock);
	binding->frontend = NULL;
	binding->data = NULL;
	mutex_unlock(&r->lock);
out:
	mutex_unlock(&r->frontends);
}

/* In the function's work item. */
void remote_attach_frontends(struct remote *r)
{
	struct pcilend_frontend *frontend;
	unsigned int i;

	for (i = 0; (frontend = frontend_nth_frontend(i)); i++) {
		frontend_attach(r, frontend);
		pcilend_frontend_put(frontend);
	}
}

/* In the function's work item; `dying` is set, so that no new one comes. */
void remote_detach_frontends(struct remote *r)
{
	int i;

	for (i = 0; i < PCILEND_FRONTENDS; i++) {
		struct pcilend_frontend *frontend;

		mutex_lock(&r->lock);
		frontend = r->binding[i].frontend;
		mutex_unlock(&r->lock);
		if (frontend)
			frontend_detach(r, frontend);
	}
}

void remote_offer_work(struct work_struct *work)
{
	struct remote *r = container_of(work, struct remote, offer_work);
	struct pcilend_frontend *frontend;
	unsigned int i;
	bool knows;

	for (i = 0; (frontend = frontend_nth_frontend(i)); i++) {
		mutex_lock(&r->lock);
		knows = frontend_binding_of(r, frontend);
		mutex_unlock(&r->lock);
		if (knows && frontend->offered)
			frontend->offered(&r->pub);
		pcilend_frontend_put(frontend);
	}
	put_device(&r->pub.dev);
}

static void frontend_show_adapter(struct pcilend_frontend *frontend, struct pcilend_link *link)
{
	int err;

	lockdep_assert_held(&adapters_lock);
	if (!frontend->adapter_added)
		return;
	err = frontend->adapter_added(link->pdev);
	if (err)
		pci_warn(link->pdev, "pcilend: is not shown by %s (error %d)\n", frontend->name,
			 err);
}

/* The link can carry leases. */
void pcilend_frontend_adapter_added(struct pcilend_link *link)
{
	struct pcilend_frontend *frontend;

	guard(mutex)(&adapters_lock);
	borrower_link(link)->shown = true;
	list_for_each_entry(frontend, &frontends, node)
		frontend_show_adapter(frontend, link);
}

/* No lease is over the link any more, and it is still in the list. */
void pcilend_frontend_adapter_gone(struct pcilend_link *link)
{
	guard(mutex)(&adapters_lock);
	borrower_link(link)->shown = false;
}

/**
 * pcilend_frontend_register - offer a way to use remote functions
 * @frontend: filled in but for its private part; must stay until it is unregistered
 *
 * @frontend->added and @frontend->adapter_added are called for those that are there, and for all
 * that come. Return: 0; -EEXIST if there is one of that name.
 */
int pcilend_frontend_register(struct pcilend_frontend *frontend)
{
	struct pcilend_frontend *other;
	struct pcilend_link *link;
	struct remote *r;

	mutex_lock(&adapters_lock);
	mutex_lock(&frontends_lock);
	list_for_each_entry(other, &frontends, node) {
		if (!strcmp(other->name, frontend->name)) {
			mutex_unlock(&frontends_lock);
			mutex_unlock(&adapters_lock);
			return -EEXIST;
		}
	}
	list_add_tail(&frontend->node, &frontends);
	mutex_unlock(&frontends_lock);
	for (link = pcilend_link_next(NULL); link; link = pcilend_link_next(link)) {
		if (borrower_link(link)->shown)
			frontend_show_adapter(frontend, link);
	}
	mutex_unlock(&adapters_lock);

	for (r = remote_next(NULL); r; r = remote_next(r))
		frontend_attach(r, frontend);
	return 0;
}
EXPORT_SYMBOL_GPL(pcilend_frontend_register);

/* On return @frontend is not called any more. It holds no lease: those pin its module. */
void pcilend_frontend_unregister(struct pcilend_frontend *frontend)
{
	struct remote *r;

	mutex_lock(&adapters_lock);
	mutex_lock(&frontends_lock);
	list_del(&frontend->node);
	mutex_unlock(&frontends_lock);
	mutex_unlock(&adapters_lock);

	for (r = remote_next(NULL); r; r = remote_next(r)) {
		frontend_detach(r, frontend);
		flush_work(&r->offer_work);
		flush_work(&r->lost_work);
		flush_work(&r->reset_work);
		flush_work(&r->carrier_work);
		flush_work(&r->recall_work);
	}
}
EXPORT_SYMBOL_GPL(pcilend_frontend_unregister);

void *pcilend_remote_data(struct pcilend_remote *remote, struct pcilend_frontend *frontend)
{
	struct remote *r = to_remote(remote);
	struct remote_binding *binding;
	void *data;

	mutex_lock(&r->lock);
	binding = frontend_binding_of(r, frontend);
	data = binding ? binding->data : NULL;
	mutex_unlock(&r->lock);
	return data;
}
EXPORT_SYMBOL_GPL(pcilend_remote_data);

/* Return: 0; -ENOENT if the frontend has not been told of this function, or has left it. */
int pcilend_remote_set_data(struct pcilend_remote *remote, struct pcilend_frontend *frontend,
			    void *data)
{
	struct remote *r = to_remote(remote);
	struct remote_binding *binding;

	mutex_lock(&r->lock);
	binding = frontend_binding_of(r, frontend);
	if (binding)
		binding->data = data;
	mutex_unlock(&r->lock);
	return binding ? 0 : -ENOENT;
}
EXPORT_SYMBOL_GPL(pcilend_remote_set_data);
