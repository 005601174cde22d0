/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A layer that makes a device slower: rate=BYTES per second, write_rate=BYTES
 * for writes when they are slower, lat=TIME; and pause=TIME,every=TIME: it stands
 * still at the end of each period since it was opened.
 *
 * The data moves at once; only the completion is late, so requests of one queue
 * overlap as they would on the slow device. Reads and writes share one bucket,
 * each at its rate: ly_free_ns is when the device has finished all it accepted.
 */
#include <errno.h>
#include <stdlib.h>

#include "device.h"
#include "guard.h"

struct delay_dev {
	struct mpool_vdev ly_below;
	pthread_mutex_t ly_lock;
	uint64_t ly_free_ns;	/* guarded by ly_lock */
	uint64_t ly_rate, ly_write_rate;	/* bytes per second, 0 = unlimited */
	uint64_t ly_lat_ns;
	uint64_t ly_pause_ns, ly_every_ns, ly_since_ns;
};

/* What would be done at @t is done at the end of the pause. */
static uint64_t delay_awake(const struct delay_dev *ly, uint64_t t)
{
	uint64_t in;

	if (!ly->ly_pause_ns)
		return t;
	in = (t - ly->ly_since_ns) % ly->ly_every_ns;
	return in < ly->ly_every_ns - ly->ly_pause_ns ? t : t + ly->ly_every_ns - in;
}

static uint64_t delay_ready(struct delay_dev *ly, uint64_t bytes, uint64_t rate)
{
	uint64_t now = mpl_now_ns(), ready = delay_awake(ly, now);

	if (ly->ly_rate || ly->ly_write_rate) {
		pthread_mutex_lock(&ly->ly_lock);
		if (ly->ly_free_ns < now)
			ly->ly_free_ns = now;
		if (rate)
			ly->ly_free_ns += (uint64_t)((double)bytes * 1e9 / (double)rate);
		ly->ly_free_ns = delay_awake(ly, ly->ly_free_ns);
		ready = ly->ly_free_ns;
		pthread_mutex_unlock(&ly->ly_lock);
	}
	return ready + ly->ly_lat_ns;
}

static void delay_deliver(uint64_t ready, uint64_t below_ns, uint64_t *ready_ns)
{
	if (below_ns > ready)
		ready = below_ns;
	if (ready_ns)
		*ready_ns = ready;
	else
		mpl_sleep_until(ready);
}

static uint64_t delay_bytes(const struct iovec *iov, unsigned n)
{
	uint64_t sum = 0;

	while (n--)
		sum += iov[n].iov_len;
	return sum;
}

static int delay_readv(void *dev, uint64_t off, const struct iovec *iov, unsigned n,
		       uint64_t *ready_ns)
{
	struct delay_dev *ly = dev;
	uint64_t ready = delay_ready(ly, delay_bytes(iov, n), ly->ly_rate), below = 0;
	int rc = ly->ly_below.ops->readv(ly->ly_below.dev, off, iov, n, &below);

	delay_deliver(ready, below, ready_ns);
	return rc;
}

static int delay_writev(void *dev, uint64_t off, const struct iovec *iov, unsigned n, int is_fua,
			uint64_t *ready_ns)
{
	struct delay_dev *ly = dev;
	uint64_t ready = delay_ready(ly, delay_bytes(iov, n), ly->ly_write_rate), below = 0;
	int rc = ly->ly_below.ops->writev(ly->ly_below.dev, off, iov, n, is_fua, &below);

	delay_deliver(ready, below, ready_ns);
	return rc;
}

static int delay_flush(void *dev, uint64_t *ready_ns)
{
	struct delay_dev *ly = dev;
	uint64_t ready = delay_ready(ly, 0, 0), below = 0;
	int rc = BARRIER(ly->ly_below.ops->flush(ly->ly_below.dev, &below));

	delay_deliver(ready, below, ready_ns);
	return rc;
}

static int delay_discard(void *dev, uint64_t off, uint64_t len)
{
	struct delay_dev *ly = dev;

	if (ly->ly_pause_ns)
		mpl_sleep_until(delay_awake(ly, mpl_now_ns()));
	return ly->ly_below.ops->discard ?
	       ly->ly_below.ops->discard(ly->ly_below.dev, off, len) : 0;
}

static int delay_reserve(void *dev, uint64_t off, uint64_t len)
{
	struct delay_dev *ly = dev;

	if (ly->ly_pause_ns)
		mpl_sleep_until(delay_awake(ly, mpl_now_ns()));
	return ly->ly_below.ops->reserve ?
	       ly->ly_below.ops->reserve(ly->ly_below.dev, off, len) : 0;
}

static void delay_close(void *dev)
{
	struct delay_dev *ly = dev;

	if (ly->ly_below.ops->close)
		ly->ly_below.ops->close(ly->ly_below.dev);
	pthread_mutex_destroy(&ly->ly_lock);
	free(ly);
}

static const struct mpool_vdev_ops delay_ops = {
	.readv = delay_readv,
	.writev = delay_writev,
	.flush = delay_flush,
	.discard = delay_discard,
	.reserve = delay_reserve,
	.close = delay_close,
};

int mpl_delay_push(struct mpool_vdev *vd, const struct mpl_layer_conf *lc)
{
	struct delay_dev *ly = calloc(1, sizeof(*ly));

	if (!ly)
		return -ENOMEM;
	ly->ly_below = *vd;
	ly->ly_rate = lc->lc_rate;
	ly->ly_write_rate = lc->lc_write_rate ? lc->lc_write_rate : lc->lc_rate;
	ly->ly_lat_ns = lc->lc_lat_ns;
	ly->ly_pause_ns = lc->lc_pause_ns;
	ly->ly_every_ns = lc->lc_every_ns;
	ly->ly_since_ns = mpl_now_ns();
	pthread_mutex_init(&ly->ly_lock, NULL);
	vd->ops = &delay_ops;
	vd->dev = ly;
	vd->fd = -1;
	return 0;
}
