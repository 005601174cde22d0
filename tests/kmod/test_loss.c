// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * A device goes away under load: a disk that is unplugged, one whose every
 * request fails, a remote disk whose target dies. In each case the pool turns
 * read-only within seconds, nothing hangs, the pool is deactivated and the
 * module can go. Where the device comes back, all that was committed is there.
 *
 * vm-files: dmsetup
 */
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/time.h>

#include "kt.h"

#define THREADS		3
#define OBJ_BYTES	65536u
#define OBJS_MAX	4096
#define LIMIT_MS	20000u		/* from the loss to the fail-stop, on a slow machine */

static struct kt_rig rig;

/* what the load has committed */
struct load {
	pthread_t ld_thread;
	int ld_fd;		/* of the pool */
	uint32_t ld_mclass;
	atomic_int ld_n;	/* commits acknowledged */
	uint64_t ld_id[OBJS_MAX];
	int ld_err;		/* of the call that ended it */
};

static struct load loads[THREADS];
static atomic_int stop;
static atomic_int pipe_signals;

/*
 * nvme-tcp sends without MSG_NOSIGNAL, in the thread that submits: if the
 * connection has just closed, that thread gets SIGPIPE (seen in Linux 6.12).
 * It is no answer of the module, whose calls fail as they would have.
 */
static void count_pipe_signal(int sig)
{
	(void)sig;
	atomic_fetch_add(&pipe_signals, 1);
}

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* one object: allocated, written, committed, read back */
static int one_object(struct load *ld, void *buf, void *back, uint64_t *id)
{
	int rc = ioc_alloc(ld->ld_fd, 1, ld->ld_mclass, OBJ_BYTES, 0, id), ofd;
	ssize_t n;

	if (rc)
		return rc;
	ofd = ioc_obj_open(ld->ld_fd, *id, MPOOL_IOC_OPEN_WRITE | MPOOL_IOC_OPEN_DIRECT);
	if (ofd < 0)
		return ofd;
	ioc_pattern(buf, *id, 0, OBJ_BYTES);
	n = pwrite(ofd, buf, OBJ_BYTES, 0);
	rc = n < 0 ? -errno : n == OBJ_BYTES ? 0 : -EIO;
	if (!rc)
		rc = ioc_op(ld->ld_fd, 1, *id, OBJ_BYTES);
	if (!rc) {
		/* committed: counted whatever a read says now */
		ld->ld_id[atomic_load(&ld->ld_n)] = *id;
		atomic_fetch_add(&ld->ld_n, 1);
		n = pread(ofd, back, OBJ_BYTES, 0);
		rc = n < 0 ? -errno : n != OBJ_BYTES ? -EIO :
		     ioc_pattern_check(back, *id, 0, OBJ_BYTES) < 0 ? 0 : -EUCLEAN;
	}
	close(ofd);
	return rc;
}

static void *load_run(void *arg)
{
	struct load *ld = arg;
	void *buf = NULL, *back = NULL;
	uint64_t id;

	if (posix_memalign(&buf, 4096, OBJ_BYTES) || posix_memalign(&back, 4096, OBJ_BYTES))
		abort();
	while (!ld->ld_err && !atomic_load(&stop) && atomic_load(&ld->ld_n) < OBJS_MAX)
		ld->ld_err = one_object(ld, buf, back, &id);
	free(buf);
	free(back);
	return NULL;
}

static void load_start(void)
{
	int i;

	atomic_store(&stop, 0);
	for (i = 0; i < THREADS; i++) {
		memset(&loads[i], 0, sizeof(loads[i]));
		loads[i].ld_fd = rig.rw;
		loads[i].ld_mclass = (uint32_t)i % 2;
		T_EQ(pthread_create(&loads[i].ld_thread, NULL, load_run, &loads[i]), 0);
	}
}

static int load_commits(void)
{
	int i, n = 0;

	for (i = 0; i < THREADS; i++)
		n += atomic_load(&loads[i].ld_n);
	return n;
}

/* every thread ends by itself, or by the first call after the fail-stop */
static void load_end(void)
{
	struct timespec until;
	int i;

	atomic_store(&stop, 1);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 60;
	for (i = 0; i < THREADS; i++)
		T_EQ(pthread_timedjoin_np(loads[i].ld_thread, NULL, &until), 0);
}

