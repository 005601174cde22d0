/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * An index over a fixed set of range and prefix tombstones: the newest one that
 * covers a key, as of a view. Prefixes, which all have the store's prefix
 * length, are found by hash.
 *
 * Ranges are told apart by the place of the key among their ends, which are sorted: so many lie
 * at or below the key. Their rows have ranks by stamp, and a wavelet tree over the ranks says
 * for any interval of them, halved again and again, whether one of its rows covers that place.
 * So the newest row that covers a key as of any view is found in two steps for each bit of a
 * rank, however ranges overlap; the place takes one binary search. A tree of n ranges takes some
 * 5 bits for each end and bit of a rank.
 *
 * Immutable once made; no locks.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/key.h"
#include "base/trange.h"
#include "mem/tomb.h"

/* ---- ranges: making the tree ------------------------------------------------------------- */

/* An end of a range: row << 1, and 1 if it is the upper one, which is no part of it. */
static const uint8_t *end_key(const struct kv_tindex *ti, uint32_t end, size_t *len)
{
	const struct kv_trange *r = &ti->ti_r[end >> 1];

	*len = end & 1 ? r->tr_tlen : r->tr_flen;
	return end & 1 ? r->tr_to : r->tr_from;
}

static int by_key(const void *a, const void *b, void *arg)
{
	size_t alen, blen;
	const uint8_t *x = end_key(arg, *(const uint32_t *)a, &alen);
	const uint8_t *y = end_key(arg, *(const uint32_t *)b, &blen);

	return kv_kcmp(x, alen, y, blen);
}

static int by_seq(const void *a, const void *b, void *arg)
{
	const struct kv_tindex *ti = arg;
	uint64_t x = ti->ti_r[*(const uint32_t *)a].tr_seq;
	uint64_t y = ti->ti_r[*(const uint32_t *)b].tr_seq;

	return (x > y) - (x < y);
}

/* The ends in order, and of each its first bytes after those that all have in common. */
static void ends_make(struct kv_tindex *ti)
{
	const uint8_t *first, *last, *key;
	uint32_t n = 0;
	size_t flen, llen, len;

	for (uint32_t i = ti->ti_npfx; i < ti->ti_n; i++) {
		ti->ti_end[n++] = i << 1;
		if (!(ti->ti_r[i].tr_flags & KV_TR_ENDLESS))
			ti->ti_end[n++] = i << 1 | 1;
	}
	KV_ASSERT(n == ti->ti_nend);
	qsort_r(ti->ti_end, n, sizeof(ti->ti_end[0]), by_key, ti);
	first = end_key(ti, ti->ti_end[0], &flen);
	last = end_key(ti, ti->ti_end[n - 1], &llen);
	ti->ti_common = (uint16_t)kv_klcp(first, flen, last, llen);
	for (uint32_t i = 0; i < n; i++) {
		key = end_key(ti, ti->ti_end[i], &len);
		ti->ti_head[i] = kv_head8(key + ti->ti_common, len - ti->ti_common);
	}
}

/* Ranks by stamp: ti_row, ti_seq, ti_sum; @rank by row. */
static void ranks_make(struct kv_tindex *ti, uint32_t *rank)
{
	uint32_t n = ti->ti_n - ti->ti_npfx, *row = ti->ti_row;

	for (uint32_t i = 0; i < n; i++)
		row[i] = ti->ti_npfx + i;
	qsort_r(row, n, sizeof(row[0]), by_seq, ti);
	ti->ti_sum[0] = 0;
	for (uint32_t i = 0; i < n; i++) {
		const struct kv_trange *r = &ti->ti_r[row[i]];

		rank[row[i]] = i;
		ti->ti_seq[i] = r->tr_seq;
		ti->ti_sum[i + 1] = ti->ti_sum[i] + (r->tr_flags & KV_TR_ENDLESS ? 1 : 2);
	}
}

/* Where the ends of the ranks from @rank on begin, in each level. */
static uint32_t node_at(const struct kv_tindex *ti, uint32_t rank)
{
	uint32_t n = ti->ti_n - ti->ti_npfx;

	return ti->ti_sum[rank < n ? rank : n];
}

/*
 * One level: the ends of each node, an interval of 2 << @level ranks, in order of keys. @cur
 * holds rank << 1 | upper; in @next those of the lower half of a node's ranks come first.
 */
