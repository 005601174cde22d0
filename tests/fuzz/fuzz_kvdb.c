/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Databases that a stranger wrote: verified, opened, read from both ends,
 * written to, compacted, closed and opened again; or repaired into another.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image_edit.h"

#define CACHE	(64u << 20)
#define KEYS	50u	/* read of one store */
#define OPS	12u

static struct fi image, other;
static char names[KVDB_KVS_MAX][KVDB_NAME_MAX + 1];
static uint8_t val[KVDB_VALUE_MAX];

/* An empty database on a pool of its own, for repairs. */
static void other_make(void)
{
	struct mpool_dev_spec dev = { .path = "other", .size = 48ull << 20 };
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	struct mpool_open_opts oo;
	struct kvdb_opts o;

	sim_init(&other.fi_sim);
	golden_opts(&other.fi_sim, &oo, &o);
	co.name = "other";
	co.devs = &dev;
	co.ndevs = 1;
	co.provider = &other.fi_sim.s_prov;
	if (mpool_create(GOLDEN_POOL, &co) || kvdb_create(GOLDEN_POOL, &o))
		fz_bug("no pool to repair into");
}

void fz_init(void)
{
	fi_init(&image, "tests/golden/kvdb-1.img");
	other_make();
}

static void walk(struct kvdb_kvs *kvs, unsigned flags)
{
	const void *key, *v;
	struct kvdb_cursor *cur;
	size_t klen, vlen, got;

	if (kvdb_cursor_open(kvs, flags, NULL, 0, &cur))
		return;
	for (unsigned i = 0; i < KEYS && !kvdb_cursor_next(cur, &key, &klen, &v, &vlen); i++) {
		if (klen > KVDB_KEY_MAX || vlen > KVDB_VALUE_MAX)
			fz_bug("a key or value is too long");
		if (i % 16 == 0)
			kvdb_get(kvs, key, klen, val, sizeof(val), &got);
	}
	kvdb_cursor_close(cur);
}

static void store_read(struct kvdb *db, const char *name)
{
	struct kvdb_tree_part part[32];
	struct kvdb_kvs_info in;
	struct kvdb_kvs *kvs;

	if (kvdb_kvs_open(db, name, &kvs))
		return;
	kvdb_kvs_info(kvs, &in);
	kvdb_tree(db, name, part, 32);
	walk(kvs, 0);
	walk(kvs, KVDB_REVERSE);
}

static void transaction(struct kvdb *db, struct kvdb_kvs *kvs, const uint8_t *key, size_t klen)
{
	struct kvdb_txn *txn;
	size_t got;

	if (kvdb_txn_begin(db, 0, &txn))
		return;
	kvdb_txn_get(txn, kvs, key, klen, val, sizeof(val), &got);
	kvdb_txn_put(txn, kvs, key, klen, val, 300);
	kvdb_txn_commit(txn, KVDB_TXN_DURABLE, NULL);
}

static void change(struct kvdb *db, struct kvdb_kvs *kvs, struct fz *f)
{
	unsigned op = (unsigned)fz_num(f, 1), n = (unsigned)fz_num(f, 1);
	uint8_t key[8], end[8];
	size_t klen = (size_t)snprintf((char *)key, sizeof(key), "user%02u", n % 15), got;

	switch (op % 12) {
	case 0:
	case 1:
		kvdb_put(kvs, key, klen, val, n * 97);
		break;
	case 2:
		kvdb_del(kvs, key, klen);
		break;
	case 3:
		kvdb_prefix_del(kvs, key, klen);
		break;
	case 4:
		memcpy(end, key, sizeof(end));
		end[klen - 1] = '~';
		kvdb_range_del(kvs, key, klen, end, klen);
		break;
	case 5:
		kvdb_get(kvs, key, klen, val, sizeof(val), &got);
		break;
	case 6:
		transaction(db, kvs, key, klen);
		break;
	case 7:
		kvdb_sync(db);
		break;
	case 8:
		kvdb_drain(db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT);
		break;
	case 9:
		kvdb_compact(db, KVDB_COMPACT_WAIT);
		break;
	case 10:
		kvdb_checkpoint(db, "now", 0);
		break;
	default:
		kvdb_checkpoint_drop(db, "then");
	}
}

static void work(struct kvdb *db, struct fz *f)
{
	int n = kvdb_kvs_list(db, names, KVDB_KVS_MAX);
	struct kvdb_kvs *kvs;

	for (int i = 0; i < n; i++)
		store_read(db, names[i]);
	for (unsigned i = 0; n > 0 && f->n && i < OPS; i++)
		if (!kvdb_kvs_open(db, names[fz_num(f, 1) % (unsigned)n], &kvs))
			change(db, kvs, f);
}

static void open_and_work(struct fz *f, const char *checkpoint)
{
	struct mpool_open_opts oo;
	struct kvdb_opts o;
	struct kvdb *db;
	uint32_t sum;
	int rc;

	fi_begin(&image, f);
	golden_opts(&image.fi_sim, &oo, &o);
	o.flags |= KVDB_NOCTL | (checkpoint ? KVDB_RDONLY : 0);
	o.checkpoint = checkpoint;
	sum = fi_sum(&image);
	fz_heap_begin();
	rc = kvdb_open(GOLDEN_POOL, &o, &db);
	fz_heap_end(image.fi_bytes, CACHE);
	/* RV24 */
	if (rc && sum != fi_sum(&image))
		fz_bug("refused, and written to");
	if (!rc) {
		image.fi_opened++;
		work(db, f);
		/* what was written over damage must be readable by its writer */
		kvdb_close(db);
		if (!checkpoint && !kvdb_open(GOLDEN_POOL, &o, &db))
			kvdb_close(db);
	}
	fi_end(&image);
}

static void live(struct fz *f)
{
	open_and_work(f, NULL);
}

static void checkpoint(struct fz *f)
{
	open_and_work(f, "then");
}

static void problem(void *arg, const struct mpool_problem *p)
{
	*(size_t *)arg += strlen(p->text);
}

static void verify(struct fz *f)
{
	struct mpool_open_opts oo;
	struct kvdb_opts o;
	uint64_t damage;
	size_t n = 0;

	fi_begin(&image, f);
	golden_opts(&image.fi_sim, &oo, &o);
	kvdb_verify(GOLDEN_POOL, &o, MPOOL_VERIFY_DATA | KVDB_VERIFY_DEEP, problem, &n, &damage);
	fi_end(&image);
}

static void repair(struct fz *f)
{
	struct mpool_open_opts oo, other_oo;
	struct kvdb_opts o, other_o;
	struct kvdb_repair out;
	struct kvdb *to;
	size_t n = 0;

	sim_snap(&other.fi_sim);
	golden_opts(&other.fi_sim, &other_oo, &other_o);
	if (kvdb_open(GOLDEN_POOL, &other_o, &to))
		fz_bug("the pool to repair into");
	fi_begin(&image, f);
	golden_opts(&image.fi_sim, &oo, &o);
	kvdb_repair(GOLDEN_POOL, &o, to, problem, &n, &out);
	fi_end(&image);
	kvdb_close(to);
	sim_release(&other.fi_sim);
	sim_rollback(&other.fi_sim);
}

const struct fz_target fz_targets[] = {
	{ "kvdb open", live }, { "kvdb checkpoint", checkpoint }, { "kvdb verify", verify },
	{ "kvdb repair", repair },
	{ .name = NULL },
};
