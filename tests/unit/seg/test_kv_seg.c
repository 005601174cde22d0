/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Many segments: what is asked of them all the time costs no walk over all of them (S5). */
#include "harness.h"

#include <pthread.h>

#include "kv_fresh.h"
#include "meta/mdc.h"
#include "compact/reloc.h"
#include "run/run.h"
#include "background/work.h"

static void walk_watched(struct kv_run *r,
			 void (*fn)(void *arg, struct kv_seg *s, uint64_t n, uint64_t bytes),
			 void *arg);

/* statistics walk the tables of runs under our eyes */
#define kv_run_segs walk_watched
#include "op/stats.c"
#include "base/stream.h"
#include "db/db.h"
#include "tree/tree.h"
#include "meta/upkeep.h"
#undef kv_run_segs

#define MANY	20000u		/* the table grows several times */

static char dir[256];
static struct kvdb *db;
static struct kv_seg *seg[MANY];

static void open_two(void)
{
	struct mpool_dev_spec dev[2] = { { .mclass = MPOOL_CAPACITY, .size = 512u << 20 },
					 { .mclass = MPOOL_STAGING, .size = 256u << 20 } };
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	struct kvdb_opts o = KVDB_OPTS_INIT;

	kv_fresh_dir(dir, sizeof(dir), "kv_seg");
	co.devs = dev;
	co.ndevs = 2;
	T_EQ(mpool_create(dir, &co), 0);
	T_EQ(kvdb_create(dir, NULL), 0);
	o.flags = KVDB_MANUAL;
	o.logs = 1;
	o.cache_bytes = 64u << 20;
	T_EQ(kvdb_open(dir, &o, &db), 0);
}

/* @n sealed ones, each with a reference of ours, on staging and on capacity by turns. */
static void make(unsigned n)
{
	for (unsigned i = 0; i < n; ) {
		unsigned k = n - i < 32 ? n - i : 32;

		T_EQ(kv_segs_alloc_moved(db, i / 32 % 2 ? MPOOL_STAGING : MPOOL_CAPACITY, true,
					 false, KV_BLOCK, &k, seg + i), 0);
		for (unsigned j = i; j < i + k; j++)
			kv_seg_close_cold(db, seg[j], 0);
		T_EQ(kv_segs_seal_moved(db, seg + i, k), 0);
		i += k;
	}
}

/* As a durable run that refers to it. */
static void refer(struct kv_seg *s, int by)
{
	uint32_t was = atomic_fetch_add(&s->sg_runs, (uint32_t)by);

	if (!was || !(was + (uint32_t)by))
		kv_seg_note(db, s);
}

struct sums {
	uint64_t su_staged, su_in_use;
	uint32_t su_watched;
};

/* What each of them counts for, as it was found by a walk before. */
static void add(void *arg, struct kv_seg *s)
{
	uint32_t state = atomic_load(&s->sg_state), runs = atomic_load(&s->sg_runs);
	struct sums *su = arg;

	if (s->sg_mclass == MPOOL_STAGING &&
	    (state == KV_SEG_OPEN || state == KV_SEG_FULL || runs))
		su->su_staged += s->sg_bytes;
	if ((state == KV_SEG_FULL || state == KV_SEG_SEALED) && runs && !atomic_load(&s->sg_pins))
		su->su_in_use += s->sg_bytes;
	su->su_watched += state != KV_SEG_SEALED || !s->sg_obj_sealed ||
			  (!runs && !atomic_load(&s->sg_pins));
}

static void check(void)
{
	struct sums su = { 0 };

	kv_segs_each(db, add, &su);
	T_EQ(kv_segs_staged(db), su.su_staged);
	T_EQ(kv_segs_in_use(db), su.su_in_use);
	T_EQ(kv_segs_watched(db), su.su_watched);
}

