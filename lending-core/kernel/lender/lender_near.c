// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory of this host for who has borrowed a function of it: beside the function, so that what it
 * reads crosses no link. Who keeps segments makes it one, for that node; here is who may have how
 * much of it, and that it ends behind the fence, when the function reaches nothing any more.
 */

#include "lender/lender.h"
#include "pcilend/segment.h"

#define NEAR_SEGMENTS 64		/* of one function: no more can be mapped for it at once */

/* See pcilend_lender_init(). */
static const struct pcilend_lender_segments *lender_near_segments;

void pcilend_near_init(const struct pcilend_lender_segments *segments)
{
	lender_near_segments = segments;
}

/* What stands against @size bytes more; 0: nothing. */
static int lender_near_check(struct pcilend_function *fn, u64 size)
{
	u32 count;
	u64 bytes;

	lockdep_assert_held(&fn->lock);
	/* It reaches nothing by addresses of its own. */
	if (pcilend_function_is_direct(fn))
		return -EOPNOTSUPP;
	if (!fn->near)
		return -EACCES;
	bytes = lender_near_segments->near_bytes(fn->id, &count);
	if (count >= NEAR_SEGMENTS || bytes > fn->near || size > fn->near - bytes)
		return -ENOSPC;
	return 0;
}

static int lender_near_make(struct pcilend_function *fn, u32 node,
			    const struct pcilend_memory *memory, u32 *id)
{
	lockdep_assert_held(&fn->lock);
	return lender_near_segments->make_near(fn->id, fn->link, node, memory, id);
}

/**
 * pcilend_near_get - what PCILEND_MSG_NEAR asks for
 * @check: says whether who asks holds the lease, which is not of this host; with the function's
 *	lock
 * @id: set to that of the segment
 *
 * Return: 0; what @check says; -EOPNOTSUPP: the function is lent without an IOMMU; -EACCES: there
 * is none for this function; -ENOSPC: more than may be; -ENOMEM; or why it can't be offered.
 */
int pcilend_near_get(struct pcilend_function *fn, u32 node, u64 size,
		     int (*check)(struct pcilend_function *fn, const void *holder),
		     const void *holder, u32 *id)
{
	struct pcilend_memory memory;
	int err;

	mutex_lock(&fn->lock);
	err = check(fn, holder) ?: lender_near_check(fn, size);
	mutex_unlock(&fn->lock);
	if (err)
		return err;
	/* It may take its time, and others wait for that lock. */
	err = pcilend_memory_make(&memory, size);
	if (err)
		return err;
	mutex_lock(&fn->lock);
	err = check(fn, holder) ?: lender_near_check(fn, size);
	if (err)
		pcilend_memory_put(&memory);
	else
		err = lender_near_make(fn, node, &memory, id);
	mutex_unlock(&fn->lock);
	return err;
}

/* The function reaches nothing any more, and its registers are nobody's. */
void pcilend_near_fence(struct pcilend_function *fn)
{
	lockdep_assert_held(&fn->lock);
	if (fn->link)
		lender_near_segments->end_near(fn->id);
}

void pcilend_near_report(struct pcilend_function *fn, struct pcilend_report *report)
{
	u32 count;

	lockdep_assert_held(&fn->lock);
	report->near = fn->near;
	report->near_used = lender_near_segments->near_bytes(fn->id, &count);
}
