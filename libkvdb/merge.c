/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Compaction of runs.
 *
 * Compaction moves keys only: a merged entry keeps its reference, the value
 * stays where the log wrote it. Runs are merged in groups that are neighbours
 * in age, so that position in the tree always means age; the new run takes the
 * position of the newest input. A version is dropped only because a durable,
 * newer run in the same merge holds the key (R6), a tombstone only when nothing
 * older than the merge is left.
 *
 * Leaves (DESIGN.md): a merge works on the runs of one leaf, of a store without
 * leaves, or spills upper runs into all leaves.
 *
 * One merge at a time per store (k_merging); flushes may publish newer runs
 * meanwhile. kvs->k_edit_lock is held only while the result is published.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "compact.h"
#include "leaf.h"
#include "pages.h"
#include "reloc.h"
#include "run.h"
#include "tomb.h"
#include "txn.h"

#define MERGE_MAX	32u	/* sources */
#define TIER_FACTOR	4u
#define SUM_NUM		16	/* 3.2: runs of one tier are not all equal */
#define SUM_DEN		5
#define RUNS_WANTED	8u	/* more are merged whatever their sizes */
#define LEAVES_LEFT	4u	/* a split makes a few; near the limit none is tried */
#define CHECK_EVERY	128u	/* entries (about a page) between looks at stop and fault */

