/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * One relocation: it finds the segments that may be emptied, counts what lives in them,
 * and when victims are chosen (reloc.c) moves what lives there, store by store, with a merge
 * (kv_merge_move()).
 *
 * Nothing here frees anything: a segment goes when nothing refers to it (RV7).
 * A wrong number costs time or space, never data.
 *
 * Locks: the thread that begins a job holds its lock (reloc.c) until its end.
 */
#include <assert.h>
#include <errno.h>

#include "compact/reloc_job.h"
#include "base/assert.h"
#include "base/vec.h"
#include "db/bell.h"
#include "db/db.h"
#include "db/etime.h"
#include "db/policy.h"
#include "seg/kv_omf.h"
#include "seg/value.h"
#include "mem/iter.h"
#include "run/run.h"
#include "tree/leaf.h"
#include "tree/merge_iter.h"
#include "tree/tomb_view.h"
#include "compact/progress.h"
#include "compact/reloc.h"

#define COUNT_MAX	32u		/* runs that one merge can take */
#define CHECK_EVERY	128u	/* entries (about a page) between looks at stop and fault */

bool kv_rjob_may_empty(const struct kv_rjob *jb, struct kv_seg *s)
{
	return atomic_load(&s->sg_state) == KV_SEG_SEALED &&
	       atomic_load(&s->sg_last_epoch) <= jb->jb_horizon &&
	       !kv_mt_may_refer(&jb->jb_memtables, s) && atomic_load(&s->sg_runs) &&
	       !atomic_load(&s->sg_pins) &&
	       jb->jb_now >= atomic_load(&s->sg_trouble.tb_again_ns);
}

void kv_rjob_look(struct kvdb *db, struct kv_rjob *jb)
{
	jb->jb_now = kv_now(db);
	jb->jb_horizon = kv_min_horizon(db);
	kv_mt_epochs(db, &jb->jb_memtables);
}

bool kv_rjob_takes(const struct kv_rjob *jb, unsigned mclass)
{
	return jb->jb_classes & 1u << mclass;
}

/* NULL: no candidate of the job. sg_cand is another job's in another class. */
static struct kv_victim *cand_of(const struct kv_rjob *jb, const struct kv_seg *s)
{
	struct kv_victim *v;

	if (!kv_rjob_takes(jb, s->sg_mclass) || !s->sg_cand)
		return NULL;
	v = &jb->jb_cand[s->sg_cand - 1];
	KV_ASSERT(s->sg_cand <= jb->jb_ncand && v->vi_seg == s);	/* G10 */
	return v;
}

static void cand_add(void *arg, struct kv_seg *s)
{
	struct kv_rjob *jb = arg;
	int64_t heat = atomic_load_explicit(&s->sg_heat, memory_order_relaxed);

	if (!kv_rjob_takes(jb, s->sg_mclass))
		return;
	s->sg_cand = 0;
	if (jb->jb_err || !kv_rjob_may_empty(jb, s))
		return;
	jb->jb_err = kv_vec_grow(&jb->jb_cand, &jb->jb_cap, jb->jb_ncand + 1,
				 sizeof(jb->jb_cand[0]));
	if (jb->jb_err)
		return;
	jb->jb_cand[jb->jb_ncand++] = (struct kv_victim){
		.vi_seg = kv_seg_get(s), .vi_bytes = s->sg_bytes,
		.vi_age = jb->jb_horizon - atomic_load(&s->sg_last_epoch) + 1,
		.vi_heat = heat > 0 ? (uint64_t)heat : 0, .vi_is_ordered = s->sg_is_ordered,
		.vi_is_left = jb->jb_stays && s->sg_mclass != jb->jb_home,
	};
	s->sg_cand = jb->jb_ncand;
}

/* Candidates are fixed before any tree is taken: what refers to them later is in those trees. */
int kv_rjob_begin(struct kvdb *db, struct kv_rjob *jb)
{
	KV_ASSERT(!jb->jb_ncand && jb->jb_classes);
	jb->jb_err = jb->jb_failed = 0;
	jb->jb_ncand = 0;
	jb->jb_user = jb->jb_else = jb->jb_wrong = 0;
	jb->jb_stores = jb->jb_bytes = 0;
	kv_rjob_look(db, jb);
	kv_segs_each(db, cand_add, jb);
	return jb->jb_err;
}

void kv_rjob_end(struct kvdb *db, struct kv_rjob *jb)
{
	for (unsigned i = 0; i < jb->jb_ncand; i++) {
		KV_ASSERT(jb->jb_cand[i].vi_seg->sg_cand);	/* G10 */
		jb->jb_cand[i].vi_seg->sg_cand = 0;
		atomic_store(&jb->jb_cand[i].vi_seg->sg_victim, KV_VICTIM_NONE);
		kv_seg_put(db, jb->jb_cand[i].vi_seg);
	}
	jb->jb_ncand = 0;
}

