/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Epochs: closing them, writing them, making them durable.
 *
 * Invariants E1, E2, E3, E4, E5, E6: README.md.
 *
 * Locks: fl_io_lock > ep_tick_lock > lo_lock; fl_lock alone or innermost.
 */
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "log/flush.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/futex.h"
#include "base/guard.h"
#include "base/vec.h"
#include "db/bell.h"
#include "db/hooks.h"
#include "db/mem_wait.h"
#include "db/thread.h"
#include "db/waits.h"
#include "cache/slab.h"
#include "seg/seg.h"
#include "mem/memtable.h"
#include "tree/tree.h"
#include "log/durable.h"
#include "log/frame.h"

#define IOQ_DEPTH	64u
#define TICK_BYTES	(16u << 20)	/* logged bytes that end an epoch early */
#define DESC_SLACK	4u	/* segments that usually may join an epoch while it is closed */

/* ---- closing an epoch ----------------------------------------------------------- */

/* Completes or withdraws one thread's record (R1, R12). Registry lock held. */
static void resolve_slot(struct kv_tctx *tc, void *arg)
{
	struct kv_slot *sl = &tc->tc_slot;
	uint64_t e = *(uint64_t *)arg, st = atomic_load(&sl->sl_state), seq;
	struct kv_frame *f;
	uint32_t i, more, off;
	uintptr_t ver;
	uint8_t *buf;

	while ((st & KV_SLOT_MASK) == KV_SLOT_OPEN)
		if (atomic_compare_exchange_weak(&sl->sl_state, &st,
						 (st & ~(uint64_t)KV_SLOT_MASK) | KV_SLOT_SKIPPED))
			return;
	if ((st & KV_SLOT_MASK) != KV_SLOT_INSTALLING)
		return;
	f = atomic_load(&sl->sl_frame);
	i = atomic_load(&sl->sl_index);
	more = atomic_load(&sl->sl_more);
	off = atomic_load(&sl->sl_off);
	buf = atomic_load(&sl->sl_buf);
	ver = atomic_load(&sl->sl_ver);
	if (atomic_load(&sl->sl_state) != st || f->fr_epoch > e)
		return;		/* it finished by itself */
	if (ver & KV_SLOT_TXN) {
		seq = kv_tslot_commit(tc->tc_db, (struct kv_tslot *)(ver - KV_SLOT_TXN));
		kv_rec_stamp(buf, f->fr_seg->sg_id, off, seq);
	} else if (ver) {
		struct kv_version *v = (struct kv_version *)ver;

		seq = KV_HIDDEN;
		atomic_compare_exchange_strong(&v->v_seq, &seq, KV_PENDING);
		seq = kv_version_stamp(tc->tc_db, v);
		kv_rec_stamp(buf, f->fr_seg->sg_id, off, seq);
	}
	for (uint32_t last = i + more; i <= last; i++)
		atomic_fetch_or(&f->fr_rec[i], KV_REC_HELPED);
}

/* True when every closed frame of epochs <= e is done: then no slot is left. */
static bool frames_done(struct kvdb *db, uint64_t e)
{
	struct kv_logs *ls = db->d_logs;
	bool done = true;

	for (unsigned int i = 0; done && i < ls->ls_n * KV_STREAMS; i++) {
		struct kv_log *lo = kv_log_at(ls, i);

		pthread_mutex_lock(&lo->lo_lock);
		for (struct kv_frame *f = lo->lo_pending; f && done; f = f->fr_next)
			done = f->fr_epoch > e || kv_frame_is_done(f);
		pthread_mutex_unlock(&lo->lo_lock);
	}
	return done;
}

/* Number of segments that epoch @e wrote to, at most. */
static uint32_t count_segs(struct kvdb *db, uint64_t e)
{
	struct kv_logs *ls = db->d_logs;
	uint32_t n = db->d_flusher->fl_nsegs;

	for (unsigned int i = 0; i < ls->ls_n * KV_STREAMS; i++) {
		struct kv_log *lo = kv_log_at(ls, i);
		struct kv_seg *last = NULL;

		pthread_mutex_lock(&lo->lo_lock);
		for (struct kv_frame *f = lo->lo_pending; f; f = f->fr_next) {
			n += f->fr_epoch == e && f->fr_seg != last;
			last = f->fr_seg;
		}
		pthread_mutex_unlock(&lo->lo_lock);
	}
	return n;
}

/*
 * True when the epoch @e, which is being closed, has frames: pending ones, or
 * such that were written early. Logs that are closed already go on in e + 1.
 */
