/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Repair and deep check with memory that ends: they fail and say so, or do all
 * of it. What could not be read for want of memory is no damage, and what was
 * not read is not left out. So do opens, calls, checkpoints, drops and space.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "db/db.h"
#include "kv_gone.h"
#include "kv_nomem.h"
#include "compact/reloc.h"
#include "base/error.h"
#include "db/mem_wait.h"
#include "seg/kv_omf.h"
#include "seg/value.h"
#include "tree/tree.h"
#include "open/open.h"

#define GONE	8u	/* blocks that are to be deleted */
#define SEGS	2000u	/* in one record of the container */

/* Runs @fn with each allocation failing, alone or with those behind it; 0: it did all. */
static void with_each_allocation(int (*fn)(void))
{
	unsigned step = getenv("TEST_SHORT") ? 5 : 1, told = 0, k = 0;
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

/* ---- the container ------------------------------------------------------------------ */

static void attach(struct kvdb *db)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;

	memset(db, 0, sizeof(*db));
	T_EQ(kv_db_attach(db, dir, &o, false), 0);
	T_EQ(mpool_begin(db->d_mp), 0);
}

static void detach(struct kvdb *db)
{
	kv_db_detach(db);
	T_EQ(mpool_close(db->d_mp), 0);
}

/* Blocks of dropped runs, which are not deleted yet. */
static void make_gone(struct kvdb *db, uint64_t *id)
{
	struct mpool_alloc req = { .kind = MPOOL_MBLOCK, .mclass = MPOOL_CAPACITY,
				   .capacity = 64u << 10, .tag = db->d_ident.id_tag };
	struct mpool_op op = { .type = MPOOL_OP_COMMIT };

	for (unsigned i = 0; i < GONE; i++) {
		T_EQ(mpool_alloc(db->d_mp, &req, 1, &op.obj), 0);
		T_EQ(mpool_batch(db->d_mp, &op, 1), 0);
		id[i] = mpool_obj_id(op.obj);
		mpool_obj_close(op.obj);
	}
	T_EQ(kv_mdc_gone(db, id, GONE), 0);
}

static void are_still_gone(const struct kvdb *db, const uint64_t *id)
{
	const struct kv_mdc_state *st = &db->d_mdc->m_st;

	for (unsigned i = 0; i < GONE; i++) {
		size_t k = 0;

		while (k < st->st_ngone && st->st_gone[k] != id[i])
			k++;
		if (k == st->st_ngone)
			T_FAIL("allocation %llu: block %u is forgotten",
			       (unsigned long long)sim.s_fault.f_at, i);
	}
}

/* Writes records until the container is compacted, then with allocation @k failing. */
static int compacted_without(struct kvdb *db, uint64_t k)
{
	static struct kv_mdc_seg seg[SEGS];
	struct kv_mdc_incarn in = db->d_mdc->m_st.st_inc;
	uint64_t used, last, cap, step = 0;
	int err;

	for (unsigned i = 0; i < SEGS; i++)
		seg[i] = (struct kv_mdc_seg){ (1ull << 40) + i, 1, 4096 };
	T_EQ(mpool_mdc_space(db->d_mdc->m_log, &last, &cap), 0);
	for (;;) {
		/* in a file it is as long as there is space below */
		if (db->d_mdc->m_have && db->d_mdc->m_have < cap)
			cap = db->d_mdc->m_have;
		fail_at(last + 4 * step + (128u << 10) > cap ? k : 0, false);
		in.mi_incarnation++;
		err = kv_mdc_incarn(db, &in, seg, SEGS);
		if (err)
			return err;
		T_EQ(mpool_mdc_space(db->d_mdc->m_log, &used, &cap), 0);
		if (used < last)
			return 0;
		step = used - last;
		last = used;
	}
}

