/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Leaves, small ones, on a real database: splits, spills and joins while readers
 * of all kinds are compared with a model; their bounds on work and runs.
 */
#include "kv_leaves.h"
#include "meta/edit.h"

static void readers_see_the_model_through_splits_spills_and_joins(void)
{
	static uint32_t snap[KEYS];
	struct kvdb_cursor *c;
	struct kvdb_stats st;
	unsigned most = 0;

	fresh();
	for (unsigned round = 0; round < 12; round++) {
		for (unsigned i = 0; i < 5; i++) {
			change(round < 8 ? 200 : 60);
			flush();
		}
		change(20);
		memcpy(snap, model, sizeof(snap));
		T_EQ(kvdb_cursor_open(kvs, 0, NULL, 0, &c), 0);
		change(20);
		merge_all();
		check_all();
		check_cursor(c, snap);
		kvdb_cursor_close(c);
		if (round % 3 == 2) {
			reopen();
			check_all();
		}
		if (shape().leaves > most)
			most = shape().leaves;
		if (round == 8)
			del_range(0, KEYS);
	}
	T_EQ(kvdb_stats(db, &st), 0);
	printf("# %u leaves at most, %u at the end\n", most, shape().leaves);
	T_OK(most >= 6);
	done();
}

/* kvdb_compact(): one run in each leaf, no upper ones. */
static void compaction_leaves_one_run_in_each_leaf(void)
{
	struct kvdb_kvs_info in;

	fresh();
	for (unsigned i = 0; i < KEYS; i++)
		put(i);
	flush();
	merge_all();
	for (unsigned i = 0; i < 5; i++) {
		change(100);
		flush();
	}
	T_EQ(kvdb_kvs_compact(kvs, KVDB_COMPACT_WAIT), 0);
	check_all();
	T_EQ(shape().upper, 0);
	T_EQ(shape().depth, 1);
	T_EQ(kvdb_kvs_info(kvs, &in), 0);
	T_EQ(in.range_tombs, 0);
	T_EQ(kvdb_compact(db, KVDB_COMPACT_WAIT), 0);
	check_all();
	done();
}

static void leaves_that_emptied_join(void)
{
	struct kvdb_stats st;

	fresh();
	for (unsigned i = 0; i < KEYS; i++)
		put(i);
	flush();
	merge_all();
	T_OK(shape().leaves >= KEYS / LEAF);
	check_all();
	for (unsigned i = 0; i < KEYS; i++)
		if (i % 50)
			del(i);
	flush();
	merge_all();
	check_all();
	T_EQ(kvdb_stats(db, &st), 0);
	printf("# %u leaves after %" PRIu64 " splits and %" PRIu64 " joins\n", shape().leaves,
	       st.splits, st.joins);
	T_OK(shape().leaves < 4);
	T_OK(st.joins > 2);
	reopen();
	check_all();
	done();
}

/* LF2: what the largest merge reads does not grow with the store. */
static void the_work_of_a_merge_is_bounded_while_the_store_grows(void)
{
	struct kvdb_stats st;
	uint64_t flushed = 100;

	fresh();
	for (unsigned at = 0; at < KEYS; at += flushed) {
		/* all over the keys: every flush meets every leaf */
		for (unsigned i = 0; i < flushed; i++)
			put(((at + i) * 1021) % KEYS);
		flush();
		merge_all();
		T_EQ(kvdb_stats(db, &st), 0);
		T_OK(st.run_depth <= KV_LEAF_RUNS_MAX + 2 * KV_SPILL_RUNS);
	}
	check_all();
	printf("# %u keys in %" PRIu64 " leaves: %" PRIu64 " merges read %" PRIu64
	       " keys, at most %" PRIu64 "; %" PRIu64 " runs, %" PRIu64 " for a get\n", KEYS,
	       st.leaves, st.merges, st.merge_keys, st.merge_most_keys, st.runs, st.run_depth);
	T_OK(st.merge_most_keys <= 3 * LEAF + flushed);
	done();
}

