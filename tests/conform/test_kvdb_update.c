/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Atomic read-modify-write: what the callback is given and what its answers do;
 * that concurrent updates lose none, while memtables switch and runs merge,
 * beside deletes of many keys, and when the process is killed.
 */
#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#include "kvdb_help.h"

#define POOL	(256 * MIB)
#define THREADS	16u

static void end(void)
{
	kh_close();
	th_clean();
}

struct step {
	const char *want_old;	/* NULL: absent */
	const char *val;
	int answer;
	unsigned calls;
};

static int step_fn(void *arg, const void *old, size_t olen, const void **val, size_t *vlen)
{
	struct step *s = arg;

	s->calls++;
	if (!!old != !!s->want_old || (old && (olen != strlen(s->want_old) ||
					       memcmp(old, s->want_old, olen))))
		return -EDOM;
	*val = s->val;
	*vlen = s->val ? strlen(s->val) : 0;
	return s->answer;
}

static int step(struct kvdb_kvs *k, const char *old, int answer, const char *val)
{
	struct step s = { old, val, answer, 0 };

	return kvdb_update(k, "key", 3, step_fn, &s);
}

static void answers_do_what_they_say(void)
{
	static char big[5000];
	struct kvdb_kvs *k;
	unsigned round;

	memset(big, 'b', sizeof(big) - 1);
	kh_fresh(POOL, 0);
	k = kh_kvs("s");
	for (round = 0; round < 3; round++) {
		T_EQ(step(k, NULL, KVDB_UPDATE_KEEP, NULL), 0);
		T_OK(kh_absent(k, "key", 3));
		T_EQ(step(k, NULL, KVDB_UPDATE_DEL, NULL), 0);
		T_EQ(step(k, NULL, KVDB_UPDATE_PUT, big), 0);
		if (round)
			T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
		T_EQ(step(k, big, KVDB_UPDATE_KEEP, "not used"), 0);
		T_OK(kh_holds_str(k, "key", big));
		T_EQ(step(k, big, KVDB_UPDATE_PUT, ""), 0);
		T_EQ(step(k, "", KVDB_UPDATE_PUT, "x"), 0);
		if (round)
			T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
		T_EQ(step(k, "x", -EPERM, NULL), -EPERM);
		T_EQ(step(k, "x", 7, NULL), -EINVAL);
		T_OK(kh_holds_str(k, "key", "x"));
		if (round == 2)
			T_EQ(kvdb_prefix_del(k, "ke", 2), 0);
		else
			T_EQ(step(k, "x", KVDB_UPDATE_DEL, NULL), 0);
		T_OK(kh_absent(k, "key", 3));
	}
	T_EQ(kvdb_update(k, NULL, 0, step_fn, NULL), -EINVAL);
	T_EQ(kvdb_put_ttl(k, "key", 3, "x", 1, 3600), 0);
	T_EQ(step(k, "x", KVDB_UPDATE_PUT, "stays"), 0);
	T_OK(kh_holds_str(k, "key", "stays"));
	end();
}

static struct kvdb_kvs *inner;

/* Another write of the key, and a switch of memtables, between reading and writing. */
static int overtaken(void *arg, const void *old, size_t olen, const void **val, size_t *vlen)
{
	unsigned *calls = arg;

	if (!(*calls)++) {
		T_OK(!old);
		T_EQ(kh_put_str(inner, "key", "x"), 0);
		T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	} else {
		T_OK(old && olen == 1 && !memcmp(old, "x", 1));
	}
	*val = "xy";
	*vlen = 2;
	return KVDB_UPDATE_PUT;
}

/* Whatever it gives up with: what the library itself uses inside is no exception. */
static int give_up(void *arg, const void *old, size_t olen, const void **val, size_t *vlen)
{
	struct step *s = arg;

	(void)old;
	(void)olen;
	(void)val;
	(void)vlen;
	return s->calls++ < 3 ? s->answer : KVDB_UPDATE_KEEP;
}

