/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Order on demand. A memtable has no order until it is walked, by a cursor
 * or its flush: then the entries are collected from the hash table into key
 * ranges (partitions), and from that moment on insertions push their entry to
 * its partition's list. A thread that enters a partition sorts what is new there
 * and merges it into sorted arrays. Arrays that an iterator has are immutable and shared by
 * reference, so it keeps what it walks while others go on inserting; into one that none has, a
 * few new entries are inserted where it is. Mostly the insertion itself does that: what a walk
 * before it has brought into the processor's caches may be gone when the next one comes.
 *
 * Every entry gets into its partition once: m_ordered is set before the
 * collection starts, an insertion looks at it under its bucket's lock, and the
 * collection visits each bucket under that lock and passes over entries that
 * their insertion has pushed.
 *
 * A memtable begins with one partition, or with quantiles of a sample of its
 * predecessor's keys. A partition that has become large when it is entered is
 * replaced by several, so that an insertion and a walk of what is near it cost
 * the same at any size. It is closed first: an insertion that finds it so looks
 * for its partition again; what it held is in the new ones before the directory
 * that has them is published. Fences never move: what was the edge of a
 * partition stays one, and an iterator goes on from there. Partitions, closed
 * ones too, and their fences live as long as the memtable; directories until
 * their readers have left kv_enter().
 *
 * Locks: m_collect_lock > m_grow_lock > bucket; pt_lock, one at a time, >
 * m_dir_lock; pushing takes none, and an insertion, under its bucket's lock, only tries pt_lock.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/key.h"
#include "mem/order.h"
#include "mem/iter.h"
#include "mem/sorted.h"

#define PART_KEYS	256u	/* keys a partition begins with */
#define PARTS_FIRST	256u	/* that a memtable begins with, */
#define PARTS_SPLIT	8192u	/* and that replace one, at most */
#define SAMPLE_PER_PART	16u
#define AHEAD		12u	/* entries that are prefetched before they are read */

/* ---- partitions ----------------------------------------------------------------------- */

static struct kv_part *part_new(const uint8_t *fence, uint16_t len)
{
	struct kv_part *pt = aligned_alloc(KV_CACHELINE, sizeof(*pt));

	if (!pt)
		return NULL;
	memset(pt, 0, sizeof(*pt));
	pthread_mutex_init(&pt->pt_lock, NULL);
	pt->pt_fence = fence;
	pt->pt_fence_len = len;
	return pt;
}

static void arrays_put(struct kv_part *pt)
{
	kv_sorted_put(pt->pt_raw);
	kv_sorted_put(pt->pt_main);
	kv_sorted_put(pt->pt_tail);
	pt->pt_raw = pt->pt_main = pt->pt_tail = NULL;
}

static void part_free(struct kv_part *pt)
{
	arrays_put(pt);
	pthread_mutex_destroy(&pt->pt_lock);
	free(pt);
}

/* Fences and their heads are still to come. */
static struct kv_order_dir *dir_new(size_t n)
{
	struct kv_order_dir *od = calloc(1, sizeof(*od) + n * (sizeof(od->od_part[0]) +
							       sizeof(od->od_head[0])));

	if (od) {
		od->od_n = (uint32_t)n;
		od->od_head = (uint64_t *)(od->od_part + n);
	}
	return od;
}

/* Bytes that all fences have in common, but for the first one's, which no key is below. */
static uint16_t fences_share(const struct kv_order_dir *od)
{
	const struct kv_part *a, *b;

	if (od->od_n < 2)
		return 0;
	a = od->od_part[1];
	b = od->od_part[od->od_n - 1];
	return (uint16_t)kv_klcp(a->pt_fence, a->pt_fence_len, b->pt_fence, b->pt_fence_len);
}

static void set_heads(struct kv_order_dir *od, uint32_t from, uint32_t to)
{
	KV_ASSERT(to <= od->od_n);
	for (uint32_t i = from ? from : 1; i < to; i++) {
		const struct kv_part *pt = od->od_part[i];

		od->od_head[i] = kv_head8(pt->pt_fence + od->od_skip,
					  pt->pt_fence_len - od->od_skip);
	}
}

static void dir_heads(struct kv_order_dir *od)
{
	od->od_skip = fences_share(od);
	set_heads(od, 0, od->od_n);
}

