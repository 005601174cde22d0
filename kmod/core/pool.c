/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A pool in memory: its members and what belongs to it. Discards, and what it says of itself.
 */
#include "durable.h"
#include "open.h"

#define TRIM_MS	1000	/* between two looks at the stock */
#define FOUND_STEP 4096u	/* blocks looked at under p_lock at a time */

/* ---- in memory ---- */

struct mp_pool *mp_pool_new(void)
{
	struct mp_pool *pool = os_zalloc(sizeof(*pool));

	if (!pool)
		return NULL;
	mutex_init(&pool->p_lock);
	mutex_init(&pool->p_admin_lock);
	mutex_init(&pool->p_root_lock);
	spin_lock_init(&pool->p_fault_lock);
	os_cond_init(&pool->p_cond);
	mp_tree_init(&pool->p_objs);
	INIT_LIST_HEAD(&pool->p_roots);
	mp_own_init(&pool->p_own);
	return pool;
}

void mp_pool_free(struct mp_pool *pool)
{
	u32 i;

	os_assert(!pool->p_nhandles);
	/* all that was written is on the devices, as far as any caller was told: others may come */
	mp_own_leave(&pool->p_own);
	mp_own_fini(&pool->p_own);
	if (pool->p_md.md_buf)
		mp_md_fini(pool);
	mp_otab_fini(pool);
	for (i = 0; i < MP_SLOTS; i++)
		mp_pdev_free(pool->p_dev[i]);
	os_cond_destroy(&pool->p_cond);
	mutex_destroy(&pool->p_lock);
	mutex_destroy(&pool->p_root_lock);
	mutex_destroy(&pool->p_admin_lock);
	os_free(pool);
}

struct mp_pdev *mp_pdev_new(struct mp_dev *dev, const struct mp_sb *sb)
{
	struct mp_pdev *pd = os_zalloc(sizeof(*pd));

	if (pd)
		pd->pd_sb = os_alloc(sizeof(*sb));
	if (!pd || !pd->pd_sb) {
		os_free(pd);
		mp_err(MP_NOMEM, "%s", dev->d_path);
		return NULL;
	}
	*pd->pd_sb = *sb;
	pd->pd_dev = dev;
	memcpy(pd->pd_uuid, sb->sb_dev_uuid, MP_UUID_LEN);
	pd->pd_slot = sb->sb_slot;
	pd->pd_mclass = sb->sb_mclass;
	pd->pd_flags = sb->sb_dev[sb->sb_slot].sd_flags;
	pd->pd_bytes = sb->sb_dev_bytes;
	pd->pd_data_off = sb->sb_data_off;
	mp_smap_init(&pd->pd_smap, dev->d_ops->discard != NULL);
	return pd;
}

void mp_pdev_free(struct mp_pdev *pd)
{
	if (!pd)
		return;
	pd->pd_dev->d_pool = NULL;
	mp_smap_fini(&pd->pd_smap);
	os_free(pd->pd_sb);
	os_free(pd);
}

/* member with a copy of @sb; the slot must be free */
int mp_pool_add(struct mp_pool *pool, struct mp_dev *dev, const struct mp_sb *sb)
{
	struct mp_pdev *pd = mp_pdev_new(dev, sb);

	os_assert(!pool->p_is_open && !pool->p_dev[sb->sb_slot]);
	if (!pd)
		return -ENOMEM;
	pool->p_dev[sb->sb_slot] = pd;
	dev->d_pool = pool;
	pool->p_ndevs = max(pool->p_ndevs, sb->sb_slot + 1);
	if (sb->sb_slot == 0) {
		pool->p_sb = pd->pd_sb;
		memcpy(pool->p_uuid, sb->sb_uuid, MP_UUID_LEN);
	}
	return 0;
}

