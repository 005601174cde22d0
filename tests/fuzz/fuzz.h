/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the fuzz programs share. A program has targets; byte 0 of an input
 * chooses one. Everything after it is the target's, taken from the front
 * through struct fz, which gives zeroes when it is used up.
 *
 * A program counts what it executed, by target, and prints that at its end.
 */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fz {
	const uint8_t *p;
	size_t n;
};

struct fz_target {
	const char *name;
	void (*run)(struct fz *f);
};

/* ended by a name that is NULL; each program defines it */
extern const struct fz_target fz_targets[];
/* once, before the first input */
void fz_init(void);

uint64_t fz_num(struct fz *f, unsigned bytes);
/* a copy of its own of at most @max bytes, so that one byte too far is noticed; free() it */
uint8_t *fz_copy(struct fz *f, size_t max, size_t *n);
/* what may never happen: says so and dies */
void fz_bug(const char *what) __attribute__((noreturn));

/*
 * While it is on, checksums are not compared (guard.h): an attacker who writes
 * an image makes them right, so nothing may depend on them but the truth.
 */
void fz_trust(bool is_on);

/* P6: heap taken between the two calls is at most 64 MiB and 0.1 % of @media, and @budget */
void fz_heap_begin(void);
void fz_heap_end(uint64_t media, uint64_t budget);

#endif
