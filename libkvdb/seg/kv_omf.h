/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Media format of the logs: frames, records, epoch descriptors. Everything is
 * little-endian and is encoded and decoded in kv_omf.c alone; the twins here
 * are host structs: a field's width on media is that of its member, and its
 * offset the number that its comment begins with. The rest: libkvdb/FORMAT.md.
 *
 * A log segment is an append mblock that holds frames from offset 0 on. A
 * frame is one write of one epoch: a 64-byte header, then records back to
 * back, each aligned to 8, zero-padded to a multiple of 4096. A record is a
 * 32-byte header, the key padded to 8 and the value padded to 8, so that a
 * value begins at a multiple of 8 and a reference can name it directly.
 */
#ifndef KV_OMF_H
#define KV_OMF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/stream.h"

struct kv_trange;

#define KV_FRAME_MAGIC	0x4d52464bu	/* "KFRM" */
#define KV_FORMAT	0x0100u
#define KV_FRAME_HDR	64u		/* bytes */
#define KV_REC_HDR	32u		/* bytes */
#define KV_REC_ALIGN	8u
#define KV_FRAME_MAX	((16u << 20) + KV_BLOCK) /* bytes, padding included: one largest value */
#define KV_VALUE_PLAIN	(1u << 20)	/* bytes; longer values need KV_FEAT_LARGE */
#define KV_DESC_ENTS_MAX 65536u		/* segments one epoch may write to */
/* Epochs and stamps are smaller: the highest bit of a stamp in memory says that it is none yet. */
#define KV_NUMBER_END	(1ull << 62)

/*
 * What relocation writes: frames of this log number in the stream of values, records of this
 * revision, which no log record of the same key and sequence number has.
 */
#define KV_MOVED_LOG	0xffffu
#define KV_MOVED_REV	UINT32_MAX

/* At 0 KV_FRAME_MAGIC, 4 bytes; at 4 KV_FORMAT, 2 bytes. Bytes that are not listed are zero. */
struct kv_frame_hdr {
	uint32_t fh_incarnation; /* 12: from 1 */
	uint16_t fh_log;	/* 52: log number, or KV_MOVED_LOG */
	uint8_t fh_stream;	/* 6: enum kv_stream: 0 values, 1 keys */
	uint32_t fh_tag;	/* 8: low half of the database's tag */
	uint64_t fh_obj;	/* 16: object the frame lies in */
	uint32_t fh_off;	/* 24: bytes from the object's start */
	/*
	 * 28: bytes of header and records, without padding: at most KV_FRAME_MAX, and 2 MiB
	 * without KV_FEAT_LARGE
	 */
	uint32_t fh_len;
	uint64_t fh_epoch;	/* 32: from 1 */
	/* 40: header CRC of the previous frame in the segment, 0 for the first */
	uint32_t fh_chain;
	uint32_t fh_payload_crc; /* 44: of bytes [64, len) */
	uint32_t fh_nrec;	/* 48: records */
	uint32_t fh_crc;	/* 60: of bytes [0, 60): the next frame's chain */
};

enum kv_rec_type {
	KV_REC_PUT = 1,
	KV_REC_DEL = 2,
	KV_REC_SKIP = 3,	/* space of a record that was withdrawn */
	KV_REC_DESC = 4,	/* epoch descriptor: no key, value = kv_desc */
	KV_REC_COMMIT = 5,	/* a transaction: no key, value = its write set (txn_omf.h) */
	KV_REC_PDEL = 6,	/* prefix delete: key = prefix */
	KV_REC_RDEL = 7,	/* range delete: key = start, value = flags (1), end */
	KV_REC_TYPES
};

/* Bits of r_flags. */
/* a put that counts only through the commit record that names it; its sequence number is 0 */
#define KV_RECF_TXN	1u
/* an expiry: 8 bytes after the padded value */
#define KV_RECF_EXPIRY	2u
#define KV_REC_EXPIRY	8u		/* bytes of that field */
/*
 * only in moved segments: the value is packed; 8 bytes after the padded value and an expiry: how
 * long it was (28 bits) and the method above that (4 bits), then the CRC32C of what it was
 */
