/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Logs: reservation of records, frames, segments in use.
 *
 * Invariants L1, L2, L3: README.md.
 *
 * Locks: ep_tick_lock > lo_lock > seg.c's. Nothing does I/O under lo_lock: a thread
 * that allocates a segment lets go of it, and lo_is_preparing keeps the others waiting.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/guard.h"
#include "db/bell.h"
#include "db/thread.h"
#include "cache/slab.h"
#include "seg/seg.h"
#include "seg/value.h"
#include "log/flush.h"

#define WORD(seq, n, len)	((uint64_t)(seq) << 40 | (uint64_t)(n) << 20 | (len) >> 3)
#define WORD_SEQ(w)		((uint32_t)((w) >> 40))
#define WORD_N(w)		((uint32_t)((w) >> 20) & 0xfffffu)
#define WORD_LEN(w)		(((uint32_t)(w) & 0xfffffu) << 3)
#define SEQ_MASK		0xffffffu
#define WORD_FULL		0xfffffull	/* a length beyond every frame */

/* A log has ready what it fills in this time: no put waits for a device that takes as long. */
#define AHEAD_NS		100000000u

#define ROLL_NS			50000u	/* a new frame took as long: that was a wait */

static void frame_free(void *arg)
{
	struct kv_frame *f = arg;

	free(f->fr_bounce);
	free(f);
}

void kv_frame_retire(struct kv_frame *f)
{
	kv_retire(&f->fr_limbo, frame_free, f);
}

static struct kv_frame *frame_new(struct kv_log *lo, struct kv_seg *s, size_t records)
{
	struct kv_frame *f = calloc(1, sizeof(*f) + records * sizeof(f->fr_rec[0]));

	if (!f)
		return NULL;
	f->fr_log = lo;
	f->fr_seg = s;
	return f;
}

/* Records that a frame of @cap bytes may hold. */
static size_t frame_records(const struct kv_log *lo, uint32_t cap)
{
	/* the shortest record has a one-byte key, or value; those in the value log are longer */
	size_t rec = KV_REC_HDR + KV_REC_ALIGN + (lo->lo_stream == KV_VLOG ? KV_INLINE_MAX : 0);

	return cap / rec + 1;
}

/* Has a frame ready: under lo_lock its memory would keep all writers of the log waiting. */
static void make_spare(struct kv_log *lo)
{
	struct kv_frame *f, *none = NULL;

	if (atomic_load(&lo->lo_spare))
		return;
	f = frame_new(lo, NULL, frame_records(lo, lo->lo_frame_max));
	if (f && !atomic_compare_exchange_strong(&lo->lo_spare, &none, f))
		frame_free(f);
}

void kv_logs_spare(struct kvdb *db)
{
	struct kv_logs *ls = db->d_logs;

	for (unsigned int i = 0; i < ls->ls_n * KV_STREAMS; i++)
		if (!CHECK(!kv_log_has_room(kv_log_at(ls, i))))
			make_spare(kv_log_at(ls, i));
}

struct kv_frame *kv_frame_new(struct kv_log *lo, struct kv_seg *s, uint8_t *image, uint32_t off,
			      uint32_t cap, uint64_t epoch)
{
	struct kv_frame *f = NULL;

	KV_ASSERT(off % KV_BLOCK == 0 && (!s || off + cap <= s->sg_bytes));
	if (cap && cap <= lo->lo_frame_max)
		f = atomic_exchange(&lo->lo_spare, NULL);
	if (!f)
		f = frame_new(lo, s, frame_records(lo, cap));
	if (!f)
		return NULL;
	f->fr_seg = s;
	f->fr_base = image ? image + off : NULL;
	f->fr_off = off;
	f->fr_cap = cap;
	f->fr_epoch = epoch;
	return f;
}

struct kv_frame *kv_frame_new_own(struct kv_log *lo, struct kv_seg *s, uint32_t off, uint32_t size)
{
	struct kv_frame *f = frame_new(lo, s, 1);

