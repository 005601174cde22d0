// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Which control group pays. What a process has the pool write for all of its users is the root
 * group's, at a priority of its own: a limit of one process is none of the others. Data of
 * objects is its writer's. So is the memory that its commands take, within its limit; what an
 * activation loads is not.
 *
 * Disks: the first two of MPK_DEVS, else two in memory. Needs version 2 of control groups.
 */
#define _GNU_SOURCE
#include <linux/ioprio.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "kt.h"

#define POOL	"ktcharge"
#define CG	"/sys/fs/cgroup"
#define TRACE	"/sys/kernel/debug/tracing"
#define ISSUED	TRACE "/events/block/block_rq_issue"
#define MBLOCK	1u
#define APPEND	2u
#define MLOG	3u
#define COMMIT	1u
#define DATA	(1u << 20)
#define OBJS	16384u	/* of the tests of memory */
#define OBJ_MEM	256u	/* bytes of one, and of its space, at least */
#define WR	(MPOOL_IOC_OPEN_WRITE | MPOOL_IOC_OPEN_DIRECT)

static struct kt_rig rig;
static unsigned char data[DATA] __attribute__((aligned(4096)));

/* ---- control groups ---- */

static const char *cg_missing(void)
{
	if (access(CG "/cgroup.controllers", F_OK)) {
		mkdir(CG, 0755);
		mount("none", CG, "cgroup2", 0, NULL);
	}
	if (ioc_put(CG "/cgroup.subtree_control", "+io +memory"))
		return "no control groups of version 2 here";
	return NULL;
}

/* runs @fn in a process in a new control group @name, which stays */
static void cg_run(const char *name, int (*fn)(void))
{
	char dir[64], path[96], text[16];
	int st = 0;
	pid_t pid;

	snprintf(dir, sizeof(dir), CG "/%s", name);
	snprintf(path, sizeof(path), "%s/cgroup.procs", dir);
	rmdir(dir);
	T_EQ(mkdir(dir, 0755), 0);
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		snprintf(text, sizeof(text), "%d", getpid());
		_exit(ioc_put(path, text) ? 100 : fn());
	}
	T_OK(pid > 0);
	T_EQ(waitpid(pid, &st, 0), pid);
	T_OK(WIFEXITED(st));
	T_EQ(WEXITSTATUS(st), 0);
}

static void cg_remove(const char *name)
{
	char dir[64];

	snprintf(dir, sizeof(dir), CG "/%s", name);
	T_EQ(rmdir(dir), 0);
}

/* what the group has of @key ("wbytes") on both disks */
static uint64_t cg_io(const char *name, const char *key)
{
	unsigned long long n = 0, one;
	char path[96], line[256], *p;
	struct stat st;
	FILE *f;
	int i;

	snprintf(path, sizeof(path), CG "/%s/io.stat", name);
	f = fopen(path, "re");
	T_OK(f);
	while (fgets(line, sizeof(line), f)) {
		for (i = 0; i < 2; i++) {
			char dev[24];

			T_EQ(fstat(rig.disk[i].dk_fd, &st), 0);
			snprintf(dev, sizeof(dev), "%u:%u ", major(st.st_rdev), minor(st.st_rdev));
			if (strncmp(line, dev, strlen(dev)))
				continue;
			/* some kernels print the device alone before anything was done */
			p = strstr(line, key);
			if (!p)
				continue;
			T_EQ(sscanf(p + strlen(key), "=%llu", &one), 1);
			n += one;
		}
	}
	fclose(f);
	return n;
}

/* ---- the pool ---- */

static void pool_up(void)
{
	int i;

	snprintf(rig.name, sizeof(rig.name), POOL);
	rig.rw = rig.ro = -1;
	for (i = 0; i < 2; i++)
		kt_disk(&rig, i, "ktpay", 256);
	rig.ctl = ioc_ctl_open();
	T_OK(rig.ctl >= 0);
	KT_EQ(ioc_create(rig.ctl, POOL, rig.dev, 2, 0600, 0), 0);
	KT_EQ(ioc_activate(rig.ctl, rig.dev, 2, 0), 0);
	kt_open(&rig);
}

