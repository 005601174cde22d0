/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Entries of a memtable in key order: sorting, and arrays that never change
 * and are shared by reference.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/guard.h"
#include "base/key.h"
#include "mem/sorted.h"

#define AHEAD	12u	/* entries that are prefetched before they are read */

int kv_key_cmp(const void *a, size_t alen, const void *b, size_t blen)
{
	size_t n = alen < blen ? alen : blen;
	int c = n ? memcmp(a, b, n) : 0;	/* the end of all keys is none, and may be NULL */

	return c ? c : (alen > blen) - (alen < blen);
}

/* ---- sorting ------------------------------------------------------------------ */

static void insertion_sort(struct kv_skey *k, size_t n)
{
	for (size_t i = 1; i < n; i++) {
		struct kv_skey x = k[i];
		size_t j = i;

		for (; j && kv_skey_less(&x, &k[j - 1]); j--)
			k[j] = k[j - 1];
		k[j] = x;
	}
}

static void swap_keys(struct kv_skey *a, struct kv_skey *b)
{
	struct kv_skey t = *a;

	*a = *b;
	*b = t;
}

/* Moves the median of three to k[0]. */
static void median_first(struct kv_skey *k, size_t n)
{
	size_t m = n / 2, l = n - 1;

	if (kv_skey_less(&k[m], &k[0]))
		swap_keys(&k[m], &k[0]);
	if (kv_skey_less(&k[l], &k[m])) {
		swap_keys(&k[l], &k[m]);
		if (kv_skey_less(&k[m], &k[0]))
			swap_keys(&k[m], &k[0]);
	}
	swap_keys(&k[0], &k[m]);
}

static void sift_down(struct kv_skey *k, size_t i, size_t n)
{
	for (;;) {
		size_t c = 2 * i + 1;

		if (c >= n)
			return;
		if (c + 1 < n && kv_skey_less(&k[c], &k[c + 1]))
			c++;
		if (!kv_skey_less(&k[i], &k[c]))
			return;
		swap_keys(&k[i], &k[c]);
		i = c;
	}
}

