// SPDX-License-Identifier: GPL-2.0-only
/*
 * The config space of a virtual function.
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
 */

#include <linux/delay.h>
#include <linux/pci.h>
#include <linux/sched/mm.h>
#include <linux/workqueue.h>

#include "base/base.h"
#include "pcilend/pcilend.h"
#include "virtual/virtual_config.h"

#define RESET_AGAIN_MS 100
#define TOLD_AT_ONCE (PCILEND_EFFECT_COMMAND | PCILEND_EFFECT_MSI)
#define ACTIONS (TOLD_AT_ONCE | PCILEND_EFFECT_RESET | PCILEND_EFFECT_FORWARD)
/* Besides: the hardware is not what it was last told to be. */
#define EFFECT_RESTART 0x80000000

int pcilend_virtual_config_read(struct pcilend_virtual_config *config, int where, int size,
				u32 *value)
{
	PCI_SET_ERROR_RESPONSE(value);
	guard(raw_spinlock_irqsave)(&config->lock);
	if (config->gone)
		return PCIBIOS_DEVICE_NOT_FOUND;
	if (!config->resetting)
		*value = pcilend_vconfig_read(&config->space, where, size);
	return PCIBIOS_SUCCESSFUL;
}

static void virtual_config_start_work(struct pcilend_virtual_config *config)
{
	lockdep_assert_held(&config->lock);
	config->working = true;
	queue_work(pcilend_virtual_wq, &config->work);
}

/* @at_once: the writer tells the lender. */
static int virtual_config_write_locked(struct pcilend_virtual_config *config, int where, int size,
				       u32 value, bool *at_once)
{
	unsigned int all, effects;
	int i;

	lockdep_assert_held(&config->lock);
	if (config->gone)
		return PCIBIOS_DEVICE_NOT_FOUND;
	if (config->resetting)
		return PCIBIOS_SUCCESSFUL;

	all = pcilend_vconfig_write(&config->space, where, size, value);
	effects = all & ACTIONS;
	/* It has a work item of its own. */
	if (all & PCILEND_EFFECT_INTX)
		pcilend_virtual_intx_allow(config->intx, pcilend_vconfig_intx(&config->space));
	/* Also without a change: the one before may not have reached the lender. */
	if (where <= PCI_COMMAND && where + size > PCI_COMMAND)
		effects |= PCILEND_EFFECT_COMMAND;
	for (i = 0; effects & PCILEND_EFFECT_FORWARD && i < size; i++, value >>= 8) {
		if (!pcilend_vconfig_forwards(&config->space, where + i, 1))
			continue;
		if (config->forwards == PCILEND_FORWARDS)
			return PCIBIOS_SET_FAILED;
		config->forward[config->forwards++] = (struct pcilend_forward) {
			.offset = where + i,
			.value = value,
		};
	}
	if (effects & PCILEND_EFFECT_RESET)
		config->resetting = true;
	if (!effects)
		return PCIBIOS_SUCCESSFUL;
	config->pending |= effects;
	/* Who has it by VFIO could spend the time that all writers of the link share. */
	*at_once = !config->working && !config->guests && !(effects & ~TOLD_AT_ONCE);
	if (!*at_once)
		virtual_config_start_work(config);
	return PCIBIOS_SUCCESSFUL;
}

/* @poll: in any context; else may sleep. */
static int virtual_config_forward_register(struct pcilend_virtual_config *config, u32 offset,
					   u32 length, bool poll)
{
	const struct pcilend_virtual_ops *ops = config->ops;
	u32 value;

	scoped_guard(raw_spinlock_irqsave, &config->lock)
		value = pcilend_vconfig_read(&config->space, offset, length);
	return poll ? ops->poll_config_write(config->remote, offset, value, length) :
		      ops->config_write(config->remote, offset, value, length);
}

/* Makes the function's MSI capability what the virtual one is. PCI 3.0 §6.8.1. */
static int virtual_config_forward_msi(struct pcilend_virtual_config *config, bool poll)
{
	u32 msi = config->space.msi;
	u32 data, mask;
	u16 flags;
	int err;

	scoped_guard(raw_spinlock_irqsave, &config->lock)
		flags = pcilend_vconfig_read(&config->space, msi + PCI_MSI_FLAGS, 2);
	data = flags & PCI_MSI_FLAGS_64BIT ? PCI_MSI_DATA_64 : PCI_MSI_DATA_32;
	mask = flags & PCI_MSI_FLAGS_64BIT ? PCI_MSI_MASK_64 : PCI_MSI_MASK_32;

	/* Switched off first, and on last: no message goes out with half of a new address. */
	if (!(flags & PCI_MSI_FLAGS_ENABLE))
		return virtual_config_forward_register(config, msi + PCI_MSI_FLAGS, 2, poll);

	err = virtual_config_forward_register(config, msi + PCI_MSI_ADDRESS_LO, 4, poll);
	if (!err && flags & PCI_MSI_FLAGS_64BIT)
		err = virtual_config_forward_register(config, msi + PCI_MSI_ADDRESS_HI, 4, poll);
	if (!err)
		err = virtual_config_forward_register(config, msi + data, 2, poll);
	if (!err && flags & PCI_MSI_FLAGS_MASKBIT)
		err = virtual_config_forward_register(config, msi + mask, 4, poll);
	if (!err)
		err = virtual_config_forward_register(config, msi + PCI_MSI_FLAGS, 2, poll);
	return err;
}