static void pool_down(void)
{
	kt_destroy(&rig, POOL);
}

/* ---- what all wait for ---- */

static uint64_t log_id;

/* frames of the pool's log, superblocks, frames and reads of an mlog, flushes */
static int work_for_all(void)
{
	struct mpool_ioc_set st = { .st_name = POOL, .st_label = "paid by all" };
	struct mpool_ioc_flush fl = { .fl_mask = 1 };
	struct mpool_ioc_read rd = { .rd_size = sizeof(data) };
	uint64_t id;
	int i, rc = 0;

	if (syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0,
		    IOPRIO_PRIO_VALUE(IOPRIO_CLASS_IDLE, 0)))
		return 1;
	for (i = 0; i < 8 && !rc; i++) {
		rc = ioc_alloc(rig.rw, MBLOCK, 0, 4096, 1, &id);
		rc = rc ? rc : ioc_op(rig.rw, COMMIT, id, 0);
	}
	rc = rc ? rc : ioc_alloc(rig.rw, MLOG, 0, 4 * DATA, 1, &log_id);
	rc = rc ? rc : ioc_mlog(rig.rw, MPOOL_IOC_MLOG_OPEN, log_id);
	rc = rc ? rc : ioc_append(rig.rw, log_id, data, 5000, 0);
	rc = rc ? rc : ioc_append(rig.rw, log_id, data, 9000, MPOOL_IOC_APPEND_SYNC);
	/* opened once more, it is read */
	rc = rc ? rc : ioc_mlog(rig.rw, MPOOL_IOC_MLOG_CLOSE, log_id);
	rc = rc ? rc : ioc_mlog(rig.rw, MPOOL_IOC_MLOG_OPEN, log_id);
	rd.rd_id = log_id;
	rd.rd_buf = (uintptr_t)data;
	rc = rc ? rc : ioc_call(rig.rw, MPOOL_IOC_MLOG_READ, &rd);
	rc = rc ? rc : ioc_call(rig.rw, MPOOL_IOC_FLUSH, &fl);
	st.st_arg.ma_flags = MPOOL_IOC_SET_LABEL;
	rc = rc ? rc : ioc_call(rig.ctl, MPOOL_IOC_SET, &st);
	return rc ? 2 : 0;
}

static void what_all_wait_for_is_the_root_groups(void)
{
	cg_run("ktshare", work_for_all);
	T_EQ(cg_io("ktshare", "wbytes"), 0);
	T_EQ(cg_io("ktshare", "wios"), 0);
	T_EQ(cg_io("ktshare", "rbytes"), 0);
	T_EQ(cg_io("ktshare", "rios"), 0);
	cg_remove("ktshare");
}

/* ---- data ---- */

static int work_of_its_own(void)
{
	uint64_t id = 0;
	int fd, rc;

	if (syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0,
		    IOPRIO_PRIO_VALUE(IOPRIO_CLASS_IDLE, 0)))
		return 1;
	rc = ioc_alloc(rig.rw, MBLOCK, 0, DATA, 1, &id);
	fd = rc ? -1 : ioc_obj_open(rig.rw, id, WR);
	if (fd < 0 || pwrite(fd, data, DATA, 0) != DATA || fsync(fd))
		return 2;
	if (ioc_op(rig.rw, COMMIT, id, DATA) || pread(fd, data, DATA / 2, 0) != DATA / 2)
		return 3;
	close(fd);
	return 0;
}

static void data_is_its_users(void)
{
	cg_run("ktdata", work_of_its_own);
	T_EQ(cg_io("ktdata", "wbytes"), DATA);
	T_EQ(cg_io("ktdata", "rbytes"), DATA / 2);
	cg_remove("ktdata");
}

#define ZEROES	(8 * DATA)