/* LF9 holds up a flush as long as no merge runs; a close leaves the rest to the log. */
static void a_close_waits_for_no_merge(void)
{
	fresh();
	for (unsigned i = 0; i < KV_UPPER_RUNS_MAX; i++) {
		put(i);
		flush();
	}
	T_EQ(shape().upper, KV_UPPER_RUNS_MAX);
	put(KV_UPPER_RUNS_MAX);
	look_ns = 10000000;
	alarm(60);	/* it would wait for ever */
	T_EQ(kvdb_close(db), 0);
	alarm(0);
	db = NULL;
	reopen();
	check_all();
	done();
}

/* Every @step-th key from @from on, in one load. */
static void bulk(unsigned from, unsigned step)
{
	uint8_t val[512];
	char key[KLEN + 1];
	struct kvdb_bulk *b;

	T_EQ(kvdb_bulk_open(kvs, 0, &b), 0);
	gen++;
	for (unsigned i = from; i < KEYS; i += step) {
		key_of(i, key);
		model[i] = gen;
		T_EQ(kvdb_bulk_add(b, key, KLEN, val, val_of(i, gen, val)), 0);
	}
	T_EQ(kvdb_bulk_finish(b), 0);
}

static void no_merge_was_larger_than(uint64_t keys)
{
	struct kvdb_stats st;

	T_EQ(kvdb_stats(db, &st), 0);
	T_OK(st.merge_most_keys <= keys);
}

/* B5: into nothing; what is put meanwhile lies above. */
static void a_bulk_load_ends_in_leaves(void)
{
	uint8_t val[512];
	char key[KLEN + 1];
	struct kvdb_bulk *b;

	fresh();
	T_EQ(kvdb_bulk_open(kvs, 0, &b), 0);
	gen = 1;
	for (unsigned i = 0; i < KEYS; i++) {
		key_of(i, key);
		model[i] = 1;
		T_EQ(kvdb_bulk_add(b, key, KLEN, val, val_of(i, 1, val)), 0);
		if (i % 1000 == 500) {
			put(i);
			flush();
		}
	}
	T_EQ(kvdb_bulk_finish(b), 0);
	T_EQ(shape().leaves, KEYS / LEAF);
	T_EQ(shape().upper, 3);
	check_all();
	merge_all();
	no_merge_was_larger_than(3 * LEAF);
	check_all();
	reopen();
	check_all();
	done();
}

/* B5: each run spills by itself, whatever was there. */
static void a_bulk_load_over_others_makes_no_large_merge(void)
{
	fresh();
	for (unsigned i = 0; i < LEAF / 2; i++)
		put(i * 17 % KEYS);
	flush();
	bulk(0, 3);
	check_all();
	put(7);
	flush();
	reopen();
	check_all();
	merge_all();
	check_all();
	T_OK(shape().leaves > KEYS / 3 / LEAF / 2);
	bulk(1, 2);
	check_all();
	merge_all();
	check_all();
	no_merge_was_larger_than(4 * LEAF);
	T_EQ(kvdb_kvs_compact(kvs, KVDB_COMPACT_WAIT), 0);
	check_all();
	done();
}

/* What a failed or abandoned load has made goes. */
static void an_abandoned_bulk_load_leaves_nothing(void)
{
	uint8_t val[512];
	char key[KLEN + 1];
	struct kvdb_bulk *b;

	fresh();
	put(5);
	T_EQ(kvdb_bulk_open(kvs, 0, &b), 0);
	for (unsigned i = 0; i < 5 * LEAF; i++) {
		key_of(i, key);
		T_EQ(kvdb_bulk_add(b, key, KLEN, val, val_of(i, 1, val)), 0);
	}
	kvdb_bulk_abort(b);
	T_EQ(shape().leaves, 0);
	check_all();
	done();
}

