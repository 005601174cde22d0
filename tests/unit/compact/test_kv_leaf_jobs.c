/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Merges and moves that run at once in a store with leaves, see tree/leaf.h and LF7, LF8. */
#include "kv_leaves.h"

/* ---- merges at once ------------------------------------------------------------------- */

#define JOBS	3u

static struct kv_job *begun[JOBS];
static unsigned most_begun, beside_spill, ended[3], joined;

/* LF7, LF8, by what the merges are. */
static void check_begun(void)
{
	unsigned n = 0, spills = 0, shapes = 0, joins = 0;

	for (unsigned i = 0; i < JOBS; i++) {
		const struct kv_job *a = begun[i];

		if (!a)
			continue;
		n++;
		spills += a->j_how == KV_MERGE_SPILL;
		joins += a->j_nleaf > 1;
		shapes += a->j_how == KV_MERGE_SPLIT || a->j_nleaf > 1;
		for (unsigned k = i + 1; k < JOBS; k++)
			for (unsigned x = 0; begun[k] && x < a->j_n * begun[k]->j_n; x++)
				T_OK(a->j_in[x % a->j_n] != begun[k]->j_in[x / a->j_n]);
	}
	T_OK(joins <= 1 && spills <= 1 && (!spills || !shapes));
	beside_spill += spills && n > 1;
	most_begun = n > most_begun ? n : most_begun;
}

static void begin_one(void)
{
	unsigned at = 0;

	while (at < JOBS && begun[at])
		at++;
	if (at == JOBS)
		return;
	begun[at] = malloc(sizeof(*begun[at]));
	T_OK(begun[at]);
	if (!kv_merge_begin(db, kvs, begun[at])) {
		free(begun[at]);
		begun[at] = NULL;
	}
	check_begun();
}

static void end_one(unsigned at)
{
	if (!begun[at])
		return;
	T_EQ(kv_job_run(begun[at]), 1);
	kv_merge_end(begun[at], 1);
	ended[begun[at]->j_how]++;
	joined += begun[at]->j_nleaf > 1;
	free(begun[at]);
	begun[at] = NULL;
	shape();
}

/* Merges that were begun end in any order, flushes and views come in between. */
/* Every kind of merge came to its end, and some beside others. */
static bool all_was_seen(void)
{
	return ended[KV_MERGE_SPILL] && ended[KV_MERGE_SPLIT] && joined && most_begun >= 2 &&
	       beside_spill;
}

static void merges_run_beside_each_other(void)
{
	static uint32_t snap[KEYS];
	struct kvdb_cursor *c;

	fresh();
	for (unsigned i = 0; i < KEYS; i++)
		put(i);
	flush();
	for (unsigned round = 0; round < 20 || (round < 200 && (round % 5 || !all_was_seen()));
	     round++) {
		memcpy(snap, model, sizeof(snap));
		T_EQ(kvdb_cursor_open(kvs, 0, NULL, 0, &c), 0);
		/* at last there is more time to merge than to write */
		for (unsigned i = 0; i < (round % 10 < 7 ? 24 : 100); i++) {
			unsigned what = t_rand(&rnd) % (round % 10 < 7 ? 4 : 64);

			if (!what) {
				change(50);
				flush();
			} else if (what % 2) {
				end_one(t_rand(&rnd) % JOBS);
			} else {
				begin_one();
			}
		}
		check_cursor(c, snap);
		kvdb_cursor_close(c);
		check_all();
		if (round % 10 == 6)
			del_range(0, KEYS - t_rand(&rnd) % 500);
		if (round % 10 == 9)
			for (unsigned i = 0; i < KEYS; i++)
				put(i);
		if (round % 5 != 4)
			continue;
		for (unsigned i = 0; i < JOBS; i++)
			end_one(i);
		T_OK(!kv_merge_is_busy(kvs));
		reopen();
		check_all();
	}
	printf("# %u merges at once, %u beside a spill; %u spills, %u splits, %u joins\n",
	       most_begun, beside_spill, ended[KV_MERGE_SPILL], ended[KV_MERGE_SPLIT], joined);
	T_OK(all_was_seen());
	merge_all();
	check_all();
	done();
}

