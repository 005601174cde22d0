/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The embedded backend: an open pool whose core runs in this process. What becomes
 * free is discarded in user_discard.c.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ioq.h"
#include "user.h"

/* ---- pool ---- */

static int user_begin(struct mpool *mp)
{
	struct mpl_user *us = mpl_user(mp);
	int rc = mp_pool_begin(us->us_core);

	if (!rc && us->us_is_looking) {
		us->us_is_looking = 0;
		mpl_discard_start(us);
	}
	return rc;
}

static int user_close(struct mpool *mp)
{
	struct mpl_user *us = mpl_user(mp);
	int rc;

	mpl_discard_stop(us);
	mpl_discard_rest(us);
	mpl_beat_stop(&us->us_beat);
	rc = mp_pool_close(us->us_core);
	if (rc == -EBUSY) {
		mpl_beat_start(&us->us_beat, us->us_core, mp->mp_path);
		mpl_discard_start(us);
		return rc;
	}
	mpl_set_close(&us->us_set);
	pthread_cond_destroy(&us->us_cond);
	pthread_mutex_destroy(&us->us_lock);
	pthread_mutex_destroy(&us->us_grow.gr_lock);
	pthread_mutex_destroy(&mp->mp_lease_lock);
	free(mp->mp_path);
	free(us);
	return rc;
}

static void user_info(struct mpool *mp, struct mpool_info *out)
{
	struct mpl_user *us = mpl_user(mp);
	struct mp_pool_info pi;
	unsigned i;

	mp_pool_info(us->us_core, &pi);
	memset(out, 0, sizeof(*out));
	memcpy(out->uuid, pi.pi_uuid, 16);
	snprintf(out->name, sizeof(out->name), "%s", pi.pi_name);
	snprintf(out->label, sizeof(out->label), "%s", pi.pi_label);
	out->uid = pi.pi_uid;
	out->gid = pi.pi_gid;
	out->mode = pi.pi_mode;
	out->format_version = pi.pi_format;
	out->is_rdonly = pi.pi_is_rdonly;
	out->is_direct = (uint32_t)us->us_set.st_is_direct;
	out->generation = pi.pi_gen;
	out->objects = pi.pi_objects;
	snprintf(out->io, sizeof(out->io), "%s", us->us_is_uring ? "uring" : "sync");
	snprintf(out->fault, sizeof(out->fault), "%s", pi.pi_fault);
	for (i = 0; i < MPOOL_MCLASSES; i++) {
		out->cls[i].mclass = i;
		out->cls[i].devs = pi.pi_cls[i].ci_devs;
		out->cls[i].spare_pct = pi.pi_spare_pct[i];
		out->cls[i].total = pi.pi_cls[i].ci_total;
		out->cls[i].used = pi.pi_cls[i].ci_used;
		out->cls[i].free = pi.pi_cls[i].ci_free;
		out->cls[i].reserve = pi.pi_cls[i].ci_reserve;
		out->cls[i].discarding = pi.pi_cls[i].ci_discarding;
		out->cls[i].growable = mpl_growable(us, &pi, i);
	}
}

static int user_is_multihost(struct mpool *mp)
{
	struct mp_pool_info pi;

	mp_pool_info(mpl_user(mp)->us_core, &pi);
	return pi.pi_is_multihost;
}

/* one that is too long loses its middle: its name at the end tells it from others */
static void path_shown(char *out, size_t size, const char *path)
{
	size_t len = strlen(path), half = size / 2 - 2;

	if (len < size)
		memcpy(out, path, len + 1);
	else
		snprintf(out, size, "%.*s...%s", (int)half, path, path + len - half);
}

