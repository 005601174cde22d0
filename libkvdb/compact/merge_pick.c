/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Which runs of one part of a store, a leaf or the runs of all keys, to merge.
 * It only looks; the caller holds the tree.
 */
#include "base/assert.h"
#include "base/guard.h"
#include "db/db.h"
#include "db/etime.h"
#include "db/policy.h"
#include "seg/reserve.h"
#include "run/run.h"
#include "run/run_omf.h"
#include "tree/leaf.h"
#include "tree/tomb_view.h"
#include "compact/merge.h"
#include "compact/reloc.h"

#define TIER_FACTOR	4u
#define SUM_NUM		16	/* 3.2: runs of one tier are not all equal */
#define SUM_DEN		5
#define RUNS_WANTED	8u	/* more are merged whatever their sizes */
#define STAGED_WANTED	16u	/* the same of those that values are to leave staging from */
#define PART_WANTED	4u	/* of the older keys are deleted: they are merged, */
#define PART_LEAST	64u	/* never for less than this */
#define PIECE_LEAST	(3ull * KV_PAGE) /* media that the smallest run takes */
#define LEAVES_LEFT	4u	/* no split is tried so close to the limit of leaves */

/* LF9: what a flush waits for is due */
_Static_assert(KV_UPPER_RUNS_MAX > RUNS_WANTED && KV_UPPER_RUNS_MAX >= 2 * KV_SPILL_RUNS,
	       "merges are due before the last upper run");

/*
 * A stretch of at least TIER_FACTOR neighbours is due when together they hold
 * SUM_NUM / SUM_DEN times the keys of the largest: then merging moves each key
 * up by about that factor. Of several the one with the smallest largest run
 * goes, then the longest.
 */
static unsigned pick_tier(const uint64_t *keys, unsigned n, unsigned *first)
{
	uint64_t best = UINT64_MAX;
	unsigned len = 0;

	for (unsigned i = 0; i < n; i++) {
		double sum = 0;
		uint64_t max = 1;

		for (unsigned j = i; j < n && j - i < KV_MERGE_MAX; j++) {
			sum += (double)keys[j];
			if (keys[j] > max)
				max = keys[j];
			if (j - i + 1 < TIER_FACTOR || sum * SUM_DEN < (double)max * SUM_NUM)
				continue;
			if (max < best || (max == best && j - i + 1 > len)) {
				best = max;
				len = j - i + 1;
				*first = i;
			}
		}
	}
	return len;
}

/* The @want neighbours with the fewest keys; 0: there are fewer. */
static unsigned pick_cheapest(const uint64_t *keys, unsigned n, unsigned want, unsigned *first)
{
	double best = -1;

	for (unsigned i = 0; i + want <= n; i++) {
		double sum = 0;

		for (unsigned j = i; j < i + want; j++)
			sum += (double)keys[j];
		if (best < 0 || sum < best) {
			best = sum;
			*first = i;
		}
	}
	return want <= n ? want : 0;
}

/* With more runs than @most the cheapest stretch that brings their number down goes. */
static unsigned pick_fewer(const uint64_t *keys, unsigned n, unsigned most, unsigned *first)
{
	unsigned want = n - most + 1;

	if (n <= most)
		return 0;
	return pick_cheapest(keys, n, want < KV_MERGE_MAX ? want : KV_MERGE_MAX, first);
}

unsigned kv_merge_pick(const uint64_t *keys, unsigned n, unsigned *first)
{
	unsigned len = pick_tier(keys, n, first);

	return len ? len : pick_fewer(keys, n, RUNS_WANTED, first);
}

/*
 * Deletions that @keys older ones have beside them before they are merged with these. A quarter:
 * less would copy the older ones for little. On a pool that is nearly full they would take the last
 * of it before they are so many, and no merge would have room: there all of them together may take
 * half of what is free, but for a part of the keys that no merge is worth.
 */
