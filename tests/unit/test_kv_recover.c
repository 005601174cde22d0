/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Recovery on hand-made logs: frames are written with the codec into segments
 * of a real pool on files, then recovery decides what survived (R2, R3, R4).
 */
#include "harness.h"

#include <errno.h>
#include <unistd.h>

#include "meta/mdc.h"

#define SEG_BYTES	(256u << 10)
#define SEGS		8

static char dir[64];
static struct kvdb db;
static int open_err;
static char bad[160];	/* what up_damaged() wants to be told */

/* a segment while the test writes it */
static struct tseg {
	struct mpool_obj *obj;
	uint64_t id;
	uint32_t off, chain;
	uint64_t epoch;		/* of its newest frame, */
	uint32_t begin;		/* and where that epoch begins */
} ts[SEGS];

static struct { uint64_t epoch, obj; uint32_t off; } last_desc;
static uint64_t prev_epoch;	/* that wrote */
static bool lose;	/* the device forgets what is written now */
static bool tear;	/* or all but the header */
static bool marks;	/* frames have marks, as those of the engine */
static uint64_t rollback;	/* kvdb_opts of the next open */
static int wrong_nrec, wrong_incarnation;	/* added to what is written */
static bool no_own_entry;
static uint64_t pool_mib = 64;

static void pool_make(void)
{
	struct mpool_dev_spec dev = { .mclass = MPOOL_CAPACITY, .size = pool_mib << 20 };
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;

	strcpy(dir, "/tmp/test_kv_recover.XXXXXX");
	T_OK(mkdtemp(dir));
	co.devs = &dev;
	co.ndevs = 1;
	T_EQ(mpool_create(dir, &co), 0);
	T_EQ(kvdb_create(dir, NULL), 0);
	memset(&last_desc, 0, sizeof(last_desc));
}

static void down(void)
{
	int i;

	for (i = 0; i < SEGS; i++)
		mpool_obj_close(ts[i].obj);
	memset(ts, 0, sizeof(ts));
	kv_db_detach(&db);
	if (db.d_mp)
		T_EQ(mpool_close(db.d_mp), 0);
	memset(&db, 0, sizeof(db));
}

static void up_as(bool rdonly)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;

	memset(&db, 0, sizeof(db));
	o.rollback = rollback;
	T_EQ(kv_db_attach(&db, dir, &o, rdonly), 0);
	T_EQ(kv_db_load_kvs(&db, 0, false), 0);
	open_err = kv_recover(&db, rdonly);
	last_desc.epoch = db.d_desc.epoch;
	last_desc.obj = db.d_desc.obj;
	last_desc.off = db.d_desc.off;
	prev_epoch = last_desc.epoch;
}

static void up(void)
{
	up_as(false);
	T_EQ(open_err, 0);
}

static void up_lost(void)
{
	up_as(false);
	T_EQ(open_err, -EUCLEAN);
	T_OK(strstr(kvdb_error_detail()->text, "device lost acknowledged writes"));
}

/* The open is refused: segment @i is bad at @off, with what was durable, and what is good. */
static void up_damaged(int i, uint32_t off, uint64_t durable, uint64_t good)
{
	struct kvdb_repair r;

	if (ts[i].id)		/* else as the last time */
		snprintf(bad, sizeof(bad), "object %llu: the log is damaged at %u; epochs up to "
			 "%llu were durable, the last good one is %llu",
			 (unsigned long long)ts[i].id, off, (unsigned long long)durable,
			 (unsigned long long)good);
	down();
	up_as(false);
	T_EQ(open_err, -EUCLEAN);
	T_OK(!strcmp(kvdb_error_detail()->id, "MP0907"));
	T_OK(!strcmp(kvdb_error_detail()->text, bad));
	down();
	T_EQ(kvdb_repair(dir, NULL, NULL, NULL, NULL, &r), 0);
	up_as(true);
	T_EQ(open_err, -EUCLEAN);
}

/* A database with two stores, a and b, opened once. */
static void fresh(void)
{
	pool_make();
	up();
	T_EQ(kvdb_kvs_create(&db, "a", NULL), 0);
	T_EQ(kvdb_kvs_create(&db, "b", NULL), 0);
}

static void gone(void)
{
	down();
	T_EQ(mpool_destroy(dir, NULL), 0);
	rmdir(dir);
}

static void seg_alloc(int i)
{
	struct mpool_alloc req = { .kind = MPOOL_APPEND, .mclass = MPOOL_CAPACITY,
				   .capacity = SEG_BYTES, .tag = db.d_tag };

	T_EQ(mpool_alloc(db.d_mp, &req, 1, &ts[i].obj), 0);
	ts[i].id = mpool_obj_id(ts[i].obj);
	ts[i].off = ts[i].chain = 0;
	ts[i].epoch = 0;
}

/* A database with an empty segment in each of the first @n logs, and the epoch that is open. */
static uint64_t fresh_logs(int n)
{
	fresh();
	for (int i = 0; i < n; i++)
		seg_alloc(i);
	return db.d_epoch;
}

