/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The tree of a store: an immutable list of memtables and runs, replaced as a
 * whole. A tree holds one reference on everything that it lists. Readers load
 * kvs->k_tree between kv_enter() and kv_exit() or take a reference; what the
 * last reference leaves behind is released only after every such reader left.
 *
 * The functions that publish take over the caller's reference on memtables and
 * runs that are added; what is removed loses the reference of the old tree.
 * On failure nothing changed and the caller still owns its reference.
 * Lock: kvs->k_tree_lock; only k_many_lock and gs_lock are inside.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/guard.h"
#include "base/key.h"
#include "db/db.h"
#include "db/mem_wait.h"
#include "mem/memtable.h"
#include "mem/tomb.h"
#include "run/run.h"
#include "tree/gap.h"
#include "tree/hold.h"
#include "tree/leaf.h"
#include "tree/point.h"
#include "tree/tomb_view.h"
#include "tree/view.h"

struct tree_box {
	struct kvdb *tb_db;
	struct kv_tree tb_tree;	/* ends in a flexible array */
};

static struct tree_box *box_of(struct kv_tree *tr)
{
	return (struct tree_box *)((char *)tr - offsetof(struct tree_box, tb_tree));
}

static struct kv_tree *tree_new(struct kvdb *db, uint32_t nrun, uint32_t nleaf)
{
	struct tree_box *tb = calloc(1, sizeof(*tb) + nrun * sizeof(struct kv_run *));

	if (!tb)
		return NULL;
	tb->tb_db = db;
	atomic_store(&tb->tb_tree.tr_refs, 1);
	if (nleaf) {
		tb->tb_tree.tr_leaf = calloc(nleaf, sizeof(tb->tb_tree.tr_leaf[0]));
		if (!tb->tb_tree.tr_leaf) {
			free(tb);
			return NULL;
		}
	}
	return &tb->tb_tree;
}

static void tree_free(void *arg)
{
	struct kv_tree *tr = arg;
	struct tree_box *tb = box_of(tr);
	uint32_t i;

	/* first: the keeper looks at the memtables of the trees that it finds */
	kv_holders_free(tb->tb_db, atomic_load(&tr->tr_holders));
	for (i = 0; i < tr->tr_nmt; i++)
		kv_mt_put(tb->tb_db, tr->tr_mt[i]);
	for (i = 0; i < tr->tr_nrun; i++)
		kv_run_put(tb->tb_db, tr->tr_run[i]);
	for (i = 0; i < tr->tr_nleaf; i++)
		kv_leaf_put(tr->tr_leaf[i].lr_leaf);
	free(tr->tr_leaf);
	free(tb);
}

uint64_t kv_run_gen(struct kvdb *db)
{
	return atomic_fetch_add(&db->d_trees.te_newest, 1) + 1;
}

/* PI1, PI5: runs in place of others say the same. k_tree_lock held. */
static void tree_number(struct kvdb_kvs *kvs, struct kv_tree *tr, const struct kv_tree *old,
			bool is_new, uint64_t told)
{
	KV_ASSERT_HELD(&kvs->k_tree_lock);
	KV_ASSERT(!told || told > old->tr_gen);
	tr->tr_slot = kvs->k_slot;
	tr->tr_gen = old->tr_gen;
	tr->tr_line = old->tr_line;
	if (!is_new)
		return;
	tr->tr_gen = told ? told : kv_run_gen(kvs->k_db);
	if (BARRIER(!told))
		tr->tr_line = tr->tr_gen;
	kv_points_advance(&kvs->k_db->d_trees.te_points, tr->tr_slot, tr->tr_gen);
}

struct kv_tree *kv_tree_new(struct kvdb *db, struct kv_mt *mt)
{
	struct kv_tree *tr = tree_new(db, 0, 0);

	if (!tr)
		return NULL;
	tr->tr_gen = tr->tr_line = kv_run_gen(db);
	if (mt)
		tr->tr_mt[tr->tr_nmt++] = mt;
	return tr;
}

struct kv_tree *kv_tree_get(struct kvdb_kvs *kvs)
{
	struct kv_thread *t = kv_enter();
	struct kv_tree *tr;
	uint32_t refs;

	for (;;) {
		tr = atomic_load_explicit(&kvs->k_tree, memory_order_acquire);
		refs = atomic_load_explicit(&tr->tr_refs, memory_order_relaxed);
		/* 0: replaced meanwhile; the next load finds its successor */
		while (refs && !atomic_compare_exchange_weak(&tr->tr_refs, &refs, refs + 1))
			;
		if (refs)
			break;
	}
	kv_exit(t);
	return tr;
}

