/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Completion queues in the mix: a batch of reads (gets, or one multi-get) and
 * one write at once, since operations in flight have no order among them; or a
 * scan. Each completion is checked as its blocking call would be.
 */
#include <errno.h>
#include <stdlib.h>

#include "mk.h"

#define BATCH	8u
#define ROOM	(16u << 10)	/* a value that is longer is read again */
#define SCAN	(64u << 10)	/* of a scan; what it shows before its room ends counts */

struct batch {
	struct kvdb_op b_op[BATCH + 2];
	unsigned b_key[BATCH];
	uint8_t b_store[BATCH];
	struct kvdb_get b_get[BATCH];
	union {
		struct kvdb_pair b_pair[SCAN / sizeof(struct kvdb_pair)];
		uint8_t b_room[SCAN];
	};
	uint8_t b_buf[BATCH][ROOM];
	uint64_t b_r0, b_r1;
	uint32_t b_first;	/* number of the write */
};

static void gone_wrong(struct mk_worker *w, const char *what, int rc)
{
	mk_fail(w->w_wo, "thread %u, operation %llu: %s: %d (%s)", w->w_no,
		(unsigned long long)w->w_done, what, rc, kvdb_error_detail()->text);
}

/* The value, or NULL: there is none; of one that was read between b_r0 and @r1. */
static void check_read(struct mk_worker *w, const struct batch *b, unsigned store, unsigned key,
		       const void *val, size_t vlen, uint64_t r1)
{
	struct mk_have ha = { .ha_len = MK_ABSENT };

	if (val && !mk_value_read(w->w_wo, store, key, val, vlen, w->w_want, &ha))
		mk_fail(w->w_wo, "thread %u, operation %llu: queue: store %u key %u: %zu bytes "
			"that are no version of it", w->w_no, (unsigned long long)w->w_done,
			store, key, vlen);
	else
		mk_check(w, store, key, &ha, b->b_r0, r1, NULL, "queue");
}

static void completed_get(struct mk_worker *w, const struct batch *b, unsigned i, int err,
			  size_t vlen, uint64_t r1)
{
	w->w_count[MC_GET]++;
	if (err && err != -ENOENT)
		gone_wrong(w, "a get of a queue", err);
	else if (err || vlen <= ROOM)
		check_read(w, b, b->b_store[i], b->b_key[i], err ? NULL : b->b_buf[i], vlen, r1);
}

static void completed_mget(struct mk_worker *w, struct batch *b, const struct kvdb_cqe *e,
			   unsigned n)
{
	bool is_moment = b->b_op[0].flags & KVDB_OP_SNAPSHOT;

	if (e->err)
		gone_wrong(w, "a multi-get of a queue", e->err);
	for (unsigned i = 0; i < n && !e->err; i++)
		completed_get(w, b, i, b->b_get[i].err, b->b_get[i].vlen,
			      is_moment ? b->b_r1 : mk_now());
}

