/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A library in another's process: programs that have closed their standard
 * descriptors, forbid system calls to themselves, fork, are set-user-ID, or may start no more
 * threads; and file systems that cannot reserve space.
 */
#define _GNU_SOURCE
#include "kvdb_help.h"

#include <dlfcn.h>
#include <kvdb/cq.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/un.h>

#include "sandbox.h"

#define POOL (128 * MIB)

/*
 * The child of a process with threads is one that works: not with ThreadSanitizer, which allows it
 * no threads, nor with AddressSanitizer, whose allocator leaves its locks in a child as they were.
 */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define T_FORKS 0
#else
#define T_FORKS 1
#endif

/* which of 0, 1 and 2 are descriptors of something, as bits */
static unsigned standard_ones(void)
{
	unsigned bits = 0;
	int fd;

	for (fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			bits |= 1u << fd;
	return bits;
}

/* a client of the control socket, whose end in the library has a descriptor too */
static int ctl_connect(void)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int low = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int fd = fcntl(low, F_DUPFD_CLOEXEC, 100);
	struct kvdb_info in;
	char answer[256];

	close(low);
	kvdb_info(kh_db, &in);
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%.107s", in.ctl);
	if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) ||
	    write(fd, "{\"command\":\"info\"}\n", 19) != 19 || read(fd, answer, 1) != 1)
		return -1;
	return fd;
}

/* Everything that makes a descriptor that stays; what they are then, as bits. */
static unsigned use_all(void)
{
	struct kvdb_kvs *k = NULL;
	struct kvdb_cq *cq = NULL;
	unsigned bits = 0;
	int i, fd = -1;
	char key[16];

	if (kh_open_with(0) || kvdb_kvs_create(kh_db, "s", NULL) || kvdb_kvs_open(kh_db, "s", &k))
		return 8;
	bits |= standard_ones();
	for (i = 0; i < 1000 && !(bits & 8); i++) {
		snprintf(key, sizeof(key), "k%d", i);
		if (kvdb_put(k, key, strlen(key), kh_value(1, 1000), 1000))
			bits |= 8;
	}
	if (kvdb_sync(kh_db) || kvdb_cq_open(kh_db, 0, 0, &cq) || kvdb_cq_fd(cq) < 0)
		return bits | 8;
	if (!th_is_kmod())
		fd = ctl_connect();
	bits |= standard_ones();
	/* what any library may print, at any time */
	if (write(STDERR_FILENO, "a message\n", 10) > 0 || write(STDOUT_FILENO, "a line\n", 7) > 0)
		bits |= 16;
	kvdb_cq_close(cq);
	if (fd >= 0)
		close(fd);
	bits |= standard_ones();
	if (kvdb_close(kh_db))
		bits |= 8;
	return bits;
}

static void use_all_without(void)
{
	int out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 50), err;
	unsigned bits;

	T_OK(out >= 0);
	err = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 50);
	close(STDIN_FILENO);
	close(STDOUT_FILENO);
	close(STDERR_FILENO);
	bits = use_all();
	dup2(out, STDOUT_FILENO);
	dup2(err, STDERR_FILENO);
	T_EQ(bits, 0);
}

static void nothing(void)
{
}

static void no_descriptor_becomes_a_standard_one(void)
{
	static const char *const io[] = { "uring", "sync" };
	unsigned i;

	for (i = 0; i < 2; i++) {
		setenv("MPOOL_IO", io[i], 1);
		kh_make(POOL, 0);
		t_die_in(nothing, use_all_without);
		unsetenv("MPOOL_IO");
		kh_open();
		T_OK(kh_holds(kh_kvs("s"), "k999", 4, 1, 1000));
		kh_close();
		T_EQ(kh_damage(MPOOL_VERIFY_DATA), 0);
		th_clean();
	}
}

