// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Every command of the module with arguments that it must refuse: what the
 * rules at the head of uapi/mpool.h promise, command by command.
 */
#include <grp.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "kt.h"

#define NONE		((size_t)-1)
#define BAD_FLAG	0x40000000u

enum { CTL = 1, POOL = 2 };

/* ids that go partly to memory which is not there yet */
struct ids_trap {
	int uffd;
	unsigned char *page;
	size_t size;
	uint64_t *id;
};

struct cmd {
	const char *name;
	unsigned long nr;
	int node;
	int is_write;		/* needs a descriptor open for writing */
	size_t reserved[2];	/* offsets of reserved fields of 4 or 8 bytes */
	size_t text;		/* offset of a name that must be NUL-terminated */
};

#define R(type, field)	offsetof(struct mpool_ioc_##type, field)

static const struct cmd cmds[] = {
	{ "VERSION", MPOOL_IOC_VERSION, CTL | POOL, 0, { NONE, NONE }, NONE },
	{ "CREATE", MPOOL_IOC_CREATE, CTL, 0, { R(create, ic_reserved), NONE },
	  R(create, ic_name) },
	{ "CREATE", MPOOL_IOC_CREATE, CTL, 0, { NONE, NONE }, R(create, ic_label) },
	{ "DESTROY", MPOOL_IOC_DESTROY, CTL, 0, { R(devs, ds_reserved), NONE }, NONE },
	{ "PROBE", MPOOL_IOC_PROBE, CTL, 0, { R(probe, pr_reserved), NONE }, NONE },
	{ "ACTIVATE", MPOOL_IOC_ACTIVATE, CTL, 0, { R(activate, ia_reserved), NONE }, NONE },
	{ "DEACTIVATE", MPOOL_IOC_DEACTIVATE, CTL, 0, { R(name, na_reserved), NONE },
	  R(name, na_name) },
	{ "LIST", MPOOL_IOC_LIST, CTL, 0, { R(list, li_reserved), NONE }, R(list, li_after) },
	{ "RENAME", MPOOL_IOC_RENAME, CTL, 0, { NONE, NONE }, R(rename, rn_from) },
	{ "RENAME", MPOOL_IOC_RENAME, CTL, 0, { NONE, NONE }, R(rename, rn_to) },
	{ "ADD", MPOOL_IOC_ADD, CTL, 0, { R(add, ad_reserved), NONE }, R(add, ad_name) },
	{ "GROW", MPOOL_IOC_GROW, CTL, 0, { R(name, na_reserved), NONE }, R(name, na_name) },
	{ "SET", MPOOL_IOC_SET, CTL, 0, { R(set, st_reserved), NONE }, R(set, st_name) },
	{ "SET", MPOOL_IOC_SET, CTL, 0, { NONE, NONE }, R(set, st_label) },
	{ "INFO", MPOOL_IOC_INFO, POOL, 0, { NONE, NONE }, NONE },
	{ "DEV_INFO", MPOOL_IOC_DEV_INFO, POOL, 0, { NONE, NONE }, NONE },
	{ "FLUSH", MPOOL_IOC_FLUSH, POOL, 1, { R(flush, fl_reserved), NONE }, NONE },
	{ "ALLOC", MPOOL_IOC_ALLOC, POOL, 1, { R(alloc, al_reserved), NONE }, NONE },
	{ "HOLD", MPOOL_IOC_HOLD, POOL, 0, { NONE, NONE }, NONE },
	{ "DROP", MPOOL_IOC_DROP, POOL, 0, { R(drop, dr_reserved), NONE }, NONE },
	{ "OBJ_INFO", MPOOL_IOC_OBJ_INFO, POOL, 0, { NONE, NONE }, NONE },
	{ "OBJECTS", MPOOL_IOC_OBJECTS, POOL, 0, { R(objects, os_reserved), NONE }, NONE },
	{ "BATCH", MPOOL_IOC_BATCH, POOL, 1, { R(batch, ba_reserved), NONE }, NONE },
	{ "OPEN", MPOOL_IOC_OPEN, POOL, 0, { R(open, op_reserved), NONE }, NONE },
	{ "MLOG_OPEN", MPOOL_IOC_MLOG_OPEN, POOL, 0, { NONE, NONE }, NONE },
	{ "MLOG_CLOSE", MPOOL_IOC_MLOG_CLOSE, POOL, 0, { NONE, NONE }, NONE },
	{ "MLOG_APPEND", MPOOL_IOC_MLOG_APPEND, POOL, 1, { R(append, ap_reserved), NONE }, NONE },
	{ "MLOG_SYNC", MPOOL_IOC_MLOG_SYNC, POOL, 1, { NONE, NONE }, NONE },
	{ "MLOG_READ", MPOOL_IOC_MLOG_READ, POOL, 0, { NONE, NONE }, NONE },
	{ "MLOG_ERASE", MPOOL_IOC_MLOG_ERASE, POOL, 1, { NONE, NONE }, NONE },
	{ "MLOG_SEAL", MPOOL_IOC_MLOG_SEAL, POOL, 1, { NONE, NONE }, NONE },
	{ "MLOG_SPACE", MPOOL_IOC_MLOG_SPACE, POOL, 0, { NONE, NONE }, NONE },
	{ "ROOT_CREATE", MPOOL_IOC_ROOT_CREATE, POOL, 1, { R(root, ro_reserved), NONE },
	  R(root, ro_name) },
	{ "ROOT_GET", MPOOL_IOC_ROOT_GET, POOL, 0, { R(root, ro_reserved), NONE },
	  R(root, ro_name) },
	{ "ROOT_DELETE", MPOOL_IOC_ROOT_DELETE, POOL, 1, { R(root, ro_reserved), NONE },
	  R(root, ro_name) },
	{ "ROOT_NEXT", MPOOL_IOC_ROOT_NEXT, POOL, 0, { R(root, ro_reserved), NONE },
	  R(root, ro_name) },
	{ "LEASE", MPOOL_IOC_LEASE, POOL, 1, { NONE, NONE }, NONE },
	{ "UNLEASE", MPOOL_IOC_UNLEASE, POOL, 1, { NONE, NONE }, NONE },
};
#define NCMDS	(sizeof(cmds) / sizeof(cmds[0]))

static struct kt_rig rig;
static union {
	struct mpool_ioc_arg arg;
	unsigned char bytes[2048];
} u;

static int node_fd(const struct cmd *c)
{
	return c->node & CTL ? rig.ctl : rig.rw;
}

static int run_zero(const struct cmd *c, int fd)
{
	memset(&u, 0, sizeof(u));
	return kt_call(fd, c->nr, &u);
}

#define CMD_EQ(c, rc, want) do {					\
	int c_rc = (rc), c_want = (want);				\
	if (c_rc != c_want)						\
		T_FAIL("%s: %s = %d, wanted %d; MP%04u %s", (c)->name, #rc, c_rc, c_want,	\
		       kt_error, kt_text);				\
} while (0)

static void unknown_commands_are_enotty(void)
{
	unsigned int nr, i, known;

	for (nr = 0; nr < 256; nr++) {
		for (i = known = 0; i < NCMDS; i++)
			known |= _IOC_NR(cmds[i].nr) == nr;
		if (known)
			continue;
		memset(&u, 0, sizeof(u));
		u.arg.ma_size = 64;
		T_OK(ioctl(rig.ctl, _IOC(3, MPOOL_IOC_MAGIC, nr, 64), &u) && errno == ENOTTY);
		T_OK(ioctl(rig.rw, _IOC(3, MPOOL_IOC_MAGIC, nr, 64), &u) && errno == ENOTTY);
	}
	T_OK(ioctl(rig.ctl, _IOC(3, 'x', 0, sizeof(struct mpool_ioc_version)), &u) &&
	     errno == ENOTTY);
	/* what the kernel itself asks of every file */
	T_OK(ioctl(rig.rw, 0x5401 /* TCGETS */, &u) && errno == ENOTTY);
}

