/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * KVDB_CREATE: what an open makes, and how it grows. Crashes in between: the workloads birth and
 * growth of crash_kvdb.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <kvdb/kvdb.h>

#include "harness.h"

#define MiB (1ull << 20)

static char dir[512];
static struct kvdb_opts o;

/* A path that is not there. */
static void fresh(const char *name)
{
	char base[480];

	snprintf(base, sizeof(base), "%s/kvdb_create.XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") :
										 "/tmp");
	T_OK(mkdtemp(base) != NULL);
	snprintf(dir, sizeof(dir), "%s/%s", base, name);
	o = (struct kvdb_opts)KVDB_OPTS_INIT;
	o.flags = KVDB_CREATE | KVDB_NOCTL;
	o.cache_bytes = 64 * MiB;
}

static void gone(void)
{
	*strrchr(dir, '/') = 0;
	T_EQ(rmdir(dir), 0);
}

static void end(void)
{
	T_EQ(mpool_destroy(dir, NULL), 0);
	gone();
}

static uint64_t disk_bytes(void)
{
	char path[600];
	struct stat st;

	snprintf(path, sizeof(path), "%s/capacity.mp", dir);
	return stat(path, &st) ? 0 : (uint64_t)st.st_blocks * 512;
}

static struct kvdb *opened(void)
{
	struct kvdb *db = NULL;

	T_EQ(kvdb_open(dir, &o, &db), 0);
	return db;
}

static void an_open_makes_what_is_not_there(void)
{
	struct kvdb_kvs *kvs;
	struct kvdb_info in;
	struct kvdb *db;
	char v[8];
	size_t vlen;

	fresh("new.kv");
	o.flags &= ~KVDB_CREATE;
	T_EQ(kvdb_open(dir, &o, &db), -ENOENT);
	T_EQ(access(dir, F_OK), -1);
	o.flags |= KVDB_CREATE;
	db = opened();
	T_EQ(kvdb_info(db, &in), 0);
	T_STREQ(in.pool.name, "new.kv");
	T_OK(in.pool.cls[MPOOL_CAPACITY].growable > 0);
	T_EQ(kvdb_kvs_create(db, "s", NULL), 0);
	T_EQ(kvdb_close(db), 0);
	T_OK(disk_bytes() < 4 * MiB);
	printf("# an empty database takes %.1f MiB\n", (double)disk_bytes() / MiB);
	/* again: it is found; and without the flag, of which nothing is left */
	db = opened();
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	T_EQ(kvdb_put(kvs, "k", 1, "v", 1), 0);
	T_EQ(kvdb_close(db), 0);
	o.flags &= ~KVDB_CREATE;
	db = opened();
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	T_EQ(kvdb_get(kvs, "k", 1, v, sizeof(v), &vlen), 0);
	T_EQ(kvdb_info(db, &in), 0);
	T_OK(in.pool.cls[MPOOL_CAPACITY].growable > 0);
	T_EQ(kvdb_close(db), 0);
	end();
}

static void a_path_that_is_no_name_gives_one(void)
{
	static const char *const name[] = { "with space", "-x", ".hidden",
		"KSTREAM-AGGREGATE-STATE-STORE-0000000001" };
	struct kvdb_info in;
	struct kvdb *db;

	for (unsigned i = 0; i < 4; i++) {
		fresh(name[i]);
		db = opened();
		T_EQ(kvdb_info(db, &in), 0);
		T_OK(!strncmp(in.pool.name, "pool-", 5) && strlen(in.pool.name) == 23);
		T_EQ(kvdb_close(db), 0);
		end();
	}
}

