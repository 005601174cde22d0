/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Edits of the metadata container: what one that dies leaves is collected, whatever the fill of
 * the container.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "db/db.h"
#include "kv_fresh.h"
#include "meta/edit.h"
#include "meta/mdc.h"
#include "run/run.h"
#include "seg/value.h"
#include "tree/tree.h"

static char dir[256];

/* Every open adds to the container; some open meets every distance from its end. */
static void open_works_at_every_fill_of_the_container(void)
{
	static const char val[1000];
	struct kvdb_opts o;
	struct kvdb_kvs *kvs;
	struct kvdb *db;
	int i, err;

	kv_fresh(dir, sizeof(dir), "kv_edit", 64u << 20, 0);
	kv_opts_one(&o, KVDB_MANUAL);
	/* a value keeps its segment: the record of an incarnation has parts */
	T_EQ(kvdb_open(dir, &o, &db), 0);
	T_EQ(kvdb_kvs_create(db, "keep", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "keep", &kvs), 0);
	T_EQ(kvdb_put(kvs, "k", 1, val, sizeof(val)), 0);
	T_EQ(kvdb_close(db), 0);
	for (i = 0; i < 600; i++) {
		err = kvdb_open(dir, &o, &db);
		if (err)
			T_FAIL("open %d: %d %s", i, err, kvdb_error_detail()->text);
		if (i % 7 == 0)
			T_EQ(kvdb_kvs_create(db, "s", NULL), 0);
		if (i % 7 == 3)
			T_EQ(kvdb_kvs_drop(db, "s"), 0);
		T_EQ(kvdb_close(db), 0);
	}
	kv_remove(dir);
}

#define CUT_BLOCKS 70u

/* The container is written anew; what needs an appended record for that is any option. */
static void compact_container(struct kvdb *db)
{
	struct kv_props p = { .pr_val = { [KV_PROP_TTL] = 60 } };
	uint64_t used, before, cap;

	if (kv_mdc_kvs_add(db, 1, "s", 0, &p) || mpool_mdc_space(db->d_mdc->m_log, &used, &cap))
		_exit(6);
	do {
		before = used;
		if (kv_mdc_kvs_prop(db, 1, &p, KV_PROP_BIT(KV_PROP_TTL)) ||
		    mpool_mdc_space(db->d_mdc->m_log, &used, &cap))
			_exit(7);
	} while (used > before);
}

/* What kv_mdc_edit() does, up to the commit, while another thread fills the container. */
static void edit_beside_compaction(struct kvdb *db, struct kv_edit *ed)
{
	struct kv_run_desc *d = kv_run_desc(ed->ed_add[0]);
	struct mpool_op *op = calloc(d->rd_n, sizeof(*op));
	bool is_announced;

	if (!op || kv_mdc_announce(db->d_mdc, ed, &is_announced) || !is_announced)
		_exit(8);
	compact_container(db);
	for (uint32_t i = 0; i < d->rd_n; i++)
		op[i] = (struct mpool_op){ .type = MPOOL_OP_COMMIT,
					   .obj = kv_run_obj(ed->ed_add[0], i),
					   .length = (d->rd_kb[i].kd_len + 4095ull) & ~4095ull };
	_exit(mpool_batch(db->d_mp, op, d->rd_n) ? 9 : 0);
}

/* Commits the blocks of a large run, dies before the edit: its store does not exist. */
static void cut_edit(bool is_compacted)
{
	struct kv_edit ed = { .ed_kvs = 77 };
	struct kv_ent e = { .e_kind = KV_ENT_INLINE, .e_seq = 1 };
	struct kv_run_build *rb;
	struct kvdb_opts o;
	struct kvdb *db;
	uint8_t key[512] = { 0 };
	struct kv_run *run;
	uint32_t i;

	kv_opts_one(&o, KVDB_MANUAL);
	if (kvdb_open(dir, &o, &db))
		_exit(1);
	db->d_budget.b_kblock_bytes = 256u << 10;
	if (kv_run_build_open(db, 77, 1, true, &rb))
		_exit(2);
	e.e_key = key;
	e.e_klen = sizeof(key);
	e.e_val = key;
	e.e_vlen = KV_INLINE_MAX;
	e.e_vcrc = mpool_crc32c(0, key, KV_INLINE_MAX);
	for (i = 0; i < CUT_BLOCKS << 10; i++) {
		uint32_t be = __builtin_bswap32(i);

		/* no common prefixes: pages fill with keys */
		memcpy(key, &be, 4);
		for (unsigned j = 4; j < sizeof(key); j++)
			key[j] = (uint8_t)(i * 2654435761u >> j % 24);
		if (kv_run_build_add(rb, &e))
			_exit(3);
	}
	if (kv_run_build_finish(rb, &run) || kv_run_desc(run)->rd_n < CUT_BLOCKS)
		_exit(4);
	ed.ed_add = &run;
	ed.ed_nadd = 1;
	if (is_compacted)
		edit_beside_compaction(db, &ed);
	_exit(kv_mdc_edit(db, &ed) == -ENOENT ? 0 : 5);
}

