/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Packing: the methods by themselves, the fields in records and key pages, and
 * values that are packed, recoded and damaged in a real database without
 * threads.
 */
#include "harness.h"

#include <errno.h>
#include <unistd.h>

#include "base/hash.h"
#include "db/db.h"
#include "seg/value.h"
#include "run/run_omf.h"
#include "tree/tree.h"
#include "kv_fresh.h"
#include "seg/kv_omf.h"
#include "meta/mdc.h"
#include "base/pack.h"
#include "compact/reloc.h"
#include "run/run.h"
#include "db/thread.h"

#define KEYS	300u
#define VLEN	3000u
#define SEG	(256u << 10)

static uint64_t rnd;

/* ---- methods ------------------------------------------------------------------------ */

/* Words out of a few: packs to about a third. */
static void text(uint64_t seed, uint8_t *p, size_t len)
{
	static const char *const word[] = { "segment ", "epoch ", "of ", "the ", "value ", "is ",
					    "durable ", "horizon ", "and ", "frame, ", "key\n" };
	size_t at = 0;

	while (at < len) {
		const char *w = word[t_rand(&seed) % (sizeof(word) / sizeof(word[0]))];
		size_t n = strlen(w);

		n = n < len - at ? n : len - at;
		memcpy(p + at, w, n);
		at += n;
	}
}

static void noise(uint64_t seed, uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)t_rand(&seed);
}

static void what_is_packed_unpacks_to_itself(void)
{
	static const uint32_t len[] = { 1, 8, 9, 129, 200, 4095, 4096, 16384, 16385, 100000,
					1u << 20 };
	uint8_t *val = malloc(1u << 20), *out = malloc(1u << 20);
	struct kv_packer *pk;
	const uint8_t *packed;

	for (uint8_t how = KVDB_COMPRESS_LZ4; how <= KVDB_COMPRESS_ZSTD; how++) {
		T_EQ(kv_packer_open(how, &pk), 0);
		for (unsigned i = 0; i < sizeof(len) / sizeof(len[0]); i++) {
			uint32_t n;

			text(i, val, len[i]);
			n = kv_pack(pk, val, len[i], &packed);
			T_OK(len[i] < 4095 ? n < len[i] : n && n < len[i] / 2);
			T_OK(n + n / 8 <= len[i]);
			if (!n)
				continue;
			T_OK(kv_unpack(how, packed, n, out, len[i]));
			T_OK(!memcmp(val, out, len[i]));
			T_OK(!kv_unpack(how, packed, n, out, len[i] - 1));
			T_OK(!kv_unpack(how, packed, n - 1, out, len[i]));
		}
		kv_packer_close(pk);
	}
	T_OK(!kv_unpack(KVDB_COMPRESS_ZSTD + 1, val, 10, out, 10));
	free(val);
	free(out);
}

static void what_does_not_shrink_stays_and_is_soon_not_tried(void)
{
	uint8_t *val = malloc(64u << 10);
	unsigned packs = 0, after = 0;
	struct kv_packer *pk;
	const uint8_t *packed;

	for (uint8_t how = KVDB_COMPRESS_LZ4; how <= KVDB_COMPRESS_ZSTD; how++) {
		T_EQ(kv_packer_open(how, &pk), 0);
		for (unsigned i = 0; i < 70; i++) {
			noise(i, val, 64u << 10);
			T_EQ(kv_pack(pk, val, i % 2 ? 2000 : 64u << 10, &packed), 0);
		}
		/* text is found out again, and then each is packed */
		text(1, val, 2000);
		for (unsigned i = 0; i < 16; i++)
			packs += kv_pack(pk, val, 2000, &packed) != 0;
		for (unsigned i = 0; i < 16; i++)
			after += kv_pack(pk, val, 2000, &packed) != 0;
		kv_packer_close(pk);
	}
	T_OK(packs >= 2 && packs < 32);
	T_EQ(after, 32);
	free(val);
}

