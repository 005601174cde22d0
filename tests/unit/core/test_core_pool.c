/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Behaviour of the portable core on small in-memory pools.
 */
#include "durable.h"
#include "core_mem.h"

static struct rig r;

static void committed_mblock_survives_a_cut(void)
{
	struct mp_obj_info oi;
	struct mp_obj *o;
	u64 id;

	rig_init(&r, 2, 8 << 20);
	T_EQ(rig_open(&r), 0);
	T_EQ(alloc_one(r.pool, MP_MBLOCK, 65536, &o), 0);
	T_EQ(fill(o, 0, 8192, 'x'), 0);
	T_EQ(fill(o, 0, 4096, 'y'), -EINVAL);
	T_EQ(commit(r.pool, o, 12288), -EINVAL);
	T_EQ(commit(r.pool, o, 8192), 0);
	id = mp_obj_id(o);
	mp_obj_put(o);
	rig_reopen(&r, 1);
	T_EQ(mp_obj_list(r.pool, 0, 7, &oi, 1), 1);
	T_EQ(oi.oi_id, id);
	T_EQ(oi.oi_length, 8192);
	T_EQ(mp_obj_open(r.pool, id, &o), 0);
	T_EQ(mp_obj_read_check(o, 0, 8192), 0);
	T_EQ(mp_obj_read_check(o, 8192, 4096), -EINVAL);
	T_EQ(fill(o, 8192, 4096, 'z'), -EINVAL);
	mp_obj_put(o);
	rig_fini(&r);
}

/* Writes to the whole object, as if the device ended them with @err. */
static void write_badly(struct mp_obj *o, int err)
{
	T_EQ(mp_obj_write_begin(o, 0, o->o_capacity), 0);
	mp_obj_write_end(o, 0, err);
}

/* INV-24, of an object that was never on media and of one that is deleted */
static void where_a_write_failed_is_nobodys_space_until_the_next_open(void)
{
	struct mp_pool_info before, in;
	struct mp_obj *o;
	u64 id;

	rig_init(&r, 1, 16 << 20);
	T_EQ(rig_open(&r), 0);
	mp_pool_info(r.pool, &before);
	/* no fault of the device's */
	T_EQ(alloc_one(r.pool, MP_MBLOCK, 1 << 20, &o), 0);
	write_badly(o, -ENOMEM);
	T_EQ(commit(r.pool, o, 1 << 20), -EIO);
	mp_obj_put(o);
	mp_pool_info(r.pool, &in);
	T_EQ(in.pi_cls[0].ci_free, before.pi_cls[0].ci_free);
	T_EQ(alloc_one(r.pool, MP_MBLOCK, 1 << 20, &o), 0);
	write_badly(o, -EIO);
	T_EQ(commit(r.pool, o, 1 << 20), -EIO);
	mp_obj_put(o);
	T_EQ(alloc_one(r.pool, MP_APPEND, 1 << 20, &o), 0);
	write_badly(o, -EIO);
	id = mp_obj_id(o);
	mp_obj_put(o);
	T_EQ(delete_id(r.pool, id), 0);
	mp_pool_info(r.pool, &in);
	T_EQ(in.pi_cls[0].ci_free, before.pi_cls[0].ci_free - (2 << 20));
	rig_reopen(&r, 0);
	mp_pool_info(r.pool, &in);
	T_EQ(in.pi_cls[0].ci_free, before.pi_cls[0].ci_free);
	rig_fini(&r);
}

static void uncommitted_mblock_leaves_no_trace(void)
{
	struct mp_pool_info a, b;
	struct mp_obj_info oi;
	struct mp_obj *o;

	rig_init(&r, 1, 8 << 20);
	T_EQ(rig_open(&r), 0);
	mp_pool_info(r.pool, &a);
	T_EQ(alloc_one(r.pool, MP_MBLOCK, 1 << 20, &o), 0);
	T_EQ(fill(o, 0, 4096, 'x'), 0);
	mp_pool_info(r.pool, &b);
	T_EQ(b.pi_cls[0].ci_used - a.pi_cls[0].ci_used, 1 << 20);
	mp_obj_put(o);
	mp_pool_info(r.pool, &b);
	T_EQ(b.pi_cls[0].ci_used, a.pi_cls[0].ci_used);
	rig_reopen(&r, 1);
	T_EQ(mp_obj_list(r.pool, 0, 0, &oi, 1), 0);
	rig_fini(&r);
}

static void ids_are_never_reused(void)
{
	struct mp_obj *o;
	u64 last = 0;
	int i;

	rig_init(&r, 1, 8 << 20);
	T_EQ(rig_open(&r), 0);
	for (i = 0; i < 5; i++) {
		T_EQ(alloc_one(r.pool, MP_MBLOCK, 4096, &o), 0);
		T_OK(mp_obj_id(o) > last);
		last = mp_obj_id(o);
		mp_obj_put(o);
		rig_reopen(&r, i & 1);
	}
	rig_fini(&r);
}

static void deleted_space_waits_for_the_last_handle(void)
{
	struct mp_pool_info a, b;
	struct mp_obj *o;

	rig_init(&r, 2, 8 << 20);
	T_EQ(rig_open(&r), 0);
	mp_pool_info(r.pool, &a);
	T_EQ(alloc_one(r.pool, MP_APPEND, 1 << 20, &o), 0);
	T_EQ(delete_id(r.pool, mp_obj_id(o)), 0);
	T_EQ(delete_id(r.pool, mp_obj_id(o)), -ENOENT);
	mp_pool_info(r.pool, &b);
	T_EQ(b.pi_cls[0].ci_used - a.pi_cls[0].ci_used, 1 << 20);
	mp_obj_put(o);
	mp_pool_info(r.pool, &b);
	T_EQ(b.pi_cls[0].ci_used, a.pi_cls[0].ci_used);
	rig_fini(&r);
}

