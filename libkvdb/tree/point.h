/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The point index: where lookups found values in the window (README.md, PI1 to PI5).
 */
#ifndef KV_POINT_H
#define KV_POINT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvdb/kvdb.h>

#include "db/parts.h"

struct kv_ent;
struct kv_mt;
struct kv_tree;

#define KV_POINT_WAYS	3u

/*
 * One cache line. A thread that changes it makes pb_change odd first: a reader believes
 * what it read if that was even before and is the same afterwards.
 */
struct kv_point_bucket {
	_Atomic(uint32_t) pb_change;
	_Atomic(uint32_t) pb_life[KV_POINT_WAYS];	/* kv_slab_at() */
	_Atomic(uint64_t) pb_key[KV_POINT_WAYS];	/* tr_line << 24 | top of the key's hash */
	_Atomic(uint64_t) pb_place[KV_POINT_WAYS];	/* of the record, kv_slab_at() */
};

/* Of the keys of a flush, what they have become. */
struct kv_point_news {
	struct kv_point_new {
		uint64_t pn_hash, pn_place;
		uint32_t pn_life;
	} *pn_new;		/* NULL: the index is not told, and what it knew is of no use */
	uint64_t pn_n, pn_max;
};

void kv_points_init(struct kvdb *db);
void kv_points_fini(struct kvdb *db);
uint64_t kv_points_bytes(struct kvdb *db);	/* that it takes */
/*
 * kv_point_seek - the record in which the runs of @tr may have a key, prefetched; or NULL
 * @tr has no range tombstones; kv_point_prefetch() was true. Inside kv_enter(), and
 * so is what is done with it: kv_point_ent() is true if it is that key's, and *e is
 * KV_ENT_INMEM then.
 */
const uint8_t *kv_point_seek(struct kvdb *db, const struct kv_tree *tr, uint64_t hash);
bool kv_point_ent(struct kvdb *db, const uint8_t *rec, const void *key, size_t klen,
		  struct kv_ent *e);
/* Remembers what they said; likewise. */
void kv_point_add(struct kvdb *db, const struct kv_tree *tr, const void *key, size_t klen,
		  uint64_t hash, const struct kv_ent *e);

/* Trees of number @gen may ask and add from now on, others of the store in @slot may not. */
static inline void kv_points_advance(struct kv_points *po, uint32_t slot, uint64_t gen)
{
	atomic_store(&po->po_turn[slot], gen);
}

/*
 * A flush of @mt: begin, add every entry of its run, tell, publish the tree, end.
 * kv_point_news_publish() returns kv_edit.ed_gen; k_edit_lock is held until that is shown.
 */
void kv_point_news_begin(struct kvdb *db, const struct kv_mt *mt, struct kv_point_news *pn);
void kv_point_news_add(struct kvdb *db, struct kv_point_news *pn, const struct kv_ent *e);
uint64_t kv_point_news_publish(struct kvdb_kvs *kvs, const struct kv_point_news *pn);
void kv_point_news_end(struct kv_point_news *pn);

/* Prefetches what kv_point_seek() touches first; false: nothing is remembered. */
static inline bool kv_point_prefetch(const struct kv_points *po, uint64_t hash)
{
	struct kv_point_bucket *pb = atomic_load_explicit(&po->po_bucket, memory_order_relaxed);

	if (pb)
		__builtin_prefetch(&pb[hash & po->po_mask]);
	return pb != NULL;
}

#endif
