// SPDX-License-Identifier: GPL-2.0-only
/*
 * Requesters: who on this host may send through an adapter. Most adapters let everybody. A
 * Switchtec drops what comes from a function that its table does not name; ntb_hw_switchtec enters
 * the processors there, and has no call for more. So a lent function is entered here, by the
 * registers that driver uses (include/linux/switchtec.h), in the way it does that. It takes no
 * notice of others who use them, nor does the peer, which writes its windows there: what comes to
 * nothing because of that is tried again.
 */

#include <linux/delay.h>
#include <linux/iopoll.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/switchtec.h>

#include "link/session.h"

#define ATTEMPTS 5
#define OPERATION_US (500 * USEC_PER_MSEC)
#define STATE_MASK 0xffff
#define ENTRY_MASK (0xffff0000 | NTB_CTRL_REQ_ID_EN)
#define REQUESTER_NOBODY 0xffff	/* bus 255, 1f.7: broadcast, of no function that is lent */

struct requester {
	u16 id;
	bool ours;		/* entered here; others' are never taken out here */
	unsigned int users;
};

struct pcilend_requesters {
	struct mutex lock;	/* also what is done with the registers */
	struct ntb_ctrl_regs __iomem *control;	/* lock; NULL: the adapter is not ours any more */
	u32 count;
	struct requester entry[] __counted_by(count);	/* lock */
};

/*
 * pcilend_requesters_init - find out who may send through the link's adapter
 *
 * Return: 0, also if everybody may; or an error.
 */
int pcilend_requesters_init(struct pcilend_link *link)
{
	resource_size_t base = pci_resource_start(link->pdev, 0);
	struct ntb_ctrl_regs __iomem *control;
	struct pcilend_requesters *table;
	struct ntb_info_regs __iomem *info;
	u32 partition, count;

	if (strcmp(link->driver, "switchtec"))
		return 0;
	info = ioremap(base + SWITCHTEC_GAS_NTB_OFFSET, sizeof(*info));
	if (!info)
		return -ENOMEM;
	partition = ioread8(&info->partition_id);
	iounmap(info);
	if (partition >= ARRAY_SIZE(info->ntp_info))
		return -ENODEV;
	control = ioremap(base + SWITCHTEC_GAS_NTB_OFFSET + SWITCHTEC_NTB_REG_CTRL_OFFSET +
				  partition * sizeof(*control), sizeof(*control));
	if (!control)
		return -ENOMEM;
	count = min_t(u32, ioread16(&control->req_id_table_size),
		      ARRAY_SIZE(control->req_id_table));
	table = kzalloc(struct_size(table, entry, count), GFP_KERNEL);
	if (!table) {
		iounmap(control);
		return -ENOMEM;
	}
	mutex_init(&table->lock);
	table->control = control;
	table->count = count;
	link->requesters = table;
	return 0;
}

/* From now on the adapter's registers are let alone. Who lists links may still ask. */
void pcilend_requesters_exit(struct pcilend_link *link)
{
	struct pcilend_requesters *table = link->requesters;

	if (!table)
		return;
	guard(mutex)(&table->lock);
	iounmap(table->control);
	table->control = NULL;
}

/* Nobody has the link any more. */
void pcilend_requesters_free(struct pcilend_link *link)
{
	kfree(link->requesters);
}

static int requesters_operate(struct pcilend_requesters *table, u32 operation, u32 state)
{
	u32 status;

	lockdep_assert_held(&table->lock);
	iowrite32(operation, &table->control->partition_op);
	return read_poll_timeout(ioread32, status, (status & STATE_MASK) == state, USEC_PER_MSEC,
				 OPERATION_US, true, &table->control->partition_status);
}

static int requesters_try(struct pcilend_requesters *table, u32 index, u32 value)
{
	u32 __iomem *entry = &table->control->req_id_table[index];
	int err;

	lockdep_assert_held(&table->lock);
	err = requesters_operate(table, NTB_CTRL_PART_OP_LOCK, NTB_CTRL_PART_STATUS_LOCKED);
	if (!err) {
		iowrite32(value, entry);
		err = requesters_operate(table, NTB_CTRL_PART_OP_CFG, NTB_CTRL_PART_STATUS_NORMAL);
	}
	if (err) {
		/* Neither hold nor want the lock. */
		iowrite32(NTB_CTRL_PART_OP_RESET, &table->control->partition_op);
		return err;
	}
	return (ioread32(entry) & ENTRY_MASK) == value ? 0 : -EIO;
}

static int requesters_write(struct pcilend_requesters *table, u32 index, u32 value)
{
	int attempt, err;

	lockdep_assert_held(&table->lock);
	for (attempt = 0; attempt < ATTEMPTS; attempt++) {
		if (attempt)
			msleep(get_random_u32_inclusive(10, 200));
		err = requesters_try(table, index, value);
		if (!err)
			break;
	}
	return err;
}

