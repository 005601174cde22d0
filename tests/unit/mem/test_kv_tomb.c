/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Tombstones over many keys: the index against a plain search, and everything
 * that media may say about them and must not.
 */
#include "harness.h"

#include <errno.h>
#include <stdlib.h>

#include "run/run.h"
#include "mem/tomb.h"
#include "base/trange.h"
#include "seg/kv_omf.h"
#include "run/run_omf.h"
#include "tree/tomb_view.h"

#define KEYS 200u

static uint64_t seed;

static unsigned rnd(unsigned n)
{
	return (unsigned)(t_rand(&seed) % n);
}

/* ---- the index ---------------------------------------------------------------- */

static char text[400][12];

static struct kv_trange row(unsigned i)
{
	unsigned a = rnd(KEYS), b = rnd(KEYS);
	struct kv_trange r = { .tr_from = (uint8_t *)text[i], .tr_seq = 1 + rnd(300) };

	r.tr_to = r.tr_from + 6;
	if (rnd(3) == 0) {
		sprintf(text[i], "%02u", a / 10);
		r.tr_flags = KV_TR_PREFIX;
		r.tr_flen = 2;
		return r;
	}
	b = a + 1 + rnd(20) * rnd(10);
	sprintf(text[i], "%03u", a);
	sprintf(text[i] + 6, "%03u", b);
	r.tr_flen = a ? 3 : 0;
	r.tr_tlen = 3;
	if (b >= KEYS) {
		r.tr_flags = KV_TR_ENDLESS;
		r.tr_tlen = 0;
	}
	return r;
}

static uint64_t plain(const struct kv_trange *r, unsigned n, const char *key, size_t klen,
		      uint64_t v)
{
	uint64_t best = 0;

	while (n--)
		if (r[n].tr_seq <= v && r[n].tr_seq > best && kv_trange_has(&r[n], key, klen))
			best = r[n].tr_seq;
	return best;
}

static void index_finds_what_a_plain_search_finds(void)
{
	static struct kv_trange r[400];
	unsigned round, i, n;
	struct kv_tindex *ti;
	char key[8];

	for (round = 0; round < 200; round++) {
		n = 1 + rnd(round < 150 ? 12 : 400);
		for (i = 0; i < n; i++)
			r[i] = row(i);
		ti = kv_tindex_new(r, n, NULL);
		T_OK(ti != NULL);
		for (i = 0; i < 300; i++) {
			int klen = sprintf(key, "%0*u", 1 + (int)rnd(3), rnd(KEYS));
			uint64_t v = rnd(4) ? UINT64_MAX : rnd(320);

			T_EQ(kv_tindex_at(ti, key, (size_t)klen, v),
			     plain(r, n, key, (size_t)klen, v));
		}
		kv_tindex_free(ti);
	}
}

/* ---- many ranges ---------------------------------------------------------------- */

#define MANY	30000u

enum shape { RISING_TAILS, FALLING_TAILS, RISING_HEADS, APART, NESTED, ANY, SHAPES };

static char ends[MANY][2][12];

/* Row @i of @n; its stamp is i + 1 */
static struct kv_trange one_of(enum shape shape, unsigned i, unsigned n)
{
	unsigned a = rnd(n), b = a + 1 + rnd(n);
	struct kv_trange r = { .tr_seq = i + 1 };

	switch (shape) {
	case RISING_TAILS:
	case FALLING_TAILS:
		a = shape == RISING_TAILS ? i : n - i;
		r.tr_flags = KV_TR_ENDLESS;
		break;
	case RISING_HEADS:
		a = 0;
		b = i + 1;
		break;
	case APART:
		a = (i * 7919u) % n;
		b = a + 1;
		break;
	case NESTED:
		a = i;
		b = 2 * n - i;
		break;
	default:
		break;
	}
	sprintf(ends[i][0], "key%08u", a);
	sprintf(ends[i][1], "key%08u", b);
	r.tr_from = (uint8_t *)ends[i][0];
	r.tr_to = (uint8_t *)ends[i][1];
	r.tr_flen = 11;
	r.tr_tlen = r.tr_flags ? 0 : 11;
	return r;
}

