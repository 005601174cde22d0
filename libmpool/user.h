/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The embedded backend's pool: the core in this process over a set of member
 * devices. The set is fixed while the pool is open.
 */
#ifndef MPL_USER_H
#define MPL_USER_H

#include "backend.h"
#include "device.h"
#include "mpl_err.h"
#include "obj.h"
#include "pool.h"
#include "poolcfg.h"

/* opened member devices */
struct mpl_set {
	unsigned st_n;
	struct mpl_dev **st_dev;
	struct mp_dev **st_core;	/* the same, as the core takes them */
	struct mpl_power *st_power;
	struct mpl_cfg *st_cfg;
	const struct mpool_dev_provider *st_pv;
	int st_is_uring;		/* every member can be driven by io_uring */
	int st_is_direct;
};

#define MPL_SET_RDONLY	0x1u
#define MPL_SET_PARTIAL	0x2u	/* missing members are left out */
#define MPL_SET_PEEK	0x4u	/* with RDONLY: beside any process that has them open */

int mpl_set_open(const char *path, const struct mpool_open_opts *opts, unsigned flags,
		 struct mpl_set *set);
void mpl_set_close(struct mpl_set *set);
/* room for @n members; 0 or -ENOMEM */
int mpl_set_alloc(struct mpl_set *set, unsigned n);
/* takes over @low: layers, top, place @set->st_n */
int mpl_set_add(struct mpl_set *set, struct mpl_low *low, const char *path, uint32_t mclass,
		const char *layers);
/* closes member @i and forgets it */
void mpl_set_drop(struct mpl_set *set, unsigned i);

/* the thread that keeps a heartbeat, of a pool that has one */
struct mpl_beat {
	struct mp_pool *bt_core;
	int bt_is_there;
	pthread_t bt_thread;
	pthread_mutex_t bt_lock;
	pthread_cond_t bt_cond;
	int bt_is_leaving;		/* guarded by bt_lock */
};

/* files that grow by themselves (user_grow.c) */
struct mpl_grow {
	uint64_t gr_max;		/* bytes of each, MPOOL_GROW_AUTO, or 0: they do not */
	pthread_mutex_t gr_lock;
};

struct mpl_user {
	struct mpool us_pool;		/* first */
	struct mp_pool *us_core;
	struct mpl_set us_set;
	int us_is_uring;
	int us_is_looking;		/* MPOOL_OPEN_LOOK, before mpool_begin() */
	int us_is_threadless;		/* MPOOL_OPEN_NOTHREAD, or a provider: callers discard */
	pthread_t us_thread;		/* discards */
	int us_has_thread;
	pthread_mutex_t us_lock;
	pthread_cond_t us_cond;
	int us_is_kicked;		/* guarded by us_lock, as us_is_closing */
	int us_is_closing;
	struct mpl_beat us_beat;
	struct mpl_grow us_grow;
};

static inline struct mpl_user *mpl_user(const struct mpool *mp)
{
	return (struct mpl_user *)(uintptr_t)mp;
}

/* user_beat.c: 0, also when the pool needs none */
int mpl_beat_start(struct mpl_beat *bt, struct mp_pool *core, const char *path);
void mpl_beat_stop(struct mpl_beat *bt);

/* user_grow.c: what a class can gain while the pool is open */
uint64_t mpl_growable(const struct mpl_user *us, const struct mp_pool_info *pi, uint32_t mclass);
/* before so many bytes of it are allocated: it grows if it is nearly full, as far as it can */
void mpl_grow_ahead(struct mpl_user *us, uint32_t mclass, uint64_t bytes);

/* user_discard.c: a thread that discards, but for readers and on providers */
void mpl_discard_start(struct mpl_user *us);
void mpl_discard_stop(struct mpl_user *us);
/* space may have been freed */
void mpl_discard_kick(struct mpl_user *us);
/* what is left of it, before the pool is closed; without the thread */
void mpl_discard_rest(struct mpl_user *us);

/* ioq_user.c */
int mpl_user_ioq_open(struct mpool *mp, unsigned depth, struct mpool_ioq **out);

#endif
