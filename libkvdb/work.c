/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Background work. Four kinds of threads: the keeper switches and flushes
 * memtables, seals and frees log segments; the supplier has the next segments of
 * the logs ready, the grower memory: larger tables, pages of new images, what was lent
 * (LE1); mergers do nothing but merges. So a long merge never stands before a flush, nor a flush before
 * a log, nor memory that the system is slow to give before a segment (TH-10). Only
 * the keeper looks at every epoch (TH-15).
 *
 * A flush (R4, R6): the oldest frozen memtable of a store, once its boundary
 * is durable; the run is written, committed and listed by one version edit,
 * which also moves the horizons of all stores that hold nothing older.
 *
 * Locks: wk_lock alone; k_flush_lock > k_edit_lock > k_tree_lock.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "compact.h"
#include "flush.h"
#include "lent.h"
#include "memtable.h"
#include "reloc.h"
#include "thread.h"
#include "tomb.h"
#include "txn.h"
#include "warm.h"
#include "work.h"

#define RETRY_MS 100u
#define TRIES	4u		/* of what a device failed */
#define FULL_NS	10000000000ull	/* a flush that met the end of the pool is tried again then */

struct kv_work {
	pthread_mutex_t wk_lock;
	struct bell {			/* somebody is to look for work; wk_lock */
		pthread_cond_t bl_cond;
		uint64_t bl_rings;
	} wk_keep, wk_merge, wk_supply, wk_grow; /* the last two are rung far more often */
	uint64_t wk_all_ns;		/* when all were rung; wk_lock */
	_Atomic(bool) wk_stop;
	_Atomic(bool) wk_merge_off;	/* a merge met damage: its inputs stay as they are */
	/* slots of the stores that are looked at first: behind those that were served last */
	_Atomic(uint32_t) wk_flush_turn, wk_merge_turn;
	_Atomic(unsigned int) wk_n;	/* threads that run */
	pthread_t *wk_thread;
};

bool kv_work_stopping(struct kvdb *db)
{
	return db->d_work && atomic_load_explicit(&db->d_work->wk_stop, memory_order_relaxed);
}

/* wk_lock held */
static void ring(struct bell *bl)
{
	bl->bl_rings++;
	pthread_cond_broadcast(&bl->bl_cond);
}

/* wk_lock held */
static void ring_all(struct kv_work *wk)
{
	ring(&wk->wk_keep);
	ring(&wk->wk_merge);
	ring(&wk->wk_supply);
	ring(&wk->wk_grow);
}

void kv_work_kick(struct kvdb *db)
{
	struct kv_work *wk = db->d_work;

	if (!wk || !wk->wk_n)
		return;
	pthread_mutex_lock(&wk->wk_lock);
	ring_all(wk);
	pthread_mutex_unlock(&wk->wk_lock);
}

void kv_work_tick(struct kvdb *db)
{
	struct kv_work *wk = db->d_work;
	uint64_t now = kv_now(db);

	if (!wk || !wk->wk_n)
		return;
	pthread_mutex_lock(&wk->wk_lock);
	if (now - wk->wk_all_ns >= kv_quarter_ns(db)) {
		wk->wk_all_ns = now;
		ring_all(wk);
	} else {
		ring(&wk->wk_keep);
	}
	pthread_mutex_unlock(&wk->wk_lock);
}

static void kick(struct kv_work *wk, struct bell *bl)
{
	if (!wk->wk_n)
		return;
	pthread_mutex_lock(&wk->wk_lock);
	ring(bl);
	pthread_mutex_unlock(&wk->wk_lock);
}

void kv_supplier_kick(struct kvdb *db)
{
	if (db->d_work)
		kick(db->d_work, &db->d_work->wk_supply);
}

void kv_grower_kick(struct kvdb *db)
{
	if (db->d_work)
		kick(db->d_work, &db->d_work->wk_grow);
}

struct kvdb_kvs *kv_kvs_hold(struct kvdb *db, uint32_t i)
{
	struct kvdb_kvs *kvs;

	pthread_mutex_lock(&db->d_kvs_lock);
	kvs = db->d_kvs[i];
	if (kvs && kvs->k_dropped)
		kvs = NULL;
	if (kvs)
		atomic_fetch_add(&kvs->k_holds, 1);
	pthread_mutex_unlock(&db->d_kvs_lock);
	return kvs;
}

