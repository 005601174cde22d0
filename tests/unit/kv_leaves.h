/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* A store of small leaves, and a model of it. */
#ifndef TESTS_KV_LEAVES_H
#define TESTS_KV_LEAVES_H

#include "ctl/ctl.h"
#include "db/db.h"
#include "kv_clock.h"
#include "kv_rig.h"
#include "tree/leaf.h"
#include "meta/mdc.h"
#include "compact/merge.h"
#include "compact/reloc.h"
#include "mem/memtable.h"
#include "meta/upkeep.h"

#define KEYS		3000u
#define LEAF		200u		/* keys */
#define KLEN		6u

static char dir[256];
static struct kvdb *db;
static struct kvdb_kvs *kvs;
static uint64_t rnd;
static uint32_t model[KEYS];		/* generation of the value, 0 = absent */
static uint32_t gen;
static double space_amp;

static inline void reopen(void)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;

	if (db)
		T_EQ(kvdb_close(db), 0);
	o.flags = KVDB_MANUAL;
	o.cache_bytes = 64 << 20;
	look_ns = 1000;
	o.clock = &test_clock;
	o.logs = 1;
	o.space_amp_max = space_amp;
	T_EQ(kvdb_open(dir, &o, &db), 0);
	db->d_budget.b_leaf_keys = LEAF;
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
}

static inline void fresh(void)
{
	struct mpool_dev_spec dev = { .mclass = MPOOL_CAPACITY, .size = 512 << 20 };
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	struct kvdb_kvs_opts ko = KVDB_KVS_OPTS_INIT;
	struct kvdb_opts o = KVDB_OPTS_INIT;
	const char *tmp = getenv("TMPDIR");

	memset(model, 0, sizeof(model));
	rnd = t_seed();
	snprintf(dir, sizeof(dir), "%s/kvleaf-XXXXXX", tmp ? tmp : "/tmp");
	T_OK(mkdtemp(dir));
	co.devs = &dev;
	co.ndevs = 1;
	co.name = "leaf";
	T_EQ(mpool_create(dir, &co), 0);
	o.flags = KVDB_MANUAL;
	o.segment_bytes = 64 << 10;
	T_EQ(kvdb_create(dir, &o), 0);
	T_EQ(kvdb_open(dir, &o, &db), 0);
	gen = 0;
	ko.pfx_len = 2;
	T_EQ(kvdb_kvs_create(db, "s", &ko), 0);
	reopen();
}

static inline void done(void)
{
	uint64_t damage = 1;

	T_EQ(kvdb_close(db), 0);
	db = NULL;
	T_EQ(kvdb_verify(dir, NULL, MPOOL_VERIFY_DATA, NULL, NULL, &damage), 0);
	T_EQ(damage, 0);
	T_EQ(mpool_destroy(dir, NULL), 0);
	rmdir(dir);
}

/* ---- keys and values ----------------------------------------------------------------- */

/* In order of i: the first two bytes are one of 30 prefixes. */
static inline void key_of(unsigned i, char *key)
{
	snprintf(key, KLEN + 1, "%02u%04u", i / 100 % 100, i % 10000);
}

static inline size_t val_of(unsigned i, uint32_t g, uint8_t *val)
{
	size_t n = 8 + (i * 31 + g * 7) % 300;

	memset(val, (int)(g + i), n);
	memcpy(val, &i, 4);
	memcpy(val + 4, &g, 4);
	return n;
}

static inline void put(unsigned i)
{
	uint8_t val[512];
	char key[KLEN + 1];

	key_of(i, key);
	model[i] = ++gen;
	T_EQ(kvdb_put(kvs, key, KLEN, val, val_of(i, gen, val)), 0);
}

static inline void del(unsigned i)
{
	char key[KLEN + 1];

	key_of(i, key);
	model[i] = 0;
	T_EQ(kvdb_del(kvs, key, KLEN), 0);
}

static inline void del_range(unsigned from, unsigned to)
{
	char a[KLEN + 1], b[KLEN + 1];

	key_of(from, a);
	key_of(to, b);
	T_EQ(kvdb_range_del(kvs, a, KLEN, b, KLEN), 0);
	for (; from < to; from++)
		model[from] = 0;
}

static inline void del_prefix(unsigned p)
{
	char key[KLEN + 1];

	key_of(p * 100, key);
	T_EQ(kvdb_prefix_del(kvs, key, 2), 0);
	memset(&model[p * 100], 0, 100 * sizeof(model[0]));
}

static inline void flush(void)
{
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
}

/* ---- what holds of a tree ------------------------------------------------------------ */

struct shape {
	unsigned upper, leaves, depth;
};

