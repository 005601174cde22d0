/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The metadata container: fold of records, every bit flip refused, torn
 * INCARN parts, hostile sizes, and, on a real pool, compaction that keeps the
 * state.
 */
#include "harness.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

#include "kv_fresh.h"
#include "meta/mdc.h"
#include "base/vec.h"
#include "db/db.h"
#include "seg/kv_omf.h"
#include "seg/seg.h"
#include "run/run.h"
#include "tree/tree.h"
#include "open/open.h"

#define TAG (KV_TAG_MARK << 48 | 0x123456789abull)

static struct kv_mdc_buf b;

static int fold(struct kv_mdc_state *st)
{
	return b.mb_err ? b.mb_err : kv_mdc_fold(st, b.mb_p, b.mb_len);
}

static void start(struct kv_mdc_state *st)
{
	struct kv_mdc_super s = { .ms_uuid = "0123456789abcde", .ms_tag = TAG, .ms_format =
				 KV_FORMAT,
				  .ms_next_kvs = 1, .ms_next_run = 1 };

	memset(st, 0, sizeof(*st));
	kv_mdc_enc_super(&b, &s);
	T_EQ(fold(st), 0);
}

static void add_run(struct kv_mdc_state *st, uint32_t kvs, uint64_t id, uint64_t pos,
		    const uint64_t *drop, uint32_t ndrop, int want)
{
	struct kv_kblock_desc kb[2] = { { 100 + id * 2, 4096, 7 }, { 101 + id * 2, 8192, 8 } };
	struct kv_run_desc d = { .rd_id = id, .rd_pos = pos, .rd_keys = 10, .rd_min_seq = 1,
				 .rd_max_seq = 5 + id, .rd_newest_epoch = id, .rd_kvs = kvs,
				 .rd_n = 2,
				 .rd_kb = kb };
	struct kv_horizon hor = { kvs, 10 * id };

	kv_mdc_enc_edit(&b, TAG, kvs, &d, drop, ndrop, &hor, 1);
	T_EQ(fold(st), want);
}

static void fold_builds_the_state(void)
{
	static struct kv_mdc_state st;
	uint64_t drop[2] = { 1, 2 };

	start(&st);
	kv_mdc_enc_kvs_add(&b, TAG, 1, "first", 3);
	T_EQ(fold(&st), 0);
	kv_mdc_enc_kvs_add(&b, TAG, 2, "second", 4);
	T_EQ(fold(&st), 0);
	add_run(&st, 1, 1, 1, NULL, 0, 0);
	add_run(&st, 1, 2, 2, NULL, 0, 0);
	add_run(&st, 2, 3, 1, NULL, 0, 0);
	T_EQ(st.st_nkvs, 2);
	T_EQ(st.st_kvs[0].mk_nrun, 2);
	T_EQ(st.st_kvs[0].mk_horizon, 20);
	T_EQ(st.st_kvs[1].mk_horizon, 30);
	T_EQ(st.st_super.ms_floor, 30);
	T_EQ(st.st_super.ms_next_run, 4);
	T_EQ(st.st_super.ms_next_kvs, 3);
	/* a merge: one record drops two and adds one; the dropped objects are remembered */
	add_run(&st, 1, 4, 2, drop, 2, 0);
	T_EQ(st.st_kvs[0].mk_nrun, 1);
	T_EQ(st.st_kvs[0].mk_run[0].rd_id, 4);
	T_EQ(st.st_ngone, 4);
	/* dropping a store keeps the floor */
	kv_mdc_enc_kvs_drop(&b, TAG, 1);
	T_EQ(fold(&st), 0);
	T_EQ(st.st_nkvs, 1);
	T_EQ(st.st_kvs[0].mk_id, 2);
	T_EQ(st.st_ngone, 6);
	T_EQ(st.st_super.ms_floor, 40);
	kv_mdc_enc_clean(&b, TAG, 50, 60);
	T_EQ(fold(&st), 0);
	T_OK(st.st_clean);
	T_EQ(st.st_kvs[0].mk_horizon, 50);
	kv_mdc_enc_kvs_add(&b, TAG, 7, "third", 50);
	T_EQ(fold(&st), 0);
	T_OK(!st.st_clean);
	kv_mdc_state_free(&st);
}

/* Spills of 64 blocks, each announced, that replace the one before. Processor time that it took. */
static uint64_t spills_fold(struct kv_mdc_state *st, uint64_t from, uint64_t n)
{
	struct kv_kblock_desc kb[64];
	uint64_t gone[64];
	struct timespec t0, t1;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t0);
	for (uint64_t id = from; id < from + n; id++) {
		struct kv_run_desc d = { .rd_id = id, .rd_pos = 1, .rd_keys = 10, .rd_kvs = 1,
					 .rd_n = 64, .rd_kb = kb };
		uint64_t drop = id - 1;

		for (unsigned i = 0; i < 64; i++) {
			gone[i] = 64 * id + i;
			kb[i] = (struct kv_kblock_desc){ gone[i], 4096, 7 };
		}
		kv_mdc_enc_gone(&b, TAG, gone, 64);
		T_EQ(fold(st), 0);
		kv_mdc_enc_edit(&b, TAG, 1, &d, &drop, id > 1, NULL, 0);
		T_EQ(fold(st), 0);
	}
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t1);
	return (uint64_t)(t1.tv_sec - t0.tv_sec) * 1000000000u + (uint64_t)t1.tv_nsec -
	       (uint64_t)t0.tv_nsec;
}

/* An open folds all of it: what was dropped since the last compaction is a long list. */
static void an_edit_costs_the_same_however_much_is_gone(void)
{
	static struct kv_mdc_state st;
	uint64_t first, last;

	start(&st);
	kv_mdc_enc_kvs_add(&b, TAG, 1, "s", 3);
	T_EQ(fold(&st), 0);
	first = spills_fold(&st, 1, 200);
	spills_fold(&st, 201, 1600);
	last = spills_fold(&st, 1801, 200);
	T_EQ(st.st_ngone, 64 * 1999);
	T_EQ(st.st_kvs[0].mk_nrun, 1);
	T_OK(last < 4 * first + 5000000);
	kv_mdc_state_free(&st);
}

