/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* A thread's operation slot, and the record that it has in hand. */
#ifndef KV_SLOT_H
#define KV_SLOT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/assert.h"
#include "base/macros.h"

struct kv_frame;
struct kv_seg;

/*
 * States of a slot. OPEN is stored before the record's place is reserved, so
 * the thread that closes an epoch and then looks at the slots sees every record of it.
 * OPEN -> INSTALLING and OPEN -> SKIPPED are decided by compare-and-swap: the
 * writer and the flusher cannot both win (R1, R12).
 */
enum kv_slot_state {
	KV_SLOT_IDLE = 0,
	KV_SLOT_OPEN = 1,
	KV_SLOT_INSTALLING = 2,
	KV_SLOT_SKIPPED = 3,
};
#define KV_SLOT_MASK 3u

struct kv_slot {
	_Atomic(uint64_t) sl_state;	/* generation << 2 | enum kv_slot_state */
	/*
	 * Valid while INSTALLING; written before that state is entered, with release: a thread
	 * that reads one of a later record, then the state, sees that this is not the one it was
	 */
	_Atomic(struct kv_frame *) sl_frame;
	_Atomic(uint32_t) sl_index;	/* number of the record in its frame */
	_Atomic(uint32_t) sl_more;	/* records behind it that end as it does */
	_Atomic(uint32_t) sl_off;	/* of the record in its segment */
	_Atomic(uint8_t *) sl_buf;	/* the record's bytes */
	/*
	 * What gives the record its stamp: a version; KV_SLOT_TXN | address of a
	 * kv_tslot for a commit record; 0 for a record that has its stamp
	 */
	_Atomic(uintptr_t) sl_ver;
};
#define KV_SLOT_TXN 1u

/* A place in a log, taken by one atomic operation together with its epoch (R4). */
struct kv_resv {
	struct kv_frame *rs_frame;
	uint8_t *rs_buf;
	struct kv_seg *rs_seg;
	uint32_t rs_off;		/* of the record in the segment */
	uint64_t rs_epoch;
};

static inline void kv_slot_open(struct kv_slot *sl)
{
	uint64_t st = atomic_load_explicit(&sl->sl_state, memory_order_relaxed);

	KV_ASSERT_SLOW((st & KV_SLOT_MASK) != KV_SLOT_INSTALLING);
	/* sequentially consistent: seen by the thread that closes the epoch that we reserve in */
	atomic_store(&sl->sl_state, ((st >> 2) + 1) << 2 | KV_SLOT_OPEN);
}

static inline void kv_slot_idle(struct kv_slot *sl)
{
	uint64_t st = atomic_load_explicit(&sl->sl_state, memory_order_relaxed);

	atomic_store_explicit(&sl->sl_state, st & ~(uint64_t)KV_SLOT_MASK, memory_order_release);
}

/* OPEN, or withdrawn since: for assertions. */
static inline bool kv_slot_is_begun(const struct kv_slot *sl)
{
	uint64_t st = atomic_load_explicit(&sl->sl_state, memory_order_relaxed) & KV_SLOT_MASK;

	return st == KV_SLOT_OPEN || st == KV_SLOT_SKIPPED;
}

/* OPEN to INSTALLING; false: the record was withdrawn. What the slot names is complete. */
static inline bool kv_slot_install(struct kv_slot *sl)
{
	uint64_t st = atomic_load_explicit(&sl->sl_state, memory_order_relaxed);

	kv_fence();	/* what is linked, before it can be stamped: pairs with kv_view_open() */
	return (st & KV_SLOT_MASK) == KV_SLOT_OPEN &&
	       atomic_compare_exchange_strong(&sl->sl_state, &st,
					      (st & ~(uint64_t)KV_SLOT_MASK) | KV_SLOT_INSTALLING);
}

/* Where the record is, for the thread that has to finish it. */
static inline void kv_slot_place(struct kv_slot *sl, const struct kv_resv *rs)
{
	KV_ASSERT_SLOW((atomic_load(&sl->sl_state) & KV_SLOT_MASK) != KV_SLOT_INSTALLING);
	atomic_store_explicit(&sl->sl_frame, rs->rs_frame, memory_order_release);
	atomic_store_explicit(&sl->sl_off, rs->rs_off, memory_order_release);
	atomic_store_explicit(&sl->sl_buf, rs->rs_buf, memory_order_release);
	atomic_store_explicit(&sl->sl_more, 0, memory_order_release);
}

#endif
