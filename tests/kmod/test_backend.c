/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What libmpool's kernel backend promises beyond the conformance suites: few
 * descriptors are enough for many objects, batches really go through io_uring,
 * several processes share a pool, permissions and the lease hold, an active pool can be
 * administered.
 */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <kvdb/kvdb.h>

#include "../conform/pool_help.h"
#include "uapi/mpool.h"

#define OBJS	200u
#define DATA	(16u << 10)

static struct mpool *mp_now;

/* the module's own account of the pool */
static struct mpool_ioc_info info_now(void)
{
	struct mpool_ioc_info in;
	char path[64];
	int fd;

	memset(&in, 0, sizeof(in));
	in.in_arg.ma_size = sizeof(in);
	snprintf(path, sizeof(path), "/dev/mpool/%.31s", th_pool);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	T_OK(fd >= 0);
	T_EQ(ioctl(fd, MPOOL_IOC_INFO, &in), 0);
	close(fd);
	return in;
}

/* ---- descriptors ---- */

static unsigned fds_open(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	while (d && readdir(d))
		n++;
	closedir(d);
	return n - 3; /* . and .. and its own */
}

static void fill(char *buf, unsigned who, unsigned round)
{
	uint64_t seed = who * 1000003ull + round, *p = (uint64_t *)buf;
	unsigned i;

	for (i = 0; i < DATA / 8; i++)
		p[i] = t_rand(&seed);
}

static int is_filled(const char *buf, unsigned who, unsigned round)
{
	static __thread char want[DATA];

	fill(want, who, round);
	return !memcmp(buf, want, DATA);
}

/* Every object in turn, through a queue that holds requests of half of them. */
static int through_queue(struct mpool *mp, struct mpool_obj **obj, char *buf, uint32_t type,
			 uint64_t off)
{
	struct iovec v[OBJS];
	struct mpool_cqe cqe[32];
	struct mpool_io io[OBJS];
	struct mpool_ioq *q;
	unsigned i, sent = 0, done = 0;
	int n, bad = mpool_ioq_open(mp, OBJS / 2, &q);

	if (bad)
		return bad;
	for (i = 0; i < OBJS; i++) {
		v[i] = (struct iovec){ buf + (size_t)i * DATA, DATA };
		io[i] = (struct mpool_io){ .obj = obj[i], .type = type, .iovcnt = 1, .off = off,
					   .iov = &v[i], .cookie = i };
	}
	while (done < OBJS && !bad) {
		n = sent < OBJS ? mpool_ioq_submit(q, io + sent, OBJS - sent) : 0;
		bad = n < 0 ? n : 0;
		sent += n > 0 ? (unsigned)n : 0;
		n = bad ? 0 : mpool_ioq_reap(q, cqe, 32, 1, -1);
		for (i = 0; (int)i < n; i++)
			bad |= cqe[i].res != DATA;
		done += n > 0 ? (unsigned)n : 0;
	}
	mpool_ioq_close(q);
	return bad;
}

static const char *io_kind;
static int threads_left;	/* atomic */

/* its own objects, all of them again and again */
static void *fds_thread(void *arg)
{
	unsigned who = (unsigned)(uintptr_t)arg, i, round;
	struct mpool_alloc req = { .kind = MPOOL_APPEND, .capacity = 4 * DATA, .tag = who };
	struct mpool_obj *obj[OBJS];
	char *buf = th_buf((size_t)OBJS * DATA, 1), *back = th_buf((size_t)OBJS * DATA, 2);
	uintptr_t bad = 0;

	for (i = 0; i < OBJS && !bad; i++)
		bad = (uintptr_t)!!mpool_alloc(mp_now, &req, 1, &obj[i]);
	for (round = 0; round < 3 && !bad; round++) {
		for (i = 0; i < OBJS; i++)
			fill(buf + (size_t)i * DATA, who * OBJS + i, round);
		bad = through_queue(mp_now, obj, buf, MPOOL_WRITE, round * DATA) ? 1 : 0;
		for (i = 0; i < OBJS && !bad; i += 7)
			bad = th_read(obj[i], round * DATA, back, DATA) ||
			      !is_filled(back, who * OBJS + i, round) ? 2 : 0;
		if (!bad && through_queue(mp_now, obj, back, MPOOL_READ, round * DATA))
			bad = 3;
		for (i = 0; i < OBJS && !bad; i++)
			bad = is_filled(back + (size_t)i * DATA, who * OBJS + i, round) ? 0 : 4;
	}
	if (bad)
		printf("# thread %u, round %u: %lu\n", who, round, (unsigned long)bad);
	for (i = 0; i < OBJS; i++)
		mpool_obj_close(obj[i]);
	free(buf);
	free(back);
	__atomic_fetch_sub(&threads_left, 1, __ATOMIC_SEQ_CST);
	return (void *)bad;
}