static struct kv_mdc_ckpt pin(const char *name, uint64_t obj)
{
	struct kv_mdc_ckpt c = { .mc_epoch = 5, .mc_seq = 6, .mc_time_ns = 7, .mc_obj = obj,
				 .mc_len = 8192, .mc_crc = 9 };

	strcpy(c.mc_name, name);
	return c;
}

static void add_pin(struct kv_mdc_state *st, struct kv_mdc_ckpt c, int want)
{
	kv_mdc_enc_ckpt_add(&b, TAG, &c);
	T_EQ(fold(st), want);
}

static void checkpoints_come_and_go(void)
{
	static struct kv_mdc_state st;
	struct kv_mdc_ckpt c = pin("bad", 60);

	start(&st);
	add_pin(&st, pin("one", 50), 0);
	add_pin(&st, pin("two", 51), 0);
	T_EQ(st.st_nckpt, 2);
	T_OK(!strcmp(st.st_ckpt[1].mc_name, "two"));
	T_EQ(st.st_ckpt[1].mc_obj, 51);
	T_EQ(st.st_ckpt[1].mc_epoch, 5);
	T_EQ(st.st_ckpt[1].mc_seq, 6);
	T_EQ(st.st_ckpt[1].mc_time_ns, 7);
	T_EQ(st.st_ckpt[1].mc_len, 8192);
	T_EQ(st.st_ckpt[1].mc_crc, 9);
	/* neither a name nor a manifest twice */
	add_pin(&st, pin("one", 52), 422);
	add_pin(&st, pin("three", 51), 422);
	c.mc_len = 8191;
	add_pin(&st, c, 421);
	c.mc_len = 0;
	add_pin(&st, c, 421);
	c = pin("", 60);
	add_pin(&st, c, 421);
	c = pin("none", 0);
	add_pin(&st, c, 421);
	/* the manifest is remembered until it is deleted, and taken back when it is a pin's */
	kv_mdc_enc_ckpt_drop(&b, TAG, 50);
	T_EQ(fold(&st), 0);
	T_EQ(st.st_nckpt, 1);
	T_EQ(st.st_ngone, 1);
	T_EQ(st.st_gone[0], 50);
	T_EQ(fold(&st), 422);
	add_pin(&st, pin("one", 50), 0);
	T_EQ(st.st_ngone, 0);
	kv_mdc_state_free(&st);
}

static void what_is_not_there_is_refused(void)
{
	static struct kv_mdc_state st;
	uint64_t drop = 9;

	start(&st);
	kv_mdc_enc_kvs_drop(&b, TAG, 1);
	T_EQ(fold(&st), 422);
	kv_mdc_enc_kvs_add(&b, TAG, 1, "first", 0);
	T_EQ(fold(&st), 0);
	kv_mdc_enc_kvs_add(&b, TAG, 1, "again", 0);
	T_EQ(fold(&st), 422);
	add_run(&st, 2, 1, 1, NULL, 0, 422);
	add_run(&st, 1, 1, 1, &drop, 1, 422);
	kv_mdc_state_free(&st);
	/* nothing before the first record, no second first record, no other database's record */
	kv_mdc_enc_kvs_drop(&b, TAG, 1);
	T_EQ(fold(&st), 420);
	start(&st);
	kv_mdc_enc_super(&b, &st.st_super);
	T_EQ(fold(&st), 420);
	kv_mdc_enc_kvs_add(&b, TAG + 1, 1, "other", 0);
	T_EQ(fold(&st), 420);
	kv_mdc_state_free(&st);
}

/* A LEAVES record: @end of one, @id begins at @key, a run comes to leaf @leaf. 0 = none. */
static void add_leaf(struct kv_mdc_state *st, uint64_t end, uint64_t id, const char *key,
		     uint64_t run, uint64_t leaf, int want)
{
	struct kv_kblock_desc kb = { 900 + run, 4096, 7 };
	struct kv_run_desc d = { .rd_id = run, .rd_pos = 1, .rd_keys = 1, .rd_kvs = 1, .rd_n = 1,
				 .rd_kb = &kb, .rd_leaf = leaf };
	const struct kv_run_desc *add = &d;
	struct kv_mdc_leaf lf = { id, (uint16_t)strlen(key), (uint8_t *)(uintptr_t)key };
	struct kv_mdc_leaves le = { .le_kvs = 1, .le_end = end, .le_begin = &lf,
				    .le_nbegin = id != 0, .le_add = &add, .le_nadd = run != 0 };

	kv_mdc_enc_leaves(&b, TAG, &le);
	T_EQ(fold(st), want);
}

static void leaves_begin_and_end(void)
{
	static struct kv_mdc_state st;
	static const struct {
		uint64_t end, id;
		const char *key;
		uint64_t run, leaf;
		int want;
	} bad[] = {
		{ 0, 50, "x", 0, 0, 0 },	/* the same in good */
		{ 0, 40, "x", 0, 0, 422 },	/* known */
		{ 0, 50, "m", 0, 0, 422 },	/* the same bounds */
		{ 0, 50, "", 0, 0, 422 },
		{ 10, 0, "", 0, 0, 422 },	/* the first one */
		{ 77, 0, "", 0, 0, 422 },	/* unknown */
		{ 40, 0, "", 0, 0, 422 },	/* has a run */
		{ 0, 0, "", 60, 77, 422 },	/* run of a leaf that is not there */
		{ 0, 0, "", 41, 40, 422 },	/* run that is there */
	};

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		start(&st);
		kv_mdc_enc_kvs_add(&b, TAG, 1, "first", 3);
		T_EQ(fold(&st), 0);
		add_leaf(&st, 0, 10, "", 0, 0, 0);
		add_leaf(&st, 0, 40, "m", 41, 40, 0);
		add_leaf(&st, 0, 30, "cc", 0, 0, 0);
		add_leaf(&st, 30, 0, "", 42, 10, 0);
		T_EQ(st.st_kvs[0].mk_nleaf, 2);
		T_EQ(st.st_kvs[0].mk_leaf[1].ml_id, 40);
		T_EQ(st.st_kvs[0].mk_nrun, 2);
		T_EQ(st.st_super.ms_next_run, 43);
		add_leaf(&st, bad[i].end, bad[i].id, bad[i].key, bad[i].run, bad[i].leaf,
			 bad[i].want);
		kv_mdc_state_free(&st);
	}
	/* the first leaf has no key */
	start(&st);
	kv_mdc_enc_kvs_add(&b, TAG, 1, "first", 3);
	T_EQ(fold(&st), 0);
	add_leaf(&st, 0, 10, "a", 0, 0, 422);
	kv_mdc_state_free(&st);
}

