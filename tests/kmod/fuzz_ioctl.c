// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Abuses the module's interface: random calls (ioc_gen.c), directly and through
 * io_uring, on objects' descriptors too, from four threads of which one has no
 * privilege, while descriptors are closed and memory goes away under them.
 *
 * The kernel's checkers look for what it breaks inside. The program itself looks
 * for a call that succeeds though it must not, an error that the interface does
 * not know, contents that are not those that were written, a pool that stopped, a
 * call that does not return, and for any change of a pool that it may only read.
 *
 * COUNT=n: calls (default 50000). SEED=n repeats the threads' choices.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fuzz_files.h"
#include "harness.h"
#include "ioc_world.h"

#define NTHREADS	4
#define NEPOCHS		10
#define STUCK_S		60	/* a call that takes longer does not return */
#define POOR_ID		12345	/* user and group of the thread without privilege */
#define GOOD_BYTES	(16u << 10)
#define NCMDS		8	/* of one ring */

static atomic_long calls_left;
static atomic_ulong ncalls, nok;
static unsigned long per_cmd[64], ok_cmd[64];

struct fuzzer {
	unsigned int fz_n;
	uint64_t fz_rng;
	struct gen_mem fz_mem;
	struct io_uring fz_ring;
	bool fz_has_ring;
	unsigned int fz_inflight;
	struct gen_call fz_cmd[NCMDS];	/* what the ring's commands look at */
	uint8_t *fz_buf;		/* GOOD_BYTES, aligned */
	atomic_ulong fz_beat;
	const char *volatile fz_doing;
	pthread_t fz_thread;
};

static struct fuzzer fz[NTHREADS];

/* where all threads are, also those that io_uring made */
static void show_threads(void)
{
	struct dirent *de;
	DIR *dir = opendir("/proc/self/task");
	char path[64], line[200];
	unsigned int i;
	FILE *f;

	while (dir && (de = readdir(dir))) {
		for (i = 0; i < 2 && de->d_name[0] != '.'; i++) {
			snprintf(path, sizeof(path), "/proc/self/task/%.20s/%s", de->d_name,
				 i ? "stack" : "comm");
			f = fopen(path, "re");
			while (f && fgets(line, sizeof(line), f))
				printf("# %s: %s", de->d_name, line);
			if (f)
				fclose(f);
		}
	}
	if (dir)
		closedir(dir);
	fflush(stdout);
}

/* ---- judging ---- */

static unsigned int index_of(const struct ioc_desc *de)
{
	return (unsigned int)(de - gen_table);
}

static void judge(struct fuzzer *f, const struct gen_call *gc, int rc)
{
	const struct ioc_desc *de = gc->gc_desc;

	/* not ours (/dev/null takes any io_uring command), or by mutation another command */
	if (gc->gc_fd.fp_kind == FD_JUNK ||
	    (gc->gc_cmd != de->de_cmd && !(gc->gc_bad & BAD_CMD)))
		return;
	__atomic_add_fetch(&per_cmd[index_of(de)], 1, __ATOMIC_RELAXED);
	if (rc >= 0) {
		atomic_fetch_add(&nok, 1);
		__atomic_add_fetch(&ok_cmd[index_of(de)], 1, __ATOMIC_RELAXED);
		if (gc->gc_bad)
			finding("%s succeeded though it must not (reasons 0x%x, flags 0x%x)",
				de->de_name, gc->gc_bad, gc->gc_head.ma_flags);
		if (f->fz_n == NTHREADS - 1 && (de->de_node == NODE_CTL))
			finding("%s succeeded without privilege", de->de_name);
		return;
	}
	if (gc->gc_fd.fp_kind == FD_OBJ || gc->gc_bad & BAD_CMD)
		return;
	if (!gen_errno_ok(de, -rc))
		finding("%s gave error %d, which it does not document", de->de_name, -rc);
	if (gc->gc_bad == BAD_WRITE && rc != -EBADF && !gc->gc_mutated)
		finding("%s through a descriptor for reading gave error %d", de->de_name, -rc);
}

