/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Media format of a commit record's value: the write set of a transaction.
 * At 0 the number of writes, 4 bytes; from 16 on the writes, back to back. Each
 * is KV_COMMIT_ENT bytes, where the numbers below are offsets and the widths are
 * the members'; at 5, 1 byte, flags: bit 0: expiry, of values alone. Then come
 * the key padded to 8; of INLINE and COVER the value padded to 8; with an expiry
 * that, 8 bytes. Bytes that are not listed are zero. A key occurs once in a
 * commit, parts included.
 */
#ifndef KV_TXN_OMF_H
#define KV_TXN_OMF_H

#include "base/trange.h"
#include "seg/kv_omf.h"

#define KV_COMMIT_HDR	16u	/* bytes */
#define KV_COMMIT_ENT	32u	/* bytes, without key, inline value and expiry */
/* the record is one frame's, so that a crash takes all of it or nothing */
#define KV_COMMIT_MAX	((2u << 20) - KV_FRAME_HDR - KV_REC_HDR)

/*
 * KV_ENT_COVER (KV_FEAT_TXN_RANGES): a delete of a range; key and value as in a KV_REC_RDEL. Its
 * tombstone has the sequence number before the transaction's (T13).
 * KV_ENT_PART (KV_FEAT_TXN_PARTS): ce_rev entries of one store, none a part, in the value of a
 * keyless put with KV_RECF_TXN; no key.
 */
struct kv_commit_ent {
	const uint8_t *ce_key;
	const uint8_t *ce_val;	/* KV_ENT_INLINE, KV_ENT_COVER */
	uint64_t ce_obj;	/* 24: KV_ENT_REF, KV_ENT_PART: segment with the value; else 0 */
	uint64_t ce_expiry;	/* engine time, ms; 0 = never */
	uint32_t ce_off8;	/* 20: the same: offset of the value there, / 8 */
	uint32_t ce_rev;	/* 8: as kv_rec.r_rev; COVER: 0; PART: entries in it, not 0 */
	/* 12: TOMB 0, INLINE at most 128, REF and PART more, COVER 1 to 1345 */
	uint32_t ce_vlen;
	uint32_t ce_vcrc;	/* 16: CRC32C of the value */
	uint16_t ce_kvs;	/* 0: store id */
	uint16_t ce_klen;	/* 2 */
	uint8_t ce_kind;	/* 4: enum kv_ent_kind: TOMB, INLINE, REF, COVER or PART */
};

/* Bytes of one write in the record's value. */
uint32_t kv_commit_ent_size(uint16_t klen, uint8_t kind, uint32_t vlen, bool expires);
void kv_commit_encode_hdr(uint8_t *buf, uint32_t count);
/* Returns the bytes written. */
uint32_t kv_commit_encode_ent(uint8_t *buf, const struct kv_commit_ent *e);
/* The range of a KV_ENT_COVER, with @e's keys and without a stamp; false: it is none. */
bool kv_commit_trange(const struct kv_commit_ent *e, struct kv_trange *t);
void kv_commit_set_rev(uint8_t *ent, uint32_t rev);
/*
 * kv_commit_check - the whole write set: CRC, count, every length and kind
 * Returns 0, or the number of the check that failed.
 */
int kv_commit_check(const struct kv_rec *r);
/* Walks a write set that was checked: *pos is 0 first. False at the end. */
bool kv_commit_next(const struct kv_rec *r, uint32_t *pos, struct kv_commit_ent *e);
/* What a KV_ENT_PART @e names: as kv_commit_check(), with the number of entries that it tells. */
int kv_commit_check_part(const struct kv_commit_ent *e, const uint8_t *buf);
/* Walks one that was checked: *pos is 0 first. False at the end. */
bool kv_commit_next_part(const uint8_t *buf, uint32_t len, uint32_t *pos, struct kv_commit_ent *e);

#endif
