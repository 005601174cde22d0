/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* A database's clock that a test moves; each look at it may move it, too. */
#ifndef TESTS_KV_CLOCK_H
#define TESTS_KV_CLOCK_H

#include <kvdb/kvdb.h>

static uint64_t now_ns = 1000000000u;
static uint64_t look_ns;	/* what a look takes */

static uint64_t clock_now(void *arg)
{
	(void)arg;
	return __atomic_add_fetch(&now_ns, look_ns, __ATOMIC_RELAXED);
}

static void clock_sleep(void *arg, uint64_t t)
{
	(void)arg;
	if (t > now_ns)
		__atomic_store_n(&now_ns, t, __ATOMIC_RELAXED);
}

static const struct kvdb_clock test_clock = { clock_now, clock_sleep, NULL, NULL };

#endif
