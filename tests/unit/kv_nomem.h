/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A database whose memory ends: the programs that include this have copies of both libraries
 * whose allocations come from tests/crash/nomem.c.
 */
#ifndef TESTS_KV_NOMEM_H
#define TESTS_KV_NOMEM_H

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <kvdb/kvdb.h>

#include "harness.h"
#include "kv_fresh.h"
#include "sim.h"

#define KEYS	600u
#define BEFORE	"what was wrong before"

static struct sim sim;
static char dir[256];

/* Two runs, values beside keys and in segments, deletes of one key and of many. */
static void make(void)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;
	char key[32], val[300] = { 0 };
	struct kvdb_kvs *kvs;
	struct kvdb *db;

	kv_fresh(dir, sizeof(dir), "kv_nomem", 64u << 20, 256u << 10);
	o.flags = KVDB_MANUAL;
	T_EQ(kvdb_open(dir, &o, &db), 0);
	T_EQ(kvdb_kvs_create(db, "s", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned k = round; k < KEYS; k += 1 + round)
			T_EQ(kvdb_put(kvs, key, (size_t)sprintf(key, "%06u", k), val,
				      k % 4 ? 300 : 20), 0);
		T_EQ(kvdb_del(kvs, "000007", 6), 0);
		T_EQ(kvdb_range_del(kvs, "000100", 6, "000120", 6), 0);
		T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	}
	T_EQ(kvdb_close(db), 0);
}

static void unmake(void)
{
	T_EQ(mpool_destroy(dir, NULL), 0);
	rmdir(dir);
}

static void fail_at(uint64_t k, bool is_sticky)
{
	sim.s_fault = (struct sim_fault){ .f_kind = FAULT_MEMORY, .f_is_sticky = is_sticky,
					  .f_at = k };
}

static inline struct kvdb *open_with(uint32_t flags)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct kvdb *db;

	o.flags = KVDB_MANUAL | flags;
	T_EQ(kvdb_open(dir, &o, &db), 0);
	return db;
}

static inline struct kvdb *open_whole(void)
{
	return open_with(0);
}

static int told(int err, const char *what)
{
	if (err && (err != -ENOMEM || strstr(kvdb_error_detail()->text, BEFORE)))
		T_FAIL("allocation %llu: %s: error %d: %s", (unsigned long long)sim.s_fault.f_at,
		       what, err, kvdb_error_detail()->text);
	return err;
}

#endif
