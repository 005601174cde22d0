/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The member devices of a pool as a set: found by pool.json, opened exclusively
 * (files and block devices here, or by the provider), covered with layers. Also
 * the inspections, which need no more than an opened set.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user.h"

int mpl_set_alloc(struct mpl_set *set, unsigned n)
{
	set->st_dev = calloc(n, sizeof(*set->st_dev));
	set->st_core = calloc(n, sizeof(*set->st_core));
	set->st_is_uring = 1;
	set->st_is_direct = 1;
	return set->st_dev && set->st_core ? 0 : -ENOMEM;
}

void mpl_set_close(struct mpl_set *set)
{
	unsigned i;

	for (i = 0; i < set->st_n; i++) {
		mpl_dev_fini(set->st_dev[i]);
		free(set->st_dev[i]);
	}
	mpl_power_free(set->st_power);
	mpl_cfg_free(set->st_cfg);
	free(set->st_dev);
	free(set->st_core);
	memset(set, 0, sizeof(*set));
}

void mpl_set_drop(struct mpl_set *set, unsigned i)
{
	mpl_dev_fini(set->st_dev[i]);
	free(set->st_dev[i]);
	for (set->st_n--; i < set->st_n; i++) {
		set->st_dev[i] = set->st_dev[i + 1];
		set->st_core[i] = set->st_core[i + 1];
	}
}

int mpl_set_add(struct mpl_set *set, struct mpl_low *low, const char *path, uint32_t mclass,
		const char *layers)
{
	struct mpl_dev *dev = calloc(1, sizeof(*dev));
	int rc = dev ? 0 : -ENOMEM;

	if (!rc && layers)
		rc = mpl_layer_push(&low->lo_vdev, layers, mclass, &set->st_power);
	if (rc) {
		if (low->lo_vdev.ops->close)
			low->lo_vdev.ops->close(low->lo_vdev.dev);
		free(dev);
		return rc;
	}
	mpl_dev_init(dev, low, path, mclass, set->st_n);
	if (low->lo_vdev.fd < 0 || !low->lo_is_direct)
		set->st_is_uring = 0;
	if (!low->lo_is_direct)
		set->st_is_direct = 0;
	set->st_core[set->st_n] = &dev->md_core;
	set->st_dev[set->st_n++] = dev;
	return 0;
}

/* The message for a member that cannot be opened, and the errno of the pool's open. */
static int member_error(const char *pool, const char *path, int rc, const char *why)
{
	if (rc == -EBUSY)
		return mpl_err(MPL_BUSY, "pool %s: %s is in use: %s", pool, path,
			       *why ? why : "it is open already");
	if (rc == -ENOENT)
		return mpl_err(MPL_MEMBER, "pool %s: member %s is missing", pool, path);
	if (rc == -ENOMEM)
		return rc;
	return mpl_err_as(MPL_DEVOPEN, rc, "pool %s: member %s cannot be opened: %s", pool, path,
			  *why ? why : strerror(-rc));
}

static int member_open(const char *pool, const struct mpool_dev_provider *pv,
		       const struct mpl_cfg_dev *cd, unsigned flags, struct mpl_low *low,
		       char *path)
{
	const char *why = "";
	int rc = mpl_cfg_path(pool, pv, cd->cd_path, path, 4096);

	if (rc)
		return rc;
	if (pv) {
		memset(low, 0, sizeof(*low));
		rc = pv->open(pv->ctx, path, 0, !!(flags & MPL_SET_RDONLY), 0, &low->lo_vdev);
		low->lo_sector = MP_SECTOR;
		low->lo_is_direct = 1;
	} else {
		rc = mpl_file_open(path, flags & MPL_SET_PEEK ? MPL_FILE_PEEK :
				   flags & MPL_SET_RDONLY ? MPL_FILE_RDONLY : 0, 0, low, &why);
	}
	return rc ? member_error(pool, path, rc, why) : 0;
}

/* the newest of @set may be no member at all; the core judges one that says it is */
static int added_check(struct mpl_set *set)
{
	struct mp_probe pb;
	int rc = mp_probe(set->st_core[set->st_n - 1], &pb);

	if (rc != -EINVAL)
		return rc == -EUCLEAN ? 0 : rc;
	os_user_error_clear();
	mpl_set_drop(set, set->st_n - 1);
	return 0;
}

#define STATE_DESTROYED 3u	/* pb_state */

/* Missing because a destroy that was cut removed it: what is still there says so. */
static int missing_error(const struct mpl_set *set, const char *pool, const char *path)
{
	struct mp_probe pb;
	unsigned i;

	for (i = 0; i < set->st_n; i++)
		if (!mp_probe(set->st_core[i], &pb) && pb.pb_state == STATE_DESTROYED)
			return mp_err(MP_DESTROYED, "pool '%s' was destroyed", pb.pb_name);
	return member_error(pool, path, -ENOENT, "");
}

