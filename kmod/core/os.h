/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The operating system contract of the portable core: everything the core may
 * use from its surroundings, spelled as the kernel spells it. The core
 * includes nothing else, and only this file knows which world it is built for.
 *
 *  types      u8 u16 u32 u64 s64 bool size_t, __le16/32/64, __u8
 *  bytes      cpu_to_leNN() leNN_to_cpu() memcpy memset memcmp memmove strlen
 *  numbers    min() max() min_t() ALIGN() ALIGN_DOWN() DIV_ROUND_UP() ARRAY_SIZE() fls64()
 *  lists      struct list_head and list_*()
 *  memory     os_alloc() os_zalloc() os_free(): may sleep, may fail; os_alloc_io(): aligned
 *             to 4 KiB for device I/O, freed by os_free_io(). All of these for what belongs to
 *             the pool. os_call_alloc() os_call_zalloc() os_call_alloc_io(), freed by the same:
 *             for what a caller asked for, within its limit. Near that limit they wait long:
 *             not under p_lock, where there is os_call_zalloc_now(), which does not wait
 *  locks      struct mutex: mutex_init/destroy/lock/unlock; spinlock_t: spin_lock_init/
 *             spin_lock_irqsave/spin_unlock_irqrestore (unsigned long flags): those of the
 *             core are taken in interrupts too; struct os_cond: os_cond_init/destroy/
 *             wait/wake_all
 *  ordering   smp_load_acquire() smp_store_release()
 *  checks     os_assert(), static_assert(); os_assert_slow(): in debug and sanitizer builds of user
 *             space; os_assert_held(), os_assert_free(): the calling thread has the lock, or not
 *  text       scnprintf() vscnprintf()
 *  time       os_now_ms(): monotonic, counts while the machine sleeps; os_sleep_ms()
 *  others     os_fatal_signal(): the caller is being killed, and wants no result. False in user
 *             space. Loops over media ask between two steps, none of which takes long, and end
 *             with -EINTR; cond_resched(): others may run, in walks over all objects;
 *             crc32c() as in the kernel (no inversions), os_random(): 0, or -errno, never in
 *             the kernel; os_verror(),
 *             os_host_name(): a name for people, printable
 */
#ifndef MP_CORE_OS_H
#define MP_CORE_OS_H

#ifdef __KERNEL__
#include "os_kern.h"
#else
#include "os_user.h"
#endif

/*
 * Details of an error, to be asked for afterwards: @id is a number of err.h.
 * Stored per thread in user space, rate-limited log in the kernel.
 */
void os_verror(int id, int err, const char *fmt, va_list ap);

#endif
