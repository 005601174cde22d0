/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Memtables: entries, versions, the hash table, arenas.
 *
 * Invariants M1, M2, M3, M4, M5, M7: README.md.
 *
 * Locks: bucket (spins, yields) > pt_new push (lock-free); m_grow_lock >
 * bucket; st_lock > vw_lock.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "mem/memtable.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/guard.h"
#include "base/hash.h"
#include "db/bell.h"
#include "db/db.h"
#include "db/thread.h"
#include "seg/kv_omf.h"
#include "seg/seg.h"
#include "seg/value.h"
#include "mem/keylock.h"
#include "mem/spans.h"
#include "mem/tomb.h"

#define PTR_MASK	0xffffffffffffull
#define CHUNK_MIN	(1u << 10)
#define CHUNK_MAX	(1u << 20)
#define TABLE_MIN	64u	/* buckets */
#define LOAD_MAX	4u	/* entries a bucket holds on average before the table grows */
#define LOOK_MTS	64u	/* memtables of readers that are looked at for one question */
#define GROW_OWN	16384u	/* keys that a writer moves himself: about a millisecond */

struct kv_chunk {
	struct kv_chunk *ch_next;
	uint32_t ch_size;
	_Atomic(uint32_t) ch_pos;
	uint8_t ch_mem[] __attribute__((aligned(8)));
};

/* ---- arenas ----------------------------------------------------------------- */

static struct kv_chunk *chunk_get(struct kvdb *db, uint32_t size)
{
	struct kv_views *vw = db->d_mem.mm_views;
	struct kv_chunk *ch = NULL;

	if (size == CHUNK_MAX) {
		pthread_mutex_lock(&vw->vw_lock);
		ch = vw->vw_free;
		if (ch) {
			vw->vw_free = ch->ch_next;
			db->d_count.mt_free -= ch->ch_size;
		}
		pthread_mutex_unlock(&vw->vw_lock);
	}
	if (!ch)
		ch = malloc(sizeof(*ch) + size);
	if (ch) {
		ch->ch_size = size;
		atomic_store_explicit(&ch->ch_pos, 0, memory_order_relaxed);
	}
	return ch;
}

static void *chunk_take(struct kv_chunk *ch, uint32_t bytes)
{
	uint32_t pos;

	if (!ch)
		return NULL;
	pos = atomic_fetch_add_explicit(&ch->ch_pos, bytes, memory_order_relaxed);
	if (pos + bytes <= ch->ch_size)
		return ch->ch_mem + pos;
	/* keep the counter from wrapping however many come */
	atomic_store_explicit(&ch->ch_pos, ch->ch_size, memory_order_relaxed);
	return NULL;
}

static __attribute__((noinline)) void *arena_grow(struct kv_mt *mt, struct kv_stripe *st,
						  uint32_t bytes)
{
	struct kv_views *vw = mt->m_db->d_mem.mm_views;
	struct kv_chunk *ch;
	uint32_t size;
	void *p;

	pthread_mutex_lock(&st->st_lock);
	ch = atomic_load(&st->st_chunk);
	p = chunk_take(ch, bytes);
	if (!p) {
		/* small tables stay small, large ones take large chunks */
		size = ch ? ch->ch_size * 4 : CHUNK_MIN;
		while (size < bytes)
			size *= 4;
		size = size > CHUNK_MAX ? CHUNK_MAX : size;
		ch = chunk_get(mt->m_db, size);
		if (ch) {
			p = chunk_take(ch, bytes);
			pthread_mutex_lock(&vw->vw_lock);
			ch->ch_next = mt->m_chunks;
			mt->m_chunks = ch;
			pthread_mutex_unlock(&vw->vw_lock);
			atomic_store_explicit(&st->st_chunk, ch, memory_order_release);
			atomic_fetch_add(&mt->m_bytes, size);
			atomic_fetch_add(&mt->m_db->d_count.mt_mem, size);
		}
	}
	pthread_mutex_unlock(&st->st_lock);
	return p;
}

/* Bytes from the memtable's arena, aligned to 8; NULL = no memory. */
void *kv_mt_arena(struct kv_mt *mt, uint32_t bytes)
{
	struct kv_stripe *st = &mt->m_stripe[kv_thread_no() % KV_STRIPES];
	void *p;

	KV_ASSERT(bytes <= CHUNK_MAX);
	bytes = kv_pad8(bytes);
	p = chunk_take(atomic_load_explicit(&st->st_chunk, memory_order_acquire), bytes);
	return KV_LIKELY(p != NULL) ? p : arena_grow(mt, st, bytes);
}

/* ---- the table ------------------------------------------------------------------ */

static struct kv_table *table_new(uint64_t buckets)
{
	struct kv_table *tb = calloc(1, sizeof(*tb));

	KV_ASSERT(!(buckets & (buckets - 1)));
	if (!tb)
		return NULL;
	tb->tb_mask = buckets - 1;
	/* zero pages of the kernel: untouched buckets take no memory */
	tb->tb_bucket = mmap(NULL, buckets * sizeof(struct kv_bucket), PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (tb->tb_bucket == MAP_FAILED) {
		free(tb);
		return NULL;
	}
	return tb;
}

static void table_free(void *arg)
{
	struct kv_table *tb = arg;

	munmap(tb->tb_bucket, (tb->tb_mask + 1) * sizeof(struct kv_bucket));
	free(tb);
}

static void bucket_unlock(struct kv_bucket *bk)
{
	KV_ASSERT_SLOW(atomic_load(&bk->bk_meta) == KV_BUCKET_LOCK);
	atomic_store_explicit(&bk->bk_meta, 0, memory_order_release);
}

static void bucket_lock_raw(struct kv_bucket *bk)
{
	unsigned int spins = 0;
	uint64_t want;

	for (;;) {
		want = 0;
		if (atomic_compare_exchange_weak_explicit(&bk->bk_meta, &want, KV_BUCKET_LOCK,
							  memory_order_acquire,
							  memory_order_relaxed))
			return;
		if (want & KV_BUCKET_MOVED)
			return;
		if (++spins % 64 == 0)
			sched_yield();	/* its holder may have lost the processor */
		else
			kv_cpu_pause();
	}
}

/* The locked bucket of a hash, in the table where it lives now. */
static struct kv_bucket *bucket_lock(struct kv_mt *mt, uint64_t hash)
{
	struct kv_table *tb = atomic_load_explicit(&mt->m_table, memory_order_acquire);

