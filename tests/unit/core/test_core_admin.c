/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Administration of an open pool: properties, name, more devices, larger ones;
 * bad input, and states that a crash or another program leaves.
 */
#include <pthread.h>

#include "member.h"
#include "core_mem.h"

#define MiB	(1ull << 20)
#define SIZE	(8 * MiB)

static struct mp_pool_info info_of(struct mp_pool *pool)
{
	struct mp_pool_info in;

	mp_pool_info(pool, &in);
	return in;
}

/* the memory behind a device becomes larger; contents stay, the rest is garbage */
static void mem_grow(struct mem *m, u64 size)
{
	u64 old = m->dev.d_size;

	m->now = realloc(m->now, size);
	m->media = realloc(m->media, size);
	memset(m->now + old, 0xee, size - old);
	memset(m->media + old, 0xee, size - old);
	m->dev.d_size = size;
}

static const char *name0(const struct mem *m)
{
	return (const char *)m->media + 8;
}

struct search {
	const char *text;
	u32 n;
};

static void on_line(void *arg, const char *line)
{
	struct search *se = arg;

	se->n += !!strstr(line, se->text);
}

/* Devices of which a dump says this. */
static u32 dump_says(const struct rig *r, const char *text)
{
	struct search se = { text, 0 };

	T_EQ(mp_dump((struct mp_dev **)r->dev, r->n, on_line, &se), 0);
	return se.n;
}

/* ---- properties ---- */

static void properties_change_and_stay(void)
{
	struct mp_set set = { .ms_mask = MP_SET_OWNER | MP_SET_LABEL | MP_SET_SPARE,
			      .ms_uid = 1000, .ms_gid = 1001, .ms_mode = 0640,
			      .ms_spare_pct = { 20, 5 }, .ms_label = "the label" };
	struct mp_pool_info in;
	u64 free_before, gen;
	struct rig r;

	rig_init(&r, 2, SIZE);
	T_EQ(rig_open(&r), 0);
	in = info_of(r.pool);
	free_before = in.pi_cls[0].ci_free;
	gen = in.pi_gen;
	T_EQ(mp_pool_set(r.pool, &set), 0);
	in = info_of(r.pool);
	T_EQ(in.pi_uid, 1000);
	T_EQ(in.pi_gid, 1001);
	T_EQ(in.pi_mode, 0640);
	T_EQ(in.pi_spare_pct[0], 20);
	T_EQ(in.pi_spare_pct[1], 5);
	T_EQ(in.pi_gen, gen + 1);
	T_OK(!strcmp(in.pi_label, "the label"));
	T_OK(in.pi_cls[0].ci_free < free_before);
	/* only what the mask names */
	set.ms_mask = MP_SET_SPARE;
	set.ms_spare_pct[0] = 0;
	set.ms_uid = 7;
	set.ms_label = NULL;
	T_EQ(mp_pool_set(r.pool, &set), 0);
	rig_reopen(&r, 1);
	in = info_of(r.pool);
	T_EQ(in.pi_uid, 1000);
	T_EQ(in.pi_cls[0].ci_free, free_before);
	T_OK(!strcmp(in.pi_label, "the label"));
	set.ms_mask = MP_SET_LABEL;
	T_EQ(mp_pool_set(r.pool, &set), 0);
	T_EQ(info_of(r.pool).pi_label[0], 0);
	rig_fini(&r);
}

static void bad_properties_write_nothing(void)
{
	char label[MP_POOL_LABEL + 1];
	struct mp_set set = { .ms_mask = 0 };
	struct rig r;
	u64 writes;

	rig_init(&r, 1, SIZE);
	T_EQ(rig_open(&r), 0);
	writes = r.m[0].writes;
	T_EQ(mp_pool_set(r.pool, &set), -EINVAL);
	set.ms_mask = 0x80;
	T_EQ(mp_pool_set(r.pool, &set), -EINVAL);
	set.ms_mask = MP_SET_OWNER;
	set.ms_mode = 01777;
	T_EQ(mp_pool_set(r.pool, &set), -EINVAL);
	set.ms_mask = MP_SET_SPARE;
	set.ms_spare_pct[1] = 91;
	T_EQ(mp_pool_set(r.pool, &set), -EINVAL);
	set.ms_mask = MP_SET_LABEL;
	set.ms_label = "two\nlines";
	T_EQ(mp_pool_set(r.pool, &set), -EINVAL);
	memset(label, 'x', sizeof(label));
	label[MP_POOL_LABEL] = 0;
	set.ms_label = label;
	T_EQ(mp_pool_set(r.pool, &set), -EINVAL);
	label[MP_POOL_LABEL - 1] = 0;
	T_EQ(r.m[0].writes, writes);
	T_EQ(mp_pool_set(r.pool, &set), 0);
	T_EQ(mp_pool_rename(r.pool, ""), -EINVAL);
	T_EQ(mp_pool_rename(r.pool, "-x"), -EINVAL);
	T_EQ(mp_pool_rename(r.pool, "a/b"), -EINVAL);
	T_EQ(mp_pool_rename(r.pool, "0123456789012345678901234567890x"), -EINVAL);
	T_EQ(mp_pool_close(r.pool), 0);
	T_EQ(mp_pool_open(r.dev, 1, MP_OPEN_RDONLY, &r.pool), 0);
	T_EQ(mp_pool_set(r.pool, &set), -EROFS);
	T_EQ(mp_pool_rename(r.pool, "other"), -EROFS);
	T_EQ(mp_pool_grow(r.pool), -EROFS);
	rig_fini(&r);
}

