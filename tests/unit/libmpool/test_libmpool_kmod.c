/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The kernel backend's queues without the module: an object whose descriptor is
 * in the cache already, here a file, or a pipe, which cannot be flushed. So a
 * flush that never reaches the system is seen.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "harness.h"
#include "ioq.h"
#include "kmod.h"

static struct mpl_kmod *km;
static struct mpl_kobj *ko;
static struct mpool_obj obj;
static int lost_submits;	/* calls still to come in which the ring takes nothing */
/* where what the ring was given begins, in this order */
static uint64_t given[16];
static unsigned given_n;

int io_uring_submit(struct io_uring *ring)
{
	int (*next)(struct io_uring *ring) =
		(int (*)(struct io_uring *))dlsym(RTLD_NEXT, "io_uring_submit");
	const struct io_uring_sq *sq = &ring->sq;
	unsigned i;

	if (lost_submits) {
		lost_submits--;
		return -EAGAIN;
	}
	for (i = sq->sqe_head; i != sq->sqe_tail && given_n < 16; i++)
		given[given_n++] = sq->sqes[i & sq->ring_mask].off;
	return next(ring);
}

/* the wall clock is set back by so many seconds */
static time_t set_back;

int clock_gettime(clockid_t id, struct timespec *ts)
{
	int rc = (int)syscall(SYS_clock_gettime, id, ts);

	if (id == CLOCK_REALTIME)
		ts->tv_sec -= set_back;
	return rc;
}

/* what the module says of the object, as far as it has heard of it */
static struct mpool_ioc_obj said;
/* as long as this is open nothing else can be: there is no descriptor left */
static int last_fd = -1;
/* what the next open for writing fails with */
static int open_err;

static int obj_open(const struct mpool_ioc_open *op)
{
	if (open_err && op->op_arg.ma_flags & MPOOL_IOC_OPEN_WRITE) {
		errno = open_err;
		open_err = 0;
		return -1;
	}
	if (last_fd >= 0 && fcntl(last_fd, F_GETFD) >= 0) {
		errno = EMFILE;
		return -1;
	}
	return open("/dev/null", O_RDWR | O_CLOEXEC);
}

int ioctl(int fd, unsigned long cmd, ...)
{
	struct mpool_ioc_hold *ho;
	va_list ap;

	va_start(ap, cmd);
	ho = va_arg(ap, void *);
	va_end(ap);
	if (fd == -1 && cmd == MPOOL_IOC_OPEN)
		return obj_open((struct mpool_ioc_open *)(uintptr_t)ho);
	if (fd != -1 || cmd != MPOOL_IOC_OBJ_INFO) {
		errno = EBADF;
		return -1;
	}
	ho->ho_obj = said;
	return 0;
}

/* an open pool with one object, whose descriptor is @fd */
static void rig(int fd, int is_uring)
{
	km = calloc(1, sizeof(*km));
	ko = calloc(1, sizeof(*ko));
	T_OK(km && ko && fd >= 0);
	km->km_fd = -1;
	km->km_is_uring = is_uring;
	pthread_mutex_init(&km->km_lock, NULL);
	mpl_fdcache_init(km);
	T_OK(km->km_fds_max >= 4);
	ko->ko_id = 7;
	ko->ko_kind = MPOOL_APPEND;
	ko->ko_capacity = 1 << 20;
	ko->ko_fd = fd;
	ko->ko_is_writable = 1;
	km->km_oldest = km->km_newest = ko;
	km->km_nfds = 1;
	obj.ob_pool = &km->km_pool;
	obj.ob_kobj = ko;
}

static void rig_free(void)
{
	T_EQ(ko->ko_pins, 0);
	close(mpl_fdcache_take(km, ko));
	T_EQ(km->km_nfds, 0);
	T_OK(!km->km_oldest && !km->km_newest);
	free(ko);
	free(km);
}