void kv_tree_put(struct kvdb *db, struct kv_tree *tr)
{
	(void)db;
	KV_ASSERT(!tr || atomic_load(&tr->tr_refs));
	if (tr && atomic_fetch_sub(&tr->tr_refs, 1) == 1)
		kv_retire(&tr->tr_limbo, tree_free, tr);
}

static uint32_t copy_runs(struct kv_tree *to, struct kv_run *const *run, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		to->tr_run[to->tr_nrun++] = kv_run_get_ref(run[i]);
	return n;
}

/* Are the @n runs, which may hold one key, newest first? */
static bool are_by_age(struct kv_run *const *run, uint32_t n)
{
	for (uint32_t i = 1; i < n; i++)
		if (kv_run_desc(run[i - 1])->rd_pos <= kv_run_desc(run[i])->rd_pos)
			return false;
	return true;
}

static int by_key(const void *a, const void *b)
{
	const struct kv_leaf *x = ((const struct kv_leaf_runs *)a)->lr_leaf;
	const struct kv_leaf *y = ((const struct kv_leaf_runs *)b)->lr_leaf;

	return kv_kcmp(x->lf_key, x->lf_klen, y->lf_key, y->lf_klen);
}

/* Is all where readers look for it: upper runs, then leaf after leaf; memtables, frozen but one? */
static bool is_in_order(const struct kv_tree *tr)
{
	uint32_t at = tr->tr_nupper;

	if (!are_by_age(tr->tr_run, tr->tr_nupper))
		return false;
	for (uint32_t i = 0; i < tr->tr_nleaf; i++) {
		const struct kv_leaf_runs *lr = &tr->tr_leaf[i];

		if ((i && by_key(&tr->tr_leaf[i - 1], lr) >= 0) ||
		    (lr->lr_n && lr->lr_first != at) ||
		    !are_by_age(tr->tr_run + lr->lr_first, lr->lr_n))
			return false;
		at += lr->lr_n;
	}
	for (uint32_t i = 1; i < tr->tr_nmt; i++)
		if (!kv_mt_boundary(tr->tr_mt[i]) ||
		    (i > 1 && kv_mt_boundary(tr->tr_mt[i - 1]) < kv_mt_boundary(tr->tr_mt[i])))
			return false;
	return at == tr->tr_nrun;
}

struct kv_tree *kv_tree_runs(struct kvdb *db, const struct kv_tree *tr, kv_part_fn *omits,
			     void *arg)
{
	struct kv_tree *own = tree_new(db, tr->tr_nrun, tr->tr_nleaf);

	if (!own)
		return NULL;
	own->tr_nleaf = tr->tr_nleaf;
	own->tr_depth = tr->tr_depth;
	own->tr_gen = tr->tr_gen;
	own->tr_line = tr->tr_line;
	own->tr_slot = tr->tr_slot;
	if (!omits || !omits(arg, tr->tr_run, tr->tr_nupper))
		own->tr_nupper = copy_runs(own, tr->tr_run, tr->tr_nupper);
	for (uint32_t i = 0; i < tr->tr_nleaf; i++) {
		const struct kv_leaf_runs *lr = &tr->tr_leaf[i];
		struct kv_run *const *run = tr->tr_run + lr->lr_first;

		own->tr_leaf[i].lr_leaf = kv_leaf_get(lr->lr_leaf);
		own->tr_leaf[i].lr_first = own->tr_nrun;
		if (!omits || !omits(arg, run, lr->lr_n))
			own->tr_leaf[i].lr_n = copy_runs(own, run, lr->lr_n);
	}
	KV_ASSERT_SLOW(is_in_order(own));
	kv_tree_note_tombs(own);
	return own;
}

struct kv_tree *kv_tree_leave_mts(struct kvdb *db, struct kv_tree *tr)
{
	struct kv_tree *own = kv_tree_runs(db, tr, NULL, NULL);

	if (own)
		kv_tree_put(db, tr);
	return own ? own : tr;
}

/*
 * Publish @tr. Returns what it replaces: to be put after k_tree_lock, for that
 * may free what trees left behind. k_tree_lock held.
 */
static struct kv_tree *tree_publish(struct kvdb_kvs *kvs, struct kv_tree *tr)
{
	struct kv_tree *old;

