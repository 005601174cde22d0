/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Crafted media for the checks of the core that random damage never reaches:
 * every checksum here is right, so exactly one check can refuse.
 */
#include "core_mem.h"
#include "member.h"
#include "poolcfg.h"

#include <fcntl.h>
#include <unistd.h>

#define MD_OFF	(64u << 10)	/* of a pool on small devices */

static struct rig r;

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

/* ---- superblocks ---- */

/* Rewrites every copy of the superblock of device @i with another content. */
static void sb_change(struct mem *m, void (*change)(struct mp_sb *sb))
{
	static struct mp_sb sb;
	u32 c;

	for (c = 0; c < MP_SB_COPIES; c++) {
		u64 at = mp_sb_copy_addr(m->dev.d_size, c);

		T_EQ(mp_sb_decode(m->now + at, at, &sb), 0);
		change(&sb);
		mp_sb_encode(&sb, m->now + at);
	}
}

static void other_pool(struct mp_sb *sb)
{
	sb->sb_uuid[3] ^= 1;
}

static void destroyed(struct mp_sb *sb)
{
	sb->sb_state = MP_SB_DESTROYED;
}

static void other_table(struct mp_sb *sb)
{
	sb->sb_dev[0].sd_uuid[3] ^= 1;
}

static void later_feature(struct mp_sb *sb)
{
	sb->sb_ro_compat = 1ull << 40;
}

static void later_harmless_feature(struct mp_sb *sb)
{
	sb->sb_compat = 1ull << 40;
}

static void member_of_another_pool_is_refused(void)
{
	rig_init(&r, 2, 8 << 20);
	sb_change(&r.m[1], other_pool);
	T_EQ(rig_open(&r), -EINVAL);
	rig_fini(&r);
}

static void destroyed_member_is_refused(void)
{
	rig_init(&r, 2, 8 << 20);
	sb_change(&r.m[1], destroyed);
	T_OK(rig_open(&r));
	rig_fini(&r);
}

static void members_that_disagree_about_the_devices_are_refused(void)
{
	start(2);
	stop();
	sb_change(&r.m[1], other_table);
	T_EQ(rig_open(&r), -EUCLEAN);
	rig_fini(&r);
}

static void later_feature_is_read_only(void)
{
	rig_init(&r, 1, 8 << 20);
	sb_change(&r.m[0], later_feature);
	T_OK(rig_open(&r));
	T_EQ(mp_pool_open(r.dev, 1, MP_OPEN_RDONLY, &r.pool), 0);
	rig_fini(&r);
}

/* The program that knows it finds it again behind one that does not. */
static void later_harmless_feature_opens_and_stays(void)
{
	static struct mp_sb sb;

	rig_init(&r, 1, 8 << 20);
	sb_change(&r.m[0], later_harmless_feature);
	T_EQ(rig_open(&r), 0);
	T_EQ(mp_pool_rename(r.pool, "other"), 0);
	T_EQ(mp_sb_decode(r.m[0].now, 0, &sb), 0);
	T_OK(!strcmp(sb.sb_name, "other"));
	T_EQ(sb.sb_compat, 1ull << 40);
	rig_fini(&r);
}

/* A foreign signature, all else of the superblock left. */
static void foreign_signature_is_refused(void)
{
	rig_init(&r, 1, 8 << 20);
	memcpy(r.m[0].now, "LUKS\xba\xbe\0\1", 8);
	T_EQ(rig_open(&r), -EINVAL);
	rig_fini(&r);
}

static void shrunk_device_without_its_first_copy_is_refused(void)
{
	u64 cut = 4096;
	u32 k;

	for (k = 0; k < 2; k++) {
		rig_init(&r, 1, 8 << 20);
		if (k)	/* the middle copy is found by the new size and tells the old one */
			r.m[0].now[100] ^= 1;
		r.m[0].dev.d_size -= cut;
		T_EQ(rig_open(&r), -EUCLEAN);
		rig_fini(&r);
	}
}

