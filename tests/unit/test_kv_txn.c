/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Committers that stop at every step of a commit while epochs end, memtables
 * switch, views open, others read and write, and the process dies (T1 to T8).
 * Each transaction writes to two stores, one value in the value log: whatever
 * happens, all of it is there or nothing.
 */
#include "db/db.h"
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
#include "mem/tomb.h"
#include "txn/txn.h"
#include "background/work.h"

static char dir[256];
static struct kvdb *db;
static struct kvdb_kvs *ka, *kb;
static char big[3000];

static struct kvdb_kvs *store(const char *name)
{
	struct kvdb_kvs *k;

	if (kvdb_kvs_open(db, name, &k)) {
		T_EQ(kvdb_kvs_create(db, name, NULL), 0);
		T_EQ(kvdb_kvs_open(db, name, &k), 0);
	}
	return k;
}

static void open_db(void)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;

	o.flags = KVDB_MANUAL;
	o.interval_ms = 100;
	o.logs = 2;
	o.cache_bytes = 64u << 20;
	o.clock = &test_clock;
	o.segment_bytes = 256u << 10;
	T_EQ(kvdb_open(dir, &o, &db), 0);
	ka = store("a");
	kb = store("b");
}

static void make_db(void)
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

static void fresh(void)
{
	make_db();
	open_db();
}

static uint64_t damage(void)
{
	uint64_t n = 1;

	T_EQ(kvdb_verify(dir, NULL, MPOOL_VERIFY_DATA, NULL, NULL, &n), 0);
	return n;
}

static void end(void)
{
	T_EQ(kvdb_close(db), 0);
	T_EQ(damage(), 0);
	T_EQ(mpool_destroy(dir, NULL), 0);
	rmdir(dir);
}

static void put(struct kvdb_kvs *k, const char *key, const char *val)
{
	T_EQ(kvdb_put(k, key, strlen(key), val, strlen(val)), 0);
}

static int holds(struct kvdb_kvs *k, const char *key, const char *val, size_t vlen)
{
	static char buf[4096];
	size_t len = 0;
	int err = kvdb_get(k, key, strlen(key), buf, sizeof(buf), &len);

	return val ? !err && len == vlen && !memcmp(buf, val, len) : err == -ENOENT;
}

static void expect(struct kvdb_kvs *k, const char *key, const char *val)
{
	T_OK(holds(k, key, val, val ? strlen(val) : 0));
}

/* All of the transaction's writes, or what was before. */
static void expect_all(bool is_there)
{
	expect(ka, "x", is_there ? "new" : "old");
	expect(ka, "gone", is_there ? NULL : "old");
	expect(kb, "y", is_there ? "new" : NULL);
	T_OK(holds(kb, "big", is_there ? big : NULL, sizeof(big)));
}

static struct kvdb_txn *begin(unsigned flags)
{
	struct kvdb_txn *t;

	T_EQ(kvdb_txn_begin(db, flags, &t), 0);
	return t;
}

static struct kvdb_txn *write_all(void)
{
	struct kvdb_txn *t = begin(0);

	T_EQ(kvdb_txn_put(t, ka, "x", 1, "new", 3), 0);
	T_EQ(kvdb_txn_del(t, ka, "gone", 4), 0);
	T_EQ(kvdb_txn_put(t, kb, "y", 1, "new", 3), 0);
	T_EQ(kvdb_txn_put(t, kb, "big", 3, big, sizeof(big)), 0);
	return t;
}

