/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The thread that keeps the heartbeat of a pool that hosts share; what a step
 * is knows the core (kmod/core/own.c). It is there from open to close, and
 * before close it ends: the core then says that this host has gone.
 *
 * Locks: us_beat_lock guards us_is_leaving, nothing else.
 */
#include <errno.h>
#include <time.h>

#include "user.h"

static void after_ms(struct timespec *ts, uint32_t ms)
{
	clock_gettime(CLOCK_MONOTONIC, ts);
	ts->tv_sec += ms / 1000u;
	ts->tv_nsec += (long)(ms % 1000u) * 1000000;
	if (ts->tv_nsec >= 1000000000) {
		ts->tv_sec++;
		ts->tv_nsec -= 1000000000;
	}
}

static void *beat_thread(void *arg)
{
	struct mpl_user *us = arg;
	struct timespec end;
	uint32_t ms;

	while ((ms = mp_pool_beat(us->us_core)) != 0) {
		after_ms(&end, ms);
		pthread_mutex_lock(&us->us_beat_lock);
		while (!us->us_is_leaving &&
		       pthread_cond_timedwait(&us->us_beat_cond, &us->us_beat_lock, &end) == 0)
			;
		ms = !us->us_is_leaving;
		pthread_mutex_unlock(&us->us_beat_lock);
		if (!ms)
			break;
	}
	return NULL;
}

int mpl_beat_start(struct mpl_user *us)
{
	pthread_condattr_t attr;

	if (!mp_pool_has_beat(us->us_core))
		return 0;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_mutex_init(&us->us_beat_lock, NULL);
	pthread_cond_init(&us->us_beat_cond, &attr);
	pthread_condattr_destroy(&attr);
	us->us_is_leaving = 0;
	us->us_has_beat = !os_thread_start(&us->us_beat_thread, beat_thread, us);
	if (us->us_has_beat)
		return 0;
	pthread_cond_destroy(&us->us_beat_cond);
	pthread_mutex_destroy(&us->us_beat_lock);
	return mpl_err_as(MPL_MEMBER, -EAGAIN, "pool %s: no thread for the heartbeat",
			  us->us_pool.mp_path);
}

void mpl_beat_stop(struct mpl_user *us)
{
	if (!us->us_has_beat)
		return;
	pthread_mutex_lock(&us->us_beat_lock);
	us->us_is_leaving = 1;
	pthread_cond_signal(&us->us_beat_cond);
	pthread_mutex_unlock(&us->us_beat_lock);
	pthread_join(us->us_beat_thread, NULL);
	pthread_cond_destroy(&us->us_beat_cond);
	pthread_mutex_destroy(&us->us_beat_lock);
	us->us_has_beat = 0;
}
