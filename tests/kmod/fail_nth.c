// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Every call of the module with its first, second, ... n-th allocation or copy
 * of user memory failing, until one runs through without meeting the fault; then
 * with all allocations failing from the n-th on; then with the n-th request of a
 * disk failing.
 *
 * After a failed call the pool has one node, with its name, owner and mode, and
 * the same call without fault must succeed. A pool may stop only after a disk
 * failed, and then says so; in any case it deactivates, and activates again with
 * what was durable.
 *
 * ONLY=name: just the calls whose names begin so.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "harness.h"
#include "ioc_help.h"

#define MAX_N		3000	/* no call has so many places to fail */
#define DISK_MIB	16
#define NDISKS		3
#define OBJ		(64u << 10)
#define POOL		"nth"

/* what fails */
enum faults { FAULT_ONE, FAULT_REST, FAULT_DISK };

static struct {
	struct ioc_disk disk[NDISKS];
	int ctl, pool, nth, obj;
	enum faults faults;
	int chance;		/* that an allocation fails when none is counted: 0 or 100 */
	uint64_t id, log, pos;
	uint8_t *buf;		/* OBJ bytes, aligned */
	int pipe[2];		/* has room for OBJ bytes */
	struct io_uring ring;
} s = { .ctl = -1, .pool = -1, .obj = -1, .nth = -1, .chance = -1 };

/* ---- the fault ---- */

/* setting and asking copy user memory, too, and may so meet the fault themselves */
static void put_number(int fd, unsigned int n)
{
	char text[16];
	int i;

	snprintf(text, sizeof(text), "%u", n);
	for (i = 0; i < 8; i++)
		if (write(fd, text, strlen(text)) > 0)
			return;
	T_FAIL("a fault cannot be set: error %d", errno);
}

static void fault_set(unsigned int n)
{
	if (s.faults == FAULT_REST)
		put_number(s.chance, n ? 100 : 0);
	put_number(s.nth, n);
}

/* what a call must repeat until it succeeds would never end */
static void memory_back(void)
{
	if (s.faults == FAULT_REST)
		put_number(s.chance, 0);
}

/* whether it happened; there is none afterwards */
static bool fault_hit(void)
{
	char text[16] = "";
	ssize_t n;

	memory_back();
	n = pread(s.nth, text, sizeof(text) - 1, 0);
	fault_set(0);
	return n > 0 && atoi(text) == 0;
}

static void disks_may_fail(bool on)
{
	char path[64];
	unsigned int i;

	for (i = 0; i < NDISKS; i++) {
		snprintf(path, sizeof(path), "/sys/block/%s/make-it-fail", s.disk[i].dk_name);
		T_EQ(ioc_put(path, on ? "1" : "0"), 0);
	}
}

/* allocations count only in the first two rounds, requests only in the last */
static void faults_of(enum faults faults)
{
	bool is_disk = faults == FAULT_DISK;

	s.faults = faults;
	ioc_put("/sys/kernel/debug/failslab/cache-filter", is_disk ? "1" : "0");
	ioc_put("/sys/kernel/debug/fail_page_alloc/min-order", is_disk ? "30" : "0");
}

/* faults come when they are asked for, in this thread, and each is expected: no report */
static int faults_begin(void)
{
	static const char *const of[] = {
		"failslab", "fail_page_alloc", "fail_usercopy", "fail_make_request"
	};
	static const char *const what[][2] = {
		{ "probability", "0" }, { "verbose", "0" }, { "times", "-1" },
		{ "task-filter", "1" }, { "ignore-gfp-wait", "0" },
	};
	char path[96];
	unsigned int i, k;

	for (i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
		for (k = 0; k < sizeof(what) / sizeof(what[0]); k++) {
			/* not all have all of them */
			snprintf(path, sizeof(path), "/sys/kernel/debug/%s/%s", of[i], what[k][0]);
			ioc_put(path, what[k][1]);
		}
	}
	s.chance = open("/sys/kernel/debug/failslab/probability", O_RDWR | O_CLOEXEC);
	if (s.chance < 0)
		return -errno;
	return ioc_put("/proc/thread-self/make-it-fail", "1");
}

/* ---- the pool ---- */

static void devs(struct mpool_ioc_dev dev[NDISKS])
{
	dev[0] = (struct mpool_ioc_dev){ .id_fd = s.disk[0].dk_fd };
	dev[1] = (struct mpool_ioc_dev){ .id_fd = s.disk[1].dk_fd, .id_mclass = 1 };
	dev[2] = (struct mpool_ioc_dev){ .id_fd = s.disk[2].dk_fd };
}

