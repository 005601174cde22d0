/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Repair and deep check with memory that ends: they fail and say so, or do all
 * of it. What could not be read for want of memory is no damage, and what was
 * not read is not left out. The libraries' allocations come from nomem.c.
 */
#include "../crash/sim.h"
#include "../harness.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvdb/kvdb.h>

#define KEYS	600u

static struct sim sim;
static char dir[256];

/* Two runs, values beside keys and in segments, deletes of one key and of many. */
static void make(void)
{
	struct mpool_dev_spec dev = { .mclass = MPOOL_CAPACITY, .size = 64u << 20 };
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	struct kvdb_opts o = KVDB_OPTS_INIT;
	const char *tmp = getenv("TMPDIR");
	char key[32], val[300] = { 0 };
	struct kvdb_kvs *kvs;
	struct kvdb *db;

	snprintf(dir, sizeof(dir), "%s/kv_nomem.XXXXXX", tmp ? tmp : "/tmp");
	T_OK(mkdtemp(dir));
	co.devs = &dev;
	co.ndevs = 1;
	T_EQ(mpool_create(dir, &co), 0);
	o.segment_bytes = 256u << 10;
	T_EQ(kvdb_create(dir, &o), 0);
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

/* Runs @fn with each allocation failing, alone or with those behind it; 0: it did all. */
static void with_each_allocation(int (*fn)(void))
{
	unsigned step = getenv("TEST_SHORT") ? 7 : 1, told = 0, k = 0;
	long before;
	int err;

	fail_at(0, false);
	T_EQ(fn(), 0);
	before = sim_memory_live();
	do {
		k += step;
		fail_at(k, k % 2);
		err = fn();
		if (err && (err != -ENOMEM || !kvdb_error_detail()->text[0]))
			T_FAIL("allocation %u: error %d: %s", k, err, kvdb_error_detail()->text);
		told += err != 0;
		if (sim_memory_live() != before)
			T_FAIL("allocation %u: %ld are left", k, sim_memory_live() - before);
	} while (sim.s_fault.f_fired);
	printf("# %u allocations, %u failures told\n", k, told);
	T_OK(told > 20 / step);
	fail_at(0, false);
	T_EQ(fn(), 0);
}

static int repair(void)
{
	static struct kvdb_repair whole;
	struct kvdb_repair r = { 0 };
	int err = kvdb_repair(dir, NULL, NULL, NULL, NULL, &r);

	if (!err && !whole.keys)
		whole = r;
	T_OK(whole.keys && !whole.lost_ranges);
	if (!err && memcmp(&r, &whole, sizeof(r)))
		T_FAIL("allocation %llu: %llu of %llu keys, %llu ranges called damaged",
		       (unsigned long long)sim.s_fault.f_at, (unsigned long long)r.keys,
		       (unsigned long long)whole.keys, (unsigned long long)r.lost_ranges);
	return err;
}

static void see(void *arg, const struct mpool_problem *p)
{
	(void)arg;
	T_FAIL("allocation %llu: %s", (unsigned long long)sim.s_fault.f_at, p->text);
}

static int verify(void)
{
	uint64_t damage = 0;
	int err = kvdb_verify(dir, NULL, KVDB_VERIFY_DEEP, see, NULL, &damage);

	T_EQ(damage, 0);
	return err;
}

static void a_repair_without_memory_fails_or_is_whole(void)
{
	with_each_allocation(repair);
}

static void a_check_without_memory_calls_nothing_damaged(void)
{
	with_each_allocation(verify);
}

int main(void)
{
	sim_init(&sim);
	sim_memory_of(&sim);
	make();
	T_RUN(a_repair_without_memory_fails_or_is_whole);
	T_RUN(a_check_without_memory_calls_nothing_damaged);
	fail_at(0, false);
	unmake();
	sim_fini(&sim);
	return t_done();
}
