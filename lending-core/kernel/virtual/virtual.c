// SPDX-License-Identifier: GPL-2.0-only
/*
 * A virtual function: a root bus with one function, whose config space is kept here and whose
 * BARs are pieces of the NTB's memory windows.
 *
 * Config accesses may come with interrupts off, so they are served from a copy. What a write of bus
 * mastering or MSI means for the hardware the writer tells the lender, and polls for its answer:
 * when pci_set_master() returns, DMA works. The rest is carried out by a work item: a reset, which
 * shows when it is over; whatever users of VFIO write, for whom pcilend_virtual_settle() waits;
 * and what the lender did not answer in time. Registers whose truth is in the hardware read as the
 * copy has them. (docs/decisions/0010)
 *
 * Who tells the lender what a write means:
 *
 *	nothing pending --write--> pending --the writer, polling--> nothing pending
 *	    ^                         |
 *	    |                         | no answer, a write that takes longer, or a user of VFIO
 *	    +-- the work item <-- working
 *
 * The struct pci_dev may go and come: anybody may remove it by hand and scan the bus again.
 */

#include <linux/delay.h>
#include <linux/idr.h>
#include <linux/pci.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "base/compat.h"
#include "pcilend/identity.h"
#include "pcilend/pcilend.h"
#include "link/link.h"
#include "virtual/virtual.h"

/*
 * For functions without a place of their own (pcilend_pci_place()): above every real segment, and
 * above VMD's. VMMs can't be given these by their PCI addresses.
 */
#define DOMAIN_FIRST 0x1e000
#define DOMAIN_LAST 0x1efff

#define FORWARDS 32
#define RESET_AGAIN_MS 100
#define TOLD_AT_ONCE (PCILEND_EFFECT_COMMAND | PCILEND_EFFECT_MSI)
#define ACTIONS (TOLD_AT_ONCE | PCILEND_EFFECT_RESET | PCILEND_EFFECT_FORWARD)
/* Besides: the hardware is not what it was last told to be. */
#define EFFECT_RESTART 0x80000000

/* Bus mastering, as the lender has it. */
enum mastering {
	MASTERING_OFF,
	MASTERING_ON,
	MASTERING_UNKNOWN,	/* it did not answer, and may still do what it was told */
};

struct forward {
	u16 offset;
	u8 value;
};

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
	struct pcilend_virtual_intx *intx;	/* NULL: it has no pin */
	struct pcilend_virtual_relay *relay;	/* NULL: it reaches this host's interrupts */
	struct pcilend_virtual_bar bar[PCILEND_BARS];
	struct resource window[PCILEND_BARS];

	raw_spinlock_t telling;		/* one writer at a time polls the lender; outside of lock */
	raw_spinlock_t lock;		/* the rest, but for mastering and error */
	struct pci_dev *pdev;		/* NULL: removed by hand, or not found yet */
	char driver[32];		/* empty: none is bound */
	struct pcilend_vconfig config;
	unsigned int pending;		/* effects that the lender was not told of */
	bool working;			/* by the work item it is, until nothing is pending */
	struct forward forward[FORWARDS];
	unsigned int forwards;
	bool resetting;			/* reads all-ones, as a function in reset does */
	bool gone;

	struct work_struct work;
	enum mastering mastering;	/* of who tells the lender */
	int error;			/* what went wrong since the last settle */
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
	struct pcilend_virtual *virtual = virtual_to_virtual(bus);

	PCI_SET_ERROR_RESPONSE(value);
	if (devfn)
		return PCIBIOS_DEVICE_NOT_FOUND;
	guard(raw_spinlock_irqsave)(&virtual->lock);
	if (virtual->gone)
		return PCIBIOS_DEVICE_NOT_FOUND;
	if (!virtual->resetting)
		*value = pcilend_vconfig_read(&virtual->config, where, size);
	return PCIBIOS_SUCCESSFUL;
}

