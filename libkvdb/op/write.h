/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Writes that never wait. */
#ifndef KV_WRITE_H
#define KV_WRITE_H

#include <stddef.h>

struct kv_pending_write;
struct kvdb_kvs;

/*
 * As kvdb_put() and kvdb_del(), but -EAGAIN instead of waiting for room, -EBUSY
 * instead of waiting for the transaction that owns the key, and the
 * acknowledgement is the caller's: not before the epoch is durable (commit mode)
 * or while kv_gate_is_shut() and it is not durable.
 */
int kv_put_start(struct kvdb_kvs *kvs, const void *key, size_t klen, const void *val, size_t vlen,
		 struct kv_pending_write *bg);
int kv_del_start(struct kvdb_kvs *kvs, const void *key, size_t klen, struct kv_pending_write *bg);

#endif