static void close_all(void)
{
	if (s.obj >= 0)
		close(s.obj);
	if (s.pool >= 0)
		close(s.pool);
	s.obj = s.pool = -1;
}

static void deactivate(void)
{
	struct mpool_ioc_list li = { 0 };
	int i, rc;

	close_all();
	while (!(rc = ioc_call(s.ctl, MPOOL_IOC_LIST, &li))) {
		/* a ring lets go of its files a little later */
		for (i = 0; i < 100 && (rc = ioc_deactivate(s.ctl, li.li_name)) == -EBUSY; i++)
			usleep(10000);
		if (rc)
			T_FAIL("%s does not deactivate: error %d, %u files open", li.li_name, -rc,
			       li.li_opens);
	}
	T_EQ(rc, -ENOENT);
}

/* an inactive pool on the first two disks */
static int prep_inactive(void)
{
	struct mpool_ioc_dev dev[NDISKS];

	devs(dev);
	deactivate();
	return ioc_create(s.ctl, POOL, dev, 2, 0600, MPOOL_IOC_CREATE_FORCE);
}

static int activate(void)
{
	struct mpool_ioc_dev dev[NDISKS];
	int rc;

	devs(dev);
	rc = ioc_activate(s.ctl, dev, 2, 0);
	if (rc)
		return rc;
	s.pool = ioc_pool_open(POOL, O_RDWR);
	return s.pool < 0 ? s.pool : 0;
}

static int prep_new(void)
{
	int rc = prep_inactive();

	return rc ? rc : activate();
}

/* and the third disk is no member of anything */
static int prep_add(void)
{
	int rc = prep_new();

	memset(s.buf, 0, 4096);
	if (!rc && (pwrite(s.disk[2].dk_fd, s.buf, 4096, 0) != 4096 || fsync(s.disk[2].dk_fd)))
		rc = -errno;
	return rc;
}

/* an active pool without objects; made anew only when it must be */
static int prep_pool(void)
{
	static struct mpool_ioc_obj ob[64];
	struct mpool_ioc_objects os = { .os_max = 64, .os_out = (uintptr_t)ob };
	struct mpool_ioc_root ro = { 0 };
	struct mpool_ioc_info in;
	int n, i, rc;

	close_all();
	s.pool = ioc_pool_open(POOL, O_RDWR);
	if (s.pool < 0 || ioc_info(s.pool, &in) || in.in_state || in.in_ndevs != 2)
		return prep_new();
	while (!ioc_call(s.pool, MPOOL_IOC_ROOT_NEXT, &ro)) {
		rc = ioc_call(s.pool, MPOOL_IOC_ROOT_DELETE, &ro);
		if (rc)
			return rc;
		memset(&ro, 0, sizeof(ro));
	}
	n = ioc_call(s.pool, MPOOL_IOC_OBJECTS, &os);
	for (i = 0; i < n; i++) {
		rc = ioc_op(s.pool, 3, ob[i].ob_id, 0);
		if (rc)
			return rc;
	}
	return n < 0 ? n : 0;
}

static int prep_plain(void)
{
	int rc = prep_pool();

	return rc ? rc : ioc_alloc(s.pool, 1, 0, OBJ, 1, &s.id);
}

static int prep_open_write(void)
{
	int rc = prep_plain();

	if (rc)
		return rc;
	s.obj = ioc_obj_open(s.pool, s.id, MPOOL_IOC_OPEN_WRITE | MPOOL_IOC_OPEN_DIRECT);
	return s.obj < 0 ? s.obj : 0;
}

static int prep_written(void)
{
	int rc = prep_open_write();

	if (rc)
		return rc;
	ioc_pattern(s.buf, s.id, 0, OBJ);
	return pwrite(s.obj, s.buf, OBJ, 0) == OBJ ? 0 : -errno;
}

static int prep_committed(void)
{
	int rc = prep_written();

	return rc ? rc : ioc_op(s.pool, 1, s.id, OBJ);
}

/* open for reading, nothing cached */
static int prep_open_read(void)
{
	int rc = prep_committed();

	if (rc)
		return rc;
	close(s.obj);
	s.obj = ioc_obj_open(s.pool, s.id, 0);
	if (s.obj < 0)
		return s.obj;
	return -posix_fadvise(s.obj, 0, 0, POSIX_FADV_DONTNEED);
}

static int prep_open_direct(void)
{
	int rc = prep_committed();

	if (rc)
		return rc;
	close(s.obj);
	s.obj = ioc_obj_open(s.pool, s.id, MPOOL_IOC_OPEN_DIRECT);
	return s.obj < 0 ? s.obj : 0;
}