	for (;;) {
		struct kv_bucket *bk = &tb->tb_bucket[hash & tb->tb_mask];

		bucket_lock_raw(bk);
		if (!(atomic_load_explicit(&bk->bk_meta, memory_order_acquire) & KV_BUCKET_MOVED))
			return bk;
		tb = atomic_load_explicit(&tb->tb_next, memory_order_acquire);
	}
}

static inline uint64_t slot_tag(uint64_t hash)
{
	return hash & ~PTR_MASK;
}

static struct kv_entry *bucket_find(struct kv_bucket *bk, uint64_t hash, const void *key,
				    size_t klen)
{
	for (; bk; bk = atomic_load_explicit(&bk->bk_more, memory_order_acquire)) {
		for (int i = 0; i < KV_BUCKET_SLOTS; i++) {
			uint64_t s = atomic_load_explicit(&bk->bk_slot[i], memory_order_acquire);
			struct kv_entry *en = (struct kv_entry *)(s & PTR_MASK);

			if (!s)
				return NULL;	/* slots fill in order */
			if ((s & ~PTR_MASK) == slot_tag(hash) && en->en_klen == klen &&
			    !memcmp(en->en_key, key, klen))
				return en;
		}
	}
	return NULL;
}

/* Adds an entry to a locked bucket (or one that no other thread can reach). 0 or -ENOMEM. */
static int bucket_add(struct kv_mt *mt, struct kv_bucket *bk, uint64_t hash, struct kv_entry *en)
{
	uint64_t s = slot_tag(hash) | (uint64_t)en;
	struct kv_bucket *more;
	unsigned int depth = 0;

	KV_ASSERT_SLOW(!((uint64_t)en & ~PTR_MASK));
	for (;; bk = more) {
		for (int i = 0; i < KV_BUCKET_SLOTS; i++) {
			if (!atomic_load_explicit(&bk->bk_slot[i], memory_order_relaxed)) {
				atomic_store_explicit(&bk->bk_slot[i], s, memory_order_release);
				return 0;
			}
		}
		if (++depth == 2)
			atomic_store_explicit(&mt->m_grow_wanted, true, memory_order_relaxed);
		more = atomic_load_explicit(&bk->bk_more, memory_order_relaxed);
		if (!more) {
			more = kv_mt_arena(mt, sizeof(*more));
			if (!more)
				return -ENOMEM;
			memset(more, 0, sizeof(*more));
			atomic_store_explicit(&bk->bk_more, more, memory_order_release);
		}
	}
}

/* Moves one bucket into the next table; its lock is held and becomes MOVED. */
static int bucket_move(struct kv_mt *mt, struct kv_bucket *bk, struct kv_table *to)
{
	struct kv_bucket *b;

	KV_ASSERT_SLOW(atomic_load(&bk->bk_meta) == KV_BUCKET_LOCK);
	for (b = bk; b; b = atomic_load(&b->bk_more)) {
		for (int i = 0; i < KV_BUCKET_SLOTS; i++) {
			uint64_t s = atomic_load(&b->bk_slot[i]), hash;
			struct kv_entry *en = (struct kv_entry *)(s & PTR_MASK);

			if (!s)
				break;
			hash = kv_hash(en->en_key, en->en_klen);
			if (bucket_add(mt, &to->tb_bucket[hash & to->tb_mask], hash, en))
				return -ENOMEM;
		}
	}
	atomic_store_explicit(&bk->bk_meta, KV_BUCKET_MOVED, memory_order_release);
	return 0;
}

/*
 * A move without memory: nothing of bucket @i of @tb is in the next table, where no reader looks
 * for it yet. A walk over both tables would meet an entry of two buckets twice.
 */
static void bucket_unmove(const struct kv_table *tb, uint64_t i, struct kv_table *to)
{
	for (; i <= to->tb_mask; i += tb->tb_mask + 1)
		for (struct kv_bucket *b = &to->tb_bucket[i]; b; b = atomic_load(&b->bk_more))
			for (int j = 0; j < KV_BUCKET_SLOTS; j++)
				atomic_store_explicit(&b->bk_slot[j], 0, memory_order_relaxed);
}

void kv_mt_grow(struct kv_mt *mt)
{
	struct kv_table *tb, *to, *gone = NULL;
	uint64_t i;

	if (pthread_mutex_trylock(&mt->m_grow_lock))
		return;
	tb = atomic_load(&mt->m_table);
	atomic_store(&mt->m_grow_asked, false);
	atomic_store(&mt->m_grow_wanted, false);
	if (atomic_load(&mt->m_keys) < (tb->tb_mask + 1) * LOAD_MAX)
		goto out;
	to = atomic_load(&tb->tb_next);	/* an earlier attempt ran out of memory midway */
	if (!to) {
		to = table_new((tb->tb_mask + 1) * 4);
		if (!to)
			goto out;	/* slower, not wrong */
		atomic_store(&tb->tb_next, to);
		atomic_fetch_add(&mt->m_bytes, (to->tb_mask + 1) * sizeof(struct kv_bucket));
		atomic_fetch_add(&mt->m_db->d_count.mt_mem,
				 (to->tb_mask + 1) * sizeof(struct kv_bucket));
	}
	for (i = 0; i <= tb->tb_mask; i++) {
		struct kv_bucket *bk = &tb->tb_bucket[i];

		bucket_lock_raw(bk);
		if (atomic_load(&bk->bk_meta) & KV_BUCKET_MOVED)
			continue;
		if (bucket_move(mt, bk, to)) {
			bucket_unmove(tb, i, to);
			bucket_unlock(bk);
			goto out;
		}
	}
	atomic_store(&mt->m_table, to);
	atomic_fetch_sub(&mt->m_bytes, (tb->tb_mask + 1) * sizeof(struct kv_bucket));
	atomic_fetch_sub(&mt->m_db->d_count.mt_mem,
			 (tb->tb_mask + 1) * sizeof(struct kv_bucket));
	gone = tb;
out:
	pthread_mutex_unlock(&mt->m_grow_lock);
	/* not under the lock: that may run destructors */
	if (gone)
		kv_retire(&gone->tb_limbo, table_free, gone);
}

void kv_mt_grow_soon(struct kv_mt *mt)
{
	if (kv_is_manual(mt->m_db) || atomic_load(&mt->m_keys) < GROW_OWN)
		kv_mt_grow(mt);
	else if (!atomic_exchange(&mt->m_grow_asked, true))
		kv_grower_kick(mt->m_db);
}

static int each_in_bucket(struct kv_bucket *bk, int (*fn)(struct kv_entry *en, void *arg),
			  void *arg)
{
	int err = 0;

	for (; bk && !err; bk = atomic_load(&bk->bk_more)) {
		for (int i = 0; i < KV_BUCKET_SLOTS && !err; i++) {
			uint64_t s = atomic_load(&bk->bk_slot[i]);

			if (!s)
				return 0;
			err = fn((struct kv_entry *)(s & PTR_MASK), arg);
		}
	}
	return err;
}

int kv_mt_each(struct kv_mt *mt, int (*fn)(struct kv_entry *en, void *arg), void *arg)
{
	struct kv_table *tb;
	int err = 0;

	pthread_mutex_lock(&mt->m_grow_lock);
	/* a move that ran out of memory leaves entries in two tables */
	for (tb = atomic_load(&mt->m_table); tb && !err; tb = atomic_load(&tb->tb_next)) {
		for (uint64_t i = 0; i <= tb->tb_mask && !err; i++) {
			struct kv_bucket *bk = &tb->tb_bucket[i];

			bucket_lock_raw(bk);
			if (atomic_load(&bk->bk_meta) & KV_BUCKET_MOVED)
				continue;
			err = each_in_bucket(bk, fn, arg);
			bucket_unlock(bk);
		}
	}
	pthread_mutex_unlock(&mt->m_grow_lock);
	return err;
}

/* ---- versions ---------------------------------------------------------------------- */

/* T13: no view lies between two stamps that were taken at once. */
uint64_t kv_tslot_take(struct kvdb *db, const struct kv_tslot *ts)
{
	return ts->ts_has_ranges ? atomic_fetch_add(&db->d_epochs.ep_seq, 2) + 1 :
				   atomic_fetch_add(&db->d_epochs.ep_seq, 1);
}

/* T13: what the transaction put after its deletes is newer than these. */
uint64_t kv_tslot_tomb_seq(uint64_t s)
{
	KV_ASSERT(s && !(s & KV_IN_SLOT));
	return s - (uint64_t)BARRIER(1);
}

uint64_t kv_tslot_stamp(struct kvdb *db, struct kv_tslot *ts)
{
	uint64_t s = atomic_load(&ts->ts_state);

	if (s == KV_TS_PREPARED) {
		uint64_t now = ts->ts_has_ranges ? kv_tslot_take(db, ts) :
						   atomic_load(&db->d_epochs.ep_seq);

		if (atomic_compare_exchange_strong(&ts->ts_state, &s, now))
			s = now;
	}
	return s & KV_IN_SLOT ? KV_HIDDEN : s;
}

uint64_t kv_tslot_commit(struct kvdb *db, struct kv_tslot *ts)
{
	uint64_t s = KV_TS_ACTIVE;

	atomic_compare_exchange_strong(&ts->ts_state, &s, KV_TS_PREPARED);
	return kv_tslot_stamp(db, ts);
}

/* A version that is HIDDEN, PENDING or its transaction's (R12). */
static uint64_t stamp_undecided(struct kvdb *db, struct kv_version *v, uint64_t s)
{
	struct kv_thread *t;
	uint64_t now;

	if (s == KV_HIDDEN)
		return s;
	if (s == KV_PENDING) {
		/* H2: what is written after a delete of many keys is above its stamp */
		now = v->v_kind == KV_ENT_COVER ? atomic_fetch_add(&db->d_epochs.ep_seq, 1) :
						  atomic_load(&db->d_epochs.ep_seq);
		return atomic_compare_exchange_strong(&v->v_seq, &s, now) ? now : s;
	}
	/* iterators come from outside: only a slot that is named in here is still there (T10) */
	t = kv_enter();
	s = now = atomic_load(&v->v_seq);
	if (s & KV_IN_SLOT && s != KV_HIDDEN) {
		now = kv_tslot_stamp(db, (struct kv_tslot *)(s & PTR_MASK));
		if (v->v_kind == KV_ENT_COVER && now != KV_HIDDEN)
			now = kv_tslot_tomb_seq(now);
		/* from now on it needs no slot; a thread that was faster knows better */
		if (now != KV_HIDDEN && !atomic_compare_exchange_strong(&v->v_seq, &s, now))
			now = s;
	}
	kv_exit(t);
	return now;
}

uint64_t kv_version_stamp(struct kvdb *db, struct kv_version *v)
{
	/* a view does not see HIDDEN of what is stamped for it: kv_view_open() */
	uint64_t s = atomic_load_explicit(&v->v_seq, memory_order_acquire);

	return KV_UNLIKELY(s & KV_IN_SLOT) ? stamp_undecided(db, v, s) : s;
}

/* After the value and its expiry: not aligned. */
static uint8_t *skip_place(const struct kv_version *v)
{
	return (uint8_t *)v->v_val + (v->v_kind == KV_ENT_INLINE ? v->v_vlen : 0) +
	       (v->v_expires ? 8 : 0);
}

/* A version without a skip pointer is the end of the list of those that have one. */
static struct kv_vskip skip_of(const struct kv_version *v)
{
	struct kv_vskip vs = { .vs_to = (struct kv_version *)v };

