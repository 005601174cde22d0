/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A drain ends while writers go on, and the database stays alive.
 */
#include <pthread.h>
#include <stdio.h>

#include "db/db.h"
#include "kv_fresh.h"

static char dir[256];

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

	kv_fresh(dir, sizeof(dir), "kv_drain", 512u << 20, 0);
	kv_opts_one(&o, 0);
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
	kv_remove(dir);
}

int main(void)
{
	T_RUN(drain_beside_writers_keeps_the_database_alive);
	return t_done();
}