static void virtual_start_work(struct pcilend_virtual *virtual)
{
	lockdep_assert_held(&virtual->lock);
	virtual->working = true;
	queue_work(pcilend_virtual_wq, &virtual->work);
}

/* @at_once: the writer tells the lender. */
static int virtual_write_locked(struct pcilend_virtual *virtual, int where, int size, u32 value,
				bool *at_once)
{
	unsigned int all, effects;
	int i;

	lockdep_assert_held(&virtual->lock);
	if (virtual->gone)
		return PCIBIOS_DEVICE_NOT_FOUND;
	if (virtual->resetting)
		return PCIBIOS_SUCCESSFUL;

	all = pcilend_vconfig_write(&virtual->config, where, size, value);
	effects = all & ACTIONS;
	/* It has a work item of its own. */
	if (all & PCILEND_EFFECT_INTX)
		pcilend_virtual_intx_allow(virtual->intx, pcilend_vconfig_intx(&virtual->config));
	/* Also without a change: the one before may not have reached the lender. */
	if (where <= PCI_COMMAND && where + size > PCI_COMMAND)
		effects |= PCILEND_EFFECT_COMMAND;
	for (i = 0; effects & PCILEND_EFFECT_FORWARD && i < size; i++, value >>= 8) {
		if (!pcilend_vconfig_forwards(&virtual->config, where + i, 1))
			continue;
		if (virtual->forwards == FORWARDS)
			return PCIBIOS_SET_FAILED;
		virtual->forward[virtual->forwards++] = (struct forward) {
			.offset = where + i,
			.value = value,
		};
	}
	if (effects & PCILEND_EFFECT_RESET)
		virtual->resetting = true;
	if (!effects)
		return PCIBIOS_SUCCESSFUL;
	virtual->pending |= effects;
	/* Who has it by VFIO could spend the time that all writers of the link share. */
	*at_once = !virtual->working && !virtual->frontend->guests && !(effects & ~TOLD_AT_ONCE);
	if (!*at_once)
		virtual_start_work(virtual);
	return PCIBIOS_SUCCESSFUL;
}

/* @poll: in any context; else may sleep. */
static int virtual_forward_register(struct pcilend_virtual *virtual, u32 offset, u32 length,
				    bool poll)
{
	const struct pcilend_virtual_ops *ops = virtual->ops;
	u32 value;

	scoped_guard(raw_spinlock_irqsave, &virtual->lock)
		value = pcilend_vconfig_read(&virtual->config, offset, length);
	return poll ? ops->poll_config_write(virtual->remote, offset, value, length) :
		      ops->config_write(virtual->remote, offset, value, length);
}

/* Makes the function's MSI capability what the virtual one is. PCI 3.0 §6.8.1. */
static int virtual_forward_msi(struct pcilend_virtual *virtual, bool poll)
{
	u32 msi = virtual->config.msi;
	u32 data, mask;
	u16 flags;
	int err;

	scoped_guard(raw_spinlock_irqsave, &virtual->lock)
		flags = pcilend_vconfig_read(&virtual->config, msi + PCI_MSI_FLAGS, 2);
	data = flags & PCI_MSI_FLAGS_64BIT ? PCI_MSI_DATA_64 : PCI_MSI_DATA_32;
	mask = flags & PCI_MSI_FLAGS_64BIT ? PCI_MSI_MASK_64 : PCI_MSI_MASK_32;

	/* Switched off first, and on last: no message goes out with half of a new address. */
	if (!(flags & PCI_MSI_FLAGS_ENABLE))
		return virtual_forward_register(virtual, msi + PCI_MSI_FLAGS, 2, poll);

	err = virtual_forward_register(virtual, msi + PCI_MSI_ADDRESS_LO, 4, poll);
	if (!err && flags & PCI_MSI_FLAGS_64BIT)
		err = virtual_forward_register(virtual, msi + PCI_MSI_ADDRESS_HI, 4, poll);
	if (!err)
		err = virtual_forward_register(virtual, msi + data, 2, poll);
	if (!err && flags & PCI_MSI_FLAGS_MASKBIT)
		err = virtual_forward_register(virtual, msi + mask, 4, poll);
	if (!err)
		err = virtual_forward_register(virtual, msi + PCI_MSI_FLAGS, 2, poll);
	return err;
}

