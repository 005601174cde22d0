/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Pool-wide services: the sticky fail-stop state, flushes, discards, info,
 * creation and destruction. Opening is in open.c.
 *
 * The home device is slot 0. A pool exists from the moment one copy of the
 * home's superblock says ACTIVE until one says DESTROYED; both are single
 * block writes, so a crash anywhere leaves a pool or none (INV-1).
 */
#include "core.h"

#define TRIM_MS	1000	/* between two looks at the stock */
#define FOUND_STEP 4096u	/* blocks looked at under p_lock at a time */
#define STEP	(4ull << 20)	/* bytes of a request that must not be late, INV-25 */

/* ---- fail-stop ---- */

int mp_pool_fail(struct mp_pool *pool, enum mp_err_id id, int err, const char *fmt, ...)
{
	void (*fn)(void *arg) = NULL;
	/* all of it goes to the caller: nothing of the stack after the end */
	char text[sizeof(pool->p_fault)] = "";
	unsigned long irq;
	void *arg = NULL;
	va_list ap;

	va_start(ap, fmt);
	vscnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	spin_lock_irqsave(&pool->p_fault_lock, irq);
	if (!pool->p_fault_id) {
		memcpy(pool->p_fault, text, sizeof(text));
		pool->p_fault_err = err;
		pool->p_fault_id = id;
		fn = pool->p_fault_fn;
		arg = pool->p_fault_arg;
		pool->p_fault_fn = NULL;
	}
	spin_unlock_irqrestore(&pool->p_fault_lock, irq);
	if (fn)
		fn(arg);
	return mp_err_as(id, err, "%s", text);
}

void mp_pool_on_fault(struct mp_pool *pool, void (*fn)(void *arg), void *arg)
{
	unsigned long irq;
	bool is_late;

	spin_lock_irqsave(&pool->p_fault_lock, irq);
	is_late = fn && pool->p_fault_id;
	pool->p_fault_fn = is_late ? NULL : fn;
	pool->p_fault_arg = arg;
	spin_unlock_irqrestore(&pool->p_fault_lock, irq);
	if (is_late)
		fn(arg);
}

/* its number and text, or 0 */
static u32 fault_get(struct mp_pool *pool, char *text)
{
	unsigned long irq;
	u32 id;

	spin_lock_irqsave(&pool->p_fault_lock, irq);
	id = pool->p_fault_id;
	if (id)
		memcpy(text, pool->p_fault, sizeof(pool->p_fault));
	spin_unlock_irqrestore(&pool->p_fault_lock, irq);
	return id;
}

int mp_pool_flushable(struct mp_pool *pool)
{
	char text[sizeof(pool->p_fault)];
	u32 id;

	mp_own_wait(pool);
	if (pool->p_is_rdonly)
		return mp_err(MP_RDONLY, "pool %s is open for reading only",
			      pool->p_sb->sb_name);
	id = fault_get(pool, text);
	return id ? mp_err(MP_FAILSTOP, "MP%04u: %s", id, text) : 0;
}

int mp_pool_writable(struct mp_pool *pool)
{
	if (pool->p_is_looking)
		return mp_err(MP_RDONLY, "pool %s: writing has not begun", pool->p_sb->sb_name);
	return mp_pool_flushable(pool);
}

bool mp_pool_is_failed(struct mp_pool *pool)
{
	unsigned long irq;
	bool is_failed;

	spin_lock_irqsave(&pool->p_fault_lock, irq);
	is_failed = pool->p_fault_id;
	spin_unlock_irqrestore(&pool->p_fault_lock, irq);
	return is_failed;
}

int mp_pool_failed(struct mp_pool *pool, int err)
{
	char text[sizeof(pool->p_fault)];
	u32 id = fault_get(pool, text);

	return id ? mp_err_as(id, err, "%s", text) : mp_err_as(MP_NOMEM, err, "metadata record");
}