	if (v->v_skips)
		memcpy(&vs, skip_place(v), sizeof(vs));
	return vs;
}

/* Of a version that is linked over @old. */
static struct kv_vskip skip_over(struct kv_version *old)
{
	struct kv_vskip a = skip_of(old), b = skip_of(a.vs_to), c = skip_of(b.vs_to);
	bool are_equal = a.vs_depth - b.vs_depth == b.vs_depth - c.vs_depth;

	return (struct kv_vskip){ .vs_to = are_equal ? b.vs_to : old, .vs_depth = a.vs_depth + 1 };
}

struct kv_version *kv_version_next(const struct kv_version *v, uint64_t seq)
{
	struct kv_version *to;
	uint64_t s;

	if (v->v_skips) {
		to = skip_of(v).vs_to;
		s = atomic_load_explicit(&to->v_seq, memory_order_acquire);
		/* M7: all between them are above @seq, too, unless that stamp is not final */
		if (s > seq && !(s & KV_IN_SLOT))
			return to;
	}
	return atomic_load_explicit(&v->v_older, memory_order_acquire);
}

struct kv_version *kv_version_at(struct kvdb *db, struct kv_entry *en, uint64_t seq)
{
	struct kv_version *v = atomic_load_explicit(&en->en_head, memory_order_acquire);