	if (!f)
		return NULL;
	f->fr_base = atomic_load(&s->sg_image) + off;
	f->fr_off = off;
	f->fr_len = KV_FRAME_HDR + size;
	f->fr_space = kv_frame_space(f->fr_len);
	KV_ASSERT(off % KV_BLOCK == 0 && off + f->fr_space <= s->sg_bytes);
	f->fr_nrec = 1;
	return f;
}

int kv_logs_init(struct kvdb *db)
{
	struct kv_logs *ls = calloc(1, sizeof(*ls));
	unsigned int i, n = db->d_budget.b_logs;

	if (!ls)
		return -ENOMEM;
	ls->ls_n = n;
	/* what was replayed lies at the beginning (m_log_pos 0): log_bytes bounds both together */
	atomic_store(&db->d_logged.lc_bytes, 1 + db->d_logged.lc_left);
	ls->ls_log = aligned_alloc(KV_CACHELINE, sizeof(struct kv_log) * n * KV_STREAMS);
	if (!ls->ls_log) {
		free(ls);
		return -ENOMEM;
	}
	memset(ls->ls_log, 0, sizeof(struct kv_log) * n * KV_STREAMS);
	pthread_mutex_init(&ls->ls_large_lock, NULL);
	pthread_mutex_init(&ls->ls_alone_lock, NULL);
	db->d_logs = ls;
	for (i = 0; i < n * KV_STREAMS; i++) {
		struct kv_log *lo = kv_log_at(ls, i);
		/* full from birth: the first reservation asks for a segment */
		struct kv_frame *f = kv_frame_new(lo, NULL, NULL, 0, 0, 0);

		pthread_mutex_init(&lo->lo_lock, NULL);
		pthread_cond_init(&lo->lo_ready, NULL);
		lo->lo_no = (uint16_t)(i % n);
		lo->lo_stream = (uint8_t)(i / n);
		lo->lo_frame_max = db->d_budget.b_frame_max;
		lo->lo_tail = &lo->lo_pending;
		lo->lo_next_tail = &lo->lo_next;
		lo->lo_ahead = 1;
		if (!f) {
			kv_logs_fini(db);
			return -ENOMEM;
		}
		f->fr_epoch = atomic_load(&db->d_epochs.ep_open);
		atomic_store(&lo->lo_frame[0], f);
		atomic_store(&lo->lo_word, WORD(0, 0, KV_FRAME_HDR));
	}
	return 0;
}

/* Appends a prepared segment. lo_lock held. */
static void next_add(struct kv_log *lo, struct kv_seg *s)
{
	KV_ASSERT_HELD(&lo->lo_lock);
	s->sg_full_next = NULL;
	*lo->lo_next_tail = s;
	lo->lo_next_tail = &s->sg_full_next;
	lo->lo_nnext++;
}

/* Puts one before all others that are prepared. lo_lock held. */
static void next_push(struct kv_log *lo, struct kv_seg *s)
{
	KV_ASSERT_HELD(&lo->lo_lock);
	s->sg_full_next = lo->lo_next;
	if (!lo->lo_next)
		lo->lo_next_tail = &s->sg_full_next;
	lo->lo_next = s;
	lo->lo_nnext++;
}

/* Takes the first prepared segment, or NULL. lo_lock held. */
static struct kv_seg *next_take(struct kv_log *lo)
{
	struct kv_seg *s = lo->lo_next;

	KV_ASSERT_HELD(&lo->lo_lock);
	if (!s)
		return NULL;
	lo->lo_next = s->sg_full_next;
	if (!lo->lo_next)
		lo->lo_next_tail = &lo->lo_next;
	s->sg_full_next = NULL;
	lo->lo_nnext--;
	return s;
}

static void log_fini(struct kvdb *db, struct kv_log *lo)
{
	struct kv_frame *f;
	struct kv_seg *s;

	while ((f = lo->lo_pending)) {
		lo->lo_pending = f->fr_next;
		frame_free(f);
	}
	f = atomic_load(&lo->lo_frame[WORD_SEQ(atomic_load(&lo->lo_word)) % 4]);
	if (f)
		frame_free(f);
	f = atomic_load(&lo->lo_spare);
	if (f)
		frame_free(f);
	if (lo->lo_seg)
		kv_seg_put(db, lo->lo_seg);
	if (lo->lo_large)
		kv_seg_put(db, lo->lo_large);
	pthread_mutex_lock(&lo->lo_lock);
	while ((s = next_take(lo)))
		kv_seg_put(db, s);
	pthread_mutex_unlock(&lo->lo_lock);
	pthread_mutex_destroy(&lo->lo_lock);
	pthread_cond_destroy(&lo->lo_ready);
}

