/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Soak: everything a database does, on a working set that does not grow, for
 * MINUTES=. It goes in rounds; each ends settled, closed and opened again.
 * Asked for, once it is warm:
 *  - memory that is in use and descriptors, with the database closed, do not grow,
 *    nor does the resident size of the open one beyond the budget;
 *  - space stays within space_amp_max of what lives by the model, and a segment per stream;
 *  - no acknowledgement is given while an older one is not durable for longer than
 *    the loss bound;
 *  - every read is what the model says;
 *  - p99.9 of the last quarter is within 20 % of the first one's: always shown, asked
 *    for in runs of half an hour that no other process disturbed on the processors it may use
 *    (taskset gives it some of its own on a machine that has other work).
 */
#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <unistd.h>

#include <kvdb/kvdb.h>

#include "bench_hist.h"
#include "harness.h"

#define KEYS		16000u
#define VALUE_MOST	3000u
#define LOGS		2u
#define BOUND_MS	100u
#define MIB		(1ull << 20)
#define SECOND		1000000000ull
#define TTL_SLACK	3u	/* seconds around an expiry when either is right */
#define HEAP_SLACK	(256u << 10)
#define HELD		8u	/* keys that a snapshot looks at again */

struct soak_key {
	uint32_t sk_version;	/* 0 = absent */
	uint64_t sk_alive, sk_gone;	/* there until, gone from; 0 = it stays */
};

/* what a round left behind */
struct soak_round {
	uint64_t ro_heap, ro_rss;
	unsigned ro_fds;
};

static char path[512];
static struct kvdb *db;
static struct kvdb_kvs *kvs;
static struct kvdb_opts opts = KVDB_OPTS_INIT;
static struct soak_key model[KEYS];
static uint32_t versions;
static uint64_t rnd, started, length, ops;
static struct bench_hist hist[4];	/* of each quarter */
/* one acknowledgement that is watched until it is durable; epoch 0 = none */
static uint64_t watch_epoch, watch_ns, watched, oldest_ns;
/* a snapshot that stays open for a while */
static struct kvdb_txn *snap;
static struct { unsigned key; struct soak_key was; } held[HELD];
static bool has_ckpt[2];

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * SECOND + (uint64_t)ts.tv_nsec;
}

static unsigned pick(unsigned n)
{
	return (unsigned)(t_rand(&rnd) % n);
}

static size_t key_make(unsigned k, char *key)
{
	return (size_t)snprintf(key, 16, "key%06u", k);
}

static size_t value_make(unsigned k, uint32_t version, uint8_t *val)
{
	uint64_t s = ((uint64_t)k << 32) ^ version, x;
	size_t len = t_rand(&s) % VALUE_MOST, i;

	for (i = 0; i < len; i += 8) {
		x = t_rand(&s);
		memcpy(val + i, &x, 8);
	}
	return len;
}

/* ---- the model ---------------------------------------------------------------------- */

enum soak_is { IS_ABSENT, IS_THERE, IS_EITHER };

static enum soak_is state_at(const struct soak_key *sk, uint64_t ns)
{
	if (!sk->sk_version)
		return IS_ABSENT;
	if (!sk->sk_gone)
		return IS_THERE;
	return ns < sk->sk_alive ? IS_THERE : ns > sk->sk_gone ? IS_ABSENT : IS_EITHER;
}

static enum soak_is state_of(const struct soak_key *sk)
{
	return state_at(sk, now_ns());
}

/* What a read of @k returned; @before: the key's state when it began. */
static void look(unsigned k, const struct soak_key *sk, enum soak_is before, int rc,
		 const uint8_t *got, size_t len)
{
	uint8_t want[VALUE_MOST + 8];
	enum soak_is after = state_of(sk);

	if (rc == -ENOENT) {
		if (before == IS_THERE && after == IS_THERE)
			T_FAIL("key %u, version %u is not there", k, sk->sk_version);
		return;
	}
	if (rc)
		T_FAIL("get: %s", kvdb_error_detail()->text);
	if (before == IS_ABSENT)
		T_FAIL("key %u is there", k);
	if (len != value_make(k, sk->sk_version, want) || memcmp(got, want, len))
		T_FAIL("key %u, version %u: other bytes", k, sk->sk_version);
}

