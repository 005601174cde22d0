/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Fences of key blocks. While they are in memory a lookup finds its page with one binary search
 * over the heads of separators (run_read.c). Those that are not are searched on their pages, which
 * the page pool has like any other: the top level says on which page of separators the key's is,
 * and 4096 bytes of them are the fences of hundreds of key pages. So a lookup asks the pool for
 * that page, for the one that has the ends of its separators, and, where the key page is to be
 * read, for the one that has its CRC.
 *
 * All areas were checked when the block was loaded, or were made here. The CRCs of the pages that
 * they lie on, a thousandth of them, are kept from then, so what the pool has are the bytes that
 * were checked.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/guard.h"
#include "base/key.h"
#include "db/db.h"
#include "cache/pages.h"
#include "run/run.h"
#include "run/run_fence.h"
#include "run/run_omf.h"

struct kv_fences kv_fences_at(const struct kv_kfoot *f, const uint8_t *index)
{
	uint64_t base = (uint64_t)f->kf_npages * KV_PAGE;
	const uint8_t *ends = index + (f->kf_area[KV_AREA_FENCE].ar_off - base);

	return (struct kv_fences){
		.fe_ends = ends, .fe_seps = ends + 4ull * f->kf_npages,
		.fe_crcs = index + (f->kf_area[KV_AREA_PAGECRC].ar_off - base),
	};
}

int kv_fences_check(const struct kv_kblock *kb, const struct kv_fences *fe)
{
	const uint8_t *prev = NULL, *sep;
	size_t prev_len = 0, len;
	uint32_t end, last = 0;

	for (uint32_t i = 0; i < kb->kb_npages; i++) {
		end = kv_le32(fe->fe_ends + 4 * i);
		if (!CHECK(end >= last && end <= kb->kb_sep_len && end - last <= KVDB_KEY_MAX &&
			   !!i == (end != last)))
			return kv_run_damaged(kb->kb_id, kb->kb_fence_off + 4ull * i,
					      "fence length");
		sep = kv_fence_sep(fe, i, &len);
		if (i > 1 && !CHECK(kv_kcmp(prev, prev_len, sep, len) < 0))
			return kv_run_damaged(kb->kb_id, kb->kb_fence_off + 4ull * i,
					      "fence order");
		prev = sep;
		prev_len = len;
		last = end;
	}
	return 0;
}

/* Where the bytes of separators begin in the object. */
static uint64_t seps_off(const struct kv_kblock *kb)
{
	return kb->kb_fence_off + 4ull * kb->kb_npages;
}

static uint64_t sep_head(const struct kv_kblock *kb, const struct kv_fences *fe, uint32_t i)
{
	size_t len;
	const uint8_t *sep = kv_fence_sep(fe, i, &len);

	return kv_head8(sep + kb->kb_plen, len - kb->kb_plen);
}

static int prefix_set(struct kv_kblock *kb, const struct kv_fences *fe)
{
	const uint8_t *a, *b;
	size_t alen, blen;

	kb->kb_plen = 0;
	if (kb->kb_npages < 2)
		return 0;
	a = kv_fence_sep(fe, 1, &alen);
	b = kv_fence_sep(fe, kb->kb_npages - 1, &blen);
	kb->kb_plen = (uint32_t)kv_klcp(a, alen, b, blen);
	kb->kb_prefix = malloc(kb->kb_plen + 1u);
	if (!kb->kb_prefix)
		return -ENOMEM;
	memcpy(kb->kb_prefix, a, kb->kb_plen);
	return 0;
}

int kv_fences_top(struct kv_kblock *kb, const struct kv_fences *fe)
{
	uint64_t from = seps_off(kb), first = from / KV_PAGE, page, at = UINT64_MAX;
	uint64_t n = (from + kb->kb_sep_len) / KV_PAGE - first + 2;
	int rc = prefix_set(kb, fe);

	if (rc || kb->kb_npages < 2)
		return rc;
	kb->kb_top = malloc(n * sizeof(*kb->kb_top));
	if (!kb->kb_top)
		return -ENOMEM;
	for (uint32_t i = 1; i < kb->kb_npages; i++) {
		page = (from + kv_le32(fe->fe_ends + 4 * (i - 1))) / KV_PAGE;
		if (page == at)
			continue;
		at = page;
		kb->kb_top[kb->kb_ntop++] = (struct kv_fence_top){ sep_head(kb, fe, i), i };
	}
	page = kb->kb_npages - 1;
	kb->kb_top[kb->kb_ntop] = (struct kv_fence_top){ sep_head(kb, fe, (uint32_t)page),
							 (uint32_t)page };
	return 0;
}

/* ---- in memory ----------------------------------------------------------------------- */

