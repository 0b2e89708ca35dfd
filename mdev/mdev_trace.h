/* SPDX-License-Identifier: GPL-2.0-only */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM pcilend_mdev

#if !defined(PCILEND_MDEV_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define PCILEND_MDEV_TRACE_H

#include <linux/tracepoint.h>

TRACE_EVENT(pcilend_mdev_pass,
	TP_PROTO(u32 id, u64 bytes, u32 segments, u64 us, int error, bool clean, bool stable),
	TP_ARGS(id, bytes, segments, us, error, clean, stable),
	TP_STRUCT__entry(
		__field(u64, bytes)
		__field(u64, us)
		__field(u32, id)
		__field(u32, segments)
		__field(int, error)
		__field(bool, clean)
		__field(bool, stable)
	),
	TP_fast_assign(
		__entry->id = id;
		__entry->bytes = bytes;
		__entry->segments = segments;
		__entry->us = us;
		__entry->error = error;
		__entry->clean = clean;
		__entry->stable = stable;
	),
	TP_printk("%x mapped %llu bytes in %u segments, %llu us, error %d%s%s", __entry->id,
		  __entry->bytes, __entry->segments, __entry->us, __entry->error,
		  __entry->clean ? " clean" : "", __entry->stable ? " stable" : "")
);

TRACE_EVENT(pcilend_mdev_forget,
	TP_PROTO(u32 id, u64 gpa, u64 size, u64 unpinned),
	TP_ARGS(id, gpa, size, unpinned),
	TP_STRUCT__entry(
		__field(u64, gpa)
		__field(u64, size)
		__field(u64, unpinned)
		__field(u32, id)
	),
	TP_fast_assign(
		__entry->id = id;
		__entry->gpa = gpa;
		__entry->size = size;
		__entry->unpinned = unpinned;
	),
	TP_printk("%x unmapped %#llx+%#llx, %llu bytes were pinned", __entry->id, __entry->gpa,
		  __entry->size, __entry->unpinned)
);

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