/* Writes one frame whose records are in @buf from byte 64 to @len. */
static void frame_write(int i, uint64_t epoch, uint8_t *buf, uint32_t len, uint32_t nrec)
{
	struct kv_mark m = { .ma_begin = ts[i].epoch == epoch ? ts[i].begin : ts[i].off,
			     .ma_prev = prev_epoch };
	struct kv_frame_hdr h = {
		.fh_incarnation = db.d_incarnation, .fh_tag = (uint32_t)db.d_tag,
		.fh_obj = ts[i].id, .fh_off = ts[i].off, .fh_len = len, .fh_epoch = epoch,
		.fh_chain = ts[i].chain, .fh_nrec = nrec + (uint32_t)wrong_nrec, .fh_log =
		(uint16_t)i,
	};
	struct iovec v = { buf, 4096 };

	if (marks) {
		kv_mark_encode(buf + len, ts[i].id, ts[i].off + len, &m);
		h.fh_len = len += KV_MARK_SIZE;
		h.fh_nrec++;
	}
	ts[i].begin = m.ma_begin;
	h.fh_payload_crc = mpool_crc32c(0, buf + KV_FRAME_HDR, len - KV_FRAME_HDR);
	kv_frame_encode(&h, buf, &ts[i].chain);
	if (lose || tear)
		memset(buf + (tear ? KV_FRAME_HDR : 0), 0, 4096 - (tear ? KV_FRAME_HDR : 0));
	T_EQ(mpool_write(ts[i].obj, ts[i].off, &v, 1), 0);
	ts[i].off += 4096;
	ts[i].epoch = epoch;
}

/* One record of store @kvs in a frame of its own; @val NULL = a delete. */
static void put_rev(int i, uint64_t epoch, uint16_t kvs, const char *key, const char *val,
		    uint64_t seq, uint32_t rev)
{
	static uint8_t buf[4096] __attribute__((aligned(4096)));
	uint16_t klen = (uint16_t)strlen(key);
	uint32_t vlen = val ? (uint32_t)strlen(val) : 0;
	uint8_t *p = buf + KV_FRAME_HDR;

	memset(buf, 0, sizeof(buf));
	kv_rec_encode(p, val ? KV_REC_PUT : KV_REC_DEL, kvs, key, klen, val, vlen,
		      mpool_crc32c(0, val, vlen));
	kv_rec_set_rev(p, rev);
	kv_rec_stamp(p, ts[i].id, ts[i].off + KV_FRAME_HDR, seq);
	frame_write(i, epoch, buf, KV_FRAME_HDR + kv_rec_size(klen, vlen), 1);
}

static void put(int i, uint64_t epoch, uint16_t kvs, const char *key, const char *val, uint64_t seq)
{
	put_rev(i, epoch, kvs, key, val, seq, (uint32_t)seq);
}

/* Ends an epoch: its descriptor goes to segment @carrier and lists all that it wrote to. */
static void end_epoch(int carrier, uint64_t epoch)
{
	static uint8_t buf[4096] __attribute__((aligned(4096)));
	struct kv_desc_ent ents[SEGS];
	struct kv_desc d = { .ds_incarnation = db.d_incarnation + (uint32_t)wrong_incarnation,
			     .ds_epoch = epoch,
			     .ds_prev_epoch = last_desc.epoch, .ds_prev_obj = last_desc.obj,
			     .ds_prev_off = last_desc.off };
	int i;

	for (i = 0; i < SEGS; i++) {
		if (i != carrier && (!ts[i].obj || ts[i].epoch != epoch))
			continue;
		if (no_own_entry && i == carrier)
			continue;
		ents[d.ds_n].de_obj = ts[i].id;
		ents[d.ds_n].de_end = ts[i].off + (i == carrier ? 4096 : 0);
		ents[d.ds_n++].de_chain = ts[i].chain;
	}
	memset(buf, 0, sizeof(buf));
	kv_desc_encode(buf + KV_FRAME_HDR, ts[carrier].id, ts[carrier].off + KV_FRAME_HDR, &d,
		       ents);
	last_desc.epoch = epoch;
	last_desc.obj = ts[carrier].id;
	last_desc.off = ts[carrier].off;
	frame_write(carrier, epoch, buf, KV_FRAME_HDR + KV_REC_HDR + kv_desc_size(d.ds_n), 1);
	prev_epoch = epoch;
}

/* seq of the key's newest version in the store's memtable, 0 = not there; *kind as found */
static uint64_t seen(const char *store, const char *key, int *kind)
{
	struct kvdb_kvs *kvs;
	struct kv_tree *tr;
	struct kv_iter *it;
	struct kv_ent e;
	uint64_t seq = 0;

	T_EQ(kvdb_kvs_open(&db, store, &kvs), 0);
	tr = kv_tree_get(kvs);
	T_EQ(kv_mt_iter(&db, tr->tr_mt[0], UINT64_MAX - 1, false, &it), 0);
	while (!it->it_ops->next(it, &e))
		if (e.e_klen == strlen(key) && !memcmp(e.e_key, key, e.e_klen)) {
			seq = e.e_seq;
			if (kind)
				*kind = e.e_kind;
		}
	it->it_ops->close(it);
	kv_tree_put(&db, tr);
	return seq;
}

static void append_raw(void)
{
	struct iovec v = { db.d_mdc->m_buf.mb_p, db.d_mdc->m_buf.mb_len };

	T_EQ(mpool_mdc_append(db.d_mdc->m_log, &v, 1, MPOOL_SYNC), 0);
}

static void again(void)
{
	down();
	up();
}

/* ---- R2 ---------------------------------------------------------------------------- */

