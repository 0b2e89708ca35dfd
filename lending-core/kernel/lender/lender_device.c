// SPDX-License-Identifier: GPL-2.0-only
/*
 * Holding a function that can be borrowed: what must be true of it, the driver it is bound to, its
 * reset.
 */

#include <linux/delay.h>
#include <linux/io.h>
#include <linux/iommu.h>
#include <linux/module.h>
#include <linux/pci-ats.h>
#include <linux/slab.h>

#include "lender/lender.h"
#include "pcilend/health.h"

#define HEALTH_POLL_MS 20

static struct pci_driver pcilend_driver;

static bool lender_device_has_direct_region(struct pci_dev *pdev)
{
	struct iommu_resv_region *region;
	LIST_HEAD(regions);
	bool direct = false;

	iommu_get_resv_regions(&pdev->dev, &regions);
	list_for_each_entry(region, &regions, list)
		direct |= region->type == IOMMU_RESV_DIRECT;
	iommu_put_resv_regions(&pdev->dev, &regions);
	return direct;
}

static bool lender_device_has_memory_bar(struct pci_dev *pdev)
{
	int i;

	for (i = 0; i < PCI_STD_NUM_BARS; i++) {
		if (pci_resource_flags(pdev, i) & IORESOURCE_MEM && pci_resource_len(pdev, i))
			return true;
	}
	return false;
}

/* What keeps a borrower, by the function, from this host's memory and interrupts. */
static int lender_device_check_isolation(struct pci_dev *pdev, struct netlink_ext_ack *extack)
{
	struct iommu_group *group;
	int err;

	group = iommu_group_get(&pdev->dev);
	if (!group) {
		NL_SET_ERR_MSG(extack, "it is not behind an IOMMU: enable VT-d or AMD-Vi in the firmware and boot with intel_iommu=on or amd_iommu=on; or lend it without by 'pcilend available --direct'");
		return -ENODEV;
	}
	err = pcilend_group_check(pdev, group, extack);
	if (!err && !pcilend_unsafe_interrupts && !iommu_group_has_isolated_msi(group)) {
		NL_SET_ERR_MSG(extack, "interrupt remapping is off, so a borrower could raise any interrupt here: enable it in the firmware and boot without intremap=off, or load pcilend with unsafe_interrupts=1");
		err = -EPERM;
	}
	iommu_group_put(group);
	if (!err && lender_device_has_direct_region(pdev)) {
		NL_SET_ERR_MSG(extack, "the firmware reserves memory that it must reach (RMRR): disable that use in the firmware setup, or lend another one");
		err = -EPERM;
	}
	return err;
}

/*
 * pcilend_device_check - may this function be lent at all?
 * @direct: without an IOMMU that translates for it
 * @extack: says what is in the way, and what to do
 *
 * Return: 0 or a negative errno.
 */
int pcilend_device_check(struct pci_dev *pdev, bool direct, struct netlink_ext_ack *extack)
{
	int err;

	err = direct ? pcilend_group_check_direct(pdev, extack)
		     : lender_device_check_isolation(pdev, extack);
	if (err)
		return err;
	if (!pdev->reset_methods[0]) {
		NL_SET_ERR_MSG(extack, "it has no way to be reset (see its reset_method in sysfs), so the next borrower would get it as the last one left it: put it into a slot of its own, whose bus can be reset");
		return -EOPNOTSUPP;
	}
	if (!lender_device_has_memory_bar(pdev)) {
		NL_SET_ERR_MSG(extack, "all its registers are behind I/O BARs, and only memory can be reached through an NTB: lend one with a memory BAR");
		return -EOPNOTSUPP;
	}
	if (pdev->pin && !pdev->msi_cap && !pdev->msix_cap && !pcilend_intx_possible(pdev)) {
		NL_SET_ERR_MSG(extack, "it has legacy interrupts (INTx) only, and can't mask them by its command register, so a borrower could block the interrupt line: lend one with MSI or MSI-X");
		return -EOPNOTSUPP;
	}
	if (pci_num_vf(pdev)) {
		NL_SET_ERR_MSG(extack, "its virtual functions are enabled: write 0 to its sriov_numvfs first, or lend those");
		return -EBUSY;
	}
	return 0;
}

