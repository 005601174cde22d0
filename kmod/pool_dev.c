// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/mpool/NAME: the commands on an active pool and its objects, by ioctl and by
 * io_uring through the same table.
 *
 * An open file holds references on objects ("handles"): they go with DROP or with
 * the file. A command that works on an object takes its own reference while
 * pf_lock is held, so a DROP beside it harms nothing. Lists and results lie in
 * memory that is charged to the caller.
 */
#include <linux/io_uring.h>
#include <linux/module.h>
#include <linux/pid.h>
#include <linux/sched.h>
#include <linux/uaccess.h>

#include "core/codec.h"
#include "mpk.h"
#include "trace.h"

#define LIST_CHUNK	64u	/* objects listed at a time */

struct handle {
	struct mp_obj *ha_obj;
	u32 ha_count;		/* pf_lock */
};

dev_t mpk_pool_devt;
static struct cdev pool_cdev;

/* ---- handles ---- */

/* a reference of the caller's on an object that this file holds; NULL: it does not */
static struct mp_obj *file_get(struct mpk_file *pf, u64 id)
{
	struct mp_obj *obj = NULL;
	struct handle *ha;

	mutex_lock(&pf->pf_lock);
	ha = xa_load(&pf->pf_objs, id);
	if (ha) {
		obj = ha->ha_obj;
		mp_obj_get(obj);
	}
	mutex_unlock(&pf->pf_lock);
	return obj;
}

static int not_held(u64 id)
{
	return mp_err(MP_K_HANDLE, "object %llu", id);
}

/* one handle more on @obj, whose reference is taken over on success */
static int handle_add(struct mpk_file *pf, struct mp_obj *obj)
{
	struct handle *ha;
	int rc = 0;

	mutex_lock(&pf->pf_lock);
	ha = xa_load(&pf->pf_objs, mp_obj_id(obj));
	if (ha) {
		if (ha->ha_count == U32_MAX)
			rc = -EOVERFLOW;
		else
			ha->ha_count++;
	} else {
		ha = kmalloc(sizeof(*ha), GFP_KERNEL_ACCOUNT);
		if (ha) {
			ha->ha_obj = obj;
			ha->ha_count = 1;
			rc = xa_err(xa_store(&pf->pf_objs, mp_obj_id(obj), ha,
					     GFP_KERNEL_ACCOUNT));
			if (rc)
				kfree(ha);
			obj = NULL;
		} else {
			rc = -ENOMEM;
		}
	}
	mutex_unlock(&pf->pf_lock);
	/* the handle that was there has its reference already */
	if (!rc && obj)
		mp_obj_put(obj);
	return rc;
}

/* gives the object back; the space of a deleted or aborted one is free now */
static void obj_drop(struct mpk_pool *pool, struct mp_obj *obj)
{
	struct mp_obj_info oi;

	mp_obj_info(obj, &oi);
	mp_obj_put(obj);
	if ((oi.oi_flags & MP_OBJF_DELETED) ||
	    (oi.oi_kind == MP_MBLOCK && !(oi.oi_flags & MP_OBJF_COMMITTED)))
		mpk_pool_kick_discard(pool);
}

static int handle_drop(struct mpk_file *pf, u64 id)
{
	struct mp_obj *obj = NULL;
	struct handle *ha;

	mutex_lock(&pf->pf_lock);
	ha = xa_load(&pf->pf_objs, id);
	if (ha && --ha->ha_count == 0) {
		xa_erase(&pf->pf_objs, id);
		obj = ha->ha_obj;
		kfree(ha);
	}
	mutex_unlock(&pf->pf_lock);
	if (obj)
		obj_drop(pf->pf_pool, obj);
	return ha ? 0 : not_held(id);
}

/* ---- the pool ---- */

