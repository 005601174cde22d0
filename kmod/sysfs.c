// SPDX-License-Identifier: GPL-2.0-only
/*
 * What an operator can see: /sys/class/mpool/NAME with attributes of the pool, of
 * its classes (capacity/, staging/) and of its members (member0/, ...), and
 * uevents. The same device makes the node /dev/mpool/NAME, with owner and mode.
 *
 * The device is not the pool: it is made anew when name or owner change, and
 * points to a pool that outlives it, because removal waits for readers.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/kobject.h>
#include <linux/printk.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/sysfs.h>

#include "mpk.h"
#include "trace.h"

/* ---- attributes of a pool ---- */

static const char *health(const struct mp_pool_info *pi)
{
	return pi->pi_is_rdonly ? "readonly" : "ok";
}

#define POOL_ATTR(_name, _fmt, ...)						\
static ssize_t _name##_show(struct device *dev, struct device_attribute *attr,	\
			    char *buf)						\
{										\
	struct mpk_pool *pool = dev_get_drvdata(dev);				\
	struct mp_pool_info pi;							\
										\
	mp_pool_info(pool->pl_core, &pi);					\
	return sysfs_emit(buf, _fmt "\n", __VA_ARGS__);				\
}										\
static DEVICE_ATTR_RO(_name)

POOL_ATTR(name, "%s", pi.pi_name);
POOL_ATTR(uuid, "%pUb", pi.pi_uuid);
POOL_ATTR(label, "%s", pi.pi_label);
POOL_ATTR(health, "%s", health(&pi));
POOL_ATTR(fault_id, "%d", pi.pi_fault_id);
POOL_ATTR(fault, "%s", pi.pi_fault);
POOL_ATTR(trusted, "%d", pool->pl_is_trusted);
POOL_ATTR(generation, "%llu", pi.pi_gen);
POOL_ATTR(members, "%u", pi.pi_ndevs);
POOL_ATTR(objects, "%llu", pi.pi_objects);
POOL_ATTR(opens, "%u", READ_ONCE(pool->pl_opens));
POOL_ATTR(uring_cmds, "%lld", (s64)atomic64_read(&pool->pl_uring_cmds));
POOL_ATTR(batches, "%lld", (s64)atomic64_read(&pool->pl_batches));
POOL_ATTR(batch_ops, "%lld", (s64)atomic64_read(&pool->pl_batch_ops));

static struct attribute *pool_attrs[] = {
	&dev_attr_name.attr, &dev_attr_uuid.attr, &dev_attr_label.attr,
	&dev_attr_health.attr, &dev_attr_fault_id.attr, &dev_attr_fault.attr,
	&dev_attr_trusted.attr, &dev_attr_generation.attr, &dev_attr_members.attr,
	&dev_attr_objects.attr, &dev_attr_opens.attr, &dev_attr_uring_cmds.attr,
	&dev_attr_batches.attr, &dev_attr_batch_ops.attr, NULL
};

static const struct attribute_group pool_group = { .attrs = pool_attrs };

/* ---- attributes of a class: its sizes in bytes ---- */

struct class_attr {
	struct device_attribute ca_attr;	/* first */
	u32 ca_mclass;
	u32 ca_off, ca_size;			/* of the field in struct mp_class_info */
};

static ssize_t class_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	const struct class_attr *ca = container_of(attr, struct class_attr, ca_attr);
	struct mpk_pool *pool = dev_get_drvdata(dev);
	struct mp_pool_info pi;
	const void *p;

	mp_pool_info(pool->pl_core, &pi);
	p = (const u8 *)&pi.pi_cls[ca->ca_mclass] + ca->ca_off;
	return sysfs_emit(buf, "%llu\n", ca->ca_size == sizeof(u32) ? *(const u32 *)p :
			  *(const u64 *)p);
}

#define CLASS_ATTR(_cls, _mclass, _field)					\
static struct class_attr _cls##_##_field = {					\
	.ca_attr = __ATTR(_field, 0444, class_show, NULL),			\
	.ca_mclass = _mclass,							\
	.ca_off = offsetof(struct mp_class_info, ci_##_field),			\
	.ca_size = sizeof_field(struct mp_class_info, ci_##_field),		\
}

#define CLASS_GROUP(_cls, _mclass)						\
CLASS_ATTR(_cls, _mclass, devs);						\
CLASS_ATTR(_cls, _mclass, total);						\
CLASS_ATTR(_cls, _mclass, used);						\
CLASS_ATTR(_cls, _mclass, free);						\
CLASS_ATTR(_cls, _mclass, reserve);						\
CLASS_ATTR(_cls, _mclass, discarding);					\
static struct attribute *_cls##_attrs[] = {					\
	&_cls##_devs.ca_attr.attr, &_cls##_total.ca_attr.attr,		\
	&_cls##_used.ca_attr.attr, &_cls##_free.ca_attr.attr,		\
	&_cls##_reserve.ca_attr.attr, &_cls##_discarding.ca_attr.attr, NULL	\
};										\
static const struct attribute_group _cls##_group = {				\
	.name = #_cls, .attrs = _cls##_attrs				\
}

