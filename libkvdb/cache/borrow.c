/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Lent memory: a quarter of the budget is kept for memtables, for what cursors read
 * ahead, and for fences and filters. A process that reads and writes little uses next to nothing of
 * it, so the page pool has it meanwhile, a slab at a time, out of a range of addresses of
 * its own.
 *
 * What was in use lately is not lent, nor a quarter beside it: between two looks (each
 * epoch) writers add to memtables, and pages are given back two grace periods later.
 * Nor is what no budget has: images of large records, what relocations move values
 * through. The system has a slab's memory again as soon as its pages are free.
 *
 * Invariant LE1: README.md.
 *
 * Lock: le_lock; inside it only the slabs'.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "cache/borrow.h"
#include "base/assert.h"
#include "base/range.h"
#include "db/db.h"

#define KEEP		4u	/* part of all that is not lent */
#define HALVE_NS	2000000000ull	/* what was in use counts half of the rest after it */

struct kv_borrow {
	pthread_mutex_t le_lock;
	uint8_t *le_base;
	struct kv_range le_range;
	unsigned le_max, le_used;	/* slabs */
	uint8_t *le_is_used;		/* each: 0 or 1 */
	uint64_t le_peak, le_since_ns;
};

static uint64_t owned(const struct kvdb *db)
{
	return db->d_budget.b_mt_bytes + db->d_budget.b_scan_bytes + db->d_budget.b_index_bytes;
}

uint64_t kv_borrow_max(const struct kvdb *db)
{
	uint64_t seg = db->d_budget.b_seg_bytes;

	return (owned(db) - owned(db) / KEEP) / seg * seg;
}

int kv_borrow_init(struct kvdb *db)
{
	struct kv_borrow *le = calloc(1, sizeof(*le));
	size_t bytes = kv_borrow_max(db);

	if (!le)
		return -ENOMEM;
	le->le_max = (unsigned)(bytes / db->d_budget.b_seg_bytes);
	le->le_is_used = calloc(le->le_max + 1, 1);
	le->le_base = le->le_is_used ? kv_range_map(&le->le_range, bytes) : NULL;
	if (!le->le_base) {
		free(le->le_is_used);
		free(le);
		return -ENOMEM;
	}
	/* a part of a huge page does not go back before the system splits it */
	madvise(le->le_base, bytes,
		db->d_budget.b_seg_bytes % KV_HUGE_PAGE ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
	pthread_mutex_init(&le->le_lock, NULL);
	db->d_cache.cc_borrow = le;
	return 0;
}

void kv_borrow_fini(struct kvdb *db)
{
	struct kv_borrow *le = db->d_cache.cc_borrow;

	if (!le)
		return;
	kv_range_unmap(&le->le_range);
	pthread_mutex_destroy(&le->le_lock);
	free(le->le_is_used);
	free(le);
	db->d_cache.cc_borrow = NULL;
}

uint64_t kv_borrow_room(uint64_t most, uint64_t used, uint64_t now, uint64_t *peak, uint64_t *since)
{
	uint64_t keep = most / KEEP;

	if (used >= *peak) {
		*peak = used;
		*since = now;
	} else if (now - *since >= HALVE_NS) {
		*peak = used + (*peak - used) / 2;
		*since = now;
	}
	return *peak + keep < most ? most - keep - *peak : 0;
}

/* Slabs that may be lent now. le_lock held. */
static unsigned room(struct kvdb *db, struct kv_borrow *le, uint64_t images)
{
	uint64_t used = atomic_load(&db->d_cache.cc_scan_bytes) +
			atomic_load(&db->d_count.move_mem) +
			atomic_load(&db->d_count.index_mem) +
			atomic_load(&db->d_count.txn_mem) + images;

	KV_ASSERT_HELD(&le->le_lock);
	used += atomic_load(&db->d_count.mt_mem) + atomic_load(&db->d_count.mt_free);
	used = kv_borrow_room(owned(db), used, kv_now(db), &le->le_peak, &le->le_since_ns);
	return (unsigned)(used / db->d_budget.b_seg_bytes);
}

uint8_t *kv_borrow_take(struct kvdb *db, uint64_t images)
{
	struct kv_borrow *le = db->d_cache.cc_borrow;
	uint8_t *mem = NULL;

	pthread_mutex_lock(&le->le_lock);
	if (le->le_used < room(db, le, images)) {
		unsigned at = 0;

		while (le->le_is_used[at])
			at++;
		KV_ASSERT(at < le->le_max);
		le->le_is_used[at] = 1;
		le->le_used++;
		mem = le->le_base + (size_t)at * db->d_budget.b_seg_bytes;
	}
	pthread_mutex_unlock(&le->le_lock);
	return mem;
}

void kv_borrow_give(struct kvdb *db, uint8_t *mem)
{
	struct kv_borrow *le = db->d_cache.cc_borrow;

	madvise(mem, db->d_budget.b_seg_bytes, MADV_DONTNEED);
	KV_ASSERT((size_t)(mem - le->le_base) < le->le_max * (size_t)db->d_budget.b_seg_bytes);
	pthread_mutex_lock(&le->le_lock);
	le->le_is_used[(size_t)(mem - le->le_base) / db->d_budget.b_seg_bytes] = 0;
	le->le_used--;
	pthread_mutex_unlock(&le->le_lock);
}

unsigned kv_borrow_excess(struct kvdb *db, uint64_t images)
{
	struct kv_borrow *le = db->d_cache.cc_borrow;
	unsigned may, n;

	pthread_mutex_lock(&le->le_lock);
	may = room(db, le, images);
	n = le->le_used > may ? le->le_used - may : 0;
	pthread_mutex_unlock(&le->le_lock);
	return n;
}

uint64_t kv_borrow_bytes(struct kvdb *db)
{
	struct kv_borrow *le = db->d_cache.cc_borrow;
	uint64_t n;

	pthread_mutex_lock(&le->le_lock);
	n = (uint64_t)le->le_used * db->d_budget.b_seg_bytes;
	pthread_mutex_unlock(&le->le_lock);
	return n;
}