static void a_callback_that_gives_up_is_called_once(void)
{
	struct kvdb_kvs *k;

	kh_fresh(POOL, 0);
	k = kh_kvs("s");
	for (int err = 1; err < 134; err++) {
		struct step s = { .answer = -err };

		T_EQ(kvdb_update(k, "key", 3, give_up, &s), -err);
		T_EQ(s.calls, 1);
	}
	end();
}

static void an_update_notices_a_new_memtable(void)
{
	unsigned calls = 0;

	kh_fresh(POOL, 0);
	inner = kh_kvs("s");
	T_EQ(kvdb_update(inner, "key", 3, overtaken, &calls), 0);
	T_EQ(calls, 2);
	T_OK(kh_holds_str(inner, "key", "xy"));
	end();
}

static struct kvdb_bulk *load;

/* A bulk load that was open before appears between reading and writing. */
static int outloaded(void *arg, const void *old, size_t olen, const void **val, size_t *vlen)
{
	unsigned *calls = arg;

	if (!(*calls)++) {
		T_OK(!old);
		T_EQ(kvdb_bulk_finish(load), 0);
	} else {
		T_OK(old && olen == 6 && !memcmp(old, "loaded", 6));
	}
	*val = "xy";
	*vlen = 2;
	return KVDB_UPDATE_PUT;
}

static void an_update_notices_what_was_loaded(void)
{
	unsigned calls = 0;

	kh_fresh(POOL, 0);
	inner = kh_kvs("s");
	T_EQ(kh_put_str(inner, "other", "x"), 0);
	T_EQ(kvdb_bulk_open(inner, 0, &load), 0);
	T_EQ(kvdb_bulk_add(load, "key", 3, "loaded", 6), 0);
	T_EQ(kvdb_update(inner, "key", 3, outloaded, &calls), 0);
	T_EQ(calls, 2);
	T_OK(kh_holds_str(inner, "key", "xy"));
	end();
}

/* ---- counters -------------------------------------------------------------------- */

static struct kvdb_kvs *thr_kvs;
static _Atomic(int) thr_stop;
static _Atomic(unsigned) thr_bad;
static _Atomic(uint64_t) *acked;	/* per thread */

static int add_one(void *arg, const void *old, size_t olen, const void **val, size_t *vlen)
{
	uint64_t *n = arg;

	*n = 0;
	if (old && olen != 8)
		return -EDOM;
	if (old)
		memcpy(n, old, 8);
	++*n;
	*val = n;
	*vlen = 8;
	return KVDB_UPDATE_PUT;
}

static uint64_t counter(struct kvdb_kvs *k, const char *key)
{
	uint64_t n = 0;
	size_t len;
	int rc = kvdb_get(k, key, strlen(key), &n, 8, &len);

	return rc ? 0 : n;
}

static void *adder(void *arg)
{
	uint64_t n;

	while (!thr_stop) {
		if (kvdb_update(thr_kvs, "counter", 7, add_one, &n))
			thr_bad++;
		acked[(uintptr_t)arg]++;
	}
	return NULL;
}

static uint64_t total(void)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < THREADS; i++)
		n += acked[i];
	return n;
}

static void run_adders(pthread_t *t)
{
	thr_stop = 0;
	thr_bad = 0;
	for (uintptr_t i = 0; i < THREADS; i++)
		T_EQ(pthread_create(&t[i], NULL, adder, (void *)i), 0);
}

static void stop_adders(pthread_t *t)
{
	thr_stop = 1;
	for (unsigned i = 0; i < THREADS; i++)
		T_EQ(pthread_join(t[i], NULL), 0);
	T_EQ(thr_bad, 0);
}

static void nap(unsigned ms)
{
	struct timespec ts = { .tv_nsec = ms * 1000000l };

	nanosleep(&ts, NULL);
}

