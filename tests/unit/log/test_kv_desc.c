/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Room for the descriptors of epochs on a pool that has none left (E7): no threads. */
#include "harness.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "background/work.h"
#include "compact/merge.h"
#include "log/flush.h"
#include "kv_fresh.h"
#include "seg/reserve.h"

#define VLEN	(70u << 10)	/* a frame of its own; a segment has some 28 of them */
#define KEYS	6u
#define FILLERS	2048u
#define BOUND	100000000u	/* ns: of the loss, by default */

static char dir[256];
static struct kvdb *db;
static struct kvdb_kvs *kvs;
static struct mpool_obj *taken[FILLERS];
static unsigned ntaken;
static uint64_t ahead_ns;	/* of the machine's clock */

static uint64_t clock_now(void *arg)
{
	struct timespec ts;

	(void)arg;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec + ahead_ns;
}

static void clock_sleep(void *arg, uint64_t t)
{
	uint64_t now = clock_now(arg);

	ahead_ns += t > now ? t - now : 0;
	/* what no thread brings is waited for */
	if (ahead_ns > 600ull * 1000000000u)
		abort();
}

static const struct kvdb_clock later = { clock_now, clock_sleep, NULL, NULL };

static void db_open(void)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;

	o.flags = KVDB_MANUAL;
	o.logs = 1;
	o.cache_bytes = 64u << 20;
	o.clock = &later;
	T_EQ(kvdb_open(dir, &o, &db), 0);
}

static void open_fresh(void)
{
	kv_fresh(dir, sizeof(dir), "kv_desc", 160u << 20, 256u << 10);
	db_open();
	T_EQ(kvdb_kvs_create(db, "s", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
}

static void value(uint32_t key, uint8_t *val)
{
	uint64_t x = key, v;

	for (unsigned i = 0; i < VLEN; i += 8) {
		v = t_rand(&x);
		memcpy(val + i, &v, 8);
	}
}

static int put(uint32_t key)
{
	static uint8_t val[VLEN];

	value(key, val);
	return kvdb_put(kvs, &key, sizeof(key), val, VLEN);
}

static void holds(uint32_t key)
{
	static uint8_t want[VLEN], got[VLEN];
	size_t len;

	value(key, want);
	T_EQ(kvdb_get(kvs, &key, sizeof(key), got, VLEN, &len), 0);
	T_OK(len == VLEN && !memcmp(want, got, VLEN));
}

/* Another user has all of the pool, to the last block. */
static void take_all(void)
{
	struct mpool_alloc req = { .kind = MPOOL_MBLOCK, .mclass = MPOOL_CAPACITY,
				   .capacity = 128u << 10, .tag = 7, .flags = MPOOL_ALLOC_SPARE };

	for (; req.capacity >= 4096; req.capacity /= 2)
		while (ntaken < FILLERS && !mpool_alloc(db->d_mp, &req, 1, &taken[ntaken]))
			ntaken++;
	T_EQ(kv_segs_free_bytes(db), 0);
}

static void give_all(void)
{
	while (ntaken)
		mpool_obj_close(taken[--ntaken]);
}

static void poll_all(void)
{
	while (kvdb_poll(db) > 0)
		;
}

/* No log has a segment: the descriptor of an epoch with large values alone lies by itself. */
static void fill(void)
{
	open_fresh();
	T_EQ(put(0), 0);
	T_EQ(kvdb_sync(db), 0);
	poll_all();
	take_all();
}

static void each_epoch_ends(void)
{
	for (uint32_t k = 1; k < KEYS; k++) {
		uint64_t t0 = ahead_ns;

		T_EQ(put(k), 0);
		T_EQ(kvdb_sync(db), 0);
		T_OK(ahead_ns - t0 < BOUND);	/* no thread waited */
	}
}

static void all_are_there(void)
{
	T_EQ(kvdb_close(db), 0);
	db_open();
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	for (uint32_t k = 0; k < KEYS; k++)
		holds(k);
}

static void epochs_end_on_a_pool_without_room(void)
{
	fill();
	each_epoch_ends();
	give_all();
	all_are_there();
	kv_end(db, dir, 0);
}

/* Its end is far away. */
static void epochs_do_not_wait_for_a_merge(void)
{
	struct kv_job job;

	open_fresh();
	for (uint32_t k = 0; k < 6; k++) {
		T_EQ(kvdb_put(kvs, &k, 4, "v", 1), 0);
		T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	}
	T_EQ(kvdb_close(db), 0);
	db_open();
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	T_EQ(put(0), 0);
	T_EQ(kvdb_sync(db), 0);
	kv_flush_step(db);
	T_EQ(kv_merge_begin(db, kvs, &job), 1);
	take_all();
	each_epoch_ends();
	kv_merge_end(&job, -ECANCELED);
	give_all();
	all_are_there();
	kv_end(db, dir, 0);
}

/* What is refused is a write, never the end of an epoch. */
static void a_write_is_refused_before_its_epoch_has_no_room(void)
{
	uint32_t k = 1;
	int rc;

	fill();
	while (!(rc = put(k))) {
		T_EQ(kvdb_sync(db), 0);
		T_OK(++k < 100);
	}
	T_EQ(rc, -ENOSPC);
	T_EQ(kvdb_sync(db), 0);
	give_all();
	T_EQ(put(k), 0);
	T_EQ(kvdb_sync(db), 0);
	holds(k);
	kv_end(db, dir, 0);
}

int main(void)
{
	T_RUN(epochs_end_on_a_pool_without_room);
	T_RUN(epochs_do_not_wait_for_a_merge);
	T_RUN(a_write_is_refused_before_its_epoch_has_no_room);
	return t_done();
}
