/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What an open does not read of a key block: fences, page CRCs and filter, 1.4 bytes a key, 60 KiB
 * of a block of 1 MiB. The footer, which an open reads, has the CRC of each. The first use of the
 * block reads them in one piece, and keeps the CRCs of the pages that they lie on, a top level of
 * the fences, and of fences and filter what there is room for (run_near.c).
 *
 * Several operations that run again (cache/load.h) may read those of one block at the same time,
 * for none of them can be made to wait for another; the first makes them known, the others drop
 * theirs.
 *
 * Invariant IDX-1: README.md. Lock: ne_lock, in run_near.c.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/guard.h"
#include "db/db.h"
#include "cache/pages.h"
#include "run/filter.h"
#include "run/run_fence.h"
#include "run/run_load.h"
#include "run/run_near.h"
#include "run/run_omf.h"

static uint32_t base_of(const struct kv_kblock *kb)
{
	return kb->kb_npages * KV_PAGE;
}

static struct kv_fences fences_of(const struct kv_kblock *kb, const uint8_t *index)
{
	const uint8_t *ends = index + (kb->kb_fence_off - base_of(kb));

	return (struct kv_fences){ .fe_ends = ends, .fe_seps = ends + 4ull * kb->kb_npages,
				   .fe_crcs = index + (kb->kb_crc_off - base_of(kb)) };
}

static bool area_is_good(const struct kv_kblock *kb, const uint8_t *index, enum kv_karea area)
{
	uint32_t off = area == KV_AREA_FENCE ? kb->kb_fence_off :
		       area == KV_AREA_PAGECRC ? kb->kb_crc_off : kb->kb_filter_off;
	uint32_t len = area == KV_AREA_FENCE ? 4 * kb->kb_npages + kb->kb_sep_len :
		       area == KV_AREA_PAGECRC ? 4 * kb->kb_npages :
		       kb->kb_fblocks * KV_FILTER_BLOCK;

	return CHECK_CRC(mpool_crc32c(0, index + (off - base_of(kb)), len) ==
			 kb->kb_area_crc[area]);
}

static int areas_check(struct kv_kblock *kb, const uint8_t *index, bool is_last)
{
	if (!area_is_good(kb, index, KV_AREA_FENCE))
		return kv_run_damaged(kb->kb_id, kb->kb_fence_off, "CRC of the fences");
	if (!area_is_good(kb, index, KV_AREA_PAGECRC))
		return kv_run_damaged(kb->kb_id, kb->kb_crc_off, "CRC of the page CRCs");
	kb->kb_no_filter = !area_is_good(kb, index, KV_AREA_FILTER);
	return !kb->kb_no_filter || is_last ? 0 :
	       kv_run_damaged(kb->kb_id, kb->kb_filter_off, "CRC of the filter");
}

/* What stays: into @kb, which no reader knows. */
static int stay_make(struct kv_kblock *kb, const struct kv_fences *fe, const uint8_t *index)
{
	uint32_t pages = kb->kb_pages_end - kb->kb_npages;
	uint32_t *crcs;
	int rc = kv_fences_check(kb, fe);

	if (!rc)
		rc = kv_fences_top(kb, fe);
	if (rc)
		return rc;
	crcs = malloc((pages ? pages : 1) * sizeof(*crcs));
	if (!crcs)
		return -ENOMEM;
	for (uint32_t i = 0; i < pages; i++)
		crcs[i] = mpool_crc32c(0, index + i * KV_PAGE, KV_PAGE);
	atomic_store(&kb->kb_page_crcs, crcs);
	atomic_store(&kb->kb_mem, pages * sizeof(*crcs) + kb->kb_plen +
				  (kb->kb_ntop + 1ull) * sizeof(*kb->kb_top));
	return 0;
}

static void stay_free(struct kv_kblock *kb)
{
	free(kb->kb_prefix);
	free(kb->kb_top);
	free(atomic_load(&kb->kb_page_crcs));
}