static void count_ent(struct kv_rjob *jb, const struct kv_ent *e)
{
	struct kv_victim *v;
	uint32_t size;

	jb->jb_user += e->e_klen + kv_ent_stored(e);
	if (e->e_kind != KV_ENT_REF)
		return;
	v = cand_of(jb, e->e_seg);
	if (!v) {
		if (!kv_rjob_takes(jb, e->e_seg->sg_mclass))
			jb->jb_else += kv_rec_size(e->e_klen, kv_ent_stored(e));
		return;
	}
	if (e->e_pack && e->e_pack == jb->jb_how)
		size = kv_rec_size(e->e_klen, e->e_plen) + KV_REC_PACKED;
	else	/* plain, or recoded: at most */
		size = kv_rec_size(e->e_klen, e->e_vlen);
	size += e->e_expiry ? KV_REC_EXPIRY : 0;
	v->vi_live += size;
	if (jb->jb_class == v->vi_seg->sg_mclass) {
		v->vi_stay += size;
	} else if (jb->jb_strict) {
		v->vi_wrong += size;
		jb->jb_wrong += size;
	}
	if (jb->jb_strict)
		v->vi_only[jb->jb_class] += size;
}

/* -ECANCELED: the database stops, or the job was cancelled. */
static int count_walk(struct kvdb *db, const struct kvdb_kvs *kvs, struct kv_iter *it,
		      struct kv_rjob *jb, struct kv_progress *wa)
{
	struct kv_ent e;
	uint64_t now = kv_time_ms(db);
	int rc = 0;

	for (uint64_t n = 0; !rc; n++) {
		if (n % CHECK_EVERY == 0) {
			if (kv_work_stopping(db) || kv_fault(db) || kv_reloc_is_cancelled(db))
				return -ECANCELED;
			if (atomic_load_explicit(&kvs->k_dropped, memory_order_relaxed))
				return 0;	/* its drop waits for us */
			kv_progress_tell(db, wa);
		}
		rc = it->it_ops->next(it, &e);
		if (!rc && !kv_is_expired(&e, now))
			count_ent(jb, &e);
	}
	return rc == -ENOENT ? 0 : rc;
}

static void keep_seg(void *arg, struct kv_seg *s, uint64_t n, uint64_t bytes)
{
	struct kv_rjob *jb = arg;
	struct kv_victim *v = cand_of(jb, s);

	(void)n;
	jb->jb_user += bytes;
	if (v)
		v->vi_live = v->vi_stay = v->vi_bytes;
}

static void keep_runs(struct kv_rjob *jb, struct kv_run *const *run, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		jb->jb_user += kv_run_bytes(run[i]);
		kv_run_segs(run[i], keep_seg, jb);
	}
}

/* What a store refers to that cannot be moved now stays, live or not. */
static void keep_store(struct kv_rjob *jb, struct kv_tree *tr)
{
	keep_runs(jb, tr->tr_run, tr->tr_nrun);
}

static bool is_stuck(const struct kv_rjob *jb, struct kv_run *const *run, uint32_t n)
{
	bool is = false;

	for (uint32_t i = 0; i < n && !is; i++)
		is = atomic_load(&run[i]->rn_trouble.tb_again_ns) > jb->jb_now;
	return is;
}

/*
 * FS1: a part with a run that is stuck is not counted. What it refers to stays where it is, what
 * it hides elsewhere counts as live.
 */
static bool keep_stuck(void *arg, struct kv_run *const *run, uint32_t n)
{
	bool is = is_stuck(arg, run, n);

	if (is)
		keep_runs(arg, run, n);
	return is;
}

/* What was read to its end is no trouble any more. */
static void settle_runs(struct kvdb *db, const struct kv_tree *tr)
{
	for (uint32_t i = 0; i < tr->tr_nrun; i++)
		kv_trouble_end(db, &tr->tr_run[i]->rn_trouble);
}

static void leave_seg(void *arg, struct kv_seg *s, uint64_t n, uint64_t bytes)
{
	struct kv_victim *v = cand_of(arg, s);

	(void)n;
	(void)bytes;
	if (v)
		v->vi_is_left = true;
}

/* Jobs for staging will need these runs, down to the oldest with values there. */
static void leave_staged(struct kv_rjob *jb, struct kv_run **run, uint32_t n)
{
	for (n = kv_runs_staged(run, n); n; n--)
		kv_run_segs(run[n - 1], leave_seg, jb);
}

