/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Public calls on whole pools: argument checks and the choice of the backend.
 * A path has a '/' and is a pool in this process; a name is the kernel module's.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "mpl_err.h"
#include "pool.h"

#ifndef MP_VERSION
#define MP_VERSION "0.0.0"
#endif

const char *mpool_version(void)
{
	return MP_VERSION;
}

static int is_name(const char *path)
{
	return !strchr(path, '/');
}

static int path_check(const char *path)
{
	if (!path || !*path)
		return mpl_err_as(MPL_SPEC, -EINVAL, "the pool's path is empty");
	/* meant as a directory, such as "." */
	if (*path == '.' && is_name(path))
		return mpl_err_as(MPL_SPEC, -EINVAL, "'%s' has no '/', and a pool's name does not "
				  "begin with '.'; write a directory as './%s'", path, path);
	return 0;
}

static int open_opts_check(const struct mpool_open_opts *in, struct mpool_open_opts *out)
{
	static const struct mpool_open_opts none = MPOOL_OPEN_OPTS_INIT;

	/* before it is copied: the caller's structure may be shorter than ours */
	if (in && in->size != sizeof(*in))
		return mpl_err_as(MPL_SPEC, -EINVAL, "mpool_open_opts.size is %zu, wanted %zu",
				  in->size, sizeof(*in));
	*out = in ? *in : none;
	if (out->flags & ~(MPOOL_OPEN_RDONLY | MPOOL_OPEN_SHARED | MPOOL_OPEN_LOOK |
			   MPOOL_OPEN_QUIET | MPOOL_OPEN_NOTHREAD) ||
	    (out->flags & (MPOOL_OPEN_RDONLY | MPOOL_OPEN_SHARED)) == MPOOL_OPEN_SHARED ||
	    (out->flags & MPOOL_OPEN_RDONLY && out->flags & MPOOL_OPEN_LOOK))
		return mpl_err_as(MPL_SPEC, -EINVAL, "unknown open flags 0x%x", out->flags);
	return 0;
}

/* both at once; a module's pool takes neither providers nor layers */
static int pool_check(const char *path, const struct mpool_open_opts *in,
		      struct mpool_open_opts *out)
{
	int rc = path_check(path);

	if (!rc)
		rc = open_opts_check(in, out);
	if (rc || !is_name(path))
		return rc;
	if (out->provider)
		return mpl_err(MPL_NOTHERE, "pool %s: a pool of the module has no provider", path);
	if (!out->dev)
		out->dev = secure_getenv("MPOOL_DEV");
	if (out->dev && *out->dev)
		return mpl_err(MPL_NOTHERE, "pool %s: a pool of the module has no device layers "
			       "(MPOOL_DEV=%s)", path, out->dev);
	return 0;
}

/* as pool_check(), for what changes the pool */
static int change_check(const char *path, const struct mpool_open_opts *in,
			struct mpool_open_opts *out)
{
	int rc = pool_check(path, in, out);

	if (!rc && out->flags & MPOOL_OPEN_RDONLY)
		rc = mpl_err_as(MPL_SPEC, -EINVAL, "pool %s: a change needs the pool for writing",
				path);
	return rc;
}

int mpool_create(const char *path, const struct mpool_create_opts *opts)
{
	int rc;

	mpl_begin(NULL);
	rc = path_check(path);
	if (rc)
		return rc;
	if (!opts || opts->size != sizeof(*opts))
		return mpl_err_as(MPL_SPEC, -EINVAL,
				  "mpool_create_opts is missing or of another size");
	if (opts->flags & ~(MPOOL_CREATE_FORCE | MPOOL_CREATE_PLAN | MPOOL_CREATE_MULTIHOST |
			    MPOOL_CREATE_ONE_HOST | MPOOL_CREATE_ANY_NAME) ||
	    (opts->flags & MPOOL_CREATE_MULTIHOST && opts->flags & MPOOL_CREATE_ONE_HOST))
		return mpl_err_as(MPL_SPEC, -EINVAL, "unknown create flags 0x%x", opts->flags);
	if (!opts->devs || !opts->ndevs)
		return mpl_err_as(MPL_SPEC, -EINVAL, "%s: no member device was given", path);
	return mpl_ret(is_name(path) ? mpl_kmod_create(path, opts) : mpl_user_create(path, opts));
}

int mpool_open(const char *path, const struct mpool_open_opts *opts, struct mpool **out)
{
	static const struct mpool quiet = { .mp_is_quiet = 1 };
	struct mpool_open_opts o;
	int rc, is_quiet = opts && opts->size == sizeof(*opts) && opts->flags & MPOOL_OPEN_QUIET;

	mpl_begin(is_quiet ? &quiet : NULL);
	rc = pool_check(path, opts, &o);
	if (!rc && !out)
		rc = -EINVAL;
	if (!rc)
		rc = is_name(path) ? mpl_kmod_open(path, &o, out) : mpl_user_open(path, &o, out);
	if (!rc)
		(*out)->mp_is_quiet = is_quiet;
	return mpl_ret(rc);
}

