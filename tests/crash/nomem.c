/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Memory of the libraries as a device that fails. The Makefile gives crash_fault,
 * crash_fault_pool and test_kv_nomem* copies of both libraries whose allocations come
 * here; the simulator and the test itself keep the C library's. Everything is counted,
 * so what leaks is seen.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "sim.h"

void *nomem_malloc(size_t size);
void *nomem_calloc(size_t n, size_t size);
void *nomem_realloc(void *old, size_t size);
void *nomem_aligned_alloc(size_t align, size_t size);
int nomem_posix_memalign(void **out, size_t align, size_t size);
char *nomem_strdup(const char *s);
/* getline() and asprintf(), as the compiler calls them with and without optimization */
ssize_t nomem_getline(char **line, size_t *size, FILE *f);
ssize_t nomem___getdelim(char **line, size_t *size, int end, FILE *f);
int nomem_asprintf(char **out, const char *fmt, ...);
int nomem___asprintf_chk(char **out, int flag, const char *fmt, ...);
void nomem_free(void *p);
void *nomem_mmap64(void *at, size_t len, int prot, int flags, int fd, off_t off);
int nomem_munmap(void *p, size_t len);

static struct sim *sim;
static _Atomic(long) live;

void sim_memory_of(struct sim *s)
{
	sim = s;
}

long sim_memory_live(void)
{
	return live;
}

static bool fails(void)
{
	if (!sim || !sim_memory_fails(sim))
		return false;
	errno = ENOMEM;
	return true;
}

static void *count(void *p)
{
	live += p != NULL;
	return p;
}

void *nomem_malloc(size_t size)
{
	return fails() ? NULL : count(malloc(size));
}

void *nomem_calloc(size_t n, size_t size)
{
	return fails() ? NULL : count(calloc(n, size));
}

void *nomem_realloc(void *old, size_t size)
{
	void *p = fails() ? NULL : realloc(old, size);

	live += p && !old;
	return p;
}

void *nomem_aligned_alloc(size_t align, size_t size)
{
	return fails() ? NULL : count(aligned_alloc(align, size));
}

int nomem_posix_memalign(void **out, size_t align, size_t size)
{
	int rc = fails() ? ENOMEM : posix_memalign(out, align, size);

	live += !rc;
	return rc;
}

char *nomem_strdup(const char *s)
{
	return fails() ? NULL : count(strdup(s));
}

ssize_t nomem___getdelim(char **line, size_t *size, int end, FILE *f)
{
	char *old = *line;
	ssize_t n;

	if (!old && fails())
		return -1;
	n = getdelim(line, size, end, f);
	live += *line && !old;
	return n;
}

ssize_t nomem_getline(char **line, size_t *size, FILE *f)
{
	return nomem___getdelim(line, size, '\n', f);
}

static int print(char **out, const char *fmt, va_list ap)
{
	int n = fails() ? -1 : vasprintf(out, fmt, ap);

	live += n >= 0;
	return n;
}

int nomem___asprintf_chk(char **out, int flag, const char *fmt, ...)
{
	va_list ap;
	int n;

	(void)flag;
	va_start(ap, fmt);
	n = print(out, fmt, ap);
	va_end(ap);
	return n;
}

int nomem_asprintf(char **out, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = print(out, fmt, ap);
	va_end(ap);
	return n;
}

void nomem_free(void *p)
{
	live -= p != NULL;
	free(p);
}

void *nomem_mmap64(void *at, size_t len, int prot, int flags, int fd, off_t off)
{
	void *p = fails() ? MAP_FAILED : mmap(at, len, prot, flags, fd, off);

	live += p != MAP_FAILED;
	return p;
}

int nomem_munmap(void *p, size_t len)
{
	live--;
	return munmap(p, len);
}
