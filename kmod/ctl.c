// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/mpoolctl: administration. Every command but VERSION needs CAP_SYS_ADMIN in
 * the initial user namespace, whatever the mode of the node. Devices come as
 * descriptors and are claimed here; all or none of a command's devices are.
 */
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/uuid.h>

#include "core/codec.h"
#include "mpk.h"
#include "trace.h"

/* the devices of one command */
struct devs {
	u32 ds_n;
	struct mpk_dev *ds_dev[MPOOL_IOC_DEVS_MAX];
	struct mp_dev *ds_core[MPOOL_IOC_DEVS_MAX];
	u32 ds_mclass[MPOOL_IOC_DEVS_MAX];
};

/* gives back what is still in @ds */
static void devs_release(struct devs *ds)
{
	u32 i;

	if (IS_ERR_OR_NULL(ds))
		return;
	for (i = 0; i < ds->ds_n; i++)
		mpk_dev_release(ds->ds_dev[i]);
	kfree(ds);
}

static int devs_add(struct devs *ds, const struct mpool_ioc_dev *id, bool is_rdonly)
{
	dev_t dev = mpk_dev_number(id->id_fd);
	u32 i;
	int rc;

	/* the second claim of one device would say no more than "busy" */
	for (i = 0; dev && i < ds->ds_n; i++)
		if (ds->ds_dev[i]->dv_bdev->bd_dev == dev)
			return mp_err(MP_K_TWICE, "%s", ds->ds_dev[i]->dv_path);
	rc = mpk_dev_claim(id->id_fd, is_rdonly, &ds->ds_dev[ds->ds_n]);
	if (rc)
		return rc;
	ds->ds_core[ds->ds_n] = &ds->ds_dev[ds->ds_n]->dv_core;
	ds->ds_mclass[ds->ds_n++] = id->id_mclass;
	return 0;
}

/* ERR_PTR, or all of them */
static struct devs *devs_claim(u64 addr, u32 n, bool is_rdonly, bool has_class)
{
	struct mpool_ioc_dev *id = mpk_copy_array(addr, n, MPOOL_IOC_DEVS_MAX, sizeof(*id));
	struct devs *ds;
	u32 i;
	int rc;

	if (IS_ERR(id))
		return ERR_CAST(id);
	ds = kzalloc(sizeof(*ds), GFP_KERNEL_ACCOUNT);
	rc = ds ? 0 : -ENOMEM;
	for (i = 0; i < n && !rc; i++) {
		if (id[i].id_mclass >= (has_class ? MPOOL_IOC_CLASSES : 1))
			rc = mp_err(MP_K_ARG, "device %u: class %u", i, id[i].id_mclass);
		else
			rc = devs_add(ds, &id[i], is_rdonly);
	}
	kvfree(id);
	if (rc) {
		devs_release(ds);
		return ERR_PTR(rc);
	}
	return ds;
}

static bool is_zero_uuid(const u8 uuid[16])
{
	return !memchr_inv(uuid, 0, 16);
}

/* ---- pools that are not active ---- */

static int create_check(const struct mpool_ioc_create *ic)
{
	int rc = mpk_text_check(ic->ic_name, sizeof(ic->ic_name), "name");

	if (!rc)
		rc = mpk_text_check(ic->ic_label, sizeof(ic->ic_label), "label");
	if (rc)
		return rc;
	if ((ic->ic_mode & ~0777u) || ic->ic_uid == ~0u || ic->ic_gid == ~0u)
		return mp_err(MP_K_ARG, "owner %u:%u mode 0%o", ic->ic_uid, ic->ic_gid,
			      ic->ic_mode);
	return 0;
}

