/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Batches: write sets without a view, which claim all that they write at their end (T18). */
#ifndef KV_BATCH_H
#define KV_BATCH_H

#include "txn/txn.h"

/* ---- txn.c: the write set ------------------------------------------------------------------- */

/* The write to a key, or NULL. */
struct kv_write *kv_txn_find(struct kvdb_txn *t, struct kvdb_kvs *kvs, const void *key, size_t klen,
			     uint64_t hash);
/* Room for @n writes in its table: 0, -ENOMEM. What it takes of memory. */
int kv_txn_table(struct kvdb_txn *t, uint32_t n);
uint64_t kv_txn_table_bytes(uint32_t n);
/* A new write, with lock and store, of @v. One that is there becomes that. */
void kv_txn_write_add(struct kvdb_txn *t, struct kv_write *w, const struct kv_txn_val *v);
void kv_txn_write_set(struct kvdb_txn *t, struct kv_write *w, const struct kv_txn_val *v);
/* T16: 0, or -EFBIG: it and others would have too much. */
int kv_txn_mem_room(struct kvdb_txn *t, uint64_t bytes);
/* The same, before kv_txn_alloc() of so many bytes. */
int kv_txn_alloc_room(struct kvdb_txn *t, uint32_t bytes);
/* What its caller keeps of the write set counts, too. */
void kv_txn_mem_add(struct kvdb_txn *t, uint64_t bytes);
/* Its keys and ranges are free. */
void kv_txn_disown(struct kvdb_txn *t);
/* So are its stores: its outcome is final. */
void kv_txn_end(struct kvdb_txn *t, bool is_committed);
/* Carries out and counts what it wrote. */
int kv_txn_commit_writes(struct kvdb_txn *t, uint64_t *epoch);
/* Waits until its caller may be told, or until it @is_durable; @epoch 0: nothing was written. */
int kv_txn_acknowledge(struct kvdb *db, uint64_t epoch, bool is_durable, uint64_t *ticket);
/* False: it would wait, for room or, as *due_ns says, for its turn. */
bool kv_txn_may_begin(struct kvdb_txn *t, uint64_t *due_ns);

/* ---- txn_range.c, txn_commit.c -------------------------------------------------------------- */

/* Into the set; of a transaction with a view it is claimed, too. */
int kv_txn_range_add(struct kvdb_txn *t, struct kvdb_kvs *kvs, const struct kv_trange *r);
/* Claims all ranges of a batch. -EBUSY: *busy, of *of, has an owner. -ENOMEM. */
int kv_txn_ranges_claim(struct kvdb_txn *t, const struct kv_trange **busy, struct kvdb_kvs **of);
/* Waits until its record is admitted; the commit does not do it again. */
int kv_txn_admit(struct kvdb_txn *t);

/* ---- txn_batch.c ---------------------------------------------------------------------------- */

/*
 * kv_batch_start - as kvdb_write(), for a caller that acknowledges it: see kv_put_start()
 * -EAGAIN: there is no room now. -EBUSY: a key has an owner. bg_epoch 0: it writes nothing.
 */
int kv_batch_start(struct kvdb *db, const struct kvdb_op *ops, size_t n,
		   struct kv_pending_write *bg);
/* The first of these operations, which are right, whose key or range has an owner, or NULL. */
const struct kvdb_op *kv_batch_owned(struct kvdb *db, const struct kvdb_op *ops, size_t n);
/* No transaction has what the operation writes: it is a batch's, which ends by itself, or free. */
bool kv_batch_is_beside(const struct kvdb_op *p);

#endif
