/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Bringing back a device whose first superblock was overwritten: from the
 * copies further on, of an active pool, taken whole; else nothing is written.
 */
#include "member.h"
#include "core_mem.h"

#define SIZE	(8ull << 20)

static struct rig r;
static struct mp_probe found;

/* a pool with three objects, closed; its first block overwritten */
static void lose(u64 size)
{
	rig_init(&r, 1, size);
	T_EQ(rig_open(&r), 0);
	add_objs(&r, 3);
	T_EQ(mp_pool_close(r.pool), 0);
	r.pool = NULL;
	memset(r.m[0].now, 0x5a, MP_BLOCK);
	r.m[0].writes = 0;
}

static void copy_damage(u32 copy)
{
	r.m[0].now[mp_sb_copy_addr(SIZE, copy) + 100] ^= 1;
}

static void nothing_is_written(int rc)
{
	T_EQ(mp_recover(r.dev[0], false, &found), rc);
	T_EQ(r.m[0].writes, 0);
	rig_fini(&r);
}

static void a_lost_first_block_comes_back(void)
{
	lose(SIZE);
	T_OK(rig_open(&r));
	r.m[0].writes = 0;
	T_EQ(mp_recover(r.dev[0], true, &found), 0);
	T_STREQ(found.pb_name, "unit");
	T_EQ(r.m[0].writes, 0);
	T_EQ(mp_recover(r.dev[0], false, &found), 0);
	mem_cut(&r.m[0]);
	T_EQ(rig_open(&r), 0);
	T_EQ(count_objs(&r), 3);
	rig_fini(&r);
}

static void either_copy_is_enough(void)
{
	u32 copy;

	for (copy = 1; copy <= 2; copy++) {
		lose(SIZE);
		copy_damage(copy);
		T_EQ(mp_recover(r.dev[0], false, &found), 0);
		T_EQ(rig_open(&r), 0);
		T_EQ(count_objs(&r), 3);
		rig_fini(&r);
	}
}

/* it is a member, but libblkid and so udev may not know it, and nothing else mends it */
static void a_damaged_first_copy_is_made_anew(void)
{
	static const u32 at[] = { 45, 300, 2000 };
	u32 i;

	for (i = 0; i < ARRAY_SIZE(at); i++) {
		rig_init(&r, 2, SIZE);
		T_EQ(rig_open(&r), 0);
		add_objs(&r, 3);
		T_EQ(mp_pool_rename(r.pool, "moved"), 0);
		r.m[1].now[at[i]] ^= 1;
		rig_reopen(&r, 0);
		T_EQ(mp_pool_close(r.pool), 0);
		r.pool = NULL;
		r.m[1].writes = 0;
		T_EQ(mp_probe(r.dev[1], &found), 0);
		T_EQ(found.pb_is_damaged, 1);
		T_EQ(mp_recover(r.dev[1], true, &found), 0);
		T_EQ(r.m[1].writes, 0);
		T_EQ(mp_recover(r.dev[1], false, &found), 0);
		T_STREQ(found.pb_name, "moved");
		T_EQ(found.pb_slot, 1);
		T_EQ(r.m[1].writes, 1);
		mem_cut(&r.m[1]);
		T_EQ(mp_probe(r.dev[1], &found), 0);
		T_EQ(found.pb_is_damaged, 0);
		T_EQ(rig_open(&r), 0);
		T_EQ(count_objs(&r), 3);
		rig_fini(&r);
	}
}

/*
 * A pool on half of the device, which grew to all of it. In the middle of that lies a copy of
 * another pool, a newer one, that had all of it before.
 */
static void grown_over_another(void)
{
	u32 mclass = MP_CAPACITY;
	struct mp_create c = { .mc_name = "unit", .mc_ndevs = 1, .mc_dev = r.dev,
			       .mc_mclass = &mclass, .mc_flags = MP_CREATE_FORCE };
	int i;

	rig_init(&r, 1, 2 * SIZE);
	for (i = 0; i < 9; i++) {
		T_EQ(rig_open(&r), 0);
		T_EQ(mp_pool_close(r.pool), 0);
	}
	r.m[0].dev.d_size = SIZE;
	T_EQ(mp_pool_create(&c), 0);
	r.m[0].dev.d_size = 2 * SIZE;
	T_EQ(rig_open(&r), 0);
	T_EQ(mp_pool_grow(r.pool), 0);
	add_objs(&r, 3);
	T_EQ(mp_pool_close(r.pool), 0);
	r.pool = NULL;
}

static void copies_of_a_former_pool_mislead_nobody(void)
{
	grown_over_another();
	r.m[0].now[45] ^= 1;
	T_EQ(rig_open(&r), 0);
	T_EQ(count_objs(&r), 3);
	rig_fini(&r);
	grown_over_another();
	memset(r.m[0].now, 0x5a, MP_BLOCK);
	T_EQ(mp_recover(r.dev[0], false, &found), 0);
	T_EQ(rig_open(&r), 0);
	T_EQ(count_objs(&r), 3);
	rig_fini(&r);
}

static void without_a_copy_nothing_is_written(void)
{
	lose(SIZE);
	copy_damage(1);
	copy_damage(2);
	nothing_is_written(-EINVAL);
}

static void a_destroyed_pool_does_not_come_back(void)
{
	u64 copy = mp_sb_copy_addr(SIZE, 1);
	static struct mp_sb sb;

	lose(SIZE);
	T_EQ(mp_sb_decode(r.m[0].now + copy, copy, &sb), 0);
	sb.sb_state = MP_SB_DESTROYED;
	sb.sb_gen++;
	mp_sb_encode(&sb, r.m[0].now + copy);
	nothing_is_written(-EINVAL);
}

/* the copy in its middle is where it was, and says how large the device was */
static void a_device_that_shrank_does_not_come_back(void)
{
	lose(SIZE + 16 * MP_BLOCK);
	r.m[0].dev.d_size -= MP_BLOCK;
	T_EQ(mp_sb_copy_addr(r.m[0].dev.d_size, 1), mp_sb_copy_addr(SIZE, 1));
	nothing_is_written(-EUCLEAN);
}

static void a_small_device_holds_no_pool(void)
{
	lose(SIZE);
	r.m[0].dev.d_size = 1u << 19;
	nothing_is_written(-EINVAL);
}

static void a_write_that_fails_is_said(void)
{
	lose(SIZE);
	r.m[0].fail_write = -EIO;
	T_EQ(mp_recover(r.dev[0], false, &found), -EIO);
	r.m[0].fail_write = 0;
	r.m[0].fail_flush = -EIO;
	T_EQ(mp_recover(r.dev[0], false, &found), -EIO);
	rig_fini(&r);
}

int main(void)
{
	T_RUN(a_lost_first_block_comes_back);
	T_RUN(either_copy_is_enough);
	T_RUN(a_damaged_first_copy_is_made_anew);
	T_RUN(copies_of_a_former_pool_mislead_nobody);
	T_RUN(without_a_copy_nothing_is_written);
	T_RUN(a_destroyed_pool_does_not_come_back);
	T_RUN(a_device_that_shrank_does_not_come_back);
	T_RUN(a_small_device_holds_no_pool);
	T_RUN(a_write_that_fails_is_said);
	return t_done();
}
