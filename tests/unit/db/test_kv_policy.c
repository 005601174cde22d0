/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Where values live in a pool with two media classes: each policy, ageing when
 * staging is tight, changes of the policy while the store is in use.
 */
#include "db/db.h"
#include "db/policy.h"
#include "harness.h"

#include <errno.h>
#include <unistd.h>

#include "kv_active.h"
#include "kv_clock.h"
#include "tree/leaf.h"
#include "meta/mdc.h"
#include "mem/memtable.h"
#include "cache/pages.h"
#include "compact/reloc.h"
#include "compact/reloc_state.h"
#include "run/run.h"
#include "seg/kv_omf.h"
#include "seg/reserve.h"
#include "meta/upkeep.h"
#include "compact/merge.h"

#define VLEN	3000u
#define SEG	(64u << 10)

static char dir[256];
static struct kvdb *db;
static struct kvdb_kvs *kvs;
static uint32_t version[20000];
static const struct kvdb_clock *clk;	/* NULL: the machine's */
static double amp;			/* space_amp_max, 0: as ever */

static void open_db(uint32_t policy)
{
	struct kvdb_kvs_opts ko = KVDB_KVS_OPTS_INIT;
	struct kvdb_opts o = KVDB_OPTS_INIT;

	o.flags = KVDB_MANUAL;
	o.logs = 1;
	o.cache_bytes = 64u << 20;
	o.log_bytes = 1u << 20;
	o.clock = clk;
	o.space_amp_max = amp;
	T_EQ(kvdb_open(dir, &o, &db), 0);
	ko.policy = policy;
	if (kvdb_kvs_open(db, "s", &kvs)) {
		T_EQ(kvdb_kvs_create(db, "s", &ko), 0);
		T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	}
}

static void fresh(uint64_t capacity, uint64_t staging, uint32_t policy)
{
	struct mpool_dev_spec dev[2] = { { .mclass = MPOOL_CAPACITY, .size = capacity },
					 { .mclass = MPOOL_STAGING, .size = staging } };
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	struct kvdb_opts o = KVDB_OPTS_INIT;
	const char *tmp = getenv("TMPDIR");

	snprintf(dir, sizeof(dir), "%s/kv_policy.XXXXXX", tmp ? tmp : "/tmp");
	T_OK(mkdtemp(dir));
	co.devs = dev;
	co.ndevs = 2;
	T_EQ(mpool_create(dir, &co), 0);
	o.segment_bytes = SEG;
	T_EQ(kvdb_create(dir, &o), 0);
	memset(version, 0, sizeof(version));
	open_db(policy);
}

static void done(void)
{
	uint64_t n = 12345;

	T_EQ(kvdb_close(db), 0);
	T_EQ(kvdb_verify(dir, NULL, MPOOL_VERIFY_DATA, NULL, NULL, &n), 0);
	T_EQ(n, 0);
	T_EQ(mpool_destroy(dir, NULL), 0);
	rmdir(dir);
}

static void value(uint32_t k, uint32_t ver, uint8_t *val)
{
	uint64_t x = ((uint64_t)ver << 32) ^ k, v;

	for (unsigned i = 0; i < VLEN; i += 8) {
		v = t_rand(&x);
		memcpy(val + i, &v, 8);
	}
}

static int put(uint32_t k)
{
	uint8_t val[VLEN];
	int err;

	value(k, version[k] + 1, val);
	err = kvdb_put(kvs, &k, sizeof(k), val, VLEN);
	version[k] += !err;
	return err;
}

static void all_hold(uint32_t n)
{
	uint8_t want[VLEN], got[VLEN];
	size_t len;

	for (uint32_t k = 0; k < n; k++) {
		int err = kvdb_get(kvs, &k, sizeof(k), got, VLEN, &len);

		value(k, version[k], want);
		if (version[k] ? err || len != VLEN || memcmp(want, got, VLEN) : err != -ENOENT)
			T_FAIL("key %u, version %u: %d", k, version[k], err);
	}
}

/* Puts keys [from, to), with the background work between. */
static void fill(uint32_t from, uint32_t to)
{
	for (uint32_t k = from; k < to; k++) {
		int err = put(k);

		if (err)
			T_FAIL("put %u: %d %s", k, err, kvdb_error_detail()->text);
		if (k % 64 == 0)
			while (kvdb_poll(db) > 0)
				;
	}
}

static void settle(void)
{
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
}

static void add(void *arg, struct kv_seg *s, uint64_t n, uint64_t bytes)
{
	(void)bytes;
	((uint64_t *)arg)[s->sg_mclass] += n;
}

/* Values of the store in each class, by the tables of its runs. */
static void where(uint64_t n[MPOOL_MCLASSES])
{
	struct kv_tree *tr = kv_tree_get(kvs);

	memset(n, 0, MPOOL_MCLASSES * sizeof(*n));
	for (uint32_t i = 0; i < tr->tr_nrun; i++)
		kv_run_segs(tr->tr_run[i], add, n);
	kv_tree_put(db, tr);
}

