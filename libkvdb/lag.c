/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Lag: by when what is logged now will be durable, as far as the devices proved
 * how fast they write. From a quarter of the loss bound on, where an epoch ends,
 * that is a debt: writers meet a slow device as a throttle, before the gate shuts (E4).
 *
 * Only bytes that wait for a device are a debt. Slower writers do not shorten its
 * latency, nor a pause, but what is still to be written then.
 *
 * Locks: none; fl_io_lock for what one epoch took.
 */
#include <math.h>

#include "flush.h"

#define RATE_MAX	4e9
#define PROOF_BYTES	(256u << 10)	/* the time that fewer take is latency, not rate */
#define LEAST_MS	60u	/* a shorter bound is used up by a few sleeps of the throttle */

void kv_lag_init(struct kvdb *db)
{
	atomic_store(&db->d_flusher->fl_lag.lg_rate, KV_LAG_FIRST_RATE);
}

void kv_lag_busy(struct kvdb *db)
{
	struct kv_lag *lg = &db->d_flusher->fl_lag;

	lg->lg_busy_ns = kv_now(db);
	lg->lg_busy_bytes = 0;
}

void kv_lag_written(struct kvdb *db, uint32_t bytes)
{
	struct kv_lag *lg = &db->d_flusher->fl_lag;
	double got;

	lg->lg_busy_bytes += bytes;
	if (lg->lg_is_proven || lg->lg_busy_bytes < PROOF_BYTES)
		return;
	got = (double)lg->lg_busy_bytes * 1e9 / (double)(kv_now(db) - lg->lg_busy_ns + 1);
	if (got > (double)atomic_load(&lg->lg_rate))
		atomic_store(&lg->lg_rate, (uint64_t)fmin(got, RATE_MAX));
}

void kv_lag_begin(struct kvdb *db)
{
	struct kv_lag *lg = &db->d_flusher->fl_lag;

	lg->lg_since_ns = kv_now(db);
	lg->lg_bytes = atomic_load(&db->d_logs->ls_unwritten);
}

/*
 * Falls by a quarter at most: one pause of a device does not say how fast it is. What proves
 * nothing raises it, or who writes little would be slow for ever.
 */
uint64_t kv_lag_rate(uint64_t rate, uint64_t bytes, uint64_t ns)
{
	double least = (double)rate * 0.75, got = (double)bytes * 1e9 / (double)(ns + 1);

	if (bytes < PROOF_BYTES)
		got = (double)rate * 1.0625;
	return (uint64_t)fmin(fmax(got, least), RATE_MAX);
}

void kv_lag_end(struct kvdb *db)
{
	struct kv_lag *lg = &db->d_flusher->fl_lag;

	lg->lg_is_proven |= lg->lg_bytes >= PROOF_BYTES;
	atomic_store(&lg->lg_rate, kv_lag_rate(atomic_load(&lg->lg_rate), lg->lg_bytes,
					       kv_now(db) - lg->lg_since_ns));
}

uint32_t kv_lag_part(uint64_t bound_ns, uint64_t age_ns, uint64_t bytes, uint64_t rate)
{
	uint64_t from = bound_ns / 4, limit = bound_ns - bound_ns / 8, wait, late;
	uint32_t debt = KV_DEBT_MAX, most;

	wait = (uint64_t)((double)bytes * 1e9 / (double)rate);
	late = age_ns + wait;
	if (late <= from)
		return 0;
	if (late < limit)
		debt = kv_throttle_debt((double)rate * (double)(limit - late) /
					(double)(late - from));
	most = kv_debt_part(wait, 0, bound_ns / 8);
	return debt < most ? debt : most;
}

uint32_t kv_lag_debt(struct kvdb *db)
{
	uint64_t rate = atomic_load(&db->d_flusher->fl_lag.lg_rate), now = kv_now(db);
	uint64_t e = atomic_load(&db->d_epoch), birth = atomic_load(&db->d_logs->ls_birth[e % 4]);

	if (!birth || db->d_interval_ms < LEAST_MS || db->d_interval_ms == KVDB_INTERVAL_NONE)
		return 0;
	return kv_lag_part(db->d_interval_ms * 1000000ull, now > birth ? now - birth : 0,
			   atomic_load(&db->d_logs->ls_unwritten), rate);
}