static uint64_t live_bytes(void)
{
	uint8_t val[VALUE_MOST + 8];
	uint64_t n = 0;
	char key[16];

	for (unsigned k = 0; k < KEYS; k++)
		if (state_of(&model[k]) != IS_ABSENT)
			n += key_make(k, key) + value_make(k, model[k].sk_version, val);
	return n;
}

/* ---- the loss bound ------------------------------------------------------------------- */

/*
 * At an acknowledgement that was given after @before, the one that is watched must be
 * durable, or younger than the bound. What is read late here makes it look younger.
 */
static void watch(uint64_t before, uint64_t epoch)
{
	struct kvdb_stats st;
	uint64_t age;

	T_EQ(kvdb_stats(db, &st), 0);
	if (watch_epoch && st.durable_epoch >= watch_epoch)
		watch_epoch = 0;
	age = watch_epoch && before > watch_ns ? before - watch_ns : 0;
	if (age > oldest_ns)
		oldest_ns = age;
	if (age > BOUND_MS * 1000000ull)
		T_FAIL("acknowledged %llu us behind one that is not durable",
		       (unsigned long long)age / 1000);
	/* only when it is certain which epoch the write went to */
	if (watch_epoch || st.epoch != epoch)
		return;
	watch_epoch = epoch;
	watch_ns = now_ns();
	watched++;
}

/* ---- operations ------------------------------------------------------------------------ */

static void timed(uint64_t t0)
{
	uint64_t t = now_ns(), quarter = (t - started) * 4 / length;

	bench_hist_add(&hist[quarter < 3 ? quarter : 3], t - t0);
}

static void do_put(void)
{
	struct soak_key *sk;
	uint8_t val[VALUE_MOST + 8];
	bool is_watched = ops % 8 == 0;
	unsigned k = pick(KEYS), ttl = pick(10) ? 0 : TTL_SLACK + 1 + pick(3);
	struct kvdb_stats st = { .epoch = 0 };
	uint32_t version = ++versions;
	uint64_t t0;
	char key[16];
	size_t len = value_make(k, version, val);

	if (is_watched)
		T_EQ(kvdb_stats(db, &st), 0);
	t0 = now_ns();
	if (ttl ? kvdb_put_ttl(kvs, key, key_make(k, key), val, len, ttl) :
		  kvdb_put(kvs, key, key_make(k, key), val, len))
		T_FAIL("put: %s", kvdb_error_detail()->text);
	timed(t0);
	sk = &model[k];
	sk->sk_version = version;
	sk->sk_alive = ttl ? t0 + (ttl - TTL_SLACK) * SECOND : 0;
	sk->sk_gone = ttl ? now_ns() + (ttl + TTL_SLACK) * SECOND : 0;
	if (is_watched)
		watch(t0, st.epoch);
}

static void do_get(unsigned k)
{
	enum soak_is before = state_of(&model[k]);
	uint8_t got[VALUE_MOST + 8];
	uint64_t t0 = now_ns();
	char key[16];
	size_t len = 0;
	int rc = kvdb_get(kvs, key, key_make(k, key), got, sizeof(got), &len);

	timed(t0);
	look(k, &model[k], before, rc, got, len);
}

static void do_del(void)
{
	unsigned k = pick(KEYS);
	char key[16];

	T_EQ(kvdb_del(kvs, key, key_make(k, key)), 0);
	model[k] = (struct soak_key){ 0 };
}

