// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * What an object file costs. On one disk, in turn: io_uring on the raw device and on
 * objects of a pool on that device (depth 16, registered buffers and files; reads anywhere,
 * writes one after another), then 4 KiB reads that hit the page cache, of an
 * object and of a file on ext4. Each figure is the median of five rounds.
 *
 *	bench_objfd [DEVICE...]
 *
 * Time means little in an emulated machine on a busy host. There QEMU with -accel
 * tcg,thread=single -icount shift=0,sleep=off counts instructions instead, and the figures of
 * the disk in memory repeat to the percent; TEST_SHORT=1 then suffices.
 *
 * Overwrites the devices; without any, those of MPK_DEVS (the first for data, the second
 * for ext4) and a disk in memory. "low" marks a ratio below the goal.
 */
#define _GNU_SOURCE
#include <liburing.h>
#include <linux/fs.h>
#include <sys/mount.h>
#include <time.h>

#include "kt.h"

#define MIB	(1u << 20)
#define QD	16u
#define ROUNDS	5
#define TURNS	8	/* of each, in one round, at most */

static struct kt_rig rig;
static uint64_t objs[1 + 3 * ROUNDS * TURNS / 2];
static unsigned int nobjs;
static unsigned char *mem;
static unsigned int span = 64 * MIB;	/* that reads go over */
static unsigned int turns = TURNS, nsizes = 3, disk_mib = 480;
static double turn_s = 0.06;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v)
{
	qsort(v, ROUNDS, sizeof(*v), by_value);
	return v[ROUNDS / 2];
}

/* @bytes > 0: writes so much, in order; else reads for turn_s. Operations per second */
static double run(int fd, uint64_t base, unsigned int bs, uint64_t bytes)
{
	uint64_t sent = 0, done = 0, seed = 88172645463325252ull, total = bytes / bs;
	struct iovec iov = { mem, (size_t)QD * bs };
	struct io_uring_cqe *cqe;
	struct io_uring ring;
	double begin, end;

	T_EQ(io_uring_queue_init(QD, &ring, 0), 0);
	T_EQ(io_uring_register_buffers(&ring, &iov, 1), 0);
	T_EQ(io_uring_register_files(&ring, &fd, 1), 0);
	begin = now();
	end = begin + turn_s;
	for (;;) {
		while (sent - done < QD && (bytes ? sent < total : now() < end)) {
			struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
			unsigned char *p = mem + sent % QD * bs;
			uint64_t off = base + (bytes ? sent : t_rand(&seed) % (span / bs)) * bs;

			if (bytes)
				io_uring_prep_write_fixed(sqe, 0, p, bs, off, 0);
			else
				io_uring_prep_read_fixed(sqe, 0, p, bs, off, 0);
			sqe->flags |= IOSQE_FIXED_FILE;
			io_uring_submit(&ring);
			sent++;
		}
		if (sent == done)
			break;
		T_EQ(io_uring_wait_cqe(&ring, &cqe), 0);
		T_EQ(cqe->res, bs);
		io_uring_cqe_seen(&ring, cqe);
		done++;
	}
	end = now();
	io_uring_queue_exit(&ring);
	return (double)done / (end - begin);
}

static int obj_make(uint64_t bytes)
{
	int fd;

	KT_EQ(ioc_alloc(rig.rw, 1, 0, bytes, 0, &objs[nobjs]), 0);
	fd = ioc_obj_open(rig.rw, objs[nobjs], MPOOL_IOC_OPEN_WRITE | MPOOL_IOC_OPEN_DIRECT);
	T_OK(fd >= 0);
	return fd;
}

static void obj_keep(uint64_t bytes)
{
	KT_EQ(ioc_op(rig.rw, 1, objs[nobjs], bytes), 0);
	nobjs++;
}

static void ratio(const char *what, unsigned int bs, const char *other, double a, double b,
		  double goal)
{
	printf("# %s: %s %u KiB: %s %.0f, object %.0f per second: %.2f%s\n", rig.disk[0].dk_path,
	       what, bs / 1024, other, a, b, b / a, b / a < goal ? " low" : "");
	fflush(stdout);
}

static void raw_against_object(void)
{
	static const unsigned int sizes[] = { 4096, 131072, MIB };
	double a[ROUNDS], b[ROUNDS], goal;
	unsigned int i, k, t, bs;
	uint64_t dev = 0, at;
	int raw, fd;

	/* between the middle and the end nothing of the pool lies yet */
	T_EQ(ioctl(rig.disk[0].dk_fd, BLKGETSIZE64, &dev), 0);
	at = dev / 8 * 5 / MIB * MIB;
	T_OK(at + span < dev);
	raw = open(rig.disk[0].dk_path, O_RDWR | O_DIRECT | O_CLOEXEC);
	T_OK(raw >= 0);
	fd = obj_make(span);
	run(fd, 0, MIB, span);
	run(raw, at, MIB, span);
	obj_keep(span);
	for (i = 0; i < nsizes; i++) {
		bs = sizes[i];
		goal = bs == 4096 ? 0.85 : 0.95;
		for (k = 0; k < ROUNDS; k++) {
			a[k] = b[k] = 0;
			for (t = 0; t < turns; t++) {
				a[k] += run(raw, at, bs, 0) / turns;
				b[k] += run(fd, 0, bs, 0) / turns;
			}
		}
		ratio("read", bs, "raw", median(a), median(b), goal);
	}
	close(fd);
	for (i = 0; i < nsizes; i++) {
		uint64_t bytes = sizes[i] == 4096 ? MIB : 4 * MIB;

		bs = sizes[i];
		goal = bs == 4096 ? 0.85 : 0.95;
		for (k = 0; k < ROUNDS; k++) {
			a[k] = b[k] = 0;
			for (t = 0; t < turns / 2; t++) {
				a[k] += run(raw, at, bs, bytes) / turns * 2;
				fd = obj_make(bytes);
				b[k] += run(fd, 0, bs, bytes) / turns * 2;
				close(fd);
				obj_keep(bytes);
			}
		}
		ratio("write", bs, "raw", median(a), median(b), goal);
	}
	close(raw);
}

