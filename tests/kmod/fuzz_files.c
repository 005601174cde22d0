// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The fuzzer's system calls on objects' descriptors: data, maps, splice, attributes, and
 * all that must never work.
 */
#include "fuzz_files.h"

#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "harness.h"
#include "ioc_world.h"

#define BUF	(64u << 10)
#define NMAPS	16
#define MAP_PAGES	20u		/* the longest */
#define SLOT	(32u * GEN_PAGE)	/* a map, and what a call may reach behind it */

/*
 * Maps of objects, each in a slot that nothing else of this process ever gets: others use them
 * while one is replaced or forgotten, and read into them beyond their end. Elsewhere that would
 * be a stack by then, or a ring of io_uring.
 */
static struct {
	uint8_t *p;
	_Atomic size_t len[NMAPS];
} maps;

static __thread sigjmp_buf fault_env;
static __thread volatile sig_atomic_t fault_expected;

/* An unexpected one says where it happened: it may never come again. */
static void on_fault(int sig, siginfo_t *si, void *context)
{
	void *frame[32];
	char text[80];
	int n;

	(void)context;
	if (fault_expected)
		siglongjmp(fault_env, 1);
	n = snprintf(text, sizeof(text), "# signal %d, code %d, at %p\n", sig, si->si_code,
		     si->si_addr);
	if (write(STDOUT_FILENO, text, (size_t)n) == n)
		backtrace_symbols_fd(frame, backtrace(frame, 32), STDOUT_FILENO);
	signal(sig, SIG_DFL);
	raise(sig);
}

