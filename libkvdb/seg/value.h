/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Entries, what memtables and runs say about a key, and the values that they refer to. */
#ifndef KV_VALUE_H
#define KV_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kv_seg;
struct kv_want;
struct kvdb;

#define KV_INLINE_MAX	128u	/* values up to this live with their key, bytes */

enum kv_ent_kind {
	KV_ENT_TOMB = 1,
	KV_ENT_INLINE = 2,
	KV_ENT_REF = 3,
	KV_ENT_COVER = 4,	/* tomb.c: a version that is a delete of many keys */
	/* point.c: plain bytes in the window, at e_val until kv_exit(); no segment, CRC, stamp */
	KV_ENT_INMEM = 5,
	KV_ENT_PART = 6,	/* of a commit record: a piece of it that lies elsewhere */
};

struct kv_ent {
	const uint8_t *e_key;
	uint16_t e_klen;
	uint8_t e_kind;		/* enum kv_ent_kind */
	uint8_t e_pack;		/* REF: how it is packed (enum kvdb_compress), 0 = plain */
	uint32_t e_vlen;	/* of the value, as the user knows it */
	uint32_t e_vcrc;	/* CRC32C of the value, as the user knows it */
	uint32_t e_plen;	/* packed: bytes on media */
	uint32_t e_pcrc;	/* packed: CRC32C of the bytes on media */
	uint32_t e_off8;	/* REF: offset of the value in the segment, / 8 */
	struct kv_seg *e_seg;	/* REF */
	const uint8_t *e_val;	/* INLINE, NEAR: the bytes */
	uint64_t e_seq;
	uint64_t e_expiry;	/* engine time from which on it is a tombstone, ms; 0 = never */
};

/* Bytes that the value takes where it lies. */
static inline uint32_t kv_ent_stored(const struct kv_ent *e)
{
	return e->e_pack ? e->e_plen : e->e_vlen;
}

/*
 * kv_value_read - the bytes of an entry's value (value.c)
 * Copies min(size, vlen) bytes to @buf. Verifies the CRC when the bytes came
 * from a device (then the whole value is read), not when they are in memory.
 * Call inside kv_enter().
 */
int kv_value_read(struct kvdb *db, const struct kv_ent *e, void *buf, size_t size);
/* The kv_ent_stored() bytes of a reference as they lie; packed ones are always verified. */
int kv_value_read_stored(struct kvdb *db, const struct kv_ent *e, void *buf);

#define KV_AHEAD_MAX	32u	/* entries of one kv_values_ahead() */
/* kv_pages_ahead() for the values of entries; what is in the window costs nothing. */
void kv_values_ahead(struct kvdb *db, const struct kv_ent *e, unsigned n);
/*
 * Fills @want, of KV_AHEAD_MAX, with what the pool lacks of their values, and @from with
 * whose it is; returns how many. Inside kv_enter().
 */
unsigned kv_values_want(struct kvdb *db, const struct kv_ent *e, unsigned n, struct kv_want *want,
			const struct kv_ent **from);

/* Has the value of @e no page of the pool to wait for, by now? */
bool kv_value_is_near(const struct kv_ent *e);
/* It will be read soon: prefetches it if it has an image. Its segment lives. */
void kv_value_prefetch(const struct kv_ent *e);
/*
 * kv_values_touch - prefetches the first line of each of @n values, where it has an image
 * One after another the processor would wait for the translation of each address: with this, and
 * a key page five entries ahead, a scan of 50 takes 11.0 us instead of 13.8. Touching the values
 * of more entries changes nothing.
 */
void kv_values_touch(const struct kv_ent *e, unsigned n);

/* What it is once it has expired. */
static inline void kv_ent_expire(struct kv_ent *e)
{
	e->e_kind = KV_ENT_TOMB;
	e->e_pack = 0;
	e->e_vlen = 0;
	e->e_vcrc = 0;
	e->e_seg = NULL;
	e->e_expiry = 0;
}

static inline bool kv_is_expired(const struct kv_ent *e, uint64_t now_ms)
{
	return e->e_expiry && e->e_expiry <= now_ms;
}

#endif
