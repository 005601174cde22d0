/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The state of an open database; what every room asks of it and of its stores, and checks of
 * arguments.
 */
#ifndef KV_DB_H
#define KV_DB_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvdb/kvdb.h>

#include "base/macros.h"
#include "db/budget.h"
#include "db/count.h"
#include "db/etime.h"
#include "db/kvs.h"

struct kv_ckpts;
struct kv_ctl;
struct kv_flusher;
struct kv_forest;
struct kv_holds;
struct kv_hooks;
struct kv_keylocks;
struct kv_lent;
struct kv_logs;
struct kv_mdc;
struct kv_open_views;
struct kv_pagepool;
struct kv_readers;
struct kv_reloc;
struct kv_run;
struct kv_segs;
struct kv_slabs;
struct kv_tctx;
struct kv_tickets;
struct kv_txns;
struct kv_views;
struct kv_work;

/* Set once, never cleared: kv_fail(). */
struct kv_fault {
	_Atomic(int) fa_err;		/* 0 or -errno */
	char fa_text[256];		/* written once, under fa_lock, before fa_err */
	pthread_mutex_t fa_lock;	/* a leaf */
};

struct kvdb {
	uint64_t d_id;			/* of this open handle in this process (thread.c) */
	struct kv_tctx *d_ctxs;		/* thread.c */
	struct kv_tctx *d_ctx_ended;
	struct mpool *d_mp;
	const struct kv_hooks *d_hooks;
	uint8_t d_uuid[16];
	uint64_t d_tag;			/* client tag of every object; its low half is fh_tag */
	uint32_t d_flags;		/* KVDB_* */
	_Atomic(uint32_t) d_interval_ms; /* this and the next: kvdb_set() */
	_Atomic(bool) d_commit;
	bool d_rdonly;
	bool d_at_ckpt;			/* open at a checkpoint: no logs are read */
	uint64_t d_rollback;		/* kvdb_opts.rollback */
	uint8_t d_log_class;		/* enum mpool_mclass of logs and runs */
	struct kv_limits d_limits;	/* at open */
	struct kv_budget d_budget;
	struct kvdb_clock d_clock;
	bool d_clock_is_system;			/* no other was injected */
	struct kv_etime d_time;
	struct kv_fault d_fault;	/* fail-stop (P5) */

	/* epochs, all only grow */
	_Atomic(uint64_t) d_epoch;	/* open epoch */
	_Atomic(uint64_t) d_closed;	/* every slot of epochs <= it is DONE or SKIP */
	_Atomic(uint64_t) d_durable;	/* durable epoch */
	/* newest epoch at whose end no active memtable held a record; d_tick_lock writes */
	_Atomic(uint64_t) d_boundary;
	/* stamps given until then are at most this, later ones are above */
	_Atomic(uint64_t) d_boundary_seq;
	_Atomic(uint64_t) d_seq;	/* R12: stamps and views */
	pthread_mutex_t d_tick_lock;	/* closing an epoch */
	uint32_t d_incarnation;
	struct {			/* newest descriptor on media: flusher, recovery */
		uint64_t epoch, obj;
		uint32_t off;
	} d_desc;

	pthread_mutex_t d_kvs_lock;	/* the array below */
	struct kvdb_kvs *d_kvs[KVDB_KVS_MAX];
	bool d_kvs_coming;		/* a store is being made; d_kvs_lock */
	uint32_t d_nkvs;
	uint32_t d_next_kvs_id;
	_Atomic(uint64_t) d_next_run;
	_Atomic(struct kv_run *) d_doomed;	/* dropped, unreferenced, objects not yet deleted */
	_Atomic(uint32_t) d_reaping;	/* threads inside kv_runs_reap() */
	_Atomic(uint32_t) d_merging;	/* jobs that have runs, of all stores: mg_n in all */
	_Atomic(uint64_t) d_merge_due;	/* bytes that those will write, about */
	_Atomic(uint64_t) d_close_ns;	/* when a close is to flush no more; 0 = it is not closed */

	struct kv_warm d_warm;		/* warm.c */
	struct kv_points d_points;	/* point.c */
	_Atomic(uint64_t) d_run_gen;	/* the newest tr_gen */
	struct kv_segs *d_segs;		/* seg.c */
	struct kv_slabs *d_slabs;	/* slab.c */
	struct kv_pagepool *d_pages;	/* pagepool.c */
	struct kv_lent *d_lent;		/* lent.c */
	_Atomic(uint64_t) d_scan_bytes;	/* of b_scan_bytes, in use */
	struct kv_readers *d_readers;	/* read.c */
	struct kv_logs *d_logs;		/* log.c */
	struct kv_flusher *d_flusher;	/* flush.c */
	_Atomic(struct kv_work *) d_work; /* work.c; the flusher runs before it is there */
	struct kv_mdc *d_mdc;		/* mdc.c */
	bool d_is_lossy;		/* repair reads it: goes on behind damage */
	struct kv_reloc *d_reloc;	/* reloc.c */
	struct kv_compact d_compact;	/* compact.c */
	struct kv_views *d_views;	/* memtable.c */
	struct kv_ckpts *d_ckpts;	/* ckpt.c */
	struct kv_cqs d_cqs;		/* cq.c */
	struct kv_keylocks *d_keylocks;	/* keylock.c */
	struct kv_open_views *d_open_views; /* view.c */
	struct kv_tickets *d_tickets;	/* durable.c */
	struct kv_holds *d_holds;	/* hold.c */
	struct kv_txns *d_txns;		/* txn.c */
	uint32_t d_view_max_age_ms;
	/* transactions that own keys: a plain write looks at it under the bucket lock */
	_Atomic(uint32_t) d_owners;
	_Atomic(uint64_t) d_tree_gen;	/* trees published so far (view.c) */
	_Atomic(struct kv_forest *) d_forest; /* the current trees, cached (view.c) */

