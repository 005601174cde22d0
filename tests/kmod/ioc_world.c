// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * What the fuzzer's threads share, the canary, and memory that arrives late.
 */
#include "ioc_world.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "harness.h"

#define NFDS	48
#define NIDS	256
#define NGOOD	64
#define DISK_MIB	24

struct slot {
	int fd;
	enum fd_kind kind;
	bool is_stable;
};

static struct {
	pthread_mutex_t lock;	/* of the tables, never held over a call under test */
	struct ioc_disk disk[NDISKS], canary[2], zoned, tiny;
	struct slot fd[NFDS];
	struct { uint64_t id; int fd; } id[ID_KINDS][NIDS];
	unsigned int nid[ID_KINDS];
	uint64_t good[NGOOD], good_len[NGOOD];
	unsigned int ngood;
	int ctl, pool, canary_fd;
	uint64_t canary_id[CANARY_OBJS];
	uint64_t canary_ios[2], canary_secs[2];
	struct mpool_ioc_info canary_info;
	struct mpool_ioc_obj before[MPOOL_IOC_BATCH_MAX];
	int nbefore;		/* of fz0, at the end of the last epoch; -1: unknown */
	bool is_fz0;		/* made and not destroyed */
	int uffd;
	uint8_t *slow, *fresh;
	pthread_t slow_thread;
} w = { .lock = PTHREAD_MUTEX_INITIALIZER, .nbefore = -1, .uffd = -1 };

static atomic_uint nfindings;

