/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Conformance of the calls on whole pools: every documented error once, with
 * the promise that nothing is left behind or changed.
 */
#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "pool_help.h"

static int entries(const char *path)
{
	struct dirent *de;
	DIR *d = opendir(path);
	int n = 0;

	if (!d)
		return -1;
	while ((de = readdir(d)))
		n += de->d_name[0] != '.';
	closedir(d);
	return n;
}

/* A member's path that is longer than what is shown of it: its file goes, and no other. */
static void destroy_removes_the_members_however_long_their_path(void)
{
	struct mpool_dev_spec dev = { .mclass = MPOOL_CAPACITY, .size = 16 * MIB };
	struct mpool_create_opts o = MPOOL_CREATE_OPTS_INIT;
	char name[256], beside[600], pool[600];
	struct stat st;
	int fd;

	th_fresh();
	memset(name, 'p', sizeof(name));
	/* begins with the same 255 bytes */
	snprintf(beside, sizeof(beside), "%s/%.*s", th_dir, (int)(254 - strlen(th_dir)), name);
	T_EQ(strlen(beside), 255);
	fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	T_OK(fd >= 0);
	close(fd);
	snprintf(pool, sizeof(pool), "%s/%.250s", th_dir, name);
	o.name = "long";
	o.devs = &dev;
	o.ndevs = 1;
	T_EQ(mpool_create(pool, &o), 0);
	T_EQ(mpool_destroy(pool, NULL), 0);
	T_OK(stat(pool, &st) && errno == ENOENT);
	T_EQ(stat(beside, &st), 0);
	th_clean();
}

static void create_open_close_destroy(void)
{
	struct mpool_info in;
	struct mpool_dev_info di;
	struct mpool *mp;
	struct stat st;

	th_fresh();
	T_EQ(th_create_at(th_pool, 64 * MIB, 32 * MIB), 0);
	T_STREQ(mpool_error_detail()->id, "");
	if (!th_is_kmod()) {
		T_EQ(stat(th_pool, &st), 0);
		T_EQ(st.st_mode & 0777, 0700);
		T_EQ(entries(th_pool), 3);
	}
	T_EQ(mpool_open(th_pool, NULL, &mp), 0);
	T_EQ(mpool_info(mp, &in), 0);
	T_STREQ(in.name, th_is_kmod() ? th_pool : "pool");
	T_EQ(in.format_version, 0x0100);
	T_EQ(in.is_rdonly, 0);
	T_EQ(in.cls[MPOOL_CAPACITY].devs, 1);
	T_EQ(in.cls[MPOOL_STAGING].devs, 1);
	T_OK(in.cls[MPOOL_CAPACITY].total > 48 * MIB && in.cls[MPOOL_CAPACITY].total <= 64 * MIB);
	T_EQ(in.cls[MPOOL_CAPACITY].used, 0);
	T_EQ(mpool_dev_info(mp, 0, &di), 0);
	T_EQ(di.size, 64 * MIB);
	T_EQ(di.is_block, th_is_kmod());
	T_EQ(mpool_dev_info(mp, 2, &di), -ENOENT);
	T_EQ(mpool_close(mp), 0);
	T_EQ(mpool_destroy(th_pool, NULL), 0);
	T_OK(stat(th_pool, &st) && errno == ENOENT);
	T_EQ(mpool_open(th_pool, NULL, &mp), -ENOENT);
	T_EQ(mpool_destroy(th_pool, NULL), -ENOENT);
}

static void create_existing_pool_is_eexist(void)
{
	th_fresh();
	T_EQ(th_create_at(th_pool, 16 * MIB, 0), 0);
	T_EQ(th_create_at(th_pool, 16 * MIB, 0), -EEXIST);
	T_OK(strstr(mpool_error_detail()->text, th_pool));
	T_OK(*mpool_error_detail()->cure);
}

static void create_plan_writes_nothing(void)
{
	struct mpool_dev_spec dev = { .mclass = MPOOL_CAPACITY, .size = 16 * MIB };
	struct mpool_create_opts o = MPOOL_CREATE_OPTS_INIT;
	struct mpool *mp;
	struct stat st;

	th_fresh();
	dev.path = th_dev_make(MPOOL_CAPACITY, 16 * MIB);
	o.devs = &dev;
	o.ndevs = 1;
	o.flags = MPOOL_CREATE_PLAN;
	T_EQ(mpool_create(th_pool, &o), 0);
	T_OK(stat(th_pool, &st) && errno == ENOENT);
	T_EQ(mpool_open(th_pool, NULL, &mp), -ENOENT);
}

static void create_refuses_a_file_with_content(void)
{
	char path[600];
	char text[] = "precious";
	char back[16] = "";
	int fd;

	th_fresh();
	T_EQ(mkdir(th_pool, 0700), 0);
	snprintf(path, sizeof(path), "%s/capacity.mp", th_pool);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	T_EQ(write(fd, text, 8), 8);
	T_EQ(th_create_at(th_pool, 16 * MIB, 0), -EEXIST);
	T_EQ(pread(fd, back, 15, 0), 8);
	T_STREQ(back, text);
	close(fd);
	T_EQ(entries(th_pool), 1);
}

