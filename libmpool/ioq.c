/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * I/O queues: admission by the core (bounds, append order), splitting at
 * extents, completion. The transfer itself is the back end's. A write's end is
 * told to the core when its completion is collected, never earlier, so commit
 * and seal see only writes that are done.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ioq.h"

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

static void done_push(struct mpool_ioq *q, uint64_t cookie, int64_t res)
{
	unsigned i = (q->q_done_head + q->q_done_n++) % q->q_depth;

	q->q_done[i].cookie = cookie;
	q->q_done[i].res = res;
}

void mpl_req_finish(struct mpool_ioq *q, struct mpl_req *rq)
{
	if (rq->rq_is_write)
		mp_obj_write_end(rq->rq_obj, rq->rq_off, rq->rq_err);
	done_push(q, rq->rq_cookie, rq->rq_err ? rq->rq_err : (int64_t)rq->rq_bytes);
	rq->rq_next = q->q_free;
	q->q_free = rq;
}

void mpl_part_done(struct mpool_ioq *q, struct mpl_part *pt, int err)
{
	struct mpl_req *rq = pt->pt_req;

	(void)q;
	mpl_dev_done(pt->pt_dev, rq->rq_is_write, err);
	if (err && !rq->rq_err) {
		rq->rq_err = err;
		mpl_err_as(rq->rq_is_write ? MPL_DATAWRITE : MPL_DATAREAD, err,
			   "object %llx: %s of device %s at byte %llu failed: %s",
			   (unsigned long long)mp_obj_id(rq->rq_obj),
			   rq->rq_is_write ? "write" : "read", pt->pt_dev->md_path,
			   (unsigned long long)pt->pt_pos, strerror(-err));
	}
	free(pt->pt_own);
	if (pt != &rq->rq_first)
		free(pt);
	rq->rq_parts--;
}

/* The part of @rq at @at bytes; *len is what it covers. */
static struct mpl_part *part_make(struct mpl_req *rq, const struct mpool_io *io, uint64_t at,
				  uint64_t *len)
{
	struct mpl_part *pt = at ? calloc(1, sizeof(*pt)) : &rq->rq_first;
	struct mp_dev *dev;
	u64 pos, contig;

	if (!pt)
		return NULL;
	memset(pt, 0, sizeof(*pt));
	if (mp_obj_map(rq->rq_obj, rq->rq_off + at, rq->rq_bytes - at, &dev, &pos, &contig))
		goto fail;
	if (contig > rq->rq_bytes - at)
		contig = rq->rq_bytes - at;
	pt->pt_req = rq;
	pt->pt_dev = (struct mpl_dev *)dev;
	pt->pt_pos = pos;
	pt->pt_left = contig;
	pt->pt_iov = io->iov;
	pt->pt_niov = io->iovcnt;
	if (contig != rq->rq_bytes) {
		pt->pt_own = malloc(io->iovcnt * sizeof(*pt->pt_own));
		if (!pt->pt_own)
			goto fail;
		pt->pt_niov = mpl_iov_slice(io->iov, io->iovcnt, at, contig, pt->pt_own);
		pt->pt_iov = pt->pt_own;
	}
	*len = contig;
	return pt;
fail:
	if (at)
		free(pt);
	return NULL;
}

/* Starts every part. A request of which a part could not be started completes with that error. */
static void req_start(struct mpool_ioq *q, struct mpl_req *rq, const struct mpool_io *io)
{
	struct mpl_part *pt;
	uint64_t at = 0, len = 0;
	int rc;

	rq->rq_parts = 1; /* holds the request until all parts are started */
	for (; at < rq->rq_bytes; at += len) {
		pt = part_make(rq, io, at, &len);
		if (!pt) {
			rq->rq_err = rq->rq_err ? rq->rq_err : -ENOMEM;
			break;
		}
		mpl_dev_count(pt->pt_dev, rq->rq_is_write, len);
		rq->rq_parts++;
		rc = q->q_ops->start(q, pt);
		if (rc)
			mpl_part_done(q, pt, rc);
	}
	rq->rq_parts--;
	q->q_ops->started(q, rq);
}

