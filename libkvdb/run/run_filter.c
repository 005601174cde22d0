/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Which filters are in memory. They are four fifths of what the index of a run takes, 1.25 bytes
 * a key, and grow with the store. While all indexes together keep within b_filter_bytes, each
 * filter is in memory, whole, where a lookup finds its line with one addition. When they do not,
 * those of the largest runs leave it, a key block at a time; a lookup then gets the page of
 * 4096 bytes that the line lies on from the page pool, as key pages are, and what is asked
 * often stays there.
 *
 * The largest first: a get asks all upper runs, which are small, and one leaf of many, so a
 * byte of a small run serves more gets. When runs have gone and there is room again, the
 * smallest are read back (kv_filters_step()).
 *
 * The area of a filter has one CRC on media. It was compared when the run was opened, or the area
 * was made here; the CRCs of its pages, a thousandth of it, are kept from then.
 *
 * Invariants FLT-1, FLT-2, FLT-3: README.md.
 *
 * Lock: fs_lock, a leaf: the lists, rn_nfilters, and changes of kb_filter of runs that
 * are in a list.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/guard.h"
#include "db/bell.h"
#include "db/db.h"
#include "db/limbo.h"
#include "cache/pages.h"
#include "run/filter.h"
#include "run/run.h"
#include "run/run_filter.h"
#include "run/run_omf.h"

#define BUILD_PART	8u	/* of the budget, that a build may have beyond it */
#define SLACK_PART	16u	/* of the budget, below which filters come back */
#define AGAIN_NS	1000000000ull	/* what could not be read is left alone for so long */

enum { KEPT, BARE };

static inline uint64_t filter_bytes(const struct kv_kblock *kb)
{
	return (uint64_t)kb->kb_fblocks * KV_FILTER_BLOCK;
}

static inline uint64_t first_page(const struct kv_kblock *kb)
{
	return kb->kb_filter_off / KV_PAGE;
}

uint64_t kv_kblock_pages_end(const struct kv_kblock *kb)
{
	if (!kb->kb_fblocks)
		return kb->kb_npages;
	return (kb->kb_filter_off + filter_bytes(kb) + KV_PAGE - 1) / KV_PAGE;
}

/* ---- memory ------------------------------------------------------------------------ */

bool kv_filter_has_room(struct kvdb *db, uint64_t bytes, uint64_t own)
{
	uint64_t most = db->d_budget.b_filter_bytes;

	return atomic_load(&db->d_count.index_mem) + bytes <= most ||
	       own + bytes <= most / BUILD_PART;
}

/* The bits, and after them what retires them. */
static uint8_t *bits_new(uint64_t bytes)
{
	_Static_assert(sizeof(struct kv_limbo) <= KV_FILTER_BLOCK, "one line more");
	return aligned_alloc(KV_FILTER_BLOCK, bytes + KV_FILTER_BLOCK);
}

static void bits_set(struct kvdb *db, struct kv_kblock *kb, uint8_t *bits)
{
	atomic_fetch_add(&db->d_count.index_mem, filter_bytes(kb) + KV_FILTER_BLOCK);
	atomic_store_explicit(&kb->kb_filter, bits, memory_order_release);
}

/* Takes them from readers to come; returns what is to be retired, or freed. */
static uint8_t *bits_take(struct kvdb *db, struct kv_kblock *kb)
{
	uint8_t *bits = atomic_exchange(&kb->kb_filter, NULL);

	if (bits)
		atomic_fetch_sub(&db->d_count.index_mem, filter_bytes(kb) + KV_FILTER_BLOCK);
	return bits;
}

void kv_filter_keep(struct kvdb *db, struct kv_kblock *kb, const uint8_t *bits)
{
	uint8_t *own = kb->kb_fblocks ? bits_new(filter_bytes(kb)) : NULL;

	if (!own)
		return;
	memcpy(own, bits, filter_bytes(kb));
	bits_set(db, kb, own);
}

void kv_filter_free(struct kvdb *db, struct kv_kblock *kb)
{
	free(bits_take(db, kb));
}

/* ---- which of them ------------------------------------------------------------------- */