static long pool_info(struct file *file, void *arg)
{
	struct mpk_pool *pool = ((struct mpk_file *)file->private_data)->pf_pool;
	struct mpool_ioc_info *in = arg;
	struct mp_pool_info pi;
	u32 i;

	static_assert(sizeof(in->in_fault) == sizeof(pi.pi_fault));
	mp_pool_info(pool->pl_core, &pi);
	memcpy(in->in_uuid, pi.pi_uuid, sizeof(in->in_uuid));
	memcpy(in->in_name, pi.pi_name, sizeof(in->in_name));
	memcpy(in->in_label, pi.pi_label, sizeof(in->in_label));
	memcpy(in->in_fault, pi.pi_fault, sizeof(in->in_fault));
	in->in_uid = from_kuid_munged(current_user_ns(), READ_ONCE(pool->pl_uid));
	in->in_gid = from_kgid_munged(current_user_ns(), READ_ONCE(pool->pl_gid));
	in->in_mode = READ_ONCE(pool->pl_mode);
	in->in_format = pi.pi_format;
	in->in_state = mpk_pool_state(pool, &pi);
	in->in_ndevs = pi.pi_ndevs;
	in->in_gen = pi.pi_gen;
	in->in_objects = pi.pi_objects;
	in->in_uring_cmds = (u64)atomic64_read(&pool->pl_uring_cmds);
	in->in_batches = (u64)atomic64_read(&pool->pl_batches);
	in->in_batch_ops = (u64)atomic64_read(&pool->pl_batch_ops);
	in->in_fault_id = (u32)pi.pi_fault_id;
	in->in_opens = READ_ONCE(pool->pl_opens);
	for (i = 0; i < MPOOL_IOC_CLASSES; i++) {
		in->in_spare_pct[i] = pi.pi_spare_pct[i];
		in->in_class[i].cl_devs = pi.pi_cls[i].ci_devs;
		in->in_class[i].cl_reserved = 0;
		in->in_class[i].cl_total = pi.pi_cls[i].ci_total;
		in->in_class[i].cl_used = pi.pi_cls[i].ci_used;
		in->in_class[i].cl_free = pi.pi_cls[i].ci_free;
		in->in_class[i].cl_reserve = pi.pi_cls[i].ci_reserve;
		in->in_class[i].cl_discarding = pi.pi_cls[i].ci_discarding;
	}
	return 0;
}

static long pool_dev_info(struct file *file, void *arg)
{
	struct mpk_pool *pool = ((struct mpk_file *)file->private_data)->pf_pool;
	struct mpool_ioc_dev_info *di = arg;
	struct mpk_dev_stats ds;
	struct mp_member mb;
	struct mpk_dev *dev;
	int rc = mp_pool_member(pool->pl_core, di->di_slot, &mb);

	if (rc)
		return rc;
	dev = mpk_dev_of(mb.mb_dev);
	mpk_dev_stats_sum(dev, &ds);
	di->di_mclass = mb.mb_mclass;
	memcpy(di->di_uuid, mb.mb_uuid, sizeof(di->di_uuid));
	strscpy_pad(di->di_path, dev->dv_path, sizeof(di->di_path));
	di->di_major = MAJOR(dev->dv_bdev->bd_dev);
	di->di_minor = MINOR(dev->dv_bdev->bd_dev);
	di->di_sector = dev->dv_core.d_sector;
	di->di_has_md = mb.mb_has_md;
	di->di_bytes = mb.mb_bytes;
	di->di_read_bytes = ds.ds_read_bytes;
	di->di_write_bytes = ds.ds_write_bytes;
	di->di_discard_bytes = ds.ds_discard_bytes;
	di->di_reads = ds.ds_reads;
	di->di_writes = ds.ds_writes;
	di->di_flushes = ds.ds_flushes;
	di->di_errors = ds.ds_errors;
	return 0;
}

static long pool_flush(struct file *file, void *arg)
{
	struct mpk_pool *pool = ((struct mpk_file *)file->private_data)->pf_pool;
	const struct mpool_ioc_flush *fl = arg;

	if (fl->fl_mask & ~((1u << MPOOL_IOC_CLASSES) - 1))
		return mp_err(MP_K_ARG, "classes 0x%x", fl->fl_mask);
	return mp_pool_flush(pool->pl_core, fl->fl_mask);
}

