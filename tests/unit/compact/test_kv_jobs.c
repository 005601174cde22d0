/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Two relocations at once: one empties staging while another makes space on
 * capacity, under writers that overwrite what both move, and callers that ask for a
 * compaction has both classes to himself (G10).
 */
#include "harness.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

#include "background/compact.h"
#include "compact/reloc.h"
#include "db/count.h"

#define WRITERS		2u
#define KEYS		12000u		/* of each writer */
#define VLEN		1000u
#define SECONDS		60u		/* a slow machine sees fewer of them */

static char dir[256];
static struct kvdb *db;
static struct kvdb_kvs *kvs;
static uint32_t version[WRITERS][KEYS];
static uint64_t seed;
static _Atomic(bool) is_over;
static _Atomic(unsigned) failed;

static void fresh(void)
{
	struct mpool_dev_spec dev[2] = { { .mclass = MPOOL_CAPACITY, .size = 192u << 20 },
					 { .mclass = MPOOL_STAGING, .size = 16u << 20 } };
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	struct kvdb_opts o = KVDB_OPTS_INIT;
	const char *tmp = getenv("TMPDIR");

	snprintf(dir, sizeof(dir), "%s/kv_jobs.XXXXXX", tmp ? tmp : "/tmp");
	T_OK(mkdtemp(dir));
	co.devs = dev;
	co.ndevs = 2;
	T_EQ(mpool_create(dir, &co), 0);
	o.segment_bytes = 128u << 10;
	T_EQ(kvdb_create(dir, &o), 0);
	o.cache_bytes = 64u << 20;
	o.log_bytes = 4u << 20;
	o.logs = 1;
	o.threads = 4;
	o.space_amp_max = 1.2;	/* a job for space has always something to do */
	T_EQ(kvdb_open(dir, &o, &db), 0);
	T_EQ(kvdb_kvs_create(db, "s", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
}

static void value(uint32_t key, uint32_t ver, uint8_t *val)
{
	uint64_t x = ((uint64_t)ver << 32) ^ key, v;

	for (unsigned i = 0; i < VLEN; i += 8) {
		v = t_rand(&x);
		memcpy(val + i, &v, 8);
	}
}

static void *overwrite(void *arg)
{
	uint32_t w = (uint32_t)(uintptr_t)arg, k, key;
	uint64_t rnd = seed + w;
	uint8_t val[VLEN];
	int err;

	for (uint32_t i = 0; !is_over && !failed; i++) {
		k = i < KEYS ? i : (uint32_t)(t_rand(&rnd) % KEYS);
		key = w * KEYS + k;
		value(key, ++version[w][k], val);
		err = kvdb_put(kvs, &key, sizeof(key), val, VLEN);
		if (err) {
			printf("# put: %d: %s\n", err, kvdb_error_detail()->text);
			failed++;
		}
	}
	return NULL;
}

#define ALONE	(1u << 7)	/* a job that empties staging and is not the one for it */

/* Which jobs have victims now. */
static void add_victim(void *arg, struct kv_seg *s)
{
	uint8_t of = atomic_load(&s->sg_victim);

	*(unsigned *)arg |= 1u << of;
	if (of == KV_VICTIM && s->sg_mclass == MPOOL_STAGING)
		*(unsigned *)arg |= ALONE;
}

/* Do both jobs move now? Counts when they must not (G10). */
static bool both_move(unsigned *wrong)
{
	unsigned seen = 0;

	kv_segs_each(db, add_victim, &seen);
	*wrong += seen & ALONE && seen & 1u << KV_VICTIM_OLD;
	return seen & 1u << KV_VICTIM && seen & 1u << KV_VICTIM_OLD;
}

static void all_hold_what_was_written_last(void)
{
	uint8_t want[VLEN], got[VLEN];
	size_t len;

	for (uint32_t key = 0; key < WRITERS * KEYS; key++) {
		uint32_t ver = version[key / KEYS][key % KEYS];
		int err = kvdb_get(kvs, &key, sizeof(key), got, VLEN, &len);

		if (!ver && err == -ENOENT)
			continue;
		value(key, ver, want);
		if (err || len != VLEN || memcmp(want, got, VLEN))
			T_FAIL("key %u: %d", key, err);
	}
}

static void two_jobs_empty_two_classes(void)
{
	unsigned both = 0, asked = 0, wrong = 0, wanted = getenv("TEST_SHORT") ? 20 : 40;
	struct timespec ms = { .tv_nsec = 1000000 };
	pthread_t t[WRITERS];
	time_t end = time(NULL) + SECONDS;
	uint64_t n = 12345;
	bool was = false, is;

	seed = t_seed();
	fresh();
	for (uintptr_t w = 0; w < WRITERS; w++)
		T_EQ(pthread_create(&t[w], NULL, overwrite, (void *)w), 0);
	while ((both < wanted || asked < wanted / 2) && time(NULL) < end && !failed) {
		nanosleep(&ms, NULL);
		is = both_move(&wrong);
		both += is && !was;
		was = is;
		if (both < 2 * (asked + 1))
			continue;
		/* it begins behind both, and ends when it emptied as much as there was (G15) */
		for (unsigned i = 0; i < 200; i++) {
			if (!kv_compact_is_asked(db, NULL))
				T_EQ(kvdb_compact(db, 0), 0);
			nanosleep(&ms, NULL);
			both_move(&wrong);
		}
		T_EQ(kvdb_compact(db, KVDB_COMPACT_CANCEL), 0);
		asked++;
	}
	is_over = true;
	for (unsigned w = 0; w < WRITERS; w++)
		pthread_join(t[w], NULL);
	printf("# both at once %u times, %u compactions\n", both, asked);
	T_EQ(failed, 0);
	T_EQ(wrong, 0);
	T_OK(both && asked);
	all_hold_what_was_written_last();
	T_EQ(kvdb_close(db), 0);
	T_EQ(kvdb_verify(dir, NULL, MPOOL_VERIFY_DATA, NULL, NULL, &n), 0);
	T_EQ(n, 0);
	T_EQ(mpool_destroy(dir, NULL), 0);
	rmdir(dir);
}

int main(void)
{
	T_RUN(two_jobs_empty_two_classes);
	return t_done();
}
