/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The config space of a virtual function, served from a copy, and what its writes mean for the
 * hardware, which the lender is told. virtual.c has it, and makes it known to the PCI core.
 */
#ifndef PCILEND_VIRTUAL_CONFIG_H
#define PCILEND_VIRTUAL_CONFIG_H

#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include "pcilend/vconfig.h"
#include "virtual/virtual.h"

/* Bytes that users of VFIO have written to registers that only the hardware has. */
#define PCILEND_FORWARDS 32

struct pcilend_forward {
	u16 offset;
	u8 value;
};

/* What the lender was told of bus mastering. */
enum pcilend_told {
	PCILEND_TOLD_OFF,
	PCILEND_TOLD_ON,
	PCILEND_TOLD_UNKNOWN,	/* it did not answer, and may still do what it was told */
};

/**
 * struct pcilend_virtual_config - the config space of one virtual function
 * @remote: the function; of the caller, as @ops and @intx
 * @ops: what it asks of the lender
 * @intx: what config space lets its legacy interrupt do is told to it; NULL: it has no pin
 * @guests: VFIO has it, whose users may write as they like
 * @telling: one writer at a time polls the lender; outside of @lock
 * @lock: the rest, but for @mastering and @error. Any context
 * @space: the copy. Its capabilities and the sizes of its BARs are constant
 * @pending: effects that the lender was not told of
 * @working: by the work item it is, until nothing is pending
 * @forward: what @forwards of them were written, in their order
 * @resetting: it reads all-ones, as a function in reset does
 * @gone: for good
 * @work: tells the lender
 * @mastering: of who tells the lender
 * @error: what went wrong since the last pcilend_virtual_config_settle()
 */
struct pcilend_virtual_config {
	struct pcilend_remote *remote;
	const struct pcilend_virtual_ops *ops;
	struct pcilend_virtual_intx *intx;
	bool guests;

	raw_spinlock_t telling;
	raw_spinlock_t lock;
	struct pcilend_vconfig space;
	unsigned int pending;
	bool working;
	struct pcilend_forward forward[PCILEND_FORWARDS];
	unsigned int forwards;
	bool resetting;
	bool gone;

	struct work_struct work;
	enum pcilend_told mastering;
	int error;
};

/*
 * Before anybody else has it. @space is copied, and gets the addresses of @bar. With @guests, reads
 * of what the hardware has go there (pcilend_virtual_hardware()). The caller sets @config->intx.
 */
void pcilend_virtual_config_init(struct pcilend_virtual_config *config,
				 struct pcilend_remote *remote,
				 const struct pcilend_virtual_ops *ops,
				 const struct pcilend_vconfig *space,
				 const struct pcilend_virtual_bar bar[PCILEND_BARS], bool guests);

/*
 * As pci_ops have them; any context. A write by this host's own driver polls the lender, for up to
 * PCILEND_POLL_MS a request. Return: PCIBIOS_*.
 */
int pcilend_virtual_config_read(struct pcilend_virtual_config *config, int where, int size,
				u32 *value);
int pcilend_virtual_config_write(struct pcilend_virtual_config *config, int where, int size,
				 u32 value);

/* These four as their namesakes (pcilend/pcilend.h, virtual.h). */
int pcilend_virtual_config_restart(struct pcilend_virtual_config *config);
void pcilend_virtual_config_doubt(struct pcilend_virtual_config *config);
int pcilend_virtual_config_settle(struct pcilend_virtual_config *config);
int pcilend_virtual_config_hardware(struct pcilend_virtual_config *config, u32 offset, u8 *value);

/*
 * From now on it reads all-ones, and the lender is told nothing: nobody tells it on return. Without
 * a driver; may sleep. Who still has the pci_dev may read: freed it is with its bus.
 */
void pcilend_virtual_config_end(struct pcilend_virtual_config *config);

#endif /* PCILEND_VIRTUAL_CONFIG_H */