static void create_names_a_foreign_signature(void)
{
	char path[600], before[8192], after[8192];
	int fd;

	th_fresh();
	if (th_is_kmod()) {
		fd = open(th_dev_make(MPOOL_CAPACITY, 16 * MIB), O_RDWR);
	} else {
		T_EQ(mkdir(th_pool, 0700), 0);
		snprintf(path, sizeof(path), "%s/capacity.mp", th_pool);
		fd = open(path, O_RDWR | O_CREAT, 0600);
		T_EQ(ftruncate(fd, 16 * MIB), 0);
	}
	/* an MBR partition table is the shortest signature to write by hand */
	memset(before, 0, sizeof(before));
	before[446] = (char)0x80;
	before[450] = (char)0x83;
	before[454] = 1;
	before[459] = 1;
	before[510] = 0x55;
	before[511] = (char)0xaa;
	T_EQ(pwrite(fd, before, sizeof(before), 0), sizeof(before));
	T_EQ(th_create_at(th_pool, 16 * MIB, 0), -EPERM);
	T_OK(strstr(mpool_error_detail()->text, "dos"));
	T_EQ(pread(fd, after, sizeof(after), 0), sizeof(after));
	T_MEMEQ(before, after, sizeof(before));
	close(fd);
}

static void create_without_permission_is_eacces(void)
{
	if (!geteuid())
		return;
	th_fresh();
	T_EQ(chmod(th_dir, 0500), 0);
	T_EQ(th_create_at(th_pool, 16 * MIB, 0), -EACCES);
	T_EQ(chmod(th_dir, 0700), 0);
}

/* What a user makes is the user's, also by a program that says nothing of owners. */
static int create_as_user(void)
{
	struct mpool_info in;
	struct mpool *mp;

	if (!geteuid() && (setgid(4712) || setuid(4711)))
		return 77;
	if (access(th_dir, W_OK))
		return 77; /* a folder above is closed to others */
	if (th_create_at(th_pool, 16 * MIB, 0) || mpool_open(th_pool, NULL, &mp) ||
	    mpool_info(mp, &in) || mpool_close(mp))
		return 1;
	return in.uid == geteuid() && in.gid == getegid() ? 0 : 2;
}

static void a_pool_is_its_makers(void)
{
	int status;
	pid_t pid;

	th_fresh();
	T_EQ(chmod(th_dir, 0777), 0);
	pid = fork();
	if (!pid)
		_exit(create_as_user());
	T_EQ(waitpid(pid, &status, 0), pid);
	T_OK(WIFEXITED(status));
	T_OK(WEXITSTATUS(status) == 77 || !WEXITSTATUS(status));
}

static void create_where_a_file_is_not_a_directory(void)
{
	char path[600];

	th_fresh();
	T_EQ(close(open(th_pool, O_CREAT | O_WRONLY, 0600)), 0);
	T_EQ(th_create_at(th_pool, 16 * MIB, 0), -ENOTDIR);
	snprintf(path, sizeof(path), "%s/none/pool", th_dir);
	T_OK(th_create_at(path, 16 * MIB, 0) < 0);
}

static void create_repeats_after_an_interruption(void)
{
	char path[600];
	int fd;

	th_fresh();
	T_EQ(mkdir(th_pool, 0700), 0);
	snprintf(path, sizeof(path), "%s/capacity.mp", th_pool);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	T_EQ(ftruncate(fd, 16 * MIB), 0); /* made, nothing written: no pool */
	close(fd);
	T_EQ(th_create_at(th_pool, 16 * MIB, 0), 0);
}

static void second_open_is_ebusy_and_names_the_way_out(void)
{
	struct mpool_open_opts o = MPOOL_OPEN_OPTS_INIT;
	struct mpool *mp = th_new_pool(NULL, NULL), *two;
	uint64_t damage;
	pid_t pid;
	int st;

	T_EQ(mpool_open(th_pool, NULL, &two), -EBUSY);
	T_OK(strstr(mpool_error_detail()->text, th_pool));
	T_OK(*mpool_error_detail()->cure);
	o.flags = MPOOL_OPEN_RDONLY;
	T_EQ(mpool_open(th_pool, &o, &two), -EBUSY);
	T_EQ(mpool_verify(th_pool, NULL, 0, NULL, NULL, &damage), -EBUSY);
	T_EQ(mpool_destroy(th_pool, NULL), -EBUSY);
	pid = fork();
	if (!pid)
		_exit(mpool_open(th_pool, NULL, &two) == -EBUSY ? 0 : 1);
	T_EQ(waitpid(pid, &st, 0), pid);
	T_EQ(st, 0);
	T_EQ(mpool_close(mp), 0);
	mp = th_open_with(NULL, NULL);
	T_EQ(mpool_close(mp), 0);
}

/* What "in use" means for a pool that lives in the kernel. */
static void an_active_pool_is_shared_and_stays(void)
{
	struct mpool *mp = th_new_pool(NULL, NULL), *two;
	struct mpool_active ac = { .opens = 0 };
	uint64_t damage = 9;

	T_EQ(mpool_open(th_pool, NULL, &two), 0);
	T_EQ(mpool_active_next("", &ac), 0);
	while (strcmp(ac.name, th_pool))
		T_EQ(mpool_active_next(ac.name, &ac), 0);
	T_EQ(ac.opens, 2);
	T_EQ(ac.is_trusted, 1);
	T_EQ(mpool_deactivate(th_pool), -EBUSY);
	T_OK(*mpool_error_detail()->cure);
	T_EQ(mpool_destroy(th_pool, NULL), -EBUSY);
	T_EQ(mpool_verify(th_pool, NULL, 0, NULL, NULL, &damage), 0);
	T_EQ(damage, 0);
	T_EQ(mpool_close(two), 0);
	T_EQ(mpool_close(mp), 0);
	T_EQ(mpool_deactivate(th_pool), 0);
	T_EQ(mpool_deactivate(th_pool), -ENOENT);
	T_EQ(mpool_open(th_pool, NULL, &mp), -ENOENT);
}

