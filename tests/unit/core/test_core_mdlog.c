/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The metadata log of the core: checkpoints, torn tails, mirrors, damage, and
 * the cost of an open. One commit takes one block on a small pool, so offsets
 * of frames are known: the region of epoch 1 is the second one.
 */
#include "durable.h"
#include "core_mem.h"

#define MD_OFF	(64u << 10)
#define MD_SIZE	(256u << 10)
#define PART	(MD_SIZE / 4)	/* of a checkpoint, at most */

static struct rig r;

/* offset of the last frame of epoch 1 */
static u64 last_frame(struct mem *m)
{
	u64 off = MD_OFF + MD_SIZE, last = 0;
	u32 magic;

	for (; off < MD_OFF + 2 * MD_SIZE; off += 4096) {
		memcpy(&magic, m->now + off, 4);
		if (magic == MP_FRAME_MAGIC)
			last = off;
	}
	return last;
}

static void start(u32 n)
{
	rig_init(&r, n, 8 << 20);
	T_EQ(rig_open(&r), 0);
}

static void stop(void)
{
	T_EQ(mp_pool_close(r.pool), 0);
	r.pool = NULL;
}

static void checkpoints_keep_everything(void)
{
	struct mp_obj_info oi;
	int i;

	start(2);
	add_objs(&r, 10);
	for (i = 0; i < 300; i++) {
		add_objs(&r, 1);
		T_EQ(mp_obj_list(r.pool, 0, 0, &oi, 1), 1);
		T_EQ(delete_id(r.pool, oi.oi_id), 0);
		if (i % 50 == 49)
			rig_reopen(&r, 1);
		T_EQ(count_objs(&r), 10);
	}
	rig_fini(&r);
}

/* As many as there may be, in more than one frame; the next one is refused. */
static void checkpoints_keep_every_container(void)
{
	char name[MP_NAME_LEN], want[MP_NAME_LEN];
	struct mp_obj_info oi;
	u64 id[2], was[2] = { 0, 0 };
	u32 i;

	rig_init(&r, 1, 64 << 20);
	T_EQ(rig_open(&r), 0);
	for (i = 0; i < MP_ROOTS_MAX; i++) {
		snprintf(name, sizeof(name), "%04u%s", i * 389 % MP_ROOTS_MAX, i % 3 ? "" : "x");
		T_EQ(mp_root_create(r.pool, name, MP_CAPACITY, 8192, 1), 0);
	}
	T_EQ(mp_root_create(r.pool, "one more", MP_CAPACITY, 8192, 1), -ENOSPC);
	/* so many objects that a frame ends among the containers, and enough for checkpoints */
	add_objs(&r, (int)((MP_FRAME_MAX - MP_ROOTS_MAX / 2 * sizeof(struct mp_root_omf)) /
			   (sizeof(struct mp_obj_omf) + sizeof(struct mp_extent_omf))) -
		 2 * (int)MP_ROOTS_MAX);
	for (i = 0; i < 1500; i++) {
		add_objs(&r, 1);
		T_EQ(mp_obj_list(r.pool, 0, 7, &oi, 1), 1);
		T_EQ(delete_id(r.pool, oi.oi_id), 0);
	}
	rig_reopen(&r, 1);
	name[0] = 0;
	for (i = 0; i < MP_ROOTS_MAX; i++) {
		T_EQ(mp_root_next(r.pool, name, name, id), 0);
		snprintf(want, sizeof(want), "%04u", i);
		T_OK(!memcmp(name, want, 4));
		T_OK(id[0] != was[0] && id[1] != was[1]);
		memcpy(was, id, sizeof(was));
	}
	T_EQ(mp_root_next(r.pool, name, name, id), -ENOENT);
	T_EQ(mp_root_delete(r.pool, name), 0);
	T_EQ(mp_root_create(r.pool, "one more", MP_CAPACITY, 8192, 1), 0);
	rig_fini(&r);
}