static void a_pool_without_a_database_gets_one(void)
{
	struct mpool_dev_spec dev = { .mclass = MPOOL_CAPACITY, .size = 64 * MiB };
	struct mpool_create_opts c = MPOOL_CREATE_OPTS_INIT;
	struct kvdb_info in;
	struct kvdb *db;

	fresh("p");
	c.devs = &dev;
	c.ndevs = 1;
	T_EQ(mpool_create(dir, &c), 0);
	db = opened();
	/* it was made for a size, and keeps it */
	T_EQ(kvdb_info(db, &in), 0);
	T_EQ(in.pool.cls[MPOOL_CAPACITY].growable, 0);
	T_EQ(kvdb_close(db), 0);
	/* an open may say otherwise */
	o.size_max = 256 * MiB;
	db = opened();
	T_EQ(kvdb_info(db, &in), 0);
	T_EQ(in.pool.cls[MPOOL_CAPACITY].growable, 192 * MiB);
	T_EQ(kvdb_close(db), 0);
	end();
}

static void what_is_something_else_stays(void)
{
	struct kvdb *db = NULL;
	char path[600], b[16] = "";
	int fd;

	fresh("f");
	fd = open(dir, O_CREAT | O_WRONLY, 0600);
	T_EQ(write(fd, "mine", 4), 4);
	close(fd);
	T_OK(kvdb_open(dir, &o, &db) < 0);
	fd = open(dir, O_RDONLY);
	T_EQ(read(fd, b, sizeof(b)), 4);
	close(fd);
	T_STREQ(b, "mine");
	/* nor a file where the pool's would be */
	T_EQ(unlink(dir), 0);
	T_EQ(mkdir(dir, 0700), 0);
	snprintf(path, sizeof(path), "%s/capacity.mp", dir);
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	T_EQ(write(fd, "mine", 4), 4);
	close(fd);
	T_OK(kvdb_open(dir, &o, &db) < 0);
	fd = open(path, O_RDONLY);
	T_EQ(read(fd, b, sizeof(b)), 4);
	close(fd);
	T_EQ(unlink(path), 0);
	/* to make, or to read only; a check with the same options makes nothing */
	o.flags |= KVDB_RDONLY;
	T_EQ(kvdb_open(dir, &o, &db), -EINVAL);
	o.flags &= ~KVDB_RDONLY;
	T_EQ(kvdb_verify(dir, &o, 0, NULL, NULL, &(uint64_t){ 0 }), -ENOENT);
	/* what is refused is refused before anything is made */
	o.commit = 2;
	T_EQ(kvdb_open(dir, &o, &db), -EINVAL);
	T_EQ(rmdir(dir), 0);
	gone();
}

/* Of processes that begin at once one makes it; each has it, or is told that it is in use. */
static void of_several_at_once_one_makes_it(void)
{
	enum { N = 6 };
	unsigned had = 0, used = 0;
	pid_t pid[N];
	int st;

	fresh("many");
	for (unsigned i = 0; i < N; i++) {
		pid[i] = fork();
		if (!pid[i]) {
			struct kvdb *db;
			int rc = kvdb_open(dir, &o, &db);

			if (!rc)
				rc = kvdb_close(db) ? 3 : 0;
			if (rc && rc != -EBUSY)
				fprintf(stderr, "# %d %s: %s\n", rc, kvdb_error_detail()->id,
					kvdb_error_detail()->text);
			_exit(rc == -EBUSY ? 1 : rc < 0 ? 2 : rc);
		}
	}
	for (unsigned i = 0; i < N; i++) {
		T_EQ(waitpid(pid[i], &st, 0), pid[i]);
		T_OK(WIFEXITED(st) && WEXITSTATUS(st) < 2);
		had += WIFEXITED(st) && !WEXITSTATUS(st);
		used += WIFEXITED(st) && WEXITSTATUS(st) == 1;
	}
	T_OK(had >= 1);
	T_EQ(had + used, N);
	end();
}

/* ---- another at the same time -------------------------------------------------------- */

static void (*at_access)(const char *path);
static void (*at_flock)(void);

/* The library's come here, too. */
int access(const char *path, int mode)
{
	if (at_access)
		at_access(path);
	return (int)syscall(SYS_faccessat, AT_FDCWD, path, mode);
}

