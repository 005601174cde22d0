/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A layer that fails on purpose: the k-th call of the chosen kinds returns an
 * error, once or (sticky) from then on. A torn write first puts an arbitrary
 * number of its leading sectors on the device, then fails.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "guard.h"

struct fault_dev {
	struct mpool_vdev ly_below;
	struct mpl_layer_conf ly_conf;
	uint64_t ly_calls;	/* atomic */
	uint64_t ly_seed;
};

/* 0 or the error that this call of kind @bit shall return */
static int fault_hit(struct fault_dev *ly, unsigned bit)
{
	uint64_t k;

	if (!(ly->ly_conf.lc_fail & bit))
		return 0;
	k = __atomic_add_fetch(&ly->ly_calls, 1, __ATOMIC_RELAXED);
	if (k == ly->ly_conf.lc_after || (ly->ly_conf.lc_is_sticky && k > ly->ly_conf.lc_after))
		return ly->ly_conf.lc_err;
	return 0;
}

static int fault_readv(void *dev, uint64_t off, const struct iovec *iov, unsigned n,
		       uint64_t *ready_ns)
{
	struct fault_dev *ly = dev;
	int rc = fault_hit(ly, MPL_FAIL_READ);

	return rc ? rc : ly->ly_below.ops->readv(ly->ly_below.dev, off, iov, n, ready_ns);
}

/* Leading sectors of the first buffer: read the block that is cut, merge, write. */
static void fault_tear(struct fault_dev *ly, uint64_t off, const struct iovec *iov)
{
	uint64_t sectors = mpl_rand(&ly->ly_seed) % (iov->iov_len / MP_SECTOR);
	uint64_t bytes = sectors * MP_SECTOR, whole = bytes & ~(uint64_t)(MP_BLOCK - 1);
	struct iovec v = { .iov_base = iov->iov_base, .iov_len = whole };
	void *buf;

	if (whole)
		ly->ly_below.ops->writev(ly->ly_below.dev, off, &v, 1, 0, NULL);
	if (whole == bytes || posix_memalign(&buf, MP_BLOCK, MP_BLOCK))
		return;
	v.iov_base = buf;
	v.iov_len = MP_BLOCK;
	if (!ly->ly_below.ops->readv(ly->ly_below.dev, off + whole, &v, 1, NULL)) {
		memcpy(buf, (char *)iov->iov_base + whole, bytes - whole);
		ly->ly_below.ops->writev(ly->ly_below.dev, off + whole, &v, 1, 0, NULL);
	}
	free(buf);
}

static int fault_writev(void *dev, uint64_t off, const struct iovec *iov, unsigned n, int is_fua,
			uint64_t *ready_ns)
{
	struct fault_dev *ly = dev;
	int rc = fault_hit(ly, MPL_FAIL_WRITE);

	if (!rc)
		return ly->ly_below.ops->writev(ly->ly_below.dev, off, iov, n, is_fua, ready_ns);
	if (ly->ly_conf.lc_is_torn && n)
		fault_tear(ly, off, iov);
	return rc;
}

static int fault_flush(void *dev, uint64_t *ready_ns)
{
	struct fault_dev *ly = dev;
	int rc = fault_hit(ly, MPL_FAIL_FLUSH);

	return rc ? rc : BARRIER(ly->ly_below.ops->flush(ly->ly_below.dev, ready_ns));
}

static int fault_discard(void *dev, uint64_t off, uint64_t len)
{
	struct fault_dev *ly = dev;
	int rc = fault_hit(ly, MPL_FAIL_DISCARD);

	if (rc || !ly->ly_below.ops->discard)
		return rc;
	return ly->ly_below.ops->discard(ly->ly_below.dev, off, len);
}

static int fault_reserve(void *dev, uint64_t off, uint64_t len)
{
	struct fault_dev *ly = dev;

	return ly->ly_below.ops->reserve ?
	       ly->ly_below.ops->reserve(ly->ly_below.dev, off, len) : 0;
}

static void fault_close(void *dev)
{
	struct fault_dev *ly = dev;

	if (ly->ly_below.ops->close)
		ly->ly_below.ops->close(ly->ly_below.dev);
	free(ly);
}

static const struct mpool_vdev_ops fault_ops = {
	.readv = fault_readv,
	.writev = fault_writev,
	.flush = fault_flush,
	.discard = fault_discard,
	.reserve = fault_reserve,
	.close = fault_close,
};

int mpl_fault_push(struct mpool_vdev *vd, const struct mpl_layer_conf *lc)
{
	struct fault_dev *ly = calloc(1, sizeof(*ly));

	if (!ly)
		return -ENOMEM;
	ly->ly_below = *vd;
	ly->ly_conf = *lc;
	ly->ly_seed = lc->lc_seed;
	vd->ops = &fault_ops;
	vd->dev = ly;
	vd->fd = -1;
	return 0;
}