static void a_compaction_without_memory_forgets_no_block(void)
{
	static struct kvdb db;
	uint64_t id[GONE], k = 0;
	unsigned told = 0;
	bool fired;
	int err;

	attach(&db);
	make_gone(&db, id);
	do {
		kv_error(-EINVAL, "MP0951", BEFORE);
		err = compacted_without(&db, ++k);
		fired = sim.s_fault.f_fired;
		fail_at(0, false);
		if (err && (err != -ENOMEM || strstr(kvdb_error_detail()->text, BEFORE)))
			T_FAIL("allocation %llu: error %d: %s", (unsigned long long)k, err,
			       kvdb_error_detail()->text);
		told += err != 0;
		are_still_gone(&db, id);
		/* nothing was written: the next one works */
		if (kv_fault(&db))
			T_FAIL("allocation %llu stopped it: %s", (unsigned long long)k,
			       db.d_fault.fa_text);
		if (compacted_without(&db, 0))
			T_FAIL("allocation %llu: %s", (unsigned long long)k,
			       kvdb_error_detail()->text);
		are_still_gone(&db, id);
		detach(&db);
		attach(&db);
		are_still_gone(&db, id);
	} while (fired);
	printf("# %llu allocations, %u failures told\n", (unsigned long long)k, told);
	T_OK(k > GONE && told);
	T_EQ(kv_objs_delete(db.d_mp, id, GONE), 0);
	detach(&db);
}

static int open_and_close(void)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct kvdb *db;
	int err;

	o.flags = KVDB_MANUAL;
	kv_error(-EINVAL, "MP0951", BEFORE);
	err = kvdb_open(dir, &o, &db);
	if (!err)
		err = kvdb_close(db);
	if (err && strstr(kvdb_error_detail()->text, BEFORE))
		T_FAIL("allocation %llu: error %d: %s", (unsigned long long)sim.s_fault.f_at, err,
		       kvdb_error_detail()->text);
	return err;
}

static void an_open_without_memory_says_so(void)
{
	with_each_allocation(open_and_close);
}

static unsigned found(struct kvdb_kvs *kvs, const char *key)
{
	size_t len;

	return kvdb_get(kvs, key, strlen(key), NULL, 0, &len) ? 0 : 1;
}

/* ---- a database that has stopped ------------------------------------------------------- */

/* With all allocations failing @fn ends, with an error, after the first. */
static void ends_at_once(int (*fn)(struct kvdb *db, struct kvdb_kvs *kvs))
{
	struct kvdb *db = open_whole();
	struct kvdb_kvs *kvs;

	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	kv_fail(db, -EIO, "a test");
	fail_at(1, true);
	T_OK(fn(db, kvs));
	T_EQ(sim.s_fault.f_fired, 1);
	fail_at(0, false);
	T_OK(kvdb_close(db));
}

static int show(struct kvdb *db, struct kvdb_kvs *kvs)
{
	struct kv_edit ed = { 0 };
	int err;

	(void)db;
	pthread_mutex_lock(&kvs->k_edit_lock);
	err = kv_tree_show(kvs, NULL, &ed);
	pthread_mutex_unlock(&kvs->k_edit_lock);
	return err;
}

static int fold(struct kvdb *db, struct kvdb_kvs *kvs)
{
	static const uint64_t id[2] = { 1, 2 };
	struct kv_mdc_state st = { .st_waits = db, .st_has_super = true };
	struct kv_mdc_buf b = { 0 };
	int rc;

	(void)kvs;
	sim_memory_of(NULL);
	st.st_super.ms_tag = db->d_ident.id_tag;
	kv_mdc_enc_gone(&b, db->d_ident.id_tag, id, 2);
	sim_memory_of(&sim);
	rc = kv_mdc_fold(&st, b.mb_p, b.mb_len);
	kv_mdc_buf_free(&b);
	kv_mdc_state_free(&st);
	return rc == -ENOMEM;
}

static int no_wait(struct kvdb *db, struct kvdb_kvs *kvs)
{
	(void)kvs;
	return !kv_realloc_wait(db, NULL, 1);
}

static void *first_call(void *kvs)
{
	T_EQ(found(kvs, "000333"), 1);
	return NULL;
}

/* What a thread needs at its first call is waited for: there is no one to tell. */
static void a_new_thread_waits_for_memory(void)
{
	struct kvdb *db = open_whole();
	struct kvdb_kvs *kvs;
	pthread_t t;

	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	T_EQ(found(kvs, "000333"), 1);
	fail_at(1, true);
	T_EQ(pthread_create(&t, NULL, first_call, kvs), 0);
	T_EQ(pthread_join(t, NULL), 0);
	T_OK(sim.s_fault.f_fired);
	fail_at(0, false);
	T_EQ(kvdb_close(db), 0);
}

static void nobody_waits_for_memory_of_what_has_stopped(void)
{
	ends_at_once(show);
	ends_at_once(fold);
	ends_at_once(no_wait);
}

/* ---- calls ---------------------------------------------------------------------------- */

