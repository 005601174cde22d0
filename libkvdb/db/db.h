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
#include "db/epochs.h"
#include "db/etime.h"
#include "db/kvs.h"
#include "db/mode.h"
#include "db/thread.h"

struct kv_ckpts;
struct kv_ctl;
struct kv_flusher;
struct kv_holds;
struct kv_hooks;
struct kv_logs;
struct kv_mdc;
struct kv_reloc;
struct kv_segs;
struct kv_txns;

/* Set once, never cleared: kv_fail(). */
struct kv_fault {
	_Atomic(int) fa_err;		/* 0 or -errno */
	char fa_text[256];		/* written once, under fa_lock, before fa_err */
	pthread_mutex_t fa_lock;	/* a leaf */
};

struct kvdb {
	struct kv_ident d_ident;
	struct kv_mode d_mode;
	struct kv_opened d_opened;
	struct kv_db_threads d_threads;	/* thread.c */
	struct mpool *d_mp;
	const struct kv_hooks *d_hooks;
	struct kv_budget d_budget;
	struct kv_etime d_time;
	struct kv_fault d_fault;	/* fail-stop (P5) */
	struct kv_epochs d_epochs;
	struct kv_stores d_stores;
	struct kv_runs d_runs;
	struct kv_cache d_cache;
	struct kv_segs *d_segs;		/* seg.c */
	struct kv_mem d_mem;
	struct kv_trees d_trees;
	struct kv_logs *d_logs;		/* log.c */
	struct kv_logged d_logged;
	struct kv_flusher *d_flusher;	/* flush.c */
	struct kv_mdc *d_mdc;		/* mdc.c */
	struct kv_ckpts *d_ckpts;	/* ckpt.c */
	struct kv_holds *d_holds;	/* hold.c */
	struct kv_reloc *d_reloc;	/* reloc.c */
	struct kv_background d_bg;
	struct kv_throttle d_throttle;	/* throttle.c */
	struct kv_troubles d_troubles;
	struct kv_txns *d_txns;		/* txn.c */
	struct kv_cqs d_cqs;		/* cq.c */
	struct kv_ctl *d_ctl;		/* ctl.c; NULL = no control socket */
	struct kv_counters d_count;
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
/* -EIO of a change of the container that may be on media: after kv_fail(). */
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
	return db->d_time.et_clock.now_ns(db->d_time.et_clock.arg);
}

/* What an epoch lasts that nothing ends sooner. */
static inline uint64_t kv_quarter_ns(struct kvdb *db)
{
	uint64_t ms = db->d_mode.md_interval_ms;

	return (ms == KVDB_INTERVAL_NONE ? 4000 : ms) * 250000u;
}

static inline bool kv_is_manual(const struct kvdb *db)
{
	return db->d_mode.md_flags & KVDB_MANUAL;
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
/* The store in slot @i of sr_kvs, kept from being dropped until kv_kvs_release(); NULL: none. */
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
