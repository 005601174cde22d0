/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Completion queues in the mix: a batch of reads and one write at once, since
 * operations in flight have no order among them. Each completion is checked as
 * its blocking call would be.
 */
#include <errno.h>
#include <stdlib.h>

#include "mk.h"

#define BATCH	8u
#define ROOM	(16u << 10)	/* a value that is longer is read again */

struct batch {
	struct kvdb_op b_op[BATCH + 2];
	unsigned b_key[BATCH];
	uint8_t b_store[BATCH];
	uint8_t b_buf[BATCH][ROOM];
	uint64_t b_r0;
	uint32_t b_first;	/* number of the write */
};

static void gone_wrong(struct mk_worker *w, const char *what, int rc)
{
	mk_fail(w->w_wo, "thread %u, operation %llu: %s: %d (%s)", w->w_no,
		(unsigned long long)w->w_done, what, rc, kvdb_error_detail()->text);
}

static void completed_get(struct mk_worker *w, struct batch *b, const struct kvdb_cqe *e)
{
	unsigned i = (unsigned)e->cookie;
	struct mk_have ha = { .ha_len = MK_ABSENT };

	w->w_count[MC_GET]++;
	if (e->err && e->err != -ENOENT) {
		gone_wrong(w, "a get of a queue", e->err);
		return;
	}
	if (!e->err && e->vlen > ROOM)
		return;
	if (!e->err && !mk_value_read(w->w_wo, b->b_store[i], b->b_key[i], b->b_buf[i], e->vlen,
				      w->w_want, &ha))
		mk_fail(w->w_wo, "thread %u, operation %llu: queue: store %u key %u: %zu bytes "
			"that are no version of it", w->w_no, (unsigned long long)w->w_done,
			b->b_store[i], b->b_key[i], (size_t)e->vlen);
	else
		mk_check(w, b->b_store[i], b->b_key[i], &ha, b->b_r0, mk_now(), NULL, "queue");
}

/* One write, of a key that the batch does not read. */
static bool add_write(struct mk_worker *w, struct batch *b, unsigned n, unsigned reads)
{
	struct mk_world *wo = w->w_wo;
	unsigned key = mk_key_pick(w, false), i;
	unsigned store = (unsigned)(mk_rand(&w->w_rnd) % MK_STORES);
	bool is_del = mk_rand(&w->w_rnd) % 5 == 0;
	struct kvdb_op *op = &b->b_op[n];

	if (!mk_may_write(w, key))
		return false;
	for (i = 0; i < reads; i++)
		if (b->b_key[i] == key && b->b_store[i] == store)
			return false;
	b->b_first = mk_write_begin(w, store, key, is_del ? MK_DEL : MK_PUT, 0);
	*op = (struct kvdb_op){ .type = is_del ? KVDB_OP_DEL : KVDB_OP_PUT, .cookie = BATCH,
				.kvs = wo->wo_kvs[store], .key = wo->wo_key[key].ke_buf,
				.klen = wo->wo_key[key].ke_len };
	if (!is_del) {
		op->val = w->w_got;
		op->size = mk_value(wo, mk_id(wo->wo_round, w->w_no, b->b_first), store, key,
				    w->w_got);
	}
	if (mk_rand(&w->w_rnd) % 64 == 0)
		op->flags = KVDB_OP_DURABLE;
	return true;
}

void mk_do_queue(struct mk_worker *w)
{
	struct mk_world *wo = w->w_wo;
	struct batch *b = w->w_batch;
	unsigned reads = 1 + (unsigned)(mk_rand(&w->w_rnd) % BATCH), n, i, done = 0;
	uint32_t acked[MK_THREADS] = { 0 };
	struct kvdb_cqe e[BATCH + 2];
	bool wrote;
	int rc;

	if (!b)
		b = w->w_batch = malloc(sizeof(*b));
	if (!b || (!w->w_cq && kvdb_cq_open(wo->wo_db, 0, 0, &w->w_cq))) {
		gone_wrong(w, "kvdb_cq_open", 0);
		return;
	}
	b->b_r0 = mk_now();
	for (i = 0; i < reads; i++) {
		b->b_key[i] = mk_key_pick(w, true);
		b->b_store[i] = (uint8_t)(mk_rand(&w->w_rnd) % MK_STORES);
		b->b_op[i] = (struct kvdb_op){ .type = KVDB_OP_GET, .cookie = i,
					       .kvs = wo->wo_kvs[b->b_store[i]],
					       .key = wo->wo_key[b->b_key[i]].ke_buf,
					       .klen = wo->wo_key[b->b_key[i]].ke_len,
					       .buf = b->b_buf[i], .size = ROOM };
	}
	wrote = add_write(w, b, reads, reads);
	n = reads + wrote;
	rc = kvdb_cq_submit(w->w_cq, b->b_op, n);
	if (rc != (int)n) {
		gone_wrong(w, "kvdb_cq_submit", rc);
		return;
	}
	while (done < n && !mk_failed(wo)) {
		rc = kvdb_cq_reap(w->w_cq, e, BATCH + 2, 1, -1);
		if (rc <= 0) {
			gone_wrong(w, "kvdb_cq_reap", rc);
			return;
		}
		for (i = 0; i < (unsigned)rc; i++, done++) {
			if (e[i].cookie < BATCH) {
				completed_get(w, b, &e[i]);
				continue;
			}
			mk_write_end(w, b->b_first, 1, e[i].err);
			if (e[i].err && e[i].err != -ECANCELED)
				gone_wrong(w, "a write of a queue", e[i].err);
			if (!e[i].err && b->b_op[reads].flags & KVDB_OP_DURABLE) {
				acked[w->w_no] = b->b_first + 1;
				mk_durable_mark(wo, acked, false);
			}
		}
	}
	w->w_count[MC_QUEUE]++;
}

void mk_queue_close(struct mk_worker *w)
{
	kvdb_cq_close(w->w_cq);
	free(w->w_batch);
	w->w_cq = NULL;
	w->w_batch = NULL;
}