static void two_readers_share(void)
{
	struct mpool_open_opts o = MPOOL_OPEN_OPTS_INIT;
	struct mpool_alloc req = { .kind = MPOOL_MBLOCK, .capacity = 4096 };
	struct mpool *a, *b, *w;
	struct mpool_obj *obj;
	struct mpool_info in;

	T_EQ(mpool_close(th_new_pool(NULL, NULL)), 0);
	o.flags = MPOOL_OPEN_RDONLY;
	T_EQ(mpool_open(th_pool, &o, &a), 0);
	T_EQ(mpool_open(th_pool, &o, &b), 0);
	if (!th_is_kmod())
		T_EQ(mpool_open(th_pool, NULL, &w), -EBUSY);
	T_EQ(mpool_info(a, &in), 0);
	T_EQ(in.is_rdonly, 1);
	T_EQ(mpool_alloc(a, &req, 1, &obj), -EROFS);
	T_OK(strstr(mpool_error_detail()->text, "is open for reading only"));
	T_EQ(mpool_close(a), 0);
	T_EQ(mpool_close(b), 0);
}

static void close_refuses_while_something_is_open(void)
{
	struct mpool *mp = th_new_pool(NULL, NULL);
	struct mpool_obj *obj = th_alloc(mp, MPOOL_MBLOCK, MPOOL_CAPACITY, 4096, 0);
	struct mpool_ioq *q;

	T_EQ(mpool_close(mp), -EBUSY);
	mpool_obj_close(obj);
	T_EQ(mpool_ioq_open(mp, 4, &q), 0);
	T_EQ(mpool_close(mp), -EBUSY);
	mpool_ioq_close(q);
	T_EQ(mpool_close(mp), 0);
}

static void signals_are_the_programs(void)
{
	struct mpool *mp = th_new_pool(NULL, NULL);

	T_OK(th_signal_waits());
	T_EQ(mpool_close(mp), 0);
}

static void a_pool_that_is_not_there_is_said(void)
{
	struct mpool *mp = NULL;

	th_fresh();
	if (th_is_kmod()) {
		T_EQ(mpool_open("name-without-slash", NULL, &mp), -ENOENT);
		T_OK(strstr(mpool_error_detail()->text, "mpool activate"));
	} else if (access("/sys/module/mpool", F_OK)) {
		T_EQ(mpool_open("name-without-slash", NULL, &mp), -EOPNOTSUPP);
		T_OK(strstr(mpool_error_detail()->text, "module"));
	}
	T_EQ(mpool_open(th_pool, NULL, &mp), -ENOENT);
	T_OK(!mp);
}

static void open_missing_and_replaced_members(void)
{
	char path[600], moved[600];
	struct mpool *mp = th_new_pool(NULL, NULL);
	int fd;

	T_EQ(mpool_close(mp), 0);
	snprintf(path, sizeof(path), "%s/staging.mp", th_pool);
	snprintf(moved, sizeof(moved), "%s/moved", th_dir);
	T_EQ(rename(path, moved), 0);
	T_EQ(mpool_open(th_pool, NULL, &mp), -ENODEV);
	T_OK(strstr(mpool_error_detail()->text, "staging.mp"));
	T_EQ(symlink(moved, path), 0);
	T_EQ(mpool_open(th_pool, NULL, &mp), -ELOOP);
	T_STREQ(mpool_error_detail()->id, "MP0435");
	T_OK(strstr(mpool_error_detail()->cure, "the file itself"));
	T_EQ(unlink(path), 0);
	fd = open(path, O_CREAT | O_RDWR, 0600);
	T_EQ(ftruncate(fd, 32 * MIB), 0);
	close(fd);
	T_OK(mpool_open(th_pool, NULL, &mp) < 0); /* not a member */
	T_EQ(rename(moved, path), 0);
	mp = th_open_with(NULL, NULL);
	T_EQ(mpool_close(mp), 0);
}

static void open_finds_default_members_without_pool_json(void)
{
	struct mpool *mp = th_new_pool(NULL, NULL);
	char path[600];
	int fd;

	T_EQ(mpool_close(mp), 0);
	snprintf(path, sizeof(path), "%s/pool.json", th_pool);
	T_EQ(unlink(path), 0);
	mp = th_open_with(NULL, NULL);
	T_EQ(mpool_close(mp), 0);
	fd = open(path, O_CREAT | O_RDWR, 0600);
	T_EQ(write(fd, "{\"devices\":[{}]}", 16), 16);
	close(fd);
	T_EQ(mpool_open(th_pool, NULL, &mp), -EUCLEAN);
}

