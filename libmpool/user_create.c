/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Making and removing pools. Order at create: the directory, which no other creation has
 * until the end; every check on every member; files, pool.json; then what is overwritten
 * goes; then the core writes the superblocks, the last of which makes the pool exist. A failure
 * undoes what this call made and nothing else; after a crash in the middle the
 * left-over files are recognised as no pool and create may be repeated. Order at
 * destroy: the core first (durable), then the files, pool.json last but one, so
 * that an interrupted destroy can be repeated.
 *
 * Existing content is overwritten only where it is a left-over of an unfinished
 * create or destroy, or when the caller forces it.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "user_make.h"

/* what a file or device that exists already carries: pb_state 0 when nothing of ours */
static int probe_path(const char *path, struct mp_probe *pb, const char **why)
{
	struct mpl_low low;
	struct mpl_dev dev;
	int rc = mpl_file_open(path, MPL_FILE_RDONLY, 0, &low, why);

	if (rc)
		return rc;
	mpl_dev_init(&dev, &low, path, 0, 0);
	rc = mp_probe(&dev.md_core, pb);
	mpl_dev_fini(&dev);
	os_user_error_clear();
	if (rc)
		pb->pb_state = 0;
	return 0;
}

#define STATE_CREATING	1u	/* pb_state */
#define STATE_ACTIVE	2u

/* a member of a pool, or perhaps one: added a moment before a crash */
static int is_member(const struct mp_probe *pb)
{
	return pb->pb_state == STATE_ACTIVE || (pb->pb_state == STATE_CREATING && pb->pb_gen > 2);
}

/* 1: space may be reserved, but nothing was ever written; 0: else, or unknown */
static int is_unwritten(int fd)
{
	enum { N = 64 };
	struct fiemap *fm = calloc(1, sizeof(*fm) + N * sizeof(fm->fm_extents[0]));
	int empty = fm != NULL, done = 0;
	uint32_t i;

	while (empty && !done) {
		fm->fm_length = FIEMAP_MAX_OFFSET - fm->fm_start;
		fm->fm_flags = FIEMAP_FLAG_SYNC;
		fm->fm_extent_count = N;
		if (ioctl(fd, FS_IOC_FIEMAP, fm)) {
			empty = 0;
			break;
		}
		/* none at all would contradict SEEK_DATA */
		done = !fm->fm_mapped_extents;
		empty = !done || fm->fm_start;
		for (i = 0; i < fm->fm_mapped_extents; i++) {
			const struct fiemap_extent *e = &fm->fm_extents[i];

			empty &= !!(e->fe_flags & FIEMAP_EXTENT_UNWRITTEN);
			done |= !!(e->fe_flags & FIEMAP_EXTENT_LAST);
			fm->fm_start = e->fe_logical + e->fe_length;
		}
	}
	free(fm);
	return empty;
}

/*
 * 1 when a file holds no data at all: what a crash leaves before the first write. Space that
 * was reserved counts as data for SEEK_DATA once it was read into the page cache, by the
 * search for signatures for one.
 */
static int file_is_hole(const char *path)
{
	int fd = mpool_fd_up(open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)), empty;

	if (fd < 0)
		return 0;
	empty = (lseek(fd, 0, SEEK_DATA) < 0 && errno == ENXIO) || is_unwritten(fd);
	close(fd);
	return empty;
}

/* 1 when all that was written to a file are superblocks of a create that was cut */
static int is_unborn(const char *path)
{
	struct mpl_low low;
	struct mpl_dev dev;
	const char *why;
	int unborn;

	if (mpl_file_open(path, MPL_FILE_RDONLY, 0, &low, &why))
		return 0;
	mpl_dev_init(&dev, &low, path, 0, 0);
	unborn = mp_is_unborn(&dev.md_core);
	mpl_dev_fini(&dev);
	os_user_error_clear();
	return unborn;
}

/* An existing member: decides what it is and refuses what must not be touched. */
static int member_existing(struct creation *cr, struct member *mm, const struct stat *st)
{
	int force = !!(cr->cr_opts->flags & MPOOL_CREATE_FORCE), rc;
	char what[160] = "";
	struct mp_probe pb;
	const char *why;

	if (!S_ISREG(st->st_mode) && !S_ISBLK(st->st_mode))
		return mpl_err_as(MPL_DEVOPEN, -EINVAL, "%s is neither a file nor a block device",
				  mm->mm_path);
	mm->mm_kind = S_ISBLK(st->st_mode) ? MEMBER_BLOCK : MEMBER_LEFTOVER;
	rc = probe_path(mm->mm_path, &pb, &why);
	if (rc)
		return rc == -EBUSY ? mpl_err(MPL_BUSY, "%s is in use: %s", mm->mm_path, why) :
		       mpl_err_as(MPL_DEVOPEN, rc, "%s cannot be opened: %s", mm->mm_path, why);
	/* an add of it to this pool was cut short; members, and copies of them, are active */
	if (pb.pb_state == STATE_CREATING && cr->cr_old && !memcmp(pb.pb_uuid, cr->cr_uuid, 16))
		return 0;
	if (is_member(&pb))
		return mpl_err(MPL_EXISTS, "%s belongs to a pool", mm->mm_path);
	if (pb.pb_state)
		return 0;
	rc = mpl_sigcheck(mm->mm_path, what, sizeof(what), &mm->mm_id);
	if (rc == -EPERM && !force)
		return mpl_err(MPL_FOREIGN, "%s holds %s; nothing was written", mm->mm_path, what);
	mm->mm_is_signed = rc == -EPERM;
	if (rc && rc != -EPERM)
		return mpl_err_as(MPL_DEVOPEN, rc, "%s cannot be examined: %s", mm->mm_path,
				  strerror(-rc));
	if (mm->mm_kind == MEMBER_LEFTOVER && !force && !mm->mm_is_adding &&
	    !file_is_hole(mm->mm_path) && !is_unborn(mm->mm_path))
		return mpl_err(MPL_EXISTS, "%s exists and is not empty", mm->mm_path);
	return 0;
}

