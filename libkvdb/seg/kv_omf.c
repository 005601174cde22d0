/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Encoding and decoding of frames, records and epoch descriptors: the only
 * code that touches their bytes. Decoders trust nothing: every field that a
 * caller will use as a length, an index or a place is checked here, and the
 * number of the check that failed is the return value. Byte tables: kv_omf.h.
 */
#include <string.h>

#include <kvdb/kvdb.h>

#include "seg/kv_omf.h"
#include "base/assert.h"
#include "base/guard.h"
#include "base/key.h"
#include "base/trange.h"

/* frame header, byte offsets */
enum {
	FH_MAGIC = 0, FH_FORMAT = 4, FH_STREAM = 6, FH_PAD0 = 7, FH_TAG = 8, FH_INCARNATION = 12,
	FH_OBJ = 16, FH_OFF = 24, FH_LEN = 28, FH_EPOCH = 32, FH_CHAIN = 40, FH_PAYLOAD = 44,
	FH_NREC = 48, FH_LOG = 52, FH_PAD1 = 54, FH_PAD2 = 56, FH_CRC = 60,
};

/* record header, byte offsets */
enum {
	RH_CRC = 0, RH_TYPE = 4, RH_FLAGS = 5, RH_KVS = 6, RH_KLEN = 8, RH_PAD = 10, RH_VLEN = 12,
	RH_SEQ = 16, RH_REV = 24, RH_VCRC = 28,
};

#define RAW_LEN_BITS	28	/* of a packed value; the method is above them */

/* descriptor, byte offsets in the record's value */
enum {
	DH_INCARNATION = 0, DH_N = 4, DH_EPOCH = 8, DH_PREV_EPOCH = 16, DH_PREV_OBJ = 24,
	DH_PREV_OFF = 32, DH_PAD = 36,
	DE_OBJ = 0, DE_END = 8, DE_CHAIN = 12,
};

#define MARK_REV	0x4b52414du	/* "MARK", as a revision: a skip has none */

/* mark of a frame, byte offsets in the record's value */
enum { MA_BEGIN = 0, MA_PAD = 4, MA_PREV = 8, MA_END = 16 };

_Static_assert(FH_CRC + 4 == KV_FRAME_HDR, "frame header");
_Static_assert(RH_VCRC + 4 == KV_REC_HDR, "record header");
_Static_assert(KV_FRAME_HDR + KV_REC_HDR + KVDB_KEY_MAX + KVDB_VALUE_MAX + 8 + KV_REC_PACKED +
	       KV_MARK_SIZE <= KV_FRAME_MAX, "a frame holds the largest record");
_Static_assert(KV_REC_HDR + MA_END == KV_MARK_SIZE, "mark");
_Static_assert(DH_PAD + 4 == KV_DESC_HDR, "descriptor");
_Static_assert(DE_CHAIN + 4 == KV_DESC_ENT, "descriptor entry");

static inline void put16(uint8_t *p, uint16_t v)
{
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
	v = __builtin_bswap16(v);
#endif
	memcpy(p, &v, 2);
}

static inline void put32(uint8_t *p, uint32_t v)
{
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
	v = __builtin_bswap32(v);
#endif
	memcpy(p, &v, 4);
}

static inline void put64(uint8_t *p, uint64_t v)
{
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
	v = __builtin_bswap64(v);
#endif
	memcpy(p, &v, 8);
}

static inline uint16_t get16(const uint8_t *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t get32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, 4);
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
	v = __builtin_bswap32(v);
#endif
	return v;
}

static inline uint64_t get64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, 8);
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
	v = __builtin_bswap64(v);
#endif
	return v;
}

/* ---- frames ------------------------------------------------------------ */

