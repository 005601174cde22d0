/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Views: what a transaction sees. A view is a number and a reference on the
 * trees of all stores at the moment of its birth (a forest). The trees keep
 * their memtables and runs, so neither flush nor merge can take a version from
 * a view, and both keep one version of a key only.
 *
 * The forest of now is cached: beginning a transaction takes a reference, the
 * next view number and a place in the list of views. Whoever publishes a tree
 * counts up d_tree_gen under k_tree_lock, a store under d_kvs_lock, and then drops the
 * cache. A forest counts for a
 * view when d_tree_gen still has its value after the view's number was taken:
 * a memtable takes its first version only after the tree that lists it was
 * published and counted, hence with a stamp above the view.
 *
 * The list is for what views cost others: the oldest that may look for
 * conflicts keeps tombstones alive in merges, views that are too old or pin
 * too much memory are evicted. The number is taken under the list's lock: who
 * reads the list then knows every view older than what it read before.
 *
 * Locks: tx_forest_lock > d_kvs_lock; tx_lock is a leaf.
 */
#include <errno.h>
#include <stdlib.h>

#include "memtable.h"
#include "txn.h"

#define EVICT_MAX 64u	/* in one step */

/* ---- forests ------------------------------------------------------------------------ */

static void forest_free(void *arg)
{
	struct kv_forest *fo = arg;

	for (uint32_t i = 0; i < fo->fo_n; i++)
		kv_tree_put(fo->fo_db, fo->fo_ent[i].tree);
	free(fo);
}

static void forest_put(struct kv_forest *fo)
{
	if (fo && atomic_fetch_sub(&fo->fo_refs, 1) == 1)
		kv_retire(&fo->fo_limbo, forest_free, fo);
}

void kv_forest_stale(struct kvdb *db)
{
	atomic_fetch_add(&db->d_tree_gen, 1);
	if (atomic_load(&db->d_forest))
		forest_put(atomic_exchange(&db->d_forest, NULL));
}

/* The cached forest with a reference, or NULL; one that was replaced is as good as none. */
static struct kv_forest *forest_cached(struct kvdb *db)
{
	struct kv_thread *t = kv_enter();
	struct kv_forest *fo = atomic_load(&db->d_forest);
	bool is_of_now = fo && fo->fo_gen == atomic_load(&db->d_tree_gen);
	uint32_t refs = is_of_now ? atomic_load_explicit(&fo->fo_refs, memory_order_relaxed) : 0;

	while (refs && !atomic_compare_exchange_weak(&fo->fo_refs, &refs, refs + 1))
		;
	kv_exit(t);
	return refs ? fo : NULL;
}

static struct kv_forest *forest_build(struct kvdb *db)
{
	struct kv_forest *fo = calloc(1, sizeof(*fo) + KVDB_KVS_MAX * sizeof(fo->fo_ent[0]));

	if (!fo)
		return NULL;
	fo->fo_db = db;
	fo->fo_gen = atomic_load(&db->d_tree_gen);
	atomic_store(&fo->fo_refs, 1);
	pthread_mutex_lock(&db->d_kvs_lock);
	for (uint32_t i = 0; i < KVDB_KVS_MAX; i++) {
		struct kvdb_kvs *kvs = db->d_kvs[i];

		/* also one that is being dropped: that may fail */
		if (!kvs)
			continue;
		fo->fo_ent[i].kvs = kvs;
		fo->fo_ent[i].tree = kv_tree_get(kvs);
		fo->fo_n = i + 1;
	}
	pthread_mutex_unlock(&db->d_kvs_lock);
	return fo;
}

/* The forest of now, with a reference; may be replaced before the caller looks. */
static struct kv_forest *forest_get(struct kvdb *db)
{
	struct kv_txns *tx = db->d_txns;
	struct kv_forest *fo = forest_cached(db), *old;

	if (fo)
		return fo;
	pthread_mutex_lock(&tx->tx_forest_lock);
	fo = forest_cached(db);
	if (!fo)
		fo = forest_build(db);
	if (fo && !atomic_load(&db->d_forest)) {
		atomic_fetch_add(&fo->fo_refs, 1);
		atomic_store(&db->d_forest, fo);
		/* replaced meanwhile: the cache must not keep what nobody else holds */
		if (atomic_load(&db->d_tree_gen) != fo->fo_gen) {
			old = atomic_exchange(&db->d_forest, NULL);
			forest_put(old);
		}
	}
	pthread_mutex_unlock(&tx->tx_forest_lock);
	return fo;
}