static void torn_tail_is_cut(void)
{
	start(1);
	add_objs(&r, 5);
	stop();
	r.m[0].now[last_frame(&r.m[0]) + 100] ^= 1;
	T_EQ(rig_open(&r), 0);
	T_EQ(count_objs(&r), 4);
	add_objs(&r, 3);
	rig_reopen(&r, 1);
	T_EQ(count_objs(&r), 7);
	rig_fini(&r);
}

static void damage_before_the_tail_is_refused(void)
{
	start(1);
	add_objs(&r, 5);
	stop();
	r.m[0].now[last_frame(&r.m[0]) - 8192 + 100] ^= 1;
	T_EQ(rig_open(&r), -EUCLEAN);
	T_EQ(r.pool == NULL, 1);
	rig_fini(&r);
}

static void damaged_checkpoint_is_refused(void)
{
	u32 k;

	for (k = 0; k < 2; k++) {
		start(1);
		add_objs(&r, 5);
		stop();
		r.m[0].now[MD_OFF + MD_SIZE + k * 4096 + 100] ^= 1;
		T_EQ(rig_open(&r), -EUCLEAN);
		rig_fini(&r);
	}
}

static void one_good_mirror_is_enough_and_repairs_the_other(void)
{
	u64 off;
	u32 k;

	for (k = 0; k < 2; k++) {
		start(2);
		add_objs(&r, 5);
		stop();
		off = last_frame(&r.m[k]) - 8192;
		r.m[k].now[off + 100] ^= 1;
		T_EQ(rig_open(&r), 0);
		T_EQ(count_objs(&r), 5);
		stop();
		T_MEMEQ(r.m[0].now + MD_OFF, r.m[1].now + MD_OFF, 2 * MD_SIZE);
		r.m[!k].now[off + 100] ^= 1;
		T_EQ(rig_open(&r), 0);
		T_EQ(count_objs(&r), 5);
		rig_fini(&r);
	}
}

static void longer_mirror_wins(void)
{
	u8 *old = malloc(MD_SIZE);

	start(2);
	add_objs(&r, 2);
	memcpy(old, r.m[0].now + MD_OFF + MD_SIZE, MD_SIZE);
	add_objs(&r, 3);
	stop();
	memcpy(r.m[0].now + MD_OFF + MD_SIZE, old, MD_SIZE);
	T_EQ(rig_open(&r), 0);
	T_EQ(count_objs(&r), 5);
	rig_fini(&r);
	free(old);
}

static void lost_acknowledged_checkpoint_is_noticed(void)
{
	u8 *old = malloc(2 * MD_SIZE);
	int i;

	start(1);
	add_objs(&r, 1);
	memcpy(old, r.m[0].now + MD_OFF, 2 * MD_SIZE);
	for (i = 0; i < 70; i++)
		add_objs(&r, 1);
	rig_reopen(&r, 0);
	stop();
	memcpy(r.m[0].now + MD_OFF, old, 2 * MD_SIZE);
	T_OK(rig_open(&r) == -EUCLEAN);
	rig_fini(&r);
	free(old);
}

/* any single bit flipped before the last frame: refused; padding is covered too */
static void every_flipped_bit_is_noticed(void)
{
	uint64_t seed = t_seed();
	u64 off, n;
	int i, rc;

	start(1);
	add_objs(&r, 20);
	for (i = 0; i < 400; i++) {
		stop();
		off = MD_OFF + MD_SIZE;
		off += t_rand(&seed) % (last_frame(&r.m[0]) - off);
		n = t_rand(&seed) % 8;
		r.m[0].now[off] ^= (u8)(1 << n);
		rc = mp_pool_open(r.dev, 1, MP_OPEN_RDONLY, &r.pool);
		T_EQ(rc, -EUCLEAN);
		r.m[0].now[off] ^= (u8)(1 << n);
		T_EQ(mp_pool_open(r.dev, 1, MP_OPEN_RDONLY, &r.pool), 0);
	}
	rig_fini(&r);
}

