/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The stack that a call needs at most, as kvdb.h tells it: every call in a thread that
 * has no more. What is freed behind the thread's own frames is a page that no code may touch.
 */
#include "kvdb_help.h"

#include <errno.h>
#include <pthread.h>

#define KEYS	3000u

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STACK	(8 * MIB)	/* their frames are larger, and no product's */
#else
#define STACK	(KVDB_STACK_BYTES + 8192u)	/* what the thread library and this file take */
#endif

static int failed;	/* the line of the first call that did */

#define CALL(call) do {								\
	if (!failed && (call))							\
		failed = __LINE__;						\
} while (0)

static int change_it(void *arg, const void *old, size_t olen, const void **val, size_t *vlen)
{
	(void)old;
	(void)olen;
	*val = arg;
	*vlen = 1;
	return KVDB_UPDATE_PUT;
}

static void write_all(struct kvdb *db, struct kvdb_kvs *kvs)
{
	static char val[3000];
	char key[16];

	for (unsigned i = 0; i < KEYS; i++) {
		snprintf(key, sizeof(key), "k%08u", i);
		CALL(kvdb_put(kvs, key, 9, val, i % sizeof(val)));
	}
	CALL(kvdb_put_ttl(kvs, "ttl", 3, val, 200, 1000));
	CALL(kvdb_update(kvs, "k00000001", 9, change_it, val));
	CALL(kvdb_del(kvs, "k00000002", 9));
	CALL(kvdb_sync(db));
	CALL(kvdb_drain(db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT));
	CALL(kvdb_prefix_del(kvs, "k000001", 7));
	CALL(kvdb_range_del(kvs, "k00002", 6, "k000021", 7));
}

static void read_all(struct kvdb *db, struct kvdb_kvs *kvs)
{
	static struct kvdb_get get[300];
	static char key[300][16], val[3000];
	struct kvdb_probe probe = { .val = val, .val_size = sizeof(val) };
	struct kvdb_cursor *cur = NULL;
	struct kvdb_pin pin;
	unsigned n = 0;
	size_t len;

	for (unsigned i = 0; i < 300; i++) {
		snprintf(key[i], sizeof(key[i]), "k%08u", i * 3);
		get[i] = (struct kvdb_get){ .key = key[i], .klen = 9 };
	}
	CALL(kvdb_get_multi(kvs, KVDB_GET_SNAPSHOT, get, 300));
	CALL(kvdb_get(kvs, "k00000007", 9, val, sizeof(val), &len));
	CALL(kvdb_prefix_probe(kvs, "k0000", 5, &probe));
	CALL(kvdb_get_pinned(kvs, "k00002900", 9, &pin));
	kvdb_unpin(&pin);
	for (unsigned flags = 0; flags <= KVDB_REVERSE && !failed; flags++) {
		CALL(kvdb_cursor_open(kvs, flags, "k", 1, &cur));
		while (!failed && !kvdb_cursor_next(cur, NULL, NULL, NULL, NULL))
			n++;
		CALL(kvdb_cursor_seek(cur, "k00001", 6));
		kvdb_cursor_close(cur);
	}
	(void)db;
}

static void change_all(struct kvdb *db, struct kvdb_kvs *kvs)
{
	struct kvdb_txn *txn = NULL;
	struct kvdb_bulk *b = NULL;
	static char val[3000];
	const struct kvdb_op batch[] = {
		{ .type = KVDB_OP_PUT, .kvs = kvs, .key = "b", .klen = 1, .val = val,
		  .size = sizeof(val) },
		{ .type = KVDB_OP_RANGE_DEL, .kvs = kvs, .key = "c", .klen = 1, .val = "d",
		  .size = 1 },
		{ .type = KVDB_OP_DEL, .kvs = kvs, .key = "c", .klen = 1 },
	};

	CALL(kvdb_txn_begin(db, 0, &txn));
	CALL(kvdb_txn_put(txn, kvs, "t", 1, val, sizeof(val)));
	CALL(kvdb_txn_commit(txn, KVDB_TXN_DURABLE, NULL));
	CALL(kvdb_write(db, batch, 3, KVDB_OP_DURABLE, NULL));
	CALL(kvdb_bulk_open(kvs, 0, &b));
	CALL(kvdb_bulk_add(b, "z", 1, val, sizeof(val)));
	CALL(kvdb_bulk_finish(b));
	CALL(kvdb_compact(db, KVDB_COMPACT_WAIT));
	CALL(kvdb_checkpoint(db, "c", 0));
	CALL(kvdb_kvs_create(db, "other", NULL));
	CALL(kvdb_kvs_rename(db, "other", "another"));
	CALL(kvdb_kvs_drop(db, "another"));
}

static void look_at_all(void)
{
	struct kvdb_opts o = kh_opts();
	struct kvdb_kvs *kvs = NULL;
	struct kvdb_repair out;
	struct kvdb *db = NULL;
	uint64_t damage = 1;

	o.flags |= KVDB_RDONLY;
	o.checkpoint = "c";
	CALL(kvdb_open(th_pool, &o, &db));
	CALL(kvdb_kvs_open(db, "s", &kvs));
	CALL(kvdb_close(db));
	o = kh_opts();
	CALL(kvdb_verify(th_pool, &o, KVDB_VERIFY_DEEP, NULL, NULL, &damage));
	CALL(damage != 0);
	CALL(kvdb_repair(th_pool, &o, NULL, NULL, NULL, &out));
	CALL(kvdb_open(th_pool, &o, &db));
	CALL(kvdb_checkpoint_drop(db, "c"));
	CALL(kvdb_close(db));
	CALL(kvdb_drop(th_pool, NULL));
	CALL(mpool_destroy(th_pool, NULL));
}

static void *all_calls(void *arg)
{
	static struct kvdb_stats st;
	static struct kvdb_info in;
	struct kvdb_opts o = kh_opts();
	struct kvdb_kvs *kvs = NULL;
	struct kvdb *db = NULL;

	(void)arg;
	CALL(th_create_at(th_pool, 128 * MIB, 64 * MIB));
	CALL(kvdb_create(th_pool, NULL));
	CALL(kvdb_open(th_pool, &o, &db));
	CALL(kvdb_kvs_create(db, "s", NULL));
	CALL(kvdb_kvs_open(db, "s", &kvs));
	if (failed)
		return NULL;
	write_all(db, kvs);
	read_all(db, kvs);
	change_all(db, kvs);
	CALL(kvdb_stats(db, &st));
	CALL(kvdb_info(db, &in));
	CALL(kvdb_close(db));
	look_at_all();
	return NULL;
}

static void every_call_fits_in_the_stack_that_is_told(void)
{
	pthread_attr_t attr;
	pthread_t thread;

	th_fresh();
	failed = 0;
	T_EQ(pthread_attr_init(&attr), 0);
	T_EQ(pthread_attr_setstacksize(&attr, STACK), 0);
	T_EQ(pthread_create(&thread, &attr, all_calls, NULL), 0);
	T_EQ(pthread_join(thread, NULL), 0);
	T_EQ(failed, 0);
	pthread_attr_destroy(&attr);
	th_clean();
}

int main(void)
{
	T_RUN(every_call_fits_in_the_stack_that_is_told);
	return t_done();
}