static void link_set(struct kvdb *db, struct kv_run *r, int which, bool is_in)
{
	struct kv_run **head = &db->d_runs.ru_filters.fs_run[which][r->rn_filter_size];
	struct kv_filter_link *l = &r->rn_filter_link[which];

	KV_ASSERT_HELD(&db->d_runs.ru_filters.fs_lock);
	if (is_in == !!l->fl_at)
		return;
	if (is_in) {
		l->fl_next = *head;
		l->fl_at = head;
		if (*head)
			(*head)->rn_filter_link[which].fl_at = &l->fl_next;
		*head = r;
		return;
	}
	*l->fl_at = l->fl_next;
	if (l->fl_next)
		l->fl_next->rn_filter_link[which].fl_at = l->fl_at;
	*l = (struct kv_filter_link){ .fl_at = NULL };
}

/* fs_lock held. */
static void links_set(struct kvdb *db, struct kv_run *r)
{
	KV_ASSERT_HELD(&db->d_runs.ru_filters.fs_lock);
	link_set(db, r, KEPT, r->rn_nfilters > 0);
	link_set(db, r, BARE, r->rn_nfilters < r->rn_nkeyed);
}

/* Under fs_lock: the last filter of the largest run that has any leaves memory; NULL: none has. */
static uint8_t *largest_take(struct kvdb *db, uint64_t *bytes)
{
	KV_ASSERT_HELD(&db->d_runs.ru_filters.fs_lock);
	for (unsigned i = KV_FILTER_SIZES; i-- > 0;) {
		struct kv_run *r = db->d_runs.ru_filters.fs_run[KEPT][i];
		struct kv_kblock *kb;

		if (!r)
			continue;
		kb = &r->rn_kb[--r->rn_nfilters];
		links_set(db, r);
		*bytes = filter_bytes(kb);
		return bits_take(db, kb);
	}
	return NULL;
}

void kv_filters_trim(struct kvdb *db)
{
	while (atomic_load(&db->d_count.index_mem) > db->d_budget.b_filter_bytes) {
		uint64_t bytes = 0;
		uint8_t *bits;

		pthread_mutex_lock(&db->d_runs.ru_filters.fs_lock);
		bits = largest_take(db, &bytes);
		pthread_mutex_unlock(&db->d_runs.ru_filters.fs_lock);
		if (!bits)
			return;
		kv_retire((struct kv_limbo *)(bits + bytes), free, bits);
	}
}

void kv_filters_add(struct kvdb *db, struct kv_run *r)
{
	uint64_t bytes = 0;
	uint32_t n = 0;

	for (uint32_t i = 0; i < r->rn_nkeyed; i++) {
		bytes += filter_bytes(&r->rn_kb[i]);
		if (n == i && atomic_load(&r->rn_kb[i].kb_filter))
			n++;
	}
	/* without memory for one the filters after it go too (FLT-2) */
	for (uint32_t i = n; i < r->rn_nkeyed; i++)
		kv_filter_free(db, &r->rn_kb[i]);
	if (!bytes)
		return;
	pthread_mutex_lock(&db->d_runs.ru_filters.fs_lock);
	r->rn_nfilters = n;
	r->rn_filter_size = 63 - (unsigned)__builtin_clzll(bytes);
	links_set(db, r);
	pthread_mutex_unlock(&db->d_runs.ru_filters.fs_lock);
	kv_filters_trim(db);
}

void kv_filters_remove(struct kvdb *db, struct kv_run *r)
{
	bool is_room;

	pthread_mutex_lock(&db->d_runs.ru_filters.fs_lock);
	is_room = r->rn_nfilters > 0;
	link_set(db, r, KEPT, false);
	link_set(db, r, BARE, false);
	r->rn_nfilters = 0;
	for (unsigned i = 0; is_room && i < KV_FILTER_SIZES; i++)
		if (db->d_runs.ru_filters.fs_run[BARE][i]) {
			pthread_mutex_unlock(&db->d_runs.ru_filters.fs_lock);
			kv_grower_kick(db);
			return;
		}
	pthread_mutex_unlock(&db->d_runs.ru_filters.fs_lock);
}

/* ---- back to memory --------------------------------------------------------------------- */

/* A reference, unless the last one is gone. */
static bool run_hold(struct kv_run *r)
{
	uint32_t n = atomic_load(&r->rn_refs);

	while (n && !atomic_compare_exchange_weak(&r->rn_refs, &n, n + 1))
		;
	return n;
}

