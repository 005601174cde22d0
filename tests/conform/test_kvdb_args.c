/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Each check of an argument of libkvdb, by a call in which nothing else is wrong: without the
 * check the call does something. tests/ablate.py refusals takes them away one by one.
 */
#include <stdbool.h>

#include "kvdb_help.h"

#define POOL (128 * MIB)

/* refused, with a reason that holds @words */
#define REFUSED(wanted, words, call) do {					\
	T_EQ(call, wanted);							\
	T_EQ(kvdb_error_detail()->err, wanted);					\
	if (!strstr(kvdb_error_detail()->text, words))				\
		T_FAIL("'%s' is not in: %s", words, kvdb_error_detail()->text);	\
} while (0)
#define BAD(words, call) REFUSED(-EINVAL, words, call)

static char key[KVDB_KEY_MAX + 1];

static void end(void)
{
	kh_close();
	th_clean();
}

/* By each call that takes options; nothing is made, and nothing told. */
static void of_options(void)
{
	struct kvdb_clock clock = { NULL, NULL, NULL, NULL };
	const char *words[] = { "size", "flags", "flags", "flags", "logs", "the least is",
				"segment_bytes", "segment_bytes", "segment_bytes", "clock",
				"threads", "space_amp_max", "space_amp_max" };
	enum { N = sizeof(words) / sizeof(words[0]) };
	struct kvdb_opts o[N];
	struct kvdb_repair rp;
	uint64_t damage = 77;

	kh_make(POOL, 0);
	for (unsigned i = 0; i < N; i++)
		o[i] = kh_opts();
	o[0].size--;
	o[1].flags = 0x80;
	o[2].flags = 1u << 31;
	o[3].commit = 2;
	o[4].logs = 65;
	o[5].cache_bytes = 1;
	o[6].segment_bytes = 65535;
	o[7].segment_bytes = 100000;
	o[8].segment_bytes = 64 * MIB;
	o[9].clock = &clock;
	o[10].threads = 1000;
	o[11].space_amp_max = 1;
	o[12].space_amp_max = 101;
	for (unsigned i = 0; i < N; i++) {
		BAD(words[i], kvdb_open(th_pool, &o[i], &kh_db));
		BAD(words[i], kvdb_create(th_pool, &o[i]));
		T_OK(!kh_db);
		/* these read the member devices */
		th_root();
		BAD(words[i], kvdb_verify(th_pool, &o[i], 0, NULL, NULL, &damage));
		BAD(words[i], kvdb_repair(th_pool, &o[i], NULL, NULL, NULL, &rp));
		th_user();
		T_EQ(damage, 77);
	}
	kh_open();
	end();
}

static void of_opens(void)
{
	struct mpool_open_opts mo = MPOOL_OPEN_OPTS_INIT;
	struct kvdb_opts good = kh_opts(), o = good;
	struct kvdb_repair rp;
	uint64_t damage;

	kh_make(POOL, 0);
	BAD("no pool", kvdb_open(NULL, NULL, &kh_db));
	kh_open();
	T_EQ(kvdb_checkpoint(kh_db, "c", 0), 0);
	kh_close();
	o = good;
	o.checkpoint = "c";
	BAD("KVDB_RDONLY", kvdb_open(th_pool, &o, &kh_db));
	BAD("cannot be repaired", kvdb_repair(th_pool, &o, NULL, NULL, NULL, &rp));
	o = good;
	o.flags = KVDB_RDONLY;
	BAD("KVDB_RDONLY", kvdb_drop(th_pool, &o));
	o = good;
	o.cache_bytes = UINT64_MAX / 2;
	BAD("of memory", kvdb_open(th_pool, &o, &kh_db));
	o = good;
	o.pool = &mo;
	mo.size--;
	BAD("mpool_open_opts.size", kvdb_open(th_pool, &o, &kh_db));
	mo.size++;
	mo.flags = MPOOL_OPEN_RDONLY;
	BAD("mpool_open_opts.flags", kvdb_open(th_pool, &o, &kh_db));
	BAD("unknown flags", kvdb_verify(th_pool, NULL, ~(MPOOL_VERIFY_DATA | KVDB_VERIFY_DEEP),
					 NULL, NULL, &damage));
	kh_open();
	end();
}

