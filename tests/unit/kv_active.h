/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The active memtable of a store, for a test that is the only one to replace it. */
#ifndef KV_ACTIVE_H
#define KV_ACTIVE_H

#include "db/limbo.h"
#include "tree/tree.h"

static inline struct kv_mt *active_mt(struct kvdb_kvs *kvs)
{
	struct kv_thread *t = kv_enter();
	struct kv_mt *mt = kv_mt_active(kvs);

	kv_exit(t);
	return mt;
}

#endif
