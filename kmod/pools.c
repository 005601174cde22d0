// SPDX-License-Identifier: GPL-2.0-only
/*
 * The table of active pools, and a pool's life from activation to deactivation.
 *
 * A pool is in the table while it has a name, a minor and devices. It can be
 * opened from the moment its node is there (pl_is_dead becomes false) until
 * deactivation finds no open file and no object's place held, and says pl_is_dead for
 * good. Both happen under pl_lock, which every open takes: so either the open fails, or
 * deactivation does.
 *
 * Sleep: before the tasks are stopped the system syncs its file systems, and with them the pools
 * (objfs_sync_fs()). After the tasks, the queues of discards and heartbeats are stopped, so nothing
 * here writes to a device that is being suspended, nor behind the image of a hibernation. A task
 * that waits for one of the two is no obstacle to it: it goes on until the last task is stopped.
 *
 * Hibernation: the image holds an active pool as it was, and what is on the devices must be as
 * it was, too. As with a mounted file system nothing here can make up for another that wrote
 * them meanwhile, so none may: the unit that activates pools is ordered behind the resume, and
 * a resume that is given up is a new boot. Where another host may come there is
 * multihost: the clock of its heartbeat counts the time of the sleep (os_now_ms()), so the
 * first request looks at the block and at the generation before anything is read or written.
 *
 * mpk_pools_lock: the list, the minors, names. Never held over I/O.
 */
#include <linux/delay.h>
#include <linux/module.h>

#include "mpk.h"

#define DISCARD_STEP	(64ull << 20)	/* bytes between two looks at the queue */
#define DISCARD_WAIT_MS	20		/* for more of the same */
#define CLOSE_MS	5000		/* what a deactivation spends on them, or one step more */
#define IDLE_WAIT_MS	1000		/* for the end of a file that is on its way */

static DEFINE_MUTEX(mpk_pools_lock);
static LIST_HEAD(pools);
static LIST_HEAD(coming);	/* struct coming */
static struct workqueue_struct *beat_wq, *discard_wq;
static DEFINE_XARRAY_ALLOC(minors);
static u32 minor_next;	/* mpk_pools_lock */

/* ---- references ---- */

static void pool_free(struct kref *ref)
{
	struct mpk_pool *pool = container_of(ref, struct mpk_pool, pl_ref);

	mutex_destroy(&pool->pl_admin);
	mutex_destroy(&pool->pl_lock);
	mutex_destroy(&pool->pl_mlog_lock);
	mutex_destroy(&pool->pl_node_lock);
	kfree(pool);
}

void mpk_pool_get(struct mpk_pool *pool)
{
	kref_get(&pool->pl_ref);
}

void mpk_pool_put(struct mpk_pool *pool)
{
	kref_put(&pool->pl_ref, pool_free);
}

int mpk_pool_hold(struct mpk_pool *pool)
{
	int rc = -ENODEV;

	mutex_lock(&pool->pl_lock);
	if (!pool->pl_is_dead) {
		pool->pl_opens++;
		kref_get(&pool->pl_ref);
		rc = 0;
	}
	mutex_unlock(&pool->pl_lock);
	return rc;
}

void mpk_pool_release(struct mpk_pool *pool)
{
	mutex_lock(&pool->pl_lock);
	pool->pl_opens--;
	mutex_unlock(&pool->pl_lock);
	mpk_pool_put(pool);
}

/* ---- the table ---- */

struct mpk_pool *mpk_pool_open_minor(u32 minor)
{
	struct mpk_pool *pool;

	mutex_lock(&mpk_pools_lock);
	pool = xa_load(&minors, minor);
	if (pool && mpk_pool_hold(pool))
		pool = NULL;
	mutex_unlock(&mpk_pools_lock);
	return pool ? pool : ERR_PTR(-ENODEV);
}

/* mpk_pools_lock held; during a rename both names count */
static struct mpk_pool *find_name(const char *name)
{
	struct mpk_pool *pool;

	list_for_each_entry(pool, &pools, pl_list)
		if (!strcmp(pool->pl_name, name) || !strcmp(pool->pl_next_name, name))
			return pool;
	return NULL;
}