/* Range deletes over many leaves go when what they cover is gone everywhere. */
static void range_deletes_over_many_leaves_are_dropped_in_each(void)
{
	struct kvdb_kvs_info in;

	fresh();
	for (unsigned i = 0; i < KEYS; i++)
		put(i);
	flush();
	merge_all();
	del_range(150, KEYS - 150);
	del_prefix(0);
	for (unsigned i = 0; i < 300; i++)
		put(t_rand(&rnd) % KEYS);
	flush();
	merge_all();
	check_all();
	/* another round brings every leaf to a merge of all its runs */
	for (unsigned round = 0; round < 6; round++) {
		for (unsigned i = 0; i < KEYS; i += 3)
			put(i);
		flush();
		merge_all();
	}
	check_all();
	T_EQ(kvdb_kvs_info(kvs, &in), 0);
	/* in the leaf of an edge one may still wait for the merge of all its runs */
	T_OK(in.range_tombs <= 2);
	reopen();
	check_all();
	done();
}

/* Spills that come faster than merges of leaves wait for them. */
static void a_leaf_has_a_bounded_number_of_runs(void)
{
	unsigned most = 0;

	fresh();
	for (unsigned i = 0; i < KEYS; i++)
		put(i);
	flush();
	merge_all();
	for (unsigned round = 0; round < 3 * KV_LEAF_RUNS_MAX; round++) {
		struct shape s = shape();

		while (s.upper < 2 * KV_SPILL_RUNS) {
			for (unsigned i = 0; i < 3; i++)
				put(t_rand(&rnd) % 50);
			flush();
			s = shape();
		}
		T_EQ(kv_merge_step(db, kvs), 1);
		s = shape();
		T_OK(s.depth - s.upper <= KV_LEAF_RUNS_MAX);
		if (s.depth - s.upper > most)
			most = s.depth - s.upper;
	}
	T_EQ(most, KV_LEAF_RUNS_MAX);
	check_all();
	done();
}

/* LF9: flushes that come faster than merges wait for them, with leaves and without. */
static void a_store_has_a_bounded_number_of_upper_runs(void)
{
	for (unsigned with = 0; with < 2; with++) {
		unsigned most = 0;

		fresh();
		for (unsigned i = 0; with && i < KEYS; i++)
			put(i);
		flush();
		if (with)
			merge_all();
		for (unsigned i = 0; i < KV_UPPER_RUNS_MAX + 12; i++) {
			put(t_rand(&rnd) % KEYS);
			flush();
			most = shape().upper > most ? shape().upper : most;
		}
		T_EQ(most, KV_UPPER_RUNS_MAX);
		check_all();
		done();
	}
}

static void a_run_outside_of_its_leaf_is_refused(void)
{
	struct kv_tree *tr = with_leaves();
	struct kv_mdc_kvs *k = kv_mdc_state_kvs(&db->d_mdc->m_st, kvs->k_id);
	struct kv_run_desc *d = kv_run_desc(tr->tr_run[0]);
	uint64_t leaf = d->rd_leaf;

	T_EQ(kv_leaf_check(k, tr->tr_run[0]), 0);
	d->rd_leaf = tr->tr_leaf[1].lr_leaf->lf_id;
	T_EQ(kv_leaf_check(k, tr->tr_run[0]), -EUCLEAN);
	d->rd_leaf = leaf;
	kv_tree_put(db, tr);
	done();
}