static uint64_t deletions_wanted(struct kvdb *db, uint64_t keys)
{
	uint64_t runs = kv_reloc_run_bytes(db), left;
	double part = 1.0 / PART_WANTED;

	if (!runs || !kv_segs_are_short(db))
		return keys / PART_WANTED;
	left = kv_segs_free_bytes(db) / 2;
	if (part > (double)left / (double)runs)
		part = (double)left / (double)runs;
	if (part < 1.0 / PART_LEAST)
		part = 1.0 / PART_LEAST;
	return (uint64_t)(part * (double)keys);
}

/* Each leaf asks: the pool is asked for its room only where that decides. */
static bool has_many_deletions(struct kvdb *db, uint64_t tombs, uint64_t keys)
{
	if (!tombs || tombs < keys / PART_LEAST)
		return false;
	return tombs > keys / PART_WANTED || tombs > deletions_wanted(db, keys);
}

/*
 * R19: what is deleted or overwritten gives its space back when it meets the
 * oldest run. That is due when the newer runs delete as much as is wanted, and on a full pool
 * also when they merely hold a quarter of its keys.
 */
static unsigned pick_for_space(struct kvdb *db, struct kv_run **run, unsigned n, unsigned *first)
{
	unsigned len = n < KV_MERGE_MAX ? n : KV_MERGE_MAX;
	uint64_t newer = 0, tombs = 0, oldest;

	if (len < 2)
		return 0;
	for (unsigned i = n - len; i + 1 < n; i++) {
		newer += kv_run_desc(run[i])->rd_keys;
		tombs += run[i]->rn_tombs;
	}
	oldest = kv_run_desc(run[n - 1])->rd_keys;
	tombs += kv_tombs_garbage(run + (n - len), len, len);
	if (!has_many_deletions(db, tombs, oldest) &&
	    (newer < oldest / PART_WANTED || !kv_segs_are_short(db)))
		return 0;
	*first = n - len;
	return len;
}

/*
 * What expired is garbage as well: due from the newest run on in which it is a
 * quarter of the keys, down to the oldest, alone if it is that one.
 */
static unsigned pick_for_expiry(struct kvdb *db, struct kv_run **run, unsigned n, unsigned *first)
{
	unsigned len = n < KV_MERGE_MAX ? n : KV_MERGE_MAX;
	uint64_t now = kv_time_ms(db);

	for (unsigned i = n - len; i < n; i++) {
		uint64_t gone = kv_run_expired(run[i], now);

		if (!gone || gone < kv_run_desc(run[i])->rd_keys / 4)
			continue;
		*first = i;
		return n - i;
	}
	return 0;
}

/* A move empties a run below deletions and leaves them: then they hide nothing any more. */
static unsigned pick_deletions(struct kvdb *db, struct kv_run **run, unsigned n, unsigned *first)
{
	struct kv_run *oldest = run[n - 1];

	if (kv_run_desc(oldest)->rd_keys > oldest->rn_tombs ||
	    kv_is_looked_for(db, &oldest, 1))
		return 0;
	*first = n - 1;
	return 1;
}

uint64_t kv_runs_keys(struct kv_run *const *run, unsigned n)
{
	uint64_t keys = 0;

	while (n--)
		keys += kv_run_desc(run[n])->rd_keys;
	return keys;
}

uint64_t kv_runs_bytes(struct kv_run *const *run, unsigned n)
{
	uint64_t bytes = 0;

	while (n--)
		bytes += run[n]->rn_bytes;
	return bytes;
}

uint64_t kv_leaf_keys(struct kvdb *db, struct kv_run *const *run, unsigned n)
{
	uint64_t most = db->d_budget.b_leaf_keys, bytes = kv_runs_bytes(run, n), fit;

	if (bytes <= db->d_budget.b_leaf_bytes)
		return most;
	fit = (uint64_t)((double)kv_runs_keys(run, n) * (double)db->d_budget.b_leaf_bytes /
			 (double)bytes) + 1;
	return fit < most ? fit : most;
}

