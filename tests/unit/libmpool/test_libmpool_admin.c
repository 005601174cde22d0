/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Administration of pools in a directory, what a crash in the middle of an add leaves in
 * pool.json and beside it, and a create while files are being removed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <mpool/mpool.h>

#include "harness.h"
#include "poolcfg.h"

#define MiB	(1ull << 20)

static char dir[256], pool[300];

/* creates at the same place, one before each file that a call removes, until one succeeds */
static int is_contested, contests, contest_rc = 1;

static void contest(void)
{
	struct mpool_dev_spec dev = { .size = 16 * MiB };
	struct mpool_create_opts o = MPOOL_CREATE_OPTS_INIT;

	if (!is_contested || !contest_rc)
		return;
	is_contested = 0;
	contests++;
	o.devs = &dev;
	o.ndevs = 1;
	contest_rc = mpool_create(pool, &o);
	is_contested = 1;
}

/* the last of so many calls fails */
static int truncs_left;

int ftruncate(int fd, off_t size)
{
	int (*next)(int fd, off_t size) = (int (*)(int, off_t))dlsym(RTLD_NEXT, "ftruncate");

	if (truncs_left && !--truncs_left) {
		errno = EFBIG;
		return -1;
	}
	return next(fd, size);
}

int unlink(const char *path)
{
	int (*next)(const char *path) = (int (*)(const char *))dlsym(RTLD_NEXT, "unlink");

	contest();
	return next(path);
}

int rmdir(const char *path)
{
	int (*next)(const char *path) = (int (*)(const char *))dlsym(RTLD_NEXT, "rmdir");

	contest();
	return next(path);
}

static const char *in_pool(const char *name)
{
	static char path[4][600];
	static int k;

	k = (k + 1) % 4;
	snprintf(path[k], sizeof(path[k]), "%s/%s", pool, name);
	return path[k];
}

static void make(void)
{
	struct mpool_dev_spec dev = { .size = 16 * MiB };
	struct mpool_create_opts o = MPOOL_CREATE_OPTS_INIT;
	char cmd[400];

	snprintf(cmd, sizeof(cmd), "rm -rf %s", pool);
	T_EQ(system(cmd), 0);
	o.devs = &dev;
	o.ndevs = 1;
	T_EQ(mpool_create(pool, &o), 0);
}

static struct mpool_info info(void)
{
	struct mpool_info in;
	struct mpool *mp;
	int rc = mpool_open(pool, NULL, &mp);

	if (rc)
		T_FAIL("open: %d %s", rc, mpool_error_detail()->text);
	T_EQ(mpool_info(mp, &in), 0);
	T_EQ(mpool_close(mp), 0);
	return in;
}

static int add(const char *path, uint32_t mclass, uint64_t size, uint32_t flags)
{
	struct mpool_dev_spec dev = { .path = path, .mclass = mclass, .size = size };

	return mpool_add(pool, NULL, &dev, 1, flags);
}

static void set_and_rename(void)
{
	struct mpool_set_opts so = MPOOL_SET_OPTS_INIT;
	struct mpool_probe pb;
	struct mpool *mp;

	make();
	so.mask = MPOOL_SET_LABEL | MPOOL_SET_SPARE | MPOOL_SET_OWNER;
	so.label = "a label";
	so.spare_pct[0] = 25;
	so.uid = 12;
	so.gid = 34;
	so.mode = 0640;
	T_EQ(mpool_set(pool, NULL, &so), 0);
	T_STREQ(info().label, "a label");
	T_EQ(info().uid, 12);
	T_EQ(info().mode, 0640);
	T_OK(info().cls[0].reserve > 3 * MiB);
	T_EQ(mpool_rename(pool, NULL, "other"), 0);
	T_STREQ(info().name, "other");
	T_EQ(mpool_probe(in_pool("capacity.mp"), &pb), 0);
	T_STREQ(pb.name, "other");
	T_EQ(pb.state, 2);
	T_EQ(pb.bytes, 16 * MiB);
	T_EQ(mpool_rename(pool, NULL, "-bad"), -EINVAL);
	/* in use, or opened for reading only */
	T_EQ(mpool_open(pool, NULL, &mp), 0);
	T_EQ(mpool_rename(pool, NULL, "third"), -EBUSY);
	T_EQ(mpool_set(pool, NULL, &so), -EBUSY);
	T_EQ(add(in_pool("new.mp"), 0, 16 * MiB, 0), -EBUSY);
	T_EQ(mpool_grow(pool, NULL, 32 * MiB, 0), -EBUSY);
	/* a look beside the owner */
	T_EQ(mpool_probe(in_pool("capacity.mp"), &pb), 0);
	T_EQ(mpool_close(mp), 0);
	T_EQ(mpool_probe(in_pool("pool.json"), &pb), -EINVAL);
	T_EQ(mpool_probe(in_pool("nothing"), &pb), -ENOENT);
}

