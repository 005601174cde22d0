/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Order on demand. A memtable has no order until somebody walks it, a cursor
 * or its flush: then the entries are collected from the hash table into key
 * ranges (partitions), and from that moment on insertions push their entry to
 * its partition's list. Whoever enters a partition sorts what is new there
 * and merges it into sorted arrays. Arrays are immutable and shared by
 * reference, so an iterator keeps what it walks while others go on inserting.
 *
 * Every entry gets into its partition once: m_ordered is set before the
 * collection starts, an insertion looks at it under its bucket's lock, and the
 * collection visits each bucket under that lock and passes over entries that
 * their insertion has pushed.
 *
 * Partitions are fixed when a memtable is made: quantiles of a sample of its
 * predecessor's keys.
 *
 * Locks: m_collect_lock > m_grow_lock > bucket; pt_lock, one at a time;
 * pushing takes none.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "memtable.h"
#include "vec.h"

#define PART_KEYS	4096u	/* keys a partition should hold */
#define PARTS_MAX	256u
#define SAMPLE_PER_PART	16u
#define AHEAD		12u	/* entries that are prefetched before they are read */
#define TAIL_MAX	256u	/* sorted tail is merged into the main array beyond this */

struct sort_key {
	uint64_t head;		/* 8 key bytes after the common prefix, big-endian */
	struct kv_entry *en;
};

int kv_key_cmp(const void *a, size_t alen, const void *b, size_t blen)
{
	int c = memcmp(a, b, alen < blen ? alen : blen);

	return c ? c : (alen > blen) - (alen < blen);
}

static int ent_cmp(const struct kv_entry *a, const struct kv_entry *b)
{
	return kv_key_cmp(a->en_key, a->en_klen, b->en_key, b->en_klen);
}

/* ---- sorting ------------------------------------------------------------------ */

static inline bool less(const struct sort_key *a, const struct sort_key *b)
{
	return a->head != b->head ? a->head < b->head : ent_cmp(a->en, b->en) < 0;
}

static void insertion_sort(struct sort_key *k, size_t n)
{
	for (size_t i = 1; i < n; i++) {
		struct sort_key x = k[i];
		size_t j = i;

		for (; j && less(&x, &k[j - 1]); j--)
			k[j] = k[j - 1];
		k[j] = x;
	}
}

static void swap_keys(struct sort_key *a, struct sort_key *b)
{
	struct sort_key t = *a;

	*a = *b;
	*b = t;
}

/* Moves the median of three to k[0]. */
static void median_first(struct sort_key *k, size_t n)
{
	size_t m = n / 2, l = n - 1;

	if (less(&k[m], &k[0]))
		swap_keys(&k[m], &k[0]);
	if (less(&k[l], &k[m])) {
		swap_keys(&k[l], &k[m]);
		if (less(&k[m], &k[0]))
			swap_keys(&k[m], &k[0]);
	}
	swap_keys(&k[0], &k[m]);
}

static void sift_down(struct sort_key *k, size_t i, size_t n)
{
	for (;;) {
		size_t c = 2 * i + 1;

		if (c >= n)
			return;
		if (c + 1 < n && less(&k[c], &k[c + 1]))
			c++;
		if (!less(&k[i], &k[c]))
			return;
		swap_keys(&k[i], &k[c]);
		i = c;
	}
}

static void heap_sort(struct sort_key *k, size_t n)
{
	for (size_t i = n / 2; i-- > 0; )
		sift_down(k, i, n);
	for (size_t i = n; i-- > 1; ) {
		swap_keys(&k[0], &k[i]);
		sift_down(k, 0, i);
	}
}

/*
 * Quicksort with an explicit bound on its depth (Musser, "Introspective
 * sorting and selection algorithms", 1997): recursion on the smaller side
 * only, heap sort when the bound is reached.
 */
static void quick_sort(struct sort_key *k, size_t n, unsigned int depth)
{
	while (n > 24) {
		size_t i = 0, j = n;
		struct sort_key pivot;

		if (depth-- == 0) {
			heap_sort(k, n);
			return;
		}
		median_first(k, n);
		pivot = k[0];
		for (;;) {
			do
				i++;
			while (i < n && less(&k[i], &pivot));
			do
				j--;
			while (less(&pivot, &k[j]));
			if (i >= j)
				break;
			swap_keys(&k[i], &k[j]);
		}
		swap_keys(&k[0], &k[j]);
		if (j < n - j - 1) {
			quick_sort(k, j, depth);
			k += j + 1;
			n -= j + 1;
		} else {
			quick_sort(k + j + 1, n - j - 1, depth);
			n = j;
		}
	}
	insertion_sort(k, n);
}