/* The constant part of its notices. */
void pcilend_device_describe(struct pci_dev *pdev, struct pcilend_msg_function *info)
{
	struct pcilend_identity identity = {
		.vendor = pdev->vendor,
		.device = pdev->device,
		.subsystem_vendor = pdev->subsystem_vendor,
		.subsystem_device = pdev->subsystem_device,
		.class_code = pdev->class,
		.lender = pcilend_node,
		.serial = pci_get_dsn(pdev),
		.function = PCI_FUNC(pdev->devfn),
		.segment = pci_domain_nr(pdev->bus),
		.bus = pdev->bus->number,
		.devfn = pdev->devfn,
	};
	int i;

#ifdef CONFIG_PCI_IOV
	if (pdev->is_virtfn) {
		struct pci_dev *physical = pci_physfn(pdev);

		identity.serial = pci_get_dsn(physical);
		identity.function = 256 + pci_iov_vf_id(pdev);
	}
#endif
	memset(info, 0, sizeof(*info));
	pcilend_uuid_make(info->uuid, &identity);
	info->vendor = cpu_to_le16(pdev->vendor);
	info->device = cpu_to_le16(pdev->device);
	info->subsystem_vendor = cpu_to_le16(pdev->subsystem_vendor);
	info->subsystem_device = cpu_to_le16(pdev->subsystem_device);
	info->class_revision = cpu_to_le32(pdev->class << 8 | pdev->revision);
	info->segment = cpu_to_le16(identity.segment);
	info->bus = identity.bus;
	info->devfn = identity.devfn;
	info->serial = cpu_to_le64(identity.serial);

	for (i = 0; i < PCI_STD_NUM_BARS; i++) {
		unsigned long flags = pci_resource_flags(pdev, i);
		u32 kind = 0;

		if (!pci_resource_len(pdev, i))
			continue;
		if (flags & IORESOURCE_IO)
			kind = PCILEND_BAR_IO;
		if (flags & IORESOURCE_MEM_64)
			kind |= PCILEND_BAR_MEM64;
		if (flags & IORESOURCE_PREFETCH)
			kind |= PCILEND_BAR_PREFETCH;
		info->bar[i].size = cpu_to_le64(pci_resource_len(pdev, i));
		info->bar[i].flags = cpu_to_le32(kind);
	}
	info->bar[PCI_ROM_RESOURCE].size = cpu_to_le64(pcilend_rom_size(pdev));
}

/*
 * Exporting works by whole pages, so the rest of the page of a smaller BAR must be nobody's. One
 * that starts in the middle of a page can't be exported.
 */
static bool lender_device_guard_page(struct pcilend_function *fn, int bar)
{
	struct resource *res = &fn->pdev->resource[bar];
	struct resource *guard;

	if (!PAGE_ALIGNED(res->start))
		return false;
	if (PAGE_ALIGNED(resource_size(res)))
		return true;
	guard = kzalloc(sizeof(*guard), GFP_KERNEL);
	if (!guard)
		return false;
	guard->start = res->end + 1;
	guard->end = PAGE_ALIGN(res->end + 1) - 1;
	guard->flags = res->flags;
	guard->name = "pcilend";
	if (request_resource(res->parent, guard)) {
		kfree(guard);
		return false;
	}
	fn->guard[bar] = guard;
	return true;
}

static void lender_device_drop_guards(struct pcilend_function *fn)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(fn->guard); i++) {
		if (!fn->guard[i])
			continue;
		release_resource(fn->guard[i]);
		kfree(fn->guard[i]);
		fn->guard[i] = NULL;
	}
}

/*
 * pcilend_device_bars - the BARs that a borrower's virtual configuration space is made with
 *
 * Without a copy of the ROM there is none, once our driver has the function.
 */
void pcilend_device_bars(struct pcilend_function *fn, bool has_rom,
			 struct pcilend_vconfig_bar bar[PCILEND_BARS])
{
	int i;

