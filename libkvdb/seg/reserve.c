/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What is kept free in each class (R19, RV11), so that a full pool can still be emptied:
 * deletes are logged and flushed, keys are merged, and values leave segments that are
 * partly dead.
 *
 * Each class has a reserve of its own. Keys and deletes go wherever there is room, but
 * values of a store whose policy is strict move inside one class: with all of the reserve
 * in the other class none of them could, and what was deleted would never come free.
 *
 * Deletes, descriptors, runs, and values that move for space may use it. Ordinary segments, key
 * blocks of a load and manifests of checkpoints leave it, of which a load and a manifest have
 * room made once; so do values that move for staging, policy or scans (G11).
 */
#include "seg/kv_omf.h"
#include "seg/reserve.h"
#include "db/db.h"

#define PART_MAX	4u	/* a reserve takes at most this part of a class */
#define MOVES_MIN	4u	/* segments of values that a class has room for, at least */

/* What class @c of @bytes keeps, of @total in all. */
static uint64_t reserve_of(struct kvdb *db, unsigned c, uint64_t bytes, uint64_t total)
{
	const struct kv_budget *b = &db->d_budget;
	uint64_t seg = c == MPOOL_CAPACITY ? b->b_move_bytes : b->b_seg_bytes;
	uint64_t n = (uint64_t)((double)b->b_reserve_bytes * (double)bytes / (double)total);

	if (n < MOVES_MIN * seg)
		n = MOVES_MIN * seg;
	return n < bytes / PART_MAX ? n : bytes / PART_MAX;
}

void kv_space_left(struct kvdb *db, struct kv_space_left *out)
{
	uint64_t total = 0, reserve, free;
	struct mpool_info pi;

	*out = (struct kv_space_left){ 0 };
	if (mpool_info(db->d_mp, &pi))
		return;
	for (unsigned c = 0; c < MPOOL_MCLASSES; c++)
		total += pi.cls[c].total;
	for (unsigned c = 0; c < MPOOL_MCLASSES && total; c++) {
		reserve = reserve_of(db, c, pi.cls[c].total, total);
		/* a class that grows does so before it is full */
		free = pi.cls[c].free + pi.cls[c].growable;
		out->sl_free[c] = free;
		if (free > reserve)
			out->sl_spare[c] = free - reserve;
		out->sl_all_free += out->sl_free[c];
		out->sl_all_spare += out->sl_spare[c];
	}
	out->sl_all = total;
}

uint8_t kv_space_class(struct kvdb *db, uint8_t mclass, uint64_t bytes)
{
	uint8_t other = mclass == MPOOL_CAPACITY ? MPOOL_STAGING : MPOOL_CAPACITY;
	/* of staging, which some stores must log to, the next segments of each log */
	uint64_t logs = 2ull * KV_STREAMS * db->d_budget.b_logs * db->d_budget.b_seg_bytes;
	struct kv_space_left left;

	if (db->d_mode.md_log_class == MPOOL_CAPACITY)
		return mclass;
	kv_space_left(db, &left);
	for (unsigned i = 0; i < 4; i++) {
		uint8_t c = i % 2 ? other : mclass;
		uint64_t beside = i < 2 && c == MPOOL_STAGING ? logs : 0;

		if (left.sl_spare[c] >= bytes + beside)
			return c;
	}
	return left.sl_free[mclass] >= left.sl_free[other] ? mclass : other;
}

uint64_t kv_segs_class_bytes(struct kvdb *db)
{
	struct mpool_info pi;
	uint64_t most = 0;

	if (mpool_info(db->d_mp, &pi))
		return UINT64_MAX;
	for (int c = 0; c < MPOOL_MCLASSES; c++)
		if (pi.cls[c].total + pi.cls[c].growable > most)
			most = pi.cls[c].total + pi.cls[c].growable;
	return most;
}

bool kv_segs_are_short(struct kvdb *db)
{
	struct kv_space_left left;

	kv_space_left(db, &left);
	return left.sl_all_spare < left.sl_all / 16;
}

uint64_t kv_segs_free_bytes(struct kvdb *db)
{
	struct kv_space_left left;

	kv_space_left(db, &left);
	return left.sl_all_free;
}

uint64_t kv_segs_spare_bytes(struct kvdb *db)
{
	struct kv_space_left left;

	kv_space_left(db, &left);
	return left.sl_all_spare;
}