static void heap_sort(struct kv_skey *k, size_t n)
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
static void quick_sort(struct kv_skey *k, size_t n, unsigned int depth)
{
	while (n > 24) {
		size_t i = 0, j = n;
		struct kv_skey pivot;

		if (depth-- == 0) {
			heap_sort(k, n);
			return;
		}
		median_first(k, n);
		pivot = k[0];
		for (;;) {
			do
				i++;
			while (i < n && kv_skey_less(&k[i], &pivot));
			do
				j--;
			while (kv_skey_less(&pivot, &k[j]));
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

static uint64_t head_of(const uint8_t *key, size_t klen, size_t skip)
{
	return klen > skip ? kv_head8(key + skip, klen - skip) : 0;
}

static void set_heads(struct kv_skey *k, size_t n, size_t skip)
{
	for (size_t i = 0; i < n; i++)
		k[i].sk_head = head_of(k[i].sk_en->en_key, k[i].sk_en->en_klen, skip);
}

static size_t common_prefix(const struct kv_entry *a, const struct kv_entry *b, size_t max)
{
	size_t i = 0;

	while (i < max && i < b->en_klen && a->en_key[i] == b->en_key[i])
		i++;
	return i;
}

void kv_sort(struct kv_skey *k, size_t n)
{
	size_t skip = n ? k[0].sk_en->en_klen : 0, i;
	unsigned int depth = 4;

	for (i = 1; i < n; i++) {
		if (i + AHEAD < n) {
			__builtin_prefetch(k[i + AHEAD].sk_en);
			/* its first version lies after it: that is read next */
			__builtin_prefetch((const char *)k[i + AHEAD].sk_en + KV_CACHELINE);
		}
		skip = common_prefix(k[0].sk_en, k[i].sk_en, skip);
	}
	set_heads(k, n, skip);
	for (i = n; i; i /= 2)
		depth += 2;
	quick_sort(k, n, depth);
}

/* ---- sorted arrays ---------------------------------------------------------------- */

struct kv_sorted *kv_sorted_new(size_t n, uint16_t skip)
{
	struct kv_sorted *so = malloc(sizeof(*so) + n * sizeof(so->so_key[0]));

	if (so) {
		atomic_init(&so->so_refs, 1);
		so->so_n = so->so_room = (uint32_t)n;
		so->so_skip = skip;
	}
	return so;
}

struct kv_sorted *kv_sorted_get(struct kv_sorted *so)
{
	KV_ASSERT(!so || atomic_load(&so->so_refs));
	if (so)
		atomic_fetch_add(&so->so_refs, 1);
	return so;
}

void kv_sorted_put(struct kv_sorted *so)
{
	KV_ASSERT(!so || atomic_load(&so->so_refs));
	if (so && atomic_fetch_sub(&so->so_refs, 1) == 1)
		free(so);
}

bool kv_sorted_is_sole(const struct kv_sorted *so)
{
	return CHECK(atomic_load(&so->so_refs) == 1);
}

struct kv_sorted *kv_sorted_copy(const struct kv_sorted *so, size_t room, uint16_t skip)
{
	struct kv_sorted *copy = kv_sorted_new(room, skip);

	if (!copy)
		return NULL;
	copy->so_n = kv_sorted_n(so);
	KV_ASSERT(copy->so_n <= room);
	if (so)
		memcpy(copy->so_key, so->so_key, so->so_n * sizeof(so->so_key[0]));
	return copy;
}

struct kv_sorted *kv_sorted_slice(const struct kv_sorted *so, uint32_t from, uint32_t to,
				  uint16_t skip)
{
	struct kv_sorted *part = kv_sorted_new(to - from, skip);

	KV_ASSERT(from < to && to <= so->so_n);
	if (part) {
		memcpy(part->so_key, &so->so_key[from], (to - from) * sizeof(so->so_key[0]));
		set_heads(part->so_key, to - from, skip);
	}
	return part;
}

/* kv_sorted_bound() of a key whose head is known. */
static uint32_t bound(const struct kv_sorted *so, uint64_t head, const void *key, size_t klen,
		      bool after)
{
	uint32_t lo = kv_heads_below(so->so_key, sizeof(so->so_key[0]), so->so_n, head), hi = lo;

	/* those with the same head, mostly none */
	for (uint32_t step = 1; hi < so->so_n && so->so_key[hi].sk_head == head; step *= 2)
		hi = so->so_n - hi > step ? hi + step : so->so_n;
	while (lo < hi) {
		uint32_t mid = (lo + hi) / 2;
		const struct kv_skey *k = &so->so_key[mid];
		int c = k->sk_head > head;

		if (!c)
			c = kv_key_cmp(k->sk_en->en_key, k->sk_en->en_klen, key, klen);
		if (c < 0 || (after && c == 0))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

uint32_t kv_sorted_bound(const struct kv_sorted *so, const void *key, size_t klen, bool after)
{
	return so ? bound(so, head_of(key, klen, so->so_skip), key, klen, after) : 0;
}

uint64_t kv_sorted_head(const struct kv_sorted *so, const void *key, size_t klen)
{
	return head_of(key, klen, so->so_skip);
}

void kv_sorted_insert(struct kv_sorted *so, struct kv_entry *en)
{
	struct kv_skey k = { .sk_head = head_of(en->en_key, en->en_klen, so->so_skip),
			     .sk_en = en };
	uint32_t at = bound(so, k.sk_head, en->en_key, en->en_klen, false);

	KV_ASSERT(so->so_n < so->so_room);
	memmove(&so->so_key[at + 1], &so->so_key[at], (so->so_n - at) * sizeof(k));
	so->so_key[at] = k;
	so->so_n++;
}

/* Each of the few @b is looked for, what lies between is copied whole. */
static void merge_few(const struct kv_sorted *a, const struct kv_sorted *b, struct kv_sorted *so)
{
	struct kv_skey *to = so->so_key;
	uint32_t from = 0, at;

	for (uint32_t j = 0; j < b->so_n; j++) {
		const struct kv_skey *k = &b->so_key[j];

		at = bound(a, k->sk_head, k->sk_en->en_key, k->sk_en->en_klen, false);
		memcpy(to, &a->so_key[from], (at - from) * sizeof(*to));
		to += at - from;
		from = at;
		*to++ = *k;
	}
	memcpy(to, &a->so_key[from], (a->so_n - from) * sizeof(*to));
}

static void merge_many(const struct kv_sorted *a, const struct kv_sorted *b, struct kv_sorted *so)
{
	const struct kv_skey *x = a->so_key, *x_end = x + a->so_n;
	const struct kv_skey *y = b->so_key, *y_end = y + b->so_n;
	struct kv_skey *to = so->so_key;

	while (x < x_end && y < y_end)
		*to++ = kv_skey_less(x, y) ? *x++ : *y++;
	while (x < x_end)
		*to++ = *x++;
	while (y < y_end)
		*to++ = *y++;
}

/* Each key once: an entry that two lists had would come twice. */
static bool is_sorted(const struct kv_sorted *so)
{
	for (uint32_t i = 1; i < so->so_n; i++)
		if (!kv_skey_less(&so->so_key[i - 1], &so->so_key[i]))
			return false;
	return true;
}

struct kv_sorted *kv_sorted_merge(struct kv_sorted *a, struct kv_sorted *b)
{
	struct kv_sorted *so;

	if (!a || !b)
		return kv_sorted_get(a ? a : b);
	KV_ASSERT(a->so_skip == b->so_skip);
	so = kv_sorted_new((size_t)a->so_n + b->so_n, a->so_skip);
	if (!so)
		return NULL;
	/* a search takes as many comparisons as the array's length has bits: up to 16 here */
	if (b->so_n < a->so_n / 16)
		merge_few(a, b, so);
	else
		merge_many(a, b, so);
	KV_ASSERT_SLOW(is_sorted(so));
	return so;
}

struct kv_sorted *kv_sorted_of(const struct kv_sorted *raw, struct kv_entry *list, uint16_t skip)
{
	size_t n = kv_sorted_n(raw);
	struct kv_sorted *so;
	struct kv_entry *en;

	for (en = list; en; en = en->en_next)
		n++;
	so = kv_sorted_new(n, skip);
	if (!so)
		return NULL;
	n = kv_sorted_n(raw);
	if (n)
		memcpy(so->so_key, raw->so_key, n * sizeof(so->so_key[0]));
	for (en = list; en; en = en->en_next)
		so->so_key[n++].sk_en = en;
	kv_sort(so->so_key, n);
	/* sorted by what they differ in; all arrays of a partition have the same heads */
	set_heads(so->so_key, n, skip);
	KV_ASSERT_SLOW(is_sorted(so));
	return so;
}
