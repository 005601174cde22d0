/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What a store says about one key. */
#ifndef KV_FIND_H
#define KV_FIND_H

#include <stddef.h>
#include <stdint.h>

struct kv_ent;
struct kv_read;
struct kv_tree;
struct kvdb;
struct kvdb_kvs;

/*
 * What the tree says about a key in view @seq (KV_SEQ_NOW: now). A view looks
 * into trees of its birth only. Call inside kv_enter(). 0 with *e, -ENOENT, -EIO, -EUCLEAN.
 */
int kv_tree_lookup(struct kvdb *db, struct kv_tree *tr, const void *key, size_t klen,
		   uint64_t seq, struct kv_ent *e);

/* What a get shows: a view, and the tree with a reference in which it looks. */
struct kv_moment {
	struct kv_tree *mo_tree;
	uint64_t mo_seq;
	uint64_t mo_now;	/* engine time, ms: what expires later is there */
};

/* get.c: as kvdb_get(), for one that has missed memory; waits. @mo: NULL = the current state. */
int kv_get_wait(struct kvdb_kvs *kvs, const struct kv_moment *mo, const void *key, size_t klen,
		void *buf, size_t size, size_t *vlen);
/*
 * get.c: as kv_value_read(), outside of kv_enter(), where it waits (RD-4). The caller holds
 * what refers to the segment.
 */
int kv_value_wait(struct kvdb *db, const struct kv_ent *e, void *buf, size_t size);
/* The rd_more of its reads. */
struct kv_read *kv_get_more(struct kv_read *rd);
/*
 * find.c: one run of a get. -EINPROGRESS: it noted a read in the operation that the
 * thread has in hand.
 */
int kv_get_run(struct kvdb_kvs *kvs, const struct kv_moment *mo, const void *key, size_t klen,
	       void *buf, size_t size, size_t *vlen);
/* The same for the current state; it waits for pages outside of kv_enter() (RD-4). */
int kv_find_wait(struct kvdb_kvs *kvs, const void *key, size_t klen, void *buf, size_t size,
		 size_t *vlen);

#endif