/* Class of the first key block of every run; all must agree. */
static uint32_t keys_in(void)
{
	struct kv_tree *tr = kv_tree_get(kvs);
	struct mpool_obj_info oi;
	uint32_t mclass = 99;

	for (uint32_t i = 0; i < tr->tr_nrun; i++) {
		T_EQ(mpool_obj_info(kv_run_obj(tr->tr_run[i], 0), &oi), 0);
		T_OK(mclass == 99 || mclass == oi.mclass);
		mclass = oi.mclass;
	}
	kv_tree_put(db, tr);
	return mclass;
}

static uint64_t staging_used(void)
{
	struct mpool_info pi;

	T_EQ(mpool_info(db->d_mp, &pi), 0);
	return pi.cls[MPOOL_STAGING].used;
}

static uint64_t staging_total(void)
{
	struct mpool_info pi;

	T_EQ(mpool_info(db->d_mp, &pi), 0);
	return pi.cls[MPOOL_STAGING].total;
}

/* ---- choice ----------------------------------------------------------------------- */

static void policies_name_the_classes(void)
{
	T_EQ(kv_policy_class(KVDB_POLICY_STAGING_ONLY, true, true), MPOOL_STAGING);
	T_EQ(kv_policy_class(KVDB_POLICY_STAGING_ONLY, false, true), MPOOL_STAGING);
	T_EQ(kv_policy_class(KVDB_POLICY_STAGING_PREF, false, false), MPOOL_STAGING);
	T_EQ(kv_policy_class(KVDB_POLICY_STAGING_PREF, false, true), MPOOL_CAPACITY);
	T_EQ(kv_policy_class(KVDB_POLICY_STAGING_PREF, true, true), MPOOL_STAGING);
	T_EQ(kv_policy_class(KVDB_POLICY_TIERED, true, false), MPOOL_STAGING);
	T_EQ(kv_policy_class(KVDB_POLICY_TIERED, false, false), MPOOL_CAPACITY);
	T_EQ(kv_policy_class(KVDB_POLICY_CAPACITY_ONLY, true, false), MPOOL_CAPACITY);
	T_EQ(kv_policy_class(KVDB_POLICY_CAPACITY_ONLY, false, false), MPOOL_CAPACITY);
}

static void the_oldest_leave_staging_first(void)
{
	struct kv_seg s = { .sg_mclass = MPOOL_STAGING }, c = { .sg_mclass = MPOOL_CAPACITY };
	struct kv_victim v[4] = {
		{ .vi_seg = &s, .vi_bytes = 1000, .vi_live = 900, .vi_age = 1 },
		{ .vi_seg = &c, .vi_bytes = 1000, .vi_live = 900, .vi_age = 9 },
		{ .vi_seg = &s, .vi_bytes = 1000, .vi_live = 900, .vi_age = 5 },
		{ .vi_seg = &s, .vi_bytes = 1000, .vi_live = 900, .vi_age = 7, .vi_stay = 800 },
	};

	T_EQ(kv_reloc_choose_old(v, 4, 1, 1 << 20), 1);
	T_EQ(v[0].vi_age, 5);
	T_EQ(kv_reloc_choose_old(v, 4, 1 << 20, 1 << 20), 2);
	T_EQ(v[1].vi_age, 1);
	T_EQ(kv_reloc_choose_old(v, 4, 1 << 20, 950), 1);
	T_EQ(kv_reloc_choose_old(v, 4, 0, 1 << 20), 0);
	/* one small value that stays would get a segment as large again */
	v[0] = (struct kv_victim){ .vi_seg = &s, .vi_bytes = 4096, .vi_live = 700, .vi_age = 9,
				   .vi_stay = 700 };
	T_EQ(kv_reloc_choose_old(v, 1, 1, 1 << 20), 0);
}

/* What is permitted, in bytes per second. */
static double permitted(uint32_t debt)
{
	return 1024e9 / kv_throttle_cost(debt);
}

static void who_waits_for_staging_gets_the_rate_at_which_it_empties(void)
{
	uint64_t room = 1600, rate = 40000000;
	uint32_t last = 0;

	T_EQ(kv_staged_debt(900, room, rate), 0);
	T_EQ(kv_staged_debt(1500, room, 0), 0);
	for (uint64_t v = 901; v < 2 * room; v++) {
		uint32_t debt = kv_staged_debt(v, room, rate);

		T_OK(debt >= last);
		/* no writer waits for staging longer than that: capacity has room */
		T_OK(permitted(debt) > 0.48 * (double)rate);
		last = debt;
	}
	T_OK(permitted(kv_staged_debt(1250, room, rate)) > 0.97 * (double)rate);
	T_OK(permitted(kv_staged_debt(1250, room, rate)) < 1.03 * (double)rate);
	T_OK(permitted(kv_staged_debt(1100, room, rate)) > 2 * (double)rate);
	T_OK(permitted(kv_staged_debt(1425, room, rate)) < 0.53 * (double)rate);
}

/* ---- policies ----------------------------------------------------------------------- */

static void largest_moved(void *arg, struct kv_seg *s)
{
	if (s->sg_log == KV_MOVED_LOG && s->sg_bytes > *(uint32_t *)arg)
		*(uint32_t *)arg = s->sg_bytes;
}