static void concurrent_increments_lose_none(void)
{
	static _Atomic(uint64_t) mine[THREADS];
	pthread_t t[THREADS];
	unsigned i;

	memset(mine, 0, sizeof(mine));
	acked = mine;
	kh_fresh(POOL, 0);
	thr_kvs = kh_kvs("s");
	run_adders(t);
	for (i = 0; i < (getenv("TEST_SHORT") ? 20u : 60u); i++) {
		nap(20);
		/* what was read lies in another memtable, or in a run, when it is written */
		T_EQ(kvdb_drain(kh_db, i % 4 ? KVDB_WAIT_FLUSH :
				KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	}
	stop_adders(t);
	T_OK(total() > 1000);
	T_EQ(counter(thr_kvs, "counter"), total());
	kh_close();
	kh_open();
	T_EQ(counter(kh_kvs("s"), "counter"), total());
	end();
}

/* A value that a delete took does not come back through an update that had read it. */
static void an_update_does_not_undo_a_delete(void)
{
	static _Atomic(uint64_t) mine[THREADS];
	uint64_t before, n;
	pthread_t t[THREADS];
	unsigned i;

	memset(mine, 0, sizeof(mine));
	acked = mine;
	kh_fresh(POOL, 0);
	thr_kvs = kh_kvs("s");
	run_adders(t);
	for (i = 0; i < (getenv("TEST_SHORT") ? 100u : 400u); i++) {
		nap(3);
		before = total();
		T_EQ(i % 2 ? kvdb_range_del(thr_kvs, "c", 1, "d", 1) :
			     kvdb_prefix_del(thr_kvs, "count", 5), 0);
		n = counter(thr_kvs, "counter");
		/* each thread may have one on its way that is not counted yet */
		T_OK(n <= total() - before + THREADS);
	}
	stop_adders(t);
	end();
}

static void killed_process_keeps_what_it_acknowledged(void)
{
	uint64_t sum, n;
	unsigned round;
	pid_t pid;
	int status;

	acked = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	T_OK(acked != MAP_FAILED);
	kh_make(POOL, 0);
	for (round = 0; round < 3; round++) {
		fflush(stdout);
		pid = fork();
		T_OK(pid >= 0);
		if (!pid) {
			struct kvdb_opts o = kh_opts();
			pthread_t t[THREADS];

			o.commit = 1;
			th_again();
			if (kvdb_open(th_pool, &o, &kh_db))
				_exit(1);
			if (kvdb_kvs_open(kh_db, "s", &thr_kvs) &&
			    (kvdb_kvs_create(kh_db, "s", NULL) ||
			     kvdb_kvs_open(kh_db, "s", &thr_kvs)))
				_exit(2);
			for (uintptr_t i = 0; i < THREADS; i++)
				pthread_create(&t[i], NULL, adder, (void *)i);
			for (;;)
				pause();
		}
		for (n = total(), sum = 0; sum < 400; sum++) {
			nap(10);
			if (total() > n + 200)
				break;
		}
		kill(pid, SIGKILL);
		T_EQ(waitpid(pid, &status, 0), pid);
		T_OK(WIFSIGNALED(status));
		sum = total();
		kh_open();
		n = counter(kh_kvs("s"), "counter");
		/* and perhaps one of each thread that it was not told of */
		T_OK(n >= sum && n <= sum + THREADS);
		acked[0] += n - sum;
		kh_close();
	}
	munmap((void *)acked, 4096);
	th_clean();
}

int main(void)
{
	KH_RUN_MODES(answers_do_what_they_say);
	T_RUN(a_callback_that_gives_up_is_called_once);
	T_RUN(an_update_notices_a_new_memtable);
	T_RUN(an_update_notices_what_was_loaded);
	T_RUN(concurrent_increments_lose_none);
	T_RUN(an_update_does_not_undo_a_delete);
	T_RUN(killed_process_keeps_what_it_acknowledged);
	return t_done();
}
