/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Which version of a record may a read return? A word per record knows: the
 * number of the newest write that began, how many are in progress, and the
 * oldest one that may still be the newest value.
 *
 * Writes of one record that overlap end in an order that no thread sees, so they
 * form a group: it begins with a write while none is in progress and ends when
 * none is any more. From then on no version before the group's first may be
 * read. Distances that do not fit are kept as FAR: nothing is too old then.
 *
 * Any thread; each change is one compare-and-swap. Words of zero: version 0 of
 * each record, by the load.
 */
#ifndef BENCH_VERSIONS_H
#define BENCH_VERSIONS_H

#include <stdbool.h>
#include <stdint.h>

#define VERSIONS_FAR 1023u

struct version_word {
	uint32_t begun;		    /* number of the newest write that began */
	unsigned in_progress : 12;
	unsigned to_floor : 10;	    /* begun less the oldest version that may be read */
	unsigned to_group : 10;	    /* begun less the first version of the open group */
};
_Static_assert(sizeof(struct version_word) == 8, "one compare-and-swap");

union version_cell {
	uint64_t all; /* atomic */
	struct version_word w;
};

static inline unsigned version_farther(unsigned distance)
{
	return distance < VERSIONS_FAR ? distance + 1 : VERSIONS_FAR;
}

static inline union version_cell version_load(union version_cell *c)
{
	return (union version_cell){ .all = __atomic_load_n(&c->all, __ATOMIC_SEQ_CST) };
}

/* A write begins; returns its version. */
static inline uint32_t version_begin(union version_cell *c)
{
	union version_cell old = version_load(c), new;

	do {
		new = old;
		new.w.begun++;
		new.w.to_floor = version_farther(old.w.to_floor);
		new.w.to_group = old.w.in_progress ? version_farther(old.w.to_group) : 0;
		new.w.in_progress++;
	} while (!__atomic_compare_exchange_n(&c->all, &old.all, new.all, false, __ATOMIC_SEQ_CST,
					      __ATOMIC_SEQ_CST));
	return new.w.begun;
}

/* A write was acknowledged. */
static inline void version_end(union version_cell *c)
{
	union version_cell old = version_load(c), new;

	do {
		new = old;
		if (!--new.w.in_progress)
			new.w.to_floor = new.w.to_group;
	} while (!__atomic_compare_exchange_n(&c->all, &old.all, new.all, false, __ATOMIC_SEQ_CST,
					      __ATOMIC_SEQ_CST));
}

/* The oldest version that a read that begins now may return. */
static inline uint32_t version_floor(union version_cell *c)
{
	union version_cell v = version_load(c);

	return v.w.to_floor == VERSIONS_FAR ? 0 : v.w.begun - v.w.to_floor;
}

/* The newest version that a read that ends now may return. */
static inline uint32_t version_newest(union version_cell *c)
{
	return version_load(c).w.begun;
}

#endif