static int user_dev_info(struct mpool *mp, unsigned slot, struct mpool_dev_info *out)
{
	struct mpl_dev *dev;
	struct mp_member mb;
	int rc = mp_pool_member(mpl_user(mp)->us_core, slot, &mb);

	if (rc)
		return mpl_err_as(MPL_SPEC, -ENOENT, "the pool has no member %u", slot);
	dev = (struct mpl_dev *)mb.mb_dev;
	memset(out, 0, sizeof(*out));
	memcpy(out->uuid, mb.mb_uuid, 16);
	path_shown(out->path, sizeof(out->path), dev->md_path);
	out->mclass = mb.mb_mclass;
	out->slot = mb.mb_slot;
	out->size = mb.mb_bytes;
	out->is_direct = !!(dev->md_core.d_flags & MP_DEV_DIRECT);
	out->is_block = !!(dev->md_core.d_flags & MP_DEV_IS_BLOCK);
	out->read_bytes = __atomic_load_n(&dev->md_read_bytes, __ATOMIC_RELAXED);
	out->write_bytes = __atomic_load_n(&dev->md_write_bytes, __ATOMIC_RELAXED);
	out->discard_bytes = __atomic_load_n(&dev->md_discard_bytes, __ATOMIC_RELAXED);
	out->reads = __atomic_load_n(&dev->md_reads, __ATOMIC_RELAXED);
	out->writes = __atomic_load_n(&dev->md_writes, __ATOMIC_RELAXED);
	out->flushes = __atomic_load_n(&dev->md_flushes, __ATOMIC_RELAXED);
	out->errors = __atomic_load_n(&dev->md_errors, __ATOMIC_RELAXED);
	out->has_health = 1;
	out->csum_errors = mb.mb_health.he_csums;
	out->rereads = mb.mb_health.he_rereads;
	out->repairs = mb.mb_health.he_repairs;
	return 0;
}

static int user_flush(struct mpool *mp, unsigned mask)
{
	return mp_pool_flush(mpl_user(mp)->us_core, mask);
}

/* ---- objects ---- */

static int user_alloc(struct mpool *mp, const struct mpool_alloc *req, unsigned n,
		      struct mpool_obj **out)
{
	struct mp_alloc *al = calloc(n, sizeof(*al));
	struct mp_obj **core = calloc(n, sizeof(*core));
	uint64_t bytes[MPOOL_MCLASSES] = { 0 };
	unsigned i;
	int rc = al && core ? 0 : -ENOMEM;

	for (i = 0; i < n && !rc; i++) {
		al[i].al_kind = req[i].kind;
		al[i].al_mclass = req[i].mclass;
		al[i].al_flags = req[i].flags;
		al[i].al_capacity = req[i].capacity;
		al[i].al_tag = req[i].tag;
		bytes[req[i].mclass < MPOOL_MCLASSES ? req[i].mclass : 0] += req[i].capacity;
	}
	for (i = 0; i < MPOOL_MCLASSES && !rc; i++)
		if (bytes[i])
			mpl_grow_ahead(mpl_user(mp), i, bytes[i]);
	if (!rc)
		rc = mp_obj_alloc(mpl_user(mp)->us_core, al, n, core);
	for (i = 0; i < n && !rc; i++)
		out[i]->ob_core = core[i];
	/* of what was reserved before it failed; not here, where what failed is still to be told */
	if (rc && mpl_user(mp)->us_has_thread)
		mpl_discard_kick(mpl_user(mp));
	free(core);
	free(al);
	return rc;
}

static int user_obj_open(struct mpool *mp, uint64_t id, struct mpool_obj *obj)
{
	return mp_obj_open(mpl_user(mp)->us_core, id, &obj->ob_core);
}

static void user_obj_close(struct mpool_obj *obj)
{
	struct mpl_user *us = mpl_user(obj->ob_pool);
	struct mp_obj_info oi;

	mp_obj_info(obj->ob_core, &oi);
	mp_obj_put(obj->ob_core);
	/* the space of a deleted or aborted one is free now */
	if ((oi.oi_flags & MPOOL_OBJ_DELETED) ||
	    (oi.oi_kind == MPOOL_MBLOCK && !(oi.oi_flags & MPOOL_OBJ_COMMITTED)))
		mpl_discard_kick(us);
}

