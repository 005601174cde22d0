/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * An index over a fixed set of range and prefix tombstones: the newest one that
 * covers a key, as of a view. Prefixes, which all have the store's prefix
 * length, are found by hash. Ranges lie in an implicit balanced tree, ordered
 * by start; every node knows how far its subtree reaches and its greatest
 * stamp, so a search leaves out what ends before the key or is not newer than
 * what was found.
 *
 * Immutable once made; no locks.
 */
#include <stdlib.h>
#include <string.h>

#include "run_omf.h"
#include "tomb.h"

bool kv_trange_has(const struct kv_trange *r, const void *key, size_t klen)
{
	if (r->tr_flags & KV_TR_PREFIX)
		return klen >= r->tr_flen && !memcmp(key, r->tr_from, r->tr_flen);
	return kv_kcmp(r->tr_from, r->tr_flen, key, klen) <= 0 &&
	       (r->tr_flags & KV_TR_ENDLESS || kv_kcmp(key, klen, r->tr_to, r->tr_tlen) < 0);
}

bool kv_trange_meets(const struct kv_trange *r, const void *lo, size_t lolen, const void *hi,
		     size_t hilen)
{
	uint8_t end[KVDB_KEY_MAX];
	const uint8_t *to = r->tr_to;
	uint16_t tlen = r->tr_tlen;

	if (hi && kv_kcmp(r->tr_from, r->tr_flen, hi, hilen) >= 0)
		return false;
	if (r->tr_flags & KV_TR_PREFIX) {
		tlen = kv_prefix_end(r->tr_from, r->tr_flen, end);
		to = end;
	}
	return r->tr_flags & KV_TR_ENDLESS || !tlen || kv_kcmp(to, tlen, lo, lolen) > 0;
}

uint16_t kv_prefix_end(const uint8_t *pfx, uint16_t plen, uint8_t *to)
{
	while (plen && pfx[plen - 1] == 0xff)
		plen--;
	if (plen) {
		memcpy(to, pfx, plen);
		to[plen - 1]++;
	}
	return plen;
}

int kv_trange_cmp(const void *a, const void *b)
{
	const struct kv_trange *x = a, *y = b;
	int c = (y->tr_flags & KV_TR_PREFIX) - (x->tr_flags & KV_TR_PREFIX);

	if (!c)
		c = kv_kcmp(x->tr_from, x->tr_flen, y->tr_from, y->tr_flen);
	return c ? c : (x->tr_seq < y->tr_seq) - (x->tr_seq > y->tr_seq);
}

/* Does row @a end behind row @b? */
static bool ends_later(const struct kv_trange *a, const struct kv_trange *b)
{
	if (b->tr_flags & KV_TR_ENDLESS)
		return false;
	return a->tr_flags & KV_TR_ENDLESS ||
	       kv_kcmp(a->tr_to, a->tr_tlen, b->tr_to, b->tr_tlen) > 0;
}

/* Fills the nodes of rows [lo, hi), whose root is the middle one. Depth log n. */
static void tree_make(struct kv_tindex *ti, uint32_t lo, uint32_t hi)
{
	uint32_t mid = lo + (hi - lo) / 2, side[2] = { mid, mid };

	ti->ti_reach[mid] = mid;
	ti->ti_newest[mid] = ti->ti_r[mid].tr_seq;
	if (lo < mid) {
		tree_make(ti, lo, mid);
		side[0] = lo + (mid - lo) / 2;
	}
	if (mid + 1 < hi) {
		tree_make(ti, mid + 1, hi);
		side[1] = mid + 1 + (hi - mid - 1) / 2;
	}
	for (unsigned i = 0; i < 2; i++) {
		if (ti->ti_newest[side[i]] > ti->ti_newest[mid])
			ti->ti_newest[mid] = ti->ti_newest[side[i]];
		if (ends_later(&ti->ti_r[ti->ti_reach[side[i]]], &ti->ti_r[ti->ti_reach[mid]]))
			ti->ti_reach[mid] = ti->ti_reach[side[i]];
	}
}

/* Each prefix once: the slot names its newest row, the older ones follow it. */
static void hash_make(struct kv_tindex *ti)
{
	for (uint32_t i = 0; i < ti->ti_npfx; i++) {
		const struct kv_trange *r = &ti->ti_r[i];
		uint32_t s;

		if (i && !memcmp(r[-1].tr_from, r->tr_from, ti->ti_plen))
			continue;
		s = (uint32_t)kv_hash(r->tr_from, ti->ti_plen) & ti->ti_mask;
		while (ti->ti_slot[s])
			s = (s + 1) & ti->ti_mask;
		ti->ti_slot[s] = i + 1;
	}
}