static void add_files(void)
{
	struct mpool_dev_spec two[2] = {
		{ .mclass = MPOOL_STAGING, .size = 8 * MiB }, { .size = 8 * MiB },
	};
	char st[600], c2[600];
	struct mpl_cfg *cf;
	char away[300], cmd[1024];

	make();
	strcpy(st, in_pool("st.mp"));
	strcpy(c2, in_pool("c2.mp"));
	two[0].path = st;
	/* a path is needed; nothing was made */
	T_EQ(mpool_add(pool, NULL, two, 2, 0), -EINVAL);
	two[1].path = two[0].path;
	T_EQ(mpool_add(pool, NULL, two, 2, 0), -EINVAL);
	T_OK(access(in_pool("st.mp"), F_OK));
	two[1].path = c2;
	T_EQ(mpool_add(pool, NULL, two, 2, MPOOL_CREATE_PLAN), 0);
	T_OK(access(in_pool("st.mp"), F_OK));
	T_EQ(mpool_add(pool, NULL, two, 2, 0), 0);
	T_EQ(info().cls[0].devs, 2);
	T_EQ(info().cls[1].devs, 1);
	T_EQ(mpool_add(pool, NULL, two, 2, 0), -EEXIST);
	T_EQ(mpool_add(pool, NULL, two, 2, MPOOL_CREATE_FORCE), -EEXIST);
	T_EQ(add(in_pool("tiny.mp"), 0, MiB, 0), -EINVAL);
	T_OK(access(in_pool("tiny.mp"), F_OK));
	/* files in the pool's directory move with it */
	T_EQ(mpl_cfg_load(pool, NULL, &cf), 0);
	T_EQ(cf->cf_ndevs, 3);
	T_STREQ(cf->cf_dev[1].cd_path, "st.mp");
	T_EQ(cf->cf_dev[1].cd_is_adding, 0);
	mpl_cfg_free(cf);
	snprintf(away, sizeof(away), "%.250s/away", dir);
	T_EQ(rename(pool, away), 0);
	T_EQ(rename(away, pool), 0);
	snprintf(away, sizeof(away), "%.250s/c3.mp", dir);
	T_EQ(add(away, 0, 8 * MiB, 0), 0);
	T_EQ(info().cls[0].devs, 3);
	T_EQ(mpool_destroy(pool, NULL), 0);
	T_OK(access(away, F_OK));
	snprintf(cmd, sizeof(cmd), "%s/c2.mp", pool);
	T_OK(access(cmd, F_OK));
}

/* what is not ours is not overwritten */
static void add_refuses(void)
{
	struct mpool_dev_spec dev = { .size = 8 * MiB };
	struct mpool_create_opts o = MPOOL_CREATE_OPTS_INIT;
	char other[300], file[600];
	int fd;

	make();
	snprintf(other, sizeof(other), "%.250s/other", dir);
	o.devs = &dev;
	o.ndevs = 1;
	T_EQ(mpool_create(other, &o), 0);
	snprintf(file, sizeof(file), "%s/capacity.mp", other);
	T_EQ(add(file, 0, 8 * MiB, 0), -EEXIST);
	T_EQ(add(file, 0, 8 * MiB, MPOOL_CREATE_FORCE), -EEXIST);
	T_EQ(mpool_destroy(other, NULL), 0);
	/* data, and a swap signature */
	fd = open(in_pool("data"), O_RDWR | O_CREAT, 0600);
	T_EQ(ftruncate(fd, 8 * MiB), 0);
	T_EQ(pwrite(fd, "hello", 5, MiB), 5);
	T_EQ(add(in_pool("data"), 0, 8 * MiB, 0), -EEXIST);
	T_EQ(pwrite(fd, "SWAPSPACE2", 10, 4096 - 10), 10);
	T_EQ(pwrite(fd, "\1\0\0\0\377\7\0\0", 8, 1024), 8);
	T_EQ(add(in_pool("data"), 0, 8 * MiB, 0), -EPERM);
	T_EQ(pread(fd, file, 5, MiB), 5);
	T_MEMEQ(file, "hello", 5);
	T_EQ(info().cls[0].devs, 1);
	T_EQ(add(in_pool("data"), 0, 8 * MiB, MPOOL_CREATE_FORCE), 0);
	close(fd);
	T_EQ(symlink("nowhere", in_pool("link")), 0);
	T_EQ(add(in_pool("link"), 0, 8 * MiB, 0), -ELOOP);
	T_EQ(info().cls[0].devs, 2);
}

