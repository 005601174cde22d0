/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Fences of a key block: a separator in front of each page but the first, and the CRCs that the
 * block holds of its pages. Whole in memory, or read a page at a time. Format: run_omf.h.
 */
#ifndef KV_RUN_FENCE_H
#define KV_RUN_FENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/le.h"

struct kv_kblock;
struct kv_kfoot;
struct kvdb;

/* Where they lie, as on media. */
struct kv_fences {
	const uint8_t *fe_ends;		/* le32[npages]: end of each separator */
	const uint8_t *fe_seps;		/* separator i <= all keys of page i; 0 is empty */
	const uint8_t *fe_crcs;		/* le32[npages] */
};

static inline const uint8_t *kv_fence_sep(const struct kv_fences *fe, uint32_t i, size_t *len)
{
	uint32_t from = i ? kv_le32(fe->fe_ends + 4 * (i - 1)) : 0;

	*len = kv_le32(fe->fe_ends + 4 * i) - from;
	return fe->fe_seps + from;
}

/*
 * The top level, which stays: the first separator that begins on each page of separators, and the
 * last one of all.
 */
struct kv_fence_top {
	uint64_t ft_head;	/* of the separator, after the prefix of all */
	uint32_t ft_no;
};

/* Of those at @index, what lies between key pages and footer. */
struct kv_fences kv_fences_at(const struct kv_kfoot *f, const uint8_t *index);
/* Separators lie inside their area, the first is empty, the rest ascend. */
int kv_fences_check(const struct kv_kblock *kb, const struct kv_fences *fe);
/* Sets kb_prefix, kb_plen, kb_top and kb_ntop; 0, or -ENOMEM. kb_fence_off is known. */
int kv_fences_top(struct kv_kblock *kb, const struct kv_fences *fe);

/*
 * Bytes of fences in memory: heads of the separators, after the prefix, as uint64_t[npages], [0]
 * unused; then ends, CRCs and separators.
 */
uint64_t kv_fences_bytes(const struct kv_kblock *kb);
/* Fills them, */
void kv_fences_lay(const struct kv_kblock *kb, const struct kv_fences *fe, uint8_t *mem);
/* and says where each lies in them. */
struct kv_fences kv_fences_in(const struct kv_kblock *kb, const uint8_t *mem);

/*
 * kv_fences_far - the page that holds the key if any does, of a loaded block whose fences are not
 * in memory. Inside kv_enter(). May read: or -EINPROGRESS (cache/load.h), -EIO, -EUCLEAN.
 */
int64_t kv_fences_far(struct kvdb *db, const struct kv_kblock *kb, const uint8_t *key, size_t klen);
/* About which page, by what is in memory alone; it never falls while keys ascend. */
uint32_t kv_fences_about(const struct kv_kblock *kb, const uint8_t *key, size_t klen);
/* CRCs of @n pages of a loaded block; may read: 0, or as kv_fences_far(). */
int kv_fences_crcs(struct kvdb *db, const struct kv_kblock *kb, uint32_t first, unsigned n,
		   uint32_t *crc);
/*
 * A page of the object behind the key pages, from the page pool, which compares its CRC with the
 * one that the block keeps of it. 0, or as kv_fences_far(); *page is good until kv_exit().
 */
int kv_index_page(struct kvdb *db, const struct kv_kblock *kb, uint64_t no, const uint8_t **page);

#endif
