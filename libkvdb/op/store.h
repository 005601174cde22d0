/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Stores in memory. */
#ifndef KV_STORE_H
#define KV_STORE_H

#include <stdint.h>

struct kv_props;
struct kvdb;
struct kvdb_kvs;

/* In-memory store object with an empty tree; adds it to sr_kvs (open, create, recovery). */
int kv_kvs_new(struct kvdb *db, uint32_t id, const char *name, uint64_t horizon,
	       const struct kv_props *props, struct kvdb_kvs **out);
void kv_kvs_free(struct kvdb *db, struct kvdb_kvs *kvs);

#endif