static void of_stores(void)
{
	struct kvdb_kvs_opts good = KVDB_KVS_OPTS_INIT, o;
	struct kvdb_kvs *kvs;

	kh_fresh(POOL, 0);
	kvs = kh_kvs("s");
	o = good;
	o.size--;
	BAD("size", kvdb_kvs_create(kh_db, "t", &o));
	o = good;
	o.pad = 1;
	BAD("reserved", kvdb_kvs_create(kh_db, "t", &o));
	o = good;
	o.reserved[7] = 1;
	BAD("reserved", kvdb_kvs_create(kh_db, "t", &o));
	BAD("no store", kvdb_kvs_drop(kh_db, NULL));
	BAD("no store", kvdb_kvs_rename(kh_db, NULL, "t"));
	BAD("cannot be set", kvdb_kvs_set(kvs, NULL, KVDB_KVS_TTL));
	BAD("cannot be set", kvdb_kvs_set(kvs, &good, 0));
	BAD("cannot be set", kvdb_kvs_set(kvs, &good, KVDB_KVS_TTL | 1u << 31));
	T_EQ(kvdb_kvs_list(kh_db, NULL, 0), 1);
	end();
}

static int put_it(void *arg, const void *old, size_t olen, const void **val, size_t *vlen)
{
	(void)old;
	(void)olen;
	*val = "v";
	*vlen = 1;
	return *(int *)arg;
}

static void of_data(void)
{
	struct kvdb_get get = { .key = "k", .klen = 1 };
	struct kvdb_probe probe = { 0 };
	struct kvdb_kvs *kvs;
	int answer = 3;
	size_t len;

	kh_fresh(POOL, 0);
	kvs = kh_kvs("s");
	BAD("at least 1 byte", kvdb_put(kvs, NULL, 1, "v", 1));
	BAD("at least 1 byte", kvdb_put(kvs, "k", 0, "v", 1));
	BAD("at NULL", kvdb_put(kvs, "k", 1, NULL, 1));
	REFUSED(-ENAMETOOLONG, "longest", kvdb_put(kvs, key, KVDB_KEY_MAX + 1, "v", 1));
	REFUSED(-E2BIG, "longest", kvdb_put(kvs, "k", 1, kh_buf, KVDB_VALUE_MAX + 1));
	BAD("time to live", kvdb_put_ttl(kvs, "k", 1, "v", 1, KVDB_TTL_MAX + 1));
	BAD("answered", kvdb_update(kvs, "k", 1, put_it, &answer));
	BAD("flags", kvdb_get_multi(kvs, ~KVDB_GET_SNAPSHOT, &get, 1));
	BAD("keys at", kvdb_get_multi(kvs, 0, NULL, 1));
	T_EQ(kvdb_put(kvs, "k", 1, "v", 1), 0);
	BAD("at NULL", kvdb_get(kvs, "k", 1, NULL, 8, &len));
	BAD("at NULL", kvdb_prefix_probe(kvs, NULL, 1, &probe));
	probe.key_size = 1;
	BAD("at NULL", kvdb_prefix_probe(kvs, "k", 1, &probe));
	probe = (struct kvdb_probe){ .val_size = 1 };
	BAD("at NULL", kvdb_prefix_probe(kvs, "k", 1, &probe));
	probe.val_size = 0;
	REFUSED(-ENAMETOOLONG, "prefix", kvdb_prefix_probe(kvs, key, KVDB_KEY_MAX + 1, &probe));
	T_EQ(probe.found, KVDB_FOUND_NONE);
	T_EQ(probe.klen, 0);
	end();
}

