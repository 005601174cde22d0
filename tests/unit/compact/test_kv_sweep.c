/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* A sweep: its notes, and jobs that move what must be read in the order in which it lies. */
#include "harness.h"

#include <unistd.h>

#include "kv_fresh.h"
#include "kv_clock.h"
#include "compact/reloc.h"
#include "compact/sweep.h"
#include "db/db.h"
#include "db/thread.h"
#include "mem/memtable.h"
#include "seg/kv_omf.h"
#include "seg/value.h"
#include "tree/tree.h"

#define KEYS	6000u
#define VLEN	1200u
#define SEG	(64u << 10)

/* ---- notes -------------------------------------------------------------------------- */

static struct kv_seg segs[2];
static char name[8][8];

static struct kv_ent ent(unsigned i, unsigned seg, uint32_t off8)
{
	snprintf(name[i], sizeof(name[i]), "key%u", i);
	return (struct kv_ent){ .e_key = (const uint8_t *)name[i], .e_klen = 4,
				.e_kind = KV_ENT_REF, .e_vlen = 100, .e_vcrc = 7 * i, .e_seq = i,
				.e_seg = &segs[seg], .e_off8 = off8 };
}

static struct kv_sweep *five(struct kv_ent *e)
{
	static const unsigned where[5][2] = { { 1, 9 }, { 0, 400 }, { 1, 3 }, { 0, 8 }, { 1, 5 } };
	struct kv_sweep *sw = kv_sweep_new(1);

	segs[0].sg_id = 70;
	segs[1].sg_id = 90;
	T_OK(sw);
	for (unsigned i = 0; i < 5; i++) {
		e[i] = ent(i, where[i][0], where[i][1]);
		T_OK(!kv_sweep_is_full(sw));
		kv_sweep_add(sw, &e[i]);
	}
	kv_sweep_sort(sw);
	return sw;
}

static void notes_are_sorted_by_place_and_taken_by_key(void)
{
	static const unsigned order[5] = { 3, 1, 2, 4, 0 };
	struct kv_ent e[5];
	struct kv_sweep *sw = five(e);

	for (unsigned i = 0; i < 5; i++)
		T_EQ(sw->sw_order[i], order[i]);
	sw->sw_note[1].no_is_moved = sw->sw_note[4].no_is_moved = true;
	sw->sw_note[1].no_seg = sw->sw_note[4].no_seg = &segs[0];
	sw->sw_note[1].no_off8 = 1000;
	sw->sw_note[4].no_off8 = 2000;
	for (unsigned i = 0; i < 5; i++)
		T_EQ(kv_sweep_take(sw, &e[i]), i == 1 || i == 4);
	T_OK(e[1].e_seg == &segs[0] && e[1].e_off8 == 1000);
	T_OK(e[4].e_seg == &segs[0] && e[4].e_off8 == 2000);
	T_OK(e[2].e_seg == &segs[1] && e[2].e_off8 == 3);
	/* there are no more */
	T_OK(!kv_sweep_take(sw, &e[4]));
	kv_sweep_clear(sw);
	T_OK(!kv_sweep_take(sw, &e[0]));
	kv_sweep_free(sw);
}

/* G12 */
static void an_entry_gets_the_place_of_no_other_one(void)
{
	struct kv_ent e[5], other;
	struct kv_sweep *sw = five(e);

	for (unsigned i = 0; i < 5; i++)
		sw->sw_note[i].no_is_moved = true;
	T_OK(!kv_sweep_take(sw, &e[1]));
	other = e[0];
	other.e_seq++;
	T_OK(!kv_sweep_take(sw, &other));
	other = e[0];
	other.e_vcrc++;
	T_OK(!kv_sweep_take(sw, &other));
	other = e[0];
	other.e_key = e[1].e_key;
	T_OK(!kv_sweep_take(sw, &other));
	T_OK(kv_sweep_take(sw, &e[0]));
	kv_sweep_free(sw);
}

static void it_is_full_when_its_memory_is(void)
{
	struct kv_sweep *sw = kv_sweep_new(100000);
	struct kv_ent e = ent(0, 0, 8);
	unsigned n;

	for (n = 0; !kv_sweep_is_full(sw); n++)
		kv_sweep_add(sw, &e);
	T_OK(n > 1000 && kv_sweep_bytes(sw) <= 100000);
	kv_sweep_clear(sw);
	T_OK(!kv_sweep_is_full(sw));
	kv_sweep_free(sw);
}