/* 1 when a file is there and has "hello" in it */
static int has_hello(const char *path)
{
	char b[5] = "";
	int fd = open(path, O_RDONLY);

	if (fd < 0)
		return 0;
	T_EQ(pread(fd, b, 5, MiB), 5);
	close(fd);
	return !memcmp(b, "hello", 5);
}

static void put_hello(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT, 0600);

	T_EQ(ftruncate(fd, 8 * MiB), 0);
	T_EQ(pwrite(fd, "hello", 5, MiB), 5);
	close(fd);
}

/* a file that is to be overwritten goes only when all others can be made, too */
static void what_is_refused_has_removed_nothing(void)
{
	char data[600], none[600], other[300], file[600];
	struct mpool_dev_spec two[2] = {
		{ .path = data, .size = 8 * MiB }, { .path = none, .size = 8 * MiB },
	};
	struct mpool_create_opts o = MPOOL_CREATE_OPTS_INIT;

	make();
	snprintf(data, sizeof(data), "%s/data", pool);
	snprintf(none, sizeof(none), "%s/nothing/here.mp", pool);
	put_hello(data);
	T_EQ(mpool_add(pool, NULL, two, 2, MPOOL_CREATE_FORCE), -ENOENT);
	T_OK(has_hello(data));
	T_OK(access(in_pool("data.new"), F_OK));
	T_EQ(info().cls[0].devs, 1);
	/* what a crash left beside it is made anew, what is in use is not */
	put_hello(in_pool("data.new"));
	T_EQ(add(data, 0, 8 * MiB, MPOOL_CREATE_FORCE), -EEXIST);
	T_OK(has_hello(data) && has_hello(in_pool("data.new")));
	T_EQ(truncate(in_pool("data.new"), 0), 0);
	T_EQ(truncate(in_pool("data.new"), 16 * MiB), 0);
	T_EQ(add(data, 0, 8 * MiB, MPOOL_CREATE_FORCE), 0);
	T_OK(!has_hello(data) && access(in_pool("data.new"), F_OK));
	T_EQ(info().cls[0].devs, 2);
	/* the same at create */
	snprintf(other, sizeof(other), "%.250s/forced", dir);
	T_EQ(mkdir(other, 0700), 0);
	snprintf(file, sizeof(file), "%s/capacity.mp", other);
	put_hello(file);
	two[0].path = NULL;
	o.devs = two;
	o.ndevs = 2;
	o.flags = MPOOL_CREATE_FORCE;
	T_EQ(mpool_create(other, &o), -ENOENT);
	T_OK(has_hello(file));
	o.ndevs = 1;
	T_EQ(mpool_create(other, &o), 0);
	T_OK(!has_hello(file));
	T_EQ(mpool_destroy(other, NULL), 0);
}

/* a file of @size with 4 MiB reserved at its beginning, opened once */
static int reserved_file(const char *path, off_t size)
{
	char b[4096];
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	T_OK(fd >= 0);
	T_EQ(ftruncate(fd, size), 0);
	T_EQ(fallocate(fd, 0, 0, 4 * MiB), 0);
	T_EQ(pread(fd, b, sizeof(b), 0), sizeof(b));
	return fd;
}

/* A create that is cut before its first write has reserved space: it can be repeated. */
static void reserved_space_holds_nothing(void)
{
	struct mpool_dev_spec one = { .size = 8 * MiB };
	struct mpool_create_opts o = MPOOL_CREATE_OPTS_INIT;
	char other[300], file[600];
	int fd;

	make();
	o.devs = &one;
	o.ndevs = 1;
	snprintf(other, sizeof(other), "%.250s/cut", dir);
	snprintf(file, sizeof(file), "%s/capacity.mp", other);
	T_EQ(mkdir(other, 0700), 0);
	close(reserved_file(file, 8 * MiB));
	T_EQ(mpool_create(other, &o), 0);
	T_EQ(mpool_destroy(other, NULL), 0);
	/* what was written stays, were it zeroes, and behind more pieces than one call tells of */
	T_EQ(mkdir(other, 0700), 0);
	fd = reserved_file(file, 8 * MiB);
	for (int i = 0; i < 200; i++)
		T_EQ(fallocate(fd, 0, 4 * MiB + i * 8192, 4096), 0);
	T_EQ(pwrite(fd, "", 1, 7 * MiB), 1);
	close(fd);
	T_EQ(mpool_create(other, &o), -EEXIST);
	T_EQ(unlink(file), 0);
	/* the same beside a file that is to be replaced */
	put_hello(in_pool("more.mp"));
	close(reserved_file(in_pool("more.mp.new"), 8 * MiB));
	snprintf(file, sizeof(file), "%s/more.mp", pool);
	T_EQ(add(file, 0, 8 * MiB, MPOOL_CREATE_FORCE), 0);
}

