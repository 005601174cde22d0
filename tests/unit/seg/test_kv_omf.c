/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Log format: round trip, every bit flip refused, golden bytes, and for every
 * numbered check an input that only this check refuses.
 */
#include "harness.h"

#include <mpool/mpool.h>

#include "seg/kv_omf.h"

#define OBJ	0x1122334455667788ull
#define TAG	0xa1b2c3d4u
#define OFF	8192u

static uint8_t buf[65536];

static const struct kv_frame_hdr frame_in = {
	.fh_incarnation = 3, .fh_log = 7, .fh_stream = KV_KLOG, .fh_tag = TAG, .fh_obj = OBJ,
	.fh_off = OFF, .fh_len = 200, .fh_epoch = 0x0102030405060708ull, .fh_chain = 0xdeadbeef,
	.fh_nrec = 2,
};

static void put_crc(void)
{
	uint32_t c = mpool_crc32c(0, buf, 60);

	buf[60] = (uint8_t)c;
	buf[61] = (uint8_t)(c >> 8);
	buf[62] = (uint8_t)(c >> 16);
	buf[63] = (uint8_t)(c >> 24);
}

static void make_frame(struct kv_frame_hdr *h)
{
	uint32_t i, crc;

	memset(buf, 0, sizeof(buf));
	for (i = KV_FRAME_HDR; i < 200; i++)
		buf[i] = (uint8_t)(i * 7);
	*h = frame_in;
	h->fh_payload_crc = mpool_crc32c(0, buf + KV_FRAME_HDR, h->fh_len - KV_FRAME_HDR);
	kv_frame_encode(h, buf, &crc);
	h->fh_crc = crc;
}

static int decode(struct kv_frame_hdr *h)
{
	return kv_frame_decode(buf, TAG, OBJ, OFF, 4096, h);
}

static void frame_round_trip(void)
{
	struct kv_frame_hdr a, b;

	make_frame(&a);
	memset(&b, 0, sizeof(b));
	T_EQ(decode(&b), 0);
	T_EQ(b.fh_incarnation, a.fh_incarnation);
	T_EQ(b.fh_log, a.fh_log);
	T_EQ(b.fh_stream, a.fh_stream);
	T_EQ(b.fh_tag, a.fh_tag);
	T_EQ(b.fh_obj, a.fh_obj);
	T_EQ(b.fh_off, a.fh_off);
	T_EQ(b.fh_len, a.fh_len);
	T_EQ(b.fh_epoch, a.fh_epoch);
	T_EQ(b.fh_chain, a.fh_chain);
	T_EQ(b.fh_payload_crc, a.fh_payload_crc);
	T_EQ(b.fh_nrec, a.fh_nrec);
	T_EQ(b.fh_crc, a.fh_crc);
	T_OK(kv_frame_check_payload(buf, &b));
}

static void frame_every_bit_flip_is_refused(void)
{
	struct kv_frame_hdr h;
	uint32_t i;

	make_frame(&h);
	for (i = 0; i < 200 * 8; i++) {
		buf[i / 8] ^= (uint8_t)(1u << (i % 8));
		T_OK(decode(&h) || !kv_frame_check_payload(buf, &h));
		buf[i / 8] ^= (uint8_t)(1u << (i % 8));
	}
	T_EQ(decode(&h), 0);
}

/* One wrong field with a right CRC. */
static void frame_each_check(void)
{
	static const struct { unsigned at; uint8_t x; int want; } bad[] = {
		{ 0, 1, 400 }, { 4, 1, 401 }, { 8, 1, 403 }, { 16, 1, 404 }, { 25, 0x10, 404 },
		{ 29, 0x80, 405 }, { 30, 0xff, 405 }, { 6, 2, 406 }, { 7, 1, 406 }, { 54, 1, 406 },
		{ 56, 1, 406 }, { 12, 3, 406 }, { 39, 0x40, 406 },
	};
	struct kv_frame_hdr h;
	unsigned i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		make_frame(&h);
		buf[bad[i].at] ^= bad[i].x;
		put_crc();
		T_EQ(decode(&h), bad[i].want);
	}
	make_frame(&h);
	buf[60] ^= 1;
	T_EQ(decode(&h), 402);
	make_frame(&h);
	T_EQ(kv_frame_decode(buf, TAG, OBJ, OFF, 128, &h), 405);
	T_EQ(kv_frame_decode(buf, TAG, OBJ, OFF, 1024, &h), 405);
	T_EQ(kv_frame_decode(buf, TAG, OBJ, OFF, 32, &h), 400);
	T_EQ(decode(&h), 0);
	buf[100] ^= 1;
	T_OK(!kv_frame_check_payload(buf, &h));
}

