/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Deletes by prefix and by range in the mix: one write of many keys, all of one
 * owner, so that its history stays one of prefixes.
 */
#include <errno.h>
#include <string.h>

#include "mk.h"

/* Behind all keys of a group: its prefix ends in a byte that can be counted up. */
static size_t group_end(const struct mk_world *wo, unsigned g, uint8_t *buf)
{
	memcpy(buf, wo->wo_key[wo->wo_group_lo[g]].ke_buf, MK_PREFIX);
	buf[MK_PREFIX - 1]++;
	return MK_PREFIX;
}

bool mk_range_pick(struct mk_worker *w, struct mk_range *ra)
{
	struct mk_world *wo = w->w_wo;
	unsigned key = mk_key_pick(w, false), g = wo->wo_key[key].ke_group, hi;
	uint64_t x = mk_rand(&w->w_rnd);

	ra->ra_lo = wo->wo_group_lo[g];
	ra->ra_hi = wo->wo_group_hi[g];
	ra->ra_end_len = 0;
	if (!(x & 1)) {
		/* from a key of the group to another, or to its end */
		ra->ra_lo += (unsigned)(x >> 8) % (ra->ra_hi - ra->ra_lo);
		ra->ra_end_len = group_end(wo, g, ra->ra_end);
		hi = ra->ra_lo + 1 + (unsigned)(x >> 32) % (ra->ra_hi - ra->ra_lo);
		if (x & 6 && hi < ra->ra_hi) {
			ra->ra_hi = hi;
			ra->ra_end_len = wo->wo_key[hi].ke_len;
			memcpy(ra->ra_end, wo->wo_key[hi].ke_buf, ra->ra_end_len);
		}
	}
	ra->ra_from = &wo->wo_key[ra->ra_lo];
	return mk_may_write(w, key);
}

void mk_do_range(struct mk_worker *w, unsigned store)
{
	struct mk_world *wo = w->w_wo;
	struct mk_range ra;
	uint32_t n;
	int rc;

	if (!mk_range_pick(w, &ra))
		return;
	n = mk_range_begin(w, store, ra.ra_lo, ra.ra_hi, MK_DEL, 0);
	rc = ra.ra_end_len ? kvdb_range_del(wo->wo_kvs[store], ra.ra_from->ke_buf,
					    ra.ra_from->ke_len, ra.ra_end, ra.ra_end_len) :
			     kvdb_prefix_del(wo->wo_kvs[store], ra.ra_from->ke_buf, MK_PREFIX);
	mk_write_end(w, n, 1, rc);
	if (rc && rc != -ECANCELED)
		mk_fail(wo, "thread %u, operation %llu: a delete of keys %u to %u: %d (%s)",
			w->w_no, (unsigned long long)w->w_done, ra.ra_lo, ra.ra_hi, rc,
			kvdb_error_detail()->text);
	w->w_count[MC_RANGE]++;
}
