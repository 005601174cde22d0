/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Ranges of keys that a delete of many keys covers. */
#ifndef KV_TRANGE_H
#define KV_TRANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KV_TR_PREFIX	0x1u	/* the keys that begin with tr_from; no tr_to */
#define KV_TR_ENDLESS	0x2u	/* up to the greatest key; no tr_to */

/* The keys in [tr_from, tr_to), or with a prefix. tr_flen 0 = from the smallest key on. */
struct kv_trange {
	const uint8_t *tr_from, *tr_to;
	uint16_t tr_flen, tr_tlen;
	uint8_t tr_flags;	/* KV_TR_* */
	uint64_t tr_seq;	/* hides versions with stamps <= it from views >= it */
};

bool kv_trange_has(const struct kv_trange *r, const void *key, size_t klen);
/* Does it cover keys in [lo, hi)? @hi NULL: no end. */
bool kv_trange_meets(const struct kv_trange *r, const void *lo, size_t lolen, const void *hi,
		     size_t hilen);
/*
 * Smallest string after every string with the prefix, in @to (as long as the
 * prefix); 0 = there is none.
 */
uint16_t kv_prefix_end(const uint8_t *pfx, uint16_t plen, uint8_t *to);
/* Orders by kind (prefixes first), start, then newest first. */
int kv_trange_cmp(const void *a, const void *b);

#endif
