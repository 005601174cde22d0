/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Calls of the module's interface with valid arguments, and throw-away disks
 * in memory, for the programs that abuse it. All calls return what the ioctl
 * returned, or its negative errno.
 */
#ifndef TESTS_KMOD_IOC_HELP_H
#define TESTS_KMOD_IOC_HELP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../../kmod/uapi/mpool.h"

/* a disk of null_blk, kept in memory; its open descriptor */
struct ioc_disk {
	char dk_name[24];
	char dk_path[40];
	int dk_fd;
};

/* 0: null_blk can be had here; else why not in *why */
int ioc_disks_init(const char **why);
#define IOC_DISK_ZONED		0x1u
#define IOC_DISK_NO_DISCARD	0x2u
#define IOC_DISK_SERIAL		0x4u	/* one request at a time, no discard */
/* @latency_ns: completions come that much later, from a timer; 0: at once */
int ioc_disk_make(struct ioc_disk *dk, const char *name, unsigned int mib, unsigned int flags,
		  unsigned int latency_ns);
void ioc_disk_remove(struct ioc_disk *dk);
/* requests and 512-byte sectors written since the disk was made */
int ioc_disk_writes(const struct ioc_disk *dk, uint64_t *requests, uint64_t *sectors);

/* writes @text to the file @path; 0 or negative errno */
int ioc_put(const char *path, const char *text);

/* any ioctl; @arg begins with struct mpool_ioc_arg, whose size is set here */
int ioc_call(int fd, unsigned long cmd, void *arg);

int ioc_ctl_open(void);
int ioc_create(int ctl, const char *name, const struct mpool_ioc_dev *dev, uint32_t n,
	       uint32_t mode, uint32_t flags);
int ioc_activate(int ctl, const struct mpool_ioc_dev *dev, uint32_t n, uint32_t flags);
int ioc_deactivate(int ctl, const char *name);
int ioc_destroy(int ctl, const struct mpool_ioc_dev *dev, uint32_t n);
/* @flags of open(2) */
int ioc_pool_open(const char *name, int flags);
int ioc_info(int fd, struct mpool_ioc_info *in);

int ioc_alloc(int fd, uint32_t kind, uint32_t mclass, uint64_t capacity, uint64_t tag,
	      uint64_t *id);
int ioc_drop(int fd, uint64_t id);
/* @type: 1 commit, 2 seal, 3 delete */
int ioc_op(int fd, uint32_t type, uint64_t id, uint64_t length);
/* MPOOL_IOC_OPEN_* in @flags; the descriptor */
int ioc_obj_open(int fd, uint64_t id, uint32_t flags);
/* one of the commands that take struct mpool_ioc_mlog */
int ioc_mlog(int fd, unsigned long cmd, uint64_t id);
int ioc_append(int fd, uint64_t id, const void *buf, size_t len, uint32_t flags);

/* what object @id holds at @off in the tests that check contents; @len of 8s, as @off */
void ioc_pattern(void *buf, uint64_t id, uint64_t off, size_t len);
/* offset of the first byte that differs, or -1 */
long ioc_pattern_check(const void *buf, uint64_t id, uint64_t off, size_t len);

#endif
