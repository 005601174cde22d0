/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * One merge: it reads runs, writes others, and replaces the ones by the others
 * with one version edit. kvs->k_edit_lock is held only for that.
 *
 * In most merges an entry keeps its reference, and the value stays where it is. One
 * that is a relocation too hands its entries to kv_move_add(), which copies values.
 * The new run takes the position of the newest input, so that position always means
 * age. A version is dropped only because a durable, newer run in the same merge, or in
 * front of it, holds the key or a range tombstone over it (R6), or because it has
 * expired; a tombstone only when nothing older than the merge is left.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/guard.h"
#include "base/key.h"
#include "base/trange.h"
#include "db/bell.h"
#include "db/db.h"
#include "db/etime.h"
#include "mem/iter.h"
#include "run/run.h"
#include "tree/leaf.h"
#include "tree/merge_iter.h"
#include "tree/tomb_view.h"
#include "tree/view.h"
#include "meta/edit.h"
#include "meta/mdc.h"
#include "compact/merge.h"
#include "compact/reloc.h"

#define CHECK_EVERY	128u	/* entries (about a page) between looks at stop and fault */
/* bytes of its record at which a split makes no more leaves */
#define SPLIT_MOST	(KV_MDC_REC_MAX / 2)

/* The part of the output that goes into one run: keys from @lo up to @hi. */
struct piece {
	struct kv_leaf *pc_leaf;	/* NULL: an upper run */
	const uint8_t *pc_hi;		/* NULL: no end */
	size_t pc_hilen;
	uint64_t pc_cut;		/* keys, at most; 0 = all */
	bool pc_no_tombs;
};

/* Drops what tombstones over many keys of the runs cover. */
static int job_hide(struct kv_iter **it, struct kv_run **run, unsigned n)
{
	struct kv_cover *co;
	int rc;

	co = kv_cover_new(NULL, 0, run, n, UINT64_MAX, &rc);
	if (co)
		rc = kv_cover_iter(*it, co, it);
	else if (rc)
		(*it)->it_ops->close(*it);
	if (rc)
		*it = NULL;
	return rc;
}

static int job_sources(struct kv_job *j, struct kv_iter **it)
{
	struct kv_iter *src[2 * KV_MERGE_MAX];
	struct kv_run **run = j->j_in - j->j_nabove;
	unsigned n, upper = j->j_nupper, part = j->j_n + j->j_nabove;
	int rc = 0;

	KV_ASSERT(upper <= KV_MERGE_MAX && part <= KV_MERGE_MAX);
	for (n = 0; n < upper + part && !rc; n++)
		rc = kv_run_iter_bulk(j->j_db, n < upper ? j->j_tree->tr_run[n] : run[n - upper],
				      &src[n]);
	n -= rc != 0;
	if (!rc)
		rc = kv_merge_iter(src, n, false, true, it);
	if (rc) {
		kv_iters_close(src, n);
		return rc;
	}
	kv_merge_only_hide(*it, upper + j->j_nabove);
	if (upper) {
		const struct kv_leaf *lf = j->j_tree->tr_leaf[j->j_leaf].lr_leaf;

		rc = (*it)->it_ops->seek(*it, lf->lf_key, lf->lf_klen);
		if (!rc)
			rc = job_hide(it, j->j_tree->tr_run, upper);
	}
	return rc ? rc : job_hide(it, run, part);
}

/* H3: tombstones over many keys go on, as long as they may hide something elsewhere. */
static int job_tombs(struct kv_job *j)
{
	int rc = 0;

	for (unsigned i = 0; i < j->j_n && !rc; i++)
		rc = kv_trows_run(&j->j_tombs, j->j_in[i]);
	if (!rc)
		kv_trows_prune(&j->j_tombs, j->j_tree, j->j_in, j->j_n, NULL);
	return rc;
}

/* What follows takes long, and as long as memtables are held their values stay where they are. */
static void job_leave_mts(struct kv_job *j)
{
	ptrdiff_t at = j->j_in - j->j_tree->tr_run;

	j->j_tree = kv_tree_leave_mts(j->j_db, j->j_tree);
	j->j_in = j->j_tree->tr_run + at;
	KV_ASSERT(at >= 0 && (size_t)at + j->j_n <= j->j_tree->tr_nrun);
}

