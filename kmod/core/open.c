/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Opening a pool: validate the whole set of members, replay the metadata log,
 * and only then (and only for writing) repair copies and raise the generation.
 *
 * The generation: every open for writing writes generation G+1 to all members,
 * the log's devices first, and then a frame that carries it. So generations
 * differ by at most one step of an interrupted open, a log device is never
 * behind another member, and a member behind the log's generation is an old
 * copy of itself (INV-12).
 */
#include "core.h"

struct mp_pool *mp_pool_new(void)
{
	struct mp_pool *pool = os_zalloc(sizeof(*pool));

	if (!pool)
		return NULL;
	mutex_init(&pool->p_lock);
	mutex_init(&pool->p_root_lock);
	spin_lock_init(&pool->p_fault_lock);
	os_cond_init(&pool->p_cond);
	mp_tree_init(&pool->p_objs);
	INIT_LIST_HEAD(&pool->p_roots);
	return pool;
}

void mp_pool_free(struct mp_pool *pool)
{
	u32 i;

	if (pool->p_md.md_buf)
		mp_md_fini(pool);
	mp_otab_fini(pool);
	for (i = 0; i < MP_SLOTS; i++) {
		if (!pool->p_dev[i])
			continue;
		mp_smap_fini(&pool->p_dev[i]->pd_smap);
		os_free(pool->p_dev[i]->pd_sb);
		os_free(pool->p_dev[i]);
	}
	os_cond_destroy(&pool->p_cond);
	mutex_destroy(&pool->p_lock);
	mutex_destroy(&pool->p_root_lock);
	os_free(pool);
}

/* member with a copy of @sb; the slot must be free */
int mp_pool_add(struct mp_pool *pool, struct mp_dev *dev, const struct mp_sb *sb, u32 bad)
{
	struct mp_pdev *pd = os_zalloc(sizeof(*pd));

	if (pd)
		pd->pd_sb = os_alloc(sizeof(*sb));
	if (!pd || !pd->pd_sb) {
		os_free(pd);
		return mp_err(MP_NOMEM, "%s", dev->d_path);
	}
	*pd->pd_sb = *sb;
	pd->pd_sb_bad = bad;
	pd->pd_dev = dev;
	memcpy(pd->pd_uuid, sb->sb_dev_uuid, MP_UUID_LEN);
	pd->pd_slot = sb->sb_slot;
	pd->pd_mclass = sb->sb_mclass;
	pd->pd_flags = sb->sb_dev[sb->sb_slot].sd_flags;
	pd->pd_bytes = sb->sb_dev_bytes;
	pd->pd_data_off = sb->sb_data_off;
	mp_smap_init(&pd->pd_smap, dev->d_ops->discard != NULL);
	pool->p_dev[sb->sb_slot] = pd;
	pool->p_ndevs = max(pool->p_ndevs, sb->sb_slot + 1);
	if (sb->sb_slot == 0)
		pool->p_sb = pd->pd_sb;
	return 0;
}

/* ---- the set of members ---- */

static int member_read(struct mp_pool *pool, struct mp_dev *dev, struct mp_sb *sb)
{
	struct mp_pdev *other;
	u32 bad, i;
	int rc = mp_sb_read(dev, sb, &bad);

	if (rc)
		return rc;
	for (i = 0; i < MP_SLOTS; i++) {
		other = pool->p_dev[i];
		if (other && !CHECK(170, !memcmp(other->pd_sb->sb_uuid, sb->sb_uuid, MP_UUID_LEN)))
			return mp_err(MP_DEV_FOREIGN, "%s and %s", other->pd_dev->d_path,
				      dev->d_path);
	}
	other = pool->p_dev[sb->sb_slot];
	if (other)
		return mp_err(MP_DEV_DUP, "%s and %s are slot %u", other->pd_dev->d_path,
			      dev->d_path, sb->sb_slot);
	return mp_pool_add(pool, dev, sb, bad);
}

static int set_state(struct mp_pool *pool, struct mp_pdev *any)
{
	u32 i;

	for (i = 0; i < MP_SLOTS; i++)
		if (pool->p_dev[i] &&
		    !CHECK(171, pool->p_dev[i]->pd_sb->sb_state != MP_SB_DESTROYED))
			return mp_err(MP_DESTROYED, "pool '%s'", any->pd_sb->sb_name);
	if (pool->p_dev[0] ? !CHECK(172, pool->p_sb->sb_state == MP_SB_ACTIVE) :
			     any->pd_sb->sb_state == MP_SB_CREATING)
		return mp_err(MP_CREATING, "pool '%s'", any->pd_sb->sb_name);
	return 0;
}

