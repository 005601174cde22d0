/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What every writer of a log record says of it: plain writes (op/kvs.c), transactions
 * (txn/txn_commit.c).
 */
#ifndef KV_RECORD_H
#define KV_RECORD_H

#include "db/slot.h"
#include "log/flush.h"

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
	if (KV_UNLIKELY(atomic_load(&db->d_epochs.ep_closed) + 1 < e))
		kv_closed_wait(db, e);
}

#endif
