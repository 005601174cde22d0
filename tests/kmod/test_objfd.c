// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Objects as files: which users may open them and how, what a state allows on every path,
 * what a reader can never see, and what stays until the last user has gone.
 *
 * Disks: the first two of MPK_DEVS, else two in memory. They are filled with a mark before
 * the pool is made: no read may ever show it.
 */
#define _GNU_SOURCE
#include <grp.h>
#include <liburing.h>
#include <linux/fs.h>
#include <linux/fiemap.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <utime.h>

#include "kt.h"

#define MIB		(1u << 20)
#define BLK		4096u
#define MARK		0xEE
#define MARK_MIB	64u	/* of each disk */
#define POOL		"objfd"
#define MBLOCK		1u
#define APPEND		2u
#define MLOG		3u
#define OP_COMMIT	1u
#define OP_SEAL		2u
#define OP_DELETE	3u
#define WR		(MPOOL_IOC_OPEN_WRITE | MPOOL_IOC_OPEN_DIRECT)
#define RD		MPOOL_IOC_OPEN_DIRECT
#define CACHED		0u
#define ALICE		1001u
#define BOB		1002u
#define GROUP		1100u	/* alice is in it */

static struct kt_rig rig;
static unsigned char a[4 * MIB] __attribute__((aligned(4096)));
static unsigned char b[4 * MIB] __attribute__((aligned(4096)));

/* ---- the pool ---- */

static void pool_up(void)
{
	unsigned int i, m;

	snprintf(rig.name, sizeof(rig.name), POOL);
	memset(a, MARK, sizeof(a));
	for (i = 0; i < 2; i++) {
		kt_disk(&rig, (int)i, "ofd", 256);
		for (m = 0; m < MARK_MIB; m += 4)
			T_EQ(pwrite(rig.disk[i].dk_fd, a, sizeof(a), (off_t)m * MIB), sizeof(a));
		T_EQ(fsync(rig.disk[i].dk_fd), 0);
	}
	rig.ctl = ioc_ctl_open();
	T_OK(rig.ctl >= 0);
	KT_EQ(ioc_create(rig.ctl, POOL, rig.dev, 2, 0600, 0), 0);
	KT_EQ(ioc_activate(rig.ctl, rig.dev, 2, 0), 0);
	kt_open(&rig);
}

static void pool_goes_away_clean(void)
{
	kt_close(&rig);
	KT_EQ(ioc_deactivate(rig.ctl, POOL), 0);
	KT_EQ(ioc_destroy(rig.ctl, rig.dev, 2), 0);
	close(rig.ctl);
}

/* another pool, on @n disks in memory, for one test */
static struct kt_rig main_rig;

static void side_up(const char *name, unsigned int n, unsigned int mib, unsigned int latency_ns)
{
	unsigned int i, m;
	char disk[24];

	main_rig = rig;
	memset(&rig, 0, sizeof(rig));
	rig.rw = rig.ro = -1;
	rig.ctl = main_rig.ctl;
	snprintf(rig.name, sizeof(rig.name), "%s", name);
	memset(a, MARK, sizeof(a));
	for (i = 0; i < n; i++) {
		snprintf(disk, sizeof(disk), "%s%u", name, i);
		T_EQ(ioc_disk_make(&rig.disk[i], disk, mib, false, latency_ns), 0);
		for (m = 0; m < mib; m += 4)
			T_EQ(pwrite(rig.disk[i].dk_fd, a, sizeof(a), (off_t)m * MIB), sizeof(a));
		T_EQ(fsync(rig.disk[i].dk_fd), 0);
		rig.dev[i] = (struct mpool_ioc_dev){ .id_fd = rig.disk[i].dk_fd };
	}
	KT_EQ(ioc_create(rig.ctl, name, rig.dev, n, 0600, 0), 0);
	KT_EQ(ioc_activate(rig.ctl, rig.dev, n, 0), 0);
	kt_open(&rig);
}

static void side_down(void)
{
	int i, rc;

	kt_close(&rig);
	rc = ioc_deactivate(rig.ctl, rig.name);
	for (i = 0; i < 2; i++)
		if (rig.disk[i].dk_name[0])
			ioc_disk_remove(&rig.disk[i]);
	rig = main_rig;
	memset(&main_rig, 0, sizeof(main_rig));
	KT_EQ(rc, 0);
}

static void set_owner(uint32_t uid, uint32_t gid, uint32_t mode)
{
	struct mpool_ioc_set st = { .st_arg.ma_flags = MPOOL_IOC_SET_OWNER, .st_uid = uid,
				    .st_gid = gid, .st_mode = mode, .st_name = POOL };

	KT_EQ(kt_call(rig.ctl, MPOOL_IOC_SET, &st), 0);
}

/* ---- objects ---- */

static uint64_t obj_new(uint32_t kind, uint64_t capacity)
{
	uint64_t id = 0;

	KT_EQ(ioc_alloc(rig.rw, kind, 0, capacity, 0, &id), 0);
	return id;
}

static int obj_open(uint64_t id, uint32_t flags)
{
	return kt_obj_open(&rig, id, flags);
}

static void obj_write(int fd, uint64_t id, uint64_t off, size_t len)
{
	ioc_pattern(a, id, off, len);
	T_EQ(pwrite(fd, a, len, (off_t)off), len);
}

static void obj_check(int fd, uint64_t id, uint64_t off, size_t len)
{
	memset(b, 0x55, len);
	T_EQ(pread(fd, b, len, (off_t)off), len);
	T_EQ(ioc_pattern_check(b, id, off, len), -1);
}

/* a committed mblock of @len bytes */
static uint64_t obj_final(size_t len)
{
	uint64_t id = obj_new(MBLOCK, len), off;
	int fd = obj_open(id, WR);

	for (off = 0; off < len; off += sizeof(a))
		obj_write(fd, id, off, len - off < sizeof(a) ? len - off : sizeof(a));
	close(fd);
	KT_EQ(ioc_op(rig.rw, OP_COMMIT, id, len), 0);
	return id;
}

/* gives up the pool descriptor's reference and deletes */
static void obj_delete(uint64_t id)
{
	KT_EQ(ioc_op(rig.rw, OP_DELETE, id, 0), 0);
	KT_EQ(ioc_drop(rig.rw, id), 0);
}

static int reopen(int fd, int flags)
{
	char path[40];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, flags | O_CLOEXEC);
}

static bool has_mark(const unsigned char *p, size_t len)
{
	size_t i;

	for (i = 0; i + 8 <= len; i += 8)
		if (p[i] == MARK && p[i + 1] == MARK && p[i + 7] == MARK)
			return true;
	return false;
}