int mpool_begin(struct mpool *mp)
{
	mpl_begin(mp);
	if (!mp)
		return mpl_ret(-EINVAL);
	if (mp->mp_is_rdonly)
		return mpl_err_as(MPL_SPEC, -EINVAL, "pool %s is open for reading only",
				  mp->mp_path);
	return mpl_ret(mp->mp_ops->begin ? mp->mp_ops->begin(mp) : 0);
}

int mpool_close(struct mpool *mp)
{
	uint64_t n;

	mpl_begin(mp);
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
	int rc;

	mpl_begin(NULL);
	rc = change_check(path, opts, &o);
	if (!rc)
		rc = is_name(path) ? mpl_kmod_destroy(path) : mpl_user_destroy(path, &o);
	return mpl_ret(rc);
}

int mpool_info(struct mpool *mp, struct mpool_info *out)
{
	mpl_begin(mp);
	if (!mp || !out)
		return mpl_ret(-EINVAL);
	mp->mp_ops->info(mp, out);
	return 0;
}

int mpool_is_multihost(struct mpool *mp)
{
	return mp && mp->mp_ops->is_multihost(mp);
}

int mpool_dev_info(struct mpool *mp, unsigned slot, struct mpool_dev_info *out)
{
	mpl_begin(mp);
	if (!mp || !out)
		return mpl_ret(-EINVAL);
	return mpl_ret(mp->mp_ops->dev_info(mp, slot, out));
}

int mpool_flush(struct mpool *mp, unsigned mclass_mask)
{
	mpl_begin(mp);
	if (!mp || !mclass_mask || mclass_mask >> MPOOL_MCLASSES)
		return mpl_ret(-EINVAL);
	return mpl_ret(mp->mp_ops->flush(mp, mclass_mask));
}

int mpool_lease(struct mpool *mp, const uint8_t id[16])
{
	mpl_begin(mp);
	return mpl_ret(mp && id ? mp->mp_ops->lease(mp, id) : -EINVAL);
}

int mpool_unlease(struct mpool *mp, const uint8_t id[16])
{
	mpl_begin(mp);
	return mpl_ret(mp && id ? mp->mp_ops->unlease(mp, id) : -EINVAL);
}

/* bytes: above every lock of the device layer and all data */
#define HOLD_BASE	(1ull << 62)

static int hold(struct mpool *mp, uint64_t n, short type)
{
	struct flock fl = { .l_type = type, .l_whence = SEEK_SET, .l_len = 1 };
	int fd;

	mpl_begin(mp);
	if (!mp || n >= HOLD_BASE)
		return mpl_ret(-EINVAL);
	fd = mp->mp_ops->hold_fd(mp);
	if (fd < 0)
		return mpl_err(MPL_NOFD, "pool %s: nothing of it can be locked", mp->mp_path);
	fl.l_start = (off_t)(HOLD_BASE + n);
	if (!fcntl(fd, F_OFD_SETLK, &fl))
		return 0;
	if (errno != EAGAIN && errno != EACCES)
		return mpl_ret(-errno);
	return mpl_err(MPL_HELD, "pool %s: %s", mp->mp_path, mp->mp_is_rdonly ?
		       "a writer has what was to be held" : "a reader holds it");
}

int mpool_hold(struct mpool *mp, uint64_t n)
{
	return hold(mp, n, mp && mp->mp_is_rdonly ? F_RDLCK : F_WRLCK);
}

int mpool_unhold(struct mpool *mp, uint64_t n)
{
	return hold(mp, n, F_UNLCK);
}

int mpool_verify(const char *path, const struct mpool_open_opts *opts, unsigned flags,
		 mpool_problem_fn *fn, void *arg, uint64_t *damage)
{
	struct mpool_open_opts o;
	int rc;

	mpl_begin(NULL);
	rc = pool_check(path, opts, &o);
	if (!rc && (flags & ~MPOOL_VERIFY_DATA || !damage))
		rc = -EINVAL;
	if (!rc)
		rc = is_name(path) ? mpl_kmod_verify(path, flags, fn, arg, damage) :
				     mpl_user_verify(path, &o, flags, fn, arg, damage);
	return mpl_ret(rc);
}

int mpool_dump(const char *path, const struct mpool_open_opts *opts, mpool_print_fn *fn, void *arg)
{
	struct mpool_open_opts o;
	int rc;

	mpl_begin(NULL);
	rc = pool_check(path, opts, &o);
	if (!rc && !fn)
		rc = -EINVAL;
	if (!rc)
		rc = is_name(path) ? mpl_kmod_dump(path, fn, arg) :
				     mpl_user_dump(path, &o, fn, arg);
	return mpl_ret(rc);
}

int mpool_map(const char *path, const struct mpool_open_opts *opts, mpool_extent_fn *fn, void *arg)
{
	struct mpool_open_opts o;
	int rc;

	mpl_begin(NULL);
	rc = pool_check(path, opts, &o);
	if (!rc && !fn)
		rc = -EINVAL;
	if (!rc)
		rc = is_name(path) ? mpl_kmod_map(path, fn, arg) :
				     mpl_user_map(path, &o, fn, arg);
	return mpl_ret(rc);
}