/* mpk_pools_lock held */
static struct mpk_pool *find_uuid(const u8 uuid[16])
{
	struct mpk_pool *pool;

	list_for_each_entry(pool, &pools, pl_list)
		if (!memcmp(pool->pl_uuid, uuid, 16))
			return pool;
	return NULL;
}

struct mpk_pool *mpk_pool_lock_name(const char *name)
{
	struct mpk_pool *pool;

	mutex_lock(&mpk_pools_lock);
	pool = find_name(name);
	if (pool)
		kref_get(&pool->pl_ref);
	mutex_unlock(&mpk_pools_lock);
	if (pool) {
		mutex_lock(&pool->pl_admin);
		/* it may be gone, not here yet, or renamed */
		if (!pool->pl_is_dead && !strcmp(pool->pl_name, name))
			return pool;
		mpk_pool_unlock(pool);
	}
	return ERR_PTR(mp_err(MP_K_NOPOOL, "pool '%s'", name));
}

void mpk_pool_unlock(struct mpk_pool *pool)
{
	mutex_unlock(&pool->pl_admin);
	mpk_pool_put(pool);
}

bool mpk_pool_is_active(const u8 uuid[16])
{
	bool is_active;

	mutex_lock(&mpk_pools_lock);
	is_active = find_uuid(uuid);
	mutex_unlock(&mpk_pools_lock);
	return is_active;
}

bool mpk_pool_of_dev(dev_t dev, char name[MPOOL_IOC_NAME])
{
	struct mpk_pool *pool;
	bool is_found = false;
	u32 i;

	mutex_lock(&mpk_pools_lock);
	list_for_each_entry(pool, &pools, pl_list) {
		mutex_lock(&pool->pl_lock);
		for (i = 0; i < pool->pl_ndevs && !is_found; i++) {
			is_found = pool->pl_dev[i]->dv_bdev->bd_dev == dev;
			if (is_found)
				memcpy(name, pool->pl_name, MPOOL_IOC_NAME);
		}
		mutex_unlock(&pool->pl_lock);
	}
	mutex_unlock(&mpk_pools_lock);
	return is_found;
}

u32 mpk_pool_state(struct mpk_pool *pool, const struct mp_pool_info *pi)
{
	return (pi->pi_is_rdonly ? MPOOL_IOC_POOL_RDONLY : 0) |
	       (pi->pi_fault_id ? MPOOL_IOC_POOL_FAULT : 0) |
	       (pi->pi_is_multihost ? MPOOL_IOC_POOL_MULTIHOST : 0) |
	       (pool->pl_is_trusted ? MPOOL_IOC_POOL_TRUSTED : 0);
}

int mpk_pool_list_next(struct mpool_ioc_list *li)
{
	struct mp_pool_info pi;
	struct mpk_pool *pool;
	int rc = -ENOENT;

	mutex_lock(&mpk_pools_lock);
	list_for_each_entry(pool, &pools, pl_list) {
		if (strcmp(pool->pl_name, li->li_after) <= 0)
			continue;
		/* a pool that can be opened keeps its core while pl_lock is held */
		mutex_lock(&pool->pl_lock);
		if (!pool->pl_is_dead) {
			mp_pool_info(pool->pl_core, &pi);
			memcpy(li->li_name, pool->pl_name, MPOOL_IOC_NAME);
			memcpy(li->li_uuid, pool->pl_uuid, 16);
			li->li_state = mpk_pool_state(pool, &pi);
			li->li_opens = pool->pl_opens;
			li->li_minor = pool->pl_minor;
			rc = 0;
		}
		mutex_unlock(&pool->pl_lock);
		if (!rc)
			break;
	}
	mutex_unlock(&mpk_pools_lock);
	return rc;
}

/* mpk_pools_lock held */
static void list_insert(struct mpk_pool *pool)
{
	struct mpk_pool *other;

	list_for_each_entry(other, &pools, pl_list)
		if (strcmp(other->pl_name, pool->pl_name) > 0)
			break;
	/* before @other, or at the end */
	list_add_tail(&pool->pl_list, &other->pl_list);
}

