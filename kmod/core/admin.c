/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Administration of an open pool: properties, name, more devices, larger ones.
 *
 * One change is one generation of the superblocks: all members get it, the home
 * device (slot 0) first. Its first copy of the new generation is the moment at
 * which the change happened (INV-16); members that missed it are brought up to
 * date by the next open. The state in memory follows when all members have it,
 * so nothing in the metadata log can depend on a change that is not durable. A
 * write that fails after that moment leaves the outcome open: the pool stops.
 *
 * Objects are allocated, written and committed meanwhile: p_admin_lock is held
 * over I/O and shuts out other administration only.
 */
#include "durable.h"
#include "open.h"

/* ---- the step that all have in common ---- */

/* make of what all have in common what member @pd is to say in generation @gen */
static void member_sb(struct mp_sb *next, const struct mp_pdev *pd, u64 gen)
{
	/* no member goes back in time */
	os_assert(gen >= pd->pd_sb->sb_gen);
	mp_sb_member(next, pd->pd_slot);
	next->sb_base_bytes = pd->pd_sb->sb_base_bytes;
	next->sb_mark = pd->pd_sb->sb_mark;
	next->sb_data_off = pd->pd_data_off;
	next->sb_state = MP_SB_ACTIVE;
	next->sb_gen = gen;
}

/* the home device, the other log device, the others, the new ones: INV-12 */
static int members_write(struct mp_pool *pool, struct mp_sb *next, struct mp_pdev **extra,
			 u32 nextra, void *buf)
{
	u32 i, pass, n = pool->p_ndevs;
	int rc = 0;

	for (pass = 0; pass < 2; pass++) {
		for (i = 0; i < n + nextra && !rc; i++) {
			struct mp_pdev *pd = i < n ? pool->p_dev[i] : extra[i - n];

			if ((pd->pd_flags & MP_DEVF_MD ? 0 : 1) != pass)
				continue;
			member_sb(next, pd, pool->p_sb_gen + 1);
			rc = mp_sb_write(pd->pd_dev, next, 0, buf);
		}
	}
	return rc;
}

int mp_admin_write(struct mp_pool *pool, struct mp_sb *next, struct mp_pdev **extra, u32 nextra,
		   void *buf)
{
	u32 i;
	int rc = members_write(pool, next, extra, nextra, buf);

	mp_assert_admin(pool);
	if (rc)
		return mp_pool_fail(pool, MP_SB_WRITE, rc,
				    "superblocks of generation %llu: error %d",
				    pool->p_sb_gen + 1, rc);
	mutex_lock(&pool->p_lock);
	pool->p_sb_gen++;
	for (i = 0; i < pool->p_ndevs + nextra; i++) {
		struct mp_pdev *pd = i < pool->p_ndevs ? pool->p_dev[i] :
							  extra[i - pool->p_ndevs];

		member_sb(next, pd, pool->p_sb_gen);
		*pd->pd_sb = *next;
	}
	mutex_unlock(&pool->p_lock);
	return 0;
}

int mp_admin_names(struct mp_pool *pool, struct mp_sb *next, void *buf)
{
	bool has_marks = false;
	u32 i;
	int rc = 0;

	mp_assert_admin(pool);
	for (i = 0; i < pool->p_ndevs && !rc; i++) {
		struct mp_pdev *pd = pool->p_dev[i];

		if (!pd->pd_sb->sb_mark)
			continue;
		has_marks = true;
		rc = mp_sb_rewrite_first(pd->pd_dev, pd->pd_sb, buf);
	}
	if (rc)
		return mp_pool_fail(pool, MP_SB_WRITE, rc, "copy 0 of slot %u: error %d", i - 1,
				    rc);
	if (!has_marks)
		return 0;
	for (i = 0; i < pool->p_ndevs; i++)
		pool->p_dev[i]->pd_sb->sb_mark = 0;
	*next = *pool->p_sb;
	return mp_admin_write(pool, next, NULL, 0, buf);
}

/* a change in the making */
struct change {
	struct mp_sb *ch_next;
	void *ch_buf;
};

/* takes p_admin_lock, also when it fails */
static int change_begin(struct mp_pool *pool, struct change *ch)
{
	int rc;

	mutex_lock(&pool->p_admin_lock);
	ch->ch_next = os_alloc(sizeof(*ch->ch_next));
	ch->ch_buf = os_alloc_io(MP_BLOCK);
	rc = mp_pool_writable(pool);
	if (rc)
		return rc;
	if (!ch->ch_next || !ch->ch_buf)
		return mp_err(MP_NOMEM, "superblock");
	*ch->ch_next = *pool->p_sb;
	return 0;
}

