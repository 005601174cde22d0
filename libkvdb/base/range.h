/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Ranges of addresses, for slabs. */
#ifndef KV_RANGE_H
#define KV_RANGE_H

#include <stddef.h>
#include <stdint.h>

#define KV_HUGE_PAGE	(2u << 20)

/* To begin with without memory; from the beginning of a huge page on. */
struct kv_range {
	void *ra_map;
	size_t ra_bytes;
};
uint8_t *kv_range_map(struct kv_range *ra, size_t bytes);	/* NULL: no memory */
void kv_range_unmap(struct kv_range *ra);

#endif