/* As dir_heads(), if number @at of @old became @n: the others' fences are mostly not looked at. */
static void dir_heads_from(struct kv_order_dir *od, const struct kv_order_dir *old, uint32_t at,
			   uint32_t n)
{
	KV_ASSERT(od->od_n == old->od_n - 1 + n && at < old->od_n);
	od->od_skip = fences_share(od);
	if (od->od_skip != old->od_skip) {
		set_heads(od, 0, od->od_n);
		return;
	}
	memcpy(od->od_head, old->od_head, at * sizeof(od->od_head[0]));
	set_heads(od, at, at + n);
	memcpy(od->od_head + at + n, old->od_head + at + 1,
	       (old->od_n - at - 1) * sizeof(od->od_head[0]));
}

/* @n neighbours and the fence after the last, or NULL: heads begin where fences differ. */
static void set_skips(struct kv_part *const *part, uint32_t n, const uint8_t *end, size_t end_len)
{
	for (uint32_t i = 0; i < n; i++) {
		const uint8_t *high = i + 1 < n ? part[i + 1]->pt_fence : end;
		size_t len = i + 1 < n ? part[i + 1]->pt_fence_len : end_len, k = 0;

		if (!part[i]->pt_fence || !high)
			continue;
		while (k < len && k < part[i]->pt_fence_len && part[i]->pt_fence[k] == high[k])
			k++;
		part[i]->pt_skip = (uint16_t)k;
	}
}

/* Number of the partition that holds a key: the last whose fence is <= key. */
static uint32_t part_of(const struct kv_order_dir *od, const uint8_t *key, size_t klen)
{
	uint32_t n = od->od_n - 1, lo, hi;
	size_t skip = od->od_skip, least = klen < skip ? klen : skip;
	uint64_t head;
	int c;

	KV_ASSERT_SLOW(od->od_n);
	if (!n)
		return 0;
	c = least ? memcmp(key, od->od_part[1]->pt_fence, least) : 0;
	if (c || klen < skip)
		return c > 0 ? n : 0;
	head = kv_head8(key + skip, klen - skip);
	lo = hi = kv_heads_below(od->od_head + 1, sizeof(head), n, head);
	/* those with the same head, mostly none */
	if (hi < n && od->od_head[hi + 1] == head)
		hi = head == UINT64_MAX ? n : lo + kv_heads_below(od->od_head + 1 + lo,
								 sizeof(head), n - lo, head + 1);
	while (lo < hi) {
		const struct kv_part *pt = od->od_part[(lo + hi) / 2 + 1];

		if (kv_key_cmp(pt->pt_fence, pt->pt_fence_len, key, klen) <= 0)
			lo = (lo + hi) / 2 + 1;
		else
			hi = (lo + hi) / 2;
	}
	return lo;
}

/* The same of a key that is mostly in number @i. */
static uint32_t part_near(const struct kv_order_dir *od, uint32_t i, const uint8_t *key,
			  size_t klen)
{
	size_t skip = od->od_skip;
	uint64_t head;

	KV_ASSERT_SLOW(i < od->od_n);
	if (od->od_n < 2)
		return 0;
	if (klen >= skip && !memcmp(key, od->od_part[1]->pt_fence, skip)) {
		head = kv_head8(key + skip, klen - skip);
		if ((!i || od->od_head[i] < head) &&
		    (i + 1 == od->od_n || head < od->od_head[i + 1]))
			return i;
	}
	return part_of(od, key, klen);
}

/* False: it is closed. */
static bool push(struct kv_part *pt, struct kv_entry *en)
{
	struct kv_entry *head = atomic_load_explicit(&pt->pt_new, memory_order_relaxed);

	do {
		if (KV_UNLIKELY(head == KV_PART_CLOSED))
			return false;
		en->en_next = head;
	} while (!atomic_compare_exchange_weak_explicit(&pt->pt_new, &head, en,
							memory_order_release,
							memory_order_relaxed));
	return true;
}

/* Has the tail room for one more, where it is, and is nothing to be moved into it first? */
static bool has_room(const struct kv_part *pt)
{
	const struct kv_sorted *so = pt->pt_tail;

	KV_ASSERT_HELD(&pt->pt_lock);
	return so && so->so_n < so->so_room && !pt->pt_raw && !atomic_load(&pt->pt_new) &&
	       kv_sorted_is_sole(so);
}

/*
 * Into the sorted tail at once: what it takes is in the processor's caches now, and may not be
 * when the partition is entered. False: another thread is in there, or there is no room.
 */
static bool insert_now(struct kv_part *pt, struct kv_entry *en)
{
	bool done;

	if (!atomic_load_explicit(&pt->pt_has_room, memory_order_relaxed) ||
	    pthread_mutex_trylock(&pt->pt_lock))
		return false;
	done = has_room(pt);
	KV_ASSERT_SLOW(!done || atomic_load(&pt->pt_new) != KV_PART_CLOSED);
	if (done) {
		en->en_next = NULL;
		kv_sorted_insert(pt->pt_tail, en);
	} else {
		atomic_store_explicit(&pt->pt_has_room, false, memory_order_relaxed);
	}
	pthread_mutex_unlock(&pt->pt_lock);
	return done;
}

