/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Members that are plain files or block devices.
 *
 * Exclusion: a block device is opened O_EXCL. A file carries OFD locks: byte 0
 * for the writer, byte 1 shared by readers and taken exclusively by the writer
 * too; they hold against other opens of the same process and go with the
 * descriptor. Byte 2 is locked by a descriptor that no ring ever has, so it
 * goes when the process does: it tells an owner that lives from one whose rings
 * the kernel is still ending. The node of a block device carries the same locks, to
 * tell just that. A file behind a loop device is refused, because
 * the loop device would write around the lock.
 *
 * I/O is O_DIRECT. Where a file system refuses it (tmpfs) the same calls are
 * buffered; fdatasync makes both durable. Space is reserved when an object is
 * allocated: with fallocate, or, where the file system has no such thing (ext3, NFS
 * before 4.2, FUSE), by writing zeroes where zeroes are read. What has data has space,
 * and keeps it: such a file system punches no holes either.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include "device.h"
#include "fd.h"
#include "guard.h"
#include "os_user.h"

struct file_dev {
	int fd_fd;
	int fd_live;		/* has the lock of byte 2; -1: none */
	int fd_is_block;
	int fd_no_fallocate;	/* the file system has none; atomic, it is found out by trying */
};

int mpl_fd_rw(int fd, uint64_t off, const struct iovec *iov, unsigned n, int is_write, int rwf)
{
	struct iovec v[MPL_IOV_MAX];
	unsigned i = 0;
	ssize_t r;

	if (n > MPL_IOV_MAX)
		return -EINVAL;
	memcpy(v, iov, n * sizeof(*v));
	while (i < n) {
		r = is_write ? pwritev2(fd, v + i, (int)(n - i), (off_t)off, rwf) :
			       preadv(fd, v + i, (int)(n - i), (off_t)off);
		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -errno;
		if (r == 0)
			return -EIO; /* the file is shorter than the pool says */
		off += (uint64_t)r;
		while (i < n && (size_t)r >= v[i].iov_len)
			r -= (ssize_t)v[i++].iov_len;
		if (i < n) {
			v[i].iov_base = (char *)v[i].iov_base + r;
			v[i].iov_len -= (size_t)r;
		}
	}
	return 0;
}

int mpl_fd_flush(int fd)
{
	/* a signal ends it on some file systems (FUSE): nothing has failed, so it is begun anew */
	return TEMP_FAILURE_RETRY(fdatasync(fd)) ? -errno : 0;
}

static int file_readv(void *dev, uint64_t off, const struct iovec *iov, unsigned n,
		      uint64_t *ready_ns)
{
	struct file_dev *fd = dev;

	if (ready_ns)
		*ready_ns = 0;
	return mpl_fd_rw(fd->fd_fd, off, iov, n, 0, 0);
}

static int file_writev(void *dev, uint64_t off, const struct iovec *iov, unsigned n, int is_fua,
		       uint64_t *ready_ns)
{
	struct file_dev *fd = dev;

	if (ready_ns)
		*ready_ns = 0;
	return mpl_fd_rw(fd->fd_fd, off, iov, n, 1, BARRIER(is_fua ? RWF_DSYNC : 0));
}

static int file_flush(void *dev, uint64_t *ready_ns)
{
	struct file_dev *fd = dev;

	if (ready_ns)
		*ready_ns = 0;
	return BARRIER(mpl_fd_flush(fd->fd_fd));
}

/* A hint: a device or file system that cannot do it is no error. */
static int file_discard(void *dev, uint64_t off, uint64_t len)
{
	struct file_dev *fd = dev;
	uint64_t range[2] = { off, len };
	int rc;

	if (fd->fd_is_block)
		rc = ioctl(fd->fd_fd, BLKDISCARD, range);
	else
		rc = TEMP_FAILURE_RETRY(fallocate(fd->fd_fd, FALLOC_FL_PUNCH_HOLE |
						  FALLOC_FL_KEEP_SIZE, (off_t)off, (off_t)len));
	return rc && errno != EOPNOTSUPP && errno != ENOSYS && errno != ENOTTY ? -errno : 0;
}

#define EXTENTS	32	/* of a file that are asked for at once */

