/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Ranges of addresses for slabs. */
#include <sys/mman.h>

#include "base/range.h"

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
