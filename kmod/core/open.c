/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Opening a pool: validate the whole set of members, replay the metadata log,
 * and only then (and only for writing) repair copies and raise the generation.
 *
 * The generation: every open for writing writes generation G+1 to all members,
 * the home device first, then the other log device, and then a frame that
 * carries it. Administration (admin.c) does the same without a frame. So
 * generations differ by at most one step of an interrupted call, the home
 * device is never behind, a log device never behind others, and a member behind
 * the log's generation is an old copy of itself (INV-12). What members have in
 * common, their table too, is as the home device says.
 */
#include "durable.h"
#include "open.h"

/* ---- the set of members ---- */

/* a device that was given, and what it says of itself */
struct given {
	struct mp_dev *g_dev;
	struct mp_sb *g_sb;		/* NULL: not a member of anything */
	struct mp_sb_found g_found;
};

struct given_set {
	struct given *gs_dev;
	u32 gs_n;
	const struct given *gs_home;	/* NULL: not among them */
	struct mp_sb *gs_any;		/* the lowest slot */
	struct mp_dev *gs_stranger;
};

static int given_read(struct given_set *gs, struct mp_dev *dev)
{
	struct given *g = &gs->gs_dev[gs->gs_n++];
	u32 i;
	int rc;

	g->g_dev = dev;
	g->g_sb = os_alloc(sizeof(*g->g_sb));
	if (!g->g_sb)
		return mp_err(MP_NOMEM, "superblock");
	rc = mp_sb_read(dev, g->g_sb, &g->g_found);
	if (rc) {
		os_free(g->g_sb);
		g->g_sb = NULL;
		if (rc != -EINVAL)
			return rc;
		gs->gs_stranger = dev;
		return 0;
	}
	for (i = 0; i + 1 < gs->gs_n; i++) {
		const struct given *o = &gs->gs_dev[i];

		if (!o->g_sb)
			continue;
		if (!CHECK(!memcmp(o->g_sb->sb_uuid, g->g_sb->sb_uuid, MP_UUID_LEN)))
			return mp_err(MP_DEV_FOREIGN, "%s and %s", o->g_dev->d_path, dev->d_path);
		if (o->g_sb->sb_slot == g->g_sb->sb_slot &&
		    (!g->g_sb->sb_slot ||
		     !memcmp(o->g_sb->sb_dev_uuid, g->g_sb->sb_dev_uuid, MP_UUID_LEN)))
			return mp_err(MP_DEV_DUP, "%s and %s are slot %u", o->g_dev->d_path,
				      dev->d_path, g->g_sb->sb_slot);
	}
	if (g->g_sb->sb_slot == 0)
		gs->gs_home = g;
	if (!gs->gs_any || g->g_sb->sb_slot < gs->gs_any->sb_slot)
		gs->gs_any = g->g_sb;
	return 0;
}

/* is it in the home device's table? The table decides, not the device */
static bool given_is_member(const struct given_set *gs, const struct given *g)
{
	const struct mp_sb *home = gs->gs_home ? gs->gs_home->g_sb : NULL;

	if (!g->g_sb || (home && g->g_sb->sb_slot >= home->sb_ndevs))
		return false;
	return !home || !memcmp(home->sb_dev[g->g_sb->sb_slot].sd_uuid, g->g_sb->sb_dev_uuid,
				MP_UUID_LEN);
}

static int set_state(const struct given_set *gs)
{
	u32 i;

	for (i = 0; i < gs->gs_n; i++)
		if (given_is_member(gs, &gs->gs_dev[i]) &&
		    !CHECK(gs->gs_dev[i].g_sb->sb_state != MP_SB_DESTROYED))
			return mp_err(MP_DESTROYED, "pool '%s' was destroyed",
				      gs->gs_any->sb_name);
	if (gs->gs_home ? !CHECK(gs->gs_home->g_sb->sb_state == MP_SB_ACTIVE) :
			  gs->gs_any->sb_state == MP_SB_CREATING)
		return mp_err(MP_CREATING, "the creation of pool '%s' was interrupted",
			      gs->gs_any->sb_name);
	return 0;
}

