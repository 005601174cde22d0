/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Calls of the system that come back without having done anything, here by a stand-in of
 * ours: they are made again, and no caller is told of a failure or waits for ever.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <unistd.h>

#include "pool_help.h"

static int lost_syncs, lost_fsyncs, lost_submits;

int fdatasync(int fd)
{
	int (*next)(int fd) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");

	if (!lost_syncs)
		return next(fd);
	lost_syncs--;
	errno = EINTR;
	return -1;
}

int fsync(int fd)
{
	int (*next)(int fd) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");

	if (!lost_fsyncs)
		return next(fd);
	lost_fsyncs--;
	errno = EINTR;
	return -1;
}

int io_uring_submit(struct io_uring *ring)
{
	int (*next)(struct io_uring *ring) =
		(int (*)(struct io_uring *))dlsym(RTLD_NEXT, "io_uring_submit");

	if (!lost_submits)
		return next(ring);
	lost_submits--;
	return -EAGAIN;
}

/* a flush that fails stops the pool for good; a signal is no failure */
static void an_interrupted_flush_goes_on(void)
{
	struct mpool *mp = th_new_pool("sync", NULL);
	struct mpool_obj *obj = th_alloc(mp, MPOOL_APPEND, MPOOL_CAPACITY, 4096, 0);
	void *buf = th_buf(4096, 1);
	struct iovec v = { buf, 4096 };
	struct mpool_info info;

	T_EQ(mpool_write(obj, 0, &v, 1), 0);
	lost_syncs = 2;
	T_EQ(mpool_flush(mp, 1u << MPOOL_CAPACITY), 0);
	T_EQ(lost_syncs, 0);
	T_EQ(mpool_info(mp, &info), 0);
	T_STREQ(info.fault, "");
	mpool_obj_close(obj);
	T_EQ(mpool_close(mp), 0);
	free(buf);
}

/* nor is it one of pool.json and its directory: at the end the pool is there, or gone */
static void an_interrupted_create_and_destroy_go_on(void)
{
	int i;

	th_fresh();
	for (i = 1; i <= 3; i++) {
		lost_fsyncs = i;
		T_EQ(th_create_at(th_pool, 16 * MIB, 0), 0);
		T_EQ(lost_fsyncs, 0);
		lost_fsyncs = i;
		T_EQ(mpool_destroy(th_pool, NULL), 0);
		T_EQ(lost_fsyncs, 0);
		T_EQ(access(th_pool, F_OK), -1);
	}
}

/* The ring took nothing at the submission: a caller that only polls hands it over. */
static void requests_that_were_not_taken_are_handed_over_by_a_look(void)
{
	struct mpool *mp = th_new_pool("uring", NULL);
	struct mpool_obj *obj = th_alloc(mp, MPOOL_APPEND, MPOOL_CAPACITY, 4096, 0);
	void *buf = th_buf(4096, 1);
	struct iovec v = { buf, 4096 };
	struct mpool_io io = { .obj = obj, .type = MPOOL_WRITE, .iovcnt = 1, .iov = &v };
	struct mpool_cqe cqe;
	struct mpool_ioq *q;
	int i, n = 0;

	T_EQ(mpool_ioq_open(mp, 4, &q), 0);
	lost_submits = 1;
	T_EQ(mpool_ioq_submit(q, &io, 1), 1);
	T_EQ(lost_submits, 0);
	for (i = 0; i < 5000 && !n; i++) {
		n = mpool_ioq_reap(q, &cqe, 1, 0, 0);
		usleep(1000);
	}
	T_EQ(n, 1);
	T_EQ(cqe.res, 4096);
	mpool_ioq_close(q);
	mpool_obj_close(obj);
	T_EQ(mpool_close(mp), 0);
	free(buf);
}

int main(void)
{
	struct mpool_open_opts o = MPOOL_OPEN_OPTS_INIT;
	struct mpool *mp;

	unsetenv("MPOOL_DEV");
	TH_RUN_FILES(an_interrupted_flush_goes_on);
	lost_syncs = 0;
	TH_RUN_FILES(an_interrupted_create_and_destroy_go_on);
	lost_fsyncs = 0;
	th_fresh();
	o.io = "uring";
	if (!th_create_at(th_pool, 16 * MIB, 0) && !mpool_open(th_pool, &o, &mp)) {
		mpool_close(mp);
		TH_RUN_FILES(requests_that_were_not_taken_are_handed_over_by_a_look);
	} else {
		t_skip("requests_that_were_not_taken_are_handed_over_by_a_look", "no io_uring");
	}
	th_clean();
	return t_done();
}
