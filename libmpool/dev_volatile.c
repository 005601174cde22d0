/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A layer with a volatile write cache and a simulated power cut.
 *
 * A completed write stays in memory, as blocks of 4 KiB in order of arrival. A
 * flush writes the blocks that came before it to the device, flushes that, and
 * only then forgets them. At the cut (cut=TIME after open, or cut_after=N
 * writes) all volatile devices of the pool lose power in one instant: pw_lock
 * is taken and never released; of the blocks not flushed a random part is
 * applied in random order, some torn at 512-byte sectors, the rest is dropped;
 * then the process ends by SIGKILL. A flush that is under way at the cut cannot
 * complete, because it needs pw_lock for that, so what it wrote counts as a
 * part that happened to reach the medium.
 *
 * Locks: pw_lock (all tables and lists of the pool) inside vl_flush_lock (one
 * flush or FUA write at a time per device). No device I/O under pw_lock except
 * at the cut.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device.h"
#include "guard.h"

#define VOL_BUCKETS	4096u

struct vol_block {
	struct vol_block *vb_next;	/* in order of arrival */
	struct vol_block *vb_chain;	/* hash chain; only the newest of an offset is there */
	uint64_t vb_off;		/* bytes */
	uint64_t vb_seq;
	int vb_is_hashed;
	int vb_is_dead;			/* overtaken by a FUA write */
	void *vb_data;			/* MP_BLOCK bytes, aligned */
};

struct vol_dev {
	struct mpool_vdev vl_below;
	struct mpl_power *vl_power;
	struct vol_dev *vl_next;	/* devices of one power supply */
	pthread_mutex_t vl_flush_lock;
	/* the rest is guarded by pw_lock */
	struct vol_block *vl_head, *vl_tail;
	struct vol_block *vl_hash[VOL_BUCKETS];
	uint64_t vl_seq;
};

struct mpl_power {
	pthread_mutex_t pw_lock;
	pthread_cond_t pw_cond;		/* wakes the timer at close */
	struct vol_dev *pw_devs;
	uint64_t pw_cut_ns;		/* after start, 0 = no timer */
	uint64_t pw_cut_after;		/* writes, 0 = never */
	uint64_t pw_writes;
	uint64_t pw_seed;
	pthread_t pw_thread;
	int pw_has_thread;
	int pw_is_closing;
};

static struct vol_block **vol_slot(struct vol_dev *vl, uint64_t off)
{
	struct vol_block **pp = &vl->vl_hash[(off / MP_BLOCK) % VOL_BUCKETS];

	while (*pp && (*pp)->vb_off != off)
		pp = &(*pp)->vb_chain;
	return pp;
}

static void vol_unhash(struct vol_dev *vl, struct vol_block *b)
{
	struct vol_block **pp = vol_slot(vl, b->vb_off);

	if (b->vb_is_hashed && *pp == b)
		*pp = b->vb_chain;
	b->vb_is_hashed = 0;
}

static void vol_io(struct vol_dev *vl, uint64_t off, void *buf, int is_write)
{
	struct iovec v = { .iov_base = buf, .iov_len = MP_BLOCK };

	if (is_write)
		vl->vl_below.ops->writev(vl->vl_below.dev, off, &v, 1, 0, NULL);
	else
		vl->vl_below.ops->readv(vl->vl_below.dev, off, &v, 1, NULL);
}

/* what becomes of one unflushed block at the cut */
static void vol_cut_block(struct vol_dev *vl, struct vol_block *b, void *tmp, uint64_t *seed)
{
	uint64_t r = mpl_rand(seed), mask, s;

	if (b->vb_is_dead || r % 8 < 3)
		return;
	if (r % 8 < 6) {
		vol_io(vl, b->vb_off, b->vb_data, 1);
		return;
	}
	mask = mpl_rand(seed);
	vol_io(vl, b->vb_off, tmp, 0);
	for (s = 0; s < MP_BLOCK / MP_SECTOR; s++)
		if (mask >> s & 1)
			memcpy((char *)tmp + s * MP_SECTOR, (char *)b->vb_data + s * MP_SECTOR,
			       MP_SECTOR);
	vol_io(vl, b->vb_off, tmp, 1);
}

