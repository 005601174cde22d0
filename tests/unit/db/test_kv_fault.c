/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Each change of what a database is (stores, options, checkpoints, runs, its container) while
 * one request of a device fails: it is done or it is not, and the error says where, and when it
 * may have been done (MP0999); a database that goes on can be changed again, one that stopped says so and writes nothing more; and
 * what the next open finds is the state before or behind the change, with all that is in it.
 */
#include "harness.h"

#include <errno.h>
#include <stdlib.h>

#include "kv_gone.h"
#include "kv_sim.h"

#define KEYS	60u

static struct kvdb_kvs *store(struct kvdb *db, const char *name)
{
	struct kvdb_kvs *kvs;

	T_EQ(kvdb_kvs_open(db, name, &kvs), 0);
	return kvs;
}

static int fill(struct kvdb_kvs *kvs, unsigned seed)
{
	char val[900];
	int err = 0;

	for (unsigned i = 0; i < KEYS && !err; i++) {
		sim_garbage(val, sizeof(val), seed + i);
		err = kvdb_put(kvs, &i, sizeof(i), val, i % 2 ? sizeof(val) : 16);
	}
	return err;
}

static void make_db(void)
{
	struct kvdb_kvs_opts ko = KVDB_KVS_OPTS_INIT;
	struct kvdb *db;

	kv_sim(2);
	T_EQ(kvdb_create(POOL, &opts), 0);
	T_EQ(kvdb_open(POOL, &opts, &db), 0);
	T_EQ(kvdb_kvs_create(db, "a", NULL), 0);
	ko.ttl_s = 1000000;
	T_EQ(kvdb_kvs_create(db, "b", &ko), 0);
	T_EQ(fill(store(db, "a"), 1), 0);
	T_EQ(kvdb_checkpoint(db, "old", 0), 0);
	T_EQ(fill(store(db, "a"), 2), 0);
	T_EQ(fill(store(db, "b"), 3), 0);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	T_EQ(kvdb_close(db), 0);
}

/* ---- what a database is, as a number ------------------------------------------------- */

static uint64_t add(uint64_t sum, const void *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		sum = sim_mix(sum, ((const uint8_t *)p)[i]);
	return sum;
}

static uint64_t store_sum(struct kvdb_kvs *kvs)
{
	struct kvdb_kvs_info in;
	struct kvdb_cursor *c;
	const void *key, *val;
	size_t klen, vlen;
	uint64_t sum;
	int err;

	T_EQ(kvdb_kvs_info(kvs, &in), 0);
	sum = add(sim_mix(in.ttl_s, in.compress), in.name, strlen(in.name));
	T_EQ(kvdb_cursor_open(kvs, 0, NULL, 0, &c), 0);
	while (!(err = kvdb_cursor_next(c, &key, &klen, &val, &vlen)))
		sum = add(add(sum, key, klen), val, vlen);
	T_EQ(err, -ENOENT);
	kvdb_cursor_close(c);
	return sum;
}

/* Whatever order they come in; the store "after" and its keys are the test's own. */
static uint64_t state_of(struct kvdb *db, unsigned *damaged)
{
	struct kvdb_checkpoint_info ck[KVDB_CHECKPOINT_MAX];
	char name[KVDB_KVS_MAX][KVDB_NAME_MAX + 1];
	int n = kvdb_kvs_list(db, name, KVDB_KVS_MAX);
	uint64_t sum = 1;

	for (int i = 0; i < n; i++)
		if (strcmp(name[i], "after"))
			sum += store_sum(store(db, name[i]));
	n = kvdb_checkpoint_list(db, ck, KVDB_CHECKPOINT_MAX);
	for (int i = 0; i < n; i++) {
		*damaged += ck[i].is_damaged;
		sum += add(7, ck[i].name, strlen(ck[i].name));
	}
	return sum;
}

/* Of the database as it lies there, with everything that it consists of read; 0: none. */
static uint64_t state_now(bool *has_after)
{
	uint64_t damage = 1, sum;
	unsigned bad = 0;
	struct kvdb_kvs *kvs;
	struct kvdb *db;
	int err = kvdb_open(POOL, &opts, &db);

	*has_after = false;
	if (err == -ENOENT)
		return 0;
	T_EQ(err, 0);
	sum = state_of(db, &bad);
	T_EQ(bad, 0);
	*has_after = !kvdb_kvs_open(db, "after", &kvs);
	T_EQ(kvdb_close(db), 0);
	T_EQ(kvdb_verify(POOL, &opts, MPOOL_VERIFY_DATA, NULL, NULL, &damage), 0);
	T_EQ(damage, 0);
	return sum;
}