static void another_size_is_enotty(void)
{
	static const int step[] = { -8, -4, 4, 8, 1024 };
	unsigned int i, j;

	for (i = 0; i < NCMDS; i++) {
		const struct cmd *c = &cmds[i];
		unsigned int size = _IOC_SIZE(c->nr);

		for (j = 0; j < 5; j++) {
			memset(&u, 0, sizeof(u));
			u.arg.ma_size = size + (unsigned int)step[j];
			CMD_EQ(c, ioctl(node_fd(c), _IOC(3, MPOOL_IOC_MAGIC, _IOC_NR(c->nr),
							 u.arg.ma_size), &u), -1);
			CMD_EQ(c, errno, ENOTTY);
			/* the number is right, the field is not */
			CMD_EQ(c, ioctl(node_fd(c), c->nr, &u), -1);
			CMD_EQ(c, errno, ENOTTY);
		}
		/* nothing but "write" or "read" in the number */
		u.arg.ma_size = size;
		CMD_EQ(c, ioctl(node_fd(c), _IOC(1, MPOOL_IOC_MAGIC, _IOC_NR(c->nr), size), &u),
		       -1);
		CMD_EQ(c, errno, ENOTTY);
	}
}

static void wrong_node_is_enotty(void)
{
	unsigned int i;

	for (i = 0; i < NCMDS; i++) {
		const struct cmd *c = &cmds[i];

		if (!(c->node & CTL))
			CMD_EQ(c, run_zero(c, rig.ctl), -ENOTTY);
		if (!(c->node & POOL))
			CMD_EQ(c, run_zero(c, rig.rw), -ENOTTY);
	}
}

static void bad_addresses_are_efault(void)
{
	long page = sysconf(_SC_PAGESIZE);
	unsigned char *map = mmap(NULL, (size_t)page * 2, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned int i;

	T_OK(map != MAP_FAILED);
	T_EQ(munmap(map + page, (size_t)page), 0);
	for (i = 0; i < NCMDS; i++) {
		const struct cmd *c = &cmds[i];
		unsigned int size = _IOC_SIZE(c->nr);
		unsigned char *edge = map + page - size + 4;

		CMD_EQ(c, ioctl(node_fd(c), c->nr, NULL), -1);
		CMD_EQ(c, errno, EFAULT);
		CMD_EQ(c, ioctl(node_fd(c), c->nr, (void *)1), -1);
		CMD_EQ(c, errno, EFAULT);
		CMD_EQ(c, ioctl(node_fd(c), c->nr, (void *)0xffff888000000000ul), -1);
		CMD_EQ(c, errno, EFAULT);
		/* the last four bytes are not there */
		memset(edge, 0, size - 4);
		memcpy(edge, &size, 4);
		CMD_EQ(c, ioctl(node_fd(c), c->nr, edge), -1);
		CMD_EQ(c, errno, EFAULT);
	}
	munmap(map, (size_t)page);
}

/* the command itself was done, or not; what it says has no place */
static void results_need_a_place(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct mpool_ioc_version *iv = mmap(NULL, page, PROT_READ | PROT_WRITE,
					    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	T_OK(iv != MAP_FAILED);
	iv->iv_arg.ma_size = sizeof(*iv);
	T_EQ(ioctl(rig.ctl, MPOOL_IOC_VERSION, iv), 0);
	T_EQ(mprotect(iv, page, PROT_READ), 0);
	T_EQ(ioctl(rig.ctl, MPOOL_IOC_VERSION, iv), -1);
	T_EQ(errno, EFAULT);
	munmap(iv, page);
}

static void a_node_is_not_opened_for_writing_only(void)
{
	T_EQ(ioc_pool_open(rig.name, O_WRONLY), -EINVAL);
}

/* those of open files are on an inode that none of them has */
static void locks_of_open_files_cannot_be_asked_about(void)
{
	struct flock fl = { .l_type = F_WRLCK, .l_len = 1 };

	T_EQ(fcntl(rig.rw, F_OFD_GETLK, &fl), -1);
	T_EQ(errno, EOPNOTSUPP);
}

static void unknown_flags_are_einval(void)
{
	unsigned int i;

	for (i = 0; i < NCMDS; i++) {
		const struct cmd *c = &cmds[i];

		memset(&u, 0, sizeof(u));
		u.arg.ma_flags = BAD_FLAG;
		CMD_EQ(c, kt_call(node_fd(c), c->nr, &u), -EINVAL);
		if (!strstr(kt_text, "flags"))
			T_FAIL("%s: not because of the flag: %s", c->name, kt_text);
	}
}

static void reserved_fields_are_einval(void)
{
	unsigned int i, j, n = 0;

	for (i = 0; i < NCMDS; i++) {
		const struct cmd *c = &cmds[i];

		for (j = 0; j < 2 && c->reserved[j] != NONE; j++) {
			memset(&u, 0, sizeof(u));
			u.bytes[c->reserved[j] + 3] = 0x80;
			CMD_EQ(c, kt_call(node_fd(c), c->nr, &u), -EINVAL);
			if (!strstr(kt_text, "reserved"))
				T_FAIL("%s: not because of the field: %s", c->name, kt_text);
			n++;
		}
	}
	T_OK(n >= 17);
}

static void names_without_an_end_are_einval(void)
{
	unsigned int i;

	for (i = 0; i < NCMDS; i++) {
		const struct cmd *c = &cmds[i];

		if (c->text == NONE)
			continue;
		memset(&u, 0, sizeof(u));
		memset(u.bytes + c->text, 'a', c->text == R(create, ic_label) ||
		       c->text == R(set, st_label) ? MPOOL_IOC_LABEL : MPOOL_IOC_NAME);
		CMD_EQ(c, kt_call(node_fd(c), c->nr, &u), -EINVAL);
	}
}

static void bad_names_are_einval(void)
{
	static const char *const bad[] = { "", ".", "..", "a/b", "-a", ".a", "a b", "a\nb",
					   "\x80" };
	struct mpool_ioc_dev dev = { 0 };
	struct mpool_ioc_rename rn;
	struct ioc_disk dk;
	unsigned int i;

	T_EQ(ioc_disk_make(&dk, "ktspare", 64, false, 0), 0);
	dev.id_fd = dk.dk_fd;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		KT_EQ(ioc_create(rig.ctl, bad[i], &dev, 1, 0600, 0), -EINVAL);
		memset(&rn, 0, sizeof(rn));
		strcpy(rn.rn_from, rig.name);
		strcpy(rn.rn_to, bad[i]);
		KT_EQ(kt_call(rig.ctl, MPOOL_IOC_RENAME, &rn), -EINVAL);
	}
	ioc_disk_remove(&dk);
}

static void write_commands_need_a_writable_descriptor(void)
{
	unsigned int i, n = 0;

	for (i = 0; i < NCMDS; i++) {
		const struct cmd *c = &cmds[i];

		if (!(c->node & POOL))
			continue;
		if (c->is_write) {
			CMD_EQ(c, run_zero(c, rig.ro), -EBADF);
			n++;
		} else {
			T_OK(run_zero(c, rig.ro) != -EBADF);
		}
	}
	T_EQ(n, 11);
}

static int as_nobody(void *arg)
{
	unsigned int i;

	(void)arg;
	if (setgroups(0, NULL) || setgid(65534) || setuid(65534))
		return 90;
	if (open("/dev/mpoolctl", O_RDWR) >= 0 || errno != EACCES)
		return 91;
	if (ioc_pool_open(rig.name, O_RDONLY) != -EACCES)
		return 92;
	for (i = 0; i < NCMDS; i++) {
		const struct cmd *c = &cmds[i];
		int rc;

		if (!(c->node & CTL))
			continue;
		rc = run_zero(c, rig.ctl);
		if (rc != (c->nr == MPOOL_IOC_VERSION ? 0 : -EPERM)) {
			printf("# %s as nobody: %d\n", c->name, rc);
			fflush(stdout);
			return (int)i + 1;
		}
	}
	return 0;
}

static void administration_needs_the_capability(void)
{
	T_EQ(kt_child(as_nobody, NULL), 0);
}

static int in_own_user_ns(void *arg)
{
	(void)arg;
	if (unshare(CLONE_NEWUSER))
		return 77;
	/* root of a namespace of its own has every capability there, and none here */
	return run_zero(&cmds[6], rig.ctl) == -EPERM ? 0 : 1;
}

static void root_of_a_user_namespace_is_not_root(void)
{
	int rc = kt_child(in_own_user_ns, NULL);

	if (rc == 77)
		printf("# user namespaces are not allowed here\n");
	else
		T_EQ(rc, 0);
}

static void counts_have_bounds(void)
{
	static const uint32_t bad[] = { 0, MPOOL_IOC_BATCH_MAX + 1, 0x7fffffff, 0x80000000u,
					0xffffffffu };
	static const uint32_t bad_devs[] = { 0, MPOOL_IOC_DEVS_MAX + 1, 0x80000000u, 0xffffffffu };
	struct mpool_ioc_activate a;
	struct mpool_ioc_alloc al;
	struct mpool_ioc_drop dr;
	struct mpool_ioc_objects os;
	struct mpool_ioc_batch ba;
	struct mpool_ioc_devs ds;
	unsigned int i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		al = (struct mpool_ioc_alloc){ .al_n = bad[i], .al_req = 8, .al_ids = 8 };
		KT_EQ(kt_call(rig.rw, MPOOL_IOC_ALLOC, &al), -EINVAL);
		dr = (struct mpool_ioc_drop){ .dr_n = bad[i], .dr_ids = 8 };
		KT_EQ(kt_call(rig.rw, MPOOL_IOC_DROP, &dr), -EINVAL);
		os = (struct mpool_ioc_objects){ .os_max = bad[i], .os_out = 8 };
		KT_EQ(kt_call(rig.rw, MPOOL_IOC_OBJECTS, &os), -EINVAL);
		ba = (struct mpool_ioc_batch){ .ba_n = bad[i], .ba_ops = 8 };
		KT_EQ(kt_call(rig.rw, MPOOL_IOC_BATCH, &ba), -EINVAL);
	}
	/* the greatest count is looked at: the array cannot be read */
	al = (struct mpool_ioc_alloc){ .al_n = MPOOL_IOC_BATCH_MAX, .al_req = 8, .al_ids = 8 };
	KT_EQ(kt_call(rig.rw, MPOOL_IOC_ALLOC, &al), -EFAULT);
	ba = (struct mpool_ioc_batch){ .ba_n = MPOOL_IOC_BATCH_MAX, .ba_ops = 8 };
	KT_EQ(kt_call(rig.rw, MPOOL_IOC_BATCH, &ba), -EFAULT);
	for (i = 0; i < sizeof(bad_devs) / sizeof(bad_devs[0]); i++) {
		a = (struct mpool_ioc_activate){ .ia_ndevs = bad_devs[i], .ia_devs = 8 };
		KT_EQ(kt_call(rig.ctl, MPOOL_IOC_ACTIVATE, &a), -EINVAL);
		ds = (struct mpool_ioc_devs){ .ds_ndevs = bad_devs[i], .ds_devs = 8 };
		KT_EQ(kt_call(rig.ctl, MPOOL_IOC_DESTROY, &ds), -EINVAL);
	}
	a = (struct mpool_ioc_activate){ .ia_ndevs = MPOOL_IOC_DEVS_MAX, .ia_devs = 8 };
	KT_EQ(kt_call(rig.ctl, MPOOL_IOC_ACTIVATE, &a), -EFAULT);
}

