/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The golden image of a database: every kind of record and table, a log to
 * replay, and a checkpoint. Made and read without threads.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "image.h"
#include "db/db.h"

#define KEYS	150u
#define LEAF	12u	/* keys of a leaf */

static uint64_t now(void *arg)
{
	static uint64_t ns = 1000000000;

	(void)arg;
	return __atomic_add_fetch(&ns, 1000, __ATOMIC_RELAXED);
}

static void sleep_until(void *arg, uint64_t t_ns)
{
	(void)arg;
	(void)t_ns;
}

static uint64_t wall(void *arg)
{
	(void)arg;
	return 1700000000ull * 1000000000;
}

static const struct kvdb_clock golden_clock = { .now_ns = now, .sleep_until_ns = sleep_until,
						.wall_ns = wall };

void golden_opts(struct sim *s, struct mpool_open_opts *oo, struct kvdb_opts *o)
{
	*oo = (struct mpool_open_opts)MPOOL_OPEN_OPTS_INIT;
	oo->io = "sync";
	oo->provider = &s->s_prov;
	if (!o)
		return;
	*o = (struct kvdb_opts)KVDB_OPTS_INIT;
	o->flags = KVDB_MANUAL;
	o->interval_ms = KVDB_INTERVAL_NONE;
	o->logs = 2;
	o->threads = 1;
	o->cache_bytes = 64u << 20;
	o->log_bytes = 2u << 20;
	o->segment_bytes = 1u << 20;
	o->clock = &golden_clock;
	o->pool = oo;
}

/* ---- making ------------------------------------------------------------------------ */

static size_t key_of(unsigned k, char *key)
{
	return (size_t)sprintf(key, "%s%04u", k % 4 ? "user" : "u", k);
}

/* Runs of bytes, so that packing gains. */
static size_t value_of(unsigned k, unsigned round, size_t most, uint8_t *val)
{
	size_t len = (k * 7919u + round * 104729u) % most;

	for (size_t i = 0; i < len; i++)
		val[i] = (uint8_t)(k + round + i / 37);
	return len;
}

static int puts_from(struct kvdb_kvs *kvs, unsigned first, unsigned step, unsigned round,
		     size_t most)
{
	static uint8_t val[16384];
	char key[16];
	int rc = 0;

	for (unsigned k = first; !rc && k < KEYS; k += step) {
		size_t klen = key_of(k, key), vlen = value_of(k, round, most, val);

		rc = k % 11 ? kvdb_put(kvs, key, klen, val, vlen) :
			      kvdb_put_ttl(kvs, key, klen, val, vlen, KVDB_TTL_MAX);
	}
	return rc;
}

static int store(struct kvdb *db, const char *name, uint32_t compress, uint32_t policy,
		 struct kvdb_kvs **out)
{
	struct kvdb_kvs_opts o = KVDB_KVS_OPTS_INIT;
	int rc;

	o.compress = compress;
	o.policy = policy;
	o.pfx_len = 4;
	rc = kvdb_kvs_create(db, name, &o);
	return rc ? rc : kvdb_kvs_open(db, name, out);
}

static int deletes(struct kvdb_kvs *kvs)
{
	char key[16];
	int rc = kvdb_prefix_del(kvs, "user003", 7);

	if (!rc)
		rc = kvdb_range_del(kvs, "user0111", 8, "user0120", 8);
	for (unsigned k = 1; !rc && k < KEYS; k += 9)
		rc = kvdb_del(kvs, key, key_of(k, key));
	return rc;
}

static int transaction(struct kvdb *db, struct kvdb_kvs *a, struct kvdb_kvs *b, unsigned round)
{
	static uint8_t val[16384];
	struct kvdb_txn *txn;
	char key[16];
	int rc = kvdb_txn_begin(db, 0, &txn);

	if (rc)
		return rc;
	for (unsigned k = round; !rc && k < KEYS; k += 13)
		rc = kvdb_txn_put(txn, k % 2 ? a : b, key, key_of(k, key), val,
				  value_of(k, 50 + round, 3000, val));
	if (!rc)
		rc = kvdb_txn_del(txn, a, key, key_of(5 + round, key));
	return rc ? rc : kvdb_txn_commit(txn, KVDB_TXN_DURABLE, NULL);
}

enum { PLAIN, LZ4, ZSTD, LEAVES, STAGED, STORES };

static int round_of(struct kvdb *db, struct kvdb_kvs **kvs, unsigned round)
{
	int rc = 0;

	for (unsigned s = 0; !rc && s < STORES; s++)
		rc = puts_from(kvs[s], round, 1 + round, round, s == PLAIN ? 200 : 4000);
	if (!rc && round)
		rc = deletes(kvs[round % STORES]);
	if (!rc)
		rc = transaction(db, kvs[PLAIN], kvs[LEAVES], round);
	return rc ? rc : kvdb_drain(db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT);
}

/* An image without one of them would prove less than it says. */
static int has_all(struct kvdb *db)
{
	struct kvdb_stats st;
	int rc = kvdb_stats(db, &st);

	return rc || (st.leaves > 2 && st.pack_out_bytes && st.relocations && st.spills &&
		      st.checkpoints) ? rc : -ENODATA;
}

