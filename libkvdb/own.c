/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Records with a segment of their own (R9): those too large for a segment that
 * others share. To copy one takes longer than an epoch may last, so its place
 * cannot be reserved first, as that of other records: each tick would withdraw
 * it anew. Its writer gets a segment that no log knows, fills it, and only then
 * asks for an epoch.
 *
 * Invariants
 *  L4  Such a record is whole before it has an epoch. It gets the open one,
 *      its version and its place in a log under d_tick_lock: no epoch ends in
 *      between, so it is never withdrawn, and its image is written as it is.
 *  L5  Images of such records, from before they are filled until their epoch is
 *      durable and nobody reads them, take at most b_own_bytes.
 *
 * Who finds no room for his image keeps ls_own_lock while he waits: nobody who
 * comes later, with a smaller one, is before him. What he waits for is the end
 * of an epoch, or a writer who has his image and needs none of our locks.
 *
 * Locks: ls_own_lock is outside all others; d_tick_lock > lo_lock, bucket locks.
 * Nothing is copied, allocated from the pool or waited for between enter and leave.
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "flush.h"
#include "reloc.h"
#include "work.h"

#define COPY_PIECE	(64u << 10)	/* bytes that stay in a core's cache between CRC and copy */

bool kv_own_is_for(struct kvdb *db, uint32_t size)
{
	return size > db->d_budget.b_seg_bytes / 16 && size > KV_BLOCK;
}

static int no_memory(uint32_t bytes)
{
	return kv_error(-ENOMEM, "MP0902", "no memory for a log segment of %u bytes", bytes);
}

/* R19 leaves no room for it in a pool that is too small, however empty. */
static int no_space(struct kvdb *db, uint32_t bytes)
{
	uint64_t most = kv_segs_class_bytes(db);

	if (bytes <= most / 4)
		return -ENOSPC;
	return kv_error(-ENOSPC, "MP0996", "no room for a segment of %u bytes for one value: the "
			"largest class of the pool has %llu in all", bytes,
			(unsigned long long)most);
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
	return err == -ENOSPC ? no_space(db, bytes) : err;
}

static void seg_drop(struct kvdb *db, struct kv_seg *s)
{
	/* now: there may be no epoch whose end would let go of it */
	kv_slab_drop_image(db, s);
	kv_seg_close(db, s, 0);
	kv_seg_put(db, s);
}

/* For who does not wait: what images hold comes free soon. */
static void room_soon(struct kvdb *db)
{
	kv_want_durable(db, atomic_load(&db->d_logs->ls_own_epoch));
	kv_reclaim();
}

bool kv_own_has_room(struct kvdb *db, uint32_t size)
{
	pthread_mutex_t *lock = &db->d_logs->ls_own_lock;
	bool has;

	/* those who wait with it are first */
	if (pthread_mutex_trylock(lock))
		return false;
	has = kv_slab_has_own_room(db, kv_align_block(KV_FRAME_HDR + size));
	pthread_mutex_unlock(lock);
	if (!has)
		room_soon(db);
	return has;
}

/* L5; ls_own_lock held. 0, -EAGAIN, or the fault. */
static int room_wait(struct kvdb *db, uint32_t bytes, bool may_wait)
{
	_Atomic(uint64_t) *newest = &db->d_logs->ls_own_epoch;
	struct timespec ts = { .tv_nsec = 1000000 };
	uint64_t t0;
	int err = 0;

	if (KV_LIKELY(kv_slab_has_own_room(db, bytes)))
		return 0;
	if (!may_wait) {
		room_soon(db);
		return -EAGAIN;
	}
	t0 = kv_now(db);
	while (!err && !kv_slab_has_own_room(db, bytes)) {
		/* else others are filling theirs, or images are about to be let go of */
		if (atomic_load(&db->d_durable) < atomic_load(newest))
			err = kv_wait_durable(db, atomic_load(newest));
		else
			nanosleep(&ts, NULL);
		kv_retire_barrier();
	}
	kv_delayed(db, KVDB_DELAY_MEMORY, kv_now(db) - t0);
	return err ? kv_error(-EROFS, "MP0903", "%s", db->d_fault_text) : 0;
}

/* ls_own_lock held. */
static int image_get(struct kvdb *db, struct kv_log *lo, uint32_t bytes, unsigned int flags,
		     struct kv_seg **out)
{
	struct kv_seg *s;
	int err = room_wait(db, bytes, !(flags & KV_OWN_NOWAIT));

	if (!err)
		err = seg_get(db, lo, bytes, flags & KV_OWN_URGENT, &s);
	if (err)
		return err;
	if (!kv_slab_take_image(db, s)) {
		seg_drop(db, s);
		return no_memory(bytes);
	}
	*out = s;
	return 0;
}

int kv_own_make(struct kvdb *db, enum kv_stream stream, uint32_t size, unsigned int flags,
		struct kv_resv *rs)
{
	struct kv_log *lo = kv_log_pick(db, stream);
	pthread_mutex_t *lock = &db->d_logs->ls_own_lock;
	uint32_t bytes = kv_align_block(KV_FRAME_HDR + size);
	struct kv_seg *s = NULL;
	struct kv_frame *f;
	int err;

	if (!(flags & KV_OWN_NOWAIT))
		pthread_mutex_lock(lock);
	else if (pthread_mutex_trylock(lock))
		return -EAGAIN;
	err = image_get(db, lo, bytes, flags, &s);
	pthread_mutex_unlock(lock);
	if (err)
		return err;
	f = kv_frame_new_own(lo, s, size);
	if (!f) {
		seg_drop(db, s);
		return no_memory(bytes);
	}
	*rs = (struct kv_resv){ .rs_frame = f, .rs_buf = f->fr_base + KV_FRAME_HDR, .rs_seg = s,
				.rs_off = KV_FRAME_HDR };
	return 0;
}

uint32_t kv_own_copy(uint8_t *to, const void *val, uint32_t len)
{
	const uint8_t *from = val;
	uint32_t crc = 0, n;

	for (; len; len -= n, from += n, to += n) {
		n = len < COPY_PIECE ? len : COPY_PIECE;
		crc = mpool_crc32c(crc, from, n);
		memcpy(to, from, n);
	}
	return crc;
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

	if (is_logged) {
		kv_log_add_own(db, rs->rs_frame);
		atomic_store(&db->d_logs->ls_own_epoch, rs->rs_epoch);
	}
	pthread_mutex_unlock(&db->d_tick_lock);
	if (is_logged && is_full)
		kv_flusher_kick(db);
}

void kv_own_drop(struct kvdb *db, struct kv_resv *rs)
{
	kv_frame_retire(rs->rs_frame);
	seg_drop(db, rs->rs_seg);
}
