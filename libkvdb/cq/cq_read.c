/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What operations of completion queues read: an operation is run at once and,
 * when pages were missing, again when all that it noted are there (load.c says
 * how). A scan keeps a cursor, a multi-get what is not answered.
 */
#include <errno.h>

#include "base/assert.h"
#include "base/error.h"
#include "db/thread.h"
#include "read/find.h"
#include "cq/cq.h"

static void read_add(struct kvdb_cq *cq, struct kv_aload *al)
{
	al->al_link = NULL;
	*cq->c_reads_tail = al;
	cq->c_reads_tail = &al->al_link;
}

/* How far the operation is; the runs of a get bring nothing but its end. */
static uint64_t progress(const struct kv_cq_op *o)
{
	uint64_t n = o->o_pairs.ps_n + o->o_getm.gm_n - o->o_getm.gm_left;

	/* what a scan comes by and does not show was deleted, or has expired */
	return o->o_cursor ? n + kv_cursor_steps(o->o_cursor) : n;
}

static int run_once(struct kv_cq_op *o)
{
	const struct kvdb_op *p = &o->o_op;
	size_t vlen = 0;
	int err;

	if (p->type == KVDB_OP_MGET)
		return kv_getm_run(&o->o_getm);
	if (p->type == KVDB_OP_SCAN) {
		err = kv_cursor_fill(o->o_cursor, &o->o_pairs);
		o->o_vlen = o->o_pairs.ps_n;
		return err;
	}
	err = kv_get_run(p->kvs, NULL, p->key, p->klen, p->buf, p->size, &vlen);
	o->o_vlen = vlen;
	return err;
}

static void run(struct kv_cq_op *o)
{
	uint64_t before = progress(o);
	struct kv_aload *al;
	int err;

	KV_ASSERT(!o->o_nreads);
	kv_async_try(&o->o_as);
	err = run_once(o);
	kv_async_end();
	if (err != -EINPROGRESS) {
		kv_cq_op_done(o, err);
		return;
	}
	if (progress(o) != before) {
		o->o_as.as_tries = 0;
		kv_async_trim(&o->o_as);
	}
	while ((al = kv_async_next(&o->o_as))) {
		o->o_nreads++;
		read_add(o->o_cq, al);
	}
}

/* One of its reads is over: it runs on when that was the last. */
static void run_on(struct kv_cq_op *o)
{
	KV_ASSERT(o->o_nreads);
	if (!--o->o_nreads)
		run(o);
}

void kv_cq_read(struct kv_cq_op *o)
{
	const struct kvdb_op *p = &o->o_op;
	struct kv_tctx *tc = kv_tctx(o->o_cq->c_db);
	int err = 0;

	if (!tc)
		err = kv_error(-ENOMEM, "MP0902", "no memory for a thread's state");
	else if (p->type == KVDB_OP_GET)
		kv_count(&tc->tc_gets, 1);
	else if (p->type == KVDB_OP_MGET)
		err = kv_getm_begin(&o->o_getm, p->kvs,
				    p->flags & KVDB_OP_SNAPSHOT ? KVDB_GET_SNAPSHOT : 0, p->get,
				    p->size);
	else
		err = kv_cursor_open(p->kvs, p->range, &o->o_cursor);
	o->o_pairs = (struct kv_pairs){ .ps_buf = p->buf, .ps_room = p->size };
	if (err)
		kv_cq_op_done(o, err);
	else
		run(o);
}

void kv_cq_read_end(struct kv_cq_op *o)
{
	kv_async_free(&o->o_as);
	kvdb_cursor_close(o->o_cursor);
	kv_getm_end(&o->o_getm);
	o->o_cursor = NULL;
	o->o_pairs = (struct kv_pairs){ 0 };
	o->o_getm = (struct kv_getm){ 0 };
}

/* Off the list of reads that wait to be started: the first one. */
static struct kv_aload *read_take(struct kvdb_cq *cq)
{
	struct kv_aload *al = cq->c_reads;