	KV_ASSERT_HELD(&kvs->k_tree_lock);
	KV_ASSERT_SLOW(is_in_order(tr));
	kv_tree_note_tombs(tr);
	old = atomic_exchange(&kvs->k_tree, tr);
	atomic_store(&old->tr_is_old, true);
	/* T5: in here, so that what waits for the lock comes after it for every view */
	(void)BARRIER((atomic_fetch_add(&kvs->k_db->d_trees.te_gen, 1), 0));
	return old;
}

void kv_tree_mark_tombs(struct kvdb_kvs *kvs)
{
	pthread_mutex_lock(&kvs->k_tree_lock);
	kv_tree_note_tombs(atomic_load(&kvs->k_tree));
	pthread_mutex_unlock(&kvs->k_tree_lock);
}

/* ---- the next tree ---------------------------------------------------------------------- */

static bool run_in(const struct kv_run *r, struct kv_run *const *list, unsigned n)
{
	while (n--)
		if (list[n] == r)
			return true;
	return false;
}

/* The leaves of @old as the edit changes them; their runs come later. */
static void take_leaves(struct kv_tree *tr, const struct kv_tree *old, const struct kv_edit *ed)
{
	for (uint32_t i = 0; i < old->tr_nleaf; i++)
		if (old->tr_leaf[i].lr_leaf->lf_id != ed->ed_end)
			tr->tr_leaf[tr->tr_nleaf++].lr_leaf = kv_leaf_get(old->tr_leaf[i].lr_leaf);
	for (unsigned i = 0; i < ed->ed_nbegin; i++)
		tr->tr_leaf[tr->tr_nleaf++].lr_leaf = kv_leaf_get(ed->ed_begin[i]);
	if (ed->ed_nbegin)
		qsort(tr->tr_leaf, tr->tr_nleaf, sizeof(tr->tr_leaf[0]), by_key);
}

struct place {		/* of a run: its leaf's number from 1, 0 = upper; then the newest first */
	uint32_t pl_part;
	uint64_t pl_pos;
	struct kv_run *pl_run;
};

static int by_place(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->pl_part != y->pl_part)
		return x->pl_part < y->pl_part ? -1 : 1;
	return (x->pl_pos < y->pl_pos) - (x->pl_pos > y->pl_pos);
}

/* Most runs come in order of their leaves: the search begins where the last one ended. */
static uint32_t part_of(const struct kv_tree *tr, uint64_t leaf, uint32_t hint)
{
	if (!leaf)
		return 0;
	for (uint32_t i = 0; i < tr->tr_nleaf; i++) {
		uint32_t at = (hint + i) % tr->tr_nleaf;

		if (tr->tr_leaf[at].lr_leaf->lf_id == leaf)
			return at + 1;
	}
	return UINT32_MAX;
}

static void place_runs(struct kv_tree *tr, struct place *pl, uint32_t n)
{
	qsort(pl, n, sizeof(*pl), by_place);
	for (uint32_t i = 0; i < n; i++) {
		struct kv_leaf_runs *lr = pl[i].pl_part ? &tr->tr_leaf[pl[i].pl_part - 1] : NULL;

		tr->tr_run[tr->tr_nrun++] = pl[i].pl_run;
		if (!lr) {
			tr->tr_nupper++;
			continue;
		}
		if (!lr->lr_n++)
			lr->lr_first = i;
		if (lr->lr_n > tr->tr_depth)
			tr->tr_depth = lr->lr_n;
	}
	tr->tr_depth += tr->tr_nupper;
}

/* The runs of @old without those that the edit drops, with those that it adds. */
static int take_runs(struct kv_tree *tr, const struct kv_tree *old, const struct kv_edit *ed)
{
	uint32_t n = 0, kept = 0, part = 0;
	struct place *pl = calloc(old->tr_nrun + ed->ed_nadd + 1, sizeof(*pl));

	if (!pl)
		return -ENOMEM;
	for (uint32_t i = 0; i < old->tr_nrun + ed->ed_nadd; i++) {
		struct kv_run *r = i < old->tr_nrun ? old->tr_run[i] : ed->ed_add[i - old->tr_nrun];
		const struct kv_run_desc *d = kv_run_desc(r);

		if (i < old->tr_nrun && run_in(r, ed->ed_drop, ed->ed_ndrop))
			continue;
		part = part_of(tr, d->rd_leaf, part ? part - 1 : 0);
		if (part > tr->tr_nleaf) {
			free(pl);
			return -EINVAL;
		}
		pl[n++] = (struct place){ part, d->rd_pos, r };
		kept += i < old->tr_nrun;
	}
	while (kept--)
		kv_run_get_ref(pl[kept].pl_run);
	place_runs(tr, pl, n);
	free(pl);
	return 0;
}

