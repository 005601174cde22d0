/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Log segments. A segment is an append mblock with the database's tag; its
 * values stay where the log put them until the segment is wholly dead.
 *
 * Invariants
 *  S1  A segment is allocated durably before a frame is written to it (mpool
 *      does that for a batch of them at once).
 *  S2  A segment is deleted only when it is sealed, its last epoch is covered
 *      by every store's durable horizon, no durable run refers to it, nobody
 *      holds it, and no memtable that is alive may hold a record of it (R6).
 *  S3  An ordinary allocation leaves the reserve of R19 in the pool; only
 *      deletes and background work go below it.
 *  S4  The end of a segment is recorded as sealed only after its frames are
 *      durable.
 *  S5  What is asked at each epoch, or by writers, walks over no more segments
 *      than are not sealed yet, or referred to by no run and held by no
 *      checkpoint; no walk over all keeps sg_lock from the logs.
 *
 * Locks: sg_lock guards list, table, stock and states; a leaf lock. Batches,
 * metadata records and what fills the stock happen outside it, under sg_step_lock
 * or sg_fill_lock, so that one thread does each.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ckpt.h"
#include "flush.h"
#include "mdc.h"
#include "reloc.h"

#define HASH_MIN	64u	/* buckets of a table that is empty; a power of two */
#define HASH_FULL	4u	/* segments for each bucket */
#define EACH_HOLD	4096u	/* segments that a walk passes while others wait for sg_lock, */
#define EACH_REST_NS	50000	/* and lets them go first for */
#define BATCH_MAX	32u	/* segments per allocation */
#define MOVED_PART	128u	/* of a class that relocation may have allocated ahead */
#define DEBT_MIN	8u	/* fewer in a batch: writers are not slowed for them */
/* sealing waits for so many, or so many bytes; recovery reads what is not sealed whole, */
#define SEAL_MIN	8u
#define SEAL_BYTES	(64u << 20)
#define STOCK_BYTES	(256u << 20)	/* and the stock, which is no more than this */
#define STEP_MAX	64u	/* segments handled by one step */
#define SEG_LIMIT	(64u << 20) /* bytes; a greater object is none of ours */

struct kv_segs {
	pthread_mutex_t sg_lock;
	pthread_mutex_t sg_fill_lock;	/* one filler of the stock at a time; outside sg_lock */
	pthread_mutex_t sg_step_lock;	/* one upkeep step at a time; outside sg_lock */
	struct kv_seg *sg_list;
	struct kv_seg *sg_todo;		/* those that upkeep looks at; note() */
	uint64_t sg_staged, sg_in_use;	/* bytes; note() */
	struct kv_seg *sg_full, **sg_full_tail;	/* in order of closing, each with a reference */
	struct kv_seg **sg_hash;	/* sg_nhash chains; bucket() */
	size_t sg_nhash, sg_hash_cap;	/* the latter a power of two, at most twice as many */
	struct kv_seg *sg_stock[BATCH_MAX];	/* with the table's reference only */
	_Atomic(uint32_t) sg_nstock;	/* changes under sg_lock */
	_Atomic(uint32_t) sg_full_stock; /* as many are wanted in it */
	uint32_t sg_count;
	_Atomic(uint64_t) sg_retry_ns;	/* background refill failed: not before this time */
};

static unsigned min_u(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

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
	s->sg_todo_next = ss->sg_todo;
	s->sg_todo_at = &ss->sg_todo;
	if (s->sg_todo_next)
		s->sg_todo_next->sg_todo_at = &s->sg_todo_next;
	ss->sg_todo = s;
}

static void todo_del(struct kv_seg *s)
{
	*s->sg_todo_at = s->sg_todo_next;
	if (s->sg_todo_next)
		s->sg_todo_next->sg_todo_at = s->sg_todo_at;
	s->sg_todo_at = NULL;
}

static void count(uint64_t *sum, bool *is_in, bool is, uint32_t bytes)
{
	if (is != *is_in)
		*sum += is ? bytes : -(uint64_t)bytes;
	*is_in = is;
}

