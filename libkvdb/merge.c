/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Merging of ordered sources, and the compaction of runs that is built on it.
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

#include "pages.h"
#include "run.h"

#define MERGE_MAX	32u	/* sources */
#define TIER_FACTOR	4u
#define SUM_NUM		16	/* 3.2: runs of one tier are not all equal */
#define SUM_DEN		5
#define RUNS_WANTED	8u	/* more are merged whatever their sizes */
#define CHECK_EVERY	128u	/* entries (about a page) between looks at stop and fault */

/* ---- merging iterator --------------------------------------------------------------- */

struct source {
	struct kv_iter *so_it;
	uint64_t so_head;	/* of so_ent's key */
	struct kv_ent so_ent;
	bool so_live;		/* so_ent is valid */
	bool so_stale;		/* so_ent was returned; the next call moves on */
};

struct merge_iter {
	struct kv_iter mi_it;
	unsigned mi_n;
	bool mi_reverse, mi_tombs;
	bool mi_started;
	int mi_err;		/* a source has lost its place: only a seek helps */
	struct source mi_src[];
};

static int source_next(struct source *s)
{
	int rc = s->so_it->it_ops->next(s->so_it, &s->so_ent);

	s->so_stale = false;
	s->so_live = !rc;
	if (!rc)
		s->so_head = kv_head8(s->so_ent.e_key, s->so_ent.e_klen);
	return rc == -ENOENT ? 0 : rc;
}

static int merge_seek(struct kv_iter *it, const void *key, size_t klen)
{
	struct merge_iter *mi = (struct merge_iter *)it;
	int rc = 0;

	for (unsigned i = 0; i < mi->mi_n && !rc; i++) {
		struct kv_iter *src = mi->mi_src[i].so_it;

		mi->mi_src[i].so_live = false;
		mi->mi_src[i].so_stale = false;
		rc = src->it_ops->seek(src, key, klen);
		if (!rc)
			rc = source_next(&mi->mi_src[i]);
	}
	mi->mi_started = true;
	mi->mi_err = rc;
	return rc;
}

static inline int source_cmp(const struct source *a, const struct source *b)
{
	if (a->so_head != b->so_head)
		return a->so_head < b->so_head ? -1 : 1;
	return kv_kcmp(a->so_ent.e_key, a->so_ent.e_klen, b->so_ent.e_key, b->so_ent.e_klen);
}

/*
 * The source whose key comes first, the newest of them when several hold it.
 * The others that hold the same key become stale.
 */
static struct source *merge_pick(struct merge_iter *mi)
{
	struct source *best = NULL;
	unsigned same[MERGE_MAX], n = 0;

	for (unsigned i = 0; i < mi->mi_n; i++) {
		struct source *s = &mi->mi_src[i];
		int c;

		if (!s->so_live)
			continue;
		c = best ? source_cmp(s, best) : -1;
		if (mi->mi_reverse && best)
			c = -c;
		if (c < 0) {
			best = s;
			n = 0;
		} else if (!c) {
			same[n++] = i;
		}
	}
	while (n)
		mi->mi_src[same[--n]].so_stale = true;
	return best;
}

static int merge_next(struct kv_iter *it, struct kv_ent *e)
{
	struct merge_iter *mi = (struct merge_iter *)it;
	struct source *s;
	int rc = mi->mi_err;

	if (!mi->mi_started)
		rc = merge_seek(it, NULL, 0);
	do {
		for (unsigned i = 0; i < mi->mi_n && !rc; i++)
			if (mi->mi_src[i].so_stale)
				rc = source_next(&mi->mi_src[i]);
		mi->mi_err = rc;
		if (rc)
			return rc;
		s = merge_pick(mi);
		if (!s)
			return -ENOENT;
		s->so_stale = true;
	} while (s->so_ent.e_kind == KV_ENT_TOMB && !mi->mi_tombs);
	*e = s->so_ent;
	return 0;
}

static void merge_close(struct kv_iter *it)
{
	struct merge_iter *mi = (struct merge_iter *)it;

	for (unsigned i = 0; i < mi->mi_n; i++)
		mi->mi_src[i].so_it->it_ops->close(mi->mi_src[i].so_it);
	free(mi);
}

static const struct kv_iter_ops merge_ops = {
	.seek = merge_seek,
	.next = merge_next,
	.close = merge_close,
};

int kv_merge_iter(struct kv_iter **src, unsigned n, bool reverse, bool keep_tombs,
		  struct kv_iter **out)
{
	struct merge_iter *mi = NULL;