void kv_kvs_release(struct kvdb_kvs *kvs)
{
	atomic_fetch_sub(&kvs->k_holds, 1);
}

bool kv_is_tried_again(struct kvdb *db, int err, unsigned *tries)
{
	struct timespec ts = { .tv_nsec = 10000000l << *tries };
	struct mpool_info in;

	if (CHECK(694, err != -EIO) || kv_fault(db) || ++*tries >= TRIES)
		return false;
	/* its own records, and flushes, are not for us to repeat */
	if (mpool_info(db->d_mp, &in) || in.is_rdonly)
		return false;
	if (db->d_work && db->d_work->wk_n)
		nanosleep(&ts, NULL);
	return true;
}

/* ---- memtable flush ------------------------------------------------------------- */

/* The oldest frozen memtable whose epochs are durable, with a reference; or NULL. */
static struct kv_mt *flush_victim(struct kvdb *db, struct kvdb_kvs *kvs)
{
	struct kv_tree *tr = kv_tree_get(kvs);
	struct kv_mt *mt = NULL;

	if (tr->tr_nmt > 1) {
		mt = tr->tr_mt[tr->tr_nmt - 1];
		if (kv_mt_boundary(mt) && kv_mt_boundary(mt) <= atomic_load(&db->d_durable))
			kv_mt_get(mt);
		else
			mt = NULL;
	}
	kv_tree_put(db, tr);
	return mt;
}

/* Its deletes of many keys, as far as they hide something in older runs (H3). */
static int build_tombs(struct kvdb *db, struct kvdb_kvs *kvs, struct kv_mt *mt,
		       struct kv_run_build *rb)
{
	struct kv_trows tv = { 0 };
	struct kv_tree *tr;
	bool bulk;
	int err;

	if (!kv_mt_has_tombs(mt))
		return 0;
	err = kv_trows_mt(&tv, mt);
	if (!err) {
		/*
		 * What a bulk load brings has an older stamp (B1). Looked at behind the stamps
		 * and in front of the tree: it is still to come, or in the tree.
		 */
		bulk = atomic_load(&kvs->k_bulk);
		tr = kv_tree_get(kvs);
		kv_trows_needed(&tv, bulk ? NULL : tr, NULL, 0, mt);
		kv_tree_put(db, tr);
		err = kv_run_build_tombs(rb, tv.tv_r, tv.tv_n);
	}
	free(tv.tv_r);
	return err;
}

/* The memtable in order, without what its own deletes of many keys cover. */
static int build_source(struct kvdb *db, struct kv_mt *mt, struct kv_iter **out)
{
	struct kv_cover *co;
	int err = kv_mt_iter(db, mt, KV_SEQ_NOW, false, out);

	if (err)
		return err;
	co = kv_cover_new(&mt, 1, NULL, 0, KV_SEQ_NOW, &err);
	if (co)
		return kv_cover_iter(*out, co, out);
	if (err)
		(*out)->it_ops->close(*out);
	return err;
}

static int build_run(struct kvdb *db, struct kvdb_kvs *kvs, struct kv_mt *mt,
		     struct kv_point_news *pn, struct kv_run **out)
{
	struct kv_run_build *rb;
	struct kv_iter *it;
	struct kv_ent e;
	uint64_t now = kv_time_ms(db);
	int err = kv_run_build_open(db, kvs->k_id, kv_mt_keys(mt), true, &rb);

	if (err)
		return err;
	err = build_tombs(db, kvs, mt, rb);
	if (!err)
		err = build_source(db, mt, &it);
	if (!err) {
		while (!(err = it->it_ops->next(it, &e))) {
			if (KV_UNLIKELY(kv_is_expired(&e, now)))
				kv_ent_expire(&e);
			kv_point_news_add(db, pn, &e);
			if ((err = kv_run_build_add(rb, &e)))
				break;
		}
		it->it_ops->close(it);
	}
	if (err != -ENOENT) {
		kv_run_build_abort(rb);
		return err;
	}
	return kv_run_build_finish(rb, out);
}

/*
 * R4: the flushed store's horizon, and that of every store which holds no
 * record of an epoch <= @e: none is frozen, and its active memtable began later.
 */
