/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The kernel backend's side of the I/O queues. A request is one part, the kernel
 * splits at extents, but for one that is larger than a system call transfers: its rest
 * must not come behind the write that was submitted after it. Through io_uring
 * nothing waits at submission, flushes (fsync of the object) and batches (a command
 * of the node) included.
 *
 * A descriptor is pinned from the moment that a part names it until the ring has
 * taken the part.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "device.h"
#include "guard.h"
#include "ioq.h"
#include "kmod.h"

#define PART_MAX	(1ull << 30)	/* Linux takes a page less than twice as much */

static struct mpl_kobj *part_obj(const struct mpl_part *pt)
{
	return pt->pt_req->rq_obj ? pt->pt_req->rq_obj->ob_kobj : NULL;
}

static int kmod_admit(struct mpool_ioq *q, const struct mpool_io *io, uint64_t bytes)
{
	return mpl_kobj_admit(mpl_kmod(q->q_pool), io->obj->ob_kobj, io->type == MPOOL_WRITE,
			      io->off, bytes);
}

static enum mpl_part_op part_op(uint32_t type)
{
	switch (type) {
	case MPOOL_READ:
		return MPL_PART_READ;
	case MPOOL_WRITE:
		return MPL_PART_WRITE;
	case MPOOL_FLUSH:
		return MPL_PART_FSYNC;
	default:
		return MPL_PART_CMD;
	}
}

static void data_start(struct mpool_ioq *q, struct mpl_req *rq, const struct mpool_io *io)
{
	struct mpl_part *pt;
	uint64_t at, n;

	for (at = 0; at < rq->rq_bytes && !rq->rq_err; at += n) {
		n = rq->rq_bytes - at < PART_MAX ? rq->rq_bytes - at : PART_MAX;
		/* the first is the request's own, and the whole needs no vectors: cannot fail */
		pt = mpl_part_new(rq, part_op(rq->rq_type));
		if (pt && mpl_part_iov(pt, io, at, n)) {
			mpl_part_drop(pt);
			pt = NULL;
		}
		if (!pt) {
			rq->rq_err = mpl_kobj_io_error(mpl_kmod(q->q_pool), rq->rq_obj->ob_kobj,
						       rq->rq_type == MPOOL_WRITE, rq->rq_off + at,
						       -ENOMEM);
			return;
		}
		pt->pt_pos = rq->rq_off + at;
		mpl_part_start(q, pt);
	}
}

static void kmod_start(struct mpool_ioq *q, struct mpl_req *rq, const struct mpool_io *io)
{
	struct mpl_part *pt;

	if (rq->rq_type == MPOOL_READ || rq->rq_type == MPOOL_WRITE) {
		data_start(q, rq, io);
		return;
	}
	if (rq->rq_type == MPOOL_BATCH) {
		rq->rq_err = mpl_kmod_writable(mpl_kmod(q->q_pool));
		if (rq->rq_err)
			return;
	}
	pt = mpl_part_new(rq, part_op(rq->rq_type)); /* the first is the request's own */
	pt->pt_pos = rq->rq_off;
	if (rq->rq_type == MPOOL_BATCH) {
		pt->pt_cmd = MPOOL_IOC_BATCH;
		pt->pt_arg = mpl_kobj_batch_arg(io->op, io->iovcnt);
		if (!pt->pt_arg) {
			rq->rq_err = -ENOMEM;
			mpl_part_drop(pt);
			return;
		}
	}
	mpl_part_start(q, pt);
}

/* ---- io_uring ---- */

static void kmod_kicked(struct mpool_ioq *q)
{
	if (q->q_npins)
		mpl_fdcache_unpin(mpl_kmod(q->q_pool), q->q_pin, q->q_npins);
	q->q_npins = 0;
}

