/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The user half of core/os.h: the kernel's spelling on top of libc and
 * pthreads. Allocator and entropy are injected (tests replace them); both
 * hooks are process-wide and set before the first pool is opened.
 */
#ifndef MPL_OS_USER_H
#define MPL_OS_USER_H

#include <assert.h>
#include <errno.h>
#include <endian.h>
#include <linux/types.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#ifdef MP_DEBUG
#include <unistd.h>
#endif

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s64 s64;

#ifndef __packed
#define __packed	__attribute__((packed))
#endif
#define __must_check	__attribute__((warn_unused_result))
#ifndef __printf
#define __printf(a, b)	__attribute__((format(printf, a, b)))
#endif
#define fallthrough	__attribute__((fallthrough))
#define EXPORT_CORE

/* sparse sees media fields as types of their own; only these may convert them */
#ifdef __CHECKER__
#define os_force	__attribute__((force))
#else
#define os_force
#endif
#define cpu_to_le16(x)	((os_force __le16)htole16(x))
#define cpu_to_le32(x)	((os_force __le32)htole32(x))
#define cpu_to_le64(x)	((os_force __le64)htole64(x))
#define le16_to_cpu(x)	((u16)le16toh((os_force __u16)(__le16)(x)))
#define le32_to_cpu(x)	((u32)le32toh((os_force __u32)(__le32)(x)))
#define le64_to_cpu(x)	((u64)le64toh((os_force __u64)(__le64)(x)))

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))
#define ALIGN(x, a)	(((x) + ((typeof(x))(a) - 1)) & ~((typeof(x))(a) - 1))
#define ALIGN_DOWN(x, a)	((x) & ~((typeof(x))(a) - 1))
#define DIV_ROUND_UP(n, d)	(((n) + (d) - 1) / (d))
#define container_of(p, t, m)	((t *)((char *)(p) - offsetof(t, m)))
#define min_t(t, a, b)	({ t os_lo1 = (a); t os_lo2 = (b); os_lo1 < os_lo2 ? os_lo1 : os_lo2; })
#define max_t(t, a, b)	({ t os_hi1 = (a); t os_hi2 = (b); os_hi1 > os_hi2 ? os_hi1 : os_hi2; })
#define min(a, b)	min_t(typeof(a), a, b)
#define max(a, b)	max_t(typeof(a), a, b)

/* position of the highest set bit, counted from 1; 0 for 0 */
static inline int fls64(u64 x)
{
	return x ? 64 - __builtin_clzll(x) : 0;
}

#define smp_load_acquire(p)	__atomic_load_n(p, __ATOMIC_ACQUIRE)
#define smp_store_release(p, v)	__atomic_store_n(p, v, __ATOMIC_RELEASE)

struct list_head {
	struct list_head *next, *prev;
};

static inline void INIT_LIST_HEAD(struct list_head *h)
{
	h->next = h;
	h->prev = h;
}

static inline void os_list_link(struct list_head *n, struct list_head *before,
				struct list_head *after)
{
	n->prev = before;
	n->next = after;
	before->next = n;
	after->prev = n;
}

static inline void list_add(struct list_head *n, struct list_head *h)
{
	os_list_link(n, h, h->next);
}

static inline void list_add_tail(struct list_head *n, struct list_head *h)
{
	os_list_link(n, h->prev, h);
}

static inline void list_del_init(struct list_head *n)
{
	n->prev->next = n->next;
	n->next->prev = n->prev;
	INIT_LIST_HEAD(n);
}

static inline int list_empty(const struct list_head *h)
{
	return h->next == h;
}

#define list_entry(p, t, m)	container_of(p, t, m)
#define list_first_entry(h, t, m)	list_entry((h)->next, t, m)
#define list_for_each_entry(pos, h, m)					\
	for (pos = list_entry((h)->next, typeof(*pos), m); &pos->m != (h);	\
	     pos = list_entry(pos->m.next, typeof(*pos), m))
#define list_for_each_entry_safe(pos, tmp, h, m)			\
	for (pos = list_entry((h)->next, typeof(*pos), m),		\
	     tmp = list_entry(pos->m.next, typeof(*pos), m);		\
	     &pos->m != (h);						\
	     pos = tmp, tmp = list_entry(tmp->m.next, typeof(*tmp), m))

struct mutex {
	pthread_mutex_t m;
};

static inline void mutex_init(struct mutex *m)
{
	pthread_mutex_init(&m->m, NULL);
}

static inline void mutex_destroy(struct mutex *m)
{
	pthread_mutex_destroy(&m->m);
}

static inline void mutex_lock(struct mutex *m)
{
	pthread_mutex_lock(&m->m);
}

static inline void mutex_unlock(struct mutex *m)
{
	pthread_mutex_unlock(&m->m);
}