	for (i = 0; i < PCILEND_BARS; i++) {
		bar[i].size = le64_to_cpu(fn->info.bar[i].size);
		bar[i].flags = le32_to_cpu(fn->info.bar[i].flags);
	}
	if (!has_rom)
		bar[PCI_ROM_RESOURCE].size = 0;
}

/* What a borrower makes of the function, so that both sides agree on what is its to write. */
static int lender_device_take_snapshot(struct pcilend_function *fn)
{
	u8 *raw __free(kfree) = kmalloc(PCI_CFG_SPACE_EXP_SIZE, GFP_KERNEL);
	struct pcilend_vconfig_bar bar[PCILEND_BARS];
	int err;

	fn->config = kvmalloc(sizeof(*fn->config), GFP_KERNEL);
	if (!raw || !fn->config)
		return -ENOMEM;
	err = pcilend_device_config_read(fn, 0, raw, fn->pdev->cfg_size);
	if (err)
		return err;
	pcilend_device_bars(fn, fn->rom, bar);
	return pcilend_vconfig_init(fn->config, raw, fn->pdev->cfg_size, bar);
}

/*
 * What the class of a function says of it after a reset is in its registers, of classes that say
 * something. They are mapped from the start: a reset must not fail for want of memory. Virtual
 * functions may be off until their physical function's driver wants them.
 */
static bool lender_device_map_registers(struct pcilend_function *fn)
{
	struct pci_dev *pdev = fn->pdev;

	if (pdev->class != PCILEND_NVME_CLASS || pdev->is_virtfn ||
	    pci_resource_len(pdev, 0) < PCILEND_NVME_BYTES)
		return true;
	fn->registers = ioremap(pci_resource_start(pdev, 0), PCILEND_NVME_BYTES);
	return fn->registers;
}

static void lender_device_unmap_registers(struct pcilend_function *fn)
{
	if (fn->registers)
		iounmap(fn->registers);
	fn->registers = NULL;
}

static const char *lender_device_bind(struct pcilend_function *fn)
{
	struct pci_dev *pdev = fn->pdev;
	const char *why;
	int i;

	lockdep_assert_held(&fn->lock);
	if (pcilend_group_hold(fn))
		return "its IOMMU group is in use: see by whom in /sys/kernel/iommu_groups";
	if (pci_enable_device(pdev)) {
		why = "it can't be enabled: see the kernel log";
		goto err_owner;
	}
	if (pci_request_regions(pdev, "pcilend")) {
		why = "its BARs are in use by something else: see /proc/iomem";
		goto err_disable;
	}
	pci_clear_master(pdev);

	for (i = 0; i < PCI_STD_NUM_BARS; i++) {
		if (!(pci_resource_flags(pdev, i) & IORESOURCE_MEM) || !pci_resource_len(pdev, i))
			continue;
		if (!lender_device_guard_page(fn, i)) {
			why = "a BAR shares its page: boot with pci=resource_alignment=12@ADDRESS";
			goto err_guards;
		}
	}
	pcilend_rom_take(fn);
	pcilend_settings_begin(fn);
	why = "no memory, or its configuration space can't be read";
	if (pci_save_state(pdev))
		goto err_rom;
	fn->state = pci_store_saved_state(pdev);
	if (!fn->state || lender_device_take_snapshot(fn) || !lender_device_map_registers(fn))
		goto err_state;
	fn->held = true;
	if (pci_ats_supported(pdev) && !pcilend_function_is_direct(fn))
		pci_notice(pdev, "translates addresses by itself (ATS), and no IOMMU checks what it says: if its borrower may change its firmware or logic, boot with pci=noats\n");
	return NULL;

err_state:
	kvfree(fn->config);
	fn->config = NULL;
	kfree(fn->state);
	fn->state = NULL;
err_rom:
	pcilend_settings_end(fn);
	pcilend_rom_drop(fn);
err_guards:
	lender_device_drop_guards(fn);
	pci_release_regions(pdev);
err_disable:
	pci_disable_device(pdev);
err_owner:
	pcilend_group_unhold(fn);
	return why;
}

