/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Clocks and meters of a benchmark: what a process has used so far. Any thread
 * may read them after bench_clock_init().
 */
#ifndef UTILS_BENCH_METER_H
#define UTILS_BENCH_METER_H

#include <stdbool.h>
#include <stdint.h>

/* struct bench_meter - what is read at the edges of a phase */
struct bench_meter {
	uint64_t ns;          /* CLOCK_MONOTONIC */
	uint64_t ticks;
	uint64_t cpu_ns;      /* user + system, all threads, living and ended */
	uint64_t proc_read, proc_write; /* /proc/self/io, block layer bytes; 0 = unreadable */
};

extern bool bench_has_tsc;
void bench_clock_init(void);
uint64_t bench_now_ns(void);

static inline uint64_t bench_ticks(void)
{
#if defined(__x86_64__)
	if (bench_has_tsc)
		return __builtin_ia32_rdtsc();
#endif
	return bench_now_ns();
}

void bench_meter_read(struct bench_meter *m);
/* The largest resident memory of this process, since the last reset where that is allowed. */
uint64_t bench_peak_rss(void);
void bench_peak_reset(void);

#endif