/* ---- what results are good for ---- */

static void keep(struct fuzzer *f, const struct gen_call *gc, int rc)
{
	const struct mpool_ioc_alloc *al;
	const struct mpool_ioc_root *ro;
	uint64_t id;
	uint32_t i;

	switch (gc->gc_desc->de_cmd) {
	case MPOOL_IOC_OPEN:
		if (t_rand(&f->fz_rng) % 4 == 0)
			close(rc);
		else
			world_fd_add(rc, gc->gc_fd.fp_kind == FD_CANARY ? FD_OBJ_RO : FD_OBJ);
		break;
	case MPOOL_IOC_ALLOC:
		al = (const void *)gc->gc_buf;
		/* another thread may forget the slow memory meanwhile: then these are zeroes */
		for (i = 0; i < al->al_n && i < 8; i++) {
			const struct mpool_ioc_alloc_one *one = (const void *)(uintptr_t)al->al_req;

			memcpy(&id, (const uint8_t *)(uintptr_t)al->al_ids + i * 8, 8);
			if (id)
				world_id_add(id, one[i].ao_kind == 3 ? ID_LOG : ID_OBJ,
					     gc->gc_fd.fp_fd);
		}
		break;
	case MPOOL_IOC_ROOT_GET:
		ro = gc->gc_arg;
		world_id_add(ro->ro_id[0], ID_LOG, -1);
		world_id_add(ro->ro_id[1], ID_LOG, -1);
		break;
	case MPOOL_IOC_HOLD:
	case MPOOL_IOC_MLOG_OPEN:
		/* both begin with the id; from now on this descriptor has it */
		memcpy(&id, gc->gc_buf + sizeof(struct mpool_ioc_arg), sizeof(id));
		world_id_add(id, gc->gc_desc->de_cmd == MPOOL_IOC_HOLD ? ID_OBJ : ID_OPEN_LOG,
			     gc->gc_fd.fp_fd);
		break;
	default:
		break;
	}
}

static void one_ioctl(struct fuzzer *f)
{
	struct gen_call gc;
	int rc;

	gen_call(&gc, &f->fz_mem, &f->fz_rng);
	f->fz_doing = gc.gc_desc->de_name;
	rc = ioctl(gc.gc_fd.fp_fd, gc.gc_cmd, gc.gc_arg);
	rc = rc < 0 ? -errno : rc;
	judge(f, &gc, rc);
	/* a command that mutation turned into another one has another structure */
	if (rc >= 0 && gc.gc_cmd == gc.gc_desc->de_cmd)
		keep(f, &gc, rc);
}

/* ---- the same through io_uring ---- */

static void reap(struct fuzzer *f, bool all)
{
	struct __kernel_timespec ts = { .tv_sec = STUCK_S };
	struct io_uring_cqe *cqe;

	while (f->fz_inflight) {
		int rc = all ? io_uring_wait_cqe_timeout(&f->fz_ring, &cqe, &ts) :
			       io_uring_peek_cqe(&f->fz_ring, &cqe);

		if (rc) {
			if (all) {
				finding("%u commands of a ring do not complete", f->fz_inflight);
				show_threads();
			}
			break;
		}
		if (cqe->user_data) {
			struct gen_call *gc = (void *)(uintptr_t)cqe->user_data;

			/* /dev/null takes any command */
			if (gc->gc_cmd == MPOOL_IOC_OPEN && cqe->res >= 0 &&
			    gc->gc_fd.fp_kind != FD_JUNK)
				finding("OPEN through io_uring gave %d", cqe->res);
			else if (cqe->res != -EOPNOTSUPP)
				judge(f, gc, cqe->res);
			gc->gc_desc = NULL;
		}
		io_uring_cqe_seen(&f->fz_ring, cqe);
		f->fz_inflight--;
	}
}