/* ---- the changes ----------------------------------------------------------------------- */

static int create_plain(struct kvdb *db)
{
	return kvdb_kvs_create(db, "new", NULL);
}

static int create_with_options(struct kvdb *db)
{
	struct kvdb_kvs_opts ko = KVDB_KVS_OPTS_INIT;

	ko.ttl_s = 77;
	ko.compress = KVDB_COMPRESS_LZ4;
	return kvdb_kvs_create(db, "new", &ko);
}

static int set_options(struct kvdb *db)
{
	struct kvdb_kvs_opts ko = KVDB_KVS_OPTS_INIT;

	ko.ttl_s = 88;
	ko.compress = KVDB_COMPRESS_LZ4;
	return kvdb_kvs_set(store(db, "a"), &ko, KVDB_KVS_TTL | KVDB_KVS_COMPRESS);
}

static int rename_store(struct kvdb *db)
{
	return kvdb_kvs_rename(db, "a", "renamed");
}

static int drop_store(struct kvdb *db)
{
	return kvdb_kvs_drop(db, "a");
}

static int make_checkpoint(struct kvdb *db)
{
	return kvdb_checkpoint(db, "new", 0);
}

static int drop_checkpoint(struct kvdb *db)
{
	return kvdb_checkpoint_drop(db, "old");
}

static int put_and_flush(struct kvdb *db)
{
	int err = fill(store(db, "a"), 9);

	if (!err)
		err = kvdb_sync(db);
	return err ? err : kvdb_drain(db, KVDB_WAIT_FLUSH);
}

static int bulk_load(struct kvdb *db)
{
	struct kvdb_bulk *b;
	char val[900];
	int err = kvdb_bulk_open(store(db, "b"), 0, &b);

	if (err)
		return err;
	for (unsigned i = 0; i < 9 && !err; i++) {
		char key[4] = { 'z', 'z', 0, (char)i };

		sim_garbage(val, sizeof(val), i);
		err = kvdb_bulk_add(b, key, sizeof(key), val, sizeof(val));
	}
	if (!err)
		return kvdb_bulk_finish(b);
	kvdb_bulk_abort(b);
	return err;
}

static uint64_t container_used(struct kvdb *db, uint64_t *cap)
{
	uint64_t used;

	T_EQ(mpool_mdc_space(db->d_mdc->m_log, &used, cap), 0);
	return used;
}

/* The options as they are. */
static int set_again(struct kvdb *db)
{
	struct kvdb_kvs_opts ko = KVDB_KVS_OPTS_INIT;

	ko.ttl_s = 1000000;
	return kvdb_kvs_set(store(db, "b"), &ko, KVDB_KVS_TTL);
}

/* Until the container is written anew, into its other log. */
static int rewrite_container(struct kvdb *db)
{
	uint64_t last, cap;
	int err;

	do {
		last = container_used(db, &cap);
		err = set_again(db);
	} while (!err && container_used(db, &cap) > last);
	return err;
}

/* A few records more and it is full: of its end appends leave 64 KiB alone. */
static void fill_container(void)
{
	struct kvdb *db;
	uint64_t cap;

	T_EQ(kvdb_open(POOL, &opts, &db), 0);
	while (container_used(db, &cap) + (96u << 10) < cap)
		T_EQ(set_again(db), 0);
	T_EQ(kvdb_close(db), 0);
}

static struct kvdb *opened;

static int open_it(struct kvdb *none)
{
	(void)none;
	return kvdb_open(POOL, &opts, &opened);
}

static int open_checkpoint(struct kvdb *none)
{
	struct kvdb_opts at = opts;

	(void)none;
	at.flags |= KVDB_RDONLY;
	at.checkpoint = "old";
	return kvdb_open(POOL, &at, &opened);
}

static int create_it(struct kvdb *none)
{
	(void)none;
	return kvdb_create(POOL, &opts);
}

