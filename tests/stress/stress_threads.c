/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Threads hammer one database. Every thread owns a share of the keys and a
 * model of them, so each get has one right answer; cursors over everything
 * must be in order and show each key with a value that its owner wrote. Then
 * the database is closed, reopened and compared with all models.
 */
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include <kvdb/kvdb.h>

#include "harness.h"

#define THREADS		8u
#define KEYS		3000u	/* per thread */
#define VALUE_MAX	3000u

struct worker {
	pthread_t w_thread;
	unsigned w_no;
	uint64_t w_rand;
	uint32_t w_ver[KEYS];	/* 0 = absent */
	char w_why[160];
};

static struct kvdb *db;
static struct kvdb_kvs *kvs;
static struct worker worker[THREADS];
static int stop;

static size_t key_make(unsigned owner, unsigned k, char *buf)
{
	return (size_t)sprintf(buf, "%04u-%02u-%.*s", k, owner, (int)(k % 40),
			       "........................................");
}

/* owner, key and version decide every byte */
static size_t value_make(unsigned owner, unsigned k, uint32_t ver, uint8_t *buf)
{
	uint64_t s = ((uint64_t)owner << 48) ^ ((uint64_t)k << 24) ^ ver;
	size_t len = 12 + t_rand(&s) % (ver % 7 ? 300 : VALUE_MAX - 12), i;

	memcpy(buf, &owner, 4);
	memcpy(buf + 4, &k, 4);
	memcpy(buf + 8, &ver, 4);
	for (i = 12; i < len; i++)
		buf[i] = (uint8_t)(s >> (i % 8 * 8)) ^ (uint8_t)i;
	return len;
}

static int is_right(const void *val, size_t vlen)
{
	uint8_t want[VALUE_MAX];
	uint32_t f[3];

	if (vlen < 12)
		return 0;
	memcpy(f, val, 12);
	return f[0] < THREADS && f[1] < KEYS && value_make(f[0], f[1], f[2], want) == vlen &&
	       !memcmp(want, val, vlen);
}

static int get_one(struct worker *w, unsigned k)
{
	uint8_t buf[VALUE_MAX], want[VALUE_MAX];
	char key[80];
	size_t len, vlen = 0;
	int rc = kvdb_get(kvs, key, key_make(w->w_no, k, key), buf, sizeof(buf), &vlen);

	if (!w->w_ver[k] && rc == -ENOENT)
		return 0;
	len = value_make(w->w_no, k, w->w_ver[k], want);
	if (!rc && w->w_ver[k] && vlen == len && !memcmp(buf, want, len))
		return 0;
	snprintf(w->w_why, sizeof(w->w_why), "thread %u key %u version %u: get %d, %zu bytes",
		 w->w_no, k, w->w_ver[k], rc, vlen);
	return -1;
}

static int walk(struct worker *w)
{
	unsigned flags = t_rand(&w->w_rand) & 1 ? KVDB_REVERSE : 0, n;
	struct kvdb_cursor *cur;
	const void *key, *val;
	size_t klen, vlen, last_len = 0;
	char last[80] = "";
	int rc = kvdb_cursor_open(kvs, flags, NULL, 0, &cur);

	for (n = 0; !rc && n < 500; n++) {
		rc = kvdb_cursor_next(cur, &key, &klen, &val, &vlen);
		if (rc)
			break;
		if (!is_right(val, vlen)) {
			snprintf(w->w_why, sizeof(w->w_why), "a cursor shows a wrong value");
			rc = -EILSEQ;
		} else if (n) {
			int c = memcmp(key, last, klen < last_len ? klen : last_len);

			if (!c)
				c = klen < last_len ? -1 : klen > last_len;
			if (flags ? c >= 0 : c <= 0) {
				snprintf(w->w_why, sizeof(w->w_why), "a cursor is out of order");
				rc = -EILSEQ;
			}
		}
		memcpy(last, key, klen < sizeof(last) ? klen : sizeof(last));
		last_len = klen;
	}
	kvdb_cursor_close(cur);
	if (rc && rc != -ENOENT && !w->w_why[0])
		snprintf(w->w_why, sizeof(w->w_why), "cursor: %d", rc);
	return w->w_why[0] ? -1 : 0;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	uint8_t val[VALUE_MAX];
	char key[80];
	int rc = 0;

	while (!rc && !__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		unsigned k = (unsigned)(t_rand(&w->w_rand) % KEYS), op;
		uint32_t ver;

		op = (unsigned)(t_rand(&w->w_rand) % 1000);
		if (op < 450) {
			ver = (uint32_t)(t_rand(&w->w_rand) >> 33) | 1;
			rc = kvdb_put(kvs, key, key_make(w->w_no, k, key), val,
				      value_make(w->w_no, k, ver, val));
			if (!rc)
				w->w_ver[k] = ver;
		} else if (op < 550) {
			rc = kvdb_del(kvs, key, key_make(w->w_no, k, key));
			if (!rc)
				w->w_ver[k] = 0;
		} else if (op < 990) {
			rc = get_one(w, k);
		} else if (op < 998) {
			rc = walk(w);
		} else {
			rc = kvdb_sync(db);
		}
		if (rc && !w->w_why[0])
			snprintf(w->w_why, sizeof(w->w_why), "operation %u: %d (%.90s)", op, rc,
				 kvdb_error_detail()->text);
	}
	return NULL;
}

static void threads_agree_with_their_models(void)
{
	unsigned seconds = getenv("TEST_SHORT") ? 2 : getenv("TEST_LONG") ? 120 : 15, i, k;
	struct mpool_dev_spec dev[2] = {
		{ .mclass = MPOOL_CAPACITY, .size = 1ull << 30 },
		{ .mclass = MPOOL_STAGING, .size = 512ull << 20 },
	};
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	struct kvdb_opts o = KVDB_OPTS_INIT;
	const char *tmp = getenv("TMPDIR");
	char path[512];

	snprintf(path, sizeof(path), "%s/threads.%d", tmp ? tmp : "/tmp", (int)getpid());
	co.devs = dev;
	co.ndevs = 2;
	o.cache_bytes = 64ull << 20;
	o.log_bytes = 8ull << 20;
	o.logs = 4;
	T_EQ(mpool_create(path, &co), 0);
	T_EQ(kvdb_create(path, &o), 0);
	T_EQ(kvdb_open(path, &o, &db), 0);
	T_EQ(kvdb_kvs_create(db, "all", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "all", &kvs), 0);
	for (i = 0; i < THREADS; i++) {
		worker[i].w_no = i;
		worker[i].w_rand = t_seed() + i * 7919;
		T_EQ(pthread_create(&worker[i].w_thread, NULL, work, &worker[i]), 0);
	}
	sleep(seconds);
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (i = 0; i < THREADS; i++)
		pthread_join(worker[i].w_thread, NULL);
	for (i = 0; i < THREADS; i++)
		T_STREQ(worker[i].w_why, "");
	T_EQ(kvdb_close(db), 0);
	T_EQ(kvdb_open(path, &o, &db), 0);
	T_EQ(kvdb_kvs_open(db, "all", &kvs), 0);
	for (i = 0; i < THREADS; i++)
		for (k = 0; k < KEYS; k++)
			if (get_one(&worker[i], k))
				T_FAIL("after reopen: %s", worker[i].w_why);
	T_EQ(kvdb_close(db), 0);
	T_EQ(mpool_destroy(path, NULL), 0);
}

int main(void)
{
	t_seed();
	T_RUN(threads_agree_with_their_models);
	return t_done();
}