static void drop_caches(void)
{
	T_EQ(ioc_put("/proc/sys/vm/drop_caches", "3"), 0);
}

/* ---- states ---- */

static void object_looks_like_a_file(void)
{
	uint64_t id = obj_new(MBLOCK, MIB), log = obj_new(MLOG, MIB);
	int fd = obj_open(id, WR), ro = obj_open(id, RD);
	struct stat st;

	T_EQ(fstat(fd, &st), 0);
	T_OK(S_ISREG(st.st_mode) && (st.st_mode & 07777) == 0600 && st.st_uid == 0);
	T_EQ(st.st_size, 0);
	obj_write(fd, id, 0, 2 * BLK);
	T_EQ(fstat(ro, &st), 0);
	T_EQ(st.st_size, 2 * BLK);
	T_EQ(lseek(ro, 0, SEEK_END), 2 * BLK);
	T_EQ(fcntl(fd, F_GETFL) & (O_ACCMODE | O_DIRECT), O_RDWR | O_DIRECT);
	T_EQ(fcntl(ro, F_GETFL) & O_ACCMODE, O_RDONLY);
	T_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
	T_ERR(pwrite(ro, a, BLK, 2 * BLK), EBADF);
	KT_EQ(ioc_obj_open(rig.rw, log, RD), -EINVAL);
	KT_EQ(ioc_obj_open(rig.rw, 1ull << 60, RD), -ENOENT);
	KT_EQ(ioc_obj_open(rig.ro, id, RD), -ENOENT);	/* held by another descriptor only */
	close(fd);
	close(ro);
	KT_EQ(ioc_drop(rig.rw, id), 0);
	obj_delete(log);
}

static void writes_only_follow_on(void)
{
	uint64_t id = obj_new(MBLOCK, MIB);
	int fd = obj_open(id, WR), fl = fcntl(fd, F_GETFL);
	struct iovec iov[2] = { { a, BLK }, { a + MIB, BLK } };

	T_ERR(pwrite(fd, a, BLK, BLK), EINVAL);		/* a gap */
	T_ERR(pwrite(fd, a, 512, 0), EINVAL);
	T_ERR(pwrite(fd, a, BLK, 512), EINVAL);
	T_ERR(pwrite(fd, a + 1, BLK, 0), EINVAL);
	T_ERR(pwrite(fd, a, MIB + BLK, 0), EINVAL);
	T_ERR(pwrite(fd, (void *)(uintptr_t)BLK, BLK, 0), EFAULT);	/* nothing was admitted */
	T_EQ(pwrite(fd, a, 0, 0), 0);
	T_EQ(fcntl(fd, F_SETFL, fl & ~O_DIRECT), 0);
	T_ERR(pwrite(fd, a, BLK, 0), EINVAL);
	T_EQ(fcntl(fd, F_SETFL, fl), 0);
	T_ERR(fcntl(fd, F_SETFL, fl | O_APPEND), EINVAL);
	T_ERR(pwritev2(fd, iov, 1, 0, RWF_APPEND), EINVAL);
	obj_write(fd, id, 0, BLK);
	T_ERR(pwrite(fd, a, BLK, 0), EINVAL);		/* once more */
	ioc_pattern(a, id, BLK, BLK);
	ioc_pattern(a + MIB, id, 2 * BLK, BLK);
	T_EQ(pwritev2(fd, iov, 2, BLK, RWF_DSYNC), 2 * BLK);
	T_EQ(lseek(fd, 3 * BLK, SEEK_SET), 3 * BLK);
	ioc_pattern(a, id, 3 * BLK, BLK);
	T_EQ(write(fd, a, BLK), BLK);
	T_EQ(fsync(fd), 0);
	T_EQ(fdatasync(fd), 0);
	obj_check(fd, id, 0, 4 * BLK);
	close(fd);
	KT_EQ(ioc_op(rig.rw, OP_COMMIT, id, 4 * BLK), 0);
	obj_delete(id);
}

/* of both members */
static unsigned long flushes(void)
{
	FILE *f = popen("cat /sys/class/mpool/" POOL "/member?/flushes", "re");
	unsigned long n, m;

	T_OK(f && fscanf(f, "%lu %lu", &n, &m) == 2);
	pclose(f);
	return n + m;
}

static void what_was_written_is_flushed_by_syncfs(void)
{
	uint64_t id = obj_new(MBLOCK, MIB);
	int fd = obj_open(id, WR);
	unsigned long before = flushes(), after;

	obj_write(fd, id, 0, BLK);
	T_EQ(syncfs(fd), 0);
	T_OK((after = flushes()) > before);
	T_EQ(syncfs(fd), 0);
	T_EQ(flushes(), after);		/* nothing to do */
	close(fd);
	KT_EQ(ioc_drop(rig.rw, id), 0);
}

static void append_object_chooses_its_place_and_is_sealed(void)
{
	uint64_t id = obj_new(APPEND, MIB);
	int fd = obj_open(id, WR), osync = reopen(fd, O_RDWR | O_DIRECT | O_DSYNC);

	T_OK(osync >= 0);
	/* what was never written is zero, up to the capacity */
	T_EQ(pread(fd, b, sizeof(b), 0), MIB);
	T_OK(!has_mark(b, MIB));
	obj_write(osync, id, 0, 64 * BLK);
	obj_write(fd, id, 64 * BLK, BLK);
	T_ERR(pwrite(fd, a, BLK, 0), EINVAL);
	T_ERR(mmap(NULL, BLK, PROT_READ, MAP_SHARED, fd, 0), EINVAL);
	obj_check(fd, id, 0, 65 * BLK);
	KT_EQ(ioc_op(rig.rw, OP_SEAL, id, 65 * BLK), 0);
	T_ERR(pwrite(fd, a, BLK, 65 * BLK), EROFS);
	T_EQ(pread(fd, b, MIB, 0), 65 * BLK);
	close(osync);
	close(fd);
	fd = obj_open(id, CACHED);
	obj_check(fd, id, 0, 65 * BLK);
	close(fd);
	obj_delete(id);
}