static void before(void)
{
	put(ka, "x", "old");
	put(ka, "gone", "old");
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

static void stop_here(struct committer *c, enum stop where)
{
	if (c->where != where || c->attempts)
		return;
	pthread_barrier_wait(&c->stopped);
	pthread_barrier_wait(&c->go);
}

/* What kv_txn_commit() does, with stops in the first attempt. */
static void *committer_main(void *arg)
{
	struct committer *c = arg;
	struct kvdb_txn *t = c->txn;
	struct kv_commit co;
	struct kv_thread *th;
	uint64_t st;
	int err;

	if (kv_commit_prepare(&co, t))
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
static void committer_start(enum stop where)
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
static void committer_end(void)
{
	free(cm.txn->t_slot);
	kvdb_txn_abort(cm.txn);
}

static void committer_go(void)
{
	pthread_barrier_wait(&cm.go);
	pthread_join(cm.thread, NULL);
	committer_end();
}

/* ---- crashes --------------------------------------------------------------------- */

static void stop_and_sync(enum stop where)
{
	uint64_t e;

	committer_start(where);
	put(ka, "after", "2");
	e = atomic_load(&db->d_epoch);
	T_EQ(kvdb_sync(db), 0);		/* does not wait for the committer (R1) */
	T_OK(atomic_load(&db->d_durable) >= e);
}

static void linked(void) { stop_and_sync(AFTER_LINK); }
static void reserved(void) { stop_and_sync(AFTER_RESERVE); }
static void installing(void) { stop_and_sync(AFTER_INSTALL); }
static void prepared(void) { stop_and_sync(AFTER_PREPARED); }
static void stamped(void) { stop_and_sync(AFTER_STAMP); }

static void crash_with(void (*fn)(void), bool is_there)
{
	make_db();
	t_die_in(open_db, fn);
	T_EQ(damage(), 0);
	open_db();
	expect(ka, "after", "2");
	expect_all(is_there);
	end();
}

static void a_commit_without_its_record_is_nothing(void)
{
	crash_with(linked, false);
}

static void an_open_commit_record_is_withdrawn_at_the_tick(void)
{
	crash_with(reserved, false);
}

static void an_installing_commit_is_completed_at_the_tick(void)
{
	crash_with(installing, true);
}

static void a_prepared_commit_is_completed_at_the_tick(void)
{
	crash_with(prepared, true);
}

static void a_stamped_commit_survives(void)
{
	crash_with(stamped, true);
}

/* Whoever saw it before a sync sees it after the crash. */
static void seen_then_sync(void)
{
	committer_start(AFTER_PREPARED);
	expect_all(true);
	T_EQ(kvdb_sync(db), 0);
}

static void what_a_reader_saw_of_a_commit_survives(void)
{
	crash_with(stamped, true);
	make_db();
	t_die_in(open_db, seen_then_sync);
	open_db();
	expect_all(true);
	end();
}

/* ---- what others see ------------------------------------------------------------- */

static void nothing_is_seen_before_prepared(void)
{
	static const enum stop stops[] = { AFTER_LINK, AFTER_RESERVE, AFTER_INSTALL };

	for (unsigned i = 0; i < 3; i++) {
		fresh();
		committer_start(stops[i]);
		expect_all(false);
		committer_go();
		T_EQ(cm.result, 0);
		expect_all(true);
		end();
	}
}

static int view_holds(struct kvdb_txn *t, struct kvdb_kvs *k, const char *key, const char *val)
{
	char buf[16];
	size_t len = 0;
	int err = kvdb_txn_get(t, k, key, strlen(key), buf, sizeof(buf), &len);

	return val ? !err && len == strlen(val) && !memcmp(buf, val, len) : err == -ENOENT;
}

/* T1: a view that is born before the outcome sees nothing of it, whoever helps afterwards. */
static void a_view_sees_all_or_nothing_of_a_prepared_commit(void)
{
	struct kvdb_txn *u, *v;

	for (unsigned i = 0; i < 2; i++) {
		fresh();
		committer_start(AFTER_PREPARED);
		u = begin(KVDB_TXN_RDONLY);
		if (i)
			expect(kb, "y", "new");		/* a helper */
		else
			T_OK(view_holds(u, kb, "y", NULL));	/* the view helps itself */
		T_OK(view_holds(u, ka, "x", "old"));
		T_OK(view_holds(u, kb, "y", NULL));
		v = begin(KVDB_TXN_RDONLY);
		T_OK(view_holds(v, ka, "x", "new"));
		T_OK(view_holds(v, ka, "gone", NULL));
		committer_go();
		T_OK(view_holds(u, ka, "x", "old"));
		T_OK(view_holds(u, ka, "gone", "old"));
		T_OK(view_holds(u, kb, "big", NULL));
		T_OK(view_holds(v, kb, "y", "new"));
		kvdb_txn_abort(u);
		kvdb_txn_abort(v);
		expect_all(true);
		end();
	}
}

static void keys_are_owned_until_the_outcome_is_final(void)
{
	struct kvdb_txn *u;

	fresh();
	committer_start(AFTER_INSTALL);
	T_EQ(kvdb_put(ka, "x", 1, "p", 1), -ECANCELED);
	u = begin(0);
	T_EQ(kvdb_txn_put(u, kb, "y", 1, "u", 1), -ECANCELED);
	kvdb_txn_abort(u);
	committer_go();
	put(ka, "x", "p");
	expect(ka, "x", "p");
	T_EQ(kvdb_sync(db), 0);
	end();
}

/* ---- epochs and memtables in between --------------------------------------------- */

static void a_commit_that_was_withdrawn_is_logged_again(void)
{
	fresh();
	committer_start(AFTER_RESERVE);
	T_EQ(kv_epoch_force(db), 0);
	committer_go();
	T_EQ(cm.result, -EAGAIN);
	T_EQ(cm.attempts, 2);
	expect_all(true);
	T_EQ(kvdb_close(db), 0);
	open_db();
	expect_all(true);
	end();
}

/* The epoch moved on, but nobody withdrew the record: as if the tick stood still there. */
static void a_late_commit_finds_out_by_itself(void)
{
	fresh();
	committer_start(AFTER_RESERVE);
	atomic_fetch_add(&db->d_epoch, 1);
	pthread_barrier_wait(&cm.go);
	while (cm.result == 1)
		usleep(1000);
	T_EQ(cm.result, -EAGAIN);
	atomic_fetch_sub(&db->d_epoch, 1);
	pthread_join(cm.thread, NULL);
	committer_end();
	expect_all(true);
	end();
}

/* R4: nothing of an epoch is installed before the one before it is closed. */
static void a_commit_waits_until_the_epoch_before_is_closed(void)
{
	fresh();
	committer_start(AFTER_RESERVE);
	atomic_fetch_sub(&db->d_closed, 1);
	pthread_barrier_wait(&cm.go);
	usleep(50000);
	T_OK(!atomic_load(&cm.installed));
	atomic_fetch_add(&db->d_closed, 1);
	pthread_join(cm.thread, NULL);
	committer_end();
	T_EQ(cm.result, 0);
	expect_all(true);
	end();
}

static void switch_memtable(struct kvdb_kvs *k)
{
	T_EQ(kv_switch_prepare(db, k), 0);
	T_EQ(kv_epoch_force(db), 0);
}

/* U1: without a flush, which the number of the runs may tell, too. */
static int switched(void *arg, const void *old, size_t olen, const void **val, size_t *vlen)
{
	unsigned *calls = arg;

	if (!(*calls)++) {
		T_EQ(kvdb_put(ka, "u", 1, "x", 1), 0);
		switch_memtable(ka);
	} else {
		T_OK(old && olen == 1 && !memcmp(old, "x", 1));
	}
	*val = "xy";
	*vlen = 2;
	return KVDB_UPDATE_PUT;
}

static void an_update_notices_a_switched_memtable(void)
{
	unsigned calls = 0;

	fresh();
	T_EQ(kvdb_update(ka, "u", 1, switched, &calls), 0);
	T_EQ(calls, 2);
	end();
}

/* T2: the versions of the first attempt must not be committed in a memtable of older epochs. */
static void versions_follow_a_switched_memtable(enum stop where)
{
	struct kv_mt *old;
	struct kv_ent e;

	fresh();
	committer_start(where);
	old = kv_mt_get(kv_mt_active(ka));
	switch_memtable(ka);
	T_OK(kv_mt_active(ka) != old);
	committer_go();
	expect_all(true);
	T_EQ(kv_mt_lookup(old, "x", 1, kv_hash("x", 1), KV_SEQ_NOW, &e), 0);
	T_OK(e.e_vlen == 3 && !memcmp(e.e_val, "old", 3));
	T_EQ(kv_mt_lookup(kv_mt_active(ka), "x", 1, kv_hash("x", 1), KV_SEQ_NOW, &e), 0);
	kv_mt_put(db, old);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	expect_all(true);
	T_EQ(kvdb_close(db), 0);
	open_db();
	expect_all(true);
	end();
}

static void versions_follow_a_memtable_that_is_switched_after_they_were_linked(void)
{
	versions_follow_a_switched_memtable(AFTER_LINK);
}

static void versions_follow_a_memtable_that_is_switched_after_the_reservation(void)
{
	versions_follow_a_switched_memtable(AFTER_RESERVE);
}

/* The iterator of a flush stands on the first attempt's version while it is given up. */
static void a_flush_that_met_an_old_attempt_never_sees_it_committed(void)
{
	struct kv_version *v;
	struct kv_write *w;

	fresh();
	committer_start(AFTER_LINK);
	for (w = cm.txn->t_first; w->w_lock.kl_key[0] != 'x'; w = w->w_next)
		;
	v = w->w_ver;
	T_OK(atomic_load(&v->v_seq) & KV_IN_SLOT);
	switch_memtable(ka);
	switch_memtable(kb);
	committer_go();
	expect_all(true);
	T_EQ(kv_version_stamp(db, v), KV_HIDDEN);
	end();
}

/* The committer goes on, and cannot take its version out: this bucket is locked. */
static int hold_bucket(struct kv_entry *en, void *arg)
{
	struct kv_version *v = arg;
	uint64_t was = atomic_load(&v->v_seq);

	if (en->en_key[0] != 'x')
		return 0;
	pthread_barrier_wait(&cm.go);
	for (unsigned int i = 0; i < 200 && atomic_load(&v->v_seq) == was; i++)
		usleep(1000);
	return atomic_load(&v->v_seq) == was ? 0 : -EBUSY;
}

/* T2: a flush would take what it names later for its own, and half of the transaction. */
static void a_version_in_an_old_memtable_never_names_the_new_slot(void)
{
	struct kv_write *w;
	struct kv_mt *old;

	fresh();
	committer_start(AFTER_LINK);
	for (w = cm.txn->t_first; w->w_lock.kl_key[0] != 'x'; w = w->w_next)
		;
	old = kv_mt_get(kv_mt_active(ka));
	switch_memtable(ka);
	T_EQ(kv_mt_each(old, hold_bucket, w->w_ver), 0);
	pthread_join(cm.thread, NULL);
	committer_end();
	kv_mt_put(db, old);
	expect_all(true);
	end();
}

static void a_commit_is_completed_before_its_memtable_freezes(void)
{
	fresh();
	committer_start(AFTER_INSTALL);
	switch_memtable(ka);
	switch_memtable(kb);
	expect_all(true);
	while (kv_flush_step(db) > 0)
		;
	expect_all(true);
	committer_go();
	expect_all(true);
	T_EQ(kvdb_close(db), 0);
	open_db();
	expect_all(true);
	end();
}

/* ---- a delete of many keys ------------------------------------------------------ */

static void *delete_x(void *arg)
{
	*(int *)arg = kvdb_range_del(ka, "x", 1, "y", 1);
	return NULL;
}

/*
 * H5: a transaction takes the key between the delete's look for owners and its record.
 * It would go by the memtables of before the switch, where the delete is given up.
 */
static void a_range_delete_that_moves_looks_for_owners_again(void)
{
	struct kv_keylock kl = { .kl_key = (const uint8_t *)"x", .kl_klen = 1,
				 .kl_hash = kv_hash("x", 1) };
	struct kvdb_txn *owner;
	pthread_t thread;
	int result = 1;

	fresh();
	before();
	T_EQ(kvdb_sync(db), 0);		/* no log is dirty */
	T_EQ(kvdb_txn_begin(db, 0, &owner), 0);
	kl.kl_txn = owner;
	kl.kl_kvs = ka->k_id;
	T_EQ(kv_switch_prepare(db, ka), 0);
	/* its record waits, as if the epoch before were not closed */
	atomic_fetch_sub(&db->d_closed, 1);
	T_EQ(pthread_create(&thread, NULL, delete_x, &result), 0);
	while (!kv_log_is_dirty(kv_log_at(db->d_logs, db->d_logs->ls_n)) &&
	       !kv_log_is_dirty(kv_log_at(db->d_logs, db->d_logs->ls_n + 1)))
		usleep(1000);
	T_EQ(kv_mt_tombs(kv_mt_active(ka)), 1);
	atomic_fetch_add(&db->d_owners, 1);
	T_EQ(kv_key_lock(db, &kl), 0);
	T_EQ(kv_epoch_force(db), 0);
	pthread_join(thread, NULL);
	T_EQ(result, -ECANCELED);
	expect(ka, "x", "old");
	kv_key_unlock(db, &kl);
	kvdb_txn_abort(owner);
	atomic_fetch_sub(&db->d_owners, 1);
	T_EQ(kvdb_range_del(ka, "x", 1, "y", 1), 0);
	expect(ka, "x", NULL);
	end();
}

/* H1: a reader of the tree that comes must not pass over what is deleted by then. */
static void a_delete_of_many_keys_marks_no_tree_that_is_being_replaced(void)
{
	pthread_t thread;
	int result = 1;

	fresh();
	before();
	/* as somebody who has looked for tombstones and has not published yet */
	pthread_mutex_lock(&ka->k_tree_lock);
	T_EQ(pthread_create(&thread, NULL, delete_x, &result), 0);
	while (!kv_mt_tombs(kv_mt_active(ka)))
		usleep(1000);
	usleep(50000);
	T_OK(holds(ka, "x", "old", 3));
	pthread_mutex_unlock(&ka->k_tree_lock);
	pthread_join(thread, NULL);
	T_EQ(result, 0);
	expect(ka, "x", NULL);
	end();
}

/* A lock whose every unlock is looked at: what it guards is whole by then. */
static _Atomic(pthread_mutex_t *) watched;
static struct kv_tree *tree_seen;
static uint64_t gen_seen;
static unsigned int trees, uncounted;

static void look_at_tree(void)
{
	struct kv_tree *tr = atomic_load(&ka->k_tree);
	uint64_t gen = atomic_load(&db->d_tree_gen);

	trees += tr != tree_seen;
	uncounted += tr != tree_seen && gen == gen_seen;
	tree_seen = tr;
	gen_seen = gen;
}

/* In place of the C library's, for the engine too. */
int pthread_mutex_unlock(pthread_mutex_t *m)
{
	static _Atomic(int (*)(pthread_mutex_t *)) next;

	if (!atomic_load(&next))
		atomic_store(&next, (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, __func__));
	if (m == atomic_load(&watched))
		look_at_tree();
	return atomic_load(&next)(m);
}

/* T5: a view that began with the trees of before would not know what came after them. */
static void a_tree_is_counted_before_its_lock_is_free(void)
{
	fresh();
	look_at_tree();
	trees = uncounted = 0;
	atomic_store(&watched, &ka->k_tree_lock);
	T_EQ(kv_tree_edit(ka, NULL, &(struct kv_edit){ .ed_kvs = ka->k_id }), 0);
	atomic_store(&watched, NULL);
	T_EQ(trees, 1);
	T_EQ(uncounted, 0);
	end();
}

/* A tree was counted; who did it loses the processor before he drops the cached forest. */
static void *drop_late(void *arg)
{
	usleep(200000);
	atomic_store((_Atomic(bool) *)arg, true);
	kv_forest_stale(db);
	return NULL;
}

static void no_view_waits_for_who_publishes(void)
{
	_Atomic(bool) was_late = false;
	struct kvdb_txn *t;
	pthread_t thread;

	fresh();
	T_EQ(kvdb_txn_begin(db, 0, &t), 0);
	kvdb_txn_abort(t);
	atomic_fetch_add(&db->d_tree_gen, 1);
	T_EQ(pthread_create(&thread, NULL, drop_late, &was_late), 0);
	T_EQ(kvdb_txn_begin(db, 0, &t), 0);
	T_OK(!was_late);
	pthread_join(thread, NULL);
	kvdb_txn_abort(t);
	end();
}

/* ---- views ------------------------------------------------------------------------- */

static int sees_y(struct kvdb_txn *t)
{
	char buf[8];
	size_t len;

	return kvdb_txn_get(t, kb, "y", 1, buf, sizeof(buf), &len);
}

static void *drop_b(void *arg)
{
	*(int *)arg = kvdb_kvs_drop(db, "b");
	return NULL;
}

static bool b_is_going(void)
{
	bool is;

	pthread_mutex_lock(&db->d_kvs_lock);
	is = kb->k_dropped;
	pthread_mutex_unlock(&db->d_kvs_lock);
	return is;
}

/* T5: whoever begins while it waits for a merge has the store, as has who begins later. */
static void a_drop_that_fails_is_seen_by_nobody(void)
{
	struct kvdb_txn *t;
	pthread_t thread;
	int result = 1;

	fresh();
	put(kb, "y", "old");
	atomic_fetch_add(&kb->k_holds, 1);
	db->d_mdc->m_buf.mb_err = -ENOMEM;	/* its record finds no memory */
	T_EQ(pthread_create(&thread, NULL, drop_b, &result), 0);
	while (!b_is_going())
		usleep(1000);
	kv_forest_stale(db);	/* a tree was published: the next view makes a forest */
	t = begin(KVDB_TXN_RDONLY);
	T_EQ(sees_y(t), 0);
	atomic_fetch_sub(&kb->k_holds, 1);
	pthread_join(thread, NULL);
	T_EQ(result, -ENOMEM);
	T_EQ(kv_fault(db), 0);
	T_EQ(sees_y(t), 0);
	kvdb_txn_abort(t);
	t = begin(KVDB_TXN_RDONLY);
	T_EQ(sees_y(t), 0);
	kvdb_txn_abort(t);
	end();
}

/* Nobody flushes what is in its memtable, which lives as long as the view does. */
static void a_view_of_a_dropped_store_stops_no_writer(void)
{
	struct kvdb_txn *t;
	char key[16];

	fresh();
	put(kb, "y", "old");
	t = begin(KVDB_TXN_RDONLY);
	T_EQ(kvdb_kvs_drop(db, "b"), 0);
	atomic_store(&db->d_budget.b_log_bytes, 1u << 20);
	for (unsigned int i = 0; i < 600; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		T_EQ(kvdb_put(ka, key, strlen(key), big, sizeof(big)), 0);
	}
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	kv_pressure(db);
	T_OK(!atomic_load(&db->d_flusher->fl_stall));
	T_EQ(sees_y(t), 0);
	kvdb_txn_abort(t);
	end();
}

/* ---- horizons -------------------------------------------------------------------- */

static void flush_store(struct kvdb_kvs *k)
{
	switch_memtable(k);
	T_EQ(kv_flush_step(db), 1);
}

/* One store of the transaction is flushed and goes on; the other still needs the record. */
static void one_store_ahead(void)
{
	before();
	T_EQ(kvdb_txn_commit(write_all(), 0, NULL), 0);
	flush_store(ka);
	T_EQ(kvdb_del(ka, "x", 1), 0);
	put(ka, "other", "1");
	flush_store(ka);
	while (kv_merge_step(db, ka) > 0)
		;
	T_EQ(kvdb_sync(db), 0);
}

static void each_store_has_its_own_horizon(void)
{
	make_db();
	t_die_in(open_db, one_store_ahead);
	for (unsigned i = 0; i < 2; i++) {
		open_db();
		expect(ka, "x", NULL);
		expect(ka, "gone", NULL);
		expect(ka, "other", "1");
		expect(kb, "y", "new");
		T_OK(holds(kb, "big", big, sizeof(big)));
		if (!i)
			T_EQ(kvdb_close(db), 0);
	}
	end();
}

/* ---- segments of values ---------------------------------------------------------- */

/* Everything else that lay beside the value dies, its epochs are below every horizon. */
static void churn(void)
{
	char key[16];

	for (unsigned r = 0; r < 3; r++) {
		for (unsigned i = 0; i < 300; i++) {
			snprintf(key, sizeof(key), "c%u", i);
			T_EQ(kvdb_put(ka, key, strlen(key), big, sizeof(big)), 0);
		}
		T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	}
	for (unsigned i = 0; i < 300; i++) {
		snprintf(key, sizeof(key), "c%u", i);
		T_EQ(kvdb_del(ka, key, strlen(key)), 0);
	}
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
}

static void long_open(void)
{
	struct kvdb_txn *t;

	before();
	t = write_all();
	churn();
	T_EQ(kvdb_txn_commit(t, 0, NULL), 0);
	for (unsigned i = 0; i < 5; i++)
		kv_retire_barrier();
	for (unsigned i = 0; i < 50; i++)
		T_OK(kv_segs_step(db) >= 0);
	expect_all(true);
	churn();		/* flushes: now a run holds it */
	expect_all(true);
	T_EQ(kvdb_sync(db), 0);
}

static uint64_t *value_seg;	/* told by a child */

static void the_record_alone(void)
{
	struct kvdb_txn *t;

	before();
	t = write_all();
	T_EQ(t->t_nseg, 1);
	if (value_seg)
		*value_seg = t->t_seg[0]->sg_id;
	churn();
	T_EQ(kvdb_txn_commit(t, 0, NULL), 0);
	T_EQ(kvdb_sync(db), 0);
	/* what could be freed is freed: the view held the trees of its birth */
	for (unsigned i = 0; i < 5; i++)
		kv_retire_barrier();
	for (unsigned i = 0; i < 50; i++)
		T_OK(kv_segs_step(db) >= 0);
}

static void values_stay_while_a_transaction_is_open_over_flushes(void)
{
	make_db();
	t_die_in(open_db, long_open);
	open_db();
	expect_all(true);
	end();
}

static void values_older_than_every_horizon_come_back_with_the_record(void)
{
	make_db();
	t_die_in(open_db, the_record_alone);
	T_EQ(damage(), 0);
	open_db();
	expect_all(true);
	churn();
	expect_all(true);
	end();
}

#define PINS 512u

static struct pinning {
	struct kvdb_txn *txn;
	struct kv_slot *slot;		/* of the thread that pins */
	_Atomic(unsigned int) step;	/* 1: stands at the pin, 2: may go on */
	uint64_t slot_state;
	int result;
} pn;

/* The first pin of a transaction hits memory that nobody may write to: its thread stops. */
static void on_pin(int sig)
{
	static const struct timespec ts = { .tv_nsec = 1000000 };

	(void)sig;
	pn.slot_state = atomic_load(&pn.slot->sl_state) & KV_SLOT_MASK;
	atomic_store(&pn.step, 1);
	while (atomic_load(&pn.step) != 2)
		nanosleep(&ts, NULL);
	if (mprotect(pn.txn->t_seg, 4096, PROT_READ | PROT_WRITE))
		abort();
}

static void *pin_main(void *arg)
{
	pn.slot = &kv_tctx(db)->tc_slot;
	pn.result = kvdb_txn_put(pn.txn, kb, "big", 3, big, sizeof(big));
	return arg;
}

/* T8: before its record counts, so that the segment is never without a holder. */
static void a_value_holds_its_segment_before_its_epoch_can_end(void)
{
	struct sigaction sa = { .sa_handler = on_pin }, was;
	struct kv_seg **page;
	pthread_t thread;

	fresh();
	before();
	page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	T_OK(page != MAP_FAILED);
	pn = (struct pinning){ .txn = begin(0) };
	pn.txn->t_seg = page;
	pn.txn->t_segcap = PINS;
	sigaction(SIGSEGV, &sa, &was);
	T_EQ(pthread_create(&thread, NULL, pin_main, NULL), 0);
	while (!atomic_load(&pn.step))
		usleep(1000);
	T_EQ(kv_epoch_force(db), 0);
	atomic_store(&pn.step, 2);
	pthread_join(thread, NULL);
	sigaction(SIGSEGV, &was, NULL);
	T_EQ(pn.slot_state, KV_SLOT_OPEN);
	T_EQ(pn.result, 0);
	T_OK(pn.txn->t_nseg >= 1);
	pn.txn->t_seg = malloc(PINS * sizeof(*page));
	memcpy(pn.txn->t_seg, page, PINS * sizeof(*page));
	munmap(page, 4096);
	/* the record that was withdrawn is logged again */
	T_EQ(kvdb_txn_commit(pn.txn, KVDB_TXN_DURABLE, NULL), 0);
	T_OK(holds(kb, "big", big, sizeof(big)));
	end();
}

static void a_commit_record_whose_value_is_gone_fails_the_open(void)
{
	struct mpool *mp;
	struct kvdb *d;

	value_seg = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	T_OK(value_seg != MAP_FAILED);
	make_db();
	t_die_in(open_db, the_record_alone);
	T_EQ(mpool_open(dir, NULL, &mp), 0);
	T_EQ(kv_objs_delete(mp, value_seg, 1), 0);
	T_EQ(mpool_close(mp), 0);
	T_EQ(kvdb_open(dir, NULL, &d), -EUCLEAN);
	T_STREQ(kvdb_error_detail()->id, "MP0961");
	T_OK(strstr(kvdb_error_detail()->text, "commit record"));
	T_EQ(mpool_destroy(dir, NULL), 0);
	rmdir(dir);
}

struct undoing {
	struct kv_commit co;
	pthread_t thread;
	struct kv_limbo limbo;
	_Atomic(bool) is_freed, was_freed;
};

static void *undo(void *arg)
{
	kv_commit_undo(arg);
	return NULL;
}

static void freed(void *arg)
{
	atomic_store((_Atomic(bool) *)arg, true);
}

/* Its version is to be taken out, and this bucket is locked: meanwhile nothing is freed. */
static int undo_at_a_locked_bucket(struct kv_entry *en, void *arg)
{
	struct undoing *un = arg;

	if (en->en_key[0] != 'x')
		return 0;
	T_EQ(pthread_create(&un->thread, NULL, undo, &un->co), 0);
	while (atomic_load(&un->co.co_txn->t_slot->ts_state) != KV_TS_ABORTED)
		usleep(1000);
	usleep(20000);
	kv_retire(&un->limbo, freed, &un->is_freed);
	for (unsigned int i = 0; i < 4; i++)
		kv_reclaim();
	un->was_freed = un->is_freed;
	return 0;
}

/* The table of a memtable that grows is freed when those who look in it have left. */
static void a_commit_that_fails_looks_in_no_table_that_was_freed(void)
{
	struct undoing un = { 0 };
	struct kv_thread *th;
	struct kvdb_txn *t;

	fresh();
	before();
	t = write_all();
	T_EQ(kv_commit_prepare(&un.co, t), 0);
	th = kv_enter();
	T_EQ(kv_commit_link(&un.co), 0);
	kv_exit(th);
	T_EQ(kv_mt_each(kv_mt_active(ka), undo_at_a_locked_bucket, &un), 0);
	pthread_join(un.thread, NULL);
	T_OK(!un.was_freed);
	while (!un.is_freed)
		kv_reclaim();
	expect_all(false);
	free(un.co.co_buf);
	free(t->t_slot);
	kvdb_txn_abort(t);
	end();
}

static void values_in_too_many_segments_end_the_transaction(void)
{
	static char huge[1 << 20];
	struct kvdb_txn_info in;
	struct kvdb_txn *t;
	char key[16];
	int err = 0;

	fresh();
	t = begin(0);
	for (unsigned i = 0; !err && i < 200; i++) {
		snprintf(key, sizeof(key), "h%u", i);
		err = kvdb_txn_put(t, ka, key, strlen(key), huge, sizeof(huge));
	}
	T_EQ(err, -ESTALE);
	T_STREQ(kvdb_error_detail()->id, "MP0924");
	T_OK(t->t_seg_bytes < db->d_budget.b_log_bytes);
	T_OK(!kvdb_txn_info(t, &in) && in.state == KVDB_TXN_LOG_FULL);
	T_EQ(kvdb_txn_commit(t, 0, NULL), -ESTALE);
	expect(ka, "h0", NULL);
	put(ka, "h0", "free");
	end();
}

struct key_waiter {
	bool is_for_many;
	int err;
	long sleeps;
	pthread_t thread;
};

static bool covers_x(const void *arg, const void *key, size_t klen)
{
	(void)arg;
	return klen == 1 && *(const char *)key == 'x';
}

static void *wait_for_x(void *arg)
{
	struct key_waiter *kw = arg;
	struct rusage ru;
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += 60;
	kw->err = kw->is_for_many ? kv_keys_wait(ka, covers_x, NULL, &until) :
				    kv_key_wait(ka, "x", 1, kv_hash("x", 1), &until);
	getrusage(RUSAGE_THREAD, &ru);
	kw->sleeps = ru.ru_nvcsw;
	return NULL;
}

/* Of another group than x. */
static char other_key(void)
{
	char key = 'a';

	while (kv_key_group(kv_hash(&key, 1)) == kv_key_group(kv_hash("x", 1)))
		key++;
	return key;
}

static void who_waits_for_a_key_sleeps_while_others_come_and_go(void)
{
	struct key_waiter kw[2] = { { .is_for_many = false }, { .is_for_many = true } };
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct kvdb_txn *t;
	char other = other_key();

	make_db();
	o.cache_bytes = 64u << 20;
	T_EQ(kvdb_open(dir, &o, &db), 0);
	ka = store("a");
	t = begin(0);
	T_EQ(kvdb_txn_put(t, ka, "x", 1, "v", 1), 0);
	/* whatever it takes later, it remembers who waits for the first */
	for (char key = 'A'; key <= 'Z'; key++)
		T_EQ(kvdb_txn_put(t, ka, &key, 1, "v", 1), 0);
	for (unsigned i = 0; i < 2; i++)
		T_EQ(pthread_create(&kw[i].thread, NULL, wait_for_x, &kw[i]), 0);
	for (unsigned i = 0; i < 100; i++) {
		struct kvdb_txn *u = begin(0);

		T_EQ(kvdb_txn_put(u, ka, &other, 1, "v", 1), 0);
		kvdb_txn_abort(u);
		usleep(1000);
	}
	T_EQ(kvdb_txn_commit(t, 0, NULL), 0);
	for (unsigned i = 0; i < 2; i++) {
		pthread_join(kw[i].thread, NULL);
		T_EQ(kw[i].err, 0);
	}
	/* one sleep, and some for what a sanitizer or a fault of a page may do */
	T_OK(kw[0].sleeps <= 20);
	end();
}

int main(void)
{
	T_RUN(a_commit_without_its_record_is_nothing);
	T_RUN(an_update_notices_a_switched_memtable);
	T_RUN(an_open_commit_record_is_withdrawn_at_the_tick);
	T_RUN(an_installing_commit_is_completed_at_the_tick);
	T_RUN(a_prepared_commit_is_completed_at_the_tick);
	T_RUN(a_stamped_commit_survives);
	T_RUN(what_a_reader_saw_of_a_commit_survives);
	T_RUN(nothing_is_seen_before_prepared);
	T_RUN(a_view_sees_all_or_nothing_of_a_prepared_commit);
	T_RUN(keys_are_owned_until_the_outcome_is_final);
	T_RUN(a_commit_that_was_withdrawn_is_logged_again);
	T_RUN(a_late_commit_finds_out_by_itself);
	T_RUN(a_commit_waits_until_the_epoch_before_is_closed);
	T_RUN(versions_follow_a_memtable_that_is_switched_after_they_were_linked);
	T_RUN(versions_follow_a_memtable_that_is_switched_after_the_reservation);
	T_RUN(a_flush_that_met_an_old_attempt_never_sees_it_committed);
	T_RUN(a_version_in_an_old_memtable_never_names_the_new_slot);
	T_RUN(a_commit_is_completed_before_its_memtable_freezes);
	T_RUN(a_range_delete_that_moves_looks_for_owners_again);
	T_RUN(a_delete_of_many_keys_marks_no_tree_that_is_being_replaced);
	T_RUN(a_tree_is_counted_before_its_lock_is_free);
	T_RUN(no_view_waits_for_who_publishes);
	T_RUN(a_drop_that_fails_is_seen_by_nobody);
	T_RUN(a_view_of_a_dropped_store_stops_no_writer);
	T_RUN(each_store_has_its_own_horizon);
	T_RUN(values_stay_while_a_transaction_is_open_over_flushes);
	T_RUN(values_older_than_every_horizon_come_back_with_the_record);
	T_RUN(a_value_holds_its_segment_before_its_epoch_can_end);
	T_RUN(a_commit_record_whose_value_is_gone_fails_the_open);
	T_RUN(values_in_too_many_segments_end_the_transaction);
	T_RUN(a_commit_that_fails_looks_in_no_table_that_was_freed);
	T_RUN(who_waits_for_a_key_sleeps_while_others_come_and_go);
	return t_done();
}