uint64_t kv_fences_bytes(const struct kv_kblock *kb)
{
	return kb->kb_npages * (sizeof(uint64_t) + 4 + 4) + kb->kb_sep_len;
}

struct kv_fences kv_fences_in(const struct kv_kblock *kb, const uint8_t *mem)
{
	const uint8_t *ends = mem + kb->kb_npages * sizeof(uint64_t);

	return (struct kv_fences){ .fe_ends = ends, .fe_crcs = ends + 4ull * kb->kb_npages,
				   .fe_seps = ends + 8ull * kb->kb_npages };
}

void kv_fences_lay(const struct kv_kblock *kb, const struct kv_fences *fe, uint8_t *mem)
{
	uint64_t *heads = (uint64_t *)mem;
	uint8_t *ends = mem + kb->kb_npages * sizeof(*heads);
	size_t bytes = 4ull * kb->kb_npages;

	for (uint32_t i = 0; i < kb->kb_npages; i++)
		heads[i] = i ? sep_head(kb, fe, i) : 0;
	memcpy(ends, fe->fe_ends, bytes);
	memcpy(ends + bytes, fe->fe_crcs, bytes);
	memcpy(ends + 2 * bytes, fe->fe_seps, kb->kb_sep_len);
}

/* ---- on pages -------------------------------------------------------------------------- */

int kv_index_page(struct kvdb *db, const struct kv_kblock *kb, uint64_t no, const uint8_t **page)
{
	const uint32_t *crcs = atomic_load_explicit(&kb->kb_page_crcs, memory_order_acquire);

	KV_ASSERT(crcs);
	*page = kv_page_hit(db, kb->kb_id, no);
	if (*page)
		return 0;
	return kv_pages_get(db, kb->kb_obj, no, 1, &crcs[no - kb->kb_npages], page);
}

/* A search looks at the same page of ends, and of separators, again and again. */
struct far {
	struct kvdb *fa_db;
	const struct kv_kblock *fa_kb;
	struct {
		uint64_t no;
		const uint8_t *bytes;
	} fa_page[2];
	uint8_t fa_sep[KVDB_KEY_MAX];	/* one that lies on two pages */
};

enum { FAR_ENDS, FAR_SEPS };

/* *p: the byte of the object at @off. */
static int far_byte(struct far *fa, int what, uint64_t off, const uint8_t **p)
{
	uint64_t no = off / KV_PAGE;
	int rc = 0;

	if (!fa->fa_page[what].bytes || fa->fa_page[what].no != no) {
		rc = kv_index_page(fa->fa_db, fa->fa_kb, no, &fa->fa_page[what].bytes);
		fa->fa_page[what].no = no;
		if (rc)
			fa->fa_page[what].bytes = NULL;
	}
	*p = rc ? NULL : fa->fa_page[what].bytes + off % KV_PAGE;
	return rc;
}

static int far_end(struct far *fa, uint32_t i, uint32_t *end)
{
	const uint8_t *p;
	int rc = far_byte(fa, FAR_ENDS, fa->fa_kb->kb_fence_off + 4ull * i, &p);

	if (!rc)
		*end = kv_le32(p);
	return rc;
}

/* Separator @i > 0, good until the next one. */
static int far_sep(struct far *fa, uint32_t i, const uint8_t **sep, size_t *len)
{
	const struct kv_kblock *kb = fa->fa_kb;
	uint32_t from = 0, to = 0, room;
	const uint8_t *p = NULL;
	uint64_t off;
	int rc = far_end(fa, i - 1, &from);

	if (!rc)
		rc = far_end(fa, i, &to);
	if (rc)
		return rc;
	if (!CHECK(from <= to && to <= kb->kb_sep_len && to - from <= KVDB_KEY_MAX))
		return kv_run_damaged(kb->kb_id, kb->kb_fence_off + 4ull * i, "fence length");
	*len = to - from;
	off = seps_off(kb) + from;
	room = KV_PAGE - (uint32_t)(off % KV_PAGE);
	rc = far_byte(fa, FAR_SEPS, off, &p);
	*sep = p;
	if (rc || *len <= room)
		return rc;
	memcpy(fa->fa_sep, p, room);
	rc = far_byte(fa, FAR_SEPS, off + room, &p);
	if (!rc)
		memcpy(fa->fa_sep + room, p, *len - room);
	*sep = fa->fa_sep;
	return rc;
}

