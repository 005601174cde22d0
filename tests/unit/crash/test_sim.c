/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The crash simulator itself: what it may lose, what it must keep, that its
 * planted bugs do lose it, and that a seed repeats a run bit for bit.
 */
#include <errno.h>

#include "crash/cut.h"
#include "crash/sim.h"
#include "harness.h"

#define DEV_BYTES	(1u << 20)

static struct sim sim;
static struct sim_log sim_events;
static struct mpool_vdev vd[2];

static void setup(unsigned ndev)
{
	static const char *const path[] = { "a", "b" };
	unsigned i;

	sim_init(&sim);
	for (i = 0; i < ndev; i++)
		T_EQ(sim.s_prov.open(sim.s_prov.ctx, path[i], 1, 0, DEV_BYTES, &vd[i]), 0);
	sim_log_init(&sim_events, 1);
	sim_snap(&sim);
	sim.s_log = &sim_events;
}

/* ends the recording: memory is as it was at setup */
static void recorded(void)
{
	sim.s_log = NULL;
	sim_rollback(&sim);
}

static void teardown(unsigned ndev)
{
	unsigned i;

	for (i = 0; i < ndev; i++)
		vd[i].ops->close(vd[i].dev);
	sim_log_fini(&sim_events);
	sim_fini(&sim);
}

static void put(unsigned dev, unsigned page, unsigned pages, uint8_t fill, int is_fua)
{
	static uint8_t buf[16 * SIM_PAGE];
	struct iovec iov = { .iov_base = buf, .iov_len = pages * SIM_PAGE };

	memset(buf, fill, sizeof(buf));
	T_EQ(vd[dev].ops->writev(vd[dev].dev, (uint64_t)page * SIM_PAGE, &iov, 1, is_fua, NULL), 0);
}

static void flush(unsigned dev)
{
	T_EQ(vd[dev].ops->flush(vd[dev].dev, NULL), 0);
}

static uint8_t byte_at(unsigned dev, unsigned page, unsigned sector)
{
	return sim.s_dev[dev].d_mem[page * SIM_PAGE + sector * SIM_SECTOR];
}

/* what the variants of one crash point showed */
struct seen {
	unsigned n, n_old, n_new, n_torn, n_other;
};

/* Looks at page @page in all variants at @at. */
static void look(enum sim_plant plant, unsigned at, unsigned dev, unsigned page, uint8_t old_fill,
		 uint8_t new_fill, struct seen *s)
{
	struct sim_variants va;
	struct sim_cut cu;
	unsigned k, i;

	memset(s, 0, sizeof(*s));
	sim_snap(&sim);
	sim_cut_init(&cu, &sim, &sim_events, plant);
	sim_cut_to(&cu, at);
	sim_cut_variants(&cu, 42, 400, &va);
	for (k = 0; k < va.va_n; k++) {
		unsigned olds = 0, news = 0;

		sim_snap(&sim);
		sim_cut_apply(&cu, &va, k);
		for (i = 0; i < SIM_PAGE / SIM_SECTOR; i++) {
			olds += byte_at(dev, page, i) == old_fill;
			news += byte_at(dev, page, i) == new_fill;
		}
		s->n++;
		if (olds + news < 8)
			s->n_other++;
		else if (olds == 8)
			s->n_old++;
		else if (news == 8)
			s->n_new++;
		else
			s->n_torn++;
		sim_rollback(&sim);
	}
	sim_variants_free(&va);
	sim_cut_fini(&cu);
	sim_rollback(&sim);
}

static void flushed_data_always_survives(void)
{
	struct seen s;

	setup(1);
	put(0, 1, 1, 'x', 0);	/* event 1 */
	flush(0);		/* 2 */
	put(0, 2, 1, 'y', 0);	/* 3 */
	recorded();
	look(PLANT_NONE, 3, 0, 1, 0, 'x', &s);
	T_OK(s.n > 10 && s.n_new == s.n);
	look(PLANT_NONE, 4, 0, 1, 0, 'x', &s);
	T_OK(s.n > 1 && s.n_new == s.n);
	teardown(1);
}