/* A container that says so with right checksums: the pages of the run are as they were. */
static void both_checks_find_a_run_outside_of_its_leaf(void)
{
	static const unsigned how[] = { 0, MPOOL_VERIFY_DATA, KVDB_VERIFY_DEEP };
	struct kv_tree *tr = with_leaves();
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct kv_edit ed = { .ed_kvs = kvs->k_id, .ed_nbegin = 1 };
	struct kv_leaf *lf;
	char key[KLEN + 1];

	key_of(LEAF / 4, key);
	lf = kv_leaf_new(key, KLEN);
	T_OK(lf);
	lf->lf_id = atomic_fetch_add(&db->d_runs.ru_next, 1);
	ed.ed_begin = &lf;
	T_EQ(kv_mdc_edit(db, &ed), 0);
	kv_leaf_put(lf);
	kv_tree_put(db, tr);
	T_EQ(kvdb_close(db), 0);
	for (unsigned i = 0; i < sizeof(how) / sizeof(how[0]); i++) {
		uint64_t damage = 0;

		T_EQ(kvdb_verify(dir, NULL, how[i], NULL, NULL, &damage), 0);
		T_EQ(damage, 1);
	}
	o.flags = KVDB_MANUAL;
	T_EQ(kvdb_open(dir, &o, &db), -EUCLEAN);
	db = NULL;
	T_EQ(mpool_destroy(dir, NULL), 0);
	rmdir(dir);
}

/* How many runs a merge failed at; all is forgotten. */
static unsigned blamed(int err)
{
	struct kv_tree *tr = kv_tree_get(kvs);
	unsigned n = 0;

	for (uint32_t i = 0; i < tr->tr_nrun; i++) {
		n += atomic_load(&tr->tr_run[i]->rn_trouble.tb_err) == err;
		kv_trouble_end(db, &tr->tr_run[i]->rn_trouble);
	}
	kv_tree_put(db, tr);
	return n;
}

static void a_merge_loses_no_keys_that_lie_outside_of_its_leaf(void)
{
	struct kv_tree *tr = with_leaves();
	struct kv_leaf *lf = tr->tr_leaf[1].lr_leaf;
	uint8_t was = lf->lf_key[0];

	lf->lf_key[0] = 0;
	db->d_budget.b_leaf_keys = 1;
	T_EQ(kv_merge_step(db, kvs), 0);
	T_OK(blamed(-EUCLEAN));
	lf->lf_key[0] = was;
	db->d_budget.b_leaf_keys = LEAF;
	kv_tree_put(db, tr);
	check_all();
	done();
}

/* Bytes of the pool, when all that can come free has. */
static uint64_t used_bytes(void)
{
	struct mpool_info pi;

	for (unsigned i = 0; i < 4; i++) {
		kv_retire_barrier();
		kv_runs_reap(db);
	}
	T_EQ(mpool_info(db->d_mp, &pi), 0);
	return pi.cls[MPOOL_CAPACITY].used;
}

/* Runs that were made and not shown are no objects yet: nothing deletes them, they just go. */
static void a_merge_that_fails_late_gives_its_space_back(void)
{
	struct kv_tree *tr = with_leaves();
	struct kv_leaf *lf = tr->tr_leaf[1].lr_leaf, *mid;
	uint64_t used = used_bytes();
	char key[KLEN + 1];

	/* the first leaf seems to end in its middle */
	key_of(LEAF / 4, key);
	mid = kv_leaf_new(key, KLEN);
	T_OK(mid);
	mid->lf_id = lf->lf_id;
	for (unsigned i = 0; i < 3; i++) {
		tr->tr_leaf[1].lr_leaf = mid;
		db->d_budget.b_leaf_keys = 1;
		T_EQ(kv_merge_step(db, kvs), 0);
		T_OK(blamed(-EUCLEAN));
		tr->tr_leaf[1].lr_leaf = lf;
		db->d_budget.b_leaf_keys = LEAF;
		T_EQ(used_bytes(), used);
		T_OK(!atomic_load(&db->d_runs.ru_doomed));
	}
	kv_leaf_put(mid);
	kv_tree_put(db, tr);
	check_all();
	done();
}

