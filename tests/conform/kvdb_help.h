/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Helpers of the conformance tests of libkvdb, which use the public API only:
 * a database on a small pool of plain files, ways to open it (number of logs,
 * with and without threads), a process that dies with the database open, and
 * a model: a fixed, sorted universe of keys and what each of them holds.
 */
#ifndef TESTS_KVDB_HELP_H
#define TESTS_KVDB_HELP_H

#include <kvdb/kvdb.h>

#include "die.h"
#include "pool_help.h"

struct kh_mode {
	const char *name;
	uint32_t logs;
	uint32_t flags;
};

static const struct kh_mode kh_modes[] = {
	{ "1 log", 1, 0 },	   { "4 logs", 4, 0 },
	{ "16 logs", 16, 0 },	   { "1 log, manual", 1, KVDB_MANUAL },
	{ "4 logs, manual", 4, KVDB_MANUAL }, { "16 logs, manual", 16, KVDB_MANUAL },
	{ "small", 1, KVDB_SMALL },
};
#define KH_MODES (sizeof(kh_modes) / sizeof(kh_modes[0]))

static const struct kh_mode *kh_mode = &kh_modes[0];
static struct kvdb *kh_db;
static uint64_t kh_rnd;

/* Runs a test once in every mode, or all but the last @but, named so. */
static inline void kh_run_modes(const char *name, void (*fn)(void), size_t but)
{
	char full[160];
	size_t i;

	for (i = 0; i < KH_MODES - but; i++) {
		kh_mode = &kh_modes[i];
		snprintf(full, sizeof(full), "%s (%s)", name, kh_mode->name);
		t_run(full, fn);
	}
	kh_mode = &kh_modes[0];
}
#define KH_RUN_MODES(fn) kh_run_modes(#fn, fn, 0)
/* what its snapshots hold, or its figures, need more memory than KVDB_SMALL has */
#define KH_RUN_LARGE(fn) kh_run_modes(#fn, fn, 1)

static inline struct kvdb_opts kh_opts(void)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;

	o.flags = kh_mode->flags;
	o.logs = kh_mode->logs;
	o.cache_bytes = o.flags & KVDB_SMALL ? 4 * MIB : 64 * MIB;
	return o;
}

static inline int kh_open_with(uint32_t flags)
{
	struct kvdb_opts o = kh_opts();

	o.flags |= flags;
	/* activating writes */
	if (!(flags & KVDB_RDONLY))
		th_again();
	return kvdb_open(th_pool, &o, &kh_db);
}

static inline void kh_open(void)
{
	T_EQ(kh_open_with(0), 0);
}

/* nothing becomes durable because time passes */
static inline void kh_open_unbounded(void)
{
	struct kvdb_opts o = kh_opts();

	o.interval_ms = KVDB_INTERVAL_NONE;
	T_EQ(kvdb_open(th_pool, &o, &kh_db), 0);
}

static inline void kh_close(void)
{
	struct kvdb *d = kh_db;

	kh_db = NULL;
	T_EQ(kvdb_close(d), 0);
}

/* A fresh pool with an empty database in it. What a failed test left open is abandoned. */
static inline void kh_make(uint64_t capacity, uint64_t staging)
{
	kh_db = NULL;
	if (!kh_rnd)
		kh_rnd = t_seed();
	th_fresh();
	T_EQ(th_create_at(th_pool, capacity, staging), 0);
	T_EQ(kvdb_create(th_pool, NULL), 0);
}

static inline void kh_fresh(uint64_t capacity, uint64_t staging)
{
	kh_make(capacity, staging);
	kh_open();
}

static inline struct kvdb_kvs *kh_kvs(const char *name)
{
	struct kvdb_kvs *k = NULL;

	if (kvdb_kvs_open(kh_db, name, &k)) {
		T_EQ(kvdb_kvs_create(kh_db, name, NULL), 0);
		T_EQ(kvdb_kvs_open(kh_db, name, &k), 0);
	}
	return k;
}

static inline uint64_t kh_damage(unsigned flags)
{
	uint64_t n = 12345;
	int rc;

	/* reads the member devices */
	th_root();
	rc = kvdb_verify(th_pool, NULL, flags, NULL, NULL, &n);
	th_user();
	T_EQ(rc, 0);
	return n;
}

/* Opens the database in a process that runs @fn and dies without closing it. */
static inline void kh_die_in(void (*fn)(void))
{
	t_die_in(kh_open, fn);
}

