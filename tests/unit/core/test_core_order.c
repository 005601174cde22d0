/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Ordering of the core's writes, watched at the device: when a write leaves
 * that makes others count, those others must be on media already. A crash in
 * between is rare enough for the crash enumeration to miss it.
 */
#include "core_mem.h"
#include "core.h"

static struct rig r;
static struct mem *watched[3];
static u32 nwatched;
static struct mp_dev_ops ops;
static u32 seen;		/* writes that were judged */
static bool (*judge)(struct mp_dev *d, u64 off, const u8 *buf);

static bool is_all_durable(void)
{
	u32 i;

	for (i = 0; i < nwatched; i++)
		if (memcmp(watched[i]->now, watched[i]->media, watched[i]->dev.d_size))
			return false;
	return true;
}

static int watched_write(struct mp_dev *d, u64 off, const void *buf, size_t len,
			 unsigned int flags)
{
	if (judge && !judge(d, off, buf))
		T_FAIL("write of %zu at %llu: what it relies on is not on media", len,
		       (unsigned long long)off);
	return mem_write(d, off, buf, len, flags);
}

static void start(u32 n)
{
	u32 i;

	judge = NULL;
	seen = 0;
	ops = mem_ops;
	ops.write = watched_write;
	rig_init(&r, n, 8 << 20);
	nwatched = n;
	for (i = 0; i < n; i++) {
		watched[i] = &r.m[i];
		r.m[i].dev.d_ops = &ops;
	}
	T_EQ(rig_open(&r), 0);
}

static void stop(void)
{
	judge = NULL;
	T_OK(seen > 0);
	rig_fini(&r);
}

/* A frame of the metadata log on its first mirror, that is not part of a checkpoint. */
static bool frame_is_after_all(struct mp_dev *d, u64 off, const u8 *buf)
{
	const struct mp_frame_omf *f = (const void *)buf;

	(void)off;
	if (d != r.dev[0] || le32_to_cpu(f->mf_magic) != MP_FRAME_MAGIC ||
	    (le16_to_cpu(f->mf_flags) & (MP_FRAME_CKPT | MP_FRAME_END)) == MP_FRAME_CKPT)
		return true;
	seen++;
	return is_all_durable();
}

/* INV-4, INV-5, INV-6, INV-11 */
static void records_follow_what_they_tell_of(void)
{
	struct mp_op op = { .op_type = MP_OP_SEAL, .op_length = 4096 };
	struct mp_obj_info oi;
	struct mp_obj *o;
	int i;

	start(2);
	judge = frame_is_after_all;
	for (i = 0; i < 200; i++) {
		T_EQ(alloc_one(r.pool, i % 2 ? MP_APPEND : MP_MBLOCK, 8192, &o), 0);
		T_EQ(fill(o, 0, 4096, (u8)i), 0);
		op.op_obj = o;
		if (i % 2)
			T_EQ(mp_pool_batch(r.pool, &op, 1), 0);
		else
			T_EQ(commit(r.pool, o, 4096), 0);
		mp_obj_put(o);
		T_EQ(mp_obj_list(r.pool, 0, 0, &oi, 1), 1);
		if (i > 10)
			T_EQ(delete_id(r.pool, oi.oi_id), 0);
	}
	stop();
}

static bool superblock_is_after_all(struct mp_dev *d, u64 off, const u8 *buf)
{
	(void)d;
	(void)off;
	if (!mp_sb_is_magic(buf))
		return true;
	seen++;
	return is_all_durable();
}

/* INV-7: the pool was left with writes in the cache, and one log copy behind */
static void open_builds_on_nothing_volatile(void)
{
	struct mp_dev *dev;
	struct mp_obj *o;
	u64 pos, n, off;
	u32 k;

	for (k = 0; k < 2; k++) {
		start(2);
		T_EQ(alloc_one(r.pool, MP_APPEND, 8192, &o), 0);
		T_EQ(fill(o, 0, 8192, 1), 0);
		T_EQ(mp_obj_map(o, 0, 8192, &dev, &pos, &n), 0);
		T_OK(memcmp(mem_of(dev)->now + pos, mem_of(dev)->media + pos, n));
		mp_obj_put(o);
		T_EQ(mp_pool_close(r.pool), 0);
		r.pool = NULL;
		/* the last frame of copy @k is lost, or even durably so */
		for (off = 1 << 20; off && r.m[k].now[off] != 'M'; off -= 4096)
			;
		T_OK(off);
		memset(r.m[k].now + off, 0, 4096);
		memset(r.m[k].media + off, 0, 4096);
		judge = superblock_is_after_all;
		T_EQ(rig_open(&r), 0);
		stop();
	}
}