/* what @fd gives to each command that takes a device */
static void device_is(int fd, int want)
{
	struct mpool_ioc_dev dev = { .id_fd = fd };
	struct mpool_ioc_probe pr = { .pr_fd = fd };

	KT_EQ(ioc_create(rig.ctl, "kinds", &dev, 1, 0600, 0), want);
	KT_EQ(ioc_activate(rig.ctl, &dev, 1, 0), want);
	KT_EQ(ioc_destroy(rig.ctl, &dev, 1), want);
	KT_EQ(kt_call(rig.ctl, MPOOL_IOC_PROBE, &pr), want);
}

static void other_kinds_of_descriptors_are_refused(void)
{
	char path[] = "/tmp/kt-file-XXXXXX";
	int p[2], fd = mkstemp(path);

	T_OK(fd >= 0 && ftruncate(fd, 64 << 20) == 0);
	device_is(fd, -ENOTBLK);
	close(fd);
	unlink(path);
	device_is(-1, -EBADF);
	device_is(100000, -EBADF);
	device_is(rig.ctl, -ENOTBLK);
	device_is(rig.rw, -ENOTBLK);
	T_EQ(pipe(p), 0);
	device_is(p[0], -ENOTBLK);
	close(p[0]);
	close(p[1]);
	fd = open("/dev/null", O_RDWR);
	device_is(fd, -ENOTBLK);
	close(fd);
	fd = open("/dev", O_RDONLY | O_DIRECTORY);
	device_is(fd, -ENOTBLK);
	close(fd);
	/* a path alone gives no right */
	fd = open(rig.disk[0].dk_path, O_PATH);
	device_is(fd, -EBADF);
	close(fd);
}

