/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Every k-th request or allocation fails: which ones, and the figures. What is
 * asked of a run is its program's (crash_fault.c, crash_fault_pool.c).
 *
 * The same seed gives the same runs. RUNS= how many; TEST_LONG: each k of every
 * kind and workload. Arguments choose workloads.
 */
#ifndef TESTS_CRASH_FAULT_H
#define TESTS_CRASH_FAULT_H

#include "engine.h"

struct fault_ops {
	const char *fo_name;	/* in the figures */
	const char *fo_whole;	/* each allocation of this workload fails in an ordinary run */
	unsigned fo_kinds;	/* bits: kinds of requests that are of any interest */
	/* leaves what every run of e->e_ops begins with; 0, or -1 with eng_fail() */
	int (*fo_prepare)(struct eng *e, uint64_t seed);
	/*
	 * Works under *f, whose counters it updates, up to the first call that fails,
	 * closes and judges. 0, or -1 with eng_fail().
	 */
	int (*fo_run)(struct eng *e, struct sim_fault *f, uint64_t seed, bool *failed);
};

/* The exit code of a test program. */
int fault_main(char **names, const struct fault_ops *ops, const struct eng_ops *const *wl,
	       unsigned n);

#endif