static void do_txn(void)
{
	struct { unsigned k; uint32_t version; } wr[3];
	uint8_t val[VALUE_MOST + 8];
	bool is_kept = pick(8);
	struct kvdb_txn *txn;
	unsigned i, n = 1 + pick(3);
	size_t len;
	char key[16];
	int rc;

	T_EQ(kvdb_txn_begin(db, 0, &txn), 0);
	for (i = 0; i < n; i++) {
		unsigned k = wr[i].k = pick(KEYS / n) + i * (KEYS / n);
		enum soak_is before = state_of(&model[k]);

		len = 0;
		rc = kvdb_txn_get(txn, kvs, key, key_make(k, key), val, sizeof(val), &len);
		look(k, &model[k], before, rc, val, len);
		wr[i].version = pick(6) ? ++versions : 0;
		len = value_make(k, wr[i].version, val);
		T_EQ(wr[i].version ? kvdb_txn_put(txn, kvs, key, key_make(k, key), val, len) :
				     kvdb_txn_del(txn, kvs, key, key_make(k, key)), 0);
	}
	if (!is_kept) {
		kvdb_txn_abort(txn);
		return;
	}
	T_EQ(kvdb_txn_commit(txn, 0, NULL), 0);
	for (i = 0; i < n; i++)
		model[wr[i].k] = (struct soak_key){ .sk_version = wr[i].version };
}

/* From a place on: all keys that are there, in order, and no others. */
static void do_scan(void)
{
	unsigned next = pick(KEYS), n = 40, k;
	uint64_t opened = now_ns();
	struct kvdb_cursor *cur;
	const void *key, *val;
	size_t klen, vlen;
	char at[16];
	int rc = 0;

	T_EQ(kvdb_cursor_open(kvs, 0, NULL, 0, &cur), 0);
	T_EQ(kvdb_cursor_seek(cur, at, key_make(next, at)), 0);
	while (n-- && !(rc = kvdb_cursor_next(cur, &key, &klen, &val, &vlen))) {
		T_OK(klen == 9 && sscanf((const char *)key + 3, "%6u", &k) == 1 && k >= next);
		for (; next < k; next++)
			if (state_of(&model[next]) == IS_THERE)
				T_FAIL("a cursor passes over key %u", next);
		look(k, &model[k], state_at(&model[k], opened), 0, val, vlen);
		next++;
	}
	kvdb_cursor_close(cur);
	/* it may be given up for memory */
	if (rc && rc != -ENOENT && rc != -ESTALE)
		T_FAIL("cursor: %s", kvdb_error_detail()->text);
}

static void snap_end(void)
{
	kvdb_txn_abort(snap);
	snap = NULL;
}

/* A snapshot shows what was there when it began. */
static void do_snap(void)
{
	uint8_t got[VALUE_MOST + 8];
	unsigned i;
	char key[16];

	if (!snap) {
		T_EQ(kvdb_txn_begin(db, KVDB_TXN_RDONLY, &snap), 0);
		for (i = 0; i < HELD; i++) {
			held[i].key = pick(KEYS);
			held[i].was = model[held[i].key];
		}
		return;
	}
	for (i = 0; i < HELD; i++) {
		size_t len = 0;
		int rc = kvdb_txn_get(snap, kvs, key, key_make(held[i].key, key), got,
				      sizeof(got), &len);

		/* it may be given up for memory; what expires may do so in it, too */
		if (rc == -ESTALE)
			break;
		if (!held[i].was.sk_gone)
			look(held[i].key, &held[i].was, state_of(&held[i].was), rc, got, len);
	}
	snap_end();
}

/* Makes a checkpoint, or drops the one of that name. */
static void ckpt_turn(unsigned i)
{
	char name[16];

	snprintf(name, sizeof(name), "c%u", i);
	T_EQ(has_ckpt[i] ? kvdb_checkpoint_drop(db, name) : kvdb_checkpoint(db, name, 0), 0);
	has_ckpt[i] = !has_ckpt[i];
}

static void step(void)
{
	unsigned w = pick(10000);

	ops++;
	if (w < 4500)
		do_put();
	else if (w < 8500)
		do_get(pick(KEYS));
	else if (w < 9000)
		do_del();
	else if (w < 9500)
		do_txn();
	else if (w < 9900)
		do_scan();
	else if (w < 9990)
		do_snap();
	else if (w < 9997)
		T_EQ(kvdb_sync(db), 0);
	else if (w < 9999)
		ckpt_turn(pick(2));
	else
		T_EQ(kvdb_compact(db, 0), 0);
}

