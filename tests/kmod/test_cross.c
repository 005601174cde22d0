/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * One format, two homes: what the module wrote opens embedded from a copy of the
 * devices, and the reverse, after a clean end and after a crash. A crash of a
 * writer is made by stopping it, copying its devices or files as they are, and
 * killing it; a second copy is taken while the pool is still active, so nothing that
 * deactivation writes can help.
 */
#include <signal.h>
#include <sys/wait.h>

#include <kvdb/kvdb.h>

#include "../conform/pool_help.h"

#define CAP	(48 * MIB)
#define STG	(24 * MIB)
#define VALUE	700u

static const char *const member_file[] = { "capacity.mp", "staging.mp" };
static const uint64_t member_size[] = { CAP, STG };
static char dir_pool[600];	/* the embedded one */

/* ---- copies ---- */

/* whole, without the kernel's cache; blocks of zeroes become holes */
static void copy(const char *from, const char *to, uint64_t bytes)
{
	static const char zero[4096];
	char *buf = th_buf(MIB, 1);
	int in = open(from, O_RDONLY | O_DIRECT | O_CLOEXEC);
	int out = open(to, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	uint64_t at;
	unsigned k;

	if (in < 0)
		in = open(from, O_RDONLY | O_CLOEXEC); /* tmpfs knows no O_DIRECT */
	T_OK(in >= 0 && out >= 0);
	if (!strchr(to + 1, '/') || strncmp(to, "/dev/", 5))
		T_EQ(ftruncate(out, (off_t)bytes), 0);
	for (at = 0; at < bytes; at += MIB) {
		T_EQ(pread(in, buf, MIB, (off_t)at), MIB);
		for (k = 0; k < MIB; k += sizeof(zero))
			if (memcmp(buf + k, zero, sizeof(zero)))
				T_EQ(pwrite(out, buf + k, sizeof(zero), (off_t)(at + k)),
				     sizeof(zero));
	}
	T_EQ(fsync(out), 0);
	close(in);
	close(out);
	free(buf);
}

static void to_files(void)
{
	char path[700];
	int i;

	mkdir(dir_pool, 0700);
	for (i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir_pool, member_file[i]);
		unlink(path);
		copy(th_dev[i], path, member_size[i]);
	}
}

static void to_devices(void)
{
	char path[700];
	int i;

	for (i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir_pool, member_file[i]);
		copy(path, th_dev_make(i, member_size[i]), member_size[i]);
	}
}

static void fresh(void)
{
	th_fresh();
	snprintf(dir_pool, sizeof(dir_pool), "%s/dir", th_dir);
}

/* a pool of two classes with an empty database */
static void make(const char *pool)
{
	struct mpool_dev_spec dev[2] = {
		{ .mclass = MPOOL_CAPACITY, .size = CAP },
		{ .mclass = MPOOL_STAGING, .size = STG },
	};
	struct mpool_create_opts o = MPOOL_CREATE_OPTS_INIT;
	struct kvdb *db;

	if (!strchr(pool, '/')) {
		dev[0].path = th_dev_make(0, CAP);
		dev[1].path = th_dev_make(1, STG);
	} else {
		o.name = th_pool; /* what it will be called when it is activated */
	}
	o.devs = dev;
	o.ndevs = 2;
	T_EQ(mpool_create(pool, &o), 0);
	T_EQ(kvdb_create(pool, NULL), 0);
	T_EQ(kvdb_open(pool, NULL, &db), 0);
	T_EQ(kvdb_kvs_create(db, "s", NULL), 0);
	T_EQ(kvdb_close(db), 0);
}

static void activate(void)
{
	const char *dev[2] = { th_dev[1], th_dev[0] };	/* any order */
	char name[MPOOL_NAME_MAX + 1];

	T_EQ(mpool_activate(dev, 2, 0, name), 0);
	T_STREQ(name, th_pool);
}

/* ---- content ---- */

static void value(uint32_t key, char *val)
{
	uint64_t seed = key, v;
	unsigned i;

	for (i = 0; i < VALUE; i += 4) {
		v = t_rand(&seed);
		memcpy(val + i, &v, 4);
	}
}

