/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What an epoch promises: the gate of its second writer, and what was durable before a failure.
 */
#include <errno.h>

#include "db/db.h"
#include "kv_fresh.h"
#include "log/flush.h"

static char dir[256];

/* R1: the writer that gave birth to the epoch stands before the gate is set. */
static void second_writer_sets_the_gate(void)
{
	struct kvdb_opts o;
	struct kvdb_kvs *kvs;
	struct kvdb *db;
	uint64_t e;

	kv_fresh(dir, sizeof(dir), "kv_durable", 64u << 20, 0);
	kv_opts_one(&o, KVDB_MANUAL);
	T_EQ(kvdb_open(dir, &o, &db), 0);
	T_EQ(kvdb_kvs_create(db, "s", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	e = atomic_load(&db->d_epochs.ep_open);
	T_EQ(atomic_load(&db->d_flusher->fl_gate_ns), UINT64_MAX);
	atomic_store(&db->d_logs->ls_birth[e % 4], kv_now(db));
	T_EQ(kvdb_put(kvs, "a", 1, "a", 1), 0);
	T_OK(atomic_load(&db->d_flusher->fl_gate_ns) != UINT64_MAX);
	T_EQ(kvdb_close(db), 0);
	kv_remove(dir);
}

static void note_result(void *arg, int err)
{
	*(int *)arg = err;
}

/* E5: a waiter for an epoch that was durable before the failure is told so, and no other. */
static void what_was_durable_before_a_failure_stays_so(void)
{
	int told[2] = { 1, 1 };
	struct kvdb_opts o;
	struct kvdb_kvs *kvs;
	struct kvdb *db;
	uint64_t safe;

	for (unsigned i = 0; i < 2; i++) {
		kv_fresh(dir, sizeof(dir), "kv_durable", 64u << 20, 0);
		kv_opts_one(&o, i ? 0 : KVDB_MANUAL);
		o.interval_ms = KVDB_INTERVAL_NONE;
		T_EQ(kvdb_open(dir, &o, &db), 0);
		T_EQ(kvdb_kvs_create(db, "s", NULL), 0);
		T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
		T_EQ(kvdb_put(kvs, "a", 1, "a", 1), 0);
		safe = kvdb_ticket(db);
		T_EQ(kvdb_sync(db), 0);
		T_EQ(kvdb_put(kvs, "b", 1, "b", 1), 0);
		T_EQ(kv_fail(db, -EIO, "a test"), -EIO);
		T_EQ(kv_wait_durable(db, safe), 0);
		T_EQ(kvdb_wait_durable(db, kvdb_ticket(db)), -EIO);
		T_EQ(kvdb_on_durable(db, safe, note_result, &told[0]), 0);
		T_EQ(kvdb_on_durable(db, kvdb_ticket(db), note_result, &told[1]), 0);
		T_EQ(told[0], 0);
		T_EQ(told[1], -EIO);
		T_EQ(kvdb_sync(db), -EIO);
		T_EQ(kvdb_close(db), -EROFS);
		kv_remove(dir);
	}
}

int main(void)
{
	T_RUN(second_writer_sets_the_gate);
	T_RUN(what_was_durable_before_a_failure_stays_so);
	return t_done();
}