static int kmod_ready(struct mpool_ioq *q, struct mpl_part *pt)
{
	struct mpl_kmod *km = mpl_kmod(q->q_pool);
	struct mpl_kobj *ko = part_obj(pt);
	int fd;

	if (pt->pt_op == MPL_PART_CMD) {
		pt->pt_fd = km->km_fd;
		return 0;
	}
	/* one queue may not pin the whole cache */
	if (q->q_npins >= km->km_fds_max / 4 + 1 || q->q_npins == q->q_depth)
		q->q_ops->kick(q);
	if (q->q_npins == q->q_depth)
		return -EAGAIN;
	fd = mpl_fdcache_pin(km, ko, pt->pt_op == MPL_PART_WRITE, !q->q_npins);
	if (fd == -EMFILE && q->q_npins) {
		q->q_ops->kick(q);
		fd = mpl_fdcache_pin(km, ko, pt->pt_op == MPL_PART_WRITE, !q->q_npins);
	}
	if (fd < 0)
		return fd;
	q->q_pin[q->q_npins++] = ko;
	pt->pt_fd = fd;
	return 0;
}

/* ---- plain calls ---- */

static int obj_call(struct mpl_kmod *km, struct mpl_kobj *ko, enum mpl_part_op op, uint64_t off,
		    const struct iovec *iov, unsigned n)
{
	int fd = mpl_fdcache_pin(km, ko, op == MPL_PART_WRITE, 1), rc;

	if (fd < 0)
		return fd;
	if (op == MPL_PART_FSYNC)
		rc = BARRIER(mpl_fd_flush(fd));
	else
		rc = mpl_fd_rw(fd, off, iov, n, op == MPL_PART_WRITE, 0);
	mpl_fdcache_unpin(km, &ko, 1);
	return rc;
}

static int kmod_transfer(struct mpool_ioq *q, struct mpl_part *pt, uint64_t *ready_ns)
{
	struct mpl_kmod *km = mpl_kmod(q->q_pool);

	*ready_ns = 0;
	if (pt->pt_op == MPL_PART_CMD)
		return mpl_ioc(km->km_fd, pt->pt_cmd, pt->pt_arg);
	return obj_call(km, part_obj(pt), pt->pt_op, pt->pt_pos, pt->pt_iov, pt->pt_niov);
}

int mpl_kmod_rw(struct mpool_obj *obj, uint64_t off, const struct iovec *iov, unsigned n,
		int is_write)
{
	struct mpl_kmod *km = mpl_kmod(obj->ob_pool);
	uint64_t bytes = 0;
	unsigned i;
	int rc;

	for (i = 0; i < n; i++)
		bytes += iov[i].iov_len;
	rc = mpl_kobj_admit(km, obj->ob_kobj, is_write, off, bytes);
	if (rc)
		return rc;
	rc = obj_call(km, obj->ob_kobj, is_write ? MPL_PART_WRITE : MPL_PART_READ, off, iov, n);
	return rc ? mpl_kobj_io_error(km, obj->ob_kobj, is_write, off, rc) : 0;
}

/* ---- completion ---- */

static int kmod_part_done(struct mpool_ioq *q, struct mpl_part *pt, int err)
{
	struct mpl_kmod *km = mpl_kmod(q->q_pool);
	const struct mpool_ioc_batch *ba = pt->pt_arg;

	if (pt->pt_op == MPL_PART_CMD) {
		if (!err)
			mpl_kobj_batch_done(km, ba);
		else
			mpl_kobj_batch_error(ba, err);
		return err;
	}
	/* the first that fails is the cause: those behind it are refused */
	if (err && !pt->pt_req->rq_err)
		err = mpl_kobj_io_error(km, part_obj(pt), pt->pt_op != MPL_PART_READ,
					pt->pt_pos, err);
	return err;
}

static const struct mpl_ioq_back kmod_back = {
	.admit = kmod_admit,
	.start = kmod_start,
	.ready = kmod_ready,
	.kicked = kmod_kicked,
	.transfer = kmod_transfer,
	.part_done = kmod_part_done,
};

int mpl_kmod_ioq_open(struct mpool *mp, unsigned depth, struct mpool_ioq **out)
{
	return mpl_ioq_new(mp, depth, &kmod_back, mpl_kmod(mp)->km_is_uring, out);
}
