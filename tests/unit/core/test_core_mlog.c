/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Logs in objects: damage at the start of what one sync made durable, however
 * much that was, is no torn tail, and to tell that takes no more reading when
 * heads are forged; a log that is being deleted is not opened; a read that lies once ends no log,
 * one that stopped is not written, and a record that a crash took does not come back.
 */
#include "core.h"
#include "core_mem.h"

#define REC	(1u << 20)	/* bytes of a large record */

static struct rig r;

static struct mp_mlog *log_open(u64 id)
{
	struct mp_mlog *l = NULL;

	T_EQ(mp_mlog_open(r.pool, id, &l), 0);
	return l;
}

static u64 log_new(u64 capacity, struct mp_obj **obj)
{
	T_EQ(alloc_one(r.pool, MP_MLOG, capacity, obj), 0);
	return mp_obj_id(*obj);
}

static void append(struct mp_mlog *l, u32 len, u32 n, bool is_sync)
{
	static u8 buf[REC];
	struct mp_vec v = { buf, len };

	while (n--)
		T_EQ(mp_mlog_append(l, &v, 1, is_sync), 0);
}

/* how many records the log has, then what the reader is told */
static int records(struct mp_mlog *l, int want)
{
	static u8 buf[REC];
	size_t len;
	u64 pos = 0;
	int n = 0, rc;

	while (!(rc = mp_mlog_read(l, &pos, buf, sizeof(buf), &len)))
		n++;
	T_EQ(n, want);
	return rc;
}

/* frames that begin at @off or behind it */
static int heads(struct mp_obj *obj, u64 off)
{
	struct mp_dev *dev;
	u64 pos, n;
	u32 magic;
	int found = 0;

	for (; !mp_obj_map(obj, off, MP_BLOCK, &dev, &pos, &n); off += MP_BLOCK) {
		memcpy(&magic, mem_of(dev)->now + pos, 4);
		found += magic == MP_MLOG_MAGIC;
	}
	return found;
}

static void flip(struct mp_obj *obj, u64 off)
{
	struct mp_dev *dev;
	u64 pos, n;

	T_EQ(mp_obj_map(obj, off, 1, &dev, &pos, &n), 0);
	mem_of(dev)->now[pos] ^= 1;
}

/* One bit of the first frame, of the one in the middle; every record was acknowledged. */
static void damage_far_below_a_sync_is_refused(void)
{
	const u64 frame = REC + MP_BLOCK;
	struct mp_mlog *l;
	struct mp_obj *obj;
	u32 mib;
	u64 id;

	rig_init(&r, 1, 256 << 20);
	T_EQ(rig_open(&r), 0);
	for (mib = 1; mib <= 81; mib += 40) {
		id = log_new((mib + 8) << 20, &obj);
		l = log_open(id);
		append(l, REC - 8, mib, false);
		T_EQ(mp_mlog_sync(l), 0);
		append(l, 100, 3, true);
		mp_mlog_close(l);
		flip(obj, 200);
		T_EQ(mp_mlog_open(r.pool, id, &l), -EUCLEAN);
		T_EQ(os_user_error()->oe_id, MP_MLOG_CORRUPT);
		flip(obj, 200);
		flip(obj, mib / 2 * frame + 200);
		T_EQ(mp_mlog_open(r.pool, id, &l), -EUCLEAN);
		flip(obj, mib / 2 * frame + 200);
		l = log_open(id);
		T_EQ(records(l, (int)mib + 3), -ENODATA);
		mp_mlog_close(l);
		mp_obj_put(obj);
		T_EQ(delete_id(r.pool, id), 0);
	}
	rig_fini(&r);
}

/* one record that was acknowledged, then 40 frames of a mebibyte, the first one damaged */
static u64 log_with_torn_tail(struct mp_obj **obj)
{
	struct mp_mlog *l;
	u64 id;

	rig_init(&r, 1, 128 << 20);
	T_EQ(rig_open(&r), 0);
	id = log_new(64 << 20, obj);
	l = log_open(id);
	append(l, 100, 1, true);
	append(l, REC - 8, 40, false);
	T_EQ(records(l, 41), -ENODATA);	/* the last one leaves its buffer */
	mp_mlog_close(l);
	flip(*obj, MP_BLOCK + 200);
	return id;
}