static void upper_runs(unsigned n)
{
	while (shape().upper < n) {
		put(t_rand(&rnd) % KEYS);
		flush();
	}
}

/* LF8 */
static void no_leaf_changes_beside_a_spill(void)
{
	struct kv_job a, b;

	kv_tree_put(db, with_leaves());
	upper_runs(2 * KV_SPILL_RUNS);
	for (unsigned round = 0; round < 2; round++) {
		/* a split first, then a spill */
		db->d_budget.b_leaf_keys = round ? LEAF : LEAF / 8;
		T_EQ(kv_merge_begin(db, kvs, &a), 1);
		T_EQ(a.j_how, round ? KV_MERGE_SPILL : KV_MERGE_SPLIT);
		db->d_budget.b_leaf_keys = round ? LEAF / 8 : LEAF;
		if (kv_merge_begin(db, kvs, &b)) {
			T_OK(b.j_how == KV_MERGE_ONE && b.j_nleaf == 1);
			T_EQ(kv_job_run(&b), 1);
			kv_merge_end(&b, 1);
		}
		T_EQ(kv_job_run(&a), 1);
		kv_merge_end(&a, 1);
		db->d_budget.b_leaf_keys = LEAF;
	}
	check_all();
	done();
}

static void mark_victim(void *arg, struct kv_seg *s)
{
	(void)arg;
	if (atomic_load(&s->sg_state) == KV_SEG_SEALED)
		atomic_store(&s->sg_victim, true);
}

static _Atomic(bool) has_moved;

static void *mover(void *arg)
{
	uint64_t bytes = 0;

	(void)arg;
	T_OK(kv_merge_move(db, kvs, kv_min_horizon(db), MPOOL_CAPACITY, false, false, &bytes) >= 0);
	T_OK(bytes > 0);
	atomic_store(&has_moved, true);
	return NULL;
}

/* Values move in runs that are not merged: the move waits for the merge, no other begins. */
static void a_move_waits_for_the_merge_of_its_runs(void)
{
	struct timespec ts = { .tv_nsec = 50000000 };
	struct kv_job j, other;
	pthread_t t;

	fresh();
	for (unsigned round = 0; round < 4; round++) {
		for (unsigned i = 0; i < KEYS; i += 7)
			put(i);
		flush();
	}
	T_EQ(kv_merge_begin(db, kvs, &j), 1);
	T_OK(kv_segs_seal_now(db) >= 0);
	kv_segs_each(db, mark_victim, NULL);
	atomic_store(&has_moved, false);
	T_EQ(pthread_create(&t, NULL, mover, NULL), 0);
	nanosleep(&ts, NULL);
	T_OK(!atomic_load(&has_moved));
	for (unsigned i = 0; i < 8; i++) {
		put(i);
		flush();
	}
	T_EQ(kv_merge_begin(db, kvs, &other), 0);
	T_EQ(kv_job_run(&j), 1);
	kv_merge_end(&j, 1);
	T_EQ(pthread_join(t, NULL), 0);
	check_all();
	merge_all();
	reopen();
	check_all();
	done();
}

static uint64_t keys_in_leaves(void)
{
	struct kv_tree *tr = kv_tree_get(kvs);
	uint64_t n = kv_runs_keys(tr->tr_run + tr->tr_nupper, tr->tr_nrun - tr->tr_nupper);

	kv_tree_put(db, tr);
	return n;
}