void kv_order_push(struct kv_mt *mt, struct kv_entry *en)
{
	struct kv_thread *t = kv_enter();
	struct kv_order_dir *od;
	unsigned int spins = 0;
	struct kv_part *pt;

	for (;;) {
		od = atomic_load_explicit(&mt->m_dir, memory_order_acquire);
		pt = od->od_part[part_of(od, en->en_key, en->en_klen)];
		if (insert_now(pt, en) || push(pt, en))
			break;
		/* the next directory is about to be published */
		if (++spins % 64 == 0)
			sched_yield();	/* its maker may have lost the processor */
		else
			kv_cpu_pause();
	}
	kv_exit(t);
}

/* Puts a list that could not be sorted back. pt_lock held, so that it is not closed. */
static void unpush(struct kv_part *pt, struct kv_entry *list)
{
	struct kv_entry *next;

	KV_ASSERT_HELD(&pt->pt_lock);
	for (; list; list = next) {
		next = list->en_next;
		push(pt, list);
	}
}

/* Inserts a few entries into the tail, unless an iterator walks it; false: none was. */
static bool tail_add(struct kv_part *pt, struct kv_entry *list)
{
	uint32_t n = kv_sorted_n(pt->pt_tail);
	struct kv_sorted *so = pt->pt_tail;

	KV_ASSERT_HELD(&pt->pt_lock);
	for (struct kv_entry *en = list; en && n <= KV_TAIL_MAX; en = en->en_next)
		n++;
	if (n > KV_TAIL_MAX)
		return false;
	if (!so || !kv_sorted_is_sole(so) || so->so_room < n) {
		so = kv_sorted_copy(so, KV_TAIL_MAX, pt->pt_skip);
		if (!so)
			return false;
		kv_sorted_put(pt->pt_tail);
		pt->pt_tail = so;
	}
	for (; list; list = list->en_next)
		kv_sorted_insert(so, list);
	return true;
}

/* Moves new entries into the sorted arrays. pt_lock held. */
static int part_absorb(struct kv_part *pt)
{
	struct kv_entry *list = atomic_load(&pt->pt_new) ? atomic_exchange(&pt->pt_new, NULL) :
							    NULL;
	struct kv_sorted *add, *so;

	KV_ASSERT_HELD(&pt->pt_lock);
	if (!pt->pt_raw && (!list || tail_add(pt, list)))
		return 0;
	add = kv_sorted_of(pt->pt_raw, list, pt->pt_skip);
	so = add ? kv_sorted_merge(pt->pt_tail, add) : NULL;
	kv_sorted_put(add);
	if (!so) {
		unpush(pt, list);
		return -ENOMEM;
	}
	kv_sorted_put(pt->pt_raw);
	pt->pt_raw = NULL;
	kv_sorted_put(pt->pt_tail);
	pt->pt_tail = so;
	if (so->so_n > KV_TAIL_MAX) {
		so = kv_sorted_merge(pt->pt_main, pt->pt_tail);
		if (!so)
			return 0;	/* a long tail is correct too */
		kv_sorted_put(pt->pt_main);
		kv_sorted_put(pt->pt_tail);
		pt->pt_main = so;
		pt->pt_tail = NULL;
	}
	return 0;
}

/* Deals entries out to partitions that no other thread enters, unsorted; all or nothing. */
static int deal(const struct kv_order_dir *od, const struct kv_sorted *of)
{
	uint32_t n = od->od_n;
	struct kv_sorted **raw = calloc(n, sizeof(*raw));
	uint32_t *count = calloc(n, sizeof(*count)), p;
	uint16_t *to = malloc((of->so_n ? of->so_n : 1) * sizeof(*to));
	int err = raw && count && to ? 0 : -ENOMEM;
	size_t i;

	KV_ASSERT(n <= UINT16_MAX);	/* @to */
	for (i = 0; i < of->so_n && !err; i++) {
		const struct kv_entry *en = of->so_key[i].sk_en;

		if (i + AHEAD < of->so_n)
			__builtin_prefetch(of->so_key[i + AHEAD].sk_en);
		to[i] = (uint16_t)part_of(od, en->en_key, en->en_klen);
		count[to[i]]++;
	}
	for (p = 0; p < n && !err; p++) {
		raw[p] = count[p] ? kv_sorted_new(count[p], 0) : NULL;
		if (count[p] && !raw[p])
			err = -ENOMEM;
		count[p] = 0;
	}
	for (i = 0; i < of->so_n && !err; i++)
		raw[to[i]]->so_key[count[to[i]]++].sk_en = of->so_key[i].sk_en;
	for (p = 0; p < n && raw; p++) {
		if (err)
			kv_sorted_put(raw[p]);
		else
			od->od_part[p]->pt_raw = raw[p];
	}
	free(count);
	free(raw);
	free(to);
	return err;
}

