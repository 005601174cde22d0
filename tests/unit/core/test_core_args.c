/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Each check of an argument that the core makes itself, for every caller: in the kernel nothing is
 * between it and a user. By calls in which nothing else is wrong; tests/ablate.py refusals takes
 * the checks away one by one.
 */
#include "core.h"
#include "core_mem.h"

#define SIZE	(8ull << 20)

static struct rig r;

/* what a check further down would refuse as well says so in other words */
#define SAYS(words) do {							\
	T_OK(strstr(os_user_error()->oe_text, words));				\
	os_user_error_clear();							\
} while (0)

static void start(void)
{
	rig_init(&r, 1, SIZE);
	T_EQ(rig_open(&r), 0);
}

static void of_allocations(void)
{
	static const struct mp_alloc bad[] = {
		{ .al_kind = MP_MBLOCK - 1, .al_capacity = 4096 },
		{ .al_kind = MP_MLOG + 1, .al_capacity = 4096 },
		{ .al_kind = MP_MBLOCK, .al_capacity = 4096, .al_mclass = MP_CLASSES },
		{ .al_kind = MP_MBLOCK },
		{ .al_kind = MP_MBLOCK, .al_capacity = (1ull << 44) + 4096 },
	};
	static struct mp_alloc many[MP_BATCH_MAX + 1];
	static struct mp_obj *o[MP_BATCH_MAX + 1];
	u32 i;

	start();
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		T_EQ(mp_obj_alloc(r.pool, &bad[i], 1, o), -EINVAL);
	for (i = 0; i <= MP_BATCH_MAX; i++)
		many[i] = (struct mp_alloc){ .al_kind = MP_MBLOCK, .al_capacity = 4096 };
	T_EQ(mp_obj_alloc(r.pool, many, 0, o), -EINVAL);
	T_EQ(mp_obj_alloc(r.pool, many, MP_BATCH_MAX + 1, o), -EINVAL);
	rig_fini(&r);
}

static void of_batches(void)
{
	static struct mp_op many[MP_BATCH_MAX + 1];
	struct mp_op op = { .op_type = MP_OP_COMMIT - 1 };
	struct mp_obj *o, *log;
	struct mp_obj_info oi;
	u32 i;

	start();
	T_EQ(alloc_one(r.pool, MP_MBLOCK, 4096, &o), 0);
	T_EQ(alloc_one(r.pool, MP_MLOG, 1 << 20, &log), 0);
	op.op_obj = o;
	T_EQ(mp_pool_batch(r.pool, &op, 1), -EINVAL);
	SAYS("operation type");
	/* what only the core itself asks of a log */
	op = (struct mp_op){ .op_type = 100, .op_obj = log, .op_length = 9 };
	T_EQ(mp_pool_batch(r.pool, &op, 1), -EINVAL);
	SAYS("operation type");
	for (i = 0; i <= MP_BATCH_MAX; i++)
		many[i] = (struct mp_op){ .op_type = MP_OP_DELETE, .op_id = 12345 };
	T_EQ(mp_pool_batch(r.pool, many, 0), -EINVAL);
	T_EQ(mp_pool_batch(r.pool, many, MP_BATCH_MAX + 1), -EINVAL);
	T_EQ(fill(o, 0, 4096, 1), 0);
	T_EQ(commit(r.pool, o, 4096), 0);
	T_EQ(commit(r.pool, o, 0), -EINVAL);
	mp_obj_info(o, &oi);
	T_EQ(oi.oi_length, 4096);
	mp_obj_put(log);
	mp_obj_put(o);
	rig_fini(&r);
}

static void of_roots(void)
{
	static const char *const bad[] = {
		"", "a\x7f", "a\x01", "0123456789012345678901234567890-",
	};
	u64 id[2];
	u32 i;

	start();
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		T_EQ(mp_root_create(r.pool, bad[i], 0, 1 << 20, 0), -EINVAL);
		T_EQ(mp_root_get(r.pool, bad[i], id), -EINVAL);
	}
	T_EQ(mp_root_create(r.pool, "a\xe9", 0, 1 << 20, 0), 0);
	rig_fini(&r);
}

