/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* A database with two stores, and committers that stop at every step of a commit. */
#ifndef TESTS_KV_COMMITTER_H
#define TESTS_KV_COMMITTER_H

#include "die.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "log/flush.h"
#include "kv_clock.h"
#include "meta/mdc.h"
#include "mem/memtable.h"
#include "txn/txn.h"
#include "background/work.h"
#include "base/hash.h"
#include "db/thread.h"
#include "seg/seg.h"
#include "tree/tree.h"
#include "meta/upkeep.h"
#include "compact/merge.h"

static char dir[256];
static struct kvdb *db;
static struct kvdb_kvs *ka, *kb;
static char big[3000];
static bool with_parts;		/* write sets are logged in parts, however small */

static inline struct kvdb_kvs *store(const char *name)
{
	struct kvdb_kvs *k;

	if (kvdb_kvs_open(db, name, &k)) {
		T_EQ(kvdb_kvs_create(db, name, NULL), 0);
		T_EQ(kvdb_kvs_open(db, name, &k), 0);
	}
	return k;
}

static inline void open_db(void)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;

	o.flags = KVDB_MANUAL;
	o.interval_ms = 100;
	o.logs = 2;
	o.cache_bytes = 64u << 20;
	o.clock = &test_clock;
	o.segment_bytes = 256u << 10;
	T_EQ(kvdb_open(dir, &o, &db), 0);
	if (with_parts)
		atomic_store(&db->d_txns->tx_record_max, 64);
	ka = store("a");
	kb = store("b");
}

static inline void make_db(void)
{
	struct mpool_dev_spec dev = { .mclass = MPOOL_CAPACITY, .size = 96u << 20 };
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	const char *tmp = getenv("TMPDIR");

	memset(big, 'B', sizeof(big));
	snprintf(dir, sizeof(dir), "%s/kv_txn.XXXXXX", tmp ? tmp : "/tmp");
	T_OK(mkdtemp(dir));
	co.devs = &dev;
	co.ndevs = 1;
	T_EQ(mpool_create(dir, &co), 0);
	T_EQ(kvdb_create(dir, NULL), 0);
}

static inline void fresh(void)
{
	make_db();
	open_db();
}

static inline uint64_t damage(void)
{
	uint64_t n = 1;

	T_EQ(kvdb_verify(dir, NULL, MPOOL_VERIFY_DATA, NULL, NULL, &n), 0);
	return n;
}

static inline void end(void)
{
	T_EQ(kvdb_close(db), 0);
	T_EQ(damage(), 0);
	T_EQ(mpool_destroy(dir, NULL), 0);
	rmdir(dir);
}

static inline void put(struct kvdb_kvs *k, const char *key, const char *val)
{
	T_EQ(kvdb_put(k, key, strlen(key), val, strlen(val)), 0);
}

static inline int holds(struct kvdb_kvs *k, const char *key, const char *val, size_t vlen)
{
	static char buf[4096];
	size_t len = 0;
	int err = kvdb_get(k, key, strlen(key), buf, sizeof(buf), &len);

	return val ? !err && len == vlen && !memcmp(buf, val, len) : err == -ENOENT;
}

static inline void expect(struct kvdb_kvs *k, const char *key, const char *val)
{
	T_OK(holds(k, key, val, val ? strlen(val) : 0));
}

/* All of the transaction's writes, or what was before. */
static inline void expect_all(bool is_there)
{
	expect(ka, "x", is_there ? "new" : "old");
	expect(ka, "gone", is_there ? NULL : "old");
	expect(kb, "y", is_there ? "new" : NULL);
	T_OK(holds(kb, "big", is_there ? big : NULL, sizeof(big)));
	/* its range, and what it put there before and after it */
	expect(ka, "r1", is_there ? NULL : "old");
	expect(ka, "r2", is_there ? "new" : "old");
	expect(ka, "r3", NULL);
	expect(kb, "r1", is_there ? NULL : "old");
}

static inline struct kvdb_txn *begin(unsigned flags)
{
	struct kvdb_txn *t;

	T_EQ(kvdb_txn_begin(db, flags, &t), 0);
	return t;
}

