/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Committers that stop at every step of a commit while epochs end, memtables
 * switch, views open, others read and write, and the process dies (T1 to T8).
 * Each transaction writes to two stores, one value in the value log: whatever
 * happens, all of it is there or nothing.
 */
#include "kv_active.h"
#include "kv_committer.h"

/* ---- crashes --------------------------------------------------------------------- */

static void stop_and_sync(enum stop where)
{
	uint64_t e;

	committer_start(where);
	put(ka, "after", "2");
	e = atomic_load(&db->d_epochs.ep_open);
	T_EQ(kvdb_sync(db), 0);		/* does not wait for the committer (R1) */
	T_OK(atomic_load(&db->d_epochs.ep_durable) >= e);
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

/* A view that saw it before a sync sees it after the crash. */
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

/* T1: a view that is born before the outcome sees nothing of it, whichever thread helps later. */
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

/* The epoch moved on, but the record is not withdrawn: as if the tick stood still there. */
static void a_late_commit_finds_out_by_itself(void)
{
	fresh();
	committer_start(AFTER_RESERVE);
	atomic_fetch_add(&db->d_epochs.ep_open, 1);
	pthread_barrier_wait(&cm.go);
	while (cm.result == 1)
		usleep(1000);
	T_EQ(cm.result, -EAGAIN);
	atomic_fetch_sub(&db->d_epochs.ep_open, 1);
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
	atomic_fetch_sub(&db->d_epochs.ep_closed, 1);
	pthread_barrier_wait(&cm.go);
	usleep(50000);
	T_OK(!atomic_load(&cm.installed));
	atomic_fetch_add(&db->d_epochs.ep_closed, 1);
	pthread_join(cm.thread, NULL);
	committer_end();
	T_EQ(cm.result, 0);
	expect_all(true);
	end();
}

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
	struct kv_thread *th;
	struct kv_mt *old;
	struct kv_ent e;

	fresh();
	committer_start(where);
	old = kv_mt_get(active_mt(ka));
	switch_memtable(ka);
	T_OK(active_mt(ka) != old);
	committer_go();
	expect_all(true);
	th = kv_enter();
	T_EQ(kv_mt_lookup(old, "x", 1, kv_hash("x", 1), KV_SEQ_NOW, &e), 0);
	T_OK(e.e_vlen == 3 && !memcmp(e.e_val, "old", 3));
	T_EQ(kv_mt_lookup(kv_mt_active(ka), "x", 1, kv_hash("x", 1), KV_SEQ_NOW, &e), 0);
	kv_exit(th);
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
	old = kv_mt_get(active_mt(ka));
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
	atomic_fetch_sub(&db->d_epochs.ep_closed, 1);
	T_EQ(pthread_create(&thread, NULL, delete_x, &result), 0);
	while (!kv_log_is_dirty(kv_log_at(db->d_logs, db->d_logs->ls_n)) &&
	       !kv_log_is_dirty(kv_log_at(db->d_logs, db->d_logs->ls_n + 1)))
		usleep(1000);
	T_EQ(kv_mt_tombs(active_mt(ka)), 1);
	atomic_fetch_add(&db->d_mem.mm_owners, 1);
	T_EQ(kv_key_lock(db, &kl), 0);
	T_EQ(kv_epoch_force(db), 0);
	pthread_join(thread, NULL);
	T_EQ(result, -ECANCELED);
	expect(ka, "x", "old");
	kv_key_unlock(db, &kl);
	kvdb_txn_abort(owner);
	atomic_fetch_sub(&db->d_mem.mm_owners, 1);
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
	/* as a thread that has looked for tombstones and has not published yet */
	pthread_mutex_lock(&ka->k_tree_lock);
	T_EQ(pthread_create(&thread, NULL, delete_x, &result), 0);
	while (!kv_mt_tombs(active_mt(ka)))
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
	uint64_t gen = atomic_load(&db->d_trees.te_gen);

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
	pthread_mutex_lock(&ka->k_edit_lock);
	T_EQ(kv_tree_edit(ka, NULL, &(struct kv_edit){ .ed_kvs = ka->k_id }), 0);
	pthread_mutex_unlock(&ka->k_edit_lock);
	atomic_store(&watched, NULL);
	T_EQ(trees, 1);
	T_EQ(uncounted, 0);
	end();
}

/* A tree was counted; that thread loses the processor before it drops the cached forest. */
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
	atomic_fetch_add(&db->d_trees.te_gen, 1);
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

	pthread_mutex_lock(&db->d_stores.sr_lock);
	is = kb->k_dropped;
	pthread_mutex_unlock(&db->d_stores.sr_lock);
	return is;
}

/* T5: a view that begins while it waits for a merge has the store, as have later ones. */
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

/* What is in its memtable is not flushed; that lives as long as the view does. */
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

/* The table of a memtable that grows is freed when its readers have left. */
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
	T_EQ(kv_mt_each(active_mt(ka), undo_at_a_locked_bucket, &un), 0);
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

struct key_waiter {
	bool is_for_many;
	int err;
	long sleeps;
	pthread_t thread;
};

static const struct kv_trange about_x = {
	.tr_from = (const uint8_t *)"x", .tr_flen = 1, .tr_to = (const uint8_t *)"y", .tr_tlen = 1,
};

static void *wait_for_x(void *arg)
{
	struct key_waiter *kw = arg;
	struct rusage ru;
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += 60;
	kw->err = kw->is_for_many ? kv_range_wait(ka, &about_x, &until) :
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
	/* whatever it takes later, it remembers the waiters for the first */
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
	T_RUN(a_commit_that_fails_looks_in_no_table_that_was_freed);
	T_RUN(who_waits_for_a_key_sleeps_while_others_come_and_go);
	return t_done();
}