void kv_frame_encode(const struct kv_frame_hdr *h, uint8_t *buf, uint32_t *crc)
{
	uint32_t c;

	KV_ASSERT(h->fh_epoch && h->fh_epoch < KV_NUMBER_END && h->fh_len <= KV_FRAME_MAX);
	put32(buf + FH_MAGIC, KV_FRAME_MAGIC);
	put16(buf + FH_FORMAT, KV_FORMAT);
	buf[FH_STREAM] = h->fh_stream;
	buf[FH_PAD0] = 0;
	put32(buf + FH_TAG, h->fh_tag);
	put32(buf + FH_INCARNATION, h->fh_incarnation);
	put64(buf + FH_OBJ, h->fh_obj);
	put32(buf + FH_OFF, h->fh_off);
	put32(buf + FH_LEN, h->fh_len);
	put64(buf + FH_EPOCH, h->fh_epoch);
	put32(buf + FH_CHAIN, h->fh_chain);
	put32(buf + FH_PAYLOAD, h->fh_payload_crc);
	put32(buf + FH_NREC, h->fh_nrec);
	put16(buf + FH_LOG, h->fh_log);
	put16(buf + FH_PAD1, 0);
	put32(buf + FH_PAD2, 0);
	c = mpool_crc32c(0, buf, FH_CRC);
	put32(buf + FH_CRC, c);
	if (crc)
		*crc = c;
}

int kv_frame_decode(const uint8_t *buf, uint32_t tag, uint64_t obj, uint32_t off, uint32_t room,
		    struct kv_frame_hdr *h)
{
	if (!CHECK(room >= KV_FRAME_HDR && get32(buf + FH_MAGIC) == KV_FRAME_MAGIC))
		return 400;
	if (!CHECK(get16(buf + FH_FORMAT) == KV_FORMAT))
		return 401;
	h->fh_crc = get32(buf + FH_CRC);
	if (!CHECK_CRC(mpool_crc32c(0, buf, FH_CRC) == h->fh_crc))
		return 402;
	h->fh_stream = buf[FH_STREAM];
	h->fh_tag = get32(buf + FH_TAG);
	h->fh_incarnation = get32(buf + FH_INCARNATION);
	h->fh_obj = get64(buf + FH_OBJ);
	h->fh_off = get32(buf + FH_OFF);
	h->fh_len = get32(buf + FH_LEN);
	h->fh_epoch = get64(buf + FH_EPOCH);
	h->fh_chain = get32(buf + FH_CHAIN);
	h->fh_payload_crc = get32(buf + FH_PAYLOAD);
	h->fh_nrec = get32(buf + FH_NREC);
	h->fh_log = get16(buf + FH_LOG);
	if (!CHECK(h->fh_tag == tag))
		return 403;
	if (!CHECK(h->fh_obj == obj && h->fh_off == off))
		return 404;
	/* room and the limit bound the padded end too: callers step by it */
	if (!CHECK(h->fh_len >= KV_FRAME_HDR && h->fh_len <= room &&
		   h->fh_len <= KV_FRAME_MAX &&
		   (h->fh_len + KV_BLOCK - 1) / KV_BLOCK * KV_BLOCK <= room))
		return 405;
	if (!CHECK(h->fh_stream < KV_STREAMS && h->fh_incarnation && h->fh_epoch &&
		   h->fh_epoch < KV_NUMBER_END && !buf[FH_PAD0] && !get16(buf + FH_PAD1) &&
		   !get32(buf + FH_PAD2)))
		return 406;
	return 0;
}

bool kv_frame_check_payload(const uint8_t *buf, const struct kv_frame_hdr *h)
{
	return CHECK_CRC(mpool_crc32c(0, buf + KV_FRAME_HDR, h->fh_len - KV_FRAME_HDR) ==
			 h->fh_payload_crc);
}

/* ---- records ------------------------------------------------------------- */

#define REC_FIELDS	(KV_RECF_EXPIRY | KV_RECF_PACKED)

/* Bytes of the optional fields, which lie after the value in the order of their flags. */
static uint32_t fields_size(uint8_t flags)
{
	return 8u * (uint32_t)__builtin_popcount(flags & REC_FIELDS);
}