static void full_pool_fails_fast_and_deletes_make_room(void)
{
	struct timespec t0, t1;
	struct mp_obj_info oi[64];
	struct mp_obj *o;
	long long ns;
	int i, n = 0;

	rig_init(&r, 1, 8 << 20);
	T_EQ(rig_open(&r), 0);
	while (!alloc_one(r.pool, MP_APPEND, 256 << 10, &o)) {
		mp_obj_put(o);
		n++;
	}
	T_OK(n >= 26 && n < 32);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t0);
	for (i = 0; i < 100; i++)
		T_EQ(alloc_one(r.pool, MP_MBLOCK, 256 << 10, &o), -ENOSPC);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t1);
	ns = (t1.tv_sec - t0.tv_sec) * 1000000000ll + t1.tv_nsec - t0.tv_nsec;
	T_OK(ns / 100 < 100000);
	T_EQ(mp_obj_list(r.pool, 0, 0, oi, 64), n);
	for (i = 0; i < n; i++)
		T_EQ(delete_id(r.pool, oi[i].oi_id), 0);
	T_EQ(alloc_one(r.pool, MP_MBLOCK, 2 << 20, &o), 0);
	mp_obj_put(o);
	while (mp_pool_discard_step(r.pool, 1 << 20))
		;
	T_OK(r.m[0].discards > 0);
	rig_fini(&r);
}

static u64 clock_ms;

static u64 clock_now(void *ctx)
{
	(void)ctx;
	return clock_ms;
}

static void logs_come_and_go(u32 n)
{
	struct mp_obj *o;
	u64 id;

	while (n--) {
		T_EQ(alloc_one(r.pool, MP_APPEND, 64 << 10, &o), 0);
		id = mp_obj_id(o);
		T_EQ(fill(o, 0, 64 << 10, 1), 0);
		mp_obj_put(o);
		T_EQ(delete_id(r.pool, id), 0);
	}
}

static u64 discarding(void)
{
	struct mp_pool_info pi;

	mp_pool_info(r.pool, &pi);
	return pi.pi_cls[MP_CAPACITY].ci_discarding;
}

/* INV-24: a device that was away for a while costs no space for good */
static void where_a_write_failed_is_free_again_a_minute_later(void)
{
	const struct os_user_hooks hooks = { .now_ms = clock_now };
	const struct os_user_hooks none = { .now_ms = NULL };
	struct mp_pool_info before, in;
	struct mp_obj *o;
	int i;

	os_user_hooks_set(&hooks);
	clock_ms = 5000;
	rig_init(&r, 2, 16 << 20);
	T_EQ(rig_open(&r), 0);
	mp_pool_info(r.pool, &before);
	for (i = 0; i < 4; i++) {
		T_EQ(alloc_one(r.pool, MP_MBLOCK, 1 << 20, &o), 0);
		write_badly(o, -EIO);
		mp_obj_put(o);
		clock_ms += 10000;
		T_EQ(mp_pool_trim(r.pool), 1000);
	}
	mp_pool_info(r.pool, &in);
	T_EQ(in.pi_cls[0].ci_free, before.pi_cls[0].ci_free - (4 << 20));
	/* no allocation takes it, be there no other */
	T_EQ(alloc_one(r.pool, MP_MBLOCK, before.pi_cls[0].ci_free - (2 << 20), &o), -ENOSPC);
	/* nor does a close wait for it */
	mp_pool_give_back(r.pool, 0, 1000);
	/* 60 s after the first */
	clock_ms = 5000 + 59999;
	T_OK(mp_pool_trim(r.pool) > 0);
	mp_pool_info(r.pool, &in);
	T_EQ(in.pi_cls[0].ci_free, before.pi_cls[0].ci_free - (4 << 20));
	clock_ms++;
	mp_pool_trim(r.pool);
	mp_pool_info(r.pool, &in);
	T_EQ(in.pi_cls[0].ci_free, before.pi_cls[0].ci_free);
	while (mp_pool_discard_step(r.pool, 0))
		;
	T_EQ(mp_pool_trim(r.pool), 0);
	/* what fails then is kept out for as long */
	T_EQ(alloc_one(r.pool, MP_MBLOCK, 1 << 20, &o), 0);
	write_badly(o, -EIO);
	mp_obj_put(o);
	clock_ms += 59999;
	T_EQ(mp_pool_trim(r.pool), 1000);
	mp_pool_info(r.pool, &in);
	T_EQ(in.pi_cls[0].ci_free, before.pi_cls[0].ci_free - (1 << 20));
	rig_fini(&r);
	os_user_hooks_set(&none);
}

/* what logs freed stays for the next ones as long as there are such, and no longer */
static void the_stock_of_logs_goes_when_none_is_written(void)
{
	const struct os_user_hooks hooks = { .now_ms = clock_now };
	const struct os_user_hooks none = { .now_ms = NULL };

	os_user_hooks_set(&hooks);
	clock_ms = 5000;
	rig_init(&r, 1, 16 << 20);
	T_EQ(rig_open(&r), 0);
	T_EQ(mp_pool_trim(r.pool), 0);
	logs_come_and_go(4);
	T_EQ(mp_pool_trim(r.pool), 1000);
	clock_ms += 400;
	T_EQ(mp_pool_trim(r.pool), 600);
	clock_ms += 600;
	T_EQ(mp_pool_trim(r.pool), 1000);
	T_EQ(discarding(), 0);
	T_EQ(mp_pool_discard_step(r.pool, 0), 0);
	T_EQ(r.m[0].discards, 0);
	clock_ms += 1000;
	T_EQ(mp_pool_trim(r.pool), 1);
	T_EQ(discarding(), 64 << 10);
	T_EQ(mp_pool_discard_step(r.pool, 0), 0);
	T_EQ(r.m[0].discards, 1);
	T_EQ(mp_pool_trim(r.pool), 0);
	/* a close does not wait for that */
	logs_come_and_go(1);
	mp_pool_give_back(r.pool, 16 << 10, 1000);
	T_EQ(r.m[0].discards, 5);
	T_EQ(mp_pool_trim(r.pool), 0);
	rig_fini(&r);
	os_user_hooks_set(&none);
}

