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

struct requester {
	u16 id;
	bool drivers;		/* entered by ntb_hw_switchtec, and never taken out here */
	unsigned int users;
};

struct pcilend_requesters {
	struct mutex lock;	/* also what is done with the registers */
	struct ntb_ctrl_regs __iomem *control;	/* lock */
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
	u32 partition, count, i, value;

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
	for (i = 0; i < count; i++) {
		value = ioread32(&control->req_id_table[i]);
		table->entry[i].drivers = value & NTB_CTRL_REQ_ID_EN;
		table->entry[i].id = value >> 16;
	}
	link->requesters = table;
	return 0;
}

void pcilend_requesters_exit(struct pcilend_link *link)
{
	struct pcilend_requesters *table = link->requesters;

	link->requesters = NULL;
	if (!table)
		return;
	iounmap(table->control);
	kfree(table);
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

static int requesters_enter(struct pcilend_requesters *table, u16 id)
{
	struct requester *entry, *vacant = NULL;
	int err;

	lockdep_assert_held(&table->lock);
	for (entry = table->entry; entry < table->entry + table->count; entry++) {
		if ((entry->users || entry->drivers) && entry->id == id) {
			entry->users++;
			return 0;
		}
		if (!vacant && !entry->users && !entry->drivers)
			vacant = entry;
	}
	if (!vacant)
		return -ENOSPC;
	err = requesters_write(table, vacant - table->entry, (u32)id << 16 | NTB_CTRL_REQ_ID_EN);
	if (err)
		return err;
	vacant->id = id;
	vacant->users = 1;
	return 0;
}

/* One that can't be taken out stays, without a user: its place is given to the next. */
static int requesters_leave(struct pcilend_requesters *table, u16 id)
{
	struct requester *entry;

	lockdep_assert_held(&table->lock);
	for (entry = table->entry; entry < table->entry + table->count; entry++) {
		if (!entry->users || entry->id != id)
			continue;
		if (--entry->users || entry->drivers)
			return 0;
		return requesters_write(table, entry - table->entry, 0);
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
 * pcilend_requesters_remove(). Return: 0, -ENOSPC if the table is full, -EOPNOTSUPP if the function
 * sends with the IDs of others, or what the adapter says.
 */
int pcilend_requesters_add(struct pcilend_link *link, struct pci_dev *function)
{
	struct pcilend_requesters *table = link->requesters;
	int err;

	if (!table)
		return 0;
	guard(mutex)(&table->lock);
	err = requesters_knows_id(function) ? requesters_enter(table, pci_dev_id(function)) :
					      -EOPNOTSUPP;
	if (err)
		pci_warn(function, "pcilend: the adapter %s does not take it as a requester (error %d)\n",
			 pci_name(link->pdev), err);
	return err;
}

/* Its bus mastering is off. */
void pcilend_requesters_remove(struct pcilend_link *link, struct pci_dev *function)
{
	struct pcilend_requesters *table = link->requesters;
	int err;

	if (!table)
		return;
	guard(mutex)(&table->lock);
	err = requesters_leave(table, pci_dev_id(function));
	if (err)
		pci_warn(function, "pcilend: it stays a requester of the adapter %s (error %d)\n",
			 pci_name(link->pdev), err);
}
