/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Encoding and decoding of commit records' values. As in kv_omf.c, everything
 * that a reader will use as a length or a place is checked here.
 */
#include <endian.h>
#include <string.h>

#include <kvdb/kvdb.h>

#include "txn/txn_omf.h"
#include "base/guard.h"
#include "seg/value.h"

/* header and entry, byte offsets */
enum {
	CH_COUNT = 0, CH_PAD = 4, CH_PAD2 = 8,
	CE_KVS = 0, CE_KLEN = 2, CE_KIND = 4, CE_FLAGS = 5, CE_PAD = 6, CE_REV = 8, CE_VLEN = 12,
	CE_VCRC = 16, CE_OFF8 = 20, CE_OBJ = 24,
};

#define FLAG_EXPIRY 0x1u	/* 8 bytes after the rest */

_Static_assert(CH_PAD2 + 8 == KV_COMMIT_HDR, "commit header");
_Static_assert(CE_OBJ + 8 == KV_COMMIT_ENT, "commit entry");

static inline void put_le(uint8_t *p, uint64_t v, unsigned int bytes)
{
	v = htole64(v);
	memcpy(p, &v, bytes);
}

static inline uint64_t get_le(const uint8_t *p, unsigned int bytes)
{
	uint64_t v = 0;

	memcpy(&v, p, bytes);
	return le64toh(v);
}

static bool has_value(uint8_t kind)
{
	return kind == KV_ENT_INLINE || kind == KV_ENT_COVER;
}

uint32_t kv_commit_ent_size(uint16_t klen, uint8_t kind, uint32_t vlen, bool expires)
{
	return KV_COMMIT_ENT + kv_pad8(klen) + (has_value(kind) ? kv_pad8(vlen) : 0) +
	       (expires ? 8 : 0);
}

static uint32_t ent_size(const struct kv_commit_ent *e)
{
	return kv_commit_ent_size(e->ce_klen, e->ce_kind, e->ce_vlen, e->ce_expiry);
}

void kv_commit_encode_hdr(uint8_t *buf, uint32_t count)
{
	memset(buf, 0, KV_COMMIT_HDR);
	put_le(buf + CH_COUNT, count, 4);
}

/* Padded to 8. */
static inline void put_bytes(uint8_t *to, const void *p, uint32_t n)
{
	if (!n)
		return;
	memset(to + kv_pad8(n) - 8, 0, 8);
	memcpy(to, p, n);
}

uint32_t kv_commit_encode_ent(uint8_t *buf, const struct kv_commit_ent *e)
{
	uint32_t size = ent_size(e);

	memset(buf, 0, KV_COMMIT_ENT);
	put_le(buf + CE_KVS, e->ce_kvs, 2);
	put_le(buf + CE_KLEN, e->ce_klen, 2);
	buf[CE_KIND] = e->ce_kind;
	put_le(buf + CE_REV, e->ce_rev, 4);
	put_le(buf + CE_VLEN, e->ce_vlen, 4);
	put_le(buf + CE_VCRC, e->ce_vcrc, 4);
	if (e->ce_kind == KV_ENT_REF || e->ce_kind == KV_ENT_PART) {
		put_le(buf + CE_OFF8, e->ce_off8, 4);
		put_le(buf + CE_OBJ, e->ce_obj, 8);
	}
	put_bytes(buf + KV_COMMIT_ENT, e->ce_key, e->ce_klen);
	if (has_value(e->ce_kind))
		put_bytes(buf + KV_COMMIT_ENT + kv_pad8(e->ce_klen), e->ce_val, e->ce_vlen);
	if (e->ce_expiry) {
		buf[CE_FLAGS] = FLAG_EXPIRY;
		put_le(buf + size - 8, e->ce_expiry, 8);
	}
	return size;
}

void kv_commit_set_rev(uint8_t *ent, uint32_t rev)
{
	put_le(ent + CE_REV, rev, 4);
}

static void ent_read(const uint8_t *p, struct kv_commit_ent *e)
{
	e->ce_kvs = (uint16_t)get_le(p + CE_KVS, 2);
	e->ce_klen = (uint16_t)get_le(p + CE_KLEN, 2);
	e->ce_kind = p[CE_KIND];
	e->ce_rev = (uint32_t)get_le(p + CE_REV, 4);
	e->ce_vlen = (uint32_t)get_le(p + CE_VLEN, 4);
	e->ce_vcrc = (uint32_t)get_le(p + CE_VCRC, 4);
	e->ce_off8 = (uint32_t)get_le(p + CE_OFF8, 4);
	e->ce_obj = get_le(p + CE_OBJ, 8);
	e->ce_key = p + KV_COMMIT_ENT;
	e->ce_val = has_value(e->ce_kind) ? p + KV_COMMIT_ENT + kv_pad8(e->ce_klen) : NULL;
	e->ce_expiry = 0;
}

/* Its shortest entry takes that much; a shorter part is none: it stays in the record. */
static bool part_ok(const struct kv_commit_ent *e)
{
	return e->ce_kvs && !e->ce_klen && e->ce_vlen > KV_INLINE_MAX &&
	       e->ce_vlen <= KVDB_VALUE_MAX && e->ce_obj && e->ce_rev &&
	       e->ce_rev <= e->ce_vlen / (KV_COMMIT_ENT + KV_REC_ALIGN);
}

