/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * RocksDB as an engine of the comparison, through its C API. Leveled, tuned for
 * loading: large write buffers, as many background jobs as cores, dynamic level
 * sizes, Bloom filters. The write-ahead log is written and flushed each interval
 * (manual_wal_flush), so that its loss bound is that of the others, or each put
 * is synced; puts that wait share a sync. With
 * BENCH_ROCKSDB=blob in the environment values live in blob files.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rocksdb/c.h>

#include "engine.h"

#ifndef ROCKSDB_VERSION
#define ROCKSDB_VERSION "unknown"
#endif

static rocksdb_t *db;
static rocksdb_options_t *opts;
static rocksdb_block_based_table_options_t *table;
static rocksdb_cache_t *cache;
static rocksdb_writeoptions_t *wo;
static rocksdb_readoptions_t *ro;
static char settings[400];

static void check(const char *what, char *err)
{
	if (err)
		die("%s: %s", what, err);
}

static void options_make(const struct engine_opts *o, bool has_blobs)
{
	int jobs = (int)sysconf(_SC_NPROCESSORS_ONLN);
	/* four of them are to fit a tight limit, beside the cache */
	uint64_t buffer = o->cache_bytes / 16 < 64u << 20 ? o->cache_bytes / 16 : 64u << 20;
	char log[80] = "WriteOptions.sync";

	if (!o->is_sync)
		snprintf(log, sizeof(log), "manual_wal_flush, FlushWAL(sync) each %u ms",
			 o->interval_ms);
	opts = rocksdb_options_create();
	rocksdb_options_set_create_if_missing(opts, 1);
	rocksdb_options_set_compression(opts, rocksdb_no_compression);
	rocksdb_options_set_write_buffer_size(opts, buffer);
	rocksdb_options_set_max_write_buffer_number(opts, 4);
	rocksdb_options_set_max_background_jobs(opts, jobs);
	rocksdb_options_set_level_compaction_dynamic_level_bytes(opts, 1);
	rocksdb_options_set_bytes_per_sync(opts, 1u << 20);
	rocksdb_options_set_max_open_files(opts, -1);
	rocksdb_options_set_manual_wal_flush(opts, !o->is_sync);
	table = rocksdb_block_based_options_create();
	cache = rocksdb_cache_create_lru(o->cache_bytes);
	rocksdb_block_based_options_set_block_cache(table, cache);
	rocksdb_block_based_options_set_block_size(table, 4096);
	rocksdb_block_based_options_set_filter_policy(table,
						      rocksdb_filterpolicy_create_bloom_full(10));
	rocksdb_options_set_block_based_table_factory(opts, table);
	if (has_blobs) {
		rocksdb_options_set_enable_blob_files(opts, 1);
		rocksdb_options_set_min_blob_size(opts, 256);
		rocksdb_options_set_enable_blob_gc(opts, 1);
		rocksdb_options_set_blob_cache(opts, cache);
	}
	snprintf(settings, sizeof(settings),
		 "leveled write_buffer=%lluM x4 background_jobs=%d dynamic_level_bytes block=4K "
		 "bloom=10 lru_cache=%llu bytes_per_sync=1M no compression, %s, buffered%s",
		 (unsigned long long)buffer >> 20, jobs, (unsigned long long)o->cache_bytes, log,
		 has_blobs ? ", blob files with gc, min_blob_size=256" : "");
}

static void engine_open(const struct engine_opts *o)
{
	const char *kind = getenv("BENCH_ROCKSDB");
	char *err = NULL;

	options_make(o, kind && !strcmp(kind, "blob"));
	wo = rocksdb_writeoptions_create();
	rocksdb_writeoptions_set_sync(wo, o->is_sync);
	ro = rocksdb_readoptions_create();
	db = rocksdb_open(opts, o->dir, &err);
	check("open", err);
}

static void engine_close(void)
{
	rocksdb_close(db);
	rocksdb_readoptions_destroy(ro);
	rocksdb_writeoptions_destroy(wo);
	rocksdb_options_destroy(opts);
	rocksdb_block_based_options_destroy(table);
	rocksdb_cache_destroy(cache);
}

