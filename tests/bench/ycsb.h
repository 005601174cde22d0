/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The driver of the comparison: one engine, one workload, one process.
 *
 * Threads share struct ycsb read-only except the fields marked atomic; each
 * writes only its own struct ycsb_thread.
 */
#ifndef BENCH_YCSB_H
#define BENCH_YCSB_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "bench_gen.h"
#include "bench_hist.h"
#include "bench_meter.h"
#include "engine.h"
#include "versions.h"

#define YCSB_THREADS   1024u
#define YCSB_IN_FLIGHT 4095u /* of all threads: writes of one record that versions.h counts */

/* a version in a value: the record, then the number of its write */
#define YCSB_STAMP(record, n) ((uint64_t)(record) << 24 | (n))
#define YCSB_RECORDS_MAX      (1ull << 40)
#define YCSB_WRITES_MAX       (1u << 24)

struct ycsb;

struct ycsb_key {
	unsigned len;
	uint64_t hash;
	char text[BENCH_KEY_MAX];
};

struct ycsb_thread {
	_Alignas(128) struct ycsb *y;
	void *engine;		/* what the engine gave this thread */
	unsigned id;
	pthread_t tid;
	uint64_t ops;		/* to do */
	uint64_t done;
	uint64_t write_bytes, read_bytes; /* keys and values, user's view */
	uint64_t verified;	/* values */
	uint64_t found;		/* recover: records that are there ... */
	uint64_t missed;	/* ... and the first one that is not, or UINT64_MAX */
	unsigned char *val;	/* value_size, for each put of a batch */
	struct bench_rng rng;
	struct bench_chooser chooser;
	struct bench_hist hist[BENCH_OPS]; /* clock ticks */
};

/* struct ycsb_edge - what is read before and behind the measured operations */
struct ycsb_edge {
	struct bench_meter m;
	uint64_t machine_ns;	/* processor time of all processes, and stolen time */
};

enum ycsb_pass { PASS_LOAD, PASS_WARM, PASS_MIX, PASS_FIND };

struct ycsb {
	const struct engine *e;
	/* what was asked for */
	const struct bench_mix *mix;
	const char *versions_file;
	struct engine_opts o;
	uint64_t records, ops, value_size, seed;
	unsigned batch;		/* load: puts of a batch; 0: one by one */
	unsigned seconds;	/* end of the measured operations; 0 = when all are done */
	int dist;		/* enum bench_dist, or -1: as the workload says */
	bool is_kill, is_recover, is_cold;
	/* state */
	union version_cell *versions;
	uint64_t nversions;
	struct bench_seq seq;
	struct ycsb_thread *thr;
	enum ycsb_pass pass;
	pthread_barrier_t gate;
	uint64_t stop;		/* atomic */
	/* result */
	struct ycsb_edge begin, ack, end;
	uint64_t open_ns, peak_rss, space_bytes, first_record;
};

/* ---- ycsb_work.c: the threads ------------------------------------------------ */

/* Runs a pass on all threads; the edges @begin and @ack are read around it, unless NULL. */
void ycsb_pass(struct ycsb *y, enum ycsb_pass pass, struct ycsb_edge *begin, struct ycsb_edge *ack);
void ycsb_edge_read(struct ycsb_edge *e);
bool ycsb_is_stopped(const struct ycsb *y);
void ycsb_key_make(struct ycsb_key *k, uint64_t record);
/* Ends the process unless @val is of @record, of a version between @oldest and now's newest. */
void ycsb_value_check(struct ycsb_thread *t, const struct ycsb_key *k, uint64_t record,
		      const void *val, size_t vlen, uint32_t oldest);
/* Begins a write of @record, which is new unless @is_update, and makes its value. */
void ycsb_write_begin(struct ycsb_thread *t, const struct ycsb_key *k, uint64_t record,
		      bool is_update, unsigned char *val);
void ycsb_write_end(struct ycsb_thread *t, const struct ycsb_key *k, uint64_t record,
		    bool is_update);
/* The kinds of the workload's operations, each as often as it comes in a hundred. */
void ycsb_mix_pick(const struct ycsb *y, uint8_t pick[100]);

/* ---- ycsb_async.c: many operations of a thread at a time ------------------------ */

void ycsb_async_run(struct ycsb_thread *t);

/* ---- ycsb_report.c ------------------------------------------------------------ */

void ycsb_report(const struct ycsb *y);

#endif
