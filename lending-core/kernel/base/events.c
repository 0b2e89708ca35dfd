// SPDX-License-Identifier: GPL-2.0-only
/* Events on their way from who changes something to who tells listeners. */

#include "base/base.h"
#include "base/events.h"

static const struct pcilend_event_ops *listener;

void pcilend_events_listen(const struct pcilend_event_ops *ops)
{
	WRITE_ONCE(listener, ops);
}

void pcilend_event_link(struct pcilend_link *link)
{
	const struct pcilend_event_ops *ops = READ_ONCE(listener);

	pcilend_changed();
	if (ops)
		ops->link(link);
}

void pcilend_event_function(enum pcilend_event event, const struct pcilend_report *report)
{
	const struct pcilend_event_ops *ops = READ_ONCE(listener);

	if (ops)
		ops->function(event, report);
}

void pcilend_event_audit(const struct pcilend_audit *audit)
{
	const struct pcilend_event_ops *ops = READ_ONCE(listener);

	if (ops)
		ops->audit(audit);
}

void pcilend_event_segment(const struct pcilend_segment_news *news, bool gone)
{
	const struct pcilend_event_ops *ops = READ_ONCE(listener);

	pcilend_changed();
	if (ops)
		ops->segment(news, gone);
}