static void tiered_values_age_to_capacity_when_staging_is_tight(void)
{
	uint64_t n[MPOOL_MCLASSES], first;
	uint32_t most = 0;

	fresh(96u << 20, 24u << 20, KVDB_POLICY_DEFAULT);
	first = staging_used();
	fill(0, 2000);
	settle();
	where(n);
	T_EQ(n[MPOOL_CAPACITY], 0);	/* there is room: nothing moves */
	T_EQ(keys_in(), MPOOL_STAGING);
	for (uint32_t k = 2000; k < 14000; k += 1000) {
		fill(k, k + 1000);
		settle();
	}
	where(n);
	T_OK(n[MPOOL_CAPACITY] > 7000);
	T_OK(n[MPOOL_STAGING] > 0);
	/* in pieces of capacity's own, which are gathered in few passes over staging */
	kv_segs_each(db, largest_moved, &most);
	T_OK(most > db->d_budget.b_move_bytes / 2 && most > SEG);
	T_OK(first < staging_total() / 2);
	T_OK(staging_used() <= staging_total() / 8 * 7);
	all_hold(14000);
	T_EQ(kvdb_close(db), 0);
	open_db(0);
	all_hold(14000);
	done();
}

/* Of many runs at once much more than is due would leave, and of one everything. */
static void runs_on_staging_stay_apart_until_they_are_many(void)
{
	uint64_t n[MPOOL_MCLASSES], least = UINT64_MAX, now, last = 0;
	struct kv_tree *tr;

	fresh(96u << 20, 24u << 20, KVDB_POLICY_DEFAULT);
	fill(0, 6000);
	settle();
	where(n);
	T_OK(n[MPOOL_CAPACITY] > 0 && n[MPOOL_STAGING] > 2000);
	tr = kv_tree_get(kvs);
	T_OK(tr->tr_nupper > 8 && tr->tr_nupper <= 20);
	kv_tree_put(db, tr);
	/* the more there is the more leaves at once, to a bound */
	for (uint64_t v = 0; v <= staging_total(); v += 64u << 10) {
		now = kv_staging_excess(db, v);
		T_OK(now >= last);
		if (now && least == UINT64_MAX)
			least = now;
		last = now;
	}
	T_OK(least < staging_total() / 15 && last > least && last <= 2 * least);
	all_hold(6000);
	done();
}

/* Values stay where they are: staging is filling and not full. */
static void runs_of_a_leaf_that_stay_apart_hold_up_no_spill(void)
{
	struct kv_tree *tr;
	unsigned most = 0;

	amp = 10;
	fresh(96u << 20, 24u << 20, KVDB_POLICY_DEFAULT);
	amp = 0;
	db->d_budget.b_leaf_keys = 1000;
	fill(0, 2200);
	settle();
	for (unsigned i = 0; i < 100; i++) {
		for (unsigned k = 0; k < 8; k++)
			T_EQ(put((i * 37 + k * 275) % 2200), 0);
		T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
		while (kvdb_poll(db) > 0)
			;
		tr = kv_tree_get(kvs);
		T_OK(tr->tr_nleaf);
		most = tr->tr_nupper > most ? tr->tr_nupper : most;
		kv_tree_put(db, tr);
	}
	T_OK(kv_staging_is_filling(db, kv_segs_staged(db)));
	T_OK(most <= 2 * KV_SPILL_RUNS);
	all_hold(2200);
	done();
}

/* A filter that is wrong once in a hundred times is often wrong together with ten others. */
static void what_lives_is_known_however_many_runs_hold_it(void)
{
	uint64_t live, is = 6000 * (VLEN + sizeof(uint32_t));
	struct kv_tree *tr;

	fresh(96u << 20, 24u << 20, KVDB_POLICY_DEFAULT);
	fill(0, 6000);
	settle();
	tr = kv_tree_get(kvs);
	T_OK(tr->tr_nupper > 8);
	kv_tree_put(db, tr);
	T_EQ(kv_space_live(db, &live), 0);
	T_OK(live > is - is / 64 && live < is + is / 64);
	done();
}

/* Bytes of keys that were read; none of the runs' pages is in memory then. */
static uint64_t key_bytes_read(void)
{
	struct kv_tree *tr = kv_tree_get(kvs);
	struct kvdb_stats st;

	for (uint32_t i = 0; i < tr->tr_nrun; i++)
		for (uint32_t j = 0; j < tr->tr_run[i]->rn_n; j++)
			kv_page_purge(db, tr->tr_run[i]->rn_kb[j].kb_id,
				      tr->tr_run[i]->rn_kb[j].kb_npages);
	kv_tree_put(db, tr);
	T_EQ(kvdb_stats(db, &st), 0);
	return st.io[0].read_key_bytes + st.io[1].read_key_bytes;
}

