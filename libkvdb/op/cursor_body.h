/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What a cursor consists of: for what opens, renews and closes it (cursor_open.c), and for what
 * walks (cursor.c).
 */
#ifndef KV_CURSOR_BODY_H
#define KV_CURSOR_BODY_H

#include <kvdb/kvdb.h>

#include "base/macros.h"
#include "db/db.h"
#include "db/thread.h"
#include "tree/hold.h"
#include "read/ahead.h"
#include "op/cursor.h"

#define BATCH_MAX	KV_AHEAD_MAX
#define BATCH_BYTES	12288u	/* of keys and inline values; more than two of the largest */
#define VALUE_MIN	4096u

/* Where the cursor stands, in key order whatever its direction. */
enum place {
	AT_BOTTOM,	/* below every key of the range */
	BELOW_KEY,
	ON_KEY,
	ABOVE_KEY,
	AT_TOP
};

/* Entries taken from the merge and not yet shown. Their bytes are copies. */
struct batch {
	unsigned b_n, b_i;	/* shown: [0, b_i) */
	unsigned b_want;	/* entries of the next one */
	unsigned b_cold;		/* whose values are not in memory */
	uint32_t b_used;
	int b_end;		/* why it ends: 0 = it was full; -ENOENT; an error */
	struct kv_ahead b_ahead;	/* values of b_ent that were read from devices */
	uint8_t *b_val;		/* value shown last; b_val_size */
	size_t b_val_size;
	uint64_t b_steps;	/* of the merge, when it last came to an entry that counts */
	bool b_expired;		/* it came by values that have expired since then */
	bool b_is_fresh;	/* from b_lo on it has come to none since it sought that */
	uint16_t b_lo_len;
	uint8_t b_lo[KVDB_KEY_MAX];
	struct kv_ent b_ent[BATCH_MAX];
	uint8_t b_key[KVDB_KEY_MAX];	/* of the place */
	uint8_t b_bytes[BATCH_BYTES];
};

struct kvdb_cursor {
	struct kv_hold c_hold;	/* of the tree and the sources */
	struct kvdb_kvs *c_kvs;
	struct kv_tree *c_tree;	/* NULL: the store is younger than the transaction */
	struct kvdb_txn *c_txn;	/* whose view and writes it shows, or NULL */
	uint64_t c_seq;
	uint64_t c_ent_seq;	/* stamp of the entry returned last */
	uint64_t c_now;		/* engine ms of its birth, or 0: what expires later is there */
	struct kv_hidden c_hidden;	/* by deletes of many keys */
	uint32_t c_flags;
	uint8_t c_place;	/* enum place */
	uint8_t c_left_for;	/* the place that a step left for the end that it found */
	bool c_up;		/* direction of c_it */
	bool c_ready;		/* c_it and the batch go on from the place in direction c_up */
	bool c_skip;		/* the first entry is passed over when it has the place's key */
	uint16_t c_klen;	/* of the place's key */
	uint16_t c_lo_len;	/* range [lo, hi); 0: open */
	uint16_t c_hi_len;
	const uint8_t *c_key;	/* in the batch */
	uint64_t c_limit, c_left;
	const _Atomic(uint64_t) *c_changes;
	uint64_t c_seen;	/* *c_changes: so far they were taken in, or are no matter */
	struct kv_iter *c_it;	/* NULL until used */
	struct batch *c_batch;	/* likewise */
	struct kv_iter **c_extra;
	unsigned c_nextra;
	unsigned c_nown;	/* number of sources that are not the tree's */
	uint8_t *c_range;	/* lo, then hi; in c_room unless they grew beyond it */
	uint32_t c_range_size;
	/* iterators: KV_WALK_ROOM; the range; c_extra */
	uint8_t c_room[] __attribute__((aligned(8)));
};

static inline const uint8_t *range_lo(const struct kvdb_cursor *c)
{
	return c->c_range;
}

static inline const uint8_t *range_hi(const struct kvdb_cursor *c)
{
	return c->c_range + c->c_lo_len;
}

/*
 * Memory of its own, besides what it shows and reads ahead. A statistic: a thread without memory
 * for its state counts nothing.
 */
static inline void count_bytes(struct kv_tctx *tc, uint64_t by)
{
	if (tc)
		kv_count(&tc->tc_cursor_bytes, by);
}

/* The store's name, and why what the cursor showed has gone. -ESTALE */
int kv_cursor_error_gone(const struct kvdb_cursor *c);
/* Lets go of what it has read. @tc: of the thread, or NULL. */
void kv_cursor_batch_close(struct kvdb_cursor *c, struct kv_tctx *tc);

/* Of each call: until cursor_end() the keeper does not take what it shows. */
static inline int cursor_begin(struct kvdb_cursor *c)
{
	if (KV_LIKELY(kv_hold_begin(&c->c_hold)))
		return 0;
	return kv_hold_settle(&c->c_hold) ? 0 : kv_cursor_error_gone(c);
}

static inline int cursor_end(struct kvdb_cursor *c, int rc)
{
	kv_hold_end(c->c_kvs->k_db, &c->c_hold);
	return rc;
}

#endif
