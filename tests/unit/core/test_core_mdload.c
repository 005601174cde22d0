/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What an open takes from the metadata log when a read fails, or lies once.
 */
#include "core.h"
#include "core_mem.h"

static struct mp_dev_ops ops;
static u64 reads, bad_read, bad_reads;

/* the reads [bad_read, bad_read + bad_reads) fail, counted from 1 */
static int failing_read(struct mp_dev *d, u64 off, void *buf, size_t len)
{
	reads++;
	if (bad_read && reads >= bad_read && reads < bad_read + bad_reads)
		return -EIO;
	return mem_read(d, off, buf, len);
}

/* Nor is it an older device: both superblocks that are rewritten are read one after the other. */
static void read_error_is_no_shorter_history(void)
{
	static const u64 many[] = { 1, 2, 1000 };
	struct mp_obj_info oi[16];
	struct mp_obj *o;
	struct rig r;
	u64 n, len;
	int i, rc;
	u32 k;

	/* with a checkpoint in each region, so that an old epoch is there to fall back to */
	rig_init(&r, 1, 64 << 20);
	T_EQ(rig_open(&r), 0);
	for (i = 0; i < 200; i++) {
		T_EQ(alloc_one(r.pool, MP_APPEND, 4096, &o), 0);
		len = mp_obj_id(o);
		mp_obj_put(o);
		if (i < 190)
			T_EQ(delete_id(r.pool, len), 0);
	}
	T_EQ(mp_pool_close(r.pool), 0);
	r.pool = NULL;
	ops = mem_ops;
	ops.read = failing_read;
	r.dev[0]->d_ops = &ops;
	for (k = 0; k < 3; k++) {
		len = many[k];
		for (n = 1;; n++) {
			reads = 0;
			bad_read = n;
			bad_reads = len;
			/* reading only: the next round finds the same bytes */
			rc = mp_pool_open(r.dev, 1, MP_OPEN_RDONLY, &r.pool);
			bad_read = 0;
			if (rc && rc != -EIO)
				T_FAIL("read %llu of %llu failed: error %d", (unsigned long long)n,
				       (unsigned long long)len, rc);
			if (!rc) {
				rc = mp_obj_list(r.pool, 0, 7, oi, 16);
				T_EQ(mp_pool_close(r.pool), 0);
				if (rc != 10)
					T_FAIL("read %llu of %llu failed: %d objects of 10",
					       (unsigned long long)n, (unsigned long long)len, rc);
			}
			r.pool = NULL;
			if (reads < n)
				break;
		}
		T_OK(n > 3);
	}
	rig_fini(&r);
}

/* INV-19: whichever read of an open lies, the records of the newest frame are there. */
static void read_that_lies_once_is_no_torn_write(void)
{
	struct rig r;
	u32 ndevs;

	for (ndevs = 1; ndevs <= 2; ndevs++) {
		rig_init(&r, ndevs, 8 << 20);
		T_EQ(rig_open(&r), 0);
		add_objs(&r, 5);
		T_EQ(mp_pool_close(r.pool), 0);
		r.pool = NULL;
		for (mem_lie_at = 1, mem_reads = 1; mem_reads >= mem_lie_at; mem_lie_at++) {
			mem_reads = 0;
			if (rig_open(&r))
				T_FAIL("read %llu lied: no open", (unsigned long long)mem_lie_at);
			if (count_objs(&r) != 5)
				T_FAIL("read %llu lied: %llu objects of 5",
				       (unsigned long long)mem_lie_at,
				       (unsigned long long)count_objs(&r));
			T_EQ(mp_pool_close(r.pool), 0);
			r.pool = NULL;
		}
		T_OK(mem_lie_at > 5);
		mem_lie_at = 0;
		rig_fini(&r);
	}
}

static void go_back(struct rig *r, u8 *const was[2])
{
	for (int i = 0; i < 2; i++) {
		memcpy(r->m[i].now, was[i], r->m[i].dev.d_size);
		memcpy(r->m[i].media, was[i], r->m[i].dev.d_size);
	}
}

/* INV-19: whichever read lies, a copy that is behind is whole after the open, and alone enough. */
static void copy_that_is_behind_gets_no_lie(void)
{
	const u64 size = 8 << 20;
	u8 *was[2] = { malloc(size), malloc(size) };
	bool has_lied = true;
	u64 off, bytes, n;
	struct rig r;

	rig_init(&r, 2, size);
	T_EQ(rig_open(&r), 0);
	off = r.pool->p_md.md_off;
	bytes = 2 * r.pool->p_md.md_bytes;
	memcpy(was[1], r.m[1].now, size);
	add_objs(&r, 5);
	T_EQ(mp_pool_close(r.pool), 0);
	memcpy(was[0], r.m[0].now, size);
	for (n = 1; has_lied; n++) {
		go_back(&r, was);
		mem_reads = 0;
		mem_lie_at = n;
		T_EQ(rig_open(&r), 0);
		T_EQ(count_objs(&r), 5);
		has_lied = mem_reads >= n;
		T_OK(rig_health(&r).he_repairs >= 5);
		T_OK(has_lied || !rig_health(&r).he_csums);
		T_EQ(mp_pool_close(r.pool), 0);
		mem_lie_at = 0;
		memset(r.m[0].now + off, 0xa5, bytes);
		if (rig_open(&r) || count_objs(&r) != 5)
			T_FAIL("read %llu lied: the other copy is not whole",
			       (unsigned long long)n);
		T_EQ(mp_pool_close(r.pool), 0);
		r.pool = NULL;
	}
	T_OK(n > 5);
	rig_fini(&r);
	free(was[0]);
	free(was[1]);
}

int main(void)
{
	T_RUN(read_error_is_no_shorter_history);
	T_RUN(read_that_lies_once_is_no_torn_write);
	T_RUN(copy_that_is_behind_gets_no_lie);
	return t_done();
}
