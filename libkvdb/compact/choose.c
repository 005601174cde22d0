/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Which segments to empty, of those that a relocation may empty: pure choices.
 */
#include <math.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/guard.h"
#include "seg/kv_omf.h"
#include "compact/reloc.h"

#define LIVE_MOST	15u	/* of 16: fuller segments are not worth their copy */

/*
 * What comes free per byte that must be copied, times the root of the age: a
 * young segment that is half dead will soon be emptier, an old one will not.
 */
static double worth(const struct kv_victim *v)
{
	double dead = v->vi_bytes > v->vi_live ? (double)(v->vi_bytes - v->vi_live) : 0;

	return dead / (double)(v->vi_live + 64) * sqrt((double)v->vi_age);
}

static int by_worth(const void *a, const void *b)
{
	const struct kv_victim *v = a, *w = b;
	double x = worth(v), y = worth(w);

	if (x != y)
		return x > y ? -1 : 1;
	return v->vi_age > w->vi_age ? -1 : v->vi_age < w->vi_age;
}

static void swap(struct kv_victim *a, struct kv_victim *b)
{
	struct kv_victim v = *a;

	*a = *b;
	*b = v;
}

/* False: there is no room for its live values. */
static bool take_room(struct kv_reloc_room *left, const struct kv_victim *v)
{
	uint64_t into[MPOOL_MCLASSES];

	if (v->vi_live > left->rr_any)
		return false;
	for (unsigned c = 0; c < MPOOL_MCLASSES; c++) {
		into[c] = v->vi_seg->sg_mclass == c ? 0 : v->vi_only[c];
		if (v->vi_only[c] > left->rr_only[c] || !CHECK(into[c] <= left->rr_into[c]))
			return false;
	}
	left->rr_any -= v->vi_live;
	for (unsigned c = 0; c < MPOOL_MCLASSES; c++) {
		left->rr_only[c] -= v->vi_only[c];
		left->rr_into[c] -= into[c];
	}
	return true;
}

unsigned kv_reloc_choose(struct kv_victim *v, unsigned n, uint64_t excess,
			 const struct kv_reloc_room *room)
{
	struct kv_reloc_room left = *room;
	uint64_t gain = 0;
	unsigned i, m = 0, chosen = 0;

	for (i = 0; i < n; i++)
		if (!v[i].vi_is_left && v[i].vi_live * 16 <= v[i].vi_bytes * LIVE_MOST)
			swap(&v[m++], &v[i]);
	if (m)
		qsort(v, m, sizeof(*v), by_worth);
	for (i = 0; i < m && gain < excess; i++) {
		if (!take_room(&left, &v[i]))
			continue;
		KV_ASSERT(v[i].vi_live <= v[i].vi_bytes);
		gain += v[i].vi_bytes - v[i].vi_live;
		swap(&v[chosen++], &v[i]);
	}
	return chosen;
}

static int by_age(const void *a, const void *b)
{
	const struct kv_victim *v = a, *w = b;

	return v->vi_age > w->vi_age ? -1 : v->vi_age < w->vi_age;
}

uint64_t kv_victim_stays(const struct kv_victim *v)
{
	return v->vi_stay ? (v->vi_stay + KV_FRAME_HDR + KV_BLOCK - 1) / KV_BLOCK * KV_BLOCK : 0;
}

unsigned kv_reloc_choose_old(struct kv_victim *v, unsigned n, uint64_t excess, uint64_t room)
{
	uint64_t gain = 0, write = 0;
	unsigned i, m = 0, chosen = 0;

	for (i = 0; i < n; i++)
		if (v[i].vi_seg->sg_mclass == MPOOL_STAGING &&
		    kv_victim_stays(&v[i]) * 2 < v[i].vi_bytes)
			swap(&v[m++], &v[i]);
	if (m)
		qsort(v, m, sizeof(*v), by_age);
	for (i = 0; i < m && gain < excess; i++) {
		if (write + v[i].vi_live > room)
			continue;
		write += v[i].vi_live;
		KV_ASSERT(kv_victim_stays(&v[i]) <= v[i].vi_bytes);
		gain += v[i].vi_bytes - kv_victim_stays(&v[i]);
		swap(&v[chosen++], &v[i]);
	}
	return chosen;
}

unsigned kv_reloc_choose_wrong(struct kv_victim *v, unsigned n, const struct kv_reloc_room *room)
{
	struct kv_reloc_room left = *room;
	unsigned i, chosen = 0;

	for (i = 0; i < n; i++) {
		if (!v[i].vi_wrong || !take_room(&left, &v[i]))
			continue;
		swap(&v[chosen++], &v[i]);
	}
	return chosen;
}