/* Held, the smallest run that lacks a filter for which there is room, and which: or NULL. */
static struct kv_run *smallest_bare(struct kvdb *db, uint32_t *no)
{
	uint64_t most = db->d_budget.b_filter_bytes, used = atomic_load(&db->d_count.index_mem);
	struct kv_run *r = NULL;

	most -= most / SLACK_PART;
	pthread_mutex_lock(&db->d_runs.ru_filters.fs_lock);
	for (unsigned i = 0; i < KV_FILTER_SIZES && !r; i++) {
		r = db->d_runs.ru_filters.fs_run[BARE][i];
		while (r && !run_hold(r))
			r = r->rn_filter_link[BARE].fl_next;
	}
	if (r)
		*no = r->rn_nfilters;
	pthread_mutex_unlock(&db->d_runs.ru_filters.fs_lock);
	if (r && used + filter_bytes(&r->rn_kb[*no]) > most) {
		kv_run_put(db, r);
		return NULL;
	}
	return r;
}

/* Reads the pages of a filter past the pool, and compares their CRCs. */
static int filter_read(struct kvdb *db, const struct kv_kblock *kb, uint8_t *bits)
{
	uint64_t first = first_page(kb), n = kv_kblock_pages_end(kb) - first;
	uint8_t *pages = aligned_alloc(KV_PAGE, n * KV_PAGE);
	int rc = -ENOMEM;

	if (pages)
		rc = kv_dev_read(db, kb->kb_obj, KV_READ_KEY, first * KV_PAGE, pages, n * KV_PAGE);
	for (uint64_t i = 0; i < n && !rc; i++)
		if (!CHECK_CRC(mpool_crc32c(0, pages + i * KV_PAGE, KV_PAGE) ==
			       kb->kb_filter_crcs[i])) {
			kv_bad_read(db, kb->kb_obj, (first + i) * KV_PAGE, false);
			rc = kv_run_damaged(kb->kb_id, (first + i) * KV_PAGE, "CRC of the filter");
		}
	if (!rc)
		memcpy(bits, pages + kb->kb_filter_off % KV_PAGE, filter_bytes(kb));
	free(pages);
	return rc;
}

int kv_filters_step(struct kvdb *db)
{
	struct kv_kblock *kb;
	uint8_t *bits;
	uint32_t no;
	struct kv_run *r = smallest_bare(db, &no);
	int rc;

	if (!r)
		return 0;
	kb = &r->rn_kb[no];
	bits = bits_new(filter_bytes(kb));
	rc = bits ? filter_read(db, kb, bits) : -ENOMEM;
	pthread_mutex_lock(&db->d_runs.ru_filters.fs_lock);
	if (rc && rc != -ENOMEM) {
		/* it is asked through the pool from now on, until its run goes */
		link_set(db, r, BARE, false);
	} else if (!rc && r->rn_nfilters == no) {
		bits_set(db, kb, bits);
		bits = NULL;
		r->rn_nfilters++;
		links_set(db, r);
	}
	pthread_mutex_unlock(&db->d_runs.ru_filters.fs_lock);
	free(bits);
	kv_run_put(db, r);
	return !rc;
}

/* ---- asking one that is not in memory ------------------------------------------------------ */

int kv_filter_far(struct kvdb *db, struct kv_kblock *kb, uint64_t hash, const uint8_t **block)
{
	uint64_t off, no, again;
	const uint8_t *page;
	uint32_t crc;
	int rc;

	*block = NULL;
	if (!kb->kb_fblocks)
		return 0;
	off = kb->kb_filter_off + (((hash >> 32) * kb->kb_fblocks) >> 32) * KV_FILTER_BLOCK;
	no = off / KV_PAGE;
	page = kv_page_hit(db, kb->kb_id, no);
	if (!page) {
		again = atomic_load_explicit(&kb->kb_filter_again, memory_order_relaxed);
		if (again && kv_now(db) < again)
			return 0;
		crc = kb->kb_filter_crcs[no - first_page(kb)];
		rc = kv_pages_get(db, kb->kb_obj, no, 1, &crc, &page);
		if (rc == -EINPROGRESS)
			return rc;
		if (rc) {	/* FLT-1 */
			if (rc != -ENOMEM)
				atomic_store_explicit(&kb->kb_filter_again, kv_now(db) + AGAIN_NS,
						      memory_order_relaxed);
			return 0;
		}
	}
	*block = page + off % KV_PAGE;
	return 0;
}