/* ---- replacing one ---------------------------------------------------------------------- */

static size_t list_n(const struct kv_entry *list)
{
	size_t n = 0;

	for (; list; list = list->en_next)
		n++;
	return n;
}

/* What a partition becomes. */
struct split {
	struct kv_part *old;
	const uint8_t *end;		/* the fence after it, or NULL */
	size_t end_len;
	struct kv_part **part;		/* od_part of parts */
	uint32_t n;
	struct kv_order_dir *parts;
};

static void split_drop(struct split *sp)
{
	for (uint32_t i = 0; sp->parts && i < sp->n; i++)
		if (sp->part[i])
			part_free(sp->part[i]);
	free(sp->parts);
}

/* @n new partitions with fences at quantiles of @nk keys, which are sorted. */
static int split_begin(struct split *sp, const struct kv_skey *k, size_t nk, uint32_t n)
{
	sp->parts = dir_new(n);
	if (!sp->parts)
		return -ENOMEM;
	sp->part = sp->parts->od_part;
	sp->n = n;
	for (uint32_t i = 0; i < n; i++) {
		const struct kv_entry *en = k[i * nk / n].sk_en;

		sp->part[i] = i ? part_new(en->en_key, en->en_klen) :
				  part_new(sp->old->pt_fence, sp->old->pt_fence_len);
		if (!sp->part[i])
			return -ENOMEM;
	}
	set_skips(sp->part, n, sp->end, sp->end_len);
	dir_heads(sp->parts);
	return 0;
}

/* A sorted array is cut at the fences. */
static int split_main(struct split *sp, const struct kv_sorted *so)
{
	uint32_t from = 0, to;

	for (uint32_t i = 0; so && i < sp->n; i++, from = to) {
		const struct kv_part *next = i + 1 < sp->n ? sp->part[i + 1] : NULL;

		to = next ? kv_sorted_bound(so, next->pt_fence, next->pt_fence_len, false) :
			    so->so_n;
		if (to == from)
			continue;
		sp->part[i]->pt_main = kv_sorted_slice(so, from, to, sp->part[i]->pt_skip);
		if (!sp->part[i]->pt_main)
			return -ENOMEM;
	}
	return 0;
}

/* Of very many that were never sorted only those are sorted that are entered. */
static int split_raw(struct split *sp, const struct kv_sorted *raw)
{
	uint32_t n = raw->so_n / PART_KEYS < PARTS_SPLIT ? raw->so_n / PART_KEYS : PARTS_SPLIT;
	size_t want = (size_t)n * SAMPLE_PER_PART, i;
	struct kv_skey *k = malloc(want * sizeof(*k));
	int err;

	KV_ASSERT(n > 1);	/* each of them has fewer than the one that they replace */
	if (!k)
		return -ENOMEM;
	/* in the order of the hash table, or of their arrival */
	for (i = 0; i < want; i++)
		k[i].sk_en = raw->so_key[i * raw->so_n / want].sk_en;
	kv_sort(k, want);
	err = split_begin(sp, k, want, n);
	if (!err)
		err = deal(sp->parts, raw);
	free(k);
	return err;
}

static bool fences_ascend(const struct kv_order_dir *od)
{
	for (uint32_t i = 1; i < od->od_n; i++) {
		const struct kv_part *a = od->od_part[i - 1], *b = od->od_part[i];

		if (kv_key_cmp(a->pt_fence, a->pt_fence_len, b->pt_fence, b->pt_fence_len) >= 0)
			return false;
	}
	return true;
}

/* The new partitions take the old one's place; returns the directory of before, or NULL. */
static struct kv_order_dir *split_publish(struct kv_mt *mt, struct split *sp)
{
	struct kv_order_dir *old, *od;
	struct kv_entry *list, *next;
	uint32_t at, i;