static int prep_append_obj(void)
{
	int rc = prep_pool();

	return rc ? rc : ioc_alloc(s.pool, 2, 0, OBJ, 1, &s.id);
}

static int prep_log(void)
{
	int rc = prep_pool();

	return rc ? rc : ioc_alloc(s.pool, 3, 0, OBJ, 1, &s.log);
}

static int prep_log_open(void)
{
	int rc = prep_log();

	return rc ? rc : ioc_mlog(s.pool, MPOOL_IOC_MLOG_OPEN, s.log);
}

static int prep_log_record(void)
{
	int rc = prep_log_open();

	return rc ? rc : ioc_append(s.pool, s.log, "0123456789", 10, 0);
}

static int root_call(unsigned long cmd)
{
	struct mpool_ioc_root ro = { .ro_name = "a", .ro_capacity = OBJ };

	if (cmd == MPOOL_IOC_ROOT_NEXT)
		ro.ro_name[0] = 0;
	if (cmd != MPOOL_IOC_ROOT_CREATE)
		ro.ro_capacity = 0;
	return ioc_call(s.pool, cmd, &ro);
}

static int prep_root(void)
{
	int rc = prep_pool();

	return rc ? rc : root_call(MPOOL_IOC_ROOT_CREATE);
}

static int lease_call(unsigned long cmd)
{
	struct mpool_ioc_lease le = { .le_id = "a lease" };

	return ioc_call(s.pool, cmd, &le);
}

static int prep_lease(void)
{
	int rc = prep_pool();

	return rc ? rc : lease_call(MPOOL_IOC_LEASE);
}

/* ---- the calls ---- */

static int call_version(void)
{
	struct mpool_ioc_version iv = { 0 };

	return ioc_call(s.ctl, MPOOL_IOC_VERSION, &iv);
}

static int call_probe(void)
{
	struct mpool_ioc_probe pr = { .pr_fd = s.disk[0].dk_fd };

	return ioc_call(s.ctl, MPOOL_IOC_PROBE, &pr);
}

static int call_create(void)
{
	struct mpool_ioc_dev dev[NDISKS];

	devs(dev);
	return ioc_create(s.ctl, POOL, dev, 2, 0600, MPOOL_IOC_CREATE_FORCE);
}

static int call_destroy(void)
{
	struct mpool_ioc_dev dev[NDISKS];

	devs(dev);
	return ioc_destroy(s.ctl, dev, 2);
}

static int call_activate(void)
{
	struct mpool_ioc_dev dev[NDISKS];

	devs(dev);
	return ioc_activate(s.ctl, dev, 2, 0);
}

static int call_deactivate(void)
{
	if (s.pool >= 0)
		close(s.pool);
	s.pool = -1;
	return ioc_deactivate(s.ctl, POOL);
}

static int call_list(void)
{
	struct mpool_ioc_list li = { 0 };

	return ioc_call(s.ctl, MPOOL_IOC_LIST, &li);
}

static int call_rename(void)
{
	struct mpool_ioc_rename rn = { .rn_from = POOL, .rn_to = "other" };

	return ioc_call(s.ctl, MPOOL_IOC_RENAME, &rn);
}

static int call_add(void)
{
	struct mpool_ioc_dev dev = { .id_fd = s.disk[2].dk_fd };
	struct mpool_ioc_add ad = { .ad_name = POOL, .ad_ndevs = 1, .ad_devs = (uintptr_t)&dev };

	return ioc_call(s.ctl, MPOOL_IOC_ADD, &ad);
}

static int call_grow(void)
{
	struct mpool_ioc_name na = { .na_name = POOL };

	return ioc_call(s.ctl, MPOOL_IOC_GROW, &na);
}

static int call_set(void)
{
	struct mpool_ioc_set st = { .st_name = POOL, .st_label = "new", .st_mode = 0640 };

	st.st_arg.ma_flags = MPOOL_IOC_SET_LABEL | MPOOL_IOC_SET_OWNER;
	return ioc_call(s.ctl, MPOOL_IOC_SET, &st);
}

static int call_open_node(void)
{
	int fd = ioc_pool_open(POOL, O_RDWR);

	if (fd >= 0)
		close(fd);
	return fd;
}

static int call_info(void)
{
	struct mpool_ioc_info in;

	return ioc_info(s.pool, &in);
}

static int call_dev_info(void)
{
	struct mpool_ioc_dev_info di = { .di_slot = 1 };

	return ioc_call(s.pool, MPOOL_IOC_DEV_INFO, &di);
}

