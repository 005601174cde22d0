/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Compaction of runs: which merges of a store are due, which may run at once,
 * and merges that move values. Runs are merged in groups that are neighbours in
 * age, of one leaf, of a store without leaves, or upper runs that spill into
 * all leaves (LEAVES.md). merge_pick.c chooses the runs, merge_job.c
 * merges them.
 *
 * A merge takes its inputs when it is begun and gives them back at its end
 * (LF7, LF8). What is taken is decided under mg_lock by the current tree; the
 * merge itself holds no lock but k_edit_lock while its result is published.
 */
#include <errno.h>
#include <time.h>

#include "compact/merge.h"
#include "base/assert.h"
#include "base/guard.h"
#include "db/bell.h"
#include "db/db.h"
#include "seg/reserve.h"
#include "run/run.h"
#include "tree/leaf.h"
#include "compact/reloc.h"

#define AGAIN_NS 60000000000ull	/* pause of a merge that met the end of the pool */

/* ---- what merges have -------------------------------------------------------------------- */

static bool is_free(struct kv_run *const *run, unsigned n)
{
	while (n--)
		if (run[n]->rn_taken)
			return false;
	return true;
}

/* FS1: it could not be read, and is left alone for a while; a caller's compaction tries it. */
static bool is_stuck(const struct kv_job *j, const struct kv_run *r)
{
	return !j->j_asked && kv_trouble_holds(j->j_db, &r->rn_trouble);
}

static bool has_stuck(const struct kv_job *j, struct kv_run *const *run, unsigned n)
{
	while (n--)
		if (is_stuck(j, run[n]))
			return true;
	return false;
}

/* Number of the newest runs that no merge has taken. */
static unsigned free_runs(const struct kv_job *j, struct kv_run *const *run, unsigned n)
{
	unsigned i = 0;

	KV_ASSERT_HELD(&j->j_kvs->k_merging.mg_lock);
	while (i < n && CHECK(!run[i]->rn_taken) && !is_stuck(j, run[i]))
		i++;
	return i;
}

/* LF8: it changes the bounds of leaves. */
static bool is_shape(const struct kv_job *j)
{
	return j->j_how == KV_MERGE_SPLIT || j->j_nleaf > 1;
}

static bool may_shape(const struct kv_merging *mg)
{
	return CHECK(!mg->mg_spills);
}

static bool may_spill(const struct kv_merging *mg)
{
	return CHECK(!mg->mg_shapes);
}

/* mg_lock held. */
static void job_take(struct kv_job *j, bool takes)
{
	struct kv_merging *mg = &j->j_kvs->k_merging;
	uint32_t one = takes ? 1 : -1u;

	KV_ASSERT_HELD(&mg->mg_lock);
	for (unsigned i = 0; i < j->j_n; i++) {
		KV_ASSERT(j->j_in[i]->rn_taken != takes);
		j->j_in[i]->rn_taken = takes;
	}
	KV_ASSERT(takes || (mg->mg_n && mg->mg_coming >= j->j_coming));
	KV_ASSERT(takes || atomic_load(&j->j_db->d_runs.ru_merge_due) >= j->j_due);
	mg->mg_n += one;
	atomic_fetch_add(&j->j_db->d_runs.ru_merging, one);
	atomic_fetch_add(&j->j_db->d_runs.ru_merge_due, takes ? j->j_due : -j->j_due);
	mg->mg_spills += j->j_how == KV_MERGE_SPILL ? one : 0;
	mg->mg_shapes += is_shape(j) ? one : 0;
	mg->mg_joins += j->j_nleaf > 1 ? one : 0;
	mg->mg_coming += one * j->j_coming;
	KV_ASSERT(!mg->mg_spills || !mg->mg_shapes);	/* LF8 */
}

/* ---- what is due ------------------------------------------------------------------------- */

static bool is_asked(struct kvdb_kvs *kvs)
{
	return atomic_load(&kvs->k_compact) == KV_COMPACT_MERGE;
}

/* Upper runs that leaves may not be made to wait for. */
static bool is_behind(const struct kv_tree *tr)
{
	return tr->tr_nleaf && tr->tr_nupper >= 2 * KV_SPILL_RUNS;
}

/* One part of a store: a leaf, or all runs of a store without leaves. */
struct part {
	struct kv_run **pa_run;
	uint32_t pa_n, pa_leaf;
};

