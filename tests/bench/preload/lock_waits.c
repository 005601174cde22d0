/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Waits for mutexes by caller, of any program: preloaded, it stands before
 * pthread_mutex_lock(). A lock that is free costs a trylock more and nothing is
 * counted; a thread that finds it taken measures how long. At the end one line for each
 * caller goes to the file named by LOCK_WAITS: address in its object, waits,
 * nanoseconds, the object's path.
 *
 * The table only grows; a slot is claimed by compare-and-swap of its address.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SLOTS 4096u

static struct caller {
	_Atomic(uintptr_t) at; /* 0: free */
	_Atomic(uint64_t) waits, ns;
} caller[SLOTS];

static int (*real_lock)(pthread_mutex_t *m);

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void count(uintptr_t at, uint64_t ns)
{
	unsigned slot = (unsigned)(at * 0x9e3779b97f4a7c15ull >> 52);

	for (unsigned i = 0; i < SLOTS; i++, slot = (slot + 1) % SLOTS) {
		uintptr_t free_slot = 0;

		if (atomic_load(&caller[slot].at) != at &&
		    !atomic_compare_exchange_strong(&caller[slot].at, &free_slot, at) &&
		    free_slot != at)
			continue;
		atomic_fetch_add_explicit(&caller[slot].waits, 1, memory_order_relaxed);
		atomic_fetch_add_explicit(&caller[slot].ns, ns, memory_order_relaxed);
		return;
	}
}

__attribute__((constructor)) static void find(void)
{
	real_lock = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_lock");
}

__attribute__((visibility("default"))) int pthread_mutex_lock(pthread_mutex_t *m)
{
	uint64_t begun;
	int rc = pthread_mutex_trylock(m);

	if (rc != EBUSY)
		return rc;
	if (!real_lock) /* a constructor that runs before ours */
		find();
	begun = now_ns();
	rc = real_lock(m);
	count((uintptr_t)__builtin_return_address(0), now_ns() - begun);
	return rc;
}

__attribute__((destructor)) static void report(void)
{
	const char *path = getenv("LOCK_WAITS");
	FILE *f = path ? fopen(path, "we") : NULL;

	for (unsigned i = 0; f && i < SLOTS; i++) {
		uintptr_t at = atomic_load(&caller[i].at);
		Dl_info in;

		if (at && dladdr((void *)at, &in))
			fprintf(f, "%#lx %llu %llu %s\n",
				(unsigned long)(at - 1 - (uintptr_t)in.dli_fbase),
				(unsigned long long)atomic_load(&caller[i].waits),
				(unsigned long long)atomic_load(&caller[i].ns), in.dli_fname);
	}
	if (f)
		fclose(f);
}