static int call_flush(void)
{
	struct mpool_ioc_flush fl = { .fl_mask = 3 };

	return ioc_call(s.pool, MPOOL_IOC_FLUSH, &fl);
}

static int call_alloc(uint32_t kind)
{
	struct mpool_ioc_alloc_one one[3];
	struct mpool_ioc_alloc al = { .al_n = 3 };
	uint64_t ids[3];
	unsigned int i;

	for (i = 0; i < 3; i++)
		one[i] = (struct mpool_ioc_alloc_one){ .ao_kind = kind, .ao_capacity = OBJ };
	al.al_req = (uintptr_t)one;
	al.al_ids = (uintptr_t)ids;
	return ioc_call(s.pool, MPOOL_IOC_ALLOC, &al);
}

static int call_alloc_plain(void) { return call_alloc(1); }
static int call_alloc_append(void) { return call_alloc(2); }
static int call_alloc_log(void) { return call_alloc(3); }

static int call_hold(void)
{
	struct mpool_ioc_hold ho = { .ho_id = s.id };

	return ioc_call(s.pool, MPOOL_IOC_HOLD, &ho);
}

static int call_obj_info(void)
{
	struct mpool_ioc_hold ho = { .ho_id = s.id };

	return ioc_call(s.pool, MPOOL_IOC_OBJ_INFO, &ho);
}

static int call_objects(void)
{
	struct mpool_ioc_obj ob[8];
	struct mpool_ioc_objects os = { .os_max = 8, .os_out = (uintptr_t)ob };

	return ioc_call(s.pool, MPOOL_IOC_OBJECTS, &os);
}

static int call_drop(void) { return ioc_drop(s.pool, s.id); }
static int call_commit(void) { return ioc_op(s.pool, 1, s.id, OBJ); }
static int call_seal(void) { return ioc_op(s.pool, 2, s.id, 0); }
static int call_delete(void) { return ioc_op(s.pool, 3, s.id, 0); }

static int call_open(void)
{
	int fd = ioc_obj_open(s.pool, s.id, 0);

	if (fd >= 0)
		close(fd);
	return fd;
}

static int call_mlog_open(void) { return ioc_mlog(s.pool, MPOOL_IOC_MLOG_OPEN, s.log); }
static int call_mlog_close(void) { return ioc_mlog(s.pool, MPOOL_IOC_MLOG_CLOSE, s.log); }
static int call_mlog_sync(void) { return ioc_mlog(s.pool, MPOOL_IOC_MLOG_SYNC, s.log); }
static int call_mlog_erase(void) { return ioc_mlog(s.pool, MPOOL_IOC_MLOG_ERASE, s.log); }
static int call_mlog_seal(void) { return ioc_mlog(s.pool, MPOOL_IOC_MLOG_SEAL, s.log); }
static int call_mlog_space(void) { return ioc_mlog(s.pool, MPOOL_IOC_MLOG_SPACE, s.log); }
static int call_append(void) { return ioc_append(s.pool, s.log, s.buf, 6000, 0); }
static int call_append_sync(void) { return ioc_append(s.pool, s.log, s.buf, 6000, 1); }

static int call_mlog_read(void)
{
	struct mpool_ioc_read rd = { .rd_id = s.log, .rd_buf = (uintptr_t)s.buf, .rd_size = OBJ };

	return ioc_call(s.pool, MPOOL_IOC_MLOG_READ, &rd);
}

static int call_root_create(void) { return root_call(MPOOL_IOC_ROOT_CREATE); }
static int call_root_get(void) { return root_call(MPOOL_IOC_ROOT_GET); }
static int call_root_delete(void) { return root_call(MPOOL_IOC_ROOT_DELETE); }
static int call_root_next(void) { return root_call(MPOOL_IOC_ROOT_NEXT); }
static int call_lease(void) { return lease_call(MPOOL_IOC_LEASE); }
static int call_unlease(void) { return lease_call(MPOOL_IOC_UNLEASE); }

static int call_pread(void)
{
	ssize_t n;

	memset(s.buf, 0, OBJ);
	n = pread(s.obj, s.buf, OBJ, 0);
	/* as far as it went: the rest could not be copied */
	if (n != OBJ)
		return n < 0 ? -errno : -EFAULT;
	return ioc_pattern_check(s.buf, s.id, 0, OBJ) < 0 ? 0 : -EBADMSG;
}

static int call_pwrite(void)
{
	return pwrite(s.obj, s.buf, OBJ, 0) == OBJ ? 0 : -errno;
}

