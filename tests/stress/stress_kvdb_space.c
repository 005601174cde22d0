/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Endurance: a data set is overwritten several times over, uniformly and with
 * a zipfian choice of keys. After each pass settles, space must be within
 * space_amp_max of the live data plus one segment per stream, every value must
 * be the last one written, and the bytes written in all stay within the bound
 * of the workload. The table that is printed is the measurement.
 *
 * MIB=1024 PASSES=10 measure the data set of the issue; less is checked here.
 */
#include <errno.h>
#include <math.h>
#include <time.h>
#include <unistd.h>

#include <kvdb/kvdb.h>

#include "harness.h"

#define VALUE	1000u
#define KEY	24u
#define THETA	0.99

static char path[512];
static struct kvdb *db;
static struct kvdb_kvs *kvs;
static uint32_t *version;	/* of every key */
static uint32_t keys;
static uint64_t rnd;

static int is_short(void)
{
	return getenv("TEST_SHORT") != NULL;
}

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static uint64_t env_num(const char *name, uint64_t or)
{
	const char *s = getenv(name);

	return s && *s ? strtoull(s, NULL, 0) : or;
}

static void key_make(uint32_t k, char *key)
{
	char buf[32];

	snprintf(buf, sizeof(buf), "user%020llu",
		 (unsigned long long)k * 11400714819323198485ull >> 4);
	memcpy(key, buf, KEY);
}

static void value_make(uint32_t k, uint32_t ver, uint8_t *val)
{
	uint64_t s = ((uint64_t)k << 32) ^ ver, x;

	for (unsigned i = 0; i < VALUE; i += 8) {
		x = t_rand(&s);
		memcpy(val + i, &x, 8);
	}
}

static void put(uint32_t k)
{
	uint8_t val[VALUE];
	char key[KEY];

	key_make(k, key);
	value_make(k, ++version[k], val);
	if (kvdb_put(kvs, key, KEY, val, VALUE))
		T_FAIL("put: %s", kvdb_error_detail()->text);
}

/* ---- choice of keys ------------------------------------------------------------- */

static double zipf_zetan, zipf_eta;

static void zipf_init(void)
{
	double zeta2 = 1 + pow(0.5, THETA);

	zipf_zetan = 0;
	for (uint32_t i = 1; i <= keys; i++)
		zipf_zetan += 1 / pow(i, THETA);
	zipf_eta = (1 - pow(2.0 / keys, 1 - THETA)) / (1 - zeta2 / zipf_zetan);
}

static uint32_t zipf_next(void)
{
	double u = (double)(t_rand(&rnd) >> 11) / 9007199254740992.0, uz = u * zipf_zetan;
	uint64_t r;

	if (uz < 1)
		r = 0;
	else if (uz < 1 + pow(0.5, THETA))
		r = 1;
	else
		r = (uint64_t)(keys * pow(zipf_eta * u - zipf_eta + 1, 1 / (1 - THETA)));
	return (uint32_t)(r * 0x9e3779b97f4a7c15ull % keys);
}

static uint32_t uniform_next(void)
{
	return (uint32_t)(t_rand(&rnd) % keys);
}

/* ---- figures --------------------------------------------------------------------- */

static uint64_t written(const struct kvdb_stats *st)
{
	uint64_t n = 0;

	for (int c = 0; c < MPOOL_MCLASSES; c++)
		n += st->io[c].log_bytes + st->io[c].key_bytes + st->io[c].meta_bytes +
		     st->io[c].move_bytes;
	return n;
}

static void values_are_the_last_written(void)
{
	uint8_t want[VALUE], got[VALUE];
	char key[KEY];
	size_t len;

	for (uint32_t k = 0; k < keys; k++) {
		key_make(k, key);
		value_make(k, version[k], want);
		if (kvdb_get(kvs, key, KEY, got, VALUE, &len) || len != VALUE ||
		    memcmp(want, got, VALUE))
			T_FAIL("key %u, version %u: %s", k, version[k], kvdb_error_detail()->text);
	}
}