int mp_pdev_space(struct mp_pdev *pd)
{
	const struct mp_sb *sb = pd->pd_sb;
	u64 at = pd->pd_data_off / MP_BLOCK, end;
	u32 i;
	int rc = 0;

	pd->pd_smap.s_virgin = at;
	/* what lies between the superblock copies, which are in ascending order */
	for (i = 1; i < mp_sb_copies(sb) && !rc; i++) {
		end = mp_sb_addr(sb, i) / MP_BLOCK;
		if (end < at)
			return mp_err(MP_SB_CORRUPT, "%s: geometry", pd->pd_dev->d_path);
		rc = mp_smap_add(&pd->pd_smap, at, end - at);
		at = end + 1;
	}
	return rc ? mp_err(MP_NOMEM, "space map") : 0;
}

/* ---- discard ---- */

int mp_pool_discard_step(struct mp_pool *pool, u64 max_bytes)
{
	struct mp_pdev *pd = NULL;
	struct mp_free *f = NULL;
	u32 i;
	int more = 0;

	if (mp_pool_writable(pool))
		return 0;
	if (mp_pool_has_beat(pool))
		max_bytes = min_t(u64, max_bytes, MP_STEP);
	mutex_lock(&pool->p_lock);
	for (i = 0; i < pool->p_ndevs && !f; i++) {
		pd = pool->p_dev[i];
		f = mp_smap_discard_begin(&pd->pd_smap, max_bytes / MP_BLOCK);
	}
	mutex_unlock(&pool->p_lock);
	if (!f)
		return 0;
	/* a hint: its failure changes nothing */
	pd->pd_dev->d_ops->discard(pd->pd_dev, f->f_node.n_key * MP_BLOCK, f->f_count * MP_BLOCK);
	mutex_lock(&pool->p_lock);
	mp_smap_discard_end(&pd->pd_smap, f);
	for (i = 0; i < pool->p_ndevs; i++)
		more |= pool->p_dev[i]->pd_smap.s_map[MP_SPACE_PEND] != 0;
	os_cond_wake_all(&pool->p_cond);
	mutex_unlock(&pool->p_lock);
	return more;
}

void mp_pool_found(struct mp_pool *pool, u32 slot, u64 off, u64 len)
{
	u64 at = off / MP_BLOCK, end = DIV_ROUND_UP(off + len, MP_BLOCK), next;

	/* the others get their turn */
	for (; at < end && slot < smp_load_acquire(&pool->p_ndevs); at = next) {
		next = min_t(u64, end, at + FOUND_STEP);
		mutex_lock(&pool->p_lock);
		mp_smap_found(&pool->p_dev[slot]->pd_smap, at, next - at);
		mutex_unlock(&pool->p_lock);
	}
}

/*
 * Is something queued, in stock (@ms: until the stock is looked at again), or kept out, which is
 * nothing that a close could wait for?
 */
static bool trim(struct mp_pool *pool, bool is_all, u32 *ms)
{
	u64 now = os_now_ms(), pend = 0, stock = 0;
	bool is_due, is_hurt;
	u32 i;

	mutex_lock(&pool->p_lock);
	is_hurt = mp_class_hurt_step(pool, now);
	is_due = now >= pool->p_trim_at;
	if (is_due)
		pool->p_trim_at = now + TRIM_MS;
	for (i = 0; i < pool->p_ndevs; i++) {
		struct mp_smap *s = &pool->p_dev[i]->pd_smap;

		if (is_due || is_all)
			mp_smap_trim(s, is_all ? 0 : s->s_taken);
		pend |= s->s_map[MP_SPACE_PEND];
		stock |= s->s_map[MP_SPACE_STOCK];
	}
	*ms = pend ? 1 : (u32)(pool->p_trim_at - now);
	mutex_unlock(&pool->p_lock);
	return pend || stock || (is_hurt && !is_all);
}

u32 mp_pool_trim(struct mp_pool *pool)
{
	u32 ms;

	/* one that may not be written has no more discards, however many wait */
	return !mp_pool_writable(pool) && trim(pool, false, &ms) ? ms : 0;
}