/* through a descriptor that was opened for writing before the commit */
static void final_object_refuses_writes_on_every_path(void)
{
	uint64_t id = obj_new(MBLOCK, MIB), src = obj_final(MIB);
	int fd = obj_open(id, WR), in = obj_open(src, CACHED), p[2], fl = fcntl(fd, F_GETFL);
	struct iovec iov = { a, BLK };
	loff_t off = 0;
	off_t zero = 0;

	obj_write(fd, id, 0, 64 * BLK);
	KT_EQ(ioc_op(rig.rw, OP_COMMIT, id, 64 * BLK), 0);
	T_ERR(pwrite(fd, a, BLK, 64 * BLK), EROFS);
	T_ERR(pwrite(fd, a, BLK, 0), EROFS);
	T_ERR(pwritev2(fd, &iov, 1, 0, RWF_DSYNC), EROFS);
	T_EQ(fcntl(fd, F_SETFL, fl & ~O_DIRECT), 0);
	T_ERR(pwrite(fd, a, BLK, 0), EINVAL);
	T_EQ(pipe(p), 0);
	T_EQ(write(p[1], a, BLK), BLK);
	T_ERR(splice(p[0], NULL, fd, &off, BLK, 0), EINVAL);
	T_ERR(sendfile(fd, in, &zero, BLK), EINVAL);
	T_OK(copy_file_range(in, &zero, fd, &off, BLK, 0) < 0);
	T_EQ(fcntl(fd, F_SETFL, fl), 0);
	T_ERR(splice(p[0], NULL, fd, &off, BLK, 0), EINVAL);
	T_ERR(ftruncate(fd, 0), EPERM);
	T_ERR(fallocate(fd, 0, 0, BLK), EOPNOTSUPP);
	T_ERR(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BLK), EOPNOTSUPP);
	T_ERR(mmap(NULL, BLK, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), EACCES);
	T_ERR(reopen(fd, O_RDWR), EROFS);
	T_ERR(reopen(fd, O_WRONLY | O_DIRECT), EROFS);
	KT_EQ(ioc_obj_open(rig.rw, id, WR), -EROFS);
	obj_check(fd, id, 0, 64 * BLK);
	close(p[0]);
	close(p[1]);
	close(fd);
	close(in);
	obj_delete(id);
	obj_delete(src);
}

static void file_opened_before_the_commit_sees_it(void)
{
	uint64_t id = obj_new(MBLOCK, MIB);
	int fd = obj_open(id, WR), early = obj_open(id, CACHED);
	struct iovec iov = { b, BLK };
	struct stat st;
	void *m;

	obj_write(fd, id, 0, 128 * BLK);
	T_ERR(pread(early, b, BLK, 0), EINVAL);
	T_ERR(mmap(NULL, BLK, PROT_READ, MAP_SHARED, early, 0), EINVAL);
	/* advice brings nothing into the cache that the commit would have to take out */
	T_EQ(posix_fadvise(early, 0, MIB, POSIX_FADV_WILLNEED), 0);
	T_EQ(readahead(early, 0, MIB), 0);
	obj_write(fd, id, 128 * BLK, 64 * BLK);
	KT_EQ(ioc_op(rig.rw, OP_COMMIT, id, 160 * BLK), 0);
	T_EQ(fstat(early, &st), 0);
	T_EQ(st.st_size, 160 * BLK);
	obj_check(early, id, 0, 160 * BLK);
	T_EQ(pread(early, b, BLK, 160 * BLK), 0);
	T_EQ(pread(fd, b, MIB, 128 * BLK), 32 * BLK);	/* direct */
	m = mmap(NULL, MIB, PROT_READ, MAP_SHARED, early, 0);
	T_OK(m != MAP_FAILED);
	T_EQ(ioc_pattern_check(m, id, 0, 160 * BLK), -1);
	munmap(m, MIB);
	close(early);
	/* all have one cache, which outlives the last of them */
	close(fd);
	fd = obj_open(id, CACHED);
	T_EQ(preadv2(fd, &iov, 1, 100 * BLK, RWF_NOWAIT), BLK);
	T_EQ(ioc_pattern_check(b, id, 100 * BLK, BLK), -1);
	close(fd);
	obj_delete(id);
}

/* ---- reading ---- */

static void reads_stop_where_writing_stopped(void)
{
	uint64_t id = obj_new(MBLOCK, MIB);
	int fd = obj_open(id, WR);

	T_EQ(pread(fd, b, BLK, 0), 0);
	T_EQ(pread(fd, b, MIB, 64 * BLK), 0);
	obj_write(fd, id, 0, 3 * BLK);
	memset(b, 0x55, MIB);
	T_EQ(pread(fd, b, MIB, 0), 3 * BLK);
	T_EQ(ioc_pattern_check(b, id, 0, 3 * BLK), -1);
	T_OK(b[3 * BLK] == 0x55 && b[MIB - 1] == 0x55);
	T_EQ(pread(fd, b, BLK, 3 * BLK), 0);
	T_ERR(pread(fd, b, 512, 0), EINVAL);
	T_ERR(pread(fd, b, BLK, 512), EINVAL);
	close(fd);
	KT_EQ(ioc_drop(rig.rw, id), 0);
}

/* a disk that answers late, with what it held before in the object's place */
static void read_during_a_write_shows_nothing_old(void)
{
	struct io_uring_cqe *cqe;
	struct io_uring ring;
	uint64_t id;
	int fd;

	side_up("objlate", 1, 64, 100000000);
	id = obj_new(MBLOCK, MIB);
	fd = obj_open(id, WR);
	ioc_pattern(a, id, 0, MIB);
	T_EQ(io_uring_queue_init(4, &ring, 0), 0);
	io_uring_prep_write(io_uring_get_sqe(&ring), fd, a, MIB, 0);
	T_EQ(io_uring_submit(&ring), 1);
	T_EQ(pread(fd, b, MIB, 0), 0);
	T_OK(io_uring_peek_cqe(&ring, &cqe) == -EAGAIN);	/* it was in flight, then */
	T_EQ(io_uring_wait_cqe(&ring, &cqe), 0);
	T_EQ(cqe->res, MIB);
	io_uring_queue_exit(&ring);
	obj_check(fd, id, 0, MIB);
	close(fd);
	side_down();
}

/* null_blk of 6.1 marks no more than 256 KiB at a time */
static void disk_fails(char sign)
{
	char text[40];
	unsigned int at;

	for (at = 0; at < 64 * MIB / 512; at += 512) {
		snprintf(text, sizeof(text), "%c%u-%u", sign, at, at + 511);
		T_EQ(ioc_put("/sys/kernel/config/nullb/objbad0/badblocks", text), 0);
	}
}

