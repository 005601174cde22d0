/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* A database with planted damage, its repair, and a model of every version of every key. */
#ifndef TESTS_KV_HURT_H
#define TESTS_KV_HURT_H

#include "die.h"
#include "harness.h"
#include "obj_flip.h"

#include <errno.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "run/run.h"
#include "run/run_omf.h"
#include "base/hash.h"
#include "db/db.h"
#include "seg/kv_omf.h"
#include "seg/value.h"
#include "tree/tree.h"
#include "seg/seg.h"
#include "meta/upkeep.h"

#define KEYS	2000u
#define SEG	(256u << 10)

static char dir[256], fresh_dir[256];
static struct kvdb *db;
static uint64_t tag;
/* Per store and key: the newest version, 0 = deleted; the one before. */
static uint32_t newest[2][KEYS], older[2][KEYS];

static inline size_t key_of(unsigned k, char *key)
{
	return (size_t)sprintf(key, "%06u", k);
}

/* Small values lie with their keys, large ones in segments. */
static inline size_t value(unsigned s, unsigned k, uint32_t ver, uint8_t *val)
{
	uint64_t x = ((uint64_t)s << 60) ^ ((uint64_t)ver << 32) ^ k, v;
	size_t len = k % 2 ? 400 : 24;

	for (size_t i = 0; i < len; i += 8) {
		v = t_rand(&x);
		memcpy(val + i, &v, 8);
	}
	return len;
}

static inline void pool_make(char *path)
{
	struct mpool_dev_spec dev = { .mclass = MPOOL_CAPACITY, .size = 96u << 20 };
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	struct kvdb_opts o = KVDB_OPTS_INIT;
	const char *tmp = getenv("TMPDIR");

	snprintf(path, 256, "%s/kv_repair.XXXXXX", tmp ? tmp : "/tmp");
	T_OK(mkdtemp(path));
	co.devs = &dev;
	co.ndevs = 1;
	T_EQ(mpool_create(path, &co), 0);
	o.segment_bytes = SEG;
	T_EQ(kvdb_create(path, &o), 0);
}

static inline void pool_end(const char *path)
{
	T_EQ(mpool_destroy(path, NULL), 0);
	rmdir(path);
}

static inline void open_at(const char *path, struct kvdb **out)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;

	o.flags = KVDB_MANUAL;
	o.logs = 1;
	o.cache_bytes = 64u << 20;
	T_EQ(kvdb_open(path, &o, out), 0);
}

static inline void open_it(void)
{
	open_at(dir, &db);
}

static inline void write_key(unsigned s, unsigned k, uint32_t ver)
{
	struct kvdb_kvs *kvs;
	uint8_t val[400];
	char key[16];

	T_EQ(kvdb_kvs_open(db, s ? "b" : "a", &kvs), 0);
	if (ver)
		T_EQ(kvdb_put(kvs, key, key_of(k, key), val, value(s, k, ver, val)), 0);
	else
		T_EQ(kvdb_del(kvs, key, key_of(k, key)), 0);
	older[s][k] = newest[s][k];
	newest[s][k] = ver;
}

#define GONE 1200u	/* 100 keys of store b from here on are deleted as a range */

static inline void delete_range(void)
{
	struct kvdb_kvs *kvs;
	char from[16], end[16];

	T_EQ(kvdb_kvs_open(db, "b", &kvs), 0);
	T_EQ(kvdb_range_del(kvs, from, key_of(GONE, from), end, key_of(GONE + 100, end)), 0);
	for (unsigned k = GONE; k < GONE + 100; k++) {
		older[1][k] = newest[1][k];
		newest[1][k] = 0;
	}
}

/* Two runs in each store: all keys, then some overwritten and some deleted. */
static inline void make(void)
{
	memset(older, 0, sizeof(older));
	memset(newest, 0, sizeof(newest));
	pool_make(dir);
	open_at(dir, &db);
	tag = db->d_ident.id_tag;
	T_EQ(kvdb_kvs_create(db, "a", NULL), 0);
	T_EQ(kvdb_kvs_create(db, "b", NULL), 0);
	for (uint32_t ver = 1; ver <= 2; ver++) {
		for (unsigned k = 0; k < KEYS; k++)
			for (unsigned s = 0; s < 2; s++)
				if (ver == 1 || k % 3 == 0 || k % 7 == 0)
					write_key(s, k, ver == 2 && k % 7 == 0 ? 0 : ver);
		if (ver == 2)
			delete_range();
		T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	}
	T_EQ(kvdb_close(db), 0);
}

enum what { PAGE, FOOTER, VALUE, CRCS, ROWS };

/* Where in its object an area of a key block begins, as its footer at @foot says. */
static inline uint64_t area_off(struct mpool_obj *obj, uint64_t foot, enum kv_karea area)
{
	struct iovec iov = { .iov_base = aligned_alloc(KV_PAGE, KV_PAGE), .iov_len = KV_PAGE };
	uint64_t off;

	T_EQ(mpool_read(obj, foot, &iov, 1), 0);
	off = kv_le32((const uint8_t *)iov.iov_base + 80 + 16 * area);
	free(iov.iov_base);
	return off;
}

