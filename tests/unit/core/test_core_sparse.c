/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Logs in a file have space below for what they hold, not for all that they may (INV-28). The
 * members here are files of a file system that can be full: each write must hit space that was
 * reserved before.
 */
#include "core.h"
#include "core_mem.h"

#define SIZE		(64u << 20)
#define REGION		(8u << 20)
#define LOGS		(MP_SB_AREA + 2 * REGION)	/* where the objects begin */
#define BLOCKS		(SIZE / MP_BLOCK)

static struct file {
	u8 has[BLOCKS];		/* 1: there is space below */
	u64 homeless;		/* writes to where there is none */
	u64 reserves;		/* calls */
} file[2];

static struct rig r;
static u64 left = ~0ull;	/* blocks that the file system has for the pool's log */
static u64 left_data = ~0ull;	/* and for what lies behind it */

static struct file *file_of(struct mp_dev *d)
{
	return &file[d == r.dev[1]];
}

static int file_write(struct mp_dev *d, u64 off, const void *buf, size_t len, unsigned int flags)
{
	u64 i;

	for (i = off / MP_BLOCK; i < (off + len) / MP_BLOCK; i++)
		file_of(d)->homeless += !file_of(d)->has[i];
	return mem_write(d, off, buf, len, flags);
}

/* All or nothing. */
static int file_reserve(struct mp_dev *d, u64 off, u64 len)
{
	struct file *f = file_of(d);
	u64 i, need = 0, end = (off + len) / MP_BLOCK;
	u64 *from = off < LOGS ? &left : &left_data;

	f->reserves++;
	for (i = off / MP_BLOCK; i < end; i++)
		need += !f->has[i];
	if (need > *from)
		return -ENOSPC;
	*from -= need;
	memset(f->has + off / MP_BLOCK, 1, len / MP_BLOCK);
	return 0;
}

static u64 file_reserved(struct mp_dev *d, u64 off, u64 len)
{
	u64 n = 0;

	while (n < len && file_of(d)->has[(off + n) / MP_BLOCK])
		n += MP_BLOCK;
	return n;
}

static u64 file_data(struct mp_dev *d, u64 off, u64 end)
{
	while (off < end && !file_of(d)->has[off / MP_BLOCK])
		off += MP_BLOCK;
	return off;
}

static const struct mp_dev_ops file_ops = {
	.read = mem_read, .write = file_write, .flush = mem_flush, .reserve = file_reserve,
	.reserved = file_reserved, .data = file_data,
};

/* One that cannot say what it has. */
static const struct mp_dev_ops mute_ops = {
	.read = mem_read, .write = file_write, .flush = mem_flush, .reserve = file_reserve,
};

static void start_on(u32 n, const struct mp_dev_ops *ops)
{
	static const u32 mclass[2] = { MP_CAPACITY, MP_STAGING };
	struct mp_create c = { .mc_name = "sparse", .mc_ndevs = n, .mc_dev = r.dev,
			       .mc_mclass = mclass, .mc_md_bytes = REGION };
	u32 i;

	memset(&r, 0, sizeof(r));
	memset(file, 0, sizeof(file));
	left = ~0ull;
	left_data = ~0ull;
	r.n = n;
	for (i = 0; i < n; i++) {
		mem_init(&r.m[i], SIZE);
		r.m[i].dev.d_ops = ops;
		r.dev[i] = &r.m[i].dev;
	}
	T_EQ(mp_pool_create(&c), 0);
	T_EQ(rig_open(&r), 0);
	T_EQ(r.pool->p_md.md_bytes, REGION);
}

static void start(u32 n)
{
	start_on(n, &file_ops);
}

/* what the logs of member @i take of the file system */
static u64 taken(u32 i)
{
	u64 k, n = 0;

	for (k = 0; k < LOGS / MP_BLOCK; k++)
		n += file[i].has[k];
	return n * MP_BLOCK;
}

static void finish(void)
{
	T_EQ(file[0].homeless + file[1].homeless, 0);
	rig_fini(&r);
}

#define STEP	100

/* @n objects in batches, each of which is whole or not; returns how many */
static u64 add_kind(u64 n, u32 kind)
{
	static struct mp_obj *o[STEP];
	struct mp_alloc a[STEP];
	struct mp_op op[STEP];
	u64 done = 0, i, k;
	int rc = 0;

	while (done < n && !rc) {
		k = min_t(u64, n - done, STEP);
		for (i = 0; i < k; i++)
			a[i] = (struct mp_alloc){ .al_kind = kind, .al_capacity = 4096,
						  .al_tag = 7 };
		rc = mp_obj_alloc(r.pool, a, (u32)k, o);
		if (rc)
			break;
		for (i = 0; i < k; i++)
			op[i] = (struct mp_op){ .op_type = MP_OP_COMMIT, .op_obj = o[i] };
		if (kind == MP_MBLOCK)
			rc = mp_pool_batch(r.pool, op, (u32)k);
		done += rc ? 0 : k;
		for (i = 0; i < k; i++)
			mp_obj_put(o[i]);
	}
	return done;
}

