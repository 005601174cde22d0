/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Objects: their numbers, a seal beside a write, a list of many.
 */
#include "durable.h"
#include "core_mem.h"

static struct mp_dev_ops ops;
static struct mp_obj *late_obj;
static int late_rc;

/* another thread writes while a seal makes the data durable */
static int late_flush(struct mp_dev *d)
{
	struct mp_obj *o = late_obj;

	late_obj = NULL;
	if (o)
		late_rc = mp_obj_write_begin(o, 0, MP_BLOCK);
	return mem_flush(d);
}

/* INV-4: the first write of a reopened append object may go anywhere, also below what is sealed. */
static void seal_in_flight_is_not_written_below(void)
{
	struct mp_op op = { .op_type = MP_OP_SEAL, .op_length = 65536 };
	struct mp_obj *o;
	struct rig r;
	u64 id;

	rig_init(&r, 1, 16 << 20);
	T_EQ(rig_open(&r), 0);
	T_EQ(alloc_one(r.pool, MP_APPEND, 65536, &o), 0);
	id = mp_obj_id(o);
	T_EQ(fill(o, 0, 65536, 1), 0);
	mp_obj_put(o);
	rig_reopen(&r, 0);
	ops = mem_ops;
	ops.flush = late_flush;
	r.dev[0]->d_ops = &ops;
	T_EQ(mp_obj_open(r.pool, id, &o), 0);
	late_obj = o;
	late_rc = 1;
	op.op_obj = o;
	T_EQ(mp_pool_batch(r.pool, &op, 1), 0);
	T_EQ(late_rc, -EBUSY);
	if (!late_rc)
		mp_obj_write_end(o, 0, 0);
	T_EQ(mp_obj_write_begin(o, 0, MP_BLOCK), -EINVAL);
	mp_obj_put(o);
	rig_fini(&r);
}

/* INV-10: a mark that was written and not flushed may be lost. */
static void id_is_told_below_the_durable_mark_only(void)
{
	struct rig r;
	u64 id;

	rig_init(&r, 1, 8 << 20);
	T_EQ(rig_open(&r), 0);
	r.pool->p_next_id = r.pool->p_md.md_id_hwm;
	r.m[0].fail_flush = -EIO;
	T_OK(mp_obj_id_reserve(r.pool, 1, &id));
	T_OK(mp_obj_id_reserve(r.pool, 1, &id));
	rig_fini(&r);
}

/* A list looks at some objects at a time: what it wants may be behind any number of others. */
static void list_passes_over_many(void)
{
	struct mp_alloc a[1000] = { { .al_kind = 0 } }, b = { .al_kind = MP_APPEND,
			 .al_capacity = 4096, .al_tag = 9 };
	static struct mp_obj *o[1000];
	struct mp_obj_info oi[3];
	struct rig r;
	u64 last;
	int i, k;

	rig_init(&r, 1, 64 << 20);
	T_EQ(rig_open(&r), 0);
	for (i = 0; i < 1000; i++) {
		a[i].al_kind = MP_APPEND;
		a[i].al_capacity = 4096;
		a[i].al_tag = 1;
	}
	for (k = 0; k < 3; k++) {
		T_EQ(mp_obj_alloc(r.pool, a, 1000, o), 0);
		for (i = 0; i < 1000; i++)
			mp_obj_put(o[i]);
	}
	T_EQ(mp_obj_alloc(r.pool, &b, 1, o), 0);
	last = mp_obj_id(o[0]);
	mp_obj_put(o[0]);
	T_EQ(mp_obj_list(r.pool, 0, 9, oi, 3), 1);
	T_EQ(oi[0].oi_id, last);
	T_EQ(mp_obj_list(r.pool, 0, 8, oi, 3), 0);
	T_EQ(mp_obj_list(r.pool, last, 0, oi, 3), 0);
	T_EQ(mp_obj_list(r.pool, last - 1, 0, oi, 3), 1);
	T_EQ(mp_obj_list(r.pool, 0, 1, oi, 3), 3);
	rig_fini(&r);
}

int main(void)
{
	T_RUN(id_is_told_below_the_durable_mark_only);
	T_RUN(seal_in_flight_is_not_written_below);
	T_RUN(list_passes_over_many);
	return t_done();
}