static void lender_device_unbind(struct pcilend_function *fn)
{
	lockdep_assert_held(&fn->lock);
	fn->held = false;
	lender_device_unmap_registers(fn);
	kvfree(fn->config);
	fn->config = NULL;
	kfree(fn->state);
	fn->state = NULL;
	pcilend_settings_end(fn);
	pcilend_rom_drop(fn);
	lender_device_drop_guards(fn);
	pci_release_regions(fn->pdev);
	pci_disable_device(fn->pdev);
	pcilend_group_unhold(fn);
	fn->info.flags &= ~PCILEND_FUNCTION_DIRECT;
}

static int lender_device_driver_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct pcilend_function *fn = pcilend_function_of(pdev);

	if (!fn || !READ_ONCE(fn->binding)) {
		pci_info(pdev, "not to be lent: run 'pcilend add' and 'pcilend available' instead of binding it by hand\n");
		if (fn)
			pcilend_function_put(fn);
		return -ENODEV;
	}
	mutex_lock(&fn->lock);
	fn->bind_error = lender_device_bind(fn);
	mutex_unlock(&fn->lock);
	if (fn->bind_error) {
		pcilend_function_put(fn);
		return -ENODEV;
	}
	pci_set_drvdata(pdev, fn);
	return 0;
}

/*
 * pcilend_device_lock - the locks of whoever may reset the function
 *
 * As in pci_reset_function(): first the bridge above, by whose bus it may be reset, then the
 * function; of each the device lock and access to its configuration space. Then fn->lock.
 */
void pcilend_device_lock(struct pcilend_function *fn)
{
	struct pci_dev *bridge = pci_upstream_bridge(fn->pdev);

	if (bridge)
		pci_dev_lock(bridge);
	pci_dev_lock(fn->pdev);
	mutex_lock(&fn->lock);
}

void pcilend_device_unlock(struct pcilend_function *fn)
{
	struct pci_dev *bridge = pci_upstream_bridge(fn->pdev);

	mutex_unlock(&fn->lock);
	pci_dev_unlock(fn->pdev);
	if (bridge)
		pci_dev_unlock(bridge);
}

/*
 * Ours, when it has been made unavailable; or somebody else's: the function is unplugged, or
 * unbound by hand. Then its lease ends here and now.
 *
 * The device lock is held, so the bridge's can be had only if nobody else has it: without it a
 * reset of the bus goes on as those of pci_try_reset_function() do.
 */
static void lender_device_driver_remove(struct pci_dev *pdev)
{
	struct pcilend_function *fn = pci_get_drvdata(pdev);
	struct pcilend_lease_event event = { .type = PCILEND_LEASE_MAKE_UNAVAILABLE };
	struct pci_dev *bridge = pci_upstream_bridge(pdev);

	if (bridge && !pci_dev_trylock(bridge))
		bridge = NULL;
	pci_cfg_access_lock(pdev);
	mutex_lock(&fn->lock);
	if (!pci_device_is_present(pdev))
		event.type = PCILEND_LEASE_UNPLUGGED;
	else if (fn->lease.state == PCILEND_FUNCTION_BORROWED ||
		 fn->lease.state == PCILEND_FUNCTION_FENCING ||
		 fn->lease.state == PCILEND_FUNCTION_RESETTING)
		event.type = PCILEND_LEASE_REVOKE;
	if (fn->lease.state != PCILEND_FUNCTION_ADDED &&
	    fn->lease.state != PCILEND_FUNCTION_LOCAL) {
		/* It may be there still, unbound by hand: nobody else says then that it is gone. */
		if (event.type == PCILEND_LEASE_UNPLUGGED)
			pcilend_function_queue_gone(fn);
		pcilend_function_apply(fn, &event, NULL);
		pcilend_function_settle(fn);
	}
	/* It did not survive its reset: nothing keeps it from leaving all the same. */
	if (fn->lease.state == PCILEND_FUNCTION_QUARANTINED) {
		event.type = PCILEND_LEASE_MAKE_UNAVAILABLE;
		pcilend_function_apply(fn, &event, NULL);
		pcilend_function_settle(fn);
	}
	fn->todo &= ~PCILEND_DO_RELEASE;
	lender_device_unbind(fn);
	mutex_unlock(&fn->lock);
	pci_cfg_access_unlock(pdev);
	if (bridge)
		pci_dev_unlock(bridge);
	pci_set_drvdata(pdev, NULL);
	pcilend_function_put(fn);
}