static void batch_is_all_or_nothing(void)
{
	struct mp_alloc a[2] = { { .al_kind = MP_APPEND, .al_capacity = 8192 },
				 { .al_kind = MP_APPEND, .al_capacity = 8192 } };
	struct mp_op op[2] = { { .op_type = MP_OP_SEAL, .op_length = 4096 },
			       { .op_type = MP_OP_SEAL, .op_length = 1 } };
	struct mp_obj_info oi[4];
	struct mp_obj *o[2];

	rig_init(&r, 2, 8 << 20);
	T_EQ(rig_open(&r), 0);
	T_EQ(mp_obj_alloc(r.pool, a, 2, o), 0);
	op[0].op_obj = o[0];
	op[1].op_obj = o[1];
	T_EQ(fill(o[0], 0, 4096, 1), 0);
	T_EQ(fill(o[1], 0, 8192, 2), 0);
	T_EQ(mp_pool_batch(r.pool, op, 2), -EINVAL);
	mp_obj_info(o[0], &oi[0]);
	T_EQ(oi[0].oi_flags, 0);
	op[1].op_length = 8192;
	T_EQ(mp_pool_batch(r.pool, op, 2), 0);
	mp_obj_put(o[0]);
	mp_obj_put(o[1]);
	rig_reopen(&r, 1);
	T_EQ(mp_obj_list(r.pool, 0, 0, oi, 4), 2);
	T_EQ(oi[0].oi_length, 4096);
	T_EQ(oi[1].oi_flags & MP_OBJF_SEALED, MP_OBJF_SEALED);
	rig_fini(&r);
}

static void append_object_never_exposes_foreign_bytes(void)
{
	struct mp_obj *o;
	struct mp_dev *dev;
	u8 buf[4096];
	u64 pos, n, off;

	rig_init(&r, 1, 8 << 20);
	T_EQ(rig_open(&r), 0);
	T_EQ(alloc_one(r.pool, MP_APPEND, 1 << 20, &o), 0);
	for (off = 0; off < 1 << 20; off += 4096) {
		T_EQ(mp_obj_map(o, off, 4096, &dev, &pos, &n), 0);
		T_EQ(dev->d_ops->read(dev, pos, buf, 4096), 0);
		T_EQ(buf[0] | buf[4095], 0);
	}
	mp_obj_put(o);
	rig_fini(&r);
}

static void flush_failure_is_sticky(void)
{
	struct mp_pool_info pi;
	struct mp_obj *o;

	rig_init(&r, 2, 8 << 20);
	T_EQ(rig_open(&r), 0);
	T_EQ(alloc_one(r.pool, MP_MBLOCK, 8192, &o), 0);
	T_EQ(fill(o, 0, 8192, 1), 0);
	r.m[0].fail_flush = -EIO;
	T_EQ(commit(r.pool, o, 8192), -EIO);
	r.m[0].fail_flush = 0;
	T_EQ(commit(r.pool, o, 8192), -EROFS);
	mp_pool_info(r.pool, &pi);
	T_OK(pi.pi_is_rdonly && pi.pi_fault[0]);
	mp_obj_put(o);
	rig_fini(&r);
}

static void foreign_device_is_refused_and_untouched(void)
{
	rig_init(&r, 1, 8 << 20);
	memset(r.m[0].now, 'F', 4096);
	r.m[0].writes = 0;
	T_EQ(rig_open(&r), -EINVAL);
	T_EQ(r.m[0].writes, 0);
	r.pool = NULL;
	rig_fini(&r);
}

static void any_superblock_copy_is_enough(void)
{
	u32 i;

	for (i = 0; i < 3; i++) {
		rig_init(&r, 2, 8 << 20);
		r.m[0].now[i == 0 ? 300 : i == 1 ? (4 << 20) + 300 : (8 << 20) - 4096 + 300] ^= 1;
		T_EQ(rig_open(&r), 0);
		rig_reopen(&r, 0);
		rig_fini(&r);
	}
}

/* a damaged copy 0 that says another uuid disowns nothing: what it says is damaged too */
static void damage_of_the_first_bytes_leaves_the_other_copies(void)
{
	u32 i;

	for (i = 8; i < 76; i++) {
		rig_init(&r, 2, 8 << 20);
		r.m[i & 1].now[i] ^= 1;
		T_EQ(rig_open(&r), 0);
		rig_reopen(&r, 0);
		rig_fini(&r);
	}
}

static void stale_missing_and_duplicate_members_are_refused(void)
{
	struct mp_dev *dup[3];
	u8 *old = malloc(8 << 20);
	int k;

	for (k = 0; k < 2; k++) {
		rig_init(&r, 2, 8 << 20);
		T_EQ(rig_open(&r), 0);
		memcpy(old, r.m[k].now, 8 << 20);
		rig_reopen(&r, 0);
		T_EQ(mp_pool_close(r.pool), 0);
		r.pool = NULL;
		T_EQ(mp_pool_open(r.dev, 1, 0, &r.pool), -ENODEV);
		dup[0] = dup[1] = r.dev[0];
		dup[2] = r.dev[1];
		T_EQ(mp_pool_open(dup, 3, 0, &r.pool), -ENOTUNIQ);
		memcpy(r.m[k].now, old, 8 << 20);
		T_EQ(rig_open(&r), -ESTALE);
		rig_fini(&r);
	}
	free(old);
}