/* 4 KiB reads anywhere in what is cached, per second */
static double hits(int fd, unsigned int bs)
{
	uint64_t seed = 1, n = 0;
	double begin = now(), end;

	do {
		T_EQ(pread(fd, mem, bs, (off_t)(t_rand(&seed) % (span / bs) * bs)), bs);
		n++;
	} while (n % 64 || now() - begin < turn_s);
	end = now();
	return (double)n / (end - begin);
}

static void cache_against_ext4(const char *disk)
{
	static const unsigned int sizes[] = { 4096, 131072 };
	const char *dir = "/tmp/bench_objfd";
	double a[ROUNDS], b[ROUNDS];
	char text[128];
	unsigned int i;
	unsigned int t;
	int file, fd, k;

	snprintf(text, sizeof(text), "mkfs.ext4 -q -F %s", disk);
	T_EQ(system(text), 0);
	mkdir(dir, 0700);
	T_EQ(mount(disk, dir, "ext4", 0, NULL), 0);
	snprintf(text, sizeof(text), "%s/f", dir);
	file = open(text, O_RDWR | O_CREAT, 0600);
	T_OK(file >= 0);
	for (i = 0; i < span; i += MIB)
		T_EQ(pwrite(file, mem, MIB, i), MIB);
	T_EQ(fsync(file), 0);
	fd = ioc_obj_open(rig.rw, objs[0], 0);
	T_OK(fd >= 0);
	for (i = 0; i < span; i += MIB)	/* brings all in */
		T_OK(pread(file, mem, MIB, i) == MIB && pread(fd, mem, MIB, i) == MIB);
	for (i = 0; i < 2; i++) {
		for (k = 0; k < ROUNDS; k++) {
			a[k] = b[k] = 0;
			for (t = 0; t < turns; t++) {
				a[k] += hits(file, sizes[i]) / turns;
				b[k] += hits(fd, sizes[i]) / turns;
			}
		}
		ratio("cached read", sizes[i], "ext4", median(a), median(b), 0.97);
	}
	close(fd);
	close(file);
	umount(dir);
}

/* the first write of a place costs a disk that is a sparse file, or memory, more */
static void fill(int fd)
{
	uint64_t dev = 0, at;

	T_EQ(ioctl(fd, BLKGETSIZE64, &dev), 0);
	for (at = 0; at + MIB <= dev; at += MIB)
		T_EQ(pwrite(fd, mem, MIB, (off_t)at), MIB);
	T_EQ(fsync(fd), 0);
}

static void on_disk(const char *path, const char *ext4)
{
	struct mpool_ioc_dev *dev = &rig.dev[0];
	int i;

	memset(&rig, 0, sizeof(rig));
	nobjs = 0;
	snprintf(rig.name, sizeof(rig.name), "bench");
	if (path) {
		snprintf(rig.disk[0].dk_path, sizeof(rig.disk[0].dk_path), "%s", path);
		rig.disk[0].dk_fd = open(path, O_RDWR | O_CLOEXEC);
		T_OK(rig.disk[0].dk_fd >= 0);
	} else {
		T_EQ(ioc_disk_make(&rig.disk[0], "ofbench", disk_mib, false, 0), 0);
	}
	fill(rig.disk[0].dk_fd);
	dev->id_fd = rig.disk[0].dk_fd;
	rig.ctl = ioc_ctl_open();
	KT_EQ(ioc_create(rig.ctl, rig.name, dev, 1, 0600, MPOOL_IOC_CREATE_FORCE), 0);
	KT_EQ(ioc_activate(rig.ctl, dev, 1, 0), 0);
	kt_open(&rig);
	raw_against_object();
	if (ext4)
		cache_against_ext4(ext4);
	kt_close(&rig);
	/* a ring gives its files back some time after it has gone */
	for (i = 0; i < 250 && ioc_deactivate(rig.ctl, rig.name) == -EBUSY; i++)
		usleep(20000);
	KT_EQ(ioc_destroy(rig.ctl, dev, 1), 0);
	close(rig.ctl);
	if (path)
		close(rig.disk[0].dk_fd);
	else
		ioc_disk_remove(&rig.disk[0]);
}

static char path[2][40];

static void disk_of_the_machine(void)
{
	on_disk(path[0], path[1][0] ? path[1] : NULL);
}

static void disk_in_memory(void)
{
	on_disk(NULL, NULL);
}

int main(int argc, char **argv)
{
	const char *devs = getenv("MPK_DEVS"), *why = kt_missing();
	int i;

	if (why)
		return t_skip_all(why);
	if (posix_memalign((void **)&mem, 4096, (size_t)QD * MIB))
		return 1;
	memset(mem, 0x5A, (size_t)QD * MIB);
	if (getenv("TEST_SHORT")) {
		span = 8 * MIB;
		turns = nsizes = 2;
		disk_mib = 96;
		turn_s = 0.02;
	}
	for (i = 1; i < argc; i++) {
		snprintf(path[0], sizeof(path[0]), "%s", argv[i]);
		T_RUN(disk_of_the_machine);
	}
	if (argc == 1 && devs && sscanf(devs, " %39s %39s", path[0], path[1]) == 2)
		T_RUN(disk_of_the_machine);
	if (argc == 1)
		T_RUN(disk_in_memory);
	return t_done();
}
