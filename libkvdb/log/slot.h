/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Steps that every writer of a log record takes: plain writes (kvs.c), values
 * of transactions and their commit records (txn_log.c, txn_commit.c).
 */
#ifndef KV_SLOT_H
#define KV_SLOT_H

#include "log/flush.h"

static inline void kv_slot_open(struct kv_slot *sl)
{
	uint64_t st = atomic_load_explicit(&sl->sl_state, memory_order_relaxed);

	/* sequentially consistent: seen by whoever closes the epoch that we reserve in */
	atomic_store(&sl->sl_state, ((st >> 2) + 1) << 2 | KV_SLOT_OPEN);
}

static inline void kv_slot_idle(struct kv_slot *sl)
{
	uint64_t st = atomic_load_explicit(&sl->sl_state, memory_order_relaxed);

	atomic_store_explicit(&sl->sl_state, st & ~(uint64_t)KV_SLOT_MASK, memory_order_release);
}

/* OPEN to INSTALLING; false: the record was withdrawn. What the slot names is complete. */
static inline bool kv_slot_install(struct kv_slot *sl)
{
	uint64_t st = atomic_load_explicit(&sl->sl_state, memory_order_relaxed);

	kv_fence();	/* what is linked, before anybody can stamp it: pairs with kv_view_open() */
	return (st & KV_SLOT_MASK) == KV_SLOT_OPEN &&
	       atomic_compare_exchange_strong(&sl->sl_state, &st,
					      (st & ~(uint64_t)KV_SLOT_MASK) | KV_SLOT_INSTALLING);
}

/* Where the record is, for whoever has to finish it. */
static inline void kv_slot_place(struct kv_slot *sl, const struct kv_resv *rs)
{
	atomic_store_explicit(&sl->sl_frame, rs->rs_frame, memory_order_release);
	atomic_store_explicit(&sl->sl_off, rs->rs_off, memory_order_release);
	atomic_store_explicit(&sl->sl_buf, rs->rs_buf, memory_order_release);
}

/* The record's bytes are there, but for stamp and CRC. */
static inline void kv_record_encoded(const struct kv_resv *rs, uint32_t index, uint32_t size)
{
	uint32_t start = rs->rs_off - rs->rs_frame->fr_off;

	atomic_store_explicit(&rs->rs_frame->fr_rec[index], KV_REC_AT(start, start + size),
			      memory_order_release);
}

/* The record needs no more attention; its bytes are final. */
static inline void kv_record_done(const struct kv_resv *rs, uint32_t index, uint32_t size)
{
	struct kv_frame *f = rs->rs_frame;
	uint32_t start = rs->rs_off - f->fr_off;

	atomic_store_explicit(&f->fr_rec[index], KV_REC_AT(start, start + size) | KV_REC_DONE,
			      memory_order_release);
	atomic_fetch_add_explicit(&f->fr_done, size, memory_order_release);
}

/* R4: nothing of epoch e is installed before e - 1 is closed. */
static inline void kv_wait_closed(struct kvdb *db, uint64_t e)
{
	if (KV_UNLIKELY(atomic_load(&db->d_closed) + 1 < e))
		kv_closed_wait(db, e);
}

#endif