static void unknown_formats_are_refused_by_name(void)
{
	struct kv_mdc_super s = { .ms_tag = TAG, .ms_format = KV_FORMAT, .ms_next_kvs = 1,
				  .ms_next_run = 1, .ms_incompat = KV_FEATS + 1 };
	static struct kv_mdc_state st;

	kv_mdc_enc_super(&b, &s);
	T_EQ(fold(&st), -EOPNOTSUPP);
	s.ms_incompat = 0;
	s.ms_format = KV_FORMAT + 1;
	kv_mdc_enc_super(&b, &s);
	T_EQ(fold(&st), -EOPNOTSUPP);
}

static void fix_crc(void)
{
	uint32_t crc = mpool_crc32c(mpool_crc32c(0, b.mb_p, 12), b.mb_p + 16, b.mb_len - 16);

	memcpy(b.mb_p + 12, &crc, 4);
}

/* One wrong header field with a right CRC. */
static void super_each_check(void)
{
	static struct kv_mdc_state st;
	struct kv_mdc_super s = { .ms_tag = TAG, .ms_format = KV_FORMAT, .ms_next_kvs = 1,
				  .ms_next_run = 1 };

	kv_mdc_enc_super(&b, &s);
	b.mb_p[KV_MDC_HDR + 18] = 1;	/* a bound on space of 1 % */
	fix_crc();
	T_EQ(fold(&st), 421);
	s.ms_next_kvs = 0;
	kv_mdc_enc_super(&b, &s);
	T_EQ(fold(&st), 422);
	kv_mdc_state_free(&st);
}

static void add_prop(struct kv_mdc_state *st, uint32_t kvs, uint32_t prop, uint64_t val, int want)
{
	struct kv_props p = { .pr_val = { 0 } };

	p.pr_val[1] = val;
	kv_mdc_enc_kvs_prop(&b, TAG, kvs, &p, KV_PROP_BIT(1));
	b.mb_p[KV_MDC_HDR + 8] = (uint8_t)prop;
	fix_crc();
	T_EQ(fold(st), want);
}

static void options_wait_for_their_store_and_for_no_other(void)
{
	static struct kv_mdc_state st;

	start(&st);
	add_prop(&st, 1, KV_PROP_TTL, 7, 0);
	/* the creation was cut; the next attempt has other options */
	add_prop(&st, 1, KV_PROP_PFX_LEN, 5, 0);
	kv_mdc_enc_kvs_add(&b, TAG, 1, "first", 0);
	T_EQ(fold(&st), 0);
	T_EQ(st.st_kvs[0].mk_props.pr_val[KV_PROP_PFX_LEN], 5);
	T_EQ(st.st_kvs[0].mk_props.pr_val[KV_PROP_TTL], 0);
	/* the store that came instead has none of those that wait for another */
	add_prop(&st, 2, KV_PROP_TTL, 7, 0);
	kv_mdc_enc_kvs_add(&b, TAG, 3, "third", 0);
	T_EQ(fold(&st), 0);
	T_OK(kv_props_are_default(&st.st_kvs[1].mk_props));
	add_prop(&st, 0, KV_PROP_TTL, 7, 421);
	add_prop(&st, 1, 0, 7, 421);
	/* a change keeps what it does not name */
	add_prop(&st, 1, KV_PROP_TTL, 9, 0);
	T_EQ(st.st_kvs[0].mk_props.pr_val[KV_PROP_PFX_LEN], 5);
	T_EQ(st.st_kvs[0].mk_props.pr_val[KV_PROP_TTL], 9);
	kv_mdc_state_free(&st);
}

static void options_that_are_not_known_are_remembered_as_such(void)
{
	static struct kv_mdc_state st;

	start(&st);
	add_prop(&st, 1, KV_PROPS, 1, 0);
	kv_mdc_enc_kvs_add(&b, TAG, 1, "first", 0);
	T_EQ(fold(&st), 0);
	T_EQ(kv_props_check(&st.st_kvs[0].mk_props, "first"), -EOPNOTSUPP);
	T_OK(strstr(kvdb_error_detail()->text, "first"));
	kv_mdc_enc_kvs_add(&b, TAG, 2, "second", 0);
	T_EQ(fold(&st), 0);
	T_EQ(kv_props_check(&st.st_kvs[1].mk_props, "second"), 0);
	add_prop(&st, 2, KV_PROP_POLICY, KVDB_POLICY_CAPACITY_ONLY + 1, 0);
	T_EQ(kv_props_check(&st.st_kvs[1].mk_props, "second"), -EOPNOTSUPP);
	kv_mdc_state_free(&st);
}

