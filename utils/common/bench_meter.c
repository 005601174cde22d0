/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Clocks and meters of the benchmark. The tick is the time stamp counter where
 * the CPU says that it never stops or changes pace, else CLOCK_MONOTONIC; a
 * phase converts ticks by its own length in both clocks.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "bench_gen.h"
#include "bench_meter.h"
#include "bench_value.h"

bool bench_has_tsc;
unsigned char bench_noise[2 * BENCH_NOISE];

void bench_noise_init(unsigned zeros)
{
	struct bench_rng r;
	unsigned i;

	/* fixed: values must verify in every process */
	bench_rng_seed(&r, 0x6b766462);
	for (i = 0; i < BENCH_NOISE; i += 8) {
		uint64_t v = bench_rand(&r);

		memcpy(bench_noise + i, &v, 8);
	}
	for (i = 0; i < BENCH_NOISE; i++)
		if (i % BENCH_FIELD < zeros * BENCH_FIELD / 100)
			bench_noise[i] = 0;
	memcpy(bench_noise + BENCH_NOISE, bench_noise, BENCH_NOISE);
}

void bench_clock_init(void)
{
#if defined(__x86_64__)
	unsigned a, b, c, d;

	/* invariant TSC: leaf 80000007h, EDX bit 8 */
	bench_has_tsc = __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & 0x100);
#endif
}

uint64_t bench_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static size_t read_proc(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, buf, size - 1) : -1;

	if (fd >= 0)
		close(fd);
	buf[n > 0 ? n : 0] = 0;
	return n > 0 ? (size_t)n : 0;
}

/* number after @name at the beginning of a line of a /proc file */
static uint64_t proc_field(const char *text, const char *name)
{
	size_t n = strlen(name);
	const char *p;

	for (p = text; p; p = strchr(p, '\n'), p = p ? p + 1 : NULL)
		if (!strncmp(p, name, n))
			return strtoull(p + n, NULL, 10);
	return 0;
}

void bench_meter_read(struct bench_meter *m)
{
	struct rusage ru;
	char buf[2048];

	read_proc("/proc/self/io", buf, sizeof(buf));
	m->proc_read = proc_field(buf, "read_bytes:");
	m->proc_write = proc_field(buf, "write_bytes:");
	getrusage(RUSAGE_SELF, &ru);
	m->cpu_ns = ((uint64_t)ru.ru_utime.tv_sec + (uint64_t)ru.ru_stime.tv_sec) * 1000000000u +
		    ((uint64_t)ru.ru_utime.tv_usec + (uint64_t)ru.ru_stime.tv_usec) * 1000u;
	m->ticks = bench_ticks();
	m->ns = bench_now_ns();
}

void bench_peak_reset(void)
{
	int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);

	/* where this is forbidden the peak is that of the whole process so far */
	if (fd < 0)
		return;
	if (write(fd, "5", 1) < 0) {
		close(fd);
		return;
	}
	close(fd);
}

uint64_t bench_peak_rss(void)
{
	char buf[4096];
	struct rusage ru;
	uint64_t kib;

	read_proc("/proc/self/status", buf, sizeof(buf));
	kib = proc_field(buf, "VmHWM:");
	if (!kib) {
		getrusage(RUSAGE_SELF, &ru);
		kib = (uint64_t)ru.ru_maxrss;
	}
	return kib * 1024;
}