static void complete_epochs_survive_incomplete_do_not(void)
{
	uint64_t e;
	int kind = 0;

	e = fresh_logs(2);
	put(0, e, 1, "x", "one", 10);
	put(1, e, 2, "y", "two", 11);
	end_epoch(0, e);
	put(0, e + 1, 1, "x", NULL, 12);
	end_epoch(0, e + 1);
	put(1, e + 2, 1, "z", "three", 13);	/* no descriptor */
	again();
	T_EQ(db.d_recovery.durable_epoch, e + 1);
	T_EQ(seen("a", "x", &kind), 12);
	T_EQ(kind, KV_ENT_TOMB);
	T_EQ(seen("b", "y", NULL), 11);
	T_EQ(seen("a", "z", NULL), 0);
	T_EQ(db.d_recovery.discarded, 1);
	T_OK(db.d_epoch > e + 2);
	T_OK(atomic_load(&db.d_seq) > 13);
	T_EQ(db.d_desc.epoch, e + 1);
	gone();
}

/* An epoch was flushed before the next one was begun: what is bad below one is no torn tail. */
static void lost_frame_below_later_epochs_is_damage(void)
{
	uint64_t e;

	e = fresh_logs(2);
	put(0, e, 1, "x", "one", 10);
	end_epoch(0, e);
	lose = true;
	put(1, e + 1, 1, "y", "two", 11);	/* listed by a good descriptor */
	lose = false;
	end_epoch(0, e + 1);
	put(0, e + 2, 1, "z", "three", 12);	/* complete in itself, but linked to e + 1 */
	end_epoch(0, e + 2);
	up_damaged(1, 0, e + 1, e);
	gone();
}

/* What it says of the last good epoch is what must be given to go on from there. */
static void rollback_gives_up_what_was_told_and_only_that(void)
{
	uint64_t e;

	e = fresh_logs(1);
	put(0, e, 1, "x", "one", 10);
	end_epoch(0, e);
	lose = true;
	put(0, e + 1, 1, "y", "two", 11);
	lose = false;
	end_epoch(0, e + 1);
	put(0, e + 2, 1, "z", "three", 12);
	rollback = e + 1;
	up_damaged(0, 8192, e + 1, e);
	rollback = e;
	down();
	up_as(true);
	T_EQ(open_err, 0);
	T_EQ(seen("a", "x", NULL), 10);
	rollback = 0;
	up_damaged(0, 8192, e + 1, e);		/* reading gave up nothing */
	rollback = e;
	again();
	rollback = 0;
	T_EQ(db.d_recovery.durable_epoch, e);
	T_EQ(seen("a", "x", NULL), 10);
	T_EQ(seen("a", "y", NULL), 0);
	T_EQ(seen("a", "z", NULL), 0);
	/* nothing may use the numbers of frames that are still on the device */
	T_OK(db.d_epoch > e + 2);
	again();
	T_EQ(seen("a", "x", NULL), 10);
	T_EQ(seen("a", "y", NULL), 0);
	gone();
}

/* Frames behind the bad one in its segment tell as well, whole or by their header. */
static void frames_behind_a_lost_one_prove_what_was_durable(void)
{
	uint64_t e;
	int i;

	for (i = 0; i < 2; i++) {
		e = fresh_logs(1);
		put(0, e, 1, "x", "one", 10);
		end_epoch(0, e);
		lose = true;
		put(0, e + 1, 1, "y", "two", 11);
		lose = false;
		end_epoch(0, e + 1);
		tear = i;
		put(0, e + 2, 1, "z", "three", 12);
		tear = false;
		up_damaged(0, 8192, e + 1, e);
		gone();
	}
}

static void lost_descriptor_below_later_epochs_is_damage(void)
{
	uint64_t e;
	int i;

	/* told by a later descriptor or by a later frame, with and without frames of its own */
	for (i = 0; i < 3; i++) {
		e = fresh_logs(2);
		put(0, e, 1, "x", "one", 10);
		end_epoch(0, e);
		if (i)
			put(1, e + 1, 1, "y", "two", 11);
		lose = true;
		end_epoch(0, e + 1);
		lose = false;
		put(1, e + 2, 1, "z", "three", 12);
		if (i < 2)
			end_epoch(1, e + 2);
		/* without any descriptor the segment of what is left is named */
		up_damaged(i == 2, 8192, e + 1, e);
		gone();
	}
}

/* Its store was dropped, and the segment deleted: that is no loss. */
static void without_stores_a_missing_segment_is_no_damage(void)
{
	struct mpool_op op = { .type = MPOOL_OP_DELETE };
	uint64_t e;

	pool_make();
	up();
	e = db.d_epoch;
	seg_alloc(0);
	seg_alloc(1);
	put(1, e, 1, "x", "one", 10);
	end_epoch(0, e);
	put(0, e + 1, 1, "y", "two", 11);
	op.obj = ts[1].obj;
	T_EQ(mpool_batch(db.d_mp, &op, 1), 0);
	again();
	T_OK(db.d_epoch > e + 1);
	gone();
}

/* The frame says by its header that it was there. */
static void torn_descriptor_below_a_later_frame_is_damage(void)
{
	uint64_t e;

	e = fresh_logs(2);
	put(0, e, 1, "x", "one", 10);
	end_epoch(0, e);
	tear = true;
	end_epoch(0, e + 1);
	tear = false;
	put(1, e + 2, 1, "z", "three", 12);
	up_damaged(0, 8192, e + 1, e);
	gone();
}

/*
 * A power cut may leave any part of the newest epoch, in any order, and numbers
 * are missing where epochs wrote nothing.
 */