/* CRC over place, header after the CRC field, key, other fields: a moved record is a bad record. */
/* @hdr: the record's header; it is followed by the key in @buf */
static uint32_t rec_crc(const uint8_t *hdr, const uint8_t *buf, uint64_t obj, uint32_t off,
			uint32_t klen)
{
	uint8_t head[12 + KV_REC_HDR - RH_TYPE];
	uint32_t c;

	put64(head, obj);
	put32(head + 8, off);
	memcpy(head + 12, hdr + RH_TYPE, KV_REC_HDR - RH_TYPE);
	c = mpool_crc32c(0, head, sizeof(head));
	if (klen)
		c = mpool_crc32c(c, buf + KV_REC_HDR, klen);
	if (hdr[RH_FLAGS] & REC_FIELDS)
		c = mpool_crc32c(c, buf + kv_rec_size(klen, get32(hdr + RH_VLEN)),
				 fields_size(hdr[RH_FLAGS]));
	return c;
}

void kv_rec_encode(uint8_t *buf, uint8_t type, uint16_t kvs, const void *key, uint16_t klen,
		   const void *val, uint32_t vlen, uint32_t vcrc)
{
	uint32_t kpad = kv_pad8(klen), vpad = kv_pad8(vlen);

	/* as the words in which kv_rec_stamp() reads it: a processor hands no others on at once */
	put64(buf, (uint64_t)type << (8 * RH_TYPE) | (uint64_t)kvs << (8 * RH_KVS));
	put64(buf + RH_KLEN, klen | (uint64_t)vlen << (8 * (RH_VLEN - RH_KLEN)));
	put64(buf + RH_SEQ, 0);
	put64(buf + RH_REV, (uint64_t)vcrc << (8 * (RH_VCRC - RH_REV)));
	if (klen) {
		put64(buf + KV_REC_HDR + kpad - 8, 0);
		memcpy(buf + KV_REC_HDR, key, klen);
	}
	if (vlen) {
		put64(buf + KV_REC_HDR + kpad + vpad - 8, 0);
		if (val)
			memcpy(buf + KV_REC_HDR + kpad, val, vlen);
	}
}

void kv_rec_set_expiry(uint8_t *buf, uint64_t ms)
{
	KV_ASSERT(!(buf[RH_FLAGS] & REC_FIELDS));	/* they lie in order of their flags */
	buf[RH_FLAGS] |= KV_RECF_EXPIRY;
	put64(buf + kv_rec_size(get16(buf + RH_KLEN), get32(buf + RH_VLEN)), ms);
}

void kv_rec_set_packed(uint8_t *buf, uint8_t how, uint32_t len, uint32_t crc)
{
	uint8_t *p = buf + kv_rec_size(get16(buf + RH_KLEN), get32(buf + RH_VLEN)) +
		     fields_size(buf[RH_FLAGS]);

	KV_ASSERT(!(buf[RH_FLAGS] & KV_RECF_PACKED) && len < 1u << RAW_LEN_BITS);
	buf[RH_FLAGS] |= KV_RECF_PACKED;
	put32(p, len | (uint32_t)how << RAW_LEN_BITS);
	put32(p + 4, crc);
}

void kv_rec_set_vcrc(uint8_t *buf, uint32_t vcrc)
{
	put32(buf + RH_VCRC, vcrc);
}

void kv_rec_set_rev(uint8_t *buf, uint32_t rev)
{
	put32(buf + RH_REV, rev);
}

void kv_rec_set_flags(uint8_t *buf, uint8_t flags)
{
	buf[RH_FLAGS] = flags;
}

bool kv_rec_is_of(const uint8_t *buf, const void *key, size_t klen)
{
	return get16(buf + RH_KLEN) == klen && !memcmp(buf + KV_REC_HDR, key, klen);
}