static void shrunk_device_is_refused(void)
{
	rig_init(&r, 1, 8 << 20);
	r.m[0].dev.d_size -= 4096;
	T_EQ(rig_open(&r), -EUCLEAN);
	rig_fini(&r);
}

static void larger_sectors_do_or_are_refused(void)
{
	u64 writes;

	rig_init(&r, 1, 8 << 20);
	T_EQ(rig_open(&r), 0);
	add_objs(&r, 3);
	T_EQ(mp_pool_close(r.pool), 0);
	r.pool = NULL;
	writes = r.m[0].writes;
	r.m[0].dev.d_sector = 2 * MP_BLOCK;
	T_EQ(rig_open(&r), -EOPNOTSUPP);
	T_EQ(r.m[0].writes, writes);
	r.m[0].dev.d_sector = MP_BLOCK;
	T_EQ(rig_open(&r), 0);
	T_EQ(count_objs(&r), 3);
	add_objs(&r, 1);
	rig_fini(&r);
}

/* power cuts after every write of create and destroy: a pool or none */
static void create_and_destroy_cut_anywhere_leave_a_pool_or_none(void)
{
	static const u32 mclass[2] = { MP_CAPACITY, MP_STAGING };
	struct mp_create c = { .mc_name = "unit", .mc_ndevs = 2, .mc_dev = r.dev,
			       .mc_mclass = mclass };
	int rc, k, seen_none = 0, seen_pool = 0;

	for (k = 0; k < 40; k++) {
		rig_init(&r, 2, 4 << 20);
		T_EQ(mp_pool_destroy(r.dev, 2), 0);
		r.m[k & 1].fail_write = -EIO;
		r.m[k & 1].fail_after = (u64)k / 2;
		rc = mp_pool_create(&c);
		mem_cut(&r.m[0]);
		mem_cut(&r.m[1]);
		r.pool = NULL;
		rc = rig_open(&r);
		T_OK(rc == 0 || rc == -ENOENT || rc == -EINVAL);
		seen_pool += !rc;
		seen_none += rc != 0;
		if (!rc)
			T_EQ(mp_pool_close(r.pool), 0);
		r.pool = NULL;
		rig_fini(&r);
		rig_init(&r, 2, 4 << 20);
		r.m[k & 1].fail_write = -EIO;
		r.m[k & 1].fail_after = (u64)k / 2;
		mp_pool_destroy(r.dev, 2);
		mem_cut(&r.m[0]);
		mem_cut(&r.m[1]);
		rc = rig_open(&r);
		T_OK(rc == 0 || rc == -ENOENT || rc == -EINVAL);
		if (!rc)
			T_EQ(mp_pool_close(r.pool), 0);
		r.pool = NULL;
		T_OK(mp_pool_destroy(r.dev, 2) == 0 || rc == -EINVAL);
		rig_fini(&r);
	}
	T_OK(seen_none && seen_pool);
}

struct seen {
	u64 findings, lines, extents, last;
	u32 slot;
};

static void on_finding(void *arg, const struct mp_finding *f)
{
	printf("# MP%04d %s\n", f->fi_id, f->fi_text);
	((struct seen *)arg)->findings++;
}

static void on_line(void *arg, const char *line)
{
	T_OK(line[strlen(line) - 1] == '\n');
	((struct seen *)arg)->lines++;
}

static void on_extent(void *arg, const struct mp_map_extent *e)
{
	struct seen *s = arg;

	if (e->me_slot != s->slot)
		s->last = 0;
	s->slot = e->me_slot;
	T_OK(e->me_off >= s->last);
	s->last = e->me_off + e->me_len;
	s->extents++;
}

static void verify_dump_and_map_read_only(void)
{
	struct seen s = { 0 };
	struct mp_op op;
	struct mp_obj *o;
	u64 damage = 9, pos, n;
	struct mp_dev *dev;

	rig_init(&r, 2, 8 << 20);
	T_EQ(rig_open(&r), 0);
	T_EQ(mp_root_create(r.pool, "root", MP_STAGING, 65536, 1), 0);
	T_EQ(alloc_one(r.pool, MP_MBLOCK, 8192, &o), 0);
	T_EQ(fill(o, 0, 8192, 0), 0);
	op = (struct mp_op){ .op_type = MP_OP_COMMIT, .op_flags = MP_OPF_CRC, .op_obj = o,
			     .op_length = 8192 };
	{
		static const u8 zero[8192];

		op.op_crc = mp_csum(zero, 8192);
	}
	T_EQ(mp_pool_batch(r.pool, &op, 1), 0);
	T_EQ(mp_obj_map(o, 0, 8192, &dev, &pos, &n), 0);
	mp_obj_put(o);
	T_EQ(mp_pool_close(r.pool), 0);
	r.pool = NULL;
	r.m[0].writes = r.m[1].writes = 0;
	T_EQ(mp_verify(r.dev, 2, MP_VERIFY_DATA, on_finding, &s, &damage), 0);
	T_EQ(damage, 0);
	T_EQ(s.findings, 0);
	T_EQ(mp_dump(r.dev, 2, on_line, &s), 0);
	T_OK(s.lines > 12);
	T_EQ(mp_map(r.dev, 2, on_extent, &s), 0);
	T_EQ(s.extents, 2 * 5 + 3);
	((struct mem *)dev)->now[pos + 5000] = 1;
	T_EQ(mp_verify(r.dev, 2, MP_VERIFY_DATA, on_finding, &s, &damage), 0);
	T_EQ(damage, 1);
	T_EQ(r.m[0].writes + r.m[1].writes, 0);
	rig_fini(&r);
}

