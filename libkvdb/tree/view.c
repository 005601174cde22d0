/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Views: what a transaction sees. A view is a number and a reference on the
 * trees of all stores at the moment of its birth (a forest). The trees keep
 * their memtables and runs, so neither flush nor merge can take a version from
 * a view, and both keep one version of a key only.
 *
 * The current forest is cached: beginning a transaction takes a reference, the
 * next view number and a place in the list of views. A thread that publishes a
 * tree counts up te_gen under k_tree_lock, a store under sr_lock, and
 * then drops the cache. A forest counts for a view when te_gen still has
 * its value after the view's number was taken: a memtable takes its first
 * version only after the tree that lists it was published and counted, hence
 * with a stamp above the view.
 *
 * The lists are for what views cost others: the oldest that may look for
 * conflicts keeps tombstones alive in merges; what views hold is given up when
 * they are too old or keep too much memory. The number is taken under the lock
 * of the lists: a thread that reads them then knows every view older than what
 * it read before.
 *
 * However many views are open, none of this looks at each of them: those that
 * write and those that read have lists of their own, in both the oldest live one is
 * known, and memory is counted by forest, of which views of one moment share one.
 *
 * What holds too much memory is given up by hold.c, cursors and views together.
 *
 * Locks: ov_forest_lock > sr_lock; ov_lock > limbo_lock (db/thread.c).
 */
#include <errno.h>
#include <stdlib.h>

#include "tree/view.h"
#include "base/assert.h"
#include "base/error.h"
#include "db/db.h"
#include "db/etime.h"
#include "mem/memtable.h"
#include "tree/hold.h"
#include "tree/tree.h"

#define EVICT_MAX 64u	/* in one step */

/* ---- forests ------------------------------------------------------------------------ */

static void trees_free(void *arg)
{
	struct kv_forest_trees *ft = arg;

	for (uint32_t i = 0; i < ft->ft_n; i++)
		kv_tree_put(ft->ft_db, ft->ft_ent[i].tree);
	free(ft);
}

static void forest_free(void *arg)
{
	struct kv_forest *fo = arg;

	if (atomic_load(&fo->fo_trees))
		trees_free(atomic_load(&fo->fo_trees));
	free(fo);
}

static void forest_put(struct kv_forest *fo)
{
	KV_ASSERT(!fo || atomic_load(&fo->fo_refs));
	if (fo && atomic_fetch_sub(&fo->fo_refs, 1) == 1)
		kv_retire(&fo->fo_limbo, forest_free, fo);
}

void kv_forest_give_up(struct kv_forest *fo)
{
	struct kv_forest_trees *ft = atomic_exchange(&fo->fo_trees, NULL);

	KV_ASSERT_INSIDE();
	if (ft)
		kv_retire(&ft->ft_limbo, trees_free, ft);
}

void kv_forest_stale(struct kvdb *db)
{
	atomic_fetch_add(&db->d_trees.te_gen, 1);
	if (atomic_load(&db->d_trees.te_forest))
		forest_put(atomic_exchange(&db->d_trees.te_forest, NULL));
}

/* The cached forest with a reference, or NULL; one that was replaced is as good as none. */
static struct kv_forest *forest_cached(struct kvdb *db)
{
	struct kv_thread *t = kv_enter();
	struct kv_forest *fo = atomic_load(&db->d_trees.te_forest);
	bool is_of_now = fo && fo->fo_gen == atomic_load(&db->d_trees.te_gen);
	uint32_t refs = is_of_now ? atomic_load_explicit(&fo->fo_refs, memory_order_relaxed) : 0;

	while (refs && !atomic_compare_exchange_weak(&fo->fo_refs, &refs, refs + 1))
		;
	kv_exit(t);
	return refs ? fo : NULL;
}

static struct kv_forest_trees *trees_take(struct kvdb *db)
{
	struct kv_forest_trees *ft = calloc(1, sizeof(*ft) + KVDB_KVS_MAX * sizeof(ft->ft_ent[0]));