uint64_t kv_merge_output(struct kv_run *const *run, unsigned n, unsigned pieces)
{
	uint64_t keys = 1, tombs = 0, bytes = kv_runs_bytes(run, n), left;

	if (pieces)
		return bytes + pieces * PIECE_LEAST;
	for (unsigned i = 0; i < n; i++) {
		keys += kv_run_desc(run[i])->rd_keys;
		tombs += run[i]->rn_tombs;
	}
	tombs += kv_tombs_garbage(run, n, n) / 2;
	left = keys > 2 * tombs ? keys - 2 * tombs : 0;
	return bytes / keys * left;
}

/*
 * What makes room begins however little there is. Of what is free, and no other merge will write,
 * a quarter is left to logs and flushes. A pool that is not nearly full has what a leaf takes; one
 * that outgrew LF2 for want of room would take all there is from other leaves, for nothing.
 */
static bool fits_beside(struct kvdb_kvs *kvs, struct kv_run *const *run, unsigned n,
			unsigned pieces, uint64_t due)
{
	const struct kv_backoff *bo = &kvs->k_merging.mg_no_room;
	struct kvdb *db = kvs->k_db;
	uint64_t output = kv_merge_output(run, n, pieces), left = kv_segs_free_bytes(db);
	bool is_stuck = kv_backoff_is_active(db, bo);

	if (!is_stuck && !kv_segs_are_short(db) &&
	    kv_runs_bytes(run, n) <= 4 * db->d_budget.b_leaf_bytes)
		return true;
	left = left > due ? left - due : 0;
	return output <= (is_stuck ? left >> bo->bo_at : left - left / 4);
}

bool kv_merge_fits(struct kvdb_kvs *kvs, struct kv_run *const *run, unsigned n, unsigned pieces)
{
	return fits_beside(kvs, run, n, pieces, atomic_load(&kvs->k_db->d_runs.ru_merge_due));
}

bool kv_merge_will_fit(struct kvdb_kvs *kvs, struct kv_run *const *run, unsigned n)
{
	return fits_beside(kvs, run, n, 0, 0);
}

static void has_staged(void *arg, struct kv_seg *s, uint64_t n, uint64_t bytes)
{
	(void)n;
	(void)bytes;
	*(bool *)arg |= s->sg_mclass == MPOOL_STAGING;
}

uint32_t kv_runs_staged(struct kv_run *const *run, uint32_t n)
{
	bool has = false;

	for (; n && !has; n--)
		kv_run_segs(run[n - 1], has_staged, &has);
	return n + has;
}

/*
 * How many of the newest runs values are to leave staging from. That rewrites
 * them, and they go one by one, the oldest first: as long as they are few they
 * are not merged, then no more of them than must be, and never with older ones.
 */
static unsigned staged_runs(struct kvdb_kvs *kvs, struct kv_run **run, unsigned n)
{
	struct kvdb *db = kvs->k_db;

	if (db->d_mode.md_log_class == MPOOL_CAPACITY ||
	    kv_policy_move_class(db, kvs, true) != MPOOL_CAPACITY ||
	    !kv_staging_is_filling(db, kv_segs_staged(db)))
		return 0;
	return kv_runs_staged(run, n);
}

/*
 * So many may stay apart. With those that do not, a leaf has fewer than what holds up every
 * spill (LF6): nothing else would ever make them fewer, nor the upper runs that wait for it.
 */
static unsigned staged_wanted(struct kv_run *const *run, unsigned rest)
{
	unsigned most = rest + 1 < KV_LEAF_RUNS_MAX ? KV_LEAF_RUNS_MAX - 1 - rest : 1;

	return CHECK(!run[0]->rn_desc.rd_leaf) || most > STAGED_WANTED ? STAGED_WANTED : most;
}

