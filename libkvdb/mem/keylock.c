/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Owned keys: which keys live transactions have written (R14). A table of
 * stripes, each a list of locks that lie in the write sets of their owners, so
 * that locking allocates nothing and full keys are compared.
 *
 * A transaction owns a key from its first write until its outcome is final, or until it is
 * known that it cannot commit: then its lock stays in the list, and counts for nothing.
 * mm_owners counts transactions that own any. A plain write looks here under
 * the lock of its key's bucket, before it links; a transaction locks the key
 * first and then goes through that bucket's lock to look for conflicts. So
 * either the plain write sees the owner or the transaction sees the version.
 * A write into a memtable that the transaction did not find loaded the tree
 * later: a fence between lock and tree, and looks that are sequentially
 * consistent, have it see the owner too.
 *
 * A waiter for a key sleeps at tk_turn and is woken for its group, one thirty-second of all
 * keys; a waiter for a range is woken for any group. No wake-up is lost. The waiter counts
 * itself, reads the turn, looks at the keys, and sleeps only while the turn is what it read. The
 * releaser frees its keys first, then looks for counted waiters, then changes the turn and wakes
 * the groups. If it sees none, the waiter was counted later, so it looks later and finds the keys
 * free (a fence lies on either side). If it sees the waiter, that one has read the new turn and
 * finds the keys free, or it has read the old one: then it does not fall asleep, or is woken.
 *
 * Locks: bucket > stripe (spins, yields).
 */
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mem/keylock.h"
#include "base/error.h"
#include "base/futex.h"
#include "base/guard.h"
#include "db/db.h"
#include "db/hooks.h"

#define STRIPES 1024u

struct stripe {
	_Atomic(struct kv_keylock *) sp_first;	/* changes under sp_lock */
	_Atomic(uint32_t) sp_lock;
};

struct kv_keylocks {
	_Atomic(uint32_t) tk_waiters;	/* threads */
	_Atomic(uint32_t) tk_queues;	/* completion queues that wait */
	_Atomic(uint32_t) tk_turn;	/* changes behind a release that may wake threads */
	struct stripe tk_stripe[STRIPES];
};

int kv_keylocks_init(struct kvdb *db)
{
	db->d_mem.mm_keylocks = calloc(1, sizeof(struct kv_keylocks));
	return db->d_mem.mm_keylocks ? 0 : -ENOMEM;
}

void kv_keylocks_fini(struct kvdb *db)
{
	free(db->d_mem.mm_keylocks);
}

static struct stripe *stripe_of(struct kvdb *db, uint64_t hash)
{
	/* the low bits choose the bucket */
	return &db->d_mem.mm_keylocks->tk_stripe[(hash >> 40) % STRIPES];
}

uint32_t kv_key_group(uint64_t hash)
{
	return 1u << (hash >> 40) % 32;
}

static void stripe_lock(struct stripe *sp)
{
	unsigned int spins = 0;
	uint32_t want = 0;

	while (!atomic_compare_exchange_weak_explicit(&sp->sp_lock, &want, 1, memory_order_acquire,
						      memory_order_relaxed)) {
		want = 0;
		if (++spins % 64 == 0)
			sched_yield();	/* its holder may have lost the processor */
		else
			kv_cpu_pause();
	}
}

static void stripe_unlock(struct stripe *sp)
{
	atomic_store_explicit(&sp->sp_lock, 0, memory_order_release);
}

/* Stripe lock held. */
static bool has(const struct kvdb *db, struct stripe *sp, uint32_t kvs, const void *key,
		size_t klen, uint64_t hash)
{
	struct kv_keylock *kl = atomic_load_explicit(&sp->sp_first, memory_order_relaxed);

	for (; kl; kl = kl->kl_next)
		if (kl->kl_hash == hash && kl->kl_kvs == kvs && kl->kl_klen == klen &&
		    !memcmp(kl->kl_key, key, klen) && !db->d_hooks->ho_txn_is_dead(kl->kl_txn))
			return true;
	return false;
}

int kv_key_lock(struct kvdb *db, struct kv_keylock *kl)
{
	struct stripe *sp = stripe_of(db, kl->kl_hash);
	int err = -EBUSY;

	stripe_lock(sp);
	if (!has(db, sp, kl->kl_kvs, kl->kl_key, kl->kl_klen, kl->kl_hash)) {
		kl->kl_next = atomic_load_explicit(&sp->sp_first, memory_order_relaxed);
		atomic_store_explicit(&sp->sp_first, kl, memory_order_relaxed);
		err = 0;
	}
	stripe_unlock(sp);
	return err;
}

void kv_key_unlock(struct kvdb *db, struct kv_keylock *kl)
{
	struct stripe *sp = stripe_of(db, kl->kl_hash);
	struct kv_keylock *p;

	stripe_lock(sp);
	p = atomic_load_explicit(&sp->sp_first, memory_order_relaxed);
	if (p == kl) {
		atomic_store_explicit(&sp->sp_first, kl->kl_next, memory_order_relaxed);
	} else {
		while (p->kl_next != kl)
			p = p->kl_next;
		p->kl_next = kl->kl_next;
	}
	stripe_unlock(sp);
}