static int call_fsync(void) { return fsync(s.obj) ? -errno : 0; }
static int call_willneed(void) { return -posix_fadvise(s.obj, 0, OBJ, POSIX_FADV_WILLNEED); }

static int call_mmap(void)
{
	uint8_t *m = mmap(NULL, OBJ, PROT_READ, MAP_SHARED, s.obj, 0);
	ssize_t n;
	int rc;

	if (m == MAP_FAILED)
		return -errno;
	/* a system call touches it: what cannot be had is an error then, not a signal */
	n = write(s.pipe[1], m, OBJ);
	rc = n == OBJ ? 0 : n < 0 ? -errno : -EFAULT;
	/* the fault may still be to come, and this call may fail, too */
	while (munmap(m, OBJ))
		memory_back();
	/* until it is empty: a fault in between ends nothing */
	do
		n = read(s.pipe[0], s.buf, OBJ);
	while (n > 0 || errno != EAGAIN);
	return rc;
}

static int call_reopen(void)
{
	char path[40];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", s.obj);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static int ring_call(void)
{
	struct io_uring_cqe *cqe;
	int rc = io_uring_submit_and_wait(&s.ring, 1);

	/* a submission that failed before it began is still in the queue */
	while (rc == -EAGAIN || rc == -ENOMEM || rc == 0) {
		memory_back();
		rc = io_uring_submit_and_wait(&s.ring, 1);
	}
	if (rc < 0)
		return rc;
	rc = io_uring_wait_cqe(&s.ring, &cqe);
	if (rc)
		return rc;
	rc = cqe->res;
	io_uring_cqe_seen(&s.ring, cqe);
	return rc;
}

static int call_uring_info(void)
{
	struct mpool_ioc_info in = { 0 };
	struct io_uring_sqe *sqe = io_uring_get_sqe(&s.ring);
	uint64_t addr = (uintptr_t)&in;

	if (!sqe)
		return -EAGAIN;
	in.in_arg.ma_size = sizeof(in);
	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = s.pool;
	sqe->cmd_op = (uint32_t)MPOOL_IOC_INFO;
	memcpy(sqe->cmd, &addr, sizeof(addr));
	return ring_call();
}

static int call_uring_write(void)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&s.ring);
	int rc;

	io_uring_prep_write(sqe, s.obj, s.buf, OBJ, 0);
	rc = ring_call();
	return rc < 0 ? rc : rc == OBJ ? 0 : -EFAULT;
}

static int call_uring_read(void)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&s.ring);
	int rc;

	io_uring_prep_read(sqe, s.obj, s.buf, OBJ, 0);
	rc = ring_call();
	return rc < 0 ? rc : rc == OBJ ? 0 : -EFAULT;
}

/*
 * op_again: what the second call may return when the first one failed only in
 * telling its result, having done its work
 */
