/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Work that takes long on a slow disk ends when its caller is killed, and keeps no other
 * caller waiting. How far it went is counted in requests of the disk and not in time.
 */
#include <signal.h>

#include "kt.h"

#define MLOG		3u
#define LATENCY_NS	10000000u
#define LONG		(32u << 20)	/* a log that is searched in some 250 reads */
#define SOME		8u
#define FEW		64u

static struct ioc_disk disk;
static int ctl, rw, ro;

/* of processes that share it */
static struct shared {
	volatile int is_done;
	uint64_t id;
} *sh;

/* requests for reading that have ended */
static unsigned long long reads(void)
{
	unsigned long long n = 0;
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/sys/block/%s/stat", disk.dk_name);
	f = fopen(path, "r");
	T_OK(f && fscanf(f, "%llu", &n) == 1);
	if (f)
		fclose(f);
	return n;
}

static void reads_wait(unsigned long long from)
{
	while (reads() < from + SOME && !sh->is_done)
		usleep(2000);
}

/* a process that opens the log; its result is 0 when that has succeeded */
static pid_t opener(void)
{
	pid_t pid;
	int fd;

	fflush(stdout);
	pid = fork();
	if (pid)
		return pid;
	fd = ioc_pool_open(disk.dk_name, O_RDONLY);
	if (fd < 0 || ioc_mlog(fd, MPOOL_IOC_MLOG_OPEN, sh->id))
		_exit(1);
	sh->is_done = 1;
	_exit(0);
}

static int result(pid_t pid)
{
	int st = 0;

	T_EQ(waitpid(pid, &st, 0), pid);
	return WIFSIGNALED(st) ? 128 + WTERMSIG(st) : WEXITSTATUS(st);
}

static void a_log_that_is_searched_keeps_no_other_waiting(void)
{
	unsigned long long n = reads();
	uint64_t other = 0;
	pid_t pid;

	KT_EQ(ioc_alloc(rw, MLOG, 0, 65536, 0, &other), 0);
	KT_EQ(ioc_mlog(rw, MPOOL_IOC_MLOG_OPEN, other), 0);
	sh->is_done = 0;
	n = reads();
	pid = opener();
	reads_wait(n);
	KT_EQ(ioc_mlog(ro, MPOOL_IOC_MLOG_OPEN, other), 0);
	KT_EQ(ioc_mlog(ro, MPOOL_IOC_MLOG_CLOSE, other), 0);
	KT_EQ(ioc_mlog(rw, MPOOL_IOC_MLOG_CLOSE, other), 0);
	T_OK(!sh->is_done);
	T_EQ(result(pid), 0);
	T_OK(sh->is_done);
}

static void who_searches_a_log_can_be_killed(void)
{
	unsigned long long n = reads();
	pid_t pid;

	sh->is_done = 0;
	pid = opener();
	reads_wait(n);
	n = reads();
	T_EQ(kill(pid, SIGKILL), 0);
	T_EQ(result(pid), 128 + SIGKILL);
	T_OK(!sh->is_done);
	T_OK(reads() - n < FEW);
	KT_EQ(ioc_mlog(ro, MPOOL_IOC_MLOG_OPEN, sh->id), 0);
	KT_EQ(ioc_mlog(ro, MPOOL_IOC_MLOG_CLOSE, sh->id), 0);
}

/* a process that waits for another's search does its own when that is killed, or is killed too */
static void who_waits_for_the_search_of_another_goes_on(void)
{
	unsigned long long n = reads();
	pid_t pid[3];
	int i;

	sh->is_done = 0;
	pid[0] = opener();
	reads_wait(n);
	for (i = 1; i < 3; i++)
		pid[i] = opener();
	usleep(100000);
	n = reads();
	T_EQ(kill(pid[1], SIGKILL), 0);
	T_EQ(result(pid[1]), 128 + SIGKILL);
	T_OK(!sh->is_done);
	T_EQ(kill(pid[0], SIGKILL), 0);
	T_EQ(result(pid[0]), 128 + SIGKILL);
	T_OK(!sh->is_done);
	T_OK(reads() - n < FEW);
	T_EQ(result(pid[2]), 0);
	T_OK(sh->is_done);
}

static void a_pool_comes_up_on_a_slow_disk(void)
{
	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	T_OK(sh != MAP_FAILED);
	T_EQ(ioc_disk_make(&disk, "ktslow", 64, IOC_DISK_NO_DISCARD, LATENCY_NS), 0);
	ctl = ioc_ctl_open();
	T_OK(ctl >= 0);
	rw = kt_up_one(ctl, &disk);
	ro = ioc_pool_open(disk.dk_name, O_RDONLY);
	T_OK(ro >= 0);
	KT_EQ(ioc_alloc(rw, MLOG, 0, LONG, 0, &sh->id), 0);
}

static void the_pool_goes_away(void)
{
	close(rw);
	close(ro);
	KT_EQ(ioc_deactivate(ctl, disk.dk_name), 0);
	close(ctl);
	ioc_disk_remove(&disk);
}

int main(void)
{
	const char *why = kt_missing();

	if (why)
		return t_skip_all(why);
	T_RUN(a_pool_comes_up_on_a_slow_disk);
	if (t_failed)
		return t_done();
	T_RUN(a_log_that_is_searched_keeps_no_other_waiting);
	T_RUN(who_searches_a_log_can_be_killed);
	T_RUN(who_waits_for_the_search_of_another_goes_on);
	T_RUN(the_pool_goes_away);
	return t_done();
}