static void *thread_begin(void)
{
	return NULL;
}

static void thread_end(void *t)
{
	(void)t;
}

static void put(void *t, const void *key, size_t klen, const void *val, size_t vlen)
{
	char *err = NULL;

	(void)t;
	rocksdb_put(db, wo, key, klen, val, vlen, &err);
	check("put", err);
}

static void write_all(void *t, const struct engine_op *puts, unsigned n)
{
	static __thread rocksdb_writebatch_t *batch;
	char *err = NULL;

	(void)t;
	if (!batch)
		batch = rocksdb_writebatch_create();
	for (unsigned i = 0; i < n; i++)
		rocksdb_writebatch_put(batch, puts[i].key, puts[i].klen, puts[i].val,
				       puts[i].vlen);
	rocksdb_write(db, wo, batch, &err);
	check("write", err);
	rocksdb_writebatch_clear(batch);
}

static bool get(void *t, const void *key, size_t klen, struct engine_view *v)
{
	char *err = NULL;
	rocksdb_pinnableslice_t *s = rocksdb_get_pinned(db, ro, key, klen, &err);

	(void)t;
	check("get", err);
	if (!s)
		return false;
	v->val = rocksdb_pinnableslice_value(s, &v->vlen);
	v->priv[0] = s;
	return true;
}

static void unget(void *t, struct engine_view *v)
{
	(void)t;
	rocksdb_pinnableslice_destroy(v->priv[0]);
}

static void scan(void *t, const void *key, size_t klen, uint64_t n, engine_scan_fn *fn, void *arg)
{
	rocksdb_iterator_t *it = rocksdb_create_iterator(db, ro);
	char *err = NULL;

	(void)t;
	for (rocksdb_iter_seek(it, key, klen); n-- && rocksdb_iter_valid(it);
	     rocksdb_iter_next(it)) {
		size_t kl, vl;
		const char *k = rocksdb_iter_key(it, &kl), *v = rocksdb_iter_value(it, &vl);

		if (!fn(arg, k, kl, v, vl))
			break;
	}
	rocksdb_iter_get_error(it, &err);
	check("scan", err);
	rocksdb_iter_destroy(it);
}

static void sync_log(void)
{
	char *err = NULL;

	rocksdb_flush_wal(db, 1, &err);
	check("flush of the log", err);
}

static bool is_busy(void)
{
	static const char *const name[] = {
		"rocksdb.mem-table-flush-pending", "rocksdb.num-running-flushes",
		"rocksdb.compaction-pending", "rocksdb.num-running-compactions",
	};
	uint64_t n;

	for (unsigned i = 0; i < sizeof(name) / sizeof(name[0]); i++)
		if (!rocksdb_property_int(db, name[i], &n) && n)
			return true;
	return false;
}

static void drain(void)
{
	rocksdb_flushoptions_t *fo = rocksdb_flushoptions_create();
	struct timespec nap = { .tv_nsec = 5000000 };
	char *err = NULL;

	rocksdb_flush(db, fo, &err);
	check("flush", err);
	rocksdb_flushoptions_destroy(fo);
	sync_log();
	/* a compaction may be chosen a moment after the last one ended */
	for (unsigned idle = 0; idle < 4; idle = is_busy() ? 0 : idle + 1)
		nanosleep(&nap, NULL);
}

static const char *version(void)
{
	return ROCKSDB_VERSION;
}

static const char *get_settings(void)
{
	return settings;
}

static const struct engine rocksdb_engine = {
	.name = "rocksdb",
	.loses = "power or process: about interval_ms, a prefix remains",
	.version = version,
	.open = engine_open,
	.close = engine_close,
	.thread_begin = thread_begin,
	.thread_end = thread_end,
	.put = put,
	.write = write_all,
	.get = get,
	.unget = unget,
	.scan = scan,
	.sync = sync_log,
	.drain = drain,
	.settings = get_settings,
};

int main(int argc, char **argv)
{
	return ycsb_main(argc, argv, &rocksdb_engine);
}