CLASS_GROUP(capacity, MP_CAPACITY);
CLASS_GROUP(staging, MP_STAGING);

static const struct attribute_group *pool_groups[] = {
	&pool_group, &capacity_group, &staging_group, NULL
};

/* ---- attributes of a member, in a directory of its own ---- */

struct member_attr {
	struct kobj_attribute ma_attr;		/* first */
	u32 ma_off;				/* of a counter in struct mpk_dev_stats */
};

static int member_of(struct kobject *kobj, struct mp_member *mb)
{
	struct mpk_pool *pool = dev_get_drvdata(kobj_to_dev(kobj->parent));
	u32 slot;

	if (sscanf(kobject_name(kobj), "member%u", &slot) != 1)
		return -ENODEV;
	return mp_pool_member(pool->pl_core, slot, mb);
}

static ssize_t counter_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	const struct member_attr *ma = container_of(attr, struct member_attr, ma_attr);
	struct mpk_dev_stats ds;
	struct mp_member mb;
	int rc = member_of(kobj, &mb);

	if (rc)
		return rc;
	mpk_dev_stats_sum(mpk_dev_of(mb.mb_dev), &ds);
	return sysfs_emit(buf, "%llu\n", *(const u64 *)((const u8 *)&ds + ma->ma_off));
}

#define COUNTER_ATTR(_name)							\
static struct member_attr member_##_name = {					\
	.ma_attr = __ATTR(_name, 0444, counter_show, NULL),			\
	.ma_off = offsetof(struct mpk_dev_stats, ds_##_name),			\
}

#define MEMBER_ATTR(_name, _fmt, ...)						\
static ssize_t _name##_mshow(struct kobject *kobj, struct kobj_attribute *attr,	\
			     char *buf)						\
{										\
	struct mp_member mb;							\
	int rc = member_of(kobj, &mb);						\
										\
	return rc ? rc : sysfs_emit(buf, _fmt "\n", __VA_ARGS__);		\
}										\
static struct kobj_attribute member_##_name = __ATTR(_name, 0444, _name##_mshow, NULL)

COUNTER_ATTR(reads);
COUNTER_ATTR(writes);
COUNTER_ATTR(flushes);
COUNTER_ATTR(errors);
COUNTER_ATTR(read_bytes);
COUNTER_ATTR(write_bytes);
COUNTER_ATTR(discard_bytes);
MEMBER_ATTR(path, "%s", mb.mb_dev->d_path);
MEMBER_ATTR(uuid, "%pUb", mb.mb_uuid);
MEMBER_ATTR(mclass, "%s", mp_class_text(mb.mb_mclass));
MEMBER_ATTR(bytes, "%llu", mb.mb_bytes);
MEMBER_ATTR(metadata, "%d", mb.mb_has_md);
MEMBER_ATTR(csum_errors, "%llu", mb.mb_health.he_csums);
MEMBER_ATTR(rereads, "%llu", mb.mb_health.he_rereads);
MEMBER_ATTR(repairs, "%llu", mb.mb_health.he_repairs);

static struct attribute *member_attrs[] = {
	&member_path.attr, &member_uuid.attr, &member_mclass.attr, &member_bytes.attr,
	&member_metadata.attr, &member_reads.ma_attr.attr, &member_writes.ma_attr.attr,
	&member_flushes.ma_attr.attr, &member_errors.ma_attr.attr,
	&member_read_bytes.ma_attr.attr, &member_write_bytes.ma_attr.attr,
	&member_discard_bytes.ma_attr.attr, &member_csum_errors.attr, &member_rereads.attr,
	&member_repairs.attr, NULL
};

static const struct attribute_group member_group = { .attrs = member_attrs };

/* a missing directory is no failure */
void mpk_sysfs_members(struct mpk_pool *pool)
{
	struct mp_member mb;
	char name[16];
	u32 slot;

	for (slot = 0; pool->pl_device && slot < MPOOL_IOC_DEVS_MAX; slot++) {
		if (pool->pl_member[slot] || mp_pool_member(pool->pl_core, slot, &mb))
			continue;
		snprintf(name, sizeof(name), "member%u", slot);
		pool->pl_member[slot] = kobject_create_and_add(name, &pool->pl_device->kobj);
		if (!pool->pl_member[slot] ||
		    sysfs_create_group(pool->pl_member[slot], &member_group))
			pr_warn("pool '%s': no attributes of member %u\n", pool->pl_name, slot);
	}
}

/* ---- the device ---- */

static char *pool_devnode(MPK_TYPE_CONST struct device *dev, umode_t *mode, kuid_t *uid,
			  kgid_t *gid)
{
	const struct mpk_pool *pool = dev_get_drvdata(dev);

	if (mode)
		*mode = READ_ONCE(pool->pl_mode);
	if (uid)
		*uid = READ_ONCE(pool->pl_uid);
	if (gid)
		*gid = READ_ONCE(pool->pl_gid);
	/* without it the node would be made, or not be found, as /dev/NAME */
	return kasprintf(GFP_KERNEL | __GFP_NOFAIL, "mpool/%s", dev_name(dev));
}