static int set_complete(const struct mp_pool *pool, const struct mp_sb *any)
{
	char uuid[37];
	u32 i;

	for (i = 0; i < any->sb_ndevs; i++) {
		if (pool->p_dev[i])
			continue;
		mp_uuid_text(any->sb_dev[i].sd_uuid, uuid);
		return mp_err(MP_DEV_MISSING, "pool '%s': slot %u of %u, class %s, uuid %s",
			      any->sb_name, i, any->sb_ndevs,
			      mp_class_text(any->sb_dev[i].sd_mclass), uuid);
	}
	return 0;
}

/*
 * Does @sb fit the table of @home? The space map and the log are built from
 * these: never switched off. One that missed the last update may know fewer
 * members, or smaller ones.
 */
static bool table_fits(const struct mp_sb *home, const struct mp_sb *sb)
{
	const struct mp_sbdev *h = home->sb_dev, *d = sb->sb_dev;
	u32 i;

	if (sb->sb_md_off != home->sb_md_off || sb->sb_md_bytes != home->sb_md_bytes ||
	    sb->sb_ndevs > home->sb_ndevs ||
	    (sb->sb_gen == home->sb_gen && sb->sb_ndevs != home->sb_ndevs))
		return false;
	for (i = 0; i < sb->sb_ndevs; i++) {
		if (memcmp(h[i].sd_uuid, d[i].sd_uuid, MP_UUID_LEN) ||
		    h[i].sd_mclass != d[i].sd_mclass ||
		    (h[i].sd_flags & MP_DEVF_MD) != (d[i].sd_flags & MP_DEVF_MD) ||
		    h[i].sd_bytes < d[i].sd_bytes)
			return false;
		if (sb->sb_gen == home->sb_gen && (h[i].sd_bytes != d[i].sd_bytes ||
						   h[i].sd_flags != d[i].sd_flags))
			return false;
	}
	return true;
}

/* An older copy of a device, unless the newest superblock of it could not be read. */
static int stale_error(const struct mp_dev *dev, const struct mp_sb_found *found, u64 gen,
		       u64 newest)
{
	if (found->f_io)
		return mp_err_as(MP_SB_READ, found->f_io, "%s: superblock: error %d", dev->d_path,
				 found->f_io);
	return mp_err(MP_DEV_STALE, "%s: generation %llu, newest %llu", dev->d_path, gen, newest);
}

static int pdev_stale(const struct mp_pdev *pd, u64 newest)
{
	return stale_error(pd->pd_dev, &pd->pd_found, pd->pd_sb->sb_gen, newest);
}

static int set_agree(struct mp_pool *pool)
{
	const struct mp_sb *home = pool->p_sb, *sb;
	bool has_old_md = false;
	u32 i;

	for (i = 0; i < pool->p_ndevs; i++) {
		sb = pool->p_dev[i]->pd_sb;
		if (!CHECK(sb->sb_gen <= home->sb_gen))
			return pdev_stale(pool->p_dev[0], sb->sb_gen);
		if (!table_fits(home, sb))
			return mp_err(MP_DEV_TABLE, "%s and %s", pool->p_dev[0]->pd_dev->d_path,
				      pool->p_dev[i]->pd_dev->d_path);
		has_old_md |= (pool->p_dev[i]->pd_flags & MP_DEVF_MD) &&
			      sb->sb_gen < home->sb_gen;
	}
	for (i = 0; i < pool->p_ndevs; i++) {
		struct mp_pdev *pd = pool->p_dev[i];
		u64 gen = pd->pd_sb->sb_gen, top = home->sb_gen;

		if (!CHECK(gen + 1 >= top &&
			   !(has_old_md && gen == top && i && !(pd->pd_flags & MP_DEVF_MD))))
			return pdev_stale(pd, top);
		if (!CHECK(home->sb_dev[i].sd_bytes <= pd->pd_dev->d_size))
			return mp_err(MP_SB_SHRUNK, "%s: %llu bytes, was %llu",
				      pd->pd_dev->d_path, pd->pd_dev->d_size,
				      home->sb_dev[i].sd_bytes);
	}
	pool->p_sb_gen = home->sb_gen;
	return 0;
}

/*
 * Every member shall say what the home device says, under its own identity. A
 * copy 0 that shows another name is to be rewritten.
 */
