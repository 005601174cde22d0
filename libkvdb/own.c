/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Records with a segment of their own (R9): those too large for a segment that
 * others share. To copy one takes longer than an epoch may last, so its place
 * cannot be reserved first, as that of other records: each tick would withdraw
 * it anew. Its writer gets a segment that no log knows, fills it, and only then
 * asks for an epoch.
 *
 * Invariant
 *  L4  Such a record is whole before it has an epoch. It gets the open one,
 *      its version and its place in a log under d_tick_lock: no epoch ends in
 *      between, so it is never withdrawn, and its image is written as it is.
 *
 * Locks: d_tick_lock > lo_lock, bucket locks. Nothing is copied, allocated from
 * the pool or waited for between enter and leave.
 */
#include <errno.h>

#include "flush.h"
#include "reloc.h"
#include "work.h"

bool kv_own_is_for(struct kvdb *db, uint32_t size)
{
	return size > db->d_budget.b_seg_bytes / 16 && size > KV_BLOCK;
}

static int no_memory(uint32_t bytes)
{
	return kv_error(-ENOMEM, "MP0902", "no memory for a log segment of %u bytes", bytes);
}

static int seg_get(struct kvdb *db, struct kv_log *lo, uint32_t bytes, bool urgent,
		   struct kv_seg **out)
{
	unsigned cause = KVDB_DELAY_SEGMENT;
	uint64_t t0 = kv_now(db);
	int err = kv_seg_alloc(db, lo->lo_no, lo->lo_stream, bytes, false, out);

	if (err == -ENOSPC && (urgent || kv_reloc_may_help(db))) {
		/* R19: room is made before a delete takes from the reserve */
		cause = KVDB_DELAY_SPACE;
		kv_make_room(db);
		err = kv_seg_alloc(db, lo->lo_no, lo->lo_stream, bytes, urgent, out);
	}
	kv_delayed(db, cause, kv_now(db) - t0);
	return err;
}

static void seg_drop(struct kvdb *db, struct kv_seg *s)
{
	kv_seg_close(db, s, 0);
	kv_seg_put(db, s);
}

int kv_own_make(struct kvdb *db, enum kv_stream stream, uint32_t size, bool urgent,
		struct kv_resv *rs)
{
	struct kv_log *lo = kv_log_pick(db, stream);
	uint32_t bytes = kv_align_block(KV_FRAME_HDR + size);
	struct kv_frame *f = NULL;
	struct kv_seg *s;
	int err = seg_get(db, lo, bytes, urgent, &s);

	if (err)
		return err;
	if (kv_slab_take_image(db, s))
		f = kv_frame_new_own(lo, s, size);
	if (!f) {
		seg_drop(db, s);
		return no_memory(bytes);
	}
	*rs = (struct kv_resv){ .rs_frame = f, .rs_buf = f->fr_base + KV_FRAME_HDR, .rs_seg = s,
				.rs_off = KV_FRAME_HDR };
	return 0;
}

void kv_own_enter(struct kvdb *db, struct kv_resv *rs)
{
	(void)BARRIER(620, pthread_mutex_lock(&db->d_tick_lock));
	rs->rs_epoch = atomic_load(&db->d_epoch);
	rs->rs_frame->fr_epoch = rs->rs_epoch;
	kv_epoch_birth(db, rs->rs_epoch);
}

void kv_own_leave(struct kvdb *db, struct kv_resv *rs, bool is_logged)
{
	bool is_full = rs->rs_frame->fr_space >= db->d_budget.b_frame_max;

	if (is_logged)
		kv_log_add_own(db, rs->rs_frame);
	pthread_mutex_unlock(&db->d_tick_lock);
	if (is_logged && is_full)
		kv_flusher_kick(db);
}

void kv_own_drop(struct kvdb *db, struct kv_resv *rs)
{
	kv_frame_retire(rs->rs_frame);
	seg_drop(db, rs->rs_seg);
}