/* The caller of the merge cancelled it, or a drop waits for its end. */
static bool job_is_cancelled(struct kv_job *j)
{
	if (atomic_load_explicit(&j->j_kvs->k_dropped, memory_order_relaxed))
		return true;
	if (j->j_move)
		return kv_reloc_is_cancelled(j->j_db);
	return j->j_asked && atomic_load(&j->j_kvs->k_compact) == KV_COMPACT_NONE;
}

/* The next one that goes on. -ENOENT: none; -ECANCELED: the database stops or failed. */
static int next_of(struct kv_job *j, struct kv_iter *it, struct kv_ent *e)
{
	int rc;

	do {
		if (j->j_seen++ % CHECK_EVERY == 0) {
			if (kv_work_stopping(j->j_db) || kv_fault(j->j_db) || job_is_cancelled(j))
				return -ECANCELED;
			if (j->j_move || j->j_asked)
				kv_progress_tell(j->j_db, &j->j_walk);
		}
		rc = it->it_ops->next(it, e);
		if (rc)
			return rc;
		/* R18: it goes where nothing older is left, else becomes a tombstone */
		if (KV_UNLIKELY(kv_is_expired(e, j->j_now)))
			kv_ent_expire(e);
	} while (e->e_kind == KV_ENT_TOMB && j->j_no_tombs);
	return 0;
}

static int job_next(struct kv_job *j)
{
	int rc = next_of(j, j->j_it, &j->j_ent);

	j->j_has = !rc;
	return rc == -ENOENT ? 0 : rc;
}

/* Looks ahead, as far as the mover can remember, and has it copy what it will meet. */
static int job_scout(struct kv_job *j, struct kv_run_build *rb)
{
	struct kv_ent e;
	int rc;

	kv_move_round(j->j_move);
	do {
		rc = next_of(j, j->j_scout, &e);
		j->j_ahead += !rc;
	} while (!rc && kv_move_note(j->j_move, &e));
	return rc && rc != -ENOENT ? rc : kv_move_sweep(j->j_move, rb);
}

/* An entry is about to be added to @rb: what it refers to was looked at. */
static int job_ahead(struct kv_job *j, struct kv_run_build *rb)
{
	int rc = 0;

	if (!j->j_scout)
		return 0;
	if (!j->j_ahead)
		rc = job_scout(j, rb);
	KV_ASSERT(rc || j->j_ahead);
	j->j_ahead--;
	return rc;
}

static bool in_piece(const struct piece *pc, const struct kv_ent *e, uint64_t n)
{
	return (!pc->pc_cut || n < pc->pc_cut) &&
	       (!pc->pc_hi || kv_kcmp(e->e_key, e->e_klen, pc->pc_hi, pc->pc_hilen) < 0);
}