static void frame_golden(void)
{
	static const uint8_t want[] = {
		0x4b, 0x46, 0x52, 0x4d, 0x00, 0x01, 0x01, 0x00, 0xd4, 0xc3, 0xb2, 0xa1, 0x03, 0,
			0, 0,
		0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x00, 0x20, 0, 0, 0xc8, 0, 0, 0,
		0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, 0xef, 0xbe, 0xad, 0xde,
	};
	struct kv_frame_hdr h;

	make_frame(&h);
	T_MEMEQ(buf, want, sizeof(want));
	T_EQ(buf[48], 2);
	T_EQ(buf[52], 7);
}

static void make_rec(void)
{
	memset(buf, 0xee, sizeof(buf));
	kv_rec_encode(buf, KV_REC_PUT, 5, "hello", 5, "world of values", 15,
		      mpool_crc32c(0, "world of values", 15));
	kv_rec_set_rev(buf, 9);
	kv_rec_stamp(buf, OBJ, OFF, 0x123456789abcull);
}

static void record_round_trip(void)
{
	struct kv_rec r;

	make_rec();
	T_EQ(kv_rec_decode(buf, OBJ, OFF, 4096, true, &r), 0);
	T_EQ(r.r_type, KV_REC_PUT);
	T_EQ(r.r_kvs, 5);
	T_EQ(r.r_klen, 5);
	T_EQ(r.r_vlen, 15);
	T_EQ(r.r_seq, 0x123456789abcll);
	T_EQ(r.r_rev, 9);
	T_EQ(r.r_size, 32 + 8 + 16);
	T_MEMEQ(r.r_key, "hello", 5);
	T_MEMEQ(r.r_val, "world of values", 15);
	T_EQ(r.r_val - buf, kv_rec_val_off(5));
	/* stamping again changes nothing: a helper may do it too */
	kv_rec_stamp(buf, OBJ, OFF, 0x123456789abcull);
	T_EQ(kv_rec_decode(buf, OBJ, OFF, 4096, true, &r), 0);
	/* empty value */
	kv_rec_encode(buf, KV_REC_PUT, 1, "k", 1, NULL, 0, 0);
	kv_rec_stamp(buf, OBJ, OFF, 1);
	T_EQ(kv_rec_decode(buf, OBJ, OFF, 40, true, &r), 0);
	T_EQ(r.r_size, 40);
}

static void record_every_bit_flip_is_refused(void)
{
	struct kv_rec r;
	uint32_t i, byte;

	make_rec();
	for (i = 0; i < 56 * 8; i++) {
		byte = i / 8;
		if ((byte >= 37 && byte < 40) || byte >= 55)
			continue;	/* padding; the frame's payload CRC covers it */
		buf[byte] ^= (uint8_t)(1u << (i % 8));
		T_OK(kv_rec_decode(buf, OBJ, OFF, 4096, true, &r));
		buf[byte] ^= (uint8_t)(1u << (i % 8));
	}
	T_EQ(kv_rec_decode(buf, OBJ, OFF, 4096, true, &r), 0);
}