	if (!ft)
		return NULL;
	ft->ft_db = db;
	pthread_mutex_lock(&db->d_stores.sr_lock);
	for (uint32_t i = 0; i < KVDB_KVS_MAX; i++) {
		struct kvdb_kvs *kvs = db->d_stores.sr_kvs[i];

		/* also one that is being dropped: that may fail */
		if (!kvs)
			continue;
		ft->ft_ent[i].kvs = kvs;
		ft->ft_ent[i].tree = kv_tree_get(kvs);
		ft->ft_n = i + 1;
	}
	pthread_mutex_unlock(&db->d_stores.sr_lock);
	return ft;
}

static struct kv_forest *forest_build(struct kvdb *db)
{
	struct kv_forest *fo = calloc(1, sizeof(*fo));

	KV_ASSERT_HELD(&db->d_trees.te_open_views->ov_forest_lock);
	if (!fo)
		return NULL;
	fo->fo_gen = atomic_load(&db->d_trees.te_gen);
	atomic_store(&fo->fo_refs, 1);
	atomic_store(&fo->fo_trees, trees_take(db));
	if (!atomic_load(&fo->fo_trees)) {
		free(fo);
		return NULL;
	}
	return fo;
}

/* The current forest, with a reference; may be replaced before the caller looks. */
static struct kv_forest *forest_get(struct kvdb *db)
{
	struct kv_open_views *ov = db->d_trees.te_open_views;
	struct kv_forest *fo = forest_cached(db), *old;

	if (fo)
		return fo;
	pthread_mutex_lock(&ov->ov_forest_lock);
	fo = forest_cached(db);
	if (!fo)
		fo = forest_build(db);
	if (fo && !atomic_load(&db->d_trees.te_forest)) {
		atomic_fetch_add(&fo->fo_refs, 1);
		atomic_store(&db->d_trees.te_forest, fo);
		/* replaced meanwhile: the cache must not keep what nothing else holds */
		if (atomic_load(&db->d_trees.te_gen) != fo->fo_gen) {
			old = atomic_exchange(&db->d_trees.te_forest, NULL);
			forest_put(old);
		}
	}
	pthread_mutex_unlock(&ov->ov_forest_lock);
	return fo;
}

/* ---- the lists ------------------------------------------------------------------------ */

/* A live view more, or one less, holds it. ov_lock held. */
static void forest_count(struct kv_open_views *ov, struct kv_forest *fo, int n)
{
	KV_ASSERT_HELD(&ov->ov_lock);
	KV_ASSERT(n > 0 || fo->fo_views);
	if (n > 0 && fo->fo_views++ == 0) {
		fo->fo_older = ov->ov_forests;
		fo->fo_newer = NULL;
		if (fo->fo_older)
			fo->fo_older->fo_newer = fo;
		ov->ov_forests = fo;
	}
	if (n < 0 && --fo->fo_views == 0) {
		if (fo->fo_newer)
			fo->fo_newer->fo_older = fo->fo_older;
		else
			ov->ov_forests = fo->fo_older;
		if (fo->fo_older)
			fo->fo_older->fo_newer = fo->fo_newer;
	}
}

/* ov_lock held. */
static void list_add(struct kv_open_views *ov, struct kv_view *vi)
{
	struct kv_view_list *vl = &ov->ov_list[vi->vi_writes];

	KV_ASSERT_HELD(&ov->ov_lock);
	KV_ASSERT(!vl->vl_newest || vl->vl_newest->vi_seq < vi->vi_seq);
	vi->vi_newer = NULL;
	vi->vi_older = vl->vl_newest;
	if (vl->vl_newest)
		vl->vl_newest->vi_newer = vi;
	else
		vl->vl_oldest = vi;
	vl->vl_newest = vi;
	vl->vl_n++;
	if (!vl->vl_live)
		vl->vl_live = vi;
	forest_count(ov, atomic_load(&vi->vi_forest), 1);
	atomic_fetch_add_explicit(&ov->ov_n, 1, memory_order_relaxed);
}

/* Too old from now on; its forest, for forest_put(). It is the oldest live one. ov_lock held. */
static struct kv_forest *list_expire(struct kv_open_views *ov, struct kv_view *vi)
{
	struct kv_forest *fo = atomic_exchange(&vi->vi_forest, NULL);

