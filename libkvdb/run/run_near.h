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

struct kv_fences;
struct kv_kblock;
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
 * Copies pieces of the block to memory of their own; without memory they are far.
 * @index: what lies behind its key pages; @has: which are wanted; @mem: NULL: it is far
 */
void kv_near_keep(const struct kv_kblock *kb, const struct kv_fences *fe, const uint8_t *index,
		  const bool has[KV_PIECES], uint8_t *mem[KV_PIECES]);
/*
 * kv_near_publish - what was loaded of a block, @from, is known to readers from now on (IDX-1)
 * False: another thread was first, and @from and @mem are the caller's to free. kv_near_trim()
 * follows, outside of locks.
 */
bool kv_near_publish(struct kvdb *db, struct kv_kblock *kb, const struct kv_kblock *from,
		     uint8_t *const mem[KV_PIECES]);
/*
 * One thread loads the block of those that may wait: true in it. The others wait: false, and it
 * was loaded, or that failed.
 */
bool kv_near_claim(struct kvdb *db, struct kv_kblock *kb);
void kv_near_unclaim(struct kvdb *db, struct kv_kblock *kb);
/* Their memory goes at once: no reader can ask any more. */
void kv_near_free(struct kvdb *db, struct kv_kblock *kb);
/* Bytes of memory that those of the block take now. */
uint64_t kv_near_bytes(const struct kv_kblock *kb);

/*
 * A run that is whole, of which blocks may have pieces in memory; then kv_near_trim().
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