/* Values move leaf by leaf; what a cursor holds stays. */
static void values_move_in_each_leaf(void)
{
	static uint32_t snap[KEYS];
	struct kvdb_cursor *c;
	struct kvdb_stats st;

	fresh();
	for (unsigned round = 0; round < 6; round++) {
		for (unsigned i = 0; i < KEYS; i++)
			if (!round || i % 4)
				put(i);
		flush();
		merge_all();
	}
	T_OK(shape().leaves >= KEYS / LEAF);
	space_amp = 1.1;
	reopen();
	space_amp = 0;
	memcpy(snap, model, sizeof(snap));
	T_EQ(kvdb_cursor_open(kvs, 0, NULL, 0, &c), 0);
	for (unsigned i = 0; i < KEYS; i += 2)
		put(i);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	T_EQ(kvdb_stats(db, &st), 0);
	T_OK(st.relocations > 0);
	check_all();
	check_cursor(c, snap);
	kvdb_cursor_close(c);
	reopen();
	check_all();
	done();
}

#define LONG_KEYS 4000u

static void long_key(unsigned i, char key[KVDB_KEY_MAX + 1])
{
	memset(key, 'p', KVDB_KEY_MAX);
	snprintf(key + KVDB_KEY_MAX - 8, 9, "%08u", i);
}

/*
 * A load of so many long keys that the leaves of one split would not fit into one record: what does
 * not goes into the last of them, which is split in turn.
 */
static void a_split_fits_into_its_record(void)
{
	char key[KVDB_KEY_MAX + 1];
	struct kvdb_bulk *bulk;
	struct kv_tree *tr;
	char val[16];
	size_t len;

	fresh();
	db->d_budget.b_leaf_keys = 8;
	T_EQ(kvdb_bulk_open(kvs, 0, &bulk), 0);
	for (unsigned i = 0; i < LONG_KEYS; i++) {
		long_key(i, key);
		T_EQ(kvdb_bulk_add(bulk, key, KVDB_KEY_MAX, &i, sizeof(i)), 0);
	}
	T_EQ(kvdb_bulk_finish(bulk), 0);
	T_EQ(kvdb_drain(db, KVDB_WAIT_COMPACT), 0);
	tr = kv_tree_get(kvs);
	T_OK(tr->tr_nleaf > LONG_KEYS / 16);
	T_EQ(tr->tr_nupper, 0);
	for (uint32_t i = 0; i < tr->tr_nrun; i++)
		T_OK(kv_run_desc(tr->tr_run[i])->rd_keys <= 16);
	kv_tree_put(db, tr);
	for (unsigned turn = 0; turn < 2; turn++) {
		for (unsigned i = 0; i < LONG_KEYS; i += 7) {
			long_key(i, key);
			T_EQ(kvdb_get(kvs, key, KVDB_KEY_MAX, val, sizeof(val), &len), 0);
			T_EQ(len, sizeof(i));
			T_OK(!memcmp(val, &i, len));
		}
		reopen();
	}
	done();
}

int main(void)
{
	T_RUN(readers_see_the_model_through_splits_spills_and_joins);
	T_RUN(leaves_that_emptied_join);
	T_RUN(compaction_leaves_one_run_in_each_leaf);
	T_RUN(the_work_of_a_merge_is_bounded_while_the_store_grows);
	T_RUN(a_close_waits_for_no_merge);
	T_RUN(a_bulk_load_ends_in_leaves);
	T_RUN(a_bulk_load_over_others_makes_no_large_merge);
	T_RUN(an_abandoned_bulk_load_leaves_nothing);
	T_RUN(range_deletes_over_many_leaves_are_dropped_in_each);
	T_RUN(a_leaf_has_a_bounded_number_of_runs);
	T_RUN(a_store_has_a_bounded_number_of_upper_runs);
	T_RUN(a_run_outside_of_its_leaf_is_refused);
	T_RUN(both_checks_find_a_run_outside_of_its_leaf);
	T_RUN(a_merge_loses_no_keys_that_lie_outside_of_its_leaf);
	T_RUN(a_merge_that_fails_late_gives_its_space_back);
	T_RUN(values_move_in_each_leaf);
	T_RUN(a_split_fits_into_its_record);
	return t_done();
}
