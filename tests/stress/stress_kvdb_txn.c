/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Transactions of many threads on two stores, with memory and logs so small
 * that memtables switch, flush and merge all the time.
 *
 * Accounts: transfers between two of them, in any of the stores; whatever
 * happens, the sum is what it was in every snapshot, by get and by cursor, and
 * after the database was opened again (T1, T2, T5). Counters: transactions read
 * and add one; as many as were committed are there at the end (T3, T4: no update
 * is lost). Cells: written plainly and by transactions; each write names the
 * version that it replaced, so a plain write between a transaction's view and its
 * commit would show as a version with two successors (T3).
 */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include <kvdb/kvdb.h>

#include "harness.h"

#define STORES		2u
#define ACCOUNTS	48u		/* of one store */
#define BALANCE		1000u
#define COUNTERS	8u
#define CELLS		6u
#define WRITES_MAX	(1u << 20)	/* of cells */
#define THREADS_MAX	64u
#define VAL_MAX		3000u
#define POOL_BYTES	(512ull << 20)

/* A value: what counts, then filling, so that some lie in the value log. */
struct val {
	uint64_t n;		/* balance, count, number of the write */
	uint64_t seen;		/* cells: number of the write that it replaced */
	uint8_t fill[VAL_MAX];
};

struct bench {
	char dir[256];
	struct kvdb *db;
	struct kvdb_kvs *kvs[STORES];
	uint64_t end_ns;
	_Atomic(bool) stop;
	pthread_mutex_t lock;
	char why[256];			/* the first failure; lock */
	_Atomic(uint64_t) count[COUNTERS];	/* committed additions */
	_Atomic(uint64_t) writes;		/* numbers of writes of cells, from 1 */
	_Atomic(uint8_t) replaced[WRITES_MAX];	/* by a transaction */
	_Atomic(uint64_t) commits, conflicts, snapshots, plains, given_up;
};

struct worker {
	struct bench *b;
	unsigned no;
	uint64_t rnd;
	struct val put, got;
};

static struct bench bench;

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
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

static unsigned rnd(struct worker *w, unsigned n)
{
	return (unsigned)(t_rand(&w->rnd) % n);
}

static size_t val_len(struct worker *w)
{
	return 16 + (rnd(w, 4) ? rnd(w, 100) : rnd(w, VAL_MAX));
}

/*
 * A snapshot that holds more memory than there is for it is given up, and says so: one whose
 * thread got no processor while all others wrote.
 */
static bool is_given_up(struct worker *w, int rc)
{
	if (rc != -ESTALE)
		return false;
	atomic_fetch_add_explicit(&w->b->given_up, 1, memory_order_relaxed);
	return true;
}

/* What a call may return while others are at the same keys. */
static bool is_lost(struct worker *w, int rc, const char *what)
{
	if (!rc)
		return false;
	if (is_given_up(w, rc))
		return true;
	if (rc != -ECANCELED)
		fail(w->b, "%s: %d (%s)", what, rc, kvdb_error_detail()->text);
	atomic_fetch_add_explicit(&w->b->conflicts, 1, memory_order_relaxed);
	return true;
}

static int tget(struct worker *w, struct kvdb_txn *t, unsigned s, const char *key)
{
	size_t len = 0;
	int rc = kvdb_txn_get(t, w->b->kvs[s], key, strlen(key), &w->got, sizeof(w->got), &len);

	if (!is_given_up(w, rc) && (rc || len < 16))
		fail(w->b, "%s: %d, %zu bytes (%s)", key, rc, len, kvdb_error_detail()->text);
	return rc;
}

static int tput(struct worker *w, struct kvdb_txn *t, unsigned s, const char *key, uint64_t n,
		uint64_t seen)
{
	w->put.n = n;
	w->put.seen = seen;
	return kvdb_txn_put(t, w->b->kvs[s], key, strlen(key), &w->put, val_len(w));
}

static struct kvdb_txn *begin(struct worker *w, unsigned flags)
{
	struct kvdb_txn *t = NULL;
	int rc = kvdb_txn_begin(w->b->db, flags, &t);

	if (rc)
		fail(w->b, "begin: %d (%s)", rc, kvdb_error_detail()->text);
	return t;
}

/* ---- what threads do ------------------------------------------------------------------ */

