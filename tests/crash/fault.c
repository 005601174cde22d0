/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Which request or allocation fails in which run, see fault.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fault.h"
#include "harness.h"

#define HANG_S	300u	/* others may have the machine for a minute */

static struct eng eng;
static const struct fault_ops *ops;
static const struct eng_ops *const *workload;
static unsigned nworkload;
static char **chosen;	/* names of workloads; none: all */
/* runs of each kind; those in which it happened; in which a call failed */
static unsigned done[FAULTS], fired[FAULTS], told[FAULTS], wrong;

/* Requests, or allocations, that the work makes when none fails. */
static uint64_t calls(struct eng *e, unsigned kind, uint64_t seed)
{
	struct sim_fault f = { .f_kind = (uint8_t)kind };
	bool failed;

	if (ops->fo_run(e, &f, seed, &failed) || failed)
		T_FAIL("%s without a fault: %s", e->e_ops->eo_name, e->e_why);
	return f.f_calls;
}

static void one(struct eng *e, unsigned kind, bool sticky, uint64_t k, uint64_t seed)
{
	struct sim_fault f = { .f_kind = (uint8_t)kind, .f_is_sticky = sticky, .f_at = k };
	bool failed = false;

	eng_watch(HANG_S);
	done[kind]++;
	if (ops->fo_run(e, &f, seed, &failed) && wrong++ < 8)
		printf("# %s, %s at %llu%s: %s\n", e->e_ops->eo_name, sim_fault_name[kind],
		       (unsigned long long)k, sticky ? " and later" : "", e->e_why);
	told[kind] += failed;
	fired[kind] += f.f_fired > 0;
	eng_watch(0);
}

static unsigned kinds(void)
{
	return (unsigned)__builtin_popcount(ops->fo_kinds);
}

/* @runs faults of all kinds, or each there is; of memory each in any case when @all_memory. */
static void faults_of(unsigned wl, unsigned runs, bool all_memory)
{
	uint64_t seed = sim_mix(t_seed(), wl), n, k;
	unsigned kind, i, each = runs / (kinds() + 1);
	struct eng *e = &eng;

	sim_wipe(&e->e_sim);
	e->e_ops = workload[wl];
	if (ops->fo_prepare(e, seed))
		T_FAIL("%s: %s", e->e_ops->eo_name, e->e_why);
	for (kind = 1; kind < FAULTS; kind++) {
		bool is_all = !runs || (all_memory && kind == FAULT_MEMORY);
		uint64_t work_seed = seed;

		if (kind != FAULT_MEMORY && !(ops->fo_kinds & 1u << kind))
			continue;
		n = calls(e, kind, work_seed);
		for (i = 0; is_all ? i < 2 * n : i < each; i++) {
			k = is_all ? i / 2 + 1 : sim_rand(&seed) % n + 1;
			one(e, kind, i & 1, k, is_all ? work_seed : sim_mix(t_seed(), i / 2 % 8));
		}
	}
}

static bool is_chosen(unsigned wl)
{
	char **s;

	for (s = chosen; *s && strcmp(*s, workload[wl]->eo_name); s++)
		;
	return *s || (!*chosen && t_is_mine(wl));
}

static void no_failure_of_a_device_loses_or_changes_anything(void)
{
	const char *s = getenv("RUNS");
	unsigned runs = s ? (unsigned)atoi(s) : getenv("TEST_LONG") ? 0 :
			getenv("TEST_SHORT") ? 540 : 6000, i, n = 0, all = 0;

	for (i = 0; i < nworkload; i++)
		n += is_chosen(i);
	if (!n)
		T_FAIL("no workload has that name");
	for (i = 0; i < nworkload; i++)
		if (is_chosen(i))
			faults_of(i, runs / n, !s && runs >= 6000 &&
				  !strcmp(workload[i]->eo_name, ops->fo_whole));
	for (i = 1; i < FAULTS; i++)
		if (done[i])
			printf("# %-12s %4u runs, %4u in which it happened, %4u in which a call"
			       " failed\n", sim_fault_name[i], done[i], fired[i], told[i]);
	for (i = 1; i < FAULT_MEMORY; i++)
		all += done[i];
	t_figure("failing requests", "%s: %u runs of %u kinds, %u with a wrong end", ops->fo_name,
		 all, kinds(), wrong);
	t_figure("allocation failure", "%s: %u runs, %u of them met it", ops->fo_name,
		 done[FAULT_MEMORY], fired[FAULT_MEMORY]);
	T_EQ(wrong, 0);
}

int fault_main(char **names, const struct fault_ops *fo, const struct eng_ops *const *wl,
	       unsigned n)
{
	ops = fo;
	workload = wl;
	nworkload = n;
	chosen = names;
	t_seed();
	eng_init(&eng);
	eng.e_sim.s_has_holes = true;
	sim_memory_of(&eng.e_sim);
	T_RUN(no_failure_of_a_device_loses_or_changes_anything);
	eng_fini(&eng);
	return t_done();
}
