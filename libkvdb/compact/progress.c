/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * How far a compaction is that was asked for, as merges and relocations report it: which store is
 * still to be merged, what was given up and why, bytes done and to be done.
 *
 * k_compact is changed by compare-and-swap; the reason of an end is stored before the state, for
 * a waiter looks at the state.
 */
#include "compact/progress.h"
#include "base/assert.h"
#include "db/db.h"
#include "compact/reloc.h"

bool kv_compact_has(struct kvdb *db, uint32_t st)
{
	bool has = false;

	for (uint32_t i = 0; i < KVDB_KVS_MAX && !has; i++) {
		struct kvdb_kvs *kvs = kv_kvs_hold(db, i);
		uint32_t is;

		if (!kvs)
			continue;
		is = atomic_load(&kvs->k_compact);
		has = st == KV_COMPACT_NONE ? is != st : is == st;
		kv_kvs_release(kvs);
	}
	return has;
}

bool kv_compact_is_merging(struct kvdb *db)
{
	return kv_compact_has(db, KV_COMPACT_NONE);
}

void kv_compact_merged(struct kvdb_kvs *kvs, uint64_t run)
{
	uint32_t was = KV_COMPACT_MERGE;

	/* when it was asked for again meanwhile it is done again, however far that is */
	if (atomic_load(&kvs->k_compact_run) == run)
		atomic_compare_exchange_strong(&kvs->k_compact, &was, KV_COMPACT_NONE);
}

/* True: the store was to be compacted. Why not is told first: waiters look at the state. */
static bool give_up(struct kvdb_kvs *kvs, int err)
{
	if (atomic_load(&kvs->k_compact) == KV_COMPACT_NONE)
		return false;
	atomic_store(&kvs->k_compact_err, err);
	return atomic_exchange(&kvs->k_compact, KV_COMPACT_NONE) != KV_COMPACT_NONE;
}

void kv_compact_give_up(struct kvdb_kvs *kvs, int err)
{
	KV_ASSERT(err < 0);
	if (give_up(kvs, err))
		atomic_store(&kvs->k_db->d_bg.bd_compact.cp_err, err);
}

void kv_compact_end(struct kvdb *db, int err)
{
	bool was = kv_reloc_is_forced(db);

	KV_ASSERT(err < 0);
	if (was) {
		atomic_store(&db->d_bg.bd_compact.cp_all_err, err);
		was = kv_reloc_unforce(db);
	}
	for (uint32_t i = 0; i < KVDB_KVS_MAX; i++) {
		struct kvdb_kvs *kvs = kv_kvs_hold(db, i);

		if (!kvs)
			continue;
		was |= give_up(kvs, err);
		kv_kvs_release(kvs);
	}
	if (was)
		atomic_store(&db->d_bg.bd_compact.cp_err, err);
}

void kv_compact_todo(struct kvdb *db, uint64_t bytes)
{
	atomic_fetch_add(&db->d_bg.bd_compact.cp_todo, bytes);
}

void kv_progress_begin(struct kvdb *db, struct kv_progress *wa, uint64_t bytes, uint64_t looks)
{
	*wa = (struct kv_progress){ .wa_left = bytes, .wa_step = bytes / (looks + 1) };
	kv_compact_todo(db, bytes);
}

void kv_progress_tell(struct kvdb *db, struct kv_progress *wa)
{
	uint64_t n = wa->wa_step < wa->wa_left ? wa->wa_step : wa->wa_left;

	wa->wa_left -= n;
	atomic_fetch_add(&db->d_bg.bd_compact.cp_done, n);
}

void kv_progress_end(struct kvdb *db, struct kv_progress *wa)
{
	atomic_fetch_add(&db->d_bg.bd_compact.cp_done, wa->wa_left);
	wa->wa_left = 0;
}
