// SPDX-License-Identifier: GPL-2.0-only
/*
 * A virtual function: a root bus with one function, whose config space is a copy (virtual_config.c)
 * and whose BARs are pieces of the NTB's memory windows.
 *
 * The struct pci_dev may go and come: anybody may remove it by hand and scan the bus again.
 */

#include <linux/idr.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "base/compat.h"
#include "pcilend/identity.h"
#include "pcilend/pcilend.h"
#include "link/link.h"
#include "virtual/virtual.h"
#include "virtual/virtual_config.h"

/*
 * For functions without a place of their own (pcilend_pci_place()): above every real segment, and
 * above VMD's. VMMs can't be given these by their PCI addresses.
 */
#define DOMAIN_FIRST 0x1e000
#define DOMAIN_LAST 0x1efff

struct pcilend_virtual {
	struct pci_sysdata sysdata;
	u8 bus_number;
	bool numbered;			/* its domain is from `domains` */
	struct pci_dev *ntb;
	struct pcilend_hotplug *removal;
	struct pcilend_remote *remote;
	const struct pcilend_virtual_ops *ops;
	const struct pcilend_frontend *frontend;
	struct pci_bus *bus;
	struct irq_domain *msi;
	struct pcilend_virtual_relay *relay;	/* NULL: it reaches this host's interrupts */
	struct pcilend_virtual_bar bar[PCILEND_BARS];
	struct resource window[PCILEND_BARS];

	raw_spinlock_t lock;		/* pdev and driver */
	struct pci_dev *pdev;		/* NULL: removed by hand, or not found yet */
	char driver[32];		/* empty: none is bound */

	struct pcilend_virtual_config config;
};

static DEFINE_IDA(domains);

struct workqueue_struct *pcilend_virtual_wq;

static int virtual_windows_claim(struct pcilend_virtual *virtual,
				 const struct pcilend_virtual_bar bar[PCILEND_BARS],
				 struct list_head *resources)
{
	unsigned int i;
	int err;

	for (i = 0; i < PCILEND_BARS; i++) {
		struct resource *window = &virtual->window[i];

		if (!bar[i].size)
			continue;
		window->name = "pcilend";
		window->start = bar[i].address;
		window->end = bar[i].address + bar[i].size - 1;
		window->flags = IORESOURCE_MEM | IORESOURCE_MEM_64;
		err = pcilend_window_claim(virtual->ntb, window);
		if (err) {
			pci_err(virtual->ntb, err == -ENXIO ?
				"BAR %u at %pR is outside the memory windows\n" :
				"BAR %u at %pR is taken\n", i, window);
			return err;
		}
		/* What a driver tells the function of its own BAR it understands (NVMe's CMB). */
		pci_add_resource_offset(resources, window,
					bar[i].bus ? window->start - bar[i].bus : 0);
	}
	return 0;
}

static struct pcilend_virtual *virtual_to_virtual(struct pci_bus *bus)
{
	return container_of(to_pci_sysdata(bus), struct pcilend_virtual, sysdata);
}

static int virtual_read(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 *value)
{
	PCI_SET_ERROR_RESPONSE(value);
	if (devfn)
		return PCIBIOS_DEVICE_NOT_FOUND;
	return pcilend_virtual_config_read(&virtual_to_virtual(bus)->config, where, size, value);
}

static int virtual_write(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 value)
{
	if (devfn)
		return PCIBIOS_DEVICE_NOT_FOUND;
	return pcilend_virtual_config_write(&virtual_to_virtual(bus)->config, where, size, value);
}

static struct pci_ops virtual_config_ops = {
	.read = virtual_read,
	.write = virtual_write,
};

/* The last reference to the bus is gone, and with it to its config space. */
static void virtual_bridge_release(struct pci_host_bridge *bridge)
{
	kfree(bridge->release_data);
}

/*
 * The resources as they are, whatever the registers say: a 32-bit BAR may well lie above 4 GiB
 * here, since this host's address never reaches the function. A BAR that can't be claimed is none,
 * so that nobody puts it elsewhere.
 */