static unsigned log2_of(unsigned n)
{
	unsigned bits = 0;

	while (1u << bits < n)
		bits++;
	return bits;
}

/* Of a stamp, an end, and two of a node for each bit of a rank: whatever rows and views are. */
static void a_search_takes_few_steps_whatever_the_ranges(void)
{
	static struct kv_trange r[MANY];
	struct kv_tindex *ti;
	unsigned most = 0;
	char key[16];

	for (unsigned shape = 0; shape < SHAPES; shape++)
		for (unsigned n = 1; n <= MANY; n = n < 100 ? n + 33 : n * 17) {
			for (unsigned i = 0; i < n; i++)
				r[i] = one_of(shape, i, n);
			ti = kv_tindex_new(r, n, NULL);
			T_OK(ti != NULL);
			for (unsigned i = 0; i < 200; i++) {
				uint64_t v = i % 2 ? UINT64_MAX : rnd(n + 2);
				unsigned steps = 0;
				int klen = sprintf(key, "key%08u", rnd(2 * n + 2));

				T_EQ(kv_tindex_find(ti, key, (size_t)klen, v, &steps),
				     plain(r, n, key, (size_t)klen, v));
				T_OK(steps <= 4 * log2_of(n) + 3);
				most = steps > most ? steps : most;
			}
			kv_tindex_free(ti);
		}
	printf("# %u steps at most\n", most);
	T_OK(most > 20);
}

static void deletes_of_one_prefix_are_not_walked(void)
{
	static struct kv_trange r[MANY];
	struct kv_tindex *ti;

	for (unsigned i = 0; i < MANY; i++)
		r[i] = (struct kv_trange){ .tr_from = (const uint8_t *)(i % 3 ? "aa" : "bb"),
					   .tr_flen = 2, .tr_flags = KV_TR_PREFIX,
					   .tr_seq = i + 1 };
	ti = kv_tindex_new(r, MANY, NULL);
	T_OK(ti != NULL);
	for (unsigned i = 0; i < 500; i++) {
		uint64_t v = rnd(MANY + 10);
		unsigned steps = 0;

		T_EQ(kv_tindex_find(ti, "aax", 3, v, &steps), plain(r, MANY, "aax", 3, v));
		T_EQ(kv_tindex_find(ti, "bb", 2, v, &steps), plain(r, MANY, "bb", 2, v));
		T_OK(steps <= 4 * (log2_of(MANY) + 1));
	}
	kv_tindex_free(ti);
}

/* What goes on into runs: of a queue that truncates one row, of any rows what all of them say. */
static void what_newer_deletes_cover_goes(void)
{
	struct kv_trows tv = { 0 };
	struct kv_trange r[400];
	char key[8];

	for (unsigned i = 0; i < 1000; i++) {
		struct kv_trange one = one_of(RISING_HEADS, i, 1000);

		T_EQ(kv_trows_add(&tv, &one), 0);
	}
	kv_trows_prune(&tv, NULL, NULL, 0, NULL);
	T_EQ(tv.tv_n, 1);
	T_EQ(tv.tv_r[0].tr_seq, 1000);
	for (unsigned round = 0; round < 100; round++) {
		unsigned n = 1 + rnd(round < 70 ? 12 : 400);

		tv.tv_n = 0;
		for (unsigned i = 0; i < n; i++) {
			r[i] = row(i);
			T_EQ(kv_trows_add(&tv, &r[i]), 0);
		}
		kv_trows_prune(&tv, NULL, NULL, 0, NULL);
		T_OK(tv.tv_n && tv.tv_n <= n);
		for (unsigned i = 0; i < 300; i++) {
			int klen = sprintf(key, "%0*u", 1 + (int)rnd(3), rnd(KEYS));

			T_EQ(plain(tv.tv_r, tv.tv_n, key, (size_t)klen, UINT64_MAX),
			     plain(r, n, key, (size_t)klen, UINT64_MAX));
		}
	}
	free(tv.tv_r);
}