/* ---- the list -------------------------------------------------------------------------- */

/* tx_lock held. */
static void list_add(struct kv_txns *tx, struct kv_view *vi)
{
	vi->vi_next = NULL;
	vi->vi_prev = tx->tx_newest;
	if (tx->tx_newest)
		tx->tx_newest->vi_next = vi;
	else
		tx->tx_oldest = vi;
	tx->tx_newest = vi;
	atomic_fetch_add_explicit(&tx->tx_views, 1, memory_order_relaxed);
}

/* tx_lock held. */
static void list_del(struct kv_txns *tx, struct kv_view *vi)
{
	if (vi->vi_prev)
		vi->vi_prev->vi_next = vi->vi_next;
	else
		tx->tx_oldest = vi->vi_next;
	if (vi->vi_next)
		vi->vi_next->vi_prev = vi->vi_prev;
	else
		tx->tx_newest = vi->vi_prev;
	atomic_fetch_sub_explicit(&tx->tx_views, 1, memory_order_relaxed);
}

int kv_view_begin(struct kvdb *db, struct kv_view *vi, bool writes)
{
	struct kv_txns *tx = db->d_txns;
	struct kv_forest *fo;
	uint64_t gen;

	vi->vi_writes = writes;
	for (;;) {
		fo = forest_get(db);
		if (!fo)
			return kv_error(-ENOMEM, "MP0902", "no memory for a transaction");
		/* before it is in the list: then it may be evicted, and the forest with it */
		gen = fo->fo_gen;
		/* each time, for the same reason */
		atomic_store_explicit(&vi->vi_state, KV_VIEW_LIVE, memory_order_relaxed);
		vi->vi_born_ns = kv_now(db);
		atomic_store_explicit(&vi->vi_forest, fo, memory_order_relaxed);
		pthread_mutex_lock(&tx->tx_lock);
		vi->vi_seq = kv_view_open(db);
		list_add(tx, vi);
		pthread_mutex_unlock(&tx->tx_lock);
		if (atomic_load(&db->d_tree_gen) == gen)
			return 0;
		kv_view_end(db, vi);
	}
}

void kv_view_end(struct kvdb *db, struct kv_view *vi)
{
	struct kv_txns *tx = db->d_txns;

	pthread_mutex_lock(&tx->tx_lock);
	list_del(tx, vi);
	pthread_mutex_unlock(&tx->tx_lock);
	forest_put(atomic_exchange(&vi->vi_forest, NULL));
}

/* No difference of the two: a view may begin after its caller read the clock. */
static bool is_old(const struct kvdb *db, const struct kv_view *vi, uint64_t now_ns)
{
	return now_ns >= vi->vi_born_ns + db->d_view_max_age_ms * 1000000ull;
}

int kv_view_check(struct kvdb *db, struct kv_view *vi)
{
	uint32_t state = atomic_load_explicit(&vi->vi_state, memory_order_relaxed);

	if (KV_LIKELY(state == KV_VIEW_LIVE)) {
		if (KV_LIKELY(!is_old(db, vi, kv_now(db))))
			return 0;
		state = KV_VIEW_OLD;
	}
	if (state == KV_VIEW_FAT)
		return kv_error(-ESTALE, "MP0923", "the transaction's snapshot held more memory "
				"than snapshots may; it was the oldest and was given up");
	return kv_error(-ESTALE, "MP0922", "the transaction is older than %u ms (view_max_age_ms)",
			db->d_view_max_age_ms);
}

struct kv_tree *kv_view_tree(struct kv_view *vi, struct kvdb_kvs *kvs)
{
	struct kv_forest *fo = atomic_load_explicit(&vi->vi_forest, memory_order_acquire);

	if (!fo || kvs->k_slot >= fo->fo_n || fo->fo_ent[kvs->k_slot].kvs != kvs)
		return NULL;
	return fo->fo_ent[kvs->k_slot].tree;
}

