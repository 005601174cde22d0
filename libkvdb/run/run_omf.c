/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Encoders and decoders of runs. A page whose CRC is right may still come from
 * a hostile image, so every length and offset in it is checked before use; the
 * checks cost a few compares per lookup because only the header and the entry
 * that is asked for are looked at. Stateless, no locks, no allocation except
 * the page builder's byte buffer.
 */
#include <errno.h>
#include <stdlib.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "run/run_omf.h"
#include "base/error.h"
#include "base/assert.h"
#include "base/guard.h"
#include "base/key.h"
#include "base/le.h"
#include "base/macros.h"
#include "base/trange.h"
#include "seg/kv_omf.h"
#include "seg/value.h"

/* entry byte: low bits are the kind, the others announce what later formats may add */
#define ENT_KIND_MASK	0x07u
#define ENT_PACKED	0x10u
#define ENT_EXPIRY	0x20u

/* footer offsets */
#define FT_MAGIC	0
#define FT_FORMAT	4
#define FT_FLAGS	6
#define FT_TAG		8
#define FT_OBJ		16
#define FT_KVS		24
#define FT_NPAGES	28
#define FT_NKEYS	32
#define FT_NTOMBS	40
#define FT_MIN_SEQ	48
#define FT_MAX_SEQ	56
#define FT_LIVE		64
#define FT_MIN_KLEN	72
#define FT_MAX_KLEN	74
#define FT_ZERO		76
#define FT_AREAS	80
#define FT_AREA_SIZE	16
#define FT_KEYS		(FT_AREAS + KV_AREAS * FT_AREA_SIZE)
#define FT_EXPIRY	(FT_KEYS + 2 * KVDB_KEY_MAX)	/* number, smallest, greatest */
#define FT_CRC		(KV_PAGE - 4)

_Static_assert(FT_EXPIRY + 24 <= FT_CRC, "footer holds both keys");
_Static_assert(KV_KPAGE_HDR + 2 * (7 + KVDB_KEY_MAX + KV_INLINE_MAX + 34) <= KV_PAGE,
	       "two of the largest entries fit in a page");

int kv_run_damaged(uint64_t obj, uint64_t off, const char *check)
{
	return kv_error(-EUCLEAN, "MP0960", "key block %llu, offset %llu: %s",
			(unsigned long long)obj, (unsigned long long)off, check);
}

uint32_t kv_kfoot_encode(const struct kv_kfoot *f, uint8_t *page)
{
	uint32_t crc;

	KV_ASSERT(f->kf_min_klen <= KVDB_KEY_MAX && f->kf_max_klen <= KVDB_KEY_MAX);
	memset(page, 0, KV_PAGE);
	kv_le32_set(page + FT_MAGIC, KV_KBLOCK_MAGIC);
	kv_le16_set(page + FT_FORMAT, KV_RUN_FORMAT);
	kv_le64_set(page + FT_TAG, f->kf_tag);
	kv_le64_set(page + FT_OBJ, f->kf_obj);
	kv_le32_set(page + FT_KVS, f->kf_kvs);
	kv_le32_set(page + FT_NPAGES, f->kf_npages);
	kv_le64_set(page + FT_NKEYS, f->kf_nkeys);
	kv_le64_set(page + FT_NTOMBS, f->kf_ntombs);
	kv_le64_set(page + FT_MIN_SEQ, f->kf_min_seq);
	kv_le64_set(page + FT_MAX_SEQ, f->kf_max_seq);
	kv_le64_set(page + FT_LIVE, f->kf_live_bytes);
	kv_le16_set(page + FT_MIN_KLEN, f->kf_min_klen);
	kv_le16_set(page + FT_MAX_KLEN, f->kf_max_klen);
	for (unsigned int i = 0; i < KV_AREAS; i++) {
		uint8_t *a = page + FT_AREAS + i * FT_AREA_SIZE;

		kv_le32_set(a, f->kf_area[i].ar_off);
		kv_le32_set(a + 4, f->kf_area[i].ar_len);
		kv_le32_set(a + 8, f->kf_area[i].ar_crc);
	}
	memcpy(page + FT_KEYS, f->kf_min, f->kf_min_klen);
	memcpy(page + FT_KEYS + KVDB_KEY_MAX, f->kf_max, f->kf_max_klen);
	kv_le64_set(page + FT_EXPIRY, f->kf_expiring);
	kv_le64_set(page + FT_EXPIRY + 8, f->kf_min_expiry);
	kv_le64_set(page + FT_EXPIRY + 16, f->kf_max_expiry);
	crc = mpool_crc32c(0, page, FT_CRC);
	kv_le32_set(page + FT_CRC, crc);
	return crc;
}