int mp_dev_write(struct mp_dev *dev, u64 off, const void *buf, size_t len)
{
	struct mp_pool *pool = dev->d_pool;
	int rc = pool ? mp_pool_writable(pool) : 0;

	if (rc)
		return rc;
	if (pool && !pool->p_is_open)
		pool->p_own.ow_has_written = true;
	return dev->d_ops->write(dev, off, buf, len, 0);
}

int mp_dev_flush(struct mp_pool *pool, struct mp_pdev *pd)
{
	int rc = pd->pd_dev->d_ops->flush(pd->pd_dev);

	if (rc)
		return mp_pool_fail(pool, MP_MD_FLUSH, rc, "%s: flush: error %d",
				    pd->pd_dev->d_path, rc);
	return 0;
}

bool mp_dev_is_sparse(const struct mp_dev *dev)
{
	return dev->d_ops->reserve && !(dev->d_flags & MP_DEV_IS_BLOCK);
}

int mp_dev_reserve(struct mp_dev *dev, u64 off, u64 len)
{
	int rc = dev->d_ops->reserve ? dev->d_ops->reserve(dev, off, len) : 0;

	if (rc == -ENOSPC)
		return mp_err(MP_RESERVE,
			      "the file system below is full: cannot reserve %llu bytes for %s",
			      len, dev->d_path);
	if (rc)
		return mp_err_as(MP_RESERVE, rc, "%s: cannot reserve %llu bytes: error %d",
				 dev->d_path, len, rc);
	return 0;
}

int mp_dev_zero(struct mp_pool *pool, struct mp_pdev *pd, u64 off, u64 len)
{
	struct mp_dev *dev = pd->pd_dev;
	u32 max = 256u << 10;
	u64 step;
	u8 *buf;
	int rc = 0;

	if (dev->d_ops->zero) {
		/* a step takes seconds where the device has no command for it */
		for (; len && !rc; off += step, len -= step) {
			step = min_t(u64, len, STEP);
			rc = os_fatal_signal() ? -EINTR : mp_pool_writable(pool);
			if (!rc)
				rc = dev->d_ops->zero(dev, off, step);
		}
	} else {
		buf = os_alloc_io(max);
		if (!buf)
			return mp_err(MP_NOMEM, "zeroes");
		memset(buf, 0, max);
		for (; len && !rc; off += max) {
			u64 n = min_t(u64, len, max);

			rc = os_fatal_signal() ? -EINTR : mp_dev_write(dev, off, buf, n);
			len -= n;
		}
		os_free_io(buf);
	}
	return rc ? mp_err_as(MP_ZERO, rc, "%s: error %d", dev->d_path, rc) : 0;
}

