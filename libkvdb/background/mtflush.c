/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Flushes of memtables.
 *
 * A flush (R4, R6): the oldest frozen memtable of a store, once its boundary
 * is durable; the run is written, committed and listed by one version edit,
 * which also moves the horizons of all stores that hold nothing older.
 *
 * Small memtables of several stores are flushed together (TH-19): each has its run and its edit,
 * but their blocks are committed by one batch and their edits made durable by one flush (beside
 * 255 quiet stores 0.2 device flushes for each memtable, instead of 3.9). A crash
 * may keep the first few of those edits: each says of its own store alone what is in runs, the
 * last one of the others too. What fails of it is flushed store by store, which knows what
 * to do with a failure.
 *
 * Locks: k_flush_lock > k_edit_lock > k_tree_lock. Of several stores: k_flush_lock is only
 * tried, k_edit_lock taken in order of slots.
 */
#include <errno.h>
#include <stdlib.h>

#include "background/work.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/guard.h"
#include "db/bell.h"
#include "db/etime.h"
#include "seg/reserve.h"
#include "mem/iter.h"
#include "mem/memtable.h"
#include "run/run.h"
#include "tree/leaf.h"
#include "tree/point.h"
#include "tree/tomb_view.h"
#include "tree/tree.h"
#include "log/flush.h"
#include "meta/edit.h"
#include "meta/mdc.h"
#include "compact/merge.h"

#define LATE_EVERY 1024u	/* entries of a flush between looks at the clock */
#define FULL_NS	10000000000ull	/* a flush that met the end of the pool is tried again then */
#define TOGETHER 24u		/* memtables in one round, each with two locks */
#define SMALL_BYTES (256u << 10)	/* largest memtable that is flushed with others, */
#define SMALL_PART 64u		/* or this part of all memtables' memory */

/* The oldest frozen memtable whose epochs are durable, with a reference; or NULL. */
static struct kv_mt *flush_victim(struct kvdb *db, struct kvdb_kvs *kvs)
{
	struct kv_tree *tr = kv_tree_get(kvs);
	struct kv_mt *mt = NULL;

	if (tr->tr_nmt > 1) {
		mt = tr->tr_mt[tr->tr_nmt - 1];
		if (kv_mt_boundary(mt) &&
		    kv_mt_boundary(mt) <= atomic_load(&db->d_epochs.ep_durable))
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
		 * What a bulk load brings has an older stamp (B1). Looked at after the stamps
		 * and in front of the tree: it is still to come, or in the tree.
		 */
		bulk = atomic_load(&kvs->k_bulk);
		tr = kv_tree_get(kvs);
		kv_trows_prune(&tv, bulk ? NULL : tr, NULL, 0, mt);
		kv_tree_put(db, tr);
		err = kv_run_build_tombs(rb, tv.tv_r, tv.tv_n);
	}
	free(tv.tv_r);
	return err;
}