static long ctl_create(struct file *file, void *arg)
{
	struct mpool_ioc_create *ic = arg;
	struct mp_create c = {
		.mc_name = ic->ic_name,
		.mc_label = ic->ic_label,
		.mc_uid = ic->ic_uid,
		.mc_gid = ic->ic_gid,
		.mc_mode = ic->ic_mode,
		.mc_spare_pct = { ic->ic_spare_pct[0], ic->ic_spare_pct[1] },
	};
	struct devs *ds;
	int rc = create_check(ic);

	if (rc)
		return rc;
	if (ic->ic_arg.ma_flags & MPOOL_IOC_CREATE_FORCE)
		c.mc_flags |= MP_CREATE_FORCE;
	if (ic->ic_arg.ma_flags & MPOOL_IOC_CREATE_PLAN)
		c.mc_flags |= MP_CREATE_PLAN;
	if (ic->ic_arg.ma_flags & MPOOL_IOC_CREATE_MULTIHOST)
		c.mc_flags |= MP_CREATE_MULTIHOST;
	ds = devs_claim(ic->ic_devs, ic->ic_ndevs, false, true);
	if (IS_ERR(ds))
		return PTR_ERR(ds);
	if (is_zero_uuid(ic->ic_uuid))
		generate_random_uuid(ic->ic_uuid);
	else if (mpk_pool_is_active(ic->ic_uuid))
		rc = mp_err(MP_K_ACTIVE, "uuid %pUb", ic->ic_uuid);
	memcpy(c.mc_uuid, ic->ic_uuid, sizeof(c.mc_uuid));
	c.mc_ndevs = ds->ds_n;
	c.mc_dev = ds->ds_core;
	c.mc_mclass = ds->ds_mclass;
	if (!rc)
		rc = mp_pool_create(&c);
	devs_release(ds);
	return rc;
}

static long ctl_destroy(struct file *file, void *arg)
{
	const struct mpool_ioc_devs *dd = arg;
	struct devs *ds = devs_claim(dd->ds_devs, dd->ds_ndevs, false, false);
	int rc;

	if (IS_ERR(ds)) {
		rc = PTR_ERR(ds);
		return rc == -EEXIST ? mp_err(MP_K_INUSE, "a device's pool is active") : rc;
	}
	rc = mp_pool_destroy(ds->ds_core, ds->ds_n);
	devs_release(ds);
	return rc;
}

static long ctl_probe(struct file *file, void *arg)
{
	struct mpool_ioc_probe *pr = arg;
	struct mpk_dev *dev;
	struct mp_probe pb;
	int rc = mpk_dev_peek(pr->pr_fd, &dev);

	if (rc)
		return rc;
	rc = mp_probe(&dev->dv_core, &pb);
	mpk_dev_release(dev);
	if (rc)
		return rc;
	memcpy(pr->pr_uuid, pb.pb_uuid, sizeof(pr->pr_uuid));
	memcpy(pr->pr_dev_uuid, pb.pb_dev_uuid, sizeof(pr->pr_dev_uuid));
	memcpy(pr->pr_name, pb.pb_name, sizeof(pr->pr_name));
	pr->pr_state = pb.pb_state;
	pr->pr_slot = pb.pb_slot;
	pr->pr_ndevs = pb.pb_ndevs;
	pr->pr_mclass = pb.pb_mclass;
	pr->pr_format = pb.pb_format;
	pr->pr_is_active = mpk_pool_is_active(pb.pb_uuid);
	pr->pr_gen = pb.pb_gen;
	pr->pr_bytes = pb.pb_bytes;
	return 0;
}

/* ---- activation ---- */

static long ctl_activate(struct file *file, void *arg)
{
	struct mpool_ioc_activate *ia = arg;
	u64 begin = MPK_TRACE_BEGIN(mpool_activate);
	u32 flags = ia->ia_arg.ma_flags;
	struct devs *ds;
	int rc;

	ds = devs_claim(ia->ia_devs, ia->ia_ndevs, flags & MPOOL_IOC_ACTIVATE_RDONLY, false);
	if (IS_ERR(ds))
		return PTR_ERR(ds);
	rc = mpk_pool_activate(ds->ds_dev, ds->ds_n, flags, ia);
	trace_mpool_activate(rc ? "" : ia->ia_name, ds->ds_n, begin, rc);
	if (!rc)
		ds->ds_n = 0;	/* they are the pool's now */
	devs_release(ds);
	return rc;
}

/* the pool of @name, NUL-terminated or not, with pl_admin held; ERR_PTR */
static struct mpk_pool *pool_lock(const char name[MPOOL_IOC_NAME])
{
	int rc = mpk_text_check(name, MPOOL_IOC_NAME, "name");

	return rc ? ERR_PTR(rc) : mpk_pool_lock_name(name);
}

static long ctl_deactivate(struct file *file, void *arg)
{
	const struct mpool_ioc_name *na = arg;
	struct mpk_pool *pool = pool_lock(na->na_name);
	int rc;

	if (IS_ERR(pool))
		return PTR_ERR(pool);
	rc = mpk_pool_deactivate(pool);
	mpk_pool_unlock(pool);
	return rc;
}

static long ctl_list(struct file *file, void *arg)
{
	struct mpool_ioc_list *li = arg;
	int rc = mpk_text_check(li->li_after, sizeof(li->li_after), "name");

	return rc ? rc : mpk_pool_list_next(li);
}

