/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What was put is what is read: all sizes, overwriting and deleting, stores
 * beside each other, dropped stores, clean reopening and the death of the
 * process, many stores in little memory. With 1, 4 and 16 logs, with threads
 * and without.
 */
#include <pthread.h>

#include "kvdb_help.h"

#define POOL (256 * MIB)

static struct kh_model model;

static void end(void)
{
	kh_close();
	T_EQ(kh_damage(MPOOL_VERIFY_DATA), 0);
	th_clean();
}

/* ---- sizes ----------------------------------------------------------------------- */

static const size_t vlens[] = { 0, 1, 2, 127, 128, 129, 255, 4095, 4096, 4097, 65536,
				(1 << 20) - 1, 1 << 20 };
#define VLENS (sizeof(vlens) / sizeof(vlens[0]))

static void values_check(struct kvdb_kvs *kvs)
{
	size_t i;

	for (i = 0; i < VLENS; i++) {
		char key[32];
		int n = snprintf(key, sizeof(key), "v%zu", vlens[i]);

		T_OK(kh_holds(kvs, key, (size_t)n, i, vlens[i]));
	}
}

static void values_of_all_sizes_come_back(void)
{
	struct kvdb_kvs *kvs;
	size_t i;

	kh_fresh(POOL, 0);
	kvs = kh_kvs("s");
	for (i = 0; i < VLENS; i++) {
		char key[32];
		int n = snprintf(key, sizeof(key), "v%zu", vlens[i]);

		T_EQ(kh_put(kvs, key, (size_t)n, i, vlens[i]), 0);
		T_OK(kh_holds(kvs, key, (size_t)n, i, vlens[i]));
	}
	T_EQ(kvdb_sync(kh_db), 0);
	values_check(kvs);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	values_check(kvs);
	kh_close();
	kh_open();
	values_check(kh_kvs("s"));
	end();
}

/* A key of @len bytes with every byte value somewhere. */
static void key_of(uint8_t *key, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		key[i] = (uint8_t)(len * 7 + i * (len % 5 == 0 ? 0 : 1));
	if (len > 2)
		memcpy(key, &(uint16_t){ (uint16_t)len }, 2);
}

static void keys_check(struct kvdb_kvs *kvs)
{
	uint8_t key[KVDB_KEY_MAX];
	size_t n;

	for (n = 1; n <= KVDB_KEY_MAX; n++) {
		key_of(key, n);
		T_OK(kh_holds(kvs, key, n, n, n % 300));
	}
}

static void keys_of_all_sizes_come_back(void)
{
	static const uint8_t odd[][4] = { { 0, 0, 0, 0 }, { 0xff, 0xff, 0xff, 0xff },
					  { 0, 0xff, 0, 0xff }, { 0xff, 0, 0, 0 } };
	uint8_t key[KVDB_KEY_MAX];
	struct kvdb_kvs *kvs, *other;
	size_t n, i;

	kh_fresh(POOL, 0);
	kvs = kh_kvs("s");
	other = kh_kvs("odd");
	for (n = 1; n <= KVDB_KEY_MAX; n++) {
		key_of(key, n);
		T_EQ(kh_put(kvs, key, n, n, n % 300), 0);
	}
	for (i = 0; i < 4; i++)
		for (n = 1; n <= 4; n++)
			T_EQ(kh_put(other, odd[i], n, n, 9), 0);
	keys_check(kvs);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	keys_check(kvs);
	kh_close();
	kh_open();
	keys_check(kh_kvs("s"));
	other = kh_kvs("odd");
	for (i = 0; i < 4; i++)
		for (n = 1; n <= 4; n++)
			T_OK(kh_holds(other, odd[i], n, n, 9));
	T_OK(kh_absent(other, "\0\0\0\0", 5));
	end();
}

/* ---- random histories ---------------------------------------------------------------- */

static void history_rest(struct kvdb_kvs *kvs)
{
	kh_model_steps(&model, kvs, 500);
	T_EQ(kvdb_sync(kh_db), 0);
}

static void history_and_death(void)
{
	struct kvdb_kvs *kvs = kh_kvs("s");

	kh_model_steps(&model, kvs, 500);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	history_rest(kvs);
}

