// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * What the other file systems and drivers of the kernel do, and users expect of this one:
 * limits, locks, which processes are told what, and whose device it is.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "kt.h"

#define POOL	"ktcustom"
#define MBLOCK	1u
#define COMMIT	1u
#define BLK	4096u
#define WR	(MPOOL_IOC_OPEN_WRITE | MPOOL_IOC_OPEN_DIRECT)
#define LEASED	"held by process"

/* older headers lack it */
#ifndef STATX_DIOALIGN
#define STATX_DIOALIGN	0x2000u
#endif

static struct kt_rig rig;
static char buf[1 << 20] __attribute__((aligned(4096)));

static void pool_up(void)
{
	kt_up(&rig, POOL, 64);
}

static void pool_down(void)
{
	kt_down(&rig);
}

/* ---- limits and locks ---- */

static int limited(void *arg)
{
	static const rlim_t limit[2] = { 2 * BLK, 2 * BLK + 1000 };
	struct rlimit rl = { .rlim_max = RLIM_INFINITY };
	uint64_t id;
	int i, fd;

	(void)arg;
	signal(SIGXFSZ, SIG_IGN);
	for (i = 0; i < 2; i++) {
		rl.rlim_cur = limit[i];
		if (ioc_alloc(rig.rw, MBLOCK, 0, 16 * BLK, 1, &id) || setrlimit(RLIMIT_FSIZE, &rl))
			return 1;
		fd = ioc_obj_open(rig.rw, id, WR);
		if (pwrite(fd, buf, 4 * BLK, 0) != 2 * BLK)
			return 2;
		errno = 0;
		if (pwrite(fd, buf, BLK, 2 * BLK) != -1 || errno != EFBIG)
			return 3;
		close(fd);
	}
	signal(SIGXFSZ, SIG_DFL);
	fd = ioc_obj_open(rig.rw, id, WR);
	/* and ends a process that ignores it */
	return pwrite(fd, buf, BLK, 2 * BLK) == -1 ? 4 : 5;
}

static void the_limit_of_a_files_size_holds(void)
{
	T_EQ(kt_child(limited, NULL), 128 + SIGXFSZ);
}

/* a process that may only read keeps no writer out */
static void a_reader_gets_no_lock_of_writers(void)
{
	struct flock fl = { .l_type = F_WRLCK, .l_len = 1 };

	T_ERR(flock(rig.ro, LOCK_EX | LOCK_NB), EBADF);
	T_ERR(fcntl(rig.ro, F_OFD_SETLK, &fl), EBADF);
	T_EQ(flock(rig.ro, LOCK_SH | LOCK_NB), 0);
	T_EQ(flock(rig.ro, LOCK_UN), 0);
	T_EQ(flock(rig.rw, LOCK_EX | LOCK_NB), 0);
	T_EQ(flock(rig.rw, LOCK_UN), 0);
}

/* ---- what is told ---- */

static int ask_for_the_lease(void *arg)
{
	struct mpool_ioc_lease le = { .le_id = "another" };
	int fd = ioc_pool_open(POOL, O_RDWR), pid;
	char *p;

	(void)arg;
	if (kt_call(fd, MPOOL_IOC_LEASE, &le) != -EBUSY)
		return 1;
	p = strstr(kt_text, LEASED);
	if (!p)
		return 10;
	return sscanf(p + strlen(LEASED), "%d", &pid) == 1 && pid == getppid() ? 11 : 12;
}

/* in a namespace of processes where the holder has no number */
static int ask_from_elsewhere(void *arg)
{
	return unshare(CLONE_NEWPID) ? 2 : kt_child(ask_for_the_lease, arg);
}

static void a_process_is_named_as_the_caller_sees_it(void)
{
	struct mpool_ioc_lease le = { .le_id = "mine" };

	KT_EQ(kt_call(rig.rw, MPOOL_IOC_LEASE, &le), 0);
	T_EQ(kt_child(ask_for_the_lease, NULL), 11);
	T_EQ(kt_child(ask_from_elsewhere, NULL), 10);
	KT_EQ(kt_call(rig.rw, MPOOL_IOC_UNLEASE, &le), 0);
}

static void statx_tells_what_direct_transfers_need(void)
{
	struct statx sx;
	uint32_t word[2];	/* stx_dio_mem_align, stx_dio_offset_align: Linux 6.1 */
	uint64_t id;
	int fd, i;

	KT_EQ(ioc_alloc(rig.rw, MBLOCK, 0, 16 * BLK, 1, &id), 0);
	for (i = 0; i < 2; i++) {
		fd = kt_obj_open(&rig, id, i ? MPOOL_IOC_OPEN_DIRECT : WR);
		T_EQ(statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &sx), 0);
		T_OK(sx.stx_mask & STATX_DIOALIGN);
		memcpy(word, (char *)&sx + 0x98, sizeof(word));
		T_EQ(word[0], 512);
		T_EQ(word[1], i ? 512 : BLK);
		if (i) {
			T_EQ(pread(fd, buf + word[0], word[1], word[1]), word[1]);
			T_ERR(pread(fd, buf, word[1], word[1] / 2), EINVAL);
		} else {
			T_EQ(pwrite(fd, buf + word[0], 2 * word[1], 0), 2 * word[1]);
			KT_EQ(ioc_op(rig.rw, COMMIT, id, 2 * word[1]), 0);
		}
		close(fd);
	}
	KT_EQ(ioc_drop(rig.rw, id), 0);
}