static void header_each_check(void)
{
	static struct kv_mdc_state st;

	start(&st);
	kv_mdc_enc_kvs_add(&b, TAG, 1, "first", 0);
	b.mb_p[0] ^= 1;
	fix_crc();
	T_EQ(fold(&st), 416);
	kv_mdc_enc_kvs_add(&b, TAG, 1, "first", 0);
	b.mb_p[8]++;
	fix_crc();
	T_EQ(fold(&st), 417);
	kv_mdc_enc_kvs_add(&b, TAG, 1, "first", 0);
	b.mb_p[6] ^= 1;
	fix_crc();
	T_EQ(fold(&st), -EOPNOTSUPP);
	kv_mdc_enc_kvs_add(&b, TAG, 1, "first", 0);
	b.mb_p[4] = KV_MDC_TYPES;
	fix_crc();
	T_EQ(fold(&st), -EOPNOTSUPP);
	kv_mdc_enc_kvs_add(&b, TAG, 1, "first", 0);
	T_EQ(fold(&st), 0);
	kv_mdc_state_free(&st);
}

static void rename_changes_the_name_and_nothing_else(void)
{
	static struct kv_mdc_state st;

	start(&st);
	kv_mdc_enc_kvs_add(&b, TAG, 1, "first", 3);
	T_EQ(fold(&st), 0);
	kv_mdc_enc_kvs_add(&b, TAG, 2, "second", 4);
	T_EQ(fold(&st), 0);
	add_run(&st, 1, 1, 1, NULL, 0, 0);
	kv_mdc_enc_kvs_rename(&b, TAG, 1, "other");
	T_EQ(fold(&st), 0);
	T_EQ(st.st_nkvs, 2);
	T_STREQ(st.st_kvs[0].mk_name, "other");
	T_EQ(st.st_kvs[0].mk_nrun, 1);
	T_EQ(st.st_kvs[0].mk_horizon, 10);
	T_STREQ(st.st_kvs[1].mk_name, "second");
	kv_mdc_state_free(&st);
}

static void rename_of_what_is_not_there_or_to_what_is_there_is_refused(void)
{
	static struct kv_mdc_state st;

	start(&st);
	kv_mdc_enc_kvs_add(&b, TAG, 1, "first", 3);
	T_EQ(fold(&st), 0);
	kv_mdc_enc_kvs_add(&b, TAG, 2, "second", 4);
	T_EQ(fold(&st), 0);
	kv_mdc_enc_kvs_rename(&b, TAG, 3, "third");
	T_EQ(fold(&st), 422);
	kv_mdc_enc_kvs_rename(&b, TAG, 1, "second");
	T_EQ(fold(&st), 422);
	kv_mdc_enc_kvs_rename(&b, TAG, 1, "");
	T_EQ(fold(&st), 421);
	kv_mdc_enc_kvs_rename(&b, TAG, 1, "a");
	/* bytes behind the name's end */
	b.mb_p[KV_MDC_HDR + 8 + 5] = 'x';
	fix_crc();
	T_EQ(fold(&st), 421);
	T_STREQ(st.st_kvs[0].mk_name, "first");
	kv_mdc_state_free(&st);
}

static void every_bit_flip_is_refused(void)
{
	static struct kv_mdc_state st;
	struct kv_kblock_desc kb = { 55, 4096, 7 };
	struct kv_run_desc d = { .rd_id = 1, .rd_pos = 1, .rd_max_seq = 5, .rd_kvs = 1, .rd_n = 1,
				 .rd_kb = &kb };
	struct kv_horizon hor = { 1, 3 };
	size_t i;

	start(&st);
	kv_mdc_enc_kvs_add(&b, TAG, 1, "first", 0);
	T_EQ(fold(&st), 0);
	kv_mdc_enc_edit(&b, TAG, 1, &d, NULL, 0, &hor, 1);
	for (i = 0; i < b.mb_len * 8; i++) {
		b.mb_p[i / 8] ^= (uint8_t)(1u << (i % 8));
		T_OK(fold(&st));
		b.mb_p[i / 8] ^= (uint8_t)(1u << (i % 8));
	}
	for (i = 0; i < b.mb_len; i++)
		T_OK(kv_mdc_fold(&st, b.mb_p, i));
	T_EQ(st.st_kvs[0].mk_nrun, 0);
	T_EQ(fold(&st), 0);
	kv_mdc_state_free(&st);
}

/* Random bodies with a right CRC must neither crash nor allocate without bound. */
static void hostile_bodies(void)
{
	static struct kv_mdc_state st;
	uint64_t seed = t_seed();
	unsigned i, j, len;
	uint32_t crc;

	for (i = 0; i < 20000; i++) {
		start(&st);
		kv_mdc_enc_kvs_add(&b, TAG, 1, "first", 0);
		T_EQ(fold(&st), 0);
		kv_mdc_enc_gone(&b, TAG, (uint64_t[16]){ 0 }, 16);
		len = KV_MDC_HDR + (unsigned)(t_rand(&seed) % 128);
		for (j = KV_MDC_HDR; j < len; j++)
			b.mb_p[j] = t_rand(&seed) % 3 ? 0 : (uint8_t)t_rand(&seed);
		b.mb_p[4] = (uint8_t)(1 + t_rand(&seed) % KV_MDC_TYPES);
		b.mb_p[8] = (uint8_t)len;
		b.mb_p[9] = 0;
		crc = mpool_crc32c(mpool_crc32c(0, b.mb_p, 12), b.mb_p + 16, len - 16);
		memcpy(b.mb_p + 12, &crc, 4);
		kv_mdc_fold(&st, b.mb_p, len);
		kv_mdc_state_free(&st);
	}
}

/* @field is where an epoch or a stamp lies: with a right CRC it is refused for being too great. */
static void number_is_refused(struct kv_mdc_state *st, size_t field)
{
	b.mb_p[KV_MDC_HDR + field + 7] |= 0x40;
	fix_crc();
	T_EQ(fold(st), 421);
	b.mb_p[KV_MDC_HDR + field + 7] &= 0x3f;
	fix_crc();
}

