/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Commit records: encoding, golden bytes, every check on reading. */
#include "harness.h"

#include <mpool/mpool.h>

#include "db/db.h"
#include "seg/value.h"
#include "txn/txn_omf.h"

#define OBJ 0x1122334455667788ull
#define OFF 64u

static uint8_t buf[4096];
static struct kv_rec r;

static const struct kv_commit_ent ents[] = {
	{ .ce_key = (const uint8_t *)"tomb", .ce_klen = 4, .ce_kvs = 3, .ce_kind = KV_ENT_TOMB,
	  .ce_rev = 7 },
	{ .ce_key = (const uint8_t *)"k", .ce_klen = 1, .ce_kvs = 4, .ce_kind = KV_ENT_INLINE,
	  .ce_rev = 1, .ce_vlen = 9, .ce_vcrc = 0x55667788,
	  .ce_val = (const uint8_t *)"123456789" },
	{ .ce_key = (const uint8_t *)"empty", .ce_klen = 5, .ce_kvs = 4, .ce_kind = KV_ENT_INLINE },
	{ .ce_key = (const uint8_t *)"far away", .ce_klen = 8, .ce_kvs = 5, .ce_kind = KV_ENT_REF,
	  .ce_rev = 2, .ce_vlen = 5000, .ce_vcrc = 0x01020304, .ce_obj = 0xabcdef, .ce_off8 = 513 },
	{ .ce_key = (const uint8_t *)"goes", .ce_klen = 4, .ce_kvs = 4, .ce_kind = KV_ENT_INLINE,
	  .ce_vlen = 1, .ce_val = (const uint8_t *)"v", .ce_expiry = 0x18c0ffee123 },
	{ .ce_key = (const uint8_t *)"far goes", .ce_klen = 8, .ce_kvs = 4, .ce_kind = KV_ENT_REF,
	  .ce_vlen = 129, .ce_obj = 1, .ce_expiry = 1 },
	{ .ce_key = (const uint8_t *)"ra", .ce_klen = 2, .ce_kvs = 6, .ce_kind = KV_ENT_COVER,
	  .ce_vlen = 3, .ce_vcrc = 0x0a0b0c0d, .ce_val = (const uint8_t *)"\0rb" },
	{ .ce_key = (const uint8_t *)"", .ce_kvs = 6, .ce_kind = KV_ENT_COVER, .ce_vlen = 1,
	  .ce_val = (const uint8_t *)"\1" },
};
#define N (sizeof(ents) / sizeof(ents[0]))

static uint32_t at[N];	/* of each entry in the value */

/* The value in buf behind a record's header; returns its length. */
static uint32_t fill(void)
{
	uint8_t *p = buf + KV_REC_HDR;
	uint32_t len = KV_COMMIT_HDR;

	memset(buf, 0, sizeof(buf));
	kv_commit_encode_hdr(p, N);
	for (unsigned i = 0; i < N; i++) {
		at[i] = len;
		len += kv_commit_encode_ent(p + len, &ents[i]);
	}
	return len;
}

/* Makes a record of what is in buf, with right CRCs, and checks it. */
static int check(uint32_t len)
{
	static uint8_t val[4096];

	memcpy(val, buf + KV_REC_HDR, len);
	kv_rec_encode(buf, KV_REC_COMMIT, 0, NULL, 0, val, len, mpool_crc32c(0, val, len));
	kv_rec_stamp(buf, OBJ, OFF, 42);
	T_EQ(kv_rec_decode(buf, OBJ, OFF, sizeof(buf), true, &r), 0);
	return kv_commit_check(&r);
}

static void write_sets_come_back(void)
{
	struct kv_commit_ent e;
	uint32_t pos = 0;
	unsigned i;

	T_EQ(check(fill()), 0);
	T_EQ(r.r_type, KV_REC_COMMIT);
	T_EQ(r.r_seq, 42);
	for (i = 0; kv_commit_next(&r, &pos, &e); i++) {
		T_OK(i < N);
		T_EQ(e.ce_kvs, ents[i].ce_kvs);
		T_EQ(e.ce_kind, ents[i].ce_kind);
		T_EQ(e.ce_rev, ents[i].ce_rev);
		T_EQ(e.ce_vlen, ents[i].ce_vlen);
		T_EQ(e.ce_vcrc, ents[i].ce_vcrc);
		T_EQ(e.ce_obj, ents[i].ce_obj);
		T_EQ(e.ce_off8, ents[i].ce_off8);
		T_EQ(e.ce_expiry, ents[i].ce_expiry);
		T_OK(e.ce_klen == ents[i].ce_klen && !memcmp(e.ce_key, ents[i].ce_key, e.ce_klen));
		if ((e.ce_kind == KV_ENT_INLINE || e.ce_kind == KV_ENT_COVER) && e.ce_vlen)
			T_OK(!memcmp(e.ce_val, ents[i].ce_val, e.ce_vlen));
	}
	T_EQ(i, N);
	/* revisions are set after the rest was encoded */
	kv_commit_set_rev(buf + KV_REC_HDR + at[3], 99);
	T_EQ(check(r.r_vlen), 0);
	for (pos = 0; pos <= at[3] && kv_commit_next(&r, &pos, &e); )
		;
	T_EQ(e.ce_rev, 99);
}

