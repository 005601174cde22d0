/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Administration of pools that are opened by path. Each call opens the pool
 * exclusively, lets the core make the change durable, and closes it again.
 *
 * pool.json holds hints, the superblocks decide. Order at add: every check on
 * every device; pool.json names them as being added; files are made, what is
 * overwritten goes, and their directories are synced; the core adds them in one
 * step; pool.json names them as members. An open skips a device that is being
 * added and is no member, so a crash anywhere leaves a pool that opens, with all
 * of them or none.
 * Order at grow: every check, then all files or none, then the superblocks; a larger
 * file, which a crash may leave, is a pool all the same.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "user_make.h"

/* a pool for one change */
struct admin {
	const char *ad_path;
	struct mpl_set ad_set;
	struct mp_pool *ad_core;
	struct mpl_beat ad_beat;	/* an add can take long */
};

static int admin_open(struct admin *ad, const char *path, const struct mpool_open_opts *opts)
{
	int rc;

	memset(ad, 0, sizeof(*ad));
	ad->ad_path = path;
	rc = mpl_set_open(path, opts, 0, &ad->ad_set);
	if (rc)
		return rc;
	rc = mp_pool_open(ad->ad_set.st_core, ad->ad_set.st_n, 0, &ad->ad_core);
	if (!rc)
		rc = mpl_beat_start(&ad->ad_beat, ad->ad_core, path);
	if (!rc)
		rc = mpl_power_start(ad->ad_set.st_power);
	if (rc && ad->ad_core) {
		mpl_beat_stop(&ad->ad_beat);
		mp_pool_close(ad->ad_core);
	}
	if (rc)
		mpl_set_close(&ad->ad_set);
	return rc;
}

static void admin_close(struct admin *ad)
{
	mpl_beat_stop(&ad->ad_beat);
	mp_pool_close(ad->ad_core);
	mpl_set_close(&ad->ad_set);
}

/* device @i of the set is a member; others were left by an add that was cut short */
static int is_member(const struct admin *ad, const struct mp_dev *dev)
{
	struct mp_member mb;
	u32 slot;

	for (slot = 0; !mp_pool_member(ad->ad_core, slot, &mb); slot++)
		if (mb.mb_dev == dev)
			return 1;
	return 0;
}

/* The change is durable; a hint that cannot be corrected does no harm. */
static void hints_store(struct admin *ad, const struct mpl_cfg *cf)
{
	mpl_cfg_store(ad->ad_path, ad->ad_set.st_pv, cf);
	os_user_error_clear();
}

int mpl_user_set(const char *path, const struct mpool_open_opts *opts,
		 const struct mpool_set_opts *set)
{
	struct mp_set ms = {
		.ms_mask = set->mask,
		.ms_uid = set->uid,
		.ms_gid = set->gid,
		.ms_mode = set->mode,
		.ms_label = set->label,
	};
	struct admin ad;
	unsigned i;
	int rc;

	for (i = 0; i < MPOOL_MCLASSES; i++)
		ms.ms_spare_pct[i] = set->spare_pct[i];
	rc = admin_open(&ad, path, opts);
	if (rc)
		return rc;
	rc = mp_pool_set(ad.ad_core, &ms);
	admin_close(&ad);
	return rc;
}

int mpl_user_rename(const char *path, const struct mpool_open_opts *opts, const char *name)
{
	struct admin ad;
	int rc = mp_name_check(name);

	if (!rc)
		rc = admin_open(&ad, path, opts);
	if (rc)
		return rc;
	rc = mp_pool_rename(ad.ad_core, name);
	if (!rc) {
		snprintf(ad.ad_set.st_cfg->cf_name, sizeof(ad.ad_set.st_cfg->cf_name), "%s", name);
		hints_store(&ad, ad.ad_set.st_cfg);
	}
	admin_close(&ad);
	return rc;
}

/* ---- add ---- */