static void any_part_of_the_newest_epoch_is_a_torn_tail(void)
{
	uint64_t e;
	int i, k;

	for (i = 0; i < 16; i++) {
		e = fresh_logs(2);
		put(0, e, 1, "x", "one", 10);
		end_epoch(0, e);
		e += i & 1 ? 1 : 5;
		for (k = 0; k < 3; k++) {
			lose = !(i >> 1 & 1 << k);
			tear = lose && k == 1;
			put(k == 2, e, 1, "y", "two", 11 + (uint64_t)k);
		}
		lose = tear = false;
		end_epoch(0, e);
		again();
		T_EQ(seen("a", "x", NULL), 10);
		T_EQ(seen("a", "y", NULL), i >> 1 == 7 ? 13 : 0);
		gone();
	}
}

/* RV22: of the one before nothing is left, and of its own no descriptor. */
static void a_frame_says_which_epoch_was_durable_before_its_own(void)
{
	uint64_t e;

	e = fresh_logs(1);
	marks = lose = true;
	put(0, e, 1, "x", "one", 10);
	end_epoch(0, e);
	lose = false;
	put(0, e + 3, 1, "y", "two", 11);
	marks = false;
	down();
	up_as(false);
	T_EQ(open_err, -EUCLEAN);
	T_OK(!strcmp(kvdb_error_detail()->id, "MP0907"));
	gone();
}

static void segment_missing_from_the_pool(void)
{
	struct mpool_op op = { .type = MPOOL_OP_DELETE };
	uint64_t e;

	e = fresh_logs(2);
	put(0, e, 1, "x", "one", 10);
	end_epoch(0, e);
	put(0, e + 1, 1, "y", "two", 11);
	put(1, e + 1, 1, "z", "three", 12);
	end_epoch(0, e + 1);
	op.obj = ts[1].obj;
	T_EQ(mpool_batch(db.d_mp, &op, 1), 0);
	again();
	T_EQ(db.d_recovery.durable_epoch, e);
	gone();
}

/* Whoever made it: nothing in it is believed. */
static void an_object_too_large_for_a_segment_is_refused(void)
{
	struct mpool_alloc req = { .kind = MPOOL_APPEND, .mclass = MPOOL_CAPACITY,
				   .capacity = 65u << 20 };
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct mpool_obj *obj;

	pool_mib = 256;
	fresh();
	pool_mib = 64;
	req.tag = db.d_tag;
	T_EQ(mpool_alloc(db.d_mp, &req, 1, &obj), 0);
	mpool_obj_close(obj);
	down();
	T_EQ(kv_db_attach(&db, dir, &o, false), -EUCLEAN);
	T_OK(strstr(kvdb_error_detail()->text, "are no log segment"));
	gone();
}

/* The schedule of R2: a log that was idle for long holds back nothing. */
static void idle_log_holds_back_nothing(void)
{
	uint64_t e, i;
	char key[16];

	e = fresh_logs(2);
	put(1, e, 1, "once", "v", 1);
	end_epoch(1, e);
	for (i = 1; i < 20; i++) {
		snprintf(key, sizeof(key), "k%u", (unsigned)i);
		put(0, e + i, 1, key, "v", 1 + i);
		end_epoch(0, e + i);
	}
	again();
	T_EQ(db.d_recovery.durable_epoch, e + 19);
	T_EQ(db.d_recovery.replayed, 20);
	gone();
}

/* A log that rolled inside an epoch has two entries; the first segment counts too. */
static void rolled_log_needs_both_segments(void)
{
	uint64_t e;

	e = fresh_logs(2);
	put(0, e, 1, "x", "one", 10);
	put(1, e, 1, "y", "two", 11);
	end_epoch(1, e);
	seg_alloc(2);
	lose = true;
	put(0, e + 1, 1, "p", "three", 12);
	lose = false;
	put(2, e + 1, 1, "q", "four", 13);
	end_epoch(2, e + 1);
	again();
	T_EQ(db.d_recovery.durable_epoch, e);
	T_EQ(seen("a", "x", NULL), 10);
	T_EQ(seen("a", "y", NULL), 11);
	T_EQ(seen("a", "q", NULL), 0);
	gone();
}

static void wrong_chain_ends_a_segment(void)
{
	uint64_t e;

	e = fresh_logs(1);
	put(0, e, 1, "x", "one", 10);
	end_epoch(0, e);
	ts[0].chain ^= 1;
	put(0, e + 1, 1, "y", "two", 11);
	end_epoch(0, e + 1);
	again();
	T_EQ(db.d_recovery.durable_epoch, e);
	gone();
}

/* A carrier whose entry names another chain proves nothing. */
static void wrong_chain_in_a_descriptor(void)
{
	uint64_t e;
	uint32_t keep;

	e = fresh_logs(2);
	put(1, e, 1, "x", "one", 10);
	keep = ts[1].chain;
	ts[1].chain ^= 1;
	end_epoch(0, e);
	ts[1].chain = keep;
	again();
	T_EQ(seen("a", "x", NULL), 0);
	gone();
}

/* The frame is sound, what it says is not: it counts for nothing. */
static void descriptors_that_contradict_their_frame(void)
{
	int *wrong[] = { &wrong_nrec, &wrong_incarnation }, i;
	uint64_t e;

	for (i = 0; i < 3; i++) {
		e = fresh_logs(2);
		put(0, e, 1, "x", "one", 10);
		if (i < 2)
			*wrong[i] = 1;
		no_own_entry = i == 2;
		end_epoch(1, e);
		if (i < 2)
			*wrong[i] = 0;
		no_own_entry = false;
		again();
		T_EQ(seen("a", "x", NULL), 0);
		gone();
	}
}

