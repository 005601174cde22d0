/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Log segments. A segment is an append mblock with the database's tag; its
 * values stay where the log put them until the segment is wholly dead.
 *
 * Invariants S1, S2, S3, S4, S5: README.md.
 *
 * Locks: sg_lock guards list, table, stock and states; a leaf lock. Batches,
 * metadata records and what fills the stock happen outside it, under sg_step_lock
 * or sg_fill_lock, so that one thread does each.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/error.h"
#include "db/db.h"
#include "db/hooks.h"
#include "db/waits.h"
#include "cache/slab.h"
#include "seg/kv_omf.h"
#include "seg/reserve.h"
#include "seg/segs.h"

#define HASH_MIN	64u	/* buckets of a table that is empty; a power of two */
#define HASH_FULL	4u	/* segments for each bucket */
#define EACH_HOLD	4096u	/* segments that a walk passes while others wait for sg_lock, */
#define EACH_REST_NS	50000	/* and lets them go first for */
#define MOVED_PART	128u	/* of a class that relocation may have allocated ahead */
#define DEBT_MIN	8u	/* fewer in a batch: writers are not slowed for them */
#define STOCK_BYTES	(256u << 20)	/* and the stock, which is no more than this */
#define SEG_LIMIT	(64u << 20) /* bytes; a greater object is no segment */

/* Of those that hash_split() has not made yet the chain that they will be split from. */
static struct kv_seg **bucket(struct kv_segs *ss, uint64_t id)
{
	size_t i = kv_mix(id) & (ss->sg_hash_cap - 1);

	return &ss->sg_hash[i < ss->sg_nhash ? i : i - ss->sg_hash_cap / 2];
}

static void seg_free(void *arg)
{
	struct kv_seg *s = arg;

	mpool_obj_close(s->sg_obj);
	free(s);
}

int kv_segs_init(struct kvdb *db)
{
	struct kv_segs *ss = calloc(1, sizeof(*ss));

	if (ss)
		ss->sg_hash = calloc(HASH_MIN, sizeof(*ss->sg_hash));
	if (!ss || !ss->sg_hash) {
		free(ss);
		return -ENOMEM;
	}
	ss->sg_nhash = ss->sg_hash_cap = HASH_MIN;
	pthread_mutex_init(&ss->sg_lock, NULL);
	pthread_mutex_init(&ss->sg_fill_lock, NULL);
	pthread_mutex_init(&ss->sg_step_lock, NULL);
	ss->sg_full_tail = &ss->sg_full;
	db->d_segs = ss;
	return 0;
}

void kv_segs_fini(struct kvdb *db)
{
	struct kv_segs *ss = db->d_segs;
	struct kv_seg *s, *next;

	if (!ss)
		return;
	for (s = ss->sg_list; s; s = next) {
		next = s->sg_next;
		kv_trouble_end(db, &s->sg_trouble);
		seg_free(s);
	}
	pthread_mutex_destroy(&ss->sg_lock);
	pthread_mutex_destroy(&ss->sg_fill_lock);
	pthread_mutex_destroy(&ss->sg_step_lock);
	free(ss->sg_hash);
	free(ss);
	db->d_segs = NULL;
}

/* ---- table ------------------------------------------------------------------------- */

static void todo_add(struct kv_segs *ss, struct kv_seg *s)
{
	KV_ASSERT_HELD(&ss->sg_lock);
	KV_ASSERT(!s->sg_todo_at);
	s->sg_todo_next = ss->sg_todo;
	s->sg_todo_at = &ss->sg_todo;
	if (s->sg_todo_next)
		s->sg_todo_next->sg_todo_at = &s->sg_todo_next;
	ss->sg_todo = s;
}

static void todo_del(struct kv_seg *s)
{
	KV_ASSERT(*s->sg_todo_at == s);
	*s->sg_todo_at = s->sg_todo_next;
	if (s->sg_todo_next)
		s->sg_todo_next->sg_todo_at = s->sg_todo_at;
	s->sg_todo_at = NULL;
}

static void count(uint64_t *sum, bool *is_in, bool is, uint32_t bytes)
{
	KV_ASSERT(is || !*is_in || *sum >= bytes);
	if (is != *is_in)
		*sum += is ? bytes : -(uint64_t)bytes;
	*is_in = is;
}