static void many_are_found_and_few_are_watched(void)
{
	uint32_t own;
	unsigned i;

	open_two();
	own = kv_segs_watched(db);
	make(MANY);
	for (i = 0; i < MANY; i++)
		refer(seg[i], 1);
	check();
	T_EQ(kv_segs_watched(db), own);
	T_EQ(kv_segs_count(db), own + MANY);
	for (i = 0; i < MANY; i++) {
		struct kv_seg *s = kv_seg_find(db, seg[i]->sg_id);

		T_OK(s == seg[i]);
		kv_seg_put(db, s);
	}
	/* the upper half is referred to no more; some are held by a checkpoint for a while */
	for (i = 0; i < MANY; i++) {
		if (i >= MANY / 2)
			refer(seg[i], -1);
		if (i % 8 == 0)
			kv_seg_pin(db, seg[i], 1);
	}
	check();
	T_EQ(kv_segs_watched(db), own + MANY / 2 - MANY / 16);
	for (i = 0; i < MANY; i++) {
		if (i % 8 == 0)
			kv_seg_pin(db, seg[i], -1);
		kv_seg_put(db, seg[i]);
	}
	check();
	T_EQ(kv_segs_watched(db), own + MANY / 2);
	while (kv_segs_step(db) > 0)
		;
	check();
	T_EQ(kv_segs_count(db), kv_segs_watched(db) + MANY / 2);
	for (i = 0; i < MANY / 2; i++)
		refer(seg[i], -1);
	while (kv_segs_step(db) > 0)
		;
	check();
	T_EQ(kv_segs_count(db), kv_segs_watched(db));
	kv_end(db, dir, 0);
}

static _Atomic(bool) stop;
static uint64_t seed;

static void *refers(void *arg)
{
	uint64_t rnd = seed + (uintptr_t)arg;

	while (!atomic_load(&stop)) {
		struct kv_seg *s = seg[t_rand(&rnd) % 8];

		refer(s, 1);
		refer(s, -1);
	}
	return NULL;
}

/* Each sees its own change, and the last one all of them. */
static void counts_are_right_whoever_was_last(void)
{
	pthread_t t[4];

	seed = t_seed();
	open_two();
	make(64);
	for (unsigned turn = 0; turn < 20; turn++) {
		atomic_store(&stop, false);
		for (uintptr_t i = 0; i < 4; i++)
			T_EQ(pthread_create(&t[i], NULL, refers, (void *)i), 0);
		for (unsigned i = 0; i < 200; i++) {
			kv_seg_pin(db, seg[i % 64], 1);
			kv_seg_pin(db, seg[i % 64], -1);
		}
		atomic_store(&stop, true);
		for (unsigned i = 0; i < 4; i++)
			pthread_join(t[i], NULL);
		check();
		refer(seg[turn], turn % 2 ? 1 : 2);
		kv_seg_pin(db, seg[turn / 2], turn % 2 ? -1 : 1);
		check();
	}
	for (unsigned i = 0; i < 64; i++) {
		if (i < 20)
			refer(seg[i], i % 2 ? -1 : -2);
		kv_seg_put(db, seg[i]);
	}
	check();
	while (kv_segs_step(db) > 0)
		;
	check();
	kv_end(db, dir, 0);
}

static void add_counted(void *arg, struct kv_seg *s)
{
	*(uint64_t *)arg += atomic_load(&s->sg_runs);
}

static void add_named(void *arg, struct kv_seg *s, uint64_t n, uint64_t bytes)
{
	(void)n;
	(void)bytes;
	T_OK(atomic_load(&s->sg_runs));
	++*(uint64_t *)arg;
}

/* A checkpoint lists what is counted: that is what the tables of the runs name, and no more. */
static void check_runs(void)
{
	uint64_t counted = 0, named = 0;

	for (unsigned i = 0; i < KVDB_KVS_MAX; i++) {
		struct kvdb_kvs *kvs = db->d_stores.sr_kvs[i];
		struct kv_tree *tr = kvs ? kv_tree_get(kvs) : NULL;

		for (uint32_t j = 0; tr && j < tr->tr_nrun; j++)
			kv_run_segs(tr->tr_run[j], add_named, &named);
		kv_tree_put(db, tr);
	}
	kv_segs_each(db, add_counted, &counted);
	T_EQ(counted, named);
}