struct kv_tindex *kv_tindex_new(const struct kv_trange *r, uint32_t n, void *mem)
{
	struct kv_tindex *ti = calloc(1, sizeof(*ti));
	uint32_t slots = 4;

	if (!ti) {
		free(mem);
		return NULL;
	}
	ti->ti_mem = mem;
	ti->ti_n = n;
	ti->ti_min_seq = UINT64_MAX;
	ti->ti_r = malloc(n * sizeof(*r));
	if (!ti->ti_r)
		goto fail;
	memcpy(ti->ti_r, r, n * sizeof(*r));
	qsort(ti->ti_r, n, sizeof(*r), kv_trange_cmp);
	for (uint32_t i = 0; i < n; i++) {
		ti->ti_npfx += !!(ti->ti_r[i].tr_flags & KV_TR_PREFIX);
		if (ti->ti_r[i].tr_seq < ti->ti_min_seq)
			ti->ti_min_seq = ti->ti_r[i].tr_seq;
		if (ti->ti_r[i].tr_seq > ti->ti_max_seq)
			ti->ti_max_seq = ti->ti_r[i].tr_seq;
	}
	ti->ti_bytes = sizeof(*ti) + n * sizeof(*r);
	if (ti->ti_npfx) {
		while (slots < 2 * ti->ti_npfx)
			slots *= 2;
		ti->ti_plen = ti->ti_r[0].tr_flen;
		ti->ti_mask = slots - 1;
		ti->ti_slot = calloc(slots, sizeof(*ti->ti_slot));
		if (!ti->ti_slot)
			goto fail;
		hash_make(ti);
		ti->ti_bytes += slots * sizeof(*ti->ti_slot);
	}
	if (ti->ti_npfx < n) {
		ti->ti_reach = malloc(n * sizeof(*ti->ti_reach));
		ti->ti_newest = malloc(n * sizeof(*ti->ti_newest));
		if (!ti->ti_reach || !ti->ti_newest)
			goto fail;
		tree_make(ti, ti->ti_npfx, n);
		ti->ti_bytes += n * (sizeof(*ti->ti_reach) + sizeof(*ti->ti_newest));
	}
	return ti;
fail:
	kv_tindex_free(ti);
	return NULL;
}

void kv_tindex_free(struct kv_tindex *ti)
{
	if (!ti)
		return;
	free(ti->ti_r);
	free(ti->ti_slot);
	free(ti->ti_reach);
	free(ti->ti_newest);
	free(ti->ti_mem);
	free(ti);
}

static uint64_t prefix_at(const struct kv_tindex *ti, const void *key, uint64_t v)
{
	uint32_t s = (uint32_t)kv_hash(key, ti->ti_plen) & ti->ti_mask, i;

	for (; (i = ti->ti_slot[s]); s = (s + 1) & ti->ti_mask) {
		if (memcmp(ti->ti_r[--i].tr_from, key, ti->ti_plen))
			continue;
		for (; i < ti->ti_npfx && !memcmp(ti->ti_r[i].tr_from, key, ti->ti_plen); i++)
			if (ti->ti_r[i].tr_seq <= v)
				return ti->ti_r[i].tr_seq;
		break;
	}
	return 0;
}

struct range_query {
	const struct kv_tindex *q_ti;
	const void *q_key;
	size_t q_klen;
	uint64_t q_v;
	uint64_t q_best;
};

static void range_at(struct range_query *q, uint32_t lo, uint32_t hi)
{
	while (lo < hi) {
		const struct kv_tindex *ti = q->q_ti;
		uint32_t mid = lo + (hi - lo) / 2;
		const struct kv_trange *r = &ti->ti_r[mid], *far = &ti->ti_r[ti->ti_reach[mid]];

		if (ti->ti_newest[mid] <= q->q_best ||
		    (!(far->tr_flags & KV_TR_ENDLESS) &&
		     kv_kcmp(far->tr_to, far->tr_tlen, q->q_key, q->q_klen) <= 0))
			return;
		range_at(q, lo, mid);
		if (kv_kcmp(r->tr_from, r->tr_flen, q->q_key, q->q_klen) > 0)
			return;
		if (r->tr_seq <= q->q_v && r->tr_seq > q->q_best &&
		    kv_trange_has(r, q->q_key, q->q_klen))
			q->q_best = r->tr_seq;
		lo = mid + 1;
	}
}

uint64_t kv_tindex_at(const struct kv_tindex *ti, const void *key, size_t klen, uint64_t v)
{
	struct range_query q = { .q_ti = ti, .q_key = key, .q_klen = klen, .q_v = v };

	if (ti->ti_min_seq > v)
		return 0;
	if (ti->ti_npfx && klen >= ti->ti_plen)
		q.q_best = prefix_at(ti, key, v);
	range_at(&q, ti->ti_npfx, ti->ti_n);
	return q.q_best;
}
