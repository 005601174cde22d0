/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Many threads on one database, with memory and segments so small that
 * memtables switch, flush and merge all the time, that images are stolen and
 * segments deleted, while stores come and go, threads end and begin, and a
 * second database in the process opens and closes.
 *
 * Every key has one writer. Each write takes the key's next version; whether
 * it is a delete and what its bytes are follows from (store, key, version). A
 * writer announces a version before it writes (k_begun) and after it is
 * acknowledged (k_acked), so a thread that reads a key between two looks at these
 * knows which versions are legal: from the one acknowledged before to the one
 * begun after. A snapshot must say the same every time that it is walked. At
 * the end the database is opened again and must hold the last versions.
 */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include <kvdb/kvdb.h>

#include "harness.h"
#include "db/db.h"

#define STORES		3u
#define KEYS		96u		/* of one thread in one store */
#define THREADS_MAX	64u
#define LEAF		60u		/* keys of a leaf: many of them, and joins */
#define SLICE_NS	400000000ull	/* life of a worker thread */
#define VAL_MAX		40000u
#define POOL_BYTES	(1ull << 30)

struct key {
	_Atomic(uint32_t) k_begun, k_acked;	/* versions; 0 = never written */
};

struct bench {
	char dir[256], side[256];
	struct kvdb *db;
	struct kvdb_kvs *kvs[STORES];
	unsigned nthreads;
	uint64_t end_ns;
	_Atomic(bool) stop;
	pthread_mutex_t lock;
	char why[256];			/* the first failure; lock */
	_Atomic(uint64_t) ops, cursors;
	struct key key[STORES][THREADS_MAX][KEYS];
};

struct worker {
	struct bench *b;
	unsigned no;
	uint64_t rnd;
	uint8_t put[VAL_MAX], got[VAL_MAX];
};

static struct bench bench;

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void nap_us(unsigned us)
{
	struct timespec ts = { .tv_nsec = (long)us * 1000 };

	nanosleep(&ts, NULL);
}

__attribute__((format(printf, 2, 3)))
static void fail(struct bench *b, const char *fmt, ...)
{
	va_list ap;

	pthread_mutex_lock(&b->lock);
	if (!b->why[0]) {
		va_start(ap, fmt);
		vsnprintf(b->why, sizeof(b->why), fmt, ap);
		va_end(ap);
	}
	pthread_mutex_unlock(&b->lock);
	atomic_store(&b->stop, true);
}

static bool over(struct bench *b)
{
	return atomic_load(&b->stop) || now_ns() >= b->end_ns;
}

/* ---- what a version is ----------------------------------------------------------- */

static uint64_t seed_of(unsigned s, unsigned t, unsigned k, uint32_t v)
{
	uint64_t x = ((uint64_t)s << 56) ^ ((uint64_t)t << 48) ^ ((uint64_t)k << 32) ^ v;

	return t_rand(&x);
}

static bool is_absent(unsigned s, unsigned t, unsigned k, uint32_t v)
{
	return !v || seed_of(s, t, k, v) % 7 == 0;
}

static size_t val_len(unsigned s, unsigned t, unsigned k, uint32_t v)
{
	uint64_t x = seed_of(s, t, k, v) >> 8;

	switch (x % 16) {
	case 0: case 1: case 2: case 3: case 4:
		return 8 + (x >> 8) % 120;
	case 15:
		return (x >> 8) % 32 ? 3000 : 20000 + (x >> 16) % 20000;
	default:
		return 130 + (x >> 8) % 2000;
	}
}

/* Its first word is the version, the rest follows from all of it. */
static size_t val_make(unsigned s, unsigned t, unsigned k, uint32_t v, uint8_t *buf)
{
	size_t n = val_len(s, t, k, v), i;
	uint64_t x = seed_of(s, t, k, v), w = v;

	for (i = 0; i < n; i += 8, w = t_rand(&x))
		memcpy(buf + i, &w, n - i < 8 ? n - i : 8);
	return n;
}

static size_t key_make(unsigned t, unsigned k, char *buf)
{
	return (size_t)snprintf(buf, 32, "t%03u/%05u", t, k * 7919 % 10007);
}

/* ---- checks ---------------------------------------------------------------------- */

/* Whether any version of [lo, hi] is no value. */
static bool may_be_absent(unsigned s, unsigned t, unsigned k, uint32_t lo, uint32_t hi)
{
	for (uint32_t v = lo; v <= hi; v++)
		if (is_absent(s, t, k, v))
			return true;
	return false;
}

