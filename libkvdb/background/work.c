/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Background work. Four kinds of threads: the keeper switches and flushes memtables, seals and
 * frees log segments, takes idle holds, and wakes the mergers, which do merges, then relocation;
 * the supplier has the next segments of the logs ready, the grower memory: larger tables, pages of
 * new images, what warming reads, what was lent (LE1). So a long merge never stands before a flush,
 * nor a flush before a log, nor memory that the system is slow to give before a segment (TH-10).
 * Only the keeper looks at every epoch (TH-15).
 *
 * Flushes of memtables are in mtflush.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "background/work.h"
#include "base/assert.h"
#include "base/error.h"
#include "db/bell.h"
#include "db/etime.h"
#include "db/mem_wait.h"
#include "db/thread.h"
#include "db/waits.h"
#include "cache/borrow.h"
#include "cache/slab.h"
#include "mem/memtable.h"
#include "run/run.h"
#include "run/run_near.h"
#include "tree/hold.h"
#include "tree/tree.h"
#include "tree/view.h"
#include "log/flush.h"
#include "meta/mdc.h"
#include "meta/upkeep.h"
#include "compact/merge.h"
#include "compact/reloc.h"
#include "background/compact.h"
#include "background/warm.h"


/* ---- the steps ---------------------------------------------------------------- */

/* Tables of memtables that are too large for a writer to grow in passing. */
static int grow_step(struct kvdb *db)
{
	int did = 0;

	for (uint32_t i = 0; i < KVDB_KVS_MAX; i++) {
		struct kvdb_kvs *kvs = kv_kvs_hold(db, i);
		struct kv_mt *mt;
		struct kv_thread *t;

		if (!kvs)
			continue;
		t = kv_enter();
		mt = kv_mt_active(kvs);
		mt = atomic_exchange(&mt->m_grow_asked, false) ? kv_mt_get(mt) : NULL;
		kv_exit(t);
		kv_kvs_release(kvs);
		if (mt) {
			kv_mt_grow(mt);
			kv_mt_put(db, mt);
			did = 1;
		}
	}
	return did;
}

/* Gets segments ready before the logs run into the end of theirs: by turns, one each. */
static int prepare_step(struct kvdb *db)
{
	struct kv_logs *ls = db->d_logs;
	bool did;

	do {
		did = false;
		for (unsigned int i = 0; i < ls->ls_n * KV_STREAMS; i++) {
			int rc = kv_log_prepare_ahead(db, kv_log_at(ls, i));

			/* full media: the writer that needs the segment will say so */
			if (rc < 0)
				return rc == -ENOSPC ? 0 : rc;
			did |= rc;
		}
		if (did)
			kv_grower_kick(db);	/* it has an image */
	} while (did);
	return 0;
}

static int keeper_step(struct kvdb *db)
{
	int r = kv_switch_step(db);

	if (r >= 0) {
		int f = kv_flush_step(db);

		r = f < 0 || f > r ? f : r;
	}
	kv_desc_step(db);
	kv_views_step(db);
	kv_holds_step(db);
	if (r == 0)
		r = kv_time_step(db);
	/* a flush that finds no room gets it from segments that died meanwhile */
	if (r == 0 || r == -ENOSPC) {
		int s = kv_segs_step(db);

		r = s ? s : r;
	}
	kv_reclaim();
	kv_slab_kept_step(db);
	if (kv_runs_reap(db) && r == 0)
		r = 1;
	/* a run more to merge, or a segment; or room is wanted */
	if (r)
		kv_bell_ring(db->d_bg.bd_work, &db->d_bg.bd_work->wk_merge);
	return r;
}

static int supplier_step(struct kvdb *db)
{
	int r = prepare_step(db);

	r = r ? r : kv_segs_stock_step(db);
	return r ? r : kv_large_ready_step(db);
}

static int grower_step(struct kvdb *db)
{
	int r = grow_step(db);

	kv_pagepool_lent_step(db);
	/* the least urgent: its first user would do it by itself */
	if (!r)
		r = kv_slab_fault_step(db);
	r = r ? r : kv_near_step(db);
	return r ? r : kv_warm_step(db);
}

static int merger_step(struct kvdb *db)
{
	struct kv_work *wk = db->d_bg.bd_work;
	uint32_t from = atomic_load(&wk->wk_merge_turn);
	int r = 0;

	r = kv_compact_step(db);
	for (uint32_t i = 0; i < KVDB_KVS_MAX && !r; i++) {
		struct kvdb_kvs *kvs = kv_kvs_hold(db, (from + i) % KVDB_KVS_MAX);

		if (!kvs)
			continue;
		r = kv_merge_step(db, kvs);
		if (r)
			atomic_store(&wk->wk_merge_turn, kvs->k_slot + 1);
		kv_kvs_release(kvs);
	}
	if (!r)
		r = kv_reloc_step(db);
	return r;
}