/* 1: a thread of the kernel whose name has this in it */
static int has_thread(const char *name)
{
	char path[300], comm[64];
	DIR *d = opendir("/proc");
	struct dirent *de;
	int found = 0;
	FILE *f;

	T_OK(d);
	while (!found && (de = readdir(d))) {
		snprintf(path, sizeof(path), "/proc/%s/comm", de->d_name);
		f = isdigit((unsigned char)de->d_name[0]) ? fopen(path, "re") : NULL;
		if (!f)
			continue;
		found = fgets(comm, sizeof(comm), f) && strstr(comm, name);
		fclose(f);
	}
	closedir(d);
	return found;
}

/* what writes wait for goes on when there is no memory for another worker */
static void the_heartbeat_has_its_rescuer(void)
{
	/* 15 letters, of which some kernels need ten for what it is */
	T_OK(has_thread("mpool"));
}

/* ---- whose device it is ---- */

static void a_removed_device_is_not_taken_by_its_number(void)
{
	struct mpool_ioc_dev dev = { 0 };
	struct ioc_disk old, new;
	uint64_t ios, before, after;
	struct stat a, b;
	int fd;

	T_EQ(ioc_disk_make(&old, "ktgone", 64, 0, 0), 0);
	KT_EQ(ioc_create(rig.ctl, "ktgone", &(struct mpool_ioc_dev){ .id_fd = old.dk_fd }, 1,
			 0600, 0), 0);
	fd = dup(old.dk_fd);
	T_EQ(fstat(fd, &a), 0);
	ioc_disk_remove(&old);
	T_EQ(ioc_disk_make(&new, "ktgone", 64, 0, 0), 0);
	T_EQ(fstat(new.dk_fd, &b), 0);
	dev.id_fd = fd;
	/* or there is nothing to see */
	T_EQ(a.st_rdev, b.st_rdev);
	T_EQ(ioc_disk_writes(&new, &ios, &before), 0);
	KT_EQ(ioc_create(rig.ctl, "ktgone", &dev, 1, 0600, 0), -ENXIO);
	T_EQ(ioc_disk_writes(&new, &ios, &after), 0);
	T_EQ(after, before);
	close(fd);
	/* and it is free */
	fd = open(new.dk_path, O_RDWR | O_EXCL | O_CLOEXEC);
	T_OK(fd >= 0);
	close(fd);
	ioc_disk_remove(&new);
}

static struct twin {
	struct ioc_disk tw_disk;
	pthread_t tw_thread;
	pthread_barrier_t *tw_start;
	int tw_rc;
} twin[2];

static void *twin_activate(void *arg)
{
	struct twin *tw = arg;
	struct mpool_ioc_dev dev = { .id_fd = tw->tw_disk.dk_fd };

	pthread_barrier_wait(tw->tw_start);
	tw->tw_rc = ioc_activate(rig.ctl, &dev, 1, 0);
	return NULL;
}

/* of two that come at once with copies of one pool, the second changes nothing */
static void a_copy_stays_untouched_while_the_pool_comes(void)
{
	static const char *const name[2] = { "kttwin0", "kttwin1" };
	uint64_t ios, before[2], after[2];
	pthread_barrier_t start;
	off_t at;
	int i, k;

	for (i = 0; i < 2; i++)
		T_EQ(ioc_disk_make(&twin[i].tw_disk, name[i], 64, 0, 2000000), 0);
	KT_EQ(ioc_create(rig.ctl, "kttwin", &(struct mpool_ioc_dev){
			 .id_fd = twin[0].tw_disk.dk_fd }, 1, 0600, 0), 0);
	for (at = 0; at < 64 << 20; at += sizeof(buf)) {
		T_EQ(pread(twin[0].tw_disk.dk_fd, buf, sizeof(buf), at), sizeof(buf));
		T_EQ(pwrite(twin[1].tw_disk.dk_fd, buf, sizeof(buf), at), sizeof(buf));
	}
	T_EQ(fsync(twin[1].tw_disk.dk_fd), 0);
	T_EQ(pthread_barrier_init(&start, NULL, 2), 0);
	for (k = 0; k < 5; k++) {
		for (i = 0; i < 2; i++) {
			twin[i].tw_start = &start;
			T_EQ(ioc_disk_writes(&twin[i].tw_disk, &ios, &before[i]), 0);
			T_EQ(pthread_create(&twin[i].tw_thread, NULL, twin_activate, &twin[i]), 0);
		}
		for (i = 0; i < 2; i++)
			pthread_join(twin[i].tw_thread, NULL);
		for (i = 0; i < 2; i++)
			T_EQ(ioc_disk_writes(&twin[i].tw_disk, &ios, &after[i]), 0);
		i = twin[0].tw_rc == 0;		/* that one lost */
		KT_EQ(twin[!i].tw_rc, 0);
		KT_EQ(twin[i].tw_rc, -EEXIST);
		T_EQ(after[i], before[i]);
		T_OK(after[!i] > before[!i]);
		KT_EQ(ioc_deactivate(rig.ctl, "kttwin"), 0);
	}
	pthread_barrier_destroy(&start);
	for (i = 0; i < 2; i++)
		ioc_disk_remove(&twin[i].tw_disk);
}

int main(void)
{
	const char *why = kt_missing();

	if (why)
		return t_skip_all(why);
	T_RUN(pool_up);
	if (!t_failed) {
		T_RUN(the_limit_of_a_files_size_holds);
		T_RUN(a_reader_gets_no_lock_of_writers);
		T_RUN(a_process_is_named_as_the_caller_sees_it);
		T_RUN(statx_tells_what_direct_transfers_need);
		T_RUN(the_heartbeat_has_its_rescuer);
		T_RUN(a_removed_device_is_not_taken_by_its_number);
		T_RUN(a_copy_stays_untouched_while_the_pool_comes);
	}
	T_RUN(pool_down);
	return t_done();
}