static void endure(uint32_t (*next)(void), const char *name, double most)
{
	unsigned passes = (unsigned)env_num("PASSES", is_short() ? 2 : 4), pass;
	struct mpool_dev_spec dev = { .mclass = MPOOL_CAPACITY };
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	struct kvdb_opts o = KVDB_OPTS_INIT;
	uint64_t live = env_num("MIB", is_short() ? 24 : 64) << 20;
	struct kvdb_stats base, st, was;
	const char *tmp = getenv("TMPDIR");
	struct kvdb_info in;
	double amp, wa = 0;

	keys = (uint32_t)(live / (KEY + VALUE));
	live = (uint64_t)keys * (KEY + VALUE);
	version = calloc(keys, sizeof(*version));
	rnd = t_seed();
	zipf_init();
	snprintf(path, sizeof(path), "%s/space-XXXXXX", tmp ? tmp : "/tmp");
	T_OK(mkdtemp(path));
	dev.size = 4 * live + (64u << 20);
	co.devs = &dev;
	co.ndevs = 1;
	co.name = "space";
	o.cache_bytes = env_num("CACHE", 256) << 20;
	o.logs = 2;
	o.log_bytes = env_num("LOG", 0) << 20;
	T_EQ(mpool_create(path, &co), 0);
	T_EQ(kvdb_create(path, NULL), 0);
	T_EQ(kvdb_open(path, &o, &db), 0);
	T_EQ(kvdb_kvs_create(db, "s", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	for (uint32_t k = 0; k < keys; k++)
		put(k);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	T_EQ(kvdb_stats(db, &base), 0);
	T_EQ(kvdb_info(db, &in), 0);
	was = base;
	printf("# %s: %llu MiB live, segments of %llu KiB; load wrote %.2f bytes per byte\n", name,
	       (unsigned long long)live >> 20, (unsigned long long)in.segment_bytes >> 10,
	       (double)written(&base) / (double)base.user_write_bytes);
	printf("# pass  space/live on the way  seconds  written/user: log keys moved all  jobs  "
	       "waits for space\n");
	for (pass = 1; pass <= passes; pass++) {
		uint64_t user, peak = 0;
		double t0 = now_s();

		for (uint32_t i = 0; i < keys; i++) {
			put(next());
			if (i % 1024)
				continue;
			T_EQ(kvdb_stats(db, &st), 0);
			peak = st.space_bytes > peak ? st.space_bytes : peak;
		}
		T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
		T_EQ(kvdb_stats(db, &st), 0);
		user = st.user_write_bytes - was.user_write_bytes;
		amp = (double)st.space_bytes / (double)live;
		wa = (double)(written(&st) - written(&base)) /
		     (double)(st.user_write_bytes - base.user_write_bytes);
		printf("# %4u  %10.3f %10.3f  %7.1f  %16.2f %4.2f %5.2f %4.2f  %4llu  %llu\n",
		       pass, amp, (double)peak / (double)live, now_s() - t0,
		       (double)(st.io[0].log_bytes - was.io[0].log_bytes) / (double)user,
		       (double)(st.io[0].key_bytes - was.io[0].key_bytes) / (double)user,
		       (double)(st.io[0].move_bytes - was.io[0].move_bytes) / (double)user,
		       (double)(written(&st) - written(&was)) / (double)user,
		       (unsigned long long)(st.relocations - was.relocations),
		       (unsigned long long)(st.delay[KVDB_DELAY_SPACE].waits -
					    was.delay[KVDB_DELAY_SPACE].waits));
		fflush(stdout);
		was = st;
		T_OK(st.space_bytes <= live + live / 2 + 2ull * in.logs * in.segment_bytes);
		if (pass == 1 || pass == passes)
			values_are_the_last_written();
	}
	printf("# %s: %.2f bytes written per byte over %u passes; bound %.1f\n", name, wa, passes,
	       most);
	T_OK(wa <= most);
	T_EQ(kvdb_close(db), 0);
	T_EQ(kvdb_open(path, &o, &db), 0);
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	values_are_the_last_written();
	T_EQ(kvdb_close(db), 0);
	T_EQ(kvdb_drop(path, NULL), 0);
	T_EQ(mpool_destroy(path, NULL), 0);
	rmdir(path);
	free(version);
}

static void uniform_overwrites_stay_within_the_space_bound(void)
{
	endure(uniform_next, "uniform", 2.2);
}

static void zipfian_overwrites_stay_within_the_space_bound(void)
{
	endure(zipf_next, "zipfian", 1.6);
}

int main(void)
{
	T_RUN(uniform_overwrites_stay_within_the_space_bound);
	T_RUN(zipfian_overwrites_stay_within_the_space_bound);
	return t_done();
}