/* The database is open, and its threads have used their rings. */
static void lock_in(void)
{
	struct kvdb_kvs *k;
	char key[16];
	int i;

	alarm(60);
	kh_open();
	k = kh_kvs("s");
	T_EQ(kh_put(k, "before", 6, 1, 1000), 0);
	T_EQ(kvdb_sync(kh_db), 0);
	T_EQ(t_forbid(T_URING, EPERM), 0);
	for (i = 0; i < 1000; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		T_EQ(kh_put(k, key, strlen(key), (uint64_t)i, 1000), 0);
	}
	T_EQ(kvdb_sync(kh_db), 0);
	kh_close();
}

static void io_uring_may_be_forbidden_while_it_is_open(void)
{
	kh_make(POOL, 0);
	t_die_in(nothing, lock_in);
	kh_open();
	T_OK(kh_holds(kh_kvs("s"), "before", 6, 1, 1000));
	T_OK(kh_holds(kh_kvs("s"), "k999", 4, 999, 1000));
	kh_close();
	T_EQ(kh_damage(MPOOL_VERIFY_DATA), 0);
	th_clean();
}

/* ---- fork() ---- */

static char pool_of_child[300];
static int busy_end;

static void *busy(void *kvs)
{
	char v[100];
	size_t len;

	while (!__atomic_load_n(&busy_end, __ATOMIC_RELAXED)) {
		kvdb_put(kvs, "a", 1, v, sizeof(v));
		kvdb_get(kvs, "a", 1, v, sizeof(v), &len);
	}
	return NULL;
}

/* Nothing of the parent's: a database of the child's own, with all that can end in it. */
static void own_database(void)
{
	struct kvdb_opts o = kh_opts();
	struct kvdb *own;
	struct kvdb_kvs *k;
	int i;

	alarm(20);
	T_EQ(kvdb_open(pool_of_child, &o, &own), 0);
	if (kvdb_kvs_open(own, "s", &k)) {
		T_EQ(kvdb_kvs_create(own, "s", NULL), 0);
		T_EQ(kvdb_kvs_open(own, "s", &k), 0);
	}
	for (i = 0; i < 100; i++)
		T_EQ(kvdb_put(k, &i, sizeof(i), kh_value(1, 4000), 4000), 0);
	T_EQ(kvdb_drain(own, KVDB_WAIT_FLUSH), 0);
	T_EQ(kvdb_kvs_drop(own, "s"), 0);
	T_EQ(kvdb_close(own), 0);
}

