/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Giving back what is free: to the file system below, or to the device.
 *
 * Freed extents are discarded by a thread of the pool, woken by deletes and
 * closes, which gives the stock of a pool that rests back, too; on a provider
 * (simulators) there is no thread, and the discards run at the end of the batch
 * that freed the space, so that runs repeat exactly. What is left a close discards.
 *
 * Of the stock for new logs all but what the last second used goes after one to two seconds, and
 * never more than 256 MiB of a pool and an eighth of a member stay (core/pool.c, core/mclass.c).
 * Superblocks and regions of the metadata log are never given back (core/mdlog.c).
 *
 * A process that ends otherwise leaves what it had reserved, or not discarded yet:
 * no record says so. The file system knows it: the thread begins with a look at
 * what each member file has allocated, and discards what of it is free.
 *
 * Locks: us_lock guards the thread's two flags, nothing else.
 */
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "user.h"

#define DISCARD_STEP	(64ull << 20)	/* bytes per step of the thread */
#define EXTENTS		256		/* of a file that are asked for at once */
#define CLOSE_MS	250		/* what a close spends on discards, or one step more */

static int is_closing(struct mpl_user *us)
{
	int yes;

	pthread_mutex_lock(&us->us_lock);
	yes = us->us_is_closing;
	pthread_mutex_unlock(&us->us_lock);
	return yes;
}

/* Until kicked or told to end, or for @ms if that is not 0; us_lock held. */
static void discard_wait(struct mpl_user *us, u32 ms)
{
	uint64_t ns = mpl_now_ns() + ms * 1000000ull;
	struct timespec end = { .tv_sec = (time_t)(ns / 1000000000u),
				.tv_nsec = (long)(ns % 1000000000u) };
	int rc = 0;

	while (!rc && !us->us_is_closing && !us->us_is_kicked)
		rc = ms ? pthread_cond_timedwait(&us->us_cond, &us->us_lock, &end) :
			  pthread_cond_wait(&us->us_cond, &us->us_lock);
}

static void discard_queued(struct mpl_user *us)
{
	while (mp_pool_discard_step(us->us_core, DISCARD_STEP) > 0 && !is_closing(us))
		;
}

/* Where the file system does not say what is allocated: is it more than the pool uses? */
static int has_more(struct mpl_user *us, int fd)
{
	struct mp_pool_info pi;
	struct stat st;
	uint64_t used = 0;
	unsigned i;

	mp_pool_info(us->us_core, &pi);
	for (i = 0; i < MP_POOL_CLASSES; i++)
		used += pi.pi_cls[i].ci_used;
	return !fstat(fd, &st) && (uint64_t)st.st_blocks * 512 > used;
}

/* What the file @fd of @mb has allocated of its free space is discarded. */
static void discard_left(struct mpl_user *us, const struct mp_member *mb, int fd)
{
	struct fiemap *fm = calloc(1, sizeof(*fm) + EXTENTS * sizeof(fm->fm_extents[0]));
	const struct fiemap_extent *e;
	uint32_t i;

	while (fm && !is_closing(us)) {
		fm->fm_length = FIEMAP_MAX_OFFSET - fm->fm_start;
		fm->fm_extent_count = EXTENTS;
		if (ioctl(fd, FS_IOC_FIEMAP, fm)) {
			if (has_more(us, fd))
				mp_pool_found(us->us_core, mb->mb_slot, 0, mb->mb_bytes);
			discard_queued(us);
			break;
		}
		if (!fm->fm_mapped_extents)
			break;
		for (i = 0; i < fm->fm_mapped_extents; i++) {
			e = &fm->fm_extents[i];
			mp_pool_found(us->us_core, mb->mb_slot, e->fe_logical, e->fe_length);
			fm->fm_start = e->fe_logical + e->fe_length;
		}
		discard_queued(us);
	}
	free(fm);
}

static void discard_all_left(struct mpl_user *us)
{
	const struct mpl_dev *dev;
	struct mp_member mb;
	unsigned slot;

	for (slot = 0; !mp_pool_member(us->us_core, slot, &mb); slot++) {
		dev = (const struct mpl_dev *)mb.mb_dev;
		if (!(mb.mb_dev->d_flags & MP_DEV_IS_BLOCK) && dev->md_vdev.fd >= 0)
			discard_left(us, &mb, dev->md_vdev.fd);
	}
}

static void *discard_thread(void *arg)
{
	struct mpl_user *us = arg;
	u32 ms = 0;

	discard_all_left(us);
	pthread_mutex_lock(&us->us_lock);
	while (!us->us_is_closing) {
		discard_wait(us, ms);
		us->us_is_kicked = 0;
		pthread_mutex_unlock(&us->us_lock);
		discard_queued(us);
		ms = mp_pool_trim(us->us_core);
		pthread_mutex_lock(&us->us_lock);
	}
	pthread_mutex_unlock(&us->us_lock);
	return NULL;
}

void mpl_discard_kick(struct mpl_user *us)
{
	int i;

	if (us->us_is_threadless) {
		for (i = 0; i < 64 && mp_pool_discard_step(us->us_core, DISCARD_STEP) > 0; i++)
			;
		return;
	}
	if (!us->us_has_thread)
		return;
	pthread_mutex_lock(&us->us_lock);
	us->us_is_kicked = 1;
	pthread_cond_signal(&us->us_cond);
	pthread_mutex_unlock(&us->us_lock);
}

void mpl_discard_stop(struct mpl_user *us)
{
	if (!us->us_has_thread)
		return;
	pthread_mutex_lock(&us->us_lock);
	us->us_is_closing = 1;
	pthread_cond_signal(&us->us_cond);
	pthread_mutex_unlock(&us->us_lock);
	pthread_join(us->us_thread, NULL);
	us->us_has_thread = 0;
	us->us_is_closing = 0;
}

void mpl_discard_rest(struct mpl_user *us)
{
	mp_pool_give_back(us->us_core, DISCARD_STEP, CLOSE_MS);
}

void mpl_discard_start(struct mpl_user *us)
{
	if (us->us_is_threadless || us->us_pool.mp_is_rdonly || us->us_is_looking)
		return;
	/* without a thread the space stays allocated below, no more */
	us->us_has_thread = !os_thread_start(&us->us_thread, discard_thread, us);
}