	for (; v; v = kv_version_next(v, seq)) {
		uint64_t s = kv_version_stamp(db, v);

		if (s <= seq)	/* KV_HIDDEN is greater than every view */
			return v;
	}
	return NULL;
}

void kv_version_ent(const struct kv_entry *en, const struct kv_version *v, struct kv_ent *e)
{
	e->e_key = en->en_key;
	e->e_klen = en->en_klen;
	e->e_kind = v->v_kind;
	e->e_pack = 0;
	e->e_vlen = v->v_vlen;
	e->e_vcrc = v->v_vcrc;
	e->e_off8 = v->v_off8;
	e->e_seg = v->v_seg;
	e->e_val = v->v_val;
	e->e_expiry = 0;
	if (KV_UNLIKELY(v->v_expires))
		memcpy(&e->e_expiry, v->v_val + (v->v_kind == KV_ENT_INLINE ? v->v_vlen : 0), 8);
	e->e_seq = atomic_load_explicit(&v->v_seq, memory_order_relaxed);
}

/* M3: drops the version under @old when no view can tell them apart. */
static void unlink_equal(struct kv_version *old)
{
	struct kv_version *o = atomic_load(&old->v_older);

	if (o && atomic_load(&o->v_seq) == atomic_load(&old->v_seq))
		atomic_store_explicit(&old->v_older, atomic_load(&o->v_older),
				      memory_order_release);
}

/* A version over @old, which is NULL for none; not linked yet. Bucket lock held. */
static struct kv_version *version_new(struct kv_mt *mt, const struct kv_mt_op *op,
				      struct kv_seg *seg, uint64_t epoch, struct kv_version *old)
{
	uint32_t inl = op->op_kind == KV_ENT_INLINE ? op->op_vlen : 0;
	struct kv_version *v;
	struct kv_vskip vs;
	bool skips;