static void set_unify(struct mp_pool *pool)
{
	u32 i;

	for (i = 0; i < pool->p_ndevs; i++) {
		struct mp_pdev *pd = pool->p_dev[i];
		struct mp_sb *sb = pd->pd_sb;
		u64 base = sb->sb_base_bytes, gen = sb->sb_gen;
		u32 mark = sb->sb_mark;

		if (!mark && pd->pd_found.f_mark &&
		    memcmp(pd->pd_found.f_name, pool->p_sb->sb_name, MP_NAME_LEN))
			mark = pd->pd_found.f_mark;
		if (i) {
			*sb = *pool->p_sb;
			mp_sb_member(sb, i);
			sb->sb_gen = gen;
			sb->sb_base_bytes = base;
			sb->sb_data_off = pd->pd_data_off;
		}
		sb->sb_mark = mark;
		pd->pd_bytes = sb->sb_dev_bytes;
		pd->pd_flags = sb->sb_dev[i].sd_flags;
	}
}

static int set_not_stale(struct mp_pool *pool)
{
	u32 i;

	for (i = 0; i < pool->p_ndevs; i++)
		if (!CHECK(pool->p_dev[i]->pd_sb->sb_gen >= pool->p_gen))
			return pdev_stale(pool->p_dev[i], pool->p_gen);
	return 0;
}

/*
 * A device of this pool that the home device does not know was left by an add
 * that was cut short: it holds nothing. Unless the home device is the old one.
 */
static int set_extra(const struct given_set *gs, const struct given *g, mp_finding_fn *fn,
		     void *arg)
{
	const struct given *home = gs->gs_home;
	char text[160];
	struct mp_finding f = { .fi_id = MP_V_EXTRA, .fi_text = text };

	if (!CHECK(g->g_sb->sb_gen <= home->g_sb->sb_gen))
		return stale_error(home->g_dev, &home->g_found, home->g_sb->sb_gen,
				   g->g_sb->sb_gen);
	scnprintf(text, sizeof(text), "%s is not in the device table", g->g_dev->d_path);
	if (fn)
		fn(arg, &f);
	return 0;
}

static void found_take(struct mp_pdev *pd, const struct mp_sb_found *found)
{
	pd->pd_found = *found;
	pd->pd_health.he_csums = found->f_csums;
}

static int set_build(struct mp_pool *pool, const struct given_set *gs, mp_finding_fn *fn,
		     void *arg)
{
	const struct given *g;
	u32 i;
	int rc = 0;

	/* a member may lack its superblock because create or destroy was cut short */
	if (gs->gs_any)
		rc = set_state(gs);
	if (!rc && gs->gs_stranger)
		rc = mp_err(MP_NOTMEMBER, "%s: no pool signature, or another pool's",
			    gs->gs_stranger->d_path);
	for (i = 0; i < gs->gs_n && !rc; i++) {
		g = &gs->gs_dev[i];
		if (!given_is_member(gs, g)) {
			rc = set_extra(gs, g, fn, arg);
		} else if (pool->p_dev[g->g_sb->sb_slot]) {
			rc = mp_err(MP_DEV_DUP, "%s is slot %u", g->g_dev->d_path,
				    g->g_sb->sb_slot);
		} else {
			rc = mp_pool_add(pool, g->g_dev, g->g_sb);
			if (!rc)
				found_take(pool->p_dev[g->g_sb->sb_slot], &g->g_found);
		}
	}
	if (!rc)
		rc = set_complete(pool, gs->gs_home ? gs->gs_home->g_sb : gs->gs_any);
	return rc;
}

static int set_features(const struct mp_pool *pool)
{
	if (pool->p_is_rdonly ||
	    CHECK(!(pool->p_sb->sb_ro_compat & ~MP_RO_COMPAT_KNOWN)))
		return 0;
	return mp_err(MP_SB_ROCOMPAT, "features 0x%llx", pool->p_sb->sb_ro_compat);
}

static int set_read(struct mp_pool *pool, struct mp_dev **dev, u32 ndevs, mp_finding_fn *fn,
		    void *arg)
{
	struct given_set gs = { .gs_n = 0 };
	u32 i;
	int rc = 0;

	if (!ndevs || ndevs > 2 * MP_SLOTS)
		return mp_err(MP_NOPOOL, "%u devices", ndevs);
	gs.gs_dev = os_zalloc(ndevs * sizeof(*gs.gs_dev));
	if (!gs.gs_dev)
		return mp_err(MP_NOMEM, "superblock");
	for (i = 0; i < ndevs && !rc; i++)
		rc = given_read(&gs, dev[i]);
	if (!rc)
		rc = set_build(pool, &gs, fn, arg);
	if (!rc)
		rc = set_agree(pool);
	if (!rc)
		rc = set_features(pool);
	if (!rc)
		set_unify(pool);
	for (i = 0; i < gs.gs_n; i++)
		os_free(gs.gs_dev[i].g_sb);
	os_free(gs.gs_dev);
	return rc;
}