void kv_logs_fini(struct kvdb *db)
{
	struct kv_logs *ls = db->d_logs;
	unsigned int i;

	if (!ls)
		return;
	for (i = 0; i < ls->ls_n * KV_STREAMS; i++)
		log_fini(db, kv_log_at(ls, i));
	pthread_mutex_destroy(&ls->ls_large_lock);
	pthread_mutex_destroy(&ls->ls_alone_lock);
	free(ls->ls_log);
	free(ls);
	db->d_logs = NULL;
}

struct kv_log *kv_log_pick(struct kvdb *db, enum kv_stream stream)
{
	struct kv_logs *ls = db->d_logs;
	int cpu = sched_getcpu();

	return &ls->ls_log[stream * ls->ls_n + (cpu < 0 ? 0u : (unsigned int)cpu) % ls->ls_n];
}

bool kv_log_is_dirty(struct kv_log *lo)
{
	return WORD_N(atomic_load(&lo->lo_word)) != 0;
}

bool kv_log_has_room(struct kv_log *lo)
{
	struct kv_frame *f;
	bool has;

	pthread_mutex_lock(&lo->lo_lock);
	f = atomic_load(&lo->lo_frame[WORD_SEQ(atomic_load(&lo->lo_word)) % 4]);
	has = f->fr_seg && f->fr_off + KV_BLOCK <= f->fr_seg->sg_bytes;
	pthread_mutex_unlock(&lo->lo_lock);
	return has;
}

/* lo_lock held */
static bool wants_segment(struct kv_log *lo)
{
	uint64_t w = atomic_load(&lo->lo_word);
	struct kv_frame *f = atomic_load(&lo->lo_frame[WORD_SEQ(w) % 4]);

	KV_ASSERT_HELD(&lo->lo_lock);
	return lo->lo_seg && lo->lo_nnext < lo->lo_ahead &&
	       (lo->lo_ahead > 1 || f->fr_off + WORD_LEN(w) > lo->lo_seg->sg_bytes / 8);
}

bool kv_log_wants_segment(struct kv_log *lo)
{
	bool wants;

	if (pthread_mutex_trylock(&lo->lo_lock))
		return false;
	wants = wants_segment(lo);
	pthread_mutex_unlock(&lo->lo_lock);
	return wants;
}

uint32_t kv_logs_ready(struct kvdb *db)
{
	struct kv_logs *ls = db->d_logs;
	uint32_t busy = 0, least = UINT32_MAX;

	for (unsigned int i = 0; i < ls->ls_n * KV_STREAMS; i++) {
		struct kv_log *lo = kv_log_at(ls, i);

		pthread_mutex_lock(&lo->lo_lock);
		if (lo->lo_ahead > 1) {
			busy++;
			if (lo->lo_nnext < least)
				least = lo->lo_nnext;
		}
		pthread_mutex_unlock(&lo->lo_lock);
	}
	return busy ? busy * least : UINT32_MAX;
}

/* The log will not write to @s again; drops the log's reference. */
static void seg_done(struct kvdb *db, struct kv_seg *s, uint32_t end)
{
	kv_seg_close(db, s, end);
	kv_seg_put(db, s);
}

