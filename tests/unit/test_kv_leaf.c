/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Leaves, small ones, on a real database: splits, spills and joins while readers
 * of all kinds are compared with a model; their bounds on work and runs.
 */
#include "ctl/ctl.h"
#include "db/db.h"
#include "kv_clock.h"
#include "kv_rig.h"
#include "tree/leaf.h"
#include "meta/mdc.h"
#include "compact/merge.h"
#include "compact/reloc.h"
#include "mem/memtable.h"
#include "meta/upkeep.h"

#define KEYS		3000u
#define LEAF		200u		/* keys */
#define KLEN		6u

static char dir[256];
static struct kvdb *db;
static struct kvdb_kvs *kvs;
static uint64_t rnd;
static uint32_t model[KEYS];		/* generation of the value, 0 = absent */
static uint32_t gen;
static double space_amp;

static void reopen(void)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;

	if (db)
		T_EQ(kvdb_close(db), 0);
	o.flags = KVDB_MANUAL;
	o.cache_bytes = 64 << 20;
	look_ns = 1000;
	o.clock = &test_clock;
	o.logs = 1;
	o.space_amp_max = space_amp;
	T_EQ(kvdb_open(dir, &o, &db), 0);
	db->d_budget.b_leaf_keys = LEAF;
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
}

static void fresh(void)
{
	struct mpool_dev_spec dev = { .mclass = MPOOL_CAPACITY, .size = 512 << 20 };
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	struct kvdb_kvs_opts ko = KVDB_KVS_OPTS_INIT;
	struct kvdb_opts o = KVDB_OPTS_INIT;
	const char *tmp = getenv("TMPDIR");

	memset(model, 0, sizeof(model));
	rnd = t_seed();
	snprintf(dir, sizeof(dir), "%s/kvleaf-XXXXXX", tmp ? tmp : "/tmp");
	T_OK(mkdtemp(dir));
	co.devs = &dev;
	co.ndevs = 1;
	co.name = "leaf";
	T_EQ(mpool_create(dir, &co), 0);
	o.flags = KVDB_MANUAL;
	o.segment_bytes = 64 << 10;
	T_EQ(kvdb_create(dir, &o), 0);
	T_EQ(kvdb_open(dir, &o, &db), 0);
	gen = 0;
	ko.pfx_len = 2;
	T_EQ(kvdb_kvs_create(db, "s", &ko), 0);
	reopen();
}

static void done(void)
{
	uint64_t damage = 1;

	T_EQ(kvdb_close(db), 0);
	db = NULL;
	T_EQ(kvdb_verify(dir, NULL, MPOOL_VERIFY_DATA, NULL, NULL, &damage), 0);
	T_EQ(damage, 0);
	T_EQ(mpool_destroy(dir, NULL), 0);
	rmdir(dir);
}

/* ---- keys and values ----------------------------------------------------------------- */

/* In order of i: the first two bytes are one of 30 prefixes. */
static void key_of(unsigned i, char *key)
{
	snprintf(key, KLEN + 1, "%02u%04u", i / 100 % 100, i % 10000);
}

static size_t val_of(unsigned i, uint32_t g, uint8_t *val)
{
	size_t n = 8 + (i * 31 + g * 7) % 300;

	memset(val, (int)(g + i), n);
	memcpy(val, &i, 4);
	memcpy(val + 4, &g, 4);
	return n;
}

static void put(unsigned i)
{
	uint8_t val[512];
	char key[KLEN + 1];

	key_of(i, key);
	model[i] = ++gen;
	T_EQ(kvdb_put(kvs, key, KLEN, val, val_of(i, gen, val)), 0);
}

static void del(unsigned i)
{
	char key[KLEN + 1];

	key_of(i, key);
	model[i] = 0;
	T_EQ(kvdb_del(kvs, key, KLEN), 0);
}

static void del_range(unsigned from, unsigned to)
{
	char a[KLEN + 1], b[KLEN + 1];

	key_of(from, a);
	key_of(to, b);
	T_EQ(kvdb_range_del(kvs, a, KLEN, b, KLEN), 0);
	for (; from < to; from++)
		model[from] = 0;
}

static void del_prefix(unsigned p)
{
	char key[KLEN + 1];

	key_of(p * 100, key);
	T_EQ(kvdb_prefix_del(kvs, key, 2), 0);
	memset(&model[p * 100], 0, 100 * sizeof(model[0]));
}

static void flush(void)
{
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
}

/* ---- what holds of a tree ------------------------------------------------------------ */

struct shape {
	unsigned upper, leaves, depth;
};

/* LF1: the leaves cover all keys, each run lies inside its leaf; newest first in each. */
static struct shape shape(void)
{
	struct kv_tree *tr = kv_tree_get(kvs);
	struct shape s = { tr->tr_nupper, tr->tr_nleaf, tr->tr_depth };
	uint32_t at = tr->tr_nupper;

