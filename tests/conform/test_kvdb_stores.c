/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Stores: their names and options, how they come and go, and threads that use them meanwhile. */
#include "kvdb_fails.h"

/* ---- stores ---------------------------------------------------------------------------- */

static void store_names(void)
{
	static const char *const bad[] = { "", ".", ".a", "-a", "a b", "a/b", "\xc3\xa9",
					   "12345678901234567890123456789012", "a\n" };
	static const char *const good[] = { "a", "Z", "0", "_", "a.b-c_d",
					    "1234567890123456789012345678901" };
	char names[8][KVDB_NAME_MAX + 1];
	struct kvdb_kvs *k = (struct kvdb_kvs *)untouched, *again;
	unsigned i, j, seen = 0;

	kh_fresh(POOL, 0);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		FAILS(kvdb_kvs_create(kh_db, bad[i], NULL), -EINVAL);
		FAILS(kvdb_kvs_open(kh_db, bad[i], &k), -ENOENT);
	}
	FAILS(kvdb_kvs_create(kh_db, NULL, NULL), -EINVAL);
	T_OK(k == (struct kvdb_kvs *)untouched);
	T_EQ(kvdb_kvs_list(kh_db, names, 8), 0);
	for (i = 0; i < 6; i++) {
		T_EQ(kvdb_kvs_create(kh_db, good[i], NULL), 0);
		FAILS(kvdb_kvs_create(kh_db, good[i], NULL), -EEXIST);
		T_EQ(kvdb_kvs_open(kh_db, good[i], &k), 0);
		T_EQ(kvdb_kvs_open(kh_db, good[i], &again), 0);
		T_OK(k == again);
	}
	T_EQ(kvdb_kvs_list(kh_db, names, 8), 6);
	for (i = 0; i < 6; i++)
		for (j = 0; j < 6; j++)
			seen += !strcmp(names[i], good[j]);
	T_EQ(seen, 6);
	memset(names, 'x', sizeof(names));
	T_EQ(kvdb_kvs_list(kh_db, names, 2), 6);
	T_EQ(names[2][0], 'x');
	T_EQ(kvdb_kvs_list(kh_db, NULL, 0), 6);
	FAILS(kvdb_kvs_drop(kh_db, "none"), -ENOENT);
	T_EQ(kvdb_kvs_drop(kh_db, "a"), 0);
	FAILS(kvdb_kvs_drop(kh_db, "a"), -ENOENT);
	FAILS(kvdb_kvs_open(kh_db, "a", &k), -ENOENT);
	T_EQ(kvdb_kvs_list(kh_db, NULL, 0), 5);
	end();
}

