// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * From create to destroy: what each step refuses, what it leaves on the media,
 * and that neither a pool nor the module goes away while anything is open.
 */
#include <grp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/syscall.h>

#include "kt.h"

#define CYCLES	100
#define RENAMES	2000
#define NAME_TAKEN	308	/* MP0308 */

static struct kt_rig rig;

static int pool_is(const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "/dev/mpool/%s", name);
	return access(path, F_OK) == 0;
}

static int activate(uint32_t flags)
{
	int rc = ioc_activate(rig.ctl, rig.dev, 2, flags);

	if (rc == 0)
		kt_settle("/dev/mpool/ktlife", 1);
	return rc;
}

static void disks_come_up(void)
{
	int i;

	strcpy(rig.name, "ktlife");
	rig.rw = rig.ro = -1;
	for (i = 0; i < 2; i++) {
		T_EQ(ioc_disk_make(&rig.disk[i], i ? "ktdisk1" : "ktdisk0", 64, false, 0), 0);
		rig.dev[i] = (struct mpool_ioc_dev){ .id_fd = rig.disk[i].dk_fd,
						     .id_mclass = (uint32_t)i };
	}
	rig.ctl = ioc_ctl_open();
	T_OK(rig.ctl >= 0);
}

/* all bytes of a disk as they are on the media, in one number */
static uint64_t disk_sum(int i)
{
	static uint64_t buf[1 << 17];
	uint64_t sum = 0;
	ssize_t n;
	off_t at = 0;
	size_t k;
	int fd = open(rig.disk[i].dk_path, O_RDONLY | O_DIRECT);
	void *p = NULL;

	T_OK(fd >= 0 && posix_memalign(&p, 4096, sizeof(buf)) == 0);
	while ((n = pread(fd, p, sizeof(buf), at)) > 0) {
		memcpy(buf, p, (size_t)n);
		for (k = 0; k < (size_t)n / 8; k++)
			sum = (sum ^ buf[k]) * 0x100000001b3ull + (sum >> 29);
		at += n;
	}
	free(p);
	close(fd);
	T_EQ(n, 0);
	return sum;
}

static void a_plan_writes_nothing(void)
{
	uint64_t before = disk_sum(0) ^ disk_sum(1);

	KT_EQ(ioc_create(rig.ctl, "ktlife", rig.dev, 2, 0600, MPOOL_IOC_CREATE_PLAN), 0);
	T_EQ(disk_sum(0) ^ disk_sum(1), before);
	KT_EQ(ioc_activate(rig.ctl, rig.dev, 2, 0), -EINVAL);
}

static void create_makes_a_pool_that_is_not_active(void)
{
	struct mpool_ioc_probe pr = { .pr_fd = rig.disk[0].dk_fd };

	KT_EQ(ioc_create(rig.ctl, "ktlife", rig.dev, 2, 0640, 0), 0);
	T_OK(!pool_is("ktlife"));
	KT_EQ(kt_call(rig.ctl, MPOOL_IOC_PROBE, &pr), 0);
	T_EQ(pr.pr_state, 2);
	T_EQ(pr.pr_is_active, 0);
	T_EQ(pr.pr_ndevs, 2);
	T_STREQ(pr.pr_name, "ktlife");
}

static void create_spares_what_it_finds(void)
{
	uint64_t before = disk_sum(0) ^ disk_sum(1);

	T_OK(ioc_create(rig.ctl, "other", rig.dev, 2, 0600, 0) < 0);
	T_OK(ioc_create(rig.ctl, "other", rig.dev, 1, 0600, 0) < 0);
	T_EQ(disk_sum(0) ^ disk_sum(1), before);
}

static void activation_makes_the_node_with_roots_rights(void)
{
	struct stat st;

	KT_EQ(activate(0), 0);
	T_EQ(stat("/dev/mpool/ktlife", &st), 0);
	T_OK(S_ISCHR(st.st_mode));
	T_EQ(st.st_mode & 0777, 0600);
	T_EQ(st.st_uid, 0);
	T_EQ(access("/sys/class/mpool/ktlife", F_OK), 0);
}

static void activation_happens_once(void)
{
	KT_EQ(ioc_activate(rig.ctl, rig.dev, 2, 0), -EEXIST);
	KT_EQ(ioc_activate(rig.ctl, rig.dev, 2, MPOOL_IOC_ACTIVATE_RDONLY), -EEXIST);
	KT_EQ(ioc_activate(rig.ctl, rig.dev, 1, 0), -EEXIST);
	KT_EQ(ioc_destroy(rig.ctl, rig.dev, 2), -EBUSY);
}

