/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Engine time (R18) is recorded before anything that depends on it can be durable: with
 * each flush of a database that knows expiry, with a store's time to live, and
 * at close. An idle database records it too: an open of one of its checkpoints
 * must not take the days that passed for a jump.
 */
#include "db/db.h"
#include "base/assert.h"
#include "db/etime.h"
#include "meta/mdc.h"

#define HOUR_MS	(3600ull * 1000)

int kv_time_keep(struct kvdb *db)
{
	int err;

	KV_ASSERT_OUTSIDE();
	if (KV_LIKELY(atomic_load_explicit(&db->d_time.et_is_kept, memory_order_acquire)))
		return 0;
	err = kv_may_change(db);
	if (err)
		return err;
	atomic_store(&db->d_time.et_used, true);
	err = kv_mdc_time(db);
	if (!err)
		atomic_store_explicit(&db->d_time.et_is_kept, true, memory_order_release);
	return err;
}

int kv_time_step(struct kvdb *db)
{
	uint64_t due = atomic_load(&db->d_time.et_due), now;

	if (!atomic_load(&db->d_time.et_used))
		return 0;
	now = kv_time_ms(db);
	if (now < due || !atomic_compare_exchange_strong(&db->d_time.et_due, &due, now + HOUR_MS))
		return 0;
	return kv_mdc_time(db);
}