/* What nothing has changed is not read again for the estimate of what lives. */
static void what_lives_is_read_once(void)
{
	uint64_t live, was, bytes, is = 6000 * (VLEN + sizeof(uint32_t));

	fresh(96u << 20, 24u << 20, KVDB_POLICY_DEFAULT);
	fill(0, 6000);
	settle();
	T_EQ(kv_space_live(db, &was), 0);
	bytes = key_bytes_read();
	for (unsigned i = 0; i < 3; i++) {
		T_EQ(kv_space_live(db, &live), 0);
		T_EQ(live, was);
		T_EQ(key_bytes_read() - bytes, 0);
	}
	/* and what has: deletes of many keys without a key of their own, then keys */
	T_EQ(kvdb_range_del(kvs, "\0", 1, "\xff\xff\xff\xff\xff", 5), 0);
	T_EQ(kv_space_live(db, &live), 0);
	T_EQ(live, 0);
	fill(0, 6000);
	settle();
	T_EQ(kv_space_live(db, &live), 0);
	T_OK(live > is - is / 16 && live < is + is / 16);
	done();
}

static uint64_t logged_on_capacity(void)
{
	struct kvdb_stats st;

	T_EQ(kvdb_stats(db, &st), 0);
	return st.io[MPOOL_CAPACITY].log_bytes;
}

static void the_log_leaves_staging_rather_than_stop(void)
{
	struct kvdb_bulk *bulk;

	fresh(96u << 20, 16u << 20, KVDB_POLICY_DEFAULT);
	fill(0, 6000);
	settle();
	T_EQ(logged_on_capacity(), 0);
	/* from here on nothing of the store moves */
	T_EQ(kvdb_bulk_open(kvs, 0, &bulk), 0);
	fill(6000, 14000);
	T_OK(logged_on_capacity() > 8u << 20);
	kvdb_bulk_abort(bulk);
	settle();
	all_hold(14000);
	done();
}

/* One whose memtable may name all that is written: nothing leaves, no writer waits for it. */
static void an_open_cursor_does_not_slow_writers(void)
{
	struct kvdb_cursor *cur;
	struct kv_mt *mt;
	uint32_t n = 100;

	fresh(96u << 20, 16u << 20, KVDB_POLICY_DEFAULT);
	fill(0, n);
	mt = active_mt(kvs);
	T_EQ(kvdb_cursor_open(kvs, 0, NULL, 0, &cur), 0);
	for (; !atomic_load(&mt->m_flushed); n += 100)
		fill(n, n + 100);
	T_OK(n < 4000);
	atomic_store(&mt->m_last_epoch, UINT64_MAX);
	fill(n, 8000);
	usleep(600000);
	fill(8000, 8100);
	T_OK(logged_on_capacity() > 4u << 20);
	T_EQ(kv_reloc_staging_debt(db), 0);
	kvdb_cursor_close(cur);
	settle();
	all_hold(8100);
	done();
}

/* Those that refer to staging, or all others, are taken, as if a merge had them. */
static void take(bool is_staged, bool takes)
{
	struct kv_tree *tr = kv_tree_get(kvs);

	pthread_mutex_lock(&kvs->k_merging.mg_lock);
	for (uint32_t i = 0; i < tr->tr_nrun; i++)
		if (!kv_runs_staged(&tr->tr_run[i], 1) == !is_staged)
			tr->tr_run[i]->rn_taken = takes;
	pthread_mutex_unlock(&kvs->k_merging.mg_lock);
	kv_tree_put(db, tr);
}

static void mark(void *arg, struct kv_seg *s)
{
	if (atomic_load(&s->sg_state) == KV_SEG_SEALED && atomic_load(&s->sg_runs))
		atomic_store(&s->sg_victim, s->sg_mclass == *(uint32_t *)arg ?
					    s->sg_mclass == MPOOL_STAGING ? KV_VICTIM_OLD :
									    KV_VICTIM :
					    KV_VICTIM_NONE);
}

/* Moves what lies in one class, as a job for staging or one beside it does. */
static int move_from(uint32_t mclass)
{
	bool whole = mclass == MPOOL_STAGING;
	uint64_t bytes = 0;

	T_OK(kv_segs_seal_now(db) >= 0);
	kv_segs_each(db, mark, &mclass);
	return kv_merge_move(db, kvs, kv_min_horizon(db), MPOOL_CAPACITY, whole, whole, &bytes);
}

/* One run more, with all its values in sealed segments. */
static void add_run(uint32_t from, uint32_t to)
{
	fill(from, to);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	T_EQ(kvdb_close(db), 0);
	open_db(KVDB_POLICY_DEFAULT);
}

/* G3: it waits for its own input, and not for what another job has. */
static void staging_is_emptied_beside_another_job(void)
{
	uint64_t n[MPOOL_MCLASSES];

	fresh(96u << 20, 24u << 20, KVDB_POLICY_DEFAULT);
	add_run(0, 200);
	T_EQ(move_from(MPOOL_STAGING), 1);
	add_run(100, 300);
	where(n);
	T_OK(n[MPOOL_CAPACITY] == 200 && n[MPOOL_STAGING] == 200);
	take(true, true);
	T_EQ(move_from(MPOOL_CAPACITY), 1);
	take(true, false);
	/* what newer runs hide is gone, and they are as they were */
	where(n);
	T_OK(n[MPOOL_CAPACITY] == 100 && n[MPOOL_STAGING] == 200);
	take(false, true);
	T_EQ(move_from(MPOOL_STAGING), 1);
	take(false, false);
	where(n);
	T_OK(n[MPOOL_CAPACITY] == 300 && !n[MPOOL_STAGING]);
	all_hold(300);
	settle();
	all_hold(300);
	done();
}

