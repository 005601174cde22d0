/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* How memory, segments and threads are shared out. */
#ifndef KV_BUDGET_H
#define KV_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <kvdb/kvdb.h>

#define KV_LOGS_MAX	64u
#define KV_DESC_BYTES	(64u << 10)	/* a segment for descriptors of epochs (E7) */

struct kv_budget {
	uint64_t b_cache_bytes;
	/* log since the oldest unflushed record; kvdb_set() changes it */
	_Atomic(uint64_t) b_log_bytes;
	uint64_t b_log_least;	/* of that */
	uint64_t b_mt_bytes;	/* all memtables of all KVSs, frozen included */
	/* all write sets of transactions, but for the first part of each; tests make it small */
	_Atomic(uint64_t) b_txn_bytes;
	uint64_t b_txn_log_bytes; /* log segments that one may hold */
	uint64_t b_slab_bytes;	/* window and page pool */
	uint32_t b_share_bytes;	/* a segment of several large values, */
	uint32_t b_shares;	/* as many at a time, of the first logs */
	uint64_t b_large_bytes;	/* images of large records, beside the slabs */
	uint64_t b_point_bytes;	/* point index: a power of two, or 0: none */
	uint64_t b_scan_bytes;	/* that cursors read ahead into */
	uint64_t b_index_bytes;	/* fences, filters, tables of segments: what is not lent */
	/* indexes beyond that leave filters and fences to the page pool; tests make it small */
	_Atomic(uint64_t) b_near_bytes;
	uint32_t b_seg_bytes;	/* log segment and slab size, multiple of 64 KiB */
	uint32_t b_move_bytes;	/* segment of moved values on capacity, at least that */
	uint32_t b_frame_max;	/* a frame is closed when it reaches this */
	uint32_t b_ahead;	/* segments that a busy log has ready, at most */
	uint32_t b_logs;
	uint32_t b_threads;
	uint32_t b_kblock_bytes; /* key block objects, at most */
	uint64_t b_mdc_bytes;	/* each log of the metadata container, at create */
	bool b_mdc_capacity;	/* on capacity, not where the logs are */
	/* a leaf with more splits when all of it is merged; tests make it small */
	_Atomic(uint64_t) b_leaf_keys;
	uint64_t b_leaf_bytes;	/* the same for the bytes of its runs */
	uint64_t b_reserve_bytes; /* kept free in all classes together (R19) */
};

struct kv_limits {		/* what machine, control groups and pool offer */
	uint64_t l_ram_bytes;
	uint32_t l_cores;
	uint64_t l_class_bytes;	/* of the class that the logs live in */
	uint64_t l_capacity_bytes;
	uint64_t l_all_bytes;
	uint64_t l_grown_bytes;	/* what that may become while the pool is open; 0: the same */
};
/* -EINVAL with a detail when an option is out of range */
int kv_budget(const struct kvdb_opts *o, const struct kv_limits *l, struct kv_budget *b);
int kv_limits_read(struct mpool *mp, struct kv_limits *l);

#endif