static unsigned faults;

static void on_fault(void *arg)
{
	T_OK(arg == &faults);
	faults++;
}

/* the outcome is open when a superblock cannot be written: the pool stops */
static void failed_change_stops_the_pool(void)
{
	struct mp_set set = { .ms_mask = MP_SET_OWNER, .ms_mode = 0600, .ms_uid = 5 };
	struct rig r;
	u32 k;

	for (k = 0; k < 4; k++) {
		rig_init(&r, 2, SIZE);
		T_EQ(rig_open(&r), 0);
		faults = 0;
		mp_pool_on_fault(r.pool, on_fault, &faults);
		r.m[k / 2].fail_write = -EIO;
		r.m[k / 2].fail_after = k % 2;
		T_EQ(mp_pool_set(r.pool, &set), -EIO);
		T_EQ(faults, 1);
		T_EQ(mp_pool_writable(r.pool), -EROFS);
		T_EQ(mp_pool_set(r.pool, &set), -EROFS);
		T_EQ(faults, 1);
		/* told at once when it has happened already */
		mp_pool_on_fault(r.pool, on_fault, &faults);
		T_EQ(faults, 2);
		rig_reopen(&r, 1);
		/* the home device's first copy is the moment; before it nothing happened */
		T_EQ(info_of(r.pool).pi_uid, k ? 5 : 0);
		rig_fini(&r);
	}
}

/* ---- name ---- */

static void rename_shows_at_byte_0(void)
{
	struct rig r;
	u8 tail[4096];

	rig_init(&r, 2, SIZE);
	T_EQ(rig_open(&r), 0);
	memcpy(tail, r.m[1].media, sizeof(tail));
	T_EQ(mp_pool_rename(r.pool, "another"), 0);
	T_OK(!strcmp(info_of(r.pool).pi_name, "another"));
	T_OK(!strcmp(name0(&r.m[0]), "another"));
	T_OK(!strcmp(name0(&r.m[1]), "another"));
	T_OK(!memcmp(tail + 512, r.m[1].media + 512, sizeof(tail) - 512));
	T_EQ(r.pool->p_dev[1]->pd_sb->sb_mark, 0);
	rig_reopen(&r, 1);
	T_OK(!strcmp(info_of(r.pool).pi_name, "another"));
	rig_fini(&r);
}

/* superblocks with the marks of a rename under way, as a cut leaves them */
static void leave_marks(struct rig *r, const char *name)
{
	u32 i;

	for (i = 0; i < r->n; i++) {
		/* two copies of each, then the writes of copy 0 fail */
		r->m[i].fail_write = -EIO;
		r->m[i].fail_after = 2;
	}
	T_EQ(mp_pool_rename(r->pool, name), -EIO);
	T_EQ(mp_pool_close(r->pool), 0);
	r->pool = NULL;
	for (i = 0; i < r->n; i++)
		mem_cut(&r->m[i]);
}

static void poke(struct mem *m, u64 off, u8 byte, size_t len)
{
	memset(m->now + off, byte, len);
	memset(m->media + off, byte, len);
}

static void rename_cut_at_byte_0_is_finished(void)
{
	struct mp_probe pb;
	struct rig r;

	rig_init(&r, 2, SIZE);
	T_EQ(rig_open(&r), 0);
	leave_marks(&r, "fresh");
	T_EQ(dump_says(&r, "rename of copy 0 unfinished"), 2);
	/* sector 0 was lost in flight: the device is ours still */
	poke(&r.m[0], 0, 0x5a, 512);
	T_EQ(mp_probe(r.dev[0], &pb), 0);
	T_EQ(rig_open(&r), 0);
	T_OK(!strcmp(info_of(r.pool).pi_name, "fresh"));
	T_OK(!strcmp(name0(&r.m[0]), "fresh"));
	T_OK(!strcmp(name0(&r.m[1]), "fresh"));
	/* and it was made whole */
	T_EQ(mp_pool_close(r.pool), 0);
	T_EQ(mp_pool_open(r.dev, 2, MP_OPEN_RDONLY, &r.pool), 0);
	T_EQ(r.pool->p_dev[0]->pd_found.f_bad, 0);
	T_EQ(r.pool->p_dev[0]->pd_sb->sb_mark, 0);
	T_EQ(dump_says(&r, "rename of copy 0 unfinished"), 0);
	rig_fini(&r);
}