static void prefix_ends(void)
{
	uint8_t to[8];

	T_EQ(kv_prefix_end((const uint8_t *)"ab", 2, to), 2);
	T_EQ(memcmp(to, "ac", 2), 0);
	T_EQ(kv_prefix_end((const uint8_t *)"a\xff\xff", 3, to), 1);
	T_EQ(to[0], 'b');
	T_EQ(kv_prefix_end((const uint8_t *)"\xff\xff", 2, to), 0);
}

/* ---- media ------------------------------------------------------------------------- */

static uint8_t buf[8192];
static struct kv_trange got;
static uint32_t size;

static uint32_t encode(uint8_t flags, const char *from, const char *to)
{
	struct kv_trange r = { .tr_from = (const uint8_t *)from, .tr_to = (const uint8_t *)to,
			       .tr_flen = (uint16_t)strlen(from), .tr_tlen = (uint16_t)strlen(to),
			       .tr_flags = flags, .tr_seq = 77 };

	kv_ktomb_encode(&r, buf);
	return kv_ktomb_size(&r);
}

static const char *decode(uint32_t room)
{
	return kv_ktomb_decode(buf, room, &got, &size);
}

static void rows_come_back(void)
{
	uint32_t n = encode(0, "from", "to-here");

	T_EQ(n, 16 + 16);
	T_OK(!decode(n));
	T_EQ(size, n);
	T_EQ(got.tr_seq, 77);
	T_EQ(got.tr_flen, 4);
	T_EQ(memcmp(got.tr_to, "to-here", 7), 0);
	n = encode(KV_TR_PREFIX, "pre", "");
	T_OK(!decode(n) && got.tr_flags == KV_TR_PREFIX && got.tr_flen == 3);
	n = encode(KV_TR_ENDLESS, "", "");
	T_OK(!decode(n) && got.tr_flags == KV_TR_ENDLESS && n == 16);
}

static void rows_each_check(void)
{
	uint32_t n = encode(0, "from", "to");

	T_OK(decode(15));
	T_OK(decode(n - 1));
	encode(KV_TR_ENDLESS, "from", "");
	buf[9] = 0x10;			/* 4100 bytes */
	T_OK(decode(sizeof(buf)));
	encode(0, "from", "to");
	buf[12] = 4;
	T_OK(decode(n));
	buf[12] = KV_TR_PREFIX | KV_TR_ENDLESS;
	T_OK(decode(n));
	encode(0, "from", "to");
	buf[13] = 1;
	T_OK(decode(n));
	buf[13] = 0;
	buf[14] = 1;
	T_OK(decode(n));
	encode(0, "from", "");		/* a range without end or flag */
	T_OK(decode(n));
	encode(KV_TR_PREFIX, "", "");
	T_OK(decode(n));
	encode(0, "to", "from");
	T_OK(decode(n));
	encode(0, "from", "from");
	T_OK(decode(n));
	encode(0, "from", "to");
	kv_le64_set(buf, KV_NUMBER_END - 1);
	T_OK(!decode(n));
	kv_le64_set(buf, KV_NUMBER_END);
	T_OK(decode(n));
}

/* A run of two blocks, in memory, with these rows in the first. */
static struct kv_kblock block[2];
static struct kv_run run = { .rn_n = 2, .rn_kb = block };

static int gather(void)
{
	int rc;

	run.rn_nkeyed = 0;
	run.rn_tindex = NULL;
	rc = kv_run_index_tombs(&run);
	kv_tindex_free(run.rn_tindex);
	return rc;
}

static void block_of_rows(const struct kv_trange *r, unsigned n)
{
	block[0].kb_tombs = buf;
	block[0].kb_tombs_len = 0;
	while (n--) {
		kv_ktomb_encode(r, buf + block[0].kb_tombs_len);
		block[0].kb_tombs_len += kv_ktomb_size(r++);
	}
}