static int table_add(struct mpk_pool *pool)
{
	int rc = 0;

	mutex_lock(&mpk_pools_lock);
	if (find_uuid(pool->pl_uuid) || find_name(pool->pl_name))
		rc = mp_err(MP_K_ACTIVE, "pool '%s' uuid %pUb", pool->pl_name, pool->pl_uuid);
	else
		/* in turn: a node that devtmpfs failed to remove leads to no other pool */
		rc = xa_alloc_cyclic(&minors, &pool->pl_minor, pool,
				     XA_LIMIT(0, MPK_MINORS - 1), &minor_next, GFP_KERNEL);
	if (rc > 0)	/* began anew */
		rc = 0;
	if (rc == -EBUSY)
		rc = mp_err(MP_K_MINORS, "%u are", MPK_MINORS);
	if (!rc)
		list_insert(pool);
	mutex_unlock(&mpk_pools_lock);
	return rc;
}

static void table_del(struct mpk_pool *pool)
{
	mutex_lock(&mpk_pools_lock);
	list_del(&pool->pl_list);
	xa_erase(&minors, pool->pl_minor);
	mutex_unlock(&mpk_pools_lock);
}

/* ---- background work ---- */

static void discard_work(struct work_struct *work)
{
	struct mpk_pool *pool = container_of(to_delayed_work(work), struct mpk_pool,
					     pl_discard_work);
	bool has_more = mp_pool_discard_step(pool->pl_core, DISCARD_STEP);
	u32 ms = has_more ? 0 : mp_pool_trim(pool->pl_core);

	if (has_more || ms)
		queue_delayed_work(discard_wq, &pool->pl_discard_work, msecs_to_jiffies(ms));
}

void mpk_pool_kick_discard(struct mpk_pool *pool)
{
	if (!pool->pl_is_rdonly)
		queue_delayed_work(discard_wq, &pool->pl_discard_work,
				   msecs_to_jiffies(DISCARD_WAIT_MS));
}

/*
 * Between hosts; a step is late before it is 750 ms old: never behind other work, nor behind
 * memory for a new worker, which may come from writes that wait for a heartbeat.
 */
static void beat_work(struct work_struct *work)
{
	struct mpk_pool *pool = container_of(to_delayed_work(work), struct mpk_pool, pl_beat_work);
	u32 ms = mp_pool_beat(pool->pl_core);

	if (ms)
		queue_delayed_work(beat_wq, &pool->pl_beat_work, msecs_to_jiffies(ms));
}

void mpk_pool_kick_beat(struct mpk_pool *pool)
{
	if (mp_pool_has_beat(pool->pl_core))
		queue_delayed_work(beat_wq, &pool->pl_beat_work, 0);
}

/* the core says that the pool turned read-only; any context */
static void pool_fault(void *arg)
{
	struct mpk_pool *pool = arg;

	schedule_work(&pool->pl_fault_work);
}

/* ---- activation ---- */

int mpk_pool_set_owner(struct mpk_pool *pool, u32 uid, u32 gid, u32 mode)
{
	kuid_t kuid = make_kuid(&init_user_ns, uid);
	kgid_t kgid = make_kgid(&init_user_ns, gid);

	if (!uid_valid(kuid) || !gid_valid(kgid))
		return mp_err(MP_K_ARG, "owner %u:%u mode 0%o", uid, gid, mode);
	mutex_lock(&pool->pl_lock);
	WRITE_ONCE(pool->pl_uid, kuid);
	WRITE_ONCE(pool->pl_gid, kgid);
	WRITE_ONCE(pool->pl_mode, (umode_t)mode);
	mutex_unlock(&pool->pl_lock);
	return 0;
}

static struct mpk_pool *pool_new(u32 flags)
{
	/* not the activator's: it stays when that one has gone */
	struct mpk_pool *pool = kzalloc(sizeof(*pool), GFP_KERNEL);

