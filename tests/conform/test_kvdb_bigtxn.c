/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Large transactions: 500,000 puts of 1 KB in one with the default options, what it reads of its
 * own writes, its end by abort or by the death of its process: all of it or nothing.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>

#include "kvdb_help.h"

#define POOL	(3072 * MIB)
#define VALUE	1024u
#define WRITES	500000u
#define ROUND	40000u		/* writes of one that is killed */

static uint8_t val[VALUE], buf[VALUE];
static struct kvdb_kvs *kvs;

static void key_of(unsigned round, unsigned i, char *key)
{
	snprintf(key, 24, "r%03u-%08u", round, i);
}

static void fill(unsigned round, unsigned i)
{
	memset(val, (int)(round + i), sizeof(val));
	memcpy(val, &i, sizeof(i));
}

/* In an order of keys that is not theirs. */
static unsigned nth(unsigned i, unsigned n)
{
	return (unsigned)((uint64_t)i * 7919 % n);
}

static struct kvdb_txn *write_round(unsigned round, unsigned n)
{
	struct kvdb_txn *t;
	char key[24];

	T_EQ(kvdb_txn_begin(kh_db, 0, &t), 0);
	for (unsigned i = 0; i < n; i++) {
		key_of(round, nth(i, n), key);
		fill(round, nth(i, n));
		T_EQ(kvdb_txn_put(t, kvs, key, strlen(key), val, sizeof(val)), 0);
	}
	return t;
}

/* Keys of a round in the store, or (@t) in what the transaction sees; they must be its values. */
static unsigned count(struct kvdb_txn *t, unsigned round)
{
	struct kvdb_cursor *cur;
	const void *k, *v;
	char prefix[8], key[24];
	size_t klen, vlen;
	unsigned n = 0;

	snprintf(prefix, sizeof(prefix), "r%03u", round);
	if (t)
		T_EQ(kvdb_txn_cursor_open(t, kvs, 0, prefix, 4, &cur), 0);
	else
		T_EQ(kvdb_cursor_open(kvs, 0, prefix, 4, &cur), 0);
	while (!kvdb_cursor_next(cur, &k, &klen, &v, &vlen)) {
		T_OK(klen == 13);
		snprintf(key, sizeof(key), "%.13s", (const char *)k);
		fill(round, (unsigned)atoi(key + 5));
		T_OK(vlen == sizeof(val) && !memcmp(v, val, vlen));
		n++;
	}
	kvdb_cursor_close(cur);
	return n;
}

static void open_default(void)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;

	th_again();
	T_EQ(kvdb_open(th_pool, &o, &kh_db), 0);
	kvs = kh_kvs("s");
}

static struct kvdb_stats stats(void)
{
	struct kvdb_stats st;

	T_EQ(kvdb_stats(kh_db, &st), 0);
	return st;
}

/* An eighth of the cache is for write sets: a small machine takes fewer. */
static unsigned writes(void)
{
	uint64_t room = stats().cache_bytes / 8 / 256;
	unsigned n = getenv("TEST_SHORT") ? WRITES / 10 : WRITES;

	return room < n ? (unsigned)room : n;
}

/* Another thread goes on beside it: its longest put. */
static _Atomic(bool) is_over;
static double longest_ms;

static void *put_beside(void *arg)
{
	struct timespec a, b;
	char key[24];

	for (unsigned i = 0; !atomic_load(&is_over); i++) {
		double ms;

		snprintf(key, sizeof(key), "other%u", i % 1000);
		clock_gettime(CLOCK_MONOTONIC, &a);
		if (kvdb_put(kvs, key, strlen(key), key, 8))
			return arg;
		clock_gettime(CLOCK_MONOTONIC, &b);
		ms = (double)(b.tv_sec - a.tv_sec) * 1e3 + (double)(b.tv_nsec - a.tv_nsec) / 1e6;
		longest_ms = ms > longest_ms ? ms : longest_ms;
		usleep(100);
	}
	return NULL;
}

static void half_a_million_puts_are_one_transaction(void)
{
	struct kvdb_txn *t;
	pthread_t other;
	char key[24];
	size_t len;
	unsigned n;

	kh_make(POOL, 0);
	open_default();
	n = writes();
	T_EQ(kvdb_put(kvs, "r000-x", 6, "old", 3), 0);
	T_EQ(kvdb_del(kvs, "r000-x", 6), 0);
	atomic_store(&is_over, false);
	T_EQ(pthread_create(&other, NULL, put_beside, NULL), 0);
	t = write_round(0, n);
	for (unsigned i = 0; i < n; i += 997) {
		key_of(0, i, key);
		fill(0, i);
		T_EQ(kvdb_txn_get(t, kvs, key, strlen(key), buf, sizeof(buf), &len), 0);
		T_OK(len == sizeof(val) && !memcmp(buf, val, len));
	}
	T_EQ(count(t, 0), n);
	T_EQ(count(NULL, 0), 0);
	longest_ms = 0;
	T_EQ(kvdb_txn_commit(t, KVDB_TXN_DURABLE, NULL), 0);
	atomic_store(&is_over, true);
	pthread_join(other, NULL);
	t_figure("large transaction", "%u puts of 1 KB; longest put beside its commit %.1f ms", n,
		 longest_ms);
	T_OK(stats().memory_bytes <= stats().cache_bytes * 5 / 4);
	T_EQ(count(NULL, 0), n);
	kh_close();
	open_default();
	T_EQ(count(NULL, 0), n);
	kh_close();
	T_EQ(kh_damage(0), 0);
}