static void roots_are_atomic_and_ordered(void)
{
	char name[32];
	u64 id[2];

	rig_init(&r, 2, 8 << 20);
	T_EQ(rig_open(&r), 0);
	T_EQ(mp_root_create(r.pool, "b", MP_CAPACITY, 65536, 1), 0);
	T_EQ(mp_root_create(r.pool, "a", MP_CAPACITY, 65536, 1), 0);
	T_EQ(mp_root_create(r.pool, "a", MP_CAPACITY, 65536, 1), -EEXIST);
	rig_reopen(&r, 1);
	T_EQ(mp_root_next(r.pool, "", name, id), 0);
	T_STREQ(name, "a");
	T_EQ(mp_root_next(r.pool, name, name, id), 0);
	T_STREQ(name, "b");
	T_EQ(mp_root_delete(r.pool, "a"), 0);
	T_EQ(mp_root_get(r.pool, "a", id), -ENOENT);
	rig_reopen(&r, 1);
	T_EQ(mp_root_get(r.pool, "a", id), -ENOENT);
	T_EQ(mp_root_get(r.pool, "b", id), 0);
	rig_fini(&r);
}

/* its logs go with a container only: what was left of it could not be removed */
static void log_of_a_container_is_not_deleted_alone(void)
{
	struct mp_op del = { .op_type = MP_OP_DELETE };
	struct mp_obj *o;
	u64 id[2];

	rig_init(&r, 2, 8 << 20);
	T_EQ(rig_open(&r), 0);
	T_EQ(mp_root_create(r.pool, "a", MP_CAPACITY, 65536, 1), 0);
	T_EQ(mp_root_get(r.pool, "a", id), 0);
	T_EQ(delete_id(r.pool, id[1]), -EINVAL);
	T_EQ(mp_obj_open(r.pool, id[0], &o), 0);
	del.op_obj = o;
	T_EQ(mp_pool_batch(r.pool, &del, 1), -EINVAL);
	mp_obj_put(o);
	T_EQ(count_objs(&r), 2);
	T_EQ(mp_root_delete(r.pool, "a"), 0);
	T_EQ(count_objs(&r), 0);
	/* one that has no container */
	T_EQ(alloc_one(r.pool, MP_MLOG, 65536, &o), 0);
	del.op_obj = o;
	T_EQ(mp_pool_batch(r.pool, &del, 1), 0);
	mp_obj_put(o);
	rig_fini(&r);
}

static void mlog_records_come_back_and_erase_forgets(void)
{
	static u8 big[1 << 20], back[1 << 20];
	struct mp_vec v = { big, 100 }, two[2] = { { big, MP_MLREC_MAX }, { big, 1 } };
	struct mp_mlog *l;
	u64 id[2], pos = 0;
	size_t len;
	int i;

	rig_init(&r, 2, 16 << 20);
	T_EQ(rig_open(&r), 0);
	T_EQ(mp_root_create(r.pool, "x", MP_CAPACITY, 3 << 20, 1), 0);
	T_EQ(mp_root_get(r.pool, "x", id), 0);
	T_EQ(mp_mlog_open(r.pool, id[0], &l), 0);
	T_EQ(mp_mlog_append(l, &v, 0, true), -EINVAL);
	T_EQ(mp_mlog_append(l, two, 2, true), -EINVAL);
	two[0].v_len = ~(size_t)0;	/* with the other one: nothing */
	T_EQ(mp_mlog_append(l, two, 2, true), -EINVAL);
	T_OK(mp_mlog_is_empty(l));
	for (i = 0; i < 1000; i++) {
		memset(big, i, sizeof(big));
		v.v_len = (size_t)(i + 1);
		T_EQ(mp_mlog_append(l, &v, 1, i % 100 == 99), 0);
	}
	v.v_len = sizeof(big);
	T_EQ(mp_mlog_append(l, &v, 1, true), 0);
	v.v_len = 10;
	T_EQ(mp_mlog_append(l, &v, 1, false), 0);
	mp_mlog_close(l);
	rig_reopen(&r, 1);
	T_EQ(mp_mlog_open(r.pool, id[0], &l), 0);
	for (i = 0; i < 1000; i++) {
		T_EQ(mp_mlog_read(l, &pos, back, sizeof(back), &len), 0);
		T_EQ(len, i + 1);
		T_EQ(back[len - 1], (u8)i);
	}
	T_EQ(mp_mlog_read(l, &pos, back, 5, &len), -EOVERFLOW);
	T_EQ(mp_mlog_read(l, &pos, back, sizeof(back), &len), 0);
	T_EQ(len, sizeof(big));
	T_EQ(mp_mlog_read(l, &pos, back, sizeof(back), &len), -ENODATA);
	T_EQ(mp_mlog_erase(l), 0);
	T_OK(mp_mlog_is_empty(l));
	T_EQ(mp_mlog_append(l, &v, 1, true), 0);
	T_EQ(mp_mlog_seal(l), 0);
	T_EQ(mp_mlog_append(l, &v, 1, true), -EROFS);
	mp_mlog_close(l);
	rig_reopen(&r, 1);
	T_EQ(mp_mlog_open(r.pool, id[0], &l), 0);
	pos = 0;
	T_EQ(mp_mlog_read(l, &pos, back, sizeof(back), &len), 0);
	T_EQ(len, 10);
	T_EQ(mp_mlog_read(l, &pos, back, sizeof(back), &len), -ENODATA);
	mp_mlog_close(l);
	rig_fini(&r);
}

/* ---- what is refused ------------------------------------------------------------------- */

/* And nothing is written. */
static void refused(const struct mp_create *c, int want)
{
	T_EQ(mp_pool_create(c), want);
	T_EQ(r.m[0].writes + r.m[1].writes, 0);
}

static u64 cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (u64)ts.tv_sec * 1000000000u + (u64)ts.tv_nsec;
}

/* Reads all of the log; how many records there are. */
static u32 log_read_all(struct mp_mlog *l)
{
	static u8 back[1 << 20];
	u64 pos = 0;
	size_t len;
	u32 n = 0;

	while (!mp_mlog_read(l, &pos, back, sizeof(back), &len))
		n++;
	return n;
}

