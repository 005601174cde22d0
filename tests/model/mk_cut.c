/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Power cuts of a database under many threads: it works on simulated devices
 * that record every write and flush with its time. Then the devices are set to
 * what a cut at some event could have left, and the judge of mk_crash.c looks.
 * One of these states is gone on from: the next round's history begins there.
 */
#include <stdlib.h>
#include <string.h>

#include <mpool/mpool.h>

#include "cut.h"
#include "mk.h"
#include "sim.h"

#define MiB	(1ull << 20)

struct cutter {
	struct sim cu_sim;
	struct sim_log cu_log;
	uint64_t *cu_time;	/* of each event of the log */
	unsigned cu_ntime, cu_cap;
};

/* Under the simulator's lock, before the event is recorded. */
static void tick(void *arg, int kind, uint64_t bytes)
{
	struct cutter *cu = arg;
	unsigned n;

	(void)kind;
	(void)bytes;
	if (!cu->cu_sim.s_log)
		return;
	n = sim_log_end(&cu->cu_log) + 1;
	if (n > cu->cu_cap) {
		cu->cu_cap = 2 * n;
		cu->cu_time = realloc(cu->cu_time, cu->cu_cap * sizeof(*cu->cu_time));
		if (!cu->cu_time)
			abort();
	}
	while (cu->cu_ntime < n)
		cu->cu_time[cu->cu_ntime++] = mk_now();
}

static uint64_t time_of(const struct cutter *cu, unsigned event)
{
	return event < cu->cu_ntime ? cu->cu_time[event] : UINT64_MAX;
}

static int pool_make(struct mk_world *wo, struct cutter *cu, uint64_t *rnd,
		     struct mpool_open_opts *oo)
{
	struct mpool_dev_spec dev[2] = {
		{ .path = "capacity", .mclass = MPOOL_CAPACITY, .size = 96 * MiB },
		{ .path = "staging", .mclass = MPOOL_STAGING, .size = 48 * MiB },
	};
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	int rc;

	*oo = (struct mpool_open_opts)MPOOL_OPEN_OPTS_INIT;
	oo->provider = &cu->cu_sim.s_prov;
	oo->io = "sync";
	co.name = "sim";
	co.devs = dev;
	co.ndevs = 1 + mk_rand(rnd) % 2;
	co.provider = &cu->cu_sim.s_prov;
	wo->wo_pool = "./sim";
	wo->wo_opts.pool = oo;
	rc = mpool_create(wo->wo_pool, &co);
	if (rc)
		mk_fail(wo, "mpool_create: %d (%s)", rc, mpool_error_detail()->text);
	else
		mk_options(wo, rnd, true);
	return rc ? rc : mk_create(wo);
}

/* Work; the log has it. */
static void record(struct mk_world *wo, struct cutter *cu, uint64_t *rnd)
{
	wo->wo_round++;
	mk_time_pass(wo, rnd);
	mk_options(wo, rnd, true);
	wo->wo_bound_ms = wo->wo_opts.interval_ms;
	wo->wo_is_commit = wo->wo_opts.commit;
	wo->wo_quota = (2000 + mk_rand(rnd) % 6000) / wo->wo_threads;
	sim_log_init(&cu->cu_log, 0);
	cu->cu_ntime = 0;
	cu->cu_sim.s_tick = tick;
	cu->cu_sim.s_tick_arg = cu;
	sim_snap(&cu->cu_sim);
	cu->cu_sim.s_log = &cu->cu_log;
	if (!mk_open(wo, 0)) {
		mk_work(wo);
		mk_close(wo);
	}
	cu->cu_sim.s_log = NULL;
	sim_rollback(&cu->cu_sim);
}

static void state(struct mk_world *wo, struct cutter *cu, struct sim_cut *cut, unsigned at,
		  uint64_t seed, bool keep)
{
	struct mk_crash cr = { .cr_certain = time_of(cu, at), .cr_possible = time_of(cu, at + 1) };
	struct sim_variants va;

	sim_cut_to(cut, at);
	sim_cut_variants(cut, seed, 12, &va);
	sim_snap(&cu->cu_sim);
	sim_cut_apply(cut, &va, (unsigned)(seed % va.va_n));
	if (seed & 16)
		mk_judge_checkpoints(wo, &cr);
	if (!mk_failed(wo) && !mk_open(wo, 0)) {
		mk_judge(wo, &cr, keep);
		mk_close(wo);
	}
	if (mk_failed(wo)) {
		size_t n = strlen(wo->wo_shm->sm_why);

		snprintf(wo->wo_shm->sm_why + n, sizeof(wo->wo_shm->sm_why) - n,
			 " [event %u of %u, variant %u of %u]", at, sim_log_end(&cu->cu_log),
			 (unsigned)(seed % va.va_n), va.va_n);
		sim_release(&cu->cu_sim);
	}
	sim_variants_free(&va);
	mk_count(wo)[MC_CUT]++;
	if (keep)
		sim_keep(&cu->cu_sim);
	else
		sim_rollback(&cu->cu_sim);
}

static int event_cmp(const void *a, const void *b)
{
	unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;

	return x < y ? -1 : x > y;
}

/* Cuts at random events; the last is gone on from. */
static void cuts(struct mk_world *wo, struct cutter *cu, uint64_t *rnd, unsigned states)
{
	unsigned at[256], i, end = sim_log_end(&cu->cu_log);
	struct sim_cut cut;

	for (i = 0; i < states; i++)
		at[i] = (unsigned)(mk_rand(rnd) % (end + 1u));
	qsort(at, states, sizeof(at[0]), event_cmp);
	sim_cut_init(&cut, &cu->cu_sim, &cu->cu_log, PLANT_NONE);
	for (i = 0; i < states && !mk_failed(wo); i++)
		state(wo, cu, &cut, at[i], mk_rand(rnd), i == states - 1);
	sim_cut_fini(&cut);
	sim_log_fini(&cu->cu_log);
}

void mk_cut_run(struct mk_world *wo, unsigned rounds, unsigned states)
{
	struct cutter *cu = calloc(1, sizeof(*cu));
	uint64_t rnd = mk_hash(wo->wo_seed, 3);
	struct mpool_open_opts oo;
	unsigned i;

	if (!cu || states > 256)
		abort();
	/* big values would fill these devices */
	wo->wo_big = 3000;
	sim_init(&cu->cu_sim);
	if (!pool_make(wo, cu, &rnd, &oo)) {
		for (i = 0; i < rounds && !mk_failed(wo); i++) {
			record(wo, cu, &rnd);
			if (!mk_failed(wo))
				cuts(wo, cu, &rnd, states);
		}
	}
	wo->wo_opts.pool = NULL;
	sim_fini(&cu->cu_sim);
	free(cu->cu_time);
	free(cu);
}
