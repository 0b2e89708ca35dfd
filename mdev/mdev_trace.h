/* SPDX-License-Identifier: GPL-2.0-only */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM pcilend_mdev

#if !defined(PCILEND_MDEV_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define PCILEND_MDEV_TRACE_H

#include <linux/tracepoint.h>

TRACE_EVENT(pcilend_mdev_state,
	TP_PROTO(u32 id, const char *what, int error),
	TP_ARGS(id, what, error),
	TP_STRUCT__entry(
		__field(u32, id)
		__string(what, what)
		__field(int, error)
	),
	TP_fast_assign(
		__entry->id = id;
		__assign_str(what);
		__entry->error = error;
	),
	TP_printk("%x %s: %d", __entry->id, __get_str(what), __entry->error)
);

#endif /* PCILEND_MDEV_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE mdev_trace
#include <trace/define_trace.h>
