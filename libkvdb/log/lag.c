/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Lag: by when what is logged now will be durable, as far as the devices proved
 * how fast they write. From one and a half times what an epoch lasts on (TH-9)
 * that is a debt: writers meet a slow device as a throttle, before the gate shuts (E4).
 *
 * Only bytes that wait for a device are a debt. Slower writers do not shorten its
 * latency, nor a pause, but what is still to be written then. So epochs are short in a load
 * (TH-12): a pause of 75 ms leaves the gate open; epochs of a quarter of the bound shut it for 16
 * to 53 ms.
 *
 * Locks: none; fl_io_lock for what one epoch took.
 */
#include <math.h>

#include "log/flush.h"

#define RATE_MAX	4e9
#define PROOF_BYTES	(256u << 10)	/* the time that fewer take is latency, not rate */
#define LEAST_MS	60u	/* a shorter bound is used up by a few sleeps of the throttle */
#define FLUSH_SHARE	8u	/* an epoch lasts as many flushes, so that devices seldom rest */
#define FLUSH_RISE	50000u	/* ns, added to twice the estimate: a pause is not a slow device */

void kv_lag_init(struct kvdb *db)
{
	atomic_store(&db->d_flusher->fl_lag.lg_rate, KV_LAG_FIRST_RATE);
}

uint64_t kv_lag_least(struct kvdb *db)
{
	return (uint64_t)db->d_budget.b_logs * db->d_budget.b_frame_max;
}

uint64_t kv_lag_span(uint64_t bound_ns, uint64_t flush_ns, uint64_t least, uint64_t rate)
{
	uint64_t span = bound_ns / 32, write = (uint64_t)((double)least * 1e9 / (double)rate);

	if (span < flush_ns * FLUSH_SHARE)
		span = flush_ns * FLUSH_SHARE;
	if (span < write)
		span = write;
	return span < bound_ns / 4 ? span : bound_ns / 4;
}

uint64_t kv_lag_epoch_ns(struct kvdb *db)
{
	struct kv_lag *lg = &db->d_flusher->fl_lag;

	return kv_lag_span(db->d_mode.md_interval_ms * 1000000ull, atomic_load(&lg->lg_flush_ns),
			   kv_lag_least(db), atomic_load(&lg->lg_rate));
}

uint64_t kv_lag_flush(uint64_t flush_ns, uint64_t ns)
{
	if (ns > 2 * flush_ns + FLUSH_RISE)
		ns = 2 * flush_ns + FLUSH_RISE;
	return flush_ns - flush_ns / 8 + ns / 8;
}

void kv_lag_flushed(struct kvdb *db, uint64_t ns)
{
	_Atomic(uint64_t) *flush_ns = &db->d_flusher->fl_lag.lg_flush_ns;

	atomic_store(flush_ns, kv_lag_flush(atomic_load(flush_ns), ns));
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
 * nothing raises it to what is assumed at first, or a slow writer would be slow for ever; not
 * further: in a pause writers would be let log what the device needs long for when it comes back.
 */
uint64_t kv_lag_rate(uint64_t rate, uint64_t bytes, uint64_t ns)
{
	double least = (double)rate * 0.75, got = (double)bytes * 1e9 / (double)(ns + 1);

	if (bytes < PROOF_BYTES)
		got = fmax((double)rate, fmin((double)rate * 1.0625, KV_LAG_FIRST_RATE));
	return (uint64_t)fmin(fmax(got, least), RATE_MAX);
}

void kv_lag_end(struct kvdb *db, uint64_t epoch)
{
	struct kv_lag *lg = &db->d_flusher->fl_lag;
	uint64_t birth = atomic_load(&db->d_logs->ls_birth[epoch % 4]), now = kv_now(db);
	uint64_t rate = kv_lag_rate(atomic_load(&lg->lg_rate), lg->lg_bytes,
				    now - lg->lg_since_ns), all = 0;

	lg->lg_is_proven |= lg->lg_bytes >= PROOF_BYTES;
	/* whatever waited at its end: all that it logged was written since its birth */
	if (birth && lg->lg_epoch_bytes >= PROOF_BYTES)
		all = kv_lag_rate(0, lg->lg_epoch_bytes, now - birth);
	atomic_store(&lg->lg_rate, rate > all ? rate : all);
}

uint32_t kv_lag_part(uint64_t bound_ns, uint64_t span_ns, uint64_t age_ns, uint64_t bytes,
		     uint64_t rate)
{
	uint64_t from = span_ns * 3 / 2, limit, wait, late;
	uint32_t debt = KV_DEBT_MAX, most;

	if (from > bound_ns / 4)
		from = bound_ns / 4;
	limit = from * 7 / 2;
	wait = (uint64_t)((double)bytes * 1e9 / (double)rate);
	late = age_ns + wait;
	if (late <= from)
		return 0;
	if (late < limit)
		debt = kv_throttle_debt((double)rate * (double)(limit - late) /
					(double)(late - from));
	most = kv_debt_part(wait, 0, bound_ns / 12);
	return debt < most ? debt : most;
}

uint32_t kv_lag_debt(struct kvdb *db)
{
	uint64_t rate = atomic_load(&db->d_flusher->fl_lag.lg_rate), now = kv_now(db);
	uint64_t e = atomic_load(&db->d_epochs.ep_open);
	uint64_t birth = atomic_load(&db->d_logs->ls_birth[e % 4]);

	if (!birth || db->d_mode.md_interval_ms < LEAST_MS ||
	    db->d_mode.md_interval_ms == KVDB_INTERVAL_NONE)
		return 0;
	return kv_lag_part(db->d_mode.md_interval_ms * 1000000ull, kv_lag_epoch_ns(db),
			   now > birth ? now - birth : 0, atomic_load(&db->d_logs->ls_unwritten),
			   rate);
}