bool kv_is_late(struct kvdb *db)
{
	uint64_t until = atomic_load_explicit(&db->d_bg.bd_close_ns, memory_order_relaxed);

	return until && kv_now(db) >= until;
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

/* A memtable to be flushed: the oldest of its store, whose k_flush_lock its flusher holds. */
struct part {
	struct kvdb_kvs *pa_kvs;
	struct kv_mt *pa_mt;
	struct kv_run *pa_run;		/* what is to be kept of it, or NULL */
	struct kv_point_news pa_news;
	struct kv_horizon pa_hor;	/* of its store */
};

static int build_run(struct kvdb *db, struct part *pa)
{
	struct kv_run_build *rb;
	struct kv_iter *it;
	struct kv_ent e;
	uint64_t now = kv_time_ms(db), n = 0;
	int err = kv_run_build_open(db, pa->pa_kvs->k_id, kv_mt_keys(pa->pa_mt), true, &rb);

	KV_ASSERT_OUTSIDE();
	KV_ASSERT_HELD(&pa->pa_kvs->k_flush_lock);
	if (err)
		return err;
	err = build_tombs(db, pa->pa_kvs, pa->pa_mt, rb);
	if (!err)
		err = build_source(db, pa->pa_mt, &it);
	if (!err) {
		while (!(err = it->it_ops->next(it, &e))) {
			if (KV_UNLIKELY(kv_is_expired(&e, now)))
				kv_ent_expire(&e);
			kv_point_news_add(db, &pa->pa_news, &e);
			if ((err = kv_run_build_add(rb, &e)))
				break;
			/* the log has it: a close does not wait for more */
			if (++n % LATE_EVERY == 0 && kv_is_late(db)) {
				err = -ECANCELED;
				break;
			}
		}
		it->it_ops->close(it);
	}
	if (err != -ENOENT) {
		kv_run_build_abort(rb);
		return err;
	}
	return kv_run_build_finish(rb, &pa->pa_run);
}

static const struct part *part_of(const struct part *pa, unsigned int n, const struct kvdb_kvs *k)
{
	while (n--)
		if (pa[n].pa_kvs == k)
			return &pa[n];
	return NULL;
}

/*
 * R4: the horizon of the last one's store, and that of every store which holds no record of an
 * epoch up to the greatest boundary: none is frozen, and its active memtable began later.
 */
static unsigned int horizons(struct kvdb *db, const struct part *pa, unsigned int n,
			     struct kv_horizon *hor)
{
	struct kv_thread *t = kv_enter();
	unsigned int nhor = 0, i;
	uint64_t e = 0;

	for (i = 0; i < n; i++)
		if (pa[i].pa_hor.epoch > e)
			e = pa[i].pa_hor.epoch;
	pthread_mutex_lock(&db->d_stores.sr_lock);
	for (i = 0; i < KVDB_KVS_MAX; i++) {
		struct kvdb_kvs *k = db->d_stores.sr_kvs[i];
		const struct part *own;
		struct kv_tree *tr;
		uint64_t first;

		if (!k || k->k_dropped)
			continue;
		own = part_of(pa, n, k);
		tr = atomic_load(&k->k_tree);
		first = kv_mt_first_epoch(tr->tr_mt[0]);
		if (own ? own != &pa[n - 1] : tr->tr_nmt > 1 || (first && first <= e))
			continue;
		hor[nhor] = own ? own->pa_hor : (struct kv_horizon){ .kvs = k->k_id, .epoch = e };
		nhor += atomic_load(&k->k_horizon) < hor[nhor].epoch;
	}
	pthread_mutex_unlock(&db->d_stores.sr_lock);
	kv_exit(t);
	return nhor;
}

/* Its k_edit_lock is held. */
static void describe(struct kvdb *db, struct part *pa, struct kv_edit *ed)
{
	struct kvdb_kvs *kvs = pa->pa_kvs;
	struct kv_run_desc *d;

	KV_ASSERT_HELD(&kvs->k_edit_lock);
	pa->pa_hor = (struct kv_horizon){ .kvs = kvs->k_id, .epoch = kv_mt_boundary(pa->pa_mt) };
	KV_ASSERT(pa->pa_hor.epoch && pa->pa_hor.epoch <= atomic_load(&db->d_epochs.ep_durable));
	*ed = (struct kv_edit){ .ed_kvs = kvs->k_id, .ed_add = &pa->pa_run, .ed_hor = &pa->pa_hor };
	ed->ed_nhor = atomic_load(&kvs->k_horizon) < pa->pa_hor.epoch;
	if (!pa->pa_run)
		return;
	d = kv_run_desc(pa->pa_run);
	d->rd_id = atomic_fetch_add(&db->d_runs.ru_next, 1);
	d->rd_pos = kvs->k_next_pos++;
	d->rd_newest_epoch = atomic_load(&pa->pa_mt->m_last_epoch);
	KV_ASSERT(d->rd_newest_epoch <= pa->pa_hor.epoch);
	ed->ed_nadd = 1;
}

/* Shows the run in place of the memtable, or gives it up if it did not get durable: @err. */
static int show_run(struct kvdb *db, struct part *pa, struct kv_edit *ed, int err)
{
	KV_ASSERT_HELD(&pa->pa_kvs->k_edit_lock);
	if (err && pa->pa_run) {
		/* an unlisted run is deleted; after a fault it may be listed */
		if (!kv_fault(db))
			kv_run_drop(pa->pa_run);
		kv_run_put(db, pa->pa_run);
	}
	if (!err) {
		ed->ed_gen = kv_point_news_publish(pa->pa_kvs, &pa->pa_news);
		err = kv_tree_show(pa->pa_kvs, pa->pa_mt, ed);
		if (err && pa->pa_run)
			kv_run_put(db, pa->pa_run);
	}
	return err;
}

/* Makes the runs durable and shows them; @pa in order of slots. */
static int show_runs(struct kvdb *db, struct part *pa, unsigned int n)
{
	struct kv_horizon hor[KVDB_KVS_MAX];
	struct kv_edit ed[TOGETHER];
	int err, rc = 0;
	unsigned int i;

	KV_ASSERT_OUTSIDE();
	KV_ASSERT(n && n <= TOGETHER);
	for (i = 0; i < n; i++) {
		KV_ASSERT(!i || pa[i - 1].pa_kvs->k_slot < pa[i].pa_kvs->k_slot);
		pthread_mutex_lock(&pa[i].pa_kvs->k_edit_lock);
		describe(db, &pa[i], &ed[i]);
	}
	ed[n - 1].ed_nhor = horizons(db, pa, n, hor);
	ed[n - 1].ed_hor = hor;
	err = kv_mdc_edits(db, ed, n);
	for (i = 0; i < n; i++) {
		int r = show_run(db, &pa[i], &ed[i], err);

		rc = rc ? rc : r;
	}
	while (n--)
		pthread_mutex_unlock(&pa[n].pa_kvs->k_edit_lock);
	return rc;
}

/*
 * Flushes several, @pa in order of slots, or one. Returns how many, the first ones: the next one
 * could not be built, in the way that its own flush will tell, or a close has no time for it.
 * -errno: none.
 */
static int flush_parts(struct kvdb *db, struct part *pa, unsigned int n)
{
	unsigned int built = 0, i;
	int err = 0;

	/* a close waits for the one that is being built, not for the rest of them */
	while (built < n && !err && !(built && kv_is_late(db))) {
		pa[built].pa_run = NULL;
		kv_point_news_begin(db, pa[built].pa_mt, &pa[built].pa_news);
		err = build_run(db, &pa[built]);
		if (err)
			kv_point_news_end(&pa[built].pa_news);
		built += !err;
	}
	if (built)
		err = show_runs(db, pa, built);
	for (i = 0; i < built; i++)
		kv_point_news_end(&pa[i].pa_news);
	if (err)
		return err;
	for (i = 0; i < built; i++) {
		kv_trouble_end(db, &pa[i].pa_kvs->k_flush_trouble);
		kv_mt_flushed(pa[i].pa_mt);
	}
	atomic_fetch_add(&db->d_count.flushes, built);
	atomic_fetch_add(&db->d_count.flush_rounds, 1);
	return (int)built;
}

static int flush_mt(struct kvdb *db, struct kvdb_kvs *kvs, struct kv_mt *mt)
{
	struct part pa = { .pa_kvs = kvs, .pa_mt = mt };
	unsigned tries = 0;
	int r;

	/* what failed before is tried once: each try takes space from the pool (INV-24) */
	do
		r = flush_parts(db, &pa, 1);
	while (!atomic_load(&kvs->k_flush_trouble.tb_err) &&
	       kv_retry_allowed(db, r < 0 ? r : 0, &tries));
	return r < 0 ? r : 0;
}

int kv_flush_oldest(struct kvdb *db, struct kvdb_kvs *kvs, uint64_t upto)
{
	struct kv_mt *mt = flush_victim(db, kvs);
	int err = 0, did = 0;

	KV_ASSERT_HELD(&kvs->k_flush_lock);
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

bool kv_mt_is_small(struct kvdb *db, const struct kv_mt *mt)
{
	uint64_t most = db->d_budget.b_mt_bytes / SMALL_PART;

	return atomic_load(&mt->m_bytes) <= (most < SMALL_BYTES ? most : SMALL_BYTES);
}

/* One that may be flushed with others: what failed before is tried alone. */
static bool goes_along(struct kvdb *db, struct kvdb_kvs *kvs, struct kv_mt *mt)
{
	return mt && kv_mt_is_small(db, mt) && !kvs->k_full_free &&
	       !atomic_load(&kvs->k_flush_trouble.tb_err);
}

void kv_flush_small(struct kvdb *db, uint64_t upto)
{
	struct part pa[TOGETHER];
	unsigned int n = 0;

	KV_ASSERT_HELD(&db->d_mdc->m_ddl_lock);
	for (uint32_t i = 0; i < KVDB_KVS_MAX; i++) {
		struct kvdb_kvs *kvs = db->d_stores.sr_kvs[i];
		struct kv_mt *mt = kvs ? flush_victim(db, kvs) : NULL;

		if (goes_along(db, kvs, mt) && kv_mt_boundary(mt) <= upto)
			pa[n++] = (struct part){ .pa_kvs = kvs, .pa_mt = mt };
		else if (mt)
			kv_mt_put(db, mt);
		if (n < TOGETHER && (i + 1 < KVDB_KVS_MAX || !n))
			continue;
		if (n > 1)
			flush_parts(db, pa, n);
		while (n)
			kv_mt_put(db, pa[--n].pa_mt);
	}
	kv_flusher_room(db);
}

/* LF9: merges come first, unless nothing comes of them, or writers would stop until they end. */
static bool may_flush(struct kvdb *db, struct kvdb_kvs *kvs)
{
	while (kv_merge_is_behind(kvs, KV_UPPER_RUNS_MAX)) {
		if (kv_segs_are_short(db))
			return true;
		if (!kv_is_manual(db))	/* they kick us */
			return atomic_load(&db->d_flusher->fl_is_tight) &&
			       !kv_merge_is_behind(kvs, KV_UPPER_RUNS_MOST);
		if (kv_merge_step(db, kvs) <= 0)
			return true;
	}
	return true;
}

/* LF11: what met the end of the pool would do so again, and write until it does. */
static int flush_with_room(struct kvdb *db, struct kvdb_kvs *kvs, struct kv_mt *mt)
{
	int err;

	KV_ASSERT_HELD(&kvs->k_flush_lock);
	if (kv_segs_free_bytes(db) < kvs->k_full_free && kv_now(db) < kvs->k_full_ns)
		return kv_error(-ENOSPC, "MP0955", "store %s: the pool has no room for a flush",
				kvs->k_name);
	err = flush_mt(db, kvs, mt);
	/* FS2: blocks could not be written; nothing refers to them: elsewhere, after a while */
	if (err == -EIO && kv_is_local(db, err))
		kv_trouble_set(db, &kvs->k_flush_trouble, err, "flushes of store %s", kvs->k_name);
	kvs->k_full_free = err == -ENOSPC ? kv_segs_free_bytes(db) + 1 : 0;
	kvs->k_full_ns = kv_now(db) + FULL_NS;
	return err;
}

/* A store whose flush failed is left alone for a while. After some time writers hear of it. */
static bool is_stuck(struct kvdb *db, struct kvdb_kvs *kvs, int *full)
{
	if (kv_trouble_age_ns(db, &kvs->k_flush_trouble) > KV_PATIENCE_NS && !*full)
		*full = -EIO;
	return kv_trouble_holds(db, &kvs->k_flush_trouble);
}

/* The one of it that is due, with a reference; it tells *full what keeps others from being. */
static struct kv_mt *due(struct kvdb *db, struct kvdb_kvs *kvs, int *full)
{
	struct kv_mt *mt = flush_victim(db, kvs);

	if (mt && !is_stuck(db, kvs, full) && CHECK(may_flush(db, kvs)))
		return mt;
	if (mt)
		kv_mt_put(db, mt);
	return NULL;
}

static int by_slot(const void *a, const void *b)
{
	const struct part *x = a, *y = b;

	return (x->pa_kvs->k_slot > y->pa_kvs->k_slot) - (x->pa_kvs->k_slot < y->pa_kvs->k_slot);
}

/* Small ones of other stores, which are held with their k_flush_lock. */
static unsigned int gather(struct kvdb *db, struct part *pa)
{
	uint32_t from = pa[0].pa_kvs->k_slot;
	unsigned int n = 1;
	int full = 0;

	for (uint32_t i = 1; i < KVDB_KVS_MAX && n < TOGETHER; i++) {
		struct kvdb_kvs *kvs = kv_kvs_hold(db, (from + i) % KVDB_KVS_MAX);
		struct kv_mt *mt = NULL;

		if (!kvs)
			continue;
		if (!pthread_mutex_trylock(&kvs->k_flush_lock)) {
			mt = due(db, kvs, &full);
			if (goes_along(db, kvs, mt)) {
				pa[n++] = (struct part){ .pa_kvs = kvs, .pa_mt = mt };
				continue;
			}
			pthread_mutex_unlock(&kvs->k_flush_lock);
		}
		if (mt)
			kv_mt_put(db, mt);
		kv_kvs_release(kvs);
	}
	return n;
}

/* A small one with those of other stores: how many went; 0: it is to be flushed alone. */
static int flush_together(struct kvdb *db, struct kvdb_kvs *kvs, struct kv_mt *mt)
{
	struct part pa[TOGETHER] = { { .pa_kvs = kvs, .pa_mt = mt } };
	unsigned int n = goes_along(db, kvs, mt) ? gather(db, pa) : 1;
	int did = 0;

	KV_ASSERT_HELD(&kvs->k_flush_lock);
	if (n > 1) {
		qsort(pa, n, sizeof(pa[0]), by_slot);
		did = flush_parts(db, pa, n);
	}
	while (n--) {
		if (pa[n].pa_kvs == kvs)
			continue;
		kv_mt_put(db, pa[n].pa_mt);
		pthread_mutex_unlock(&pa[n].pa_kvs->k_flush_lock);
		kv_kvs_release(pa[n].pa_kvs);
	}
	return did > 0 ? did : 0;
}

/* The store whose flush frees the most memory. */
static uint32_t largest(struct kvdb *db, uint32_t or)
{
	uint64_t most = 0;

	for (uint32_t i = 0; i < KVDB_KVS_MAX; i++) {
		struct kvdb_kvs *kvs = kv_kvs_hold(db, i);
		struct kv_mt *mt = kvs ? flush_victim(db, kvs) : NULL;

		if (mt && atomic_load(&mt->m_bytes) > most) {
			most = atomic_load(&mt->m_bytes);
			or = i;
		}
		if (mt)
			kv_mt_put(db, mt);
		if (kvs)
			kv_kvs_release(kvs);
	}
	return or;
}

/* 1: flushed one, or several; 0: none of it is due; else -errno, *full if others may go on. */
static int flush_of(struct kvdb *db, struct kvdb_kvs *kvs, int *full)
{
	struct kv_mt *mt = due(db, kvs, full);
	int err = 0;

	if (!mt)
		return 0;
	if (!flush_together(db, kvs, mt))
		err = flush_with_room(db, kvs, mt);
	kv_mt_put(db, mt);
	*full = err == -ENOSPC ? err : *full;
	if (!err)
		return 1;
	/* others may have less to write, or elsewhere */
	return err == -ECANCELED || err == -ENOSPC || (err == -EIO && kv_is_local(db, err)) ? 0 :
	       err;
}

/*
 * What writers are told of a flush that found no room: nothing while a merge, a move or a deletion
 * ran when it began, for that gives room back at its end (G7). Not for ever.
 */
static int space_err(struct kvdb *db, int full, bool comes)
{
	_Atomic(uint64_t) *since = &db->d_flusher->fl_full_ns;
	uint64_t now = kv_now(db), s = 0;

	if (full != -ENOSPC) {
		atomic_store(since, 0);
		return full;
	}
	/* another thread's step may have begun it later than @now */
	if (atomic_compare_exchange_strong(since, &s, now))
		s = now;
	return comes && now < s + KV_PATIENCE_NS ? 0 : full;
}

/* It is memory that slows writers. */
static bool is_memory_dear(struct kvdb *db)
{
	const struct kv_toll *to = &db->d_throttle.th_all;

	return atomic_load(&to->to_cost) && atomic_load(&to->to_cause) == KVDB_DELAY_MEMORY;
}

/*
 * By turns the next store in the order of slots, so that one which is written to all the
 * time is not all, and the one that holds the most memory; while memory is what slows writers
 * always the latter (TH-18).
 */
int kv_flush_step(struct kvdb *db)
{
	struct kv_work *wk = db->d_bg.bd_work;
	uint32_t turn = atomic_load(&wk->wk_flush_turn), from = turn;
	bool is_turn = atomic_fetch_add(&wk->wk_flush_steps, 1) % 2 == 0 && !is_memory_dear(db);
	bool comes = kv_is_making_room(db);
	bool is_missed = false;
	int did = 0, full = 0, told;

	KV_ASSERT_OUTSIDE();
	if (!is_turn)
		from = largest(db, turn);
	for (uint32_t i = 0; i < KVDB_KVS_MAX && !did; i++) {
		struct kvdb_kvs *kvs = kv_kvs_hold(db, (from + i) % KVDB_KVS_MAX);

		if (!kvs)
			continue;
		if (!pthread_mutex_trylock(&kvs->k_flush_lock)) {
			did = flush_of(db, kvs, &full);
			pthread_mutex_unlock(&kvs->k_flush_lock);
		} else {
			is_missed = true;
		}
		if (did && is_turn)
			atomic_store(&wk->wk_flush_turn, kvs->k_slot + 1);
		kv_kvs_release(kvs);
	}
	/* another thread tries the one that was missed, and reports its error */
	if (is_missed && !did && !full)
		return 0;
	told = space_err(db, full, comes);
	atomic_store(&db->d_flusher->fl_space_err, told);
	if (told)
		db->d_hooks->ho_cqs_wake(db);
	if (did > 0)
		kv_flusher_room(db);
	return did ? did : full == -ENOSPC ? full : 0;
}