/* ---- allocation ---- */

/* what could not be handed out: durable objects are deleted again */
static void alloc_undo(struct mpk_pool *pool, struct mp_obj **obj, u32 n)
{
	struct mp_op *op = kvcalloc(n, sizeof(*op), GFP_KERNEL_ACCOUNT);
	struct mp_op one = { .op_type = MP_OP_DELETE };
	struct mp_obj_info oi;
	u32 i, k = 0;
	int rc = -ENOMEM;

	for (i = 0; i < n && op; i++) {
		mp_obj_info(obj[i], &oi);
		if (oi.oi_kind != MP_MBLOCK) {
			op[k].op_type = MP_OP_DELETE;
			op[k++].op_obj = obj[i];
		}
	}
	if (op)
		rc = k ? mp_pool_batch(pool->pl_core, op, k) : 0;
	/* all or none: none because another that saw the ids has deleted one, say */
	for (i = 0; i < n; i++) {
		one.op_obj = obj[i];
		if (rc)
			mp_pool_batch(pool->pl_core, &one, 1);
		mpk_objfs_forget(pool, mp_obj_id(obj[i]));
		mp_obj_put(obj[i]);
	}
	kvfree(op);
	mpk_pool_kick_discard(pool);
}

static int alloc_run(struct mpk_file *pf, const struct mp_alloc *req, struct mp_obj **obj,
		     u64 __user *ids, u32 n)
{
	struct mpk_pool *pool = pf->pf_pool;
	u32 i;
	int rc = mp_obj_alloc(pool->pl_core, req, n, obj);

	if (rc)
		return rc;
	for (i = 0; i < n && !rc; i++)
		rc = put_user(mp_obj_id(obj[i]), &ids[i]);
	if (rc) {
		alloc_undo(pool, obj, n);
		return rc;
	}
	for (i = 0; i < n && !rc; i++) {
		/* the table's reference; ours stays until all are in */
		mp_obj_get(obj[i]);
		rc = handle_add(pf, obj[i]);
		if (rc)
			mp_obj_put(obj[i]);
	}
	if (rc) {
		while (--i)
			handle_drop(pf, mp_obj_id(obj[i - 1]));
		alloc_undo(pool, obj, n);
		return rc;
	}
	for (i = 0; i < n; i++)
		mp_obj_put(obj[i]);
	return 0;
}

static long pool_alloc(struct file *file, void *arg)
{
	const struct mpool_ioc_alloc *al = arg;
	struct mpool_ioc_alloc_one *one;
	struct mp_obj **obj;
	struct mp_alloc *req;
	u32 i;
	int rc;

	one = mpk_copy_array(al->al_req, al->al_n, MPOOL_IOC_BATCH_MAX, sizeof(*one));
	if (IS_ERR(one))
		return PTR_ERR(one);
	obj = kvcalloc(al->al_n, sizeof(*obj), GFP_KERNEL_ACCOUNT);
	req = kvcalloc(al->al_n, sizeof(*req), GFP_KERNEL_ACCOUNT);
	rc = obj && req ? 0 : -ENOMEM;
	for (i = 0; i < al->al_n && !rc; i++) {
		req[i].al_kind = one[i].ao_kind;
		req[i].al_mclass = one[i].ao_mclass;
		req[i].al_flags = one[i].ao_flags;
		req[i].al_capacity = one[i].ao_capacity;
		req[i].al_tag = one[i].ao_tag;
		if (one[i].ao_reserved || (one[i].ao_flags & ~(MP_ALLOC_SPARE | MP_ALLOC_ANY)))
			rc = mp_err(MP_K_ARG, "allocation %u: flags 0x%x", i, one[i].ao_flags);
	}
	if (!rc)
		rc = alloc_run(file->private_data, req, obj, u64_to_user_ptr(al->al_ids),
			       al->al_n);
	kvfree(req);
	kvfree(obj);
	kvfree(one);
	return rc;
}

/* ---- objects ---- */