static bool epoch_wrote(struct kvdb *db, uint64_t e)
{
	struct kv_logs *ls = db->d_logs;
	bool wrote = db->d_flusher->fl_nsegs > 0;

	for (unsigned int i = 0; !wrote && i < ls->ls_n * KV_STREAMS; i++) {
		struct kv_log *lo = kv_log_at(ls, i);

		pthread_mutex_lock(&lo->lo_lock);
		wrote = lo->lo_pending && lo->lo_pending->fr_epoch <= e;
		pthread_mutex_unlock(&lo->lo_lock);
	}
	return wrote;
}

/*
 * The log whose last frame of the epoch will carry the descriptor: one that
 * has records, else one that has room (large records lie in segments of their
 * own, whose frames are closed already). NULL: none is like that.
 */
static struct kv_log *pick_carrier(struct kvdb *db)
{
	struct kv_logs *ls = db->d_logs;
	struct kv_log *roomy = NULL;

	for (unsigned int i = 0; i < ls->ls_n * KV_STREAMS; i++) {
		struct kv_log *lo = kv_log_at(ls, i);

		if (kv_log_is_dirty(lo))
			return lo;
		if (!roomy && kv_log_has_room(lo))
			roomy = lo;
	}
	return roomy;
}

/* E2: puts the prepared memtables in front. */
static void switch_memtables(struct kvdb *db, uint64_t e)
{
	bool any = false, all = true;

	KV_ASSERT_HELD(&db->d_epochs.ep_tick_lock);
	pthread_mutex_lock(&db->d_stores.sr_lock);
	for (uint32_t i = 0; i < KVDB_KVS_MAX; i++) {
		struct kvdb_kvs *kvs = db->d_stores.sr_kvs[i];
		bool is_held = kvs && atomic_load(&kvs->k_linking);	/* T17 */
		struct kv_mt *next = kvs && CHECK(!is_held) ?
				     atomic_exchange(&kvs->k_next_mt, NULL) : NULL;
		struct kv_tree *tr = kvs ? atomic_load(&kvs->k_tree) : NULL;
		bool holds = tr && kv_mt_first_epoch(tr->tr_mt[0]);

		if (!next || !holds || tr->tr_nmt >= KV_MTS_MAX) {
			all &= !holds;
			if (next)
				kv_mt_put(db, next);
			continue;
		}
		atomic_store(&tr->tr_mt[0]->m_boundary, e);
		if (!any)
			atomic_fetch_add(&db->d_epochs.ep_seq, 1);
		any = true;
		/* H3: no version in it has a smaller stamp */
		atomic_store(&next->m_min_seq, atomic_load(&db->d_epochs.ep_seq));
		if (kv_tree_switch(kvs, next)) {
			atomic_store(&tr->tr_mt[0]->m_boundary, 0);
			kv_mt_put(db, next);
			all = false;
		}
	}
	if (all) {
		/*
		 * versions of later epochs are not installed before this one is closed; no put
		 * has this very stamp
		 */
		atomic_store(&db->d_epochs.ep_boundary_seq,
			     atomic_fetch_add(&db->d_epochs.ep_seq, 2) + 1);
		atomic_store(&db->d_epochs.ep_boundary, e);
	}
	pthread_mutex_unlock(&db->d_stores.sr_lock);
}

/* What a descriptor takes, if @more segments join the epoch than did so far. */
static uint32_t desc_room(struct kvdb *db, uint64_t e, uint32_t more)
{
	return KV_REC_HDR + kv_desc_size(count_segs(db, e) + more + DESC_SLACK);
}

/*
 * Closes all logs. *carrier is the frame that takes the descriptor, with
 * *room bytes kept for it, or NULL when there is no such room. False when
 * nothing was written in the epoch. ep_tick_lock held.
 */
static bool close_logs(struct kvdb *db, uint64_t e, struct kv_frame **carrier, uint32_t *room)
{
	struct kv_logs *ls = db->d_logs;
	struct kv_log *c = pick_carrier(db);
	unsigned int n = ls->ls_n * KV_STREAMS;

	KV_ASSERT_HELD(&db->d_epochs.ep_tick_lock);
	*carrier = NULL;
	for (unsigned int i = 0; i < n; i++) {
		struct kv_log *lo = kv_log_at(ls, i);

		if (lo == c)
			continue;
		/* E7: without @c one may have got a segment since, and a record of this epoch */
		if (c || *carrier) {
			kv_log_close(db, lo, e, 0, false);
		} else {
			*room = desc_room(db, e, n);
			*carrier = kv_log_close(db, lo, e, *room, false);
		}
	}
	if (c) {
		*room = desc_room(db, e, 1);
		*carrier = kv_log_close(db, c, e, *room, epoch_wrote(db, e));
	}
	return *carrier || epoch_wrote(db, e);
}

