/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Blocked Bloom filter of a key block: one 64-byte block per key, so a probe
 * touches one cache line. Part of the media format: which bits a hash sets can
 * never change for format 0x0100. The hash is XXH3-64 of the key with seed 0. A
 * block never crosses a page of its object.
 */
#ifndef KV_FILTER_H
#define KV_FILTER_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define KV_FILTER_BLOCK	64u	/* bytes */
#define KV_FILTER_BITS	10u	/* per key */
#define KV_FILTER_K	6u	/* bits set per key */

/* Bytes of a filter for @keys keys. */
size_t kv_filter_bytes(uint64_t keys);
/* @filter is zeroed and kv_filter_bytes() long. */
void kv_filter_add(uint8_t *filter, uint32_t blocks, uint64_t hash);

static inline const uint8_t *kv_filter_block(const uint8_t *filter, uint32_t blocks, uint64_t hash)
{
	return filter + (((hash >> 32) * blocks) >> 32) * KV_FILTER_BLOCK;
}

/* The bit positions come from the top 54 bits, which depend on all of @hash. */
static inline uint64_t kv_filter_spread(uint64_t hash)
{
	return (hash * 0x9e3779b97f4a7c15ull) >> 10;
}

/* False: the key is certainly absent. @block is kv_filter_block() of it. */
static inline bool kv_filter_block_has(const uint8_t *block, uint64_t hash)
{
	uint64_t s = kv_filter_spread(hash);
	unsigned int all = 1;

	for (unsigned int i = 0; i < KV_FILTER_K; i++, s >>= 9)
		all &= block[(s >> 3) & 63] >> (s & 7);
	return all;
}

/* Likewise. @blocks 0 says nothing. */
static inline bool kv_filter_has(const uint8_t *filter, uint32_t blocks, uint64_t hash)
{
	return !blocks || kv_filter_block_has(kv_filter_block(filter, blocks, hash), hash);
}

/* How likely kv_filter_block_has() is true of a key that is absent. */
double kv_filter_odds(const uint8_t *block);

#endif