uint64_t kv_leaf_cut(const struct kvdb_kvs *kvs, const struct kv_tree *tr, uint64_t keys,
		     uint64_t leaf)
{
	uint64_t half = leaf / 2;
	uint64_t left = tr->tr_nleaf + kvs->k_merging.mg_coming;

	if (left + LEAVES_LEFT > KV_LEAVES_MAX)
		return 0;
	left = KV_LEAVES_MAX - left;
	keys = keys / left + 1;
	return keys > half ? keys : half ? half : 1;
}

bool kv_split_is_due(const struct kvdb_kvs *kvs, const struct kv_tree *tr, struct kv_run **run,
		     unsigned n)
{
	uint64_t keys = kv_runs_keys(run, n), leaf = kv_leaf_keys(kvs->k_db, run, n);

	return n <= KV_MERGE_MAX && keys > 2 * leaf && kv_leaf_cut(kvs, tr, keys, leaf);
}

unsigned kv_pick_part(struct kvdb_kvs *kvs, struct kv_run **run, unsigned n, bool is_all,
		      unsigned *first)
{
	unsigned len, staged, i = 0, skip = n > 256 ? n - 256 : 0; /* the oldest count first */
	struct kvdb *db = kvs->k_db;
	uint64_t keys[256];

	*first = 0;
	if (!n)
		return 0;
	run += skip;
	n -= skip;
	do
		keys[i] = kv_run_desc(run[i])->rd_keys;
	while (++i < n);
	staged = staged_runs(kvs, run, n);
	len = pick_fewer(keys, staged, staged_wanted(run, n - staged), first);
	if (len < 2) {
		len = kv_merge_pick(keys + staged, n - staged, first);
		*first += staged;
	}
	if (len < 2 && is_all)
		len = pick_for_space(db, run, n, first);
	if (len < 2 && is_all)
		len = pick_for_expiry(db, run, n, first);
	if (!len && is_all)
		len = pick_deletions(db, run, n, first);
	KV_ASSERT(!len || (len <= KV_MERGE_MAX && *first + len <= n));
	*first += skip;
	return len;
}

unsigned kv_pick_fitting(struct kvdb_kvs *kvs, struct kv_run **run, unsigned n, unsigned *first)
{
	unsigned staged, want = n > RUNS_WANTED ? n - RUNS_WANTED + 1 : 0;
	uint64_t keys[2 * KV_LEAF_RUNS_MAX];

	if (n > 2 * KV_LEAF_RUNS_MAX)
		return 0;
	for (unsigned i = 0; i < n; i++)
		keys[i] = kv_run_desc(run[i])->rd_keys;
	staged = staged_runs(kvs, run, n);
	for (; want > 1; want--) {
		unsigned len = pick_cheapest(keys + staged, n - staged, want, first);

		if (!len)
			continue;
		*first += staged;
		KV_ASSERT(*first + len <= n);
		if (kv_merge_fits(kvs, run + *first, len, 1))
			return len;
	}
	return 0;
}

unsigned kv_pick_asked(struct kvdb *db, struct kv_run **run, unsigned n, unsigned *first)
{
	unsigned len = n < KV_MERGE_MAX ? n : KV_MERGE_MAX;

	*first = n - len;
	if (n != 1)
		return len;
	return run[0]->rn_tombs || run[0]->rn_tindex || kv_run_expired(run[0], kv_time_ms(db));
}

bool kv_spill_for_space(struct kvdb *db, struct kv_tree *tr)
{
	uint64_t newer = kv_runs_keys(tr->tr_run, tr->tr_nupper), tombs;
	uint64_t older = kv_runs_keys(tr->tr_run + tr->tr_nupper, tr->tr_nrun - tr->tr_nupper);

	if (!tr->tr_nupper)
		return false;
	tombs = kv_tombs_garbage(tr->tr_run, tr->tr_nupper, tr->tr_nrun);
	for (uint32_t i = 0; i < tr->tr_nupper; i++)
		tombs += tr->tr_run[i]->rn_tombs;
	return has_many_deletions(db, tombs, older) ||
	       (newer >= older / PART_WANTED && kv_segs_are_short(db));
}