/* @n thousand objects, and as many records */
static void add_many(int n)
{
	struct mp_alloc a[1000];
	struct mp_obj *o[1000];
	int i, k;

	for (i = 0; i < 1000; i++)
		a[i] = (struct mp_alloc){ .al_kind = MP_MLOG, .al_capacity = 4096 };
	for (i = 0; i < n; i++) {
		memset(o, 0, sizeof(o));
		T_EQ(mp_obj_alloc(r.pool, a, 1000, o), 0);
		for (k = 0; k < 1000; k++)
			mp_obj_put(o[k]);
	}
}

static void hundred_thousand_objects_open_in_a_second(void)
{
	struct timespec t0, t1;

	rig_init(&r, 1, 640 << 20);
	T_EQ(rig_open(&r), 0);
	add_many(100);
	stop();
	clock_gettime(CLOCK_MONOTONIC, &t0);
	T_EQ(mp_pool_open(r.dev, 1, MP_OPEN_RDONLY, &r.pool), 0);
	clock_gettime(CLOCK_MONOTONIC, &t1);
	T_EQ(count_objs(&r), 100000);
	printf("# open: %lld ms\n", (t1.tv_sec - t0.tv_sec) * 1000ll +
	       (t1.tv_nsec - t0.tv_nsec) / 1000000);
	T_OK(t1.tv_sec - t0.tv_sec < 2);
	rig_fini(&r);
}

/* INV-22: no part of a checkpoint is so far from its end that damage passes for a torn one. */
static void every_part_of_a_large_checkpoint_is_proven(void)
{
	struct mp_obj_info oi[1000];
	struct mp_op op[1000];
	u64 off, end, epoch;
	u32 i;

	rig_init(&r, 1, 640 << 20);
	T_EQ(rig_open(&r), 0);
	add_many(80);
	epoch = r.pool->p_md.md_epoch;
	while (r.pool->p_md.md_epoch == epoch) {
		T_EQ(mp_obj_list(r.pool, 0, 0, oi, 1000), 1000);
		for (i = 0; i < 1000; i++)
			op[i] = (struct mp_op){ .op_type = MP_OP_DELETE, .op_id = oi[i].oi_id };
		T_EQ(mp_pool_batch(r.pool, op, 1000), 0);
		add_many(1);
	}
	off = MD_OFF + (r.pool->p_md.md_epoch & 1) * r.pool->p_md.md_bytes;
	end = r.pool->p_md.md_tail;
	stop();
	T_OK(end > 5 << 20);
	for (i = 1; i < 5; i++) {
		r.m[0].now[off + i * MP_FRAME_MAX + 200] ^= 1;
		T_EQ(mp_pool_open(r.dev, 1, MP_OPEN_RDONLY, &r.pool), -EUCLEAN);
		r.m[0].now[off + i * MP_FRAME_MAX + 200] ^= 1;
	}
	T_EQ(rig_open(&r), 0);
	T_EQ(count_objs(&r), 80000);
	rig_fini(&r);
}

/* a frame's head in each block from @from to @end, for the largest frame there may be */
static void forge(struct mp_frame fr, const u8 *uuid, u64 from, u64 end)
{
	static u8 head[MP_FRAME_MAX];

	for (; from < end; from += 4096) {
		fr.mf_addr = from;
		fr.mf_blocks = (u32)min_t(u64, MP_FRAME_MAX, end - from) / 4096;
		fr.mf_len = 0;
		mp_frame_encode(&fr, uuid, head);
		memcpy(r.m[0].now + from, head, MP_FRAME_HDR);
	}
}

/*
 * Each would have a whole frame summed up. Heads that claim nothing are passed over; after some
 * that claim more than there is, and belong to no frame, the log is damaged.
 */