/* Both devices of the log come back as they once were, the third does not. */
static void old_log_with_a_newer_member_is_refused(void)
{
	static const u32 mclass[3] = { MP_CAPACITY, MP_CAPACITY, MP_STAGING };
	struct mem m[3];
	struct mp_dev *dev[3];
	struct mp_create c = { .mc_name = "old", .mc_ndevs = 3, .mc_dev = dev,
			       .mc_mclass = mclass };
	struct mp_member mb;
	struct mp_pool *pool;
	u8 *old[3];
	int has_md[3];
	u32 i, k;

	for (i = 0; i < 3; i++) {
		mem_init(&m[i], 8 << 20);
		dev[i] = &m[i].dev;
		old[i] = malloc(8 << 20);
	}
	T_EQ(mp_pool_create(&c), 0);
	for (k = 0; k < 3; k++) {
		T_EQ(mp_pool_open(dev, 3, 0, &pool), 0);
		for (i = 0; i < 3; i++) {
			T_EQ(mp_pool_member(pool, i, &mb), 0);
			has_md[i] = mb.mb_has_md;
		}
		T_EQ(mp_pool_close(pool), 0);
		for (i = 0; i < 3 && !k; i++)
			memcpy(old[i], m[i].now, 8 << 20);
	}
	T_EQ(has_md[0] + has_md[1] + has_md[2], 2);
	for (i = 0; i < 3; i++)
		if (has_md[i])
			memcpy(m[i].now, old[i], 8 << 20);
	T_EQ(mp_pool_open(dev, 3, 0, &pool), -ESTALE);
	for (i = 0; i < 3; i++) {
		mem_fini(&m[i]);
		free(old[i]);
	}
}

/* ---- the metadata log ---- */

struct tail {
	u64 off;		/* where the next frame belongs, bytes */
	struct mp_frame fr;	/* the last one */
	u8 uuid[MP_UUID_LEN];
};

/* the end of the log of device 0, which is in region @region */
static void tail_find(u32 region, struct tail *t)
{
	static struct mp_sb sb;
	struct mp_frame fr;

	T_EQ(mp_sb_decode(r.m[0].now, 0, &sb), 0);
	memcpy(t->uuid, sb.sb_uuid, MP_UUID_LEN);
	t->off = sb.sb_md_off + region * sb.sb_md_bytes;
	while (!mp_frame_decode(r.m[0].now + t->off, t->uuid, t->off, MP_FRAME_MAX / MP_BLOCK,
				&fr)) {
		t->fr = fr;
		t->off += (u64)fr.mf_blocks * MP_BLOCK;
	}
}

/* A new object of one block far away from the others. */
static void rec_obj(struct mp_rec *rec, struct mp_extent *ex, u64 id)
{
	memset(rec, 0, sizeof(*rec));
	*ex = (struct mp_extent){ .ex_start = 1500, .ex_count = 1 };
	rec->r_type = MP_REC_OBJ;
	rec->r_id = id;
	rec->r_kind = MP_APPEND;
	rec->r_capacity = MP_BLOCK;
	rec->r_nextents = 1;
	rec->r_extent = ex;
}

/* The frame that would follow; the caller changes what it likes before frame_put(). */
static void frame_next(const struct tail *t, struct mp_frame *fr)
{
	*fr = t->fr;
	fr->mf_flags = 0;
	fr->mf_blocks = 1;
	fr->mf_addr = t->off;
	fr->mf_seq = t->fr.mf_seq + 1;
	fr->mf_durable = 0;
	fr->mf_prev = t->fr.mf_csum;
	fr->mf_nrecs = 1;
}

static void frame_put(const struct tail *t, struct mp_frame *fr, const struct mp_rec *rec)
{
	u8 *at = r.m[0].now + t->off;

	memset(at, 0, MP_BLOCK);
	fr->mf_len = mp_rec_encode(rec, at + MP_FRAME_HDR);
	mp_frame_encode(fr, t->uuid, at);
}