static struct part part_of(struct kv_tree *tr, uint32_t leaf)
{
	if (!tr->tr_nleaf)
		return (struct part){ tr->tr_run, tr->tr_nrun, 0 };
	return (struct part){ tr->tr_run + tr->tr_leaf[leaf].lr_first, tr->tr_leaf[leaf].lr_n,
			      leaf };
}

/* 1, or 0: no room for the output. */
static int plan_some(struct kv_job *j, const struct part *pa, unsigned first, unsigned n)
{
	KV_ASSERT(n && n <= KV_MERGE_MAX && first + n <= pa->pa_n);
	KV_ASSERT(is_free(pa->pa_run + first, n));
	if (!kv_merge_fits(j->j_kvs, pa->pa_run + first, n, 0))
		return 0;
	j->j_in = pa->pa_run + first;
	j->j_n = n;
	j->j_due = kv_merge_output(j->j_in, n, 0);
	j->j_forgets = !kv_is_looked_for(j->j_db, j->j_in, n);
	return 1;
}

/* The same of a part that nothing older lies below, where it may be split. */
static int plan_runs(struct kv_job *j, const struct part *pa, unsigned first, unsigned n,
		     bool splits)
{
	uint64_t keys = kv_runs_keys(pa->pa_run + first, n);
	uint64_t leaf = kv_leaf_keys(j->j_db, pa->pa_run + first, n);

	if (!plan_some(j, pa, first, n))
		return 0;
	j->j_leaf = pa->pa_leaf;
	j->j_nleaf = j->j_tree->tr_nleaf != 0;
	j->j_no_tombs = j->j_forgets && first + n == pa->pa_n;
	if (n < pa->pa_n || !splits || keys <= leaf)
		return 1;
	j->j_cut = kv_leaf_cut(j->j_kvs, j->j_tree, keys, leaf);
	if (j->j_cut) {
		j->j_how = KV_MERGE_SPLIT;
		j->j_coming = (uint32_t)(keys / j->j_cut) + 1;
	}
	return 1;
}

/*
 * Of those in front of a run that is stuck, or else of those behind it: they are merged as if it
 * were not there, but never with each other.
 */
static unsigned pick_beside(struct kv_job *j, const struct part *pa, unsigned *first)
{
	unsigned at = 0, n, len = 0;

	while (at < pa->pa_n && !len) {
		n = free_runs(j, pa->pa_run + at, pa->pa_n - at);
		len = kv_pick_part(j->j_kvs, pa->pa_run + at, n, at + n == pa->pa_n, first);
		*first += at;
		at += n;
		if (at < pa->pa_n && pa->pa_run[at]->rn_taken)
			break;
		at++;
	}
	return len;
}

/*
 * LF2: all of it is to be merged, which splits it. On a full pool one that has no room for that
 * holds up nothing: what is deleted in it, and in others, must come free first. Not so where merges
 * that run now have the room: spills would make more of it than there will ever be room for.
 */
static bool must_split(const struct kv_job *j, const struct part *pa)
{
	return kv_split_is_due(j->j_kvs, j->j_tree, pa->pa_run, pa->pa_n) &&
	       kv_merge_will_fit(j->j_kvs, pa->pa_run, pa->pa_n);
}

/* Which runs of a part. 0: none that may be merged now. */
static unsigned pick(struct kv_job *j, const struct part *pa, unsigned *first)
{
	unsigned n = free_runs(j, pa->pa_run, pa->pa_n);

	*first = 0;
	if (has_stuck(j, pa->pa_run, pa->pa_n))
		return pick_beside(j, pa, first);
	if (must_split(j, pa))
		return n == pa->pa_n && may_shape(&j->j_kvs->k_merging) ? n : 0;
	return kv_pick_part(j->j_kvs, pa->pa_run, n, n == pa->pa_n, first);
}

/*
 * On a full pool: the same, or as many fewer as there is room for. A leaf whose runs cannot be
 * merged would otherwise hold up all spills for good, and with them the deletions that make room.
 */
static unsigned pick_fitting(struct kv_job *j, const struct part *pa, unsigned *first)
{
	unsigned n = pick(j, pa, first);

	if (!n || kv_merge_fits(j->j_kvs, pa->pa_run + *first, n, 0))
		return n;
	if (has_stuck(j, pa->pa_run, pa->pa_n))
		return 0;
	return kv_pick_fitting(j->j_kvs, pa->pa_run, free_runs(j, pa->pa_run, pa->pa_n), first);
}