/* Appends a closed frame to the pending list. lo_lock held. */
static void pend(struct kvdb *db, struct kv_log *lo, struct kv_frame *f)
{
	uint32_t bytes = f->fr_space;

	KV_ASSERT_HELD(&lo->lo_lock);
	KV_ASSERT(kv_frame_space(f->fr_len) <= bytes);
	KV_ASSERT(f->fr_off + bytes <= f->fr_seg->sg_bytes);
	/* the epochs of a segment ascend: RV22 */
	KV_ASSERT(atomic_load(&f->fr_seg->sg_last_epoch) <= f->fr_epoch);
	*lo->lo_tail = f;
	lo->lo_tail = &f->fr_next;
	if (!atomic_load(&f->fr_seg->sg_first_epoch))
		atomic_store(&f->fr_seg->sg_first_epoch, f->fr_epoch);
	atomic_store(&f->fr_seg->sg_last_epoch, f->fr_epoch);
	atomic_fetch_add(&db->d_logged.lc_bytes, bytes);
	atomic_fetch_add(&db->d_logs->ls_epoch_bytes, bytes);
	atomic_fetch_add(&db->d_logs->ls_unwritten, bytes);
}

/*
 * Stops reservations in the open frame and fixes its length. Reservers now
 * see a full frame and queue up in roll(), behind lo_lock. lo_lock held.
 */
static struct kv_frame *freeze(struct kv_log *lo, uint64_t *word)
{
	uint64_t w = atomic_load(&lo->lo_word);

	KV_ASSERT_HELD(&lo->lo_lock);
	while (!atomic_compare_exchange_weak(&lo->lo_word, &w, w | WORD_FULL))
		;
	KV_ASSERT((w & WORD_FULL) != WORD_FULL);
	*word = w;
	return atomic_load(&lo->lo_frame[WORD_SEQ(w) % 4]);
}

/* Reopens a frozen frame: nothing else can have changed the word. lo_lock held. */
static void thaw(struct kv_log *lo, uint64_t word)
{
	KV_ASSERT_HELD(&lo->lo_lock);
	KV_ASSERT(atomic_load(&lo->lo_word) == (word | WORD_FULL));
	atomic_store(&lo->lo_word, word);
}

/*
 * Makes @g the open frame in place of the frozen @f. f owns @space bytes and
 * becomes pending; 0 = it is empty and goes. lo_lock held.
 */
static void replace(struct kvdb *db, struct kv_log *lo, uint64_t word, struct kv_frame *f,
		    struct kv_frame *g, uint32_t space)
{
	uint32_t next = (WORD_SEQ(word) + 1) & SEQ_MASK;

	KV_ASSERT_HELD(&lo->lo_lock);
	KV_ASSERT(atomic_load(&lo->lo_word) == (word | WORD_FULL));
	KV_ASSERT(g->fr_epoch >= f->fr_epoch && (!f->fr_cap || WORD_LEN(word) <= f->fr_cap));
	f->fr_len = WORD_LEN(word);
	f->fr_nrec = WORD_N(word);
	f->fr_space = space;
	atomic_store(&lo->lo_frame[next % 4], g);
	atomic_store(&lo->lo_word, WORD(next, 0, KV_FRAME_HDR));
	if (space)
		pend(db, lo, f);
	else
		kv_frame_retire(f);
}

/* Room for the records of a frame of @want bytes at @off; 0 = the segment is full. */
static uint32_t frame_room(const struct kv_seg *s, uint32_t off, uint32_t want)
{
	uint32_t end = s->sg_bytes - KV_SEG_TAIL;
	uint32_t room = off < end ? end - off : 0;

	if (room <= KV_FRAME_HDR + KV_MARK_SIZE)
		return 0;
	return (want < room ? want : room) - KV_MARK_SIZE;
}

/* The frozen frame goes on; lets go of the log. */
static struct kv_frame *stay_open(struct kv_log *lo, uint64_t word)
{
	thaw(lo, word);
	pthread_mutex_unlock(&lo->lo_lock);
	return NULL;
}

/* Does a descriptor of @room bytes fit after the frozen frame? lo_lock held. */
static bool takes_desc(const struct kv_frame *f, uint64_t word, uint32_t room)
{
	uint32_t used = kv_frame_space(WORD_LEN(word) + room);

	return f->fr_seg && used <= KV_FRAME_MAX && f->fr_off + used <= f->fr_seg->sg_bytes;
}

