// SPDX-License-Identifier: GPL-2.0-only
/* What happens to links, for both ends of segments. */

#include <linux/slab.h>

#include "segment/segment.h"

static int segment_link_init(struct pcilend_link *link)
{
	struct segment_link *sl = kzalloc(sizeof(*sl), GFP_KERNEL);

	if (!sl)
		return -ENOMEM;
	sl->link = link;
	segment_owner_link_init(sl);
	segment_connection_link_init(sl);
	link->segments = sl;
	return 0;
}

static void segment_link_up(struct pcilend_link *link)
{
	segment_owner_up(segment_link(link));
	segment_connection_up(segment_link(link));
}

static void segment_link_lost(struct pcilend_link *link)
{
	segment_connection_lost(segment_link(link));
}

static void segment_link_request(struct pcilend_link *link, const struct pcilend_message *msg)
{
	switch (le16_to_cpu(pcilend_message_header(msg)->type)) {
	case PCILEND_MSG_SEGMENT_CONNECT:
		segment_owner_connect(link, msg);
		break;
	case PCILEND_MSG_SEGMENT_RELEASE:
		segment_owner_release(link, msg);
		break;
	case PCILEND_MSG_SEGMENT_NEXT:
		segment_owner_next(link, msg);
		break;
	case PCILEND_MSG_SEGMENT_WITHDRAW:
		segment_connection_withdraw(link, msg);
		break;
	}
}

static void segment_link_silent(struct pcilend_link *link)
{
	segment_connection_silent(segment_link(link));
}

static void segment_link_expelled(struct pcilend_link *link)
{
	segment_owner_expelled(segment_link(link));
	segment_connection_expelled(segment_link(link));
}

static void segment_link_peer_dead(struct pcilend_link *link)
{
	segment_owner_peer_dead(segment_link(link));
	segment_connection_peer_dead(segment_link(link));
}

/* There is no session any more: nothing is offered or connected over it. */
static void segment_link_gone(struct pcilend_link *link)
{
	struct segment_link *sl = segment_link(link);

	disable_delayed_work_sync(&sl->tell);
	disable_work_sync(&sl->lose);
	disable_delayed_work_sync(&sl->release);
	/* One whose CONNECT has failed with the session, and that was about to be released. */
	segment_connection_peer_dead(sl);
}

const struct pcilend_segment_ops pcilend_segment_link_ops = {
	.init = segment_link_init,
	.up = segment_link_up,
	.lost = segment_link_lost,
	.request = segment_link_request,
	.silent = segment_link_silent,
	.expelled = segment_link_expelled,
	.peer_dead = segment_link_peer_dead,
	.gone = segment_link_gone,
};

bool pcilend_segments_in_use(void)
{
	struct pcilend_link *link;
	bool used = false;

	for (link = pcilend_link_next(NULL); link; link = pcilend_link_next(link))
		used |= segment_owner_offers(segment_link(link)) ||
			segment_connection_in_use(segment_link(link));
	return used;
}

void pcilend_segments_settle(const char *adapter)
{
	struct pcilend_link *link = pcilend_link_by_adapter(adapter);

	if (!link)
		return;
	flush_delayed_work(&segment_link(link)->release);
	pcilend_link_put(link);
}

void pcilend_segments_exit(void)
{
	segment_owner_exit();
}