uint64_t mpl_fd_reserved(int fd, uint64_t off, uint64_t len)
{
	struct fiemap *fm = calloc(1, sizeof(*fm) + EXTENTS * sizeof(fm->fm_extents[0]));
	const struct fiemap_extent *e;
	uint64_t at = off, end = off + len;
	int is_known = 0;
	uint32_t i = 0;

	while (fm && at < end) {
		fm->fm_start = at;
		fm->fm_length = end - at;
		fm->fm_flags = 0;
		fm->fm_extent_count = EXTENTS;
		if (ioctl(fd, FS_IOC_FIEMAP, fm))
			break;
		is_known = 1;
		for (i = 0; i < fm->fm_mapped_extents && at < end; i++) {
			e = &fm->fm_extents[i];
			if (e->fe_logical > at || e->fe_logical + e->fe_length <= at)
				break;
			at = e->fe_logical + e->fe_length;
		}
		/* a hole, or no more extents */
		if (i < EXTENTS)
			break;
	}
	free(fm);
	return is_known ? (at < end ? at : end) - off : MP_DEV_UNKNOWN;
}

#define ZERO_STEP	(256u << 10)	/* bytes */

/* Zeroes over the blocks of [@off, @off + @len) that are zeroes; @buf is of that size. */
static int zero_step(int fd, void *buf, void *zeroes, uint64_t off, uint64_t len)
{
	struct iovec v = { buf, len };
	uint64_t at, n;
	int rc = mpl_fd_rw(fd, off, &v, 1, 0, 0);

	for (at = 0; at < len && !rc; at += n) {
		for (n = 0; at + n < len; n += MP_BLOCK)
			if (memcmp((char *)buf + at + n, zeroes, MP_BLOCK))
				break;
		if (!n) {
			n = MP_BLOCK;
			continue;
		}
		v = (struct iovec){ zeroes, n };
		rc = mpl_fd_rw(fd, off + at, &v, 1, 1, 0);
	}
	return rc;
}

/*
 * A write of what is there already changes nothing, and gives a hole its space. Nothing else
 * writes there: what is reserved is new, or free. The file systems without fallocate() take
 * O_DIRECT or write through (FUSE): that there is no space is said here, not at a later flush.
 */
static int reserve_by_zeroes(struct file_dev *fd, uint64_t off, uint64_t len)
{
	uint64_t at, n;
	void *buf = os_alloc_io(ZERO_STEP), *zeroes = os_alloc_io(ZERO_STEP);
	int rc = buf && zeroes ? 0 : -ENOMEM;

	if (!rc)
		memset(zeroes, 0, ZERO_STEP);
	for (at = 0; at < len && !rc; at += n) {
		n = len - at < ZERO_STEP ? len - at : ZERO_STEP;
		rc = zero_step(fd->fd_fd, buf, zeroes, off + at, n);
	}
	os_free_io(buf);
	os_free_io(zeroes);
	return rc;
}

/* The file system's word for it: what was never written, or punched out, reads as zeroes. */
static uint64_t file_data(void *dev, uint64_t off, uint64_t end)
{
	struct file_dev *fd = dev;
	off_t at = fd->fd_is_block ? (off_t)off : lseek(fd->fd_fd, (off_t)off, SEEK_DATA);

	if (at < 0)
		return errno == ENXIO ? end : off;
	return (uint64_t)at < end ? (uint64_t)at : end;
}

static int file_reserve(void *dev, uint64_t off, uint64_t len)
{
	struct file_dev *fd = dev;
	int rc = -EOPNOTSUPP;

	if (fd->fd_is_block)
		return 0;
	if (!__atomic_load_n(&fd->fd_no_fallocate, __ATOMIC_RELAXED))
		rc = TEMP_FAILURE_RETRY(fallocate(fd->fd_fd, 0, (off_t)off, (off_t)len)) ?
		     -errno : 0;
	if (rc == -EOPNOTSUPP || rc == -ENOSYS) {
		__atomic_store_n(&fd->fd_no_fallocate, 1, __ATOMIC_RELAXED);
		rc = reserve_by_zeroes(fd, off, len);
	}
	rc = rc == -EDQUOT || rc == -EFBIG ? -ENOSPC : rc;
	/* a full file system may count what is there already as if it was not (XFS) */
	return rc == -ENOSPC && mpl_fd_reserved(fd->fd_fd, off, len) == len ? 0 : rc;
}

enum { BYTE_WRITER, BYTE_READERS, BYTE_LIVE, BYTES };

static struct flock byte_lock(off_t byte, short type)
{
	return (struct flock){ .l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1 };
}

/* bytes: above every other lock and all data, below those of mpool_hold() */
#define MARK_BASE	(1ull << 61)
#define CLOSE_PATIENCE_MS 200

