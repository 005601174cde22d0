/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The hash of keys. Memtables, the tags of key pages and the filters of runs
 * use the same number, computed once per operation. Filters and tags are on
 * media: the function (XXH3, 64 bits, seed 0) can never change for format
 * 0x0100.
 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/hash.h"

uint64_t kv_hash(const void *key, size_t klen)
{
	return XXH3_64bits(key, klen);
}
