/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What every part asks of an open database: whether it may change, which store is meant, which
 * stores are held, and whether an error of the media is worth another try.
 *
 * Lock: sr_lock, for the table of stores, never across I/O.
 */
#include <errno.h>
#include <string.h>

#include "db/db.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/guard.h"

static const uint8_t lease_id[16] = "kvdb";

int kv_pool_open(const char *pool, const struct kvdb_opts *o, bool is_rdonly, struct mpool **out)
{
	struct mpool_open_opts mo = MPOOL_OPEN_OPTS_INIT;
	int err;

	KV_ASSERT_OUTSIDE();
	if (!pool)
		return kv_error(-EINVAL, "MP0951", "no pool was named");
	if (o->pool && o->pool->size != sizeof(mo))
		return kv_error(-EINVAL, "MP0951", "mpool_open_opts.size is %zu, wanted %zu",
				o->pool->size, sizeof(mo));
	if (o->pool)
		mo = *o->pool;
	if (o->size_max)
		mo.grow_max = o->size_max;
	/* one that is shared with a writer shows a database torn, one for reading takes no log */
	if (mo.flags & ~(is_rdonly ? MPOOL_OPEN_RDONLY : 0u))
		return kv_error(-EINVAL, "MP0951", "mpool_open_opts.flags is %#x: KVDB_RDONLY and "
				"a checkpoint say how the pool is opened", mo.flags);
	/* for writing: what is refused for damage is left as it is */
	mo.flags |= MPOOL_OPEN_QUIET | (is_rdonly ? MPOOL_OPEN_RDONLY : MPOOL_OPEN_LOOK);
	if (o->flags & KVDB_SMALL)
		mo.flags |= MPOOL_OPEN_NOTHREAD;
	/* R20: a checkpoint is read beside the writer; a simulation has one process */
	if (o->checkpoint && !mo.provider)
		mo.flags |= MPOOL_OPEN_SHARED;
	err = mpool_open(pool, &mo, out);
	if (err)
		return kv_error_mpool(err);
	if (mo.flags & MPOOL_OPEN_SHARED)
		return 0;
	/* readers of one pool share it */
	err = mpool_lease(*out, lease_id);
	if (err) {
		kv_error_mpool(err);
		mpool_close(*out);
		*out = NULL;	/* the caller closes what is open */
	}
	return err;
}

int kv_may_change(struct kvdb *db)
{
	if (db->d_mode.md_rdonly)
		return kv_error(-EROFS, "MP0903", "the database is open for reading only");
	if (kv_fault(db))
		return kv_error(-EROFS, "MP0963", "the database stopped: %.200s",
				db->d_fault.fa_text);
	return 0;
}

bool kv_name_is_ok(const char *s)
{
	static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				      "0123456789._-";
	size_t n = s ? strlen(s) : 0;

	return n && n <= KVDB_NAME_MAX && s[0] != '.' && s[0] != '-' && strspn(s, letters) == n;
}

struct kvdb_kvs *kv_kvs_by_id(struct kvdb *db, uint32_t id)
{
	struct kvdb_kvs *k = NULL;
	uint32_t i;

	pthread_mutex_lock(&db->d_stores.sr_lock);
	for (i = 0; i < KVDB_KVS_MAX && !k; i++)
		if (db->d_stores.sr_kvs[i] && db->d_stores.sr_kvs[i]->k_id == id)
			k = db->d_stores.sr_kvs[i];
	pthread_mutex_unlock(&db->d_stores.sr_lock);
	return k;
}