enum wrong {
	NOTHING, EPOCH, SEQ, PREV,		/* no continuation: as if it were not there */
	COUNT, MARK, ID, BEYOND, EXTENT, EMPTY, SEALED, UNEVEN,	/* impossible: refused */
	WRONGS,
};

static void frame_wrong(const struct tail *t, enum wrong what, u64 id)
{
	struct mp_extent ex[2] = { { 0 }, { .ex_start = 1501 } };
	struct mp_frame fr;
	struct mp_rec rec;

	frame_next(t, &fr);
	rec_obj(&rec, ex, fr.mf_id_hwm - 1);
	if (what == EPOCH)
		fr.mf_epoch += 2;
	else if (what == SEQ)
		fr.mf_seq++;
	else if (what == PREV)
		fr.mf_prev ^= 1;
	else if (what == COUNT)
		fr.mf_nrecs = 2;
	else if (what == MARK)
		fr.mf_id_hwm = MP_ID_LAST + 1;
	else if (what == ID)
		rec.r_id = MP_ID_LAST;
	else if (what == BEYOND)
		rec.r_id = fr.mf_id_hwm;
	else if (what == EXTENT)
		ex[0].ex_slot = 1;
	else if (what == EMPTY)
		rec.r_nextents = 2;
	if (what >= SEALED) {
		memset(&rec, 0, sizeof(rec));
		rec.r_type = MP_REC_SEAL;
		rec.r_id = id;
		rec.r_flags = MP_OBJF_SEALED;
		rec.r_length = what == SEALED ? 2 * MP_BLOCK : 100;
	}
	frame_put(t, &fr, &rec);
}

static void each_check_of_a_frame_works(void)
{
	struct mp_obj_info oi;
	struct tail t;
	int what, rc;

	for (what = NOTHING; what < WRONGS; what++) {
		start(1);
		add_objs(&r, 5);
		T_EQ(mp_obj_list(r.pool, 0, 0, &oi, 1), 1);
		stop();
		tail_find(1, &t);
		frame_wrong(&t, (enum wrong)what, oi.oi_id);
		rc = mp_pool_open(r.dev, 1, MP_OPEN_RDONLY, &r.pool);
		if (rc != (what >= COUNT ? -EUCLEAN : 0))
			T_FAIL("frame %d: open says %d", what, rc);
		if (!rc && count_objs(&r) != (what == NOTHING ? 6u : 5u))
			T_FAIL("frame %d: %llu objects", what, (unsigned long long)count_objs(&r));
		rig_fini(&r);
	}
}

/* As a delete of a log by its id once left it: not named elsewhere, and in the way. */
static void container_without_its_logs_is_removed(void)
{
	static const u64 off[3][2] = { { 0, 0 }, { 0, 77 }, { 77, 78 } };
	struct mp_obj *o;
	struct mp_frame fr;
	struct mp_rec rec;
	struct tail t;
	u64 log, id[2];
	u32 i;

	for (i = 0; i < 3; i++) {
		start(1);
		T_EQ(alloc_one(r.pool, MP_MLOG, 4096, &o), 0);
		log = mp_obj_id(o);
		mp_obj_put(o);
		stop();
		tail_find(1, &t);
		frame_next(&t, &fr);
		memset(&rec, 0, sizeof(rec));
		rec.r_type = MP_REC_ROOT;
		strcpy(rec.r_name, "half");
		rec.r_root[0] = log + off[i][0];
		rec.r_root[1] = log + off[i][1];
		frame_put(&t, &fr, &rec);
		T_EQ(rig_open(&r), 0);
		T_EQ(mp_root_delete(r.pool, "half"), 0);
		rig_reopen(&r, 0);
		T_EQ(mp_root_get(r.pool, "half", id), -ENOENT);
		T_EQ(count_objs(&r), i == 2);
		T_EQ(mp_root_create(r.pool, "half", MP_CAPACITY, 4096, 1), 0);
		rig_fini(&r);
	}
}