/* foreign data at byte 0 stays foreign, rename or not */
static void foreign_byte_0_is_never_taken_back(void)
{
	struct mp_probe pb;
	struct rig r;

	rig_init(&r, 1, SIZE);
	T_EQ(rig_open(&r), 0);
	leave_marks(&r, "fresh");
	poke(&r.m[0], 0, 0x5a, 1024);	/* a file system: not only sector 0 */
	T_EQ(mp_probe(r.dev[0], &pb), -EINVAL);
	T_EQ(rig_open(&r), -EINVAL);
	rig_fini(&r);

	rig_init(&r, 1, SIZE);
	T_EQ(rig_open(&r), 0);
	leave_marks(&r, "fresh");
	poke(&r.m[0], 0, 0, 8);		/* what wipefs does */
	T_EQ(rig_open(&r), -EINVAL);
	poke(&r.m[0], 0, 0, 512);	/* as by dd */
	T_EQ(rig_open(&r), -EINVAL);
	poke(&r.m[0], 510, 0x55, 1);	/* a partition table */
	poke(&r.m[0], 511, 0xaa, 1);
	T_EQ(rig_open(&r), -EINVAL);
	rig_fini(&r);

	rig_init(&r, 1, SIZE);
	T_EQ(rig_open(&r), 0);
	T_EQ(mp_pool_rename(r.pool, "done"), 0);
	T_EQ(mp_pool_close(r.pool), 0);
	r.pool = NULL;
	poke(&r.m[0], 0, 0x5a, 512);	/* no rename under way */
	T_EQ(rig_open(&r), -EINVAL);
	rig_fini(&r);
}

/* a damaged copy 0 keeps what it has; the rest gets the name */
static void damaged_copy_0_is_left_alone(void)
{
	struct rig r;

	rig_init(&r, 1, SIZE);
	poke(&r.m[0], 700, 0x5a, 4);
	T_EQ(rig_open(&r), 0);
	T_EQ(mp_pool_rename(r.pool, "other"), 0);
	T_OK(!strcmp(name0(&r.m[0]), "unit"));
	rig_reopen(&r, 1);
	T_OK(!strcmp(info_of(r.pool).pi_name, "other"));
	rig_fini(&r);
}

/* ---- members that missed the last change ---- */

/* @n steps of the pool that device @i misses; comes back closed */
static void miss(struct rig *r, u32 i, u32 n)
{
	struct mp_set set = { .ms_mask = MP_SET_LABEL, .ms_label = "new" };
	u8 *old = malloc(r->m[i].dev.d_size);

	memcpy(old, r->m[i].media, r->m[i].dev.d_size);
	while (n--)
		T_EQ(mp_pool_set(r->pool, &set), 0);
	T_EQ(mp_pool_close(r->pool), 0);
	r->pool = NULL;
	memcpy(r->m[i].now, old, r->m[i].dev.d_size);
	memcpy(r->m[i].media, old, r->m[i].dev.d_size);
	free(old);
}

static void home_device_decides(void)
{
	struct rig r;
	u64 damage;

	rig_init(&r, 2, SIZE);
	T_EQ(rig_open(&r), 0);
	miss(&r, 1, 1);
	T_EQ(mp_verify(r.dev, 2, 0, NULL, NULL, &damage), 0);
	T_EQ(damage, 0);
	T_EQ(mp_pool_open(r.dev, 2, MP_OPEN_RDONLY, &r.pool), 0);
	T_OK(!strcmp(info_of(r.pool).pi_label, "new"));
	T_EQ(mp_pool_close(r.pool), 0);
	T_EQ(rig_open(&r), 0);
	T_OK(!strcmp(info_of(r.pool).pi_label, "new"));
	T_OK(!strcmp(r.pool->p_dev[1]->pd_sb->sb_label, "new"));
	/* the home device is never the one behind */
	miss(&r, 0, 1);
	T_EQ(rig_open(&r), -ESTALE);
	rig_fini(&r);
	/* a crash leaves no member two steps behind */
	rig_init(&r, 2, SIZE);
	T_EQ(rig_open(&r), 0);
	miss(&r, 1, 2);
	T_EQ(rig_open(&r), -ESTALE);
	rig_fini(&r);
}

/* ---- add ---- */

