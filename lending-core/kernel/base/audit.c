// SPDX-License-Identifier: GPL-2.0-only
/*
 * Who changed what, or was refused: an event for listeners, a line in the kernel log, a
 * tracepoint. What peers ask for is limited per link, so that nobody can flood the log.
 */

#include <linux/cred.h>

#include "base/base.h"
#include "base/events.h"
#include "base/trace.h"

#define PEER_LINES 20		/* of one link in PEER_MS; what is above is only counted */
#define PEER_MS 5000

static void audit_tell(const struct pcilend_audit *audit)
{
	char function[24] = "", target[24] = "";

	if (audit->function)
		snprintf(function, sizeof(function), " function=%x", audit->function);
	if (audit->target)
		snprintf(target, sizeof(target),
			 audit->target > PCILEND_NODE_MAX ? " target=%x" : " target=%u",
			 audit->target);
	pr_info("pcilend: audit: %s=%u action=%s%s%s result=%d\n", audit->node ? "node" : "uid",
		audit->node ?: audit->uid, audit->action, function, target, audit->result);
	trace_pcilend_audit(audit->node, audit->uid, audit->action, audit->function,
			    audit->target, audit->result);
	pcilend_event_audit(audit);
}

/* An administrator's change; in the context of who asked for it. */
void pcilend_audit_admin(u32 uid, const char *action, u32 function, u32 target, int result)
{
	const struct pcilend_audit audit = {
		.uid = uid,
		.action = action,
		.function = function,
		.target = target,
		.result = result,
	};

	audit_tell(&audit);
}

/* Room for one more line about this peer? Tells how many there was none for. */
static bool audit_room(struct pcilend_audit_limit *limit, u32 node)
{
	u64 now = pcilend_now();
	u32 dropped = 0;
	bool yes;

	spin_lock(&limit->lock);
	if (now - limit->since >= PEER_MS) {
		dropped = limit->lines - min_t(u32, limit->lines, PEER_LINES);
		limit->since = now;
		limit->lines = 0;
	}
	yes = limit->lines++ < PEER_LINES;
	spin_unlock(&limit->lock);
	if (dropped)
		pr_info("pcilend: audit: node=%u suppressed=%u\n", node, dropped);
	return yes;
}

void pcilend_audit_limit_init(struct pcilend_audit_limit *limit)
{
	spin_lock_init(&limit->lock);
}

/* What a peer asked for, and was given or refused. */
void pcilend_audit_peer(struct pcilend_audit_limit *limit, u32 node, const char *action,
			u32 function, u32 target, int result)
{
	const struct pcilend_audit audit = {
		.node = node,
		.action = action,
		.function = function,
		.target = target,
		.result = result,
	};

	if (audit_room(limit, node))
		audit_tell(&audit);
}
