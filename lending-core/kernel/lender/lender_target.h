/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a function has mapped of memory that can be taken away (base/source.h): a segment, or a BAR
 * that a process has by a dma-buf. It is hidden when it is taken, as a BAR of a function is that is
 * being reset, and stays so until whoever has mapped it unmaps it, or the lease ends.
 */
#ifndef PCILEND_LENDER_TARGET_H
#define PCILEND_LENDER_TARGET_H

#include "lender/lender.h"

struct lender_target;

/*
 * lender_target_begin - before such memory is mapped for @fn; nothing is taken until the end
 *
 * Return: what is kept with the mapping; NULL: it can't be taken away; or ERR_PTR(): -ENOTCONN if
 * it is taken already; -EOPNOTSUPP if this host may not carry DMA there; -EINVAL if the function
 * would reach itself; -EHOSTUNREACH if the link there is lost; -EXFULL.
 */
struct lender_target *lender_target_begin(struct pcilend_function *fn, u64 address,
					  const struct pcilend_memory *memory);
/* @error: it was not mapped, and @target is freed. NULL is allowed. */
void lender_target_end(struct lender_target *target, int error);
/* Before it is unmapped; frees it. NULL is allowed. */
void lender_target_drop(struct lender_target *target);
/* Its own from now on, for pcilend_memory_put() and kfree() when it is dropped. */
void lender_target_keep(struct lender_target *target, struct pcilend_memory *memory);

#endif /* PCILEND_LENDER_TARGET_H */
