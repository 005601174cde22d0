/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The flush owner and the file device: one flush serves all waiters, no flush
 * is skipped that a caller needs, a failure is sticky and told to the pool
 * before any waiter, and what is called a flush reaches fdatasync. The calls of
 * libc are counted by defining them here, in the statically linked program.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "device.h"
#include "harness.h"
#include "poolcfg.h"

static int fdatasyncs, dsyncs, dir_syncs, file_syncs;
/* bytes that a transfer of a file moves at most, every other one is interrupted; 0 = as it is */
static size_t transfer_most;
static int transfers;

int fsync(int fd)
{
	struct stat st;

	if (!fstat(fd, &st))
		__atomic_fetch_add(S_ISDIR(st.st_mode) ? &dir_syncs : &file_syncs, 1,
				   __ATOMIC_RELAXED);
	return (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
	__atomic_fetch_add(&fdatasyncs, 1, __ATOMIC_RELAXED);
	return (int)syscall(SYS_fdatasync, fd);
}

static int is_interrupted(void)
{
	errno = EINTR;
	return transfers++ % 2;
}

static size_t part(const struct iovec *iov)
{
	return iov->iov_len < transfer_most ? iov->iov_len : transfer_most;
}

ssize_t pwritev2(int fd, const struct iovec *iov, int n, off_t off, int flags)
{
	if (flags & RWF_DSYNC)
		__atomic_fetch_add(&dsyncs, 1, __ATOMIC_RELAXED);
	if (transfer_most && is_interrupted())
		return -1;
	if (transfer_most)
		return pwrite(fd, iov->iov_base, part(iov), off);
	return pwritev(fd, iov, n, off);
}

ssize_t preadv(int fd, const struct iovec *iov, int n, off_t off)
{
	if (transfer_most && is_interrupted())
		return -1;
	if (transfer_most)
		return pread(fd, iov->iov_base, part(iov), off);
	return syscall(SYS_preadv, fd, iov, n, off, 0);
}

/* ---- a device that counts ---- */

struct fake {
	int flushes, begun_with, written, err;
	useconds_t flush_us;
};

static int fake_write(void *dev, uint64_t off, const struct iovec *iov, unsigned n, int is_fua,
		      uint64_t *ready_ns)
{
	struct fake *f = dev;

	(void)off;
	(void)iov;
	(void)n;
	(void)is_fua;
	if (ready_ns)
		*ready_ns = 0;
	__atomic_fetch_add(&f->written, 1, __ATOMIC_SEQ_CST);
	return 0;
}

static int fake_flush(void *dev, uint64_t *ready_ns)
{
	struct fake *f = dev;

	if (ready_ns)
		*ready_ns = 0;
	__atomic_store_n(&f->begun_with, __atomic_load_n(&f->written, __ATOMIC_SEQ_CST),
			 __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&f->flushes, 1, __ATOMIC_SEQ_CST);
	if (f->flush_us)
		usleep(f->flush_us);
	return f->err;
}

static const struct mpool_vdev_ops fake_ops = { .writev = fake_write, .flush = fake_flush };

static void fake_init(struct mpl_dev *dev, struct fake *f)
{
	struct mpl_low low = {
		.lo_vdev = { .ops = &fake_ops, .dev = f, .size = MP_BLOCK, .fd = -1 },
	};

	memset(f, 0, sizeof(*f));
	mpl_dev_init(dev, &low, "fake", 0, 0);
}

static void write_one(struct mpl_dev *dev)
{
	struct iovec v = { .iov_len = MP_BLOCK };

	mpl_dev_writev(dev, 0, &v, 1, 0, NULL);
}

static void clean_device_is_not_flushed_again(void)
{
	struct mpl_dev dev;
	struct fake f;

	fake_init(&dev, &f);
	T_EQ(mpl_dev_flush(&dev), 0);
	T_EQ(f.flushes, 1); /* what an earlier process left is unknown */
	T_EQ(mpl_dev_flush(&dev), 0);
	T_EQ(f.flushes, 1);
	write_one(&dev);
	T_EQ(mpl_dev_flush(&dev), 0);
	T_EQ(f.flushes, 2);
	mpl_dev_fini(&dev);
}

static struct mpl_dev shared;
static struct fake shared_fake;
static int missed, told, late;

static void *writer(void *arg)
{
	int i, before;

	(void)arg;
	for (i = 0; i < 200; i++) {
		write_one(&shared);
		before = __atomic_load_n(&shared_fake.written, __ATOMIC_SEQ_CST);
		if (mpl_dev_flush(&shared))
			__atomic_fetch_add(&missed, 1, __ATOMIC_SEQ_CST);
		/* the flush that served us began after our write */
		if (__atomic_load_n(&shared_fake.begun_with, __ATOMIC_SEQ_CST) < before)
			__atomic_fetch_add(&missed, 1, __ATOMIC_SEQ_CST);
	}
	return NULL;
}

static void waiters_share_flushes_and_none_is_too_early(void)
{
	pthread_t t[8];
	int i;

	fake_init(&shared, &shared_fake);
	shared_fake.flush_us = 100;
	missed = 0;
	for (i = 0; i < 8; i++)
		pthread_create(&t[i], NULL, writer, NULL);
	for (i = 0; i < 8; i++)
		pthread_join(t[i], NULL);
	T_EQ(missed, 0);
	printf("# %d flushes for 1600 callers\n", shared_fake.flushes);
	T_OK(shared_fake.flushes < 1200);
	mpl_dev_fini(&shared);
}

static void on_fail(void *arg, struct mpl_dev *dev, int err)
{
	(void)arg;
	(void)dev;
	usleep(2000);
	__atomic_store_n(&told, err, __ATOMIC_SEQ_CST);
}

static void *waiter(void *arg)
{
	(void)arg;
	if (mpl_dev_flush(&shared) && !__atomic_load_n(&told, __ATOMIC_SEQ_CST))
		__atomic_fetch_add(&late, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static void pool_learns_of_a_failure_before_any_waiter(void)
{
	pthread_t t[8];
	int i;

	fake_init(&shared, &shared_fake);
	shared.md_fail = on_fail;
	shared_fake.flush_us = 1000;
	shared_fake.err = -EIO;
	told = late = 0;
	for (i = 0; i < 8; i++)
		pthread_create(&t[i], NULL, waiter, NULL);
	for (i = 0; i < 8; i++)
		pthread_join(t[i], NULL);
	T_EQ(late, 0);
	T_EQ(told, -EIO);
	T_EQ(shared_fake.flushes, 1); /* never tried again */
	shared_fake.err = 0;
	T_EQ(mpl_dev_flush(&shared), -EIO);
	T_EQ(shared_fake.flushes, 1);
	mpl_dev_fini(&shared);
}

/* ---- files ---- */

static char path[300];

static void file_flush_is_fdatasync_and_fua_is_dsync(void)
{
	struct mpl_low low;
	struct mpl_dev dev;
	struct iovec v = { .iov_len = MP_BLOCK };
	const char *why;

	T_EQ(mpl_file_open(path, MPL_FILE_CREATE, 1 << 20, &low, &why), 0);
	T_EQ(posix_memalign(&v.iov_base, MP_BLOCK, MP_BLOCK), 0);
	memset(v.iov_base, 7, MP_BLOCK);
	mpl_dev_init(&dev, &low, path, 0, 0);
	T_EQ(mpl_dev_writev(&dev, 0, &v, 1, 0, NULL), 0);
	fdatasyncs = 0;
	T_EQ(mpl_dev_flush(&dev), 0);
	T_EQ(fdatasyncs, 1);
	T_EQ(dsyncs, 0);
	T_EQ(mpl_dev_writev(&dev, 4096, &v, 1, 1, NULL), 0);
	T_EQ(dsyncs, 1);
	T_EQ(dev.md_write_bytes, 8192);
	T_EQ(dev.md_writes, 2);
	mpl_dev_fini(&dev);
	unlink(path);
	free(v.iov_base);
}

/* What a call did not move is moved by the next; what is not there at all is an error. */
static void short_and_interrupted_transfers_go_on(void)
{
	uint8_t out[3 * MP_BLOCK], in[3 * MP_BLOCK] = { 0 };
	struct iovec w[3], r[3];
	unsigned i;
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	T_OK(fd >= 0);
	for (i = 0; i < sizeof(out); i++)
		out[i] = (uint8_t)(i * 7 + i / 251);
	for (i = 0; i < 3; i++) {
		w[i] = (struct iovec){ out + i * MP_BLOCK, MP_BLOCK };
		r[i] = (struct iovec){ in + i * MP_BLOCK, MP_BLOCK };
	}
	transfer_most = 1000;
	transfers = 0;
	T_EQ(mpl_fd_rw(fd, MP_BLOCK, w, 3, 1, 0), 0);
	T_OK(transfers > 15);
	T_EQ(mpl_fd_rw(fd, MP_BLOCK, r, 3, 0, 0), 0);
	T_MEMEQ(out, in, sizeof(in));
	T_EQ(mpl_fd_rw(fd, 2 * MP_BLOCK, r, 3, 0, 0), -EIO);
	transfer_most = 0;
	T_EQ(mpl_fd_rw(fd, MP_BLOCK, r, 3, 0, 0), 0);
	T_MEMEQ(out, in, sizeof(in));
	close(fd);
	unlink(path);
}

static void pool_json_is_made_durable_with_its_directory(void)
{
	struct mpl_cfg *cf = mpl_cfg_new(1), *back;

	T_EQ(mkdir(path, 0700), 0);
	strcpy(cf->cf_dev[0].cd_path, "capacity.mp");
	strcpy(cf->cf_name, "p");
	file_syncs = dir_syncs = 0;
	T_EQ(mpl_cfg_store(path, NULL, cf), 0);
	T_EQ(file_syncs, 1);
	T_EQ(dir_syncs, 1);
	mpl_cfg_free(cf);
	T_EQ(mpl_cfg_load(path, NULL, &back), 0);
	T_STREQ(back->cf_dev[0].cd_path, "capacity.mp");
	mpl_cfg_free(back);
	T_EQ(mpl_cfg_remove(path, NULL), 0);
	T_EQ(dir_syncs, 2);
	T_EQ(rmdir(path), 0);
}

static void wiped_signature_is_gone_durably(void)
{
	unsigned char b[512] = { 0 }, c[512];
	struct mpl_ident id;
	char what[160] = "", other[320];
	int fd = open(path, O_CREAT | O_RDWR | O_EXCL, 0600);

	b[446] = 0x80; /* one MBR partition */
	b[450] = 0x83;
	b[454] = b[459] = 1;
	b[510] = 0x55;
	b[511] = 0xaa;
	T_EQ(ftruncate(fd, 16 << 20), 0);
	T_EQ(pwrite(fd, b, 512, 0), 512);
	T_EQ(mpl_sigcheck(path, what, sizeof(what), &id), -EPERM);
	T_OK(strstr(what, "dos"));
	file_syncs = 0;
	T_EQ(mpl_sigwipe(path, 0, &id), 0);
	T_OK(file_syncs >= 1);
	T_EQ(mpl_sigcheck(path, what, sizeof(what), &id), 0);
	/* another that came to stand there meanwhile is left alone */
	T_EQ(pwrite(fd, b, 512, 0), 512);
	T_EQ(mpl_sigcheck(path, what, sizeof(what), &id), -EPERM);
	snprintf(other, sizeof(other), "%s.other", path);
	T_EQ(rename(path, other), 0);
	T_EQ(close(fd), 0);
	fd = open(path, O_CREAT | O_RDWR | O_EXCL, 0600);
	T_EQ(ftruncate(fd, 16 << 20), 0);
	T_EQ(pwrite(fd, b, 512, 0), 512);
	T_EQ(mpl_sigwipe(path, 0, &id), -ESTALE);
	T_EQ(pread(fd, c, 512, 0), 512);
	T_MEMEQ(b, c, 512);
	close(fd);
	unlink(path);
	unlink(other);
}

static void layers_pass_flushes_on(void)
{
	static const char *const spec[] = {
		"all:lat=1us", "all:fail=read,after=99", "all:volatile",
	};
	struct mpl_power *pw = NULL;
	struct mpool_vdev vd;
	struct fake f;
	unsigned i;

	for (i = 0; i < 3; i++) {
		memset(&f, 0, sizeof(f));
		vd = (struct mpool_vdev){ .ops = &fake_ops, .dev = &f, .size = 1 << 20, .fd = -1 };
		T_EQ(mpl_layer_push(&vd, spec[i], 0, &pw), 0);
		T_EQ(vd.ops->flush(vd.dev, NULL), 0);
		T_EQ(f.flushes, 1);
		vd.ops->close(vd.dev);
	}
	mpl_power_free(pw);
}

int main(void)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(path, sizeof(path), "%s/mpool-flush-%d", tmp && *tmp ? tmp : "/tmp",
		 (int)getpid());
	T_RUN(clean_device_is_not_flushed_again);
	T_RUN(waiters_share_flushes_and_none_is_too_early);
	T_RUN(pool_learns_of_a_failure_before_any_waiter);
	T_RUN(file_flush_is_fdatasync_and_fua_is_dsync);
	T_RUN(short_and_interrupted_transfers_go_on);
	T_RUN(pool_json_is_made_durable_with_its_directory);
	T_RUN(wiped_signature_is_gone_durably);
	T_RUN(layers_pass_flushes_on);
	return t_done();
}
