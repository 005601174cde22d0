/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What this library believes of itself. A belief that is wrong ends the process before it can
 * write anything that follows from it; what callers or media give is checked and refused instead.
 */
#ifndef KV_ASSERT_H
#define KV_ASSERT_H

#include <assert.h>
#include <pthread.h>
#if defined(MP_DEBUG) && defined(__GLIBC__)
#include <unistd.h>
#endif

/* Cheap enough for every build: a comparison of what is at hand. */
#define KV_ASSERT(cond)	assert(cond)

/* What takes longer, or is asked in a put or get: debug and sanitizer builds. */
#ifdef MP_DEBUG
#define KV_ASSERT_SLOW(cond)	assert(cond)
#else
#define KV_ASSERT_SLOW(cond)	((void)(0 && (cond)))
#endif

/*
 * The caller holds the mutex, or does not; a rwlock: holds it for writing. For debug and sanitizer
 * builds with glibc, which notes the owner; in a release it does not where a mutex is elided.
 */
#if defined(__GLIBC__) && defined(MP_DEBUG)
#define KV_ASSERT_HELD(m) KV_ASSERT((m)->__data.__owner == gettid())
#define KV_ASSERT_FREE(m) KV_ASSERT((m)->__data.__owner != gettid())
#define KV_ASSERT_WRITES(l) KV_ASSERT((l)->__data.__cur_writer == gettid())
#else
#define KV_ASSERT_HELD(m) ((void)(m))
#define KV_ASSERT_FREE(m) ((void)(m))
#define KV_ASSERT_WRITES(l) ((void)(l))
#endif

#endif