/*
 * S5: frequent questions are answered without a walk over all segments, of which there may be
 * millions. Called after each change of sg_state and sg_pins, and of sg_runs to or from 0, which
 * changes without the lock: of two the second sees both. sg_lock held.
 */
static void note(struct kv_segs *ss, struct kv_seg *s)
{
	uint32_t state = atomic_load(&s->sg_state);
	bool has_runs = atomic_load(&s->sg_runs), is_pinned = atomic_load(&s->sg_pins);
	bool is_written = state == KV_SEG_OPEN || state == KV_SEG_FULL;
	bool is_gone = state == KV_SEG_DELETED;
	bool is_settled = state == KV_SEG_SEALED && s->sg_obj_sealed && (has_runs || is_pinned);

	KV_ASSERT_HELD(&ss->sg_lock);
	count(&ss->sg_staged, &s->sg_is_staged,
	      s->sg_mclass == MPOOL_STAGING && !is_gone && (is_written || has_runs), s->sg_bytes);
	/* what readers or checkpoints hold goes with them: moving does not bring it back sooner */
	count(&ss->sg_in_use, &s->sg_is_in_use,
	      (state == KV_SEG_FULL || state == KV_SEG_SEALED) && has_runs && !is_pinned,
	      s->sg_bytes);
	if (is_gone || is_settled) {
		if (s->sg_todo_at)
			todo_del(s);
	} else if (!s->sg_todo_at) {
		todo_add(ss, s);
	}
}

void kv_seg_note(struct kvdb *db, struct kv_seg *s)
{
	pthread_mutex_lock(&db->d_segs->sg_lock);
	note(db->d_segs, s);
	pthread_mutex_unlock(&db->d_segs->sg_lock);
}

void kv_seg_pin(struct kvdb *db, struct kv_seg *s, int by)
{
	/* the last one, and it may be gone */
	pthread_mutex_lock(&db->d_segs->sg_lock);
	KV_ASSERT(by > 0 || atomic_load(&s->sg_pins));
	atomic_fetch_add(&s->sg_pins, (uint32_t)by);
	note(db->d_segs, s);
	pthread_mutex_unlock(&db->d_segs->sg_lock);
}

/*
 * The way of a segment: README.md. One that was never written to, or given up, is no more FULL;
 * one that is SEALED may be without its object until upkeep seals that.
 */
static bool may_follow(enum kv_seg_state was, enum kv_seg_state is)
{
	switch (is) {
	case KV_SEG_OPEN:
		return was == KV_SEG_FREE;
	case KV_SEG_FULL:
		return was == KV_SEG_OPEN;
	case KV_SEG_SEALED:
		return was == KV_SEG_OPEN || was == KV_SEG_FULL || was == KV_SEG_SEALED;
	case KV_SEG_DELETED:
		return was == KV_SEG_SEALED || was == KV_SEG_FREE;
	default:
		return false;
	}
}

/* sg_lock held. */
void kv_segs_set_state(struct kv_segs *ss, struct kv_seg *s, enum kv_seg_state state)
{
	KV_ASSERT_HELD(&ss->sg_lock);
	KV_ASSERT(may_follow(atomic_load(&s->sg_state), state));
	atomic_store(&s->sg_state, state);
	note(ss, s);
}

/*
 * One chain more, from one that there is: each new segment moves a few, however many there are
 * (W. Litwin, "Linear hashing", VLDB 1980). Without memory the chains get longer.
 */
static void hash_split(struct kv_segs *ss)
{
	struct kv_seg **from, **to, *s;

	KV_ASSERT_HELD(&ss->sg_lock);
	if (ss->sg_nhash == ss->sg_hash_cap) {
		to = realloc(ss->sg_hash, 2 * ss->sg_hash_cap * sizeof(*to));
		if (!to)
			return;
		ss->sg_hash = to;
		ss->sg_hash_cap *= 2;
	}
	to = &ss->sg_hash[ss->sg_nhash];
	from = to - ss->sg_hash_cap / 2;
	*to = NULL;
	ss->sg_nhash++;
	while ((s = *from)) {
		if (bucket(ss, s->sg_id) != to) {
			from = &s->sg_hash;
			continue;
		}
		*from = s->sg_hash;
		s->sg_hash = *to;
		*to = s;
	}
}

