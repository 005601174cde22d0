/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* A database of two stores without threads, and a table of what every key must hold. */
#ifndef TESTS_KV_TABLE_H
#define TESTS_KV_TABLE_H

#include <errno.h>

#include "kv_fresh.h"

#define KEYS	400u
#define VLEN	1200u
#define SEG	(64u << 10)

static char dir[256];
static struct kvdb *db;
static struct kvdb_kvs *kvs[2];
static const struct kvdb_clock *clk;	/* NULL: the machine's */
static uint32_t version[2][KEYS];

static inline void open_db(void)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;

	o.flags = KVDB_MANUAL;
	o.logs = 1;
	o.cache_bytes = 64u << 20;
	o.clock = clk;
	T_EQ(kvdb_open(dir, &o, &db), 0);
	for (unsigned s = 0; s < 2; s++) {
		char name[2] = { (char)('a' + s), 0 };

		if (kvdb_kvs_open(db, name, &kvs[s])) {
			T_EQ(kvdb_kvs_create(db, name, NULL), 0);
			T_EQ(kvdb_kvs_open(db, name, &kvs[s]), 0);
		}
	}
}

static inline void fresh(uint64_t bytes)
{
	kv_fresh(dir, sizeof(dir), "kv_table", bytes, SEG);
	memset(version, 0, sizeof(version));
	open_db();
}

static inline void reopen(void)
{
	T_EQ(kvdb_close(db), 0);
	open_db();
}

static inline void done(uint64_t damage)
{
	kv_end(db, dir, damage);
}

static inline void value(unsigned s, uint32_t k, uint32_t ver, uint8_t *val)
{
	uint64_t x = ((uint64_t)s << 60) ^ ((uint64_t)ver << 32) ^ k, v;

	for (unsigned i = 0; i < VLEN; i += 8) {
		v = t_rand(&x);
		memcpy(val + i, &v, 8);
	}
}

static inline size_t key_of(uint32_t k, char *key)
{
	return (size_t)sprintf(key, "%04u-key", k * 7 % KEYS);
}

static inline int put(unsigned s, uint32_t k)
{
	uint8_t val[VLEN];
	char key[32];
	int err;

	value(s, k, version[s][k] + 1, val);
	err = kvdb_put(kvs[s], key, key_of(k, key), val, VLEN);
	version[s][k] += !err;
	return err;
}

/* Whether the key holds exactly what was put last. */
static inline int holds(unsigned s, uint32_t k)
{
	uint8_t want[VLEN], got[VLEN];
	size_t len = 0;
	char key[32];
	int err = kvdb_get(kvs[s], key, key_of(k, key), got, VLEN, &len);

	if (!version[s][k])
		return err == -ENOENT;
	value(s, k, version[s][k], want);
	return !err && len == VLEN && !memcmp(want, got, VLEN);
}

static inline void all_hold(void)
{
	for (unsigned s = 0; s < 2; s++)
		for (uint32_t k = 0; k < KEYS; k++)
			if (!holds(s, k))
				T_FAIL("store %u, key %u", s, k);
}

/* Puts every @step-th key of both stores. */
static inline void put_some(uint32_t step)
{
	for (uint32_t k = 0; k < KEYS; k += step)
		for (unsigned s = 0; s < 2; s++)
			T_EQ(put(s, k), 0);
}

static inline void settle(void)
{
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
}

static inline struct kvdb_stats stats(void)
{
	struct kvdb_stats st;

	T_EQ(kvdb_stats(db, &st), 0);
	return st;
}

static inline uint64_t live_bytes(void)
{
	uint64_t n = 0;

	for (unsigned s = 0; s < 2; s++)
		for (uint32_t k = 0; k < KEYS; k++)
			n += version[s][k] ? VLEN + 8 : 0;
	return n;
}

#endif
