/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel half of core/os.h. Nearly all of the contract is the kernel's own
 * spelling; what remains are memory, the condition variable and the two checks.
 *
 * os_alloc_io() needs 4 KiB alignment without a size at free time: kmalloc()
 * aligns powers of two naturally and takes anything larger than two pages from
 * the page allocator, so a multiple of 4 KiB is always aligned to 4 KiB.
 *
 * The core allocates with its locks held, and reclaim may evict inodes of objects,
 * which takes the same locks: hence GFP_NOFS. What a command asks for is charged to the
 * memory control group of its caller, objects and the space they take, too. What an
 * activation loads is not: it is as large as the pool, and stays when its caller has gone.
 */
#ifndef MPK_OS_KERN_H
#define MPK_OS_KERN_H

#include <linux/align.h>
#include <linux/bitops.h>
#include <linux/bug.h>
#include <linux/delay.h>
#include <linux/build_bug.h>
#include <linux/crc32c.h>
#include <linux/errno.h>
#include <linux/kernel.h>
#include <linux/ktime.h>
#include <linux/list.h>
#include <linux/math.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/random.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/stdarg.h>
#include <linux/string.h>
#include <linux/types.h>
#include <linux/utsname.h>
#include <linux/wait.h>

#define EXPORT_CORE

static inline void *os_alloc(size_t size)
{
	return kvmalloc(size ? size : 1, GFP_NOFS);
}

static inline void *os_zalloc(size_t size)
{
	return kvzalloc(size ? size : 1, GFP_NOFS);
}

static inline void os_free(void *p)
{
	kvfree(p);
}

static inline void *os_alloc_io(size_t size)
{
	return kvmalloc(ALIGN(size, 4096), GFP_NOFS);
}

static inline void *os_call_alloc(size_t size)
{
	return kvmalloc(size ? size : 1, GFP_NOFS | __GFP_ACCOUNT);
}

static inline void *os_call_zalloc(size_t size)
{
	return kvzalloc(size ? size : 1, GFP_NOFS | __GFP_ACCOUNT);
}

/* small; a group at its limit is not reclaimed from, nor made to sleep */
static inline void *os_call_zalloc_now(size_t size)
{
	return kzalloc(size, GFP_NOWAIT | __GFP_NOWARN | __GFP_ACCOUNT);
}

static inline void *os_call_alloc_io(size_t size)
{
	return kvmalloc(ALIGN(size, 4096), GFP_NOFS | __GFP_ACCOUNT);
}

static inline void os_free_io(void *p)
{
	kvfree(p);
}

static inline int os_random(void *buf, size_t len)
{
	get_random_bytes(buf, len);
	return 0;
}

static inline u64 os_now_ms(void)
{
	return ktime_to_ms(ktime_get_boottime());
}

static inline void os_sleep_ms(u32 ms)
{
	msleep(ms);
}

static inline void os_host_name(char *buf, size_t size)
{
	size_t i;

	strscpy_pad(buf, init_utsname()->nodename, size);
	for (i = 0; i < size && buf[i]; i++)
		if (buf[i] < 0x20 || buf[i] == 0x7f)
			buf[i] = '?';
}

static inline bool os_fatal_signal(void)
{
	return fatal_signal_pending(current);
}

struct os_cond {
	wait_queue_head_t c;
};

static inline void os_cond_init(struct os_cond *c)
{
	init_waitqueue_head(&c->c);
}

static inline void os_cond_destroy(struct os_cond *c)
{
}

/* releases @m while asleep; may wake spuriously */
static inline void os_cond_wait(struct os_cond *c, struct mutex *m)
{
	DEFINE_WAIT(wait);

	/* on the queue before the lock is dropped: no wake-up can be missed */
	prepare_to_wait(&c->c, &wait, TASK_UNINTERRUPTIBLE);
	mutex_unlock(m);
	schedule();
	finish_wait(&c->c, &wait);
	mutex_lock(m);
}

static inline void os_cond_wake_all(struct os_cond *c)
{
	wake_up_all(&c->c);
}

/* a programmer's error is reported once; media are never asserted on */
#define os_assert(cond)	WARN_ON_ONCE(!(cond))
#define os_assert_slow(cond)	((void)(0 && (cond)))
#define os_assert_held(l)	lockdep_assert_held(l)
#define os_assert_free(l)	lockdep_assert_not_held(l)

#endif