/* ---- changes of active pools ---- */

/* the node as the pool's name and owner are now */
static int node_move(struct mpk_pool *pool)
{
	int rc = mpk_sysfs_move(pool);

	return rc ? mp_err_as(MP_K_NODE, rc, "pool '%s': error %d", pool->pl_name, rc) : 0;
}

static long ctl_rename(struct file *file, void *arg)
{
	const struct mpool_ioc_rename *rn = arg;
	struct mpk_pool *pool;
	int rc = mpk_text_check(rn->rn_to, sizeof(rn->rn_to), "new name");

	if (rc)
		return rc;
	pool = pool_lock(rn->rn_from);
	if (IS_ERR(pool))
		return PTR_ERR(pool);
	rc = mpk_pool_rename(pool, rn->rn_to);
	if (!rc) {
		rc = node_move(pool);
		mpk_pool_renamed(pool);
	}
	mpk_pool_unlock(pool);
	return rc;
}

static int set_run(struct mpk_pool *pool, const struct mpool_ioc_set *st)
{
	struct mp_set set = {
		.ms_mask = st->st_arg.ma_flags,
		.ms_uid = st->st_uid,
		.ms_gid = st->st_gid,
		.ms_mode = st->st_mode,
		.ms_spare_pct = { st->st_spare_pct[0], st->st_spare_pct[1] },
		.ms_label = st->st_label,
	};
	int rc = mp_pool_set(pool->pl_core, &set);

	mpk_pool_kick_beat(pool);
	if (rc || !(set.ms_mask & MP_SET_OWNER))
		return rc;
	rc = mpk_pool_set_owner(pool, st->st_uid, st->st_gid, st->st_mode);
	return rc ? rc : node_move(pool);
}

static long ctl_set(struct file *file, void *arg)
{
	const struct mpool_ioc_set *st = arg;
	u32 mask = st->st_arg.ma_flags;
	struct mpk_pool *pool;
	int rc = mpk_text_check(st->st_label, sizeof(st->st_label), "label");

	static_assert(MPOOL_IOC_SET_OWNER == MP_SET_OWNER && MPOOL_IOC_SET_LABEL == MP_SET_LABEL &&
		      MPOOL_IOC_SET_SPARE == MP_SET_SPARE &&
		      MPOOL_IOC_SET_MULTIHOST == MP_SET_MULTIHOST &&
		      MPOOL_IOC_SET_ONE_HOST == MP_SET_ONE_HOST);
	if ((mask & MPOOL_IOC_SET_OWNER) &&
	    ((st->st_mode & ~0777u) || st->st_uid == ~0u || st->st_gid == ~0u))
		rc = mp_err(MP_K_ARG, "owner %u:%u mode 0%o", st->st_uid, st->st_gid, st->st_mode);
	if (rc)
		return rc;
	pool = pool_lock(st->st_name);
	if (IS_ERR(pool))
		return PTR_ERR(pool);
	rc = set_run(pool, st);
	mpk_pool_unlock(pool);
	return rc;
}

static int add_run(struct mpk_pool *pool, struct devs *ds, bool is_plan)
{
	u32 i;
	int rc;

	/* the core has no room for more either: pl_dev */
	static_assert(MPOOL_IOC_DEVS_MAX >= MP_SLOTS);
	rc = mp_pool_add_devs(pool->pl_core, ds->ds_core, ds->ds_mclass, ds->ds_n,
			      is_plan ? MP_CREATE_PLAN : 0);
	if (rc || is_plan)
		return rc;
	/* not before: a bad new device must not stop the pool. Pairs with dev_bio.c */
	for (i = 0; i < ds->ds_n; i++)
		smp_store_release(&ds->ds_dev[i]->dv_pool, pool);
	mutex_lock(&pool->pl_lock);
	memcpy(&pool->pl_dev[pool->pl_ndevs], ds->ds_dev, ds->ds_n * sizeof(ds->ds_dev[0]));
	pool->pl_ndevs += ds->ds_n;
	mutex_unlock(&pool->pl_lock);
	ds->ds_n = 0;
	mpk_sysfs_members(pool);
	return 0;
}

static long ctl_add(struct file *file, void *arg)
{
	const struct mpool_ioc_add *ad = arg;
	struct mpk_pool *pool = pool_lock(ad->ad_name);
	struct devs *ds;
	int rc;

	if (IS_ERR(pool))
		return PTR_ERR(pool);
	ds = devs_claim(ad->ad_devs, ad->ad_ndevs, false, true);
	rc = IS_ERR(ds) ? PTR_ERR(ds) :
	     add_run(pool, ds, ad->ad_arg.ma_flags & MPOOL_IOC_CREATE_PLAN);
	devs_release(ds);
	mpk_pool_unlock(pool);
	return rc;
}