/* Ends epoch @e = ep_open; as close_logs(). */
static bool close_epoch(struct kvdb *db, uint64_t e, struct kv_frame **carrier, uint32_t *room)
{
	struct kv_thread *t = kv_enter();
	bool wrote;

	KV_ASSERT_HELD(&db->d_flusher->fl_io_lock);
	KV_ASSERT(atomic_load(&db->d_epochs.ep_closed) < e);
	pthread_mutex_lock(&db->d_epochs.ep_tick_lock);
	/* first, so that a writer that is overtaken by a closed log sees it (R7) */
	atomic_store(&db->d_epochs.ep_open, e + 1);
	wrote = close_logs(db, e, carrier, room);
	if (!frames_done(db, e))
		kv_tctx_each(db, resolve_slot, &e);
	switch_memtables(db, e);
	kv_desc_closed(db);
	db->d_flusher->fl_lag.lg_epoch_bytes = atomic_exchange(&db->d_logs->ls_epoch_bytes, 0);
	atomic_store(&db->d_epochs.ep_closed, e);
	pthread_mutex_unlock(&db->d_epochs.ep_tick_lock);
	kv_exit(t);
	return wrote;
}

void kv_closed_wait(struct kvdb *db, uint64_t e)
{
	uint64_t t0 = kv_now(db);

	KV_ASSERT_FREE(&db->d_epochs.ep_tick_lock);
	while (atomic_load(&db->d_epochs.ep_closed) + 1 < e) {
		pthread_mutex_lock(&db->d_epochs.ep_tick_lock);
		pthread_mutex_unlock(&db->d_epochs.ep_tick_lock);
	}
	kv_delayed(db, KVDB_DELAY_FRAME, kv_now(db) - t0);
}

/* ---- writing -------------------------------------------------------------------- */

/* Time since @t0 of one call to a device, which is recorded. */
static uint64_t device_took(struct kvdb *db, uint64_t t0)
{
	_Atomic(uint64_t) *max = &db->d_count.log_device_max_ns;
	uint64_t ns = kv_now(db) - t0;

	if (ns > atomic_load(max))
		atomic_store(max, ns);
	return ns;
}

/* Takes completions; with @all until nothing is in flight. */
static int reap(struct kvdb *db, bool all)
{
	struct kv_flusher *fl = db->d_flusher;
	struct mpool_cqe cqe[IOQ_DEPTH];
	int err = 0;

	while (fl->fl_inflight) {
		uint64_t t0 = kv_now(db);
		int n = mpool_ioq_reap(fl->fl_ioq, cqe, IOQ_DEPTH, all ? 1 : 0, all ? -1 : 0);

		device_took(db, t0);
		if (n < 0)
			return kv_fail(db, n, "reaping log writes failed");
		if (n == 0)
			break;
		for (int i = 0; i < n; i++) {
			struct kv_frame *f = (struct kv_frame *)(uintptr_t)cqe[i].cookie;

			KV_ASSERT(fl->fl_inflight);
			KV_ASSERT(atomic_load(&db->d_logs->ls_unwritten) >= f->fr_space);
			fl->fl_inflight--;
			atomic_fetch_sub(&db->d_logs->ls_unwritten, f->fr_space);
			kv_lag_written(db, f->fr_space);
			if (cqe[i].res < 0)
				err = kv_fail(db, (int)cqe[i].res,
					      "log segment %llu: write at %u failed",
					      (unsigned long long)f->fr_seg->sg_id, f->fr_off);
		}
	}
	return err;
}

/* Notes how far the epoch got in a segment. */
static int note_seg(struct kvdb *db, struct kv_frame *f)
{
	struct kv_flusher *fl = db->d_flusher;
	uint32_t i = fl->fl_nsegs;
	int err;

	KV_ASSERT_HELD(&fl->fl_io_lock);
	while (i && fl->fl_segs[i - 1].es_seg != f->fr_seg)
		i--;
	if (!i) {
		while (kv_vec_grow(&fl->fl_segs, &fl->fl_maxsegs, fl->fl_nsegs + 1,
				   sizeof(fl->fl_segs[0])))
			if ((err = kv_sleep_or_stop(db)))
				return err;
		i = ++fl->fl_nsegs;
		fl->fl_segs[i - 1] = (struct kv_epoch_seg){ .es_seg = f->fr_seg };
	}
	KV_ASSERT(f->fr_off >= fl->fl_segs[i - 1].es_end);
	fl->fl_segs[i - 1].es_end = f->fr_off + f->fr_space;
	fl->fl_segs[i - 1].es_chain = f->fr_seg->sg_chain;
	return 0;
}

/* A frame that was taken from its log but will never be written goes when the flusher ends. */
static int unwritten(struct kvdb *db, struct kv_frame *f, int err)
{
	f->fr_next = db->d_flusher->fl_written;
	db->d_flusher->fl_written = f;
	return err;
}

