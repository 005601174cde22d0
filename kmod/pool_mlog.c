// SPDX-License-Identifier: GPL-2.0-only
/*
 * Commands of the pool node on mlogs and named roots.
 *
 * The core opens an mlog once; here all files that opened it share that: one
 * file that may write, any number that only read. What a reader sees is what
 * has left the writer's buffer: reading must not write.
 *
 * pl_mlog_lock covers the pool's list. A log is opened without it, as that may read
 * all of the log: it is on the list before, and another that wants it waits until that has ended. A
 * file's table has its own references, taken under pf_lock by each command.
 */
#include <linux/completion.h>
#include <linux/refcount.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "mpk.h"

#define READ_FIRST	4096u	/* bytes tried first for a record of unknown length */

struct open_log {
	struct list_head lg_list;	/* pl_mlogs, but for one that failed; pl_mlog_lock */
	refcount_t lg_refs;		/* files and running commands */
	u64 lg_id;
	struct completion lg_opened;	/* or it failed: lg_core is what it will be */
	struct mp_mlog *lg_core;	/* NULL: it is not open */
	struct mpk_file *lg_writer;	/* pl_mlog_lock */
};

static void log_free(struct open_log *lg)
{
	list_del(&lg->lg_list);
	/* does no I/O */
	mp_mlog_close(lg->lg_core);
	kfree(lg);
}

static void log_put(struct mpk_pool *pool, struct open_log *lg)
{
	/* under the lock: the next open must not find the core's still open */
	if (refcount_dec_and_mutex_lock(&lg->lg_refs, &pool->pl_mlog_lock)) {
		log_free(lg);
		mutex_unlock(&pool->pl_mlog_lock);
	}
}

/* the log as this file has it open, with a reference; ERR_PTR */
static struct open_log *log_get(struct mpk_file *pf, u64 id)
{
	struct open_log *lg;

	mutex_lock(&pf->pf_lock);
	lg = xa_load(&pf->pf_logs, id);
	if (lg)
		refcount_inc(&lg->lg_refs);
	mutex_unlock(&pf->pf_lock);
	return lg ? lg : ERR_PTR(mp_err(MP_K_LOGNONE, "log %llu", id));
}

/* a reference on the pool's log; *is_new: the caller opens it, for all that wait for that */
static struct open_log *log_find(struct mpk_pool *pool, u64 id, bool *is_new)
{
	struct open_log *lg;

	*is_new = false;
	mutex_lock(&pool->pl_mlog_lock);
	list_for_each_entry(lg, &pool->pl_mlogs, lg_list) {
		if (lg->lg_id == id) {
			refcount_inc(&lg->lg_refs);
			goto out;
		}
	}
	lg = kzalloc(sizeof(*lg), GFP_KERNEL_ACCOUNT);
	if (lg) {
		lg->lg_id = id;
		refcount_set(&lg->lg_refs, 1);
		init_completion(&lg->lg_opened);
		list_add(&lg->lg_list, &pool->pl_mlogs);
		*is_new = true;
	}
out:
	mutex_unlock(&pool->pl_mlog_lock);
	return lg;
}

/* opens the log, or waits for the opener. -EAGAIN: the opener failed, the caller tries */
static int log_open(struct mpk_pool *pool, struct open_log *lg, bool is_new)
{
	int rc;

	if (is_new) {
		rc = mp_mlog_open(pool->pl_core, lg->lg_id, &lg->lg_core);
		if (rc) {
			/* waiters find nothing there, and try for themselves */
			mutex_lock(&pool->pl_mlog_lock);
			list_del_init(&lg->lg_list);
			mutex_unlock(&pool->pl_mlog_lock);
		}
		complete_all(&lg->lg_opened);
		return rc;
	}
	rc = wait_for_completion_killable(&lg->lg_opened);
	return rc || lg->lg_core ? rc : -EAGAIN;
}

/* pl_mlog_lock held; the caller's reference becomes the file's, not on failure */
static int log_attach(struct mpk_file *pf, struct open_log *lg)
{
	int rc;

	if (xa_load(&pf->pf_logs, lg->lg_id))
		return mp_err(MP_OBJ_OPEN, "log %llu: by this descriptor", lg->lg_id);
	if (pf->pf_is_writer && lg->lg_writer)
		return mp_err(MP_K_LOGBUSY, "log %llu", lg->lg_id);
	rc = xa_err(xa_store(&pf->pf_logs, lg->lg_id, lg, GFP_KERNEL_ACCOUNT));
	if (!rc && pf->pf_is_writer)
		lg->lg_writer = pf;
	return rc;
}

