/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Records with a frame of their own (R9): to copy one may take longer than an
 * epoch lasts, so its place cannot be reserved first, as that of other records:
 * each tick would withdraw it anew. Its writer gets room that no frame of a log
 * covers, fills it, and only then asks for an epoch.
 *
 * Small ones of them, four or more in b_share_bytes, lie one after another in a
 * segment: the first logs have one each, and one writer at a time has it. What
 * is larger is alone in a segment, and so is a transaction's record. Segments of
 * both kinds are ready before they are wanted, while values keep their size: to
 * allocate one takes as long as to write megabytes.
 *
 * Invariants L4, L5, L7: LARGE.md.
 *
 * A writer that finds no room for its image keeps ls_large_lock while it waits, so a
 * later one with a smaller image does not overtake it. It waits for the end of an
 * epoch, or for a writer that has its image and needs none of these locks.
 *
 * Locks: lo_large_is_busy > ls_large_lock > all others but tx_bulk_lock; ep_tick_lock >
 * lo_lock, bucket locks; ls_alone_lock > sg_lock.
 * Nothing is copied, allocated from the pool or waited for between enter and leave.
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/guard.h"
#include "db/bell.h"
#include "db/hooks.h"
#include "db/slot.h"
#include "cache/slab.h"
#include "seg/reserve.h"
#include "seg/seg.h"
#include "log/flush.h"

/* Larger records: a fixed number, but a segment that was asked to be tiny takes a quarter. */
#define OWN_FROM	(64u << 10)
#define SHARED_LEAST	4u	/* records in a segment: else too much of it stays empty */
/* Segments that are made with one commit, which takes as long as to write megabytes, */
#define ALONE_BYTES	(32u << 20)
#define ALONE_SPARE	16u	/* a ready segment may be larger than the value by such a part */
#define COPY_PIECE	(64u << 10)	/* bytes that stay in a core's cache between CRC and copy */

bool kv_large_is_for(struct kvdb *db, uint32_t size)
{
	uint32_t part = db->d_budget.b_seg_bytes / 4;

	return size > (part < OWN_FROM ? part : OWN_FROM);
}