int kv_kblock_index(struct kvdb *db, struct kv_kblock *kb, const uint8_t *index,
		    struct kv_near_own *own, bool is_last)
{
	struct kv_near_own none = { 0 };
	uint8_t *mem[KV_PIECES] = { NULL };
	struct kv_kblock made = {
		.kb_obj = kb->kb_obj, .kb_id = kb->kb_id, .kb_npages = kb->kb_npages,
		.kb_fblocks = kb->kb_fblocks, .kb_sep_len = kb->kb_sep_len,
		.kb_fence_off = kb->kb_fence_off, .kb_crc_off = kb->kb_crc_off,
		.kb_filter_off = kb->kb_filter_off, .kb_pages_end = kb->kb_pages_end,
	};
	struct kv_fences fe = fences_of(kb, index);
	bool has[KV_PIECES];
	int rc;

	memcpy(made.kb_area_crc, kb->kb_area_crc, sizeof(made.kb_area_crc));
	rc = areas_check(&made, index, is_last);
	if (!rc)
		rc = stay_make(&made, &fe, index);
	if (rc) {
		stay_free(&made);
		return rc;
	}
	own = own ? own : &none;
	has[KV_PIECE_FENCES] = kv_near_choose(db, own, KV_PIECE_FENCES, kv_fences_bytes(kb));
	has[KV_PIECE_FILTER] = kv_near_choose(db, own, KV_PIECE_FILTER,
					      kb->kb_fblocks * (uint64_t)KV_FILTER_BLOCK) &&
			       !made.kb_no_filter;
	kv_near_keep(&made, &fe, index, has, mem);
	if (kv_near_publish(db, kb, &made, mem))
		return 0;
	stay_free(&made);
	for (enum kv_piece i = 0; i < KV_PIECES; i++)
		free(mem[i]);
	return 0;
}

static int load(struct kvdb *db, struct kv_kblock *kb)
{
	uint32_t n = kb->kb_pages_end - kb->kb_npages;
	uint8_t *index = aligned_alloc(KV_PAGE, (size_t)n * KV_PAGE);
	int rc = index ? -EUCLEAN : -ENOMEM;
	unsigned nth;

	for (nth = 0; nth < 2 && rc == -EUCLEAN; nth++) {
		rc = kv_area_read(db, kb->kb_obj, kb->kb_npages, n, nth, index);
		if (!rc)
			rc = kv_kblock_index(db, kb, index, NULL, nth);
	}
	if (rc == -ENOMEM)
		kv_error(rc, "MP0902", "no memory for the index of a key block");
	/* the transfer may have been at fault */
	if (rc != -EINPROGRESS && nth > 1)
		kv_bad_read(db, kb->kb_obj, base_of(kb), !rc && !kb->kb_no_filter);
	free(index);
	return rc;
}

int kv_kblock_load(struct kvdb *db, const struct kv_kblock *kb)
{
	struct kv_run *r = kb->kb_run;
	struct kv_kblock *own = &r->rn_kb[kb - r->rn_kb];
	int rc = 0;

	KV_ASSERT(kb->kb_npages);
	if (!kv_reads_wait(db)) {
		rc = load(db, own);
	} else {
		while (!rc && !kv_kblock_is_loaded(kb)) {
			if (!kv_near_claim(db, own))
				continue;
			if (!kv_kblock_is_loaded(kb))
				rc = load(db, own);
			kv_near_unclaim(db, own);
		}
	}
	if (!rc)
		kv_near_trim(db);
	return rc;
}

int kv_run_load(struct kvdb *db, struct kv_run *r)
{
	int rc = 0;

	KV_ASSERT_OUTSIDE();
	for (uint32_t i = 0; i < r->rn_nkeyed && !rc; i++) {
		const struct kv_kblock *kb = &r->rn_kb[i];

		rc = kv_kblock_need(db, kb);
		if (!rc && kb->kb_no_filter)
			rc = kv_run_damaged(kb->kb_id, kb->kb_filter_off, "CRC of the filter");
	}
	return rc;
}