/* LF1: the leaves cover all keys, each run lies inside its leaf; newest first in each. */
static inline struct shape shape(void)
{
	struct kv_tree *tr = kv_tree_get(kvs);
	struct shape s = { tr->tr_nupper, tr->tr_nleaf, tr->tr_depth };
	uint32_t at = tr->tr_nupper;

	for (uint32_t l = 0; l < tr->tr_nleaf; l++) {
		const struct kv_leaf_runs *lr = &tr->tr_leaf[l];
		const struct kv_leaf *lf = lr->lr_leaf, *hi = l + 1 < tr->tr_nleaf ?
							      lr[1].lr_leaf : NULL;

		T_OK(l ? lf->lf_klen > 0 : !lf->lf_klen);
		T_OK(!hi || kv_kcmp(lf->lf_key, lf->lf_klen, hi->lf_key, hi->lf_klen) < 0);
		T_OK(!lr->lr_n || lr->lr_first == at);
		for (uint32_t i = 0; i < lr->lr_n; i++) {
			struct kv_run *r = tr->tr_run[at + i];
			const struct kv_kblock *a = r->rn_kb, *b = a + r->rn_nkeyed - 1;

			T_EQ(kv_run_desc(r)->rd_leaf, lf->lf_id);
			T_OK(!i || kv_run_desc(r)->rd_pos <
				   kv_run_desc(tr->tr_run[at + i - 1])->rd_pos);
			if (!r->rn_nkeyed)
				continue;
			T_OK(kv_kcmp(lf->lf_key, lf->lf_klen, a->kb_min, a->kb_min_klen) <= 0);
			T_OK(!hi || kv_kcmp(b->kb_max, b->kb_max_klen, hi->lf_key,
					    hi->lf_klen) < 0);
		}
		at += lr->lr_n;
	}
	T_EQ(at, tr->tr_nrun);
	kv_tree_put(db, tr);
	return s;
}

static inline void merge_all(void)
{
	int rc;

	do {
		rc = kv_merge_step(db, kvs);
		T_OK(rc >= 0);
		shape();
	} while (rc);
}

static inline void check_gets(void)
{
	uint8_t want[512], got[512];
	char key[KLEN + 1];
	size_t n, vlen;

	for (unsigned i = 0; i < KEYS; i++) {
		key_of(i, key);
		if (!model[i]) {
			T_EQ(kvdb_get(kvs, key, KLEN, got, sizeof(got), &vlen), -ENOENT);
			continue;
		}
		T_EQ(kvdb_get(kvs, key, KLEN, got, sizeof(got), &vlen), 0);
		n = val_of(i, model[i], want);
		T_EQ(vlen, n);
		T_MEMEQ(got, want, n);
	}
}

static inline void check_multi(void)
{
	static uint8_t got[KEYS][8];
	static struct kvdb_get get[KEYS];
	static char key[KEYS][KLEN + 1];

	for (unsigned i = 0; i < KEYS; i++) {
		unsigned k = (i * 7) % KEYS;

		key_of(k, key[i]);
		get[i] = (struct kvdb_get){ .key = key[i], .klen = KLEN, .buf = got[i], .size = 8 };
	}
	T_EQ(kvdb_get_multi(kvs, 0, get, KEYS), 0);
	for (unsigned i = 0; i < KEYS; i++) {
		unsigned k = (i * 7) % KEYS;

		T_EQ(get[i].err, model[k] ? 0 : -ENOENT);
		T_OK(!model[k] || !memcmp(got[i] + 4, &model[k], 4));
	}
}

/* From one place to the end, in one direction; then some steps back. */
static inline void check_walk(struct kvdb_cursor *c, const uint32_t *snap, unsigned from, bool back)
{
	const void *key, *val;
	char seek[KLEN + 1];
	uint8_t want[512];
	size_t klen, vlen;
	int i = (int)from, steps = 0;

	key_of(from, seek);
	T_EQ(kvdb_cursor_seek(c, seek, KLEN), 0);
	for (i -= back;; i += back ? -1 : 1) {
		while (i >= 0 && i < (int)KEYS && !snap[i])
			i += back ? -1 : 1;
		if (i < 0 || i >= (int)KEYS)
			break;
		T_EQ((back ? kvdb_cursor_prev : kvdb_cursor_next)(c, &key, &klen, &val, &vlen), 0);
		key_of((unsigned)i, seek);
		T_EQ(klen, KLEN);
		T_MEMEQ(key, seek, KLEN);
		T_EQ(vlen, val_of((unsigned)i, snap[i], want));
		T_MEMEQ(val, want, vlen);
		if (++steps == 700)
			return;
	}
	T_EQ((back ? kvdb_cursor_prev : kvdb_cursor_next)(c, &key, &klen, &val, &vlen), -ENOENT);
}

static inline void check_cursor(struct kvdb_cursor *c, const uint32_t *snap)
{
	check_walk(c, snap, 0, false);
	check_walk(c, snap, KEYS - 1, true);
	for (unsigned i = 0; i < 4; i++)
		check_walk(c, snap, t_rand(&rnd) % KEYS, i % 2);
}

static inline void check_all(void)
{
	struct kvdb_cursor *c;

	shape();
	check_gets();
	check_multi();
	T_EQ(kvdb_cursor_open(kvs, 0, NULL, 0, &c), 0);
	check_cursor(c, model);
	kvdb_cursor_close(c);
}

/* ---- tests --------------------------------------------------------------------------- */

static inline void change(unsigned n)
{
	while (n--) {
		unsigned i = t_rand(&rnd) % KEYS, what = t_rand(&rnd) % 100;

		if (what < 75)
			put(i);
		else if (what < 98)
			del(i);
		else if (what < 99)
			del_range(i, i + 1 + t_rand(&rnd) % (KEYS - i) / 8);
		else
			del_prefix(i / 100);
	}
}

static inline struct kv_tree *with_leaves(void)
{
	fresh();
	for (unsigned i = 0; i < KEYS; i++)
		put(i);
	flush();
	merge_all();
	return kv_tree_get(kvs);
}

#endif
