/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Owned keys: which keys live transactions have written (R14). A table of
 * stripes, each a list of locks that lie in the write sets of their owners, so
 * that locking allocates nothing and full keys are compared.
 *
 * A transaction owns a key from its first write until its outcome is final.
 * d_owners counts transactions that own any. A plain write looks here under
 * the lock of its key's bucket, before it links; a transaction locks the key
 * first and then goes through that bucket's lock to look for conflicts. So
 * either the plain write sees the owner or the transaction sees the version.
 * A write into a memtable that the transaction did not find loaded the tree
 * later: a fence between lock and tree, and looks that are sequentially
 * consistent, have it see the owner too.
 *
 * Locks: bucket > stripe (spins, yields); tk_lock (waiters) alone.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "flush.h"
#include "txn.h"

#define STRIPES 1024u

struct stripe {
	_Atomic(struct kv_keylock *) sp_first;	/* changes under sp_lock */
	_Atomic(uint32_t) sp_lock;
};

struct kv_keylocks {
	_Atomic(uint32_t) tk_waiters;
	pthread_mutex_t tk_lock;
	pthread_cond_t tk_free;
	struct stripe tk_stripe[STRIPES];
};

int kv_keylocks_init(struct kvdb *db)
{
	struct kv_keylocks *tk = calloc(1, sizeof(*tk));
	pthread_condattr_t ca;

	if (!tk)
		return -ENOMEM;
	pthread_condattr_init(&ca);
	pthread_condattr_setclock(&ca, CLOCK_MONOTONIC);
	pthread_cond_init(&tk->tk_free, &ca);
	pthread_condattr_destroy(&ca);
	pthread_mutex_init(&tk->tk_lock, NULL);
	db->d_txns->tx_keys = tk;
	return 0;
}

void kv_keylocks_fini(struct kvdb *db)
{
	struct kv_keylocks *tk = db->d_txns->tx_keys;

	if (!tk)
		return;
	pthread_cond_destroy(&tk->tk_free);
	pthread_mutex_destroy(&tk->tk_lock);
	free(tk);
}

static struct stripe *stripe_of(struct kvdb *db, uint64_t hash)
{
	/* the low bits choose the bucket */
	return &db->d_txns->tx_keys->tk_stripe[(hash >> 40) % STRIPES];
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
static bool has(struct stripe *sp, uint32_t kvs, const void *key, size_t klen, uint64_t hash)
{
	struct kv_keylock *kl = atomic_load_explicit(&sp->sp_first, memory_order_relaxed);

	for (; kl; kl = kl->kl_next)
		if (kl->kl_hash == hash && kl->kl_kvs == kvs && kl->kl_klen == klen &&
		    !memcmp(kl->kl_key, key, klen))
			return true;
	return false;
}

int kv_key_lock(struct kvdb *db, struct kv_keylock *kl)
{
	struct stripe *sp = stripe_of(db, kl->kl_hash);
	int err = -EBUSY;

	stripe_lock(sp);
	if (!has(sp, kl->kl_kvs, kl->kl_key, kl->kl_klen, kl->kl_hash)) {
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

	if (!atomic_load(&sp->sp_first))	/* as the look at d_owners before it */
		return false;
	stripe_lock(sp);
	is = has(sp, kvs, key, klen, hash);
	stripe_unlock(sp);
	return is;
}

void kv_key_wake(struct kvdb *db)
{
	struct kv_keylocks *tk = db->d_txns->tx_keys;

	/* the keys are free before the waiters are counted; they count themselves, then look */
	atomic_thread_fence(memory_order_seq_cst);
	if (!atomic_load(&tk->tk_waiters))
		return;
	pthread_mutex_lock(&tk->tk_lock);
	pthread_cond_broadcast(&tk->tk_free);
	pthread_mutex_unlock(&tk->tk_lock);
	(void)BARRIER(671, (kv_cqs_wake(db), 0));
}

void kv_key_waiters(struct kvdb *db, int by)
{
	atomic_fetch_add(&db->d_txns->tx_keys->tk_waiters, (uint32_t)by);
}

/* What somebody waits for: one key, or all that @covers says. */
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
	struct kv_keylocks *tk = wa->wa_kvs->k_db->d_txns->tx_keys;
	bool is = false;

	for (unsigned int i = 0; i < STRIPES && !is; i++) {
		struct stripe *sp = &tk->tk_stripe[i];
		struct kv_keylock *kl;

		if (!atomic_load(&sp->sp_first))
			continue;
		stripe_lock(sp);
		for (kl = atomic_load(&sp->sp_first); kl && !is; kl = kl->kl_next)
			is = kl->kl_kvs == wa->wa_kvs->k_id &&
			     wa->wa_covers(wa->wa_arg, kl->kl_key, kl->kl_klen);
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
	struct kv_keylocks *tk = db->d_txns->tx_keys;
	bool is_owned = true, is_late = kv_is_manual(db);
	uint64_t t0 = kv_now(db);

	/* the bound is against deadlock between threads: real time, whatever the clock says */
	if (!until->tv_sec) {
		clock_gettime(CLOCK_MONOTONIC, until);
		until->tv_sec += KV_KEY_WAIT_S;
	}
	pthread_mutex_lock(&tk->tk_lock);
	atomic_fetch_add(&tk->tk_waiters, 1);
	atomic_thread_fence(memory_order_seq_cst);	/* pairs with kv_key_wake() */
	for (;;) {
		is_owned = wa->wa_covers ? is_covered_owned(wa) :
			   kv_key_is_owned(db, kvs->k_id, wa->wa_key, wa->wa_klen, wa->wa_hash);
		if (!is_owned || is_late || kv_fault(db))
			break;
		is_late = pthread_cond_timedwait(&tk->tk_free, &tk->tk_lock, until) == ETIMEDOUT;
	}
	atomic_fetch_sub(&tk->tk_waiters, 1);
	pthread_mutex_unlock(&tk->tk_lock);
	kv_delayed(db, KVDB_DELAY_KEY, kv_now(db) - t0);
	if (kv_fault(db))
		return kv_error(-EROFS, "MP0903", "%s", db->d_fault_text);
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