static void obj_fill(const struct mp_obj_info *oi, struct mpool_ioc_obj *ob)
{
	ob->ob_id = oi->oi_id;
	ob->ob_tag = oi->oi_tag;
	ob->ob_capacity = oi->oi_capacity;
	ob->ob_length = oi->oi_length;
	ob->ob_kind = oi->oi_kind;
	ob->ob_mclass = oi->oi_mclass;
	ob->ob_flags = oi->oi_flags;
	ob->ob_crc = oi->oi_crc;
}

/* a reference of the caller's on an object held by this file, else on a durable one */
static int obj_any(struct mpk_file *pf, u64 id, struct mp_obj **obj)
{
	*obj = file_get(pf, id);
	return *obj ? 0 : mp_obj_open(pf->pf_pool->pl_core, id, obj);
}

static long pool_hold(struct file *file, void *arg)
{
	struct mpool_ioc_hold *ho = arg;
	struct mp_obj_info oi;
	struct mp_obj *obj;
	int rc = obj_any(file->private_data, ho->ho_id, &obj);

	if (rc)
		return rc;
	mp_obj_info(obj, &oi);
	rc = handle_add(file->private_data, obj);
	if (rc) {
		mp_obj_put(obj);
		return rc;
	}
	obj_fill(&oi, &ho->ho_obj);
	return 0;
}

static long pool_drop(struct file *file, void *arg)
{
	const struct mpool_ioc_drop *dr = arg;
	u64 *id = mpk_copy_array(dr->dr_ids, dr->dr_n, MPOOL_IOC_BATCH_MAX, sizeof(*id));
	u32 i;
	int rc = 0;

	if (IS_ERR(id))
		return PTR_ERR(id);
	for (i = 0; i < dr->dr_n && !rc; i++)
		rc = handle_drop(file->private_data, id[i]);
	kvfree(id);
	return rc;
}

static long pool_obj_info(struct file *file, void *arg)
{
	struct mpool_ioc_hold *ho = arg;
	struct mp_obj *obj = file_get(file->private_data, ho->ho_id);
	struct mp_obj_info oi;

	if (!obj)
		return not_held(ho->ho_id);
	mp_obj_info(obj, &oi);
	mp_obj_put(obj);
	obj_fill(&oi, &ho->ho_obj);
	return 0;
}

struct list_buf {
	struct mp_obj_info lb_oi[LIST_CHUNK];
	struct mpool_ioc_obj lb_ob[LIST_CHUNK];
};

static long pool_objects(struct file *file, void *arg)
{
	struct mpk_pool *pool = ((struct mpk_file *)file->private_data)->pf_pool;
	const struct mpool_ioc_objects *os = arg;
	struct mpool_ioc_obj __user *out = u64_to_user_ptr(os->os_out);
	u64 after = os->os_after;
	struct list_buf *lb;
	u32 got = 0;
	int i, n, rc = 0;

	if (!os->os_max || os->os_max > MPOOL_IOC_BATCH_MAX)
		return mp_err(MP_K_ARG, "room for %u objects", os->os_max);
	lb = kvzalloc(sizeof(*lb), GFP_KERNEL_ACCOUNT);
	if (!lb)
		return -ENOMEM;
	while (got < os->os_max && !rc) {
		n = mp_obj_list(pool->pl_core, after, os->os_tag, lb->lb_oi,
				min(os->os_max - got, LIST_CHUNK));
		if (n <= 0)
			break;
		for (i = 0; i < n; i++)
			obj_fill(&lb->lb_oi[i], &lb->lb_ob[i]);
		if (copy_to_user(out + got, lb->lb_ob, (u32)n * sizeof(*out)))
			rc = -EFAULT;
		got += (u32)n;
		after = lb->lb_oi[n - 1].oi_id;
	}
	kvfree(lb);
	return rc ? rc : got;
}

