// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Valid calls of the module's interface, and null_blk disks.
 */
#include "ioc_help.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define NULLB	"/sys/kernel/config/nullb"

int ioc_put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = write(fd, text, strlen(text));
	n = n < 0 ? -errno : 0;
	close(fd);
	return (int)n;
}

int ioc_disks_init(const char **why)
{
	struct stat st;

	if (stat(NULLB, &st) == 0)
		return 0;
	if (mount("configfs", "/sys/kernel/config", "configfs", 0, NULL) && errno != EBUSY) {
		*why = "no configfs here";
		return -errno;
	}
	if (stat(NULLB, &st) == 0)
		return 0;
	*why = "null_blk is not loaded";
	return -ENODEV;
}

static int nullb_set(const char *name, const char *attr, unsigned int value)
{
	char path[128], text[16];

	snprintf(path, sizeof(path), NULLB "/%s/%s", name, attr);
	snprintf(text, sizeof(text), "%u", value);
	return ioc_put(path, text);
}

int ioc_disk_make(struct ioc_disk *dk, const char *name, unsigned int mib, unsigned int flags,
		  unsigned int latency_ns)
{
	bool is_zoned = flags & IOC_DISK_ZONED;
	char dir[64];
	int rc, i;

	snprintf(dk->dk_name, sizeof(dk->dk_name), "%s", name);
	snprintf(dk->dk_path, sizeof(dk->dk_path), "/dev/%s", name);
	snprintf(dir, sizeof(dir), NULLB "/%s", name);
	dk->dk_fd = -1;
	if (mkdir(dir, 0755))
		return -errno;
	rc = nullb_set(name, "size", mib);
	rc = rc ? rc : nullb_set(name, "memory_backed", 1);
	rc = rc ? rc : nullb_set(name, "discard", !flags);
	rc = rc ? rc : nullb_set(name, "zoned", is_zoned);
	rc = rc || !is_zoned ? rc : nullb_set(name, "zone_size", 4);
	rc = rc ? rc : nullb_set(name, "cache_size", 0);
	rc = rc || !(flags & IOC_DISK_SERIAL) ? rc : nullb_set(name, "hw_queue_depth", 1);
	rc = rc ? rc : nullb_set(name, "irqmode", latency_ns ? 2 : 0);
	rc = rc || !latency_ns ? rc : nullb_set(name, "completion_nsec", latency_ns);
	rc = rc ? rc : nullb_set(name, "power", 1);
	for (i = 0; !rc && dk->dk_fd < 0; i++) {
		dk->dk_fd = open(dk->dk_path, O_RDWR | O_CLOEXEC);
		if (dk->dk_fd < 0 && i == 50)
			rc = -errno;
		else if (dk->dk_fd < 0)
			usleep(20000);
	}
	if (rc)
		rmdir(dir);
	return rc;
}

void ioc_disk_remove(struct ioc_disk *dk)
{
	char dir[64];

	if (dk->dk_fd >= 0)
		close(dk->dk_fd);
	dk->dk_fd = -1;
	snprintf(dir, sizeof(dir), NULLB "/%s", dk->dk_name);
	nullb_set(dk->dk_name, "power", 0);
	rmdir(dir);
}

int ioc_disk_writes(const struct ioc_disk *dk, uint64_t *requests, uint64_t *sectors)
{
	unsigned long long ios, merges, secs, r;
	char path[64];
	FILE *f;
	int n;

	snprintf(path, sizeof(path), "/sys/block/%s/stat", dk->dk_name);
	f = fopen(path, "re");
	if (!f)
		return -errno;
	n = fscanf(f, "%llu %llu %llu %llu %llu %llu %llu", &r, &r, &r, &r, &ios, &merges, &secs);
	fclose(f);
	if (n != 7)
		return -EIO;
	*requests = ios;
	*sectors = secs;
	return 0;
}

int ioc_call(int fd, unsigned long cmd, void *arg)
{
	struct mpool_ioc_arg *ma = arg;
	int rc;

	ma->ma_size = _IOC_SIZE(cmd);
	rc = ioctl(fd, cmd, arg);
	return rc < 0 ? -errno : rc;
}