	pthread_mutex_lock(&mt->m_dir_lock);
	old = atomic_load(&mt->m_dir);
	od = dir_new((size_t)old->od_n + sp->n - 1);
	if (od) {
		at = sp->old->pt_fence ?
		     part_of(old, sp->old->pt_fence, sp->old->pt_fence_len) : 0;
		KV_ASSERT(old->od_part[at] == sp->old);
		memcpy(od->od_part, old->od_part, at * sizeof(od->od_part[0]));
		memcpy(od->od_part + at, sp->part, sp->n * sizeof(od->od_part[0]));
		memcpy(od->od_part + at + sp->n, old->od_part + at + 1,
		       (old->od_n - at - 1) * sizeof(od->od_part[0]));
		dir_heads_from(od, old, at, sp->n);
		for (i = 0; i < sp->n; i++) {
			sp->part[i]->pt_older = mt->m_parts;
			mt->m_parts = sp->part[i];
		}
		/* entries pushed meanwhile move before a reader can enter the new partitions */
		for (list = atomic_exchange(&sp->old->pt_new, KV_PART_CLOSED); list; list = next) {
			next = list->en_next;
			push(sp->part[part_of(sp->parts, list->en_key, list->en_klen)], list);
		}
		KV_ASSERT_SLOW(fences_ascend(od));
		atomic_store_explicit(&mt->m_dir, od, memory_order_release);
	}
	pthread_mutex_unlock(&mt->m_dir_lock);
	return od ? old : NULL;
}

/*
 * A large partition is replaced by several. Without memory it stays: slower, not wrong.
 * pt_lock held. Returns a directory for kv_retire(), not before the lock is free.
 */
static struct kv_order_dir *part_split(struct kv_mt *mt, struct kv_part *pt,
				       const struct kv_part *next)
{
	struct kv_sorted *all = kv_sorted_merge(pt->pt_main, pt->pt_tail);
	struct split sp = { .old = pt, .end = next ? next->pt_fence : NULL,
			    .end_len = next ? next->pt_fence_len : 0 };
	struct kv_order_dir *old = NULL;
	int err = 0;

	KV_ASSERT_HELD(&pt->pt_lock);
	if (!all && (pt->pt_main || pt->pt_tail))
		err = -ENOMEM;
	else if (pt->pt_raw)
		err = split_raw(&sp, pt->pt_raw);
	else if (all)
		err = split_begin(&sp, all->so_key, all->so_n, all->so_n / PART_KEYS);
	if (!err)
		err = split_main(&sp, all);
	if (!err)
		old = split_publish(mt, &sp);
	if (old) {
		free(sp.parts);
		/* iterators that walk them have their own references */
		arrays_put(pt);
	} else {
		split_drop(&sp);
	}
	kv_sorted_put(all);
	return old;
}

/* Many that are new become raw, which split_raw() deals out. pt_lock held. */
static void part_gather(struct kv_part *pt)
{
	struct kv_entry *list = atomic_load(&pt->pt_new), *en;
	size_t n, raw;
	struct kv_sorted *so;

	KV_ASSERT_HELD(&pt->pt_lock);
	if (!list)
		return;
	n = list_n(list);
	raw = kv_sorted_n(pt->pt_raw);
	if (raw + n <= KV_PART_MAX)
		return;
	list = atomic_exchange(&pt->pt_new, NULL);
	n = list_n(list);
	so = kv_sorted_new(raw + n, 0);
	if (!so) {
		unpush(pt, list);
		return;
	}
	if (raw)
		memcpy(so->so_key, pt->pt_raw->so_key, raw * sizeof(so->so_key[0]));
	for (en = list; en; en = en->en_next)
		so->so_key[raw++].sk_en = en;
	kv_sorted_put(pt->pt_raw);
	pt->pt_raw = so;
}

/* ---- life ----------------------------------------------------------------------------------- */

uint32_t kv_order_parts(struct kv_mt *like)
{
	uint64_t n = like ? atomic_load(&like->m_keys) / PART_KEYS : 1;

	return n < 1 ? 1 : n > PARTS_FIRST ? PARTS_FIRST : (uint32_t)n;
}

/*
 * A sample of a memtable's entries: the hash order is random in key order.
 * The caller keeps the memtable alive and is inside kv_enter().
 */
static size_t sample(struct kv_mt *mt, struct kv_skey *k, size_t want)
{
	struct kv_table *tb = atomic_load(&mt->m_table);
	size_t n = 0;

	KV_ASSERT_INSIDE();
	for (uint64_t i = 0; i <= tb->tb_mask && n < want; i++) {
		struct kv_bucket *bk = &tb->tb_bucket[i];

		for (int j = 0; j < KV_BUCKET_SLOTS && n < want; j++) {
			uint64_t s = atomic_load_explicit(&bk->bk_slot[j], memory_order_acquire);

			if (s)
				k[n++].sk_en = (struct kv_entry *)(s & 0xffffffffffffull);
		}
	}
	return n;
}

