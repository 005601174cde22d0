/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What the compiler and the processor are told. */
#ifndef KV_MACROS_H
#define KV_MACROS_H

#include <stdatomic.h>
#include <stdint.h>

#define KV_LIKELY(x)	__builtin_expect(!!(x), 1)
#define KV_UNLIKELY(x)	__builtin_expect(!!(x), 0)
#define KV_CACHELINE	64

/* Between two looks at a lock that another thread holds. */
static inline void kv_cpu_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" ::: "memory");
#endif
}

/*
 * A full fence beside an atomic read-modify-write. C11 lets loads that follow one be done before
 * its store, and stores that precede it be seen after that, by threads that look elsewhere; other
 * processors do so. On x86 it is a locked instruction, which nothing passes.
 */
static inline void kv_fence(void)
{
#ifndef __x86_64__
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* All bits of the result depend on all of @x. */
static inline uint64_t kv_mix(uint64_t x)
{
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93ull;
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93ull;
	x ^= x >> 32;
	return x;
}

#endif
