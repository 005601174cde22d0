/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The latency histogram against sorted lists: a quantile is never below the
 * exact one and at most 1/64 above it.
 */
#include "harness.h"

#include <math.h>

#include "bench_hist.h"

#define N 20000u

static uint64_t val[N];

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void every_value_lies_in_its_bucket(void)
{
	uint64_t rng = t_seed(), v, upper;
	unsigned i, at, shift;

	for (i = 0; i < 100000; i++) {
		shift = 64 - BENCH_HIST_MAX_EXP + (unsigned)(t_rand(&rng) % BENCH_HIST_MAX_EXP);
		v = t_rand(&rng) >> shift;
		at = bench_hist_index(v);
		T_OK(at < BENCH_HIST_BUCKETS);
		upper = bench_hist_upper(at);
		T_OK(upper >= v);
		T_OK(upper - v <= v / BENCH_HIST_SUB);
		T_OK(!at || bench_hist_upper(at - 1) < v);
	}
}

static void buckets_are_contiguous(void)
{
	unsigned i;

	for (i = 0; i + 1 < BENCH_HIST_BUCKETS; i++) {
		T_EQ(bench_hist_index(bench_hist_upper(i)), i);
		T_EQ(bench_hist_index(bench_hist_upper(i) + 1), i + 1);
	}
	T_EQ(bench_hist_index(UINT64_MAX), BENCH_HIST_BUCKETS);
}

static void quantiles_match_a_sorted_list(void)
{
	static const double part[] = { 0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0 };
	static struct bench_hist h;
	uint64_t rng = t_seed(), exact, got;
	size_t i;

	memset(&h, 0, sizeof(h));
	for (i = 0; i < N; i++) {
		val[i] = t_rand(&rng) >> (30 + t_rand(&rng) % 30);
		bench_hist_add(&h, val[i]);
	}
	qsort(val, N, sizeof(val[0]), by_value);
	T_EQ(h.count, N);
	T_EQ(h.max, val[N - 1]);
	for (i = 0; i < sizeof(part) / sizeof(part[0]); i++) {
		size_t rank = (size_t)ceil(part[i] * N);

		exact = val[rank ? rank - 1 : 0];
		got = bench_hist_quantile(&h, part[i]);
		T_OK(got >= exact);
		T_OK(got - exact <= exact / BENCH_HIST_SUB);
	}
	T_EQ(bench_hist_quantile(&h, 1.0), val[N - 1]);
}

static void merge_is_the_histogram_of_all(void)
{
	static struct bench_hist a, b, both;
	uint64_t rng = t_seed(), v;
	unsigned i;

	memset(&a, 0, sizeof(a));
	memset(&b, 0, sizeof(b));
	memset(&both, 0, sizeof(both));
	for (i = 0; i < N; i++) {
		v = t_rand(&rng) >> 40;
		bench_hist_add(i % 3 ? &a : &b, v);
		bench_hist_add(&both, v);
	}
	bench_hist_merge(&a, &b);
	T_MEMEQ(&a, &both, sizeof(a));
}

static void empty_gives_zero(void)
{
	static struct bench_hist h;

	T_EQ(bench_hist_quantile(&h, 0.99), 0);
}

static void values_too_large_keep_an_exact_maximum(void)
{
	static struct bench_hist h;

	memset(&h, 0, sizeof(h));
	bench_hist_add(&h, 5);
	bench_hist_add(&h, UINT64_MAX - 3);
	T_EQ(bench_hist_quantile(&h, 0.5), 5);
	T_OK(bench_hist_quantile(&h, 1.0) == UINT64_MAX - 3);
}

int main(void)
{
	T_RUN(every_value_lies_in_its_bucket);
	T_RUN(buckets_are_contiguous);
	T_RUN(quantiles_match_a_sorted_list);
	T_RUN(merge_is_the_histogram_of_all);
	T_RUN(empty_gives_zero);
	T_RUN(values_too_large_keep_an_exact_maximum);
	return t_done();
}