static unsigned int horizons(struct kvdb *db, struct kvdb_kvs *kvs, uint64_t e,
			     struct kv_horizon *hor)
{
	struct kv_thread *t = kv_enter();
	unsigned int n = 0;

	pthread_mutex_lock(&db->d_kvs_lock);
	for (uint32_t i = 0; i < KVDB_KVS_MAX; i++) {
		struct kvdb_kvs *k = db->d_kvs[i];
		struct kv_tree *tr;
		uint64_t first;

		if (!k || k->k_dropped)
			continue;
		tr = atomic_load(&k->k_tree);
		first = kv_mt_first_epoch(tr->tr_mt[0]);
		if (k != kvs && (tr->tr_nmt > 1 || (first && first <= e)))
			continue;
		if (atomic_load(&k->k_horizon) < e)
			hor[n++] = (struct kv_horizon){ .kvs = k->k_id, .epoch = e };
	}
	pthread_mutex_unlock(&db->d_kvs_lock);
	kv_exit(t);
	return n;
}

/* Makes the run durable and shows it in place of the memtable. */
static int show_run(struct kvdb *db, struct kvdb_kvs *kvs, struct kv_mt *mt, struct kv_run *run,
		    const struct kv_point_news *pn)
{
	struct kv_horizon hor[KVDB_KVS_MAX];
	struct kv_edit ed = { .ed_kvs = kvs->k_id, .ed_hor = hor, .ed_add = &run };
	struct kv_run_desc *d;
	int err;

	pthread_mutex_lock(&kvs->k_edit_lock);
	if (run) {
		d = kv_run_desc(run);
		d->rd_id = atomic_fetch_add(&db->d_next_run, 1);
		d->rd_pos = kvs->k_next_pos++;
		d->rd_newest_epoch = atomic_load(&mt->m_last_epoch);
		ed.ed_nadd = 1;
	}
	ed.ed_nhor = horizons(db, kvs, kv_mt_boundary(mt), hor);
	err = kv_mdc_edit(db, &ed);
	if (err && run) {
		/* what is not listed goes; after a failure nobody knows what is listed */
		if (!kv_fault(db))
			kv_run_drop(run);
		kv_run_put(db, run);
	}
	if (!err)
		ed.ed_gen = kv_point_news_tell(kvs, pn);
	if (!err) {
		err = kv_tree_show(kvs, mt, &ed);
		if (err && run)
			kv_run_put(db, run);
	}
	pthread_mutex_unlock(&kvs->k_edit_lock);
	return err;
}

static int flush_once(struct kvdb *db, struct kvdb_kvs *kvs, struct kv_mt *mt)
{
	struct kv_point_news pn;
	struct kv_run *run = NULL;
	int err;

	kv_point_news_begin(db, mt, &pn);
	err = build_run(db, kvs, mt, &pn, &run);
	if (!err)
		err = show_run(db, kvs, mt, run, &pn);
	kv_point_news_end(&pn);
	return err;
}

static int flush_mt(struct kvdb *db, struct kvdb_kvs *kvs, struct kv_mt *mt)
{
	unsigned tries = 0;
	int err;

	do
		err = flush_once(db, kvs, mt);
	while (kv_is_tried_again(db, err, &tries));
	if (err)
		return err;
	atomic_store(&mt->m_flushed, true);
	atomic_fetch_add(&db->d_count.flushes, 1);
	return 0;
}

int kv_flush_oldest(struct kvdb *db, struct kvdb_kvs *kvs, uint64_t upto)
{
	struct kv_mt *mt = flush_victim(db, kvs);
	int err = 0, did = 0;

	if (mt && kv_mt_boundary(mt) <= upto) {
		err = flush_mt(db, kvs, mt);
		did = 1;
	}
	if (mt)
		kv_mt_put(db, mt);
	if (did && !err)
		kv_flusher_room(db);
	return err ? err : did;
}

/* LF9: merges come first, unless nothing comes of them. */
static bool may_flush(struct kvdb *db, struct kvdb_kvs *kvs)
{
	while (kv_merge_is_behind(kvs)) {
		if (atomic_load(&db->d_work->wk_merge_off) || kv_segs_are_short(db))
			return true;
		if (!kv_is_manual(db))
			return false;	/* they kick us */
		if (kv_merge_step(db, kvs) <= 0)
			return true;
	}
	return true;
}

