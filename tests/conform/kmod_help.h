/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The conformance tests on pools of the kernel module: with MPOOL_TEST_KMOD=1 (as
 * root, module and null_blk loaded, configfs mounted) a test's pool is a name,
 * its members are null_blk devices in memory of the size that the test asks for,
 * and a fresh open is one of a pool that was deactivated and activated.
 *
 * MPOOL_TEST_USER=UID:GID lets the test run as that user with pools of mode 0660
 * of that group; only making, activating and verifying them is root's.
 */
#ifndef TESTS_KMOD_HELP_H
#define TESTS_KMOD_HELP_H

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <mpool/mpool.h>

#include "harness.h"

#define TH_NULLB "/sys/kernel/config/nullb"

static char th_dev[2][64];	/* by class; "" = none */
static char th_pool[512];
static unsigned th_uid, th_gid;

static inline int th_is_kmod(void)
{
	const char *s = getenv("MPOOL_TEST_KMOD");

	return s && *s == '1';
}

/* ---- users ---- */

static inline void th_user_init(void)
{
	const char *s = getenv("MPOOL_TEST_USER");

	if (s && !th_uid && sscanf(s, "%u:%u", &th_uid, &th_gid) != 2)
		th_uid = 0;
}

/* from here to th_user() as root, when the test runs as a user */
static inline void th_root(void)
{
	if (th_uid && seteuid(0))
		exit(1);
}

static inline void th_user(void)
{
	gid_t gid = th_gid;

	if (th_uid && (setgroups(1, &gid) || setegid(th_gid) || seteuid(th_uid)))
		exit(1);
}

/* ---- devices ---- */

static inline int th_attr(const char *dev, const char *attr, uint64_t value)
{
	char path[256];
	FILE *f;
	int bad;

	snprintf(path, sizeof(path), TH_NULLB "/%s/%s", dev, attr);
	f = fopen(path, "we");
	if (!f)
		return -1;
	bad = fprintf(f, "%llu\n", (unsigned long long)value) < 0;
	return fclose(f) || bad ? -1 : 0;
}

static inline const char *th_dev_name(int mclass)
{
	return strrchr(th_dev[mclass], '/') + 1;
}

static inline void th_dev_del(int mclass)
{
	char path[256];

	if (!*th_dev[mclass])
		return;
	th_attr(th_dev_name(mclass), "power", 0);
	snprintf(path, sizeof(path), TH_NULLB "/%s", th_dev_name(mclass));
	if (rmdir(path))
		printf("# %s cannot be removed: %s\n", path, strerror(errno));
	*th_dev[mclass] = 0;
}

/* The device of a class, made when there is none; NULL where files are tested. */
static inline const char *th_dev_make(int mclass, uint64_t bytes)
{
	static unsigned serial;
	char path[256];

	if (!th_is_kmod())
		return NULL;
	if (*th_dev[mclass])
		return th_dev[mclass];
	th_root();
	snprintf(th_dev[mclass], sizeof(th_dev[mclass]), "/dev/mpt%d-%u", (int)getpid(),
		 serial++);
	snprintf(path, sizeof(path), TH_NULLB "/%s", th_dev_name(mclass));
	if (mkdir(path, 0755) || th_attr(th_dev_name(mclass), "size", bytes >> 20) ||
	    th_attr(th_dev_name(mclass), "blocksize", 4096) ||
	    th_attr(th_dev_name(mclass), "memory_backed", 1) ||
	    th_attr(th_dev_name(mclass), "discard", 1) ||
	    th_attr(th_dev_name(mclass), "power", 1)) {
		printf("Bail out! %s cannot be made: %s\n", path, strerror(errno));
		exit(1);
	}
	th_user();
	return th_dev[mclass];
}

/*
 * The file or device that is the capacity member, for a test that looks below
 * the pool. The kernel's cache of a device is emptied.
 */
static inline const char *th_member(char path[600])
{
	int fd;

	if (!th_is_kmod()) {
		snprintf(path, 600, "%s/capacity.mp", th_pool);
		return path;
	}
	th_root();
	fd = open(th_dev[MPOOL_CAPACITY], O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fsync(fd) || ioctl(fd, BLKFLSBUF, 0))
		printf("# %s: %s\n", th_dev[MPOOL_CAPACITY], strerror(errno));
	close(fd);
	th_user();
	return th_dev[MPOOL_CAPACITY];
}

/* ---- pools ---- */

/*
 * The rings of a process that died, and the files in them, end a little later
 * than it does.
 */
static inline int th_deactivate(void)
{
	const struct timespec nap = { .tv_nsec = 10000000 };
	int i, rc = -EBUSY;

	th_root();
	for (i = 0; i < 200 && rc == -EBUSY; i++) {
		rc = mpool_deactivate(th_pool);
		if (rc == -EBUSY)
			nanosleep(&nap, NULL);
	}
	th_user();
	return rc;
}

/* A fresh open shall follow: the module forgets what it knew of the pool. */
static inline void th_again(void)
{
	const char *dev[2] = { th_dev[0], th_dev[1] };
	char name[MPOOL_NAME_MAX + 1];
	int rc;

	if (!th_is_kmod() || !*th_dev[0] || strchr(th_pool, '/') || th_deactivate())
		return;
	th_root();
	rc = mpool_activate(dev, *th_dev[1] ? 2 : 1, MPOOL_ACTIVATE_TRUST, name);
	if (rc)
		printf("# activate: %d %s\n", rc, mpool_error_detail()->text);
	th_user();
	T_EQ(rc, 0);
	T_STREQ(name, th_pool);
}

static inline void th_kmod_clean(void)
{
	int rc;

	if (!th_is_kmod() || !*th_pool)
		return;
	rc = th_deactivate();
	if (rc && rc != -ENOENT)
		printf("# pool %s stays active: %s\n", th_pool, mpool_error_detail()->text);
	*th_pool = 0;
	th_root();
	if (!rc || rc == -ENOENT) {
		th_dev_del(0);
		th_dev_del(1);
	}
	*th_dev[0] = *th_dev[1] = 0;
	th_user();
}

#endif