/*
 * A close is a close: the file system can be unmounted, the device claimed. A request that has
 * ended, or a ring that could not be told to let go of the file, has it a moment longer: a lock
 * goes with the last of them, and is seen by the other descriptor until then. A child that was
 * forked keeps it, too, hence the end of patience.
 */
static void fd_release(struct file_dev *fd)
{
	struct flock mark, now;
	uint64_t n;
	int i;

	/* another than those of other closes at the same time */
	if (os_random(&n, sizeof(n)))
		n = mpl_now_ns();
	mark = byte_lock((off_t)(MARK_BASE + n % MARK_BASE), F_RDLCK);
	i = fd->fd_live < 0 || fcntl(fd->fd_fd, F_OFD_SETLK, &mark) ? CLOSE_PATIENCE_MS : 0;
	close(fd->fd_fd);
	for (; i < CLOSE_PATIENCE_MS; i++) {
		now = byte_lock(mark.l_start, F_WRLCK);
		if (fcntl(fd->fd_live, F_OFD_GETLK, &now) || now.l_type == F_UNLCK)
			break;
		mpl_sleep_until(mpl_now_ns() + 1000000u);
	}
}

static int file_resize(void *dev, uint64_t bytes)
{
	struct file_dev *fd = dev;

	return TEMP_FAILURE_RETRY(ftruncate(fd->fd_fd, (off_t)bytes)) ? -errno : 0;
}

static uint64_t file_room(void *dev, int keeps)
{
	struct file_dev *fd = dev;
	uint64_t keep, avail;
	struct statvfs fs;

	if (fd->fd_is_block || fstatvfs(fd->fd_fd, &fs))
		return 0;
	keep = keeps ? (uint64_t)fs.f_blocks / 10 : 0;
	avail = fs.f_bavail;
	return avail > keep ? (avail - keep) * fs.f_frsize : 0;
}

static void file_close(void *dev)
{
	struct file_dev *fd = dev;
	struct flock fl = { .l_type = F_UNLCK, .l_whence = SEEK_SET };

	/*
	 * What has the device for longer than it is waited for, a child say, keeps its claim, and
	 * so that this is seen its own locks stay too.
	 */
	fl.l_start = fd->fd_is_block ? BYTES : 0;
	fcntl(fd->fd_fd, F_OFD_SETLK, &fl);
	fd_release(fd);
	fl.l_start = 0;
	if (fd->fd_live >= 0) {
		/* a child that was forked has it too, and is no owner */
		fcntl(fd->fd_live, F_OFD_SETLK, &fl);
		close(fd->fd_live);
	}
	free(fd);
}

static const struct mpool_vdev_ops file_ops = {
	.readv = file_readv,
	.writev = file_writev,
	.flush = file_flush,
	.discard = file_discard,
	.reserve = file_reserve,
	.data = file_data,
	.resize = file_resize,
	.room = file_room,
	.close = file_close,
};

/* 1 when a loop device has this file as its backing file */
static int file_has_loop(const struct stat *st)
{
	char path[300], back[4096];
	struct dirent *de;
	struct stat lst;
	int found = 0;
	ssize_t n;
	DIR *d = mpl_opendir("/sys/block");

	if (!d)
		return 0;
	while (!found && (de = readdir(d))) {
		int fd;

		if (strncmp(de->d_name, "loop", 4))
			continue;
		snprintf(path, sizeof(path), "/sys/block/%s/loop/backing_file", de->d_name);
		fd = mpool_fd_up(open(path, O_RDONLY | O_CLOEXEC));
		if (fd < 0)
			continue;
		n = read(fd, back, sizeof(back) - 1);
		close(fd);
		if (n <= 0)
			continue;
		back[n] = 0;
		back[strcspn(back, "\n")] = 0;
		found = !stat(back, &lst) && lst.st_dev == st->st_dev && lst.st_ino == st->st_ino;
	}
	closedir(d);
	return found;
}

/*
 * The locks of a killed process go when the kernel has ended its rings, and with
 * them the last writes in flight: that takes some tens of milliseconds, and
 * with dozens of rings on busy processors was seen to take several seconds.
 */
#define LOCK_PATIENCE_MS 30000
#define LOCK_NAP_MS 5
/* Readers that only have a look (info, list) are soon gone: a writer does not fail for them. */
#define LOCK_READER_PATIENCE_MS 2000
/* The kernel ends the locks of a block device's node a moment before its claim. */
#define CLAIM_PATIENCE_MS 200

static int is_locked(int fd, off_t byte)
{
	struct flock fl = byte_lock(byte, F_WRLCK);

	return !fcntl(fd, F_OFD_GETLK, &fl) && fl.l_type != F_UNLCK;
}

