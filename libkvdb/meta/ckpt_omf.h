/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The manifest of a checkpoint: an mblock that lists by itself everything that
 * the checkpoint consists of. A header of 64 bytes, then records as in the
 * metadata container, back to back, zero-padded to 4096.
 */
#ifndef KV_CKPT_OMF_H
#define KV_CKPT_OMF_H

#include <stdint.h>

#include "base/stream.h"

struct kv_mdc_state;

#define KV_MANIFEST_MAGIC 0x5043564bu	/* "KVCP" */
#define KV_MANIFEST_HDR	64u		/* bytes */
#define KV_MANIFEST_MAX	(256u << 20)	/* bytes; more is no manifest */

/*
 * Offsets, and widths as the members have. At 0 the magic, 4 bytes; at 4 KV_FORMAT, 4 bytes; at 60
 * the CRC32C of bytes [0, 60). The others are zero.
 */
struct kv_manifest {
	uint64_t mf_tag;	/* 8: the database's */
	uint64_t mf_obj;	/* 16: its own object */
	uint64_t mf_epoch;	/* 24: the boundary: epochs up to it are in it, whole */
	uint64_t mf_seq;	/* 32: above every one in it */
	uint32_t mf_bytes;	/* 40: of the records */
};

/* Bytes of a manifest whose records take the given bytes. */
static inline uint64_t kv_manifest_bytes(uint64_t records)
{
	return (KV_MANIFEST_HDR + records + KV_BLOCK - 1) / KV_BLOCK * KV_BLOCK;
}

/* Writes the header; records and padding are the caller's. */
void kv_manifest_encode(const struct kv_manifest *mf, uint8_t *p);
/* NULL, or what is wrong with the first 64 of @len bytes. */
const char *kv_manifest_decode(const uint8_t *p, uint64_t len, struct kv_manifest *mf);
/* Folds the records into @st, which is empty. As kv_mdc_fold(); 1 for a length that is wrong. */
int kv_manifest_fold(const uint8_t *rec, uint32_t bytes, struct kv_mdc_state *st);

#endif
