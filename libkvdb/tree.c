/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The tree of a store: an immutable list of memtables and runs, replaced as a
 * whole. A tree holds one reference on everything that it lists. Readers load
 * kvs->k_tree between kv_enter() and kv_exit() or take a reference; what the
 * last reference leaves behind is released only after every such reader left.
 *
 * The functions that publish take over the caller's reference on what is
 * added (memtable, run); what is removed loses the reference of the old tree.
 * On failure nothing changed and the caller still owns its reference.
 * Lock: kvs->k_tree_lock, a leaf lock.
 */
#include <errno.h>
#include <stdlib.h>

#include "mdc.h"
#include "tomb.h"
#include "txn.h"

struct tree_box {
	struct kvdb *tb_db;
	struct kv_tree tb_tree;	/* ends in a flexible array */
};

static struct tree_box *box_of(struct kv_tree *tr)
{
	return (struct tree_box *)((char *)tr - offsetof(struct tree_box, tb_tree));
}

static struct kv_tree *tree_new(struct kvdb *db, uint32_t nrun)
{
	struct tree_box *tb = calloc(1, sizeof(*tb) + nrun * sizeof(struct kv_run *));

	if (!tb)
		return NULL;
	tb->tb_db = db;
	atomic_store(&tb->tb_tree.tr_refs, 1);
	return &tb->tb_tree;
}

static void tree_free(void *arg)
{
	struct kv_tree *tr = arg;
	struct tree_box *tb = box_of(tr);
	uint32_t i;

	for (i = 0; i < tr->tr_nmt; i++)
		kv_mt_put(tb->tb_db, tr->tr_mt[i]);
	for (i = 0; i < tr->tr_nrun; i++)
		kv_run_put(tb->tb_db, tr->tr_run[i]);
	free(tb);
}

struct kv_tree *kv_tree_new(struct kvdb *db, struct kv_mt *mt)
{
	struct kv_tree *tr = tree_new(db, 0);

	if (tr && mt)
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
	if (tr && atomic_fetch_sub(&tr->tr_refs, 1) == 1)
		kv_retire(tree_free, tr);
}

/*
 * Publish @tr. Returns what it replaces: to be put after k_tree_lock, for that
 * may free what trees left behind. k_tree_lock held.
 */
static struct kv_tree *tree_publish(struct kvdb_kvs *kvs, struct kv_tree *tr)
{
	struct kv_tree *old;

	kv_tree_note_tombs(tr);
	old = atomic_exchange(&kvs->k_tree, tr);
	/* T5: in here, so that what waits for the lock comes after it for every view */
	(void)BARRIER(566, (atomic_fetch_add(&kvs->k_db->d_tree_gen, 1), 0));
	return old;
}

void kv_tree_mark_tombs(struct kvdb_kvs *kvs)
{
	pthread_mutex_lock(&kvs->k_tree_lock);
	kv_tree_note_tombs(atomic_load(&kvs->k_tree));
	pthread_mutex_unlock(&kvs->k_tree_lock);
}

int kv_tree_switch(struct kvdb_kvs *kvs, struct kv_mt *mt)
{
	struct kv_tree *old, *tr, *gone = NULL;
	uint32_t i;
	int err = 0;

	pthread_mutex_lock(&kvs->k_tree_lock);
	old = atomic_load(&kvs->k_tree);
	if (old->tr_nmt == sizeof(old->tr_mt) / sizeof(old->tr_mt[0])) {
		err = -EBUSY;
		goto out;
	}
	tr = tree_new(kvs->k_db, old->tr_nrun);
	if (!tr) {
		err = -ENOMEM;
		goto out;
	}
	tr->tr_mt[tr->tr_nmt++] = mt;
	for (i = 0; i < old->tr_nmt; i++)
		tr->tr_mt[tr->tr_nmt++] = kv_mt_get(old->tr_mt[i]);
	for (i = 0; i < old->tr_nrun; i++)
		tr->tr_run[tr->tr_nrun++] = kv_run_get_ref(old->tr_run[i]);
	gone = tree_publish(kvs, tr);
out:
	pthread_mutex_unlock(&kvs->k_tree_lock);
	kv_forest_stale(kvs->k_db);
	kv_tree_put(kvs->k_db, gone);
	return err;
}

