/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The kernel backend: an open node /dev/mpool/NAME. The module checks, decides
 * and remembers; here are handles and the translation to its commands. Several
 * processes may have a pool open; clients that need it for themselves take the
 * lease.
 *
 * The lease: for a pool that is open for writing the module's, exclusive, gone
 * with the file. The module gives none to a reader, so readers and writers keep
 * apart by a lock of the node (flock): shared for readers, exclusive for the
 * holder of the lease. Both live and die with the open file.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "ioq.h"
#include "kmod.h"

/* ---- pool ---- */

static int kmod_close(struct mpool *mp)
{
	struct mpl_kmod *km = mpl_kmod(mp);

	close(km->km_fd);
	pthread_cond_destroy(&km->km_cond);
	pthread_mutex_destroy(&km->km_lock);
	pthread_mutex_destroy(&mp->mp_lease_lock);
	free(km->km_bucket);
	free(mp->mp_path);
	free(km);
	return 0;
}

static void text_copy(char *out, size_t size, const char *in, size_t in_size)
{
	size_t n = strnlen(in, in_size < size - 1 ? in_size : size - 1);

	memcpy(out, in, n);
	out[n] = 0;
}

static int kmod_is_multihost(struct mpool *mp)
{
	struct mpool_ioc_info in = { .in_gen = 0 };

	mpl_ioc(mpl_kmod(mp)->km_fd, MPOOL_IOC_INFO, &in);
	return !!(in.in_state & MPOOL_IOC_POOL_MULTIHOST);
}

static void kmod_info(struct mpool *mp, struct mpool_info *out)
{
	struct mpl_kmod *km = mpl_kmod(mp);
	struct mpool_ioc_info in = { .in_gen = 0 };
	unsigned i;

	memset(out, 0, sizeof(*out));
	/* it cannot fail while the node is open */
	mpl_ioc(km->km_fd, MPOOL_IOC_INFO, &in);
	memcpy(out->uuid, in.in_uuid, 16);
	text_copy(out->name, sizeof(out->name), in.in_name, sizeof(in.in_name));
	text_copy(out->label, sizeof(out->label), in.in_label, sizeof(in.in_label));
	out->uid = in.in_uid;
	out->gid = in.in_gid;
	out->mode = in.in_mode;
	out->format_version = in.in_format;
	out->is_rdonly = mp->mp_is_rdonly || in.in_state & MPOOL_IOC_POOL_RDONLY;
	out->is_direct = 1;
	out->generation = in.in_gen;
	out->objects = in.in_objects;
	snprintf(out->io, sizeof(out->io), "%s", km->km_is_uring ? "uring" : "sync");
	text_copy(out->fault, sizeof(out->fault), in.in_fault, sizeof(in.in_fault));
	for (i = 0; i < MPOOL_MCLASSES; i++) {
		out->cls[i].mclass = i;
		out->cls[i].devs = in.in_class[i].cl_devs;
		out->cls[i].spare_pct = in.in_spare_pct[i];
		out->cls[i].total = in.in_class[i].cl_total;
		out->cls[i].used = in.in_class[i].cl_used;
		out->cls[i].free = in.in_class[i].cl_free;
		out->cls[i].reserve = in.in_class[i].cl_reserve;
		out->cls[i].discarding = in.in_class[i].cl_discarding;
	}
}

static int kmod_dev_info(struct mpool *mp, unsigned slot, struct mpool_dev_info *out)
{
	struct mpool_ioc_dev_info di = { .di_slot = slot };
	int rc = mpl_ioc(mpl_kmod(mp)->km_fd, MPOOL_IOC_DEV_INFO, &di);

	if (rc == -ENOENT)
		return mpl_err_as(MPL_SPEC, rc, "the pool has no member %u", slot);
	if (rc)
		return rc;
	memset(out, 0, sizeof(*out));
	memcpy(out->uuid, di.di_uuid, 16);
	text_copy(out->path, sizeof(out->path), di.di_path, sizeof(di.di_path));
	out->mclass = di.di_mclass;
	out->slot = slot;
	out->size = di.di_bytes;
	out->is_direct = 1;
	out->is_block = 1;
	out->read_bytes = di.di_read_bytes;
	out->write_bytes = di.di_write_bytes;
	out->discard_bytes = di.di_discard_bytes;
	out->reads = di.di_reads;
	out->writes = di.di_writes;
	out->flushes = di.di_flushes;
	out->errors = di.di_errors;
	return 0;
}

