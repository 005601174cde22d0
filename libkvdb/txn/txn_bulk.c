/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Commits of many writes: what they put into memtables has room there first (T16), and while
 * they link it these memtables stay the active ones (T17). Linking takes longer than a memtable
 * lasts, and fills it: a committer that began again with each new one would never end.
 *
 * One such transaction is committed at a time, so between two of them memtables switch.
 * tx_bulk_lock is outside all other locks but tx_batch_lock. The holder of memtables waits for
 * nothing: what it might wait for could wait for a switch.
 */
#include "txn/txn.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/guard.h"
#include "background/work.h"
#include "log/flush.h"
#include "tree/gap.h"

#define BULK_MIN	1024u	/* writes; fewer are linked in less than a millisecond */

bool kv_txn_is_bulk(const struct kvdb_txn *t)
{
	return t->t_n > BULK_MIN || t->t_npart;
}

int kv_bulk_begin(struct kvdb_txn *t, bool urgent)
{
	struct kvdb *db = t->t_db;
	uint64_t most = db->d_budget.b_mt_bytes;
	int err = 0;

	pthread_mutex_lock(&db->d_txns->tx_bulk_lock);
	/*
	 * A version takes less than what the write set has of it, and the rest of a chunk nothing;
	 * beside more than that nothing that is flushed would make room.
	 */
	t->t_coming = t->t_mem_bytes < most - most / 8 ? t->t_mem_bytes : most - most / 8;
	atomic_fetch_add(&db->d_count.mt_coming, t->t_coming);
	kv_pressure(db);
	if (atomic_load(&db->d_flusher->fl_stall))
		err = BARRIER(kv_stall_wait(db, urgent));
	if (err)
		kv_bulk_end(t);
	return err ? kv_error_room(db, err, "transaction") : 0;
}

void kv_bulk_came(struct kvdb_txn *t, uint64_t bytes)
{
	bytes = bytes < t->t_coming ? bytes : t->t_coming;
	t->t_coming -= bytes;
	atomic_fetch_sub(&t->t_db->d_count.mt_coming, bytes);
}

void kv_bulk_end(struct kvdb_txn *t)
{
	kv_bulk_came(t, t->t_coming);
	pthread_mutex_unlock(&t->t_db->d_txns->tx_bulk_lock);
}

void kv_bulk_hold(struct kvdb_txn *t)
{
	for (struct kv_touched *tt = t->t_touched; tt; tt = tt->tt_next) {
		atomic_fetch_add(&tt->tt_kvs->k_linking, 1);
		/* GAP-2, for all keys at once: what is learned after the stamp knows of them */
		kv_gaps_close(&tt->tt_kvs->k_gaps);
	}
	/* a switch that did not see it yet is done: memtables that are looked up now stay */
	pthread_mutex_lock(&t->t_db->d_epochs.ep_tick_lock);
	pthread_mutex_unlock(&t->t_db->d_epochs.ep_tick_lock);
}

/* A switch that was refused meanwhile is asked for again: writers may wait for its flush. */
void kv_bulk_let(struct kvdb_txn *t)
{
	bool is_due = false;

	for (struct kv_touched *tt = t->t_touched; tt; tt = tt->tt_next) {
		kv_gaps_reopen(&tt->tt_kvs->k_gaps);
		KV_ASSERT(atomic_load(&tt->tt_kvs->k_linking));
		atomic_fetch_sub(&tt->tt_kvs->k_linking, 1);
		is_due |= atomic_load(&tt->tt_kvs->k_next_mt) != NULL;
	}
	if (is_due)
		kv_flusher_tick(t->t_db);
}