/* One of them with each allocation failing. What it left behind is looked at with memory. */
struct call {
	const char *name;
	int (*run)(struct kvdb *db, struct kvdb_kvs *kvs);
	/* @done: it returned 0 */
	void (*look)(struct kvdb_kvs *kvs, bool done, unsigned k);
};

static char big[70000];

static void expect(struct kvdb_kvs *kvs, const char *key, bool is, const char *what, unsigned k)
{
	if (found(kvs, key) != is)
		T_FAIL("%s, allocation %u: %s is%s there", what, k, key, is ? " not" : "");
}

static int call_put(struct kvdb *db, struct kvdb_kvs *kvs)
{
	(void)db;
	return kvdb_put(kvs, "n", 1, big, 3000);
}

static int call_own(struct kvdb *db, struct kvdb_kvs *kvs)
{
	(void)db;
	return kvdb_put(kvs, "n", 1, big, sizeof(big));
}

static int call_fn(void *arg, const void *old, size_t olen, const void **val, size_t *vlen)
{
	(void)arg;
	(void)old;
	(void)olen;
	*val = big;
	*vlen = 3000;
	return KVDB_UPDATE_PUT;
}

static int call_update(struct kvdb *db, struct kvdb_kvs *kvs)
{
	(void)db;
	return kvdb_update(kvs, "n", 1, call_fn, NULL);
}

static int call_txn(struct kvdb *db, struct kvdb_kvs *kvs)
{
	struct kvdb_txn *txn;
	char key[32];
	int err = kvdb_txn_begin(db, 0, &txn);

	if (err)
		return err;
	err = kvdb_txn_put(txn, kvs, "n", 1, big, 3000);
	for (unsigned i = 0; i < 40 && !err; i++)
		err = kvdb_txn_put(txn, kvs, key, (size_t)sprintf(key, "t%u", i), big, 60);
	if (!err)
		return kvdb_txn_commit(txn, 0, NULL);
	kvdb_txn_abort(txn);
	return err;
}

static void look_put(struct kvdb_kvs *kvs, bool done, unsigned k)
{
	if (k)
		expect(kvs, "n", done, "a write", k);
	T_EQ(kvdb_del(kvs, "n", 1), 0);
}

static void look_txn(struct kvdb_kvs *kvs, bool done, unsigned k)
{
	if (k) {
		expect(kvs, "t0", done, "a transaction", k);
		expect(kvs, "t39", done, "a transaction", k);
	}
	look_put(kvs, done, k);
	T_EQ(kvdb_prefix_del(kvs, "t", 1), 0);
}

static int call_many(struct kvdb *db, struct kvdb_kvs *kvs)
{
	(void)db;
	return kvdb_prefix_del(kvs, "n", 1);
}

static void look_many(struct kvdb_kvs *kvs, bool done, unsigned k)
{
	if (k)
		expect(kvs, "n", !done, "a delete", k);
	T_EQ(kvdb_put(kvs, "n", 1, "v", 1), 0);
}

static int call_getm(struct kvdb *db, struct kvdb_kvs *kvs)
{
	static char key[40][8], buf[40][300];
	struct kvdb_get get[40];
	int err;

	(void)db;
	for (unsigned i = 0; i < 40; i++)
		get[i] = (struct kvdb_get){ .key = key[i], .buf = buf[i], .size = 300,
					    .klen = (size_t)sprintf(key[i], "%06u", 200 + i * 5) };
	err = kvdb_get_multi(kvs, KVDB_GET_SNAPSHOT, get, 40);
	for (unsigned i = 0; i < 40 && !err; i++) {
		T_OK(!get[i].err || get[i].err == -ENOMEM);
		err = get[i].err;
		if (!err)
			T_EQ(get[i].vlen, (200 + i * 5) % 4 ? 300 : 20);
	}
	return err;
}

static int call_pin(struct kvdb *db, struct kvdb_kvs *kvs)
{
	struct kvdb_pin pin;
	int err = kvdb_get_pinned(kvs, "000333", 6, &pin);

	(void)db;
	if (!err)
		T_EQ(pin.vlen, 300);
	if (!err)
		kvdb_unpin(&pin);
	return err;
}

