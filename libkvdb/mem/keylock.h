/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Keys that transactions own. */
#ifndef KV_KEYLOCK_H
#define KV_KEYLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

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
};

/* Bound on how long a plain write waits for transactions that own its key, seconds. */
#define KV_KEY_WAIT_S 1

/* 0, or -EBUSY: it has an owner. One that cannot commit any more is none: T11. */
int kv_key_lock(struct kvdb *db, struct kv_keylock *kl);
void kv_key_unlock(struct kvdb *db, struct kv_keylock *kl);
/* Which of those that wait for keys of that hash are woken together: one bit. */
uint32_t kv_key_group(uint64_t hash);
/* Wakes the threads that wait for keys of these groups, which were unlocked. */
void kv_key_wake(struct kvdb *db, uint32_t groups);
/* So many more wait for that, in a completion queue; they look at keys only afterwards. */
void kv_key_waiters(struct kvdb *db, int by);
bool kv_key_is_owned(struct kvdb *db, uint32_t kvs, const void *key, size_t klen, uint64_t hash);
/*
 * Waits until the key has no owner; -ECANCELED at *until, which the first wait
 * of a write sets (zero before), at once with KVDB_MANUAL.
 */
int kv_key_wait(struct kvdb_kvs *kvs, const void *key, size_t klen, uint64_t hash,
		struct timespec *until);
/* The error of a write that has waited for so long. */
int kv_key_denied(const struct kvdb_kvs *kvs);

typedef bool kv_covers_fn(const void *arg, const void *key, size_t klen);
/* Some key of the store has an owner, and @covers says true for it. Looks at every owned key. */
bool kv_keys_are_owned(struct kvdb_kvs *kvs, kv_covers_fn *covers, const void *arg);
/* As kv_key_wait(), until that is not so. */
int kv_keys_wait(struct kvdb_kvs *kvs, kv_covers_fn *covers, const void *arg,
		 struct timespec *until);

int kv_keylocks_init(struct kvdb *db);
void kv_keylocks_fini(struct kvdb *db);

#endif