static const struct op {
	const char *op_name;
	int (*op_prep)(void);
	int (*op_call)(void);
	int op_again;
} ops[] = {
	{ "VERSION", prep_pool, call_version, 0 },
	{ "PROBE", prep_pool, call_probe, 0 },
	{ "LIST", prep_pool, call_list, 0 },
	{ "CREATE", prep_inactive, call_create, 0 },
	{ "DESTROY", prep_inactive, call_destroy, -EINVAL },
	{ "ACTIVATE", prep_inactive, call_activate, -EEXIST },
	{ "DEACTIVATE", prep_pool, call_deactivate, -ENOENT },
	{ "RENAME", prep_pool, call_rename, -ENOENT },
	{ "ADD", prep_add, call_add, -EEXIST },
	{ "GROW", prep_pool, call_grow, 0 },
	{ "SET", prep_pool, call_set, 0 },
	{ "open of the node", prep_pool, call_open_node, 0 },
	{ "INFO", prep_pool, call_info, 0 },
	{ "DEV_INFO", prep_pool, call_dev_info, 0 },
	{ "FLUSH", prep_written, call_flush, 0 },
	{ "ALLOC plain", prep_pool, call_alloc_plain, 0 },
	{ "ALLOC append", prep_pool, call_alloc_append, 0 },
	{ "ALLOC mlog", prep_pool, call_alloc_log, 0 },
	{ "HOLD", prep_committed, call_hold, 0 },
	{ "DROP", prep_plain, call_drop, -ENOENT },
	{ "OBJ_INFO", prep_plain, call_obj_info, 0 },
	{ "OBJECTS", prep_committed, call_objects, 0 },
	{ "BATCH commit", prep_written, call_commit, -EINVAL },
	{ "BATCH seal", prep_append_obj, call_seal, -EINVAL },
	{ "BATCH delete", prep_committed, call_delete, -ENOENT },
	{ "OPEN", prep_committed, call_open, 0 },
	{ "MLOG_OPEN", prep_log, call_mlog_open, -EBUSY },
	{ "MLOG_CLOSE", prep_log_record, call_mlog_close, -ENOENT },
	{ "MLOG_APPEND", prep_log_open, call_append, 0 },
	{ "MLOG_APPEND sync", prep_log_open, call_append_sync, 0 },
	{ "MLOG_SYNC", prep_log_record, call_mlog_sync, 0 },
	{ "MLOG_READ", prep_log_record, call_mlog_read, 0 },
	{ "MLOG_ERASE", prep_log_record, call_mlog_erase, 0 },
	{ "MLOG_SEAL", prep_log_record, call_mlog_seal, -EROFS },
	{ "MLOG_SPACE", prep_log_record, call_mlog_space, 0 },
	{ "ROOT_CREATE", prep_pool, call_root_create, -EEXIST },
	{ "ROOT_GET", prep_root, call_root_get, 0 },
	{ "ROOT_NEXT", prep_root, call_root_next, 0 },
	{ "ROOT_DELETE", prep_root, call_root_delete, -ENOENT },
	{ "LEASE", prep_pool, call_lease, -EBUSY },
	{ "UNLEASE", prep_lease, call_unlease, -ENOENT },
	{ "pread", prep_open_read, call_pread, 0 },
	{ "pread with O_DIRECT", prep_open_direct, call_pread, 0 },
	{ "pwrite", prep_open_write, call_pwrite, 0 },
	{ "fsync", prep_written, call_fsync, 0 },
	{ "fadvise", prep_open_read, call_willneed, 0 },
	{ "mmap", prep_open_read, call_mmap, 0 },
	{ "open again", prep_open_read, call_reopen, 0 },
	{ "uring_cmd", prep_pool, call_uring_info, 0 },
	{ "io_uring read", prep_open_read, call_uring_read, 0 },
	{ "io_uring write", prep_open_write, call_uring_write, 0 },
};

/* ---- the loop ---- */

/* whether the pool stopped; NULL when it is not active */
static bool is_stopped(void)
{
	struct mpool_ioc_info in;
	int fd = ioc_pool_open(POOL, O_RDONLY), rc;

	if (fd < 0)
		return false;
	rc = ioc_info(fd, &in);
	close(fd);
	if (rc)
		T_FAIL("INFO after a failed call: error %d", -rc);
	if (!(in.in_state & MPOOL_IOC_POOL_FAULT))
		return false;
	T_OK(in.in_fault_id != 0 && in.in_fault[0]);
	if (s.faults != FAULT_DISK)
		T_FAIL("the pool stopped, but no disk failed: MP%04u %s", in.in_fault_id,
		       in.in_fault);
	return true;
}

/* an active pool has one node, which says the same as the pool; another pool has none */
static void check_node(const struct op *op, unsigned int n)
{
	static const char *const names[] = { POOL, "other" };
	struct mpool_ioc_list li = { 0 };
	struct mpool_ioc_info in;
	struct stat st;
	char path[64];
	unsigned int i;
	int fd;

	if (ioc_call(s.ctl, MPOOL_IOC_LIST, &li))
		li.li_name[0] = 0;
	for (i = 0; i < 2; i++) {
		fd = ioc_pool_open(names[i], O_RDONLY);
		if ((fd >= 0) != !strcmp(names[i], li.li_name))
			T_FAIL("%s, fault %u: the pool is '%s', node '%s' %s", op->op_name, n,
			       li.li_name, names[i], fd >= 0 ? "opens" : "does not open");
		if (fd < 0)
			continue;
		T_EQ(fstat(fd, &st), 0);
		T_EQ(ioc_info(fd, &in), 0);
		close(fd);
		if (strcmp(in.in_name, names[i]) || in.in_uid != st.st_uid ||
		    in.in_gid != st.st_gid || in.in_mode != (st.st_mode & 0777))
			T_FAIL("%s, fault %u: pool '%s' %u:%u 0%o, node '%s' %u:%u 0%o",
			       op->op_name, n, in.in_name, in.in_uid, in.in_gid, in.in_mode,
			       names[i], st.st_uid, st.st_gid, st.st_mode & 0777);
		snprintf(path, sizeof(path), "/dev/%s", names[i]);
		T_EQ(access(path, F_OK), -1);
	}
}

