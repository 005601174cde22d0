/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Compaction of runs: which merge of a store is due, and merges that move
 * values. Runs are merged in groups that are neighbours in age, of one leaf, of
 * a store without leaves, or upper runs that spill into all leaves (DESIGN.md,
 * "Leaves"). merge_pick.c chooses the runs, merge_job.c merges them.
 *
 * One merge at a time per store (k_merging); flushes may publish newer runs
 * meanwhile.
 */
#include <errno.h>
#include <time.h>

#include "compact.h"
#include "leaf.h"
#include "merge.h"
#include "reloc.h"
#include "run.h"

/* ---- what is due ------------------------------------------------------------------------- */

static bool is_asked(struct kvdb_kvs *kvs)
{
	return atomic_load(&kvs->k_compact) == KV_COMPACT_MERGE;
}

/* Runs [@first, @first + @n) of the tree, in leaf @leaf or, without leaves, anywhere. */
static int merge_runs(struct kvdb *db, struct kvdb_kvs *kvs, struct kv_tree *tr, unsigned first,
		      unsigned n, uint32_t leaf)
{
	bool is_leaf = tr->tr_nleaf;
	unsigned from = is_leaf ? tr->tr_leaf[leaf].lr_first : 0;
	unsigned of = is_leaf ? tr->tr_leaf[leaf].lr_n : tr->tr_nrun;
	struct kv_job j = { .j_db = db, .j_kvs = kvs, .j_tree = tr, .j_in = &tr->tr_run[first],
			 .j_n = n, .j_leaf = leaf, .j_nleaf = is_leaf, .j_asked = is_asked(kvs) };
	uint64_t keys = kv_runs_keys(j.j_in, n);

	if (!kv_merge_fits(db, j.j_in, n))
		return 0;
	j.j_forgets = !kv_is_looked_for(db, j.j_in, n);
	j.j_no_tombs = j.j_forgets && first + n == from + of;
	if (n == of && keys > db->d_budget.b_leaf_keys) {
		j.j_cut = kv_leaf_cut(db, tr, keys);
		j.j_how = j.j_cut ? KV_MERGE_SPLIT : KV_MERGE_ONE;
	}
	return kv_job_run(&j);
}

/*
 * LF4: the oldest upper runs, until they have as many keys as a leaf. Not while a leaf is behind
 * with its own merges.
 */
static int spill(struct kvdb *db, struct kvdb_kvs *kvs, struct kv_tree *tr)
{
	struct kv_job j = { .j_db = db, .j_kvs = kvs, .j_tree = tr, .j_how = KV_MERGE_SPILL,
			 .j_asked = is_asked(kvs) };
	uint64_t keys = 0;
	unsigned first = tr->tr_nupper;

	for (uint32_t i = 0; i < tr->tr_nleaf; i++) {
		const struct kv_leaf_runs *lr = &tr->tr_leaf[i];

		if (!CHECK(576, lr->lr_n < KV_LEAF_RUNS_MAX) ||
		    kv_split_is_due(db, tr, &tr->tr_run[lr->lr_first], lr->lr_n))
			return 0;
	}
	while (first && keys < db->d_budget.b_leaf_keys && j.j_n < KV_MERGE_MAX) {
		keys += kv_run_desc(tr->tr_run[--first])->rd_keys;
		j.j_n++;
	}
	j.j_in = &tr->tr_run[first];
	if (!j.j_n || !kv_merge_fits(db, j.j_in, j.j_n))
		return 0;
	j.j_forgets = !kv_is_looked_for(db, j.j_in, j.j_n);
	return kv_job_run(&j);
}

/* The leaf with most runs of those in which a merge is due. */
static int merge_leaf(struct kvdb *db, struct kvdb_kvs *kvs, struct kv_tree *tr)
{
	unsigned first, len = 0, most = 0, from = 0;
	uint32_t leaf = 0;

	for (uint32_t i = 0; i < tr->tr_nleaf; i++) {
		const struct kv_leaf_runs *lr = &tr->tr_leaf[i];
		unsigned n = lr->lr_n <= most ? 0 :
			     kv_pick_part(db, tr, &tr->tr_run[lr->lr_first], lr->lr_n, &first);

		if (!n)
			continue;
		most = lr->lr_n;
		leaf = i;
		from = lr->lr_first + first;
		len = n;
	}
	return len ? merge_runs(db, kvs, tr, from, len, leaf) : 0;
}

