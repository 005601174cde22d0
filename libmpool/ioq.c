/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * I/O queues: the public calls, and the life of requests and parts. Admission
 * and splitting are the backend's (ioq_user.c, kmod_ioq.c), the transfer is the
 * transport's (ioq_uring.c, ioq_sync.c).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "ioq.h"
#include "mpl_err.h"

unsigned mpl_iov_slice(const struct iovec *iov, unsigned n, uint64_t skip, uint64_t len,
		       struct iovec *out)
{
	unsigned k = 0;

	for (; n && len; iov++, n--) {
		uint64_t take;

		if (skip >= iov->iov_len) {
			skip -= iov->iov_len;
			continue;
		}
		take = iov->iov_len - skip;
		if (take > len)
			take = len;
		out[k].iov_base = (char *)iov->iov_base + skip;
		out[k++].iov_len = take;
		len -= take;
		skip = 0;
	}
	return k;
}

/* ---- requests and parts ---- */

static void done_push(struct mpool_ioq *q, uint64_t cookie, int64_t res)
{
	unsigned i = (q->q_done_head + q->q_done_n++) % q->q_depth;

	q->q_done[i].cookie = cookie;
	q->q_done[i].res = res;
}

void mpl_req_finish(struct mpool_ioq *q, struct mpl_req *rq)
{
	if (q->q_back->finish)
		q->q_back->finish(q, rq);
	done_push(q, rq->rq_cookie, rq->rq_err ? rq->rq_err : (int64_t)rq->rq_bytes);
	rq->rq_next = q->q_free;
	q->q_free = rq;
}

struct mpl_part *mpl_part_new(struct mpl_req *rq, enum mpl_part_op op)
{
	/* the request itself is one part while its parts are being made */
	struct mpl_part *pt = rq->rq_parts > 1 ? malloc(sizeof(*pt)) : &rq->rq_first;

	if (!pt)
		return NULL;
	memset(pt, 0, sizeof(*pt));
	pt->pt_req = rq;
	pt->pt_op = op;
	pt->pt_fd = -1;
	rq->rq_parts++;
	return pt;
}

int mpl_part_iov(struct mpl_part *pt, const struct mpool_io *io, uint64_t at, uint64_t len)
{
	pt->pt_left = len;
	pt->pt_iov = io->iov;
	pt->pt_niov = io->iovcnt;
	if (len == pt->pt_req->rq_bytes)
		return 0;
	pt->pt_own = malloc(io->iovcnt * sizeof(*pt->pt_own));
	if (!pt->pt_own)
		return -ENOMEM;
	pt->pt_niov = mpl_iov_slice(io->iov, io->iovcnt, at, len, pt->pt_own);
	pt->pt_iov = pt->pt_own;
	return 0;
}

void mpl_part_drop(struct mpl_part *pt)
{
	struct mpl_req *rq = pt->pt_req;

	free(pt->pt_own);
	free(pt->pt_arg);
	if (pt != &rq->rq_first)
		free(pt);
	rq->rq_parts--;
}

void mpl_part_done(struct mpool_ioq *q, struct mpl_part *pt, int err)
{
	struct mpl_req *rq = pt->pt_req;

	err = q->q_back->part_done(q, pt, err);
	if (err && !rq->rq_err)
		rq->rq_err = err;
	mpl_part_drop(pt);
}

void mpl_part_start(struct mpool_ioq *q, struct mpl_part *pt)
{
	int rc = q->q_ops->start(q, pt);

	if (rc)
		mpl_part_done(q, pt, rc);
}

/* ---- submission ---- */

static int io_check(struct mpool_ioq *q, const struct mpool_io *io, uint64_t *bytes)
{
	int rc;

	*bytes = 0;
	if (io->type == MPOOL_BATCH) {
		if (io->obj || io->off)
			return mpl_err_as(MPL_SPEC, -EINVAL,
					  "a batch request has neither object nor offset");
		return mpl_batch_check(q->q_pool, io->op, io->iovcnt);
	}
	if (!io->obj || io->obj->ob_pool != q->q_pool)
		return mpl_err_as(MPL_SPEC, -EINVAL, "request without an object of this pool");
	if (io->type == MPOOL_FLUSH)
		return 0;
	if (io->type != MPOOL_READ && io->type != MPOOL_WRITE)
		return mpl_err_as(MPL_SPEC, -EINVAL, "unknown request type %u", io->type);
	rc = mpl_iov_check(io->off, io->iov, io->iovcnt, bytes);
	return rc ? rc : q->q_back->admit(q, io, *bytes);
}

/* A request of which a part could not be started completes with that error. */
static void req_start(struct mpool_ioq *q, const struct mpool_io *io, uint64_t bytes)
{
	struct mpl_req *rq = q->q_free;

	q->q_free = rq->rq_next;
	q->q_inflight++;
	rq->rq_cookie = io->cookie;
	rq->rq_obj = io->obj;
	rq->rq_off = io->off;
	rq->rq_bytes = bytes;
	rq->rq_ready_ns = 0;
	rq->rq_type = io->type;
	rq->rq_err = 0;
	rq->rq_parts = 1; /* holds the request until all parts are started */
	q->q_back->start(q, rq, io);
	rq->rq_parts--;
	q->q_ops->started(q, rq);
}

