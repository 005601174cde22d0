/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A sweep: what a merge will meet in key order is noted ahead of it, copied in
 * the order in which it lies, and found again by the merge in the order of the
 * notes. Values of one key range lie all over the media: in key order each
 * image of a segment meets every block of every victim again, here each block
 * is read once in a round. The price is a second pass over the keys and that
 * values stay in the order in which they came.
 *
 * A note is not the entry: both are compared (G12) before the entry gets the
 * note's place, and the record that is copied says itself whose value it is.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include <kvdb/kvdb.h>

#include "compact/sweep.h"
#include "base/assert.h"
#include "base/guard.h"
#include "seg/kv_omf.h"
#include "seg/seg.h"
#include "seg/value.h"

#define PER_NOTE	(sizeof(struct kv_note) + sizeof(uint32_t))

/* Memory of a round is touched as notes come: most rounds are small. */
struct kv_sweep *kv_sweep_new(uint64_t bytes)
{
	uint64_t n = bytes / PER_NOTE;
	struct kv_sweep *sw = calloc(1, sizeof(*sw));
	void *p;

	if (!sw)
		return NULL;
	sw->sw_cap = n < 64 ? 64 : n < UINT32_MAX / 2 ? (uint32_t)n : UINT32_MAX / 2;
	p = mmap(NULL, kv_sweep_bytes(sw), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		 0);
	if (p == MAP_FAILED) {
		free(sw);
		return NULL;
	}
	sw->sw_note = p;
	sw->sw_order = (uint32_t *)(sw->sw_note + sw->sw_cap);
	return sw;
}

void kv_sweep_free(struct kv_sweep *sw)
{
	if (!sw)
		return;
	munmap(sw->sw_note, kv_sweep_bytes(sw));
	free(sw);
}

uint64_t kv_sweep_bytes(const struct kv_sweep *sw)
{
	return sw->sw_cap * PER_NOTE;
}

bool kv_sweep_is_full(const struct kv_sweep *sw)
{
	return sw->sw_n == sw->sw_cap;
}

void kv_sweep_clear(struct kv_sweep *sw)
{
	sw->sw_n = sw->sw_taken = 0;
}

void kv_sweep_add(struct kv_sweep *sw, const struct kv_ent *e)
{
	KV_ASSERT(sw->sw_n < sw->sw_cap && !sw->sw_taken && e->e_kind == KV_ENT_REF);
	sw->sw_note[sw->sw_n++] = (struct kv_note){
		.no_seg = e->e_seg, .no_seq = e->e_seq,
		.no_off8 = e->e_off8, .no_vlen = e->e_vlen, .no_vcrc = e->e_vcrc,
		.no_kcrc = mpool_crc32c(0, e->e_key, e->e_klen), .no_klen = e->e_klen,
		.no_expires = e->e_expiry != 0,
	};
}

static int by_media(const void *a, const void *b, void *arg)
{
	const struct kv_note *note = arg, *x = note + *(const uint32_t *)a,
			     *y = note + *(const uint32_t *)b;

	if (x->no_seg != y->no_seg)
		return x->no_seg->sg_id < y->no_seg->sg_id ? -1 : 1;
	return x->no_off8 < y->no_off8 ? -1 : x->no_off8 > y->no_off8;
}

void kv_sweep_sort(struct kv_sweep *sw)
{
	KV_ASSERT(!sw->sw_taken);
	for (uint32_t i = 0; i < sw->sw_n; i++)
		sw->sw_order[i] = i;
	qsort_r(sw->sw_order, sw->sw_n, sizeof(sw->sw_order[0]), by_media, sw->sw_note);
}

bool kv_note_is_of(const struct kv_note *no, const uint8_t *rec, uint32_t off, uint32_t room,
		   uint64_t *expiry)
{
	struct kv_rec r;

	if (kv_rec_decode(rec, no->no_seg->sg_id, off, room, true, &r) ||
	    !CHECK(r.r_type == KV_REC_PUT && !r.r_pack && r.r_vlen == no->no_vlen &&
		   r.r_vcrc == no->no_vcrc && r.r_klen == no->no_klen &&
		   mpool_crc32c(0, r.r_key, r.r_klen) == no->no_kcrc))
		return false;
	*expiry = r.r_expiry;
	/* what a transaction put says it elsewhere */
	return no->no_expires == (r.r_expiry != 0);
}

static bool is_noted(const struct kv_note *no, const struct kv_ent *e)
{
	return CHECK(e->e_seq == no->no_seq && e->e_vlen == no->no_vlen &&
		     e->e_vcrc == no->no_vcrc && e->e_klen == no->no_klen &&
		     mpool_crc32c(0, e->e_key, e->e_klen) == no->no_kcrc);
}

bool kv_sweep_take(struct kv_sweep *sw, struct kv_ent *e)
{
	const struct kv_note *no = &sw->sw_note[sw->sw_taken];

	KV_ASSERT(sw->sw_taken <= sw->sw_n);
	/* what was not noted moves as if there were no sweep */
	if (sw->sw_taken == sw->sw_n || !is_noted(no, e))
		return false;
	sw->sw_taken++;
	if (!no->no_is_moved)
		return false;
	e->e_seg = no->no_seg;
	e->e_off8 = no->no_off8;
	return true;
}