	if (!pool)
		return NULL;
	kref_init(&pool->pl_ref);
	INIT_LIST_HEAD(&pool->pl_list);
	mutex_init(&pool->pl_admin);
	mutex_init(&pool->pl_lock);
	mutex_init(&pool->pl_mlog_lock);
	mutex_init(&pool->pl_node_lock);
	INIT_LIST_HEAD(&pool->pl_mlogs);
	init_completion(&pool->pl_sb_gone);
	INIT_DELAYED_WORK(&pool->pl_discard_work, discard_work);
	INIT_DELAYED_WORK(&pool->pl_beat_work, beat_work);
	INIT_WORK(&pool->pl_fault_work, mpk_sysfs_fault_work);
	pool->pl_is_rdonly = flags & MPOOL_IOC_ACTIVATE_RDONLY;
	pool->pl_is_trusted = flags & MPOOL_IOC_ACTIVATE_TRUST;
	pool->pl_is_dead = true;
	return pool;
}

/* a pool that is being activated: a second one, of copied devices, must not recover beside it */
struct coming {
	struct list_head co_list;	/* mpk_pools_lock; on it co_probe stays as it is */
	u32 co_n;
	struct mp_probe co_probe[];
};

/* mpk_pools_lock held */
static bool is_coming(const struct mp_probe *pb)
{
	struct coming *co;
	u32 i;

	list_for_each_entry(co, &coming, co_list)
		for (i = 0; i < co->co_n; i++)
			if (!memcmp(co->co_probe[i].pb_uuid, pb->pb_uuid, 16) ||
			    !strcmp(co->co_probe[i].pb_name, pb->pb_name))
				return true;
	return false;
}

/* mpk_pools_lock held */
static int check_free(const struct mp_probe *pb)
{
	struct mpk_pool *other = find_uuid(pb->pb_uuid);

	if (!other)
		other = find_name(pb->pb_name);
	if (other)
		return mp_err(MP_K_ACTIVE, "pool '%s'; active is '%s'", pb->pb_name,
			      other->pl_name);
	return is_coming(pb) ? mp_err(MP_K_ACTIVE, "pool '%s' is being activated",
				      pb->pb_name) : 0;
}

static void coming_end(struct coming *co)
{
	mutex_lock(&mpk_pools_lock);
	list_del(&co->co_list);
	mutex_unlock(&mpk_pools_lock);
	kfree(co);
}

/*
 * Before anything is written: copies of the devices of a pool that is active, or being activated,
 * are refused untouched. ERR_PTR, or the entry for coming_end(), which is called in any case.
 */
static struct coming *coming_begin(struct mpk_dev **dev, u32 n)
{
	struct coming *co = kzalloc(struct_size(co, co_probe, n), GFP_KERNEL);
	u32 i;
	int rc = 0;

	if (!co)
		return ERR_PTR(-ENOMEM);
	/* what cannot be read is for mp_pool_open() to say */
	for (i = 0; i < n; i++)
		co->co_n += !mp_probe(&dev[i]->dv_core, &co->co_probe[co->co_n]);
	mutex_lock(&mpk_pools_lock);
	for (i = 0; i < co->co_n && !rc; i++)
		rc = check_free(&co->co_probe[i]);
	if (!rc)
		list_add(&co->co_list, &coming);
	mutex_unlock(&mpk_pools_lock);
	if (!rc)
		return co;
	kfree(co);
	return ERR_PTR(rc);
}

/* open the core and take from it what the node needs */
static int pool_load(struct mpk_pool *pool, struct mpk_dev **dev, u32 n)
{
	struct mp_dev **md = kcalloc(n, sizeof(*md), GFP_KERNEL);
	struct mp_pool_info pi;
	u32 i;
	int rc;

	if (!md)
		return -ENOMEM;
	for (i = 0; i < n; i++)
		md[i] = &dev[i]->dv_core;
	rc = mp_pool_open(md, n, pool->pl_is_rdonly ? MP_OPEN_RDONLY : 0, &pool->pl_core);
	kfree(md);
	if (rc)
		return rc;
	mp_pool_info(pool->pl_core, &pi);
	memcpy(pool->pl_name, pi.pi_name, MPOOL_IOC_NAME);
	memcpy(pool->pl_uuid, pi.pi_uuid, 16);
	if (!pool->pl_is_trusted ||
	    mpk_pool_set_owner(pool, pi.pi_uid, pi.pi_gid, pi.pi_mode & 0777))
		rc = mpk_pool_set_owner(pool, 0, 0, 0600);
	/* with pl_core set; pairs with the loads in dev_bio.c */
	for (i = 0; i < n; i++)
		smp_store_release(&dev[i]->dv_pool, pool);
	mp_pool_on_fault(pool->pl_core, pool_fault, pool);
	mpk_pool_kick_beat(pool);
	return rc;
}

