// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Peer-to-peer as the borrower keeps it; see reach.h. */

#include "pcilend/identity.h"
#include "pcilend/reach.h"

static u64 reach_pages(u64 size)
{
	return (size + PCILEND_PAGE - 1) & ~(PCILEND_PAGE - 1);
}

void pcilend_reach_init(struct pcilend_reach_table *table)
{
	table->count = 0;
	table->range = (struct pcilend_range){ 0 };
	pcilend_range_init(&table->range, PCILEND_REACH_START,
			   PCILEND_REACH_END - PCILEND_REACH_START, table->used,
			   PCILEND_REACHES_MAX);
}

static void reach_take_out(struct pcilend_reach_table *table, u32 i)
{
	struct pcilend_reach *entry = &table->entry[i];

	if (!entry->mapped)
		pcilend_range_free(&table->range, entry->address, reach_pages(entry->size));
	*entry = table->entry[--table->count];
}

int pcilend_reach_add(struct pcilend_reach_table *table, u32 from, u32 to, u32 bar, u64 phys,
		      u64 size, u64 *address)
{
	struct pcilend_reach *entry;
	u32 i, own = 0;
	int err;

	for (i = 0; i < table->count; i++) {
		entry = &table->entry[i];
		if (entry->from != from)
			continue;
		own++;
		if (entry->to != to || entry->bar != bar || entry->size != size || entry->mapped)
			continue;
		if (entry->live)
			return -EALREADY;
		/* One that was closed is taken up again. */
		entry->phys = phys;
		*address = entry->address;
		return 0;
	}
	if (own >= PCILEND_REACHES || table->count == PCILEND_REACHES_MAX)
		return -ENOSPC;
	err = pcilend_range_alloc(&table->range, reach_pages(size), reach_pages(size), address);
	if (err)
		return err;
	table->entry[table->count++] = (struct pcilend_reach) {
		.from = from,
		.to = to,
		.bar = bar,
		.phys = phys,
		.size = size,
		.address = *address,
	};
	return 0;
}

static struct pcilend_reach *reach_find_mapped(struct pcilend_reach_table *table, u32 from, u32 to,
					       u32 lease, u32 bar, u64 address)
{
	u32 i;

	for (i = 0; i < table->count; i++) {
		struct pcilend_reach *entry = &table->entry[i];

		if (entry->mapped && entry->from == from && entry->to == to &&
		    entry->lease == lease && entry->bar == bar && entry->address == address)
			return entry;
	}
	return NULL;
}

int pcilend_reach_add_mapped(struct pcilend_reach_table *table, u32 from, u32 to, u32 lease,
			     u32 bar, u64 phys, u64 size, u64 address)
{
	struct pcilend_reach *entry = reach_find_mapped(table, from, to, lease, bar, address);
	u32 i, own = 0;

	if (!entry) {
		for (i = 0; i < table->count; i++)
			own += table->entry[i].from == from;
		if (own >= PCILEND_REACHES || table->count == PCILEND_REACHES_MAX)
			return -ENOSPC;
		entry = &table->entry[table->count++];
	}
	*entry = (struct pcilend_reach){
		.from = from,
		.to = to,
		.lease = lease,
		.bar = bar,
		.mapped = true,
		.phys = phys,
		.size = size,
		.address = address,
	};
	return 0;
}

bool pcilend_reach_open_mapped(struct pcilend_reach_table *table, u32 from, u32 to, u32 lease,
			       u32 bar, u64 address)
{
	struct pcilend_reach *entry = reach_find_mapped(table, from, to, lease, bar, address);

	if (!entry || !entry->phys)
		return false;
	entry->live = true;
	return true;
}

void pcilend_reach_doubt_mapped(struct pcilend_reach_table *table, u32 from, u32 to)
{
	u32 i;

	for (i = 0; i < table->count; i++) {
		if (table->entry[i].mapped && table->entry[i].from == from &&
		    table->entry[i].to == to)
			table->entry[i].live = false;
	}
}

bool pcilend_reach_drop_mapped(struct pcilend_reach_table *table, u32 from, u32 to, u32 lease,
			       u32 bar, u64 address)
{
	struct pcilend_reach *entry = reach_find_mapped(table, from, to, lease, bar, address);

	if (entry)
		reach_take_out(table, entry - table->entry);
	return entry;
}

bool pcilend_reach_open(struct pcilend_reach_table *table, u32 from, u32 to)
{
	bool any = false;
	u32 i;

	for (i = 0; i < table->count; i++) {
		struct pcilend_reach *entry = &table->entry[i];

		if (entry->from == from && entry->to == to && entry->phys && !entry->mapped) {
			entry->live = true;
			any = true;
		}
	}
	return any;
}

static void reach_close_entry(struct pcilend_reach *entry)
{
	entry->live = false;
	entry->phys = 0;
}

void pcilend_reach_close(struct pcilend_reach_table *table, u32 from, u32 to)
{
	u32 i;

	for (i = 0; i < table->count; i++) {
		if (table->entry[i].from == from && table->entry[i].to == to &&
		    !table->entry[i].mapped)
			reach_close_entry(&table->entry[i]);
	}
}

bool pcilend_reach_used(const struct pcilend_reach_table *table, u32 node, u32 to)
{
	u32 i;

	for (i = 0; i < table->count; i++) {
		const struct pcilend_reach *entry = &table->entry[i];

		if (entry->to == to && entry->phys && pcilend_id_node(entry->from) == node)
			return true;
	}
	return false;
}

const struct pcilend_reach *pcilend_reach_next(const struct pcilend_reach_table *table, u32 from,
					       u32 to, const struct pcilend_reach *previous)
{
	const struct pcilend_reach *entry = previous ? previous + 1 : table->entry;

	for (; entry < table->entry + table->count; entry++) {
		if (entry->from == from && (!to || entry->to == to))
			return entry;
	}
	return NULL;
}

int pcilend_reach_find(const struct pcilend_reach_table *table, u32 from, u64 phys, u64 size,
		       u64 *address)
{
	u32 i;

	for (i = 0; i < table->count; i++) {
		const struct pcilend_reach *entry = &table->entry[i];

		if (!entry->live || entry->mapped || entry->from != from ||
		    phys < entry->phys || size > entry->size ||
		    phys - entry->phys > entry->size - size)
			continue;
		*address = entry->address + (entry->phys & (PCILEND_PAGE - 1)) +
			   (phys - entry->phys);
		return 0;
	}
	return -ENOENT;
}

void pcilend_reach_drop(struct pcilend_reach_table *table, u32 from, u32 to)
{
	u32 i = 0;

	while (i < table->count) {
		if (table->entry[i].from == from && table->entry[i].to == to)
			reach_take_out(table, i);
		else
			i++;
	}
}

void pcilend_reach_end(struct pcilend_reach_table *table, u32 id)
{
	u32 i = 0;

	while (i < table->count) {
		if (table->entry[i].from == id) {
			reach_take_out(table, i);
			continue;
		}
		if (table->entry[i].to == id)
			reach_close_entry(&table->entry[i]);
		i++;
	}
}