static uint64_t key_head(const struct kv_entry *en, size_t skip)
{
	uint64_t h = 0;
	size_t n = en->en_klen > skip ? en->en_klen - skip : 0;

	if (n >= 8) {
		memcpy(&h, en->en_key + skip, 8);
		return __builtin_bswap64(h);
	}
	for (size_t i = 0; i < n; i++)
		h |= (uint64_t)en->en_key[skip + i] << (56 - 8 * i);
	return h;
}

static size_t common_prefix(const struct kv_entry *a, const struct kv_entry *b, size_t max)
{
	size_t i = 0;

	while (i < max && i < b->en_klen && a->en_key[i] == b->en_key[i])
		i++;
	return i;
}

static void sort_entries(struct sort_key *k, size_t n)
{
	size_t skip = n ? k[0].en->en_klen : 0, i;
	unsigned int depth = 4;

	for (i = 1; i < n; i++) {
		if (i + AHEAD < n) {
			__builtin_prefetch(k[i + AHEAD].en);
			/* its first version lies behind it: that is read next */
			__builtin_prefetch((const char *)k[i + AHEAD].en + KV_CACHELINE);
		}
		skip = common_prefix(k[0].en, k[i].en, skip);
	}
	for (i = 0; i < n; i++)
		k[i].head = key_head(k[i].en, skip);
	for (i = n; i; i /= 2)
		depth += 2;
	quick_sort(k, n, depth);
}

/* ---- sorted arrays ---------------------------------------------------------------- */

static struct kv_sorted *sorted_new(size_t n)
{
	struct kv_sorted *so = malloc(sizeof(*so) + n * sizeof(so->so_ent[0]));

	if (so) {
		atomic_init(&so->so_refs, 1);
		so->so_n = (uint32_t)n;
	}
	return so;
}

static struct kv_sorted *sorted_get(struct kv_sorted *so)
{
	if (so)
		atomic_fetch_add(&so->so_refs, 1);
	return so;
}

static void sorted_put(struct kv_sorted *so)
{
	if (so && atomic_fetch_sub(&so->so_refs, 1) == 1)
		free(so);
}

/* A new array of both, or NULL when there is no memory. */
static struct kv_sorted *sorted_merge(const struct kv_sorted *a, const struct kv_sorted *b)
{
	size_t na = a ? a->so_n : 0, nb = b ? b->so_n : 0, i = 0, j = 0, n = 0;
	struct kv_sorted *so = sorted_new(na + nb);

	if (!so)
		return NULL;
	while (i < na && j < nb)
		so->so_ent[n++] = ent_cmp(a->so_ent[i], b->so_ent[j]) < 0 ? a->so_ent[i++]
									  : b->so_ent[j++];
	while (i < na)
		so->so_ent[n++] = a->so_ent[i++];
	while (j < nb)
		so->so_ent[n++] = b->so_ent[j++];
	return so;
}

/* Sorts what was collected and a taken list into one array. */
static struct kv_sorted *sorted_of(const struct kv_sorted *raw, struct kv_entry *list)
{
	size_t n = raw ? raw->so_n : 0, i;
	struct sort_key *k;
	struct kv_sorted *so;
	struct kv_entry *en;

	for (en = list; en; en = en->en_next)
		n++;
	k = malloc(n * sizeof(*k));
	so = sorted_new(n);
	if (!k || !so) {
		free(k);
		free(so);
		return NULL;
	}
	for (n = 0; raw && n < raw->so_n; n++)
		k[n].en = raw->so_ent[n];
	for (en = list; en; en = en->en_next)
		k[n++].en = en;
	sort_entries(k, n);
	for (i = 0; i < n; i++)
		so->so_ent[i] = k[i].en;
	free(k);
	return so;
}