/* the result of one request */
static int64_t run_one(uint32_t type, struct iovec *v)
{
	struct mpool_io io = { .obj = &obj, .type = type, .iovcnt = v ? 1 : 0, .iov = v };
	struct mpool_cqe cqe = { .res = 12345 };
	struct mpool_ioq *q;

	T_EQ(mpl_kmod_ioq_open(&km->km_pool, 2, &q), 0);
	km->km_pool.mp_open++;	/* as mpool_ioq_open() does */
	T_EQ(mpool_ioq_submit(q, &io, 1), 1);
	T_EQ(mpool_ioq_reap(q, &cqe, 1, 1, -1), 1);
	mpool_ioq_close(q);
	return cqe.res;
}

static void flush_on(int is_uring)
{
	int fd[2];

	T_EQ(pipe(fd), 0);
	rig(fd[0], is_uring);
	T_EQ(run_one(MPOOL_FLUSH, NULL), -EINVAL);
	T_STREQ(mpool_error_detail()->id, "MP0418");
	T_OK(ko->ko_is_stale);
	rig_free();
	close(fd[1]);
	fd[0] = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	rig(fd[0], is_uring);
	T_EQ(run_one(MPOOL_FLUSH, NULL), 0);
	rig_free();
}

static void flushes_reach_the_system(void)
{
	flush_on(0);
	if (mpl_uring_works())
		flush_on(1);
	else
		printf("# no io_uring here\n");
}

static void transfers_use_the_cached_descriptor(void)
{
	struct iovec v = { .iov_len = 4096 };
	int is_uring;
	char *back;

	T_EQ(posix_memalign(&v.iov_base, 4096, 4096), 0);
	T_EQ(posix_memalign((void **)&back, 4096, 4096), 0);
	for (is_uring = 0; is_uring <= mpl_uring_works(); is_uring++) {
		memset(v.iov_base, 'a' + is_uring, 4096);
		rig(memfd_create("object", MFD_CLOEXEC), is_uring);
		T_EQ(run_one(MPOOL_WRITE, &v), 4096);
		T_EQ(ko->ko_length, 4096);
		T_EQ(pread(ko->ko_fd, back, 4096, 0), 4096);
		T_MEMEQ(back, v.iov_base, 4096);
		memset(back, 0, 4096);
		T_EQ(run_one(MPOOL_READ, &(struct iovec){ back, 4096 }), 4096);
		T_MEMEQ(back, v.iov_base, 4096);
		rig_free();
	}
	free(v.iov_base);
	free(back);
}

/*
 * The ring has not taken a write yet, so the module knows nothing of it, when a read of the
 * same object fails. The next write is behind that one all the same.
 */
static void a_failed_read_moves_no_end(void)
{
	struct iovec v = { .iov_len = 4096 }, back = { .iov_len = 4096 };
	struct mpool_io io = { .obj = &obj, .type = MPOOL_WRITE, .iovcnt = 1, .iov = &v };
	struct mpool_cqe cqe[2];
	struct mpool_ioq *q;

	if (!mpl_uring_works())
		return;
	T_EQ(posix_memalign(&v.iov_base, 4096, 4096), 0);
	T_EQ(posix_memalign(&back.iov_base, 4096, 4096), 0);
	memset(v.iov_base, 'x', 4096);
	rig(memfd_create("object", MFD_CLOEXEC), 1);
	memset(&said, 0, sizeof(said));
	T_EQ(mpl_kmod_ioq_open(&km->km_pool, 4, &q), 0);
	km->km_pool.mp_open++;
	lost_submits = 1;
	T_EQ(mpool_ioq_submit(q, &io, 1), 1);
	T_EQ(lost_submits, 0);
	/* an append object may be read where nothing was written: here the file ends before */
	T_EQ(mpl_kmod_rw(&obj, 65536, &back, 1, 0), -EIO);
	T_STREQ(mpool_error_detail()->id, "MP0417");
	io.off = 4096;
	T_EQ(mpool_ioq_submit(q, &io, 1), 1);
	T_EQ(mpool_ioq_reap(q, cqe, 2, 2, -1), 2);
	T_EQ(cqe[0].res, 4096);
	T_EQ(cqe[1].res, 4096);
	T_EQ(ko->ko_length, 8192);
	mpool_ioq_close(q);
	/* but what is news is believed: another process has sealed it */
	said.ob_flags = MPOOL_OBJ_SEALED;
	said.ob_length = 4096;
	T_EQ(mpl_kmod_rw(&obj, 65536, &back, 1, 0), -EIO);
	T_EQ(mpl_kmod_rw(&obj, 65536, &back, 1, 0), -EINVAL);
	T_EQ(mpl_kmod_rw(&obj, 0, &back, 1, 0), 0);
	rig_free();
	free(v.iov_base);
	free(back.iov_base);
}

