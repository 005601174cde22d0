/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Building of filters. 10 bits a key in 512-bit blocks with 6 bits set give
 * about 1.2 % false positives; key pages are usually in memory, so one costs a
 * quarter of a microsecond and more bits would not pay.
 */
#include "run/filter.h"
#include "base/assert.h"

size_t kv_filter_bytes(uint64_t keys)
{
	uint64_t bits = keys * KV_FILTER_BITS;

	return (bits + KV_FILTER_BLOCK * 8 - 1) / (KV_FILTER_BLOCK * 8) * KV_FILTER_BLOCK;
}

void kv_filter_add(uint8_t *filter, uint32_t blocks, uint64_t hash)
{
	uint8_t *b = (uint8_t *)kv_filter_block(filter, blocks, hash);
	uint64_t s = kv_filter_spread(hash);

	KV_ASSERT_SLOW(blocks && b + KV_FILTER_BLOCK <= filter + (size_t)blocks * KV_FILTER_BLOCK);
	for (unsigned int i = 0; i < KV_FILTER_K; i++, s >>= 9)
		b[(s >> 3) & 63] |= (uint8_t)(1u << (s & 7));
}

double kv_filter_odds(const uint8_t *block)
{
	double set = 0, odds = 1;
	uint64_t bits;

	for (unsigned int i = 0; i < KV_FILTER_BLOCK; i += sizeof(bits)) {
		memcpy(&bits, block + i, sizeof(bits));
		set += __builtin_popcountll(bits);
	}
	for (unsigned int i = 0; i < KV_FILTER_K; i++)
		odds *= set / (KV_FILTER_BLOCK * 8);
	return odds;
}
