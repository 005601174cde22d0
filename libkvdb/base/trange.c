/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Which keys a delete of many keys covers. No state. */
#include <string.h>

#include <kvdb/kvdb.h>

#include "base/trange.h"
#include "base/assert.h"
#include "base/key.h"

bool kv_trange_has(const struct kv_trange *r, const void *key, size_t klen)
{
	KV_ASSERT_SLOW(!(r->tr_flags & KV_TR_PREFIX && r->tr_flags & KV_TR_ENDLESS));
	if (r->tr_flags & KV_TR_PREFIX)
		return klen >= r->tr_flen && !memcmp(key, r->tr_from, r->tr_flen);
	return kv_kcmp(r->tr_from, r->tr_flen, key, klen) <= 0 &&
	       (r->tr_flags & KV_TR_ENDLESS || kv_kcmp(key, klen, r->tr_to, r->tr_tlen) < 0);
}

bool kv_trange_meets(const struct kv_trange *r, const void *lo, size_t lolen, const void *hi,
		     size_t hilen)
{
	uint8_t end[KVDB_KEY_MAX];
	const uint8_t *to = r->tr_to;
	uint16_t tlen = r->tr_tlen;

	KV_ASSERT(r->tr_flen <= KVDB_KEY_MAX);
	KV_ASSERT_SLOW(!hi || kv_kcmp(lo, lolen, hi, hilen) <= 0);
	if (hi && kv_kcmp(r->tr_from, r->tr_flen, hi, hilen) >= 0)
		return false;
	if (r->tr_flags & KV_TR_PREFIX) {
		tlen = kv_prefix_end(r->tr_from, r->tr_flen, end);
		to = end;
	}
	return r->tr_flags & KV_TR_ENDLESS || !tlen || kv_kcmp(to, tlen, lo, lolen) > 0;
}

uint16_t kv_prefix_end(const uint8_t *pfx, uint16_t plen, uint8_t *to)
{
	KV_ASSERT(plen <= KVDB_KEY_MAX);
	while (plen && pfx[plen - 1] == 0xff)
		plen--;
	if (plen) {
		memcpy(to, pfx, plen);
		to[plen - 1]++;
	}
	return plen;
}

int kv_trange_cmp(const void *a, const void *b)
{
	const struct kv_trange *x = a, *y = b;
	int c = (y->tr_flags & KV_TR_PREFIX) - (x->tr_flags & KV_TR_PREFIX);

	if (!c)
		c = kv_kcmp(x->tr_from, x->tr_flen, y->tr_from, y->tr_flen);
	return c ? c : (x->tr_seq < y->tr_seq) - (x->tr_seq > y->tr_seq);
}
