/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Compaction that is asked for, drains, and the turns of stores in background
 * work, on a real database without threads.
 */
#include "db/db.h"
#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "background/compact.h"
#include "log/flush.h"
#include "kv_clock.h"
#include "kv_table.h"
#include "meta/mdc.h"
#include "compact/merge.h"
#include "compact/reloc.h"
#include "run/run.h"
#include "background/work.h"
#include "tree/tree.h"

static void compact_brings_back_what_the_bound_would_leave(void)
{
	struct kvdb_compact_status cs;

	fresh(64u << 20);
	put_some(1);
	settle();
	put_some(4);
	settle();
	T_EQ(kvdb_compact(db, KVDB_COMPACT_WAIT), 0);
	T_EQ(kvdb_compact_status(db, &cs), 0);
	T_EQ(cs.is_asked, 0);
	T_EQ(cs.is_active, 0);
	T_OK(cs.moved_bytes > 0);
	T_OK(cs.live_bytes == live_bytes());
	T_OK(cs.space_bytes <= live_bytes() + live_bytes() / 6);
	all_hold();
	/* asked for and taken back: nothing is left to do */
	put_some(4);
	T_EQ(kvdb_compact(db, 0), 0);
	T_EQ(kvdb_compact_status(db, &cs), 0);
	T_EQ(cs.is_asked, 1);
	T_EQ(kvdb_compact(db, KVDB_COMPACT_CANCEL), 0);
	T_EQ(kvdb_compact_status(db, &cs), 0);
	T_EQ(cs.is_asked, 0);
	T_EQ(cs.error, -ECANCELED);
	T_EQ(kvdb_compact(db, 4), -EINVAL);
	all_hold();
	done(0);
}

/* Small values lie with their keys: merging alone brings their space back. */
static void compact_leaves_one_run_and_no_garbage_in_it(void)
{
	struct kvdb_compact_status cs;
	uint64_t runs, before;
	char key[16], val[64] = { 0 };

	fresh(64u << 20);
	for (uint32_t round = 0; round < 3; round++) {
		for (uint32_t k = 0; k < 4000; k++)
			T_EQ(kvdb_put(kvs[0], key, (size_t)sprintf(key, "%06u", k), val,
				      sizeof(val)), 0);
		T_EQ(kvdb_put(kvs[1], "k", 1, &round, 4), 0);
		T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	}
	T_EQ(stats().runs, 6);
	before = stats().space_bytes;
	/* what is deleted and still in memory counts */
	for (uint32_t k = 1000; k < 4000; k++)
		T_EQ(kvdb_del(kvs[0], key, (size_t)sprintf(key, "%06u", k)), 0);
	T_EQ(kvdb_kvs_compact(kvs[0], KVDB_COMPACT_WAIT), 0);
	T_EQ(stats().runs, 1 + 3);
	T_OK(stats().space_bytes < before / 6);
	T_EQ(kvdb_compact_status(db, &cs), 0);
	T_EQ(cs.is_asked, 0);
	T_EQ(cs.error, 0);
	T_OK(cs.todo_bytes > before / 2);
	T_EQ(cs.done_bytes, cs.todo_bytes);
	T_EQ(kvdb_compact(db, KVDB_COMPACT_WAIT), 0);
	runs = stats().runs;
	T_EQ(runs, 2);
	/* asked for again, there is nothing to do */
	T_EQ(kvdb_compact(db, KVDB_COMPACT_WAIT), 0);
	T_EQ(stats().merges, 2);
	done(0);
}

/* Where merges have to wait it is given up instead of waited for. */
static void compact_does_not_wait_for_a_bulk_load(void)
{
	struct kvdb_bulk *bulk;

	fresh(64u << 20);
	put_some(1);
	settle();
	put_some(2);
	T_EQ(kvdb_bulk_open(kvs[0], 0, &bulk), 0);
	T_EQ(kvdb_compact(db, KVDB_COMPACT_WAIT), -EBUSY);
	T_STREQ(kvdb_error_detail()->id, "MP0966");
	T_OK(strstr(kvdb_error_detail()->text, "bulk load"));
	kvdb_bulk_abort(bulk);
	T_EQ(kvdb_compact(db, KVDB_COMPACT_WAIT), 0);
	T_EQ(stats().runs, 2);
	all_hold();
	done(0);
}

