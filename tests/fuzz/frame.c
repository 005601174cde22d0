/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The frame of a fuzz program: targets, counts, checksums, heap. See fuzz.h. */
#include <inttypes.h>
#include <sanitizer/allocator_interface.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "guard.h"

#define TARGETS	32u

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t count[TARGETS];
static unsigned targets;

/* ---- checksums ---------------------------------------------------------------------- */

static bool is_trusting;

void fz_trust(bool is_on)
{
	__atomic_store_n(&is_trusting, is_on, __ATOMIC_RELAXED);
}

/* at every comparison of checksums: no instruments */
__attribute__((no_sanitize("address", "undefined", "coverage"))) int mp_trusts_crc(void)
{
	return __atomic_load_n(&is_trusting, __ATOMIC_RELAXED);
}

/* ---- heap --------------------------------------------------------------------------- */

static int64_t heap, heap_top;

static void on_malloc(const volatile void *p, size_t size)
{
	int64_t now = __atomic_add_fetch(&heap, (int64_t)size, __ATOMIC_RELAXED);
	int64_t top = __atomic_load_n(&heap_top, __ATOMIC_RELAXED);

	(void)p;
	while (now > top && !__atomic_compare_exchange_n(&heap_top, &top, now, false,
							 __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

static void on_free(const volatile void *p)
{
	if (p)
		__atomic_sub_fetch(&heap, (int64_t)__sanitizer_get_allocated_size((const void *)p),
				   __ATOMIC_RELAXED);
}

void fz_heap_begin(void)
{
	__atomic_store_n(&heap, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&heap_top, 0, __ATOMIC_RELAXED);
}

void fz_heap_end(uint64_t media, uint64_t budget)
{
	int64_t top = __atomic_load_n(&heap_top, __ATOMIC_RELAXED);

	if (top > (int64_t)(budget + (64u << 20) + media / 1000)) {
		fprintf(stderr, "%" PRId64 " bytes of heap\n", top);
		fz_bug("activation took too much memory");
	}
}

/* ---- input -------------------------------------------------------------------------- */

uint64_t fz_num(struct fz *f, unsigned bytes)
{
	uint64_t v = 0;
	size_t n = f->n < bytes ? f->n : bytes;

	memcpy(&v, f->p, n);
	f->p += n;
	f->n -= n;
	return v;
}

uint8_t *fz_copy(struct fz *f, size_t max, size_t *n)
{
	uint8_t *p;

	*n = f->n < max ? f->n : max;
	p = malloc(*n ? *n : 1);
	if (!p)
		abort();
	memcpy(p, f->p, *n);
	f->p += *n;
	f->n -= *n;
	return p;
}

void fz_bug(const char *what)
{
	fprintf(stderr, "fuzz: %s\n", what);
	abort();
}

/* ---- the program -------------------------------------------------------------------- */

static void print_counts(void)
{
	uint64_t all = 0;

	for (unsigned i = 0; i < targets; i++) {
		printf("# %-12s %10" PRIu64 " executions\n", fz_targets[i].name, count[i]);
		all += count[i];
	}
	printf("# executions %" PRIu64 "\n", all);
	fflush(stdout);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	while (fz_targets[targets].name && targets < TARGETS)
		targets++;
	__sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
	fz_init();
	atexit(print_counts);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fz f = { .p = data + 1, .n = size - 1 };

	if (!size)
		return 0;
	count[data[0] % targets]++;
	fz_targets[data[0] % targets].run(&f);
	fz_trust(false);
	return 0;
}
