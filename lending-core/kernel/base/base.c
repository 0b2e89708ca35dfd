// SPDX-License-Identifier: GPL-2.0-only
/* The module's parameters and work queues, and what everybody needs. */

#include <linux/module.h>
#include <linux/random.h>

#include "base/base.h"
#include "base/memory.h"

#define MAX_LEASE_MS_DEFAULT 60000U

u16 pcilend_node;
u64 pcilend_boot;
unsigned int pcilend_lease_ms = PCILEND_LEASE_MS_DEFAULT;
unsigned int pcilend_max_lease_ms;
bool pcilend_unsafe_interrupts;
bool pcilend_unsafe_groups;
bool pcilend_direct;
unsigned int pcilend_segment_mib = 4096;
bool pcilend_p2p;
bool pcilend_relay_msi;
struct workqueue_struct *pcilend_wq;
struct workqueue_struct *pcilend_channel_wq;
struct workqueue_struct *pcilend_frontend_wq;

atomic64_t pcilend_counters[PCILEND_COUNTER_A_MAX + 1];

static atomic_t generation = ATOMIC_INIT(1);

module_param_named(node, pcilend_node, ushort, 0444);
MODULE_PARM_DESC(node, "id of this host in the fabric, 1 to 65535, different on every host");

module_param_named(lease_ms, pcilend_lease_ms, uint, 0444);
MODULE_PARM_DESC(lease_ms, "a peer silent for that long loses its leases (5000 to 3600000, default 10000)");

module_param_named(max_lease_ms, pcilend_max_lease_ms, uint, 0444);
MODULE_PARM_DESC(max_lease_ms, "how long a borrower may be silent that asks for more (5000 to 3600000, default 60000, or lease_ms if that is more)");

module_param_named(unsafe_interrupts, pcilend_unsafe_interrupts, bool, 0444);
MODULE_PARM_DESC(unsafe_interrupts, "use hosts without interrupt remapping: a peer can raise any interrupt here; with it, tenants of one adapter each other's");

module_param_named(unsafe_groups, pcilend_unsafe_groups, bool, 0444);
MODULE_PARM_DESC(unsafe_groups, "use adapters that share an IOMMU group: a peer reaches the DMA of the other devices in it");

module_param_named(direct, pcilend_direct, bool, 0444);
MODULE_PARM_DESC(direct, "use adapters without an IOMMU: a peer and its functions reach all memory and all interrupts here");

module_param_named(segment_mib, pcilend_segment_mib, uint, 0444);
MODULE_PARM_DESC(segment_mib, "memory of segments that each peer may be offered, in MiB (default 4096)");

module_param_named(p2p, pcilend_p2p, bool, 0444);
MODULE_PARM_DESC(p2p, "let lent functions reach each other by DMA though the kernel does not know whether this host's root complex routes that");

module_param_named(relay_msi, pcilend_relay_msi, bool, 0444);
MODULE_PARM_DESC(relay_msi, "lenders relay MSI of functions borrowed here, which need no window onto our interrupts");

void pcilend_changed(void)
{
	atomic_inc(&generation);
}

unsigned int pcilend_generation(void)
{
	return atomic_read(&generation);
}

int pcilend_refuse_fmt(struct netlink_ext_ack *extack, int error, const char *format, ...)
{
	char text[NETLINK_MAX_FMTMSG_LEN];
	va_list args;

	va_start(args, format);
	vscnprintf(text, sizeof(text), format, args);
	va_end(args);
	NL_SET_ERR_MSG_FMT(extack, "%s", text);
	return error;
}

static bool base_sleep_coming;
static bool base_goes_down;

bool pcilend_goes_down(void)
{
	return READ_ONCE(base_goes_down);
}

void pcilend_go_down(void)
{
	WRITE_ONCE(base_goes_down, true);
	smp_mb();	/* pairs with that of pcilend_sleeps() */
}

bool pcilend_sleeps(void)
{
	smp_mb();	/* pairs with those of pcilend_sleep_comes() and pcilend_go_down() */
	return READ_ONCE(base_sleep_coming) || READ_ONCE(base_goes_down);
}

void pcilend_sleep_comes(bool coming)
{
	WRITE_ONCE(base_sleep_coming, coming);
	smp_mb();	/* pairs with that of pcilend_sleeps() */
}

/* Either half is compared on its own in scratchpads, where 0 means "none". */
u64 pcilend_new_boot(void)
{
	u64 id;

	do {
		id = get_random_u64();
	} while (!lower_32_bits(id) || !upper_32_bits(id));
	return id;
}

static bool base_lease_time_valid(const char *name, unsigned int ms)
{
	if (ms >= PCILEND_LEASE_MS_MIN && ms <= PCILEND_LEASE_MS_MAX)
		return true;
	pr_err("pcilend: %s=%u is out of range: give %u to %u\n", name, ms, PCILEND_LEASE_MS_MIN,
	       PCILEND_LEASE_MS_MAX);
	return false;
}

static void base_destroy_queues(void)
{
	if (pcilend_frontend_wq)
		destroy_workqueue(pcilend_frontend_wq);
	if (pcilend_channel_wq)
		destroy_workqueue(pcilend_channel_wq);
	if (pcilend_wq)
		destroy_workqueue(pcilend_wq);
}

int pcilend_base_init(void)
{
	int err;

	if (!pcilend_max_lease_ms)
		pcilend_max_lease_ms = max(MAX_LEASE_MS_DEFAULT, pcilend_lease_ms);
	if (!base_lease_time_valid("lease_ms", pcilend_lease_ms) ||
	    !base_lease_time_valid("max_lease_ms", pcilend_max_lease_ms))
		return -EINVAL;
	pcilend_boot = pcilend_new_boot();
	pcilend_wq = alloc_workqueue("pcilend", WQ_UNBOUND, 0);
	pcilend_channel_wq = alloc_workqueue("pcilend_channel",
					     WQ_UNBOUND | WQ_MEM_RECLAIM | WQ_HIGHPRI, 0);
	pcilend_frontend_wq = alloc_workqueue("pcilend_frontends", WQ_UNBOUND, 0);
	err = pcilend_memory_init();
	if (err)
		goto err_queues;
	if (pcilend_wq && pcilend_channel_wq && pcilend_frontend_wq)
		return 0;
	err = -ENOMEM;
	pcilend_memory_exit();
err_queues:
	base_destroy_queues();
	return err;
}

void pcilend_base_exit(void)
{
	pcilend_memory_exit();
	base_destroy_queues();
	pcilend_ones_exit();
}