static void failed_write_hides_its_place(void)
{
	uint64_t id;
	int fd;

	side_up("objbad", 1, 64, 0);
	id = obj_new(MBLOCK, MIB);
	fd = obj_open(id, WR);
	obj_write(fd, id, 0, 4 * BLK);
	disk_fails('+');
	T_ERR(pwrite(fd, a, 4 * BLK, 4 * BLK), EIO);
	T_ERR(pread(fd, b, 4 * BLK, 0), EIO);
	disk_fails('-');
	obj_check(fd, id, 0, 4 * BLK);
	T_ERR(pread(fd, b, BLK, 4 * BLK), EINVAL);
	obj_write(fd, id, 8 * BLK, BLK);
	T_ERR(pread(fd, b, BLK, 8 * BLK), EINVAL);
	KT_EQ(ioc_op(rig.rw, OP_COMMIT, id, 9 * BLK), -EIO);
	KT_EQ(ioc_op(rig.rw, OP_COMMIT, id, 4 * BLK), 0);
	T_EQ(pread(fd, b, MIB, 0), 4 * BLK);
	close(fd);
	side_down();
}

static void disk_contents_from_before_are_never_read(void)
{
	uint64_t id[40];
	unsigned int i;
	ssize_t n;
	int fd;

	/* most of what was marked, written in part: mblocks and append objects in turn */
	for (i = 0; i < 40; i++) {
		id[i] = obj_new(i % 2 ? APPEND : MBLOCK, 2 * MIB);
		fd = obj_open(id[i], WR);
		obj_write(fd, id[i], 0, (i % 7 + 1) * BLK);
		n = pread(fd, b, 2 * MIB, 0);
		T_EQ(n, i % 2 ? 2 * MIB : (i % 7 + 1) * BLK);
		T_OK(!has_mark(b, (size_t)n));
		KT_EQ(ioc_op(rig.rw, i % 2 ? OP_SEAL : OP_COMMIT, id[i], (i % 7 + 1) * BLK), 0);
		T_EQ(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_DIRECT), 0);
		n = pread(fd, b, 2 * MIB, 0);
		T_EQ(n, (i % 7 + 1) * BLK);
		T_EQ(ioc_pattern_check(b, id[i], 0, (size_t)n), -1);
		close(fd);
	}
	for (i = 0; i < 40; i++)
		obj_delete(id[i]);
}

static void map_equals_reads(void)
{
	size_t len = 9 * MIB + 3 * BLK;
	uint64_t id = obj_final(len), off;
	int fd = obj_open(id, CACHED), wr;
	int mem = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	unsigned char *m, *p;

	T_OK(mem >= 0);
	drop_caches();
	m = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
	T_OK(m != MAP_FAILED);
	for (off = 0; off < len; off += MIB) {
		size_t n = len - off < MIB ? len - off : MIB;

		T_EQ(pread(fd, b, n, (off_t)off), n);
		T_MEMEQ(b, m + off, n);
		T_EQ(ioc_pattern_check(m + off, id, off, n), -1);
	}
	T_EQ(pread(fd, b, 100000, 333333), 100000);
	T_MEMEQ(b, m + 333333, 100000);
	T_ERR(mprotect(m, BLK, PROT_READ | PROT_WRITE), EACCES);
	T_ERR(pwrite(mem, a, BLK, (off_t)(uintptr_t)m), EIO);	/* as a debugger would */
	close(mem);
	p = mremap(m, len, len + MIB, MREMAP_MAYMOVE);
	T_OK(p != MAP_FAILED);
	T_ERR(mprotect(p, BLK, PROT_READ | PROT_WRITE), EACCES);
	T_ERR(mmap(NULL, BLK, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0), EPERM);
	T_ERR(mprotect(p, BLK, PROT_READ | PROT_EXEC), EACCES);
	munmap(p, len + MIB);
	/* a private map is the process's own */
	p = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	T_OK(p != MAP_FAILED);
	memset(p, 0, MIB);
	obj_check(fd, id, 0, MIB);
	munmap(p, MIB);
	close(fd);
	obj_delete(id);
	/* of a descriptor open for writing: reading is shared, writing never */
	id = obj_new(MBLOCK, MIB);
	wr = obj_open(id, WR);
	obj_write(wr, id, 0, MIB);
	KT_EQ(ioc_op(rig.rw, OP_COMMIT, id, MIB), 0);
	m = mmap(NULL, MIB, PROT_READ, MAP_SHARED, wr, 0);
	T_OK(m != MAP_FAILED);
	T_EQ(ioc_pattern_check(m, id, 0, MIB), -1);
	T_ERR(mprotect(m, MIB, PROT_READ | PROT_WRITE), EACCES);
	T_ERR(mmap(NULL, BLK, PROT_READ | PROT_WRITE, MAP_SHARED, wr, 0), EACCES);
	munmap(m, MIB);
	close(wr);
	obj_delete(id);
}

static int touch(void *arg)
{
	signal(SIGBUS, SIG_DFL);
	return *(volatile unsigned char *)arg * 0;
}

static void map_ends_with_the_object(void)
{
	uint64_t id = obj_final(5 * BLK);
	int fd = obj_open(id, CACHED);
	unsigned char *m = mmap(NULL, MIB, PROT_READ, MAP_SHARED, fd, 0);

	T_OK(m != MAP_FAILED);
	T_EQ(kt_child(touch, m + 5 * BLK - 1), 0);
	T_EQ(kt_child(touch, m + 5 * BLK), 128 + SIGBUS);
	munmap(m, MIB);
	close(fd);
	obj_delete(id);
}

static void data_goes_out_by_splice_and_sendfile(void)
{
	uint64_t id = obj_final(MIB);
	int fd = obj_open(id, CACHED), p[2], tmp = memfd_create("t", 0);
	loff_t off = 64 * BLK;
	off_t pos = 0;

	T_EQ(pipe(p), 0);
	T_EQ(splice(fd, &off, p[1], NULL, 4 * BLK, 0), 4 * BLK);
	T_EQ(read(p[0], b, 4 * BLK), 4 * BLK);
	T_EQ(ioc_pattern_check(b, id, 64 * BLK, 4 * BLK), -1);
	while (pos < (off_t)MIB)
		T_OK(sendfile(tmp, fd, &pos, MIB - (size_t)pos) > 0);
	T_EQ(pread(tmp, b, MIB, 0), MIB);
	T_EQ(ioc_pattern_check(b, id, 0, MIB), -1);
	close(p[0]);
	close(p[1]);
	close(tmp);
	close(fd);
	obj_delete(id);
}