static const char name_a[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
static const char name_b[] = "bbbbbbbbbbbbbbbbbbbbbbbbbbb";

struct renamer {
	int rounds, rc;
	_Atomic(int) is_done;
};

static void *rename_often(void *arg)
{
	struct renamer *r = arg;

	for (; r->rounds-- && !r->rc; )
		r->rc = kvdb_kvs_rename(kh_db, r->rounds % 2 ? name_a : name_b,
					r->rounds % 2 ? name_b : name_a);
	r->is_done = 1;
	return NULL;
}

static void a_store_has_one_of_its_names(void)
{
	struct renamer r = { .rounds = getenv("TEST_SHORT") ? 500 : 2000 };
	struct kvdb_kvs_info in;
	struct kvdb_kvs *k;
	pthread_t t;
	int odd = 0;

	kh_fresh(POOL, 0);
	k = kh_kvs(name_a);
	T_EQ(pthread_create(&t, NULL, rename_often, &r), 0);
	while (!r.is_done && !odd)
		odd = kvdb_kvs_info(k, &in) || (strcmp(in.name, name_a) && strcmp(in.name, name_b));
	pthread_join(t, NULL);
	T_EQ(r.rc, 0);
	if (odd)
		T_FAIL("a store named '%s'", in.name);
	end();
}

static void options_of_a_store(void)
{
	struct kvdb_kvs_opts o = KVDB_KVS_OPTS_INIT;
	struct kvdb_kvs_info in;
	struct kvdb_kvs *k;

	kh_fresh(POOL, 0);
	o.pfx_len = 12;
	T_EQ(kvdb_kvs_create(kh_db, "p", &o), 0);
	k = kh_kvs("p");
	memset(&in, 'x', sizeof(in));
	T_EQ(kvdb_kvs_info(k, &in), 0);
	T_EQ(strcmp(in.name, "p"), 0);
	T_EQ(in.pfx_len, 12);
	T_EQ(in.ttl_s, 0);
	T_EQ(in.keys_estimate, 0);
	T_EQ(kh_put_str(k, "key", "v"), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	kh_close();
	kh_open();
	T_EQ(kvdb_kvs_info(kh_kvs("p"), &in), 0);
	T_EQ(in.pfx_len, 12);
	T_EQ(in.runs, 1);
	T_EQ(in.keys_estimate, 1);
	T_OK(in.key_bytes > 0);
	T_EQ(kvdb_kvs_info(kh_kvs("other"), &in), 0);
	T_EQ(in.pfx_len, 0);
	o.pfx_len = KVDB_KEY_MAX + 1;
	FAILS(kvdb_kvs_create(kh_db, "q", &o), -EINVAL);
	o.pfx_len = 0;
	o.reserved[7] = 1;
	FAILS(kvdb_kvs_create(kh_db, "q", &o), -EINVAL);
	o.reserved[7] = 0;
	o.size--;
	FAILS(kvdb_kvs_create(kh_db, "q", &o), -EINVAL);
	o.size++;
	o.policy = KVDB_POLICY_CAPACITY_ONLY + 1;
	FAILS(kvdb_kvs_create(kh_db, "q", &o), -EINVAL);
	o.policy = 0;
	FAILS(kvdb_kvs_set(k = kh_kvs("p"), &o, 0), -EINVAL);
	FAILS(kvdb_kvs_set(k, &o, 0x80), -EINVAL);
	FAILS(kvdb_kvs_set(k, NULL, KVDB_KVS_TTL), -EINVAL);
	T_EQ(kvdb_kvs_list(kh_db, NULL, 0), 2);
	end();
}

static void compression_is_an_option_that_may_change(void)
{
	struct kvdb_kvs_opts o = KVDB_KVS_OPTS_INIT;
	struct kvdb_kvs_info in;

	kh_fresh(POOL, 0);
	o.compress = KVDB_COMPRESS_ZSTD + 1;
	FAILS(kvdb_kvs_create(kh_db, "q", &o), -EINVAL);
	FAILS(kvdb_kvs_set(kh_kvs("p"), &o, KVDB_KVS_COMPRESS), -EINVAL);
	T_EQ(kvdb_kvs_list(kh_db, NULL, 0), 1);
	o.compress = KVDB_COMPRESS_LZ4;
	T_EQ(kvdb_kvs_create(kh_db, "q", &o), 0);
	o.compress = KVDB_COMPRESS_ZSTD;
	T_EQ(kvdb_kvs_set(kh_kvs("p"), &o, KVDB_KVS_COMPRESS), 0);
	kh_close();
	kh_open();
	T_EQ(kvdb_kvs_info(kh_kvs("q"), &in), 0);
	T_EQ(in.compress, KVDB_COMPRESS_LZ4);
	T_EQ(kvdb_kvs_info(kh_kvs("p"), &in), 0);
	T_EQ(in.compress, KVDB_COMPRESS_ZSTD);
	o.compress = KVDB_COMPRESS_NONE;
	T_EQ(kvdb_kvs_set(kh_kvs("p"), &o, KVDB_KVS_COMPRESS), 0);
	T_EQ(kvdb_kvs_info(kh_kvs("p"), &in), 0);
	T_EQ(in.compress, KVDB_COMPRESS_NONE);
	end();
}

static void a_store_with_cursors_is_not_dropped(void)
{
	struct kvdb_cursor *cur;
	struct kvdb_kvs *kvs;

	kh_fresh(POOL, 0);
	kvs = kh_kvs("s");
	T_EQ(kh_put_str(kvs, "k", "v"), 0);
	T_EQ(kvdb_cursor_open(kvs, 0, NULL, 0, &cur), 0);
	FAILS(kvdb_kvs_drop(kh_db, "s"), -EBUSY);
	T_OK(kh_holds_str(kvs, "k", "v"));
	T_EQ(kvdb_cursor_next(cur, NULL, NULL, NULL, NULL), 0);
	kvdb_cursor_close(cur);
	T_EQ(kvdb_kvs_drop(kh_db, "s"), 0);
	end();
}

static void the_handle_of_a_dropped_store_takes_nothing(void)
{
	struct kvdb_kvs_opts ko = KVDB_KVS_OPTS_INIT;
	struct kvdb_kvs_info in;
	struct kvdb_cursor *cur;
	struct kvdb_bulk *b;
	struct kvdb_txn *txn;
	struct kvdb_kvs *kvs;
	char buf[8];
	size_t len;

	kh_fresh(POOL, 0);
	kvs = kh_kvs("s");
	T_EQ(kh_put_str(kvs, "k", "v"), 0);
	T_EQ(kvdb_kvs_drop(kh_db, "s"), 0);
	FAILS(kvdb_put(kvs, "k", 1, "w", 1), -ENOENT);
	FAILS(kvdb_put_ttl(kvs, "k", 1, "w", 1, 60), -ENOENT);
	FAILS(kvdb_del(kvs, "k", 1), -ENOENT);
	FAILS(kvdb_prefix_del(kvs, "k", 1), -ENOENT);
	FAILS(kvdb_range_del(kvs, NULL, 0, NULL, 0), -ENOENT);
	FAILS(kvdb_update(kvs, "k", 1, keep, NULL), -ENOENT);
	FAILS(kvdb_get(kvs, "k", 1, buf, sizeof(buf), &len), -ENOENT);
	FAILS(kvdb_bulk_open(kvs, 0, &b), -ENOENT);
	FAILS(kvdb_kvs_set(kvs, &ko, KVDB_KVS_TTL), -ENOENT);
	T_EQ(kvdb_kvs_compact(kvs, KVDB_COMPACT_WAIT), 0);
	T_EQ(kvdb_kvs_info(kvs, &in), 0);
	T_EQ(kvdb_cursor_open(kvs, 0, NULL, 0, &cur), 0);
	T_EQ(kvdb_cursor_next(cur, NULL, NULL, NULL, NULL), -ENOENT);
	kvdb_cursor_close(cur);
	T_EQ(kvdb_txn_begin(kh_db, 0, &txn), 0);
	FAILS(kvdb_txn_put(txn, kvs, "k", 1, "w", 1), -ENOENT);
	FAILS(kvdb_txn_get(txn, kvs, "k", 1, buf, sizeof(buf), &len), -ENOENT);
	kvdb_txn_abort(txn);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	end();
}

/* ---- stores and what was acknowledged before ----------------------------------------------- */

static int store_drop(void)
{
	return kvdb_kvs_drop(kh_db, "old");
}

static int store_rename(void)
{
	return kvdb_kvs_rename(kh_db, "old", "new");
}

static int store_create(void)
{
	return kvdb_kvs_create(kh_db, "new", NULL);
}

static int store_set(void)
{
	struct kvdb_kvs_opts o = KVDB_KVS_OPTS_INIT;

	o.ttl_s = 7;
	return kvdb_kvs_set(kh_kvs("old"), &o, KVDB_KVS_TTL);
}

static int checkpoint_drop(void)
{
	return kvdb_checkpoint_drop(kh_db, "c");
}

static int (*const changes[])(void) = { store_drop, store_rename, store_create, store_set,
					checkpoint_drop };
static unsigned change;

static void put_then_change(void)
{
	T_EQ(kh_put_str(kh_kvs("s"), "k", "v"), 0);
	T_EQ(changes[change](), 0);
}

/* A program that copies a store and drops it must not lose both: a crash takes a suffix. */
static void what_was_acknowledged_before_a_change_stays_with_it(void)
{
	for (change = 0; change < sizeof(changes) / sizeof(changes[0]); change++) {
		kh_fresh(POOL, 0);
		kh_kvs("s");
		kh_kvs("old");
		T_EQ(kvdb_checkpoint(kh_db, "c", 0), 0);
		kh_close();
		t_die_in(kh_open_unbounded, put_then_change);
		kh_open();
		T_OK(kh_holds_str(kh_kvs("s"), "k", "v"));
		end();
	}
}

static void there_are_so_many_stores_and_no_more(void)
{
	char name[16];

	kh_fresh(256 * MIB, 0);
	for (unsigned i = 0; i < KVDB_KVS_MAX; i++) {
		snprintf(name, sizeof(name), "s%u", i);
		T_EQ(kvdb_kvs_create(kh_db, name, NULL), 0);
	}
	FAILS(kvdb_kvs_create(kh_db, "more", NULL), -EDQUOT);
	T_STREQ(kvdb_error_detail()->id, "MP0990");
	T_EQ(kh_put_str(kh_kvs("s255"), "k", "v"), 0);
	kh_close();
	kh_open();
	FAILS(kvdb_kvs_create(kh_db, "more", NULL), -EDQUOT);
	T_EQ(kvdb_kvs_drop(kh_db, "s0"), 0);
	T_EQ(kvdb_kvs_create(kh_db, "more", NULL), 0);
	T_OK(kh_holds_str(kh_kvs("s255"), "k", "v"));
	kh_close();
	th_clean();
}

static void stores_come_and_go_without_end(void)
{
	struct kvdb_kvs *first = NULL, *k;
	char val[8];
	size_t len;

	kh_fresh(256 * MIB, 0);
	T_EQ(kh_put_str(kh_kvs("stays"), "k", "v"), 0);
	for (unsigned i = 0; i < 2 * KVDB_KVS_MAX; i++) {
		T_EQ(kvdb_kvs_create(kh_db, "goes", NULL), 0);
		T_EQ(kvdb_kvs_open(kh_db, "goes", &k), 0);
		T_EQ(kvdb_put(k, "k", 1, &i, sizeof(i)), 0);
		first = first ? first : k;
		T_EQ(kvdb_kvs_drop(kh_db, "goes"), 0);
	}
	FAILS(kvdb_get(first, "k", 1, val, sizeof(val), &len), -ENOENT);
	FAILS(kvdb_put(first, "k", 1, "v", 1), -ENOENT);
	T_OK(kh_holds_str(kh_kvs("stays"), "k", "v"));
	kh_close();
	th_clean();
}

/*
 * Memtables of many stores are written out together, each with a write of its own: a close that
 * has no more time does not wait for all of those that it began with.
 */
static void a_close_is_not_as_long_as_the_stores_are_many(void)
{
	enum { N = 40, IN_TIME = 25 };
	struct mpool_open_opts mo = MPOOL_OPEN_OPTS_INIT;
	struct kvdb_opts o = kh_opts();
	struct kvdb_stats st;
	char name[16];

	kh_fresh(POOL, 0);
	for (unsigned i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "s%u", i);
		T_EQ(kvdb_kvs_create(kh_db, name, NULL), 0);
	}
	kh_close();
	mo.dev = "all:lat=60ms";
	o.pool = &mo;
	o.threads = 1;
	th_again();
	T_EQ(kvdb_open(th_pool, &o, &kh_db), 0);
	for (unsigned i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "s%u", i);
		T_EQ(kh_put_str(kh_kvs(name), "k", "v"), 0);
	}
	kh_close();
	kh_open();
	T_EQ(kvdb_stats(kh_db, &st), 0);
	printf("# %llu of %u were left to the log\n", (unsigned long long)st.recovery.replayed, N);
	T_OK(st.recovery.replayed >= N - IN_TIME);
	for (unsigned i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "s%u", i);
		T_OK(kh_holds_str(kh_kvs(name), "k", "v"));
	}
	kh_close();
	th_clean();
}