/* Keys that a scan has passed, or had to, are there or not as of the moment of its submit. */
static void completed_scan(struct mk_worker *w, const struct batch *b, const struct kvdb_cqe *e,
			   unsigned lo, unsigned hi)
{
	const struct mk_world *wo = w->w_wo;
	unsigned store = b->b_store[0], at = lo;

	w->w_count[MC_CURSOR]++;
	if (e->err && e->err != -ENOBUFS) {
		gone_wrong(w, "a scan of a queue", e->err);
		return;
	}
	for (unsigned i = 0; i < e->vlen && !mk_failed(wo); i++) {
		const struct kvdb_pair *p = &b->b_pair[i];
		int key = mk_key_find(wo, p->key, p->klen);

		if (key < (int)at || key >= (int)hi) {
			gone_wrong(w, "a scan of a queue: a key out of order", key);
			return;
		}
		for (; at < (unsigned)key; at++)
			check_read(w, b, store, at, NULL, 0, b->b_r1);
		check_read(w, b, store, at++, p->val, p->vlen, b->b_r1);
	}
	for (; at < hi && !e->err; at++)
		check_read(w, b, store, at, NULL, 0, b->b_r1);
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

static struct batch *batch_of(struct mk_worker *w)
{
	if (!w->w_batch)
		w->w_batch = malloc(sizeof(struct batch));
	if (!w->w_batch || (!w->w_cq && kvdb_cq_open(w->w_wo->wo_db, 0, 0, &w->w_cq))) {
		gone_wrong(w, "kvdb_cq_open", 0);
		return NULL;
	}
	return w->w_batch;
}

static bool submit(struct mk_worker *w, struct batch *b, unsigned n)
{
	int rc;

	b->b_r0 = mk_now();
	rc = kvdb_cq_submit(w->w_cq, b->b_op, n);
	b->b_r1 = mk_now();
	if (rc != (int)n)
		gone_wrong(w, "kvdb_cq_submit", rc);
	return rc == (int)n;
}

static void do_scan(struct mk_worker *w, struct batch *b)
{
	struct mk_world *wo = w->w_wo;
	unsigned g = (unsigned)(mk_rand(&w->w_rnd) % wo->wo_groups), lo = wo->wo_group_lo[g];
	struct kvdb_cursor_opts o = KVDB_CURSOR_OPTS_INIT;
	struct kvdb_cqe e;
	int rc;

	o.prefix = wo->wo_key[lo].ke_buf;
	o.plen = MK_PREFIX;
	b->b_store[0] = (uint8_t)(mk_rand(&w->w_rnd) % MK_STORES);
	b->b_op[0] = (struct kvdb_op){ .type = KVDB_OP_SCAN, .kvs = wo->wo_kvs[b->b_store[0]],
				       .range = &o, .buf = b->b_room, .size = SCAN };
	if (!submit(w, b, 1))
		return;
	rc = kvdb_cq_reap(w->w_cq, &e, 1, 1, -1);
	if (rc != 1)
		gone_wrong(w, "kvdb_cq_reap", rc);
	else
		completed_scan(w, b, &e, lo, wo->wo_group_hi[g]);
}

/* The reads of a batch: operations of their own, or one. Returns how many operations. */
static unsigned add_reads(struct mk_worker *w, struct batch *b, unsigned reads)
{
	struct mk_world *wo = w->w_wo;
	uint64_t x = mk_rand(&w->w_rnd);
	bool is_mget = x % 3 == 0;

	for (unsigned i = 0; i < reads; i++) {
		b->b_key[i] = mk_key_pick(w, true);
		b->b_store[i] = (uint8_t)((is_mget ? x >> 8 : mk_rand(&w->w_rnd)) % MK_STORES);
		b->b_get[i] = (struct kvdb_get){ .key = wo->wo_key[b->b_key[i]].ke_buf,
						 .klen = wo->wo_key[b->b_key[i]].ke_len,
						 .buf = b->b_buf[i], .size = ROOM };
		b->b_op[i] = (struct kvdb_op){ .type = KVDB_OP_GET, .cookie = i,
					       .kvs = wo->wo_kvs[b->b_store[i]],
					       .key = b->b_get[i].key, .klen = b->b_get[i].klen,
					       .buf = b->b_buf[i], .size = ROOM };
	}
	if (!is_mget)
		return reads;
	b->b_op[0] = (struct kvdb_op){ .type = KVDB_OP_MGET, .kvs = wo->wo_kvs[b->b_store[0]],
				       .flags = x & 1 << 20 ? KVDB_OP_SNAPSHOT : 0,
				       .get = b->b_get, .size = reads };
	return 1;
}

static void completed(struct mk_worker *w, struct batch *b, const struct kvdb_cqe *e,
		      unsigned reads, const struct kvdb_op *write)
{
	uint32_t acked[MK_THREADS] = { 0 };

	if (e->cookie < BATCH) {
		if (e->type == KVDB_OP_MGET)
			completed_mget(w, b, e, reads);
		else
			completed_get(w, b, (unsigned)e->cookie, e->err, e->vlen, mk_now());
		return;
	}
	mk_write_end(w, b->b_first, 1, e->err);
	if (e->err && e->err != -ECANCELED)
		gone_wrong(w, "a write of a queue", e->err);
	if (!e->err && write->flags & KVDB_OP_DURABLE) {
		acked[w->w_no] = b->b_first + 1;
		mk_durable_mark(w->w_wo, acked, false);
	}
}

void mk_do_queue(struct mk_worker *w)
{
	struct batch *b = batch_of(w);
	unsigned reads = 1 + (unsigned)(mk_rand(&w->w_rnd) % BATCH), ops, n, done = 0;
	struct kvdb_cqe e[BATCH + 2];
	int rc;

	if (!b)
		return;
	w->w_count[MC_QUEUE]++;
	if (mk_rand(&w->w_rnd) % 4 == 0) {
		do_scan(w, b);
		return;
	}
	ops = add_reads(w, b, reads);
	n = ops + add_write(w, b, ops, reads);
	if (!submit(w, b, n))
		return;
	while (done < n && !mk_failed(w->w_wo)) {
		rc = kvdb_cq_reap(w->w_cq, e, BATCH + 2, 1, -1);
		if (rc <= 0) {
			gone_wrong(w, "kvdb_cq_reap", rc);
			return;
		}
		for (unsigned i = 0; i < (unsigned)rc; i++, done++)
			completed(w, b, &e[i], reads, &b->b_op[ops]);
	}
}

void mk_queue_close(struct mk_worker *w)
{
	kvdb_cq_close(w->w_cq);
	free(w->w_batch);
	w->w_cq = NULL;
	w->w_batch = NULL;
}
