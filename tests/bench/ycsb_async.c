/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A thread of the comparison that has many operations in progress: it begins
 * new ones as others end, in batches, and checks every answer as the threads
 * do that wait for each. A latency is from the call that begins an operation
 * to the one that returns it, checks of those before it included.
 */
#include <stdlib.h>
#include <string.h>

#include "ycsb.h"

/* An operation in progress, or unused. */
struct slot {
	struct engine_op s_op;	/* first: the engine hands it back */
	struct slot *s_next;	/* unused */
	struct ycsb_key s_key;
	enum bench_op s_kind;
	uint64_t s_record;
	uint32_t s_oldest;	/* of a get: version that may be found */
	uint64_t s_begun;	/* ticks */
	unsigned char s_val[];
};

struct async {
	struct ycsb_thread *a_t;
	struct slot **a_slot;
	struct slot *a_unused;
	struct engine_op *a_batch[ENGINE_BATCH];
	unsigned a_nbatch;
	unsigned a_busy;	/* slots in use */
	uint64_t a_begun;	/* operations */
	uint8_t a_pick[100];
};

static void slots_alloc(struct async *a)
{
	const struct ycsb *y = a->a_t->y;

	a->a_slot = calloc(y->o.in_flight, sizeof(struct slot *));
	for (unsigned i = 0; a->a_slot && i < y->o.in_flight; i++) {
		struct slot *s = calloc(1, sizeof(*s) + y->value_size);

		if (!s)
			die("no memory for %u operations", y->o.in_flight);
		memset(s->s_val, 1, y->value_size);
		s->s_next = a->a_unused;
		a->a_unused = a->a_slot[i] = s;
	}
	if (!a->a_slot)
		die("no memory for %u operations", y->o.in_flight);
}

static void slots_free(struct async *a)
{
	for (unsigned i = 0; i < a->a_t->y->o.in_flight; i++)
		free(a->a_slot[i]);
	free(a->a_slot);
}

static void batch_submit(struct async *a)
{
	if (a->a_nbatch)
		a->a_t->y->e->submit(a->a_t->engine, a->a_batch, a->a_nbatch);
	a->a_nbatch = 0;
}

static void batch_add(struct async *a, struct slot *s, bool is_put)
{
	const struct ycsb *y = a->a_t->y;

	s->s_op = (struct engine_op){ .key = s->s_key.text, .klen = s->s_key.len,
				      .val = s->s_val, .vlen = y->value_size, .is_put = is_put };
	if (is_put)
		ycsb_write_begin(a->a_t, &s->s_key, s->s_record, s->s_kind != OP_INSERT, s->s_val);
	else
		s->s_oldest = version_floor(&y->versions[s->s_record]);
	a->a_batch[a->a_nbatch++] = &s->s_op;
	if (a->a_nbatch == ENGINE_BATCH)
		batch_submit(a);
}

/* The next operation's kind and record. */
static void choose(struct async *a, struct slot *s)
{
	struct ycsb_thread *t = a->a_t;
	struct ycsb *y = t->y;

	if (y->pass == PASS_LOAD) {	/* as run_load() */
		s->s_kind = OP_INSERT;
		s->s_record = t->id + a->a_begun * y->o.threads;
		return;
	}
	s->s_kind = (enum bench_op)a->a_pick[bench_rand_below(&t->rng, 100)];
	s->s_record = s->s_kind == OP_INSERT ? bench_seq_take(&y->seq) :
					       bench_choose(&t->chooser, &t->rng);
}

static void begin_some(struct async *a)
{
	struct ycsb_thread *t = a->a_t;

	while (a->a_unused && a->a_begun < t->ops && !ycsb_is_stopped(t->y)) {
		struct slot *s = a->a_unused;

		a->a_unused = s->s_next;
		a->a_busy++;
		s->s_begun = bench_ticks();
		choose(a, s);
		a->a_begun++;
		__builtin_prefetch(&t->y->versions[s->s_record], 1);
		ycsb_key_make(&s->s_key, s->s_record);
		batch_add(a, s, s->s_kind == OP_UPDATE || s->s_kind == OP_INSERT);
	}
	batch_submit(a);
}

static void end(struct async *a, struct slot *s)
{
	struct ycsb_thread *t = a->a_t;
	struct ycsb *y = t->y;

	if (s->s_op.is_put) {
		ycsb_write_end(t, &s->s_key, s->s_record, s->s_kind != OP_INSERT);
		if (s->s_kind == OP_INSERT && y->pass == PASS_MIX)
			bench_seq_ack(&y->seq, s->s_record);
	} else {
		if (!s->s_op.is_found)
			die("record %llu is lost", (unsigned long long)s->s_record);
		ycsb_value_check(t, &s->s_key, s->s_record, s->s_val, s->s_op.vlen, s->s_oldest);
		if (s->s_kind == OP_RMW) {
			batch_add(a, s, true);
			return;
		}
	}
	bench_hist_add(&t->hist[s->s_kind], bench_ticks() - s->s_begun);
	t->done++;
	s->s_next = a->a_unused;
	a->a_unused = s;
	a->a_busy--;
}

void ycsb_async_run(struct ycsb_thread *t)
{
	struct async a = { .a_t = t };
	struct engine_op *ended[ENGINE_BATCH];

	slots_alloc(&a);
	ycsb_mix_pick(t->y, a.a_pick);
	for (;;) {
		begin_some(&a);
		if (!a.a_busy)
			break;
		for (unsigned n = t->y->e->reap(t->engine, ended), i = 0; i < n; i++)
			end(&a, (struct slot *)ended[i]);
	}
	slots_free(&a);
}