static inline unsigned kh_count(struct kvdb_kvs *kvs, unsigned flags)
{
	struct kvdb_cursor *cur;
	unsigned n = 0;

	T_EQ(kvdb_cursor_open(kvs, flags, NULL, 0, &cur), 0);
	while (!kvdb_cursor_next(cur, NULL, NULL, NULL, NULL))
		n++;
	kvdb_cursor_close(cur);
	return n;
}

/* ---- values ------------------------------------------------------------------- */

static uint8_t kh_buf[KVDB_VALUE_MAX + 64], kh_want[KVDB_VALUE_MAX + 64];

static inline const uint8_t *kh_value(uint64_t seed, size_t len)
{
	size_t i;

	for (i = 0; i < len; i += 8) {
		uint64_t v = t_rand(&seed);

		memcpy(kh_want + i, &v, 8);
	}
	return kh_want;
}

static inline int kh_put(struct kvdb_kvs *kvs, const void *key, size_t klen, uint64_t seed,
			 size_t len)
{
	return kvdb_put(kvs, key, klen, kh_value(seed, len), len);
}

/* Whether the store holds this very value. */
static inline int kh_holds(struct kvdb_kvs *kvs, const void *key, size_t klen, uint64_t seed,
			   size_t len)
{
	size_t got = 77;
	int err = kvdb_get(kvs, key, klen, kh_buf, sizeof(kh_buf), &got);

	if (err || got != len || memcmp(kh_buf, kh_value(seed, len), len)) {
		printf("# key of %zu bytes: error %d, value of %zu bytes, wanted %zu\n", klen,
		       err, got, len);
		return 0;
	}
	return 1;
}

static inline int kh_absent(struct kvdb_kvs *kvs, const void *key, size_t klen)
{
	size_t got;

	return kvdb_get(kvs, key, klen, kh_buf, sizeof(kh_buf), &got) == -ENOENT;
}

static inline int kh_put_str(struct kvdb_kvs *kvs, const char *key, const char *val)
{
	return kvdb_put(kvs, key, strlen(key), val, strlen(val));
}

static inline int kh_holds_str(struct kvdb_kvs *kvs, const char *key, const char *val)
{
	size_t got = 0;

	return !kvdb_get(kvs, key, strlen(key), kh_buf, sizeof(kh_buf), &got) &&
	       got == strlen(val) && !memcmp(kh_buf, val, got);
}

/* ---- the model ------------------------------------------------------------------ */

struct kh_key {
	uint8_t *key;
	uint16_t klen;
};

struct kh_val {
	uint64_t seed;
	uint32_t vlen;
	uint32_t is_live;
};

struct kh_model {
	unsigned n;
	struct kh_key *key;	/* sorted, distinct */
	struct kh_val *val;
};

static inline int kh_cmp(const void *a, size_t alen, const void *b, size_t blen)
{
	int c = memcmp(a, b, alen < blen ? alen : blen);

	return c ? c : (alen > blen) - (alen < blen);
}

static inline int kh_key_cmp(const void *a, const void *b)
{
	const struct kh_key *x = a, *y = b;

	return kh_cmp(x->key, x->klen, y->key, y->klen);
}

/* A key of one of several shapes: short, long, common prefixes, zeros, 0xff. */
static inline uint16_t kh_random_key(uint8_t *key)
{
	uint64_t x = t_rand(&kh_rnd);
	unsigned shape = x % 8, len, i;

	if (shape > 3)
		return (uint16_t)sprintf((char *)key, "user%014" PRIu64,
					 t_rand(&kh_rnd) % 100000000000000u);
	len = 1 + (x >> 8) % (shape == 0 ? 2 : shape == 1 ? KVDB_KEY_MAX : shape == 2 ? 7 : 20);
	for (i = 0; i < len; i++) {
		uint8_t b = (uint8_t)t_rand(&kh_rnd);

		key[i] = shape == 2 ? (b & 1 ? 0 : 0xff) : shape == 1 && i + 4 < len ? 'p' : b;
	}
	return (uint16_t)len;
}

static inline void kh_model_make(struct kh_model *m, unsigned n)
{
	uint8_t key[KVDB_KEY_MAX];
	unsigned i, k = 0;

	m->key = calloc(n, sizeof(*m->key));
	m->val = calloc(n, sizeof(*m->val));
	for (i = 0; i < n; i++) {
		m->key[i].klen = kh_random_key(key);
		m->key[i].key = malloc(m->key[i].klen);
		memcpy(m->key[i].key, key, m->key[i].klen);
	}
	qsort(m->key, n, sizeof(*m->key), kh_key_cmp);
	for (i = 0; i < n; i++) {
		if (k && !kh_key_cmp(&m->key[k - 1], &m->key[i]))
			free(m->key[i].key);
		else
			m->key[k++] = m->key[i];
	}
	m->n = k;
}