/* The version that the bytes are, 0 when they are none of [lo, hi]. */
static uint32_t check_val(struct worker *w, unsigned s, unsigned t, unsigned k, const uint8_t *p,
			  size_t n, uint32_t lo, uint32_t hi, const char *who)
{
	uint64_t v = 0;

	memcpy(&v, p, n < 8 ? n : 8);
	if (v < lo || v > hi) {
		fail(w->b, "%s: store %u thread %u key %u: version %llu, legal are %u to %u", who,
		     s,
		     t, k, (unsigned long long)v, lo, hi);
		return 0;
	}
	if (is_absent(s, t, k, (uint32_t)v) || val_make(s, t, k, (uint32_t)v, w->put) != n ||
	    memcmp(w->put, p, n)) {
		fail(w->b, "%s: store %u thread %u key %u version %llu: wrong bytes, %zu", who, s,
		     t,
		     k, (unsigned long long)v, n);
		return 0;
	}
	return (uint32_t)v;
}

static void do_get(struct worker *w, unsigned s, unsigned t, unsigned k)
{
	struct key *ke = &w->b->key[s][t][k];
	uint32_t lo = atomic_load(&ke->k_acked), hi;
	char key[32];
	size_t n = 0;
	int err = kvdb_get(w->b->kvs[s], key, key_make(t, k, key), w->got, VAL_MAX, &n);

	hi = atomic_load(&ke->k_begun);
	if (err == -ENOENT) {
		if (!may_be_absent(s, t, k, lo, hi))
			fail(w->b, "get: store %u thread %u key %u: absent, legal are %u to %u", s,
			     t, k, lo, hi);
	} else if (err) {
		fail(w->b, "get: %d %s", err, kvdb_error_detail()->text);
	} else {
		check_val(w, s, t, k, w->got, n, lo, hi, "get");
	}
}

static void do_write(struct worker *w, unsigned s, unsigned k)
{
	struct key *ke = &w->b->key[s][w->no][k];
	uint32_t v = atomic_load(&ke->k_begun) + 1;
	char key[32];
	size_t klen = key_make(w->no, k, key);
	int err;

	atomic_store(&ke->k_begun, v);
	if (is_absent(s, w->no, k, v))
		err = kvdb_del(w->b->kvs[s], key, klen);
	else
		err = kvdb_put(w->b->kvs[s], key, klen, w->put, val_make(s, w->no, k, v, w->put));
	if (err)
		fail(w->b, "write: %d %s", err, kvdb_error_detail()->text);
	else
		atomic_store(&ke->k_acked, v);
}

/* One walk of one thread's keys; @seen: versions, 0 = absent. False when it failed. */
static bool walk(struct worker *w, struct kvdb_cursor *cur, unsigned s, unsigned t, bool reverse,
		 const uint32_t *lo, const uint32_t *hi, uint32_t *seen)
{
	const void *key, *val;
	char want[32], last[32] = "";
	size_t klen, vlen;
	unsigned k;
	int err;

	memset(seen, 0, KEYS * sizeof(*seen));
	while (!(err = kvdb_cursor_next(cur, &key, &klen, &val, &vlen))) {
		for (k = 0; k < KEYS; k++)
			if (key_make(t, k, want) == klen && !memcmp(want, key, klen))
				break;
		if (k == KEYS || (last[0] && (strcmp(want, last) < 0) != reverse)) {
			fail(w->b, "cursor: %.*s after %s", (int)klen, (const char *)key, last);
			return false;
		}
		memcpy(last, want, sizeof(last));
		seen[k] = check_val(w, s, t, k, val, vlen, lo[k], hi[k], "cursor");
		if (!seen[k])
			return false;
	}
	/* that of a thread which got no processor may be given up for memory */
	if (err != -ENOENT && err != -ESTALE)
		fail(w->b, "cursor: %d %s", err, kvdb_error_detail()->text);
	for (k = 0; k < KEYS && err == -ENOENT; k++)
		if (!seen[k] && !may_be_absent(s, t, k, lo[k], hi[k])) {
			fail(w->b, "cursor: store %u thread %u key %u is missing, legal are %u "
				"to %u",
			     s, t, k, lo[k], hi[k]);
			return false;
		}
	return err == -ENOENT;
}