/* Asked for again while memtables of the first request are being flushed. */
static void compact_may_be_asked_for_at_any_time(void)
{
	fresh(64u << 20);
	put_some(1);
	T_EQ(kvdb_compact(db, 0), 0);
	T_OK(kv_compact_step(db) >= 0);
	put_some(3);
	T_EQ(kvdb_compact(db, 0), 0);
	for (unsigned i = 0; i < 100 && kv_compact_is_merging(db); i++) {
		T_OK(kv_compact_step(db) >= 0);
		for (unsigned s = 0; s < 2; s++)
			T_OK(kv_merge_step(db, kvs[s]) >= 0);
	}
	T_OK(!kv_compact_is_merging(db));
	settle();
	all_hold();
	done(0);
}

/* One store is at its memtables while another one is asked for, which is then not wanted. */
static void a_compaction_that_is_taken_back_holds_up_no_other(void)
{
	fresh(64u << 20);
	put_some(1);
	T_EQ(kvdb_kvs_compact(kvs[0], 0), 0);
	T_OK(kv_compact_step(db) >= 0);
	put_some(3);
	T_EQ(kvdb_kvs_compact(kvs[1], 0), 0);
	T_EQ(kvdb_kvs_compact(kvs[1], KVDB_COMPACT_CANCEL), 0);
	for (unsigned i = 0; i < 100 && kv_compact_is_merging(db); i++) {
		T_OK(kv_compact_step(db) >= 0);
		T_OK(kv_merge_step(db, kvs[0]) >= 0);
	}
	T_OK(!kv_compact_is_merging(db));
	settle();
	all_hold();
	done(0);
}

/* Nor is it told that it was. */
static void what_is_taken_back_is_told_to_who_asked_for_it(void)
{
	struct kvdb_compact_status st;

	fresh(64u << 20);
	put_some(1);
	for (unsigned s = 0; s < 2; s++)
		T_EQ(kvdb_kvs_compact(kvs[s], 0), 0);
	T_EQ(kvdb_kvs_compact(kvs[1], KVDB_COMPACT_CANCEL), 0);
	T_EQ(kvdb_kvs_compact(kvs[0], KVDB_COMPACT_WAIT), 0);
	T_EQ(kvdb_compact_status(db, &st), 0);
	T_EQ(st.error, -ECANCELED);
	T_EQ(kvdb_compact(db, KVDB_COMPACT_WAIT), 0);
	T_EQ(kvdb_compact_status(db, &st), 0);
	T_EQ(st.error, 0);
	all_hold();
	done(0);
}

static uint32_t runs_of(unsigned s)
{
	struct kvdb_kvs_info in;

	T_EQ(kvdb_kvs_info(kvs[s], &in), 0);
	return in.runs;
}

/* The merge of the first request ends when the second one is ready for its own. */
static void a_compaction_asked_for_during_a_merge_is_done(void)
{
	struct kv_job j;
	int rc;

	fresh(64u << 20);
	for (unsigned round = 0; round < 2; round++) {
		put_some(1 + round);
		T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	}
	T_EQ(kvdb_kvs_compact(kvs[0], 0), 0);
	while (atomic_load(&kvs[0]->k_compact) != KV_COMPACT_MERGE)
		T_OK(kv_compact_step(db) >= 0);
	T_EQ(kv_merge_begin(db, kvs[0], &j), 1);
	put_some(3);
	T_EQ(kvdb_kvs_compact(kvs[0], 0), 0);
	while (atomic_load(&kvs[0]->k_compact) != KV_COMPACT_MERGE)
		T_OK(kv_compact_step(db) >= 0);
	rc = kv_job_run(&j);
	T_EQ(rc, 1);
	kv_merge_end(&j, rc);
	T_EQ(runs_of(0), 2);
	settle();
	T_EQ(runs_of(0), 1);
	T_OK(!kv_compact_is_merging(db));
	all_hold();
	done(0);
}

/* A thread is kept where it has made an epoch durable, and lets go of its locks. */
static _Atomic(bool) is_kept, is_to_keep;

static void keep(void *arg, int err)
{
	(void)arg;
	(void)err;
	is_kept = true;
	while (is_to_keep)
		sched_yield();
}

static void keep_at_next_epoch(void)
{
	is_kept = false;
	is_to_keep = true;
	T_EQ(kvdb_on_durable(db, atomic_load(&db->d_epochs.ep_open), keep, NULL), 0);
}

static void wait_kept(void)
{
	while (!is_kept)
		sched_yield();
}

/* A call of another thread returns while what it might wait for goes on. */
static _Atomic(bool) is_over;

static void wait_over(void)
{
	for (unsigned i = 0; i < 5000 && !is_over; i++)
		usleep(1000);
	T_OK(is_over);
}

static void *cancel_and_tell(void *arg)
{
	(void)arg;
	T_EQ(kvdb_compact(db, KVDB_COMPACT_CANCEL), 0);
	is_over = true;
	return NULL;
}