static void check_after(const struct op *op, unsigned int n, int rc)
{
	struct mpool_ioc_dev dev[NDISKS];
	int again;

	if (is_stopped()) {
		/* and comes back: whatever the call was, it was done or it was not */
		deactivate();
		devs(dev);
		again = ioc_activate(s.ctl, dev, 2, 0);
		/* an addition that was done, though the caller was not told */
		if (again == -ENODEV && op->op_prep == prep_add)
			again = ioc_activate(s.ctl, dev, 3, 0);
		if (again)
			T_FAIL("%s, fault %u: the pool that stopped does not activate: error %d",
			       op->op_name, n, -again);
		return;
	}
	check_node(op, n);
	if (rc >= 0)
		return;
	/* a disk whose first block cannot be read is taken for what its other copies say */
	if (rc != -ENOMEM && rc != -EFAULT &&
	    !(s.faults == FAULT_DISK && (rc == -EIO || rc == -EEXIST)))
		T_FAIL("%s, fault %u: error %d", op->op_name, n, -rc);
	again = op->op_call();
	if (again < 0 && !(op->op_again && again == op->op_again))
		/* an object or a log that met a failed write is not written again */
		if (s.faults != FAULT_DISK)
			T_FAIL("%s, fault %u: error %d, and afterwards error %d", op->op_name, n,
			       -rc, -again);
}

/* a reference that was lost shows as an open file */
static void check_closed(const struct op *op)
{
	struct mpool_ioc_list li = { 0 };
	int i, rc;

	close_all();
	rc = ioc_call(s.ctl, MPOOL_IOC_LIST, &li);
	/* a ring lets go of its files a little later */
	for (i = 0; !rc && li.li_opens && i < 100; i++) {
		usleep(10000);
		memset(li.li_after, 0, sizeof(li.li_after));
		rc = ioc_call(s.ctl, MPOOL_IOC_LIST, &li);
	}
	if (!rc && li.li_opens)
		T_FAIL("%s leaves %u files open", op->op_name, li.li_opens);
}

static unsigned int nfaults;	/* of all calls */

static void each_fault(const struct op *op)
{
	unsigned int n, failed = 0;
	bool is_hit = true;
	int rc;

	for (n = 1; is_hit && n < MAX_N; n++) {
		rc = op->op_prep();
		if (rc < 0)
			T_FAIL("%s: preparation for fault %u: error %d", op->op_name, n, -rc);
		if (s.faults == FAULT_DISK)
			disks_may_fail(true);
		errno = 0;
		fault_set(n);
		rc = op->op_call();
		is_hit = fault_hit();
		if (s.faults == FAULT_DISK)
			disks_may_fail(false);
		if (!is_hit && rc < 0)
			T_FAIL("%s without a fault: error %d", op->op_name, -rc);
		failed += rc < 0;
		if (is_hit)
			check_after(op, n, rc);
	}
	T_OK(n < MAX_N);
	check_closed(op);
	nfaults += n - 2;
	printf("# %-20s %3u %s, %3u failed calls\n", op->op_name, n - 2,
	       s.faults == FAULT_DISK ? "requests" : "places", failed);
}

static unsigned int each_op(void)
{
	const char *only = getenv("ONLY");
	volatile unsigned int i, bad = 0;
	jmp_buf outer;

	/* each call is judged, also after one that failed its test */
	memcpy(&outer, &t_env, sizeof(outer));
	for (i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		if (only && strncmp(ops[i].op_name, only, strlen(only)))
			continue;
		/*
		 * Linux repeats a page fault until there is memory; a worker of io_uring
		 * inherits that there is none, but not from when on.
		 */
		if (s.faults == FAULT_REST &&
		    (ops[i].op_call == call_mmap || ops[i].op_call == call_uring_info))
			continue;
		if (setjmp(t_env) == 0) {
			each_fault(&ops[i]);
		} else {
			bad++;
			fault_set(0);
			disks_may_fail(false);
		}
		fflush(stdout);
	}
	memcpy(&t_env, &outer, sizeof(outer));
	deactivate();
	return bad;
}

static void every_call_survives_lack_of_memory(void)
{
	faults_of(FAULT_ONE);
	T_EQ(each_op(), 0);
}

static void every_call_survives_the_end_of_memory(void)
{
	faults_of(FAULT_REST);
	T_EQ(each_op(), 0);
}

static void every_call_survives_a_failing_disk(void)
{
	faults_of(FAULT_DISK);
	T_EQ(each_op(), 0);
}