/* What others enter, ntb_hw_switchtec or an administrator, is found in the table only. */
static void requesters_look(struct pcilend_requesters *table, struct requester *entry)
{
	u32 value;

	lockdep_assert_held(&table->lock);
	if (entry->ours || entry->users)
		return;
	value = ioread32(&table->control->req_id_table[entry - table->entry]);
	entry->id = value & NTB_CTRL_REQ_ID_EN ? value >> 16 : REQUESTER_NOBODY;
}

static int requesters_enter(struct pcilend_requesters *table, u16 id)
{
	struct requester *entry, *vacant = NULL;
	int err;

	lockdep_assert_held(&table->lock);
	for (entry = table->entry; entry < table->entry + table->count; entry++) {
		requesters_look(table, entry);
		if (entry->id == id && (entry->users || !entry->ours)) {
			entry->users++;
			return 0;
		}
		/* One that could not be taken out is as good as a free one. */
		if (!vacant && !entry->users && (entry->ours || entry->id == REQUESTER_NOBODY))
			vacant = entry;
	}
	if (!vacant)
		return -ENOSPC;
	err = requesters_write(table, vacant - table->entry, (u32)id << 16 | NTB_CTRL_REQ_ID_EN);
	if (err)
		return err;
	vacant->id = id;
	vacant->ours = true;
	vacant->users = 1;
	return 0;
}

/* One that can't be taken out stays, without a user: its place is given to the next. */
static int requesters_leave(struct pcilend_requesters *table, u16 id)
{
	struct requester *entry;
	int err;

	lockdep_assert_held(&table->lock);
	for (entry = table->entry; entry < table->entry + table->count; entry++) {
		if (!entry->users || entry->id != id)
			continue;
		if (--entry->users || !entry->ours)
			return 0;
		err = requesters_write(table, entry - table->entry, 0);
		entry->ours = err;
		return err;
	}
	return 0;
}

/* Does what it sends have its own ID, and no other? pci_for_each_dma_alias() is not exported. */
static bool requesters_knows_id(struct pci_dev *function)
{
	return (pci_is_pcie(function) || pci_is_root_bus(function->bus)) &&
	       !function->dma_alias_mask;
}

/*
 * pcilend_requesters_add - from now on what the function sends gets through the link's adapter
 *
 * Process context; some milliseconds. Entries are counted: each of these is undone by a
 * pcilend_requesters_remove(). Return: 0, or -EXFULL: it is not let through, and the log says why.
 */
int pcilend_requesters_add(struct pcilend_link *link, struct pci_dev *function)
{
	struct pcilend_requesters *table = link->requesters;
	int err;

	if (!table)
		return 0;
	guard(mutex)(&table->lock);
	if (!table->control)
		err = -ENODEV;
	else if (!requesters_knows_id(function))
		err = -EOPNOTSUPP;
	else
		err = requesters_enter(table, pci_dev_id(function));
	if (!err)
		return 0;
	if (err == -ENODEV)
		pci_warn(function, "pcilend: can't go over adapter %s: that is being removed\n",
			 pci_name(link->pdev));
	else if (err == -EOPNOTSUPP)
		pci_warn(function, "pcilend: can't go over adapter %s: it sends with the IDs of others, and that adapter knows requesters by theirs\n",
			 pci_name(link->pdev));
	else if (err == -ENOSPC)
		pci_warn(function, "pcilend: can't go over adapter %s: its table of %u requesters is full\n",
			 pci_name(link->pdev), table->count);
	else
		pci_warn(function, "pcilend: can't go over adapter %s: its table of requesters can't be written (error %d)\n",
			 pci_name(link->pdev), err);
	return -EXFULL;
}

/* Its bus mastering is off. */
void pcilend_requesters_remove(struct pcilend_link *link, struct pci_dev *function)
{
	struct pcilend_requesters *table = link->requesters;
	int err;

	if (!table)
		return;
	guard(mutex)(&table->lock);
	if (!table->control)
		return;
	err = requesters_leave(table, pci_dev_id(function));
	if (err)
		pci_warn(function, "pcilend: it stays a requester of the adapter %s (error %d)\n",
			 pci_name(link->pdev), err);
}

/*
 * pcilend_requesters_count - who is in the adapter's table, if it has one
 * @entries: 0 if it has none
 * @used: by the adapter's driver, this host's lent functions, and others
 * @lent: those of functions that are lent
 */
void pcilend_requesters_count(struct pcilend_link *link, u32 *entries, u32 *used, u32 *lent)
{
	struct pcilend_requesters *table = link->requesters;
	struct requester *entry;

	*entries = 0;
	*used = 0;
	*lent = 0;
	if (!table)
		return;
	guard(mutex)(&table->lock);
	if (!table->control)
		return;
	*entries = table->count;
	for (entry = table->entry; entry < table->entry + table->count; entry++) {
		requesters_look(table, entry);
		*used += entry->ours || entry->id != REQUESTER_NOBODY;
		*lent += entry->users > 0;
	}
}