static void cut_edit_is_collected(bool is_compacted)
{
	struct mpool_obj_info oi[4];
	struct kvdb_opts o;
	struct kvdb *db;
	uint64_t after = 0;
	unsigned n = 0;
	pid_t pid;
	int st;

	kv_fresh(dir, sizeof(dir), "kv_edit", 256u << 20, 0);
	pid = fork();
	if (!pid)
		cut_edit(is_compacted);
	T_EQ(waitpid(pid, &st, 0), pid);
	T_EQ(st, 0);
	kv_opts_one(&o, KVDB_MANUAL);
	T_EQ(kvdb_open(dir, &o, &db), 0);
	for (; mpool_objects(db->d_mp, after, db->d_ident.id_tag, oi, 1) == 1; after = oi[0].id)
		n += oi[0].kind == MPOOL_MBLOCK;
	T_EQ(n, 0);
	T_EQ(kvdb_close(db), 0);
	kv_remove(dir);
}

#define SMALL_CUT 70u	/* more than an open takes for what one crash leaves */

/* The same with a key for each of many edits, that threads are at together. */
static void cut_small_edits(void)
{
	struct kv_ent e = { .e_key = (const uint8_t *)"k", .e_klen = 1,
			    .e_kind = KV_ENT_INLINE, .e_seq = 1,
			    .e_val = (const uint8_t *)"v", .e_vlen = 1,
			    .e_vcrc = mpool_crc32c(0, "v", 1) };
	struct kv_edit ed = { .ed_kvs = 1, .ed_nadd = 1 };
	struct kv_run_build *rb;
	struct kvdb_opts o;
	struct kvdb *db;
	struct kv_run *run;

	kv_opts_one(&o, KVDB_MANUAL);
	/* of a store that is dropped meanwhile no edit counts */
	if (kvdb_open(dir, &o, &db) || kvdb_kvs_create(db, "gone", NULL) ||
	    kvdb_kvs_drop(db, "gone"))
		_exit(1);
	ed.ed_add = &run;
	for (uint32_t i = 0; i < SMALL_CUT; i++) {
		if (kv_run_build_open(db, 1, 1, true, &rb) || kv_run_build_add(rb, &e) ||
		    kv_run_build_finish(rb, &run))
			_exit(2);
		if (kv_mdc_edit(db, &ed) != -ENOENT)
			_exit(3);
	}
	_exit(0);
}

static void many_cut_edits_of_small_runs_are_collected(void)
{
	struct mpool_obj_info oi;
	struct kvdb_opts o;
	struct kvdb *db;
	uint64_t after = 0;
	unsigned n = 0;
	pid_t pid;
	int st;

	kv_fresh(dir, sizeof(dir), "kv_edit", 64u << 20, 0);
	pid = fork();
	if (!pid)
		cut_small_edits();
	T_EQ(waitpid(pid, &st, 0), pid);
	T_EQ(st, 0);
	kv_opts_one(&o, KVDB_MANUAL);
	T_EQ(kvdb_open(dir, &o, &db), 0);
	for (; mpool_objects(db->d_mp, after, db->d_ident.id_tag, &oi, 1) == 1; after = oi.id)
		n += oi.kind == MPOOL_MBLOCK;
	T_EQ(n, 0);
	T_EQ(kvdb_close(db), 0);
	kv_remove(dir);
}

static void cut_edit_of_a_large_run_is_collected(void)
{
	cut_edit_is_collected(false);
}

static void compaction_of_the_container_keeps_what_was_announced(void)
{
	cut_edit_is_collected(true);
}

int main(void)
{
	T_RUN(open_works_at_every_fill_of_the_container);
	T_RUN(many_cut_edits_of_small_runs_are_collected);
	T_RUN(cut_edit_of_a_large_run_is_collected);
	T_RUN(compaction_of_the_container_keeps_what_was_announced);
	return t_done();
}
