/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the test programs of the kernel module share: an active pool on two
 * disks in memory, its descriptors, and calls whose errors say what they met.
 */
#ifndef TESTS_KMOD_KT_H
#define TESTS_KMOD_KT_H

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "ioc_help.h"

#define KT_MIB	(1ull << 20)

struct kt_rig {
	int ctl;
	struct ioc_disk disk[2];
	struct mpool_ioc_dev dev[2];
	int rw, ro;		/* descriptors of the pool's node, or -1 */
	char name[MPOOL_IOC_NAME];
};

/* error of the last kt_call() */
static char kt_text[MPOOL_IOC_TEXT];
static uint32_t kt_error;

/* the ioctl's result or negative errno; details go to kt_text and kt_error */
static inline int kt_call(int fd, unsigned long cmd, void *arg)
{
	struct mpool_ioc_arg *ma = arg;
	int rc;

	memset(kt_text, 0, sizeof(kt_text));
	ma->ma_text = (uintptr_t)kt_text;
	ma->ma_text_size = sizeof(kt_text);
	rc = ioc_call(fd, cmd, arg);
	kt_error = rc < 0 ? ma->ma_error : 0;
	return rc;
}

/* a check of a result that prints the module's own words when it fails */
#define KT_EQ(rc, want) do {						\
	long long kt_rc = (long long)(rc), kt_want = (long long)(want);	\
	if (kt_rc != kt_want)						\
		T_FAIL("%s = %lld, wanted %s = %lld; last error MP%04u: %s", #rc, kt_rc, #want,	\
		       kt_want, kt_error, kt_text);			\
} while (0)

/* a call that returns -1 with this errno */
#define T_ERR(call, e) do {						\
	errno = 0;							\
	long t_rc = (long)(call);					\
	int t_no = errno;						\
	if (t_rc != -1 || t_no != (e))					\
		T_FAIL("%s = %ld, errno %d (%s), wanted %s", #call, t_rc, t_no,	\
		       strerror(t_no), #e);				\
} while (0)

/* NULL, or why programs cannot run here */
static inline const char *kt_missing(void)
{
	const char *why = NULL;

	if (geteuid())
		return "needs root";
	if (access("/dev/mpoolctl", F_OK))
		return "the kernel module is not loaded";
	return ioc_disks_init(&why) ? why : NULL;
}

/* waits for a node to come or go: udev or devtmpfs make it */
static inline void kt_settle(const char *path, int is_there)
{
	int i;

	for (i = 0; i < 250 && (access(path, F_OK) == 0) != is_there; i++)
		usleep(20000);
}

/* the @i-th disk: of MPK_DEVS, where that names two, else one of @mib in memory, NAME and number */
static inline void kt_disk(struct kt_rig *r, int i, const char *name, unsigned int mib)
{
	const char *devs = getenv("MPK_DEVS");
	struct ioc_disk *dk = &r->disk[i];
	char path[2][40], own[20];

	if (devs && sscanf(devs, " %39s %39s", path[0], path[1]) == 2) {
		memcpy(dk->dk_path, path[i], sizeof(dk->dk_path));
		dk->dk_fd = open(dk->dk_path, O_RDWR | O_CLOEXEC);
		T_OK(dk->dk_fd >= 0);
	} else {
		snprintf(own, sizeof(own), "%s%d", name, i);
		T_EQ(ioc_disk_make(dk, own, mib, 0, 0), 0);
	}
	r->dev[i] = (struct mpool_ioc_dev){ .id_fd = dk->dk_fd };
}

static inline void kt_open(struct kt_rig *r)
{
	char path[64];

	snprintf(path, sizeof(path), "/dev/mpool/%s", r->name);
	kt_settle(path, 1);
	r->rw = ioc_pool_open(r->name, O_RDWR);
	r->ro = ioc_pool_open(r->name, O_RDONLY);
	T_OK(r->rw >= 0 && r->ro >= 0);
}

static inline void kt_close(struct kt_rig *r)
{
	if (r->rw >= 0)
		close(r->rw);
	if (r->ro >= 0)
		close(r->ro);
	r->rw = r->ro = -1;
}

/* an active pool @name: capacity on the first disk, staging on the second, @mib each */
static inline void kt_up(struct kt_rig *r, const char *name, unsigned int mib)
{
	static const char *const disk[2] = { "ktdisk0", "ktdisk1" };
	int i;

	memset(r, 0, sizeof(*r));
	r->rw = r->ro = -1;
	snprintf(r->name, sizeof(r->name), "%s", name);
	for (i = 0; i < 2; i++) {
		T_EQ(ioc_disk_make(&r->disk[i], disk[i], mib, false, 0), 0);
		r->dev[i] = (struct mpool_ioc_dev){ .id_fd = r->disk[i].dk_fd,
						    .id_mclass = (uint32_t)i };
	}
	r->ctl = ioc_ctl_open();
	T_OK(r->ctl >= 0);
	KT_EQ(ioc_create(r->ctl, name, r->dev, 2, 0600, 0), 0);
	KT_EQ(ioc_activate(r->ctl, r->dev, 2, 0), 0);
	kt_open(r);
}

/* an active pool on one disk, both of that name; its descriptor */
static inline int kt_up_one(int ctl, const struct ioc_disk *dk)
{
	struct mpool_ioc_dev dev = { .id_fd = dk->dk_fd };
	char path[64];
	int fd;

	KT_EQ(ioc_create(ctl, dk->dk_name, &dev, 1, 0600, 0), 0);
	KT_EQ(ioc_activate(ctl, &dev, 1, 0), 0);
	snprintf(path, sizeof(path), "/dev/mpool/%s", dk->dk_name);
	kt_settle(path, 1);
	fd = ioc_pool_open(dk->dk_name, O_RDWR);
	T_OK(fd >= 0);
	return fd;
}

static inline void kt_down(struct kt_rig *r)
{
	int i;

	kt_close(r);
	ioc_deactivate(r->ctl, r->name);
	close(r->ctl);
	for (i = 0; i < 2; i++)
		ioc_disk_remove(&r->disk[i]);
}

/* the end of pool @name on two disks, loops or whole devices */
static inline void kt_destroy(struct kt_rig *r, const char *name)
{
	int i;

	kt_close(r);
	KT_EQ(ioc_deactivate(r->ctl, name), 0);
	KT_EQ(ioc_destroy(r->ctl, r->dev, 2), 0);
	close(r->ctl);
	for (i = 0; i < 2; i++) {
		if (r->disk[i].dk_name[0])
			ioc_disk_remove(&r->disk[i]);
		else
			close(r->disk[i].dk_fd);
	}
}

/* an object's descriptor */
static inline int kt_obj_open(struct kt_rig *r, uint64_t id, uint32_t flags)
{
	int fd = ioc_obj_open(r->rw, id, flags | MPOOL_IOC_OPEN_CLOEXEC);

	KT_EQ(fd < 0 ? fd : 0, 0);
	return fd;
}

/* is there a text in the @size bytes at @text, and nothing but zeroes behind it? */
static inline int kt_is_padded(const char *text, size_t size)
{
	size_t n = strnlen(text, size), i;

	for (i = n; i < size && !text[i]; i++)
		;
	return n < size && i == size;
}

/* runs @fn in a child process; its result, 0 .. 100, or 128 and the signal that ended it */
static inline int kt_child(int (*fn)(void *arg), void *arg)
{
	int st = 0;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0)
		_exit(fn(arg));
	if (pid < 0 || waitpid(pid, &st, 0) != pid)
		return -1;
	return WIFSIGNALED(st) ? 128 + WTERMSIG(st) : WEXITSTATUS(st);
}

#endif