/* Random order for the list's blocks; without memory the order of arrival stays. */
static void vol_cut_dev(struct vol_dev *vl, void *tmp, uint64_t *seed)
{
	struct vol_block *b, **v;
	size_t n = 0, i;

	for (b = vl->vl_head; b; b = b->vb_next)
		n++;
	v = n ? malloc(n * sizeof(*v)) : NULL;
	if (!v)
		return;
	for (b = vl->vl_head, i = 0; b; b = b->vb_next)
		v[i++] = b;
	for (i = n - 1; i > 0; i--) {
		size_t j = mpl_rand(seed) % (i + 1);

		b = v[i];
		v[i] = v[j];
		v[j] = b;
	}
	for (i = 0; i < n; i++)
		vol_cut_block(vl, v[i], tmp, seed);
	free(v);
}

/* Caller holds pw_lock, which stays held: nothing completes any more. */
static void __attribute__((noreturn)) power_cut_locked(struct mpl_power *pw)
{
	struct vol_dev *vl;
	void *tmp;

	if (!posix_memalign(&tmp, MP_BLOCK, MP_BLOCK))
		for (vl = pw->pw_devs; vl; vl = vl->vl_next)
			vol_cut_dev(vl, tmp, &pw->pw_seed);
	raise(SIGKILL);
	abort();
}

static void *power_timer(void *arg)
{
	struct mpl_power *pw = arg;
	struct timespec ts;
	uint64_t end = mpl_now_ns() + pw->pw_cut_ns;

	ts.tv_sec = (time_t)(end / 1000000000u);
	ts.tv_nsec = (long)(end % 1000000000u);
	pthread_mutex_lock(&pw->pw_lock);
	while (!pw->pw_is_closing)
		if (pthread_cond_timedwait(&pw->pw_cond, &pw->pw_lock, &ts) == ETIMEDOUT)
			power_cut_locked(pw);
	pthread_mutex_unlock(&pw->pw_lock);
	return NULL;
}

int mpl_power_start(struct mpl_power *pw)
{
	if (!pw || !pw->pw_cut_ns)
		return 0;
	if (os_thread_start(&pw->pw_thread, power_timer, pw))
		return -EAGAIN;
	pw->pw_has_thread = 1;
	return 0;
}

void mpl_power_free(struct mpl_power *pw)
{
	if (!pw)
		return;
	if (pw->pw_has_thread) {
		pthread_mutex_lock(&pw->pw_lock);
		pw->pw_is_closing = 1;
		pthread_cond_signal(&pw->pw_cond);
		pthread_mutex_unlock(&pw->pw_lock);
		pthread_join(pw->pw_thread, NULL);
	}
	pthread_cond_destroy(&pw->pw_cond);
	pthread_mutex_destroy(&pw->pw_lock);
	free(pw);
}

static struct vol_block *vol_block_new(uint64_t off, const void *data)
{
	struct vol_block *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	if (posix_memalign(&b->vb_data, MP_BLOCK, MP_BLOCK)) {
		free(b);
		return NULL;
	}
	memcpy(b->vb_data, data, MP_BLOCK);
	b->vb_off = off;
	return b;
}

static void vol_list_free(struct vol_block *b)
{
	while (b) {
		struct vol_block *next = b->vb_next;

		free(b->vb_data);
		free(b);
		b = next;
	}
}

/* copies of the vector's blocks, chained; NULL = no memory */
static struct vol_block *vol_copy(uint64_t off, const struct iovec *iov, unsigned n)
{
	struct vol_block *head = NULL, **pp = &head;
	unsigned i;
	size_t p;

	for (i = 0; i < n; i++)
		for (p = 0; p < iov[i].iov_len; p += MP_BLOCK, off += MP_BLOCK) {
			*pp = vol_block_new(off, (char *)iov[i].iov_base + p);
			if (!*pp) {
				vol_list_free(head);
				return NULL;
			}
			pp = &(*pp)->vb_next;
		}
	return head;
}

/* Makes the blocks visible; the last of them has sequence vl_seq. */
static void vol_add_locked(struct vol_dev *vl, struct vol_block *list)
{
	struct vol_block *b, **pp;

	for (b = list; b; b = b->vb_next) {
		b->vb_seq = ++vl->vl_seq;
		pp = vol_slot(vl, b->vb_off);
		if (*pp) {
			(*pp)->vb_is_hashed = 0;
			b->vb_chain = (*pp)->vb_chain;
		}
		*pp = b;
		b->vb_is_hashed = 1;
		if (vl->vl_tail)
			vl->vl_tail->vb_next = b;
		else
			vl->vl_head = b;
		vl->vl_tail = b;
	}
}

