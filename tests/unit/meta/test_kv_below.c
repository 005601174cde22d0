/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The container of a database in a file system that is full: what makes its state larger is
 * refused with nothing changed, what an open records and what makes it smaller goes on.
 */
#include <errno.h>

#include "kv_sim.h"

#include "db/db.h"
#include "meta/mdc.h"
#include "open/open.h"

#define STEP	1000u		/* segments in one record */
#define STORES	20u
#define MOST	(40u * STEP)	/* of them all, far more than there is space for */

static struct kvdb db;
static struct kv_mdc_seg seg[MOST];
static struct kv_mdc_incarn in;

static void attach(void)
{
	memset(&db, 0, sizeof(db));
	T_EQ(kv_db_attach(&db, POOL, &opts, false), 0);
	T_EQ(mpool_begin(db.d_mp), 0);
}

static void detach(void)
{
	kv_db_detach(&db);
	T_EQ(mpool_close(db.d_mp), 0);
}

static void start(void)
{
	struct kv_props p = { .pr_val = { [KV_PROP_PFX_LEN] = 3 } };
	char name[32];

	kv_sim_has_holes = true;
	kv_sim(1);
	T_EQ(kvdb_create(POOL, &opts), 0);
	attach();
	for (uint32_t i = 0; i < MOST; i++)
		seg[i] = (struct kv_mdc_seg){ 1000 + i, 5, 4096 };
	in = (struct kv_mdc_incarn){ .mi_incarnation = 1, .mi_d = 6, .mi_epoch = 7 };
	T_EQ(kv_mdc_incarn(&db, &in, seg, 1), 0);
	for (uint32_t i = 1; i <= STORES; i++) {
		snprintf(name, sizeof(name), "store%u", i);
		T_EQ(kv_mdc_kvs_add(&db, i, name, 5, &p), 0);
	}
}

static void end(void)
{
	detach();
	T_EQ(mpool_destroy(POOL, &oo), 0);
	sim_fini(&sim);
}

/* Records @step segments at a time until there is no space below; how many there are then. */
static uint32_t fill(uint32_t step)
{
	uint32_t n = (uint32_t)db.d_mdc->m_st.st_nseg;
	int err = 0;

	while (!err && n < MOST) {
		err = kv_mdc_segs(&db, seg + n, step);
		n += err ? 0 : step;
	}
	T_EQ(err, -ENOSPC);
	T_OK(strstr(kvdb_error_detail()->text, "file system below is full"));
	T_OK(!kv_fault(&db));
	T_EQ(db.d_mdc->m_st.st_nseg, n);
	return n;
}

static void no_space_for_more_state_is_no_end(void)
{
	struct kv_props p = { .pr_val = { [KV_PROP_PFX_LEN] = 3 } };
	uint64_t used, cap, last = 0, room;
	uint32_t n, i, compacted;

	for (room = 0; room < 1u << 20; room += 97u << 12) {
		start();
		sim.s_room = room;
		fill(STEP);
		sim.s_room = 0;
		n = fill(10);
		T_EQ(kv_mdc_kvs_add(&db, 100, "more", 5, &p), -ENOSPC);
		/* what each open records, and what a clean close does, again and again */
		for (i = 0, compacted = 0; i < 60; i++) {
			in.mi_incarnation++;
			T_EQ(kv_mdc_incarn(&db, &in, seg, (uint32_t)db.d_mdc->m_st.st_nseg), 0);
			T_EQ(kv_mdc_clean(&db, 7), 0);
			T_EQ(mpool_mdc_space(db.d_mdc->m_log, &used, &cap), 0);
			compacted += used < last;
			last = used;
			if (i % 10 == 9) {
				detach();
				attach();
				T_EQ(db.d_mdc->m_st.st_nseg, n);
				T_EQ(db.d_mdc->m_st.st_nkvs, STORES);
			}
		}
		T_OK(compacted > 2);
		for (i = 1; i <= STORES; i++)
			T_EQ(kv_mdc_kvs_drop(&db, i), 0);
		detach();
		attach();
		T_EQ(db.d_mdc->m_st.st_nkvs, 0);
		/* as soon as there is space below */
		sim.s_room = UINT64_MAX;
		T_EQ(kv_mdc_kvs_add(&db, 100, "more", 5, &p), 0);
		T_EQ(kv_mdc_segs(&db, seg + n, STEP), 0);
		T_EQ(db.d_mdc->m_st.st_nseg, n + STEP);
		end();
	}
}

int main(void)
{
	T_RUN(no_space_for_more_state_is_no_end);
	return t_done();
}
