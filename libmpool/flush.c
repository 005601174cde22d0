/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * One flush owner per device. Every flush of the pool (metadata's and data's)
 * comes through mpl_dev_flush(): callers that wait at the same time share one
 * device flush, provided that it begins after they came.
 *
 * Linux reports a flush error once. So the first failure is kept for good and
 * the pool is told before any waiter is released: no thread can see a failed
 * flush and then find the pool still writable.
 *
 * A device to which nothing was written since its last good flush began is not
 * flushed again. The counter starts "dirty", because a process that died may
 * have left unflushed writes behind.
 */
#include <errno.h>

#include "device.h"
#include "err.h"
#include "guard.h"

/* The owner's work: one device flush, without the lock. */
static int flush_device(struct mpl_dev *dev)
{
	uint64_t written = __atomic_load_n(&dev->md_written, __ATOMIC_ACQUIRE);
	int rc;

	if (written == dev->md_flushed)
		return 0;
	__atomic_fetch_add(&dev->md_flushes, 1, __ATOMIC_RELAXED);
	rc = mp_dev_err(BARRIER(dev->md_vdev.ops->flush(dev->md_vdev.dev, NULL)));
	if (!rc)
		dev->md_flushed = written;
	return rc;
}

static void flush_failed(struct mpl_dev *dev, int err)
{
	__atomic_fetch_add(&dev->md_errors, 1, __ATOMIC_RELAXED);
	if (dev->md_fail)
		dev->md_fail(dev->md_fail_arg, dev, err);
}

int mpl_dev_flush(struct mpl_dev *dev)
{
	uint64_t want;
	int rc;

	pthread_mutex_lock(&dev->md_flush_lock);
	want = dev->md_flush_begun + 1;
	while (dev->md_flush_done < want && !dev->md_flush_err) {
		if (dev->md_flush_running) {
			pthread_cond_wait(&dev->md_flush_cond, &dev->md_flush_lock);
			continue;
		}
		dev->md_flush_running = 1;
		dev->md_flush_begun++;
		pthread_mutex_unlock(&dev->md_flush_lock);

		rc = flush_device(dev);
		if (rc)
			flush_failed(dev, rc);

		pthread_mutex_lock(&dev->md_flush_lock);
		dev->md_flush_running = 0;
		if (rc)
			dev->md_flush_err = rc;
		else
			dev->md_flush_done = dev->md_flush_begun;
		pthread_cond_broadcast(&dev->md_flush_cond);
	}
	rc = dev->md_flush_err;
	pthread_mutex_unlock(&dev->md_flush_lock);
	return rc;
}