#define FULL_BYTES	(256u << 10)	/* of a region */
#define FULL_PART	(64u << 10)	/* a frame of a checkpoint in it */
#define FULL_OBJS	3524u		/* whose checkpoint has 63 blocks, and one for its end */

/* region 1 as one checkpoint that fills it */
static void full_write(const u8 *uuid)
{
	struct mp_extent ex = { .ex_start = 200, .ex_count = 1 };
	struct mp_frame fr = { .mf_flags = MP_FRAME_CKPT, .mf_epoch = 1, .mf_seq = 5, .mf_gen = 3,
			       .mf_addr = MD_OFF + FULL_BYTES, .mf_id_hwm = FULL_OBJS + 1 };
	struct mp_rec rec;
	u32 id = 1;
	u8 *at;

	for (; !(fr.mf_flags & MP_FRAME_END); fr.mf_addr += (u64)fr.mf_blocks * MP_BLOCK) {
		at = r.m[0].now + fr.mf_addr + MP_FRAME_HDR;
		fr.mf_len = fr.mf_nrecs = 0;
		for (; id <= FULL_OBJS && fr.mf_len + 72 <= FULL_PART - MP_FRAME_HDR; id++) {
			rec_obj(&rec, &ex, id);
			ex.ex_start = 199 + id + (199 + id >= 2048);
			fr.mf_len += mp_rec_encode(&rec, at + fr.mf_len);
			fr.mf_nrecs++;
		}
		fr.mf_flags |= fr.mf_nrecs ? 0 : MP_FRAME_END;
		fr.mf_blocks = DIV_ROUND_UP(MP_FRAME_HDR + fr.mf_len, MP_BLOCK);
		fr.mf_seq++;
		mp_frame_encode(&fr, uuid, r.m[0].now + fr.mf_addr);
		fr.mf_prev = fr.mf_csum;
	}
	T_EQ(fr.mf_addr, MD_OFF + 2 * FULL_BYTES);
}

/* No frame of ours would find room behind its checkpoint. */
static void log_that_somebody_has_filled_is_refused(void)
{
	static struct mp_sb sb;
	u8 *was;

	rig_init(&r, 1, 16 << 20);
	T_EQ(mp_sb_decode(r.m[0].now, 0, &sb), 0);
	T_EQ(sb.sb_md_bytes, FULL_BYTES);
	full_write(sb.sb_uuid);
	was = malloc(16 << 20);
	memcpy(was, r.m[0].now, 16 << 20);
	T_EQ(mp_pool_open(r.dev, 1, MP_OPEN_RDONLY, &r.pool), 0);
	T_EQ(count_objs(&r), FULL_OBJS);
	stop();
	T_EQ(rig_open(&r), -EUCLEAN);
	T_MEMEQ(was, r.m[0].now, 16 << 20);
	free(was);
	rig_fini(&r);
}

/*
 * Records follow the newest checkpoint, so it was complete once. The epoch
 * before it is whole too, but no longer the truth.
 */
static void a_log_without_any_checkpoint_is_refused(void)
{
	static struct mp_sb sb;

	start(1);
	stop();
	T_EQ(mp_sb_decode(r.m[0].now, 0, &sb), 0);
	memset(r.m[0].now + sb.sb_md_off, 0, 2 * sb.sb_md_bytes);
	T_EQ(rig_open(&r), -EUCLEAN);
	T_EQ(os_user_error()->oe_id, MP_MD_NONE);
	rig_fini(&r);
}

