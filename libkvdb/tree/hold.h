/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Holds: what a cursor has of a tree, and what the keeper may take from it (HOLDS.md, HO1 to HO4).
 */
#ifndef KV_HOLD_H
#define KV_HOLD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct kvdb;
struct kvdb_stats;
struct kv_holders;
struct kv_tree;

/* HO1: which thread may touch what the hold keeps; or why that has gone. */
enum kv_hold_word {
	KV_HOLD_IDLE,		/* the keeper, once it has made it TAKEN */
	KV_HOLD_BUSY,		/* its owner */
	KV_HOLD_TAKEN,		/* the keeper */
	KV_HOLD_GONE_MEMORY,	/* none: there is nothing */
	KV_HOLD_GONE_UNUSED,
};

struct kv_hold {
	_Atomic(uint32_t) ho_word;	/* enum kv_hold_word */
	uint32_t ho_stripe;
	uint32_t ho_why;		/* the keeper's: what the word will be */
	struct kv_holders *ho_in;	/* of its tree; NULL: it keeps none */
	struct kv_hold *ho_newer, *ho_older;	/* the stripe's lock */
	uint64_t ho_born_ns;		/* kv_now() */
	/* Lets go of all that it keeps. Inside kv_enter(), without a lock, TAKEN. */
	void (*ho_let_go)(struct kv_hold *ho);
};

/* Of a database: the trees that have holds. */
struct kv_holds {
	pthread_mutex_t hd_lock;	/* outside ov_lock and stripes */
	struct kv_holders *hd_newest, *hd_oldest;	/* by last use; hd_lock */
	_Atomic(uint32_t) hd_n;		/* of them */
	_Atomic(uint64_t) hd_step;	/* of the keeper: the time of a use */
	_Atomic(uint64_t) hd_ended;	/* holds that were taken */
};

int kv_holds_init(struct kvdb *db);
void kv_holds_fini(struct kvdb *db);
/*
 * The keeper takes what was not used for view_max_age_ms and is no store's current tree, and what
 * keeps more memory of flushed memtables alive than views and cursors may. T9, HO2, HO3.
 */
void kv_holds_step(struct kvdb *db);
void kv_holds_stats(struct kvdb *db, struct kvdb_stats *st);

/* What kv_hold_add() needs, for the tree. -ENOMEM */
int kv_hold_ready(struct kvdb *db, struct kv_tree *tr);
/* A hold that is BUSY keeps @tr, or (NULL) nothing, from now on; after kv_hold_ready(). */
void kv_hold_add(struct kvdb *db, struct kv_hold *ho, struct kv_tree *tr);
/* It keeps nothing any more. BUSY. */
void kv_hold_del(struct kv_hold *ho);
/* A call that was begun ends: IDLE. */
void kv_hold_end(struct kvdb *db, struct kv_hold *ho);
/* For a call that works without: waits until it is BUSY (true), or has gone. */
bool kv_hold_settle(struct kv_hold *ho);

/* A call of the owner begins: BUSY. False: it has gone, or goes. */
static inline bool kv_hold_begin(struct kv_hold *ho)
{
	uint32_t idle = KV_HOLD_IDLE;

	return atomic_compare_exchange_strong_explicit(&ho->ho_word, &idle, KV_HOLD_BUSY,
						       memory_order_acquire, memory_order_relaxed);
}

/* Of a tree that ends, before it lets go of anything; NULL: it never had one. */
void kv_holders_free(struct kvdb *db, struct kv_holders *hs);

#endif