static struct kv_seg *table_find(struct kv_segs *ss, uint64_t id)
{
	struct kv_seg *s = *bucket(ss, id);

	KV_ASSERT_HELD(&ss->sg_lock);
	while (s && s->sg_id != id)
		s = s->sg_hash;
	return s;
}

void kv_segs_table_add(struct kv_segs *ss, struct kv_seg *s)
{
	struct kv_seg **b = bucket(ss, s->sg_id);

	KV_ASSERT_HELD(&ss->sg_lock);
	KV_ASSERT_SLOW(!table_find(ss, s->sg_id));
	s->sg_hash = *b;
	*b = s;
	s->sg_prev = NULL;
	s->sg_next = ss->sg_list;
	if (s->sg_next)
		s->sg_next->sg_prev = s;
	ss->sg_list = s;
	if (++ss->sg_count > HASH_FULL * ss->sg_nhash)
		hash_split(ss);
	note(ss, s);
}

void kv_segs_table_del(struct kv_segs *ss, struct kv_seg *s)
{
	struct kv_seg **b = bucket(ss, s->sg_id);

	kv_segs_set_state(ss, s, KV_SEG_DELETED);
	while (*b != s)
		b = &(*b)->sg_hash;
	*b = s->sg_hash;
	if (s->sg_prev)
		s->sg_prev->sg_next = s->sg_next;
	else
		ss->sg_list = s->sg_next;
	if (s->sg_next)
		s->sg_next->sg_prev = s->sg_prev;
	KV_ASSERT(ss->sg_count);
	ss->sg_count--;
}

struct kv_seg *kv_seg_find(struct kvdb *db, uint64_t id)
{
	struct kv_segs *ss = db->d_segs;
	struct kv_seg *s;

	pthread_mutex_lock(&ss->sg_lock);
	s = table_find(ss, id);
	if (s)
		kv_seg_get(s);
	pthread_mutex_unlock(&ss->sg_lock);
	return s;
}

struct kv_seg *kv_seg_get(struct kv_seg *s)
{
	KV_ASSERT(atomic_load(&s->sg_refs));
	atomic_fetch_add(&s->sg_refs, 1);
	return s;
}

bool kv_seg_tryget(struct kv_seg *s)
{
	uint32_t refs = atomic_load(&s->sg_refs);

	while (refs && !atomic_compare_exchange_weak(&s->sg_refs, &refs, refs + 1))
		;
	return refs;
}

void kv_seg_put(struct kvdb *db, struct kv_seg *s)
{
	KV_ASSERT(!s || atomic_load(&s->sg_refs));
	if (!s || atomic_fetch_sub(&s->sg_refs, 1) != 1)
		return;
	kv_trouble_end(db, &s->sg_trouble);
	/* a reader inside kv_enter() may still look at it */
	kv_retire(&s->sg_limbo, seg_free, s);
}

struct kv_seg *kv_segs_first(struct kvdb *db)
{
	return db->d_segs->sg_list;
}

/* The memory of a segment, of which nothing is known. */
static struct kv_seg *seg_new(void)
{
	return calloc(1, sizeof(struct kv_seg));
}

/* It has the object, which is open, and the table's reference. */
static void seg_set(struct kv_seg *s, struct mpool_obj *obj, const struct mpool_obj_info *oi)
{
	s->sg_id = oi->id;
	s->sg_obj = obj;
	s->sg_bytes = (uint32_t)oi->capacity;
	s->sg_mclass = (uint8_t)oi->mclass;
	s->sg_obj_sealed = !!(oi->flags & MPOOL_OBJ_SEALED);
	atomic_store(&s->sg_room, s->sg_obj_sealed && oi->length < oi->capacity ?
				  (uint32_t)oi->length : s->sg_bytes);
	atomic_store(&s->sg_refs, 1);
}

uint32_t kv_seg_readable(const struct kv_seg *s)
{
	return atomic_load(&s->sg_room) / KV_BLOCK * KV_BLOCK;
}