static u64 add(u64 n)
{
	return add_kind(n, MP_APPEND);
}

/* The first @n objects, one record each. */
static void delete(u64 n)
{
	static struct mp_obj_info oi[64];
	int got, i;

	while (n && (got = mp_obj_list(r.pool, 0, 0, oi, (u32)min_t(u64, n, 64))) > 0) {
		for (i = 0; i < got; i++)
			T_EQ(delete_id(r.pool, oi[i].oi_id), 0);
		n -= (u64)got;
	}
	T_EQ(n, 0);
}

static void an_empty_pool_takes_little(void)
{
	start(2);
	T_EQ(taken(0), MP_SB_AREA + 2 * MP_MD_FIRST);
	T_EQ(taken(1), MP_SB_AREA + 2 * MP_MD_FIRST);
	finish();
}

/* However often it is written anew. */
static void a_log_of_little_state_stays_small(void)
{
	u64 epoch;
	u32 i;

	start(1);
	epoch = r.pool->p_md.md_epoch;
	T_EQ(add(200), 200);
	for (i = 0; i < 1000; i++) {
		T_EQ(add(1), 1);
		delete(1);
	}
	T_OK(r.pool->p_md.md_epoch > epoch + 5);
	T_EQ(taken(0), MP_SB_AREA + 2 * MP_MD_FIRST);
	rig_reopen(&r, 1);
	T_EQ(count_objs(&r), 200);
	finish();
}

static void space_comes_before_the_records(void)
{
	u32 i;

	for (i = 0; i < 2; i++) {
		start_on(2, i ? &mute_ops : &file_ops);
		T_EQ(add(10000), 10000);
		T_OK(taken(0) > 2 * r.pool->p_ckpt && taken(0) <= 12 * r.pool->p_ckpt);
		T_EQ(taken(0), taken(1));
		delete(3000);
		rig_reopen(&r, 1);
		T_EQ(count_objs(&r), 7000);
		delete(1000);
		T_EQ(add(2000), 2000);
		rig_reopen(&r, 0);
		T_EQ(count_objs(&r), 8000);
		finish();
	}
}

/* It has what it needs, and asks for nothing. */
static void an_open_reserves_nothing(void)
{
	start(1);
	T_EQ(add(5000), 5000);
	left = 0;
	file[0].reserves = 0;
	rig_reopen(&r, 1);
	T_EQ(file[0].reserves, 0);
	T_EQ(count_objs(&r), 5000);
	finish();
}

/*
 * The file system is full: what needs more is told so and nothing has changed, what makes room
 * goes on for as many epochs as it takes.
 */
static void a_full_file_system_takes_every_delete(void)
{
	u64 had, epoch;
	u32 n, i;

	for (i = 0; i < 4; i++) {
		n = 1 + i / 2;
		start_on(n, i & 1 ? &mute_ops : &file_ops);
		T_EQ(add(2000), 2000);
		/* in one, of two, is less than the other */
		left = n == 2 ? (taken(0) - MP_SB_AREA) / MP_BLOCK / 2 : 0;
		had = 2000 + add(20000);
		T_OK(had < 15000);
		T_EQ(os_user_error()->oe_id, MP_RESERVE);
		T_OK(strstr(os_user_error()->oe_text, "the file system below is full"));
		T_EQ(count_objs(&r), had);
		T_EQ(mp_pool_writable(r.pool), 0);
		left = 0;
		rig_reopen(&r, 1);
		T_EQ(count_objs(&r), had);
		epoch = r.pool->p_md.md_epoch;
		delete(had);
		T_OK(r.pool->p_md.md_epoch >= epoch + 2);
		T_EQ(count_objs(&r), 0);
		/* in what they left there is room again */
		T_OK(add(1000) == 1000);
		left = ~0ull;
		T_EQ(add(9000), 9000);
		rig_reopen(&r, 1);
		T_EQ(count_objs(&r), 10000);
		finish();
	}
}

/* The end of the file system's space, block by block: refused whole, or done. */
static void it_is_full_at_any_point(void)
{
	u64 blocks, had;

	for (blocks = 0; blocks < 700; blocks += 47) {
		start(1);
		left = blocks;
		had = add_kind(12000, blocks & 1 ? MP_MBLOCK : MP_APPEND);
		delete(had / 2);
		rig_reopen(&r, 1);
		T_EQ(count_objs(&r), had - had / 2);
		delete(had - had / 2);
		finish();
	}
}