/* also a place to read at that no read has returned */
static void of_logs(void)
{
	static const u64 bad[] = {
		8,				/* in the header */
		MP_FRAME_HDR + 4,		/* no record begins there */
		MP_FRAME_HDR + 8 + 8 + 8,	/* behind the last one */
		2ull << 24,			/* in the middle of the second frame */
	};
	static u8 buf[2 * MP_BLOCK];
	struct mp_vec v = { buf, 8 }, long_one = { buf, sizeof(buf) };
	/* 8 bytes, modulo 2^64 */
	struct mp_vec wrap[2] = { { buf, (size_t)1 << 63 }, { buf, ((size_t)1 << 63) + 8 } };
	struct mp_mlog *log;
	struct mp_obj *o;
	size_t len;
	u64 pos;
	u32 i;

	start();
	T_EQ(alloc_one(r.pool, MP_MLOG, 1 << 20, &o), 0);
	T_EQ(mp_mlog_open(r.pool, mp_obj_id(o), &log), 0);
	T_EQ(mp_mlog_append(log, wrap, 2, true), -EINVAL);
	T_EQ(mp_mlog_append(log, &v, 1, true), 0);
	T_EQ(mp_mlog_append(log, &long_one, 1, true), 0);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		pos = bad[i];
		T_EQ(mp_mlog_read(log, &pos, buf, sizeof(buf), &len), i == 3 ? -EUCLEAN : -EINVAL);
	}
	pos = 0;
	T_EQ(mp_mlog_read(log, &pos, buf, sizeof(buf), &len), 0);
	T_EQ(len, 8);
	mp_mlog_close(log);
	mp_obj_put(o);
	rig_fini(&r);
}

static void of_creations(void)
{
	static const u32 capacity = MP_CAPACITY, none = MP_CLASSES;
	struct mp_create c = { .mc_name = "args", .mc_ndevs = 1, .mc_dev = r.dev,
			       .mc_flags = MP_CREATE_FORCE };

	rig_init(&r, 1, SIZE);
	c.mc_mclass = &none;
	T_EQ(mp_pool_create(&c), -EINVAL);
	SAYS("mem: class 2");
	c.mc_mclass = &capacity;
	c.mc_spare_pct[0] = 91;
	T_EQ(mp_pool_create(&c), -EINVAL);
	c.mc_spare_pct[0] = 0;
	r.m[0].dev.d_sector = 2 * MP_BLOCK;
	T_EQ(mp_pool_create(&c), -EOPNOTSUPP);
	r.m[0].dev.d_sector = 512;
	r.m[0].dev.d_size = MP_MIN_DEV - 4096;
	T_EQ(mp_pool_create(&c), -EINVAL);
	r.m[0].dev.d_size = (1ull << 59) + 4096;
	T_EQ(mp_pool_create(&c), -EINVAL);
	r.m[0].dev.d_size = SIZE;
	T_EQ(mp_pool_create(&c), 0);
	rig_fini(&r);
}

static void of_opens(void)
{
	rig_init(&r, 1, SIZE);
	T_EQ(mp_pool_open(r.dev, 1, ~MP_OPEN_RDONLY, &r.pool), -EINVAL);
	T_OK(!r.pool);
	rig_fini(&r);
}

static void of_changes(void)
{
	static const u32 capacity = MP_CAPACITY, none = MP_CLASSES;
	struct mp_dev *dev;
	struct mem more;

	start();
	mem_init(&more, SIZE);
	dev = &more.dev;
	T_EQ(mp_pool_add_devs(r.pool, &dev, &capacity, 0, 0), -EINVAL);
	T_EQ(mp_pool_add_devs(r.pool, &dev, &none, 1, 0), -EINVAL);
	SAYS("mem: class 2");
	T_EQ(mp_pool_add_devs(r.pool, &dev, &capacity, 1, 1u << 31), -EINVAL);
	r.m[0].dev.d_size = (1ull << 59) + 4096;
	T_EQ(mp_pool_grow(r.pool), -EINVAL);
	r.m[0].dev.d_size = SIZE;
	T_EQ(mp_pool_add_devs(r.pool, &dev, &capacity, 1, 0), 0);
	T_EQ(mp_pool_close(r.pool), 0);
	r.pool = NULL;
	mem_fini(&more);
	rig_fini(&r);
}

/* where there cannot be a pool nothing is looked for */
static void of_recoveries(void)
{
	struct mp_probe pb;
	struct mem m;

	mem_init(&m, 1 << 20);
	m.dev.d_sector = 2 * MP_BLOCK;
	T_EQ(mp_recover(&m.dev, true, &pb), -EINVAL);
	m.dev.d_sector = 512;
	m.dev.d_size = 4096;
	T_EQ(mp_recover(&m.dev, true, &pb), -EINVAL);
	T_EQ(m.bytes_read, 0);
	mem_fini(&m);
}

int main(void)
{
	T_RUN(of_allocations);
	T_RUN(of_batches);
	T_RUN(of_roots);
	T_RUN(of_logs);
	T_RUN(of_creations);
	T_RUN(of_opens);
	T_RUN(of_changes);
	T_RUN(of_recoveries);
	return t_done();
}
