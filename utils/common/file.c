/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Writing of files that a power cut must not take. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "file.h"

int file_write(int fd, const void *p, size_t len)
{
	const char *at = p;

	while (len) {
		ssize_t n = TEMP_FAILURE_RETRY(write(fd, at, len));

		if (n < 0)
			return -errno;
		at += n;
		len -= (size_t)n;
	}
	return 0;
}

int file_sync(int fd)
{
	return TEMP_FAILURE_RETRY(fsync(fd)) ? -errno : 0;
}

int file_sync_entry(int dirfd)
{
	int fd = openat(dirfd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc = fd < 0 ? -EINVAL : file_sync(fd);

	/* a folder that is unreadable or has no fsync() (autofs) is flushed with its file system */
	if (rc == -EINVAL)
		rc = TEMP_FAILURE_RETRY(syncfs(dirfd)) ? -errno : 0;
	if (fd >= 0)
		close(fd);
	return rc;
}