/* One that is just opening may have no lock of byte 2 yet: it will, at the next look. */
static int has_living_owner(int fd)
{
	return is_locked(fd, BYTE_LIVE);
}

/* Signals do not shorten it: the caller counts naps to know how long it waited. */
static void lock_nap(void)
{
	mpl_sleep_until(mpl_now_ns() + LOCK_NAP_MS * 1000000u);
}

static int file_lock_byte(int fd, off_t byte, short type)
{
	struct flock fl = byte_lock(byte, type);
	int i, living_ms = byte == BYTE_READERS && type == F_WRLCK ? LOCK_READER_PATIENCE_MS : 0;

	for (i = 0; fcntl(fd, F_OFD_SETLK, &fl); i++) {
		if (errno != EAGAIN && errno != EACCES)
			return -errno;
		if (i == LOCK_PATIENCE_MS / LOCK_NAP_MS ||
		    (i >= living_ms / LOCK_NAP_MS && has_living_owner(fd)))
			return -EBUSY;
		lock_nap();
	}
	return 0;
}

/*
 * Claims a block device (O_EXCL); as open(). A claim of a pool that was closed, or whose
 * process died, ends when the kernel has ended its rings, as the locks of files do.
 */
static int block_open(const char *path, int of)
{
	int i, unlocked = 0;

	for (i = 0; i < LOCK_PATIENCE_MS / LOCK_NAP_MS; i++) {
		int fd = mpool_fd_up(open(path, of)), is_alive, is_dying;

		if (fd >= 0 || errno != EBUSY)
			return fd;
		fd = mpool_fd_up(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
		is_alive = fd >= 0 && has_living_owner(fd);
		is_dying = fd >= 0 && (is_locked(fd, BYTE_WRITER) || is_locked(fd, BYTE_READERS));
		if (fd >= 0)
			close(fd);
		/* without locks it is no pool's, but mounted, say; or just now comes free */
		unlocked = is_dying ? 0 : unlocked + 1;
		if (is_alive || unlocked > CLAIM_PATIENCE_MS / LOCK_NAP_MS)
			break;
		lock_nap();
	}
	errno = EBUSY;
	return -1;
}

/* The same file or node once more, for the lock of byte 2. */
static int live_open(const char *path, const struct stat *st, int *out)
{
	struct flock fl = byte_lock(BYTE_LIVE, F_RDLCK);
	struct stat now;
	int of = O_RDONLY | O_CLOEXEC | O_NONBLOCK | (S_ISBLK(st->st_mode) ? 0 : O_NOFOLLOW);
	int fd = mpool_fd_up(open(path, of)), rc = 0;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &now))
		rc = -errno;
	else if (now.st_dev != st->st_dev || now.st_ino != st->st_ino)
		rc = -EBUSY;	/* replaced since it was opened */
	else if (fcntl(fd, F_OFD_SETLK, &fl))
		rc = -errno;
	if (rc)
		close(fd);
	else
		*out = fd;
	return rc;
}

static int file_lock(struct file_dev *fd, const char *path, const struct stat *st,
		     unsigned flags, const char **why)
{
	int rc;

	if (flags & MPL_FILE_RDONLY) {
		rc = file_lock_byte(fd->fd_fd, BYTE_READERS, F_RDLCK);
	} else {
		rc = file_lock_byte(fd->fd_fd, BYTE_WRITER, F_WRLCK);
		if (!rc)
			rc = file_lock_byte(fd->fd_fd, BYTE_READERS, F_WRLCK);
	}
	if (!rc)
		rc = live_open(path, st, &fd->fd_live);
	if (rc) {
		*why = rc == -EBUSY ? "it is open already" :
		       rc == -EMFILE || rc == -ENFILE ? strerror(-rc) : "it cannot be locked";
		return rc;
	}
	if (S_ISREG(st->st_mode) && file_has_loop(st)) {
		*why = "a loop device uses it; detach that first (losetup -d)";
		return -EBUSY;
	}
	return 0;
}

/* O_DIRECT or not is settled by trying: open flag first, then one aligned read. */
static int file_try_direct(int fd, uint64_t size)
{
	void *buf;
	ssize_t r;
	int fl = fcntl(fd, F_GETFL);

	if (fl < 0 || fcntl(fd, F_SETFL, fl | O_DIRECT))
		return 0;
	if (size < MP_BLOCK)
		return 1;
	if (posix_memalign(&buf, MP_BLOCK, MP_BLOCK)) {
		fcntl(fd, F_SETFL, fl);
		return 0;
	}
	r = pread(fd, buf, MP_BLOCK, 0);
	free(buf);
	if (r < 0 && errno == EINVAL) {
		fcntl(fd, F_SETFL, fl);
		return 0;
	}
	return 1;
}