struct change {
	const char *name;
	int (*run)(struct kvdb *db);
	bool is_many;	/* of several steps: one in the middle may be what is left */
	bool is_whole;	/* the database is not open: @run is given none */
};

static const struct change changes[] = {
	{ "create of a store", create_plain, false, false },
	{ "create with options", create_with_options, false, false },
	{ "set", set_options, false, false },
	{ "rename", rename_store, false, false },
	{ "drop", drop_store, false, false },
	{ "checkpoint", make_checkpoint, false, false },
	{ "drop of a checkpoint", drop_checkpoint, false, false },
	{ "bulk load", bulk_load, false, false },
	{ "flush", put_and_flush, true, false },
	{ "open", open_it, false, true },
	{ "open of a checkpoint", open_checkpoint, false, true },
};

static const struct change rewrite = {
	"rewrite of the container", rewrite_container, false, false,
};
static const struct change recovery = { "open behind a crash", open_it, false, true };
static const struct change create = { "create", create_it, false, true };

/* ---- one request fails ------------------------------------------------------------------- */

static const struct {
	uint8_t kind;
	bool is_sticky;
} faults[] = {
	{ FAULT_WRITE, false }, { FAULT_WRITE, true }, { FAULT_TORN, false },
	{ FAULT_NOSPC, false }, { FAULT_FLUSH, false }, { FAULT_READ, false },
	{ FAULT_READ, true }, { FAULT_ROT, false },
};

struct outcome {
	const struct change *c;
	unsigned fault;
	uint64_t at;
	bool fired;
	int err;
	char text[512];
	bool is_unknown;	/* it says so */
};

struct want {
	uint64_t before, behind;	/* the change; the same after one that changes nothing */
	uint64_t opened;		/* what it opened */
};

