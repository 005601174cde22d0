/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * mpool bench: measuring a device with fio.
 */
#ifndef UTILS_BENCH_H
#define UTILS_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#define BENCH_ARGS 32

/* struct bench_lat - latencies in nanoseconds; all 0 when there was none */
struct bench_lat {
	uint64_t n; /* requests */
	uint64_t p50, p99, p999;
};

/* struct bench_io - one direction of a job */
struct bench_io {
	uint64_t bytes_per_s, iops;
	struct bench_lat lat;
};

/* struct bench_result - what fio measured in one job */
struct bench_result {
	struct bench_io read, write;
	struct bench_lat sync;
};

/*
 * Run fio with @argv and parse its JSON. Returns 0; -ENOENT: there is no fio;
 * -EINTR: it was stopped by a signal; -EILSEQ: it read other data than it had
 * written; else -EIO. @why gets its message.
 */
int bench_fio(char *const *argv, struct bench_result *out, char *why, unsigned size);

#endif
