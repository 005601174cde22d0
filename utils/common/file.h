/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Writing of files that a power cut must not take. */
#ifndef UTILS_FILE_H
#define UTILS_FILE_H

#include <stddef.h>

/*
 * All of it, or -errno. Signals that come meanwhile are no failure, here and below: some file
 * systems (FUSE) end a call for them, which is then made again.
 */
int file_write(int fd, const void *p, size_t len);

/* A file's content or a folder's entries are durable, or -errno. */
int file_sync(int fd);

/* The entry of the folder @dirfd in the one above it is durable, or -errno. */
int file_sync_entry(int dirfd);

#endif