/* Garbage on staging leaves with its values; where none leave, a job for space counts it. */
static void space_is_bounded_whatever_leaves_staging(void)
{
	static const uint32_t keys[] = { 400, 4000, 4000 };
	static const uint64_t staging[] = { 8u << 20, 8u << 20, 3u << 20 };

	for (unsigned i = 0; i < 3; i++) {
		struct kvdb_stats st;

		fresh(96u << 20, staging[i], KVDB_POLICY_DEFAULT);
		for (unsigned round = 0; round < 4; round++) {
			fill(0, keys[i]);
			settle();
			T_EQ(kvdb_stats(db, &st), 0);
			T_OK(st.space_bytes <= (uint64_t)keys[i] * VLEN * 3 / 2 + 16 * SEG);
		}
		all_hold(keys[i]);
		done();
	}
}

/* Without any background work but flushes. */
static void put_flushed(uint32_t from, uint32_t to)
{
	for (uint32_t k = from; k < to; k++) {
		T_EQ(put(k), 0);
		if (k % 100 == 99 || k + 1 == to)
			T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	}
}

/* A segment on capacity is half dead, and most of what is on staging. */
static void a_job_on_capacity_that_brings_little_is_not_the_last(void)
{
	struct kvdb_stats st;

	fresh(96u << 20, 24u << 20, KVDB_POLICY_DEFAULT);
	add_run(0, 200);
	T_EQ(move_from(MPOOL_STAGING), 1);
	put_flushed(0, 10);
	for (unsigned i = 0; i < 3; i++)
		put_flushed(1000, 1900);
	T_OK(kv_staging_is_filling(db, kv_segs_staged(db)));
	T_EQ(kv_staging_excess(db, kv_segs_staged(db)), 0);
	settle();
	T_EQ(kvdb_stats(db, &st), 0);
	T_OK(st.space_bytes <= 1100ull * VLEN * 3 / 2 + 16 * SEG);
	all_hold(1900);
	done();
}

static void capacity_only_keeps_neither_keys_nor_values_on_staging(void)
{
	uint64_t n[MPOOL_MCLASSES];

	fresh(64u << 20, 24u << 20, KVDB_POLICY_CAPACITY_ONLY);
	fill(0, 2000);
	settle();
	where(n);
	T_OK(n[MPOOL_CAPACITY] >= 1900);
	/* the segment that the log has open, and what is not sealed */
	T_OK(n[MPOOL_STAGING] <= 3 * SEG / VLEN);
	T_EQ(keys_in(), MPOOL_CAPACITY);
	all_hold(2000);
	done();
}

/* So many looks of background work, less than five seconds apart in all; how often it counted. */
static uint64_t counts(unsigned looks)
{
	uint64_t was = db->d_reloc->rl_counts;

	kv_reloc_look(db);
	while (kvdb_poll(db) > 0)
		;
	was = db->d_reloc->rl_counts - was;
	T_OK(was >= 1);
	was = db->d_reloc->rl_counts;
	while (looks--) {
		now_ns += KV_RELOC_LOOK_NS;
		while (kvdb_poll(db) > 0)
			;
	}
	return db->d_reloc->rl_counts - was;
}

/* A count goes through all parts of a store. */
static void what_lies_wrong_is_not_counted_again_before_a_change(void)
{
	uint64_t was;

	clk = &test_clock;
	fresh(64u << 20, 24u << 20, KVDB_POLICY_CAPACITY_ONLY);
	fill(0, 2000);
	settle();
	T_OK(counts(40) <= 1);
	was = db->d_reloc->rl_counts;
	T_EQ(put(2000), 0);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	now_ns += KV_RELOC_LOOK_NS;
	while (kvdb_poll(db) > 0)
		;
	T_OK(db->d_reloc->rl_counts > was);
	all_hold(2001);
	done();
	clk = NULL;
}

static void a_change_of_the_policy_moves_what_is_there(void)
{
	struct kvdb_kvs_opts ko = KVDB_KVS_OPTS_INIT;
	uint64_t n[MPOOL_MCLASSES];

	fresh(64u << 20, 32u << 20, KVDB_POLICY_STAGING_PREF);
	fill(0, 2000);
	settle();
	where(n);
	T_EQ(n[MPOOL_CAPACITY], 0);
	ko.policy = KVDB_POLICY_CAPACITY_ONLY;
	T_EQ(kvdb_kvs_set(kvs, &ko, KVDB_KVS_POLICY), 0);
	settle();
	where(n);
	T_OK(n[MPOOL_CAPACITY] >= 1900);
	all_hold(2000);
	ko.policy = KVDB_POLICY_STAGING_ONLY;
	T_EQ(kvdb_kvs_set(kvs, &ko, KVDB_KVS_POLICY), 0);
	settle();
	where(n);
	T_EQ(n[MPOOL_CAPACITY], 0);
	all_hold(2000);
	done();
}