static void object_on_two_disks_is_one(void)
{
	static const unsigned int step[] = { 3 * BLK, MIB, 2 * MIB + BLK, BLK, 4 * MIB };
	uint64_t id, off, len = 44 * MIB;
	unsigned int i;
	size_t n;
	unsigned char *m;
	int fd;

	side_up("objtwo", 2, 32, 0);
	id = obj_new(MBLOCK, len);	/* larger than either */
	fd = obj_open(id, WR);
	for (off = i = 0; off < len; off += n, i++) {
		n = len - off < step[i % 5] ? len - off : step[i % 5];
		obj_write(fd, id, off, n);
	}
	for (off = 0; off < len; off += n) {
		n = len - off < 3 * MIB + BLK ? len - off : 3 * MIB + BLK;
		obj_check(fd, id, off, n);
	}
	KT_EQ(ioc_op(rig.rw, OP_COMMIT, id, len), 0);
	m = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
	T_OK(m != MAP_FAILED);
	T_EQ(ioc_pattern_check(m, id, 0, len), -1);
	munmap(m, len);
	close(fd);
	side_down();
}

/* ---- io_uring ---- */

static int uring_res(struct io_uring *ring)
{
	struct io_uring_cqe *cqe;
	int res = -ETIME;

	if (io_uring_submit_and_wait(ring, 1) >= 0 && !io_uring_peek_cqe(ring, &cqe)) {
		res = cqe->res;
		io_uring_cqe_seen(ring, cqe);
	}
	return res;
}

static void uring_writes_and_reads_with_fixed_files_and_buffers(void)
{
	uint64_t id = obj_new(MBLOCK, 4 * MIB);
	int fd = obj_open(id, WR), i, n = 0;
	struct iovec iov[2] = { { a, sizeof(a) }, { b, sizeof(b) } };
	struct io_uring_cqe *cqe;
	struct io_uring_sqe *sqe;
	struct io_uring ring;

	T_EQ(io_uring_queue_init(64, &ring, 0), 0);
	T_EQ(io_uring_register_buffers(&ring, iov, 2), 0);
	T_EQ(io_uring_register_files(&ring, &fd, 1), 0);
	ioc_pattern(a, id, 0, sizeof(a));
	for (i = 0; i < 32; i++) {	/* in order, all in flight */
		sqe = io_uring_get_sqe(&ring);
		io_uring_prep_write_fixed(sqe, 0, a + i * 65536, 65536, (uint64_t)i * 65536, 0);
		sqe->flags |= IOSQE_FIXED_FILE;
	}
	T_EQ(io_uring_submit(&ring), 32);
	for (i = 0; i < 32 && !io_uring_wait_cqe(&ring, &cqe); i++) {
		n += cqe->res == 65536;
		io_uring_cqe_seen(&ring, cqe);
	}
	T_EQ(n, 32);
	/* not registered, and durable at its end */
	sqe = io_uring_get_sqe(&ring);
	io_uring_prep_write(sqe, fd, a + 2 * MIB, 2 * MIB, 2 * MIB);
	sqe->rw_flags = RWF_DSYNC;
	T_EQ(uring_res(&ring), 2 * MIB);
	for (i = 0; i < 32; i++) {
		sqe = io_uring_get_sqe(&ring);
		io_uring_prep_read_fixed(sqe, 0, b + i * 131072, 131072, (uint64_t)i * 131072, 1);
		sqe->flags |= IOSQE_FIXED_FILE;
	}
	T_EQ(io_uring_submit(&ring), 32);
	for (n = i = 0; i < 32 && !io_uring_wait_cqe(&ring, &cqe); i++) {
		n += cqe->res == 131072;
		io_uring_cqe_seen(&ring, cqe);
	}
	T_EQ(n, 32);
	T_EQ(ioc_pattern_check(b, id, 0, sizeof(b)), -1);
	io_uring_prep_fsync(io_uring_get_sqe(&ring), fd, 0);
	T_EQ(uring_res(&ring), 0);
	io_uring_queue_exit(&ring);
	close(fd);
	KT_EQ(ioc_op(rig.rw, OP_COMMIT, id, 4 * MIB), 0);
	obj_delete(id);
}

static int uring_one(struct io_uring *ring, int fd, bool is_fixed, bool is_write, uint64_t off)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

	if (is_write)
		io_uring_prep_write_fixed(sqe, is_fixed ? 0 : fd, a, BLK, off, 0);
	else
		io_uring_prep_read_fixed(sqe, is_fixed ? 0 : fd, a, BLK, off, 0);
	if (is_fixed)
		sqe->flags |= IOSQE_FIXED_FILE;
	return uring_res(ring);
}

static void uring_obeys_mode_state_and_bounds(void)
{
	uint64_t id = obj_new(MBLOCK, MIB);
	int fd = obj_open(id, WR), ro = obj_open(id, RD), fixed;
	struct iovec iov = { a, sizeof(a) };
	struct io_uring_sqe *sqe;
	struct io_uring ring;

	T_EQ(io_uring_queue_init(8, &ring, 0), 0);
	T_EQ(io_uring_register_buffers(&ring, &iov, 1), 0);
	T_EQ(io_uring_register_files(&ring, &fd, 1), 0);
	T_EQ(uring_one(&ring, ro, false, true, 0), -EBADF);
	for (fixed = 0; fixed < 2; fixed++) {
		T_EQ(uring_one(&ring, fd, fixed, true, (fixed + 1) * BLK), -EINVAL);
		T_EQ(uring_one(&ring, fd, fixed, true, MIB), -EINVAL);
		T_EQ(uring_one(&ring, fd, fixed, false, MIB / 2), 0);
		T_EQ(uring_one(&ring, fd, fixed, true, fixed * BLK), BLK);
	}
	KT_EQ(ioc_op(rig.rw, OP_COMMIT, id, 2 * BLK), 0);
	for (fixed = 0; fixed < 2; fixed++) {
		T_EQ(uring_one(&ring, fd, fixed, true, 2 * BLK), -EROFS);
		T_EQ(uring_one(&ring, fd, fixed, false, BLK), BLK);
		T_EQ(uring_one(&ring, fd, fixed, false, 2 * BLK), 0);
	}
	sqe = io_uring_get_sqe(&ring);
	io_uring_prep_fallocate(sqe, fd, 0, 0, BLK);
	T_EQ(uring_res(&ring), -EOPNOTSUPP);
	io_uring_queue_exit(&ring);
	close(ro);
	close(fd);
	obj_delete(id);
}

static void uring_reads_cold_pages_through_the_cache(void)
{
	uint64_t id = obj_final(4 * MIB);
	int fd = obj_open(id, CACHED), i, n = 0;
	struct io_uring_cqe *cqe;
	struct io_uring ring;

	drop_caches();
	T_EQ(io_uring_queue_init(64, &ring, 0), 0);
	for (i = 0; i < 32; i++)
		io_uring_prep_read(io_uring_get_sqe(&ring), fd, b + i * 131072, 131072,
				   (uint64_t)i * 131072);
	T_EQ(io_uring_submit(&ring), 32);
	for (i = 0; i < 32 && !io_uring_wait_cqe(&ring, &cqe); i++) {
		n += cqe->res == 131072;
		io_uring_cqe_seen(&ring, cqe);
	}
	T_EQ(n, 32);
	T_EQ(ioc_pattern_check(b, id, 0, sizeof(b)), -1);
	io_uring_queue_exit(&ring);
	close(fd);
	obj_delete(id);
}

