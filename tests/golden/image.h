/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Images of whole pools in one compressed file: the pool's configuration and
 * its simulated devices. Below them the contents of the golden images, which
 * every later build must open and show as the text beside them says.
 */
#ifndef TESTS_GOLDEN_IMAGE_H
#define TESTS_GOLDEN_IMAGE_H

#include <stdio.h>

#include <kvdb/kvdb.h>

#include "sim.h"

#define GOLDEN_POOL	"./golden"

/* Zeroes all that nothing refers to: what was discarded is garbage. 0 or -errno. */
int image_trim(struct sim *s);
/* 0 or -errno */
int image_save(const struct sim *s, const char *path);
/* into @s, which is empty */
int image_load(struct sim *s, const char *path);

/* options for a pool, and for a database without threads on a clock that stands still */
void golden_opts(struct sim *s, struct mpool_open_opts *oo, struct kvdb_opts *o);

/*
 * What an image is made of: _fill() works on an empty @s and leaves what a
 * process that died would; _list() opens it and writes everything that can be
 * read to @out. 0 or -errno of the call that failed.
 */
int golden_pool_fill(struct sim *s);
int golden_pool_list(struct sim *s, FILE *out);
int golden_kvdb_fill(struct sim *s);
int golden_kvdb_list(struct sim *s, FILE *out);

#endif