	if (old) {
		kv_version_stamp(mt->m_db, old);	/* R12: the predecessor is final first */
		unlink_equal(old);
	}
	skips = old && atomic_load_explicit(&old->v_older, memory_order_relaxed);
	v = kv_mt_arena(mt, (uint32_t)sizeof(*v) + inl + (op->op_expiry ? 8 : 0) +
			(skips ? (uint32_t)sizeof(vs) : 0));
	if (!v)
		return NULL;
	atomic_init(&v->v_seq, KV_HIDDEN);
	atomic_init(&v->v_older, old);
	v->v_seg = op->op_kind == KV_ENT_REF ? seg : NULL;
	v->v_epoch = epoch;
	v->v_off8 = op->op_val_off / KV_REC_ALIGN;
	v->v_vlen = op->op_vlen;
	v->v_vcrc = op->op_vcrc;
	v->v_kind = op->op_kind;
	v->v_rev = old ? old->v_rev + 1 : 1;
	if (KV_UNLIKELY(v->v_rev < op->op_rev))
		v->v_rev = op->op_rev;
	v->v_expires = op->op_expiry != 0;
	v->v_skips = skips;
	if (inl)
		memcpy(v->v_val, op->op_val, inl);
	if (KV_UNLIKELY(op->op_expiry))
		memcpy(v->v_val + inl, &op->op_expiry, 8);
	if (skips) {
		vs = skip_over(old);
		memcpy(skip_place(v), &vs, sizeof(vs));
	}
	return v;
}

/* The entry of a key in a locked bucket, made when absent. */
static inline struct kv_entry *entry_get(struct kv_mt *mt, struct kv_bucket *bk,
					 const struct kv_mt_op *op)
{
	struct kv_entry *en = bucket_find(bk, op->op_hash, op->op_key, op->op_klen);

	if (en)
		return en;
	en = kv_mt_arena(mt, (uint32_t)sizeof(*en) + op->op_klen);
	if (!en)
		return NULL;
	atomic_init(&en->en_head, NULL);
	en->en_next = KV_UNORDERED;
	en->en_klen = op->op_klen;
	memcpy(en->en_key, op->op_key, op->op_klen);
	if (bucket_add(mt, bk, op->op_hash, en))
		return NULL;
	atomic_fetch_add_explicit(&mt->m_keys, 1, memory_order_relaxed);
	if (atomic_load(&mt->m_ordered))
		kv_order_push(mt, en);
	return en;
}

/* Notes that a record of epoch @e is about to be installed. */
static inline void note_epoch(struct kv_mt *mt, uint64_t e)
{
	uint64_t none = 0, last = atomic_load_explicit(&mt->m_last_epoch, memory_order_relaxed);

	/* it is frozen at the end of an epoch, and has none of a later one */
	KV_ASSERT_SLOW(!atomic_load(&mt->m_boundary) || e <= atomic_load(&mt->m_boundary));
	while (KV_UNLIKELY(last < e) &&
	       !atomic_compare_exchange_weak(&mt->m_last_epoch, &last, e))
		;

	if (KV_UNLIKELY(!atomic_load_explicit(&mt->m_first_epoch, memory_order_relaxed))) {
		/* M6: several may be here; a late one leaves the place of the first */
		atomic_compare_exchange_strong(&mt->m_log_pos, &none,
					       atomic_load(&mt->m_db->d_logged.lc_bytes));
		none = 0;
		atomic_compare_exchange_strong(&mt->m_first_epoch, &none, e);
	}
}

int kv_mt_install(struct kv_mt *mt, const struct kv_mt_op *op, struct kv_slot *sl,
		  const struct kv_resv *rs, struct kv_version **out)
{
	struct kvdb *db = mt->m_db;
	struct kv_bucket *bk = bucket_lock(mt, op->op_hash);
	struct kv_version *v, *old = NULL;
	struct kv_entry *en;
	uint64_t st;
	int err = -EBUSY;

	KV_ASSERT_INSIDE();
	/*
	 * The look and the link are under one hold of the bucket's lock (R14). Sequentially
	 * consistent: the owner may have gone through the buckets of older memtables only
	 */
	if (KV_UNLIKELY(atomic_load(&db->d_mem.mm_owners)) &&
	    !CHECK(!kv_key_is_owned(db, mt->m_kvs, op->op_key, op->op_klen, op->op_hash)))
		goto out;
	err = -ENOMEM;
	en = entry_get(mt, bk, op);
	if (!en)
		goto out;
	old = atomic_load_explicit(&en->en_head, memory_order_relaxed);
	if (KV_UNLIKELY(op->op_is_based) && !CHECK(old == op->op_expect)) {
		err = -ESTALE;
		goto out;
	}
	v = version_new(mt, op, rs->rs_seg, rs->rs_epoch, old);
	if (!v)
		goto out;
	err = -EAGAIN;
	/* R7: a record that is late against the clock or its predecessor is logged again */
	if (!CHECK(atomic_load(&db->d_epochs.ep_open) == rs->rs_epoch &&
		   (!old || old->v_epoch <= rs->rs_epoch)))
		goto out;
	note_epoch(mt, rs->rs_epoch);
	kv_rec_set_rev(rs->rs_buf, v->v_rev);
	atomic_store_explicit(&sl->sl_ver, (uintptr_t)v, memory_order_release);
	atomic_store_explicit(&en->en_head, v, memory_order_release);
	/* sequentially consistent: linked before INSTALLING is seen (R12) */
	if (!kv_slot_install(sl)) {
		atomic_store_explicit(&en->en_head, old, memory_order_release);
		goto out;
	}
	st = KV_HIDDEN;	/* a helper may have been faster */
	atomic_compare_exchange_strong(&v->v_seq, &st, KV_PENDING);
	*out = v;
	err = 0;
out:
	bucket_unlock(bk);
	return err;
}

/* ---- versions of transactions -------------------------------------------------------- */

void kv_mt_note_epoch(struct kv_mt *mt, uint64_t e)
{
	note_epoch(mt, e);
}

int kv_mt_pin(struct kv_mt *mt, struct kv_seg *seg)
{
	struct kv_mt_pin *pin = kv_mt_arena(mt, sizeof(*pin));

	if (!pin)
		return -ENOMEM;
	pin->mp_seg = kv_seg_get(seg);
	pin->mp_next = atomic_load(&mt->m_pins);
	while (!atomic_compare_exchange_weak(&mt->m_pins, &pin->mp_next, pin))
		;
	return 0;
}

int kv_mt_link(struct kv_mt *mt, const struct kv_mt_op *op, struct kv_seg *seg,
	       struct kv_tslot *ts, struct kv_version **out)
{
	struct kv_bucket *bk;
	struct kv_version *v;
	struct kv_entry *en;
	int err = -ENOMEM;

	KV_ASSERT_INSIDE();
	bk = bucket_lock(mt, op->op_hash);
	en = entry_get(mt, bk, op);
	v = en ? version_new(mt, op, seg, 0, atomic_load(&en->en_head)) : NULL;
	if (!v)
		goto out;
	atomic_init(&v->v_seq, KV_IN_SLOT | (uint64_t)(uintptr_t)ts);
	atomic_store_explicit(&en->en_head, v, memory_order_release);
	*out = v;
	err = 0;
out:
	bucket_unlock(bk);
	return err;
}

void kv_mt_unlink(struct kv_mt *mt, const struct kv_mt_op *op, struct kv_version *v)
{
	struct kv_bucket *bk = bucket_lock(mt, op->op_hash);
	struct kv_entry *en = bucket_find(bk, op->op_hash, op->op_key, op->op_klen);

	KV_ASSERT_INSIDE();
	atomic_store(&v->v_seq, KV_HIDDEN);
	/* the key is owned: nothing was linked above it */
	if (en && atomic_load(&en->en_head) == v)
		atomic_store_explicit(&en->en_head, atomic_load(&v->v_older),
				      memory_order_release);
	bucket_unlock(bk);
}

uint64_t kv_mt_newest(struct kv_mt *mt, const void *key, size_t klen, uint64_t hash)
{
	struct kv_bucket *bk = bucket_lock(mt, hash);
	struct kv_entry *en = bucket_find(bk, hash, key, klen);
	struct kv_version *v = en ? kv_version_at(mt->m_db, en, KV_SEQ_NOW) : NULL;
	uint64_t s = v ? atomic_load(&v->v_seq) : 0;

	bucket_unlock(bk);
	return s;
}

static struct kv_entry *entry_find(struct kv_mt *mt, const void *key, size_t klen, uint64_t hash)
{
	struct kv_table *tb = atomic_load_explicit(&mt->m_table, memory_order_acquire);
	struct kv_bucket *bk = &tb->tb_bucket[hash & tb->tb_mask];