uint32_t kv_rec_vlen(const uint8_t *buf)
{
	return get32(buf + RH_VLEN);
}

void kv_rec_header_copy(uint8_t *to, const uint8_t *from)
{
	uint64_t w;

	for (unsigned int i = 0; i < KV_REC_HDR; i += sizeof(w)) {
		w = __atomic_load_n((const uint64_t *)(const void *)(from + i), __ATOMIC_RELAXED);
		memcpy(to + i, &w, sizeof(w));
	}
}

void kv_rec_stamp(uint8_t *buf, uint64_t obj, uint32_t off, uint64_t seq)
{
	uint8_t hdr[KV_REC_HDR];
	uint64_t w;
	uint32_t c;

	kv_rec_header_copy(hdr, buf);
	put64(hdr + RH_SEQ, seq);
	put32(hdr + RH_CRC, rec_crc(hdr, buf, obj, off, get16(hdr + RH_KLEN)));
	memcpy(&w, hdr + RH_SEQ, sizeof(w));
	memcpy(&c, hdr + RH_CRC, sizeof(c));
	__atomic_store_n((uint64_t *)(void *)(buf + RH_SEQ), w, __ATOMIC_RELAXED);
	__atomic_store_n((uint32_t *)(void *)(buf + RH_CRC), c, __ATOMIC_RELAXED);
}

void kv_rec_encode_skip(uint8_t *buf, uint64_t obj, uint32_t off, uint32_t size)
{
	KV_ASSERT(size >= KV_REC_HDR && size % KV_REC_ALIGN == 0);
	/* all of it: what memory held before must not get to media */
	memset(buf, 0, size);
	buf[RH_TYPE] = KV_REC_SKIP;
	put32(buf + RH_VLEN, size - KV_REC_HDR);
	kv_rec_stamp(buf, obj, off, 0);
}

/* Lengths that the engine can have written: they bound r_size far below 2^32. */
static bool rec_lengths_ok(const struct kv_rec *r, uint32_t room)
{
	if (r->r_klen > 4096 || r->r_vlen > KV_FRAME_MAX)
		return false;
	return kv_rec_size(r->r_klen, r->r_vlen) + fields_size(r->r_flags) <= room;
}

static bool rec_flags_ok(const struct kv_rec *r)
{
	return !r->r_flags || (r->r_type == KV_REC_PUT && (r->r_flags == KV_RECF_TXN ||
							  !(r->r_flags & ~REC_FIELDS)));
}

static bool rec_packed_ok(const struct kv_rec *r)
{
	return r->r_pack > KVDB_COMPRESS_NONE && r->r_pack <= KVDB_COMPRESS_ZSTD &&
	       r->r_raw_len <= KVDB_VALUE_MAX && r->r_vlen && r->r_vlen < r->r_raw_len;
}