/* Nothing of a tail was acknowledged: it goes, however long, and no frame of it comes back. */
static void a_long_torn_tail_is_cut_whole(void)
{
	struct mp_mlog *l;
	struct mp_obj *obj;
	u64 id, used, cap;
	int i;

	id = log_with_torn_tail(&obj);
	for (i = 1; i < 4; i++) {
		l = log_open(id);
		mp_mlog_space(l, &used, &cap);
		T_EQ(used, (u64)i * MP_BLOCK);
		append(l, 100, 1, true);
		T_EQ(records(l, i + 1), -ENODATA);
		mp_mlog_close(l);
	}
	T_EQ(heads(obj, used), 1);	/* of the last append */
	mp_obj_put(obj);
	rig_fini(&r);
}

/* the power fails: the last 4 MiB of what is not flushed are lost */
static void power_fails(struct mem *m)
{
	u64 from = max(m->dirty_lo, m->dirty_hi - min(m->dirty_hi, (u64)4 << 20));

	if (from < m->dirty_hi)
		memcpy(m->now + from, m->media + from, m->dirty_hi - from);
}

/* The device fails within the cut, after @n heads; the next open finds the others. */
static void cut_is_cut_short(u64 n)
{
	static u8 buf[100];
	struct mp_vec v = { buf, 100 };
	struct mp_mlog *l;
	struct mp_obj *obj;
	u64 id = log_with_torn_tail(&obj), used, cap;

	T_EQ(mem_flush(r.dev[0]), 0);
	l = log_open(id);
	r.m[0].fail_write = -EIO;
	r.m[0].fail_after = n;
	T_EQ(mp_mlog_append(l, &v, 1, true), -EIO);
	r.m[0].fail_write = 0;
	power_fails(&r.m[0]);
	mp_mlog_close(l);
	mp_obj_put(obj);
	mp_pool_close(r.pool);
	T_EQ(rig_open(&r), 0);
	T_EQ(mp_obj_open(r.pool, id, &obj), 0);
	l = log_open(id);
	append(l, 100, 1, true);
	T_EQ(records(l, 2), -ENODATA);
	mp_mlog_space(l, &used, &cap);
	mp_mlog_close(l);
	T_EQ(heads(obj, used), 0);
	mp_obj_put(obj);
	rig_fini(&r);
}

static void a_long_torn_tail_is_cut_whole_in_two_attempts(void)
{
	u64 n;

	for (n = 1; n < 40; n += 6)
		cut_is_cut_short(n);
}

/* the first frame's head in each block behind it, for the largest frame there may be */
static void forge(struct mp_obj *obj, u64 durable)
{
	struct mp_mlframe_omf head;
	struct mp_dev *dev;
	u64 pos, off, n;

	T_EQ(mp_obj_map(obj, 0, MP_BLOCK, &dev, &pos, &n), 0);
	memcpy(&head, mem_of(dev)->now + pos, sizeof(head));
	head.ml_durable = cpu_to_le64(durable);
	for (off = MP_BLOCK; off < obj->o_capacity; off += MP_BLOCK) {
		n = min_t(u64, MP_MLFRAME_MAX, obj->o_capacity - off);
		head.ml_blocks = cpu_to_le32((u32)(n / MP_BLOCK));
		head.ml_off = cpu_to_le64(off);
		T_EQ(mp_obj_map(obj, off, MP_BLOCK, &dev, &pos, &n), 0);
		memcpy(mem_of(dev)->now + pos, &head, sizeof(head));
	}
}