/* Random bytes, and good blocks with some of them changed: nothing beyond the end is written. */
static void hostile_blocks_are_survived(void)
{
	enum { LEN = 5000, GUARD = 64 };
	uint8_t val[LEN], bad[LEN], *out;
	struct kv_packer *pk;
	const uint8_t *packed;

	for (unsigned round = 0; round < 20000; round++) {
		uint8_t how = round % 2 ? KVDB_COMPRESS_LZ4 : KVDB_COMPRESS_ZSTD;
		uint32_t n = (uint32_t)(t_rand(&rnd) % LEN) + 1;
		uint32_t len = (uint32_t)(t_rand(&rnd) % LEN);

		if (round % 4 < 2) {
			noise(round, bad, n);
			if (how == KVDB_COMPRESS_ZSTD && n > 4)
				memcpy(bad, "\x28\xb5\x2f\xfd", 4);
		} else {
			T_EQ(kv_packer_open(how, &pk), 0);
			text(round, val, LEN);
			n = kv_pack(pk, val, LEN, &packed);
			memcpy(bad, packed, n);
			kv_packer_close(pk);
			for (unsigned i = 0; i <= round % 3; i++)
				bad[t_rand(&rnd) % n] ^= (uint8_t)(1u << t_rand(&rnd) % 8);
		}
		/* of its very size, for AddressSanitizer */
		out = malloc(len + GUARD);
		memset(out + len, 0xa5, GUARD);
		kv_unpack(how, bad, n, out, len);
		for (unsigned i = 0; i < GUARD; i++)
			T_EQ(out[len + i], 0xa5);
		free(out);
	}
}

/* ---- fields ------------------------------------------------------------------------------ */

static void records_say_what_the_value_was(void)
{
	uint32_t size = kv_rec_size(3, 40) + 8 + KV_REC_PACKED;
	uint8_t buf[256] = { 0 };
	struct kv_rec r;

	kv_rec_encode(buf, KV_REC_PUT, 7, "abc", 3, "packed value of forty bytes, more or less", 40,
		      mpool_crc32c(0, "packed value of forty bytes, more or less", 40));
	kv_rec_set_expiry(buf, 99);
	kv_rec_set_packed(buf, KVDB_COMPRESS_ZSTD, KVDB_VALUE_MAX, 0x12345678);
	kv_rec_stamp(buf, 5, 64, 10);
	T_EQ(kv_rec_decode(buf, 5, 64, size, true, &r), 0);
	T_EQ(r.r_size, size);
	T_EQ(r.r_expiry, 99);
	T_EQ(r.r_pack, KVDB_COMPRESS_ZSTD);
	T_EQ(r.r_raw_len, KVDB_VALUE_MAX);
	T_EQ(r.r_raw_crc, 0x12345678);
	T_EQ(kv_rec_decode(buf, 5, 64, size - 8, true, &r), 409);
	buf[size - 1] ^= 1;
	T_EQ(kv_rec_decode(buf, 5, 64, size, true, &r), 410);
}

static void impossible_fields_of_records_are_refused(void)
{
	static const struct {
		uint8_t how;
		uint32_t len;
	} bad[] = { { 0, 100 }, { 3, 100 }, { 1, 40 }, { 1, 39 }, { 1, KVDB_VALUE_MAX + 1 } };
	uint32_t size = kv_rec_size(3, 40) + KV_REC_PACKED;
	uint8_t buf[256] = { 0 };
	struct kv_rec r;

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		kv_rec_encode(buf, KV_REC_PUT, 7, "abc", 3, NULL, 40, 0);
		kv_rec_set_packed(buf, bad[i].how, bad[i].len, 1);
		kv_rec_stamp(buf, 5, 64, 10);
		T_EQ(kv_rec_decode(buf, 5, 64, size, false, &r), 594);
	}
}