static int batch_fill(struct mpk_file *pf, const struct mpool_ioc_op *in, struct mp_op *op, u32 n)
{
	u32 i;

	for (i = 0; i < n; i++) {
		if (in[i].op_reserved || (in[i].op_flags & ~MPOOL_IOC_OP_CRC))
			return mp_err(MP_K_ARG, "operation %u: type %u flags 0x%x", i,
				      in[i].op_type, in[i].op_flags);
		op[i].op_type = in[i].op_type;
		op[i].op_flags = in[i].op_flags & MPOOL_IOC_OP_CRC ? MP_OPF_CRC : 0;
		op[i].op_id = in[i].op_id;
		op[i].op_length = in[i].op_length;
		op[i].op_crc = in[i].op_crc;
		if (in[i].op_type == MP_OP_DELETE)
			continue;
		op[i].op_obj = file_get(pf, in[i].op_id);
		if (!op[i].op_obj)
			return not_held(in[i].op_id);
	}
	return 0;
}

static int batch_run(struct mpk_file *pf, const struct mpool_ioc_op *in, struct mp_op *op, u32 n)
{
	struct mpk_pool *pool = pf->pf_pool;
	bool has_delete = false;
	u32 i;
	int rc = batch_fill(pf, in, op, n);

	if (!rc)
		rc = mp_pool_batch(pool->pl_core, op, n);
	for (i = 0; i < n; i++) {
		if (op[i].op_obj)
			mp_obj_put(op[i].op_obj);
		if (rc || op[i].op_type != MP_OP_DELETE)
			continue;
		mpk_objfs_forget(pool, op[i].op_id);
		has_delete = true;
	}
	if (rc)
		return rc;
	atomic64_inc(&pool->pl_batches);
	atomic64_add(n, &pool->pl_batch_ops);
	if (has_delete)
		mpk_pool_kick_discard(pool);
	return 0;
}

static long pool_batch(struct file *file, void *arg)
{
	const struct mpool_ioc_batch *ba = arg;
	u64 begin = MPK_TRACE_BEGIN(mpool_batch);
	struct mpk_file *pf = file->private_data;
	struct mpool_ioc_op *in;
	struct mp_op *op;
	int rc;

	in = mpk_copy_array(ba->ba_ops, ba->ba_n, MPOOL_IOC_BATCH_MAX, sizeof(*in));
	if (IS_ERR(in))
		return PTR_ERR(in);
	op = kvcalloc(ba->ba_n, sizeof(*op), GFP_KERNEL_ACCOUNT);
	rc = op ? batch_run(pf, in, op, ba->ba_n) : -ENOMEM;
	trace_mpool_batch(pf->pf_pool->pl_minor, ba->ba_n, begin, rc);
	kvfree(op);
	kvfree(in);
	return rc;
}

static long pool_open_obj(struct file *file, void *arg)
{
	const struct mpool_ioc_open *op = arg;
	struct mpk_file *pf = file->private_data;
	struct mp_obj *obj;
	int rc;

	if ((op->op_arg.ma_flags & MPOOL_IOC_OPEN_WRITE) && !pf->pf_is_writer)
		return mp_err(MP_K_RDONLY, "object %llu cannot be opened for writing", op->op_id);
	rc = obj_any(pf, op->op_id, &obj);
	return rc ? rc : mpk_obj_fd(pf->pf_pool, obj, op->op_arg.ma_flags);
}

/* ---- the lease ---- */

static long pool_lease(struct file *file, void *arg)
{
	struct mpk_pool *pool = ((struct mpk_file *)file->private_data)->pf_pool;
	const struct mpool_ioc_lease *le = arg;
	u8 id[16];
	bool is_free;
	pid_t pid;

	mutex_lock(&pool->pl_lock);
	is_free = !pool->pl_lease_file;
	if (is_free) {
		pool->pl_lease_file = file->private_data;
		pool->pl_lease_pid = get_pid(task_tgid(current));
		memcpy(pool->pl_lease_id, le->le_id, sizeof(le->le_id));
	}
	/* as the caller sees it, in its namespace: 0, not at all */
	pid = pid_vnr(pool->pl_lease_pid);
	memcpy(id, pool->pl_lease_id, sizeof(id));
	mutex_unlock(&pool->pl_lock);
	if (is_free)
		return 0;
	return pid ? mp_err(MP_K_LEASED, "held by process %d, lease %pUb", pid, id) :
		     mp_err(MP_K_LEASED, "held by a process elsewhere, lease %pUb", id);
}

