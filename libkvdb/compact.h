/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Compaction that somebody asked for, see compact.c. */
#ifndef KV_COMPACT_H
#define KV_COMPACT_H

#include "kv.h"

/* k_compact: what is still to be done with a store. */
enum kv_compact_state {
	KV_COMPACT_NONE = 0,
	KV_COMPACT_ASKED,
	KV_COMPACT_FLUSH,	/* until no memtable holds what was there at cp_epoch */
	KV_COMPACT_MERGE,	/* all runs into one */
};

/* One step from the request to the merges: 1, 0, -errno. Mergers, in front of merges. */
int kv_compact_step(struct kvdb *db);
/* A store is not merged yet: values wait. */
bool kv_compact_is_merging(struct kvdb *db);
/* What was asked for, of one store or, with NULL, at all, is not done yet. */
bool kv_compact_is_asked(struct kvdb *db, const struct kvdb_kvs *kvs);
/* The merge of all runs of a store, planned when k_compact_run was @run, is published. mg_lock. */
void kv_compact_merged(struct kvdb_kvs *kvs, uint64_t run);
/* Gives up whatever was asked for; @err is what those who asked are told. */
void kv_compact_end(struct kvdb *db, int err);
/* work.c: until it is done, and what it freed is free; what else is due is not waited for. */
int kv_compact_wait(struct kvdb *db, const struct kvdb_kvs *kvs);
/* For the progress of what was asked for, bytes. */
void kv_compact_todo(struct kvdb *db, uint64_t bytes);
/* A walk over @bytes of runs that reports @looks times how far it came. */
struct kv_walk {
	uint64_t wa_left, wa_step;
};
void kv_walk_begin(struct kvdb *db, struct kv_walk *wa, uint64_t bytes, uint64_t looks);
void kv_walk_on(struct kvdb *db, struct kv_walk *wa);
void kv_walk_end(struct kvdb *db, struct kv_walk *wa);

#endif