int kv_work_step(struct kvdb *db)
{
	int r = kv_fault(db);

	KV_ASSERT_OUTSIDE();
	if (r)
		return r;
	r = keeper_step(db);
	if (r == 0)
		r = prepare_step(db);
	/* a flush that finds no room may get it from a merge */
	if (r == 0 || r == -ENOSPC) {
		int m = merger_step(db);

		r = m ? m : r;
	}
	return r;
}

/* KVDB_SMALL: all of it in one thread, first what writers would wait for. */
static int small_step(struct kvdb *db)
{
	int (*const step[])(struct kvdb *db) = {
		keeper_step, supplier_step, grower_step, merger_step };
	int r = 0;

	for (unsigned i = 0; i < sizeof(step) / sizeof(step[0]) && r <= 0; i++) {
		int s = step[i](db);

		if (s < 0 && s != -ENOSPC && s != -ENOMEM)
			return s;
		r = s ? s : r;
	}
	return r;
}

static void work_loop(struct kvdb *db, int (*step)(struct kvdb *db), struct kv_bell *bl)
{
	struct kv_work *wk = db->d_bg.bd_work;
	uint64_t seen = 0;

	while (!atomic_load(&wk->wk_stop) && !kv_fault(db)) {
		int r = step(db);

		KV_ASSERT_OUTSIDE();	/* a step leaves what it entered */
		if (r < 0 && r != -ENOSPC && r != -ENOMEM)
			kv_fail(db, r, "background work failed: %s", kvdb_error_detail()->text);
		if (r <= 0)
			kv_bell_sleep(wk, bl, &seen);
	}
}

static void *keeper_main(void *arg)
{
	struct kvdb *db = arg;

	work_loop(db, keeper_step, &db->d_bg.bd_work->wk_keep);
	return NULL;
}

static void *supplier_main(void *arg)
{
	struct kvdb *db = arg;

	work_loop(db, supplier_step, &db->d_bg.bd_work->wk_supply);
	return NULL;
}

static void *grower_main(void *arg)
{
	struct kvdb *db = arg;

	work_loop(db, grower_step, &db->d_bg.bd_work->wk_grow);
	return NULL;
}

static void *merger_main(void *arg)
{
	struct kvdb *db = arg;

	work_loop(db, merger_step, &db->d_bg.bd_work->wk_merge);
	return NULL;
}

static void *small_main(void *arg)
{
	struct kvdb *db = arg;

	work_loop(db, small_step, &db->d_bg.bd_work->wk_keep);
	return NULL;
}

int kv_work_start(struct kvdb *db)
{
	static void *(*const first[])(void *) = { keeper_main, supplier_main, grower_main };
	/* with staging a second merger: it is emptied beside a job for space */
	unsigned int least = db->d_mode.md_log_class == MPOOL_CAPACITY ? 2 : 3, i;
	/* supplier and grower sleep nearly always: they come on top */
	unsigned int n = (db->d_budget.b_threads < least ? least : db->d_budget.b_threads) + 2;
	struct kv_work *wk = calloc(1, sizeof(*wk));

	if (!wk)
		return -ENOMEM;
	wk->wk_is_one = db->d_mode.md_flags & KVDB_SMALL;
	if (wk->wk_is_one)
		n = 1;
	wk->wk_thread = calloc(n, sizeof(wk->wk_thread[0]));
	if (!wk->wk_thread) {
		free(wk);
		return -ENOMEM;
	}
	kv_bells_init(wk);
	db->d_bg.bd_work = wk;
	if (kv_is_manual(db) || db->d_mode.md_rdonly)
		return 0;
	for (i = 0; i < n; i++) {
		int err = kv_thread_start(&wk->wk_thread[i], wk->wk_is_one ? small_main :
					  i < 3 ? first[i] : merger_main, db);

		if (err) {
			kv_work_stop(db);
			return kv_error(-err, "MP0994", "cannot start background threads");
		}
		wk->wk_n++;
	}
	return 0;
}

void kv_work_stop(struct kvdb *db)
{
	struct kv_work *wk = db->d_bg.bd_work;
	unsigned int n = wk ? atomic_exchange(&wk->wk_n, 0) : 0;
	uint64_t began;

	if (!wk)
		return;
	began = kv_wait_begin();
	atomic_store(&wk->wk_stop, true);
	kv_bells_ring(wk);
	for (unsigned int i = 0; i < n; i++)
		pthread_join(wk->wk_thread[i], NULL);
	kv_wait_end(KVDB_DELAY_WORK, began);
	kv_warm_end(db);
}