static int piece_copy(struct kv_job *j, const struct piece *pc, struct kv_run_build *rb)
{
	const struct kv_ent *e = &j->j_ent;
	uint64_t n = 0;
	int rc = 0;

	while (!rc && j->j_has && in_piece(pc, e, n)) {
		rc = job_ahead(j, rb);
		if (!rc && (e->e_kind != KV_ENT_TOMB || !pc->pc_no_tombs)) {
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
static int piece_tombs(struct kv_job *j, const struct piece *pc, struct kv_trows *tv)
{
	const struct kv_leaf *lf = pc->pc_leaf;
	int rc = 0;

	for (uint32_t i = 0; i < j->j_tombs.tv_n && !rc; i++)
		if (kv_trange_meets(&j->j_tombs.tv_r[i], lf ? lf->lf_key : NULL,
				    lf ? lf->lf_klen : 0, pc->pc_hi, pc->pc_hilen))
			rc = kv_trows_add(tv, &j->j_tombs.tv_r[i]);
	return rc;
}

static int job_grow(struct kv_job *j)
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

static int piece_build(struct kv_job *j, const struct piece *pc)
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
		KV_ASSERT(j->j_nout < j->j_cap);
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

static int build_spill(struct kv_job *j)
{
	int rc = 0;

	KV_ASSERT(j->j_tree->tr_nleaf && !j->j_nleaf);
	for (uint32_t i = 0; i < j->j_tree->tr_nleaf && !rc; i++) {
		const struct kv_leaf_runs *lr = &j->j_tree->tr_leaf[i];
		struct piece pc = { .pc_leaf = lr->lr_leaf,
				    .pc_no_tombs = j->j_forgets && !lr->lr_n };

		leaf_end(j->j_tree, i, &pc);
		rc = piece_build(j, &pc);
	}
	return rc;
}

/* Leaves are begun in the order of keys. */
static bool begins_behind(const struct kv_job *j, const void *key, size_t klen)
{
	const struct kv_leaf *lf = j->j_nbegin ? j->j_begin[j->j_nbegin - 1] : NULL;

	return !lf || kv_kcmp(lf->lf_key, lf->lf_klen, key, klen) < 0;
}

/* The leaf that begins between the last key of a piece and the next key. */
static int begin_leaf(struct kv_job *j, const void *key, size_t klen, struct kv_leaf **out)
{
	struct kv_leaf **more = realloc(j->j_begin, (j->j_nbegin + 1) * sizeof(*more));
	struct kv_leaf *lf = more ? kv_leaf_new(key, klen) : NULL;

	j->j_begin = more ? more : j->j_begin;
	if (!lf)
		return -ENOMEM;
	KV_ASSERT(begins_behind(j, key, klen));
	lf->lf_id = atomic_fetch_add(&j->j_db->d_runs.ru_next, 1);
	j->j_begin[j->j_nbegin++] = *out = lf;
	return 0;
}

/* Bytes that the edit takes for what was built so far. */
static uint64_t split_bytes(const struct kv_job *j)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < j->j_nout; i++)
		n += KV_MDC_RUN_BYTES + 16ull * j->j_out[i]->rn_n;
	for (unsigned i = 0; i < j->j_nbegin; i++)
		n += KV_MDC_LEAF_BYTES + j->j_begin[i]->lf_klen;
	return n;
}

static int build_split(struct kv_job *j)
{
	struct piece pc = { .pc_cut = j->j_cut };
	size_t klen;
	int rc;

	KV_ASSERT(j->j_cut && j->j_nleaf <= 1);
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
		/* one record says all of it: the last leaf has the rest, and is split in turn */
		if (split_bytes(j) > SPLIT_MOST)
			pc.pc_cut = 0;
		if (!rc)
			rc = piece_build(j, &pc);
	}
	return rc;
}

static int build_one(struct kv_job *j)
{
	struct piece pc = { 0 };

	if (j->j_nleaf) {
		pc.pc_leaf = j->j_tree->tr_leaf[j->j_leaf].lr_leaf;
		leaf_end(j->j_tree, j->j_leaf + j->j_nleaf - 1, &pc);
	}
	return piece_build(j, &pc);
}

static int job_build(struct kv_job *j)
{
	bool scouts = j->j_move && kv_move_looks_ahead(j->j_move);
	bool shows = j->j_move || j->j_asked;
	uint64_t bytes = 0;
	int rc = job_sources(j, &j->j_it);

	if (!rc && scouts)
		rc = job_sources(j, &j->j_scout);

	j->j_now = kv_time_ms(j->j_db);
	j->j_keys = kv_runs_keys(j->j_in, j->j_n);
	for (unsigned i = 0; i < j->j_n; i++)
		bytes += j->j_in[i]->rn_bytes;
	if (shows)
		kv_progress_begin(j->j_db, &j->j_walk, bytes,
				  (scouts ? 2 : 1) * j->j_keys / CHECK_EVERY);
	if (!rc)
		rc = job_tombs(j);
	job_leave_mts(j);
	if (!rc)
		rc = job_next(j);
	if (!rc)
		rc = j->j_how == KV_MERGE_SPILL ? build_spill(j) :
		     j->j_how == KV_MERGE_SPLIT ? build_split(j) : build_one(j);
	if (!rc && !CHECK(!j->j_has))
		rc = kv_error(-EUCLEAN, "MP0960", "store %u: a leaf holds keys of another one",
			      j->j_kvs->k_id);
	if (shows)
		kv_progress_end(j->j_db, &j->j_walk);
	if (j->j_it)
		j->j_it->it_ops->close(j->j_it);
	if (j->j_scout)
		j->j_scout->it_ops->close(j->j_scout);
	return rc;
}