static void golden_bytes(void)
{
	static const uint8_t want[] = {
		/* header */
		8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		/* delete */
		3, 0, 4, 0, 1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0,
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 't', 'o', 'm', 'b', 0, 0, 0, 0,
		/* value here */
		4, 0, 1, 0, 2, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0,
		0x88, 0x77, 0x66, 0x55, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		'k', 0, 0, 0, 0, 0, 0, 0,
		'1', '2', '3', '4', '5', '6', '7', '8', '9', 0, 0, 0, 0, 0, 0, 0,
		/* empty value */
		4, 0, 5, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 'e', 'm', 'p', 't', 'y', 0, 0, 0,
		/* value elsewhere */
		5, 0, 8, 0, 3, 0, 0, 0, 2, 0, 0, 0, 0x88, 0x13, 0, 0,
		4, 3, 2, 1, 1, 2, 0, 0, 0xef, 0xcd, 0xab, 0, 0, 0, 0, 0,
		'f', 'a', 'r', ' ', 'a', 'w', 'a', 'y',
		/* value here that expires */
		4, 0, 4, 0, 2, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0,
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 'g', 'o', 'e', 's', 0, 0, 0, 0,
		'v', 0, 0, 0, 0, 0, 0, 0, 0x23, 0xe1, 0xfe, 0x0f, 0x8c, 1, 0, 0,
		/* value elsewhere that expires */
		4, 0, 8, 0, 3, 1, 0, 0, 0, 0, 0, 0, 129, 0, 0, 0,
		0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
		'f', 'a', 'r', ' ', 'g', 'o', 'e', 's', 1, 0, 0, 0, 0, 0, 0, 0,
		/* delete of a range */
		6, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0,
		0x0d, 0x0c, 0x0b, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		'r', 'a', 0, 0, 0, 0, 0, 0, 0, 'r', 'b', 0, 0, 0, 0, 0,
		/* of all */
		6, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0,
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
	};

	T_EQ(fill(), sizeof(want));
	T_OK(!memcmp(buf + KV_REC_HDR, want, sizeof(want)));
}

static void each_check(void)
{
	uint8_t *p = buf + KV_REC_HDR;
	uint32_t len = fill();

	p[4] = 1;		/* reserved */
	T_EQ(check(len), 450);
	fill();
	p[15] = 1;
	T_EQ(check(len), 450);
	T_EQ(check(KV_COMMIT_HDR), 450);	/* no write at all */
	fill();
	T_EQ(check(len), 0);
	buf[KV_REC_HDR + at[1] + 40] ^= 1;	/* behind the record's own CRC */
	T_EQ(kv_commit_check(&r), 451);
	fill();
	p[0] = 9;
	T_EQ(check(len), 453);
	fill();
	T_EQ(check(len - 8), 452);
	fill();
	T_EQ(check(at[3]), 453);
}

static void each_check_of_an_entry(void)
{
	static const struct {
		unsigned ent, off;
		uint8_t val;
	} bad[] = {
		{ 0, 2, 0 },		/* no key */
		{ 0, 3, 5 },		/* key of 1284 bytes in the place of 4 */
		{ 0, 4, 0 }, { 0, 4, 5 },	/* kind */
		{ 0, 4, 4 },		/* a range without what says where it ends */
		{ 0, 5, 1 },		/* a deletion that expires */
		{ 1, 5, 2 }, { 0, 6, 1 }, { 0, 7, 1 },	/* reserved */
		{ 3, 5, 1 },		/* its expiry would be the next entry's head */
		{ 5, 40, 0 },		/* expires, but when? */
		{ 0, 12, 1 },		/* a deletion with a value */
		{ 0, 20, 1 }, { 0, 24, 1 },	/* with a place */
		{ 1, 12, 129 },		/* too long to be here */
		{ 1, 24, 1 },		/* here and elsewhere */
		{ 3, 4, 2 },		/* 5000 bytes here */
		{ 3, 15, 1 },		/* longer than a value may be */
		/* ranges: expiry, revision, value elsewhere, no flags, too long */
		{ 6, 5, 1 }, { 6, 8, 1 }, { 6, 20, 1 }, { 6, 24, 1 }, { 6, 12, 0 }, { 6, 13, 6 },
		{ 6, 40, 2 },		/* flags that are not known */
		{ 6, 40, 1 },		/* without end, and yet with one */
		{ 6, 42, 'a' },		/* nothing lies in it */
		{ 7, 32, 0 },		/* up to the smallest key */
	};
	uint32_t len;

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		len = fill();
		buf[KV_REC_HDR + at[bad[i].ent] + bad[i].off] = bad[i].val;
		if (check(len) != 452)
			T_FAIL("entry %u, byte %u: %u is taken", bad[i].ent, bad[i].off,
			       bad[i].val);
	}
	len = fill();		/* elsewhere, but where? */
	memset(buf + KV_REC_HDR + at[3] + 24, 0, 8);
	T_EQ(check(len), 452);
	len = fill();		/* short enough to be here */
	memset(buf + KV_REC_HDR + at[3] + 12, 0, 4);
	T_EQ(check(len), 452);
}