/*
 * The module takes a write at the end of the object only. What one system call does not
 * transfer is given to the ring before the write behind it all the same.
 */
static void a_large_write_goes_before_the_next(void)
{
	const uint64_t large = 5ull << 29;
	struct iovec v[2] = { { .iov_len = large }, { .iov_len = 4096 } };
	struct mpool_io io[2] = {
		{ .obj = &obj, .type = MPOOL_WRITE, .iovcnt = 1, .iov = v, .cookie = 1 },
		{ .obj = &obj, .type = MPOOL_WRITE, .iovcnt = 1, .iov = v + 1, .off = large },
	};
	struct mpool_cqe cqe[2];
	struct mpool_ioq *q;
	unsigned i;

	if (!mpl_uring_works() || sizeof(size_t) < 8)
		return;
	/* it is not looked at: the object takes everything */
	v[0].iov_base = mmap(NULL, large + 4096, PROT_READ,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	T_OK(v[0].iov_base != MAP_FAILED);
	v[1].iov_base = (char *)v[0].iov_base + large;
	rig(open("/dev/null", O_RDWR | O_CLOEXEC), 1);
	ko->ko_capacity = large + 4096;
	T_EQ(mpl_kmod_ioq_open(&km->km_pool, 4, &q), 0);
	km->km_pool.mp_open++;
	given_n = 0;
	T_EQ(mpool_ioq_submit(q, io, 2), 2);
	T_EQ(mpool_ioq_reap(q, cqe, 2, 2, -1), 2);
	for (i = 0; i < 2; i++)
		T_EQ(cqe[i].res, cqe[i].cookie ? (int64_t)large : 4096);
	T_OK(given_n > 2);
	for (i = 1; i < given_n; i++)
		T_OK(given[i] > given[i - 1]);
	T_EQ(given[given_n - 1], large);
	T_EQ(ko->ko_length, large + 4096);
	mpool_ioq_close(q);
	rig_free();
	munmap(v[0].iov_base, large + 4096);
}

/* A lent descriptor and pinned ones stay; the least recently used of the others goes first. */
static void pins_count(void)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	rig(fd, 0);
	T_EQ(mpl_fdcache_pin(km, ko, 0, 1), fd);
	T_EQ(mpl_fdcache_pin(km, ko, 1, 1), fd);
	T_EQ(ko->ko_pins, 2);
	mpl_fdcache_unpin(km, (struct mpl_kobj *[]){ ko, ko }, 2);
	ko->ko_is_writable = 0;
	T_EQ(mpl_fdcache_pin(km, ko, 0, 1), fd);
	/* it cannot be exchanged for one that writes while it is in use */
	T_EQ(mpl_fdcache_pin(km, ko, 1, 1), -EINVAL);
	mpl_fdcache_unpin(km, &ko, 1);
	rig_free();
}

static void *unpin_soon(void *arg)
{
	usleep(200000);
	mpl_fdcache_unpin(km, (struct mpl_kobj **)arg, 1);
	return NULL;
}

