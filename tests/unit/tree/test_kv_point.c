/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The point index on a real database: what it remembers is what the runs say, now,
 * whatever came into them since and wherever values went.
 */
#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "kv_clock.h"
#include "kv_fresh.h"
#include "mem/memtable.h"
#include "cache/pages.h"
#include "db/thread.h"
#include "base/hash.h"
#include "db/db.h"
#include "cache/slab.h"
#include "seg/seg.h"
#include "seg/value.h"
#include "run/run.h"
#include "tree/point.h"
#include "tree/tree.h"

#define VLEN	1000u
#define MIB	(1u << 20)
#define KEYS	2000u

static char dir[256];
static struct kvdb *db;
static struct kvdb_kvs *kvs;

/* Memory is small, so that images are let go of; the index has so many buckets. */
static void open_db(uint32_t flags, uint64_t buckets)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;

	o.flags = flags;
	o.logs = 1;
	o.cache_bytes = 64u << 20;
	o.interval_ms = KVDB_INTERVAL_NONE;
	o.clock = flags & KVDB_MANUAL ? &test_clock : NULL;
	T_EQ(kvdb_open(dir, &o, &db), 0);
	db->d_budget.b_point_bytes = buckets * sizeof(struct kv_point_bucket);
	kv_points_init(db);
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
}

static void fresh(uint32_t flags, uint64_t buckets)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;

	kv_fresh(dir, sizeof(dir), "kv_point", 512u << 20, 256u << 10);
	o.flags = KVDB_MANUAL;
	T_EQ(kvdb_open(dir, &o, &db), 0);
	T_EQ(kvdb_kvs_create(db, "s", NULL), 0);
	T_EQ(kvdb_close(db), 0);
	open_db(flags, buckets);
}

static void done(void)
{
	T_EQ(kvdb_close(db), 0);
	T_EQ(mpool_destroy(dir, NULL), 0);
	rmdir(dir);
}

static size_t key_of(uint32_t k, char *key)
{
	return (size_t)sprintf(key, "%08u-key", k);
}

static void value(uint32_t k, uint32_t version, uint8_t *val)
{
	uint64_t x = (uint64_t)version << 32 | k;

	memcpy(val, &x, 8);
	for (unsigned i = 8; i < VLEN; i += 8) {
		uint64_t v = t_rand(&x);

		memcpy(val + i, &v, 8);
	}
}

static void put(uint32_t k, uint32_t version)
{
	uint8_t val[VLEN];
	char key[32];

	value(k, version, val);
	T_EQ(kvdb_put(kvs, key, key_of(k, key), val, VLEN), 0);
}

static void put_all(uint32_t version)
{
	for (uint32_t k = 0; k < KEYS; k++)
		put(k, version);
}

/* The version that is found, or -errno. */
static int64_t get(uint32_t k)
{
	uint8_t want[VLEN], got[VLEN];
	uint64_t head;
	size_t len = 0;
	char key[32];
	int rc = kvdb_get(kvs, key, key_of(k, key), got, VLEN, &len);

	if (rc)
		return rc;
	memcpy(&head, got, 8);
	value(k, (uint32_t)(head >> 32), want);
	return len == VLEN && !memcmp(want, got, VLEN) ? (int64_t)(head >> 32) : -EILSEQ;
}

static void all_are(int64_t version)
{
	for (uint32_t k = 0; k < KEYS; k++) {
		int64_t v = get(k);

		if (v != version)
			T_FAIL("key %u: %lld, wanted %lld", k, (long long)v, (long long)version);
	}
}

static void flush(void)
{
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
}

static uint64_t hits(void)
{
	struct kvdb_stats st;

	T_EQ(kvdb_stats(db, &st), 0);
	return st.point_hits;
}

/* Each is found by a lookup, then where that one found it. */
static void remember(int64_t version)
{
	uint64_t before;

	all_are(version);
	before = hits();
	all_are(version);
	/* a few share a bucket with too many others */
	T_OK(hits() - before > KEYS * 9 / 10);
}

static void a_value_is_found_where_it_was(void)
{
	uint64_t before;

	fresh(KVDB_MANUAL, 4096);
	put_all(1);
	all_are(1);
	T_EQ(kv_points_bytes(db), 0);	/* nothing was found in a run */
	flush();
	remember(1);
	T_EQ(kv_points_bytes(db), 4096 * sizeof(struct kv_point_bucket));
	/* other runs with the same keys */
	before = hits();
	T_EQ(kvdb_compact(db, KVDB_COMPACT_WAIT), 0);
	all_are(1);
	T_OK(hits() - before > KEYS * 9 / 10);
	done();
}