static void forged_heads_are_not_read_one_by_one(void)
{
	struct mp_frame fr;
	u64 region, next, bytes, tail;
	u8 uuid[16];

	rig_init(&r, 1, 640 << 20);
	T_EQ(rig_open(&r), 0);
	add_objs(&r, 1);
	bytes = r.pool->p_md.md_bytes;
	region = MD_OFF + (r.pool->p_md.md_epoch & 1) * bytes;
	next = MD_OFF + (~r.pool->p_md.md_epoch & 1) * bytes;
	tail = region + r.pool->p_md.md_tail;
	memcpy(uuid, r.pool->p_uuid, sizeof(uuid));
	T_EQ(mp_frame_peek(r.m[0].now + region, uuid, region, MP_FRAME_MAX / 4096, &fr), 0);
	fr.mf_gen = r.pool->p_gen;
	fr.mf_flags = 0;
	stop();
	fr.mf_durable = 0;
	forge(fr, uuid, tail, region + bytes);
	T_EQ(mp_pool_open(r.dev, 1, MP_OPEN_RDONLY, &r.pool), 0);
	stop();
	fr.mf_durable = 1000000;
	forge(fr, uuid, tail, region + bytes);
	T_EQ(mp_pool_open(r.dev, 1, MP_OPEN_RDONLY, &r.pool), -EUCLEAN);
	memset(r.m[0].now + tail, 0, region + bytes - tail);
	/* the region of the next checkpoint, whose first frame is gone */
	memset(r.m[0].now + next, 0, 4096);
	fr.mf_epoch++;
	forge(fr, uuid, next + 4096, next + bytes);
	T_EQ(mp_pool_open(r.dev, 1, MP_OPEN_RDONLY, &r.pool), -EUCLEAN);
	memset(r.m[0].now + next, 0, bytes);
	T_EQ(mp_pool_open(r.dev, 1, MP_OPEN_RDONLY, &r.pool), 0);
	rig_fini(&r);
}

struct worker {
	pthread_t t;
	int rc;
};

static void *work(void *arg)
{
	struct worker *w = arg;
	struct mp_obj *o;
	int i;

	for (i = 0; i < 40 && !w->rc; i++) {
		w->rc = alloc_one(r.pool, MP_APPEND, 4096, &o);
		if (!w->rc && i & 1)
			w->rc = delete_id(r.pool, mp_obj_id(o));
		if (!w->rc)
			mp_obj_put(o);
	}
	return NULL;
}

static void concurrent_committers_lose_nothing(void)
{
	struct worker w[8] = { { 0 } };
	int i;

	start(2);
	for (i = 0; i < 8; i++)
		T_EQ(pthread_create(&w[i].t, NULL, work, &w[i]), 0);
	for (i = 0; i < 8; i++)
		pthread_join(w[i].t, NULL);
	for (i = 0; i < 8; i++)
		T_EQ(w[i].rc, 0);
	T_EQ(count_objs(&r), 8 * 20);
	rig_reopen(&r, 1);
	T_EQ(count_objs(&r), 8 * 20);
	rig_fini(&r);
}

/*
 * INV-8: not the space but the log of metadata is full, and yet all is deleted one by one, a
 * checkpoint of all that is left among them, and again behind an open.
 */
static void a_log_that_is_full_takes_every_delete(void)
{
	struct mp_obj_info oi[64];
	struct mp_obj *o;
	int i, n = 0, rc;

	rig_init(&r, 1, 64 << 20);
	T_EQ(rig_open(&r), 0);
	while (!(rc = alloc_one(r.pool, MP_MLOG, 4096, &o))) {
		mp_obj_put(o);
		n++;
	}
	printf("# %d objects, %d\n", n, os_user_error()->oe_id);
	T_EQ(rc, -ENOSPC);
	T_EQ(os_user_error()->oe_id, MP_MD_FULL);
	T_OK(strstr(os_user_error()->oe_text, "objects"));
	for (i = 0; n; i++) {
		int got = mp_obj_list(r.pool, 0, 0, oi, 64);

		T_OK(got > 0);
		while (got) {
			T_EQ(delete_id(r.pool, oi[--got].oi_id), 0);
			n--;
		}
		if (i == 3)
			rig_reopen(&r, 1);
		T_EQ(mp_pool_writable(r.pool), 0);
	}
	T_EQ(count_objs(&r), 0);
	add_objs(&r, 3);
	rig_reopen(&r, 1);
	T_EQ(count_objs(&r), 3);
	rig_fini(&r);
}