/* ---- R3 ---------------------------------------------------------------------------- */

static void discarded_tails_stay_discarded(void)
{
	uint64_t e;
	int i;

	e = fresh_logs(2);
	put(0, e, 1, "x", "one", 10);
	end_epoch(0, e);
	put(0, e + 1, 1, "y", "two", 11);	/* discarded: no descriptor */
	put(1, e + 1, 1, "w", "six", 12);
	for (i = 0; i < 3; i++) {
		again();
		T_EQ(seen("a", "x", NULL), 10);
		T_EQ(seen("a", "y", NULL), 0);
		T_EQ(seen("a", "w", NULL), 0);
		/* a new epoch, proven, must not carry the old tail with it */
		seg_alloc(0);
		put(0, db.d_epoch, 1, "n", "new", 100 + (uint64_t)i);
		end_epoch(0, db.d_epoch);
	}
	again();
	T_EQ(seen("a", "n", NULL), 102);
	T_EQ(seen("a", "y", NULL), 0);
	T_EQ(seen("a", "w", NULL), 0);
	T_EQ(db.d_incarnation, 5);
	gone();
}

static void lost_write_below_a_sealed_length(void)
{
	struct kv_mdc_seg s;
	uint64_t e;

	e = fresh_logs(1);
	put(0, e, 1, "x", "one", 10);
	end_epoch(0, e);
	/* recorded as durable up to 12288, which the segment never reached */
	s.sc_obj = ts[0].id;
	s.sc_last = e;
	s.sc_len = 12288;
	T_EQ(kv_mdc_segs(&db, &s, 1), 0);
	T_EQ(mpool_flush(db.d_mp, 1), 0);
	T_EQ(kvdb_kvs_create(&db, "c", NULL), 0);
	down();
	up_lost();
	gone();
}

/* Nothing says that runs have what it held, so that is needed. */
static void a_hole_below_a_sealed_length_is_a_lost_write(void)
{
	struct kv_mdc_seg s;
	uint64_t e;

	e = fresh_logs(1);
	lose = true;
	put(0, e, 1, "x", "one", 10);
	lose = false;
	end_epoch(0, e);
	s.sc_obj = ts[0].id;
	s.sc_last = e;
	s.sc_len = 8192;
	T_EQ(kv_mdc_segs(&db, &s, 1), 0);
	T_EQ(mpool_flush(db.d_mp, 1), 0);
	T_EQ(kvdb_kvs_create(&db, "c", NULL), 0);
	down();
	up_lost();
	gone();
}

/* Runs have what it held: what lies behind it is replayed. */
static void a_hole_that_horizons_cover_costs_nothing(void)
{
	uint64_t e;

	for (int i = 0; i < 4; i++) {
		marks = i & 1;
		e = fresh_logs(1);
		lose = i & 2;
		tear = !lose;
		put(0, e, 1, "x", "one", 10);
		lose = tear = false;
		end_epoch(0, e);
		kv_mdc_enc_edit(&db.d_mdc->m_buf, db.d_tag, 1, NULL, NULL, 0,
				(struct kv_horizon[]){ { 1, e }, { 2, e } }, 2);
		append_raw();
		put(0, e + 1, 1, "y", "two", 11);
		end_epoch(0, e + 1);
		again();
		T_EQ(db.d_recovery.durable_epoch, e + 1);
		T_EQ(seen("a", "y", NULL), 11);
		again();	/* it is sealed now */
		T_EQ(seen("a", "y", NULL), 11);
		marks = false;
		gone();
	}
}

/* Not even of one that runs cover, and of which no byte is read. */
static void sealed_length_behind_the_object_is_refused(void)
{
	struct kv_mdc_seg s;
	uint64_t e;

	e = fresh_logs(1);
	put(0, e, 1, "x", "one", 10);
	end_epoch(0, e);
	s.sc_obj = ts[0].id;
	s.sc_last = e;
	s.sc_len = SEG_BYTES + KV_BLOCK;
	T_EQ(kv_mdc_segs(&db, &s, 1), 0);
	T_EQ(kv_mdc_clean(&db, e), 0);
	down();
	up_lost();
	gone();
}

static void lost_write_below_the_last_recovery(void)
{
	struct kv_mdc_incarn in;
	uint64_t e;

	e = fresh_logs(1);
	put(0, e, 1, "x", "one", 10);
	end_epoch(0, e);
	in = db.d_mdc->m_st.st_inc;
	in.mi_incarnation++;
	in.mi_d = in.mi_epoch = e + 5;
	T_EQ(kv_mdc_incarn(&db, &in, NULL, 0), 0);
	down();
	up_lost();
	gone();
}

/* A store's durable horizon proves its epochs; one that is not whole was lost. */
static void lost_write_below_a_horizon(void)
{
	uint64_t e;

	e = fresh_logs(1);
	put(0, e, 1, "x", "one", 10);
	end_epoch(0, e);
	put(0, e + 1, 1, "y", "two", 11);
	atomic_store(&db.d_durable, e + 1);
	T_EQ(kvdb_kvs_create(&db, "c", NULL), 0);	/* its horizon is e + 1 */
	down();
	up_lost();
	gone();
}