static void damaged_newest_checkpoint_is_refused(void)
{
	struct mp_frame fr;
	static struct mp_sb sb;
	u32 k;

	for (k = 0; k < 2; k++) {
		u64 off = MD_OFF;

		start(1);
		do {	/* until region 0 holds epoch 2 and a record behind it */
			add_objs(&r, 1);
			T_EQ(mp_sb_decode(r.m[0].now, 0, &sb), 0);
			T_EQ(mp_frame_peek(r.m[0].now + off, sb.sb_uuid, off,
					   MP_FRAME_MAX / MP_BLOCK, &fr), 0);
		} while (fr.mf_epoch != 2);
		add_objs(&r, 3);
		stop();
		/* its first part, or the mark that makes it count */
		off += k ? (u64)fr.mf_blocks * MP_BLOCK : 0;
		r.m[0].now[off + 100] ^= 1;
		T_EQ(rig_open(&r), -EUCLEAN);
		rig_fini(&r);
	}
}

static void memory_of_an_open_is_bounded(void)
{
	struct mp_obj *o = NULL;

	start(1);
	r.pool->p_mem_max = r.pool->p_mem;
	T_EQ(alloc_one(r.pool, MP_APPEND, 4096, &o), -ENOSPC);
	T_EQ(os_user_error()->oe_id, MP_MD_LIMIT);
	r.pool->p_mem_max += 4096;
	T_EQ(alloc_one(r.pool, MP_APPEND, 4096, &o), 0);
	mp_obj_put(o);
	rig_fini(&r);
}

/* by the module, say, whose objects take less than those of a process: it opens there */
static void what_was_made_opens_where_objects_take_more(void)
{
	struct mp_obj *o = NULL;
	u64 full;
	int rc;

	start(1);
	full = r.pool->p_mem_max;
	r.pool->p_mem_max = 32 << 10;
	do {
		rc = alloc_one(r.pool, MP_APPEND, 4096, &o);
		if (!rc)
			mp_obj_put(o);
	} while (!rc);
	T_EQ(rc, -ENOSPC);
	T_OK(r.pool->p_mem * 8 / 7 <= r.pool->p_mem_max);
	/* and what an open takes stays within its bound: INV-13 */
	T_OK(full * 8 / 7 <= (64u << 20) + r.m[0].dev.d_size / 1024);
	rig_fini(&r);
}

/* More ids than one mark covers, none of them ever on media: not one comes twice. */
static void ids_beyond_the_durable_mark_are_not_given_out(void)
{
	struct mp_obj *o;
	u64 last = 0;
	int i;

	start(1);
	r.pool->p_next_id = r.pool->p_md.md_id_hwm - 5;
	for (i = 0; i < 10; i++) {
		T_EQ(alloc_one(r.pool, MP_MBLOCK, 4096, &o), 0);
		last = mp_obj_id(o);
		mp_obj_put(o);
	}
	rig_reopen(&r, 1);
	T_EQ(alloc_one(r.pool, MP_MBLOCK, 4096, &o), 0);
	T_OK(mp_obj_id(o) > last);
	mp_obj_put(o);
	rig_fini(&r);
}

/* The last id is the end, also after a reopening: none is given twice. */
static void ids_end_and_do_not_begin_again(void)
{
	struct mp_obj *o;
	u64 last = 0;
	int i, rc = 0;

	start(1);
	r.pool->p_next_id = MP_ID_LAST - 5;
	for (i = 0; i < 10 && !rc; i++) {
		rc = alloc_one(r.pool, MP_APPEND, 4096, &o);
		if (rc)
			break;
		T_OK(mp_obj_id(o) > last && mp_obj_id(o) < MP_ID_LAST);
		last = mp_obj_id(o);
		mp_obj_put(o);
	}
	T_EQ(i, 5);
	T_EQ(rc, -ENOSPC);
	rig_reopen(&r, 1);
	T_EQ(count_objs(&r), 5);
	T_EQ(alloc_one(r.pool, MP_MBLOCK, 4096, &o), -ENOSPC);
	T_EQ(delete_id(r.pool, last), 0);
	rig_fini(&r);
}

/* ---- objects ---- */