/* LF11: what met the end of the pool would do so again, and write until it does. */
static int flush_with_room(struct kvdb *db, struct kvdb_kvs *kvs, struct kv_mt *mt)
{
	int err;

	if (kv_segs_free_bytes(db) < kvs->k_full_free && kv_now(db) < kvs->k_full_ns)
		return kv_error(-ENOSPC, "MP0955", "store %s: the pool has no room for a flush",
				kvs->k_name);
	err = flush_mt(db, kvs, mt);
	kvs->k_full_free = err == -ENOSPC ? kv_segs_free_bytes(db) + 1 : 0;
	kvs->k_full_ns = kv_now(db) + FULL_NS;
	return err;
}

int kv_flush_step(struct kvdb *db)
{
	_Atomic(uint32_t) *turn = &db->d_work->wk_flush_turn;
	uint32_t from = atomic_load(turn);
	int did = 0, err = 0, full = 0;

	for (uint32_t i = 0; i < KVDB_KVS_MAX && !did && !err; i++) {
		struct kvdb_kvs *kvs = kv_kvs_hold(db, (from + i) % KVDB_KVS_MAX);
		struct kv_mt *mt;

		if (!kvs)
			continue;
		if (!pthread_mutex_trylock(&kvs->k_flush_lock)) {
			mt = flush_victim(db, kvs);
			if (mt && CHECK(655, may_flush(db, kvs))) {
				err = flush_with_room(db, kvs, mt);
				did = !err;
				/* one store that is written to all the time is not all */
				atomic_store(turn, kvs->k_slot + 1);
				full = err == -ENOSPC ? err : full;
				/* others may have less to write */
				err = err == -ENOSPC ? 0 : err;
			}
			if (mt)
				kv_mt_put(db, mt);
			pthread_mutex_unlock(&kvs->k_flush_lock);
		}
		kv_kvs_release(kvs);
	}
	atomic_store(&db->d_flusher->fl_space_err, full);
	if (full)
		kv_cqs_wake(db);
	if (did)
		kv_flusher_room(db);
	return err ? err : did ? did : full;
}

/* ---- the other steps ---------------------------------------------------------------- */

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
	kv_flusher_spare(db);
	kv_views_step(db);
	if (r == 0)
		r = kv_time_step(db);
	/* a flush that finds no room gets it from segments that died meanwhile */
	if (r == 0 || r == -ENOSPC) {
		int s = kv_segs_step(db);

		r = s ? s : r;
	}
	kv_reclaim();
	if (kv_runs_reap(db) && r == 0)
		r = 1;
	/* a run more to merge, or a segment; or room is wanted */
	if (r)
		kick(db->d_work, &db->d_work->wk_merge);
	return r;
}

static int supplier_step(struct kvdb *db)
{
	int r = prepare_step(db);

	return r ? r : kv_segs_stock_step(db);
}

static int grower_step(struct kvdb *db)
{
	int r = grow_step(db);

	kv_pagepool_lent_step(db);
	/* the least urgent: who touches it first would do it himself */
	if (!r)
		r = kv_slab_fault_step(db);
	return r ? r : kv_warm_step(db);
}

/* Damage is reported where it is read; a merge must not launder it. */
static int without_damage(struct kv_work *wk, int r)
{
	if (r != -EUCLEAN && r != -EIO)
		return r;
	atomic_store(&wk->wk_merge_off, true);
	return 0;
}

static int merger_step(struct kvdb *db)
{
	struct kv_work *wk = db->d_work;
	uint32_t from = atomic_load(&wk->wk_merge_turn);
	int r = 0;

	if (atomic_load(&wk->wk_merge_off)) {
		kv_compact_end(db, -EUCLEAN);
		return 0;
	}
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
	return without_damage(wk, r);
}

