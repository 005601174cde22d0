/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Public calls on objects: handles with their own reference count (the backend
 * holds one reference for all of them), argument checks, batches.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "mpl_err.h"

#define IOV_MOST	64u

int mpl_iov_check(uint64_t off, const struct iovec *iov, unsigned n, uint64_t *bytes)
{
	uint64_t sum = 0;
	unsigned i;

	if (off % MPOOL_ALIGN)
		return mpl_err_as(MPL_SPEC, -EINVAL, "offset %llu is not a multiple of %d",
				  (unsigned long long)off, MPOOL_ALIGN);
	if (!iov || !n || n > IOV_MOST)
		return mpl_err_as(MPL_SPEC, -EINVAL, "%u buffers, wanted 1 to %u", n, IOV_MOST);
	for (i = 0; i < n; i++) {
		if (((uintptr_t)iov[i].iov_base | iov[i].iov_len) % MPOOL_ALIGN || !iov[i].iov_len)
			return mpl_err_as(MPL_SPEC, -EINVAL,
					  "buffer %u: address and length must be multiples of %d",
					  i, MPOOL_ALIGN);
		/* a sum that wraps would be checked as if the buffers were small */
		if (iov[i].iov_len > INT64_MAX - sum)
			return mpl_err_as(MPL_SPEC, -EINVAL, "buffers of more than 2^63 bytes");
		sum += iov[i].iov_len;
	}
	*bytes = sum;
	return 0;
}

static struct mpool_obj *obj_new(struct mpool *mp)
{
	struct mpool_obj *obj = calloc(1, sizeof(*obj));

	if (obj) {
		obj->ob_pool = mp;
		obj->ob_refs = 1;
	}
	return obj;
}

static int alloc_check(const struct mpool_alloc *req, unsigned n)
{
	unsigned i;

	if (!req || !n || n > MPOOL_BATCH_MAX)
		return mpl_err_as(MPL_SPEC, -EINVAL, "%u objects, wanted 1 to %d", n,
				  MPOOL_BATCH_MAX);
	for (i = 0; i < n; i++) {
		if (req[i].kind != MPOOL_MBLOCK && req[i].kind != MPOOL_APPEND)
			return mpl_err_as(MPL_SPEC, -EINVAL,
					  "object %u: kind %u cannot be allocated", i,
					  req[i].kind);
		if (req[i].mclass >= MPOOL_MCLASSES)
			return mpl_err_as(MPL_SPEC, -EINVAL, "object %u: no media class %u", i,
					  req[i].mclass);
		if (req[i].flags & ~(MPOOL_ALLOC_SPARE | MPOOL_ALLOC_ANY) || req[i].pad)
			return mpl_err_as(MPL_SPEC, -EINVAL, "object %u: unknown flags 0x%x", i,
					  req[i].flags);
		if (!req[i].capacity)
			return mpl_err_as(MPL_SPEC, -EINVAL, "object %u: capacity is zero", i);
	}
	return 0;
}

int mpool_alloc(struct mpool *mp, const struct mpool_alloc *req, unsigned n, struct mpool_obj **out)
{
	struct mpool_obj **v;
	unsigned i;
	int rc;

	mpl_begin(mp);
	if (!mp || !out)
		return mpl_ret(-EINVAL);
	rc = alloc_check(req, n);
	if (rc)
		return rc;
	v = calloc(n, sizeof(*v));
	if (!v)
		return mpl_ret(-ENOMEM);
	for (i = 0; i < n && !rc; i++) {
		v[i] = obj_new(mp);
		rc = v[i] ? 0 : -ENOMEM;
	}
	if (!rc)
		rc = mp->mp_ops->alloc(mp, req, n, v);
	for (i = 0; i < n; i++) {
		if (rc) {
			free(v[i]);
			continue;
		}
		mpl_pool_hold(mp);
		out[i] = v[i];
	}
	free(v);
	return mpl_ret(rc);
}

int mpool_obj_open(struct mpool *mp, uint64_t id, struct mpool_obj **out)
{
	struct mpool_obj *obj;
	int rc;

	mpl_begin(mp);
	if (!mp || !out)
		return mpl_ret(-EINVAL);
	obj = obj_new(mp);
	if (!obj)
		return mpl_ret(-ENOMEM);
	rc = mp->mp_ops->obj_open(mp, id, obj);
	if (rc) {
		free(obj);
		return mpl_ret(rc);
	}
	mpl_pool_hold(mp);
	*out = obj;
	return 0;
}

struct mpool_obj *mpool_obj_get(struct mpool_obj *obj)
{
	if (obj)
		__atomic_fetch_add(&obj->ob_refs, 1, __ATOMIC_RELAXED);
	return obj;
}

