/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Descriptors of objects, opened when they are needed. A pool has tens of
 * thousands of objects and a process perhaps 64 descriptors, so at most a
 * quarter of RLIMIT_NOFILE is kept, the least recently used one goes first.
 *
 * A pin keeps a descriptor where it is. Pins are short: a plain transfer has one
 * during its call, a request of io_uring until the ring has taken it (it holds
 * the file itself from then on). No thread waits for anything but the kernel while
 * holding a pin, so waiting for a pin to end is safe; a queue that holds pins
 * itself asks not to wait, and hands them over first. A descriptor that
 * mpool_obj_place() lent out is pinned as long as its object has handles.
 *
 * Descriptors are closed without km_lock: taken off the list first, no thread
 * can find them any more.
 */
#include <errno.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "kmod.h"

#define FDS_MIN		4u
#define FDS_MAX		65536u
#define WAIT_MS		2000	/* for a pin to end, when the system has no descriptor left */

void mpl_fdcache_init(struct mpl_kmod *km)
{
	struct rlimit rl = { .rlim_cur = 64 };
	pthread_condattr_t ca;
	rlim_t n;

	pthread_condattr_init(&ca);
	pthread_condattr_setclock(&ca, CLOCK_MONOTONIC);
	pthread_cond_init(&km->km_cond, &ca);
	pthread_condattr_destroy(&ca);
	getrlimit(RLIMIT_NOFILE, &rl);
	n = rl.rlim_cur == RLIM_INFINITY ? FDS_MAX : rl.rlim_cur / 4;
	km->km_fds_max = (unsigned)(n < FDS_MIN ? FDS_MIN : n > FDS_MAX ? FDS_MAX : n);
}

/* ---- the list; km_lock is held ---- */

static void lru_del(struct mpl_kmod *km, struct mpl_kobj *ko)
{
	if (ko->ko_prev)
		ko->ko_prev->ko_next = ko->ko_next;
	else
		km->km_oldest = ko->ko_next;
	if (ko->ko_next)
		ko->ko_next->ko_prev = ko->ko_prev;
	else
		km->km_newest = ko->ko_prev;
	ko->ko_prev = ko->ko_next = NULL;
	km->km_nfds--;
}

static void lru_add(struct mpl_kmod *km, struct mpl_kobj *ko)
{
	ko->ko_prev = km->km_newest;
	ko->ko_next = NULL;
	if (km->km_newest)
		km->km_newest->ko_next = ko;
	else
		km->km_oldest = ko;
	km->km_newest = ko;
	km->km_nfds++;
}

int mpl_fdcache_take(struct mpl_kmod *km, struct mpl_kobj *ko)
{
	int fd = ko->ko_fd;

	if (fd >= 0) {
		lru_del(km, ko);
		ko->ko_fd = -1;
	}
	return fd;
}

/* the least recently used descriptor that is not pinned; -1: all are */
static int evict(struct mpl_kmod *km)
{
	struct mpl_kobj *ko;

	for (ko = km->km_oldest; ko; ko = ko->ko_next)
		if (!ko->ko_pins)
			return mpl_fdcache_take(km, ko);
	return -1;
}

/* ---- opening ---- */

static int obj_open(struct mpl_kmod *km, const struct mpl_kobj *ko, int is_write)
{
	struct mpool_ioc_open op = {
		.op_arg.ma_flags = MPOOL_IOC_OPEN_DIRECT | MPOOL_IOC_OPEN_CLOEXEC |
				   (is_write ? MPOOL_IOC_OPEN_WRITE : 0),
		.op_id = ko->ko_id,
	};

	int fd = mpl_ioc(km->km_fd, MPOOL_IOC_OPEN, &op);

	if (fd < 0)
		return fd;
	fd = mpool_fd_up(fd);
	return fd < 0 ? -errno : fd;
}