static int io_check(struct mpool_ioq *q, const struct mpool_io *io, uint64_t *bytes)
{
	int rc;

	*bytes = 0;
	if (!io->obj || io->obj->ob_pool != &q->q_user->us_pool)
		return mpl_err_as(MPL_SPEC, -EINVAL, "request without an object of this pool");
	if (io->type == MPOOL_FLUSH)
		return 0;
	if (io->type != MPOOL_READ && io->type != MPOOL_WRITE)
		return mpl_err_as(MPL_SPEC, -EINVAL, "unknown request type %u", io->type);
	if (io->off % MPOOL_ALIGN)
		return mpl_err_as(MPL_SPEC, -EINVAL, "offset %llu is not a multiple of %d",
				  (unsigned long long)io->off, MPOOL_ALIGN);
	rc = mpl_iov_check(io->iov, io->iovcnt, 64, bytes);
	if (rc)
		return rc;
	if (io->type == MPOOL_WRITE)
		return mp_obj_write_begin(io->obj->ob_core, io->off, *bytes);
	return mp_obj_read_check(io->obj->ob_core, io->off, *bytes);
}

int mpool_ioq_submit(struct mpool_ioq *q, const struct mpool_io *io, unsigned n)
{
	struct mpl_req *rq;
	uint64_t bytes;
	unsigned i;
	int rc = 0;

	if (!q || (!io && n))
		return mpl_ret(-EINVAL);
	for (i = 0; i < n && q->q_inflight < q->q_depth; i++) {
		rc = io_check(q, &io[i], &bytes);
		if (rc)
			break;
		q->q_inflight++;
		if (io[i].type == MPOOL_FLUSH) {
			done_push(q, io[i].cookie, mp_obj_flush(io[i].obj->ob_core));
			continue;
		}
		rq = q->q_free;
		q->q_free = rq->rq_next;
		rq->rq_cookie = io[i].cookie;
		rq->rq_obj = io[i].obj->ob_core;
		rq->rq_off = io[i].off;
		rq->rq_bytes = bytes;
		rq->rq_ready_ns = 0;
		rq->rq_is_write = io[i].type == MPOOL_WRITE;
		rq->rq_err = 0;
		req_start(q, rq, &io[i]);
	}
	if (i) {
		q->q_ops->kick(q);
		q->q_ops->event(q);
	}
	return i || !rc ? (int)i : mpl_ret(rc);
}

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

	if (!q)
		return mpl_ret(-EINVAL);
	rc = q->q_ops->event_fd(q);
	if (rc >= 0)
		q->q_ops->event(q);
	return mpl_ret(rc);
}

int mpool_ioq_register(struct mpool_ioq *q, const struct iovec *iov, unsigned n)
{
	if (!q || (!iov && n))
		return mpl_ret(-EINVAL);
	return mpl_ret(q->q_ops->reg(q, iov, n));
}

int mpl_user_ioq_open(struct mpool *mp, unsigned depth, struct mpool_ioq **out)
{
	struct mpool_ioq *q = calloc(1, sizeof(*q));
	unsigned i;
	int rc = q ? 0 : -ENOMEM;

	if (!rc) {
		q->q_user = mpl_user(mp);
		q->q_depth = depth;
		q->q_timer_fd = -1;
		q->q_reqs = calloc(depth, sizeof(*q->q_reqs));
		q->q_done = calloc(depth, sizeof(*q->q_done));
		rc = q->q_reqs && q->q_done ? 0 : -ENOMEM;
	}
	if (!rc && q->q_user->us_is_uring)
		rc = mpl_uring_init(q);
	else if (!rc)
		mpl_sync_init(q);
	if (rc) {
		if (q) {
			free(q->q_reqs);
			free(q->q_done);
		}
		free(q);
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

	os_user_error_clear();
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
	mp = &q->q_user->us_pool;
	while (q->q_inflight && mpool_ioq_reap(q, cqe, 16, 1, -1) > 0)
		;
	q->q_ops->fini(q);
	free(q->q_reqs);
	free(q->q_done);
	free(q);
	mpl_pool_drop(mp);
}
