/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Media format of runs: key pages, key block indexes and footers. Encoded and
 * decoded in run_omf.c alone; the twins here are host structs: a field's width on
 * media is that of its member, its offset the number that its comment begins
 * with, and bytes without a field are zero. The rest: libkvdb/FORMAT.md. Every
 * decoder takes bytes of unknown origin, reads nothing outside of what it was
 * given, and says which check failed.
 */
#ifndef KV_RUN_OMF_H
#define KV_RUN_OMF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvdb/kvdb.h>

#define KV_KBLOCK_MAGIC	0x4b4c424bu	/* "KBLK" */
#define KV_RUN_FORMAT	0x0100u
#define KV_PAGE		4096u		/* bytes of a key page and of the footer */
#define KV_KPAGE_HDR	24u
#define KV_KPAGE_MAXN	400u		/* entries in a page, at most */
#define KV_KSEG_SIZE	24u		/* one row of the segment table */
#define KV_KBLOCK_MAX	(64u << 20)	/* a key block is never longer, bytes */
#define KV_KBLOCK_SEGS_MAX (1u << 20)
#define KV_KBLOCK_KEYS_MAX ((uint64_t)KV_KBLOCK_MAX / 4096 * KV_KPAGE_MAXN)

/* Areas of a key block after its pages, in this order, each at a multiple of 64; gaps are zero. */
enum kv_karea {
	/*
	 * u32 end[npages], where each separator ends, then the separators back to back. The first
	 * is empty; that of page i is the shortest s with last key of page i-1 < s <= first of i.
	 */
	KV_AREA_FENCE = 0,
	KV_AREA_PAGECRC = 1,	/* u32 crc[npages], each over the 4096 bytes of a page */
	KV_AREA_FILTER = 2,	/* ceil(keys x 10 / 512) blocks (filter.h); no bytes: no filter */
	KV_AREA_SEGS = 3,	/* rows as struct kv_kseg */
	/* rows as kv_ktomb_encode() writes: prefixes first, then by start, then newest first */
	KV_AREA_PTOMB = 4,
	KV_AREA_SPARE = 5,	/* empty */
	KV_AREAS = 6
};

struct kv_area {		/* 16 bytes */
	uint32_t ar_off;	/* 0: bytes from the start of the object */
	uint32_t ar_len;	/* 4: bytes */
	uint32_t ar_crc;	/* 8 */
};

/* Footer. At 0 the magic, 4 bytes; at 4 the format, 2 bytes; at 4092 the CRC32C of the rest. */
struct kv_kfoot {
	uint64_t kf_tag;	/* 8: of the database */
	uint64_t kf_obj;	/* 16: own object id */
	uint32_t kf_kvs;	/* 24: store id */
	uint32_t kf_npages;	/* 28 */
	uint64_t kf_nkeys;	/* 32: entries */
	uint64_t kf_ntombs;	/* 40: of them tombstones */
	uint64_t kf_min_seq;	/* 48: of an entry; if there is none, of a range tombstone */
	uint64_t kf_max_seq;	/* 56: of an entry or range tombstone */
	uint64_t kf_expiring;	/* 2864: entries that expire */
	uint64_t kf_min_expiry;	/* 2872: and between what times, ms; 0 = none */
	uint64_t kf_max_expiry;	/* 2880 */
	uint64_t kf_live_bytes;	/* 64: value bytes its entries refer to, inline ones included */
	struct kv_area kf_area[KV_AREAS]; /* 80 */
	uint16_t kf_min_klen;	/* 72: length of the smallest key */
	uint16_t kf_max_klen;	/* 74 */
	uint8_t kf_min[KVDB_KEY_MAX];	/* 176 */
	uint8_t kf_max[KVDB_KEY_MAX];	/* 1520 */
};

/* -EUCLEAN that names object, offset and check. */
int kv_run_damaged(uint64_t obj, uint64_t off, const char *check);

/* Fills a 4 KiB page and returns the CRC that the parent holds. */
uint32_t kv_kfoot_encode(const struct kv_kfoot *f, uint8_t *page);
/*
 * kv_kfoot_decode - check the footer of key block @obj that is @len bytes long
 * Returns NULL, or the name of the check that failed.
 */
const char *kv_kfoot_decode(const uint8_t *page, uint32_t crc, uint64_t tag, uint64_t obj,
			    uint32_t kvs, uint32_t len, struct kv_kfoot *f);

/*
 * One tombstone over many keys; what it means: base/trange.h. Row: seq (8), length of the start (2)
 * and of the end (2), flags (1; bit 0: the start is a prefix, bit 1: no end; with either the length
 * of the end is 0), 3 zero bytes, start, end, zeroes up to a multiple of 8.
 */
struct kv_trange;
#define KV_KTOMB_HDR	16u	/* bytes of a row in front of its keys */

uint32_t kv_ktomb_size(const struct kv_trange *r);
/* Writes a row of kv_ktomb_size() bytes. */
void kv_ktomb_encode(const struct kv_trange *r, uint8_t *buf);
/*
 * kv_ktomb_decode - the row at @buf, of which @room bytes are there
 * NULL and *size, or the check that failed. Keys point into @buf.
 */
const char *kv_ktomb_decode(const uint8_t *buf, uint32_t room, struct kv_trange *r,
			    uint32_t *size);

