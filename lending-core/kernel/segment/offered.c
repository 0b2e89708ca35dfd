// SPDX-License-Identifier: GPL-2.0-only
/*
 * What peers offer to this host. Nothing of it is kept here: a peer is asked, offer by offer,
 * whenever somebody wants to know, so there is nothing that a lost message leaves wrong.
 */

#include "pcilend/identity.h"
#include "segment/segment.h"

/* The one behind report->id (0: the first) over that link. */
static bool offered_ask(struct pcilend_link *link, struct pcilend_offered_report *report)
{
	const struct pcilend_msg_after after = { .id = cpu_to_le32(report->id) };
	const struct pcilend_msg_offered *msg;
	struct pcilend_answer answer;
	u16 node;
	u32 id;

	if (!pcilend_link_is_up(link, &node) ||
	    pcilend_channel_request(link, PCILEND_MSG_SEGMENT_NEXT, &after, &answer))
		return false;
	msg = (const void *)answer.payload;
	id = le32_to_cpu(msg->id);
	/* Ids that don't rise would have no end. */
	if (id <= report->id || pcilend_id_node(id) != node)
		return false;
	report->link = link->index;
	report->id = id;
	report->size = le64_to_cpu(msg->size);
	report->read_only = le32_to_cpu(msg->flags) & PCILEND_SEGMENT_READ_ONLY;
	memcpy(report->name, msg->name, sizeof(report->name));
	strscpy(report->adapter, pci_name(link->pdev), sizeof(report->adapter));
	return true;
}

/**
 * pcilend_segment_offered_next - the next segment that a peer offers to this host
 * @report: link and id are those of the last one, or 0; filled in with the next
 *
 * Waits for peers; one that is silent is left out.
 * Return: false if there is none, and @report is of no use any more.
 */
bool pcilend_segment_offered_next(struct pcilend_offered_report *report)
{
	struct pcilend_link *link;

	for (link = pcilend_link_next(NULL); link; link = pcilend_link_next(link)) {
		if (link->index < report->link)
			continue;
		if (link->index > report->link)
			report->id = 0;
		if (!offered_ask(link, report))
			continue;
		pcilend_link_put(link);
		return true;
	}
	return false;
}