static void few_descriptors_serve_many_objects(void)
{
	struct rlimit was, low;
	unsigned before, most = 0, i;
	pthread_t t[3];
	void *bad[3];

	T_EQ(getrlimit(RLIMIT_NOFILE, &was), 0);
	low = was;
	low.rlim_cur = 64;
	before = fds_open();
	T_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
	mp_now = th_new_pool(io_kind, NULL);
	threads_left = 3;
	for (i = 0; i < 3; i++)
		T_EQ(pthread_create(&t[i], NULL, fds_thread, (void *)(uintptr_t)(i + 1)), 0);
	while (__atomic_load_n(&threads_left, __ATOMIC_SEQ_CST)) {
		const struct timespec nap = { .tv_nsec = 2000000 };
		unsigned n = fds_open();

		most = n > most ? n : most;
		nanosleep(&nap, NULL);
	}
	for (i = 0; i < 3; i++)
		pthread_join(t[i], &bad[i]);
	T_EQ(setrlimit(RLIMIT_NOFILE, &was), 0);
	T_OK(!bad[0] && !bad[1] && !bad[2]);
	/* 16 objects, each queue's ring, the node; and while one is exchanged, two */
	printf("# %u descriptors at most\n", most - before);
	T_OK(most > before + 4 && most - before <= 16 + 3 + 1 + 3);
	T_EQ(mpool_close(mp_now), 0);
	T_EQ(fds_open(), before);
}

static void a_lent_descriptor_stays(void)
{
	struct mpool *mp = th_new_pool(NULL, NULL);
	struct mpool_obj *lent = th_alloc(mp, MPOOL_APPEND, MPOOL_CAPACITY, 4 * DATA, 0), *other;
	char *buf = th_buf(DATA, 1), *back = th_buf(DATA, 2);
	struct rlimit was, low;
	struct mpool *small;
	uint64_t pos, len;
	int fd, again, i;

	T_EQ(mpool_close(mp), -EBUSY);
	T_EQ(th_write(lent, 0, buf, DATA), 0);
	T_EQ(mpool_obj_place(lent, DATA, &fd, &pos, &len), 0);
	T_EQ(pos, DATA);
	T_EQ(len, 3 * DATA);
	T_EQ(mpool_obj_place(lent, 0, &again, &pos, &len), 0);
	T_EQ(again, fd);
	T_EQ(getrlimit(RLIMIT_NOFILE, &was), 0);
	low = was;
	low.rlim_cur = 64;
	T_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
	T_EQ(mpool_open(th_pool, NULL, &small), 0);
	T_EQ(setrlimit(RLIMIT_NOFILE, &was), 0);
	mpool_obj_close(lent);
	lent = th_alloc(small, MPOOL_APPEND, MPOOL_CAPACITY, 4 * DATA, 0);
	T_EQ(th_write(lent, 0, buf, DATA), 0);
	T_EQ(mpool_obj_place(lent, 0, &fd, &pos, &len), 0);
	for (i = 0; i < 100; i++) {
		other = th_alloc(small, MPOOL_MBLOCK, MPOOL_CAPACITY, DATA, 0);
		T_EQ(th_write(other, 0, back, DATA), 0);
		mpool_obj_close(other);
	}
	T_EQ(pread(fd, back, DATA, (off_t)pos), DATA);
	T_MEMEQ(buf, back, DATA);
	mpool_obj_close(lent);
	T_OK(fcntl(fd, F_GETFD) < 0);
	T_EQ(mpool_close(small), 0);
	T_EQ(mpool_close(mp), 0);
	free(buf);
	free(back);
}

/* ---- batches ---- */

