/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Exclusion of member files: an open that finds a living owner fails at once; what a
 * killed process' rings still hold is waited for, longer than the kernel takes.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "device.h"
#include "harness.h"

#define SIZE	(1u << 20)

static char path[4096];

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int file_open(unsigned flags, struct mpl_low *lo)
{
	const char *why;

	return mpl_file_open(path, flags, SIZE, lo, &why);
}

static void file_close(struct mpl_low *lo)
{
	lo->lo_vdev.ops->close(lo->lo_vdev.dev);
}

/*
 * A wait takes two seconds each time. Other programs may take as long of the processor, but
 * not at every one of several attempts.
 */
static int is_at_once(void (*fn)(void))
{
	for (int i = 0; i < 5; i++) {
		double begun = seconds();

		fn();
		if (seconds() - begun < 1.5)
			return 1;
	}
	return 0;
}

static void living_owner(void)
{
	struct mpl_low one, two;

	T_EQ(file_open(0, &one), 0);
	T_EQ(file_open(0, &two), -EBUSY);
	T_EQ(file_open(MPL_FILE_RDONLY, &two), -EBUSY);
	file_close(&one);
}

static void a_living_owner_is_found_at_once(void)
{
	T_OK(is_at_once(living_owner));
}

static void two_readers(void)
{
	struct mpl_low one, two;

	T_EQ(file_open(MPL_FILE_RDONLY, &one), 0);
	T_EQ(file_open(MPL_FILE_RDONLY, &two), 0);
	file_close(&two);
	file_close(&one);
}

static void a_reader_is_waited_for_but_not_for_ever(void)
{
	struct mpl_low one, two;
	double begun;

	T_OK(is_at_once(two_readers));
	T_EQ(file_open(MPL_FILE_RDONLY, &one), 0);
	begun = seconds();
	T_EQ(file_open(0, &two), -EBUSY);
	T_OK(seconds() - begun >= 1.9);
	file_close(&one);
}

static void interrupted(int sig)
{
	(void)sig;
}

/* As of a profiler: each of them ends a sleep. */
static void signals_take_nothing_from_patience(void)
{
	struct itimerval often = { .it_interval = { .tv_usec = 1000 },
				   .it_value = { .tv_usec = 1000 } }, never = { .it_value = { 0 } };
	struct sigaction sa = { .sa_handler = interrupted }, was;
	struct mpl_low one, two;
	double begun;
	int rc;

	T_EQ(file_open(MPL_FILE_RDONLY, &one), 0);
	sigaction(SIGALRM, &sa, &was);
	setitimer(ITIMER_REAL, &often, NULL);
	begun = seconds();
	rc = file_open(0, &two);
	begun = seconds() - begun;
	setitimer(ITIMER_REAL, &never, NULL);
	sigaction(SIGALRM, &was, NULL);
	T_EQ(rc, -EBUSY);
	T_OK(begun >= 1.9);
	file_close(&one);
}

/* What is left of a process while its rings end: locks, but no owner. */
static void *ring(void *arg)
{
	const struct timespec nap = { .tv_sec = 2, .tv_nsec = 500000000 };

	nanosleep(&nap, NULL);
	close(*(int *)arg);
	return NULL;
}

static void a_dying_ring_is_waited_for(void)
{
	struct flock fl = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 2 };
	int fd = open(path, O_RDWR | O_CLOEXEC);
	double begun = seconds();
	struct mpl_low lo;
	pthread_t t;

	T_OK(fd >= 0 && !fcntl(fd, F_OFD_SETLK, &fl));
	T_EQ(pthread_create(&t, NULL, ring, &fd), 0);
	T_EQ(file_open(0, &lo), 0);
	T_OK(seconds() - begun >= 2.4);
	pthread_join(t, NULL);
	file_close(&lo);
}

/* It shares the descriptors until it calls exec(); what was closed is closed all the same. */
static void a_child_keeps_no_lock_of_what_its_parent_closed(void)
{
	struct flock fl = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 3 };
	int fd = open(path, O_RDWR | O_CLOEXEC), rc;
	struct mpl_low lo;
	pid_t pid;

	T_OK(fd >= 0);
	T_EQ(file_open(0, &lo), 0);
	pid = fork();
	if (!pid)
		for (;;)
			pause();
	file_close(&lo);
	rc = fcntl(fd, F_OFD_SETLK, &fl);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	T_EQ(rc, 0);
	close(fd);
}

int main(void)
{
	const char *tmp = getenv("TMPDIR");
	int fd;

	snprintf(path, sizeof(path), "%s/mpool-lock.XXXXXX", tmp && *tmp ? tmp : "/tmp");
	fd = mkstemp(path);
	if (fd < 0 || ftruncate(fd, SIZE))
		return 2;
	close(fd);
	T_RUN(a_living_owner_is_found_at_once);
	T_RUN(a_reader_is_waited_for_but_not_for_ever);
	T_RUN(signals_take_nothing_from_patience);
	T_RUN(a_dying_ring_is_waited_for);
	T_RUN(a_child_keeps_no_lock_of_what_its_parent_closed);
	unlink(path);
	return t_done();
}