static void change_end(struct mp_pool *pool, struct change *ch)
{
	mp_assert_admin(pool);
	os_free(ch->ch_next);
	os_free_io(ch->ch_buf);
	mutex_unlock(&pool->p_admin_lock);
}

/* ---- properties ---- */

static int set_check(const struct mp_set *set)
{
	u32 i;

	if (!set->ms_mask || (set->ms_mask & ~(MP_SET_OWNER | MP_SET_LABEL | MP_SET_SPARE |
						   MP_SET_MULTIHOST | MP_SET_ONE_HOST)) ||
	    ((set->ms_mask & MP_SET_MULTIHOST) && (set->ms_mask & MP_SET_ONE_HOST)))
		return mp_err(MP_INVAL, "property mask 0x%x", set->ms_mask);
	if ((set->ms_mask & MP_SET_OWNER) && (set->ms_mode & ~0777u))
		return mp_err(MP_INVAL, "mode 0%o", set->ms_mode);
	for (i = 0; (set->ms_mask & MP_SET_SPARE) && i < MP_CLASSES; i++)
		if (set->ms_spare_pct[i] > MP_SPARE_MAX)
			return mp_err(MP_INVAL, "spare of %u percent", set->ms_spare_pct[i]);
	if (set->ms_mask & MP_SET_LABEL)
		return mp_label_check(set->ms_label);
	return 0;
}

static void set_apply(struct mp_sb *sb, const struct mp_set *set)
{
	u32 i;

	if (set->ms_mask & MP_SET_OWNER) {
		sb->sb_uid = set->ms_uid;
		sb->sb_gid = set->ms_gid;
		sb->sb_mode = set->ms_mode;
	}
	for (i = 0; (set->ms_mask & MP_SET_SPARE) && i < MP_CLASSES; i++)
		sb->sb_spare_pct[i] = (u8)set->ms_spare_pct[i];
	if (set->ms_mask & MP_SET_MULTIHOST)
		sb->sb_ro_compat |= MP_RO_MULTIHOST;
	if (set->ms_mask & MP_SET_ONE_HOST)
		sb->sb_ro_compat &= ~MP_RO_MULTIHOST;
	if (set->ms_mask & MP_SET_LABEL) {
		memset(sb->sb_label, 0, MP_LABEL_LEN);
		if (set->ms_label)
			memcpy(sb->sb_label, set->ms_label, strlen(set->ms_label));
	}
}

int mp_pool_set(struct mp_pool *pool, const struct mp_set *set)
{
	struct change ch;
	int rc = set_check(set);

	if (rc)
		return rc;
	rc = change_begin(pool, &ch);
	if (!rc) {
		set_apply(ch.ch_next, set);
		/* a host that reads of a heartbeat finds one: begun before, ended after */
		if ((ch.ch_next->sb_ro_compat & MP_RO_MULTIHOST) && !mp_pool_has_beat(pool))
			rc = mp_own_begin(&pool->p_own, pool->p_dev[0]->pd_dev, ch.ch_next);
	}
	if (!rc)
		rc = mp_admin_write(pool, ch.ch_next, NULL, 0, ch.ch_buf);
	if (!rc) {
		mutex_lock(&pool->p_lock);
		mp_class_reserve(pool);
		mutex_unlock(&pool->p_lock);
		if (!(pool->p_sb->sb_ro_compat & MP_RO_MULTIHOST))
			mp_own_leave(&pool->p_own);
	}
	change_end(pool, &ch);
	return rc;
}

/*
 * The name is also what other programs see at byte 0. The other copies get it
 * first, and with it the mark under which copy 0 may be rewritten.
 */
int mp_pool_rename(struct mp_pool *pool, const char *name)
{
	struct change ch;
	u32 i;
	int rc = mp_name_check(name);

	if (rc)
		return rc;
	rc = change_begin(pool, &ch);
	for (i = 0; i < pool->p_ndevs && !rc; i++) {
		struct mp_pdev *pd = pool->p_dev[i];

		pd->pd_sb->sb_mark = 0;
		/* a damaged copy 0 stays as it is */
		if (!pd->pd_dev->d_ops->read(pd->pd_dev, 0, ch.ch_buf, MP_BLOCK) &&
		    !mp_sb_decode(ch.ch_buf, 0, ch.ch_next))
			pd->pd_sb->sb_mark = mp_sb_mark(ch.ch_buf);
	}
	if (!rc) {
		*ch.ch_next = *pool->p_sb;
		memset(ch.ch_next->sb_name, 0, MP_NAME_LEN);
		memcpy(ch.ch_next->sb_name, name, strlen(name));
		rc = mp_admin_write(pool, ch.ch_next, NULL, 0, ch.ch_buf);
	}
	if (!rc)
		rc = mp_admin_names(pool, ch.ch_next, ch.ch_buf);
	for (i = 0; i < pool->p_ndevs && rc; i++)
		pool->p_dev[i]->pd_sb->sb_mark = 0;
	change_end(pool, &ch);
	return rc;
}

