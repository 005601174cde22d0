/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What staging could save at best: it holds values and nothing else, and when
 * it is full the one that was written longest ago leaves. A value that is
 * overwritten before that never reaches capacity.
 */
#include <stdlib.h>

#include "bench.h"

#define RECORDS_MAX (64u << 20) /* eight bytes of memory for each */

/* A ring of the records on staging, in order of their last write; index n is the ring's head. */
struct ideal {
	uint32_t n, held, max;
	uint32_t *older, *newer; /* UINT32_MAX: not on staging */
};

static void take_out(struct ideal *id, uint32_t r)
{
	id->newer[id->older[r]] = id->newer[r];
	id->older[id->newer[r]] = id->older[r];
	id->newer[r] = UINT32_MAX;
	id->held--;
}

/* Writes a record; true when another one leaves. */
static bool write_one(struct ideal *id, uint32_t r)
{
	if (id->newer[r] != UINT32_MAX)
		take_out(id, r);
	id->newer[r] = id->n;
	id->older[r] = id->older[id->n];
	id->newer[id->older[r]] = r;
	id->older[id->n] = r;
	if (++id->held <= id->max)
		return false;
	take_out(id, id->newer[id->n]);
	return true;
}

/* Values that leave staging in a phase. */
static uint64_t leave(struct ideal *id, struct bench *b, const struct bench_phase *p, unsigned nth)
{
	uint64_t n = p->hist[OP_UPDATE].count + p->hist[OP_RMW].count, left = 0;
	struct bench_chooser c;
	struct bench_rng rng;

	bench_rng_seed(&rng, b->seed + nth);
	bench_chooser_init(&c, p->dist, b->records, 0, &b->seq);
	for (uint64_t i = 0; i < n; i++)
		left += write_one(id, (uint32_t)(bench_choose(&c, &rng) % id->n));
	n = p->hist[OP_INSERT].count;
	for (uint64_t i = 0; i < n; i++)
		left += write_one(id, (uint32_t)(i % id->n));
	return left;
}

void bench_ideal(struct bench *b, uint64_t *written)
{
	struct ideal id = { .n = (uint32_t)b->records };
	uint64_t size = b->value_size + BENCH_KEY_MAX;

	for (unsigned i = 0; i < b->nphases; i++)
		written[i] = 0;
	id.max = (uint32_t)(b->staging_size / size);
	if (b->records > RECORDS_MAX)
		return;
	id.older = malloc((id.n + 1) * sizeof(*id.older));
	id.newer = malloc((id.n + 1) * sizeof(*id.newer));
	if (id.older && id.newer) {
		for (uint32_t r = 0; r < id.n; r++)
			id.newer[r] = UINT32_MAX;
		id.older[id.n] = id.newer[id.n] = id.n;
		for (unsigned i = 0; i < b->nphases; i++)
			written[i] = leave(&id, b, &b->phase[i], i) * size;
	}
	free(id.older);
	free(id.newer);
}