static void pool_json_is_checked(void)
{
	static const char *const bad[] = {
		"", "[]", "{}", "{\"devices\":[]}", "{\"devices\":5}",
		"{\"devices\":[{\"path\":1}]}",
		"{\"devices\":[{\"path\":\"capacity.mp\",\"class\":\"fast\"}]}", "rubbish",
		"{\"devices\":[{\"path\":\"capacity.mp\",\"class\":1}]}",
		"{\"devices\":[{\"path\":\"capacity.mp\"}]}",
		"{\"devices\":[{\"path\":\"\",\"class\":\"capacity\"}]}",
		"{\"devices\":[{\"class\":\"capacity\"}]}", "{\"devices\":[5]}",
	};
	struct mpool *mp = th_new_pool(NULL, NULL);
	char path[600], text[6000];
	unsigned i;
	int fd;

	T_EQ(mpool_close(mp), 0);
	snprintf(path, sizeof(path), "%s/pool.json", th_pool);
	snprintf(text, sizeof(text),
		 "{\"devices\":[{\"path\":\"%05000d\",\"class\":\"capacity\"}]}", 0);
	fd = open(path, O_CREAT | O_RDWR | O_TRUNC, 0600);
	T_EQ(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	T_EQ(mpool_open(th_pool, NULL, &mp), -EUCLEAN);
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		fd = open(path, O_CREAT | O_RDWR | O_TRUNC, 0600);
		T_EQ(write(fd, bad[i], strlen(bad[i])), strlen(bad[i]));
		close(fd);
		T_EQ(mpool_open(th_pool, NULL, &mp), -EUCLEAN);
	}
}

static void lease_is_exclusive(void)
{
	const uint8_t a[16] = "client-a", b[16] = "client-b";
	struct mpool *mp = th_new_pool(NULL, NULL);

	T_EQ(mpool_lease(mp, a), 0);
	T_EQ(mpool_lease(mp, b), -EBUSY);
	T_EQ(mpool_lease(mp, a), -EBUSY);
	T_EQ(mpool_unlease(mp, b), -ENOENT);
	T_EQ(mpool_unlease(mp, a), 0);
	T_EQ(mpool_unlease(mp, a), -ENOENT);
	T_EQ(mpool_lease(mp, b), 0);
	T_EQ(mpool_close(mp), 0);
}

/* Readers share one, but each has it or not, as a writer. */
static void a_readers_lease_is_known_to_it(void)
{
	const uint8_t a[16] = "client-a", b[16] = "client-b";
	struct mpool *mp = th_new_pool(NULL, NULL), *r;
	struct mpool_open_opts o = MPOOL_OPEN_OPTS_INIT;

	T_EQ(mpool_close(mp), 0);
	o.flags = MPOOL_OPEN_RDONLY;
	T_EQ(mpool_open(th_pool, &o, &mp), 0);
	T_EQ(mpool_open(th_pool, &o, &r), 0);
	T_EQ(mpool_unlease(mp, a), -ENOENT);
	T_EQ(mpool_lease(mp, a), 0);
	T_EQ(mpool_lease(mp, a), -EBUSY);
	T_EQ(mpool_lease(mp, b), -EBUSY);
	T_EQ(mpool_lease(r, a), 0);
	T_EQ(mpool_unlease(mp, b), -ENOENT);
	T_EQ(mpool_unlease(mp, a), 0);
	T_EQ(mpool_unlease(mp, a), -ENOENT);
	T_EQ(mpool_lease(mp, b), 0);
	T_EQ(mpool_close(r), 0);
	T_EQ(mpool_close(mp), 0);
}

static int lines;

static void count_line(void *arg, const char *line)
{
	(void)arg;
	lines += !!strchr(line, '\n');
}

static uint64_t mapped;

static void count_extent(void *arg, const struct mpool_extent *e)
{
	(void)arg;
	if (e->what && e->len)
		mapped++;
}

static void inspection_reads_only(void)
{
	struct mpool *mp = th_new_pool(NULL, NULL);
	struct mpool_obj *obj = th_alloc(mp, MPOOL_APPEND, MPOOL_STAGING, 64 << 10, 5);
	char path[600];
	struct stat a, b;
	uint64_t damage = 9;

	mpool_obj_close(obj);
	T_EQ(mpool_close(mp), 0);
	T_EQ(stat(th_member(path), &a), 0);
	T_EQ(mpool_verify(th_pool, NULL, MPOOL_VERIFY_DATA, NULL, NULL, &damage), 0);
	T_EQ(damage, 0);
	lines = 0;
	T_EQ(mpool_dump(th_pool, NULL, count_line, NULL), 0);
	T_OK(lines > 3);
	mapped = 0;
	T_EQ(mpool_map(th_pool, NULL, count_extent, NULL), 0);
	T_OK(mapped >= 7);
	T_EQ(stat(th_member(path), &b), 0);
	T_EQ(a.st_mtim.tv_nsec, b.st_mtim.tv_nsec);
	T_EQ(a.st_mtim.tv_sec, b.st_mtim.tv_sec);
	T_EQ(mpool_verify(th_pool, NULL, 0x10, NULL, NULL, &damage), -EINVAL);
	T_EQ(mpool_dump(th_pool, NULL, NULL, NULL), -EINVAL);
	T_EQ(mpool_map(th_pool, NULL, NULL, NULL), -EINVAL);
}