/* Of the pool's devices only members are open: was the add of this one not cut short? */
static int is_added(const struct admin *ad, const struct mpl_cfg_dev *cd)
{
	char path[PATH_MAX];
	unsigned k;

	if (mpl_cfg_path(ad->ad_path, ad->ad_set.st_pv, cd->cd_path, path, sizeof(path)))
		return 0;
	for (k = 0; k < ad->ad_set.st_n; k++)
		if (!strcmp(ad->ad_set.st_dev[k]->md_path, path))
			return 1;
	return 0;
}

/* pool.json without what an earlier add left, and with room for @more devices */
static struct mpl_cfg *cfg_clean(const struct admin *ad, unsigned more)
{
	const struct mpl_cfg *old = ad->ad_set.st_cfg;
	struct mpl_cfg *cf = mpl_cfg_new(old->cf_ndevs + more);
	unsigned i;

	if (!cf)
		return NULL;
	memcpy(cf->cf_name, old->cf_name, sizeof(cf->cf_name));
	memcpy(cf->cf_uuid, old->cf_uuid, sizeof(cf->cf_uuid));
	cf->cf_grow_max = old->cf_grow_max;
	cf->cf_ndevs = 0;
	for (i = 0; i < old->cf_ndevs; i++)
		if (!old->cf_dev[i].cd_is_adding)
			cf->cf_dev[cf->cf_ndevs++] = old->cf_dev[i];
	return cf;
}

static void cfg_append(struct mpl_cfg *cf, const struct mpl_cfg *more, int is_adding)
{
	unsigned i;

	for (i = 0; i < more->cf_ndevs; i++) {
		cf->cf_dev[cf->cf_ndevs] = more->cf_dev[i];
		cf->cf_dev[cf->cf_ndevs++].cd_is_adding = is_adding;
	}
}

static int add_make(struct admin *ad, struct creation *cr)
{
	const struct mpool_create_opts *o = cr->cr_opts;
	u32 mclass[MPL_CFG_DEVS], flags = o->flags & MPOOL_CREATE_FORCE ? MP_CREATE_FORCE : 0;
	unsigned i;
	int rc = mpl_set_alloc(&cr->cr_set, o->ndevs);

	for (i = 0; i < o->ndevs && !rc; i++) {
		rc = mpl_member_make(cr, i);
		mclass[i] = o->devs[i].mclass;
	}
	/* the core's checks come before the first change */
	if (!rc)
		rc = mp_pool_add_devs(ad->ad_core, cr->cr_set.st_core, mclass, o->ndevs,
				      flags | MP_CREATE_PLAN);
	if (!rc)
		rc = mpl_members_take(cr);
	if (!rc)
		rc = mp_pool_add_devs(ad->ad_core, cr->cr_set.st_core, mclass, o->ndevs, flags);
	return rc;
}

static int add_run(struct admin *ad, struct creation *cr)
{
	struct mpl_cfg *before = cfg_clean(ad, 0), *after = cfg_clean(ad, cr->cr_opts->ndevs);
	struct mp_pool_info pi;
	unsigned i, n;
	int rc = before && after ? 0 : -ENOMEM;

	if (!rc) {
		n = after->cf_ndevs;
		cfg_append(after, cr->cr_cfg, 1);
		rc = mpl_cfg_store(ad->ad_path, ad->ad_set.st_pv, after);
	}
	if (!rc) {
		rc = add_make(ad, cr);
		mp_pool_info(ad->ad_core, &pi);
		if (!rc) {
			after->cf_ndevs = n;
			cfg_append(after, cr->cr_cfg, 0);
			hints_store(ad, after);
		} else if (!pi.pi_fault_id) {
			struct os_user_error er = *os_user_error();

			mpl_creation_undo(cr);
			hints_store(ad, before);
			os_user_error_set(er.oe_id, er.oe_err, "%s", er.oe_text);
		}
		/* else it is unknown whether they are members now: the next open knows */
	}
	for (i = 0; i < cr->cr_opts->ndevs && !rc; i++)
		os_assert(is_member(ad, cr->cr_set.st_core[i]));
	mpl_cfg_free(before);
	mpl_cfg_free(after);
	return rc;
}

