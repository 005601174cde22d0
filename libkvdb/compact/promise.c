/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The room that relocations share. What a job moves is there twice until its edit, so it says
 * first how much it will write; of two jobs neither counts on what the other one still needs
 * (G11). Only one that frees space, and runs alone, counts on what is kept for flushes (R19).
 *
 * Locks: ro_lock, from a look at the room to the promise; outside seg.c's.
 */
#include "base/assert.h"
#include "base/guard.h"
#include "db/db.h"
#include "seg/kv_omf.h"
#include "seg/reserve.h"
#include "compact/reloc.h"

void kv_promises_init(struct kv_promises *ro)
{
	pthread_mutex_init(&ro->ro_lock, NULL);
}

void kv_promises_fini(struct kv_promises *ro)
{
	pthread_mutex_destroy(&ro->ro_lock);
}

/* What a merge writes beside values that move. */
static uint64_t of_keys(struct kvdb *db)
{
	uint64_t keys = kv_reloc_key_bytes(db);

	return keys + keys / 8 + 2ull * db->d_budget.b_kblock_bytes;
}

/*
 * The part of a segment that values fill, at least. Two frames that follow each other hold more
 * than one may, and each has a header and ends with a block; an image that lacks a 16th takes a
 * segment as if it were full.
 */
static double fill_of(struct kvdb *db)
{
	double two = db->d_budget.b_frame_max, lost = 2 * (KV_FRAME_HDR + KV_BLOCK);

	return BARRIER(1) ? two / (two + lost) * 15 / 16 : 1;
}

static uint64_t due_of(struct kvdb *db, uint64_t bytes)
{
	return bytes ? (uint64_t)((double)bytes / fill_of(db)) + of_keys(db) : 0;
}

/* ro_lock held. */
static uint64_t due_but(const struct kv_promises *ro, enum kv_victim_of who)
{
	uint64_t due = 0;

	KV_ASSERT_HELD(&ro->ro_lock);
	for (unsigned i = 0; i <= KV_VICTIM_OLD; i++)
		due += i == who ? 0 : ro->ro_due[i];
	return due;
}

uint64_t kv_promises_due(struct kv_promises *ro)
{
	uint64_t due;

	pthread_mutex_lock(&ro->ro_lock);
	due = due_but(ro, KV_VICTIM_NONE);
	pthread_mutex_unlock(&ro->ro_lock);
	return due;
}

static uint64_t beside(struct kvdb *db, uint64_t avail, uint64_t taken)
{
	return avail > taken ? (uint64_t)((double)(avail - taken) * fill_of(db)) : 0;
}

void kv_promise_look(struct kvdb *db, struct kv_promises *ro, enum kv_victim_of who, bool all,
		     struct kv_reloc_room *out)
{
	struct kv_space_left left;
	uint64_t due = 0;

	KV_ASSERT_FREE(&ro->ro_lock);
	pthread_mutex_lock(&ro->ro_lock);
	kv_space_left(db, &left);
	(void)BARRIER((due = due_but(ro, who), 0));
	out->rr_any = beside(db, all ? left.sl_all_free : left.sl_all_spare, due + of_keys(db));
	/* keys go where there is more */
	for (unsigned c = 0; c < MPOOL_MCLASSES; c++) {
		out->rr_into[c] = beside(db, left.sl_spare[c], due);
		out->rr_only[c] = all ? beside(db, left.sl_free[c], due) : out->rr_into[c];
	}
}

void kv_promise_make(struct kvdb *db, struct kv_promises *ro, enum kv_victim_of who, uint64_t bytes)
{
	KV_ASSERT_HELD(&ro->ro_lock);
	KV_ASSERT(who != KV_VICTIM_NONE);
	ro->ro_due[who] = due_of(db, bytes);
	pthread_mutex_unlock(&ro->ro_lock);
}

void kv_promise_reach(struct kvdb *db, struct kv_promises *ro, enum kv_victim_of who,
		      uint64_t bytes)
{
	uint64_t avail, other, most;

	pthread_mutex_lock(&ro->ro_lock);
	avail = kv_segs_spare_bytes(db);
	other = due_but(ro, who);
	most = due_of(db, bytes);
	if (most > avail || other > avail - most)
		most = avail > other ? avail - other : 0;
	if (ro->ro_due[who] && BARRIER(most > ro->ro_due[who]))
		ro->ro_due[who] = most;
	pthread_mutex_unlock(&ro->ro_lock);
}

void kv_promise_wrote(struct kv_promises *ro, enum kv_victim_of who, uint64_t bytes)
{
	pthread_mutex_lock(&ro->ro_lock);
	ro->ro_due[who] -= ro->ro_due[who] < bytes ? ro->ro_due[who] : bytes;
	pthread_mutex_unlock(&ro->ro_lock);
}

void kv_promise_end(struct kv_promises *ro, enum kv_victim_of who)
{
	pthread_mutex_lock(&ro->ro_lock);
	ro->ro_due[who] = 0;
	pthread_mutex_unlock(&ro->ro_lock);
}

void kv_backoff_set(struct kvdb *db, struct kv_backoff *bo, uint64_t at)
{
	struct kv_space_left left;

	kv_space_left(db, &left);
	bo->bo_at = at;
	bo->bo_spare = left.sl_all_spare;
	bo->bo_free = left.sl_all_free;
}

bool kv_backoff_is_active(struct kvdb *db, const struct kv_backoff *bo)
{
	uint64_t more = 4ull * db->d_budget.b_seg_bytes;
	struct kv_space_left left;

	if (!bo->bo_at || (bo->bo_ns && kv_now(db) >= bo->bo_ns))
		return false;
	/* below the reserve sl_all_spare is 0 */
	kv_space_left(db, &left);
	return CHECK(left.sl_all_spare < 2 * bo->bo_spare + more &&
		     left.sl_all_free < 2 * bo->bo_free + more);
}