/* Options that a program has for its readers remove nothing. */
static void for_reading_only_nothing_is_changed(void)
{
	struct mpool_open_opts o = MPOOL_OPEN_OPTS_INIT;
	struct mpool_dev_spec dev = { .mclass = MPOOL_STAGING, .size = 16 * MIB };
	struct mpool_set_opts set = MPOOL_SET_OPTS_INIT;
	char path[600], more[600];
	struct stat a, b;
	int both;

	T_EQ(mpool_close(th_new_pool(NULL, NULL)), 0);
	snprintf(more, sizeof(more), "%s/more.mp", th_dir);
	dev.path = more;
	set.mask = MPOOL_SET_LABEL;
	set.label = "x";
	T_EQ(stat(th_member(path), &a), 0);
	for (both = 0; both < 2; both++) {
		o.flags = MPOOL_OPEN_RDONLY | (both ? MPOOL_OPEN_SHARED : 0);
		T_EQ(mpool_destroy(th_pool, &o), -EINVAL);
		T_OK(strstr(mpool_error_detail()->text, "for writing"));
		T_EQ(mpool_grow(th_pool, &o, 128 * MIB, MPOOL_CAPACITY), -EINVAL);
		T_EQ(mpool_set(th_pool, &o, &set), -EINVAL);
		T_EQ(mpool_rename(th_pool, &o, "other"), -EINVAL);
		T_EQ(mpool_add(th_pool, &o, &dev, 1, 0), -EINVAL);
	}
	T_EQ(stat(path, &b), 0);
	T_EQ(a.st_size, b.st_size);
	T_OK(access(more, F_OK));
	T_EQ(mpool_close(th_open_with(NULL, NULL)), 0);
}

/* Opened to look, a pool is written to only when its client says so. */
static void a_look_writes_nothing_before_it_begins(void)
{
	struct mpool_open_opts o = MPOOL_OPEN_OPTS_INIT;
	struct iovec v = { .iov_base = "record", .iov_len = 6 };
	struct mpool_mdc *mdc;
	struct stat a, b;
	struct mpool *mp;
	char path[600];

	mp = th_new_pool(NULL, NULL);
	T_EQ(mpool_mdc_create(mp, "box", MPOOL_CAPACITY, MIB, 0), 0);
	T_EQ(mpool_close(mp), 0);
	T_EQ(stat(th_member(path), &a), 0);
	o.flags = MPOOL_OPEN_LOOK;
	T_EQ(mpool_open(th_pool, &o, &mp), 0);
	T_EQ(mpool_mdc_open(mp, "box", &mdc), 0);
	T_EQ(mpool_mdc_append(mdc, &v, 1, MPOOL_SYNC), -EROFS);
	T_EQ(mpool_mdc_compact_begin(mdc), -EROFS);
	T_EQ(mpool_mdc_delete(mp, "other"), -ENOENT);
	T_EQ(mpool_flush(mp, 3), 0);
	T_EQ(stat(path, &b), 0);
	T_EQ(a.st_mtim.tv_nsec, b.st_mtim.tv_nsec);
	T_EQ(a.st_mtim.tv_sec, b.st_mtim.tv_sec);
	T_EQ(mpool_begin(mp), 0);
	T_EQ(mpool_begin(mp), 0);
	T_EQ(mpool_mdc_append(mdc, &v, 1, MPOOL_SYNC), 0);
	mpool_mdc_close(mdc);
	T_EQ(mpool_close(mp), 0);
	T_EQ(stat(path, &b), 0);
	T_OK(a.st_mtim.tv_nsec != b.st_mtim.tv_nsec || a.st_mtim.tv_sec != b.st_mtim.tv_sec);
}

static void a_reader_never_begins(void)
{
	struct mpool_open_opts o = MPOOL_OPEN_OPTS_INIT;
	struct mpool *mp;

	T_EQ(mpool_close(th_new_pool(NULL, NULL)), 0);
	o.flags = MPOOL_OPEN_LOOK | MPOOL_OPEN_RDONLY;
	T_EQ(mpool_open(th_pool, &o, &mp), -EINVAL);
	o.flags = MPOOL_OPEN_RDONLY;
	T_EQ(mpool_open(th_pool, &o, &mp), 0);
	T_EQ(mpool_begin(NULL), -EINVAL);
	T_EQ(mpool_begin(mp), -EINVAL);
	T_OK(strstr(mpool_error_detail()->text, "for reading only"));
	T_EQ(mpool_close(mp), 0);
}

/* The system call @nr fails with @err from here on, for good. */
static int forbid_as(uint32_t nr, uint32_t err)
{
	struct sock_filter step[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | err),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { .len = 4, .filter = step };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
}

static int forbid(uint32_t nr)
{
	return forbid_as(nr, EPERM);
}

/* In a child: 0 when an open fails with @err, and says what to do about that. */
static int refused_with(int err, const char *id, const char *way_out)
{
	struct mpool *mp;

	if (mpool_open(th_pool, NULL, &mp) != err)
		return 1;
	if (strcmp(mpool_error_detail()->id, id))
		return 2;
	return strstr(mpool_error_detail()->cure, way_out) ? 0 : 3;
}

/* One more each time, until there are enough. */
static int without_descriptors(void)
{
	struct rlimit few = { .rlim_cur = 4, .rlim_max = 1024 };
	struct mpool *mp;
	int rc;

	for (; few.rlim_cur < 200; few.rlim_cur++) {
		if (setrlimit(RLIMIT_NOFILE, &few))
			return 77;
		rc = mpool_open(th_pool, NULL, &mp);
		if (!rc)
			return mpool_close(mp) ? 5 : 0;
		if (rc != -EMFILE || strcmp(mpool_error_detail()->id, "MP0427") ||
		    strstr(mpool_error_detail()->text, "locked"))
			return 4;
	}
	return 6;
}

static int without_locks(void)
{
	return forbid_as(SYS_fcntl, ENOLCK) ? 77 : refused_with(-ENOLCK, "MP0434", "locks");
}

