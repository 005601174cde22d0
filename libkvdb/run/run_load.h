/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Fences, page CRCs and filter of a key block: an open leaves them on the device, and the first
 * use reads and checks all three (IDX-1).
 */
#ifndef KV_RUN_LOAD_H
#define KV_RUN_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"
#include "run/run.h"
#include "run/run_fence.h"

struct kv_near_own;

static inline bool kv_kblock_is_loaded(const struct kv_kblock *kb)
{
	return atomic_load_explicit(&kb->kb_page_crcs, memory_order_acquire) != NULL;
}

/*
 * kv_kblock_load - reads them, unless another thread was first
 * A thread whose reads wait reads them once, and others like it wait for it; inside kv_enter() too,
 * but better outside. An operation that runs again: -EINPROGRESS (cache/load.h), and then the
 * block is loaded, or it has the error. -EIO, -EUCLEAN, -ENOMEM: the next one tries again.
 */
int kv_kblock_load(struct kvdb *db, const struct kv_kblock *kb);

static inline int kv_kblock_need(struct kvdb *db, const struct kv_kblock *kb)
{
	return KV_LIKELY(kv_kblock_is_loaded(kb)) ? 0 : kv_kblock_load(db, kb);
}

/* CRCs of @n key pages from @first on, wherever they are; may read, as kv_kblock_load(). */
static inline int kv_kblock_crcs(struct kvdb *db, const struct kv_kblock *kb, uint32_t first,
				 unsigned n, uint32_t *crc)
{
	int rc = kv_kblock_need(db, kb);

	return rc ? rc : kv_fences_crcs(db, kb, first, n, crc);
}

/*
 * kv_kblock_index - checks them and makes them known
 * @index: what lies behind the key pages, up to the page behind the filter; @own: what is near of
 * the blocks before it, of a build; NULL: of none; @is_last: it is not read again, and a filter
 * that is damaged is none (FLT-1)
 */
int kv_kblock_index(struct kvdb *db, struct kv_kblock *kb, const uint8_t *index,
		    struct kv_near_own *own, bool is_last);

#endif