/* Makes the hardware what the copy is. @poll: as above. */
static int virtual_tell(struct pcilend_virtual *virtual, unsigned int effects, bool bus_master,
			bool poll)
{
	enum mastering wanted = bus_master ? MASTERING_ON : MASTERING_OFF;
	const struct pcilend_virtual_ops *ops = virtual->ops;
	int err = 0, last;

	if (effects & PCILEND_EFFECT_MSI)
		err = virtual_forward_msi(virtual, poll);
	if (effects & PCILEND_EFFECT_COMMAND && wanted != virtual->mastering) {
		last = poll ? ops->poll_bus_master(virtual->remote, bus_master) :
			      ops->bus_master(virtual->remote, bus_master);
		err = err ?: last;
		virtual->mastering = last ? MASTERING_UNKNOWN : wanted;
	}
	return err;
}

/* What another writer has found pending meanwhile it has told, too. */
static void virtual_tell_at_once(struct pcilend_virtual *virtual)
{
	unsigned int effects;
	bool bus_master;
	int err;

	guard(raw_spinlock_irqsave)(&virtual->telling);
	scoped_guard(raw_spinlock_irqsave, &virtual->lock) {
		if (virtual->working || virtual->gone)
			return;
		effects = virtual->pending;
		virtual->pending = 0;
		bus_master = pcilend_vconfig_bus_master(&virtual->config);
	}
	err = virtual_tell(virtual, effects, bus_master, true);
	if (err == -ESTALE)
		WRITE_ONCE(virtual->error, err);
	if (!err || err == -ESTALE)
		return;
	guard(raw_spinlock_irqsave)(&virtual->lock);
	virtual->pending |= effects;
	virtual_start_work(virtual);
}

static int virtual_write(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 value)
{
	struct pcilend_virtual *virtual = virtual_to_virtual(bus);
	bool at_once = false;
	int err;

	if (devfn)
		return PCIBIOS_DEVICE_NOT_FOUND;
	scoped_guard(raw_spinlock_irqsave, &virtual->lock)
		err = virtual_write_locked(virtual, where, size, value, &at_once);
	if (at_once)
		virtual_tell_at_once(virtual);
	return err;
}

static struct pci_ops virtual_config_ops = {
	.read = virtual_read,
	.write = virtual_write,
};

/*
 * Until the lender has confirmed it the function reads all-ones, as one that does not come back
 * from a reset; so it does for good if the lender could not reset it, or the lease is over.
 */
static int virtual_reset(struct pcilend_virtual *virtual)
{
	u64 end = pcilend_now() + PCILEND_RESET_MS;
	int err;

	/* A loss of the link is not the end of the lease. One more reset does no harm. */
	while ((err = virtual->ops->reset(virtual->remote)) == -ENETDOWN || err == -ETIMEDOUT ||
	       err == -ENOMEM || err == -ENOBUFS || err == -EBUSY) {
		if (pcilend_now() >= end)
			break;
		msleep(RESET_AGAIN_MS);
	}

	/* The lender leaves bus mastering off. */
	virtual->mastering = err ? MASTERING_UNKNOWN : MASTERING_OFF;
	return err;
}

static void virtual_is_reset(struct pcilend_virtual *virtual)
{
	lockdep_assert_held(&virtual->lock);
	pcilend_vconfig_reset(&virtual->config);
	if (virtual->intx)
		pcilend_virtual_intx_allow(virtual->intx, pcilend_vconfig_intx(&virtual->config));
	virtual->resetting = false;
}

