/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The shape of a store for people: its memtables and runs as they are now, by
 * size. Nothing waits for it: a reference on the tree is all that it takes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/vec.h"
#include "db/db.h"
#include "seg/seg.h"
#include "mem/memtable.h"
#include "run/run.h"
#include "tree/tree.h"

/* The segments of one run; each of its key blocks names its own. */
struct refs {
	uint64_t *id;
	size_t n;
	uint32_t cap;
	uint64_t bytes;
	int err;
};

static void add_ref(void *arg, struct kv_seg *s, uint64_t n, uint64_t bytes)
{
	struct refs *r = arg;

	(void)n;
	r->bytes += bytes;
	if (!r->err)
		r->err = kv_vec_grow(&r->id, &r->cap, r->n + 1, sizeof(r->id[0]));
	if (!r->err)
		r->id[r->n++] = s->sg_id;
}

static int run_part(struct kv_run *run, struct kvdb_tree_part *p)
{
	struct refs r = { 0 };
	size_t i;

	memset(p, 0, sizeof(*p));
	p->kind = KVDB_PART_RUN;
	p->blocks = run->rn_n;
	p->id = run->rn_desc.rd_id;
	p->keys = run->rn_desc.rd_keys;
	p->tombs = run->rn_tombs;
	p->bytes = kv_run_bytes(run);
	p->index_bytes = kv_run_index_bytes(run);
	kv_run_segs(run, add_ref, &r);
	p->value_bytes = r.bytes;
	kv_ids_sort(r.id, r.n);
	for (i = 0; i < r.n; i++)
		p->segments += !i || r.id[i] != r.id[i - 1];
	free(r.id);
	return r.err;
}

static bool is_in(const struct kv_leaf_runs *lr, uint32_t run)
{
	return run >= lr->lr_first && run < lr->lr_first + lr->lr_n;
}

static int fill(struct kv_tree *tr, struct kvdb_tree_part *parts, unsigned max)
{
	uint32_t i, n = 0, leaf = 0;
	int err = 0;

	for (i = 0; i < tr->tr_nmt && n < max; i++, n++)
		parts[n] = (struct kvdb_tree_part){
			.kind = i ? KVDB_PART_FROZEN : KVDB_PART_ACTIVE,
			.keys = kv_mt_keys(tr->tr_mt[i]),
			.bytes = atomic_load(&tr->tr_mt[i]->m_bytes),
		};
	for (i = 0; i < tr->tr_nrun && n < max && !err; i++, n++) {
		while (i >= tr->tr_nupper && (!leaf || !is_in(&tr->tr_leaf[leaf - 1], i)))
			leaf++;
		KV_ASSERT(leaf <= tr->tr_nleaf);
		err = run_part(tr->tr_run[i], &parts[n]);
		parts[n].leaf = leaf;
	}
	return err ? err : (int)(tr->tr_nmt + tr->tr_nrun);
}

static struct kvdb_kvs *hold_by_name(struct kvdb *db, const char *name)
{
	struct kvdb_kvs *kvs = NULL;
	uint32_t i;

	pthread_mutex_lock(&db->d_stores.sr_lock);
	for (i = 0; i < KVDB_KVS_MAX && !kvs; i++) {
		kvs = db->d_stores.sr_kvs[i];
		if (kvs && (kvs->k_dropped || strcmp(kvs->k_name, name)))
			kvs = NULL;
	}
	if (kvs)
		atomic_fetch_add(&kvs->k_holds, 1);
	pthread_mutex_unlock(&db->d_stores.sr_lock);
	return kvs;
}

int kvdb_tree(struct kvdb *db, const char *name, struct kvdb_tree_part *parts, unsigned max)
{
	struct kvdb_kvs *kvs = name ? hold_by_name(db, name) : NULL;
	struct kv_tree *tr;
	int n;

	if (!kvs)
		return kv_error(-ENOENT, "MP0965", "there is no store named %s", name ? name : "");
	tr = kv_tree_get(kvs);
	n = fill(tr, parts, max);
	kv_tree_put(db, tr);
	kv_kvs_release(kvs);
	return n < 0 ? kv_error(n, "MP0902", "no memory for the shape of %s", name) : n;
}