/* Where the values of a store go. */
static uint8_t class_of(struct kvdb *db, const struct kv_rjob *jb, const struct kvdb_kvs *kvs)
{
	if (jb->jb_stays && kv_policy_is_strict(db, kvs))
		return jb->jb_home;
	return kv_policy_move_class(db, kvs, jb->jb_tight);
}

/* All entries of a store that can be read. */
static int count_runs(struct kvdb *db, struct kvdb_kvs *kvs, struct kv_tree *tr,
		      struct kv_rjob *jb)
{
	struct kv_iter *src[COUNT_MAX], *it;
	struct kv_cover *co;
	struct kv_progress wa;
	uint64_t keys = 0;
	unsigned n;
	int rc;

	for (uint32_t i = 0; i < tr->tr_nrun; i++)
		keys += kv_run_desc(tr->tr_run[i])->rd_keys;
	rc = kv_tree_sources(db, tr, false, true, src);
	if (rc <= 0)
		return rc;
	n = (unsigned)rc;
	rc = kv_merge_iter(src, n, false, false, &it);
	if (rc) {
		kv_iters_close(src, n);
		return rc;
	}
	co = kv_cover_new(NULL, 0, tr->tr_run, tr->tr_nrun, UINT64_MAX, &rc);
	if (co) {
		rc = kv_cover_iter(it, co, &it);
		if (rc)
			return rc;
	}
	if (!rc) {
		kv_progress_begin(db, &wa, kv_tree_bytes(tr), keys / CHECK_EVERY);
		rc = count_walk(db, kvs, it, jb, &wa);
		kv_progress_end(db, &wa);
	}
	it->it_ops->close(it);
	return rc;
}

static int count_store(struct kvdb *db, struct kvdb_kvs *kvs, struct kv_tree *tr, void *arg)
{
	struct kv_rjob *jb = arg;
	int rc;

	jb->jb_class = class_of(db, jb, kvs);
	jb->jb_strict = kv_policy_is_strict(db, kvs);
	jb->jb_how = (uint8_t)atomic_load(&kvs->k_prop[KV_PROP_COMPRESS]);
	/* B1, or ordinary merges come first: not now, and the other stores do not wait for it */
	if (atomic_load(&kvs->k_bulk) || tr->tr_nupper + !!tr->tr_nleaf > COUNT_MAX) {
		keep_store(jb, tr);
		return 0;
	}
	if (!kv_rjob_takes(jb, MPOOL_STAGING)) {
		leave_staged(jb, tr->tr_run, tr->tr_nupper);
		for (uint32_t i = 0; i < tr->tr_nleaf; i++)
			leave_staged(jb, tr->tr_run + tr->tr_leaf[i].lr_first, tr->tr_leaf[i].lr_n);
	}
	tr = kv_tree_runs(db, tr, keep_stuck, jb);
	if (!tr)
		return -ENOMEM;
	rc = count_runs(db, kvs, tr, jb);
	if (!rc)
		settle_runs(db, tr);
	kv_tree_put(db, tr);
	return rc;
}

static void refer_seg(void *arg, struct kv_seg *s, uint64_t n, uint64_t bytes)
{
	struct kv_rjob *jb = arg;
	struct kv_victim *v = cand_of(jb, s);

	if (!v)
		return;
	v->vi_n += n;
	v->vi_live += bytes;
	if (jb->jb_class == s->sg_mclass)
		v->vi_stay += bytes;
}

/*
 * What leaves by its age alone, or for scans, need not be counted: what the runs
 * refer to is enough, overwritten or not.
 */
static int refer_store(struct kvdb *db, struct kvdb_kvs *kvs, struct kv_tree *tr, void *arg)
{
	struct kv_rjob *jb = arg;

	jb->jb_class = kv_policy_move_class(db, kvs, jb->jb_tight);
	for (uint32_t i = 0; i < tr->tr_nrun; i++)
		kv_run_segs(tr->tr_run[i], refer_seg, jb);
	return 0;
}

int kv_rjob_count(struct kvdb *db, struct kv_rjob *jb, bool is_exact)
{
	return kv_each_store(db, is_exact ? count_store : refer_store, true, jb);
}

struct reach {
	uint8_t re_class;	/* where the values of the store go */
	uint64_t re_bytes;
};

static void reach_seg(void *arg, struct kv_seg *s, uint64_t n, uint64_t bytes)
{
	struct reach *re = arg;

	(void)n;
	if (s->sg_mclass == MPOOL_STAGING &&
	    (re->re_class != MPOOL_STAGING || kv_is_victim(s, true)))
		re->re_bytes += bytes;
}

static void reach_runs(struct reach *re, struct kv_run *const *run, uint32_t n)
{
	unsigned first, end = kv_runs_to_victims(run, n, true, &first);

	for (unsigned i = first; i < end; i++)
		kv_run_segs(run[i], reach_seg, re);
}