/* Each operation that was taken completes once, with its own answer. */
static int call_cq(struct kvdb *db, struct kvdb_kvs *kvs)
{
	static struct kvdb_pair pairs[400];
	static char buf[2][300];
	struct kvdb_get get = { .key = "000403", .klen = 6, .buf = buf[1], .size = 300 };
	struct kvdb_op op[] = {
		{ .type = KVDB_OP_GET, .kvs = kvs, .key = "000301", .klen = 6, .buf = buf[0],
		  .size = 300, .cookie = 1 },
		{ .type = KVDB_OP_SCAN, .kvs = kvs, .buf = pairs, .size = sizeof(pairs),
		  .cookie = 2 },
		{ .type = KVDB_OP_MGET, .kvs = kvs, .get = &get, .size = 1, .cookie = 4 },
		{ .type = KVDB_OP_PUT, .kvs = kvs, .key = "n", .klen = 1, .val = big,
		  .size = 2000, .cookie = 8 },
		{ .type = KVDB_OP_SYNC, .cookie = 16 },
	};
	unsigned n = 0, cookies = 0;
	struct kvdb_cqe e[5];
	struct kvdb_cq *cq;
	int err = kvdb_cq_open(db, 0, 0, &cq), rc, taken;

	if (err)
		return err;
	taken = kvdb_cq_submit(cq, op, 5);
	T_OK(taken >= 0);
	while (n < (unsigned)taken) {
		rc = kvdb_cq_reap(cq, e, 5, 1, -1);
		T_OK(rc > 0 || rc == -ENOMEM);
		for (int i = 0; i < rc; i++) {
			T_OK(!(cookies & e[i].cookie));
			cookies |= (unsigned)e[i].cookie;
			n++;
			if (e[i].err != -ENOMEM && e[i].err != (e[i].cookie == 2 ? -ENOBUFS : 0))
				T_FAIL("operation %u: %d", (unsigned)e[i].cookie, e[i].err);
			if (e[i].cookie == 8 && e[i].err)
				err = e[i].err;
			if (e[i].cookie == 4 && !e[i].err && get.err)
				T_EQ(get.err, -ENOMEM);
		}
	}
	kvdb_cq_close(cq);
	return taken < 4 ? -ENOMEM : err;
}

/* The first value that large is noted in the container; a load that could not has failed. */
static int call_bulk(struct kvdb *db, struct kvdb_kvs *kvs)
{
	static char huge[KV_VALUE_PLAIN + 1];
	struct kvdb_bulk *b;
	int err = kvdb_bulk_open(kvs, 0, &b), end;

	(void)db;
	if (err)
		return err;
	err = kvdb_bulk_add(b, "n", 1, huge, sizeof(huge));
	end = kvdb_bulk_finish(b);
	T_OK(!err || end == err);
	return end;
}

/* Of a store there is all or nothing, under one name. */
static int call_store(struct kvdb *db, struct kvdb_kvs *kvs)
{
	struct kvdb_kvs_opts o = KVDB_KVS_OPTS_INIT;
	struct kvdb_kvs *made;
	int err = kvdb_kvs_create(db, "made", NULL);

	(void)kvs;
	if (!err)
		err = kvdb_kvs_rename(db, "made", "named");
	if (err)
		return err;
	T_EQ(kvdb_kvs_open(db, "named", &made), 0);
	o.ttl_s = 7;
	err = kvdb_kvs_set(made, &o, KVDB_KVS_TTL);
	return err ? err : kvdb_put(made, "n", 1, big, 3000);
}

static void look_store(struct kvdb_kvs *kvs, bool done, unsigned k)
{
	struct kvdb *db = kvs->k_db;
	int has = !kvdb_kvs_drop(db, "made") + !kvdb_kvs_drop(db, "named");

	T_OK(has <= 1 && (!done || has));
	(void)k;
}

static int call_compact(struct kvdb *db, struct kvdb_kvs *kvs)
{
	int err = kvdb_put(kvs, "n", 1, big, 3000);

	if (!err)
		err = kvdb_kvs_compact(kvs, KVDB_COMPACT_WAIT);
	return err ? err : kvdb_compact(db, KVDB_COMPACT_WAIT);
}

static void look_compact(struct kvdb_kvs *kvs, bool done, unsigned k)
{
	if (done && k)
		expect(kvs, "n", true, "a compaction", k);
	T_EQ(kvdb_del(kvs, "n", 1), 0);
}

