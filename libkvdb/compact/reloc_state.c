/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What merges, moves and jobs ask and tell relocation, which decides in reloc.c.
 * Inside rl_force_lock nothing else is taken.
 */
#include "compact/reloc_state.h"
#include "db/db.h"
#include "seg/reserve.h"

uint64_t kv_reloc_key_bytes(struct kvdb *db)
{
	return db->d_reloc ? atomic_load(&db->d_reloc->rl_key_bytes) : 0;
}

uint64_t kv_reloc_run_bytes(struct kvdb *db)
{
	return db->d_reloc ? atomic_load(&db->d_reloc->rl_run_bytes) : 0;
}

uint64_t kv_reloc_space(struct kvdb *db)
{
	struct kv_reloc *rl = db->d_reloc;
	struct kv_in_use u;

	kv_space_in_use(db, &u);
	atomic_store(&rl->rl_key_bytes, u.iu_most);
	atomic_store(&rl->rl_run_bytes, u.iu_runs);
	return u.iu_segs + u.iu_runs;
}

uint64_t kv_reloc_staged_excess(struct kvdb *db, uint64_t staged)
{
	return db->d_mode.md_log_class == MPOOL_CAPACITY ? 0 : kv_staging_excess(db, staged);
}

bool kv_reloc_frees(struct kvdb *db, bool whole)
{
	return !whole && db->d_reloc && atomic_load(&db->d_reloc->rl_is_for_space);
}

uint64_t kv_reloc_due(struct kvdb *db)
{
	return kv_promises_due(&db->d_reloc->rl_room);
}

void kv_reloc_wrote(struct kvdb *db, bool whole, uint64_t bytes)
{
	struct kv_reloc *rl = db->d_reloc;

	kv_promise_wrote(&rl->rl_room, whole ? KV_VICTIM_OLD : KV_VICTIM, bytes);
	if (!whole) {
		kv_pacer_moved(&rl->rl_pacer, bytes);
		return;
	}
	atomic_store(&rl->rl_aged_ns, kv_now(db));
	atomic_fetch_add(&rl->rl_aged_bytes, bytes);
}

bool kv_reloc_is_ordering(struct kvdb *db)
{
	return db->d_reloc && atomic_load(&db->d_reloc->rl_is_ordering);
}

bool kv_reloc_must_yield(struct kvdb *db)
{
	struct kv_reloc *rl = db->d_reloc;
	uint64_t now = kv_now(db), due = atomic_load(&rl->rl_yield_ns);

	if (atomic_load(&rl->rl_rescues))
		return true;
	if (now < due ||
	    !atomic_compare_exchange_strong(&rl->rl_yield_ns, &due, now + KV_RELOC_LOOK_NS))
		return false;
	return kv_reloc_staged_excess(db, kv_segs_staged(db)) || kv_segs_are_short(db) ||
	       kv_reloc_space(db) >= atomic_load(&rl->rl_next_space);
}

bool kv_reloc_is_cancelled(struct kvdb *db)
{
	struct kv_reloc *rl = db->d_reloc;

	if (!rl)
		return false;
	return (atomic_load(&rl->rl_cancels) && !atomic_load(&rl->rl_is_rescue)) ||
	       (atomic_load(&rl->rl_is_ordering) && kv_reloc_must_yield(db));
}

void kv_reloc_failed(struct kvdb *db, int err)
{
	kv_trouble_set(db, &db->d_reloc->rl_trouble, err, "relocation");
}

bool kv_reloc_unforce(struct kvdb *db)
{
	struct kv_reloc *rl = db->d_reloc;
	bool was;

	pthread_mutex_lock(&rl->rl_force_lock);
	was = atomic_exchange(&rl->rl_forced, 0);
	pthread_mutex_unlock(&rl->rl_force_lock);
	return was;
}

bool kv_reloc_is_forced(struct kvdb *db)
{
	return atomic_load(&db->d_reloc->rl_forced);
}
