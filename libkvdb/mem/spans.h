/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Epochs of memtables, for what a segment is still needed for (RV7). */
#ifndef KV_SPANS_H
#define KV_SPANS_H

#include <stdbool.h>
#include <stdint.h>

struct kv_seg;
struct kvdb;

/*
 * RV7: the epochs of the records of all memtables alive. A flushed one, which views keep, gets no
 * more; the last entry stands for all that have no room.
 */
#define KV_MT_EPOCHS	32

struct kv_mt_epochs {
	unsigned ms_n;
	struct {
		uint64_t first, last;
	} ms[KV_MT_EPOCHS];
};

/* After the horizon was read that a segment is to be judged by. */
void kv_mt_epochs(struct kvdb *db, struct kv_mt_epochs *ms);
/* Whether the record of a memtable may name @s by its epoch; values of transactions pin theirs. */
bool kv_mt_may_refer(const struct kv_mt_epochs *ms, const struct kv_seg *s);

#endif