static void unflushed_data_may_vanish_stay_or_tear(void)
{
	struct seen s;

	setup(1);
	put(0, 1, 1, 'x', 0);
	put(0, 2, 1, 'y', 0);
	flush(0);
	recorded();
	/* the flush is in flight: it promises nothing yet; no garbage in what completed */
	look(PLANT_NONE, 3, 0, 1, 0, 'x', &s);
	T_OK(s.n_old && s.n_new && s.n_torn && !s.n_other);
	/* a later write may be there without an earlier one */
	look(PLANT_NONE, 3, 0, 2, 0, 'y', &s);
	T_OK(s.n_old && s.n_new);
	teardown(1);
}

static void in_flight_write_may_hold_garbage(void)
{
	struct seen s;

	setup(1);
	put(0, 1, 2, 'x', 0);
	recorded();
	look(PLANT_NONE, 1, 0, 1, 'o', 'x', &s);
	T_OK(s.n_new && s.n_other);
	teardown(1);
}

static void fua_makes_itself_durable_and_nothing_else(void)
{
	struct seen s;

	setup(1);
	put(0, 1, 1, 'x', 0);
	put(0, 2, 1, 'y', 1);
	flush(0);
	recorded();
	look(PLANT_NONE, 3, 0, 2, 0, 'y', &s);
	T_EQ(s.n_new, s.n);
	look(PLANT_NONE, 3, 0, 1, 0, 'x', &s);
	T_OK(s.n_old && s.n_new);
	/* in flight it is like any other write */
	look(PLANT_NONE, 2, 0, 2, 0, 'y', &s);
	T_OK(s.n_old && s.n_torn);
	teardown(1);
}

static void fua_above_an_older_write_wins(void)
{
	struct seen s;

	setup(1);
	put(0, 1, 1, 'x', 0);
	put(0, 1, 1, 'y', 1);
	flush(0);
	recorded();
	look(PLANT_NONE, 3, 0, 1, 'x', 'y', &s);
	T_OK(s.n > 1 && s.n_new == s.n);
	teardown(1);
}

static void a_flush_covers_its_own_device_only(void)
{
	struct seen s;

	setup(2);
	put(0, 1, 1, 'x', 0);
	put(1, 1, 1, 'y', 0);
	flush(0);
	recorded();
	look(PLANT_NONE, 4, 0, 1, 0, 'x', &s);
	T_EQ(s.n_new, s.n);
	look(PLANT_NONE, 4, 1, 1, 0, 'y', &s);
	T_OK(s.n_old && s.n_new);
	teardown(2);
}

static void two_devices_lose_independently(void)
{
	struct sim_variants va;
	struct sim_cut cu;
	unsigned k, saw = 0;

	setup(2);
	put(0, 1, 1, 'x', 0);
	put(1, 1, 1, 'y', 0);
	recorded();
	sim_snap(&sim);
	sim_cut_init(&cu, &sim, &sim_events, PLANT_NONE);
	sim_cut_to(&cu, 3);
	sim_cut_variants(&cu, 1, 40, &va);
	T_OK(va.va_is_two);
	for (k = 0; k < va.va_n; k++) {
		sim_snap(&sim);
		sim_cut_apply(&cu, &va, k);
		saw |= 1u << ((byte_at(0, 1, 0) == 'x') * 2 + (byte_at(1, 1, 0) == 'y'));
		sim_rollback(&sim);
	}
	T_EQ(saw, 15);
	sim_variants_free(&va);
	sim_cut_fini(&cu);
	sim_rollback(&sim);
	teardown(2);
}

static void discarded_space_is_old_zero_or_garbage(void)
{
	struct seen s;

	setup(1);
	put(0, 1, 1, 'x', 0);
	flush(0);
	T_EQ(vd[0].ops->discard(vd[0].dev, SIM_PAGE, SIM_PAGE), 0);
	T_OK(byte_at(0, 1, 0) != 'x' || byte_at(0, 1, 1) != 'x');
	recorded();
	look(PLANT_NONE, 4, 0, 1, 'x', 0, &s);
	T_OK(s.n_old && s.n_other);
	teardown(1);
}

