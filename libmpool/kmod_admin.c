/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Administration of pools of the kernel module: their devices, their
 * properties, activation. Devices are checked as for embedded pools, then given
 * to the module as descriptors; the module claims them.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "device.h"
#include "kmod.h"

#define STATE_CREATING	1u	/* pr_state */
#define STATE_ACTIVE	2u

/* opened devices of one command */
struct devs {
	unsigned dv_n;
	struct mpool_ioc_dev dv_dev[MPOOL_IOC_DEVS_MAX];
	int dv_is_signed[MPOOL_IOC_DEVS_MAX];	/* to be wiped: the caller forces it */
	struct mpl_ident dv_id[MPOOL_IOC_DEVS_MAX];
};

static void devs_close(struct devs *dv)
{
	while (dv->dv_n)
		close(dv->dv_dev[--dv->dv_n].id_fd);
}

static int another_now(const char *path)
{
	return mpl_err_as(MPL_DEVOPEN, -ESTALE, "%s is another device now; it was left alone",
			  path);
}

static int dev_open(struct devs *dv, const char *path, uint32_t mclass, int is_rdonly)
{
	struct stat st;
	int fd, rc;

	if (dv->dv_n == MPOOL_IOC_DEVS_MAX)
		return mpl_err(MPL_SPEC, "more than %u devices", MPOOL_IOC_DEVS_MAX);
	if (!path || stat(path, &st))
		return mpl_err_as(MPL_DEVOPEN, path ? -errno : -EINVAL, "%s cannot be opened: %s",
				  path ? path : "a device without a path",
				  path ? strerror(errno) : "the module needs block devices");
	if (!S_ISBLK(st.st_mode))
		return mpl_err_as(MPL_DEVOPEN, -ENOTBLK, "%s is not a block device; a pool on "
				  "files has a directory, with '/' in its path", path);
	fd = mpool_fd_up(open(path, (is_rdonly ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NONBLOCK));
	if (fd < 0) {
		rc = -errno;
		return mpl_err_as(MPL_DEVOPEN, rc, "%s cannot be opened: %s", path, strerror(-rc));
	}
	dv->dv_dev[dv->dv_n].id_fd = fd;
	dv->dv_dev[dv->dv_n++].id_mclass = mclass;
	return 0;
}

/*
 * One device that shall become a member: nothing of value may be on it. One that was being
 * added is perhaps a member: of @is_new pools never; an add leaves it to the core.
 */
static int dev_check(struct devs *dv, int ctl, const struct mpool_dev_spec *sp, int is_forced,
		     int is_new)
{
	struct mpool_ioc_probe pr = { .pr_fd = dv->dv_dev[dv->dv_n - 1].id_fd };
	struct mpl_ident *id = &dv->dv_id[dv->dv_n - 1], seen;
	uint64_t bytes = 0;
	char what[160] = "";
	int rc;

	if (sp->mclass >= MPOOL_MCLASSES)
		return mpl_err(MPL_SPEC, "%s: no media class %u", sp->path, sp->mclass);
	if (sp->size && (ioctl(pr.pr_fd, BLKGETSIZE64, &bytes) || sp->size != bytes))
		return mpl_err(MPL_NOTHERE, "%s: the module uses whole devices, a size of %llu "
			       "cannot be given", sp->path, (unsigned long long)sp->size);
	rc = mpl_ioc(ctl, MPOOL_IOC_PROBE, &pr);
	if (!rc && (pr.pr_state == STATE_ACTIVE ||
		    (is_new && pr.pr_state == STATE_CREATING && pr.pr_gen > 2)))
		return mpl_err(MPL_EXISTS, "%s belongs to pool %.31s; destroy that pool first",
			       sp->path, pr.pr_name);
	if (!rc)
		return 0; /* left over by an unfinished create or destroy */
	if (rc != -EINVAL)
		return rc;
	rc = mpl_ident(pr.pr_fd, id);
	if (!rc)
		rc = mpl_sigcheck(sp->path, what, sizeof(what), &seen);
	if ((!rc || rc == -EPERM) && !mpl_ident_is_same(id, &seen))
		return another_now(sp->path);
	if (rc == -EPERM && !is_forced)
		return mpl_err(MPL_FOREIGN, "%s holds %s; nothing was written", sp->path, what);
	dv->dv_is_signed[dv->dv_n - 1] = rc == -EPERM;
	if (rc && rc != -EPERM)
		return mpl_err_as(MPL_DEVOPEN, rc, "%s cannot be examined: %s", sp->path,
				  strerror(-rc));
	return 0;
}

static int devs_take(struct devs *dv, int ctl, const struct mpool_dev_spec *sp, unsigned n,
		     int is_forced, int is_new)
{
	unsigned i;
	int rc = 0;

	for (i = 0; i < n && !rc; i++) {
		rc = dev_open(dv, sp[i].path, sp[i].mclass, 0);
		if (!rc)
			rc = dev_check(dv, ctl, &sp[i], is_forced, is_new);
	}
	return rc;
}

/* after all checks: what the caller forced goes, backup copies too */
static int devs_wipe(const struct devs *dv, const struct mpool_dev_spec *sp)
{
	unsigned i;
	int rc = 0;

	for (i = 0; i < dv->dv_n && !rc; i++)
		if (dv->dv_is_signed[i])
			rc = mpl_sigwipe(sp[i].path, 0, &dv->dv_id[i]);
	return rc == -ESTALE ? another_now(sp[i - 1].path) : rc;
}

/* ---- pools ---- */

static int name_put(char out[MPOOL_IOC_NAME], const char *name)
{
	int rc = mp_name_check(name);

	if (!rc)
		snprintf(out, MPOOL_IOC_NAME, "%s", name);
	return rc;
}

/* commands on pools that exist know the classes themselves */
static void classes_clear(struct devs *dv)
{
	unsigned i;

	for (i = 0; i < dv->dv_n; i++)
		dv->dv_dev[i].id_mclass = 0;
}

static int activate_fds(int ctl, struct devs *dv, uint32_t flags, char *name)
{
	struct mpool_ioc_activate ia = {
		.ia_arg.ma_flags = (flags & MPOOL_ACTIVATE_RDONLY ? MPOOL_IOC_ACTIVATE_RDONLY : 0) |
				   (flags & MPOOL_ACTIVATE_TRUST ? MPOOL_IOC_ACTIVATE_TRUST : 0),
		.ia_ndevs = dv->dv_n,
		.ia_devs = (uintptr_t)dv->dv_dev,
	};
	int rc;

	classes_clear(dv);
	rc = mpl_ioc(ctl, MPOOL_IOC_ACTIVATE, &ia);
	if (!rc && name) {
		ia.ia_name[MPOOL_IOC_NAME - 1] = 0;
		strcpy(name, ia.ia_name);
	}
	return rc;
}

static int destroy_fds(int ctl, struct devs *dv)
{
	struct mpool_ioc_devs ds = { .ds_ndevs = dv->dv_n, .ds_devs = (uintptr_t)dv->dv_dev };

	classes_clear(dv);
	return mpl_ioc(ctl, MPOOL_IOC_DESTROY, &ds);
}

static int create_fill(struct mpool_ioc_create *ic, const char *name,
		       const struct mpool_create_opts *opts)
{
	unsigned i;
	int rc = name_put(ic->ic_name, name);

	if (rc)
		return rc;
	if (opts->provider)
		return mpl_err(MPL_NOTHERE, "pool %s: a pool of the module has no provider", name);
	if (opts->name && strcmp(opts->name, name))
		return mpl_err(MPL_SPEC, "pool %s cannot have the name %s as well", name,
			       opts->name);
	if (opts->label && strlen(opts->label) > MPOOL_LABEL_MAX)
		return mpl_err(MPL_SPEC, "the label is longer than %d bytes", MPOOL_LABEL_MAX);
	if (opts->label)
		strcpy(ic->ic_label, opts->label);
	ic->ic_uid = opts->uid;
	ic->ic_gid = opts->gid;
	ic->ic_mode = opts->mode ? opts->mode : 0600;
	for (i = 0; i < MPOOL_MCLASSES; i++)
		ic->ic_spare_pct[i] = opts->spare_pct[i];
	return 0;
}

/* -EEXIST: a second pool of that name could not be activated */
static int name_is_free(int ctl, const char *name)
{
	struct mpool_ioc_list li = { .li_state = 0 };
	int rc;

	while (!(rc = mpl_ioc(ctl, MPOOL_IOC_LIST, &li))) {
		li.li_name[MPOOL_IOC_NAME - 1] = 0;
		if (!strcmp(li.li_name, name))
			return mpl_err(MPL_EXISTS, "a pool %s is active", name);
		memcpy(li.li_after, li.li_name, sizeof(li.li_after));
	}
	return rc == -ENOENT ? 0 : rc;
}

static int create_run(int ctl, struct devs *dv, struct mpool_ioc_create *ic,
		      const struct mpool_create_opts *opts)
{
	struct os_user_error oe;
	int rc;

	ic->ic_ndevs = dv->dv_n;
	ic->ic_devs = (uintptr_t)dv->dv_dev;
	ic->ic_arg.ma_flags = MPOOL_IOC_CREATE_PLAN;
	if (opts->flags & MPOOL_CREATE_FORCE)
		ic->ic_arg.ma_flags |= MPOOL_IOC_CREATE_FORCE;
	if (mpl_create_is_multihost(opts))
		ic->ic_arg.ma_flags |= MPOOL_IOC_CREATE_MULTIHOST;
	rc = mpl_ioc(ctl, MPOOL_IOC_CREATE, ic);
	if (rc || opts->flags & MPOOL_CREATE_PLAN)
		return rc;
	rc = devs_wipe(dv, opts->devs);
	if (rc)
		return rc;
	ic->ic_arg.ma_flags &= ~MPOOL_IOC_CREATE_PLAN;
	memset(ic->ic_uuid, 0, sizeof(ic->ic_uuid));
	rc = mpl_ioc(ctl, MPOOL_IOC_CREATE, ic);
	if (rc)
		return rc;
	/* owner and mode were given in this very call: no stranger wrote them */
	rc = activate_fds(ctl, dv, MPOOL_ACTIVATE_TRUST, NULL);
	if (rc) {
		oe = *os_user_error();
		destroy_fds(ctl, dv);
		os_user_error_set(oe.oe_id, oe.oe_err, "%s", oe.oe_text);
	}
	return rc;
}

int mpl_kmod_create(const char *name, const struct mpool_create_opts *opts)
{
	struct mpool_ioc_create ic = { .ic_ndevs = 0 };
	struct devs dv = { .dv_n = 0 };
	int ctl, rc = create_fill(&ic, name, opts);

	if (rc)
		return rc;
	ctl = mpl_node_open(NULL, 0);
	if (ctl < 0)
		return ctl;
	rc = name_is_free(ctl, name);
	if (!rc)
		rc = devs_take(&dv, ctl, opts->devs, opts->ndevs,
			       !!(opts->flags & MPOOL_CREATE_FORCE), 1);
	if (!rc)
		rc = create_run(ctl, &dv, &ic, opts);
	devs_close(&dv);
	close(ctl);
	return rc;
}

int mpl_kmod_activate(const char *const *devs, unsigned ndevs, uint32_t flags,
		      char name[MPOOL_NAME_MAX + 1])
{
	struct devs dv = { .dv_n = 0 };
	int ctl = mpl_node_open(NULL, 0), rc = 0;
	unsigned i;

	if (ctl < 0)
		return ctl;
	for (i = 0; i < ndevs && !rc; i++)
		rc = dev_open(&dv, devs[i], 0, !!(flags & MPOOL_ACTIVATE_RDONLY));
	if (!rc)
		rc = activate_fds(ctl, &dv, flags, name);
	devs_close(&dv);
	close(ctl);
	return rc;
}

/* one command of the control node */
static int ctl_call(unsigned long cmd, void *arg)
{
	int ctl = mpl_node_open(NULL, 0), rc;

	if (ctl < 0)
		return ctl;
	rc = mpl_ioc(ctl, cmd, arg);
	close(ctl);
	return rc;
}

int mpl_kmod_deactivate(const char *name)
{
	struct mpool_ioc_name na = { .na_reserved = 0 };
	int rc = name_put(na.na_name, name);

	return rc ? rc : ctl_call(MPOOL_IOC_DEACTIVATE, &na);
}

/* The members of an active pool, opened: the names in /dev may have changed since. */
static int members_open(const char *name, struct devs *dv)
{
	struct mpool_ioc_dev_info di = { .di_slot = 0 };
	int node = mpl_node_open(name, 1), rc = 0;
	struct stat st;

	if (node < 0)
		return node;
	for (;;) {
		rc = mpl_ioc(node, MPOOL_IOC_DEV_INFO, &di);
		if (rc)
			break;
		di.di_path[sizeof(di.di_path) - 1] = 0;
		if (stat(di.di_path, &st) || !S_ISBLK(st.st_mode) ||
		    st.st_rdev != makedev(di.di_major, di.di_minor))
			rc = mpl_err(MPL_MEMBER, "pool %s: member %s (device %u:%u) has no node "
				     "in /dev", name, di.di_path, di.di_major, di.di_minor);
		if (!rc)
			rc = dev_open(dv, di.di_path, 0, 0);
		if (rc)
			break;
		di.di_slot++;
	}
	close(node);
	return rc == -ENOENT && dv->dv_n ? 0 : rc;
}

int mpl_kmod_destroy(const char *name)
{
	struct devs dv = { .dv_n = 0 };
	int rc = members_open(name, &dv), ctl;

	ctl = rc ? rc : mpl_node_open(NULL, 0);
	if (ctl >= 0) {
		rc = mpl_kmod_deactivate(name);
		if (!rc)
			rc = destroy_fds(ctl, &dv);
		close(ctl);
	} else {
		rc = ctl;
	}
	devs_close(&dv);
	return rc;
}

/* ---- properties ---- */

int mpl_kmod_set(const char *name, const struct mpool_set_opts *set)
{
	struct mpool_ioc_set st = { .st_reserved = 0 };
	unsigned i;
	int rc = name_put(st.st_name, name);

	if (rc)
		return rc;
	st.st_arg.ma_flags = (set->mask & MPOOL_SET_OWNER ? MPOOL_IOC_SET_OWNER : 0) |
			     (set->mask & MPOOL_SET_LABEL ? MPOOL_IOC_SET_LABEL : 0) |
			     (set->mask & MPOOL_SET_SPARE ? MPOOL_IOC_SET_SPARE : 0) |
			     (set->mask & MPOOL_SET_MULTIHOST ? MPOOL_IOC_SET_MULTIHOST : 0) |
			     (set->mask & MPOOL_SET_ONE_HOST ? MPOOL_IOC_SET_ONE_HOST : 0);
	if (set->mask & MPOOL_SET_LABEL)
		snprintf(st.st_label, sizeof(st.st_label), "%s", set->label);
	if (set->mask & MPOOL_SET_OWNER) {
		st.st_uid = set->uid;
		st.st_gid = set->gid;
		st.st_mode = set->mode;
	}
	for (i = 0; i < MPOOL_MCLASSES && set->mask & MPOOL_SET_SPARE; i++)
		st.st_spare_pct[i] = set->spare_pct[i];
	return ctl_call(MPOOL_IOC_SET, &st);
}

int mpl_kmod_rename(const char *name, const char *to)
{
	struct mpool_ioc_rename rn = { .rn_arg.ma_flags = 0 };
	int rc = name_put(rn.rn_from, name);

	if (!rc)
		rc = name_put(rn.rn_to, to);
	return rc ? rc : ctl_call(MPOOL_IOC_RENAME, &rn);
}

int mpl_kmod_add(const char *name, const struct mpool_dev_spec *devs, unsigned ndevs,
		 uint32_t flags)
{
	struct mpool_ioc_add ad = { .ad_reserved = 0 };
	struct devs dv = { .dv_n = 0 };
	int ctl, rc = name_put(ad.ad_name, name);

	if (rc)
		return rc;
	/* not active is told before anything about the devices */
	rc = mpl_node_open(name, 1);
	if (rc < 0)
		return rc;
	close(rc);
	ctl = mpl_node_open(NULL, 0);
	if (ctl < 0)
		return ctl;
	rc = devs_take(&dv, ctl, devs, ndevs, !!(flags & MPOOL_CREATE_FORCE), 0);
	ad.ad_ndevs = dv.dv_n;
	ad.ad_devs = (uintptr_t)dv.dv_dev;
	ad.ad_arg.ma_flags = MPOOL_IOC_CREATE_PLAN;
	if (!rc)
		rc = mpl_ioc(ctl, MPOOL_IOC_ADD, &ad);
	if (!rc && !(flags & MPOOL_CREATE_PLAN)) {
		ad.ad_arg.ma_flags = 0;
		rc = devs_wipe(&dv, devs);
		if (!rc)
			rc = mpl_ioc(ctl, MPOOL_IOC_ADD, &ad);
	}
	devs_close(&dv);
	close(ctl);
	return rc;
}

int mpl_kmod_grow(const char *name, uint64_t size)
{
	struct mpool_ioc_name na = { .na_reserved = 0 };
	int rc = name_put(na.na_name, name);

	if (!rc && size)
		rc = mpl_err(MPL_SPEC, "pool %s: members of the module are block devices; enlarge "
			     "the devices, then grow the pool without a size", name);
	return rc ? rc : ctl_call(MPOOL_IOC_GROW, &na);
}

int mpl_kmod_active_next(const char *after, struct mpool_active *out)
{
	struct mpool_ioc_list li = { .li_state = 0 };
	int rc;

	snprintf(li.li_after, sizeof(li.li_after), "%s", after);
	rc = ctl_call(MPOOL_IOC_LIST, &li);
	if (rc)
		return rc;
	memset(out, 0, sizeof(*out));
	li.li_name[MPOOL_IOC_NAME - 1] = 0;
	strcpy(out->name, li.li_name);
	memcpy(out->uuid, li.li_uuid, 16);
	out->is_rdonly = !!(li.li_state & MPOOL_IOC_POOL_RDONLY);
	out->is_faulted = !!(li.li_state & MPOOL_IOC_POOL_FAULT);
	out->is_trusted = !!(li.li_state & MPOOL_IOC_POOL_TRUSTED);
	out->opens = li.li_opens;
	return 0;
}