/*
 * LF4: the oldest upper runs, until they have as many keys as a leaf. Not while a leaf is behind
 * with its own merges.
 */
static int plan_spill(struct kv_job *j)
{
	struct kv_tree *tr = j->j_tree;
	unsigned first = tr->tr_nupper, n = 0;
	uint64_t keys = 0, leaf = kv_leaf_keys(j->j_db, tr->tr_run, first);

	if (!may_spill(&j->j_kvs->k_merging))
		return 0;
	for (uint32_t i = 0; i < tr->tr_nleaf; i++) {
		struct part pa = part_of(tr, i);

		/* one with a run that is stuck may stay as it is for long: no other waits for it */
		if (has_stuck(j, pa.pa_run, pa.pa_n))
			continue;
		if (!CHECK(pa.pa_n < KV_LEAF_RUNS_MAX) || must_split(j, &pa))
			return 0;
	}
	while (first && keys < leaf && n < KV_MERGE_MAX &&
	       free_runs(j, &tr->tr_run[first - 1], 1)) {
		keys += kv_run_desc(tr->tr_run[--first])->rd_keys;
		n++;
	}
	/* with little room fewer of them */
	while (n && !kv_merge_fits(j->j_kvs, &tr->tr_run[first], n, tr->tr_nleaf)) {
		first++;
		n--;
	}
	if (!n)
		return 0;
	j->j_in = &tr->tr_run[first];
	j->j_n = n;
	j->j_due = kv_merge_output(j->j_in, n, tr->tr_nleaf);
	j->j_how = KV_MERGE_SPILL;
	j->j_forgets = !kv_is_looked_for(j->j_db, j->j_in, j->j_n);
	return 1;
}

/* The leaf with most runs of those in which a merge is due. */
static int plan_leaf(struct kv_job *j)
{
	unsigned at = 0, len = 0, most = 0, first;
	struct part best = { 0 };

	for (uint32_t i = 0; i < j->j_tree->tr_nleaf; i++) {
		struct part pa = part_of(j->j_tree, i);
		unsigned n = pa.pa_n <= most ? 0 : pick_fitting(j, &pa, &first);

		/* one that has no room does not hold up another */
		if (!n)
			continue;
		best = pa;
		most = pa.pa_n;
		at = first;
		len = n;
	}
	if (!len)
		return 0;
	/* those that may wait do not hold up a spill that may not */
	return plan_runs(j, &best, at, len, may_shape(&j->j_kvs->k_merging) &&
			 (!is_behind(j->j_tree) ||
			  must_split(j, &best)));
}

/* LF5: of two neighbours that together are half a leaf those with the fewest keys. */
static int plan_join(struct kv_job *j)
{
	struct kv_merging *mg = &j->j_kvs->k_merging;
	struct kv_tree *tr = j->j_tree;
	uint64_t least = j->j_db->d_budget.b_leaf_keys / 2;

	if (mg->mg_joins || !may_shape(mg))
		return 0;
	for (uint32_t i = 0; i + 1 < tr->tr_nleaf; i++) {
		const struct kv_leaf_runs *a = &tr->tr_leaf[i], *b = a + 1;
		struct kv_run **in = &tr->tr_run[a->lr_n ? a->lr_first : b->lr_first];
		unsigned n = a->lr_n + b->lr_n;

		if (n > KV_MERGE_MAX || kv_runs_keys(in, n) >= least ||
		    kv_runs_bytes(in, n) > j->j_db->d_budget.b_leaf_bytes / 2 ||
		    free_runs(j, in, n) < n ||
		    !kv_merge_fits(j->j_kvs, in, n, 0))
			continue;
		least = kv_runs_keys(in, n);
		j->j_in = in;
		j->j_n = n;
		j->j_leaf = i;
		j->j_nleaf = 2;
	}
	if (!j->j_nleaf)
		return 0;
	j->j_due = kv_merge_output(j->j_in, j->j_n, 0);
	j->j_no_tombs = j->j_forgets = !kv_is_looked_for(j->j_db, j->j_in, j->j_n);
	return 1;
}