static int lease_drop(struct mpk_file *pf, const u8 *id)
{
	struct mpk_pool *pool = pf->pf_pool;
	int rc = -ENOENT;

	mutex_lock(&pool->pl_lock);
	if (pool->pl_lease_file == pf &&
	    (!id || !memcmp(pool->pl_lease_id, id, sizeof(pool->pl_lease_id)))) {
		pool->pl_lease_file = NULL;
		put_pid(pool->pl_lease_pid);
		pool->pl_lease_pid = NULL;
		rc = 0;
	}
	mutex_unlock(&pool->pl_lock);
	return rc;
}

static long pool_unlease(struct file *file, void *arg)
{
	const struct mpool_ioc_lease *le = arg;

	return lease_drop(file->private_data, le->le_id) ?
	       mp_err(MP_K_NOLEASE, "lease %pUb", le->le_id) : 0;
}

/* ---- locks ---- */

/*
 * flock() and locks of open files (OFD) on the node say how the pool is used. The node
 * is made anew for a new owner or name, and others may lead here: so these locks lie
 * on an inode that all that have the pool open share.
 */
static struct inode *lock_inode(const struct file *file)
{
	const struct mpk_file *pf = file->private_data;

	return d_inode(pf->pf_pool->pl_mnt->mnt_root);
}

static int pool_flock(struct file *file, int cmd, struct file_lock *fl)
{
	/* a reader keeps no writer out; F_OFD_SETLK asks the same */
	if (MPK_LOCK(fl, type) == F_WRLCK && !(file->f_mode & FMODE_WRITE))
		return -EBADF;
	return locks_lock_inode_wait(lock_inode(file), fl);
}

/* those of a process stay on the node, where the kernel looks for them when it closes a file */
static int pool_lock(struct file *file, int cmd, struct file_lock *fl)
{
	if (cmd != F_GETLK)
		return MPK_LOCK(fl, flags) & FL_OFDLCK ?
		       locks_lock_inode_wait(lock_inode(file), fl) :
		       posix_lock_file(file, fl, NULL);
	if (MPK_LOCK(fl, flags) & FL_OFDLCK)
		return -EOPNOTSUPP;
	posix_test_lock(file, fl);
	return 0;
}

/* what the end of a file does for locks on its own inode */
static void locks_drop(struct file *file)
{
	struct file_lock fl;

	locks_init_lock(&fl);
	MPK_LOCK(&fl, type) = F_UNLCK;
	MPK_LOCK(&fl, owner) = file;
	MPK_LOCK(&fl, file) = file;
	fl.fl_end = OFFSET_MAX;
	MPK_LOCK(&fl, flags) = FL_FLOCK | FL_CLOSE;
	locks_lock_inode_wait(lock_inode(file), &fl);
	MPK_LOCK(&fl, flags) = FL_POSIX | FL_OFDLCK | FL_CLOSE;
	locks_lock_inode_wait(lock_inode(file), &fl);
}

/* ---- the node ---- */

