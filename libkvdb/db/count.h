/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Counters of a database. Those that many threads bump are in struct kv_tctx (thread.h). */
#ifndef KV_COUNT_H
#define KV_COUNT_H

#include <stdatomic.h>
#include <stdint.h>

#include <kvdb/kvdb.h>

/* What bytes are read for, as struct kvdb_io tells them apart. */
enum kv_read_for { KV_READ_LOG, KV_READ_KEY, KV_READ_VALUE, KV_READ_MOVE, KV_READS };

struct kv_counters {
	_Atomic(uint64_t) log_bytes[MPOOL_MCLASSES], key_bytes[MPOOL_MCLASSES];
	_Atomic(uint64_t) meta_bytes[MPOOL_MCLASSES], move_bytes[MPOOL_MCLASSES];
	_Atomic(uint64_t) read_bytes[KV_READS][MPOOL_MCLASSES];
	_Atomic(uint64_t) relocations, damaged;
	_Atomic(uint64_t) scan_places, order_relocations, order_bytes;
	_Atomic(uint64_t) index_mem;	/* of all runs that are open */
	_Atomic(uint64_t) mt_mem;	/* of all memtables; */
	_Atomic(uint64_t) mt_coming;	/* that large transactions are about to add to them (T16) */
	_Atomic(uint64_t) txn_mem;	/* write sets of transactions, but for small ones */
	_Atomic(uint64_t) mt_free;	/* arena chunks to reuse, vw_lock */
	_Atomic(uint64_t) move_mem;	/* of jobs that run: images, and what they read into */
	_Atomic(uint64_t) pack_in, pack_out;	/* bytes of values that moved in stores that pack */
	_Atomic(uint64_t) flushes, flush_rounds, merges, segments_freed, syncs;
	_Atomic(uint64_t) spills, splits, joins;
	_Atomic(uint64_t) merge_keys, merge_most_keys;	/* in the inputs; of the largest */
	_Atomic(uint64_t) page_hits, page_misses;
	_Atomic(uint64_t) csum_errors, rereads;
	_Atomic(uint64_t) log_device_max_ns;	/* fl_io_lock */
	_Atomic(uint64_t) durability_late, gate_waits, gate_wait_ns, stalls, stall_ns, skipped;
};

#endif
