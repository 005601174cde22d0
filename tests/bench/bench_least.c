/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The least that any cache can read: which part of the gets of YCSB's choosers misses when the
 * memory always holds what is asked for most, chosen with the knowledge of all probabilities,
 * and nothing else. Once by whole records, once by pages of 4 KiB in which records lie in order
 * of arrival; a get misses when a page of its record is not there.
 *
 *	bench_least [RECORDS [RECORD_BYTES [MEMORY_MIB]]]
 */
#include <stdio.h>
#include <stdlib.h>

#include "bench_gen.h"

#define PAGE	4096ull
#define RANKS	(64ull << 20)	/* of the scrambled chooser, one by one; the others as one */

static uint64_t nrecords = 8000000, record_bytes = 1064, memory_bytes = 1536ull << 20;
static double *weight;		/* of each record: its probability */

static void *array(uint64_t n)
{
	void *p = calloc(n, sizeof(double));

	if (!p) {
		fprintf(stderr, "bench_least: no memory\n");
		exit(1);
	}
	return p;
}

static void uniform(void)
{
	for (uint64_t i = 0; i < nrecords; i++)
		weight[i] = 1.0 / (double)nrecords;
}

/* Ranks are hashed onto records. */
static void zipfian(void)
{
	double rest = BENCH_ZETAN;

	for (uint64_t i = 0; i < nrecords; i++)
		weight[i] = 0;
	for (uint64_t r = 0; r < RANKS; r++) {
		double p = pow((double)(r + 1), -BENCH_THETA);

		weight[bench_fnv64(r) % nrecords] += p / BENCH_ZETAN;
		rest -= p;
	}
	for (uint64_t i = 0; i < nrecords; i++)
		weight[i] += rest / BENCH_ZETAN / (double)nrecords;
}

/* The newest record has the first rank. */
static void latest(void)
{
	double zetan = bench_zeta(0, nrecords, BENCH_THETA, 0);

	for (uint64_t i = 0; i < nrecords; i++)
		weight[nrecords - 1 - i] = pow((double)(i + 1), -BENCH_THETA) / zetan;
}

static int by_weight(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? 1 : x > y ? -1 : 0;
}

/* The weight below which nothing of the @n weights is among the @most greatest. */
static double least_kept(const double *w, uint64_t n, uint64_t most)
{
	double *sorted = array(n), least;

	for (uint64_t i = 0; i < n; i++)
		sorted[i] = w[i];
	qsort(sorted, n, sizeof(*sorted), by_weight);
	least = most >= n ? 0 : most ? sorted[most - 1] : INFINITY;
	free(sorted);
	return least;
}

/* Of equal weights it keeps the first ones: no more than there is room for. */
static double records_missed(void)
{
	uint64_t most = memory_bytes / record_bytes, kept = 0;
	double least = least_kept(weight, nrecords, most), missed = 0;

	for (uint64_t i = 0; i < nrecords; i++) {
		if (weight[i] >= least && kept < most)
			kept++;
		else
			missed += weight[i];
	}
	return missed;
}

static double pages_missed(void)
{
	uint64_t npages = (nrecords * record_bytes + PAGE - 1) / PAGE, most = memory_bytes / PAGE;
	double *page = array(npages), least, missed = 0;
	uint64_t kept = 0;

	for (uint64_t i = 0; i < nrecords; i++)
		for (uint64_t p = i * record_bytes / PAGE;
		     p <= ((i + 1) * record_bytes - 1) / PAGE; p++)
			page[p] += weight[i];
	least = least_kept(page, npages, most);
	for (uint64_t p = 0; p < npages; p++) {
		bool is_kept = page[p] >= least && kept < most;

		kept += is_kept;
		page[p] = is_kept;
	}
	for (uint64_t i = 0; i < nrecords; i++) {
		bool is_there = true;

		for (uint64_t p = i * record_bytes / PAGE;
		     p <= ((i + 1) * record_bytes - 1) / PAGE; p++)
			is_there = is_there && page[p] != 0;
		if (!is_there)
			missed += weight[i];
	}
	free(page);
	return missed;
}

static uint64_t number(const char *s, uint64_t most)
{
	char *end;
	unsigned long long n = strtoull(s, &end, 10);

	if (*end || !n || n > most) {
		fprintf(stderr, "usage: bench_least [RECORDS [RECORD_BYTES [MEMORY_MIB]]]\n");
		exit(2);
	}
	return n;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*fn)(void);
	} chooser[] = { { "zipfian", zipfian }, { "uniform", uniform }, { "latest", latest } };

	nrecords = argc > 1 ? number(argv[1], 1ull << 32) : nrecords;
	record_bytes = argc > 2 ? number(argv[2], 1ull << 24) : record_bytes;
	memory_bytes = argc > 3 ? number(argv[3], 1ull << 24) << 20 : memory_bytes;
	weight = array(nrecords);
	printf("%llu records of %llu bytes, memory for %llu MiB of them\n",
	       (unsigned long long)nrecords, (unsigned long long)record_bytes,
	       (unsigned long long)(memory_bytes >> 20));
	printf("gets that miss   by records  by pages\n");
	for (unsigned i = 0; i < sizeof(chooser) / sizeof(chooser[0]); i++) {
		chooser[i].fn();
		printf("%-16s %10.2f  %8.2f\n", chooser[i].name, records_missed(), pages_missed());
	}
	free(weight);
	return 0;
}