/* Without a descriptor left: waits until one of ours can go. 0: try again. */
static int wait_for_pin(struct mpl_kmod *km)
{
	struct timespec ts;
	int fd, rc = 0;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	ts.tv_sec += WAIT_MS / 1000;
	pthread_mutex_lock(&km->km_lock);
	while ((fd = evict(km)) < 0 && km->km_nfds && !rc)
		rc = pthread_cond_timedwait(&km->km_cond, &km->km_lock, &ts);
	pthread_mutex_unlock(&km->km_lock);
	if (fd < 0)
		return mpl_err(MPL_FDS, "pool %s: no file descriptor is left for an object",
			       km->km_name);
	close(fd);
	return 0;
}

/* km_lock is held and given up meanwhile; ko_is_opening keeps others away. The descriptor. */
static int open_locked(struct mpl_kmod *km, struct mpl_kobj *ko, int is_write, int may_wait)
{
	int old = -1, fd;

	while (km->km_nfds >= km->km_fds_max) {
		old = evict(km);
		if (old < 0)
			break;	/* all are in use at this moment: one more */
		pthread_mutex_unlock(&km->km_lock);
		close(old);
		pthread_mutex_lock(&km->km_lock);
	}
	pthread_mutex_unlock(&km->km_lock);
	do {
		fd = obj_open(km, ko, is_write);
	} while ((fd == -EMFILE || fd == -ENFILE) && may_wait && !wait_for_pin(km));
	pthread_mutex_lock(&km->km_lock);
	return fd;
}

/*
 * One that may be written is opened so at once: what is read while it grows is
 * written too. What is known of the state may be old, hence the second try. Only
 * then: for want of memory, say, it would stay so for as long as it is pinned, and
 * what is written be refused.
 */
static int open_mode(struct mpl_kmod *km, struct mpl_kobj *ko, int is_write, int may_wait)
{
	int is_done = ko->ko_flags & (MPOOL_OBJ_COMMITTED | MPOOL_OBJ_SEALED | MPOOL_OBJ_DELETED);
	int as_write = is_write || (!is_done && !km->km_pool.mp_is_rdonly);
	int fd = open_locked(km, ko, as_write, may_wait);

	if ((fd == -EROFS || fd == -EACCES) && as_write && !is_write) {
		as_write = 0;
		fd = open_locked(km, ko, 0, may_wait);
	}
	if (fd >= 0) {
		ko->ko_fd = fd;
		ko->ko_is_writable = as_write;
		lru_add(km, ko);
	}
	return fd;
}

int mpl_fdcache_pin(struct mpl_kmod *km, struct mpl_kobj *ko, int is_write, int may_wait)
{
	int fd, old = -1;

	pthread_mutex_lock(&km->km_lock);
	while (ko->ko_is_opening)
		pthread_cond_wait(&km->km_cond, &km->km_lock);
	fd = ko->ko_fd;
	if (fd >= 0 && is_write && !ko->ko_is_writable) {
		/* it was sealed when it was opened, and stays so; let the kernel say it */
		if (!ko->ko_pins)
			old = mpl_fdcache_take(km, ko);
		fd = -1;
	}
	if (fd >= 0) {
		lru_del(km, ko);
		lru_add(km, ko);
	} else if (ko->ko_fd >= 0) {
		fd = mpl_err_as(MPL_DATAWRITE, -EINVAL, "object %llx is not open for writing",
				(unsigned long long)ko->ko_id);
	} else {
		ko->ko_is_opening = 1;
		fd = open_mode(km, ko, is_write, may_wait);
		ko->ko_is_opening = 0;
		pthread_cond_broadcast(&km->km_cond);
	}
	if (fd >= 0)
		ko->ko_pins++;
	pthread_mutex_unlock(&km->km_lock);
	if (old >= 0)
		close(old);
	return fd;
}

void mpl_fdcache_unpin(struct mpl_kmod *km, struct mpl_kobj **ko, unsigned n)
{
	unsigned i;

	pthread_mutex_lock(&km->km_lock);
	for (i = 0; i < n; i++)
		ko[i]->ko_pins--;
	pthread_cond_broadcast(&km->km_cond);
	pthread_mutex_unlock(&km->km_lock);
}