	struct kv_troubles d_troubles;
	struct kv_throttle d_throttle;	/* throttle.c */
	struct kv_ctl *d_ctl;		/* ctl.c; NULL = no control socket */
	const char *d_ctl_path;		/* of the socket, or NULL */
	struct kv_counters d_count;
	struct kvdb_recovery d_recovery;
	_Atomic(uint64_t) d_log_bytes;	/* closed so far in all logs; at first 1 and d_log_left */
	uint64_t d_log_left;	/* bytes of log that recovery replayed from: not flushed yet */
	uint64_t d_cpu_ns;	/* processor time of the process when it was opened */
};

/* ---- fault.c: the database has stopped (P5) ---- */

/* First failure wins: sets the sticky state and its text, returns @err. */
int kv_fail(struct kvdb *db, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static inline int kv_fault(struct kvdb *db)
{
	return atomic_load_explicit(&db->d_fault.fa_err, memory_order_acquire);
}

/* kv_error_unwritten() of a write that kv_stall_wait() refused with @err; @what it is of. */
int kv_error_room(struct kvdb *db, int err, const char *what);
/* -EIO of a change of the container that may be on media: behind kv_fail(). */
int kv_error_unknown(struct kvdb *db);
/*
 * 0, or -ENOENT: the handle of a store that was dropped. Until its caller leaves kv_enter() a
 * store that was not keeps its memtables: a drop waits for that (D1).
 */
int kv_error_dropped(const struct kvdb_kvs *kvs);
/* @err of work that others did: says for this thread what stopped the database, if that was it. */
int kv_error_stopped(struct kvdb *db, int err);

static inline uint64_t kv_now(struct kvdb *db)
{
	return db->d_clock.now_ns(db->d_clock.arg);
}

/* What an epoch lasts that nothing ends sooner. */
static inline uint64_t kv_quarter_ns(struct kvdb *db)
{
	uint64_t ms = db->d_interval_ms;

	return (ms == KVDB_INTERVAL_NONE ? 4000 : ms) * 250000u;
}

static inline bool kv_is_manual(const struct kvdb *db)
{
	return db->d_flags & KVDB_MANUAL;
}

/* kv_toll_of() if there is anything to pay, or NULL. */
static inline struct kv_toll *kv_toll(struct kvdb *db, struct kvdb_kvs *kvs)
{
	if (KV_LIKELY(!(atomic_load_explicit(&db->d_throttle.th_all.to_cost, memory_order_relaxed) |
			atomic_load_explicit(&kvs->k_toll.to_cost, memory_order_relaxed))))
		return NULL;
	return kv_toll_of(db, kvs);
}

/* ---- db.c ---- */

/* The pool of a database, held by its lease; for writing it is not begun: RV24. */
int kv_pool_open(const char *pool, const struct kvdb_opts *o, bool is_rdonly, struct mpool **out);
/* Deletes objects that nothing refers to, in batches. */
int kv_objs_delete(struct mpool *mp, const uint64_t *id, size_t n);
/* What failed is a thing of its own, and the pool goes on: it is not the database that stops. */
bool kv_is_local(struct kvdb *db, int err);
/*
 * FS4: a change of the pool that may wait, @what, failed with @err, of which this thread has the
 * detail. If that stopped the pool, it stops the database.
 */
void kv_stop_with_pool(struct kvdb *db, int err, const char *what);

/* 0, or -EROFS: open for reading only, or stopped. */
int kv_may_change(struct kvdb *db);
/* The rule for names of stores and checkpoints. */
bool kv_name_is_ok(const char *s);

/* The store of this id, or NULL. */
struct kvdb_kvs *kv_kvs_by_id(struct kvdb *db, uint32_t id);
/* The store in slot @i of d_kvs, kept from being dropped until kv_kvs_release(); NULL: none. */
struct kvdb_kvs *kv_kvs_hold(struct kvdb *db, uint32_t i);
void kv_kvs_release(struct kvdb_kvs *kvs);
/* It is not dropped until k_cursors is one less; -ENOENT: it was. */
int kv_kvs_use(struct kvdb_kvs *kvs);
/* Smallest durable horizon of all stores: epochs up to it need no log. */
uint64_t kv_min_horizon(struct kvdb *db);

/* ---- arguments: 0, or the error, with its detail ---- */

int kv_error_key(const struct kvdb_kvs *kvs, const void *key, size_t klen);
int kv_error_value(const struct kvdb_kvs *kvs, const void *val, size_t vlen);
int kv_error_buf(const struct kvdb_kvs *kvs, size_t size);

/* -EINVAL, -ENAMETOOLONG */
static inline int kv_check_key(const struct kvdb_kvs *kvs, const void *key, size_t klen)
{
	return KV_LIKELY(key && klen - 1 < KVDB_KEY_MAX) ? 0 : kv_error_key(kvs, key, klen);
}

/* -EINVAL, -E2BIG */
static inline int kv_check_value(const struct kvdb_kvs *kvs, const void *val, size_t vlen)
{
	return KV_LIKELY((val || !vlen) && vlen <= KVDB_VALUE_MAX) ? 0 :
	       kv_error_value(kvs, val, vlen);
}

/* -EINVAL */
static inline int kv_check_buf(const struct kvdb_kvs *kvs, const void *buf, size_t size)
{
	return KV_LIKELY(buf || !size) ? 0 : kv_error_buf(kvs, size);
}

#endif
