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
 * The caller holds the mutex, or does not. Where the C library tells its owner, a debug build sees
 * whether it is this thread, and a product build in one load that some thread holds it.
 */
#ifndef __GLIBC__
#define KV_ASSERT_HELD(m) ((void)(m))
#define KV_ASSERT_FREE(m) ((void)(m))
#elif defined(MP_DEBUG)
#define KV_ASSERT_HELD(m) KV_ASSERT((m)->__data.__owner == gettid())
#define KV_ASSERT_FREE(m) KV_ASSERT((m)->__data.__owner != gettid())
#else
#define KV_ASSERT_HELD(m) KV_ASSERT((m)->__data.__owner != 0)
#define KV_ASSERT_FREE(m) ((void)(m))
#endif

/* For a rwlock: held for writing. */
#ifndef __GLIBC__
#define KV_ASSERT_WRITES(l) ((void)(l))
#elif defined(MP_DEBUG)
#define KV_ASSERT_WRITES(l) KV_ASSERT((l)->__data.__cur_writer == gettid())
#else
#define KV_ASSERT_WRITES(l) KV_ASSERT((l)->__data.__cur_writer != 0)
#endif

#endif