/* What only looks. */
static int call_show(struct kvdb *db, struct kvdb_kvs *kvs)
{
	struct kvdb_tree_part parts[64];
	struct kvdb_kvs_info in;
	int n = kvdb_tree(db, "s", parts, 64);

	if (n >= 0)
		T_OK(n > 1 && n <= 64);
	return n < 0 ? n : kvdb_kvs_info(kvs, &in);
}

static void look_none(struct kvdb_kvs *kvs, bool done, unsigned k)
{
	(void)kvs;
	(void)done;
	(void)k;
}

static const struct call calls[] = {
	{ "put", call_put, look_put },
	{ "large put", call_own, look_put },
	{ "update", call_update, look_put },
	{ "transaction", call_txn, look_txn },
	{ "prefix delete", call_many, look_many },
	{ "multi-get", call_getm, look_none },
	{ "pinned get", call_pin, look_none },
	{ "queue", call_cq, look_put },
	{ "bulk load", call_bulk, look_put },
	{ "store", call_store, look_store },
	{ "compaction", call_compact, look_compact },
	{ "show", call_show, look_none },
};

static void a_call_without_memory_does_all_or_nothing(void)
{
	unsigned step = getenv("TEST_SHORT") ? 7 : 1;
	long before;

	fail_at(0, false);
	T_EQ(kvdb_close(open_whole()), 0);	/* what stays with the thread */
	before = sim_memory_live();
	for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		unsigned k = 0, told_n = 0;
		bool fired;

		do {
			struct kvdb *db = open_whole();
			struct kvdb_kvs *kvs;
			int err;

			T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
			calls[i].look(kvs, false, 0);
			k += step;
			kv_error(-EINVAL, "MP0951", BEFORE);
			fail_at(k, k % 2);
			err = calls[i].run(db, kvs);
			fired = sim.s_fault.f_fired;
			fail_at(0, false);
			/* what a queue says of an operation is in its completion */
			if (err && (err != -ENOMEM || (calls[i].run != call_cq &&
						       strstr(kvdb_error_detail()->text, BEFORE))))
				T_FAIL("%s, allocation %u: %d: %s", calls[i].name, k, err,
				       kvdb_error_detail()->text);
			told_n += err != 0;
			calls[i].look(kvs, !err, k);
			if (kv_fault(db))
				T_FAIL("%s, allocation %u stopped it: %s", calls[i].name, k,
				       db->d_fault.fa_text);
			T_EQ(kvdb_close(db), 0);
			if (sim_memory_live() != before)
				T_FAIL("%s, allocation %u: %ld are left", calls[i].name, k,
				       sim_memory_live() - before);
		} while (fired);
		printf("# %s: %u allocations, %u told\n", calls[i].name, k, told_n);
	}
}

/* ---- checkpoints -------------------------------------------------------------------- */

/* A checkpoint of one that failed may be there: whole, and without it the database is. */
static void settle_checkpoint(void)
{
	struct kvdb *db = open_whole();
	uint64_t damage = 1;

	if (kvdb_checkpoint_list(db, NULL, 0))
		T_EQ(kvdb_checkpoint_drop(db, "c"), 0);
	T_EQ(kvdb_checkpoint_list(db, NULL, 0), 0);
	T_EQ(kvdb_close(db), 0);
	T_EQ(kvdb_verify(dir, NULL, MPOOL_VERIFY_DATA, NULL, NULL, &damage), 0);
	T_EQ(damage, 0);
}

/* The container that an open reads gets longer: memory ends behind it. */
static int make_and_drop(void)
{
	struct sim_fault fault = sim.s_fault;
	struct kvdb *db;
	int err, end;

	fail_at(0, false);
	db = open_whole();
	kv_error(-EINVAL, "MP0951", BEFORE);
	sim.s_fault = fault;
	err = told(kvdb_checkpoint(db, "c", 0), "checkpoint");
	if (!err)
		err = told(kvdb_checkpoint_drop(db, "c"), "drop");
	end = told(kvdb_close(db), "close");
	fault = sim.s_fault;
	fail_at(0, false);
	settle_checkpoint();
	sim.s_fault = fault;
	return err ? err : end;
}

static void a_checkpoint_without_memory_fails_or_is_whole(void)
{
	with_each_allocation(make_and_drop);
}

