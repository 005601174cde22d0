/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Bells of the background threads, see bell.c. */
#ifndef KV_BELL_H
#define KV_BELL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct kvdb;

struct kv_work {
	pthread_mutex_t wk_lock;
	struct kv_bell {		/* there may be work; wk_lock */
		pthread_cond_t bl_cond;
		uint64_t bl_rings;
	} wk_keep, wk_merge, wk_supply, wk_grow; /* the last two are rung far more often */
	bool wk_is_one;			/* KVDB_SMALL: one thread, at wk_keep, hears all of them */
	uint64_t wk_all_ns;		/* when all were rung; wk_lock */
	_Atomic(bool) wk_stop;
	/* slots of the stores that are looked at first: after those that were served last */
	_Atomic(uint32_t) wk_flush_turn, wk_merge_turn;
	_Atomic(uint32_t) wk_flush_steps;
	_Atomic(unsigned int) wk_n;	/* threads that run */
	pthread_t *wk_thread;
};

void kv_bells_init(struct kv_work *wk);
void kv_bells_fini(struct kv_work *wk);
/* One of them; nothing without threads. */
void kv_bell_ring(struct kv_work *wk, struct kv_bell *bl);
void kv_bells_ring(struct kv_work *wk);
/*
 * Sleeps until @bl was rung more often than *@seen, or for 100 ms: what failed is tried again
 * then. *@seen is how often it was rung.
 */
void kv_bell_sleep(struct kv_work *wk, struct kv_bell *bl, uint64_t *seen);

/* There may be work for any thread; no threads, nothing happens. These four from any context. */
void kv_work_kick(struct kvdb *db);
/* An epoch is durable, or memory fills: for the keeper at once, for all once in a while (TH-15). */
void kv_work_tick(struct kvdb *db);
/* Only for what writers would wait for: segments, memory. */
void kv_supplier_kick(struct kvdb *db);
void kv_grower_kick(struct kvdb *db);
bool kv_work_stopping(struct kvdb *db);
/*
 * LF14: what ended with @err is to be done again. *@tries begins with 0. With threads of the
 * database it sleeps before, up to 40 ms.
 */
bool kv_retry_allowed(struct kvdb *db, int err, unsigned *tries);

#endif