/* ---- rounds ------------------------------------------------------------------------------ */

static void open_all(void)
{
	T_EQ(kvdb_open(path, &opts, &db), 0);
	T_EQ(kvdb_kvs_open(db, "soak", &kvs), 0);
	watch_epoch = 0;
}

static unsigned descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

static uint64_t resident(void)
{
	FILE *f = fopen("/proc/self/statm", "re");
	unsigned long long all = 0, here = 0;

	if (!f || fscanf(f, "%llu %llu", &all, &here) != 2)
		T_FAIL("/proc/self/statm");
	fclose(f);
	return here * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void space_is_bounded(void)
{
	uint64_t live, least = UINT64_MAX;
	struct kvdb_stats st;
	struct kvdb_info in;
	unsigned i;

	for (i = 0; i < 2; i++)
		if (has_ckpt[i])
			ckpt_turn(i);
	T_EQ(kvdb_info(db, &in), 0);
	for (i = 0; i < 2; i++) {
		T_EQ(kvdb_compact(db, 0), 0);
		T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
		T_EQ(kvdb_stats(db, &st), 0);
		least = st.space_bytes < least ? st.space_bytes : least;
	}
	live = live_bytes();
	if (least > live + live / 2 + 2ull * LOGS * in.segment_bytes)
		T_FAIL("%llu bytes on media, %llu live", (unsigned long long)least,
		       (unsigned long long)live);
}

static void one_round(uint64_t until, struct soak_round *ro)
{
	while (now_ns() < until)
		step();
	if (snap)
		snap_end();
	space_is_bounded();
	for (unsigned k = 0; k < KEYS; k += 1 + pick(16))
		do_get(k);
	ro->ro_rss = resident();
	T_EQ(kvdb_close(db), 0);
	ro->ro_heap = mallinfo2().uordblks + mallinfo2().hblkhd;
	ro->ro_fds = descriptors();
	open_all();
}

/* ---- other processes ----------------------------------------------------------------- */

struct soak_cpu {
	uint64_t cp_all, cp_idle, cp_steal;	/* ticks of the processors this may run on */
	double cp_own;				/* seconds */
};

static void cpu_read(struct soak_cpu *c)
{
	unsigned long long v[8];
	struct rusage ru;
	unsigned cpu, i;
	cpu_set_t mine;
	char line[512];
	FILE *f = fopen("/proc/stat", "re");

	T_OK(f);
	T_EQ(sched_getaffinity(0, sizeof(mine), &mine), 0);
	*c = (struct soak_cpu){ 0 };
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "cpu%u %llu %llu %llu %llu %llu %llu %llu %llu", &cpu, &v[0],
			   &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7]) != 9 ||
		    cpu >= CPU_SETSIZE || !CPU_ISSET(cpu, &mine))
			continue;
		for (i = 0; i < 8; i++)
			c->cp_all += v[i];
		c->cp_idle += v[3] + v[4];
		c->cp_steal += v[7];
	}
	fclose(f);
	getrusage(RUSAGE_SELF, &ru);
	c->cp_own = (double)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) +
		    (double)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) / 1e6;
}

/* Part of the processors' time that others took, and the hypervisor. */
static double others(const struct soak_cpu *a, const struct soak_cpu *b)
{
	double all = (double)(b->cp_all - a->cp_all);
	double busy = all - (double)(b->cp_idle - a->cp_idle);

	return all > 0 ? (busy - (b->cp_own - a->cp_own) * (double)sysconf(_SC_CLK_TCK)) / all : 1;
}

/* ---- all of it ----------------------------------------------------------------------- */