int kv_seg_add(struct kvdb *db, uint64_t id, struct kv_seg **out)
{
	struct kv_segs *ss = db->d_segs;
	struct mpool_obj_info oi;
	struct mpool_obj *obj;
	struct kv_seg *s;
	int err = mpool_obj_open(db->d_mp, id, &obj);

	if (err)
		return kv_error_mpool(err);
	err = mpool_obj_info(obj, &oi);
	if (!err && (oi.capacity > SEG_LIMIT || oi.capacity < KV_BLOCK))
		err = kv_error(-EUCLEAN, "MP0960", "object %llu: %llu bytes are no log segment",
			       (unsigned long long)id, (unsigned long long)oi.capacity);
	s = err ? NULL : seg_new();
	if (!s) {
		mpool_obj_close(obj);
		return err ? err : -ENOMEM;
	}
	seg_set(s, obj, &oi);
	atomic_store(&s->sg_state, KV_SEG_SEALED);
	pthread_mutex_lock(&ss->sg_lock);
	kv_segs_table_add(ss, s);
	pthread_mutex_unlock(&ss->sg_lock);
	if (out)
		*out = s;
	return 0;
}

/* ---- allocation ---------------------------------------------------------------------- */

/* @n new segments of @bytes in class @mclass. */
static int alloc_in(struct kvdb *db, uint32_t mclass, uint32_t bytes, unsigned n, bool spare,
		    struct mpool_obj **out)
{
	struct mpool_alloc req[KV_SEGS_BATCH];
	uint64_t began;
	int err;

	KV_ASSERT_OUTSIDE();
	KV_ASSERT_FREE(&db->d_segs->sg_lock);
	KV_ASSERT(n <= KV_SEGS_BATCH);
	for (unsigned i = 0; i < n; i++)
		req[i] = (struct mpool_alloc){
			.kind = MPOOL_APPEND, .mclass = mclass, .capacity = bytes,
			.tag = db->d_ident.id_tag, .flags = spare ? MPOOL_ALLOC_SPARE : 0,
		};
	began = kv_wait_begin();
	err = mpool_alloc(db->d_mp, req, n, out);
	kv_wait_end(KVDB_DELAY_MEDIA, began);
	return err;
}

/*
 * R19: class @first, then the other, each down to its reserve; then, if @urgent, what is left
 * of the one that has more.
 */
static int alloc_objs(struct kvdb *db, uint32_t first, bool only, uint32_t bytes, unsigned n,
		      bool urgent, struct mpool_obj **out)
{
	uint32_t other = first == MPOOL_CAPACITY ? MPOOL_STAGING : MPOOL_CAPACITY;
	struct kv_space_left left;
	int err = -ENOSPC;

	only |= db->d_mode.md_log_class == MPOOL_CAPACITY;
	kv_space_left(db, &left);
	for (unsigned try = 0; try < 4 && err == -ENOSPC; try++) {
		uint32_t mclass = try % 2 ? other : first;
		bool spare = try >= 2;

		if (spare && !urgent)
			break;
		if (spare && !only && left.sl_free[first] < left.sl_free[other])
			mclass = try % 2 ? first : other;
		if ((mclass == other && only) ||
		    (!spare && left.sl_spare[mclass] < (uint64_t)n * bytes))
			continue;
		err = alloc_in(db, mclass, bytes, n, spare, out);
	}
	return err;
}

/* Segments of @bytes that take the @part of a class; one at least. */
static unsigned class_part(struct kvdb *db, uint32_t mclass, uint32_t bytes, unsigned part)
{
	struct mpool_info pi;
	uint64_t n;

	if (mpool_info(db->d_mp, &pi))
		return 1;
	n = pi.cls[mclass].total / part / bytes;
	return n < 1 ? 1 : n > KV_SEGS_BATCH ? KV_SEGS_BATCH : (unsigned)n;
}

/* Segments that make up the bytes; one at least. */
unsigned kv_segs_of(struct kvdb *db, uint32_t bytes)
{
	return bytes > db->d_budget.b_seg_bytes ? bytes / db->d_budget.b_seg_bytes : 1;
}

/*
 * R10: the stock is at most KV_SEGS_BATCH segments, STOCK_BYTES and a 32nd of the class. Where
 * that is little, or the pool is full, writers wait for the allocation.
 */
