/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Encoding and decoding of the manifest of a checkpoint. */
#include <string.h>

#include "ckpt_omf.h"

/* byte offsets */
enum { MF_MAGIC = 0, MF_FORMAT = 4, MF_TAG = 8, MF_OBJ = 16, MF_EPOCH = 24, MF_SEQ = 32,
       MF_BYTES = 40, MF_ZERO = 44, MF_CRC = 60 };
#define REC_LEN	8u	/* of the length in a record's header */

static void put(uint8_t *p, uint64_t v, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t get(const uint8_t *p, unsigned bytes)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < bytes; i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}

void kv_manifest_encode(const struct kv_manifest *mf, uint8_t *p)
{
	memset(p, 0, KV_MANIFEST_HDR);
	put(p + MF_MAGIC, KV_MANIFEST_MAGIC, 4);
	put(p + MF_FORMAT, KV_FORMAT, 2);
	put(p + MF_TAG, mf->mf_tag, 8);
	put(p + MF_OBJ, mf->mf_obj, 8);
	put(p + MF_EPOCH, mf->mf_epoch, 8);
	put(p + MF_SEQ, mf->mf_seq, 8);
	put(p + MF_BYTES, mf->mf_bytes, 4);
	put(p + MF_CRC, mpool_crc32c(0, p, MF_CRC), 4);
}

const char *kv_manifest_decode(const uint8_t *p, uint64_t len, struct kv_manifest *mf)
{
	if (len < KV_MANIFEST_HDR || get(p + MF_MAGIC, 4) != KV_MANIFEST_MAGIC)
		return "it is no manifest";
	if (!CHECK(554, get(p + MF_CRC, 4) == mpool_crc32c(0, p, MF_CRC)))
		return "CRC of its header";
	if (get(p + MF_FORMAT, 4) != KV_FORMAT)
		return "its format is not known here";
	for (unsigned i = MF_ZERO; i < MF_CRC; i++)
		if (p[i])
			return "reserved bytes of its header";
	mf->mf_tag = get(p + MF_TAG, 8);
	mf->mf_obj = get(p + MF_OBJ, 8);
	mf->mf_epoch = get(p + MF_EPOCH, 8);
	mf->mf_seq = get(p + MF_SEQ, 8);
	mf->mf_bytes = (uint32_t)get(p + MF_BYTES, 4);
	return kv_manifest_bytes(mf->mf_bytes) == len ? NULL : "its length";
}

int kv_manifest_fold(const uint8_t *rec, uint32_t bytes, struct kv_mdc_state *st)
{
	uint32_t off = 0, len;
	int rc = 0;

	while (!rc && off < bytes) {
		len = bytes - off < KV_MDC_HDR ? 0 : (uint32_t)get(rec + off + REC_LEN, 4);
		if (len < KV_MDC_HDR || len > bytes - off)
			return 1;
		rc = kv_mdc_fold(st, rec + off, len);
		off += len;
	}
	return rc;
}