static int kmod_flush(struct mpool *mp, unsigned mask)
{
	struct mpool_ioc_flush fl = { .fl_mask = mask };
	int rc = mpl_kmod_writable(mpl_kmod(mp));

	return rc ? rc : mpl_ioc(mpl_kmod(mp)->km_fd, MPOOL_IOC_FLUSH, &fl);
}

/* ---- mlogs and roots ---- */

/* a command on an mlog that changes it, or not */
static int mlog_call(struct mpool *mp, unsigned long cmd, uint64_t id, int is_write)
{
	struct mpool_ioc_mlog ml = { .ml_id = id };
	int rc = is_write ? mpl_kmod_writable(mpl_kmod(mp)) : 0;

	return rc ? rc : mpl_ioc(mpl_kmod(mp)->km_fd, cmd, &ml);
}

static int kmod_mlog_create(struct mpool *mp, uint32_t mclass, uint64_t capacity, uint64_t tag,
			    uint64_t *id)
{
	struct mpool_ioc_alloc_one one = {
		.ao_kind = MPOOL_MLOG,
		.ao_mclass = mclass,
		.ao_capacity = capacity,
		.ao_tag = tag,
	};
	uint64_t got = 0;
	struct mpool_ioc_alloc al = {
		.al_n = 1,
		.al_req = (uintptr_t)&one,
		.al_ids = (uintptr_t)&got,
	};
	struct mpool_ioc_drop dr = { .dr_n = 1, .dr_ids = (uintptr_t)&got };
	int rc = mpl_kmod_writable(mpl_kmod(mp));

	if (!rc)
		rc = mpl_ioc(mpl_kmod(mp)->km_fd, MPOOL_IOC_ALLOC, &al);
	if (rc)
		return rc;
	mpl_ioc(mpl_kmod(mp)->km_fd, MPOOL_IOC_DROP, &dr);
	*id = got;
	return 0;
}

static int kmod_mlog_open(struct mpool *mp, uint64_t id, struct mpool_mlog *log)
{
	log->lg_id = id;
	return mlog_call(mp, MPOOL_IOC_MLOG_OPEN, id, 0);
}

static void kmod_mlog_close(struct mpool_mlog *log)
{
	mlog_call(log->lg_pool, MPOOL_IOC_MLOG_CLOSE, log->lg_id, 0);
}

static int kmod_mlog_append(struct mpool_mlog *log, const struct iovec *iov, unsigned n,
			    int is_sync)
{
	struct mpool_ioc_vec v[MPOOL_IOC_IOV_MAX];
	struct mpool_ioc_append ap = {
		.ap_arg.ma_flags = is_sync ? MPOOL_IOC_APPEND_SYNC : 0,
		.ap_id = log->lg_id,
		.ap_n = n,
		.ap_vec = (uintptr_t)v,
	};
	int rc = mpl_kmod_writable(mpl_kmod(log->lg_pool));
	unsigned i;

	for (i = 0; i < n; i++) {
		v[i].ve_base = (uintptr_t)iov[i].iov_base;
		v[i].ve_len = iov[i].iov_len;
	}
	return rc ? rc : mpl_ioc(mpl_kmod(log->lg_pool)->km_fd, MPOOL_IOC_MLOG_APPEND, &ap);
}

static int kmod_mlog_sync(struct mpool_mlog *log)
{
	return mlog_call(log->lg_pool, MPOOL_IOC_MLOG_SYNC, log->lg_id, 1);
}

static int kmod_mlog_read(struct mpool_mlog *log, uint64_t *pos, void *buf, size_t size,
			  size_t *len)
{
	struct mpool_ioc_read rd = {
		.rd_id = log->lg_id,
		.rd_pos = *pos,
		.rd_buf = (uintptr_t)buf,
		.rd_size = size,
	};
	int rc = mpl_ioc(mpl_kmod(log->lg_pool)->km_fd, MPOOL_IOC_MLOG_READ, &rd);

	if (!rc || rc == -EOVERFLOW)
		*len = rd.rd_len;
	if (!rc)
		*pos = rd.rd_pos;
	return rc;
}

static int kmod_mlog_erase(struct mpool_mlog *log)
{
	return mlog_call(log->lg_pool, MPOOL_IOC_MLOG_ERASE, log->lg_id, 1);
}

static int kmod_mlog_seal(struct mpool_mlog *log)
{
	return mlog_call(log->lg_pool, MPOOL_IOC_MLOG_SEAL, log->lg_id, 1);
}

