/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A pool begins and ends. It exists from the moment one copy of the home device's (slot 0)
 * superblock says ACTIVE until one says DESTROYED; both are single block writes, so a crash
 * anywhere leaves a pool or none (INV-1).
 */
#include "durable.h"
#include "open.h"

/* ---- create ---- */

static int create_check(const struct mp_create *c)
{
	u32 count[MP_CLASSES] = { 0 };
	struct mp_probe pb;
	u32 i;
	int rc;

	rc = mp_name_check(c->mc_name);
	if (rc)
		return rc;
	rc = mp_label_check(c->mc_label);
	if (rc)
		return rc;
	for (i = 0; i < c->mc_ndevs; i++) {
		struct mp_dev *dev = c->mc_dev[i];

		if (c->mc_mclass[i] >= MP_CLASSES)
			return mp_err(MP_INVAL, "%s: class %u", dev->d_path, c->mc_mclass[i]);
		if (++count[c->mc_mclass[i]] > MP_CLASS_DEVS)
			return mp_err(MP_DEV_MANY, "class %s", mp_class_text(c->mc_mclass[i]));
		rc = mp_dev_check(dev);
		if (rc)
			return rc;
		rc = mp_probe(dev, &pb);
		if (rc == -EIO)
			return rc;
		if (c->mc_flags & MP_CREATE_FORCE) {
			rc = rc ? 0 : mp_own_look_at(dev);
			if (rc)
				return rc;
			continue;
		}
		/* a later generation than creation writes: perhaps a member added just now */
		if (!rc && (pb.pb_state == MP_SB_ACTIVE ||
			    (pb.pb_state == MP_SB_CREATING && pb.pb_gen > 2)))
			return mp_err(MP_DEV_BUSY, "%s: member of pool '%s'", dev->d_path,
				      pb.pb_name);
		if (rc && rc != -EINVAL)
			return rc;	/* our magic, but not readable: there may be data */
	}
	for (i = 0; i < MP_CLASSES; i++)
		if (c->mc_spare_pct[i] > MP_SPARE_MAX)
			return mp_err(MP_INVAL, "spare of %u percent", c->mc_spare_pct[i]);
	return count[MP_CAPACITY] ? 0 : mp_err(MP_NO_CAPACITY, "%u devices", c->mc_ndevs);
}

/* the second copy of the metadata log goes to another class when there is one */
static u32 second_md(const struct mp_create *c)
{
	u32 i;

	for (i = 1; i < c->mc_ndevs; i++)
		if (c->mc_mclass[i] != c->mc_mclass[0])
			return i;
	return c->mc_ndevs > 1 ? 1 : 0;
}

/*
 * Media full of objects of 1 MiB need 72 bytes for each, and room to go on: 128 of each MiB, in a
 * log of at most MP_MD_MAX, which small objects fill. A log device that is small beside the others
 * gives an eighth for both regions. A pool that will grow is made with what it needs then.
 */
static u64 md_size(const struct mp_create *c, u32 second)
{
	u64 dev = min(c->mc_dev[0]->d_size, c->mc_dev[second]->d_size), all = 0, n;
	u64 most = ALIGN_DOWN((dev / 2 - MP_SB_AREA) / 2 - MP_SB_AREA, MP_SB_AREA);
	u32 i;

	for (i = 0; i < c->mc_ndevs; i++)
		all += c->mc_dev[i]->d_size >> 13;
	n = max_t(u64, dev / 64, min(all, dev / 16));
	n = min(n, max_t(u64, all, 64u << 20));
	n = c->mc_md_bytes ? c->mc_md_bytes : n;
	n = max_t(u64, n, 256u << 10);
	n = min_t(u64, n, MP_MD_MAX);
	return min(ALIGN(n, MP_SB_AREA), most);
}

static int create_sb(const struct mp_create *c, struct mp_sb *sb)
{
	u32 second = second_md(c), i;
	int rc = 0;

	memset(sb, 0, sizeof(*sb));
	memcpy(sb->sb_name, c->mc_name, strlen(c->mc_name));
	if (c->mc_label)
		memcpy(sb->sb_label, c->mc_label, strlen(c->mc_label));
	memcpy(sb->sb_uuid, c->mc_uuid, MP_UUID_LEN);
	for (i = 0; i < MP_UUID_LEN && !sb->sb_uuid[i]; i++)
		;
	if (i == MP_UUID_LEN) {
		rc = mp_random(sb->sb_uuid, MP_UUID_LEN);
		sb->sb_uuid[6] = (sb->sb_uuid[6] & 0x0f) | 0x40;
		sb->sb_uuid[8] = (sb->sb_uuid[8] & 0x3f) | 0x80;
	}
	sb->sb_format = MP_FORMAT;
	if (c->mc_flags & MP_CREATE_MULTIHOST)
		sb->sb_ro_compat = MP_RO_MULTIHOST;
	sb->sb_state = MP_SB_CREATING;
	sb->sb_gen = 2;
	sb->sb_ndevs = c->mc_ndevs;
	sb->sb_md_off = MP_SB_AREA;
	sb->sb_md_bytes = md_size(c, second);
	sb->sb_uid = c->mc_uid;
	sb->sb_gid = c->mc_gid;
	sb->sb_mode = c->mc_mode;
	for (i = 0; i < MP_CLASSES; i++)
		sb->sb_spare_pct[i] = (u8)c->mc_spare_pct[i];
	for (i = 0; i < c->mc_ndevs && !rc; i++) {
		rc = mp_sb_entry(sb, i, c->mc_dev[i], c->mc_mclass[i]);
		if (i == 0 || i == second)
			sb->sb_dev[i].sd_flags |= MP_DEVF_MD;
	}
	return rc;
}

