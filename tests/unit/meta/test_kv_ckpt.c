/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The manifest of a checkpoint: round trip, every bit flip of the header, hostile records. */
#include "harness.h"

#include <errno.h>

#include "meta/ckpt_omf.h"
#include "seg/kv_omf.h"
#include "meta/mdc_omf.h"

#define TAG (KV_TAG_MARK << 48 | 0x123456789abull)

static uint8_t page[2 * KV_BLOCK];
static struct kv_mdc_buf rec;

static void records(void)
{
	struct kv_mdc_super s = { .ms_uuid = "0123456789abcde", .ms_tag = TAG,
				  .ms_format = KV_FORMAT, .ms_next_kvs = 1, .ms_next_run = 1 };
	struct kv_mdc_buf b = { 0 };

	kv_mdc_buf_free(&rec);
	kv_mdc_enc_super(&b, &s);
	kv_mdc_buf_add(&rec, b.mb_p, b.mb_len);
	kv_mdc_enc_kvs_add(&b, TAG, 1, "first", 3);
	kv_mdc_buf_add(&rec, b.mb_p, b.mb_len);
	kv_mdc_buf_free(&b);
}

static void round_trip(void)
{
	struct kv_manifest in = { TAG, 77, 5, 6, 300 }, out;
	static struct kv_mdc_state st;

	kv_manifest_encode(&in, page);
	T_OK(!kv_manifest_decode(page, KV_BLOCK, &out));
	T_EQ(out.mf_tag, TAG);
	T_EQ(out.mf_obj, 77);
	T_EQ(out.mf_epoch, 5);
	T_EQ(out.mf_seq, 6);
	T_EQ(out.mf_bytes, 300);
	records();
	T_EQ(kv_manifest_fold(rec.mb_p, (uint32_t)rec.mb_len, &st), 0);
	T_EQ(st.st_nkvs, 1);
	T_OK(!strcmp(st.st_kvs[0].mk_name, "first"));
	kv_mdc_state_free(&st);
}

static void every_bit_flip_of_the_header_is_refused(void)
{
	struct kv_manifest in = { TAG, 77, 5, 6, 300 }, out;
	unsigned i;

	for (i = 0; i < 8 * KV_MANIFEST_HDR; i++) {
		kv_manifest_encode(&in, page);
		page[i / 8] ^= (uint8_t)(1u << i % 8);
		T_OK(kv_manifest_decode(page, KV_BLOCK, &out));
	}
}

static void lengths_that_do_not_fit_are_refused(void)
{
	struct kv_manifest in = { TAG, 77, 5, 6, 300 }, out;
	static struct kv_mdc_state st;
	uint32_t i, len;

	kv_manifest_encode(&in, page);
	T_OK(kv_manifest_decode(page, KV_MANIFEST_HDR - 1, &out));
	T_OK(kv_manifest_decode(page, 2 * KV_BLOCK, &out));
	in.mf_bytes = KV_BLOCK;
	kv_manifest_encode(&in, page);
	T_OK(kv_manifest_decode(page, KV_BLOCK, &out));
	T_OK(!kv_manifest_decode(page, 2 * KV_BLOCK, &out));
	/* records cut anywhere but at their ends */
	records();
	memcpy(&len, rec.mb_p + 8, 4);
	for (i = 1; i < rec.mb_len; i++) {
		int rc = kv_manifest_fold(rec.mb_p, i, &st);

		T_OK(i == len ? !rc : rc > 0);
		kv_mdc_state_free(&st);
	}
	/* a length of nothing must not make it go round for ever */
	memset(rec.mb_p + 8, 0, 4);
	T_EQ(kv_manifest_fold(rec.mb_p, (uint32_t)rec.mb_len, &st), 1);
	kv_mdc_state_free(&st);
	kv_mdc_buf_free(&rec);
}

int main(void)
{
	T_RUN(round_trip);
	T_RUN(every_bit_flip_of_the_header_is_refused);
	T_RUN(lengths_that_do_not_fit_are_refused);
	return t_done();
}