static int rmmod(void)
{
	return syscall(SYS_delete_module, "mpool", O_NONBLOCK) ? -errno : 0;
}

/* an object of 64 KiB with its pattern, committed and held by @fd */
static uint64_t object_of(int fd)
{
	void *buf = NULL;
	uint64_t id;
	int ofd;

	T_EQ(posix_memalign(&buf, 4096, 65536), 0);
	KT_EQ(ioc_alloc(fd, 1, 0, 65536, 7, &id), 0);
	ofd = ioc_obj_open(fd, id, MPOOL_IOC_OPEN_WRITE | MPOOL_IOC_OPEN_DIRECT);
	T_OK(ofd >= 0);
	ioc_pattern(buf, id, 0, 65536);
	T_EQ(pwrite(ofd, buf, 65536, 0), 65536);
	close(ofd);
	free(buf);
	KT_EQ(ioc_op(fd, 1, id, 65536), 0);
	return id;
}

static uint64_t kept_id;

/* whatever is open keeps the pool and the module: node, object, map; one after the other */
static void what_is_open_keeps_all(void)
{
	int node = ioc_pool_open("ktlife", O_RDWR), ofd;
	void *map, *want = malloc(65536);

	T_OK(node >= 0 && want);
	kept_id = object_of(node);
	ofd = ioc_obj_open(node, kept_id, 0);
	T_OK(ofd >= 0);
	map = mmap(NULL, 65536, PROT_READ, MAP_SHARED, ofd, 0);
	T_OK(map != MAP_FAILED);
	KT_EQ(ioc_deactivate(rig.ctl, "ktlife"), -EBUSY);
	T_OK(rmmod() == -EWOULDBLOCK);
	close(node);
	KT_EQ(ioc_deactivate(rig.ctl, "ktlife"), -EBUSY);
	T_OK(rmmod() == -EWOULDBLOCK);
	close(ofd);
	KT_EQ(ioc_deactivate(rig.ctl, "ktlife"), -EBUSY);
	T_OK(rmmod() == -EWOULDBLOCK);
	ioc_pattern(want, kept_id, 0, 65536);
	T_MEMEQ(map, want, 65536);
	T_EQ(munmap(map, 65536), 0);
	free(want);
	/* the active pool alone keeps the module */
	T_OK(rmmod() == -EWOULDBLOCK);
	T_OK(pool_is("ktlife"));
}

static void deactivation_takes_the_node_away(void)
{
	int fd;

	KT_EQ(ioc_deactivate(rig.ctl, "ktlife"), 0);
	kt_settle("/dev/mpool/ktlife", 0);
	T_OK(!pool_is("ktlife"));
	T_OK(access("/sys/class/mpool/ktlife", F_OK) != 0);
	KT_EQ(ioc_deactivate(rig.ctl, "ktlife"), -ENOENT);
	/* the devices are free */
	fd = open(rig.disk[0].dk_path, O_RDWR | O_EXCL);
	T_OK(fd >= 0);
	close(fd);
}

static void a_member_that_is_missing_stops_activation(void)
{
	uint64_t before = disk_sum(0) ^ disk_sum(1);

	KT_EQ(ioc_activate(rig.ctl, rig.dev, 1, 0), -ENODEV);
	KT_EQ(ioc_activate(rig.ctl, rig.dev + 1, 1, 0), -ENODEV);
	T_EQ(disk_sum(0) ^ disk_sum(1), before);
}

static void a_copy_of_a_member_is_refused(void)
{
	struct mpool_ioc_dev dev[3] = { rig.dev[0], rig.dev[1], { 0 } };
	struct ioc_disk dk;
	char *buf = malloc(1 << 20);
	off_t at;

	T_EQ(ioc_disk_make(&dk, "ktcopy", 64, false, 0), 0);
	for (at = 0; at < 64 << 20; at += 1 << 20) {
		T_EQ(pread(rig.disk[0].dk_fd, buf, 1 << 20, at), 1 << 20);
		T_EQ(pwrite(dk.dk_fd, buf, 1 << 20, at), 1 << 20);
	}
	free(buf);
	T_EQ(fsync(dk.dk_fd), 0);
	dev[2].id_fd = dk.dk_fd;
	KT_EQ(ioc_activate(rig.ctl, dev, 3, 0), -ENOTUNIQ);
	T_OK(!pool_is("ktlife"));
	ioc_disk_remove(&dk);
}

static void the_order_of_members_does_not_matter(void)
{
	struct mpool_ioc_dev dev[2] = { rig.dev[1], rig.dev[0] };

	KT_EQ(ioc_activate(rig.ctl, dev, 2, 0), 0);
	KT_EQ(ioc_deactivate(rig.ctl, "ktlife"), 0);
}

