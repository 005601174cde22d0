/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Large batches (kvdb_write()) through the public API: how large they may be, what counts, turns.
 */
#include "kvdb_txn_help.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#define WRITERS	4u

static _Atomic(unsigned) refused;

static void *write_large(void *arg)
{
	struct kvdb_op *all = arg;

	refused += kvdb_write(kh_db, all, 15000, 0, NULL) != 0;
	return NULL;
}

/* @n puts of keys of eight bytes, with a value of @len, or (0) deletes. */
static struct kvdb_op *many(unsigned n, char (**keys)[12], size_t len)
{
	struct kvdb_op *all = calloc(n, sizeof(*all));

	*keys = calloc(n, sizeof(**keys));
	for (unsigned i = 0; i < n; i++) {
		snprintf((*keys)[i], sizeof((*keys)[i]), "%08u", i);
		all[i] = (struct kvdb_op){ .type = KVDB_OP_PUT, .kvs = i % 2 ? ka : kb,
					   .key = (*keys)[i], .klen = 8, .val = kh_want,
					   .size = len };
	}
	return all;
}

static void one_that_is_too_large_says_the_limit(void)
{
	enum { N = 60000 };
	struct kvdb_op *all;
	struct kvdb_txn *t;
	char (*keys)[12], key[16];
	unsigned n;

	fresh();
	all = many(N, &keys, 100);
	T_EQ(kvdb_write(kh_db, all, N, 0, NULL), -E2BIG);
	T_STREQ(kvdb_error_detail()->id, "MP0933");
	T_OK(strstr(kvdb_error_detail()->text, "may take"));
	T_EQ(kh_count(ka, 0) + kh_count(kb, 0), 0);
	/* in parts (T15); several at once take turns */
	for (n = N; kvdb_write(kh_db, all, n, 0, NULL); n -= N / 12)
		T_OK(n > N / 6);
	T_OK(n >= 15000);
	T_EQ(kh_count(ka, 0) + kh_count(kb, 0), n);
	/* what transactions have is not there for it */
	t = begin(0);
	for (unsigned i = 0; i < 10000; i++) {
		snprintf(key, sizeof(key), "t%u", i);
		T_EQ(kvdb_txn_put(t, kb, key, strlen(key), kh_want, 100), 0);
	}
	T_EQ(kvdb_write(kh_db, all, n, 0, NULL), -E2BIG);
	/* a small one always has room */
	T_EQ(kvdb_write(kh_db, all, 500, 0, NULL), 0);
	kvdb_txn_abort(t);
	T_EQ(kvdb_write(kh_db, all, n, 0, NULL), 0);
	kh_close();
	kh_open();
	ka = kh_kvs("a");
	kb = kh_kvs("b");
	T_EQ(kh_count(ka, 0) + kh_count(kb, 0), n);
	kh_close();
	free(all);
	free(keys);
}

/* The thread whose transaction a large one waits for writes a large one itself. */
static void one_that_waits_for_a_key_has_no_turn(void)
{
	struct kvdb_op *all, *others;
	char (*keys)[12], (*other_keys)[12];
	struct kvdb_txn *t;
	pthread_t th;

	fresh();
	refused = 0;
	all = many(15000, &keys, 100);
	others = many(15000, &other_keys, 100);
	for (unsigned i = 0; i < 15000; i++)
		other_keys[i][0] = 'o';
	t = begin(0);
	T_EQ(tput(t, ka, keys[1001], "txn"), 0);
	pthread_create(&th, NULL, write_large, all);
	usleep(100000);
	T_EQ(kvdb_write(kh_db, others, 15000, 0, NULL), 0);
	T_EQ(refused, 0);
	T_EQ(kvdb_txn_commit(t, 0, NULL), 0);
	pthread_join(th, NULL);
	T_EQ(refused, 0);
	T_EQ(kh_count(ka, 0) + kh_count(kb, 0), 30000);
	kh_close();
	free(all);
	free(keys);
	free(others);
	free(other_keys);
}

/* With it, what is coming would leave memtables less than an eighth of their budget (T16). */
static void the_table_of_its_keys_counts(void)
{
	enum { N = 65537, FULL = 1450 };
	struct kvdb_opts o = kh_opts();
	struct kvdb_op *all;
	char (*keys)[12], key[1000] = "", name[8];
	struct kvdb_kvs *k;
	unsigned n = N;

	kh_make(1024 * MIB, 0);
	o.cache_bytes = 81 * MIB;
	T_EQ(kvdb_open(th_pool, &o, &kh_db), 0);
	ka = kb = kh_kvs("a");
	/* an eighth is there before it */
	for (unsigned i = 0; i < FULL; i++) {
		snprintf(name, sizeof(name), "s%u", i % 8);
		if (i < 8)
			T_EQ(kvdb_kvs_create(kh_db, name, NULL), 0);
		T_EQ(kvdb_kvs_open(kh_db, name, &k), 0);
		snprintf(key, sizeof(key), "%u", i);
		T_EQ(kvdb_put(k, key, sizeof(key), kh_want, 100), 0);
	}
	all = many(N, &keys, 0);
	T_EQ(kvdb_write(kh_db, all, n, 0, NULL), -E2BIG);
	T_STREQ(kvdb_error_detail()->id, "MP0933");
	while (kvdb_write(kh_db, all, n, 0, NULL))
		T_OK((n -= 500) > N / 2);
	T_EQ(kh_count(ka, 0), n);
	kh_close();
	free(all);
	free(keys);
}

