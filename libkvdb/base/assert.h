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
#include <sys/syscall.h>
#endif

/* Cheap enough for every build: a comparison of what is at hand. */
#define KV_ASSERT(cond)	assert(cond)

/*
 * The caller holds the mutex. Where the C library tells its owner, a product build sees in one
 * load that some thread holds it, and a debug build that it is this one.
 */
#ifdef __GLIBC__
#ifdef MP_DEBUG
#define KV_ASSERT_HELD(m) KV_ASSERT((m)->__data.__owner == (int)syscall(SYS_gettid))
#else
#define KV_ASSERT_HELD(m) KV_ASSERT((m)->__data.__owner != 0)
#endif
#else
#define KV_ASSERT_HELD(m) ((void)(m))
#endif

#endif