static void read_only_means_not_a_byte_is_written(void)
{
	uint64_t before = disk_sum(0) ^ disk_sum(1), id;
	struct mpool_ioc_info in;
	char buf[4096], want[4096];
	int fd, ofd;

	KT_EQ(activate(MPOOL_IOC_ACTIVATE_RDONLY), 0);
	fd = ioc_pool_open("ktlife", O_RDWR);
	if (fd < 0)
		fd = ioc_pool_open("ktlife", O_RDONLY);
	T_OK(fd >= 0);
	KT_EQ(ioc_info(fd, &in), 0);
	T_EQ(in.in_state & MPOOL_IOC_POOL_RDONLY, MPOOL_IOC_POOL_RDONLY);
	T_EQ(in.in_state & MPOOL_IOC_POOL_FAULT, 0);
	T_OK(ioc_alloc(fd, 2, 0, 65536, 0, &id) < 0);
	T_OK(ioc_op(fd, 3, kept_id, 0) < 0);
	ofd = ioc_obj_open(fd, kept_id, 0);
	T_OK(ofd >= 0);
	T_EQ(pread(ofd, buf, sizeof(buf), 4096), sizeof(buf));
	ioc_pattern(want, kept_id, 4096, sizeof(want));
	T_MEMEQ(buf, want, sizeof(buf));
	close(ofd);
	close(fd);
	KT_EQ(ioc_deactivate(rig.ctl, "ktlife"), 0);
	T_EQ(disk_sum(0) ^ disk_sum(1), before);
}

static void trust_takes_owner_and_mode_from_the_media(void)
{
	struct mpool_ioc_set st = { .st_uid = 1001, .st_gid = 1100, .st_mode = 0660 };
	struct stat sb;

	KT_EQ(activate(0), 0);
	strcpy(st.st_name, "ktlife");
	st.st_arg.ma_flags = MPOOL_IOC_SET_OWNER;
	KT_EQ(kt_call(rig.ctl, MPOOL_IOC_SET, &st), 0);
	T_EQ(stat("/dev/mpool/ktlife", &sb), 0);
	T_OK(sb.st_uid == 1001 && sb.st_gid == 1100 && (sb.st_mode & 0777) == 0660);
	KT_EQ(ioc_deactivate(rig.ctl, "ktlife"), 0);
	kt_settle("/dev/mpool/ktlife", 0);
	KT_EQ(activate(0), 0);
	T_EQ(stat("/dev/mpool/ktlife", &sb), 0);
	T_OK(sb.st_uid == 0 && (sb.st_mode & 0777) == 0600);
	KT_EQ(ioc_deactivate(rig.ctl, "ktlife"), 0);
	kt_settle("/dev/mpool/ktlife", 0);
	KT_EQ(activate(MPOOL_IOC_ACTIVATE_TRUST), 0);
	T_EQ(stat("/dev/mpool/ktlife", &sb), 0);
	T_OK(sb.st_uid == 1001 && sb.st_gid == 1100 && (sb.st_mode & 0777) == 0660);
}

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* ms that an activation takes, and the state of the pool behind it */
static uint64_t activate_ms(uint32_t *state)
{
	struct mpool_ioc_info in = { .in_gen = 0 };
	uint64_t begun = now_ms();
	int fd;

	KT_EQ(activate(0), 0);
	begun = now_ms() - begun;
	fd = ioc_pool_open("ktlife", O_RDWR);
	KT_EQ(kt_call(fd, MPOOL_IOC_INFO, &in), 0);
	close(fd);
	*state = in.in_state;
	return begun;
}

static void set_multihost(uint32_t flags, int rc)
{
	struct mpool_ioc_set st = { .st_name = "ktlife" };

	st.st_arg.ma_flags = flags;
	KT_EQ(kt_call(rig.ctl, MPOOL_IOC_SET, &st), rc);
}

