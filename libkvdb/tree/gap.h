/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Gaps: ranges of keys in which cursors found nothing; HOLDS.md, GAP-1 to GAP-4. */
#ifndef KV_GAP_H
#define KV_GAP_H

#include "base/macros.h"
#include "db/kvs.h"

#define KV_GAP_MIN	32u	/* entries passed over, from which on a walk is worth remembering */

/* What a walk upwards came by without an entry to show. */
struct kv_gap_walk {
	const uint8_t *gw_lo;	/* where it began, */
	size_t gw_lo_len;
	bool gw_behind;		/* or after that key */
	const uint8_t *gw_hi;	/* all below were passed over; NULL: to the end of the store */
	size_t gw_hi_len;
	const uint8_t *gw_to;	/* end of the range that its owner looks at; length 0: none */
	size_t gw_to_len;
	uint64_t gw_seq;	/* its view */
	uint64_t gw_now;	/* what expired by then was passed over */
};

void kv_gaps_init(struct kv_gaps *gs);
void kv_gaps_fini(struct kv_gaps *gs);	/* no thread reads any more */
/*
 * kv_gaps_learn - remembers a walk
 * Of the whole tree of the store, with no other sources. What it cannot remember
 * at once it leaves: a later walk is as good. Not inside kv_enter().
 */
void kv_gaps_learn(struct kvdb_kvs *kvs, const struct kv_gap_walk *w);
/*
 * kv_gaps_skip - the key from which on there may be something to show
 * Nothing is visible in [@key, @out) at view @seq, which is older than the call, and engine time
 * @now. @out has room for KVDB_KEY_MAX bytes. Returns its length; 0: no gap is known there.
 */
size_t kv_gaps_skip(struct kvdb_kvs *kvs, const uint8_t *key, size_t klen, uint64_t seq,
		    uint64_t now, uint8_t *out);
/* A bulk load is about to be published, and was: nothing is learned in between (GAP-4). */
void kv_gaps_close(struct kv_gaps *gs);
void kv_gaps_reopen(struct kv_gaps *gs);

static inline bool kv_gaps_any(struct kvdb_kvs *kvs)
{
	return atomic_load_explicit(&kvs->k_gaps.gs_dir, memory_order_relaxed) != NULL;
}

void kv_gaps_cut_in(struct kvdb_kvs *kvs, const void *key, size_t klen);

/* GAP-2: a version of the key is about to be installed, not a tombstone. Inside kv_enter(). */
static inline void kv_gaps_cut(struct kvdb_kvs *kvs, const void *key, size_t klen)
{
	if (KV_UNLIKELY(atomic_load_explicit(&kvs->k_gaps.gs_dir, memory_order_acquire) != NULL))
		kv_gaps_cut_in(kvs, key, klen);
}

#endif
