// SPDX-License-Identifier: GPL-2.0-only
/*
 * pcilend.ko: lends PCI functions between hosts that are joined by non-transparent bridges.
 *
 * Try it on two hosts whose NTB has a driver (node ids are yours to choose):
 *
 *	host 4 # modprobe pcilend node=4		host 8 # modprobe pcilend node=8
 *	host 4 # pcilend connect 8
 *	host 4 # pcilend add 0000:00:05.0
 *	host 4 # pcilend available 0000:00:05.0		host 8 # pcilend list
 */

#include <linux/module.h>
#include <linux/random.h>

#include "internal.h"
#include "pcilend/version.h"
#include "virtual/virtual.h"

#define MAX_LEASE_MS_DEFAULT 60000U

u16 pcilend_node;
u64 pcilend_boot;
unsigned int pcilend_lease_ms = PCILEND_LEASE_MS_DEFAULT;
unsigned int pcilend_max_lease_ms;
bool pcilend_unsafe_interrupts;
bool pcilend_direct;
bool pcilend_p2p;
bool pcilend_relay_msi;
struct workqueue_struct *pcilend_wq;
struct workqueue_struct *pcilend_frontend_wq;

atomic64_t pcilend_counters[PCILEND_COUNTER_A_MAX + 1];

static atomic_t generation = ATOMIC_INIT(1);

module_param_named(node, pcilend_node, ushort, 0444);
MODULE_PARM_DESC(node, "id of this host in the fabric, 1 to 65535, different on every host");

module_param_named(lease_ms, pcilend_lease_ms, uint, 0444);
MODULE_PARM_DESC(lease_ms, "a peer silent for that long loses its leases (2000 to 3600000, default 10000)");

module_param_named(max_lease_ms, pcilend_max_lease_ms, uint, 0444);
MODULE_PARM_DESC(max_lease_ms, "how long a borrower may be silent that asks for more (2000 to 3600000, default 60000, or lease_ms if that is more)");

module_param_named(unsafe_interrupts, pcilend_unsafe_interrupts, bool, 0444);
MODULE_PARM_DESC(unsafe_interrupts, "use hosts without interrupt remapping: a peer can raise any interrupt here");

module_param_named(direct, pcilend_direct, bool, 0444);
MODULE_PARM_DESC(direct, "use adapters without an IOMMU: a peer and its functions reach all memory and all interrupts here");

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

/* Either half is compared on its own in scratchpads, where 0 means "none". */
u64 pcilend_new_boot(void)
{
	u64 id;

	do {
		id = get_random_u64();
	} while (!lower_32_bits(id) || !upper_32_bits(id));
	return id;
}

static bool lease_time_valid(const char *name, unsigned int ms)
{
	if (ms >= PCILEND_LEASE_MS_MIN && ms <= PCILEND_LEASE_MS_MAX)
		return true;
	pr_err("pcilend: %s=%u is out of range: give %u to %u\n", name, ms, PCILEND_LEASE_MS_MIN,
	       PCILEND_LEASE_MS_MAX);
	return false;
}

static int __init pcilend_init(void)
{
	int err;

	if (!pcilend_max_lease_ms)
		pcilend_max_lease_ms = max(MAX_LEASE_MS_DEFAULT, pcilend_lease_ms);
	if (!lease_time_valid("lease_ms", pcilend_lease_ms) ||
	    !lease_time_valid("max_lease_ms", pcilend_max_lease_ms))
		return -EINVAL;
	pcilend_boot = pcilend_new_boot();
	pcilend_reach_start();

	pcilend_wq = alloc_workqueue("pcilend", WQ_UNBOUND, 0);
	pcilend_frontend_wq = alloc_workqueue("pcilend_frontends", WQ_UNBOUND, 0);
	if (!pcilend_wq || !pcilend_frontend_wq) {
		err = -ENOMEM;
		goto err_workqueues;
	}

	err = pcilend_bus_register();
	if (err)
		goto err_workqueues;
	err = pcilend_virtual_init();
	if (err)
		goto err_bus;
	err = pcilend_lender_init();
	if (err)
		goto err_virtual;
	err = pcilend_netlink_init();
	if (err)
		goto err_lender;
	err = pcilend_sleep_init();
	if (err)
		goto err_netlink;
	err = pcilend_links_register();
	if (err)
		goto err_sleep;

	if (!pcilend_node)
		pr_warn("pcilend: no node id, links are refused: load the module with node=1..65535\n");
	return 0;

err_sleep:
	pcilend_sleep_exit();
err_netlink:
	pcilend_netlink_exit();
err_lender:
	pcilend_lender_exit();
err_virtual:
	pcilend_virtual_exit();
err_bus:
	pcilend_bus_unregister();
err_workqueues:
	if (pcilend_frontend_wq)
		destroy_workqueue(pcilend_frontend_wq);
	if (pcilend_wq)
		destroy_workqueue(pcilend_wq);
	return err;
}

/* No lease is held in either role here: each one holds a reference on the module. */
static void __exit pcilend_exit(void)
{
	pcilend_links_unregister();
	pcilend_sleep_exit();
	pcilend_pins_exit();
	/* Remote functions may outlast their link. */
	flush_workqueue(pcilend_frontend_wq);
	pcilend_borrower_exit();
	pcilend_netlink_exit();
	pcilend_lender_exit();
	pcilend_virtual_exit();
	pcilend_bus_unregister();
	destroy_workqueue(pcilend_frontend_wq);
	destroy_workqueue(pcilend_wq);
}

module_init(pcilend_init);
module_exit(pcilend_exit);

MODULE_DESCRIPTION("Lending of PCI functions between hosts over NTB");
MODULE_AUTHOR("pcilend developers");
MODULE_LICENSE("GPL");
MODULE_VERSION(PCILEND_VERSION);
