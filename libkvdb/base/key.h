/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The order of keys. */
#ifndef KV_KEY_H
#define KV_KEY_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The first 8 bytes as a number that orders as memcmp does, padded with 0. */
static inline uint64_t kv_head8(const uint8_t *key, size_t klen)
{
	uint64_t v = 0;

	memcpy(&v, key, klen < 8 ? klen : 8);
	return be64toh(v);
}

static inline uint32_t kv_head4(const uint8_t *key, size_t klen)
{
	uint32_t v = 0;

	memcpy(&v, key, klen < 4 ? klen : 4);
	return be32toh(v);
}

static inline int kv_kcmp(const void *a, size_t alen, const void *b, size_t blen)
{
	size_t n = alen < blen ? alen : blen;
	int c = n ? memcmp(a, b, n) : 0;	/* an empty one may be NULL */

	return c ? c : (alen > blen) - (alen < blen);
}

static inline size_t kv_klcp(const uint8_t *a, size_t alen, const uint8_t *b, size_t blen)
{
	size_t n = alen < blen ? alen : blen, i = 0;

	while (i < n && a[i] == b[i])
		i++;
	return i;
}

#endif