/* Areas lie in order between key pages and footer and have the sizes that the counts ask for. */
static const char *check_areas(const struct kv_kfoot *f, uint32_t len)
{
	uint64_t pos = (uint64_t)f->kf_npages * KV_PAGE, np = f->kf_npages;
	const struct kv_area *a = f->kf_area;

	for (unsigned int i = 0; i < KV_AREAS; i++) {
		if (!CHECK(a[i].ar_off >= pos && a[i].ar_off <= len - KV_PAGE &&
			   a[i].ar_len <= len - KV_PAGE - a[i].ar_off))
			return "footer: area bounds";
		pos = (uint64_t)a[i].ar_off + a[i].ar_len;
	}
	if (!CHECK(a[KV_AREA_FENCE].ar_len >= np * 4))
		return "footer: fence length";
	/* a number of theirs lies on one page */
	if (!CHECK(a[KV_AREA_FENCE].ar_off % 64 == 0 && a[KV_AREA_PAGECRC].ar_off % 64 == 0))
		return "footer: area alignment";
	if (!CHECK(a[KV_AREA_PAGECRC].ar_len == np * 4))
		return "footer: page CRC length";
	if (!CHECK(a[KV_AREA_FILTER].ar_len % 64 == 0 && a[KV_AREA_FILTER].ar_off % 64 == 0))
		return "footer: filter length";
	if (!CHECK(a[KV_AREA_SEGS].ar_len % KV_KSEG_SIZE == 0 &&
		   a[KV_AREA_SEGS].ar_len / KV_KSEG_SIZE <= KV_KBLOCK_SEGS_MAX))
		return "footer: segment table length";
	if (!CHECK(!a[KV_AREA_SPARE].ar_len))
		return "footer: areas of a later format";
	return NULL;
}

static void decode_fields(const uint8_t *page, struct kv_kfoot *f)
{
	f->kf_tag = kv_le64(page + FT_TAG);
	f->kf_obj = kv_le64(page + FT_OBJ);
	f->kf_kvs = kv_le32(page + FT_KVS);
	f->kf_npages = kv_le32(page + FT_NPAGES);
	f->kf_nkeys = kv_le64(page + FT_NKEYS);
	f->kf_ntombs = kv_le64(page + FT_NTOMBS);
	f->kf_min_seq = kv_le64(page + FT_MIN_SEQ);
	f->kf_max_seq = kv_le64(page + FT_MAX_SEQ);
	f->kf_live_bytes = kv_le64(page + FT_LIVE);
	f->kf_expiring = kv_le64(page + FT_EXPIRY);
	f->kf_min_expiry = kv_le64(page + FT_EXPIRY + 8);
	f->kf_max_expiry = kv_le64(page + FT_EXPIRY + 16);
	f->kf_min_klen = kv_le16(page + FT_MIN_KLEN);
	f->kf_max_klen = kv_le16(page + FT_MAX_KLEN);
	for (unsigned int i = 0; i < KV_AREAS; i++) {
		const uint8_t *a = page + FT_AREAS + i * FT_AREA_SIZE;

		f->kf_area[i].ar_off = kv_le32(a);
		f->kf_area[i].ar_len = kv_le32(a + 4);
		f->kf_area[i].ar_crc = kv_le32(a + 8);
	}
}