static void batches_go_through_io_uring(void)
{
	struct mpool *mp = th_new_pool("uring", NULL);
	struct mpool_alloc req[64];
	struct mpool_obj *obj[64];
	struct mpool_op op[64];
	struct mpool_io io = { .type = MPOOL_BATCH, .iovcnt = 64, .op = op, .cookie = 7 };
	struct mpool_ioc_info a, b;
	struct mpool_dev_info di;
	struct mpool_cqe cqe;
	struct mpool_ioq *q;
	uint64_t flushes;
	void *buf = th_buf(4096, 1);
	int i;

	for (i = 0; i < 64; i++)
		req[i] = (struct mpool_alloc){ .kind = MPOOL_MBLOCK, .capacity = 4096 };
	T_EQ(mpool_alloc(mp, req, 64, obj), 0);
	for (i = 0; i < 64; i++) {
		T_EQ(th_write(obj[i], 0, buf, 4096), 0);
		op[i] = (struct mpool_op){ .type = MPOOL_OP_COMMIT, .obj = obj[i], .length = 4096 };
	}
	a = info_now();
	T_EQ(mpool_dev_info(mp, 0, &di), 0);
	flushes = di.flushes;
	T_EQ(mpool_ioq_open(mp, 4, &q), 0);
	T_EQ(mpool_ioq_submit(q, &io, 1), 1);
	T_EQ(mpool_ioq_reap(q, &cqe, 1, 1, -1), 1);
	T_EQ(cqe.cookie, 7);
	T_EQ(cqe.res, 0);
	b = info_now();
	T_EQ(b.in_uring_cmds - a.in_uring_cmds, 1);
	T_EQ(b.in_batches - a.in_batches, 1);
	T_EQ(b.in_batch_ops - a.in_batch_ops, 64);
	T_EQ(b.in_objects, 64);
	T_EQ(mpool_dev_info(mp, 0, &di), 0);
	printf("# a batch of 64 commits: %llu flushes of the device that holds data and log\n",
	       (unsigned long long)(di.flushes - flushes));
	T_OK(di.flushes - flushes >= 1 && di.flushes - flushes <= 2);
	/* the plain call is none of these */
	for (i = 0; i < 64; i++)
		op[i].type = MPOOL_OP_DELETE;
	T_EQ(mpool_batch(mp, op, 64), 0);
	a = info_now();
	T_EQ(a.in_uring_cmds, b.in_uring_cmds);
	T_EQ(a.in_batches, b.in_batches + 1);
	/* an error comes with the module's words */
	T_EQ(mpool_ioq_submit(q, &io, 1), 1);
	T_EQ(mpool_ioq_reap(q, &cqe, 1, 1, -1), 1);
	T_OK(cqe.res < 0);
	T_EQ(mpool_error_detail()->err, cqe.res);
	T_OK(strstr(mpool_error_detail()->text, "object"));
	mpool_ioq_close(q);
	for (i = 0; i < 64; i++)
		mpool_obj_close(obj[i]);
	T_EQ(mpool_close(mp), 0);
	free(buf);
}

/* ---- several processes ---- */

static void another_openers_writes_are_seen(void)
{
	struct mpool *mp = th_new_pool(NULL, NULL), *two;
	struct mpool_obj *a = th_alloc(mp, MPOOL_APPEND, MPOOL_CAPACITY, 8 * DATA, 0), *b;
	char *buf = th_buf(DATA, 1), *back = th_buf(DATA, 2);

	T_EQ(mpool_open(th_pool, NULL, &two), 0);
	T_EQ(mpool_obj_open(two, mpool_obj_id(a), &b), 0);
	T_EQ(th_write(a, 0, buf, DATA), 0);
	T_EQ(th_write(b, 0, buf, DATA), -EINVAL);
	T_EQ(th_write(b, DATA, buf, DATA), 0);
	T_EQ(th_write(a, DATA, buf, DATA), -EINVAL);
	T_EQ(th_write(a, 2 * DATA, buf, DATA), 0);
	T_EQ(th_read(b, 2 * DATA, back, DATA), 0);
	T_MEMEQ(buf, back, DATA);
	T_EQ(th_op(two, MPOOL_OP_SEAL, b, 0, 2 * DATA), 0);
	T_EQ(th_write(a, 3 * DATA, buf, DATA), -EINVAL);
	T_EQ(th_read(a, DATA, back, DATA), 0);
	T_OK(th_read(a, 2 * DATA, back, DATA) < 0);
	T_EQ(th_op(mp, MPOOL_OP_DELETE, a, 0, 0), 0);
	T_EQ(th_read(b, 0, back, DATA), 0);	/* held */
	mpool_obj_close(a);
	T_EQ(th_read(b, DATA, back, DATA), 0);
	mpool_obj_close(b);
	T_EQ(mpool_obj_open(two, 1, &b), -ENOENT);
	T_EQ(mpool_close(two), 0);
	T_EQ(mpool_close(mp), 0);
	free(buf);
	free(back);
}