static int create_reserve(const struct mp_create *c, struct mp_sb *sb)
{
	u32 i;
	int rc = 0;

	for (i = 0; i < c->mc_ndevs && !rc; i++) {
		mp_sb_member(sb, i);
		rc = mp_sb_reserve(c->mc_dev[i], sb);
	}
	return rc;
}

/* the log's devices first: they are never behind another member, INV-12 */
static int create_sbs(const struct mp_create *c, struct mp_sb *sb, u8 *buf)
{
	u32 i, pass;
	int rc = 0;

	for (pass = 0; pass < 2; pass++) {
		for (i = 0; i < c->mc_ndevs && !rc; i++) {
			if ((sb->sb_dev[i].sd_flags & MP_DEVF_MD ? 0 : 1) != pass)
				continue;
			mp_sb_member(sb, i);
			rc = mp_sb_write(c->mc_dev[i], sb, 0, buf);
		}
	}
	return rc;
}

/*
 * The copies that are never written again: ACTIVE, because they outlive the
 * creation, of a generation below the CREATING copies, which so count.
 */
static int create_first_sbs(const struct mp_create *c, const struct mp_sb *sb, u8 *buf)
{
	struct mp_sb *first = os_alloc(sizeof(*first));
	u32 i;
	int rc = 0;

	if (!first)
		return mp_err(MP_NOMEM, "superblock");
	*first = *sb;
	first->sb_state = MP_SB_ACTIVE;
	first->sb_gen = 1;
	for (i = 0; i < c->mc_ndevs && !rc; i++) {
		mp_sb_member(first, i);
		rc = mp_sb_write_first(c->mc_dev[i], first, buf);
	}
	os_free(first);
	return rc;
}

/* an empty metadata log on both copies, through a pool that is never opened */
static int create_log(const struct mp_create *c, struct mp_sb *sb)
{
	struct mp_pool *pool = mp_pool_new();
	u32 i;
	int rc = 0;

	if (!pool)
		return mp_err(MP_NOMEM, "pool");
	for (i = 0; i < c->mc_ndevs && !rc; i++) {
		mp_sb_member(sb, i);
		rc = mp_pool_add(pool, c->mc_dev[i], sb);
	}
	if (!rc) {
		pool->p_gen = 1;
		pool->p_next_id = 1;
		rc = mp_md_init(pool);
	}
	if (!rc)
		rc = mp_md_format(pool);
	mp_pool_free(pool);
	return rc;
}

/*
 * What an earlier creation left has a copy 0 that is ACTIVE. Beside copies of the new pool it
 * would count alone, as that of a pool: it goes first. INV-30
 */
static int create_clear(const struct mp_create *c, u8 *buf)
{
	struct mp_sb *old = os_alloc(sizeof(*old));
	struct mp_sb_found found;
	u32 i;
	int rc = 0;

	if (!old)
		return mp_err(MP_NOMEM, "superblock");
	for (i = 0; i < c->mc_ndevs && !rc; i++)
		if (!mp_sb_read(c->mc_dev[i], old, &found))
			rc = mp_sb_erase(c->mc_dev[i], old, buf);
	os_free(old);
	return rc;
}

static int create_run(const struct mp_create *c, struct mp_sb *sb, u8 *buf)
{
	int rc = create_clear(c, buf);

	if (!rc)
		rc = create_sbs(c, sb, buf);
	if (!rc)
		rc = create_first_sbs(c, sb, buf);
	if (!rc)
		rc = create_log(c, sb);
	if (rc)
		return rc;
	/* home first: its first ACTIVE copy is the birth of the pool */
	sb->sb_state = MP_SB_ACTIVE;
	sb->sb_gen = 3;
	sb->sb_md_epoch = 1;
	return create_sbs(c, sb, buf);
}

int mp_pool_create(const struct mp_create *c)
{
	struct mp_sb *sb;
	u8 *buf;
	int rc = create_check(c);

	if (rc)
		return rc;
	sb = os_alloc(sizeof(*sb));
	buf = os_alloc_io(MP_BLOCK);
	if (sb && buf) {
		rc = create_sb(c, sb);
		if (!rc)
			rc = create_reserve(c, sb);
	} else {
		rc = mp_err(MP_NOMEM, "superblock");
	}
	if (!rc && !(c->mc_flags & MP_CREATE_PLAN))
		rc = create_run(c, sb, buf);
	os_free_io(buf);
	os_free(sb);
	return rc;
}