uint64_t kv_min_horizon(struct kvdb *db)
{
	/* read first: a store that comes meanwhile has at least this horizon */
	uint64_t min = UINT64_MAX, durable = atomic_load(&db->d_epochs.ep_durable);
	uint32_t i;

	pthread_mutex_lock(&db->d_stores.sr_lock);
	/* one that is not in the table yet may already have its horizon on media */
	if (db->d_stores.sr_coming)
		min = 0;
	for (i = 0; i < KVDB_KVS_MAX; i++) {
		if (db->d_stores.sr_kvs[i]) {
			uint64_t h = atomic_load(&db->d_stores.sr_kvs[i]->k_horizon);

			min = h < min ? h : min;
		}
	}
	pthread_mutex_unlock(&db->d_stores.sr_lock);
	return min == UINT64_MAX ? durable : min;
}

int kv_kvs_use(struct kvdb_kvs *kvs)
{
	int err;

	atomic_fetch_add(&kvs->k_cursors, 1);
	err = kv_error_dropped(kvs);
	if (err)
		atomic_fetch_sub(&kvs->k_cursors, 1);
	return err;
}

struct kvdb_kvs *kv_kvs_hold(struct kvdb *db, uint32_t i)
{
	struct kvdb_kvs *kvs;

	KV_ASSERT(i < KVDB_KVS_MAX);
	pthread_mutex_lock(&db->d_stores.sr_lock);
	kvs = db->d_stores.sr_kvs[i];
	if (kvs && kvs->k_dropped)
		kvs = NULL;
	if (kvs)
		atomic_fetch_add(&kvs->k_holds, 1);
	pthread_mutex_unlock(&db->d_stores.sr_lock);
	return kvs;
}

void kv_kvs_release(struct kvdb_kvs *kvs)
{
	KV_ASSERT(atomic_load(&kvs->k_holds));
	atomic_fetch_sub(&kvs->k_holds, 1);
}

bool kv_is_local(struct kvdb *db, int err)
{
	struct mpool_info in;

	/* P5: what fails of its own records, and of flushes, stops the pool */
	return (err == -EIO || err == -EUCLEAN) && !kv_fault(db) &&
	       CHECK(!mpool_info(db->d_mp, &in) && !in.is_rdonly);
}

void kv_stop_with_pool(struct kvdb *db, int err, const char *what)
{
	struct mpool_info in;

	if (!db->d_mode.md_rdonly && !kv_fault(db) && !mpool_info(db->d_mp, &in) && in.is_rdonly)
		kv_fail(db, err, "%s: %s", what, kvdb_error_detail()->text);
}

int kv_objs_delete(struct mpool *mp, const uint64_t *id, size_t n)
{
	struct mpool_op op[64];
	size_t i, k;
	int err;

	KV_ASSERT_OUTSIDE();
	for (i = 0; i < n; i += k) {
		memset(op, 0, sizeof(op));
		for (k = 0; k < 64 && i + k < n; k++) {
			op[k].type = MPOOL_OP_DELETE;
			op[k].id = id[i + k];
		}
		err = mpool_batch(mp, op, (unsigned)k);
		if (err)
			return kv_error_mpool(err);
	}
	return 0;
}

int kv_error_key(const struct kvdb_kvs *kvs, const void *key, size_t klen)
{
	if (!key || !klen)
		return kv_error(-EINVAL, "MP0910", "%s: a key has at least 1 byte", kvs->k_name);
	return kv_error(-ENAMETOOLONG, "MP0911", "%s: key of %zu bytes; the longest is %u",
			kvs->k_name, klen, KVDB_KEY_MAX);
}

int kv_error_value(const struct kvdb_kvs *kvs, const void *val, size_t vlen)
{
	if (!val)
		return kv_error(-EINVAL, "MP0913", "%s: a value of %zu bytes at NULL", kvs->k_name,
				vlen);
	return kv_error(-E2BIG, "MP0912", "%s: value of %zu bytes; the longest is %u",
			kvs->k_name, vlen, KVDB_VALUE_MAX);
}

int kv_error_buf(const struct kvdb_kvs *kvs, size_t size)
{
	return kv_error(-EINVAL, "MP0951", "%s: a buffer of %zu bytes at NULL", kvs->k_name, size);
}
