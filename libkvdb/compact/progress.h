/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The progress of a compaction that was asked for, see progress.c. */
#ifndef KV_PROGRESS_H
#define KV_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct kvdb;
struct kvdb_kvs;

/* k_compact: what is still to be done with a store. */
enum kv_compact_state {
	KV_COMPACT_NONE = 0,
	KV_COMPACT_ASKED,
	KV_COMPACT_FLUSH,	/* until no memtable holds what was there at cp_epoch */
	KV_COMPACT_MERGE,	/* all runs into one */
};

/* A store is in state @st; KV_COMPACT_NONE: in any other one. */
bool kv_compact_has(struct kvdb *db, uint32_t st);
/* A store is not merged yet: values wait. */
bool kv_compact_is_merging(struct kvdb *db);
/* The merge of all runs of a store, planned when k_compact_run was @run, is published. mg_lock. */
void kv_compact_merged(struct kvdb_kvs *kvs, uint64_t run);
/* The same of one store alone: the others are still compacted, and waiters for all are told. */
void kv_compact_give_up(struct kvdb_kvs *kvs, int err);
/* Gives up what was asked for; @err is what the callers that asked are told. */
void kv_compact_end(struct kvdb *db, int err);
/* For the progress of what was asked for, bytes. */
void kv_compact_todo(struct kvdb *db, uint64_t bytes);
/* A walk over @bytes of runs that reports @looks times how far it came. */
struct kv_progress {
	uint64_t wa_left, wa_step;
};
void kv_progress_begin(struct kvdb *db, struct kv_progress *wa, uint64_t bytes, uint64_t looks);
void kv_progress_tell(struct kvdb *db, struct kv_progress *wa);
void kv_progress_end(struct kvdb *db, struct kv_progress *wa);

#endif
