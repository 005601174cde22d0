/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Owned keys: which keys live transactions have written (R14). A table of
 * stripes, each with lists of locks that lie in the write sets of their owners, so
 * that locking needs no memory and full keys are compared. A stripe has one list, or a table of
 * them when it holds many keys: a plain write looks here under its bucket's lock. Beside it
 * owned ranges:
 * no two of live owners meet, so they are in one order of keys, and a tree finds the
 * one that a key lies in, or one that a range meets.
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
 * Ranges (T12): a plain write looks at both under its bucket's lock, but the owner of a range goes
 * through no buckets. It waits for a grace period instead, before it looks for what is newer: then
 * every write that saw no owner has ended. A thread that takes a key looks at ranges under its
 * stripe's lock; one that takes a range is in the tree before it goes through the stripes, and
 * passes over none that is locked. So one of the two sees the other.
 *
 * Locks: bucket > stripe (spins, yields) > tk_range_lock.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mem/keylock.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/futex.h"
#include "base/guard.h"
#include "base/key.h"
#include "db/db.h"
#include "db/hooks.h"

#define STRIPES 1024u
#define LIST_MAX 4u	/* keys in a list of a stripe, on average; then it gets more lists */

/* All but the first change, and are read, while it is locked. */
struct stripe {
	_Atomic(uint32_t) sp_word;	/* keys * 2, and 1 while it is locked; 0: it has no key */
	uint32_t sp_mask;		/* lists - 1 */
	struct kv_keylock **sp_table;	/* of them, or NULL: sp_one alone */
	struct kv_keylock *sp_one;
};

struct kv_keylocks {
	_Atomic(uint32_t) tk_waiters;	/* threads */
	_Atomic(uint32_t) tk_queues;	/* completion queues that wait */
	_Atomic(uint32_t) tk_turn;	/* changes after a release that may wake threads */
	_Atomic(uint32_t) tk_nrange;	/* in tk_ranges; that: tsearch(), by_place() */
	void *tk_ranges;
	pthread_rwlock_t tk_range_lock;
	struct stripe tk_stripe[STRIPES];
};

int kv_keylocks_init(struct kvdb *db)
{
	db->d_mem.mm_keylocks = calloc(1, sizeof(struct kv_keylocks));
	if (!db->d_mem.mm_keylocks)
		return -ENOMEM;
	pthread_rwlock_init(&db->d_mem.mm_keylocks->tk_range_lock, NULL);
	return 0;
}