/* Parent's threads are inside, and hold what the library has one of in a process, at a fork. */
static void a_child_of_a_busy_parent_has_a_database_of_its_own(void)
{
	struct kvdb_kvs *k;
	pthread_t t[4];
	int i;

	kh_make(POOL, 0);
	snprintf(pool_of_child, sizeof(pool_of_child), "%s/other", th_dir);
	T_EQ(th_create_at(pool_of_child, POOL, 0), 0);
	T_EQ(kvdb_create(pool_of_child, NULL), 0);
	kh_open();
	k = kh_kvs("s");
	busy_end = 0;
	for (i = 0; i < 4; i++)
		T_EQ(pthread_create(&t[i], NULL, busy, k), 0);
	for (i = 0; i < 10; i++)
		t_die_in(nothing, own_database);
	__atomic_store_n(&busy_end, 1, __ATOMIC_RELAXED);
	for (i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	kh_close();
	T_EQ(kh_damage(MPOOL_VERIFY_DATA), 0);
	th_clean();
}

/* A reader of the parent that is never to leave, and something retired behind it. */
static void what_the_parent_has_retired_is_not_the_childs(void)
{
	struct kvdb_cursor *cur;
	struct kvdb_kvs *k;

	kh_make(POOL, 0);
	snprintf(pool_of_child, sizeof(pool_of_child), "%s/other", th_dir);
	T_EQ(th_create_at(pool_of_child, POOL, 0), 0);
	T_EQ(kvdb_create(pool_of_child, NULL), 0);
	kh_open();
	k = kh_kvs("s");
	T_EQ(kh_put_str(k, "k", "v"), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	T_EQ(kvdb_cursor_open(k, 0, NULL, 0, &cur), 0);
	T_EQ(kh_put_str(k, "k", "w"), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	T_EQ(kvdb_compact(kh_db, 0), 0);
	t_die_in(nothing, own_database);
	T_EQ(kvdb_cursor_next(cur, NULL, NULL, NULL, NULL), 0);
	kvdb_cursor_close(cur);
	T_OK(kh_holds_str(k, "k", "w"));
	kh_close();
	T_EQ(kh_damage(MPOOL_VERIFY_DATA), 0);
	th_clean();
}

/* ---- set-user-ID ---- */

/* What the copy of this program does: 0 when its caller has not chosen how the pool is opened. */
static int as_set_user_id(const char *pool)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct kvdb *db;
	int rc;

	if (getuid() == geteuid() || setresuid(geteuid(), geteuid(), geteuid()))
		return 3;
	o.cache_bytes = 64 * MIB;
	rc = kvdb_open(pool, &o, &db);
	if (rc)
		printf("# open: %d, %s\n", rc, kvdb_error_detail()->text);
	return rc || kvdb_close(db) ? 1 : 0;
}

static char copy_path[300];

static void run_copy(void)
{
	T_EQ(setgid(65534) || setuid(65534), 0);
	if (access(copy_path, X_OK))
		return; /* a folder above is closed to others */
	/* both would be refused: the pool is opened only when they are not looked at */
	setenv("MPOOL_DEV", "no-such-layer", 1);
	setenv("MPOOL_IO", "no-such-way", 1);
	execl(copy_path, copy_path, th_pool, (char *)NULL);
	T_FAIL("cannot be executed: %s", strerror(errno));
}

/* A copy of this program that is root's; 0 where the file system knows no such thing. */
static int copy_make(void)
{
	char buf[1 << 16];
	int in = open("/proc/self/exe", O_RDONLY), out, ok;
	ssize_t n;

	snprintf(copy_path, sizeof(copy_path), "%s/copy", th_dir);
	out = open(copy_path, O_WRONLY | O_CREAT | O_EXCL, 0700);
	while ((n = read(in, buf, sizeof(buf))) > 0)
		T_EQ(write(out, buf, (size_t)n), n);
	close(in);
	ok = !fchown(out, 0, 0) && !fchmod(out, 04755);
	close(out);
	return ok && !chmod(th_dir, 0755);
}

static void a_caller_of_a_set_user_id_program_chooses_nothing(void)
{
	kh_make(POOL, 0);
	T_OK(copy_make());
	t_die_in(nothing, run_copy);
	th_clean();
}

/* ---- no fallocate() ---- */

static uint64_t member_bytes(void)
{
	char path[sizeof(th_pool) + 20];
	struct stat st;

	snprintf(path, sizeof(path), "%s/capacity.mp", th_pool);
	T_EQ(stat(path, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

/* As on ext3, NFS before 4.2 and FUSE. What is given out has its space all the same. */
static void reserve_without(void)
{
	uint64_t before;
	struct mpool_obj *a, *b;
	struct mpool *mp;
	void *buf = th_buf(MIB, 7), *back = th_buf(MIB, 8);
	struct mpool_op op = { .type = MPOOL_OP_COMMIT, .length = MIB };

	T_EQ(t_forbid(__NR_fallocate, -1, -1, EOPNOTSUPP), 0);
	T_EQ(th_create_at(th_pool, 64 * MIB, 0), 0);
	T_OK(member_bytes() < 16 * MIB);
	mp = th_open_with(NULL, NULL);
	before = member_bytes();
	a = th_alloc(mp, MPOOL_MBLOCK, MPOOL_CAPACITY, 8 * MIB, 0);
	T_OK(member_bytes() >= before + 8 * MIB);
	T_EQ(th_write(a, 0, buf, MIB), 0);
	op.obj = a;
	T_EQ(mpool_batch(mp, &op, 1), 0);
	/* beside it, and where another was */
	b = th_alloc(mp, MPOOL_MBLOCK, MPOOL_CAPACITY, 8 * MIB, 0);
	T_OK(member_bytes() >= before + 16 * MIB);
	mpool_obj_close(b);
	b = th_alloc(mp, MPOOL_MBLOCK, MPOOL_CAPACITY, 16 * MIB, 0);
	T_EQ(th_read(a, 0, back, MIB), 0);
	T_MEMEQ(buf, back, MIB);
	mpool_obj_close(a);
	mpool_obj_close(b);
	T_EQ(mpool_close(mp), 0);
	free(buf);
	free(back);
}

static void fill_without(void)
{
	struct kvdb_kvs *k;
	int i;

	T_EQ(t_forbid(__NR_fallocate, -1, -1, EOPNOTSUPP), 0);
	kh_make(POOL, 0);
	kh_open();
	k = kh_kvs("s");
	for (i = 0; i < 2000; i++)
		T_EQ(kh_put(k, &i, sizeof(i), (uint64_t)i, 2000), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	kh_close();
	kh_open();
	for (i = 0; i < 2000; i++)
		T_OK(kh_holds(kh_kvs("s"), &i, sizeof(i), (uint64_t)i, 2000));
	kh_close();
	T_EQ(kh_damage(MPOOL_VERIFY_DATA), 0);
	th_clean();
}

static void make_without_getrandom(void)
{
	T_EQ(t_forbid(__NR_getrandom, -1, -1, EPERM), 0);
	kh_make(POOL, 0);
	kh_open();
	T_EQ(kh_put_str(kh_kvs("s"), "k", "v"), 0);
	kh_close();
	th_clean();
}

/* A database is made where a pool is. */
static void a_filter_of_getrandom_stops_no_database(void)
{
	t_die_in(nothing, make_without_getrandom);
}

static void file_systems_without_fallocate_get_zeroes(void)
{
	th_fresh();
	t_die_in(nothing, reserve_without);
	t_die_in(nothing, fill_without);
	th_clean();
}

/* what the system lets this process start yet */
static _Atomic int threads_left = INT_MAX;

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
	int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
		(int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))
		dlsym(RTLD_NEXT, "pthread_create");

	if (atomic_fetch_sub(&threads_left, 1) <= 0)
		return EAGAIN;
	return next(thread, attr, fn, arg);
}

/* Whichever thread it is that cannot be started: nothing is left open. */
static void an_open_without_threads_says_so(void)
{
	int n, rc = -EAGAIN;

	kh_make(POOL, 0);
	kh_open();
	T_EQ(kh_put_str(kh_kvs("s"), "k", "v"), 0);
	kh_close();
	for (n = 0; rc == -EAGAIN && n < 100; n++) {
		atomic_store(&threads_left, n);
		rc = kh_open_with(0);
		atomic_store(&threads_left, INT_MAX);
		if (!rc)
			break;
		T_EQ(rc, -EAGAIN);
		T_OK(strstr(kvdb_error_detail()->text, "thread"));
		T_OK(strstr(kvdb_error_detail()->cure, "threads") ||
		     strstr(kvdb_error_detail()->cure, "ulimit"));
	}
	/* the flusher, three of background work, one that merges */
	T_OK(n >= 4 && n < 100);
	T_OK(kh_holds_str(kh_kvs("s"), "k", "v"));
	kh_close();
	th_clean();
}

static int has_set_user_id(void)
{
	struct statvfs st;
	const char *tmp = getenv("TMPDIR");

	return !geteuid() && !statvfs(tmp && *tmp ? tmp : "/tmp", &st) &&
	       !(st.f_flag & ST_NOSUID);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return as_set_user_id(argv[1]);
	T_RUN(no_descriptor_becomes_a_standard_one);
	T_RUN(io_uring_may_be_forbidden_while_it_is_open);
	if (T_FORKS && !th_is_kmod()) {
		T_RUN(a_child_of_a_busy_parent_has_a_database_of_its_own);
		T_RUN(what_the_parent_has_retired_is_not_the_childs);
	}
	T_RUN(an_open_without_threads_says_so);
	TH_RUN_FILES(a_filter_of_getrandom_stops_no_database);
	TH_RUN_FILES(file_systems_without_fallocate_get_zeroes);
	if (!has_set_user_id() || th_is_kmod())
		t_skip("a_caller_of_a_set_user_id_program_chooses_nothing", "needs root and files");
	else
		T_RUN(a_caller_of_a_set_user_id_program_chooses_nothing);
	return t_done();
}