/* G12 */
static void a_record_of_another_key_is_not_copied(void)
{
	struct kv_ent e = ent(1, 0, 64 / 8 + 5);
	uint8_t rec[256] = { 0 }, val[100];
	struct kv_sweep *sw = kv_sweep_new(1);
	const struct kv_note *no;
	uint32_t size = kv_rec_size(4, 100);
	uint64_t expiry = 1;

	memset(val, 0x5a, sizeof(val));
	e.e_vcrc = mpool_crc32c(0, val, sizeof(val));
	kv_sweep_add(sw, &e);
	no = &sw->sw_note[0];
	kv_rec_encode(rec, KV_REC_PUT, 1, "key1", 4, val, 100, e.e_vcrc);
	kv_rec_stamp(rec, 70, 64, 1);
	segs[0].sg_id = 70;
	T_OK(kv_note_is_of(no, rec, 64, sizeof(rec), &expiry) && !expiry);
	T_OK(!kv_note_is_of(no, rec, 72, sizeof(rec), &expiry));
	T_OK(!kv_note_is_of(no, rec, 64, size - 8, &expiry));
	/* right in itself, and not what was noted */
	kv_rec_encode(rec, KV_REC_PUT, 1, "key2", 4, val, 100, e.e_vcrc);
	kv_rec_stamp(rec, 70, 64, 1);
	T_OK(!kv_note_is_of(no, rec, 64, sizeof(rec), &expiry));
	kv_rec_encode(rec, KV_REC_PUT, 1, "key1", 4, val, 96, mpool_crc32c(0, val, 96));
	kv_rec_stamp(rec, 70, 64, 1);
	T_OK(!kv_note_is_of(no, rec, 64, sizeof(rec), &expiry));
	/* an expiry goes with it, and nothing that expires without one (X4) */
	kv_rec_encode(rec, KV_REC_PUT, 1, "key1", 4, val, 100, e.e_vcrc);
	kv_rec_set_expiry(rec, 77);
	kv_rec_stamp(rec, 70, 64, 1);
	T_OK(!kv_note_is_of(no, rec, 64, sizeof(rec), &expiry));
	kv_sweep_clear(sw);
	e.e_expiry = 77;
	kv_sweep_add(sw, &e);
	T_OK(kv_note_is_of(no, rec, 64, sizeof(rec), &expiry) && expiry == 77);
	kv_sweep_free(sw);
}

/* ---- jobs --------------------------------------------------------------------------- */

static char dir[256];
static struct kvdb *db;
static struct kvdb_kvs *kvs;
static uint32_t version[KEYS];
static uint64_t ttl_s;

static void open_db(void)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;

	o.flags = KVDB_MANUAL;
	o.logs = 1;
	o.cache_bytes = 64u << 20;
	o.clock = &test_clock;
	T_EQ(kvdb_open(dir, &o, &db), 0);
	if (kvdb_kvs_open(db, "s", &kvs)) {
		T_EQ(kvdb_kvs_create(db, "s", NULL), 0);
		T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	}
}

static void value(uint32_t k, uint8_t *val)
{
	uint64_t x = ((uint64_t)version[k] << 32) ^ k;

	for (unsigned i = 0; i < VLEN; i += 8) {
		uint64_t v = t_rand(&x);

		memcpy(val + i, &v, 8);
	}
}

static size_t key_of(uint32_t k, char *key)
{
	return (size_t)sprintf(key, "%06u", k * 1237 % KEYS);
}

static void put(uint32_t k)
{
	uint8_t val[VLEN];
	char key[16];

	version[k]++;
	value(k, val);
	T_EQ(kvdb_put_ttl(kvs, key, key_of(k, key), val, VLEN, ttl_s), 0);
}

static void all_hold(void)
{
	uint8_t want[VLEN], got[VLEN];
	size_t len;
	char key[16];

	for (uint32_t k = 0; k < KEYS; k++) {
		value(k, want);
		T_EQ(kvdb_get(kvs, key, key_of(k, key), got, VLEN, &len), 0);
		if (len != VLEN || memcmp(want, got, VLEN))
			T_FAIL("key %u", k);
	}
}

static void settle(void)
{
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
}

static void compact(void)
{
	T_EQ(kvdb_compact(db, KVDB_COMPACT_WAIT), 0);
}

/* Values lie where no memory has them, half of them are of the past. */
static void half_dead_and_cold(void)
{
	kv_fresh(dir, sizeof(dir), "kv_sweep", 128u << 20, SEG);
	memset(version, 0, sizeof(version));
	open_db();
	for (uint32_t k = 0; k < KEYS; k++)
		put(k);
	settle();
	for (uint32_t k = 0; k < KEYS; k += 2)
		put(k);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	T_EQ(kvdb_close(db), 0);
	open_db();
}

static void done(void)
{
	kv_end(db, dir, 0);
}

static uint64_t moves_read(void)
{
	return atomic_load(&db->d_count.read_bytes[KV_READ_MOVE][MPOOL_CAPACITY]);
}

/* In key order, with images of 64 KiB, the same job reads three times as much: see below. */
static void what_must_be_read_is_read_once(void)
{
	struct kvdb_stats st;

	half_dead_and_cold();
	compact();
	T_EQ(kvdb_stats(db, &st), 0);
	T_OK(st.relocations > 0 && st.io[MPOOL_CAPACITY].move_bytes > KEYS / 4 * VLEN);
	T_OK(moves_read() <= 2 * KEYS * VLEN);
	all_hold();
	T_EQ(kvdb_close(db), 0);
	open_db();
	all_hold();
	done();
}

static void each_is_hot(void *arg, struct kv_seg *s)
{
	(void)arg;
	atomic_store(&s->sg_heat, 1);
}