static void do_cursor(struct worker *w, unsigned s, unsigned t)
{
	uint32_t lo[KEYS], hi[KEYS], one[KEYS], two[KEYS];
	bool reverse = t_rand(&w->rnd) & 1, same;
	struct kvdb_cursor *cur;
	char prefix[32];
	unsigned k;
	int err;

	snprintf(prefix, sizeof(prefix), "t%03u/", t);
	for (k = 0; k < KEYS; k++)
		lo[k] = atomic_load(&w->b->key[s][t][k].k_acked);
	if (kvdb_cursor_open(w->b->kvs[s], reverse ? KVDB_REVERSE : 0, prefix, 5, &cur)) {
		fail(w->b, "cursor open: %s", kvdb_error_detail()->text);
		return;
	}
	for (k = 0; k < KEYS; k++)
		hi[k] = atomic_load(&w->b->key[s][t][k].k_begun);
	same = walk(w, cur, s, t, reverse, lo, hi, one);
	if (same) {
		/* it outlives flushes, merges and deleted segments */
		for (k = t_rand(&w->rnd) % 40; k && !over(w->b); k--)
			do_write(w, s, (unsigned)(t_rand(&w->rnd) % KEYS));
		nap_us((unsigned)(t_rand(&w->rnd) % 20000));
		err = kvdb_cursor_seek(cur, NULL, 0);
		if (err && err != -ESTALE)
			fail(w->b, "seek: %s", kvdb_error_detail()->text);
		else if (!err && walk(w, cur, s, t, reverse, lo, hi, two) &&
			 memcmp(one, two, sizeof(one)))
			fail(w->b, "cursor: store %u thread %u: a snapshot changed", s, t);
	}
	kvdb_cursor_close(cur);
	atomic_fetch_add(&w->b->cursors, 1);
}

/* ---- threads ---------------------------------------------------------------------- */

static void *worker_slice(void *arg)
{
	struct worker *w = arg;
	struct bench *b = w->b;
	uint64_t end = now_ns() + SLICE_NS, n = 0;

	while (!over(b) && now_ns() < end) {
		uint64_t x = t_rand(&w->rnd);
		unsigned s = (x >> 8) % STORES, k = (x >> 16) % KEYS;

		switch (x % 256) {
		case 0:
			if (kvdb_sync(b->db))
				fail(b, "sync: %s", kvdb_error_detail()->text);
			break;
		case 1:
			do_cursor(w, s, (unsigned)((x >> 32) % b->nthreads));
			break;
		default:
			if (x & 1)
				do_write(w, s, k);
			else
				do_get(w, s, x & 2 ? w->no : (unsigned)((x >> 32) % b->nthreads),
				       k);
		}
		n++;
	}
	atomic_fetch_add(&b->ops, n);
	return NULL;
}

/* Threads end and begin while the flusher looks at their slots. */
static void *worker_main(void *arg)
{
	struct worker *w = arg;
	pthread_t t;

	while (!over(w->b)) {
		if (pthread_create(&t, NULL, worker_slice, w)) {
			fail(w->b, "no thread");
			break;
		}
		pthread_join(t, NULL);
	}
	return NULL;
}

/* A store that comes, is used, flushed or not, and goes. */
static void one_store(struct bench *b, unsigned round, uint8_t *val)
{
	struct kvdb_cursor *cur;
	struct kvdb_kvs *kvs;
	const void *key;
	size_t klen;
	unsigned i, n = 0;
	int err;

	if (kvdb_kvs_create(b->db, "temp", NULL) || kvdb_kvs_open(b->db, "temp", &kvs)) {
		fail(b, "create store: %s", kvdb_error_detail()->text);
		return;
	}
	for (i = 0; i < 200; i++)
		if (kvdb_put(kvs, &i, sizeof(i), val, 16 + i * 8))
			fail(b, "put to a new store: %s", kvdb_error_detail()->text);
	if (round % 3 == 0 && kvdb_drain(b->db, KVDB_WAIT_FLUSH))
		fail(b, "drain: %s", kvdb_error_detail()->text);
	if (kvdb_cursor_open(kvs, KVDB_KEYS_ONLY, NULL, 0, &cur)) {
		fail(b, "cursor: %s", kvdb_error_detail()->text);
		return;
	}
	while (!(err = kvdb_cursor_next(cur, &key, &klen, NULL, NULL)))
		n++;
	kvdb_cursor_close(cur);
	if (n != 200 && err != -ESTALE)
		fail(b, "a new store holds %u keys of 200", n);
	if (kvdb_kvs_drop(b->db, "temp"))
		fail(b, "drop store: %s", kvdb_error_detail()->text);
}

static void *store_main(void *arg)
{
	struct bench *b = arg;
	uint8_t val[2048] = { 1 };

	/* a database remembers at most KVDB_KVS_MAX dropped stores until it is closed */
	for (unsigned i = 0; i < KVDB_KVS_MAX - 8 && !over(b); i++) {
		one_store(b, i, val);
		nap_us(10000);
	}
	return NULL;
}