/* @front: a new active memtable. @mt: the oldest one, which goes. */
static int tree_next(struct kvdb_kvs *kvs, struct kv_mt *front, struct kv_mt *mt,
		     const struct kv_edit *ed)
{
	struct kv_tree *old, *tr = NULL, *gone = NULL;
	bool is_load = !mt && !front && !ed->ed_ndrop;
	uint32_t i, keep;
	int err = 0;

	pthread_mutex_lock(&kvs->k_tree_lock);
	old = atomic_load(&kvs->k_tree);
	keep = old->tr_nmt;
	/* memtables leave in order: the oldest first (R4) */
	if (mt && (!keep || old->tr_mt[--keep] != mt))
		err = -EINVAL;
	else if (front && keep == sizeof(old->tr_mt) / sizeof(old->tr_mt[0]))
		err = -EBUSY;
	if (!err) {
		tr = tree_new(kvs->k_db, old->tr_nrun + ed->ed_nadd, old->tr_nleaf + ed->ed_nbegin);
		err = tr ? 0 : -ENOMEM;
	}
	if (!err) {
		take_leaves(tr, old, ed);
		err = take_runs(tr, old, ed);
		if (err)
			tree_free(tr);
	}
	if (!err) {
		if (front)
			tr->tr_mt[tr->tr_nmt++] = front;
		for (i = 0; i < keep; i++)
			tr->tr_mt[tr->tr_nmt++] = kv_mt_get(old->tr_mt[i]);
		tree_number(kvs, tr, old, mt || is_load, ed->ed_gen);
		/* U1: no update stands between its look at the runs and its stamp */
		if (is_load) {
			kv_gaps_close(&kvs->k_gaps);
			pthread_rwlock_wrlock(&kvs->k_many_lock);
		}
		gone = tree_publish(kvs, tr);
		if (is_load) {
			pthread_rwlock_unlock(&kvs->k_many_lock);
			kv_gaps_reopen(&kvs->k_gaps);
		}
	}
	pthread_mutex_unlock(&kvs->k_tree_lock);
	kv_forest_stale(kvs->k_db);
	kv_tree_put(kvs->k_db, gone);
	return err;
}

void kv_tree_note_tombs(struct kv_tree *tr)
{
	bool has = false;

	for (uint32_t i = 0; i < tr->tr_nmt && !has; i++)
		has = kv_mt_has_tombs(tr->tr_mt[i]);
	for (uint32_t i = 0; i < tr->tr_nrun && !has; i++)
		has = tr->tr_run[i]->rn_tindex != NULL;
	if (has)
		atomic_store(&tr->tr_tombs, true);
}

struct kv_mt *kv_mt_active(struct kvdb_kvs *kvs)
{
	KV_ASSERT_INSIDE();
	return atomic_load_explicit(&kvs->k_tree, memory_order_acquire)->tr_mt[0];
}

int kv_tree_switch(struct kvdb_kvs *kvs, struct kv_mt *mt)
{
	KV_ASSERT_HELD(&kvs->k_db->d_epochs.ep_tick_lock);
	return tree_next(kvs, mt, NULL, &(struct kv_edit){ .ed_kvs = kvs->k_id });
}

int kv_tree_edit(struct kvdb_kvs *kvs, struct kv_mt *mt, const struct kv_edit *ed)
{
	KV_ASSERT_HELD(&kvs->k_edit_lock);
	return tree_next(kvs, NULL, mt, ed);
}

int kv_tree_show(struct kvdb_kvs *kvs, struct kv_mt *mt, const struct kv_edit *ed)
{
	struct kvdb *db = kvs->k_db;
	int err;

	while ((err = kv_tree_edit(kvs, mt, ed)) == -ENOMEM && !kv_sleep_or_stop(db))
		;
	/* the media say one thing and memory another */
	if (err && err != -ENOMEM)
		kv_fail(db, err, "publishing an edit of store %s failed", kvs->k_name);
	return err ? kv_fault(db) : 0;
}

void kv_tree_empty(struct kvdb_kvs *kvs, struct kv_tree *blank)
{
	struct kv_tree *old;

	pthread_mutex_lock(&kvs->k_tree_lock);
	tree_number(kvs, blank, atomic_load(&kvs->k_tree), true, 0);
	old = tree_publish(kvs, blank);
	pthread_mutex_unlock(&kvs->k_tree_lock);
	kv_forest_stale(kvs->k_db);
	kv_tree_put(kvs->k_db, old);
}
