/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Embedded pools whose members are block devices: their owner, and since when they are free.
 * Needs no module, but root and null_blk.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "../conform/pool_help.h"

#define CAP	(64 * MIB)
#define THREADS	8

static char dir_pool[600];
static struct mpool *mp;

/* closed, of one class on a block device */
static void make(void)
{
	struct mpool_dev_spec dev = { .mclass = MPOOL_CAPACITY };
	struct mpool_create_opts o = MPOOL_CREATE_OPTS_INIT;

	th_fresh();
	snprintf(dir_pool, sizeof(dir_pool), "%s/dir", th_dir);
	dev.path = th_dev_make(MPOOL_CAPACITY, CAP);
	o.devs = &dev;
	o.ndevs = 1;
	T_EQ(mpool_create(dir_pool, &o), 0);
}

struct reader {
	pthread_t tid;
	struct mpool_obj *obj;
	struct mpool_ioq *q;
	int64_t res;
};

/* one write, so that the queue has its ring in this thread */
static void *reader_main(void *arg)
{
	struct reader *r = arg;
	void *buf = th_buf(4096, 1);
	struct iovec v = { buf, 4096 };
	struct mpool_io io = { .obj = r->obj, .type = MPOOL_WRITE, .iovcnt = 1, .iov = &v };
	struct mpool_cqe e = { .res = -1 };

	if (mpool_ioq_submit(r->q, &io, 1) == 1)
		mpool_ioq_reap(r->q, &e, 1, 1, -1);
	r->res = e.res;
	free(buf);
	return NULL;
}

/* Queues of threads that have ended, as libkvdb's; closed by this one. */
static void open_and_close(void)
{
	struct reader r[THREADS];
	struct mpool_alloc req = { .kind = MPOOL_MBLOCK, .capacity = 4096 };
	int i;

	for (i = 0; i < THREADS; i++) {
		T_EQ(mpool_alloc(mp, &req, 1, &r[i].obj), 0);
		T_EQ(mpool_ioq_open(mp, 4, &r[i].q), 0);
		T_EQ(pthread_create(&r[i].tid, NULL, reader_main, &r[i]), 0);
	}
	for (i = 0; i < THREADS; i++) {
		pthread_join(r[i].tid, NULL);
		T_EQ(r[i].res, 4096);
		mpool_ioq_close(r[i].q);
		mpool_obj_close(r[i].obj);
	}
	T_EQ(mpool_close(mp), 0);
}

static void devices_are_free_when_the_pool_is_closed(void)
{
	int i, rc;

	make();
	for (i = 0; i < 16; i++) {
		rc = mpool_open(dir_pool, NULL, &mp);
		if (rc)
			T_FAIL("open %d: %d, %s", i, rc, mpool_error_detail()->text);
		open_and_close();
	}
}

static void __attribute__((noreturn)) owner(int fd)
{
	struct mpool_alloc req = { .kind = MPOOL_MBLOCK, .capacity = 4096 };
	struct reader r[THREADS];
	int i;

	if (mpool_open(dir_pool, NULL, &mp))
		_exit(2);
	for (i = 0; i < THREADS; i++)
		if (mpool_alloc(mp, &req, 1, &r[i].obj) || mpool_ioq_open(mp, 4, &r[i].q) ||
		    pthread_create(&r[i].tid, NULL, reader_main, &r[i]))
			_exit(3);
	for (i = 0; i < THREADS; i++)
		pthread_join(r[i].tid, NULL);
	i = write(fd, "", 1) != 1;
	while (!i)
		pause();
	_exit(4);
}

static pid_t owner_start(void)
{
	int fd[2];
	pid_t pid;
	char c;

	T_EQ(pipe(fd), 0);
	fflush(stdout);
	pid = fork();
	if (!pid)
		owner(fd[1]);
	close(fd[1]);
	T_EQ(read(fd[0], &c, 1), 1);
	close(fd[0]);
	return pid;
}

static void devices_of_a_killed_process_are_waited_for(void)
{
	int i, rc, st;
	pid_t pid;

	make();
	for (i = 0; i < 12; i++) {
		pid = owner_start();
		rc = mpool_open(dir_pool, NULL, &mp);
		kill(pid, SIGKILL);
		T_EQ(waitpid(pid, &st, 0), pid);
		T_EQ(rc, -EBUSY);
		rc = mpool_open(dir_pool, NULL, &mp);
		if (rc)
			T_FAIL("kill %d: %d, %s", i, rc, mpool_error_detail()->text);
		T_EQ(mpool_close(mp), 0);
	}
}

static void swap_write(const char *path)
{
	char b[4096] = { 0 };
	int fd = open(path, O_RDWR | O_CLOEXEC);

	b[1024] = 1;	/* version, and pages behind it */
	b[1028] = 100;
	memcpy(b + 4096 - 10, "SWAPSPACE2", 10);
	T_OK(fd >= 0);
	T_EQ(pwrite(fd, b, sizeof(b), 0), sizeof(b));
	T_EQ(fsync(fd), 0);
	close(fd);
}

static int has_swap(const char *path)
{
	char b[10] = "";
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	T_OK(fd >= 0);
	T_EQ(pread(fd, b, 10, 4096 - 10), 10);
	close(fd);
	return !memcmp(b, "SWAPSPACE2", 10);
}

/* what is to be overwritten goes when nothing can be refused any more */
static void forced_signature_stays_until_all_can_be_made(void)
{
	struct mpool_dev_spec dev[2] = {
		{ .mclass = MPOOL_CAPACITY },
		{ .mclass = MPOOL_CAPACITY, .path = "/nothing/here.mp", .size = CAP },
	};
	struct mpool_create_opts o = MPOOL_CREATE_OPTS_INIT;

	th_fresh();
	snprintf(dir_pool, sizeof(dir_pool), "%s/dir", th_dir);
	dev[0].path = th_dev_make(MPOOL_CAPACITY, CAP);
	swap_write(dev[0].path);
	o.devs = dev;
	o.ndevs = 1;
	T_EQ(mpool_create(dir_pool, &o), -EPERM);
	o.ndevs = 2;
	o.flags = MPOOL_CREATE_FORCE;
	T_EQ(mpool_create(dir_pool, &o), -ENOENT);
	T_OK(has_swap(dev[0].path));
	o.ndevs = 1;
	T_EQ(mpool_create(dir_pool, &o), 0);
	T_OK(!has_swap(dev[0].path));
	T_EQ(mpool_open(dir_pool, NULL, &mp), 0);
	T_EQ(mpool_close(mp), 0);
}

int main(void)
{
	if (geteuid() || access(TH_NULLB, F_OK))
		return t_skip_all("needs root, and null_blk with configfs");
	setenv("MPOOL_TEST_KMOD", "1", 1);
	unsetenv("MPOOL_DEV");
	unsetenv("MPOOL_IO");
	T_RUN(devices_are_free_when_the_pool_is_closed);
	T_RUN(devices_of_a_killed_process_are_waited_for);
	T_RUN(forced_signature_stays_until_all_can_be_made);
	th_clean();
	return t_done();
}
