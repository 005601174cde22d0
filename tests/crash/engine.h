/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Crash enumeration: records a workload once, then visits its crash states and
 * lets the workload's oracle judge each.
 *
 * Passes over the log are repeated with other variants until the wanted number
 * of distinct states (by the bytes that recovery read) is reached. Some states
 * begin a second generation: recover, judge, write more, crash again (also in
 * the middle of that recovery), recover, judge. A second generation starts from
 * a power cut, or from a process crash that keeps the device caches.
 *
 * Everything follows from SEED; a state has a path that is printed with a
 * violation and can be given back in CRASH_STATE.
 */
#ifndef TESTS_CRASH_ENGINE_H
#define TESTS_CRASH_ENGINE_H

#include "cut.h"
#include "sim.h"

struct eng;

struct eng_ops {
	const char *eo_name;
	bool eo_is_two_devs;
	unsigned eo_share;	/* 1/n of the usual variants per point: for long logs */
	/*
	 * Prepares the simulator, calls eng_record_begin(), works, and leaves the
	 * model that judges the states. 0, or -1 with eng_fail().
	 */
	int (*eo_record)(struct eng *e, void **model);
	/*
	 * Memory holds a crash at event @at. Recovers between eng_recovery_begin()
	 * and _end(), judges, and with @post writes, closes, reopens, judges.
	 * 0, or -1 with eng_fail().
	 */
	int (*eo_check)(struct eng *e, void *model, unsigned at, bool post);
	/*
	 * As eo_check, then writes more, with a log attached. *out judges states
	 * of that log. Calls eng_opened() when recovery has returned.
	 */
	int (*eo_again)(struct eng *e, void *model, unsigned at, void **out);
	void (*eo_free)(void *model);
};

struct eng_conf {
	uint64_t ec_seed;
	enum sim_plant ec_plant;
	bool ec_is_hunt;		/* a violation is wanted: stop at the first one */
	unsigned ec_want;		/* distinct states */
	unsigned ec_per_point;		/* variants per crash point and pass */
	unsigned ec_again_every;	/* one state in so many begins a second generation */
	unsigned ec_again_points;	/* states taken from each second generation */
	unsigned ec_post_every;		/* one state in so many is written to and reopened */
	double ec_seconds;		/* of CPU time: enough after so long, */
	unsigned ec_least;		/* with so many distinct states, or 8 times as many */
	unsigned ec_max_passes;
};

struct eng_counts {
	uint64_t en_states, en_distinct;
	uint64_t en_two, en_two_distinct;	/* on two devices */
	uint64_t en_cut, en_cut_distinct;	/* recovery itself was cut */
	uint64_t en_third, en_third_distinct;	/* later in the second generation */
	uint64_t en_violations;
	unsigned en_points, en_passes;
	double en_seconds;
};

struct eng {
	struct sim e_sim;
	const struct eng_ops *e_ops;
	struct eng_conf e_conf;
	struct eng_counts e_n;
	struct sim_log e_log;
	unsigned e_opened;		/* index at which the second generation's open returned */
	uint64_t e_rand;		/* seeded per state: for checks that choose */
	uint64_t e_hash;
	bool e_has_hash;
	char e_path[96];
	char e_repeat[48];	/* in front of it: what chose the states */
	char e_why[512];
	bool e_is_wrong;		/* the last failure was a wrong answer */
	uint64_t *e_set;
	size_t e_set_n, e_set_cap;
	double e_end;
	void *e_data;			/* for the workload */
};

void eng_init(struct eng *e);
void eng_fini(struct eng *e);
/* The program dies as one that hangs when it has run so long; 0: it is not watched any more. */
void eng_watch(unsigned seconds);
/* runs one workload; counts in e->e_n; false when it could not be recorded */
bool eng_run(struct eng *e, const struct eng_ops *ops, const struct eng_conf *conf);

/* for workloads */
void eng_record_begin(struct eng *e);
void eng_recovery_begin(struct eng *e);
void eng_recovery_end(struct eng *e);
void eng_opened(struct eng *e);
int eng_fail(struct eng *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* as eng_fail(): a call that worked said what is not so */
int eng_wrong(struct eng *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* the usual settings, scaled by TEST_SHORT, TEST_LONG */
void eng_conf_default(struct eng_conf *c, uint64_t seed);
void eng_print(const struct eng *e);

/*
 * Runs all workloads, prints their figures, then repeats some of them with
 * every planted bug; the exit code of a test program. argv chooses workloads
 * by name.
 */
int eng_main(int argc, char **argv, const struct eng_ops *const *ops, unsigned n);

#endif