/* ---- what was asked for ------------------------------------------------------------------ */

/* A run that was there when the compaction was asked for. */
static bool has_asked(const struct kv_job *j, struct kv_run *const *run, unsigned n)
{
	while (n--)
		if (kv_run_desc(run[n])->rd_id < j->j_asked_run)
			return true;
	return false;
}

/* 1, 0: nothing may begin now, -ENOENT: there is nothing left to do. */
static int plan_asked_part(struct kv_job *j, const struct part *pa)
{
	unsigned first, n = kv_pick_asked(j->j_db, pa->pa_run, pa->pa_n, &first);

	if (!n)
		return -ENOENT;
	j->j_is_last = !j->j_tree->tr_nleaf && !first;
	return is_free(pa->pa_run, pa->pa_n) ?
	       plan_runs(j, pa, first, n, may_shape(&j->j_kvs->k_merging)) : 0;
}

/* Of a store with leaves: all upper runs spill, then each leaf is merged. */
static int plan_asked_leaves(struct kv_job *j)
{
	struct kv_tree *tr = j->j_tree;
	int rc, all = -ENOENT;

	if (has_asked(j, tr->tr_run, tr->tr_nupper)) {
		rc = plan_spill(j);
		return rc ? rc : plan_leaf(j);
	}
	for (uint32_t i = 0; i < tr->tr_nleaf; i++) {
		struct part pa = part_of(tr, i);

		rc = has_asked(j, pa.pa_run, pa.pa_n) ? plan_asked_part(j, &pa) : -ENOENT;
		if (rc > 0)
			return rc;
		all = rc == -ENOENT ? all : rc;
	}
	return all;
}

/* Nothing may begin, and no running job could change that: no room. */
static int plan_asked(struct kv_job *j)
{
	struct part all = part_of(j->j_tree, 0);
	int rc = j->j_tree->tr_nleaf ? plan_asked_leaves(j) : plan_asked_part(j, &all);

	KV_ASSERT_HELD(&j->j_kvs->k_merging.mg_lock);
	if (rc == -ENOENT)
		kv_compact_merged(j->j_kvs, j->j_asked_run);
	else if (!rc && !j->j_kvs->k_merging.mg_n)
		kv_compact_end(j->j_db, -ENOSPC);
	return rc > 0;
}

/*
 * Upper runs that cannot spill, for one of them is stuck: meanwhile they become fewer by merges
 * among themselves.
 */
static int plan_upper(struct kv_job *j)
{
	struct kv_tree *tr = j->j_tree;
	struct part upper = { tr->tr_run, tr->tr_nupper, 0 };
	unsigned first, n;

	if (!has_stuck(j, tr->tr_run, tr->tr_nupper))
		return 0;
	n = pick_beside(j, &upper, &first);
	return n > 1 ? plan_some(j, &upper, first, n) : 0;
}

/* ---- one merge after the other ---------------------------------------------------------- */

static int plan(struct kv_job *j)
{
	struct kv_tree *tr = j->j_tree;
	struct part all = part_of(tr, 0);
	unsigned first, n;
	int rc = 0;

	KV_ASSERT_HELD(&j->j_kvs->k_merging.mg_lock);
	if (j->j_asked)
		return plan_asked(j);
	if (!tr->tr_nleaf) {
		n = pick_fitting(j, &all, &first);
		return n ? plan_runs(j, &all, first, n, true) : 0;
	}
	/* leaves first, but not for ever */
	if (is_behind(tr))
		rc = plan_spill(j);
	if (!rc)
		rc = plan_leaf(j);
	if (!rc && (tr->tr_nupper >= KV_SPILL_RUNS || kv_spill_for_space(j->j_db, tr)))
		rc = plan_spill(j);
	if (!rc)
		rc = plan_upper(j);
	return rc ? rc : plan_join(j);
}

/*
 * LF10: a merge that met the end of the pool would do so again. Until the pool has twice the
 * room less is begun, by half with each that fails. What was missing may have been room for
 * metadata, of which the bytes that are free say nothing: so no longer than a minute. mg_lock held.
 */