static int virtual_claim_bars(struct pcilend_virtual *virtual, struct pci_dev *pdev)
{
	const struct pcilend_virtual_bar *bar = virtual->bar;
	unsigned int i;
	int err = 0;

	for (i = 0; i < PCI_NUM_RESOURCES; i++) {
		struct resource *res = &pdev->resource[i];

		if (i < PCILEND_BARS && bar[i].size && !err) {
			res->name = pci_name(pdev);
			res->start = bar[i].address;
			res->end = bar[i].address + bar[i].size - 1;
			res->flags |= IORESOURCE_MEM | IORESOURCE_SIZEALIGN;
			res->flags &= ~IORESOURCE_UNSET;
			err = pci_claim_resource(pdev, i);
			if (!err)
				continue;
		}
		res->start = 0;
		res->end = 0;
		res->flags = 0;
	}
	return err;
}

/* The PCI core has found the function; no driver has. */
static int virtual_pdev_added(struct pcilend_virtual *virtual, struct pci_dev *pdev)
{
	const struct pcilend_virtual_intx *intx = virtual->config.intx;
	const struct pcilend_frontend *frontend = virtual->frontend;
	int err = virtual_claim_bars(virtual, pdev);

	if (!err && frontend->driver_override)
		err = device_set_driver_override(&pdev->dev, frontend->driver_override);
	if (err) {
		pci_err(pdev, "can't be used (error %d)\n", err);
		return err;
	}
	/* Intel's IOMMU sets that of all devices whose domain has 16 bits, to none for ours. */
	dev_set_msi_domain(&pdev->dev, virtual->msi);
	/* Nothing here shows that its pin is asserted: VFIO has it for itself, and disables it. */
	pdev->broken_intx_masking = true;
	pdev->irq = intx ? pcilend_virtual_intx_irq(intx) : 0;
	/* Else the PCI core asks the firmware where its pin leads, and warns. */
	pdev->pin = 0;
	if (frontend->found)
		frontend->found(virtual->remote, pdev);
	pci_dev_get(pdev);
	guard(raw_spinlock_irqsave)(&virtual->lock);
	virtual->pdev = pdev;
	return 0;
}

static void virtual_pdev_removed(struct pcilend_virtual *virtual, struct pci_dev *pdev)
{
	scoped_guard(raw_spinlock_irqsave, &virtual->lock) {
		if (virtual->pdev != pdev)
			return;
		virtual->pdev = NULL;
	}
	pci_dev_put(pdev);
}

static void virtual_driver_changed(struct pcilend_virtual *virtual, const char *name)
{
	scoped_guard(raw_spinlock_irqsave, &virtual->lock)
		strscpy(virtual->driver, name, sizeof(virtual->driver));
	virtual->ops->changed(virtual->remote);
}

/*
 * Who has had the function and clears the override, as libvirt does for what was bound to vfio-pci,
 * gives it back to the frontend's driver. The DMA of any other is blocked: it would wait for
 * the function until it times out.
 */
static void virtual_driver_gone(struct pcilend_virtual *virtual, struct pci_dev *pdev)
{
	const char *override = virtual->frontend->driver_override;

	if (override && pcilend_default_driver_override(pdev, override))
		pci_err(pdev, "out of memory: write '%s' to its driver_override\n", override);
	virtual_driver_changed(virtual, "");
}

static int virtual_bus_event(struct notifier_block *nb, unsigned long event, void *data)
{
	struct pci_dev *pdev = to_pci_dev(data);

	if (pdev->bus->ops != &virtual_config_ops)
		return NOTIFY_DONE;
	switch (event) {
	case BUS_NOTIFY_ADD_DEVICE:
		virtual_pdev_added(virtual_to_virtual(pdev->bus), pdev);
		break;
	case BUS_NOTIFY_DEL_DEVICE:
		virtual_pdev_removed(virtual_to_virtual(pdev->bus), pdev);
		break;
	case BUS_NOTIFY_BOUND_DRIVER:
		virtual_driver_changed(virtual_to_virtual(pdev->bus), pdev->dev.driver->name);
		break;
	case BUS_NOTIFY_UNBOUND_DRIVER:
		virtual_driver_gone(virtual_to_virtual(pdev->bus), pdev);
		break;
	}
	return NOTIFY_OK;
}