static void faults_init(void)
{
	struct sigaction sa = { .sa_sigaction = on_fault, .sa_flags = SA_NODEFER | SA_SIGINFO };
	void *frame[1];

	backtrace(frame, 1);	/* what it needs is loaded now, not in the handler */

	sigaction(SIGBUS, &sa, NULL);
	sigaction(SIGSEGV, &sa, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
}

static void touch(const uint8_t *p, size_t len)
{
	static volatile uint8_t sink;
	size_t i;

	fault_expected = 1;
	if (!sigsetjmp(fault_env, 1))
		for (i = 0; i < len; i += GEN_PAGE)
			sink += p[i];
	fault_expected = 0;
}

static void try_write(uint8_t *p)
{
	fault_expected = 1;
	if (!sigsetjmp(fault_env, 1))
		*(volatile uint8_t *)p = 0xdd;
	fault_expected = 0;
}

/* memory that is not there, in place of what is at @p */
static void *nothing_at(uint8_t *p, size_t len)
{
	return mmap(p, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
		    (p ? MAP_FIXED : 0), -1, 0);
}

static void maps_init(void)
{
	maps.p = nothing_at(NULL, (NMAPS + 1) * SLOT);
	if (maps.p == MAP_FAILED)
		abort();
}

static uint8_t *map_any(uint64_t *rng, size_t *len)
{
	unsigned int i = t_rand(rng) % NMAPS;

	*len = maps.len[i];
	return *len ? maps.p + i * SLOT : NULL;
}

/* must not work, on any object */
static void never(const struct fd_pick *p, int rc, const char *what)
{
	if (rc >= 0 && p->fp_is_stable)
		finding("%s of an object succeeded", what);
}

/* must not work on an object that is open for reading */
static void never_if_ro(const struct fd_pick *p, ssize_t rc, const char *what)
{
	if (rc > 0 && p->fp_is_stable && p->fp_kind == FD_OBJ_RO)
		finding("%s of an object that is open for reading succeeded", what);
}

void files_end(void)
{
	unsigned int i;

	for (i = 0; i < NMAPS; i++)
		maps.len[i] = 0;
	if (maps.p)
		nothing_at(maps.p, NMAPS * SLOT);
}

static void do_map(uint64_t *rng, const struct fd_pick *p)
{
	uint64_t r = t_rand(rng);
	int prot = r & 1 ? PROT_READ : PROT_READ | PROT_WRITE;
	int flags = r & 2 ? MAP_SHARED : MAP_PRIVATE;
	size_t len = GEN_PAGE * (1 + (r >> 8) % MAP_PAGES);
	unsigned int i = t_rand(rng) % NMAPS;
	uint8_t *m, *to = maps.p + i * SLOT;

	m = mmap(NULL, len, prot, flags | (r & 4 ? MAP_POPULATE : 0), p->fp_fd,
		 (off_t)((r >> 16) % 8 ? 0 : gen_boundary(rng, 8) & ~(uint64_t)(GEN_PAGE - 1)));
	if (m == MAP_FAILED)
		return;
	if ((prot & PROT_WRITE) && flags == MAP_SHARED)
		never(p, 0, "a shared writable map");
	touch(m, len);
	if (prot & PROT_WRITE)
		try_write(m);
	else if (flags == MAP_SHARED && mprotect(m, len, PROT_READ | PROT_WRITE) == 0)
		never(p, 0, "making a shared map writable");
	/* no other thread knows @m: what it leaves is free, the slot is not for a moment */
	if (mremap(m, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED)
		munmap(m, len);
	else
		maps.len[i] = len;
}

static void use_map(uint64_t *rng)
{
	static const int advice[] = {
		MADV_DONTNEED, MADV_WILLNEED, MADV_REMOVE, MADV_FREE, MADV_SEQUENTIAL, MADV_COLD,
		MADV_PAGEOUT, MADV_POPULATE_READ, MADV_POPULATE_WRITE,
	};
	size_t len;
	unsigned int r = t_rand(rng) % 8;
	uint8_t *m = map_any(rng, &len);

	if (!m)
		return;
	switch (r) {
	case 0:
		nothing_at(m, len);
		break;
	case 1:
	case 2:
		madvise(m, len, advice[t_rand(rng) % (sizeof(advice) / sizeof(advice[0]))]);
		break;
	case 3:
		msync(m, len, MS_SYNC | MS_INVALIDATE);
		break;
	case 4:
		mlock(m, len);
		munlock(m, len);
		break;
	default:
		touch(m, len);
		break;
	}
}

/* offset and length: often as they should be, sometimes anything */
static void range(uint64_t *rng, off_t *off, size_t *len)
{
	uint64_t r = t_rand(rng);

	*len = GEN_PAGE * (1 + r % 8);
	*off = (off_t)(GEN_PAGE * ((r >> 8) % 8));
	if ((r >> 16) % 8 == 0)
		*off = (off_t)gen_boundary(rng, 8);
	if ((r >> 20) % 8 == 0)
		*len = gen_boundary(rng, 2);
	if ((r >> 24) % 8 == 0)
		*off += (off_t)(r >> 32) % 512;
}

static uint8_t *buffer(uint64_t *rng)
{
	static __thread uint8_t *own;
	uint64_t r = t_rand(rng);
	size_t len;
	uint8_t *m;

	if (!own && posix_memalign((void **)&own, GEN_PAGE, BUF + GEN_PAGE))
		abort();
	if (r % 16 == 0)
		return world_slow();
	if (r % 16 == 1 && (m = map_any(rng, &len)))
		return m;
	if (r % 16 == 2)
		return own + 1 + (r >> 8) % 600;
	return own;
}

static void do_io(uint64_t *rng, const struct fd_pick *p)
{
	uint64_t r = t_rand(rng);
	struct iovec iov[5];
	unsigned int i, n = 1 + (unsigned int)(r >> 40) % 5;
	size_t len;
	off_t off;

	range(rng, &off, &len);
	for (i = 0; i < n; i++) {
		iov[i].iov_base = buffer(rng);
		iov[i].iov_len = i ? GEN_PAGE * ((r >> (44 + i)) % 3) : len;
	}
	switch (r % 6) {
	case 0:
		if (pread(p->fp_fd, iov[0].iov_base, len, off) < 0 && errno == EIO)
			finding("a read gave EIO: nobody injected a device error");
		break;
	case 1:
		if (preadv2(p->fp_fd, iov, (int)n, off, r & 256 ? RWF_NOWAIT : 0) < 0)
			break;
		break;
	case 2:
	case 3:
		never_if_ro(p, pwrite(p->fp_fd, iov[0].iov_base, len, off), "pwrite");
		break;
	case 4:
		never_if_ro(p, pwritev2(p->fp_fd, iov, (int)n, off, r & 256 ? RWF_NOWAIT :
					r & 512 ? RWF_DSYNC : r & 1024 ? RWF_APPEND : 0),
			    "pwritev2");
		break;
	default:
		lseek(p->fp_fd, off, (int)(r >> 16) % 5);
		never_if_ro(p, write(p->fp_fd, iov[0].iov_base, len), "write");
		break;
	}
}

static void do_splice(uint64_t *rng, const struct fd_pick *p)
{
	static __thread int pipefd[2];
	uint64_t r = t_rand(rng);
	struct fd_pick q;
	char sink[GEN_PAGE];
	size_t len;
	off_t off;

	if (!pipefd[1] && pipe2(pipefd, O_NONBLOCK | O_CLOEXEC))
		return;
	range(rng, &off, &len);
	q = world_fd(rng, FD_OBJ);
	switch (r % 4) {
	case 0:
		splice(p->fp_fd, &off, pipefd[1], NULL, len, SPLICE_F_NONBLOCK);
		break;
	case 1:
		never_if_ro(p, splice(pipefd[0], NULL, p->fp_fd, &off, len, SPLICE_F_NONBLOCK),
			    "splice into");
		break;
	case 2:
		sendfile(pipefd[1], p->fp_fd, &off, len);
		break;
	default:
		copy_file_range(q.fp_fd, &off, p->fp_fd, NULL, len, 0);
		break;
	}
	while (t_rand(rng) & 1 && read(pipefd[0], sink, sizeof(sink)) > 0)
		;
}

static void do_change(uint64_t *rng, const struct fd_pick *p)
{
	static const int modes[] = {
		0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | 1, 8, 16, 32, 64,
	};
	uint64_t r = t_rand(rng);
	char path[64];
	int flags = FS_IMMUTABLE_FL;

	/* another file may have this number by now: that one is not to be changed */
	if (!p->fp_is_stable)
		return;
	switch (r % 8) {
	case 0:
		never(p, ftruncate(p->fp_fd, (off_t)gen_boundary(rng, 8)), "ftruncate");
		break;
	case 1:
		never(p, fallocate(p->fp_fd, modes[(r >> 8) % 7], 0, GEN_PAGE), "fallocate");
		break;
	case 2:
		never(p, fchmod(p->fp_fd, 0777), "fchmod");
		break;
	case 3:
		never(p, fchown(p->fp_fd, 12345, 12345), "fchown");
		break;
	case 4:
		never(p, fsetxattr(p->fp_fd, r & 256 ? "user.x" : "trusted.x", "y", 1, 0),
		      "fsetxattr");
		break;
	case 5:
		never(p, ioctl(p->fp_fd, FS_IOC_SETFLAGS, &flags), "FS_IOC_SETFLAGS");
		break;
	case 6:
		snprintf(path, sizeof(path), "/proc/self/fd/%d", p->fp_fd);
		never(p, mount(path, "/tmp", NULL, MS_BIND, NULL), "a bind mount");
		break;
	default:
		snprintf(path, sizeof(path), "/proc/self/fd/%d", p->fp_fd);
		never(p, linkat(AT_FDCWD, path, AT_FDCWD, "/tmp/link", AT_SYMLINK_FOLLOW), "link");
		break;
	}
}

static void do_control(uint64_t *rng, const struct fd_pick *p)
{
	static const unsigned long cmds[] = {
		FIGETBSZ, FIBMAP, FS_IOC_GETFLAGS, FS_IOC_FIEMAP, FICLONE, FIFREEZE, FITHAW, FITRIM,
		BLKGETSIZE64, BLKDISCARD, BLKFLSBUF, BLKROSET, 0x541b /* FIONREAD */,
	};
	uint64_t r = t_rand(rng), words[32] = { 0, ~0ull, 4096 };
	struct flock fl = { .l_type = F_WRLCK };
	char path[64];
	struct stat st;
	int fd;

	switch (r % 12) {
	case 0:
	case 1:
		ioctl(p->fp_fd, cmds[(r >> 8) % (sizeof(cmds) / sizeof(cmds[0]))], words);
		break;
	case 2:
		fcntl(p->fp_fd, F_SETFL, r & 256 ? O_DIRECT : r & 512 ? 0 : O_APPEND | O_DIRECT);
		break;
	case 3:
		fcntl(p->fp_fd, F_SETLEASE, r & 256 ? F_RDLCK : F_UNLCK);
		break;
	case 4:
		fcntl(p->fp_fd, r & 256 ? F_OFD_SETLK : F_SETLK, &fl);
		flock(p->fp_fd, LOCK_EX | LOCK_NB);
		flock(p->fp_fd, LOCK_UN);
		break;
	case 5:
		fcntl(p->fp_fd, F_ADD_SEALS, F_SEAL_WRITE);
		fcntl(p->fp_fd, F_SETPIPE_SZ, GEN_PAGE);
		break;
	case 6:
		if (r & 256 ? fsync(p->fp_fd) : fdatasync(p->fp_fd))
			break;
		break;
	case 7:
		posix_fadvise(p->fp_fd, 0, (off_t)(r >> 9) % BUF, (int)(r >> 40) % 6);
		readahead(p->fp_fd, 0, BUF);
		break;
	case 8:
		fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
		snprintf(path, sizeof(path), "/proc/self/fd/%d", p->fp_fd);
		if (fd >= 0) {
			inotify_add_watch(fd, path, IN_ALL_EVENTS);
			close(fd);
		}
		break;
	case 9:
		fd = dup(p->fp_fd);
		/* of what kind, only an owner of the number could say */
		if (fd >= 0)
			world_fd_add(fd, p->fp_kind);
		break;
	case 10:
		if (fstat(p->fp_fd, &st) == 0 && p->fp_is_stable && (st.st_mode & 0111))
			finding("an object's mode is %o", st.st_mode);
		futimens(p->fp_fd, NULL);
		break;
	default:
		sync_file_range(p->fp_fd, 0, BUF, (unsigned int)(r >> 8) & 7);
		syncfs(p->fp_fd);
		break;
	}
}

static void init(void)
{
	faults_init();
	maps_init();
}

void files_one(uint64_t *rng, const char *volatile *doing)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct fd_pick p;
	unsigned int r = t_rand(rng) % 100;

	pthread_once(&once, init);
	p = world_fd(rng, r % 4 ? FD_OBJ : FD_OBJ_RO);
	if (p.fp_fd < 0)
		return;
	if (r < 45) {
		*doing = "reading and writing of an object";
		do_io(rng, &p);
	} else if (r < 55) {
		*doing = "mmap of an object";
		do_map(rng, &p);
	} else if (r < 65) {
		*doing = "use of a map";
		use_map(rng);
	} else if (r < 75) {
		*doing = "splice of an object";
		do_splice(rng, &p);
	} else if (r < 83) {
		*doing = "change of an object";
		do_change(rng, &p);
	} else {
		*doing = "control of an object";
		do_control(rng, &p);
	}
}

void files_reopen(uint64_t *rng, bool is_poor)
{
	static const enum fd_kind kinds[] = { FD_OBJ, FD_OBJ_RO, FD_POOL, FD_POOL_RO, FD_CANARY };
	static const int flags[] = {
		O_RDONLY, O_RDWR, O_WRONLY, O_RDWR | O_TRUNC, O_RDWR | O_APPEND, O_RDWR | O_DIRECT,
		O_RDONLY | O_DIRECT, O_PATH, O_RDONLY | O_NONBLOCK,
	};
	uint64_t r = t_rand(rng);
	enum fd_kind kind = kinds[r % 5];
	int how = flags[(r >> 8) % 9], fd;
	struct fd_pick p = world_fd(rng, kind);
	char path[64];

	/* root may write the canary, and therefore does not try */
	if (kind == FD_CANARY && !is_poor)
		how = O_RDONLY;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", p.fp_fd);
	fd = open(path, how | O_CLOEXEC);
	if (fd < 0)
		return;
	if (is_poor && p.fp_is_stable && (kind == FD_CANARY || kind == FD_OBJ_RO) &&
	    (how & O_ACCMODE) != O_RDONLY)
		finding("a descriptor for reading was opened again for writing");
	if (how & O_PATH)
		kind = FD_JUNK;
	else if ((how & O_ACCMODE) == O_RDONLY)
		kind = kind == FD_POOL ? FD_POOL_RO : kind == FD_OBJ ? FD_OBJ_RO : kind;
	else
		kind = kind == FD_POOL_RO ? FD_POOL : kind == FD_OBJ_RO ? FD_OBJ : kind;
	world_fd_add(fd, kind);
}