/* LF5: two neighbours that together are half a leaf become one. */
static int join(struct kvdb *db, struct kvdb_kvs *kvs, struct kv_tree *tr)
{
	for (uint32_t i = 0; i + 1 < tr->tr_nleaf; i++) {
		const struct kv_leaf_runs *a = &tr->tr_leaf[i], *b = a + 1;
		struct kv_job j = { .j_db = db, .j_kvs = kvs, .j_tree = tr, .j_leaf = i,
				    .j_nleaf = 2,
				    .j_in = &tr->tr_run[a->lr_n ? a->lr_first : b->lr_first],
				    .j_n = a->lr_n + b->lr_n };

		if (j.j_n > KV_MERGE_MAX ||
		    kv_runs_keys(j.j_in, j.j_n) >= db->d_budget.b_leaf_keys / 2 ||
		    !kv_merge_fits(db, j.j_in, j.j_n))
			continue;
		j.j_no_tombs = j.j_forgets = !kv_is_looked_for(db, j.j_in, j.j_n);
		return kv_job_run(&j);
	}
	return 0;
}

/* A run that was there when the compaction was asked for. */
static bool has_asked(struct kvdb_kvs *kvs, struct kv_run *const *run, unsigned n)
{
	while (n--)
		if (kv_run_desc(run[n])->rd_id < atomic_load(&kvs->k_compact_run))
			return true;
	return false;
}

/* What was asked for of a store with leaves: all upper runs spill, then each leaf is merged. */
static int leaves_asked(struct kvdb *db, struct kvdb_kvs *kvs, struct kv_tree *tr)
{
	unsigned first, n;
	int rc;

	if (has_asked(kvs, tr->tr_run, tr->tr_nupper)) {
		rc = spill(db, kvs, tr);
		if (!rc)
			rc = merge_leaf(db, kvs, tr);
		return rc ? rc : -ENOSPC;
	}
	for (uint32_t i = 0; i < tr->tr_nleaf; i++) {
		const struct kv_leaf_runs *lr = &tr->tr_leaf[i];
		struct kv_run **run = &tr->tr_run[lr->lr_first];

		n = has_asked(kvs, run, lr->lr_n) ? kv_pick_asked(db, run, lr->lr_n, &first) : 0;
		if (!n)
			continue;
		rc = merge_runs(db, kvs, tr, lr->lr_first + first, n, i);
		return rc ? rc : -ENOSPC;
	}
	kv_compact_merged(kvs);
	return 0;
}

static int merge_asked(struct kvdb *db, struct kvdb_kvs *kvs, struct kv_tree *tr)
{
	unsigned first, n;
	int rc;

	if (tr->tr_nleaf) {
		rc = leaves_asked(db, kvs, tr);
	} else {
		n = kv_pick_asked(db, tr->tr_run, tr->tr_nrun, &first);
		rc = n ? merge_runs(db, kvs, tr, first, n, 0) : 0;
		if (n && !rc)
			rc = -ENOSPC;
		else if (rc >= 0 && !first)
			kv_compact_merged(kvs);
	}
	if (rc < 0 && rc != -ECANCELED)
		kv_compact_end(db, rc);
	return rc == -ENOSPC ? 0 : rc;
}

static int merge_tree(struct kvdb *db, struct kvdb_kvs *kvs, struct kv_tree *tr)
{
	unsigned first, n;
	int rc = 0;

	if (is_asked(kvs))
		return merge_asked(db, kvs, tr);
	if (!tr->tr_nleaf) {
		n = kv_pick_part(db, tr, tr->tr_run, tr->tr_nrun, &first);
		return n ? merge_runs(db, kvs, tr, first, n, 0) : 0;
	}
	/* leaves first, but not for ever */
	if (tr->tr_nupper >= 2 * KV_SPILL_RUNS)
		rc = spill(db, kvs, tr);
	if (!rc)
		rc = merge_leaf(db, kvs, tr);
	if (!rc && (tr->tr_nupper >= KV_SPILL_RUNS || kv_spill_for_space(db, tr)))
		rc = spill(db, kvs, tr);
	return rc ? rc : join(db, kvs, tr);
}

/* ---- moving values ------------------------------------------------------------------------ */

static void has_victim(void *arg, struct kv_seg *s, uint64_t n, uint64_t bytes)
{
	(void)n;
	(void)bytes;
	*(bool *)arg |= atomic_load(&s->sg_victim);
}