static int reach_store(struct kvdb *db, struct kvdb_kvs *kvs, struct kv_tree *tr, void *arg)
{
	struct reach *re = arg;

	re->re_class = kv_policy_move_class(db, kvs, true);
	reach_runs(re, tr->tr_run, tr->tr_nupper);
	for (uint32_t i = 0; i < tr->tr_nleaf; i++)
		reach_runs(re, tr->tr_run + tr->tr_leaf[i].lr_first, tr->tr_leaf[i].lr_n);
	return 0;
}

uint64_t kv_rjob_reach(struct kvdb *db)
{
	struct reach re = { 0 };

	kv_each_store(db, reach_store, true, &re);
	return re.re_bytes;
}

static int move_store(struct kvdb *db, struct kvdb_kvs *kvs, struct kv_rjob *jb)
{
	uint8_t to = class_of(db, jb, kvs);
	/* not the current one: that is 0 while a store is being made, and an epoch is at least 1 */
	int rc = kv_merge_move(db, kvs, jb->jb_horizon, to,
			       jb->jb_only || kv_policy_is_strict(db, kvs), jb->jb_whole,
			       &jb->jb_bytes);

	KV_ASSERT_OUTSIDE();
	jb->jb_stores += rc > 0;
	/* FS1: the others go on */
	if (kv_is_local(db, rc)) {
		jb->jb_failed = rc;
		return 0;
	}
	/* a bulk load began meanwhile, or a drop: the store's references keep their segments */
	if (rc == -EAGAIN && (atomic_load(&kvs->k_bulk) || atomic_load(&kvs->k_dropped)))
		return 0;
	return rc < 0 ? rc : 0;
}

int kv_rjob_move(struct kvdb *db, struct kv_rjob *jb, bool only, bool whole)
{
	int rc = 0;

	jb->jb_only = only;
	jb->jb_whole = whole;
	/* without their trees: the runs of a part that was moved come free before the next is */
	for (uint32_t i = 0; i < KVDB_KVS_MAX && !rc; i++) {
		struct kvdb_kvs *kvs = kv_kvs_hold(db, i);

		if (!kvs)
			continue;
		rc = move_store(db, kvs, jb);
		kv_kvs_release(kvs);
	}
	return rc;
}

/* Bytes that came free, or will when readers leave, less those of new segments (G13). */
static uint64_t gained(const struct kv_victim *v, uint64_t n, uint64_t taken)
{
	uint64_t freed = 0;

	for (uint64_t i = 0; i < n; i++)
		if (!atomic_load(&v[i].vi_seg->sg_runs))
			freed += v[i].vi_bytes;
	return freed > taken ? freed - taken : 0;
}

/* The same of staging: what stays there was written anew. */
static uint64_t left_staging(const struct kv_victim *v, uint64_t n)
{
	uint64_t left = 0;

	for (uint64_t i = 0; i < n; i++)
		if (v[i].vi_seg->sg_mclass == MPOOL_STAGING && !atomic_load(&v[i].vi_seg->sg_runs))
			left += v[i].vi_bytes - kv_victim_stays(&v[i]);
	return left;
}

uint64_t kv_rjob_space(struct kvdb *db, const struct kv_rjob *jb)
{
	uint64_t bytes = 0, live = jb->jb_else;

	for (unsigned i = 0; i < jb->jb_ncand; i++) {
		bytes += jb->jb_cand[i].vi_bytes;
		live += jb->jb_cand[i].vi_live;
	}
	if (!kv_rjob_takes(jb, MPOOL_STAGING))
		bytes += kv_segs_staged(db);
	return bytes + kv_reloc_run_bytes(db) +
	       (jb->jb_user > live ? jb->jb_user - live : 0);
}

/* Most of what is on staging is not flushed: the next job will find more. */
static bool is_unflushed(const struct kv_rjob *jb, uint64_t staged)
{
	uint64_t flushed = 0;

	for (unsigned i = 0; i < jb->jb_ncand; i++)
		if (jb->jb_cand[i].vi_seg->sg_mclass == MPOOL_STAGING)
			flushed += jb->jb_cand[i].vi_bytes;
	return flushed < staged / 2;
}

uint64_t kv_rjob_todo(const struct kv_rjob *jb, unsigned n)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < n; i++)
		bytes += jb->jb_cand[i].vi_live;
	return bytes;
}

void kv_rjob_settle(struct kvdb *db, struct kv_rjob *jb, unsigned n)
{
	jb->jb_gain = gained(jb->jb_cand, n, jb->jb_bytes);
	jb->jb_left = left_staging(jb->jb_cand, n);
	jb->jb_is_unflushed = is_unflushed(jb, kv_segs_staged(db));
}