/* ---- numbers that count on ---- */

/* The next record begins the epoch behind @epoch, its sequence is behind @seq. */
static void count_from(u64 epoch, u64 seq)
{
	struct mp_mdlog *md = &r.pool->p_md;

	md->md_tail = md->md_bytes;
	md->md_epoch = epoch;
	md->md_seq = seq;
	add_objs(&r, 1);
}

static void opens_for_reading_only(int objs)
{
	struct mp_pool_info pi;

	stop();
	r.m[0].writes = 0;
	T_EQ(rig_open(&r), -EUCLEAN);
	T_EQ(os_user_error()->oe_id, MP_NUMBERS);
	T_EQ(r.m[0].writes, 0);
	T_EQ(mp_pool_open(r.dev, r.n, MP_OPEN_RDONLY, &r.pool), 0);
	T_EQ(count_objs(&r), objs);
	mp_pool_info(r.pool, &pi);
	T_OK(pi.pi_is_rdonly);
	rig_fini(&r);
}

static void numbers_never_come_to_their_end(void)
{
	u64 near[] = { MP_NUMBER_END - 8, MP_NUMBER_END / 2 };
	u32 i;

	for (i = 0; i < ARRAY_SIZE(near); i++) {
		start(1);
		count_from(1, near[i]);
		opens_for_reading_only(1);
		start(1);
		count_from(near[i] + 1, 100);
		opens_for_reading_only(1);
		start(1);
		add_objs(&r, 2);
		r.pool->p_sb_gen = near[i];
		T_EQ(mp_pool_rename(r.pool, "later"), 0);
		opens_for_reading_only(2);
	}
	/* the last that is written to */
	start(1);
	count_from(1, MP_NUMBER_END / 2 - 1000);
	rig_reopen(&r, 1);
	add_objs(&r, 1);
	rig_reopen(&r, 1);
	T_EQ(count_objs(&r), 2);
	rig_fini(&r);
}

static void a_log_is_not_erased_to_a_generation_that_was(void)
{
	struct mp_mlog *l;
	struct mp_obj *o;
	u64 id;

	start(1);
	T_EQ(alloc_one(r.pool, MP_MLOG, 64 << 10, &o), 0);
	id = mp_obj_id(o);
	o->o_gen = MP_NUMBER_END;
	mp_obj_put(o);
	T_EQ(mp_mlog_open(r.pool, id, &l), 0);
	T_EQ(mp_mlog_erase(l), -EUCLEAN);
	T_EQ(os_user_error()->oe_id, MP_NUMBERS);
	mp_mlog_close(l);
	T_EQ(mp_pool_writable(r.pool), 0);
	rig_fini(&r);
}

static int replay(const struct mp_rec *rec)
{
	int rc;

	mutex_lock(&r.pool->p_lock);
	rc = mp_otab_replay(r.pool, rec);
	mutex_unlock(&r.pool->p_lock);
	return rc;
}

static void contradicts(const struct mp_rec *rec, const char *text)
{
	T_EQ(replay(rec), -EUCLEAN);
	T_EQ(os_user_error()->oe_id, MP_MD_RECORD);
	T_OK(strstr(os_user_error()->oe_text, text));
}

/* Well formed, with right checksums, and yet of another history than the one before. */
static void records_that_contradict_are_refused_and_change_nothing(void)
{
	struct mp_rec root = { .r_type = MP_REC_ROOT, .r_name = "box", .r_root = { 1, 2 } };
	struct mp_rec gone = { .r_type = MP_REC_ROOT_DEL, .r_name = "box" };
	struct mp_rec seal = { .r_type = MP_REC_SEAL, .r_id = 1ull << 50, .r_length = 4096 };
	struct mp_rec del = { .r_type = MP_REC_DEL, .r_id = 1ull << 50 };
	struct mp_rec virgin = { .r_type = MP_REC_VIRGIN, .r_slot = 1, .r_length = 1 };

	start(1);
	add_objs(&r, 3);
	contradicts(&gone, "container 'box' does not exist");
	T_EQ(replay(&root), 0);
	contradicts(&root, "container 'box' exists twice");
	T_EQ(replay(&gone), 0);
	contradicts(&seal, "object 1125899906842624, which does not exist");
	contradicts(&del, "object 1125899906842624, which does not exist");
	contradicts(&virgin, "watermark of device 1");
	T_EQ(count_objs(&r), 3);
	rig_reopen(&r, 1);
	T_EQ(count_objs(&r), 3);
	rig_fini(&r);
}

