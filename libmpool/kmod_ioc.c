/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Commands of the kernel module, its nodes, and its errors: the module gives
 * number and text of the origin, which become this thread's detail, so that
 * both backends say the same.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "kmod.h"

#define NODE_CTL	"/dev/mpoolctl"
#define NODE_DIR	"/dev/mpool/"
#define MODULE_DIR	"/sys/module/mpool"

_Static_assert(MPOOL_IOC_BATCH_MAX == MPOOL_BATCH_MAX, "batches");
_Static_assert(MPOOL_IOC_NAME == MPOOL_NAME_MAX + 1, "names");
_Static_assert(MPOOL_IOC_LABEL == MPOOL_LABEL_MAX + 1, "labels");
_Static_assert(MPOOL_IOC_CLASSES == MPOOL_MCLASSES, "classes");
_Static_assert(MPOOL_IOC_DEVS_MAX == MPOOL_DEVS_MAX * MPOOL_MCLASSES, "members");
_Static_assert(sizeof(struct mpool_error) >= MPOOL_IOC_TEXT, "texts");

void mpl_ioc_detail(const struct mpool_ioc_arg *arg, int rc, const char *text)
{
	if (arg->ma_error && *text)
		os_user_error_set((int)arg->ma_error, rc, "%s", text);
}

int mpl_ioc(int fd, unsigned long cmd, void *arg)
{
	struct mpool_ioc_arg *ma = arg;
	char text[MPOOL_IOC_TEXT] = "";
	int rc;

	ma->ma_size = _IOC_SIZE(cmd);
	ma->ma_error = 0;
	ma->ma_text_size = sizeof(text);
	ma->ma_text = (uintptr_t)text;
	do {
		rc = ioctl(fd, cmd, arg);
	} while (rc < 0 && errno == EINTR);
	if (rc >= 0)
		return rc;
	rc = -errno;
	if (rc == -ENOTTY)
		return mpl_err(MPL_ABI, "the kernel module does not know command %lu of this "
			       "library", (unsigned long)_IOC_NR(cmd));
	text[sizeof(text) - 1] = 0;
	mpl_ioc_detail(ma, rc, text);
	return rc;
}

static int abi_check(int fd)
{
	struct mpool_ioc_version iv = { .iv_abi = 0 };
	int rc = mpl_ioc(fd, MPOOL_IOC_VERSION, &iv);

	if (rc)
		return rc;
	iv.iv_version[sizeof(iv.iv_version) - 1] = 0;
	if (iv.iv_abi != MPOOL_IOC_ABI)
		return mpl_err(MPL_ABI, "the kernel module %s speaks interface %u, this library "
			       "%u", iv.iv_version, iv.iv_abi, MPOOL_IOC_ABI);
	return 0;
}

/* Why a node could not be opened. */
static int node_error(const char *name, const char *path, int err)
{
	int is_loaded = !access(MODULE_DIR, F_OK) || !access(NODE_CTL, F_OK);

	if (err == -ENOENT || err == -ENODEV || err == -ENXIO) {
		if (!is_loaded && name)
			return mpl_err(MPL_NOMODULE, "%s: a name without '/' asks for the kernel "
				       "module, which is not loaded (modprobe mpool); a directory "
				       "is written ./%s", name, name);
		if (!is_loaded)
			return mpl_err(MPL_NOMODULE, "the kernel module is not loaded (modprobe "
				       "mpool)");
		if (name)
			return mpl_err(MPL_NOTACTIVE, "pool %s is not active; activate it: mpool "
				       "activate %s", name, name);
	}
	if (err == -EACCES || err == -EPERM)
		return mpl_err_as(MPL_NODE, err, "%s: %s", path, name ?
				  "you may not use this pool" : "administration needs root");
	return mpl_err_as(MPL_NODE, err, "%s cannot be opened: %s", path, strerror(-err));
}

int mpl_node_open(const char *name, int is_rdonly)
{
	char path[sizeof(NODE_DIR) + MPOOL_NAME_MAX + 1];
	int fd, rc;

	if (name) {
		rc = mp_name_check(name);
		if (rc)
			return rc;
	}
	snprintf(path, sizeof(path), "%s%s", name ? NODE_DIR : NODE_CTL, name ? name : "");
	fd = mpool_fd_up(open(path, (is_rdonly ? O_RDONLY : O_RDWR) | O_CLOEXEC));
	if (fd < 0)
		return node_error(name, path, -errno);
	rc = abi_check(fd);
	if (rc) {
		close(fd);
		return rc;
	}
	return fd;
}

int mpl_kmod_writable(struct mpl_kmod *km)
{
	if (!km->km_pool.mp_is_rdonly)
		return 0;
	os_user_error_set(MP_RDONLY, -EROFS, "pool %s is open for reading only", km->km_name);
	return -EROFS;
}