static void transfer(struct worker *w)
{
	unsigned sa = rnd(w, STORES), sb = rnd(w, STORES);
	char a[16], z[16];
	struct kvdb_txn *t = begin(w, 0);
	uint64_t from, to, n;
	int rc;

	snprintf(a, sizeof(a), "a%03u", rnd(w, ACCOUNTS));
	snprintf(z, sizeof(z), "a%03u", rnd(w, ACCOUNTS));
	if (!t || (sa == sb && !strcmp(a, z)) || tget(w, t, sa, a))
		goto out;
	from = w->got.n;
	if (tget(w, t, sb, z))
		goto out;
	to = w->got.n;
	n = from ? rnd(w, (unsigned)(from > 100 ? 100 : from) + 1) : 0;
	if (is_lost(w, tput(w, t, sa, a, from - n, 0), "transfer") ||
	    is_lost(w, tput(w, t, sb, z, to + n, 0), "transfer"))
		goto out;
	if (rnd(w, 16) == 0)
		goto out;
	rc = kvdb_txn_commit(t, rnd(w, 64) ? 0 : KVDB_TXN_DURABLE, NULL);
	if (is_given_up(w, rc))
		return;
	if (rc)
		fail(w->b, "commit: %d (%s)", rc, kvdb_error_detail()->text);
	atomic_fetch_add_explicit(&w->b->commits, 1, memory_order_relaxed);
	return;
out:
	kvdb_txn_abort(t);
}

#define NO_SUM	UINT64_MAX	/* a failure, which was noted, or given up */

static uint64_t sum_get(struct worker *w, struct kvdb_txn *t)
{
	uint64_t sum = 0;
	char key[16];

	for (unsigned s = 0; s < STORES; s++) {
		for (unsigned i = 0; i < ACCOUNTS; i++) {
			snprintf(key, sizeof(key), "a%03u", i);
			if (tget(w, t, s, key))
				return NO_SUM;
			sum += w->got.n;
		}
	}
	return sum;
}

static uint64_t sum_walk(struct worker *w, struct kvdb_txn *t, unsigned flags)
{
	struct kvdb_cursor *c;
	uint64_t sum = 0, n;
	const void *k, *v;
	size_t kl, vl;
	int rc;

	for (unsigned s = 0; s < STORES; s++) {
		rc = kvdb_txn_cursor_open(t, w->b->kvs[s], flags, "a", 1, &c);
		if (rc) {
			if (!is_given_up(w, rc))
				fail(w->b, "cursor: %d (%s)", rc, kvdb_error_detail()->text);
			return NO_SUM;
		}
		while (!(rc = kvdb_cursor_next(c, &k, &kl, &v, &vl))) {
			memcpy(&n, v, 8);
			sum += n;
		}
		kvdb_cursor_close(c);
		if (is_given_up(w, rc))
			return NO_SUM;
		if (rc != -ENOENT)
			fail(w->b, "cursor: %d (%s)", rc, kvdb_error_detail()->text);
	}
	return sum;
}

static void snapshot(struct worker *w)
{
	static const uint64_t want = (uint64_t)STORES * ACCOUNTS * BALANCE;
	struct kvdb_txn *t = begin(w, KVDB_TXN_RDONLY);
	uint64_t sum;

	for (unsigned i = 0; t && i < 3 && !over(w->b); i++) {
		sum = i == 1 ? sum_get(w, t) : sum_walk(w, t, i ? KVDB_REVERSE : 0);
		if (sum == NO_SUM)
			break;
		if (sum != want)
			fail(w->b, "pass %u over a snapshot: the sum is %" PRIu64 ", not %" PRIu64,
			     i, sum, want);
	}
	kvdb_txn_abort(t);
	atomic_fetch_add_explicit(&w->b->snapshots, 1, memory_order_relaxed);
}

static void add_one(struct worker *w)
{
	unsigned i = rnd(w, COUNTERS);
	struct kvdb_txn *t = begin(w, 0);
	char key[16];
	int rc;

	snprintf(key, sizeof(key), "c%u", i);
	if (!t || tget(w, t, i % STORES, key) ||
	    is_lost(w, tput(w, t, i % STORES, key, w->got.n + 1, 0), "count")) {
		kvdb_txn_abort(t);
		return;
	}
	rc = kvdb_txn_commit(t, 0, NULL);
	if (is_given_up(w, rc))
		return;
	if (rc)
		fail(w->b, "commit: %d (%s)", rc, kvdb_error_detail()->text);
	else
		atomic_fetch_add(&w->b->count[i], 1);
}

static uint64_t write_no(struct worker *w)
{
	uint64_t n = atomic_fetch_add(&w->b->writes, 1) + 1;

	return n < WRITES_MAX ? n : 0;
}

static void cell_plain(struct worker *w)
{
	unsigned i = rnd(w, CELLS);
	uint64_t n = write_no(w);
	char key[16];

	snprintf(key, sizeof(key), "x%u", i);
	w->put.n = n;
	w->put.seen = 0;
	if (n && !is_lost(w, kvdb_put(w->b->kvs[0], key, strlen(key), &w->put, val_len(w)), "put"))
		atomic_fetch_add_explicit(&w->b->plains, 1, memory_order_relaxed);
}