/* G3: a job counts it as dead; if the move took it along, it would be dead once more. */
static void a_move_in_a_leaf_leaves_out_what_upper_runs_hide(void)
{
	unsigned left = 0;
	uint64_t bytes = 0;

	kv_tree_put(db, with_leaves());
	T_EQ(keys_in_leaves(), KEYS);
	for (unsigned i = 0; i < KEYS; i += 3)
		put(i);
	flush();
	for (unsigned i = 1; i < KEYS; i += 6)
		del(i);
	del_range(KEYS / 2, KEYS / 2 + 100);
	flush();
	for (unsigned i = 0; i < KEYS; i++)
		left += i % 3 && model[i];
	T_EQ(shape().upper, 2);
	T_OK(kv_segs_seal_now(db) >= 0);
	kv_segs_each(db, mark_victim, NULL);
	T_EQ(kv_merge_move(db, kvs, kv_min_horizon(db), MPOOL_CAPACITY, false, false, &bytes), 1);
	T_OK(shape().upper > 0);
	T_EQ(keys_in_leaves(), left);
	check_all();
	merge_all();
	check_all();
	reopen();
	check_all();
	done();
}

/*
 * FS1: what an upper run hides counts as live while that run cannot be read, and so it moves; a part
 * with such a run stays as it is. Else each job would meet the run that the next one leaves out.
 */
static void a_move_reads_no_run_that_is_stuck(void)
{
	uint64_t bytes = 0;
	struct kv_tree *tr;

	kv_tree_put(db, with_leaves());
	for (unsigned i = 0; i < KEYS; i += 3)
		put(i);
	flush();
	T_EQ(shape().upper, 1);
	T_OK(kv_segs_seal_now(db) >= 0);
	kv_segs_each(db, mark_victim, NULL);
	tr = kv_tree_get(kvs);
	kv_run_blame(db, tr->tr_run[0], -EUCLEAN);
	T_EQ(kv_merge_move(db, kvs, kv_min_horizon(db), MPOOL_CAPACITY, false, false, &bytes), 1);
	T_OK(bytes > 0);
	T_EQ(keys_in_leaves(), KEYS);
	T_EQ(shape().upper, 1);
	for (uint32_t i = 0; i < tr->tr_nrun; i++)
		kv_trouble_end(db, &tr->tr_run[i]->rn_trouble);
	kv_tree_put(db, tr);
	check_all();
	/* now all of them are */
	tr = kv_tree_get(kvs);
	for (uint32_t i = 0; i < tr->tr_nrun; i++)
		kv_run_blame(db, tr->tr_run[i], -EUCLEAN);
	bytes = 0;
	T_EQ(kv_merge_move(db, kvs, kv_min_horizon(db), MPOOL_CAPACITY, false, false, &bytes), 0);
	T_EQ(bytes, 0);
	for (uint32_t i = 0; i < tr->tr_nrun; i++)
		kv_trouble_end(db, &tr->tr_run[i]->rn_trouble);
	kv_tree_put(db, tr);
	merge_all();
	check_all();
	done();
}

/* Else nothing that is logged while it runs could be emptied. */
static void a_merge_lets_go_of_memtables(void)
{
	struct kv_job j;

	fresh();
	for (unsigned round = 0; round < 4; round++) {
		for (unsigned i = 0; i < KEYS; i += 7)
			put(i);
		flush();
	}
	put(0);
	T_EQ(kv_merge_begin(db, kvs, &j), 1);
	flush();
	kv_retire_barrier();
	T_OK(kv_mt_oldest_epoch(db) != UINT64_MAX);
	T_EQ(kv_job_run(&j), 1);
	kv_retire_barrier();
	T_EQ(kv_mt_oldest_epoch(db), UINT64_MAX);
	kv_merge_end(&j, 1);
	check_all();
	done();
}

int main(void)
{
	T_RUN(merges_run_beside_each_other);
	T_RUN(no_leaf_changes_beside_a_spill);
	T_RUN(a_move_waits_for_the_merge_of_its_runs);
	T_RUN(a_move_in_a_leaf_leaves_out_what_upper_runs_hide);
	T_RUN(a_move_reads_no_run_that_is_stuck);
	T_RUN(a_merge_lets_go_of_memtables);
	return t_done();
}
