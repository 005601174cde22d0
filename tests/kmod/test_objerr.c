// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Objects as files, where something fails: whichever way a read was asked for, its failure is
 * counted, and for the disk that failed; what is late on one disk is not missing on the
 * other; and a deactivation that is refused in the end changes nothing meanwhile.
 *
 * Two disks in memory, both of class capacity.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <liburing.h>
#include <signal.h>

#include "kt.h"

#define MIB	(1u << 20)
#define BLK	4096u
#define DISK	32u	/* MiB */
#define STEP	(4 * MIB)
#define POOL	"objerr"
#define MBLOCK	1u
#define COMMIT	1u
#define WR	(MPOOL_IOC_OPEN_WRITE | MPOOL_IOC_OPEN_DIRECT)
#define RD	MPOOL_IOC_OPEN_DIRECT
#define CACHED	0u

static struct kt_rig rig;
static unsigned char buf[STEP] __attribute__((aligned(4096)));
static unsigned int late_ns;	/* in which the first disk answers */

static void pool_up(void)
{
	static const char *const name[2] = { "objerr0", "objerr1" };
	int i;

	memset(&rig, 0, sizeof(rig));
	rig.rw = rig.ro = -1;
	snprintf(rig.name, sizeof(rig.name), POOL);
	for (i = 0; i < 2; i++) {
		T_EQ(ioc_disk_make(&rig.disk[i], name[i], DISK, 0, i ? 0 : late_ns), 0);
		rig.dev[i] = (struct mpool_ioc_dev){ .id_fd = rig.disk[i].dk_fd };
	}
	rig.ctl = ioc_ctl_open();
	T_OK(rig.ctl >= 0);
	KT_EQ(ioc_create(rig.ctl, POOL, rig.dev, 2, 0600, 0), 0);
	KT_EQ(ioc_activate(rig.ctl, rig.dev, 2, 0), 0);
	kt_open(&rig);
}

static void pool_down(void)
{
	kt_down(&rig);
}

static int obj_open(uint64_t id, uint32_t flags)
{
	return kt_obj_open(&rig, id, flags);
}

/* a committed mblock of @len bytes */
static uint64_t obj_final(uint64_t len)
{
	uint64_t id = 0, off, n;
	int fd;

	KT_EQ(ioc_alloc(rig.rw, MBLOCK, 0, len, 0, &id), 0);
	fd = obj_open(id, WR);
	for (off = 0; off < len; off += n) {
		n = len - off < STEP ? len - off : STEP;
		ioc_pattern(buf, id, off, n);
		T_EQ(pwrite(fd, buf, n, (off_t)off), n);
	}
	close(fd);
	KT_EQ(ioc_op(rig.rw, COMMIT, id, len), 0);
	return id;
}

/* null_blk of 6.1 marks no more than 256 KiB at a time */
static void disk_fails(unsigned int disk, char sign)
{
	char path[80], text[40];
	unsigned int at;

	snprintf(path, sizeof(path), "/sys/kernel/config/nullb/%s/badblocks",
		 rig.disk[disk].dk_name);
	for (at = 0; at < DISK * MIB / 512; at += 512) {
		snprintf(text, sizeof(text), "%c%u-%u", sign, at, at + 511);
		T_EQ(ioc_put(path, text), 0);
	}
}

static uint64_t errors_of(uint32_t slot)
{
	struct mpool_ioc_dev_info di = { .di_slot = slot };

	KT_EQ(kt_call(rig.ro, MPOOL_IOC_DEV_INFO, &di), 0);
	return di.di_errors;
}

static uint64_t errors(void)
{
	return errors_of(0) + errors_of(1);
}

static int touch(void *arg)
{
	signal(SIGBUS, SIG_DFL);
	return *(volatile unsigned char *)arg * 0;
}

static void failed_reads_are_counted_however_they_came(void)
{
	uint64_t id = obj_final(MIB), n;
	int fd = obj_open(id, CACHED), dio = obj_open(id, RD), p[2];
	unsigned char *m = mmap(NULL, 2 * MIB, PROT_READ, MAP_SHARED, fd, 0);
	loff_t off = 0;

	T_OK(m != MAP_FAILED);
	T_EQ(pipe(p), 0);
	disk_fails(0, '+');
	disk_fails(1, '+');
	n = errors();
	T_ERR(pread(dio, buf, BLK, 0), EIO);
	T_OK(errors() > n);
	n = errors();
	T_ERR(pread(fd, buf, BLK, 0), EIO);
	T_OK(errors() > n);
	n = errors();
	T_EQ(kt_child(touch, m), 128 + SIGBUS);
	T_OK(errors() > n);
	n = errors();
	T_ERR(splice(fd, &off, p[1], NULL, BLK, 0), EIO);
	T_OK(errors() > n);
	n = errors();
	T_EQ(kt_child(touch, m + MIB), 128 + SIGBUS);	/* behind the object's end */
	T_EQ(errors(), n);
	disk_fails(0, '-');
	disk_fails(1, '-');
	T_EQ(ioc_pattern_check(m, id, 0, MIB), -1);
	munmap(m, 2 * MIB);
	close(p[0]);
	close(p[1]);
	close(dio);
	close(fd);
}