static void level_make(struct kv_tindex *ti, unsigned level, const uint32_t *cur, uint32_t *next)
{
	struct kv_tbits *tb = ti->ti_bits + (size_t)level * ti->ti_blocks;
	uint32_t ones = 0, n = ti->ti_n - ti->ti_npfx;

	for (uint64_t rank = 0; rank < n; rank += 2ull << level) {
		uint32_t from = node_at(ti, (uint32_t)rank), open = 0, left = from;
		uint32_t mid = (uint32_t)rank + (1u << level), right = node_at(ti, mid);
		uint32_t to = rank + (2ull << level) < n ? ti->ti_sum[rank + (2ull << level)] :
							   ti->ti_sum[n];

		for (uint32_t i = from; i < to; i++) {
			bool goes_right = cur[i] >> 1 >= mid;

			if (i % 64 == 0)
				tb[i / 64].tb_before = ones;
			open += cur[i] & 1 ? -1u : 1;
			tb[i / 64].tb_covered |= (uint64_t)(open != 0) << i % 64;
			tb[i / 64].tb_right |= (uint64_t)goes_right << i % 64;
			ones += goes_right;
			next[goes_right ? right++ : left++] = cur[i];
		}
	}
	if (ti->ti_nend % 64 == 0)
		tb[ti->ti_nend / 64].tb_before = ones;
}

/* Its memory: as large as the ends want it. */
static int tree_alloc(struct kv_tindex *ti)
{
	uint32_t n = ti->ti_n - ti->ti_npfx;
	size_t bits;

	for (uint32_t i = ti->ti_npfx; i < ti->ti_n; i++)
		ti->ti_nend += ti->ti_r[i].tr_flags & KV_TR_ENDLESS ? 1 : 2;
	while (1ull << ti->ti_levels < n)
		ti->ti_levels++;
	ti->ti_blocks = ti->ti_nend / 64 + 1;
	bits = (size_t)ti->ti_levels * ti->ti_blocks;
	ti->ti_end = malloc(ti->ti_nend * sizeof(ti->ti_end[0]));
	ti->ti_head = malloc(ti->ti_nend * sizeof(ti->ti_head[0]));
	ti->ti_bits = calloc(bits + 1, sizeof(ti->ti_bits[0]));
	ti->ti_sum = malloc((n + 1) * sizeof(ti->ti_sum[0]));
	ti->ti_seq = malloc(n * sizeof(ti->ti_seq[0]));
	ti->ti_row = malloc(n * sizeof(ti->ti_row[0]));
	ti->ti_bytes += ti->ti_nend * (sizeof(ti->ti_end[0]) + sizeof(ti->ti_head[0])) +
			bits * sizeof(ti->ti_bits[0]) +
			n * (2 * sizeof(ti->ti_sum[0]) + sizeof(ti->ti_seq[0]));
	return ti->ti_end && ti->ti_head && ti->ti_bits && ti->ti_sum && ti->ti_seq &&
	       ti->ti_row ? 0 : -1;
}

static int tree_make(struct kv_tindex *ti)
{
	uint32_t *rank, *cur, *next, *was;
	int rc = tree_alloc(ti);

	if (rc)
		return rc;
	/* no level writes after the ends, and each end is written by each */
	rank = malloc(ti->ti_n * sizeof(*rank));
	cur = malloc(ti->ti_nend * sizeof(*cur));
	next = malloc(ti->ti_nend * sizeof(*next));
	rc = rank && cur && next ? 0 : -1;
	if (!rc) {
		KV_ASSERT(ti->ti_levels < 32);
		ends_make(ti);
		ranks_make(ti, rank);
		for (uint32_t i = 0; i < ti->ti_nend; i++)
			cur[i] = rank[ti->ti_end[i] >> 1] << 1 | (ti->ti_end[i] & 1);
		for (unsigned level = ti->ti_levels; level--;) {
			level_make(ti, level, cur, next);
			was = cur;
			cur = next;
			next = was;
		}
	}
	free(rank);
	free(cur);
	free(next);
	return rc;
}

/* ---- prefixes ------------------------------------------------------------------------------ */

