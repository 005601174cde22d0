/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * SIGKILL loop on plain files. A child writes with several threads; what it was
 * told lies in shared memory outside the database: per key the version that was
 * acknowledged and the one that was begun. After each kill the database must
 * open, hold for every key the acknowledged or the begun version (the host did
 * not lose power, so an acknowledged write that reached the kernel may not be
 * missing after a sync, and at most the loss bound's suffix otherwise), with
 * exact bytes, and a thread's writes in the order in which it made them.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvdb/kvdb.h>

#include "harness.h"

#define THREADS		3u
#define KEYS		400u	/* per thread */
#define VALUE_MAX	6000u

/* of one thread; versions count its writes, so order can be checked */
struct state {
	uint32_t s_next;		/* version of its next write */
	uint32_t s_acked;		/* last version that was acknowledged */
	uint32_t s_synced;		/* last version before a sync that returned */
	uint32_t s_hist[1u << 22];	/* key of each version, from 1 */
};

static struct state *state;
static struct kvdb *db;
static struct kvdb_kvs *kvs;
static char path[512];

static size_t key_make(unsigned t, unsigned k, char *buf)
{
	return (size_t)sprintf(buf, "key-%u-%05u", t, k);
}

/* every ninth version deletes its key */
static int is_delete(uint32_t ver)
{
	return ver % 9 == 0;
}

static size_t value_make(unsigned t, unsigned k, uint32_t ver, uint8_t *buf)
{
	uint64_t s = ((uint64_t)t << 56) ^ ((uint64_t)k << 32) ^ ver;
	size_t len = 8 + t_rand(&s) % (ver % 11 ? 200 : VALUE_MAX - 8), i;

	memcpy(buf, &ver, 4);
	memcpy(buf + 4, &k, 4);
	for (i = 8; i < len; i++)
		buf[i] = (uint8_t)(s >> (i % 8 * 8)) ^ (uint8_t)i;
	return len;
}

static void options(struct kvdb_opts *o)
{
	*o = (struct kvdb_opts)KVDB_OPTS_INIT;
	o->cache_bytes = 64ull << 20;
	o->log_bytes = 4ull << 20;
	o->interval_ms = 20;
	o->logs = 2;
}

static int db_open(void)
{
	struct kvdb_opts o;
	int rc;

	options(&o);
	rc = kvdb_open(path, &o, &db);
	return rc ? rc : kvdb_kvs_open(db, "all", &kvs);
}

static void *writer(void *arg)
{
	unsigned t = (unsigned)(uintptr_t)arg;
	struct state *s = &state[t];
	uint64_t seed = t_seed() + s->s_next * 31u + t;
	uint8_t val[VALUE_MAX];
	char key[40];

	while (s->s_next < (1u << 22) - 1) {
		unsigned k = (unsigned)(t_rand(&seed) % KEYS);
		uint32_t ver = s->s_next;
		int rc;

		s->s_hist[ver] = k;
		__atomic_store_n(&s->s_next, ver + 1, __ATOMIC_RELEASE);
		rc = is_delete(ver) ? kvdb_del(kvs, key, key_make(t, k, key)) :
				      kvdb_put(kvs, key, key_make(t, k, key), val,
					       value_make(t, k, ver, val));
		if (rc)
			_exit(3);
		__atomic_store_n(&s->s_acked, ver, __ATOMIC_RELEASE);
		if (t_rand(&seed) % 400)
			continue;
		if (kvdb_sync(db))
			_exit(4);
		__atomic_store_n(&s->s_synced, ver, __ATOMIC_RELEASE);
	}
	return NULL;
}

static void child(void)
{
	pthread_t th[THREADS];
	unsigned t;

	if (db_open())
		_exit(2);
	for (t = 0; t < THREADS; t++)
		pthread_create(&th[t], NULL, writer, (void *)(uintptr_t)t);
	for (t = 0; t < THREADS; t++)
		pthread_join(th[t], NULL);
	_exit(0);
}

/* the version that the database holds of each key of thread @t; 0 = absent */
static void read_thread(unsigned t, uint32_t *ver)
{
	uint8_t buf[VALUE_MAX], want[VALUE_MAX];
	char key[40];
	unsigned k;

	for (k = 0; k < KEYS; k++) {
		size_t vlen = 0;
		int rc = kvdb_get(kvs, key, key_make(t, k, key), buf, sizeof(buf), &vlen);

		ver[k] = 0;
		if (rc == -ENOENT)
			continue;
		T_EQ(rc, 0);
		memcpy(&ver[k], buf, 4);
		T_EQ(value_make(t, k, ver[k], want), vlen);
		T_MEMEQ(buf, want, vlen);
	}
}

/*
 * Some prefix of the thread's writes, at least up to its last sync, has exactly
 * this effect; what follows is forgotten by the model too.
 */
static void check_thread(unsigned t)
{
	uint32_t have[KEYS], now[KEYS] = { 0 }, p, fit = UINT32_MAX, k, wrong = 0;
	struct state *s = &state[t];

	read_thread(t, have);
	for (k = 0; k < KEYS; k++)
		wrong += have[k] != 0;
	for (p = 0; p < s->s_next; p++) {
		if (p) {
			k = s->s_hist[p];
			wrong -= now[k] != have[k];
			now[k] = is_delete(p) ? 0 : p;
			wrong += now[k] != have[k];
		}
		if (!wrong && p >= s->s_synced)
			fit = p;
	}
	if (fit == UINT32_MAX)
		T_FAIL("thread %u: no prefix of %u writes (synced %u, acknowledged %u) fits", t,
		       s->s_next, s->s_synced, s->s_acked);
	s->s_next = fit + 1;
	s->s_acked = s->s_synced = fit;
}

static void every_kill_leaves_a_prefix(void)
{
	unsigned kills = getenv("TEST_SHORT") ? 4 : getenv("TEST_LONG") ? 600 : 40, i, t;
	struct mpool_dev_spec dev[1] = { { .mclass = MPOOL_CAPACITY, .size = 768ull << 20 } };
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	uint64_t seed = t_seed(), writes = 0;
	const char *tmp = getenv("TMPDIR");
	struct kvdb_opts o;

	snprintf(path, sizeof(path), "%s/kill.%d", tmp ? tmp : "/tmp", (int)getpid());
	state = mmap(NULL, THREADS * sizeof(*state), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	T_OK(state != MAP_FAILED);
	for (t = 0; t < THREADS; t++)
		state[t].s_next = 1;
	co.devs = dev;
	co.ndevs = 1;
	options(&o);
	T_EQ(mpool_create(path, &co), 0);
	T_EQ(kvdb_create(path, &o), 0);
	T_EQ(kvdb_open(path, &o, &db), 0);
	T_EQ(kvdb_kvs_create(db, "all", NULL), 0);
	T_EQ(kvdb_close(db), 0);
	for (i = 0; i < kills; i++) {
		pid_t pid = fork();
		int status;

		T_OK(pid >= 0);
		if (!pid)
			child();
		usleep(30000 + (useconds_t)(t_rand(&seed) % 300000));
		kill(pid, SIGKILL);
		T_EQ(waitpid(pid, &status, 0), pid);
		/* it may have filled its history, but must not have failed */
		T_OK(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
		T_EQ(db_open(), 0);
		for (t = 0; t < THREADS; t++)
			check_thread(t);
		T_EQ(kvdb_close(db), 0);
	}
	for (t = 0; t < THREADS; t++)
		writes += state[t].s_next;
	printf("# %u kills, %" PRIu64 " writes survived\n", kills, writes);
	T_EQ(mpool_destroy(path, NULL), 0);
}

int main(void)
{
	t_seed();
	T_RUN(every_kill_leaves_a_prefix);
	return t_done();
}
