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

	if (klen >= 8) {
		memcpy(&v, key, 8);	/* one instruction */
		return be64toh(v);
	}
	for (size_t i = 0; i < klen; i++)
		v |= (uint64_t)key[i] << (56 - 8 * i);
	return v;
}

static inline uint32_t kv_head_is_below(const char *at, uint64_t head)
{
	return *(const uint64_t *)at < head;
}

/*
 * How many of @n heads, which ascend and are @stride bytes apart, are below @head. In each round
 * it waits once, for the lines of seven that may be far from each other.
 */
static inline uint32_t kv_heads_below(const void *heads, size_t stride, uint32_t n, uint64_t head)
{
	const char *at = heads;
	uint32_t below = 0, c, step;
	size_t far;

	for (; n > 7; n = c < 7 ? step - 1 : n - 7 * step) {
		step = n / 8;
		far = step * stride;
		at += far - stride;
		c = kv_head_is_below(at, head) + kv_head_is_below(at + far, head) +
		    kv_head_is_below(at + 2 * far, head) + kv_head_is_below(at + 3 * far, head) +
		    kv_head_is_below(at + 4 * far, head) + kv_head_is_below(at + 5 * far, head) +
		    kv_head_is_below(at + 6 * far, head);
		at += (ptrdiff_t)(c * far) - (ptrdiff_t)(far - stride);
		below += c * step;
	}
	for (; n && kv_head_is_below(at, head); n--, at += stride)
		below++;
	return below;
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
