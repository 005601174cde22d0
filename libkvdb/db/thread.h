/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What one thread does in one database: its operation slot (slot.h), which the flusher
 * may have to finish or withdraw, and its counters.
 */
#ifndef KV_THREAD_H
#define KV_THREAD_H

#include <pthread.h>

#include "db/limbo.h"
#include "db/slot.h"

struct kv_thread;
struct kvdb;

/* One per (thread, database). Owned by the database; linked under the registry lock. */
struct kv_tctx {
	struct kv_slot tc_slot;
	_Atomic(uint64_t) tc_puts, tc_gets, tc_dels, tc_seeks, tc_nexts;	/* kv_count() */
	_Atomic(uint64_t) tc_user_bytes, tc_read_bytes, tc_value_mem, tc_value_dev;
	_Atomic(uint64_t) tc_point_hits;
	_Atomic(uint64_t) tc_cursors;	/* opened less closed: a thread may close another's */
	_Atomic(uint64_t) tc_cursor_bytes;	/* of their own memory; likewise */
	_Atomic(uint64_t) tc_begun, tc_committed, tc_aborted, tc_conflicts, tc_stale;
	/* the owner is in a get that can begin anew: a missing page ends it with -EINPROGRESS */
	bool tc_restarts;
	void *tc_batch;			/* memory for the next cursor, or NULL; its thread's */
	struct kvdb *tc_db;
	struct kv_thread *tc_thread;
	struct kv_tctx *tc_db_next;
	struct kv_tctx *tc_thread_next;
} __attribute__((aligned(128)));

/* Of a database; thread.c. */
struct kv_db_threads {
	uint64_t dt_id;			/* of this open handle in this process */
	struct kv_tctx *dt_ctxs;	/* linked by tc_db_next */
	struct kv_tctx *dt_ended;	/* of threads that ended, to use again */
};

/* A counter that one thread writes and any reads: no locked instruction. */
static inline uint64_t kv_counted(const _Atomic(uint64_t) *c)
{
	return atomic_load_explicit(c, memory_order_relaxed);
}

static inline void kv_count(_Atomic(uint64_t) *c, uint64_t n)
{
	atomic_store_explicit(c, kv_counted(c) + n, memory_order_relaxed);
}

/* This thread's context in @db; made at first use. NULL = -ENOMEM. */
struct kv_tctx *kv_tctx(struct kvdb *db);
/* Calls fn for every context of @db, under the registry lock. */
void kv_tctx_each(struct kvdb *db, void (*fn)(struct kv_tctx *tc, void *arg), void *arg);
/* Before a thread does anything else here, which then cannot fail. 0 or -EAGAIN. */
int kv_threads_ready(void);
int kv_threads_init(struct kvdb *db);	/* gives the database its identity */
void kv_threads_fini(struct kvdb *db);	/* frees its contexts */
/* Number of a thread, small and dense: picks stripes. */
unsigned int kv_thread_no(void);
/*
 * kv_grace_begin - for kv_grace_is_over(): all that are inside kv_enter() now have left it
 * What the caller published before it is known to all that enter after that is over. Neither waits;
 * the second moves the epoch on, which a thread inside kv_enter() can do once.
 */
uint64_t kv_grace_begin(void);
bool kv_grace_is_over(uint64_t grace);
/* Starts a thread of ours, as pthread_create(). Signals are the program's: none comes to it. */
int kv_thread_start(pthread_t *thread, void *(*fn)(void *), void *arg);

#endif