struct kv_frame *kv_log_close(struct kvdb *db, struct kv_log *lo, uint64_t e, uint32_t desc_room,
			      bool even_empty)
{
	struct kv_frame *f, *g;
	uint32_t used, off = 0, cap = 0;
	uint64_t w;

	KV_ASSERT_HELD(&db->d_epochs.ep_tick_lock);
	pthread_mutex_lock(&lo->lo_lock);
	f = freeze(lo, &w);
	KV_ASSERT(f->fr_epoch == e);
	if (!(even_empty || WORD_N(w)) || !takes_desc(f, w, desc_room))
		desc_room = 0;
	used = WORD_N(w) || desc_room ? kv_frame_space(WORD_LEN(w) + desc_room) : 0;
	if (f->fr_seg) {
		off = f->fr_off + used;
		cap = frame_room(f->fr_seg, off, db->d_budget.b_frame_max);
	}
	/* an epoch must end: wait for memory; but no epoch ends of what has stopped */
	while (!(g = kv_frame_new(lo, f->fr_seg, f->fr_seg ? f->fr_base - f->fr_off : NULL, off,
				  cap, e + 1))) {
		if (kv_fault(db))
			return stay_open(lo, w);
		sched_yield();
	}
	replace(db, lo, w, f, g, used);
	pthread_mutex_unlock(&lo->lo_lock);
	return desc_room ? f : NULL;
}

/*
 * Capacity of a frame at @off that must hold a record of @size: more than the
 * ordinary when the record asks for it. 0 = does not fit.
 */
static uint32_t frame_cap(const struct kv_seg *s, uint32_t off, uint32_t size, uint32_t frame_max)
{
	uint32_t want = kv_frame_space(KV_FRAME_HDR + size);
	uint32_t cap = frame_room(s, off, want > frame_max ? want : frame_max);

	return cap >= KV_FRAME_HDR + size ? cap : 0;
}

/* Goes on in the first prepared segment; @end is where the one before ends. lo_lock held. */
static void next_begin(struct kvdb *db, struct kv_log *lo, uint32_t end)
{
	uint64_t now = kv_now(db), ahead;

	KV_ASSERT_HELD(&lo->lo_lock);
	KV_ASSERT(lo->lo_next);
	if (lo->lo_seg) {
		ahead = kv_is_manual(db) ? 1 : AHEAD_NS / (now - lo->lo_since_ns + 1) + 1;
		/* writers are slowed and let go by turns: it falls slowly */
		if (ahead + 1 < lo->lo_ahead)
			ahead = lo->lo_ahead - 1;
		lo->lo_ahead = ahead < db->d_budget.b_ahead ? (uint32_t)ahead :
							      db->d_budget.b_ahead;
		seg_done(db, lo->lo_seg, end);
	}
	lo->lo_since_ns = now;
	lo->lo_seg = next_take(lo);
}

/*
 * Opens a frame with room for @size, in this segment or its prepared
 * successor, in the same epoch. -EAGAIN: a segment must be prepared first.
 */
static int roll(struct kvdb *db, struct kv_log *lo, uint32_t seq, uint32_t size)
{
	uint32_t frame_max = db->d_budget.b_frame_max, cap = 0, off = 0, end = 0;
	struct kv_frame *f, *g;
	struct kv_seg *s;
	uint64_t w;
	int err = 0;

	pthread_mutex_lock(&lo->lo_lock);
	f = freeze(lo, &w);
	if (WORD_SEQ(w) != seq || WORD_LEN(w) + size <= f->fr_cap) {
		thaw(lo, w);		/* another thread did it */
		goto out;
	}
	s = lo->lo_seg;
	if (s) {
		end = f->fr_off + (WORD_N(w) ? kv_frame_space(WORD_LEN(w)) : 0);
		off = end;
		cap = frame_cap(s, off, size, frame_max);
	}
	if (!cap && lo->lo_next) {
		s = lo->lo_next;
		off = 0;
		cap = frame_cap(s, off, size, frame_max);
	}
	g = cap ? kv_frame_new(lo, s, atomic_load(&s->sg_image), off, cap, f->fr_epoch) : NULL;
	if (!g) {
		thaw(lo, w);
		err = cap ? -ENOMEM : -EAGAIN;
		goto out;
	}
	replace(db, lo, w, f, g, WORD_N(w) ? kv_frame_space(WORD_LEN(w)) : 0);
	if (s == lo->lo_next)
		next_begin(db, lo, end);
out:
	pthread_mutex_unlock(&lo->lo_lock);
	return err;
}