static void note_no_room(struct kv_job *j)
{
	struct kv_backoff *bo = &j->j_kvs->k_merging.mg_no_room;

	KV_ASSERT_HELD(&j->j_kvs->k_merging.mg_lock);
	j->j_room.bo_at = !kv_backoff_is_active(j->j_db, bo) ? 1 : bo->bo_at + (bo->bo_at < 32);
	*bo = j->j_room;
	bo->bo_ns = kv_now(j->j_db) + AGAIN_NS;
}

int kv_merge_begin(struct kvdb *db, struct kvdb_kvs *kvs, struct kv_job *j)
{
	struct kv_merging *mg = &kvs->k_merging;
	int rc = 0;

	KV_ASSERT_OUTSIDE();
	/* before the tree is read, which then has all runs to merge */
	*j = (struct kv_job){ .j_db = db, .j_kvs = kvs, .j_asked = is_asked(kvs),
			      .j_asked_run = atomic_load(&kvs->k_compact_run) };
	pthread_mutex_lock(&mg->mg_lock);
	/* what others have published is in the tree, what they have not is taken */
	j->j_tree = kv_tree_get(kvs);
	if (atomic_load(&kvs->k_bulk)) {	/* B1: its run is to come between two of these */
		if (j->j_asked)
			kv_compact_end(db, -EBUSY);
	} else if (!mg->mg_moves && (j->j_asked || !kv_trouble_holds(db, &mg->mg_trouble))) {
		rc = plan(j);
	}
	if (rc) {
		kv_backoff_set(db, &j->j_room, 0);
		job_take(j, true);
	}
	pthread_mutex_unlock(&mg->mg_lock);
	if (!rc)
		kv_tree_put(db, j->j_tree);
	return rc;
}

/*
 * FS1, FS2: runs that could not be read have been blamed; else it was what was read from all of
 * them together, or what was written.
 */
static void note_trouble(struct kv_job *j, int rc)
{
	if (rc > 0) {
		for (unsigned i = 0; i < j->j_n; i++)
			kv_trouble_end(j->j_db, &j->j_in[i]->rn_trouble);
		kv_trouble_end(j->j_db, &j->j_kvs->k_merging.mg_trouble);
	} else if (rc == -EUCLEAN && !kv_job_blames(j)) {
		for (unsigned i = 0; i < j->j_n; i++)
			kv_run_blame(j->j_db, j->j_in[i], rc);
	} else if (rc == -EIO && !kv_job_blames(j)) {
		kv_trouble_set(j->j_db, &j->j_kvs->k_merging.mg_trouble, rc,
			       "merges of store %s", j->j_kvs->k_name);
	}
}

void kv_merge_end(struct kv_job *j, int rc)
{
	KV_ASSERT_OUTSIDE();
	if (!j->j_move)
		note_trouble(j, rc);
	pthread_mutex_lock(&j->j_kvs->k_merging.mg_lock);
	job_take(j, false);
	j->j_kvs->k_merging.mg_failed = rc < 0;
	if (rc == -ENOSPC && !j->j_move)
		(void)BARRIER((note_no_room(j), 0));
	if (rc > 0 && j->j_is_last)
		kv_compact_merged(j->j_kvs, j->j_asked_run);
	pthread_mutex_unlock(&j->j_kvs->k_merging.mg_lock);
	kv_tree_put(j->j_db, j->j_tree);
}

/* May a merge begin that makes runs fewer? mg_lock held. */
static bool may_help(struct kvdb_kvs *kvs)
{
	const struct kv_merging *mg = &kvs->k_merging;

	KV_ASSERT_HELD(&kvs->k_merging.mg_lock);
	return !mg->mg_failed && !kv_backoff_is_active(kvs->k_db, &mg->mg_no_room) &&
	       !kv_trouble_holds(kvs->k_db, &mg->mg_trouble) && !atomic_load(&kvs->k_bulk);
}

bool kv_merge_may_help(struct kvdb_kvs *kvs)
{
	bool may;

	/* the holder of the lock plans or ends a merge */
	if (pthread_mutex_trylock(&kvs->k_merging.mg_lock))
		return true;
	may = may_help(kvs);
	pthread_mutex_unlock(&kvs->k_merging.mg_lock);
	return may;
}

bool kv_merge_is_behind(struct kvdb_kvs *kvs, uint32_t upper)
{
	struct kv_tree *tr;
	bool is;

	pthread_mutex_lock(&kvs->k_merging.mg_lock);
	tr = kv_tree_get(kvs);
	is = kv_tree_flushed(tr) >= upper && may_help(kvs);
	pthread_mutex_unlock(&kvs->k_merging.mg_lock);
	kv_tree_put(kvs->k_db, tr);
	return is;
}

