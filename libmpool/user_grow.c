/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Member files of an open pool grow by themselves (RV29 of libkvdb; INV-18 is how the core takes
 * a larger member). The thread that allocates does it: from three quarters of a class on, so that
 * the space is there before anything waits for it. Others that still find theirs pass by meanwhile.
 * Files are sparse, so a step doubles them: it costs one change of the superblocks.
 *
 * How far: to gr_max, and no further than the file system has room for what the pool has promised
 * already. By default a tenth of the file system stays free.
 *
 * Lock: gr_lock, outside of all others; only one thread grows.
 */
#include <errno.h>

#include "user.h"

#define STEP		(1ull << 20)	/* what a file gains is a multiple of it */
#define AHEAD_PART	4u		/* with less of a class free it grows */

static uint64_t min64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* By so much the member may grow, when @unused bytes of it may have no space below them yet. */
static uint64_t member_room(const struct mpl_user *us, const struct mpl_dev *dev, uint64_t unused)
{
	uint64_t max = us->us_grow.gr_max, size = dev->md_core.d_size, room, below;
	const struct mpool_vdev *vd = &dev->md_vdev;

	if (!vd->ops->resize || size >= max)
		return 0;
	room = max - size;
	if (vd->ops->room) {
		below = vd->ops->room(vd->dev, max == MPOOL_GROW_AUTO);
		room = min64(room, below > unused ? below - unused : 0);
	}
	return room / STEP * STEP;
}

static int is_of(const struct mpl_dev *dev, uint32_t mclass)
{
	return dev->md_mclass == mclass && !(dev->md_core.d_flags & MP_DEV_IS_BLOCK);
}

static uint64_t class_room(const struct mpl_user *us, const struct mp_pool_info *pi,
			   uint32_t mclass)
{
	uint64_t room = 0;

	for (unsigned i = 0; i < us->us_set.st_n; i++)
		if (is_of(us->us_set.st_dev[i], mclass))
			room += member_room(us, us->us_set.st_dev[i], pi->pi_cls[mclass].ci_free);
	return room;
}

uint64_t mpl_growable(const struct mpl_user *us, const struct mp_pool_info *pi, uint32_t mclass)
{
	if (!us->us_grow.gr_max || us->us_pool.mp_is_rdonly || pi->pi_is_rdonly)
		return 0;
	return class_room(us, pi, mclass);
}

static uint64_t recorded(const struct mpl_user *us, const struct mpl_dev *dev)
{
	struct mp_member mb;

	for (u32 slot = 0; !mp_pool_member(us->us_core, slot, &mb); slot++)
		if (mb.mb_dev == &dev->md_core)
			return mb.mb_bytes;
	return 0;
}

static int member_resize(const struct mpl_user *us, struct mpl_dev *dev, uint64_t by)
{
	/* what an earlier step left, which was cut, is not known to be zeroes */
	if (recorded(us, dev) == dev->md_core.d_size && dev->md_vdev.is_zeroed)
		dev->md_core.d_flags |= MP_DEV_ZEROED;
	else
		dev->md_core.d_flags &= ~MP_DEV_ZEROED;
	if (dev->md_vdev.ops->resize(dev->md_vdev.dev, dev->md_core.d_size + by))
		return -ENOSPC;
	dev->md_core.d_size += by;
	return 0;
}

/* A file that is longer than the pool knows is a pool all the same: the next step takes it. */
static int class_grow(struct mpl_user *us, uint32_t mclass, uint64_t bytes)
{
	struct mp_pool_info pi;
	int rc = -ENOSPC;

	mp_pool_info(us->us_core, &pi);
	for (unsigned i = 0; i < us->us_set.st_n; i++) {
		struct mpl_dev *dev = us->us_set.st_dev[i];
		uint64_t size = dev->md_core.d_size, room;

		if (!is_of(dev, mclass))
			continue;
		room = member_room(us, dev, pi.pi_cls[mclass].ci_free);
		if (room && !member_resize(us, dev, min64(room, size > bytes ? size : 2 * bytes)))
			rc = 0;
	}
	return rc ? rc : mp_pool_grow(us->us_core);
}

static uint64_t class_free(struct mpl_user *us, uint32_t mclass, uint64_t *total)
{
	struct mp_pool_info pi;

	mp_pool_info(us->us_core, &pi);
	*total = pi.pi_cls[mclass].ci_total;
	return pi.pi_cls[mclass].ci_free;
}

void mpl_grow_ahead(struct mpl_user *us, uint32_t mclass, uint64_t bytes)
{
	uint64_t total, free;

	if (!us->us_grow.gr_max || us->us_is_looking || mclass >= MPOOL_MCLASSES)
		return;
	free = class_free(us, mclass, &total);
	if (free >= bytes + total / AHEAD_PART)
		return;
	/* there is room for this one: it waits for no other that grows */
	if (free >= 2 * bytes + STEP ? pthread_mutex_trylock(&us->us_grow.gr_lock) :
				       pthread_mutex_lock(&us->us_grow.gr_lock))
		return;
	free = class_free(us, mclass, &total);
	/* the allocation says what it lacks, and a failed write has stopped the pool */
	if (free < bytes + total / AHEAD_PART && class_grow(us, mclass, bytes))
		os_user_error_clear();
	pthread_mutex_unlock(&us->us_grow.gr_lock);
}
