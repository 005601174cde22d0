/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The throttle: no delay without debt, more with more, never in one leap, each
 * wait short and counted with its cause.
 */
#include "flush.h"
#include "harness.h"
#include "kv.h"
#include "reloc.h"

static uint64_t clock_ns, slept, naps;

static uint64_t now_ns(void *arg)
{
	(void)arg;
	return clock_ns;
}

static void sleep_until(void *arg, uint64_t t)
{
	(void)arg;
	T_OK(t > clock_ns);
	slept += t - clock_ns;
	naps++;
	clock_ns = t;
}

static void fresh(struct kvdb *db, unsigned cause, uint32_t debt)
{
	uint32_t part[KVDB_DELAYS] = { 0 };

	memset(db, 0, sizeof(*db));
	db->d_clock = (struct kvdb_clock){ now_ns, sleep_until, NULL, NULL };
	clock_ns = 1000000000;
	slept = naps = 0;
	part[cause] = debt;
	kv_throttle_set(db, part);
	/* measured just now, for ever: kv_pressure() needs a whole database */
	atomic_store(&db->d_throttle.th_looked, UINT64_MAX / 2);
}

static void debt_is_a_share(void)
{
	T_EQ(kv_debt_part(0, 100, 200), 0);
	T_EQ(kv_debt_part(100, 100, 200), 0);
	T_EQ(kv_debt_part(150, 100, 200), KV_DEBT_MAX / 2);
	T_EQ(kv_debt_part(200, 100, 200), KV_DEBT_MAX);
	T_EQ(kv_debt_part(UINT64_MAX, 100, 200), KV_DEBT_MAX);
	T_EQ(kv_debt_part(5, 7, 7), 0);
}

static void cost_grows_with_debt_and_never_leaps(void)
{
	uint32_t last = kv_throttle_cost(0);

	T_EQ(last, 0);
	for (uint32_t d = 1; d <= KV_DEBT_MAX + 10; d++) {
		uint32_t cost = kv_throttle_cost(d);

		T_OK(cost >= last && cost > 0);
		/* near the limit a thousandth is a large part of what is left */
		T_OK(d < 2 || d > 900 || cost <= last + last / 20 + 1);
		last = cost;
	}
	/* a KiB costs less than half a microsecond at first, about a millisecond at last */
	T_OK(kv_throttle_cost(1) < 500);
	T_OK(last > 500000 && last < 2000000);
}

static void writes_go_at_the_permitted_rate(void)
{
	static const uint32_t debts[] = { 100, 500, 700, 900, 990 };
	struct kvdb db;

	for (unsigned i = 0; i < 5; i++) {
		uint64_t cost = kv_throttle_cost(debts[i]), n = 200000000 / cost;

		fresh(&db, KVDB_DELAY_LOG, debts[i]);
		for (uint64_t k = 0; k < n; k++)
			kv_throttle(&db, 1024);
		/* 200 ms worth of writes, of which the clock may be ahead by the shortest nap */
		T_OK(slept >= 200000000 - 2 * cost - 100000 && slept <= 201000000);
		T_EQ(atomic_load(&db.d_throttle.th_delay[KVDB_DELAY_LOG].de_waits), naps);
		T_EQ(atomic_load(&db.d_throttle.th_delay[KVDB_DELAY_LOG].de_ns), slept);
		T_OK(atomic_load(&db.d_throttle.th_delay[KVDB_DELAY_LOG].de_max_ns) <= 10000000);
		T_OK(slept / naps >= 50000);
	}
}

static void without_debt_nothing_is_charged(void)
{
	struct kvdb db;

	fresh(&db, KVDB_DELAY_MEMORY, 0);
	T_EQ(atomic_load(&db.d_throttle.th_cost), 0);
	for (unsigned i = 0; i < 1000; i++)
		kv_throttle(&db, 1 << 20);
	T_EQ(naps, 0);
}

