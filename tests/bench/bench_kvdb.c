/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * libkvdb as an engine of the comparison: a pool of one plain file, one store.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvdb/kvdb.h>

#include "engine.h"
#include "json.h"

#define STORE "usertable"

static struct kvdb *db;
static struct kvdb_kvs *kvs;
static struct kvdb_stats before;
static unsigned in_flight, reap_max, put_flags;
static char settings[200];

static void check(const char *what, int rc)
{
	const struct mpool_error *e = kvdb_error_detail();

	if (rc)
		die("%s: %s", what, e && e->text[0] ? e->text : strerror(-rc));
}

static void make(const char *pool, const struct engine_opts *o)
{
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	struct mpool_dev_spec dev = { .mclass = MPOOL_CAPACITY };

	/* its file is sparse */
	dev.size = (o->data_bytes * 5 / 2 + (2ull << 30)) & ~0xfffffull;
	co.devs = &dev;
	co.ndevs = 1;
	check("pool", mpool_create(pool, &co));
	check("create", kvdb_create(pool, NULL));
}

static void kvdb_engine_open(const struct engine_opts *o)
{
	struct kvdb_opts ko = KVDB_OPTS_INIT;
	struct kvdb_info info;
	char pool[4096];

	snprintf(pool, sizeof(pool), "%s/pool", o->dir);
	if (o->is_new)
		make(pool, o);
	ko.cache_bytes = o->cache_bytes;
	ko.interval_ms = o->interval_ms;
	ko.commit = o->is_sync;
	ko.flags = KVDB_NOCTL | KVDB_PREFAULT;
	in_flight = o->in_flight;
	/* a thread that takes all that ended begins nothing until the last of it is verified */
	reap_max = in_flight / 4 < ENGINE_BATCH ? (in_flight + 3) / 4 : ENGINE_BATCH;
	put_flags = o->is_sync ? KVDB_OP_DURABLE : 0;
	check("open", kvdb_open(pool, &ko, &db));
	if (o->is_new)
		check("store", kvdb_kvs_create(db, STORE, NULL));
	check("store", kvdb_kvs_open(db, STORE, &kvs));
	kvdb_info(db, &info);
	snprintf(settings, sizeof(settings),
		 "cache_bytes=%llu interval_ms=%u commit=%u logs=%u log_bytes=%llu "
		 "segment_bytes=%llu prefault io=%s%s",
		 (unsigned long long)info.cache_bytes, info.interval_ms, info.commit, info.logs,
		 (unsigned long long)info.log_bytes, (unsigned long long)info.segment_bytes,
		 info.pool.io, info.pool.is_direct ? " direct" : " buffered");
}

static void kvdb_engine_close(void)
{
	check("close", kvdb_close(db));
}

/* A thread's queue, or nothing. */
static void *thread_begin(void)
{
	struct kvdb_cq *cq = NULL;

	if (in_flight)
		check("queue", kvdb_cq_open(db, in_flight < 1024 ? in_flight : 1024, 0, &cq));
	return cq;
}

static void thread_end(void *t)
{
	kvdb_cq_close(t);
}

static void submit(void *t, struct engine_op *const *ops, unsigned n)
{
	struct kvdb_op op[ENGINE_BATCH];

	for (unsigned i = 0; i < n; i++)
		op[i] = (struct kvdb_op){ .type = ops[i]->is_put ? KVDB_OP_PUT : KVDB_OP_GET,
					  .flags = ops[i]->is_put ? put_flags : 0,
					  .cookie = (uintptr_t)ops[i], .kvs = kvs,
					  .key = ops[i]->key, .klen = ops[i]->klen,
					  .buf = ops[i]->val, .size = ops[i]->vlen };
	if (kvdb_cq_submit(t, op, n) != (int)n)
		die("a queue did not take %u operations", n);
}

static unsigned reap(void *t, struct engine_op **ended)
{
	struct kvdb_cqe cqe[ENGINE_BATCH];
	int n = kvdb_cq_reap(t, cqe, reap_max, 1, -1);

	if (n < 1)
		die("reap: %s", strerror(-n));
	for (int i = 0; i < n; i++) {
		ended[i] = (struct engine_op *)(uintptr_t)cqe[i].cookie;
		if (cqe[i].err && (cqe[i].err != -ENOENT || ended[i]->is_put))
			die("%s: %s", ended[i]->is_put ? "put" : "get",
			    cqe[i].error ? cqe[i].error->text : strerror(-cqe[i].err));
		ended[i]->is_found = !cqe[i].err;
		ended[i]->vlen = cqe[i].vlen;
	}
	return (unsigned)n;
}

