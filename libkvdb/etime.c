/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Engine time, by which values expire (R18): milliseconds since 1970 that never
 * go back. At open it is the larger of what was recorded last and the wall
 * clock; from then on it runs with the monotonic clock, so somebody who sets
 * the wall clock changes nothing in a database that is open.
 *
 * A wall clock that is wrong by years would make everything expire at once, for
 * good: a forward jump of more than a day is refused unless it is asked for.
 *
 * The time is recorded before anything that depends on it can be durable: with
 * each flush of a database that knows expiry, with a store's time to live, and
 * at close. An idle database records it too: who opens one of its checkpoints
 * must not take the days that passed for a jump.
 */
#include <errno.h>
#include <time.h>

#include "mdc.h"

#define MSEC	1000000ull		/* nanoseconds */
#define HOUR_MS	(3600ull * 1000)
#define DAY_MS	(24 * HOUR_MS)

static uint64_t wall_ms(struct kvdb *db)
{
	struct timespec ts;

	if (db->d_clock.wall_ns)
		return db->d_clock.wall_ns(db->d_clock.arg) / MSEC;
	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / MSEC;
}

int kv_time_start(struct kvdb *db)
{
	uint64_t last = db->d_mdc->m_st.st_time, wall = wall_ms(db);

	if (last && !CHECK(492, wall <= last + DAY_MS || db->d_flags & KVDB_TIME_JUMP))
		return kv_error(-ETIME, "MP0936",
				"the wall clock is %llu hours ahead of the time that this database "
				"recorded last, and values in it expire; if it is right, open "
				"with KVDB_TIME_JUMP",
				(unsigned long long)((wall - last) / (3600 * 1000)));
	db->d_time_base = CHECK(493, wall > last) ? wall : last;
	db->d_time_mono = kv_now(db);
	atomic_store(&db->d_time_used, last != 0);
	atomic_store(&db->d_time_is_kept, last != 0);
	atomic_store(&db->d_time_due, db->d_time_base + HOUR_MS);
	return 0;
}

uint64_t kv_time_at(struct kvdb *db, uint64_t now_ns)
{
	return db->d_time_base + (now_ns - db->d_time_mono) / MSEC;
}

uint64_t kv_time_ms(struct kvdb *db)
{
	if (!db->d_time_base)	/* being checked, not opened: nothing expires */
		return 0;
	return kv_time_at(db, kv_now(db));
}

int kv_time_keep(struct kvdb *db)
{
	int err;

	if (KV_LIKELY(atomic_load_explicit(&db->d_time_is_kept, memory_order_acquire)))
		return 0;
	err = kv_may_change(db);
	if (err)
		return err;
	atomic_store(&db->d_time_used, true);
	err = kv_mdc_time(db);
	if (!err)
		atomic_store_explicit(&db->d_time_is_kept, true, memory_order_release);
	return err;
}

uint64_t kv_expiry(struct kvdb *db, uint64_t ttl_s)
{
	return kv_time_ms(db) + ttl_s * 1000;
}

int kv_time_step(struct kvdb *db)
{
	uint64_t due = atomic_load(&db->d_time_due), now;

	if (!atomic_load(&db->d_time_used))
		return 0;
	now = kv_time_ms(db);
	if (now < due || !atomic_compare_exchange_strong(&db->d_time_due, &due, now + HOUR_MS))
		return 0;
	return kv_mdc_time(db);
}
