/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The throttle: writers are slowed smoothly, before anything is full.
 *
 * Debt is how far background work is behind, in thousandths, one part per
 * cause. The largest part alone sets the rate that is permitted, by a cubic:
 * almost nothing at a small debt, steep near the limit, so that the rate
 * settles where background work keeps up. It starts unthrottled: without debt
 * the write path looks at two words and goes on.
 *
 * There is one rate for all writers, and one for those of each store: a debt that a store makes
 * is charged to that store (TH-17). A write pays the dearer one, and on that clock alone.
 *
 * The permitted bytes of a rate are handed out on a virtual clock, to_next: a write
 * moves it on by its cost and may go when the clock was not ahead of time. A writer
 * that is due in less than SLEEP_MIN does not sleep, the clock remembers it; none
 * sleeps longer than SLEEP_MAX, beyond which the next booking sets the clock back. What is
 * beyond every budget stops writers (kv_stall_wait()), as does a full pool.
 * A write in a queue cannot sleep: it books once, and comes back when it is due;
 * otherwise those that sleep would always be ahead of it.
 *
 * Every wait of a writer is counted with its cause, here.
 *
 * Locks: none; each field of struct kv_toll is one word. kv_pressure()
 * (pressure.c) measures the debt.
 */
#include <math.h>

#include "db/db.h"
#include "base/assert.h"
#include "db/hooks.h"
#include "db/waits.h"

#define SLEEP_MIN	50000u		/* ns */
#define SLEEP_MAX	10000000u	/* ns */
#define RATE_MAX	4000000000ull	/* bytes per second permitted at the first sign of debt */
#define RATE_MIN	1000000ull	/* at the last */
#define LOOK_EVERY	1000000u	/* ns between measurements by writers */

const char *kvdb_delay_name(unsigned cause)
{
	static const char *const name[KVDB_WAITS] = {
		[KVDB_DELAY_MEMORY] = "memory", [KVDB_DELAY_FROZEN] = "frozen",
		[KVDB_DELAY_LOG] = "log",	[KVDB_DELAY_RUNS] = "runs",
		[KVDB_DELAY_SPACE] = "space",	[KVDB_DELAY_SEGMENT] = "segment",
		[KVDB_DELAY_GATE] = "gate",	[KVDB_DELAY_KEY] = "key",
		[KVDB_DELAY_IMAGE] = "image",	[KVDB_DELAY_FRAME] = "frame",
		[KVDB_DELAY_STAGING] = "staging", [KVDB_DELAY_READ] = "read",
		[KVDB_DELAY_DURABLE] = "durable", [KVDB_DELAY_WORK] = "work",
		[KVDB_DELAY_MEDIA] = "media",
	};

	return cause < KVDB_WAITS ? name[cause] : NULL;
}

uint32_t kv_debt_part(uint64_t have, uint64_t from, uint64_t limit)
{
	if (have <= from || limit <= from)
		return 0;
	return have >= limit ? KV_DEBT_MAX :
			       (uint32_t)((have - from) * KV_DEBT_MAX / (limit - from));
}

uint32_t kv_throttle_cost(uint32_t debt)
{
	uint64_t left = KV_DEBT_MAX - (debt < KV_DEBT_MAX ? debt : KV_DEBT_MAX), rate;

	if (!debt)
		return 0;
	rate = RATE_MAX / KV_DEBT_MAX * left / KV_DEBT_MAX * left / KV_DEBT_MAX * left;
	if (rate < RATE_MIN)
		rate = RATE_MIN;
	return (uint32_t)(1024u * 1000000000ull / rate);
}

uint32_t kv_throttle_debt(double rate)
{
	double left = cbrt(rate / (double)RATE_MAX);

	return left < 1 ? (uint32_t)((1 - left) * KV_DEBT_MAX) : 0;
}

void kv_toll_set(struct kv_toll *to, const uint32_t part[KVDB_DELAYS])
{
	unsigned worst = 0;

	for (unsigned i = 1; i < KVDB_DELAYS; i++)
		if (part[i] > part[worst])
			worst = i;
	atomic_store_explicit(&to->to_cause, worst, memory_order_relaxed);
	atomic_store_explicit(&to->to_cost, kv_throttle_cost(part[worst]), memory_order_relaxed);
}

