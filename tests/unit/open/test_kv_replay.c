/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Replay in bounded memory (RV25): logs that hold more than memtables may when the database is
 * opened again. The process dies at one moment and is opened there as often as a test likes.
 */
#include "harness.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "db/thread.h"
#include "kv_sim.h"
#include "mem/memtable.h"
#include "meta/mdc.h"
#include "db/db.h"
#include "open/open.h"

#define KEYS	160u
#define KEY_LEN	300u	/* keys take the memory */
#define ROUNDS	6u
#define SMALL	(96u << 10)

static struct kvdb *db;
static struct kvdb_kvs *kvs[2];
static int want[2][KEYS];	/* round of the value that is there, or -1 */

static const char *const name[2] = { "a", "b" };

static const char *key_of(unsigned k)
{
	static char key[KEY_LEN + 1];

	memset(key, 'k', KEY_LEN);
	snprintf(key, 8, "%06u", k);
	key[6] = '-';
	return key;
}

static void put(unsigned s, unsigned k, int round)
{
	char val[100];

	memset(val, 'v', sizeof(val));
	snprintf(val, sizeof(val), "%u %u %d", s, k, round);
	T_EQ(kvdb_put(kvs[s], key_of(k), KEY_LEN, val, sizeof(val)), 0);
	want[s][k] = round;
}

static void del_range(unsigned s, unsigned from, unsigned to)
{
	char lo[KEY_LEN + 1];

	strcpy(lo, key_of(from));
	T_EQ(kvdb_range_del(kvs[s], lo, KEY_LEN, key_of(to), KEY_LEN), 0);
	for (unsigned k = from; k < to; k++)
		want[s][k] = -1;
}

/* Both stores in one transaction, whose commit record is in one epoch. */
static void put_both(unsigned k, int round)
{
	struct kvdb_txn *t;

	T_EQ(kvdb_txn_begin(db, 0, &t), 0);
	for (unsigned s = 0; s < 2; s++) {
		char val[100] = "";

		snprintf(val, sizeof(val), "%u %u %d", s, k, round);
		T_EQ(kvdb_txn_put(t, kvs[s], key_of(k), KEY_LEN, val, sizeof(val)), 0);
		want[s][k] = round;
	}
	T_EQ(kvdb_txn_commit(t, 0, NULL), 0);
}

static void opened(void)
{
	for (unsigned s = 0; s < 2; s++)
		T_EQ(kvdb_kvs_open(db, name[s], &kvs[s]), 0);
}

/* An open whose memtables may hold @bytes, as kvdb_open() does it. */
static int open_with(uint64_t bytes, bool is_rdonly, uint32_t next_kvs)
{
	struct kvdb_opts o = opts;
	int err;

	db = calloc(1, sizeof(*db));
	T_EQ(kv_threads_ready(), 0);
	o.flags = is_rdonly ? KVDB_RDONLY : KVDB_MANUAL;
	T_EQ(kv_db_attach(db, POOL, &o, is_rdonly), 0);
	db->d_budget.b_mt_bytes = bytes;
	if (next_kvs)
		db->d_mdc->m_st.st_super.ms_next_kvs = next_kvs;
	err = kv_db_start(db);
	if (!err) {
		opened();
		return 0;
	}
	kv_db_detach(db);
	T_EQ(mpool_close(db->d_mp), 0);
	free(db);
	db = NULL;
	return err;
}

/* The process is gone, and what it wrote is as it was before this. */
static void die(void)
{
	sim_snap(&sim);
	T_EQ(kvdb_close(db), 0);
	sim_rollback(&sim);
}

/* Overwrites, deletes and transactions in many epochs, all of them in the logs only. */
static void written(void)
{
	kv_sim(2);
	T_EQ(kvdb_create(POOL, &opts), 0);
	T_EQ(kvdb_open(POOL, &opts, &db), 0);
	for (unsigned s = 0; s < 2; s++)
		T_EQ(kvdb_kvs_create(db, name[s], NULL), 0);
	opened();
	for (unsigned r = 0; r < ROUNDS; r++) {
		for (unsigned k = r; k < KEYS; k += 1 + r % 2) {
			put(k % 2, k, (int)r);
			if (k % 7 == r) {
				T_EQ(kvdb_del(kvs[k % 2], key_of(k), KEY_LEN), 0);
				want[k % 2][k] = -1;
			}
			if (k % 16 == 0)
				T_EQ(kvdb_sync(db), 0);
		}
		del_range(r % 2, 10 * r, 10 * r + 8);
		put_both(10 * r + 3, (int)r);
		T_EQ(kvdb_sync(db), 0);
	}
	T_EQ(atomic_load(&db->d_count.flushes), 0);
}