static int work_of_zeroes(void)
{
	uint64_t id;

	return ioc_alloc(rig.rw, APPEND, 0, ZEROES, 1, &id) ? 1 : 0;
}

/* no other process waits for them */
static void zeroes_of_a_new_object_are_its_users(void)
{
	cg_run("ktzeroes", work_of_zeroes);
	T_EQ(cg_io("ktzeroes", "wbytes"), ZEROES);
	cg_remove("ktzeroes");
}

/* ---- memory ---- */

/* the number in the group's file @attr, or after @key in it */
static uint64_t cg_number(const char *name, const char *attr, const char *key)
{
	char path[96], text[8192] = "", *p = text;
	unsigned long long n = 0;
	FILE *f;

	snprintf(path, sizeof(path), CG "/%s/%s", name, attr);
	f = fopen(path, "re");
	T_OK(f && fread(text, 1, sizeof(text) - 1, f) > 0);
	fclose(f);
	if (key)
		p = strstr(text, key);
	T_OK(p && sscanf(p + (key ? strlen(key) : 0), "%llu", &n) == 1);
	return n;
}

/* all of them allocated, and committed if @is_commit */
static int objects(int is_commit)
{
	static struct mpool_ioc_alloc_one one[MPOOL_IOC_BATCH_MAX];
	static struct mpool_ioc_op op[MPOOL_IOC_BATCH_MAX];
	static uint64_t id[MPOOL_IOC_BATCH_MAX];
	struct mpool_ioc_alloc al = { .al_n = MPOOL_IOC_BATCH_MAX };
	struct mpool_ioc_batch ba = { .ba_n = MPOOL_IOC_BATCH_MAX };
	uint32_t i, k;

	al.al_req = (uintptr_t)one;
	al.al_ids = (uintptr_t)id;
	ba.ba_ops = (uintptr_t)op;
	for (i = 0; i < MPOOL_IOC_BATCH_MAX; i++)
		one[i] = (struct mpool_ioc_alloc_one){ .ao_kind = MBLOCK, .ao_capacity = 4096 };
	for (i = 0; i < OBJS; i += MPOOL_IOC_BATCH_MAX) {
		if (ioc_call(rig.rw, MPOOL_IOC_ALLOC, &al))
			return -errno;
		for (k = 0; k < MPOOL_IOC_BATCH_MAX && is_commit; k++)
			op[k] = (struct mpool_ioc_op){ .op_type = COMMIT, .op_id = id[k] };
		if (is_commit && ioc_call(rig.rw, MPOOL_IOC_BATCH, &ba))
			return -errno;
		for (k = 0; k < MPOOL_IOC_BATCH_MAX && is_commit; k++)
			ioc_drop(rig.rw, id[k]);
	}
	return 0;
}

static int work_of_objects(void)
{
	return objects(1) ? 1 : 0;
}

static void objects_are_charged_to_who_makes_them(void)
{
	uint64_t slab;

	cg_run("ktobjs", work_of_objects);
	/* they stay when their maker has gone */
	slab = cg_number("ktobjs", "memory.stat", "\nslab ");
	printf("# %llu bytes an object\n", (unsigned long long)(slab / OBJS));
	T_OK(slab >= (uint64_t)OBJS * OBJ_MEM);
	cg_remove("ktobjs");
}

static int work_of_activation(void)
{
	return ioc_activate(rig.ctl, rig.dev, 2, 0) ? 1 : 0;
}

static void what_an_activation_loads_is_nobodys(void)
{
	uint64_t slab;

	kt_close(&rig);
	KT_EQ(ioc_deactivate(rig.ctl, POOL), 0);
	cg_run("ktload", work_of_activation);
	slab = cg_number("ktload", "memory.stat", "\nslab ");
	printf("# %llu bytes in all\n", (unsigned long long)slab);
	T_OK(slab < (uint64_t)OBJS * OBJ_MEM / 4);
	cg_remove("ktload");
	kt_open(&rig);
}

static int work_without_end(void)
{
	while (!objects(0))
		;
	return 1;
}

static double now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