/* What superblocks say counts from when no other host can change it. */
static int set_own(struct mp_pool *pool, struct mp_dev **dev, u32 ndevs, mp_finding_fn *fn,
		   void *arg)
{
	const struct mp_sb *sb = pool->p_sb;
	struct mp_dev *home = pool->p_dev[0]->pd_dev;
	u32 i;
	int rc;

	if (!(sb->sb_ro_compat & MP_RO_MULTIHOST))
		return 0;
	rc = pool->p_is_rdonly ? mp_own_read(&pool->p_own, home, sb) :
				 mp_own_claim(&pool->p_own, home, sb);
	if (rc)
		return rc;
	for (i = 0; i < pool->p_ndevs; i++) {
		mp_pdev_free(pool->p_dev[i]);
		pool->p_dev[i] = NULL;
	}
	pool->p_ndevs = 0;
	return set_read(pool, dev, ndevs, fn, arg);
}

/* ---- space and log ---- */

static int space_init(struct mp_pool *pool)
{
	u64 bytes = 0;
	u32 i;
	int rc = 0;

	for (i = 0; i < pool->p_ndevs && !rc; i++) {
		rc = mp_pdev_space(pool->p_dev[i]);
		bytes += pool->p_dev[i]->pd_bytes;
	}
	if (rc)
		return rc;
	pool->p_mem_max = MP_MEM_BASE + MP_MEM_OF(bytes);
	mp_class_init(pool);
	return 0;
}

int mp_pool_load(struct mp_dev **dev, u32 ndevs, u32 flags, mp_finding_fn *fn, void *arg,
		 struct mp_pool **out)
{
	struct mp_pool *pool = mp_pool_new();
	int rc;

	if (!pool)
		return mp_err(MP_NOMEM, "pool");
	pool->p_is_rdonly = flags & MP_OPEN_RDONLY;
	rc = set_read(pool, dev, ndevs, fn, arg);
	if (!rc)
		rc = set_own(pool, dev, ndevs, fn, arg);
	if (!rc)
		rc = space_init(pool);
	if (!rc)
		rc = mp_md_init(pool);
	if (!rc)
		rc = mp_md_load(pool, fn, arg);
	if (!rc)
		rc = set_not_stale(pool);
	/* no host came meanwhile: it is as it was read */
	if (!rc && pool->p_is_rdonly)
		rc = mp_pool_readable(pool);
	if (rc) {
		mp_pool_free(pool);
		return rc;
	}
	*out = pool;
	return 0;
}

/* ---- making it ours ---- */

/*
 * Write generation @gen to the members below it, the log's devices first. A
 * member counts as below until all its other copies say so: the next write may tear
 * the only one that does.
 */
static int raise_gen(struct mp_pool *pool, u64 gen, u8 *buf)
{
	u32 i, k, n, pass;
	int rc = 0;

	os_assert(!pool->p_is_rdonly && gen >= pool->p_sb_gen);
	for (pass = 0; pass < 2; pass++) {
		for (i = 0; i < pool->p_ndevs && !rc; i++) {
			struct mp_pdev *pd = pool->p_dev[i];

			if ((pd->pd_flags & MP_DEVF_MD ? 0 : 1) != pass ||
			    (pd->pd_sb->sb_gen >= gen && !(pd->pd_found.f_bad & ~1u)))
				continue;
			pd->pd_sb->sb_gen = gen;
			pd->pd_sb->sb_state = MP_SB_ACTIVE;
			pd->pd_sb->sb_md_epoch = pool->p_md.md_epoch;
			rc = mp_sb_write(pd->pd_dev, pd->pd_sb, pd->pd_found.f_bad, buf);
			if (rc)
				break;
			for (k = 1, n = 0; k <= MP_SB_COPIES; k++)
				n += pd->pd_found.f_bad >> k & 1;
			mp_pdev_repaired(pool, pd, n);
			pd->pd_found.f_bad &= 1;
		}
	}
	return rc;
}

