/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The database against schedules that once lost something: opens at every fill
 * of the metadata container, epochs of very many segments, records of sealed
 * segments that are missed, drains beside writers, stores that are made while
 * others are flushed.
 */
#include "db/db.h"
#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "log/flush.h"
#include "kv_fresh.h"
#include "meta/edit.h"
#include "meta/mdc.h"
#include "compact/reloc.h"
#include "seg/value.h"
#include "run/run.h"
#include "tree/tree.h"
#include "meta/upkeep.h"
#include "op/store.h"

static char dir[256];

static void make_db(uint64_t bytes, uint64_t seg_bytes)
{
	kv_fresh(dir, sizeof(dir), "kv_review", bytes, seg_bytes);
}

static void drop_db(void)
{
	T_EQ(mpool_destroy(dir, NULL), 0);
	rmdir(dir);
}

static void opts(struct kvdb_opts *o, unsigned flags)
{
	*o = (struct kvdb_opts)KVDB_OPTS_INIT;
	o->flags = flags;
	o->logs = 1;
	o->cache_bytes = 64u << 20;
}

/* Every open adds to the container; some open meets every distance from its end. */
static void open_works_at_every_fill_of_the_container(void)
{
	static const char val[1000];
	struct kvdb_opts o;
	struct kvdb_kvs *kvs;
	struct kvdb *db;
	int i, err;

	make_db(64u << 20, 0);
	opts(&o, KVDB_MANUAL);
	/* a value keeps its segment: the record of an incarnation has parts */
	T_EQ(kvdb_open(dir, &o, &db), 0);
	T_EQ(kvdb_kvs_create(db, "keep", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "keep", &kvs), 0);
	T_EQ(kvdb_put(kvs, "k", 1, val, sizeof(val)), 0);
	T_EQ(kvdb_close(db), 0);
	for (i = 0; i < 600; i++) {
		err = kvdb_open(dir, &o, &db);
		if (err)
			T_FAIL("open %d: %d %s", i, err, kvdb_error_detail()->text);
		if (i % 7 == 0)
			T_EQ(kvdb_kvs_create(db, "s", NULL), 0);
		if (i % 7 == 3)
			T_EQ(kvdb_kvs_drop(db, "s"), 0);
		T_EQ(kvdb_close(db), 0);
	}
	drop_db();
}

/* A process that runs @fn dies; the @n values that it wrote are there afterwards. */
static void reads_after(void (*fn)(void), uint64_t pool_bytes, uint32_t n)
{
	static char val[5000];
	struct kvdb_opts o;
	struct kvdb_kvs *kvs;
	struct kvdb *db;
	size_t len;
	pid_t pid;
	int st;

	make_db(pool_bytes, 64u << 10);
	pid = fork();
	if (!pid)
		fn();
	T_EQ(waitpid(pid, &st, 0), pid);
	T_EQ(st, 0);
	opts(&o, KVDB_MANUAL);
	T_EQ(kvdb_open(dir, &o, &db), 0);
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	for (uint32_t i = 0; i < n; i++)
		T_EQ(kvdb_get(kvs, &i, sizeof(i), val, sizeof(val), &len), 0);
	T_EQ(kvdb_close(db), 0);
	drop_db();
}

#define LOG_LIMIT (4ull << 20)

/* What it finds in the logs, it leaves there: a quarter of what they may hold more. */
static void log_a_quarter(void)
{
	static char val[1000];
	struct kvdb_opts o;
	struct kvdb_kvs *kvs;
	struct kvdb *db;

	opts(&o, KVDB_MANUAL);
	o.log_bytes = LOG_LIMIT;
	if (kvdb_open(dir, &o, &db) || (kvdb_kvs_open(db, "s", &kvs) &&
	    (kvdb_kvs_create(db, "s", NULL) || kvdb_kvs_open(db, "s", &kvs))))
		_exit(1);
	for (uint32_t i = 0; i < LOG_LIMIT / 4 / sizeof(val); i++)
		if (kvdb_put(kvs, &i, sizeof(i), val, sizeof(val)))
			_exit(2);
	_exit(kvdb_sync(db) ? 3 : 0);
}