/* Another one is kept where it asks for the time: in front of the end of an epoch. */
static __thread bool is_slow;
static _Atomic(bool) is_to_wait;

static uint64_t clock_keeps(void *arg)
{
	while (is_slow && is_to_wait)
		sched_yield();
	return clock_now(arg);
}

static const struct kvdb_clock keeping_clock = { clock_keeps, clock_sleep, NULL, NULL };

static void *take_compact_step(void *arg)
{
	T_OK(kv_compact_step(db) >= 0);
	return arg;
}

static void *take_slow_step(void *arg)
{
	is_slow = true;
	return take_compact_step(arg);
}

/* Of two mergers one has the memtables of the first request behind it when the other begins. */
static void memtables_of_one_compaction_are_not_those_of_another(void)
{
	pthread_t first, second;

	clk = &keeping_clock;
	fresh(64u << 20);
	put_some(1);
	settle();
	T_EQ(put(0, 0), 0);
	T_EQ(kvdb_kvs_compact(kvs[0], 0), 0);
	keep_at_next_epoch();
	T_EQ(pthread_create(&first, NULL, take_compact_step, NULL), 0);
	wait_kept();
	T_EQ(put(1, 0), 0);
	T_EQ(kvdb_kvs_compact(kvs[1], 0), 0);
	is_to_wait = true;
	T_EQ(pthread_create(&second, NULL, take_slow_step, NULL), 0);
	usleep(50000);
	is_to_keep = false;
	T_EQ(pthread_join(first, NULL), 0);
	/* its memtable is not even frozen */
	T_OK(atomic_load(&kvs[1]->k_compact) != KV_COMPACT_MERGE);
	is_to_wait = false;
	T_EQ(pthread_join(second, NULL), 0);
	settle();
	T_EQ(runs_of(1), 1);
	T_OK(!kv_compact_is_merging(db));
	all_hold();
	done(0);
	clk = NULL;
}

static void *make_room(void *arg)
{
	(void)arg;
	is_slow = true;
	kv_reloc_make_room(db);
	return NULL;
}

/* A job for a writer without room goes on (G7), and no thread waits for it that may not. */
static void who_cancels_does_not_wait_for_a_job_that_goes_on(void)
{
	pthread_t t, waiter;

	clk = &keeping_clock;
	fresh(64u << 20);
	put_some(1);
	settle();
	is_to_wait = true;
	T_EQ(pthread_create(&t, NULL, make_room, NULL), 0);
	while (!kv_reloc_is_busy(db))
		sched_yield();
	is_over = false;
	T_EQ(pthread_create(&waiter, NULL, cancel_and_tell, NULL), 0);
	wait_over();
	is_to_wait = false;
	T_EQ(pthread_join(waiter, NULL), 0);
	T_EQ(pthread_join(t, NULL), 0);
	T_OK(!kv_reloc_is_cancelled(db));
	all_hold();
	done(0);
	clk = NULL;
}

static void freeze_memtable(unsigned s, uint32_t k)
{
	T_EQ(put(s, k), 0);
	T_EQ(kv_switch_prepare(db, kvs[s]), 0);
	T_EQ(kv_epoch_force(db), 0);
}

/* One store always has a memtable to flush: the other has its turn, too. */
static void a_busy_store_does_not_keep_another_from_its_flush(void)
{
	for (unsigned busy = 0; busy < 2; busy++) {
		fresh(64u << 20);
		freeze_memtable(busy, 0);
		freeze_memtable(!busy, 0);
		for (uint32_t k = 1; k < 4; k++) {
			T_EQ(kv_flush_step(db), 1);
			freeze_memtable(busy, k);
		}
		T_EQ(runs_of(!busy), 1);
		settle();
		all_hold();
		done(0);
	}
}

#define SMALL_RUNS	4u	/* a merge is due */

static void add_small_runs(unsigned s)
{
	for (uint32_t k = 0; k < SMALL_RUNS; k++) {
		freeze_memtable(s, k);
		T_EQ(kv_flush_step(db), 1);
	}
}

/* Nor from its merges. */
static void a_busy_store_does_not_keep_another_from_its_merges(void)
{
	uint64_t merges;

	for (unsigned busy = 0; busy < 2; busy++) {
		fresh(64u << 20);
		add_small_runs(!busy);
		T_EQ(runs_of(!busy), SMALL_RUNS);
		for (unsigned round = 0; round < 2; round++) {
			add_small_runs(busy);
			merges = stats().merges;
			while (stats().merges == merges)
				T_OK(kvdb_poll(db) > 0);
		}
		T_OK(runs_of(!busy) < SMALL_RUNS);
		settle();
		all_hold();
		done(0);
	}
}

