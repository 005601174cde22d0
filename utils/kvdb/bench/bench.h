/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The benchmark: phases (YCSB workloads) run one after another on one store,
 * each by its own set of threads, each measured from its first operation until
 * the database has no deferred work left.
 *
 * Threads share struct bench read-only, except the fields marked atomic; each
 * writes only its own struct bench_thread, which no two threads share a cache
 * line of. The main thread reads `done` for progress.
 */
#ifndef KVDB_BENCH_H
#define KVDB_BENCH_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <kvdb/kvdb.h>

#include "bench_gen.h"
#include "bench_hist.h"
#include "bench_meter.h"
#include "bench_value.h"
#include "../cli.h"

#define BENCH_PHASES  32u
#define BENCH_THREADS 1024u
#define BENCH_STORE   "usertable" /* YCSB's name of its table */
/* --classes: a capacity device that reads well and writes slowly, and many clients */
#define BENCH_LAYERS  "capacity:rate=400M,write_rate=80M,lat=200us"
#define BENCH_CLIENTS 32u
#define BENCH_CLASS_RECORDS 400000u

struct bench;
struct bench_journal;

struct bench_thread {
	_Alignas(128) uint64_t done; /* atomic: operations ended */
	uint64_t version;            /* atomic: number of the newest version this thread wrote */
	struct bench *b;
	unsigned id;
	pthread_t tid;
	uint64_t ops;                /* to do */
	uint64_t skipped;            /* load --missing: records that were there */
	uint64_t write_bytes, read_bytes; /* keys and values, user's view */
	uint64_t scanned;            /* records that scans returned */
	unsigned char *val, *buf;    /* value_size each (buf: at least 64 more) */
	struct bench_rng rng;
	struct bench_chooser chooser;
	struct bench_hist hist[BENCH_OPS]; /* clock ticks */
};

/* struct bench_phase - result of one phase */
struct bench_phase {
	const struct bench_mix *mix;
	struct bench_meter begin, ack, end;
	struct kvdb_stats before, after;
	struct bench_hist hist[BENCH_OPS];
	uint64_t ops, skipped, scanned, write_bytes, read_bytes;
	uint64_t live_bytes;  /* user bytes alive at its end */
	uint64_t peak_rss;    /* bytes */
	uint64_t used[MPOOL_MCLASSES];
	double ns_per_tick;
	enum bench_dist dist;
};

/* Media classes of the pool that is made: as its sizes say, or by --classes. */
enum bench_classes { BENCH_AS_SIZED, BENCH_CAPACITY, BENCH_BOTH, BENCH_COMPARE };

struct bench {
	struct ui *ui;
	/* what was asked for */
	const char *path;   /* database, or NULL: make one */
	const char *dir, *journal_file;
	char made[4096];    /* path of the database that was made, or "" */
	struct bench_mix mixes[BENCH_PHASES];
	unsigned nmixes;
	uint64_t records, ops, value_size, seed, size, staging_size, cache;
	enum bench_classes classes;
	char layers[160];   /* below the pool, see MPOOL_DEV; "": as the environment says */
	unsigned threads;
	unsigned zeros;     /* percent of each value */
	unsigned inflight;  /* operations of a thread in a queue, 0 = blocking calls */
	int dist;           /* enum bench_dist, or -1: as the workload says */
	bool is_keep, is_full, is_missing, has_size;
	uint8_t run;        /* tag of this process's versions, never 0 */
	/* state */
	struct kvdb *db;
	struct kvdb_kvs *kvs;
	struct kvdb_kvs_info store;
	struct kvdb_info info;
	struct kvdb_recovery recovery;
	struct bench_seq seq;
	struct bench_thread *thr;
	struct bench_journal *journal;
	const struct bench_mix *mix; /* of the running phase */
	pthread_barrier_t gate;
	uint64_t stop;      /* atomic: end early */
	pthread_mutex_t lock; /* guards error */
	char error[700];    /* first failure: key and reason */
	struct bench_phase phase[BENCH_PHASES];
	unsigned nphases;
};