void kv_log_add_own(struct kvdb *db, struct kv_frame *f)
{
	struct kv_log *lo = f->fr_log;

	KV_ASSERT_HELD(&db->d_epochs.ep_tick_lock);
	KV_ASSERT(f->fr_epoch == atomic_load(&db->d_epochs.ep_open));
	pthread_mutex_lock(&lo->lo_lock);
	pend(db, lo, f);
	if (f->fr_is_shared) {
		KV_ASSERT(lo->lo_large_is_busy && f->fr_off == lo->lo_large_end);
		lo->lo_large_end += f->fr_space;
		lo->lo_large_is_busy = false;
		pthread_cond_broadcast(&lo->lo_ready);
	} else {
		seg_done(db, f->fr_seg, f->fr_space);
	}
	pthread_mutex_unlock(&lo->lo_lock);
}

/* As roll(); a wait for others that hold the log is counted, and the flusher gets to work. */
static int next_frame(struct kvdb *db, struct kv_log *lo, uint32_t seq, uint32_t size)
{
	uint64_t t0 = kv_now(db), now;
	int err = roll(db, lo, seq, size);

	if (err)
		return err;
	now = kv_now(db);
	if (now - t0 > ROLL_NS)
		kv_delayed(db, KVDB_DELAY_FRAME, now - t0);
	make_spare(lo);
	kv_flusher_kick(db);
	/* the flusher may be waiting for a device, and no thread asleep */
	if (!kv_is_manual(db))
		kv_throttle_look(db, now);
	return 0;
}

int kv_log_reserve(struct kvdb *db, struct kv_log *lo, uint32_t n, uint32_t size,
		   struct kv_resv *rs)
{
	struct kv_slot *sl = &kv_tctx(db)->tc_slot;
	int err;

	KV_ASSERT_INSIDE();
	KV_ASSERT_SLOW(kv_slot_is_begun(sl) && size % KV_REC_ALIGN == 0 && n);
	for (;;) {
		uint64_t w = atomic_load_explicit(&lo->lo_word, memory_order_acquire);
		struct kv_frame *f = atomic_load_explicit(&lo->lo_frame[WORD_SEQ(w) % 4],
							  memory_order_acquire);
		uint32_t len = WORD_LEN(w);

		if (KV_UNLIKELY(len + size > f->fr_cap)) {
			err = next_frame(db, lo, WORD_SEQ(w), size);
			if (err)
				return err;
			/* the supplier looks every 100 ms by itself: a segment is full before */
			if (kv_log_wants_segment(lo))
				kv_supplier_kick(db);
			continue;
		}
		if (!atomic_compare_exchange_weak(&lo->lo_word, &w, w + WORD(0, n, size)))
			continue;
		rs->rs_frame = f;
		rs->rs_buf = f->fr_base + len;
		rs->rs_seg = f->fr_seg;
		rs->rs_off = f->fr_off + len;
		rs->rs_epoch = f->fr_epoch;
		atomic_store_explicit(&sl->sl_index, WORD_N(w), memory_order_release);
		kv_epoch_first(db, f->fr_epoch);
		return 0;
	}
}

/* Which segment a log gets. */
enum kind { ORDINARY, URGENT, STAGING };

/* A segment with an image; *image_ns: how long that took. */
static int seg_new(struct kvdb *db, struct kv_log *lo, enum kind kind, struct kv_seg **out,
		   uint64_t *image_ns)
{
	uint32_t bytes = db->d_budget.b_seg_bytes;
	int err = kind == STAGING ?
		  kv_seg_alloc_staging(db, lo->lo_no, lo->lo_stream, bytes, out) :
		  kv_seg_alloc(db, lo->lo_no, lo->lo_stream, bytes, kind == URGENT, out);
	uint64_t t0 = kv_now(db);

	KV_ASSERT_OUTSIDE();
	KV_ASSERT_FREE(&lo->lo_lock);
	if (err)
		return err;
	if (!kv_slab_take_image(db, (*out)->sg_bytes, &(*out)->sg_image)) {
		seg_done(db, *out, 0);
		return kv_error(-ENOMEM, "MP0902", "no memory for a log segment of %u bytes",
				bytes);
	}
	*image_ns = kv_now(db) - t0;
	return 0;
}

