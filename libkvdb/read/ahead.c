/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Reading ahead for cursors: neighbours become one request, all requests of a
 * batch one submission. The page pool gets copies as far as it has room. All
 * cursors together take at most b_scan_bytes for this; a cursor that finds none
 * left reads through the pool.
 */
#include <stdlib.h>

#include "read/ahead.h"
#include "base/assert.h"
#include "base/guard.h"
#include "db/db.h"
#include "db/limbo.h"
#include "cache/load.h"
#include "compact/heat.h"

#define PAGE		4096u
#define PAGES		40u	/* 32 values of 1 KiB that lie anywhere */
#define POOL_READS	8u	/* values: until they are in the pool, their memory has no budget */

/* A value and where it is. */
struct spot {
	const struct kv_want *sp_want;
	const struct kv_ent *sp_ent;
};

void kv_ahead_init(struct kv_ahead *ah)
{
	ah->ah_mem = NULL;
	ah->ah_nrun = 0;
}

void kv_ahead_close(struct kvdb *db, struct kv_ahead *ah)
{
	if (!ah->ah_mem)
		return;
	free(ah->ah_heap);
	ah->ah_mem = NULL;
	KV_ASSERT(atomic_load(&db->d_cache.cc_scan_bytes) >= PAGES * PAGE);
	atomic_fetch_sub(&db->d_cache.cc_scan_bytes, PAGES * PAGE);
}

/*
 * Cursors come and go: what aligned_alloc() cuts out of a heap leaves pieces before and after
 * that its next call has no use for (glibc before 2.38), several times the memory of all cursors.
 */
static bool has_memory(struct kvdb *db, struct kv_ahead *ah)
{
	uint64_t bytes = PAGES * PAGE;

	if (ah->ah_mem)
		return true;
	ah->ah_heap = NULL;
	if (atomic_fetch_add(&db->d_cache.cc_scan_bytes, bytes) + bytes <=
	    db->d_budget.b_scan_bytes)
		ah->ah_heap = malloc(bytes + PAGE);
	if (ah->ah_heap)
		ah->ah_mem = (uint8_t *)ah->ah_heap + (-(uintptr_t)ah->ah_heap & (PAGE - 1));
	else
		atomic_fetch_sub(&db->d_cache.cc_scan_bytes, bytes);
	return ah->ah_mem;
}

static int by_place(const void *a, const void *b)
{
	const struct kv_want *v = ((const struct spot *)a)->sp_want;
	const struct kv_want *w = ((const struct spot *)b)->sp_want;
	uint64_t i = mpool_obj_id(v->wa_obj), j = mpool_obj_id(w->wa_obj);

	if (i != j)
		return i < j ? -1 : 1;
	return v->wa_first < w->wa_first ? -1 : v->wa_first > w->wa_first;
}

/* Adds the pages to the last run if they go on there, else to a new one; false: no room. */
static bool run_add(struct kv_ahead *ah, const struct kv_want *w, unsigned *pages)
{
	struct kv_ahead_run *r = ah->ah_nrun ? &ah->ah_run[ah->ah_nrun - 1] : NULL;
	uint64_t obj = mpool_obj_id(w->wa_obj), end = w->wa_first + w->wa_n;
	unsigned more = w->wa_n;

	KV_ASSERT(*pages <= PAGES && ah->ah_nrun <= KV_AHEAD_MAX);
	KV_ASSERT(w->wa_n && w->wa_n <= KV_PAGES_MAX);
	if (r && r->ar_obj == obj && w->wa_first <= r->ar_first + r->ar_n &&
	    end - r->ar_first <= KV_PAGES_MAX)
		more = end > r->ar_first + r->ar_n ? (unsigned)(end - r->ar_first) - r->ar_n : 0;
	else
		r = NULL;
	if (*pages + more > PAGES)
		return false;
	if (!r) {
		r = &ah->ah_run[ah->ah_nrun++];
		*r = (struct kv_ahead_run){ .ar_obj = obj, .ar_first = w->wa_first,
					    .ar_at = *pages * PAGE };
	}
	r->ar_n += more;
	*pages += more;
	return true;
}

/* Reads the runs; ar_n of those that failed becomes 0. */
static void runs_read(struct kvdb *db, struct kv_ahead *ah, struct mpool_obj *const *obj)
{
	struct kv_load load[KV_AHEAD_MAX];
	struct kv_read *todo[KV_AHEAD_MAX];
	struct iovec iov[KV_AHEAD_MAX];

	KV_ASSERT_OUTSIDE();
	for (unsigned i = 0; i < ah->ah_nrun; i++) {
		const struct kv_ahead_run *r = &ah->ah_run[i];

		iov[i] = (struct iovec){ ah->ah_mem + r->ar_at, (size_t)r->ar_n * PAGE };
		kv_load_init(&load[i], obj[i], r->ar_first, r->ar_n, &iov[i], 1, KV_READ_VALUE);
		load[i].ld_is_copied = true;
		todo[i] = &load[i].ld_read;
	}
	kv_reads_run(db, todo, ah->ah_nrun);
	for (unsigned i = 0; i < ah->ah_nrun; i++) {
		kv_load_done(db, &load[i]);	/* without CRCs of pages nothing is read twice */
		if (load[i].ld_err)
			ah->ah_run[i].ar_n = 0;
	}
}

/* Reads as many of @n spots as there is room for, in order of place; returns how many. */
static unsigned spots_read(struct kvdb *db, struct kv_ahead *ah, const struct kv_ent *e,
			   struct spot *sp, unsigned n)
{
	struct mpool_obj *obj[KV_AHEAD_MAX];
	uint8_t run[KV_AHEAD_MAX];
	unsigned pages = 0, k = 0;

