/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What recovery deletes, what it keeps room for, and where it refuses to go on (R6, R8). */
#include "kv_logs.h"

/* ---- R6, R8 ------------------------------------------------------------------------- */

static unsigned count_kind(uint32_t kind)
{
	struct mpool_obj_info oi[256];
	int i, n = mpool_objects(db.d_mp, 0, db.d_ident.id_tag, oi, 256);
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
				   .tag = db.d_ident.id_tag };
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

/* Whatever its checksums say: a stamp is a number, or the log ends there. */
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
		T_EQ(db.d_opened.on_recovery.durable_epoch, e);
		T_EQ(seen("a", "x", NULL), 10);
		T_EQ(seen("a", "y", NULL), 0);
		T_EQ(atomic_load(&db.d_epochs.ep_seq), 11);
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

/* The record of the next one would be none: the database could never be opened again. */
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
	T_RUN(unused_segments_are_deleted_live_ones_stay);
	T_RUN(orphans_are_collected);
	T_RUN(old_objects_are_left_alone);
	T_RUN(too_many_orphans_are_refused);
	T_RUN(a_stamp_that_cannot_be_ends_the_log);
	T_RUN(an_open_leaves_room_to_count_on);
	T_RUN(an_incarnation_is_not_the_last_one);
	return t_done();
}