/* load with the n-th place failing; *left: what remains of @n */
static int load(const char *ko, unsigned int n, unsigned int *left)
{
	int fd = open(ko, O_RDONLY | O_CLOEXEC), rc;
	char text[16] = "";

	T_OK(fd >= 0);
	fault_set(n);
	rc = syscall(SYS_finit_module, fd, "", 0) ? -errno : 0;
	*left = pread(s.nth, text, sizeof(text) - 1, 0) > 0 ? (unsigned int)atoi(text) : 1;
	fault_set(0);
	close(fd);
	return rc;
}

/*
 * The module's own start: it loads, or leaves nothing behind. The places of the kernel's
 * loader come first, and it warns about some of them: only the last ones are ours.
 */
static void loading_survives_lack_of_memory(void)
{
	const unsigned int all = 1000000, ours = 90;
	const char *ko = getenv("MPK_KO");
	unsigned int n, left, total, failed = 0;
	int rc;

	faults_of(FAULT_ONE);
	close(s.ctl);
	s.ctl = -1;
	T_EQ(syscall(SYS_delete_module, "mpool", O_NONBLOCK), 0);
	T_EQ(load(ko, all, &left), 0);
	total = all - left;
	T_OK(total > ours);
	for (n = total - ours; n <= total + 1; n++) {
		T_EQ(syscall(SYS_delete_module, "mpool", O_NONBLOCK), 0);
		rc = load(ko, n, &left);
		failed += rc < 0;
		if (!rc)
			continue;
		if (left)
			T_FAIL("the module does not load: error %d", -rc);
		rc = load(ko, 0, &left);
		if (rc)
			T_FAIL("after a failed load (fault %u) the next one: error %d", n, -rc);
	}
	printf("# %-20s %3u places, %3u failed loads\n", "load", ours, failed);
	T_OK(failed);
	s.ctl = ioc_ctl_open();
	T_OK(s.ctl >= 0);
}

/* ---- beginning ---- */

static int fill(int fd)
{
	unsigned int i;

	/* null_blk takes memory at the first write of a page: that is not to fail */
	memset(s.buf, 0, OBJ);
	for (i = 0; i < DISK_MIB * (1u << 20) / OBJ; i++)
		if (pwrite(fd, s.buf, OBJ, (off_t)i * OBJ) != OBJ)
			return -errno;
	return fsync(fd) ? -errno : 0;
}

static int begin(const char **why)
{
	char name[24];
	unsigned int i;
	int rc;

	s.nth = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
	if (s.nth < 0) {
		*why = "the kernel injects no faults";
		return -ENODEV;
	}
	*why = "no debugfs, or faults of another kind";
	rc = faults_begin();
	if (rc)
		return rc;
	rc = ioc_disks_init(why);
	if (rc)
		return rc;
	*why = "no memory";
	if (posix_memalign((void **)&s.buf, 4096, OBJ) || pipe2(s.pipe, O_NONBLOCK | O_CLOEXEC))
		return -ENOMEM;
	*why = "a disk cannot be made";
	for (i = 0; i < NDISKS; i++) {
		snprintf(name, sizeof(name), "nth%u", i);
		/* a discarded page would be taken again */
		rc = ioc_disk_make(&s.disk[i], name, DISK_MIB, IOC_DISK_NO_DISCARD, 0);
		rc = rc ? rc : fill(s.disk[i].dk_fd);
		if (rc)
			return rc;
	}
	*why = "no io_uring";
	rc = io_uring_queue_init(4, &s.ring, 0);
	if (rc)
		return rc;
	*why = "/dev/mpoolctl cannot be opened";
	s.ctl = ioc_ctl_open();
	/* a fault in the program's own memory would count */
	return s.ctl < 0 ? s.ctl : mlockall(MCL_CURRENT | MCL_FUTURE) ? -errno : 0;
}

int main(void)
{
	const char *why = "";
	unsigned int i;
	int rc;

	if (!getenv("MPK_VM") || access("/dev/mpoolctl", F_OK))
		return t_skip_all("needs the module in a machine of its own");
	rc = begin(&why);
	if (rc == -ENODEV)
		return t_skip_all(why);
	if (rc) {
		printf("Bail out! %s: error %d\n", why, -rc);
		return 1;
	}
	T_RUN(every_call_survives_lack_of_memory);
	T_RUN(every_call_survives_the_end_of_memory);
	T_RUN(every_call_survives_a_failing_disk);
	T_RUN(loading_survives_lack_of_memory);
	t_figure("failing memory", "module: %u faults in %zu calls, one by one", nfaults,
		 sizeof(ops) / sizeof(ops[0]));
	close_all();
	close(s.ctl);
	for (i = 0; i < NDISKS; i++)
		ioc_disk_remove(&s.disk[i]);
	return t_done();
}