/* a sleeping lock here: a preempted holder must not burn the other core */
typedef struct {
	pthread_mutex_t m;
} spinlock_t;

static inline void spin_lock_init(spinlock_t *l)
{
	pthread_mutex_init(&l->m, NULL);
}

static inline void spin_lock(spinlock_t *l)
{
	pthread_mutex_lock(&l->m);
}

static inline void spin_unlock(spinlock_t *l)
{
	pthread_mutex_unlock(&l->m);
}

/* there are no interrupts here: @flags keeps its kernel spelling and means nothing */
#define spin_lock_irqsave(l, flags)	\
	do {				\
		(flags) = 0;		\
		spin_lock(l);		\
	} while (0)
#define spin_unlock_irqrestore(l, flags)	\
	do {					\
		(void)(flags);			\
		spin_unlock(l);			\
	} while (0)

/* threads are preempted here */
static inline void cond_resched(void)
{
}

struct os_cond {
	pthread_cond_t c;
};

static inline void os_cond_init(struct os_cond *c)
{
	pthread_cond_init(&c->c, NULL);
}

static inline void os_cond_destroy(struct os_cond *c)
{
	pthread_cond_destroy(&c->c);
}

/* releases @m while asleep; may wake spuriously */
static inline void os_cond_wait(struct os_cond *c, struct mutex *m)
{
	pthread_cond_wait(&c->c, &m->m);
}

static inline void os_cond_wake_all(struct os_cond *c)
{
	pthread_cond_broadcast(&c->c);
}

/* in releases too: __assert_fail() ends the process before it writes */
#define os_assert(cond)	assert(cond)
#ifdef MP_DEBUG
#define os_assert_slow(cond)	assert(cond)
#else
#define os_assert_slow(cond)	((void)(0 && (cond)))
#endif
/* of a struct mutex or a spinlock_t; not in a release: a mutex that is elided has no owner */
#if defined(__GLIBC__) && defined(MP_DEBUG)
#define os_assert_held(l)	assert((l)->m.__data.__owner == gettid())
#define os_assert_free(l)	assert((l)->m.__data.__owner != gettid())
#else
#define os_assert_held(l)	((void)(l))
#define os_assert_free(l)	((void)(l))
#endif

void *os_alloc(size_t size);
void *os_zalloc(size_t size);
void os_free(void *p);
void *os_alloc_io(size_t size);
/* a process has but one purse */
#define os_call_alloc		os_alloc
#define os_call_zalloc		os_zalloc
#define os_call_zalloc_now	os_zalloc
#define os_call_alloc_io	os_alloc_io
void os_free_io(void *p);
int os_random(void *buf, size_t len);
u64 os_now_ms(void);
void os_sleep_ms(u32 ms);
void os_host_name(char *buf, size_t size);
bool os_fatal_signal(void);

/* the kernel's names end here: a program linked with libmpool.a may have its own */
#define scnprintf	os_scnprintf
#define vscnprintf	os_vscnprintf
#define crc32c		os_crc32c
int scnprintf(char *buf, size_t size, const char *fmt, ...) __printf(3, 4);
int vscnprintf(char *buf, size_t size, const char *fmt, va_list ap) __printf(3, 0);
u32 crc32c(u32 crc, const void *buf, size_t len);

/* ---- hooks for libmpool and tests; the core does not see them ---- */

/* @align: 0 or a power of two; NULL return = out of memory */
struct os_user_hooks {
	void *(*alloc)(void *ctx, size_t size, size_t align);
	void (*free)(void *ctx, void *p);
	void (*random)(void *ctx, void *buf, size_t len);
	u64 (*now_ms)(void *ctx);
	void (*sleep_ms)(void *ctx, u32 ms);
	bool (*fatal_signal)(void *ctx);
	const char *(*host_name)(void *ctx);
	void *ctx;
};

/* NULL members keep the default; NULL restores all defaults */
void os_user_hooks_set(const struct os_user_hooks *h);

/*
 * The calling thread's last error detail; oe_id 0 = none since the last clear. There are two:
 * what calls on pools opened with MPOOL_OPEN_QUIET meet leaves that of other calls as it is.
 */
struct os_user_error {
	int oe_id;		/* MPnnnn number of err.h */
	int oe_err;		/* negative errno */
	char oe_text[256];
};

const struct os_user_error *os_user_error(void);
void os_user_error_clear(void);
/* which of the two the thread's calls write, clear and return from now on */
void os_user_error_select(bool is_quiet);
bool os_user_error_is_quiet(void);
/* record a detail from outside the core (libmpool's own origins) */
void os_user_error_set(int id, int err, const char *fmt, ...) __printf(3, 4);

/* starts a thread of the library, as pthread_create(): no signal of the program comes to it */
int os_thread_start(pthread_t *thread, void *(*fn)(void *), void *arg);

#endif