unsigned kv_segs_batch(struct kvdb *db)
{
	return min_u(class_part(db, db->d_mode.md_log_class, db->d_budget.b_seg_bytes, 32),
		     kv_segs_of(db, STOCK_BYTES));
}

/* Segments that the stock has room for. */
static unsigned stock_room(struct kvdb *db)
{
	unsigned most = min_u(kv_segs_of(db, STOCK_BYTES), KV_SEGS_BATCH);
	unsigned n = db->d_segs->sg_nstock;

	return n < most ? most - n : 0;
}

/* Up to *n objects; *n is how many they are. */
static int alloc_room(struct kvdb *db, uint32_t mclass, bool only, uint32_t bytes, unsigned *n,
		      bool urgent, struct mpool_obj **obj)
{
	/* of what is kept spare no log takes more than it needs */
	int err = alloc_objs(db, mclass, only, bytes, *n, urgent && *n == 1, obj);

	if (err == -ENOSPC && *n > 1) {
		*n = 1;
		err = alloc_objs(db, mclass, only, bytes, *n, urgent, obj);
	}
	if (err == -ENOSPC && !urgent)
		return kv_error(-ENOSPC, "MP0955",
				"the pool is full: what is left is kept for deletes and flushes");
	return err ? kv_error_mpool(err) : 0;
}

/* Allocates up to @n into @out, with the table's reference. */
static int alloc_segs(struct kvdb *db, uint32_t mclass, bool only, uint32_t bytes, unsigned *n,
		      bool urgent, struct kv_seg **out)
{
	struct kv_segs *ss = db->d_segs;
	struct mpool_obj *obj[KV_SEGS_BATCH];
	struct kv_seg *s[KV_SEGS_BATCH];
	struct mpool_obj_info oi;
	unsigned i, made = 0;
	int err;

	/* first: an object that is not in the table is lost until the next open */
	while (made < *n && (s[made] = seg_new()))
		made++;
	*n = made;
	err = made ? alloc_room(db, mclass, only, bytes, n, urgent, obj) :
		     kv_error(-ENOMEM, "MP0902", "no memory for a log segment");
	*n = err ? 0 : *n;
	for (i = 0; i < *n; i++) {
		mpool_obj_info(obj[i], &oi);
		seg_set(s[i], obj[i], &oi);
		pthread_mutex_lock(&ss->sg_lock);
		kv_segs_table_add(ss, s[i]);
		pthread_mutex_unlock(&ss->sg_lock);
		out[i] = s[i];
	}
	for (; i < made; i++)
		free(s[i]);
	return err;
}

static struct kv_seg *stock_take(struct kv_segs *ss)
{
	struct kv_seg *s = NULL;

	pthread_mutex_lock(&ss->sg_lock);
	if (ss->sg_nstock)
		s = ss->sg_stock[--ss->sg_nstock];
	pthread_mutex_unlock(&ss->sg_lock);
	return s;
}

/*
 * Of @n segments those that are allocated at once, and their class: without room on
 * staging half as many elsewhere, for there is room again soon.
 */
static unsigned stock_batch(struct kvdb *db, unsigned n, uint32_t *mclass)
{
	*mclass = db->d_mode.md_log_class;
	if (*mclass != MPOOL_STAGING || db->d_hooks->ho_staging_has_room(db, kv_segs_staged(db)))
		return n;
	*mclass = MPOOL_CAPACITY;
	return (n + 1) / 2;
}

static int refill(struct kvdb *db, bool urgent)
{
	struct kv_segs *ss = db->d_segs;
	struct kv_seg *got[KV_SEGS_BATCH];
	uint32_t mclass;
	unsigned i, n = min_u(stock_batch(db, kv_segs_batch(db), &mclass), stock_room(db));
	int err;

	KV_ASSERT_HELD(&ss->sg_fill_lock);
	err = n ? alloc_segs(db, mclass, false, db->d_budget.b_seg_bytes, &n, urgent, got) : 0;
	if (err)
		return err;
	pthread_mutex_lock(&ss->sg_lock);
	KV_ASSERT(ss->sg_nstock + n <= KV_SEGS_BATCH);
	for (i = 0; i < n; i++)
		ss->sg_stock[ss->sg_nstock++] = got[i];
	pthread_mutex_unlock(&ss->sg_lock);
	return 0;
}

