/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The last writes of each key, for readers that run beside the writers. A
 * version is legal for a reader whose call took [r0, r1] iff it was begun
 * before r1 and no other write lies wholly between its end and r0: begun after
 * it had ended and ended before the reader began.
 *
 * A ring is short. What fell out of it is remembered by its newest end only, so
 * some reads cannot be judged; they are counted.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "mk.h"

const char *const mk_verdict_name[] = {
	[MK_LEGAL] = "legal",
	[MK_UNSURE] = "not decidable",
	[MK_STALE] = "overwritten before the read began",
	[MK_FUTURE] = "written after the read's moment",
	[MK_UNKNOWN] = "never written to this key",
	[MK_ABORTED] = "written by a refused or aborted write",
};

static void ring_lock(struct mk_ring *r)
{
	while (__atomic_exchange_n(&r->ri_lock, 1, __ATOMIC_ACQUIRE))
		sched_yield();
}

static void ring_unlock(struct mk_ring *r)
{
	__atomic_store_n(&r->ri_lock, 0, __ATOMIC_RELEASE);
}

/* What was there before the round is a write that ended at time 1. */
void mk_ring_reset(struct mk_world *wo)
{
	unsigned s, k;

	free(wo->wo_ring);
	wo->wo_ring = calloc((size_t)MK_STORES * MK_KEYS, sizeof(*wo->wo_ring));
	if (!wo->wo_ring)
		abort();
	for (s = 0; s < MK_STORES; s++) {
		for (k = 0; k < wo->wo_keys; k++) {
			struct mk_ring *r = mk_ring_of(wo, s, k);
			uint64_t id = wo->wo_shm->sm_base[s][k];

			r->ri_ent[r->ri_n++] = (struct mk_ent){ .en_id = id, .en_begin = 1,
								.en_end = 1, .en_is_del = !id };
		}
	}
}

static void forget(struct mk_ring *r, unsigned i)
{
	const struct mk_ent *e = &r->ri_ent[i];

	if (!e->en_is_aborted) {
		r->ri_lost = true;
		if (e->en_end > r->ri_lost_end)
			r->ri_lost_end = e->en_end;
		if (e->en_is_del) {
			r->ri_lost_del = true;
			if (e->en_end > r->ri_lost_del_end)
				r->ri_lost_del_end = e->en_end;
		}
	}
	memmove(&r->ri_ent[i], &r->ri_ent[i + 1], (r->ri_n - i - 1) * sizeof(r->ri_ent[0]));
	r->ri_n--;
}

void mk_ring_begin(struct mk_ring *r, uint64_t id, uint64_t begin, bool is_del)
{
	unsigned i = 0;

	ring_lock(r);
	if (r->ri_n == MK_RING) {
		/* fewer threads than places: some write has ended */
		while (!r->ri_ent[i].en_end)
			i++;
		forget(r, i);
	}
	r->ri_ent[r->ri_n++] = (struct mk_ent){ .en_id = id, .en_begin = begin,
						.en_is_del = is_del };
	ring_unlock(r);
}

void mk_ring_end(struct mk_ring *r, uint64_t id, uint64_t end, bool is_aborted)
{
	unsigned i;

	ring_lock(r);
	for (i = 0; i < r->ri_n; i++) {
		if (r->ri_ent[i].en_id != id)
			continue;
		r->ri_ent[i].en_end = end;
		r->ri_ent[i].en_is_aborted = is_aborted;
	}
	ring_unlock(r);
}

/* The newest beginning of a write that had ended at r0. */
static uint64_t newest_ended(const struct mk_ring *r, uint64_t not_id, uint64_t r0, bool puts_only)
{
	uint64_t newest = 0;
	unsigned i;

	for (i = 0; i < r->ri_n; i++) {
		const struct mk_ent *e = &r->ri_ent[i];

		if (e->en_is_aborted || !e->en_end || e->en_end >= r0 || e->en_id == not_id)
			continue;
		if (puts_only && e->en_is_del)
			continue;
		if (e->en_begin > newest)
			newest = e->en_begin;
	}
	return newest;
}

static enum mk_verdict judge_value(const struct mk_ring *r, uint64_t id, uint64_t r0, uint64_t r1)
{
	uint64_t newest = newest_ended(r, id, r0, false);
	unsigned i;

	for (i = 0; i < r->ri_n; i++) {
		const struct mk_ent *e = &r->ri_ent[i];

		if (e->en_id != id)
			continue;
		if (e->en_is_aborted)
			return MK_ABORTED;
		if (e->en_begin > r1)
			return MK_FUTURE;
		return e->en_end && e->en_end < newest ? MK_STALE : MK_LEGAL;
	}
	if (!r->ri_lost)
		return MK_UNKNOWN;
	return r->ri_lost_end < newest ? MK_STALE : MK_UNSURE;
}

static enum mk_verdict judge_absent(const struct mk_ring *r, uint64_t r0, uint64_t r1)
{
	uint64_t newest = newest_ended(r, 0, r0, true);
	enum mk_verdict v = MK_STALE;
	unsigned i;

	for (i = 0; i < r->ri_n; i++) {
		const struct mk_ent *e = &r->ri_ent[i];

		if (!e->en_is_del || e->en_is_aborted || e->en_begin > r1)
			continue;
		if (!e->en_end || e->en_end >= newest)
			return MK_LEGAL;
	}
	if (r->ri_lost_del && r->ri_lost_del_end >= newest)
		v = MK_UNSURE;
	return v;
}

enum mk_verdict mk_ring_judge(struct mk_ring *r, uint64_t id, uint64_t r0, uint64_t r1)
{
	enum mk_verdict v;

	ring_lock(r);
	v = id ? judge_value(r, id, r0, r1) : judge_absent(r, r0, r1);
	ring_unlock(r);
	return v;
}
