/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Public calls on whole pools: argument checks, choice of the backend, the
 * lease. A lease is kept in the open pool: the pool itself is open exclusively,
 * so no other process can hold one.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "mpl_err.h"

#ifndef MP_VERSION
#define MP_VERSION "0.0.0"
#endif

const char *mpool_version(void)
{
	return MP_VERSION;
}

/* A path has a '/'; a name would be the module's. */
static int path_check(const char *path)
{
	os_user_error_clear();
	if (!path || !*path)
		return mpl_err_as(MPL_SPEC, -EINVAL, "the pool's path is empty");
	if (!strchr(path, '/'))
		return mpl_err(MPL_NOMODULE, "%s: a name without '/' asks for the kernel module, "
			       "which is not loaded; write ./%s for a directory", path, path);
	return 0;
}

static int open_opts_check(const struct mpool_open_opts *in, struct mpool_open_opts *out)
{
	static const struct mpool_open_opts none = MPOOL_OPEN_OPTS_INIT;

	*out = in ? *in : none;
	if (out->size != sizeof(*out))
		return mpl_err_as(MPL_SPEC, -EINVAL, "mpool_open_opts.size is %zu, wanted %zu",
				  out->size, sizeof(*out));
	if (out->flags & ~MPOOL_OPEN_RDONLY)
		return mpl_err_as(MPL_SPEC, -EINVAL, "unknown open flags 0x%x", out->flags);
	return 0;
}

int mpool_create(const char *path, const struct mpool_create_opts *opts)
{
	int rc = path_check(path);

	if (rc)
		return rc;
	if (!opts || opts->size != sizeof(*opts))
		return mpl_err_as(MPL_SPEC, -EINVAL,
				  "mpool_create_opts is missing or of another size");
	if (opts->flags & ~(MPOOL_CREATE_FORCE | MPOOL_CREATE_PLAN))
		return mpl_err_as(MPL_SPEC, -EINVAL, "unknown create flags 0x%x", opts->flags);
	if (!opts->devs || !opts->ndevs)
		return mpl_err_as(MPL_SPEC, -EINVAL, "%s: no member device was given", path);
	return mpl_ret(mpl_user_create(path, opts));
}

int mpool_open(const char *path, const struct mpool_open_opts *opts, struct mpool **out)
{
	struct mpool_open_opts o;
	int rc = path_check(path);

	if (!rc)
		rc = open_opts_check(opts, &o);
	if (!rc && !out)
		rc = -EINVAL;
	return mpl_ret(rc ? rc : mpl_user_open(path, &o, out));
}

int mpool_close(struct mpool *mp)
{
	uint64_t n;

	os_user_error_clear();
	if (!mp)
		return mpl_ret(-EINVAL);
	n = __atomic_load_n(&mp->mp_open, __ATOMIC_ACQUIRE);
	if (n)
		return mpl_err(MPL_INUSE, "pool %s: %llu handles are still open", mp->mp_path,
			       (unsigned long long)n);
	return mpl_ret(mp->mp_ops->close(mp));
}

int mpool_destroy(const char *path, const struct mpool_open_opts *opts)
{
	struct mpool_open_opts o;
	int rc = path_check(path);

	if (!rc)
		rc = open_opts_check(opts, &o);
	return mpl_ret(rc ? rc : mpl_user_destroy(path, &o));
}

int mpool_info(struct mpool *mp, struct mpool_info *out)
{
	os_user_error_clear();
	if (!mp || !out)
		return mpl_ret(-EINVAL);
	mp->mp_ops->info(mp, out);
	return 0;
}

int mpool_dev_info(struct mpool *mp, unsigned slot, struct mpool_dev_info *out)
{
	os_user_error_clear();
	if (!mp || !out)
		return mpl_ret(-EINVAL);
	return mpl_ret(mp->mp_ops->dev_info(mp, slot, out));
}

int mpool_flush(struct mpool *mp, unsigned mclass_mask)
{
	os_user_error_clear();
	if (!mp || !mclass_mask || mclass_mask >> MPOOL_MCLASSES)
		return mpl_ret(-EINVAL);
	return mpl_ret(mp->mp_ops->flush(mp, mclass_mask));
}

int mpool_lease(struct mpool *mp, const uint8_t id[16])
{
	int rc = 0;

	os_user_error_clear();
	if (!mp || !id)
		return mpl_ret(-EINVAL);
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

int mpool_unlease(struct mpool *mp, const uint8_t id[16])
{
	int rc = 0;

	os_user_error_clear();
	if (!mp || !id)
		return mpl_ret(-EINVAL);
	pthread_mutex_lock(&mp->mp_lease_lock);
	if (!mp->mp_is_leased || memcmp(mp->mp_lease, id, 16))
		rc = mpl_err(MPL_NOLEASE, "pool %s: this client does not hold the lease",
			     mp->mp_path);
	else
		mp->mp_is_leased = 0;
	pthread_mutex_unlock(&mp->mp_lease_lock);
	return rc;
}

int mpool_verify(const char *path, const struct mpool_open_opts *opts, unsigned flags,
		 mpool_problem_fn *fn, void *arg, uint64_t *damage)
{
	struct mpool_open_opts o;
	int rc = path_check(path);

	if (!rc)
		rc = open_opts_check(opts, &o);
	if (!rc && (flags & ~MPOOL_VERIFY_DATA || !damage))
		rc = -EINVAL;
	return mpl_ret(rc ? rc : mpl_user_verify(path, &o, flags, fn, arg, damage));
}

int mpool_dump(const char *path, const struct mpool_open_opts *opts, mpool_print_fn *fn, void *arg)
{
	struct mpool_open_opts o;
	int rc = path_check(path);

	if (!rc)
		rc = open_opts_check(opts, &o);
	if (!rc && !fn)
		rc = -EINVAL;
	return mpl_ret(rc ? rc : mpl_user_dump(path, &o, fn, arg));
}

int mpool_map(const char *path, const struct mpool_open_opts *opts, mpool_extent_fn *fn, void *arg)
{
	struct mpool_open_opts o;
	int rc = path_check(path);

	if (!rc)
		rc = open_opts_check(opts, &o);
	if (!rc && !fn)
		rc = -EINVAL;
	return mpl_ret(rc ? rc : mpl_user_map(path, &o, fn, arg));
}