/* The end of a checkpoint does not come to this device. */
static int write_no_end(struct mp_dev *d, u64 off, const void *buf, size_t len, unsigned int flags)
{
	const struct mp_frame_omf *mf = buf;

	if (le32_to_cpu(mf->mf_magic) == MP_FRAME_MAGIC &&
	    le16_to_cpu(mf->mf_flags) & MP_FRAME_END)
		return -EIO;
	return mem_write(d, off, buf, len, flags);
}

static const struct mp_dev_ops no_end = { .read = mem_read, .write = write_no_end,
					  .flush = mem_flush };

static u64 unread;	/* the region of this epoch cannot be read */

static u64 region_of(u64 epoch)
{
	return MD_OFF + (epoch & 1) * MD_SIZE;
}

static int read_not(struct mp_dev *d, u64 off, void *buf, size_t len)
{
	if (off < region_of(unread) + MD_SIZE && off + len > region_of(unread))
		return -EIO;
	return mem_read(d, off, buf, len);
}

static const struct mp_dev_ops not_read = { .read = read_not, .write = mem_write,
					    .flush = mem_flush };

/* The open that comes after the end of a checkpoint reached mirror 0 only, and cannot read it. */
static void open_without_it(u64 epoch)
{
	stop();
	r.m[1].dev.d_ops = &mem_ops;
	r.m[0].dev.d_ops = &not_read;
	unread = epoch + 1;
	T_EQ(rig_open(&r), 0);
	r.m[0].dev.d_ops = &mem_ops;
	T_EQ(r.pool->p_md.md_epoch, epoch);
}

/*
 * A checkpoint came to one mirror only, and that could not be read at the next open, which went
 * on without it: the open after that must, too. INV-21
 */
static void a_checkpoint_that_an_open_did_without_never_counts(void)
{
	struct mp_alloc a[500] = { 0 };
	struct mp_obj *o[500];
	struct mp_obj_info oi;
	u32 i;

	start(2);
	add_objs(&r, 4);
	while (r.pool->p_md.md_bytes - r.pool->p_md.md_tail > 32768) {
		T_EQ(mp_obj_list(r.pool, 0, 0, &oi, 1), 1);
		add_objs(&r, 1);
		T_EQ(delete_id(r.pool, oi.oi_id), 0);
	}
	T_EQ(count_objs(&r), 4);
	/* records that the epoch has no room for */
	for (i = 0; i < 500; i++)
		a[i] = (struct mp_alloc){ .al_kind = MP_APPEND, .al_capacity = 4096, .al_tag = 9 };
	r.m[1].dev.d_ops = &no_end;
	T_EQ(mp_obj_alloc(r.pool, a, 500, o), -EIO);
	open_without_it(1);
	add_objs(&r, 3);
	T_EQ(mp_obj_list(r.pool, 0, 0, &oi, 1), 1);
	T_EQ(delete_id(r.pool, oi.oi_id), 0);
	T_EQ(count_objs(&r), 6);
	rig_reopen(&r, 1);
	T_EQ(r.pool->p_md.md_epoch, 1);
	T_EQ(count_objs(&r), 6);
	T_EQ(mp_obj_open(r.pool, oi.oi_id, o), -ENOENT);
	/* nor is what is left of it damage, when its begin was being written over */
	stop();
	r.m[0].now[region_of(2)] ^= 1;
	T_EQ(rig_open(&r), 0);
	T_EQ(count_objs(&r), 6);
	rig_fini(&r);
}