#define KV_RECF_PACKED	4u
#define KV_REC_PACKED	8u		/* bytes of that field */

#define KV_RDEL_ENDLESS	0x01u	/* of KV_REC_RDEL: no end */

/* At 0 a CRC32C of {object id (8), offset of the record in it (4), bytes [4, 32), key, fields}. */
struct kv_rec {
	uint8_t r_type;		/* 4: enum kv_rec_type */
	uint8_t r_flags;	/* 5: KV_RECF_*, of puts; an unknown one is refused */
	uint16_t r_kvs;		/* 6: store id */
	uint16_t r_klen;	/* 8: bytes; for SKIP 0 */
	uint32_t r_vlen;	/* 12: bytes as stored; for SKIP everything after the header */
	uint64_t r_seq;		/* 16 */
	uint32_t r_rev;		/* 24: order of a key's records in one epoch */
	uint32_t r_vcrc;	/* 28: CRC32C of the value as stored */
	/* from the fields after the value */
	uint64_t r_expiry;	/* engine time, ms; 0 = none */
	uint8_t r_pack;		/* enum kvdb_compress: 1 LZ4 block, 2 zstd frame; 0 = plain */
	uint32_t r_raw_len;	/* packed: bytes of the value, as the user knows it */
	uint32_t r_raw_crc;
	const uint8_t *r_key;	/* into the buffer */
	const uint8_t *r_val;
	uint32_t r_size;	/* bytes of the whole record, padding included */
};

static inline uint32_t kv_pad8(uint32_t n)
{
	return (n + 7u) & ~7u;
}

static inline uint32_t kv_rec_size(uint32_t klen, uint32_t vlen)
{
	return KV_REC_HDR + kv_pad8(klen) + kv_pad8(vlen);
}

/* Offset of the value inside a record. */
static inline uint32_t kv_rec_val_off(uint32_t klen)
{
	return KV_REC_HDR + kv_pad8(klen);
}

/*
 * The last record of a frame, which readers that do not know it pass over: what the frame proves
 * of those before it (RV22). It is a SKIP with revision 0x4b52414d ("MARK"); the numbers are
 * offsets in its value.
 */
struct kv_mark {
	uint32_t ma_begin;	/* 0: where the frames of its epoch begin in the segment */
	uint64_t ma_prev;	/* 8: newest earlier epoch that wrote anything, 0 = none is known */
};

#define KV_MARK_SIZE	(KV_REC_HDR + 16u)

void kv_frame_encode(const struct kv_frame_hdr *h, uint8_t *buf, uint32_t *crc);
/*
 * kv_frame_decode - check a frame header found at @off of object @obj
 * Returns 0, or the number of the check that failed. The payload CRC is not
 * looked at: kv_frame_check_payload() does that.
 */
int kv_frame_decode(const uint8_t *buf, uint32_t tag, uint64_t obj, uint32_t off, uint32_t room,
		    struct kv_frame_hdr *h);
bool kv_frame_check_payload(const uint8_t *buf, const struct kv_frame_hdr *h);
/* A record of KV_MARK_SIZE at @off of object @obj. */
void kv_mark_encode(uint8_t *buf, uint64_t obj, uint32_t off, const struct kv_mark *m);
/* Of the frame at @buf, whose header is good; false: it has none that is. */
bool kv_mark_decode(const uint8_t *buf, const struct kv_frame_hdr *h, struct kv_mark *m);

/*
 * The header is written in two steps: everything but the sequence number with
 * the key and value (kv_rec_encode), then, once the version is stamped, the
 * number and the CRC (kv_rec_stamp). Both are idempotent: a helper and the
 * writer may store the same bytes. @val NULL: the caller puts the bytes in place.
 */
void kv_rec_encode(uint8_t *buf, uint8_t type, uint16_t kvs, const void *key, uint16_t klen,
		   const void *val, uint32_t vlen, uint32_t vcrc);