/* a heartbeat begins and ends with the property, and lives as long as the pool */
static void a_heartbeat_comes_and_goes(void)
{
	uint32_t state;
	uint64_t ms;
	int i;

	activate_ms(&state);
	T_OK(!(state & MPOOL_IOC_POOL_MULTIHOST));
	set_multihost(MPOOL_IOC_SET_MULTIHOST | MPOOL_IOC_SET_ONE_HOST, -EINVAL);
	for (i = 0; i < 5; i++) {
		set_multihost(MPOOL_IOC_SET_MULTIHOST, 0);
		usleep(i * 100000);
		set_multihost(MPOOL_IOC_SET_ONE_HOST, 0);
	}
	set_multihost(MPOOL_IOC_SET_MULTIHOST, 0);
	KT_EQ(ioc_deactivate(rig.ctl, "ktlife"), 0);
	ms = activate_ms(&state);
	T_OK(state & MPOOL_IOC_POOL_MULTIHOST);
	printf("# %llu ms to activate it\n", (unsigned long long)ms);
	T_OK(ms >= 1000);
	/* a call meanwhile is told that it is active, as ever */
	KT_EQ(activate(0), -EEXIST);
	sleep(2);
	set_multihost(MPOOL_IOC_SET_ONE_HOST, 0);
	KT_EQ(ioc_deactivate(rig.ctl, "ktlife"), 0);
	activate_ms(&state);
	T_OK(!(state & MPOOL_IOC_POOL_MULTIHOST));
	KT_EQ(ioc_deactivate(rig.ctl, "ktlife"), 0);
}

static int open_as(void *arg)
{
	const uid_t *id = arg;
	int fd;

	if (setgroups(0, NULL) || setgid(id[1]) || setuid(id[0]))
		return 90;
	fd = ioc_pool_open("ktlife", O_RDWR);
	return fd >= 0 ? 0 : -fd;
}

static void the_nodes_mode_decides_who_may(void)
{
	uid_t owner[2] = { 1001, 65534 }, member[2] = { 1002, 1100 }, other[2] = { 1002, 1002 };

	T_EQ(kt_child(open_as, owner), 0);
	T_EQ(kt_child(open_as, member), 0);
	T_EQ(kt_child(open_as, other), EACCES);
}

static void rename_moves_the_node_under_open_files(void)
{
	struct mpool_ioc_rename rn = { .rn_from = "ktlife", .rn_to = "ktmoved" };
	struct mpool_ioc_info in;
	int fd = ioc_pool_open("ktlife", O_RDONLY);

	T_OK(fd >= 0);
	KT_EQ(kt_call(rig.ctl, MPOOL_IOC_RENAME, &rn), 0);
	kt_settle("/dev/mpool/ktmoved", 1);
	kt_settle("/dev/mpool/ktlife", 0);
	T_OK(pool_is("ktmoved") && !pool_is("ktlife"));
	KT_EQ(ioc_info(fd, &in), 0);
	T_STREQ(in.in_name, "ktmoved");
	KT_EQ(kt_call(rig.ctl, MPOOL_IOC_RENAME, &rn), -ENOENT);
	close(fd);
	/* it is on the media too */
	KT_EQ(ioc_deactivate(rig.ctl, "ktmoved"), 0);
	KT_EQ(ioc_activate(rig.ctl, rig.dev, 2, 0), 0);
	kt_settle("/dev/mpool/ktmoved", 1);
	T_OK(pool_is("ktmoved"));
	strcpy(rn.rn_from, "ktmoved");
	strcpy(rn.rn_to, "ktlife");
	KT_EQ(kt_call(rig.ctl, MPOOL_IOC_RENAME, &rn), 0);
	kt_settle("/dev/mpool/ktlife", 1);
}

/* 0, or the errno of what @fd does not get */
static int lock_node(int fd, int is_write)
{
	struct flock fl = { .l_type = is_write ? F_WRLCK : F_RDLCK, .l_start = 77, .l_len = 1 };

	if (flock(fd, (is_write ? LOCK_EX : LOCK_SH) | LOCK_NB))
		return errno;
	return fcntl(fd, F_OFD_SETLK, &fl) ? -errno : 0;
}

