/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The memory and media budget: one function decides every size that follows
 * from cache_bytes, the cores and the pool (R10); the constants below are its
 * shares and bounds. It is pure; kv_limits_read() looks at the machine.
 *
 * Invariant: memtables + slabs + indexes + buffers <= cache_bytes, and the slabs
 * hold an image of the open segment of every stream.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "db/budget.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/stream.h"
#include "db/cgroup.h"
#include "db/count.h"

#define KIB	(1ull << 10)
#define MIB	(1ull << 20)
#define GIB	(1ull << 30)

#define CACHE_MIN	(64 * MIB)
#define CACHE_SMALL	(4 * MIB)	/* KVDB_SMALL: the least, and the default */
#define CACHE_DEFAULT	(4 * GIB)
#define SEG_MIN		(256 * KIB)
#define SEG_OPT_MIN	(64 * KIB)
#define AHEAD_MAX	16u
#define SEG_MAX		(32 * MIB)
#define THREADS_MAX	64u
#define OWN_MIN		(17 * MIB)	/* the largest record, and a lone descriptor or two */
#define SHARE_MAX	(4 * MIB)	/* much more than what a commit takes the time of */
#define MDC_MAX		GIB
/* of a segment in the container: in the state, once more in an open's record, its part of runs */
#define MDC_SEG		64u
#define TXN_LOG_PART	4u		/* of the log's limit, for what transactions hold */
#define TXN_LEAST	(4 * MIB)	/* but two of the largest commit records */
#define LEAF_KEYS	(4u << 20)	/* about 150 MiB of keys, 4 GB with values of 1 KB */
#define LEAF_MAX	(256 * MIB)	/* of a leaf of long keys, or keys with their values */
#define LEAF_PARTS	64u		/* no more than this part of a pool, */
#define LEAF_MIN	MIB		/* but in a tiny one */

static uint64_t min64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t max64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t pow2_floor(uint64_t x)
{
	return x ? 1ull << (63 - __builtin_clzll(x)) : 0;
}

static int check_opts(const struct kvdb_opts *o, const struct kv_limits *l)
{
	bool is_small = o->flags & KVDB_SMALL;

	if (o->cache_bytes && o->cache_bytes < (is_small ? CACHE_SMALL : CACHE_MIN))
		return kv_error(-EINVAL, "MP0951", "cache_bytes is %llu; the least is %s",
				(unsigned long long)o->cache_bytes,
				is_small ? "4 MiB" : "64 MiB, or 4 MiB with KVDB_SMALL");
	if (o->cache_bytes > l->l_ram_bytes)
		return kv_error(-EINVAL, "MP0951",
				"cache_bytes is %llu; this process may use %llu bytes of memory",
				(unsigned long long)o->cache_bytes,
				(unsigned long long)l->l_ram_bytes);
	if (o->logs > KV_LOGS_MAX)
		return kv_error(-EINVAL, "MP0951", "logs is %u; the most is %u", o->logs,
				KV_LOGS_MAX);
	if (o->threads > THREADS_MAX)
		return kv_error(-EINVAL, "MP0951", "threads is %u; the most is %u", o->threads,
				THREADS_MAX);
	if (o->segment_bytes && (o->segment_bytes < SEG_OPT_MIN || o->segment_bytes > SEG_MAX ||
				 o->segment_bytes % (64 * KIB)))
		return kv_error(-EINVAL, "MP0951",
				"segment_bytes is %llu; wanted a multiple of 64 KiB from 64 KiB "
				"to 32 MiB",
				(unsigned long long)o->segment_bytes);
	return 0;
}

/*
 * Slabs: what is left beside memtables, index and I/O buffers. Memtable chunks that wait to be used
 * again are at most a quarter of the memtables' part.
 */
static void split_cache(struct kv_budget *b)
{
	uint64_t cache = b->b_cache_bytes, buffers = min64(cache / 64, 64 * MIB);

	b->b_mt_bytes = min64(cache / 6, GIB);
	/* what it takes in memtables at its commit must fit into these (T16) */
	b->b_txn_bytes = b->b_mt_bytes - b->b_mt_bytes / 4;
	b->b_index_bytes = cache / 16;
	b->b_near_bytes = b->b_index_bytes;
	/*
	 * Used only while such records come; the largest must have its turn, and from 256 MiB on
	 * one is filled while another is written.
	 */
	b->b_large_bytes = max64(cache / 8 + MIB, OWN_MIN);
	b->b_point_bytes = pow2_floor(cache / 32);
	b->b_scan_bytes = min64(cache / 16, 32 * MIB);
	b->b_slab_bytes = cache - b->b_mt_bytes - b->b_index_bytes - b->b_point_bytes -
			  b->b_scan_bytes - buffers;
}