/* What an open takes as the greatest of all is counted on from. */
static void numbers_leave_room_to_count_on(void)
{
	static struct kv_mdc_state st, none;
	struct kv_kblock_desc kb = { 55, 4096, 7 };
	struct kv_run_desc d = { .rd_id = 1, .rd_pos = 1, .rd_max_seq = 5, .rd_kvs = 1, .rd_n = 1,
				 .rd_kb = &kb };
	struct kv_mdc_super s = { .ms_tag = TAG, .ms_format = KV_FORMAT, .ms_next_kvs = 1,
				  .ms_next_run = 1 };
	struct kv_mdc_incarn in = { .mi_incarnation = 1, .mi_d = 6, .mi_epoch = 7, .mi_seq = 9 };
	struct kv_mdc_ckpt c = pin("one", 50);
	struct kv_mdc_leaf lf = { .ml_id = 2, .ml_key = (uint8_t *)"" };
	struct kv_mdc_leaves le = { .le_kvs = 1, .le_begin = &lf, .le_nbegin = 1 };
	struct kv_horizon hor = { 1, 3 };

	kv_mdc_enc_super(&b, &s);
	number_is_refused(&none, 40);
	number_is_refused(&none, 48);
	start(&st);
	kv_mdc_enc_kvs_add(&b, TAG, 1, "first", 0);
	number_is_refused(&st, 8);
	T_EQ(fold(&st), 0);
	kv_mdc_enc_edit(&b, TAG, 1, NULL, NULL, 0, &hor, 1);
	number_is_refused(&st, 24);
	kv_mdc_enc_leaves(&b, TAG, &le);
	number_is_refused(&st, 24);
	kv_mdc_enc_edit(&b, TAG, 1, &d, NULL, 0, NULL, 0);
	number_is_refused(&st, 16);
	number_is_refused(&st, 16 + 8);
	number_is_refused(&st, 16 + 16);	/* keys: more than its blocks hold */
	number_is_refused(&st, 16 + 32);
	number_is_refused(&st, 16 + 40);
	T_EQ(fold(&st), 0);
	kv_mdc_enc_incarn(&b, TAG, &in);
	number_is_refused(&st, 16);
	number_is_refused(&st, 24);
	T_EQ(fold(&st), 0);
	in.mi_incarnation = UINT32_MAX;
	kv_mdc_enc_incarn(&b, TAG, &in);
	T_EQ(fold(&st), 421);
	kv_mdc_enc_time(&b, TAG, 10);
	number_is_refused(&st, 0);
	kv_mdc_enc_clean(&b, TAG, 8, 9);
	number_is_refused(&st, 0);
	number_is_refused(&st, 8);
	kv_mdc_enc_ckpt_add(&b, TAG, &c);
	number_is_refused(&st, 0);
	number_is_refused(&st, 8);
	T_EQ(fold(&st), 0);
	kv_mdc_state_free(&st);
}

static void torn_incarnation_is_forgotten(void)
{
	static struct kv_mdc_state st;
	struct kv_mdc_seg s[3] = { { 10, 5, 4096 }, { 11, 6, 8192 }, { 12, 0, 0 } };
	struct kv_mdc_incarn in = { .mi_incarnation = 1, .mi_nsegs = 3, .mi_d = 6, .mi_epoch = 7,
				    .mi_seq = 9, .mi_ckpt = 12 };

	start(&st);
	/* an attempt that was cut after its first part */
	kv_mdc_enc_segs(&b, TAG, true, 0, s, 1);
	T_EQ(fold(&st), 0);
	T_EQ(st.st_nseg, 0);
	/* the next one, complete in two parts */
	kv_mdc_enc_segs(&b, TAG, true, 0, s, 2);
	T_EQ(fold(&st), 0);
	kv_mdc_enc_segs(&b, TAG, true, 1, s + 2, 1);
	T_EQ(fold(&st), 0);
	kv_mdc_enc_incarn(&b, TAG, &in);
	T_EQ(fold(&st), 0);
	T_EQ(st.st_nseg, 3);
	T_EQ(kv_mdc_state_seg(&st, 11)->sc_len, 8192);
	/* an incarnation does not come twice, nor without its parts */
	in.mi_nsegs = 0;
	kv_mdc_enc_incarn(&b, TAG, &in);
	T_EQ(fold(&st), 422);
	in.mi_incarnation = 2;
	in.mi_nsegs = 1;
	kv_mdc_enc_incarn(&b, TAG, &in);
	T_EQ(fold(&st), 421);
	kv_mdc_state_free(&st);
}

/* R3: never more than an earlier record said. */
static void sealed_lengths_never_grow(void)
{
	static struct kv_mdc_state st;
	struct kv_mdc_seg s = { 10, 5, 4096 };

	start(&st);
	kv_mdc_enc_segs(&b, TAG, false, 0, &s, 1);
	T_EQ(fold(&st), 0);
	s.sc_len = 8192;
	kv_mdc_enc_segs(&b, TAG, false, 0, &s, 1);
	T_EQ(fold(&st), 0);
	T_EQ(kv_mdc_state_seg(&st, 10)->sc_len, 4096);
	kv_mdc_state_segs_del(&st, &s.sc_obj, 1);
	T_OK(!kv_mdc_state_seg(&st, 10));
	kv_mdc_state_free(&st);
}

/* Any of them, with ids that are not there in between. */
static void segments_that_are_deleted_leave_the_state(void)
{
	static struct kv_mdc_state st;
	struct kv_mdc_seg s[64], *was;
	uint64_t id[64], rnd = t_seed();

	for (unsigned i = 0; i < 64; i++)
		s[i] = (struct kv_mdc_seg){ .sc_obj = 10 + 2 * i, .sc_len = 4096 };
	for (unsigned turn = 0; turn < 1000; turn++) {
		unsigned n = 1 + t_rand(&rnd) % 64, k = 0, left = 0;
		uint64_t step = 1 + t_rand(&rnd) % 9;

		start(&st);
		kv_mdc_state_segs_del(&st, id, 0);
		kv_mdc_state_segs_del(&st, &s[0].sc_obj, 1);
		kv_mdc_enc_segs(&b, TAG, false, 0, s, n);
		T_EQ(fold(&st), 0);
		for (uint64_t x = t_rand(&rnd) % 20; x < 150; x += 1 + t_rand(&rnd) % step)
			if (k < 64)
				id[k++] = x;
		kv_mdc_state_segs_del(&st, id, k);
		for (unsigned i = 0; i < n; i++) {
			bool is_gone = kv_ids_have(id, k, s[i].sc_obj);

			T_EQ(!kv_mdc_state_seg(&st, s[i].sc_obj), is_gone);
			left += !is_gone;
		}
		T_EQ(st.st_nseg, left);
		was = st.st_seg;
		for (unsigned i = 1; i < left; i++)
			T_OK(was[i - 1].sc_obj < was[i].sc_obj);
		kv_mdc_state_free(&st);
	}
}