static int set_complete(struct mp_pool *pool, struct mp_pdev *any)
{
	char uuid[37];
	u32 i;

	for (i = 0; i < any->pd_sb->sb_ndevs; i++) {
		if (pool->p_dev[i])
			continue;
		mp_uuid_text(any->pd_sb->sb_dev[i].sd_uuid, uuid);
		return mp_err(MP_DEV_MISSING, "pool '%s': slot %u of %u, class %s, uuid %s",
			      any->pd_sb->sb_name, i, any->pd_sb->sb_ndevs,
			      mp_class_text(any->pd_sb->sb_dev[i].sd_mclass), uuid);
	}
	return 0;
}

static int set_agree(struct mp_pool *pool, u64 *top)
{
	const struct mp_sb *home = pool->p_sb, *sb;
	bool has_old_md = false;
	u32 i;

	for (*top = 0, i = 0; i < pool->p_ndevs; i++) {
		sb = pool->p_dev[i]->pd_sb;
		*top = max_t(u64, *top, sb->sb_gen);
		/* the space map and the log are built from these: never switched off */
		if (sb->sb_ndevs != home->sb_ndevs || sb->sb_md_off != home->sb_md_off ||
		    sb->sb_md_bytes != home->sb_md_bytes ||
		    memcmp(sb->sb_dev, home->sb_dev, sizeof(sb->sb_dev)))
			return mp_err(MP_DEV_TABLE, "%s and %s", pool->p_dev[0]->pd_dev->d_path,
				      pool->p_dev[i]->pd_dev->d_path);
	}
	for (i = 0; i < pool->p_ndevs; i++)
		has_old_md |= (pool->p_dev[i]->pd_flags & MP_DEVF_MD) &&
			      pool->p_dev[i]->pd_sb->sb_gen < *top;
	for (i = 0; i < pool->p_ndevs; i++) {
		struct mp_pdev *pd = pool->p_dev[i];
		u64 gen = pd->pd_sb->sb_gen;

		if (!CHECK(173, gen + 1 >= *top &&
			   !(has_old_md && gen == *top && !(pd->pd_flags & MP_DEVF_MD))))
			return mp_err(MP_DEV_STALE, "%s: generation %llu, newest %llu",
				      pd->pd_dev->d_path, gen, *top);
	}
	return 0;
}

static int set_not_stale(struct mp_pool *pool)
{
	u32 i;

	for (i = 0; i < pool->p_ndevs; i++)
		if (!CHECK(174, pool->p_dev[i]->pd_sb->sb_gen >= pool->p_gen))
			return mp_err(MP_DEV_STALE, "%s: generation %llu, the pool's is %llu",
				      pool->p_dev[i]->pd_dev->d_path,
				      pool->p_dev[i]->pd_sb->sb_gen, pool->p_gen);
	return 0;
}

static int set_read(struct mp_pool *pool, struct mp_dev **dev, u32 ndevs, u64 *top)
{
	struct mp_dev *stranger = NULL;
	struct mp_pdev *any = NULL;
	struct mp_sb *sb;
	u32 i;
	int rc = 0;

	if (!ndevs || ndevs > MP_SLOTS)
		return mp_err(MP_NOPOOL, "%u devices", ndevs);
	sb = os_alloc(sizeof(*sb));
	if (!sb)
		return mp_err(MP_NOMEM, "superblock");
	for (i = 0; i < ndevs && (!rc || rc == -EINVAL); i++) {
		rc = member_read(pool, dev[i], sb);
		stranger = rc == -EINVAL ? dev[i] : stranger;
	}
	os_free(sb);
	if (rc && rc != -EINVAL)
		return rc;
	for (i = 0; i < MP_SLOTS; i++)
		any = any ? any : pool->p_dev[i];
	/* a member may lack its superblock because create or destroy was cut short */
	rc = any ? set_state(pool, any) : 0;
	if (!rc && stranger)
		rc = mp_err(MP_NOTMEMBER, "%s: no pool signature, or another pool's",
			    stranger->d_path);
	if (!rc)
		rc = set_complete(pool, any);
	return rc ? rc : set_agree(pool, top);
}

/* ---- space and log ---- */