/* A copy that left out what holds zeroes: the open gets the space, or writes nothing. */
static void a_copy_without_its_space_is_given_it_or_left_alone(void)
{
	u8 never[MP_BLOCK];
	u64 i;

	memset(never, 0xa5, sizeof(never));
	start(1);
	T_EQ(add(2000), 2000);
	T_EQ(mp_pool_close(r.pool), 0);
	r.pool = NULL;
	for (i = 0; i < LOGS / MP_BLOCK; i++)
		file[0].has[i] = !!memcmp(r.m[0].now + i * MP_BLOCK, never, MP_BLOCK);
	left = 0;
	r.m[0].writes = 0;
	T_EQ(rig_open(&r), -ENOSPC);
	T_EQ(os_user_error()->oe_id, MP_RESERVE);
	T_EQ(r.m[0].writes, 0);
	left = ~0ull;
	T_EQ(rig_open(&r), 0);
	T_EQ(count_objs(&r), 2000);
	T_EQ(add(1000), 1000);
	finish();
}

/* ---- containers ---- */

#define RECORD	5000u
#define LOG	(4u << 20)

static struct mp_mlog *l;
static u64 ids[2];

static void log_open(void)
{
	T_EQ(mp_root_get(r.pool, "kvdb", ids), 0);
	T_EQ(mp_mlog_open(r.pool, ids[0], &l), 0);
}

/* what the logs of the container take, a region of which is whole to its first hole */
static u64 log_space(u64 id)
{
	struct mp_dev *dev;
	struct mp_obj *o;
	u64 pos, n, off = 0;

	T_EQ(mp_obj_open(r.pool, id, &o), 0);
	T_EQ(mp_obj_map(o, 0, LOG, &dev, &pos, &n), 0);
	T_EQ(n, LOG);
	while (off < LOG && file_of(dev)->has[(pos + off) / MP_BLOCK])
		off += MP_BLOCK;
	mp_obj_put(o);
	return off;
}

static int log_put(u64 nth)
{
	static u8 rec[RECORD];
	struct mp_vec v = { rec, RECORD };

	memset(rec, (int)nth, sizeof(rec));
	return mp_mlog_append(l, &v, 1, nth & 1);
}

/* records that are there, each as it was written */
static u64 log_count(void)
{
	static u8 rec[RECORD];
	u64 pos = 0, n = 0;
	size_t len;

	while (!mp_mlog_read(l, &pos, rec, sizeof(rec), &len)) {
		T_EQ(len, RECORD);
		T_EQ(rec[0], (u8)n);
		T_EQ(rec[RECORD - 1], (u8)n);
		n++;
	}
	return n;
}

static void log_start(const struct mp_dev_ops *ops)
{
	start_on(1, ops);
	T_EQ(mp_root_create(r.pool, "kvdb", MP_CAPACITY, LOG, 1), 0);
	log_open();
}

static void log_again(bool is_cut)
{
	mp_mlog_close(l);
	rig_reopen(&r, is_cut);
	log_open();
}

static void log_finish(void)
{
	mp_mlog_close(l);
	finish();
}

static void a_container_gets_space_as_it_grows(void)
{
	u64 n = 0, i;

	for (i = 0; i < 2; i++) {
		log_start(i ? &mute_ops : &file_ops);
		T_EQ(log_space(ids[0]), MP_LOG_FIRST);
		T_EQ(log_space(ids[1]), MP_LOG_FIRST);
		for (n = 0; n < 80; n++)
			T_EQ(log_put(n), 0);
		T_EQ(log_space(ids[0]), MP_LOG_FIRST);
		for (; n < 300; n++)
			T_EQ(log_put(n), 0);
		T_OK(log_space(ids[0]) < LOG);
		log_again(true);
		T_EQ(log_count(), 300);
		while (!log_put(n))
			n++;
		T_EQ(os_user_error()->oe_id, MP_MLOG_FULL);
		T_EQ(log_space(ids[0]), LOG);
		T_EQ(log_space(ids[1]), MP_LOG_FIRST);
		log_again(false);
		T_EQ(log_count(), n);
		log_finish();
	}
}

/* A record that there is no space for does not fit. What was taken is not lost, nor the log. */
static void a_log_on_a_full_file_system_takes_what_it_can_write(void)
{
	u64 blocks, n, have;
	u32 i;

	for (i = 0; i < 2; i++) {
		for (blocks = 0; blocks < 600; blocks += 75) {
			log_start(i ? &mute_ops : &file_ops);
			left_data = blocks;
			for (n = 0; !log_put(n); n++)
				;
			T_EQ(os_user_error()->oe_id, MP_RESERVE);
			T_EQ(log_put(n), -EFBIG);
			T_EQ(mp_mlog_reserve(l, LOG, 0, &have), -ENOSPC);
			T_EQ(mp_mlog_reserve(l, 0, LOG, &have), 0);
			T_OK(have >= MP_LOG_FIRST && have < LOG && have / (2 * RECORD) < n);
			T_EQ(mp_mlog_sync(l), 0);
			T_EQ(log_count(), n);
			left_data = 0;
			log_again(true);
			T_EQ(log_count(), n);
			T_EQ(log_put(n), -EFBIG);
			/* as an erase makes room for as many */
			T_EQ(mp_mlog_erase(l), 0);
			for (n = 0; n < MP_LOG_FIRST / RECORD / 2; n++)
				T_EQ(log_put(n), 0);
			left_data = ~0ull;
			T_EQ(mp_mlog_reserve(l, LOG, 0, &have), 0);
			T_EQ(have, LOG);
			for (; n < 400; n++)
				T_EQ(log_put(n), 0);
			log_again(true);
			T_EQ(log_count(), 400);
			log_finish();
		}
	}
}