/* In the least memory, and more stores than have room beside the batch: it ends (T16). */
static void the_largest_fits_into_a_small_database(void)
{
	enum { N = 4000, STORES = 12 };
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct kvdb_kvs *k[STORES];
	char (*keys)[12], name[8];
	struct kvdb_op *all;
	unsigned n = N;
	uint64_t found = 0;

	kh_make(192 * MIB, 0);
	o.flags = KVDB_SMALL;
	o.cache_bytes = 4 * MIB;
	T_EQ(kvdb_open(th_pool, &o, &kh_db), 0);
	for (unsigned i = 0; i < STORES; i++) {
		snprintf(name, sizeof(name), "s%u", i);
		k[i] = kh_kvs(name);
	}
	all = many(N, &keys, 8);
	for (unsigned i = 0; i < N; i++)
		all[i].kvs = k[i % STORES];
	while (kvdb_write(kh_db, all, n, 0, NULL))
		T_OK((n -= 20) > 1024);
	T_EQ(kvdb_put(k[0], "k", 1, "v", 1), 0);
	for (unsigned i = 0; i < STORES; i++)
		found += kh_count(k[i], 0);
	T_EQ(found, n + 1);
	kh_close();
	free(all);
	free(keys);
}

static void large_ones_take_turns(void)
{
	pthread_t th[WRITERS];
	struct kvdb_op *all;
	char (*keys)[12];

	fresh();
	refused = 0;
	all = many(15000, &keys, 100);
	for (unsigned r = 0; r < 2; r++) {
		for (unsigned i = 0; i < WRITERS; i++)
			pthread_create(&th[i], NULL, write_large, all);
		for (unsigned i = 0; i < WRITERS; i++)
			pthread_join(th[i], NULL);
	}
	T_EQ(refused, 0);
	T_EQ(kh_count(ka, 0) + kh_count(kb, 0), 15000);
	kh_close();
	free(all);
	free(keys);
}

static void it_deletes_so_many_ranges_and_no_more(void)
{
	enum { N = KVDB_TXN_RANGES_MAX + 1 };
	struct kvdb_op *all = calloc(N, sizeof(*all));
	char (*keys)[12] = calloc(N, sizeof(*keys));

	fresh();
	for (unsigned i = 0; i < N; i++) {
		snprintf(keys[i], sizeof(keys[i]), "%08u", i * 2);
		all[i] = (struct kvdb_op){ .type = KVDB_OP_RANGE_DEL, .kvs = ka, .key = keys[i],
					   .klen = 8, .val = "9", .size = 1 };
	}
	/* each meets the one before it: these are one */
	T_EQ(kvdb_write(kh_db, all, N, 0, NULL), 0);
	for (unsigned i = 0; i < N; i++) {
		all[i].klen = 7;
		all[i].val = keys[i];
		all[i].size = 8;
	}
	for (unsigned i = 0; i < N; i++)
		snprintf(keys[i], sizeof(keys[i]), "%07u~", i);
	T_EQ(kvdb_write(kh_db, all, N, 0, NULL), -E2BIG);
	T_STREQ(kvdb_error_detail()->id, "MP0933");
	T_OK(strstr(kvdb_error_detail()->text, "ranges"));
	T_EQ(kvdb_write(kh_db, all, N - 1, 0, NULL), 0);
	kh_close();
	free(all);
	free(keys);
}

/* Whatever they become: what is joined takes memory until the end (T16). */
static void ranges_that_are_joined_count(void)
{
	enum { N = 120000 };
	struct kvdb_op *all = calloc(N, sizeof(*all));
	char (*keys)[12] = calloc(N + 1, sizeof(*keys));
	struct kvdb_txn *t;
	unsigned n = 0;
	int err = 0;

	fresh();
	for (unsigned i = 0; i <= N; i++)
		snprintf(keys[i], sizeof(keys[i]), "%08u", i);
	for (unsigned i = 0; i < N; i++)
		all[i] = (struct kvdb_op){ .type = KVDB_OP_RANGE_DEL, .kvs = ka, .key = keys[i],
					   .klen = 8, .val = keys[i + 1], .size = 8 };
	T_EQ(kvdb_write(kh_db, all, N, 0, NULL), -E2BIG);
	T_STREQ(kvdb_error_detail()->id, "MP0933");
	T_EQ(kvdb_write(kh_db, all, N / 8, 0, NULL), 0);
	/* the end of the first is in all that it is joined with */
	memset(kh_want, 'z', KVDB_KEY_MAX);
	for (unsigned i = 0; i < N / 8; i++)
		all[i] = (struct kvdb_op){ .type = KVDB_OP_RANGE_DEL, .kvs = ka,
					   .key = keys[N / 8 - i], .klen = 8,
					   .val = i ? keys[N / 8 - i + 1] : (char *)kh_want,
					   .size = i ? 8 : KVDB_KEY_MAX };
	T_EQ(kvdb_write(kh_db, all, N / 8, 0, NULL), -E2BIG);
	T_STREQ(kvdb_error_detail()->id, "MP0933");
	T_EQ(kvdb_write(kh_db, all, N / 80, 0, NULL), 0);
	t = begin(0);
	for (; n < N && !err; n++)
		err = kvdb_txn_range_del(t, kb, keys[n], 8, keys[n + 1], 8);
	T_EQ(err, -EFBIG);
	T_STREQ(kvdb_error_detail()->id, "MP0925");
	/* it goes on without it */
	T_EQ(kvdb_txn_commit(t, 0, NULL), 0);
	kh_close();
	free(all);
	free(keys);
}

int main(void)
{
	T_RUN(one_that_is_too_large_says_the_limit);
	T_RUN(one_that_waits_for_a_key_has_no_turn);
	T_RUN(the_table_of_its_keys_counts);
	T_RUN(the_largest_fits_into_a_small_database);
	T_RUN(large_ones_take_turns);
	T_RUN(it_deletes_so_many_ranges_and_no_more);
	T_RUN(ranges_that_are_joined_count);
	return t_done();
}