int ioc_ctl_open(void)
{
	int fd = open("/dev/mpoolctl", O_RDWR | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int ioc_create(int ctl, const char *name, const struct mpool_ioc_dev *dev, uint32_t n,
	       uint32_t mode, uint32_t flags)
{
	struct mpool_ioc_create c = { .ic_mode = mode, .ic_ndevs = n };

	c.ic_arg.ma_flags = flags;
	c.ic_devs = (uintptr_t)dev;
	snprintf(c.ic_name, sizeof(c.ic_name), "%s", name);
	return ioc_call(ctl, MPOOL_IOC_CREATE, &c);
}

int ioc_activate(int ctl, const struct mpool_ioc_dev *dev, uint32_t n, uint32_t flags)
{
	struct mpool_ioc_dev copy[MPOOL_IOC_DEVS_MAX];
	struct mpool_ioc_activate a = { .ia_ndevs = n };
	uint32_t i;

	for (i = 0; i < n && i < MPOOL_IOC_DEVS_MAX; i++)
		copy[i] = (struct mpool_ioc_dev){ .id_fd = dev[i].id_fd };
	a.ia_arg.ma_flags = flags;
	a.ia_devs = (uintptr_t)copy;
	return ioc_call(ctl, MPOOL_IOC_ACTIVATE, &a);
}

int ioc_deactivate(int ctl, const char *name)
{
	struct mpool_ioc_name na = { 0 };

	snprintf(na.na_name, sizeof(na.na_name), "%s", name);
	return ioc_call(ctl, MPOOL_IOC_DEACTIVATE, &na);
}

int ioc_destroy(int ctl, const struct mpool_ioc_dev *dev, uint32_t n)
{
	struct mpool_ioc_dev copy[MPOOL_IOC_DEVS_MAX];
	struct mpool_ioc_devs ds = { .ds_ndevs = n };
	uint32_t i;

	for (i = 0; i < n && i < MPOOL_IOC_DEVS_MAX; i++)
		copy[i] = (struct mpool_ioc_dev){ .id_fd = dev[i].id_fd };
	ds.ds_devs = (uintptr_t)copy;
	return ioc_call(ctl, MPOOL_IOC_DESTROY, &ds);
}

int ioc_pool_open(const char *name, int flags)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/dev/mpool/%s", name);
	fd = open(path, flags | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int ioc_info(int fd, struct mpool_ioc_info *in)
{
	memset(in, 0, sizeof(*in));
	return ioc_call(fd, MPOOL_IOC_INFO, in);
}

int ioc_alloc(int fd, uint32_t kind, uint32_t mclass, uint64_t capacity, uint64_t tag,
	      uint64_t *id)
{
	struct mpool_ioc_alloc_one one = {
		.ao_kind = kind, .ao_mclass = mclass, .ao_capacity = capacity, .ao_tag = tag,
	};
	struct mpool_ioc_alloc al = { .al_n = 1 };

	al.al_req = (uintptr_t)&one;
	al.al_ids = (uintptr_t)id;
	return ioc_call(fd, MPOOL_IOC_ALLOC, &al);
}

int ioc_drop(int fd, uint64_t id)
{
	struct mpool_ioc_drop dr = { .dr_n = 1 };

	dr.dr_ids = (uintptr_t)&id;
	return ioc_call(fd, MPOOL_IOC_DROP, &dr);
}

int ioc_op(int fd, uint32_t type, uint64_t id, uint64_t length)
{
	struct mpool_ioc_op op = { .op_type = type, .op_id = id, .op_length = length };
	struct mpool_ioc_batch ba = { .ba_n = 1 };

	ba.ba_ops = (uintptr_t)&op;
	return ioc_call(fd, MPOOL_IOC_BATCH, &ba);
}

int ioc_obj_open(int fd, uint64_t id, uint32_t flags)
{
	struct mpool_ioc_open op = { .op_id = id };

	op.op_arg.ma_flags = flags;
	return ioc_call(fd, MPOOL_IOC_OPEN, &op);
}

int ioc_mlog(int fd, unsigned long cmd, uint64_t id)
{
	struct mpool_ioc_mlog ml = { .ml_id = id };

	return ioc_call(fd, cmd, &ml);
}

int ioc_append(int fd, uint64_t id, const void *buf, size_t len, uint32_t flags)
{
	struct mpool_ioc_vec ve = { .ve_base = (uintptr_t)buf, .ve_len = len };
	struct mpool_ioc_append ap = { .ap_id = id, .ap_n = 1 };

	ap.ap_arg.ma_flags = flags;
	ap.ap_vec = (uintptr_t)&ve;
	return ioc_call(fd, MPOOL_IOC_MLOG_APPEND, &ap);
}

static uint64_t word(uint64_t id, uint64_t off)
{
	uint64_t z = (id << 32) + off + 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 31)) * 0x94d049bb133111ebull;
	return z ^ (z >> 29);
}

void ioc_pattern(void *buf, uint64_t id, uint64_t off, size_t len)
{
	uint64_t *w = buf;
	size_t i;

	for (i = 0; i < len / 8; i++)
		w[i] = word(id, off + i * 8);
}

long ioc_pattern_check(const void *buf, uint64_t id, uint64_t off, size_t len)
{
	const uint64_t *w = buf;
	size_t i;

	for (i = 0; i < len / 8; i++)
		if (w[i] != word(id, off + i * 8))
			return (long)(i * 8);
	return -1;
}
