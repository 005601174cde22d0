/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Scan order, by the rule of renting until the price is paid. A scan that
 * has to go to a place on media pays PLACE bytes for it, whatever it reads
 * there, and gets back what it reads: so a segment that gives less than PLACE
 * bytes a place grows hot, and one in key order stays cold. To put the values
 * of a segment in order each is read from a place of its own, at most, and
 * written. When scans have paid that much, the next ones would pay it again.
 *
 * sg_heat is a hint: it changes without order between threads, and is lost when
 * the database is closed.
 */
#include <stdlib.h>

#include "compact/heat.h"
#include "base/assert.h"
#include "base/guard.h"
#include "compact/reloc.h"

#define PLACE		16384u	/* bytes that a device transfers while it goes to another place */
#define AGAIN		4u	/* times the cost, of a segment that is in order in pieces */

void kv_heat_note(struct kv_seg *s, bool is_place, uint32_t bytes)
{
	int64_t by = (is_place ? PLACE : 0) - (int64_t)bytes;

	if (atomic_fetch_add_explicit(&s->sg_heat, by, memory_order_relaxed) + by < 0)
		atomic_store_explicit(&s->sg_heat, 0, memory_order_relaxed);
}

struct sum {
	uint64_t su_heat;
	bool su_halve;
};

static void add_heat(void *arg, struct kv_seg *s)
{
	struct sum *su = arg;
	int64_t heat = atomic_load_explicit(&s->sg_heat, memory_order_relaxed);

	su->su_heat += heat > 0 ? (uint64_t)heat : 0;
	if (su->su_halve && heat > 0)
		atomic_fetch_sub_explicit(&s->sg_heat, heat - heat / 2, memory_order_relaxed);
}

uint64_t kv_heat_sum(struct kvdb *db, bool halve)
{
	struct sum su = { .su_halve = halve };

	kv_segs_each(db, add_heat, &su);
	return su.su_heat;
}

static uint64_t order_cost(const struct kv_victim *v)
{
	uint64_t cost = v->vi_n * PLACE + v->vi_live;

	return v->vi_is_ordered ? AGAIN * cost : cost;
}

/*
 * Half is enough for one among others: together they are paid for, and the more of them
 * go into one job, the fewer places a scan has to go to afterwards. Values that would
 * leave their class wait for the job that moves them there.
 */
static bool may_go(const struct kv_victim *v)
{
	return v->vi_live && v->vi_stay == v->vi_live &&
	       CHECK(v->vi_heat >= order_cost(v) / 2);
}

/* By the part of the cost that is paid. */
static int by_heat(const void *a, const void *b)
{
	const struct kv_victim *v = a, *w = b;
	double x = (double)v->vi_heat * (double)order_cost(w);
	double y = (double)w->vi_heat * (double)order_cost(v);

	return x > y ? -1 : x < y;
}

static void swap(struct kv_victim *a, struct kv_victim *b)
{
	struct kv_victim v = *a;

	*a = *b;
	*b = v;
}

/* They are read and written. */
static uint64_t cost_of_keys(uint64_t keys)
{
	return 2 * keys;
}

uint64_t kv_heat_least(uint64_t keys)
{
	return cost_of_keys(keys) + PLACE;
}

unsigned kv_heat_choose(struct kv_victim *v, unsigned n, uint64_t keys, uint64_t room)
{
	uint64_t paid = 0, cost = cost_of_keys(keys), write = 0;
	unsigned able = 0, m = 0, chosen = 0;

	/* one that cost nothing would be equal to every other */
	for (unsigned i = 0; i < n; i++)
		if (may_go(&v[i]))
			swap(&v[able++], &v[i]);
	if (able)
		qsort(v, able, sizeof(*v), by_heat);
	for (unsigned i = 0; i < able; i++) {
		if (write + v[i].vi_live > room)
			continue;
		KV_ASSERT(m <= i && v[i].vi_heat >= order_cost(&v[i]) / 2);
		write += v[i].vi_live;
		paid += v[i].vi_heat;
		cost += order_cost(&v[i]);
		swap(&v[m++], &v[i]);
		if (CHECK(paid >= cost))
			chosen = m;
	}
	return chosen;
}