/* ---- permissions ---- */

struct as {
	uint32_t uid;
	int fd, flags;
};

/* becomes another user, and opens the descriptor again; the errno, or 0 */
static int reopen_as(void *arg)
{
	const struct as *as = arg;
	gid_t extra = GROUP;

	if (as->uid && (setgroups(as->uid == ALICE, &extra) || setgid(as->uid) || setuid(as->uid)))
		return 99;
	prctl(PR_SET_DUMPABLE, 1);	/* else /proc/self is root's */
	return reopen(as->fd, as->flags) >= 0 ? 0 : errno;
}

static int wanted(uint32_t uid, uint32_t owner, uint32_t gid, uint32_t mode, int flags)
{
	uint32_t how = flags & O_ACCMODE, need = how == O_RDONLY ? 4 : how == O_WRONLY ? 2 : 6;
	uint32_t have = uid == owner ? mode >> 6 : gid == uid || (uid == ALICE && gid == GROUP) ?
			mode >> 3 : mode;

	return !uid || (have & need) == need ? 0 : EACCES;
}

static void reopen_is_checked_each_time(void)
{
	static const uint32_t uids[] = { 0, ALICE, BOB };
	static const struct { uint32_t uid, gid, mode; } own[] = {
		{ 0, 0, 0600 }, { 0, GROUP, 0660 }, { 0, GROUP, 0640 }, { 0, 0, 0644 },
		{ 0, 0, 0666 }, { ALICE, BOB, 0460 }, { ALICE, GROUP, 0060 }, { BOB, 0, 0200 },
		{ BOB, BOB, 0400 },
	};
	static const int flags[] = { O_RDONLY, O_RDWR, O_WRONLY };
	uint64_t id = obj_new(MBLOCK, MIB);
	int wr = obj_open(id, WR), ro = obj_open(id, RD);
	unsigned int i, u, f, k;
	struct stat st;

	for (i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
		set_owner(own[i].uid, own[i].gid, own[i].mode);
		T_EQ(fstat(ro, &st), 0);
		T_OK(st.st_uid == own[i].uid && st.st_gid == own[i].gid &&
		     (st.st_mode & 07777) == own[i].mode);
		for (u = 0; u < 3; u++)
			for (f = 0; f < 3; f++)
				for (k = 0; k < 2; k++) {
					struct as as = { uids[u], k ? wr : ro, flags[f] };
					int got = kt_child(reopen_as, &as);
					int want = wanted(uids[u], own[i].uid, own[i].gid,
							  own[i].mode, flags[f]);

					if (got != want)
						T_FAIL("uid %u, %s, object %u: %d, wanted %d",
						       uids[u], f ? f == 1 ? "rw" : "w" : "r",
						       i, got, want);
				}
	}
	set_owner(0, 0, 0600);
	T_ERR(reopen(wr, O_RDWR | O_TRUNC), EPERM);
	T_ERR(reopen(wr, O_RDWR | O_APPEND), EINVAL);
	T_ERR(reopen(ro, O_RDWR | O_TRUNC), EPERM);
	/* a second file of its own: it writes where the first stopped */
	k = (unsigned int)reopen(ro, O_RDWR | O_DIRECT);
	T_OK((int)k >= 0);
	obj_write(wr, id, 0, BLK);
	obj_write((int)k, id, BLK, BLK);
	obj_check(ro, id, 0, 2 * BLK);
	close((int)k);
	close(wr);
	close(ro);
	KT_EQ(ioc_drop(rig.rw, id), 0);
}

static void attributes_do_not_change(void)
{
	uint64_t id = obj_final(MIB), raw = obj_new(MBLOCK, MIB);
	int src = obj_open(id, CACHED), fd = reopen(src, O_RDONLY), wr = obj_open(raw, WR);
	struct timespec atime[2] = { { 1, 0 }, { 0, UTIME_OMIT } };
	struct timespec both[2] = { { 1, 0 }, { 1, 0 } };
	int flags = 0, i;
	struct { struct fiemap fm; struct fiemap_extent fe[4]; } map;
	struct stat st;

	for (i = 0; i < 2; i++, fd = wr) {
		T_ERR(fchmod(fd, 0777), EPERM);
		T_ERR(fchown(fd, ALICE, ALICE), EPERM);
		T_ERR(futimens(fd, both), EPERM);
		T_EQ(futimens(fd, atime), 0);
		T_ERR(fsetxattr(fd, "user.a", "b", 1, 0), EOPNOTSUPP);
		T_ERR(fsetxattr(fd, "trusted.a", "b", 1, 0), EOPNOTSUPP);
		T_ERR(fgetxattr(fd, "user.a", b, 1), EOPNOTSUPP);
		T_ERR(fallocate(fd, 0, 0, BLK), fd == wr ? EOPNOTSUPP : EBADF);
		T_ERR(ftruncate(fd, 0), fd == wr ? EPERM : EINVAL);
		T_ERR(ioctl(fd, FS_IOC_GETFLAGS, &flags), ENOTTY);
		T_ERR(ioctl(fd, FS_IOC_SETFLAGS, &flags), ENOTTY);
		memset(&map, 0, sizeof(map));
		map.fm.fm_length = MIB;
		map.fm.fm_extent_count = 4;
		T_ERR(ioctl(fd, FS_IOC_FIEMAP, &map), EOPNOTSUPP);
		T_OK(ioctl(wr, FICLONE, src) < 0);
		set_owner(0, 0, 0777);	/* no user executes one, whatever the pool allows */
		T_ERR(syscall(SYS_execveat, fd, "", NULL, NULL, AT_EMPTY_PATH), EACCES);
		set_owner(0, 0, 0600);
		T_EQ(fstat(fd, &st), 0);
		T_OK((st.st_mode & 07777) == 0600 && st.st_uid == 0 && st.st_gid == 0);
		close(fd);
	}
	close(src);
	KT_EQ(ioc_drop(rig.rw, raw), 0);
	obj_delete(id);
}