static void one_uring(struct fuzzer *f)
{
	struct io_uring_sqe *sqe;
	struct gen_call *gc = NULL;
	uint64_t r = t_rand(&f->fz_rng), addr;
	unsigned int i;

	f->fz_doing = "io_uring";
	if (!f->fz_has_ring) {
		if (io_uring_queue_init(NCMDS, &f->fz_ring, 0))
			return;
		f->fz_has_ring = true;
	}
	for (i = 0; i < NCMDS && !gc; i++)
		if (!f->fz_cmd[i].gc_desc)
			gc = &f->fz_cmd[i];
	if (!gc) {
		reap(f, true);
		return;
	}
	gen_call(gc, &f->fz_mem, &f->fz_rng);
	sqe = io_uring_get_sqe(&f->fz_ring);
	if (!sqe) {
		gc->gc_desc = NULL;
		reap(f, true);
		return;
	}
	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = gc->gc_fd.fp_fd;
	sqe->cmd_op = (uint32_t)gc->gc_cmd;
	sqe->flags = r & 4 ? IOSQE_ASYNC : 0;
	sqe->user_data = (uintptr_t)gc;
	addr = (uintptr_t)gc->gc_arg;
	memcpy(sqe->cmd, &addr, sizeof(addr));
	if (r % 64 == 0) {
		memcpy(sqe->cmd + 8, &r, 8);	/* must be zero */
		gc->gc_mutated = 1;
	}
	/* its memory is reused by this thread's next calls: it may become anything */
	gc->gc_bad &= BAD_NODE | BAD_WRITE | BAD_CMD;
	gc->gc_mutated |= gc->gc_bad != BAD_WRITE;
	f->fz_inflight++;
	if (io_uring_submit(&f->fz_ring) < 0)
		f->fz_inflight--;
	if (r & 8)
		reap(f, false);
	else if (r & 16)
		reap(f, true);
	if (r % 509 == 1) {	/* closed with what is under way */
		io_uring_queue_exit(&f->fz_ring);
		f->fz_has_ring = false;
		f->fz_inflight = 0;
		for (i = 0; i < NCMDS; i++)
			f->fz_cmd[i].gc_desc = NULL;
	}
}

/* ---- objects whose contents are known ---- */

static void good_write(struct fuzzer *f)
{
	uint64_t id, len = GEN_PAGE * (1 + t_rand(&f->fz_rng) % (GOOD_BYTES / GEN_PAGE));
	int fd = ioc_pool_open("fz0", O_RDWR), ofd, rc;

	f->fz_doing = "write and commit";
	if (fd < 0) {
		if (f->fz_n != NTHREADS - 1 && fd != -ENOENT)
			finding("fz0 cannot be opened: error %d", -fd);
		return;
	}
	rc = ioc_alloc(fd, 1, 0, GOOD_BYTES, 3, &id);
	if (rc) {
		if (rc != -ENOSPC && rc != -EPERM)
			finding("ALLOC of a plain object: error %d", -rc);
		close(fd);
		return;
	}
	ofd = ioc_obj_open(fd, id, MPOOL_IOC_OPEN_WRITE | MPOOL_IOC_OPEN_DIRECT |
			   MPOOL_IOC_OPEN_CLOEXEC);
	if (ofd < 0) {
		finding("OPEN of a new object: error %d", -ofd);
		close(fd);
		return;
	}
	ioc_pattern(f->fz_buf, id, 0, len);
	if (pwrite(ofd, f->fz_buf, len, 0) != (ssize_t)len)
		finding("write of a new object: error %d", errno);
	else if ((rc = ioc_op(fd, 1, id, len)) && rc != -ENOSPC)
		finding("commit of a new object: error %d", -rc);
	else if (!rc)
		world_good_add(id, len);
	close(ofd);
	close(fd);
}

static void good_read(struct fuzzer *f)
{
	uint64_t id, len, off;
	long bad;
	int fd;

	f->fz_doing = "read and compare";
	if (!world_good(&f->fz_rng, &id, &len))
		return;
	fd = ioc_obj_open(world_pool(), id, t_rand(&f->fz_rng) & 1 ? MPOOL_IOC_OPEN_DIRECT : 0);
	if (fd < 0) {
		if (fd != -ENOENT)
			finding("OPEN of a committed object: error %d", -fd);
		return;
	}
	off = t_rand(&f->fz_rng) % (len / GEN_PAGE) * GEN_PAGE;
	if (pread(fd, f->fz_buf, len - off, (off_t)off) != (ssize_t)(len - off))
		finding("read of a committed object: error %d", errno);
	else if ((bad = ioc_pattern_check(f->fz_buf, id, off, len - off)) >= 0)
		finding("object %llu differs at byte %ld", (unsigned long long)id, bad + (long)off);
	close(fd);
}

