/* SPDX-License-Identifier: GPL-2.0-only */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM pcilend

#if !defined(PCILEND_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define PCILEND_TRACE_H

#include <linux/tracepoint.h>

TRACE_EVENT(pcilend_link_state,
	TP_PROTO(const char *adapter, u32 peer, u32 from, u32 to, const char *reason),
	TP_ARGS(adapter, peer, from, to, reason),
	TP_STRUCT__entry(
		__string(adapter, adapter)
		__field(u32, peer)
		__field(u32, from)
		__field(u32, to)
		__string(reason, reason)
	),
	TP_fast_assign(
		__assign_str(adapter);
		__entry->peer = peer;
		__entry->from = from;
		__entry->to = to;
		__assign_str(reason);
	),
	TP_printk("%s peer %u state %u -> %u %s", __get_str(adapter), __entry->peer,
		  __entry->from, __entry->to, __get_str(reason))
);

TRACE_EVENT(pcilend_function_state,
	TP_PROTO(u32 id, const char *event, u32 from, u32 to),
	TP_ARGS(id, event, from, to),
	TP_STRUCT__entry(
		__field(u32, id)
		__string(event, event)
		__field(u32, from)
		__field(u32, to)
	),
	TP_fast_assign(
		__entry->id = id;
		__assign_str(event);
		__entry->from = from;
		__entry->to = to;
	),
	TP_printk("%x %s state %u -> %u", __entry->id, __get_str(event), __entry->from,
		  __entry->to)
);

TRACE_EVENT(pcilend_bars,
	TP_PROTO(u32 id, bool reached),
	TP_ARGS(id, reached),
	TP_STRUCT__entry(
		__field(u32, id)
		__field(bool, reached)
	),
	TP_fast_assign(
		__entry->id = id;
		__entry->reached = reached;
	),
	TP_printk("%x %s", __entry->id, __entry->reached ? "reached" : "hidden")
);

TRACE_EVENT(pcilend_granule,
	TP_PROTO(u64 iova, u64 size, u64 slot),
	TP_ARGS(iova, size, slot),
	TP_STRUCT__entry(
		__field(u64, iova)
		__field(u64, size)
		__field(u64, slot)
	),
	TP_fast_assign(
		__entry->iova = iova;
		__entry->size = size;
		__entry->slot = slot;
	),
	TP_printk("iova %#llx size %#llx slot %#llx", __entry->iova, __entry->size, __entry->slot)
);

DECLARE_EVENT_CLASS(pcilend_lease,
	TP_PROTO(u32 id, u32 lease, u32 lender, u32 borrower, const char *why),
	TP_ARGS(id, lease, lender, borrower, why),
	TP_STRUCT__entry(
		__field(u32, id)
		__field(u32, lease)
		__field(u32, lender)
		__field(u32, borrower)
		__string(why, why)
	),
	TP_fast_assign(
		__entry->id = id;
		__entry->lease = lease;
		__entry->lender = lender;
		__entry->borrower = borrower;
		__assign_str(why);
	),
	TP_printk("%x lease %u node %u -> node %u %s", __entry->id, __entry->lease,
		  __entry->lender, __entry->borrower, __get_str(why))
);

DEFINE_EVENT(pcilend_lease, pcilend_lease_begin,
	TP_PROTO(u32 id, u32 lease, u32 lender, u32 borrower, const char *why),
	TP_ARGS(id, lease, lender, borrower, why)
);

DEFINE_EVENT(pcilend_lease, pcilend_lease_end,
	TP_PROTO(u32 id, u32 lease, u32 lender, u32 borrower, const char *why),
	TP_ARGS(id, lease, lender, borrower, why)
);

DECLARE_EVENT_CLASS(pcilend_message,
	TP_PROTO(u32 peer, u16 type, u16 flags, u16 status, u32 request, u32 sequence),
	TP_ARGS(peer, type, flags, status, request, sequence),
	TP_STRUCT__entry(
		__field(u32, peer)
		__field(u16, type)
		__field(u16, flags)
		__field(u16, status)
		__field(u32, request)
		__field(u32, sequence)
	),
	TP_fast_assign(
		__entry->peer = peer;
		__entry->type = type;
		__entry->flags = flags;
		__entry->status = status;
		__entry->request = request;
		__entry->sequence = sequence;
	),
	TP_printk("peer %u type %u flags %#x status %u request %u sequence %u", __entry->peer,
		  __entry->type, __entry->flags, __entry->status, __entry->request,
		  __entry->sequence)
);

DEFINE_EVENT(pcilend_message, pcilend_message_tx,
	TP_PROTO(u32 peer, u16 type, u16 flags, u16 status, u32 request, u32 sequence),
	TP_ARGS(peer, type, flags, status, request, sequence)
);

DEFINE_EVENT(pcilend_message, pcilend_message_rx,
	TP_PROTO(u32 peer, u16 type, u16 flags, u16 status, u32 request, u32 sequence),
	TP_ARGS(peer, type, flags, status, request, sequence)
);

TRACE_EVENT(pcilend_message_refused,
	TP_PROTO(u32 peer, u32 sequence, const char *why),
	TP_ARGS(peer, sequence, why),
	TP_STRUCT__entry(
		__field(u32, peer)
		__field(u32, sequence)
		__string(why, why)
	),
	TP_fast_assign(
		__entry->peer = peer;
		__entry->sequence = sequence;
		__assign_str(why);
	),
	TP_printk("peer %u sequence %u: %s", __entry->peer, __entry->sequence, __get_str(why))
);

TRACE_EVENT(pcilend_audit,
	TP_PROTO(u32 node, u32 uid, const char *action, u32 function, u32 target, int result),
	TP_ARGS(node, uid, action, function, target, result),
	TP_STRUCT__entry(
		__field(u32, node)
		__field(u32, uid)
		__string(action, action)
		__field(u32, function)
		__field(u32, target)
		__field(int, result)
	),
	TP_fast_assign(
		__entry->node = node;
		__entry->uid = uid;
		__assign_str(action);
		__entry->function = function;
		__entry->target = target;
		__entry->result = result;
	),
	TP_printk("node %u uid %u %s function %x target %u: %d", __entry->node, __entry->uid,
		  __get_str(action), __entry->function, __entry->target, __entry->result)
);

#endif /* PCILEND_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH base
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