int flock(int fd, int op)
{
	void (*fn)(void) = at_flock;

	at_flock = NULL;
	if (fn && op & LOCK_EX)
		fn();
	return (int)syscall(SYS_flock, fd, op);
}

static int to_other[2], from_other[2];

/* Makes it when it is told to, has it acknowledge a key, and says whether it had it. */
static pid_t other_begin(void)
{
	pid_t pid;

	T_EQ(pipe(to_other), 0);
	T_EQ(pipe(from_other), 0);
	pid = fork();
	if (!pid) {
		struct kvdb_kvs *kvs;
		struct kvdb *db;
		char b;
		int rc = read(to_other[0], &b, 1) == 1 ? kvdb_open(dir, &o, &db) : -EIO;

		b = !rc && !kvdb_kvs_create(db, "s", NULL) && !kvdb_kvs_open(db, "s", &kvs) &&
		    !kvdb_put(kvs, "k", 1, "v", 1) && !kvdb_sync(db) ? 'y' : 'n';
		if (write(from_other[1], &b, 1) != 1 || (!rc && kvdb_close(db)))
			_exit(2);
		_exit(!rc ? 0 : rc == -EBUSY ? 1 : 2);
	}
	return pid;
}

/* Before the new file is made, when all that is there was looked at. */
static void let_other_go(const char *path)
{
	struct pollfd p = { .fd = from_other[0], .events = POLLIN };
	size_t n = strlen(path);

	if (n < 4 || strcmp(path + n - 4, ".new"))
		return;
	at_access = NULL;
	T_EQ(write(to_other[1], "g", 1), 1);
	poll(&p, 1, 500);
}

/* A file that was reserved, and nothing more. */
static void leave_unborn(void)
{
	char path[600];
	int fd;

	T_EQ(mkdir(dir, 0700), 0);
	snprintf(path, sizeof(path), "%s/capacity.mp", dir);
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	T_EQ(ftruncate(fd, 64 * MiB), 0);
	close(fd);
}

static void what_another_has_made_meanwhile_is_not_replaced(void)
{
	struct kvdb_kvs *kvs;
	struct kvdb *db;
	char b = 0, v[8];
	size_t vlen;
	pid_t pid;
	int rc, st;

	fresh("two");
	leave_unborn();
	pid = other_begin();
	at_access = let_other_go;
	rc = kvdb_open(dir, &o, &db);
	T_OK(!at_access);
	T_EQ(read(from_other[0], &b, 1), 1);
	T_EQ(waitpid(pid, &st, 0), pid);
	T_OK(WIFEXITED(st) && WEXITSTATUS(st) < 2);
	T_OK(!rc || rc == -EBUSY);
	if (!rc)
		T_EQ(kvdb_close(db), 0);
	o.flags &= ~KVDB_CREATE;
	db = opened();
	/* what was acknowledged is there */
	T_EQ(kvdb_kvs_open(db, "s", &kvs), b == 'y' ? 0 : -ENOENT);
	if (b == 'y')
		T_EQ(kvdb_get(kvs, "k", 1, v, sizeof(v), &vlen), 0);
	T_EQ(kvdb_close(db), 0);
	end();
	for (unsigned i = 0; i < 2; i++) {
		close(to_other[i]);
		close(from_other[i]);
	}
}

static void remove_folder(void)
{
	T_EQ(rmdir(dir), 0);
}

static void a_folder_is_had_by_one_creation(void)
{
	struct mpool_dev_spec dev = { .mclass = MPOOL_CAPACITY, .size = 64 * MiB };
	struct mpool_create_opts c = MPOOL_CREATE_OPTS_INIT;
	int fd;

	fresh("one");
	c.devs = &dev;
	c.ndevs = 1;
	T_EQ(mkdir(dir, 0700), 0);
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	T_EQ(flock(fd, LOCK_EX), 0);
	T_EQ(mpool_create(dir, &c), -EBUSY);
	/* to look is free */
	c.flags = MPOOL_CREATE_PLAN;
	T_EQ(mpool_create(dir, &c), 0);
	T_EQ(rmdir(dir), 0);
	close(fd);
	/* one that goes as it is taken */
	T_EQ(mkdir(dir, 0700), 0);
	at_flock = remove_folder;
	T_EQ(kvdb_close(opened()), 0);
	T_OK(!at_flock);
	/* nor does the end of a pool take it from a creation */
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	T_EQ(flock(fd, LOCK_EX), 0);
	T_EQ(mpool_destroy(dir, NULL), 0);
	close(fd);
	T_EQ(rmdir(dir), 0);
	/* what was refused leaves none */
	c.flags = 0;
	dev.size = 4096;
	T_EQ(mpool_create(dir, &c), -EINVAL);
	T_EQ(access(dir, F_OK), -1);
	gone();
}

