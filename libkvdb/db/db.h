/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What every part asks of an open database and of its stores, and checks of arguments. */
#ifndef KV_DB_H
#define KV_DB_H

#include "db/kv.h"

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
/* The store in slot @i of d_kvs, kept from being dropped until kv_kvs_release(); NULL: none. */
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