bool kv_key_is_owned(struct kvdb *db, uint32_t kvs, const void *key, size_t klen, uint64_t hash)
{
	struct stripe *sp = stripe_of(db, hash);
	bool is;

	if (!atomic_load(&sp->sp_first))	/* as the look at mm_owners before it */
		return false;
	stripe_lock(sp);
	is = has(db, sp, kvs, key, klen, hash);
	stripe_unlock(sp);
	return is;
}

void kv_key_wake(struct kvdb *db, uint32_t groups)
{
	struct kv_keylocks *tk = db->d_mem.mm_keylocks;

	/* the keys are free before the waiters are counted; they count themselves, then look */
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load(&tk->tk_waiters)) {
		atomic_fetch_add(&tk->tk_turn, 1);
		kv_futex_wake(&tk->tk_turn, INT_MAX, groups);
	}
	if (atomic_load(&tk->tk_queues))
		(void)BARRIER((db->d_hooks->ho_cqs_wake(db), 0));
}

void kv_key_waiters(struct kvdb *db, int by)
{
	atomic_fetch_add(&db->d_mem.mm_keylocks->tk_queues, (uint32_t)by);
}

/* What is waited for: one key, or all that @covers says. */
struct wanted {
	struct kvdb_kvs *wa_kvs;
	const void *wa_key;
	size_t wa_klen;
	uint64_t wa_hash;
	kv_covers_fn *wa_covers;
	const void *wa_arg;
};

static bool is_covered_owned(const struct wanted *wa)
{
	struct kv_keylocks *tk = wa->wa_kvs->k_db->d_mem.mm_keylocks;
	bool is = false;

	for (unsigned int i = 0; i < STRIPES && !is; i++) {
		struct stripe *sp = &tk->tk_stripe[i];
		struct kv_keylock *kl;

		if (!atomic_load(&sp->sp_first))
			continue;
		stripe_lock(sp);
		for (kl = atomic_load(&sp->sp_first); kl && !is; kl = kl->kl_next)
			is = kl->kl_kvs == wa->wa_kvs->k_id &&
			     wa->wa_covers(wa->wa_arg, kl->kl_key, kl->kl_klen) &&
			     !wa->wa_kvs->k_db->d_hooks->ho_txn_is_dead(kl->kl_txn);
		stripe_unlock(sp);
	}
	return is;
}

int kv_key_denied(const struct kvdb_kvs *kvs)
{
	return kv_error(-ECANCELED, "MP0921", "%s: a transaction that is still open wrote this key",
			kvs->k_name);
}

static int wait_free(const struct wanted *wa, struct timespec *until)
{
	struct kvdb_kvs *kvs = wa->wa_kvs;
	struct kvdb *db = kvs->k_db;
	struct kv_keylocks *tk = db->d_mem.mm_keylocks;
	uint32_t groups = wa->wa_covers ? KV_FUTEX_ALL : kv_key_group(wa->wa_hash);
	bool is_owned = true, is_late = kv_is_manual(db);
	uint64_t t0 = kv_now(db);

	/* the bound is against deadlock between threads: real time, whatever the clock says */
	if (!until->tv_sec) {
		clock_gettime(CLOCK_MONOTONIC, until);
		until->tv_sec += KV_KEY_WAIT_S;
	}
	atomic_fetch_add(&tk->tk_waiters, 1);
	atomic_thread_fence(memory_order_seq_cst);	/* pairs with kv_key_wake() */
	for (;;) {
		uint32_t turn = atomic_load(&tk->tk_turn);

		is_owned = wa->wa_covers ? is_covered_owned(wa) :
			   kv_key_is_owned(db, kvs->k_id, wa->wa_key, wa->wa_klen, wa->wa_hash);
		if (!is_owned || is_late || kv_fault(db))
			break;
		is_late = kv_futex_wait_until(&tk->tk_turn, turn, groups, until);
	}
	atomic_fetch_sub(&tk->tk_waiters, 1);
	kv_delayed(db, KVDB_DELAY_KEY, kv_now(db) - t0);
	if (kv_fault(db))
		return kv_error(-EROFS, "MP0903", "%s", db->d_fault.fa_text);
	return is_owned ? kv_key_denied(kvs) : 0;
}

int kv_key_wait(struct kvdb_kvs *kvs, const void *key, size_t klen, uint64_t hash,
		struct timespec *until)
{
	struct wanted wa = { .wa_kvs = kvs, .wa_key = key, .wa_klen = klen, .wa_hash = hash };

	return wait_free(&wa, until);
}

bool kv_keys_are_owned(struct kvdb_kvs *kvs, kv_covers_fn *covers, const void *arg)
{
	struct wanted wa = { .wa_kvs = kvs, .wa_covers = covers, .wa_arg = arg };

	return is_covered_owned(&wa);
}

int kv_keys_wait(struct kvdb_kvs *kvs, kv_covers_fn *covers, const void *arg,
		 struct timespec *until)
{
	struct wanted wa = { .wa_kvs = kvs, .wa_covers = covers, .wa_arg = arg };

	return wait_free(&wa, until);
}