static void kmod_mlog_space(struct mpool_mlog *log, uint64_t *used, uint64_t *capacity)
{
	struct mpool_ioc_mlog ml = { .ml_id = log->lg_id };

	/* it cannot fail while the log is open */
	mpl_ioc(mpl_kmod(log->lg_pool)->km_fd, MPOOL_IOC_MLOG_SPACE, &ml);
	*used = ml.ml_used;
	*capacity = ml.ml_capacity;
}

/* A block device has the space of all that is on it. */
static int kmod_mlog_reserve(struct mpool_mlog *log, uint64_t must, uint64_t wish, uint64_t *have)
{
	uint64_t used;

	(void)must;
	(void)wish;
	kmod_mlog_space(log, &used, have);
	return 0;
}

static int kmod_root_create(struct mpool *mp, const char *name, uint32_t mclass,
			    uint64_t capacity, uint64_t tag)
{
	struct mpool_ioc_root ro = {
		.ro_mclass = mclass,
		.ro_capacity = capacity,
		.ro_tag = tag,
	};
	int rc = mpl_kmod_writable(mpl_kmod(mp));

	text_copy(ro.ro_name, sizeof(ro.ro_name), name, MPOOL_NAME_MAX);
	return rc ? rc : mpl_ioc(mpl_kmod(mp)->km_fd, MPOOL_IOC_ROOT_CREATE, &ro);
}

static int kmod_root_get(struct mpool *mp, const char *name, uint64_t id[2])
{
	struct mpool_ioc_root ro = { .ro_mclass = 0 };
	int rc;

	text_copy(ro.ro_name, sizeof(ro.ro_name), name, MPOOL_NAME_MAX);
	rc = mpl_ioc(mpl_kmod(mp)->km_fd, MPOOL_IOC_ROOT_GET, &ro);
	if (!rc) {
		id[0] = ro.ro_id[0];
		id[1] = ro.ro_id[1];
	}
	return rc;
}

static int kmod_root_delete(struct mpool *mp, const char *name)
{
	struct mpool_ioc_root ro = { .ro_mclass = 0 };
	int rc = mpl_kmod_writable(mpl_kmod(mp));

	text_copy(ro.ro_name, sizeof(ro.ro_name), name, MPOOL_NAME_MAX);
	return rc ? rc : mpl_ioc(mpl_kmod(mp)->km_fd, MPOOL_IOC_ROOT_DELETE, &ro);
}

/* ---- lease ---- */

/* mp_lease_lock is held, as for the next */
static int lease_take(struct mpool *mp, const uint8_t id[16])
{
	struct mpl_kmod *km = mpl_kmod(mp);
	struct mpool_ioc_lease le = { .le_arg.ma_flags = 0 };
	int rc = 0;

	memcpy(le.le_id, id, 16);
	if (!mp->mp_is_rdonly)
		rc = mpl_ioc(km->km_fd, MPOOL_IOC_LEASE, &le);
	if (rc || !flock(km->km_fd, (mp->mp_is_rdonly ? LOCK_SH : LOCK_EX) | LOCK_NB))
		return rc;
	rc = errno == EWOULDBLOCK ?
	     mpl_err(MPL_LEASED, "pool %s: %s", km->km_name, mp->mp_is_rdonly ?
		     "a client that writes holds the lease" : "clients that read hold the lease") :
	     -errno;
	if (!mp->mp_is_rdonly) {
		struct os_user_error oe = *os_user_error();

		mpl_ioc(km->km_fd, MPOOL_IOC_UNLEASE, &le);
		os_user_error_set(oe.oe_id, oe.oe_err, "%s", oe.oe_text);
	}
	return rc;
}

static int lease_drop(struct mpool *mp)
{
	struct mpool_ioc_lease le = { .le_arg.ma_flags = 0 };
	int rc = 0;

	memcpy(le.le_id, mp->mp_lease, 16);
	if (!mp->mp_is_rdonly)
		rc = mpl_ioc(mpl_kmod(mp)->km_fd, MPOOL_IOC_UNLEASE, &le);
	if (!rc)
		flock(mpl_kmod(mp)->km_fd, LOCK_UN);
	return rc;
}

static int kmod_lease(struct mpool *mp, const uint8_t id[16])
{
	int rc;

	pthread_mutex_lock(&mp->mp_lease_lock);
	rc = mp->mp_is_leased ? mpl_err(MPL_LEASED, "pool %s: this client holds the lease already",
					mp->mp_path) : lease_take(mp, id);
	if (!rc) {
		memcpy(mp->mp_lease, id, 16);
		mp->mp_is_leased = 1;
	}
	pthread_mutex_unlock(&mp->mp_lease_lock);
	return rc;
}