static void obj_info_out(const struct mp_obj_info *oi, struct mpool_obj_info *out)
{
	memset(out, 0, sizeof(*out));
	out->id = oi->oi_id;
	out->tag = oi->oi_tag;
	out->capacity = oi->oi_capacity;
	out->length = oi->oi_length;
	out->kind = oi->oi_kind;
	out->mclass = oi->oi_mclass;
	out->flags = oi->oi_flags;
	out->crc = oi->oi_crc;
}

static void user_obj_info(struct mpool_obj *obj, struct mpool_obj_info *out)
{
	struct mp_obj_info oi;

	mp_obj_info(obj->ob_core, &oi);
	obj_info_out(&oi, out);
}

static uint64_t user_obj_id(const struct mpool_obj *obj)
{
	return mp_obj_id(obj->ob_core);
}

static void user_bad_read(struct mpool_obj *obj, uint64_t off, int is_reread)
{
	mp_obj_bad_read(obj->ob_core, off, is_reread);
}

static int user_objects(struct mpool *mp, uint64_t after, uint64_t tag,
			struct mpool_obj_info *out, unsigned max)
{
	struct mp_obj_info oi[16];
	unsigned got = 0;
	int i, n;

	while (got < max) {
		n = mp_obj_list(mpl_user(mp)->us_core, after, tag, oi,
				max - got < 16 ? max - got : 16);
		if (n <= 0)
			return n < 0 ? n : (int)got;
		for (i = 0; i < n; i++)
			obj_info_out(&oi[i], &out[got++]);
		after = oi[n - 1].oi_id;
	}
	return (int)got;
}

static int user_place(struct mpool_obj *obj, uint64_t off, int *fd, uint64_t *pos, uint64_t *len)
{
	struct mp_dev *dev;
	u64 p, n;
	int rc = mp_obj_map(obj->ob_core, off, ~0ull, &dev, &p, &n);

	if (rc)
		return rc;
	if (((struct mpl_dev *)dev)->md_vdev.fd < 0)
		return mpl_err(MPL_NOFD, "object %llx: member %s has no file descriptor",
			       (unsigned long long)mp_obj_id(obj->ob_core), dev->d_path);
	*fd = ((struct mpl_dev *)dev)->md_vdev.fd;
	*pos = p;
	*len = n;
	return 0;
}

static int user_batch(struct mpool *mp, const struct mpool_op *op, unsigned n)
{
	struct mpl_user *us = mpl_user(mp);
	struct mp_op *v = calloc(n, sizeof(*v));
	int rc, has_delete = 0;
	unsigned i;

	if (!v)
		return -ENOMEM;
	for (i = 0; i < n; i++) {
		v[i].op_type = op[i].type;
		v[i].op_flags = op[i].flags & MPOOL_OBJ_HAS_CRC ? MP_OPF_CRC : 0;
		v[i].op_obj = op[i].obj ? op[i].obj->ob_core : NULL;
		v[i].op_id = op[i].id;
		v[i].op_length = op[i].length;
		v[i].op_crc = op[i].crc;
		has_delete |= op[i].type == MPOOL_OP_DELETE;
	}
	rc = mp_pool_batch(us->us_core, v, n);
	free(v);
	if (!rc && has_delete)
		mpl_discard_kick(us);
	return rc;
}

/* Part by part along the extents. */
static int rw_parts(struct mpool_obj *obj, uint64_t off, const struct iovec *iov, unsigned n,
		    uint64_t bytes, int is_write)
{
	struct mp_pool *core = mpl_user(obj->ob_pool)->us_core;
	struct iovec v[MPL_IOV_MAX];
	uint64_t at;
	u64 pos, contig;
	struct mp_dev *dev;
	unsigned k;
	int rc;

	for (at = 0; at < bytes; at += contig) {
		rc = is_write ? at ? mp_pool_writable(core) : 0 : mp_pool_readable(core);
		if (rc)
			return rc;
		rc = mp_obj_map(obj->ob_core, off + at, bytes - at, &dev, &pos, &contig);
		if (rc)
			return rc;
		if (contig > bytes - at)
			contig = bytes - at;
		k = mpl_iov_slice(iov, n, at, contig, v);
		rc = is_write ? mpl_dev_writev((struct mpl_dev *)dev, pos, v, k, 0, NULL) :
				mpl_dev_readv((struct mpl_dev *)dev, pos, v, k, NULL);
		if (rc)
			return mpl_err_as(is_write ? MPL_DATAWRITE : MPL_DATAREAD, rc,
					  "object %llx: %s of device %s at byte %llu failed: %s",
					  (unsigned long long)mp_obj_id(obj->ob_core),
					  is_write ? "write" : "read", dev->d_path,
					  (unsigned long long)pos, strerror(-rc));
	}
	return 0;
}