/* What was made and is not shown goes; after a failure it is unknown what is listed. */
static void job_end(struct kv_job *j, bool is_shown)
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

static void job_describe(struct kv_job *j, struct kv_run *r, const struct kv_leaf *to)
{
	struct kv_run_desc *d = kv_run_desc(r);

	KV_ASSERT_HELD(&j->j_kvs->k_edit_lock);
	KV_ASSERT(!d->rd_id);
	d->rd_id = atomic_fetch_add(&j->j_db->d_runs.ru_next, 1);
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

static int job_publish(struct kv_job *j)
{
	struct kv_edit ed = { .ed_kvs = j->j_kvs->k_id, .ed_add = j->j_out, .ed_nadd = j->j_nout,
			      .ed_drop = j->j_in, .ed_ndrop = j->j_n, .ed_begin = j->j_begin,
			      .ed_nbegin = j->j_nbegin };
	int rc;

	KV_ASSERT_OUTSIDE();
	if (j->j_nleaf > 1)
		ed.ed_end = j->j_tree->tr_leaf[j->j_leaf + 1].lr_leaf->lf_id;
	pthread_mutex_lock(&j->j_kvs->k_edit_lock);
	for (unsigned i = 0; i < j->j_nout; i++)
		job_describe(j, j->j_out[i], j->j_to[i]);
	rc = kv_mdc_edit(j->j_db, &ed);
	if (!rc) {
		for (unsigned i = 0; i < j->j_n; i++) {
			KV_ASSERT(j->j_in[i]->rn_taken);	/* LF7: by this job */
			kv_run_drop(j->j_in[i]);
		}
		rc = kv_tree_show(j->j_kvs, NULL, &ed);
	}
	pthread_mutex_unlock(&j->j_kvs->k_edit_lock);
	return rc;
}

static void job_count(const struct kv_job *j)
{
	struct kv_counters *c = &j->j_db->d_count;
	uint64_t most = atomic_load(&c->merge_most_keys);

	atomic_fetch_add(&c->merges, 1);
	atomic_fetch_add(&c->spills, j->j_how == KV_MERGE_SPILL);
	atomic_fetch_add(&c->splits, j->j_nbegin != 0);
	atomic_fetch_add(&c->joins, j->j_nleaf > 1);
	atomic_fetch_add(&c->merge_keys, j->j_keys);
	while (j->j_keys > most &&
	       !atomic_compare_exchange_weak(&c->merge_most_keys, &most, j->j_keys))
		;
}

/* 1, or -errno. */
int kv_job_run(struct kv_job *j)
{
	int rc = job_build(j);

	KV_ASSERT_OUTSIDE();
	/* G2: what the edit refers to is durable before it */
	if (!rc && j->j_move)
		rc = BARRIER(kv_move_seal(j->j_move));
	if (!rc)
		rc = job_publish(j);
	if (!rc && !j->j_move)
		job_count(j);
	job_end(j, !rc);
	return rc ? rc : 1;
}

bool kv_job_blames(const struct kv_job *j)
{
	struct kv_run *const *run = j->j_in - j->j_nabove;
	unsigned upper = j->j_nupper, part = j->j_n + j->j_nabove;

	for (unsigned i = 0; i < upper + part; i++)
		if (atomic_load(&(i < upper ? j->j_tree->tr_run[i] : run[i - upper])
				->rn_trouble.tb_err))
			return true;
	return false;
}

bool kv_is_looked_for(struct kvdb *db, struct kv_run **run, unsigned n)
{
	uint64_t view = kv_views_oldest(db);

	for (unsigned i = 0; i < n; i++)
		if (!CHECK(kv_run_desc(run[i])->rd_max_seq <= view))
			return true;
	return false;
}