static int read_checkpoint(void)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct kvdb_kvs *kvs;
	struct kvdb *db;
	char val[300];
	size_t len;
	int err;

	o.flags = KVDB_MANUAL | KVDB_RDONLY;
	o.checkpoint = "c";
	kv_error(-EINVAL, "MP0951", BEFORE);
	err = told(kvdb_open(dir, &o, &db), "open");
	if (err)
		return err;
	err = told(kvdb_kvs_open(db, "s", &kvs), "store");
	if (!err)
		err = told(kvdb_get(kvs, "000004", 6, val, sizeof(val), &len), "get");
	kvdb_close(db);
	return err;
}

static void a_checkpoint_is_read_or_its_reader_told(void)
{
	struct kvdb *db;

	fail_at(0, false);
	db = open_whole();
	T_EQ(kvdb_checkpoint(db, "c", 0), 0);
	T_EQ(kvdb_close(db), 0);
	with_each_allocation(read_checkpoint);
	settle_checkpoint();
}

/* ---- drops ---------------------------------------------------------------------------- */

/* A store, a checkpoint that lists it, and the store is dropped: the blocks wait for the pin. */
static struct kvdb *make_parked(void)
{
	struct kvdb *db = open_whole();
	struct kvdb_kvs *kvs;
	struct kvdb_stats st;
	char key[32];

	T_EQ(kvdb_kvs_create(db, "t", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "t", &kvs), 0);
	for (unsigned k = 0; k < KEYS; k++)
		T_EQ(kvdb_put(kvs, key, (size_t)sprintf(key, "%06u", k), key, 6), 0);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	T_EQ(kvdb_checkpoint(db, "c", 0), 0);
	T_EQ(kvdb_kvs_drop(db, "t"), 0);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	T_EQ(kvdb_stats(db, &st), 0);
	T_OK(st.pinned_bytes > 2 * KV_BLOCK);
	return db;
}

/* As make_parked(), before the store is dropped and without a checkpoint. */
static struct kvdb *make_store(void)
{
	struct kvdb *db = make_parked();
	struct kvdb_kvs *kvs;

	T_EQ(kvdb_checkpoint_drop(db, "c"), 0);
	T_EQ(kvdb_kvs_create(db, "t", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "t", &kvs), 0);
	T_EQ(kvdb_put(kvs, "k", 1, "v", 1), 0);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	return db;
}

static int drop_checkpoint(struct kvdb *db)
{
	return kvdb_checkpoint_drop(db, "c");
}

static int drop_store(struct kvdb *db)
{
	int err = kvdb_kvs_drop(db, "t");

	return err ? err : kvdb_drain(db, KVDB_WAIT_COMPACT);
}

/* The space of what is dropped comes back while the database is open. */
static void drop_without(struct kvdb *(*make_it)(void), int (*drop)(struct kvdb *))
{
	unsigned step = getenv("TEST_SHORT") ? 3 : 1, told_n = 0, late = 0, k = 0;
	bool fired;

	do {
		struct kvdb *db = make_it();
		struct kvdb_stats st;
		int err;

		kv_error(-EINVAL, "MP0951", BEFORE);
		k += step;
		fail_at(k, k % 2);
		err = told(drop(db), "drop");
		fired = sim.s_fault.f_fired;
		fail_at(0, false);
		told_n += err != 0;
		T_EQ(kvdb_stats(db, &st), 0);
		late += st.pinned_bytes && !st.checkpoints;
		if (gone_but_there(db) && drop == drop_checkpoint)
			T_OK(st.pinned_bytes > 0);
		if (err)
			drop(db);
		T_EQ(kvdb_drain(db, KVDB_WAIT_COMPACT), 0);
		if (gone_but_there(db))
			T_FAIL("allocation %u: %zu objects stay", k, gone_but_there(db));
		T_EQ(kvdb_stats(db, &st), 0);
		T_EQ(st.pinned_bytes, 0);
		T_EQ(kvdb_close(db), 0);
	} while (fired);
	printf("# %u allocations, %u failures told, %u drops ended later\n", k, told_n, late);
}

static void a_drops_failed_deletes_stay_parked(void)
{
	drop_without(make_parked, drop_checkpoint);
}

static void a_dropped_stores_failed_deletes_are_tried_again(void)
{
	drop_without(make_store, drop_store);
}

/* ---- space ---------------------------------------------------------------------------- */

static unsigned segments_there(struct kvdb *db)
{
	struct mpool_obj_info oi[64];
	uint64_t after = 0;
	unsigned n = 0;
	int got;

	while ((got = mpool_objects(db->d_mp, after, db->d_ident.id_tag, oi, 64)) > 0)
		for (int i = 0; i < got; i++) {
			after = oi[i].id;
			n += oi[i].kind == MPOOL_APPEND;
		}
	return n;
}