/* What a run of the work item carries out. */
struct virtual_job {
	unsigned int effects;
	struct forward forward[FORWARDS];
	unsigned int forwards;
	bool bus_master;
};

/* Return: false: another run has done what this one was for; what is pending is a writer's. */
static bool virtual_take_job(struct pcilend_virtual *virtual, struct virtual_job *job)
{
	/* Nobody begins to poll the lender from now on; who has is through. */
	guard(raw_spinlock_irqsave)(&virtual->telling);
	guard(raw_spinlock)(&virtual->lock);
	if (!virtual->working)
		return false;
	job->effects = virtual->pending;
	job->forwards = virtual->forwards;
	memcpy(job->forward, virtual->forward, job->forwards * sizeof(*job->forward));
	job->bus_master = pcilend_vconfig_bus_master(&virtual->config);
	virtual->pending = 0;
	virtual->forwards = 0;
	return true;
}

/* @was_reset: the lender has. */
static int virtual_carry_out(struct pcilend_virtual *virtual, const struct virtual_job *job,
			     bool *was_reset)
{
	int err = 0, last;
	unsigned int i;

	/* A request that was late may have come after that reset. */
	if (job->effects & EFFECT_RESTART)
		virtual->mastering = MASTERING_UNKNOWN;
	if (job->effects & PCILEND_EFFECT_RESET) {
		err = virtual_reset(virtual);
		*was_reset = !err;
		return err;
	}
	for (i = 0; i < job->forwards; i++) {
		last = virtual->ops->config_write(virtual->remote, job->forward[i].offset,
						  job->forward[i].value, 1);
		err = err ?: last;
	}
	last = virtual_tell(virtual, job->effects, job->bus_master, false);
	return err ?: last;
}

static void virtual_work(struct work_struct *work)
{
	struct pcilend_virtual *virtual = container_of(work, struct pcilend_virtual, work);
	bool was_reset = false;
	struct virtual_job job;
	unsigned int flags;
	int err;

	if (!virtual_take_job(virtual, &job))
		return;
	flags = memalloc_noio_save();
	err = virtual_carry_out(virtual, &job, &was_reset);
	memalloc_noio_restore(flags);
	if (err && err != -ESTALE)
		dev_warn_ratelimited(&virtual->remote->dev,
				     "the lender did not take a config write: %d\n", err);
	if (err)
		WRITE_ONCE(virtual->error, err);
	guard(raw_spinlock_irqsave)(&virtual->lock);
	/* What has become pending meanwhile has queued the item again. */
	virtual->working = virtual->pending;
	/* Not before: who finds that the reset is over relies on what it writes next. */
	if (was_reset)
		virtual_is_reset(virtual);
}

/* The last reference to the bus is gone, and with it to its config space. */
static void virtual_bridge_release(struct pci_host_bridge *bridge)
{
	kfree(bridge->release_data);
}

/*
 * Puts the BARs' addresses where the PCI core looks for them, as far as there is room. The ROM's is
 * put there by who enables it.
 */