/* Puts a list that could not be sorted back. */
static void unpush(struct kv_part *pt, struct kv_entry *list)
{
	struct kv_entry *last = list, *head;

	while (last->en_next)
		last = last->en_next;
	head = atomic_load(&pt->pt_new);
	do
		last->en_next = head;
	while (!atomic_compare_exchange_weak(&pt->pt_new, &head, list));
}

/* Takes what is new into the sorted arrays. pt_lock held. */
static int part_absorb(struct kv_part *pt)
{
	struct kv_entry *list = atomic_exchange(&pt->pt_new, NULL);
	struct kv_sorted *add, *so;

	if (!list && !pt->pt_raw)
		return 0;
	add = sorted_of(pt->pt_raw, list);
	so = add ? sorted_merge(pt->pt_tail, add) : NULL;
	sorted_put(add);
	if (!so) {
		if (list)
			unpush(pt, list);
		return -ENOMEM;
	}
	sorted_put(pt->pt_raw);
	pt->pt_raw = NULL;
	sorted_put(pt->pt_tail);
	pt->pt_tail = so;
	if (so->so_n > TAIL_MAX) {
		so = sorted_merge(pt->pt_main, pt->pt_tail);
		if (!so)
			return 0;	/* a long tail is correct too */
		sorted_put(pt->pt_main);
		sorted_put(pt->pt_tail);
		pt->pt_main = so;
		pt->pt_tail = NULL;
	}
	return 0;
}

/* ---- partitions ----------------------------------------------------------------------- */

uint32_t kv_order_parts(struct kv_mt *like)
{
	uint64_t n = like ? atomic_load(&like->m_keys) / PART_KEYS : 1;

	return n < 1 ? 1 : n > PARTS_MAX ? PARTS_MAX : (uint32_t)n;
}

/*
 * A sample of a memtable's entries: the hash order is random in key order.
 * The caller keeps the memtable alive and is inside kv_enter().
 */
static size_t sample(struct kv_mt *mt, struct sort_key *k, size_t want)
{
	struct kv_table *tb = atomic_load(&mt->m_table);
	size_t n = 0;

	for (uint64_t i = 0; i <= tb->tb_mask && n < want; i++) {
		struct kv_bucket *bk = &tb->tb_bucket[i];

		for (int j = 0; j < KV_BUCKET_SLOTS && n < want; j++) {
			uint64_t s = atomic_load_explicit(&bk->bk_slot[j], memory_order_acquire);

			if (s)
				k[n++].en = (struct kv_entry *)(s & 0xffffffffffffull);
		}
	}
	return n;
}

/* Copies the fences out of the sorted sample. */
static int set_fences(struct kv_mt *mt, const struct sort_key *k, size_t n)
{
	size_t bytes = 0;
	uint8_t *p;
	uint32_t i;

	for (i = 1; i < mt->m_nparts; i++)
		bytes += k[i * n / mt->m_nparts].en->en_klen;
	p = malloc(bytes ? bytes : 1);
	if (!p)
		return -ENOMEM;
	mt->m_fences = p;
	for (i = 1; i < mt->m_nparts; i++) {
		const struct kv_entry *en = k[i * n / mt->m_nparts].en;

		memcpy(p, en->en_key, en->en_klen);
		mt->m_part[i].pt_fence = p;
		mt->m_part[i].pt_fence_len = en->en_klen;
		p += en->en_klen;
	}
	return 0;
}

int kv_order_init(struct kv_mt *mt, struct kv_mt *like)
{
	size_t want = (size_t)mt->m_nparts * SAMPLE_PER_PART, n = 0;
	bool walked = like && atomic_load(&like->m_walked);
	struct sort_key *k;
	int err = 0;

	/* nothing is here yet: it is all collected */
	atomic_store(&mt->m_ordered, walked);
	atomic_store(&mt->m_collected, walked);

	for (uint32_t i = 0; i < mt->m_nparts; i++)
		pthread_mutex_init(&mt->m_part[i].pt_lock, NULL);
	if (mt->m_nparts == 1)
		return 0;
	k = malloc(want * sizeof(*k));
	if (k) {
		struct kv_thread *t = kv_enter();

		n = sample(like, k, want);
		kv_exit(t);
		sort_entries(k, n);
	}
	if (n >= mt->m_nparts)
		err = set_fences(mt, k, n);
	else
		mt->m_nparts = 1;
	free(k);
	return err;
}

