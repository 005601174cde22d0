/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The throttle: no delay without debt, more with more, never in one leap, each
 * wait short and counted with its cause.
 */
#include "log/flush.h"
#include "harness.h"
#include "compact/reloc.h"

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
	db->d_time.et_clock = (struct kvdb_clock){ now_ns, sleep_until, NULL, NULL };
	clock_ns = 1000000000;
	slept = naps = 0;
	part[cause] = debt;
	kv_toll_set(&db->d_throttle.th_all, part);
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
			kv_throttle(&db, &db.d_throttle.th_all, 1024);
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
	T_EQ(atomic_load(&db.d_throttle.th_all.to_cost), 0);
	for (unsigned i = 0; i < 1000; i++)
		kv_throttle(&db, &db.d_throttle.th_all, 1 << 20);
	T_EQ(naps, 0);
}

static void one_wait_is_short_however_large_the_write(void)
{
	struct kvdb db;

	fresh(&db, KVDB_DELAY_MEMORY, KV_DEBT_MAX);
	for (unsigned i = 0; i < 10; i++) {
		uint64_t before = clock_ns;

		kv_throttle(&db, &db.d_throttle.th_all, 1 << 20);
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
	T_OK(kv_throttle_begun(&db, &db.d_throttle.th_all, 1 << 20, &due));
	T_EQ(due, clock_ns);
	first = atomic_load(&db.d_throttle.th_all.to_next);
	due = 0;
	T_OK(!kv_throttle_begun(&db, &db.d_throttle.th_all, 1 << 20, &due));
	T_OK(due > clock_ns && due <= clock_ns + 10000000);
	T_OK(atomic_load(&db.d_throttle.th_all.to_next) > first);
	first = due;
	while (clock_ns < first) {
		T_OK(!kv_throttle_begun(&db, &db.d_throttle.th_all, 1 << 20, &due));
		kv_throttle(&db, &db.d_throttle.th_all, 1 << 20);
	}
	T_EQ(due, first);
	T_OK(atomic_load(&db.d_throttle.th_all.to_next) > clock_ns + 10000000);
	T_OK(kv_throttle_begun(&db, &db.d_throttle.th_all, 1 << 20, &due));
	de = &db.d_throttle.th_delay[KVDB_DELAY_RUNS];
	T_EQ(atomic_load(&de->de_waits), naps + 1);
	T_EQ(atomic_load(&de->de_ns), slept + first - 1000000000);
}

/*
 * Writers that want @pace bytes per second while a job counts for @count_s and moves @todo at
 * @rate: what they log until it ends, and the least and most that they may in a 20th second.
 */
struct race {
	double rc_logged, rc_least, rc_most;
};

static struct race race(struct kv_pacer *pc, uint64_t room, double pace, double count_s,
			double todo, double rate, bool usual)
{
	struct race rc = { .rc_least = pace };
	double done = 0;
	uint64_t began = clock_ns;

	kv_pacer_begin(pc, room, 7777, clock_ns);
	for (bool moves = false; done < todo; clock_ns += 50000000) {
		uint32_t cost = kv_throttle_cost(kv_pacer_debt(pc, 7777 + (uint64_t)rc.rc_logged,
							       clock_ns));
		double may = cost ? 1024e9 / cost : pace;

		may = may < pace ? may : pace;
		rc.rc_least = may < rc.rc_least ? may : rc.rc_least;
		rc.rc_most = may > rc.rc_most ? may : rc.rc_most;
		rc.rc_logged += may / 20;
		if (!moves && (double)(clock_ns - began) >= count_s * 1e9) {
			kv_pacer_moves(pc, room, (uint64_t)todo, clock_ns);
			moves = true;
		} else if (moves) {
			kv_pacer_moved(pc, (uint64_t)(rate / 20));
			done += rate / 20;
		}
	}
	kv_pacer_end(pc, clock_ns, usual);
	T_EQ(kv_pacer_debt(pc, 1ull << 40, clock_ns), 0);
	return rc;
}

static void writers_and_a_job_for_space_end_together(void)
{
	struct kv_pacer pc = { 0 };
	struct race rc;

	T_EQ(kv_pacer_debt(&pc, 1 << 30, clock_ns), 0);
	/* how long the first one takes is not known: what room is left is the measure, */
	rc = race(&pc, 40 << 20, 45e6, 1, 160e6, 40e6, true);
	T_OK(rc.rc_logged > 30e6 && rc.rc_logged < 1.125 * (40 << 20));
	/* then all of them go evenly, whatever it took to move everything once, */
	race(&pc, 400 << 20, 45e6, 9, 1600e6, 40e6, false);
	rc = race(&pc, 40 << 20, 45e6, 1, 160e6, 40e6, true);
	T_OK(rc.rc_logged > 33e6 && rc.rc_logged < (40 << 20));
	T_OK(rc.rc_least > 0.75 * 42e6 / 5 && rc.rc_most < 1.35 * 42e6 / 5);
	/* as fast as they like, if it is soon done, */
	rc = race(&pc, 400 << 20, 45e6, 1, 160e6, 40e6, true);
	T_EQ((uint64_t)rc.rc_least, 45000000);
	/* and not much further if it takes four times as long as the one before */
	rc = race(&pc, 40 << 20, 45e6, 4, 640e6, 40e6, true);
	T_OK(rc.rc_logged < 1.33 * (40 << 20) && rc.rc_least >= 1e6);
}

static void space_has_room_for_writers_until_twice_its_excess(void)
{
	struct kvdb db = { 0 };

	T_EQ(kv_pacer_room(1700, 1000, 1.5), 300);
	T_EQ(kv_pacer_room(1400, 1000, 1.5), 600);
	/* a job that began too late lets no writer stand still, */
	T_EQ(kv_pacer_room(5000, 1000, 1.5), 62);
	/* and nothing is asked for before the first count */
	T_EQ(kv_pacer_room(5000, 0, 1.5), 0);
	/* no relocation runs: space may be what it wants */
	db.d_time.et_clock = (struct kvdb_clock){ now_ns, sleep_until, NULL, NULL };
	T_EQ(kv_reloc_init(&db, 1.5), 0);
	db.d_logs = calloc(1, sizeof(*db.d_logs));
	T_EQ(kv_reloc_debt(&db), 0);
	free(db.d_logs);
	kv_reloc_fini(&db);
}

static void largest_debt_is_the_cause(void)
{
	uint32_t part[KVDB_DELAYS] = { [KVDB_DELAY_MEMORY] = 10, [KVDB_DELAY_RUNS] = 700,
				       [KVDB_DELAY_LOG] = 699 };
	struct kvdb_stats st;
	struct kvdb db;

	fresh(&db, 0, 0);
	kv_toll_set(&db.d_throttle.th_all, part);
	atomic_store(&db.d_throttle.th_looked, UINT64_MAX / 2);
	T_EQ(kv_delay_cause(&db), KVDB_DELAY_RUNS);
	T_EQ(atomic_load(&db.d_throttle.th_all.to_cost), kv_throttle_cost(700));
	for (unsigned i = 0; i < 1000; i++)
		kv_throttle(&db, &db.d_throttle.th_all, 4096);
	kv_throttle_stats(&db, &st);
	for (unsigned i = 0; i < KVDB_DELAYS; i++) {
		T_EQ(st.delay[i].waits > 0, i == KVDB_DELAY_RUNS);
		T_OK(kvdb_delay_name(i) != NULL);
	}
	for (unsigned i = KVDB_DELAYS; i < KVDB_WAITS; i++)
		T_OK(kvdb_delay_name(i) != NULL);
	T_OK(!kvdb_delay_name(KVDB_WAITS));
}

/* ---- how far the log is behind (TH-9) ---- */

#define MS	1000000ull
#define BOUND	(100 * MS)
#define GATE	(BOUND - BOUND / 16)

#define SPAN	(BOUND / 6)	/* the debt begins at a quarter of the bound */

static void only_bytes_that_wait_use_the_bound_up(void)
{
	const uint64_t rate = 100000000;	/* 100 bytes in a microsecond */
	uint32_t last = 0;

	/* a device that is slow to answer, or stands still: no writer can help */
	T_EQ(kv_lag_part(BOUND, SPAN, GATE, 0, rate), 0);
	T_EQ(kv_lag_part(BOUND, SPAN, 10 * GATE, 0, rate), 0);
	/* what is durable in time is no debt */
	T_EQ(kv_lag_part(BOUND, SPAN, 15 * MS, 1000000, rate), 0);
	for (uint64_t age = 0; age <= GATE; age += MS) {
		uint32_t debt = kv_lag_part(BOUND, SPAN, age, 2000000, rate);

		T_OK(debt >= last);
		/* the sooner an epoch may end, the sooner it is late */
		T_OK(kv_lag_part(BOUND, SPAN / 4, age, 2000000, rate) >= debt);
		T_EQ(kv_lag_part(BOUND, BOUND, age, 2000000, rate), debt);
		last = debt;
	}
	/* all of it before the gate is shut */
	T_EQ(kv_lag_part(BOUND, SPAN, GATE - 25 * MS, 2000000, rate), KV_DEBT_MAX);
}

static void a_device_is_as_fast_as_it_proves(void)
{
	uint64_t rate = kv_lag_rate(100000000, 10000000, 10 * MS);

	T_OK(rate > 999000000 && rate < 1001000000);
	/* a pause is no proof */
	T_EQ(kv_lag_rate(rate, 1 << 20, 500 * MS), rate * 3 / 4);
	/* nor are few bytes; a store that rests is not slow for ever */
	T_EQ(kv_lag_rate(rate, 4096, 500 * MS), rate);
	rate = 1000000;
	T_OK(kv_lag_rate(rate, 4096, 500 * MS) > rate);
	for (unsigned i = 0; i < 1000; i++)
		rate = kv_lag_rate(rate, 0, 0);
	T_EQ(rate, KV_LAG_FIRST_RATE);
}

static void an_epoch_is_as_short_as_its_device_allows(void)
{
	const uint64_t least = 1 << 20, fast = 1000000000;
	uint64_t flush = 0;

	T_EQ(kv_lag_span(BOUND, 0, least, fast), BOUND / 32);
	/* one that is slow to flush, or to write, would rest or write little but descriptors */
	T_EQ(kv_lag_span(BOUND, MS, least, fast), 8 * MS);
	T_OK(kv_lag_span(BOUND, MS, least, fast / 10) > 10 * MS);
	T_EQ(kv_lag_span(BOUND, 100 * MS, least, fast), BOUND / 4);
	T_EQ(kv_lag_span(BOUND, 0, least, 1000000), BOUND / 4);
	/* a flush that paused says little, one that is always slow all */
	for (unsigned i = 0; i < 100; i++)
		flush = kv_lag_flush(flush, MS / 2);
	T_OK(flush > MS * 2 / 5 && flush <= MS / 2);
	T_OK(kv_lag_flush(flush, 100 * MS) < flush * 5 / 4);
	for (unsigned i = 0; i < 100; i++)
		flush = kv_lag_flush(flush, 10 * MS);
	T_OK(flush > 9 * MS);
}

#define STEP	50000u		/* ns */
#define FRAME	(512.0 * 1024)
#define LEAST	(1u << 20)	/* of two logs */

/*
 * A load on a device: the flusher has one epoch in hand at a time, waits for its
 * writes, then for a flush; full frames of the open epoch are written when it has none.
 */
struct loop {
	double device, demand;		/* bytes per second */
	uint64_t flush, pause, every;	/* ns; it stands still for so long so often */

	uint64_t now, rate, flush_est;	/* ns; what the device has proven */
	uint64_t birth, closed;		/* of the open epoch; of the one in hand, ns */
	enum { OPEN, WRITE, FLUSH } state;
	double all, frame, full;	/* bytes of the open epoch; of its frame; in full ones */
	double sent, hand, lag;		/* at the device; of the epoch in hand, those that waited */
	uint64_t hand_birth, left;	/* left: of the flush, ns */
	uint64_t oldest, shut;		/* greatest age at which one was durable; longest wait */
	uint64_t shut_since;
	double written;
	uint32_t cost;
};

static uint64_t loop_span(const struct loop *l)
{
	return kv_lag_span(BOUND, l->flush_est, LEAST, l->rate);
}

static void loop_close(struct loop *l)
{
	uint64_t due = l->all - l->frame >= LEAST ? loop_span(l) : BOUND / 4;

	l->sent += l->full;
	l->full = 0;
	if (l->now - l->birth < due && l->all - l->frame < (16u << 20))
		return;
	l->sent += l->frame;
	l->hand = l->all;
	l->lag = l->sent;
	l->hand_birth = l->birth;
	l->closed = l->birth = l->now;
	l->all = l->frame = 0;
	l->state = WRITE;
}

static void loop_written(struct loop *l)
{
	uint64_t all = kv_lag_rate(0, (uint64_t)l->hand, l->now - l->hand_birth);

	l->rate = kv_lag_rate(l->rate, (uint64_t)l->lag, l->now - l->closed);
	if (l->hand >= 256 << 10 && all > l->rate)
		l->rate = all;
	l->left = l->flush;
	l->state = FLUSH;
}

static void loop_durable(struct loop *l)
{
	if (l->now - l->hand_birth > l->oldest)
		l->oldest = l->now - l->hand_birth;
	l->flush_est = kv_lag_flush(l->flush_est, l->flush);
	l->state = OPEN;
}

static void loop_device(struct loop *l)
{
	double most = l->device * STEP / 1e9, n = most < l->sent ? most : l->sent;

	if (l->every && l->now % l->every < l->pause && l->now >= l->every)
		return;
	l->sent -= n;
	l->written += n;
	if (l->state == WRITE && l->sent <= 0)
		loop_written(l);
	else if (l->state == FLUSH && l->left > STEP)
		l->left -= STEP;
	else if (l->state == FLUSH)
		loop_durable(l);
}

static void loop_writers(struct loop *l)
{
	uint64_t oldest = l->state == OPEN ? l->birth : l->hand_birth;
	double permit = l->demand;

	if (l->now % MS == 0)
		l->cost = kv_throttle_cost(kv_lag_part(BOUND, loop_span(l), l->now - l->birth,
						       (uint64_t)(l->sent + l->full + l->frame),
						       l->rate));
	if (l->cost && 1024e9 / l->cost < permit)
		permit = 1024e9 / l->cost;
	if (l->now - oldest >= GATE) {
		if (l->now - l->shut_since > l->shut)
			l->shut = l->now - l->shut_since;
		return;
	}
	l->shut_since = l->now;
	l->all += permit * STEP / 1e9;
	l->frame += permit * STEP / 1e9;
	if (l->frame >= FRAME) {
		l->full += l->frame;
		l->frame = 0;
	}
}

static void loop_until(struct loop *l, uint64_t end)
{
	while (l->now < end) {
		l->now += STEP;
		loop_device(l);
		if (l->state == OPEN)
			loop_close(l);
		loop_writers(l);
	}
}

/* Not even in the first epochs, while nothing is known of the device. */
static void a_device_proves_its_rate_before_the_gate_shuts(void)
{
	static const double devices[] = { 4e7, 1e8, 2e8, 4e8, 1e9 };

	for (unsigned i = 0; i < 5; i++) {
		struct loop l = { .device = devices[i], .demand = 2e9, .rate = KV_LAG_FIRST_RATE };

		loop_until(&l, 300 * MS);
		T_OK(l.oldest > 0 && l.oldest < GATE);
		/* what there is to write in the first 25 ms is only then begun */
		T_OK(l.written > 0.275 * devices[i] * 0.9);
	}
}

static void writers_that_are_faster_than_the_log_do_not_meet_the_gate(void)
{
	static const double devices[] = { 4e7, 1e8, 2e8, 4e8, 1e9 };

	for (unsigned i = 0; i < 5; i++) {
		struct loop l = { .device = devices[i], .demand = 2e9, .rate = 256u << 20 };

		loop_until(&l, 2000 * MS);	/* it learns */
		l.oldest = 0;
		l.written = 0;
		loop_until(&l, 5000 * MS);
		T_OK(l.oldest > 0 && l.oldest < GATE);
		/* and the device hardly rests */
		T_OK(l.written > 3 * devices[i] * 0.95);
	}
}

/* TH-12: what is not durable then is young, and what waits at its end is little. */
static void a_device_that_pauses_hardly_shuts_the_gate(void)
{
	static const double devices[] = { 5e8, 1e9, 1.5e9, 3e9 };

	for (unsigned i = 0; i < 4; i++) {
		for (uint64_t pause = 60; pause <= 90; pause += 5) {
			struct loop l = { .device = devices[i], .demand = 9.5e8,
					  .rate = KV_LAG_FIRST_RATE, .flush = 300000,
					  .pause = pause * MS, .every = 997 * MS };

			loop_until(&l, 6000 * MS);
			T_OK(l.oldest > pause * MS);
			T_OK(l.shut <= (pause <= 75 ? 0 : pause <= 80 ? MS : 20 * MS));
			/* writers that are no faster than the device are not slowed but then */
			T_OK(devices[i] <= l.demand ||
			     l.written > (6000 - 5 * (double)pause) / 1e3 * l.demand * 0.9);
		}
	}
}

int main(void)
{
	T_RUN(debt_is_a_share);
	T_RUN(cost_grows_with_debt_and_never_leaps);
	T_RUN(writes_go_at_the_permitted_rate);
	T_RUN(without_debt_nothing_is_charged);
	T_RUN(one_wait_is_short_however_large_the_write);
	T_RUN(who_cannot_wait_is_charged_once_and_keeps_his_place);
	T_RUN(space_has_room_for_writers_until_twice_its_excess);
	T_RUN(writers_and_a_job_for_space_end_together);
	T_RUN(largest_debt_is_the_cause);
	T_RUN(only_bytes_that_wait_use_the_bound_up);
	T_RUN(a_device_is_as_fast_as_it_proves);
	T_RUN(an_epoch_is_as_short_as_its_device_allows);
	T_RUN(a_device_proves_its_rate_before_the_gate_shuts);
	T_RUN(writers_that_are_faster_than_the_log_do_not_meet_the_gate);
	T_RUN(a_device_that_pauses_hardly_shuts_the_gate);
	return t_done();
}