/* A reader's lease is the node's lock alone: only here is known whether and as what it is held. */
static int kmod_unlease(struct mpool *mp, const uint8_t id[16])
{
	int rc;

	pthread_mutex_lock(&mp->mp_lease_lock);
	rc = !mp->mp_is_leased || memcmp(mp->mp_lease, id, 16) ?
	     mpl_err(MPL_NOLEASE, "pool %s: this client does not hold the lease", mp->mp_path) :
	     lease_drop(mp);
	if (!rc)
		mp->mp_is_leased = 0;
	pthread_mutex_unlock(&mp->mp_lease_lock);
	return rc;
}

static int kmod_hold_fd(struct mpool *mp)
{
	return mpl_kmod(mp)->km_fd;
}

static const struct mpl_backend_ops kmod_ops = {
	.close = kmod_close,
	.info = kmod_info,
	.is_multihost = kmod_is_multihost,
	.dev_info = kmod_dev_info,
	.flush = kmod_flush,
	.alloc = mpl_kobj_alloc,
	.obj_open = mpl_kobj_open,
	.obj_close = mpl_kobj_close,
	.obj_info = mpl_kobj_info,
	.obj_id = mpl_kobj_id,
	.objects = mpl_kobj_list,
	.place = mpl_kobj_place,
	.batch = mpl_kobj_batch,
	.rw = mpl_kmod_rw,
	.ioq_open = mpl_kmod_ioq_open,
	.mlog_create = kmod_mlog_create,
	.mlog_open = kmod_mlog_open,
	.mlog_close = kmod_mlog_close,
	.mlog_append = kmod_mlog_append,
	.mlog_sync = kmod_mlog_sync,
	.mlog_read = kmod_mlog_read,
	.mlog_erase = kmod_mlog_erase,
	.mlog_seal = kmod_mlog_seal,
	.mlog_space = kmod_mlog_space,
	.mlog_reserve = kmod_mlog_reserve,
	.root_create = kmod_root_create,
	.root_get = kmod_root_get,
	.root_delete = kmod_root_delete,
	.lease = kmod_lease,
	.unlease = kmod_unlease,
	.hold_fd = kmod_hold_fd,
};

/* ---- open ---- */

static int io_choose(const struct mpool_open_opts *opts, struct mpl_kmod *km)
{
	const char *io = opts->io ? opts->io : secure_getenv("MPOOL_IO");

	if (io && !strcmp(io, "sync"))
		return 0;
	if (io && *io && strcmp(io, "uring"))
		return mpl_err_as(MPL_SPEC, -EINVAL, "MPOOL_IO, or the option io, is \"%s\": "
				  "wanted uring or sync", io);
	km->km_is_uring = mpl_uring_works();
	if (opts->io && *opts->io && !km->km_is_uring)
		return mpl_err(MPL_IO, "pool %s: io_uring is forbidden or missing here",
			       km->km_name);
	return 0;
}

int mpl_kmod_open(const char *name, const struct mpool_open_opts *opts, struct mpool **out)
{
	struct mpl_kmod *km = calloc(1, sizeof(*km));
	int rc = km ? 0 : -ENOMEM;

	if (rc)
		return rc;
	km->km_pool.mp_ops = &kmod_ops;
	km->km_pool.mp_is_rdonly = !!(opts->flags & MPOOL_OPEN_RDONLY);
	text_copy(km->km_name, sizeof(km->km_name), name, MPOOL_NAME_MAX);
	pthread_mutex_init(&km->km_pool.mp_lease_lock, NULL);
	pthread_mutex_init(&km->km_lock, NULL);
	mpl_fdcache_init(km);
	km->km_fd = mpl_node_open(name, km->km_pool.mp_is_rdonly);
	rc = km->km_fd < 0 ? km->km_fd : io_choose(opts, km);
	if (!rc) {
		km->km_pool.mp_path = strdup(name);
		km->km_bucket = calloc(MPL_KMOD_BUCKETS, sizeof(*km->km_bucket));
		rc = km->km_pool.mp_path && km->km_bucket ? 0 : -ENOMEM;
	}
	if (rc) {
		if (km->km_fd >= 0)
			close(km->km_fd);
		free(km->km_bucket);
		free(km->km_pool.mp_path);
		free(km);
		return rc;
	}
	*out = &km->km_pool;
	return 0;
}
