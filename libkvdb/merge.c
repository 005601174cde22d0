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
 * One merge at a time per store (k_merging); flushes may publish newer runs
 * meanwhile. kvs->k_edit_lock is held only while the result is published.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "compact.h"
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
	tombs += kv_tombs_garbage(run + (n - len), len);
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
	tombs += kv_tombs_garbage(run, n) / 2;
	left = keys > 2 * tombs ? keys - 2 * tombs : 0;
	return bytes / keys * left <= kv_segs_free_bytes(db) / 2;
}

/* ---- one merge -------------------------------------------------------------------------- */

struct job {
	struct kvdb *j_db;
	struct kvdb_kvs *j_kvs;
	struct kv_tree *j_tree;
	struct kv_run **j_in;	/* newest first; the tree reference keeps them */
	unsigned j_n;
	/* the oldest run of the store is among them, and no transaction looks for them (T6) */
	bool j_no_tombs;
	bool j_asked;		/* somebody wants one run: kvdb_compact() */
	struct kv_move *j_move;	/* values of victims move on the way, or NULL */
	struct kv_walk j_walk;	/* progress, with j_asked or j_move */
};

/* Drops what tombstones over many keys of the inputs cover. */
static int job_hide(struct job *j, struct kv_iter **it)
{
	struct kv_cover *co;
	int rc;

	co = kv_cover_new(NULL, 0, j->j_in, j->j_n, UINT64_MAX, &rc);
	if (co)
		return kv_cover_iter(*it, co, it);
	if (rc)
		(*it)->it_ops->close(*it);
	return rc;
}

static int job_sources(struct job *j, struct kv_iter **out)
{
	struct kv_iter *src[MERGE_MAX];
	unsigned n;
	int rc = 0;

	for (n = 0; n < j->j_n && !rc; n++)
		rc = kv_run_iter_bulk(j->j_db, j->j_in[n], &src[n]);
	if (!rc) {
		rc = kv_merge_iter(src, n, false, !j->j_no_tombs, out);
		return rc ? rc : job_hide(j, out);
	}
	for (n--; n-- > 0;)
		src[n]->it_ops->close(src[n]);
	return rc;
}

