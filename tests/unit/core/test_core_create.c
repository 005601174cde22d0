/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A creation that is cut between three members.
 */
#include "core_mem.h"

static struct mp_dev_ops ops;
static u64 writes, cut_at;

static int cut_write(struct mp_dev *d, u64 off, const void *buf, size_t len, unsigned int flags)
{
	return ++writes > cut_at ? -EIO : mem_write(d, off, buf, len, flags);
}

/* The second copy of the metadata log is on the last member. */
static void cut_create_leaves_a_pool_or_none(void)
{
	static const u32 mclass[3] = { MP_CAPACITY, MP_CAPACITY, MP_STAGING };
	struct mem m[3];
	struct mp_dev *dev[3];
	struct mp_create c = { .mc_name = "cut", .mc_ndevs = 3, .mc_dev = dev, .mc_mclass =
			      mclass };
	struct mp_pool *pool;
	int i, rc, open_rc, is_done = 0;

	ops = mem_ops;
	ops.write = cut_write;
	for (cut_at = 0; !is_done; cut_at++) {
		u64 at = cut_at;

		for (i = 0; i < 3; i++) {
			mem_init(&m[i], 16 << 20);
			m[i].dev.d_ops = &ops;
			dev[i] = &m[i].dev;
		}
		writes = 0;
		is_done = !mp_pool_create(&c);
		cut_at = ~0ull;
		for (i = 0; i < 3; i++)
			mem_cut(&m[i]);
		open_rc = mp_pool_open(dev, 3, 0, &pool);
		if (!open_rc)
			T_EQ(mp_pool_close(pool), 0);
		rc = open_rc ? mp_pool_create(&c) : 0;
		if (rc)
			T_FAIL("cut after %llu writes: open says %d, create %d",
			       (unsigned long long)at, open_rc, rc);
		cut_at = at;
		for (i = 0; i < 3; i++)
			mem_fini(&m[i]);
	}
}

int main(void)
{
	T_RUN(cut_create_leaves_a_pool_or_none);
	return t_done();
}