/* what alice does with descriptors that were sent to her: 0, or the step that went wrong */
static int passed_to_alice(void *arg)
{
	char ctl[CMSG_SPACE(2 * sizeof(int))], c;
	struct iovec iov = { &c, 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl,
			      .msg_controllen = sizeof(ctl) };
	gid_t none = ALICE;
	int fd[2], i;

	for (i = 3; i < 64; i++)
		if (i != *(int *)arg)
			close(i);
	if (setgroups(1, &none) || setgid(ALICE) || setuid(ALICE))
		return 1;
	prctl(PR_SET_DUMPABLE, 1);
	if (recvmsg(*(int *)arg, &msg, 0) != 1 || !CMSG_FIRSTHDR(&msg))
		return 2;
	memcpy(fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	if (pread(fd[0], b, BLK, 0) != BLK)		/* what was given may be used */
		return 3;
	if (pwrite(fd[0], a, BLK, BLK) != -1 || errno != EBADF)
		return 4;
	if (reopen(fd[0], O_RDONLY) >= 0 || errno != EACCES)	/* but not made into more */
		return 5;
	if (reopen(fd[0], O_RDWR) >= 0 || errno != EACCES)
		return 6;
	if (pwrite(fd[1], a, BLK, BLK) != BLK)
		return 7;
	if (reopen(fd[1], O_RDWR) >= 0 || errno != EACCES)
		return 8;
	if (!fchmod(fd[1], 0666) || !fchown(fd[1], ALICE, ALICE))
		return 9;
	return open("/dev/mpool/" POOL, O_RDONLY) >= 0 || errno != EACCES ? 10 : 0;
}

static void passed_descriptor_gives_what_it_was_opened_for(void)
{
	uint64_t id = obj_new(MBLOCK, MIB);
	int fd[2] = { obj_open(id, RD), obj_open(id, WR) }, sp[2];
	char ctl[CMSG_SPACE(sizeof(fd))] = { 0 }, c = 0;
	struct iovec iov = { &c, 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl,
			      .msg_controllen = sizeof(ctl) };
	struct cmsghdr *cm = CMSG_FIRSTHDR(&msg);

	obj_write(fd[1], id, 0, BLK);
	T_EQ(socketpair(AF_UNIX, SOCK_DGRAM, 0, sp), 0);
	cm->cmsg_level = SOL_SOCKET;
	cm->cmsg_type = SCM_RIGHTS;
	cm->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(cm), fd, sizeof(fd));
	T_EQ(sendmsg(sp[0], &msg, 0), 1);
	T_EQ(kt_child(passed_to_alice, &sp[1]), 0);
	close(sp[0]);
	close(sp[1]);
	T_EQ(pread(fd[0], b, MIB, 0), 2 * BLK);
	close(fd[0]);
	close(fd[1]);
	KT_EQ(ioc_drop(rig.rw, id), 0);
}

/* ---- lifetime ---- */

static uint64_t pool_free(void)
{
	struct mpool_ioc_info in = { 0 };

	KT_EQ(ioc_info(rig.rw, &in), 0);
	return in.in_class[0].cl_free;
}

static void closing_the_last_descriptor_aborts(void)
{
	uint64_t before = pool_free(), id = obj_new(MBLOCK, 8 * MIB);
	int fd = obj_open(id, WR);

	obj_write(fd, id, 0, MIB);
	KT_EQ(ioc_drop(rig.rw, id), 0);
	obj_check(fd, id, 0, MIB);	/* the descriptor alone keeps it */
	T_OK(pool_free() < before);
	close(fd);
	T_EQ(pool_free(), before);
	KT_EQ(ioc_obj_open(rig.rw, id, RD), -ENOENT);
}

static void deleted_object_lives_with_its_users(void)
{
	uint64_t id = obj_final(4 * MIB), other[600], left;
	int fd = obj_open(id, CACHED), wr;
	unsigned int i, n = 0;
	unsigned char *m = mmap(NULL, 4 * MIB, PROT_READ, MAP_SHARED, fd, 0);

	T_OK(m != MAP_FAILED);
	obj_delete(id);
	/* all other space is taken and overwritten at the start: nothing of it may be ours */
	while (n < 600 && ioc_alloc(rig.rw, MBLOCK, 0, 2 * MIB, 0, &other[n]) == 0) {
		wr = obj_open(other[n], WR);
		memset(a, 0xDD, MIB);
		T_EQ(pwrite(wr, a, MIB, 0), MIB);
		close(wr);
		n++;
	}
	T_OK(n > 100);
	left = pool_free();
	drop_caches();
	T_EQ(ioc_pattern_check(m, id, 0, 4 * MIB), -1);
	obj_check(fd, id, 0, 4 * MIB);
	close(fd);
	drop_caches();
	T_EQ(ioc_pattern_check(m, id, 0, 4 * MIB), -1);	/* the map alone */
	T_EQ(pool_free(), left);
	munmap(m, 4 * MIB);
	T_EQ(pool_free(), left + 4 * MIB);
	for (i = 0; i < n; i++)
		KT_EQ(ioc_drop(rig.rw, other[i]), 0);
}

/* it is not open, but its pages are there: a delete still frees the space at once */
static void cached_object_does_not_hold_its_space(void)
{
	uint64_t before = pool_free(), id = obj_final(4 * MIB);
	int fd = obj_open(id, CACHED);

	obj_check(fd, id, 0, 4 * MIB);
	close(fd);
	KT_EQ(ioc_drop(rig.rw, id), 0);
	T_OK(pool_free() < before);
	KT_EQ(ioc_op(rig.rw, OP_DELETE, id, 0), 0);
	T_EQ(pool_free(), before);
}

/* what the kernel's trace says of one write, its commit and its read */
static void tracepoints_tell(void)
{
	static const char dir[] = "/sys/kernel/debug/tracing", *const want[] = {
		"mpool_obj_io: ", " write off=0 ret=4096", " read off=0 ret=4096",
		"mpool_batch: ", " operations=1 ", "mpool_md_write: ", "mpool_flush: ",
	};
	char path[64], *text;
	unsigned int i;
	uint64_t id;
	FILE *f;
	int fd;

	snprintf(path, sizeof(path), "%s/events/mpool/enable", dir);
	if (access(path, F_OK)) {
		printf("# this kernel has no tracing\n");
		return;
	}
	T_EQ(ioc_put(path, "1"), 0);
	id = obj_new(MBLOCK, MIB);
	fd = obj_open(id, WR);
	obj_write(fd, id, 0, BLK);
	KT_EQ(ioc_op(rig.rw, OP_COMMIT, id, BLK), 0);
	obj_check(fd, id, 0, BLK);
	close(fd);
	T_EQ(ioc_put(path, "0"), 0);
	snprintf(path, sizeof(path), "%s/trace", dir);
	f = fopen(path, "re");
	T_OK(f != NULL);
	text = (char *)b;
	i = (unsigned int)fread(text, 1, sizeof(b) - 1, f);
	text[i] = 0;
	fclose(f);
	for (i = 0; i < sizeof(want) / sizeof(want[0]); i++)
		if (!strstr(text, want[i]))
			T_FAIL("'%s' is not in: %.3000s", want[i], text);
	obj_delete(id);
}

