/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Recovery time. A process loads records and then overwrites them with the
 * default options, on plain files, and is killed at random moments; the next
 * one measures from kvdb_open() to the answer of its first get. Whatever the
 * size of the database is by then, it reads no more log than the limit allows,
 * takes less than two seconds, and the record that is read was durable before the
 * kill. Two seconds are of the clock while others take less than half a core,
 * else of its own processor time.
 *
 * MIB=1024 and MIB=10240 are the sizes of the measurement; KILLS= how often.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvdb/kvdb.h>

#include "harness.h"

#define THREADS		2u
#define VALUE		1000u
#define OPEN_MS_MAX	2000.0
/*
 * The default log_bytes is at most 512 MiB; segments that are open, in stock or not sealed yet
 * are read whole.
 */
#define LOG_MIB_MAX	1280u

/* What the processes tell each other. Record n of a thread is version n / KEYS of key n % KEYS. */
struct shared {
	uint64_t sh_next[THREADS];	/* records begun */
	uint64_t sh_synced[THREADS];	/* durable: so many */
	uint64_t sh_seed;
	_Atomic(uint32_t) sh_opened;	/* opens that were measured */
	double sh_open_ms, sh_get_ms, sh_cpu_ms;
	double sh_others;		/* cores that other processes took meanwhile */
	uint64_t sh_log_bytes, sh_replayed;
};

static struct shared *sh;
static struct kvdb *db;
static struct kvdb_kvs *kvs;
static uint64_t keys;	/* of one thread */
static char path[512];

static uint64_t env_num(const char *name, uint64_t or)
{
	const char *s = getenv(name);

	return s && *s ? strtoull(s, NULL, 0) : or;
}