/* H3: tombstones over many keys go on, as long as they may hide something elsewhere. */
static int job_tombs(struct job *j, struct kv_run_build *rb)
{
	struct kv_trows tv = { 0 };
	int rc = 0;

	for (unsigned i = 0; i < j->j_n && !rc; i++)
		rc = kv_trows_run(&tv, j->j_in[i]);
	if (!rc) {
		kv_trows_needed(&tv, j->j_tree, j->j_in, j->j_n, NULL);
		rc = kv_run_build_tombs(rb, tv.tv_r, tv.tv_n);
	}
	free(tv.tv_r);
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
static int job_copy(struct job *j, struct kv_iter *it, struct kv_run_build *rb)
{
	struct kv_ent e;
	uint64_t now = kv_time_ms(j->j_db);
	int rc;

	for (uint64_t n = 0;; n++) {
		if (n % CHECK_EVERY == 0) {
			if (kv_work_stopping(j->j_db) || kv_fault(j->j_db) || job_is_cancelled(j))
				return -ECANCELED;
			if (j->j_move || j->j_asked)
				kv_walk_on(j->j_db, &j->j_walk);
		}
		rc = it->it_ops->next(it, &e);
		if (rc == -ENOENT)
			return j->j_move ? kv_move_flush(j->j_move, rb) : 0;
		/* R18: where nothing older is left it is nothing, else a tombstone */
		if (!rc && KV_UNLIKELY(kv_is_expired(&e, now))) {
			if (j->j_no_tombs)
				continue;
			kv_ent_expire(&e);
		}
		if (!rc)
			rc = j->j_move ? kv_move_add(j->j_move, rb, &e) : kv_run_build_add(rb, &e);
		if (rc)
			return rc;
	}
}

static int job_build(struct job *j, struct kv_run **out)
{
	struct kv_run_build *rb;
	struct kv_iter *it;
	uint64_t keys = 0, bytes = 0;
	int rc;

	for (unsigned i = 0; i < j->j_n; i++) {
		keys += kv_run_desc(j->j_in[i])->rd_keys;
		bytes += j->j_in[i]->rn_bytes;
	}
	rc = job_sources(j, &it);
	if (rc)
		return rc;
	/* a merge frees space: it may use the reserve */
	rc = kv_run_build_open(j->j_db, j->j_kvs->k_id, keys, true, &rb);
	if (!rc) {
		if (j->j_move || j->j_asked)
			kv_walk_begin(j->j_db, &j->j_walk, bytes, keys / CHECK_EVERY);
		rc = job_tombs(j, rb);
		if (!rc)
			rc = job_copy(j, it, rb);
		if (j->j_move || j->j_asked)
			kv_walk_end(j->j_db, &j->j_walk);
		if (rc)
			kv_run_build_abort(rb);
		else
			rc = kv_run_build_finish(rb, out);
	}
	it->it_ops->close(it);
	return rc;
}

static void job_describe(struct job *j, struct kv_run *r)
{
	struct kv_run_desc *d = kv_run_desc(r);

	d->rd_id = atomic_fetch_add(&j->j_db->d_next_run, 1);
	d->rd_pos = kv_run_desc(j->j_in[0])->rd_pos;
	d->rd_newest_epoch = 0;
	for (unsigned i = 0; i < j->j_n; i++) {
		const struct kv_run_desc *in = kv_run_desc(j->j_in[i]);

		if (in->rd_newest_epoch > d->rd_newest_epoch)
			d->rd_newest_epoch = in->rd_newest_epoch;
		/* versions that were dropped count: new numbers start above them (R3) */
		if (in->rd_max_seq > d->rd_max_seq)
			d->rd_max_seq = in->rd_max_seq;
	}
}

/* What is not listed goes; after a failure nobody knows what is listed. */
static void run_discard(struct kvdb *db, struct kv_run *r)
{
	if (r && !kv_fault(db))
		kv_run_drop(r);
	kv_run_put(db, r);
}

static int job_publish(struct job *j, struct kv_run *r)
{
	struct kv_edit ed = { .ed_kvs = j->j_kvs->k_id, .ed_add = r, .ed_drop = j->j_in,
			      .ed_ndrop = j->j_n };
	int rc;

	pthread_mutex_lock(&j->j_kvs->k_edit_lock);
	if (r)
		job_describe(j, r);
	rc = kv_mdc_edit(j->j_db, &ed);
	if (!rc) {
		for (unsigned i = 0; i < j->j_n; i++)
			kv_run_drop(j->j_in[i]);
		rc = kv_tree_merged(j->j_kvs, j->j_in, j->j_n, r);
		if (rc)	/* the media say one thing and memory another */
			kv_fail(j->j_db, rc, "publishing a merge of store %s failed",
				j->j_kvs->k_name);
	}
	pthread_mutex_unlock(&j->j_kvs->k_edit_lock);
	if (rc)
		run_discard(j->j_db, r);
	return rc;
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

/* All runs, or with too many the oldest: those that others may follow to. */
static unsigned pick_asked(struct kvdb *db, struct kv_run **run, unsigned n, unsigned *first)
{
	unsigned len = n < MERGE_MAX ? n : MERGE_MAX;

	*first = n - len;
	if (n > 1)
		return len;
	return run[0]->rn_tombs || run[0]->rn_tindex || kv_run_expired(run[0], kv_time_ms(db));
}

/* The runs that are due: [*first, *first + returned). */
static unsigned pick_due(struct kvdb *db, struct kv_run **run, unsigned n, unsigned *first)
{
	uint64_t keys[256];
	unsigned len, skip = 0;

	if (!n)
		return 0;
	if (n > 256) {	/* the oldest count first */
		skip = n - 256;
		n = 256;
	}
	run += skip;
	for (unsigned i = 0; i < n; i++)
		keys[i] = kv_run_desc(run[i])->rd_keys;
	len = kv_merge_pick(keys, n, first);
	if (len < 2)
		len = pick_for_space(db, run, n, first);
	if (len < 2)
		len = pick_for_expiry(db, run, n, first);
	*first += skip;
	return len;
}

static int merge_tree(struct kvdb *db, struct kvdb_kvs *kvs, struct kv_tree *tr)
{
	bool asked = atomic_load(&kvs->k_compact) == KV_COMPACT_MERGE;
	unsigned n = tr->tr_nrun, first = 0, len;
	struct kv_run *out = NULL;
	struct job j;
	int rc;

	len = asked && n ? pick_asked(db, tr->tr_run, n, &first) :
			   pick_due(db, tr->tr_run, n, &first);
	if (asked && !len)
		kv_compact_merged(kvs);
	if (!len)
		return 0;
	if (!output_fits(db, &tr->tr_run[first], len)) {
		if (asked)
			kv_compact_end(db, -ENOSPC);
		return 0;
	}
	j = (struct job){ .j_db = db, .j_kvs = kvs, .j_tree = tr, .j_in = &tr->tr_run[first],
			  .j_n = len, .j_asked = asked,
			  .j_no_tombs = first + len == tr->tr_nrun &&
					!is_looked_for(db, &tr->tr_run[first], len) };
	rc = job_build(&j, &out);
	if (!rc)
		rc = job_publish(&j, out);
	if (rc == -ECANCELED)
		return 0;
	if (asked && rc)
		kv_compact_end(db, rc);
	else if (asked && !first)
		kv_compact_merged(kvs);
	if (!rc)
		atomic_fetch_add(&db->d_count.merges, 1);
	return rc ? rc : 1;
}

static void has_victim(void *arg, struct kv_seg *s, uint64_t n, uint64_t bytes)
{
	(void)n;
	(void)bytes;
	*(bool *)arg |= atomic_load(&s->sg_victim);
}

/* How many runs from the newest on hold all references to victims. */
static unsigned runs_to_victims(struct kv_tree *tr)
{
	unsigned len = 0;

	for (unsigned i = 0; i < tr->tr_nrun; i++) {
		bool has = false;

		kv_run_segs(tr->tr_run[i], has_victim, &has);
		if (has)
			len = i + 1;
	}
	return len;
}

static int move_tree(struct kvdb *db, struct kvdb_kvs *kvs, struct kv_tree *tr, uint64_t epoch,
		     uint8_t mclass, bool only, uint64_t *bytes)
{
	unsigned len = runs_to_victims(tr);
	struct job j = { .j_db = db, .j_kvs = kvs, .j_tree = tr, .j_in = tr->tr_run, .j_n = len,
			 .j_no_tombs = len == tr->tr_nrun &&
				       !is_looked_for(db, tr->tr_run, len) };
	struct kv_run *out = NULL;
	int rc;

	if (!len)
		return 0;
	if (len > MERGE_MAX)
		return -EAGAIN;
	rc = kv_move_open(db, kvs->k_id, epoch, mclass, only, &j.j_move);
	if (rc)
		return rc;
	rc = job_build(&j, &out);
	/* G2: what the edit refers to is durable before it */
	if (!rc) {
		rc = BARRIER(502, kv_move_seal(j.j_move));
		if (rc)
			run_discard(db, out);
	}
	if (!rc)
		rc = job_publish(&j, out);
	*bytes += kv_move_bytes(j.j_move);
	kv_move_close(j.j_move);
	if (rc == -ECANCELED)
		return -EAGAIN;
	return rc ? rc : 1;
}

int kv_merge_move(struct kvdb *db, struct kvdb_kvs *kvs, uint64_t epoch, uint8_t mclass,
		  bool only, uint64_t *bytes)
{
	struct timespec ts = { .tv_nsec = 1000000 };
	struct kv_tree *tr;
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
	tr = kv_tree_get(kvs);
	rc = move_tree(db, kvs, tr, epoch, mclass, only, bytes);
	kv_tree_put(db, tr);
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
		if (atomic_load(&kvs->k_compact) == KV_COMPACT_MERGE)
			kv_compact_end(db, -EBUSY);
		atomic_store(&kvs->k_merging, false);
		return 0;
	}
	tr = kv_tree_get(kvs);
	rc = merge_tree(db, kvs, tr);
	kv_tree_put(db, tr);
	atomic_store(&kvs->k_merging, false);
	return rc;
}