static int put(struct kvdb_kvs *kvs, uint32_t key)
{
	char val[VALUE];

	value(key, val);
	return kvdb_put(kvs, &key, sizeof(key), val, VALUE);
}

/* Keys below @n are there and right; the database takes more; the pool is sound. */
static void check(const char *pool, uint32_t n)
{
	uint64_t damage = 9;
	struct kvdb_kvs *kvs;
	char val[VALUE], want[VALUE];
	struct kvdb *db;
	uint32_t i;
	size_t len;

	T_EQ(mpool_verify(pool, NULL, MPOOL_VERIFY_DATA, NULL, NULL, &damage), 0);
	T_EQ(damage, 0);
	T_EQ(kvdb_open(pool, NULL, &db), 0);
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	for (i = 0; i < n; i++) {
		T_EQ(kvdb_get(kvs, &i, sizeof(i), val, sizeof(val), &len), 0);
		value(i, want);
		T_EQ(len, VALUE);
		T_MEMEQ(val, want, VALUE);
	}
	for (i = 1u << 30; i < (1u << 30) + 300; i++)
		T_EQ(put(kvs, i), 0);
	T_EQ(kvdb_sync(db), 0);
	T_EQ(kvdb_close(db), 0);
	T_EQ(kvdb_verify(pool, NULL, MPOOL_VERIFY_DATA, NULL, NULL, &damage), 0);
	T_EQ(damage, 0);
}

static void load(const char *pool, uint32_t from, uint32_t to)
{
	struct kvdb_kvs *kvs;
	struct kvdb *db;

	T_EQ(kvdb_open(pool, NULL, &db), 0);
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	for (; from < to; from++)
		T_EQ(put(kvs, from), 0);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	T_EQ(kvdb_close(db), 0);
}

/* Writes for ever, and tells how many are durable. */
static void __attribute__((noreturn)) writer(const char *pool, int fd)
{
	struct kvdb_kvs *kvs;
	struct kvdb *db;
	uint32_t n;

	if (kvdb_open(pool, NULL, &db) || kvdb_kvs_open(db, "s", &kvs))
		_exit(2);
	for (n = 0;; n++) {
		if (put(kvs, n) || (n % 16 == 15 && kvdb_sync(db)))
			_exit(3);
		if (n % 16 == 15 && write(fd, &(uint32_t){ n + 1 }, sizeof(n)) != sizeof(n))
			_exit(4);
		/* now and then all the machinery: runs, batches, deletes */
		if (n % 1000 == 999)
			kvdb_drain(db, KVDB_WAIT_FLUSH);
	}
}

/* Starts a writer, lets @fn copy when @want keys are durable, kills it. The durable keys. */
static uint32_t crash(const char *pool, uint32_t want, void (*fn)(void))
{
	uint32_t n = 0, got;
	int fd[2], st;
	pid_t pid;

	T_EQ(pipe(fd), 0);
	fflush(stdout);
	pid = fork();
	if (!pid)
		writer(pool, fd[1]);
	close(fd[1]);
	while (n < want && read(fd[0], &got, sizeof(got)) == sizeof(got))
		n = got;
	T_OK(n >= want);
	T_EQ(kill(pid, SIGSTOP), 0);
	T_EQ(waitpid(pid, &st, WUNTRACED), pid);
	T_OK(WIFSTOPPED(st));
	usleep(200000);	/* what was submitted ends; nothing new begins */
	fcntl(fd[0], F_SETFL, O_NONBLOCK);
	while (read(fd[0], &got, sizeof(got)) == sizeof(got))
		n = got;
	close(fd[0]);
	fn();
	T_EQ(kill(pid, SIGKILL), 0);
	T_EQ(waitpid(pid, &st, 0), pid);
	printf("# %u keys were durable\n", n);
	return n;
}

/* ---- from the module ---- */