/* A log, or a load, writes to it from now on: one reference more. */
static void seg_open(struct kvdb *db, struct kv_seg *s, uint16_t log, uint8_t stream)
{
	struct kv_segs *ss = db->d_segs;

	KV_ASSERT(!atomic_load(&s->sg_last_epoch) && !atomic_load(&s->sg_image));
	s->sg_log = log;
	s->sg_stream = stream;
	kv_seg_get(s);
	pthread_mutex_lock(&ss->sg_lock);
	kv_segs_set_state(ss, s, KV_SEG_OPEN);
	pthread_mutex_unlock(&ss->sg_lock);
}

static int stopped(struct kvdb *db)
{
	if (!kv_fault(db))
		return 0;
	return kv_error(-EROFS, "MP0963", "the database stopped: %.200s", db->d_fault.fa_text);
}

/* Some that are not from the stock: up to @n. */
static int alloc_odd(struct kvdb *db, uint32_t mclass, bool only, uint32_t bytes, bool urgent,
		     unsigned *n, struct kv_seg **out)
{
	int err;

	/* as large as its record (R9): an ordinary one would be nearly empty */
	if (bytes > db->d_budget.b_seg_bytes)
		bytes = (bytes + 0xffffu) & ~0xffffu;
	pthread_mutex_lock(&db->d_segs->sg_fill_lock);
	err = alloc_segs(db, mclass, only, bytes, n, urgent, out);
	pthread_mutex_unlock(&db->d_segs->sg_fill_lock);
	return err;
}

int kv_segs_alloc_alone(struct kvdb *db, uint16_t log, uint8_t stream, uint32_t bytes,
			bool urgent, unsigned *n, struct kv_seg **out)
{
	unsigned most = class_part(db, db->d_mode.md_log_class, bytes, 32);
	int err = stopped(db);

	*n = min_u(*n, most);
	if (!err)
		err = alloc_odd(db, db->d_mode.md_log_class, false, bytes, urgent, n, out);
	for (unsigned i = 0; !err && i < *n; i++)
		seg_open(db, out[i], log, stream);
	return err;
}

int kv_seg_alloc(struct kvdb *db, uint16_t log, uint8_t stream, uint32_t bytes, bool urgent,
		 struct kv_seg **out)
{
	struct kv_segs *ss = db->d_segs;
	struct kv_seg *s = NULL;
	int err = stopped(db);
	unsigned one = 1;

	if (bytes != db->d_budget.b_seg_bytes)
		return kv_segs_alloc_alone(db, log, stream, bytes, urgent, &one, out);
	while (!err && !s) {
		s = stock_take(ss);
		if (s)
			break;
		pthread_mutex_lock(&ss->sg_fill_lock);
		if (!ss->sg_nstock)
			err = refill(db, urgent);
		pthread_mutex_unlock(&ss->sg_fill_lock);
	}
	if (err)
		return err;
	seg_open(db, s, log, stream);
	*out = s;
	return 0;
}

int kv_seg_alloc_staging(struct kvdb *db, uint16_t log, uint8_t stream, uint32_t bytes,
			 struct kv_seg **out)
{
	struct kv_seg *s;
	int err = stopped(db);
	unsigned one = 1;

	if (!err)
		err = alloc_odd(db, MPOOL_STAGING, true, bytes, false, &one, &s);
	if (err)
		return err;
	seg_open(db, s, log, stream);
	*out = s;
	return 0;
}

int kv_segs_alloc_moved(struct kvdb *db, uint8_t mclass, bool only, bool urgent, uint32_t bytes,
			unsigned *n, struct kv_seg **out)
{
	struct kv_segs *ss = db->d_segs;
	unsigned most = class_part(db, mclass, bytes, MOVED_PART);
	int err = stopped(db);

	if (err)
		return err;
	if (*n > most)
		*n = most;
	/* without sg_fill_lock: writers may need what the supplier fetches under it */
	err = alloc_segs(db, mclass, only, bytes, n, urgent, out);
	if (err)
		return err;
	pthread_mutex_lock(&ss->sg_lock);
	for (unsigned i = 0; i < *n; i++) {
		out[i]->sg_log = KV_MOVED_LOG;
		out[i]->sg_stream = KV_VLOG;
		kv_seg_get(out[i]);
		kv_segs_set_state(ss, out[i], KV_SEG_OPEN);
	}
	pthread_mutex_unlock(&ss->sg_lock);
	return 0;
}

