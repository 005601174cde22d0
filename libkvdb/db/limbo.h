/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What was unlinked is freed when no thread can hold it any more, see thread.c. */
#ifndef KV_LIMBO_H
#define KV_LIMBO_H

#include <stdbool.h>
#include <stdint.h>

#include "base/assert.h"

struct kv_thread;

/*
 * A thread reads shared structures only between kv_enter() and kv_exit()
 * (they nest). What was unlinked is freed by kv_retire() once every thread
 * that might still see it has left. A sleeping thread must not be inside,
 * except for bounded I/O on an object that it pins.
 */
struct kv_thread *kv_enter(void);
void kv_exit(struct kv_thread *t);
/* Is the calling thread between kv_enter() and kv_exit()? */
bool kv_is_inside(void);
/* What follows a pointer without a lock is inside; what sleeps, or waits for a device, is not. */
#define KV_ASSERT_INSIDE()	KV_ASSERT_SLOW(kv_is_inside())
#define KV_ASSERT_OUTSIDE()	KV_ASSERT_SLOW(!kv_is_inside())

/* A part of what is to be retired: freeing needs no memory. */
struct kv_limbo {
	void (*lb_free)(void *arg);
	void *lb_arg;
	uint64_t lb_epoch;
	struct kv_limbo *lb_next;
};
/* Calls @fn with @arg, which frees @lb too, when no thread can hold @arg any more. */
void kv_retire(struct kv_limbo *lb, void (*fn)(void *arg), void *arg);
/* Waits until everything retired so far was freed (close, tests). */
void kv_retire_barrier(void);
/* Frees what is due, if anything; inside kv_enter() nothing is done. */
void kv_reclaim(void);

#endif