	KV_ASSERT_INSIDE();
	while (KV_UNLIKELY(atomic_load_explicit(&bk->bk_meta, memory_order_acquire) &
			   KV_BUCKET_MOVED)) {
		tb = atomic_load_explicit(&tb->tb_next, memory_order_acquire);
		bk = &tb->tb_bucket[hash & tb->tb_mask];
	}
	return bucket_find(bk, hash, key, klen);
}

int kv_mt_lookup(struct kv_mt *mt, const void *key, size_t klen, uint64_t hash, uint64_t seq,
		 struct kv_ent *e)
{
	struct kv_entry *en = entry_find(mt, key, klen, hash);
	struct kv_version *v;

	if (!en)
		return -ENOENT;
	v = kv_version_at(mt->m_db, en, seq);
	if (!v)
		return -ENOENT;
	kv_version_ent(en, v, e);
	return 0;
}

uint32_t kv_mt_next_rev(struct kv_mt *mt, const void *key, size_t klen, uint64_t hash)
{
	struct kv_bucket *bk = bucket_lock(mt, hash);
	struct kv_entry *en = bucket_find(bk, hash, key, klen);
	struct kv_version *v = en ? atomic_load(&en->en_head) : NULL;
	uint32_t rev = v ? v->v_rev + 1 : 1;

	KV_ASSERT_INSIDE();
	bucket_unlock(bk);
	return rev;
}

const struct kv_version *kv_mt_newest_version(struct kv_mt *mt, const void *key, size_t klen,
					      uint64_t hash)
{
	struct kv_entry *en = entry_find(mt, key, klen, hash);

	return en ? kv_version_at(mt->m_db, en, KV_SEQ_NOW) : NULL;
}

void kv_mt_prefetch(struct kv_mt *mt, uint64_t hash)
{
	struct kv_table *tb = atomic_load_explicit(&mt->m_table, memory_order_acquire);

	__builtin_prefetch(&tb->tb_bucket[hash & tb->tb_mask]);
}

/* ---- replay ---------------------------------------------------------------------------- */

static void replay_op(struct kv_mt_op *op, const struct kv_rec *r, uint32_t val_off)
{
	*op = (struct kv_mt_op){ .op_key = r->r_key, .op_klen = r->r_klen,
				 .op_hash = kv_hash(r->r_key, r->r_klen), .op_val = r->r_val,
				 .op_vlen = r->r_vlen, .op_vcrc = r->r_vcrc, .op_val_off =
				 val_off, .op_expiry = r->r_expiry };
	if (r->r_type == KV_REC_DEL)
		op->op_kind = KV_ENT_TOMB;
	else
		op->op_kind = r->r_vlen <= KV_INLINE_MAX ? KV_ENT_INLINE : KV_ENT_REF;
}

void kv_mt_note_replay(struct kv_mt *mt, uint64_t e)
{
	uint64_t first = atomic_load(&mt->m_first_epoch);

	if (!first || e < first)
		atomic_store(&mt->m_first_epoch, e);
	if (e > atomic_load(&mt->m_last_epoch))
		atomic_store(&mt->m_last_epoch, e);
}

int kv_mt_replay(struct kv_mt *mt, const struct kv_rec *r, uint64_t epoch,
		 struct kv_seg *seg, uint32_t val_off)
{
	struct kv_version *v, *old;
	struct kv_bucket *bk;
	struct kv_entry *en;
	struct kv_mt_op op;
	int err = -ENOMEM;