static struct notifier_block bus_notifier = { .notifier_call = virtual_bus_event };

/* The IOMMU core's notifier comes after this one, and before the one above. */
static int virtual_bus_event_early(struct notifier_block *nb, unsigned long event, void *data)
{
	struct pci_dev *pdev = to_pci_dev(data);
	struct pcilend_virtual *virtual;

	if (pdev->bus->ops != &virtual_config_ops || event != BUS_NOTIFY_ADD_DEVICE)
		return NOTIFY_OK;
	virtual = virtual_to_virtual(pdev->bus);
	if (virtual->ops->claim(virtual->remote, pdev))
		pci_err(pdev, "out of memory: VFIO can't use it\n");
	return NOTIFY_OK;
}

static struct notifier_block early_notifier = {
	.notifier_call = virtual_bus_event_early,
	.priority = 16,
};

int pcilend_virtual_init(void)
{
	int err;

	pcilend_virtual_wq = alloc_workqueue("pcilend_virtual", WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	if (!pcilend_virtual_wq)
		return -ENOMEM;
	err = bus_register_notifier(&pci_bus_type, &early_notifier);
	if (err)
		goto err_workqueue;
	err = bus_register_notifier(&pci_bus_type, &bus_notifier);
	if (err)
		goto err_early;
	return 0;

err_early:
	bus_unregister_notifier(&pci_bus_type, &early_notifier);
err_workqueue:
	destroy_workqueue(pcilend_virtual_wq);
	return err;
}

void pcilend_virtual_exit(void)
{
	bus_unregister_notifier(&pci_bus_type, &bus_notifier);
	bus_unregister_notifier(&pci_bus_type, &early_notifier);
	destroy_workqueue(pcilend_virtual_wq);
}

/* Of its MSI-X table; 0: it has none. MSI has registers in configuration space only. */
static phys_addr_t virtual_first_vector_control(const struct pcilend_virtual *virtual)
{
	const struct pcilend_vconfig *config = &virtual->config.space;
	u32 table, bar;

	if (!config->msix)
		return 0;
	table = pcilend_vconfig_read(config, config->msix + PCI_MSIX_TABLE, 4);
	bar = table & PCI_MSIX_TABLE_BIR;
	if (!virtual->bar[bar].size)
		return 0;
	return virtual->bar[bar].address + (table & PCI_MSIX_TABLE_OFFSET) +
	       PCI_MSIX_ENTRY_VECTOR_CTRL;
}

static void virtual_destroy_msi(struct pcilend_virtual *virtual)
{
	pcilend_virtual_msi_destroy(virtual->msi);
	if (virtual->relay)
		pcilend_virtual_relay_destroy(virtual->relay);
}

/* A name for the interrupt domain that says whose it is. */
static int virtual_create_msi(struct pcilend_virtual *virtual, u64 interrupts)
{
	char name[32];

	if (!interrupts) {
		phys_addr_t control = virtual_first_vector_control(virtual);

		virtual->relay = pcilend_virtual_relay_create(virtual->remote, virtual->ops,
							      control);
		if (!virtual->relay)
			return -ENOMEM;
	}
	snprintf(name, sizeof(name), "pcilend-%04x:%02x", virtual->sysdata.domain,
		 virtual->bus_number);
	virtual->msi = pcilend_virtual_msi_create(virtual->ntb, interrupts, virtual->relay, name);
	if (virtual->msi)
		return 0;
	if (virtual->relay)
		pcilend_virtual_relay_destroy(virtual->relay);
	pci_err(virtual->ntb, "no interrupt domain to stack on\n");
	return -EOPNOTSUPP;
}

/* The same of a function that has a pin. Return: 0, also without one; or -ENOMEM. */
static int virtual_create_intx(struct pcilend_virtual *virtual)
{
	enum pcilend_intx_state allowed = pcilend_vconfig_intx(&virtual->config.space);
	struct pcilend_virtual_intx *intx;
	char name[32];

	if (allowed == PCILEND_INTX_OFF)
		return 0;
	snprintf(name, sizeof(name), "pcilend-intx-%04x:%02x", virtual->sysdata.domain,
		 virtual->bus_number);
	intx = pcilend_virtual_intx_create(virtual->remote, virtual->ops, name);
	if (!intx)
		return -ENOMEM;
	pcilend_virtual_intx_allow(intx, allowed);
	virtual->config.intx = intx;
	return 0;
}

/* The same on every borrower, if there is no such bus in this host. */
static int virtual_take_place(struct pcilend_virtual *virtual)
{
	u32 domain;
	int number;

	if (pcilend_pci_place(virtual->remote->id, &domain, &virtual->bus_number)) {
		virtual->sysdata.domain = domain;
		return 0;
	}
	number = ida_alloc_range(&domains, DOMAIN_FIRST, DOMAIN_LAST, GFP_KERNEL);
	if (number < 0)
		return number;
	virtual->bus_number = 0;
	virtual->sysdata.domain = number;
	virtual->numbered = true;
	return 0;
}

static void virtual_leave_place(struct pcilend_virtual *virtual)
{
	if (virtual->numbered)
		ida_free(&domains, virtual->sysdata.domain);
}

struct virtual_making {
	struct pcilend_virtual *virtual;
	struct list_head *resources;
	int error;
};

/* With pci_lock_rescan_remove(). There may be a bus afterwards that has to be removed. */
static void virtual_make_bus(void *argument)
{
	struct virtual_making *making = argument;
	struct pcilend_virtual *virtual = making->virtual;

	if (pci_find_bus(virtual->sysdata.domain, virtual->bus_number)) {
		pci_err(virtual->ntb, "PCI bus %04x:%02x is in use in this host: add function %x with another index on its lender\n",
			virtual->sysdata.domain, virtual->bus_number, virtual->remote->id);
		making->error = -EEXIST;
		return;
	}
	virtual->bus = pci_create_root_bus(&virtual->ntb->dev, virtual->bus_number,
					   &virtual_config_ops, &virtual->sysdata,
					   making->resources);
	if (!virtual->bus) {
		making->error = -ENOMEM;
		return;
	}
	pci_set_host_bridge_release(to_pci_host_bridge(virtual->bus->bridge),
				    virtual_bridge_release, virtual);
	dev_set_msi_domain(&virtual->bus->dev, virtual->msi);
	pci_scan_slot(virtual->bus, PCI_DEVFN(0, 0));
	if (READ_ONCE(virtual->pdev))
		pci_bus_add_devices(virtual->bus);
	else
		making->error = -ENODEV;	/* the log says why */
}

/* The same. */
static void virtual_remove_bus(void *argument)
{
	struct pcilend_virtual *virtual = argument;

	pci_stop_root_bus(virtual->bus);
	pci_remove_root_bus(virtual->bus);
}

struct pcilend_virtual *pcilend_virtual_create(struct pcilend_link *link,
					       struct pcilend_remote *remote,
					       const struct pcilend_virtual_ops *ops,
					       const struct pcilend_virtual_bar bar[PCILEND_BARS],
					       u64 interrupts,
					       const struct pcilend_vconfig *config,
					       const struct pcilend_frontend *frontend)
{
	struct virtual_making making = { };
	struct pcilend_hotplug *hotplug;
	struct pcilend_virtual *virtual;
	LIST_HEAD(resources);
	int err;

	virtual = kzalloc(sizeof(*virtual), GFP_KERNEL);
	if (!virtual)
		return ERR_PTR(-ENOMEM);
	virtual->ntb = link->pdev;
	virtual->remote = remote;
	virtual->ops = ops;
	virtual->frontend = frontend;
	memcpy(virtual->bar, bar, sizeof(virtual->bar));
	raw_spin_lock_init(&virtual->lock);
	pcilend_virtual_config_init(&virtual->config, remote, ops, config, bar, frontend->guests);

	hotplug = pcilend_hotplug_alloc(link);
	virtual->removal = pcilend_hotplug_alloc(link);
	if (!hotplug || !virtual->removal) {
		err = -ENOMEM;
		goto err_free;
	}
	err = virtual_take_place(virtual);
	if (err)
		goto err_free;
	virtual->sysdata.node = dev_to_node(&virtual->ntb->dev);

	err = virtual_create_msi(virtual, interrupts);
	if (err)
		goto err_place;
	err = virtual_create_intx(virtual);
	if (err)
		goto err_msi;
	err = virtual_windows_claim(virtual, bar, &resources);
	if (err)
		goto err_windows;

	making.virtual = virtual;
	making.resources = &resources;
	if (!pcilend_hotplug_run(hotplug, virtual_make_bus, &making))
		making.error = -ENODEV;
	hotplug = NULL;
	err = making.error;
	if (!err)
		return virtual;
	if (virtual->bus) {
		pcilend_virtual_destroy(virtual);
		return ERR_PTR(err);
	}

err_windows:
	pci_free_resource_list(&resources);
	pcilend_windows_release(virtual->window, PCILEND_BARS);
	if (virtual->config.intx)
		pcilend_virtual_intx_destroy(virtual->config.intx);
err_msi:
	virtual_destroy_msi(virtual);
err_place:
	virtual_leave_place(virtual);
err_free:
	pcilend_hotplug_free(hotplug);
	pcilend_hotplug_free(virtual->removal);
	kfree(virtual);
	return ERR_PTR(err);
}

void pcilend_virtual_destroy(struct pcilend_virtual *virtual)
{
	/* pci_create_root_bus() leaves a reference to its caller: that one is put at the end. */
	struct pci_host_bridge *bridge = to_pci_host_bridge(virtual->bus->bridge);
	struct pci_dev *pdev = pcilend_virtual_pci(virtual);

	/* Without the lock: VFIO's waits until nobody has the function open. */
	if (pdev)
		device_release_driver(&pdev->dev);
	pci_dev_put(pdev);
	/* Nor can any other use it. */
	pcilend_virtual_config_end(&virtual->config);

	/*
	 * If the adapter goes, whoever removes it waits for this. He holds the lock for us, or only
	 * unbinds its driver, which goes without, as for VMD.
	 */
	if (!pcilend_hotplug_run(virtual->removal, virtual_remove_bus, virtual))
		virtual_remove_bus(virtual);

	if (virtual->config.intx)
		pcilend_virtual_intx_destroy(virtual->config.intx);
	virtual_destroy_msi(virtual);
	pcilend_windows_release(virtual->window, PCILEND_BARS);
	virtual_leave_place(virtual);
	pci_free_host_bridge(bridge);
}

struct pci_dev *pcilend_virtual_pci(struct pcilend_virtual *virtual)
{
	guard(raw_spinlock_irqsave)(&virtual->lock);
	return pci_dev_get(virtual->pdev);
}

void pcilend_virtual_driver(struct pcilend_virtual *virtual, char *name, size_t bytes)
{
	guard(raw_spinlock_irqsave)(&virtual->lock);
	strscpy(name, virtual->driver, bytes);
}

struct pcilend_remote *pcilend_virtual_remote(struct pci_dev *pdev)
{
	return pdev->bus->ops == &virtual_config_ops ? virtual_to_virtual(pdev->bus)->remote : NULL;
}
EXPORT_SYMBOL_GPL(pcilend_virtual_remote);

int pcilend_virtual_restart(struct pci_dev *pdev)
{
	return pcilend_virtual_config_restart(&virtual_to_virtual(pdev->bus)->config);
}
EXPORT_SYMBOL_GPL(pcilend_virtual_restart);

void pcilend_virtual_doubt(struct pcilend_virtual *virtual)
{
	pcilend_virtual_config_doubt(&virtual->config);
}

int pcilend_virtual_settle(struct pci_dev *pdev)
{
	return pcilend_virtual_config_settle(&virtual_to_virtual(pdev->bus)->config);
}
EXPORT_SYMBOL_GPL(pcilend_virtual_settle);

int pcilend_virtual_hardware(struct pci_dev *pdev, u32 offset, u8 *value)
{
	return pcilend_virtual_config_hardware(&virtual_to_virtual(pdev->bus)->config, offset,
					       value);
}
EXPORT_SYMBOL_GPL(pcilend_virtual_hardware);