void finding(const char *fmt, ...)
{
	char line[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	if (atomic_fetch_add(&nfindings, 1) < 40) {
		printf("# FOUND: %s\n", line);
		fflush(stdout);
	}
}

unsigned int findings(void)
{
	return atomic_load(&nfindings);
}

int world_ctl(void) { return w.ctl; }
int world_pool(void) { return w.pool; }
int world_canary(void) { return w.canary_fd; }
uint8_t *world_slow(void) { return w.slow; }
bool world_has_slow(void) { return w.uffd >= 0; }

/* ---- memory that arrives late ---- */

static void *slow_main(void *arg)
{
	struct uffdio_copy copy;
	struct uffd_msg msg;

	while (read(w.uffd, &msg, sizeof(msg)) == sizeof(msg)) {
		if (msg.event != UFFD_EVENT_PAGEFAULT)
			continue;
		/* long enough for other threads to run into whatever is half done */
		usleep(300 + msg.arg.pagefault.address / GEN_PAGE % 4 * 500);
		memset(&copy, 0, sizeof(copy));
		copy.dst = msg.arg.pagefault.address & ~(uint64_t)(GEN_PAGE - 1);
		copy.src = (uintptr_t)w.fresh;
		copy.len = GEN_PAGE;
		if (ioctl(w.uffd, UFFDIO_COPY, &copy) && errno == EEXIST) {
			struct uffdio_range wake = { .start = copy.dst, .len = GEN_PAGE };

			ioctl(w.uffd, UFFDIO_WAKE, &wake);
		}
	}
	return arg;
}

static int slow_init(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };

	/* a record may be longer than it: behind it nothing is there */
	w.slow = mmap(NULL, GEN_SLOW + MPOOL_IOC_RECORD_MAX, PROT_NONE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	w.fresh = mmap(NULL, GEN_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (w.slow == MAP_FAILED || w.fresh == MAP_FAILED ||
	    mprotect(w.slow, GEN_SLOW, PROT_READ | PROT_WRITE))
		return -ENOMEM;
	memset(w.fresh, 0, GEN_PAGE);
	w.uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	if (w.uffd < 0)
		return 0;	/* then it is memory like any other */
	reg.range.start = (uintptr_t)w.slow;
	reg.range.len = GEN_SLOW;
	if (ioctl(w.uffd, UFFDIO_API, &api) || ioctl(w.uffd, UFFDIO_REGISTER, &reg) ||
	    pthread_create(&w.slow_thread, NULL, slow_main, NULL)) {
		close(w.uffd);
		w.uffd = -1;
	}
	return 0;
}

void world_slow_again(void)
{
	if (w.uffd >= 0)
		madvise(w.slow, GEN_SLOW, MADV_DONTNEED);
}

/* ---- tables ---- */

struct fd_pick world_fd(uint64_t *rng, enum fd_kind kind)
{
	unsigned int start = t_rand(rng) % NFDS, i;
	struct fd_pick p = { .fp_fd = -1, .fp_kind = kind };

	pthread_mutex_lock(&w.lock);
	for (i = 0; i < NFDS; i++) {
		struct slot *s = &w.fd[(start + i) % NFDS];

		if (s->fd < 0 || s->kind != kind)
			continue;
		p.fp_fd = s->fd;
		p.fp_is_stable = s->is_stable;
		break;
	}
	pthread_mutex_unlock(&w.lock);
	return p;
}

static void fd_put(int fd, enum fd_kind kind, bool is_stable)
{
	unsigned int i;

	if (fd < 0)
		return;
	pthread_mutex_lock(&w.lock);
	for (i = 0; i < NFDS; i++) {
		if (w.fd[i].fd >= 0)
			continue;
		w.fd[i] = (struct slot){ .fd = fd, .kind = kind, .is_stable = is_stable };
		fd = -1;
		break;
	}
	pthread_mutex_unlock(&w.lock);
	if (fd >= 0)
		close(fd);
}

void world_fd_add(int fd, enum fd_kind kind)
{
	fd_put(fd, kind, false);
}

void world_fd_close(uint64_t *rng)
{
	unsigned int start = t_rand(rng) % NFDS, i;
	int fd = -1;

	pthread_mutex_lock(&w.lock);
	for (i = 0; i < NFDS && fd < 0; i++) {
		struct slot *s = &w.fd[(start + i) % NFDS];

		if (s->fd < 0 || s->is_stable)
			continue;
		fd = s->fd;
		s->fd = -1;
	}
	pthread_mutex_unlock(&w.lock);
	/* others may still be in a call with it: that is the point */
	if (fd >= 0)
		close(fd);
}

int world_disk_fd(uint64_t *rng)
{
	unsigned int r = t_rand(rng) % 64;

	if (r < 2)
		return w.canary[r].dk_fd;
	if (r == 2)
		return w.zoned.dk_fd;
	if (r == 3)
		return w.tiny.dk_fd;
	/* the first two are fz0's while an epoch lasts */
	if (r < 12)
		return w.disk[r % 2].dk_fd;
	return w.disk[2 + r % (NDISKS - 2)].dk_fd;
}

bool world_fd_find(int fd, struct fd_pick *p)
{
	bool is_found = false;
	unsigned int i;

	pthread_mutex_lock(&w.lock);
	for (i = 0; i < NFDS && fd >= 0 && !is_found; i++) {
		is_found = w.fd[i].fd == fd;
		if (is_found)
			*p = (struct fd_pick){ .fp_fd = fd, .fp_kind = w.fd[i].kind,
					       .fp_is_stable = w.fd[i].is_stable };
	}
	pthread_mutex_unlock(&w.lock);
	return is_found;
}

void world_id_add(uint64_t id, enum id_kind kind, int fd)
{
	unsigned int i;

	pthread_mutex_lock(&w.lock);
	i = w.nid[kind]++ % NIDS;
	w.id[kind][i].id = id;
	w.id[kind][i].fd = fd;
	pthread_mutex_unlock(&w.lock);
}

uint64_t world_id(uint64_t *rng, enum id_kind kind, int *fd)
{
	uint64_t r = t_rand(rng), id = 0;
	unsigned int n, i;

	*fd = -1;
	if (r % 64 == 0)
		return gen_boundary(rng, 8);
	pthread_mutex_lock(&w.lock);
	n = w.nid[kind] < NIDS ? w.nid[kind] : NIDS;
	/* mostly recent ones */
	if (n && r % 4)
		n = n < 12 ? n : 12;
	if (n) {
		i = (w.nid[kind] - 1 - (r >> 8) % n) % NIDS;
		id = w.id[kind][i].id;
		*fd = w.id[kind][i].fd;
	}
	pthread_mutex_unlock(&w.lock);
	return r % 61 == 0 ? id + 1 : id;
}

void world_good_add(uint64_t id, uint64_t length)
{
	pthread_mutex_lock(&w.lock);
	w.good[w.ngood % NGOOD] = id;
	w.good_len[w.ngood++ % NGOOD] = length;
	pthread_mutex_unlock(&w.lock);
}

bool world_good(uint64_t *rng, uint64_t *id, uint64_t *length)
{
	unsigned int n, i;

	pthread_mutex_lock(&w.lock);
	n = w.ngood < NGOOD ? w.ngood : NGOOD;
	i = n ? t_rand(rng) % n : 0;
	*id = w.good[i];
	*length = w.good_len[i];
	pthread_mutex_unlock(&w.lock);
	return n > 0;
}

const char *world_name(uint64_t *rng)
{
	static const char *const names[] = { "fz1", "fz1", "fz1", "fz2", "fz2", "fz2", "fz3", "" };

	return names[t_rand(rng) % 8];
}

const char *world_root(uint64_t *rng)
{
	static const char *const names[] = { "r0", "r1", "r2", "r3" };

	return names[t_rand(rng) % 4];
}

/* ---- the canary ---- */

static int canary_fill(int fd)
{
	uint8_t *buf;
	int rc = 0, ofd;
	unsigned int i;

	if (posix_memalign((void **)&buf, GEN_PAGE, CANARY_BYTES))
		return -ENOMEM;
	for (i = 0; i < CANARY_OBJS && !rc; i++) {
		uint64_t id;

		rc = ioc_alloc(fd, 1, 0, CANARY_BYTES, 7, &id);
		if (rc)
			break;
		w.canary_id[i] = id;
		ofd = ioc_obj_open(fd, id, MPOOL_IOC_OPEN_WRITE | MPOOL_IOC_OPEN_DIRECT);
		if (ofd < 0) {
			rc = ofd;
			break;
		}
		ioc_pattern(buf, id, 0, CANARY_BYTES);
		if (pwrite(ofd, buf, CANARY_BYTES, 0) != CANARY_BYTES)
			rc = -errno;
		close(ofd);
		rc = rc ? rc : ioc_op(fd, 1, id, CANARY_BYTES);
		rc = rc ? rc : ioc_drop(fd, id);
	}
	free(buf);
	return rc;
}

static int canary_counters(uint64_t ios[2], uint64_t secs[2])
{
	int rc = ioc_disk_writes(&w.canary[0], &ios[0], &secs[0]);

	return rc ? rc : ioc_disk_writes(&w.canary[1], &ios[1], &secs[1]);
}

static int canary_make(void)
{
	struct mpool_ioc_dev dev[2] = {
		{ .id_fd = w.canary[0].dk_fd }, { .id_fd = w.canary[1].dk_fd, .id_mclass = 1 },
	};
	int rc, fd;

	rc = ioc_create(w.ctl, CANARY, dev, 2, 0644, 0);
	rc = rc ? rc : ioc_activate(w.ctl, dev, 2, MPOOL_IOC_ACTIVATE_TRUST);
	if (rc)
		return rc;
	fd = ioc_pool_open(CANARY, O_RDWR);
	if (fd < 0)
		return fd;
	rc = canary_fill(fd);
	close(fd);
	if (rc)
		return rc;
	w.canary_fd = ioc_pool_open(CANARY, O_RDONLY);
	if (w.canary_fd < 0)
		return w.canary_fd;
	rc = ioc_info(w.canary_fd, &w.canary_info);
	return rc ? rc : canary_counters(w.canary_ios, w.canary_secs);
}

static void canary_read(unsigned int i, uint8_t *buf)
{
	int fd = ioc_obj_open(w.canary_fd, w.canary_id[i], 0);
	long bad;

	if (fd < 0) {
		finding("the canary's object %u cannot be opened: error %d", i, -fd);
		return;
	}
	if (pread(fd, buf, CANARY_BYTES, 0) != CANARY_BYTES)
		finding("the canary's object %u cannot be read: error %d", i, errno);
	else if ((bad = ioc_pattern_check(buf, w.canary_id[i], 0, CANARY_BYTES)) >= 0)
		finding("the canary's object %u changed at byte %ld", i, bad);
	close(fd);
}

void world_check_canary(void)
{
	struct mpool_ioc_obj ob[CANARY_OBJS + 1];
	struct mpool_ioc_objects os = { .os_max = CANARY_OBJS + 1, .os_out = (uintptr_t)ob };
	struct mpool_ioc_info in;
	uint64_t ios[2], secs[2];
	uint8_t *buf = malloc(CANARY_BYTES);
	unsigned int i;
	int rc = ioc_call(w.canary_fd, MPOOL_IOC_OBJECTS, &os);

	if (rc != CANARY_OBJS)
		finding("the canary lists %d objects, not %d", rc, CANARY_OBJS);
	for (i = 0; i < CANARY_OBJS && rc == CANARY_OBJS; i++)
		if (ob[i].ob_id != w.canary_id[i] || ob[i].ob_length != CANARY_BYTES)
			finding("the canary's object %u is another one", i);
	for (i = 0; i < CANARY_OBJS && buf; i++)
		canary_read(i, buf);
	free(buf);
	rc = ioc_info(w.canary_fd, &in);
	if (rc || in.in_gen != w.canary_info.in_gen || in.in_state != w.canary_info.in_state ||
	    memcmp(in.in_name, w.canary_info.in_name, sizeof(in.in_name)) ||
	    in.in_mode != w.canary_info.in_mode || in.in_uid != w.canary_info.in_uid)
		finding("the canary's properties changed");
	if (canary_counters(ios, secs))
		finding("the canary's disks are gone");
	else if (memcmp(ios, w.canary_ios, sizeof(ios)) ||
		 memcmp(secs, w.canary_secs, sizeof(secs)))
		finding("the canary's disks were written");
}

/* ---- epochs ---- */

void world_check_faults(void)
{
	struct mpool_ioc_info in;
	int rc = ioc_info(w.pool, &in);

	if (rc)
		finding("INFO of an open pool: error %d", -rc);
	else if (in.in_state & MPOOL_IOC_POOL_FAULT)
		finding("the pool stopped: MP%04u %s", in.in_fault_id, in.in_fault);
}

static int list_fz0(struct mpool_ioc_obj *ob)
{
	struct mpool_ioc_objects os = { .os_max = MPOOL_IOC_BATCH_MAX, .os_out = (uintptr_t)ob };

	return ioc_call(w.pool, MPOOL_IOC_OBJECTS, &os);
}

/* after a restart the durable objects are those of before */
static void compare_fz0(void)
{
	static struct mpool_ioc_obj now[MPOOL_IOC_BATCH_MAX];
	int n = list_fz0(now), i;

	if (n != w.nbefore) {
		finding("%d objects after a restart, %d before", n, w.nbefore);
		return;
	}
	for (i = 0; i < n; i++)
		if (now[i].ob_id != w.before[i].ob_id || now[i].ob_kind != w.before[i].ob_kind ||
		    now[i].ob_tag != w.before[i].ob_tag ||
		    now[i].ob_capacity != w.before[i].ob_capacity ||
		    /* the place where writing goes on is not kept for what is not sealed */
		    ((now[i].ob_flags & 3) && now[i].ob_length != w.before[i].ob_length)) {
			finding("object %llu changed over a restart",
				(unsigned long long)now[i].ob_id);
			return;
		}
}

static void fz0_devs(struct mpool_ioc_dev dev[2])
{
	dev[0] = (struct mpool_ioc_dev){ .id_fd = w.disk[0].dk_fd };
	dev[1] = (struct mpool_ioc_dev){ .id_fd = w.disk[1].dk_fd, .id_mclass = 1 };
}

/* objects that stay open: one that may still be written, and one that may grow */
static void open_objects(void)
{
	uint64_t id;
	uint32_t kind;

	for (kind = 1; kind <= 2; kind++) {
		if (ioc_alloc(w.pool, kind, 0, 64 * GEN_PAGE, 5, &id))
			continue;	/* the pool may be full */
		fd_put(ioc_obj_open(w.pool, id, MPOOL_IOC_OPEN_WRITE | MPOOL_IOC_OPEN_DIRECT),
		       FD_OBJ, true);
	}
}

void world_epoch_begin(uint64_t *rng)
{
	struct mpool_ioc_dev dev[2];
	unsigned int i;
	int rc = 0;

	fz0_devs(dev);
	/* now and then a new one */
	if (!w.is_fz0 || t_rand(rng) % 4 == 0) {
		rc = ioc_create(w.ctl, "fz0", dev, 2, 0660, MPOOL_IOC_CREATE_FORCE);
		w.nbefore = -1;
		memset(w.nid, 0, sizeof(w.nid));
		w.ngood = 0;
	}
	w.is_fz0 = !rc;
	rc = rc ? rc : ioc_activate(w.ctl, dev, 2, 0);
	if (rc)
		finding("the pool cannot be activated: error %d", -rc);
	w.pool = ioc_pool_open("fz0", O_RDWR);
	if (w.pool < 0)
		finding("the pool cannot be opened: error %d", -w.pool);
	if (!rc && w.nbefore >= 0)
		compare_fz0();
	for (i = 0; i < 4; i++) {
		fd_put(ioc_pool_open("fz0", O_RDWR), FD_POOL, i < 2);
		fd_put(ioc_pool_open("fz0", O_RDONLY), FD_POOL_RO, i < 2);
	}
	for (i = 0; i < 3; i++) {
		fd_put(open("/dev/mpoolctl", O_RDWR | O_CLOEXEC), FD_CTL, true);
		fd_put(ioc_pool_open(CANARY, O_RDONLY), FD_CANARY, true);
	}
	fd_put(open("/dev/null", O_RDWR | O_CLOEXEC), FD_JUNK, true);
	fd_put(open("/proc/self/status", O_RDONLY | O_CLOEXEC), FD_JUNK, true);
	fd_put(open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC), FD_JUNK, true);
	fd_put(open(w.disk[2].dk_path, O_RDONLY | O_CLOEXEC), FD_JUNK, true);
	fd_put(open(w.disk[2].dk_path, O_PATH | O_CLOEXEC), FD_JUNK, true);
	fd_put(memfd_create("fuzz", MFD_CLOEXEC), FD_JUNK, true);
	open_objects();
	for (i = 0; i < CANARY_OBJS; i += 4)
		fd_put(ioc_obj_open(w.canary_fd, w.canary_id[i], MPOOL_IOC_OPEN_CLOEXEC),
		       FD_OBJ_RO, true);
}

/* every pool but the canary; with no file open this must succeed */
static void deactivate_all(void)
{
	struct mpool_ioc_list li = { 0 };
	unsigned int i, rounds = 0;
	int rc;

	while (!(rc = ioc_call(w.ctl, MPOOL_IOC_LIST, &li)) && rounds++ < 100) {
		if (!strcmp(li.li_name, CANARY)) {
			memcpy(li.li_after, li.li_name, sizeof(li.li_after));
			continue;
		}
		/* the last work of a closed ring runs a little later */
		for (i = 0; i < 100; i++) {
			rc = ioc_deactivate(w.ctl, li.li_name);
			if (rc != -EBUSY)
				break;
			usleep(20000);
		}
		if (rc) {
			finding("pool %s cannot be deactivated: error %d, %u files open",
				li.li_name, -rc, li.li_opens);
			memcpy(li.li_after, li.li_name, sizeof(li.li_after));
		}
	}
	if (rc != -ENOENT)
		finding("LIST ends with error %d", -rc);
}

void world_epoch_end(void)
{
	unsigned int i;

	world_check_faults();
	for (i = 0; i < NFDS; i++) {
		if (w.fd[i].fd >= 0)
			close(w.fd[i].fd);
		w.fd[i].fd = -1;
	}
	w.nbefore = list_fz0(w.before);
	/* more than one call shows: not compared */
	if (w.nbefore == MPOOL_IOC_BATCH_MAX)
		w.nbefore = -1;
	close(w.pool);
	deactivate_all();
	world_check_canary();
}

unsigned long world_life(uint64_t *rng, int ctl, int *rc)
{
	static const char *const names[] = { "fz1", "fz2", "fz3" };
	uint64_t r = t_rand(rng);
	unsigned int i = r % 3;
	struct mpool_ioc_dev dev = { .id_fd = w.disk[2 + i].dk_fd };
	struct mpool_ioc_dev last = { .id_fd = w.disk[NDISKS - 1].dk_fd, .id_mclass = 1 };
	struct mpool_ioc_rename rn = { 0 };
	struct mpool_ioc_name na = { 0 };
	struct mpool_ioc_add ad = { .ad_ndevs = 1, .ad_devs = (uintptr_t)&last };

	snprintf(rn.rn_from, sizeof(rn.rn_from), "%s", names[i]);
	snprintf(rn.rn_to, sizeof(rn.rn_to), "%s", names[(r >> 16) % 3]);
	memcpy(na.na_name, rn.rn_from, sizeof(na.na_name));
	memcpy(ad.ad_name, rn.rn_from, sizeof(ad.ad_name));
	switch ((r >> 8) % 9) {
	case 0:
		*rc = ioc_create(ctl, names[i], &dev, 1, 0660, MPOOL_IOC_CREATE_FORCE);
		return MPOOL_IOC_CREATE;
	case 1:
	case 2:
	case 3:
		*rc = ioc_activate(ctl, &dev, 1, r >> 20 & 3 ? 0 : MPOOL_IOC_ACTIVATE_RDONLY);
		return MPOOL_IOC_ACTIVATE;
	case 4:
	case 5:
		*rc = ioc_deactivate(ctl, names[i]);
		return MPOOL_IOC_DEACTIVATE;
	case 6:
		*rc = ioc_call(ctl, MPOOL_IOC_RENAME, &rn);
		return MPOOL_IOC_RENAME;
	case 7:
		ad.ad_arg.ma_flags = r >> 24 & 1 ? MPOOL_IOC_CREATE_PLAN : 0;
		*rc = ioc_call(ctl, MPOOL_IOC_ADD, &ad);
		return MPOOL_IOC_ADD;
	default:
		*rc = ioc_call(ctl, MPOOL_IOC_GROW, &na);
		return MPOOL_IOC_GROW;
	}
}

/* ---- beginning and end ---- */

int world_init(const char **why)
{
	char name[24];
	unsigned int i;
	int rc;

	for (i = 0; i < NFDS; i++)
		w.fd[i].fd = -1;
	rc = ioc_disks_init(why);
	if (rc)
		return rc;
	/* an open() waits so long for the holder of a lease: none here lets go of one */
	*why = "leases cannot be made short";
	rc = ioc_put("/proc/sys/fs/lease-break-time", "1");
	if (rc)
		return rc;
	*why = "a disk cannot be made";
	for (i = 0; i < NDISKS && !rc; i++) {
		snprintf(name, sizeof(name), "fuzz%u", i);
		rc = ioc_disk_make(&w.disk[i], name, DISK_MIB, 0, i % 2 ? 20000 : 0);
	}
	rc = rc ? rc : ioc_disk_make(&w.canary[0], "canary0", DISK_MIB, 0, 0);
	rc = rc ? rc : ioc_disk_make(&w.canary[1], "canary1", DISK_MIB, 0, 0);
	rc = rc ? rc : ioc_disk_make(&w.zoned, "fuzzz", 16, IOC_DISK_ZONED, 0);
	rc = rc ? rc : ioc_disk_make(&w.tiny, "fuzzt", 1, 0, 0);
	rc = rc ? rc : slow_init();
	if (rc)
		return rc;
	*why = "/dev/mpoolctl cannot be opened";
	w.ctl = ioc_ctl_open();
	if (w.ctl < 0)
		return w.ctl;
	*why = "the canary cannot be made";
	return canary_make();
}

void world_exit(void)
{
	unsigned int i;
	int rc;

	world_check_canary();
	close(w.canary_fd);
	rc = ioc_deactivate(w.ctl, CANARY);
	if (rc)
		finding("the canary cannot be deactivated: error %d", -rc);
	close(w.ctl);
	for (i = 0; i < NDISKS; i++)
		ioc_disk_remove(&w.disk[i]);
	ioc_disk_remove(&w.canary[0]);
	ioc_disk_remove(&w.canary[1]);
	ioc_disk_remove(&w.zoned);
	ioc_disk_remove(&w.tiny);
}