static void of_cursors(void)
{
	struct kvdb_cursor_opts good = KVDB_CURSOR_OPTS_INIT, o;
	struct kvdb_cursor *cur;
	struct kvdb_kvs *kvs;

	kh_fresh(POOL, 0);
	kvs = kh_kvs("s");
	o = good;
	o.size--;
	BAD("cursor options", kvdb_cursor_open_opts(kvs, &o, &cur));
	o = good;
	o.pad = 1;
	BAD("cursor options", kvdb_cursor_open_opts(kvs, &o, &cur));
	o = good;
	o.flags = ~(KVDB_REVERSE | KVDB_KEYS_ONLY | KVDB_TO_INCLUSIVE);
	BAD("cursor flags", kvdb_cursor_open_opts(kvs, &o, &cur));
	o = good;
	o.plen = 1;
	BAD("at NULL", kvdb_cursor_open_opts(kvs, &o, &cur));
	o = good;
	o.flen = 1;
	BAD("at NULL", kvdb_cursor_open_opts(kvs, &o, &cur));
	o = good;
	o.tlen = 1;
	BAD("at NULL", kvdb_cursor_open_opts(kvs, &o, &cur));
	o = good;
	o.prefix = key;
	o.plen = KVDB_KEY_MAX + 1;
	REFUSED(-ENAMETOOLONG, "prefix", kvdb_cursor_open_opts(kvs, &o, &cur));
	o = good;
	o.from = key;
	o.flen = KVDB_KEY_MAX + 1;
	REFUSED(-ENAMETOOLONG, "bound", kvdb_cursor_open_opts(kvs, &o, &cur));
	o = good;
	o.to = key;
	o.tlen = KVDB_KEY_MAX + 1;
	REFUSED(-ENAMETOOLONG, "bound", kvdb_cursor_open_opts(kvs, &o, &cur));
	/* inclusive is a bound, which is not given here */
	BAD("cursor flags", kvdb_cursor_open(kvs, KVDB_TO_INCLUSIVE, NULL, 0, &cur));
	T_EQ(kvdb_cursor_open_opts(kvs, &good, &cur), 0);
	REFUSED(-ENAMETOOLONG, "longest", kvdb_cursor_seek(cur, key, KVDB_KEY_MAX + 1));
	REFUSED(-ENAMETOOLONG, "longest", kvdb_cursor_seek_after(cur, key, KVDB_KEY_MAX + 1));
	BAD("at NULL", kvdb_cursor_seek(cur, NULL, 1));
	/* what is refused changes nothing: it stands where it stood, with its bounds */
	T_EQ(kh_put_str(kvs, "a", "v"), 0);
	T_EQ(kvdb_cursor_renew(cur, NULL), 0);
	T_EQ(kvdb_cursor_next(cur, NULL, NULL, NULL, NULL), 0);
	BAD("cursor options", kvdb_cursor_renew(cur, (o.size--, &o)));
	o = good;
	o.to = key;
	o.tlen = KVDB_KEY_MAX + 1;
	REFUSED(-ENAMETOOLONG, "bound", kvdb_cursor_renew(cur, &o));
	T_EQ(kvdb_cursor_prev(cur, NULL, NULL, NULL, NULL), -ENOENT);
	T_EQ(kvdb_cursor_next(cur, NULL, NULL, NULL, NULL), 0);
	kvdb_cursor_close(cur);
	kvdb_cursor_close(NULL);
	end();
}

static void of_bulk_loads(void)
{
	struct kvdb_bulk *b;
	struct kvdb_kvs *kvs;

	kh_fresh(POOL, 0);
	kvs = kh_kvs("s");
	BAD("flags", kvdb_bulk_open(kvs, 1, &b));
	T_EQ(kvdb_bulk_open(kvs, 0, &b), 0);
	BAD("at least 1 byte", kvdb_bulk_add(b, NULL, 1, "v", 1));
	BAD("at least 1 byte", kvdb_bulk_add(b, "k", 0, "v", 1));
	REFUSED(-ENAMETOOLONG, "longest", kvdb_bulk_add(b, key, KVDB_KEY_MAX + 1, "v", 1));
	BAD("at NULL", kvdb_bulk_add(b, "k", 1, NULL, 1));
	REFUSED(-E2BIG, "longest", kvdb_bulk_add(b, "k", 1, kh_buf, KVDB_VALUE_MAX + 1));
	T_EQ(kvdb_bulk_add(b, "k", 1, "v", 1), 0);
	BAD("not greater", kvdb_bulk_add(b, "k", 1, "v", 1));
	T_EQ(kvdb_bulk_finish(b), 0);
	T_EQ(kh_count(kvs, 0), 1);
	end();
}