/* ---- driver (work.c) ------------------------------------------------ */

/* Run one phase; an exit code. The result is b->phase[b->nphases - 1]. */
int bench_run(struct bench *b, const struct bench_mix *mix);
/* Reason why this is no value of the key with @hash, or NULL. */
const char *bench_value_bad(struct bench *b, const unsigned char *buf, size_t len, uint64_t hash);
/* Note the first failure and ask every thread to end. */
void bench_fail(struct bench *b, const void *key, unsigned klen, const char *what, int err);

/* The operations of a mix of reads and updates, through a completion queue (async.c). */
void bench_run_async(struct bench_thread *t, const uint8_t *pick);

/* Makes or opens the database, runs the phases, closes and removes it; an exit code. */
int bench_once(struct bench *b);

/* ---- media classes (classes.c) --------------------------------------- */

/* From --classes and the options that go with it; an exit code. */
int bench_classes_parse(struct bench *b);
/* The same workloads on capacity alone, then on both classes; an exit code. */
int bench_compare(struct bench *b);

/*
 * Bytes that each phase must write to capacity at least: all of staging holds
 * values, and the one written longest ago leaves (ideal.c). 0: not known.
 */
void bench_ideal(struct bench *b, uint64_t *written);

/* ---- report (report.c) ---------------------------------------------- */

/* Members "config" and "phases" of the document, and the whole of it. */
void bench_json_config(struct json *j, const struct bench *b);
void bench_json_phases(struct json *j, const struct bench *b);
void bench_report_json(struct bench *b);
/* What was measured on what: the lines in front of the tables. */
void bench_text_config(const struct bench *b);
void bench_report_text(struct bench *b);
double bench_rate(const struct bench_phase *p, const struct bench_meter *to);
double bench_space_amp(const struct bench_phase *p);
uint64_t bench_p999_ns(const struct bench_phase *p, unsigned op);
uint64_t bench_class_written(const struct bench_phase *p, unsigned cls);
uint64_t bench_class_read(const struct bench_phase *p, unsigned cls);

/* ---- journal of acknowledgements (journal.c, check.c) --------- */

#define BENCH_JOURNAL_MAGIC 0x4c4e524a4b434142ull

/* struct bench_jhead - first page of the file; the same machine reads it */
struct bench_jhead {
	uint64_t magic;
	uint32_t threads, interval_ms;
	uint64_t per_thread;  /* entries that each thread has room for */
	uint64_t records, value_size;
	uint64_t begin_ns;
	uint64_t was_empty;   /* 1: the store had no record before */
	uint64_t is_missing;  /* 1: loads only what is not there: numbers may be skipped */
};

struct bench_jentry {
	uint64_t record;
	uint64_t ack_ns; /* CLOCK_MONOTONIC, read after kvdb_put() returned */
};

/* per thread: a cache line with the count, then per_thread entries */
struct bench_jlane {
	_Alignas(64) uint64_t count; /* atomic, stored after its entry */
	struct bench_jentry entry[];
};

struct bench_journal {
	struct bench_jhead *head;
	size_t bytes;
};

size_t bench_journal_lane(const struct bench_jhead *h);
int bench_journal_make(struct bench *b);
int bench_journal_open(struct ui *ui, const char *file, struct bench_journal *j);
void bench_journal_close(struct bench_journal *j);
static inline struct bench_jlane *bench_jlane_of(const struct bench_journal *j, unsigned thread)
{
	return (void *)((char *)j->head + 4096 + thread * bench_journal_lane(j->head));
}

static inline void bench_journal_note(const struct bench_journal *j, unsigned thread,
				      uint64_t record)
{
	struct bench_jlane *l = bench_jlane_of(j, thread);
	uint64_t n = l->count;

	if (n >= j->head->per_thread)
		return;
	l->entry[n].record = record;
	l->entry[n].ack_ns = bench_now_ns();
	__atomic_store_n(&l->count, n + 1, __ATOMIC_RELEASE);
}

/* kvdb bench --check FILE DB */
int bench_check(struct bench *b, const char *file);

#endif
