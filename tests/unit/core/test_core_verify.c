/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What a check of a pool says of each kind of damage: its identifier, whether it is damage,
 * and the place, in words that an operator can act on. And it writes nothing.
 */
#include "core_mem.h"
#include "member.h"

#define SIZE	(8u << 20)	/* of a device */
#define CHUNK	(256u << 10)	/* of an object, at once */

static struct rig r;

/* ---- reads that fail ----------------------------------------------------------------- */

static struct mp_dev *bad_dev;
static u64 bad_lo, bad_hi;

static int bad_read(struct mp_dev *d, u64 off, void *buf, size_t len)
{
	return d == bad_dev && off < bad_hi && off + len > bad_lo ? -EIO :
	       mem_read(d, off, buf, len);
}

static const struct mp_dev_ops bad_ops = {
	.read = bad_read, .write = mem_write, .flush = mem_flush, .discard = mem_discard,
};

/* ---- a pool with everything that is looked at ---------------------------------------------- */

static struct mp_dev *data_dev, *log_dev;
static u64 data_id, log_id;
static u64 data_pos[3];	/* of its chunks */
static u64 log_pos;

static void log_make(void)
{
	struct mp_obj *o;
	struct mp_mlog *l;
	struct mp_vec v = { "record", 6 };
	u64 n;

	T_EQ(alloc_one(r.pool, MP_MLOG, 64 << 10, &o), 0);
	log_id = mp_obj_id(o);
	T_EQ(mp_obj_map(o, 0, 4096, &log_dev, &log_pos, &n), 0);
	mp_obj_put(o);
	T_EQ(mp_mlog_open(r.pool, log_id, &l), 0);
	for (int i = 0; i < 5; i++)
		T_EQ(mp_mlog_append(l, &v, 1, true), 0);
	mp_mlog_close(l);
}

static void data_make(void)
{
	struct mp_op op = { .op_type = MP_OP_COMMIT, .op_flags = MP_OPF_CRC,
			    .op_length = 2 * CHUNK + 4096 };
	static u8 zero[2 * CHUNK + 4096];
	u64 n;

	T_EQ(alloc_one(r.pool, MP_MBLOCK, op.op_length, &op.op_obj), 0);
	data_id = mp_obj_id(op.op_obj);
	T_EQ(fill(op.op_obj, 0, op.op_length, 0), 0);
	op.op_crc = mp_csum(zero, sizeof(zero));
	T_EQ(mp_pool_batch(r.pool, &op, 1), 0);
	for (u64 i = 0; i < 3; i++)
		T_EQ(mp_obj_map(op.op_obj, i * CHUNK, 4096, &data_dev, &data_pos[i], &n), 0);
	mp_obj_put(op.op_obj);
}

static void make(void)
{
	rig_init(&r, 2, SIZE);
	T_EQ(rig_open(&r), 0);
	log_make();
	data_make();
	T_EQ(mp_pool_close(r.pool), 0);
	r.pool = NULL;
	for (u32 i = 0; i < 2; i++)
		r.m[i].dev.d_ops = &bad_ops;
	bad_dev = NULL;
}

/* ---- what it says ---------------------------------------------------------------------------- */

struct said {
	unsigned n;
	int id;
	char text[200];
};

static void on_finding(void *arg, const struct mp_finding *f)
{
	struct said *s = arg;

	s->n++;
	s->id = f->fi_id;
	snprintf(s->text, sizeof(s->text), "%s", f->fi_text);
}

/* One finding of this kind, which reads so. */
static void says(int id, u64 is_damage, const char *fmt, u64 number)
{
	struct said s = { 0 };
	char want[200];
	u64 damage = 9;

	snprintf(want, sizeof(want), fmt, (unsigned long long)number);
	r.m[0].writes = r.m[1].writes = 0;
	T_EQ(mp_verify(r.dev, 2, MP_VERIFY_DATA, on_finding, &s, &damage), 0);
	T_EQ(r.m[0].writes + r.m[1].writes, 0);
	T_EQ(damage, is_damage);
	T_EQ(s.n, 1);
	T_EQ(s.id, id);
	T_STREQ(s.text, want);
	/* a caller that wants the count alone gets the same */
	T_EQ(mp_verify(r.dev, 2, MP_VERIFY_DATA, NULL, NULL, &damage), 0);
	T_EQ(damage, is_damage);
}

/* The others are as good: no damage, but worth a report. */
static void a_bad_copy_of_a_superblock_is_named_by_its_place(void)
{
	for (u32 k = 0; k < MP_SB_COPIES; k++) {
		u64 at = mp_sb_copy_addr(SIZE, k);

		make();
		r.m[1].now[at + 100] ^= 1;
		says(MP_V_SBCOPY, 0, k ? "mem: superblock copy at %llu" :
		     "mem: superblock copy at %llu, which mpool scan --recover writes anew", at);
		rig_fini(&r);
	}
}

static void a_log_is_named_by_its_number(void)
{
	char want[64];

	make();
	mem_of(log_dev)->now[log_pos + 20] ^= 1;
	snprintf(want, sizeof(want), "log %%llu: error %d", -EUCLEAN);
	says(MP_MLOG_CORRUPT, 1, want, log_id);
	rig_fini(&r);
	make();
	bad_dev = log_dev;
	bad_lo = log_pos;
	bad_hi = log_pos + 4096;
	snprintf(want, sizeof(want), "log %%llu: error %d", -EIO);
	says(MP_MLOG_READ, 1, want, log_id);
	rig_fini(&r);
}

static void what_cannot_be_read_is_named_with_its_offset(void)
{
	char want[64];

	for (u64 i = 0; i < 3; i++) {
		make();
		bad_dev = data_dev;
		bad_lo = data_pos[i];
		bad_hi = bad_lo + 512;
		snprintf(want, sizeof(want), "object %llu near offset %%llu: error %d",
			 (unsigned long long)data_id, -EIO);
		says(MP_DATA_READ, 1, want, i * CHUNK);
		rig_fini(&r);
	}
}

int main(void)
{
	T_RUN(a_bad_copy_of_a_superblock_is_named_by_its_place);
	T_RUN(a_log_is_named_by_its_number);
	T_RUN(what_cannot_be_read_is_named_with_its_offset);
	return t_done();
}
