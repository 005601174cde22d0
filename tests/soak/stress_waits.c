/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A large store with small values, KEYS= million of them: bulk loaded, overwritten, read, scanned,
 * ranges deleted, in transactions and snapshots, closed behind each, and opened again. Asked for:
 *  - a call that takes more than 100 ms says why: it used a processor or waited for one, or
 *    kvdb_waits() has the cause. Each such call is printed with its causes;
 *  - no open and no close takes a second, besides what others have of the processors: behind
 *    the bulk load, behind puts, behind 48 runs, with a merge at work;
 *  - what is read is right.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "../conform/kvdb_help.h"

#define MILLION		1000000u
#define LONG_NS		100000000ull	/* a call that has to say why */
#define SECOND		1000000000ull
#define LOOK_NS		10000000u	/* as old may what the kernel counts be at a call's begin */
#define RANGE		64u		/* keys that one range delete takes */
#define VALUE		16u
#define RUNS		48u		/* above the leaves */

enum call { PUT, GET, STEP, SEEK, COMMIT, RANGE_DEL, OLD_GET, ADD, FINISH, OPEN, CLOSE, CALLS };

static const char *const call_name[CALLS] = { "put", "get", "cursor step", "cursor seek", "commit",
					      "range delete", "get in a snapshot", "bulk add",
					      "bulk finish", "open", "close" };

/* What one thread does, and what its calls took. */
struct actor {
	const char *ac_what;
	void (*ac_fn)(struct actor *ac);
	pthread_t ac_thread;
	uint64_t ac_rnd, ac_calls;
	unsigned ac_failed;	/* wrong answers, and calls that did not say why */
	int ac_sched;		/* /proc/thread-self/schedstat */
	uint64_t ac_begun;	/* the call */
	/* and the waits: when, and what was counted then */
	uint64_t ac_looked, ac_cpu, ac_queue, ac_stolen;
	struct kvdb_delays ac_waits[KVDB_WAITS];
	uint64_t ac_n[CALLS], ac_longest[CALLS];
};

static struct kvdb_kvs *kvs;
static uint64_t keys;
static _Atomic(bool) stop;