static void devices_are_added_with_a_new_class(void)
{
	static const u32 cls[2] = { MP_STAGING, MP_CAPACITY };
	struct mp_alloc a = { .al_kind = MP_MBLOCK, .al_mclass = MP_STAGING, .al_capacity = MiB };
	struct mp_set spare = { .ms_mask = MP_SET_SPARE, .ms_spare_pct = { 10, 10 } };
	struct mp_dev *all[3];
	struct mp_pool_info in;
	struct mem more[2];
	struct mp_member mb;
	struct mp_obj *o;
	struct rig r;
	u64 id, before, damage;
	u32 i;

	rig_init(&r, 1, SIZE);
	T_EQ(rig_open(&r), 0);
	T_EQ(mp_pool_set(r.pool, &spare), 0);
	before = info_of(r.pool).pi_cls[0].ci_total;
	T_EQ(mp_obj_alloc(r.pool, &a, 1, &o), -ENOSPC);
	for (i = 0; i < 2; i++) {
		mem_init(&more[i], SIZE);
		all[i + 1] = &more[i].dev;
	}
	all[0] = r.dev[0];
	T_EQ(mp_pool_add_devs(r.pool, all + 1, cls, 2, MP_CREATE_PLAN), 0);
	T_EQ(more[0].writes, 0);
	T_EQ(mp_pool_add_devs(r.pool, all + 1, cls, 2, 0), 0);
	in = info_of(r.pool);
	T_EQ(in.pi_ndevs, 3);
	T_EQ(in.pi_cls[1].ci_devs, 1);
	T_OK(in.pi_cls[0].ci_total > before && in.pi_cls[1].ci_total > 7 * MiB);
	T_EQ(in.pi_cls[1].ci_reserve, in.pi_cls[1].ci_total / 4096 / 100 * 10 * 4096);
	T_EQ(mp_pool_member(r.pool, 2, &mb), 0);
	T_OK(mb.mb_dev == all[2] && mb.mb_mclass == MP_CAPACITY && !mb.mb_has_md);
	T_EQ(mp_obj_alloc(r.pool, &a, 1, &o), 0);
	T_EQ(fill(o, 0, MiB, 7), 0);
	T_EQ(commit(r.pool, o, MiB), 0);
	id = mp_obj_id(o);
	mp_obj_put(o);
	T_EQ(mp_pool_close(r.pool), 0);
	mem_cut(&r.m[0]);
	mem_cut(&more[0]);
	mem_cut(&more[1]);
	T_EQ(mp_pool_open(all, 2, 0, &r.pool), -ENODEV);
	T_EQ(mp_verify(all, 3, MP_VERIFY_DATA, NULL, NULL, &damage), 0);
	T_EQ(damage, 0);
	T_EQ(mp_pool_open(all, 3, 0, &r.pool), 0);
	T_EQ(mp_obj_open(r.pool, id, &o), 0);
	mp_obj_put(o);
	rig_fini(&r);
	r.pool = NULL;
	T_EQ(mp_pool_destroy(all + 1, 2), 0);
	mem_fini(&more[0]);
	mem_fini(&more[1]);
}

static int add_one(struct rig *r, struct mp_dev *dev, u32 mclass, u32 flags)
{
	return mp_pool_add_devs(r->pool, &dev, &mclass, 1, flags);
}

/* the same bytes by another name */
struct alias {
	struct mp_dev dev;
	struct mp_dev *to;
};

static int alias_read(struct mp_dev *d, u64 off, void *buf, size_t len)
{
	struct mp_dev *to = ((struct alias *)d)->to;

	return to->d_ops->read(to, off, buf, len);
}

static int alias_write(struct mp_dev *d, u64 off, const void *buf, size_t len, unsigned int flags)
{
	struct mp_dev *to = ((struct alias *)d)->to;

	return to->d_ops->write(to, off, buf, len, flags);
}

static int alias_flush(struct mp_dev *d)
{
	struct mp_dev *to = ((struct alias *)d)->to;

	return to->d_ops->flush(to);
}

static const struct mp_dev_ops alias_ops = {
	.read = alias_read, .write = alias_write, .flush = alias_flush,
};

static void alias_init(struct alias *a, struct mp_dev *to)
{
	a->dev = *to;
	a->dev.d_ops = &alias_ops;
	a->dev.d_path = "alias";
	a->to = to;
}

static void bad_devices_are_refused(void)
{
	static const u32 cls[2] = { MP_CAPACITY, MP_CAPACITY };
	struct mp_dev *two[2];
	struct rig r, other;
	struct mem m, small;
	struct alias a;
	u64 gen;

	rig_init(&r, 1, SIZE);
	rig_init(&other, 1, SIZE);
	T_EQ(rig_open(&r), 0);
	gen = info_of(r.pool).pi_gen;
	mem_init(&m, SIZE);
	mem_init(&small, MiB);
	T_EQ(add_one(&r, &small.dev, MP_CAPACITY, 0), -EINVAL);
	T_EQ(add_one(&r, &m.dev, 2, 0), -EINVAL);
	T_EQ(add_one(&r, &m.dev, MP_CAPACITY, 0x80), -EINVAL);
	T_EQ(mp_pool_add_devs(r.pool, two, cls, 0, 0), -EINVAL);
	m.dev.d_sector = 8192;
	T_EQ(add_one(&r, &m.dev, MP_CAPACITY, 0), -EOPNOTSUPP);
	m.dev.d_sector = 512;
	/* a member of another pool, unless forced; of this one never */
	T_EQ(add_one(&r, other.dev[0], MP_CAPACITY, 0), -EEXIST);
	T_EQ(add_one(&r, r.dev[0], MP_CAPACITY, MP_CREATE_FORCE), -ENOTUNIQ);
	alias_init(&a, r.dev[0]);
	T_EQ(add_one(&r, &a.dev, MP_CAPACITY, MP_CREATE_FORCE), -EEXIST);
	/* one device twice, by one name or two */
	two[0] = two[1] = &m.dev;
	T_EQ(mp_pool_add_devs(r.pool, two, cls, 2, 0), -ENOTUNIQ);
	T_EQ(m.writes + small.writes, 0);
	alias_init(&a, &m.dev);
	two[1] = &a.dev;
	T_EQ(mp_pool_add_devs(r.pool, two, cls, 2, 0), -ENOTUNIQ);
	T_EQ(mp_pool_writable(r.pool), 0);
	T_EQ(info_of(r.pool).pi_ndevs, 1);
	T_EQ(info_of(r.pool).pi_gen, gen);
	/* it failed on the new device only: the pool goes on, the device is no member */
	m.fail_write = -EIO;
	m.fail_after = 2;
	T_EQ(add_one(&r, &m.dev, MP_CAPACITY, 0), -EIO);
	T_EQ(mp_pool_writable(r.pool), 0);
	m.fail_write = 0;
	T_EQ(add_one(&r, other.dev[0], MP_CAPACITY, MP_CREATE_FORCE), 0);
	T_EQ(mp_pool_close(r.pool), 0);
	r.pool = NULL;
	rig_fini(&r);
	rig_fini(&other);
	mem_fini(&m);
	mem_fini(&small);
}

