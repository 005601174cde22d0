/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The user half of the core's operating system contract: memory, entropy,
 * text, CRC32C (crc32c.c has it) and the per-thread error detail.
 * Hooks are process-wide, set before threads exist; error details belong to
 * their thread; nothing else has state.
 */
#include "os_user.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <mpool/mpool.h>

#include "crc32c.h"

static struct os_user_hooks hooks;

/* of calls on pools that are opened quietly, and of all others: neither loses the other's */
static _Thread_local struct os_user_error last_errors[2];
static _Thread_local unsigned last_at;	/* the one that the present call writes */

void os_user_hooks_set(const struct os_user_hooks *h)
{
	if (h)
		hooks = *h;
	else
		memset(&hooks, 0, sizeof(hooks));
}

static void *mem_get(size_t size, size_t align)
{
	void *p = NULL;

	if (hooks.alloc)
		return hooks.alloc(hooks.ctx, size, align);
	if (!align)
		return malloc(size);
	return posix_memalign(&p, align, size) ? NULL : p;
}

static void mem_put(void *p)
{
	if (!p)
		return;
	if (hooks.free)
		hooks.free(hooks.ctx, p);
	else
		free(p);
}

void *os_alloc(size_t size)
{
	return mem_get(size ? size : 1, 0);
}

void *os_zalloc(size_t size)
{
	void *p = os_alloc(size);

	if (p)
		memset(p, 0, size);
	return p;
}

void os_free(void *p)
{
	mem_put(p);
}

void *os_alloc_io(size_t size)
{
	return mem_get(size, 4096);
}

void os_free_io(void *p)
{
	mem_put(p);
}

/* A filter of system calls forbids getrandom(), and would for ever. */
static int random_read(u8 *p, size_t len)
{
	int fd = mpool_fd_up(open("/dev/urandom", O_RDONLY | O_CLOEXEC)), err = 0;
	ssize_t n;

	if (fd < 0)
		return -errno;
	while (len && !err) {
		n = read(fd, p, len);
		if (n > 0) {
			p += n;
			len -= (size_t)n;
		} else if (!n || errno != EINTR) {
			err = n ? -errno : -EIO;
		}
	}
	close(fd);
	return err;
}

int os_random(void *buf, size_t len)
{
	u8 *p = buf;
	ssize_t n;

	if (hooks.random) {
		hooks.random(hooks.ctx, buf, len);
		return 0;
	}
	while (len) {
		n = getrandom(p, len < 256 ? len : 256, 0);
		if (n < 0 && errno != EINTR)
			return random_read(p, len);
		if (n < 0)
			continue;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

u64 os_now_ms(void)
{
	struct timespec ts;

	if (hooks.now_ms)
		return hooks.now_ms(hooks.ctx);
	clock_gettime(CLOCK_BOOTTIME, &ts);
	return (u64)ts.tv_sec * 1000u + (u64)ts.tv_nsec / 1000000u;
}

void os_sleep_ms(u32 ms)
{
	struct timespec ts = { ms / 1000u, (long)(ms % 1000u) * 1000000 };

	if (hooks.sleep_ms) {
		hooks.sleep_ms(hooks.ctx, ms);
		return;
	}
	while (clock_nanosleep(CLOCK_BOOTTIME, 0, &ts, &ts) == EINTR)
		;
}

bool os_fatal_signal(void)
{
	return hooks.fatal_signal && hooks.fatal_signal(hooks.ctx);
}

void os_host_name(char *buf, size_t size)
{
	size_t i;

	memset(buf, 0, size);
	if (hooks.host_name)
		snprintf(buf, size, "%s", hooks.host_name(hooks.ctx));
	else
		gethostname(buf, size - 1);
	for (i = 0; buf[i]; i++)
		if ((u8)buf[i] < 0x20 || buf[i] == 0x7f)
			buf[i] = '?';
}

int vscnprintf(char *buf, size_t size, const char *fmt, va_list ap)
{
	int n;

	if (!size)
		return 0;
	n = vsnprintf(buf, size, fmt, ap);
	if (n < 0) {
		buf[0] = 0;
		return 0;
	}
	return (size_t)n < size ? n : (int)size - 1;
}

int scnprintf(char *buf, size_t size, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vscnprintf(buf, size, fmt, ap);
	va_end(ap);
	return n;
}

/* one definition for the core and for libmpool's own origins */
void os_verror(int id, int err, const char *fmt, va_list ap) __printf(3, 0);

/* The object is at the beginning, the reason at the end: a long path loses its middle. */
void os_verror(int id, int err, const char *fmt, va_list ap)
{
	struct os_user_error *last = &last_errors[last_at];
	enum { SIZE = sizeof(last->oe_text), HALF = SIZE / 2 - 2 };
	char all[PATH_MAX + SIZE];
	int n = vscnprintf(all, sizeof(all), fmt, ap);

	last->oe_id = id;
	last->oe_err = err;
	if (n < SIZE)
		memcpy(last->oe_text, all, (size_t)n + 1);
	else
		snprintf(last->oe_text, SIZE, "%.*s...%s", HALF, all, all + n - HALF);
}

void os_user_error_set(int id, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	os_verror(id, err, fmt, ap);
	va_end(ap);
}

const struct os_user_error *os_user_error(void)
{
	return &last_errors[last_at];
}

void os_user_error_clear(void)
{
	struct os_user_error *last = &last_errors[last_at];

	last->oe_id = 0;
	last->oe_err = 0;
	last->oe_text[0] = 0;
}

void os_user_error_select(bool is_quiet)
{
	last_at = is_quiet;
}

bool os_user_error_is_quiet(void)
{
	return last_at;
}

/* the kernel's convention (no inversions) over the library's */
u32 crc32c(u32 crc, const void *buf, size_t len)
{
	return ~mpool_crc32c(~crc, buf, len);
}

/*
 * One that the program blocks in its own threads, to wait for it, would come to ours. What a
 * thread itself does wrong stays its own.
 */
int os_thread_start(pthread_t *thread, void *(*fn)(void *), void *arg)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGFPE);
	sigdelset(&all, SIGILL);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(thread, NULL, fn, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return err;
}