static const struct mpk_cmd pool_cmds[] = {
	{ .cm_cmd = MPOOL_IOC_VERSION, .cm_fn = mpk_cmd_version },
	{ .cm_cmd = MPOOL_IOC_INFO, .cm_fn = pool_info },
	{ .cm_cmd = MPOOL_IOC_DEV_INFO, .cm_fn = pool_dev_info },
	{ .cm_cmd = MPOOL_IOC_FLUSH, .cm_fn = pool_flush, .cm_flags = MPK_CMD_WRITE,
	  MPK_RESERVED(mpool_ioc_flush, fl_reserved) },
	{ .cm_cmd = MPOOL_IOC_ALLOC, .cm_fn = pool_alloc, .cm_flags = MPK_CMD_WRITE,
	  MPK_RESERVED(mpool_ioc_alloc, al_reserved) },
	{ .cm_cmd = MPOOL_IOC_HOLD, .cm_fn = pool_hold },
	{ .cm_cmd = MPOOL_IOC_DROP, .cm_fn = pool_drop,
	  MPK_RESERVED(mpool_ioc_drop, dr_reserved) },
	{ .cm_cmd = MPOOL_IOC_OBJ_INFO, .cm_fn = pool_obj_info },
	{ .cm_cmd = MPOOL_IOC_OBJECTS, .cm_fn = pool_objects,
	  MPK_RESERVED(mpool_ioc_objects, os_reserved) },
	{ .cm_cmd = MPOOL_IOC_BATCH, .cm_fn = pool_batch, .cm_flags = MPK_CMD_WRITE,
	  MPK_RESERVED(mpool_ioc_batch, ba_reserved) },
	{ .cm_cmd = MPOOL_IOC_OPEN, .cm_fn = pool_open_obj, .cm_flags = MPK_CMD_FD,
	  .cm_args = MPOOL_IOC_OPEN_WRITE | MPOOL_IOC_OPEN_DIRECT | MPOOL_IOC_OPEN_CLOEXEC,
	  MPK_RESERVED(mpool_ioc_open, op_reserved) },
	{ .cm_cmd = MPOOL_IOC_MLOG_OPEN, .cm_fn = mpk_mlog_open },
	{ .cm_cmd = MPOOL_IOC_MLOG_CLOSE, .cm_fn = mpk_mlog_close },
	{ .cm_cmd = MPOOL_IOC_MLOG_APPEND, .cm_fn = mpk_mlog_append, .cm_flags = MPK_CMD_WRITE,
	  .cm_args = MPOOL_IOC_APPEND_SYNC, MPK_RESERVED(mpool_ioc_append, ap_reserved) },
	{ .cm_cmd = MPOOL_IOC_MLOG_SYNC, .cm_fn = mpk_mlog_sync, .cm_flags = MPK_CMD_WRITE },
	{ .cm_cmd = MPOOL_IOC_MLOG_READ, .cm_fn = mpk_mlog_read },
	{ .cm_cmd = MPOOL_IOC_MLOG_ERASE, .cm_fn = mpk_mlog_erase, .cm_flags = MPK_CMD_WRITE },
	{ .cm_cmd = MPOOL_IOC_MLOG_SEAL, .cm_fn = mpk_mlog_seal, .cm_flags = MPK_CMD_WRITE },
	{ .cm_cmd = MPOOL_IOC_MLOG_SPACE, .cm_fn = mpk_mlog_space },
	{ .cm_cmd = MPOOL_IOC_ROOT_CREATE, .cm_fn = mpk_root_create, .cm_flags = MPK_CMD_WRITE,
	  MPK_RESERVED(mpool_ioc_root, ro_reserved) },
	{ .cm_cmd = MPOOL_IOC_ROOT_GET, .cm_fn = mpk_root_get,
	  MPK_RESERVED(mpool_ioc_root, ro_reserved) },
	{ .cm_cmd = MPOOL_IOC_ROOT_DELETE, .cm_fn = mpk_root_delete, .cm_flags = MPK_CMD_WRITE,
	  MPK_RESERVED(mpool_ioc_root, ro_reserved) },
	{ .cm_cmd = MPOOL_IOC_ROOT_NEXT, .cm_fn = mpk_root_next,
	  MPK_RESERVED(mpool_ioc_root, ro_reserved) },
	{ .cm_cmd = MPOOL_IOC_LEASE, .cm_fn = pool_lease, .cm_flags = MPK_CMD_WRITE },
	{ .cm_cmd = MPOOL_IOC_UNLEASE, .cm_fn = pool_unlease, .cm_flags = MPK_CMD_WRITE },
};

static long pool_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	return mpk_cmd_run(pool_cmds, ARRAY_SIZE(pool_cmds), file, cmd, (void __user *)arg);
}

/*
 * Everything here may sleep, so the submitter always hands it to a worker. By
 * then the entry is io_uring's own copy; it is read once all the same.
 */