static inline struct kvdb_txn *write_all(void)
{
	struct kvdb_txn *t = begin(0);

	T_EQ(kvdb_txn_put(t, ka, "x", 1, "new", 3), 0);
	T_EQ(kvdb_txn_del(t, ka, "gone", 4), 0);
	T_EQ(kvdb_txn_put(t, kb, "y", 1, "new", 3), 0);
	T_EQ(kvdb_txn_put(t, kb, "big", 3, big, sizeof(big)), 0);
	T_EQ(kvdb_txn_put(t, ka, "r3", 2, "lost", 4), 0);
	T_EQ(kvdb_txn_range_del(t, ka, "r", 1, "s", 1), 0);
	T_EQ(kvdb_txn_put(t, ka, "r2", 2, "new", 3), 0);
	T_EQ(kvdb_txn_prefix_del(t, kb, "r", 1), 0);
	return t;
}

static inline void before(void)
{
	put(ka, "x", "old");
	put(ka, "gone", "old");
	put(ka, "r1", "old");
	put(ka, "r2", "old");
	put(kb, "r1", "old");
}

/* ---- a committer that stops ------------------------------------------------------ */

enum stop { AFTER_LINK, AFTER_RESERVE, AFTER_INSTALL, AFTER_PREPARED, AFTER_STAMP };

static struct committer {
	pthread_t thread;
	pthread_barrier_t stopped, go;
	struct kvdb_txn *txn;
	enum stop where;
	_Atomic(int) result;	/* of kv_commit_install() */
	_Atomic(bool) installed;
	unsigned int attempts;
} cm;

static inline void stop_here(struct committer *c, enum stop where)
{
	if (c->where != where || c->attempts)
		return;
	pthread_barrier_wait(&c->stopped);
	pthread_barrier_wait(&c->go);
}

/* What kv_txn_commit() does, with stops in the first attempt. */
static inline void *committer_main(void *arg)
{
	struct committer *c = arg;
	struct kvdb_txn *t = c->txn;
	struct kv_commit co;
	struct kv_thread *th;
	uint64_t st;
	int err;

	if (kv_txn_parts_log(t) || kv_commit_prepare(&co, t))
		abort();
	do {
		th = kv_enter();
		if (kv_commit_link(&co))
			abort();
		stop_here(c, AFTER_LINK);
		err = kv_commit_reserve(&co);
		if (err) {
			kv_exit(th);
			if (err != -ENOBUFS ||
			    kv_log_prepare(db, kv_log_pick(db, KV_KLOG), false))
				abort();
			err = -EAGAIN;
			continue;
		}
		stop_here(c, AFTER_RESERVE);
		err = kv_commit_install(&co);
		atomic_store(&c->installed, !err);
		if (!c->attempts)
			c->result = err;
		if (!err) {
			stop_here(c, AFTER_INSTALL);
			if (c->where == AFTER_PREPARED) {
				st = KV_TS_ACTIVE;
				atomic_compare_exchange_strong(&t->t_slot->ts_state, &st,
							       KV_TS_PREPARED);
				stop_here(c, AFTER_PREPARED);
			}
			kv_commit_finish(&co);
			stop_here(c, AFTER_STAMP);
		}
		kv_exit(th);
		c->attempts++;
	} while (err == -EAGAIN);
	free(co.co_buf);
	return NULL;
}

/* Returns when the committer stands at its stop. */
static inline void committer_start(enum stop where)
{
	unsigned int i;

	before();
	cm = (struct committer){ .where = where, .result = 1, .txn = write_all() };
	/* the logs must have segments: the steps go round in circles without */
	for (i = 0; i < db->d_logs->ls_n; i++)
		T_EQ(kv_log_prepare(db, kv_log_at(db->d_logs, db->d_logs->ls_n + i), false), 0);
	pthread_barrier_init(&cm.stopped, NULL, 2);
	pthread_barrier_init(&cm.go, NULL, 2);
	T_EQ(pthread_create(&cm.thread, NULL, committer_main, &cm), 0);
	pthread_barrier_wait(&cm.stopped);
}

/* What is left of it: its slot, which no version names any more, keys, view. */
static inline void committer_end(void)
{
	free(cm.txn->t_slot);
	cm.txn->t_slot = NULL;
	kvdb_txn_abort(cm.txn);
}

static inline void committer_go(void)
{
	pthread_barrier_wait(&cm.go);
	pthread_join(cm.thread, NULL);
	committer_end();
}

static inline void switch_memtable(struct kvdb_kvs *k)
{
	T_EQ(kv_switch_prepare(db, k), 0);
	T_EQ(kv_epoch_force(db), 0);
}

/* U1: without a flush, which the number of the runs may tell, too. */

#endif