/* Holds the database open until it is killed. */
static pid_t hold_database(int *ready)
{
	struct kvdb *db;
	int fd[2];
	char c = 'x';
	pid_t pid;

	T_EQ(pipe(fd), 0);
	fflush(stdout);
	pid = fork();
	if (!pid) {
		if (kvdb_open(th_pool, NULL, &db))
			c = 'n';
		if (write(fd[1], &c, 1) == 1)
			pause();
		_exit(1);
	}
	close(fd[1]);
	*ready = read(fd[0], &c, 1) == 1 && c == 'x';
	close(fd[0]);
	return pid;
}

static void a_database_has_one_process(void)
{
	const struct timespec nap = { .tv_nsec = 10000000 };
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct kvdb *db;
	int ready, st, i, rc = -EBUSY;
	pid_t pid;

	T_EQ(mpool_close(th_new_pool(NULL, NULL)), 0);
	T_EQ(kvdb_create(th_pool, NULL), 0);
	pid = hold_database(&ready);
	T_OK(ready);
	T_EQ(kvdb_open(th_pool, NULL, &db), -EBUSY);
	printf("# %s\n", kvdb_error_detail()->text);
	o.flags = KVDB_RDONLY;
	T_EQ(kvdb_open(th_pool, &o, &db), -EBUSY);
	T_EQ(kvdb_drop(th_pool, NULL), -EBUSY);
	T_EQ(kill(pid, SIGKILL), 0);
	T_EQ(waitpid(pid, &st, 0), pid);
	for (i = 0; i < 200 && rc == -EBUSY; i++) {
		rc = kvdb_open(th_pool, NULL, &db);
		nanosleep(&nap, NULL);
	}
	T_EQ(rc, 0);
	T_EQ(kvdb_close(db), 0);
}

/* ---- permissions ---- */

/* As user @uid of group @gid alone, in a process of its own: 0 when all is as it should be */
static int as_user(unsigned uid, unsigned gid, int (*fn)(void))
{
	gid_t g = gid;
	int st = -1;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		int rc = setgroups(1, &g) || setgid(gid) || setuid(uid) ? 99 : fn();

		fflush(stdout);
		_exit(rc);
	}
	waitpid(pid, &st, 0);
	return WIFEXITED(st) ? WEXITSTATUS(st) : -1;
}

#define WANT(call, want) do {							\
	int w_rc = (call);							\
	if (w_rc != (want)) {							\
		printf("# line %d: %s = %d: %s\n", __LINE__, #call, w_rc,	\
		       mpool_error_detail()->text);				\
		return 1;							\
	}									\
} while (0)

static int stranger(void)
{
	struct mpool_open_opts ro = MPOOL_OPEN_OPTS_INIT;
	struct mpool_dev_spec dev = { .path = th_dev[0] };
	struct mpool_create_opts c = MPOOL_CREATE_OPTS_INIT;
	struct mpool_set_opts set = MPOOL_SET_OPTS_INIT;
	const char *path[] = { th_dev[0], th_dev[1] };
	struct mpool_active ac;
	struct mpool_probe pr;
	struct mpool *mp;
	struct kvdb *db;
	char name[MPOOL_NAME_MAX + 1];
	uint64_t damage;

	ro.flags = MPOOL_OPEN_RDONLY;
	c.devs = &dev;
	c.ndevs = 1;
	set.mask = MPOOL_SET_OWNER;
	WANT(mpool_open(th_pool, NULL, &mp), -EACCES);
	WANT(mpool_open(th_pool, &ro, &mp), -EACCES);
	WANT(kvdb_open(th_pool, NULL, &db), -EACCES);
	WANT(kvdb_create(th_pool, NULL), -EACCES);
	WANT(kvdb_drop(th_pool, NULL), -EACCES);
	WANT(mpool_destroy(th_pool, NULL), -EACCES);
	WANT(mpool_verify(th_pool, NULL, 0, NULL, NULL, &damage), -EACCES);
	WANT(mpool_set(th_pool, NULL, &set), -EACCES);
	WANT(mpool_rename(th_pool, NULL, "mine"), -EACCES);
	WANT(mpool_add(th_pool, NULL, &dev, 1, 0), -EACCES);
	WANT(mpool_grow(th_pool, NULL, 0, 0), -EACCES);
	WANT(mpool_deactivate(th_pool), -EACCES);
	WANT(mpool_activate(path, 2, 0, name), -EACCES);
	WANT(mpool_create("mine", &c), -EACCES);
	WANT(mpool_active_next("", &ac), -EACCES);
	WANT(mpool_probe(th_dev[0], &pr), -EACCES);
	return 0;
}