/* Else every process that is killed leaves the next one more to replay. */
static void logs_are_bounded_over_many_deaths(void)
{
	struct kvdb_stats st;
	struct kvdb_opts o;
	struct kvdb *db;
	pid_t pid;
	int i, rc;

	make_db(256ull << 20, 64u << 10);
	opts(&o, KVDB_RDONLY);
	for (i = 0; i < 12; i++) {
		pid = fork();
		if (!pid)
			log_a_quarter();
		T_EQ(waitpid(pid, &rc, 0), pid);
		T_EQ(rc, 0);
		T_EQ(kvdb_open(dir, &o, &db), 0);
		T_EQ(kvdb_stats(db, &st), 0);
		T_EQ(kvdb_close(db), 0);
		T_OK(st.recovery.replayed);
		/* it was stopped when it was over, and may have been just below at the start */
		T_OK(st.recovery.bytes < LOG_LIMIT + LOG_LIMIT / 2);
	}
	drop_db();
}

#define LARGE 13500u	/* records, three in a segment */
#define LARGE_BYTES 16000u
#define LARGE_SEGS 4096u	/* names of more are longer than a segment */

static void fill_large(void)
{
	static char val[LARGE_BYTES];
	struct kvdb_stats st;
	struct kvdb_opts o;
	struct kvdb_kvs *kvs;
	struct kvdb *db;
	uint32_t i;

	opts(&o, KVDB_MANUAL);
	o.log_bytes = 2ull << 30;
	o.cache_bytes = 1ull << 30;
	o.interval_ms = KVDB_INTERVAL_NONE;
	if (kvdb_open(dir, &o, &db) || kvdb_kvs_create(db, "s", NULL) ||
	    kvdb_kvs_open(db, "s", &kvs))
		_exit(1);
	for (i = 0; i < LARGE; i++)
		if (kvdb_put(kvs, &i, sizeof(i), val, sizeof(val)))
			_exit(2);
	if (kvdb_stats(db, &st) || st.segments <= LARGE_SEGS)
		_exit(4);
	if (kvdb_sync(db))
		_exit(3);
	_exit(0);
}

static void epoch_of_many_segments_is_durable(void)
{
	reads_after(fill_large, 1ull << 30, LARGE);
}

#define SEALED 40u	/* values, in several segments */

/* The record of what was sealed finds no memory; the next step must not seal it again. */
static void seal_unrecorded(void)
{
	static char val[5000];
	struct kvdb_opts o;
	struct kvdb_kvs *kvs;
	struct kvdb *db;
	uint32_t i;

	opts(&o, KVDB_MANUAL);
	if (kvdb_open(dir, &o, &db) || kvdb_kvs_create(db, "s", NULL) ||
	    kvdb_kvs_open(db, "s", &kvs))
		_exit(1);
	for (i = 0; i < SEALED; i++)
		if (kvdb_put(kvs, &i, sizeof(i), val, sizeof(val)))
			_exit(2);
	if (kvdb_sync(db))
		_exit(3);
	db->d_mdc->m_buf.mb_err = -ENOMEM;
	if (kv_segs_seal_now(db) != -ENOMEM)
		_exit(4);
	if (kv_segs_seal_now(db) || kv_fault(db))
		_exit(5);
	_exit(0);
}

static void a_segment_is_sealed_once_whatever_becomes_of_its_record(void)
{
	reads_after(seal_unrecorded, 64u << 20, SEALED);
}

static void *make_store(void *arg)
{
	return (void *)(intptr_t)kvdb_kvs_create(arg, "late", NULL);
}

