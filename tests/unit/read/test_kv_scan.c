/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What a cursor reads ahead into memory of its own: few requests, no page
 * twice, checked before it is shown, and within the share of the cache.
 */
#include "read/ahead.h"
#include "kv_rig.h"

#define VLEN	1000u

static struct rig r;
static struct kv_ahead ah;
static struct kv_ent ent[KV_AHEAD_MAX];

static void open_rig(unsigned cursors)
{
	rig_open(&r, 8 << 20, 64 << 20);
	rig_segs(&r);
	r.db.d_budget.b_scan_bytes = (uint64_t)cursors * 40 * 4096;
	kv_ahead_init(&ah);
}

static void close_rig(void)
{
	kv_ahead_close(&r.db, &ah);
	T_EQ(atomic_load(&r.db.d_cache.cc_scan_bytes), 0);
	rig_close(&r);
}

/* Entry @i is a value of @vlen bytes at @off of a segment. */
static void value_at(unsigned i, unsigned seg, uint32_t off, uint32_t vlen)
{
	ent[i] = (struct kv_ent){ .e_kind = KV_ENT_REF, .e_seg = r.seg[seg], .e_off8 = off / 8,
				  .e_vlen = vlen,
				  .e_vcrc = mpool_crc32c(0, r.content[seg] + off, vlen) };
}

static uint64_t read_bytes(void)
{
	return atomic_load(&r.db.d_count.read_bytes[KV_READ_VALUE][MPOOL_CAPACITY]);
}

static unsigned is_right(const uint8_t *val, const struct kv_ent *e)
{
	return val && mpool_crc32c(0, val, e->e_vlen) == e->e_vcrc;
}

/* Reads the first @n ahead; how many of them came into the cursor's memory, and are right. */
static unsigned read_ahead(unsigned n)
{
	unsigned got = 0;

	kv_ahead_none(&ah, n);
	kv_ahead_read(&r.db, &ah, ent, n);
	for (unsigned i = 0; i < n; i++) {
		const uint8_t *val = kv_ahead_value(&ah, &ent[i], i);

		got += is_right(val, &ent[i]);
		T_OK(!val || is_right(val, &ent[i]));
	}
	return got;
}

static int read_one(unsigned i, uint8_t *buf)
{
	struct kv_thread *t = kv_enter();
	int rc = kv_value_read(&r.db, &ent[i], buf, ent[i].e_vlen);

	kv_exit(t);
	return rc;
}

static void neighbours_are_one_read(void)
{
	open_rig(1);
	/* in another order than that of their places; from the middle of page 2 into page 10 */
	for (unsigned i = 0; i < 32; i++)
		value_at(i, 1, 2 * 4096 + 2000 + i * 7 % 32 * VLEN, VLEN);
	T_EQ(read_ahead(32), 32);
	T_EQ(ah.ah_nrun, 1);
	T_EQ(ah.ah_run[0].ar_first, 2);
	T_EQ(ah.ah_run[0].ar_n, 9);
	T_EQ(read_bytes(), 9 * 4096);
	/* the pool has copies of them */
	T_EQ(read_ahead(32), 0);
	T_EQ(read_bytes(), 9 * 4096);
	close_rig();
}

static void values_apart_are_a_read_each(void)
{
	open_rig(1);
	for (unsigned i = 0; i < 24; i++)
		value_at(i, i % 3, i / 3 * 8 * 4096 + 4096 - 504, VLEN);
	/* in two pages each: the others are read through the pool */
	T_EQ(read_ahead(24), 20);
	T_EQ(ah.ah_nrun, 20);
	T_EQ(read_bytes(), 48 * 4096);
	for (unsigned i = 0; i < 24; i++) {
		uint8_t buf[VLEN];

		T_EQ(read_one(i, buf), 0);
		T_OK(is_right(buf, &ent[i]));
	}
	T_EQ(read_bytes(), 48 * 4096);
	close_rig();
}

static void cursors_share_their_part_of_the_cache(void)
{
	struct kv_ahead second;

	open_rig(1);
	kv_ahead_init(&second);
	for (unsigned i = 0; i < 8; i++)
		value_at(i, 0, i * 8192, VLEN);
	T_EQ(read_ahead(4), 4);
	T_EQ(atomic_load(&r.db.d_cache.cc_scan_bytes), r.db.d_budget.b_scan_bytes);
	kv_ahead_none(&second, 4);
	kv_ahead_read(&r.db, &second, ent + 4, 4);
	for (unsigned i = 0; i < 4; i++)
		T_OK(!kv_ahead_value(&second, &ent[4 + i], i));
	T_EQ(read_bytes(), 8 * 4096);	/* into the pool */
	kv_ahead_close(&r.db, &ah);
	for (unsigned i = 0; i < 4; i++)
		value_at(i, 1, i * 8192, VLEN);
	kv_ahead_read(&r.db, &second, ent, 4);
	T_OK(is_right(kv_ahead_value(&second, &ent[3], 3), &ent[3]));
	kv_ahead_close(&r.db, &second);
	close_rig();
}

/* Neither from the cursor's memory nor from the copy that the pool got. */
static void damage_is_not_shown(void)
{
	uint8_t buf[VLEN];

	open_rig(1);
	value_at(0, 0, 0, VLEN);
	value_at(1, 0, 4096, VLEN);
	obj_flip(r.seg[0]->sg_obj, 500, 1);
	kv_ahead_none(&ah, 2);
	kv_ahead_read(&r.db, &ah, ent, 2);
	T_OK(!kv_ahead_value(&ah, &ent[0], 0));
	T_OK(is_right(kv_ahead_value(&ah, &ent[1], 1), &ent[1]));
	T_EQ(read_one(0, buf), -EUCLEAN);
	/* what only the transfer had wrong */
	obj_flip(r.seg[0]->sg_obj, 500, 1);
	T_EQ(read_one(0, buf), 0);
	T_OK(is_right(buf, &ent[0]));
	close_rig();
}

static void a_read_that_fails_is_left_to_who_wants_it(void)
{
	uint8_t buf[VLEN];

	open_rig(1);
	value_at(0, 0, 0, VLEN);
	value_at(1, 1, 0, VLEN);
	ent[1].e_off8 = RIG_SEG_BYTES / 8;	/* beyond the end of the object */
	r.seg[1]->sg_bytes *= 2;
	T_EQ(read_ahead(2), 1);
	T_OK(read_one(1, buf) < 0);
	T_OK(is_right(kv_ahead_value(&ah, &ent[0], 0), &ent[0]));
	r.seg[1]->sg_bytes /= 2;
	close_rig();
}

int main(void)
{
	T_RUN(neighbours_are_one_read);
	T_RUN(values_apart_are_a_read_each);
	T_RUN(cursors_share_their_part_of_the_cache);
	T_RUN(damage_is_not_shown);
	T_RUN(a_read_that_fails_is_left_to_who_wants_it);
	return t_done();
}