/* The only descriptor comes free in a moment: that is waited for, whatever the time is set to. */
static void a_pin_is_waited_for(void)
{
	struct mpl_kobj other = { .ko_id = 8, .ko_kind = MPOOL_APPEND, .ko_fd = -1 };
	struct mpl_kobj *one = &other;
	pthread_t t;

	rig(open("/dev/null", O_RDWR | O_CLOEXEC), 0);
	last_fd = ko->ko_fd;
	T_EQ(mpl_fdcache_pin(km, ko, 0, 1), last_fd);
	set_back = 3600;
	T_EQ(pthread_create(&t, NULL, unpin_soon, &ko), 0);
	T_OK(mpl_fdcache_pin(km, one, 0, 1) >= 0);
	pthread_join(t, NULL);
	set_back = 0;
	last_fd = -1;
	T_EQ(ko->ko_fd, -1);
	mpl_fdcache_unpin(km, &one, 1);
	close(mpl_fdcache_take(km, one));
	T_EQ(mpl_fdcache_pin(km, ko, 0, 1) < 0, 0);
	mpl_fdcache_unpin(km, &ko, 1);
	rig_free();
}

/* for reading only is opened what cannot be written, and nothing for any other reason */
static void what_may_grow_is_open_for_writing(void)
{
	struct mpl_kobj other = { .ko_id = 8, .ko_kind = MPOOL_APPEND, .ko_fd = -1 };
	struct mpl_kobj *one = &other;

	rig(open("/dev/null", O_RDWR | O_CLOEXEC), 0);
	open_err = ENOMEM;
	T_EQ(mpl_fdcache_pin(km, one, 0, 1), -ENOMEM);
	T_OK(mpl_fdcache_pin(km, one, 0, 1) >= 0);
	T_OK(mpl_fdcache_pin(km, one, 1, 1) >= 0);
	mpl_fdcache_unpin(km, (struct mpl_kobj *[]){ one, one }, 2);
	close(mpl_fdcache_take(km, one));
	/* another process has sealed it */
	open_err = EROFS;
	T_OK(mpl_fdcache_pin(km, one, 0, 1) >= 0);
	T_EQ(mpl_fdcache_pin(km, one, 1, 1), -EINVAL);
	mpl_fdcache_unpin(km, &one, 1);
	close(mpl_fdcache_take(km, one));
	rig_free();
}

/*
 * A wait for the end hands over what the ring had not taken before. Then the pins have
 * ended too: the object may be closed, and with it goes what the queue would unpin later.
 */
static void pins_end_with_what_a_wait_hands_over(void)
{
	struct mpool_io io = { .obj = &obj, .type = MPOOL_FLUSH };
	int64_t timeout_ns[] = { -1, 10000000000 };
	struct mpool_cqe cqe[2];
	struct mpool_ioq *q;
	unsigned i;

	for (i = 0; i < 2 && mpl_uring_works(); i++) {
		rig(open("/proc/self/exe", O_RDONLY | O_CLOEXEC), 1);
		T_EQ(mpl_kmod_ioq_open(&km->km_pool, 2, &q), 0);
		km->km_pool.mp_open++;
		/* with nothing in flight to make room the queue would do without the ring */
		T_EQ(mpool_ioq_submit(q, &io, 1), 1);
		lost_submits = 1;
		T_EQ(mpool_ioq_submit(q, &io, 1), 1);
		T_EQ(lost_submits, 0);
		T_OK(ko->ko_pins >= 1);
		T_EQ(mpool_ioq_reap(q, cqe, 2, 2, timeout_ns[i]), 2);
		T_EQ(cqe[0].res, 0);
		T_EQ(cqe[1].res, 0);
		T_EQ(ko->ko_pins, 0);
		mpool_ioq_close(q);
		rig_free();
	}
}

int main(void)
{
	T_RUN(flushes_reach_the_system);
	T_RUN(transfers_use_the_cached_descriptor);
	T_RUN(a_failed_read_moves_no_end);
	T_RUN(a_large_write_goes_before_the_next);
	T_RUN(pins_count);
	T_RUN(a_pin_is_waited_for);
	T_RUN(what_may_grow_is_open_for_writing);
	T_RUN(pins_end_with_what_a_wait_hands_over);
	return t_done();
}
