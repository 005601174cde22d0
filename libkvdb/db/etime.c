/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Engine time, by which values expire (R18): milliseconds since 1970 that never
 * go back. At open it is the larger of what was recorded last and the wall
 * clock; from then on it runs with the time since boot, which counts while the
 * machine is suspended, and follows the wall clock where that is ahead: no clock of
 * a virtual machine that was paused counts the pause, and then the wall clock is set.
 *
 * A wall clock that is wrong by years would make everything expire at once, for
 * good: at open a forward jump of more than a day is refused unless it is asked for,
 * and one of more than a week is not followed, but left to the next open.
 *
 * meta/clock.c records it.
 */
#include <errno.h>
#include <time.h>

#include "db/etime.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/guard.h"
#include "db/db.h"

#define MSEC	1000000ull		/* nanoseconds */
#define HOUR_MS	(3600ull * 1000)
#define DAY_MS	(24 * HOUR_MS)
#define FOLLOW_MS (7 * DAY_MS)	/* so far ahead the wall clock is believed while we look on */

static uint64_t wall_ms(struct kvdb *db)
{
	struct timespec ts;

	if (db->d_time.et_clock.wall_ns)
		return db->d_time.et_clock.wall_ns(db->d_time.et_clock.arg) / MSEC;
	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / MSEC;
}

/* Nanoseconds of a clock that counts while the machine is suspended, if it is the system's. */
static uint64_t running_ns(struct kvdb *db)
{
	struct timespec ts;

	if (!db->d_time.et_is_system)
		return kv_now(db);
	clock_gettime(CLOCK_BOOTTIME, &ts);
	return (uint64_t)ts.tv_sec * 1000 * MSEC + (uint64_t)ts.tv_nsec;
}

int kv_time_start(struct kvdb *db, uint64_t last)
{
	uint64_t wall = wall_ms(db);

	if (last && !CHECK(wall <= last + DAY_MS || db->d_mode.md_flags & KVDB_TIME_JUMP))
		return kv_error(-ETIME, "MP0936",
				"the wall clock is %llu hours ahead of the time that this database "
				"recorded last, and values in it expire; if it is right, open "
				"with KVDB_TIME_JUMP",
				(unsigned long long)((wall - last) / (3600 * 1000)));
	db->d_time.et_base = CHECK(wall > last) ? wall : last;
	KV_ASSERT(db->d_time.et_base >= last);
	db->d_time.et_start = running_ns(db);
	atomic_store(&db->d_time.et_used, last != 0);
	atomic_store(&db->d_time.et_is_kept, last != 0);
	atomic_store(&db->d_time.et_due, db->d_time.et_base + HOUR_MS);
	return 0;
}

/* By how much it is ahead of @ms, which it only becomes: of all threads the most counts. */
static uint64_t ahead(struct kvdb *db, uint64_t ms)
{
	uint64_t was = atomic_load_explicit(&db->d_time.et_ahead, memory_order_relaxed), wall;

	/* a clock that a program made up has nothing to do with the system's wall clock */
	if (!db->d_time.et_is_system && !db->d_time.et_clock.wall_ns)
		return 0;
	wall = wall_ms(db);
	if (wall <= ms + was || wall > ms + was + FOLLOW_MS)
		return was;
	while (was < wall - ms &&
	       !atomic_compare_exchange_weak(&db->d_time.et_ahead, &was, wall - ms))
		;
	return was < wall - ms ? wall - ms : was;
}

uint64_t kv_time_ms(struct kvdb *db)
{
	uint64_t ms = db->d_time.et_base;

	if (!ms)	/* being checked, not opened: nothing expires */
		return 0;
	ms += (running_ns(db) - db->d_time.et_start) / MSEC;
	return ms + ahead(db, ms);
}

/* What expires has a stamp after et_used was set: a view that sees it finds that set. */
uint64_t kv_time_of_view(struct kvdb *db)
{
	return atomic_load(&db->d_time.et_used) ? kv_time_ms(db) : 0;
}

uint64_t kv_expiry(struct kvdb *db, uint64_t ttl_s)
{
	return kv_time_ms(db) + ttl_s * 1000;
}