static void sixty_four_devices_in_a_class(void)
{
	static struct mem m[MP_CLASS_DEVS];
	struct mp_dev *dev[MP_CLASS_DEVS];
	u32 cls[MP_CLASS_DEVS], i;
	struct rig r;

	rig_init(&r, 1, SIZE);
	T_EQ(rig_open(&r), 0);
	for (i = 0; i < MP_CLASS_DEVS; i++) {
		mem_init(&m[i], 2 * MiB);
		dev[i] = &m[i].dev;
		cls[i] = MP_CAPACITY;
	}
	T_EQ(mp_pool_add_devs(r.pool, dev, cls, MP_CLASS_DEVS, 0), -EINVAL);
	T_EQ(info_of(r.pool).pi_ndevs, 1);
	T_EQ(mp_pool_add_devs(r.pool, dev, cls, MP_CLASS_DEVS - 1, 0), 0);
	T_EQ(info_of(r.pool).pi_ndevs, MP_CLASS_DEVS);
	T_EQ(add_one(&r, dev[MP_CLASS_DEVS - 1], MP_CAPACITY, 0), -EINVAL);
	T_EQ(add_one(&r, dev[MP_CLASS_DEVS - 1], MP_STAGING, 0), 0);
	T_EQ(mp_pool_close(r.pool), 0);
	r.pool = NULL;
	rig_fini(&r);
	for (i = 0; i < MP_CLASS_DEVS; i++)
		mem_fini(&m[i]);
}

/* what an add that was cut before the home device knew it leaves behind */
static void leftover_of_an_add_is_ignored(void)
{
	struct mp_create c = { .mc_name = "thief", .mc_ndevs = 1 };
	u32 cls[1] = { MP_CAPACITY };
	struct mp_dev *all[3];
	struct mp_probe pb;
	struct mem m, n;
	struct rig r;

	rig_init(&r, 1, SIZE);
	T_EQ(rig_open(&r), 0);
	mem_init(&m, SIZE);
	mem_init(&n, SIZE);
	r.m[0].fail_write = -EIO;
	T_EQ(add_one(&r, &m.dev, MP_CAPACITY, 0), -EIO);
	T_EQ(mp_pool_close(r.pool), 0);
	mem_cut(&r.m[0]);
	mem_cut(&m);
	T_EQ(mp_probe(&m.dev, &pb), 0);
	T_EQ(pb.pb_state, MP_SB_CREATING);
	/* it could have been a member a moment later: not for others without force */
	c.mc_dev = all;
	c.mc_mclass = cls;
	all[0] = &m.dev;
	T_EQ(mp_pool_create(&c), -EEXIST);
	/* given to an open it is ignored, as often as one likes */
	all[0] = r.dev[0];
	all[1] = &m.dev;
	T_EQ(mp_pool_open(all, 2, 0, &r.pool), 0);
	T_EQ(info_of(r.pool).pi_ndevs, 1);
	/* another device takes the slot: the table knows which one it is */
	T_EQ(add_one(&r, &n.dev, MP_STAGING, 0), 0);
	T_EQ(mp_pool_close(r.pool), 0);
	all[2] = &n.dev;
	T_EQ(mp_pool_open(all, 3, 0, &r.pool), 0);
	T_EQ(info_of(r.pool).pi_ndevs, 2);
	T_EQ(info_of(r.pool).pi_cls[1].ci_devs, 1);
	/* and it can be added after all */
	T_EQ(add_one(&r, &m.dev, MP_CAPACITY, 0), 0);
	T_EQ(mp_pool_close(r.pool), 0);
	T_EQ(mp_pool_open(all, 3, 0, &r.pool), 0);
	T_EQ(info_of(r.pool).pi_ndevs, 3);
	T_EQ(mp_pool_close(r.pool), 0);
	r.pool = NULL;
	T_EQ(mp_pool_destroy(all, 3), 0);
	T_EQ(mp_probe(&m.dev, &pb), -EINVAL);
	rig_fini(&r);
	mem_fini(&m);
	mem_fini(&n);
}

/* The copies that are rewritten, of a device that had SIZE bytes at its creation. */
static int no_rewritten_read(struct mp_dev *d, u64 off, void *buf, size_t len)
{
	return off == SIZE / 2 || off == SIZE - MP_BLOCK ? -EIO : mem_read(d, off, buf, len);
}

static const struct mp_dev_ops no_rewritten_ops = {
	.read = no_rewritten_read, .write = mem_write, .flush = mem_flush,
};