static double ms_of(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

/* processor time that the machine has spent on anything */
static double machine_ms(void)
{
	unsigned long long user = 0, nice = 0, sys = 0;
	FILE *f = fopen("/proc/stat", "r");

	if (!f || fscanf(f, "cpu %llu %llu %llu", &user, &nice, &sys) != 3)
		user = nice = sys = 0;
	if (f)
		fclose(f);
	return (double)(user + nice + sys) * 1e3 / (double)sysconf(_SC_CLK_TCK);
}

static size_t key_make(unsigned t, uint64_t n, char *key)
{
	return (size_t)sprintf(key, "user%u%019llu", t,
			       (unsigned long long)(n % keys * 11400714819323198485ull >> 4));
}

static void value_make(unsigned t, uint64_t n, uint8_t *val)
{
	uint64_t s = n * THREADS + t, x, i;

	memcpy(val, &n, 8);
	for (i = 8; i < VALUE; i += 8) {
		x = t_rand(&s);
		memcpy(val + i, &x, 8);
	}
}

/* A record that was durable reads as itself, or as a later one of its key. */
static int first_get(unsigned t, uint64_t n)
{
	uint8_t val[VALUE], want[VALUE];
	uint64_t got = 0;
	size_t len = 0;
	char key[40];

	if (kvdb_get(kvs, key, key_make(t, n, key), val, sizeof(val), &len) || len != VALUE)
		return 1;
	memcpy(&got, val, 8);
	value_make(t, got, want);
	return got < n || got % keys != n % keys || memcmp(val, want, VALUE);
}

static void measure(void)
{
	struct kvdb_stats st;
	unsigned t = (unsigned)(t_rand(&sh->sh_seed) % THREADS);
	double begin = ms_of(CLOCK_MONOTONIC), cpu = ms_of(CLOCK_PROCESS_CPUTIME_ID);
	double machine = machine_ms();

	if (kvdb_open(path, NULL, &db) || kvdb_kvs_open(db, "all", &kvs))
		_exit(2);
	sh->sh_open_ms = ms_of(CLOCK_MONOTONIC) - begin;
	if (sh->sh_synced[t] && first_get(t, t_rand(&sh->sh_seed) % sh->sh_synced[t]))
		_exit(3);
	sh->sh_get_ms = ms_of(CLOCK_MONOTONIC) - begin;
	sh->sh_cpu_ms = ms_of(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	sh->sh_others = (machine_ms() - machine - sh->sh_cpu_ms) / sh->sh_get_ms;
	if (kvdb_stats(db, &st))
		_exit(4);
	sh->sh_log_bytes = st.recovery.bytes;
	sh->sh_replayed = st.recovery.replayed;
	atomic_fetch_add(&sh->sh_opened, 1);
}

static void *writer(void *arg)
{
	unsigned t = (unsigned)(uintptr_t)arg;
	uint64_t n = sh->sh_synced[t];
	uint8_t val[VALUE];
	char key[40];

	for (;; n++) {
		value_make(t, n, val);
		if (kvdb_put(kvs, key, key_make(t, n, key), val, VALUE))
			_exit(5);
		__atomic_store_n(&sh->sh_next[t], n, __ATOMIC_RELEASE);
		if (n % 4096)
			continue;
		if (kvdb_sync(db))
			_exit(6);
		sh->sh_synced[t] = n + 1;
	}
	return NULL;
}

static void child(void)
{
	pthread_t th[THREADS];
	unsigned t;

	measure();
	for (t = 0; t < THREADS; t++)
		pthread_create(&th[t], NULL, writer, (void *)(uintptr_t)t);
	for (t = 0; t < THREADS; t++)
		pthread_join(th[t], NULL);
}

static uint64_t begun(void)
{
	uint64_t n = 0;
	unsigned t;

	for (t = 0; t < THREADS; t++)
		n += __atomic_load_n(&sh->sh_next[t], __ATOMIC_ACQUIRE);
	return n;
}

/* Runs a process until it has begun @until records, and a little longer. */
static void run_and_kill(uint64_t until, uint64_t *seed)
{
	uint32_t opened = atomic_load(&sh->sh_opened);
	int status = 0;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	T_OK(pid >= 0);
	if (!pid)
		child();
	while ((begun() < until || atomic_load(&sh->sh_opened) == opened) &&
	       !waitpid(pid, &status, WNOHANG))
		usleep(1000);
	if (!status) {
		usleep((useconds_t)(t_rand(seed) % 100000));
		kill(pid, SIGKILL);
		T_EQ(waitpid(pid, &status, 0), pid);
	}
	T_OK(WIFSIGNALED(status));
}

static void report(double *worst)
{
	double ms = sh->sh_others < 0.5 ? sh->sh_get_ms : sh->sh_cpu_ms;

	printf("# %6llu MiB written: open %.0f ms, first get at %.0f ms (%.0f ms of processor, "
	       "others took %.1f cores), %llu MiB of logs read, %llu records replayed\n",
	       (unsigned long long)(begun() * VALUE >> 20), sh->sh_open_ms, sh->sh_get_ms,
	       sh->sh_cpu_ms, sh->sh_others, (unsigned long long)(sh->sh_log_bytes >> 20),
	       (unsigned long long)sh->sh_replayed);
	T_OK(sh->sh_log_bytes >> 20 <= LOG_MIB_MAX);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	/* a sanitizer makes it ten times as long; everything else is looked at with it too */
	T_OK(ms <= OPEN_MS_MAX);
#else
	(void)ms;
#endif
	if (*worst < sh->sh_get_ms)
		*worst = sh->sh_get_ms;
}

static void recovery_is_short_whenever_it_was_killed(void)
{
	uint64_t mib = env_num("MIB", getenv("TEST_SHORT") ? 64 : 256), seed = t_seed();
	struct mpool_dev_spec dev = { .mclass = MPOOL_CAPACITY, .size = (2 * mib + 1024) << 20 };
	unsigned kills = (unsigned)env_num("KILLS", 20), i;
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	const char *tmp = getenv("TMPDIR");
	double worst = 0;

	snprintf(path, sizeof(path), "%s/recover.%d", tmp ? tmp : "/tmp", (int)getpid());
	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	T_OK(sh != MAP_FAILED);
	sh->sh_seed = seed;
	keys = (mib << 20) / VALUE / THREADS;
	co.devs = &dev;
	co.ndevs = 1;
	T_EQ(mpool_create(path, &co), 0);
	T_EQ(kvdb_create(path, NULL), 0);
	T_EQ(kvdb_open(path, NULL, &db), 0);
	T_EQ(kvdb_kvs_create(db, "all", NULL), 0);
	T_EQ(kvdb_close(db), 0);
	/* two thirds of them while it grows, the rest while it is overwritten */
	for (i = 0; i <= kills; i++) {
		run_and_kill((2 * i + t_rand(&seed) % 2 + 1) * keys * THREADS * 3 / (4 * kills),
			     &seed);
		if (!i)
			continue;	/* that one was closed before */
		report(&worst);
	}
	printf("# %llu MiB, %u kills: %.0f ms from open to the first get at most\n",
	       (unsigned long long)mib, kills, worst);
	T_EQ(mpool_destroy(path, NULL), 0);
}

int main(void)
{
	t_seed();
	T_RUN(recovery_is_short_whenever_it_was_killed);
	return t_done();
}