int mpl_user_add(const char *path, const struct mpool_open_opts *opts,
		 const struct mpool_dev_spec *devs, unsigned ndevs, uint32_t flags)
{
	struct mpool_create_opts co = {
		.size = sizeof(co), .devs = devs, .ndevs = ndevs, .flags = flags,
		.provider = opts->provider,
	};
	struct creation cr = { .cr_pool = path, .cr_opts = &co };
	struct mp_pool_info pi;
	struct admin ad;
	unsigned i;
	int rc;

	if (ndevs > MPL_CFG_DEVS)
		return mpl_err(MPL_SPEC, "%u devices are more than %d", ndevs, MPL_CFG_DEVS);
	for (i = 0; i < ndevs; i++)
		if (!devs[i].path)
			return mpl_err(MPL_SPEC, "device %u to be added has no path", i);
	rc = admin_open(&ad, path, opts);
	if (rc)
		return rc;
	/* what an earlier add left is not in use by this pool */
	for (i = ad.ad_set.st_n; i--;)
		if (!is_member(&ad, ad.ad_set.st_core[i]))
			mpl_set_drop(&ad.ad_set, i);
	for (i = 0; i < ad.ad_set.st_cfg->cf_ndevs; i++)
		if (is_added(&ad, &ad.ad_set.st_cfg->cf_dev[i]))
			ad.ad_set.st_cfg->cf_dev[i].cd_is_adding = 0;
	mp_pool_info(ad.ad_core, &pi);
	memcpy(cr.cr_uuid, pi.pi_uuid, 16);
	cr.cr_old = ad.ad_set.st_cfg;
	cr.cr_cfg = mpl_cfg_new(ndevs);
	cr.cr_member = calloc(ndevs, sizeof(*cr.cr_member));
	rc = cr.cr_cfg && cr.cr_member ? 0 : -ENOMEM;
	if (!rc && cr.cr_old->cf_ndevs + ndevs > MPL_CFG_DEVS)
		rc = mpl_err(MPL_SPEC, "%u devices are more than %d", cr.cr_old->cf_ndevs + ndevs,
			     MPL_CFG_DEVS);
	for (i = 0; i < ndevs && !rc; i++)
		rc = mpl_member_check(&cr, i);
	if (!rc)
		mpl_paths_shorten(&cr);
	if (!rc && !(flags & MPOOL_CREATE_PLAN))
		rc = add_run(&ad, &cr);
	mpl_beat_stop(&ad.ad_beat);
	mp_pool_close(ad.ad_core);
	mpl_set_close(&cr.cr_set);
	mpl_set_close(&ad.ad_set);
	mpl_cfg_free(cr.cr_cfg);
	free(cr.cr_member);
	return rc;
}

/* ---- grow ---- */

/* a member file that grows; all zero: another one, which does not */
struct growing {
	struct mpl_dev gw_dev;
	int gw_is_open;
	int gw_is_grown;
	int gw_is_zeroed;	/* the bytes gained read as zeroes */
	uint64_t gw_was;	/* its size before, bytes */
};