static void what_comes_into_the_runs_is_seen(void)
{
	struct kvdb_bulk *b;
	uint8_t val[VLEN];
	char key[32];

	fresh(KVDB_MANUAL, 4096);
	put_all(1);
	flush();
	remember(1);
	put_all(2);
	all_are(2);		/* in the memtable */
	flush();
	remember(2);
	T_EQ(kvdb_bulk_open(kvs, 0, &b), 0);
	for (uint32_t k = 0; k < KEYS; k++) {
		value(k, 3, val);
		T_EQ(kvdb_bulk_add(b, key, key_of(k, key), val, VLEN), 0);
	}
	all_are(2);
	T_EQ(kvdb_bulk_finish(b), 0);
	all_are(3);
	for (uint32_t k = 0; k < KEYS; k++)
		T_EQ(kvdb_del(kvs, key, key_of(k, key)), 0);
	flush();
	all_are(-ENOENT);
	T_EQ(kvdb_compact(db, KVDB_COMPACT_WAIT), 0);
	all_are(-ENOENT);
	put_all(4);
	flush();
	remember(4);
	T_EQ(kvdb_range_del(kvs, NULL, 0, NULL, 0), 0);
	all_are(-ENOENT);
	flush();
	all_are(-ENOENT);
	T_EQ(kvdb_compact(db, KVDB_COMPACT_WAIT), 0);
	all_are(-ENOENT);
	done();
}

static void an_older_view_sees_what_it_saw(void)
{
	struct kvdb_txn *txn;
	uint8_t got[VLEN];
	uint64_t head;
	size_t len;
	char key[32];

	fresh(KVDB_MANUAL, 4096);
	put_all(1);
	flush();
	remember(1);
	T_EQ(kvdb_txn_begin(db, 0, &txn), 0);
	put_all(2);
	flush();
	remember(2);
	for (unsigned i = 0; i < 2; i++)
		for (uint32_t k = 0; k < KEYS; k++) {
			T_EQ(kvdb_txn_get(txn, kvs, key, key_of(k, key), got, VLEN, &len), 0);
			memcpy(&head, got, 8);
			T_EQ(head >> 32, 1);
		}
	kvdb_txn_abort(txn);
	all_are(2);
	done();
}

/* Some keys come anew, the others stay: all are found where they are now. */
static void a_flush_says_what_its_keys_have_become(void)
{
	uint64_t before;

	fresh(KVDB_MANUAL, 4096);
	put_all(1);
	flush();
	remember(1);
	for (uint32_t k = 0; k < KEYS; k += 4)
		put(k, 2);
	flush();
	before = hits();
	for (uint32_t k = 0; k < KEYS; k++)
		T_EQ(get(k), k % 4 ? 1 : 2);
	T_OK(hits() - before > KEYS * 9 / 10);
	/* what is no plain value any more is taken out */
	for (uint32_t k = 0; k < KEYS; k += 2) {
		char key[32];

		if (k % 4)
			T_EQ(kvdb_put(kvs, key, key_of(k, key), &k, sizeof(k)), 0);
		else
			T_EQ(kvdb_del(kvs, key, key_of(k, key)), 0);
	}
	flush();
	for (uint32_t k = 0; k < KEYS; k++)
		T_EQ(get(k), k % 2 ? 1 : k % 4 ? -EILSEQ : -ENOENT);
	done();
}

static void get_many(int64_t version)
{
	static uint8_t got[KEYS][VLEN];
	static struct kvdb_get g[KEYS];
	static char key[KEYS][32];
	uint8_t want[VLEN];

	for (uint32_t k = 0; k < KEYS; k++)
		g[k] = (struct kvdb_get){ .key = key[k], .klen = key_of(k, key[k]),
					  .buf = got[k], .size = VLEN };
	T_EQ(kvdb_get_multi(kvs, 0, g, KEYS), 0);
	for (uint32_t k = 0; k < KEYS; k++) {
		T_EQ(g[k].err, version ? 0 : -ENOENT);
		if (!version)
			continue;
		value(k, (uint32_t)version, want);
		T_EQ(g[k].vlen, VLEN);
		T_EQ(memcmp(got[k], want, VLEN), 0);
	}
}

static void many_gets_ask_and_remember(void)
{
	uint64_t before;

	fresh(KVDB_MANUAL, 4096);
	put_all(1);
	flush();
	get_many(1);
	before = hits();
	get_many(1);
	T_OK(hits() - before > KEYS * 9 / 10);
	put_all(2);
	get_many(2);
	flush();
	before = hits();
	get_many(2);
	T_OK(hits() - before > KEYS * 9 / 10);
	T_EQ(kvdb_range_del(kvs, NULL, 0, NULL, 0), 0);
	get_many(0);
	flush();
	get_many(0);
	T_EQ(kvdb_compact(db, KVDB_COMPACT_WAIT), 0);
	get_many(0);
	done();
}

