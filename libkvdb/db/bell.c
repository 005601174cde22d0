/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Bells: any part rings when there may be work, the threads of work.c sleep until one is rung.
 * A ring is counted, so none is lost between a thread's look for work and its sleep.
 *
 * Lock: wk_lock, alone and for a moment.
 */
#include <errno.h>
#include <time.h>

#include "db/bell.h"
#include "base/assert.h"
#include "base/guard.h"
#include "db/db.h"

#define RETRY_MS	100u
#define TRIES		4u	/* of what a device failed */

void kv_bells_init(struct kv_work *wk)
{
	pthread_condattr_t ca;

	pthread_condattr_init(&ca);
	pthread_condattr_setclock(&ca, CLOCK_MONOTONIC);
	pthread_cond_init(&wk->wk_keep.bl_cond, &ca);
	pthread_cond_init(&wk->wk_merge.bl_cond, &ca);
	pthread_cond_init(&wk->wk_supply.bl_cond, &ca);
	pthread_cond_init(&wk->wk_grow.bl_cond, &ca);
	pthread_condattr_destroy(&ca);
	pthread_mutex_init(&wk->wk_lock, NULL);
}

void kv_bells_fini(struct kv_work *wk)
{
	KV_ASSERT(!wk->wk_n);
	pthread_cond_destroy(&wk->wk_keep.bl_cond);
	pthread_cond_destroy(&wk->wk_merge.bl_cond);
	pthread_cond_destroy(&wk->wk_supply.bl_cond);
	pthread_cond_destroy(&wk->wk_grow.bl_cond);
	pthread_mutex_destroy(&wk->wk_lock);
}

bool kv_work_stopping(struct kvdb *db)
{
	struct kv_work *wk = db->d_bg.bd_work;

	return wk && atomic_load_explicit(&wk->wk_stop, memory_order_relaxed);
}

/* wk_lock held */
static void ring(struct kv_bell *bl)
{
	bl->bl_rings++;
	pthread_cond_broadcast(&bl->bl_cond);
}

/* wk_lock held */
static void ring_all(struct kv_work *wk)
{
	KV_ASSERT_HELD(&wk->wk_lock);
	ring(&wk->wk_keep);
	ring(&wk->wk_merge);
	ring(&wk->wk_supply);
	ring(&wk->wk_grow);
}

void kv_bells_ring(struct kv_work *wk)
{
	pthread_mutex_lock(&wk->wk_lock);
	ring_all(wk);
	pthread_mutex_unlock(&wk->wk_lock);
}

void kv_work_kick(struct kvdb *db)
{
	struct kv_work *wk = db->d_bg.bd_work;

	if (wk && wk->wk_n)
		kv_bells_ring(wk);
}

void kv_work_tick(struct kvdb *db)
{
	struct kv_work *wk = db->d_bg.bd_work;
	uint64_t now = kv_now(db);

	if (!wk || !wk->wk_n)
		return;
	pthread_mutex_lock(&wk->wk_lock);
	if (now - wk->wk_all_ns >= kv_quarter_ns(db)) {
		wk->wk_all_ns = now;
		ring_all(wk);
	} else {
		ring(&wk->wk_keep);
	}
	pthread_mutex_unlock(&wk->wk_lock);
}

void kv_bell_ring(struct kv_work *wk, struct kv_bell *bl)
{
	if (!wk->wk_n)
		return;
	pthread_mutex_lock(&wk->wk_lock);
	ring(wk->wk_is_one ? &wk->wk_keep : bl);
	pthread_mutex_unlock(&wk->wk_lock);
}

void kv_supplier_kick(struct kvdb *db)
{
	if (db->d_bg.bd_work)
		kv_bell_ring(db->d_bg.bd_work, &db->d_bg.bd_work->wk_supply);
}

void kv_grower_kick(struct kvdb *db)
{
	if (db->d_bg.bd_work)
		kv_bell_ring(db->d_bg.bd_work, &db->d_bg.bd_work->wk_grow);
}

bool kv_retry_allowed(struct kvdb *db, int err, unsigned *tries)
{
	struct timespec ts = { .tv_nsec = 10000000l << *tries };

	KV_ASSERT_OUTSIDE();
	if (CHECK(err != -EIO) || ++*tries >= TRIES || !kv_is_local(db, err))
		return false;
	if (db->d_bg.bd_work && db->d_bg.bd_work->wk_n)
		nanosleep(&ts, NULL);
	return true;
}

void kv_bell_sleep(struct kv_work *wk, struct kv_bell *bl, uint64_t *seen)
{
	struct timespec ts;

	KV_ASSERT_OUTSIDE();
	pthread_mutex_lock(&wk->wk_lock);
	if (bl->bl_rings == *seen && !atomic_load(&wk->wk_stop)) {
		clock_gettime(CLOCK_MONOTONIC, &ts);
		ts.tv_nsec += RETRY_MS * 1000000l;
		if (ts.tv_nsec >= 1000000000l) {
			ts.tv_nsec -= 1000000000l;
			ts.tv_sec++;
		}
		pthread_cond_timedwait(&bl->bl_cond, &wk->wk_lock, &ts);
	}
	*seen = bl->bl_rings;
	pthread_mutex_unlock(&wk->wk_lock);
}
