/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Walks with memory that ends: a memtable that grows meanwhile, and cursors. A step that fails
 * can be repeated.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/hash.h"
#include "db/db.h"
#include "db/thread.h"
#include "kv_nomem.h"
#include "mem/iter.h"
#include "mem/memtable.h"
#include "seg/kv_omf.h"
#include "seg/value.h"

/* ---- memtables ------------------------------------------------------------------------ */

#define CROWD	2000u	/* entries of a table of 64 buckets */

/* A delete of a committed transaction. */
static void link_key(struct kv_mt *mt, uint32_t key)
{
	static struct kv_tslot committed = { .ts_state = 1 };
	struct kv_mt_op op = { .op_key = &key, .op_klen = sizeof(key), .op_kind = KV_ENT_TOMB,
			       .op_hash = kv_hash(&key, sizeof(key)) };
	struct kv_thread *t = kv_enter();
	struct kv_version *v;

	T_EQ(kv_mt_link(mt, &op, NULL, &committed, &v), 0);
	kv_exit(t);
}

/* More entries than buckets have room for, and hardly any room for more buckets. */
static struct kv_mt *crowded(struct kvdb *db)
{
	struct kv_mt *mt;

	T_EQ(kv_mt_new(db, 1, NULL, &mt), 0);
	for (uint32_t i = 0; i < CROWD; i++)
		link_key(mt, i);
	fail_at(1, false);
	while (kv_mt_arena(mt, 512))
		;
	fail_at(0, false);
	return mt;
}

/* As its flush walks it: each key once. */
static void walk_crowd(struct kvdb *db, struct kv_mt *mt, uint64_t k)
{
	uint8_t last[4];
	struct kv_iter *it;
	struct kv_ent e;
	unsigned n = 0;

	T_EQ(kv_mt_iter(db, mt, KV_SEQ_NOW, false, &it), 0);
	while (!it->it_ops->next(it, &e)) {
		if (n++ && memcmp(last, e.e_key, sizeof(last)) >= 0)
			T_FAIL("allocation %llu: a key comes again", (unsigned long long)k);
		memcpy(last, e.e_key, sizeof(last));
	}
	it->it_ops->close(it);
	T_EQ(n, CROWD);
}

/* Growing stops in the middle of a bucket; it is walked then, or when it has gone on. */
static void a_table_that_grows_without_memory_has_each_key_once(void)
{
	struct kvdb *db;
	bool fired;

	fail_at(0, false);
	db = open_whole();
	for (uint64_t k = 1; k < 6; k++) {
		for (unsigned goes_on = 0; goes_on < 2; goes_on++) {
			struct kv_mt *mt = crowded(db);

			fail_at(k, false);
			kv_mt_grow(mt);
			fired = sim.s_fault.f_fired;
			fail_at(0, false);
			if (goes_on) {
				kv_mt_grow(mt);
				T_OK(atomic_load(&mt->m_table)->tb_mask >= CROWD / 16);
			}
			walk_crowd(db, mt, k);
			kv_mt_put(db, mt);
		}
	}
	T_OK(!fired);
	T_EQ(kvdb_close(db), 0);
}

/* ---- cursors -------------------------------------------------------------------------- */

/* Is there a key like this? If not, put it: in a memtable the cursor is all that is allocated. */
static void a_short_cursor_takes_one_allocation(void)
{
	struct kvdb_cursor *cur;
	struct kvdb_kvs *kvs;
	struct kvdb *db;
	char key[16];
	size_t n;

	fail_at(0, false);
	/* no thread of the pool's either, which would take memory to discard what is free */
	db = open_with(KVDB_SMALL);
	T_EQ(kvdb_kvs_create(db, "m", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "m", &kvs), 0);
	for (unsigned i = 0; i < 40; i++) {
		n = (size_t)sprintf(key, "%02u", i * 37 % 100);
		if (i > 2)	/* order and what a thread keeps are there */
			fail_at(2, false);
		T_EQ(kvdb_cursor_open(kvs, i % 2 ? KVDB_REVERSE : 0, key, n, &cur), 0);
		T_EQ(kvdb_cursor_next(cur, NULL, NULL, NULL, NULL), -ENOENT);
		kvdb_cursor_close(cur);
		T_OK(!sim.s_fault.f_fired);
		fail_at(0, false);
		T_EQ(kvdb_put(kvs, key, n, "v", 1), 0);
	}
	T_EQ(kvdb_kvs_drop(db, "m"), 0);
	T_EQ(kvdb_close(db), 0);
}