/* A lookup that began before a flush, and ends behind it. */
static void who_is_late_adds_nothing(void)
{
	struct kv_tree *old;
	struct kv_thread *t;
	struct kv_ent e;
	char key[32];
	size_t klen = key_of(5, key);
	uint64_t hash = kv_hash(key, klen);

	fresh(KVDB_MANUAL, 4096);
	put_all(1);
	flush();
	remember(1);
	old = kv_tree_get(kvs);
	put(5, 2);
	flush();
	t = kv_enter();
	T_EQ(kv_run_lookup(db, old->tr_run[0], key, klen, hash, &e), 0);
	kv_point_add(db, old, key, klen, hash, &e);
	kv_exit(t);
	kv_tree_put(db, old);
	T_EQ(get(5), 2);
	done();
}

/* The neighbours of each key that goes stay, and with them the bytes of its segment. */
static void what_a_range_delete_took_does_not_come_back(void)
{
	char from[32], to[32];
	uint64_t before;

	fresh(KVDB_MANUAL, 4096);
	for (uint32_t k = 0; k < KEYS / 2; k++) {
		put(k, 1);
		put(k + KEYS / 2, 1);
	}
	flush();
	remember(1);
	T_EQ(kvdb_range_del(kvs, from, key_of(0, from), to, key_of(KEYS / 4, to)), 0);
	flush();
	T_EQ(kvdb_compact(db, KVDB_COMPACT_WAIT), 0);
	for (unsigned i = 0; i < 2; i++) {
		before = hits();
		for (uint32_t k = 0; k < KEYS; k++)
			T_EQ(get(k), k < KEYS / 4 ? -ENOENT : 1);
	}
	T_OK(hits() > before);	/* asked again: the merge took the range along */
	done();
}