static void writes_stay_inside_their_object(void)
{
	struct mp_obj *o;

	start(1);
	T_EQ(alloc_one(r.pool, MP_APPEND, 8192, &o), 0);
	T_OK(mp_obj_write_begin(o, 0, 12288));
	T_OK(mp_obj_write_begin(o, 0, ~0ull & ~4095ull));
	T_OK(mp_obj_write_begin(o, 0, 512));
	T_OK(mp_obj_write_begin(o, 0, 0));
	T_EQ(mp_obj_write_begin(o, 0, 4096), 0);
	mp_obj_write_end(o, 0, 0);
	T_OK(mp_obj_write_begin(o, 4096, 8192));
	T_EQ(mp_obj_write_begin(o, 4096, 4096), 0);
	T_OK(mp_obj_write_begin(o, 8192, 4096));
	mp_obj_write_end(o, 4096, 0);
	mp_obj_put(o);
	rig_fini(&r);
}

static void failed_write_is_never_committed(void)
{
	struct mp_obj *o;

	start(1);
	T_EQ(alloc_one(r.pool, MP_MBLOCK, 16384, &o), 0);
	T_EQ(fill(o, 0, 4096, 1), 0);
	T_EQ(mp_obj_write_begin(o, 4096, 4096), 0);
	mp_obj_write_end(o, 4096, -EIO);
	T_EQ(mp_obj_write_begin(o, 8192, 4096), 0);
	mp_obj_write_end(o, 8192, 0);
	T_OK(commit(r.pool, o, 12288));
	T_OK(commit(r.pool, o, 8192));
	T_EQ(commit(r.pool, o, 4096), 0);
	mp_obj_put(o);
	rig_fini(&r);
}

/* ---- logs ---- */

struct log {
	u64 id, pos;		/* where it begins on the device, bytes */
};

static void log_make(struct log *lg, int frames, int is_sealed)
{
	struct mp_vec v = { .v_buf = "record", .v_len = 6 };
	struct mp_dev *dev;
	struct mp_mlog *l;
	struct mp_obj *o;
	u64 n;

	start(1);
	T_EQ(alloc_one(r.pool, MP_MLOG, 65536, &o), 0);
	lg->id = mp_obj_id(o);
	T_EQ(mp_obj_map(o, 0, 65536, &dev, &lg->pos, &n), 0);
	mp_obj_put(o);
	T_EQ(mp_mlog_open(r.pool, lg->id, &l), 0);
	while (frames--)
		T_EQ(mp_mlog_append(l, &v, 1, true), 0);
	if (is_sealed)
		T_EQ(mp_mlog_seal(l), 0);
	mp_mlog_close(l);
}

/* opens the log: its number of records, or what the open says */
static int log_count(const struct log *lg)
{
	struct mp_mlog *l;
	char buf[64];
	size_t len;
	u64 pos = 0;
	int n, rc;

	rc = mp_mlog_open(r.pool, lg->id, &l);
	if (rc)
		return rc;
	for (n = 0; !mp_mlog_read(l, &pos, buf, sizeof(buf), &len); n++)
		;
	mp_mlog_close(l);
	return n;
}

static void damage_inside_a_log_is_refused(void)
{
	struct log lg;

	log_make(&lg, 3, 0);
	r.m[0].now[lg.pos + 4096 + 100] ^= 1;
	T_EQ(log_count(&lg), -EUCLEAN);
	rig_fini(&r);
	/* the last frame only: no proof that it was ever durable */
	log_make(&lg, 3, 0);
	r.m[0].now[lg.pos + 8192 + 100] ^= 1;
	T_EQ(log_count(&lg), 2);
	rig_fini(&r);
}

static void sealed_log_that_lost_its_end_is_refused(void)
{
	struct log lg;

	log_make(&lg, 3, 1);
	T_EQ(log_count(&lg), 3);
	memset(r.m[0].now + lg.pos + 8192, 0, 4096);
	T_EQ(log_count(&lg), -EUCLEAN);
	rig_fini(&r);
}