/* A delete by prefix of another length than the store's, which no index would find. */
static void range_delete_that_cannot_be_is_refused(void)
{
	static uint8_t buf[4096] __attribute__((aligned(4096)));
	uint8_t *p = buf + KV_FRAME_HDR;
	uint64_t e;

	e = fresh_logs(1);
	memset(buf, 0, sizeof(buf));
	kv_rec_encode(p, KV_REC_PDEL, 1, "pfx", 3, NULL, 0, 0);
	kv_rec_stamp(p, ts[0].id, ts[0].off + KV_FRAME_HDR, 10);
	frame_write(0, e, buf, KV_FRAME_HDR + kv_rec_size(3, 0), 1);
	end_epoch(0, e);
	down();
	up_as(false);
	T_EQ(open_err, -EUCLEAN);
	T_OK(strstr(kvdb_error_detail()->text, "range delete"));
	gone();
}

static void option_that_is_not_known_refuses_the_open_by_name(void)
{
	struct kv_props p = { .pr_val = { 0 } };
	struct kvdb_opts o = KVDB_OPTS_INIT;

	fresh();
	p.pr_val[KV_PROP_COMPRESS] = KVDB_COMPRESS_ZSTD + 1;
	kv_mdc_enc_kvs_prop(&db.d_mdc->m_buf, db.d_tag, 2, &p, KV_PROP_BIT(KV_PROP_COMPRESS));
	append_raw();
	down();
	memset(&db, 0, sizeof(db));
	T_EQ(kv_db_attach(&db, dir, &o, false), 0);
	T_EQ(kv_db_load_kvs(&db, 0, false), -EOPNOTSUPP);
	T_OK(strstr(kvdb_error_detail()->text, "store b"));
	gone();
}

/* A run was flushed from epochs that the logs no longer have. */
static void lost_write_below_a_run(void)
{
	struct kv_kblock_desc kb = { 1ull << 40, 4096, 0 };
	struct kv_run_desc d = { .rd_id = 1, .rd_pos = 1, .rd_keys = 1, .rd_kvs = 1, .rd_n = 1,
				 .rd_kb = &kb };
	uint64_t e;

	e = fresh_logs(1);
	put(0, e, 1, "x", "one", 10);
	end_epoch(0, e);
	d.rd_newest_epoch = e + 1;
	kv_mdc_enc_edit(&db.d_mdc->m_buf, db.d_tag, 1, &d, NULL, 0, NULL, 0);
	append_raw();
	down();
	up_lost();
	gone();
}

static void impossible_key_is_refused(void)
{
	static char key[2001];
	uint64_t e;

	memset(key, 'k', 2000);
	e = fresh_logs(1);
	put(0, e, 1, key, "one", 10);
	end_epoch(0, e);
	down();
	up_as(false);
	T_EQ(open_err, -EUCLEAN);
	gone();
}

/* Open does not read what runs cover; verify does, and finds the hole. */
static void verify_reads_what_open_skips(void)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct kv_mdc_seg s;
	uint64_t e, damage = 0;

	e = fresh_logs(1);
	put(0, e, 1, "x", "one", 10);
	end_epoch(0, e);
	s.sc_obj = ts[0].id;
	s.sc_last = e;
	s.sc_len = 8192;
	T_EQ(kv_mdc_segs(&db, &s, 1), 0);
	T_EQ(kv_mdc_clean(&db, e), 0);
	down();
	T_EQ(kvdb_verify(dir, &o, MPOOL_VERIFY_DATA, NULL, NULL, &damage), 0);
	T_EQ(damage, 0);
	up();
	T_EQ(db.d_recovery.segments, 0);
	T_OK(db.d_recovery.was_clean);
	T_EQ(seen("a", "x", NULL), 0);
	gone();

	e = fresh_logs(1);
	put(0, e, 1, "x", "one", 10);
	end_epoch(0, e);
	s.sc_obj = ts[0].id;
	s.sc_last = e;
	s.sc_len = 12288;
	T_EQ(kv_mdc_segs(&db, &s, 1), 0);
	T_EQ(kv_mdc_clean(&db, e), 0);
	down();
	T_EQ(kvdb_verify(dir, &o, MPOOL_VERIFY_DATA, NULL, NULL, &damage), 0);
	T_EQ(damage, 1);
	up();
	gone();
}

static void frames_of_another_incarnation_are_not_read(void)
{
	uint64_t e;

	fresh_logs(1);
	again();
	again();
	seg_alloc(0);
	e = db.d_epoch;
	db.d_incarnation -= 1;
	put(0, e, 1, "x", "one", 10);
	end_epoch(0, e);
	again();
	T_EQ(seen("a", "x", NULL), 0);
	T_OK(db.d_epoch > e);	/* but its number is not used again */
	gone();
}

/* RV21: its record was durable before */
static void a_frame_of_a_later_incarnation_is_a_lost_write(void)
{
	uint64_t e = fresh_logs(1);

	db.d_incarnation += 1;
	put(0, e, 1, "x", "one", 10);
	end_epoch(0, e);
	down();
	up_lost();
	T_OK(strstr(kvdb_error_detail()->text, "incarnation"));
	gone();
}