/* A process that holds the pool holds it against calls by another node of it, too. */
static void locks_are_the_pools_and_not_the_nodes(void)
{
	struct mpool_ioc_set st = { .st_name = "ktlife", .st_mode = 0600 };
	struct flock fl = { .l_type = F_RDLCK, .l_start = 77, .l_len = 1 };
	int w = ioc_pool_open("ktlife", O_RDWR), r, own;
	struct stat sb;

	T_OK(w >= 0);
	T_EQ(lock_node(w, 1), 0);
	st.st_arg.ma_flags = MPOOL_IOC_SET_OWNER;
	KT_EQ(kt_call(rig.ctl, MPOOL_IOC_SET, &st), 0);
	kt_settle("/dev/mpool/ktlife", 1);
	r = ioc_pool_open("ktlife", O_RDONLY);
	T_OK(r >= 0);
	T_EQ(lock_node(r, 0), EWOULDBLOCK);
	T_EQ(fcntl(r, F_OFD_SETLK, &fl) ? errno : 0, EAGAIN);
	/* as for a container */
	T_EQ(stat("/dev/mpool/ktlife", &sb), 0);
	T_EQ(mknod("/tmp/ktnode", S_IFCHR | 0600, sb.st_rdev), 0);
	own = open("/tmp/ktnode", O_RDWR | O_CLOEXEC);
	T_OK(own >= 0);
	T_EQ(unlink("/tmp/ktnode"), 0);
	T_EQ(lock_node(own, 0), EWOULDBLOCK);
	T_EQ(fcntl(own, F_OFD_SETLK, &fl) ? errno : 0, EAGAIN);
	/* they end with the file */
	close(w);
	T_EQ(lock_node(r, 0), 0);
	T_EQ(lock_node(own, 0), 0);
	T_EQ(lock_node(own, 1), EWOULDBLOCK);
	close(r);
	T_EQ(lock_node(own, 1), 0);
	/* those of a process are as with any file */
	T_EQ(fcntl(own, F_SETLK, &fl), 0);
	fl.l_type = F_WRLCK;
	T_EQ(fcntl(own, F_GETLK, &fl), 0);
	T_EQ(fl.l_type, F_UNLCK);
	close(own);
}

static void a_device_can_be_added_to_a_live_pool(void)
{
	struct mpool_ioc_add ad = { .ad_name = "ktlife", .ad_ndevs = 1 };
	struct mpool_ioc_dev dev[3] = { rig.dev[0], rig.dev[1], { 0 } };
	struct mpool_ioc_name na = { .na_name = "ktlife" };
	struct mpool_ioc_info in0, in1;
	struct ioc_disk dk;
	uint64_t id;
	int fd = ioc_pool_open("ktlife", O_RDWR);

	T_OK(fd >= 0);
	T_EQ(ioc_disk_make(&dk, "ktmore", 64, false, 0), 0);
	dev[2].id_fd = dk.dk_fd;
	ad.ad_devs = (uintptr_t)&dev[2];
	KT_EQ(ioc_info(fd, &in0), 0);
	KT_EQ(kt_call(rig.ctl, MPOOL_IOC_ADD, &ad), 0);
	KT_EQ(kt_call(rig.ctl, MPOOL_IOC_ADD, &ad), -EEXIST);
	KT_EQ(ioc_info(fd, &in1), 0);
	T_EQ(in1.in_ndevs, 3);
	T_OK(in1.in_class[0].cl_total > in0.in_class[0].cl_total + 32 * KT_MIB);
	/* devices that have not grown: nothing changes */
	KT_EQ(kt_call(rig.ctl, MPOOL_IOC_GROW, &na), 0);
	KT_EQ(ioc_info(fd, &in0), 0);
	T_EQ(in0.in_class[0].cl_total, in1.in_class[0].cl_total);
	id = object_of(fd);
	close(fd);
	KT_EQ(ioc_deactivate(rig.ctl, "ktlife"), 0);
	KT_EQ(ioc_activate(rig.ctl, rig.dev, 2, 0), -ENODEV);
	KT_EQ(ioc_activate(rig.ctl, dev, 3, 0), 0);
	kt_settle("/dev/mpool/ktlife", 1);
	fd = ioc_pool_open("ktlife", O_RDWR);
	T_OK(fd >= 0);
	KT_EQ(ioc_op(fd, 3, id, 0), 0);
	close(fd);
	KT_EQ(ioc_deactivate(rig.ctl, "ktlife"), 0);
	KT_EQ(ioc_destroy(rig.ctl, dev, 3), 0);
	ioc_disk_remove(&dk);
	KT_EQ(ioc_create(rig.ctl, "ktlife", rig.dev, 2, 0600, 0), 0);
}

/* what of a disk of 64 MiB tells of a pool without objects: to @buf, or back */
static void pool_copy(int i, char *buf, int is_back)
{
	static const struct { off_t at; size_t len; } part[] = {
		{ 0, 4 * KT_MIB }, { 32 * KT_MIB, 4096 }, { 64 * KT_MIB - 4096, 4096 },
	};
	int fd = open(rig.disk[i].dk_path, O_RDWR | O_DIRECT);
	unsigned int k;

	T_OK(fd >= 0);
	for (k = 0; k < 3; buf += part[k++].len)
		T_EQ(is_back ? pwrite(fd, buf, part[k].len, part[k].at) :
			       pread(fd, buf, part[k].len, part[k].at), part[k].len);
	close(fd);
}

