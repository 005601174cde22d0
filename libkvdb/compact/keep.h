/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What was in memory is there again when it has moved. */
#ifndef KV_KEEP_H
#define KV_KEEP_H

#include <stdbool.h>
#include <stdint.h>

struct kv_seg;
struct kvdb;

/* Copies @len bytes at @off of a segment if all are in memory; false: @to may have some. */
bool kv_keep_copy(struct kvdb *db, struct kv_seg *s, uint32_t off, uint32_t len, uint8_t *to);
/*
 * The first @len bytes of a segment that was just written, @from, stay in memory where there is
 * room. The caller has a reference, and no entry refers to it yet. Outside kv_enter().
 */
void kv_keep_written(struct kvdb *db, struct kv_seg *s, const uint8_t *from, uint32_t len);

#endif