static void rounds_are_flat(const struct soak_round *ro, unsigned n)
{
	const struct soak_round *warm = &ro[n / 3], *end = &ro[n - 1];
	uint64_t rss = 0;
	unsigned i;

	for (i = n / 3; i < (2 * n + 2) / 3; i++)
		rss = ro[i].ro_rss > rss ? ro[i].ro_rss : rss;
	printf("# in use when closed: %llu KiB warm, %llu KiB at the end; resident %llu MiB at "
	       "most, %llu MiB at the end; descriptors %u, %u\n",
	       (unsigned long long)warm->ro_heap >> 10, (unsigned long long)end->ro_heap >> 10,
	       (unsigned long long)(rss / MIB), (unsigned long long)(end->ro_rss / MIB),
	       warm->ro_fds, end->ro_fds);
	T_OK(end->ro_heap <= warm->ro_heap + HEAP_SLACK);
	/* a slow machine fills its budget late */
	T_OK(end->ro_rss <= rss + rss / 10 || end->ro_rss <= opts.cache_bytes + 16 * MIB);
	T_EQ(end->ro_fds, warm->ro_fds);
}

static void a_database_lasts(void)
{
	const char *s = getenv("MINUTES"), *tmp = getenv("TMPDIR");
	double minutes = s ? atof(s) : getenv("TEST_LONG") ? 120 : getenv("TEST_SHORT") ? 0.4 : 1.2;
	struct mpool_dev_spec dev = { .mclass = MPOOL_CAPACITY, .size = 512 * MIB };
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	unsigned n = minutes < 12 ? 12 : (unsigned)minutes, i;
	struct soak_round *ro = calloc(n, sizeof(*ro));
	struct soak_cpu from, to;
	double first, last, drift, alien;

	T_OK(ro);
	rnd = t_seed();
	snprintf(path, sizeof(path), "%s/soak-XXXXXX", tmp ? tmp : "/tmp");
	T_OK(mkdtemp(path));
	co.devs = &dev;
	co.ndevs = 1;
	co.name = "soak";
	opts.cache_bytes = 64 * MIB;
	opts.logs = LOGS;
	opts.interval_ms = BOUND_MS;
	opts.segment_bytes = 256u << 10;
	T_EQ(mpool_create(path, &co), 0);
	T_EQ(kvdb_create(path, &opts), 0);
	T_EQ(kvdb_open(path, &opts, &db), 0);
	T_EQ(kvdb_kvs_create(db, "soak", NULL), 0);
	T_EQ(kvdb_close(db), 0);
	open_all();
	length = (uint64_t)(minutes * 60 * (double)SECOND);
	started = now_ns();
	cpu_read(&from);
	for (i = 0; i < n; i++)
		one_round(started + length / n * (i + 1), &ro[i]);
	cpu_read(&to);
	T_EQ(kvdb_close(db), 0);
	first = (double)bench_hist_quantile(&hist[0], 0.999);
	last = (double)bench_hist_quantile(&hist[3], 0.999);
	drift = first > 0 ? last / first - 1 : 1;
	alien = others(&from, &to);
	rounds_are_flat(ro, n);
	printf("# p99.9 %.0f us in the first quarter, %.0f us in the last; others took %.1f %% of "
	       "the processors, steal %.1f %%\n", first / 1000, last / 1000, 100 * alien,
	       100.0 * (double)(to.cp_steal - from.cp_steal) / (double)(to.cp_all - from.cp_all));
	printf("# oldest that was not durable: %.1f of %u ms, of %llu watched\n",
	       (double)oldest_ns / 1e6, BOUND_MS, (unsigned long long)watched);
	t_figure("soak", "%.1f minutes, %llu operations, %u opens; p99.9 %+.0f %%, %s", minutes,
		 (unsigned long long)ops, n + 1, 100 * drift,
		 alien > 0.05 ? "disturbed" : "undisturbed");
	T_OK(watched > 0);
	if (minutes >= 30 && alien <= 0.05)
		T_OK(drift < 0.2);
	T_EQ(kvdb_drop(path, NULL), 0);
	T_EQ(mpool_destroy(path, NULL), 0);
	rmdir(path);
	free(ro);
}

int main(void)
{
	T_RUN(a_database_lasts);
	return t_done();
}
