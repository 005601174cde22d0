/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Latency histogram: log-linear buckets, 64 per power of two, so a percentile
 * is at most 1/64 (1.6 %) too high and never too low. Values are plain
 * numbers; the driver records clock ticks and converts when it reports.
 * One writer per histogram, no lock; merge after the writers have ended.
 */
#ifndef UTILS_BENCH_HIST_H
#define UTILS_BENCH_HIST_H

#include <stdint.h>

#define BENCH_HIST_BITS    6u
#define BENCH_HIST_SUB     (1u << BENCH_HIST_BITS)
#define BENCH_HIST_MAX_EXP 44u /* larger values share the last bucket; max stays exact */
#define BENCH_HIST_BUCKETS ((BENCH_HIST_MAX_EXP - BENCH_HIST_BITS + 1) * BENCH_HIST_SUB)

struct bench_hist {
	uint64_t count;
	uint64_t max;
	uint64_t sum;
	uint32_t bucket[BENCH_HIST_BUCKETS + 1];
};

static inline unsigned bench_hist_index(uint64_t v)
{
	unsigned e;

	if (v < BENCH_HIST_SUB)
		return (unsigned)v;
	e = 63u - (unsigned)__builtin_clzll(v);
	if (e >= BENCH_HIST_MAX_EXP)
		return BENCH_HIST_BUCKETS;
	return (e - BENCH_HIST_BITS + 1) * BENCH_HIST_SUB +
	       (unsigned)((v >> (e - BENCH_HIST_BITS)) & (BENCH_HIST_SUB - 1));
}

static inline void bench_hist_add(struct bench_hist *h, uint64_t v)
{
	h->count++;
	h->sum += v;
	if (v > h->max)
		h->max = v;
	h->bucket[bench_hist_index(v)]++;
}

/* the largest value that falls into bucket @i */
uint64_t bench_hist_upper(unsigned i);
void bench_hist_merge(struct bench_hist *to, const struct bench_hist *from);
/* the value that @part (0.0 .. 1.0) of all values do not exceed; 0 when empty */
uint64_t bench_hist_quantile(const struct bench_hist *h, double part);

#endif