void kv_seg_abandon(struct kvdb *db, struct kv_seg *s, uint32_t end)
{
	struct kv_segs *ss = db->d_segs;

	KV_ASSERT(end <= s->sg_bytes);
	pthread_mutex_lock(&ss->sg_lock);
	atomic_store(&s->sg_end, end);
	kv_segs_set_state(ss, s, KV_SEG_SEALED);
	pthread_mutex_unlock(&ss->sg_lock);
}

void kv_seg_close(struct kvdb *db, struct kv_seg *s, uint32_t end)
{
	struct kv_segs *ss = db->d_segs;

	KV_ASSERT(end <= s->sg_bytes && end % KV_BLOCK == 0);
	pthread_mutex_lock(&ss->sg_lock);
	atomic_store(&s->sg_end, end);
	kv_segs_set_state(ss, s, KV_SEG_FULL);
	*ss->sg_full_tail = kv_seg_get(s);
	ss->sg_full_tail = &s->sg_full_next;
	pthread_mutex_unlock(&ss->sg_lock);
}

void kv_seg_close_cold(struct kvdb *db, struct kv_seg *s, uint32_t end)
{
	struct kv_segs *ss = db->d_segs;

	KV_ASSERT(end <= s->sg_bytes && !atomic_load(&s->sg_image));
	pthread_mutex_lock(&ss->sg_lock);
	atomic_store(&s->sg_end, end);
	kv_segs_set_state(ss, s, end ? KV_SEG_FULL : KV_SEG_SEALED);
	pthread_mutex_unlock(&ss->sg_lock);
}

/* The oldest full segment, if all its epochs are durable, off the queue. */
static struct kv_seg *full_take(struct kvdb *db)
{
	struct kv_segs *ss = db->d_segs;
	uint64_t durable = atomic_load(&db->d_epochs.ep_durable);
	struct kv_seg *s;

	pthread_mutex_lock(&ss->sg_lock);
	s = ss->sg_full;
	if (s && atomic_load(&s->sg_last_epoch) > durable)
		s = NULL;
	if (s) {
		ss->sg_full = s->sg_full_next;
		if (!ss->sg_full)
			ss->sg_full_tail = &ss->sg_full;
	}
	pthread_mutex_unlock(&ss->sg_lock);
	return s;
}

void kv_segs_durable(struct kvdb *db)
{
	struct kv_seg *s;

	while ((s = full_take(db))) {
		/* values are read from the image; key logs are read by recovery only */
		if (s->sg_stream == KV_VLOG && atomic_load(&s->sg_last_epoch))
			kv_slab_image_idle(db, &s->sg_image);
		else
			kv_slab_drop_image(db, &s->sg_image);
		kv_seg_put(db, s);
	}
}

/* ---- stock -------------------------------------------------------------------------- */

/* Ahead of need; a full pool is not an error here. */
int kv_segs_stock_step(struct kvdb *db)
{
	struct kv_segs *ss = db->d_segs;
	uint32_t mclass;
	unsigned full = kv_segs_batch(db), batch = stock_batch(db, full, &mclass);
	unsigned low = batch - batch / 4;
	int err = 0;

	atomic_store(&ss->sg_full_stock, full);
	if (ss->sg_nstock >= low || kv_now(db) < atomic_load(&ss->sg_retry_ns))
		return 0;
	pthread_mutex_lock(&ss->sg_fill_lock);
	err = ss->sg_nstock < low ? refill(db, false) : 0;
	pthread_mutex_unlock(&ss->sg_fill_lock);
	if (err == -ENOSPC || err == -ENOMEM) {
		atomic_store(&ss->sg_retry_ns, kv_now(db) + 100000000ull);
		return 0;
	}
	if (!err)
		db->d_hooks->ho_pressure(db);	/* writers may have been slowed for want of them */
	return err ? err : 1;
}