const char *kv_kfoot_decode(const uint8_t *page, uint32_t crc, uint64_t tag, uint64_t obj,
			    uint32_t kvs, uint32_t len, struct kv_kfoot *f)
{
	uint32_t sum = mpool_crc32c(0, page, FT_CRC);

	if (!CHECK(kv_le32(page + FT_MAGIC) == KV_KBLOCK_MAGIC))
		return "footer: magic";
	if (!CHECK_CRC(sum == kv_le32(page + FT_CRC)))
		return "footer: CRC";
	if (!CHECK_CRC(sum == crc))
		return "footer: CRC differs from the one its parent holds";
	if (!CHECK(kv_le16(page + FT_FORMAT) == KV_RUN_FORMAT && !kv_le16(page + FT_FLAGS)))
		return "footer: format";
	decode_fields(page, f);
	if (!CHECK(f->kf_tag == tag && f->kf_obj == obj && f->kf_kvs == kvs))
		return "footer: belongs to another object";
	/* a block without keys holds tombstones over many keys */
	if (!CHECK(!f->kf_npages == !f->kf_nkeys &&
		   (f->kf_nkeys || f->kf_area[KV_AREA_PTOMB].ar_len) &&
		   f->kf_npages <= len / KV_PAGE - 1 &&
		   f->kf_nkeys <= (uint64_t)f->kf_npages * KV_KPAGE_MAXN))
		return "footer: counts";
	if (!CHECK(!f->kf_nkeys == !f->kf_min_klen && f->kf_min_klen <= KVDB_KEY_MAX &&
		   !f->kf_nkeys == !f->kf_max_klen && f->kf_max_klen <= KVDB_KEY_MAX))
		return "footer: key lengths";
	memcpy(f->kf_min, page + FT_KEYS, f->kf_min_klen);
	memcpy(f->kf_max, page + FT_KEYS + KVDB_KEY_MAX, f->kf_max_klen);
	if (!CHECK(f->kf_min_seq <= f->kf_max_seq && f->kf_expiring <= f->kf_nkeys &&
		   f->kf_min_expiry <= f->kf_max_expiry &&
		   kv_kcmp(f->kf_min, f->kf_min_klen, f->kf_max, f->kf_max_klen) <= 0))
		return "footer: ranges";
	return check_areas(f, len);
}

uint32_t kv_ktomb_size(const struct kv_trange *r)
{
	uint32_t to = r->tr_flags & (KV_TR_PREFIX | KV_TR_ENDLESS) ? 0 : r->tr_tlen;

	return KV_KTOMB_HDR + ((r->tr_flen + to + 7u) & ~7u);
}

void kv_ktomb_encode(const struct kv_trange *r, uint8_t *buf)
{
	uint32_t to = r->tr_flags & (KV_TR_PREFIX | KV_TR_ENDLESS) ? 0 : r->tr_tlen;

	KV_ASSERT(r->tr_flen <= KVDB_KEY_MAX && to <= KVDB_KEY_MAX && r->tr_seq < KV_NUMBER_END);
	memset(buf, 0, kv_ktomb_size(r));
	kv_le64_set(buf, r->tr_seq);
	kv_le16_set(buf + 8, r->tr_flen);
	kv_le16_set(buf + 10, (uint16_t)to);
	buf[12] = r->tr_flags;
	if (r->tr_flen)
		memcpy(buf + KV_KTOMB_HDR, r->tr_from, r->tr_flen);
	if (to)
		memcpy(buf + KV_KTOMB_HDR + r->tr_flen, r->tr_to, to);
}