/* ---- administration ---- */

int mpool_set(const char *path, const struct mpool_open_opts *opts,
	      const struct mpool_set_opts *set)
{
	struct mpool_open_opts o;
	int rc;

	mpl_begin(NULL);
	rc = change_check(path, opts, &o);
	if (rc)
		return mpl_ret(rc);
	if (!set || set->size != sizeof(*set))
		return mpl_err_as(MPL_SPEC, -EINVAL,
				  "mpool_set_opts is missing or of another size");
	if (!set->mask || set->mask & ~(MPOOL_SET_OWNER | MPOOL_SET_LABEL | MPOOL_SET_SPARE |
					MPOOL_SET_MULTIHOST | MPOOL_SET_ONE_HOST))
		return mpl_err_as(MPL_SPEC, -EINVAL, "unknown properties 0x%x", set->mask);
	if (set->mask & MPOOL_SET_LABEL && (!set->label || strlen(set->label) > MPOOL_LABEL_MAX))
		return mpl_err_as(MPL_SPEC, -EINVAL, "a label has at most %d bytes",
				  MPOOL_LABEL_MAX);
	if (set->mask & MPOOL_SET_OWNER && set->mode > 0777)
		return mpl_err_as(MPL_SPEC, -EINVAL, "mode 0%o is not in 0 .. 0777", set->mode);
	return mpl_ret(is_name(path) ? mpl_kmod_set(path, set) : mpl_user_set(path, &o, set));
}

int mpool_rename(const char *path, const struct mpool_open_opts *opts, const char *name)
{
	struct mpool_open_opts o;
	int rc;

	mpl_begin(NULL);
	rc = change_check(path, opts, &o);
	if (!rc)
		rc = name ? mp_name_check(name) : -EINVAL;
	if (!rc)
		rc = is_name(path) ? mpl_kmod_rename(path, name) : mpl_user_rename(path, &o, name);
	return mpl_ret(rc);
}

int mpool_add(const char *path, const struct mpool_open_opts *opts,
	      const struct mpool_dev_spec *devs, unsigned ndevs, uint32_t flags)
{
	struct mpool_open_opts o;
	int rc;

	mpl_begin(NULL);
	rc = change_check(path, opts, &o);
	if (rc)
		return mpl_ret(rc);
	if (!devs || !ndevs)
		return mpl_err_as(MPL_SPEC, -EINVAL, "%s: no device was given", path);
	if (flags & ~(MPOOL_CREATE_FORCE | MPOOL_CREATE_PLAN))
		return mpl_err_as(MPL_SPEC, -EINVAL, "unknown flags 0x%x", flags);
	return mpl_ret(is_name(path) ? mpl_kmod_add(path, devs, ndevs, flags) :
				       mpl_user_add(path, &o, devs, ndevs, flags));
}

int mpool_grow(const char *path, const struct mpool_open_opts *opts, uint64_t size,
	       uint32_t mclass)
{
	struct mpool_open_opts o;
	int rc;

	mpl_begin(NULL);
	rc = change_check(path, opts, &o);
	if (!rc && mclass >= MPOOL_MCLASSES)
		rc = mpl_err_as(MPL_SPEC, -EINVAL, "no media class %u", mclass);
	if (!rc)
		rc = is_name(path) ? mpl_kmod_grow(path, size) :
				     mpl_user_grow(path, &o, size, mclass);
	return mpl_ret(rc);
}

int mpool_probe(const char *path, struct mpool_probe *out)
{
	int rc;

	mpl_begin(NULL);
	rc = path_check(path);
	return mpl_ret(rc ? rc : out ? mpl_user_probe(path, out) : -EINVAL);
}

int mpool_activate(const char *const *devs, unsigned ndevs, uint32_t flags,
		   char name[MPOOL_NAME_MAX + 1])
{
	mpl_begin(NULL);
	if (!devs || !ndevs || !name)
		return mpl_ret(-EINVAL);
	if (flags & ~(MPOOL_ACTIVATE_RDONLY | MPOOL_ACTIVATE_TRUST))
		return mpl_err_as(MPL_SPEC, -EINVAL, "unknown flags 0x%x", flags);
	return mpl_ret(mpl_kmod_activate(devs, ndevs, flags, name));
}

int mpool_deactivate(const char *name)
{
	int rc;

	mpl_begin(NULL);
	rc = path_check(name);
	if (!rc)
		rc = mp_name_check(name);
	return mpl_ret(rc ? rc : mpl_kmod_deactivate(name));
}

int mpool_active_next(const char *after, struct mpool_active *out)
{
	mpl_begin(NULL);
	if (!after || !out || strlen(after) > MPOOL_NAME_MAX)
		return mpl_ret(-EINVAL);
	return mpl_ret(mpl_kmod_active_next(after, out));
}