long mpk_mlog_open(struct file *file, void *arg)
{
	struct mpk_file *pf = file->private_data;
	struct mpk_pool *pool = pf->pf_pool;
	const struct mpool_ioc_mlog *ml = arg;
	struct open_log *lg;
	bool is_new;
	int rc;

	do {
		lg = log_find(pool, ml->ml_id, &is_new);
		if (!lg)
			return -ENOMEM;
		rc = log_open(pool, lg, is_new);
		if (!rc) {
			mutex_lock(&pool->pl_mlog_lock);
			rc = log_attach(pf, lg);
			mutex_unlock(&pool->pl_mlog_lock);
		}
		if (rc)
			log_put(pool, lg);
	} while (rc == -EAGAIN);
	return rc;
}

/* the file's reference goes; a command that runs beside us has its own */
static void log_detach(struct mpk_file *pf, struct open_log *lg)
{
	mutex_lock(&pf->pf_pool->pl_mlog_lock);
	if (lg->lg_writer == pf)
		lg->lg_writer = NULL;
	mutex_unlock(&pf->pf_pool->pl_mlog_lock);
	log_put(pf->pf_pool, lg);
}

long mpk_mlog_close(struct file *file, void *arg)
{
	struct mpk_file *pf = file->private_data;
	const struct mpool_ioc_mlog *ml = arg;
	struct open_log *lg;

	mutex_lock(&pf->pf_lock);
	lg = xa_erase(&pf->pf_logs, ml->ml_id);
	mutex_unlock(&pf->pf_lock);
	if (!lg)
		return mp_err(MP_K_LOGNONE, "log %llu", ml->ml_id);
	log_detach(pf, lg);
	return 0;
}

void mpk_mlog_drop_all(struct mpk_file *pf)
{
	struct open_log *lg;
	unsigned long id;

	xa_for_each(&pf->pf_logs, id, lg) {
		log_detach(pf, lg);
		cond_resched();
	}
}

/* ---- records ---- */

/* the caller's parts as one record in kernel memory; ERR_PTR, else kvfree() */
static void *append_copy(const struct mpool_ioc_append *ap, size_t *len)
{
	struct mpool_ioc_vec *v;
	size_t total = 0, at = 0;
	u8 *buf = NULL;
	u32 i;
	int rc = 0;

	v = mpk_copy_array(ap->ap_vec, ap->ap_n, MPOOL_IOC_IOV_MAX, sizeof(*v));
	if (IS_ERR(v))
		return v;
	for (i = 0; i < ap->ap_n && !rc; i++) {
		if (v[i].ve_len > MPOOL_IOC_RECORD_MAX - total)
			rc = mp_err(MP_K_ARG, "a record of more than %u bytes",
				    MPOOL_IOC_RECORD_MAX);
		else
			total += v[i].ve_len;
	}
	if (!rc)
		buf = kvmalloc(total, GFP_KERNEL_ACCOUNT);
	if (!rc && !buf)
		rc = -ENOMEM;
	for (i = 0; i < ap->ap_n && !rc; at += v[i++].ve_len)
		if (copy_from_user(buf + at, u64_to_user_ptr(v[i].ve_base), v[i].ve_len))
			rc = -EFAULT;
	kvfree(v);
	if (rc) {
		kvfree(buf);
		return ERR_PTR(rc);
	}
	*len = total;
	return buf;
}

long mpk_mlog_append(struct file *file, void *arg)
{
	struct mpk_file *pf = file->private_data;
	const struct mpool_ioc_append *ap = arg;
	struct open_log *lg = log_get(pf, ap->ap_id);
	struct mp_vec vec;
	void *buf;
	int rc;

	if (IS_ERR(lg))
		return PTR_ERR(lg);
	buf = append_copy(ap, &vec.v_len);
	rc = PTR_ERR_OR_ZERO(buf);
	if (!rc) {
		vec.v_buf = buf;
		rc = mp_mlog_append(lg->lg_core, &vec, 1,
				    ap->ap_arg.ma_flags & MPOOL_IOC_APPEND_SYNC);
		kvfree(buf);
	}
	log_put(pf->pf_pool, lg);
	return rc;
}