static void pool_stays_while_anything_is_open(void)
{
	uint64_t id = obj_final(MIB);
	int fd = obj_open(id, CACHED);
	struct io_uring ring;
	void *m;

	kt_close(&rig);
	KT_EQ(ioc_deactivate(rig.ctl, POOL), -EBUSY);	/* a descriptor */
	m = mmap(NULL, MIB, PROT_READ, MAP_SHARED, fd, 0);
	T_OK(m != MAP_FAILED);
	T_EQ(io_uring_queue_init(4, &ring, 0), 0);
	T_EQ(io_uring_register_files(&ring, &fd, 1), 0);
	close(fd);
	KT_EQ(ioc_deactivate(rig.ctl, POOL), -EBUSY);	/* a map and a registered file */
	T_EQ(ioc_pattern_check(m, id, 0, MIB), -1);
	munmap(m, MIB);
	KT_EQ(ioc_deactivate(rig.ctl, POOL), -EBUSY);	/* the registered file */
	io_uring_queue_exit(&ring);
	for (fd = 0; fd < 250 && ioc_deactivate(rig.ctl, POOL) == -EBUSY; fd++)
		usleep(20000);		/* the ring ends in the background */
	KT_EQ(ioc_activate(rig.ctl, rig.dev, 2, 0), 0);
	kt_open(&rig);
	fd = obj_open(id, CACHED);
	obj_check(fd, id, 0, MIB);
	close(fd);
	KT_EQ(ioc_op(rig.rw, OP_DELETE, id, 0), 0);
}

/* in a child, which the kernel may hold back for as long as @fd is open */
static int deactivate_beside(int fd)
{
	int st = 0, i;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		close(fd);
		_exit(-ioc_deactivate(rig.ctl, POOL));
	}
	T_OK(pid > 0);
	for (i = 0; i < 500 && !waitpid(pid, &st, WNOHANG); i++)
		usleep(20000);
	if (i == 500) {
		close(fd);
		waitpid(pid, &st, 0);
		T_FAIL("it waited until the descriptor was closed");
	}
	return WIFEXITED(st) ? -WEXITSTATUS(st) : -EINTR;
}

/* O_PATH opens nothing, and yet holds the file's place: none of it is the module's to count */
static void pool_stays_while_a_place_of_it_is_held(void)
{
	uint64_t id = obj_final(MIB);
	int fd = obj_open(id, CACHED), at = reopen(fd, O_PATH), rc;
	struct stat st;

	T_OK(at >= 0);
	close(fd);
	kt_close(&rig);
	rc = deactivate_beside(at);
	T_EQ(rc, -EBUSY);
	/* nothing changed: it can be opened as before */
	T_EQ(fstat(at, &st), 0);
	T_EQ(st.st_size, MIB);
	fd = reopen(at, O_RDONLY);
	T_OK(fd >= 0);
	obj_check(fd, id, 0, MIB);
	close(fd);
	close(at);
	KT_EQ(ioc_deactivate(rig.ctl, POOL), 0);
	KT_EQ(ioc_activate(rig.ctl, rig.dev, 2, 0), 0);
	kt_open(&rig);
	KT_EQ(ioc_op(rig.rw, OP_DELETE, id, 0), 0);
}

static void read_only_pool_opens_nothing_for_writing(void)
{
	uint64_t id = obj_final(MIB), app = obj_new(APPEND, MIB);
	int fd;

	kt_close(&rig);
	KT_EQ(ioc_deactivate(rig.ctl, POOL), 0);
	KT_EQ(ioc_activate(rig.ctl, rig.dev, 2, MPOOL_IOC_ACTIVATE_RDONLY), 0);
	kt_open(&rig);
	KT_EQ(ioc_obj_open(rig.rw, app, WR), -EROFS);
	fd = obj_open(app, RD);
	T_EQ(syncfs(fd), 0);
	T_ERR(reopen(fd, O_RDWR), EROFS);
	close(fd);
	fd = obj_open(id, CACHED);
	obj_check(fd, id, 0, MIB);
	close(fd);
	kt_close(&rig);
	KT_EQ(ioc_deactivate(rig.ctl, POOL), 0);
	KT_EQ(ioc_activate(rig.ctl, rig.dev, 2, 0), 0);
	kt_open(&rig);
	KT_EQ(ioc_op(rig.rw, OP_DELETE, id, 0), 0);
	KT_EQ(ioc_op(rig.rw, OP_DELETE, app, 0), 0);
}

/* a failed test may have left its own pool behind */
#define RUN(fn) do {							\
	T_RUN(fn);							\
	if (main_rig.ctl)						\
		T_RUN(side_down);					\
} while (0)

int main(void)
{
	const char *why = kt_missing();

	if (why)
		return t_skip_all(why);
	T_RUN(pool_up);
	if (t_failed)
		return t_done();
	RUN(object_looks_like_a_file);
	RUN(writes_only_follow_on);
	RUN(what_was_written_is_flushed_by_syncfs);
	RUN(append_object_chooses_its_place_and_is_sealed);
	RUN(final_object_refuses_writes_on_every_path);
	RUN(file_opened_before_the_commit_sees_it);
	RUN(reads_stop_where_writing_stopped);
	RUN(read_during_a_write_shows_nothing_old);
	RUN(failed_write_hides_its_place);
	RUN(disk_contents_from_before_are_never_read);
	RUN(map_equals_reads);
	RUN(map_ends_with_the_object);
	RUN(data_goes_out_by_splice_and_sendfile);
	RUN(object_on_two_disks_is_one);
	RUN(uring_writes_and_reads_with_fixed_files_and_buffers);
	RUN(uring_obeys_mode_state_and_bounds);
	RUN(uring_reads_cold_pages_through_the_cache);
	RUN(reopen_is_checked_each_time);
	RUN(attributes_do_not_change);
	RUN(passed_descriptor_gives_what_it_was_opened_for);
	RUN(closing_the_last_descriptor_aborts);
	RUN(deleted_object_lives_with_its_users);
	RUN(cached_object_does_not_hold_its_space);
	RUN(tracepoints_tell);
	RUN(pool_stays_while_anything_is_open);
	RUN(pool_stays_while_a_place_of_it_is_held);
	RUN(read_only_pool_opens_nothing_for_writing);
	RUN(pool_goes_away_clean);
	return t_done();
}