/* A page with one entry, whose packed fields are these. */
static const char *page_with(uint8_t kind, uint8_t how, uint32_t vlen, uint32_t plen,
			     struct kv_kent *e)
{
	static struct kv_kpb pb;
	static uint8_t page[KV_PAGE];
	struct kv_kpb_in in = { .in_key = (const uint8_t *)"somekey",
				.in_ent = { .pe_klen = 7, .pe_kind = kind, .pe_pack = how,
					    .pe_seg = 1, .pe_off8 = 300, .pe_vlen = vlen,
					    .pe_vcrc = 0xaaaa, .pe_plen = plen,
					    .pe_pcrc = 0xbbbb, .pe_seq = 3 } };
	struct kv_kpage kp;
	const char *bad;

	T_EQ(kv_kpb_add(&pb, &in), 0);
	kv_kpb_encode(&pb, 0, page);
	T_OK(!kv_kpage_decode(page, 0, &kp));
	bad = kv_kpage_ent(&kp, 0, e);
	return bad ? bad : "good";
}

static void key_pages_say_what_the_value_was(void)
{
	struct kv_kent e;

	T_STREQ(page_with(KV_ENT_REF, KVDB_COMPRESS_LZ4, 200000, 129, &e), "good");
	T_EQ(e.ke_pack, KVDB_COMPRESS_LZ4);
	T_EQ(e.ke_seg, 1);
	T_EQ(e.ke_off8, 300);
	T_EQ(e.ke_vlen, 200000);
	T_EQ(e.ke_vcrc, 0xaaaa);
	T_EQ(e.ke_plen, 129);
	T_EQ(e.ke_pcrc, 0xbbbb);
	T_STREQ(page_with(KV_ENT_REF, 0, 200000, 129, &e), "good");
	T_EQ(e.ke_pack + e.ke_plen + e.ke_pcrc, 0);
}

static void impossible_entries_are_refused(void)
{
	struct kv_kent e;

	T_STREQ(page_with(KV_ENT_REF, 3, 2000, 1000, &e), "key page: entry of a packed value");
	T_STREQ(page_with(KV_ENT_REF, 1, 2000, 2000, &e), "key page: length of a packed value");
	T_STREQ(page_with(KV_ENT_REF, 1, 2000, 0, &e), "key page: length of a packed value");
	T_STREQ(page_with(KV_ENT_TOMB, 1, 2000, 1000, &e), "key page: entry kind");
}

static void a_feature_that_is_not_known_is_refused(void)
{
	struct kv_mdc_super s = { .ms_tag = KV_TAG_MARK << 48, .ms_format = KV_FORMAT,
				  .ms_next_kvs = 1, .ms_next_run = 1 };
	struct kv_mdc_state st = { 0 };
	struct kv_mdc_buf b = { 0 };

	kv_mdc_enc_super(&b, &s);
	T_EQ(kv_mdc_fold(&st, b.mb_p, b.mb_len), 0);
	kv_mdc_enc_features(&b, s.ms_tag, KV_FEAT_PACKED);
	T_EQ(kv_mdc_fold(&st, b.mb_p, b.mb_len), 0);
	T_EQ(st.st_super.ms_incompat, KV_FEAT_PACKED);
	kv_mdc_enc_features(&b, s.ms_tag, 0x80000000u);
	T_EQ(kv_mdc_fold(&st, b.mb_p, b.mb_len), -EOPNOTSUPP);
	kv_mdc_state_free(&st);
	memset(&st, 0, sizeof(st));
	s.ms_incompat = 0x80000000u;
	kv_mdc_enc_super(&b, &s);
	T_EQ(kv_mdc_fold(&st, b.mb_p, b.mb_len), -EOPNOTSUPP);
	kv_mdc_state_free(&st);
	kv_mdc_buf_free(&b);
}

/* ---- a database ---------------------------------------------------------------------------- */

static char dir[256];
static struct kvdb *db;
static struct kvdb_kvs *kvs;
static uint32_t version[KEYS];