/* Whole frames in their place that do not continue the chain. */
static void log_frames_must_be_chained(void)
{
	static struct mp_sb sb;
	struct mp_obj_info oi;
	struct mp_mlframe fr;
	struct log lg;
	int k;

	for (k = 0; k < 3; k++) {
		log_make(&lg, 3, 0);
		T_EQ(mp_sb_decode(r.m[0].now, 0, &sb), 0);
		T_EQ(mp_obj_list(r.pool, lg.id - 1, 0, &oi, 1), 1);
		T_EQ(mp_mlframe_decode(r.m[0].now + lg.pos + 8192, sb.sb_uuid, lg.id,
				       oi.oi_gen, 8192, 2, &fr), 0);
		fr.ml_durable = 0;
		if (k == 1)
			fr.ml_seq++;
		else if (k == 2)
			fr.ml_prev ^= 1;
		mp_mlframe_encode(&fr, sb.sb_uuid, r.m[0].now + lg.pos + 8192);
		T_EQ(log_count(&lg), k ? 2 : 3);
		rig_fini(&r);
	}
}

/* ---- the pool's configuration ---- */

static void device_list_is_bounded(void)
{
	static char text[MPL_CFG_DEVS * 64 + 128];
	const char *tmp = getenv("TMPDIR");
	char dir[256], path[300];
	struct mpl_cfg *cf;
	unsigned i, k;
	size_t n;
	int fd;

	snprintf(dir, sizeof(dir), "%s/guard.XXXXXX", tmp ? tmp : "/tmp");
	T_OK(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/%s", dir, MPL_CFG_NAME);
	for (k = 0; k < 3; k++) {
		static const unsigned devs[3] = { 1, 0, MPL_CFG_DEVS + 1 };

		n = (size_t)sprintf(text, "{\"name\":\"p\",\"devices\":[");
		for (i = 0; i < devs[k]; i++)
			n += (size_t)sprintf(text + n, "%s{\"path\":\"d%u\",\"class\":"
					     "\"capacity\"}", i ? "," : "", i);
		n += (size_t)sprintf(text + n, "]}");
		fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
		T_EQ(write(fd, text, n), n);
		close(fd);
		T_EQ(mpl_cfg_load(dir, NULL, &cf), k ? -EUCLEAN : 0);
		if (!k)
			mpl_cfg_free(cf);
	}
	unlink(path);
	rmdir(dir);
}

int main(void)
{
	T_RUN(member_of_another_pool_is_refused);
	T_RUN(destroyed_member_is_refused);
	T_RUN(members_that_disagree_about_the_devices_are_refused);
	T_RUN(later_feature_is_read_only);
	T_RUN(later_harmless_feature_opens_and_stays);
	T_RUN(foreign_signature_is_refused);
	T_RUN(shrunk_device_without_its_first_copy_is_refused);
	T_RUN(old_log_with_a_newer_member_is_refused);
	T_RUN(each_check_of_a_frame_works);
	T_RUN(container_without_its_logs_is_removed);
	T_RUN(log_that_somebody_has_filled_is_refused);
	T_RUN(a_log_without_any_checkpoint_is_refused);
	T_RUN(damaged_newest_checkpoint_is_refused);
	T_RUN(memory_of_an_open_is_bounded);
	T_RUN(what_was_made_opens_where_objects_take_more);
	T_RUN(ids_beyond_the_durable_mark_are_not_given_out);
	T_RUN(ids_end_and_do_not_begin_again);
	T_RUN(writes_stay_inside_their_object);
	T_RUN(failed_write_is_never_committed);
	T_RUN(damage_inside_a_log_is_refused);
	T_RUN(sealed_log_that_lost_its_end_is_refused);
	T_RUN(log_frames_must_be_chained);
	T_RUN(device_list_is_bounded);
	return t_done();
}
