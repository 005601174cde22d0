/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Waits of the calling thread. The counters are the thread's own: no other reads them, so they
 * cost two looks at the clock for each wait and nothing else.
 */
#include <string.h>
#include <time.h>

#include <kvdb/kvdb.h>

#include "base/assert.h"
#include "db/waits.h"

static __thread struct kvdb_delays waits[KVDB_WAITS];
static __thread unsigned depth;

static uint64_t clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void kv_waited(unsigned cause, uint64_t ns)
{
	struct kvdb_delays *d = &waits[cause];

	KV_ASSERT(cause < KVDB_WAITS);
	if (depth)
		return;
	d->waits++;
	d->ns += ns;
	if (ns > d->max_ns)
		d->max_ns = ns;
}

uint64_t kv_wait_begin(void)
{
	return depth++ ? 0 : clock_ns();
}

void kv_wait_end(unsigned cause, uint64_t began_ns)
{
	KV_ASSERT(depth);
	if (!--depth)
		kv_waited(cause, clock_ns() - began_ns);
}

void kvdb_waits(struct kvdb_delays out[KVDB_WAITS])
{
	memcpy(out, waits, sizeof(waits));
}