bool kv_merge_is_busy(struct kvdb_kvs *kvs)
{
	bool is;

	pthread_mutex_lock(&kvs->k_merging.mg_lock);
	is = kvs->k_merging.mg_n;
	pthread_mutex_unlock(&kvs->k_merging.mg_lock);
	return is;
}

int kv_merge_step(struct kvdb *db, struct kvdb_kvs *kvs)
{
	unsigned tries = 0;
	struct kv_job j;
	int rc;

	do {
		if (kv_fault(db) || db->d_mode.md_rdonly || !kv_merge_begin(db, kvs, &j))
			return 0;
		rc = kv_job_run(&j);
		kv_merge_end(&j, rc);
	} while (kv_retry_allowed(db, rc, &tries));
	if (rc < 0 && rc != -ECANCELED && j.j_asked)
		kv_compact_give_up(kvs, rc);
	/* what was taken may be what another one waits for */
	kv_work_kick(db);
	/* other stores, and relocation, may go on (FS1), and bring room (LF10) */
	return rc == -ECANCELED || rc == -ENOSPC || kv_is_local(db, rc) ? 0 : rc;
}

/* ---- moving values ------------------------------------------------------------------------ */

struct looked {
	bool lo_whole, lo_has;
};

static void has_victim(void *arg, struct kv_seg *s, uint64_t n, uint64_t bytes)
{
	struct looked *lo = arg;

	(void)n;
	(void)bytes;
	lo->lo_has |= kv_is_victim(s, lo->lo_whole);
}

unsigned kv_runs_to_victims(struct kv_run *const *run, unsigned n, bool whole, unsigned *first)
{
	unsigned len = 0;

	*first = n;
	for (unsigned i = 0; i < n; i++) {
		struct looked lo = { .lo_whole = whole };

		kv_run_segs(run[i], has_victim, &lo);
		if (!lo.lo_has)
			continue;
		len = i + 1;
		if (*first > i)
			*first = i;
	}
	if (!len)
		*first = 0;
	KV_ASSERT(*first <= len && len <= n);
	return len;
}

/* What a relocation has to do with a store. */
struct move {
	struct kvdb *m_db;
	struct kvdb_kvs *m_kvs;
	uint64_t m_epoch;
	uint8_t m_class;
	bool m_only, m_whole;
	uint64_t *m_bytes;
	struct kv_leaf *m_leaf;	/* where it is, with a reference; NULL: upper runs */
};

/* The part of the current tree where the move is: leaves may have been split and joined. */
static struct part move_at(const struct move *m, struct kv_job *j)
{
	struct kv_tree *tr = j->j_tree;

	if (!m->m_leaf || !tr->tr_nleaf)
		return (struct part){ tr->tr_run, tr->tr_nupper, 0 };
	j->j_nleaf = 1;
	j->j_leaf = kv_leaf_of(tr, m->m_leaf->lf_key, m->m_leaf->lf_klen);
	return part_of(tr, j->j_leaf);
}

/* Waits until no other job has its input; meanwhile none takes more. mg_lock held. */
static int move_wait(struct move *m, struct kv_job *j, struct part *pa, unsigned *above,
		     unsigned *len)
{
	struct kv_merging *mg = &m->m_kvs->k_merging;
	struct timespec ts = { .tv_nsec = 1000000 };
	int rc = 0;

	KV_ASSERT_HELD(&mg->mg_lock);
	mg->mg_moves++;
	for (;;) {
		j->j_tree = kv_tree_get(m->m_kvs);
		*pa = move_at(m, j);
		*len = kv_runs_to_victims(pa->pa_run, pa->pa_n, m->m_whole, above);
		if (atomic_load(&m->m_kvs->k_bulk))	/* B1 */
			rc = -EAGAIN;
		if (rc || CHECK(is_free(pa->pa_run + *above, *len - *above)))
			break;
		pthread_mutex_unlock(&mg->mg_lock);
		kv_tree_put(m->m_db, j->j_tree);
		if (kv_fault(m->m_db) || kv_work_stopping(m->m_db) ||
		    kv_reloc_is_cancelled(m->m_db))
			rc = -EAGAIN;
		else
			nanosleep(&ts, NULL);
		pthread_mutex_lock(&mg->mg_lock);
	}
	KV_ASSERT(mg->mg_moves);
	KV_ASSERT(*above <= *len && *len <= pa->pa_n);
	mg->mg_moves--;
	return rc;
}