/* ---- on a pool that another client fills -------------------------------------------- */

#define FILLERS	4096u

static struct mpool_obj *filler[FILLERS];
static unsigned nfiller;

/* Takes a class, until so much of the pool is left beside what is kept for flushes. */
static void take_pool(uint32_t mclass, uint64_t left)
{
	struct mpool_alloc req = { .kind = MPOOL_MBLOCK, .mclass = mclass, .capacity = SEG };

	while (nfiller < FILLERS && kv_segs_spare_bytes(db) > left + SEG &&
	       !mpool_alloc(db->d_mp, &req, 1, &filler[nfiller]))
		nfiller++;
}

static void give_back(void)
{
	while (nfiller)
		mpool_obj_close(filler[--nfiller]);
}

static uint64_t moved_bytes(void)
{
	struct kvdb_stats st;

	T_EQ(kvdb_stats(db, &st), 0);
	return st.io[MPOOL_CAPACITY].move_bytes;
}

static void what_is_kept_for_flushes_is_not_for_policy(void)
{
	struct kvdb_kvs_opts ko = KVDB_KVS_OPTS_INIT;
	uint64_t n[MPOOL_MCLASSES];

	fresh(64u << 20, 32u << 20, KVDB_POLICY_STAGING_PREF);
	fill(0, 2000);
	settle();
	ko.policy = KVDB_POLICY_CAPACITY_ONLY;
	T_EQ(kvdb_kvs_set(kvs, &ko, KVDB_KVS_POLICY), 0);
	take_pool(MPOOL_STAGING, 0);
	take_pool(MPOOL_CAPACITY, 0);
	T_OK(kv_segs_spare_bytes(db) < 2 * SEG);
	for (unsigned i = 0; i < 3; i++) {
		kv_reloc_look(db);
		T_EQ(kv_reloc_step(db), 0);
	}
	/* not a byte, also of a job that found no room in the end */
	T_EQ(moved_bytes(), 0);
	give_back();
	settle();
	where(n);
	T_OK(n[MPOOL_CAPACITY] >= 1900);
	all_hold(2000);
	done();
}

#define LEFT	(512u << 10)	/* for the second job */

static bool is_watching;
static unsigned nested;		/* jobs for staging inside one for space */
static uint64_t nested_bytes;

/* Victims of a job for space. */
static void add_victim(void *arg, struct kv_seg *s)
{
	if (atomic_load(&s->sg_victim) == KV_VICTIM)
		*(uint64_t *)arg += s->sg_bytes;
}

/* The job for space has promised what it will write: here the other one comes. */
static uint64_t watching_now(void *arg)
{
	uint64_t victims = 0, was;

	if (is_watching) {
		is_watching = false;
		kv_segs_each(db, add_victim, &victims);
		is_watching = !victims;
	}
	if (victims) {
		was = moved_bytes();
		take_pool(MPOOL_CAPACITY, kv_reloc_due(db) + LEFT);
		T_OK(kv_reloc_step(db) >= 0);
		nested_bytes = moved_bytes() - was;
		nested++;
	}
	return clock_now(arg);
}

static const struct kvdb_clock watching = { watching_now, clock_sleep, NULL, NULL };

/* G11: the second job does not count on what the first one still has to write. */
static void two_jobs_share_the_room_there_is(void)
{
	clk = &watching;
	amp = 1.1;
	fresh(96u << 20, 16u << 20, KVDB_POLICY_DEFAULT);
	fill(0, 6000);
	settle();
	/* the clock stands still, so there are jobs for staging only */
	for (uint32_t k = 0; k < 6000; k += 64)
		fill(k, k + 32);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	while (kvdb_poll(db) > 0)
		;
	for (uint32_t k = 6000; !kv_staging_excess(db, kv_segs_staged(db)); k++) {
		T_EQ(put(k), 0);
		if (k % 64 == 0)
			T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	}
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	now_ns += 10000000000u;
	is_watching = true;
	kv_reloc_look(db);
	T_OK(kv_reloc_step(db) >= 0);
	is_watching = false;
	T_EQ(nested, 1);
	T_OK(nested_bytes <= LEFT);
	give_back();
	clk = NULL;
	settle();
	all_hold(9000);
	done();
	amp = 0;
}

static uint64_t moved_before, promised;

static void add_old(void *arg, struct kv_seg *s)
{
	*(bool *)arg |= atomic_load(&s->sg_victim) == KV_VICTIM_OLD;
}

/* A job for staging has promised what it will write, and may have written some of it. */
static uint64_t promise_now(void *arg)
{
	bool has_begun = false;

	if (is_watching) {
		is_watching = false;
		kv_segs_each(db, add_old, &has_begun);
		is_watching = !has_begun;
	}
	if (has_begun)
		promised = kv_reloc_due(db) + moved_bytes() - moved_before;
	return clock_now(arg);
}

