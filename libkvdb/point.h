/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The point index: where lookups found values in the window (DESIGN.md, PI1 to PI4).
 */
#ifndef KV_POINT_H
#define KV_POINT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kvdb;
struct kv_ent;
struct kv_tree;

#define KV_POINT_WAYS	3u

/*
 * One cache line. Whoever changes it makes pb_change odd first: a reader believes
 * what it read if that was even before and is the same afterwards.
 */
struct kv_point_bucket {
	_Atomic(uint32_t) pb_change;
	_Atomic(uint32_t) pb_life[KV_POINT_WAYS];	/* kv_slab_at() */
	_Atomic(uint64_t) pb_key[KV_POINT_WAYS];	/* tr_gen << 24 | top of the key's hash */
	_Atomic(uint64_t) pb_place[KV_POINT_WAYS];	/* of the record, kv_slab_at() */
};

struct kv_points {
	_Atomic(struct kv_point_bucket *) po_bucket;	/* NULL until there is something to keep */
	uint64_t po_mask;
};

void kv_points_init(struct kvdb *db);
void kv_points_fini(struct kvdb *db);
uint64_t kv_points_bytes(struct kvdb *db);	/* that it takes */
/*
 * kv_point_get - what the runs of @tr say about a key, if it is remembered
 * True and *e, which is KV_ENT_NEAR. @tr has no range tombstones. Inside kv_enter().
 */
bool kv_point_get(struct kvdb *db, const struct kv_tree *tr, const void *key, size_t klen,
		  uint64_t hash, struct kv_ent *e);
/* Remembers what they said; likewise. */
void kv_point_add(struct kvdb *db, const struct kv_tree *tr, const void *key, size_t klen,
		  uint64_t hash, const struct kv_ent *e);

/* Prefetches what kv_point_get() touches first; false: nothing is remembered. */
static inline bool kv_point_prefetch(const struct kv_points *po, uint64_t hash)
{
	struct kv_point_bucket *pb = atomic_load_explicit(&po->po_bucket, memory_order_relaxed);

	if (pb)
		__builtin_prefetch(&pb[hash & po->po_mask]);
	return pb != NULL;
}

#endif