int kv_work_step(struct kvdb *db)
{
	int r = kv_fault(db);

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

/* Sleeps until something is kicked; a failed step is tried again after a while. */
static void work_sleep(struct kv_work *wk, struct bell *bl, uint64_t *seen)
{
	struct timespec ts;

	pthread_mutex_lock(&wk->wk_lock);
	if (bl->bl_rings == *seen && !atomic_load(&wk->wk_stop)) {
		clock_gettime(CLOCK_MONOTONIC, &ts);
		ts.tv_nsec += RETRY_MS * 1000000l;
		if (ts.tv_nsec >= 1000000000l) {
			ts.tv_nsec -= 1000000000l;
			ts.tv_sec++;
		}
		pthread_cond_timedwait(&bl->bl_cond, &wk->wk_lock, &ts);
	}
	*seen = bl->bl_rings;
	pthread_mutex_unlock(&wk->wk_lock);
}

static void work_loop(struct kvdb *db, int (*step)(struct kvdb *db), struct bell *bl)
{
	struct kv_work *wk = db->d_work;
	uint64_t seen = 0;

	while (!atomic_load(&wk->wk_stop) && !kv_fault(db)) {
		int r = step(db);

		if (r < 0 && r != -ENOSPC && r != -ENOMEM)
			kv_fail(db, r, "background work failed: %s", kvdb_error_detail()->text);
		if (r <= 0)
			work_sleep(wk, bl, &seen);
	}
}

static void *keeper_main(void *arg)
{
	struct kvdb *db = arg;

	work_loop(db, keeper_step, &db->d_work->wk_keep);
	return NULL;
}

static void *supplier_main(void *arg)
{
	struct kvdb *db = arg;

	work_loop(db, supplier_step, &db->d_work->wk_supply);
	return NULL;
}

static void *grower_main(void *arg)
{
	struct kvdb *db = arg;

	work_loop(db, grower_step, &db->d_work->wk_grow);
	return NULL;
}

static void *merger_main(void *arg)
{
	struct kvdb *db = arg;

	work_loop(db, merger_step, &db->d_work->wk_merge);
	return NULL;
}

int kv_work_start(struct kvdb *db)
{
	static void *(*const first[])(void *) = { keeper_main, supplier_main, grower_main };
	/* with staging a second merger: it is emptied beside a job for space */
	unsigned int least = db->d_log_class == MPOOL_CAPACITY ? 2 : 3, i;
	/* supplier and grower sleep nearly always: they come on top */
	unsigned int n = (db->d_budget.b_threads < least ? least : db->d_budget.b_threads) + 2;
	struct kv_work *wk = calloc(1, sizeof(*wk));
	pthread_condattr_t ca;

	if (!wk)
		return -ENOMEM;
	wk->wk_thread = calloc(n, sizeof(wk->wk_thread[0]));
	if (!wk->wk_thread) {
		free(wk);
		return -ENOMEM;
	}
	pthread_condattr_init(&ca);
	pthread_condattr_setclock(&ca, CLOCK_MONOTONIC);
	pthread_cond_init(&wk->wk_keep.bl_cond, &ca);
	pthread_cond_init(&wk->wk_merge.bl_cond, &ca);
	pthread_cond_init(&wk->wk_supply.bl_cond, &ca);
	pthread_cond_init(&wk->wk_grow.bl_cond, &ca);
	pthread_condattr_destroy(&ca);
	pthread_mutex_init(&wk->wk_lock, NULL);
	db->d_work = wk;
	if (kv_is_manual(db) || db->d_rdonly)
		return 0;
	for (i = 0; i < n; i++) {
		int err = kv_thread_start(&wk->wk_thread[i], i < 3 ? first[i] : merger_main, db);

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
	struct kv_work *wk = db->d_work;
	unsigned int n = wk ? atomic_exchange(&wk->wk_n, 0) : 0;

	if (!wk)
		return;
	atomic_store(&wk->wk_stop, true);
	pthread_mutex_lock(&wk->wk_lock);
	ring_all(wk);
	pthread_mutex_unlock(&wk->wk_lock);
	for (unsigned int i = 0; i < n; i++)
		pthread_join(wk->wk_thread[i], NULL);
	kv_warm_end(db);
}

void kv_work_fini(struct kvdb *db)
{
	struct kv_work *wk = db->d_work;

	if (!wk)
		return;
	kv_work_stop(db);
	pthread_cond_destroy(&wk->wk_keep.bl_cond);
	pthread_cond_destroy(&wk->wk_merge.bl_cond);
	pthread_cond_destroy(&wk->wk_supply.bl_cond);
	pthread_cond_destroy(&wk->wk_grow.bl_cond);
	pthread_mutex_destroy(&wk->wk_lock);
	free(wk->wk_thread);
	db->d_work = NULL;
	free(wk);
}

/* ---- public ------------------------------------------------------------------------------ */

int kvdb_poll(struct kvdb *db)
{
	int n = db->d_rdonly ? kv_may_change(db) : kv_fault(db);

	if (!n && kv_epoch_is_due(db)) {
		n = kv_epoch_force(db);
		n = n ? n : 1;
	} else if (!n) {
		n = kv_work_step(db);
	}
	return n < 0 ? kv_error_stopped(db, n) : n;
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

/* Flushes until no memtable with such records is frozen; other threads may be at it too. */
static int flush_frozen(struct kvdb *db, uint64_t upto)
{
	int err = 0, r;

	while (!err && has_memtables(db, upto, true)) {
		r = kv_flush_step(db);
		if (r < 0)
			err = r;
		else if (r == 0 && !(err = kv_fault(db)))
			kv_nap();
	}
	return err;
}

/* What is in memory now: others may write as fast as memtables are flushed. */
static int drain_flush(struct kvdb *db)
{
	uint64_t upto = atomic_load(&db->d_epoch);
	int err;

	do {
		err = flush_frozen(db, upto);
		if (!err)
			err = kv_switch_all(db);
		if (!err)
			err = kv_epoch_force(db);
		if (!err)
			err = flush_frozen(db, upto);
		/* one that found no place beside others that came meanwhile */
	} while (!err && has_memtables(db, upto, false));
	return err;
}

/* Somebody deletes what is dead, or is about to. */
static bool is_freeing(struct kvdb *db)
{
	return atomic_load(&db->d_reaping) || kv_segs_are_busy(db);
}

/* A tree retires its runs, a run its segments; some of it other threads are at. */
static void free_retired(struct kvdb *db)
{
	unsigned int i;

	for (i = 0; i < 12; i++) {
		kv_retire_barrier();
		kv_runs_reap(db);
		kv_segs_step(db);
		while (is_freeing(db))
			kv_nap();
	}
}

static void make_room(struct kvdb *db)
{
	if (drain_flush(db))
		return;
	merger_step(db);
	kv_reloc_make_room(db);
	free_retired(db);
}

void kv_make_room(struct kvdb *db)
{
	/* at once: a flush may need what a job for scans has */
	kv_reloc_rescue_begin(db);
	make_room(db);
	kv_reloc_rescue_end(db);
}

/* True while a worker is in the middle of what drain_compact() waits for. */
static bool is_busy(struct kvdb *db)
{
	bool is = is_freeing(db) || kv_reloc_is_busy(db) || kv_compact_is_merging(db);

	for (uint32_t i = 0; i < KVDB_KVS_MAX && !is; i++) {
		struct kvdb_kvs *kvs = kv_kvs_hold(db, i);

		if (!kvs)
			continue;
		is = kv_merge_is_busy(kvs);
		kv_kvs_release(kvs);
	}
	return is;
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
			kv_nap();
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
	struct kv_work *wk = db->d_work;
	int r;

	if (atomic_load(&wk->wk_merge_off)) {
		kv_compact_end(db, -EUCLEAN);
		return 0;
	}
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
	return without_damage(wk, r);
}

int kv_compact_wait(struct kvdb *db, const struct kvdb_kvs *kvs)
{
	int err = kv_epoch_sync(db), r;

	while (!err && kv_compact_is_asked(db, kvs)) {
		if (!kvs)
			kv_reloc_look(db);
		r = asked_step(db, kvs);
		if (r == 0)
			r = kv_segs_step(db);
		err = r < 0 ? r : kv_fault(db);
		if (!r && !err)
			kv_nap();
	}
	if (!err) {
		free_retired(db);
		kv_segs_free_dead(db);
	}
	return kv_error_stopped(db, err);
}

int kvdb_drain(struct kvdb *db, unsigned flags)
{
	int err;

	if (flags & ~(KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT))
		return kv_error(-EINVAL, "MP0951", "flags %#x are not known", flags);
	if (db->d_rdonly)
		return kv_error(-EROFS, "MP0903", "the database is open for reading only");
	err = kv_epoch_sync(db);
	if (!err && (flags & KVDB_WAIT_FLUSH))
		err = drain_flush(db);
	if (!err && (flags & KVDB_WAIT_COMPACT))
		err = drain_compact(db);
	return kv_error_stopped(db, err);
}