/* a transaction, a queue and a store of two databases */
static void of_another_database(void)
{
	struct kvdb_opts o = kh_opts();
	struct kvdb *two = NULL;
	struct kvdb_kvs *kvs;
	struct kvdb_txn *txn;
	struct kvdb_cq *cq;
	struct kvdb_cqe cqe;
	char path[600];

	kh_fresh(POOL, 0);
	kh_kvs("s");
	snprintf(path, sizeof(path), "%s-two", th_pool);
	T_EQ(th_create_at(path, POOL, 0), 0);
	T_EQ(kvdb_create(path, &o), 0);
	T_EQ(kvdb_open(path, &o, &two), 0);
	T_EQ(kvdb_kvs_create(two, "s", NULL), 0);
	T_EQ(kvdb_kvs_open(two, "s", &kvs), 0);
	T_EQ(kvdb_txn_begin(kh_db, 0, &txn), 0);
	BAD("another database", kvdb_txn_put(txn, kvs, "k", 1, "v", 1));
	T_EQ(kvdb_cq_open(two, 0, 0, &cq), 0);
	/* ends the transaction, as every commit does */
	T_EQ(kvdb_cq_submit(cq, &(struct kvdb_op){ .type = KVDB_OP_COMMIT, .txn = txn }, 1), 1);
	T_EQ(kvdb_cq_reap(cq, &cqe, 1, 1, -1), 1);
	T_EQ(cqe.err, -EINVAL);
	T_EQ(kvdb_cq_submit(cq, &(struct kvdb_op){ .type = KVDB_OP_PUT, .kvs = kh_kvs("s"),
						   .key = "k", .klen = 1 }, 1), 1);
	T_EQ(kvdb_cq_reap(cq, &cqe, 1, 1, -1), 1);
	T_EQ(cqe.err, -EINVAL);
	kvdb_cq_close(cq);
	T_EQ(kvdb_close(two), 0);
	end();
}

static void of_transactions(void)
{
	struct kvdb_txn *txn;

	kh_fresh(POOL, 0);
	kh_kvs("s");
	BAD("flags", kvdb_txn_begin(kh_db, ~KVDB_TXN_RDONLY, &txn));
	T_EQ(kvdb_txn_begin(kh_db, 0, &txn), 0);
	T_EQ(kvdb_txn_put(txn, kh_kvs("s"), "k", 1, "v", 1), 0);
	BAD("flags", kvdb_txn_commit(txn, ~KVDB_TXN_DURABLE, NULL));
	end();
}

static void refused_op(struct kvdb_cq *cq, struct kvdb_op op)
{
	struct kvdb_cqe cqe = { 0 };

	T_EQ(kvdb_cq_submit(cq, &op, 1), 1);
	T_EQ(kvdb_cq_reap(cq, &cqe, 1, 1, -1), 1);
	T_EQ(cqe.err, -EINVAL);
}

static void of_queues(void)
{
	struct kvdb_op good = { .type = KVDB_OP_SYNC };
	struct kvdb_pair pairs[2];
	struct kvdb_get gets[1];
	struct kvdb_kvs *kvs;
	struct kvdb_cqe cqe;
	struct kvdb_cq *cq;

	kh_fresh(POOL, 0);
	kvs = kh_kvs("s");
	BAD("depth", kvdb_cq_open(NULL, 0, 0, &cq));
	BAD("depth", kvdb_cq_open(kh_db, 0, 0, NULL));
	BAD("depth", kvdb_cq_open(kh_db, 1025, 0, &cq));
	BAD("depth", kvdb_cq_open(kh_db, 0, 1, &cq));
	T_EQ(kvdb_cq_open(kh_db, 0, 0, &cq), 0);
	BAD("no queue", kvdb_cq_submit(NULL, &good, 1));
	BAD("no queue", kvdb_cq_submit(cq, NULL, 1));
	BAD("no queue", kvdb_cq_fd(NULL));
	T_EQ(kvdb_cq_submit(cq, &good, 1), 1);
	BAD("no queue", kvdb_cq_reap(NULL, &cqe, 1, 1, -1));
	BAD("no queue", kvdb_cq_reap(cq, NULL, 1, 1, -1));
	BAD("no queue", kvdb_cq_reap(cq, &cqe, 0, 0, -1));
	BAD("no queue", kvdb_cq_reap(cq, &cqe, 1, 2, -1));
	T_EQ(kvdb_cq_reap(cq, &cqe, 1, 1, -1), 1);

	refused_op(cq, (struct kvdb_op){ .type = KVDB_OP_GET - 1, .kvs = kvs });
	refused_op(cq, (struct kvdb_op){ .type = KVDB_OP_MGET + 1, .kvs = kvs });
	refused_op(cq, (struct kvdb_op){ .type = KVDB_OP_SYNC, .flags = 1u << 31 });
	refused_op(cq, (struct kvdb_op){ .type = KVDB_OP_MGET, .kvs = kvs, .get = gets,
					 .size = 1ull << 32 });
	refused_op(cq, (struct kvdb_op){ .type = KVDB_OP_COMMIT });
	refused_op(cq, (struct kvdb_op){ .type = KVDB_OP_PUT, .key = "k", .klen = 1 });
	T_EQ(kvdb_put(kvs, "k", 1, "v", 1), 0);
	refused_op(cq, (struct kvdb_op){ .type = KVDB_OP_GET, .kvs = kvs, .key = "k", .klen = 1,
					 .size = 8 });
	refused_op(cq, (struct kvdb_op){ .type = KVDB_OP_SCAN, .kvs = kvs, .size = sizeof(pairs) });
	refused_op(cq, (struct kvdb_op){ .type = KVDB_OP_SCAN, .kvs = kvs, .buf = (char *)pairs + 1,
					 .size = sizeof(pairs) - 8 });
	kvdb_cq_close(cq);
	end();
}