/* ---- more devices ---- */

struct addition {
	struct mp_pool *ad_pool;
	struct mp_dev **ad_dev;
	const u32 *ad_mclass;
	u32 ad_n, ad_flags;
	u32 ad_touched;		/* devices that were written to */
	struct mp_pdev *ad_pdev[MP_SLOTS];
};

/* may device @i be overwritten? */
static int add_probe(const struct addition *ad, u32 i)
{
	const struct mp_sb *home = ad->ad_pool->p_sb;
	struct mp_dev *dev = ad->ad_dev[i];
	struct mp_probe pb;
	u32 k;
	int rc = mp_probe(dev, &pb);

	if (rc == -EIO)
		return rc;
	/* never a member of this very pool, by whatever path it came */
	for (k = 0; !rc && k < home->sb_ndevs; k++)
		if (!memcmp(pb.pb_uuid, home->sb_uuid, MP_UUID_LEN) &&
		    !memcmp(pb.pb_dev_uuid, home->sb_dev[k].sd_uuid, MP_UUID_LEN))
			return mp_err(MP_DEV_BUSY, "%s: slot %u of this pool", dev->d_path, k);
	if (ad->ad_flags & MP_CREATE_FORCE)
		return rc ? 0 : mp_own_look_at(dev);
	if (rc)
		return rc == -EINVAL ? 0 : rc;	/* our magic, but not readable: there may be data */
	if (pb.pb_state == MP_SB_DESTROYED ||
	    !memcmp(pb.pb_uuid, home->sb_uuid, MP_UUID_LEN))
		return 0;	/* of this pool, not in its table: left by an add cut short */
	if (pb.pb_state == MP_SB_CREATING && pb.pb_gen <= 2)
		return 0;
	return mp_err(MP_DEV_BUSY, "%s: member of pool '%s'", dev->d_path, pb.pb_name);
}

static int add_check(const struct addition *ad)
{
	const struct mp_pool *pool = ad->ad_pool;
	u32 count[MP_CLASSES], i, k;
	int rc = 0;

	if (!ad->ad_n)
		return mp_err(MP_INVAL, "no device to be added");
	for (i = 0; i < MP_CLASSES; i++)
		count[i] = pool->p_cls[i].c_ndevs;
	for (i = 0; i < ad->ad_n && !rc; i++) {
		struct mp_dev *dev = ad->ad_dev[i];

		if (ad->ad_mclass[i] >= MP_CLASSES)
			return mp_err(MP_INVAL, "%s: class %u", dev->d_path, ad->ad_mclass[i]);
		if (++count[ad->ad_mclass[i]] > MP_CLASS_DEVS)
			return mp_err(MP_DEV_MANY, "class %s", mp_class_text(ad->ad_mclass[i]));
		for (k = 0; k < pool->p_ndevs + i; k++)
			if (dev == (k < pool->p_ndevs ? pool->p_dev[k]->pd_dev :
							ad->ad_dev[k - pool->p_ndevs]))
				return mp_err(MP_DEV_DUP, "%s is given twice", dev->d_path);
		rc = mp_dev_check(dev);
		if (!rc)
			rc = add_probe(ad, i);
	}
	return rc;
}

/* the new table, and the members in memory */
static int add_plan(struct addition *ad, struct mp_sb *next)
{
	u32 i;
	int rc = 0;

	for (i = 0; i < ad->ad_n && !rc; i++)
		rc = mp_sb_entry(next, next->sb_ndevs++, ad->ad_dev[i], ad->ad_mclass[i]);
	for (i = 0; i < ad->ad_n && !rc; i++) {
		mp_sb_member(next, ad->ad_pool->p_ndevs + i);
		ad->ad_pdev[i] = mp_pdev_new(ad->ad_dev[i], next);
		if (!ad->ad_pdev[i])
			return -ENOMEM;
		ad->ad_dev[i]->d_pool = ad->ad_pool;
		rc = mp_pdev_space(ad->ad_pdev[i]);
		if (!rc)
			rc = mp_sb_reserve(ad->ad_dev[i], next);
	}
	return rc;
}

/*
 * Superblocks of the new devices: CREATING, of the pool's present generation. The
 * home device does not name them yet, so they are no members; when it does, they
 * must be whole (INV-17).
 */
