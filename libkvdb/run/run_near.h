/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Which pieces of the indexes of runs are near, in memory; the others are far, on pages of the
 * page pool (run_filter.h, run_fence.h).
 */
#ifndef KV_RUN_NEAR_H
#define KV_RUN_NEAR_H

#include <stdbool.h>
#include <stdint.h>

#include "db/parts.h"

struct kv_kblock;
struct kv_kfoot;
struct kv_run;
struct kvdb;

/* The pieces that a build, or an open, has put into memory so far; {0} at first. */
struct kv_near_own {
	uint64_t no_bytes;
	bool no_is_far[KV_PIECES];	/* one was not, nor are those that follow (FLT-2) */
};

/*
 * kv_near_choose - does this piece of the next block, of @bytes, stay in memory?
 * A build may always have an eighth of the budget: small runs, which most gets ask, push large
 * ones out.
 */
bool kv_near_choose(struct kvdb *db, struct kv_near_own *own, enum kv_piece piece, uint64_t bytes);
/*
 * Copies pieces of the block from @index, what lies between its key pages and its footer, to memory
 * of their own; without memory they are far. @has: which are wanted.
 */
void kv_near_keep(struct kvdb *db, struct kv_kblock *kb, const struct kv_kfoot *f,
		  const uint8_t *index, const bool has[KV_PIECES]);
/* Their memory goes at once: no reader can ask any more. */
void kv_near_free(struct kvdb *db, struct kv_kblock *kb);
/* Bytes of memory that those of the block take now. */
uint64_t kv_near_bytes(const struct kv_kblock *kb);

/*
 * A run that is whole, of which the first blocks may have pieces in memory; then kv_near_trim().
 * Of locks, only those that destructors allow (DESIGN.md, "Locks").
 */
void kv_near_add(struct kvdb *db, struct kv_run *r);
/* Pieces leave memory until all indexes keep within b_near_bytes, or none is left. */
void kv_near_trim(struct kvdb *db);
/* It ends. */
void kv_near_remove(struct kvdb *db, struct kv_run *r);
/*
 * One piece comes back to memory if there is room again, of the run that lacks the smallest.
 * Reads it. 1: one came, 0: there is nothing to do. Outside of kv_enter(), without locks.
 */
int kv_near_step(struct kvdb *db);

#endif