static uint64_t generation(uint32_t *ndevs)
{
	int fd = ioc_pool_open("ktlife", O_RDONLY);
	struct mpool_ioc_info in;

	KT_EQ(ioc_info(fd, &in), 0);
	close(fd);
	*ndevs = in.in_ndevs;
	return in.in_gen;
}

static void deactivate(void)
{
	KT_EQ(ioc_deactivate(rig.ctl, "ktlife"), 0);
	kt_settle("/dev/mpool/ktlife", 0);
}

/*
 * A device that says it is of the pool and that the home device does not know, as an add that
 * was cut short leaves one: it is passed over, and not kept from being added again.
 */
static void what_an_add_has_left_is_free(void)
{
	struct mpool_ioc_add ad = { .ad_name = "ktlife", .ad_ndevs = 1 };
	struct mpool_ioc_dev dev[3] = { rig.dev[0], rig.dev[1], { 0 } };
	char *old = NULL;
	struct ioc_disk dk;
	uint64_t gen;
	uint32_t n;
	int fd, i;

	T_EQ(posix_memalign((void **)&old, 4096, 2 * (4 * KT_MIB + 8192)), 0);
	T_EQ(ioc_disk_make(&dk, "ktleft", 64, false, 0), 0);
	dev[2].id_fd = dk.dk_fd;
	ad.ad_devs = (uintptr_t)&dev[2];
	for (i = 0; i < 2; i++)
		pool_copy(i, old + i * (4 * KT_MIB + 8192), 0);
	KT_EQ(activate(0), 0);
	KT_EQ(kt_call(rig.ctl, MPOOL_IOC_ADD, &ad), 0);
	gen = generation(&n);
	T_EQ(n, 3);
	deactivate();
	/* the pool as it was before, and as young as the device */
	for (i = 0; i < 2; i++)
		pool_copy(i, old + i * (4 * KT_MIB + 8192), 1);
	free(old);
	do {
		KT_EQ(activate(0), 0);
		i = generation(&n) < gen;
		deactivate();
	} while (i);
	KT_EQ(ioc_activate(rig.ctl, dev, 3, 0), 0);
	kt_settle("/dev/mpool/ktlife", 1);
	generation(&n);
	T_EQ(n, 2);
	fd = open(dk.dk_path, O_RDWR | O_EXCL);
	T_OK(fd >= 0);
	close(fd);
	KT_EQ(kt_call(rig.ctl, MPOOL_IOC_ADD, &ad), 0);
	deactivate();
	KT_EQ(ioc_destroy(rig.ctl, dev, 3), 0);
	ioc_disk_remove(&dk);
	KT_EQ(ioc_create(rig.ctl, "ktlife", rig.dev, 2, 0600, 0), 0);
}

static atomic_int stop;

static void *renamer(void *arg)
{
	struct mpool_ioc_rename rn[2] = {
		{ .rn_from = "ktlife", .rn_to = "ktother" },
		{ .rn_from = "ktother", .rn_to = "ktlife" },
	};
	long *n = arg;

	while (!atomic_load(&stop)) {
		*n += ioc_call(rig.ctl, MPOOL_IOC_RENAME, &rn[0]) == 0;
		/* time for an activation, now and then */
		usleep(*n % 8 ? 0 : 10000);
		*n += ioc_call(rig.ctl, MPOOL_IOC_RENAME, &rn[1]) == 0;
	}
	return NULL;
}

/* a pool that takes a name that another gives up finds its node gone, too */
static void a_name_is_free_when_its_node_has_gone(void)
{
	struct mpool_ioc_activate ia;
	struct mpool_ioc_dev dev = { 0 };
	struct ioc_disk dk;
	pthread_t t;
	long n = 0, mine = 0;
	int i, rc = 0;

	T_EQ(ioc_disk_make(&dk, "ktname", 64, false, 0), 0);
	dev.id_fd = dk.dk_fd;
	KT_EQ(ioc_create(rig.ctl, "ktlife", &dev, 1, 0600, 0), 0);
	KT_EQ(activate(0), 0);
	atomic_store(&stop, 0);
	T_EQ(pthread_create(&t, NULL, renamer, &n), 0);
	/* a slow machine: until one of them met the other */
	for (i = 0; (i < RENAMES || (!mine && i < 100 * RENAMES)) && !rc; i++) {
		memset(&ia, 0, sizeof(ia));
		ia.ia_ndevs = 1;
		ia.ia_devs = (uintptr_t)&dev;
		rc = kt_call(rig.ctl, MPOOL_IOC_ACTIVATE, &ia);
		mine += !rc;
		if (!rc)
			rc = ioc_deactivate(rig.ctl, "ktlife");
		else if (rc == -EEXIST && kt_error == NAME_TAKEN)
			rc = 0;
	}
	atomic_store(&stop, 1);
	pthread_join(t, NULL);
	KT_EQ(rc, 0);
	printf("# %ld renames, %ld activations beside them\n", n, mine);
	T_OK(n && mine);
	if (ioc_deactivate(rig.ctl, "ktlife"))
		KT_EQ(ioc_deactivate(rig.ctl, "ktother"), 0);
	KT_EQ(ioc_destroy(rig.ctl, &dev, 1), 0);
	KT_EQ(ioc_destroy(rig.ctl, rig.dev, 2), 0);
	ioc_disk_remove(&dk);
	kt_settle("/dev/mpool/ktlife", 0);
	KT_EQ(ioc_create(rig.ctl, "ktlife", rig.dev, 2, 0600, 0), 0);
}