/*
 * Somebody else resets the function, or has: from now on it does no DMA and nobody reaches its
 * BARs, until pcilend_dma_recover_work() has reset it once more and its borrower is told. The
 * device lock is held, fn->lock is not.
 */
static void lender_device_driver_stop(struct pcilend_function *fn)
{
	mutex_lock(&fn->lock);
	pcilend_intx_pause(fn);
	if (pcilend_function_is_lent(fn)) {
		fn->foreign_reset = true;
		pcilend_dma_stop(fn);
		pcilend_device_hide(fn);
	}
	mutex_unlock(&fn->lock);
}

static bool lender_device_answers(struct pci_dev *pdev)
{
	u32 first, second;

	if (!pci_device_is_present(pdev))
		return false;
	pci_read_config_dword(pdev, PCI_CLASS_REVISION, &first);
	pci_read_config_dword(pdev, PCI_COMMAND, &second);
	return first == (pdev->class << 8 | pdev->revision) && second != U32_MAX;
}

/* An error that cost some transaction, but not the function, is its driver's to find. */
static pci_ers_result_t lender_device_driver_error_detected(struct pci_dev *pdev,
							    pci_channel_state_t state)
{
	struct pcilend_function *fn = pci_get_drvdata(pdev);

	if (state == pci_channel_io_normal)
		return PCI_ERS_RESULT_CAN_RECOVER;
	lender_device_driver_stop(fn);
	mutex_lock(&fn->lock);
	if (pcilend_function_is_lent(fn)) {
		/*
		 * If any function below that port has no driver, or one that does not handle
		 * errors, the PCI core resets all of them and gives up. 6.12 tells nobody; newer
		 * kernels say that all have failed for good, also of one that is well: a reset of
		 * our own finds out, and ends the lease if it is not.
		 */
		if (state == pci_channel_io_frozen)
			pcilend_dma_queue_late_recover(fn);
		else
			pcilend_dma_queue_recover(fn);
	}
	mutex_unlock(&fn->lock);
	return state == pci_channel_io_frozen ? PCI_ERS_RESULT_NEED_RESET :
						PCI_ERS_RESULT_DISCONNECT;
}

/* Also after an error that cost us nothing, if another driver wants a reset. */
static pci_ers_result_t lender_device_driver_slot_reset(struct pci_dev *pdev)
{
	struct pcilend_function *fn = pci_get_drvdata(pdev);
	bool well;

	lender_device_driver_stop(fn);
	mutex_lock(&fn->lock);
	pci_load_saved_state(pdev, fn->state);
	pci_restore_state(pdev);
	pci_clear_master(pdev);
	well = lender_device_answers(pdev);
	if (pcilend_function_is_lent(fn))
		pcilend_dma_queue_recover(fn);
	mutex_unlock(&fn->lock);
	return well ? PCI_ERS_RESULT_RECOVERED : PCI_ERS_RESULT_DISCONNECT;
}

/* Not of our own resets, which hold fn->lock. */
static void lender_device_driver_reset_prepare(struct pci_dev *pdev)
{
	struct pcilend_function *fn = pci_get_drvdata(pdev);

	device_lock_assert(&pdev->dev);
	if (!fn->own_reset)
		lender_device_driver_stop(fn);
}

static void lender_device_driver_reset_done(struct pci_dev *pdev)
{
	struct pcilend_function *fn = pci_get_drvdata(pdev);

	device_lock_assert(&pdev->dev);
	if (fn->own_reset)
		return;
	mutex_lock(&fn->lock);
	if (pcilend_function_is_lent(fn))
		pcilend_dma_queue_recover(fn);
	mutex_unlock(&fn->lock);
}

