/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Views from inside (T9): when they expire, begin again with newer trees, and
 * what they cost a step of the keeper.
 */
#include <pthread.h>
#include <unistd.h>

#include "harness.h"
#include "kv_clock.h"
#include "mem/memtable.h"
#include "txn/txn.h"

static char dir[256];
static struct kvdb *db;

static void fresh(void)
{
	struct mpool_dev_spec dev = { .mclass = MPOOL_CAPACITY, .size = 64u << 20 };
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	struct kvdb_opts o = KVDB_OPTS_INIT;
	const char *tmp = getenv("TMPDIR");

	snprintf(dir, sizeof(dir), "%s/kv_view.XXXXXX", tmp ? tmp : "/tmp");
	T_OK(mkdtemp(dir));
	co.devs = &dev;
	co.ndevs = 1;
	T_EQ(mpool_create(dir, &co), 0);
	T_EQ(kvdb_create(dir, NULL), 0);
	o.flags = KVDB_MANUAL;
	o.cache_bytes = 64u << 20;
	o.clock = &test_clock;
	T_EQ(kvdb_open(dir, &o, &db), 0);
}

static void end(void)
{
	T_EQ(kvdb_close(db), 0);
	T_EQ(mpool_destroy(dir, NULL), 0);
	rmdir(dir);
}

static struct kvdb_kvs *store(void)
{
	struct kvdb_kvs *k;

	T_EQ(kvdb_kvs_create(db, "a", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "a", &k), 0);
	return k;
}

/* A lock that goes to the thread that waits for it, also when its last owner wants it again. */
static void lock_hands_over(pthread_mutex_t *lock)
{
	pthread_mutexattr_t ma;

	pthread_mutexattr_init(&ma);
	T_EQ(pthread_mutexattr_setprotocol(&ma, PTHREAD_PRIO_INHERIT), 0);
	pthread_mutex_destroy(lock);
	T_EQ(pthread_mutex_init(lock, &ma), 0);
	pthread_mutexattr_destroy(&ma);
}

static void *begin_view(void *arg)
{
	if (kv_view_begin(db, arg, false))
		abort();
	return NULL;
}

static void *evict_all(void *arg)
{
	kv_views_step(db);
	return arg;
}

/* T9: it expires in the list, and then has to begin again with newer trees. */
static void a_view_that_begins_again_is_live(void)
{
	struct kv_view old = { 0 }, vi = { 0 };
	pthread_mutex_t *lock;
	pthread_t beginner, evictor;

	fresh();
	lock = &db->d_trees.te_open_views->ov_lock;
	lock_hands_over(lock);
	T_EQ(kv_view_begin(db, &old, false), 0);
	db->d_mode.md_view_max_age_ms = 0;	/* all are too old */
	pthread_mutex_lock(lock);
	T_EQ(pthread_create(&beginner, NULL, begin_view, &vi), 0);
	while (!atomic_load(&vi.vi_forest))
		usleep(1000);
	usleep(50000);
	T_EQ(pthread_create(&evictor, NULL, evict_all, NULL), 0);
	usleep(50000);
	kv_forest_stale(db);
	pthread_mutex_unlock(lock);
	pthread_join(beginner, NULL);
	pthread_join(evictor, NULL);
	T_OK(!atomic_load(&old.vi_forest));
	/* it is live with the newer trees, unless it has expired again */
	T_OK(!atomic_load(&vi.vi_forest) ||
	     atomic_load(&vi.vi_forest)->fo_gen == atomic_load(&db->d_trees.te_gen));
	kv_view_end(db, &vi);
	kv_view_end(db, &old);
	end();
}

/* T9: open snapshots cost a step nothing; those of one moment are one forest. */
static void a_step_looks_at_no_view_that_is_young_and_pins_nothing(void)
{
	enum { N = 1000 };
	static struct kv_view vi[N];
	struct kv_open_views *ov;
	uint64_t oldest, seq;

	fresh();
	ov = db->d_trees.te_open_views;
	for (unsigned i = 0; i < N; i++)
		T_EQ(kv_view_begin(db, &vi[i], i == N / 2), 0);
	T_OK(ov->ov_forests && !ov->ov_forests->fo_older);
	T_EQ(ov->ov_forests->fo_views, N);
	kv_views_step(db);
	T_EQ(ov->ov_marks, 0);
	/* the oldest that writes is known, also when it was not the oldest of all */
	seq = vi[N / 2].vi_seq;
	oldest = kv_views_oldest(db);
	T_EQ(oldest, seq);
	kv_view_end(db, &vi[N / 2]);
	T_EQ(kv_views_oldest(db), UINT64_MAX);
	for (unsigned i = 0; i < N; i++)
		if (i != N / 2)
			kv_view_end(db, &vi[i]);
	T_OK(!ov->ov_forests);
	T_EQ(atomic_load(&ov->ov_n), 0);
	end();
}

/* T9: the thread that looks for old views read the clock before this one began. */
static void a_view_that_began_after_the_clock_was_read_is_young(void)
{
	struct kvdb_kvs *k;
	struct kvdb_txn *t;

	fresh();
	k = store();
	T_EQ(kvdb_txn_begin(db, 0, &t), 0);
	T_EQ(kvdb_txn_put(t, k, "k", 1, "v", 1), 0);
	now_ns -= 1000;
	kv_views_step(db);
	now_ns += 1000;
	T_EQ(kvdb_txn_commit(t, 0, NULL), 0);
	end();
}

int main(void)
{
	T_RUN(a_view_that_begins_again_is_live);
	T_RUN(a_step_looks_at_no_view_that_is_young_and_pins_nothing);
	T_RUN(a_view_that_began_after_the_clock_was_read_is_young);
	return t_done();
}