static void read_only_open_writes_nothing(void)
{
	uint32_t inc;
	uint64_t e;

	fresh();
	e = db.d_epoch;
	inc = db.d_mdc->m_st.st_inc.mi_incarnation;
	seg_alloc(0);
	put(0, e, 1, "x", "one", 10);
	end_epoch(0, e);
	down();
	up_as(true);
	T_EQ(open_err, 0);
	T_EQ(seen("a", "x", NULL), 10);
	T_EQ(db.d_mdc->m_st.st_inc.mi_incarnation, inc);
	again();
	T_EQ(db.d_incarnation, inc + 1);
	T_EQ(seen("a", "x", NULL), 10);
	gone();
}

/* ---- R4 ---------------------------------------------------------------------------- */

static void replay_skips_what_the_horizon_covers(void)
{
	uint64_t e;

	e = fresh_logs(1);
	put(0, e, 1, "x", "one", 10);
	put(0, e, 2, "x", "two", 11);
	end_epoch(0, e);
	put(0, e + 1, 1, "y", "three", 12);
	end_epoch(0, e + 1);
	/* store 1 was flushed up to e */
	kv_mdc_enc_edit(&db.d_mdc->m_buf, db.d_tag, 1, NULL, NULL, 0,
			(struct kv_horizon[]){ { 1, e } }, 1);
	append_raw();
	again();
	T_EQ(seen("a", "x", NULL), 0);
	T_EQ(seen("b", "x", NULL), 11);
	T_EQ(seen("a", "y", NULL), 12);
	gone();
}

/* Within an epoch the greater revision wins, wherever it lies; a later epoch beats any revision. */
static void order_is_epoch_then_revision(void)
{
	uint64_t e;

	e = fresh_logs(2);
	put_rev(0, e, 1, "x", "new", 21, 7);
	put_rev(1, e, 1, "x", "old", 20, 6);
	put_rev(0, e, 1, "y", "old", 22, 9);
	end_epoch(0, e);
	put_rev(1, e + 1, 1, "y", "new", 23, 1);
	end_epoch(1, e + 1);
	again();
	T_EQ(seen("a", "x", NULL), 21);
	T_EQ(seen("a", "y", NULL), 23);
	gone();
}

static void records_of_a_dropped_store_are_passed_over(void)
{
	uint64_t e;

	e = fresh_logs(1);
	put(0, e, 1, "x", "one", 10);
	put(0, e, 2, "x", "two", 11);
	end_epoch(0, e);
	T_EQ(kvdb_kvs_drop(&db, "a"), 0);
	again();
	T_EQ(seen("b", "x", NULL), 11);
	T_EQ(db.d_recovery.replayed, 1);
	gone();
}

static void a_record_of_a_store_that_never_was_is_a_lost_write(void)
{
	uint64_t e = fresh_logs(1);

	put(0, e, 1, "x", "one", 10);
	put(0, e, 9, "x", "two", 11);
	end_epoch(0, e);
	down();
	up_lost();
	T_OK(strstr(kvdb_error_detail()->text, "records of store 9"));
	gone();
}

/* ---- R6, R8 ------------------------------------------------------------------------- */

static unsigned count_kind(uint32_t kind)
{
	struct mpool_obj_info oi[256];
	int i, n = mpool_objects(db.d_mp, 0, db.d_tag, oi, 256);
	unsigned k = 0;

	for (i = 0; i < n; i++)
		k += oi[i].kind == kind;
	return k;
}

static void unused_segments_are_deleted_live_ones_stay(void)
{
	uint64_t e;

	e = fresh_logs(2);
	put(0, e, 1, "x", "one", 10);
	end_epoch(0, e);
	T_EQ(count_kind(MPOOL_APPEND), 2);
	again();
	T_EQ(count_kind(MPOOL_APPEND), 1);
	T_EQ(kv_segs_finish(&db), 0);
	T_EQ(count_kind(MPOOL_APPEND), 1);
	again();
	T_EQ(seen("a", "x", NULL), 10);
	gone();
}

static void orphan_make(unsigned n)
{
	struct mpool_alloc req = { .kind = MPOOL_MBLOCK, .mclass = MPOOL_CAPACITY, .capacity = 4096,
				   .tag = db.d_tag };
	static uint8_t page[4096] __attribute__((aligned(4096)));
	struct iovec v = { page, sizeof(page) };
	struct mpool_op op = { .type = MPOOL_OP_COMMIT, .length = 4096 };

	while (n--) {
		T_EQ(mpool_alloc(db.d_mp, &req, 1, &op.obj), 0);
		T_EQ(mpool_write(op.obj, 0, &v, 1), 0);
		T_EQ(mpool_batch(db.d_mp, &op, 1), 0);
		mpool_obj_close(op.obj);
	}
}

static void orphans_are_collected(void)
{
	fresh();
	orphan_make(3);
	T_EQ(count_kind(MPOOL_MBLOCK), 3);
	again();
	T_EQ(count_kind(MPOOL_MBLOCK), 0);
	gone();
}

/* R8: what was there at the container's checkpoint is no orphan, whatever the runs say. */
static void old_objects_are_left_alone(void)
{
	struct kv_mdc_incarn in;

	fresh();
	orphan_make(1);
	in = db.d_mdc->m_st.st_inc;
	in.mi_incarnation++;
	in.mi_ckpt = 1ull << 40;
	T_EQ(kv_mdc_incarn(&db, &in, NULL, 0), 0);
	again();
	T_EQ(count_kind(MPOOL_MBLOCK), 1);
	gone();
}

