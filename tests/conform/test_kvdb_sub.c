/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Sub-stores: names, their numbers and the keys behind them, while threads make them, over
 * reopens, and after drops.
 */
#include <endian.h>
#include <pthread.h>

#include "kvdb_help.h"

#define POOL	(256 * MIB)
#define SUBS	300u
#define THREADS 4u

static struct kvdb_kvs *sub_store(struct kvdb *db, uint64_t ttl)
{
	struct kvdb_kvs_opts o = KVDB_KVS_OPTS_INIT;
	struct kvdb_kvs *kvs;

	o.pfx_len = KVDB_SUB_LEN;
	o.ttl_s = ttl;
	T_EQ(kvdb_kvs_create(db, ttl ? "ttl" : "subs", &o), 0);
	T_EQ(kvdb_kvs_open(db, ttl ? "ttl" : "subs", &kvs), 0);
	return kvs;
}

static uint32_t number(const uint8_t p[KVDB_SUB_LEN])
{
	uint32_t n;

	memcpy(&n, p, sizeof(n));
	return be32toh(n);
}

/* A name, and its length. */
static size_t name_of(unsigned i, char name[32])
{
	return (size_t)snprintf(name, 32, "table %u", i);
}

static uint32_t open_sub(struct kvdb_kvs *kvs, unsigned i, unsigned flags)
{
	uint8_t p[KVDB_SUB_LEN];
	char name[32];

	T_EQ(kvdb_sub_open(kvs, name, name_of(i, name), flags, p), 0);
	return number(p);
}

static int drop_sub(struct kvdb_kvs *kvs, unsigned i)
{
	char name[32];

	return kvdb_sub_drop(kvs, name, name_of(i, name));
}

static void put(struct kvdb_kvs *kvs, uint32_t sub, unsigned key)
{
	uint32_t k[2] = { htobe32(sub), key };

	T_EQ(kvdb_put(kvs, k, sizeof(k), &key, sizeof(key)), 0);
}

static unsigned count(struct kvdb_kvs *kvs, uint32_t sub)
{
	uint32_t p = htobe32(sub);
	struct kvdb_cursor *cur;
	unsigned n = 0;

	T_EQ(kvdb_cursor_open(kvs, 0, &p, sizeof(p), &cur), 0);
	while (!kvdb_cursor_next(cur, NULL, NULL, NULL, NULL))
		n++;
	kvdb_cursor_close(cur);
	return n;
}

/* all names, and the count of numbers */
static unsigned count_names(struct kvdb_kvs *kvs)
{
	return count(kvs, 0);
}

static void a_name_has_one_number_for_ever(void)
{
	uint32_t got[SUBS];
	struct kvdb_kvs *kvs;
	unsigned i, k;

	kh_fresh(POOL, 0);
	kvs = sub_store(kh_db, 0);
	for (i = 0; i < SUBS; i++) {
		got[i] = open_sub(kvs, i, KVDB_SUB_CREATE);
		T_EQ(got[i], i + 1);
		for (k = 0; k <= i % 7; k++)
			put(kvs, got[i], k);
	}
	kh_close();
	kh_open();
	T_EQ(kvdb_kvs_open(kh_db, "subs", &kvs), 0);
	for (i = 0; i < SUBS; i++) {
		T_EQ(open_sub(kvs, i, i & 1 ? KVDB_SUB_CREATE : 0), got[i]);
		T_EQ(count(kvs, got[i]), i % 7 + 1);
	}
	T_EQ(count_names(kvs), SUBS + 1);
	kh_close();
	th_clean();
}

static void a_drop_takes_the_name_and_its_keys_alone(void)
{
	uint32_t got[SUBS], again;
	struct kvdb_kvs *kvs;
	unsigned i, k;

	kh_fresh(POOL, 0);
	kvs = sub_store(kh_db, 0);
	for (i = 0; i < SUBS; i++) {
		got[i] = open_sub(kvs, i, KVDB_SUB_CREATE);
		for (k = 0; k < 20; k++)
			put(kvs, got[i], k);
	}
	for (i = 0; i < SUBS; i += 2)
		T_EQ(drop_sub(kvs, i), 0);
	T_EQ(drop_sub(kvs, 0), -ENOENT);
	T_STREQ(kvdb_error_detail()->id, "MP0958");
	kh_close();
	kh_open();
	T_EQ(kvdb_kvs_open(kh_db, "subs", &kvs), 0);
	for (i = 0; i < SUBS; i++)
		T_EQ(count(kvs, got[i]), i & 1 ? 20 : 0);
	T_EQ(count_names(kvs), SUBS / 2 + 1);
	/* its number is not given again */
	again = open_sub(kvs, 0, KVDB_SUB_CREATE);
	T_EQ(again, SUBS + 1);
	T_EQ(count(kvs, again), 0);
	kh_close();
	th_clean();
}

