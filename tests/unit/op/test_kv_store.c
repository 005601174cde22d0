/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Stores that are made while others are flushed, and found.
 */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "db/db.h"
#include "kv_fresh.h"
#include "log/flush.h"
#include "meta/mdc.h"
#include "op/store.h"
#include "tree/tree.h"

static char dir[256];

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

	kv_fresh(dir, sizeof(dir), "kv_store", 64u << 20, 0);
	kv_opts_one(&o, KVDB_MANUAL);
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
	kv_remove(dir);
	T_OK(least <= before);
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

	kv_fresh(dir, sizeof(dir), "kv_store", 64u << 20, 64u << 10);
	kv_opts_one(&o, KVDB_MANUAL);
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
	kv_remove(dir);
}

int main(void)
{
	T_RUN(segments_wait_for_a_store_that_is_made);
	T_RUN(a_store_is_counted_before_its_lock_is_free);
	return t_done();
}
