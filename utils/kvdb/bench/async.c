/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The driver through completion queues: every thread keeps a number of reads
 * and updates in flight and checks every answer. A latency is from submission
 * to the completion in hand.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define REAP 64u

struct slot {
	uint64_t hash;
	uint64_t begun; /* ticks */
	enum bench_op op;
	unsigned klen;
	char key[BENCH_KEY_MAX];
	unsigned char *buf; /* value_size + 64 */
};

struct flight {
	struct bench_thread *t;
	struct kvdb_cq *cq;
	struct slot *slot;
	struct slot **idle;
	unsigned nidle;
	uint64_t started;
};

/* The next operation, in an idle slot. */
static struct kvdb_op op_make(struct flight *f, enum bench_op kind)
{
	struct bench_thread *t = f->t;
	struct bench *b = t->b;
	struct slot *s = f->idle[--f->nidle];
	struct kvdb_op op = { .kvs = b->kvs, .cookie = (uintptr_t)s, .key = s->key };

	s->hash = bench_fnv64(bench_choose(&t->chooser, &t->rng));
	s->klen = bench_key(s->key, s->hash);
	s->op = kind;
	op.klen = s->klen;
	op.size = b->value_size;
	op.buf = s->buf;
	op.type = kind == OP_READ ? KVDB_OP_GET : KVDB_OP_PUT;
	if (kind == OP_UPDATE) {
		/* published first: a reader may see the value at once */
		__atomic_store_n(&t->version, t->version + 1, __ATOMIC_RELEASE);
		bench_value_make(s->buf, b->value_size, s->hash,
				 BENCH_VERSION(b->run, t->id, t->version));
		t->write_bytes += s->klen + b->value_size;
	}
	return op;
}

static int submit(struct flight *f, const uint8_t *pick)
{
	struct bench_thread *t = f->t;
	struct kvdb_op op[REAP];
	unsigned n = 0;
	uint64_t now;
	int rc;

	while (n < REAP && f->nidle && f->started < t->ops) {
		op[n++] = op_make(f, (enum bench_op)pick[bench_rand_below(&t->rng, 100)]);
		f->started++;
	}
	now = bench_ticks();
	for (unsigned i = 0; i < n; i++)
		((struct slot *)(uintptr_t)op[i].cookie)->begun = now;
	rc = kvdb_cq_submit(f->cq, op, n);
	if (rc != (int)n)
		bench_fail(t->b, "", 0, "submit", rc < 0 ? rc : -ENOMEM);
	return rc == (int)n ? 0 : -ENOMEM;
}

static int take(struct flight *f, const struct kvdb_cqe *e, uint64_t now)
{
	struct slot *s = (struct slot *)(uintptr_t)e->cookie;
	struct bench_thread *t = f->t;
	const char *why = NULL;

	if (e->err) {
		bench_fail(t->b, s->key, s->klen, e->error ? e->error->text : bench_op_name[s->op],
			   e->error ? 0 : e->err);
		return e->err;
	}
	if (s->op == OP_READ) {
		why = bench_value_bad(t->b, s->buf, e->vlen, s->hash);
		t->read_bytes += s->klen + e->vlen;
	}
	if (why) {
		bench_fail(t->b, s->key, s->klen, why, 0);
		return -EBADMSG;
	}
	bench_hist_add(&t->hist[s->op], now - s->begun);
	f->idle[f->nidle++] = s;
	__atomic_store_n(&t->done, t->done + 1, __ATOMIC_RELAXED);
	return 0;
}

static void fly(struct flight *f, const uint8_t *pick)
{
	struct bench_thread *t = f->t;
	struct kvdb_cqe e[REAP];
	int rc = 0, n;

	while (!rc && t->done < t->ops && !__atomic_load_n(&t->b->stop, __ATOMIC_RELAXED)) {
		rc = submit(f, pick);
		if (rc)
			break;
		n = kvdb_cq_reap(f->cq, e, REAP, 1, -1);
		if (n < 0) {
			bench_fail(t->b, "", 0, "reap", n);
			break;
		}
		for (int i = 0; i < n && !rc; i++)
			rc = take(f, &e[i], bench_ticks());
	}
}

void bench_run_async(struct bench_thread *t, const uint8_t *pick)
{
	struct bench *b = t->b;
	struct flight f = { .t = t };
	int rc = kvdb_cq_open(b->db, 0, 0, &f.cq);

	if (rc) {
		bench_fail(b, "", 0, "completion queue", rc);
		return;
	}
	f.slot = calloc(b->inflight, sizeof(*f.slot));
	f.idle = calloc(b->inflight, sizeof(*f.idle));
	for (unsigned i = 0; f.slot && f.idle && i < b->inflight; i++) {
		f.slot[i].buf = malloc(b->value_size + 64);
		if (f.slot[i].buf)
			f.idle[f.nidle++] = &f.slot[i];
	}
	if (f.nidle == b->inflight)
		fly(&f, pick);
	else
		bench_fail(b, "", 0, "operations in flight", -ENOMEM);
	kvdb_cq_close(f.cq);
	for (unsigned i = 0; f.slot && i < b->inflight; i++)
		free(f.slot[i].buf);
	free(f.slot);
	free(f.idle);
}
