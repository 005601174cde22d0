/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The embedded backend's side of the I/O queues: admission by the core (bounds,
 * append order) and splitting at extents. A write's end is told to the core
 * when its completion is collected, never earlier, so commit and seal see only
 * writes that are done. Flushes and batches are executed at submission.
 */
#include <errno.h>
#include <string.h>

#include "ioq.h"
#include "user.h"

static int user_admit(struct mpool_ioq *q, const struct mpool_io *io, uint64_t bytes)
{
	int rc;

	if (io->type == MPOOL_WRITE)
		return mp_obj_write_begin(io->obj->ob_core, io->off, bytes);
	rc = mp_pool_readable(mpl_user(q->q_pool)->us_core);
	return rc ? rc : mp_obj_read_check(io->obj->ob_core, io->off, bytes);
}

static int user_would_wait(struct mpool_ioq *q)
{
	return mp_pool_would_wait(mpl_user(q->q_pool)->us_core);
}

/* The part of @rq at @at bytes; *len is what it covers. */
static struct mpl_part *part_make(struct mpl_req *rq, const struct mpool_io *io, uint64_t at,
				  uint64_t *len)
{
	struct mpl_part *pt = mpl_part_new(rq, rq->rq_type == MPOOL_WRITE ? MPL_PART_WRITE :
					   MPL_PART_READ);
	struct mp_dev *dev;
	u64 pos, contig;

	if (!pt)
		return NULL;
	if (mp_obj_map(rq->rq_obj->ob_core, rq->rq_off + at, rq->rq_bytes - at, &dev, &pos,
		       &contig))
		goto fail;
	if (contig > rq->rq_bytes - at)
		contig = rq->rq_bytes - at;
	pt->pt_dev = (struct mpl_dev *)dev;
	pt->pt_pos = pos;
	if (mpl_part_iov(pt, io, at, contig))
		goto fail;
	*len = contig;
	return pt;
fail:
	mpl_part_drop(pt);
	return NULL;
}

static void user_start(struct mpool_ioq *q, struct mpl_req *rq, const struct mpool_io *io)
{
	struct mpl_part *pt;
	uint64_t at, len = 0;

	if (rq->rq_type == MPOOL_FLUSH) {
		rq->rq_err = mp_obj_flush(rq->rq_obj->ob_core);
		return;
	}
	if (rq->rq_type == MPOOL_BATCH) {
		rq->rq_err = q->q_pool->mp_ops->batch(q->q_pool, io->op, io->iovcnt);
		return;
	}
	for (at = 0; at < rq->rq_bytes; at += len) {
		pt = part_make(rq, io, at, &len);
		if (!pt) {
			rq->rq_err = rq->rq_err ? rq->rq_err : -ENOMEM;
			return;
		}
		mpl_dev_count(pt->pt_dev, rq->rq_type == MPOOL_WRITE, len);
		mpl_part_start(q, pt);
	}
}

static int user_ready(struct mpool_ioq *q, struct mpl_part *pt)
{
	pt->pt_fd = pt->pt_is_slot ? (int)pt->pt_dev->md_slot : pt->pt_dev->md_vdev.fd;
	(void)q;
	return 0;
}

static int user_transfer(struct mpool_ioq *q, struct mpl_part *pt, uint64_t *ready_ns)
{
	struct mpool_vdev *vd = &pt->pt_dev->md_vdev;

	(void)q;
	if (pt->pt_op == MPL_PART_WRITE)
		return vd->ops->writev(vd->dev, pt->pt_pos, pt->pt_iov, pt->pt_niov, 0, ready_ns);
	return vd->ops->readv(vd->dev, pt->pt_pos, pt->pt_iov, pt->pt_niov, ready_ns);
}

static int user_part_done(struct mpool_ioq *q, struct mpl_part *pt, int err)
{
	int is_write = pt->pt_op == MPL_PART_WRITE;

	(void)q;
	mpl_dev_done(pt->pt_dev, is_write, err);
	if (err && !pt->pt_req->rq_err)
		mpl_err_as(is_write ? MPL_DATAWRITE : MPL_DATAREAD, mp_dev_err(err),
			   "object %llx: %s of device %s at byte %llu failed: %s",
			   (unsigned long long)mp_obj_id(pt->pt_req->rq_obj->ob_core),
			   is_write ? "write" : "read", pt->pt_dev->md_path,
			   (unsigned long long)pt->pt_pos, strerror(-err));
	return mp_dev_err(err);
}

static void user_finish(struct mpool_ioq *q, struct mpl_req *rq)
{
	(void)q;
	if (rq->rq_type == MPOOL_WRITE)
		mp_obj_write_end(rq->rq_obj->ob_core, rq->rq_off, rq->rq_err);
}

static unsigned user_files(struct mpool_ioq *q, int *fd, unsigned max)
{
	struct mpl_set *set = &mpl_user(q->q_pool)->us_set;
	unsigned i;

	for (i = 0; i < set->st_n && i < max; i++)
		fd[i] = set->st_dev[i]->md_vdev.fd;
	return i;
}

static const struct mpl_ioq_back user_back = {
	.admit = user_admit,
	.would_wait = user_would_wait,
	.start = user_start,
	.ready = user_ready,
	.transfer = user_transfer,
	.part_done = user_part_done,
	.finish = user_finish,
	.files = user_files,
};

int mpl_user_ioq_open(struct mpool *mp, unsigned depth, struct mpool_ioq **out)
{
	return mpl_ioq_new(mp, depth, &user_back, mpl_user(mp)->us_is_uring, out);
}