static void cell_txn(struct worker *w)
{
	uint64_t n = write_no(w), seen;
	struct kvdb_txn *t = n ? begin(w, 0) : NULL;
	unsigned i = rnd(w, CELLS);
	char key[16];
	int rc;

	snprintf(key, sizeof(key), "x%u", i);
	if (!t || tget(w, t, 0, key))
		goto out;
	seen = w->got.n;
	if (is_lost(w, tput(w, t, 0, key, n, seen), "cell"))
		goto out;
	rc = kvdb_txn_commit(t, 0, NULL);
	if (is_given_up(w, rc))
		return;
	if (rc)
		fail(w->b, "commit: %d (%s)", rc, kvdb_error_detail()->text);
	else if (atomic_exchange(&w->b->replaced[seen], 1))
		fail(w->b, "cell %u: two transactions replaced write %" PRIu64, i, seen);
	return;
out:
	kvdb_txn_abort(t);
}

/* What a plain read finds is never a version that a committed transaction replaced. */
static void cell_read(struct worker *w)
{
	unsigned i = rnd(w, CELLS);
	char key[16];
	size_t len;
	int rc;

	snprintf(key, sizeof(key), "x%u", i);
	rc = kvdb_get(w->b->kvs[0], key, strlen(key), &w->got, sizeof(w->got), &len);
	if (rc || w->got.n >= WRITES_MAX)
		fail(w->b, "cell %u: %d (%s)", i, rc, kvdb_error_detail()->text);
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;

	for (unsigned i = 0; i < VAL_MAX; i++)
		w->put.fill[i] = (uint8_t)(w->no + i);
	while (!over(w->b)) {
		switch (rnd(w, 12)) {
		case 0:
			snapshot(w);
			break;
		case 1: case 2:
			add_one(w);
			break;
		case 3:
			cell_plain(w);
			break;
		case 4: case 5:
			cell_txn(w);
			break;
		case 6:
			cell_read(w);
			break;
		default:
			transfer(w);
		}
	}
	return NULL;
}

/* Keeps memtables switching, and an old snapshot over all of it. */
static void *drain_main(void *arg)
{
	struct worker *w = arg;
	uint64_t n = 0;

	while (!over(w->b)) {
		struct kvdb_txn *t = begin(w, KVDB_TXN_RDONLY);
		uint64_t a = t ? sum_get(w, t) : NO_SUM, z;
		struct timespec ts = { .tv_nsec = 20000000 };
		int rc;

		nanosleep(&ts, NULL);
		rc = kvdb_drain(w->b->db, n++ % 4 ? KVDB_WAIT_FLUSH :
				KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT);
		if (rc)
			fail(w->b, "drain: %d (%s)", rc, kvdb_error_detail()->text);
		/* one that was given up says so, and shows nothing */
		z = a == NO_SUM ? a : sum_walk(w, t, 0);
		if (z != NO_SUM && z != a)
			fail(w->b, "a snapshot changed while memtables were flushed");
		kvdb_txn_abort(t);
	}
	return NULL;
}

/* ---- the whole ---------------------------------------------------------------------------- */

static struct kvdb_opts opts(uint32_t interval_ms, uint32_t logs)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;

	o.interval_ms = interval_ms;
	o.logs = logs;
	o.cache_bytes = 64u << 20;
	o.log_bytes = 8u << 20;
	o.segment_bytes = 256u << 10;
	return o;
}

static void stores_open(struct bench *b)
{
	T_EQ(kvdb_kvs_open(b->db, "s0", &b->kvs[0]), 0);
	T_EQ(kvdb_kvs_open(b->db, "s1", &b->kvs[1]), 0);
}

