// SPDX-License-Identifier: GPL-2.0-only
/* Configuration spaces for people: of local functions, and of those borrowed. */

#include <linux/slab.h>

#include "lender/lender.h"
#include "netlink/netlink.h"

/* What a borrower's virtual configuration space begins as. */
static int config_get_emulate(struct pcilend_function *fn, u8 *space, u32 length)
{
	struct pcilend_vconfig *config;
	struct pcilend_vconfig_bar bar[PCILEND_BARS];
	int err;

	config = kvmalloc(sizeof(*config), GFP_KERNEL);
	if (!config)
		return -ENOMEM;
	/* Before our driver has it nobody knows whether its ROM can be read. */
	pcilend_device_bars(fn, fn->rom || !fn->held, bar);
	err = pcilend_vconfig_init(config, space, length, bar);
	if (!err)
		memcpy(space, config->value, length);
	kvfree(config);
	return err;
}

static int config_get_local(u32 id, bool emulated, u8 *space, u32 *length,
			    struct netlink_ext_ack *extack)
{
	struct pcilend_function *fn = pcilend_function_find(id);
	int err;

	if (!fn)
		return pcilend_refuse(extack, -ENODEV, "this host has no function with that id: see 'pcilend list'");
	*length = fn->pdev->cfg_size;
	mutex_lock(&fn->lock);
	err = pcilend_device_config_read(fn, 0, space, *length);
	if (!err && emulated)
		err = config_get_emulate(fn, space, *length);
	mutex_unlock(&fn->lock);
	pcilend_function_put(fn);
	return pcilend_refuse(extack, err,
			      err ? "it does not answer: see whether its slot has power" : NULL);
}

static int config_get_remote(u32 id, u8 *space, u32 *length, struct netlink_ext_ack *extack)
{
	struct pcilend_remote *remote = pcilend_remote_get(id);
	struct pci_dev *pdev;
	u32 value, i;

	if (!remote)
		return pcilend_refuse(extack, -ENODEV, "no lender offers a function with that id to this host: see 'pcilend list'");
	pdev = pcilend_remote_virtual(remote);
	pcilend_remote_put(remote);
	if (!pdev)
		return pcilend_refuse(extack, -ESTALE, "this host has not borrowed it: borrow it first, or look at it on its lender");
	*length = pdev->cfg_size;
	for (i = 0; i < *length; i += sizeof(value)) {
		pci_read_config_dword(pdev, i, &value);
		put_unaligned_le32(value, space + i);
	}
	pci_dev_put(pdev);
	return 0;
}

/*
 * pcilend_config_get - the configuration space of a function
 * @emulated: of a local one: as a borrower sees it at first, not as it is
 * @space: PCI_CFG_SPACE_EXP_SIZE bytes
 * @length: set to how many of them there are
 */
int pcilend_config_get(u32 id, bool emulated, u8 *space, u32 *length,
		       struct netlink_ext_ack *extack)
{
	return pcilend_id_node(id) == pcilend_node ?
	       config_get_local(id, emulated, space, length, extack) :
	       config_get_remote(id, space, length, extack);
}