/*
 * Writes the blocks up to @seq in order, neighbours together. Without the lock:
 * only a flush removes blocks, and vl_flush_lock admits one.
 */
static int vol_drain(struct vol_dev *vl, struct vol_block *b, uint64_t seq)
{
	struct iovec v[MPL_IOV_MAX];
	int rc = 0;

	while (!rc && b && b->vb_seq <= seq) {
		uint64_t off = b->vb_off;
		unsigned n = 0;

		if (b->vb_is_dead) {
			b = b->vb_seq < seq ? b->vb_next : NULL;
			continue;
		}
		while (b && n < MPL_IOV_MAX && !b->vb_is_dead &&
		       b->vb_off == off + (uint64_t)n * MP_BLOCK) {
			v[n].iov_base = b->vb_data;
			v[n++].iov_len = MP_BLOCK;
			/* past seq the list's end belongs to writers */
			b = b->vb_seq < seq ? b->vb_next : NULL;
		}
		rc = vl->vl_below.ops->writev(vl->vl_below.dev, off, v, n, 0, NULL);
	}
	return rc;
}

/* Forgets the blocks up to @seq. */
static struct vol_block *vol_forget_locked(struct vol_dev *vl, uint64_t seq)
{
	struct vol_block *gone = NULL, *b;

	while ((b = vl->vl_head) && b->vb_seq <= seq) {
		vl->vl_head = b->vb_next;
		vol_unhash(vl, b);
		b->vb_next = gone;
		gone = b;
	}
	if (!vl->vl_head)
		vl->vl_tail = NULL;
	return gone;
}

/* Caller holds vl_flush_lock. */
static int vol_flush_locked(struct vol_dev *vl)
{
	struct mpl_power *pw = vl->vl_power;
	struct vol_block *head;
	uint64_t seq;
	int rc;

	pthread_mutex_lock(&pw->pw_lock);
	seq = vl->vl_seq;
	head = vl->vl_head;
	pthread_mutex_unlock(&pw->pw_lock);

	rc = vol_drain(vl, head, seq);
	if (!rc)
		rc = BARRIER(vl->vl_below.ops->flush(vl->vl_below.dev, NULL));

	pthread_mutex_lock(&pw->pw_lock);
	head = rc ? NULL : vol_forget_locked(vl, seq);
	pthread_mutex_unlock(&pw->pw_lock);
	vol_list_free(head);
	return rc;
}

static int vol_flush(void *dev, uint64_t *ready_ns)
{
	struct vol_dev *vl = dev;
	int rc;

	if (ready_ns)
		*ready_ns = 0;
	pthread_mutex_lock(&vl->vl_flush_lock);
	rc = vol_flush_locked(vl);
	pthread_mutex_unlock(&vl->vl_flush_lock);
	return rc;
}

static int vol_writev(void *dev, uint64_t off, const struct iovec *iov, unsigned n, int is_fua,
		      uint64_t *ready_ns)
{
	struct vol_dev *vl = dev;
	struct mpl_power *pw = vl->vl_power;
	struct vol_block *list = vol_copy(off, iov, n), *b, *o;
	uint64_t last;
	int rc = 0;

	if (ready_ns)
		*ready_ns = 0;
	if (!list)
		return -ENOMEM;
	if (is_fua)
		pthread_mutex_lock(&vl->vl_flush_lock);
	pthread_mutex_lock(&pw->pw_lock);
	vol_add_locked(vl, list);
	last = vl->vl_seq;
	if (pw->pw_cut_after && ++pw->pw_writes >= pw->pw_cut_after)
		power_cut_locked(pw);
	pthread_mutex_unlock(&pw->pw_lock);
	if (!is_fua)
		return 0;

	rc = vl->vl_below.ops->writev(vl->vl_below.dev, off, iov, n, is_fua, NULL);
	pthread_mutex_lock(&pw->pw_lock);
	for (b = rc ? NULL : list; b && b->vb_seq <= last; b = b->vb_next)
		for (o = vl->vl_head; o != b; o = o->vb_next)
			if (o->vb_off == b->vb_off)
				o->vb_is_dead = 1;
	pthread_mutex_unlock(&pw->pw_lock);
	pthread_mutex_unlock(&vl->vl_flush_lock);
	return rc;
}