/* a backup of a member: of this pool, and no member */
static void copy_of_a_member_is_not_added(void)
{
	char cmd[2100], copy[600];

	make();
	snprintf(copy, sizeof(copy), "%s/copy.mp", pool);
	snprintf(cmd, sizeof(cmd), "cp %s %s && cp %s %s/kept", in_pool("capacity.mp"), copy,
		 copy, pool);
	T_EQ(system(cmd), 0);
	T_EQ(add(copy, 0, 8 * MiB, 0), -EEXIST);
	T_EQ(add(copy, 0, 8 * MiB, MPOOL_CREATE_FORCE), -EEXIST);
	snprintf(cmd, sizeof(cmd), "cmp %s %s/kept", copy, pool);
	T_EQ(system(cmd), 0);
	T_EQ(info().cls[0].devs, 1);
}

/* pool.json as it is while devices are being added */
static void cut_json(const char *path)
{
	struct mpl_cfg *cf, *more;

	T_EQ(mpl_cfg_load(pool, NULL, &cf), 0);
	more = mpl_cfg_new(cf->cf_ndevs + 1);
	memcpy(more->cf_dev, cf->cf_dev, cf->cf_ndevs * sizeof(*cf->cf_dev));
	memcpy(more->cf_name, cf->cf_name, sizeof(cf->cf_name));
	memcpy(more->cf_uuid, cf->cf_uuid, sizeof(cf->cf_uuid));
	strcpy(more->cf_dev[cf->cf_ndevs].cd_path, path);
	more->cf_dev[cf->cf_ndevs].cd_is_adding = 1;
	T_EQ(mpl_cfg_store(pool, NULL, more), 0);
	mpl_cfg_free(more);
	mpl_cfg_free(cf);
}

static void mark_adding(void)
{
	struct mpl_cfg *cf;

	T_EQ(mpl_cfg_load(pool, NULL, &cf), 0);
	T_EQ(cf->cf_dev[1].cd_is_adding, 0);
	cf->cf_dev[1].cd_is_adding = 1;
	T_EQ(mpl_cfg_store(pool, NULL, cf), 0);
	mpl_cfg_free(cf);
}

static void add_cut_short(void)
{
	struct mpl_cfg *cf;
	int fd;

	/* before the file: it is missing */
	make();
	cut_json("new.mp");
	T_EQ(info().cls[0].devs, 1);
	T_EQ(add(in_pool("new.mp"), 0, 8 * MiB, 0), 0);
	T_EQ(info().cls[0].devs, 2);
	/* after the file, before its superblocks */
	make();
	cut_json("new.mp");
	fd = open(in_pool("new.mp"), O_RDWR | O_CREAT, 0600);
	T_EQ(ftruncate(fd, 8 * MiB), 0);
	T_EQ(info().cls[0].devs, 1);
	/* and with a part of them */
	T_EQ(pwrite(fd, "part", 4, 4 * MiB), 4);
	close(fd);
	T_EQ(info().cls[0].devs, 1);
	T_EQ(add(in_pool("new.mp"), 0, 8 * MiB, 0), 0);
	T_EQ(info().cls[0].devs, 2);
	/* after everything but the last pool.json: a member all the same */
	mark_adding();
	T_EQ(info().cls[0].devs, 2);
	T_EQ(add(in_pool("new.mp"), 0, 8 * MiB, 0), -EEXIST);
	T_EQ(add(in_pool("third.mp"), 1, 8 * MiB, 0), 0);
	T_EQ(mpl_cfg_load(pool, NULL, &cf), 0);
	T_EQ(cf->cf_ndevs, 3);
	T_EQ(cf->cf_dev[1].cd_is_adding + cf->cf_dev[2].cd_is_adding, 0);
	mpl_cfg_free(cf);
	T_EQ(info().cls[1].devs, 1);
}