const char *kv_ktomb_decode(const uint8_t *buf, uint32_t room, struct kv_trange *r, uint32_t *size)
{
	uint32_t keys = room < KV_KTOMB_HDR ? 0 : room - KV_KTOMB_HDR;
	bool is_range;

	if (!CHECK(room >= KV_KTOMB_HDR &&
		   ((kv_le16(buf + 8) + kv_le16(buf + 10) + 7u) & ~7u) <= keys))
		return "tombstone: beyond its area";
	r->tr_seq = kv_le64(buf);
	r->tr_flen = kv_le16(buf + 8);
	r->tr_tlen = kv_le16(buf + 10);
	r->tr_flags = buf[12];
	r->tr_from = buf + KV_KTOMB_HDR;
	r->tr_to = r->tr_from + r->tr_flen;
	is_range = !r->tr_flags;
	if (!CHECK(r->tr_flen <= KVDB_KEY_MAX && r->tr_tlen <= KVDB_KEY_MAX))
		return "tombstone: key lengths";
	if (!CHECK(r->tr_flags <= KV_TR_ENDLESS && !buf[13] && !kv_le16(buf + 14) &&
		   is_range == !!r->tr_tlen && (r->tr_flags != KV_TR_PREFIX || r->tr_flen)))
		return "tombstone: flags";
	if (!CHECK(r->tr_seq < KV_NUMBER_END))
		return "tombstone: sequence number";
	if (is_range && !CHECK(kv_kcmp(r->tr_from, r->tr_flen, r->tr_to, r->tr_tlen) < 0))
		return "tombstone: empty range";
	*size = kv_ktomb_size(r);
	return NULL;
}

void kv_kseg_encode(const struct kv_kseg *s, uint8_t *buf)
{
	kv_le64_set(buf, s->ks_id);
	kv_le64_set(buf + 8, s->ks_bytes);
	kv_le32_set(buf + 16, s->ks_n);
	kv_le32_set(buf + 20, 0);
}

void kv_kseg_decode(const uint8_t *buf, struct kv_kseg *s)
{
	s->ks_id = kv_le64(buf);
	s->ks_bytes = kv_le64(buf + 8);
	s->ks_n = kv_le32(buf + 16);
}

/* ---- key pages, reading -------------------------------------------------------- */

const char *kv_kpage_decode(const uint8_t *page, uint32_t page_no, struct kv_kpage *kp)
{
	unsigned int n = kv_le16(page), plen = kv_le16(page + 2), used = kv_le16(page + 4);
	unsigned int ents = KV_KPAGE_HDR + n * 7 + plen;

	if (!CHECK(n && n <= KV_KPAGE_MAXN && plen <= KVDB_KEY_MAX && ents <= used &&
		   used <= KV_PAGE))
		return "key page: counts";
	if (!CHECK(!kv_le16(page + 6) && !kv_le32(page + 20) &&
		   kv_le32(page + 16) == page_no))
		return "key page: flags or number";
	kp->kp_page = page;
	kp->kp_n = (uint16_t)n;
	kp->kp_plen = (uint16_t)plen;
	kp->kp_used = (uint16_t)used;
	kp->kp_ents = (uint16_t)ents;
	kp->kp_seq = kv_le64(page + 8);
	kp->kp_heads = page + KV_KPAGE_HDR;
	kp->kp_offs = kp->kp_heads + 4 * n;
	kp->kp_tags = kp->kp_offs + 2 * n;
	kp->kp_prefix = kp->kp_tags + n;
	return NULL;
}

/* Reads a base-128 number of at most @max; NULL when it runs over @end or is too large. */
static inline const uint8_t *varint_get(const uint8_t *p, const uint8_t *end, uint64_t max,
					uint64_t *v)
{
	uint64_t x = 0;
	unsigned int shift = 0;

	if (KV_LIKELY(p < end && *p < 0x80)) {
		*v = *p;
		return CHECK(*v <= max) ? p + 1 : NULL;
	}
	while (CHECK(p < end && shift < 64)) {
		uint8_t b = *p++;

		x |= (uint64_t)(b & 0x7f) << shift;
		if (b < 0x80) {
			*v = x;
			return CHECK(x <= max) ? p : NULL;
		}
		shift += 7;
	}
	return NULL;
}

