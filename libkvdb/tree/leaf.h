/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Leaves: parts of a store by ranges of keys, each with runs of its own, below
 * the upper runs that cover all keys. compact/LEAVES.md.
 */
#ifndef KV_LEAF_H
#define KV_LEAF_H

#include <stddef.h>

#include "tree/tree.h"

struct kv_iter;

#define KV_LEAVES_MAX		2048u	/* of a store: what one record and one spill can take */
#define KV_LEAF_RUNS_MAX	16u	/* no spill while a leaf has as many */
#define KV_SPILL_RUNS		4u	/* upper runs that make a spill due */
#define KV_UPPER_RUNS_SLOW	24u	/* writers are slowed from this number on */
#define KV_UPPER_RUNS_MAX	48u	/* no flush while there are as many (LF9), */
#define KV_UPPER_RUNS_MOST	96u	/* or as many, where writers would stop */

/* Immutable; shared by the trees that list it. */
struct kv_leaf {
	_Atomic(uint32_t) lf_refs;
	uint16_t lf_klen;
	uint64_t lf_id;		/* never reused within the database */
	uint8_t lf_key[];	/* where it begins; it ends where the next one begins */
};

/* NULL: no memory. lf_id is the caller's to set before it is shared. */
struct kv_leaf *kv_leaf_new(const void *key, size_t klen);
struct kv_leaf *kv_leaf_get(struct kv_leaf *lf);
void kv_leaf_put(struct kv_leaf *lf);

/* The leaf of a tree with leaves that holds the key. */
uint32_t kv_leaf_of(const struct kv_tree *tr, const void *key, size_t klen);
/*
 * kv_tree_sources - iterators over all runs of a tree, newest first
 * @src: room for tr_nupper + 1: the runs of all leaves are one source. The caller keeps the
 * tree. @bulk: as kv_run_iter_bulk(). Returns how many, or -errno and none.
 */
int kv_tree_sources(struct kvdb *db, struct kv_tree *tr, bool reverse, bool bulk,
		    struct kv_iter **src);

/* Upper runs that flushes made. A key is in one run of a bulk load at most: those do not count. */
uint32_t kv_tree_flushed(const struct kv_tree *tr);

/* The runs of a tree that may hold one key, newest first. */
struct kv_path {
	uint32_t pa_n;
	uint32_t pa_upper;	/* number of upper runs, */
	uint32_t pa_leaf;	/* the others lie from here on in tr_run */
};

static inline struct kv_path kv_path(const struct kv_tree *tr, const void *key, size_t klen)
{
	struct kv_path pa = { .pa_n = tr->tr_nupper, .pa_upper = tr->tr_nupper };

	if (tr->tr_nleaf) {
		const struct kv_leaf_runs *lr = &tr->tr_leaf[kv_leaf_of(tr, key, klen)];

		pa.pa_leaf = lr->lr_first;
		pa.pa_n += lr->lr_n;
	}
	return pa;
}

static inline struct kv_run *kv_path_run(const struct kv_tree *tr, const struct kv_path *pa,
					 uint32_t i)
{
	return tr->tr_run[i < pa->pa_upper ? i : pa->pa_leaf + (i - pa->pa_upper)];
}

#endif