/* How many of the runs from the newest on hold all references to victims. */
static unsigned runs_to_victims(struct kv_run **run, unsigned n)
{
	unsigned len = 0;

	for (unsigned i = 0; i < n; i++) {
		bool has = false;

		kv_run_segs(run[i], has_victim, &has);
		if (has)
			len = i + 1;
	}
	return len;
}

/* What a relocation has to do with a store. */
struct move {
	struct kvdb *m_db;
	struct kvdb_kvs *m_kvs;
	struct kv_tree *m_tree;
	uint64_t m_epoch;
	uint8_t m_class;
	bool m_only;
	uint64_t *m_bytes;
};

/* One part: @n runs from @first on, of leaf @leaf if @is_leaf. */
static int move_part(struct move *m, unsigned first, unsigned n, uint32_t leaf, bool is_leaf)
{
	struct kv_run **in = m->m_tree->tr_run + first;
	unsigned len = runs_to_victims(in, n);
	struct kv_job j = { .j_db = m->m_db, .j_kvs = m->m_kvs, .j_tree = m->m_tree, .j_in = in,
			 .j_n = len, .j_leaf = leaf, .j_nleaf = is_leaf };
	struct kv_move *mv;
	int rc;

	if (!len)
		return 0;
	if (len > KV_MERGE_MAX)
		return -EAGAIN;
	j.j_forgets = !kv_is_looked_for(m->m_db, in, len);
	j.j_no_tombs = j.j_forgets && len == n && (is_leaf || !m->m_tree->tr_nleaf);
	rc = kv_move_open(m->m_db, m->m_kvs, m->m_epoch, m->m_class, m->m_only, &mv);
	if (rc)
		return rc;
	j.j_move = mv;
	rc = kv_job_run(&j);
	*m->m_bytes += kv_move_bytes(mv);
	kv_move_close(mv);
	return rc == -ECANCELED ? -EAGAIN : rc;
}

/* The upper runs and each leaf by itself: an edit for each. */
static int move_tree(struct move *m)
{
	struct kv_tree *tr = m->m_tree;
	int rc = move_part(m, 0, tr->tr_nupper, 0, false), did = rc;

	for (uint32_t i = 0; i < tr->tr_nleaf && rc >= 0; i++) {
		rc = move_part(m, tr->tr_leaf[i].lr_first, tr->tr_leaf[i].lr_n, i, true);
		did |= rc;
	}
	return rc < 0 ? rc : did;
}

int kv_merge_move(struct kvdb *db, struct kvdb_kvs *kvs, uint64_t epoch, uint8_t mclass,
		  bool only, uint64_t *bytes)
{
	struct move m = { .m_db = db, .m_kvs = kvs, .m_epoch = epoch, .m_class = mclass,
			  .m_only = only, .m_bytes = bytes };
	struct timespec ts = { .tv_nsec = 1000000 };
	bool busy = false;
	int rc;

	/* G3: the list below the newest run stands still; flushes may add in front */
	while (!atomic_compare_exchange_strong(&kvs->k_merging, &busy, true)) {
		if (kv_fault(db) || kv_work_stopping(db) || kv_reloc_is_cancelled(db))
			return -EAGAIN;
		nanosleep(&ts, NULL);
		busy = false;
	}
	if (atomic_load(&kvs->k_bulk)) {	/* B1 */
		atomic_store(&kvs->k_merging, false);
		return -EAGAIN;
	}
	m.m_tree = kv_tree_get(kvs);
	rc = move_tree(&m);
	kv_tree_put(db, m.m_tree);
	atomic_store(&kvs->k_merging, false);
	return rc;
}

int kv_merge_step(struct kvdb *db, struct kvdb_kvs *kvs)
{
	struct kv_tree *tr;
	bool busy = false;
	int rc;

	if (kv_fault(db) || db->d_rdonly ||
	    !atomic_compare_exchange_strong(&kvs->k_merging, &busy, true))
		return 0;
	if (atomic_load(&kvs->k_bulk)) {	/* B1: its run is to come between two of these */
		if (is_asked(kvs))
			kv_compact_end(db, -EBUSY);
		atomic_store(&kvs->k_merging, false);
		return 0;
	}
	tr = kv_tree_get(kvs);
	rc = merge_tree(db, kvs, tr);
	kv_tree_put(db, tr);
	atomic_store(&kvs->k_merging, false);
	return rc == -ECANCELED ? 0 : rc;
}