/* What a packed value was: NULL when the fields are not possible. */
static const uint8_t *ent_packed(const uint8_t *p, const uint8_t *end, struct kv_kent *e)
{
	uint64_t vlen;

	if (!CHECK(end - p > 5 && *p > KVDB_COMPRESS_NONE && *p <= KVDB_COMPRESS_ZSTD))
		return NULL;
	e->ke_pack = *p;
	p = varint_get(p + 1, end, KVDB_VALUE_MAX, &vlen);
	if (!p || end - p < 4)
		return NULL;
	e->ke_vlen = (uint32_t)vlen;
	e->ke_vcrc = kv_le32(p);
	return p + 4;
}

/* The value part of an entry. */
static const char *ent_value(const uint8_t *p, const uint8_t *end, struct kv_kent *e, bool packed)
{
	uint64_t seg = 0, off8 = 0, vlen;

	if (e->ke_kind == KV_ENT_REF) {
		p = varint_get(p, end, UINT32_MAX, &seg);
		if (p)
			p = varint_get(p, end, UINT32_MAX, &off8);
		if (!p)
			return "key page: entry reference";
	}
	e->ke_seg = (uint32_t)seg;
	e->ke_off8 = (uint32_t)off8;
	if (KV_UNLIKELY(packed)) {
		p = ent_packed(p, end, e);
		if (!p)
			return "key page: entry of a packed value";
	}
	p = varint_get(p, end, KVDB_VALUE_MAX, &vlen);
	if (!p || !CHECK(end - p >= 4))
		return "key page: entry value length";
	if (KV_UNLIKELY(packed)) {
		if (!CHECK(vlen && vlen < e->ke_vlen))
			return "key page: length of a packed value";
		e->ke_plen = (uint32_t)vlen;
		e->ke_pcrc = kv_le32(p);
		return NULL;
	}
	e->ke_vlen = (uint32_t)vlen;
	e->ke_vcrc = kv_le32(p);
	e->ke_val = p + 4;
	/* a merge takes no longer ones */
	if (e->ke_kind == KV_ENT_INLINE &&
	    !CHECK(vlen <= KV_INLINE_MAX && vlen <= (uint64_t)(end - e->ke_val)))
		return "key page: inline value";
	return NULL;
}

static inline const char *kent(const struct kv_kpage *kp, unsigned int i, struct kv_kent *e)
{
	const uint8_t *end = kp->kp_page + kp->kp_used, *p;
	unsigned int off = kv_le16(kp->kp_offs + 2 * i), rest;
	uint64_t slen, delta;
	bool expires, packed;

	KV_ASSERT_SLOW(i < kp->kp_n);
	if (!CHECK(off >= kp->kp_ents && off < kp->kp_used))
		return "key page: entry offset";
	p = kp->kp_page + off;
	e->ke_kind = *p & ENT_KIND_MASK;
	expires = *p & ENT_EXPIRY;
	packed = *p & ENT_PACKED;
	if (!CHECK(!(*p & ~(ENT_KIND_MASK | ENT_EXPIRY | ENT_PACKED)) &&
		   e->ke_kind >= KV_ENT_TOMB && e->ke_kind <= KV_ENT_REF &&
		   (!packed || e->ke_kind == KV_ENT_REF)))
		return "key page: entry kind";
	p = varint_get(p + 1, end, KVDB_KEY_MAX - kp->kp_plen, &slen);
	if (!p)
		return "key page: key length";
	rest = slen > 4 ? (unsigned int)slen - 4 : 0;
	if (!CHECK(rest <= (size_t)(end - p) && slen + kp->kp_plen))
		return "key page: key bytes";
	e->ke_slen = (uint16_t)slen;
	e->ke_rest = p;
	p = varint_get(p + rest, end, UINT64_MAX, &delta);
	e->ke_seq = p ? kp->kp_seq + delta : 0;
	/* a merge would write it into the container, which takes no greater one */
	if (!p || !CHECK(e->ke_seq < KV_NUMBER_END))
		return "key page: sequence number";
	e->ke_expiry = 0;
	if (KV_UNLIKELY(expires)) {
		p = varint_get(p, end, UINT64_MAX, &e->ke_expiry);
		if (!p)
			return "key page: expiry";
	}
	e->ke_vlen = 0;
	e->ke_vcrc = 0;
	e->ke_pack = 0;
	e->ke_plen = 0;
	e->ke_pcrc = 0;
	e->ke_val = NULL;
	return e->ke_kind == KV_ENT_TOMB ? NULL : ent_value(p, end, e, packed);
}

