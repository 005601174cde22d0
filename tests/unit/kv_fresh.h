/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* A database in a folder of its own: one file, one class. */
#ifndef TESTS_KV_FRESH_H
#define TESTS_KV_FRESH_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <kvdb/kvdb.h>

#include "harness.h"

/* An empty folder; @dir gets the path. */
static inline void kv_fresh_dir(char *dir, size_t size, const char *name)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(dir, size, "%s/%s.XXXXXX", tmp ? tmp : "/tmp", name);
	T_OK(mkdtemp(dir));
}

/* @dir gets the path. */
static inline void kv_fresh(char *dir, size_t size, const char *name, uint64_t bytes,
			    uint64_t seg_bytes)
{
	struct mpool_dev_spec dev = { .mclass = MPOOL_CAPACITY, .size = bytes };
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	struct kvdb_opts o = KVDB_OPTS_INIT;

	kv_fresh_dir(dir, size, name);
	co.devs = &dev;
	co.ndevs = 1;
	T_EQ(mpool_create(dir, &co), 0);
	o.segment_bytes = seg_bytes;
	T_EQ(kvdb_create(dir, &o), 0);
}

static inline void kv_remove(const char *dir)
{
	T_EQ(mpool_destroy(dir, NULL), 0);
	rmdir(dir);
}

/* One log, little memory. */
static inline void kv_opts_one(struct kvdb_opts *o, unsigned flags)
{
	*o = (struct kvdb_opts)KVDB_OPTS_INIT;
	o->flags = flags;
	o->logs = 1;
	o->cache_bytes = 64u << 20;
}

/* Closes it, checks all of it, which finds so much @damage, and removes it. */
static inline void kv_end(struct kvdb *db, const char *dir, uint64_t damage)
{
	uint64_t n = 12345;

	T_EQ(kvdb_close(db), 0);
	T_EQ(kvdb_verify(dir, NULL, MPOOL_VERIFY_DATA, NULL, NULL, &n), 0);
	T_EQ(n, damage);
	kv_remove(dir);
}

#endif