/* ---- on a pool ------------------------------------------------------------------ */

static char dir[256];

static void pool_make(void)
{
	kv_fresh(dir, sizeof(dir), "kv_mdc", 64u << 20, 0);
}

static void compaction_keeps_the_state(void)
{
	static struct kvdb db;
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct kv_mdc_seg s = { 10, 5, 4096 };
	struct kv_mdc_incarn in = { .mi_incarnation = 1, .mi_d = 6, .mi_epoch = 7, .mi_seq = 9 };
	struct kv_props p = { .pr_val = { [KV_PROP_PFX_LEN] = 9 } };
	struct kv_props later = { .pr_val = { [KV_PROP_TTL] = 60 } };
	uint64_t used, before = 0, cap;
	bool was_compacted = false;
	char name[32];
	unsigned i;

	pool_make();
	T_EQ(kvdb_create(dir, NULL), -EEXIST);
	memset(&db, 0, sizeof(db));
	T_EQ(kv_db_attach(&db, dir, &o, false), 0);
	T_EQ(mpool_begin(db.d_mp), 0);
	T_EQ(kv_mdc_incarn(&db, &in, &s, 1), 0);
	for (i = 1; i <= 400; i++) {
		snprintf(name, sizeof(name), "store%u", i);
		T_EQ(kv_mdc_kvs_add(&db, i, name, 5, &p), 0);
		if (i == 3)
			T_EQ(kv_mdc_kvs_prop(&db, i, &later, KV_PROP_BIT(KV_PROP_TTL)), 0);
		if (i > 5)
			T_EQ(kv_mdc_kvs_drop(&db, i), 0);
		mpool_mdc_space(db.d_mdc->m_log, &used, &cap);
		was_compacted |= used < before;
		before = used;
	}
	T_OK(was_compacted);
	kv_db_detach(&db);
	T_EQ(mpool_close(db.d_mp), 0);
	memset(&db, 0, sizeof(db));
	T_EQ(kv_db_attach(&db, dir, &o, false), 0);
	T_EQ(db.d_mdc->m_st.st_nkvs, 5);
	T_EQ(db.d_mdc->m_st.st_super.ms_next_kvs, 401);
	T_EQ(db.d_mdc->m_st.st_inc.mi_incarnation, 1);
	T_EQ(db.d_mdc->m_st.st_inc.mi_epoch, 7);
	T_EQ(db.d_mdc->m_st.st_nseg, 1);
	for (i = 0; i < 5; i++) {
		const struct kv_mdc_kvs *k = &db.d_mdc->m_st.st_kvs[i];

		T_EQ(k->mk_horizon, 5);
		T_EQ(k->mk_props.pr_val[KV_PROP_PFX_LEN], 9);
		T_EQ(k->mk_props.pr_val[KV_PROP_TTL], k->mk_id == 3 ? 60 : 0);
	}
	kv_db_detach(&db);
	T_EQ(mpool_close(db.d_mp), 0);
	T_EQ(kvdb_drop(dir, NULL), 0);
	T_EQ(kvdb_drop(dir, NULL), -ENOENT);
	T_EQ(kvdb_create(dir, NULL), 0);
	T_EQ(mpool_destroy(dir, NULL), 0);
	rmdir(dir);
}

static void db_attach(struct kvdb *db)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;

	memset(db, 0, sizeof(*db));
	T_EQ(kv_db_attach(db, dir, &o, false), 0);
	T_EQ(mpool_begin(db->d_mp), 0);
}

static void db_detach(struct kvdb *db)
{
	kv_db_detach(db);
	T_EQ(mpool_close(db->d_mp), 0);
}

/* Sealed segments until not one more fits. */
static void container_fill(struct kvdb *db)
{
	struct kv_mdc_seg s[500];
	uint64_t id = 1000;
	unsigned n = 500, i;
	int err;

	do {
		for (i = 0; i < n; i++)
			s[i] = (struct kv_mdc_seg){ id + i, 5, 4096 };
		err = kv_mdc_segs(db, s, n);
		id += n;
		if (err)
			n /= 5;
	} while (n);
	T_EQ(err, -ENOSPC);
	T_EQ(kv_mdc_clean(db, 7), 0);	/* it is durable */
}

/* What the recovery of an open records: all segments, once more. */
static int open_again(struct kvdb *db, uint32_t incarnation)
{
	const struct kv_mdc_state *st;
	struct kv_mdc_incarn in = { .mi_incarnation = incarnation, .mi_d = 6, .mi_epoch = 7 };
	struct kv_mdc_seg *s;
	uint32_t n;
	int err;

	db_attach(db);
	st = &db->d_mdc->m_st;
	n = (uint32_t)st->st_nseg;
	s = malloc((n + 1) * sizeof(*s));
	T_OK(s);
	memcpy(s, st->st_seg, n * sizeof(*s));
	err = kv_mdc_incarn(db, &in, s, n);
	free(s);
	T_OK(err || st->st_nseg == n);
	return err;
}

