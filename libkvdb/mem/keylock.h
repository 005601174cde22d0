/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Keys that transactions own. */
#ifndef KV_KEYLOCK_H
#define KV_KEYLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/trange.h"

struct kvdb;
struct kvdb_kvs;
struct kvdb_txn;

/* A key with a live owner; lies in the owner's write. */
struct kv_keylock {
	struct kv_keylock *kl_next;	/* its stripe's lock */
	struct kvdb_txn *kl_txn;	/* its owner */
	const uint8_t *kl_key;
	uint64_t kl_hash;
	uint32_t kl_kvs;
	uint16_t kl_klen;
	bool kl_is_batch;		/* its owner waits for no other one (T18) */
};

/* A range of keys with a live owner; lies in the owner's delete of it. */
struct kv_rangelock {
	struct kvdb_txn *rl_txn;	/* its owner */
	struct kv_trange rl_range;	/* no prefix */
	uint32_t rl_kvs;
	bool rl_is_held;		/* it is in the tree; tk_range_lock */
	bool rl_is_batch;		/* as kl_is_batch */
};

/* Bound on how long a plain write or a batch waits for transactions that own its key, seconds. */
#define KV_KEY_WAIT_S 1

/* 0, or -EBUSY: another has it, or a range with it, and may still commit (T11). */
int kv_key_lock(struct kvdb *db, struct kv_keylock *kl);
void kv_key_unlock(struct kvdb *db, struct kv_keylock *kl);
/* Which of those that wait for keys of that hash are woken together: one bit. */
uint32_t kv_key_group(uint64_t hash);
/* Wakes the threads that wait for keys of these groups, which were unlocked. */
void kv_key_wake(struct kvdb *db, uint32_t groups);
/* So many more wait for that, in a completion queue; they look at keys only afterwards. */
void kv_key_waiters(struct kvdb *db, int by);
/*
 * kv_range_lock - take a range: 0, -EBUSY: another has a key or a part of it, -ENOMEM
 * What the same transaction has of it must lie in it as a whole, and is given up for it; it is
 * lost, too, when this fails. Outside kv_enter().
 */
int kv_range_lock(struct kvdb *db, struct kv_rangelock *rl);
void kv_range_unlock(struct kvdb *db, struct kv_rangelock *rl);
bool kv_key_is_owned(struct kvdb *db, uint32_t kvs, const void *key, size_t klen, uint64_t hash);
/*
 * Waits until the key has no owner; -ECANCELED at *until, which the first wait
 * of a write sets (zero before), at once with KVDB_MANUAL.
 */
int kv_key_wait(struct kvdb_kvs *kvs, const void *key, size_t klen, uint64_t hash,
		struct timespec *until);
/*
 * Has a transaction the key, or a key or part of the range; if none has, has a batch? What
 * only batches have is free soon, so the bound is not for it (T18). For a range: every owned key.
 */
enum kv_owner { KV_OWNER_NONE, KV_OWNER_BATCH, KV_OWNER_TXN };
enum kv_owner kv_key_owner(struct kvdb *db, uint32_t kvs, const void *key, size_t klen,
			   uint64_t hash);
enum kv_owner kv_range_owner(struct kvdb_kvs *kvs, const struct kv_trange *r);
/* The error of a write that has waited for so long. */
int kv_key_denied(const struct kvdb_kvs *kvs);

/* Some key in the range, or a part of it, has an owner. Looks at every owned key. */
bool kv_range_is_owned(struct kvdb_kvs *kvs, const struct kv_trange *r);
/* As kv_key_wait(), until that is not so. */
int kv_range_wait(struct kvdb_kvs *kvs, const struct kv_trange *r, struct timespec *until);

int kv_keylocks_init(struct kvdb *db);
void kv_keylocks_fini(struct kvdb *db);

#endif