/*
 * A frame is checked when it comes from the device, not for each of its records: ten times as many
 * in one frame are as cheap, each.
 */
static void mlog_frames_may_have_many_records(void)
{
	static u8 big[MP_MLREC_MAX];
	struct mp_vec v = { big, sizeof(big) };
	struct mp_mlog *l;
	u64 id[2], t[2];
	u32 i, k;

	rig_init(&r, 1, 32 << 20);
	T_EQ(rig_open(&r), 0);
	T_EQ(mp_root_create(r.pool, "x", MP_CAPACITY, 12 << 20, 1), 0);
	T_EQ(mp_root_get(r.pool, "x", id), 0);
	for (k = 0; k < 2; k++) {
		T_EQ(mp_mlog_open(r.pool, id[k], &l), 0);
		v.v_len = sizeof(big);	/* from then on a frame may be so long */
		T_EQ(mp_mlog_append(l, &v, 1, true), 0);
		v.v_len = 16;
		for (i = 0; i < 40000; i++)
			T_EQ(mp_mlog_append(l, &v, 1, !k && i % 400 == 399), 0);
		T_EQ(mp_mlog_sync(l), 0);
		t[k] = cpu_ns();
		T_EQ(log_read_all(l), 40001);
		t[k] = cpu_ns() - t[k];
		mp_mlog_close(l);
	}
	printf("# 40000 records in frames of 400: %llu us, in one: %llu\n", t[0] / 1000,
	       t[1] / 1000);
	T_OK(t[1] < 4 * t[0] + 100000000);
	rig_fini(&r);
}

static void what_no_pool_can_be_made_of_is_refused_and_untouched(void)
{
	static const char *const name[] = { NULL, "", ".x", "-x", "a/b", "a b", "\xc3\xa9" };
	static const u32 mclass[MP_SLOTS + 1];
	u32 odd[2] = { MP_STAGING, MP_STAGING };
	struct mp_create good = { .mc_name = "n", .mc_ndevs = 2, .mc_dev = r.dev,
				  .mc_mclass = mclass, .mc_label = "\xc3\xa9t\xc3\xa9" };
	struct mp_dev *many[MP_SLOTS + 1];
	struct mp_create c = good;
	struct mp_pool_info pi;
	char text[256];
	u32 i;

	r.n = 2;
	r.pool = NULL;
	for (i = 0; i < 2; i++) {
		mem_init(&r.m[i], 8 << 20);
		r.dev[i] = &r.m[i].dev;
	}
	for (i = 0; i < ARRAY_SIZE(name); i++) {
		c.mc_name = name[i];
		refused(&c, -EINVAL);
	}
	memset(text, 'n', sizeof(text));
	c = good;
	text[MP_LABEL_LEN] = 0;
	c.mc_label = text;
	refused(&c, -EINVAL);
	c.mc_label = "two\nlines";
	refused(&c, -EINVAL);
	c.mc_label = "\x7f";
	refused(&c, -EINVAL);
	c = good;
	text[MP_NAME_LEN] = 0;
	c.mc_name = text;
	refused(&c, -EINVAL);
	c = good;
	c.mc_ndevs = 0;
	refused(&c, -EINVAL);
	for (i = 0; i <= MP_SLOTS; i++)
		many[i] = r.dev[0];
	c.mc_dev = many;
	c.mc_ndevs = MP_SLOTS + 1;
	refused(&c, -EINVAL);
	c.mc_ndevs = MP_CLASS_DEVS + 1;
	refused(&c, -EINVAL);
	c = good;
	c.mc_mclass = odd;
	refused(&c, -EINVAL);
	odd[1] = MP_CLASSES;
	refused(&c, -EINVAL);
	c = good;
	c.mc_spare_pct[MP_STAGING] = MP_SPARE_MAX + 1;
	refused(&c, -EINVAL);
	c = good;
	r.m[1].dev.d_sector = 2 * MP_BLOCK;
	refused(&c, -EOPNOTSUPP);
	r.m[1].dev.d_sector = 512;
	r.m[1].dev.d_size = MP_MIN_DEV - 1;
	refused(&c, -EINVAL);
	r.m[1].dev.d_size = 8 << 20;
	T_EQ(mp_pool_create(&good), 0);
	T_EQ(rig_open(&r), 0);
	mp_pool_info(r.pool, &pi);
	T_STREQ(pi.pi_label, good.mc_label);
	rig_fini(&r);
}

/* Of two pools at once, or of one device twice, none is destroyed. */
static void what_is_not_one_pool_is_not_destroyed(void)
{
	static struct rig other;
	struct mp_dev *dev[MP_SLOTS + 1];

	rig_init(&r, 2, 8 << 20);
	rig_init(&other, 2, 8 << 20);
	for (u32 i = 0; i <= MP_SLOTS; i++)
		dev[i] = r.dev[i % 2];
	r.m[0].writes = r.m[1].writes = other.m[0].writes = 0;
	T_EQ(mp_pool_destroy(dev, MP_SLOTS + 1), -EINVAL);
	T_EQ(mp_pool_destroy(dev, 3), -ENOTUNIQ);
	dev[2] = other.dev[0];
	T_EQ(mp_pool_destroy(dev, 3), -EINVAL);
	T_EQ(r.m[0].writes + r.m[1].writes + other.m[0].writes, 0);
	T_EQ(rig_open(&r), 0);
	T_EQ(rig_open(&other), 0);
	rig_fini(&r);
	rig_fini(&other);
}

/* a device of any size, on which little is written: blocks that are not zero */
struct sparse {
	struct mp_dev dev;
	u64 off[512];
	u8 *block[512];
	u32 n;
};

