/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Recovery on hand-made logs: frames are written with the codec into segments
 * of a real pool on files, then recovery decides what survived (R2, R3, R4).
 */
#include "kv_logs.h"

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
	T_EQ(db.d_opened.on_recovery.durable_epoch, e + 1);
	T_EQ(seen("a", "x", &kind), 12);
	T_EQ(kind, KV_ENT_TOMB);
	T_EQ(seen("b", "y", NULL), 11);
	T_EQ(seen("a", "z", NULL), 0);
	T_EQ(db.d_opened.on_recovery.discarded, 1);
	T_OK(db.d_epochs.ep_open > e + 2);
	T_OK(atomic_load(&db.d_epochs.ep_seq) > 13);
	T_EQ(db.d_epochs.ep_desc.epoch, e + 1);
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
	T_EQ(db.d_opened.on_recovery.durable_epoch, e);
	T_EQ(seen("a", "x", NULL), 10);
	T_EQ(seen("a", "y", NULL), 0);
	T_EQ(seen("a", "z", NULL), 0);
	/* nothing may use the numbers of frames that are still on the device */
	T_OK(db.d_epochs.ep_open > e + 2);
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
	e = db.d_epochs.ep_open;
	seg_alloc(0);
	seg_alloc(1);
	put(1, e, 1, "x", "one", 10);
	end_epoch(0, e);
	put(0, e + 1, 1, "y", "two", 11);
	op.obj = ts[1].obj;
	T_EQ(mpool_batch(db.d_mp, &op, 1), 0);
	again();
	T_OK(db.d_epochs.ep_open > e + 1);
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
	T_EQ(db.d_opened.on_recovery.durable_epoch, e);
	gone();
}

/* Whatever wrote it: nothing in it is believed. */
static void an_object_too_large_for_a_segment_is_refused(void)
{
	struct mpool_alloc req = { .kind = MPOOL_APPEND, .mclass = MPOOL_CAPACITY,
				   .capacity = 65u << 20 };
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct mpool_obj *obj;

	pool_mib = 256;
	fresh();
	pool_mib = 64;
	req.tag = db.d_ident.id_tag;
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
	T_EQ(db.d_opened.on_recovery.durable_epoch, e + 19);
	T_EQ(db.d_opened.on_recovery.replayed, 20);
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
	T_EQ(db.d_opened.on_recovery.durable_epoch, e);
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
	T_EQ(db.d_opened.on_recovery.durable_epoch, e);
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
		put(0, db.d_epochs.ep_open, 1, "n", "new", 100 + (uint64_t)i);
		end_epoch(0, db.d_epochs.ep_open);
	}
	again();
	T_EQ(seen("a", "n", NULL), 102);
	T_EQ(seen("a", "y", NULL), 0);
	T_EQ(seen("a", "w", NULL), 0);
	T_EQ(db.d_ident.id_incarnation, 5);
	gone();
}

/* The first segment is recorded as durable up to @len, and @e, its last epoch: it is not. */
static void is_lost_below(uint32_t len, uint64_t e)
{
	struct kv_mdc_seg s = { .sc_obj = ts[0].id, .sc_last = e, .sc_len = len };

	T_EQ(kv_mdc_segs(&db, &s, 1), 0);
	T_EQ(mpool_flush(db.d_mp, 1), 0);
	T_EQ(kvdb_kvs_create(&db, "c", NULL), 0);
	down();
	up_lost();
	gone();
}

static void lost_write_below_a_sealed_length(void)
{
	uint64_t e;

	e = fresh_logs(1);
	put(0, e, 1, "x", "one", 10);
	end_epoch(0, e);
	/* which it never reached */
	is_lost_below(12288, e);
}

/* Nothing says that runs have what it held, so that is needed. */
static void a_hole_below_a_sealed_length_is_a_lost_write(void)
{
	uint64_t e;

	e = fresh_logs(1);
	lose = true;
	put(0, e, 1, "x", "one", 10);
	lose = false;
	end_epoch(0, e);
	is_lost_below(8192, e);
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
		kv_mdc_enc_edit(&db.d_mdc->m_buf, db.d_ident.id_tag, 1, NULL, NULL, 0,
				(struct kv_horizon[]){ { 1, e }, { 2, e } }, 2);
		append_raw();
		put(0, e + 1, 1, "y", "two", 11);
		end_epoch(0, e + 1);
		again();
		T_EQ(db.d_opened.on_recovery.durable_epoch, e + 1);
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
	atomic_store(&db.d_epochs.ep_durable, e + 1);
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
	kv_mdc_enc_kvs_prop(&db.d_mdc->m_buf, db.d_ident.id_tag, 2, &p,
			    KV_PROP_BIT(KV_PROP_COMPRESS));
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
	kv_mdc_enc_edit(&db.d_mdc->m_buf, db.d_ident.id_tag, 1, &d, NULL, 0, NULL, 0);
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
	T_EQ(db.d_opened.on_recovery.segments, 0);
	T_OK(db.d_opened.on_recovery.was_clean);
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
	e = db.d_epochs.ep_open;
	db.d_ident.id_incarnation -= 1;
	put(0, e, 1, "x", "one", 10);
	end_epoch(0, e);
	again();
	T_EQ(seen("a", "x", NULL), 0);
	T_OK(db.d_epochs.ep_open > e);	/* but its number is not used again */
	gone();
}

/* RV21: its record was durable before */
static void a_frame_of_a_later_incarnation_is_a_lost_write(void)
{
	uint64_t e = fresh_logs(1);

	db.d_ident.id_incarnation += 1;
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
	e = db.d_epochs.ep_open;
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
	T_EQ(db.d_ident.id_incarnation, inc + 1);
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
	kv_mdc_enc_edit(&db.d_mdc->m_buf, db.d_ident.id_tag, 1, NULL, NULL, 0,
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
	T_EQ(db.d_opened.on_recovery.replayed, 1);
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
	return t_done();
}