int kv_tree_flushed(struct kvdb_kvs *kvs, struct kv_mt *mt, struct kv_run *add)
{
	struct kv_tree *old, *tr, *gone = NULL;
	uint32_t i, keep;
	int err = 0;

	pthread_mutex_lock(&kvs->k_tree_lock);
	old = atomic_load(&kvs->k_tree);
	keep = old->tr_nmt;
	if (mt) {
		/* memtables leave in order: the oldest first (R4) */
		if (!keep || old->tr_mt[keep - 1] != mt) {
			err = -EINVAL;
			goto out;
		}
		keep--;
	}
	tr = tree_new(kvs->k_db, old->tr_nrun + 1);
	if (!tr) {
		err = -ENOMEM;
		goto out;
	}
	for (i = 0; i < keep; i++)
		tr->tr_mt[tr->tr_nmt++] = kv_mt_get(old->tr_mt[i]);
	if (add)
		tr->tr_run[tr->tr_nrun++] = add;
	for (i = 0; i < old->tr_nrun; i++)
		tr->tr_run[tr->tr_nrun++] = kv_run_get_ref(old->tr_run[i]);
	gone = tree_publish(kvs, tr);
out:
	pthread_mutex_unlock(&kvs->k_tree_lock);
	kv_forest_stale(kvs->k_db);
	kv_tree_put(kvs->k_db, gone);
	return err;
}

int kv_tree_insert(struct kvdb_kvs *kvs, struct kv_run *add)
{
	uint64_t pos = kv_run_desc(add)->rd_pos;
	struct kv_tree *old, *tr, *gone = NULL;
	bool is_in = false;
	uint32_t i;

	pthread_mutex_lock(&kvs->k_tree_lock);
	old = atomic_load(&kvs->k_tree);
	tr = tree_new(kvs->k_db, old->tr_nrun + 1);
	for (i = 0; tr && i < old->tr_nmt; i++)
		tr->tr_mt[tr->tr_nmt++] = kv_mt_get(old->tr_mt[i]);
	for (i = 0; tr && i <= old->tr_nrun; i++) {
		if (!is_in && (i == old->tr_nrun || kv_run_desc(old->tr_run[i])->rd_pos < pos)) {
			tr->tr_run[tr->tr_nrun++] = add;
			is_in = true;
		}
		if (i < old->tr_nrun)
			tr->tr_run[tr->tr_nrun++] = kv_run_get_ref(old->tr_run[i]);
	}
	if (tr)
		gone = tree_publish(kvs, tr);
	pthread_mutex_unlock(&kvs->k_tree_lock);
	kv_forest_stale(kvs->k_db);
	kv_tree_put(kvs->k_db, gone);
	return tr ? 0 : -ENOMEM;
}

static bool run_in(struct kv_run *r, struct kv_run **list, unsigned n)
{
	unsigned i;

	for (i = 0; i < n; i++)
		if (list[i] == r)
			return true;
	return false;
}

int kv_tree_merged(struct kvdb_kvs *kvs, struct kv_run **drop, unsigned ndrop,
		   struct kv_run *merged)
{
	struct kv_tree *old, *tr, *gone = NULL;
	uint32_t i, hits = 0;
	int err = 0;

	pthread_mutex_lock(&kvs->k_tree_lock);
	old = atomic_load(&kvs->k_tree);
	tr = tree_new(kvs->k_db, old->tr_nrun + 1);
	if (!tr) {
		err = -ENOMEM;
		goto out;
	}
	for (i = 0; i < old->tr_nmt; i++)
		tr->tr_mt[tr->tr_nmt++] = kv_mt_get(old->tr_mt[i]);
	for (i = 0; i < old->tr_nrun; i++) {
		if (!run_in(old->tr_run[i], drop, ndrop))
			tr->tr_run[tr->tr_nrun++] = kv_run_get_ref(old->tr_run[i]);
		else if (!hits++ && merged)
			tr->tr_run[tr->tr_nrun++] = merged;
	}
	gone = tree_publish(kvs, tr);
out:
	pthread_mutex_unlock(&kvs->k_tree_lock);
	kv_forest_stale(kvs->k_db);
	kv_tree_put(kvs->k_db, gone);
	return err;
}

int kv_tree_load(struct kvdb_kvs *kvs, struct kv_run **runs, unsigned n)
{
	struct kv_tree *tr = tree_new(kvs->k_db, n), *old;
	uint32_t i;

	if (!tr)
		return -ENOMEM;
	pthread_mutex_lock(&kvs->k_tree_lock);
	old = atomic_load(&kvs->k_tree);
	for (i = 0; i < old->tr_nmt; i++)
		tr->tr_mt[tr->tr_nmt++] = kv_mt_get(old->tr_mt[i]);
	for (i = 0; i < n; i++)
		tr->tr_run[tr->tr_nrun++] = runs[i];
	old = tree_publish(kvs, tr);
	pthread_mutex_unlock(&kvs->k_tree_lock);
	kv_forest_stale(kvs->k_db);
	kv_tree_put(kvs->k_db, old);
	return 0;
}

int kv_tree_empty(struct kvdb_kvs *kvs)
{
	struct kv_tree *tr = tree_new(kvs->k_db, 0), *old;

	if (!tr)
		return -ENOMEM;
	pthread_mutex_lock(&kvs->k_tree_lock);
	old = tree_publish(kvs, tr);
	pthread_mutex_unlock(&kvs->k_tree_lock);
	kv_forest_stale(kvs->k_db);
	kv_tree_put(kvs->k_db, old);
	return 0;
}
