/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A pool as a whole: in memory, on media, and changed.
 */
#ifndef MP_CORE_OPEN_H
#define MP_CORE_OPEN_H

#include "core.h"

/* pool.c */
struct mp_pool *mp_pool_new(void);
void mp_pool_free(struct mp_pool *pool);
struct mp_pdev *mp_pdev_new(struct mp_dev *dev, const struct mp_sb *sb);
void mp_pdev_free(struct mp_pdev *pd);
int mp_pool_add(struct mp_pool *pool, struct mp_dev *dev, const struct mp_sb *sb);
/* the space that objects may use, all free */
int mp_pdev_space(struct mp_pdev *pd);

/* open.c */
int mp_pool_load(struct mp_dev **dev, u32 ndevs, u32 flags, mp_finding_fn *fn, void *arg,
		 struct mp_pool **out);

/* admin.c */
/*
 * Write the next generation of @next, which says all that members have in
 * common, to all of them and to @extra new ones, the home device first. @next is
 * a copy that is used up; no memory is asked for.
 */
int mp_admin_write(struct mp_pool *pool, struct mp_sb *next, struct mp_pdev **extra, u32 nextra,
		   void *buf);
/*
 * Give copy 0 of every member that carries a mark the pool's name, and take the marks off.
 * @next and @buf are only room.
 */
int mp_admin_names(struct mp_pool *pool, struct mp_sb *next, void *buf);

#endif