int kv_rec_decode(const uint8_t *buf, uint64_t obj, uint32_t off, uint32_t room, bool check_value,
		  struct kv_rec *r)
{
	if (!CHECK(room >= KV_REC_HDR))
		return 408;
	r->r_type = buf[RH_TYPE];
	r->r_flags = buf[RH_FLAGS];
	r->r_kvs = get16(buf + RH_KVS);
	r->r_klen = get16(buf + RH_KLEN);
	r->r_vlen = get32(buf + RH_VLEN);
	r->r_seq = get64(buf + RH_SEQ);
	r->r_rev = get32(buf + RH_REV);
	r->r_vcrc = get32(buf + RH_VCRC);
	if (!CHECK(rec_lengths_ok(r, room)))
		return 409;
	if (!CHECK_CRC(rec_crc(buf, buf, obj, off, r->r_klen) == get32(buf + RH_CRC)))
		return 410;
	if (!CHECK(r->r_type && r->r_type < KV_REC_TYPES && rec_flags_ok(r) &&
		   !get16(buf + RH_PAD)))
		return 411;
	if (!CHECK(r->r_seq < KV_NUMBER_END))
		return 654;
	r->r_size = kv_rec_size(r->r_klen, r->r_vlen);
	r->r_expiry = 0;
	if (r->r_flags & KV_RECF_EXPIRY) {
		r->r_expiry = get64(buf + r->r_size);
		r->r_size += 8;
	}
	r->r_pack = 0;
	if (r->r_flags & KV_RECF_PACKED) {
		uint32_t raw = get32(buf + r->r_size);

		r->r_pack = (uint8_t)(raw >> RAW_LEN_BITS);
		r->r_raw_len = raw & ((1u << RAW_LEN_BITS) - 1);
		r->r_raw_crc = get32(buf + r->r_size + 4);
		if (!CHECK(rec_packed_ok(r)))
			return 594;
		r->r_size += KV_REC_PACKED;
	}
	r->r_key = buf + KV_REC_HDR;
	r->r_val = buf + kv_rec_val_off(r->r_klen);
	if (check_value && r->r_type != KV_REC_SKIP &&
	    !CHECK_CRC(mpool_crc32c(0, r->r_val, r->r_vlen) == r->r_vcrc))
		return 412;
	return 0;
}

/* ---- marks --------------------------------------------------------------------- */

void kv_mark_encode(uint8_t *buf, uint64_t obj, uint32_t off, const struct kv_mark *m)
{
	uint8_t *p = buf + KV_REC_HDR;

	KV_ASSERT(m->ma_begin % KV_BLOCK == 0);
	memset(buf, 0, KV_MARK_SIZE);
	put32(p + MA_BEGIN, m->ma_begin);
	put64(p + MA_PREV, m->ma_prev);
	buf[RH_TYPE] = KV_REC_SKIP;
	put32(buf + RH_VLEN, MA_END);
	put32(buf + RH_REV, MARK_REV);
	put32(buf + RH_VCRC, mpool_crc32c(0, p, MA_END));
	kv_rec_stamp(buf, obj, off, 0);
}

bool kv_mark_decode(const uint8_t *buf, const struct kv_frame_hdr *h, struct kv_mark *m)
{
	uint32_t at = h->fh_len - KV_MARK_SIZE;
	const uint8_t *p = buf + at + KV_REC_HDR;
	struct kv_rec r;

	if (h->fh_len < KV_FRAME_HDR + KV_MARK_SIZE || at % KV_REC_ALIGN ||
	    kv_rec_decode(buf + at, h->fh_obj, h->fh_off + at, KV_MARK_SIZE, false, &r) ||
	    r.r_type != KV_REC_SKIP || r.r_rev != MARK_REV || r.r_size != KV_MARK_SIZE ||
	    !CHECK_CRC(mpool_crc32c(0, p, MA_END) == r.r_vcrc) || get32(p + MA_PAD))
		return false;
	m->ma_begin = get32(p + MA_BEGIN);
	m->ma_prev = get64(p + MA_PREV);
	return m->ma_begin <= h->fh_off && m->ma_begin % KV_BLOCK == 0 &&
	       m->ma_prev < h->fh_epoch;
}

/* ---- deletes of many keys ---------------------------------------------------- */

uint32_t kv_rec_rdel_value(const struct kv_trange *t, uint8_t *val)
{
	uint32_t n = t->tr_flags & KV_TR_ENDLESS ? 0 : t->tr_tlen;

	val[0] = t->tr_flags & KV_TR_ENDLESS ? KV_RDEL_ENDLESS : 0;
	if (n)
		memcpy(val + 1, t->tr_to, n);
	return 1 + n;
}