uint64_t kv_views_oldest(struct kvdb *db)
{
	struct kv_txns *tx = db->d_txns;
	uint64_t seq = UINT64_MAX;

	if (!tx)
		return seq;
	pthread_mutex_lock(&tx->tx_lock);
	for (struct kv_view *vi = tx->tx_oldest; vi && seq == UINT64_MAX; vi = vi->vi_next)
		if (vi->vi_writes && atomic_load(&vi->vi_state) == KV_VIEW_LIVE)
			seq = vi->vi_seq;
	pthread_mutex_unlock(&tx->tx_lock);
	return seq;
}

/* ---- eviction ---------------------------------------------------------------------------- */

/* Memory of flushed memtables that the forest holds and no younger one that was counted. */
static uint64_t pinned_bytes(const struct kv_forest *fo, uint64_t mark)
{
	uint64_t n = 0;

	for (uint32_t i = 0; fo && i < fo->fo_n; i++) {
		struct kv_tree *tr = fo->fo_ent[i].tree;

		for (uint32_t j = 0; tr && j < tr->tr_nmt; j++) {
			struct kv_mt *mt = tr->tr_mt[j];

			if (!atomic_load(&mt->m_flushed) || mt->m_mark == mark)
				continue;
			mt->m_mark = mark;
			n += atomic_load(&mt->m_bytes);
		}
	}
	return n;
}

static bool pins_any(const struct kv_forest *fo)
{
	for (uint32_t i = 0; fo && i < fo->fo_n; i++) {
		struct kv_tree *tr = fo->fo_ent[i].tree;

		for (uint32_t j = 0; tr && j < tr->tr_nmt; j++)
			if (atomic_load(&tr->tr_mt[j]->m_flushed))
				return true;
	}
	return false;
}

/* Evicted from now on; what it held, for forest_put(). tx_lock held. */
static struct kv_forest *evict(struct kv_view *vi, enum kv_view_state why)
{
	atomic_store(&vi->vi_state, why);
	return atomic_exchange(&vi->vi_forest, NULL);
}

/*
 * Flushed memtables are not in the budget of memtables any more: as much again
 * may be held by views, two of the greatest that there are.
 */
static uint64_t pinned_max(struct kvdb *db)
{
	return db->d_budget.b_mt_bytes / 3 * 2;
}

void kv_views_step(struct kvdb *db)
{
	struct kv_txns *tx = db->d_txns;
	struct kv_forest *gone[EVICT_MAX];
	uint64_t now = kv_now(db), sum = 0;
	unsigned int n = 0, i;
	struct kv_view *vi;

	if (!atomic_load_explicit(&tx->tx_views, memory_order_relaxed))
		return;
	pthread_mutex_lock(&tx->tx_lock);
	for (vi = tx->tx_oldest; vi && n < EVICT_MAX; vi = vi->vi_next) {
		if (!is_old(db, vi, now))
			break;
		if (atomic_load(&vi->vi_state) == KV_VIEW_LIVE)
			gone[n++] = evict(vi, KV_VIEW_OLD);
	}
	tx->tx_marks++;
	for (vi = tx->tx_newest; vi && n < EVICT_MAX; vi = vi->vi_prev) {
		if (atomic_load(&vi->vi_state) != KV_VIEW_LIVE)
			continue;
		/* in the list and live: nobody else takes its forest away */
		sum += pinned_bytes(atomic_load(&vi->vi_forest), tx->tx_marks);
		if (sum > pinned_max(db) && pins_any(atomic_load(&vi->vi_forest)))
			gone[n++] = evict(vi, KV_VIEW_FAT);
	}
	pthread_mutex_unlock(&tx->tx_lock);
	for (i = 0; i < n; i++)
		forest_put(gone[i]);
}

void kv_views_stats(struct kvdb *db, struct kvdb_stats *st)
{
	struct kv_txns *tx = db->d_txns;
	uint64_t now = kv_now(db);

	pthread_mutex_lock(&tx->tx_lock);
	st->views = atomic_load(&tx->tx_views);
	if (tx->tx_oldest && now > tx->tx_oldest->vi_born_ns)
		st->view_oldest_ns = now - tx->tx_oldest->vi_born_ns;
	pthread_mutex_unlock(&tx->tx_lock);
}