static void open_db(void)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;

	o.flags = KVDB_MANUAL;
	o.logs = 1;
	o.cache_bytes = 64u << 20;
	T_EQ(kvdb_open(dir, &o, &db), 0);
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
}

static void fresh(uint32_t how)
{
	struct kvdb_kvs_opts ko = KVDB_KVS_OPTS_INIT;
	struct kvdb_opts o = KVDB_OPTS_INIT;

	kv_fresh(dir, sizeof(dir), "kv_pack", 64u << 20, SEG);
	memset(version, 0, sizeof(version));
	o.flags = KVDB_MANUAL;
	T_EQ(kvdb_open(dir, &o, &db), 0);
	ko.compress = how;
	T_EQ(kvdb_kvs_create(db, "s", &ko), 0);
	T_EQ(kvdb_close(db), 0);
	open_db();
}

static void done(uint64_t damage)
{
	uint64_t n = 12345;

	T_EQ(kvdb_close(db), 0);
	T_EQ(kvdb_verify(dir, NULL, MPOOL_VERIFY_DATA, NULL, NULL, &n), 0);
	T_EQ(n, damage);
	T_EQ(mpool_destroy(dir, NULL), 0);
	rmdir(dir);
}

/* Three of four are text. */
static void value(uint32_t k, uint32_t ver, uint8_t *val)
{
	(k % 4 ? text : noise)((uint64_t)ver << 32 | k, val, VLEN);
}

static size_t key_of(uint32_t k, char *key)
{
	return (size_t)sprintf(key, "%04u-key", k);
}

static void put_some(uint32_t first, uint32_t step)
{
	uint8_t val[VLEN];
	char key[32];

	for (uint32_t k = first; k < KEYS; k += step) {
		value(k, ++version[k], val);
		T_EQ(kvdb_put(kvs, key, key_of(k, key), val, VLEN), 0);
	}
}

static void all_hold(void)
{
	uint8_t want[VLEN], got[VLEN];
	char key[32];
	size_t len;

	for (uint32_t k = 0; k < KEYS; k++) {
		value(k, version[k], want);
		T_EQ(kvdb_get(kvs, key, key_of(k, key), got, VLEN, &len), 0);
		T_EQ(len, VLEN);
		T_MEMEQ(got, want, VLEN);
		/* a part of it */
		T_EQ(kvdb_get(kvs, key, key_of(k, key), got, 100, &len), 0);
		T_EQ(len, VLEN);
		T_MEMEQ(got, want, 100);
	}
}

static struct kvdb_stats stats(void)
{
	struct kvdb_stats st;

	T_EQ(kvdb_stats(db, &st), 0);
	return st;
}

static void compact(void)
{
	T_EQ(kvdb_compact(db, KVDB_COMPACT_WAIT), 0);
	all_hold();
}

static void set(uint32_t how)
{
	struct kvdb_kvs_opts ko = KVDB_KVS_OPTS_INIT;

	ko.compress = how;
	T_EQ(kvdb_kvs_set(kvs, &ko, KVDB_KVS_COMPRESS), 0);
}

static int find(struct kv_tree *tr, uint32_t k, struct kv_ent *e)
{
	char key[32];
	size_t klen = key_of(k, key);
	int rc = -ENOENT;

	for (uint32_t i = 0; i < tr->tr_nrun && rc == -ENOENT; i++)
		rc = kv_run_lookup(db, tr->tr_run[i], key, klen, kv_hash(key, klen), e);
	return rc;
}

/* How many values are packed, by method. */
static void count(unsigned n[3])
{
	struct kv_thread *t = kv_enter();
	struct kv_ent e;

	memset(n, 0, 3 * sizeof(n[0]));
	for (uint32_t k = 0; k < KEYS; k++) {
		T_EQ(find(atomic_load(&kvs->k_tree), k, &e), 0);
		n[e.e_pack]++;
	}
	kv_exit(t);
}