struct kv_toll *kv_toll_of(struct kvdb *db, struct kvdb_kvs *kvs)
{
	struct kv_toll *all = &db->d_throttle.th_all;

	return atomic_load_explicit(&kvs->k_toll.to_cost, memory_order_relaxed) >
		       atomic_load_explicit(&all->to_cost, memory_order_relaxed) ? &kvs->k_toll :
										   all;
}

void kv_postponed(struct kvdb *db, unsigned cause, uint64_t ns)
{
	struct kv_delay *de = &db->d_throttle.th_delay[cause];
	uint64_t max = atomic_load_explicit(&de->de_max_ns, memory_order_relaxed);

	KV_ASSERT(cause < KVDB_DELAYS);
	atomic_fetch_add_explicit(&de->de_waits, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&de->de_ns, ns, memory_order_relaxed);
	while (ns > max && !atomic_compare_exchange_weak(&de->de_max_ns, &max, ns))
		;
}

void kv_delayed(struct kvdb *db, unsigned cause, uint64_t ns)
{
	kv_postponed(db, cause, ns);
	kv_waited(cause, ns);
}

unsigned kv_delay_cause(struct kvdb *db)
{
	return atomic_load_explicit(&db->d_throttle.th_all.to_cause, memory_order_relaxed);
}

static unsigned cause_of(const struct kv_toll *to)
{
	return atomic_load_explicit(&to->to_cause, memory_order_relaxed);
}

/* Books @bytes; when the writer may go, ns: @now if at once. */
static uint64_t book(struct kv_toll *to, uint32_t bytes, uint64_t now)
{
	uint64_t cost = atomic_load_explicit(&to->to_cost, memory_order_relaxed), next, from;

	cost = cost * bytes / 1024u;
	next = atomic_load_explicit(&to->to_next, memory_order_relaxed);
	do {
		from = next < now ? now : next;
		if (from > now + SLEEP_MAX)
			from = now + SLEEP_MAX;
	} while (!atomic_compare_exchange_weak(&to->to_next, &next, from + cost));
	return from - now < SLEEP_MIN ? now : from;
}

void kv_throttle_look(struct kvdb *db, uint64_t now)
{
	struct kv_throttle *th = &db->d_throttle;
	uint64_t looked = atomic_load_explicit(&th->th_looked, memory_order_relaxed);

	if (now - looked > LOOK_EVERY && now > looked &&
	    atomic_compare_exchange_strong(&th->th_looked, &looked, now))
		db->d_hooks->ho_pressure(db);
}

void kv_throttle(struct kvdb *db, struct kv_toll *to, uint32_t bytes)
{
	uint64_t now, due;
	unsigned cause;

	KV_ASSERT_OUTSIDE();
	if (kv_is_manual(db))
		return;		/* no thread works while we sleep */
	now = kv_now(db);
	due = book(to, bytes, now);
	if (due == now)
		return;
	cause = cause_of(to);
	db->d_time.et_clock.sleep_until_ns(db->d_time.et_clock.arg, due);
	due = kv_now(db);
	kv_delayed(db, cause, due - now);
	kv_throttle_look(db, due);
}

bool kv_throttle_begun(struct kvdb *db, struct kv_toll *to, uint32_t bytes, uint64_t *due_ns)
{
	uint64_t now;

	if (kv_is_manual(db))
		return true;
	now = kv_now(db);
	if (!*due_ns) {
		*due_ns = book(to, bytes, now);
		if (*due_ns > now)
			kv_postponed(db, cause_of(to), *due_ns - now);
	}
	return now >= *due_ns;
}

void kv_throttle_stats(struct kvdb *db, struct kvdb_stats *st)
{
	for (unsigned i = 0; i < KVDB_DELAYS; i++) {
		struct kv_delay *de = &db->d_throttle.th_delay[i];

		st->delay[i].waits = atomic_load(&de->de_waits);
		st->delay[i].ns = atomic_load(&de->de_ns);
		st->delay[i].max_ns = atomic_load(&de->de_max_ns);
	}
}