/* ---- destroy ---- */

struct doomed {
	struct mp_sb *sb;
	struct mp_dev *dev;
	u32 bad;
};

struct doom {
	struct doomed d[MP_SLOTS];
	u32 n;
	u64 gen;
};

static int doom_add(struct doom *all, struct mp_dev *dev)
{
	struct doomed *d = &all->d[all->n], t;
	struct mp_sb_found found;
	u32 i;
	int rc;

	d->sb = os_alloc(sizeof(*d->sb));
	if (!d->sb)
		return mp_err(MP_NOMEM, "superblock");
	rc = mp_sb_read(dev, d->sb, &found);
	for (i = 0; i < all->n && !rc; i++) {
		const struct mp_sb *o = all->d[i].sb;

		if (memcmp(o->sb_uuid, d->sb->sb_uuid, MP_UUID_LEN))
			rc = mp_err(MP_DEV_FOREIGN, "%s", dev->d_path);
		/* two of one slot: one of them was left by an add that was cut short */
		else if (o->sb_slot == d->sb->sb_slot &&
			 (!o->sb_slot || !memcmp(o->sb_dev_uuid, d->sb->sb_dev_uuid, MP_UUID_LEN)))
			rc = mp_err(MP_DEV_DUP, "%s and %s", dev->d_path, all->d[i].dev->d_path);
		if (rc) {
			os_free(d->sb);
			return rc;
		}
	}
	if (rc) {
		os_free(d->sb);
		return rc == -EINVAL ? 0 : rc;	/* not a member (any more) */
	}
	d->dev = dev;
	d->bad = found.f_bad;
	all->gen = max(all->gen, d->sb->sb_gen);
	/* in the order of slots: the home device is first */
	for (i = all->n++; i && all->d[i].sb->sb_slot < all->d[i - 1].sb->sb_slot; i--) {
		t = all->d[i];
		all->d[i] = all->d[i - 1];
		all->d[i - 1] = t;
	}
	return 0;
}

static int doom_run(struct doom *all, u8 *buf)
{
	u32 i;
	int rc = 0;

	for (i = 0; i < all->n && !rc; i++) {
		struct doomed *d = &all->d[i];

		d->sb->sb_state = MP_SB_DESTROYED;
		d->sb->sb_gen = all->gen + 1;
		d->sb->sb_mark = 0;
		rc = mp_sb_write(d->dev, d->sb, d->bad, buf);
	}
	/* every member says so on media before the first one forgets: INV-3 */
	for (i = 0; i < all->n && !rc; i++)
		if (!(all->d[i].dev->d_flags & MP_DEV_GOES))
			rc = mp_sb_erase(all->d[i].dev, all->d[i].sb, buf);
	return rc || all->n ? rc : mp_err(MP_NOTMEMBER, "no member device was given");
}

/* The home device says at once that the pool is destroyed: no other host opens it any more. */
static int doom_claimed(struct doom *all, u8 *buf)
{
	struct mp_sb_found found;
	struct mp_sb *again;
	struct mp_own own;
	int rc;

	if (!all->n || all->d[0].sb->sb_slot || all->d[0].sb->sb_state != MP_SB_ACTIVE ||
	    !(all->d[0].sb->sb_ro_compat & MP_RO_MULTIHOST))
		return doom_run(all, buf);
	again = os_alloc(sizeof(*again));
	if (!again)
		return mp_err(MP_NOMEM, "superblock");
	memset(&own, 0, sizeof(own));
	mp_own_init(&own);
	rc = mp_own_claim(&own, all->d[0].dev, all->d[0].sb);
	/* as it was before the claim, and still without an owner? */
	if (!rc)
		rc = mp_sb_read(all->d[0].dev, again, &found);
	if (!rc && (memcmp(again->sb_uuid, all->d[0].sb->sb_uuid, MP_UUID_LEN) ||
		    again->sb_gen != all->d[0].sb->sb_gen || mp_own_is_late(&own)))
		rc = mp_err(MP_HOST_BUSY, "another host has changed the pool, or may");
	own.ow_has_written = true;
	if (!rc)
		rc = doom_run(all, buf);
	mp_own_leave(&own);
	mp_own_fini(&own);
	os_free(again);
	return rc;
}

int mp_pool_destroy(struct mp_dev **dev, u32 ndevs)
{
	struct doom *all = os_zalloc(sizeof(*all));
	u8 *buf = os_alloc_io(MP_BLOCK);
	u32 i;
	int rc = all && buf ? 0 : mp_err(MP_NOMEM, "superblock");

	if (!rc && ndevs > MP_SLOTS)
		rc = mp_err(MP_DEV_MANY, "%u devices", ndevs);
	for (i = 0; i < ndevs && !rc; i++)
		rc = doom_add(all, dev[i]);
	if (!rc)
		rc = doom_claimed(all, buf);
	for (i = 0; all && i < all->n; i++)
		os_free(all->d[i].sb);
	os_free(all);
	os_free_io(buf);
	return rc;
}