void mp_pool_give_back(struct mp_pool *pool, u64 max_bytes, u32 ms)
{
	u64 end = os_now_ms() + ms;

	if (pool->p_is_rdonly || pool->p_is_looking)
		return;
	while (!mp_pool_writable(pool) && trim(pool, true, &ms) && os_now_ms() < end)
		mp_pool_discard_step(pool, max_bytes);
}

/* ---- info ---- */

static void class_info(struct mp_pool *pool, u32 mclass, struct mp_class_info *ci)
{
	const struct mp_cls *c = &pool->p_cls[mclass];
	u64 avail = mp_class_avail(pool, mclass, true);
	u32 i;

	mp_assert_locked(pool);
	os_assert(avail <= c->c_total);
	ci->ci_devs = c->c_ndevs;
	ci->ci_total = c->c_total * MP_BLOCK;
	ci->ci_used = (c->c_total - avail) * MP_BLOCK;
	ci->ci_reserve = c->c_reserve * MP_BLOCK;
	ci->ci_free = mp_class_avail(pool, mclass, false) * MP_BLOCK;
	for (i = 0; i < c->c_ndevs; i++) {
		const struct mp_smap *s = &pool->p_dev[c->c_slot[i]]->pd_smap;

		ci->ci_discarding += (s->s_free[MP_SPACE_PEND] + s->s_inflight) * MP_BLOCK;
	}
}

void mp_pool_info(struct mp_pool *pool, struct mp_pool_info *out)
{
	const struct mp_sb *sb = pool->p_sb;
	unsigned long irq;
	u32 i;

	memset(out, 0, sizeof(*out));
	spin_lock_irqsave(&pool->p_fault_lock, irq);
	out->pi_is_rdonly = pool->p_is_rdonly || pool->p_fault_id;
	out->pi_fault_id = (int)pool->p_fault_id;
	memcpy(out->pi_fault, pool->p_fault, sizeof(out->pi_fault));
	spin_unlock_irqrestore(&pool->p_fault_lock, irq);
	mutex_lock(&pool->p_lock);
	out->pi_is_multihost = sb->sb_ro_compat & MP_RO_MULTIHOST;
	memcpy(out->pi_uuid, sb->sb_uuid, MP_UUID_LEN);
	memcpy(out->pi_name, sb->sb_name, MP_NAME_LEN);
	memcpy(out->pi_label, sb->sb_label, MP_LABEL_LEN);
	out->pi_uid = sb->sb_uid;
	out->pi_gid = sb->sb_gid;
	out->pi_mode = sb->sb_mode;
	out->pi_format = sb->sb_format;
	out->pi_ndevs = pool->p_ndevs;
	out->pi_gen = pool->p_sb_gen;
	out->pi_objects = pool->p_nobjs;
	for (i = 0; i < MP_CLASSES; i++) {
		out->pi_spare_pct[i] = sb->sb_spare_pct[i];
		class_info(pool, i, &out->pi_cls[i]);
	}
	mutex_unlock(&pool->p_lock);
}

int mp_pool_member(struct mp_pool *pool, u32 slot, struct mp_member *out)
{
	const struct mp_pdev *pd;

	if (slot >= smp_load_acquire(&pool->p_ndevs))
		return -ENOENT;
	pd = pool->p_dev[slot];
	memset(out, 0, sizeof(*out));
	memcpy(out->mb_uuid, pd->pd_uuid, MP_UUID_LEN);
	out->mb_mclass = pd->pd_mclass;
	out->mb_slot = slot;
	out->mb_bytes = smp_load_acquire(&pd->pd_bytes);
	out->mb_dev = pd->pd_dev;
	out->mb_has_md = pd->pd_flags & MP_DEVF_MD;
	out->mb_health.he_csums = smp_load_acquire(&pd->pd_health.he_csums);
	out->mb_health.he_rereads = smp_load_acquire(&pd->pd_health.he_rereads);
	out->mb_health.he_repairs = smp_load_acquire(&pd->pd_health.he_repairs);
	return 0;
}