	if (n <= MERGE_MAX)
		mi = calloc(1, sizeof(*mi) + n * sizeof(mi->mi_src[0]));
	if (!mi) {
		for (unsigned i = 0; i < n; i++)
			src[i]->it_ops->close(src[i]);
		return n <= MERGE_MAX ? -ENOMEM : -E2BIG;
	}
	mi->mi_it.it_ops = &merge_ops;
	mi->mi_n = n;
	mi->mi_reverse = reverse;
	mi->mi_tombs = keep_tombs;
	for (unsigned i = 0; i < n; i++)
		mi->mi_src[i].so_it = src[i];
	*out = &mi->mi_it;
	return 0;
}

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
	left = keys > 2 * tombs ? keys - 2 * tombs : 0;
	return bytes / keys * left <= kv_segs_free_bytes(db) / 2;
}

/* ---- one merge -------------------------------------------------------------------------- */

struct job {
	struct kvdb *j_db;
	struct kvdb_kvs *j_kvs;
	struct kv_run **j_in;	/* newest first; the tree reference keeps them */
	unsigned j_n;
	bool j_oldest;		/* the oldest run of the store is among them */
};

static int job_sources(struct job *j, struct kv_iter **out)
{
	struct kv_iter *src[MERGE_MAX];
	unsigned n;
	int rc = 0;

	for (n = 0; n < j->j_n && !rc; n++)
		rc = kv_run_iter_bulk(j->j_db, j->j_in[n], &src[n]);
	if (!rc)
		return kv_merge_iter(src, n, false, !j->j_oldest, out);
	for (n--; n-- > 0;)
		src[n]->it_ops->close(src[n]);
	return rc;
}

/* -ECANCELED: the database stops or failed. */
static int job_copy(struct job *j, struct kv_iter *it, struct kv_run_build *rb)
{
	struct kv_ent e;
	int rc;

	for (uint64_t n = 0;; n++) {
		if (n % CHECK_EVERY == 0 && (kv_work_stopping(j->j_db) || kv_fault(j->j_db)))
			return -ECANCELED;
		rc = it->it_ops->next(it, &e);
		if (rc == -ENOENT)
			return 0;
		if (!rc)
			rc = kv_run_build_add(rb, &e);
		if (rc)
			return rc;
	}
}

static int job_build(struct job *j, struct kv_run **out)
{
	struct kv_run_build *rb;
	struct kv_iter *it;
	uint64_t keys = 0;
	int rc;

	for (unsigned i = 0; i < j->j_n; i++)
		keys += kv_run_desc(j->j_in[i])->rd_keys;
	rc = job_sources(j, &it);
	if (rc)
		return rc;
	/* a merge frees space: it may use the reserve */
	rc = kv_run_build_open(j->j_db, j->j_kvs->k_id, keys, true, &rb);
	if (!rc) {
		rc = job_copy(j, it, rb);
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
	if (rc) {
		/* what is not listed goes; after a failure nobody knows what is listed */
		if (r && !kv_fault(j->j_db))
			kv_run_drop(r);
		kv_run_put(j->j_db, r);
	}
	return rc;
}

static int merge_tree(struct kvdb *db, struct kvdb_kvs *kvs, struct kv_tree *tr)
{
	uint64_t keys[256];
	unsigned n = tr->tr_nrun, first, len, skip = 0;
	struct kv_run *out = NULL;
	struct job j;
	int rc;

	if (n < 2)
		return 0;
	if (n > 256) {	/* the oldest count first */
		skip = n - 256;
		n = 256;
	}
	for (unsigned i = 0; i < n; i++)
		keys[i] = kv_run_desc(tr->tr_run[skip + i])->rd_keys;
	len = kv_merge_pick(keys, n, &first);
	if (len < 2)
		len = pick_for_space(db, &tr->tr_run[skip], n, &first);
	if (len < 2)
		return 0;
	first += skip;
	if (!output_fits(db, &tr->tr_run[first], len))
		return 0;
	j = (struct job){ .j_db = db, .j_kvs = kvs, .j_in = &tr->tr_run[first], .j_n = len,
			  .j_oldest = first + len == tr->tr_nrun };
	rc = job_build(&j, &out);
	if (!rc)
		rc = job_publish(&j, out);
	if (rc == -ECANCELED)
		return 0;
	if (!rc)
		atomic_fetch_add(&db->d_count.merges, 1);
	return rc ? rc : 1;
}

int kv_merge_step(struct kvdb *db, struct kvdb_kvs *kvs)
{
	struct kv_tree *tr;
	bool busy = false;
	int rc;

	if (kv_fault(db) || db->d_rdonly ||
	    !atomic_compare_exchange_strong(&kvs->k_merging, &busy, true))
		return 0;
	tr = kv_tree_get(kvs);
	rc = merge_tree(db, kvs, tr);
	kv_tree_put(db, tr);
	atomic_store(&kvs->k_merging, false);
	return rc;
}