static uint64_t clock_of(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* How long this thread was ready and had no processor. */
static uint64_t queued(const struct actor *ac)
{
	char buf[96] = "";
	unsigned long long ran, waited = 0;

	if (pread(ac->ac_sched, buf, sizeof(buf) - 1, 0) > 0)
		sscanf(buf, "%llu %llu", &ran, &waited);
	return waited;
}

/* What the host of a virtual machine took of its processors. */
static uint64_t stolen(void)
{
	FILE *f = fopen("/proc/stat", "re");
	unsigned long long ticks = 0;

	if (f && fscanf(f, "cpu %*u %*u %*u %*u %*u %*u %*u %llu", &ticks) != 1)
		ticks = 0;
	if (f)
		fclose(f);
	return ticks * (1000000000u / (uint64_t)sysconf(_SC_CLK_TCK));
}

static void actor_begin(struct actor *ac)
{
	ac->ac_sched = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
}

static void begin(struct actor *ac)
{
	ac->ac_begun = clock_of(CLOCK_MONOTONIC);
	if (ac->ac_begun - ac->ac_looked < LOOK_NS)
		return;
	ac->ac_looked = ac->ac_begun;
	ac->ac_cpu = clock_of(CLOCK_THREAD_CPUTIME_ID);
	ac->ac_queue = queued(ac);
	ac->ac_stolen = stolen();
	kvdb_waits(ac->ac_waits);
}

/* A call that took @ns: what it says of them. Returns how long it had no processor. */
static uint64_t explain(struct actor *ac, enum call call, uint64_t ns)
{
	uint64_t cpu = clock_of(CLOCK_THREAD_CPUTIME_ID) - ac->ac_cpu;
	uint64_t queue = queued(ac) - ac->ac_queue, host = stolen() - ac->ac_stolen;
	uint64_t sum = cpu + queue + host;
	struct kvdb_delays now[KVDB_WAITS];
	char text[1024];
	int n;

	kvdb_waits(now);
	n = snprintf(text, sizeof(text),
		     "# %s: %s took %.0f ms: processor %.0f, queue for one %.0f, host %.0f",
		     ac->ac_what, call_name[call], (double)ns / 1e6, (double)cpu / 1e6,
		     (double)queue / 1e6, (double)host / 1e6);
	for (unsigned i = 0; i < KVDB_WAITS; i++) {
		uint64_t had = now[i].ns - ac->ac_waits[i].ns;

		sum += had;
		if (had)
			n += snprintf(text + n, sizeof(text) - (size_t)n, ", %s %.0f",
				      kvdb_delay_name(i), (double)had / 1e6);
	}
	if (sum + LONG_NS < ns) {
		snprintf(text + n, sizeof(text) - (size_t)n, "; %.0f HAVE NO CAUSE",
			 (double)(ns - sum) / 1e6);
		ac->ac_failed++;
	}
	puts(text);
	fflush(stdout);
	ac->ac_looked = 0;
	return queue + host;
}

/* What the call took that a processor was there for. */
static uint64_t end(struct actor *ac, enum call call)
{
	uint64_t ns = clock_of(CLOCK_MONOTONIC) - ac->ac_begun;
	uint64_t none = ns > LONG_NS ? explain(ac, call, ns) : 0;

	ac->ac_calls++;
	ac->ac_n[call]++;
	if (ns > ac->ac_longest[call])
		ac->ac_longest[call] = ns;
	return ns > none ? ns - none : 0;
}

/* What another actor did counts as the main thread's. */
static void add(struct actor *to, const struct actor *ac)
{
	for (unsigned i = 0; i < CALLS; i++) {
		to->ac_n[i] += ac->ac_n[i];
		if (ac->ac_longest[i] > to->ac_longest[i])
			to->ac_longest[i] = ac->ac_longest[i];
	}
	to->ac_failed += ac->ac_failed;
}

#define WANT(ac, is)	do { if (!(is)) wrong(ac, #is, __LINE__); } while (0)

static void wrong(struct actor *ac, const char *what, int line)
{
	if (ac->ac_failed++ < 10)
		printf("# %s, line %d: not %s: %s\n", ac->ac_what, line, what,
		       kvdb_error_detail()->text);
}

/* ---- keys and values: of key i the first eight bytes of the value are i -------------------- */

static size_t key_of(uint64_t i, char *key)
{
	for (int b = 0; b < 8; b++)
		key[b] = (char)(i >> (56 - 8 * b));
	return 8;
}

static void value_of(uint64_t i, uint64_t version, char *val)
{
	key_of(i, val);
	key_of(version, val + 8);
}

static bool is_of(const void *val, size_t len, uint64_t i)
{
	char want[8];

	return len == VALUE && !memcmp(val, want, key_of(i, want));
}

/* ---- what threads do ---------------------------------------------------------------- */

static void do_puts(struct actor *ac)
{
	uint64_t i = t_rand(&ac->ac_rnd) % keys;
	char key[8], val[VALUE];
	int rc;

	value_of(i, ac->ac_calls, val);
	begin(ac);
	rc = kvdb_put(kvs, key, key_of(i, key), val, VALUE);
	end(ac, PUT);
	WANT(ac, !rc);
}

static void do_gets(struct actor *ac)
{
	uint64_t i = t_rand(&ac->ac_rnd) % keys;
	char key[8], val[VALUE];
	size_t len;
	int rc;

	begin(ac);
	rc = kvdb_get(kvs, key, key_of(i, key), val, VALUE, &len);
	end(ac, GET);
	WANT(ac, rc == -ENOENT || (!rc && is_of(val, len, i)));
}

static void do_scan(struct actor *ac)
{
	uint64_t i = t_rand(&ac->ac_rnd) % keys, last = 0;
	struct kvdb_cursor *cur;
	const void *k, *v;
	size_t klen, vlen;
	char key[8];
	int rc;

	WANT(ac, !kvdb_cursor_open(kvs, 0, NULL, 0, &cur));
	begin(ac);
	rc = kvdb_cursor_seek(cur, key, key_of(i, key));
	end(ac, SEEK);
	for (unsigned n = 0; n < 1000 && !rc; n++) {
		begin(ac);
		rc = kvdb_cursor_next(cur, &k, &klen, &v, &vlen);
		end(ac, STEP);
		if (rc)
			break;
		i = 0;
		for (unsigned b = 0; b < 8; b++)
			i = i << 8 | ((const unsigned char *)k)[b];
		WANT(ac, klen == 8 && i >= last && is_of(v, vlen, i));
		last = i + 1;
	}
	WANT(ac, !rc || rc == -ENOENT);
	kvdb_cursor_close(cur);
}

/* Two keys in one transaction, and a snapshot that does not see it. */
static void do_txns(struct actor *ac)
{
	uint64_t i = t_rand(&ac->ac_rnd) % (keys - 1);
	struct kvdb_txn *old, *txn;
	char key[8], val[VALUE], was[VALUE], is[VALUE];
	size_t len;
	int had, rc;

	WANT(ac, !kvdb_txn_begin(kh_db, KVDB_TXN_RDONLY, &old));
	WANT(ac, !kvdb_txn_begin(kh_db, 0, &txn));
	begin(ac);
	had = kvdb_txn_get(old, kvs, key, key_of(i, key), was, VALUE, &len);
	end(ac, OLD_GET);
	value_of(i, ac->ac_calls, val);
	rc = kvdb_txn_put(txn, kvs, key, key_of(i, key), val, VALUE);
	value_of(i + 1, ac->ac_calls, val);
	rc = rc ? rc : kvdb_txn_put(txn, kvs, key, key_of(i + 1, key), val, VALUE);
	begin(ac);
	rc = rc ? rc : kvdb_txn_commit(txn, 0, NULL);
	end(ac, COMMIT);
	if (rc)	/* a put came between */
		kvdb_txn_abort(txn);
	WANT(ac, !rc || rc == -ECANCELED || rc == -ESTALE);
	begin(ac);
	rc = kvdb_txn_get(old, kvs, key, key_of(i, key), is, VALUE, &len);
	end(ac, OLD_GET);
	/* one that was given up for memory says so */
	WANT(ac, rc == -ESTALE || (rc == had && (rc || !memcmp(is, was, VALUE))));
	kvdb_txn_abort(old);
}

static void do_range_dels(struct actor *ac)
{
	uint64_t i = t_rand(&ac->ac_rnd) % (keys - RANGE);
	char from[8], to[8];
	int rc;

	begin(ac);
	rc = kvdb_range_del(kvs, from, key_of(i, from), to, key_of(i + RANGE, to));
	end(ac, RANGE_DEL);
	WANT(ac, !rc || rc == -ECANCELED);
	usleep(1000);	/* a thousand a second, not as many as it can */
}

static void *actor_main(void *arg)
{
	struct actor *ac = arg;

	actor_begin(ac);
	while (!atomic_load(&stop))
		ac->ac_fn(ac);
	close(ac->ac_sched);
	return NULL;
}

/* ---- phases ------------------------------------------------------------------------- */

static struct actor me = { .ac_what = "main" };

static void open_it(void)
{
	struct kvdb_opts o = kh_opts();
	uint64_t ns;
	int rc;

	o.cache_bytes = keys < 10 * MILLION ? 64 * MIB : 512 * MIB;
	begin(&me);
	rc = kvdb_open(th_pool, &o, &kh_db);
	ns = end(&me, OPEN);
	T_EQ(rc, 0);
	kvs = kh_kvs("s");
	printf("# open: %.0f ms\n", (double)ns / 1e6);
	T_OK(ns < SECOND);
}

static void close_it(const char *when)
{
	uint64_t ns;
	int rc;

	begin(&me);
	rc = kvdb_close(kh_db);
	ns = end(&me, CLOSE);
	kh_db = NULL;
	T_EQ(rc, 0);
	printf("# close %s: %.0f ms\n", when, (double)ns / 1e6);
	fflush(stdout);
	T_OK(ns < SECOND);
}

static void reopen(const char *when)
{
	close_it(when);
	open_it();
}

/* Keys [@from, @to). */
static void load(uint64_t from, uint64_t to)
{
	struct kvdb_bulk *b;
	char key[8], val[VALUE];
	int rc;

	T_EQ(kvdb_bulk_open(kvs, 0, &b), 0);
	for (uint64_t i = from; i < to; i++) {
		value_of(i, 0, val);
		begin(&me);
		rc = kvdb_bulk_add(b, key, key_of(i, key), val, VALUE);
		end(&me, ADD);
		T_EQ(rc, 0);
	}
	begin(&me);
	rc = kvdb_bulk_finish(b);
	end(&me, FINISH);
	T_EQ(rc, 0);
}

/* Puts, gets, scans, transactions and range deletes beside each other, for @seconds. */
static void mixed(unsigned seconds)
{
	struct actor all[] = {
		{ .ac_what = "puts", .ac_fn = do_puts },
		{ .ac_what = "gets", .ac_fn = do_gets },
		{ .ac_what = "scans", .ac_fn = do_scan },
		{ .ac_what = "transactions", .ac_fn = do_txns },
		{ .ac_what = "range deletes", .ac_fn = do_range_dels },
	};
	unsigned n = sizeof(all) / sizeof(all[0]);

	atomic_store(&stop, false);
	for (unsigned i = 0; i < n; i++) {
		all[i].ac_rnd = t_rand(&kh_rnd);
		T_EQ(pthread_create(&all[i].ac_thread, NULL, actor_main, &all[i]), 0);
	}
	sleep(seconds);
	atomic_store(&stop, true);
	for (unsigned i = 0; i < n; i++) {
		pthread_join(all[i].ac_thread, NULL);
		add(&me, &all[i]);
	}
	T_EQ(me.ac_failed, 0);
}

/* As many runs above the leaves as there may be: beside a bulk load none is merged. */
static void make_runs(void)
{
	struct kvdb_bulk *b;
	struct kvdb_stats st;
	char key[8], val[VALUE];

	T_EQ(kvdb_bulk_open(kvs, 0, &b), 0);
	for (unsigned i = 0; i < RUNS; i++) {
		uint64_t k = t_rand(&kh_rnd) % keys;

		value_of(k, i, val);
		T_EQ(kvdb_put(kvs, key, key_of(k, key), val, VALUE), 0);
		T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	}
	T_EQ(kvdb_stats(kh_db, &st), 0);
	printf("# a get looks at up to %llu runs; %llu leaves\n", (unsigned long long)st.run_depth,
	       (unsigned long long)st.leaves);
	T_OK(st.run_depth >= RUNS);
	kvdb_bulk_abort(b);
}

static void merge_at_work(void)
{
	struct kvdb_stats st;
	uint64_t reads;

	T_EQ(kvdb_stats(kh_db, &st), 0);
	reads = st.merge_keys;
	T_EQ(kvdb_kvs_compact(kvs, 0), 0);
	for (unsigned i = 0; i < 1000 && st.merge_keys == reads; i++) {
		usleep(2000);
		T_EQ(kvdb_stats(kh_db, &st), 0);
	}
}

static void scan_all(void)
{
	struct kvdb_cursor *cur;
	uint64_t n = 0;
	int rc;

	T_EQ(kvdb_cursor_open(kvs, 0, NULL, 0, &cur), 0);
	do {
		begin(&me);
		rc = kvdb_cursor_next(cur, NULL, NULL, NULL, NULL);
		end(&me, STEP);
		n += !rc;
	} while (!rc);
	T_EQ(rc, -ENOENT);
	kvdb_cursor_close(cur);
	printf("# %llu of %llu keys are left\n", (unsigned long long)n, (unsigned long long)keys);
	T_OK(n <= keys && n > keys / 2);
}

static void every_long_wait_says_why_and_no_close_takes_long(void)
{
	kh_make(keys < 10 * MILLION ? 4ull << 30 : 48ull << 30, 0);
	actor_begin(&me);
	open_it();
	load(0, keys / 10);
	reopen("behind the load of a tenth");
	load(keys / 10, keys);
	reopen("behind the bulk load");
	mixed(keys < 10 * MILLION ? 10 : 240);
	reopen("behind puts");
	make_runs();
	reopen("behind 48 runs");
	merge_at_work();
	reopen("with a merge at work");
	mixed(keys < 10 * MILLION ? 5 : 120);
	scan_all();
	close_it("at the end");
	th_clean();
	for (unsigned i = 0; i < CALLS; i++)
		printf("# %-18s %10llu calls, the longest %8.1f ms\n", call_name[i],
		       (unsigned long long)me.ac_n[i], (double)me.ac_longest[i] / 1e6);
	t_figure("waits", "%llu million keys; the longest close %.0f ms",
		 (unsigned long long)(keys / MILLION), (double)me.ac_longest[CLOSE] / 1e6);
	T_EQ(me.ac_failed, 0);
}

int main(void)
{
	const char *s = getenv("KEYS");

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return t_skip_all("a sanitizer takes its time");
#endif
	kh_rnd = t_seed();
	keys = s ? strtoull(s, NULL, 0) : getenv("TEST_LONG") ? 100 : 1;
	keys *= MILLION;
	T_RUN(every_long_wait_says_why_and_no_close_takes_long);
	return t_done();
}