	KV_ASSERT_HELD(&ov->ov_lock);
	KV_ASSERT(ov->ov_list[vi->vi_writes].vl_live == vi);
	forest_count(ov, fo, -1);
	ov->ov_list[vi->vi_writes].vl_live = vi->vi_newer;
	return fo;
}

/* Its forest, for forest_put(), unless that has gone already. ov_lock held. */
static struct kv_forest *list_del(struct kv_open_views *ov, struct kv_view *vi)
{
	struct kv_view_list *vl = &ov->ov_list[vi->vi_writes];
	struct kv_forest *fo = atomic_exchange(&vi->vi_forest, NULL);

	KV_ASSERT_HELD(&ov->ov_lock);
	KV_ASSERT(vl->vl_n);
	if (fo)
		forest_count(ov, fo, -1);
	if (vl->vl_live == vi)
		vl->vl_live = vi->vi_newer;
	if (vi->vi_older)
		vi->vi_older->vi_newer = vi->vi_newer;
	else
		vl->vl_oldest = vi->vi_newer;
	if (vi->vi_newer)
		vi->vi_newer->vi_older = vi->vi_older;
	else
		vl->vl_newest = vi->vi_older;
	vl->vl_n--;
	atomic_fetch_sub_explicit(&ov->ov_n, 1, memory_order_relaxed);
	return fo;
}

int kv_view_begin(struct kvdb *db, struct kv_view *vi, bool writes)
{
	struct kv_open_views *ov = db->d_trees.te_open_views;
	struct kv_forest *fo;
	uint64_t gen;

	vi->vi_writes = writes;
	for (;;) {
		fo = forest_get(db);
		if (!fo)
			return kv_error(-ENOMEM, "MP0902", "no memory for a transaction");
		/* before it is in the list: then it may be evicted, and the forest with it */
		gen = fo->fo_gen;
		vi->vi_born_ns = kv_now(db);
		vi->vi_born_ms = kv_time_ms(db);
		atomic_store_explicit(&vi->vi_forest, fo, memory_order_relaxed);
		pthread_mutex_lock(&ov->ov_lock);
		vi->vi_seq = kv_view_open(db);
		list_add(ov, vi);
		fo->fo_step = atomic_load(&db->d_holds->hd_step);
		pthread_mutex_unlock(&ov->ov_lock);
		if (atomic_load(&db->d_trees.te_gen) == gen)
			return 0;
		kv_view_end(db, vi);
	}
}

void kv_view_end(struct kvdb *db, struct kv_view *vi)
{
	struct kv_open_views *ov = db->d_trees.te_open_views;
	struct kv_forest *fo;

	pthread_mutex_lock(&ov->ov_lock);
	fo = list_del(ov, vi);
	pthread_mutex_unlock(&ov->ov_lock);
	forest_put(fo);
}

/* No difference of the two: a view may begin after its caller read the clock. */
static bool is_old(const struct kvdb *db, const struct kv_view *vi, uint64_t now_ns)
{
	return now_ns >= vi->vi_born_ns + db->d_mode.md_view_max_age_ms * 1000000ull;
}

bool kv_view_is_old(struct kvdb *db, struct kv_view *vi)
{
	return !atomic_load_explicit(&vi->vi_forest, memory_order_relaxed) ||
	       is_old(db, vi, kv_now(db));
}

void kv_views_each(struct kvdb *db, void (*fn)(void *arg, struct kv_view *vi), void *arg)
{
	struct kv_open_views *ov = db->d_trees.te_open_views;

	pthread_mutex_lock(&ov->ov_lock);
	for (struct kv_view *vi = ov->ov_list[true].vl_oldest; vi; vi = vi->vi_newer)
		fn(arg, vi);
	pthread_mutex_unlock(&ov->ov_lock);
}

int kv_view_check(struct kvdb *db, struct kv_view *vi)
{
	if (KV_LIKELY(!kv_view_is_old(db, vi)))
		return 0;
	return kv_error(-ESTALE, "MP0922", "the transaction is older than %u ms (view_max_age_ms)",
			db->d_mode.md_view_max_age_ms);
}