static const struct pci_error_handlers driver_errors = {
	.error_detected = lender_device_driver_error_detected,
	.slot_reset = lender_device_driver_slot_reset,
	.reset_prepare = lender_device_driver_reset_prepare,
	.reset_done = lender_device_driver_reset_done,
};

/* Sleep is refused before, see power.c; what is lent would lose its state without being told. */
static int lender_device_driver_suspend(struct device *dev)
{
	struct pcilend_function *fn = dev_get_drvdata(dev);
	bool lent;

	mutex_lock(&fn->lock);
	lent = pcilend_function_is_lent(fn);
	mutex_unlock(&fn->lock);
	return lent ? -EBUSY : 0;
}

/* Of a reboot or power-off, which ends no lease: who had it hears nothing more of this host. */
static void lender_device_driver_shutdown(struct pci_dev *pdev)
{
	struct pcilend_function *fn = pci_get_drvdata(pdev);

	lender_device_driver_stop(fn);
	if (!pci_wait_for_pending_transaction(pdev))
		pci_warn(pdev, "transactions are still pending at the shutdown\n");
}

static DEFINE_SIMPLE_DEV_PM_OPS(driver_pm_ops, lender_device_driver_suspend, NULL);

/*
 * No id table: bound by driver_override only. DMA is owned through the IOMMU group's owner, not
 * by the driver core, so that a private domain can be attached.
 */
static struct pci_driver pcilend_driver = {
	.name = "pcilend",
	.probe = lender_device_driver_probe,
	.remove = lender_device_driver_remove,
	.shutdown = lender_device_driver_shutdown,
	.err_handler = &driver_errors,
	.driver.pm = pm_sleep_ptr(&driver_pm_ops),
	.driver_managed_dma = true,
};

int pcilend_device_register(void)
{
	return pci_register_driver(&pcilend_driver);
}

void pcilend_device_unregister(void)
{
	pci_unregister_driver(&pcilend_driver);
}

/* Clears our override, or puts back the one that was there before us. */
static void lender_device_restore_override(struct pcilend_function *fn)
{
	device_set_driver_override(&fn->pdev->dev, fn->former_override ?: "");
	kfree(fn->former_override);
	fn->former_override = NULL;
}

/* Somebody who unbinds our driver by hand leaves our override behind. */
void pcilend_device_forget(struct pcilend_function *fn)
{
	char *override __free(kfree) = pcilend_driver_override(fn->pdev);

	if (!fn->held && override && !strcmp(override, pcilend_driver.name))
		lender_device_restore_override(fn);
}

/*
 * From whatever driver has it; that of VFIO would wait for the function's user, and that may be for
 * ever. Return: 0; -EBUSY if it has one.
 */
static int lender_device_unbind_former(struct pcilend_function *fn, struct netlink_ext_ack *extack)
{
	struct device *dev = &fn->pdev->dev;
	char name[32] = "";
	int claimed = 0;

	device_lock(dev);
	if (dev->driver && to_pci_driver(dev->driver)->driver_managed_dma)
		strscpy(name, dev->driver->name, sizeof(name));
	device_unlock(dev);
	if (*name)
		claimed = pcilend_group_claim(fn);
	if (claimed < 0)
		return pcilend_refuse_fmt(extack, -EBUSY, "%s has it in use: end the guest or program that uses it",
					  name);
	device_release_driver(dev);
	if (claimed)
		pcilend_group_unclaim(fn);
	return 0;
}

/*
 * pcilend_device_take - unbind the function from its driver, and bind it to ours
 *
 * fn->admin is held, the function's lock is not. On failure its own driver has it again.
 */