/* Is the record one of several of a segment? */
static bool is_shared(struct kvdb *db, enum kv_stream stream, uint32_t size)
{
	return stream == KV_VLOG &&
	       kv_frame_space(KV_FRAME_HDR + size) <= db->d_budget.b_share_bytes / SHARED_LEAST;
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

static bool is_like(uint32_t have, uint32_t bytes)
{
	return have >= bytes && have - bytes <= bytes / ALONE_SPARE;
}

/* How many segments of @bytes are made with one commit. */
static unsigned alone_batch(uint32_t bytes)
{
	unsigned n = ALONE_BYTES / bytes;

	/* they are wanted when half of the last are left, and each finds its place then */
	return n < 2 ? 2 : n > KV_ALONE_MAX / 3 * 2 ? KV_ALONE_MAX / 3 * 2 : n;
}

/* ls_alone_lock held. */
static void alone_drop(struct kvdb *db)
{
	struct kv_logs *ls = db->d_logs;

	KV_ASSERT_HELD(&ls->ls_alone_lock);
	while (ls->ls_nalone) {
		struct kv_seg *s = ls->ls_alone[--ls->ls_nalone];

		kv_seg_abandon(db, s, 0);
		kv_seg_put(db, s);
	}
}

void kv_large_drop_ready(struct kvdb *db)
{
	struct kv_logs *ls = db->d_logs;

	if (!ls)
		return;
	pthread_mutex_lock(&ls->ls_alone_lock);
	ls->ls_alone_wanted = false;
	alone_drop(db);
	pthread_mutex_unlock(&ls->ls_alone_lock);
}

/* One that is ready, or NULL; what has another size is given back. */
static struct kv_seg *alone_take(struct kvdb *db, uint32_t bytes)
{
	struct kv_logs *ls = db->d_logs;
	uint32_t last = ls->ls_alone_bytes;
	struct kv_seg *s = NULL;
	bool wanted;

	pthread_mutex_lock(&ls->ls_alone_lock);
	if (is_like(last, bytes)) {
		ls->ls_alone_wanted = true;
		s = ls->ls_nalone ? ls->ls_alone[--ls->ls_nalone] : NULL;
	} else {
		/* more like it will come only if the last was nearly as large */
		ls->ls_alone_wanted = is_like(bytes, last);
		ls->ls_alone_bytes = bytes;
		alone_drop(db);
	}
	wanted = ls->ls_alone_wanted;
	pthread_mutex_unlock(&ls->ls_alone_lock);
	if (wanted && !kv_is_manual(db))
		kv_supplier_kick(db);
	return s;
}

/* So many of @bytes are ready from now on, if those are still what is wanted. */
static void alone_add(struct kvdb *db, uint32_t bytes, struct kv_seg **seg, unsigned n)
{
	struct kv_logs *ls = db->d_logs;

	KV_ASSERT(n <= KV_ALONE_MAX);
	pthread_mutex_lock(&ls->ls_alone_lock);
	while (n && bytes == ls->ls_alone_bytes && ls->ls_nalone < KV_ALONE_MAX)
		ls->ls_alone[ls->ls_nalone++] = seg[--n];
	pthread_mutex_unlock(&ls->ls_alone_lock);
	while (n) {
		kv_seg_abandon(db, seg[--n], 0);
		kv_seg_put(db, seg[n]);
	}
}

int kv_large_ready_step(struct kvdb *db)
{
	struct kv_logs *ls = db->d_logs;
	struct kv_seg *got[KV_ALONE_MAX];
	unsigned n = 0;
	uint32_t bytes;
	int err;

	pthread_mutex_lock(&ls->ls_alone_lock);
	bytes = ls->ls_alone_bytes;
	if (ls->ls_alone_wanted && ls->ls_nalone <= alone_batch(bytes) / 2)
		n = alone_batch(bytes);
	pthread_mutex_unlock(&ls->ls_alone_lock);
	if (!n)
		return 0;
	err = kv_segs_alloc_alone(db, 0, KV_VLOG, bytes, false, &n, got);
	if (!err)
		alone_add(db, bytes, got, n);
	/* until the next value like it: a full pool is not an error here */
	if (err == -ENOSPC || err == -ENOMEM)
		kv_large_drop_ready(db);
	return err == -ENOSPC || err == -ENOMEM ? 0 : err ? err : 1;
}

static int seg_alloc(struct kvdb *db, struct kv_log *lo, uint32_t bytes, bool urgent,
		     bool is_staging, struct kv_seg **out)
{
	if (is_staging)
		return kv_seg_alloc_staging(db, lo->lo_no, lo->lo_stream, bytes, out);
	/* records of many writes at once are rare, and those that others share are ready */
	*out = lo->lo_stream == KV_VLOG && bytes != db->d_budget.b_seg_bytes ?
	       alone_take(db, bytes) : NULL;
	if (!*out)
		return kv_seg_alloc(db, lo->lo_no, lo->lo_stream, bytes, urgent, out);
	(*out)->sg_log = lo->lo_no;
	return 0;
}

/* A segment of its own. */
struct want {
	struct kvdb *wa_db;
	struct kv_log *wa_log;
	uint32_t wa_bytes;
	bool wa_is_staging;
	struct kv_seg **wa_out;
};

static int seg_take(void *arg, bool urgent)
{
	struct want *wa = arg;
	uint64_t t0 = kv_now(wa->wa_db);
	int err = seg_alloc(wa->wa_db, wa->wa_log, wa->wa_bytes, urgent, wa->wa_is_staging,
			    wa->wa_out);

	if (err != -ENOSPC)
		kv_delayed(wa->wa_db, KVDB_DELAY_SEGMENT, kv_now(wa->wa_db) - t0);
	return err;
}

static int seg_get(struct kvdb *db, struct kv_log *lo, uint32_t bytes, unsigned int flags,
		   struct kv_seg **out)
{
	struct want wa = { db, lo, bytes, flags & KV_OWN_STAGING, out };
	int err = db->d_hooks->ho_space_get(db, flags & KV_OWN_URGENT, seg_take, &wa);

	KV_ASSERT_FREE(&db->d_epochs.ep_tick_lock);
	return err == -ENOSPC ? no_space(db, bytes) : err;
}

static void seg_drop(struct kvdb *db, struct kv_seg *s)
{
	/* now, for there may be no epoch at whose end it would be released */
	kv_slab_drop_image(db, &s->sg_image);
	kv_seg_close(db, s, 0);
	kv_seg_put(db, s);
}

/*
 * Ends the shared segments that no writer has: when all that was logged is durable, theirs are
 * the only images that stay.
 */
static void shared_end_idle(struct kvdb *db)
{
	for (unsigned int i = 0; i < db->d_budget.b_shares; i++) {
		struct kv_log *lo = kv_log_at(db->d_logs, KV_VLOG * db->d_logs->ls_n + i);
		struct kv_seg *s = NULL;
		uint32_t end = 0;

		pthread_mutex_lock(&lo->lo_lock);
		if (!lo->lo_large_is_busy) {
			s = lo->lo_large;
			end = lo->lo_large_end;
			lo->lo_large = NULL;
		}
		pthread_mutex_unlock(&lo->lo_lock);
		if (!s)
			continue;
		kv_seg_close(db, s, end);
		kv_seg_put(db, s);
	}
	kv_segs_durable(db);
}

/* For a writer that does not wait: memory of images comes free soon. */
static void room_soon(struct kvdb *db)
{
	uint64_t newest = atomic_load(&db->d_logs->ls_large_epoch);

	if (atomic_load(&db->d_epochs.ep_durable) < newest)
		kv_want_durable(db, newest);
	else
		shared_end_idle(db);
	kv_reclaim();
}

bool kv_large_has_room(struct kvdb *db, uint32_t size)
{
	pthread_mutex_t *lock = &db->d_logs->ls_large_lock;
	bool has;

	/* writers that wait with it are first */
	if (pthread_mutex_trylock(lock))
		return false;
	has = kv_slab_has_own_room(db, kv_frame_space(KV_FRAME_HDR + size));
	pthread_mutex_unlock(lock);
	if (!has)
		room_soon(db);
	return has;
}

/* L5; ls_large_lock held. 0, -EAGAIN, or the fault. */
static int room_wait(struct kvdb *db, uint32_t bytes, bool may_wait)
{
	KV_ASSERT_HELD(&db->d_logs->ls_large_lock);
	_Atomic(uint64_t) *newest = &db->d_logs->ls_large_epoch;
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
		if (atomic_load(&db->d_epochs.ep_durable) < atomic_load(newest))
			err = kv_wait_durable(db, atomic_load(&db->d_epochs.ep_durable) + 1);
		else if (!nanosleep(&ts, NULL))
			shared_end_idle(db);
		kv_retire_barrier();
	}
	kv_delayed(db, KVDB_DELAY_MEMORY, kv_now(db) - t0);
	return err ? kv_error(-EROFS, "MP0903", "%s", db->d_fault.fa_text) : 0;
}