static void put(void *t, const void *key, size_t klen, const void *val, size_t vlen)
{
	(void)t;
	check("put", kvdb_put(kvs, key, klen, val, vlen));
}

static void write_all(void *t, const struct engine_op *puts, unsigned n)
{
	struct kvdb_op op[ENGINE_WRITES];

	(void)t;
	for (unsigned i = 0; i < n; i++)
		op[i] = (struct kvdb_op){ .type = KVDB_OP_PUT, .kvs = kvs, .key = puts[i].key,
					  .klen = puts[i].klen, .val = puts[i].val,
					  .size = puts[i].vlen };
	check("write", kvdb_write(db, op, n, 0, NULL));
}

static bool get(void *t, const void *key, size_t klen, struct engine_view *v)
{
	struct kvdb_pin pin;
	int rc = kvdb_get_pinned(kvs, key, klen, &pin);

	(void)t;
	if (rc == -ENOENT)
		return false;
	check("get", rc);
	v->val = pin.val;
	v->vlen = pin.vlen;
	memcpy(v->priv, pin.priv, sizeof(v->priv));
	return true;
}

static void unget(void *t, struct engine_view *v)
{
	struct kvdb_pin pin = { .val = v->val, .vlen = v->vlen };

	(void)t;
	memcpy(pin.priv, v->priv, sizeof(pin.priv));
	kvdb_unpin(&pin);
}

static void scan(void *t, const void *key, size_t klen, uint64_t n, engine_scan_fn *fn, void *arg)
{
	struct kvdb_cursor_opts o = KVDB_CURSOR_OPTS_INIT;
	struct kvdb_cursor *cur;
	const void *k, *v;
	size_t kl, vl;
	int rc = 0;

	(void)t;
	o.limit = n;
	check("cursor", kvdb_cursor_open_opts(kvs, &o, &cur));
	check("seek", kvdb_cursor_seek(cur, key, klen));
	while (n-- && !(rc = kvdb_cursor_next(cur, &k, &kl, &v, &vl)))
		if (!fn(arg, k, kl, v, vl))
			break;
	if (rc != -ENOENT)
		check("scan", rc);
	kvdb_cursor_close(cur);
}

static void drain(void)
{
	check("drain", kvdb_drain(db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT));
	check("sync", kvdb_sync(db));
}

static void count(void)
{
	kvdb_stats(db, &before);
}

static void report(struct json *j)
{
	static const char *const name[MPOOL_MCLASSES] = {
		[MPOOL_CAPACITY] = "capacity", [MPOOL_STAGING] = "staging",
	};
	struct kvdb_stats now;

	kvdb_stats(db, &now);
	json_arr(j, "classes");
	for (unsigned c = 0; c < MPOOL_MCLASSES; c++) {
		const struct kvdb_io *a = &before.io[c], *z = &now.io[c];

		json_obj(j, NULL);
		json_str(j, "class", name[c]);
#define X(f) json_u64(j, #f, z->f - a->f);
		KVDB_IO_FIELDS(X)
#undef X
		json_end(j);
	}
	json_end(j);
	json_u64(j, "memory_bytes", now.memory_bytes);
	json_u64(j, "gate_wait_ns", now.gate_wait_ns - before.gate_wait_ns);
	json_u64(j, "stall_ns", now.stall_ns - before.stall_ns);
	json_u64(j, "scan_places", now.scan_places - before.scan_places);
	json_u64(j, "order_relocations", now.order_relocations - before.order_relocations);
	json_u64(j, "order_bytes", now.order_bytes - before.order_bytes);
	json_u64(j, "replayed", now.recovery.replayed);
}

static const char *get_settings(void)
{
	return settings;
}

static const struct engine kvdb_engine = {
	.name = "kvdb",
	.loses = "power or process: at most interval_ms, a prefix remains",
	.version = kvdb_version,
	.open = kvdb_engine_open,
	.close = kvdb_engine_close,
	.thread_begin = thread_begin,
	.thread_end = thread_end,
	.put = put,
	.write = write_all,
	.get = get,
	.unget = unget,
	.submit = submit,
	.reap = reap,
	.scan = scan,
	.drain = drain,
	.count = count,
	.report = report,
	.settings = get_settings,
};

int main(int argc, char **argv)
{
	return ycsb_main(argc, argv, &kvdb_engine);
}
