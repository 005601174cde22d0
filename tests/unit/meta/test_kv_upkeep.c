/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Segments of logs over the deaths of their processes: how many, named by one epoch, sealed once.
 */
#include <errno.h>
#include <sys/wait.h>

#include "db/db.h"
#include "kv_fresh.h"
#include "meta/mdc.h"
#include "meta/upkeep.h"

static char dir[256];

/* A process that runs @fn dies; the @n values that it wrote are there afterwards. */
static void reads_after(void (*fn)(void), uint64_t pool_bytes, uint32_t n)
{
	static char val[5000];
	struct kvdb_opts o;
	struct kvdb_kvs *kvs;
	struct kvdb *db;
	size_t len;
	pid_t pid;
	int st;

	kv_fresh(dir, sizeof(dir), "kv_upkeep", pool_bytes, 64u << 10);
	pid = fork();
	if (!pid)
		fn();
	T_EQ(waitpid(pid, &st, 0), pid);
	T_EQ(st, 0);
	kv_opts_one(&o, KVDB_MANUAL);
	T_EQ(kvdb_open(dir, &o, &db), 0);
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	for (uint32_t i = 0; i < n; i++)
		T_EQ(kvdb_get(kvs, &i, sizeof(i), val, sizeof(val), &len), 0);
	T_EQ(kvdb_close(db), 0);
	kv_remove(dir);
}

#define LOG_LIMIT (4ull << 20)

/* What it finds in the logs, it leaves there: a quarter of what they may hold more. */
static void log_a_quarter(void)
{
	static char val[1000];
	struct kvdb_opts o;
	struct kvdb_kvs *kvs;
	struct kvdb *db;

	kv_opts_one(&o, KVDB_MANUAL);
	o.log_bytes = LOG_LIMIT;
	if (kvdb_open(dir, &o, &db) || (kvdb_kvs_open(db, "s", &kvs) &&
	    (kvdb_kvs_create(db, "s", NULL) || kvdb_kvs_open(db, "s", &kvs))))
		_exit(1);
	for (uint32_t i = 0; i < LOG_LIMIT / 4 / sizeof(val); i++)
		if (kvdb_put(kvs, &i, sizeof(i), val, sizeof(val)))
			_exit(2);
	_exit(kvdb_sync(db) ? 3 : 0);
}

/* Else every process that is killed leaves the next one more to replay. */
static void logs_are_bounded_over_many_deaths(void)
{
	struct kvdb_stats st;
	struct kvdb_opts o;
	struct kvdb *db;
	pid_t pid;
	int i, rc;

	kv_fresh(dir, sizeof(dir), "kv_upkeep", 256ull << 20, 64u << 10);
	kv_opts_one(&o, KVDB_RDONLY);
	for (i = 0; i < 12; i++) {
		pid = fork();
		if (!pid)
			log_a_quarter();
		T_EQ(waitpid(pid, &rc, 0), pid);
		T_EQ(rc, 0);
		T_EQ(kvdb_open(dir, &o, &db), 0);
		T_EQ(kvdb_stats(db, &st), 0);
		T_EQ(kvdb_close(db), 0);
		T_OK(st.recovery.replayed);
		/* it was stopped when it was over, and may have been just below at the start */
		T_OK(st.recovery.bytes < LOG_LIMIT + LOG_LIMIT / 2);
	}
	kv_remove(dir);
}

#define LARGE 13500u	/* records, three in a segment */
#define LARGE_BYTES 16000u
#define LARGE_SEGS 4096u	/* names of more are longer than a segment */

static void fill_large(void)
{
	static char val[LARGE_BYTES];
	struct kvdb_stats st;
	struct kvdb_opts o;
	struct kvdb_kvs *kvs;
	struct kvdb *db;
	uint32_t i;

	kv_opts_one(&o, KVDB_MANUAL);
	o.log_bytes = 2ull << 30;
	o.cache_bytes = 1ull << 30;
	o.interval_ms = KVDB_INTERVAL_NONE;
	if (kvdb_open(dir, &o, &db) || kvdb_kvs_create(db, "s", NULL) ||
	    kvdb_kvs_open(db, "s", &kvs))
		_exit(1);
	for (i = 0; i < LARGE; i++)
		if (kvdb_put(kvs, &i, sizeof(i), val, sizeof(val)))
			_exit(2);
	if (kvdb_stats(db, &st) || st.segments <= LARGE_SEGS)
		_exit(4);
	if (kvdb_sync(db))
		_exit(3);
	_exit(0);
}

static void epoch_of_many_segments_is_durable(void)
{
	reads_after(fill_large, 1ull << 30, LARGE);
}

#define SEALED 40u	/* values, in several segments */

/* The record of what was sealed finds no memory; the next step must not seal it again. */
static void seal_unrecorded(void)
{
	static char val[5000];
	struct kvdb_opts o;
	struct kvdb_kvs *kvs;
	struct kvdb *db;
	uint32_t i;

	kv_opts_one(&o, KVDB_MANUAL);
	if (kvdb_open(dir, &o, &db) || kvdb_kvs_create(db, "s", NULL) ||
	    kvdb_kvs_open(db, "s", &kvs))
		_exit(1);
	for (i = 0; i < SEALED; i++)
		if (kvdb_put(kvs, &i, sizeof(i), val, sizeof(val)))
			_exit(2);
	if (kvdb_sync(db))
		_exit(3);
	db->d_mdc->m_buf.mb_err = -ENOMEM;
	if (kv_segs_seal_now(db) != -ENOMEM)
		_exit(4);
	if (kv_segs_seal_now(db) || kv_fault(db))
		_exit(5);
	_exit(0);
}

static void a_segment_is_sealed_once_whatever_becomes_of_its_record(void)
{
	reads_after(seal_unrecorded, 64u << 20, SEALED);
}

int main(void)
{
	T_RUN(logs_are_bounded_over_many_deaths);
	T_RUN(epoch_of_many_segments_is_durable);
	T_RUN(a_segment_is_sealed_once_whatever_becomes_of_its_record);
	return t_done();
}