static long ctl_grow(struct file *file, void *arg)
{
	const struct mpool_ioc_name *na = arg;
	struct mpk_pool *pool = pool_lock(na->na_name);
	u32 i;
	int rc;

	if (IS_ERR(pool))
		return PTR_ERR(pool);
	for (i = 0; i < pool->pl_ndevs; i++)
		mpk_dev_resize(pool->pl_dev[i]);
	rc = mp_pool_grow(pool->pl_core);
	mpk_pool_unlock(pool);
	return rc;
}

/* ---- the node ---- */

static const struct mpk_cmd ctl_cmds[] = {
	{ .cm_cmd = MPOOL_IOC_VERSION, .cm_fn = mpk_cmd_version },
	{ .cm_cmd = MPOOL_IOC_CREATE, .cm_fn = ctl_create, .cm_flags = MPK_CMD_ADMIN,
	  .cm_args = MPOOL_IOC_CREATE_FORCE | MPOOL_IOC_CREATE_PLAN | MPOOL_IOC_CREATE_MULTIHOST,
	  MPK_RESERVED(mpool_ioc_create, ic_reserved) },
	{ .cm_cmd = MPOOL_IOC_DESTROY, .cm_fn = ctl_destroy, .cm_flags = MPK_CMD_ADMIN,
	  MPK_RESERVED(mpool_ioc_devs, ds_reserved) },
	{ .cm_cmd = MPOOL_IOC_PROBE, .cm_fn = ctl_probe, .cm_flags = MPK_CMD_ADMIN,
	  MPK_RESERVED(mpool_ioc_probe, pr_reserved) },
	{ .cm_cmd = MPOOL_IOC_ACTIVATE, .cm_fn = ctl_activate, .cm_flags = MPK_CMD_ADMIN,
	  .cm_args = MPOOL_IOC_ACTIVATE_RDONLY | MPOOL_IOC_ACTIVATE_TRUST,
	  MPK_RESERVED(mpool_ioc_activate, ia_reserved) },
	{ .cm_cmd = MPOOL_IOC_DEACTIVATE, .cm_fn = ctl_deactivate, .cm_flags = MPK_CMD_ADMIN,
	  MPK_RESERVED(mpool_ioc_name, na_reserved) },
	{ .cm_cmd = MPOOL_IOC_LIST, .cm_fn = ctl_list, .cm_flags = MPK_CMD_ADMIN,
	  MPK_RESERVED(mpool_ioc_list, li_reserved) },
	{ .cm_cmd = MPOOL_IOC_RENAME, .cm_fn = ctl_rename, .cm_flags = MPK_CMD_ADMIN },
	{ .cm_cmd = MPOOL_IOC_ADD, .cm_fn = ctl_add, .cm_flags = MPK_CMD_ADMIN,
	  .cm_args = MPOOL_IOC_CREATE_PLAN, MPK_RESERVED(mpool_ioc_add, ad_reserved) },
	{ .cm_cmd = MPOOL_IOC_GROW, .cm_fn = ctl_grow, .cm_flags = MPK_CMD_ADMIN,
	  MPK_RESERVED(mpool_ioc_name, na_reserved) },
	{ .cm_cmd = MPOOL_IOC_SET, .cm_fn = ctl_set, .cm_flags = MPK_CMD_ADMIN,
	  .cm_args = MPOOL_IOC_SET_OWNER | MPOOL_IOC_SET_LABEL | MPOOL_IOC_SET_SPARE |
		     MPOOL_IOC_SET_MULTIHOST | MPOOL_IOC_SET_ONE_HOST,
	  MPK_RESERVED(mpool_ioc_set, st_reserved) },
};

static long ctl_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	return mpk_cmd_run(ctl_cmds, ARRAY_SIZE(ctl_cmds), file, cmd, (void __user *)arg);
}

static const struct file_operations ctl_fops = {
	.owner = THIS_MODULE,
	.open = nonseekable_open,
	.unlocked_ioctl = ctl_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice ctl_dev = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "mpoolctl",
	.mode = 0600,
	.fops = &ctl_fops,
};

int mpk_ctl_init(void)
{
	return misc_register(&ctl_dev);
}

void mpk_ctl_exit(void)
{
	misc_deregister(&ctl_dev);
}