static int pool_uevent(MPK_TYPE_CONST struct device *dev, struct kobj_uevent_env *env)
{
	struct mpk_pool *pool = dev_get_drvdata(dev);
	struct mp_pool_info pi;
	int rc;

	mp_pool_info(pool->pl_core, &pi);
	rc = add_uevent_var(env, "MPOOL_NAME=%s", pi.pi_name);
	if (!rc)
		rc = add_uevent_var(env, "MPOOL_UUID=%pUb", pi.pi_uuid);
	if (!rc)
		rc = add_uevent_var(env, "MPOOL_HEALTH=%s", health(&pi));
	return rc;
}

static void pool_device_release(struct device *dev)
{
	kfree(dev);
}

static const struct device_type pool_type = {
	.name = "pool",
	.groups = pool_groups,
	.uevent = pool_uevent,
	.devnode = pool_devnode,
	.release = pool_device_release,
};

static struct class pool_class = { .name = "mpool" };

void mpk_sysfs_del(struct mpk_pool *pool)
{
	struct device *dev;
	u32 slot;

	for (slot = 0; slot < MPOOL_IOC_DEVS_MAX; slot++) {
		kobject_put(pool->pl_member[slot]);
		pool->pl_member[slot] = NULL;
	}
	mutex_lock(&pool->pl_node_lock);
	dev = pool->pl_device;
	pool->pl_device = NULL;
	if (dev)
		device_unregister(dev);
	mutex_unlock(&pool->pl_node_lock);
}

int mpk_sysfs_add(struct mpk_pool *pool)
{
	struct device *dev = kzalloc(sizeof(*dev), GFP_KERNEL);
	int rc;

	if (!dev)
		return -ENOMEM;
	device_initialize(dev);
	dev->class = &pool_class;
	dev->type = &pool_type;
	dev->devt = MKDEV(MAJOR(mpk_pool_devt), MINOR(mpk_pool_devt) + pool->pl_minor);
	dev_set_drvdata(dev, pool);
	/* until the pool can be opened */
	dev_set_uevent_suppress(dev, true);
	rc = dev_set_name(dev, "%s", pool->pl_name);
	if (!rc) {
		mpk_sysfs_del(pool);
		mutex_lock(&pool->pl_node_lock);
		rc = device_add(dev);
		if (!rc)
			pool->pl_device = dev;
		mutex_unlock(&pool->pl_node_lock);
	}
	if (rc)
		put_device(dev);
	return rc;
}

void mpk_sysfs_announce(struct mpk_pool *pool)
{
	dev_set_uevent_suppress(pool->pl_device, false);
	kobject_uevent(&pool->pl_device->kobj, KOBJ_ADD);
}

struct node_move {
	struct work_struct nm_work;
	struct mpk_pool *nm_pool;
	int nm_rc;
};

static void node_move_work(struct work_struct *work)
{
	struct node_move *nm = container_of(work, struct node_move, nm_work);

	while ((nm->nm_rc = mpk_sysfs_add(nm->nm_pool)) == -ENOMEM)
		memalloc_retry_wait(GFP_KERNEL);
	if (nm->nm_rc)
		return;
	mpk_sysfs_members(nm->nm_pool);
	mpk_sysfs_announce(nm->nm_pool);
}

/*
 * The change is durable, so the node follows, however long memory is short. A worker
 * makes it: unlike the caller it is never killed for memory, so it gets some in the end.
 */
int mpk_sysfs_move(struct mpk_pool *pool)
{
	struct node_move nm = { .nm_pool = pool };

	INIT_WORK_ONSTACK(&nm.nm_work, node_move_work);
	queue_work(mpk_unbound_wq, &nm.nm_work);
	flush_work(&nm.nm_work);
	destroy_work_on_stack(&nm.nm_work);
	return nm.nm_rc;
}

void mpk_sysfs_fault_work(struct work_struct *work)
{
	struct mpk_pool *pool = container_of(work, struct mpk_pool, pl_fault_work);
	struct mp_pool_info *pi = kmalloc(sizeof(*pi), GFP_KERNEL);

	if (pi) {
		mp_pool_info(pool->pl_core, pi);
		pr_err("pool '%s' is read-only now: %s [MP%04d]\n", pi->pi_name, pi->pi_fault,
		       pi->pi_fault_id);
		trace_mpool_fault(pi->pi_name, pi->pi_fault_id);
		kfree(pi);
	}
	/* a pool that is not published yet says so when it is */
	mutex_lock(&pool->pl_node_lock);
	if (pool->pl_device)
		kobject_uevent(&pool->pl_device->kobj, KOBJ_CHANGE);
	mutex_unlock(&pool->pl_node_lock);
}

int mpk_sysfs_init(void)
{
	return class_register(&pool_class);
}

void mpk_sysfs_exit(void)
{
	class_unregister(&pool_class);
}