static u8 *sparse_block(struct sparse *sp, u64 off, bool is_write)
{
	u32 i;

	for (i = 0; i < sp->n; i++)
		if (sp->off[i] == off)
			return sp->block[i];
	if (!is_write)
		return NULL;
	T_OK(sp->n < ARRAY_SIZE(sp->off));
	sp->off[sp->n] = off;
	sp->block[sp->n] = malloc(MP_BLOCK);
	return sp->block[sp->n++];
}

static int sparse_read(struct mp_dev *d, u64 off, void *buf, size_t len)
{
	u8 *p, *out = buf;

	for (; len; len -= MP_BLOCK, off += MP_BLOCK, out += MP_BLOCK) {
		p = sparse_block((struct sparse *)d, off, false);
		if (p)
			memcpy(out, p, MP_BLOCK);
		else
			memset(out, 0, MP_BLOCK);
	}
	return 0;
}

static int sparse_write(struct mp_dev *d, u64 off, const void *buf, size_t len, unsigned int flags)
{
	const u8 *p = buf;

	(void)flags;
	for (; len; len -= MP_BLOCK, off += MP_BLOCK, p += MP_BLOCK)
		memcpy(sparse_block((struct sparse *)d, off, true), p, MP_BLOCK);
	return 0;
}

static int sparse_flush(struct mp_dev *d)
{
	(void)d;
	return 0;
}

static const struct mp_dev_ops sparse_ops = {
	.read = sparse_read, .write = sparse_write, .flush = sparse_flush,
};

/* of one that has @bytes of capacity and @staging: has the log room for objects of @obj? */
static u64 log_of_a_pool(u64 bytes, u64 staging, u64 obj, bool *has_room)
{
	static struct sparse sp[2];
	static const u32 mclass[2] = { MP_CAPACITY, MP_STAGING };
	struct mp_dev *dev[2] = { &sp[0].dev, &sp[1].dev };
	struct mp_create c = { .mc_name = "large", .mc_ndevs = 2, .mc_dev = dev,
			       .mc_mclass = mclass };
	struct mp_pool *pool;
	u64 size;
	u32 i;

	for (i = 0; i < 2; i++) {
		sp[i].n = 0;
		sp[i].dev = (struct mp_dev){ .d_ops = &sparse_ops, .d_sector = 512,
					     .d_path = "sparse", .d_size = i ? staging : bytes };
	}
	T_EQ(mp_pool_create(&c), 0);
	T_EQ(mp_pool_open(dev, 2, 0, &pool), 0);
	size = pool->p_md.md_bytes;
	mutex_lock(&pool->p_lock);
	*has_room = !mp_md_room(pool, (bytes + staging) / obj * 72);
	mutex_unlock(&pool->p_lock);
	T_EQ(mp_pool_close(pool), 0);
	for (i = 0; i < 2; i++)
		while (sp[i].n)
			free(sp[i].block[--sp[i].n]);
	return size;
}

/* and is not larger than it need be */
static void the_log_grows_with_the_media(void)
{
	const u64 mib = 1ull << 20, gib = 1ull << 30, tib = 1ull << 40;
	bool has_room;

	T_EQ(log_of_a_pool(gib, gib / 4, mib, &has_room), 4 * mib);
	T_OK(has_room);
	T_EQ(log_of_a_pool(gib / 2, gib / 4, mib, &has_room), 4 * mib);
	T_OK(has_room);
	T_EQ(log_of_a_pool(4 * tib, tib, mib, &has_room), 640 * mib);
	T_OK(has_room);
	T_EQ(log_of_a_pool(30 * tib, tib, 4 * mib, &has_room), gib);
	T_OK(has_room);
	T_EQ(log_of_a_pool(100 * tib, 10 * tib, 8 * mib, &has_room), gib);
	T_OK(has_room);
	T_EQ(log_of_a_pool(400 * tib, 32 * tib, 32 * mib, &has_room), gib);
	T_OK(has_room);
}

/* staging, which has a copy, may be small beside capacity: an eighth of it is for both regions */
static void the_log_is_not_as_small_as_staging(void)
{
	const u64 mib = 1ull << 20, gib = 1ull << 30, tib = 1ull << 40;
	bool has_room;

	T_EQ(log_of_a_pool(tib / 2, 4 * gib, mib, &has_room), 64 * mib + 512 * (mib >> 10));
	T_OK(has_room);
	T_EQ(log_of_a_pool(tib, 64 * mib, 32 * mib, &has_room), 4 * mib);
	T_OK(has_room);
	T_EQ(log_of_a_pool(10 * tib, gib, 16 * mib, &has_room), 64 * mib);
	T_OK(has_room);
	T_EQ(log_of_a_pool(100 * tib, 100 * gib, 8 * mib, &has_room), gib);
	T_OK(has_room);
}

/* However much room there is: an open reads all of it. */
static void a_long_log_is_written_anew(void)
{
	struct mp_create c = { .mc_name = "long", .mc_ndevs = 1, .mc_mclass = (u32[1]){ 0 } };
	static struct sparse sp;
	struct mp_dev *dev = &sp.dev;
	struct mp_obj_info oi;
	struct mp_mdlog *md;
	struct mp_pool *pool;
	struct mp_obj *o;
	u64 epoch;
	u32 i;

	sp.dev = (struct mp_dev){ .d_ops = &sparse_ops, .d_sector = 512, .d_path = "sparse",
				  .d_size = 1ull << 40 };
	c.mc_dev = &dev;
	T_EQ(mp_pool_create(&c), 0);
	T_EQ(mp_pool_open(&dev, 1, 0, &pool), 0);
	md = &pool->p_md;
	T_EQ(md->md_bytes, 128 << 20);
	epoch = md->md_epoch;
	/* as if frames had filled it up to there, with much that is state, with little */
	for (i = 0; i < 3; i++) {
		md->md_tail = (64 << 20) + (i ? MP_BLOCK : 0);
		pool->p_ckpt += i == 1 ? 17 << 20 : 0;
		T_EQ(alloc_one(pool, MP_MBLOCK, 65536, &o), 0);
		T_EQ(fill(o, 0, MP_BLOCK, 'x'), 0);
		T_EQ(commit(pool, o, MP_BLOCK), 0);
		mp_obj_put(o);
		pool->p_ckpt -= i == 1 ? 17 << 20 : 0;
		T_EQ(md->md_epoch, epoch + (i == 2));
	}
	T_OK(md->md_tail < 1 << 20);
	T_EQ(mp_pool_close(pool), 0);
	T_EQ(mp_pool_open(&dev, 1, 0, &pool), 0);
	T_EQ(pool->p_md.md_epoch, epoch + 1);
	T_EQ(mp_obj_list(pool, 0, 0, &oi, 1), 1);
	T_EQ(pool->p_nobjs, 3);
	T_EQ(mp_pool_close(pool), 0);
	while (sp.n)
		free(sp.block[--sp.n]);
}