static int vol_readv(void *dev, uint64_t off, const struct iovec *iov, unsigned n,
		     uint64_t *ready_ns)
{
	struct vol_dev *vl = dev;
	struct mpl_power *pw = vl->vl_power;
	unsigned i;
	size_t p, run;
	int rc = 0;

	if (ready_ns)
		*ready_ns = 0;
	for (i = 0; i < n && !rc; off += iov[i++].iov_len) {
		for (p = 0; p < iov[i].iov_len && !rc; p += run) {
			struct iovec v = { .iov_base = (char *)iov[i].iov_base + p };
			struct vol_block *b;

			/* blocks in memory first: one that is flushed meanwhile is below then */
			pthread_mutex_lock(&pw->pw_lock);
			for (run = 0; p + run < iov[i].iov_len; run += MP_BLOCK) {
				b = *vol_slot(vl, off + p + run);
				if (b && run)
					break;
				if (b) {
					memcpy(v.iov_base, b->vb_data, MP_BLOCK);
					break;
				}
			}
			pthread_mutex_unlock(&pw->pw_lock);
			v.iov_len = run;
			if (run)
				rc = vl->vl_below.ops->readv(vl->vl_below.dev, off + p, &v, 1,
							     NULL);
			else
				run = MP_BLOCK;
		}
	}
	return rc;
}

static int vol_discard(void *dev, uint64_t off, uint64_t len)
{
	struct vol_dev *vl = dev;

	return vl->vl_below.ops->discard ?
	       vl->vl_below.ops->discard(vl->vl_below.dev, off, len) : 0;
}

static int vol_reserve(void *dev, uint64_t off, uint64_t len)
{
	struct vol_dev *vl = dev;

	return vl->vl_below.ops->reserve ?
	       vl->vl_below.ops->reserve(vl->vl_below.dev, off, len) : 0;
}

/* An orderly close is no power cut: what the cache holds goes to the device. */
static void vol_close(void *dev)
{
	struct vol_dev *vl = dev, **pp;

	vol_flush(vl, NULL);
	pthread_mutex_lock(&vl->vl_power->pw_lock);
	for (pp = &vl->vl_power->pw_devs; *pp; pp = &(*pp)->vl_next)
		if (*pp == vl) {
			*pp = vl->vl_next;
			break;
		}
	pthread_mutex_unlock(&vl->vl_power->pw_lock);
	vol_list_free(vl->vl_head);
	if (vl->vl_below.ops->close)
		vl->vl_below.ops->close(vl->vl_below.dev);
	pthread_mutex_destroy(&vl->vl_flush_lock);
	free(vl);
}

static const struct mpool_vdev_ops vol_ops = {
	.readv = vol_readv,
	.writev = vol_writev,
	.flush = vol_flush,
	.discard = vol_discard,
	.reserve = vol_reserve,
	.close = vol_close,
};

static struct mpl_power *power_new(void)
{
	struct mpl_power *pw = calloc(1, sizeof(*pw));
	pthread_condattr_t ca;

	if (!pw)
		return NULL;
	pthread_mutex_init(&pw->pw_lock, NULL);
	pthread_condattr_init(&ca);
	pthread_condattr_setclock(&ca, CLOCK_MONOTONIC);
	pthread_cond_init(&pw->pw_cond, &ca);
	pthread_condattr_destroy(&ca);
	return pw;
}

int mpl_volatile_push(struct mpool_vdev *vd, const struct mpl_layer_conf *lc,
		      struct mpl_power **power)
{
	struct vol_dev *vl = calloc(1, sizeof(*vl));

	if (!vl)
		return -ENOMEM;
	if (!*power)
		*power = power_new();
	if (!*power) {
		free(vl);
		return -ENOMEM;
	}
	vl->vl_below = *vd;
	vl->vl_power = *power;
	pthread_mutex_init(&vl->vl_flush_lock, NULL);
	pthread_mutex_lock(&(*power)->pw_lock);
	if (lc->lc_cut_ns)
		(*power)->pw_cut_ns = lc->lc_cut_ns;
	if (lc->lc_cut_after)
		(*power)->pw_cut_after = lc->lc_cut_after;
	(*power)->pw_seed = lc->lc_seed;
	vl->vl_next = (*power)->pw_devs;
	(*power)->pw_devs = vl;
	pthread_mutex_unlock(&(*power)->pw_lock);
	vd->ops = &vol_ops;
	vd->dev = vl;
	vd->fd = -1;
	return 0;
}