uint32_t kv_segs_debt(struct kvdb *db, uint32_t ready)
{
	struct kv_segs *ss = db->d_segs;
	uint32_t full = atomic_load(&ss->sg_full_stock), n = ss->sg_nstock;

	/* a small pool keeps hardly any stock; on a full one no thread works on it (TH-5) */
	if (ready == UINT32_MAX || full < DEBT_MIN || kv_now(db) < atomic_load(&ss->sg_retry_ns))
		return 0;
	n += ready;
	return n >= full ? 0 : kv_debt_part(full - n, full / 2, full);
}

void kv_segs_each(struct kvdb *db, void (*fn)(void *arg, struct kv_seg *s), void *arg)
{
	const struct timespec ts = { .tv_nsec = EACH_REST_NS };
	struct kv_segs *ss = db->d_segs;
	unsigned n = 0;

	pthread_mutex_lock(&ss->sg_lock);
	for (struct kv_seg *s = ss->sg_list; s; s = s->sg_next) {
		fn(arg, s);
		if (++n % EACH_HOLD)
			continue;
		/* what is held stays in the list */
		kv_seg_get(s);
		pthread_mutex_unlock(&ss->sg_lock);
		nanosleep(&ts, NULL);
		pthread_mutex_lock(&ss->sg_lock);
		KV_ASSERT(atomic_load(&s->sg_refs) > 1);
		kv_seg_put(db, s);
	}
	pthread_mutex_unlock(&ss->sg_lock);
}

static uint64_t sum_now(struct kv_segs *ss, const uint64_t *sum)
{
	uint64_t n;

	pthread_mutex_lock(&ss->sg_lock);
	n = *sum;
	pthread_mutex_unlock(&ss->sg_lock);
	return n;
}

uint64_t kv_segs_staged(struct kvdb *db)
{
	return sum_now(db->d_segs, &db->d_segs->sg_staged);
}

uint64_t kv_segs_in_use(struct kvdb *db)
{
	return sum_now(db->d_segs, &db->d_segs->sg_in_use);
}

uint32_t kv_segs_count(struct kvdb *db)
{
	struct kv_segs *ss = db->d_segs;
	uint32_t n;

	pthread_mutex_lock(&ss->sg_lock);
	n = ss->sg_count;
	pthread_mutex_unlock(&ss->sg_lock);
	return n;
}

uint32_t kv_segs_watched(struct kvdb *db)
{
	struct kv_segs *ss = db->d_segs;
	uint32_t n = 0;

	pthread_mutex_lock(&ss->sg_lock);
	for (struct kv_seg *s = ss->sg_todo; s; s = s->sg_todo_next)
		n++;
	pthread_mutex_unlock(&ss->sg_lock);
	return n;
}

/* sg_lock held. */
static bool is_cold(struct kvdb *db, const struct kv_seg *s, uint32_t least, uint64_t now)
{
	KV_ASSERT_HELD(&db->d_segs->sg_lock);
	return atomic_load(&s->sg_state) == KV_SEG_SEALED && atomic_load(&s->sg_runs) &&
	       !atomic_load(&s->sg_image) && !atomic_load(&s->sg_victim) &&
	       now >= s->sg_cold_until_ns && s->sg_bytes <= db->d_budget.b_seg_bytes &&
	       atomic_load(&s->sg_end) >= least;
}

struct kv_seg *kv_seg_next_cold(struct kvdb *db, uint64_t after, uint32_t least)
{
	struct kv_segs *ss = db->d_segs;
	uint64_t most = db->d_budget.b_slab_bytes / 4 * 5, bytes = 0, now = kv_now(db);
	struct kv_seg *best = NULL, *s;

	pthread_mutex_lock(&ss->sg_lock);
	for (s = ss->sg_list; s && bytes <= most; s = s->sg_next) {
		if (atomic_load(&s->sg_runs))
			bytes += atomic_load(&s->sg_end);
		/* the smallest distance after @after, around the end */
		if (is_cold(db, s, least, now) &&
		    (!best || s->sg_id - after - 1 < best->sg_id - after - 1))
			best = s;
	}
	best = best && bytes <= most ? kv_seg_get(best) : NULL;
	pthread_mutex_unlock(&ss->sg_lock);
	return best;
}
