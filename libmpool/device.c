/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The top of a member's device stack: struct mp_dev for the core, vectored
 * calls for the queues, counters for both. Bytes and calls are counted when
 * they are submitted; a write is noted for the flush owner when it completes,
 * before its caller can know, so that a later flush cannot miss it.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "device.h"
#include "err.h"

uint64_t mpl_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void mpl_sleep_until(uint64_t ns)
{
	struct timespec ts = {
		.tv_sec = (time_t)(ns / 1000000000u),
		.tv_nsec = (long)(ns % 1000000000u),
	};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
		;
}

uint64_t mpl_rand(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

void mpl_dev_count(struct mpl_dev *dev, int is_write, uint64_t bytes)
{
	if (is_write) {
		__atomic_fetch_add(&dev->md_writes, 1, __ATOMIC_RELAXED);
		__atomic_fetch_add(&dev->md_write_bytes, bytes, __ATOMIC_RELAXED);
	} else {
		__atomic_fetch_add(&dev->md_reads, 1, __ATOMIC_RELAXED);
		__atomic_fetch_add(&dev->md_read_bytes, bytes, __ATOMIC_RELAXED);
	}
}

void mpl_dev_done(struct mpl_dev *dev, int is_write, int is_error)
{
	if (is_error)
		__atomic_fetch_add(&dev->md_errors, 1, __ATOMIC_RELAXED);
	/* a failed write may have reached the device in part: count it too */
	if (is_write)
		__atomic_fetch_add(&dev->md_written, 1, __ATOMIC_RELEASE);
}

static uint64_t iov_bytes(const struct iovec *iov, unsigned n)
{
	uint64_t sum = 0;

	while (n--)
		sum += iov[n].iov_len;
	return sum;
}

int mpl_dev_readv(struct mpl_dev *dev, uint64_t off, const struct iovec *iov, unsigned n,
		  uint64_t *ready_ns)
{
	int rc;

	mpl_dev_count(dev, 0, iov_bytes(iov, n));
	rc = mp_dev_err(dev->md_vdev.ops->readv(dev->md_vdev.dev, off, iov, n, ready_ns));
	mpl_dev_done(dev, 0, rc);
	return rc;
}

int mpl_dev_writev(struct mpl_dev *dev, uint64_t off, const struct iovec *iov, unsigned n,
		   int is_fua, uint64_t *ready_ns)
{
	int rc;

	mpl_dev_count(dev, 1, iov_bytes(iov, n));
	rc = mp_dev_err(dev->md_vdev.ops->writev(dev->md_vdev.dev, off, iov, n, is_fua,
						 ready_ns));
	mpl_dev_done(dev, 1, rc);
	return rc;
}

static int top_read(struct mp_dev *md, u64 off_bytes, void *buf, size_t len_bytes)
{
	struct iovec iov = { .iov_base = buf, .iov_len = len_bytes };

	return mpl_dev_readv((struct mpl_dev *)md, off_bytes, &iov, 1, NULL);
}

static int top_write(struct mp_dev *md, u64 off_bytes, const void *buf, size_t len_bytes,
		     unsigned int flags)
{
	struct iovec iov = { .iov_base = (void *)(uintptr_t)buf, .iov_len = len_bytes };
	struct mpl_dev *dev = (struct mpl_dev *)md;

	if (flags & MP_DEV_BEAT)
		return mp_dev_err(dev->md_vdev.ops->writev(dev->md_vdev.dev, off_bytes, &iov, 1, 0,
							   NULL));
	return mpl_dev_writev(dev, off_bytes, &iov, 1, !!(flags & MP_DEV_FUA),
			      NULL);
}

static int top_flush(struct mp_dev *md)
{
	return mpl_dev_flush((struct mpl_dev *)md);
}

static int top_discard(struct mp_dev *md, u64 off_bytes, u64 len_bytes)
{
	struct mpl_dev *dev = (struct mpl_dev *)md;

	if (!dev->md_vdev.ops->discard)
		return 0;
	__atomic_fetch_add(&dev->md_discard_bytes, len_bytes, __ATOMIC_RELAXED);
	return dev->md_vdev.ops->discard(dev->md_vdev.dev, off_bytes, len_bytes);
}

static int top_reserve(struct mp_dev *md, u64 off_bytes, u64 len_bytes)
{
	struct mpl_dev *dev = (struct mpl_dev *)md;

	if (!dev->md_vdev.ops->reserve)
		return 0;
	return dev->md_vdev.ops->reserve(dev->md_vdev.dev, off_bytes, len_bytes);
}

/* Unknown below a layer or a provider. */
static u64 top_reserved(struct mp_dev *md, u64 off_bytes, u64 len_bytes)
{
	struct mpl_dev *dev = (struct mpl_dev *)md;

	if (!dev->md_vdev.ops->reserve)
		return len_bytes;
	return dev->md_vdev.fd < 0 ? MP_DEV_UNKNOWN :
				     mpl_fd_reserved(dev->md_vdev.fd, off_bytes, len_bytes);
}

static u64 top_data(struct mp_dev *md, u64 off_bytes, u64 end_bytes)
{
	struct mpl_dev *dev = (struct mpl_dev *)md;

	return dev->md_vdev.ops->data ?
	       dev->md_vdev.ops->data(dev->md_vdev.dev, off_bytes, end_bytes) : off_bytes;
}

/* The pool's owner closes the stack with mpl_dev_fini(), after the core is gone. */
static void top_close(struct mp_dev *md)
{
	(void)md;
}

static const struct mp_dev_ops top_ops = {
	.read = top_read,
	.write = top_write,
	.flush = top_flush,
	.discard = top_discard,
	.reserve = top_reserve,
	.reserved = top_reserved,
	.data = top_data,
	.close = top_close,
};

static uint64_t fs_id(const struct mpl_low *low)
{
	struct stat st;

	return low->lo_is_block || low->lo_vdev.fd < 0 || fstat(low->lo_vdev.fd, &st) ? 0 :
	       (uint64_t)st.st_dev;
}

void mpl_dev_init(struct mpl_dev *dev, const struct mpl_low *low, const char *path,
		  uint32_t mclass, uint32_t slot)
{
	memset(dev, 0, sizeof(*dev));
	dev->md_vdev = low->lo_vdev;
	dev->md_mclass = mclass;
	dev->md_slot = slot;
	dev->md_fs = fs_id(low);
	snprintf(dev->md_path, sizeof(dev->md_path), "%s", path);
	pthread_mutex_init(&dev->md_flush_lock, NULL);
	pthread_cond_init(&dev->md_flush_cond, NULL);
	dev->md_written = 1;
	dev->md_core.d_ops = &top_ops;
	dev->md_core.d_size = low->lo_vdev.size;
	dev->md_core.d_sector = low->lo_sector;
	dev->md_core.d_path = dev->md_path;
	if (low->lo_is_block)
		dev->md_core.d_flags |= MP_DEV_IS_BLOCK;
	if (low->lo_is_direct)
		dev->md_core.d_flags |= MP_DEV_DIRECT;
	if (low->lo_vdev.is_zeroed)
		dev->md_core.d_flags |= MP_DEV_ZEROED;
}

void mpl_dev_fini(struct mpl_dev *dev)
{
	if (dev->md_vdev.ops && dev->md_vdev.ops->close)
		dev->md_vdev.ops->close(dev->md_vdev.dev);
	dev->md_vdev.ops = NULL;
	pthread_cond_destroy(&dev->md_flush_cond);
	pthread_mutex_destroy(&dev->md_flush_lock);
}
