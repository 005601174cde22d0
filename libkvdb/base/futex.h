/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Sleeping at a word of this process. A waiter looks for what it waits for after it
 * read the word and before it sleeps; the thread that wakes it changes the word after that.
 */
#ifndef KV_FUTEX_H
#define KV_FUTEX_H

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define KV_FUTEX_ALL	FUTEX_BITSET_MATCH_ANY

/*
 * Sleeps while the word is @seen; also returns for no reason. Woken by a bit of @bits. True: it is
 * @until, of CLOCK_MONOTONIC; NULL: without end.
 */
static inline bool kv_futex_wait_until(_Atomic(uint32_t) *word, uint32_t seen, uint32_t bits,
				       const struct timespec *until)
{
	return syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, seen, until, NULL, bits) &&
	       errno == ETIMEDOUT;
}

static inline void kv_futex_wait(_Atomic(uint32_t) *word, uint32_t seen, uint32_t bits)
{
	(void)kv_futex_wait_until(word, seen, bits, NULL);
}

/* Wakes up to @n that wait for one of @bits. Harmless at an address where no thread waits. */
static inline void kv_futex_wake(_Atomic(uint32_t) *word, int n, uint32_t bits)
{
	syscall(SYS_futex, word, FUTEX_WAKE_BITSET_PRIVATE, n, NULL, NULL, bits);
}

#endif