static void *opener(void *arg)
{
	long *n = arg;
	struct mpool_ioc_info in;
	int fd;

	while (!atomic_load(&stop)) {
		usleep(500);
		fd = ioc_pool_open("ktlife", O_RDONLY);
		if (fd < 0)
			continue;
		*n += ioc_info(fd, &in) == 0;
		close(fd);
	}
	return NULL;
}

/* so deactivation says, which changes nothing */
static void is_held_with_o_path(void)
{
	struct mpool_ioc_name na = { .na_name = "ktlife" };

	KT_EQ(kt_call(rig.ctl, MPOOL_IOC_DEACTIVATE, &na), -EBUSY);
	T_OK(strstr(kt_text, "O_PATH"));
}

/*
 * An object that is watched is not held: the watch ends, as that of a file whose file system
 * is unmounted, and its owner is told. One with a place beside it is, until that has gone.
 */
static void a_watch_of_an_object_ends_with_the_pool(void)
{
	union { struct inotify_event ev; char room[512]; } u;
	char path[40], link[64] = "", want[64];
	uint64_t id = 0;
	int in, fd, at;

	KT_EQ(ioc_activate(rig.ctl, rig.dev, 2, 0), 0);
	kt_open(&rig);
	KT_EQ(ioc_alloc(rig.rw, 2, 0, 65536, 0, &id), 0);
	KT_EQ(ioc_op(rig.rw, 2, id, 0), 0);
	fd = kt_obj_open(&rig, id, 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	snprintf(want, sizeof(want), "/object-%llu (deleted)", (unsigned long long)id);
	T_OK(readlink(path, link, sizeof(link) - 1) > 0);
	T_STREQ(link, want);
	in = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	T_OK(in >= 0 && inotify_add_watch(in, path, IN_ATTRIB) >= 0);
	at = open(path, O_PATH | O_CLOEXEC);
	T_OK(at >= 0);
	close(fd);
	kt_close(&rig);
	is_held_with_o_path();
	T_ERR(read(in, &u, sizeof(u)), EAGAIN);
	close(at);
	KT_EQ(ioc_deactivate(rig.ctl, "ktlife"), 0);
	T_EQ(read(in, &u, sizeof(u)), 2 * sizeof(u.ev));
	T_EQ(u.ev.mask, IN_UNMOUNT);
	close(in);
	KT_EQ(ioc_activate(rig.ctl, rig.dev, 2, 0), 0);
	kt_open(&rig);
	KT_EQ(ioc_op(rig.rw, 3, id, 0), 0);
	kt_close(&rig);
	KT_EQ(ioc_deactivate(rig.ctl, "ktlife"), 0);
}

/* while others open and close the node all the time */
static void it_can_be_done_a_hundred_times(void)
{
	pthread_t t[2];
	long n[2] = { 0, 0 }, busy = 0;
	int i, rc;

	atomic_store(&stop, 0);
	for (i = 0; i < 2; i++)
		T_EQ(pthread_create(&t[i], NULL, opener, &n[i]), 0);
	for (i = 0; i < CYCLES; i++) {
		rc = ioc_activate(rig.ctl, rig.dev, 2, 0);
		if (rc)
			break;
		do {
			if (i % 4 == 0)
				usleep(2000);
			rc = ioc_deactivate(rig.ctl, "ktlife");
			busy += rc == -EBUSY;
			if (rc == -EBUSY)
				usleep(100);
		} while (rc == -EBUSY);
		if (rc)
			break;
	}
	atomic_store(&stop, 1);
	pthread_join(t[0], NULL);
	pthread_join(t[1], NULL);
	T_EQ(rc, 0);
	T_EQ(i, CYCLES);
	printf("# %ld opens in between, %ld times busy\n", n[0] + n[1], busy);
	T_OK(n[0] + n[1] > 0);
}

#define ZEROES	(256ull << 20)

/* takes five seconds on that disk */
static int alloc_zeroed(void *arg)
{
	uint64_t id;

	return ioc_alloc(*(int *)arg, 2, 0, ZEROES, 7, &id) ? 1 : 0;
}

/* a device that has no command for zeroes: what is killed does not fill the rest */
static void an_allocation_that_writes_zeroes_can_be_killed(void)
{
	uint64_t ios, before, now, id;
	struct mpool_ioc_info in;
	struct ioc_disk dk;
	int fd, i, st = 0;
	pid_t pid;

	T_EQ(ioc_disk_make(&dk, "ktzero", 384, IOC_DISK_SERIAL, 20000000), 0);
	fd = kt_up_one(rig.ctl, &dk);
	T_EQ(ioc_disk_writes(&dk, &ios, &before), 0);
	fflush(stdout);
	pid = fork();
	if (pid == 0)
		_exit(alloc_zeroed(&fd));
	T_OK(pid > 0);
	for (now = before, i = 0; now - before < 4096 && i < 10000; i++) {
		usleep(1000);
		T_EQ(ioc_disk_writes(&dk, &ios, &now), 0);
	}
	T_EQ(kill(pid, SIGKILL), 0);
	T_EQ(waitpid(pid, &st, 0), pid);
	T_OK(WIFSIGNALED(st) && WTERMSIG(st) == SIGKILL);
	T_EQ(ioc_disk_writes(&dk, &ios, &now), 0);
	printf("# %llu of %llu bytes\n", (unsigned long long)(now - before) * 512, ZEROES);
	T_OK(now - before >= 4096 && (now - before) * 512 < ZEROES);
	/* nothing of it is left, and the pool goes on */
	T_EQ(ioc_info(fd, &in), 0);
	T_EQ(in.in_objects, 0);
	KT_EQ(ioc_alloc(fd, 2, 0, 1 << 20, 7, &id), 0);
	close(fd);
	KT_EQ(ioc_deactivate(rig.ctl, "ktzero"), 0);
	ioc_disk_remove(&dk);
}

static void destroy_leaves_no_pool(void)
{
	struct mpool_ioc_probe pr = { .pr_fd = rig.disk[0].dk_fd };

	KT_EQ(ioc_destroy(rig.ctl, rig.dev, 2), 0);
	KT_EQ(kt_call(rig.ctl, MPOOL_IOC_PROBE, &pr), -EINVAL);
	KT_EQ(ioc_activate(rig.ctl, rig.dev, 2, 0), -EINVAL);
	KT_EQ(ioc_create(rig.ctl, "ktlife", rig.dev, 2, 0600, 0), 0);
	KT_EQ(ioc_destroy(rig.ctl, rig.dev, 2), 0);
}

static void disks_go(void)
{
	close(rig.ctl);
	ioc_disk_remove(&rig.disk[0]);
	ioc_disk_remove(&rig.disk[1]);
}

int main(void)
{
	const char *why = kt_missing();

	if (why)
		return t_skip_all(why);
	T_RUN(disks_come_up);
	if (!t_failed) {
		T_RUN(a_plan_writes_nothing);
		T_RUN(create_makes_a_pool_that_is_not_active);
		T_RUN(create_spares_what_it_finds);
		T_RUN(activation_makes_the_node_with_roots_rights);
		T_RUN(activation_happens_once);
		T_RUN(what_is_open_keeps_all);
		T_RUN(deactivation_takes_the_node_away);
		T_RUN(a_member_that_is_missing_stops_activation);
		T_RUN(a_copy_of_a_member_is_refused);
		T_RUN(the_order_of_members_does_not_matter);
		T_RUN(read_only_means_not_a_byte_is_written);
		T_RUN(a_heartbeat_comes_and_goes);
		T_RUN(trust_takes_owner_and_mode_from_the_media);
		T_RUN(the_nodes_mode_decides_who_may);
		T_RUN(rename_moves_the_node_under_open_files);
		T_RUN(locks_are_the_pools_and_not_the_nodes);
		T_RUN(a_device_can_be_added_to_a_live_pool);
		T_RUN(a_name_is_free_when_its_node_has_gone);
		T_RUN(what_an_add_has_left_is_free);
		T_RUN(a_watch_of_an_object_ends_with_the_pool);
		T_RUN(it_can_be_done_a_hundred_times);
		T_RUN(an_allocation_that_writes_zeroes_can_be_killed);
		T_RUN(destroy_leaves_no_pool);
	}
	T_RUN(disks_go);
	return t_done();
}
