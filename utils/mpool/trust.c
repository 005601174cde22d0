/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The pools that this machine trusts: empty but for a comment, one file each.
 *
 * A file counts only when it and its folder belong to root (or to the caller,
 * for trials in another folder) and no other user may write them: otherwise any
 * user could have a stick activated with an owner of its choice.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"
#include "members.h"
#include "size.h"

#define TRUST_DIR "/etc/mpool/pools.d"

const char *trust_dir(void)
{
	const char *dir = secure_getenv("MPOOL_TRUST_DIR");

	return dir && *dir ? dir : TRUST_DIR;
}

static bool is_safe(int fd, mode_t type)
{
	struct stat st;

	return !fstat(fd, &st) && (st.st_mode & S_IFMT) == type &&
	       (st.st_uid == 0 || st.st_uid == geteuid()) && !(st.st_mode & 022);
}

/* The folder, made when @is_new; its parent too. */
static int trust_open(bool is_new)
{
	const char *dir = trust_dir();
	char up[POOL_PATH_MAX], *slash;
	int fd;

	if (is_new) {
		snprintf(up, sizeof(up), "%s", dir);
		slash = strrchr(up, '/');
		if (slash && slash != up) {
			*slash = '\0';
			/* the umask is 077, and others may read what is trusted */
			if (!mkdir(up, 0755) && chmod(up, 0755))
				return -errno;
		}
		if (!mkdir(dir, 0755) && chmod(dir, 0755))
			return -errno;
	}
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (!is_safe(fd, S_IFDIR)) {
		close(fd);
		return -EPERM;
	}
	return fd;
}

bool trust_has(const uint8_t uuid[16])
{
	char name[UUID_STR];
	int dir = trust_open(false), fd = -1;
	bool is_there = false;

	if (dir >= 0)
		fd = openat(dir, uuid_str(name, uuid),
			    O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (fd >= 0) {
		is_there = is_safe(fd, S_IFREG);
		close(fd);
	}
	if (dir >= 0)
		close(dir);
	return is_there;
}

/* What is in the folder is durable, also where it and the one above it are new. */
static int folder_sync(int dir)
{
	int up = openat(dir, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = file_sync(dir);

	if (!rc)
		rc = file_sync_entry(dir);
	if (!rc && up >= 0)
		rc = file_sync_entry(up);
	if (up >= 0)
		close(up);
	return rc;
}

/* Whole or not at all: that the file is there says that the pool is trusted. */
static int trust_write(int dir, const char *uuid, const char *name)
{
	char text[128], tmp[UUID_STR + 4];
	int n = snprintf(text, sizeof(text), "# pool %s\n", name), rc, fd;

	snprintf(tmp, sizeof(tmp), "%s.tmp", uuid);
	fd = openat(dir, tmp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	rc = fchmod(fd, 0644) ? -errno : file_write(fd, text, (size_t)n);
	if (!rc)
		rc = file_sync(fd);
	if (!rc && renameat(dir, tmp, dir, uuid))
		rc = -errno;
	close(fd);
	if (rc) {
		unlinkat(dir, tmp, 0);
		return rc;
	}
	rc = folder_sync(dir);
	if (rc)
		unlinkat(dir, uuid, 0);	/* a pool is not trusted by a call that failed */
	return rc;
}

int trust_add(const uint8_t uuid[16], const char *name)
{
	char id[UUID_STR];
	int dir = trust_open(true), rc;

	if (dir < 0)
		return dir;
	rc = trust_write(dir, uuid_str(id, uuid), name);
	close(dir);
	return rc;
}

int trust_del(const uint8_t uuid[16])
{
	char id[UUID_STR];
	int dir = trust_open(false), rc;

	if (dir < 0)
		return dir;
	rc = unlinkat(dir, uuid_str(id, uuid), 0) ? -errno : file_sync(dir);
	close(dir);
	return rc;
}