/* One frame after the other, until three blocks are left. */
static void fill_epoch(void)
{
	const struct mp_mdlog *md = &r.pool->p_md;
	struct mp_obj_info oi;

	while (md->md_bytes - md->md_tail != 3 * 4096) {
		T_EQ(mp_obj_list(r.pool, 0, 7, &oi, 1), 1);
		T_EQ(delete_id(r.pool, oi.oi_id), 0);
		add_objs(&r, 1);
		if (md->md_bytes - md->md_tail == 4 * 4096)
			add_objs(&r, 1);
	}
}

static void is_refused_for(u64 epoch)
{
	char want[32];

	snprintf(want, sizeof(want), "epoch %llu follows", (unsigned long long)epoch);
	r.m[0].writes = 0;
	T_EQ(rig_open(&r), -EUCLEAN);
	T_EQ(os_user_error()->oe_id, MP_MD_CORRUPT);
	T_OK(strstr(os_user_error()->oe_text, want));
	T_EQ(r.m[0].writes, 0);
}

/*
 * The first write of a checkpoint was lost, so its region begins with a frame of the epoch two
 * before, which is good. What follows says that there was more: a record, or the end of the
 * checkpoint alone. INV-22
 */
static void a_lost_begin_of_a_checkpoint_is_noticed(void)
{
	static u8 old[4096];
	u32 k;

	for (k = 0; k < 2; k++) {
		start(1);
		memcpy(old, r.m[0].now + region_of(1), 4096);
		while (r.pool->p_md.md_epoch != 3)
			add_objs(&r, 1);
		stop();
		memcpy(r.m[0].now + region_of(3), old, 4096);
		if (k)
			memset(r.m[0].now + region_of(3) + 8192, 0, 4096);
		is_refused_for(3);
		rig_fini(&r);
	}
}

/* These records take more than three blocks. */
static int delete_many(void)
{
	struct mp_obj_info oi[400];
	struct mp_op op[400];
	int i, n = mp_obj_list(r.pool, 0, 7, oi, 400), rc;

	T_EQ(n, 400);
	for (i = 0; i < n; i++) {
		op[i] = (struct mp_op){ .op_type = MP_OP_DELETE };
		T_EQ(mp_obj_open(r.pool, oi[i].oi_id, &op[i].op_obj), 0);
	}
	rc = mp_pool_batch(r.pool, op, (u32)n);
	for (i = 0; i < n; i++)
		mp_obj_put(op[i].op_obj);
	return rc;
}

/*
 * Two attempts of one checkpoint, both cut: of the first only the first part is there, of the
 * second only another. That is no damage.
 */
static void two_attempts_of_a_checkpoint_are_no_damage(void)
{
	static u8 second[PART];
	u64 at;
	int n;

	start(1);
	add_objs(&r, 950);	/* two parts */
	fill_epoch();
	n = count_objs(&r);
	at = region_of(r.pool->p_md.md_epoch + 1) + PART;
	r.m[0].fail_write = -EIO;
	r.m[0].fail_after = 1;
	T_EQ(delete_many(), -EIO);
	stop();
	r.m[0].fail_write = 0;
	T_EQ(rig_open(&r), 0);
	rig_reopen(&r, 0);
	r.m[0].fail_flush = -EIO;
	T_EQ(delete_many(), -EIO);
	stop();
	/* of what was not flushed only the second part has come to the device */
	memcpy(second, r.m[0].now + at, PART);
	T_OK(memcmp(second, r.m[0].media + at, PART));
	mem_cut(&r.m[0]);
	memcpy(r.m[0].now + at, second, PART);
	T_EQ(rig_open(&r), 0);
	T_EQ(count_objs(&r), n);
	T_EQ(delete_many(), 0);
	rig_reopen(&r, 1);
	T_EQ(count_objs(&r), n - 400);
	rig_fini(&r);
}

/*
 * The begin of a checkpoint that was cut proves no more than that the epoch before it was whole:
 * of an older one that was there first no more than of itself. INV-22
 */
