/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Deletion of the objects of runs that no tree lists and no reader holds any more, unless a
 * checkpoint keeps them.
 */
#include "base/error.h"
#include "base/guard.h"
#include "db/db.h"
#include "run/run.h"
#include "meta/ckpt.h"
#include "meta/upkeep.h"

/* False: it stays doomed. After a failed append nobody knows what is listed. */
static bool reap(struct kvdb *db, struct kv_run *r)
{
	int err;

	if (kv_fault(db))
		return true;
	err = kv_ckpt_keeps(db, &r->rn_desc);
	if (!err) {
		err = kv_run_delete(db, r);
		if (err)
			kv_stop_with_pool(db, kv_error_mpool(err), "deleting a run");
	}
	return CHECK(644, err >= 0);
}

int kv_runs_reap(struct kvdb *db)
{
	struct kv_run *r, *next;
	int did;

	atomic_fetch_add(&db->d_reaping, 1);
	did = kv_ckpts_reap(db);
	for (r = atomic_exchange(&db->d_doomed, NULL); r; r = next) {
		next = r->rn_next;
		if (reap(db, r)) {
			kv_run_free(db, r);
			did = 1;
		} else {
			kv_run_doom(db, r);
		}
	}
	atomic_fetch_sub(&db->d_reaping, 1);
	return did;
}