/*
 * S5: what is asked all the time is told without a walk over all segments, of which there may be
 * millions. Behind each change of sg_state and sg_pins, and of sg_runs to or from 0, which
 * changes without the lock: of two the second sees both. sg_lock held.
 */
static void note(struct kv_segs *ss, struct kv_seg *s)
{
	uint32_t state = atomic_load(&s->sg_state);
	bool has_runs = atomic_load(&s->sg_runs), is_pinned = atomic_load(&s->sg_pins);
	bool is_written = state == KV_SEG_OPEN || state == KV_SEG_FULL;
	bool is_gone = state == KV_SEG_DELETED;
	bool is_settled = state == KV_SEG_SEALED && s->sg_obj_sealed && (has_runs || is_pinned);

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
	atomic_fetch_add(&s->sg_pins, (uint32_t)by);
	note(db->d_segs, s);
	pthread_mutex_unlock(&db->d_segs->sg_lock);
}

/* sg_lock held. */
static void set_state(struct kv_segs *ss, struct kv_seg *s, enum kv_seg_state state)
{
	atomic_store(&s->sg_state, state);
	note(ss, s);
}

/*
 * One chain more, from one that there is: who adds a segment moves a few, however many there are
 * (W. Litwin, "Linear hashing", VLDB 1980). Without memory the chains get longer.
 */