/* One row of the segment table, KV_KSEG_SIZE bytes. */
struct kv_kseg {
	uint64_t ks_id;		/* 0: segment object */
	uint64_t ks_bytes;	/* 8: value bytes that this block refers to */
	uint32_t ks_n;		/* 16: entries that refer to it */
};
void kv_kseg_encode(const struct kv_kseg *s, uint8_t *buf);
void kv_kseg_decode(const uint8_t *buf, struct kv_kseg *s);

/*
 * A key page that passed its structural checks. At 16 the number of the page in its block, 4 bytes;
 * from KV_KPAGE_HDR on, n of each: heads, the first 4 bytes of a key after the prefix, padded with
 * zeros, a big-endian number stored little-endian (4); offsets of the entries (2); tags, the lowest
 * byte of a key's hash (1). Then the prefix, the entries in key order, zeroes.
 */
struct kv_kpage {
	const uint8_t *kp_page;
	const uint8_t *kp_heads, *kp_offs, *kp_tags, *kp_prefix;
	uint64_t kp_seq;	/* 8: base, the smallest of the page */
	uint16_t kp_n;		/* 0: entries, 1 to KV_KPAGE_MAXN */
	uint16_t kp_plen;	/* 2: length of the prefix that all keys share */
	uint16_t kp_ents;	/* first byte of entries */
	uint16_t kp_used;	/* 4: end of entries */
};

struct kv_kent {
	uint64_t ke_seq;
	uint64_t ke_expiry;	/* 0 = never */
	const uint8_t *ke_rest;	/* key bytes after the prefix and the head */
	const uint8_t *ke_val;	/* INLINE */
	uint32_t ke_seg;	/* REF: row of the segment table */
	uint32_t ke_off8;
	uint32_t ke_vlen;	/* of the value, as the user knows it */
	uint32_t ke_vcrc;
	uint32_t ke_plen, ke_pcrc; /* packed: of the bytes on media */
	uint16_t ke_slen;	/* key bytes after the prefix, head included */
	uint8_t ke_kind;
	uint8_t ke_pack;	/* enum kvdb_compress, 0 = plain */
};

/* Bytes that the value takes where it lies. */
static inline uint32_t kv_kent_stored(const struct kv_kent *e)
{
	return e->ke_pack ? e->ke_plen : e->ke_vlen;
}

const char *kv_kpage_decode(const uint8_t *page, uint32_t page_no, struct kv_kpage *kp);
/* Entry @i < kp_n. */
const char *kv_kpage_ent(const struct kv_kpage *kp, unsigned i, struct kv_kent *e);
/* Rebuilds the key of entry @i into @buf (KVDB_KEY_MAX bytes); returns its length. */
uint16_t kv_kpage_key(const struct kv_kpage *kp, unsigned i, const struct kv_kent *e, uint8_t *buf);
/* It will be read soon, if there is one. */
void kv_kpage_ent_prefetch(const struct kv_kpage *kp, unsigned i);
/*
 * kv_kpage_lower - first entry that is >= the key
 * Returns its index, kp_n when all are smaller; *exact when it is equal. A
 * damaged entry gives *bad.
 */
unsigned kv_kpage_lower(const struct kv_kpage *kp, const uint8_t *key, size_t klen, bool *exact,
			const char **bad);
/* Finds exactly this key through the tags: its index, or -1. */
int kv_kpage_find(const struct kv_kpage *kp, const uint8_t *key, size_t klen, uint8_t tag,
		  struct kv_kent *e, const char **bad);

static inline uint8_t kv_hash_tag(uint64_t hash)
{
	return (uint8_t)hash;
}

/* ---- builder of one key page ------------------------------------------------- */

/* What the builder keeps of an entry until the page is written. */
struct kv_kpb_ent {
	uint32_t pe_key;	/* offset in pb_bytes; the inline value follows the key */
	uint16_t pe_klen;
	uint8_t pe_kind;
	uint8_t pe_tag;
	uint8_t pe_pack;	/* enum kvdb_compress, 0 = plain */
	uint32_t pe_seg, pe_off8, pe_vlen, pe_vcrc;
	uint32_t pe_plen, pe_pcrc; /* packed: of the bytes on media */
	uint64_t pe_seq;
	uint64_t pe_expiry;	/* 0 = never */
};

struct kv_kpb {
	unsigned pb_n;
	unsigned pb_plen;	/* common prefix of what is in */
	uint64_t pb_seq;	/* smallest */
	unsigned pb_size;	/* bytes of entries, encoded with that prefix and base */
	uint32_t pb_used;	/* of pb_bytes */
	uint32_t pb_cap;
	uint8_t *pb_bytes;
	struct kv_kpb_ent pb_ent[KV_KPAGE_MAXN];
};

/* What one add needs to know; key and value are copied. */
struct kv_kpb_in {
	const uint8_t *in_key;
	const uint8_t *in_val;
	struct kv_kpb_ent in_ent;
};
/* 0, -ENOSPC when the page is full (nothing changed), -ENOMEM. */
int kv_kpb_add(struct kv_kpb *pb, const struct kv_kpb_in *in);
/* Writes the page and empties the builder. */
void kv_kpb_encode(struct kv_kpb *pb, uint32_t page_no, uint8_t *page);
/* Key of entry @i. */
static inline const uint8_t *kv_kpb_key(const struct kv_kpb *pb, unsigned i)
{
	return pb->pb_bytes + pb->pb_ent[i].pe_key;
}

#endif
