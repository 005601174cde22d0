/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Finding a key: in memtables, newest first, then in the runs on its way through the leaves.
 * What can be prefetched is, before the first of them is looked at. No lock is taken; a page that
 * is not in memory ends the walk, and get.c goes on with it.
 */
#include <errno.h>

#include "read/find.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/hash.h"
#include "db/db.h"
#include "db/etime.h"
#include "db/thread.h"
#include "seg/value.h"
#include "mem/memtable.h"
#include "run/run.h"
#include "tree/leaf.h"
#include "tree/point.h"
#include "tree/tomb_view.h"

static inline struct kv_path path_prefetch(const struct kv_tree *tr, const void *key, size_t klen,
					   uint64_t hash)
{
	struct kv_path pa = kv_path(tr, key, klen);

	for (uint32_t i = 0; i < pa.pa_n; i++)
		kv_run_prefetch(kv_path_run(tr, &pa, i), hash);
	return pa;
}

static inline int runs_lookup(struct kvdb *db, const struct kv_tree *tr, const struct kv_path *pa,
			      const void *key, size_t klen, uint64_t hash, struct kv_ent *e)
{
	int err = -ENOENT;

	for (uint32_t i = 0; i < pa->pa_n && err == -ENOENT; i++)
		err = kv_run_lookup(db, kv_path_run(tr, pa, i), key, klen, hash, e);
	return err;
}

static inline int tree_lookup(struct kvdb *db, struct kv_tree *tr, const void *key, size_t klen,
			      uint64_t seq, struct kv_ent *e)
{
	bool tombs = atomic_load_explicit(&tr->tr_tombs, memory_order_relaxed), is_near = false;
	uint64_t hash = kv_hash(key, klen), hidden = 0;
	struct kv_path pa = { .pa_n = 0 };
	const uint8_t *rec;
	uint32_t i;
	int err;

	KV_ASSERT_INSIDE();
	/* before the versions (R15) */
	if (KV_UNLIKELY(tombs))
		hidden = kv_tombs_at(tr, key, klen, seq);
	else
		is_near = kv_point_prefetch(&db->d_trees.te_points, hash);
	for (i = 0; i < tr->tr_nmt; i++)
		kv_mt_prefetch(tr->tr_mt[i], hash);
	if (!is_near)
		pa = path_prefetch(tr, key, klen, hash);
	for (i = 0; i < tr->tr_nmt; i++)
		if (!kv_mt_lookup(tr->tr_mt[i], key, klen, hash, seq, e))
			return e->e_seq <= hidden ? -ENOENT : 0;
	if (is_near) {
		rec = kv_point_seek(db, tr, hash);
		if (rec && kv_point_ent(db, rec, key, klen, e))
			return 0;
		pa = path_prefetch(tr, key, klen, hash);
	}
	err = runs_lookup(db, tr, &pa, key, klen, hash, e);
	if (err)
		return err;
	if (KV_UNLIKELY(tombs))
		return e->e_seq <= hidden ? -ENOENT : 0;
	kv_point_add(db, tr, key, klen, hash, e);
	return 0;
}

int kv_tree_lookup(struct kvdb *db, struct kv_tree *tr, const void *key, size_t klen,
		   uint64_t seq, struct kv_ent *e)
{
	return tree_lookup(db, tr, key, klen, seq, e);
}

/* @mo: NULL = the current state. */
static inline int get_run(struct kvdb_kvs *kvs, const struct kv_moment *mo, const void *key,
			  size_t klen, void *buf, size_t size, size_t *vlen)
{
	struct kvdb *db = kvs->k_db;
	struct kv_thread *t = kv_enter();
	struct kv_tree *tr = mo ? mo->mo_tree :
			     atomic_load_explicit(&kvs->k_tree, memory_order_acquire);
	struct kv_ent e;
	int err = tree_lookup(db, tr, key, klen, mo ? mo->mo_seq : KV_SEQ_NOW, &e);

	if (!err && (e.e_kind == KV_ENT_TOMB ||
		     (KV_UNLIKELY(e.e_expiry) &&
		      kv_is_expired(&e, mo ? mo->mo_now : kv_time_ms(db)))))
		err = -ENOENT;
	if (!err && size)
		err = kv_value_read(db, &e, buf, size);
	if (!err)
		*vlen = e.e_vlen;
	kv_exit(t);
	return err;
}

static inline void count_got(struct kv_tctx *tc, size_t klen, size_t size, size_t vlen)
{
	if (size)	/* else it asked for the length */
		kv_count(&tc->tc_read_bytes, klen + (vlen < size ? vlen : size));
}

int kv_get_run(struct kvdb_kvs *kvs, const struct kv_moment *mo, const void *key, size_t klen,
	       void *buf, size_t size, size_t *vlen)
{
	int err = kv_check_key(kvs, key, klen);
	struct kv_tctx *tc;

	if (!err)
		err = get_run(kvs, mo, key, klen, buf, size, vlen);
	if (!err && (tc = kv_tctx(kvs->k_db)))
		count_got(tc, klen, size, *vlen);
	return err;
}

static inline int get_wait(struct kvdb_kvs *kvs, const void *key, size_t klen, void *buf,
			   size_t size, size_t *vlen)
{
	struct kv_tctx *tc = kv_tctx(kvs->k_db);
	int err;

	KV_ASSERT_OUTSIDE();
	if (KV_UNLIKELY(!tc))
		return kv_error(-ENOMEM, "MP0902", "no memory for a thread's state");
	kv_count(&tc->tc_gets, 1);
	tc->tc_restarts = true;
	err = get_run(kvs, NULL, key, klen, buf, size, vlen);
	tc->tc_restarts = false;
	if (KV_LIKELY(!err))
		count_got(tc, klen, size, *vlen);
	return KV_LIKELY(err != -EINPROGRESS) ? err :
	       kv_get_wait(kvs, NULL, key, klen, buf, size, vlen);
}

int kv_find_wait(struct kvdb_kvs *kvs, const void *key, size_t klen, void *buf, size_t size,
		 size_t *vlen)
{
	return get_wait(kvs, key, klen, buf, size, vlen);
}

int kvdb_get(struct kvdb_kvs *kvs, const void *key, size_t klen, void *buf, size_t size,
	     size_t *vlen)
{
	int err = kv_check_key(kvs, key, klen);
	size_t len;

	if (KV_LIKELY(!err))
		err = kv_check_buf(kvs, buf, size);
	if (KV_UNLIKELY(err))
		return err;
	err = get_wait(kvs, key, klen, buf, size, vlen ? vlen : &len);
	return KV_UNLIKELY(err == -ENOENT) ? kv_error_absent() : err;
}