/*
 * Upper runs that hide what they hold from a move in a leaf: so many. What they hide was counted
 * as dead (G3), unless one of them is stuck: then as live (FS1). More than so many: ordinary merges
 * come first.
 */
static unsigned upper_that_hide(const struct kv_job *j)
{
	const struct kv_tree *tr = j->j_tree;

	if (!j->j_nleaf || tr->tr_nupper > KV_MERGE_MAX || has_stuck(j, tr->tr_run, tr->tr_nupper))
		return 0;
	return BARRIER(true) ? tr->tr_nupper : 0;
}

/*
 * G3: from the newest run of the part to the oldest that refer to victims. 1, 0, -errno. FS1: a
 * part that would read a run that is stuck stays as it is.
 */
static int move_begin(struct move *m, struct kv_job *j)
{
	unsigned above = 0, len = 0;
	struct part pa;
	int rc;

	pthread_mutex_lock(&m->m_kvs->k_merging.mg_lock);
	rc = move_wait(m, j, &pa, &above, &len);
	if (!rc)
		rc = len > KV_MERGE_MAX ? -EAGAIN : len && !has_stuck(j, pa.pa_run, len);
	if (rc > 0) {
		j->j_in = pa.pa_run + above;
		j->j_n = len - above;
		j->j_nabove = above;
		j->j_nupper = upper_that_hide(j);
		KV_ASSERT(j->j_n && j->j_nabove + j->j_n <= KV_MERGE_MAX);
		j->j_forgets = !kv_is_looked_for(m->m_db, j->j_in, j->j_n);
		j->j_no_tombs = j->j_forgets && len == pa.pa_n &&
				(j->j_nleaf || !j->j_tree->tr_nleaf);
	}
	job_take(j, true);
	pthread_mutex_unlock(&m->m_kvs->k_merging.mg_lock);
	return rc;
}

static int move_run(struct move *m, struct kv_job *j)
{
	int rc = kv_move_open(m->m_db, m->m_kvs, m->m_epoch, m->m_class, m->m_only, m->m_whole,
			      &j->j_move);

	if (rc)
		return rc;
	rc = kv_job_run(j);
	*m->m_bytes += kv_move_bytes(j->j_move);
	kv_move_close(j->j_move);
	return rc == -ECANCELED ? -EAGAIN : rc;
}

/* One part, with an edit of its own; m_leaf goes on to the next one, NULL after the last. */
static int move_part(struct move *m)
{
	struct kv_job j = { .j_db = m->m_db, .j_kvs = m->m_kvs };
	int rc = move_begin(m, &j);
	uint32_t next = j.j_nleaf ? j.j_leaf + 1 : 0;

	kv_leaf_put(m->m_leaf);
	m->m_leaf = next < j.j_tree->tr_nleaf ? kv_leaf_get(j.j_tree->tr_leaf[next].lr_leaf) :
						NULL;
	if (rc > 0)
		rc = move_run(m, &j);
	if (kv_is_local(m->m_db, rc) && !kv_job_blames(&j))
		kv_reloc_failed(m->m_db, rc);
	kv_merge_end(&j, rc);
	return rc;
}

int kv_merge_move(struct kvdb *db, struct kvdb_kvs *kvs, uint64_t epoch, uint8_t mclass,
		  bool only, bool whole, uint64_t *bytes)
{
	struct move m = { .m_db = db, .m_kvs = kvs, .m_epoch = epoch, .m_class = mclass,
			  .m_only = only, .m_whole = whole, .m_bytes = bytes };
	int rc, did = 0, failed = 0;

	/* references only go from upper runs into leaves, and to those that come later */
	do {
		rc = move_part(&m);
		did |= rc > 0;
		/* FS1: the other parts go on */
		if (kv_is_local(db, rc)) {
			failed = rc;
			rc = 0;
		}
	} while (rc >= 0 && m.m_leaf);
	kv_leaf_put(m.m_leaf);
	return rc < 0 ? rc : failed ? failed : did;
}