void kv_keylocks_fini(struct kvdb *db)
{
	struct kv_keylocks *tk = db->d_mem.mm_keylocks;

	if (!tk)
		return;
	KV_ASSERT(!tk->tk_ranges && !tk->tk_waiters);
	pthread_rwlock_destroy(&tk->tk_range_lock);
	for (uint32_t i = 0; i < STRIPES; i++)
		free(tk->tk_stripe[i].sp_table);
	free(tk);
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

/* Sequentially consistent: it is seen here before its holder looks at ranges (T12). */
static void stripe_lock(struct stripe *sp)
{
	unsigned int spins = 0;
	uint32_t want = atomic_load_explicit(&sp->sp_word, memory_order_relaxed) & ~1u;

	while (!atomic_compare_exchange_weak(&sp->sp_word, &want, want | 1)) {
		want &= ~1u;
		if (++spins % 64 == 0)
			sched_yield();	/* its holder may have lost the processor */
		else
			kv_cpu_pause();
	}
}

static uint32_t stripe_keys(const struct stripe *sp)
{
	return atomic_load_explicit(&sp->sp_word, memory_order_relaxed) / 2;
}

/* It has @n keys. */
static void stripe_unlock(struct stripe *sp, uint32_t n)
{
	KV_ASSERT_SLOW(atomic_load(&sp->sp_word) & 1);
	atomic_store_explicit(&sp->sp_word, n * 2, memory_order_release);
}

static struct kv_keylock **lists_of(struct stripe *sp)
{
	return sp->sp_table ? sp->sp_table : &sp->sp_one;
}

/* Stripe lock held, here and below. */
static struct kv_keylock **list_of(struct stripe *sp, uint64_t hash)
{
	/* neither the bits of the bucket nor those of the stripe */
	return &lists_of(sp)[(hash >> 50) & sp->sp_mask];
}

static void list_push(struct stripe *sp, struct kv_keylock *kl)
{
	struct kv_keylock **list = list_of(sp, kl->kl_hash);

	kl->kl_next = *list;
	*list = kl;
}

/* All keys go to the lists of @table, @n of them. */
static void stripe_move(struct stripe *sp, struct kv_keylock **table, uint32_t n)
{
	struct kv_keylock **old = lists_of(sp), *all = NULL, *kl, **end = &all;

	for (uint32_t i = 0; i <= sp->sp_mask; i++) {
		*end = old[i];
		old[i] = NULL;
		while (*end)
			end = &(*end)->kl_next;
	}
	free(sp->sp_table);
	sp->sp_table = table;
	sp->sp_mask = n - 1;
	while ((kl = all)) {
		all = kl->kl_next;
		list_push(sp, kl);
	}
}

/* Without memory lists are longer. */
static void stripe_grow(struct stripe *sp, uint32_t keys)
{
	uint32_t n = (sp->sp_mask + 1) * 4;
	struct kv_keylock **table;

	if (keys < (sp->sp_mask + 1) * LIST_MAX || n > 1u << 14)
		return;
	table = calloc(n, sizeof(*table));
	if (table)
		stripe_move(sp, table, n);
}

static bool has(const struct kvdb *db, struct stripe *sp, uint32_t kvs, const void *key,
		size_t klen, uint64_t hash)
{
	struct kv_keylock *kl = *list_of(sp, hash);

	KV_ASSERT_SLOW(atomic_load(&sp->sp_word) & 1);
	for (; kl; kl = kl->kl_next)
		if (kl->kl_hash == hash && kl->kl_kvs == kvs && kl->kl_klen == klen &&
		    !memcmp(kl->kl_key, key, klen) && !db->d_hooks->ho_txn_is_dead(kl->kl_txn))
			return true;
	return false;
}

/* ---- ranges ------------------------------------------------------------------------------ */

#define A_KEY	0x80u	/* of tr_flags, in a search: tr_from alone */

static bool is_below(const struct kv_trange *a, const struct kv_trange *b)
{
	if (a->tr_flags & KV_TR_ENDLESS)
		return false;
	if (a->tr_flags & A_KEY)
		return kv_kcmp(a->tr_from, a->tr_flen, b->tr_from, b->tr_flen) < 0;
	return kv_kcmp(a->tr_to, a->tr_tlen, b->tr_from, b->tr_flen) <= 0;
}

/* 0: they meet. */
static int by_place(const void *a, const void *b)
{
	const struct kv_rangelock *x = a, *y = b;

	if (x->rl_kvs != y->rl_kvs)
		return x->rl_kvs < y->rl_kvs ? -1 : 1;
	if (is_below(&x->rl_range, &y->rl_range))
		return -1;
	return is_below(&y->rl_range, &x->rl_range);
}

/* tk_range_lock held for writing. */
static void range_drop(struct kv_keylocks *tk, struct kv_rangelock *rl)
{
	KV_ASSERT_WRITES(&tk->tk_range_lock);
	KV_ASSERT(rl->rl_is_held && atomic_load(&tk->tk_nrange));
	tdelete(rl, &tk->tk_ranges, by_place);
	rl->rl_is_held = false;
	atomic_fetch_sub(&tk->tk_nrange, 1);
}

/*
 * Gives up ranges that it meets, of the same owner and of those that cannot commit any more. True:
 * another has one. tk_range_lock held for writing.
 */
static bool range_meets(struct kvdb *db, const struct kv_rangelock *rl)
{
	struct kv_keylocks *tk = db->d_mem.mm_keylocks;
	struct kv_rangelock **met;

	KV_ASSERT_WRITES(&tk->tk_range_lock);
	KV_ASSERT(!(rl->rl_range.tr_flags & KV_TR_PREFIX));
	while ((met = tfind(rl, &tk->tk_ranges, by_place))) {
		if ((*met)->rl_txn != rl->rl_txn && !db->d_hooks->ho_txn_is_dead((*met)->rl_txn))
			return true;
		range_drop(tk, *met);
	}
	return false;
}

/* Does a live owner, but for @but, have a range with the key? */
static bool look_at_ranges(struct kvdb *db, uint32_t kvs, const void *key, size_t klen,
			   const struct kvdb_txn *but)
{
	struct kv_keylocks *tk = db->d_mem.mm_keylocks;
	const struct kv_rangelock at = {
		.rl_kvs = kvs,
		.rl_range = { .tr_from = key, .tr_flen = (uint16_t)klen, .tr_flags = A_KEY },
	};
	struct kv_rangelock **met;
	bool is;

	pthread_rwlock_rdlock(&tk->tk_range_lock);
	met = tfind(&at, &tk->tk_ranges, by_place);
	is = met && (*met)->rl_txn != but && !db->d_hooks->ho_txn_is_dead((*met)->rl_txn);
	pthread_rwlock_unlock(&tk->tk_range_lock);
	return is;
}

static inline bool key_is_in_range(struct kvdb *db, uint32_t kvs, const void *key, size_t klen,
				   const struct kvdb_txn *but)
{
	return KV_UNLIKELY(atomic_load(&db->d_mem.mm_keylocks->tk_nrange)) &&
	       look_at_ranges(db, kvs, key, klen, but);
}

static bool list_meets(struct kvdb *db, const struct kv_keylock *kl, uint32_t kvs,
		       const struct kv_trange *r, const struct kvdb_txn *but)
{
	for (; kl; kl = kl->kl_next)
		if (kl->kl_kvs == kvs && kl->kl_txn != but &&
		    kv_trange_has(r, kl->kl_key, kl->kl_klen) &&
		    !db->d_hooks->ho_txn_is_dead(kl->kl_txn))
			return true;
	return false;
}

/* Does a live owner, but for @but, have a key in the range? */
static bool range_has_owned(struct kvdb *db, uint32_t kvs, const struct kv_trange *r,
			    const struct kvdb_txn *but)
{
	struct kv_keylocks *tk = db->d_mem.mm_keylocks;
	bool is = false;

	for (unsigned int i = 0; i < STRIPES && !is; i++) {
		struct stripe *sp = &tk->tk_stripe[i];

		if (!atomic_load(&sp->sp_word))
			continue;
		stripe_lock(sp);
		for (uint32_t j = 0; j <= sp->sp_mask && !is; j++)
			is = list_meets(db, lists_of(sp)[j], kvs, r, but);
		stripe_unlock(sp, stripe_keys(sp));
	}
	return is;
}

int kv_range_lock(struct kvdb *db, struct kv_rangelock *rl)
{
	struct kv_keylocks *tk = db->d_mem.mm_keylocks;
	int err = -EBUSY;

	KV_ASSERT_OUTSIDE();
	pthread_rwlock_wrlock(&tk->tk_range_lock);
	if (!range_meets(db, rl)) {
		rl->rl_is_held = tsearch(rl, &tk->tk_ranges, by_place);
		err = rl->rl_is_held ? 0 : -ENOMEM;
		atomic_fetch_add(&tk->tk_nrange, rl->rl_is_held);
	}
	pthread_rwlock_unlock(&tk->tk_range_lock);
	if (err)
		return err;
	/* in the tree first: pairs with the look of kv_key_lock() under the stripe's lock */
	atomic_thread_fence(memory_order_seq_cst);
	if (CHECK(!range_has_owned(db, rl->rl_kvs, &rl->rl_range, rl->rl_txn)))
		return 0;
	kv_range_unlock(db, rl);
	return -EBUSY;
}

void kv_range_unlock(struct kvdb *db, struct kv_rangelock *rl)
{
	struct kv_keylocks *tk = db->d_mem.mm_keylocks;

	pthread_rwlock_wrlock(&tk->tk_range_lock);
	if (rl->rl_is_held)	/* another may have taken it over */
		range_drop(tk, rl);
	pthread_rwlock_unlock(&tk->tk_range_lock);
}

/* A range as owners have it; @end is room for its end. */
static struct kv_trange no_prefix(const struct kv_trange *r, uint8_t end[KVDB_KEY_MAX])
{
	struct kv_trange as = *r;

	if (!(r->tr_flags & KV_TR_PREFIX))
		return as;
	as.tr_tlen = kv_prefix_end(r->tr_from, r->tr_flen, end);
	as.tr_to = end;
	as.tr_flags = as.tr_tlen ? 0 : KV_TR_ENDLESS;
	return as;
}

bool kv_range_is_owned(struct kvdb_kvs *kvs, const struct kv_trange *r)
{
	struct kvdb *db = kvs->k_db;
	struct kv_keylocks *tk = db->d_mem.mm_keylocks;
	uint8_t end[KVDB_KEY_MAX];
	struct kv_rangelock rl = { .rl_kvs = kvs->k_id, .rl_range = no_prefix(r, end) };
	bool is = false;

	if (atomic_load(&tk->tk_nrange)) {
		pthread_rwlock_wrlock(&tk->tk_range_lock);
		is = range_meets(db, &rl);
		pthread_rwlock_unlock(&tk->tk_range_lock);
	}
	return is || range_has_owned(db, kvs->k_id, r, NULL);
}

/* ---- keys ---------------------------------------------------------------------------------- */

int kv_key_lock(struct kvdb *db, struct kv_keylock *kl)
{
	struct stripe *sp = stripe_of(db, kl->kl_hash);
	int err = -EBUSY;
	uint32_t n;

	stripe_lock(sp);
	n = stripe_keys(sp);
	if (!has(db, sp, kl->kl_kvs, kl->kl_key, kl->kl_klen, kl->kl_hash) &&
	    CHECK(!key_is_in_range(db, kl->kl_kvs, kl->kl_key, kl->kl_klen, kl->kl_txn))) {
		list_push(sp, kl);
		stripe_grow(sp, ++n);
		err = 0;
	}
	stripe_unlock(sp, n);
	return err;
}

void kv_key_unlock(struct kvdb *db, struct kv_keylock *kl)
{
	struct stripe *sp = stripe_of(db, kl->kl_hash);
	struct kv_keylock **p;
	uint32_t n;

	stripe_lock(sp);
	for (p = list_of(sp, kl->kl_hash); *p != kl; p = &(*p)->kl_next)
		;
	*p = kl->kl_next;
	n = stripe_keys(sp) - 1;
	if (!n && sp->sp_table)
		stripe_move(sp, NULL, 1);
	stripe_unlock(sp, n);
}

bool kv_key_is_owned(struct kvdb *db, uint32_t kvs, const void *key, size_t klen, uint64_t hash)
{
	struct stripe *sp = stripe_of(db, hash);
	bool is = false;

	if (atomic_load(&sp->sp_word)) {	/* as the look at mm_owners before it */
		stripe_lock(sp);
		is = has(db, sp, kvs, key, klen, hash);
		stripe_unlock(sp, stripe_keys(sp));
	}
	return is || !CHECK(!key_is_in_range(db, kvs, key, klen, NULL));
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
	KV_ASSERT(by > 0 || atomic_load(&db->d_mem.mm_keylocks->tk_queues));
	atomic_fetch_add(&db->d_mem.mm_keylocks->tk_queues, (uint32_t)by);
}

/* ---- whose is it ---------------------------------------------------------------------------- */

static enum kv_owner owner_of(struct kvdb *db, struct kvdb_txn *t, bool is_batch)
{
	if (db->d_hooks->ho_txn_is_dead(t))
		return KV_OWNER_NONE;
	return is_batch ? KV_OWNER_BATCH : KV_OWNER_TXN;
}

static enum kv_owner more(enum kv_owner a, enum kv_owner b)
{
	return a > b ? a : b;
}

/* Of the ranges that meet this one. tk_range_lock held. */
static enum kv_owner tree_owner(struct kvdb *db, struct kv_rangelock at)
{
	struct kv_keylocks *tk = db->d_mem.mm_keylocks;
	struct kv_trange *r = &at.rl_range;
	enum kv_owner ow = KV_OWNER_NONE;
	struct kv_rangelock **met;

	while (ow != KV_OWNER_TXN && (met = tfind(&at, &tk->tk_ranges, by_place))) {
		const struct kv_trange *m = &(*met)->rl_range;

		ow = more(ow, owner_of(db, (*met)->rl_txn, (*met)->rl_is_batch));
		if (r->tr_flags & A_KEY)
			break;
		/* what is on its left lies below it in the tree: no deeper than that is */
		if (kv_kcmp(r->tr_from, r->tr_flen, m->tr_from, m->tr_flen) < 0) {
			struct kv_rangelock left = at;

			left.rl_range.tr_to = m->tr_from;
			left.rl_range.tr_tlen = m->tr_flen;
			left.rl_range.tr_flags = 0;
			ow = more(ow, tree_owner(db, left));
		}
		if (m->tr_flags & KV_TR_ENDLESS ||
		    (!(r->tr_flags & KV_TR_ENDLESS) &&
		     kv_kcmp(m->tr_to, m->tr_tlen, r->tr_to, r->tr_tlen) >= 0))
			break;
		r->tr_from = m->tr_to;
		r->tr_flen = m->tr_tlen;
	}
	return ow;
}

static enum kv_owner ranges_owner(struct kvdb *db, const struct kv_rangelock *at)
{
	struct kv_keylocks *tk = db->d_mem.mm_keylocks;
	enum kv_owner ow;

	if (!atomic_load(&tk->tk_nrange))
		return KV_OWNER_NONE;
	pthread_rwlock_rdlock(&tk->tk_range_lock);
	ow = tree_owner(db, *at);
	pthread_rwlock_unlock(&tk->tk_range_lock);
	return ow;
}

enum kv_owner kv_key_owner(struct kvdb *db, uint32_t kvs, const void *key, size_t klen,
			   uint64_t hash)
{
	struct kv_rangelock at = {
		.rl_kvs = kvs,
		.rl_range = { .tr_from = key, .tr_flen = (uint16_t)klen, .tr_flags = A_KEY },
	};
	struct stripe *sp = stripe_of(db, hash);
	enum kv_owner ow = KV_OWNER_NONE;

	stripe_lock(sp);
	for (struct kv_keylock *kl = *list_of(sp, hash); kl; kl = kl->kl_next)
		if (kl->kl_kvs == kvs && kl->kl_klen == klen && !memcmp(kl->kl_key, key, klen))
			ow = more(ow, owner_of(db, kl->kl_txn, kl->kl_is_batch));
	stripe_unlock(sp, stripe_keys(sp));
	return ow != KV_OWNER_NONE ? ow : ranges_owner(db, &at);
}

static enum kv_owner list_owner(struct kvdb *db, const struct kv_keylock *kl, uint32_t kvs,
				const struct kv_trange *r)
{
	enum kv_owner ow = KV_OWNER_NONE;

	for (; kl && ow != KV_OWNER_TXN; kl = kl->kl_next)
		if (kl->kl_kvs == kvs && kv_trange_has(r, kl->kl_key, kl->kl_klen))
			ow = more(ow, owner_of(db, kl->kl_txn, kl->kl_is_batch));
	return ow;
}

enum kv_owner kv_range_owner(struct kvdb_kvs *kvs, const struct kv_trange *r)
{
	struct kvdb *db = kvs->k_db;
	struct kv_keylocks *tk = db->d_mem.mm_keylocks;
	uint8_t end[KVDB_KEY_MAX];
	struct kv_rangelock at = { .rl_kvs = kvs->k_id, .rl_range = no_prefix(r, end) };
	enum kv_owner ow = ranges_owner(db, &at);

	for (unsigned int i = 0; i < STRIPES && ow != KV_OWNER_TXN; i++) {
		struct stripe *sp = &tk->tk_stripe[i];

		if (!atomic_load(&sp->sp_word))
			continue;
		stripe_lock(sp);
		for (uint32_t j = 0; j <= sp->sp_mask; j++)
			ow = more(ow, list_owner(db, lists_of(sp)[j], kvs->k_id, r));
		stripe_unlock(sp, stripe_keys(sp));
	}
	return ow;
}

/* ---- waits --------------------------------------------------------------------------------- */

/* What is waited for: one key, or a range. */
struct wanted {
	struct kvdb_kvs *wa_kvs;
	const void *wa_key;
	size_t wa_klen;
	uint64_t wa_hash;
	const struct kv_trange *wa_range;	/* or NULL */
};

int kv_key_denied(const struct kvdb_kvs *kvs)
{
	return kv_error(-ECANCELED, "MP0921", "%s: a transaction that is still open wrote this key",
			kvs->k_name);
}

static enum kv_owner owner(const struct wanted *wa)
{
	struct kvdb_kvs *kvs = wa->wa_kvs;

	return wa->wa_range ? kv_range_owner(kvs, wa->wa_range) :
	       kv_key_owner(kvs->k_db, kvs->k_id, wa->wa_key, wa->wa_klen, wa->wa_hash);
}

static void wait_begins(struct timespec *until)
{
	clock_gettime(CLOCK_MONOTONIC, until);
	until->tv_sec += KV_KEY_WAIT_S;
}

static int wait_free(const struct wanted *wa, struct timespec *until)
{
	struct kvdb_kvs *kvs = wa->wa_kvs;
	struct kvdb *db = kvs->k_db;
	struct kv_keylocks *tk = db->d_mem.mm_keylocks;
	uint32_t groups = wa->wa_range ? KV_FUTEX_ALL : kv_key_group(wa->wa_hash);
	enum kv_owner ow, last = KV_OWNER_TXN;
	bool is_late = kv_is_manual(db);
	uint64_t t0 = kv_now(db);

	KV_ASSERT_OUTSIDE();
	/* the bound is against deadlock between threads: real time, whatever the clock says */
	if (!until->tv_sec)
		wait_begins(until);
	atomic_fetch_add(&tk->tk_waiters, 1);
	atomic_thread_fence(memory_order_seq_cst);	/* pairs with kv_key_wake() */
	for (;;) {
		uint32_t turn = atomic_load(&tk->tk_turn);

		ow = owner(wa);
		/* T18: a batch ends by itself; the bound begins when a transaction has it */
		if (ow != KV_OWNER_NONE && (ow == KV_OWNER_BATCH || last == KV_OWNER_BATCH)) {
			wait_begins(until);
			is_late = ow == KV_OWNER_TXN && kv_is_manual(db);
		}
		if (ow == KV_OWNER_NONE || is_late || kv_fault(db))
			break;
		last = ow;
		is_late = kv_futex_wait_until(&tk->tk_turn, turn, groups, until);
	}
	atomic_fetch_sub(&tk->tk_waiters, 1);
	kv_delayed(db, KVDB_DELAY_KEY, kv_now(db) - t0);
	if (kv_fault(db))
		return kv_error(-EROFS, "MP0903", "%s", db->d_fault.fa_text);
	return ow != KV_OWNER_NONE ? kv_key_denied(kvs) : 0;
}

int kv_key_wait(struct kvdb_kvs *kvs, const void *key, size_t klen, uint64_t hash,
		struct timespec *until)
{
	struct wanted wa = { .wa_kvs = kvs, .wa_key = key, .wa_klen = klen, .wa_hash = hash };

	return wait_free(&wa, until);
}

int kv_range_wait(struct kvdb_kvs *kvs, const struct kv_trange *r, struct timespec *until)
{
	struct wanted wa = { .wa_kvs = kvs, .wa_range = r };

	return wait_free(&wa, until);
}
