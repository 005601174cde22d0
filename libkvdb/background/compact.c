/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Compaction that was asked for, kvdb_compact() and kvdb_kvs_compact(): the
 * memtables of that moment are flushed, for what they delete counts; all runs of each
 * store, or of each leaf, are merged into one; then, unless one store was named, values leave
 * the segments that hold garbage (reloc.c).
 *
 * Nothing here writes. k_compact and rl_forced say what mergers are to do on
 * top of what is due; losing them, in a crash or by a cancel, leaves a database
 * that is as good as before.
 *
 * Lock: cp_lock, held by the thread that takes a step, only tried; DESIGN.md has its place.
 */
#include <errno.h>
#include <string.h>

#include "background/compact.h"
#include "base/assert.h"
#include "base/error.h"
#include "db/bell.h"
#include "mem/memtable.h"
#include "tree/tree.h"
#include "log/flush.h"
#include "compact/progress.h"
#include "compact/reloc.h"
#include "background/work.h"

/* Every store that is in state @from goes to @to; true: there was one. */
static bool advance(struct kvdb *db, uint32_t from, uint32_t to)
{
	bool did = false;

	for (uint32_t i = 0; i < KVDB_KVS_MAX; i++) {
		struct kvdb_kvs *kvs = kv_kvs_hold(db, i);
		uint32_t was = from;

		if (!kvs)
			continue;
		did |= atomic_compare_exchange_strong(&kvs->k_compact, &was, to);
		kv_kvs_release(kvs);
	}
	return did;
}

static bool is_flushed(struct kvdb *db, struct kvdb_kvs *kvs)
{
	struct kv_tree *tr = kv_tree_get(kvs);
	uint64_t upto = atomic_load(&db->d_bg.bd_compact.cp_epoch);
	bool is = true;

	for (uint32_t i = 0; i < tr->tr_nmt && is; i++) {
		uint64_t first = kv_mt_first_epoch(tr->tr_mt[i]);

		is = !first || first > upto;
	}
	kv_tree_put(db, tr);
	return is;
}

/* A store whose memtables were too many keeps the active one: it is switched when there is room. */
static bool wants_switch(struct kvdb *db, struct kvdb_kvs *kvs)
{
	uint64_t upto = atomic_load(&db->d_bg.bd_compact.cp_epoch);
	struct kv_tree *tr = kv_tree_get(kvs);
	uint64_t first = kv_mt_first_epoch(tr->tr_mt[0]);
	bool wants = first && first <= upto && upto != UINT64_MAX && tr->tr_nmt < KV_MTS_MAX;

	kv_tree_put(db, tr);
	return wants;
}

static int switch_step(struct kvdb *db)
{
	int err = kv_switch_all(db);

	return err ? err : kv_epoch_force(db);
}

/* False: it is not wanted any more. */
static bool merge_next(struct kvdb *db, struct kvdb_kvs *kvs)
{
	uint32_t was = KV_COMPACT_FLUSH;
	bool is_next;

	/* the merge of an earlier call must not take this one's state for that one's at its end */
	pthread_mutex_lock(&kvs->k_merging.mg_lock);
	atomic_store(&kvs->k_compact_run, atomic_load(&db->d_runs.ru_next));
	is_next = atomic_compare_exchange_strong(&kvs->k_compact, &was, KV_COMPACT_MERGE);
	pthread_mutex_unlock(&kvs->k_merging.mg_lock);
	return is_next;
}

/* 1: a store went on, or is not there yet. */
static int flushed_step(struct kvdb *db)
{
	bool waits = false, did = false, behind = false;
	int err = 0;

	KV_ASSERT_HELD(&db->d_bg.bd_compact.cp_lock);
	for (uint32_t i = 0; i < KVDB_KVS_MAX; i++) {
		struct kvdb_kvs *kvs = kv_kvs_hold(db, i);
		uint32_t was = KV_COMPACT_FLUSH;

		if (!kvs)
			continue;
		if (atomic_load(&kvs->k_compact) == was && is_flushed(db, kvs)) {
			did |= merge_next(db, kvs);
		} else if (kv_trouble_holds(db, &kvs->k_flush_trouble)) {
			kv_compact_give_up(kvs, atomic_load(&kvs->k_flush_trouble.tb_err));
		} else if (atomic_load(&kvs->k_compact) == was) {
			waits = true;
			behind |= wants_switch(db, kvs);
		}
		kv_kvs_release(kvs);
	}
	if (did)
		return 1;
	if (behind)
		err = switch_step(db);
	/* the keeper flushes as well, if there is one */
	return err || !waits ? err : kv_flush_step(db);
}

static int step_locked(struct kvdb *db)
{
	int err = 0;

	KV_ASSERT_HELD(&db->d_bg.bd_compact.cp_lock);
	KV_ASSERT_OUTSIDE();
	if (kv_compact_has(db, KV_COMPACT_ASKED)) {
		/* until it is known which; here, for the caller may cancel it before we look */
		atomic_store(&db->d_bg.bd_compact.cp_epoch, UINT64_MAX);
		advance(db, KV_COMPACT_ASKED, KV_COMPACT_FLUSH);
		err = switch_step(db);
		atomic_store(&db->d_bg.bd_compact.cp_epoch, atomic_load(&db->d_epochs.ep_durable));
	}
	if (!err)
		err = flushed_step(db);
	if (err < 0)
		kv_compact_end(db, err);
	return err;
}

/*
 * One thread at a time: the memtables that one waited for say nothing of a store that is asked for
 * meanwhile. The second thread has merges to do.
 */