/* what deactivation does when the pool cannot be opened any more */
static void pool_unload(struct mpk_pool *pool)
{
	cancel_delayed_work_sync(&pool->pl_discard_work);
	mp_pool_give_back(pool->pl_core, DISCARD_STEP, CLOSE_MS);
	cancel_delayed_work_sync(&pool->pl_beat_work);
	/* the last heartbeat, in the close, may meet a device that has gone */
	mp_pool_on_fault(pool->pl_core, NULL, NULL);
	cancel_work_sync(&pool->pl_fault_work);
	/* nothing is left that holds an object: only a bug could make it refuse */
	WARN_ON_ONCE(mp_pool_close(pool->pl_core));
	pool->pl_core = NULL;
}

/* Not all that were given need be members: an add that was cut short leaves some. */
static void members_take(struct mpk_pool *pool)
{
	struct mp_member mb;
	u32 n = 0;

	mutex_lock(&pool->pl_lock);
	for (; !mp_pool_member(pool->pl_core, n, &mb); n++)
		pool->pl_dev[n] = mpk_dev_of(mb.mb_dev);
	pool->pl_ndevs = n;
	mutex_unlock(&pool->pl_lock);
}

/* those go back: they can be added again */
static void others_release(const struct mpk_pool *pool, struct mpk_dev **dev, u32 n)
{
	u32 i, k;

	for (i = 0; i < n; i++) {
		for (k = 0; k < pool->pl_ndevs && pool->pl_dev[k] != dev[i]; k++)
			;
		if (k == pool->pl_ndevs)
			mpk_dev_release(dev[i]);
	}
}

/* pl_admin held, and a reference: as soon as it is let go the pool may be gone */
static int pool_publish(struct mpk_pool *pool)
{
	int rc = mpk_sysfs_add(pool);

	if (rc)
		return rc;
	mpk_sysfs_members(pool);
	mutex_lock(&pool->pl_lock);
	pool->pl_is_dead = false;
	mutex_unlock(&pool->pl_lock);
	mpk_sysfs_announce(pool);
	return 0;
}

static int pool_activate(struct mpk_dev **dev, u32 n, u32 flags, struct mpool_ioc_activate *ia)
{
	struct mpk_pool *pool = pool_new(flags);
	int rc;

	if (!pool)
		return -ENOMEM;
	/* with the pool goes the module: it must not be unloaded meanwhile */
	__module_get(THIS_MODULE);
	rc = pool_load(pool, dev, n);
	if (rc)
		goto err_put;
	rc = mpk_objfs_mount(pool);
	if (rc)
		goto err_unload;
	rc = table_add(pool);
	if (rc)
		goto err_unmount;
	members_take(pool);
	memcpy(ia->ia_name, pool->pl_name, MPOOL_IOC_NAME);
	memcpy(ia->ia_uuid, pool->pl_uuid, 16);
	ia->ia_minor = pool->pl_minor;
	mpk_pool_get(pool);
	mutex_lock(&pool->pl_admin);
	rc = pool_publish(pool);
	if (!rc)
		others_release(pool, dev, n);
	mpk_pool_unlock(pool);
	if (rc)
		goto err_table;
	return 0;
err_table:
	table_del(pool);
	mutex_lock(&pool->pl_lock);
	pool->pl_ndevs = 0;
	mutex_unlock(&pool->pl_lock);
err_unmount:
	mpk_objfs_unmount(pool);
err_unload:
	pool_unload(pool);
err_put:
	mpk_pool_put(pool);
	module_put(THIS_MODULE);
	return rc;
}

int mpk_pool_activate(struct mpk_dev **dev, u32 n, u32 flags, struct mpool_ioc_activate *ia)
{
	struct coming *co = coming_begin(dev, n);
	int rc;

	if (IS_ERR(co))
		return PTR_ERR(co);
	rc = pool_activate(dev, n, flags, ia);
	coming_end(co);
	return rc;
}

