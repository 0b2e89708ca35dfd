/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What all folders of pcilend.ko stand on: the module's parameters, its work queues, its counters, and
 * refusals of netlink requests. It knows nothing of links and functions, and has no lock that a caller
 * could notice; all but pcilend_refuse_fmt() may be called in any context.
 */
#ifndef PCILEND_BASE_H
#define PCILEND_BASE_H

#include <linux/atomic.h>
#include <linux/ktime.h>
#include <linux/netlink.h>
#include <linux/pcilend.h>
#include <linux/workqueue.h>

#include "pcilend/layout.h"
#include "pcilend/wire.h"

#define PCILEND_REASON_BYTES PCILEND_LAYOUT_TEXT_BYTES

/* Parameters of the module; they don't change. */
extern u16 pcilend_node;		/* 0: not set, links are refused */
extern u64 pcilend_boot;		/* random at load */
extern unsigned int pcilend_lease_ms;
extern unsigned int pcilend_max_lease_ms;	/* of leases that peers get here */
extern bool pcilend_unsafe_interrupts;
extern bool pcilend_direct;		/* adapters without an IOMMU are used */
extern bool pcilend_relay_msi;		/* no peer's function reaches our interrupts */
extern bool pcilend_p2p;		/* peer-to-peer wherever it is asked for */

extern struct workqueue_struct *pcilend_wq;	/* unbound, for everything that may sleep */
/* For what frontends do: a lender can cause as much of it as it has functions. */
extern struct workqueue_struct *pcilend_frontend_wq;

/* A boot id; neither half is 0. */
u64 pcilend_new_boot(void);

/* First of all. Return: 0; -EINVAL if parameters make no sense, which the log says; -ENOMEM. */
int pcilend_base_init(void);
void pcilend_base_exit(void);

/* Counts since the module was loaded, as COUNTERS_GET tells them. */
extern atomic64_t pcilend_counters[PCILEND_COUNTER_A_MAX + 1];

static inline void pcilend_count(enum pcilend_counter_attr counter)
{
	atomic64_inc(&pcilend_counters[counter]);
}

static inline u64 pcilend_now(void)
{
	return ktime_to_ms(ktime_get());
}

/* A change that listings show; makes dumps that it interrupts say so. */
void pcilend_changed(void);
unsigned int pcilend_generation(void);

/*
 * Refuses a netlink request with a constant sentence that is only known at run time, or longer
 * than what NL_SET_ERR_MSG_FMT() takes.
 */
static inline int pcilend_refuse(struct netlink_ext_ack *extack, int error, const char *why)
{
	if (extack && why)
		extack->_msg = why;
	return error;
}

/* The same with a text of up to PCILEND_REASON_BYTES that is made here. */
__printf(3, 4)
int pcilend_refuse_fmt(struct netlink_ext_ack *extack, int error, const char *format, ...);

#endif /* PCILEND_BASE_H */
