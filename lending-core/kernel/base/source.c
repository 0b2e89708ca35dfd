// SPDX-License-Identifier: GPL-2.0-only
/* Where memory comes from that can be taken away (source.h). */

#include <linux/slab.h>

#include "base/source.h"

struct pcilend_source *pcilend_source_make(void)
{
	struct pcilend_source *source = kzalloc(sizeof(*source), GFP_KERNEL_ACCOUNT);

	if (!source)
		return NULL;
	kref_init(&source->ref);
	mutex_init(&source->lock);
	INIT_LIST_HEAD(&source->hooks);
	return source;
}

struct pcilend_source *pcilend_source_get(struct pcilend_source *source)
{
	kref_get(&source->ref);
	return source;
}

static void source_free(struct kref *ref)
{
	struct pcilend_source *source = container_of(ref, struct pcilend_source, ref);

	WARN_ON(!list_empty(&source->hooks));
	kfree(source);
}

void pcilend_source_put(struct pcilend_source *source)
{
	if (source)
		kref_put(&source->ref, source_free);
}

void pcilend_source_take(struct pcilend_source *source)
{
	struct pcilend_hook *hook, *next;

	guard(mutex)(&source->lock);
	source->away = true;
	list_for_each_entry_safe(hook, next, &source->hooks, node) {
		list_del_init(&hook->node);
		hook->take(hook);
	}
}

void pcilend_source_give(struct pcilend_source *source)
{
	guard(mutex)(&source->lock);
	source->away = false;
}

int pcilend_source_begin(struct pcilend_source *source)
{
	if (!source)
		return 0;
	mutex_lock(&source->lock);
	if (!source->away)
		return 0;
	mutex_unlock(&source->lock);
	return -ENOTCONN;
}

void pcilend_source_hook(struct pcilend_source *source, struct pcilend_hook *hook)
{
	lockdep_assert_held(&source->lock);
	list_add_tail(&hook->node, &source->hooks);
}

void pcilend_source_end(struct pcilend_source *source)
{
	if (source)
		mutex_unlock(&source->lock);
}

void pcilend_source_unhook(struct pcilend_source *source, struct pcilend_hook *hook)
{
	guard(mutex)(&source->lock);
	list_del_init(&hook->node);
}