/* The fences are copied: they outlive the sample. */
static int first_fences(struct kv_mt *mt, const struct kv_skey *k, size_t n, uint32_t parts)
{
	struct kv_order_dir *od = atomic_load(&mt->m_dir);
	size_t bytes = 0;
	uint8_t *p;
	uint32_t i;

	for (i = 1; i < parts; i++)
		bytes += k[i * n / parts].sk_en->en_klen;
	mt->m_fences = p = malloc(bytes ? bytes : 1);
	if (!p)
		return -ENOMEM;
	for (i = 1; i < parts; i++) {
		const struct kv_entry *en = k[i * n / parts].sk_en;
		struct kv_part *pt = part_new(memcpy(p, en->en_key, en->en_klen), en->en_klen);

		if (!pt)
			return -ENOMEM;
		pt->pt_older = mt->m_parts;
		mt->m_parts = pt;
		od->od_part[od->od_n++] = pt;
		p += en->en_klen;
	}
	set_skips(od->od_part, od->od_n, NULL, 0);
	dir_heads(od);
	return 0;
}

int kv_order_init(struct kv_mt *mt, struct kv_mt *like)
{
	uint32_t parts = kv_order_parts(like);
	size_t want = (size_t)parts * SAMPLE_PER_PART, n = 0;
	bool walked = like && atomic_load(&like->m_walked);
	struct kv_order_dir *od = dir_new(parts);
	struct kv_skey *k;
	int err = 0;

	/* nothing is here yet: it is all collected */
	atomic_store(&mt->m_ordered, walked);
	atomic_store(&mt->m_collected, walked);
	atomic_store(&mt->m_dir, od);
	mt->m_parts = od ? part_new(NULL, 0) : NULL;
	if (!mt->m_parts)
		return -ENOMEM;
	od->od_part[0] = mt->m_parts;
	od->od_n = 1;
	k = parts > 1 ? malloc(want * sizeof(*k)) : NULL;
	if (k) {
		struct kv_thread *t = kv_enter();

		n = sample(like, k, want);
		if (n >= parts) {
			kv_sort(k, n);
			err = first_fences(mt, k, n, parts);
		}
		kv_exit(t);
	}
	free(k);
	return err;
}

void kv_order_fini(struct kv_mt *mt)
{
	struct kv_part *pt;

	while ((pt = mt->m_parts)) {
		mt->m_parts = pt->pt_older;
		part_free(pt);
	}
	free(atomic_load(&mt->m_dir));
	free(mt->m_fences);
}

/* ---- collection ------------------------------------------------------------------ */

struct collection {
	struct kv_sorted *all;
	size_t cap;
};

/* Under the entry's bucket lock. */
static int collect_one(struct kv_entry *en, void *arg)
{
	struct collection *co = arg;
	struct kv_sorted *so = co->all;

	if (en->en_next != KV_UNORDERED)
		return 0;
	if (so->so_n == co->cap) {
		so = realloc(so, sizeof(*so) + 2 * co->cap * sizeof(so->so_key[0]));
		if (!so)
			return -ENOMEM;
		co->all = so;
		co->cap *= 2;
	}
	so->so_key[so->so_n++].sk_en = en;
	return 0;
}

/* From here on every entry is in its partition. */
static int collect(struct kv_mt *mt)
{
	struct collection co = { .cap = PART_KEYS };
	struct kv_order_dir *od;
	int err = 0;

	pthread_mutex_lock(&mt->m_collect_lock);
	if (!atomic_load(&mt->m_collected)) {
		co.all = kv_sorted_new(co.cap, 0);
		if (co.all) {
			co.all->so_n = 0;
			atomic_store(&mt->m_ordered, true);
		}
		err = co.all ? kv_mt_each(mt, collect_one, &co) : -ENOMEM;
		/* no thread has entered a partition: the directory is still the first */
		od = atomic_load(&mt->m_dir);
		if (!err)
			err = deal(od, co.all);
		if (!err)
			atomic_store(&mt->m_collected, true);
		kv_sorted_put(co.all);
	}
	pthread_mutex_unlock(&mt->m_collect_lock);
	return err;
}

/* ---- iterator ----------------------------------------------------------------------------- */

/*
 * Walks one partition after the other: two sorted arrays, merged. i_main and
 * i_tail are the next candidates; descending, one past them.
 */