void kv_order_fini(struct kv_mt *mt)
{
	for (uint32_t i = 0; i < mt->m_nparts; i++) {
		sorted_put(mt->m_part[i].pt_raw);
		sorted_put(mt->m_part[i].pt_main);
		sorted_put(mt->m_part[i].pt_tail);
		pthread_mutex_destroy(&mt->m_part[i].pt_lock);
	}
	free(mt->m_fences);
}

/* Number of the partition that holds a key: the last whose fence is <= key. */
static uint32_t part_of(const struct kv_mt *mt, const void *key, size_t klen)
{
	uint32_t lo = 0, hi = mt->m_nparts;

	while (hi - lo > 1) {
		uint32_t mid = (lo + hi) / 2;

		if (kv_key_cmp(mt->m_part[mid].pt_fence, mt->m_part[mid].pt_fence_len, key,
			       klen) <= 0)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

void kv_order_push(struct kv_mt *mt, struct kv_entry *en)
{
	struct kv_part *pt = &mt->m_part[part_of(mt, en->en_key, en->en_klen)];
	struct kv_entry *head = atomic_load_explicit(&pt->pt_new, memory_order_relaxed);

	do
		en->en_next = head;
	while (!atomic_compare_exchange_weak_explicit(&pt->pt_new, &head, en, memory_order_release,
						      memory_order_relaxed));
}

/* ---- collection ------------------------------------------------------------------ */

struct collection {
	struct kv_entry **ent;
	size_t n;
	uint32_t cap;
};

/* Under the entry's bucket lock. */
static int collect_one(struct kv_entry *en, void *arg)
{
	struct collection *co = arg;

	if (en->en_next != KV_UNORDERED)
		return 0;
	if (kv_vec_grow(&co->ent, &co->cap, co->n + 1, sizeof(co->ent[0])))
		return -ENOMEM;
	co->ent[co->n++] = en;
	return 0;
}

/* Distributes the collected entries; all or nothing. m_collect_lock held. */
static int distribute(struct kv_mt *mt, const struct collection *co)
{
	uint32_t parts = mt->m_nparts, p;
	uint32_t *count = calloc(parts, sizeof(*count));
	struct kv_sorted **raw = calloc(parts, sizeof(*raw));
	uint16_t *part = malloc((co->n ? co->n : 1) * sizeof(*part));
	int err = count && raw && part ? 0 : -ENOMEM;
	size_t i;

	for (i = 0; i < co->n && !err; i++) {
		if (i + AHEAD < co->n)
			__builtin_prefetch(co->ent[i + AHEAD]);
		part[i] = (uint16_t)part_of(mt, co->ent[i]->en_key, co->ent[i]->en_klen);
		count[part[i]]++;
	}
	for (p = 0; p < parts && !err; p++) {
		raw[p] = count[p] ? sorted_new(count[p]) : NULL;
		if (count[p] && !raw[p])
			err = -ENOMEM;
		count[p] = 0;
	}
	for (i = 0; i < co->n && !err; i++)
		raw[part[i]]->so_ent[count[part[i]]++] = co->ent[i];
	for (p = 0; p < parts && raw; p++) {
		if (err)
			sorted_put(raw[p]);
		else
			mt->m_part[p].pt_raw = raw[p];
	}
	free(count);
	free(raw);
	free(part);
	return err;
}

/* From here on every entry is in its partition. */
static int collect(struct kv_mt *mt)
{
	struct collection co = { 0 };
	int err = 0;

	pthread_mutex_lock(&mt->m_collect_lock);
	if (!atomic_load(&mt->m_collected)) {
		atomic_store(&mt->m_ordered, true);
		err = kv_mt_each(mt, collect_one, &co);
		if (!err)
			err = distribute(mt, &co);
		if (!err)
			atomic_store(&mt->m_collected, true);
		free(co.ent);
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
	bool reverse;
	bool positioned;
	uint32_t part;
	struct kv_sorted *main, *tail;
	uint32_t i_main, i_tail;
};

static uint32_t so_n(const struct kv_sorted *so)
{
	return so ? so->so_n : 0;
}

static void leave_part(struct mt_iter *mi)
{
	sorted_put(mi->main);
	sorted_put(mi->tail);
	mi->main = mi->tail = NULL;
}

static int enter_part(struct mt_iter *mi, uint32_t part)
{
	struct kv_part *pt = &mi->mt->m_part[part];
	int err;

	leave_part(mi);
	if (!atomic_load_explicit(&mi->mt->m_collected, memory_order_acquire)) {
		err = collect(mi->mt);
		if (err)
			return err;
	}
	pthread_mutex_lock(&pt->pt_lock);
	err = part_absorb(pt);
	if (!err) {
		mi->main = sorted_get(pt->pt_main);
		mi->tail = sorted_get(pt->pt_tail);
	}
	pthread_mutex_unlock(&pt->pt_lock);
	mi->part = part;
	mi->i_main = mi->reverse ? so_n(mi->main) : 0;
	mi->i_tail = mi->reverse ? so_n(mi->tail) : 0;
	return err;
}

/* Index of the first entry >= key (ascending), or one past the last <= key. */
static uint32_t bound(const struct kv_sorted *so, const void *key, size_t klen, bool reverse)
{
	uint32_t lo = 0, hi = so_n(so);

	while (lo < hi) {
		uint32_t mid = (lo + hi) / 2;
		const struct kv_entry *en = so->so_ent[mid];
		int c = kv_key_cmp(en->en_key, en->en_klen, key, klen);

		if (c < 0 || (reverse && c == 0))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static int mt_seek(struct kv_iter *it, const void *key, size_t klen)
{
	struct mt_iter *mi = (struct mt_iter *)it;
	uint32_t part;
	int err;

	if (klen)
		part = part_of(mi->mt, key, klen);
	else
		part = mi->reverse ? mi->mt->m_nparts - 1 : 0;
	err = enter_part(mi, part);
	if (err)
		return err;
	if (klen) {
		mi->i_main = bound(mi->main, key, klen, mi->reverse);
		mi->i_tail = bound(mi->tail, key, klen, mi->reverse);
	}
	mi->positioned = true;
	return 0;
}

/* The next entry of this partition in either direction, or NULL. */
static struct kv_entry *part_next(struct mt_iter *mi)
{
	struct kv_entry *a, *b;

	if (!mi->reverse) {
		a = mi->i_main < so_n(mi->main) ? mi->main->so_ent[mi->i_main] : NULL;
		b = mi->i_tail < so_n(mi->tail) ? mi->tail->so_ent[mi->i_tail] : NULL;
		if (a && (!b || ent_cmp(a, b) < 0)) {
			mi->i_main++;
			return a;
		}
		mi->i_tail += b != NULL;
		return b;
	}
	a = mi->i_main ? mi->main->so_ent[mi->i_main - 1] : NULL;
	b = mi->i_tail ? mi->tail->so_ent[mi->i_tail - 1] : NULL;
	if (a && (!b || ent_cmp(a, b) > 0)) {
		mi->i_main--;
		return a;
	}
	mi->i_tail -= b != NULL;
	return b;
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
		if (mi->reverse ? mi->part == 0 : mi->part + 1 >= mi->mt->m_nparts)
			return -ENOENT;
		err = enter_part(mi, mi->reverse ? mi->part - 1 : mi->part + 1);
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

static void mt_close(struct kv_iter *it)
{
	struct mt_iter *mi = (struct mt_iter *)it;

	leave_part(mi);
	free(mi);
}

static const struct kv_iter_ops mt_iter_ops = {
	.seek = mt_seek,
	.next = mt_next,
	.turn = mt_turn,
	.close = mt_close,
};

int kv_mt_iter(struct kvdb *db, struct kv_mt *mt, uint64_t seq, bool reverse, struct kv_iter **out)
{
	struct mt_iter *mi = calloc(1, sizeof(*mi));

	if (!mi)
		return -ENOMEM;
	mi->it.it_ops = &mt_iter_ops;
	mi->db = db;
	mi->mt = mt;
	mi->seq = seq > KV_SEQ_NOW ? KV_SEQ_NOW : seq;
	mi->reverse = reverse;
	if (seq < KV_SEQ_NOW)	/* a cursor; the flush of a memtable walks at "now" */
		atomic_store(&mt->m_walked, true);
	*out = &mi->it;
	return 0;
}