/* Opens a file and says whether it can have its new size; nothing is changed. */
static int file_check(struct growing *gw, const char *path, uint64_t size)
{
	struct mp_probe pb;
	struct mpl_low low;
	const char *why;
	struct stat st;
	int rc = mpl_file_open(path, 0, 0, &low, &why);

	if (rc)
		return rc == -EBUSY ? mpl_err(MPL_BUSY, "%s is in use: %s", path, why) :
		       mpl_err_as(MPL_DEVOPEN, rc, "%s cannot be opened: %s", path, why);
	mpl_dev_init(&gw->gw_dev, &low, path, 0, 0);
	gw->gw_is_open = 1;
	rc = mp_probe(&gw->gw_dev.md_core, &pb);
	if (!rc && low.lo_is_block)
		rc = mpl_err_as(MPL_SPEC, -EINVAL, "%s is a block device: its size is its own",
				path);
	if (!rc && fstat(gw->gw_dev.md_vdev.fd, &st))
		rc = -errno;
	if (!rc && (size < (uint64_t)st.st_size || size < pb.pb_bytes))
		rc = mpl_err_as(MPL_SPEC, -EINVAL, "%s has %llu bytes, more than %llu", path,
				(unsigned long long)st.st_size, (unsigned long long)size);
	if (rc)
		return rc;
	gw->gw_was = (uint64_t)st.st_size;
	/* it was not longer than the pool knew */
	gw->gw_is_zeroed = gw->gw_was == pb.pb_bytes;
	return 0;
}

static int file_resize(struct growing *gw, uint64_t size)
{
	int rc;

	/* the open that follows flushes it, before a superblock counts on it */
	if (!TEMP_FAILURE_RETRY(ftruncate(gw->gw_dev.md_vdev.fd, (off_t)size))) {
		gw->gw_is_grown = 1;
		return 0;
	}
	/* no room, by whichever limit: as when it is made */
	rc = errno == EFBIG || errno == EDQUOT ? -ENOSPC : -errno;
	return mpl_err_as(MPL_FULLFS, rc, "%s cannot have %llu bytes: %s", gw->gw_dev.md_path,
			  (unsigned long long)size, strerror(errno));
}

/*
 * Back to what it was, while no other process can have the pool: what is longer than
 * the pool knows is not known to be zeroes when it grows another time.
 */
static void file_restore(const struct growing *gw, int fd)
{
	/* one that stays longer is a pool all the same */
	if (gw->gw_is_grown && fd >= 0 && TEMP_FAILURE_RETRY(ftruncate(fd, (off_t)gw->gw_was)))
		return;
}

/* All of them have the new size afterwards, or each the one that it had. */
static int files_grow(const char *path, const struct mpl_cfg *cf, uint64_t size, uint32_t mclass,
		      struct growing *gw)
{
	char file[PATH_MAX];
	unsigned i, n = 0;
	int rc = 0;

	for (i = 0; i < cf->cf_ndevs && !rc; i++) {
		if (cf->cf_dev[i].cd_mclass != mclass || cf->cf_dev[i].cd_is_adding)
			continue;
		n++;
		rc = mpl_cfg_path(path, NULL, cf->cf_dev[i].cd_path, file, sizeof(file));
		if (!rc)
			rc = file_check(&gw[i], file, size);
	}
	if (!rc && !n)
		rc = mpl_err(MPL_SPEC, "the pool has no device of class %s",
			     mpl_cfg_class(mclass));
	for (i = 0; i < cf->cf_ndevs && !rc; i++)
		if (gw[i].gw_is_open)
			rc = file_resize(&gw[i], size);
	for (i = 0; i < cf->cf_ndevs; i++) {
		if (rc && gw[i].gw_is_open)
			file_restore(&gw[i], gw[i].gw_dev.md_vdev.fd);
		if (gw[i].gw_is_open)
			mpl_dev_fini(&gw[i].gw_dev);
	}
	return rc;
}

/* Where the opened set has the file; its number of members: nowhere. */
static unsigned set_find(const struct mpl_set *set, const struct growing *gw)
{
	unsigned k = 0;

	while (k < set->st_n && strcmp(set->st_dev[k]->md_path, gw->gw_dev.md_path))
		k++;
	return k;
}