static void one_wait_is_short_however_large_the_write(void)
{
	struct kvdb db;

	fresh(&db, KVDB_DELAY_MEMORY, KV_DEBT_MAX);
	for (unsigned i = 0; i < 10; i++) {
		uint64_t before = clock_ns;

		kv_throttle(&db, 1 << 20);
		T_OK(clock_ns - before <= 10000000);
	}
	T_EQ(naps, 9);	/* the first goes at once */
}

/* Others book without end: the place that was given stays. */
static void who_cannot_wait_is_charged_once_and_keeps_his_place(void)
{
	struct kv_delay *de;
	struct kvdb db;
	uint64_t due = 0, first;

	fresh(&db, KVDB_DELAY_RUNS, 900);
	T_OK(kv_throttle_begun(&db, 1 << 20, &due));
	T_EQ(due, clock_ns);
	first = atomic_load(&db.d_throttle.th_next);
	due = 0;
	T_OK(!kv_throttle_begun(&db, 1 << 20, &due));
	T_OK(due > clock_ns && due <= clock_ns + 10000000);
	T_OK(atomic_load(&db.d_throttle.th_next) > first);
	first = due;
	while (clock_ns < first) {
		T_OK(!kv_throttle_begun(&db, 1 << 20, &due));
		kv_throttle(&db, 1 << 20);
	}
	T_EQ(due, first);
	T_OK(atomic_load(&db.d_throttle.th_next) > clock_ns + 10000000);
	T_OK(kv_throttle_begun(&db, 1 << 20, &due));
	de = &db.d_throttle.th_delay[KVDB_DELAY_RUNS];
	T_EQ(atomic_load(&de->de_waits), naps + 1);
	T_EQ(atomic_load(&de->de_ns), slept + first - 1000000000);
}

static void space_is_a_debt_from_its_bound_on(void)
{
	struct kvdb db = { 0 };

	T_EQ(kv_space_debt(1500, 1000, 1.5), 0);
	T_EQ(kv_space_debt(1750, 1000, 1.5), KV_DEBT_MAX / 2);
	T_EQ(kv_space_debt(2000, 1000, 1.5), KV_DEBT_MAX);
	T_EQ(kv_space_debt(5000, 0, 1.5), 0);	/* nobody has counted yet */
	/* no relocation runs: space may be what it wants */
	db.d_clock = (struct kvdb_clock){ now_ns, sleep_until, NULL, NULL };
	T_EQ(kv_reloc_init(&db, 1.5), 0);
	T_EQ(kv_reloc_debt(&db), 0);
	kv_reloc_fini(&db);
}

static void largest_debt_is_the_cause(void)
{
	uint32_t part[KVDB_DELAYS] = { [KVDB_DELAY_MEMORY] = 10, [KVDB_DELAY_RUNS] = 700,
				       [KVDB_DELAY_LOG] = 699 };
	struct kvdb_stats st;
	struct kvdb db;

	fresh(&db, 0, 0);
	kv_throttle_set(&db, part);
	atomic_store(&db.d_throttle.th_looked, UINT64_MAX / 2);
	T_EQ(kv_delay_cause(&db), KVDB_DELAY_RUNS);
	T_EQ(atomic_load(&db.d_throttle.th_cost), kv_throttle_cost(700));
	for (unsigned i = 0; i < 1000; i++)
		kv_throttle(&db, 4096);
	kv_throttle_stats(&db, &st);
	for (unsigned i = 0; i < KVDB_DELAYS; i++) {
		T_EQ(st.delay[i].waits > 0, i == KVDB_DELAY_RUNS);
		T_OK(kvdb_delay_name(i) != NULL);
	}
	T_OK(!kvdb_delay_name(KVDB_DELAYS));
}

int main(void)
{
	T_RUN(debt_is_a_share);
	T_RUN(cost_grows_with_debt_and_never_leaps);
	T_RUN(writes_go_at_the_permitted_rate);
	T_RUN(without_debt_nothing_is_charged);
	T_RUN(one_wait_is_short_however_large_the_write);
	T_RUN(who_cannot_wait_is_charged_once_and_keeps_his_place);
	T_RUN(space_is_a_debt_from_its_bound_on);
	T_RUN(largest_debt_is_the_cause);
	return t_done();
}