static int user_rw(struct mpool_obj *obj, uint64_t off, const struct iovec *iov, unsigned n,
		   int is_write)
{
	uint64_t bytes = 0;
	unsigned i;
	int rc;

	for (i = 0; i < n; i++)
		bytes += iov[i].iov_len;
	if (!is_write) {
		rc = mp_obj_read_check(obj->ob_core, off, bytes);
		return rc ? rc : rw_parts(obj, off, iov, n, bytes, 0);
	}
	rc = mp_obj_write_begin(obj->ob_core, off, bytes);
	if (rc)
		return rc;
	rc = rw_parts(obj, off, iov, n, bytes, 1);
	mp_obj_write_end(obj->ob_core, off, rc);
	return rc;
}

/* ---- mlogs and roots ---- */

static int user_mlog_create(struct mpool *mp, uint32_t mclass, uint64_t capacity, uint64_t tag,
			    uint64_t *id)
{
	struct mp_alloc al = {
		.al_kind = MP_MLOG,
		.al_mclass = mclass,
		.al_capacity = capacity,
		.al_tag = tag,
	};
	struct mp_obj *obj;
	int rc;

	mpl_grow_ahead(mpl_user(mp), mclass, capacity);
	rc = mp_obj_alloc(mpl_user(mp)->us_core, &al, 1, &obj);
	if (rc)
		return rc;
	*id = mp_obj_id(obj);
	mp_obj_put(obj);
	return 0;
}

static int user_mlog_open(struct mpool *mp, uint64_t id, struct mpool_mlog *log)
{
	return mp_mlog_open(mpl_user(mp)->us_core, id, &log->lg_core);
}

static void user_mlog_close(struct mpool_mlog *log)
{
	mp_mlog_close(log->lg_core);
}

static int user_mlog_append(struct mpool_mlog *log, const struct iovec *iov, unsigned n,
			    int is_sync)
{
	struct mp_vec v[64];
	unsigned i;

	for (i = 0; i < n; i++) {
		v[i].v_buf = iov[i].iov_base;
		v[i].v_len = iov[i].iov_len;
	}
	return mp_mlog_append(log->lg_core, v, n, is_sync);
}

static int user_mlog_sync(struct mpool_mlog *log)
{
	return mp_mlog_sync(log->lg_core);
}

static int user_mlog_read(struct mpool_mlog *log, uint64_t *pos, void *buf, size_t size,
			  size_t *len)
{
	u64 p = *pos;
	int rc = mp_mlog_read(log->lg_core, &p, buf, size, len);

	if (!rc)
		*pos = p;
	return rc;
}

static int user_mlog_erase(struct mpool_mlog *log)
{
	return mp_mlog_erase(log->lg_core);
}

static int user_mlog_seal(struct mpool_mlog *log)
{
	return mp_mlog_seal(log->lg_core);
}

static void user_mlog_space(struct mpool_mlog *log, uint64_t *used, uint64_t *capacity)
{
	u64 u, c;

	mp_mlog_space(log->lg_core, &u, &c);
	*used = u;
	*capacity = c;
}

static int user_mlog_reserve(struct mpool_mlog *log, uint64_t must, uint64_t wish, uint64_t *have)
{
	u64 n;
	int rc = mp_mlog_reserve(log->lg_core, must, wish, &n);

	if (!rc)
		*have = n;
	return rc;
}

