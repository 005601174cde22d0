/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The core against schedules that once lost something: reads that fail while a
 * pool is opened, a log that repeats what a crash took from it, a creation that
 * is cut between the members.
 */
#include "durable.h"
#include "core_mem.h"

static struct mp_dev_ops ops;
static u64 reads, bad_read, bad_reads;
static u64 lie_at;
static u64 writes, cut_at;

/* the reads [bad_read, bad_read + bad_reads) fail, counted from 1 */
static int failing_read(struct mp_dev *d, u64 off, void *buf, size_t len)
{
	reads++;
	if (bad_read && reads >= bad_read && reads < bad_read + bad_reads)
		return -EIO;
	return mem_read(d, off, buf, len);
}

static int cut_write(struct mp_dev *d, u64 off, const void *buf, size_t len, unsigned int flags)
{
	return ++writes > cut_at ? -EIO : mem_write(d, off, buf, len, flags);
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

/* The read @lie_at, counted from 1, has a wrong bit in each block, and says nothing. */
static int lying_read(struct mp_dev *d, u64 off, void *buf, size_t len)
{
	u8 *p = buf;
	int rc = mem_read(d, off, buf, len);
	size_t i;

	if (++reads == lie_at)
		for (i = 0; i < len; i += MP_BLOCK)
			p[i + 8] ^= 1;
	return rc;
}

/* INV-19: whichever read of an open lies, the records of the newest frame are there. */
static void read_that_lies_once_is_no_torn_write(void)
{
	struct rig r;
	u32 ndevs;
	u64 n;

	for (ndevs = 1; ndevs <= 2; ndevs++) {
		rig_init(&r, ndevs, 8 << 20);
		T_EQ(rig_open(&r), 0);
		add_objs(&r, 5);
		T_EQ(mp_pool_close(r.pool), 0);
		r.pool = NULL;
		ops = mem_ops;
		ops.read = lying_read;
		for (n = 0; n < ndevs; n++)
			r.dev[n]->d_ops = &ops;
		for (lie_at = 1, reads = 1; reads >= lie_at; lie_at++) {
			reads = 0;
			if (rig_open(&r))
				T_FAIL("read %llu lied: no open", (unsigned long long)lie_at);
			if (count_objs(&r) != 5)
				T_FAIL("read %llu lied: %llu objects of 5",
				       (unsigned long long)lie_at,
				       (unsigned long long)count_objs(&r));
			T_EQ(mp_pool_close(r.pool), 0);
			r.pool = NULL;
		}
		T_OK(lie_at > 5);
		rig_fini(&r);
	}
}

/* What both members are caught at. */
static struct mp_health health_of(struct mp_pool *pool)
{
	struct mp_health sum = { 0 };
	struct mp_member mb;

	for (u32 i = 0; !mp_pool_member(pool, i, &mb); i++) {
		sum.he_csums += mb.mb_health.he_csums;
		sum.he_rereads += mb.mb_health.he_rereads;
		sum.he_repairs += mb.mb_health.he_repairs;
	}
	return sum;
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
	ops = mem_ops;
	ops.read = lying_read;
	r.dev[0]->d_ops = r.dev[1]->d_ops = &ops;
	for (n = 1; has_lied; n++) {
		go_back(&r, was);
		reads = 0;
		lie_at = n;
		T_EQ(rig_open(&r), 0);
		T_EQ(count_objs(&r), 5);
		has_lied = reads >= n;
		T_OK(health_of(r.pool).he_repairs >= 5);
		T_OK(has_lied || !health_of(r.pool).he_csums);
		T_EQ(mp_pool_close(r.pool), 0);
		lie_at = 0;
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

/* The same of a log in an object, opened and read. */
static void read_that_lies_once_ends_no_log(void)
{
	static u8 rec[1000], got[1000];
	struct mp_vec v = { .v_buf = rec, .v_len = sizeof(rec) };
	struct mp_mlog *l;
	struct mp_obj *o;
	struct rig r;
	u64 id, pos;
	size_t len;
	int i;

	rig_init(&r, 1, 64 << 20);
	T_EQ(rig_open(&r), 0);
	T_EQ(alloc_one(r.pool, MP_MLOG, 1 << 20, &o), 0);
	id = mp_obj_id(o);
	mp_obj_put(o);
	T_EQ(mp_mlog_open(r.pool, id, &l), 0);
	for (i = 0; i < 40; i++) {	/* more frames than one window has blocks */
		rec[0] = (u8)i;
		T_EQ(mp_mlog_append(l, &v, 1, true), 0);
	}
	mp_mlog_close(l);
	ops = mem_ops;
	ops.read = lying_read;
	r.dev[0]->d_ops = &ops;
	for (lie_at = 1, reads = 1; reads >= lie_at; lie_at++) {
		reads = 0;
		T_EQ(mp_mlog_open(r.pool, id, &l), 0);
		for (i = 0, pos = 0; i < 40; i++) {
			if (mp_mlog_read(l, &pos, got, sizeof(got), &len) || got[0] != i)
				T_FAIL("read %llu lied: record %d", (unsigned long long)lie_at, i);
		}
		T_EQ(mp_mlog_read(l, &pos, got, sizeof(got), &len), -ENODATA);
		mp_mlog_close(l);
	}
	T_OK(lie_at > 5);
	T_OK(health_of(r.pool).he_rereads > 5);
	T_EQ(health_of(r.pool).he_csums, health_of(r.pool).he_rereads);
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

/* INV-14: what waits in the buffer stays there when the pool has stopped, or the log. */
static void who_reads_a_stopped_log_writes_nothing(void)
{
	static const u8 rec[64];
	struct mp_vec v = { .v_buf = rec, .v_len = sizeof(rec) };
	u8 got[64];
	struct mp_mlog *l[2];
	struct mp_obj *o;
	struct rig r;
	u64 id, pos, n;
	size_t len;
	int i, rc;

	rig_init(&r, 1, 64 << 20);
	T_EQ(rig_open(&r), 0);
	for (i = 0; i < 2; i++) {
		T_EQ(alloc_one(r.pool, MP_MLOG, 1 << 20, &o), 0);
		id = mp_obj_id(o);
		mp_obj_put(o);
		T_EQ(mp_mlog_open(r.pool, id, &l[i]), 0);
	}
	/* the write of the first one failed: its record was refused */
	r.m[0].fail_write = -EIO;
	T_OK(mp_mlog_append(l[0], &v, 1, true));
	r.m[0].fail_write = 0;
	/* of the log alone: nothing further down refuses the write */
	n = r.m[0].writes;
	pos = 0;
	rc = mp_mlog_read(l[0], &pos, got, sizeof(got), &len);
	T_OK(rc && rc != -ENODATA);
	T_EQ(r.m[0].writes, n);
	T_EQ(mp_mlog_append(l[1], &v, 1, false), 0);
	r.m[0].fail_flush = -EIO;
	T_OK(mp_pool_flush(r.pool, ~0u));
	r.m[0].fail_flush = 0;
	n = r.m[0].writes;
	for (i = 0; i < 2; i++) {
		pos = 0;
		rc = mp_mlog_read(l[i], &pos, got, sizeof(got), &len);
		if (!rc || rc == -ENODATA)
			T_FAIL("log %d: the read says %d", i, rc);
		T_EQ(mp_mlog_peek(l[i], &pos, got, sizeof(got), &len), -ENODATA);
	}
	T_EQ(r.m[0].writes, n);
	mp_mlog_close(l[1]);
	mp_mlog_close(l[0]);
	rig_fini(&r);
}

/* Two frames are written, only the second reaches the media; then the first is written again. */
static void repeated_record_brings_nothing_back(void)
{
	static u8 rec[40000], got[40000];
	struct mp_vec v = { .v_buf = rec, .v_len = sizeof(rec) };
	struct mp_dev *dev;
	struct mp_mlog *l;
	struct mp_obj *o;
	struct rig r;
	u64 id, pos, n;
	size_t len;
	int i;

	rig_init(&r, 1, 64 << 20);
	T_EQ(rig_open(&r), 0);
	T_EQ(alloc_one(r.pool, MP_MLOG, 1 << 20, &o), 0);
	id = mp_obj_id(o);
	T_EQ(mp_obj_map(o, 0, 1 << 20, &dev, &pos, &n), 0);
	mp_obj_put(o);
	T_EQ(mp_mlog_open(r.pool, id, &l), 0);
	for (i = 0; i < 3; i++)	/* more than one buffer: frames leave without a flush */
		T_EQ(mp_mlog_append(l, &v, 1, false), 0);
	mp_mlog_close(l);
	/* the second frame is on media, the first is not */
	memcpy(r.m[0].media + pos + 40960, r.m[0].now + pos + 40960, 40960);
	rig_reopen(&r, 1);
	T_EQ(mp_mlog_open(r.pool, id, &l), 0);
	T_OK(mp_mlog_is_empty(l));
	T_EQ(mp_mlog_append(l, &v, 1, true), 0);
	mp_mlog_close(l);
	rig_reopen(&r, 1);
	T_EQ(mp_mlog_open(r.pool, id, &l), 0);
	pos = 0;
	T_EQ(mp_mlog_read(l, &pos, got, sizeof(got), &len), 0);
	T_EQ(mp_mlog_read(l, &pos, got, sizeof(got), &len), -ENODATA);
	mp_mlog_close(l);
	rig_fini(&r);
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
	T_RUN(read_error_is_no_shorter_history);
	T_RUN(read_that_lies_once_is_no_torn_write);
	T_RUN(copy_that_is_behind_gets_no_lie);
	T_RUN(read_that_lies_once_ends_no_log);
	T_RUN(id_is_told_below_the_durable_mark_only);
	T_RUN(who_reads_a_stopped_log_writes_nothing);
	T_RUN(repeated_record_brings_nothing_back);
	T_RUN(cut_create_leaves_a_pool_or_none);
	T_RUN(seal_in_flight_is_not_written_below);
	T_RUN(list_passes_over_many);
	return t_done();
}