static void record_each_check(void)
{
	struct kv_rec r;

	make_rec();
	T_EQ(kv_rec_decode(buf, OBJ, OFF, 24, true, &r), 408);
	T_EQ(kv_rec_decode(buf, OBJ, OFF, 48, true, &r), 409);
	T_EQ(kv_rec_decode(buf, OBJ + 1, OFF, 4096, true, &r), 410);
	T_EQ(kv_rec_decode(buf, OBJ, OFF + 8, 4096, true, &r), 410);
	buf[44] ^= 1;
	T_EQ(kv_rec_decode(buf, OBJ, OFF, 4096, true, &r), 412);
	T_EQ(kv_rec_decode(buf, OBJ, OFF, 4096, false, &r), 0);
	make_rec();
	buf[4] = KV_REC_TYPES;
	kv_rec_stamp(buf, OBJ, OFF, 1);
	T_EQ(kv_rec_decode(buf, OBJ, OFF, 4096, true, &r), 411);
	make_rec();
	buf[5] = 0x80;
	kv_rec_stamp(buf, OBJ, OFF, 1);
	T_EQ(kv_rec_decode(buf, OBJ, OFF, 4096, true, &r), 411);
	/* in memory it could be the address of what decides a stamp */
	make_rec();
	kv_rec_stamp(buf, OBJ, OFF, KV_NUMBER_END);
	T_EQ(kv_rec_decode(buf, OBJ, OFF, 4096, true, &r), 654);
	kv_rec_stamp(buf, OBJ, OFF, KV_NUMBER_END - 1);
	T_EQ(kv_rec_decode(buf, OBJ, OFF, 4096, true, &r), 0);
	/* a transaction's value is a put */
	make_rec();
	kv_rec_set_flags(buf, KV_RECF_TXN);
	kv_rec_stamp(buf, OBJ, OFF, 1);
	T_EQ(kv_rec_decode(buf, OBJ, OFF, 4096, true, &r), 0);
	T_EQ(r.r_flags, KV_RECF_TXN);
	buf[4] = KV_REC_DEL;
	kv_rec_stamp(buf, OBJ, OFF, 1);
	T_EQ(kv_rec_decode(buf, OBJ, OFF, 4096, true, &r), 411);
}

static void record_golden(void)
{
	static const uint8_t want[] = {
		KV_REC_PUT, 0, 5, 0, 5, 0, 0, 0, 15, 0, 0, 0, 0xbc, 0x9a, 0x78, 0x56, 0x34, 0x12,
			0, 0,
		9, 0, 0, 0,
	};

	make_rec();
	T_MEMEQ(buf + 4, want, sizeof(want));
	T_MEMEQ(buf + 32, "hello\0\0\0world of values\0", 24);
}

/* A mark is the frame's last record: a skip to earlier programs, gone with any of its bits. */
static void mark_round_trip_and_flips(void)
{
	struct kv_frame_hdr h = frame_in;
	struct kv_mark in = { .ma_begin = 4096, .ma_prev = 17 }, m;
	uint32_t at = h.fh_len - KV_MARK_SIZE;
	struct kv_rec r;

	memset(buf, 0, sizeof(buf));
	T_OK(!kv_mark_decode(buf, &h, &m));
	kv_mark_encode(buf + at, OBJ, OFF + at, &in);
	T_OK(kv_mark_decode(buf, &h, &m));
	T_EQ(m.ma_begin, 4096);
	T_EQ(m.ma_prev, 17);
	T_EQ(kv_rec_decode(buf + at, OBJ, OFF + at, KV_MARK_SIZE, true, &r), 0);
	T_EQ(r.r_type, KV_REC_SKIP);
	T_EQ(r.r_size, KV_MARK_SIZE);
	T_EQ(r.r_seq, 0);
	for (uint32_t i = 0; i < KV_MARK_SIZE * 8; i++) {
		buf[at + i / 8] ^= (uint8_t)(1u << i % 8);
		T_OK(!kv_mark_decode(buf, &h, &m));
		buf[at + i / 8] ^= (uint8_t)(1u << i % 8);
	}
	in.ma_begin = OFF + 4096;	/* behind its own frame */
	kv_mark_encode(buf + at, OBJ, OFF + at, &in);
	T_OK(!kv_mark_decode(buf, &h, &m));
	in = (struct kv_mark){ .ma_prev = h.fh_epoch };
	kv_mark_encode(buf + at, OBJ, OFF + at, &in);
	T_OK(!kv_mark_decode(buf, &h, &m));
}