/* Most values move: those of each second key, when those between are overwritten. */
static void all_move(void)
{
	for (unsigned i = 0; i < 2; i++) {
		put_some(0, 1);
		T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
		put_some(i, 2);
		T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
		compact();
	}
}

static void values_are_packed_when_they_move(void)
{
	struct kvdb_stats st;
	unsigned n[3];

	fresh(KVDB_COMPRESS_ZSTD);
	put_some(0, 1);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	count(n);
	T_EQ(n[0], KEYS);
	all_move();
	st = stats();
	T_OK(st.relocations > 0);
	count(n);
	T_OK(n[KVDB_COMPRESS_ZSTD] > KEYS / 4);
	T_EQ(n[KVDB_COMPRESS_LZ4], 0);
	/* three of four shrink to less than half */
	T_OK(st.pack_in_bytes > KEYS / 4 * VLEN);
	T_OK(st.pack_out_bytes < st.pack_in_bytes * 3 / 4);
	T_OK(st.live_bytes < KEYS * VLEN * 3 / 4 + KEYS * VLEN / 2);
	T_EQ(kvdb_close(db), 0);
	open_db();
	all_hold();
	done(0);
}

/* The stored bytes of a packed value go with it, to the byte, whatever it is read for. */
static void what_is_packed_is_not_packed_again(void)
{
	struct kv_ent was[KEYS], is;
	unsigned same = 0, moved = 0;
	struct kv_thread *t;

	fresh(KVDB_COMPRESS_LZ4);
	put_some(0, 1);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	for (unsigned round = 0; round < 4; round++) {
		uint32_t old[KEYS];

		memcpy(old, version, sizeof(old));
		t = kv_enter();
		for (uint32_t k = 0; k < KEYS; k++)
			T_EQ(find(atomic_load(&kvs->k_tree), k, &was[k]), 0);
		kv_exit(t);
		put_some(round % 3, 3);
		T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
		compact();
		t = kv_enter();
		for (uint32_t k = 0; k < KEYS; k++) {
			T_EQ(find(atomic_load(&kvs->k_tree), k, &is), 0);
			if (version[k] != old[k] || !was[k].e_pack)
				continue;
			T_EQ(is.e_pack, was[k].e_pack);
			T_EQ(is.e_pcrc, was[k].e_pcrc);
			T_EQ(is.e_vcrc, was[k].e_vcrc);
			same++;
			moved += is.e_seg != was[k].e_seg;
		}
		kv_exit(t);
	}
	T_OK(same && moved);
	done(0);
}

static void a_changed_option_recodes_what_moves(void)
{
	unsigned n[3];

	fresh(KVDB_COMPRESS_LZ4);
	put_some(0, 1);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	all_move();
	count(n);
	T_OK(n[KVDB_COMPRESS_LZ4] > KEYS / 4);
	set(KVDB_COMPRESS_ZSTD);
	all_move();
	count(n);
	T_OK(n[KVDB_COMPRESS_ZSTD] > KEYS / 4);
	set(KVDB_COMPRESS_NONE);
	all_move();
	all_move();
	count(n);
	T_OK(n[0] > KEYS / 2);
	set(KVDB_COMPRESS_LZ4);
	T_EQ(kvdb_close(db), 0);
	open_db();
	all_move();
	done(0);
}

static uint32_t some_packed(struct kv_ent *e)
{
	struct kv_thread *t = kv_enter();
	uint32_t k = 0;

	while (k < KEYS && (find(atomic_load(&kvs->k_tree), k, e) || !e->e_pack))
		k++;
	kv_exit(t);
	T_OK(k < KEYS);
	return k;
}

static int read_as(const struct kv_ent *e, uint8_t *buf)
{
	struct kv_thread *t = kv_enter();
	int rc = kv_value_read(db, e, buf, e->e_vlen);

	kv_exit(t);
	return rc;
}