/* How many of the top level's separators have heads below @h, or not above it when @upto. */
static uint32_t top_below(const struct kv_kblock *kb, uint64_t h, bool upto)
{
	uint32_t lo = 0, hi = kb->kb_ntop;

	while (lo < hi) {
		uint32_t mid = (lo + hi) / 2;

		if (upto ? kb->kb_top[mid].ft_head <= h : kb->kb_top[mid].ft_head < h)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* -1: the key is smaller than all with the prefix of the separators, 1: greater, 0: neither. */
static int prefix_cmp(const struct kv_kblock *kb, const uint8_t *key, size_t klen)
{
	size_t m = klen < kb->kb_plen ? klen : kb->kb_plen;
	int c = memcmp(key, kb->kb_prefix, m);

	return c ? c : klen < kb->kb_plen ? -1 : 0;
}

int64_t kv_fences_far(struct kvdb *db, const struct kv_kblock *kb, const uint8_t *key, size_t klen)
{
	struct far fa = { .fa_page = { { .no = 0 } } };
	uint32_t np = kb->kb_npages, lo, hi, mid, k;
	const uint8_t *sep = NULL;
	uint64_t h;
	size_t len = 0;
	int rc, c = np == 1 ? -1 : prefix_cmp(kb, key, klen);

	if (c)
		return c > 0 ? np - 1 : 0;
	fa.fa_db = db;
	fa.fa_kb = kb;
	h = kv_head8(key + kb->kb_plen, klen - kb->kb_plen);
	k = top_below(kb, h, false);
	lo = k ? kb->kb_top[k - 1].ft_no + 1 : 1;
	k = top_below(kb, h, true);
	hi = k < kb->kb_ntop ? kb->kb_top[k].ft_no : np;
	while (lo < hi) {
		mid = (lo + hi) / 2;
		rc = far_sep(&fa, mid, &sep, &len);
		if (rc)
			return rc;
		if (kv_kcmp(sep, len, key, klen) <= 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo - 1;
}

/* As if all keys of the block were spread evenly between its first and its last. */
static uint32_t about_between(const struct kv_kblock *kb, const uint8_t *key, size_t klen)
{
	size_t plen = kv_klcp(kb->kb_min, kb->kb_min_klen, kb->kb_max, kb->kb_max_klen);
	uint64_t from, to, h;

	if (kv_kcmp(key, klen, kb->kb_min, kb->kb_min_klen) <= 0)
		return 0;
	if (kv_kcmp(key, klen, kb->kb_max, kb->kb_max_klen) >= 0)
		return kb->kb_npages - 1;
	/* so it has their prefix */
	from = kv_head8(kb->kb_min + plen, kb->kb_min_klen - plen);
	to = kv_head8(kb->kb_max + plen, kb->kb_max_klen - plen);
	h = kv_head8(key + plen, klen - plen);
	if (to <= from)
		return 0;
	return (uint32_t)((double)(h - from) / ((double)(to - from) + 1) * kb->kb_npages);
}

uint32_t kv_fences_about(const struct kv_kblock *kb, const uint8_t *key, size_t klen)
{
	const struct kv_fence_top *a, *b;
	uint64_t h;
	uint32_t k;
	int c;

	if (kb->kb_npages == 1)
		return 0;
	if (!atomic_load_explicit(&kb->kb_page_crcs, memory_order_acquire))
		return about_between(kb, key, klen);
	c = prefix_cmp(kb, key, klen);
	if (c)
		return c < 0 ? 0 : kb->kb_npages - 1;
	h = kv_head8(key + kb->kb_plen, klen - kb->kb_plen);
	k = top_below(kb, h, true);
	if (!k)
		return 0;
	/* as if the heads between two of the top level were spread evenly */
	a = &kb->kb_top[k - 1];
	b = &kb->kb_top[k];
	if (h >= b->ft_head)
		return b->ft_no;
	return a->ft_no + (uint32_t)((double)(h - a->ft_head) /
				     (double)(b->ft_head - a->ft_head) * (b->ft_no - a->ft_no));
}

int kv_fences_crcs(struct kvdb *db, const struct kv_kblock *kb, uint32_t first, unsigned n,
		   uint32_t *crc)
{
	const uint8_t *mem = atomic_load_explicit(&kb->kb_fences, memory_order_acquire);
	const uint8_t *page = NULL;
	struct kv_fences fe;
	int rc;

	if (mem) {
		fe = kv_fences_in(kb, mem);
		for (unsigned i = 0; i < n; i++)
			crc[i] = kv_le32(fe.fe_crcs + 4ull * (first + i));
		return 0;
	}
	for (unsigned i = 0; i < n; i++) {
		uint64_t off = kb->kb_crc_off + 4ull * (first + i);

		rc = i && off % KV_PAGE ? 0 : kv_index_page(db, kb, off / KV_PAGE, &page);
		if (rc)
			return rc;
		crc[i] = kv_le32(page + off % KV_PAGE);
	}
	return 0;
}