static void overwriting_and_deleting_follow_the_model(void)
{
	int round;

	kh_fresh(POOL, 0);
	kh_model_make(&model, 400);
	for (round = 0; round < 6; round++) {
		struct kvdb_kvs *kvs = kh_kvs("s");

		kh_model_steps(&model, kvs, 400);
		kh_model_check(&model, kvs);
		if (round % 3 == 0)
			T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
		if (round % 3 == 1)
			T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
		if (round % 3 == 2) {
			kh_close();
			T_EQ(kh_damage(MPOOL_VERIFY_DATA), 0);
			kh_open();
		}
		kh_model_check(&model, kh_kvs("s"));
	}
	kh_model_free(&model);
	end();
}

static void synced_data_survives_the_death_of_the_process(void)
{
	struct kvdb_stats st;
	unsigned i;

	kh_fresh(POOL, 0);
	kh_model_make(&model, 300);
	for (i = 0; i < 3; i++) {
		uint64_t rnd = kh_rnd;

		kh_close();
		kh_die_in(history_and_death);
		T_EQ(kh_damage(MPOOL_VERIFY_DATA), 0);
		kh_open();
		kvdb_stats(kh_db, &st);
		T_EQ(st.recovery.was_clean, 0);
		/* what the child did, in the model of this process */
		kh_rnd = rnd;
		kh_model_steps(&model, kh_kvs("twin"), 1000);
		kh_model_check(&model, kh_kvs("s"));
		kh_model_check(&model, kh_kvs("twin"));
	}
	kh_model_free(&model);
	end();
}

static void deleted_keys_can_come_again(void)
{
	struct kvdb_kvs *kvs;
	int i;

	kh_fresh(POOL, 0);
	kvs = kh_kvs("s");
	for (i = 0; i < 8; i++) {
		T_EQ(kh_put_str(kvs, "k", i & 1 ? "odd" : "even"), 0);
		if (i & 2)
			T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
		T_OK(kh_holds_str(kvs, "k", i & 1 ? "odd" : "even"));
		T_EQ(kvdb_del(kvs, "k", 1), 0);
		T_OK(kh_absent(kvs, "k", 1));
		if (i & 4)
			T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
		T_OK(kh_absent(kvs, "k", 1));
		T_EQ(kvdb_del(kvs, "k", 1), 0);	/* absent already */
	}
	end();
}

/* ---- stores ---------------------------------------------------------------------------- */

static void stores_do_not_see_each_other(void)
{
	char name[16], val[16];
	int i, round;

	kh_fresh(POOL, 0);
	for (i = 0; i < 8; i++) {
		snprintf(name, sizeof(name), "s%d", i);
		T_EQ(kh_put_str(kh_kvs(name), "same key", name), 0);
		T_EQ(kh_put_str(kh_kvs(name), name, "own"), 0);
	}
	T_EQ(kvdb_del(kh_kvs("s3"), "same key", 8), 0);
	for (round = 0; round < 3; round++) {
		for (i = 0; i < 8; i++) {
			snprintf(name, sizeof(name), "s%d", i);
			snprintf(val, sizeof(val), "s%d", (i + 1) % 8);
			if (i == 3)
				T_OK(kh_absent(kh_kvs(name), "same key", 8));
			else
				T_OK(kh_holds_str(kh_kvs(name), "same key", name));
			T_OK(kh_holds_str(kh_kvs(name), name, "own"));
			T_OK(kh_absent(kh_kvs(name), val, strlen(val)));
		}
		if (round == 0)
			T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
		if (round == 1) {
			kh_close();
			kh_open();
		}
	}
	end();
}

static void fill(struct kvdb_kvs *kvs, uint64_t seed)
{
	char key[16];
	int i;

	for (i = 0; i < 200; i++) {
		int n = snprintf(key, sizeof(key), "k%d", i);

		T_EQ(kh_put(kvs, key, (size_t)n, seed + (unsigned)i, i % 2 ? 20 : 700), 0);
	}
}

