/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A filter that is not in memory is asked for one page of 4096 bytes, that on which the line of
 * the key lies, through the page pool (run_near.c decides which are in memory).
 *
 * Invariant FLT-1: README.md.
 */
#include <errno.h>

#include "db/db.h"
#include "run/filter.h"
#include "run/run.h"
#include "run/run_fence.h"
#include "run/run_filter.h"
#include "run/run_omf.h"

#define AGAIN_NS	1000000000ull	/* what could not be read is left alone for that time */

int kv_filter_far(struct kvdb *db, struct kv_kblock *kb, uint64_t hash, const uint8_t **block)
{
	uint64_t off, again;
	const uint8_t *page, *near;
	int rc;

	*block = NULL;
	if (!kb->kb_fblocks)
		return 0;
	off = kb->kb_filter_off + (((hash >> 32) * kb->kb_fblocks) >> 32) * KV_FILTER_BLOCK;
	near = atomic_load_explicit(&kb->kb_filter, memory_order_acquire);
	if (near)
		*block = kv_filter_block(near, kb->kb_fblocks, hash);
	if (near || kb->kb_no_filter)
		return 0;
	again = atomic_load_explicit(&kb->kb_filter_again, memory_order_relaxed);
	if (again && kv_now(db) < again)
		return 0;
	rc = kv_index_page(db, kb, off / KV_PAGE, &page);
	if (rc == -EINPROGRESS)
		return rc;
	if (rc) {	/* FLT-1 */
		if (rc != -ENOMEM)
			atomic_store_explicit(&kb->kb_filter_again, kv_now(db) + AGAIN_NS,
					      memory_order_relaxed);
		return 0;
	}
	*block = page + off % KV_PAGE;
	return 0;
}