/* Starts the write of a sealed frame. */
static int submit(struct kvdb *db, struct kv_frame *f)
{
	struct kv_flusher *fl = db->d_flusher;
	struct mpool_io io = { .obj = f->fr_seg->sg_obj, .type = MPOOL_WRITE, .iovcnt = 1,
			       .off = f->fr_off, .iov = &f->fr_iov, .cookie = (uintptr_t)f };
	uint64_t t0;
	int n, err;

	KV_ASSERT_HELD(&fl->fl_io_lock);
	KV_ASSERT_FREE(&db->d_epochs.ep_tick_lock);
	KV_ASSERT_FREE(&f->fr_log->lo_lock);
	if (!fl->fl_inflight)
		kv_lag_busy(db);
	f->fr_next = fl->fl_written;
	fl->fl_written = f;
	fl->fl_classes |= 1u << f->fr_seg->sg_mclass;
	atomic_fetch_add(&db->d_count.log_bytes[f->fr_seg->sg_mclass], f->fr_iov.iov_len);
	for (;;) {
		t0 = kv_now(db);
		n = mpool_ioq_submit(fl->fl_ioq, &io, 1);
		device_took(db, t0);
		if (n == 1)
			break;
		if (n < 0)
			return kv_fail(db, n, "log segment %llu: write at %u refused",
				       (unsigned long long)f->fr_seg->sg_id, f->fr_off);
		err = reap(db, true);
		if (err)
			return err;
	}
	fl->fl_inflight++;
	return reap(db, false);
}

static int write_frame(struct kvdb *db, struct kv_frame *f)
{
	uint8_t *src = kv_frame_source(db, f);
	int err = src ? 0 : kv_fault(db);

	if (!err) {
		kv_frame_seal(db, f, src);
		err = note_seg(db, f);
	}
	return err ? unwritten(db, f, err) : submit(db, f);
}

/* Takes the log's oldest pending frame of an epoch <= @e; @done_only: if its writers are done. */
static struct kv_frame *take_pending(struct kv_log *lo, uint64_t e, bool done_only,
				     const struct kv_frame *but)
{
	struct kv_frame *f;

	pthread_mutex_lock(&lo->lo_lock);
	f = lo->lo_pending;
	if (f && (f == but || f->fr_epoch > e || (done_only && !kv_frame_is_done(f))))
		f = NULL;
	if (f) {
		lo->lo_pending = f->fr_next;
		if (!lo->lo_pending)
			lo->lo_tail = &lo->lo_pending;
	}
	pthread_mutex_unlock(&lo->lo_lock);
	return f;
}

/* Writes pending frames of epochs <= e, but for the carrier. */
static int write_pending(struct kvdb *db, uint64_t e, bool done_only, const struct kv_frame *but)
{
	struct kv_logs *ls = db->d_logs;
	struct kv_frame *f;
	int err;

	for (unsigned int i = 0; i < ls->ls_n * KV_STREAMS; i++) {
		while ((f = take_pending(kv_log_at(ls, i), e, done_only, but))) {
			err = write_frame(db, f);
			if (err)
				return err;
		}
	}
	return 0;
}

/* A frame of its own for a descriptor that found no room after another (E7). */
static int lone_carrier(struct kvdb *db, uint64_t e, uint32_t room, struct kv_frame **out)
{
	struct kv_log *lo = kv_log_at(db->d_logs, 0);
	uint32_t bytes = kv_frame_space(KV_FRAME_HDR + room), off;
	struct kv_seg *s;
	int err = kv_desc_take(db, e, bytes, &s, &off);

	while (!err && !(*out = kv_frame_new(lo, s, atomic_load(&s->sg_image), off,
					     KV_FRAME_HDR + room, e)))
		err = kv_sleep_or_stop(db);
	if (err)
		return err;
	(*out)->fr_len = KV_FRAME_HDR;
	(*out)->fr_space = bytes;
	atomic_fetch_add(&db->d_logs->ls_unwritten, bytes);
	return 0;
}