static void *drain_main(void *arg)
{
	struct bench *b = arg;
	struct kvdb_stats st;

	for (unsigned i = 0; !over(b); i++) {
		if (kvdb_stats(b->db, &st))
			fail(b, "stats: %s", kvdb_error_detail()->text);
		if (kvdb_drain(b->db,
			       i % 2 ? KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT : KVDB_WAIT_FLUSH))
			fail(b, "drain: %s", kvdb_error_detail()->text);
		nap_us(100000);
	}
	return NULL;
}

static struct kvdb_opts opts(unsigned interval_ms, unsigned logs)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;

	o.cache_bytes = 64 << 20;
	o.segment_bytes = 256 << 10;
	o.log_bytes = 8 << 20;
	o.interval_ms = interval_ms;
	o.logs = logs;
	o.threads = 4;	/* three of them merge */
	return o;
}

/* Another database of this process: what it retires is freed by any thread. */
static void *side_main(void *arg)
{
	struct bench *b = arg;
	struct kvdb_opts o = opts(10, 1);
	uint8_t val[1500] = { 2 };

	for (unsigned round = 1; !over(b); round++) {
		struct kvdb_kvs *kvs;
		struct kvdb *db;

		if (kvdb_open(b->side, &o, &db)) {
			fail(b, "second database: %s", kvdb_error_detail()->text);
			break;
		}
		if (kvdb_kvs_open(db, "side", &kvs))
			fail(b, "second database: %s", kvdb_error_detail()->text);
		for (unsigned i = 0; i < 500 && !over(b); i++)
			if (kvdb_put(kvs, &i, sizeof(i), val, i * 3))
				fail(b, "second database: %s", kvdb_error_detail()->text);
		if (round % 2 && kvdb_drain(db, KVDB_WAIT_FLUSH))
			fail(b, "second database: %s", kvdb_error_detail()->text);
		if (kvdb_close(db))
			fail(b, "close of the second database: %s", kvdb_error_detail()->text);
	}
	return NULL;
}

/* ---- one run ----------------------------------------------------------------------- */

static void pool_make(const char *dir, uint64_t bytes, const struct kvdb_opts *o)
{
	struct mpool_dev_spec dev = { .mclass = MPOOL_CAPACITY, .size = bytes };
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;

	co.devs = &dev;
	co.ndevs = 1;
	co.name = "stress";
	T_EQ(mpool_create(dir, &co), 0);
	T_EQ(kvdb_create(dir, o), 0);
}

static void stores_open(struct bench *b, bool create)
{
	for (unsigned s = 0; s < STORES; s++) {
		char name[8];

		snprintf(name, sizeof(name), "s%u", s);
		if (create)
			T_EQ(kvdb_kvs_create(b->db, name, NULL), 0);
		T_EQ(kvdb_kvs_open(b->db, name, &b->kvs[s]), 0);
	}
}

static void bench_make(struct bench *b, const struct kvdb_opts *o)
{
	const char *tmp = getenv("TMPDIR");
	struct kvdb *db;

	memset(b, 0, sizeof(*b));
	pthread_mutex_init(&b->lock, NULL);
	snprintf(b->dir, sizeof(b->dir), "%s/stress-XXXXXX", tmp ? tmp : "/tmp");
	T_OK(mkdtemp(b->dir));
	snprintf(b->side, sizeof(b->side), "%s/side-XXXXXX", tmp ? tmp : "/tmp");
	T_OK(mkdtemp(b->side));
	pool_make(b->dir, POOL_BYTES, o);
	pool_make(b->side, 128 << 20, o);
	T_EQ(kvdb_open(b->side, o, &db), 0);
	T_EQ(kvdb_kvs_create(db, "side", NULL), 0);
	T_EQ(kvdb_close(db), 0);
	T_EQ(kvdb_open(b->dir, o, &b->db), 0);
	b->db->d_budget.b_leaf_keys = LEAF;
	stores_open(b, true);
}

static void bench_check(struct bench *b, struct worker *w)
{
	for (unsigned s = 0; s < STORES; s++)
		for (unsigned t = 0; t < b->nthreads; t++)
			for (unsigned k = 0; k < KEYS; k++)
				do_get(w, s, t, k);
	if (b->why[0])
		T_FAIL("%s", b->why);
}

static unsigned seconds(void)
{
	return getenv("TEST_SHORT") ? 1 : getenv("TEST_LONG") ? 20 : 3;
}

