/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Deletion of the objects of runs that no tree lists and no reader holds any more, unless a
 * checkpoint keeps them.
 */
#include "base/assert.h"
#include "base/error.h"
#include "base/guard.h"
#include "db/db.h"
#include "run/run.h"
#include "meta/ckpt.h"
#include "meta/upkeep.h"

#define TOGETHER 64u

/* Those of them that could not be deleted stay doomed. */
static bool reap(struct kvdb *db, struct kv_run *const *run, unsigned n)
{
	int err = kv_runs_delete(db, run, n);
	bool did = false;

	KV_ASSERT(n && n <= TOGETHER && atomic_load(&db->d_runs.ru_reaping));
	if (err)
		kv_stop_with_pool(db, kv_error_mpool(err), "deleting a run");
	/* one batch is done or not: a run that cannot be deleted would keep the others for ever */
	for (unsigned i = 0; err && n > 1 && i < n && !kv_fault(db); i++)
		kv_runs_delete(db, &run[i], 1);
	while (n--) {
		if (CHECK(run[n]->rn_ndeleted == run[n]->rn_n)) {
			kv_run_free(db, run[n]);
			did = true;
		} else {
			kv_run_doom(db, run[n]);
		}
	}
	return did;
}

/*
 * 1: nothing keeps it; 0: it goes, and its objects stay: of a checkpoint, or after a failed append,
 * when it is unknown what is listed; -errno: it stays doomed.
 */
static int is_unkept(struct kvdb *db, const struct kv_run *r)
{
	int rc = kv_fault(db) ? 1 : kv_ckpt_keeps(db, &r->rn_desc);

	return rc < 0 ? rc : !rc;
}

int kv_runs_reap(struct kvdb *db)
{
	struct kv_run *r, *next, *go[TOGETHER];
	unsigned n = 0;
	int did;

	KV_ASSERT_OUTSIDE();
	atomic_fetch_add(&db->d_runs.ru_reaping, 1);
	did = kv_ckpts_reap(db);
	for (r = atomic_exchange(&db->d_runs.ru_doomed, NULL); r; r = next) {
		int rc = is_unkept(db, r);

		next = r->rn_next;
		KV_ASSERT(!atomic_load(&r->rn_refs) && atomic_load(&r->rn_dropped));
		if (rc < 0) {
			kv_run_doom(db, r);
		} else if (!rc) {
			kv_run_free(db, r);
			did = 1;
		} else {
			go[n++] = r;
		}
		if (n == TOGETHER || (n && !next)) {
			did |= reap(db, go, n);
			n = 0;
		}
	}
	KV_ASSERT(atomic_load(&db->d_runs.ru_reaping));
	atomic_fetch_sub(&db->d_runs.ru_reaping, 1);
	return did;
}