/* By all that a database does to them. */
static void a_database_counts_its_segments(void)
{
	static char val[2000];
	struct kvdb_kvs *kvs[2];
	uint64_t rnd = t_seed();
	struct kvdb_opts o = KVDB_OPTS_INIT;

	open_two();
	T_EQ(kvdb_kvs_create(db, "a", NULL), 0);
	T_EQ(kvdb_kvs_create(db, "b", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "a", &kvs[0]), 0);
	T_EQ(kvdb_kvs_open(db, "b", &kvs[1]), 0);
	for (unsigned i = 0; i < 12; i++) {
		for (unsigned j = 0; j < 2000; j++) {
			uint32_t key = (uint32_t)(t_rand(&rnd) % 4000);

			memset(val, (int)key, sizeof(val));
			T_EQ(kvdb_put(kvs[j % 2], &key, sizeof(key), val, sizeof(val)), 0);
			if (j % 500 == 0)
				check();
		}
		T_EQ(kvdb_drain(db, i % 3 ? KVDB_WAIT_FLUSH : KVDB_WAIT_COMPACT), 0);
		check();
		if (i == 4)
			T_EQ(kvdb_checkpoint(db, "one", 0), 0);
		if (i == 8)
			T_EQ(kvdb_checkpoint_drop(db, "one"), 0);
		check();
		check_runs();
	}
	T_EQ(kvdb_checkpoint(db, "two", 0), 0);
	T_EQ(kvdb_kvs_drop(db, "b"), 0);
	check_runs();
	T_EQ(kvdb_drain(db, KVDB_WAIT_COMPACT), 0);
	check();
	T_EQ(kvdb_close(db), 0);
	o.flags = KVDB_MANUAL;
	T_EQ(kvdb_open(dir, &o, &db), 0);
	check();
	check_runs();
	T_EQ(kvdb_checkpoint_drop(db, "two"), 0);
	T_EQ(kvdb_drain(db, KVDB_WAIT_COMPACT), 0);
	check();
	kv_end(db, dir, 0);
}

/* However many: a step of upkeep deletes 64. */
static void what_a_compaction_freed_is_free_at_its_end(void)
{
	uint32_t own;

	open_two();
	while (kv_segs_step(db) > 0)
		;
	own = kv_segs_count(db);
	make(2000);
	for (unsigned i = 0; i < 2000; i++)
		kv_seg_put(db, seg[i]);
	T_EQ(kvdb_compact(db, KVDB_COMPACT_WAIT), 0);
	T_EQ(kv_segs_count(db), own);
	check();
	kv_end(db, dir, 0);
}

static unsigned walks;
static const char *to_drop;

static void walk_watched(struct kv_run *r,
			 void (*fn)(void *arg, struct kv_seg *s, uint64_t n, uint64_t bytes),
			 void *arg)
{
	bool is_free = !pthread_mutex_trylock(&db->d_stores.sr_lock);
	const char *name = to_drop;

	walks++;
	T_OK(is_free);
	if (is_free)
		pthread_mutex_unlock(&db->d_stores.sr_lock);
	to_drop = NULL;
	if (is_free && name)
		T_EQ(kvdb_kvs_drop(db, name), 0);
	kv_run_segs(r, fn, arg);
}

/* The flusher closes epochs meanwhile, and a store may go. */
static void statistics_walk_without_the_lock_of_the_stores(void)
{
	static const char *const name[2] = { "a", "b" };
	static char val[2000];
	struct kvdb_stats all, one;

	open_two();
	for (unsigned i = 0; i < 2; i++) {
		struct kvdb_kvs *kvs;

		T_EQ(kvdb_kvs_create(db, name[i], NULL), 0);
		T_EQ(kvdb_kvs_open(db, name[i], &kvs), 0);
		for (uint32_t key = 0; key < 100; key++)
			T_EQ(kvdb_put(kvs, &key, sizeof(key), val, sizeof(val)), 0);
	}
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	walks = 0;
	T_EQ(kvdb_stats(db, &all), 0);
	T_EQ(walks, 2);
	T_EQ(all.runs, 2);
	T_EQ(all.keys_estimate, 200);
	T_OK(all.live_value_bytes >= 200 * sizeof(val));
	/* the first store goes while it is looked at: all that it had is still there */
	to_drop = name[0];
	T_EQ(kvdb_stats(db, &one), 0);
	T_EQ(one.keys_estimate, all.keys_estimate);
	T_EQ(one.live_value_bytes, all.live_value_bytes);
	T_EQ(kvdb_stats(db, &one), 0);
	T_EQ(one.runs, 1);
	T_EQ(one.keys_estimate, 100);
	check();
	check_runs();
	kv_end(db, dir, 0);
}

int main(void)
{
	T_RUN(many_are_found_and_few_are_watched);
	T_RUN(counts_are_right_whoever_was_last);
	T_RUN(a_database_counts_its_segments);
	T_RUN(what_a_compaction_freed_is_free_at_its_end);
	T_RUN(statistics_walk_without_the_lock_of_the_stores);
	return t_done();
}