static int space_init(struct mp_pool *pool)
{
	u64 bytes = 0;
	u32 i;
	int rc = 0;

	for (i = 0; i < pool->p_ndevs && !rc; i++) {
		struct mp_pdev *pd = pool->p_dev[i];
		u64 first = pd->pd_data_off / MP_BLOCK;
		u64 mid = mp_sb_copy_addr(pd->pd_bytes, 1) / MP_BLOCK;
		u64 last = mp_sb_copy_addr(pd->pd_bytes, 2) / MP_BLOCK;

		if (first > mid || mid + 1 > last)
			return mp_err(MP_SB_CORRUPT, "%s: geometry", pd->pd_dev->d_path);
		rc = mp_smap_add(&pd->pd_smap, first, mid - first);
		if (!rc)
			rc = mp_smap_add(&pd->pd_smap, mid + 1, last - mid - 1);
		pd->pd_smap.s_virgin = first;
		bytes += pd->pd_bytes;
	}
	if (rc)
		return mp_err(MP_NOMEM, "space map");
	/* three quarters of the bound on what an open may use */
	pool->p_mem_max = (48ull << 20) + bytes / 4096 * 3;
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
	rc = set_read(pool, dev, ndevs, &pool->p_sb_gen);
	if (!rc && !pool->p_is_rdonly &&
	    !CHECK(175, !(pool->p_sb->sb_ro_compat & ~MP_RO_COMPAT_KNOWN)))
		rc = mp_err(MP_SB_ROCOMPAT, "features 0x%llx", pool->p_sb->sb_ro_compat);
	if (!rc)
		rc = space_init(pool);
	if (!rc)
		rc = mp_md_init(pool);
	if (!rc)
		rc = mp_md_load(pool, fn, arg);
	if (!rc)
		rc = set_not_stale(pool);
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
 * member counts as below until both its copies say so: the next write may tear
 * the only one that does.
 */
static int raise_gen(struct mp_pool *pool, u64 gen, u8 *buf)
{
	u32 i, pass;
	int rc = 0;

	for (pass = 0; pass < 2; pass++) {
		for (i = 0; i < pool->p_ndevs && !rc; i++) {
			struct mp_pdev *pd = pool->p_dev[i];

			if ((pd->pd_flags & MP_DEVF_MD ? 0 : 1) != pass ||
			    (pd->pd_sb->sb_gen >= gen && !(pd->pd_sb_bad & ~1u)))
				continue;
			pd->pd_sb->sb_gen = gen;
			pd->pd_sb->sb_state = MP_SB_ACTIVE;
			pd->pd_sb->sb_md_epoch = pool->p_md.md_epoch;
			rc = mp_sb_write(pd->pd_dev, pd->pd_sb, pd->pd_sb_bad, buf);
			if (!rc)
				pd->pd_sb_bad &= 1;
		}
	}
	return rc;
}

static int activate(struct mp_pool *pool)
{
	u8 *buf = os_alloc_io(MP_BLOCK);
	struct mp_txn txn;
	u32 i;
	int rc = buf ? 0 : mp_err(MP_NOMEM, "superblock");

	/* objects' contents seen from now on must not be lost later: INV-7 */
	for (i = 0; i < pool->p_ndevs && !rc; i++)
		rc = BARRIER(105, mp_dev_flush(pool, pool->p_dev[i]));
	if (!rc)
		rc = mp_md_repair(pool);
	if (!rc)
		rc = raise_gen(pool, pool->p_sb_gen, buf);
	if (!rc)
		rc = raise_gen(pool, pool->p_sb_gen + 1, buf);
	os_free_io(buf);
	if (rc)
		return rc;
	pool->p_gen = ++pool->p_sb_gen;
	rc = mp_txn_init(&txn, 0);
	return rc ? rc : mp_md_commit(pool, &txn);
}

int mp_pool_open(struct mp_dev **dev, u32 ndevs, u32 flags, struct mp_pool **out)
{
	struct mp_pool *pool;
	int rc;

	if (flags & ~MP_OPEN_RDONLY)
		return mp_err(MP_INVAL, "open flags 0x%x", flags);
	rc = mp_pool_load(dev, ndevs, flags, NULL, NULL, &pool);
	if (rc)
		return rc;
	if (!pool->p_is_rdonly)
		rc = activate(pool);
	if (rc) {
		mp_pool_free(pool);
		return rc;
	}
	*out = pool;
	return 0;
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