/* Adds the descriptor to its carrier and writes it (R2). */
static int write_carrier(struct kvdb *db, struct kv_frame *f, uint64_t e)
{
	struct kv_flusher *fl = db->d_flusher;
	uint8_t *src = kv_frame_source(db, f);
	struct kv_seg *s = f->fr_seg;
	struct kv_desc d = { .ds_incarnation = db->d_ident.id_incarnation, .ds_epoch = e,
			     .ds_prev_epoch = db->d_epochs.ep_desc.epoch,
			     .ds_prev_obj = db->d_epochs.ep_desc.obj,
			     .ds_prev_off = db->d_epochs.ep_desc.off };
	struct kv_desc_ent *ents;
	uint32_t i, chain = s->sg_chain, size;
	int err = src ? note_seg(db, f) : kv_fault(db);

	KV_ASSERT(d.ds_prev_epoch < e && f->fr_epoch == e);
	if (err)
		return unwritten(db, f, err);
	/* readers refuse more: an epoch without a proof must not count as durable */
	if (!CHECK(fl->fl_nsegs <= KV_DESC_ENTS_MAX))
		return unwritten(db, f, kv_fail(db, -E2BIG,
						"an epoch wrote to %u log segments, more than %u",
						fl->fl_nsegs, KV_DESC_ENTS_MAX));
	d.ds_n = fl->fl_nsegs;
	size = KV_REC_HDR + kv_pad8(kv_desc_size(d.ds_n));
	ents = kv_realloc_wait(db, NULL, d.ds_n * sizeof(*ents));
	if (!ents)
		return unwritten(db, f, kv_fault(db));
	for (i = 0; i < d.ds_n; i++) {
		struct kv_epoch_seg *es = &fl->fl_segs[i];

		ents[i] = (struct kv_desc_ent){ es->es_seg->sg_id, es->es_end, es->es_chain };
		if (es->es_seg == s) {	/* the carrier's own: the chain before it */
			ents[i].de_chain = chain;
		}
	}
	kv_desc_encode(src + f->fr_len, s->sg_id, f->fr_off + f->fr_len, &d, ents);
	free(ents);
	f->fr_len += size;
	f->fr_nrec++;
	kv_frame_seal(db, f, src);
	db->d_epochs.ep_desc.epoch = e;
	db->d_epochs.ep_desc.obj = s->sg_id;
	db->d_epochs.ep_desc.off = f->fr_off;
	return submit(db, f);
}

/* ---- durability ------------------------------------------------------------------- */

static void retire_written(struct kv_flusher *fl)
{
	struct kv_frame *f;

	while ((f = fl->fl_written)) {
		fl->fl_written = f->fr_next;
		kv_frame_retire(f);
	}
}

static uint64_t gate_of(struct kvdb *db, uint64_t birth)
{
	uint64_t bound = (uint64_t)db->d_mode.md_interval_ms * 1000000u;

	if (!birth || db->d_mode.md_interval_ms == KVDB_INTERVAL_NONE)
		return UINT64_MAX;
	return birth + bound - bound / 16;
}

void kv_gate_set(struct kvdb *db, uint64_t e)
{
	struct kv_flusher *fl = db->d_flusher;
	_Atomic(uint64_t) *birth = &db->d_logs->ls_birth[e % 4];
	uint64_t durable;

	pthread_mutex_lock(&fl->fl_lock);
	durable = atomic_load(&db->d_epochs.ep_durable);
	/* a writer that was withdrawn long ago must not leave a birth to epoch e + 4 */
	if (durable < e && !atomic_load(birth))
		atomic_store(birth, kv_now(db));
	if (durable + 1 == e)
		atomic_store(&fl->fl_gate_ns, gate_of(db, atomic_load(birth)));
	pthread_cond_signal(&fl->fl_wake);
	pthread_mutex_unlock(&fl->fl_lock);
}

static uint32_t turn_bit(uint64_t epoch)
{
	return 1u << epoch % 32;
}

/* After what is waited for. */
static void next_turn(struct kv_flusher *fl, uint32_t bits)
{
	atomic_fetch_add(&fl->fl_turn, 1);
	kv_futex_wake(&fl->fl_turn, INT_MAX, bits);
}

/* E3: @e is durable: lets waiters go and moves the gate to the next epoch. */
static void publish(struct kvdb *db, uint64_t e)
{
	struct kv_flusher *fl = db->d_flusher;
	_Atomic(uint64_t) *birth = db->d_logs->ls_birth;
	uint64_t b;

	KV_ASSERT_HELD(&fl->fl_io_lock);
	KV_ASSERT(atomic_load(&db->d_epochs.ep_durable) < e);
	KV_ASSERT(atomic_load(&db->d_epochs.ep_closed) >= e);
	pthread_mutex_lock(&fl->fl_lock);
	b = atomic_exchange(&birth[e % 4], 0);
	if (b && db->d_mode.md_interval_ms != KVDB_INTERVAL_NONE &&
	    kv_now(db) - b > (uint64_t)db->d_mode.md_interval_ms * 500000u)
		atomic_fetch_add(&db->d_count.durability_late, 1);
	atomic_store(&db->d_epochs.ep_durable, e);
	atomic_store(&fl->fl_gate_ns, gate_of(db, atomic_load(&birth[(e + 1) % 4])));
	pthread_mutex_unlock(&fl->fl_lock);
	next_turn(fl, turn_bit(e));
	db->d_hooks->ho_cqs_wake(db);
	kv_work_tick(db);
}