struct maker {
	pthread_t thread;
	struct kvdb_kvs *kvs;
	uint32_t got[SUBS];
};

static void *make_all(void *arg)
{
	struct maker *m = arg;

	for (unsigned i = 0; i < SUBS; i++)
		m->got[i] = open_sub(m->kvs, i, KVDB_SUB_CREATE);
	return NULL;
}

static void threads_that_make_one_get_the_same(void)
{
	static struct maker m[THREADS];
	uint8_t seen[SUBS + 1] = { 0 };
	struct kvdb_kvs *kvs;
	unsigned i, t;

	kh_fresh(POOL, 0);
	kvs = sub_store(kh_db, 0);
	for (t = 0; t < THREADS; t++) {
		m[t].kvs = kvs;
		T_EQ(pthread_create(&m[t].thread, NULL, make_all, &m[t]), 0);
	}
	for (t = 0; t < THREADS; t++)
		pthread_join(m[t].thread, NULL);
	for (i = 0; i < SUBS; i++) {
		T_OK(m[0].got[i] && m[0].got[i] <= SUBS);
		T_EQ(seen[m[0].got[i]], 0);
		seen[m[0].got[i]] = 1;
		for (t = 1; t < THREADS; t++)
			T_EQ(m[t].got[i], m[0].got[i]);
	}
	kh_close();
	th_clean();
}

/* A process that dies: of a drop that was not durable both are there, or neither. */
static struct kvdb_kvs *dying;

static void drop_and_die(void)
{
	T_EQ(kvdb_kvs_open(kh_db, "subs", &dying), 0);
	T_EQ(drop_sub(dying, 1), 0);
	T_EQ(open_sub(dying, 2, KVDB_SUB_CREATE), 3);
	T_EQ(kvdb_sync(kh_db), 0);
	T_EQ(drop_sub(dying, 2), 0);
}

static void a_dead_process_leaves_names_with_their_keys(void)
{
	struct kvdb_kvs *kvs;
	uint8_t p[KVDB_SUB_LEN];
	int rc;

	kh_fresh(POOL, 0);
	kvs = sub_store(kh_db, 0);
	T_EQ(open_sub(kvs, 0, KVDB_SUB_CREATE), 1);
	T_EQ(open_sub(kvs, 1, KVDB_SUB_CREATE), 2);
	put(kvs, 1, 7);
	put(kvs, 2, 7);
	kh_close();
	kh_die_in(drop_and_die);
	kh_open();
	T_EQ(kvdb_kvs_open(kh_db, "subs", &kvs), 0);
	T_EQ(kvdb_sub_open(kvs, "table 1", 7, 0, p), -ENOENT);
	T_EQ(count(kvs, 2), 0);
	T_EQ(count(kvs, open_sub(kvs, 0, 0)), 1);
	rc = kvdb_sub_open(kvs, "table 2", 7, KVDB_SUB_CREATE, p);
	T_EQ(rc, 0);
	T_OK(number(p) == 3 || number(p) == 4);
	kh_close();
	th_clean();
}

/* As a repair leaves it that could not read the count. */
static void without_the_count_no_number_is_given_twice(void)
{
	struct kvdb_kvs *kvs;
	unsigned i;

	kh_fresh(POOL, 0);
	kvs = sub_store(kh_db, 0);
	for (i = 0; i < 3; i++)
		T_EQ(open_sub(kvs, i, KVDB_SUB_CREATE), i + 1);
	T_EQ(kvdb_del(kvs, KVDB_SUB_NAMES, KVDB_SUB_LEN), 0);
	T_EQ(open_sub(kvs, 3, KVDB_SUB_CREATE), 4);
	/* of one whose name is gone, too, there are keys */
	put(kvs, 9, 1);
	T_EQ(kvdb_del(kvs, KVDB_SUB_NAMES, KVDB_SUB_LEN), 0);
	T_EQ(open_sub(kvs, 4, KVDB_SUB_CREATE), 10);
	T_EQ(open_sub(kvs, 5, KVDB_SUB_CREATE), 11);
	T_EQ(open_sub(kvs, 1, 0), 2);
	kh_close();
	th_clean();
}