/* an old copy of the home device does not know the member: that must not pass */
static void old_home_device_is_refused(void)
{
	struct mp_dev *all[2];
	struct rig r;
	struct mem m;
	u8 *old = malloc(SIZE);

	rig_init(&r, 1, SIZE);
	T_EQ(rig_open(&r), 0);
	mem_init(&m, SIZE);
	memcpy(old, r.m[0].now, SIZE);
	T_EQ(add_one(&r, &m.dev, MP_CAPACITY, 0), 0);
	T_EQ(mp_pool_close(r.pool), 0);
	r.pool = NULL;
	all[0] = r.dev[0];
	all[1] = &m.dev;
	/* one that cannot be read is not old */
	r.m[0].dev.d_ops = &no_rewritten_ops;
	T_EQ(mp_pool_open(all, 2, MP_OPEN_RDONLY, &r.pool), -EIO);
	r.m[0].dev.d_ops = &mem_ops;
	T_EQ(mp_pool_open(all, 2, MP_OPEN_RDONLY, &r.pool), 0);
	T_EQ(mp_pool_close(r.pool), 0);
	r.pool = NULL;
	memcpy(r.m[0].now, old, SIZE);
	T_EQ(mp_pool_open(all, 2, 0, &r.pool), -ESTALE);
	rig_fini(&r);
	mem_fini(&m);
	free(old);
}

/* ---- grow ---- */

static int no_first_read(struct mp_dev *d, u64 off, void *buf, size_t len)
{
	return off ? mem_read(d, off, buf, len) : -EIO;
}

static const struct mp_dev_ops no_first_ops = {
	.read = no_first_read, .write = mem_write, .flush = mem_flush,
};

static void devices_grow_again_and_again(void)
{
	struct mp_pool_info in;
	struct mp_obj *o;
	u64 total, damage, gen;
	struct rig r;

	rig_init(&r, 2, SIZE);
	T_EQ(rig_open(&r), 0);
	in = info_of(r.pool);
	total = in.pi_cls[0].ci_total;
	gen = in.pi_gen;
	T_EQ(mp_pool_grow(r.pool), 0);
	T_EQ(info_of(r.pool).pi_gen, gen);
	T_EQ(alloc_one(r.pool, MP_MBLOCK, 10 * MiB, &o), -ENOSPC);
	mem_grow(&r.m[0], 3 * SIZE);
	T_EQ(mp_pool_grow(r.pool), 0);
	in = info_of(r.pool);
	T_EQ(in.pi_cls[0].ci_total, total + 2 * SIZE - 4096);
	T_EQ(alloc_one(r.pool, MP_MBLOCK, 10 * MiB, &o), 0);
	T_EQ(fill(o, 0, 10 * MiB, 9), 0);
	T_EQ(commit(r.pool, o, 10 * MiB), 0);
	mp_obj_put(o);
	rig_reopen(&r, 1);
	T_EQ(info_of(r.pool).pi_cls[0].ci_total, in.pi_cls[0].ci_total);
	/* once more: the block at the former end becomes space */
	mem_grow(&r.m[0], 4 * SIZE);
	T_EQ(mp_pool_grow(r.pool), 0);
	T_EQ(info_of(r.pool).pi_cls[0].ci_total, total + 3 * SIZE - 4096);
	rig_reopen(&r, 1);
	T_EQ(info_of(r.pool).pi_cls[0].ci_total, total + 3 * SIZE - 4096);
	T_EQ(mp_pool_close(r.pool), 0);
	r.pool = NULL;
	T_EQ(mp_verify(r.dev, 2, MP_VERIFY_DATA, NULL, NULL, &damage), 0);
	T_EQ(damage, 0);
	T_EQ(dump_says(&r, "bytes_at_creation"), 1);
	/* without copy 0 the one at the end is found, and the others by it */
	r.m[0].dev.d_ops = &no_first_ops;
	T_EQ(mp_pool_open(r.dev, 2, MP_OPEN_RDONLY, &r.pool), 0);
	T_EQ(r.pool->p_dev[0]->pd_found.f_bad, 1);
	T_EQ(mp_pool_close(r.pool), 0);
	/* and without those that are not at its end */
	r.m[0].dev.d_ops = &no_rewritten_ops;
	T_EQ(mp_pool_open(r.dev, 2, MP_OPEN_RDONLY, &r.pool), 0);
	T_EQ(r.pool->p_dev[0]->pd_found.f_bad, 6);
	T_EQ(mp_pool_close(r.pool), 0);
	r.m[0].dev.d_ops = &mem_ops;
	/* a damaged one still tells where */
	poke(&r.m[0], 700, 0x5a, 4);
	T_EQ(mp_pool_open(r.dev, 2, MP_OPEN_RDONLY, &r.pool), 0);
	T_EQ(r.pool->p_dev[0]->pd_found.f_bad, 1);
	T_EQ(mp_pool_close(r.pool), 0);
	r.pool = NULL;
	/* smaller than recorded */
	r.m[0].dev.d_size = 3 * SIZE;
	T_OK(mp_pool_open(r.dev, 2, 0, &r.pool) < 0);
	r.m[0].dev.d_size = 4 * SIZE;
	T_EQ(mp_pool_destroy(r.dev, 2), 0);
	rig_fini(&r);
}

