/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Files that grow while their pool is open: steps that fail, members that share a file system. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core.h"
#include "crash/sim.h"
#include "harness.h"
#include "omf.h"
#include "user.h"

#define MiB	(1ull << 20)
#define SIZE	(16 * MiB)

static struct sim sim;
static struct mpool *mp;
static struct mpool_obj *obj[8];
static unsigned nobj;

/* A pool of one file, which may become four times as large. */
static void begin(void)
{
	struct mpool_dev_spec dev = { .path = "f", .mclass = MPOOL_CAPACITY, .size = SIZE };
	struct mpool_create_opts c = MPOOL_CREATE_OPTS_INIT;
	struct mpool_open_opts o = MPOOL_OPEN_OPTS_INIT;

	sim_init(&sim);
	sim.s_has_holes = true;
	c.name = "sim";
	c.devs = &dev;
	c.ndevs = 1;
	c.provider = o.provider = &sim.s_prov;
	c.grow_max = 4 * SIZE;
	o.io = "sync";
	T_EQ(mpool_create("./sim", &c), 0);
	T_EQ(mpool_open("./sim", &o, &mp), 0);
}

static void end(void)
{
	while (nobj)
		mpool_obj_close(obj[--nobj]);
	mpool_close(mp);
	sim_fini(&sim);
}

static int alloc(uint32_t kind, uint64_t bytes)
{
	struct mpool_alloc req = { .kind = kind, .mclass = MPOOL_CAPACITY,
				   .capacity = bytes };
	int rc = mpool_alloc(mp, &req, 1, &obj[nobj]);

	nobj += !rc;
	return rc;
}

/* Of the file and of the member are the same. */
static uint64_t bytes(void)
{
	struct mpool_dev_info di;

	T_EQ(mpool_dev_info(mp, 0, &di), 0);
	T_EQ(sim.s_dev[0].d_size, di.size);
	return di.size;
}

static void a_step_that_fails_is_taken_back(void)
{
	uint64_t room;

	begin();
	room = sim.s_room;
	sim.s_room = 0;
	for (int i = 0; i < 4; i++) {
		T_EQ(alloc(MPOOL_MBLOCK, SIZE), -ENOSPC);
		T_EQ(bytes(), SIZE);
	}
	sim.s_room = room;
	T_EQ(alloc(MPOOL_MBLOCK, SIZE), 0);
	T_OK(bytes() > SIZE);
	T_OK(mpl_user(mp)->us_set.st_core[0]->d_flags & MP_DEV_ZEROED);
	end();
}

static void files_of_a_pool_that_stopped_stay(void)
{
	begin();
	sim.s_fault = (struct sim_fault){ .f_kind = FAULT_FLUSH, .f_at = 1, .f_is_sticky = true };
	T_OK(alloc(MPOOL_APPEND, MiB) < 0);
	sim.s_fault.f_kind = FAULT_NONE;
	for (int i = 0; i < 4; i++) {
		T_EQ(alloc(MPOOL_MBLOCK, SIZE), -EROFS);
		T_EQ(bytes(), SIZE);
	}
	end();
}

static void a_step_is_of_whole_blocks(void)
{
	begin();
	T_EQ(alloc(MPOOL_MBLOCK, SIZE + 1), 0);
	T_EQ(bytes() % MiB, 0);
	T_EQ(alloc(MPOOL_MBLOCK, SIZE + 1), 0);
	T_OK(mpl_user(mp)->us_set.st_core[0]->d_flags & MP_DEV_ZEROED);
	end();
}

/* ---- files ---- */

static char base[256], pool[300];

static void make(const struct mpool_dev_spec *dev, unsigned n, uint64_t max)
{
	struct mpool_create_opts c = MPOOL_CREATE_OPTS_INIT;
	const char *tmp = getenv("TMPDIR");

	snprintf(base, sizeof(base), "%s/mpl_grow.XXXXXX", tmp ? tmp : "/tmp");
	T_OK(mkdtemp(base) != NULL);
	snprintf(pool, sizeof(pool), "%s/pool", base);
	c.devs = dev;
	c.ndevs = n;
	c.grow_max = max;
	T_EQ(mpool_create(pool, &c), 0);
	T_EQ(mpool_open(pool, NULL, &mp), 0);
}

static void gone(void)
{
	T_EQ(mpool_close(mp), 0);
	T_EQ(mpool_destroy(pool, NULL), 0);
	T_EQ(rmdir(base), 0);
}

static uint64_t room_of(struct statvfs *fs)
{
	T_EQ(statvfs(base, fs), 0);
	return (uint64_t)fs->f_bavail * fs->f_frsize;
}

/* What lies on one file system is promised once. */
static void members_share_what_is_below(void)
{
	const struct mpool_dev_spec dev[2] = {
		{ .mclass = MPOOL_CAPACITY, .size = SIZE },
		{ .mclass = MPOOL_STAGING, .size = SIZE },
	};
	struct mpool_info in;
	struct statvfs fs;
	uint64_t room, sum;
	int tries = 0;

	make(dev, 2, 1ull << 50);
	/* others may write there */
	do {
		room = room_of(&fs);
		T_EQ(mpool_info(mp, &in), 0);
	} while (room != room_of(&fs) && ++tries < 100);
	sum = in.cls[0].growable + in.cls[1].growable + in.cls[0].free + in.cls[1].free;
	T_OK(sum <= room && sum + 4 * MiB > room);
	T_EQ(in.cls[0].growable, in.cls[1].growable);
	gone();
}

/* Objects of 256 KiB fill what the file may become; before, the log of it takes no space. */
static void the_log_has_room_for_what_it_may_become(void)
{
	static const uint64_t max[] = { 64 * MiB, 1ull << 40, 1ull << 50, MPOOL_GROW_AUTO };
	const struct mpool_dev_spec dev = { .mclass = MPOOL_CAPACITY, .size = 64 * MiB };
	uint64_t most, log, taken;
	struct mpool_info in;
	struct statvfs fs;
	struct stat st;

	for (unsigned i = 0; i < 4; i++) {
		make(&dev, 1, max[i]);
		room_of(&fs);
		taken = stat(pool, &st) ? 0 : (uint64_t)st.st_blocks * 512;
		most = max[i] == MPOOL_GROW_AUTO ? (uint64_t)fs.f_blocks * fs.f_frsize : max[i];
		log = mpl_user(mp)->us_core->p_sb->sb_md_bytes;
		T_OK(log >= MiB && (log >= most / (256 << 10) * 73 || log == MP_MD_MAX));
		T_EQ(fstat(mpl_user(mp)->us_set.st_dev[0]->md_vdev.fd, &st), 0);
		taken += (uint64_t)st.st_blocks * 512;
		T_OK(taken < 3 * MiB);
		T_EQ(mpool_info(mp, &in), 0);
		T_OK(in.cls[MPOOL_CAPACITY].total + 4 * MiB > 64 * MiB);
		T_OK((uint64_t)st.st_size <= max[i]);
		gone();
	}
}

int main(void)
{
	T_RUN(a_step_that_fails_is_taken_back);
	T_RUN(files_of_a_pool_that_stopped_stay);
	T_RUN(a_step_is_of_whole_blocks);
	T_RUN(members_share_what_is_below);
	T_RUN(the_log_has_room_for_what_it_may_become);
	return t_done();
}