/* PK1: bytes that do not match are not unpacked; what unpacks to something else is damage. */
static void what_unpacks_to_something_else_is_damage(void)
{
	uint8_t got[VLEN + 1];
	struct kv_ent e, x;

	fresh(KVDB_COMPRESS_LZ4);
	put_some(0, 1);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	all_move();
	some_packed(&e);
	T_EQ(read_as(&e, got), 0);
	x = e;
	x.e_pcrc++;
	T_EQ(read_as(&x, got), -EUCLEAN);
	T_OK(strstr(kvdb_error_detail()->text, "CRC differs from the one in its reference"));
	x = e;
	x.e_vlen++;
	T_EQ(read_as(&x, got), -EUCLEAN);
	T_OK(strstr(kvdb_error_detail()->text, "does not unpack"));
	x = e;
	x.e_vcrc++;
	T_EQ(read_as(&x, got), -EUCLEAN);
	T_OK(strstr(kvdb_error_detail()->text, "unpacks to"));
	x = e;
	x.e_off8 = UINT32_MAX;
	T_EQ(read_as(&x, got), -EUCLEAN);
	T_OK(strstr(kvdb_error_detail()->text, "beyond the segment"));
	done(0);
}

static void a_damaged_block_is_reported_by_all_readers(void)
{
	uint64_t pos, len, off;
	struct kvdb_pin pin;
	uint8_t got[VLEN];
	struct kv_ent e;
	uint8_t *page;
	size_t vlen;
	uint32_t k;
	char key[32];
	int fd;

	fresh(KVDB_COMPRESS_ZSTD);
	put_some(0, 1);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	all_move();
	T_EQ(kvdb_close(db), 0);
	open_db();
	k = some_packed(&e);
	off = (uint64_t)e.e_off8 * 8 + e.e_plen / 2;
	T_EQ(mpool_obj_place(e.e_seg->sg_obj, off / 4096 * 4096, &fd, &pos, &len), 0);
	T_EQ(posix_memalign((void **)&page, 4096, 4096), 0);
	T_EQ(pread(fd, page, 4096, (off_t)pos), 4096);
	page[off % 4096] ^= 1;
	T_EQ(pwrite(fd, page, 4096, (off_t)pos), 4096);
	free(page);
	T_EQ(kvdb_close(db), 0);
	open_db();
	T_EQ(kvdb_get(kvs, key, key_of(k, key), got, VLEN, &vlen), -EUCLEAN);
	T_EQ(kvdb_get_pinned(kvs, key, key_of(k, key), &pin), -EUCLEAN);
	/* moved or not, it stays damage, and nothing else is lost */
	for (unsigned i = 0; i < 3; i++) {
		put_some(k + 1 + i, 2);
		T_EQ(kvdb_compact(db, KVDB_COMPACT_WAIT), 0);
	}
	T_EQ(kvdb_get(kvs, key, key_of(k, key), got, VLEN, &vlen), -EUCLEAN);
	T_EQ(kvdb_put(kvs, key, key_of(k, key), got, 10), 0);
	done(2);	/* the log of the segment, and nothing that is referred to */
}

int main(void)
{
	rnd = t_seed();
	T_RUN(what_is_packed_unpacks_to_itself);
	T_RUN(what_does_not_shrink_stays_and_is_soon_not_tried);
	T_RUN(hostile_blocks_are_survived);
	T_RUN(records_say_what_the_value_was);
	T_RUN(impossible_fields_of_records_are_refused);
	T_RUN(key_pages_say_what_the_value_was);
	T_RUN(impossible_entries_are_refused);
	T_RUN(a_feature_that_is_not_known_is_refused);
	T_RUN(values_are_packed_when_they_move);
	T_RUN(what_is_packed_is_not_packed_again);
	T_RUN(a_changed_option_recodes_what_moves);
	T_RUN(what_unpacks_to_something_else_is_damage);
	T_RUN(a_damaged_block_is_reported_by_all_readers);
	return t_done();
}