/* The core's part, with the files as they are now. */
static int grow_core(struct admin *ad, const struct mpl_cfg *cf, const struct growing *gw)
{
	struct mp_pool_info pi;
	unsigned i, k;
	int rc;

	for (i = 0; i < cf->cf_ndevs; i++) {
		k = set_find(&ad->ad_set, &gw[i]);
		if (gw[i].gw_is_zeroed && k < ad->ad_set.st_n)
			ad->ad_set.st_core[k]->d_flags |= MP_DEV_ZEROED;
	}
	rc = mp_pool_grow(ad->ad_core);
	mp_pool_info(ad->ad_core, &pi);
	/* no superblock counts on it, unless one could not be written */
	for (i = 0; i < cf->cf_ndevs && rc && !pi.pi_fault_id; i++) {
		k = set_find(&ad->ad_set, &gw[i]);
		if (k < ad->ad_set.st_n)
			file_restore(&gw[i], ad->ad_set.st_dev[k]->md_vdev.fd);
	}
	return rc;
}

/* after the files; core and superblocks follow */
static int grow_open(const char *path, const struct mpool_open_opts *opts,
		     const struct mpl_cfg *cf, const struct growing *gw)
{
	struct admin ad;
	unsigned i;
	int rc = admin_open(&ad, path, opts);

	if (rc)
		return rc;
	rc = grow_core(&ad, cf, gw);
	if (!rc && ad.ad_set.st_n == cf->cf_ndevs) {
		for (i = 0; i < ad.ad_set.st_n; i++)
			ad.ad_set.st_cfg->cf_dev[i].cd_size = ad.ad_set.st_core[i]->d_size;
		hints_store(&ad, ad.ad_set.st_cfg);
	}
	admin_close(&ad);
	return rc;
}

/* One that does not open keeps its files as they are. */
static int grow_try(const char *path, const struct mpool_open_opts *opts)
{
	struct admin ad;
	int rc = admin_open(&ad, path, opts);

	if (!rc)
		admin_close(&ad);
	return rc;
}

int mpl_user_grow(const char *path, const struct mpool_open_opts *opts, uint64_t size,
		  uint32_t mclass)
{
	struct growing *gw;
	struct mpl_cfg *cf;
	int rc = 0;

	size &= ~(uint64_t)(MPOOL_ALIGN - 1);
	if (size && opts->provider)
		return mpl_err(MPL_SPEC, "a size is for files; these are the provider's");
	rc = mpl_cfg_load(path, opts->provider, &cf);
	if (rc)
		return rc;
	gw = calloc(cf->cf_ndevs, sizeof(*gw));
	if (!gw)
		rc = -ENOMEM;
	if (!rc && size)
		rc = grow_try(path, opts);
	if (!rc && size)
		rc = files_grow(path, cf, size, mclass, gw);
	if (!rc)
		rc = grow_open(path, opts, cf, gw);
	free(gw);
	mpl_cfg_free(cf);
	return rc;
}

/* ---- probe ---- */

int mpl_user_probe(const char *path, struct mpool_probe *out)
{
	struct mp_probe pb;
	struct mpl_dev dev;
	struct mpl_low low;
	const char *why;
	int rc = mpl_file_open(path, MPL_FILE_PEEK, 0, &low, &why);

	if (rc)
		return mpl_err_as(MPL_DEVOPEN, rc, "%s cannot be opened: %s", path, why);
	mpl_dev_init(&dev, &low, path, 0, 0);
	rc = mp_probe(&dev.md_core, &pb);
	mpl_dev_fini(&dev);
	if (rc)
		return rc;
	memset(out, 0, sizeof(*out));
	memcpy(out->uuid, pb.pb_uuid, 16);
	memcpy(out->dev_uuid, pb.pb_dev_uuid, 16);
	snprintf(out->name, sizeof(out->name), "%s", pb.pb_name);
	out->state = pb.pb_state;
	out->slot = pb.pb_slot;
	out->ndevs = pb.pb_ndevs;
	out->mclass = pb.pb_mclass;
	out->format_version = pb.pb_format;
	out->generation = pb.pb_gen;
	out->bytes = pb.pb_bytes;
	return 0;
}