/* The maker has read its horizon and waits for the container; meanwhile others flush. */
static void segments_wait_for_a_store_that_is_made(void)
{
	struct timespec nap = { .tv_nsec = 20000000 };
	struct kvdb_opts o;
	struct kvdb_kvs *kvs;
	struct kvdb *db;
	pthread_t th;
	uint64_t before, least;
	void *rc;
	int i;

	make_db(64u << 20, 0);
	opts(&o, KVDB_MANUAL);
	T_EQ(kvdb_open(dir, &o, &db), 0);
	T_EQ(kvdb_kvs_create(db, "s", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	T_EQ(kvdb_put(kvs, "a", 1, "a", 1), 0);
	T_EQ(kvdb_sync(db), 0);
	before = atomic_load(&db->d_epochs.ep_durable);
	pthread_mutex_lock(&db->d_mdc->m_lock);
	T_EQ(pthread_create(&th, NULL, make_store, db), 0);
	for (i = 0; i < 10; i++)
		nanosleep(&nap, NULL);
	T_EQ(kvdb_put(kvs, "b", 1, "b", 1), 0);
	T_EQ(kvdb_sync(db), 0);
	T_OK(atomic_load(&db->d_epochs.ep_durable) > before);
	atomic_store(&kvs->k_horizon, atomic_load(&db->d_epochs.ep_durable));	/* a flush */
	least = kv_min_horizon(db);
	pthread_mutex_unlock(&db->d_mdc->m_lock);
	pthread_join(th, &rc);
	T_EQ((intptr_t)rc, 0);
	atomic_store(&kvs->k_horizon, 0);
	T_EQ(kvdb_close(db), 0);
	drop_db();
	T_OK(least <= before);
}

/* R1: the writer that gave birth to the epoch stands before the gate is set. */
static void second_writer_sets_the_gate(void)
{
	struct kvdb_opts o;
	struct kvdb_kvs *kvs;
	struct kvdb *db;
	uint64_t e;

	make_db(64u << 20, 0);
	opts(&o, KVDB_MANUAL);
	T_EQ(kvdb_open(dir, &o, &db), 0);
	T_EQ(kvdb_kvs_create(db, "s", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	e = atomic_load(&db->d_epochs.ep_open);
	T_EQ(atomic_load(&db->d_flusher->fl_gate_ns), UINT64_MAX);
	atomic_store(&db->d_logs->ls_birth[e % 4], kv_now(db));
	T_EQ(kvdb_put(kvs, "a", 1, "a", 1), 0);
	T_OK(atomic_load(&db->d_flusher->fl_gate_ns) != UINT64_MAX);
	T_EQ(kvdb_close(db), 0);
	drop_db();
}

static void note_result(void *arg, int err)
{
	*(int *)arg = err;
}

/* E5: a waiter for an epoch that was durable before the failure is told so, and no other. */
static void what_was_durable_before_a_failure_stays_so(void)
{
	int told[2] = { 1, 1 };
	struct kvdb_opts o;
	struct kvdb_kvs *kvs;
	struct kvdb *db;
	uint64_t safe;

	for (unsigned i = 0; i < 2; i++) {
		make_db(64u << 20, 0);
		opts(&o, i ? 0 : KVDB_MANUAL);
		o.interval_ms = KVDB_INTERVAL_NONE;
		T_EQ(kvdb_open(dir, &o, &db), 0);
		T_EQ(kvdb_kvs_create(db, "s", NULL), 0);
		T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
		T_EQ(kvdb_put(kvs, "a", 1, "a", 1), 0);
		safe = kvdb_ticket(db);
		T_EQ(kvdb_sync(db), 0);
		T_EQ(kvdb_put(kvs, "b", 1, "b", 1), 0);
		T_EQ(kv_fail(db, -EIO, "a test"), -EIO);
		T_EQ(kv_wait_durable(db, safe), 0);
		T_EQ(kvdb_wait_durable(db, kvdb_ticket(db)), -EIO);
		T_EQ(kvdb_on_durable(db, safe, note_result, &told[0]), 0);
		T_EQ(kvdb_on_durable(db, kvdb_ticket(db), note_result, &told[1]), 0);
		T_EQ(told[0], 0);
		T_EQ(told[1], -EIO);
		T_EQ(kvdb_sync(db), -EIO);
		T_EQ(kvdb_close(db), -EROFS);
		drop_db();
	}
}

#define CUT_BLOCKS 70u

/* The container is written anew; what needs an appended record for that is any option. */
static void compact_container(struct kvdb *db)
{
	struct kv_props p = { .pr_val = { [KV_PROP_TTL] = 60 } };
	uint64_t used, before, cap;

	if (kv_mdc_kvs_add(db, 1, "s", 0, &p) || mpool_mdc_space(db->d_mdc->m_log, &used, &cap))
		_exit(6);
	do {
		before = used;
		if (kv_mdc_kvs_prop(db, 1, &p, KV_PROP_BIT(KV_PROP_TTL)) ||
		    mpool_mdc_space(db->d_mdc->m_log, &used, &cap))
			_exit(7);
	} while (used > before);
}

/* What kv_mdc_edit() does, up to the commit, while another thread fills the container. */
static void edit_beside_compaction(struct kvdb *db, struct kv_edit *ed)
{
	struct kv_run_desc *d = kv_run_desc(ed->ed_add[0]);
	struct mpool_op *op = calloc(d->rd_n, sizeof(*op));
	bool is_announced;

	if (!op || kv_mdc_announce(db->d_mdc, ed, &is_announced) || !is_announced)
		_exit(8);
	compact_container(db);
	for (uint32_t i = 0; i < d->rd_n; i++)
		op[i] = (struct mpool_op){ .type = MPOOL_OP_COMMIT,
					   .obj = kv_run_obj(ed->ed_add[0], i),
					   .length = (d->rd_kb[i].kd_len + 4095ull) & ~4095ull };
	_exit(mpool_batch(db->d_mp, op, d->rd_n) ? 9 : 0);
}

/* Commits the blocks of a large run, dies before the edit: its store does not exist. */
static void cut_edit(bool is_compacted)
{
	struct kv_edit ed = { .ed_kvs = 77 };
	struct kv_ent e = { .e_kind = KV_ENT_INLINE, .e_seq = 1 };
	struct kv_run_build *rb;
	struct kvdb_opts o;
	struct kvdb *db;
	uint8_t key[512] = { 0 };
	struct kv_run *run;
	uint32_t i;

	opts(&o, KVDB_MANUAL);
	if (kvdb_open(dir, &o, &db))
		_exit(1);
	db->d_budget.b_kblock_bytes = 256u << 10;
	if (kv_run_build_open(db, 77, 1, true, &rb))
		_exit(2);
	e.e_key = key;
	e.e_klen = sizeof(key);
	e.e_val = key;
	e.e_vlen = KV_INLINE_MAX;
	e.e_vcrc = mpool_crc32c(0, key, KV_INLINE_MAX);
	for (i = 0; i < CUT_BLOCKS << 10; i++) {
		uint32_t be = __builtin_bswap32(i);

		/* no common prefixes: pages fill with keys */
		memcpy(key, &be, 4);
		for (unsigned j = 4; j < sizeof(key); j++)
			key[j] = (uint8_t)(i * 2654435761u >> j % 24);
		if (kv_run_build_add(rb, &e))
			_exit(3);
	}
	if (kv_run_build_finish(rb, &run) || kv_run_desc(run)->rd_n < CUT_BLOCKS)
		_exit(4);
	ed.ed_add = &run;
	ed.ed_nadd = 1;
	if (is_compacted)
		edit_beside_compaction(db, &ed);
	_exit(kv_mdc_edit(db, &ed) == -ENOENT ? 0 : 5);
}

static void cut_edit_is_collected(bool is_compacted)
{
	struct mpool_obj_info oi[4];
	struct kvdb_opts o;
	struct kvdb *db;
	uint64_t after = 0;
	unsigned n = 0;
	pid_t pid;
	int st;

	make_db(256u << 20, 0);
	pid = fork();
	if (!pid)
		cut_edit(is_compacted);
	T_EQ(waitpid(pid, &st, 0), pid);
	T_EQ(st, 0);
	opts(&o, KVDB_MANUAL);
	T_EQ(kvdb_open(dir, &o, &db), 0);
	for (; mpool_objects(db->d_mp, after, db->d_ident.id_tag, oi, 1) == 1; after = oi[0].id)
		n += oi[0].kind == MPOOL_MBLOCK;
	T_EQ(n, 0);
	T_EQ(kvdb_close(db), 0);
	drop_db();
}

#define SMALL_CUT 70u	/* more than an open takes for what one crash leaves */

/* The same with a key for each of many edits, that threads are at together. */
static void cut_small_edits(void)
{
	struct kv_ent e = { .e_key = (const uint8_t *)"k", .e_klen = 1,
			    .e_kind = KV_ENT_INLINE, .e_seq = 1,
			    .e_val = (const uint8_t *)"v", .e_vlen = 1,
			    .e_vcrc = mpool_crc32c(0, "v", 1) };
	struct kv_edit ed = { .ed_kvs = 1, .ed_nadd = 1 };
	struct kv_run_build *rb;
	struct kvdb_opts o;
	struct kvdb *db;
	struct kv_run *run;

	opts(&o, KVDB_MANUAL);
	/* of a store that is dropped meanwhile no edit counts */
	if (kvdb_open(dir, &o, &db) || kvdb_kvs_create(db, "gone", NULL) ||
	    kvdb_kvs_drop(db, "gone"))
		_exit(1);
	ed.ed_add = &run;
	for (uint32_t i = 0; i < SMALL_CUT; i++) {
		if (kv_run_build_open(db, 1, 1, true, &rb) || kv_run_build_add(rb, &e) ||
		    kv_run_build_finish(rb, &run))
			_exit(2);
		if (kv_mdc_edit(db, &ed) != -ENOENT)
			_exit(3);
	}
	_exit(0);
}

static void many_cut_edits_of_small_runs_are_collected(void)
{
	struct mpool_obj_info oi;
	struct kvdb_opts o;
	struct kvdb *db;
	uint64_t after = 0;
	unsigned n = 0;
	pid_t pid;
	int st;

	make_db(64u << 20, 0);
	pid = fork();
	if (!pid)
		cut_small_edits();
	T_EQ(waitpid(pid, &st, 0), pid);
	T_EQ(st, 0);
	opts(&o, KVDB_MANUAL);
	T_EQ(kvdb_open(dir, &o, &db), 0);
	for (; mpool_objects(db->d_mp, after, db->d_ident.id_tag, &oi, 1) == 1; after = oi.id)
		n += oi.kind == MPOOL_MBLOCK;
	T_EQ(n, 0);
	T_EQ(kvdb_close(db), 0);
	drop_db();
}

static void cut_edit_of_a_large_run_is_collected(void)
{
	cut_edit_is_collected(false);
}

static void compaction_of_the_container_keeps_what_was_announced(void)
{
	cut_edit_is_collected(true);
}

static struct kvdb_kvs *busy_kvs;
static int busy_stop, busy_err;

static void *busy_writer(void *arg)
{
	static const char val[100000];
	uint64_t i, base = (uintptr_t)arg << 32;

	for (i = 0; !__atomic_load_n(&busy_stop, __ATOMIC_RELAXED); i++) {
		uint64_t key = base + i % 1000;
		int err = kvdb_put(busy_kvs, &key, sizeof(key), val, i % 2 ? 6000 : 100);

		if (err)
			__atomic_store_n(&busy_err, err, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void drain_beside_writers_keeps_the_database_alive(void)
{
	pthread_t th[2];
	struct kvdb_opts o;
	struct kvdb *db;
	uintptr_t i;
	int err = 0;

	make_db(512u << 20, 0);
	opts(&o, 0);
	busy_stop = busy_err = 0;
	T_EQ(kvdb_open(dir, &o, &db), 0);
	T_EQ(kvdb_kvs_create(db, "s", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "s", &busy_kvs), 0);
	for (i = 0; i < 2; i++)
		T_EQ(pthread_create(&th[i], NULL, busy_writer, (void *)i), 0);
	for (i = 0; i < 100 && !err; i++)
		err = kvdb_drain(db, KVDB_WAIT_FLUSH);
	__atomic_store_n(&busy_stop, 1, __ATOMIC_RELAXED);
	pthread_join(th[0], NULL);
	pthread_join(th[1], NULL);
	if (err)
		printf("# drain %d: %s\n", (int)i, kvdb_error_detail()->text);
	T_EQ(err, 0);
	T_EQ(busy_err, 0);
	T_EQ(kvdb_close(db), 0);
	drop_db();
}

static _Atomic(bool) is_made;

/* Of a database. */
static void *make_stores(void *arg)
{
	struct kvdb *db = arg;
	const struct kv_props props = { .pr_unknown = 0 };
	struct kvdb_kvs *k;

	for (unsigned int i = 0; i < 50000; i++) {
		if (kv_kvs_new(db, 1000, "z", 0, &props, &k))
			abort();
		pthread_mutex_lock(&db->d_stores.sr_lock);
		db->d_stores.sr_kvs[k->k_slot] = NULL;
		db->d_stores.sr_n--;
		pthread_mutex_unlock(&db->d_stores.sr_lock);
		kv_kvs_free(db, k);
	}
	atomic_store(&is_made, true);
	return NULL;
}

/* T5: a thread that finds a new store may write to it, before its maker goes on. */
static void a_store_is_counted_before_its_lock_is_free(void)
{
	struct kvdb_kvs *k = NULL, *last;
	uint64_t gen = 0, was;
	unsigned int bad = 0;
	struct kvdb_opts o;
	pthread_t thread;
	struct kvdb *db;

	make_db(64u << 20, 64u << 10);
	opts(&o, KVDB_MANUAL);
	T_EQ(kvdb_open(dir, &o, &db), 0);
	atomic_store(&is_made, false);
	T_EQ(pthread_create(&thread, NULL, make_stores, db), 0);
	while (!atomic_load(&is_made)) {
		if (pthread_mutex_trylock(&db->d_stores.sr_lock))
			continue;
		last = k;
		was = gen;
		k = db->d_stores.sr_kvs[0];
		gen = atomic_load(&db->d_trees.te_gen);
		pthread_mutex_unlock(&db->d_stores.sr_lock);
		bad += k && !last && gen == was;
		/* the other one is to get the lock, too */
		for (unsigned int i = 0; i < 50; i++)
			kv_cpu_pause();
	}
	pthread_join(thread, NULL);
	T_EQ(bad, 0);
	T_EQ(kvdb_close(db), 0);
	drop_db();
}

int main(void)
{
	T_RUN(open_works_at_every_fill_of_the_container);
	T_RUN(logs_are_bounded_over_many_deaths);
	T_RUN(epoch_of_many_segments_is_durable);
	T_RUN(a_segment_is_sealed_once_whatever_becomes_of_its_record);
	T_RUN(segments_wait_for_a_store_that_is_made);
	T_RUN(a_store_is_counted_before_its_lock_is_free);
	T_RUN(second_writer_sets_the_gate);
	T_RUN(what_was_durable_before_a_failure_stays_so);
	T_RUN(many_cut_edits_of_small_runs_are_collected);
	T_RUN(cut_edit_of_a_large_run_is_collected);
	T_RUN(compaction_of_the_container_keeps_what_was_announced);
	T_RUN(drain_beside_writers_keeps_the_database_alive);
	return t_done();
}