	cq->c_reads = al->al_link;
	if (!cq->c_reads)
		cq->c_reads_tail = &cq->c_reads;
	return al;
}

/* The first waiting reads, as long as their pages are being read already, wait for those. */
static void join_reads(struct kvdb_cq *cq)
{
	struct kv_aload *al, *going, **tail;

	while ((al = cq->c_reads)) {
		for (going = cq->c_going; going && !kv_async_is_same(going, al);)
			going = going->al_link;
		if (!going)
			return;
		read_take(cq);
		/* others may have joined it before it was put back */
		for (tail = &al->al_same; *tail;)
			tail = &(*tail)->al_same;
		*tail = going->al_same;
		going->al_same = al;
	}
}

static void read_ended(struct kvdb_cq *cq, struct kv_aload *al)
{
	struct kv_aload **pp = &cq->c_going;

	while (*pp != al)
		pp = &(*pp)->al_link;
	*pp = al->al_link;
}

/* Its read completed, or was refused, with @err; those that joined it run on with it. */
static void read_done(struct kvdb_cq *cq, struct kv_aload *al, int err)
{
	struct kv_aload *same = al->al_same, *next;
	struct kv_thread *t = kv_enter();
	bool again = kv_async_done(al, err);

	kv_exit(t);
	read_ended(cq, al);
	al->al_same = NULL;
	if (again)
		read_add(cq, al);
	else
		run_on(al->al_as->as_owner);
	/* they find the pages in the pool; a failure is not theirs, they read for themselves */
	for (al = same; al; al = next) {
		struct kv_cq_op *o = al->al_as->as_owner;

		next = al->al_same;
		kv_async_drop(al);
		run_on(o);
	}
}

void kv_cq_reads_start(struct kvdb_cq *cq)
{
	struct mpool_io io[KV_CQ_REAP];
	struct kv_aload *al, *batch[KV_CQ_REAP];
	unsigned n;
	int rc;

	do {
		for (n = 0; n < KV_CQ_REAP && cq->c_inflight + n < cq->c_depth; n++) {
			join_reads(cq);
			if (!cq->c_reads)
				break;
			al = batch[n] = read_take(cq);
			io[n] = al->al_load.ld_read.rd_io;
			al->al_link = cq->c_going;
			cq->c_going = al;
		}
		if (n)
			kv_pages_room(cq->c_db, n);
		rc = n ? mpool_ioq_submit(cq->c_ioq, io, n) : 0;
		KV_ASSERT(rc <= (int)n);
		if (rc > 0)
			cq->c_inflight += (unsigned)rc;
		for (unsigned i = rc > 0 ? (unsigned)rc : 0; i < n; i++) {
			/* the first may be what was refused; the others were not looked at */
			if (rc < 0 && !i) {
				read_done(cq, batch[i], rc);
				continue;
			}
			read_ended(cq, batch[i]);
			read_add(cq, batch[i]);
		}
	} while (n && (rc < 0 || n == KV_CQ_REAP));
}

int kv_cq_reads_take(struct kvdb_cq *cq, unsigned want, int64_t timeout_ns)
{
	struct mpool_cqe cqe[KV_CQ_REAP];
	int n = KV_CQ_REAP;

	if (want > KV_CQ_REAP)
		want = KV_CQ_REAP;	/* there is room for no more */
	/* without reads too when the caller polls: that makes the pool's event fd unreadable */
	while ((cq->c_inflight || cq->c_epoll >= 0) && n == (int)KV_CQ_REAP) {
		n = mpool_ioq_reap(cq->c_ioq, cqe, KV_CQ_REAP, want, timeout_ns);
		for (int i = 0; i < n; i++) {
			KV_ASSERT(cq->c_inflight);
			cq->c_inflight--;
			read_done(cq, (struct kv_aload *)(uintptr_t)cqe[i].cookie,
				  cqe[i].res < 0 ? (int)cqe[i].res : 0);
		}
		want = 0;
	}
	return n < 0 ? kv_error_mpool(n) : 0;
}