bool kv_rec_trange(const struct kv_rec *r, struct kv_trange *t)
{
	memset(t, 0, sizeof(*t));
	t->tr_from = r->r_key;
	t->tr_flen = r->r_klen;
	t->tr_seq = r->r_seq;
	if (r->r_klen > KVDB_KEY_MAX)
		return false;
	if (r->r_type == KV_REC_PDEL) {
		t->tr_flags = KV_TR_PREFIX;
		return r->r_klen && !r->r_vlen;
	}
	if (r->r_type != KV_REC_RDEL || !r->r_vlen || r->r_vlen > KVDB_KEY_MAX + 1 ||
	    r->r_val[0] > KV_RDEL_ENDLESS)
		return false;
	t->tr_flags = r->r_val[0] ? KV_TR_ENDLESS : 0;
	t->tr_to = r->r_val + 1;
	t->tr_tlen = (uint16_t)(r->r_vlen - 1);
	if (t->tr_flags)
		return !t->tr_tlen;
	return kv_kcmp(t->tr_from, t->tr_flen, t->tr_to, t->tr_tlen) < 0;
}

/* ---- epoch descriptors ------------------------------------------------------ */

void kv_desc_encode(uint8_t *buf, uint64_t obj, uint32_t off, const struct kv_desc *d,
		    const struct kv_desc_ent *ents)
{
	uint8_t *p = buf + KV_REC_HDR, *q = p + KV_DESC_HDR;
	uint32_t i, len = kv_desc_size(d->ds_n);

	KV_ASSERT(d->ds_n <= KV_DESC_ENTS_MAX);
	put32(p + DH_INCARNATION, d->ds_incarnation);
	put32(p + DH_N, d->ds_n);
	put64(p + DH_EPOCH, d->ds_epoch);
	put64(p + DH_PREV_EPOCH, d->ds_prev_epoch);
	put64(p + DH_PREV_OBJ, d->ds_prev_obj);
	put32(p + DH_PREV_OFF, d->ds_prev_off);
	put32(p + DH_PAD, 0);
	for (i = 0; i < d->ds_n; i++, q += KV_DESC_ENT) {
		put64(q + DE_OBJ, ents[i].de_obj);
		put32(q + DE_END, ents[i].de_end);
		put32(q + DE_CHAIN, ents[i].de_chain);
	}
	memset(buf, 0, KV_REC_HDR);
	buf[RH_TYPE] = KV_REC_DESC;
	put32(buf + RH_VLEN, len);
	put32(buf + RH_VCRC, mpool_crc32c(0, p, len));
	kv_rec_stamp(buf, obj, off, 0);
}

int kv_desc_decode(const struct kv_rec *r, struct kv_desc *d)
{
	const uint8_t *p = r->r_val;

	if (!CHECK(r->r_type == KV_REC_DESC && !r->r_klen && r->r_vlen >= KV_DESC_HDR))
		return 413;
	if (!CHECK_CRC(mpool_crc32c(0, p, r->r_vlen) == r->r_vcrc))
		return 414;
	d->ds_incarnation = get32(p + DH_INCARNATION);
	d->ds_n = get32(p + DH_N);
	d->ds_epoch = get64(p + DH_EPOCH);
	d->ds_prev_epoch = get64(p + DH_PREV_EPOCH);
	d->ds_prev_obj = get64(p + DH_PREV_OBJ);
	d->ds_prev_off = get32(p + DH_PREV_OFF);
	if (!CHECK(d->ds_n && d->ds_n <= KV_DESC_ENTS_MAX &&
		   kv_desc_size(d->ds_n) == r->r_vlen && d->ds_prev_epoch < d->ds_epoch &&
		   d->ds_prev_off % KV_BLOCK == 0 && !get32(p + DH_PAD)))
		return 415;
	return 0;
}

void kv_desc_ent(const struct kv_rec *r, uint32_t i, struct kv_desc_ent *e)
{
	const uint8_t *q = r->r_val + KV_DESC_HDR + (size_t)i * KV_DESC_ENT;

	KV_ASSERT(i < get32(r->r_val + DH_N));
	e->de_obj = get64(q + DE_OBJ);
	e->de_end = get32(q + DE_END);
	e->de_chain = get32(q + DE_CHAIN);
}