/* Else no call could make room in it again. */
static void a_full_container_takes_what_opens_and_drops_write(void)
{
	static struct kvdb db;
	struct kv_mdc_incarn in = { .mi_incarnation = 1, .mi_d = 6, .mi_epoch = 7 };
	struct kv_props p = { .pr_unknown = 0 };
	struct kv_mdc_ckpt c = pin("one", 50);
	uint32_t i;

	pool_make();
	db_attach(&db);
	T_EQ(kv_mdc_incarn(&db, &in, NULL, 0), 0);
	T_EQ(kv_mdc_kvs_add(&db, 1, "first", 5, &p), 0);
	T_EQ(kv_mdc_kvs_add(&db, 2, "second", 5, &p), 0);
	T_EQ(kv_mdc_ckpt_add(&db, &c), 0);
	container_fill(&db);
	db_detach(&db);
	for (i = 2; i < 40; i++) {
		T_EQ(open_again(&db, i), 0);
		T_EQ(kv_mdc_kvs_add(&db, 3, "third", 5, &p), -ENOSPC);
		T_EQ(kv_mdc_clean(&db, 7), 0);
		db_detach(&db);
	}
	T_EQ(open_again(&db, i), 0);
	T_EQ(kv_mdc_kvs_rename(&db, 1, "other"), 0);
	T_EQ(kv_mdc_ckpt_drop(&db, 50), 0);
	T_EQ(kv_mdc_kvs_drop(&db, 2), 0);
	T_OK(!kv_fault(&db));
	db_detach(&db);
	T_EQ(open_again(&db, i + 1), 0);
	T_EQ(db.d_mdc->m_st.st_nkvs, 1);
	T_EQ(db.d_mdc->m_st.st_nckpt, 0);
	db_detach(&db);
	T_EQ(mpool_destroy(dir, NULL), 0);
}

/* A state that is larger than it was counted. What is in the log goes on to count. */
static void a_compaction_that_does_not_fit_is_given_up(void)
{
	static struct kvdb db;
	struct kv_mdc_incarn in = { .mi_incarnation = 1, .mi_d = 6, .mi_epoch = 7 };
	struct kv_mdc_state *st;
	struct kv_mdc_seg *own, *much = calloc(60000, sizeof(*much));
	size_t n;
	int err;

	T_OK(much);
	pool_make();
	db_attach(&db);
	T_EQ(kv_mdc_incarn(&db, &in, NULL, 0), 0);
	st = &db.d_mdc->m_st;
	own = st->st_seg;
	n = st->st_nseg;
	st->st_seg = much;
	st->st_nseg = 60000;
	while (!(err = kv_mdc_clean(&db, 7)))
		;
	T_EQ(err, -ENOSPC);
	T_EQ(kv_mdc_clean(&db, 7), -ENOSPC);
	T_OK(!kv_fault(&db));
	st->st_seg = own;
	st->st_nseg = n;
	T_EQ(kv_mdc_clean(&db, 8), 0);
	free(much);
	db_detach(&db);
	db_attach(&db);
	T_EQ(db.d_mdc->m_st.st_super.ms_floor, 8);
	T_EQ(db.d_mdc->m_st.st_inc.mi_incarnation, 1);
	db_detach(&db);
	T_EQ(mpool_destroy(dir, NULL), 0);
}

/* Of a pool full of segments as small as the logs' are: each is described, and once more. */
static void a_small_staging_class_bounds_no_database(void)
{
	struct mpool_dev_spec dev[2] = { { .mclass = MPOOL_CAPACITY, .size = 8ull << 30 },
					 { .mclass = MPOOL_STAGING, .size = 64u << 20 } };
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	struct kv_mdc_incarn in = { .mi_incarnation = 1, .mi_d = 6, .mi_epoch = 7 };
	static struct kvdb db;
	struct mpool_info pi;
	uint64_t n, all;

	kv_fresh_dir(dir, sizeof(dir), "kv_mdc");
	co.devs = dev;
	co.ndevs = 2;
	T_EQ(mpool_create(dir, &co), 0);
	T_EQ(kvdb_create(dir, NULL), 0);
	db_attach(&db);
	T_EQ(db.d_mode.md_log_class, MPOOL_STAGING);
	T_EQ(mpool_info(db.d_mp, &pi), 0);
	all = (pi.cls[0].total + pi.cls[1].total) / db.d_budget.b_seg_bytes;
	T_EQ(kv_mdc_incarn(&db, &in, NULL, 0), 0);
	for (n = 0; n < all; n += 100) {
		struct kv_mdc_seg s[100];

		for (unsigned i = 0; i < 100; i++)
			s[i] = (struct kv_mdc_seg){ 1000 + n + i, 5, 4096 };
		T_EQ(kv_mdc_segs(&db, s, 100), 0);
	}
	T_EQ(kv_mdc_clean(&db, 7), 0);	/* it is durable */
	db_detach(&db);
	T_EQ(open_again(&db, 2), 0);
	T_OK(db.d_mdc->m_st.st_nseg >= all);
	container_fill(&db);
	T_OK(strstr(kvdb_error_detail()->text, "segment_bytes"));
	db_detach(&db);
	T_EQ(mpool_destroy(dir, NULL), 0);
	rmdir(dir);
}

/* However much room there is: an open reads all of it. */
static void a_long_log_is_written_anew(void)
{
	static struct kvdb db;
	struct kv_mdc_incarn in = { .mi_incarnation = 1, .mi_d = 6, .mi_epoch = 7 };
	struct kv_mdc_seg *s = calloc(KV_MDC_PART, sizeof(*s));
	uint64_t used = 0, cap, most = 0, have;

	T_OK(s);
	for (uint32_t i = 0; i < KV_MDC_PART; i++)
		s[i] = (struct kv_mdc_seg){ 1000 + i, 5, 4096 };
	kv_fresh(dir, sizeof(dir), "kv_mdc", 96ull << 30, 64u << 10);
	db_attach(&db);
	T_EQ(mpool_mdc_space(db.d_mdc->m_log, &used, &cap), 0);
	T_OK(cap >= 80u << 20);
	/* as on a block device, or made by an earlier build */
	T_EQ(mpool_mdc_reserve(db.d_mdc->m_log, cap, 0, &have), 0);
	T_EQ(have, cap);
	for (unsigned i = 0; i < 220; i++) {
		in.mi_incarnation++;
		T_EQ(kv_mdc_incarn(&db, &in, s, KV_MDC_PART), 0);
		T_EQ(mpool_mdc_space(db.d_mdc->m_log, &used, &cap), 0);
		most = used > most ? used : most;
	}
	T_OK(most > 60u << 20 && most < 66u << 20);
	T_EQ(db.d_mdc->m_st.st_nseg, KV_MDC_PART);
	db_detach(&db);
	T_EQ(open_again(&db, in.mi_incarnation + 1), 0);
	T_EQ(db.d_mdc->m_st.st_nseg, KV_MDC_PART);
	db_detach(&db);
	free(s);
	T_EQ(mpool_destroy(dir, NULL), 0);
	rmdir(dir);
}