static int no_change(void *arg, const void *k, size_t klen, const void *val, size_t vlen)
{
	(void)arg;
	(void)k;
	(void)klen;
	(void)val;
	(void)vlen;
	return 0;
}

/* at checkpoint @name of the database at @path */
static struct kvdb_kvs *at(const char *path, const char *name, const char *store, struct kvdb **db)
{
	struct kvdb_opts o = kh_opts();
	struct kvdb_kvs *kvs = NULL;

	o.flags |= KVDB_RDONLY;
	o.checkpoint = name;
	T_EQ(kvdb_open(path, &o, db), 0);
	T_EQ(kvdb_kvs_open(*db, store, &kvs), 0);
	return kvs;
}

static void of_checkpoints(void)
{
	struct kvdb *a, *b, *c, *writer;
	struct kvdb_kvs *s, *t, *other;
	char path[600];

	kh_fresh(POOL, 0);
	kh_kvs("s");
	kh_kvs("t");
	BAD("flags", kvdb_checkpoint(kh_db, "c", 1));
	BAD("name", kvdb_checkpoint(kh_db, ".c", 0));
	T_EQ(kvdb_checkpoint(kh_db, "c", 0), 0);
	writer = kh_db;
	s = at(th_pool, "c", "s", &a);
	t = at(th_pool, "c", "t", &b);
	snprintf(path, sizeof(path), "%s-two", th_pool);
	T_EQ(th_create_at(path, POOL, 0), 0);
	T_EQ(kvdb_create(path, NULL), 0);
	T_EQ(kvdb_open(path, NULL, &kh_db), 0);
	kh_kvs("s");
	T_EQ(kvdb_checkpoint(kh_db, "c", 0), 0);
	kh_close();
	other = at(path, "c", "s", &c);
	kh_db = writer;

	BAD("difference", kvdb_diff(NULL, s, no_change, NULL));
	BAD("difference", kvdb_diff(s, NULL, no_change, NULL));
	BAD("difference", kvdb_diff(s, s, NULL, NULL));
	BAD("difference", kvdb_diff(kh_kvs("s"), s, no_change, NULL));
	BAD("difference", kvdb_diff(s, kh_kvs("s"), no_change, NULL));
	BAD("difference", kvdb_diff(s, t, no_change, NULL));
	BAD("difference", kvdb_diff(s, other, no_change, NULL));
	T_EQ(kvdb_diff(s, s, no_change, NULL), 0);
	T_EQ(kvdb_close(a), 0);
	T_EQ(kvdb_close(b), 0);
	T_EQ(kvdb_close(c), 0);
	end();
}