#define WRONG(o, fmt, ...)								\
	T_FAIL("%s, %s %llu%s: %d (%s): " fmt, (o)->c->name,				\
	       sim_fault_name[faults[(o)->fault].kind], (unsigned long long)(o)->at,	\
	       faults[(o)->fault].is_sticky ? " and on" : "", (o)->err, (o)->text, ##__VA_ARGS__)

static bool names_it(const char *text)
{
	static const char *const what[] = { "capacity", "staging", "object ", "log ", "manifest ",
					    "key block " };

	for (unsigned i = 0; i < sizeof(what) / sizeof(what[0]); i++)
		if (strstr(text, what[i]))
			return true;
	return false;
}

/*
 * The database that is left: it can be changed, or it stopped, perhaps behind the change (what
 * is deleted then). True: it was changed.
 */
static bool goes_on(struct outcome *o, struct kvdb *db)
{
	uint64_t writes;
	int err;

	sim.s_fault = (struct sim_fault){ .f_kind = FAULT_WRITE };
	err = kvdb_kvs_create(db, "after", NULL);
	writes = sim.s_fault.f_calls;
	sim.s_fault.f_kind = FAULT_NONE;
	if (!err)
		return true;
	if (!o->fired || err != -EROFS || writes || !names_it(kvdb_error_detail()->text))
		WRONG(o, "the next change: %d: %s, %llu writes", err, kvdb_error_detail()->text,
		      (unsigned long long)writes);
	return false;
}

/* The change, with its fault. True: the database was changed once more. */
static bool run_with_fault(struct outcome *o, const struct want *w)
{
	bool was_changed = false;
	struct kvdb *db = NULL;
	unsigned damaged = 0;

	opened = NULL;
	if (!o->c->is_whole)
		T_EQ(kvdb_open(POOL, &opts, &db), 0);
	sim.s_fault = (struct sim_fault){ .f_kind = faults[o->fault].kind, .f_at = o->at,
					  .f_is_sticky = faults[o->fault].is_sticky };
	o->err = o->c->run(db);
	snprintf(o->text, sizeof(o->text), "%s", o->err ? kvdb_error_detail()->text : "");
	o->is_unknown = o->err == -EIO && !strcmp(kvdb_error_detail()->id, "MP0999");
	o->fired = sim.s_fault.f_fired;
	sim.s_fault.f_kind = FAULT_NONE;
	if (o->err && (!o->fired || !names_it(o->text)))
		WRONG(o, "%s", o->fired ? "names nothing" : "nothing failed");
	if (opened && state_of(opened, &damaged) != w->opened)
		WRONG(o, "opened in another state");
	/* C5: a manifest that cannot be read holds everything, as long as it is open */
	if (damaged && (!o->fired || faults[o->fault].kind != FAULT_READ))
		WRONG(o, "a checkpoint is called damaged");
	if (opened)
		kvdb_close(opened);
	if (!db)
		return false;
	was_changed = goes_on(o, db);
	kvdb_close(db);
	return was_changed;
}

static unsigned told_unknown;

/* False: the fault was never met. */
static bool run_one(struct outcome *o, const struct want *w)
{
	bool was_changed, has_after;
	uint64_t now;

	sim_snap(&sim);
	was_changed = run_with_fault(o, w);
	now = state_now(&has_after);
	if (was_changed != has_after)
		WRONG(o, "the next change was %stold to be durable", was_changed ? "" : "not ");
	if (o->err ? now != w->before && now != w->behind && !o->c->is_many : now != w->behind)
		WRONG(o, "another state");
	/* it does not say that nothing was done when it was */
	if (o->err && now != w->before && !o->is_unknown && !o->c->is_many && o->c->run != open_it)
		WRONG(o, "it was done");
	told_unknown += o->err && o->is_unknown;
	/* what failed can be done again */
	if (o->err && now == w->before && o->c->is_whole) {
		int err = o->c->run(NULL);

		if (err)
			WRONG(o, "again: %d: %s", err, kvdb_error_detail()->text);
		if (opened)
			T_EQ(kvdb_close(opened), 0);
	}
	sim_rollback(&sim);
	return o->fired;
}

/* What the change makes of the database when nothing fails. */
static struct want wanted(const struct change *c)
{
	struct want w = { .before = 0 };
	struct kvdb *db = NULL;
	unsigned bad = 0;
	bool unused;

	sim_snap(&sim);
	w.before = state_now(&unused);
	sim_rollback(&sim);
	sim_snap(&sim);
	opened = NULL;
	if (!c->is_whole)
		T_EQ(kvdb_open(POOL, &opts, &db), 0);
	T_EQ(c->run(db), 0);
	if (opened) {
		w.opened = state_of(opened, &bad);
		T_EQ(bad, 0);
		T_EQ(kvdb_close(opened), 0);
	}
	if (db)
		T_EQ(kvdb_close(db), 0);
	w.behind = state_now(&unused);
	sim_rollback(&sim);
	return w;
}

static void run_all(const struct change *c)
{
	unsigned step = getenv("TEST_SHORT") ? 3 : 1, runs = 0, failed = 0;
	struct want w = wanted(c);

	for (unsigned f = 0; f < sizeof(faults) / sizeof(faults[0]); f++) {
		struct outcome o = { .c = c, .fault = f, .at = 1 };

		for (; run_one(&o, &w); o.at += step) {
			runs++;
			failed += o.err != 0;
		}
	}
	printf("# %s: %u runs, %u failures told\n", c->name, runs, failed);
	T_OK(failed);
}

static void a_change_is_done_or_not_and_says_where_it_failed(void)
{
	make_db();
	for (unsigned i = 0; i < sizeof(changes) / sizeof(changes[0]); i++)
		run_all(&changes[i]);
	T_OK(told_unknown > 10);
	sim_fini(&sim);
}

static void a_rewrite_of_the_container_loses_nothing(void)
{
	make_db();
	fill_container();
	run_all(&rewrite);
	sim_fini(&sim);
}

static void an_open_behind_a_crash_loses_nothing(void)
{
	struct kvdb *db;

	make_db();
	T_EQ(kvdb_open(POOL, &opts, &db), 0);
	T_EQ(fill(store(db, "a"), 4), 0);
	T_EQ(kvdb_sync(db), 0);
	/* the process dies here */
	sim_snap(&sim);
	T_EQ(kvdb_close(db), 0);
	sim_rollback(&sim);
	run_all(&recovery);
	sim_fini(&sim);
}

static void a_database_is_made_or_can_be_made_again(void)
{
	kv_sim(2);
	run_all(&create);
	sim_fini(&sim);
}

/* ---- what a drop deletes ------------------------------------------------------------------ */

/* The blocks of a dropped store wait for the checkpoint that lists them. */
static struct kvdb *open_parked(void)
{
	struct kvdb *db;

	T_EQ(kvdb_open(POOL, &opts, &db), 0);
	T_EQ(kvdb_kvs_drop(db, "a"), 0);
	T_EQ(kvdb_drain(db, KVDB_WAIT_COMPACT), 0);
	T_OK(gone_but_there(db));
	return db;
}

static struct kvdb *open_unpinned(void)
{
	struct kvdb *db;

	T_EQ(kvdb_open(POOL, &opts, &db), 0);
	T_EQ(kvdb_checkpoint_drop(db, "old"), 0);
	T_EQ(kvdb_drain(db, KVDB_WAIT_COMPACT), 0);
	T_EQ(gone_but_there(db), 0);
	return db;
}

/* Bytes of the pool that are in use when nothing is left to do. */
static uint64_t settled(void)
{
	struct kvdb_info in;
	struct kvdb *db;

	T_EQ(kvdb_open(POOL, &opts, &db), 0);
	T_EQ(kvdb_drain(db, KVDB_WAIT_COMPACT), 0);
	T_EQ(gone_but_there(db), 0);
	T_EQ(kvdb_info(db, &in), 0);
	T_EQ(kvdb_close(db), 0);
	return in.pool.cls[MPOOL_CAPACITY].used + in.pool.cls[MPOOL_STAGING].used;
}

/* FS4 */
static void stops_with_its_pool(struct kvdb *db)
{
	struct kvdb_kvs *kvs;
	struct kvdb_info in;

	T_EQ(kvdb_info(db, &in), 0);
	if (in.pool.is_rdonly && !kvdb_kvs_open(db, "a", &kvs))
		T_EQ(kvdb_put(kvs, "stopped", 7, "v", 1), -EROFS);
}

/* @drop with a fault; what it could not delete is pinned, and gone when opened again. */
static bool drop_once(struct kvdb *(*open_for)(void), const struct change *c, unsigned fault,
		      uint64_t at, uint64_t *used, unsigned *late)
{
	struct kvdb *db = open_for();
	struct kvdb_stats st;
	bool fired, is_late;
	int err;

	sim.s_fault = (struct sim_fault){ .f_kind = faults[fault].kind, .f_at = at,
					  .f_is_sticky = faults[fault].is_sticky };
	err = c->run(db);
	if (!err)
		err = kvdb_drain(db, KVDB_WAIT_COMPACT);
	fired = sim.s_fault.f_fired;
	sim.s_fault.f_kind = FAULT_NONE;
	T_OK(!err || fired);
	T_EQ(kvdb_stats(db, &st), 0);
	stops_with_its_pool(db);
	is_late = !st.checkpoints && gone_but_there(db);
	*late += is_late;
	if (is_late && c->run == drop_checkpoint && !st.pinned_bytes)
		T_FAIL("%s, %s %llu: %zu objects are there, none is pinned", c->name,
		       sim_fault_name[faults[fault].kind], (unsigned long long)at,
		       gone_but_there(db));
	kvdb_close(db);
	/* the drop itself may have failed */
	T_EQ(kvdb_open(POOL, &opts, &db), 0);
	err = c->run(db);
	T_OK(!err || err == -ENOENT);
	T_EQ(kvdb_close(db), 0);
	if (!*used)
		*used = settled();
	T_EQ(settled(), *used);
	return fired;
}

static void drop_with_each_fault(struct kvdb *(*open_for)(void), int (*drop)(struct kvdb *))
{
	struct change c = { "drop", drop, false, false };
	unsigned late = 0, runs = 0;
	uint64_t used = 0, at;
	bool fired;

	sim_snap(&sim);
	T_OK(!drop_once(open_for, &c, 0, 0, &used, &late));
	sim_rollback(&sim);
	T_EQ(late, 0);
	for (unsigned f = 0; f < sizeof(faults) / sizeof(faults[0]); f++) {
		for (at = fired = 1; fired; at++, runs++) {
			sim_snap(&sim);
			fired = drop_once(open_for, &c, f, at, &used, &late);
			sim_rollback(&sim);
		}
	}
	printf("# %u runs, %u drops that deleted later\n", runs, late);
	T_OK(late);
}

static void what_a_drop_could_not_delete_is_pinned_and_goes_with_the_next_open(void)
{
	make_db();
	drop_with_each_fault(open_parked, drop_checkpoint);
	drop_with_each_fault(open_unpinned, drop_store);
	sim_fini(&sim);
}

/* ---- what the error of a write says ------------------------------------------------------- */

#define LARGE	200000u	/* bytes of a value */
#define LARGES	110u	/* more than the log may hold: memtables are flushed, writers stop */

static bool is_there(struct kvdb_kvs *kvs, unsigned i)
{
	static char val[LARGE];
	size_t len;
	int err = kvdb_get(kvs, &i, sizeof(i), val, sizeof(val), &len);

	if (!err && (len != LARGE || val[0] != (char)i || val[LARGE - 1] != (char)i))
		T_FAIL("value %u is another one", i);
	return !err;
}

/* A put, or a transaction of one. */
static int write_one(struct kvdb *db, struct kvdb_kvs *kvs, bool in_txn, unsigned i)
{
	static char val[LARGE];
	struct kvdb_txn *txn;
	int err;

	memset(val, (char)i, sizeof(val));
	if (!in_txn)
		return kvdb_put(kvs, &i, sizeof(i), val, sizeof(val));
	T_EQ(kvdb_txn_begin(db, 0, &txn), 0);
	err = kvdb_txn_put(txn, kvs, &i, sizeof(i), val, sizeof(val));
	if (!err)
		return kvdb_txn_commit(txn, 0, NULL);
	kvdb_txn_abort(txn);
	return err;
}

/* False: the fault was never met. */
static bool write_until(enum sim_fault_kind kind, bool is_sticky, uint64_t at, unsigned *told)
{
	bool in_txn = at % 2, fired;
	struct kvdb_kvs *kvs;
	struct kvdb *db;
	unsigned i;
	int err = 0;

	sim_snap(&sim);
	opts.commit = at / 2 % 2;
	T_EQ(kvdb_open(POOL, &opts, &db), 0);
	kvs = store(db, "a");
	sim.s_fault = (struct sim_fault){ .f_kind = kind, .f_at = at, .f_is_sticky = is_sticky };
	for (i = 1000; i < 1000 + LARGES && !err; i++)
		err = write_one(db, kvs, in_txn, i);
	fired = sim.s_fault.f_fired;
	sim.s_fault.f_kind = FAULT_NONE;
	told[0] += err == -EIO;
	told[1] += err && err != -EIO;
	if (err && is_there(kvs, i - 1) != (err == -EIO))
		T_FAIL("%s %llu: a %s says %d (%s), and is%s there", sim_fault_name[kind],
		       (unsigned long long)at, in_txn ? "transaction" : "put", err,
		       kvdb_error_detail()->text, is_there(kvs, i - 1) ? "" : " not");
	kvdb_close(db);
	opts.commit = 0;
	sim_rollback(&sim);
	return fired;
}

/* -EIO: it is visible and not durable. Any other error: nothing was changed. */
static void the_error_of_a_write_says_whether_it_is_there(void)
{
	static const enum sim_fault_kind kind[] = { FAULT_WRITE, FAULT_FLUSH };
	unsigned step = getenv("TEST_SHORT") ? 7 : 3;

	make_db();
	for (unsigned k = 0; k < 4; k++) {
		unsigned told[2] = { 0 };
		uint64_t at = 1;

		while (write_until(kind[k % 2], k / 2, at, told))
			at += step;
		printf("# %s: %u times there, %u times not\n", sim_fault_name[kind[k % 2]],
		       told[0], told[1]);
	}
	sim_fini(&sim);
}

/* ---- what is done in the background --------------------------------------------------- */

static int flush_all(struct kvdb *db)
{
	return kvdb_drain(db, KVDB_WAIT_FLUSH);
}

static int compact(struct kvdb *db)
{
	return kvdb_compact(db, KVDB_COMPACT_WAIT);
}

/*
 * @work while the @at-th request of @kind fails, and with @is_sticky all behind it. False: it has
 * not so many. What was acknowledged stays, and a database that did not stop goes on.
 */
static bool work_with_fault(int (*work)(struct kvdb *), enum sim_fault_kind kind, bool is_sticky,
			    uint64_t at, unsigned *done)
{
	struct kvdb_kvs *kvs;
	struct kvdb *db;
	uint64_t sum;
	bool fired;
	int err;

	sim_snap(&sim);
	T_EQ(kvdb_open(POOL, &opts, &db), 0);
	kvs = store(db, "a");
	T_EQ(fill(kvs, 4), 0);
	T_EQ(kvdb_sync(db), 0);
	sum = store_sum(kvs);
	sim.s_fault = (struct sim_fault){ .f_kind = kind, .f_at = at, .f_is_sticky = is_sticky };
	err = work(db);
	fired = sim.s_fault.f_fired;
	sim.s_fault.f_kind = FAULT_NONE;
	T_EQ(store_sum(kvs), sum);
	stops_with_its_pool(db);
	/* a caller that waited until all is done is told what stopped the database at its end */
	if (fired && !err) {
		*done += 1;
		T_EQ(kvdb_put(kvs, "k", 1, "v", 1), 0);
		T_EQ(fill(kvs, 5), 0);
		sum = store_sum(kvs);
		T_EQ(compact(db), 0);
	}
	kvdb_close(db);
	T_EQ(kvdb_open(POOL, &opts, &db), 0);
	T_EQ(store_sum(store(db, "a")), sum);
	T_EQ(kvdb_close(db), 0);
	sim_rollback(&sim);
	return fired;
}

/* LF14: no log, no metadata, no flush of a device was it that failed */
static void what_a_device_fails_once_is_done_again(void)
{
	static const struct {
		int (*work)(struct kvdb *);
		enum sim_fault_kind kind;
		const char *name;
	} part[] = {
		{ flush_all, FAULT_WRITE, "writes of a flush" },
		{ compact, FAULT_WRITE, "writes of a compaction" },
		{ compact, FAULT_READ, "reads of a compaction" },
	};

	make_db();
	for (unsigned i = 0; i < 3; i++) {
		unsigned once = 0, lasting = 0;
		uint64_t at = 1;

		while (work_with_fault(part[i].work, part[i].kind, false, at, &once))
			at++;
		printf("# %s: %u of %u do without it\n", part[i].name, once, (unsigned)at - 1);
		/* of writes some are records */
		T_OK(part[i].kind == FAULT_READ ? once == at - 1 : once != 0);
		work_with_fault(part[i].work, part[i].kind, true, 1, &lasting);
		T_EQ(lasting, 0);
	}
	sim_fini(&sim);
}

/* What stands in one log is not known then: an unfinished one beside it would be damage. */
static void a_container_without_its_first_header_is_not_written_anew(void)
{
	struct iovec v = { "record", 6 };
	struct mpool_mdc *mdc;
	struct mpool *mp;

	kv_sim(1);
	T_EQ(mpool_open(POOL, &oo, &mp), 0);
	T_EQ(mpool_mdc_create(mp, "c", MPOOL_CAPACITY, 1u << 20, 7), 0);
	T_EQ(mpool_mdc_open(mp, "c", &mdc), 0);
	sim.s_fault = (struct sim_fault){ .f_kind = FAULT_WRITE, .f_at = 1 };
	T_EQ(mpool_mdc_append(mdc, &v, 1, MPOOL_SYNC), -EIO);
	sim.s_fault = (struct sim_fault){ 0 };
	T_OK(mpool_mdc_compact_begin(mdc) < 0);
	T_OK(mpool_mdc_append(mdc, &v, 1, MPOOL_SYNC) < 0);
	mpool_mdc_close(mdc);
	T_EQ(mpool_mdc_open(mp, "c", &mdc), 0);
	mpool_mdc_close(mdc);
	T_EQ(mpool_close(mp), 0);
	sim_fini(&sim);
}

int main(void)
{
	T_RUN(a_change_is_done_or_not_and_says_where_it_failed);
	T_RUN(a_rewrite_of_the_container_loses_nothing);
	T_RUN(an_open_behind_a_crash_loses_nothing);
	T_RUN(a_database_is_made_or_can_be_made_again);
	T_RUN(what_a_drop_could_not_delete_is_pinned_and_goes_with_the_next_open);
	T_RUN(the_error_of_a_write_says_whether_it_is_there);
	T_RUN(what_a_device_fails_once_is_done_again);
	T_RUN(a_container_without_its_first_header_is_not_written_anew);
	return t_done();
}