static void skip_is_passed_over(void)
{
	struct kv_rec r;

	memset(buf, 0x5a, sizeof(buf));
	kv_rec_encode_skip(buf, OBJ, OFF, 256);
	T_EQ(kv_rec_decode(buf, OBJ, OFF, 256, true, &r), 0);
	T_EQ(r.r_type, KV_REC_SKIP);
	T_EQ(r.r_size, 256);
	for (unsigned i = KV_REC_HDR; i < 256; i++)
		T_EQ(buf[i], 0);
}

static void descriptor_round_trip_and_flips(void)
{
	struct kv_desc_ent in[3] = { { 10, 4096, 1 }, { 11, 8192, 2 }, { 12, 12288, 3 } }, e;
	struct kv_desc d = { .ds_incarnation = 2, .ds_n = 3, .ds_epoch = 77, .ds_prev_epoch = 76,
			     .ds_prev_obj = 10, .ds_prev_off = 4096 }, got;
	uint32_t i, size = KV_REC_HDR + kv_desc_size(3);
	struct kv_rec r;

	kv_desc_encode(buf, OBJ, OFF, &d, in);
	T_EQ(kv_rec_decode(buf, OBJ, OFF, size, true, &r), 0);
	T_EQ(r.r_size, size);
	T_EQ(kv_desc_decode(&r, &got), 0);
	T_EQ(got.ds_epoch, 77);
	T_EQ(got.ds_prev_epoch, 76);
	T_EQ(got.ds_prev_obj, 10);
	T_EQ(got.ds_prev_off, 4096);
	T_EQ(got.ds_incarnation, 2);
	for (i = 0; i < 3; i++) {
		kv_desc_ent(&r, i, &e);
		T_EQ(e.de_obj, in[i].de_obj);
		T_EQ(e.de_end, in[i].de_end);
		T_EQ(e.de_chain, in[i].de_chain);
	}
	for (i = 0; i < size * 8; i++) {
		buf[i / 8] ^= (uint8_t)(1u << (i % 8));
		T_OK(kv_rec_decode(buf, OBJ, OFF, size, false, &r) || kv_desc_decode(&r, &got));
		buf[i / 8] ^= (uint8_t)(1u << (i % 8));
	}
}

static void descriptor_each_check(void)
{
	struct kv_desc_ent in[1] = { { 10, 4096, 1 } };
	struct kv_desc d = { .ds_incarnation = 2, .ds_n = 1, .ds_epoch = 77, .ds_prev_epoch = 77 };
	struct kv_desc got;
	struct kv_rec r;

	kv_desc_encode(buf, OBJ, OFF, &d, in);
	T_EQ(kv_rec_decode(buf, OBJ, OFF, 4096, true, &r), 0);
	T_EQ(kv_desc_decode(&r, &got), 415);	/* previous not before it */
	d.ds_prev_epoch = 5;
	d.ds_prev_off = 12;
	kv_desc_encode(buf, OBJ, OFF, &d, in);
	T_EQ(kv_rec_decode(buf, OBJ, OFF, 4096, true, &r), 0);
	T_EQ(kv_desc_decode(&r, &got), 415);
	d.ds_prev_off = 0;
	kv_desc_encode(buf, OBJ, OFF, &d, in);
	buf[KV_REC_HDR + 8] ^= 1;
	T_EQ(kv_rec_decode(buf, OBJ, OFF, 4096, false, &r), 0);
	T_EQ(kv_desc_decode(&r, &got), 414);
	make_rec();
	T_EQ(kv_rec_decode(buf, OBJ, OFF, 4096, true, &r), 0);
	T_EQ(kv_desc_decode(&r, &got), 413);
}

int main(void)
{
	T_RUN(frame_round_trip);
	T_RUN(frame_every_bit_flip_is_refused);
	T_RUN(frame_each_check);
	T_RUN(frame_golden);
	T_RUN(record_round_trip);
	T_RUN(record_every_bit_flip_is_refused);
	T_RUN(record_each_check);
	T_RUN(record_golden);
	T_RUN(skip_is_passed_over);
	T_RUN(mark_round_trip_and_flips);
	T_RUN(descriptor_round_trip_and_flips);
	T_RUN(descriptor_each_check);
	return t_done();
}