struct mt_iter {
	struct kv_iter it;
	struct kvdb *db;
	struct kv_mt *mt;
	uint64_t seq;
	bool is_lent;		/* its memory is not its own */
	bool reverse;
	bool positioned;
	const struct kv_part *part, *next;	/* this one; the one behind it or NULL */
	struct kv_sorted *main, *tail;
	uint32_t i_main, i_tail;
	const void *end;	/* where the walk ends */
	size_t end_len;		/* 0: it does not */
	bool is_over;		/* that is in a partition before this one; */
	bool end_is_here;	/* in this one, and */
	uint64_t end_head;	/* that is its sk_head */
};

/* Which partition: the one that holds a key, or that ends where the key begins. */
struct place {
	const void *key;	/* NULL: the first, or with @is_end the last */
	size_t klen;
	bool is_end;
};

static void leave_part(struct mt_iter *mi)
{
	kv_sorted_put(mi->main);
	kv_sorted_put(mi->tail);
	mi->main = mi->tail = NULL;
}

static struct kv_part *find_part(struct mt_iter *mi, const struct place *pl)
{
	struct kv_thread *t = kv_enter();
	struct kv_order_dir *od = atomic_load_explicit(&mi->mt->m_dir, memory_order_acquire);
	uint32_t i = 0, end;
	struct kv_part *pt;

	if (pl->key)
		i = part_of(od, pl->key, pl->klen) - pl->is_end;
	else if (pl->is_end)
		i = od->od_n - 1;
	mi->part = pt = od->od_part[i];
	mi->next = i + 1 < od->od_n ? od->od_part[i + 1] : NULL;
	if (mi->end_len) {
		end = part_near(od, i, mi->end, mi->end_len);
		mi->is_over = mi->reverse ? end > i : end < i;
		mi->end_is_here = end == i;
	}
	kv_exit(t);
	return pt;
}

/* 0, -errno, or -EAGAIN: it was replaced. */
static int take_part(struct mt_iter *mi, struct kv_part *pt)
{
	struct kv_order_dir *gone = NULL;
	int err = -EAGAIN;

	pthread_mutex_lock(&pt->pt_lock);
	if (atomic_load(&pt->pt_new) == KV_PART_CLOSED)
		goto out;
	__builtin_prefetch(pt->pt_tail);	/* while the other one is waited for */
	part_gather(pt);
	/* of a few that are raw no fences are made: they are absorbed first */
	if (kv_sorted_n(pt->pt_raw) > KV_PART_MAX ||
	    (!pt->pt_raw && kv_sorted_n(pt->pt_main) > KV_PART_MAX))
		gone = part_split(mi->mt, pt, mi->next);
	if (gone)
		goto out;
	err = part_absorb(pt);
	if (!err) {
		atomic_store_explicit(&pt->pt_has_room, true, memory_order_relaxed);
		mi->main = kv_sorted_get(pt->pt_main);
		mi->tail = kv_sorted_get(pt->pt_tail);
	}
out:
	pthread_mutex_unlock(&pt->pt_lock);
	if (gone)
		kv_retire(&gone->od_limbo, free, gone);
	return err;
}

/* Most keys are told by their heads, in the array: what is beyond the end is not touched. */
static bool is_beyond(const struct mt_iter *mi, const struct kv_skey *k)
{
	bool is_above = k->sk_head > mi->end_head;

	if (k->sk_head == mi->end_head)
		is_above = kv_key_cmp(k->sk_en->en_key, k->sk_en->en_klen, mi->end,
				      mi->end_len) >= 0;
	return is_above != mi->reverse;
}

static int enter_part(struct mt_iter *mi, const struct place *pl)
{
	const struct kv_sorted *so;
	int err;

	leave_part(mi);
	if (!atomic_load_explicit(&mi->mt->m_collected, memory_order_acquire)) {
		KV_ASSERT_OUTSIDE();	/* it may have to sort very many */
		err = collect(mi->mt);
		if (err)
			return err;
	}
	do
		err = take_part(mi, find_part(mi, pl));
	while (err == -EAGAIN);
	/* between the fences: it shares what they share */
	so = mi->main ? mi->main : mi->tail;
	if (mi->end_is_here && so)
		mi->end_head = kv_sorted_head(so, mi->end, mi->end_len);
	mi->i_main = mi->reverse ? kv_sorted_n(mi->main) : 0;
	mi->i_tail = mi->reverse ? kv_sorted_n(mi->tail) : 0;
	return err;
}