static inline void kh_model_free(struct kh_model *m)
{
	while (m->n)
		free(m->key[--m->n].key);
	free(m->key);
	free(m->val);
	memset(m, 0, sizeof(*m));
}

/* Mostly small values, some at the limits of how values are kept, few large ones. */
static inline uint32_t kh_random_len(void)
{
	static const uint32_t edge[] = { 0, 1, 127, 128, 129, 4095, 4096, 4097, 8192 };
	uint64_t x = t_rand(&kh_rnd);

	if (x % 64 == 0)
		return (x >> 8) % 100000;
	if (x % 4 == 0)
		return edge[(x >> 8) % (sizeof(edge) / sizeof(edge[0]))];
	return (x >> 8) % (x % 8 == 1 ? 2000 : 300);
}

/* One random put (three of four) or delete in store and model. */
static inline void kh_model_step(struct kh_model *m, struct kvdb_kvs *kvs)
{
	unsigned i = t_rand(&kh_rnd) % m->n;
	struct kh_val v = { 0 };

	if (t_rand(&kh_rnd) % 4) {
		v.seed = t_rand(&kh_rnd);
		v.vlen = kh_random_len();
		v.is_live = 1;
		T_EQ(kh_put(kvs, m->key[i].key, m->key[i].klen, v.seed, v.vlen), 0);
	} else {
		T_EQ(kvdb_del(kvs, m->key[i].key, m->key[i].klen), 0);
	}
	m->val[i] = v;
}

static inline void kh_model_steps(struct kh_model *m, struct kvdb_kvs *kvs, unsigned n)
{
	while (n--)
		kh_model_step(m, kvs);
}

/* Every key of the universe, by get. */
static inline void kh_model_check(const struct kh_model *m, struct kvdb_kvs *kvs)
{
	unsigned i;

	for (i = 0; i < m->n; i++) {
		const struct kh_key *k = &m->key[i];
		const struct kh_val *v = &m->val[i];

		if (v->is_live)
			T_OK(kh_holds(kvs, k->key, k->klen, v->seed, v->vlen));
		else
			T_OK(kh_absent(kvs, k->key, k->klen));
	}
}

/* A fresh database and a model of it. */
static inline void kh_model_begin(struct kh_model *m, uint64_t pool_bytes, unsigned keys)
{
	kh_fresh(pool_bytes, 0);
	kh_model_make(m, keys);
}

/* Closes it, and nothing is damaged. */
static inline void kh_model_end(struct kh_model *m)
{
	kh_model_free(m);
	kh_close();
	T_EQ(kh_damage(MPOOL_VERIFY_DATA), 0);
	th_clean();
}

/* The module counts what it writes. */
static inline uint32_t kh_counted(void)
{
	struct mpool_open_opts o = MPOOL_OPEN_OPTS_INIT;
	struct mpool_dev_info di;
	struct mpool *mp;
	unsigned slot;
	uint32_t n = 0;

	o.flags = MPOOL_OPEN_RDONLY;
	T_EQ(mpool_open(th_pool, &o, &mp), 0);
	for (slot = 0; !mpool_dev_info(mp, slot, &di); slot++)
		n += (uint32_t)(di.writes + di.write_bytes + di.discard_bytes);
	T_EQ(mpool_close(mp), 0);
	T_OK(slot > 0);
	return n;
}

/* Changes when the pool is written to. */
static inline uint32_t kh_written(void)
{
	static uint8_t buf[1 << 20];
	char path[600];
	uint32_t crc = 0;
	size_t n;
	FILE *f;

	if (th_is_kmod())
		return kh_counted();
	f = fopen(th_member(path), "re");
	T_OK(f != NULL);
	while ((n = fread(buf, 1, sizeof(buf), f)) > 0)
		crc = mpool_crc32c(crc, buf, n);
	fclose(f);
	return crc;
}

/* What an idle pool of the module gives back, within two seconds, is no reader's doing. */
static inline uint32_t kh_at_rest(void)
{
	const struct timespec longer = { .tv_sec = 3 };
	uint32_t crc = kh_written(), was = !crc;

	while (th_is_kmod() && crc != was) {
		nanosleep(&longer, NULL);
		was = crc;
		crc = kh_written();
	}
	return crc;
}

#endif