	for (uint32_t l = 0; l < tr->tr_nleaf; l++) {
		const struct kv_leaf_runs *lr = &tr->tr_leaf[l];
		const struct kv_leaf *lf = lr->lr_leaf, *hi = l + 1 < tr->tr_nleaf ?
							      lr[1].lr_leaf : NULL;

		T_OK(l ? lf->lf_klen > 0 : !lf->lf_klen);
		T_OK(!hi || kv_kcmp(lf->lf_key, lf->lf_klen, hi->lf_key, hi->lf_klen) < 0);
		T_OK(!lr->lr_n || lr->lr_first == at);
		for (uint32_t i = 0; i < lr->lr_n; i++) {
			struct kv_run *r = tr->tr_run[at + i];
			const struct kv_kblock *a = r->rn_kb, *b = a + r->rn_nkeyed - 1;

			T_EQ(kv_run_desc(r)->rd_leaf, lf->lf_id);
			T_OK(!i || kv_run_desc(r)->rd_pos <
				   kv_run_desc(tr->tr_run[at + i - 1])->rd_pos);
			if (!r->rn_nkeyed)
				continue;
			T_OK(kv_kcmp(lf->lf_key, lf->lf_klen, a->kb_min, a->kb_min_klen) <= 0);
			T_OK(!hi || kv_kcmp(b->kb_max, b->kb_max_klen, hi->lf_key,
					    hi->lf_klen) < 0);
		}
		at += lr->lr_n;
	}
	T_EQ(at, tr->tr_nrun);
	kv_tree_put(db, tr);
	return s;
}

static void merge_all(void)
{
	int rc;

	do {
		rc = kv_merge_step(db, kvs);
		T_OK(rc >= 0);
		shape();
	} while (rc);
}

static void check_gets(void)
{
	uint8_t want[512], got[512];
	char key[KLEN + 1];
	size_t n, vlen;

	for (unsigned i = 0; i < KEYS; i++) {
		key_of(i, key);
		if (!model[i]) {
			T_EQ(kvdb_get(kvs, key, KLEN, got, sizeof(got), &vlen), -ENOENT);
			continue;
		}
		T_EQ(kvdb_get(kvs, key, KLEN, got, sizeof(got), &vlen), 0);
		n = val_of(i, model[i], want);
		T_EQ(vlen, n);
		T_MEMEQ(got, want, n);
	}
}

static void check_multi(void)
{
	static uint8_t got[KEYS][8];
	static struct kvdb_get get[KEYS];
	static char key[KEYS][KLEN + 1];

	for (unsigned i = 0; i < KEYS; i++) {
		unsigned k = (i * 7) % KEYS;

		key_of(k, key[i]);
		get[i] = (struct kvdb_get){ .key = key[i], .klen = KLEN, .buf = got[i], .size = 8 };
	}
	T_EQ(kvdb_get_multi(kvs, 0, get, KEYS), 0);
	for (unsigned i = 0; i < KEYS; i++) {
		unsigned k = (i * 7) % KEYS;

		T_EQ(get[i].err, model[k] ? 0 : -ENOENT);
		T_OK(!model[k] || !memcmp(got[i] + 4, &model[k], 4));
	}
}

/* From one place to the end, in one direction; then some steps back. */
static void check_walk(struct kvdb_cursor *c, const uint32_t *snap, unsigned from, bool back)
{
	const void *key, *val;
	char seek[KLEN + 1];
	uint8_t want[512];
	size_t klen, vlen;
	int i = (int)from, steps = 0;

	key_of(from, seek);
	T_EQ(kvdb_cursor_seek(c, seek, KLEN), 0);
	for (i -= back;; i += back ? -1 : 1) {
		while (i >= 0 && i < (int)KEYS && !snap[i])
			i += back ? -1 : 1;
		if (i < 0 || i >= (int)KEYS)
			break;
		T_EQ((back ? kvdb_cursor_prev : kvdb_cursor_next)(c, &key, &klen, &val, &vlen), 0);
		key_of((unsigned)i, seek);
		T_EQ(klen, KLEN);
		T_MEMEQ(key, seek, KLEN);
		T_EQ(vlen, val_of((unsigned)i, snap[i], want));
		T_MEMEQ(val, want, vlen);
		if (++steps == 700)
			return;
	}
	T_EQ((back ? kvdb_cursor_prev : kvdb_cursor_next)(c, &key, &klen, &val, &vlen), -ENOENT);
}

static void check_cursor(struct kvdb_cursor *c, const uint32_t *snap)
{
	check_walk(c, snap, 0, false);
	check_walk(c, snap, KEYS - 1, true);
	for (unsigned i = 0; i < 4; i++)
		check_walk(c, snap, t_rand(&rnd) % KEYS, i % 2);
}

static void check_all(void)
{
	struct kvdb_cursor *c;

	shape();
	check_gets();
	check_multi();
	T_EQ(kvdb_cursor_open(kvs, 0, NULL, 0, &c), 0);
	check_cursor(c, model);
	kvdb_cursor_close(c);
}

/* ---- tests --------------------------------------------------------------------------- */

static void change(unsigned n)
{
	while (n--) {
		unsigned i = t_rand(&rnd) % KEYS, what = t_rand(&rnd) % 100;

		if (what < 75)
			put(i);
		else if (what < 98)
			del(i);
		else if (what < 99)
			del_range(i, i + 1 + t_rand(&rnd) % (KEYS - i) / 8);
		else
			del_prefix(i / 100);
	}
}

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

static struct kv_tree *with_leaves(void)
{
	fresh();
	for (unsigned i = 0; i < KEYS; i++)
		put(i);
	flush();
	merge_all();
	return kv_tree_get(kvs);
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
	lf->lf_id = atomic_fetch_add(&db->d_next_run, 1);
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
		T_OK(!atomic_load(&db->d_doomed));
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

/* Values move in runs that nobody merges: what moves waits for the merge, and no other begins. */
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
	T_RUN(merges_run_beside_each_other);
	T_RUN(no_leaf_changes_beside_a_spill);
	T_RUN(a_move_waits_for_the_merge_of_its_runs);
	T_RUN(a_move_in_a_leaf_leaves_out_what_upper_runs_hide);
	T_RUN(a_move_reads_no_run_that_is_stuck);
	T_RUN(a_merge_lets_go_of_memtables);
	T_RUN(a_split_fits_into_its_record);
	return t_done();
}
