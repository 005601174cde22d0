/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Helpers of the conformance tests of libmpool: a scratch folder that is
 * removed at the end, a small pool in it, aligned buffers.
 */
#ifndef TESTS_POOL_HELP_H
#define TESTS_POOL_HELP_H

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <mpool/mpool.h>

#include "harness.h"
#include "kmod_help.h"

#define MIB	(1ull << 20)

static char th_dir[256];

static int th_rm(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static inline void th_clean(void)
{
	th_kmod_clean();
	if (*th_dir)
		nftw(th_dir, th_rm, 16, FTW_DEPTH | FTW_PHYS);
	*th_dir = 0;
}

/*
 * A case about the files of an embedded pool, or its layers of simulated devices. A pool of
 * the module has neither, so there is no such case there. What corresponds: members that are
 * missing or taken in tests/kmod/test_lifecycle.c, sharing in an_active_pool_is_shared_and_stays,
 * interruptions in tests/kmod/host_powercut.sh, real disks that fail in tests/kmod/test_loss.c
 * and, request by request, in tests/kmod/fail_nth.c.
 */
#define TH_RUN_FILES(fn) (th_is_kmod() ? (void)0 : T_RUN(fn))

/* a fresh scratch folder; th_pool is a path in it where nothing is yet */
static inline void th_fresh(void)
{
	const char *tmp = getenv("TMPDIR");
	static unsigned serial;

	th_clean();
	th_user_init();
	th_root();
	snprintf(th_dir, sizeof(th_dir), "%s/mpool-test-XXXXXX", tmp && *tmp ? tmp : "/tmp");
	if (!mkdtemp(th_dir)) {
		perror("mkdtemp");
		exit(1);
	}
	if (th_uid && chown(th_dir, th_uid, th_gid))
		perror("chown");
	th_user();
	if (th_is_kmod())
		snprintf(th_pool, sizeof(th_pool), "t%d-%u", (int)getpid(), serial++);
	else
		snprintf(th_pool, sizeof(th_pool), "%s/pool", th_dir);
}

static inline int th_create_at(const char *path, uint64_t capacity, uint64_t staging)
{
	struct mpool_dev_spec dev[2] = {
		{ .mclass = MPOOL_CAPACITY, .size = capacity },
		{ .mclass = MPOOL_STAGING, .size = staging },
	};
	struct mpool_create_opts o = MPOOL_CREATE_OPTS_INIT;
	int rc;

	dev[0].path = th_dev_make(MPOOL_CAPACITY, capacity);
	dev[1].path = staging ? th_dev_make(MPOOL_STAGING, staging) : NULL;
	o.devs = dev;
	o.ndevs = staging ? 2 : 1;
	if (th_uid) {
		o.gid = th_gid;
		o.mode = 0660;
	}
	th_root();
	rc = mpool_create(path, &o);
	th_user();
	if (rc)
		printf("# create: %s\n", mpool_error_detail()->text);
	return rc;
}

/* a fresh pool of two classes, opened with back end @io and layers @dev (or NULL) */
static inline struct mpool *th_open_with(const char *io, const char *dev)
{
	struct mpool_open_opts o = MPOOL_OPEN_OPTS_INIT;
	struct mpool *mp = NULL;

	o.io = io;
	o.dev = dev;
	th_again();
	T_EQ(mpool_open(th_pool, &o, &mp), 0);
	return mp;
}

static inline struct mpool *th_new_pool(const char *io, const char *dev)
{
	th_fresh();
	T_EQ(th_create_at(th_pool, 64 * MIB, 32 * MIB), 0);
	return th_open_with(io, dev);
}

static inline void *th_buf(size_t size, uint64_t seed)
{
	uint64_t *p = NULL;
	size_t i;

	if (posix_memalign((void **)&p, MPOOL_ALIGN, size))
		exit(1);
	for (i = 0; i < size / 8; i++)
		p[i] = t_rand(&seed);
	return p;
}

static volatile sig_atomic_t th_strayed;

static inline void th_stray(int sig)
{
	th_strayed = sig;
}

/* A signal that this thread blocks waits for it: none of the library's threads takes it. */
static inline int th_signal_waits(void)
{
	struct timespec limit = { .tv_sec = 5 };
	struct sigaction sa = { .sa_handler = th_stray }, was;
	sigset_t usr, old;
	int got;

	th_strayed = 0;
	sigemptyset(&usr);
	sigaddset(&usr, SIGUSR1);
	sigaction(SIGUSR1, &sa, &was);
	sigprocmask(SIG_BLOCK, &usr, &old);
	kill(getpid(), SIGUSR1);
	usleep(50000);	/* for others to take it */
	got = sigtimedwait(&usr, NULL, &limit);
	sigprocmask(SIG_SETMASK, &old, NULL);
	sigaction(SIGUSR1, &was, NULL);
	return got == SIGUSR1 && !th_strayed;
}

static inline struct mpool_obj *th_alloc(struct mpool *mp, uint32_t kind, uint32_t mclass,
					 uint64_t capacity, uint64_t tag)
{
	struct mpool_alloc req = { .kind = kind, .mclass = mclass, .capacity = capacity,
				   .tag = tag };
	struct mpool_obj *obj = NULL;

	T_EQ(mpool_alloc(mp, &req, 1, &obj), 0);
	return obj;
}

static inline int th_write(struct mpool_obj *obj, uint64_t off, void *buf, size_t len)
{
	struct iovec v = { .iov_base = buf, .iov_len = len };

	return mpool_write(obj, off, &v, 1);
}

static inline int th_read(struct mpool_obj *obj, uint64_t off, void *buf, size_t len)
{
	struct iovec v = { .iov_base = buf, .iov_len = len };

	return mpool_read(obj, off, &v, 1);
}

static inline int th_op(struct mpool *mp, uint32_t type, struct mpool_obj *obj, uint64_t id,
			uint64_t length)
{
	struct mpool_op op = { .type = type, .obj = obj, .id = id, .length = length };

	return mpool_batch(mp, &op, 1);
}

#endif
