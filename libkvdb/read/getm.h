/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Reading of many keys, in as many runs as it takes.
 */
#ifndef KV_GETM_H
#define KV_GETM_H

#include <stddef.h>
#include <stdint.h>

struct kv_tree;
struct kvdb_get;
struct kvdb_kvs;

/* Keys whose err is -EINPROGRESS have no answer yet. */
struct kv_getm {
	struct kvdb_kvs *gm_kvs;
	struct kvdb_get *gm_get;
	unsigned gm_n;
	unsigned gm_first;	/* those before it are answered */
	unsigned gm_left;	/* not answered */
	struct kv_tree *gm_tree;	/* of one moment, with a reference; NULL: current ones */
	uint64_t gm_seq, gm_now;
};

int kv_getm_begin(struct kv_getm *gm, struct kvdb_kvs *kvs, unsigned flags, struct kvdb_get *get,
		  size_t n);
/* 0: all are answered. -EINPROGRESS: some wait for reads that an operation noted. */
int kv_getm_run(struct kv_getm *gm);
void kv_getm_end(struct kv_getm *gm);

#endif