static int mt_seek(struct kv_iter *it, const void *key, size_t klen)
{
	struct mt_iter *mi = (struct mt_iter *)it;
	struct place pl = { .key = klen ? key : NULL, .klen = klen };
	int err;

	pl.is_end = !klen && mi->reverse;
	err = enter_part(mi, &pl);
	if (err)
		return err;
	if (klen) {
		mi->i_main = kv_sorted_bound(mi->main, key, klen, mi->reverse);
		mi->i_tail = kv_sorted_bound(mi->tail, key, klen, mi->reverse);
	}
	mi->positioned = true;
	return 0;
}

/* To the neighbour, from an edge that stays one whatever was replaced; -ENOENT at the end. */
static int mt_leave(struct mt_iter *mi)
{
	const struct kv_part *edge = mi->reverse ? mi->part : mi->next;
	struct place pl = { .is_end = mi->reverse };

	if (!edge || !edge->pt_fence || mi->is_over || mi->end_is_here)
		return -ENOENT;
	pl.key = edge->pt_fence;
	pl.klen = edge->pt_fence_len;
	return enter_part(mi, &pl);
}

/* The next entry of this partition in either direction, or NULL. */
static struct kv_entry *part_next(struct mt_iter *mi)
{
	uint32_t back = mi->reverse;
	const struct kv_skey *a = NULL, *b = NULL;
	bool is_main;

	if (back ? mi->i_main : mi->i_main < kv_sorted_n(mi->main))
		a = &mi->main->so_key[mi->i_main - back];
	if (back ? mi->i_tail : mi->i_tail < kv_sorted_n(mi->tail))
		b = &mi->tail->so_key[mi->i_tail - back];
	is_main = a && (!b || kv_skey_less(a, b) != mi->reverse);
	if (!is_main)
		a = b;
	if (!a || mi->is_over || (mi->end_is_here && is_beyond(mi, a)))
		return NULL;
	*(is_main ? &mi->i_main : &mi->i_tail) += back ? -1u : 1;
	return a->sk_en;
}

static int mt_next(struct kv_iter *it, struct kv_ent *e)
{
	struct mt_iter *mi = (struct mt_iter *)it;
	int err;

	if (!mi->positioned) {
		err = mt_seek(it, NULL, 0);
		if (err)
			return err;
	}
	for (;;) {
		struct kv_entry *en = part_next(mi);
		struct kv_version *v;

		if (en) {
			/* the stamp may be in a transaction's slot, which lives for those inside */
			struct kv_thread *t = kv_enter();

			v = kv_version_at(mi->db, en, mi->seq);
			kv_exit(t);
			if (!v)
				continue;
			kv_version_ent(en, v, e);
			return 0;
		}
		err = mt_leave(mi);
		if (err)
			return err;
	}
}

static void mt_turn(struct kv_iter *it, bool reverse)
{
	struct mt_iter *mi = (struct mt_iter *)it;

	mi->reverse = reverse;
	mi->positioned = false;
}

static void mt_until(struct kv_iter *it, const void *end, size_t len)
{
	struct mt_iter *mi = (struct mt_iter *)it;

	mi->end = end;
	mi->end_len = len;
	mi->is_over = mi->end_is_here = false;
	mi->positioned = false;
}

static void mt_close(struct kv_iter *it)
{
	struct mt_iter *mi = (struct mt_iter *)it;

	leave_part(mi);
	if (!mi->is_lent)
		free(mi);
}

static const struct kv_iter_ops mt_iter_ops = {
	.seek = mt_seek,
	.next = mt_next,
	.turn = mt_turn,
	.until = mt_until,
	.close = mt_close,
};

int kv_mt_iter_in(struct kv_iter_room *room, struct kvdb *db, struct kv_mt *mt, uint64_t seq,
		  bool reverse, struct kv_iter **out)
{
	bool is_lent;
	struct mt_iter *mi = kv_iter_mem(room, sizeof(*mi), &is_lent);

	if (!mi)
		return -ENOMEM;
	*mi = (struct mt_iter){ .it = { &mt_iter_ops }, .db = db, .mt = mt,
				.seq = seq > KV_SEQ_NOW ? KV_SEQ_NOW : seq, .is_lent = is_lent,
				.reverse = reverse };
	/* a cursor; the flush of a memtable walks at "now" */
	if (seq < KV_SEQ_NOW && !atomic_load_explicit(&mt->m_walked, memory_order_relaxed))
		atomic_store(&mt->m_walked, true);
	*out = &mi->it;
	return 0;
}

int kv_mt_iter(struct kvdb *db, struct kv_mt *mt, uint64_t seq, bool reverse, struct kv_iter **out)
{
	return kv_mt_iter_in(NULL, db, mt, seq, reverse, out);
}