static int member(void)
{
	struct mpool_open_opts ro = MPOOL_OPEN_OPTS_INIT;
	struct mpool_set_opts set = MPOOL_SET_OPTS_INIT;
	struct mpool_alloc req = { .kind = MPOOL_MBLOCK, .capacity = DATA };
	char *buf = th_buf(DATA, 5);
	struct mpool *mp, *reader;
	struct mpool_obj *obj, *two;
	uint64_t damage;

	ro.flags = MPOOL_OPEN_RDONLY;
	set.mask = MPOOL_SET_OWNER;
	WANT(mpool_open(th_pool, NULL, &mp), 0);
	WANT(mpool_alloc(mp, &req, 1, &obj), 0);
	WANT(th_write(obj, 0, buf, DATA), 0);
	WANT(th_op(mp, MPOOL_OP_COMMIT, obj, 0, DATA), 0);
	WANT(mpool_open(th_pool, &ro, &reader), 0);
	WANT(mpool_alloc(reader, &req, 1, &two), -EROFS);
	WANT(mpool_obj_open(reader, mpool_obj_id(obj), &two), 0);
	WANT(th_read(two, 0, buf, DATA), 0);
	WANT(th_write(two, 0, buf, DATA), -EROFS);
	WANT(th_op(reader, MPOOL_OP_DELETE, two, 0, 0), -EROFS);
	WANT(mpool_flush(reader, 1), -EROFS);
	mpool_obj_close(two);
	mpool_obj_close(obj);
	WANT(mpool_close(reader), 0);
	/* a pool is not a disk: what reads or changes members is root's */
	WANT(mpool_verify(th_pool, NULL, 0, NULL, NULL, &damage), -EACCES);
	WANT(mpool_set(th_pool, NULL, &set), -EACCES);
	WANT(mpool_deactivate(th_pool), -EACCES);
	WANT(mpool_close(mp), 0);
	free(buf);
	return 0;
}

static void the_pool_s_mode_decides(void)
{
	struct mpool_set_opts set = MPOOL_SET_OPTS_INIT;
	struct mpool_info in;
	struct mpool *mp = th_new_pool(NULL, NULL);

	T_EQ(mpool_close(mp), 0);
	T_EQ(as_user(1001, 1100, stranger), 0);
	set.mask = MPOOL_SET_OWNER;
	set.gid = 1100;
	set.mode = 0660;
	T_EQ(mpool_set(th_pool, NULL, &set), 0);
	T_EQ(as_user(1001, 1100, member), 0);
	T_EQ(as_user(1002, 1002, stranger), 0);
	set.mode = 0600;
	T_EQ(mpool_set(th_pool, NULL, &set), 0);
	T_EQ(as_user(1001, 1100, stranger), 0);
	/* kept, and honoured by an activation that trusts */
	set.mode = 0660;
	T_EQ(mpool_set(th_pool, NULL, &set), 0);
	mp = th_open_with(NULL, NULL);
	T_EQ(mpool_info(mp, &in), 0);
	T_EQ(in.gid, 1100);
	T_EQ(in.mode, 0660);
	T_EQ(mpool_close(mp), 0);
	T_EQ(as_user(1001, 1100, member), 0);
	T_EQ(as_user(1002, 1002, stranger), 0);
}

/* ---- administration ---- */