static int add_write(struct addition *ad, struct mp_sb *sb, void *buf)
{
	u32 i;
	int rc = 0;

	for (i = 0; i < ad->ad_n && !rc; i++) {
		struct mp_pdev *pd = ad->ad_pdev[i];

		ad->ad_touched = i + 1;
		*sb = *pd->pd_sb;
		sb->sb_state = MP_SB_CREATING;
		sb->sb_gen = ad->ad_pool->p_sb_gen;
		rc = mp_sb_write(pd->pd_dev, sb, 0, buf);
		if (rc)
			break;
		/* outlives the addition, below the copies that count: as at creation */
		sb->sb_state = MP_SB_ACTIVE;
		sb->sb_gen = 1;
		rc = mp_sb_write_first(pd->pd_dev, sb, buf);
	}
	return rc;
}

/* one device under two names would be two members */
static int add_read_back(struct addition *ad, struct mp_sb *sb)
{
	struct mp_sb_found found;
	u32 i;
	int rc = 0;

	for (i = 0; i < ad->ad_n && !rc; i++) {
		rc = mp_sb_read(ad->ad_dev[i], sb, &found);
		if (!rc && !CHECK(!memcmp(sb->sb_dev_uuid, ad->ad_pdev[i]->pd_uuid,
					  MP_UUID_LEN)))
			rc = mp_err(MP_DEV_DUP, "%s is another of the new devices too",
				    ad->ad_dev[i]->d_path);
	}
	return rc;
}

static void add_apply(struct addition *ad)
{
	struct mp_pool *pool = ad->ad_pool;
	u32 i;

	mutex_lock(&pool->p_lock);
	for (i = 0; i < ad->ad_n; i++) {
		struct mp_pdev *pd = ad->ad_pdev[i];

		os_assert(pd->pd_slot == pool->p_ndevs);
		pool->p_dev[pd->pd_slot] = pd;
		/* a thread that sees the count sees the member */
		smp_store_release(&pool->p_ndevs, pd->pd_slot + 1);
		pool->p_mem_max += MP_MEM_OF(pd->pd_bytes);
		mp_class_add(pool, pd);
		ad->ad_pdev[i] = NULL;
	}
	mp_class_reserve(pool);
	mutex_unlock(&pool->p_lock);
}

static int add_run(struct addition *ad, struct change *ch)
{
	struct mp_pool *pool = ad->ad_pool;
	struct mp_sb *sb;
	u32 i;
	int rc = add_plan(ad, ch->ch_next);

	if (rc || (ad->ad_flags & MP_CREATE_PLAN))
		return rc;
	sb = os_alloc(sizeof(*sb));
	if (!sb)
		return mp_err(MP_NOMEM, "superblock");
	rc = add_write(ad, sb, ch->ch_buf);
	if (!rc)
		rc = add_read_back(ad, sb);
	if (rc) {
		/* not to be taken for left-overs of a crash; what cannot be erased is one */
		for (i = 0; i < ad->ad_touched; i++)
			mp_sb_erase(ad->ad_dev[i], ad->ad_pdev[i]->pd_sb, ch->ch_buf);
		os_free(sb);
		return rc;
	}
	os_free(sb);
	rc = mp_admin_write(pool, ch->ch_next, ad->ad_pdev, ad->ad_n, ch->ch_buf);
	if (!rc)
		add_apply(ad);
	return rc;
}

int mp_pool_add_devs(struct mp_pool *pool, struct mp_dev **dev, const u32 *mclass, u32 n,
		     u32 flags)
{
	struct addition *ad = os_zalloc(sizeof(*ad));
	struct change ch;
	u32 i;
	int rc;

	if (!ad)
		return mp_err(MP_NOMEM, "addition");
	ad->ad_pool = pool;
	ad->ad_dev = dev;
	ad->ad_mclass = mclass;
	ad->ad_n = n;
	ad->ad_flags = flags;
	rc = change_begin(pool, &ch);
	if (!rc && (flags & ~(MP_CREATE_FORCE | MP_CREATE_PLAN)))
		rc = mp_err(MP_INVAL, "flags 0x%x", flags);
	if (!rc)
		rc = add_check(ad);
	if (!rc)
		rc = add_run(ad, &ch);
	change_end(pool, &ch);
	for (i = 0; i < MP_SLOTS; i++)
		mp_pdev_free(ad->ad_pdev[i]);
	os_free(ad);
	return rc;
}

/* ---- larger devices ---- */

struct growth {
	struct mp_free *gr_node[MP_SLOTS];	/* for the new space; NULL: does not grow */
	u64 gr_bytes[MP_SLOTS];
};