int pcilend_device_take(struct pcilend_function *fn, struct netlink_ext_ack *extack)
{
	struct pci_dev *pdev = fn->pdev;
	int err;

	pcilend_device_forget(fn);
	fn->former_override = pcilend_driver_override(pdev);
	err = device_set_driver_override(&pdev->dev, pcilend_driver.name);
	if (err) {
		kfree(fn->former_override);
		fn->former_override = NULL;
		return err;
	}

	err = lender_device_unbind_former(fn, extack);
	if (err) {
		lender_device_restore_override(fn);
		return err;
	}
	WRITE_ONCE(fn->binding, true);
	fn->bind_error = NULL;
	err = device_attach(&pdev->dev);
	WRITE_ONCE(fn->binding, false);
	if (err == 1 && READ_ONCE(fn->held))
		return 0;

	pcilend_refuse(extack, 0, fn->bind_error ?:
		       "pcilend's driver did not bind to it: see the kernel log");
	lender_device_restore_override(fn);
	if (device_attach(&pdev->dev) < 0)
		pci_warn(pdev, "its own driver does not take it back\n");
	return err < 0 ? err : -EBUSY;
}

/* Back to its own driver. fn->admin is held, the function's lock is not. */
void pcilend_device_release(struct pcilend_function *fn)
{
	struct pci_dev *pdev = fn->pdev;

	lender_device_restore_override(fn);
	device_release_driver(&pdev->dev);
	if (device_attach(&pdev->dev) < 0)
		pci_warn(pdev, "its own driver does not take it back\n");
}

static const char *lender_device_nvme_health(const void __iomem *registers)
{
	unsigned long deadline = jiffies;
	enum pcilend_health health;
	const char *why = NULL;
	u64 cap;

	cap = readl(registers + PCILEND_NVME_CAP) |
	      (u64)readl(registers + PCILEND_NVME_CAP + 4) << 32;
	deadline += msecs_to_jiffies(pcilend_health_nvme_ms(cap));
	for (;;) {
		bool last = time_after_eq(jiffies, deadline);

		health = pcilend_health_nvme(cap, readl(registers + PCILEND_NVME_CSTS), &why);
		if (health != PCILEND_HEALTH_WAIT || last)
			break;
		msleep(HEALTH_POLL_MS);
	}
	return health == PCILEND_HEALTH_READY ? NULL : why;
}

static const char *lender_device_class_health(struct pcilend_function *fn)
{
	struct pci_dev *pdev = fn->pdev;
	const char *why;
	u16 command;

	if (!fn->registers)
		return NULL;
	pci_read_config_word(pdev, PCI_COMMAND, &command);
	pci_write_config_word(pdev, PCI_COMMAND, command | PCI_COMMAND_MEMORY);
	why = lender_device_nvme_health(fn->registers);
	pci_write_config_word(pdev, PCI_COMMAND, command);
	return why;
}

/*
 * pcilend_device_reset - reset, restore the state we found it in, see whether it answers
 *
 * Meanwhile nobody reaches its BARs: an access to a function that does not decode its memory is an
 * error that may bring this host down (CVE-2020-12888). On failure nobody does afterwards.
 *
 * Bus mastering is off afterwards. The locks of pcilend_device_lock() are held.
 * Return: NULL, or a constant sentence: what went wrong.
 */
const char *pcilend_device_reset(struct pcilend_function *fn)
{
	struct pci_dev *pdev = fn->pdev;
	const char *why;
	int err;

	device_lock_assert(&pdev->dev);
	lockdep_assert_held(&fn->lock);

	pcilend_count(PCILEND_COUNTER_A_RESETS);
	pcilend_intx_pause(fn);
	pci_clear_master(pdev);
	pcilend_device_hide(fn);
	if (!pci_device_is_present(pdev))
		return "it is not there any more";
	fn->own_reset = true;
	err = pci_reset_function_locked(pdev);
	fn->own_reset = false;
	if (err)
		return "its reset failed: power the slot or the host off and on";
	/* What the borrower changed was saved and restored around the reset. */
	pci_load_saved_state(pdev, fn->state);
	pci_restore_state(pdev);
	pci_clear_master(pdev);
	if (!lender_device_answers(pdev))
		return "it does not answer after its reset: power the slot or the host off and on";
	why = lender_device_class_health(fn);
	if (!why && pcilend_device_show(fn))
		why = "this host has no memory left to let its BARs be reached again";
	return why;
}