static int pool_uring_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	struct mpk_file *pf = cmd->file->private_data;
	u64 payload[10];	/* with large entries, else 2 */
	size_t n = issue_flags & IO_URING_F_SQE128 ? 10 : 2;
	int rc;

	if (issue_flags & IO_URING_F_NONBLOCK)
		return -EAGAIN;
	memcpy(payload, mpk_uring_payload(cmd, u64), n * sizeof(payload[0]));
	if (memchr_inv(&payload[1], 0, (n - 1) * sizeof(payload[0])))
		return -EINVAL;
	/* the worker's descriptor table is the submitter's, but that is not to be relied on */
	if (cmd->cmd_op == MPOOL_IOC_OPEN)
		return -EOPNOTSUPP;
	atomic64_inc(&pf->pf_pool->pl_uring_cmds);
	rc = (int)mpk_cmd_run(pool_cmds, ARRAY_SIZE(pool_cmds), cmd->file, cmd->cmd_op,
			      u64_to_user_ptr(payload[0]));
	if (rc <= 0)
		return rc;
	/* 6.1 would never complete a command that returns a count */
	mpk_uring_done(cmd, rc, issue_flags);
	return -EIOCBQUEUED;
}

static int pool_open(struct inode *inode, struct file *file)
{
	struct mpk_pool *pool;
	struct mpk_file *pf;

	/* every command returns something */
	if (!(file->f_mode & FMODE_READ))
		return -EINVAL;
	pf = kzalloc(sizeof(*pf), GFP_KERNEL_ACCOUNT);
	if (!pf)
		return -ENOMEM;
	pool = mpk_pool_open_minor(iminor(inode) - MINOR(mpk_pool_devt));
	if (IS_ERR(pool)) {
		kfree(pf);
		return PTR_ERR(pool);
	}
	pf->pf_pool = pool;
	pf->pf_is_writer = file->f_mode & FMODE_WRITE;
	mutex_init(&pf->pf_lock);
	xa_init_flags(&pf->pf_objs, XA_FLAGS_ACCOUNT);
	xa_init_flags(&pf->pf_logs, XA_FLAGS_ACCOUNT);
	file->private_data = pf;
	return nonseekable_open(inode, file);
}

/* no command is running: each holds the file */
static int pool_release(struct inode *inode, struct file *file)
{
	struct mpk_file *pf = file->private_data;
	struct handle *ha;
	unsigned long id;

	locks_drop(file);
	mpk_mlog_drop_all(pf);
	xa_for_each(&pf->pf_objs, id, ha) {
		obj_drop(pf->pf_pool, ha->ha_obj);
		kfree(ha);
		cond_resched();
	}
	xa_destroy(&pf->pf_objs);
	xa_destroy(&pf->pf_logs);
	lease_drop(pf, NULL);
	mutex_destroy(&pf->pf_lock);
	mpk_pool_release(pf->pf_pool);
	kfree(pf);
	return 0;
}

static const struct file_operations pool_fops = {
	.owner = THIS_MODULE,
	.open = pool_open,
	.release = pool_release,
	.unlocked_ioctl = pool_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.uring_cmd = pool_uring_cmd,
	.flock = pool_flock,
	.lock = pool_lock,
};

int mpk_pool_dev_init(void)
{
	int rc = alloc_chrdev_region(&mpk_pool_devt, 0, MPK_MINORS, "mpool");

	static_assert(sizeof(unsigned long) == sizeof(u64), "ids are keys of an xarray");
	if (rc)
		return rc;
	cdev_init(&pool_cdev, &pool_fops);
	pool_cdev.owner = THIS_MODULE;
	rc = cdev_add(&pool_cdev, mpk_pool_devt, MPK_MINORS);
	if (rc)
		unregister_chrdev_region(mpk_pool_devt, MPK_MINORS);
	return rc;
}

void mpk_pool_dev_exit(void)
{
	cdev_del(&pool_cdev);
	unregister_chrdev_region(mpk_pool_devt, MPK_MINORS);
}