void kv_work_fini(struct kvdb *db)
{
	struct kv_work *wk = db->d_bg.bd_work;

	if (!wk)
		return;
	kv_work_stop(db);
	KV_ASSERT(!atomic_load(&wk->wk_n));
	kv_bells_fini(wk);
	free(wk->wk_thread);
	db->d_bg.bd_work = NULL;
	free(wk);
}

/* ---- public ------------------------------------------------------------------------------ */

/* What a caller is told of work that it did itself. */
static int work_error(struct kvdb *db, int err)
{
	if (err)
		kv_stop_with_pool(db, err, "background work");
	return kv_error_stopped(db, err);
}

int kvdb_poll(struct kvdb *db)
{
	int n = db->d_mode.md_rdonly ? kv_may_change(db) : kv_fault(db);

	KV_ASSERT_OUTSIDE();
	if (!n && kv_epoch_is_due(db)) {
		n = kv_epoch_force(db);
		n = n ? n : 1;
	} else if (!n) {
		n = kv_work_step(db);
	}
	return n < 0 ? work_error(db, n) : n;
}

int kv_switch_all(struct kvdb *db)
{
	int err = 0;

	for (uint32_t i = 0; i < KVDB_KVS_MAX && !err; i++) {
		struct kvdb_kvs *kvs = kv_kvs_hold(db, i);
		struct kv_thread *t;
		bool holds;

		if (!kvs)
			continue;
		t = kv_enter();
		holds = kv_mt_first_epoch(kv_mt_active(kvs)) != 0;
		kv_exit(t);
		if (holds && !atomic_load(&kvs->k_next_mt))
			err = kv_switch_prepare(db, kvs);
		kv_kvs_release(kvs);
	}
	return err;
}

/* A store has a memtable, a frozen one or any, with records of epochs up to @upto. */
static bool has_memtables(struct kvdb *db, uint64_t upto, bool is_frozen)
{
	bool has = false;

	for (uint32_t i = 0; i < KVDB_KVS_MAX && !has; i++) {
		struct kvdb_kvs *kvs = kv_kvs_hold(db, i);
		struct kv_tree *tr;
		uint64_t first;

		if (!kvs)
			continue;
		tr = kv_tree_get(kvs);
		/* the oldest one began first */
		first = kv_mt_first_epoch(tr->tr_mt[tr->tr_nmt - 1]);
		has = first && first <= upto && (tr->tr_nmt > 1 || !is_frozen);
		kv_tree_put(db, tr);
		kv_kvs_release(kvs);
	}
	return has;
}

/* Why a store that has something to flush is left alone, or 0. */
static int flush_trouble(struct kvdb *db)
{
	int err = 0;

	for (uint32_t i = 0; i < KVDB_KVS_MAX && !err; i++) {
		struct kvdb_kvs *kvs = kv_kvs_hold(db, i);

		if (!kvs)
			continue;
		if (kv_trouble_holds(db, &kvs->k_flush_trouble))
			err = kv_trouble_error(db, &kvs->k_flush_trouble);
		kv_kvs_release(kvs);
	}
	return err;
}

/* Flushes until no memtable with such records is frozen; other threads may be at it too. */
static int flush_frozen(struct kvdb *db, uint64_t upto)
{
	int err = 0, r;

	while (!err && has_memtables(db, upto, true)) {
		r = kv_is_late(db) ? -ETIMEDOUT : kv_flush_step(db);
		if (r < 0)
			err = r;
		else if (r == 0 && !(err = kv_fault(db)) && !(err = flush_trouble(db)))
			kv_sleep_ms();
	}
	return err;
}

/* What is in memory now: others may write as fast as memtables are flushed. */
static int drain_flush(struct kvdb *db)
{
	uint64_t upto = atomic_load(&db->d_epochs.ep_open);
	int err;

	do {
		err = flush_frozen(db, upto);
		if (!err)
			err = kv_switch_all(db);
		if (!err)
			err = kv_epoch_force(db);
		if (!err)
			err = flush_frozen(db, upto);
		/* again for a memtable that was not frozen because others filled the limit */
	} while (!err && has_memtables(db, upto, false));
	return err;
}

/* A tree retires its runs, a run its segments, in part by other threads. */
static void free_retired(struct kvdb *db)
{
	unsigned int i;

	for (i = 0; i < 12; i++) {
		kv_retire_barrier();
		kv_runs_reap(db);
		kv_segs_step(db);
		while (kv_is_freeing(db))
			kv_sleep_ms();
	}
}

static void make_room(struct kvdb *db)
{
	/* a flush that finds no room may get it from a merge, the next time */
	drain_flush(db);
	merger_step(db);
	kv_reloc_make_room(db);
	free_retired(db);
}