static void devices_must_be_writable_whole_and_free(void)
{
	struct mpool_ioc_dev dev[2] = { { 0 } };
	struct mpool_ioc_create ic = { .ic_name = "spare", .ic_mode = 0600, .ic_ndevs = 1,
				       .ic_devs = (uintptr_t)dev };
	struct mpool_ioc_activate ia = { .ia_ndevs = 1, .ia_devs = (uintptr_t)dev };
	struct ioc_disk dk;
	int fd, is_ro = 1;

	T_EQ(ioc_disk_make(&dk, "ktspare", 64, false, 0), 0);
	dev[0].id_fd = dk.dk_fd;
	T_EQ(ioctl(dk.dk_fd, BLKROSET, &is_ro), 0);
	KT_EQ(kt_call(rig.ctl, MPOOL_IOC_CREATE, &ic), -EACCES);
	T_OK(strstr(kt_text, "is read-only"));
	is_ro = 0;
	T_EQ(ioctl(dk.dk_fd, BLKROSET, &is_ro), 0);
	dev[0].id_fd = open(dk.dk_path, O_RDONLY);
	KT_EQ(ioc_create(rig.ctl, "spare", dev, 1, 0600, 0), -EACCES);
	close(dev[0].id_fd);
	dev[0].id_fd = open(dk.dk_path, O_WRONLY);
	KT_EQ(ioc_create(rig.ctl, "spare", dev, 1, 0600, 0), -EACCES);
	close(dev[0].id_fd);
	dev[0].id_fd = dev[1].id_fd = dk.dk_fd;
	KT_EQ(ioc_create(rig.ctl, "spare", dev, 2, 0600, 0), -EINVAL);
	dev[1].id_fd = open(dk.dk_path, O_RDWR);
	KT_EQ(ioc_create(rig.ctl, "spare", dev, 2, 0600, 0), -EINVAL);
	close(dev[1].id_fd);
	dev[0].id_mclass = MPOOL_IOC_CLASSES;
	KT_EQ(ioc_create(rig.ctl, "spare", dev, 1, 0600, 0), -EINVAL);
	dev[0].id_mclass = 1;
	/* a pool needs the capacity class */
	T_OK(ioc_create(rig.ctl, "spare", dev, 1, 0600, 0) < 0);
	dev[0].id_mclass = 0;
	fd = open(dk.dk_path, O_RDWR | O_EXCL);
	T_OK(fd >= 0);
	KT_EQ(ioc_create(rig.ctl, "spare", dev, 1, 0600, 0), -EBUSY);
	close(fd);
	/* a member of an active pool */
	KT_EQ(ioc_create(rig.ctl, "spare", rig.dev, 1, 0600, MPOOL_IOC_CREATE_FORCE), -EEXIST);
	KT_EQ(ioc_activate(rig.ctl, rig.dev, 2, 0), -EEXIST);
	KT_EQ(ioc_destroy(rig.ctl, rig.dev, 2), -EBUSY);
	T_OK(open(rig.disk[0].dk_path, O_RDWR | O_EXCL) < 0 && errno == EBUSY);
	/* neither is it a pool's member, nor was it touched */
	KT_EQ(ioc_activate(rig.ctl, dev, 1, 0), -EINVAL);
	/* the superblock says it */
	dev[0].id_mclass = 1;
	KT_EQ(kt_call(rig.ctl, MPOOL_IOC_ACTIVATE, &ia), -EINVAL);
	T_OK(strstr(kt_text, "class 1"));
	ioc_disk_remove(&dk);
}

static void properties_have_bounds(void)
{
	struct mpool_ioc_create ic;
	struct mpool_ioc_dev dev = { 0 };
	struct mpool_ioc_info was, in;
	struct mpool_ioc_set st;
	struct ioc_disk dk;
	int i;

	T_EQ(ioc_disk_make(&dk, "ktspare", 64, false, 0), 0);
	dev.id_fd = dk.dk_fd;
	KT_EQ(ioc_info(rig.ro, &was), 0);
	for (i = 0; i < 5; i++) {
		ic = (struct mpool_ioc_create){ .ic_name = "spare", .ic_mode = 0600,
						.ic_ndevs = 1, .ic_devs = (uintptr_t)&dev };
		ic.ic_spare_pct[0] = i == 0 ? 91 : 0;
		ic.ic_spare_pct[1] = i == 1 ? 0xffffffffu : 0;
		ic.ic_mode |= i == 2 ? 01000 : 0;
		ic.ic_uid = i == 3 ? 0xffffffffu : 0;
		ic.ic_gid = i == 4 ? 0xffffffffu : 0;
		KT_EQ(kt_call(rig.ctl, MPOOL_IOC_CREATE, &ic), -EINVAL);
		st = (struct mpool_ioc_set){ .st_mode = 0600 };
		st.st_arg.ma_flags = MPOOL_IOC_SET_OWNER | MPOOL_IOC_SET_SPARE;
		strcpy(st.st_name, rig.name);
		st.st_spare_pct[0] = i == 0 ? 91 : 0;
		st.st_spare_pct[1] = i == 1 ? 0xffffffffu : 0;
		st.st_mode |= i == 2 ? 04000 : 0;
		st.st_uid = i == 3 ? 0xffffffffu : 0;
		st.st_gid = i == 4 ? 0xffffffffu : 0;
		KT_EQ(kt_call(rig.ctl, MPOOL_IOC_SET, &st), -EINVAL);
	}
	/* not on media either */
	KT_EQ(ioc_info(rig.ro, &in), 0);
	T_EQ(in.in_gen, was.in_gen);
	ioc_disk_remove(&dk);
}

/* by its size: nothing is looked for on it */
static void a_disk_that_is_too_small_is_refused_by_name(void)
{
	struct mpool_ioc_probe pr = { 0 };
	struct ioc_disk dk;

	T_EQ(ioc_disk_make(&dk, "kttiny", 1, false, 0), 0);
	pr.pr_fd = dk.dk_fd;
	KT_EQ(kt_call(rig.ctl, MPOOL_IOC_PROBE, &pr), -EINVAL);
	T_OK(strstr(kt_text, "kttiny: 1048576 bytes"));
	ioc_disk_remove(&dk);
}

static void a_zoned_disk_is_refused_by_name(void)
{
	struct mpool_ioc_create ic = { .ic_name = "zoned", .ic_mode = 0600, .ic_ndevs = 1 };
	struct mpool_ioc_dev dev = { 0 };
	struct ioc_disk dk;

	T_EQ(ioc_disk_make(&dk, "ktzoned", 64, true, 0), 0);
	dev.id_fd = dk.dk_fd;
	ic.ic_devs = (uintptr_t)&dev;
	KT_EQ(kt_call(rig.ctl, MPOOL_IOC_CREATE, &ic), -EOPNOTSUPP);
	T_OK(strstr(kt_text, "ktzoned") != NULL);
	ioc_disk_remove(&dk);
}

static void alloc_refuses_bad_requests(void)
{
	struct mpool_ioc_alloc_one one[2];
	struct mpool_ioc_alloc al;
	struct mpool_ioc_info in0, in1;
	uint64_t id[2];
	int i;

	KT_EQ(ioc_info(rig.rw, &in0), 0);
	for (i = 0; i < 8; i++) {
		/* the second one is bad: all or none */
		one[0] = one[1] = (struct mpool_ioc_alloc_one){ .ao_kind = 1, .ao_capacity = 4096 };
		one[1].ao_kind = i == 0 ? 0 : i == 1 ? 4 : 1;
		one[1].ao_mclass = i == 2 ? MPOOL_IOC_CLASSES : 0;
		one[1].ao_flags = i == 3 ? 0x80000000u : 0;
		one[1].ao_reserved = i == 4 ? 1 : 0;
		one[1].ao_capacity = i == 5 ? 0 : i == 6 ? ~0ull : i == 7 ? 1ull << 28 : 4096;
		al = (struct mpool_ioc_alloc){ .al_n = 2, .al_req = (uintptr_t)one,
					       .al_ids = (uintptr_t)id };
		KT_EQ(kt_call(rig.rw, MPOOL_IOC_ALLOC, &al), i == 7 ? -ENOSPC : -EINVAL);
	}
	/* nowhere to put the ids: nothing stays allocated */
	one[1] = one[0];
	al = (struct mpool_ioc_alloc){ .al_n = 2, .al_req = (uintptr_t)one, .al_ids = 8 };
	KT_EQ(kt_call(rig.rw, MPOOL_IOC_ALLOC, &al), -EFAULT);
	KT_EQ(ioc_info(rig.rw, &in1), 0);
	T_EQ(in1.in_class[0].cl_used, in0.in_class[0].cl_used);
	T_EQ(in1.in_objects, in0.in_objects);
}