static void nothing_of_old(void)
{
	struct kvdb_kvs *kvs = kh_kvs("s");
	char key[16];
	int i;

	for (i = 0; i < 200; i++) {
		int n = snprintf(key, sizeof(key), "k%d", i);

		T_OK(kh_absent(kvs, key, (size_t)n));
	}
	T_OK(kh_holds_str(kh_kvs("other"), "stays", "here"));
}

/* Runs and memtables of the old store, then a new one of the same name. */
static void drop_and_make_again(void)
{
	fill(kh_kvs("s"), 1);
	T_EQ(kh_put_str(kh_kvs("other"), "stays", "here"), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	fill(kh_kvs("s"), 2);
	T_EQ(kvdb_kvs_drop(kh_db, "s"), 0);
	T_EQ(kvdb_kvs_create(kh_db, "s", NULL), 0);
	nothing_of_old();
	T_EQ(kh_put_str(kh_kvs("s"), "new", "yes"), 0);
	T_EQ(kvdb_sync(kh_db), 0);
	nothing_of_old();
}

static void a_dropped_store_does_not_come_back(void)
{
	kh_fresh(POOL, 0);
	drop_and_make_again();
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	nothing_of_old();
	kh_close();
	kh_open();
	nothing_of_old();
	T_OK(kh_holds_str(kh_kvs("s"), "new", "yes"));
	kh_close();
	kh_die_in(drop_and_make_again);
	T_EQ(kh_damage(MPOOL_VERIFY_DATA), 0);
	kh_open();
	nothing_of_old();
	T_OK(kh_holds_str(kh_kvs("s"), "new", "yes"));
	end();
}

static void drop_last(void)
{
	fill(kh_kvs("s"), 3);
	T_EQ(kvdb_sync(kh_db), 0);
	T_EQ(kvdb_kvs_drop(kh_db, "s"), 0);
}

static void a_drop_is_durable_at_once(void)
{
	struct kvdb_kvs *k;

	kh_make(POOL, 0);
	kh_die_in(drop_last);
	kh_open();
	T_EQ(kvdb_kvs_open(kh_db, "s", &k), -ENOENT);
	end();
}

/* ---- threads -------------------------------------------------------------------------------- */

#define WORKERS 4
#define WORKER_KEYS 64u
#define WORKER_ROUNDS 12u

struct worker {
	pthread_t thread;
	struct kvdb_kvs *kvs;
	unsigned no;
	int err;
};

static void worker_value(uint8_t *buf, size_t *len, unsigned no, unsigned i, unsigned round)
{
	*len = 8 + (i * 37 + round * 101) % 600;
	memset(buf, (int)(no * 64 + round), *len);
}

/* Each thread owns keys; neighbours in order belong to others. */
static void *worker_main(void *arg)
{
	struct worker *w = arg;
	uint8_t val[1024], got[1024];
	unsigned i, round;
	char key[32];
	size_t len, n;

	for (round = 0; round < WORKER_ROUNDS && !w->err; round++) {
		for (i = 0; i < WORKER_KEYS && !w->err; i++) {
			int k = snprintf(key, sizeof(key), "%04u-%u", i, w->no);

			worker_value(val, &len, w->no, i, round);
			w->err = kvdb_put(w->kvs, key, (size_t)k, val, len);
			if (w->err)
				break;
			w->err = kvdb_get(w->kvs, key, (size_t)k, got, sizeof(got), &n);
			if (!w->err && (n != len || memcmp(got, val, len)))
				w->err = 1;
			if (!w->err && i % 7 == round % 7)
				w->err = kvdb_del(w->kvs, key, (size_t)k);
		}
	}
	return NULL;
}

static void workers_check(struct kvdb_kvs *kvs)
{
	uint8_t val[1024];
	unsigned i, no;
	char key[32];
	size_t len, n;

	for (no = 0; no < WORKERS; no++) {
		for (i = 0; i < WORKER_KEYS; i++) {
			int k = snprintf(key, sizeof(key), "%04u-%u", i, no);

			if (i % 7 == (WORKER_ROUNDS - 1) % 7) {
				T_OK(kh_absent(kvs, key, (size_t)k));
				continue;
			}
			worker_value(val, &len, no, i, WORKER_ROUNDS - 1);
			T_EQ(kvdb_get(kvs, key, (size_t)k, kh_buf, sizeof(kh_buf), &n), 0);
			T_EQ(n, len);
			T_MEMEQ(kh_buf, val, len);
		}
	}
}

static void threads_read_what_they_wrote(void)
{
	struct worker w[WORKERS];
	struct kvdb_kvs *kvs;
	unsigned i;

	kh_fresh(POOL, 0);
	kvs = kh_kvs("s");
	for (i = 0; i < WORKERS; i++) {
		w[i] = (struct worker){ .kvs = kvs, .no = i };
		T_EQ(pthread_create(&w[i].thread, NULL, worker_main, &w[i]), 0);
	}
	for (i = 0; i < 5; i++)
		T_EQ(kvdb_drain(kh_db, i % 2 ? KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT :
					       KVDB_WAIT_FLUSH), 0);
	for (i = 0; i < WORKERS; i++)
		pthread_join(w[i].thread, NULL);
	for (i = 0; i < WORKERS; i++)
		T_EQ(w[i].err, 0);
	workers_check(kvs);
	kh_close();
	kh_open();
	workers_check(kh_kvs("s"));
	end();
}

/* ---- many stores ---------------------------------------------------------------------------- */

static uint64_t rss_bytes(void)
{
	unsigned long size = 0, rss = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	if (f && fscanf(f, "%lu %lu", &size, &rss) != 2)
		rss = 0;
	if (f)
		fclose(f);
	return (uint64_t)rss * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void stores_256_take_bounded_memory_and_open_fast(void)
{
	uint64_t rss = rss_bytes();
	struct timespec a, b;
	char name[16];
	unsigned i, j;

	kh_fresh(512 * MIB, 0);
	for (i = 0; i < KVDB_KVS_MAX; i++) {
		snprintf(name, sizeof(name), "s%u", i);
		T_EQ(kvdb_kvs_create(kh_db, name, NULL), 0);
	}
	T_EQ(kvdb_kvs_create(kh_db, "more", NULL), -EDQUOT);
	for (i = 0; i < KVDB_KVS_MAX; i++) {
		snprintf(name, sizeof(name), "s%u", i);
		for (j = 0; j < 300; j++)
			T_EQ(kh_put(kh_kvs(name), &(uint32_t){ j * 0x9e3779b9u }, 4, i + j,
				    j % 8 ? 100 : 1000), 0);
	}
	/* memtables and window are limited by cache_bytes, 64 MiB */
	T_OK(rss_bytes() < rss + 200 * MIB);
	kh_close();
	clock_gettime(CLOCK_MONOTONIC, &a);
	kh_open();
	clock_gettime(CLOCK_MONOTONIC, &b);
	/* the module's machine is an emulated one as a rule, and its clock its own */
	T_OK((b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000 <
	     (th_is_kmod() ? 60000 : 2000));
	T_EQ(kvdb_kvs_list(kh_db, NULL, 0), KVDB_KVS_MAX);
	for (i = 0; i < KVDB_KVS_MAX; i++) {
		snprintf(name, sizeof(name), "s%u", i);
		for (j = 0; j < 300; j += 13)
			T_OK(kh_holds(kh_kvs(name), &(uint32_t){ j * 0x9e3779b9u }, 4, i + j,
				      j % 8 ? 100 : 1000));
	}
	T_OK(rss_bytes() < rss + 200 * MIB);
	end();
}

int main(void)
{
	KH_RUN_MODES(values_of_all_sizes_come_back);
	KH_RUN_MODES(keys_of_all_sizes_come_back);
	KH_RUN_MODES(overwriting_and_deleting_follow_the_model);
	KH_RUN_MODES(synced_data_survives_the_death_of_the_process);
	KH_RUN_MODES(deleted_keys_can_come_again);
	KH_RUN_MODES(stores_do_not_see_each_other);
	KH_RUN_MODES(a_dropped_store_does_not_come_back);
	KH_RUN_MODES(a_drop_is_durable_at_once);
	KH_RUN_MODES(threads_read_what_they_wrote);
	T_RUN(stores_256_take_bounded_memory_and_open_fast);
	th_clean();
	return t_done();
}
