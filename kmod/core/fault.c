/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What a pool writes to its members, and the fail-stop that ends it: the first failed write of
 * metadata, or flush, makes it read-only for good (INV-14).
 */
#include "member.h"

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

	os_assert(off % MP_BLOCK == 0 && len % MP_BLOCK == 0);
	if (rc)
		return rc;
	if (pool && !pool->p_is_open)
		pool->p_own.ow_has_written = true;
	return dev->d_ops->write(dev, off, buf, len, 0);
}

int mp_dev_flush(struct mp_pool *pool, struct mp_pdev *pd)
{
	int rc = pd->pd_dev->d_ops->flush(pd->pd_dev);

	mp_assert_no_lock(pool);
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

	mp_assert_no_lock(pool);
	if (dev->d_ops->zero) {
		/* a step takes seconds where the device has no command for it */
		for (; len && !rc; off += step, len -= step) {
			step = min_t(u64, len, MP_STEP);
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

/* ---- health ---- */

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