static int user_root_create(struct mpool *mp, const char *name, uint32_t mclass,
			    uint64_t capacity, uint64_t tag)
{
	mpl_grow_ahead(mpl_user(mp), mclass, 2 * capacity);
	return mp_root_create(mpl_user(mp)->us_core, name, mclass, capacity, tag);
}

static int user_root_get(struct mpool *mp, const char *name, uint64_t id[2])
{
	u64 v[2];
	int rc = mp_root_get(mpl_user(mp)->us_core, name, v);

	if (!rc) {
		id[0] = v[0];
		id[1] = v[1];
	}
	return rc;
}

static int user_root_delete(struct mpool *mp, const char *name)
{
	int rc = mp_root_delete(mpl_user(mp)->us_core, name);

	if (!rc)
		mpl_discard_kick(mpl_user(mp));
	return rc;
}

/* ---- lease ---- */

/* Kept in the open pool: it is open exclusively, so no other process can hold one. */
static int user_lease(struct mpool *mp, const uint8_t id[16])
{
	int rc = 0;

	pthread_mutex_lock(&mp->mp_lease_lock);
	if (mp->mp_is_leased) {
		rc = mpl_err(MPL_LEASED, "pool %s: %s", mp->mp_path,
			     memcmp(mp->mp_lease, id, 16) ? "another client holds the lease" :
			     "this client holds the lease already");
	} else {
		memcpy(mp->mp_lease, id, 16);
		mp->mp_is_leased = 1;
	}
	pthread_mutex_unlock(&mp->mp_lease_lock);
	return rc;
}

static int user_unlease(struct mpool *mp, const uint8_t id[16])
{
	int rc = 0;

	pthread_mutex_lock(&mp->mp_lease_lock);
	if (!mp->mp_is_leased || memcmp(mp->mp_lease, id, 16))
		rc = mpl_err(MPL_NOLEASE, "pool %s: this client does not hold the lease",
			     mp->mp_path);
	else
		mp->mp_is_leased = 0;
	pthread_mutex_unlock(&mp->mp_lease_lock);
	return rc;
}

/* Locks of a block device lie on its node, of a file on the file. */
static int user_hold_fd(struct mpool *mp)
{
	const struct mpl_set *set = &mpl_user(mp)->us_set;

	return set->st_pv || !set->st_n ? -1 : set->st_dev[0]->md_vdev.fd;
}

static const struct mpl_backend_ops user_ops = {
	.begin = user_begin,
	.close = user_close,
	.info = user_info,
	.is_multihost = user_is_multihost,
	.dev_info = user_dev_info,
	.flush = user_flush,
	.alloc = user_alloc,
	.obj_open = user_obj_open,
	.obj_close = user_obj_close,
	.obj_info = user_obj_info,
	.obj_id = user_obj_id,
	.bad_read = user_bad_read,
	.objects = user_objects,
	.place = user_place,
	.batch = user_batch,
	.rw = user_rw,
	.ioq_open = mpl_user_ioq_open,
	.mlog_create = user_mlog_create,
	.mlog_open = user_mlog_open,
	.mlog_close = user_mlog_close,
	.mlog_append = user_mlog_append,
	.mlog_sync = user_mlog_sync,
	.mlog_read = user_mlog_read,
	.mlog_erase = user_mlog_erase,
	.mlog_seal = user_mlog_seal,
	.mlog_space = user_mlog_space,
	.mlog_reserve = user_mlog_reserve,
	.root_create = user_root_create,
	.root_get = user_root_get,
	.root_delete = user_root_delete,
	.lease = user_lease,
	.unlease = user_unlease,
	.hold_fd = user_hold_fd,
};

/* ---- open ---- */