/* What is no permission is not told as one. */
static void no_descriptor_and_no_lock_have_ways_out_of_their_own(void)
{
	int (*const lacks[])(void) = { without_descriptors, without_locks };
	int status;
	pid_t pid;

	T_EQ(mpool_close(th_new_pool(NULL, NULL)), 0);
	for (unsigned i = 0; i < 2; i++) {
		pid = fork();
		if (!pid) {
			alarm(20);
			_exit(lacks[i]());
		}
		T_EQ(waitpid(pid, &status, 0), pid);
		T_OK(WIFEXITED(status));
		T_OK(WEXITSTATUS(status) == 77 || !WEXITSTATUS(status));
	}
}

/* Nor is a word said of it: descriptor 2 may be any file. First of all: json-c asks once only. */
static void a_filter_of_system_calls_stops_no_pool(void)
{
	int status, said[2];
	pid_t pid;
	char c;

	th_fresh();
	T_EQ(pipe(said), 0);
	pid = fork();
	if (!pid) {
		alarm(20);
		if (dup2(said[1], STDERR_FILENO) < 0 || forbid(SYS_getrandom))
			_exit(77);
		if (th_create_at(th_pool, 64 * MIB, 32 * MIB))
			_exit(1);
		_exit(mpool_close(th_open_with(NULL, NULL)) ? 2 : 0);
	}
	T_EQ(waitpid(pid, &status, 0), pid);
	T_OK(WIFEXITED(status) && (!WEXITSTATUS(status) || WEXITSTATUS(status) == 77));
	close(said[1]);
	T_EQ(read(said[0], &c, 1), 0);
	close(said[0]);
}

/* Nor is a process ended by it that has no descriptor for /dev/urandom. */
static int without_random_bytes(void)
{
	struct rlimit few = { .rlim_max = 1024 };
	bool told = false;
	int rc = -1;

	if (forbid(SYS_getrandom))
		return 77;
	for (few.rlim_cur = 3; few.rlim_cur < 200 && rc; few.rlim_cur++) {
		if (setrlimit(RLIMIT_NOFILE, &few))
			return 77;
		rc = th_create_at(th_pool, 64 * MIB, 0);
		told |= rc && !strcmp(mpool_error_detail()->id, "MP0004");
	}
	return rc ? 2 : !told;
}

static void without_random_bytes_a_pool_is_not_made(void)
{
	int status;
	pid_t pid;

	th_fresh();
	pid = fork();
	if (!pid) {
		alarm(20);
		_exit(without_random_bytes());
	}
	T_EQ(waitpid(pid, &status, 0), pid);
	T_OK(WIFEXITED(status));
	T_OK(WEXITSTATUS(status) == 77 || !WEXITSTATUS(status));
}

static void errors_are_explained(void)
{
	const char *name, *text, *cure;

	T_EQ(mpool_error_explain("MP0403", &name, &text, &cure), 0);
	T_STREQ(name, "BUSY");
	T_EQ(mpool_error_explain("MP0101", NULL, &text, NULL), 0);
	T_EQ(mpool_error_explain("MP9999", NULL, NULL, NULL), -ENOENT);
	T_EQ(mpool_error_explain("rubbish", NULL, NULL, NULL), -ENOENT);
	T_EQ(mpool_error_explain(NULL, NULL, NULL, NULL), -ENOENT);
	T_OK(strchr(mpool_version(), '.'));
}

static struct mpool *open_beside(uint32_t flags)
{
	struct mpool_open_opts o = MPOOL_OPEN_OPTS_INIT;
	struct mpool *mp = NULL;

	o.flags = flags;
	T_EQ(mpool_open(th_pool, &o, &mp), 0);
	return mp;
}

/* Objects that were there when it was opened are read, beside a writer that works on. */
static void a_shared_reader_reads_beside_the_writer(void)
{
	struct mpool_open_opts o = MPOOL_OPEN_OPTS_INIT;
	struct mpool *w = th_new_pool(NULL, NULL), *r = NULL;
	uint8_t *buf = th_buf(65536, 1), *got = th_buf(65536, 2);
	struct mpool_obj *obj = th_alloc(w, MPOOL_MBLOCK, MPOOL_CAPACITY, 65536, 7), *seen = NULL;
	uint64_t id = mpool_obj_id(obj);
	unsigned i;

	T_EQ(th_write(obj, 0, buf, 65536), 0);
	T_EQ(th_op(w, MPOOL_OP_COMMIT, obj, 0, 65536), 0);
	o.flags = MPOOL_OPEN_SHARED;
	T_EQ(mpool_open(th_pool, &o, &r), -EINVAL);
	r = open_beside(MPOOL_OPEN_RDONLY | MPOOL_OPEN_SHARED);
	T_EQ(mpool_obj_open(r, id, &seen), 0);
	for (i = 0; i < 50; i++) {
		struct mpool_obj *more = th_alloc(w, MPOOL_MBLOCK, MPOOL_CAPACITY, 65536, 7);

		T_EQ(th_write(more, 0, got, 65536), 0);
		T_EQ(th_op(w, MPOOL_OP_COMMIT, more, 0, 65536), 0);
		T_EQ(th_op(w, MPOOL_OP_DELETE, more, 0, 0), 0);
		mpool_obj_close(more);
	}
	memset(got, 0, 65536);
	T_EQ(th_read(seen, 0, got, 65536), 0);
	T_OK(!memcmp(got, buf, 65536));
	T_EQ(th_write(seen, 0, buf, 4096), -EROFS);
	mpool_obj_close(seen);
	T_EQ(mpool_close(r), 0);
	mpool_obj_close(obj);
	T_EQ(mpool_close(w), 0);
	free(buf);
	free(got);
}