/* ---- pieces ---- */

#define PIECE	(64u << 10)

/* of the objects in @held the one at @pos of device @slot; NULL: none is left there */
static struct mp_obj **held_at(struct mp_obj **held, u32 n, u32 slot, u64 pos)
{
	u64 at, contig;
	u32 i, s;

	for (i = 0; i < n; i++)
		if (held[i] && !mp_obj_map_slot(held[i], 0, PIECE, &s, &at, &contig) && s == slot &&
		    at == pos && contig == PIECE)
			return &held[i];
	return NULL;
}

/* INV-26 */
static void check_apart(const struct mp_obj *o)
{
	u64 off, pos, contig, end = 0;
	u32 slot, last = ~0u;

	for (off = 0; off < o->o_capacity; off += contig, last = slot, end = pos + contig) {
		T_EQ(mp_obj_map_slot(o, off, o->o_capacity - off, &slot, &pos, &contig), 0);
		T_OK(last == ~0u || last == slot || pos != end);
	}
	/* or it proves nothing */
	T_OK(last != o->o_extent[0].ex_slot);
}

/* all that is free: a piece on each device, one behind the other by address; in either order */
static void pieces_on_two_devices_do_not_meet(void)
{
	static const u32 both[2] = { MP_CAPACITY, MP_CAPACITY };
	struct mp_create c = { .mc_name = "unit", .mc_ndevs = 2, .mc_dev = r.dev,
			       .mc_mclass = both };
	static struct mp_obj *held[512];
	struct mp_obj *big, **one, **two;
	u32 n = 0, i, slot, tried = 0;
	u64 pos, contig;

	rig_init(&r, 2, 8 << 20);
	T_EQ(mp_pool_destroy(r.dev, 2), 0);
	T_EQ(mp_pool_create(&c), 0);
	T_EQ(rig_open(&r), 0);
	while (!alloc_one(r.pool, MP_MBLOCK, PIECE, &held[n]))
		T_OK(++n < ARRAY_SIZE(held) / 2);
	while (!alloc_one(r.pool, MP_MBLOCK, MP_BLOCK, &held[n]))
		T_OK(++n < ARRAY_SIZE(held));
	for (i = 0; i < n; i++) {
		if (!held[i] || mp_obj_map_slot(held[i], 0, PIECE, &slot, &pos, &contig))
			continue;
		one = &held[i];
		two = held_at(held, n, !slot, pos + PIECE);
		if (contig != PIECE || !two)
			continue;
		mp_obj_put(*one);
		mp_obj_put(*two);
		*one = *two = NULL;
		T_EQ(alloc_one(r.pool, MP_MBLOCK, 2 * PIECE, &big), 0);
		check_apart(big);
		/* in its place: the next two are all that is free again */
		*one = big;
		tried++;
	}
	T_OK(tried > 8);
	for (i = 0; i < n; i++)
		if (held[i])
			mp_obj_put(held[i]);
	rig_fini(&r);
}

int main(void)
{
	T_RUN(committed_mblock_survives_a_cut);
	T_RUN(where_a_write_failed_is_nobodys_space_until_the_next_open);
	T_RUN(where_a_write_failed_is_free_again_a_minute_later);
	T_RUN(uncommitted_mblock_leaves_no_trace);
	T_RUN(ids_are_never_reused);
	T_RUN(deleted_space_waits_for_the_last_handle);
	T_RUN(full_pool_fails_fast_and_deletes_make_room);
	T_RUN(the_stock_of_logs_goes_when_none_is_written);
	T_RUN(batch_is_all_or_nothing);
	T_RUN(append_object_never_exposes_foreign_bytes);
	T_RUN(flush_failure_is_sticky);
	T_RUN(foreign_device_is_refused_and_untouched);
	T_RUN(any_superblock_copy_is_enough);
	T_RUN(damage_of_the_first_bytes_leaves_the_other_copies);
	T_RUN(stale_missing_and_duplicate_members_are_refused);
	T_RUN(shrunk_device_is_refused);
	T_RUN(larger_sectors_do_or_are_refused);
	T_RUN(create_and_destroy_cut_anywhere_leave_a_pool_or_none);
	T_RUN(verify_dump_and_map_read_only);
	T_RUN(roots_are_atomic_and_ordered);
	T_RUN(log_of_a_container_is_not_deleted_alone);
	T_RUN(mlog_records_come_back_and_erase_forgets);
	T_RUN(mlog_frames_may_have_many_records);
	T_RUN(what_no_pool_can_be_made_of_is_refused_and_untouched);
	T_RUN(what_is_not_one_pool_is_not_destroyed);
	T_RUN(the_log_grows_with_the_media);
	T_RUN(the_log_is_not_as_small_as_staging);
	T_RUN(a_long_log_is_written_anew);
	T_RUN(pieces_on_two_devices_do_not_meet);
	return t_done();
}