/* Those may be as long as the database is large. */
static void who_waits_for_one_store_merges_no_other(void)
{
	fresh(64u << 20);
	add_small_runs(0);
	/* the other store has the next turn */
	while (runs_of(0) == SMALL_RUNS)
		T_OK(kvdb_poll(db) > 0);
	add_small_runs(1);
	T_EQ(put(0, 0), 0);
	T_EQ(kvdb_kvs_compact(kvs[0], KVDB_COMPACT_WAIT), 0);
	T_EQ(runs_of(0), 1);
	T_EQ(runs_of(1), SMALL_RUNS);
	settle();
	all_hold();
	done(0);
}

static void *merge_slowly(void *arg)
{
	struct kvdb_kvs *k = NULL;

	for (uint32_t i = 0; !k || k->k_id != kvs[0]->k_id; i++) {
		if (k)
			kv_kvs_release(k);
		k = kv_kvs_hold(db, i);
	}
	is_slow = true;
	T_EQ(kv_merge_step(db, k), 0);
	kv_kvs_release(k);
	return arg;
}

static void *drop_store(void *arg)
{
	T_EQ(kvdb_kvs_drop(db, "a"), 0);
	return arg;
}

/* No store is made or opened meanwhile; a merge of a large one takes hours. */
static void a_drop_does_not_wait_for_the_end_of_a_merge(void)
{
	pthread_t merger, dropper;
	uint64_t before;

	clk = &keeping_clock;
	fresh(64u << 20);
	add_small_runs(0);
	before = stats().merges;
	is_to_wait = true;
	T_EQ(pthread_create(&merger, NULL, merge_slowly, NULL), 0);
	while (!kv_merge_is_busy(kvs[0]))
		sched_yield();
	T_EQ(pthread_create(&dropper, NULL, drop_store, NULL), 0);
	while (!atomic_load(&kvs[0]->k_dropped))
		sched_yield();
	is_to_wait = false;
	T_EQ(pthread_join(merger, NULL), 0);
	T_EQ(pthread_join(dropper, NULL), 0);
	T_EQ(stats().merges, before);
	T_EQ(kvdb_kvs_create(db, "a", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "a", &kvs[0]), 0);
	memset(version[0], 0, sizeof(version[0]));
	settle();
	all_hold();
	done(0);
	clk = NULL;
}

static void *drain_and_tell(void *arg)
{
	(void)arg;
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	is_over = true;
	return NULL;
}

/* Others may write as fast as memtables are flushed: that is no reason to wait for ever. */
static void a_drain_does_not_wait_for_what_is_written_after_it_began(void)
{
	pthread_t t;

	fresh(64u << 20);
	is_over = false;
	T_EQ(put(0, 0), 0);
	T_EQ(kvdb_sync(db), 0);
	keep_at_next_epoch();
	T_EQ(pthread_create(&t, NULL, drain_and_tell, NULL), 0);
	wait_kept();
	freeze_memtable(1, 0);
	T_EQ(atomic_load(&kvs[1]->k_tree)->tr_nmt, 2);
	/* as if another thread were still writing its run */
	pthread_mutex_lock(&kvs[1]->k_flush_lock);
	is_to_keep = false;
	wait_over();
	pthread_mutex_unlock(&kvs[1]->k_flush_lock);
	T_EQ(pthread_join(t, NULL), 0);
	T_EQ(runs_of(0), 1);
	T_EQ(runs_of(1), 0);
	all_hold();
	done(0);
}

int main(void)
{
	T_RUN(compact_brings_back_what_the_bound_would_leave);
	T_RUN(compact_leaves_one_run_and_no_garbage_in_it);
	T_RUN(compact_does_not_wait_for_a_bulk_load);
	T_RUN(compact_may_be_asked_for_at_any_time);
	T_RUN(a_compaction_that_is_taken_back_holds_up_no_other);
	T_RUN(what_is_taken_back_is_told_to_who_asked_for_it);
	T_RUN(a_compaction_asked_for_during_a_merge_is_done);
	T_RUN(memtables_of_one_compaction_are_not_those_of_another);
	T_RUN(who_cancels_does_not_wait_for_a_job_that_goes_on);
	T_RUN(a_busy_store_does_not_keep_another_from_its_flush);
	T_RUN(a_busy_store_does_not_keep_another_from_its_merges);
	T_RUN(who_waits_for_one_store_merges_no_other);
	T_RUN(a_drop_does_not_wait_for_the_end_of_a_merge);
	T_RUN(a_drain_does_not_wait_for_what_is_written_after_it_began);
	return t_done();
}