static uint64_t read_key_bytes(void)
{
	struct kvdb_stats st;

	T_EQ(kvdb_stats(kh_db, &st), 0);
	return st.io[MPOOL_CAPACITY].read_key_bytes;
}

/* A look at how much of a store lives takes 48 pages of each run: 4 s of this device here. */
static void a_close_waits_for_no_estimate(void)
{
	enum { RUNS = 3, KEYS = 9000 };
	struct mpool_open_opts mo = MPOOL_OPEN_OPTS_INIT;
	struct kvdb_opts o = kh_opts();
	struct timespec from, to;
	uint64_t had;
	char key[40];

	kh_fresh(POOL, 0);
	for (unsigned i = 0; i < RUNS * KEYS; i++) {
		snprintf(key, sizeof(key), "a key of some length %08u", i);
		T_EQ(kh_put_str(kh_kvs("s"), key, "v"), 0);
		if (i % KEYS == KEYS - 1)
			T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	}
	kh_close();
	mo.dev = "all:lat=30ms";
	o.pool = &mo;
	th_again();
	T_EQ(kvdb_open(th_pool, &o, &kh_db), 0);
	had = read_key_bytes();
	while (read_key_bytes() < had + 2 * 4096)
		usleep(1000);
	clock_gettime(CLOCK_MONOTONIC, &from);
	kh_close();
	clock_gettime(CLOCK_MONOTONIC, &to);
	printf("# the close took %.2f s\n", (double)(to.tv_sec - from.tv_sec) +
	       (double)(to.tv_nsec - from.tv_nsec) / 1e9);
	T_OK(to.tv_sec - from.tv_sec < 2);
	th_clean();
}

int main(void)
{
	T_RUN(store_names);
	T_RUN(a_store_has_one_of_its_names);
	T_RUN(options_of_a_store);
	T_RUN(compression_is_an_option_that_may_change);
	T_RUN(a_store_with_cursors_is_not_dropped);
	T_RUN(the_handle_of_a_dropped_store_takes_nothing);
	KH_RUN_MODES(what_was_acknowledged_before_a_change_stays_with_it);
	T_RUN(there_are_so_many_stores_and_no_more);
	T_RUN(stores_come_and_go_without_end);
	TH_RUN_FILES(a_close_is_not_as_long_as_the_stores_are_many);
	TH_RUN_FILES(a_close_waits_for_no_estimate);
	th_clean();
	return t_done();
}