/* A log that is no container's is its client's, which was promised all of it. */
static void other_logs_have_all_their_space(void)
{
	struct mp_alloc a = { .al_kind = MP_MLOG, .al_capacity = LOG, .al_tag = 7 };
	struct mp_obj *o;
	u64 n = 0;

	start(1);
	T_EQ(mp_obj_alloc(r.pool, &a, 1, &o), 0);
	left_data = 0;
	T_EQ(mp_mlog_open(r.pool, mp_obj_id(o), &l), 0);
	while (!log_put(n))
		n++;
	T_EQ(os_user_error()->oe_id, MP_MLOG_FULL);
	mp_obj_put(o);
	log_finish();
}

/* ---- holes ---- */

/* A region is MP_MD_FIRST long at first, of which the frames are a part. */
static void an_open_reads_no_holes(void)
{
	log_start(&file_ops);
	T_EQ(log_put(0), 0);
	T_EQ(log_put(1), 0);
	mp_mlog_close(l);
	T_EQ(mp_pool_close(r.pool), 0);
	r.pool = NULL;
	r.m[0].bytes_read = 0;
	T_EQ(rig_open(&r), 0);
	log_open();
	T_EQ(log_count(), 2);
	T_OK(r.m[0].bytes_read < 4 * MP_MD_FIRST + 2 * MP_LOG_FIRST);
	log_finish();
}

/* what a copy left out of the member at @off: it reads as what was never written */
static void punch(u64 off, u64 len)
{
	memset(r.m[0].now + off, 0, len);
	memset(file[0].has + off / MP_BLOCK, 0, len / MP_BLOCK);
}

/* The open looks behind the first hole: a frame there says what is gone (INV-22). */
static void a_frame_behind_a_hole_proves_what_is_missing(void)
{
	u64 at, len;

	start(1);
	T_EQ(add(STEP), STEP);
	at = MP_SB_AREA + (r.pool->p_md.md_epoch & 1) * REGION + r.pool->p_md.md_tail;
	len = 100 * MP_BLOCK;
	while (MP_SB_AREA + (r.pool->p_md.md_epoch & 1) * REGION + r.pool->p_md.md_tail <= at + len)
		T_EQ(add(1), 1);
	mp_pool_close(r.pool);
	r.pool = NULL;
	punch(at, len);
	T_EQ(rig_open(&r), -EUCLEAN);
	finish();
}

static void a_record_behind_a_hole_proves_what_is_missing(void)
{
	struct mp_dev *dev;
	struct mp_obj *o;
	u64 pos, n;

	log_start(&file_ops);
	for (n = 0; n < 60; n++)
		T_EQ(log_put(n), 0);
	mp_mlog_close(l);
	T_EQ(mp_obj_open(r.pool, ids[0], &o), 0);
	T_EQ(mp_obj_map(o, 0, LOG, &dev, &pos, &n), 0);
	mp_obj_put(o);
	punch(pos + 4 * (2 * MP_BLOCK), 16 * MP_BLOCK);
	T_EQ(mp_mlog_open(r.pool, ids[0], &l), -EUCLEAN);
	T_EQ(os_user_error()->oe_id, MP_MLOG_CORRUPT);
	finish();
}

int main(void)
{
	T_RUN(an_empty_pool_takes_little);
	T_RUN(a_log_of_little_state_stays_small);
	T_RUN(space_comes_before_the_records);
	T_RUN(an_open_reserves_nothing);
	T_RUN(a_full_file_system_takes_every_delete);
	T_RUN(it_is_full_at_any_point);
	T_RUN(a_copy_without_its_space_is_given_it_or_left_alone);
	T_RUN(a_container_gets_space_as_it_grows);
	T_RUN(a_log_on_a_full_file_system_takes_what_it_can_write);
	T_RUN(other_logs_have_all_their_space);
	T_RUN(an_open_reads_no_holes);
	T_RUN(a_frame_behind_a_hole_proves_what_is_missing);
	T_RUN(a_record_behind_a_hole_proves_what_is_missing);
	return t_done();
}