static const struct kvdb_clock promise = { promise_now, clock_sleep, NULL, NULL };

/* G11: of the runs that refer to its victims all that lies on staging leaves. */
static void a_job_for_staging_writes_what_it_promised(void)
{
	clk = &promise;
	fresh(96u << 20, 16u << 20, KVDB_POLICY_DEFAULT);
	for (uint32_t k = 0; !kv_staging_excess(db, kv_segs_staged(db)); k++) {
		T_EQ(put(k), 0);
		if (k % 64 == 0)
			T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	}
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	while (kv_merge_step(db, kvs) > 0)
		;
	promised = 0;
	moved_before = moved_bytes();
	is_watching = true;
	T_EQ(kv_reloc_step(db), 1);
	is_watching = false;
	T_OK(promised > 0);
	T_OK(moved_bytes() - moved_before > 1u << 20);
	T_OK(moved_bytes() - moved_before <= promised);
	clk = NULL;
	settle();
	done();
}

static void staging_only_fails_where_others_fall_back(void)
{
	struct kvdb_kvs_opts ko = KVDB_KVS_OPTS_INIT;
	uint64_t n[MPOOL_MCLASSES];
	uint32_t k = 0;
	int err = 0;

	fresh(96u << 20, 16u << 20, KVDB_POLICY_STAGING_ONLY);
	for (; k < 19000 && !err; k++) {
		err = put(k);
		if (k % 64 == 0)
			while (kvdb_poll(db) > 0)
				;
	}
	T_EQ(err, -ENOSPC);
	T_STREQ(kvdb_error_detail()->id, "MP0940");
	T_OK(k > 1000 && k < 6000);
	all_hold(k);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	where(n);
	T_EQ(n[MPOOL_CAPACITY], 0);
	/* the same store under another policy takes it */
	ko.policy = KVDB_POLICY_TIERED;
	T_EQ(kvdb_kvs_set(kvs, &ko, KVDB_KVS_POLICY), 0);
	T_EQ(put(k), 0);
	all_hold(k + 1);
	done();
}

#define LOADED 12000u

struct loaded {
	unsigned ld_n[MPOOL_MCLASSES];	/* segments that runs refer to */
	uint32_t ld_most;		/* bytes of the largest */
};

static void add_loaded(void *arg, struct kv_seg *s)
{
	struct loaded *ld = arg;

	if (!atomic_load(&s->sg_runs))
		return;
	ld->ld_n[s->sg_mclass]++;
	ld->ld_most = s->sg_bytes > ld->ld_most ? s->sg_bytes : ld->ld_most;
}

static void load_key(uint32_t k, uint8_t key[4])
{
	for (unsigned i = 0; i < 4; i++)
		key[i] = (uint8_t)(k >> (24 - 8 * i));
}

static void load(uint32_t policy, struct loaded *ld)
{
	uint8_t val[VLEN], got[VLEN], key[4];
	struct kvdb_bulk *bulk;
	size_t len;

	fresh(128u << 20, 64u << 20, policy);
	T_EQ(kvdb_bulk_open(kvs, 0, &bulk), 0);
	for (uint32_t k = 0; k < LOADED; k++) {
		value(k, 1, val);
		load_key(k, key);
		T_EQ(kvdb_bulk_add(bulk, key, 4, val, VLEN), 0);
	}
	T_EQ(kvdb_bulk_finish(bulk), 0);
	*ld = (struct loaded){ .ld_most = 0 };
	kv_segs_each(db, add_loaded, ld);
	for (uint32_t k = 0; k < LOADED; k += 17) {
		value(k, 1, val);
		load_key(k, key);
		T_EQ(kvdb_get(kvs, key, 4, got, VLEN, &len), 0);
		T_OK(len == VLEN && !memcmp(val, got, VLEN));
	}
}

/* At once, and in segments that get larger: there may be more values than small ones can hold. */
static void a_load_goes_where_its_values_would(void)
{
	struct loaded ld;

	load(KVDB_POLICY_DEFAULT, &ld);
	T_EQ(ld.ld_n[MPOOL_STAGING], 0);
	T_OK(ld.ld_n[MPOOL_CAPACITY] < LOADED * VLEN / SEG / 8);
	T_EQ(ld.ld_most, db->d_budget.b_move_bytes);
	T_EQ(kvdb_drain(db, KVDB_WAIT_COMPACT), 0);
	done();
	load(KVDB_POLICY_STAGING_PREF, &ld);
	T_EQ(ld.ld_n[MPOOL_CAPACITY], 0);
	T_EQ(ld.ld_most, SEG);
	done();
}

struct held {
	unsigned he_n[MPOOL_MCLASSES];
	uint32_t he_most[MPOOL_MCLASSES];	/* bytes of the largest */
};

static void add_held(void *arg, struct kv_seg *s)
{
	struct held *he = arg;

	if (s->sg_stream != KV_VLOG || atomic_load(&s->sg_first_epoch) != 1)
		return;
	he->he_n[s->sg_mclass]++;
	if (s->sg_bytes > he->he_most[s->sg_mclass])
		he->he_most[s->sg_mclass] = s->sg_bytes;
}