/* Makes the hardware what the copy is. @poll: as above. */
static int virtual_config_tell(struct pcilend_virtual_config *config, unsigned int effects,
			       bool bus_master, bool poll)
{
	enum pcilend_told wanted = bus_master ? PCILEND_TOLD_ON : PCILEND_TOLD_OFF;
	const struct pcilend_virtual_ops *ops = config->ops;
	int err = 0, last;

	if (effects & PCILEND_EFFECT_MSI)
		err = virtual_config_forward_msi(config, poll);
	if (effects & PCILEND_EFFECT_COMMAND && wanted != config->mastering) {
		last = poll ? ops->poll_bus_master(config->remote, bus_master) :
			      ops->bus_master(config->remote, bus_master);
		err = err ?: last;
		config->mastering = last ? PCILEND_TOLD_UNKNOWN : wanted;
	}
	return err;
}

/* What another writer has found pending meanwhile it has told, too. */
static void virtual_config_tell_at_once(struct pcilend_virtual_config *config)
{
	unsigned int effects;
	bool bus_master;
	int err;

	guard(raw_spinlock_irqsave)(&config->telling);
	scoped_guard(raw_spinlock_irqsave, &config->lock) {
		if (config->working || config->gone)
			return;
		effects = config->pending;
		config->pending = 0;
		bus_master = pcilend_vconfig_bus_master(&config->space);
	}
	err = virtual_config_tell(config, effects, bus_master, true);
	if (err == -ESTALE)
		WRITE_ONCE(config->error, err);
	if (!err || err == -ESTALE)
		return;
	guard(raw_spinlock_irqsave)(&config->lock);
	config->pending |= effects;
	virtual_config_start_work(config);
}

/*
 * Until the lender has confirmed it the function reads all-ones, as one that does not come back
 * from a reset; so it does for good if the lender could not reset it, or the lease is over.
 */
static int virtual_config_reset(struct pcilend_virtual_config *config)
{
	u64 end = pcilend_now() + PCILEND_RESET_MS;
	int err;

	/* A loss of the link is not the end of the lease. One more reset does no harm. */
	while ((err = config->ops->reset(config->remote)) == -ENETDOWN || err == -ETIMEDOUT ||
	       err == -ENOMEM || err == -ENOBUFS || err == -EBUSY) {
		if (pcilend_now() >= end)
			break;
		msleep(RESET_AGAIN_MS);
	}

	/* The lender leaves bus mastering off. */
	config->mastering = err ? PCILEND_TOLD_UNKNOWN : PCILEND_TOLD_OFF;
	return err;
}

static void virtual_config_is_reset(struct pcilend_virtual_config *config)
{
	lockdep_assert_held(&config->lock);
	pcilend_vconfig_reset(&config->space);
	if (config->intx)
		pcilend_virtual_intx_allow(config->intx, pcilend_vconfig_intx(&config->space));
	config->resetting = false;
}

/* What a run of the work item carries out. */
struct virtual_config_job {
	unsigned int effects;
	struct pcilend_forward forward[PCILEND_FORWARDS];
	unsigned int forwards;
	bool bus_master;
};

/* Return: false: another run has done what this one was for; what is pending is a writer's. */
static bool virtual_config_take_job(struct pcilend_virtual_config *config,
				    struct virtual_config_job *job)
{
	/* Nobody begins to poll the lender from now on; who has is through. */
	guard(raw_spinlock_irqsave)(&config->telling);
	guard(raw_spinlock)(&config->lock);
	if (!config->working)
		return false;
	job->effects = config->pending;
	job->forwards = config->forwards;
	memcpy(job->forward, config->forward, job->forwards * sizeof(*job->forward));
	job->bus_master = pcilend_vconfig_bus_master(&config->space);
	config->pending = 0;
	config->forwards = 0;
	return true;
}

/* @was_reset: the lender has. */
static int virtual_config_carry_out(struct pcilend_virtual_config *config,
				    const struct virtual_config_job *job, bool *was_reset)
{
	int err = 0, last;
	unsigned int i;

	/* A request that was late may have come after that reset. */
	if (job->effects & EFFECT_RESTART)
		config->mastering = PCILEND_TOLD_UNKNOWN;
	if (job->effects & PCILEND_EFFECT_RESET) {
		err = virtual_config_reset(config);
		*was_reset = !err;
		return err;
	}
	for (i = 0; i < job->forwards; i++) {
		last = config->ops->config_write(config->remote, job->forward[i].offset,
						 job->forward[i].value, 1);
		err = err ?: last;
	}
	last = virtual_config_tell(config, job->effects, job->bus_master, false);
	return err ?: last;
}