/* Whoever forged its checksums: a stamp is a number, or the log ends there. */
static void a_stamp_that_cannot_be_ends_the_log(void)
{
	static const uint64_t forged[] = { UINT64_MAX, UINT64_MAX - 1, (1ull << 63) + 16,
					   KV_NUMBER_END };
	uint64_t e;

	for (unsigned i = 0; i < sizeof(forged) / sizeof(forged[0]); i++) {
		e = fresh_logs(1);
		put(0, e, 1, "x", "one", 10);
		end_epoch(0, e);
		put(0, e + 1, 1, "y", "two", forged[i]);
		end_epoch(0, e + 1);
		again();
		T_EQ(db.d_recovery.durable_epoch, e);
		T_EQ(seen("a", "x", NULL), 10);
		T_EQ(seen("a", "y", NULL), 0);
		T_EQ(atomic_load(&db.d_seq), 11);
		gone();
	}
}

/* What would be written next could not be read. */
static void an_open_leaves_room_to_count_on(void)
{
	static const uint64_t most[] = { KV_NUMBER_END / 2, KV_NUMBER_END - 1 };
	uint64_t e;

	for (unsigned i = 0; i < sizeof(most) / sizeof(most[0]); i++) {
		e = fresh_logs(1);
		put(0, e, 1, "x", "one", most[i]);
		end_epoch(0, e);
		down();
		up_as(false);
		T_EQ(open_err, -EUCLEAN);
		T_OK(strstr(kvdb_error_detail()->text, "no room to count on"));
		gone();
	}
	e = fresh_logs(1);
	put(0, e, 1, "x", "one", KV_NUMBER_END / 2 - 1);
	end_epoch(0, e);
	again();
	T_EQ(seen("a", "x", NULL), KV_NUMBER_END / 2 - 1);
	gone();
}

/* The record of the next one would be none: whoever tried could never open it again. */
static void an_incarnation_is_not_the_last_one(void)
{
	struct kv_mdc_incarn in;

	fresh();
	in = db.d_mdc->m_st.st_inc;
	in.mi_incarnation = UINT32_MAX - 1;
	T_EQ(kv_mdc_incarn(&db, &in, NULL, 0), 0);
	for (unsigned i = 0; i < 2; i++) {
		down();
		up_as(false);
		T_EQ(open_err, -EUCLEAN);
		T_OK(strstr(kvdb_error_detail()->text, "no room to count on"));
	}
	gone();
}

static void too_many_orphans_are_refused(void)
{
	fresh();
	orphan_make(70);
	down();
	up_as(false);
	T_EQ(open_err, -EUCLEAN);
	T_OK(strstr(kvdb_error_detail()->text, "kvdb repair"));
	T_EQ(count_kind(MPOOL_MBLOCK), 70);
	gone();
}

int main(void)
{
	T_RUN(complete_epochs_survive_incomplete_do_not);
	T_RUN(lost_frame_below_later_epochs_is_damage);
	T_RUN(rollback_gives_up_what_was_told_and_only_that);
	T_RUN(frames_behind_a_lost_one_prove_what_was_durable);
	T_RUN(lost_descriptor_below_later_epochs_is_damage);
	T_RUN(torn_descriptor_below_a_later_frame_is_damage);
	T_RUN(without_stores_a_missing_segment_is_no_damage);
	T_RUN(any_part_of_the_newest_epoch_is_a_torn_tail);
	T_RUN(a_frame_says_which_epoch_was_durable_before_its_own);
	T_RUN(segment_missing_from_the_pool);
	T_RUN(an_object_too_large_for_a_segment_is_refused);
	T_RUN(idle_log_holds_back_nothing);
	T_RUN(rolled_log_needs_both_segments);
	T_RUN(wrong_chain_ends_a_segment);
	T_RUN(wrong_chain_in_a_descriptor);
	T_RUN(descriptors_that_contradict_their_frame);
	T_RUN(discarded_tails_stay_discarded);
	T_RUN(lost_write_below_a_sealed_length);
	T_RUN(a_hole_below_a_sealed_length_is_a_lost_write);
	T_RUN(a_hole_that_horizons_cover_costs_nothing);
	T_RUN(sealed_length_behind_the_object_is_refused);
	T_RUN(lost_write_below_the_last_recovery);
	T_RUN(range_delete_that_cannot_be_is_refused);
	T_RUN(option_that_is_not_known_refuses_the_open_by_name);
	T_RUN(lost_write_below_a_horizon);
	T_RUN(lost_write_below_a_run);
	T_RUN(impossible_key_is_refused);
	T_RUN(verify_reads_what_open_skips);
	T_RUN(frames_of_another_incarnation_are_not_read);
	T_RUN(a_frame_of_a_later_incarnation_is_a_lost_write);
	T_RUN(read_only_open_writes_nothing);
	T_RUN(replay_skips_what_the_horizon_covers);
	T_RUN(order_is_epoch_then_revision);
	T_RUN(records_of_a_dropped_store_are_passed_over);
	T_RUN(a_record_of_a_store_that_never_was_is_a_lost_write);
	T_RUN(unused_segments_are_deleted_live_ones_stay);
	T_RUN(orphans_are_collected);
	T_RUN(old_objects_are_left_alone);
	T_RUN(too_many_orphans_are_refused);
	T_RUN(a_stamp_that_cannot_be_ends_the_log);
	T_RUN(an_open_leaves_room_to_count_on);
	T_RUN(an_incarnation_is_not_the_last_one);
	return t_done();
}