void mpool_obj_close(struct mpool_obj *obj)
{
	struct mpool *mp;

	if (!obj || __atomic_sub_fetch(&obj->ob_refs, 1, __ATOMIC_ACQ_REL))
		return;
	mp = obj->ob_pool;
	mpl_resume(mp);
	mp->mp_ops->obj_close(obj);
	free(obj);
	mpl_pool_drop(mp);
}

int mpool_obj_info(struct mpool_obj *obj, struct mpool_obj_info *out)
{
	mpl_begin(obj ? obj->ob_pool : NULL);
	if (!obj || !out)
		return mpl_ret(-EINVAL);
	obj->ob_pool->mp_ops->obj_info(obj, out);
	return 0;
}

uint64_t mpool_obj_id(const struct mpool_obj *obj)
{
	return obj ? obj->ob_pool->mp_ops->obj_id(obj) : 0;
}

int mpool_objects(struct mpool *mp, uint64_t after, uint64_t tag, struct mpool_obj_info *out,
		  unsigned max)
{
	mpl_begin(mp);
	if (!mp || !out || !max)
		return mpl_ret(-EINVAL);
	return mpl_ret(mp->mp_ops->objects(mp, after, tag, out, max));
}

int mpool_obj_place(struct mpool_obj *obj, uint64_t off, int *fd, uint64_t *pos, uint64_t *len)
{
	mpl_begin(obj ? obj->ob_pool : NULL);
	if (!obj || !fd || !pos || !len)
		return mpl_ret(-EINVAL);
	return mpl_ret(obj->ob_pool->mp_ops->place(obj, off, fd, pos, len));
}

void mpool_bad_read(struct mpool_obj *obj, uint64_t off, int is_reread)
{
	if (!obj || !obj->ob_pool->mp_ops->bad_read)
		return;
	mpl_resume(obj->ob_pool);
	obj->ob_pool->mp_ops->bad_read(obj, off, is_reread);
}

static int op_check(struct mpool *mp, const struct mpool_op *op, unsigned i)
{
	if (op->type < MPOOL_OP_COMMIT || op->type > MPOOL_OP_DELETE)
		return mpl_err_as(MPL_SPEC, -EINVAL, "operation %u: unknown type %u", i, op->type);
	if (op->flags & ~MPOOL_OBJ_HAS_CRC)
		return mpl_err_as(MPL_SPEC, -EINVAL, "operation %u: unknown flags 0x%x", i,
				  op->flags);
	if (!op->obj && (op->type != MPOOL_OP_DELETE || !op->id))
		return mpl_err_as(MPL_SPEC, -EINVAL, "operation %u: no object is given", i);
	if (op->obj && op->obj->ob_pool != mp)
		return mpl_err_as(MPL_SPEC, -EINVAL, "operation %u: object of another pool", i);
	return 0;
}

int mpl_batch_check(struct mpool *mp, const struct mpool_op *op, unsigned n)
{
	unsigned i;
	int rc = 0;

	if (!op || !n || n > MPOOL_BATCH_MAX)
		return mpl_err_as(MPL_SPEC, -EINVAL, "%u operations, wanted 1 to %d", n,
				  MPOOL_BATCH_MAX);
	for (i = 0; i < n && !rc; i++)
		rc = op_check(mp, &op[i], i);
	return rc;
}

int mpool_batch(struct mpool *mp, const struct mpool_op *op, unsigned n)
{
	int rc;

	mpl_begin(mp);
	if (!mp)
		return mpl_ret(-EINVAL);
	rc = mpl_batch_check(mp, op, n);
	return mpl_ret(rc ? rc : mp->mp_ops->batch(mp, op, n));
}

static int obj_rw(struct mpool_obj *obj, uint64_t off, const struct iovec *iov, unsigned n,
		  int is_write)
{
	uint64_t bytes;
	int rc;

	mpl_begin(obj ? obj->ob_pool : NULL);
	if (!obj)
		return mpl_ret(-EINVAL);
	rc = mpl_iov_check(off, iov, n, &bytes);
	if (rc)
		return rc;
	return mpl_ret(obj->ob_pool->mp_ops->rw(obj, off, iov, n, is_write));
}

int mpool_read(struct mpool_obj *obj, uint64_t off, const struct iovec *iov, unsigned iovcnt)
{
	return obj_rw(obj, off, iov, iovcnt, 0);
}

int mpool_write(struct mpool_obj *obj, uint64_t off, const struct iovec *iov, unsigned iovcnt)
{
	return obj_rw(obj, off, iov, iovcnt, 1);
}