const char *kv_kpage_ent(const struct kv_kpage *kp, unsigned i, struct kv_kent *e)
{
	return kent(kp, i, e);
}

void kv_kpage_ent_prefetch(const struct kv_kpage *kp, unsigned i)
{
	if (i < kp->kp_n)
		__builtin_prefetch(kp->kp_page + kv_le16(kp->kp_offs + 2 * i));
}

uint16_t kv_kpage_key(const struct kv_kpage *kp, unsigned i, const struct kv_kent *e, uint8_t *buf)
{
	uint32_t head = htobe32(kv_le32(kp->kp_heads + 4 * i));
	unsigned int hlen = e->ke_slen < 4 ? e->ke_slen : 4;

	KV_ASSERT_SLOW(i < kp->kp_n && kp->kp_plen + e->ke_slen <= KVDB_KEY_MAX);
	memcpy(buf, kp->kp_prefix, kp->kp_plen);
	memcpy(buf + kp->kp_plen, &head, hlen);
	memcpy(buf + kp->kp_plen + hlen, e->ke_rest, e->ke_slen - hlen);
	return (uint16_t)(kp->kp_plen + e->ke_slen);
}

/* Compares what follows prefix and head, which are equal. */
static inline int rest_cmp(const struct kv_kent *e, const uint8_t *suf, size_t slen)
{
	size_t a = e->ke_slen > 4 ? e->ke_slen - 4u : 0, b = slen > 4 ? slen - 4 : 0;
	int c = a && b ? memcmp(e->ke_rest, suf + 4, a < b ? a : b) : 0;

	return c ? c : (e->ke_slen > slen) - (e->ke_slen < slen);
}

unsigned kv_kpage_lower(const struct kv_kpage *kp, const uint8_t *key, size_t klen, bool *exact,
			const char **bad)
{
	size_t m = klen < kp->kp_plen ? klen : kp->kp_plen, slen;
	int c = memcmp(key, kp->kp_prefix, m);
	unsigned int lo = 0, hi = kp->kp_n;
	const uint8_t *suf = key + kp->kp_plen;
	uint32_t head;

	*exact = false;
	*bad = NULL;
	if (c || klen < kp->kp_plen)
		return c > 0 ? kp->kp_n : 0;
	slen = klen - kp->kp_plen;
	head = kv_head4(suf, slen);
	while (lo < hi) {
		unsigned int mid = (lo + hi) / 2;
		uint32_t h = kv_le32(kp->kp_heads + 4 * mid);
		struct kv_kent e;

		if (h != head) {
			c = h < head ? -1 : 1;
		} else {
			*bad = kent(kp, mid, &e);
			if (*bad)
				return kp->kp_n;
			c = rest_cmp(&e, suf, slen);
		}
		if (c < 0) {
			lo = mid + 1;
		} else {
			hi = mid;
			*exact = *exact || !c;
		}
	}
	return lo;
}

/* Does entry @i hold exactly this key? */
static inline bool ent_is(const struct kv_kpage *kp, unsigned int i, const uint8_t *suf,
			  size_t slen, uint32_t head, struct kv_kent *e, const char **bad)
{
	if (kv_le32(kp->kp_heads + 4 * i) != head)
		return false;
	*bad = kent(kp, i, e);
	if (*bad)
		return false;
	return e->ke_slen == slen && (slen <= 4 || !memcmp(e->ke_rest, suf + 4, slen - 4));
}

int kv_kpage_find(const struct kv_kpage *kp, const uint8_t *key, size_t klen, uint8_t tag,
		  struct kv_kent *e, const char **bad)
{
	const uint8_t *tags = kp->kp_tags, *suf = key + kp->kp_plen;
	unsigned int i = 0, n = kp->kp_n;
	size_t slen = klen - kp->kp_plen;
	uint32_t head;