/* a whole device that the table does not name */
static void add_leaves_a_stranger(void)
{
	char cmd[2200], keep[300];

	make();
	snprintf(keep, sizeof(keep), "%.250s/keep", dir);
	snprintf(cmd, sizeof(cmd), "rm -rf %s && cp -a --sparse=always %s %s", keep, pool, keep);
	T_EQ(system(cmd), 0);
	T_EQ(add(in_pool("new.mp"), 0, 8 * MiB, 0), 0);
	/* the pool as it was, with the device and a pool.json that is in the middle */
	snprintf(cmd, sizeof(cmd), "mv %s/new.mp %s/pool.json %s && rm -rf %s && mv %s %s", pool,
		 pool, keep, pool, keep, pool);
	T_EQ(system(cmd), 0);
	mark_adding();
	/* it is active and of a later generation than the home device: something is old */
	T_OK(mpool_verify(pool, NULL, 0, NULL, NULL, &(uint64_t){ 0 }) == -ESTALE);
}

static void grow_files(void)
{
	struct stat st;
	uint64_t total;
	struct mpool *mp;
	struct mpool_obj *o;
	struct mpool_alloc a = { .kind = MPOOL_MBLOCK, .capacity = 24 * MiB };

	make();
	T_EQ(add(in_pool("st.mp"), MPOOL_STAGING, 8 * MiB, 0), 0);
	total = info().cls[0].total;
	T_EQ(mpool_grow(pool, NULL, 8 * MiB, MPOOL_CAPACITY), -EINVAL);
	T_EQ(mpool_grow(pool, NULL, 64 * MiB, 7), -EINVAL);
	T_EQ(mpool_grow(pool, NULL, 48 * MiB, MPOOL_CAPACITY), 0);
	T_EQ(info().cls[0].total, total + 32 * MiB - 4096);
	T_EQ(stat(in_pool("capacity.mp"), &st), 0);
	T_EQ(st.st_size, 48 * MiB);
	T_EQ(stat(in_pool("st.mp"), &st), 0);
	T_EQ(st.st_size, 8 * MiB);
	T_EQ(mpool_open(pool, NULL, &mp), 0);
	T_EQ(mpool_alloc(mp, &a, 1, &o), 0);
	mpool_obj_close(o);
	T_EQ(mpool_close(mp), 0);
	/* larger already: by its size as it is */
	T_EQ(truncate(in_pool("st.mp"), 16 * MiB), 0);
	total = info().cls[1].total;
	T_EQ(mpool_grow(pool, NULL, 0, MPOOL_STAGING), 0);
	T_EQ(info().cls[1].total, total + 8 * MiB - 4096);
	T_EQ(mpool_grow(pool, NULL, 0, MPOOL_STAGING), 0);
	T_EQ(info().cls[1].total, total + 8 * MiB - 4096);
}

/* the number of attempts, and the attempt whose pool is there now */
static int contested(int (*fn)(void))
{
	contests = 0;
	contest_rc = 1;
	is_contested = 1;
	T_EQ(fn(), 0);
	is_contested = 0;
	if (contest_rc)
		make();
	T_EQ(info().cls[0].devs, 1);
	return contests;
}

static int destroy_it(void)
{
	return mpool_destroy(pool, NULL);
}

/* files that it makes, one that it cannot, and so the removal of the others */
static int create_in_vain(void)
{
	struct mpool_dev_spec three[3] = {
		{ .size = 16 * MiB }, { .size = 16 * MiB }, { .size = 16 * MiB },
	};
	struct mpool_create_opts o = MPOOL_CREATE_OPTS_INIT;

	o.devs = three;
	o.ndevs = 3;
	truncs_left = 3;
	return mpool_create(pool, &o) == -ENOSPC ? 0 : -1;
}

/* what another process creates meanwhile is a whole pool, or refused */
static void what_is_removed_is_ones_own(void)
{
	make();
	T_EQ(add(in_pool("more.mp"), 0, 16 * MiB, 0), 0);
	T_OK(contested(destroy_it) > 2);
	T_EQ(mpool_destroy(pool, NULL), 0);
	T_OK(contested(create_in_vain) > 2);
}

int main(void)
{
	const char *tmp = getenv("TMPDIR");
	char cmd[300];

	snprintf(dir, sizeof(dir), "%.200s/mpadmXXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(dir))
		return 1;
	snprintf(pool, sizeof(pool), "%s/pool", dir);
	T_RUN(set_and_rename);
	T_RUN(add_files);
	T_RUN(add_refuses);
	T_RUN(what_is_refused_has_removed_nothing);
	T_RUN(reserved_space_holds_nothing);
	T_RUN(copy_of_a_member_is_not_added);
	T_RUN(add_cut_short);
	T_RUN(add_leaves_a_stranger);
	T_RUN(grow_files);
	T_RUN(what_is_removed_is_ones_own);
	snprintf(cmd, sizeof(cmd), "rm -rf %.255s", dir);
	return system(cmd) ? 1 : t_done();
}
