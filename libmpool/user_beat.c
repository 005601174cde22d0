/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The thread that keeps the heartbeat of a pool that hosts share; what a step
 * is knows the core (kmod/core/own.c). It is there from open to close, and
 * before close it ends: the core then says that this host has gone.
 *
 * Locks: bt_lock guards bt_is_leaving, nothing else.
 */
#include <errno.h>
#include <time.h>

#include "user.h"

static void *beat_thread(void *arg)
{
	struct mpl_beat *bt = arg;
	struct timespec end;
	uint64_t ns;
	uint32_t ms;

	while ((ms = mp_pool_beat(bt->bt_core)) != 0) {
		ns = mpl_now_ns() + ms * 1000000ull;
		end.tv_sec = (time_t)(ns / 1000000000u);
		end.tv_nsec = (long)(ns % 1000000000u);
		pthread_mutex_lock(&bt->bt_lock);
		while (!bt->bt_is_leaving &&
		       pthread_cond_timedwait(&bt->bt_cond, &bt->bt_lock, &end) == 0)
			;
		ms = !bt->bt_is_leaving;
		pthread_mutex_unlock(&bt->bt_lock);
		if (!ms)
			break;
	}
	return NULL;
}

int mpl_beat_start(struct mpl_beat *bt, struct mp_pool *core, const char *path)
{
	pthread_condattr_t attr;

	if (!mp_pool_has_beat(core))
		return 0;
	bt->bt_core = core;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_mutex_init(&bt->bt_lock, NULL);
	pthread_cond_init(&bt->bt_cond, &attr);
	pthread_condattr_destroy(&attr);
	bt->bt_is_leaving = 0;
	bt->bt_is_there = !os_thread_start(&bt->bt_thread, beat_thread, bt);
	if (bt->bt_is_there)
		return 0;
	pthread_cond_destroy(&bt->bt_cond);
	pthread_mutex_destroy(&bt->bt_lock);
	return mpl_err(MPL_THREAD, "pool %s: no thread for the heartbeat", path);
}

void mpl_beat_stop(struct mpl_beat *bt)
{
	if (!bt->bt_is_there)
		return;
	pthread_mutex_lock(&bt->bt_lock);
	bt->bt_is_leaving = 1;
	pthread_cond_signal(&bt->bt_cond);
	pthread_mutex_unlock(&bt->bt_lock);
	pthread_join(bt->bt_thread, NULL);
	pthread_cond_destroy(&bt->bt_cond);
	pthread_mutex_destroy(&bt->bt_lock);
	bt->bt_is_there = 0;
}