static void a_store_that_was_dropped_is_forgotten(void)
{
	fresh(KVDB_MANUAL, 4096);
	put_all(1);
	flush();
	remember(1);
	T_EQ(kvdb_kvs_drop(db, "s"), 0);
	T_EQ(kvdb_kvs_create(db, "s", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	all_are(-ENOENT);
	put(0, 2);
	flush();
	for (uint32_t k = 1; k < KEYS; k++)
		T_EQ(get(k), -ENOENT);
	T_EQ(get(0), 2);
	done();
}

static void what_expires_is_not_remembered(void)
{
	uint8_t val[VLEN];
	char key[32];

	fresh(KVDB_MANUAL, 4096);
	for (uint32_t k = 0; k < KEYS; k++) {
		value(k, 1, val);
		T_EQ(kvdb_put_ttl(kvs, key, key_of(k, key), val, VLEN, 100), 0);
	}
	flush();
	all_are(1);
	all_are(1);
	now_ns += 101000000000u;
	all_are(-ENOENT);
	done();
}

/* Among keys of one bucket two have the same upper bits of the hash, soon. */
static void two_keys_of_one_tag_are_told_apart(void)
{
	static uint32_t key_at[1u << 24];
	uint32_t a = 0, b = 0;
	char key[32];

	for (uint32_t k = 1; !b; k++) {
		uint32_t *at = &key_at[kv_hash(key, key_of(k, key)) >> 40];

		if (*at) {
			a = *at;
			b = k;
		}
		*at = k;
	}
	fresh(KVDB_MANUAL, 1);
	put(a, 1);
	put(b, 2);
	flush();
	for (unsigned i = 0; i < 3; i++) {
		T_EQ(get(a), 1);
		T_EQ(get(a), 1);
		T_EQ(get(b), 2);
		T_EQ(get(b), 2);
	}
	T_OK(hits());
	done();
}

static void a_bucket_that_changes_is_not_believed(void)
{
	struct kv_point_bucket *pb;
	uint64_t before;

	fresh(KVDB_MANUAL, 4096);
	put_all(1);
	flush();
	remember(1);
	pb = atomic_load(&db->d_trees.te_points.po_bucket);
	for (unsigned i = 0; i < 4096; i++)
		atomic_fetch_add(&pb[i].pb_change, 1);
	before = hits();
	all_are(1);
	T_EQ(hits(), before);
	for (unsigned i = 0; i < 4096; i++)
		atomic_fetch_add(&pb[i].pb_change, 1);
	all_are(1);
	T_OK(hits() > before);
	done();
}

static struct kv_seg *segment_of(uint32_t k)
{
	struct kv_thread *t = kv_enter();
	struct kv_ent e;
	char key[32];

	T_EQ(kv_run_lookup(db, atomic_load(&kvs->k_tree)->tr_run[0], key, key_of(k, key),
			   kv_hash(key, key_of(k, key)), &e), 0);
	kv_exit(t);
	return e.e_seg;
}

static void bytes_that_went_are_not_found(void)
{
	struct kv_thread *t;
	struct kvdb_pin pin;
	struct kv_seg *s;
	uint8_t want[VLEN];
	uint64_t place, before;
	uint32_t life;
	char key[32];

	fresh(KVDB_MANUAL, 4096);
	put_all(1);
	flush();
	remember(1);
	s = segment_of(KEYS / 2);
	t = kv_enter();
	T_OK(kv_slab_place(db, &s->sg_image, &place, &life));
	T_OK(kv_slab_at(db, place, life));
	kv_exit(t);
	/* a pinned value stays where it is */
	before = hits();
	T_EQ(kvdb_get_pinned(kvs, key, key_of(KEYS / 2, key), &pin), 0);
	T_EQ(hits(), before + 1);
	T_OK(pin.priv[0]);
	kv_slab_drop_image(db, &s->sg_image);
	kv_retire_barrier();
	t = kv_enter();
	T_EQ(kv_slab_at(db, place, life), NULL);
	T_EQ(kv_slab_place(db, &s->sg_image, &place, &life), NULL);
	kv_exit(t);
	all_are(1);
	for (uint32_t version = 2; version < 30; version++) {
		put_all(version);
		flush();
	}
	value(KEYS / 2, 1, want);
	T_EQ(memcmp(pin.val, want, VLEN), 0);
	kvdb_unpin(&pin);
	all_are(29);
	done();
}

/* ---- threads --------------------------------------------------------------------- */

static _Atomic(bool) is_over;
static _Atomic(uint32_t) written[KEYS];

struct reader {
	pthread_t tid;
	uint64_t rnd;
	uint64_t wrong;
};

/* Never older than what was acknowledged before. */
static void *reader_main(void *arg)
{
	struct reader *r = arg;
	struct kvdb_pin pin;
	uint64_t head;
	char key[32];

	while (!atomic_load(&is_over)) {
		uint32_t k = (uint32_t)(t_rand(&r->rnd) % KEYS);
		int64_t least = atomic_load(&written[k]);

		r->wrong += get(k) < least;
		k = (uint32_t)(t_rand(&r->rnd) % KEYS);
		least = atomic_load(&written[k]);
		if (kvdb_get_pinned(kvs, key, key_of(k, key), &pin)) {
			r->wrong++;
			continue;
		}
		memcpy(&head, pin.val, 8);
		r->wrong += (uint32_t)head != k || (int64_t)(head >> 32) < least;
		kvdb_unpin(&pin);
	}
	return NULL;
}

/* Few buckets, all of which change all the time; images and segments come and go. */
static void readers_never_see_the_past(void)
{
	unsigned rounds = getenv("TEST_SHORT") ? 40 : 120;
	struct reader r[3] = { 0 };
	uint64_t rnd = 7;

	fresh(0, 256);
	put_all(1);
	for (uint32_t k = 0; k < KEYS; k++)
		atomic_store(&written[k], 1);
	for (unsigned i = 0; i < 3; i++) {
		r[i].rnd = i + 1;
		T_EQ(pthread_create(&r[i].tid, NULL, reader_main, &r[i]), 0);
	}
	for (uint32_t version = 2; version < rounds; version++) {
		for (unsigned i = 0; i < KEYS; i++) {
			uint32_t k = (uint32_t)(t_rand(&rnd) % KEYS);

			put(k, version);
			atomic_store(&written[k], version);
		}
		T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH | (version % 8 ? 0 : KVDB_WAIT_COMPACT)), 0);
	}
	atomic_store(&is_over, true);
	for (unsigned i = 0; i < 3; i++) {
		pthread_join(r[i].tid, NULL);
		T_EQ(r[i].wrong, 0);
	}
	T_OK(hits());
	for (uint32_t k = 0; k < KEYS; k++)
		T_EQ(get(k), atomic_load(&written[k]));
	done();
}

int main(void)
{
	T_RUN(a_value_is_found_where_it_was);
	T_RUN(what_comes_into_the_runs_is_seen);
	T_RUN(an_older_view_sees_what_it_saw);
	T_RUN(a_flush_says_what_its_keys_have_become);
	T_RUN(many_gets_ask_and_remember);
	T_RUN(who_is_late_adds_nothing);
	T_RUN(what_a_range_delete_took_does_not_come_back);
	T_RUN(a_store_that_was_dropped_is_forgotten);
	T_RUN(what_expires_is_not_remembered);
	T_RUN(two_keys_of_one_tag_are_told_apart);
	T_RUN(a_bucket_that_changes_is_not_believed);
	T_RUN(bytes_that_went_are_not_found);
	T_RUN(readers_never_see_the_past);
	return t_done();
}
