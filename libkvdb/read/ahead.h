/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Values that a cursor reads ahead into memory of its own. It is outside of
 * kv_enter() while it waits for them, so pages that others gave up come free
 * meanwhile, and what it found there it needs no page of the pool for.
 */
#ifndef KV_AHEAD_H
#define KV_AHEAD_H

#include "seg/value.h"

/* Consecutive pages of one object, read with one request. */
struct kv_ahead_run {
	uint64_t ar_obj, ar_first;
	unsigned ar_n;
	uint32_t ar_at;		/* in ah_mem */
};

struct kv_ahead {
	uint8_t *ah_mem;		/* NULL until used; within ah_heap */
	void *ah_heap;
	unsigned ah_nrun;		/* of the batch before, while a new one is read */
	struct kv_ahead_run ah_run[KV_AHEAD_MAX];
	uint32_t ah_at[KV_AHEAD_MAX];	/* of each entry's stored bytes; KV_AHEAD_NONE */
};

#define KV_AHEAD_NONE	UINT32_MAX

/* For a new cursor. */
void kv_ahead_init(struct kv_ahead *ah);
void kv_ahead_close(struct kvdb *db, struct kv_ahead *ah);
/*
 * kv_ahead_read - reads what is missing of the values of a scan's next @n entries
 * A hint, with one submission: what it does not bring is read when it is shown. What the
 * scan pays is noted (heat.h). Outside kv_enter(); the caller holds what the entries
 * refer to.
 */
void kv_ahead_read(struct kvdb *db, struct kv_ahead *ah, const struct kv_ent *e, unsigned n);
/* None of the entries has a value here. */
void kv_ahead_none(struct kv_ahead *ah, unsigned n);
/* The value of entry @i of them, checked; NULL: ask kv_value_read(). */
const uint8_t *kv_ahead_value(const struct kv_ahead *ah, const struct kv_ent *e, unsigned i);

#endif