static void a_number_is_held_by_readers_together_or_by_a_writer_alone(void)
{
	struct mpool *w = th_new_pool(NULL, NULL);
	struct mpool *r1 = open_beside(MPOOL_OPEN_RDONLY | MPOOL_OPEN_SHARED);
	struct mpool *r2 = open_beside(MPOOL_OPEN_RDONLY | MPOOL_OPEN_SHARED);

	T_EQ(mpool_hold(w, 1ull << 62), -EINVAL);
	T_EQ(mpool_hold(r1, 5), 0);
	T_EQ(mpool_hold(r1, 5), 0);
	T_EQ(mpool_hold(r2, 5), 0);
	T_EQ(mpool_hold(w, 5), -EBUSY);
	T_EQ(mpool_hold(w, 6), 0);
	T_EQ(mpool_hold(r1, 6), -EBUSY);
	T_EQ(mpool_unhold(r1, 5), 0);
	T_EQ(mpool_hold(w, 5), -EBUSY);
	/* closing releases */
	T_EQ(mpool_close(r2), 0);
	T_EQ(mpool_hold(w, 5), 0);
	T_EQ(mpool_unhold(w, 5), 0);
	T_EQ(mpool_hold(r1, 5), 0);
	T_EQ(mpool_close(r1), 0);
	T_EQ(mpool_close(w), 0);
}

static void *look_and_leave(void *arg)
{
	usleep(50000);
	mpool_close(arg);
	return NULL;
}

/* One that looks while a program begins is no reason for that program to fail. */
static void a_writer_waits_for_a_reader_that_leaves(void)
{
	struct mpool_open_opts o = MPOOL_OPEN_OPTS_INIT;
	struct mpool *w = th_new_pool(NULL, NULL), *r;
	pthread_t t;

	T_EQ(mpool_close(w), 0);
	r = open_beside(MPOOL_OPEN_RDONLY);
	T_EQ(mpool_open(th_pool, &o, &w), -EBUSY);
	T_EQ(pthread_create(&t, NULL, look_and_leave, r), 0);
	T_EQ(mpool_open(th_pool, &o, &w), 0);
	pthread_join(t, NULL);
	T_EQ(mpool_close(w), 0);
}

/* as when it is created: no room, whatever sets the limit; the pool is what it was */
static void a_file_that_may_not_grow_so_far_is_no_room(void)
{
	struct rlimit old, rl;
	char path[600];
	struct stat a, b;
	int rc;

	T_EQ(mpool_close(th_new_pool(NULL, NULL)), 0);
	T_EQ(stat(th_member(path), &a), 0);
	T_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
	rl = old;
	rl.rlim_cur = (rlim_t)a.st_size;
	signal(SIGXFSZ, SIG_IGN);
	T_EQ(setrlimit(RLIMIT_FSIZE, &rl), 0);
	rc = mpool_grow(th_pool, NULL, (uint64_t)a.st_size + MIB, MPOOL_CAPACITY);
	T_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
	signal(SIGXFSZ, SIG_DFL);
	T_EQ(rc, -ENOSPC);
	T_STREQ(mpool_error_detail()->id, "MP0416");
	T_EQ(stat(path, &b), 0);
	T_EQ(a.st_size, b.st_size);
	T_EQ(mpool_grow(th_pool, NULL, (uint64_t)a.st_size + MIB, MPOOL_CAPACITY), 0);
}

/* as that of a deleted one; nothing is deleted here that would bring it about */
static void the_space_of_an_aborted_object_is_discarded(void)
{
	struct mpool *mp = th_new_pool(NULL, NULL);
	struct mpool_obj *obj = th_alloc(mp, MPOOL_MBLOCK, MPOOL_CAPACITY, MIB, 0);
	struct iovec v = { th_buf(MIB, 1), MIB };
	struct mpool_dev_info di = { .discard_bytes = 0 };
	int i;

	T_EQ(mpool_write(obj, 0, &v, 1), 0);
	mpool_obj_close(obj);
	for (i = 0; i < 5000 && di.discard_bytes < MIB; i++) {
		usleep(1000);
		T_EQ(mpool_dev_info(mp, 0, &di), 0);
	}
	T_OK(di.discard_bytes >= MIB);
	free(v.iov_base);
	T_EQ(mpool_close(mp), 0);
}