static void where_scans_have_paid_values_move_in_key_order(void)
{
	half_dead_and_cold();
	kv_segs_each(db, each_is_hot, NULL);
	compact();
	T_OK(moves_read() > 3 * KEYS * VLEN);
	all_hold();
	done();
}

/* Two entries say that their values overlap; the record of the second begins on an earlier page. */
static void overlap(void *arg, struct kv_seg *s)
{
	static char key[2][1000];
	struct kv_thread *t;
	unsigned *n = arg;

	if (s->sg_stream != KV_VLOG || atomic_load(&s->sg_end) < 4 * KV_BLOCK)
		return;
	for (unsigned i = 0; i < 2; i++) {
		uint32_t off = 2 * KV_BLOCK + 512 + 8 * i;
		struct kv_rec r = { .r_type = KV_REC_PUT, .r_klen = i ? sizeof(key[i]) : 8,
				    .r_kvs = (uint16_t)kvs->k_id, .r_vlen = 200, .r_vcrc = 1,
				    .r_seq = 1, .r_key = (uint8_t *)key[i], .r_rev = 1 };

		memset(key[i], 'x', sizeof(key[i]));
		snprintf(key[i], 8, "z%06u", (*n)++);
		t = kv_enter();
		T_EQ(kv_mt_replay(kv_mt_active(kvs), &r, atomic_load(&db->d_epochs.ep_open), s,
				  off), 0);
		kv_exit(t);
	}
}

/* A read that several share begins where the first of them does. */
static void places_that_overlap_are_read_one_by_one(void)
{
	unsigned n = 0;

	kv_fresh(dir, sizeof(dir), "kv_sweep", 128u << 20, SEG);
	memset(version, 0, sizeof(version));
	open_db();
	for (uint32_t k = 0; k < KEYS; k++)
		put(k);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	/* nothing else is alive there: a read begins with the first of them */
	kv_segs_each(db, overlap, &n);
	T_OK(n > 20);
	for (uint32_t k = 0; k < KEYS; k++)
		put(k);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	T_EQ(kvdb_close(db), 0);
	open_db();
	compact();
	all_hold();
	T_EQ(kvdb_close(db), 0);
	open_db();
	all_hold();
	kv_end(db, dir, n);
}

struct seen {
	unsigned se_records, se_expire;
};

static void see_records(struct kv_seg *s, const uint8_t *frame, const struct kv_frame_hdr *h,
			struct seen *se)
{
	uint32_t off = KV_FRAME_HDR;
	struct kv_rec r;

	for (uint32_t i = 0; i < h->fh_nrec; i++, off += r.r_size) {
		T_EQ(kv_rec_decode(frame + off, s->sg_id, h->fh_off + off, h->fh_len - off, true,
				   &r), 0);
		se->se_records++;
		se->se_expire += r.r_expiry != 0;
	}
}

/* Of a segment that was moved. */
static void see_moved(void *arg, struct kv_seg *s)
{
	uint32_t end = (uint32_t)atomic_load(&s->sg_end);
	struct kv_frame_hdr h;
	struct iovec iov;

	if (s->sg_log != KV_MOVED_LOG)
		return;
	iov = (struct iovec){ aligned_alloc(KV_BLOCK, end), end };
	T_EQ(mpool_read(s->sg_obj, 0, &iov, 1), 0);
	for (uint32_t off = 0; off < end; off += (h.fh_len + KV_BLOCK - 1) & ~(KV_BLOCK - 1)) {
		const uint8_t *frame = (uint8_t *)iov.iov_base + off;

		T_EQ(kv_frame_decode(frame, (uint32_t)db->d_ident.id_tag, s->sg_id, off, end - off,
				     &h), 0);
		T_OK(kv_frame_check_payload(frame, &h));
		see_records(s, frame, &h, arg);
	}
	free(iov.iov_base);
}

/* Repair knows nothing else of a key whose runs are lost. */
static void a_record_that_moved_says_when_it_expires(void)
{
	for (unsigned hot = 0; hot < 2; hot++) {
		struct seen se = { 0 };

		ttl_s = 3600;
		half_dead_and_cold();
		if (hot)
			kv_segs_each(db, each_is_hot, NULL);
		compact();
		kv_segs_each(db, see_moved, &se);
		T_OK(se.se_records > KEYS / 4);
		T_EQ(se.se_expire, se.se_records);
		all_hold();
		done();
	}
	ttl_s = 0;
}

int main(void)
{
	T_RUN(notes_are_sorted_by_place_and_taken_by_key);
	T_RUN(an_entry_gets_the_place_of_no_other_one);
	T_RUN(it_is_full_when_its_memory_is);
	T_RUN(a_record_of_another_key_is_not_copied);
	T_RUN(what_must_be_read_is_read_once);
	T_RUN(places_that_overlap_are_read_one_by_one);
	T_RUN(where_scans_have_paid_values_move_in_key_order);
	T_RUN(a_record_that_moved_says_when_it_expires);
	return t_done();
}