/* ---- coming and going ---- */

static void pool_life(struct fuzzer *f)
{
	int rc = 0;
	unsigned long cmd = world_life(&f->fz_rng, world_ctl(), &rc);
	unsigned int i;

	for (i = 0; i < gen_ncmds; i++)
		if (gen_table[i].de_cmd == cmd)
			break;
	__atomic_add_fetch(&per_cmd[i], 1, __ATOMIC_RELAXED);
	if (!rc)
		__atomic_add_fetch(&ok_cmd[i], 1, __ATOMIC_RELAXED);
	if (!rc && f->fz_n == NTHREADS - 1)
		finding("%s succeeded without privilege", gen_table[i].de_name);
	if (rc < 0 && !gen_errno_ok(&gen_table[i], -rc))
		finding("%s gave error %d, which it does not document", gen_table[i].de_name, -rc);
}

static void life(struct fuzzer *f)
{
	uint64_t r = t_rand(&f->fz_rng);
	bool is_poor = f->fz_n == NTHREADS - 1;
	int fd;

	f->fz_doing = "coming and going";
	switch (r % 12) {
	case 0:
	case 1:
	case 2:
		world_fd_close(&f->fz_rng);
		break;
	case 3:
		fd = ioc_pool_open(r & 256 ? "fz0" : world_name(&f->fz_rng), O_RDWR);
		world_fd_add(fd, FD_POOL);
		break;
	case 4:
		fd = ioc_pool_open(r & 256 ? "fz0" : world_name(&f->fz_rng), O_RDONLY);
		world_fd_add(fd, FD_POOL_RO);
		break;
	case 5:
		/* root may, and therefore does not try */
		fd = is_poor ? ioc_pool_open(CANARY, O_RDWR) : -1;
		if (fd >= 0)
			finding("the canary was opened for writing without permission");
		break;
	case 6:
		if (syscall(SYS_delete_module, "mpool", O_NONBLOCK) == 0)
			finding("the module was unloaded while pools are active");
		break;
	case 7:
		world_slow_again();
		break;
	case 8:
	case 9:
	case 10:
		pool_life(f);
		break;
	default:
		files_reopen(&f->fz_rng, is_poor);
		break;
	}
}

/* ---- threads ---- */

static void poor(void)
{
	/* the system calls themselves: the C library would change all threads */
	if (syscall(SYS_setgroups, 0, NULL) || syscall(SYS_setresgid, POOR_ID, POOR_ID, POOR_ID) ||
	    syscall(SYS_setresuid, POOR_ID, POOR_ID, POOR_ID))
		finding("the privilege cannot be given up: error %d", errno);
}

static void *fuzzer_main(void *arg)
{
	struct fuzzer *f = arg;

	if (f->fz_n == NTHREADS - 1)
		poor();
	while (atomic_fetch_sub(&calls_left, 1) > 0 && findings() < 40) {
		unsigned int r = t_rand(&f->fz_rng) % 100;

		if (r < 62)
			one_ioctl(f);
		else if (r < 72)
			one_uring(f);
		else if (r < 84)
			files_one(&f->fz_rng, &f->fz_doing);
		else if (r < 93)
			life(f);
		else if (r < 96)
			good_write(f);
		else
			good_read(f);
		atomic_fetch_add(&ncalls, 1);
		atomic_fetch_add(&f->fz_beat, 1);
	}
	if (f->fz_has_ring) {
		reap(f, true);
		io_uring_queue_exit(&f->fz_ring);
		f->fz_has_ring = false;
	}
	f->fz_doing = NULL;
	return NULL;
}