static void the_module_s_pool_opens_embedded(void)
{
	struct mpool_info a, b;
	struct mpool *mp;

	fresh();
	make(th_pool);
	load(th_pool, 0, 2000);
	T_EQ(mpool_open(th_pool, NULL, &mp), 0);
	T_EQ(mpool_info(mp, &a), 0);
	T_EQ(mpool_close(mp), 0);
	T_EQ(th_deactivate(), 0);
	to_files();
	T_EQ(mpool_open(dir_pool, NULL, &mp), 0);
	T_EQ(mpool_info(mp, &b), 0);
	T_EQ(mpool_close(mp), 0);
	T_MEMEQ(a.uuid, b.uuid, 16);
	T_STREQ(b.name, th_pool);
	T_EQ(a.objects, b.objects);
	T_EQ(a.cls[0].used, b.cls[0].used);
	T_EQ(a.cls[1].used, b.cls[1].used);
	check(dir_pool, 2000);
	/* and back: both have written it by now */
	to_devices();
	activate();
	check(th_pool, 2000);
	load(th_pool, 2000, 2500);
	check(th_pool, 2500);
}

static void the_module_s_pool_opens_embedded_after_a_crash(void)
{
	unsigned round;
	uint32_t n;

	for (round = 0; round < 3; round++) {
		fresh();
		make(th_pool);
		n = crash(th_pool, 200 + 900 * round, to_files);
		check(dir_pool, n);
		/* the pool itself lost its writer only */
		th_again();
		check(th_pool, n);
	}
}

/* The crash image of the module, opened by the module. */
static void crash_images_can_be_activated(void)
{
	uint32_t n;

	fresh();
	make(th_pool);
	n = crash(th_pool, 1500, to_files);
	T_EQ(th_deactivate(), 0);
	to_devices();
	activate();
	check(th_pool, n);
}

/* ---- from the embedded backend ---- */

static void an_embedded_pool_can_be_activated(void)
{
	struct mpool *mp;

	fresh();
	make(dir_pool);
	load(dir_pool, 0, 2000);
	to_devices();
	activate();
	check(th_pool, 2000);
	T_EQ(mpool_open(th_pool, NULL, &mp), 0);
	T_EQ(mpool_close(mp), 0);
}

/* Media that are trusted may still name an owner that cannot be: then it is root alone. */
static void an_owner_that_cannot_be_is_root(void)
{
	const char *dev[2] = { NULL };
	struct mpool_set_opts s = MPOOL_SET_OPTS_INIT;
	char name[MPOOL_NAME_MAX + 1];
	struct mpool_info in;
	struct mpool *mp;
	unsigned i;

	for (i = 0; i < 2; i++) {
		fresh();
		make(dir_pool);
		s.mask = MPOOL_SET_OWNER;
		s.mode = 0640;
		s.uid = i ? 1000 : UINT32_MAX;
		s.gid = i ? UINT32_MAX : 1000;
		T_EQ(mpool_set(dir_pool, NULL, &s), 0);
		to_devices();
		dev[0] = th_dev[0];
		dev[1] = th_dev[1];
		T_EQ(mpool_activate(dev, 2, MPOOL_ACTIVATE_TRUST, name), 0);
		T_EQ(mpool_open(th_pool, NULL, &mp), 0);
		T_EQ(mpool_info(mp, &in), 0);
		T_OK(!in.uid && !in.gid && in.mode == 0600);
		T_EQ(mpool_close(mp), 0);
	}
}

static void an_embedded_pool_can_be_activated_after_a_crash(void)
{
	unsigned round;
	uint32_t n;

	for (round = 0; round < 3; round++) {
		fresh();
		make(dir_pool);
		n = crash(dir_pool, 200 + 900 * round, to_devices);
		activate();
		check(th_pool, n);
	}
}

int main(void)
{
	if (geteuid() || access("/dev/mpoolctl", F_OK) || access(TH_NULLB, F_OK))
		return t_skip_all("needs root, the module, and null_blk with configfs");
	setenv("MPOOL_TEST_KMOD", "1", 1);
	unsetenv("MPOOL_DEV");
	unsetenv("MPOOL_IO");
	T_RUN(the_module_s_pool_opens_embedded);
	T_RUN(the_module_s_pool_opens_embedded_after_a_crash);
	T_RUN(crash_images_can_be_activated);
	T_RUN(an_embedded_pool_can_be_activated);
	T_RUN(an_owner_that_cannot_be_is_root);
	T_RUN(an_embedded_pool_can_be_activated_after_a_crash);
	th_clean();
	return t_done();
}
