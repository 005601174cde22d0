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

/* What the pool knows of: changed with its total, not before the superblocks say so. */
static uint64_t recorded(const struct mpl_user *us, const struct mpl_dev *dev)
{
	struct mp_member mb;

	for (u32 slot = 0; !mp_pool_member(us->us_core, slot, &mb); slot++)
		if (mb.mb_dev == &dev->md_core)
			return mb.mb_bytes;
	return 0;
}

static int is_file(const struct mpl_dev *dev)
{
	return !(dev->md_core.d_flags & MP_DEV_IS_BLOCK);
}

/* By so much it would, had the file system below room. */
static uint64_t member_wish(const struct mpl_user *us, const struct mpl_dev *dev)
{
	uint64_t max = us->us_grow.gr_max, size = recorded(us, dev);

	return is_file(dev) && dev->md_vdev.ops->resize && size < max ? max - size : 0;
}

/* On one file system; unknown of what is a provider's. */
static int is_beside(const struct mpl_dev *a, const struct mpl_dev *b)
{
	return a == b || (a->md_fs && a->md_fs == b->md_fs);
}

/*
 * By so much the member may grow: its part of what the file system has beyond that which the pool
 * has promised there already, its unused bytes, which may have no space below them yet. The others
 * that grow there, of the classes of the mask, have as much.
 */
static uint64_t member_room(const struct mpl_user *us, const struct mp_pool_info *pi,
			    const struct mpl_dev *dev, uint32_t classes)
{
	uint64_t room = member_wish(us, dev), unused = 0, below;
	const struct mpool_vdev *vd = &dev->md_vdev;
	uint32_t counted = 0, parts = 0;

	if (!room || !vd->ops->room)
		return room / STEP * STEP;
	for (unsigned i = 0; i < us->us_set.st_n; i++) {
		const struct mpl_dev *other = us->us_set.st_dev[i];
		uint32_t bit = 1u << other->md_mclass;

		if (!is_file(other) || !is_beside(dev, other))
			continue;
		unused += counted & bit ? 0 : pi->pi_cls[other->md_mclass].ci_free;
		counted |= bit;
		parts += (classes & bit) && member_wish(us, other);
	}
	below = vd->ops->room(vd->dev, us->us_grow.gr_max == MPOOL_GROW_AUTO);
	below = below > unused ? below - unused : 0;
	return min64(room, parts ? below / parts : 0) / STEP * STEP;
}

uint64_t mpl_growable(const struct mpl_user *us, const struct mp_pool_info *pi, uint32_t mclass)
{
	uint64_t room = 0;

	if (!us->us_grow.gr_max || us->us_pool.mp_is_rdonly || pi->pi_is_rdonly)
		return 0;
	for (unsigned i = 0; i < us->us_set.st_n; i++)
		if (us->us_set.st_dev[i]->md_mclass == mclass)
			room += member_room(us, pi, us->us_set.st_dev[i], ~0u);
	return room;
}

static int member_resize(struct mpl_dev *dev, uint64_t size)
{
	if (dev->md_core.d_size == size)
		return 0;
	if (dev->md_vdev.ops->resize(dev->md_vdev.dev, size))
		return -ENOSPC;
	dev->md_core.d_size = size;
	return 0;
}

/* A file that is longer than the pool knows is a pool all the same: the next step takes it. */
static int member_grow(const struct mpl_user *us, struct mpl_dev *dev, uint64_t by)
{
	uint64_t was = recorded(us, dev), now = dev->md_core.d_size;
	/* what an earlier step left, which was cut, is not known to be zeroes */
	u32 zeroed = now == was ? MP_DEV_ZEROED : 0;

	/* others look at the flags meanwhile: they change only where one does */
	if ((dev->md_core.d_flags & MP_DEV_ZEROED) != zeroed)
		dev->md_core.d_flags ^= MP_DEV_ZEROED;
	return now < was + by ? member_resize(dev, was + by) : 0;
}

/*
 * Back to what they were before a step that failed: no superblock counts on what it has added,
 * unless one could not be written.
 */
static void class_restore(struct mpl_user *us, const uint64_t *was)
{
	struct mp_pool_info pi;

	mp_pool_info(us->us_core, &pi);
	for (unsigned i = 0; i < us->us_set.st_n && !pi.pi_fault_id; i++)
		member_resize(us->us_set.st_dev[i], was[i]);
}

/* Bytes that a member of @size gains: as many again, or more for a large object. */
static uint64_t step_of(uint64_t size, uint64_t bytes)
{
	uint64_t step = size > bytes ? size : 2 * bytes;

	return (step + STEP - 1) / STEP * STEP;
}

static int class_grow(struct mpl_user *us, uint32_t mclass, uint64_t bytes)
{
	int rc = mp_pool_writable(us->us_core);
	uint64_t was[MPL_CFG_DEVS];
	struct mp_pool_info pi;

	/* a pool that has stopped takes nothing: its files stay as they are */
	if (rc)
		return rc;
	rc = -ENOSPC;
	mp_pool_info(us->us_core, &pi);
	for (unsigned i = 0; i < us->us_set.st_n; i++) {
		struct mpl_dev *dev = us->us_set.st_dev[i];
		uint64_t room;

		was[i] = dev->md_core.d_size;
		if (dev->md_mclass != mclass)
			continue;
		room = member_room(us, &pi, dev, 1u << mclass);
		if (room && !member_grow(us, dev, min64(room, step_of(was[i], bytes))))
			rc = 0;
	}
	if (!rc)
		rc = mp_pool_grow(us->us_core);
	if (rc)
		class_restore(us, was);
	return rc;
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