static void of_maintenance(void)
{
	struct kvdb_repair rp;

	kh_fresh(POOL, 0);
	kh_kvs("s");
	BAD("flags", kvdb_drain(kh_db, ~(KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT)));
	BAD("flags", kvdb_compact(kh_db, ~(KVDB_COMPACT_WAIT | KVDB_COMPACT_CANCEL)));
	BAD("no function", kvdb_on_durable(kh_db, kvdb_ticket(kh_db), NULL, NULL));
	BAD("no place for the ticket", kvdb_sync_start(kh_db, NULL));
	BAD("a name and a value", kvdb_set(kh_db, NULL, "1"));
	BAD("a name and a value", kvdb_set(kh_db, "commit", NULL));
	BAD("not a number", kvdb_set(kh_db, "interval_ms", ""));
	BAD("not a number", kvdb_set(kh_db, "interval_ms", "+5"));
	BAD("not a number", kvdb_set(kh_db, "interval_ms", " 5"));
	BAD("not a number", kvdb_set(kh_db, "interval_ms", "5x"));
	BAD("not a number", kvdb_set(kh_db, "interval_ms", "0"));
	BAD("not a number", kvdb_set(kh_db, "log_bytes", "18446744073709551617"));
	BAD("has stores", kvdb_repair(th_pool, NULL, kh_db, NULL, NULL, &rp));
	kh_close();
	T_EQ(kh_open_with(KVDB_RDONLY), 0);
	T_EQ(kvdb_drain(kh_db, 0), -EROFS);
	end();
}

/* Both accessors tell the same. */
static bool is_told(const char *id, int err)
{
	struct mpool_error m = *mpool_error_detail(), k = *kvdb_error_detail();

	if (!strcmp(m.id, id) && !strcmp(k.id, id) && m.err == err && k.err == err &&
	    !strcmp(m.text, k.text) && !strcmp(m.cure, k.cure))
		return true;
	printf("# libmpool: %s %d '%s'; libkvdb: %s %d '%s'\n", m.id, m.err, m.text, k.id, k.err,
	       k.text);
	return false;
}

/* The last call that failed is told, whichever library was called, whichever is asked. */
static void one_detail_for_both_libraries(void)
{
	char where[4096];
	struct kvdb_kvs *kvs;
	struct mpool *mp = NULL;
	struct mpool_info in;
	uint8_t id[16];

	kh_fresh(POOL, 0);
	kvs = kh_kvs("s");
	BAD("at least 1", kvdb_put(kvs, "", 0, "v", 1));
	T_OK(is_told("MP0910", -EINVAL));
	snprintf(where, sizeof(where), "%s/no/pool", th_dir);
	T_EQ(mpool_open(where, NULL, &mp), -ENOENT);
	T_OK(is_told("MP0401", -ENOENT));
	/* what libkvdb asks of the pool by itself is no call of ours */
	for (unsigned i = 0; i < 200; i++)
		T_EQ(kvdb_put(kvs, &i, sizeof(i), kh_buf, 60000), 0);
	T_EQ(kvdb_sync(kh_db), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	T_EQ(kvdb_checkpoint(kh_db, "c", 0), 0);
	T_OK(is_told("MP0401", -ENOENT));
	T_EQ(kvdb_get(kvs, "absent", 6, NULL, 0, NULL), -ENOENT);
	T_OK(is_told("MP0967", -ENOENT));
	kh_close();
	T_OK(is_told("MP0967", -ENOENT));
	/* a failure of the pool that a call of libkvdb met */
	T_EQ(kvdb_open(where, NULL, &kh_db), -ENOENT);
	T_OK(is_told("MP0401", -ENOENT));
	/* a pool of our own */
	BAD("no pool", kvdb_open(NULL, NULL, &kh_db));
	T_EQ(mpool_open(th_pool, NULL, &mp), 0);
	T_OK(is_told("", 0));
	T_EQ(mpool_unlease(mp, (const uint8_t *)memset(id, 1, sizeof(id))), -ENOENT);
	T_OK(is_told("MP0412", -ENOENT));
	BAD("no pool", kvdb_open(NULL, NULL, &kh_db));
	T_OK(is_told(kvdb_error_detail()->id, -EINVAL));
	T_EQ(mpool_info(mp, &in), 0);
	T_OK(is_told("", 0));
	T_EQ(mpool_close(mp), 0);
	th_clean();
}

int main(void)
{
	memset(key, 'k', sizeof(key));
	T_RUN(of_options);
	T_RUN(of_opens);
	T_RUN(of_stores);
	T_RUN(of_data);
	T_RUN(of_cursors);
	T_RUN(of_bulk_loads);
	T_RUN(of_transactions);
	T_RUN(of_queues);
	T_RUN(of_maintenance);
	TH_RUN_FILES(one_detail_for_both_libraries);
	TH_RUN_FILES(of_another_database);
	TH_RUN_FILES(of_checkpoints);
	th_clean();
	return t_done();
}