/* Size and kind; a new file gets its size here and is made durable with its directory later. */
static int file_setup(int fd, const struct stat *st, unsigned flags, uint64_t size,
		      struct mpl_low *out, const char **why)
{
	int sector;

	memset(out, 0, sizeof(*out));
	out->lo_sector = MP_SECTOR;
	if (S_ISBLK(st->st_mode)) {
		uint64_t bytes;

		if (ioctl(fd, BLKGETSIZE64, &bytes))
			return -errno;
		if (!ioctl(fd, BLKSSZGET, &sector) && sector > 0)
			out->lo_sector = (uint32_t)sector;
		out->lo_is_block = 1;
		out->lo_vdev.size = size && size < bytes ? size : bytes;
	} else {
		if (flags & MPL_FILE_CREATE) {
			if (TEMP_FAILURE_RETRY(ftruncate(fd, (off_t)size))) {
				*why = errno == EFBIG ? "files may not be so large" :
				       errno == ENOSPC || errno == EDQUOT ? "it is full" :
				       "its size cannot be set";
				return errno == EFBIG || errno == EDQUOT ? -ENOSPC : -errno;
			}
			out->lo_vdev.is_zeroed = 1;
			out->lo_vdev.size = size;
		} else {
			out->lo_vdev.size = (uint64_t)st->st_size;
		}
	}
	out->lo_vdev.size &= ~(uint64_t)(MP_BLOCK - 1);
	if (out->lo_sector > MP_BLOCK) {
		*why = "its sectors are larger than 4096 bytes";
		return -EINVAL;
	}
	return 0;
}

static int file_open_fd(const char *path, unsigned flags, struct stat *st, const char **why)
{
	int of = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK |
		 (flags & (MPL_FILE_RDONLY | MPL_FILE_PEEK) ? O_RDONLY : O_RDWR);
	int fd, rc;

	/* a block device may be named by a link of /dev/disk; a file may not */
	if (!(flags & MPL_FILE_CREATE) && !stat(path, st) && S_ISBLK(st->st_mode)) {
		of &= ~O_NOFOLLOW;
		fd = flags & MPL_FILE_PEEK ? mpool_fd_up(open(path, of)) :
					     block_open(path, of | O_EXCL);
	} else {
		of |= flags & MPL_FILE_CREATE ? O_CREAT | O_EXCL : 0;
		fd = mpool_fd_up(open(path, of, 0600));
	}
	if (fd < 0) {
		rc = -errno;
		*why = rc == -ELOOP ? "it is a symbolic link" :
		       rc == -EBUSY ? "the device is in use (mounted, or held by another program)" :
		       strerror(errno);
		return rc;
	}
	if (fstat(fd, st) || (!S_ISREG(st->st_mode) && !S_ISBLK(st->st_mode))) {
		*why = "it is neither a file nor a block device";
		close(fd);
		return -EINVAL;
	}
	return fd;
}

int mpl_file_open(const char *path, unsigned flags, uint64_t size, struct mpl_low *out,
		  const char **why)
{
	struct file_dev *fd;
	struct stat st;
	int rc;

	*why = "";
	fd = calloc(1, sizeof(*fd));
	if (!fd)
		return -ENOMEM;
	fd->fd_live = -1;
	fd->fd_fd = file_open_fd(path, flags, &st, why);
	if (fd->fd_fd < 0) {
		rc = fd->fd_fd;
		free(fd);
		return rc;
	}
	fd->fd_is_block = S_ISBLK(st.st_mode);
	rc = flags & MPL_FILE_PEEK ? 0 : file_lock(fd, path, &st, flags, why);
	if (!rc)
		rc = file_setup(fd->fd_fd, &st, flags, size, out, why);
	if (rc) {
		if (!**why)
			*why = strerror(-rc);
		if (flags & MPL_FILE_CREATE)
			unlink(path);
		file_close(fd);
		return rc;
	}
	out->lo_is_direct = file_try_direct(fd->fd_fd, out->lo_vdev.size);
	out->lo_vdev.ops = &file_ops;
	out->lo_vdev.dev = fd;
	out->lo_vdev.fd = fd->fd_fd;
	return 0;
}
