/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the fuzzer does with objects' descriptors beside ioctls.
 */
#ifndef TESTS_KMOD_FUZZ_FILES_H
#define TESTS_KMOD_FUZZ_FILES_H

#include <stdbool.h>
#include <stdint.h>

/* one random operation; *doing says which */
void files_one(uint64_t *rng, const char *volatile *doing);
/* open a descriptor again through /proc; @is_poor: the caller has no privilege */
void files_reopen(uint64_t *rng, bool is_poor);
/* forgets the maps that are left */
void files_end(void);

#endif