/* ---- deactivation and rename ---- */

/*
 * Sets pl_is_dead if no file is open and no object's place is held, so that none can come. A file
 * that is ending is not counted any more, but keeps the place of its object a moment longer. While
 * that is waited for, the pool can be opened, and then stays.
 */
static int pool_die(struct mpk_pool *pool)
{
	unsigned long end = jiffies + msecs_to_jiffies(IDLE_WAIT_MS);
	bool is_idle, is_late;
	u32 n;

	for (;;) {
		is_late = time_after_eq(jiffies, end);
		mutex_lock(&pool->pl_lock);
		n = pool->pl_opens;
		is_idle = !n && mpk_objfs_is_idle(pool);
		pool->pl_is_dead = is_idle;
		mutex_unlock(&pool->pl_lock);
		if (is_idle)
			return 0;
		if (n)
			return mp_err(MP_K_INUSE, "pool '%s': %u files are open", pool->pl_name,
				      n);
		if (is_late)
			return mp_err(MP_K_INUSE, "pool '%s': an object is held with O_PATH",
				      pool->pl_name);
		msleep(1);
	}
}

int mpk_pool_deactivate(struct mpk_pool *pool)
{
	u32 i, n;
	int rc = pool_die(pool);

	if (rc)
		return rc;
	mpk_sysfs_del(pool);
	mpk_objfs_unmount(pool);
	pool_unload(pool);
	mutex_lock(&pool->pl_lock);
	n = pool->pl_ndevs;
	pool->pl_ndevs = 0;
	mutex_unlock(&pool->pl_lock);
	for (i = 0; i < n; i++)
		mpk_dev_release(pool->pl_dev[i]);
	/* the name is free when the devices are */
	table_del(pool);
	mpk_pool_put(pool);
	/* this call came through an open file: the module stays until it returns */
	module_put(THIS_MODULE);
	return 0;
}

int mpk_pool_rename(struct mpk_pool *pool, const char *name)
{
	char old[MPOOL_IOC_NAME];
	int rc = mp_name_check(name);

	/* to its own name: makes the node anew */
	if (rc || !strcmp(pool->pl_name, name))
		return rc;
	mutex_lock(&mpk_pools_lock);
	if (find_name(name))
		rc = mp_err(MP_K_ACTIVE, "pool '%s'", name);
	else
		strscpy_pad(pool->pl_next_name, name, sizeof(pool->pl_next_name));
	mutex_unlock(&mpk_pools_lock);
	if (rc)
		return rc;
	rc = mp_pool_rename(pool->pl_core, name);
	if (rc) {
		mpk_pool_renamed(pool);
		return rc;
	}
	mutex_lock(&mpk_pools_lock);
	mutex_lock(&pool->pl_lock);
	memcpy(old, pool->pl_name, sizeof(old));
	memcpy(pool->pl_name, pool->pl_next_name, sizeof(old));
	mutex_unlock(&pool->pl_lock);
	/* the node has it still */
	memcpy(pool->pl_next_name, old, sizeof(old));
	list_del(&pool->pl_list);
	list_insert(pool);
	mutex_unlock(&mpk_pools_lock);
	return 0;
}

void mpk_pool_renamed(struct mpk_pool *pool)
{
	mutex_lock(&mpk_pools_lock);
	pool->pl_next_name[0] = 0;
	mutex_unlock(&mpk_pools_lock);
}

int mpk_pools_init(void)
{
	/* of the processor that has time; a worker of its own when there is no memory for one */
	beat_wq = alloc_workqueue("mpool_beat", WQ_MEM_RECLAIM | WQ_HIGHPRI | WQ_UNBOUND |
						WQ_FREEZABLE, 0);
	if (!beat_wq)
		return -ENOMEM;
	discard_wq = alloc_workqueue("mpool_discard", WQ_UNBOUND | WQ_FREEZABLE, 0);
	if (discard_wq)
		return 0;
	destroy_workqueue(beat_wq);
	return -ENOMEM;
}

void mpk_pools_exit(void)
{
	destroy_workqueue(discard_wq);
	destroy_workqueue(beat_wq);
}
