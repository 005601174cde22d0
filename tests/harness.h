/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A TAP producer for test programs: one function per behaviour, named so.
 *
 *	static void mlog_torn_tail_is_cut(void) { T_EQ(x, 3); T_OK(ptr != NULL); }
 *	int main(void) { T_RUN(mlog_torn_tail_is_cut); return t_done(); }
 *
 * A failed check prints where and what, ends its test function by longjmp and
 * lets the next one run. t_seed() gives the run's seed (environment SEED, else
 * the clock) and prints it once. Only the main thread may use T_* checks.
 */
#ifndef TESTS_HARNESS_H
#define TESTS_HARNESS_H

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static jmp_buf t_env;
static unsigned int t_count, t_failed;

#define T_FAIL(...) do {						\
	printf("# %s:%d: ", __FILE__, __LINE__);			\
	printf(__VA_ARGS__);						\
	printf("\n");							\
	longjmp(t_env, 1);						\
} while (0)

#define T_OK(cond) do { if (!(cond)) T_FAIL("failed: %s", #cond); } while (0)

#define T_EQ(a, b) do {							\
	long long t_a = (long long)(a), t_b = (long long)(b);		\
	if (t_a != t_b)							\
		T_FAIL("%s = %lld, wanted %s = %lld", #a, t_a, #b, t_b);	\
} while (0)

#define T_STREQ(a, b) do {						\
	const char *t_a = (a), *t_b = (b);				\
	if (strcmp(t_a, t_b))						\
		T_FAIL("%s = \"%s\", wanted \"%s\"", #a, t_a, t_b);	\
} while (0)

#define T_MEMEQ(a, b, n) do {						\
	if (memcmp((a), (b), (n)))					\
		T_FAIL("%s and %s differ", #a, #b);			\
} while (0)

#define T_RUN(fn) t_run(#fn, fn)

static inline void t_run(const char *name, void (*fn)(void))
{
	t_count++;
	if (setjmp(t_env) == 0) {
		fn();
		printf("ok %u - %s\n", t_count, name);
	} else {
		t_failed++;
		printf("not ok %u - %s\n", t_count, name);
	}
	fflush(stdout);
}

/* One behaviour that cannot be shown here. */
static inline void t_skip(const char *name, const char *why)
{
	printf("ok %u - %s # SKIP %s\n", ++t_count, name, why);
}

static inline int t_done(void)
{
	printf("1..%u\n", t_count);
	return t_failed ? 1 : 0;
}

/* The whole program cannot run here; the reason is printed by the runner. */
static inline int t_skip_all(const char *why)
{
	printf("1..0 # SKIP %s\n", why);
	return 77;
}

/* SEED of the caller, else that of the suite's run, else of the clock */
static inline uint64_t t_seed(void)
{
	static uint64_t seed;
	const char *s = getenv("SEED") ? getenv("SEED") : getenv("TEST_SEED");
	struct timespec ts;

	if (seed)
		return seed;
	if (s && *s) {
		seed = strtoull(s, NULL, 0);
	} else {
		clock_gettime(CLOCK_REALTIME, &ts);
		seed = (uint64_t)ts.tv_sec * 1000003u + (uint64_t)ts.tv_nsec;
	}
	if (!seed)
		seed = 1;
	printf("# SEED=%" PRIu64 "\n", seed);
	return seed;
}

/* PIECE=i/n, i < n: of what a program repeats only each n-th, from the i-th on; a run in pieces. */
static inline int t_is_mine(unsigned int i)
{
	const char *s = getenv("PIECE");
	unsigned int piece, pieces;

	if (!s)
		return 1;
	if (sscanf(s, "%u/%u", &piece, &pieces) != 2 || piece >= pieces) {
		printf("Bail out! PIECE=%s: wanted is i/n, i < n\n", s);
		exit(2);
	}
	return i % pieces == piece;
}

/*
 * One row of the table at the end of `make check`: which line of the programme, how much of it.
 * Of runs in pieces the numbers are added, but for those that follow "of".
 */
static inline __attribute__((format(printf, 2, 3))) void t_figure(const char *line,
								  const char *fmt, ...)
{
	uint64_t seed = t_seed();
	va_list ap;

	printf("# figure: %s | ", line);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf(" | %" PRIu64 "\n", seed);
}

/* splitmix64: small, good enough for tests, same everywhere */
static inline uint64_t t_rand(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

#endif
