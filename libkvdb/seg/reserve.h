/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Space of the pool that is free, and what of it is kept (R19). */
#ifndef KV_RESERVE_H
#define KV_RESERVE_H

#include <stdbool.h>
#include <stdint.h>

#include <kvdb/kvdb.h>

struct kvdb;

/* Bytes without the stock of segments, which only logs and loads take from. */
struct kv_space_left {
	uint64_t sl_free[MPOOL_MCLASSES];
	uint64_t sl_spare[MPOOL_MCLASSES];	/* less R19's reserve, for all that free nothing */
	uint64_t sl_all_free, sl_all_spare;
	uint64_t sl_all;			/* of the pool, used or not */
};

void kv_space_left(struct kvdb *db, struct kv_space_left *out);
/* Where @bytes that may lie anywhere go: to @mclass, unless only the other class has spare room. */
uint8_t kv_space_class(struct kvdb *db, uint8_t mclass, uint64_t bytes);
uint64_t kv_segs_free_bytes(struct kvdb *db);	/* sl_all_free, */
uint64_t kv_segs_spare_bytes(struct kvdb *db);	/* sl_all_spare */
uint64_t kv_segs_class_bytes(struct kvdb *db);	/* of the largest class, used or not */
/* Ordinary writes are about to find the pool full. */
bool kv_segs_are_short(struct kvdb *db);

#endif