/* Its memory is free afterwards, its segments are, and its keys are there for others. */
static void an_abort_gives_everything_back(void)
{
	uint64_t was, held;
	struct kvdb_txn *t;
	char key[24];

	kh_make(POOL, 0);
	open_default();
	was = stats().table_bytes;
	held = stats().space[MPOOL_CAPACITY].segment_bytes;
	key_of(1, 5, key);
	for (unsigned i = 0; i < 12; i++) {
		t = write_round(1, ROUND);
		T_OK(stats().table_bytes > was + ROUND * 100);
		kvdb_txn_abort(t);
		T_OK(stats().table_bytes < was + (8 << 20));
		T_EQ(count(NULL, 1), 0);
		T_EQ(kvdb_put(kvs, key, strlen(key), "mine", 4), 0);
		T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
		T_EQ(kvdb_del(kvs, key, strlen(key)), 0);
	}
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	/* those that logs have ready are fewer than what all of them wrote */
	T_OK(stats().space[MPOOL_CAPACITY].segment_bytes < held + 12ull * ROUND * VALUE);
	kh_close();
}

/* What it wrote before such a delete goes with it, what it writes afterwards stays. */
static void it_deletes_ranges_of_its_own_writes(void)
{
	struct kvdb_txn *t;
	char key[24], to[24];

	kh_make(POOL, 0);
	open_default();
	t = write_round(2, ROUND);
	key_of(2, 0, key);
	key_of(2, ROUND / 2, to);
	T_EQ(kvdb_txn_range_del(t, kvs, key, strlen(key), to, strlen(to)), 0);
	T_EQ(count(t, 2), ROUND / 2);
	key_of(2, 7, key);
	fill(2, 7);
	T_EQ(kvdb_txn_put(t, kvs, key, strlen(key), val, sizeof(val)), 0);
	T_EQ(count(t, 2), ROUND / 2 + 1);
	T_EQ(kvdb_txn_commit(t, 0, NULL), 0);
	T_EQ(count(NULL, 2), ROUND / 2 + 1);
	kh_close();
	open_default();
	T_EQ(count(NULL, 2), ROUND / 2 + 1);
	kh_close();
}

/* A cursor that steps between the writes sees each of them. */
static void a_cursor_follows_the_writes(void)
{
	struct kvdb_cursor *cur;
	struct kvdb_txn *t;
	const void *k;
	char key[24];
	size_t klen;

	kh_make(POOL, 0);
	open_default();
	T_EQ(kvdb_txn_begin(kh_db, 0, &t), 0);
	T_EQ(kvdb_txn_cursor_open(t, kvs, 0, NULL, 0, &cur), 0);
	for (unsigned i = 0; i < ROUND / 2; i++) {
		key_of(3, i, key);
		T_EQ(kvdb_txn_put(t, kvs, key, strlen(key), "v", 1), 0);
		T_EQ(kvdb_cursor_next(cur, &k, &klen, NULL, NULL), 0);
		T_OK(klen == strlen(key) && !memcmp(k, key, klen));
	}
	kvdb_cursor_close(cur);
	kvdb_txn_abort(t);
	kh_close();
}

/* ---- a process that is killed ----------------------------------------------------- */

static struct shared {
	_Atomic(uint32_t) sh_begun, sh_durable;	/* rounds */
} *sh;

static void commit_for_ever(void)
{
	char to[8];

	open_default();
	for (unsigned r = atomic_load(&sh->sh_begun); r < 900; r++) {
		struct kvdb_txn *t;

		atomic_store(&sh->sh_begun, r + 1);
		t = write_round(r, ROUND);
		T_EQ(kvdb_txn_commit(t, KVDB_TXN_DURABLE, NULL), 0);
		atomic_store(&sh->sh_durable, r + 1);
		/* the one before is not needed any more */
		snprintf(to, sizeof(to), "r%03u", r);
		T_EQ(kvdb_range_del(kvs, "r", 1, to, 4), 0);
	}
}

/* So long after it has begun a round. */
static void kill_one(unsigned wait_us)
{
	uint32_t first = atomic_load(&sh->sh_begun);
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	T_OK(pid >= 0);
	if (!pid) {
		if (!setjmp(t_env))
			commit_for_ever();
		_exit(1);
	}
	while (atomic_load(&sh->sh_begun) == first && !waitpid(pid, &status, WNOHANG))
		usleep(1000);
	usleep(wait_us);
	kill(pid, SIGKILL);
	T_EQ(waitpid(pid, &status, 0), pid);
	T_OK(WIFSIGNALED(status));
}

static void a_kill_leaves_all_of_it_or_nothing(void)
{
	unsigned kills = getenv("TEST_LONG") ? 60 : 6, whole = 0;

	kh_make(POOL, 0);
	sh = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	T_OK(sh != MAP_FAILED);
	for (unsigned i = 0; i < kills; i++) {
		uint32_t first = atomic_load(&sh->sh_begun);

		kill_one((unsigned)(t_rand(&kh_rnd) % 700000));
		open_default();
		for (uint32_t r = first; r < atomic_load(&sh->sh_begun); r++) {
			unsigned n = count(NULL, r);

			T_OK(!n || n == ROUND);
			whole += n == ROUND;
		}
		if (atomic_load(&sh->sh_durable))
			T_EQ(count(NULL, atomic_load(&sh->sh_durable) - 1), ROUND);
		kh_close();
	}
	T_EQ(kh_damage(0), 0);
	t_figure("large transaction", "%u kills, %u of them found all of it", kills, whole);
	munmap(sh, 4096);
	th_clean();
}

int main(void)
{
	T_RUN(half_a_million_puts_are_one_transaction);
	T_RUN(an_abort_gives_everything_back);
	T_RUN(it_deletes_ranges_of_its_own_writes);
	T_RUN(a_cursor_follows_the_writes);
	T_RUN(a_kill_leaves_all_of_it_or_nothing);
	return t_done();
}