static const char *layer_text(const struct mpool_open_opts *opts)
{
	const char *s = opts->dev ? opts->dev : secure_getenv("MPOOL_DEV");

	return s && *s ? s : NULL;
}

int mpl_set_open(const char *path, const struct mpool_open_opts *opts, unsigned flags,
		 struct mpl_set *set)
{
	const char *layers = layer_text(opts), *at;
	struct mpl_low low;
	char *dev_path;
	unsigned i;
	int rc;

	memset(set, 0, sizeof(*set));
	if (layers && mpl_layer_check(layers, &at))
		return mpl_err(MPL_LAYER, "device layers (MPOOL_DEV) \"%s\": not understood at "
			       "\"%s\"", layers, at);
	rc = mpl_cfg_load(path, opts->provider, &set->st_cfg);
	if (rc)
		return rc;
	set->st_pv = opts->provider;
	dev_path = malloc(4096);
	rc = dev_path ? mpl_set_alloc(set, set->st_cfg->cf_ndevs) : -ENOMEM;
	for (i = 0; i < set->st_cfg->cf_ndevs && !rc; i++) {
		const struct mpl_cfg_dev *cd = &set->st_cfg->cf_dev[i];

		rc = member_open(path, opts->provider, cd, flags, &low, dev_path);
		if (rc == -ENODEV && (flags & MPL_SET_PARTIAL || cd->cd_is_adding)) {
			os_user_error_clear();
			rc = 0;
			continue;
		}
		if (rc == -ENODEV)
			rc = missing_error(set, path, dev_path);
		if (!rc)
			rc = mpl_set_add(set, &low, dev_path, cd->cd_mclass, layers);
		if (!rc && flags & MPL_SET_PEEK)
			set->st_core[set->st_n - 1]->d_flags |= MP_DEV_BESIDE;
		if (!rc && cd->cd_is_adding)
			rc = added_check(set);
	}
	free(dev_path);
	if (rc)
		mpl_set_close(set);
	return rc;
}

/* ---- inspection ---- */

struct verify_arg {
	mpool_problem_fn *va_fn;
	void *va_arg;
};

static void verify_finding(void *arg, const struct mp_finding *f)
{
	struct verify_arg *va = arg;
	char id[16];
	struct mpool_problem p = {
		.id = id,
		.text = f->fi_text,
		.is_damage = f->fi_is_damage,
	};

	scnprintf(id, sizeof(id), "MP%04d", f->fi_id);
	if (va->va_fn)
		va->va_fn(va->va_arg, &p);
}

int mpl_user_verify(const char *path, const struct mpool_open_opts *opts, unsigned flags,
		    mpool_problem_fn *fn, void *arg, uint64_t *damage)
{
	struct verify_arg va = { .va_fn = fn, .va_arg = arg };
	struct mpl_set set;
	u64 n = 0;
	int rc = mpl_set_open(path, opts, MPL_SET_RDONLY, &set);

	if (rc)
		return rc;
	rc = mp_verify(set.st_core, set.st_n, flags & MPOOL_VERIFY_DATA ? MP_VERIFY_DATA : 0,
		       verify_finding, &va, &n);
	mpl_set_close(&set);
	if (!rc)
		*damage = n;
	return rc;
}

int mpl_user_dump(const char *path, const struct mpool_open_opts *opts, mpool_print_fn *fn,
		  void *arg)
{
	struct mpl_set set;
	int rc = mpl_set_open(path, opts, MPL_SET_RDONLY, &set);

	if (rc)
		return rc;
	rc = mp_dump(set.st_core, set.st_n, fn, arg);
	mpl_set_close(&set);
	return rc;
}

struct map_arg {
	mpool_extent_fn *ma_fn;
	void *ma_arg;
};

static void map_extent(void *arg, const struct mp_map_extent *e)
{
	struct map_arg *ma = arg;
	struct mpool_extent out = {
		.slot = e->me_slot,
		.kind = e->me_kind,
		.off = e->me_off,
		.len = e->me_len,
		.id = e->me_id,
		.what = e->me_what,
	};

	ma->ma_fn(ma->ma_arg, &out);
}

int mpl_user_map(const char *path, const struct mpool_open_opts *opts, mpool_extent_fn *fn,
		 void *arg)
{
	struct map_arg ma = { .ma_fn = fn, .ma_arg = arg };
	struct mpl_set set;
	int rc = mpl_set_open(path, opts, MPL_SET_RDONLY, &set);

	if (rc)
		return rc;
	rc = mp_map(set.st_core, set.st_n, map_extent, &ma);
	mpl_set_close(&set);
	return rc;
}
