/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tracepoints of the module, /sys/kernel/tracing/events/mpool. Off, each costs
 * a jump that is not taken. Durations need the time of the begin:
 *
 *	u64 begin = MPK_TRACE_BEGIN(mpool_flush);
 *	...
 *	trace_mpool_flush(dev_t, begin, rc);
 *
 * object_io.c makes them (CREATE_TRACE_POINTS).
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM mpool

#if !defined(MPK_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define MPK_TRACE_H

#include <linux/kdev_t.h>
#include <linux/ktime.h>
#include <linux/string.h>
#include <linux/tracepoint.h>

#define MPK_TRACE_BEGIN(event)	(trace_##event##_enabled() ? ktime_get_ns() : 0)

#ifndef MPK_TRACE_SINCE
#define MPK_TRACE_SINCE
/* microseconds since @begin_ns; 0: the event was switched on in between */
static inline u64 mpk_trace_since(u64 begin_ns)
{
	return begin_ns ? (ktime_get_ns() - begin_ns) / NSEC_PER_USEC : 0;
}
#endif

/* a pool became active, or did not */
TRACE_EVENT(mpool_activate,
	TP_PROTO(const char *name, u32 ndevs, u64 begin_ns, int err),
	TP_ARGS(name, ndevs, begin_ns, err),
	TP_STRUCT__entry(
		__array(char, name, 32)
		__field(u32, ndevs)
		__field(u64, usecs)
		__field(int, err)
	),
	TP_fast_assign(
		strscpy_pad(__entry->name, name, sizeof(__entry->name));
		__entry->ndevs = ndevs;
		__entry->usecs = mpk_trace_since(begin_ns);
		__entry->err = err;
	),
	TP_printk("pool=%s devices=%u usecs=%llu error=%d", __entry->name, __entry->ndevs,
		  __entry->usecs, __entry->err)
);

/* a pool turned read-only; @id is the MP number of the cause */
TRACE_EVENT(mpool_fault,
	TP_PROTO(const char *name, int id),
	TP_ARGS(name, id),
	TP_STRUCT__entry(
		__array(char, name, 32)
		__field(int, id)
	),
	TP_fast_assign(
		strscpy_pad(__entry->name, name, sizeof(__entry->name));
		__entry->id = id;
	),
	TP_printk("pool=%s cause=MP%04d", __entry->name, __entry->id)
);

/* a batch of commits, seals and deletes */
TRACE_EVENT(mpool_batch,
	TP_PROTO(u32 minor, u32 nops, u64 begin_ns, int err),
	TP_ARGS(minor, nops, begin_ns, err),
	TP_STRUCT__entry(
		__field(u32, minor)
		__field(u32, nops)
		__field(u64, usecs)
		__field(int, err)
	),
	TP_fast_assign(
		__entry->minor = minor;
		__entry->nops = nops;
		__entry->usecs = mpk_trace_since(begin_ns);
		__entry->err = err;
	),
	TP_printk("minor=%u operations=%u usecs=%llu error=%d", __entry->minor, __entry->nops,
		  __entry->usecs, __entry->err)
);

/* one flush of a device's cache, for all that waited for it */
TRACE_EVENT(mpool_flush,
	TP_PROTO(dev_t dev, u64 begin_ns, int err),
	TP_ARGS(dev, begin_ns, err),
	TP_STRUCT__entry(
		__field(u32, dev)
		__field(u64, usecs)
		__field(int, err)
	),
	TP_fast_assign(
		__entry->dev = dev;
		__entry->usecs = mpk_trace_since(begin_ns);
		__entry->err = err;
	),
	TP_printk("dev=%u:%u usecs=%llu error=%d", MAJOR(__entry->dev), MINOR(__entry->dev),
		  __entry->usecs, __entry->err)
);

/* a write of the core: superblock, metadata log, record log */
TRACE_EVENT(mpool_md_write,
	TP_PROTO(dev_t dev, u64 off, u32 len, u64 begin_ns, int err),
	TP_ARGS(dev, off, len, begin_ns, err),
	TP_STRUCT__entry(
		__field(u32, dev)
		__field(u64, off)
		__field(u32, len)
		__field(u64, usecs)
		__field(int, err)
	),
	TP_fast_assign(
		__entry->dev = dev;
		__entry->off = off;
		__entry->len = len;
		__entry->usecs = mpk_trace_since(begin_ns);
		__entry->err = err;
	),
	TP_printk("dev=%u:%u off=%llu len=%u usecs=%llu error=%d", MAJOR(__entry->dev),
		  MINOR(__entry->dev), __entry->off, __entry->len, __entry->usecs, __entry->err)
);

/* a direct read or write of an object has ended; @ret: bytes or negative errno */
TRACE_EVENT(mpool_obj_io,
	TP_PROTO(u32 minor, u64 id, bool is_write, u64 off, s64 ret),
	TP_ARGS(minor, id, is_write, off, ret),
	TP_STRUCT__entry(
		__field(u32, minor)
		__field(bool, is_write)
		__field(u64, id)
		__field(u64, off)
		__field(s64, ret)
	),
	TP_fast_assign(
		__entry->minor = minor;
		__entry->is_write = is_write;
		__entry->id = id;
		__entry->off = off;
		__entry->ret = ret;
	),
	TP_printk("minor=%u object=%llu %s off=%llu ret=%lld", __entry->minor, __entry->id,
		  __entry->is_write ? "write" : "read", __entry->off, __entry->ret)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