static bool ent_ok(const uint8_t *p, const struct kv_commit_ent *e)
{
	if (e->ce_kind == KV_ENT_PART)
		return !p[CE_FLAGS] && !get_le(p + CE_PAD, 2) && part_ok(e);
	if ((!e->ce_klen && e->ce_kind != KV_ENT_COVER) || e->ce_klen > KVDB_KEY_MAX ||
	    p[CE_FLAGS] & ~FLAG_EXPIRY || get_le(p + CE_PAD, 2))
		return false;
	switch (e->ce_kind) {
	case KV_ENT_TOMB:
		return !p[CE_FLAGS] && !e->ce_vlen && !e->ce_obj && !e->ce_off8;
	case KV_ENT_INLINE:
		return e->ce_vlen <= KV_INLINE_MAX && !e->ce_obj && !e->ce_off8;
	case KV_ENT_COVER:
		return !p[CE_FLAGS] && e->ce_vlen && e->ce_vlen <= KVDB_KEY_MAX + 1 &&
		       !e->ce_rev && !e->ce_obj && !e->ce_off8;
	case KV_ENT_REF:
		return e->ce_vlen > KV_INLINE_MAX && e->ce_vlen <= KVDB_VALUE_MAX && e->ce_obj;
	default:
		return false;
	}
}

bool kv_commit_trange(const struct kv_commit_ent *e, struct kv_trange *t)
{
	struct kv_rec r = { .r_type = KV_REC_RDEL, .r_klen = e->ce_klen, .r_vlen = e->ce_vlen,
			    .r_key = e->ce_key, .r_val = e->ce_val };

	return kv_rec_trange(&r, t);
}

/* The entry at @p, of which @left bytes are there; its bytes, 0 = it is none. */
static uint32_t ent_take(const uint8_t *p, uint32_t left, struct kv_commit_ent *e)
{
	struct kv_trange t;
	uint32_t size;

	if (left < KV_COMMIT_ENT)
		return 0;
	ent_read(p, e);
	if (!CHECK(ent_ok(p, e)))
		return 0;
	size = kv_commit_ent_size(e->ce_klen, e->ce_kind, e->ce_vlen, p[CE_FLAGS] & FLAG_EXPIRY);
	if (size > left)
		return 0;
	if (e->ce_kind == KV_ENT_COVER && !CHECK(kv_commit_trange(e, &t)))
		return 0;
	if (p[CE_FLAGS] & FLAG_EXPIRY) {
		e->ce_expiry = get_le(p + size - 8, 8);
		if (!CHECK(e->ce_expiry))
			return 0;
	}
	return size;
}

/* How many entries lie in @buf from @pos on, of a part all of store @kvs; -1: these are none. */
static int64_t count_ents(const uint8_t *buf, uint32_t pos, uint32_t len, uint16_t kvs)
{
	struct kv_commit_ent e;
	uint32_t size;
	int64_t n = 0;

	for (; pos < len; n++, pos += size) {
		size = ent_take(buf + pos, len - pos, &e);
		if (!size || !CHECK(!kvs || (e.ce_kind != KV_ENT_PART && e.ce_kvs == kvs)))
			return -1;
	}
	return n;
}

int kv_commit_check(const struct kv_rec *r)
{
	int64_t n;

	if (!CHECK(r->r_type == KV_REC_COMMIT && !r->r_klen && r->r_vlen > KV_COMMIT_HDR &&
		   !get_le(r->r_val + CH_PAD, 4) && !get_le(r->r_val + CH_PAD2, 8)))
		return 450;
	/* R5 */
	if (!CHECK_CRC(mpool_crc32c(0, r->r_val, r->r_vlen) == r->r_vcrc))
		return 451;
	n = count_ents(r->r_val, KV_COMMIT_HDR, r->r_vlen, 0);
	if (n < 0)
		return 452;
	return CHECK((uint64_t)n == get_le(r->r_val + CH_COUNT, 4)) ? 0 : 453;
}

int kv_commit_check_part(const struct kv_commit_ent *e, const uint8_t *buf)
{
	int64_t n;

	if (!CHECK_CRC(mpool_crc32c(0, buf, e->ce_vlen) == e->ce_vcrc))
		return 454;
	n = count_ents(buf, 0, e->ce_vlen, e->ce_kvs);
	if (n < 0)
		return 455;
	return CHECK(n == e->ce_rev) ? 0 : 456;
}

bool kv_commit_next_part(const uint8_t *buf, uint32_t len, uint32_t *pos, struct kv_commit_ent *e)
{
	uint32_t size = *pos < len ? ent_take(buf + *pos, len - *pos, e) : 0;

	*pos += size;
	return size;
}

bool kv_commit_next(const struct kv_rec *r, uint32_t *pos, struct kv_commit_ent *e)
{
	uint32_t size;

	if (!*pos)
		*pos = KV_COMMIT_HDR;
	if (*pos >= r->r_vlen)
		return false;
	size = ent_take(r->r_val + *pos, r->r_vlen - *pos, e);
	*pos += size;
	return size;
}