static int sh(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static int sh(const char *fmt, ...)
{
	char cmd[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(cmd, sizeof(cmd), fmt, ap);
	va_end(ap);
	fflush(stdout);
	return system(cmd);
}

/* a pool of @cap and @stg, active and open */
static void pool_up(const char *cap, const char *stg)
{
	const char *path[2] = { cap, stg };
	int i;

	memset(&rig, 0, sizeof(rig));
	rig.rw = rig.ro = -1;
	strcpy(rig.name, "ktloss");
	for (i = 0; i < 2; i++) {
		kt_settle(path[i], 1);
		rig.dev[i].id_fd = open(path[i], O_RDWR | O_CLOEXEC);
		rig.dev[i].id_mclass = (uint32_t)i;
		T_OK(rig.dev[i].id_fd >= 0);
	}
	rig.ctl = ioc_ctl_open();
	KT_EQ(ioc_create(rig.ctl, rig.name, rig.dev, 2, 0600, MPOOL_IOC_CREATE_FORCE), 0);
	KT_EQ(ioc_activate(rig.ctl, rig.dev, 2, 0), 0);
	kt_open(&rig);
}

/* the loss has just happened: what must follow */
static void the_pool_stops_and_lets_go(const char *what)
{
	uint64_t t0 = now_ms(), id;
	struct mpool_ioc_info in;
	int i, failed = 0;

	do {
		usleep(20000);
		KT_EQ(ioc_info(rig.ro, &in), 0);
	} while (!(in.in_state & MPOOL_IOC_POOL_FAULT) && now_ms() - t0 < LIMIT_MS);
	printf("# %s: %d objects, read-only after %llu ms: MP%04u %s\n", what, load_commits(),
	       (unsigned long long)(now_ms() - t0), in.in_fault_id, in.in_fault);
	T_EQ(in.in_state & MPOOL_IOC_POOL_FAULT, MPOOL_IOC_POOL_FAULT);
	T_EQ(in.in_state & MPOOL_IOC_POOL_RDONLY, MPOOL_IOC_POOL_RDONLY);
	T_OK(in.in_fault_id && *in.in_fault);
	T_OK(kt_is_padded(in.in_fault, sizeof(in.in_fault)));
	load_end();
	for (i = 0; i < THREADS; i++)
		failed += loads[i].ld_err != 0;
	T_OK(failed > 0);
	/* it stays so: nothing is ever called durable again */
	T_EQ(ioc_alloc(rig.rw, 2, 0, OBJ_BYTES, 0, &id), -EROFS);
	kt_close(&rig);
	KT_EQ(ioc_deactivate(rig.ctl, rig.name), 0);
	for (i = 0; i < 2; i++)
		close(rig.dev[i].id_fd);
	close(rig.ctl);
}

/* after the device came back: @cap and @stg hold every committed object */
static void all_that_was_committed_is_there(const char *cap, const char *stg)
{
	const char *path[2] = { cap, stg };
	void *buf = NULL;
	int i, k, fd;

	T_EQ(posix_memalign(&buf, 4096, OBJ_BYTES), 0);
	for (i = 0; i < 2; i++) {
		rig.dev[i].id_fd = open(path[i], O_RDWR | O_CLOEXEC);
		T_OK(rig.dev[i].id_fd >= 0);
	}
	rig.ctl = ioc_ctl_open();
	KT_EQ(ioc_activate(rig.ctl, rig.dev, 2, 0), 0);
	kt_open(&rig);
	for (i = 0; i < THREADS; i++) {
		for (k = 0; k < atomic_load(&loads[i].ld_n); k++) {
			uint64_t id = loads[i].ld_id[k];

			fd = ioc_obj_open(rig.ro, id, MPOOL_IOC_OPEN_DIRECT);
			T_OK(fd >= 0);
			T_EQ(pread(fd, buf, OBJ_BYTES, 0), OBJ_BYTES);
			T_EQ(ioc_pattern_check(buf, id, 0, OBJ_BYTES), -1);
			close(fd);
		}
	}
	free(buf);
	kt_close(&rig);
	KT_EQ(ioc_deactivate(rig.ctl, rig.name), 0);
	KT_EQ(ioc_destroy(rig.ctl, rig.dev, 2), 0);
	for (i = 0; i < 2; i++)
		close(rig.dev[i].id_fd);
	close(rig.ctl);
}

static void wait_for_load(void)
{
	uint64_t t0 = now_ms();

	while (load_commits() < 50 && now_ms() - t0 < LIMIT_MS)
		usleep(10000);
	T_OK(load_commits() >= 50);
}

static void a_disk_is_unplugged(void)
{
	struct ioc_disk dk[2];
	int i;

	for (i = 0; i < 2; i++) {
		T_EQ(ioc_disk_make(&dk[i], i ? "ktlost1" : "ktlost0", 256, false, 0), 0);
		close(dk[i].dk_fd);
		dk[i].dk_fd = -1;
	}
	pool_up(dk[0].dk_path, dk[1].dk_path);
	load_start();
	wait_for_load();
	T_EQ(ioc_put("/sys/kernel/config/nullb/ktlost1/power", "0"), 0);
	the_pool_stops_and_lets_go("unplugged");
	for (i = 0; i < 2; i++)
		ioc_disk_remove(&dk[i]);
}

#define DM "dmsetup --noudevsync --noudevrules "

/* @is_capacity: the disk that fails is that one, else the staging disk */
static void fail_all(int is_capacity)
{
	struct ioc_disk dk[2];
	int i;

	for (i = 0; i < 2; i++) {
		T_EQ(ioc_disk_make(&dk[i], i ? "ktfail1" : "ktfail0", 256, false, 0), 0);
		close(dk[i].dk_fd);
		dk[i].dk_fd = -1;
		T_EQ(sh("echo 0 524288 linear %s 0 | " DM "create ktdm%d && " DM
			"mknodes >/dev/null", dk[i].dk_path, i), 0);
	}
	pool_up("/dev/mapper/ktdm0", "/dev/mapper/ktdm1");
	load_start();
	wait_for_load();
	T_EQ(sh(DM "suspend --noflush ktdm%d && echo 0 524288 error | " DM "load ktdm%d && " DM
		"resume ktdm%d", !is_capacity, !is_capacity, !is_capacity), 0);
	the_pool_stops_and_lets_go(is_capacity ? "capacity fails" : "staging fails");
	T_EQ(sh(DM "suspend ktdm%d && echo 0 524288 linear %s 0 | " DM "load ktdm%d && " DM
		"resume ktdm%d", !is_capacity, dk[!is_capacity].dk_path, !is_capacity,
		!is_capacity), 0);
	all_that_was_committed_is_there("/dev/mapper/ktdm0", "/dev/mapper/ktdm1");
	T_EQ(sh(DM "remove ktdm0 && " DM "remove ktdm1"), 0);
	for (i = 0; i < 2; i++)
		ioc_disk_remove(&dk[i]);
}

static void every_request_of_staging_fails(void)
{
	fail_all(0);
}

static void every_request_of_capacity_fails(void)
{
	fail_all(1);
}

/* @disk over NVMe/TCP; its path to @dev. Programs run in the repository's top folder */
static void connect_to(const char *disk, char dev[64])
{
	const char *tmp = getenv("TMPDIR");
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/nvmet", tmp && *tmp ? tmp : "/tmp");
	T_EQ(sh("tests/kmod/nvmet.sh up %s >%s", disk, path), 0);
	f = fopen(path, "re");
	T_OK(f && fscanf(f, "%63s", dev) == 1);
	fclose(f);
	kt_settle(dev, 1);
}

/* capacity is a namespace of NVMe over TCP; its target ends */
static void a_remote_target_dies(void)
{
	struct ioc_disk dk[2];
	char dev[64] = "";
	int i;

	for (i = 0; i < 2; i++) {
		T_EQ(ioc_disk_make(&dk[i], i ? "ktnear" : "ktfar", 256, false, 0), 0);
		close(dk[i].dk_fd);
		dk[i].dk_fd = -1;
	}
	connect_to(dk[0].dk_path, dev);
	pool_up(dev, dk[1].dk_path);
	printf("# capacity is %s\n", dev);
	load_start();
	wait_for_load();
	signal(SIGPIPE, count_pipe_signal);
	T_EQ(sh("tests/kmod/nvmet.sh kill"), 0);
	the_pool_stops_and_lets_go("target killed");
	printf("# SIGPIPE from nvme-tcp: %d\n", atomic_load(&pipe_signals));
	/* the target returns: what it had acknowledged is there */
	T_EQ(sh("tests/kmod/nvmet.sh disconnect"), 0);
	connect_to(dk[0].dk_path, dev);
	all_that_was_committed_is_there(dev, dk[1].dk_path);
	T_EQ(sh("tests/kmod/nvmet.sh down"), 0);
	for (i = 0; i < 2; i++)
		ioc_disk_remove(&dk[i]);
}

int main(void)
{
	const char *why = kt_missing();

	if (why)
		return t_skip_all(why);
	T_RUN(a_disk_is_unplugged);
	T_RUN(every_request_of_staging_fails);
	T_RUN(every_request_of_capacity_fails);
	T_RUN(a_remote_target_dies);
	return t_done();
}
