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

void mk_do_range(struct mk_worker *w, unsigned store)
{
	struct mk_world *wo = w->w_wo;
	unsigned key = mk_key_pick(w, false), g = wo->wo_key[key].ke_group, lo, hi;
	const struct mk_key *from = &wo->wo_key[wo->wo_group_lo[g]];
	uint64_t x = mk_rand(&w->w_rnd);
	uint8_t end[KVDB_KEY_MAX];
	uint32_t n;
	size_t elen;
	int rc;

	if (!mk_may_write(w, key))
		return;
	lo = wo->wo_group_lo[g];
	hi = wo->wo_group_hi[g];
	if (x & 1) {
		n = mk_range_begin(w, store, lo, hi);
		rc = kvdb_prefix_del(wo->wo_kvs[store], from->ke_buf, MK_PREFIX);
	} else {
		/* from a key of the group to another, or to its end */
		lo += (unsigned)(x >> 8) % (hi - lo);
		from = &wo->wo_key[lo];
		elen = group_end(wo, g, end);
		if (x & 6) {
			hi = lo + 1 + (unsigned)(x >> 32) % (hi - lo);
			if (hi < wo->wo_group_hi[g]) {
				elen = wo->wo_key[hi].ke_len;
				memcpy(end, wo->wo_key[hi].ke_buf, elen);
			}
		}
		n = mk_range_begin(w, store, lo, hi);
		rc = kvdb_range_del(wo->wo_kvs[store], from->ke_buf, from->ke_len, end, elen);
	}
	mk_write_end(w, n, 1, rc);
	if (rc && rc != -ECANCELED)
		mk_fail(wo, "thread %u, operation %llu: a delete of keys %u to %u: %d (%s)",
			w->w_no, (unsigned long long)w->w_done, lo, hi, rc,
			kvdb_error_detail()->text);
	w->w_count[MC_RANGE]++;
}
