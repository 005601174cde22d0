/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Which filters of runs are in memory, and how those that are not are asked: a page at a time,
 * through the page pool. Format: "Filter" in FORMAT.md; bits: filter.h.
 */
#ifndef KV_RUN_FILTER_H
#define KV_RUN_FILTER_H

#include <stdbool.h>
#include <stdint.h>

struct kv_kblock;
struct kv_run;
struct kvdb;

/*
 * kv_filter_has_room - may one of @bytes stay in memory, of a block that is made or opened now?
 * @own: bytes of filters that the same build keeps already. A build may always have an eighth of
 * the budget: small runs, which most gets ask, push large ones out.
 */
bool kv_filter_has_room(struct kvdb *db, uint64_t bytes, uint64_t own);
/* Copies the block's filter, @bits, to memory of its own; without memory it stays with the pool. */
void kv_filter_keep(struct kvdb *db, struct kv_kblock *kb, const uint8_t *bits);
/* Its memory goes at once: no reader can ask any more. */
void kv_filter_free(struct kvdb *db, struct kv_kblock *kb);

/*
 * A run that is whole, of which the filters of the first blocks may be in memory; then
 * kv_filters_trim(). Of locks, only those that destructors allow (DESIGN.md, "Locks").
 */
void kv_filters_add(struct kvdb *db, struct kv_run *r);
/* Filters leave memory until all indexes keep within b_filter_bytes, or none is left. */
void kv_filters_trim(struct kvdb *db);
/* It ends. */
void kv_filters_remove(struct kvdb *db, struct kv_run *r);
/*
 * One filter comes back to memory if there is room again, of the smallest run that lacks one.
 * Reads it. 1: one came, 0: there is nothing to do. Outside of kv_enter(), without locks.
 */
int kv_filters_step(struct kvdb *db);

/*
 * kv_filter_far - the 64 bytes of a filter that is not in memory, for kv_filter_block_has()
 * NULL: what they are is not known, so the key may be there: they cannot be read. 0, or
 * -EINPROGRESS (cache/load.h). Inside kv_enter(), *block is good until kv_exit(). May read.
 */
int kv_filter_far(struct kvdb *db, struct kv_kblock *kb, uint64_t hash, const uint8_t **block);
/* The page of the object after the last one that the pool may have. */
uint64_t kv_kblock_pages_end(const struct kv_kblock *kb);

#endif