static void virtual_write_bars(struct pcilend_virtual *virtual,
			       const struct pcilend_virtual_bar bar[PCILEND_BARS])
{
	struct pcilend_vconfig *config = &virtual->config;
	unsigned int i;

	for (i = 0; i < PCI_STD_NUM_BARS; i++) {
		u64 address = bar[i].bus ?: bar[i].address;
		u32 at = PCI_BASE_ADDRESS_0 + 4 * i;
		bool wide = config->bar[i].flags & PCILEND_BAR_MEM64;

		if (!config->bar[i].size)
			continue;
		if (!bar[i].size || (!wide && upper_32_bits(address))) {
			pcilend_vconfig_write(config, at, 4, 0);
			continue;
		}
		pcilend_vconfig_write(config, at, 4, lower_32_bits(address));
		if (wide)
			pcilend_vconfig_write(config, at + 4, 4, upper_32_bits(address));
	}
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
	pdev->irq = virtual->intx ? pcilend_virtual_intx_irq(virtual->intx) : 0;
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
	const struct pcilend_vconfig *config = &virtual->config;
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
	enum pcilend_intx_state allowed = pcilend_vconfig_intx(&virtual->config);
	char name[32];

	if (allowed == PCILEND_INTX_OFF)
		return 0;
	snprintf(name, sizeof(name), "pcilend-intx-%04x:%02x", virtual->sysdata.domain,
		 virtual->bus_number);
	virtual->intx = pcilend_virtual_intx_create(virtual->remote, virtual->ops, name);
	if (!virtual->intx)
		return -ENOMEM;
	pcilend_virtual_intx_allow(virtual->intx, allowed);
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
	virtual->config = *config;
	/* VFIO's users read in the hardware what they write there, this host's drivers the copy. */
	if (!frontend->guests)
		pcilend_vconfig_withhold(&virtual->config);
	memcpy(virtual->bar, bar, sizeof(virtual->bar));
	raw_spin_lock_init(&virtual->telling);
	raw_spin_lock_init(&virtual->lock);
	INIT_WORK(&virtual->work, virtual_work);
	virtual_write_bars(virtual, bar);

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
	if (virtual->intx)
		pcilend_virtual_intx_destroy(virtual->intx);
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
	flush_work(&virtual->work);
	/* Nor can any other use it; who polls the lender for its sake is through. */
	scoped_guard(raw_spinlock_irqsave, &virtual->telling)
	scoped_guard(raw_spinlock, &virtual->lock)
		virtual->gone = true;

	/*
	 * If the adapter goes, whoever removes it waits for this. He holds the lock for us, or only
	 * unbinds its driver, which goes without, as for VMD.
	 */
	if (!pcilend_hotplug_run(virtual->removal, virtual_remove_bus, virtual))
		virtual_remove_bus(virtual);
	cancel_work_sync(&virtual->work);

	if (virtual->intx)
		pcilend_virtual_intx_destroy(virtual->intx);
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
	struct pcilend_virtual *virtual = virtual_to_virtual(pdev->bus);

	scoped_guard(raw_spinlock_irqsave, &virtual->lock) {
		if (virtual->gone)
			return -ESTALE;
		virtual->pending |= EFFECT_RESTART | PCILEND_EFFECT_COMMAND;
		if (virtual->config.msi)
			virtual->pending |= PCILEND_EFFECT_MSI;
		virtual_start_work(virtual);
	}
	return pcilend_virtual_settle(pdev);
}
EXPORT_SYMBOL_GPL(pcilend_virtual_restart);

void pcilend_virtual_doubt(struct pcilend_virtual *virtual)
{
	guard(raw_spinlock_irqsave)(&virtual->lock);
	if (virtual->gone)
		return;
	/* What the lender has for certain is not told again. */
	virtual->pending |= PCILEND_EFFECT_COMMAND;
	virtual_start_work(virtual);
}

int pcilend_virtual_settle(struct pci_dev *pdev)
{
	struct pcilend_virtual *virtual = virtual_to_virtual(pdev->bus);

	flush_work(&virtual->work);
	if (virtual->intx)
		pcilend_virtual_intx_settle(virtual->intx);
	return xchg(&virtual->error, 0);
}
EXPORT_SYMBOL_GPL(pcilend_virtual_settle);

int pcilend_virtual_hardware(struct pci_dev *pdev, u32 offset, u8 *value)
{
	struct pcilend_virtual *virtual = virtual_to_virtual(pdev->bus);
	int err;

	/* Constant from the beginning. */
	if (!pcilend_vconfig_forwards(&virtual->config, offset, 1))
		return 0;
	err = virtual->ops->config_read(virtual->remote, offset, value, 1);
	return err ?: 1;
}
EXPORT_SYMBOL_GPL(pcilend_virtual_hardware);