static void devices_never_shrink(void)
{
	struct mp_probe pb;
	struct rig r;
	u64 total;

	rig_init(&r, 1, SIZE);
	T_EQ(rig_open(&r), 0);
	total = info_of(r.pool).pi_cls[0].ci_total;
	r.m[0].dev.d_size = SIZE - 65536;
	T_EQ(mp_pool_grow(r.pool), -EUCLEAN);
	T_EQ(mp_probe(r.dev[0], &pb), -EUCLEAN);
	T_EQ(mp_pool_destroy(r.dev, 1), -EUCLEAN);
	/* a device that claims more than it has */
	r.m[0].dev.d_size = SIZE;
	mem_grow(&r.m[0], 2 * SIZE);
	r.m[0].fail_write = -EIO;
	T_EQ(mp_pool_grow(r.pool), -EIO);
	T_EQ(mp_pool_writable(r.pool), 0);
	r.m[0].fail_write = 0;
	T_EQ(info_of(r.pool).pi_cls[0].ci_total, total);
	/* less than a superblock is worth */
	r.m[0].dev.d_size = SIZE + 4096;
	T_EQ(mp_pool_grow(r.pool), 0);
	T_EQ(info_of(r.pool).pi_cls[0].ci_total, total);
	r.m[0].dev.d_size = 2 * SIZE;
	T_EQ(mp_pool_grow(r.pool), 0);
	T_OK(info_of(r.pool).pi_cls[0].ci_total > total);
	rig_fini(&r);
}

/* the home device records a size that its member has not: nothing may be written */
static void recorded_size_must_be_there(void)
{
	struct rig r;
	u8 *old = malloc(SIZE);

	rig_init(&r, 2, SIZE);
	T_EQ(rig_open(&r), 0);
	memcpy(old, r.m[1].now, SIZE);
	mem_grow(&r.m[1], 2 * SIZE);
	T_EQ(mp_pool_grow(r.pool), 0);
	T_EQ(mp_pool_close(r.pool), 0);
	r.pool = NULL;
	/* the member as it was before, of the generation before */
	memcpy(r.m[1].now, old, SIZE);
	r.m[1].dev.d_size = SIZE;
	T_EQ(rig_open(&r), -EUCLEAN);
	r.m[1].dev.d_size = 2 * SIZE;
	T_EQ(rig_open(&r), 0);
	rig_fini(&r);
	free(old);
}

/* ---- order on media ---- */

/* looks at every superblock that is about to be written, and at what is on media then */
static struct watch {
	struct mem *w_home, *w_new;
	u64 w_end;		/* the block at the new end of w_new */
	const char *w_name;	/* copies without a mark must find it in copy 0 */
	u32 w_seen, w_bad;
} watch;

static int watch_write(struct mp_dev *d, u64 off, const void *buf, size_t len, unsigned int flags)
{
	static struct mp_sb sb, found;
	struct watch *w = &watch;

	if (len == MP_BLOCK && off && mp_sb_is_magic(buf) && !mp_sb_decode(buf, off, &sb)) {
		if (w->w_name && !sb.sb_mark && !strcmp(sb.sb_name, w->w_name)) {
			w->w_seen++;
			w->w_bad += strcmp(name0(mem_of(d)), w->w_name) != 0;
		}
		if (w->w_end && sb.sb_dev[1].sd_bytes > w->w_end) {
			w->w_seen++;
			w->w_bad += w->w_new->media[w->w_end] == 0xee;
		}
		if (w->w_new && !w->w_end && d == &w->w_home->dev && sb.sb_ndevs == 2) {
			w->w_seen++;
			w->w_bad += mp_sb_decode(w->w_new->media, 0, &found) != 0;
			off = mp_sb_copy_addr(SIZE, 2);
			w->w_bad += mp_sb_decode(w->w_new->media + off, off, &found) != 0;
			off = sb.sb_addr;
		}
	}
	return mem_write(d, off, buf, len, flags);
}

static const struct mp_dev_ops watch_ops = {
	.read = mem_read, .write = watch_write, .flush = mem_flush,
};

static void watch_open(struct rig *r, u32 n)
{
	u32 i;

	rig_init(r, n, SIZE);
	for (i = 0; i < n; i++)
		r->m[i].dev.d_ops = &watch_ops;
	T_EQ(rig_open(r), 0);
	memset(&watch, 0, sizeof(watch));
	watch.w_home = &r->m[0];
}

static void name_is_on_media_before_the_mark_goes(void)
{
	struct rig r;

	watch_open(&r, 2);
	watch.w_name = "another";
	T_EQ(mp_pool_rename(r.pool, "another"), 0);
	T_EQ(watch.w_seen, 4);
	T_EQ(watch.w_bad, 0);
	rig_fini(&r);
}

static void new_size_is_on_media_before_it_counts(void)
{
	struct rig r;

	watch_open(&r, 2);
	mem_grow(&r.m[1], 2 * SIZE);
	watch.w_new = &r.m[1];
	watch.w_end = 2 * SIZE - 4096;
	T_EQ(mp_pool_grow(r.pool), 0);
	T_OK(watch.w_seen >= 4);
	T_EQ(watch.w_bad, 0);
	rig_fini(&r);
}

