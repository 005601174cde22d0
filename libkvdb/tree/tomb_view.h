/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What the deletes of many keys of all sources of a tree say together. */
#ifndef KV_TOMB_VIEW_H
#define KV_TOMB_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kv_ent;
struct kv_iter;
struct kv_mt;
struct kv_run;
struct kv_tindex;
struct kv_trows;
struct kv_tree;
struct kvdb_kvs;

/* Newest stamp <= @v of a tombstone that covers the key in any source. Inside kv_enter(). */
uint64_t kv_tombs_at(struct kv_tree *tr, const void *key, size_t klen, uint64_t v);
/*
 * R14: a tombstone that covers the key is newer than @view, or not stamped yet.
 * Inside kv_enter().
 */
bool kv_tombs_conflict(struct kvdb_kvs *kvs, const void *key, size_t klen, uint64_t view);
/*
 * H1: the active memtable has one more, perhaps its first. A tree that is being
 * published either saw it, or gets its mark here (tree.c).
 */
void kv_tree_mark_tombs(struct kvdb_kvs *kvs);

/* What covers: sources that the caller keeps alive. */
struct kv_cover {
	uint64_t co_v;		/* the view */
	unsigned co_n;
	bool co_has_mt;
	struct kv_cover_src {
		struct kv_mt *cs_mt;
		const struct kv_tindex *cs_ti;
	} co_src[];
};
/* At view @v. NULL and *err = 0: nothing covers anything. To be freed. */
struct kv_cover *kv_cover_new(struct kv_mt *const *mt, unsigned nmt, struct kv_run *const *run,
			      unsigned nrun, uint64_t v, int *err);
/* Is the entry hidden at the view? @co: struct kv_cover; for kv_merge_hide(). */
bool kv_cover_hides(void *co, const struct kv_ent *e);
/* An iterator without what is hidden. Takes over @it (also when this fails) and @co. */
int kv_cover_iter(struct kv_iter *it, struct kv_cover *co, struct kv_iter **out);

/* The tombstones of a run: 0 or -ENOMEM. */
int kv_trows_run(struct kv_trows *tv, const struct kv_run *r);

/*
 * kv_trows_prune - drop what hides nothing any more (R15)
 * @tr: NULL: they may hide something that is still to come, all stay (B1)
 * @but: runs whose covered versions are not there in what replaces them
 * @but_mt: likewise
 */
void kv_trows_prune(struct kv_trows *tv, struct kv_tree *tr, struct kv_run *const *but,
		    unsigned nbut, const struct kv_mt *but_mt);
/*
 * Keys of older runs that the tombstones of the @newer first ones among @run (newest first)
 * cover, about: garbage that a merge of them drops.
 */
uint64_t kv_tombs_garbage(struct kv_run *const *run, unsigned newer, unsigned n);

#endif