static void an_active_pool_is_administered(void)
{
	struct mpool_set_opts set = MPOOL_SET_OPTS_INIT;
	struct mpool_dev_spec dev = { .mclass = MPOOL_STAGING };
	struct mpool *mp, *two;
	struct mpool_dev_info di;
	struct mpool_info in;
	struct mpool_probe pr;
	char old[64];

	th_fresh();
	T_EQ(th_create_at(th_pool, 64 * MIB, 0), 0);
	T_EQ(mpool_open(th_pool, NULL, &mp), 0);
	dev.path = th_dev_make(MPOOL_STAGING, 32 * MIB);
	T_EQ(mpool_add(th_pool, NULL, &dev, 1, MPOOL_CREATE_PLAN), 0);
	T_EQ(mpool_info(mp, &in), 0);
	T_EQ(in.cls[MPOOL_STAGING].devs, 0);
	T_EQ(mpool_add(th_pool, NULL, &dev, 1, 0), 0);
	T_EQ(mpool_info(mp, &in), 0);
	T_EQ(in.cls[MPOOL_STAGING].devs, 1);
	T_EQ(mpool_dev_info(mp, 1, &di), 0);
	T_STREQ(di.path, dev.path);
	T_EQ(mpool_add(th_pool, NULL, &dev, 1, 0), -EEXIST);
	mpool_obj_close(th_alloc(mp, MPOOL_MBLOCK, MPOOL_STAGING, MIB, 0));
	T_EQ(mpool_grow(th_pool, NULL, 0, 0), 0);
	T_EQ(mpool_grow(th_pool, NULL, 128 * MIB, 0), -EINVAL);
	set.mask = MPOOL_SET_LABEL | MPOOL_SET_SPARE;
	set.label = "a label";
	set.spare_pct[0] = 7;
	T_EQ(mpool_set(th_pool, NULL, &set), 0);
	T_EQ(mpool_info(mp, &in), 0);
	T_STREQ(in.label, "a label");
	T_EQ(in.cls[0].spare_pct, 7);
	snprintf(old, sizeof(old), "%.31s", th_pool);
	T_EQ(mpool_rename(th_pool, NULL, ".."), -EINVAL);
	T_EQ(mpool_rename(th_pool, NULL, "renamed"), 0);
	snprintf(th_pool, sizeof(th_pool), "renamed");
	T_EQ(mpool_info(mp, &in), 0);	/* what is open stays so */
	T_STREQ(in.name, "renamed");
	T_EQ(mpool_open(old, NULL, &two), -ENOENT);
	T_EQ(mpool_open(th_pool, NULL, &two), 0);
	T_EQ(mpool_close(two), 0);
	T_EQ(mpool_probe(th_dev[1], &pr), 0);
	T_STREQ(pr.name, "renamed");
	T_EQ(pr.ndevs, 2);
	T_EQ(mpool_close(mp), 0);
	mp = th_open_with(NULL, NULL);
	T_EQ(mpool_info(mp, &in), 0);
	T_STREQ(in.label, "a label");
	T_EQ(in.cls[MPOOL_STAGING].devs, 1);
	T_EQ(mpool_close(mp), 0);
	T_EQ(mpool_destroy(th_pool, NULL), 0);
	T_EQ(mpool_probe(th_dev[0], &pr), -EINVAL);
}

static void a_pool_activated_for_reading(void)
{
	const char *dev[2] = { th_dev[0], th_dev[1] };
	char name[MPOOL_NAME_MAX + 1];
	struct mpool *mp = th_new_pool(NULL, NULL);
	struct mpool_alloc req = { .kind = MPOOL_MBLOCK, .capacity = DATA };
	struct mpool_obj *obj;
	struct mpool_info in;

	T_EQ(mpool_close(mp), 0);
	T_EQ(mpool_deactivate(th_pool), 0);
	T_EQ(mpool_activate(dev, 1, 0, name), -ENODEV);
	T_EQ(mpool_activate(dev, 2, MPOOL_ACTIVATE_RDONLY, name), 0);
	T_EQ(mpool_open(th_pool, NULL, &mp), 0);
	T_EQ(mpool_info(mp, &in), 0);
	T_EQ(in.is_rdonly, 1);
	T_EQ(mpool_alloc(mp, &req, 1, &obj), -EROFS);
	T_OK(*mpool_error_detail()->text && *mpool_error_detail()->cure);
	T_EQ(mpool_close(mp), 0);
}

int main(void)
{
	if (geteuid() || access("/dev/mpoolctl", F_OK) || access(TH_NULLB, F_OK))
		return t_skip_all("needs root, the module, and null_blk with configfs");
	setenv("MPOOL_TEST_KMOD", "1", 1);
	unsetenv("MPOOL_DEV");
	unsetenv("MPOOL_IO");
	io_kind = "uring";
	t_run("few_descriptors_serve_many_objects (uring)", few_descriptors_serve_many_objects);
	io_kind = "sync";
	t_run("few_descriptors_serve_many_objects (sync)", few_descriptors_serve_many_objects);
	T_RUN(a_lent_descriptor_stays);
	T_RUN(batches_go_through_io_uring);
	T_RUN(another_openers_writes_are_seen);
	T_RUN(a_database_has_one_process);
	T_RUN(the_pool_s_mode_decides);
	T_RUN(an_active_pool_is_administered);
	T_RUN(a_pool_activated_for_reading);
	th_clean();
	return t_done();
}
