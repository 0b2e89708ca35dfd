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

#include "base/base.h"
#include "borrower/remote.h"
#include "lender/admin.h"
#include "link/link.h"
#include "netlink/netlink.h"
#include "pcilend/version.h"
#include "power.h"
#include "segment/segment.h"
#include "virtual/virtual.h"

/*
 * What is wired into the protocol and the code: x86's interrupt range and root buses, pages of
 * 4 KiB, drivers' DMA by way of the NTB's IOMMU.
 */
#if !defined(CONFIG_X86_64) || !defined(CONFIG_PCI_MSI) || !defined(CONFIG_IOMMU_DMA)
#error "pcilend needs CONFIG_X86_64, CONFIG_PCI_MSI and CONFIG_IOMMU_DMA"
#endif
static_assert(PAGE_SIZE == PCILEND_PAGE);

static const struct pcilend_lender_segments lender_segments = {
	.open = pcilend_segment_open,
	.make_near = pcilend_near_make,
	.end_near = pcilend_near_end,
	.near_bytes = pcilend_near_bytes,
};

static int __init pcilend_init(void)
{
	int err;

	err = pcilend_base_init();
	if (err)
		return err;
	err = pcilend_hotplug_init();
	if (err)
		goto err_base;
	err = pcilend_virtual_init();
	if (err)
		goto err_hotplug;
	err = pcilend_lender_init(&lender_segments);
	if (err)
		goto err_virtual;
	err = pcilend_borrower_init(pcilend_lender_has_uuid);
	if (err)
		goto err_lender;
	err = pcilend_netlink_init();
	if (err)
		goto err_borrower;
	err = pcilend_power_init();
	if (err)
		goto err_netlink;
	err = pcilend_links_register(&pcilend_lender_link_ops, &pcilend_borrower_link_ops,
				     &pcilend_segment_link_ops);
	if (err)
		goto err_power;

	if (!pcilend_node)
		pr_warn("pcilend: no node id, links are refused: load the module with node=1..65535\n");
	return 0;

err_power:
	pcilend_power_exit();
err_netlink:
	pcilend_netlink_exit();
err_borrower:
	pcilend_borrower_exit();
err_lender:
	pcilend_lender_exit();
err_virtual:
	pcilend_virtual_exit();
err_hotplug:
	pcilend_hotplug_exit();
err_base:
	pcilend_base_exit();
	return err;
}

/* No lease is held in either role here: each one holds a reference on the module. */
static void __exit pcilend_exit(void)
{
	pcilend_links_unregister();
	pcilend_power_exit();
	pcilend_pins_exit();
	/* Remote functions may outlast their link. */
	flush_workqueue(pcilend_frontend_wq);
	pcilend_netlink_exit();
	pcilend_segments_exit();
	pcilend_borrower_exit();
	pcilend_lender_exit();
	pcilend_virtual_exit();
	pcilend_hotplug_exit();
	pcilend_base_exit();
}

module_init(pcilend_init);
module_exit(pcilend_exit);

MODULE_DESCRIPTION("Lending of PCI functions between hosts over NTB");
MODULE_AUTHOR("pcilend developers");
MODULE_LICENSE("GPL");
MODULE_VERSION(PCILEND_VERSION);
