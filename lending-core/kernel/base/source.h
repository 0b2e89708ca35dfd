/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where memory comes from that can be taken away at any time: a segment of another host, a BAR. Who
 * has it takes it by pcilend_source_take(), and on return no function reaches it; who maps it for a
 * function hooks in for that:
 *
 *	pcilend_source_begin()		fails once it is taken; nothing is taken from here on
 *	maps it, and on success pcilend_source_hook()
 *	pcilend_source_end()
 *
 * Inside of its lock: that of an IOMMU group or of a domain of VFIO, and those below them (base.h).
 */
#ifndef PCILEND_SOURCE_H
#define PCILEND_SOURCE_H

#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>

struct pcilend_source {
	struct kref ref;
	struct mutex lock;		/* the rest */
	bool away;
	struct list_head hooks;		/* of struct pcilend_hook */
};

/*
 * One mapping of it.
 * @take: on return nothing is reached by that mapping. Once, with the source's lock; may sleep
 */
struct pcilend_hook {
	struct list_head node;		/* source's lock */
	void (*take)(struct pcilend_hook *hook);
};

/* One that is there, with one reference; or NULL. */
struct pcilend_source *pcilend_source_make(void);
struct pcilend_source *pcilend_source_get(struct pcilend_source *source);
/* NULL is allowed. */
void pcilend_source_put(struct pcilend_source *source);

/* Repeated it does nothing. May sleep. */
void pcilend_source_take(struct pcilend_source *source);
/* It is there again, for those who map it from now on. */
void pcilend_source_give(struct pcilend_source *source);

/* Return: 0; or -ENOTCONN, and there is nothing to end: it is taken. NULL: it never is. */
int pcilend_source_begin(struct pcilend_source *source);
void pcilend_source_hook(struct pcilend_source *source, struct pcilend_hook *hook);
void pcilend_source_end(struct pcilend_source *source);
/* @hook->take is not running, nor will it be called. */
void pcilend_source_unhook(struct pcilend_source *source, struct pcilend_hook *hook);

#endif /* PCILEND_SOURCE_H */