	*bad = NULL;
	if (klen < kp->kp_plen || memcmp(key, kp->kp_prefix, kp->kp_plen))
		return -1;
	head = kv_head4(suf, slen);
#ifdef __SSE2__
	const __m128i want = _mm_set1_epi8((char)tag);

	for (; i + 16 <= n; i += 16) {
		__m128i t = _mm_loadu_si128((const __m128i *)(tags + i));
		unsigned int hit = (unsigned int)_mm_movemask_epi8(_mm_cmpeq_epi8(t, want));

		for (; hit; hit &= hit - 1) {
			unsigned int j = i + (unsigned int)__builtin_ctz(hit);

			if (ent_is(kp, j, suf, slen, head, e, bad))
				return (int)j;
			if (*bad)
				return -1;
		}
	}
#endif
	for (; i < n; i++) {
		if (tags[i] != tag)
			continue;
		if (ent_is(kp, i, suf, slen, head, e, bad))
			return (int)i;
		if (*bad)
			return -1;
	}
	return -1;
}

/* ---- key pages, building --------------------------------------------------------- */

static uint8_t *varint_put(uint8_t *p, uint64_t v)
{
	while (v >= 0x80) {
		*p++ = (uint8_t)(v | 0x80);
		v >>= 7;
	}
	*p++ = (uint8_t)v;
	return p;
}

/* Encoded size of an entry under prefix length @plen and base sequence number @seq. */
static unsigned int ent_size(const struct kv_kpb_ent *e, unsigned int plen, uint64_t seq)
{
	unsigned int slen = e->pe_klen - plen, rest = slen > 4 ? slen - 4 : 0;
	unsigned int n = 1 + kv_varint_size(slen) + rest + kv_varint_size(e->pe_seq - seq);

	if (e->pe_expiry)
		n += kv_varint_size(e->pe_expiry);
	if (e->pe_kind == KV_ENT_REF)
		n += kv_varint_size(e->pe_seg) + kv_varint_size(e->pe_off8) +
		     kv_varint_size(e->pe_vlen) + 4 +
		     (e->pe_pack ? 1 + kv_varint_size(e->pe_plen) + 4 : 0);
	else if (e->pe_kind == KV_ENT_INLINE)
		n += kv_varint_size(e->pe_vlen) + 4 + e->pe_vlen;
	return n;
}

static int bytes_reserve(struct kv_kpb *pb, uint32_t n)
{
	uint32_t want = pb->pb_used + n, cap = pb->pb_cap ? pb->pb_cap : 16384;
	uint8_t *p;

	if (want <= pb->pb_cap)
		return 0;
	while (cap < want)
		cap *= 2;
	p = realloc(pb->pb_bytes, cap);
	if (!p)
		return -ENOMEM;
	pb->pb_bytes = p;
	pb->pb_cap = cap;
	return 0;
}

int kv_kpb_add(struct kv_kpb *pb, const struct kv_kpb_in *in)
{
	const struct kv_kpb_ent *e = &in->in_ent;
	unsigned int plen = e->pe_klen, size = 0, n = pb->pb_n;
	uint32_t vlen = e->pe_kind == KV_ENT_INLINE ? e->pe_vlen : 0;
	uint64_t seq = e->pe_seq;
	int rc;

	if (n == KV_KPAGE_MAXN)
		return -ENOSPC;
	if (n) {
		plen = (unsigned int)kv_klcp(kv_kpb_key(pb, 0), pb->pb_plen, in->in_key,
						e->pe_klen);
		if (pb->pb_seq < seq)
			seq = pb->pb_seq;
		if (plen == pb->pb_plen && seq == pb->pb_seq)
			size = pb->pb_size;
		else
			for (unsigned int i = 0; i < n; i++)
				size += ent_size(&pb->pb_ent[i], plen, seq);
	}
	KV_ASSERT_SLOW(!n || kv_kcmp(kv_kpb_key(pb, n - 1), pb->pb_ent[n - 1].pe_klen, in->in_key,
				e->pe_klen) < 0);
	size += ent_size(e, plen, seq);
	if (KV_KPAGE_HDR + (n + 1) * 7 + plen + size > KV_PAGE)
		return -ENOSPC;
	rc = bytes_reserve(pb, e->pe_klen + vlen);
	if (rc)
		return rc;
	pb->pb_ent[n] = *e;
	pb->pb_ent[n].pe_key = pb->pb_used;
	memcpy(pb->pb_bytes + pb->pb_used, in->in_key, e->pe_klen);
	if (vlen)
		memcpy(pb->pb_bytes + pb->pb_used + e->pe_klen, in->in_val, vlen);
	pb->pb_used += e->pe_klen + vlen;
	pb->pb_n = n + 1;
	pb->pb_plen = plen;
	pb->pb_seq = seq;
	pb->pb_size = size;
	return 0;
}