/* The same on a member that carries no log. */
static void open_flushes_every_member(void)
{
	static const u32 mclass[3] = { MP_CAPACITY, MP_CAPACITY, MP_STAGING };
	static struct mem m[3];
	struct mp_dev *dev[3];
	struct mp_create c = { .mc_name = "three", .mc_ndevs = 3, .mc_dev = dev,
			       .mc_mclass = mclass };
	struct mp_member mb;
	struct mp_pool *pool;
	struct mp_obj *o;
	u32 i;

	judge = NULL;
	seen = 0;
	ops = mem_ops;
	ops.write = watched_write;
	nwatched = 3;
	for (i = 0; i < 3; i++) {
		mem_init(&m[i], 8 << 20);
		m[i].dev.d_ops = &ops;
		dev[i] = &m[i].dev;
		watched[i] = &m[i];
	}
	T_EQ(mp_pool_create(&c), 0);
	T_EQ(mp_pool_open(dev, 3, 0, &pool), 0);
	for (i = 0; i < 100; i++) {
		T_EQ(alloc_one(pool, MP_APPEND, 8192, &o), 0);
		T_EQ(fill(o, 0, 8192, (u8)i), 0);
		mp_obj_put(o);
	}
	T_EQ(mp_pool_member(pool, 1, &mb), 0);
	T_OK(!mb.mb_has_md);
	T_OK(memcmp(m[1].now, m[1].media, m[1].dev.d_size));
	T_EQ(mp_pool_close(pool), 0);
	judge = superblock_is_after_all;
	T_EQ(mp_pool_open(dev, 3, 0, &pool), 0);
	judge = NULL;
	T_OK(seen > 0);
	T_EQ(mp_pool_close(pool), 0);
	for (i = 0; i < 3; i++)
		mem_fini(&m[i]);
}

static void class_flush_reaches_the_media(void)
{
	struct mp_obj *o;

	start(1);
	T_EQ(alloc_one(r.pool, MP_APPEND, 8192, &o), 0);
	T_EQ(fill(o, 0, 8192, 1), 0);
	T_OK(!is_all_durable());
	T_EQ(mp_pool_flush(r.pool, 1u << MP_STAGING), 0);
	T_OK(!is_all_durable());
	T_EQ(mp_pool_flush(r.pool, 1u << MP_CAPACITY), 0);
	T_OK(is_all_durable());
	mp_obj_put(o);
	seen = 1;
	stop();
}

static bool first_copy_is_gone(struct mp_dev *d, u64 off, const u8 *buf)
{
	static const u8 zero[MP_BLOCK];

	/* the erasure of a later copy */
	if (!off || memcmp(buf, zero, MP_BLOCK))
		return true;
	seen++;
	return !memcmp(mem_of(d)->media, zero, MP_BLOCK);
}

/* INV-3 */
static void destroy_begins_with_the_first_copy(void)
{
	start(2);
	T_EQ(mp_pool_close(r.pool), 0);
	r.pool = NULL;
	judge = first_copy_is_gone;
	T_EQ(mp_pool_destroy(r.dev, 2), 0);
	T_OK(is_all_durable());
	stop();
}

/* ---- logs ---- */

static u64 log_pos;

static bool frame_is_after_the_wipe(struct mp_dev *d, u64 off, const u8 *buf)
{
	(void)d;
	if (off != log_pos || le32_to_cpu(((const struct mp_mlframe_omf *)buf)->ml_magic) !=
	    MP_MLOG_MAGIC)
		return true;
	seen++;
	return is_all_durable();
}

static u64 log_make(struct mp_mlog **l)
{
	struct mp_dev *dev;
	struct mp_obj *o;
	u64 id, n;

	T_EQ(alloc_one(r.pool, MP_MLOG, 1 << 20, &o), 0);
	id = mp_obj_id(o);
	T_EQ(mp_obj_map(o, 0, 1 << 20, &dev, &log_pos, &n), 0);
	mp_obj_put(o);
	T_EQ(mp_mlog_open(r.pool, id, l), 0);
	return id;
}

/* Frames that leave the buffer without a sync. */
static void log_fill(struct mp_mlog *l, int frames)
{
	static u8 rec[40000];
	struct mp_vec v = { .v_buf = rec, .v_len = sizeof(rec) };

	while (frames--)
		T_EQ(mp_mlog_append(l, &v, 1, false), 0);
}

/* An open of a log sees what the last owner never synced, and may act on it. */
static void opened_log_is_durable(void)
{
	struct mp_mlog *l;
	u64 id;

	start(1);
	id = log_make(&l);
	log_fill(l, 3);
	mp_mlog_close(l);
	T_OK(!is_all_durable());
	T_EQ(mp_mlog_open(r.pool, id, &l), 0);
	T_OK(is_all_durable());
	mp_mlog_close(l);
	seen = 1;
	stop();
}

/* A frame whose predecessor was lost is gone from the media before that is written anew. */
static void refused_frames_are_wiped_first(void)
{
	struct mp_vec v = { .v_buf = "new", .v_len = 3 };
	struct mp_mlog *l;
	u64 id;

	start(1);
	id = log_make(&l);
	log_fill(l, 4);
	mp_mlog_close(l);
	memset(r.m[0].now + log_pos, 0, 4096);
	judge = frame_is_after_the_wipe;
	rig_reopen(&r, 0);
	T_EQ(mp_mlog_open(r.pool, id, &l), 0);
	T_OK(mp_mlog_is_empty(l));
	T_EQ(mp_mlog_append(l, &v, 1, true), 0);
	mp_mlog_close(l);
	stop();
}

int main(void)
{
	T_RUN(records_follow_what_they_tell_of);
	T_RUN(open_builds_on_nothing_volatile);
	T_RUN(open_flushes_every_member);
	T_RUN(class_flush_reaches_the_media);
	T_RUN(destroy_begins_with_the_first_copy);
	T_RUN(opened_log_is_durable);
	T_RUN(refused_frames_are_wiped_first);
	return t_done();
}
