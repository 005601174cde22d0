/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Compaction on request, see compact.c. */
#ifndef KV_COMPACT_H
#define KV_COMPACT_H

#include <stdbool.h>

struct kvdb;
struct kvdb_kvs;

/* One step from the request to the merges: 1, 0, -errno. Mergers, in front of merges. */
int kv_compact_step(struct kvdb *db);
/* What was asked for, of one store or, with NULL, at all, is not done yet. */
bool kv_compact_is_asked(struct kvdb *db, const struct kvdb_kvs *kvs);
/* work.c: until it is done, and what it freed is free; what else is due is not waited for. */
int kv_compact_wait(struct kvdb *db, const struct kvdb_kvs *kvs);

#endif