/*
 * Is the new end really there? The first write to it also takes the new size to
 * media, before a superblock counts on it: INV-18.
 */
static int grow_prove(struct mp_pool *pool, struct mp_pdev *pd, u64 bytes, void *buf)
{
	struct mp_dev *dev = pd->pd_dev;
	u64 end = mp_sb_copy_addr(bytes, 2);
	int rc = mp_dev_reserve(dev, end, MP_BLOCK);

	if (rc)
		return rc;
	memset(buf, 0, MP_BLOCK);
	rc = mp_dev_write(dev, end, buf, MP_BLOCK);
	if (rc)
		return mp_err_as(MP_SB_WRITE, rc, "%s: the new end at offset %llu: error %d",
				 dev->d_path, end, rc);
	return BARRIER(mp_dev_flush(pool, pd));
}

/*
 * Copies 1 and 2 stay where they are, because copy 0 tells where: at the middle
 * and the end of the size at creation. One more is written at the new end,
 * where it is found when copy 0 cannot be read (INV-18).
 */
static int grow_plan(struct mp_pool *pool, struct growth *gr, struct mp_sb *next, void *buf,
		     u32 *n)
{
	u32 i;
	int rc = 0;

	for (i = 0; i < pool->p_ndevs && !rc; i++) {
		struct mp_pdev *pd = pool->p_dev[i];
		u64 bytes = ALIGN_DOWN(pd->pd_dev->d_size, MP_BLOCK);

		if (bytes < pd->pd_bytes)
			return mp_err(MP_SB_SHRUNK, "%s: %llu bytes, was %llu", pd->pd_dev->d_path,
				      bytes, pd->pd_bytes);
		if (bytes > (1ull << 59))
			return mp_err(MP_DEV_SMALL, "%s: %llu bytes", pd->pd_dev->d_path, bytes);
		/* what would hold little more than its superblock is not worth a change */
		if (bytes - pd->pd_bytes < MP_SB_AREA)
			continue;
		gr->gr_node[i] = mp_smap_node();
		if (!gr->gr_node[i])
			return mp_err(MP_NOMEM, "space map");
		gr->gr_bytes[i] = bytes;
		next->sb_dev[i].sd_bytes = bytes;
		if (!(pd->pd_dev->d_flags & MP_DEV_ZEROED))
			next->sb_dev[i].sd_flags &= (u8)~MP_DEVF_ZEROED;
		rc = grow_prove(pool, pd, bytes, buf);
		++*n;
	}
	return rc;
}

static void grow_apply(struct mp_pool *pool, struct growth *gr)
{
	u32 i;

	mutex_lock(&pool->p_lock);
	for (i = 0; i < pool->p_ndevs; i++) {
		struct mp_pdev *pd = pool->p_dev[i];
		u64 from = pd->pd_bytes / MP_BLOCK, to = gr->gr_bytes[i] / MP_BLOCK - 1;

		if (!gr->gr_node[i])
			continue;
		/* the copy at the former end of a device that grew before */
		if (pd->pd_bytes > pd->pd_sb->sb_base_bytes)
			from--;
		os_assert(gr->gr_bytes[i] > pd->pd_bytes && to > from);
		mp_smap_extend(&pd->pd_smap, gr->gr_node[i], from, to - from);
		gr->gr_node[i] = NULL;
		pool->p_cls[pd->pd_mclass].c_total += to - from;
		pool->p_mem_max += MP_MEM_OF(gr->gr_bytes[i] - pd->pd_bytes);
		pd->pd_flags = pd->pd_sb->sb_dev[i].sd_flags;
		smp_store_release(&pd->pd_bytes, gr->gr_bytes[i]);
	}
	mp_class_reserve(pool);
	mutex_unlock(&pool->p_lock);
}

int mp_pool_grow(struct mp_pool *pool)
{
	struct growth *gr = os_zalloc(sizeof(*gr));
	struct change ch;
	u32 i, n = 0;
	int rc;

	if (!gr)
		return mp_err(MP_NOMEM, "growth");
	rc = change_begin(pool, &ch);
	if (!rc)
		rc = grow_plan(pool, gr, ch.ch_next, ch.ch_buf, &n);
	if (!rc && n) {
		rc = mp_admin_write(pool, ch.ch_next, NULL, 0, ch.ch_buf);
		if (!rc)
			grow_apply(pool, gr);
	}
	change_end(pool, &ch);
	for (i = 0; i < MP_SLOTS; i++)
		os_free(gr->gr_node[i]);
	os_free(gr);
	return rc;
}