/* In a file the log takes space as the state does, and no more for records of the same again. */
static void a_container_takes_the_space_of_its_state(void)
{
	static struct kvdb db;
	struct kv_mdc_incarn in = { .mi_incarnation = 1, .mi_d = 6, .mi_epoch = 7 };
	struct kv_mdc_seg *s = calloc(KV_MDC_PART, sizeof(*s));
	uint64_t first = 0, have = 0;

	T_OK(s);
	for (uint32_t i = 0; i < KV_MDC_PART; i++)
		s[i] = (struct kv_mdc_seg){ 1000 + i, 5, 4096 };
	kv_fresh(dir, sizeof(dir), "kv_mdc", 16ull << 30, 64u << 10);
	db_attach(&db);
	for (unsigned i = 0; i < 400; i++) {
		in.mi_incarnation++;
		T_EQ(kv_mdc_incarn(&db, &in, s, i < 200 ? 100 : KV_MDC_PART), 0);
		T_EQ(mpool_mdc_reserve(db.d_mdc->m_log, 0, 0, &have), 0);
		if (i < 200)
			first = have;
	}
	T_EQ(first, 512u << 10);
	T_OK(have > kv_mdc_state_bytes(&db.d_mdc->m_st));
	T_OK(have < 10 * kv_mdc_state_bytes(&db.d_mdc->m_st));
	db_detach(&db);
	T_EQ(open_again(&db, in.mi_incarnation + 1), 0);
	T_EQ(db.d_mdc->m_st.st_nseg, KV_MDC_PART);
	T_EQ(mpool_mdc_reserve(db.d_mdc->m_log, 0, 0, &first), 0);
	T_EQ(first, have);
	db_detach(&db);
	free(s);
	T_EQ(mpool_destroy(dir, NULL), 0);
	rmdir(dir);
}

#define UNKNOWN 2000u

/* Segments that are there, though no record of the container says so. */
static void room_is_left_for_segments_that_are_not_known(void)
{
	static struct kvdb db;
	struct kv_mdc_incarn in = { .mi_incarnation = 1, .mi_d = 6, .mi_epoch = 7 };
	struct kv_props p = { .pr_unknown = 0 };
	struct kv_mdc_seg cut[UNKNOWN];
	uint64_t id[4096], one;
	uint32_t i, n = 4096;
	struct kv_seg *s;

	kv_fresh(dir, sizeof(dir), "kv_mdc", 256u << 20, 0);
	db_attach(&db);
	T_EQ(kv_mdc_incarn(&db, &in, NULL, 0), 0);
	for (i = 0; i < UNKNOWN; i++) {
		T_EQ(kv_seg_alloc(&db, 0, KV_VLOG, 64u << 10, true, &s), 0);
		cut[i] = (struct kv_mdc_seg){ .sc_obj = one = s->sg_id };
		kv_seg_put(&db, s);
	}
	/* a name that is not forgotten, as often as what fills it in earnest may do so */
	for (i = 0; i < 4096; i++)
		id[i] = one;
	for (; n; n /= 4)
		while (!kv_mdc_kvs_add(&db, 1, "s", 5, &p)) {
			T_EQ(kv_mdc_kvs_drop(&db, 1), 0);
			T_EQ(kv_mdc_gone(&db, id, n), 0);
		}
	T_EQ(kv_mdc_clean(&db, 7), 0);
	db_detach(&db);
	for (i = 2; i < 6; i++) {
		db_attach(&db);
		in.mi_incarnation = i;
		T_EQ(kv_mdc_incarn(&db, &in, cut, UNKNOWN), 0);
		db_detach(&db);
	}
	T_EQ(mpool_destroy(dir, NULL), 0);
}

int main(void)
{
	T_RUN(super_each_check);
	T_RUN(fold_builds_the_state);
	T_RUN(an_edit_costs_the_same_however_much_is_gone);
	T_RUN(checkpoints_come_and_go);
	T_RUN(what_is_not_there_is_refused);
	T_RUN(leaves_begin_and_end);
	T_RUN(rename_changes_the_name_and_nothing_else);
	T_RUN(rename_of_what_is_not_there_or_to_what_is_there_is_refused);
	T_RUN(unknown_formats_are_refused_by_name);
	T_RUN(options_wait_for_their_store_and_for_no_other);
	T_RUN(options_that_are_not_known_are_remembered_as_such);
	T_RUN(header_each_check);
	T_RUN(every_bit_flip_is_refused);
	T_RUN(hostile_bodies);
	T_RUN(numbers_leave_room_to_count_on);
	T_RUN(torn_incarnation_is_forgotten);
	T_RUN(sealed_lengths_never_grow);
	T_RUN(segments_that_are_deleted_leave_the_state);
	T_RUN(compaction_keeps_the_state);
	T_RUN(a_full_container_takes_what_opens_and_drops_write);
	T_RUN(a_compaction_that_does_not_fit_is_given_up);
	T_RUN(room_is_left_for_segments_that_are_not_known);
	T_RUN(a_small_staging_class_bounds_no_database);
	T_RUN(a_long_log_is_written_anew);
	T_RUN(a_container_takes_the_space_of_its_state);
	kv_mdc_buf_free(&b);
	return t_done();
}