/* Size of segments on a class of the given bytes (R10). */
static uint64_t class_seg(uint64_t class_bytes, uint64_t streams, uint64_t most)
{
	uint64_t seg = max64(min64(class_bytes / (64 * streams), SEG_MAX), SEG_MIN);

	KV_ASSERT(streams);
	return max64(pow2_floor(min64(seg, most)), SEG_MIN);
}

/* The pool says how large they are, not the cache; images of those that are open lie still. */
static void split_shares(const struct kv_limits *l, struct kv_budget *b)
{
	uint64_t share = min64(pow2_floor(l->l_class_bytes / 64), SHARE_MAX);

	b->b_share_bytes = (uint32_t)max64(share, b->b_seg_bytes);
	b->b_shares = (uint32_t)max64(min64(b->b_large_bytes / 4 / b->b_share_bytes, b->b_logs), 1);
	KV_ASSERT(b->b_share_bytes >= b->b_seg_bytes && b->b_shares <= b->b_logs);
}

static int split_logs(const struct kvdb_opts *o, const struct kv_limits *l, struct kv_budget *b)
{
	uint64_t seg, streams, lent, least = o->segment_bytes ? o->segment_bytes : SEG_MIN;

	b->b_logs = o->logs ? o->logs : (uint32_t)max64(min64(l->l_cores, KV_LOGS_MAX), 1);
	if (o->flags & KVDB_SMALL && !o->logs) {
		b->b_logs = 1;
	} else if (!o->logs) {
		/* by default no more logs than slabs and class can serve with ease */
		uint64_t fit = min64(b->b_slab_bytes / (4 * KV_STREAMS * least),
				     l->l_class_bytes / (8 * KV_STREAMS * least));

		b->b_logs = (uint32_t)max64(min64(b->b_logs, fit), 1);
	}
	streams = (uint64_t)b->b_logs * KV_STREAMS;
	seg = class_seg(l->l_class_bytes, streams,
			min64(b->b_cache_bytes / 64,
			      max64(b->b_slab_bytes / (4 * streams), SEG_MIN)));
	if (o->segment_bytes)
		seg = o->segment_bytes;
	b->b_move_bytes = (uint32_t)seg;
	/*
	 * Two images of one stream: the larger, the fewer passes over what fills them. To move
	 * 0.46 GB in key order 2.3 are read with images of 32 MiB, 3.9 with 8.
	 */
	if (l->l_capacity_bytes > l->l_class_bytes)
		b->b_move_bytes = (uint32_t)max64(seg, class_seg(l->l_capacity_bytes, 1,
								 b->b_cache_bytes / 32));
	/* logs that were asked for come before what cursors read ahead into */
	if (seg * streams > b->b_slab_bytes) {
		lent = min64(seg * streams - b->b_slab_bytes, b->b_scan_bytes);
		b->b_scan_bytes -= lent;
		b->b_slab_bytes += lent;
	}
	if (seg * streams > b->b_slab_bytes)
		return kv_error(-EINVAL, "MP0951",
				"%u logs with segments of %llu bytes do not fit into cache_bytes "
				"%llu",
				b->b_logs, (unsigned long long)seg,
				(unsigned long long)b->b_cache_bytes);
	b->b_seg_bytes = (uint32_t)seg;
	split_shares(l, b);
	/* one stream is the busy one: its logs together a 16th of the slabs, a 32nd of the class */
	b->b_ahead = (uint32_t)max64(min64(min64(b->b_slab_bytes / 16, l->l_class_bytes / 32) /
					   (b->b_logs * seg), AHEAD_MAX), 1);
	b->b_slab_bytes = b->b_slab_bytes / seg * seg;
	b->b_frame_max = (uint32_t)min64(512 * KIB, seg / 2 / KV_BLOCK * KV_BLOCK);
	KV_ASSERT(b->b_frame_max && b->b_frame_max % KV_BLOCK == 0);
	return 0;
}

/*
 * Each of the container's two logs, which stay as they are made: 1/64 of the class of the logs, 64
 * MiB at most, or what describes a pool that is full of segments of 1 MiB, or as small as the logs'
 * are. A 32nd of a class at most: staging that is too small beside capacity does not have them.
 */
static void split_mdc(const struct kv_limits *l, struct kv_budget *b)
{
	uint64_t least = max64(min64(l->l_class_bytes / 64, 64 * MIB), MIB), most;
	uint64_t need = max64(l->l_all_bytes, l->l_grown_bytes) / min64(b->b_seg_bytes, MIB) *
			MDC_SEG;

	need = max64(min64(need, MDC_MAX), least);
	most = max64(l->l_class_bytes / 32, least);
	b->b_mdc_capacity = need > most && l->l_capacity_bytes > l->l_class_bytes;
	if (b->b_mdc_capacity)
		most = l->l_capacity_bytes / 32;
	b->b_mdc_bytes = min64(need, most) / MIB * MIB;
}