static void bench_make(struct bench *b, const struct kvdb_opts *o)
{
	struct mpool_dev_spec dev = { .mclass = MPOOL_CAPACITY, .size = POOL_BYTES };
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	const char *tmp = getenv("TMPDIR");
	struct worker w = { .b = b, .rnd = 1 };
	struct kvdb_txn *t;
	char key[16];

	memset(b, 0, sizeof(*b));
	pthread_mutex_init(&b->lock, NULL);
	snprintf(b->dir, sizeof(b->dir), "%s/txn-XXXXXX", tmp ? tmp : "/tmp");
	T_OK(mkdtemp(b->dir));
	co.devs = &dev;
	co.ndevs = 1;
	T_EQ(mpool_create(b->dir, &co), 0);
	T_EQ(kvdb_create(b->dir, o), 0);
	T_EQ(kvdb_open(b->dir, o, &b->db), 0);
	T_EQ(kvdb_kvs_create(b->db, "s0", NULL), 0);
	T_EQ(kvdb_kvs_create(b->db, "s1", NULL), 0);
	stores_open(b);
	t = begin(&w, 0);
	for (unsigned s = 0; s < STORES; s++) {
		for (unsigned i = 0; i < ACCOUNTS; i++) {
			snprintf(key, sizeof(key), "a%03u", i);
			T_EQ(tput(&w, t, s, key, BALANCE, 0), 0);
		}
	}
	for (unsigned i = 0; i < COUNTERS; i++) {
		snprintf(key, sizeof(key), "c%u", i);
		T_EQ(tput(&w, t, i % STORES, key, 0, 0), 0);
	}
	for (unsigned i = 0; i < CELLS; i++) {
		snprintf(key, sizeof(key), "x%u", i);
		T_EQ(tput(&w, t, 0, key, write_no(&w), 0), 0);
	}
	T_EQ(kvdb_txn_commit(t, 0, NULL), 0);
}

static void bench_check(struct bench *b)
{
	struct worker w = { .b = b, .rnd = 1 };
	struct kvdb_txn *t;
	char key[16];

	b->end_ns = UINT64_MAX;
	atomic_store(&b->stop, false);
	snapshot(&w);
	t = begin(&w, 0);
	for (unsigned i = 0; i < COUNTERS; i++) {
		snprintf(key, sizeof(key), "c%u", i);
		T_EQ(tget(&w, t, i % STORES, key), 0);
		T_EQ(w.got.n, atomic_load(&b->count[i]));
	}
	for (unsigned i = 0; i < CELLS; i++) {
		snprintf(key, sizeof(key), "x%u", i);
		T_EQ(tget(&w, t, 0, key), 0);
		T_EQ(atomic_load(&b->replaced[w.got.n]), 0);
	}
	kvdb_txn_abort(t);
	if (b->why[0])
		T_FAIL("%s", b->why);
}

static unsigned seconds(void)
{
	return getenv("TEST_SHORT") ? 1 : getenv("TEST_LONG") ? 20 : 3;
}

static void bench_run(unsigned nthreads, const struct kvdb_opts *o)
{
	struct worker *w = calloc(nthreads + 1, sizeof(*w));
	pthread_t t[THREADS_MAX + 1];
	struct bench *b = &bench;
	struct kvdb_stats st;

	T_OK(w);
	bench_make(b, o);
	b->end_ns = now_ns() + seconds() * 1000000000ull;
	for (unsigned i = 0; i <= nthreads; i++) {
		w[i].b = b;
		w[i].no = i;
		w[i].rnd = t_seed() + i;
		T_EQ(pthread_create(&t[i], NULL, i < nthreads ? worker_main : drain_main, &w[i]),
		     0);
	}
	for (unsigned i = 0; i <= nthreads; i++)
		pthread_join(t[i], NULL);
	T_EQ(kvdb_stats(b->db, &st), 0);
	printf("# %u threads: %" PRIu64 " transfers, %" PRIu64 " conflicts, %" PRIu64
	       " snapshots, %" PRIu64 " plain, %" PRIu64 " flushes, %" PRIu64 " merges, %" PRIu64
	       " skipped, %" PRIu64 " given up\n",
	       nthreads, atomic_load(&b->commits), atomic_load(&b->conflicts),
	       atomic_load(&b->snapshots), atomic_load(&b->plains), st.flushes, st.merges,
	       st.skipped_records, atomic_load(&b->given_up));
	if (b->why[0])
		T_FAIL("%s", b->why);
	T_OK(atomic_load(&b->given_up) <= (atomic_load(&b->commits) +
					   atomic_load(&b->snapshots)) / 16);
	T_EQ(st.views, 0);
	T_EQ(st.txn_begun, st.txn_committed + st.txn_aborted);
	bench_check(b);
	T_EQ(kvdb_close(b->db), 0);
	T_EQ(kvdb_open(b->dir, o, &b->db), 0);
	stores_open(b);
	bench_check(b);
	T_EQ(kvdb_close(b->db), 0);
	T_EQ(mpool_destroy(b->dir, NULL), 0);
	rmdir(b->dir);
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

static void sixtyfour_threads(void)
{
	struct kvdb_opts o = opts(100, 4);

	bench_run(64, &o);
}

int main(void)
{
	T_RUN(four_threads);
	T_RUN(sixteen_threads_short_epochs);
	T_RUN(sixtyfour_threads);
	return t_done();
}