/* Damages what holds key @k of store @s in its run @run (0 the newest). */
static inline void hurt(unsigned s, unsigned run, unsigned k, enum what what)
{
	const struct kv_kblock *kb;
	struct kv_run *r;
	struct kv_thread *t;
	struct kvdb_kvs *kvs;
	struct kv_ent e;
	char key[16];
	size_t klen = key_of(k, key);
	uint64_t off, foot;

	open_at(dir, &db);
	T_EQ(kvdb_kvs_open(db, s ? "b" : "a", &kvs), 0);
	t = kv_enter();
	r = atomic_load(&kvs->k_tree)->tr_run[run];
	T_EQ(kv_run_lookup(db, r, key, klen, kv_hash(key, klen), &e), 0);
	kb = &r->rn_kb[0];
	foot = kv_run_desc(r)->rd_kb[0].kd_len - KV_PAGE;
	off = what == VALUE ? e.e_off8 * 8ull : what == PAGE ?
	      (uint64_t)kv_kblock_page(db, kb, (const uint8_t *)key, klen) * KV_PAGE :
	      what == FOOTER ? foot : what == CRCS ? kb->kb_crc_off :
	      area_off(kb->kb_obj, foot, KV_AREA_PTOMB);
	T_OK(what != ROWS || kb->kb_tombs_len > 7);
	obj_flip(what == VALUE ? e.e_seg->sg_obj : kb->kb_obj, off + 7, 0x10);
	kv_exit(t);
	T_EQ(kvdb_close(db), 0);
}

/* ---- the result ------------------------------------------------------------------- */

struct range {
	unsigned s, from, to;
};
static struct range range[KEYS];
static unsigned nrange;
static char told[4096];	/* all texts */

static inline unsigned num(const void *p, size_t len, unsigned none)
{
	char s[] = "000000";

	if (!p || !len)
		return none;
	/* a separator may be shorter than a key */
	memcpy(s, p, len < 6 ? len : 6);
	return (unsigned)atoi(s) + (len > 6);
}

static inline void see(void *arg, const struct mpool_problem *p)
{
	const struct kvdb_problem *kp = (const struct kvdb_problem *)p;

	(void)arg;
	printf("# %s\n", p->text);
	snprintf(told + strlen(told), sizeof(told) - strlen(told), "%s\n", p->text);
	if (!kp->from)
		return;
	T_OK(nrange < KEYS && kp->kvs);
	range[nrange++] = (struct range){ kp->kvs[0] == 'b', num(kp->from, kp->flen, 0),
					  num(kp->to, kp->tlen, KEYS) };
}

static inline bool is_named(unsigned s, unsigned k)
{
	for (unsigned i = 0; i < nrange; i++)
		if (range[i].s == s && range[i].from <= k && k < range[i].to)
			return true;
	return false;
}

/* The version of the key in a store of the new database; 0: none. */
static inline uint32_t version(struct kvdb *to, const char *store, unsigned s, unsigned k)
{
	uint8_t val[400], want[400];
	struct kvdb_kvs *kvs;
	size_t len = 0, wlen;
	char key[16];
	char by_number[16];
	int err;

	snprintf(by_number, sizeof(by_number), "store-%u", s + 1);
	if (kvdb_kvs_open(to, store, &kvs) &&
	    (store[1] || kvdb_kvs_open(to, by_number, &kvs)))
		return 0;
	err = kvdb_get(kvs, key, key_of(k, key), val, sizeof(val), &len);
	if (err == -ENOENT)
		return 0;
	T_EQ(err, 0);
	for (uint32_t ver = 1; ver < 9; ver++) {
		wlen = value(s, k, ver, want);
		if (len == wlen && !memcmp(val, want, len))
			return ver;
	}
	T_FAIL("key %u of store %s holds what was never put", k, store);
	return 0;
}

static struct kvdb *to;
static const struct kvdb_opts *how;	/* of the database that is repaired */

static inline struct kvdb_repair repair(void)
{
	struct kvdb_repair plan = { 0 }, r = { 0 };

	nrange = 0;
	told[0] = 0;
	T_EQ(kvdb_repair(dir, how, NULL, NULL, NULL, &plan), 0);
	pool_make(fresh_dir);
	open_at(fresh_dir, &to);
	T_EQ(kvdb_repair(dir, how, to, see, NULL, &r), 0);
	/* what was said is what was done */
	T_OK(!memcmp(&plan, &r, sizeof(r)));
	return r;
}

static inline void forget(void)
{
	T_EQ(kvdb_close(to), 0);
	pool_end(fresh_dir);
}

static inline void finish(void)
{
	forget();
	pool_end(dir);
}

/*
 * What is named may be lost; the rest is there and certain. In named ranges
 * nothing is certain but what is newest.
 */
static inline unsigned check(void)
{
	unsigned found = 0;

	for (unsigned s = 0; s < 2; s++) {
		for (unsigned k = 0; k < KEYS; k++) {
			uint32_t sure = version(to, s ? "b" : "a", s, k);
			uint32_t maybe = version(to, s ? "b.found" : "a.found", s, k);

			if (!is_named(s, k) && (sure != newest[s][k] || maybe))
				T_FAIL("store %u, key %u: %u, %u found", s, k, sure, maybe);
			T_OK(!sure || (sure == newest[s][k] && !maybe));
			T_OK(!maybe || maybe == newest[s][k] || maybe == older[s][k]);
			found += maybe != 0;
		}
	}
	return found;
}

/* Turns over a bit of both logs of the container. */
static inline void hurt_container(uint64_t off)
{
	struct mpool_obj_info oi[64];
	struct mpool_obj *obj;
	uint64_t after = 0;
	struct mpool *mp;
	unsigned hit = 0;
	int n;

	T_EQ(mpool_open(dir, NULL, &mp), 0);
	while ((n = mpool_objects(mp, after, tag, oi, 64)) > 0) {
		for (int i = 0; i < n; i++) {
			after = oi[i].id;
			if (oi[i].kind != MPOOL_MLOG || mpool_obj_open(mp, after, &obj))
				continue;
			obj_flip(obj, off, 0x10);
			hit++;
			mpool_obj_close(obj);
		}
	}
	T_OK(hit);
	T_EQ(mpool_close(mp), 0);
}

#endif