/* ls_large_lock held. */
static int image_get(struct kvdb *db, struct kv_log *lo, uint32_t bytes, unsigned int flags,
		     struct kv_seg **out)
{
	struct kv_seg *s;
	int err = 0;

	KV_ASSERT_HELD(&db->d_logs->ls_large_lock);
	if (bytes != db->d_budget.b_seg_bytes)
		err = room_wait(db, bytes, !(flags & KV_OWN_NOWAIT));
	if (!err)
		err = seg_get(db, lo, bytes, flags, &s);
	if (err)
		return err;
	if (!kv_slab_take_image(db, s->sg_bytes, &s->sg_image)) {
		seg_drop(db, s);
		return no_memory(bytes);
	}
	*out = s;
	return 0;
}

/* L5: a segment for this record alone. */
static int alone_get(struct kvdb *db, struct kv_log *lo, uint32_t bytes, unsigned int flags,
		     struct kv_seg **out)
{
	pthread_mutex_t *lock = &db->d_logs->ls_large_lock;
	int err;

	if (!(flags & KV_OWN_NOWAIT))
		pthread_mutex_lock(lock);
	else if (pthread_mutex_trylock(lock))
		return -EAGAIN;
	err = image_get(db, lo, bytes, flags, out);
	pthread_mutex_unlock(lock);
	return err;
}

/* L7: does the segment that the log's large values share take one more? */
static bool shared_fits(const struct kv_log *lo, uint32_t bytes, unsigned int flags)
{
	const struct kv_seg *s = lo->lo_large;

	return s && lo->lo_large_end + bytes <= s->sg_bytes &&
	       (!(flags & KV_OWN_STAGING) || s->sg_mclass == MPOOL_STAGING);
}

/* L7: another segment in place of the one that is full. */
static int shared_next(struct kvdb *db, struct kv_log *lo, unsigned int flags)
{
	struct kv_seg *s = lo->lo_large;
	int err;

	KV_ASSERT(lo->lo_large_is_busy);
	/* first: other writers wait for the memory of its image */
	lo->lo_large = NULL;
	if (s) {
		kv_seg_close(db, s, lo->lo_large_end);
		kv_seg_put(db, s);
	}
	err = alone_get(db, lo, db->d_budget.b_share_bytes, flags, &s);
	if (err)
		return err;
	lo->lo_large = s;
	lo->lo_large_end = 0;
	/* the stock is to be full again before the log wants the next */
	if (!kv_is_manual(db))
		kv_supplier_kick(db);
	return 0;
}

static void shared_release(struct kv_log *lo)
{
	pthread_mutex_lock(&lo->lo_lock);
	KV_ASSERT(lo->lo_large_is_busy);
	lo->lo_large_is_busy = false;
	pthread_cond_broadcast(&lo->lo_ready);
	pthread_mutex_unlock(&lo->lo_lock);
}

/* L7: the log's shared segment, with room for the record, is the caller's. */
static int shared_get(struct kvdb *db, struct kv_log *lo, uint32_t bytes, unsigned int flags,
		      struct kv_seg **out)
{
	int err = 0;