/* a reader's descriptor changes nothing: it gets what is written out */
static int read_one(struct mpk_file *pf, struct open_log *lg, u64 *pos, void *buf, size_t size,
		    size_t *len)
{
	return pf->pf_is_writer ? mp_mlog_read(lg->lg_core, pos, buf, size, len) :
				  mp_mlog_peek(lg->lg_core, pos, buf, size, len);
}

static int read_run(struct mpk_file *pf, struct open_log *lg, struct mpool_ioc_read *rd)
{
	size_t room = min_t(u64, rd->rd_size, READ_FIRST), len = 0;
	u64 pos = rd->rd_pos;
	void *buf;
	int rc;

	for (;;) {
		buf = kvmalloc(max_t(size_t, room, 1), GFP_KERNEL_ACCOUNT);
		if (!buf)
			return -ENOMEM;
		rc = read_one(pf, lg, &pos, buf, room, &len);
		/* it fits the caller, so it is read again: a record does not change */
		if (rc != -EOVERFLOW || len > rd->rd_size || len <= room)
			break;
		kvfree(buf);
		room = len;
	}
	if (!rc && copy_to_user(u64_to_user_ptr(rd->rd_buf), buf, len))
		rc = -EFAULT;
	kvfree(buf);
	if (!rc)
		rd->rd_pos = pos;
	if (!rc || rc == -EOVERFLOW)
		rd->rd_len = len;
	return rc;
}

long mpk_mlog_read(struct file *file, void *arg)
{
	struct mpk_file *pf = file->private_data;
	struct mpool_ioc_read *rd = arg;
	struct open_log *lg = log_get(pf, rd->rd_id);
	int rc;

	if (IS_ERR(lg))
		return PTR_ERR(lg);
	rc = read_run(pf, lg, rd);
	log_put(pf->pf_pool, lg);
	return rc;
}

static long log_do(struct file *file, const struct mpool_ioc_mlog *ml,
		   int (*fn)(struct mp_mlog *log))
{
	struct mpk_file *pf = file->private_data;
	struct open_log *lg = log_get(pf, ml->ml_id);
	int rc;

	if (IS_ERR(lg))
		return PTR_ERR(lg);
	rc = fn(lg->lg_core);
	log_put(pf->pf_pool, lg);
	return rc;
}

long mpk_mlog_sync(struct file *file, void *arg)
{
	return log_do(file, arg, mp_mlog_sync);
}

long mpk_mlog_erase(struct file *file, void *arg)
{
	return log_do(file, arg, mp_mlog_erase);
}

long mpk_mlog_seal(struct file *file, void *arg)
{
	return log_do(file, arg, mp_mlog_seal);
}

long mpk_mlog_space(struct file *file, void *arg)
{
	struct mpk_file *pf = file->private_data;
	struct mpool_ioc_mlog *ml = arg;
	struct open_log *lg = log_get(pf, ml->ml_id);

	if (IS_ERR(lg))
		return PTR_ERR(lg);
	mp_mlog_space(lg->lg_core, &ml->ml_used, &ml->ml_capacity);
	log_put(pf->pf_pool, lg);
	return 0;
}

/* ---- named roots ---- */

static struct mp_pool *root_pool(struct file *file)
{
	return ((struct mpk_file *)file->private_data)->pf_pool->pl_core;
}

static int root_name(const struct mpool_ioc_root *ro)
{
	return mpk_text_check(ro->ro_name, sizeof(ro->ro_name), "name");
}

long mpk_root_create(struct file *file, void *arg)
{
	const struct mpool_ioc_root *ro = arg;
	int rc = root_name(ro);

	return rc ? rc : mp_root_create(root_pool(file), ro->ro_name, ro->ro_mclass,
					ro->ro_capacity, ro->ro_tag);
}

long mpk_root_get(struct file *file, void *arg)
{
	struct mpool_ioc_root *ro = arg;
	int rc = root_name(ro);

	return rc ? rc : mp_root_get(root_pool(file), ro->ro_name, ro->ro_id);
}

long mpk_root_delete(struct file *file, void *arg)
{
	const struct mpool_ioc_root *ro = arg;
	struct mpk_file *pf = file->private_data;
	int rc = root_name(ro);

	if (!rc)
		rc = mp_root_delete(root_pool(file), ro->ro_name);
	if (!rc)
		mpk_pool_kick_discard(pf->pf_pool);
	return rc;
}

long mpk_root_next(struct file *file, void *arg)
{
	struct mpool_ioc_root *ro = arg;
	int rc = root_name(ro);

	return rc ? rc : mp_root_next(root_pool(file), ro->ro_name, ro->ro_name, ro->ro_id);
}