static void new_device_is_whole_before_it_counts(void)
{
	struct mem m;
	struct rig r;

	watch_open(&r, 1);
	mem_init(&m, SIZE);
	watch.w_new = &m;
	T_EQ(add_one(&r, &m.dev, MP_STAGING, 0), 0);
	T_OK(watch.w_seen >= 2);
	T_EQ(watch.w_bad, 0);
	T_EQ(mp_pool_close(r.pool), 0);
	r.pool = NULL;
	rig_fini(&r);
	mem_fini(&m);
}

/* ---- while others work ---- */

struct work {
	struct mp_pool *pool;
	bool is_over;
	u64 n;
};

static void *worker(void *arg)
{
	struct work *w = arg;
	struct mp_obj *o;
	u64 id;

	while (!__atomic_load_n(&w->is_over, __ATOMIC_RELAXED)) {
		struct mp_alloc a = { .al_kind = MP_MBLOCK, .al_capacity = 16384, .al_tag = 1,
				      .al_mclass = w->n % 2 ? MP_STAGING : MP_CAPACITY,
				      .al_flags = MP_ALLOC_ANY };
		if (mp_obj_alloc(w->pool, &a, 1, &o) || mp_obj_write_begin(o, 0, 16384))
			return "alloc";
		mp_obj_write_end(o, 0, 0);
		if (commit(w->pool, o, 16384))
			return "commit";
		id = mp_obj_id(o);
		mp_obj_put(o);
		if (delete_id(w->pool, id))
			return "delete";
		mp_pool_flush(w->pool, 3);
		info_of(w->pool);
		w->n++;
	}
	return NULL;
}

static void others_work_meanwhile(void)
{
	struct work w[3] = { { .n = 0 } };
	struct mem more[6];
	pthread_t th[3];
	struct mp_pool_info in;
	struct mp_dev *all[7];
	struct rig r;
	char name[16];
	void *what;
	u32 i;

	rig_init(&r, 1, SIZE);
	T_EQ(rig_open(&r), 0);
	all[0] = r.dev[0];
	for (i = 0; i < 3; i++) {
		w[i].pool = r.pool;
		T_EQ(pthread_create(&th[i], NULL, worker, &w[i]), 0);
	}
	for (i = 0; i < 6; i++) {
		struct mp_set set = { .ms_mask = MP_SET_SPARE, .ms_spare_pct = { i, i } };

		mem_init(&more[i], 2 * SIZE);
		all[i + 1] = &more[i].dev;
		more[i].dev.d_size = SIZE;
		T_EQ(add_one(&r, &more[i].dev, i % 2, 0), 0);
		snprintf(name, sizeof(name), "busy%u", i);
		T_EQ(mp_pool_rename(r.pool, name), 0);
		more[i].dev.d_size = 2 * SIZE;
		T_EQ(mp_pool_grow(r.pool), 0);
		T_EQ(mp_pool_set(r.pool, &set), 0);
	}
	for (i = 0; i < 3; i++) {
		__atomic_store_n(&w[i].is_over, true, __ATOMIC_RELAXED);
		pthread_join(th[i], &what);
		T_OK(!what);
	}
	mp_pool_info(r.pool, &in);
	T_EQ(in.pi_cls[0].ci_used + in.pi_cls[1].ci_used, 0);
	T_EQ(mp_pool_close(r.pool), 0);
	T_EQ(mp_pool_open(all, 7, 0, &r.pool), 0);
	T_OK(!strcmp(info_of(r.pool).pi_name, "busy5"));
	T_EQ(info_of(r.pool).pi_cls[0].ci_total, in.pi_cls[0].ci_total);
	T_EQ(info_of(r.pool).pi_cls[1].ci_total, in.pi_cls[1].ci_total);
	T_EQ(mp_pool_close(r.pool), 0);
	r.pool = NULL;
	rig_fini(&r);
	for (i = 0; i < 6; i++)
		mem_fini(&more[i]);
}

int main(void)
{
	T_RUN(properties_change_and_stay);
	T_RUN(bad_properties_write_nothing);
	T_RUN(failed_change_stops_the_pool);
	T_RUN(rename_shows_at_byte_0);
	T_RUN(rename_cut_at_byte_0_is_finished);
	T_RUN(foreign_byte_0_is_never_taken_back);
	T_RUN(damaged_copy_0_is_left_alone);
	T_RUN(home_device_decides);
	T_RUN(devices_are_added_with_a_new_class);
	T_RUN(bad_devices_are_refused);
	T_RUN(sixty_four_devices_in_a_class);
	T_RUN(leftover_of_an_add_is_ignored);
	T_RUN(old_home_device_is_refused);
	T_RUN(devices_grow_again_and_again);
	T_RUN(devices_never_shrink);
	T_RUN(recorded_size_must_be_there);
	T_RUN(name_is_on_media_before_the_mark_goes);
	T_RUN(new_size_is_on_media_before_it_counts);
	T_RUN(new_device_is_whole_before_it_counts);
	T_RUN(others_work_meanwhile);
	return t_done();
}
