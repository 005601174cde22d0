/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Deletion of runs that nothing lists any more. */
#include <errno.h>
#include <string.h>

#include <kvdb/kvdb.h>

#include "db/db.h"
#include "harness.h"
#include "kv_fresh.h"

#define STORES 3u

static char dir[256];
static struct kvdb *db;

static unsigned blocks(struct mpool_obj_info *out)
{
	struct mpool_obj_info oi[64];
	unsigned n = 0;
	int got = mpool_objects(db->d_mp, 0, db->d_ident.id_tag, oi, 64);

	for (int i = 0; i < got; i++)
		if (oi[i].kind == MPOOL_MBLOCK)
			out[n++] = oi[i];
	return n;
}

/* Of the runs that go together one can never be deleted: the others are. */
static void a_run_that_stays_holds_back_no_other(void)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct mpool_obj_info oi[64];
	struct mpool_op op = { .type = MPOOL_OP_DELETE };
	struct kvdb_kvs *kvs;
	char name[STORES][8];

	kv_fresh(dir, sizeof(dir), "test_kv_reap", 64 << 20, 0);
	o.flags = KVDB_MANUAL;
	T_EQ(kvdb_open(dir, &o, &db), 0);
	for (unsigned i = 0; i < STORES; i++) {
		snprintf(name[i], sizeof(name[i]), "s%u", i);
		T_EQ(kvdb_kvs_create(db, name[i], NULL), 0);
		T_EQ(kvdb_kvs_open(db, name[i], &kvs), 0);
		T_EQ(kvdb_put(kvs, "k", 1, "v", 1), 0);
		T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	}
	T_EQ(blocks(oi), STORES);
	/* what is deleted already cannot be deleted */
	op.id = oi[1].id;
	T_EQ(mpool_batch(db->d_mp, &op, 1), 0);
	for (unsigned i = 0; i < STORES; i++)
		T_EQ(kvdb_kvs_drop(db, name[i]), 0);
	T_EQ(kvdb_drain(db, KVDB_WAIT_COMPACT), 0);
	T_EQ(blocks(oi), 0);
	T_OK(!kv_fault(db));
	T_EQ(kvdb_close(db), 0);
	T_EQ(mpool_destroy(dir, NULL), 0);
	rmdir(dir);
}

int main(void)
{
	T_RUN(a_run_that_stays_holds_back_no_other);
	return t_done();
}