static void virtual_config_work(struct work_struct *work)
{
	struct pcilend_virtual_config *config =
		container_of(work, struct pcilend_virtual_config, work);
	bool was_reset = false;
	struct virtual_config_job job;
	unsigned int flags;
	int err;

	if (!virtual_config_take_job(config, &job))
		return;
	flags = memalloc_noio_save();
	err = virtual_config_carry_out(config, &job, &was_reset);
	memalloc_noio_restore(flags);
	if (err && err != -ESTALE)
		dev_warn_ratelimited(&config->remote->dev,
				     "the lender did not take a config write: %d\n", err);
	if (err)
		WRITE_ONCE(config->error, err);
	guard(raw_spinlock_irqsave)(&config->lock);
	/* What has become pending meanwhile has queued the item again. */
	config->working = config->pending;
	/* Not before: who finds that the reset is over relies on what it writes next. */
	if (was_reset)
		virtual_config_is_reset(config);
}

/*
 * Puts the BARs' addresses where the PCI core looks for them, as far as there is room. The ROM's is
 * put there by who enables it.
 */
static void virtual_config_write_bars(struct pcilend_virtual_config *config,
				      const struct pcilend_virtual_bar bar[PCILEND_BARS])
{
	struct pcilend_vconfig *space = &config->space;
	unsigned int i;

	for (i = 0; i < PCI_STD_NUM_BARS; i++) {
		u64 address = bar[i].bus ?: bar[i].address;
		u32 at = PCI_BASE_ADDRESS_0 + 4 * i;
		bool wide = space->bar[i].flags & PCILEND_BAR_MEM64;

		if (!space->bar[i].size)
			continue;
		if (!bar[i].size || (!wide && upper_32_bits(address))) {
			pcilend_vconfig_write(space, at, 4, 0);
			continue;
		}
		pcilend_vconfig_write(space, at, 4, lower_32_bits(address));
		if (wide)
			pcilend_vconfig_write(space, at + 4, 4, upper_32_bits(address));
	}
}

int pcilend_virtual_config_write(struct pcilend_virtual_config *config, int where, int size,
				 u32 value)
{
	bool at_once = false;
	int err;

	scoped_guard(raw_spinlock_irqsave, &config->lock)
		err = virtual_config_write_locked(config, where, size, value, &at_once);
	if (at_once)
		virtual_config_tell_at_once(config);
	return err;
}

int pcilend_virtual_config_restart(struct pcilend_virtual_config *config)
{
	scoped_guard(raw_spinlock_irqsave, &config->lock) {
		if (config->gone)
			return -ESTALE;
		config->pending |= EFFECT_RESTART | PCILEND_EFFECT_COMMAND;
		if (config->space.msi)
			config->pending |= PCILEND_EFFECT_MSI;
		virtual_config_start_work(config);
	}
	return pcilend_virtual_config_settle(config);
}

void pcilend_virtual_config_doubt(struct pcilend_virtual_config *config)
{
	guard(raw_spinlock_irqsave)(&config->lock);
	if (config->gone)
		return;
	/* What the lender has for certain is not told again. */
	config->pending |= PCILEND_EFFECT_COMMAND;
	virtual_config_start_work(config);
}

int pcilend_virtual_config_settle(struct pcilend_virtual_config *config)
{
	flush_work(&config->work);
	if (config->intx)
		pcilend_virtual_intx_settle(config->intx);
	return xchg(&config->error, 0);
}

int pcilend_virtual_config_hardware(struct pcilend_virtual_config *config, u32 offset, u8 *value)
{
	int err;

	/* Constant from the beginning. */
	if (!pcilend_vconfig_forwards(&config->space, offset, 1))
		return 0;
	err = config->ops->config_read(config->remote, offset, value, 1);
	return err ?: 1;
}

void pcilend_virtual_config_end(struct pcilend_virtual_config *config)
{
	flush_work(&config->work);
	/* Who polls the lender is through. */
	scoped_guard(raw_spinlock_irqsave, &config->telling)
	scoped_guard(raw_spinlock, &config->lock)
		config->gone = true;
	cancel_work_sync(&config->work);
}

void pcilend_virtual_config_init(struct pcilend_virtual_config *config,
				 struct pcilend_remote *remote,
				 const struct pcilend_virtual_ops *ops,
				 const struct pcilend_vconfig *space,
				 const struct pcilend_virtual_bar bar[PCILEND_BARS], bool guests)
{
	config->remote = remote;
	config->ops = ops;
	config->guests = guests;
	config->space = *space;
	/* VFIO's users read in the hardware what they write there, this host's drivers the copy. */
	if (!guests)
		pcilend_vconfig_withhold(&config->space);
	raw_spin_lock_init(&config->telling);
	raw_spin_lock_init(&config->lock);
	INIT_WORK(&config->work, virtual_config_work);
	virtual_config_write_bars(config, bar);
}