static int write_epoch(struct kvdb *db, uint64_t e, struct kv_frame *carrier, uint32_t room)
{
	struct kv_flusher *fl = db->d_flusher;
	struct kv_frame *f;
	uint64_t t0;
	uint32_t need;
	int err;

	err = reap(db, false);
	kv_lag_begin(db);
	if (!err)
		err = write_pending(db, e, false, carrier);
	if (err)
		return err;
	need = KV_REC_HDR + kv_pad8(kv_desc_size(fl->fl_nsegs + 1));
	if (carrier) {
		f = take_pending(carrier->fr_log, e, false, NULL);
		if (f != carrier)
			return kv_fail(db, -EUCLEAN, "log frames out of order");
		if (need > room) {	/* more segments joined than were counted */
			err = write_frame(db, carrier);
			if (err)
				return err;
			carrier = NULL;
			need += KV_DESC_ENT;
		}
	}
	if (!carrier) {
		room = need;
		err = lone_carrier(db, e, room, &carrier);
		if (err)
			return err;
	}
	err = write_carrier(db, carrier, e);
	if (!err)
		err = reap(db, true);
	if (err)
		return err;
	kv_lag_end(db, e);
	t0 = kv_now(db);
	KV_ASSERT(!fl->fl_inflight);
	err = BARRIER(mpool_flush(db->d_mp, fl->fl_classes));
	if (err)
		return kv_fail(db, err, "flush of the log devices failed");
	kv_lag_flushed(db, device_took(db, t0));
	fl->fl_classes = 0;
	fl->fl_nsegs = 0;
	retire_written(fl);
	return 0;
}

/* Ends the open epoch and makes it durable. fl_io_lock held. */
static int epoch_run(struct kvdb *db)
{
	uint64_t e = atomic_load(&db->d_epochs.ep_open);
	struct kv_frame *carrier = NULL;
	uint32_t room = 0;
	int err = kv_fault(db);
	bool wrote;

	KV_ASSERT_HELD(&db->d_flusher->fl_io_lock);
	if (err)
		return err;
	/* TH-8: neither the close nor what follows it waits for memory under a lock */
	kv_logs_spare(db);
	wrote = close_epoch(db, e, &carrier, &room);
	kv_logs_spare(db);
	err = kv_fault(db);
	if (err)
		return err;	/* a log may have stayed open */
	if (wrote) {
		err = write_epoch(db, e, carrier, room);
		if (err)
			return err;
	}
	kv_desc_done(db);
	publish(db, e);
	kv_segs_durable(db);
	db->d_hooks->ho_pressure(db);
	return 0;
}

/* With KVDB_MANUAL the caller does it. */
static int run_until(struct kvdb *db, uint64_t epoch)
{
	struct kv_flusher *fl = db->d_flusher;
	int err = 0;

	KV_ASSERT_OUTSIDE();
	pthread_mutex_lock(&fl->fl_io_lock);
	while (!err && atomic_load(&db->d_epochs.ep_durable) < epoch)
		err = epoch_run(db);
	/* the queue is this thread's while anything is in flight: no other can wait for it */
	if (err)
		reap(db, true);
	pthread_mutex_unlock(&fl->fl_io_lock);
	if (kv_durable_has(db))
		kv_durable_run(db, false);
	return err;
}

/* The thread that stored a later epoch woke the flusher, which goes on until that is durable. */
static void want(struct kv_flusher *fl, uint64_t epoch)
{
	if (atomic_load(&fl->fl_want) >= epoch)
		return;
	pthread_mutex_lock(&fl->fl_lock);
	if (atomic_load(&fl->fl_want) < epoch)
		atomic_store(&fl->fl_want, epoch);
	pthread_cond_signal(&fl->fl_wake);
	pthread_mutex_unlock(&fl->fl_lock);
}

int kv_wait_durable_until(struct kvdb *db, uint64_t epoch, const struct timespec *until)
{
	struct kv_flusher *fl = db->d_flusher;
	bool is_late = false;
	uint64_t began;
	uint32_t turn;

	KV_ASSERT_OUTSIDE();
	KV_ASSERT(epoch <= atomic_load(&db->d_epochs.ep_open));
	if (kv_is_manual(db))
		return run_until(db, epoch);
	began = kv_wait_begin();
	want(fl, epoch);
	while (turn = atomic_load(&fl->fl_turn), !is_late &&
	       atomic_load(&db->d_epochs.ep_durable) < epoch && !kv_fault(db))
		is_late = kv_futex_wait_until(&fl->fl_turn, turn, turn_bit(epoch), until);
	kv_wait_end(KVDB_DELAY_DURABLE, began);
	if (CHECK(atomic_load(&db->d_epochs.ep_durable) >= epoch))
		return 0;
	return kv_fault(db) ? kv_fault(db) : -ETIMEDOUT;
}

