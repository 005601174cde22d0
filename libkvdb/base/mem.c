/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Memory that must come: when the media say something already, there is no way
 * back, and stopping the database would give up what was acknowledged. Whoever
 * may still refuse asks the C library instead. For a database that has stopped
 * nobody waits: it gives up no more, and its close joins who waits.
 * And ranges of addresses for slabs.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "db/kv.h"

void kv_nap(void)
{
	struct timespec ts = { .tv_nsec = 1000000 };

	nanosleep(&ts, NULL);
}

int kv_nap_for(struct kvdb *db)
{
	int err = kv_fault(db);

	if (!err)
		kv_nap();
	return err;
}

void *kv_realloc_wait(struct kvdb *db, void *p, size_t size)
{
	void *q;

	while (!(q = realloc(p, size)) && !kv_nap_for(db))
		;
	return q;
}

uint8_t *kv_range_map(struct kv_range *ra, size_t bytes)
{
	ra->ra_bytes = bytes + KV_HUGE_PAGE;
	ra->ra_map = mmap(NULL, ra->ra_bytes, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (ra->ra_map == MAP_FAILED)
		return NULL;
	return (uint8_t *)(((uintptr_t)ra->ra_map + KV_HUGE_PAGE - 1) &
			   ~(uintptr_t)(KV_HUGE_PAGE - 1));
}

void kv_range_unmap(struct kv_range *ra)
{
	munmap(ra->ra_map, ra->ra_bytes);
}