static uint8_t *ent_encode(const struct kv_kpb *pb, const struct kv_kpb_ent *e, uint8_t *p)
{
	unsigned int slen = e->pe_klen - pb->pb_plen, rest = slen > 4 ? slen - 4 : 0;
	const uint8_t *key = pb->pb_bytes + e->pe_key;

	*p++ = e->pe_kind | (e->pe_expiry ? ENT_EXPIRY : 0) | (e->pe_pack ? ENT_PACKED : 0);
	p = varint_put(p, slen);
	memcpy(p, key + e->pe_klen - rest, rest);
	p = varint_put(p + rest, e->pe_seq - pb->pb_seq);
	if (e->pe_expiry)
		p = varint_put(p, e->pe_expiry);
	if (e->pe_kind == KV_ENT_TOMB)
		return p;
	if (e->pe_kind == KV_ENT_REF) {
		p = varint_put(p, e->pe_seg);
		p = varint_put(p, e->pe_off8);
	}
	if (e->pe_pack)
		*p++ = e->pe_pack;
	p = varint_put(p, e->pe_vlen);
	kv_le32_set(p, e->pe_vcrc);
	p += 4;
	if (e->pe_pack) {
		p = varint_put(p, e->pe_plen);
		kv_le32_set(p, e->pe_pcrc);
		p += 4;
	}
	if (e->pe_kind == KV_ENT_INLINE && e->pe_vlen) {
		memcpy(p, key + e->pe_klen, e->pe_vlen);
		p += e->pe_vlen;
	}
	return p;
}

void kv_kpb_encode(struct kv_kpb *pb, uint32_t page_no, uint8_t *page)
{
	unsigned int n = pb->pb_n, plen = pb->pb_plen;
	uint8_t *heads = page + KV_KPAGE_HDR, *offs = heads + 4 * n, *tags = offs + 2 * n;
	uint8_t *p = tags + n + plen;

	memset(page, 0, KV_KPAGE_HDR);
	memcpy(tags + n, kv_kpb_key(pb, 0), plen);
	for (unsigned int i = 0; i < n; i++) {
		const struct kv_kpb_ent *e = &pb->pb_ent[i];

		kv_le32_set(heads + 4 * i, kv_head4(kv_kpb_key(pb, i) + plen, e->pe_klen - plen));
		kv_le16_set(offs + 2 * i, (uint16_t)(p - page));
		tags[i] = e->pe_tag;
		p = ent_encode(pb, e, p);
	}
	KV_ASSERT(n && p == tags + n + plen + pb->pb_size && p <= page + KV_PAGE);
	kv_le16_set(page, (uint16_t)n);
	kv_le16_set(page + 2, (uint16_t)plen);
	kv_le16_set(page + 4, (uint16_t)(p - page));
	kv_le64_set(page + 8, pb->pb_seq);
	kv_le32_set(page + 16, page_no);
	memset(p, 0, (size_t)(page + KV_PAGE - p));
	pb->pb_n = 0;
	pb->pb_used = 0;
	pb->pb_size = 0;
}