/* A task that takes more than its group may have sleeps, but not with the pool's locks. */
static void a_limit_of_memory_is_none_of_the_others(void)
{
	char dir[] = CG "/ktlimit", text[16];
	double t, worst = 0;
	pid_t pid;
	int i, st;

	rmdir(dir);
	T_EQ(mkdir(dir, 0755), 0);
	T_EQ(ioc_put(CG "/ktlimit/memory.high", "1048576"), 0);
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		snprintf(text, sizeof(text), "%d", getpid());
		rig.rw = ioc_pool_open(POOL, O_RDWR);
		_exit(ioc_put(CG "/ktlimit/cgroup.procs", text) ? 100 : work_without_end());
	}
	T_OK(pid > 0);
	for (i = 0; i < 1000 && !cg_number("ktlimit", "memory.events", "\nhigh "); i++)
		usleep(10000);
	T_OK(i < 1000);
	for (i = 0; i < 20; i++) {
		uint64_t id;

		t = now_ms();
		KT_EQ(ioc_alloc(rig.rw, MBLOCK, 0, 4096, 1, &id), 0);
		KT_EQ(ioc_op(rig.rw, COMMIT, id, 0), 0);
		worst = now_ms() - t > worst ? now_ms() - t : worst;
		ioc_drop(rig.rw, id);
		usleep(20000);
	}
	printf("# the slowest of 20 commits beside it: %.1f ms\n", worst);
	T_EQ(kill(pid, SIGKILL), 0);
	T_EQ(waitpid(pid, &st, 0), pid);
	T_OK(WIFSIGNALED(st) && WTERMSIG(st) == SIGKILL);
	cg_remove("ktlimit");
}

/* ---- priority ---- */

/* requests of the pool's disks that were issued with idle priority while @fn ran */
static int idle_requests(const char *name, int (*fn)(void))
{
	char line[512], dev[24];
	struct stat st;
	int i, n = 0;
	FILE *f;

	T_EQ(ioc_put(TRACE "/trace", ""), 0);
	T_EQ(ioc_put(ISSUED "/enable", "1"), 0);
	cg_run(name, fn);
	T_EQ(ioc_put(ISSUED "/enable", "0"), 0);
	cg_remove(name);
	f = fopen(TRACE "/trace", "re");
	T_OK(f);
	while (fgets(line, sizeof(line), f)) {
		for (i = 0; i < 2; i++) {
			T_EQ(fstat(rig.disk[i].dk_fd, &st), 0);
			snprintf(dev, sizeof(dev), " %u,%u ", major(st.st_rdev),
				 minor(st.st_rdev));
			n += strstr(line, "block_rq_issue:") && strstr(line, dev) &&
			     strstr(line, " idle,");
		}
	}
	fclose(f);
	return n;
}

static int trace_has_priority(void)
{
	char text[2048] = "";
	FILE *f = fopen(ISSUED "/format", "re");
	size_t n;

	if (!f)
		return 0;
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	return n && strstr(text, "ioprio");
}

static void what_all_wait_for_has_its_own_priority(void)
{
	T_EQ(idle_requests("ktshare", work_for_all), 0);
	T_OK(idle_requests("ktdata", work_of_its_own) > 0);
}

int main(void)
{
	const char *why = kt_missing();

	if (!why)
		why = cg_missing();
	if (why)
		return t_skip_all(why);
	T_RUN(pool_up);
	if (!t_failed) {
		T_RUN(what_all_wait_for_is_the_root_groups);
		T_RUN(data_is_its_users);
		T_RUN(zeroes_of_a_new_object_are_its_users);
		T_RUN(objects_are_charged_to_who_makes_them);
		T_RUN(what_an_activation_loads_is_nobodys);
		T_RUN(a_limit_of_memory_is_none_of_the_others);
		/* 6.1 does not trace it, and submits by the same lines of ours */
		if (trace_has_priority())
			T_RUN(what_all_wait_for_has_its_own_priority);
	}
	T_RUN(pool_down);
	return t_done();
}