/* One segment more. lo_lock held, and dropped meanwhile; one thread at a time. */
static int prepare(struct kvdb *db, struct kv_log *lo, enum kind kind, uint64_t *image_ns)
{
	struct kv_seg *s;
	int err;

	KV_ASSERT_HELD(&lo->lo_lock);
	KV_ASSERT(!lo->lo_is_preparing);
	lo->lo_is_preparing = true;
	pthread_mutex_unlock(&lo->lo_lock);
	err = seg_new(db, lo, kind, &s, image_ns);
	pthread_mutex_lock(&lo->lo_lock);
	lo->lo_is_preparing = false;
	if (!err && kind == STAGING)
		next_push(lo, s);
	else if (!err)
		next_add(lo, s);
	pthread_cond_broadcast(&lo->lo_ready);
	return err;
}

int kv_log_prepare(struct kvdb *db, struct kv_log *lo, bool urgent)
{
	uint64_t t0 = kv_now(db), image_ns = 0;
	int err = 0;

	pthread_mutex_lock(&lo->lo_lock);
	while (!lo->lo_next && lo->lo_is_preparing)
		pthread_cond_wait(&lo->lo_ready, &lo->lo_lock);
	if (!lo->lo_next)
		err = prepare(db, lo, urgent ? URGENT : ORDINARY, &image_ns);
	pthread_mutex_unlock(&lo->lo_lock);
	t0 = kv_now(db) - t0;
	kv_delayed(db, image_ns > t0 / 2 ? KVDB_DELAY_IMAGE : KVDB_DELAY_SEGMENT, t0);
	return err;
}

int kv_log_prepare_ahead(struct kvdb *db, struct kv_log *lo)
{
	uint64_t image_ns;
	int rc = 0;

	pthread_mutex_lock(&lo->lo_lock);
	if (!lo->lo_is_preparing && wants_segment(lo)) {
		rc = prepare(db, lo, ORDINARY, &image_ns);
		rc = rc ? rc : 1;
	}
	pthread_mutex_unlock(&lo->lo_lock);
	return rc;
}

/* Ends the segment that is written to, and goes on in the first prepared one. lo_lock held. */
static int turn(struct kvdb *db, struct kv_log *lo)
{
	struct kv_seg *s = lo->lo_next;
	struct kv_frame *f, *g;
	uint32_t used;
	uint64_t w;

	KV_ASSERT_HELD(&lo->lo_lock);
	KV_ASSERT(s);
	f = freeze(lo, &w);
	g = kv_frame_new(lo, s, atomic_load(&s->sg_image), 0,
			 frame_room(s, 0, db->d_budget.b_frame_max), f->fr_epoch);
	if (!g) {
		thaw(lo, w);
		return kv_error(-ENOMEM, "MP0902", "no memory for a frame");
	}
	used = WORD_N(w) ? kv_align_block(WORD_LEN(w)) : 0;
	replace(db, lo, w, f, g, used);
	next_begin(db, lo, f->fr_off + used);
	return 0;
}

int kv_log_restage(struct kvdb *db, struct kv_log *lo, const struct kv_seg *at)
{
	uint64_t image_ns;
	int err = 0;

	pthread_mutex_lock(&lo->lo_lock);
	while (lo->lo_seg == at && lo->lo_is_preparing)
		pthread_cond_wait(&lo->lo_ready, &lo->lo_lock);
	if (lo->lo_seg == at && (!lo->lo_next || lo->lo_next->sg_mclass != MPOOL_STAGING))
		err = prepare(db, lo, STAGING, &image_ns);
	if (!err && lo->lo_seg == at && lo->lo_next)
		err = turn(db, lo);
	pthread_mutex_unlock(&lo->lo_lock);
	return err;
}