static void bench_run(unsigned nthreads, const struct kvdb_opts *o)
{
	static void *(*const side[])(void *) = { store_main, drain_main, side_main };
	struct worker *w = calloc(nthreads, sizeof(*w));
	pthread_t t[THREADS_MAX], st[3];
	struct bench *b = &bench;
	struct kvdb_stats stats;
	unsigned i;

	T_OK(w);
	bench_make(b, o);
	b->nthreads = nthreads;
	b->end_ns = now_ns() + seconds() * 1000000000ull;
	for (i = 0; i < nthreads; i++) {
		w[i] = (struct worker){ .b = b, .no = i, .rnd = t_seed() + i };
		T_EQ(pthread_create(&t[i], NULL, worker_main, &w[i]), 0);
	}
	for (i = 0; i < 3; i++)
		T_EQ(pthread_create(&st[i], NULL, side[i], b), 0);
	for (i = 0; i < nthreads; i++)
		pthread_join(t[i], NULL);
	for (i = 0; i < 3; i++)
		pthread_join(st[i], NULL);
	T_EQ(kvdb_stats(b->db, &stats), 0);
	printf("# %u threads: %llu operations, %llu cursors, %llu flushes, %llu merges, "
	       "%llu spills, %llu splits, %llu joins, %llu segments freed, %llu skipped, "
	       "%llu stalls, %llu late\n", nthreads,
	       (unsigned long long)b->ops, (unsigned long long)b->cursors,
	       (unsigned long long)stats.flushes, (unsigned long long)stats.merges,
	       (unsigned long long)stats.spills, (unsigned long long)stats.splits,
	       (unsigned long long)stats.joins,
	       (unsigned long long)stats.segments_freed, (unsigned long long)stats.skipped_records,
	       (unsigned long long)stats.stalls, (unsigned long long)stats.durability_late);
	if (b->why[0])
		T_FAIL("%s", b->why);
	bench_check(b, w);
	T_EQ(kvdb_close(b->db), 0);
	T_EQ(kvdb_open(b->dir, o, &b->db), 0);
	b->db->d_budget.b_leaf_keys = LEAF;
	stores_open(b, false);
	bench_check(b, w);
	T_EQ(kvdb_close(b->db), 0);
	T_EQ(mpool_destroy(b->dir, NULL), 0);
	T_EQ(mpool_destroy(b->side, NULL), 0);
	rmdir(b->dir);
	rmdir(b->side);
	free(w);
}

static void four_threads(void)
{
	struct kvdb_opts o = opts(100, 1);

	bench_run(4, &o);
}

static void sixteen_threads_short_epochs(void)
{
	struct kvdb_opts o = opts(5, 2);

	bench_run(16, &o);
}

static void sixteen_threads_commit(void)
{
	struct kvdb_opts o = opts(100, 2);

	o.commit = 1;
	bench_run(16, &o);
}

static void sixtyfour_threads(void)
{
	struct kvdb_opts o = opts(100, 4);

	bench_run(64, &o);
}

static void sixtyfour_threads_no_bound(void)
{
	struct kvdb_opts o = opts(KVDB_INTERVAL_NONE, 2);

	bench_run(64, &o);
}

/* So many that the metadata container is compacted, by an open and by a close. */
static void opens_across_compactions(void)
{
	struct kvdb_opts o = opts(10, 1);
	const char *tmp = getenv("TMPDIR");
	uint64_t val[40] = { 0 }, got;
	struct kvdb_kvs *kvs;
	struct kvdb *db;
	char dir[256];
	size_t n;

	snprintf(dir, sizeof(dir), "%s/opens-XXXXXX", tmp ? tmp : "/tmp");
	T_OK(mkdtemp(dir));
	pool_make(dir, 64 << 20, &o);
	T_EQ(kvdb_open(dir, &o, &db), 0);
	T_EQ(kvdb_kvs_create(db, "s", NULL), 0);
	T_EQ(kvdb_close(db), 0);
	for (uint64_t i = 1; i <= 250; i++) {
		if (kvdb_open(dir, &o, &db))
			T_FAIL("open %" PRIu64 ": %s", i, kvdb_error_detail()->text);
		T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
		if (i > 1) {
			T_EQ(kvdb_get(kvs, "key", 3, &got, sizeof(got), &n), 0);
			T_EQ(got, i - 1);
		}
		val[0] = i;
		T_EQ(kvdb_put(kvs, "key", 3, val, 8 + i % 39 * 8), 0);
		T_EQ(kvdb_close(db), 0);
	}
	T_EQ(mpool_destroy(dir, NULL), 0);
	rmdir(dir);
}

int main(void)
{
	T_RUN(opens_across_compactions);
	T_RUN(four_threads);
	T_RUN(sixteen_threads_short_epochs);
	T_RUN(sixteen_threads_commit);
	T_RUN(sixtyfour_threads);
	T_RUN(sixtyfour_threads_no_bound);
	return t_done();
}
