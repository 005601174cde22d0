/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Tells whether other threads are making room now; it frees nothing itself. No locks: each
 * counts its work where it does it.
 */
#include "background/work.h"
#include "db/db.h"
#include "db/mem_wait.h"
#include "meta/upkeep.h"
#include "compact/reloc.h"

bool kv_is_freeing(struct kvdb *db)
{
	return atomic_load(&db->d_runs.ru_reaping) || kv_segs_are_busy(db);
}

bool kv_is_making_room(struct kvdb *db)
{
	return kv_is_freeing(db) || kv_reloc_is_busy(db) || atomic_load(&db->d_runs.ru_merging);
}

bool kv_space_comes(struct kvdb *db, uint64_t since_ns)
{
	return kv_is_making_room(db) && kv_now(db) - since_ns < KV_PATIENCE_NS &&
	       !kv_sleep_or_stop(db);
}
