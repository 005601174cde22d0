/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Parts of struct kvdb and of struct kvdb_kvs that belong to rooms above this one. They are
 * defined here because they lie in those structures; only the room that is named uses them.
 */
#ifndef KV_PARTS_H
#define KV_PARTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <kvdb/kvdb.h>

#include "db/trouble.h"

struct kv_forest;
struct kv_gap_dir;
struct kv_keylocks;
struct kv_borrow;
struct kv_open_views;
struct kv_pagepool;
struct kv_point_bucket;
struct kv_readers;
struct kv_run;
struct kv_seg;
struct kv_slabs;
struct kv_views;
struct kv_work;

/* That the last job could not help, so the next one will not, until something changes; compact */
struct kv_backoff {
	uint64_t bo_at;		/* bytes that were too many; 0 = it did help */
	uint64_t bo_spare, bo_free; /* of the pool, then: above the reserve, and all */
	uint64_t bo_ns;		/* it holds no longer than so; 0 = no such bound */
};

/* Merges of a store that run: what they exclude (LF7, LF8); compact. */
struct kv_merging {
	pthread_mutex_t mg_lock;	/* these, and rn_taken */
	uint32_t mg_n;
	uint32_t mg_spills;
	uint32_t mg_shapes;		/* splits and joins */
	uint32_t mg_joins;
	uint32_t mg_coming;		/* leaves that splits may make */
	uint32_t mg_moves;		/* relocations that wait for runs: no merge begins */
	bool mg_failed;			/* the last one that ended */
	struct kv_backoff mg_no_room;	/* bo_at: merges that met the end of the pool */
	struct kv_trouble mg_trouble;	/* their output could not be written */
};

/* Ranges of a store in which cursors found nothing; tree/gap.h. */
struct kv_gaps {
	_Atomic(struct kv_gap_dir *) gs_dir;	/* or NULL; readers: inside kv_enter() */
	pthread_mutex_t gs_lock;		/* replaces it */
	uint32_t gs_closed;			/* bulk loads that are being published */
	uint32_t gs_victim;
};

/* Pieces of the index of a key block that are in memory or not; run/run_near.c. */
enum kv_piece { KV_PIECE_FILTER, KV_PIECE_FENCES, KV_PIECES };

#define KV_NEAR_SIZES	64u

/* Runs by the size of such pieces. */
struct kv_near {
	pthread_mutex_t ne_lock;		/* a leaf */
	pthread_cond_t ne_came;			/* a block was loaded, or could not be */
	/* [0] any is in memory, [1] any is not; by log2 of the bytes of all */
	struct kv_run *ne_run[KV_PIECES][2][KV_NEAR_SIZES];
};

/* The point index (tree/point.h). */
struct kv_points {
	_Atomic(struct kv_point_bucket *) po_bucket;	/* NULL until there is something to keep */
	uint64_t po_mask;
	/* by slot of a store: the tr_gen of the trees that may ask and add; another's: none may */
	_Atomic(uint64_t) po_turn[KVDB_KVS_MAX];
};

/* Memory of values and pages; cache. */
struct kv_cache {
	struct kv_slabs *cc_slabs;	/* slab.c */
	struct kv_pagepool *cc_pages;	/* pagepool.c */
	struct kv_borrow *cc_borrow;	/* borrow.c */
	struct kv_readers *cc_readers;	/* read.c */
	_Atomic(uint64_t) cc_scan_bytes; /* of b_scan_bytes, in use */
};

/* Memtables of all stores; mem. */
struct kv_mem {
	struct kv_views *mm_views;	/* memtable.c */
	struct kv_keylocks *mm_keylocks; /* keylock.c */
	/* transactions that own keys: a plain write looks at it under the bucket lock */
	_Atomic(uint32_t) mm_owners;
};

/* Runs of all stores; run, and compact, which makes them. */
struct kv_runs {
	_Atomic(uint64_t) ru_next;	/* id of the next one */
	_Atomic(struct kv_run *) ru_doomed; /* dropped, unreferenced, objects not yet deleted */
	_Atomic(uint32_t) ru_reaping;	/* threads inside kv_runs_reap() */
	_Atomic(uint32_t) ru_merging;	/* jobs that have runs, of all stores: mg_n in all */
	_Atomic(uint64_t) ru_merge_due;	/* bytes that those will write, about */
	struct kv_near ru_near;		/* run_near.c */
};

/* Trees of all stores; tree. */
struct kv_trees {
	_Atomic(uint64_t) te_gen;	/* trees published so far; view.c */
	_Atomic(struct kv_forest *) te_forest; /* the current trees, cached; view.c */
	struct kv_open_views *te_open_views; /* view.c */
	_Atomic(uint64_t) te_newest;	/* the newest tr_gen */
	struct kv_points te_points;	/* point.c */
};

/* Bytes of all logs; log, open. */
struct kv_logged {
	_Atomic(uint64_t) lc_bytes;	/* closed so far; at first 1 and lc_left */
	uint64_t lc_left;	/* that recovery replayed from: not flushed yet */
};

/* Completion queues; cq/cq.c. */
struct kv_cqs {
	pthread_mutex_t qs_lock;	/* a leaf */
	struct kvdb_cq *qs_first;
	_Atomic(uint32_t) qs_armed;	/* of them, that wait for kv_cqs_wake() */
};

/* Compaction that was asked for, background/compact.c. */
struct kv_compact {
	pthread_mutex_t cp_lock;	/* one step at a time; only tried */
	_Atomic(uint64_t) cp_epoch;	/* memtables with records up to it are flushed first */
	_Atomic(uint64_t) cp_todo, cp_done; /* bytes of runs and values, since it was asked for */
	_Atomic(uint64_t) cp_moved;	/* value bytes that had been moved when it was */
	_Atomic(int) cp_err;		/* why the last one ended before its end, or 0 */
	_Atomic(int) cp_all_err;	/* the same of the last one of all stores and values */
};

/* Values that were read; background/warm.c. */
struct kv_warm_reads {
	uint64_t wr_pool;	/* through the page pool */
	uint64_t wr_mem;	/* from images */
};

/* What one thread knows, the grower. */
struct kv_warm {
	struct kv_seg *wm_seg;		/* being read, with a reference; or NULL */
	uint8_t *wm_mem;		/* its slab */
	uint32_t wm_read;		/* bytes that were read */
	uint32_t wm_good;		/* of them in frames that are whole and right */
	uint64_t wm_after;		/* object id of the segment looked at last */
	struct kv_warm_reads wm_seen;	/* that wm_bytes was granted for */
	uint64_t wm_bytes;		/* may still be read */
};

/* What works behind the calls; background. */
struct kv_background {
	_Atomic(struct kv_work *) bd_work; /* work.c; the flusher runs before it is there */
	struct kv_warm bd_warm;		/* warm.c */
	struct kv_compact bd_compact;	/* compact.c */
	_Atomic(uint32_t) bd_makers;	/* callers without room that make some, or wait for it */
	_Atomic(uint64_t) bd_close_ns;	/* when a close flushes no more; 0: it is not closed */
};

#endif