static void hash_split(struct kv_segs *ss)
{
	struct kv_seg **from, **to, *s;

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

static void table_add(struct kv_segs *ss, struct kv_seg *s)
{
	struct kv_seg **b = bucket(ss, s->sg_id);

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

static void table_del(struct kv_segs *ss, struct kv_seg *s)
{
	struct kv_seg **b = bucket(ss, s->sg_id);

	set_state(ss, s, KV_SEG_DELETED);
	while (*b != s)
		b = &(*b)->sg_hash;
	*b = s->sg_hash;
	if (s->sg_prev)
		s->sg_prev->sg_next = s->sg_next;
	else
		ss->sg_list = s->sg_next;
	if (s->sg_next)
		s->sg_next->sg_prev = s->sg_prev;
	ss->sg_count--;
}

static struct kv_seg *table_find(struct kv_segs *ss, uint64_t id)
{
	struct kv_seg *s = *bucket(ss, id);

	while (s && s->sg_id != id)
		s = s->sg_hash;
	return s;
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
	(void)db;
	/* a reader inside kv_enter() may still look at it */
	if (s && atomic_fetch_sub(&s->sg_refs, 1) == 1)
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
	atomic_store(&s->sg_refs, 1);
}

uint32_t kv_seg_readable(const struct kv_seg *s)
{
	struct mpool_obj_info oi;
	uint64_t n = s->sg_bytes;

	if (s->sg_obj_sealed && !mpool_obj_info(s->sg_obj, &oi) && oi.length < n)
		n = oi.length;
	return (uint32_t)n / KV_BLOCK * KV_BLOCK;
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
	table_add(ss, s);
	pthread_mutex_unlock(&ss->sg_lock);
	if (out)
		*out = s;
	return 0;
}

int kv_segs_load(struct kvdb *db)
{
	const struct kv_mdc_state *st = &db->d_mdc->m_st;
	struct mpool_obj_info oi[64];
	uint64_t after = 0;
	int i, n, err = 0;

	/* the others may go at any moment, and a handle would keep their space */
	for (size_t k = 0; db->d_at_ckpt && k < st->st_nseg && !err; k++)
		err = kv_seg_add(db, st->st_seg[k].sc_obj, NULL);
	if (db->d_at_ckpt)
		return err != -ENOENT ? err :
		       kv_error(-EUCLEAN, "MP0980", "a segment of the checkpoint does not exist");
	for (;;) {
		n = mpool_objects(db->d_mp, after, db->d_tag, oi, 64);
		if (n <= 0)
			return n < 0 ? kv_error_mpool(n) : 0;
		for (i = 0; i < n; i++) {
			after = oi[i].id;
			if (oi[i].kind == MPOOL_APPEND)
				err = kv_seg_add(db, oi[i].id, NULL);
			if (err)
				return err;
		}
	}
}

/* ---- allocation ---------------------------------------------------------------------- */

/* R19: one klog segment per stream, one flush of all memtables' keys, a key block each way. */
static uint64_t reserve_bytes(struct kvdb *db)
{
	const struct kv_budget *b = &db->d_budget;
	uint64_t keys = b->b_mt_bytes < b->b_log_bytes ? b->b_mt_bytes : b->b_log_bytes;

	return (uint64_t)b->b_logs * b->b_seg_bytes + keys + 2ull * b->b_kblock_bytes;
}

static uint64_t pool_free(struct kvdb *db, uint64_t *total)
{
	struct mpool_info pi;
	uint64_t sum = 0;
	int c;

	*total = 0;
	if (mpool_info(db->d_mp, &pi))
		return 0;
	for (c = 0; c < MPOOL_MCLASSES; c++) {
		sum += pi.cls[c].free;
		*total += pi.cls[c].total;
	}
	return sum;
}

uint64_t kv_segs_class_bytes(struct kvdb *db)
{
	struct mpool_info pi;
	uint64_t most = 0;

	if (mpool_info(db->d_mp, &pi))
		return UINT64_MAX;
	for (int c = 0; c < MPOOL_MCLASSES; c++)
		if (pi.cls[c].total > most)
			most = pi.cls[c].total;
	return most;
}

/* The reserve of a pool of @total bytes: never more than a quarter of a small one. */
static uint64_t reserve_of(struct kvdb *db, uint64_t total)
{
	uint64_t reserve = reserve_bytes(db);

	return reserve < total / 4 ? reserve : total / 4;
}

static bool room_for(struct kvdb *db, uint64_t bytes)
{
	uint64_t total, avail = pool_free(db, &total);

	return avail >= bytes + reserve_of(db, total);
}

bool kv_segs_are_short(struct kvdb *db)
{
	uint64_t total;

	pool_free(db, &total);
	return !room_for(db, total / 16);
}

uint64_t kv_segs_free_bytes(struct kvdb *db)
{
	uint64_t total;

	return pool_free(db, &total);
}

uint64_t kv_segs_spare_bytes(struct kvdb *db)
{
	uint64_t total, n = pool_free(db, &total), reserve = reserve_of(db, total);

	return n > reserve ? n - reserve : 0;
}

/* @n new segments of @bytes: class @first, then the other, then what is kept spare. */
static int alloc_objs(struct kvdb *db, uint32_t first, bool only, uint32_t bytes, unsigned n,
		      bool urgent, struct mpool_obj **out)
{
	uint32_t other = first == MPOOL_CAPACITY ? MPOOL_STAGING : MPOOL_CAPACITY;
	struct mpool_alloc req[BATCH_MAX];
	unsigned i, try;
	int err = -ENOSPC;

	for (try = 0; try < 4 && err == -ENOSPC; try++) {
		uint32_t mclass = try % 2 ? other : first;

		if (try % 2 && (only || db->d_log_class == MPOOL_CAPACITY))
			continue;
		if (try >= 2 && !urgent)
			break;
		for (i = 0; i < n; i++)
			req[i] = (struct mpool_alloc){
				.kind = MPOOL_APPEND, .mclass = mclass, .capacity = bytes,
				.tag = db->d_tag, .flags = try >= 2 ? MPOOL_ALLOC_SPARE : 0,
			};
		err = mpool_alloc(db->d_mp, req, n, out);
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
	return n < 1 ? 1 : n > BATCH_MAX ? BATCH_MAX : (unsigned)n;
}

/* Segments that make up so many bytes; one at least. */
static unsigned segs_of(struct kvdb *db, uint32_t bytes)
{
	return bytes > db->d_budget.b_seg_bytes ? bytes / db->d_budget.b_seg_bytes : 1;
}

static unsigned batch_size(struct kvdb *db)
{
	/* R10 */
	return min_u(class_part(db, db->d_log_class, db->d_budget.b_seg_bytes, 32),
		     segs_of(db, STOCK_BYTES));
}

/* Segments that the stock has room for. */
static unsigned stock_room(struct kvdb *db)
{
	unsigned most = min_u(segs_of(db, STOCK_BYTES), BATCH_MAX), n = db->d_segs->sg_nstock;

	return n < most ? most - n : 0;
}

/* Up to *n objects; *n is how many they are. */
static int alloc_room(struct kvdb *db, uint32_t mclass, bool only, uint32_t bytes, unsigned *n,
		      bool urgent, struct mpool_obj **obj)
{
	int err;

	while (*n > 1 && !room_for(db, (uint64_t)*n * bytes))
		*n = 1;
	if (!urgent && !room_for(db, (uint64_t)*n * bytes))
		return kv_error(-ENOSPC, "MP0955",
				"the pool is full: what is left is kept for deletes and flushes");
	/* of what is kept spare nobody takes more than he needs */
	err = alloc_objs(db, mclass, only, bytes, *n, urgent && *n == 1, obj);
	if (err == -ENOSPC && *n > 1) {
		*n = 1;
		err = alloc_objs(db, mclass, only, bytes, *n, urgent, obj);
	}
	return err ? kv_error_mpool(err) : 0;
}

/* Allocates up to @n into @out, with the table's reference. */
static int alloc_segs(struct kvdb *db, uint32_t mclass, bool only, uint32_t bytes, unsigned *n,
		      bool urgent, struct kv_seg **out)
{
	struct kv_segs *ss = db->d_segs;
	struct mpool_obj *obj[BATCH_MAX];
	struct kv_seg *s[BATCH_MAX];
	struct mpool_obj_info oi;
	unsigned i, made = 0;
	int err;

	/* first: an object that nobody knows is lost until the next open */
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
		table_add(ss, s[i]);
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
	*mclass = db->d_log_class;
	if (*mclass != MPOOL_STAGING || kv_staging_has_room(db, kv_segs_staged(db)))
		return n;
	*mclass = MPOOL_CAPACITY;
	return (n + 1) / 2;
}

static int refill(struct kvdb *db, bool urgent)
{
	struct kv_segs *ss = db->d_segs;
	struct kv_seg *got[BATCH_MAX];
	uint32_t mclass;
	unsigned i, n = min_u(stock_batch(db, batch_size(db), &mclass), stock_room(db));
	int err;

	err = n ? alloc_segs(db, mclass, false, db->d_budget.b_seg_bytes, &n, urgent, got) : 0;
	if (err)
		return err;
	pthread_mutex_lock(&ss->sg_lock);
	for (i = 0; i < n; i++)
		ss->sg_stock[ss->sg_nstock++] = got[i];
	pthread_mutex_unlock(&ss->sg_lock);
	return 0;
}

int kv_seg_alloc(struct kvdb *db, uint16_t log, uint8_t stream, uint32_t bytes, bool urgent,
		 struct kv_seg **out)
{
	struct kv_segs *ss = db->d_segs;
	struct kv_seg *s = NULL;
	unsigned one = 1;
	int err = 0;

	if (kv_fault(db))
		return kv_error(-EROFS, "MP0963", "the database stopped: %.200s", db->d_fault_text);
	if (bytes != db->d_budget.b_seg_bytes) {
		/* as large as its record (R9): an ordinary one would be nearly empty */
		if (bytes > db->d_budget.b_seg_bytes)
			bytes = (bytes + 0xffffu) & ~0xffffu;
		pthread_mutex_lock(&ss->sg_fill_lock);
		err = alloc_segs(db, db->d_log_class, false, bytes, &one, urgent, &s);
		pthread_mutex_unlock(&ss->sg_fill_lock);
		if (err)
			return err;
	}
	while (!s) {
		s = stock_take(ss);
		if (s)
			break;
		pthread_mutex_lock(&ss->sg_fill_lock);
		if (!ss->sg_nstock)
			err = refill(db, urgent);
		pthread_mutex_unlock(&ss->sg_fill_lock);
		if (err)
			return err;
	}
	s->sg_log = log;
	s->sg_stream = stream;
	kv_seg_get(s);
	pthread_mutex_lock(&ss->sg_lock);
	set_state(ss, s, KV_SEG_OPEN);
	pthread_mutex_unlock(&ss->sg_lock);
	*out = s;
	return 0;
}

int kv_segs_alloc_moved(struct kvdb *db, uint8_t mclass, bool only, bool urgent, uint32_t bytes,
			unsigned *n, struct kv_seg **out)
{
	struct kv_segs *ss = db->d_segs;
	unsigned most = class_part(db, mclass, bytes, MOVED_PART);
	int err;

	if (kv_fault(db))
		return kv_error(-EROFS, "MP0963", "the database stopped: %.200s", db->d_fault_text);
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
		set_state(ss, out[i], KV_SEG_OPEN);
	}
	pthread_mutex_unlock(&ss->sg_lock);
	return 0;
}

void kv_seg_abandon(struct kvdb *db, struct kv_seg *s, uint32_t end)
{
	struct kv_segs *ss = db->d_segs;

	pthread_mutex_lock(&ss->sg_lock);
	atomic_store(&s->sg_end, end);
	set_state(ss, s, KV_SEG_SEALED);
	pthread_mutex_unlock(&ss->sg_lock);
}

void kv_seg_close(struct kvdb *db, struct kv_seg *s, uint32_t end)
{
	struct kv_segs *ss = db->d_segs;

	pthread_mutex_lock(&ss->sg_lock);
	atomic_store(&s->sg_end, end);
	set_state(ss, s, KV_SEG_FULL);
	*ss->sg_full_tail = kv_seg_get(s);
	ss->sg_full_tail = &s->sg_full_next;
	pthread_mutex_unlock(&ss->sg_lock);
}

void kv_seg_close_cold(struct kvdb *db, struct kv_seg *s, uint32_t end)
{
	struct kv_segs *ss = db->d_segs;

	pthread_mutex_lock(&ss->sg_lock);
	atomic_store(&s->sg_end, end);
	set_state(ss, s, end ? KV_SEG_FULL : KV_SEG_SEALED);
	pthread_mutex_unlock(&ss->sg_lock);
}

/* The oldest full segment, if all its epochs are durable, off the queue. */
static struct kv_seg *full_take(struct kvdb *db)
{
	struct kv_segs *ss = db->d_segs;
	uint64_t durable = atomic_load(&db->d_durable);
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
			kv_slab_image_idle(db, s);
		else
			kv_slab_drop_image(db, s);
		kv_seg_put(db, s);
	}
}

/* ---- upkeep -------------------------------------------------------------------------- */

/* Takes up to STEP_MAX segments that are to be sealed, with references. */
static unsigned pick_seals(struct kvdb *db, struct kv_seg **out)
{
	struct kv_segs *ss = db->d_segs;
	uint64_t durable = atomic_load(&db->d_durable);
	struct kv_seg *s;
	unsigned n = 0;

	pthread_mutex_lock(&ss->sg_lock);
	for (s = ss->sg_todo; s && n < STEP_MAX; s = s->sg_todo_next) {
		uint32_t state = atomic_load(&s->sg_state);

		if ((state == KV_SEG_FULL && atomic_load(&s->sg_last_epoch) <= durable) ||
		    (state == KV_SEG_SEALED && !s->sg_obj_sealed))
			out[n++] = kv_seg_get(s);
	}
	pthread_mutex_unlock(&ss->sg_lock);
	return n;
}

/* S4: the batch flushes, the record that says where they end comes after it. */
static int seal(struct kvdb *db, struct kv_seg **seg, unsigned n)
{
	struct kv_segs *ss = db->d_segs;
	struct mpool_op op[STEP_MAX];
	struct kv_mdc_seg rec[STEP_MAX];
	unsigned i;
	int err;

	memset(op, 0, n * sizeof(op[0]));
	for (i = 0; i < n; i++) {
		op[i].type = MPOOL_OP_SEAL;
		op[i].obj = seg[i]->sg_obj;
		op[i].length = atomic_load(&seg[i]->sg_end);
		rec[i].sc_obj = seg[i]->sg_id;
		rec[i].sc_len = atomic_load(&seg[i]->sg_end);
		rec[i].sc_last = atomic_load(&seg[i]->sg_last_epoch);
	}
	err = BARRIER(447, mpool_batch(db->d_mp, op, n));
	if (err == -ENOMEM)
		return kv_error_mpool(err);	/* nothing was sealed: later */
	if (err)
		return kv_fail(db, kv_error_mpool(err), "sealing log segments: %s",
			       mpool_error_detail()->text);
	/* now: no object is sealed twice, and a record that does not fit is only missed (RV8) */
	pthread_mutex_lock(&ss->sg_lock);
	for (i = 0; i < n; i++) {
		seg[i]->sg_obj_sealed = true;
		set_state(ss, seg[i], KV_SEG_SEALED);
	}
	pthread_mutex_unlock(&ss->sg_lock);
	return kv_mdc_segs(db, rec, n);
}

int kv_segs_seal_moved(struct kvdb *db, struct kv_seg **seg, unsigned n)
{
	return seal(db, seg, n);
}

int kv_segs_seal(struct kvdb *db, struct kv_seg **seg, size_t n)
{
	struct kv_segs *ss = db->d_segs;
	struct kv_seg *part[STEP_MAX];
	unsigned k = 0;
	size_t i;
	int err = 0;

	/* upkeep may be at the same segments */
	pthread_mutex_lock(&ss->sg_step_lock);
	for (i = 0; i < n && !err; i++) {
		if (!seg[i]->sg_obj_sealed)
			part[k++] = seg[i];
		if (k && (k == STEP_MAX || i + 1 == n)) {
			err = seal(db, part, k);
			k = 0;
		}
	}
	pthread_mutex_unlock(&ss->sg_step_lock);
	return err;
}

static int seal_step(struct kvdb *db, unsigned least)
{
	struct kv_seg *seg[STEP_MAX];
	unsigned i, n = pick_seals(db, seg);
	int err = 0;

	if (n >= least && n)
		err = seal(db, seg, n);
	for (i = 0; i < n; i++)
		kv_seg_put(db, seg[i]);
	return err ? err : n >= least && n;
}

/* R6; caller holds sg_lock. */
static bool is_dead(struct kv_seg *s, uint64_t horizon, const struct kv_mt_spans *ms)
{
	return atomic_load(&s->sg_state) == KV_SEG_SEALED &&
	       atomic_load(&s->sg_last_epoch) <= horizon &&
	       CHECK(698, !kv_mt_may_name(ms, s)) && !atomic_load(&s->sg_runs) &&
	       !atomic_load(&s->sg_pins) && atomic_load(&s->sg_refs) == 1;
}

/* There was no memory to delete them: later. Nobody has looked for what is dead. */
static void undelete(struct kv_segs *ss, struct kv_seg **dead, unsigned n)
{
	pthread_mutex_lock(&ss->sg_lock);
	while (n--) {
		atomic_store(&dead[n]->sg_state, KV_SEG_SEALED);
		table_add(ss, dead[n]);
	}
	pthread_mutex_unlock(&ss->sg_lock);
}

static int delete_step(struct kvdb *db)
{
	struct kv_segs *ss = db->d_segs;
	uint64_t horizon = kv_min_horizon(db);
	struct kv_mt_spans memtables;
	struct kv_seg *s, *next, *dead[STEP_MAX];
	struct mpool_op op[STEP_MAX];
	uint64_t id[STEP_MAX];
	unsigned i, n = 0;
	int err;

	if (kv_ckpt_holds_all(db))
		return 0;
	memset(op, 0, sizeof(op));
	kv_mt_spans(db, &memtables);
	pthread_mutex_lock(&ss->sg_lock);
	for (s = ss->sg_todo; s && n < STEP_MAX; s = next) {
		next = s->sg_todo_next;
		if (!is_dead(s, horizon, &memtables))
			continue;
		table_del(ss, s);
		op[n].type = MPOOL_OP_DELETE;
		op[n].obj = s->sg_obj;
		dead[n++] = s;
	}
	pthread_mutex_unlock(&ss->sg_lock);
	if (!n)
		return 0;
	err = mpool_batch(db->d_mp, op, n);
	if (err == -ENOMEM) {
		undelete(ss, dead, n);
		return kv_error_mpool(err);
	}
	if (err)
		kv_fail(db, kv_error_mpool(err), "deleting dead log segments: %s",
			mpool_error_detail()->text);
	for (i = 0; i < n; i++) {
		if (atomic_load(&dead[i]->sg_image))
			kv_slab_drop_image(db, dead[i]);
		kv_page_purge(db, dead[i]->sg_id, dead[i]->sg_bytes / KV_BLOCK);
		id[i] = dead[i]->sg_id;
		kv_seg_put(db, dead[i]);	/* the table's */
	}
	kv_mdc_segs_gone(db, id, n);
	atomic_fetch_add(&db->d_count.segments_freed, n);
	return err ? err : 1;
}

/* What is dead but not sealed is no room: it is never a good part of a class. */
static unsigned seal_batch(struct kvdb *db)
{
	return min_u(batch_size(db), min_u(SEAL_MIN, segs_of(db, SEAL_BYTES)));
}

/* Ahead of need; a full pool is not an error here. */
int kv_segs_stock_step(struct kvdb *db)
{
	struct kv_segs *ss = db->d_segs;
	uint32_t mclass;
	unsigned full = batch_size(db), batch = stock_batch(db, full, &mclass);
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
		kv_pressure(db);	/* writers may have been slowed for want of them */
	return err ? err : 1;
}

uint32_t kv_segs_debt(struct kvdb *db, uint32_t ready)
{
	struct kv_segs *ss = db->d_segs;
	uint32_t full = atomic_load(&ss->sg_full_stock), n = ss->sg_nstock;

	/* a small pool keeps no stock worth the name; on a full one nobody works on it (TH-5) */
	if (ready == UINT32_MAX || full < DEBT_MIN || kv_now(db) < atomic_load(&ss->sg_retry_ns))
		return 0;
	n += ready;
	return n >= full ? 0 : kv_debt_part(full - n, full / 2, full);
}

int kv_segs_step(struct kvdb *db)
{
	struct kv_segs *ss = db->d_segs;
	int rc;

	if (db->d_rdonly || kv_fault(db))
		return 0;
	rc = kv_segs_stock_step(db);
	if (rc)
		return rc;
	if (pthread_mutex_trylock(&ss->sg_step_lock))
		return 0;
	rc = delete_step(db);
	if (!rc)
		rc = seal_step(db, seal_batch(db));
	pthread_mutex_unlock(&ss->sg_step_lock);
	return rc;
}

void kv_segs_free_dead(struct kvdb *db)
{
	struct kv_segs *ss = db->d_segs;
	/* beside writers others die meanwhile */
	uint32_t steps = kv_segs_count(db) / STEP_MAX + 1;
	int rc = 1;

	while (rc > 0 && steps--) {
		pthread_mutex_lock(&ss->sg_step_lock);
		rc = kv_fault(db) ? 0 : delete_step(db);
		pthread_mutex_unlock(&ss->sg_step_lock);
	}
}

int kv_segs_seal_now(struct kvdb *db)
{
	struct kv_segs *ss = db->d_segs;
	int rc;

	pthread_mutex_lock(&ss->sg_step_lock);
	do {
		rc = seal_step(db, 1);
	} while (rc > 0);
	pthread_mutex_unlock(&ss->sg_step_lock);
	return rc;
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

bool kv_segs_are_busy(struct kvdb *db)
{
	struct kv_segs *ss = db->d_segs;

	if (pthread_mutex_trylock(&ss->sg_step_lock))
		return true;
	pthread_mutex_unlock(&ss->sg_step_lock);
	return false;
}

/* The stock holds nothing: it goes back with the close. */
static int drop_stock(struct kvdb *db)
{
	struct kv_segs *ss = db->d_segs;
	struct mpool_op op[BATCH_MAX];
	struct kv_seg *s;
	unsigned n = 0;
	int err;

	memset(op, 0, sizeof(op));
	pthread_mutex_lock(&ss->sg_lock);
	for (; n < ss->sg_nstock; n++) {
		op[n].type = MPOOL_OP_DELETE;
		op[n].obj = ss->sg_stock[n]->sg_obj;
		table_del(ss, ss->sg_stock[n]);
	}
	pthread_mutex_unlock(&ss->sg_lock);
	err = n ? mpool_batch(db->d_mp, op, n) : 0;
	while (ss->sg_nstock) {
		s = ss->sg_stock[--ss->sg_nstock];
		kv_seg_put(db, s);
	}
	return err ? kv_error_mpool(err) : 0;
}

int kv_segs_finish(struct kvdb *db)
{
	struct kv_segs *ss = db->d_segs;
	struct kv_seg *s, *next;
	int rc;

	/* what the logs had open is as full as it gets; what they never used is dead */
	pthread_mutex_lock(&ss->sg_lock);
	for (s = ss->sg_todo; s; s = next) {
		next = s->sg_todo_next;
		if (atomic_load(&s->sg_state) == KV_SEG_OPEN)
			set_state(ss, s, atomic_load(&s->sg_end) ? KV_SEG_FULL : KV_SEG_SEALED);
	}
	pthread_mutex_unlock(&ss->sg_lock);
	do {
		rc = delete_step(db);
	} while (rc > 0);
	while (!rc) {
		rc = seal_step(db, 1);
		if (!rc)
			break;
		rc = rc > 0 ? 0 : rc;
	}
	return rc ? rc : drop_stock(db);
}

/* sg_lock held. */
static bool is_cold(struct kvdb *db, const struct kv_seg *s, uint32_t least)
{
	return atomic_load(&s->sg_state) == KV_SEG_SEALED && atomic_load(&s->sg_runs) &&
	       !atomic_load(&s->sg_image) && !atomic_load(&s->sg_victim) && !s->sg_is_cold &&
	       s->sg_bytes <= db->d_budget.b_seg_bytes &&
	       atomic_load(&s->sg_end) >= least;
}

struct kv_seg *kv_seg_next_cold(struct kvdb *db, uint64_t after, uint32_t least)
{
	struct kv_segs *ss = db->d_segs;
	uint64_t most = db->d_budget.b_slab_bytes / 4 * 5, bytes = 0;
	struct kv_seg *best = NULL, *s;

	pthread_mutex_lock(&ss->sg_lock);
	for (s = ss->sg_list; s && bytes <= most; s = s->sg_next) {
		if (atomic_load(&s->sg_runs))
			bytes += atomic_load(&s->sg_end);
		/* the smallest distance behind @after, around the end */
		if (is_cold(db, s, least) &&
		    (!best || s->sg_id - after - 1 < best->sg_id - after - 1))
			best = s;
	}
	best = best && bytes <= most ? kv_seg_get(best) : NULL;
	pthread_mutex_unlock(&ss->sg_lock);
	return best;
}

struct seg_sums {
	struct kvdb_stats *su_st;
	uint64_t su_values[MPOOL_MCLASSES];
};

static void add_stats(void *arg, struct kv_seg *s)
{
	struct seg_sums *su = arg;

	su->su_st->space[s->sg_mclass].segment_bytes += s->sg_bytes;
	if (atomic_load(&s->sg_state) != KV_SEG_SEALED)
		return;
	if (atomic_load(&s->sg_pins) && !atomic_load(&s->sg_runs))
		su->su_st->pinned_bytes += s->sg_bytes;
	else if (s->sg_stream == KV_VLOG)
		su->su_values[s->sg_mclass] += atomic_load(&s->sg_end);
}

void kv_segs_stats(struct kvdb *db, struct kvdb_stats *st)
{
	struct seg_sums su = { .su_st = st };

	st->segments = kv_segs_count(db);
	kv_segs_each(db, add_stats, &su);
	kv_ckpt_stats(db, st);
	/* headers, keys and what memtables still refer to count as dead: a rough upper bound */
	for (int c = 0; c < MPOOL_MCLASSES; c++) {
		struct kvdb_space *sp = &st->space[c];

		if (su.su_values[c] > sp->live_value_bytes)
			sp->dead_value_bytes = su.su_values[c] - sp->live_value_bytes;
		st->dead_value_bytes += sp->dead_value_bytes;
	}
}