/* What capacity has no large piece of is used up in small ones, to its reserve, then staging. */
static void a_load_ends_when_the_pool_is_full(void)
{
	struct held he = { .he_n = { 0 } };
	struct kvdb_bulk *bulk;
	struct kv_space_left left;
	uint8_t val[VLEN], key[4];
	uint32_t k = 0;
	int err;

	fresh(128u << 20, 64u << 20, KVDB_POLICY_DEFAULT);
	T_EQ(kvdb_bulk_open(kvs, 0, &bulk), 0);
	do {
		value(k, 1, val);
		load_key(k, key);
		err = kvdb_bulk_add(bulk, key, 4, val, VLEN);
	} while (!err && ++k < 100000);
	T_EQ(err, -ENOSPC);
	kv_space_left(db, &left);
	T_OK(left.sl_spare[MPOOL_CAPACITY] < SEG);
	kv_segs_each(db, add_held, &he);
	T_EQ(he.he_most[MPOOL_CAPACITY], db->d_budget.b_move_bytes);
	T_OK(he.he_n[MPOOL_STAGING] > 8);
	T_EQ(he.he_most[MPOOL_STAGING], SEG);
	kvdb_bulk_abort(bulk);
	settle();
	T_EQ(kvdb_bulk_open(kvs, 0, &bulk), 0);
	T_EQ(kvdb_bulk_add(bulk, key, 4, val, VLEN), 0);
	T_EQ(kvdb_bulk_finish(bulk), 0);
	done();
}

/* Another user of the pool leaves so much of a class. */
static void take_class(uint32_t mclass, struct mpool_obj **obj, unsigned *n, uint64_t left)
{
	struct mpool_alloc req = { .kind = MPOOL_MBLOCK, .mclass = mclass, .capacity = 128u << 10,
				   .tag = 7, .flags = MPOOL_ALLOC_SPARE };
	struct kv_space_left sl;

	for (kv_space_left(db, &sl); sl.sl_spare[mclass] > left; kv_space_left(db, &sl)) {
		T_OK(*n < FILLERS);
		T_EQ(mpool_alloc(db->d_mp, &req, 1, &obj[(*n)++]), 0);
	}
}

/* V2: a store that must log to staging was refused beside a capacity with room. */
static void keys_leave_the_last_of_staging_to_logs(void)
{
	static struct mpool_obj *obj[FILLERS];
	uint64_t logs, bytes = 100u << 10;
	unsigned n = 0;

	fresh(32u << 20, 32u << 20, KVDB_POLICY_STAGING_ONLY);
	logs = 2ull * KV_STREAMS * db->d_budget.b_logs * db->d_budget.b_seg_bytes;
	T_EQ(kv_space_class(db, MPOOL_STAGING, bytes), MPOOL_STAGING);
	take_class(MPOOL_STAGING, obj, &n, bytes + logs - 1);
	T_EQ(kv_space_class(db, MPOOL_STAGING, bytes), MPOOL_CAPACITY);
	/* not for good: without room elsewhere */
	take_class(MPOOL_CAPACITY, obj, &n, bytes - 1);
	T_EQ(kv_space_class(db, MPOOL_STAGING, bytes), MPOOL_STAGING);
	T_EQ(kv_space_class(db, MPOOL_CAPACITY, bytes), MPOOL_STAGING);
	while (n)
		mpool_obj_close(obj[--n]);
	done();
}

int main(void)
{
	T_RUN(policies_name_the_classes);
	T_RUN(the_oldest_leave_staging_first);
	T_RUN(who_waits_for_staging_gets_the_rate_at_which_it_empties);
	T_RUN(the_log_leaves_staging_rather_than_stop);
	T_RUN(an_open_cursor_does_not_slow_writers);
	T_RUN(tiered_values_age_to_capacity_when_staging_is_tight);
	T_RUN(runs_on_staging_stay_apart_until_they_are_many);
	T_RUN(runs_of_a_leaf_that_stay_apart_hold_up_no_spill);
	T_RUN(what_lives_is_known_however_many_runs_hold_it);
	T_RUN(what_lives_is_read_once);
	T_RUN(staging_is_emptied_beside_another_job);
	T_RUN(space_is_bounded_whatever_leaves_staging);
	T_RUN(a_job_on_capacity_that_brings_little_is_not_the_last);
	T_RUN(capacity_only_keeps_neither_keys_nor_values_on_staging);
	T_RUN(what_lies_wrong_is_not_counted_again_before_a_change);
	T_RUN(a_change_of_the_policy_moves_what_is_there);
	T_RUN(what_is_kept_for_flushes_is_not_for_policy);
	T_RUN(two_jobs_share_the_room_there_is);
	T_RUN(a_job_for_staging_writes_what_it_promised);
	T_RUN(staging_only_fails_where_others_fall_back);
	T_RUN(a_load_goes_where_its_values_would);
	T_RUN(a_load_ends_when_the_pool_is_full);
	T_RUN(keys_leave_the_last_of_staging_to_logs);
	return t_done();
}