/* Gives an encoded record, which has 8 bytes of room after it, an expiry. */
void kv_rec_set_expiry(uint8_t *buf, uint64_t ms);
/* The same for a value that is packed: as @how, from @len bytes with CRC @crc. */
void kv_rec_set_packed(uint8_t *buf, uint8_t how, uint32_t len, uint32_t crc);
/* For a record that was encoded before the CRC of its value was known. */
void kv_rec_set_vcrc(uint8_t *buf, uint32_t vcrc);
void kv_rec_set_rev(uint8_t *buf, uint32_t rev);
/* Between kv_rec_encode() and kv_rec_stamp(). */
void kv_rec_set_flags(uint8_t *buf, uint8_t flags);
void kv_rec_stamp(uint8_t *buf, uint64_t obj, uint32_t off, uint64_t seq);
/* Is the encoded record one of this key? It may be stamped, again, meanwhile. */
bool kv_rec_is_of(const uint8_t *buf, const void *key, size_t klen);
uint32_t kv_rec_vlen(const uint8_t *buf);
/* Copies a record's header (8-byte aligned) while another thread may be stamping it, again. */
void kv_rec_header_copy(uint8_t *to, const uint8_t *from);
/* A record of @size bytes that readers pass over. Needs @size >= KV_REC_HDR, multiple of 8. */
void kv_rec_encode_skip(uint8_t *buf, uint64_t obj, uint32_t off, uint32_t size);
/*
 * kv_rec_decode - check the record at @buf, which has @room bytes to the end of its frame
 * Returns 0, or the number of the check that failed. The header CRC covers the
 * place, the header, its optional fields and the key; the value's CRC is only compared when
 * @check_value.
 */
int kv_rec_decode(const uint8_t *buf, uint64_t obj, uint32_t off, uint32_t room, bool check_value,
		  struct kv_rec *r);

/*
 * One epoch's proof: every segment that it wrote to, and how far. Offsets in the record's value;
 * the entries, of which the numbers count from their own beginning, follow at 40.
 */
struct kv_desc_ent {
	uint64_t de_obj;	/* 0: segment */
	/* 8: offset of the end of the epoch's last frame there, padding included */
	uint32_t de_end;
	uint32_t de_chain;	/* 12: fh_crc of that frame; of the carrier of this, its fh_chain */
};

struct kv_desc {
	uint32_t ds_incarnation; /* 0 */
	uint32_t ds_n;		/* 4: entries, 1 to KV_DESC_ENTS_MAX */
	uint64_t ds_epoch;	/* 8 */
	uint64_t ds_prev_epoch;	/* 16: newest earlier epoch that wrote anything, 0 = none */
	uint64_t ds_prev_obj;	/* 24: where its descriptor lies */
	uint32_t ds_prev_off;	/* 32: offset of the frame of that */
};

#define KV_DESC_HDR	40u	/* bytes */
#define KV_DESC_ENT	16u

static inline uint32_t kv_desc_size(uint32_t n)
{
	return KV_DESC_HDR + n * KV_DESC_ENT;
}

/* A whole KV_REC_DESC record into @buf; the carrier's own entry must be in @ents. */
void kv_desc_encode(uint8_t *buf, uint64_t obj, uint32_t off, const struct kv_desc *d,
		    const struct kv_desc_ent *ents);
/* 0 or the failed check; @ents_buf points into the record (decode with kv_desc_ent). */
int kv_desc_decode(const struct kv_rec *r, struct kv_desc *d);
void kv_desc_ent(const struct kv_rec *r, uint32_t i, struct kv_desc_ent *e);

/* ---- deletes of many keys ---- */

/* What a log record of a delete of many keys covers; false: it cannot have been written. */
bool kv_rec_trange(const struct kv_rec *r, struct kv_trange *t);
/* Fills the value of a KV_REC_RDEL (KVDB_KEY_MAX + 1 bytes); returns its length. */
uint32_t kv_rec_rdel_value(const struct kv_trange *t, uint8_t *val);

#endif