void kv_make_room(struct kvdb *db)
{
	KV_ASSERT_OUTSIDE();
	atomic_fetch_add(&db->d_bg.bd_makers, 1);
	/* first: a flush may need the room that a job for scans has */
	kv_reloc_rescue_begin(db);
	make_room(db);
	kv_reloc_rescue_end(db);
	KV_ASSERT(atomic_load(&db->d_bg.bd_makers));
	atomic_fetch_sub(&db->d_bg.bd_makers, 1);
}

/* True while a worker is in the middle of what drain_compact() waits for. */
static bool is_busy(struct kvdb *db)
{
	return kv_is_making_room(db) || kv_compact_is_merging(db);
}

/*
 * A forest retires its trees, a tree its runs, a run its segments, a segment its object: work is
 * over when none is due after each level had its barrier, and then the space
 * of what was deleted is free.
 */
static int drain_compact(struct kvdb *db)
{
	unsigned int idle = 0;

	while (idle < 5) {
		int r, err;

		kv_reloc_look(db);
		r = merger_step(db);
		err = kv_fault(db);

		if (r == 0)
			r = kv_segs_step(db);
		if (r < 0 || err)
			return r < 0 ? r : err;
		if (r > 0) {
			idle = 0;
		} else if (is_busy(db)) {
			kv_sleep_ms();
			idle = 0;
		} else {
			kv_retire_barrier();
			idle = kv_runs_reap(db) ? 0 : idle + 1;
		}
	}
	return 0;
}

/*
 * G15: of what mergers do only what was asked for, of one store or, with NULL, of all: what else is
 * due, in other stores say, may take far longer.
 */
static int asked_step(struct kvdb *db, const struct kvdb_kvs *kvs)
{
	int r;

	r = kv_compact_step(db);
	for (uint32_t i = 0; i < KVDB_KVS_MAX && !r; i++) {
		struct kvdb_kvs *k = kv_kvs_hold(db, i);

		if (!k)
			continue;
		if ((!kvs || k == kvs) && atomic_load(&k->k_compact) == KV_COMPACT_MERGE)
			r = kv_merge_step(db, k);
		kv_kvs_release(k);
	}
	if (!r && !kvs)
		r = kv_reloc_asked_step(db);
	return r;
}

int kv_compact_wait(struct kvdb *db, const struct kvdb_kvs *kvs)
{
	uint64_t began = kv_wait_begin();
	int err = kv_epoch_sync(db), r;

	KV_ASSERT_OUTSIDE();
	while (!err && kv_compact_is_asked(db, kvs)) {
		if (!kvs)
			kv_reloc_look(db);
		r = asked_step(db, kvs);
		if (r == 0)
			r = kv_segs_step(db);
		err = r < 0 ? r : kv_fault(db);
		if (!r && !err)
			kv_sleep_ms();
	}
	if (!err) {
		free_retired(db);
		err = kv_segs_free_dead(db);
	}
	kv_wait_end(KVDB_DELAY_WORK, began);
	return work_error(db, err);
}

static int flush_take(void *arg, bool urgent)
{
	(void)urgent;
	return drain_flush(arg);
}

/*
 * R19: what finds no room waits, as a put does, for other threads to make some. With KVDB_MANUAL the
 * caller says when merges begin, so only those of other threads are waited for.
 */
static int flush_wait(struct kvdb *db)
{
	uint64_t t0 = kv_now(db);
	bool comes = kv_is_making_room(db);
	int err = drain_flush(db);

	if (err == -ENOSPC && !kv_is_manual(db))
		return kv_space_take(db, false, flush_take, db);
	while (err == -ENOSPC && comes) {
		comes = kv_space_comes(db, t0);
		err = drain_flush(db);
	}
	return err;
}

int kvdb_drain(struct kvdb *db, unsigned flags)
{
	uint64_t began;
	int err;

	KV_ASSERT_OUTSIDE();
	if (flags & ~(KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT))
		return kv_error(-EINVAL, "MP0951", "flags %#x are not known", flags);
	if (db->d_mode.md_rdonly)
		return kv_error(-EROFS, "MP0903", "the database is open for reading only");
	err = kv_epoch_sync(db);
	began = kv_wait_begin();
	if (!err && (flags & KVDB_WAIT_FLUSH))
		err = flush_wait(db);
	/* a flush without room gets it from merges that are due */
	if (err == -ENOSPC && (flags & KVDB_WAIT_COMPACT) && !drain_compact(db))
		err = drain_flush(db);
	if (!err && (flags & KVDB_WAIT_COMPACT))
		err = drain_compact(db);
	kv_wait_end(KVDB_DELAY_WORK, began);
	/* a worker may have met what stopped the database after our last look */
	if (!err && flags)
		err = kv_fault(db);
	return work_error(db, err);
}
