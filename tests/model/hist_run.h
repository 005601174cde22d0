/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Records the history of transactions that threads run on a database, for the
 * check of hist.h. Every thread has several transactions open and goes on with
 * one of them at random, so they overlap on any number of processors.
 */
#ifndef TESTS_MODEL_HIST_RUN_H
#define TESTS_MODEL_HIST_RUN_H

#include <kvdb/kvdb.h>

#include "hist.h"

#define HR_THREADS	8u
#define HR_OPEN		6u	/* transactions that a thread has open at once, at most */
#define HR_STORES	2u
#define HR_STEPS	8u	/* operations of a transaction, at most */
#define HR_WIDE		12u	/* keys that one cursor may show */
#define HR_RANGE	5u	/* keys that one range may have */

struct hr_conf {
	uint64_t hc_seed;
	const char *hc_pool;
	uint32_t hc_logs, hc_commit, hc_interval_ms;
	uint64_t hc_log_bytes;
	unsigned hc_threads, hc_open;
	unsigned hc_keys;		/* all threads' */
	unsigned hc_plain;		/* keys of each thread, which it also writes plainly */
	uint32_t hc_txns;
	unsigned hc_batch;		/* keys of another batch are other keys */
};

struct hr_counts {
	uint64_t hn_committed, hn_aborted, hn_conflicts, hn_plain, hn_reads, hn_writes, hn_cursors,
		 hn_ranges;
};

/*
 * Runs the transactions on the database of an existing pool; the history of all
 * threads is in @out (hist_fini()). 0, or -1 with the reason in @why.
 */
int hr_run(const struct hr_conf *conf, struct hist *out, struct hr_counts *n, char why[500]);

#endif