bool kv_view_gave_up(struct kv_view *vi)
{
	struct kv_thread *t = kv_enter();
	struct kv_forest *fo = atomic_load_explicit(&vi->vi_forest, memory_order_acquire);
	bool gave_up = !fo || !atomic_load_explicit(&fo->fo_trees, memory_order_acquire);

	kv_exit(t);
	return gave_up;
}

int kv_view_tree(struct kvdb *db, struct kv_view *vi, struct kvdb_kvs *kvs, struct kv_tree **tr)
{
	struct kv_forest *fo = atomic_load_explicit(&vi->vi_forest, memory_order_acquire);
	struct kv_forest_trees *ft;

	KV_ASSERT_INSIDE();
	*tr = NULL;
	if (KV_UNLIKELY(!fo))
		return kv_view_check(db, vi);
	ft = atomic_load_explicit(&fo->fo_trees, memory_order_acquire);
	if (KV_UNLIKELY(!ft))
		return kv_error(-ESTALE, "MP0923", "the transaction's snapshot held more memory "
				"than snapshots may; it was the oldest and was given up");
	if (kvs->k_slot < ft->ft_n && ft->ft_ent[kvs->k_slot].kvs == kvs)
		*tr = ft->ft_ent[kvs->k_slot].tree;
	return 0;
}

uint64_t kv_views_oldest(struct kvdb *db)
{
	struct kv_open_views *ov = db->d_trees.te_open_views;
	struct kv_view *vi;
	uint64_t seq;

	if (!ov)
		return UINT64_MAX;
	pthread_mutex_lock(&ov->ov_lock);
	vi = ov->ov_list[true].vl_live;
	seq = vi ? vi->vi_seq : UINT64_MAX;
	pthread_mutex_unlock(&ov->ov_lock);
	return seq;
}

/* ---- giving up ---------------------------------------------------------------------------- */

void kv_views_step(struct kvdb *db)
{
	struct kv_open_views *ov = db->d_trees.te_open_views;
	struct kv_forest *gone[EVICT_MAX];
	uint64_t now = kv_now(db);
	unsigned int n = 0, i;
	struct kv_thread *t;
	struct kv_view *vi;

	if (!atomic_load_explicit(&ov->ov_n, memory_order_relaxed))
		return;
	t = kv_enter();	/* no destructor runs under the lock */
	pthread_mutex_lock(&ov->ov_lock);
	for (i = 0; i < 2; i++)
		while (n < EVICT_MAX && (vi = ov->ov_list[i].vl_live) && is_old(db, vi, now))
			gone[n++] = list_expire(ov, vi);
	pthread_mutex_unlock(&ov->ov_lock);
	kv_exit(t);
	for (i = 0; i < n; i++)
		forest_put(gone[i]);
}

static uint64_t oldest_ns(const struct kv_view_list *vl, uint64_t now)
{
	const struct kv_view *vi = vl->vl_oldest;

	return vi && now > vi->vi_born_ns ? now - vi->vi_born_ns : 0;
}

void kv_views_stats(struct kvdb *db, struct kvdb_stats *st)
{
	struct kv_open_views *ov = db->d_trees.te_open_views;
	uint64_t now = kv_now(db);

	pthread_mutex_lock(&ov->ov_lock);
	st->txns = ov->ov_list[true].vl_n;
	st->snapshots = ov->ov_list[false].vl_n;
	st->txn_oldest_ns = oldest_ns(&ov->ov_list[true], now);
	st->snapshot_oldest_ns = oldest_ns(&ov->ov_list[false], now);
	pthread_mutex_unlock(&ov->ov_lock);
	st->views = st->txns + st->snapshots;
	st->view_oldest_ns = st->txn_oldest_ns > st->snapshot_oldest_ns ? st->txn_oldest_ns :
									   st->snapshot_oldest_ns;
}

void kv_snapshot(struct kvdb_kvs *kvs, struct kv_tree **tree, uint64_t *seq)
{
	struct kvdb *db = kvs->k_db;

	for (;;) {
		*tree = kv_tree_get(kvs);
		*seq = kv_view_open(db);
		/* after its fence: a put into a newer tree has a greater stamp, or that is seen */
		if (atomic_load_explicit(&kvs->k_tree, memory_order_acquire) == *tree)
			return;
		kv_tree_put(db, *tree);
	}
}
