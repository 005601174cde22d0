/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The table of log segments and their stock, for seg.c and meta/upkeep.c. */
#ifndef KV_SEGS_H
#define KV_SEGS_H

#include <pthread.h>

#include "seg/seg.h"

#define KV_SEGS_BATCH	32u	/* segments per allocation */

struct kv_segs {
	pthread_mutex_t sg_lock;
	pthread_mutex_t sg_fill_lock;	/* one filler of the stock at a time; outside sg_lock */
	pthread_mutex_t sg_step_lock;	/* one upkeep step at a time; outside sg_lock */
	struct kv_seg *sg_list;
	struct kv_seg *sg_todo;		/* those that upkeep looks at; note() */
	uint64_t sg_staged, sg_in_use;	/* bytes; note() */
	struct kv_seg *sg_full, **sg_full_tail;	/* in order of closing, each with a reference */
	struct kv_seg **sg_hash;	/* sg_nhash chains; bucket() */
	size_t sg_nhash, sg_hash_cap;	/* the latter a power of two, at most twice as many */
	struct kv_seg *sg_stock[KV_SEGS_BATCH];	/* with the table's reference only */
	_Atomic(uint32_t) sg_nstock;	/* changes under sg_lock */
	_Atomic(uint32_t) sg_full_stock; /* as many are wanted in it */
	uint32_t sg_count;
	_Atomic(uint64_t) sg_retry_ns;	/* background refill failed: not before this time */
};

/* sg_lock held. */
void kv_segs_set_state(struct kv_segs *ss, struct kv_seg *s, enum kv_seg_state state);
void kv_segs_table_add(struct kv_segs *ss, struct kv_seg *s);
void kv_segs_table_del(struct kv_segs *ss, struct kv_seg *s);
/* Segments of the budget's size that make up @bytes, at least one. */
unsigned kv_segs_of(struct kvdb *db, uint32_t bytes);
/* Segments that are allocated at once. */
unsigned kv_segs_batch(struct kvdb *db);

static inline unsigned min_u(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

#endif