static void what_is_wrong_is_said(void)
{
	static char name[KVDB_SUB_NAME_MAX + 1];
	uint8_t p[KVDB_SUB_LEN] = { 9, 9, 9, 9 };
	struct kvdb_kvs *kvs;

	kh_fresh(POOL, 0);
	kvs = kh_kvs("plain");
	T_EQ(kvdb_sub_open(kvs, "a", 1, KVDB_SUB_CREATE, p), -EINVAL);
	T_STREQ(kvdb_error_detail()->id, "MP0957");
	T_EQ(kvdb_sub_drop(kvs, "a", 1), -EINVAL);
	kvs = sub_store(kh_db, 100);
	T_EQ(kvdb_sub_open(kvs, "a", 1, 0, p), -ENOENT);
	T_EQ(kvdb_sub_open(kvs, "a", 1, KVDB_SUB_CREATE, p), -EINVAL);
	T_STREQ(kvdb_error_detail()->id, "MP0957");
	kvs = sub_store(kh_db, 0);
	T_EQ(kvdb_sub_open(kvs, "a", 1, 0, p), -ENOENT);
	T_EQ(kvdb_sub_open(kvs, "a", 1, 2, p), -EINVAL);
	T_EQ(kvdb_sub_open(kvs, NULL, 1, KVDB_SUB_CREATE, p), -EINVAL);
	T_EQ(kvdb_sub_open(kvs, "a", 0, KVDB_SUB_CREATE, p), -EINVAL);
	T_STREQ(kvdb_error_detail()->id, "MP0951");
	T_EQ(kvdb_sub_open(kvs, name, sizeof(name), KVDB_SUB_CREATE, p), -ENAMETOOLONG);
	T_STREQ(kvdb_error_detail()->id, "MP0911");
	T_OK(strstr(kvdb_error_detail()->text, "sub-store's name"));
	T_EQ(p[0], 9);
	/* names are bytes: the longest, of zeroes */
	T_EQ(kvdb_sub_open(kvs, name, sizeof(name) - 1, KVDB_SUB_CREATE, p), 0);
	T_EQ(number(p), 1);
	/* the last number, and none */
	T_EQ(kvdb_put(kvs, KVDB_SUB_NAMES, KVDB_SUB_LEN, "\xff\xff\xff\xfd", 4), 0);
	T_EQ(kvdb_sub_open(kvs, "b", 1, KVDB_SUB_CREATE, p), 0);
	T_EQ(number(p), UINT32_MAX - 1);
	T_EQ(kvdb_sub_open(kvs, "c", 1, KVDB_SUB_CREATE, p), -EDQUOT);
	T_STREQ(kvdb_error_detail()->id, "MP0959");
	T_EQ(kvdb_sub_drop(kvs, "b", 1), 0);
	/* not a list of ours */
	T_EQ(kvdb_put(kvs, KVDB_SUB_NAMES "x", KVDB_SUB_LEN + 1, "12345", 5), 0);
	T_EQ(kvdb_sub_open(kvs, "x", 1, KVDB_SUB_CREATE, p), -EINVAL);
	T_STREQ(kvdb_error_detail()->id, "MP0957");
	T_EQ(kvdb_sub_drop(kvs, "x", 1), -EINVAL);
	/* nor are these numbers of sub-stores: a drop would take all names, or nothing */
	T_EQ(kvdb_put(kvs, KVDB_SUB_NAMES "x", KVDB_SUB_LEN + 1, "\0\0\0\0", 4), 0);
	T_EQ(kvdb_sub_drop(kvs, "x", 1), -EINVAL);
	T_EQ(kvdb_put(kvs, KVDB_SUB_NAMES "x", KVDB_SUB_LEN + 1, "\xff\xff\xff\xff", 4), 0);
	T_EQ(kvdb_sub_drop(kvs, "x", 1), -EINVAL);
	T_STREQ(kvdb_error_detail()->id, "MP0957");
	kh_close();
	th_clean();
}

int main(void)
{
	KH_RUN_MODES(a_name_has_one_number_for_ever);
	T_RUN(a_drop_takes_the_name_and_its_keys_alone);
	T_RUN(threads_that_make_one_get_the_same);
	T_RUN(a_dead_process_leaves_names_with_their_keys);
	T_RUN(without_the_count_no_number_is_given_twice);
	T_RUN(what_is_wrong_is_said);
	return t_done();
}