/* What a cursor shows, and whether the transaction's own key is in it. */
static unsigned shown(struct kvdb_cursor *c, bool *has_own)
{
	const void *key, *val;
	size_t klen, vlen;
	unsigned n = 0;
	int err;

	*has_own = false;
	do {
		kv_error(-EINVAL, "MP0951", BEFORE);
		err = kvdb_cursor_next(c, &key, &klen, &val, &vlen);
		n += !err;
		*has_own |= !err && klen == 3 && !memcmp(key, "own", 3);
		told(err == -ENOENT ? 0 : err, "step");
	} while (!err || err == -ENOMEM);
	T_EQ(err, -ENOENT);
	return n;
}

/* More sources than a cursor has room for. */
static void make_runs(struct kvdb *db, struct kvdb_kvs *kvs)
{
	char key[32];

	for (unsigned k = 1; k < 7; k++) {
		T_EQ(kvdb_put(kvs, key, (size_t)sprintf(key, "%06u", k), "v", 1), 0);
		T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	}
}

/* A step that fails can be repeated, and then shows what it would have shown. */
static void a_cursor_that_had_no_memory_shows_the_write_set(void)
{
	unsigned all = 0, n, k = 0;
	struct kvdb *db;
	bool fired, has_own;

	fail_at(0, false);
	db = open_whole();
	do {
		struct kvdb_cursor *c;
		struct kvdb_txn *txn;
		struct kvdb_kvs *kvs;

		T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
		if (!k)
			make_runs(db, kvs);
		T_EQ(kvdb_txn_begin(db, 0, &txn), 0);
		T_EQ(kvdb_txn_put(txn, kvs, "own", 3, "v", 1), 0);
		T_EQ(kvdb_txn_cursor_open(txn, kvs, KVDB_KEYS_ONLY, NULL, 0, &c), 0);
		fail_at(k++, false);
		n = shown(c, &has_own);
		fired = sim.s_fault.f_fired;
		fail_at(0, false);
		all = all ? all : n;
		if (n != all || !has_own)
			T_FAIL("allocation %u: %u pairs, not %u; own: %d", k - 1, n, all, has_own);
		kvdb_cursor_close(c);
		kvdb_txn_abort(txn);
	} while (k == 1 || fired);
	printf("# %u allocations\n", k - 2);
	T_OK(k > 5);
	T_EQ(kvdb_close(db), 0);
}

/* The memory that ends is that of a value which is longer than those before. */
static void a_pair_whose_value_had_no_memory_comes_again(void)
{
	static const char value[5000];
	unsigned all = 0, n, k = 0;
	struct kvdb_kvs *kvs;
	bool fired, has_own;
	struct kvdb *db;

	fail_at(0, false);
	db = open_whole();
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	T_EQ(kvdb_put(kvs, "own", 3, value, sizeof(value)), 0);
	do {
		struct kvdb_cursor *c;

		T_EQ(kvdb_cursor_open(kvs, k & 2 ? KVDB_REVERSE : 0, NULL, 0, &c), 0);
		fail_at(k, false);
		n = shown(c, &has_own);
		fired = sim.s_fault.f_fired;
		fail_at(0, false);
		all = all ? all : n;
		if (n != all || !has_own)
			T_FAIL("allocation %u: %u pairs, not %u; own: %d", k, n, all, has_own);
		kvdb_cursor_close(c);
	} while (k++ == 0 || fired);
	printf("# %u allocations\n", k - 1);
	T_OK(k > 5);
	T_EQ(kvdb_close(db), 0);
}

int main(void)
{
	sim_init(&sim);
	sim_memory_of(&sim);
	make();
	T_RUN(a_table_that_grows_without_memory_has_each_key_once);
	T_RUN(a_cursor_that_had_no_memory_shows_the_write_set);
	T_RUN(a_pair_whose_value_had_no_memory_comes_again);
	T_RUN(a_short_cursor_takes_one_allocation);
	unmake();
	sim_fini(&sim);
	return t_done();
}