/* Each prefix once: the slot names its newest row, the older ones follow it. */
static void hash_make(struct kv_tindex *ti)
{
	for (uint32_t i = 0; i < ti->ti_npfx; i++) {
		const struct kv_trange *r = &ti->ti_r[i];
		uint32_t s;

		KV_ASSERT(r->tr_flen == ti->ti_plen);
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

	KV_ASSERT(n);
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
	if (ti->ti_npfx < n && tree_make(ti))
		goto fail;
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
	free(ti->ti_end);
	free(ti->ti_head);
	free(ti->ti_bits);
	free(ti->ti_sum);
	free(ti->ti_seq);
	free(ti->ti_row);
	free(ti->ti_mem);
	free(ti);
}

static bool is_prefix(const struct kv_tindex *ti, uint32_t i, const void *key)
{
	return i < ti->ti_npfx && !memcmp(ti->ti_r[i].tr_from, key, ti->ti_plen);
}

/* The newest one up to @v of those of one prefix, which are newest first from @i on. */
static uint64_t newest_upto(const struct kv_tindex *ti, uint32_t i, const void *key, uint64_t v,
			    unsigned *steps)
{
	uint32_t step = 1, lo = i, mid;

	/* the last one is newer than @v: how far on is the first that is not? */
	while (is_prefix(ti, i, key) && ti->ti_r[i].tr_seq > v) {
		++*steps;
		lo = i + 1;
		i = step < ti->ti_npfx - i ? i + step : ti->ti_npfx;
		step *= 2;
	}
	while (lo < i) {
		++*steps;
		mid = lo + (i - lo) / 2;
		if (is_prefix(ti, mid, key) && ti->ti_r[mid].tr_seq > v)
			lo = mid + 1;
		else
			i = mid;
	}
	return is_prefix(ti, lo, key) ? ti->ti_r[lo].tr_seq : 0;
}

static uint64_t prefix_at(const struct kv_tindex *ti, const void *key, uint64_t v, unsigned *steps)
{
	uint32_t s = (uint32_t)kv_hash(key, ti->ti_plen) & ti->ti_mask, i;

	for (; (i = ti->ti_slot[s]); s = (s + 1) & ti->ti_mask)
		if (is_prefix(ti, i - 1, key))
			return newest_upto(ti, i - 1, key, v, steps);
	return 0;
}

/* ---- ranges: search ------------------------------------------------------------------------ */

/* How many ends lie at or below the key. */
static uint32_t place_of(const struct kv_tindex *ti, const uint8_t *key, size_t klen,
			 unsigned *steps)
{
	size_t len, common = ti->ti_common, least = klen < common ? klen : common;
	const uint8_t *first = end_key(ti, ti->ti_end[0], &len);
	int c = least ? memcmp(key, first, least) : 0;
	uint32_t lo = 0, hi = ti->ti_nend;
	uint64_t head;

	if (c || klen < common)
		return c > 0 ? ti->ti_nend : 0;
	head = kv_head8(key + common, klen - common);
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		const uint8_t *end;

		++*steps;
		if (ti->ti_head[mid] != head) {
			c = ti->ti_head[mid] < head ? -1 : 1;
		} else {
			end = end_key(ti, ti->ti_end[mid], &len);
			c = kv_kcmp(end, len, key, klen);
		}
		if (c <= 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* An interval of ranks: 1 << no_bits of them from no_rank on; so many of its ends are below. */
struct node {
	int no_bits;
	uint32_t no_rank, no_place;
};

static bool covers(const struct kv_tindex *ti, const struct node *no)
{
	uint32_t at;

	/* of one range its lower end alone */
	if (!no->no_bits || !no->no_place)
		return no->no_place == 1;
	at = node_at(ti, no->no_rank) + no->no_place - 1;
	return ti->ti_bits[(size_t)(no->no_bits - 1) * ti->ti_blocks + at / 64].tb_covered >>
		       at % 64 & 1;
}

static uint32_t ones_before(const struct kv_tbits *level, uint32_t at)
{
	const struct kv_tbits *tb = &level[at / 64];

	return tb->tb_before +
	       (uint32_t)__builtin_popcountll(tb->tb_right & ((1ull << at % 64) - 1));
}

static void halve(const struct kv_tindex *ti, const struct node *no, struct node half[2])
{
	const struct kv_tbits *level = ti->ti_bits + (size_t)(no->no_bits - 1) * ti->ti_blocks;
	uint32_t from = node_at(ti, no->no_rank);
	uint32_t ones = ones_before(level, from + no->no_place) - ones_before(level, from);

	half[0] = (struct node){ no->no_bits - 1, no->no_rank, no->no_place - ones };
	half[1] = (struct node){ no->no_bits - 1, no->no_rank + (1u << (no->no_bits - 1)), ones };
}

/* The greatest rank up to @most of a range that covers the place, + 1; 0: none. */
static uint32_t newest_at(const struct kv_tindex *ti, uint32_t place, uint32_t most,
			  unsigned *steps)
{
	struct node no = { (int)ti->ti_levels, 0, place }, half[2], below = { -1, 0, 0 };

	KV_ASSERT_SLOW(most < ti->ti_n - ti->ti_npfx && place <= ti->ti_nend);
	/* towards @most; below it the nearest that covers the place */
	while (no.no_bits && covers(ti, &no)) {
		++*steps;
		halve(ti, &no, half);
		if (most < half[1].no_rank) {
			no = half[0];
			continue;
		}
		if (covers(ti, &half[0]))
			below = half[0];
		no = half[1];
	}
	if (!no.no_bits && covers(ti, &no))
		return no.no_rank + 1;
	if (below.no_bits < 0)
		return 0;
	for (no = below; no.no_bits; no = half[covers(ti, &half[1])]) {
		++*steps;
		halve(ti, &no, half);
	}
	return no.no_rank + 1;
}

/* How many ranges have stamps up to @v. */
static uint32_t ranks_upto(const struct kv_tindex *ti, uint64_t v, unsigned *steps)
{
	uint32_t lo = 0, hi = ti->ti_n - ti->ti_npfx;

	if (ti->ti_seq[hi - 1] <= v)
		return hi;
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		++*steps;
		if (ti->ti_seq[mid] <= v)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

uint64_t kv_tindex_find(const struct kv_tindex *ti, const void *key, size_t klen, uint64_t v,
			unsigned *steps)
{
	uint64_t best = 0, s = 0;
	uint32_t n, rank;

	if (ti->ti_min_seq > v)
		return 0;
	if (ti->ti_npfx && klen >= ti->ti_plen)
		best = prefix_at(ti, key, v, steps);
	n = ti->ti_nend ? ranks_upto(ti, v, steps) : 0;
	if (n) {
		rank = newest_at(ti, place_of(ti, key, klen, steps), n - 1, steps);
		s = rank ? ti->ti_seq[rank - 1] : 0;
	}
	return s > best ? s : best;
}

uint64_t kv_tindex_at(const struct kv_tindex *ti, const void *key, size_t klen, uint64_t v)
{
	unsigned steps = 0;

	return kv_tindex_find(ti, key, klen, v, &steps);
}

/* ---- what meets a range -------------------------------------------------------------------- */

static bool row_meets(const struct kv_trange *row, const struct kv_trange *r)
{
	return kv_trange_meets(row, r->tr_from, r->tr_flen,
			       r->tr_flags & KV_TR_ENDLESS ? NULL : r->tr_to, r->tr_tlen);
}

/* The first prefix that may begin a key of the range. */
static uint32_t prefix_from(const struct kv_tindex *ti, const struct kv_trange *r)
{
	size_t n = r->tr_flen < ti->ti_plen ? r->tr_flen : ti->ti_plen;
	uint32_t lo = 0, hi = ti->ti_npfx;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (kv_kcmp(ti->ti_r[mid].tr_from, ti->ti_plen, r->tr_from, n) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

bool kv_tindex_meets(const struct kv_tindex *ti, const struct kv_trange *r, uint64_t v)
{
	unsigned steps = 0;

	if (ti->ti_max_seq <= v)
		return false;
	for (uint32_t i = ti->ti_npfx ? prefix_from(ti, r) : 0; i < ti->ti_npfx; i++) {
		if (!row_meets(&ti->ti_r[i], r))
			break;
		if (ti->ti_r[i].tr_seq > v)
			return true;
	}
	for (uint32_t i = ti->ti_nend ? ranks_upto(ti, v, &steps) : 0;
	     ti->ti_nend && i < ti->ti_n - ti->ti_npfx; i++)
		if (row_meets(&ti->ti_r[ti->ti_row[i]], r))
			return true;
	return false;
}

/* ---- what newer ones say ------------------------------------------------------------------- */

void kv_tindex_needed(const struct kv_tindex *ti, bool *is)
{
	uint32_t n = ti->ti_n - ti->ti_npfx, row;
	unsigned steps = 0;
	size_t alen, blen;

	for (uint32_t i = 0; i < ti->ti_npfx; i++)
		is[i] = !i || !is_prefix(ti, i - 1, ti->ti_r[i].tr_from);
	for (uint32_t i = ti->ti_npfx; i < ti->ti_n; i++)
		is[i] = false;
	for (uint32_t i = 1; i <= ti->ti_nend; i++) {
		const uint8_t *a = end_key(ti, ti->ti_end[i - 1], &alen);
		const uint8_t *b = i < ti->ti_nend ? end_key(ti, ti->ti_end[i], &blen) : NULL;

		if (b && !kv_kcmp(a, alen, b, blen))
			continue;
		row = newest_at(ti, i, n - 1, &steps);
		if (row)
			is[ti->ti_row[row - 1]] = true;
	}
}