/* A device flush failed; the flush owner has not told the waiters yet. */
static void user_flush_failed(void *arg, struct mpl_dev *dev, int err)
{
	struct mpl_user *us = arg;
	struct mp_pool *core = __atomic_load_n(&us->us_core, __ATOMIC_ACQUIRE);

	/* while the core still opens the pool it gets the error itself and gives up */
	if (core)
		mp_pool_fail(core, MP_MD_FLUSH, err, "flush of device %s failed: %s", dev->md_path,
			     strerror(-err));
}

static int io_choose(const char *path, const struct mpool_open_opts *opts, struct mpl_user *us)
{
	const char *io = opts->io ? opts->io : secure_getenv("MPOOL_IO");

	if (io && !strcmp(io, "sync"))
		return 0;
	if (io && *io && strcmp(io, "uring"))
		return mpl_err_as(MPL_SPEC, -EINVAL, "MPOOL_IO, or the option io, is \"%s\": "
				  "wanted uring or sync", io);
	us->us_is_uring = us->us_set.st_is_uring && mpl_uring_works();
	if (opts->io && *opts->io && !us->us_is_uring)
		return mpl_err(MPL_IO, "pool %s: io_uring %s", path, us->us_set.st_is_uring ?
			       "is forbidden or missing here" :
			       "needs O_DIRECT on every member and no device layers");
	return 0;
}

int mpl_user_open(const char *path, const struct mpool_open_opts *opts, struct mpool **out)
{
	int is_rdonly = !!(opts->flags & MPOOL_OPEN_RDONLY);
	struct mpl_user *us = calloc(1, sizeof(*us));
	struct mp_pool *core = NULL;
	pthread_condattr_t attr;
	unsigned i;
	int rc;

	if (!us)
		return -ENOMEM;
	rc = opts->flags & MPOOL_OPEN_SHARED && opts->provider ?
	     mpl_err(MPL_NOFD, "pool %s: a provider's devices cannot be shared", path) :
	     mpl_set_open(path, opts, (is_rdonly ? MPL_SET_RDONLY : 0) |
			  (opts->flags & MPOOL_OPEN_SHARED ? MPL_SET_PEEK : 0), &us->us_set);
	if (rc) {
		free(us);
		return rc;
	}
	us->us_pool.mp_ops = &user_ops;
	us->us_pool.mp_is_rdonly = is_rdonly;
	us->us_is_looking = !!(opts->flags & MPOOL_OPEN_LOOK);
	us->us_is_threadless = us->us_set.st_pv || opts->flags & MPOOL_OPEN_NOTHREAD;
	us->us_pool.mp_path = strdup(path);
	pthread_mutex_init(&us->us_pool.mp_lease_lock, NULL);
	pthread_mutex_init(&us->us_lock, NULL);
	pthread_mutex_init(&us->us_grow.gr_lock, NULL);
	us->us_grow.gr_max = opts->grow_max ? opts->grow_max : us->us_set.st_cfg->cf_grow_max;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&us->us_cond, &attr);
	pthread_condattr_destroy(&attr);
	for (i = 0; i < us->us_set.st_n; i++) {
		us->us_set.st_dev[i]->md_fail_arg = us;
		us->us_set.st_dev[i]->md_fail = user_flush_failed;
	}
	rc = us->us_pool.mp_path ? io_choose(path, opts, us) : -ENOMEM;
	if (!rc)
		rc = mp_pool_open(us->us_set.st_core, us->us_set.st_n,
				  is_rdonly ? MP_OPEN_RDONLY :
				  us->us_is_looking ? MP_OPEN_LOOK : 0, &core);
	if (!rc) {
		__atomic_store_n(&us->us_core, core, __ATOMIC_RELEASE);
		rc = mpl_beat_start(&us->us_beat, core, path);
		if (!rc)
			rc = mpl_power_start(us->us_set.st_power);
		if (rc) {
			mpl_beat_stop(&us->us_beat);
			mp_pool_close(core);
		}
	}
	if (rc) {
		mpl_set_close(&us->us_set);
		free(us->us_pool.mp_path);
		free(us);
		return rc;
	}
	mpl_discard_start(us);
	*out = &us->us_pool;
	return 0;
}
