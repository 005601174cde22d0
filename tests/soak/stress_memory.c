/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * MEM1: what a process with an open database has resident stays within cache_bytes and 64 MiB, at
 * every moment: open, bulk load of far more keys than fit, gets, puts, 1000 idle cursors
 * beside more puts, close; and again in another process. KEYS= (millions).
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "../conform/kvdb_help.h"

#define CURSORS	1000u
#define MILLION	1000000u

static struct kvdb_kvs *kvs;
static uint64_t keys, bound;
static _Atomic(uint64_t) most;	/* resident since the step began */
static _Atomic(bool) stop;
static pthread_t watcher;

static uint64_t resident(void)
{
	unsigned long size, pages = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	if (f && fscanf(f, "%lu %lu", &size, &pages) != 2)
		pages = 0;
	if (f)
		fclose(f);
	return (uint64_t)pages * 4096;
}

static void *watch(void *arg)
{
	(void)arg;
	while (!atomic_load(&stop)) {
		uint64_t now = resident();

		if (now > atomic_load(&most))
			atomic_store(&most, now);
		usleep(2000);
	}
	return NULL;
}

static void step_ends(const char *what)
{
	struct kvdb_stats st = { 0 };

	if (kh_db)
		T_EQ(kvdb_stats(kh_db, &st), 0);
	printf("# %s: at most %.1f MiB resident; owners have %.1f, of it indexes %.1f\n", what,
	       (double)atomic_load(&most) / MIB, (double)st.memory_bytes / MIB,
	       (double)st.index_bytes / MIB);
	fflush(stdout);
	T_OK(atomic_load(&most) <= bound);
	atomic_store(&most, 0);
}

static size_t key_of(uint64_t i, char *key)
{
	for (int b = 0; b < 8; b++)
		key[b] = (char)(i >> (56 - 8 * b));
	return 8;
}

static void open_again(void)
{
	struct kvdb_opts o = kh_opts();

	T_EQ(kvdb_open(th_pool, &o, &kh_db), 0);
	kvs = kh_kvs("s");
}

static void load(void)
{
	struct kvdb_bulk *b;
	char key[8];

	T_EQ(kvdb_bulk_open(kvs, 0, &b), 0);
	for (uint64_t i = 0; i < keys; i++)
		T_EQ(kvdb_bulk_add(b, key, key_of(2 * i, key), key, 8), 0);
	T_EQ(kvdb_bulk_finish(b), 0);
}

static void gets(unsigned n)
{
	uint64_t x;
	size_t len;
	char key[8], val[16];

	for (unsigned i = 0; i < n; i++) {
		x = t_rand(&kh_rnd) % (2 * keys);
		T_EQ(kvdb_get(kvs, key, key_of(x, key), val, sizeof(val), &len),
		     x % 2 ? -ENOENT : 0);
	}
}

/* New values of keys that are there. */
static void puts_of(unsigned n)
{
	char key[8];

	for (unsigned i = 0; i < n; i++)
		T_EQ(kvdb_put(kvs, key, key_of(2 * (t_rand(&kh_rnd) % keys), key), key, 8), 0);
}

static void idle_cursors(void)
{
	static struct kvdb_cursor *c[CURSORS];
	const void *k, *v;
	size_t klen, vlen;
	char key[8];

	for (unsigned i = 0; i < CURSORS; i++) {
		T_EQ(kvdb_cursor_open(kvs, 0, NULL, 0, &c[i]), 0);
		T_EQ(kvdb_cursor_seek(c[i], key,
				      key_of(t_rand(&kh_rnd) % (2 * keys - 64), key)), 0);
		for (unsigned j = 0; j < 4; j++)
			T_EQ(kvdb_cursor_next(c[i], &k, &klen, &v, &vlen), 0);
		puts_of(500);
	}
	step_ends("with cursors");
	puts_of(MILLION / 2);
	step_ends("puts beside cursors");
	for (unsigned i = 0; i < CURSORS; i++)
		kvdb_cursor_close(c[i]);
}

static void begin(void)
{
	bound = kh_opts().cache_bytes + 64 * MIB;
	T_EQ(pthread_create(&watcher, NULL, watch, NULL), 0);
	open_again();
	step_ends("open");
}

static void end(void)
{
	kh_close();
	step_ends("close");
	atomic_store(&stop, true);
	pthread_join(watcher, NULL);
}

static void first_life(void)
{
	load();
	step_ends("bulk load");
	gets(MILLION / 4);
	step_ends("gets");
	puts_of(MILLION);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	step_ends("puts");
	idle_cursors();
	step_ends("cursors closed");
	end();
}

static void next_life(void)
{
	gets(MILLION / 4);
	puts_of(MILLION / 4);
	step_ends("gets and puts");
	end();
}

/* In a process each: what the C library keeps of one life is not the next one's. */
static void what_is_resident_stays_within_the_budget_and_64_mib(void)
{
	kh_make(24ull << 30, 0);
	t_die_in(begin, first_life);
	t_die_in(begin, next_life);
	t_figure("memory", "%llu million keys within cache_bytes and 64 MiB",
		 (unsigned long long)(keys / MILLION));
	th_clean();
}

int main(void)
{
	const char *s = getenv("KEYS");

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return t_skip_all("a sanitizer's memory is the process's too");
#endif
	kh_rnd = t_seed();
	keys = s ? strtoull(s, NULL, 0) : getenv("TEST_LONG") ? 100 : 40;
	keys *= MILLION;
	T_RUN(what_is_resident_stays_within_the_budget_and_64_mib);
	return t_done();
}