	pthread_mutex_lock(&lo->lo_lock);
	while (lo->lo_large_is_busy && !(flags & KV_OWN_NOWAIT))
		pthread_cond_wait(&lo->lo_ready, &lo->lo_lock);
	if (lo->lo_large_is_busy)
		err = -EAGAIN;
	lo->lo_large_is_busy = true;
	pthread_mutex_unlock(&lo->lo_lock);
	if (err)
		return err;
	if (!shared_fits(lo, bytes, flags))
		err = shared_next(db, lo, flags);
	*out = lo->lo_large;
	if (err)
		shared_release(lo);
	return err;
}

static void give_back(struct kvdb *db, struct kv_log *lo, struct kv_seg *s, bool shares)
{
	if (shares)
		shared_release(lo);
	else
		seg_drop(db, s);
}

static int promise_take(void *arg, bool urgent)
{
	(void)urgent;
	return kv_desc_promise(arg);
}

static int own_make(struct kvdb *db, enum kv_stream stream, uint32_t size, unsigned int flags,
		    struct kv_resv *rs)
{
	unsigned int first = stream * db->d_logs->ls_n, no = kv_log_pick(db, stream)->lo_no;
	uint32_t bytes = kv_frame_space(KV_FRAME_HDR + size);
	bool shares = is_shared(db, stream, size);
	struct kv_seg *s = NULL;
	struct kv_frame *f;
	struct kv_log *lo;
	int err;

	lo = kv_log_at(db->d_logs, first + (shares ? no % db->d_budget.b_shares : no));
	err = shares ? shared_get(db, lo, bytes, flags, &s) : alone_get(db, lo, bytes, flags, &s);
	if (err)
		return err;
	f = kv_frame_new_own(lo, s, shares ? lo->lo_large_end : 0, size);
	if (!f) {
		give_back(db, lo, s, shares);
		return no_memory(bytes);
	}
	f->fr_is_shared = shares;
	*rs = (struct kv_resv){ .rs_frame = f, .rs_buf = f->fr_base + KV_FRAME_HDR, .rs_seg = s,
				.rs_off = f->fr_off + KV_FRAME_HDR };
	return 0;
}

int kv_large_make(struct kvdb *db, enum kv_stream stream, uint32_t size, unsigned int flags,
		  struct kv_resv *rs)
{
	/* E7: the epoch's end must find room, so a writer without any waits, as for a segment */
	int err = db->d_hooks->ho_space_get(db, flags & KV_OWN_URGENT, promise_take, db);

	KV_ASSERT_OUTSIDE();
	if (err)
		return err;
	err = own_make(db, stream, size, flags, rs);
	if (err)
		kv_desc_forget(db);
	return err;
}

uint32_t kv_large_copy(uint8_t *to, const void *val, uint32_t len)
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

void kv_large_enter(struct kvdb *db, struct kv_resv *rs)
{
	KV_ASSERT_INSIDE();
	(void)BARRIER(pthread_mutex_lock(&db->d_epochs.ep_tick_lock));
	rs->rs_epoch = atomic_load(&db->d_epochs.ep_open);
	rs->rs_frame->fr_epoch = rs->rs_epoch;
	kv_epoch_first(db, rs->rs_epoch);
}

/* One is logged: the flusher writes as much as a frame of others holds, and lets go of images. */
static void hurry(struct kvdb *db, uint32_t bytes, uint64_t epoch)
{
	uint64_t part = db->d_budget.b_frame_max;
	uint64_t all = atomic_fetch_add(&db->d_logs->ls_large_bytes, bytes);

	if ((all + bytes) / part == all / part)
		return;
	/* what comes next is copied while this is written: not only when there is no room */
	if (!kv_is_manual(db) && kv_slab_own_is_half_full(db))
		kv_want_durable(db, epoch);
	kv_flusher_kick(db);
}

void kv_large_leave(struct kvdb *db, struct kv_resv *rs, bool is_logged)
{
	uint32_t bytes = rs->rs_frame->fr_space;

	KV_ASSERT_HELD(&db->d_epochs.ep_tick_lock);
	KV_ASSERT(rs->rs_epoch == atomic_load(&db->d_epochs.ep_open));
	if (is_logged) {
		kv_log_add_own(db, rs->rs_frame);
		atomic_store(&db->d_logs->ls_large_epoch, rs->rs_epoch);
		kv_desc_logged(db);
	}
	pthread_mutex_unlock(&db->d_epochs.ep_tick_lock);
	if (is_logged)
		hurry(db, bytes, rs->rs_epoch);
}

void kv_large_drop(struct kvdb *db, struct kv_resv *rs)
{
	struct kv_frame *f = rs->rs_frame;

	give_back(db, f->fr_log, rs->rs_seg, f->fr_is_shared);
	kv_frame_retire(f);
	kv_desc_forget(db);
}