static void all_is_there(void)
{
	char val[100], must[100];
	size_t len;

	for (unsigned s = 0; s < 2; s++) {
		for (unsigned k = 0; k < KEYS; k++) {
			int rc = kvdb_get(kvs[s], key_of(k), KEY_LEN, val, sizeof(val), &len);

			T_EQ(rc, want[s][k] < 0 ? -ENOENT : 0);
			snprintf(must, sizeof(must), "%u %u %d", s, k, want[s][k]);
			T_OK(rc || !strcmp(val, must));
		}
	}
}

static void begin(void)
{
	for (unsigned i = 0; i < 2 * KEYS; i++)
		want[i / KEYS][i % KEYS] = -1;
	written();
	die();
}

static void end(void)
{
	T_EQ(kvdb_close(db), 0);
	sim_fini(&sim);
}

static void what_memtables_cannot_hold_is_flushed_meanwhile(void)
{
	uint64_t replayed, left;

	begin();
	/* all of it in memory */
	T_EQ(open_with(64u << 20, false, 0), 0);
	T_OK(atomic_load(&db->d_count.mt_mem) > 2 * SMALL);
	T_EQ(atomic_load(&db->d_count.flushes), 0);
	replayed = db->d_opened.on_recovery.replayed;
	left = db->d_logged.lc_left;
	all_is_there();
	die();
	T_EQ(open_with(SMALL, false, 0), 0);
	T_OK(atomic_load(&db->d_count.flushes) > 4);
	T_OK(atomic_load(&db->d_count.mt_mem) <= SMALL + SMALL / 2);
	T_EQ(db->d_opened.on_recovery.replayed, replayed);
	T_OK(db->d_logged.lc_left < left / 2);
	all_is_there();
	/* what was flushed is not replayed again */
	die();
	T_EQ(open_with(SMALL, false, 0), 0);
	T_OK(db->d_opened.on_recovery.replayed < replayed / 2);
	all_is_there();
	end();
}

static void a_reader_takes_no_more_than_its_part(void)
{
	begin();
	T_EQ(open_with(SMALL, true, 0), -EFBIG);
	T_OK(!strcmp(kvdb_error_detail()->id, "MP0908"));
	T_EQ(open_with(1u << 20, true, 0), 0);
	all_is_there();
	end();
}

/* RV24: the last record shows that the container lost its end. */
static void nothing_is_flushed_before_all_is_judged(void)
{
	struct sim_log log;
	unsigned i, writes = 0;

	begin();
	T_EQ(kvdb_open(POOL, &opts, &db), 0);
	opened();
	T_EQ(kvdb_kvs_create(db, "c", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "c", &kvs[0]), 0);
	T_EQ(kvdb_put(kvs[0], "x", 1, "y", 1), 0);
	T_EQ(kvdb_kvs_drop(db, "c"), 0);
	T_EQ(kvdb_sync(db), 0);
	die();
	sim_log_init(&log, 0);
	sim.s_log = &log;
	T_EQ(open_with(SMALL, false, 3), -EUCLEAN);
	T_OK(!strcmp(kvdb_error_detail()->id, "MP0961"));
	sim.s_log = NULL;
	for (i = 0; i < sim_log_end(&log); i++)
		writes += sim_log_at(&log, i)->ev_type == SIM_WRITE;
	T_EQ(writes, 0);
	sim_log_fini(&log);
	T_EQ(open_with(SMALL, false, 0), 0);
	all_is_there();
	end();
}

/* Where nothing can be flushed all of it stays in memory: deletes make room as ever. */
static void a_full_pool_opens(void)
{
	struct mpool_alloc req = { .kind = MPOOL_APPEND, .flags = MPOOL_ALLOC_ANY |
				   MPOOL_ALLOC_SPARE, .capacity = 4u << 20 };
	struct mpool_obj *obj;

	for (unsigned i = 0; i < 2 * KEYS; i++)
		want[i / KEYS][i % KEYS] = -1;
	written();
	for (; req.capacity >= 4096; req.capacity /= 2)
		while (!mpool_alloc(db->d_mp, &req, 1, &obj))
			mpool_obj_close(obj);
	die();
	T_EQ(open_with(SMALL, false, 0), 0);
	T_EQ(atomic_load(&db->d_count.flushes), 0);
	all_is_there();
	end();
}

int main(void)
{
	T_RUN(what_memtables_cannot_hold_is_flushed_meanwhile);
	T_RUN(a_reader_takes_no_more_than_its_part);
	T_RUN(nothing_is_flushed_before_all_is_judged);
	T_RUN(a_full_pool_opens);
	return t_done();
}