/* From less than half nothing reaches numbers that the next open would refuse. */
static int numbers_check(const struct mp_pool *pool)
{
	const struct mp_mdlog *md = &pool->p_md;

	if (CHECK(pool->p_sb_gen < MP_NUMBER_END / 2 && md->md_epoch < MP_NUMBER_END / 2 &&
		  md->md_seq < MP_NUMBER_END / 2))
		return 0;
	return mp_err(MP_NUMBERS, "generation %llu, epoch %llu, sequence %llu", pool->p_sb_gen,
		      md->md_epoch, md->md_seq);
}

/* May it be written to? Nothing is, yet. */
static int ready(struct mp_pool *pool)
{
	u32 i;
	int rc = numbers_check(pool);

	if (rc)
		return rc;

	/* of ours there is room for the next frame: INV-8 */
	if (!CHECK(!mp_md_room(pool, 0)))
		return mp_err(MP_MD_RECORD, "%llu objects are more than a log of %llu bytes holds",
			      pool->p_nobjs, pool->p_md.md_bytes);
	/* objects' contents seen from now on must not be lost later: INV-7 */
	for (i = 0; i < pool->p_ndevs && !rc; i++)
		rc = BARRIER(mp_dev_flush(pool, pool->p_dev[i]));
	return rc;
}

static int activate(struct mp_pool *pool)
{
	struct mp_sb *next = os_alloc(sizeof(*next));
	u8 *buf = os_alloc_io(MP_BLOCK);
	struct mp_txn txn;
	int rc = next && buf ? 0 : mp_err(MP_NOMEM, "superblock");

	mp_assert_admin(pool);
	os_assert(!pool->p_is_rdonly && !pool->p_is_looking);
	/* before the first write, so that none finds no space: INV-28 */
	if (!rc)
		rc = mp_md_space_open(pool);
	if (!rc)
		rc = mp_md_repair(pool);
	if (!rc)
		rc = raise_gen(pool, pool->p_sb_gen, buf);
	if (!rc)
		rc = raise_gen(pool, pool->p_sb_gen + 1, buf);
	if (!rc) {
		pool->p_sb_gen++;
		rc = mp_admin_names(pool, next, buf);
	}
	os_free(next);
	os_free_io(buf);
	if (rc)
		return rc;
	pool->p_gen = pool->p_sb_gen;
	rc = mp_txn_init(&txn, 0);
	return rc ? rc : mp_md_commit(pool, &txn);
}

int mp_pool_open(struct mp_dev **dev, u32 ndevs, u32 flags, struct mp_pool **out)
{
	struct mp_pool *pool;
	int rc;

	if (flags & ~(MP_OPEN_RDONLY | MP_OPEN_LOOK))
		return mp_err(MP_INVAL, "open flags 0x%x", flags);
	rc = mp_pool_load(dev, ndevs, flags, NULL, NULL, &pool);
	if (rc)
		return rc;
	if (!pool->p_is_rdonly) {
		rc = ready(pool);
		pool->p_is_looking = flags & MP_OPEN_LOOK;
		if (!rc && !pool->p_is_looking)
			rc = activate(pool);
	}
	if (rc) {
		mp_pool_free(pool);
		return rc;
	}
	pool->p_is_open = true;
	*out = pool;
	return 0;
}

int mp_pool_begin(struct mp_pool *pool)
{
	int rc;

	if (pool->p_is_rdonly)
		return mp_pool_writable(pool);
	if (!pool->p_is_looking)
		return 0;
	mutex_lock(&pool->p_admin_lock);
	pool->p_own.ow_has_written = true;
	pool->p_is_looking = false;
	rc = activate(pool);
	/* what is half done the next open puts right */
	if (rc)
		pool->p_is_rdonly = true;
	mutex_unlock(&pool->p_admin_lock);
	return rc;
}

int mp_pool_close(struct mp_pool *pool)
{
	u32 n;

	mutex_lock(&pool->p_lock);
	n = pool->p_nhandles;
	mutex_unlock(&pool->p_lock);
	if (n)
		return mp_err(MP_POOL_BUSY, "%u handles are open", n);
	mp_pool_free(pool);
	return 0;
}