int mpool_ioq_submit(struct mpool_ioq *q, const struct mpool_io *io, unsigned n)
{
	uint64_t bytes;
	unsigned i;
	int rc = 0;

	mpl_resume(q ? q->q_pool : NULL);
	if (!q || (!io && n))
		return mpl_ret(-EINVAL);
	for (i = 0; i < n && q->q_inflight < q->q_depth; i++) {
		/* what was admitted goes before anything that can take long */
		if (i && q->q_back->would_wait && q->q_back->would_wait(q))
			break;
		if (i && (io[i].type == MPOOL_BATCH || io[i].type == MPOOL_FLUSH))
			q->q_ops->kick(q);
		rc = io_check(q, &io[i], &bytes);
		if (rc)
			break;
		req_start(q, &io[i], bytes);
	}
	if (i) {
		q->q_ops->kick(q);
		q->q_ops->event(q);
	}
	return i || !rc ? (int)i : mpl_ret(rc);
}

/* ---- completion ---- */

static unsigned done_take(struct mpool_ioq *q, struct mpool_cqe *out, unsigned max)
{
	unsigned n = 0;

	while (n < max && q->q_done_n) {
		out[n++] = q->q_done[q->q_done_head];
		q->q_done_head = (q->q_done_head + 1) % q->q_depth;
		q->q_done_n--;
		q->q_inflight--;
	}
	return n;
}

int mpool_ioq_reap(struct mpool_ioq *q, struct mpool_cqe *out, unsigned max, unsigned min,
		   int64_t timeout_ns)
{
	uint64_t end = UINT64_MAX;
	unsigned n;
	int rc;

	mpl_resume(q ? q->q_pool : NULL);
	if (!q || !out || !max || min > max)
		return mpl_ret(-EINVAL);
	if (min > q->q_inflight)
		min = q->q_inflight;
	if (timeout_ns >= 0 && min)
		end = mpl_now_ns() + (uint64_t)timeout_ns;
	rc = q->q_ops->poll(q, 0, 0);
	n = done_take(q, out, max);
	while (n < min && !rc) {
		rc = q->q_ops->poll(q, min - n, end);
		n += done_take(q, out + n, max - n);
		if (end != UINT64_MAX && mpl_now_ns() >= end)
			break;
	}
	q->q_ops->event(q);
	return n || !rc ? (int)n : mpl_ret(rc);
}

int mpool_ioq_fd(struct mpool_ioq *q)
{
	int rc;

	mpl_resume(q ? q->q_pool : NULL);
	if (!q)
		return mpl_ret(-EINVAL);
	rc = q->q_ops->event_fd(q);
	if (rc >= 0)
		q->q_ops->event(q);
	return mpl_ret(rc);
}

int mpool_ioq_register(struct mpool_ioq *q, const struct iovec *iov, unsigned n)
{
	mpl_resume(q ? q->q_pool : NULL);
	if (!q || (!iov && n))
		return mpl_ret(-EINVAL);
	return mpl_ret(q->q_ops->reg(q, iov, n));
}

/* ---- open, close ---- */

static void ioq_free(struct mpool_ioq *q)
{
	free(q->q_reqs);
	free(q->q_done);
	free(q->q_pin);
	free(q);
}

int mpl_ioq_new(struct mpool *mp, unsigned depth, const struct mpl_ioq_back *back, int is_uring,
		struct mpool_ioq **out)
{
	struct mpool_ioq *q = calloc(1, sizeof(*q));
	unsigned i;
	int rc;

	if (!q)
		return -ENOMEM;
	q->q_pool = mp;
	q->q_back = back;
	q->q_depth = depth;
	q->q_timer_fd = -1;
	q->q_reqs = calloc(depth, sizeof(*q->q_reqs));
	q->q_done = calloc(depth, sizeof(*q->q_done));
	q->q_pin = calloc(depth, sizeof(*q->q_pin));
	rc = q->q_reqs && q->q_done && q->q_pin ? 0 : -ENOMEM;
	if (!rc && is_uring)
		rc = mpl_uring_init(q);
	else if (!rc)
		mpl_sync_init(q);
	if (rc) {
		ioq_free(q);
		return rc;
	}
	for (i = 0; i < depth; i++) {
		q->q_reqs[i].rq_next = q->q_free;
		q->q_free = &q->q_reqs[i];
	}
	*out = q;
	return 0;
}

int mpool_ioq_open(struct mpool *mp, unsigned depth, struct mpool_ioq **out)
{
	int rc;

	mpl_begin(mp);
	if (!mp || !out || !depth || depth > 4096)
		return mpl_ret(-EINVAL);
	rc = mp->mp_ops->ioq_open(mp, depth, out);
	if (!rc)
		mpl_pool_hold(mp);
	return mpl_ret(rc);
}

void mpool_ioq_close(struct mpool_ioq *q)
{
	struct mpool_cqe cqe[16];
	struct mpool *mp;

	if (!q)
		return;
	mp = q->q_pool;
	while (q->q_inflight && mpool_ioq_reap(q, cqe, 16, 1, -1) > 0)
		;
	q->q_ops->fini(q);
	ioq_free(q);
	mpl_pool_drop(mp);
}