/* ---- choice of runs ------------------------------------------------------------------- */

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

		for (unsigned j = i; j < n && j - i < MERGE_MAX; j++) {
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

/* With too many runs the cheapest stretch that brings their number down goes. */
unsigned kv_merge_pick(const uint64_t *keys, unsigned n, unsigned *first)
{
	unsigned want = pick_tier(keys, n, first);
	double best = -1;

	if (want || n <= RUNS_WANTED)
		return want;
	want = n - RUNS_WANTED + 1;
	if (want > MERGE_MAX)
		want = MERGE_MAX;
	for (unsigned i = 0; i + want <= n; i++) {
		double sum = 0;

		for (unsigned j = i; j < i + want; j++)
			sum += (double)keys[j];
		if (best < 0 || sum < best) {
			best = sum;
			*first = i;
		}
	}
	return want;
}

/*
 * R19: what is deleted or overwritten gives its space back when it meets the
 * oldest run. That is due when the newer runs delete as much as a quarter of
 * its keys, and on a full pool also when they merely hold so many: less would
 * copy the oldest run for little.
 */
static unsigned pick_for_space(struct kvdb *db, struct kv_run **run, unsigned n, unsigned *first)
{
	unsigned len = n < MERGE_MAX ? n : MERGE_MAX;
	uint64_t newer = 0, tombs = 0, oldest;

	if (len < 2)
		return 0;
	for (unsigned i = n - len; i + 1 < n; i++) {
		newer += kv_run_desc(run[i])->rd_keys;
		tombs += run[i]->rn_tombs;
	}
	oldest = kv_run_desc(run[n - 1])->rd_keys;
	tombs += kv_tombs_garbage(run + (n - len), len, len);
	if (tombs <= oldest / 4 && (newer < oldest / 4 || !kv_segs_are_short(db)))
		return 0;
	*first = n - len;
	return len;
}

/*
 * On a full pool a merge that cannot hold its output would only take the room
 * that deletes and flushes live on. Every deletion removes itself and, most
 * likely, what it deletes.
 */
static bool output_fits(struct kvdb *db, struct kv_run **run, unsigned n)
{
	uint64_t keys = 1, tombs = 0, bytes = 0, left;

	if (!kv_segs_are_short(db))
		return true;
	for (unsigned i = 0; i < n; i++) {
		keys += kv_run_desc(run[i])->rd_keys;
		tombs += run[i]->rn_tombs;
		bytes += run[i]->rn_bytes;
	}
	tombs += kv_tombs_garbage(run, n, n) / 2;
	left = keys > 2 * tombs ? keys - 2 * tombs : 0;
	return bytes / keys * left <= kv_segs_free_bytes(db) / 2;
}

static uint64_t keys_of(struct kv_run *const *run, unsigned n)
{
	uint64_t keys = 0;

	while (n--)
		keys += kv_run_desc(run[n])->rd_keys;
	return keys;
}

/* ---- one merge -------------------------------------------------------------------------- */

enum how {
	ONE,	/* one run, where the inputs were */
	SPLIT,	/* a run for each new leaf: all runs of a leaf, or of a store without leaves */
	SPILL,	/* upper runs: one run for each leaf that has some of the keys */
};

struct job {
	struct kvdb *j_db;
	struct kvdb_kvs *j_kvs;
	struct kv_tree *j_tree;
	enum how j_how;
	struct kv_run **j_in;	/* newest first; the tree reference keeps them */
	unsigned j_n;
	uint32_t j_leaf, j_nleaf;	/* they are of these leaves; none: upper runs */
	/* no transaction looks for their deletions (T6) */
	bool j_forgets;
	/* and no older run lies below them: deletions go */
	bool j_no_tombs;
	bool j_asked;		/* for kvdb_compact() */
	struct kv_move *j_move;	/* values of victims move on the way, or NULL */
	struct kv_walk j_walk;	/* progress, with j_asked or j_move */

	struct kv_iter *j_it;
	struct kv_ent j_ent;	/* the next one, if j_has */
	bool j_has;
	uint64_t j_seen, j_keys, j_now;
	struct kv_trows j_tombs;	/* tombstones over many keys that go on (H3) */
	uint64_t j_cut;		/* SPLIT: keys of a leaf */
	uint16_t j_klen;
	uint8_t j_key[KVDB_KEY_MAX];	/* the last one before the cut */

	/* what was made, with references: runs, the leaves they go to, those that are new */
	struct kv_run **j_out;
	struct kv_leaf **j_to, **j_begin;
	unsigned j_nout, j_cap, j_nbegin;
};

/* The part of the output that goes into one run: keys from @lo up to @hi. */
struct piece {
	struct kv_leaf *pc_leaf;	/* NULL: an upper run */
	const uint8_t *pc_hi;		/* NULL: no end */
	size_t pc_hilen;
	uint64_t pc_cut;		/* keys, at most; 0 = all */
	bool pc_no_tombs;
};

/* Drops what tombstones over many keys of the inputs cover. */
static int job_hide(struct job *j)
{
	struct kv_cover *co;
	int rc;

	co = kv_cover_new(NULL, 0, j->j_in, j->j_n, UINT64_MAX, &rc);
	if (co)
		rc = kv_cover_iter(j->j_it, co, &j->j_it);
	else if (rc)
		j->j_it->it_ops->close(j->j_it);
	if (rc)
		j->j_it = NULL;
	return rc;
}

static int job_sources(struct job *j)
{
	struct kv_iter *src[MERGE_MAX];
	unsigned n;
	int rc = 0;

	for (n = 0; n < j->j_n && !rc; n++)
		rc = kv_run_iter_bulk(j->j_db, j->j_in[n], &src[n]);
	if (!rc) {
		rc = kv_merge_iter(src, n, false, true, &j->j_it);
		return rc ? rc : job_hide(j);
	}
	for (n--; n-- > 0;)
		src[n]->it_ops->close(src[n]);
	return rc;
}

/* H3: tombstones over many keys go on, as long as they may hide something elsewhere. */
static int job_tombs(struct job *j)
{
	int rc = 0;

	for (unsigned i = 0; i < j->j_n && !rc; i++)
		rc = kv_trows_run(&j->j_tombs, j->j_in[i]);
	if (!rc)
		kv_trows_needed(&j->j_tombs, j->j_tree, j->j_in, j->j_n, NULL);
	return rc;
}

/* Whoever asked for the merge does not want it any more. */
static bool job_is_cancelled(struct job *j)
{
	if (j->j_move)
		return kv_reloc_is_cancelled(j->j_db);
	return j->j_asked && atomic_load(&j->j_kvs->k_compact) == KV_COMPACT_NONE;
}

/* -ECANCELED: the database stops or failed. */
static int job_next(struct job *j)
{
	int rc;

	do {
		if (j->j_seen++ % CHECK_EVERY == 0) {
			if (kv_work_stopping(j->j_db) || kv_fault(j->j_db) || job_is_cancelled(j))
				return -ECANCELED;
			if (j->j_move || j->j_asked)
				kv_walk_on(j->j_db, &j->j_walk);
		}
		rc = j->j_it->it_ops->next(j->j_it, &j->j_ent);
		j->j_has = !rc;
		if (rc)
			return rc == -ENOENT ? 0 : rc;
		/* R18: where nothing older is left it is nothing, else a tombstone */
		if (KV_UNLIKELY(kv_is_expired(&j->j_ent, j->j_now)))
			kv_ent_expire(&j->j_ent);
	} while (j->j_ent.e_kind == KV_ENT_TOMB && j->j_no_tombs);
	return 0;
}

static bool in_piece(const struct piece *pc, const struct kv_ent *e, uint64_t n)
{
	return (!pc->pc_cut || n < pc->pc_cut) &&
	       (!pc->pc_hi || kv_kcmp(e->e_key, e->e_klen, pc->pc_hi, pc->pc_hilen) < 0);
}

static int piece_copy(struct job *j, const struct piece *pc, struct kv_run_build *rb)
{
	const struct kv_ent *e = &j->j_ent;
	uint64_t n = 0;
	int rc = 0;

	while (!rc && j->j_has && in_piece(pc, e, n)) {
		if (e->e_kind != KV_ENT_TOMB || !pc->pc_no_tombs) {
			rc = j->j_move ? kv_move_add(j->j_move, rb, e) : kv_run_build_add(rb, e);
			if (++n == pc->pc_cut) {
				memcpy(j->j_key, e->e_key, e->e_klen);
				j->j_klen = e->e_klen;
			}
		}
		if (!rc)
			rc = job_next(j);
	}
	return !rc && j->j_move ? kv_move_flush(j->j_move, rb) : rc;
}

/* LF3: of the tombstones over many keys those that meet the piece. */
static int piece_tombs(struct job *j, const struct piece *pc, struct kv_trows *tv)
{
	const struct kv_leaf *lf = pc->pc_leaf;
	int rc = 0;

	for (uint32_t i = 0; i < j->j_tombs.tv_n && !rc; i++)
		if (kv_trange_meets(&j->j_tombs.tv_r[i], lf ? lf->lf_key : NULL,
				    lf ? lf->lf_klen : 0, pc->pc_hi, pc->pc_hilen))
			rc = kv_trows_add(tv, &j->j_tombs.tv_r[i]);
	return rc;
}

static int job_grow(struct job *j)
{
	unsigned cap = j->j_cap ? 2 * j->j_cap : 4;
	struct kv_run **out = realloc(j->j_out, cap * sizeof(*out));
	struct kv_leaf **to = realloc(j->j_to, cap * sizeof(*to));

	j->j_out = out ? out : j->j_out;
	j->j_to = to ? to : j->j_to;
	if (!out || !to)
		return -ENOMEM;
	j->j_cap = cap;
	return 0;
}

static int piece_build(struct job *j, const struct piece *pc)
{
	struct kv_run_build *rb;
	struct kv_trows tv = { 0 };
	struct kv_run *run = NULL;
	int rc = piece_tombs(j, pc, &tv);

	if (!rc && !tv.tv_n && !(j->j_has && in_piece(pc, &j->j_ent, 0)))
		goto out;
	if (!rc && j->j_nout == j->j_cap)
		rc = job_grow(j);
	/* a merge frees space: it may use the reserve */
	if (!rc)
		rc = kv_run_build_open(j->j_db, j->j_kvs->k_id, pc->pc_cut ? pc->pc_cut : j->j_keys,
				       true, &rb);
	if (rc)
		goto out;
	rc = kv_run_build_tombs(rb, tv.tv_r, tv.tv_n);
	if (!rc)
		rc = piece_copy(j, pc, rb);
	if (rc)
		kv_run_build_abort(rb);
	else
		rc = kv_run_build_finish(rb, &run);
	if (!rc && run) {
		j->j_to[j->j_nout] = pc->pc_leaf ? kv_leaf_get(pc->pc_leaf) : NULL;
		j->j_out[j->j_nout++] = run;
	}
out:
	free(tv.tv_r);
	return rc;
}

/* The end of leaf @i: where the next one begins. */
static void leaf_end(const struct kv_tree *tr, uint32_t i, struct piece *pc)
{
	if (i + 1 >= tr->tr_nleaf)
		return;
	pc->pc_hi = tr->tr_leaf[i + 1].lr_leaf->lf_key;
	pc->pc_hilen = tr->tr_leaf[i + 1].lr_leaf->lf_klen;
}

static int build_spill(struct job *j)
{
	int rc = 0;

	for (uint32_t i = 0; i < j->j_tree->tr_nleaf && !rc; i++) {
		const struct kv_leaf_runs *lr = &j->j_tree->tr_leaf[i];
		struct piece pc = { .pc_leaf = lr->lr_leaf,
				    .pc_no_tombs = j->j_forgets && !lr->lr_n };

		leaf_end(j->j_tree, i, &pc);
		rc = piece_build(j, &pc);
	}
	return rc;
}

/* The leaf that begins between the last key of a piece and the next key. */
static int begin_leaf(struct job *j, const void *key, size_t klen, struct kv_leaf **out)
{
	struct kv_leaf **more = realloc(j->j_begin, (j->j_nbegin + 1) * sizeof(*more));
	struct kv_leaf *lf = more ? kv_leaf_new(key, klen) : NULL;

	j->j_begin = more ? more : j->j_begin;
	if (!lf)
		return -ENOMEM;
	lf->lf_id = atomic_fetch_add(&j->j_db->d_next_run, 1);
	j->j_begin[j->j_nbegin++] = *out = lf;
	return 0;
}

static int build_split(struct job *j)
{
	struct piece pc = { .pc_cut = j->j_cut };
	size_t klen;
	int rc;

	if (j->j_nleaf) {
		pc.pc_leaf = j->j_tree->tr_leaf[j->j_leaf].lr_leaf;
		leaf_end(j->j_tree, j->j_leaf, &pc);
	}
	rc = piece_build(j, &pc);
	/* the first leaves of a store: what was built is the run of the first one */
	if (!rc && j->j_has && !j->j_nleaf) {
		rc = begin_leaf(j, NULL, 0, &pc.pc_leaf);
		if (!rc)
			j->j_to[0] = kv_leaf_get(pc.pc_leaf);
	}
	while (!rc && j->j_has && in_piece(&pc, &j->j_ent, 0)) {
		klen = kv_klcp(j->j_key, j->j_klen, j->j_ent.e_key, j->j_ent.e_klen) + 1;
		rc = begin_leaf(j, j->j_ent.e_key, klen, &pc.pc_leaf);
		if (!rc)
			rc = piece_build(j, &pc);
	}
	return rc;
}

static int build_one(struct job *j)
{
	struct piece pc = { 0 };

	if (j->j_nleaf) {
		pc.pc_leaf = j->j_tree->tr_leaf[j->j_leaf].lr_leaf;
		leaf_end(j->j_tree, j->j_leaf + j->j_nleaf - 1, &pc);
	}
	return piece_build(j, &pc);
}

static int job_build(struct job *j)
{
	bool shows = j->j_move || j->j_asked;
	uint64_t bytes = 0;
	int rc = job_sources(j);

	j->j_now = kv_time_ms(j->j_db);
	j->j_keys = keys_of(j->j_in, j->j_n);
	for (unsigned i = 0; i < j->j_n; i++)
		bytes += j->j_in[i]->rn_bytes;
	if (shows)
		kv_walk_begin(j->j_db, &j->j_walk, bytes, j->j_keys / CHECK_EVERY);
	if (!rc)
		rc = job_tombs(j);
	if (!rc)
		rc = job_next(j);
	if (!rc)
		rc = j->j_how == SPILL ? build_spill(j) :
		     j->j_how == SPLIT ? build_split(j) : build_one(j);
	if (!rc && !CHECK(575, !j->j_has))
		rc = kv_error(-EUCLEAN, "MP0960", "store %u: a leaf holds keys of another one",
			      j->j_kvs->k_id);
	if (shows)
		kv_walk_end(j->j_db, &j->j_walk);
	if (j->j_it)
		j->j_it->it_ops->close(j->j_it);
	return rc;
}

/* What was made and is not shown goes; after a failure nobody knows what is listed. */
static void job_end(struct job *j, bool is_shown)
{
	for (unsigned i = 0; i < j->j_nout; i++) {
		kv_leaf_put(j->j_to[i]);
		if (is_shown)
			continue;
		if (!kv_fault(j->j_db))
			kv_run_drop(j->j_out[i]);
		kv_run_put(j->j_db, j->j_out[i]);
	}
	for (unsigned i = 0; i < j->j_nbegin; i++)
		kv_leaf_put(j->j_begin[i]);
	free(j->j_tombs.tv_r);
	free(j->j_out);
	free(j->j_to);
	free(j->j_begin);
}

static void job_describe(struct job *j, struct kv_run *r, const struct kv_leaf *to)
{
	struct kv_run_desc *d = kv_run_desc(r);

	d->rd_id = atomic_fetch_add(&j->j_db->d_next_run, 1);
	d->rd_leaf = to ? to->lf_id : 0;
	d->rd_pos = 0;
	d->rd_newest_epoch = 0;
	for (unsigned i = 0; i < j->j_n; i++) {
		const struct kv_run_desc *in = kv_run_desc(j->j_in[i]);

		if (in->rd_pos > d->rd_pos)
			d->rd_pos = in->rd_pos;
		if (in->rd_newest_epoch > d->rd_newest_epoch)
			d->rd_newest_epoch = in->rd_newest_epoch;
		/* versions that were dropped count: new numbers start above them (R3) */
		if (in->rd_max_seq > d->rd_max_seq)
			d->rd_max_seq = in->rd_max_seq;
	}
}

static int job_publish(struct job *j)
{
	struct kv_edit ed = { .ed_kvs = j->j_kvs->k_id, .ed_add = j->j_out, .ed_nadd = j->j_nout,
			      .ed_drop = j->j_in, .ed_ndrop = j->j_n, .ed_begin = j->j_begin,
			      .ed_nbegin = j->j_nbegin };
	int rc;

	if (j->j_nleaf > 1)
		ed.ed_end = j->j_tree->tr_leaf[j->j_leaf + 1].lr_leaf->lf_id;
	pthread_mutex_lock(&j->j_kvs->k_edit_lock);
	for (unsigned i = 0; i < j->j_nout; i++)
		job_describe(j, j->j_out[i], j->j_to[i]);
	rc = kv_mdc_edit(j->j_db, &ed);
	if (!rc) {
		for (unsigned i = 0; i < j->j_n; i++)
			kv_run_drop(j->j_in[i]);
		rc = kv_tree_edit(j->j_kvs, NULL, &ed);
		if (rc)	/* the media say one thing and memory another */
			kv_fail(j->j_db, rc, "publishing a merge of store %s failed",
				j->j_kvs->k_name);
	}
	pthread_mutex_unlock(&j->j_kvs->k_edit_lock);
	return rc;
}

static void job_count(const struct job *j)
{
	struct kv_counters *c = &j->j_db->d_count;
	uint64_t most = atomic_load(&c->merge_most_keys);

	atomic_fetch_add(&c->merges, 1);
	atomic_fetch_add(&c->spills, j->j_how == SPILL);
	atomic_fetch_add(&c->splits, j->j_nbegin != 0);
	atomic_fetch_add(&c->joins, j->j_nleaf > 1);
	atomic_fetch_add(&c->merge_keys, j->j_keys);
	while (j->j_keys > most &&
	       !atomic_compare_exchange_weak(&c->merge_most_keys, &most, j->j_keys))
		;
}

/* 1, or -errno. */
static int job_run(struct job *j)
{
	int rc = job_build(j);

	/* G2: what the edit refers to is durable before it */
	if (!rc && j->j_move)
		rc = BARRIER(502, kv_move_seal(j->j_move));
	if (!rc)
		rc = job_publish(j);
	if (!rc && !j->j_move)
		job_count(j);
	job_end(j, !rc);
	return rc ? rc : 1;
}

/*
 * A transaction finds out by the newest version that a key was deleted after
 * its view. Views that come later are newer than everything in a run.
 */
static bool is_looked_for(struct kvdb *db, struct kv_run **run, unsigned n)
{
	uint64_t view = kv_views_oldest(db);

	for (unsigned i = 0; i < n; i++)
		if (!CHECK(460, kv_run_desc(run[i])->rd_max_seq <= view))
			return true;
	return false;
}

/*
 * What expired is garbage as well: due from the newest run on in which it is a
 * quarter of the keys, down to the oldest, alone if it is that one.
 */
static unsigned pick_for_expiry(struct kvdb *db, struct kv_run **run, unsigned n, unsigned *first)
{
	unsigned len = n < MERGE_MAX ? n : MERGE_MAX;
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

/* ---- what is due ------------------------------------------------------------------------- */

/* Keys of a piece when so many are cut; 0: no more leaves can be made. */
static uint64_t cut_keys(const struct kvdb *db, const struct kv_tree *tr, uint64_t keys)
{
	uint64_t half = db->d_budget.b_leaf_keys / 2, left = KV_LEAVES_MAX - tr->tr_nleaf;

	if (left < LEAVES_LEFT)
		return 0;
	keys = keys / left + 1;
	return keys > half ? keys : half ? half : 1;
}

/* LF2: twice a leaf's keys: all of it is merged, which splits it. */
static bool split_is_due(struct kvdb *db, const struct kv_tree *tr, struct kv_run **run, unsigned n)
{
	uint64_t keys = keys_of(run, n);

	return n <= MERGE_MAX && keys > 2 * db->d_budget.b_leaf_keys && cut_keys(db, tr, keys);
}

/* Which of a leaf's runs, or of those of a store without leaves. 0: none. */
static unsigned pick(struct kvdb *db, struct kv_tree *tr, struct kv_run **run, unsigned n,
		     unsigned *first)
{
	uint64_t keys[256];
	unsigned len, skip = 0, i = 0;

	*first = 0;
	if (split_is_due(db, tr, run, n))
		return n;
	if (!n)
		return 0;
	if (n > 256) {	/* the oldest count first */
		skip = n - 256;
		run += skip;
		n = 256;
	}
	do
		keys[i] = kv_run_desc(run[i])->rd_keys;
	while (++i < n);
	len = kv_merge_pick(keys, n, first);
	if (len < 2)
		len = pick_for_space(db, run, n, first);
	if (len < 2)
		len = pick_for_expiry(db, run, n, first);
	*first += skip;
	return len;
}

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
	struct job j = { .j_db = db, .j_kvs = kvs, .j_tree = tr, .j_in = &tr->tr_run[first],
			 .j_n = n, .j_leaf = leaf, .j_nleaf = is_leaf, .j_asked = is_asked(kvs) };
	uint64_t keys = keys_of(j.j_in, n);

	if (!output_fits(db, j.j_in, n))
		return 0;
	j.j_forgets = !is_looked_for(db, j.j_in, n);
	j.j_no_tombs = j.j_forgets && first + n == from + of;
	if (n == of && keys > db->d_budget.b_leaf_keys) {
		j.j_cut = cut_keys(db, tr, keys);
		j.j_how = j.j_cut ? SPLIT : ONE;
	}
	return job_run(&j);
}

/*
 * LF4: the oldest upper runs, until they have as many keys as a leaf. Not while a leaf is behind
 * with its own merges.
 */
static int spill(struct kvdb *db, struct kvdb_kvs *kvs, struct kv_tree *tr)
{
	struct job j = { .j_db = db, .j_kvs = kvs, .j_tree = tr, .j_how = SPILL,
			 .j_asked = is_asked(kvs) };
	uint64_t keys = 0;
	unsigned first = tr->tr_nupper;

	for (uint32_t i = 0; i < tr->tr_nleaf; i++) {
		const struct kv_leaf_runs *lr = &tr->tr_leaf[i];

		if (!CHECK(576, lr->lr_n < KV_LEAF_RUNS_MAX) ||
		    split_is_due(db, tr, &tr->tr_run[lr->lr_first], lr->lr_n))
			return 0;
	}
	while (first && keys < db->d_budget.b_leaf_keys && j.j_n < MERGE_MAX) {
		keys += kv_run_desc(tr->tr_run[--first])->rd_keys;
		j.j_n++;
	}
	j.j_in = &tr->tr_run[first];
	if (!j.j_n || !output_fits(db, j.j_in, j.j_n))
		return 0;
	j.j_forgets = !is_looked_for(db, j.j_in, j.j_n);
	return job_run(&j);
}

/* R19: the upper runs delete as much as a quarter of all keys below, or hold so many. */
static bool spill_for_space(struct kvdb *db, struct kv_tree *tr)
{
	uint64_t newer = keys_of(tr->tr_run, tr->tr_nupper), tombs;
	uint64_t older = keys_of(tr->tr_run + tr->tr_nupper, tr->tr_nrun - tr->tr_nupper);

	if (!tr->tr_nupper)
		return false;
	tombs = kv_tombs_garbage(tr->tr_run, tr->tr_nupper, tr->tr_nrun);
	for (uint32_t i = 0; i < tr->tr_nupper; i++)
		tombs += tr->tr_run[i]->rn_tombs;
	return tombs > older / 4 || (newer >= older / 4 && kv_segs_are_short(db));
}

/* The leaf with most runs of those in which a merge is due. */
static int merge_leaf(struct kvdb *db, struct kvdb_kvs *kvs, struct kv_tree *tr)
{
	unsigned first, len = 0, most = 0, from = 0;
	uint32_t leaf = 0;

	for (uint32_t i = 0; i < tr->tr_nleaf; i++) {
		const struct kv_leaf_runs *lr = &tr->tr_leaf[i];
		unsigned n = lr->lr_n <= most ? 0 :
			     pick(db, tr, &tr->tr_run[lr->lr_first], lr->lr_n, &first);

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
		struct job j = { .j_db = db, .j_kvs = kvs, .j_tree = tr, .j_leaf = i, .j_nleaf = 2,
				 .j_in = &tr->tr_run[a->lr_n ? a->lr_first : b->lr_first],
				 .j_n = a->lr_n + b->lr_n };

		if (j.j_n > MERGE_MAX ||
		    keys_of(j.j_in, j.j_n) >= db->d_budget.b_leaf_keys / 2 ||
		    !output_fits(db, j.j_in, j.j_n))
			continue;
		j.j_no_tombs = j.j_forgets = !is_looked_for(db, j.j_in, j.j_n);
		return job_run(&j);
	}
	return 0;
}

/* All runs, or with too many the oldest: those that others may follow to. */
static unsigned pick_asked(struct kvdb *db, struct kv_run **run, unsigned n, unsigned *first)
{
	unsigned len = n < MERGE_MAX ? n : MERGE_MAX;

	*first = n - len;
	if (n != 1)
		return len;
	return run[0]->rn_tombs || run[0]->rn_tindex || kv_run_expired(run[0], kv_time_ms(db));
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

		n = has_asked(kvs, run, lr->lr_n) ? pick_asked(db, run, lr->lr_n, &first) : 0;
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
		n = pick_asked(db, tr->tr_run, tr->tr_nrun, &first);
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
		n = pick(db, tr, tr->tr_run, tr->tr_nrun, &first);
		return n ? merge_runs(db, kvs, tr, first, n, 0) : 0;
	}
	/* leaves first, but not for ever */
	if (tr->tr_nupper >= 2 * KV_SPILL_RUNS)
		rc = spill(db, kvs, tr);
	if (!rc)
		rc = merge_leaf(db, kvs, tr);
	if (!rc && (tr->tr_nupper >= KV_SPILL_RUNS || spill_for_space(db, tr)))
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
	struct job j = { .j_db = m->m_db, .j_kvs = m->m_kvs, .j_tree = m->m_tree, .j_in = in,
			 .j_n = len, .j_leaf = leaf, .j_nleaf = is_leaf };
	struct kv_move *mv;
	int rc;

	if (!len)
		return 0;
	if (len > MERGE_MAX)
		return -EAGAIN;
	j.j_forgets = !is_looked_for(m->m_db, in, len);
	j.j_no_tombs = j.j_forgets && len == n && (is_leaf || !m->m_tree->tr_nleaf);
	rc = kv_move_open(m->m_db, m->m_kvs, m->m_epoch, m->m_class, m->m_only, &mv);
	if (rc)
		return rc;
	j.j_move = mv;
	rc = job_run(&j);
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