/* ---- parts ------------------------------------------------------------------------------- */

static uint8_t part[256];

/* Three writes to one store, and the entry that names them. */
static struct kv_commit_ent part_fill(void)
{
	static const unsigned of[] = { 1, 2, 4 };
	struct kv_commit_ent e = { .ce_kvs = 4, .ce_kind = KV_ENT_PART, .ce_rev = 3,
				   .ce_obj = 0xabc, .ce_off8 = 0x1234 };

	for (unsigned i = 0; i < 3; i++)
		e.ce_vlen += kv_commit_encode_ent(part + e.ce_vlen, &ents[of[i]]);
	e.ce_vcrc = mpool_crc32c(0, part, e.ce_vlen);
	return e;
}

static int check_names(struct kv_commit_ent e)
{
	uint8_t *p = buf + KV_REC_HDR;

	memset(buf, 0, sizeof(buf));
	kv_commit_encode_hdr(p, 1);
	return check(KV_COMMIT_HDR + kv_commit_encode_ent(p + KV_COMMIT_HDR, &e));
}

static void parts_come_back(void)
{
	static const uint8_t want[] = {
		4, 0, 0, 0, 6, 0, 0, 0, 3, 0, 0, 0, 152, 0, 0, 0,
		0x0d, 0x0c, 0x0b, 0x0a, 0x34, 0x12, 0, 0, 0xbc, 0x0a, 0, 0, 0, 0, 0, 0,
	};
	struct kv_commit_ent e = part_fill(), got;
	uint32_t pos = 0, n = 0;

	T_EQ(kv_commit_check_part(&e, part), 0);
	while (kv_commit_next_part(part, e.ce_vlen, &pos, &got))
		n += got.ce_kvs == 4 && got.ce_klen;
	T_OK(n == 3 && pos == e.ce_vlen);
	e.ce_vcrc = 0x0a0b0c0d;
	T_EQ(check_names(e), 0);
	T_OK(!memcmp(buf + KV_REC_HDR + KV_COMMIT_HDR, want, sizeof(want)));
	pos = 0;
	T_OK(kv_commit_next(&r, &pos, &got));
	T_OK(got.ce_kind == KV_ENT_PART && got.ce_rev == 3 && got.ce_vlen == 152 && !got.ce_val &&
	     got.ce_obj == 0xabc && got.ce_off8 == 0x1234 && got.ce_vcrc == 0x0a0b0c0d);
}

static void each_check_of_a_part(void)
{
	const struct kv_commit_ent nested = { .ce_kvs = 4, .ce_kind = KV_ENT_PART, .ce_rev = 1,
					      .ce_vlen = 200, .ce_obj = 1 };
	struct kv_commit_ent e = part_fill(), bad = e;

	bad.ce_kvs = 0;
	T_EQ(check_names(bad), 452);
	bad = e;
	bad.ce_rev = 0;
	T_EQ(check_names(bad), 452);
	bad.ce_rev = 4;		/* more than have room */
	T_EQ(check_names(bad), 452);
	bad = e;
	bad.ce_obj = 0;
	T_EQ(check_names(bad), 452);
	bad = e;
	bad.ce_vlen = KV_INLINE_MAX;
	T_EQ(check_names(bad), 452);
	bad.ce_vlen = KVDB_VALUE_MAX + 1;
	T_EQ(check_names(bad), 452);
	bad = e;
	bad.ce_klen = 1;
	bad.ce_key = (const uint8_t *)"k";
	T_EQ(check_names(bad), 452);

	part[20] ^= 1;
	T_EQ(kv_commit_check_part(&e, part), 454);
	part[20] ^= 1;
	bad = e;
	bad.ce_rev = 2;
	T_EQ(kv_commit_check_part(&bad, part), 456);
	bad = e;
	bad.ce_kvs = 5;
	T_EQ(kv_commit_check_part(&bad, part), 455);
	bad = e;
	kv_commit_encode_ent(part, &nested);
	bad.ce_vcrc = mpool_crc32c(0, part, bad.ce_vlen);
	T_EQ(kv_commit_check_part(&bad, part), 455);
}

int main(void)
{
	T_RUN(parts_come_back);
	T_RUN(each_check_of_a_part);
	T_RUN(write_sets_come_back);
	T_RUN(golden_bytes);
	T_RUN(each_check);
	T_RUN(each_check_of_an_entry);
	return t_done();
}
