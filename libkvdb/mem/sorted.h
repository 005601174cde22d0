/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Sorted arrays of a memtable's entries: sorted.c. */
#ifndef KV_SORTED_H
#define KV_SORTED_H

#include "mem/memtable.h"

/* An entry, and 8 bytes of its key, big-endian: most comparisons need no more. */
struct kv_skey {
	uint64_t sk_head;
	struct kv_entry *sk_en;
};

/* Immutable while it is shared. */
struct kv_sorted {
	_Atomic(uint32_t) so_refs;
	uint32_t so_n;
	uint32_t so_room;		/* entries that fit */
	uint16_t so_skip;		/* bytes that all keys share; heads begin after them */
	struct kv_skey so_key[];
};

/* With one reference; NULL = no memory. The caller fills it. */
struct kv_sorted *kv_sorted_new(size_t n, uint16_t skip);
/* An array of the same, NULL for an empty one, with room for @room; NULL = no memory. */
struct kv_sorted *kv_sorted_copy(const struct kv_sorted *so, size_t room, uint16_t skip);
/* May it be added to where it is? The caller lets none take a reference meanwhile. */
bool kv_sorted_is_sole(const struct kv_sorted *so);
/* Adds one that is not in it to a sole one with room. */
void kv_sorted_insert(struct kv_sorted *so, struct kv_entry *en);
/* Both take NULL for an empty array. */
struct kv_sorted *kv_sorted_get(struct kv_sorted *so);
void kv_sorted_put(struct kv_sorted *so);
/* Entries @from to @to - 1 as an array of their own, which share more; NULL = no memory. */
struct kv_sorted *kv_sorted_slice(const struct kv_sorted *so, uint32_t from, uint32_t to,
				  uint16_t skip);
/* Index of the first entry >= @key, or with @after > @key. The key shares what all share. */
uint32_t kv_sorted_bound(const struct kv_sorted *so, const void *key, size_t klen, bool after);
/*
 * All of both, which have the same heads and no key in common; either may be NULL
 * for empty. NULL = no memory, or both were.
 */
struct kv_sorted *kv_sorted_merge(struct kv_sorted *a, struct kv_sorted *b);
/* All of an unsorted array and a list, either may be NULL, sorted. NULL = no memory. */
struct kv_sorted *kv_sorted_of(const struct kv_sorted *raw, struct kv_entry *list, uint16_t skip);
/* As the heads of an array's keys; @key shares what all of them share. */
uint64_t kv_sorted_head(const struct kv_sorted *so, const void *key, size_t klen);
/* In place; heads are set, by what is common to all. */
void kv_sort(struct kv_skey *k, size_t n);

/* Of the same heads. */
static inline bool kv_skey_less(const struct kv_skey *a, const struct kv_skey *b)
{
	if (a->sk_head != b->sk_head)
		return a->sk_head < b->sk_head;
	return kv_key_cmp(a->sk_en->en_key, a->sk_en->en_klen, b->sk_en->en_key,
			  b->sk_en->en_klen) < 0;
}

static inline uint32_t kv_sorted_n(const struct kv_sorted *so)
{
	return so ? so->so_n : 0;
}

#endif