int kv_compact_step(struct kvdb *db)
{
	pthread_mutex_t *lock = &db->d_bg.bd_compact.cp_lock;
	int rc;

	if (pthread_mutex_trylock(lock))
		return 0;
	rc = step_locked(db);
	pthread_mutex_unlock(lock);
	return rc;
}

/* ---- public ---------------------------------------------------------------- */

static uint64_t moved_bytes(struct kvdb *db)
{
	uint64_t n = 0;

	for (int c = 0; c < MPOOL_MCLASSES; c++)
		n += atomic_load(&db->d_count.move_bytes[c]);
	return n;
}

static bool is_asked(struct kvdb *db)
{
	return kv_reloc_is_forced(db) || kv_compact_is_merging(db);
}

bool kv_compact_is_asked(struct kvdb *db, const struct kvdb_kvs *kvs)
{
	if (!kvs)
		return is_asked(db);
	/* no worker does it for a store that was dropped, before or meanwhile */
	return atomic_load(&kvs->k_compact) != KV_COMPACT_NONE && !atomic_load(&kvs->k_dropped);
}

static int may_compact(struct kvdb *db, unsigned flags)
{
	if (flags & ~(KVDB_COMPACT_WAIT | KVDB_COMPACT_CANCEL))
		return kv_error(-EINVAL, "MP0951", "unknown flags %#x", flags);
	/* no worker would do it, and the caller would find it asked for ever */
	return kv_may_change(db);
}

/* Counts from here on, unless there is something to add to. */
static void begin(struct kvdb *db)
{
	struct kv_compact *cp = &db->d_bg.bd_compact;

	if (is_asked(db))
		return;
	atomic_store(&cp->cp_err, 0);
	atomic_store(&cp->cp_todo, 0);
	atomic_store(&cp->cp_done, 0);
	atomic_store(&cp->cp_moved, moved_bytes(db));
}

static void ask(struct kvdb_kvs *kvs)
{
	atomic_store(&kvs->k_compact_err, 0);
	atomic_store(&kvs->k_compact, KV_COMPACT_ASKED);
}

static const char *reason(int err)
{
	switch (err) {
	case -EAGAIN:
		return "writers were faster than merges; ask for it again";
	case -EBUSY:
		return "a bulk load is open";
	case -ECANCELED:
		return "it was cancelled";
	case -ENOSPC:
		return "the pool has no room for it";
	case -EUCLEAN:
		return "something on media is damaged";
	default:
		return strerror(-err);
	}
}

/* Why the compaction of a store, or of all and of values, was given up; others may have been. */
static int end_of(struct kvdb *db, const struct kvdb_kvs *kvs)
{
	int err = atomic_load(kvs ? &kvs->k_compact_err : &db->d_bg.bd_compact.cp_all_err);

	for (uint32_t i = 0; !kvs && i < KVDB_KVS_MAX && !err; i++) {
		struct kvdb_kvs *k = kv_kvs_hold(db, i);

		if (!k)
			continue;
		err = atomic_load(&k->k_compact_err);
		kv_kvs_release(k);
	}
	return err;
}

static int finish(struct kvdb *db, const struct kvdb_kvs *kvs, unsigned flags)
{
	int err = 0, ended;

	kv_work_kick(db);
	if (flags & KVDB_COMPACT_WAIT)
		err = kv_compact_wait(db, kvs);
	ended = end_of(db, kvs);
	if (!err && (flags & KVDB_COMPACT_WAIT) && ended)
		err = kv_error(ended, "MP0966", "the compaction was given up before its end: %s",
			       reason(ended));
	return err;
}

int kvdb_compact(struct kvdb *db, unsigned flags)
{
	int err = may_compact(db, flags);

	if (err)
		return err;
	if (flags & KVDB_COMPACT_CANCEL) {
		kv_compact_end(db, -ECANCELED);
		kv_reloc_cancel(db);
		return 0;
	}
	begin(db);
	atomic_store(&db->d_bg.bd_compact.cp_all_err, 0);
	/* those under way, too: what was written since then is to be flushed */
	for (uint32_t i = 0; i < KVDB_KVS_MAX; i++) {
		struct kvdb_kvs *kvs = kv_kvs_hold(db, i);

		if (!kvs)
			continue;
		ask(kvs);
		kv_kvs_release(kvs);
	}
	kv_reloc_force(db);
	return finish(db, NULL, flags);
}

int kvdb_kvs_compact(struct kvdb_kvs *kvs, unsigned flags)
{
	struct kvdb *db = kvs->k_db;
	int err = may_compact(db, flags);

	if (err)
		return err;
	if (flags & KVDB_COMPACT_CANCEL) {
		kv_compact_give_up(kvs, -ECANCELED);
		return 0;
	}
	begin(db);
	ask(kvs);
	return finish(db, kvs, flags);
}

int kvdb_compact_status(struct kvdb *db, struct kvdb_compact_status *out)
{
	struct kv_compact *cp = &db->d_bg.bd_compact;
	struct kvdb_compact_status st = { .is_asked = is_asked(db) };
	uint64_t from = atomic_load(&cp->cp_moved);	/* read first: cp_moved only grows */
	int err = kv_reloc_status(db, &st);

	if (err)
		return err;
	st.error = st.is_asked ? 0 : atomic_load(&cp->cp_err);
	st.moved_bytes = moved_bytes(db);
	st.relocations = atomic_load(&db->d_count.relocations);
	st.todo_bytes = atomic_load(&cp->cp_todo);
	st.done_bytes = atomic_load(&cp->cp_done) + st.moved_bytes - from;
	if (st.done_bytes > st.todo_bytes)	/* a job that no caller asked for moved as well */
		st.done_bytes = st.todo_bytes;
	*out = st;
	return 0;
}