static int fill(struct kvdb *db)
{
	struct kvdb_kvs *kvs[STORES], *gone;
	int rc = store(db, "plain", KVDB_COMPRESS_NONE, 0, &kvs[PLAIN]);

	db->d_budget.b_leaf_keys = LEAF;
	if (!rc)
		rc = store(db, "lz4", KVDB_COMPRESS_LZ4, KVDB_POLICY_CAPACITY_ONLY, &kvs[LZ4]);
	if (!rc)
		rc = store(db, "zstd", KVDB_COMPRESS_ZSTD, 0, &kvs[ZSTD]);
	if (!rc)
		rc = store(db, "leaves", KVDB_COMPRESS_NONE, 0, &kvs[LEAVES]);
	if (!rc)
		rc = store(db, "staged", 0, KVDB_POLICY_STAGING_ONLY, &kvs[STAGED]);
	if (!rc)
		rc = store(db, "gone", KVDB_COMPRESS_NONE, 0, &gone);
	for (unsigned r = 0; !rc && r < 5; r++)
		rc = round_of(db, kvs, r);
	if (!rc)
		rc = kvdb_compact(db, KVDB_COMPACT_WAIT);
	if (!rc)
		rc = kvdb_checkpoint(db, "then", 0);
	if (!rc)
		rc = kvdb_kvs_drop(db, "gone");
	if (!rc)
		rc = kvdb_kvs_rename(db, "staged", "renamed");
	if (!rc)
		rc = round_of(db, kvs, 5);
	/* what follows is in the logs alone */
	for (unsigned s = 0; !rc && s < STORES; s++)
		rc = puts_from(kvs[s], 3, 10, 9, 3000);
	if (!rc)
		rc = deletes(kvs[ZSTD]);
	if (!rc)
		rc = transaction(db, kvs[PLAIN], kvs[LEAVES], 7);
	return rc ? rc : kvdb_sync(db);
}

int golden_kvdb_fill(struct sim *s)
{
	struct mpool_dev_spec dev[2] = {
		{ .path = "capacity", .mclass = MPOOL_CAPACITY, .size = 40ull << 20 },
		{ .path = "staging", .mclass = MPOOL_STAGING, .size = 24ull << 20 },
	};
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	struct mpool_open_opts oo;
	struct kvdb_opts o;
	struct kvdb *db;
	int rc;

	golden_opts(s, &oo, &o);
	co.name = "golden";
	co.devs = dev;
	co.ndevs = 2;
	co.provider = &s->s_prov;
	rc = mpool_create(GOLDEN_POOL, &co);
	if (!rc)
		rc = kvdb_create(GOLDEN_POOL, &o);
	if (!rc)
		rc = kvdb_open(GOLDEN_POOL, &o, &db);
	if (rc)
		return rc;
	rc = fill(db);
	if (!rc)
		rc = has_all(db);
	if (!rc)
		sim_snap(s);	/* the process dies here */
	rc = kvdb_close(db) ?: rc;
	if (s->s_nlevel)
		sim_rollback(s);
	return rc;
}

/* ---- listing ------------------------------------------------------------------------- */

static int store_list(struct kvdb *db, const char *name, FILE *out)
{
	struct kvdb_cursor *cur;
	struct kvdb_kvs_info in;
	const void *key, *val;
	struct kvdb_kvs *kvs;
	size_t klen, vlen;
	int rc = kvdb_kvs_open(db, name, &kvs);

	if (!rc)
		rc = kvdb_kvs_info(kvs, &in);
	if (!rc)
		rc = kvdb_cursor_open(kvs, 0, NULL, 0, &cur);
	if (rc)
		return rc;
	fprintf(out, "store %s prefix %u policy %u compress %u\n", name, in.pfx_len, in.policy,
		in.compress);
	while (!(rc = kvdb_cursor_next(cur, &key, &klen, &val, &vlen)))
		fprintf(out, "  %.*s %zu crc %08x\n", (int)klen, (const char *)key, vlen,
			mpool_crc32c(0, val, vlen));
	kvdb_cursor_close(cur);
	return rc == -ENOENT ? 0 : rc;
}

static int list(const struct kvdb_opts *o, FILE *out)
{
	static char names[KVDB_KVS_MAX][KVDB_NAME_MAX + 1];
	struct kvdb *db;
	int n, rc = kvdb_open(GOLDEN_POOL, o, &db);

	if (rc)
		return rc;
	n = kvdb_kvs_list(db, names, KVDB_KVS_MAX);
	rc = n < 0 ? n : 0;
	for (int i = 0; !rc && i < n; i++)
		rc = store_list(db, names[i], out);
	return kvdb_close(db) ?: rc;
}

int golden_kvdb_list(struct sim *s, FILE *out)
{
	struct mpool_open_opts oo;
	struct kvdb_opts o;
	int rc;

	golden_opts(s, &oo, &o);
	rc = list(&o, out);
	if (rc)
		return rc;
	fputs("checkpoint then\n", out);
	o.checkpoint = "then";
	o.flags |= KVDB_RDONLY;
	return list(&o, out);
}