static void the_begin_of_a_checkpoint_proves_the_epoch_before_it(void)
{
	static u8 old[4096];
	u64 epoch, last;
	int n;

	start(1);
	add_objs(&r, 950);	/* two parts */
	fill_epoch();
	n = count_objs(&r);
	epoch = r.pool->p_md.md_epoch;
	memcpy(old, r.m[0].now + region_of(epoch + 1), 4096);
	last = region_of(epoch) + r.pool->p_md.md_tail - 4096;
	r.m[0].fail_flush = -EIO;
	T_EQ(delete_many(), -EIO);
	stop();
	r.m[0].fail_flush = 0;
	/* a cut, after which the second part is there and the first is not */
	memcpy(r.m[0].now + region_of(epoch + 1), old, 4096);
	T_EQ(mp_pool_open(r.dev, 1, MP_OPEN_RDONLY, &r.pool), 0);
	T_EQ(count_objs(&r), n);
	stop();
	/* and the last record before it was lost */
	memset(r.m[0].now + last, 0, 4096);
	is_refused_for(epoch + 1);
	rig_fini(&r);
}

/*
 * Behind the first part of a checkpoint lies the end of an attempt in an earlier life: nothing.
 * One of this life proves that what is between them was there.
 */
static void the_end_of_another_attempt_is_no_damage(void)
{
	struct mp_frame fr;
	u64 base;
	u8 uuid[16];
	int n;

	start(1);
	add_objs(&r, 950);
	fill_epoch();
	n = count_objs(&r);
	base = region_of(r.pool->p_md.md_epoch + 1);
	memcpy(uuid, r.pool->p_uuid, sizeof(uuid));
	r.m[0].fail_write = -EIO;
	r.m[0].fail_after = 1;
	T_EQ(delete_many(), -EIO);
	stop();
	r.m[0].fail_write = 0;
	T_EQ(mp_frame_peek(r.m[0].now + base, uuid, base, PART / 4096, &fr), 0);
	T_EQ(fr.mf_flags, MP_FRAME_CKPT);
	fr.mf_flags |= MP_FRAME_END;
	fr.mf_addr += PART;
	fr.mf_durable = ++fr.mf_seq;
	fr.mf_blocks = 1;
	fr.mf_len = fr.mf_nrecs = 0;
	mp_frame_encode(&fr, uuid, r.m[0].now + base + PART);
	T_EQ(rig_open(&r), -EUCLEAN);
	fr.mf_gen--;
	mp_frame_encode(&fr, uuid, r.m[0].now + base + PART);
	T_EQ(rig_open(&r), 0);
	T_EQ(count_objs(&r), n);
	rig_fini(&r);
}

int main(void)
{
	T_RUN(checkpoints_keep_everything);
	T_RUN(checkpoints_keep_every_container);
	T_RUN(torn_tail_is_cut);
	T_RUN(damage_before_the_tail_is_refused);
	T_RUN(damaged_checkpoint_is_refused);
	T_RUN(one_good_mirror_is_enough_and_repairs_the_other);
	T_RUN(longer_mirror_wins);
	T_RUN(a_checkpoint_that_an_open_did_without_never_counts);
	T_RUN(two_attempts_of_a_checkpoint_are_no_damage);
	T_RUN(the_end_of_another_attempt_is_no_damage);
	T_RUN(lost_acknowledged_checkpoint_is_noticed);
	T_RUN(a_lost_begin_of_a_checkpoint_is_noticed);
	T_RUN(the_begin_of_a_checkpoint_proves_the_epoch_before_it);
	T_RUN(every_flipped_bit_is_noticed);
	T_RUN(a_log_that_is_full_takes_every_delete);
	T_RUN(numbers_never_come_to_their_end);
	T_RUN(a_log_is_not_erased_to_a_generation_that_was);
	T_RUN(records_that_contradict_are_refused_and_change_nothing);
	T_RUN(hundred_thousand_objects_open_in_a_second);
	T_RUN(every_part_of_a_large_checkpoint_is_proven);
	T_RUN(forged_heads_are_not_read_one_by_one);
	T_RUN(concurrent_committers_lose_nothing);
	return t_done();
}