/* one file or device by two names? One that is not there is none */
static int is_same(const char *a, const char *b)
{
	struct stat sa, sb;

	if (!strcmp(a, b))
		return 1;
	if (stat(a, &sa) || stat(b, &sb))
		return 0;
	if (S_ISBLK(sa.st_mode) && S_ISBLK(sb.st_mode))
		return sa.st_rdev == sb.st_rdev;
	return sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

/* -EEXIST: an add names a device that the pool has */
static int old_check(const struct creation *cr, struct member *mm)
{
	char path[PATH_MAX];
	unsigned i;

	for (i = 0; cr->cr_old && i < cr->cr_old->cf_ndevs; i++) {
		const struct mpl_cfg_dev *cd = &cr->cr_old->cf_dev[i];

		if (mpl_cfg_path(cr->cr_pool, cr->cr_opts->provider, cd->cd_path, path,
				 sizeof(path)) ||
		    (cr->cr_opts->provider ? strcmp(path, mm->mm_path) :
					     !is_same(path, mm->mm_path)))
			continue;
		if (!cd->cd_is_adding)
			return -EEXIST;
		mm->mm_is_adding = 1;
	}
	return 0;
}

/* A misspelt device must not become a file, which would lie in memory there. */
static int is_for_devices(const char *path)
{
	return !strncmp(path, "/dev/", 5) && strncmp(path, "/dev/shm/", 9);
}

#define DIR_MAX	(PATH_MAX + 2)

/* @path, shorter than PATH_MAX, without slashes at its end, as its folder and the name in there */
static int path_split(const char *path, char dir[DIR_MAX], char **name)
{
	char *end;

	snprintf(dir, DIR_MAX, "%s%s", *path == '/' ? "" : "./", path);
	for (end = dir + strlen(dir); end > dir + 1 && end[-1] == '/'; end--)
		end[-1] = 0;
	/* there is one */
	end = strrchr(dir, '/');
	*end = 0;
	*name = end + 1;
	return **name ? 0 : -EINVAL;
}

/*
 * Has one folder that name, by two paths? There need not be a file yet; nor the folder, with @up 1:
 * it may be the pool's.
 */
static int is_same_place(const char *a, const char *b, int up)
{
	char adir[DIR_MAX], bdir[DIR_MAX], *aname, *bname;

	if (path_split(a, adir, &aname) || path_split(b, bdir, &bname) || strcmp(aname, bname))
		return 0;
	return is_same(*adir ? adir : "/", *bdir ? bdir : "/") ||
	       (up && *adir && *bdir && is_same_place(adir, bdir, up - 1));
}

/* Whether a file can be made there is asked before anything is. */
static int folder_check(const struct creation *cr, const struct member *mm)
{
	char dir[DIR_MAX], *name;
	struct stat st;
	int rc = path_split(mm->mm_path, dir, &name);

	if (!rc && stat(*dir ? dir : "/", &st))
		rc = errno == ENOENT && is_same_place(cr->cr_pool, dir, 0) ? 0 : -errno;
	else if (!rc && !S_ISDIR(st.st_mode))
		rc = -ENOTDIR;
	else if (!rc && access(*dir ? dir : "/", W_OK | X_OK))
		rc = -errno;
	return rc ? mpl_err_as(MPL_DEVOPEN, rc, "%s cannot be made: %s", mm->mm_path,
			       strerror(-rc)) : 0;
}

/* Nor may it be where the pool notes its members. */
static int twice_check(const struct creation *cr, unsigned i)
{
	static const char *const own[] = { MPL_CFG_NAME, MPL_CFG_TEMP };
	const char *path = cr->cr_member[i].mm_path;
	char file[PATH_MAX];
	unsigned j;

	for (j = 0; j < i; j++) {
		const char *other = cr->cr_member[j].mm_path;

		if (cr->cr_opts->provider ? !strcmp(path, other) :
					    is_same(path, other) || is_same_place(path, other, 1))
			return mpl_err(MPL_SPEC, "%s is given twice", path);
	}
	for (j = 0; j < 2 && !cr->cr_opts->provider; j++)
		if (!mpl_cfg_path(cr->cr_pool, NULL, own[j], file, sizeof(file)) &&
		    is_same_place(path, file, 1))
			return mpl_err(MPL_SPEC, "%s is where the pool notes its members", path);
	return 0;
}

/* Relative to where the caller stands, unless it is a provider's. */
static int path_given(const struct creation *cr, const char *path, struct mpl_cfg_dev *cd)
{
	char cwd[PATH_MAX] = "";
	int n;

	if (!cr->cr_opts->provider && *path != '/') {
		path += 2 * !strncmp(path, "./", 2);
		if (!getcwd(cwd, sizeof(cwd)))
			return mpl_err_as(MPL_DIR, -errno, "%s: the current directory: %s", path,
					  strerror(errno));
	}
	n = snprintf(cd->cd_path, sizeof(cd->cd_path), "%s%s%s", cwd, *cwd ? "/" : "", path);
	return (unsigned)n < sizeof(cd->cd_path) ? 0 : -ENAMETOOLONG;
}

#define GROWS_FROM	(64ull << 20)	/* what begins smaller than this is for very little */

/* Where a file is, or will be: the pool's own folder may not be there yet. */
static int fs_near(const char *path, struct statvfs *fs)
{
	char dir[DIR_MAX], *slash;

	if (path_split(path, dir, &slash))
		return -ENOENT;
	while (statvfs(*dir ? dir : "/", fs)) {
		slash = strrchr(dir, '/');
		if (!slash)
			return -ENOENT;
		*slash = 0;
	}
	return 0;
}

#define MD_MOST	(1ull << 30)	/* MP_MD_MAX of the core */

/* Of a log region, for what grows so far: objects of 256 KiB need 72 bytes each, see md_size(). */
static uint64_t md_part(const char *path, uint64_t max)
{
	struct statvfs fs;

	if (max == MPOOL_GROW_AUTO)
		max = fs_near(path, &fs) ? 0 : (uint64_t)fs.f_blocks * fs.f_frsize;
	return max >> 11 < MD_MOST ? max >> 11 : MD_MOST;
}

/*
 * What grows later begins no larger than the file system has room for, and the log of what it may
 * become besides: both regions lie in the first half.
 */
static uint64_t fit_below(const char *path, uint64_t size, uint64_t max)
{
	uint64_t room, keep;
	struct statvfs fs;

	if (!fs_near(path, &fs)) {
		keep = max == MPOOL_GROW_AUTO ? (uint64_t)fs.f_blocks / 10 : 0;
		room = fs.f_bavail > keep ? (fs.f_bavail - keep) * fs.f_frsize : 0;
		if (room < GROWS_FROM)
			room = GROWS_FROM;
		size = size < room ? size : room;
	}
	size += 4 * md_part(path, max);
	return (size < max ? size : max) & ~(uint64_t)(MPOOL_ALIGN - 1);
}

/* Of a log region: what a pool of the size that it may reach needs; 0: what the core says. */
static uint64_t md_bytes(const struct creation *cr)
{
	uint64_t size = cr->cr_set.st_core[0]->d_size, max = cr->cr_opts->grow_max, n = 0;

	if (!max)
		return 0;
	if (cr->cr_opts->provider && max == MPOOL_GROW_AUTO)
		return size / 16;
	for (unsigned i = 0; i < cr->cr_opts->ndevs; i++)
		if (cr->cr_member[i].mm_kind != MEMBER_BLOCK)
			n += md_part(cr->cr_member[i].mm_path, max);
	return n > size / 64 ? n : size / 64;
}

int mpl_member_check(struct creation *cr, unsigned i)
{
	static const char *const name[] = { "capacity", "staging" };
	const struct mpool_dev_spec *sp = &cr->cr_opts->devs[i];
	struct mpl_cfg_dev *cd = &cr->cr_cfg->cf_dev[i];
	struct member *mm = &cr->cr_member[i];
	unsigned j, nth = 0;
	struct stat st;
	int rc;

	if (sp->mclass >= MPOOL_MCLASSES)
		return mpl_err(MPL_SPEC, "device %u: no media class %u", i, sp->mclass);
	for (j = 0; j < i; j++)
		nth += cr->cr_opts->devs[j].mclass == sp->mclass;
	if (nth >= MPOOL_DEVS_MAX)
		return mpl_err(MPL_SPEC, "class %s: more than %d devices", name[sp->mclass],
			       MPOOL_DEVS_MAX);
	cd->cd_mclass = sp->mclass;
	cd->cd_size = sp->size & ~(uint64_t)(MPOOL_ALIGN - 1);
	if (sp->path) {
		rc = path_given(cr, sp->path, cd);
		if (rc)
			return rc;
	} else if (nth) {
		snprintf(cd->cd_path, sizeof(cd->cd_path), "%s-%u.mp", name[sp->mclass], nth + 1);
	} else {
		snprintf(cd->cd_path, sizeof(cd->cd_path), "%s.mp", name[sp->mclass]);
	}
	if (mpl_cfg_path(cr->cr_pool, cr->cr_opts->provider, cd->cd_path, mm->mm_path,
			 sizeof(mm->mm_path)))
		return -ENAMETOOLONG;
	rc = twice_check(cr, i);
	if (rc)
		return rc;
	if (old_check(cr, mm))
		return mpl_err(MPL_EXISTS, "%s is a member of this pool already", mm->mm_path);
	if (cr->cr_opts->provider) {
		mm->mm_kind = MEMBER_VDEV;
		return 0;
	}
	if (!lstat(mm->mm_path, &st) && S_ISLNK(st.st_mode) &&
	    (stat(mm->mm_path, &st) || !S_ISBLK(st.st_mode)))
		return mpl_err_as(MPL_DEVOPEN, -ELOOP, "%s is a symbolic link", mm->mm_path);
	if (!stat(mm->mm_path, &st)) {
		rc = member_existing(cr, mm, &st);
		if (rc)
			return rc;
	} else if (is_for_devices(mm->mm_path)) {
		return mpl_err_as(MPL_DEVOPEN, -ENOENT, "there is no device %s", mm->mm_path);
	}
	if (mm->mm_kind != MEMBER_BLOCK && cr->cr_opts->grow_max)
		cd->cd_size = fit_below(mm->mm_path, cd->cd_size, cr->cr_opts->grow_max);
	if (mm->mm_kind != MEMBER_BLOCK && cd->cd_size > INT64_MAX)
		return mpl_err(MPL_SPEC, "%s: no file has %llu bytes", mm->mm_path,
			       (unsigned long long)cd->cd_size);
	if (mm->mm_kind != MEMBER_BLOCK && cd->cd_size < MP_MIN_DEV)
		return mpl_err(MPL_SPEC, "%s: size %llu is below the smallest of %u bytes",
			       mm->mm_path, (unsigned long long)cd->cd_size, MP_MIN_DEV);
	return mm->mm_kind == MEMBER_BLOCK ? 0 : folder_check(cr, mm);
}

/* The directory must be usable before anything is made. */
static int dir_check(struct creation *cr)
{
	char up[PATH_MAX], *slash;
	struct stat st;

	if (!stat(cr->cr_pool, &st)) {
		if (!S_ISDIR(st.st_mode))
			return mpl_err_as(MPL_DIR, -ENOTDIR, "%s is not a directory", cr->cr_pool);
		if (access(cr->cr_pool, W_OK | X_OK))
			return mpl_err_as(MPL_DIR, -EACCES, "directory %s cannot be written: %s",
					  cr->cr_pool, strerror(errno));
		return 0;
	}
	if (errno != ENOENT)
		return mpl_err_as(MPL_DIR, -errno, "directory %s cannot be used: %s", cr->cr_pool,
				  strerror(errno));
	snprintf(up, sizeof(up), "%s", cr->cr_pool);	/* stat() takes none that is longer */
	while ((slash = strrchr(up, '/')) && slash > up && !slash[1])
		*slash = 0;
	if (slash == up)
		up[1] = 0;
	else if (slash)
		*slash = 0;
	if (access(slash ? up : ".", W_OK | X_OK))
		return mpl_err_as(MPL_DIR, -errno, "directory %s cannot be made in %s: %s",
				  cr->cr_pool, slash ? up : ".", strerror(errno));
	return 0;
}

static int folder_busy(const char *path)
{
	return mpl_err(MPL_BUSY, "another process makes or removes a pool in %s", path);
}

/*
 * What a creation has looked at is as it was until its end, and a folder that one made is not
 * another's: one at a time has a folder, from before its first look. -ENOENT: there is none.
 * One that cannot be opened the checks refuse, if they must; a file system may have no such lock.
 */
static int folder_lock(const char *path, int *out)
{
	int fd = mpool_fd_up(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	struct stat held, now;

	*out = -1;
	if (fd < 0)
		return errno == ENOENT ? -ENOENT : 0;
	/* the one that had it may have removed it */
	if ((TEMP_FAILURE_RETRY(flock(fd, LOCK_EX | LOCK_NB)) && errno == EWOULDBLOCK) ||
	    fstat(fd, &held) || stat(path, &now) || held.st_dev != now.st_dev ||
	    held.st_ino != now.st_ino) {
		close(fd);
		return folder_busy(path);
	}
	*out = fd;
	return 0;
}

static void folder_unlock(int fd)
{
	if (fd < 0)
		return;
	/* a child that was forked has it, too */
	flock(fd, LOCK_UN);
	close(fd);
}

/* It is made if it is not there. */
static int folder_take(struct creation *cr)
{
	int rc = folder_lock(cr->cr_pool, &cr->cr_folder), made;
	struct stat st;

	if (rc != -ENOENT)
		return rc;
	rc = dir_check(cr);
	if (rc)
		return rc;
	made = !mkdir(cr->cr_pool, 0700);
	if (!made && errno != EEXIST)
		return errno == ENOSPC || errno == EDQUOT ?
		       mpl_err(MPL_FULLFS, "the file system below is full: cannot make %s",
			       cr->cr_pool) :
		       mpl_err_as(MPL_DIR, -errno, "directory %s cannot be made: %s", cr->cr_pool,
				  strerror(errno));
	rc = folder_lock(cr->cr_pool, &cr->cr_folder);
	if (!rc)
		cr->cr_made_dir = made;
	if (rc != -ENOENT)
		return rc;
	/* a link to nothing; or the one that had it removed it */
	return !lstat(cr->cr_pool, &st) && S_ISLNK(st.st_mode) ?
	       mpl_err_as(MPL_DIR, rc, "directory %s cannot be used: %s", cr->cr_pool,
			  strerror(-rc)) : folder_busy(cr->cr_pool);
}

/* the last component of the path, unless a name is given */
static int name_choose(struct creation *cr)
{
	const char *s = cr->cr_opts->name, *path = cr->cr_pool;
	size_t len;

	if (s) {
		len = strlen(s);
	} else {
		for (len = strlen(path); len > 1 && path[len - 1] == '/'; len--)
			;
		for (s = path + len; s > path && s[-1] != '/'; s--)
			;
		len = (size_t)(path + len - s);
	}
	if (len > MPOOL_NAME_MAX)
		return mp_err(MP_NAME, "pool name \"%.*s\" is longer than %d bytes",
			      len > 40 ? 40 : (int)len, s, MPOOL_NAME_MAX);
	memcpy(cr->cr_name, s, len);
	cr->cr_name[len] = 0;
	return mp_name_check(cr->cr_name);
}

/* The path's, or else one of its own. */
static int name_make(struct creation *cr)
{
	int rc = name_choose(cr);
	char uuid[37];

	if (!rc || !(cr->cr_opts->flags & MPOOL_CREATE_ANY_NAME))
		return rc;
	os_user_error_clear();
	mp_uuid_text(cr->cr_uuid, uuid);
	snprintf(cr->cr_name, sizeof(cr->cr_name), "pool-%.18s", uuid);
	return 0;
}

static int create_check(struct creation *cr)
{
	const struct mpool_create_opts *o = cr->cr_opts;
	unsigned i, ncap = 0;
	int rc = name_make(cr);

	if (rc)
		return rc;
	if (o->label && strlen(o->label) > MPOOL_LABEL_MAX)
		return mpl_err(MPL_SPEC, "the label is longer than %d bytes", MPOOL_LABEL_MAX);
	/* the superblock's decoder accepts none either */
	for (i = 0; o->label && o->label[i]; i++)
		if ((unsigned char)o->label[i] < 0x20 || o->label[i] == 0x7f)
			return mpl_err(MPL_SPEC, "the label holds a control character");
	if (o->mode > 0777)
		return mpl_err(MPL_SPEC, "mode 0%o is not in 0 .. 0777", o->mode);
	/* a plan does not come to the core */
	for (i = 0; i < MPOOL_MCLASSES; i++)
		if (o->spare_pct[i] > 90)
			return mpl_err(MPL_SPEC, "spare of %u percent is more than 90",
				       o->spare_pct[i]);
	if (!o->provider)
		rc = dir_check(cr);
	for (i = 0; i < o->ndevs && !rc; i++) {
		rc = mpl_member_check(cr, i);
		ncap += o->devs[i].mclass == MPOOL_CAPACITY;
	}
	if (!rc && !ncap)
		rc = mpl_err(MPL_SPEC, "a pool needs a device of class capacity");
	if (!rc)
		mpl_paths_shorten(cr);
	return rc;
}

/* A pool.json that names a live member means: there is a pool. */
static int pool_absent(struct creation *cr)
{
	const struct mpool_dev_provider *pv = cr->cr_opts->provider;
	struct mpl_cfg *cf;
	char path[PATH_MAX];
	struct mp_probe pb;
	const char *why;
	unsigned i;
	int rc = mpl_cfg_load(cr->cr_pool, pv, &cf);

	if (rc == -ENAMETOOLONG)
		return rc;
	os_user_error_clear();
	if (rc)
		return rc == -ENOENT ? 0 : mpl_err(MPL_EXISTS, "%s has a %s already", cr->cr_pool,
						   MPL_CFG_NAME);
	for (i = 0; i < cf->cf_ndevs && !rc && !pv; i++) {
		if (mpl_cfg_path(cr->cr_pool, pv, cf->cf_dev[i].cd_path, path, sizeof(path)))
			continue;
		rc = probe_path(path, &pb, &why);
		if (rc == -EBUSY || (!rc && is_member(&pb)))
			rc = mpl_err(MPL_EXISTS, "%s is a pool already", cr->cr_pool);
		else
			rc = 0;
	}
	mpl_cfg_free(cf);
	return rc;
}

static int is_named(const struct creation *cr, const char *cfg_path, const char *path)
{
	unsigned i;

	for (i = 0; i < cr->cr_opts->ndevs; i++)
		if (!strcmp(cr->cr_member[i].mm_path, path) ||
		    !strcmp(cr->cr_cfg->cf_dev[i].cd_path, cfg_path))
			return 1;
	return 0;
}

/*
 * Nor is there none when a member cannot be looked at, its disk not mounted say, or is no longer
 * what it was: with its pool.json it would be forgotten. What this call makes itself a cut one may
 * have named.
 */
static int pool_forgotten(struct creation *cr)
{
	struct mpl_cfg *cf;
	char path[PATH_MAX];
	struct mp_probe pb;
	const char *why;
	unsigned i;
	int rc = mpl_cfg_load(cr->cr_pool, NULL, &cf), bad;

	os_user_error_clear();
	if (rc)
		return 0;
	for (i = 0; i < cf->cf_ndevs && !rc; i++) {
		if (mpl_cfg_path(cr->cr_pool, NULL, cf->cf_dev[i].cd_path, path, sizeof(path)) ||
		    cf->cf_dev[i].cd_is_adding || is_named(cr, cf->cf_dev[i].cd_path, path))
			continue;
		bad = probe_path(path, &pb, &why);
		if (!bad && !pb.pb_state && !file_is_hole(path) && !is_unborn(path))
			rc = mpl_err(MPL_EXISTS, "%s is a pool already, whose member %s is not "
				     "whole, or something else", cr->cr_pool, path);
		if (bad)
			rc = mpl_err(MPL_EXISTS, "%s is a pool already, whose member %s cannot be "
				     "looked at: %s", cr->cr_pool, path,
				     *why ? why : strerror(-bad));
	}
	mpl_cfg_free(cf);
	return rc;
}

/* ---- making ---- */

/* Beside the file that it is to replace; one that a crash left there holds nothing. */
static int temp_name(struct member *mm, const char **why)
{
	struct mp_probe pb;
	int rc;

	snprintf(mm->mm_temp, sizeof(mm->mm_temp), "%s.new", mm->mm_path);
	if (access(mm->mm_temp, F_OK))
		return 0;
	rc = probe_path(mm->mm_temp, &pb, why);	/* -EBUSY: another process makes it */
	if (!rc && !file_is_hole(mm->mm_temp)) {
		*why = "there is a file of that name with .new behind it";
		rc = -EEXIST;
	}
	if (!rc && unlink(mm->mm_temp))
		rc = -errno;
	if (rc)
		mm->mm_temp[0] = 0;
	return rc;
}

int mpl_member_make(struct creation *cr, unsigned i)
{
	const struct mpool_dev_provider *pv = cr->cr_opts->provider;
	struct mpl_cfg_dev *cd = &cr->cr_cfg->cf_dev[i];
	struct member *mm = &cr->cr_member[i];
	const char *why = "";
	struct mpl_low low;
	int rc = 0;

	if (mm->mm_kind == MEMBER_VDEV) {
		memset(&low, 0, sizeof(low));
		low.lo_sector = MP_SECTOR;
		low.lo_is_direct = 1;
		/* one that exists is not ours to remove when this create fails */
		rc = pv->open(pv->ctx, mm->mm_path, 0, 0, cd->cd_size, &low.lo_vdev);
		if (rc == -ENOENT) {
			mm->mm_kind = MEMBER_NEW;
			rc = pv->open(pv->ctx, mm->mm_path, 1, 0, cd->cd_size, &low.lo_vdev);
		}
	} else {
		if (mm->mm_kind == MEMBER_LEFTOVER)
			rc = temp_name(mm, &why);
		if (!rc)
			rc = mpl_file_open(mm->mm_temp[0] ? mm->mm_temp : mm->mm_path,
					   mm->mm_kind == MEMBER_BLOCK ? 0 : MPL_FILE_CREATE,
					   cd->cd_size, &low, &why);
	}
	if (rc == -EBUSY)
		return mpl_err(MPL_BUSY, "%s is in use: %s", mm->mm_path, why);
	if (rc == -ENOSPC)
		return mpl_err(MPL_FULLFS, "the file system below cannot hold %s of %llu bytes: %s",
			       mm->mm_path, (unsigned long long)cd->cd_size,
			       *why ? why : "it is full");
	if (rc)
		return mpl_err_as(MPL_DEVOPEN, rc, "%s cannot be made: %s", mm->mm_path,
				  *why ? why : strerror(-rc));
	mm->mm_is_made = mm->mm_kind != MEMBER_BLOCK && mm->mm_kind != MEMBER_VDEV;
	cd->cd_size = low.lo_vdev.size;
	return mpl_set_add(&cr->cr_set, &low, mm->mm_path, cd->cd_mclass, NULL);
}

/* the entries of new files, wherever they are, are durable */
static int dirs_sync(const struct creation *cr)
{
	char dir[PATH_MAX];
	unsigned i;
	int rc = 0;

	for (i = 0; i < cr->cr_opts->ndevs && !rc; i++) {
		char *slash;

		if (!cr->cr_member[i].mm_is_made || cr->cr_opts->provider)
			continue;
		strcpy(dir, cr->cr_member[i].mm_path);
		slash = strrchr(dir, '/');
		slash[slash == dir] = 0;
		rc = mpl_dir_sync(dir);
		if (rc == -EACCES)
			rc = 0; /* may be searched but not read */
	}
	return rc ? mpl_err_as(MPL_DIR, rc, "directory %s cannot be synced: %s", dir,
			       strerror(-rc)) : 0;
}

int mpl_members_take(struct creation *cr)
{
	unsigned i;
	int rc = 0;

	for (i = 0; i < cr->cr_opts->ndevs && !rc; i++) {
		struct member *mm = &cr->cr_member[i];

		if (mm->mm_is_signed && mm->mm_kind == MEMBER_BLOCK)
			rc = mpl_sigwipe(mm->mm_path, 1, &mm->mm_id);
		if (mm->mm_temp[0] && rename(mm->mm_temp, mm->mm_path))
			rc = -errno;
		if (rc)
			return mpl_err_as(MPL_DEVOPEN, rc, "%s cannot be made: %s", mm->mm_path,
					  strerror(-rc));
		mm->mm_temp[0] = 0;
	}
	return dirs_sync(cr);
}

void mpl_paths_shorten(const struct creation *cr)
{
	char dir[PATH_MAX], *slash;
	struct stat a, b;
	unsigned i;

	if (cr->cr_opts->provider || stat(cr->cr_pool, &a))
		return;
	for (i = 0; i < cr->cr_opts->ndevs; i++) {
		if (cr->cr_member[i].mm_kind == MEMBER_BLOCK)
			continue;
		strcpy(dir, cr->cr_member[i].mm_path);
		slash = strrchr(dir, '/');
		*slash = 0;
		if (stat(slash == dir ? "/" : dir, &b) || a.st_dev != b.st_dev ||
		    a.st_ino != b.st_ino)
			continue;
		snprintf(cr->cr_cfg->cf_dev[i].cd_path, sizeof(cr->cr_cfg->cf_dev[i].cd_path),
			 "%s", slash + 1);
	}
}

static int create_core(struct creation *cr, uint32_t flags)
{
	const struct mpool_create_opts *o = cr->cr_opts;
	struct mp_create c = {
		.mc_name = cr->cr_name,
		.mc_label = o->label,
		/* without an owner given a user's pool is the user's, not root's */
		.mc_uid = o->uid || !geteuid() ? o->uid : geteuid(),
		.mc_gid = o->gid || !geteuid() ? o->gid : getegid(),
		.mc_mode = o->mode ? o->mode : 0600,
		.mc_ndevs = cr->cr_set.st_n,
		.mc_dev = cr->cr_set.st_core,
		.mc_md_bytes = md_bytes(cr),
		.mc_flags = flags | (o->flags & MPOOL_CREATE_FORCE ? MP_CREATE_FORCE : 0) |
			    (mpl_create_is_multihost(o) ? MP_CREATE_MULTIHOST : 0),
	};
	u32 *mclass = calloc(o->ndevs, sizeof(*mclass));
	unsigned i;
	int rc;

	if (!mclass)
		return -ENOMEM;
	for (i = 0; i < o->ndevs; i++)
		mclass[i] = o->devs[i].mclass;
	for (i = 0; i < MPOOL_MCLASSES; i++)
		c.mc_spare_pct[i] = o->spare_pct[i];
	c.mc_mclass = mclass;
	memcpy(c.mc_uuid, cr->cr_uuid, 16);
	rc = mp_pool_create(&c);
	free(mclass);
	return rc;
}

/*
 * Files go while they are locked, pool.json before them: another create at the same place
 * finds them in use until nothing is left that this call would take from it.
 */
void mpl_creation_undo(struct creation *cr)
{
	const struct mpool_dev_provider *pv = cr->cr_opts->provider;
	unsigned i;

	if (pv)
		mpl_set_close(&cr->cr_set);
	if (cr->cr_made_cfg)
		mpl_cfg_remove(cr->cr_pool, pv);
	for (i = 0; i < cr->cr_opts->ndevs; i++) {
		const struct member *mm = &cr->cr_member[i];

		if (!mm->mm_is_made)
			continue;
		if (pv && pv->remove)
			pv->remove(pv->ctx, mm->mm_path);
		else if (!pv)
			unlink(mm->mm_temp[0] ? mm->mm_temp : mm->mm_path);
	}
	mpl_set_close(&cr->cr_set);
	if (cr->cr_made_dir)
		rmdir(cr->cr_pool);
}

static int create_make(struct creation *cr)
{
	const struct mpool_create_opts *o = cr->cr_opts;
	int rc = mpl_set_alloc(&cr->cr_set, o->ndevs);
	unsigned i;

	for (i = 0; i < o->ndevs && !rc; i++)
		rc = mpl_member_make(cr, i);
	/* the core's checks come before the first change */
	if (!rc)
		rc = create_core(cr, MP_CREATE_PLAN);
	if (rc)
		return rc;
	cr->cr_made_cfg = 1;
	rc = mpl_cfg_store(cr->cr_pool, o->provider, cr->cr_cfg);
	if (!rc && cr->cr_made_dir) {
		char up[PATH_MAX + 4];

		snprintf(up, sizeof(up), "%s/..", cr->cr_pool);
		rc = mpl_dir_sync(up);
		if (rc == -EACCES)
			rc = 0; /* a parent that may be searched but not read */
	}
	if (!rc)
		rc = mpl_members_take(cr);
	return rc ? rc : create_core(cr, 0);
}

static int uuid_make(uint8_t uuid[16])
{
	int rc = mp_random(uuid, 16);

	uuid[6] = (uint8_t)((uuid[6] & 0x0f) | 0x40);
	uuid[8] = (uint8_t)((uuid[8] & 0x3f) | 0x80);
	return rc;
}

static int checks(struct creation *cr)
{
	int rc = pool_absent(cr);

	if (!rc)
		rc = uuid_make(cr->cr_uuid);
	if (!rc)
		rc = create_check(cr);
	if (!rc && !cr->cr_opts->provider)
		rc = pool_forgotten(cr);
	return rc;
}

static int create_taken(struct creation *cr)
{
	int rc = checks(cr);

	if (!rc) {
		mp_uuid_text(cr->cr_uuid, cr->cr_cfg->cf_uuid);
		strcpy(cr->cr_cfg->cf_name, cr->cr_name);
		cr->cr_cfg->cf_grow_max = cr->cr_opts->grow_max;
		rc = create_make(cr);
	}
	if (rc)
		mpl_creation_undo(cr);
	else
		mpl_set_close(&cr->cr_set);
	return rc;
}

int mpl_user_create(const char *path, const struct mpool_create_opts *opts)
{
	struct creation cr = { .cr_pool = path, .cr_opts = opts, .cr_folder = -1 };
	int rc;

	if (opts->ndevs > MPL_CFG_DEVS)
		return mpl_err(MPL_SPEC, "%u devices are more than %d", opts->ndevs, MPL_CFG_DEVS);
	cr.cr_cfg = mpl_cfg_new(opts->ndevs);
	cr.cr_member = calloc(opts->ndevs, sizeof(*cr.cr_member));
	rc = cr.cr_cfg && cr.cr_member ? 0 : -ENOMEM;
	if (!rc && opts->flags & MPOOL_CREATE_PLAN) {
		rc = checks(&cr);
	} else if (!rc) {
		rc = opts->provider ? 0 : folder_take(&cr);
		if (!rc)
			rc = create_taken(&cr);
		folder_unlock(cr.cr_folder);
	}
	mpl_cfg_free(cr.cr_cfg);
	free(cr.cr_member);
	return rc;
}

/* ---- destroy ---- */

static int remove_check(const char *dir, const char *name)
{
	if (!access(*dir ? dir : "/", W_OK | X_OK))
		return 0;
	return mpl_err_as(MPL_DIR, -errno, "%s/%s cannot be removed: %s", dir, name,
			  strerror(errno));
}

/* Whether the files can be removed is asked before the pool is gone. */
static int destroy_check(const char *path, char (*made)[PATH_MAX], unsigned n)
{
	char dir[PATH_MAX], *slash;
	int rc = remove_check(path, MPL_CFG_NAME);
	unsigned i;

	for (i = 0; i < n && !rc; i++) {
		strcpy(dir, made[i]);
		slash = strrchr(dir, '/');
		*slash = 0;
		rc = remove_check(dir, slash + 1);
	}
	return rc;
}

static int file_remove(const struct mpool_dev_provider *pv, const char *file)
{
	int rc = 0;

	if (pv && pv->remove)
		rc = pv->remove(pv->ctx, file);
	else if (!pv && unlink(file) && errno != ENOENT)
		rc = -errno;
	return rc ? mpl_err_as(MPL_DIR, rc, "%s cannot be removed: %s", file, strerror(-rc)) : 0;
}

/* It stays when it holds anything else, and so does a link to it, which is not ours. */
static void dir_remove(const char *path)
{
	char real[PATH_MAX];

	if (rmdir(path) && errno == ENOTDIR && realpath(path, real))
		rmdir(real);
}

/*
 * Removes the files of the members; block devices stay. The first is the last: as long
 * as there is a pool.json it says that the pool was destroyed, and alone it is in no way.
 */
static int destroy_files(const char *path, const struct mpool_dev_provider *pv,
			 char (*made)[PATH_MAX], unsigned n)
{
	unsigned i;
	int rc;

	for (i = n; i > 1; i--) {
		rc = file_remove(pv, made[i - 1]);
		if (rc)
			return rc;
	}
	rc = mpl_cfg_remove(path, pv);
	if (rc)
		return mpl_err_as(MPL_DIR, rc, "%s/%s cannot be removed: %s", path, MPL_CFG_NAME,
				  strerror(-rc));
	return n ? file_remove(pv, made[0]) : 0;
}

int mpl_user_destroy(const char *path, const struct mpool_open_opts *opts)
{
	struct mpool_open_opts o = *opts;
	char (*made)[PATH_MAX];
	struct mpl_set set;
	struct mp_probe pb;
	unsigned i, n = 0;
	int rc, folder;

	o.dev = "";
	rc = mpl_set_open(path, &o, MPL_SET_PARTIAL, &set);
	if (rc)
		return rc;
	made = calloc(set.st_n ? set.st_n : 1, sizeof(*made));
	if (!made) {
		mpl_set_close(&set);
		return -ENOMEM;
	}
	/* only files that are this pool's members are removed afterwards */
	for (i = 0; i < set.st_n; i++) {
		if ((set.st_core[i]->d_flags & MP_DEV_IS_BLOCK) || mp_probe(set.st_core[i], &pb))
			continue;
		strcpy(made[n++], set.st_dev[i]->md_path);
		/* erased it would belong to no pool, and stay when a crash cuts the removal */
		if (!opts->provider)
			set.st_core[i]->d_flags |= MP_DEV_GOES;
	}
	os_user_error_clear();
	if (!opts->provider)
		rc = destroy_check(path, made, n);
	if (set.st_n && !rc)
		rc = mp_pool_destroy(set.st_core, set.st_n);
	/* locked until they are gone: else another create, which takes the names, loses its own */
	if (opts->provider)
		mpl_set_close(&set);
	if (!rc)
		rc = destroy_files(path, opts->provider, made, n);
	mpl_set_close(&set);
	/* one that another creation has is its */
	if (!rc && !opts->provider && !folder_lock(path, &folder)) {
		dir_remove(path);
		folder_unlock(folder);
	}
	if (!rc)
		os_user_error_clear();
	free(made);
	return rc;
}
