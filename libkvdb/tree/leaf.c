/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Leaves: their bounds, the way from a key to its leaf, and the walk through
 * all of them. Leaves are made and ended in merge_job.c; the list: tree.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tree/leaf.h"
#include "base/assert.h"
#include "base/key.h"
#include "mem/iter.h"
#include "run/run.h"
#include "tree/merge_iter.h"

struct kv_leaf *kv_leaf_new(const void *key, size_t klen)
{
	struct kv_leaf *lf = calloc(1, sizeof(*lf) + klen);

	if (!lf)
		return NULL;
	atomic_store(&lf->lf_refs, 1);
	lf->lf_klen = (uint16_t)klen;
	if (klen)
		memcpy(lf->lf_key, key, klen);
	return lf;
}

struct kv_leaf *kv_leaf_get(struct kv_leaf *lf)
{
	KV_ASSERT(atomic_load(&lf->lf_refs));
	atomic_fetch_add(&lf->lf_refs, 1);
	return lf;
}

void kv_leaf_put(struct kv_leaf *lf)
{
	KV_ASSERT(!lf || atomic_load(&lf->lf_refs));
	if (lf && atomic_fetch_sub(&lf->lf_refs, 1) == 1)
		free(lf);
}

uint32_t kv_tree_flushed(const struct kv_tree *tr)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < tr->tr_nupper; i++)
		n += tr->tr_run[i]->rn_desc.rd_newest_epoch != KV_BULK_EPOCH;
	return n;
}

uint32_t kv_leaf_of(const struct kv_tree *tr, const void *key, size_t klen)
{
	uint32_t lo = 0, hi = tr->tr_nleaf;

	while (hi - lo > 1) {
		uint32_t mid = (lo + hi) / 2;
		const struct kv_leaf *lf = tr->tr_leaf[mid].lr_leaf;

		if (kv_kcmp(lf->lf_key, lf->lf_klen, key, klen) <= 0)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

/* ---- all leaves as one source --------------------------------------------------------- */

/* One leaf after the other: of each a merge of its runs. */
struct leaf_iter {
	struct kv_iter li_it;
	struct kvdb *li_db;
	struct kv_tree *li_tree;
	bool li_reverse, li_bulk;
	uint32_t li_at;
	struct kv_iter *li_cur;	/* of leaf li_at; NULL: not positioned */
};

static int runs_open(struct kvdb *db, struct kv_run *const *run, uint32_t n, bool reverse,
		     bool bulk, struct kv_iter **src)
{
	int rc = 0;

	for (uint32_t i = 0; i < n; i++) {
		rc = bulk ? kv_run_iter_bulk(db, run[i], &src[i]) :
			    kv_run_iter(db, run[i], reverse, &src[i]);
		if (rc) {
			kv_iters_close(src, i);
			break;
		}
	}
	return rc;
}

static void leaf_leave(struct leaf_iter *li)
{
	if (li->li_cur)
		li->li_cur->it_ops->close(li->li_cur);
	li->li_cur = NULL;
}

static int leaf_enter(struct leaf_iter *li, uint32_t at, const void *key, size_t klen)
{
	const struct kv_leaf_runs *lr = &li->li_tree->tr_leaf[at];
	struct kv_iter *few[KV_LEAF_RUNS_MAX], **src = few;
	int rc = 0;

	KV_ASSERT(at < li->li_tree->tr_nleaf);
	leaf_leave(li);
	li->li_at = at;
	if (lr->lr_n > KV_LEAF_RUNS_MAX)
		src = malloc(lr->lr_n * sizeof(*src));
	if (!src)
		return -ENOMEM;
	rc = runs_open(li->li_db, li->li_tree->tr_run + lr->lr_first, lr->lr_n, li->li_reverse,
		       li->li_bulk, src);
	/* deletions hide nothing below, but the merge with upper runs decides that */
	if (!rc) {
		rc = kv_merge_iter(src, lr->lr_n, li->li_reverse, true, &li->li_cur);
		if (rc)
			kv_iters_close(src, lr->lr_n);
	}
	if (src != few)
		free(src);
	if (!rc)
		rc = li->li_cur->it_ops->seek(li->li_cur, key, klen);
	return rc;
}

static int leaf_seek(struct kv_iter *it, const void *key, size_t klen)
{
	struct leaf_iter *li = (struct leaf_iter *)it;
	uint32_t at = li->li_reverse ? li->li_tree->tr_nleaf - 1 : 0;

	if (klen)
		at = kv_leaf_of(li->li_tree, key, klen);
	return leaf_enter(li, at, key, klen);
}

static int leaf_next(struct kv_iter *it, struct kv_ent *e)
{
	struct leaf_iter *li = (struct leaf_iter *)it;
	int rc = li->li_cur ? 0 : leaf_seek(it, NULL, 0);

	while (!rc) {
		rc = li->li_cur->it_ops->next(li->li_cur, e);
		if (rc != -ENOENT)
			break;
		if (li->li_reverse ? !li->li_at : li->li_at + 1 == li->li_tree->tr_nleaf)
			break;
		rc = leaf_enter(li, li->li_reverse ? li->li_at - 1 : li->li_at + 1, NULL, 0);
	}
	return rc;
}

static void leaf_turn(struct kv_iter *it, bool reverse)
{
	struct leaf_iter *li = (struct leaf_iter *)it;

	leaf_leave(li);
	li->li_reverse = reverse;
}

static void leaf_park(struct kv_iter *it)
{
	struct leaf_iter *li = (struct leaf_iter *)it;

	if (li->li_cur)
		kv_iter_park(li->li_cur);
}

static void leaf_close(struct kv_iter *it)
{
	leaf_leave((struct leaf_iter *)it);
	free(it);
}

static const struct kv_iter_ops leaf_ops = {
	.seek = leaf_seek,
	.next = leaf_next,
	.turn = leaf_turn,
	.park = leaf_park,
	.close = leaf_close,
};

int kv_tree_sources(struct kvdb *db, struct kv_tree *tr, bool reverse, bool bulk,
		    struct kv_iter **src)
{
	struct leaf_iter *li = NULL;
	uint32_t n = tr->tr_nupper;
	int rc;

	if (tr->tr_nleaf) {
		li = calloc(1, sizeof(*li));
		if (!li)
			return -ENOMEM;
		*li = (struct leaf_iter){ .li_it = { &leaf_ops }, .li_db = db, .li_tree = tr,
					  .li_reverse = reverse, .li_bulk = bulk };
	}
	rc = runs_open(db, tr->tr_run, n, reverse, bulk, src);
	if (rc) {
		free(li);
		return rc;
	}
	if (li)
		src[n++] = &li->li_it;
	return (int)n;
}
