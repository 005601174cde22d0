/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Encoding and decoding of the manifest of a checkpoint. */
#include <string.h>

#include "meta/ckpt_omf.h"
#include "base/guard.h"
#include "base/le.h"
#include "seg/kv_omf.h"
#include "meta/mdc_omf.h"

/* byte offsets */
enum { MF_MAGIC = 0, MF_FORMAT = 4, MF_TAG = 8, MF_OBJ = 16, MF_EPOCH = 24, MF_SEQ = 32,
       MF_BYTES = 40, MF_ZERO = 44, MF_CRC = 60 };
#define REC_LEN	8u	/* of the length in a record's header */

void kv_manifest_encode(const struct kv_manifest *mf, uint8_t *p)
{
	memset(p, 0, KV_MANIFEST_HDR);
	kv_le32_set(p + MF_MAGIC, KV_MANIFEST_MAGIC);
	kv_le16_set(p + MF_FORMAT, KV_FORMAT);
	kv_le64_set(p + MF_TAG, mf->mf_tag);
	kv_le64_set(p + MF_OBJ, mf->mf_obj);
	kv_le64_set(p + MF_EPOCH, mf->mf_epoch);
	kv_le64_set(p + MF_SEQ, mf->mf_seq);
	kv_le32_set(p + MF_BYTES, mf->mf_bytes);
	kv_le32_set(p + MF_CRC, mpool_crc32c(0, p, MF_CRC));
}

const char *kv_manifest_decode(const uint8_t *p, uint64_t len, struct kv_manifest *mf)
{
	if (len < KV_MANIFEST_HDR || kv_le32(p + MF_MAGIC) != KV_MANIFEST_MAGIC)
		return "it is no manifest";
	if (!CHECK_CRC(kv_le32(p + MF_CRC) == mpool_crc32c(0, p, MF_CRC)))
		return "CRC of its header";
	if (kv_le32(p + MF_FORMAT) != KV_FORMAT)
		return "its format is not known here";
	for (unsigned i = MF_ZERO; i < MF_CRC; i++)
		if (p[i])
			return "reserved bytes of its header";
	mf->mf_tag = kv_le64(p + MF_TAG);
	mf->mf_obj = kv_le64(p + MF_OBJ);
	mf->mf_epoch = kv_le64(p + MF_EPOCH);
	mf->mf_seq = kv_le64(p + MF_SEQ);
	mf->mf_bytes = kv_le32(p + MF_BYTES);
	return kv_manifest_bytes(mf->mf_bytes) == len ? NULL : "its length";
}

int kv_manifest_fold(const uint8_t *rec, uint32_t bytes, struct kv_mdc_state *st)
{
	uint32_t off = 0, len;
	int rc = 0;

	while (!rc && off < bytes) {
		len = bytes - off < KV_MDC_HDR ? 0 : kv_le32(rec + off + REC_LEN);
		if (len < KV_MDC_HDR || len > bytes - off)
			return 1;
		rc = kv_mdc_fold(st, rec + off, len);
		off += len;
	}
	return rc;
}