/* What the pool gave is the database's to give back, however little memory there is. */
static void no_segment_is_lost_without_memory(void)
{
	unsigned k = 0, told_n = 0;
	struct kvdb *db;
	bool fired;

	fail_at(0, false);
	db = open_whole();
	do {
		struct kv_seg *seg[2];
		struct kvdb_stats st;
		unsigned n = 2;
		int err;

		fail_at(++k, false);
		err = told(kv_segs_alloc_moved(db, MPOOL_CAPACITY, false, false,
					       db->d_budget.b_seg_bytes, &n, seg), "segments");
		fired = sim.s_fault.f_fired;
		fail_at(0, false);
		told_n += err != 0;
		T_EQ(kvdb_stats(db, &st), 0);
		if (segments_there(db) != st.segments)
			T_FAIL("allocation %u: %u segments, %llu are known", k,
			       segments_there(db), (unsigned long long)st.segments);
		for (unsigned i = 0; i < n && !err; i++) {
			kv_seg_abandon(db, seg[i], 0);
			kv_seg_put(db, seg[i]);
		}
	} while (fired);
	printf("# %u allocations, %u failures told\n", k, told_n);
	T_OK(told_n > 2);
	T_EQ(kvdb_close(db), 0);
}

#define VALUES	4000u

/* A store of which half is overwritten; what stays lies between what died. */
static void make_garbage(struct kvdb *db, struct kvdb_kvs *kvs)
{
	char key[32], val[1000] = { 0 };

	for (unsigned step = 1; step < 3; step++) {
		for (unsigned i = 0; i < VALUES; i += step)
			T_EQ(kvdb_put(kvs, key, (size_t)sprintf(key, "%06u", i), val,
				      sizeof(val)), 0);
		T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	}
}

/* A job that had no memory is no job that could not help: the next drain keeps the bound. */
static void space_is_bounded_when_there_is_memory_again(void)
{
	unsigned k = 1, told_n = 0;
	bool fired;

	do {
		struct kvdb *db;
		struct kvdb_kvs *kvs;
		struct kvdb_stats st;

		fail_at(0, false);
		db = open_whole();
		T_EQ(kvdb_kvs_create(db, "u", NULL), 0);
		T_EQ(kvdb_kvs_open(db, "u", &kvs), 0);
		make_garbage(db, kvs);
		kv_error(-EINVAL, "MP0951", BEFORE);
		fail_at(k, false);
		told_n += told(kvdb_drain(db, KVDB_WAIT_COMPACT), "drain") != 0;
		fired = sim.s_fault.f_fired;
		fail_at(0, false);
		T_EQ(kvdb_drain(db, KVDB_WAIT_COMPACT), 0);
		T_EQ(kvdb_stats(db, &st), 0);
		if (st.space_bytes > VALUES * 1000ull * 8 / 5)
			T_FAIL("allocation %u: %llu bytes are taken", k,
			       (unsigned long long)st.space_bytes);
		T_EQ(kvdb_kvs_drop(db, "u"), 0);
		T_EQ(kvdb_close(db), 0);
		k += 1 + k / 4;
	} while (fired);
	printf("# up to allocation %u, %u failures told\n", k, told_n);
	T_OK(told_n > 4);
}

int main(void)
{
	sim_init(&sim);
	sim_memory_of(&sim);
	make();
	T_RUN(a_repair_without_memory_fails_or_is_whole);
	T_RUN(a_check_without_memory_calls_nothing_damaged);
	T_RUN(an_open_without_memory_says_so);
	T_RUN(a_checkpoint_without_memory_fails_or_is_whole);
	T_RUN(a_checkpoint_is_read_or_its_reader_told);
	fail_at(0, false);
	T_RUN(a_drops_failed_deletes_stay_parked);
	T_RUN(a_dropped_stores_failed_deletes_are_tried_again);
	T_RUN(no_segment_is_lost_without_memory);
	T_RUN(space_is_bounded_when_there_is_memory_again);
	T_RUN(a_new_thread_waits_for_memory);
	T_RUN(nobody_waits_for_memory_of_what_has_stopped);
	T_RUN(a_call_without_memory_does_all_or_nothing);
	T_RUN(a_compaction_without_memory_forgets_no_block);
	unmake();
	sim_fini(&sim);
	return t_done();
}