/* a direct read from one disk into the next: the one that failed has it in its count */
static void failed_read_is_counted_where_it_failed(void)
{
	uint64_t len = 44 * MIB, id = obj_final(len), off, n;	/* larger than either */
	unsigned int bad, k;
	int fd = obj_open(id, RD);

	for (k = 0; k < 2; k++) {
		disk_fails(k, '+');
		for (bad = 0, off = 0; off < len; off += STEP) {
			n = errors_of(k);
			if (pread(fd, buf, STEP, (off_t)off) == STEP)
				continue;
			T_EQ(errno, EIO);
			T_OK(errors_of(k) > n);
			bad++;
		}
		disk_fails(k, '-');
		T_OK(bad > 0 && bad < len / STEP);
	}
	close(fd);
}

/*
 * Two writes at a time, from @off on. Returns how often the second was there first, and
 * could be read.
 */
static int overtakings(int fd, uint64_t id, uint64_t off, uint64_t len)
{
	static unsigned char first[STEP] __attribute__((aligned(4096)));
	struct io_uring_cqe *cqe;
	struct io_uring ring;
	int n = 0;
	ssize_t got;

	T_EQ(io_uring_queue_init(4, &ring, 0), 0);
	for (; off + 2 * STEP <= len; off += 2 * STEP) {
		ioc_pattern(first, id, off, STEP);
		ioc_pattern(buf, id, off + STEP, STEP);
		io_uring_prep_write(io_uring_get_sqe(&ring), fd, first, STEP, off);
		T_EQ(io_uring_submit(&ring), 1);
		T_EQ(pwrite(fd, buf, STEP, (off_t)(off + STEP)), STEP);
		memset(buf, 0, BLK);
		got = pread(fd, buf, BLK, (off_t)(off + STEP));
		if (io_uring_peek_cqe(&ring, &cqe) == -EAGAIN) {
			T_EQ(got, BLK);
			T_EQ(ioc_pattern_check(buf, id, off + STEP, BLK), -1);
			/* the other one is not there yet, nor what lay there */
			got = pread(fd, buf, BLK, (off_t)off);
			n += got == 0;
		}
		T_EQ(io_uring_wait_cqe(&ring, &cqe), 0);
		T_EQ(cqe->res, STEP);
		io_uring_cqe_seen(&ring, cqe);
	}
	io_uring_queue_exit(&ring);
	return n;
}

static void what_is_written_is_read_before_what_is_late(void)
{
	uint64_t len = 44 * MIB, id, small;
	int i, fd, n = 0;

	/* it lies on both disks, on either first, and what goes over may be of either turn */
	for (i = 0; i < 4; i++) {
		if (i == 2)
			KT_EQ(ioc_alloc(rig.rw, MBLOCK, 0, MIB, 0, &small), 0);
		KT_EQ(ioc_alloc(rig.rw, MBLOCK, 0, len, 0, &id), 0);
		fd = obj_open(id, WR);
		ioc_pattern(buf, id, 0, STEP);
		if (i % 2)
			T_EQ(pwrite(fd, buf, STEP, 0), STEP);
		n += overtakings(fd, id, i % 2 ? STEP : 0, len);
		close(fd);
		KT_EQ(ioc_drop(rig.rw, id), 0);
	}
	printf("# %d came first\n", n);
	T_OK(n > 0);
}

/* its place is held with O_PATH, so root waits for the end of it, in vain */
static void pool_that_stays_is_open_to_all(void)
{
	uint64_t id = obj_final(MIB);
	int fd = obj_open(id, CACHED), st = 0, bad = 0, n = 0, at;
	struct mpool_ioc_list li;
	char path[40];
	pid_t pid;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	at = open(path, O_PATH | O_CLOEXEC);
	T_OK(at >= 0);
	close(fd);
	kt_close(&rig);
	fflush(stdout);
	pid = fork();
	if (pid == 0)
		_exit(-ioc_deactivate(rig.ctl, POOL));
	T_OK(pid > 0);
	/* first a process that lists: one that opens it ends the deactivation */
	for (; n < 100 && !waitpid(pid, &st, WNOHANG); n++) {
		memset(&li, 0, sizeof(li));
		bad += ioc_call(rig.ctl, MPOOL_IOC_LIST, &li) != 0;
		usleep(1000);
	}
	fd = ioc_pool_open(POOL, O_RDONLY);
	if (n == 100)
		waitpid(pid, &st, 0);
	if (fd >= 0)
		close(fd);
	close(at);
	T_OK(n > 10);			/* it took its time, as it should */
	T_EQ(bad, 0);
	T_OK(fd >= 0);
	T_OK(WIFEXITED(st) && WEXITSTATUS(st) == EBUSY);
	KT_EQ(ioc_deactivate(rig.ctl, POOL), 0);
	KT_EQ(ioc_activate(rig.ctl, rig.dev, 2, 0), 0);
	kt_open(&rig);
}

/* each on a pool of its own, whatever the one before has left */
#define RUN(fn) do {							\
	T_RUN(pool_up);							\
	T_RUN(fn);							\
	T_RUN(pool_down);						\
} while (0)

int main(void)
{
	const char *why = kt_missing();

	if (why)
		return t_skip_all(why);
	RUN(pool_that_stays_is_open_to_all);
	RUN(failed_reads_are_counted_however_they_came);
	RUN(failed_read_is_counted_where_it_failed);
	late_ns = 100000000;
	RUN(what_is_written_is_read_before_what_is_late);
	return t_done();
}