/* Bounded by the log: each head would have a mebibyte read and summed up. */
static void forged_heads_cost_no_more_than_the_log(void)
{
	const u64 cap = 16 << 20;
	struct mp_mlog *l;
	struct mp_obj *obj;
	u64 id, before;

	rig_init(&r, 1, 64 << 20);
	T_EQ(rig_open(&r), 0);
	id = log_new(cap, &obj);
	l = log_open(id);
	append(l, 100, 1, true);
	mp_mlog_close(l);
	forge(obj, 1);
	before = r.m[0].bytes_read;
	l = log_open(id);
	T_OK(r.m[0].bytes_read - before < 4 * cap);
	T_EQ(records(l, 1), -ENODATA);
	mp_mlog_close(l);
	forge(obj, 1000);
	before = r.m[0].bytes_read;
	T_EQ(mp_mlog_open(r.pool, id, &l), -EUCLEAN);
	T_EQ(os_user_error()->oe_id, MP_MLOG_CORRUPT);
	T_OK(r.m[0].bytes_read - before < 4 * cap);
	mp_obj_put(obj);
	rig_fini(&r);
}

static u64 victim;	/* deleted by another thread while memory is allocated for its buffer */

static void *alloc_and_delete(void *ctx, size_t size, size_t align)
{
	u64 id = victim;
	void *p = NULL;

	(void)ctx;
	if (align && id) {
		victim = 0;
		T_EQ(delete_id(r.pool, id), 0);
	}
	if (!align)
		return malloc(size);
	return posix_memalign(&p, align, size) ? NULL : p;
}

static void free_it(void *ctx, void *p)
{
	(void)ctx;
	free(p);
}

/* What it would acknowledge was gone with the log. */
static void a_log_deleted_meanwhile_is_not_opened(void)
{
	struct os_user_hooks h = { .alloc = alloc_and_delete, .free = free_it };
	struct mp_mlog *l = NULL;
	struct mp_obj *obj;
	u64 id;

	os_user_hooks_set(&h);
	rig_init(&r, 1, 8 << 20);
	T_EQ(rig_open(&r), 0);
	id = log_new(1 << 20, &obj);
	mp_obj_put(obj);
	victim = id;
	T_EQ(mp_mlog_open(r.pool, id, &l), -ENOENT);
	T_EQ(victim, 0);
	T_EQ(os_user_error()->oe_id, MP_OBJ_NONE);
	T_OK(!l);
	T_EQ(count_objs(&r), 0);
	rig_fini(&r);
	os_user_hooks_set(NULL);
}

/* The same of a log in an object, opened and read. */
static void read_that_lies_once_ends_no_log(void)
{
	static u8 rec[1000], got[1000];
	struct mp_vec v = { .v_buf = rec, .v_len = sizeof(rec) };
	struct mp_mlog *l;
	struct mp_obj *o;
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
	for (mem_lie_at = 1, mem_reads = 1; mem_reads >= mem_lie_at; mem_lie_at++) {
		mem_reads = 0;
		T_EQ(mp_mlog_open(r.pool, id, &l), 0);
		for (i = 0, pos = 0; i < 40; i++) {
			if (mp_mlog_read(l, &pos, got, sizeof(got), &len) || got[0] != i)
				T_FAIL("read %llu lied: record %d",
				       (unsigned long long)mem_lie_at, i);
		}
		T_EQ(mp_mlog_read(l, &pos, got, sizeof(got), &len), -ENODATA);
		mp_mlog_close(l);
	}
	T_OK(mem_lie_at > 5);
	mem_lie_at = 0;
	T_OK(rig_health(&r).he_rereads > 5);
	T_EQ(rig_health(&r).he_csums, rig_health(&r).he_rereads);
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

int main(void)
{
	T_RUN(damage_far_below_a_sync_is_refused);
	T_RUN(a_long_torn_tail_is_cut_whole);
	T_RUN(a_long_torn_tail_is_cut_whole_in_two_attempts);
	T_RUN(forged_heads_cost_no_more_than_the_log);
	T_RUN(a_log_deleted_meanwhile_is_not_opened);
	T_RUN(read_that_lies_once_ends_no_log);
	T_RUN(who_reads_a_stopped_log_writes_nothing);
	T_RUN(repeated_record_brings_nothing_back);
	return t_done();
}