/* bytes that the file system counts for the member */
static uint64_t below(const char *member)
{
	struct stat st;

	T_EQ(stat(member, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

static void delete_all(struct mpool *mp, struct mpool_obj **obj, unsigned n)
{
	struct mpool_op op[8];
	unsigned i;

	for (i = 0; i < n; i++)
		op[i] = (struct mpool_op){ .type = MPOOL_OP_DELETE, .id = mpool_obj_id(obj[i]) };
	T_EQ(mpool_batch(mp, op, n), 0);
	for (i = 0; i < n; i++)
		mpool_obj_close(obj[i]);
}

/* The file has it as soon as the object is allocated. */
static void what_an_object_reserved_and_never_wrote_is_given_back(void)
{
	struct mpool *mp = th_new_pool(NULL, NULL);
	struct mpool_obj *obj;
	char member[600];
	uint64_t before;
	int i;

	snprintf(member, sizeof(member), "%s/capacity.mp", th_pool);
	before = below(member);
	obj = th_alloc(mp, MPOOL_MBLOCK, MPOOL_CAPACITY, MIB, 0);
	T_OK(below(member) >= before + MIB);
	mpool_obj_close(obj);
	for (i = 0; i < 5000 && below(member) > before; i++)
		usleep(1000);
	T_OK(below(member) <= before);
	T_EQ(mpool_close(mp), 0);
}

/* The next one that opens the pool for writing does, without being asked. */
static void what_a_killed_process_had_reserved_is_given_back(void)
{
	struct mpool *mp = th_new_pool(NULL, NULL);
	char member[600];
	uint64_t before;
	int i, status;
	pid_t pid;

	snprintf(member, sizeof(member), "%s/capacity.mp", th_pool);
	T_EQ(mpool_close(mp), 0);
	before = below(member);
	pid = fork();
	if (!pid) {
		if (!mpool_open(th_pool, NULL, &mp))
			th_alloc(mp, MPOOL_MBLOCK, MPOOL_CAPACITY, MIB, 0);
		_exit(0);
	}
	T_EQ(waitpid(pid, &status, 0), pid);
	T_OK(below(member) >= before + MIB);
	T_EQ(mpool_open(th_pool, NULL, &mp), 0);
	for (i = 0; i < 5000 && below(member) > before; i++)
		usleep(1000);
	T_OK(below(member) <= before);
	T_EQ(mpool_close(mp), 0);
}

/* however large the pool: while it rests, and at the latest when it is closed */
static void the_file_system_has_the_space_of_logs_back(void)
{
	struct mpool_create_opts c = MPOOL_CREATE_OPTS_INIT;
	struct mpool_dev_spec spec = { .path = NULL, .mclass = MPOOL_CAPACITY, .size = 3ull << 30 };
	struct mpool_obj *obj[8];
	char path[300], member[320];
	uint64_t empty;
	struct mpool *mp;
	int i, turn;

	c.devs = &spec;
	c.ndevs = 1;
	snprintf(path, sizeof(path), "%s/large", th_dir);
	snprintf(member, sizeof(member), "%s/capacity.mp", path);
	T_EQ(mpool_create(path, &c), 0);
	empty = below(member);
	for (turn = 0; turn < 2; turn++) {
		T_EQ(mpool_open(path, NULL, &mp), 0);
		for (i = 0; i < 5; i++)
			obj[i] = th_alloc(mp, MPOOL_APPEND, MPOOL_CAPACITY, 64 * MIB, 0);
		T_OK(below(member) >= empty + 320 * MIB);
		delete_all(mp, obj, 5);
		for (i = 0; i < 2000 && below(member) > empty + 256 * MIB; i++)
			usleep(1000);
		T_OK(below(member) <= empty + 256 * MIB);
		for (i = 0; i < 10000 && !turn && below(member) > empty; i++)
			usleep(1000);
		T_OK(turn || below(member) <= empty);
		T_EQ(mpool_close(mp), 0);
		T_OK(below(member) <= empty);
	}
	T_EQ(mpool_destroy(path, NULL), 0);
}

int main(void)
{
	unsetenv("MPOOL_DEV");
	TH_RUN_FILES(a_filter_of_system_calls_stops_no_pool);
	TH_RUN_FILES(without_random_bytes_a_pool_is_not_made);
	T_RUN(create_open_close_destroy);
	TH_RUN_FILES(destroy_removes_the_members_however_long_their_path);
	T_RUN(create_existing_pool_is_eexist);
	T_RUN(create_plan_writes_nothing);
	TH_RUN_FILES(create_refuses_a_file_with_content);
	T_RUN(create_names_a_foreign_signature);
	T_RUN(create_without_permission_is_eacces);
	TH_RUN_FILES(a_pool_is_its_makers);
	TH_RUN_FILES(create_where_a_file_is_not_a_directory);
	TH_RUN_FILES(create_repeats_after_an_interruption);
	TH_RUN_FILES(second_open_is_ebusy_and_names_the_way_out);
	if (th_is_kmod())
		T_RUN(an_active_pool_is_shared_and_stays);
	T_RUN(two_readers_share);
	T_RUN(close_refuses_while_something_is_open);
	T_RUN(a_pool_that_is_not_there_is_said);
	T_RUN(signals_are_the_programs);
	TH_RUN_FILES(open_missing_and_replaced_members);
	TH_RUN_FILES(open_finds_default_members_without_pool_json);
	TH_RUN_FILES(pool_json_is_checked);
	T_RUN(lease_is_exclusive);
	T_RUN(a_readers_lease_is_known_to_it);
	TH_RUN_FILES(the_space_of_an_aborted_object_is_discarded);
	TH_RUN_FILES(what_an_object_reserved_and_never_wrote_is_given_back);
	TH_RUN_FILES(what_a_killed_process_had_reserved_is_given_back);
	TH_RUN_FILES(the_file_system_has_the_space_of_logs_back);
	TH_RUN_FILES(a_file_that_may_not_grow_so_far_is_no_room);
	T_RUN(inspection_reads_only);
	TH_RUN_FILES(for_reading_only_nothing_is_changed);
	TH_RUN_FILES(a_look_writes_nothing_before_it_begins);
	T_RUN(a_reader_never_begins);
	TH_RUN_FILES(no_descriptor_and_no_lock_have_ways_out_of_their_own);
	T_RUN(errors_are_explained);
	T_RUN(a_shared_reader_reads_beside_the_writer);
	TH_RUN_FILES(a_writer_waits_for_a_reader_that_leaves);
	T_RUN(a_number_is_held_by_readers_together_or_by_a_writer_alone);
	th_clean();
	return t_done();
}
