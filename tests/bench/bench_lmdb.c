/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * LMDB as an engine of the comparison. A transaction per put, a read
 * transaction per thread that is renewed for each get; values are read where
 * they are mapped. MDB_NOSYNC with a sync each interval, where commits
 * are not to be durable: a power cut within it may damage the file, which is less
 * than the others promise.
 */
#include <stdio.h>
#include <stdlib.h>

#include <lmdb.h>

#include "engine.h"

static MDB_env *env;
static MDB_dbi dbi;
static char settings[200];

struct thread {
	MDB_txn *reader;
	MDB_cursor *cursor;
};

static void check(const char *what, int rc)
{
	if (rc)
		die("%s: %s", what, mdb_strerror(rc));
}

static void engine_open(const struct engine_opts *o)
{
	uint64_t map = o->data_bytes * 6 + (4ull << 30);
	unsigned flags = MDB_NOTLS | MDB_NORDAHEAD;
	char sync[48] = "";
	MDB_txn *txn;

	check("environment", mdb_env_create(&env));
	check("map size", mdb_env_set_mapsize(env, map & ~0xfffull));
	check("readers", mdb_env_set_maxreaders(env, o->threads + 16));
	check("open", mdb_env_open(env, o->dir, flags | (o->is_sync ? 0 : MDB_NOSYNC), 0600));
	check("begin", mdb_txn_begin(env, NULL, 0, &txn));
	check("database", mdb_dbi_open(txn, NULL, 0, &dbi));
	check("commit", mdb_txn_commit(txn));
	if (!o->is_sync)
		snprintf(sync, sizeof(sync), ", MDB_NOSYNC with mdb_env_sync each %u ms",
			 o->interval_ms);
	snprintf(settings, sizeof(settings),
		 "MDB_NOTLS MDB_NORDAHEAD map=%llu, a transaction per put%s; memory is the page "
		 "cache", (unsigned long long)map, sync);
}

static void engine_close(void)
{
	check("sync", mdb_env_sync(env, 1));
	mdb_env_close(env);
}

static void *thread_begin(void)
{
	struct thread *t = calloc(1, sizeof(*t));

	if (!t)
		die("no memory");
	check("begin", mdb_txn_begin(env, NULL, MDB_RDONLY, &t->reader));
	check("cursor", mdb_cursor_open(t->reader, dbi, &t->cursor));
	mdb_txn_reset(t->reader);
	return t;
}

static void thread_end(void *arg)
{
	struct thread *t = arg;

	mdb_cursor_close(t->cursor);
	mdb_txn_abort(t->reader);
	free(t);
}

static void put(void *t, const void *key, size_t klen, const void *val, size_t vlen)
{
	MDB_val k = { klen, (void *)key }, v = { vlen, (void *)val };
	MDB_txn *txn;

	(void)t;
	check("begin", mdb_txn_begin(env, NULL, 0, &txn));
	check("put", mdb_put(txn, dbi, &k, &v, 0));
	check("commit", mdb_txn_commit(txn));
}

static bool get(void *arg, const void *key, size_t klen, struct engine_view *view)
{
	struct thread *t = arg;
	MDB_val k = { klen, (void *)key }, v;
	int rc;

	check("renew", mdb_txn_renew(t->reader));
	rc = mdb_get(t->reader, dbi, &k, &v);
	if (rc == MDB_NOTFOUND) {
		mdb_txn_reset(t->reader);
		return false;
	}
	check("get", rc);
	view->val = v.mv_data;
	view->vlen = v.mv_size;
	return true;
}

static void unget(void *arg, struct engine_view *v)
{
	struct thread *t = arg;

	(void)v;
	mdb_txn_reset(t->reader);
}

static void scan(void *arg, const void *key, size_t klen, uint64_t n, engine_scan_fn *fn,
		 void *fn_arg)
{
	struct thread *t = arg;
	MDB_val k = { klen, (void *)key }, v;
	int rc;

	check("renew", mdb_txn_renew(t->reader));
	check("cursor", mdb_cursor_renew(t->reader, t->cursor));
	rc = mdb_cursor_get(t->cursor, &k, &v, MDB_SET_RANGE);
	while (!rc && n-- && fn(fn_arg, k.mv_data, k.mv_size, v.mv_data, v.mv_size))
		rc = mdb_cursor_get(t->cursor, &k, &v, MDB_NEXT);
	if (rc != MDB_NOTFOUND)
		check("scan", rc);
	mdb_txn_reset(t->reader);
}

static void sync_env(void)
{
	check("sync", mdb_env_sync(env, 1));
}

static const char *version(void)
{
	return MDB_VERSION_STRING;
}

static const char *get_settings(void)
{
	return settings;
}

static const struct engine lmdb_engine = {
	.name = "lmdb",
	.loses = "process: nothing; power: about interval_ms, and the file may be damaged",
	.version = version,
	.open = engine_open,
	.close = engine_close,
	.thread_begin = thread_begin,
	.thread_end = thread_end,
	.put = put,
	.get = get,
	.unget = unget,
	.scan = scan,
	.sync = sync_env,
	.drain = sync_env,
	.settings = get_settings,
};

int main(int argc, char **argv)
{
	return ycsb_main(argc, argv, &lmdb_engine);
}