int kv_wait_durable(struct kvdb *db, uint64_t epoch)
{
	return kv_wait_durable_until(db, epoch, NULL);
}

void kv_want_durable(struct kvdb *db, uint64_t epoch)
{
	want(db->d_flusher, epoch);
}

int kv_epoch_force(struct kvdb *db)
{
	return kv_wait_durable(db, atomic_load(&db->d_epochs.ep_open));
}

uint64_t kv_sync_epoch(struct kvdb *db)
{
	uint64_t e = atomic_load(&db->d_epochs.ep_open);

	/* if nothing was reserved in the open epoch, all acknowledged writes are older */
	return atomic_load(&db->d_logs->ls_birth[e % 4]) ? e : e - 1;
}

int kv_epoch_sync(struct kvdb *db)
{
	int err = kv_fault(db);

	return err ? err : kv_wait_durable(db, kv_sync_epoch(db));
}

int kv_change_sync(struct kvdb *db)
{
	/* without logs nothing was acknowledged */
	return db->d_flusher ? kv_error_stopped(db, BARRIER(kv_epoch_sync(db))) : 0;
}

/* ---- the gate ------------------------------------------------------------------------ */

bool kv_gate_is_shut(struct kvdb *db)
{
	uint64_t gate = atomic_load_explicit(&db->d_flusher->fl_gate_ns, memory_order_relaxed);

	return gate != UINT64_MAX && kv_now(db) >= gate;
}

static int gate_wait(struct kvdb *db)
{
	struct kv_flusher *fl = db->d_flusher;
	uint64_t t0 = kv_now(db), waits = kv_wait_begin(), e;
	int err = 0;

	atomic_fetch_add(&db->d_count.gate_waits, 1);
	while (!err && kv_now(db) >= atomic_load(&fl->fl_gate_ns)) {
		e = atomic_load(&db->d_epochs.ep_durable) + 1;
		err = kv_wait_durable(db, e);
	}
	t0 = kv_now(db) - t0;
	atomic_fetch_add(&db->d_count.gate_wait_ns, t0);
	kv_delayed(db, KVDB_DELAY_GATE, t0);
	kv_wait_end(KVDB_DELAY_GATE, waits);
	return err;
}

int kv_gate_wait(struct kvdb *db)
{
	return BARRIER(gate_wait(db));
}

/* ---- the flusher's thread --------------------------------------------------------------- */

void kv_flusher_kick(struct kvdb *db)
{
	struct kv_flusher *fl = db->d_flusher;

	if (kv_is_manual(db))
		return;
	pthread_mutex_lock(&fl->fl_lock);
	fl->fl_kicked = true;
	pthread_cond_signal(&fl->fl_wake);
	pthread_mutex_unlock(&fl->fl_lock);
}

void kv_flusher_tick(struct kvdb *db)
{
	want(db->d_flusher, atomic_load(&db->d_epochs.ep_open));
}

void kv_flusher_room(struct kvdb *db)
{
	struct kv_flusher *fl = db->d_flusher;

	if (!fl)
		return;
	db->d_hooks->ho_pressure(db);
	pthread_mutex_lock(&fl->fl_lock);
	pthread_cond_broadcast(&fl->fl_done);
	pthread_mutex_unlock(&fl->fl_lock);
	db->d_hooks->ho_cqs_wake(db);
}

/* When the open epoch must end, in ns; UINT64_MAX = not by time. */
static uint64_t tick_due(struct kvdb *db)
{
	uint64_t e = atomic_load(&db->d_epochs.ep_open);
	uint64_t birth = atomic_load(&db->d_logs->ls_birth[e % 4]);
	uint64_t span = kv_quarter_ns(db);

	if (!birth)
		return UINT64_MAX;
	/* TH-12: little is old when a device begins to pause */
	if (db->d_mode.md_interval_ms != KVDB_INTERVAL_NONE &&
	    atomic_load(&db->d_logs->ls_epoch_bytes) >= kv_lag_least(db))
		span = kv_lag_epoch_ns(db);
	return birth + span;
}

bool kv_epoch_is_due(struct kvdb *db)
{
	struct kv_flusher *fl = db->d_flusher;
	bool due;

	pthread_mutex_lock(&fl->fl_lock);
	due = atomic_load(&fl->fl_want) > atomic_load(&db->d_epochs.ep_durable) ||
	      kv_now(db) >= tick_due(db) ||
	      atomic_load(&db->d_logs->ls_epoch_bytes) >= TICK_BYTES;
	pthread_mutex_unlock(&fl->fl_lock);
	return due;
}