/* ---- what cannot be read ------------------------------------------------------------- */

static atomic_uint sleeps;

static uint64_t clock_now(void *arg)
{
	struct timespec ts;

	(void)arg;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void clock_sleep(void *arg, uint64_t t_ns)
{
	(void)arg;
	(void)t_ns;
	sleeps++;
}

static const struct kvdb_clock counting = { clock_now, clock_sleep, NULL, NULL };

static void file_put(const char *path, uint64_t off, const void *p, size_t n)
{
	int fd = open(path, O_WRONLY | O_CREAT, 0600);

	T_EQ(pwrite(fd, p, n, (off_t)off), n);
	close(fd);
}

static size_t json_read(char *buf, size_t size)
{
	char path[600];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/pool.json", dir);
	fd = open(path, O_RDONLY);
	n = read(fd, buf, size - 1);
	close(fd);
	buf[n > 0 ? n : 0] = 0;
	return n > 0 ? (size_t)n : 0;
}

/* Refused at once, with the open's own error, and nothing is made or changed. */
static void refused(int err, const char *id)
{
	struct kvdb_opts own = o;
	struct kvdb *db;
	char was[4096], is[4096], path[600];
	bool has_file;

	own.flags = KVDB_CREATE | KVDB_MANUAL | KVDB_NOCTL;
	own.clock = &counting;
	sleeps = 0;
	snprintf(path, sizeof(path), "%s/capacity.mp", dir);
	has_file = !access(path, F_OK);
	T_OK(json_read(was, sizeof(was)) > 0);
	T_EQ(kvdb_open(dir, &own, &db), err);
	T_STREQ(kvdb_error_detail()->id, id);
	T_EQ(sleeps, 0);
	json_read(is, sizeof(is));
	T_STREQ(is, was);
	T_EQ(!access(path, F_OK), has_file);
}

static void a_member_that_cannot_be_read_is_not_replaced(void)
{
	struct mpool_dev_spec dev = { .mclass = MPOOL_CAPACITY, .size = 64 * MiB };
	struct mpool_create_opts c = MPOOL_CREATE_OPTS_INIT;
	char far[600], magic[16];
	int fd;

	fresh("away");
	snprintf(far, sizeof(far), "%s.disk", dir);
	dev.path = far;
	c.devs = &dev;
	c.ndevs = 1;
	T_EQ(mpool_create(dir, &c), 0);
	T_EQ(kvdb_close(opened()), 0);
	/* no superblock of it is whole */
	fd = open(far, O_RDWR);
	T_EQ(read(fd, magic, sizeof(magic)), (ssize_t)sizeof(magic));
	T_EQ(ftruncate(fd, 0), 0);
	T_EQ(ftruncate(fd, 64 * MiB), 0);
	close(fd);
	file_put(far, 0, magic, sizeof(magic));
	refused(-EUCLEAN, "MP0102");
	/* another disk has its name */
	file_put(far, 0, "no superblock at", 16);
	refused(-EINVAL, "MP0101");
	/* it is not there */
	T_EQ(unlink(far), 0);
	refused(-ENODEV, "MP0409");
	snprintf(far, sizeof(far), "%s/pool.json", dir);
	T_EQ(unlink(far), 0);
	T_EQ(rmdir(dir), 0);
	gone();
}

static char member[600];

static void object_garble(void *arg, const struct mpool_extent *e)
{
	char junk[4096];

	(void)arg;
	memset(junk, 0xa5, sizeof(junk));
	if (e->id)
		for (uint64_t at = 0; at < 256 << 10 && at < e->len; at += sizeof(junk))
			file_put(member, e->off + at, junk, sizeof(junk));
}

static void mdlog_garble(void *arg, const struct mpool_extent *e)
{
	(void)arg;
	if (!strcmp(e->what, "mdlog"))
		file_put(member, e->off, "damage", 6);
}

static void damage_is_told_at_once(void)
{
	struct kvdb_kvs *kvs;
	struct kvdb *db;

	fresh("damaged");
	db = opened();
	T_EQ(kvdb_kvs_create(db, "s", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	T_EQ(kvdb_put(kvs, "k", 1, "v", 1), 0);
	T_EQ(kvdb_close(db), 0);
	snprintf(member, sizeof(member), "%s/capacity.mp", dir);
	T_EQ(mpool_map(dir, NULL, object_garble, NULL), 0);
	refused(-EUCLEAN, "MP0961");
	T_EQ(mpool_map(dir, NULL, mdlog_garble, NULL), 0);
	refused(-EUCLEAN, "MP0140");
	T_EQ(unlink(member), 0);
	snprintf(member, sizeof(member), "%s/pool.json", dir);
	T_EQ(unlink(member), 0);
	T_EQ(rmdir(dir), 0);
	gone();
}

static void an_open_tells_whether_it_made_it(void)
{
	struct kvdb_info in;
	struct kvdb *db;

	fresh("told");
	for (unsigned i = 0; i < 2; i++) {
		db = opened();
		T_EQ(kvdb_info(db, &in), 0);
		T_EQ(in.is_made, !i);
		T_EQ(kvdb_close(db), 0);
	}
	/* a pool that there was gets one */
	T_EQ(kvdb_drop(dir, NULL), 0);
	db = opened();
	T_EQ(kvdb_info(db, &in), 0);
	T_EQ(in.is_made, 1);
	T_EQ(kvdb_close(db), 0);
	end();
}

/* ---- growth -------------------------------------------------------------------------- */

#define VALUE	(256u << 10)

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

struct writer {
	struct kvdb_kvs *kvs;
	unsigned from, n;
	int rc;
	uint64_t worst_ns;
};

static void *write_many(void *arg)
{
	struct writer *w = arg;
	uint8_t *val = malloc(VALUE);
	uint64_t seed = w->from + 1;
	char k[16];

	for (unsigned i = 0; i < VALUE; i += 8) {
		uint64_t x = t_rand(&seed);

		memcpy(val + i, &x, 8);
	}
	for (unsigned i = 0; i < w->n && !w->rc; i++) {
		uint64_t t = now_ns();
		size_t klen = (size_t)snprintf(k, sizeof(k), "%08u", w->from + i);

		memcpy(val, k, 8);
		w->rc = kvdb_put(w->kvs, k, klen, val, VALUE);
		t = now_ns() - t;
		w->worst_ns = t > w->worst_ns ? t : w->worst_ns;
	}
	free(val);
	return NULL;
}

static unsigned found(struct kvdb_kvs *kvs, unsigned n)
{
	unsigned have = 0;
	char k[16], v[8];
	size_t vlen;

	for (unsigned i = 0; i < n; i++) {
		size_t klen = (size_t)snprintf(k, sizeof(k), "%08u", i);

		have += !kvdb_get(kvs, k, klen, v, sizeof(v), &vlen) && vlen == VALUE &&
			!memcmp(v, k, 8);
	}
	return have;
}

/* Writers beside each other put eight times what it began with. */
static void it_grows_under_its_writers(void)
{
	enum { N = 2, EACH = 1000 };
	struct writer w[N] = { { .from = 0 } };
	struct mpool_dev_info di;
	struct kvdb_info in;
	struct kvdb_kvs *kvs;
	pthread_t t[N];
	struct kvdb *db;
	uint64_t most = 0;

	fresh("grows");
	o.size_max = 64 * MiB;
	db = opened();
	T_EQ(kvdb_close(db), 0);
	o.size_max = 2048 * MiB;
	o.interval_ms = KVDB_INTERVAL_NONE;
	db = opened();
	T_EQ(kvdb_kvs_create(db, "s", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	for (unsigned i = 0; i < N; i++) {
		w[i] = (struct writer){ .kvs = kvs, .from = i * EACH, .n = EACH };
		T_EQ(pthread_create(&t[i], NULL, write_many, &w[i]), 0);
	}
	for (unsigned i = 0; i < N; i++) {
		T_EQ(pthread_join(t[i], NULL), 0);
		T_EQ(w[i].rc, 0);
		most = w[i].worst_ns > most ? w[i].worst_ns : most;
	}
	T_EQ(kvdb_dev_info(db, 0, &di), 0);
	printf("# from 64 MiB to %.0f MiB, the longest put %.0f ms\n", (double)di.size / MiB,
	       (double)most / 1e6);
	T_OK(di.size >= 512 * MiB && di.size <= 2048 * MiB);
	T_EQ(found(kvs, N * EACH), N * EACH);
	T_EQ(kvdb_info(db, &in), 0);
	T_EQ(di.size + in.pool.cls[MPOOL_CAPACITY].growable, 2048 * MiB);
	T_EQ(kvdb_close(db), 0);
	/* as it was left, and by its own rule from then on: not beyond what it was made for */
	o.size_max = 0;
	o.flags &= ~KVDB_CREATE;
	db = opened();
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	T_EQ(found(kvs, N * EACH), N * EACH);
	T_EQ(kvdb_info(db, &in), 0);
	T_EQ(in.pool.cls[MPOOL_CAPACITY].growable, 0);
	T_EQ(kvdb_close(db), 0);
	end();
}

static void it_is_full_at_its_limit(void)
{
	struct writer w = { .n = 4000 };
	struct mpool_dev_info di;
	struct kvdb *db;

	fresh("limit");
	o.size_max = 128 * MiB;
	o.interval_ms = KVDB_INTERVAL_NONE;
	db = opened();
	T_EQ(kvdb_kvs_create(db, "s", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "s", &w.kvs), 0);
	write_many(&w);
	T_EQ(w.rc, -ENOSPC);
	T_EQ(kvdb_dev_info(db, 0, &di), 0);
	T_EQ(di.size, 128 * MiB);
	/* and goes on where it may become larger */
	T_EQ(kvdb_close(db), 0);
	o.size_max = 512 * MiB;
	db = opened();
	T_EQ(kvdb_kvs_open(db, "s", &w.kvs), 0);
	w.rc = 0;
	w.n = 600;
	write_many(&w);
	T_EQ(w.rc, 0);
	T_EQ(kvdb_dev_info(db, 0, &di), 0);
	T_OK(di.size > 128 * MiB);
	T_EQ(found(w.kvs, 600), 600);
	T_EQ(kvdb_close(db), 0);
	T_EQ(mpool_verify(dir, NULL, 0, NULL, NULL, &(uint64_t){ 0 }), 0);
	end();
}

int main(void)
{
	T_RUN(an_open_makes_what_is_not_there);
	T_RUN(a_path_that_is_no_name_gives_one);
	T_RUN(a_pool_without_a_database_gets_one);
	T_RUN(what_is_something_else_stays);
	T_RUN(of_several_at_once_one_makes_it);
	T_RUN(what_another_has_made_meanwhile_is_not_replaced);
	T_RUN(a_folder_is_had_by_one_creation);
	T_RUN(a_member_that_cannot_be_read_is_not_replaced);
	T_RUN(damage_is_told_at_once);
	T_RUN(an_open_tells_whether_it_made_it);
	T_RUN(it_grows_under_its_writers);
	T_RUN(it_is_full_at_its_limit);
	return t_done();
}