/*
 * R19: one segment for each log, one flush of all memtables' keys, a key block each way,
 * one merge of a leaf that is about to be split, and descriptors, of which two segments are ready.
 */
static uint64_t reserve(const struct kv_budget *b)
{
	/* T16: what a large transaction brings into memtables is beside the log's limit */
	uint64_t parts = max64(atomic_load(&b->b_txn_bytes), TXN_LEAST) - TXN_LEAST;

	return (uint64_t)b->b_logs * b->b_seg_bytes + min64(b->b_mt_bytes, b->b_log_bytes + parts) +
	       2ull * b->b_kblock_bytes + 2 * b->b_leaf_bytes + 2 * KV_DESC_BYTES;
}

int kv_budget(const struct kvdb_opts *o, const struct kv_limits *l, struct kv_budget *b)
{
	uint64_t kb;
	int err = check_opts(o, l);

	if (err)
		return err;
	memset(b, 0, sizeof(*b));
	b->b_cache_bytes = o->cache_bytes;
	if (!b->b_cache_bytes && o->flags & KVDB_SMALL)
		b->b_cache_bytes = CACHE_SMALL;
	if (!b->b_cache_bytes)
		b->b_cache_bytes = max64(min64(l->l_ram_bytes / 4, CACHE_DEFAULT), CACHE_MIN);
	split_cache(b);
	err = split_logs(o, l, b);
	if (err)
		return err;

	/* a log that holds less than four segments per stream flushes all the time */
	b->b_log_least = min64(4ull * b->b_logs * KV_STREAMS * b->b_seg_bytes,
			       max64(l->l_class_bytes / 2, b->b_seg_bytes));
	b->b_log_bytes = o->log_bytes;
	if (!b->b_log_bytes)
		b->b_log_bytes = min64(min64(512 * MIB, l->l_class_bytes / 8),
				       2 * b->b_cache_bytes);
	b->b_log_bytes = max64(b->b_log_bytes, b->b_log_least);

	/* T16: its flush must fit into the reserve beside that of a whole log */
	atomic_store(&b->b_txn_bytes, min64(atomic_load(&b->b_txn_bytes),
					    max64(b->b_log_bytes / TXN_LOG_PART, TXN_LEAST)));
	/* its values need not be replayed, but nothing moves or frees them */
	b->b_txn_log_bytes = l->l_class_bytes / 2;

	b->b_threads = o->threads;
	if (!b->b_threads)
		b->b_threads = (uint32_t)max64(min64(l->l_cores / 2, 16), 1);
	kb = min64(min64(l->l_capacity_bytes / 128, 32 * MIB), b->b_cache_bytes / 32);
	b->b_kblock_bytes = (uint32_t)max64(pow2_floor(kb), 256 * KIB);
	b->b_leaf_keys = LEAF_KEYS;
	b->b_leaf_bytes = max64(min64(l->l_all_bytes / LEAF_PARTS, LEAF_MAX), LEAF_MIN);
	split_mdc(l, b);
	KV_ASSERT(b->b_log_bytes >= b->b_log_least);
	KV_ASSERT(b->b_slab_bytes >= (uint64_t)b->b_logs * KV_STREAMS * b->b_seg_bytes);
	KV_ASSERT(b->b_mt_bytes + b->b_index_bytes + b->b_point_bytes + b->b_scan_bytes +
		  b->b_slab_bytes <= b->b_cache_bytes);
	KV_ASSERT(!(b->b_point_bytes & (b->b_point_bytes - 1)));
	b->b_reserve_bytes = reserve(b);
	return 0;
}

/* ---- what the machine offers ----------------------------------------------- */

int kv_limits_read(struct mpool *mp, struct kv_limits *l)
{
	struct mpool_info pi;
	struct kv_cgroup g;
	cpu_set_t set;
	long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
	int err = mpool_info(mp, &pi);

	if (err)
		return kv_error_mpool(err);
	memset(l, 0, sizeof(*l));
	l->l_ram_bytes = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : GIB;
	kv_cgroup_own(&g);
	l->l_ram_bytes = min64(l->l_ram_bytes, g.g_memory);
	l->l_cores = 1;
	if (!sched_getaffinity(0, sizeof(set), &set))
		l->l_cores = (uint32_t)max64((uint64_t)CPU_COUNT(&set), 1);
	l->l_cores = (uint32_t)min64(l->l_cores, g.g_cores);
	l->l_capacity_bytes = pi.cls[MPOOL_CAPACITY].total;
	l->l_all_bytes = l->l_capacity_bytes + pi.cls[MPOOL_STAGING].total;
	l->l_grown_bytes = l->l_all_bytes + pi.cls[MPOOL_CAPACITY].growable +
			   pi.cls[MPOOL_STAGING].growable;
	l->l_class_bytes = pi.cls[MPOOL_STAGING].devs ? pi.cls[MPOOL_STAGING].total :
			   l->l_capacity_bytes;
	return 0;
}
