/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Filters of key blocks that are not in memory. Format: filter.h.
 */
#ifndef KV_RUN_FILTER_H
#define KV_RUN_FILTER_H

#include <stdint.h>

struct kv_kblock;
struct kvdb;

/*
 * kv_filter_far - the 64 bytes of a filter that is not in memory, for kv_filter_block_has()
 * NULL: what they are is not known, so the key may be there: they cannot be read. 0, or
 * -EINPROGRESS (cache/load.h). Inside kv_enter(), *block is good until kv_exit(). May read.
 */
int kv_filter_far(struct kvdb *db, struct kv_kblock *kb, uint64_t hash, const uint8_t **block);

#endif
