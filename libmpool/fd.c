/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * No descriptor of the libraries is 0, 1 or 2. A program may run with these closed, and the
 * next open gets the lowest number that is free: what the program, or a library of it, then
 * prints would be written into a member. Every call that makes a descriptor goes through
 * mpool_fd_up() (lint), whatever the descriptor is for.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <mpool/mpool.h>

#include "fd.h"

int mpool_fd_up(int fd)
{
	int up, err;

	if (fd < 0 || fd > STDERR_FILENO)
		return fd;
	up = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	err = errno;
	close(fd);
	errno = err;
	return up;
}

FILE *mpl_fopen(const char *path)
{
	int fd = mpool_fd_up(open(path, O_RDONLY | O_CLOEXEC));
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r");

	if (!f && fd >= 0)
		close(fd);
	return f;
}

DIR *mpl_opendir(const char *path)
{
	int fd = mpool_fd_up(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d && fd >= 0)
		close(fd);
	return d;
}