/* looks whether each thread still moves; does not return while one is stuck */
static void watch(void)
{
	unsigned long last[NTHREADS] = { 0 };
	unsigned int since[NTHREADS] = { 0 }, i, running;

	do {
		usleep(100000);
		for (i = 0, running = 0; i < NTHREADS; i++) {
			unsigned long beat = atomic_load(&fz[i].fz_beat);
			const char *doing = fz[i].fz_doing;

			running += doing != NULL;
			since[i] = beat == last[i] ? since[i] + 1 : 0;
			last[i] = beat;
			if (!doing || since[i] < STUCK_S * 10)
				continue;
			printf("# thread %u does not return from %s\n", i, doing);
			show_threads();
			printf("Bail out! a call does not return\n");
			fflush(stdout);
			_exit(1);
		}
	} while (running);
}

static void epoch(long count)
{
	unsigned int i;

	atomic_store(&calls_left, count);
	for (i = 0; i < NTHREADS; i++) {
		fz[i].fz_doing = "start";
		T_OK(pthread_create(&fz[i].fz_thread, NULL, fuzzer_main, &fz[i]) == 0);
	}
	watch();
	for (i = 0; i < NTHREADS; i++)
		pthread_join(fz[i].fz_thread, NULL);
}

static void random_calls_break_nothing(void)
{
	const char *s = getenv("COUNT");
	long count = s && *s ? atol(s) : getenv("TEST_LONG") ? 500000 : 50000;
	uint64_t seed = t_seed(), rng = seed;
	struct timespec a, b;
	unsigned int i;
	double secs;

	for (i = 0; i < NTHREADS; i++) {
		fz[i].fz_n = i;
		fz[i].fz_rng = seed * NTHREADS + i;
		T_EQ(gen_mem_init(&fz[i].fz_mem, world_slow()), 0);
		T_OK(posix_memalign((void **)&fz[i].fz_buf, GEN_PAGE, GOOD_BYTES) == 0);
	}
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (i = 0; i < NEPOCHS && !findings(); i++) {
		world_epoch_begin(&rng);
		if (!findings())
			epoch(count / NEPOCHS);
		files_end();
		world_epoch_end();
	}
	clock_gettime(CLOCK_MONOTONIC, &b);
	secs = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9;
	printf("# %lu calls in %.1f s, %lu of them successful; late memory: %s\n",
	       atomic_load(&ncalls), secs, atomic_load(&nok), world_has_slow() ? "yes" : "no");
	t_figure("ioctl fuzz", "%lu calls, %lu of them successful", atomic_load(&ncalls),
		 atomic_load(&nok));
	T_EQ(findings(), 0);
	T_OK(atomic_load(&ncalls) >= (unsigned long)count);
}

/* a generator that only makes errors tests nothing */
static void every_command_succeeded_sometimes(void)
{
	unsigned int i, missing = 0;

	for (i = 0; i < gen_ncmds; i++) {
		printf("# %-12s %6lu calls %6lu ok\n", gen_table[i].de_name, per_cmd[i], ok_cmd[i]);
		missing += !ok_cmd[i];
	}
	/* a short run may miss some */
	if (atomic_load(&ncalls) >= 20000)
		T_EQ(missing, 0);
}

static void only_reading_changed_nothing(void)
{
	world_exit();
	T_EQ(findings(), 0);
}

int main(void)
{
	const char *why = "";
	int rc;

	if (!getenv("MPK_VM") || access("/dev/mpoolctl", F_OK))
		return t_skip_all("needs the module in a machine of its own");
	/* F_SETFL with O_ASYNC on a socket or terminal asks for it */
	signal(SIGIO, SIG_IGN);
	rc = world_init(&why);
	if (rc == -ENODEV)
		return t_skip_all(why);
	if (rc) {
		printf("Bail out! %s: error %d\n", why, -rc);
		return 1;
	}
	T_RUN(random_calls_break_nothing);
	T_RUN(every_command_succeeded_sometimes);
	T_RUN(only_reading_changed_nothing);
	return t_done();
}