/* Sleeps until something is due; true = the end. */
static bool flusher_sleep(struct kvdb *db)
{
	struct kv_flusher *fl = db->d_flusher;
	struct timespec ts;
	uint64_t due;
	bool end;

	pthread_mutex_lock(&fl->fl_lock);
	while (!fl->fl_stop && !fl->fl_kicked && !kv_fault(db) &&
	       atomic_load(&fl->fl_want) <= atomic_load(&db->d_epochs.ep_durable)) {
		due = tick_due(db);
		if (due == UINT64_MAX) {
			pthread_cond_wait(&fl->fl_wake, &fl->fl_lock);
			continue;
		}
		if (kv_now(db) >= due)
			break;
		ts.tv_sec = (time_t)(due / 1000000000u);
		ts.tv_nsec = (long)(due % 1000000000u);
		pthread_cond_timedwait(&fl->fl_wake, &fl->fl_lock, &ts);
	}
	fl->fl_kicked = false;
	end = fl->fl_stop || kv_fault(db);
	pthread_mutex_unlock(&fl->fl_lock);
	return end;
}

static void *flusher_main(void *arg)
{
	struct kvdb *db = arg;
	struct kv_flusher *fl = db->d_flusher;

	while (!flusher_sleep(db)) {
		pthread_mutex_lock(&fl->fl_io_lock);
		if (kv_epoch_is_due(db)) {
			epoch_run(db);
		} else {
			write_pending(db, atomic_load(&db->d_epochs.ep_open), true, NULL);
			db->d_hooks->ho_pressure(db);
		}
		pthread_mutex_unlock(&fl->fl_io_lock);
		if (kv_durable_has(db))
			kv_durable_run(db, false);
	}
	if (kv_durable_has(db))
		kv_durable_run(db, false);
	/* the queue belongs to this thread while anything is in flight */
	reap(db, true);
	return NULL;
}

void kv_flusher_failed(struct kvdb *db)
{
	struct kv_flusher *fl = db->d_flusher;

	if (!fl)
		return;
	pthread_mutex_lock(&fl->fl_lock);
	pthread_cond_broadcast(&fl->fl_done);
	pthread_cond_broadcast(&fl->fl_wake);
	pthread_mutex_unlock(&fl->fl_lock);
	next_turn(fl, KV_FUTEX_ALL);
	db->d_hooks->ho_cqs_wake(db);
}

int kv_flusher_start(struct kvdb *db)
{
	struct kv_flusher *fl = calloc(1, sizeof(*fl));
	pthread_condattr_t ca;
	int err;

	if (!fl)
		return -ENOMEM;
	pthread_condattr_init(&ca);
	pthread_condattr_setclock(&ca, CLOCK_MONOTONIC);
	pthread_cond_init(&fl->fl_wake, &ca);
	pthread_cond_init(&fl->fl_done, &ca);
	pthread_condattr_destroy(&ca);
	pthread_mutex_init(&fl->fl_lock, NULL);
	pthread_mutex_init(&fl->fl_io_lock, NULL);
	atomic_store(&fl->fl_gate_ns, UINT64_MAX);
	kv_desc_init(&fl->fl_descs);
	db->d_flusher = fl;
	kv_lag_init(db);
	err = mpool_ioq_open(db->d_mp, IOQ_DEPTH, &fl->fl_ioq);
	if (err) {
		kv_flusher_stop(db);
		return kv_error_mpool(err);
	}
	if (kv_is_manual(db))
		return 0;
	err = kv_thread_start(&fl->fl_thread, flusher_main, db);
	if (err) {
		kv_flusher_stop(db);
		return kv_error(-err, "MP0994", "cannot start the flusher's thread");
	}
	fl->fl_started = true;
	return 0;
}

void kv_flusher_stop(struct kvdb *db)
{
	struct kv_flusher *fl = db->d_flusher;

	if (!fl)
		return;
	pthread_mutex_lock(&fl->fl_lock);
	fl->fl_stop = true;
	pthread_cond_signal(&fl->fl_wake);
	pthread_mutex_unlock(&fl->fl_lock);
	if (fl->fl_started)
		pthread_join(fl->fl_thread, NULL);
	else
		reap(db, true);
	/* its writer has reaped; the queue ends before the frames it reads from */
	mpool_ioq_close(fl->fl_ioq);
	kv_desc_fini(db);
	retire_written(fl);
	free(fl->fl_segs);
	pthread_cond_destroy(&fl->fl_wake);
	pthread_cond_destroy(&fl->fl_done);
	pthread_mutex_destroy(&fl->fl_lock);
	pthread_mutex_destroy(&fl->fl_io_lock);
	db->d_flusher = NULL;
	free(fl);
}