	replay_op(&op, r, val_off);
	bk = bucket_lock(mt, op.op_hash);
	en = entry_get(mt, bk, &op);
	if (!en)
		goto out;
	err = 0;
	old = atomic_load(&en->en_head);
	/* R3, R4: (epoch, rev) is the order of one key's records */
	if (old && (old->v_epoch > epoch || (old->v_epoch == epoch && old->v_rev >= r->r_rev)))
		goto out;
	/* one version of a key is enough: no view is open yet */
	v = version_new(mt, &op, seg, epoch, NULL);
	if (!v) {
		err = -ENOMEM;
		goto out;
	}
	v->v_rev = r->r_rev;
	atomic_store(&v->v_seq, r->r_seq);
	atomic_store(&en->en_head, v);
	if (r->r_seq < atomic_load(&mt->m_min_seq))
		atomic_store(&mt->m_min_seq, r->r_seq);
	kv_mt_note_replay(mt, epoch);
out:
	bucket_unlock(bk);
	if (atomic_load(&mt->m_grow_wanted))
		kv_mt_grow(mt);
	return err;
}

/* ---- life ---------------------------------------------------------------------------------- */

int kv_mts_init(struct kvdb *db)
{
	struct kv_views *vw = calloc(1, sizeof(*vw));

	if (!vw)
		return -ENOMEM;
	pthread_mutex_init(&vw->vw_lock, NULL);
	db->d_mem.mm_views = vw;
	return 0;
}

void kv_mts_fini(struct kvdb *db)
{
	struct kv_views *vw = db->d_mem.mm_views;
	struct kv_chunk *ch;

	if (!vw)
		return;
	KV_ASSERT(!vw->vw_mts && !vw->vw_held);
	while ((ch = vw->vw_free)) {
		vw->vw_free = ch->ch_next;
		free(ch);
	}
	pthread_mutex_destroy(&vw->vw_lock);
	free(vw);
	db->d_mem.mm_views = NULL;
}

/* Buckets for as many keys as the predecessor held. */
static uint64_t table_size(struct kv_mt *like)
{
	uint64_t keys = like ? atomic_load(&like->m_keys) : 0, n = TABLE_MIN;

	while (n * LOAD_MAX < keys)
		n *= 2;
	return n;
}

static void list_add(struct kv_mt **head, struct kv_mt *mt)
{
	KV_ASSERT_HELD(&mt->m_db->d_mem.mm_views->vw_lock);
	mt->m_prev = NULL;
	mt->m_next = *head;
	if (mt->m_next)
		mt->m_next->m_prev = mt;
	*head = mt;
}

static void list_del(struct kv_mt **head, struct kv_mt *mt)
{
	KV_ASSERT_HELD(&mt->m_db->d_mem.mm_views->vw_lock);
	KV_ASSERT(mt->m_prev ? mt->m_prev->m_next == mt : *head == mt);
	if (mt->m_prev)
		mt->m_prev->m_next = mt->m_next;
	else
		*head = mt->m_next;
	if (mt->m_next)
		mt->m_next->m_prev = mt->m_prev;
}

int kv_mt_new(struct kvdb *db, uint32_t kvs, struct kv_mt *like, struct kv_mt **out)
{
	struct kv_views *vw = db->d_mem.mm_views;
	/* a multiple of its alignment, as its stripes have one */
	struct kv_mt *mt = aligned_alloc(KV_CACHELINE, sizeof(*mt));
	struct kv_table *tb = table_new(table_size(like));
	uint64_t bytes;

	if (!mt || !tb)
		goto fail;
	memset(mt, 0, sizeof(*mt));
	mt->m_db = db;
	mt->m_kvs = kvs;
	atomic_store(&mt->m_refs, 1);
	atomic_store(&mt->m_min_seq, UINT64_MAX);
	atomic_store(&mt->m_table, tb);
	pthread_mutex_init(&mt->m_grow_lock, NULL);
	pthread_mutex_init(&mt->m_collect_lock, NULL);
	pthread_mutex_init(&mt->m_dir_lock, NULL);
	for (uint32_t i = 0; i < KV_STRIPES; i++)
		pthread_mutex_init(&mt->m_stripe[i].st_lock, NULL);
	if (kv_order_init(mt, like)) {
		kv_order_fini(mt);
		goto fail;
	}
	bytes = (tb->tb_mask + 1) * sizeof(struct kv_bucket) + sizeof(*mt);
	atomic_store(&mt->m_bytes, bytes);
	atomic_fetch_add(&db->d_count.mt_mem, bytes);
	pthread_mutex_lock(&vw->vw_lock);
	list_add(&vw->vw_mts, mt);
	pthread_mutex_unlock(&vw->vw_lock);
	*out = mt;
	return 0;
fail:
	if (tb)
		table_free(tb);
	free(mt);
	return kv_error(-ENOMEM, "MP0902", "no memory for a memtable");
}

struct kv_mt *kv_mt_get(struct kv_mt *mt)
{
	KV_ASSERT(atomic_load(&mt->m_refs));
	atomic_fetch_add(&mt->m_refs, 1);
	return mt;
}

/* Chunks worth keeping: what one memtable is refilled from. */
static void chunks_free(struct kvdb *db, struct kv_chunk *ch)
{
	struct kv_views *vw = db->d_mem.mm_views;
	struct kv_chunk *next;

	for (; ch; ch = next) {
		next = ch->ch_next;
		pthread_mutex_lock(&vw->vw_lock);
		if (ch->ch_size == CHUNK_MAX &&
		    db->d_count.mt_free < db->d_budget.b_mt_bytes / 4) {
			ch->ch_next = vw->vw_free;
			vw->vw_free = ch;
			db->d_count.mt_free += ch->ch_size;
			ch = NULL;
		}
		pthread_mutex_unlock(&vw->vw_lock);
		free(ch);
	}
}

static void mt_free(void *arg)
{
	struct kv_mt *mt = arg;
	struct kvdb *db = mt->m_db;
	struct kv_table *tb = atomic_load(&mt->m_table);
	uint32_t i;

	KV_ASSERT(!atomic_load(&mt->m_refs));
	KV_ASSERT(atomic_load(&db->d_count.mt_mem) >= atomic_load(&mt->m_bytes));
	if (atomic_load(&tb->tb_next))
		table_free(atomic_load(&tb->tb_next));
	table_free(tb);
	kv_order_fini(mt);
	kv_mt_tombs_fini(mt);
	atomic_fetch_sub(&db->d_count.mt_mem, atomic_load(&mt->m_bytes));
	atomic_fetch_sub(&db->d_mem.mm_views->vw_flushed_bytes, mt->m_flushed_bytes);
	for (struct kv_mt_pin *p = atomic_load(&mt->m_pins); p; p = p->mp_next)
		kv_seg_put(db, p->mp_seg);
	chunks_free(db, mt->m_chunks);
	for (i = 0; i < KV_STRIPES; i++)
		pthread_mutex_destroy(&mt->m_stripe[i].st_lock);
	pthread_mutex_destroy(&mt->m_grow_lock);
	pthread_mutex_destroy(&mt->m_collect_lock);
	pthread_mutex_destroy(&mt->m_dir_lock);
	free(mt);
}

static void span_add(struct kv_mt_epochs *ms, uint64_t first, uint64_t last)
{
	unsigned i = ms->ms_n;

	KV_ASSERT(first <= last);
	if (i < KV_MT_EPOCHS) {
		ms->ms[i].first = first;
		ms->ms[i].last = last;
		ms->ms_n++;
		return;
	}
	i--;
	if (first < ms->ms[i].first)
		ms->ms[i].first = first;
	if (last > ms->ms[i].last)
		ms->ms[i].last = last;
}

/* A flushed one: it gets no more records. */
static void held_add(struct kv_mt_epochs *ms, const struct kv_mt *mt)
{
	uint64_t first = atomic_load(&mt->m_first_epoch);

	if (first)
		span_add(ms, first, atomic_load(&mt->m_last_epoch));
}

void kv_mt_flushed(struct kv_mt *mt)
{
	struct kv_views *vw = mt->m_db->d_mem.mm_views;

	KV_ASSERT(!atomic_load(&mt->m_flushed));
	mt->m_flushed_bytes = atomic_load(&mt->m_bytes);
	atomic_fetch_add(&vw->vw_flushed_bytes, mt->m_flushed_bytes);
	pthread_mutex_lock(&vw->vw_lock);
	list_del(&vw->vw_mts, mt);
	list_add(&vw->vw_held, mt);
	vw->vw_nheld++;
	/* the last entry would stand for all to come */
	vw->vw_is_vague |= vw->vw_epochs.ms_n == KV_MT_EPOCHS;
	held_add(&vw->vw_epochs, mt);
	atomic_store(&mt->m_flushed, true);
	pthread_mutex_unlock(&vw->vw_lock);
}

void kv_mt_put(struct kvdb *db, struct kv_mt *mt)
{
	struct kv_views *vw = db->d_mem.mm_views;

	KV_ASSERT(atomic_load(&mt->m_refs));
	if (atomic_fetch_sub(&mt->m_refs, 1) != 1)
		return;
	pthread_mutex_lock(&vw->vw_lock);
	if (atomic_load(&mt->m_flushed)) {
		list_del(&vw->vw_held, mt);
		KV_ASSERT(vw->vw_nheld);
		vw->vw_nheld--;
		vw->vw_is_vague = true;
	} else {
		list_del(&vw->vw_mts, mt);
	}
	pthread_mutex_unlock(&vw->vw_lock);
	kv_retire(&mt->m_limbo, mt_free, mt);
}

uint64_t kv_mt_first_epoch(const struct kv_mt *mt)
{
	return atomic_load(&mt->m_first_epoch);
}

uint64_t kv_mt_boundary(const struct kv_mt *mt)
{
	return atomic_load(&mt->m_boundary);
}

uint64_t kv_mt_keys(const struct kv_mt *mt)
{
	return atomic_load(&mt->m_keys);
}

/* Every memtable alive; vw_lock. */
static struct kv_mt *first_mt(struct kv_views *vw)
{
	return vw->vw_mts ? vw->vw_mts : vw->vw_held;
}

static struct kv_mt *next_mt(struct kv_views *vw, struct kv_mt *mt)
{
	return mt->m_next || atomic_load(&mt->m_flushed) ? mt->m_next : vw->vw_held;
}

uint64_t kv_mt_oldest_epoch(struct kvdb *db)
{
	struct kv_views *vw = db->d_mem.mm_views;
	uint64_t min = UINT64_MAX;

	pthread_mutex_lock(&vw->vw_lock);
	for (struct kv_mt *mt = first_mt(vw); mt; mt = next_mt(vw, mt)) {
		uint64_t e = atomic_load(&mt->m_first_epoch);

		if (e && e < min)
			min = e;
	}
	pthread_mutex_unlock(&vw->vw_lock);
	return min;
}

/*
 * Readers may have thousands: a look at all of them is for that many questions, of which the others
 * are answered with the epochs of those that have gone, too. vw_lock held.
 */
static void held_look(struct kv_views *vw)
{
	if (!vw->vw_is_vague || vw->vw_asked++ < vw->vw_nheld / LOOK_MTS)
		return;
	vw->vw_epochs.ms_n = 0;
	for (const struct kv_mt *mt = vw->vw_held; mt; mt = mt->m_next)
		held_add(&vw->vw_epochs, mt);
	vw->vw_looked += vw->vw_nheld;
	vw->vw_is_vague = false;
	vw->vw_asked = 0;
}

void kv_mt_epochs(struct kvdb *db, struct kv_mt_epochs *ms)
{
	struct kv_views *vw = db->d_mem.mm_views;

	pthread_mutex_lock(&vw->vw_lock);
	held_look(vw);
	*ms = vw->vw_epochs;
	for (struct kv_mt *mt = vw->vw_mts; mt; mt = mt->m_next) {
		uint64_t first = atomic_load(&mt->m_first_epoch);

		if (first)
			span_add(ms, first, UINT64_MAX);
	}
	pthread_mutex_unlock(&vw->vw_lock);
}

bool kv_mt_may_refer(const struct kv_mt_epochs *ms, const struct kv_seg *s)
{
	uint64_t first = atomic_load(&s->sg_first_epoch), last = atomic_load(&s->sg_last_epoch);

	for (unsigned i = 0; i < ms->ms_n; i++)
		if (last >= ms->ms[i].first && first <= ms->ms[i].last)
			return true;
	return false;
}

/*
 * R13: what was stamped before the addition is <= v, what is stamped after it
 * is > v. A view needs no place in a list: its cursor holds the memtables and
 * runs of its birth, so neither flush nor merge can take a version from it.
 *
 * A put loads ep_seq for its stamp without a trace. So that the view finds the
 * links and PENDING of each whose load was before the addition, a full fence is
 * between its looks and the addition, as between the links and what lets a stamp
 * be given (kv_slot_install()). Then acquire is enough for all that a view loads.
 */
uint64_t kv_view_open(struct kvdb *db)
{
	uint64_t v = atomic_fetch_add(&db->d_epochs.ep_seq, 1);

	kv_fence();
	return v;
}