static void rows_of_a_run_are_in_order(void)
{
	struct kv_trange r[2] = {
		{ .tr_from = (const uint8_t *)"aa", .tr_flen = 2, .tr_flags = KV_TR_PREFIX },
		{ .tr_from = (const uint8_t *)"bb", .tr_flen = 2, .tr_flags = KV_TR_PREFIX },
	}, x;

	block_of_rows(r, 2);
	T_EQ(gather(), 0);
	x = r[0];
	r[0] = r[1];
	r[1] = x;
	block_of_rows(r, 2);
	T_EQ(gather(), -EUCLEAN);
	/* prefixes come before ranges */
	r[0].tr_flags = KV_TR_ENDLESS;
	block_of_rows(r, 2);
	T_EQ(gather(), -EUCLEAN);
}

static void prefixes_of_a_run_have_one_length(void)
{
	struct kv_trange r[2] = {
		{ .tr_from = (const uint8_t *)"aa", .tr_flen = 2, .tr_flags = KV_TR_PREFIX },
		{ .tr_from = (const uint8_t *)"bbb", .tr_flen = 3, .tr_flags = KV_TR_PREFIX },
	};

	block_of_rows(r, 2);
	T_EQ(gather(), -EUCLEAN);
}

static void blocks_without_keys_come_last(void)
{
	block[0].kb_tombs_len = 0;
	block[0].kb_npages = block[1].kb_npages = 1;
	T_EQ(gather(), 0);
	block[1].kb_npages = 0;
	T_EQ(gather(), 0);
	T_EQ(run.rn_nkeyed, 1);
	block[0].kb_npages = 0;
	block[1].kb_npages = 1;
	T_EQ(gather(), -EUCLEAN);
	block[1].kb_npages = 0;
}

static void log_records_each_check(void)
{
	uint8_t val[KVDB_KEY_MAX + 2] = { 0 };
	struct kv_rec r = { .r_type = KV_REC_RDEL, .r_key = (const uint8_t *)"from", .r_klen = 4,
			    .r_val = val, .r_vlen = 4, .r_seq = 5 };
	struct kv_trange t;

	memcpy(val + 1, "to!", 3);
	T_OK(kv_rec_trange(&r, &t));
	T_EQ(t.tr_seq, 5);
	T_EQ(t.tr_tlen, 3);
	memcpy(val + 1, "aaa", 3);
	T_OK(!kv_rec_trange(&r, &t));
	val[0] = KV_RDEL_ENDLESS;
	T_OK(!kv_rec_trange(&r, &t));
	r.r_vlen = 1;
	T_OK(kv_rec_trange(&r, &t));
	val[0] = 2;
	T_OK(!kv_rec_trange(&r, &t));
	r.r_vlen = 0;
	T_OK(!kv_rec_trange(&r, &t));
	r.r_vlen = KVDB_KEY_MAX + 2;
	T_OK(!kv_rec_trange(&r, &t));
	r.r_type = KV_REC_PDEL;
	T_OK(!kv_rec_trange(&r, &t));
	r.r_vlen = 0;
	T_OK(kv_rec_trange(&r, &t));
	r.r_klen = 0;
	T_OK(!kv_rec_trange(&r, &t));
	r.r_klen = KVDB_KEY_MAX + 1;
	T_OK(!kv_rec_trange(&r, &t));
}

int main(void)
{
	seed = t_seed();
	T_RUN(index_finds_what_a_plain_search_finds);
	T_RUN(a_search_takes_few_steps_whatever_the_ranges);
	T_RUN(deletes_of_one_prefix_are_not_walked);
	T_RUN(what_newer_deletes_cover_goes);
	T_RUN(prefix_ends);
	T_RUN(rows_come_back);
	T_RUN(rows_each_check);
	T_RUN(rows_of_a_run_are_in_order);
	T_RUN(prefixes_of_a_run_have_one_length);
	T_RUN(blocks_without_keys_come_last);
	T_RUN(log_records_each_check);
	return t_done();
}