	KV_ASSERT(ah->ah_mem && n <= KV_AHEAD_MAX);
	qsort(sp, n, sizeof(*sp), by_place);
	ah->ah_nrun = 0;
	for (; k < n && run_add(ah, sp[k].sp_want, &pages); k++) {
		run[k] = (uint8_t)(ah->ah_nrun - 1);
		obj[run[k]] = sp[k].sp_want->wa_obj;
	}
	runs_read(db, ah, obj);
	for (unsigned i = 0; i < k; i++) {
		const struct kv_ahead_run *r = &ah->ah_run[run[i]];
		uint64_t off = (uint64_t)sp[i].sp_ent->e_off8 * 8 - r->ar_first * PAGE;

		if (r->ar_n)
			ah->ah_at[sp[i].sp_ent - e] = r->ar_at + (uint32_t)off;
	}
	return k;
}

void kv_ahead_none(struct kv_ahead *ah, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		ah->ah_at[i] = KV_AHEAD_NONE;
}

/* Through the pool; it waits outside of kv_enter() (RD-4), for a few at once. */
static void pool_ahead(struct kvdb *db, const struct kv_want *w, unsigned n)
{
	struct kv_async as = { .as_db = db };
	bool waits = !kv_async_is_on(db);
	unsigned some = waits ? POOL_READS : n;
	struct kv_thread *t;

	KV_ASSERT_SLOW(!waits || !kv_is_inside());
	for (unsigned i = 0; i < n; i += some) {
		if (waits)
			kv_async_begin(&as);
		t = kv_enter();
		kv_pages_ahead(db, w + i, n - i < some ? n - i : some);
		kv_exit(t);
		if (!waits)
			continue;
		kv_async_end();
		kv_async_wait(&as);
		kv_async_free(&as);
	}
}

static bool touch(uint64_t first, unsigned n, uint64_t at, unsigned m)
{
	return first <= at + m && at <= first + n;
}

/*
 * Is @want[@k] read together with one before it, or right after or before what
 * this scan or another has read? Neighbours share a page, which may be cached then.
 */
static bool goes_on(struct kvdb *db, const struct kv_ahead *ah, const struct kv_want *want,
		    unsigned k)
{
	const struct kv_want *w = &want[k];
	uint64_t id = mpool_obj_id(w->wa_obj);

	for (unsigned i = 0; i < k; i++)
		if (want[i].wa_obj == w->wa_obj &&
		    touch(w->wa_first, w->wa_n, want[i].wa_first, want[i].wa_n))
			return true;
	for (unsigned i = 0; i < ah->ah_nrun; i++)
		if (ah->ah_run[i].ar_obj == id &&
		    touch(w->wa_first, w->wa_n, ah->ah_run[i].ar_first, ah->ah_run[i].ar_n))
			return true;
	return kv_page_peek(db, id, w->wa_first) ||
	       kv_page_peek(db, id, w->wa_first + w->wa_n - 1);
}

/* Notes that the scan is about to read @k values from media. Inside kv_enter(). */
static void heat_scan(struct kvdb *db, const struct kv_ahead *ah, const struct kv_want *want,
		      const struct kv_ent **from, unsigned k)
{
	unsigned places = 0;

	KV_ASSERT_INSIDE();
	for (unsigned i = 0; i < k; i++) {
		bool is_place = !goes_on(db, ah, want, i);

		kv_heat_note(from[i]->e_seg, is_place, kv_ent_stored(from[i]));
		places += is_place;
	}
	if (places)
		atomic_fetch_add_explicit(&db->d_count.scan_places, places, memory_order_relaxed);
}

void kv_ahead_read(struct kvdb *db, struct kv_ahead *ah, const struct kv_ent *e, unsigned n)
{
	const struct kv_ent *from[KV_AHEAD_MAX];
	struct kv_want want[KV_AHEAD_MAX], left[KV_AHEAD_MAX];
	struct spot sp[KV_AHEAD_MAX];
	unsigned nsp = 0, nleft = 0, k;
	struct kv_thread *t = kv_enter();
	bool is_own;

	KV_ASSERT(n <= KV_AHEAD_MAX);
	k = kv_values_want(db, e, n, want, from);
	heat_scan(db, ah, want, from, k);
	/* an operation that may be left alone keeps its pages itself */
	is_own = k && !kv_async_is_on(db) && has_memory(db, ah);
	for (unsigned i = 0; i < k; i++) {
		if (is_own && !from[i]->e_pack)
			sp[nsp++] = (struct spot){ &want[i], from[i] };
		else
			left[nleft++] = want[i];
	}
	kv_exit(t);
	if (nsp)
		for (unsigned i = spots_read(db, ah, e, sp, nsp); i < nsp; i++)
			left[nleft++] = *sp[i].sp_want;
	/* a single one is read as well when it is shown */
	if (nleft > 1)
		pool_ahead(db, left, nleft);
}

const uint8_t *kv_ahead_value(const struct kv_ahead *ah, const struct kv_ent *e, unsigned i)
{
	const uint8_t *val;

	if (ah->ah_at[i] == KV_AHEAD_NONE)
		return NULL;
	val = ah->ah_mem + ah->ah_at[i];
	KV_ASSERT(ah->ah_at[i] + (uint64_t)e->e_vlen <= PAGES * PAGE);
	return CHECK_CRC(mpool_crc32c(0, val, e->e_vlen) == e->e_vcrc) ? val : NULL;
}