/* waits until the ids reach the page that is not there; meanwhile another thread uses the first */
static void *uses_ids_early(void *arg)
{
	struct ids_trap *t = arg;
	struct mpool_ioc_hold ho = { .ho_id = 0 };
	struct uffdio_range r = { .start = (uintptr_t)t->page, .len = t->size };
	struct uffd_msg msg;
	int fd;

	if (read(t->uffd, &msg, sizeof(msg)) != sizeof(msg))
		return "no fault";
	/* one is deleted, another sealed and in the cache of files */
	if (ioc_op(rig.rw, 3, t->id[0], 0))
		return "not deleted";
	ho.ho_id = t->id[1];
	if (ioc_call(rig.rw, MPOOL_IOC_HOLD, &ho) || ioc_op(rig.rw, 2, t->id[1], 0))
		return "not sealed";
	fd = ioc_obj_open(rig.rw, t->id[1], 0);
	close(fd);
	if (ioc_drop(rig.rw, t->id[1]))
		return "not dropped";
	munmap(t->page, t->size);
	return ioctl(t->uffd, UFFDIO_WAKE, &r) ? "not woken" : NULL;
}

/* what cannot be told is taken back, each for itself when not all can be */
static void alloc_leaves_nothing_that_it_could_not_tell(void)
{
	struct mpool_ioc_alloc_one one[4];
	struct mpool_ioc_alloc al = { .al_n = 4, .al_req = (uintptr_t)one };
	struct ids_trap t = { .size = (size_t)sysconf(_SC_PAGESIZE) };
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct mpool_ioc_info before, after;
	unsigned char *map = mmap(NULL, 2 * t.size, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *why = NULL;
	pthread_t thread;
	unsigned int i;

	T_OK(map != MAP_FAILED);
	t.page = map + t.size;
	t.id = (uint64_t *)(void *)(t.page - 2 * sizeof(*t.id));
	t.id[0] = t.id[1] = 0;
	t.uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	T_OK(t.uffd >= 0);
	T_EQ(ioctl(t.uffd, UFFDIO_API, &api), 0);
	reg.range.start = (uintptr_t)t.page;
	reg.range.len = t.size;
	T_EQ(ioctl(t.uffd, UFFDIO_REGISTER, &reg), 0);
	for (i = 0; i < 4; i++)
		one[i] = (struct mpool_ioc_alloc_one){ .ao_kind = 2, .ao_capacity = 1 << 20 };
	al.al_ids = (uintptr_t)t.id;
	KT_EQ(ioc_info(rig.rw, &before), 0);
	T_EQ(pthread_create(&thread, NULL, uses_ids_early, &t), 0);
	KT_EQ(kt_call(rig.rw, MPOOL_IOC_ALLOC, &al), -EFAULT);
	pthread_join(thread, &why);
	T_STREQ(why ? why : "", "");
	KT_EQ(ioc_info(rig.rw, &after), 0);
	T_EQ(after.in_objects, before.in_objects);
	T_EQ(after.in_class[0].cl_used, before.in_class[0].cl_used);
	close(t.uffd);
	munmap(map, t.size);
}

static void batch_refuses_bad_operations(void)
{
	struct mpool_ioc_op op[2];
	struct mpool_ioc_batch ba;
	uint64_t good, id;
	int i;

	KT_EQ(ioc_alloc(rig.rw, 1, 0, 4096, 0, &good), 0);
	KT_EQ(ioc_alloc(rig.rw, 1, 0, 4096, 0, &id), 0);
	for (i = 0; i < 7; i++) {
		op[0] = op[1] = (struct mpool_ioc_op){ .op_type = 1, .op_id = good };
		op[1].op_id = i == 0 ? good : i == 6 ? 0x123456789ull : id;
		op[1].op_type = i == 1 ? 0 : i == 2 ? 4 : 1;
		op[1].op_flags = i == 3 ? 0x80000000u : 0;
		op[1].op_reserved = i == 4 ? 1 : 0;
		op[1].op_length = i == 5 ? 1ull << 40 : 0;
		ba = (struct mpool_ioc_batch){ .ba_n = 2, .ba_ops = (uintptr_t)op };
		KT_EQ(kt_call(rig.rw, MPOOL_IOC_BATCH, &ba),
		      i == 0 ? -EBUSY : i == 6 ? -ENOENT : -EINVAL);
	}
	/* the good one of each pair was not committed */
	KT_EQ(ioc_drop(rig.rw, good), 0);
	KT_EQ(ioc_drop(rig.rw, id), 0);
	KT_EQ(ioc_op(rig.rw, 3, good, 0), -ENOENT);
}

static void what_another_file_holds_is_not_mine(void)
{
	struct mpool_ioc_hold ho = { 0 };
	int other = ioc_pool_open(rig.name, O_RDWR);
	uint64_t id;

	T_OK(other >= 0);
	KT_EQ(ioc_alloc(other, 1, 0, 4096, 0, &id), 0);
	KT_EQ(ioc_op(rig.rw, 1, id, 0), -ENOENT);
	KT_EQ(ioc_drop(rig.rw, id), -ENOENT);
	KT_EQ(ioc_obj_open(rig.rw, id, 0), -ENOENT);
	ho.ho_id = id;
	KT_EQ(kt_call(rig.rw, MPOOL_IOC_OBJ_INFO, &ho), -ENOENT);
	KT_EQ(kt_call(rig.rw, MPOOL_IOC_HOLD, &ho), -ENOENT);
	KT_EQ(kt_call(other, MPOOL_IOC_OBJ_INFO, &ho), 0);
	T_EQ(ho.ho_obj.ob_id, id);
	/* its end ends the uncommitted object */
	close(other);
	KT_EQ(kt_call(rig.rw, MPOOL_IOC_HOLD, &ho), -ENOENT);
}

static void drop_tells_what_is_not_held(void)
{
	uint64_t id[3] = { 0, 0x1234567, 0 };
	struct mpool_ioc_drop dr = { .dr_n = 3, .dr_ids = (uintptr_t)id };

	KT_EQ(ioc_alloc(rig.rw, 1, 0, 4096, 0, &id[0]), 0);
	KT_EQ(ioc_alloc(rig.rw, 1, 0, 4096, 0, &id[2]), 0);
	KT_EQ(kt_call(rig.rw, MPOOL_IOC_DROP, &dr), -ENOENT);
	/* the one before was dropped, the one after was not */
	KT_EQ(ioc_drop(rig.rw, id[0]), -ENOENT);
	KT_EQ(ioc_drop(rig.rw, id[2]), 0);
	KT_EQ(ioc_drop(rig.rw, id[2]), -ENOENT);
}

static void open_flags_follow_the_descriptor(void)
{
	uint64_t id;
	int fd, rc;

	KT_EQ(ioc_alloc(rig.rw, 1, 0, 8192, 0, &id), 0);
	KT_EQ(ioc_op(rig.rw, 1, id, 0), 0);
	rc = ioc_obj_open(rig.ro, id, MPOOL_IOC_OPEN_WRITE);
	T_OK(rc == -EBADF || rc == -EACCES);
	fd = ioc_obj_open(rig.ro, id, MPOOL_IOC_OPEN_CLOEXEC);
	T_OK(fd >= 0);
	T_OK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	T_EQ(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	close(fd);
	fd = ioc_obj_open(rig.rw, id, MPOOL_IOC_OPEN_DIRECT);
	T_OK(fd >= 0);
	T_OK(!(fcntl(fd, F_GETFD) & FD_CLOEXEC));
	T_OK(fcntl(fd, F_GETFL) & O_DIRECT);
	close(fd);
	KT_EQ(ioc_drop(rig.rw, id), 0);
	KT_EQ(ioc_op(rig.rw, 3, id, 0), 0);
}

static void mlog_calls_have_bounds(void)
{
	struct mpool_ioc_vec ve[2] = { { 0 } };
	struct mpool_ioc_append ap;
	struct mpool_ioc_read rd;
	char buf[64] = "0123456789";
	uint64_t id;
	int i;

	KT_EQ(ioc_alloc(rig.rw, 3, 0, 4 * KT_MIB, 0, &id), 0);
	KT_EQ(ioc_append(rig.rw, id, buf, 10, 0), -ENOENT);	/* not open */
	KT_EQ(ioc_mlog(rig.rw, MPOOL_IOC_MLOG_OPEN, id), 0);
	KT_EQ(ioc_append(rig.rw, id, buf, 10, 0x80), -EINVAL);
	for (i = 0; i < 8; i++) {
		static const uint32_t n[] = { 0, MPOOL_IOC_IOV_MAX + 1, 0x80000000u };

		ve[0] = (struct mpool_ioc_vec){ .ve_base = (uintptr_t)buf, .ve_len = 5 };
		ve[1] = ve[0];
		ap = (struct mpool_ioc_append){ .ap_id = id, .ap_n = i < 3 ? n[i] : 2,
						.ap_vec = (uintptr_t)ve };
		if (i == 3)
			ve[0].ve_len = ve[1].ve_len = 0;
		if (i == 4)
			ve[1].ve_len = MPOOL_IOC_RECORD_MAX;
		if (i == 5)
			ve[1].ve_len = ~0ull - 1;	/* the sum wraps to something small */
		if (i == 6)
			ve[1].ve_base = 8;
		if (i == 7)
			ap.ap_vec = 8;
		KT_EQ(kt_call(rig.rw, MPOOL_IOC_MLOG_APPEND, &ap), i < 6 ? -EINVAL : -EFAULT);
	}
	rd = (struct mpool_ioc_read){ .rd_id = id, .rd_buf = (uintptr_t)buf, .rd_size = 64 };
	KT_EQ(kt_call(rig.rw, MPOOL_IOC_MLOG_READ, &rd), -ENODATA);	/* nothing got in */
	KT_EQ(ioc_append(rig.rw, id, "0123456789", 10, MPOOL_IOC_APPEND_SYNC), 0);
	rd.rd_size = 9;
	rd.rd_pos = 0;
	KT_EQ(kt_call(rig.rw, MPOOL_IOC_MLOG_READ, &rd), -EOVERFLOW);
	T_EQ(rd.rd_len, 10);
	T_EQ(rd.rd_pos, 0);
	rd.rd_size = 10;
	rd.rd_buf = 8;
	KT_EQ(kt_call(rig.rw, MPOOL_IOC_MLOG_READ, &rd), -EFAULT);
	rd = (struct mpool_ioc_read){ .rd_id = id, .rd_buf = (uintptr_t)buf, .rd_size = 10 };
	memset(buf, 0, sizeof(buf));
	KT_EQ(kt_call(rig.rw, MPOOL_IOC_MLOG_READ, &rd), 0);
	T_MEMEQ(buf, "0123456789", 10);
	rd.rd_pos = 0x7fffffffffffffffull;
	T_OK(kt_call(rig.rw, MPOOL_IOC_MLOG_READ, &rd) < 0);
	KT_EQ(ioc_mlog(rig.ro, MPOOL_IOC_MLOG_SPACE, id), -ENOENT);	/* another file's */
	KT_EQ(ioc_mlog(rig.rw, MPOOL_IOC_MLOG_CLOSE, id), 0);
	KT_EQ(ioc_mlog(rig.rw, MPOOL_IOC_MLOG_CLOSE, id), -ENOENT);
	KT_EQ(ioc_drop(rig.rw, id), 0);
	KT_EQ(ioc_op(rig.rw, 3, id, 0), 0);
}

static void an_mlog_has_one_writer(void)
{
	int other = ioc_pool_open(rig.name, O_RDWR);
	uint64_t id;

	T_OK(other >= 0);
	KT_EQ(ioc_alloc(rig.rw, 3, 0, KT_MIB, 0, &id), 0);
	KT_EQ(ioc_mlog(rig.rw, MPOOL_IOC_MLOG_OPEN, id), 0);
	KT_EQ(ioc_mlog(other, MPOOL_IOC_MLOG_OPEN, id), -EBUSY);
	KT_EQ(ioc_mlog(rig.ro, MPOOL_IOC_MLOG_OPEN, id), 0);
	close(rig.rw);
	rig.rw = other;
	KT_EQ(ioc_mlog(other, MPOOL_IOC_MLOG_OPEN, id), 0);
	KT_EQ(ioc_mlog(other, MPOOL_IOC_MLOG_CLOSE, id), 0);
	KT_EQ(ioc_mlog(rig.ro, MPOOL_IOC_MLOG_CLOSE, id), 0);
	KT_EQ(ioc_op(other, 3, id, 0), 0);
}

static void the_lease_has_one_holder(void)
{
	struct mpool_ioc_lease a = { .le_id = "client-a" }, b = { .le_id = "client-b" };
	int other = ioc_pool_open(rig.name, O_RDWR), again;
	char pid[16];

	T_OK(other >= 0);
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	KT_EQ(kt_call(rig.rw, MPOOL_IOC_UNLEASE, &a), -ENOENT);
	KT_EQ(kt_call(rig.rw, MPOOL_IOC_LEASE, &a), 0);
	KT_EQ(kt_call(other, MPOOL_IOC_LEASE, &b), -EBUSY);
	T_OK(strstr(kt_text, pid) != NULL);
	KT_EQ(kt_call(other, MPOOL_IOC_UNLEASE, &a), -ENOENT);
	KT_EQ(kt_call(rig.rw, MPOOL_IOC_UNLEASE, &b), -ENOENT);
	/* a second descriptor of the file keeps it */
	again = dup(rig.rw);
	close(rig.rw);
	rig.rw = again;
	KT_EQ(kt_call(other, MPOOL_IOC_LEASE, &b), -EBUSY);
	KT_EQ(kt_call(rig.rw, MPOOL_IOC_UNLEASE, &a), 0);
	KT_EQ(kt_call(other, MPOOL_IOC_LEASE, &b), 0);
	close(other);
	KT_EQ(kt_call(rig.rw, MPOOL_IOC_LEASE, &a), 0);
	KT_EQ(kt_call(rig.rw, MPOOL_IOC_UNLEASE, &a), 0);
}

static void roots_are_found_by_name(void)
{
	struct mpool_ioc_root ro = { .ro_name = "one", .ro_capacity = KT_MIB };

	KT_EQ(kt_call(rig.rw, MPOOL_IOC_ROOT_CREATE, &ro), 0);
	KT_EQ(kt_call(rig.rw, MPOOL_IOC_ROOT_CREATE, &ro), -EEXIST);
	ro = (struct mpool_ioc_root){ .ro_name = "" };
	KT_EQ(kt_call(rig.ro, MPOOL_IOC_ROOT_GET, &ro), -EINVAL);
	ro = (struct mpool_ioc_root){ .ro_name = "on" };
	KT_EQ(kt_call(rig.ro, MPOOL_IOC_ROOT_GET, &ro), -ENOENT);
	ro = (struct mpool_ioc_root){ .ro_name = "" };
	KT_EQ(kt_call(rig.ro, MPOOL_IOC_ROOT_NEXT, &ro), 0);
	T_STREQ(ro.ro_name, "one");
	T_OK(ro.ro_id[0] && ro.ro_id[1] && ro.ro_id[0] != ro.ro_id[1]);
	KT_EQ(kt_call(rig.ro, MPOOL_IOC_ROOT_NEXT, &ro), -ENOENT);
	ro = (struct mpool_ioc_root){ .ro_name = "two", .ro_capacity = KT_MIB,
				      .ro_mclass = MPOOL_IOC_CLASSES };
	KT_EQ(kt_call(rig.rw, MPOOL_IOC_ROOT_CREATE, &ro), -EINVAL);
	ro = (struct mpool_ioc_root){ .ro_name = "one" };
	KT_EQ(kt_call(rig.rw, MPOOL_IOC_ROOT_DELETE, &ro), 0);
	KT_EQ(kt_call(rig.rw, MPOOL_IOC_ROOT_DELETE, &ro), -ENOENT);
}

static void flush_takes_only_known_classes(void)
{
	struct mpool_ioc_flush fl = { .fl_mask = 1u << MPOOL_IOC_CLASSES };

	KT_EQ(kt_call(rig.rw, MPOOL_IOC_FLUSH, &fl), -EINVAL);
	fl = (struct mpool_ioc_flush){ .fl_mask = 0x80000003u };
	KT_EQ(kt_call(rig.rw, MPOOL_IOC_FLUSH, &fl), -EINVAL);
	fl = (struct mpool_ioc_flush){ .fl_mask = 3 };
	KT_EQ(kt_call(rig.rw, MPOOL_IOC_FLUSH, &fl), 0);
}

static void error_texts_fit_where_they_go(void)
{
	struct mpool_ioc_name na = { .na_name = "nosuchpool" };
	char text[MPOOL_IOC_TEXT + 8];

	na.na_arg.ma_size = sizeof(na);
	na.na_arg.ma_text = (uintptr_t)text;
	memset(text, 'x', sizeof(text));
	na.na_arg.ma_text_size = 0;
	T_OK(ioctl(rig.ctl, MPOOL_IOC_DEACTIVATE, &na) && errno == ENOENT);
	T_EQ(text[0], 'x');
	T_OK(na.na_arg.ma_error != 0);
	na.na_arg.ma_text_size = 8;
	T_OK(ioctl(rig.ctl, MPOOL_IOC_DEACTIVATE, &na) && errno == ENOENT);
	T_EQ(text[7], 0);
	T_EQ(text[8], 'x');
	na.na_arg.ma_text_size = MPOOL_IOC_TEXT;
	T_OK(ioctl(rig.ctl, MPOOL_IOC_DEACTIVATE, &na) && errno == ENOENT);
	T_OK(strstr(text, "nosuchpool") != NULL);
	na.na_arg.ma_text_size = MPOOL_IOC_TEXT + 1;
	T_OK(ioctl(rig.ctl, MPOOL_IOC_DEACTIVATE, &na) && errno == EINVAL);
	/* a text that has no place changes nothing else */
	na.na_arg.ma_text_size = MPOOL_IOC_TEXT;
	na.na_arg.ma_text = 8;
	T_OK(ioctl(rig.ctl, MPOOL_IOC_DEACTIVATE, &na) && errno == ENOENT);
}

static void results_describe_the_pool(void)
{
	struct mpool_ioc_version iv = { 0 };
	struct mpool_ioc_info in;
	struct mpool_ioc_list li = { 0 };
	struct mpool_ioc_dev_info di = { 0 };
	struct mpool_ioc_probe pr = { .pr_fd = rig.disk[1].dk_fd };
	struct stat st;

	KT_EQ(kt_call(rig.ro, MPOOL_IOC_VERSION, &iv), 0);
	T_EQ(iv.iv_abi, MPOOL_IOC_ABI);
	T_EQ(iv.iv_format, 0x0100);
	T_STREQ(iv.iv_version, MP_VERSION);
	KT_EQ(ioc_info(rig.ro, &in), 0);
	T_STREQ(in.in_name, rig.name);
	T_EQ(in.in_ndevs, 2);
	T_EQ(in.in_state, 0);
	T_EQ(in.in_opens, 2);
	T_EQ(in.in_class[0].cl_devs + in.in_class[1].cl_devs, 2);
	T_OK(in.in_class[1].cl_total > 100 * KT_MIB && in.in_class[1].cl_total <= 128 * KT_MIB);
	KT_EQ(kt_call(rig.ctl, MPOOL_IOC_LIST, &li), 0);
	T_STREQ(li.li_name, rig.name);
	T_MEMEQ(li.li_uuid, in.in_uuid, 16);
	T_EQ(li.li_opens, 2);
	T_EQ(fstat(rig.ro, &st), 0);
	T_EQ(minor(st.st_rdev), li.li_minor);
	strcpy(li.li_after, li.li_name);
	KT_EQ(kt_call(rig.ctl, MPOOL_IOC_LIST, &li), -ENOENT);
	di.di_slot = 1;
	KT_EQ(kt_call(rig.ro, MPOOL_IOC_DEV_INFO, &di), 0);
	T_STREQ(di.di_path, rig.disk[1].dk_path);
	T_EQ(di.di_mclass, 1);
	T_EQ(di.di_bytes, 128 * KT_MIB);
	T_EQ(fstat(rig.disk[1].dk_fd, &st), 0);
	T_OK(di.di_major == major(st.st_rdev) && di.di_minor == minor(st.st_rdev));
	di.di_slot = 2;
	KT_EQ(kt_call(rig.ro, MPOOL_IOC_DEV_INFO, &di), -ENOENT);
	di.di_slot = 0xffffffffu;
	KT_EQ(kt_call(rig.ro, MPOOL_IOC_DEV_INFO, &di), -ENOENT);
	KT_EQ(kt_call(rig.ctl, MPOOL_IOC_PROBE, &pr), 0);
	T_EQ(pr.pr_is_active, 1);
	T_EQ(pr.pr_state, 2);
	T_EQ(pr.pr_mclass, 1);
	T_MEMEQ(pr.pr_uuid, in.in_uuid, 16);
}

/* what a 32-bit process can reach */
struct low {
	struct mpool_ioc_version iv;
	struct mpool_ioc_info in;
	struct mpool_ioc_alloc al;
	struct mpool_ioc_alloc_one one[2];
	uint64_t ids[2];
	struct mpool_ioc_drop dr;
};

/* through the entry of 32-bit processes, with the numbers of i386 */
static long call_32bit(long nr, long a, unsigned long b, void *c)
{
	long rc;

	__asm__ volatile("int $0x80" : "=a"(rc) : "a"(nr), "b"(a), "c"(b), "d"(c)
			 : "memory", "r8", "r9", "r10", "r11");
	return rc;
}

static long ioctl_32bit(int fd, unsigned long cmd, void *arg)
{
	*(struct mpool_ioc_arg *)arg = (struct mpool_ioc_arg){ .ma_size = _IOC_SIZE(cmd) };
	return call_32bit(54, fd, cmd, arg);
}

/* getpid(); User Mode Linux takes the number for one of 64-bit processes */
static int knows_32bit(void *arg)
{
	(void)arg;
	return call_32bit(20, 0, 0, NULL) == getpid() ? 0 : 1;
}

#define T_PADDED(a)	T_OK(kt_is_padded((a), sizeof(a)))

/*
 * What a caller had in its structures before, and what others gave behind the end of a name,
 * comes back to none: each text is followed by zeroes. So are those that a stopped pool gives,
 * see test_loss.
 */
static void behind_the_end_of_a_text_there_are_zeroes(void)
{
	static struct { struct mpool_ioc_version iv; struct mpool_ioc_info in;
			struct mpool_ioc_dev_info di; struct mpool_ioc_probe pr;
			struct mpool_ioc_list li; struct mpool_ioc_root ro; } x;

	memset(&x, 0xa5, sizeof(x));
	memset(&x.iv.iv_arg, 0, sizeof(x.iv.iv_arg));
	KT_EQ(kt_call(rig.ctl, MPOOL_IOC_VERSION, &x.iv), 0);
	T_PADDED(x.iv.iv_version);
	memset(&x.in.in_arg, 0, sizeof(x.in.in_arg));
	KT_EQ(kt_call(rig.ro, MPOOL_IOC_INFO, &x.in), 0);
	T_PADDED(x.in.in_name);
	T_PADDED(x.in.in_label);
	T_PADDED(x.in.in_fault);
	memset(&x.di.di_arg, 0, sizeof(x.di.di_arg));
	x.di.di_slot = 0;
	KT_EQ(kt_call(rig.ro, MPOOL_IOC_DEV_INFO, &x.di), 0);
	T_PADDED(x.di.di_path);
	memset(&x.pr.pr_arg, 0, sizeof(x.pr.pr_arg));
	x.pr.pr_fd = rig.disk[0].dk_fd;
	x.pr.pr_reserved = 0;
	KT_EQ(kt_call(rig.ctl, MPOOL_IOC_PROBE, &x.pr), 0);
	T_PADDED(x.pr.pr_name);
	memset(&x.li.li_arg, 0, sizeof(x.li.li_arg));
	x.li.li_after[0] = 0;
	x.li.li_reserved = 0;
	KT_EQ(kt_call(rig.ctl, MPOOL_IOC_LIST, &x.li), 0);
	T_PADDED(x.li.li_name);
	/* a call that makes a root gives bytes behind its name, one that reads has others there */
	memset(&x.ro, 0, sizeof(x.ro));
	memset(x.ro.ro_name, 0xa5, sizeof(x.ro.ro_name) - 1);
	memcpy(x.ro.ro_name, "root", 5);
	x.ro.ro_capacity = 65536;
	KT_EQ(kt_call(rig.rw, MPOOL_IOC_ROOT_CREATE, &x.ro), 0);
	memcpy(x.ro.ro_name, "", 1);
	KT_EQ(kt_call(rig.ro, MPOOL_IOC_ROOT_NEXT, &x.ro), 0);
	T_STREQ(x.ro.ro_name, "root");
	T_PADDED(x.ro.ro_name);
	KT_EQ(kt_call(rig.rw, MPOOL_IOC_ROOT_DELETE, &x.ro), 0);
}

static void processes_of_32_bit_use_the_same_structures(void)
{
	struct mpool_ioc_version iv = { 0 };
	struct mpool_ioc_info in;
	struct low *low = mmap(NULL, sizeof(*low), PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	int i;

	T_OK(low != MAP_FAILED);
	T_EQ(ioctl_32bit(rig.ctl, MPOOL_IOC_VERSION, &low->iv), 0);
	KT_EQ(kt_call(rig.ctl, MPOOL_IOC_VERSION, &iv), 0);
	T_MEMEQ(&low->iv.iv_arg + 1, &iv.iv_arg + 1, sizeof(iv) - sizeof(iv.iv_arg));
	T_EQ(ioctl_32bit(rig.ro, MPOOL_IOC_INFO, &low->in), 0);
	KT_EQ(ioc_info(rig.ro, &in), 0);
	/* a discard of what the tests before have freed may end between the two */
	for (i = 0; i < MPOOL_IOC_CLASSES; i++)
		low->in.in_class[i].cl_discarding = in.in_class[i].cl_discarding;
	T_MEMEQ(&low->in.in_arg + 1, &in.in_arg + 1, sizeof(in) - sizeof(in.in_arg));

	for (i = 0; i < 2; i++)
		low->one[i] = (struct mpool_ioc_alloc_one){ .ao_kind = 1, .ao_capacity = 65536 };
	low->al.al_n = low->dr.dr_n = 2;
	low->al.al_req = (uintptr_t)low->one;
	low->al.al_ids = low->dr.dr_ids = (uintptr_t)low->ids;
	T_EQ(ioctl_32bit(rig.ro, MPOOL_IOC_ALLOC, &low->al), -EBADF);
	T_EQ(ioctl_32bit(rig.rw, MPOOL_IOC_ALLOC, &low->al), 0);
	T_OK(low->ids[0] && low->ids[1] && low->ids[0] != low->ids[1]);
	T_EQ(ioctl_32bit(rig.ro, MPOOL_IOC_DROP, &low->dr), -ENOENT);
	T_EQ(ioctl_32bit(rig.rw, MPOOL_IOC_DROP, &low->dr), 0);
	T_EQ(ioctl_32bit(rig.rw, MPOOL_IOC_DROP, &low->dr), -ENOENT);
	munmap(low, sizeof(*low));
}

static void nothing_was_changed_by_all_this(void)
{
	struct mpool_ioc_info in;

	KT_EQ(ioc_info(rig.rw, &in), 0);
	T_EQ(in.in_objects, 0);
	T_EQ(in.in_state, 0);
	T_EQ(in.in_opens, 2);
	T_STREQ(in.in_fault, "");
}

static void the_pool_comes_up(void)
{
	kt_up(&rig, "ktioctl", 128);
}

int main(void)
{
	const char *why = kt_missing();

	if (why)
		return t_skip_all(why);
	T_RUN(the_pool_comes_up);
	if (t_failed) {
		kt_down(&rig);
		return t_done();
	}
	T_RUN(results_describe_the_pool);
	T_RUN(unknown_commands_are_enotty);
	T_RUN(another_size_is_enotty);
	T_RUN(wrong_node_is_enotty);
	T_RUN(bad_addresses_are_efault);
	T_RUN(results_need_a_place);
	T_RUN(a_node_is_not_opened_for_writing_only);
	T_RUN(locks_of_open_files_cannot_be_asked_about);
	T_RUN(unknown_flags_are_einval);
	T_RUN(reserved_fields_are_einval);
	T_RUN(names_without_an_end_are_einval);
	T_RUN(bad_names_are_einval);
	T_RUN(write_commands_need_a_writable_descriptor);
	T_RUN(administration_needs_the_capability);
	T_RUN(root_of_a_user_namespace_is_not_root);
	T_RUN(counts_have_bounds);
	T_RUN(other_kinds_of_descriptors_are_refused);
	T_RUN(devices_must_be_writable_whole_and_free);
	T_RUN(properties_have_bounds);
	T_RUN(a_disk_that_is_too_small_is_refused_by_name);
	T_RUN(a_zoned_disk_is_refused_by_name);
	T_RUN(alloc_refuses_bad_requests);
	if (syscall(SYS_userfaultfd, ~0u) < 0 && errno == ENOSYS)
		t_skip("alloc_leaves_nothing_that_it_could_not_tell", "no userfaultfd()");
	else
		T_RUN(alloc_leaves_nothing_that_it_could_not_tell);
	T_RUN(batch_refuses_bad_operations);
	T_RUN(what_another_file_holds_is_not_mine);
	T_RUN(drop_tells_what_is_not_held);
	T_RUN(open_flags_follow_the_descriptor);
	T_RUN(mlog_calls_have_bounds);
	T_RUN(an_mlog_has_one_writer);
	T_RUN(the_lease_has_one_holder);
	T_RUN(roots_are_found_by_name);
	T_RUN(flush_takes_only_known_classes);
	T_RUN(error_texts_fit_where_they_go);
	T_RUN(behind_the_end_of_a_text_there_are_zeroes);
	if (kt_child(knows_32bit, NULL) == 0)
		T_RUN(processes_of_32_bit_use_the_same_structures);
	T_RUN(nothing_was_changed_by_all_this);
	kt_down(&rig);
	return t_done();
}