static void every_planted_bug_loses_flushed_data(void)
{
	unsigned p;
	struct seen s;

	setup(1);
	sim_meta_add(&sim, 0, 4 * SIM_PAGE, 4 * SIM_PAGE);
	put(0, 1, 1, 'x', 0);	/* data */
	flush(0);
	put(0, 4, 1, 'y', 0);	/* metadata */
	recorded();
	for (p = 1; p < PLANTS; p++) {
		look((enum sim_plant)p, 3, 0, 1, 0, 'x', &s);
		T_OK(s.n_old + s.n_torn > 0);
	}
	teardown(1);
}

static void rollback_restores_every_byte(void)
{
	uint8_t *before;
	unsigned i;

	setup(1);
	put(0, 0, 16, 'x', 0);
	before = malloc(DEV_BYTES);
	memcpy(before, sim.s_dev[0].d_mem, DEV_BYTES);
	sim_snap(&sim);
	for (i = 0; i < 100; i++)
		sim_poke(&sim, 0, i * 4099u, "abcdefgh", 8);
	sim_snap(&sim);
	for (i = 0; i < 100; i++)
		sim_poke(&sim, 0, i * 8011u, "ABCDEFGH", 8);
	sim_keep(&sim);
	sim_snap(&sim);
	sim_poke(&sim, 0, 5, "zz", 2);
	sim_rollback(&sim);
	T_EQ(sim.s_dev[0].d_mem[8011], 'A');
	sim_rollback(&sim);
	T_MEMEQ(before, sim.s_dev[0].d_mem, DEV_BYTES);
	free(before);
	recorded();
	teardown(1);
}

static void equal_seeds_give_equal_variants(void)
{
	struct sim_variants a, b, c;
	struct sim_cut cu;
	unsigned i;

	setup(1);
	for (i = 0; i < 14; i++)
		put(0, i, 2, (uint8_t)i, 0);
	recorded();
	sim_snap(&sim);
	sim_cut_init(&cu, &sim, &sim_events, PLANT_NONE);
	sim_cut_to(&cu, 14);
	sim_cut_variants(&cu, 7, 50, &a);
	sim_cut_variants(&cu, 7, 50, &b);
	sim_cut_variants(&cu, 8, 50, &c);
	T_EQ(a.va_n, 50);
	T_EQ(b.va_n, 50);
	T_MEMEQ(a.va_c, b.va_c, 50 * a.va_units * sizeof(*a.va_c));
	T_OK(memcmp(a.va_c, c.va_c, 50 * a.va_units * sizeof(*a.va_c)) != 0);
	sim_variants_free(&a);
	sim_variants_free(&b);
	sim_variants_free(&c);
	sim_cut_fini(&cu);
	sim_rollback(&sim);
	teardown(1);
}

static void a_device_opens_once(void)
{
	struct mpool_vdev two;

	setup(1);
	T_EQ(sim.s_prov.open(sim.s_prov.ctx, "a", 0, 0, 0, &two), -EBUSY);
	T_EQ(sim.s_prov.open(sim.s_prov.ctx, "c", 0, 0, 0, &two), -ENOENT);
	recorded();
	teardown(1);
}

int main(void)
{
	T_RUN(flushed_data_always_survives);
	T_RUN(unflushed_data_may_vanish_stay_or_tear);
	T_RUN(in_flight_write_may_hold_garbage);
	T_RUN(fua_makes_itself_durable_and_nothing_else);
	T_RUN(fua_above_an_older_write_wins);
	T_RUN(a_flush_covers_its_own_device_only);
	T_RUN(two_devices_lose_independently);
	T_RUN(discarded_space_is_old_zero_or_garbage);
	T_RUN(every_planted_bug_loses_flushed_data);
	T_RUN(rollback_restores_every_byte);
	T_RUN(equal_seeds_give_equal_variants);
	T_RUN(a_device_opens_once);
	return t_done();
}