int mp_pool_flush(struct mp_pool *pool, u32 mask)
{
	u32 i, n = smp_load_acquire(&pool->p_ndevs);
	int rc = mp_pool_flushable(pool);

	for (i = 0; i < n && !rc; i++)
		if (mask & (1u << pool->p_dev[i]->pd_mclass))
			rc = BARRIER(mp_dev_flush(pool, pool->p_dev[i]));
	return rc;
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
		max_bytes = min_t(u64, max_bytes, STEP);
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

/* Is something queued, or in stock (@ms: until the stock is looked at again)? */
static bool trim(struct mp_pool *pool, bool is_all, u32 *ms)
{
	u64 now = os_now_ms(), pend = 0, stock = 0;
	bool is_due;
	u32 i;

	mutex_lock(&pool->p_lock);
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
	return pend || stock;
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

void mp_pdev_bad_read(struct mp_pool *pool, struct mp_pdev *pd, bool is_reread)
{
	struct mp_health *he = &pd->pd_health;

	mutex_lock(&pool->p_lock);
	smp_store_release(&he->he_csums, he->he_csums + 1);
	smp_store_release(&he->he_rereads, he->he_rereads + is_reread);
	mutex_unlock(&pool->p_lock);
}

void mp_pdev_repaired(struct mp_pool *pool, struct mp_pdev *pd, u32 copies)
{
	struct mp_health *he = &pd->pd_health;

	mutex_lock(&pool->p_lock);
	smp_store_release(&he->he_repairs, he->he_repairs + copies);
	mutex_unlock(&pool->p_lock);
}

/* ---- create ---- */

int mp_name_check(const char *name)
{
	return name && mp_name_is_good(name) ? 0 :
	       mp_err(MP_NAME, "'%s' is no name for a pool", name ? name : "");
}

int mp_label_check(const char *label)
{
	size_t i;

	for (i = 0; label && label[i]; i++)
		if (i + 1 >= MP_LABEL_LEN || (u8)label[i] < 0x20 || label[i] == 0x7f)
			return mp_err(MP_LABEL, "byte %zu", i);
	return 0;
}

int mp_dev_check(const struct mp_dev *dev)
{
	if (dev->d_size < MP_MIN_DEV || dev->d_size > (1ull << 59))
		return mp_err(MP_DEV_SMALL, "%s: %llu bytes", dev->d_path, dev->d_size);
	if (dev->d_sector > MP_BLOCK)
		return mp_err(MP_SB_BLOCKSIZE, "%s: sectors of %u bytes", dev->d_path,
			      dev->d_sector);
	return 0;
}

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
 * gives an eighth for both regions.
 */
static u64 md_size(const struct mp_create *c, u32 second)
{
	u64 dev = min(c->mc_dev[0]->d_size, c->mc_dev[second]->d_size), all = 0, n;
	u64 most = ALIGN_DOWN((dev / 2 - MP_SB_AREA) / 2 - MP_SB_AREA, MP_SB_AREA);
	u32 i;

	for (i = 0; i < c->mc_ndevs; i++)
		all += c->mc_dev[i]->d_size >> 13;
	n = max_t(u64, dev / 64, min(all, dev / 16));
	n = c->mc_md_bytes ? c->mc_md_bytes : n;
	n = max_t(u64, n, 256u << 10);
	n = min(n, max_t(u64, all, 64u << 20));
	n = min_t(u64, n, MP_MD_MAX);
	return min(ALIGN(n, MP_SB_AREA), most);
}

int mp_sb_entry(struct mp_sb *sb, u32 i, const struct mp_dev *dev, u32 mclass)
{
	struct mp_sbdev *d = &sb->sb_dev[i];

	d->sd_bytes = ALIGN_DOWN(dev->d_size, MP_BLOCK);
	d->sd_mclass = (u8)mclass;
	d->sd_flags = dev->d_flags & MP_DEV_ZEROED ? MP_DEVF_ZEROED : 0;
	return mp_random(d->sd_uuid, MP_UUID_LEN);
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

void mp_sb_member(struct mp_sb *sb, u32 i)
{
	sb->sb_slot = i;
	memcpy(sb->sb_dev_uuid, sb->sb_dev[i].sd_uuid, MP_UUID_LEN);
	sb->sb_dev_bytes = sb->sb_dev[i].sd_bytes;
	sb->sb_base_bytes = sb->sb_dev_bytes;
	sb->sb_mark = 0;
	sb->sb_mclass = sb->sb_dev[i].sd_mclass;
	sb->sb_data_off = MP_SB_AREA;
	if (sb->sb_dev[i].sd_flags & MP_DEVF_MD)
		sb->sb_data_off += 2 * sb->sb_md_bytes;
}

int mp_sb_reserve(struct mp_dev *dev, const struct mp_sb *sb)
{
	bool has_log = sb->sb_dev[sb->sb_slot].sd_flags & MP_DEVF_MD;
	u64 first = min_t(u64, sb->sb_md_bytes, MP_MD_FIRST);
	int rc = mp_dev_reserve(dev, 0, has_log ? sb->sb_md_off + first : sb->sb_data_off);
	u32 k;

	if (!rc && has_log)
		rc = mp_dev_reserve(dev, sb->sb_md_off + sb->sb_md_bytes, first);
	for (k = 1; k < mp_sb_copies(sb) && !rc; k++)
		rc = mp_dev_reserve(dev, mp_sb_addr(sb, k), MP_BLOCK);
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

static int create_run(const struct mp_create *c, struct mp_sb *sb, u8 *buf)
{
	int rc = create_sbs(c, sb, buf);

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
