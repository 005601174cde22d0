/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Reading side of the latency histogram; see bench_hist.h. */
#include <math.h>

#include "bench_hist.h"

uint64_t bench_hist_upper(unsigned i)
{
	unsigned e;

	if (i < BENCH_HIST_SUB)
		return i;
	if (i >= BENCH_HIST_BUCKETS)
		return UINT64_MAX;
	e = i / BENCH_HIST_SUB - 1;
	return (((uint64_t)(BENCH_HIST_SUB + i % BENCH_HIST_SUB) + 1) << e) - 1;
}

void bench_hist_merge(struct bench_hist *to, const struct bench_hist *from)
{
	unsigned i;

	to->count += from->count;
	to->sum += from->sum;
	if (from->max > to->max)
		to->max = from->max;
	for (i = 0; i <= BENCH_HIST_BUCKETS; i++)
		to->bucket[i] += from->bucket[i];
}

uint64_t bench_hist_quantile(const struct bench_hist *h, double part)
{
	uint64_t want, seen = 0, v;
	unsigned i;

	if (!h->count)
		return 0;
	want = (uint64_t)ceil(part * (double)h->count);
	if (want < 1)
		want = 1;
	if (want > h->count)
		want = h->count;
	for (i = 0; i <= BENCH_HIST_BUCKETS; i++) {
		seen += h->bucket[i];
		if (seen >= want)
			break;
	}
	v = bench_hist_upper(i);
	return v < h->max ? v : h->max;
}
